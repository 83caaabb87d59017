module git.yuntuo.hk/k2safe/orbit/deploy/bench

go 1.26

require git.yuntuo.hk/k2safe/orbit/sdk/go v0.0.0

require github.com/gorilla/websocket v1.5.3 // indirect

replace git.yuntuo.hk/k2safe/orbit/sdk/go => ../../sdk/go
