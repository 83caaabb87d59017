module git.yuntuo.hk/k2safe/orbit/sdk/orbitctl

go 1.24.0

require (
	git.yuntuo.hk/k2safe/orbit/sdk/go v0.0.0
	github.com/spf13/cobra v1.10.1
)

require (
	github.com/gorilla/websocket v1.5.3 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
)

replace git.yuntuo.hk/k2safe/orbit/sdk/go => ../go
