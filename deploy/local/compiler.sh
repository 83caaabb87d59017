#!/bin/sh
# Makes sure that there is a C compiler, which Go's race detector needs. Does nothing when there is one.
set -eu

command -v gcc >/dev/null 2>&1 && exit 0
command -v clang >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	echo "compiler: the tests run with Go's race detector, which needs gcc or clang: install one" >&2
	exit 1
fi
root=
[ "$(id -u)" = 0 ] || root=sudo
echo "compiler: installing gcc"
install() {
	$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends gcc libc6-dev </dev/null >/dev/null
}
install || { $root apt-get -qq update </dev/null; install; }
