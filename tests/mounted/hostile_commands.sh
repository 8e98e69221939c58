#!/bin/bash
# Commands that misbehave, run by the tools at the workspace: nothing of them is left there.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"
here=$(cd -- "$(dirname -- "$0")" && pwd -P)

test_hostile_commands_leave_nothing_at_the_workspace() {
	AT_WORKSPACE=1 TMPDIR=$mnt python3 "$here/../tools/hostile_commands.py"
}

run_tests "$@"
