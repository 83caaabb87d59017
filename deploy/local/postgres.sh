#!/bin/sh
# Makes sure that PostgreSQL's server programs are there, for the tests of the SDK's inbox. Does nothing when they are.
# No cluster is made and no service runs: the tests start a private server.
set -eu

for initdb in /usr/lib/postgresql/*/bin/initdb /opt/homebrew/opt/postgresql*/bin/initdb /usr/local/opt/postgresql*/bin/initdb /usr/pgsql-*/bin/initdb; do
	[ -x "$initdb" ] && exit 0
done
command -v initdb >/dev/null 2>&1 && exit 0
if command -v brew >/dev/null 2>&1; then
	HOMEBREW_NO_AUTO_UPDATE=1 exec brew install --quiet postgresql@17 </dev/null
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "postgres: the tests of the SDK's inbox need PostgreSQL's server programs (initdb, postgres): install them" >&2
	exit 1
fi
root=
[ "$(id -u)" = 0 ] || root=sudo
apt() {
	$root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 -o Dpkg::Options::=--force-confold "$@" </dev/null
}
# Read by postgresql-common before it would make and start a cluster of its own.
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
	$root mkdir -p /etc/postgresql-common
	echo 'create_main_cluster = false' | $root tee /etc/postgresql-common/createcluster.conf >/dev/null
fi
echo "postgres: installing PostgreSQL (the programs only; no service)"
install() { apt install -y --no-install-recommends postgresql >/dev/null; }
install || { apt update; install; }
