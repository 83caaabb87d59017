module git.yuntuo.hk/k2safe/orbit/deploy

go 1.26

require (
	git.yuntuo.hk/k2safe/orbit/migrations v0.0.0
	git.yuntuo.hk/k2safe/orbit/pkg v0.0.0
	git.yuntuo.hk/k2safe/orbit/sdk/go v0.0.0
	github.com/go-sql-driver/mysql v1.10.1
	github.com/schollz/progressbar/v3 v3.19.1
	golang.org/x/term v0.44.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/gorilla/websocket v1.5.3 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	golang.org/x/sys v0.46.0 // indirect
)

replace git.yuntuo.hk/k2safe/orbit/api => ../api

replace git.yuntuo.hk/k2safe/orbit/migrations => ../migrations

replace git.yuntuo.hk/k2safe/orbit/pkg => ../pkg

replace git.yuntuo.hk/k2safe/orbit/sdk/go => ../sdk/go
