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
