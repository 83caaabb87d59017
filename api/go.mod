module git.yuntuo.hk/k2safe/orbit/api

go 1.26
