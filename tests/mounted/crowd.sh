#!/bin/bash
# A crowd of processes on one mount loses nothing.  PROCESSES and OPERATIONS make it larger.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

test_a_crowd_loses_nothing() {
	mkdir "$mnt/crowd"
	"$programs/mixed_work" "$mnt/crowd" "${PROCESSES:-16}" "${CROWD_OPERATIONS:-120}"
	[ -z "$backing" ] || same_tree "$mnt/crowd" "$backing/crowd"
}

run_tests "$1"
