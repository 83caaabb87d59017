#!/bin/sh
# Makes sure that a database server program (MariaDB or MySQL) is on this machine.
#
# Does nothing when there is one. Installs the server program alone, without the package that would run it as
# a system service: the local stack and the tests start private servers from it. Safe to run again.
set -eu

say() { printf 'install: %s\n' "$*"; }

# The same places, in the same order, as pkg/mysqld/program.go.
found() {
	if [ -n "${ORBIT_MYSQLD:-}" ]; then
		[ -x "$ORBIT_MYSQLD" ] && return 0
		say "ORBIT_MYSQLD is set to $ORBIT_MYSQLD, which is not a program" >&2
		exit 1
	fi
	for name in mariadbd mysqld; do
		command -v "$name" >/dev/null 2>&1 && return 0
		for place in /usr/sbin /usr/local/sbin /usr/libexec /usr/local/mysql/bin \
			/opt/homebrew/opt/*/bin /usr/local/opt/*/bin /home/linuxbrew/.linuxbrew/opt/*/bin; do
			[ -x "$place/$name" ] && return 0
		done
	done
	return 1
}

# MariaDB's first start of a folder runs a script that needs this program, which Debian has in the client's package.
complete() {
	! command -v mariadb-install-db >/dev/null 2>&1 || command -v my_print_defaults >/dev/null 2>&1
}

missing() {
	{
		say "no database server was found: neither mariadbd nor mysqld. $1"
		say "install MariaDB 10.11 or newer, or MySQL 8.4 or newer, for example:"
		say "  Debian, Ubuntu  apt-get install mariadb-server"
		say "  Fedora, RHEL    dnf install mariadb-server"
		say "  Alpine          apk add mariadb"
		say "  macOS           brew install mariadb"
		say "or set ORBIT_MYSQLD to the path of the server program."
	} >&2
	exit 1
}

# Runs a command with the rights to install packages.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		# -n first: it never asks, so it works without a terminal.
		if sudo -n true 2>/dev/null; then sudo -n "$@"; else sudo "$@"; fi
	fi
}

apt() {
	as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l \
		apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@"
}

# The newest package that holds the server program without a service, if the package lists know one.
server_package() {
	apt-cache search --names-only '^(mariadb-server-core|mysql-server-core)(-[0-9.]+)?$' 2>/dev/null |
		awk '{ print ($1 ~ /^mariadb/ ? 2 : 1), ($1 ~ /core$/ ? 999 : 0), $1 }' | sort -k1,1nr -k2,2nr -k3,3Vr |
		awk 'NR == 1 { print $3 }'
}

apt_install() {
	package=$(server_package)
	[ -n "$package" ] || return 1
	say "installing $package (the server program only; no service)"
	case $package in mariadb-server-core*) package="$package mariadb-client-core${package#mariadb-server-core}" ;; esac
	log=$(mktemp)
	# shellcheck disable=SC2086 # two names, without spaces
	if apt install -y --no-install-recommends $package </dev/null >"$log" 2>&1; then
		rm -f "$log"
		return 0
	fi
	sed 's/^/install:   /' "$log" >&2
	rm -f "$log"
	return 1
}

apt_update() {
	say "refreshing the package lists"
	apt update </dev/null || say "apt-get update failed; going on with the lists there are" >&2
}

if found && complete; then
	exit 0
fi

if command -v apt-get >/dev/null 2>&1; then
	if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1; then
		missing "Installing it needs root, and there is no sudo."
	fi
	# Known lists may be empty or out of date: one update, then one more try.
	if ! apt_install; then
		apt_update
		apt_install || missing "apt-get could not install one."
	fi
elif [ "$(uname -s)" = Darwin ] && command -v brew >/dev/null 2>&1; then
	say "installing mariadb with Homebrew (no service is started)"
	HOMEBREW_NO_AUTO_UPDATE=1 brew install --quiet mariadb </dev/null || brew install --quiet mariadb </dev/null ||
		missing "Homebrew could not install one."
else
	missing "There is no apt-get or Homebrew to install one with."
fi

found || missing "The installation ended well, but there is still no server program."
complete || missing "The installation ended well, but mariadb-install-db lacks my_print_defaults."
say "done"
