#!/bin/bash
# debian.sh RELEASE: makes a bare Debian of that release, and there runs ./dev demo and builds the tests.
# The packages that the demo needs may have 150 MB; the compiler must not warn.
# Exit code 77, with the reason: it cannot be made here.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

release=$1
downloads_max_mb=150

skip() {
	echo "skipped: debian-$release: $*"
	exit 77
}

# make_system DIR: with the mirror and the settings of this machine's apt.
make_system() {
	local mirror

	# shellcheck disable=SC2016 # $(REPO_URI) is apt's
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Origin: Debian' | head -n 1)
	[ -n "$mirror" ] || skip "apt has no mirror of Debian"
	debootstrap --variant=minbase --include=ca-certificates "$release" "$1" "$mirror" >"$1.log" 2>&1 ||
		skip "debootstrap: $(tail -n 1 "$1.log")"
	apt-config dump Acquire >"$1/etc/apt/apt.conf.d/00acquire"
	cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
	rm -rf "$1"/var/lib/apt/lists/*
}

# copy_tree DIR: a repository, since the demo clones it, with the files as they are here.
copy_tree() {
	local file

	GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' git clone -q --no-hardlinks . "$1"
	git ls-files -co --exclude-standard | while read -r file; do
		[ ! -e "$file" ] || printf '%s\n' "$file"
	done | tar -T - -c | tar -C "$1" --no-same-owner -x
}

# inside COMMAND: on that system, below /isthmus.
inside() {
	chroot "$system" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
		sh -c "cd /isthmus && $1" </dev/null 2>&1 | tee -a "$system.out"
}

# In namespaces of mounts and processes that end with this script.
if [ -z "${2:-}" ]; then
	[ "$(id -u)" = 0 ] || skip "only root can make it"
	[ -x "$(command -v debootstrap)" ] || skip "debootstrap is not installed"
	[ -c /dev/fuse ] || skip "there is no /dev/fuse"
	dir=$(mktemp -d "${TMPDIR:-/tmp}/isthmus-debian-XXXXXX")
	trap 'rm -rf --one-file-system "$dir"' EXIT
	status=0
	tests/mounted/own_mounts.sh unshare --pid --fork --kill-child tests/debian.sh "$release" "$dir/system" || status=$?
	exit "$status"
fi

system=$2
make_system "$system"
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"
copy_tree "$system/isthmus"
inside './dev demo'
mb=$(sed -n 's/^installing (.*, \([0-9]*\) MB).*/\1/p' "$system.out" | awk '{ sum += $1 } END { print sum + 0 }')
[ "$mb" -le "$downloads_max_mb" ] || { echo "the demo downloads $mb MB, more than $downloads_max_mb"; exit 1; }
inside 'DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install libcunit1-dev >/dev/null &&
	meson setup --reconfigure build >/dev/null && ninja --quiet -C build'
! grep -m 3 ': warning: ' "$system.out" || { echo "the compiler warns"; exit 1; }
