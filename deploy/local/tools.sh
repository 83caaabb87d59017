#!/bin/sh
# Builds the pinned development tools into .tools/bin of this checkout, only those that are not there yet.
set -eu

GOLANGCI_LINT=v2.15.0

cd "$(dirname "$0")/../.."
bin=$PWD/.tools/bin
# The stamp names the version, so that a new pin rebuilds and an old build is never taken for it.
stamp=$bin/golangci-lint.$GOLANGCI_LINT

if [ -x "$bin/golangci-lint" ] && [ -e "$stamp" ]; then
	exit 0
fi
mkdir -p "$bin"
printf 'tools: building golangci-lint %s (about 2 minutes)\n' "$GOLANGCI_LINT"
GOWORK=off GOFLAGS= GOBIN=$bin go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$GOLANGCI_LINT"
rm -f "$bin"/golangci-lint.v*
: >"$stamp"
