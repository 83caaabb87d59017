module git.yuntuo.hk/k2safe/orbit/services/gateway

go 1.26.0

require (
	git.yuntuo.hk/k2safe/orbit/pkg v0.0.0
	github.com/go-json-experiment/json v1.27.2
)

require github.com/google/uuid v1.6.0 // indirect

replace git.yuntuo.hk/k2safe/orbit/api => ../../api

replace git.yuntuo.hk/k2safe/orbit/migrations => ../../migrations

replace git.yuntuo.hk/k2safe/orbit/pkg => ../../pkg
