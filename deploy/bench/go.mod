module git.yuntuo.hk/k2safe/orbit/deploy/bench

go 1.26

require (
	git.yuntuo.hk/k2safe/orbit/sdk/go v0.0.0
	github.com/go-sql-driver/mysql v1.10.1
	github.com/gorilla/websocket v1.5.3
)

require filippo.io/edwards25519 v1.2.0 // indirect

replace git.yuntuo.hk/k2safe/orbit/sdk/go => ../../sdk/go
