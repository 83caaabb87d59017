module git.yuntuo.hk/k2safe/orbit/pkg

go 1.26

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	git.yuntuo.hk/k2safe/orbit/api v0.0.0
	git.yuntuo.hk/k2safe/orbit/migrations v0.0.0
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jmoiron/sqlx v1.4.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
)

replace git.yuntuo.hk/k2safe/orbit/api => ../api

replace git.yuntuo.hk/k2safe/orbit/migrations => ../migrations
