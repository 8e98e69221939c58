#!/bin/bash
# soak.sh BUILD_DIR SECONDS: the random tests of the mounts again and again with new seeds, on
# every backend, then 64 processes at once; BUILD_DIR has the thread sanitizer.  A failure
# prints its seed.  Ends with "N passed, N failed".
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit

build=$(cd -- "$1" && pwd -P) end=$((SECONDS + $2)) passed=0 failed=0
TMPDIR=$(mktemp -d /tmp/isthmus-soak-XXXXXX)
export TMPDIR
export ISTHMUS=$build/fs/isthmus LINKSIM=$build/tests/bench/linksim
export DATA_MODEL=$build/tests/mounted/data_model NAME_MODEL=$build/tests/mounted/name_model
export MIXED_WORK=$build/tests/mounted/mixed_work
export TSAN_OPTIONS=halt_on_error=1:exitcode=66
trap 'tests/leftovers.sh --clean "$TMPDIR" || true; rm -rf --one-file-system "$TMPDIR"' EXIT
trap 'exit 130' INT TERM

# round NAME COMMAND...
round() {
	local name=$1 status=0
	shift

	"$@" >"$TMPDIR/output" 2>&1 || status=$?
	if [ "$status" = 0 ] || [ "$status" = 77 ]; then
		passed=$((passed + 1))
		echo "ok      $name"
		return
	fi
	failed=$((failed + 1))
	echo "FAILED  $name"
	tail -n 60 "$TMPDIR/output"
}

# Once: the tools' searches against rg and git on the sources of the kernel (1.3 GB).
sources=$(find /usr/src -maxdepth 1 -name 'linux-source-*.tar.xz' 2>/dev/null | sort -V | tail -n 1)
if [ -n "$sources" ]; then
	mkdir "$TMPDIR/sources"
	tar -C "$TMPDIR/sources" --strip-components=1 -xf "$sources"
	# Debian's last lines have git ignore all of it.
	sed -i '/^# Debian packaging/,$d' "$TMPDIR/sources/.gitignore"
	git init -q "$TMPDIR/sources"
	SEARCH_TREE=$TMPDIR/sources ISTHMUS_TOOLS=$build/tools/isthmus-tools \
		round "searches of the kernel's sources" python3 tests/tools/search_same_as_others.py
	rm -rf "$TMPDIR/sources"
fi

while [ "$SECONDS" -lt "$end" ]; do
	for backend in local mem helper ssh; do
		OPERATIONS=${OPERATIONS:-10000} round "models on $backend" tests/mounted/models.sh "$backend"
		PROCESSES=64 round "64 processes on $backend" tests/mounted/crowd.sh "$backend"
		[ "$SECONDS" -lt "$end" ] || break
	done
	round "link faults" tests/mounted/faults.sh ssh
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
