#!/bin/sh
# All tests of all modules in one run, whose summary is gotestsum's. Arguments go to `go test`.
set -eu
cd "$(dirname "$0")/../.."
export ORBIT_BIN="$PWD/bin" # what make has just built
exec go run gotest.tools/gotestsum@v1.13.0 --format pkgname --hide-summary=skipped -- \
	-race -shuffle=on -count=1 -timeout 20m "$@" git.yuntuo.hk/k2safe/orbit/...
