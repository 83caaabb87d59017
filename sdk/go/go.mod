module git.yuntuo.hk/k2safe/orbit/sdk/go

go 1.24.0

require (
	github.com/gorilla/websocket v1.5.3
	go.uber.org/goleak v1.3.0
)
