module git.yuntuo.hk/k2safe/orbit/deploy/bench

go 1.26.0

require (
	git.yuntuo.hk/k2safe/orbit/sdk/go v0.0.0
	github.com/go-sql-driver/mysql v1.10.1
	github.com/shirou/gopsutil/v4 v4.26.10
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/ebitengine/purego v0.11.2 // indirect
	github.com/go-ole/go-ole v1.2.6 // indirect
	github.com/gorilla/websocket v1.5.3 // indirect
	github.com/lufia/plan9stats v0.0.0-20211012122336-39d0f177ccd0 // indirect
	github.com/power-devops/perfstat v0.0.0-20260805114148-88456608a4f6 // indirect
	github.com/tklauser/go-sysconf v0.4.0 // indirect
	github.com/tklauser/numcpus v0.12.0 // indirect
	github.com/yusufpapurcu/wmi v1.2.4 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace git.yuntuo.hk/k2safe/orbit/sdk/go => ../../sdk/go
