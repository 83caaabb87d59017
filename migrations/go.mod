module git.yuntuo.hk/k2safe/orbit/migrations

go 1.26
