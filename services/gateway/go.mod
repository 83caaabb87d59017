module git.yuntuo.hk/k2safe/orbit/services/gateway

go 1.26.0

require (
	git.yuntuo.hk/k2safe/orbit/api v0.0.0-00010101000000-000000000000
	git.yuntuo.hk/k2safe/orbit/pkg v0.0.0
	github.com/caarlos0/env/v11 v11.4.2
	github.com/go-json-experiment/json v1.27.2
	github.com/gorilla/websocket v1.5.3
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	go.uber.org/goleak v1.3.0
	go.uber.org/zap v1.28.0
)

require (
	filippo.io/edwards25519 v1.1.0 // indirect
	git.yuntuo.hk/k2safe/orbit/migrations v0.0.0-00010101000000-000000000000 // indirect
	github.com/go-sql-driver/mysql v1.8.1 // indirect
	github.com/golang-migrate/migrate/v4 v4.20.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jmoiron/sqlx v1.4.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	golang.org/x/text v0.38.0 // indirect
)

replace git.yuntuo.hk/k2safe/orbit/api => ../../api

replace git.yuntuo.hk/k2safe/orbit/migrations => ../../migrations

replace git.yuntuo.hk/k2safe/orbit/pkg => ../../pkg
