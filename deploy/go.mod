module git.yuntuo.hk/k2safe/orbit/deploy

go 1.26

require (
	git.yuntuo.hk/k2safe/orbit/api v0.0.0
	git.yuntuo.hk/k2safe/orbit/migrations v0.0.0
	git.yuntuo.hk/k2safe/orbit/pkg v0.0.0
	git.yuntuo.hk/k2safe/orbit/sdk/go v0.0.0
)

replace git.yuntuo.hk/k2safe/orbit/api => ../api

replace git.yuntuo.hk/k2safe/orbit/migrations => ../migrations

replace git.yuntuo.hk/k2safe/orbit/pkg => ../pkg

replace git.yuntuo.hk/k2safe/orbit/sdk/go => ../sdk/go
