#!/bin/bash
# soak.sh TSAN_BUILD BUILD SECONDS: 64 processes at once on every backend, for SECONDS, then once
# more by io_uring where root can switch that on; the random tests and the link faults once each;
# all under the thread sanitizer (TSAN_BUILD).  Then searches, a million random operations on one
# file, and a million on names, on local: (BUILD; OPERATIONS: fewer); and 100,000 on both sides of a
# mount, with three seeds; what programs of npm that watch files hear; and for TREE_SECONDS (3600)
# random orders of facts in ops/tree, for
# DROPS_SECONDS (600) of drops in fs/drops, for INODE_SECONDS (600) of names in fs/inode.
# A failure prints its seed.  Ends with "N passed, N failed".
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit

tsan_build=$(cd -- "$1" && pwd -P) plain_build=$(cd -- "$2" && pwd -P) end=$((SECONDS + $3))
passed=0 failed=0 million=${OPERATIONS:-1000000}
TMPDIR=$(mktemp -d /tmp/isthmus-soak-XXXXXX)
export TMPDIR

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

backends=(local mem helper ssh)
export ISTHMUS=$tsan_build/fs/isthmus
while [ "$SECONDS" -lt "$end" ]; do
	for backend in "${backends[@]}"; do
		PROCESSES=64 CROWD_OPERATIONS=1000 round "64 processes on $backend" tests/mounted/crowd.sh "$backend"
		[ "$SECONDS" -lt "$end" ] || break
	done
done
for backend in "${backends[@]}"; do
	MOUNTED_IO_URING=1 PROCESSES=64 CROWD_OPERATIONS=1000 \
		round "64 processes on $backend by io_uring" tests/mounted/crowd.sh "$backend"
done
# Once: the tools' searches against rg and git on the sources of the kernel (1.3 GB).  Not under the
# sanitizer, where a search of all of it takes longer than grep's bound of 30 s.
sources=$(find /usr/src -maxdepth 1 -name 'linux-source-*.tar.xz' 2>/dev/null | sort -V | tail -n 1)
if [ -n "$sources" ]; then
	mkdir "$TMPDIR/sources"
	tar -C "$TMPDIR/sources" --strip-components=1 -xf "$sources"
	# Debian's last lines have git ignore all of it.
	sed -i '/^# Debian packaging/,$d' "$TMPDIR/sources/.gitignore"
	git init -q "$TMPDIR/sources"
	SEARCH_TREE=$TMPDIR/sources ISTHMUS_TOOLS=$plain_build/tools/isthmus-tools \
		round "searches of the kernel's sources" python3 tests/tools/search_same_as_others.py
	rm -rf "$TMPDIR/sources"
fi

ISTHMUS=$plain_build/fs/isthmus ISTHMUS_TOOLS=$plain_build/tools/isthmus-tools SEARCH_PATTERNS=150 SEARCH_TREES=3 \
	TEST_ONLY='searches_*' round "300 searches of 3 trees on helper" tests/mounted/tools.sh helper
for backend in "${backends[@]}"; do
	OPERATIONS=10000 NAME_OPERATIONS=2000 round "models on $backend" tests/mounted/models.sh "$backend"
done
WRITEBACK_RUNS=${WRITEBACK_RUNS:-10000} round "kills with writes=back" "$plain_build/tests/test_writeback_kill"
MOUNTED_WRITES=back round "models with writes=back on helper" tests/mounted/models.sh helper
round "link faults" tests/mounted/faults.sh ssh
TREE_SECONDS=${TREE_SECONDS:-3600} round "random orders of facts in the tree" \
	"$plain_build/tests/test_tree_orders"
INODE_SECONDS=${INODE_SECONDS:-600} round "random orders of the kernel's names" "$plain_build/tests/test_inode_orders"
DROPS_SECONDS=${DROPS_SECONDS:-600} round "random orders of drops" "$plain_build/tests/test_drops_orders"
ISTHMUS=$plain_build/fs/isthmus
for backend in local ssh; do
	round "programs that wait for changes on $backend" tests/mounted/watch_programs.sh "$backend"
done
# Eight processes work on names.
OPERATIONS=$million NAME_OPERATIONS=$((million / 8)) round "$million operations of each model on local" \
	tests/mounted/models.sh local
for backend in local helper ssh; do
	for seed in 1 2 3; do
		OPERATIONS=$((million / 10)) SEED=$seed round "$((million / 10)) operations on both sides of $backend, seed $seed" \
			tests/mounted/coherence.sh "$backend"
	done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
