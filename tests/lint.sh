#!/bin/bash
# lint.sh [--all]: what a reviewer should not have to say.  Exits 1 when something is wrong.  Files that have
# passed as they are now are not checked again, unless --all is given.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

bad=0

complain() {
	printf 'lint: %s\n' "$*" >&2
	bad=1
}

# files PATTERN...: those in git, and those that are new and not ignored.
files() {
	local file

	git ls-files -co --exclude-standard -- "$@" | while read -r file; do
		[ ! -e "$file" ] || printf '%s\n' "$file"
	done
}

sources() {
	files '*.c' '*.h'
}

# check_each NAME TOOL COMMAND: runs COMMAND FILE on those files of stdin that have not passed yet; TOOL is the
# version and the settings of what checks them.
check_each() {
	local name=$1 tool=$2 good failed=0

	good=$(mktemp)
	export -f "${3?}"
	tests/lint_passed.py --new "$name" "$tool" |
		xargs -r -d '\n' -P "$(nproc)" -n 1 bash -c '"$1" "$3" && echo "$3" >>"$2"' - "$3" "$good" || failed=1
	tests/lint_passed.py --note "$name" "$tool" <"$good"
	rm -f "$good"
	return "$failed"
}

format_is_right() {
	clang-format --dry-run -Werror "$1"
}

check_format() {
	sources | check_each format "$(clang-format --version && cat .clang-format)" format_is_right ||
		complain "format: run clang-format -i"
}

header_is_complete() {
	# shellcheck disable=SC2086 # flags are words
	printf '#include "%s"\n' "$1" | cc -std=gnu17 -Wall -Wextra -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. $flags \
		-fsyntax-only -x c - || { echo "lint: $1 does not compile alone" >&2; return 1; }
}

check_headers_alone() {
	flags=$(pkg-config --cflags fuse3 libcjson libxxhash libpcre2-8 libcrypto nettle libcurl libxml-2.0)
	export flags
	files '*.h' | check_each headers "$(cc --version) $flags" header_is_complete || bad=1
}

# seam FOLDER REGEX: files below FOLDER include ours only from where REGEX allows.
seam() {
	local found

	found=$(git grep --untracked -nE '^#include "' -- "$1/*.c" "$1/*.h" | grep -vE "#include \"($2)" || true)
	[ -z "$found" ] || complain "$1/ reaches where it must not:"$'\n'"$found"
}

# Every lock has a row in the order of locks.
check_locks() {
	local found file name

	found=$(git grep --untracked -oE '\bpthread_(mutex|rwlock)_t [a-z_]+' -- 'fs/*.[ch]' 'ops/*.[ch]' 'backends/*.[ch]' 'tools/*.[ch]')
	while read -r file name; do
		grep -F "(${file%%:*})" ARCHITECTURE.md | grep -qE "[\`.]$name(\[\])?\`" ||
			complain "ARCHITECTURE.md, \"Order of locks\": there is no row with $name (${file%%:*})"
	done <<<"$found"
}

check_seams() {
	local found

	found=$(git grep --untracked -nE '#include <(fuse|fuse3/)' -- '*.c' '*.h' ':!fs/' ':!tests/mounted/ignores_case_fs.c' || true)
	[ -z "$found" ] || complain "only fs/, and a file system for tests, may include FUSE:"$'\n'"$found"
	found=$(git grep --untracked -nE '#include <cjson' -- backends ops ':!ops/support' || true)
	[ -z "$found" ] || complain "JSON belongs to fs/, tools/ and ops/support:"$'\n'"$found"
	seam ops/support 'ops/support/'
	seam ops 'ops/'
	seam backends 'backends/|ops/'
	seam backends/local 'backends/local/|backends/backend\.h|ops/'
	seam backends/mem 'backends/mem/|backends/backend\.h|ops/'
	seam backends/remote/wire 'backends/remote/wire/|ops/'
	seam backends/remote/server 'backends/remote/(wire|server)/|backends/local/local\.h|ops/'
	# The link hands up by struct link_handlers; calls know no operations.
	found=$(git grep -nwE '(query|remote_(fail_calls|feed|process))_[a-z_]*|remote_(fail_calls|received|take_answer)' -- \
		backends/remote/client/client_{link,channels,session}.c || true)
	[ -z "$found" ] || complain "the link of the client reaches up:"$'\n'"$found"
	found=$(git grep -nwE 'remote_(feed|process(es)?)_[a-z_]*|remote_received' -- \
		backends/remote/client/client_{call,request}.c || true)
	[ -z "$found" ] || complain "the calls of the client reach up:"$'\n'"$found"
	seam fs 'fs/|ops/|backends/open\.h'
	seam fs/log 'fs/log/|ops/support/'
	seam fs/inode 'fs/inode/|ops/'
	seam fs/mount 'fs/mount/|fs/log/|fs/inode/|ops/|backends/open\.h'
	seam fs/edge 'fs/edge/|fs/mount/|fs/log/|fs/inode/|ops/'
	seam fs/control 'fs/control/|fs/edge/edge\.h|fs/mount/|fs/log/|ops/'
	seam fs/watchers 'fs/watchers/|fs/edge/(announce|edge)\.h|fs/mount/|ops/'
	seam fs/commands 'fs/commands/|fs/control/control\.h|fs/edge/edge\.h|fs/watchers/watchers\.h|fs/mount/|fs/log/|ops/|backends/open\.h'
	seam tools 'tools/|ops/support/'
}

# Folders include one another in one direction only.
check_circles() {
	local found

	found=$(git grep --untracked -E '^#include "[^"]+/[^"/]+"' -- '*.c' '*.h' ':!tests/' |
		sed -E 's|/[^/]*:#include "(.*)/[^/"]*".*| \1|' | sort -u | tsort 2>&1 >/dev/null || true)
	[ -z "$found" ] || complain "folders include each other in a circle:"$'\n'"$found"
}

# A longer file has more than one concept.
check_lengths() {
	local found

	found=$(files '*.c' '*.h' ':!tests/' | xargs -d '\n' wc -l | awk '$2 != "total" && $1 > 700')
	[ -z "$found" ] || complain "more than 700 lines, to be split by concept:"$'\n'"$found"
}

check_manuals() {
	local found

	command -v mandoc >/dev/null || return 0
	# isthmus(1) has its examples before the description, for readers.
	found=$(files '*.[1-8]' | xargs mandoc -T lint -W warning | grep -v ': sections out of conventional order: Sh DESCRIPTION$' || true)
	[ -z "$found" ] || complain "manual pages:"$'\n'"$found"
}

# A copy of a FUSE mount keeps the daemon of another test alive.
check_mount_namespaces() {
	local found

	found=$(git grep --untracked -nE 'unshare -m|unshare\(CLONE_NEWNS\)' -- 'tests/*.sh' 'tests/*.c' 'tests/*.h' |
		grep -vE '/own_mounts\.|^tests/lint.sh|unshare -m sleep 60' || true)
	[ -z "$found" ] || complain "use tests/mounted/own_mounts.sh or tests/own_mounts.h:"$'\n'"$found"
}

# "Info" has what matters in tests: a "!" whose outcome nobody looks at (SC2251).
script_is_good() {
	shellcheck -x -P SCRIPTDIR -S info -e SC1091,SC2012,SC2013,SC2015,SC2016,SC2119,SC2120,SC2317 "$1"
}

check_scripts() {
	command -v shellcheck >/dev/null || return 0
	files dev .ci/run '*.sh' | check_each scripts "$(shellcheck --version) $(declare -f script_is_good)" script_is_good ||
		complain "scripts: see above"
}

check_words() {
	local found

	found=$(git grep --untracked -nE '\b(TODO|FIXME|XXX)\b' -- '*.c' '*.h' '*.sh' '*.py' '*.build' dev ':!tests/lint.sh' || true)
	[ -z "$found" ] || complain "unfinished:"$'\n'"$found"
	found=$(git grep --untracked -nI ' $' -- '*.c' '*.h' '*.sh' dev '*.build' || true)
	[ -z "$found" ] || complain "trailing blanks:"$'\n'"$found"
}

[ "${1:-}" != --all ] || tests/lint_passed.py --forget
check_format
check_headers_alone
check_seams
check_locks
check_circles
check_lengths
check_manuals
check_scripts
check_mount_namespaces
check_words
[ "$bad" = 0 ] && echo "lint: clean"
exit "$bad"
