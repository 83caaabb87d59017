module git.yuntuo.hk/k2safe/orbit/sdk/go

go 1.24
