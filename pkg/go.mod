module git.yuntuo.hk/k2safe/orbit/pkg

go 1.26

require (
	git.yuntuo.hk/k2safe/orbit/migrations v0.0.0-00010101000000-000000000000
	github.com/go-json-experiment/json v1.27.2
	github.com/go-sql-driver/mysql v1.8.1
	github.com/google/uuid v1.6.0
	github.com/jmoiron/sqlx v1.4.0
	go.uber.org/zap v1.28.0
)

require pgregory.net/rapid v1.3.0

require github.com/robfig/cron/v3 v3.0.1

require (
	filippo.io/edwards25519 v1.1.0 // indirect
	github.com/golang-migrate/migrate/v4 v4.20.1
	go.uber.org/multierr v1.10.0 // indirect
)

replace git.yuntuo.hk/k2safe/orbit/api => ../api

replace git.yuntuo.hk/k2safe/orbit/migrations => ../migrations
