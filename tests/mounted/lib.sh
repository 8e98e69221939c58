# shellcheck shell=bash
# lib.sh - what the mounted tests share.  A test script is:
#
#     . "$(dirname "$0")/lib.sh"
#     test_something() { ...; }        # fails when it returns non-zero; `skip REASON` leaves it
#     run_tests BACKEND                # every test_* on one mount, then "N passed, N failed"
#     run_tests_prepared               # ... after prepare_backend
#     run_tests_unmounted BACKEND      # ... each mounts for itself
#
# TEST_ONLY=PATTERN (without "test_") runs only those functions whose names match; TEST_PATIENCE=N
# makes every wait for what must happen N times longer.
#
# In a test: $mnt is the mount point, $backing the same directory at the workspace ("" for
# mem:), $uri its URI, $tmp a private directory, $ISTHMUS the program, $programs where those are that
# work on a mount.  Exit code 77: skipped.
# The daemon runs in the foreground, in the background of the script, and must exit with 0.

set -uo pipefail

: "${ISTHMUS:?the path of the program isthmus (meson test sets it)}"
# shellcheck disable=SC2034 # the scripts use it
programs=${ISTHMUS%/fs/*}/tests/mounted
linksim=${ISTHMUS%/fs/*}/tests/bench/linksim
tmp=$(mktemp -d "${TMPDIR:-/tmp}/mounted-XXXXXX")
mnt=$tmp/mnt mnt2=$tmp/mnt2
backing='' uri='' daemon_pid=''
mount_options=()
export HOME=$tmp/home XDG_RUNTIME_DIR=$tmp/run XDG_STATE_HOME=$tmp/state XDG_CACHE_HOME=$tmp/cache
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$tmp/gitconfig LC_ALL=C.UTF-8 TZ=UTC
mkdir -m 700 "$HOME" "$XDG_RUNTIME_DIR" "$XDG_STATE_HOME" "$XDG_CACHE_HOME" "$mnt"

cleanup() {
	local status=$?

	[ -z "${io_uring_was:-}" ] || switch_io_uring_back
	stop_daemon >/dev/null 2>&1
	umount -l "$mnt" 2>/dev/null
	stop_sshd
	# What was ended half-way cannot have cleaned up.
	[ "$status" = 0 ] || [ "$status" = 77 ] || "$(dirname "${BASH_SOURCE[0]}")/../leftovers.sh" --clean "$tmp" 2>/dev/null
	wait
	rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT
trap 'exit 143' TERM INT

skip_all() {
	echo "skipped: $*"
	exit 77
}

# Leaves the running test; the reason is reported.
skip() {
	echo "$*" >"$tmp/skip"
	exit 0
}

need() {
	local program

	for program; do
		command -v "$program" >/dev/null || skip "$program is not installed"
	done
}

fail() {
	echo "  $*"
	return 1
}

# expect WANT GOT [what]: compares two strings.
expect() {
	[ "$1" = "$2" ] || fail "${3:-value}: want '$1', got '$2'"
}

# patient SECONDS: as many on this machine, under these sanitizers.
patient() {
	echo $(($1 * ${TEST_PATIENCE:-1}))
}

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
	local end=$((SECONDS + $1 * ${TEST_PATIENCE:-1}))
	shift

	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

# end_children: what this test has started in the background and still runs.  Numbers that it noted may
# be those of others by now.
end_children() {
	pkill -P "$BASHPID" || true
	wait || true
}

# accept_silently SOCKET: a process in the background ($!) that accepts connections and never answers.
accept_silently() {
	python3 -c '
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
kept = []
while True:
    kept.append(server.accept())' "$1" &
	wait_for 10 test -S "$1"
}

is_mounted() {
	grep -qF " $mnt fuse" /proc/self/mounts
}

# ---- the private sshd ---------------------------------------------------------

sshd_script=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../remote" && pwd)/sshd.sh

# start_sshd: "box" in $tmp/ssh/ssh_config; HOME at the far end is $tmp/far.
start_sshd() {
	mkdir -m 700 "$tmp/far"
	"$sshd_script" start "$tmp/ssh" \
		"SetEnv HOME=$tmp/far XDG_CACHE_HOME=$tmp/far/cache XDG_RUNTIME_DIR=$tmp/far"
	case $? in
	0) ;;
	77) skip_all "openssh-server is not installed" ;;
	*) exit 1 ;;
	esac
}

stop_sshd() {
	"$sshd_script" stop "$tmp/ssh"
}

# simulate_link RTT_MS [mount option...]: replaces the mount options of ssh; $tmp/link says how the
# link is (--state of tests/bench/linksim.c).
simulate_link() {
	echo up >"$tmp/link"
	mount_options=(-o "ssh_command=ssh -F $tmp/ssh/ssh_config -o ProxyCommand='$linksim --state $tmp/link --rtt-ms $1 %h %p'" "${@:2}")
}

link_is_online() {
	grep -q '"link":[[:space:]]*"online"' "$mnt/.isthmus/status"
}

# until_link_is_back: faults that come faster than a busy machine can connect are no faults of a link, but the
# lack of one, which calls wait for no longer than -o timeout says, and sessions no longer than -o linger.
until_link_is_back() {
	until link_is_online || [ -e "$tmp/over" ]; do
		sleep 0.1
	done
}

# ---- the daemon ---------------------------------------------------------------

# prepare_backend NAME: sets $uri and $backing.
prepare_backend() {
	mkdir -p "$tmp/ws"
	backing=$tmp/ws
	# A far end that lost us for good need not wait for long; but by ssh, where a link that is silent
	# for some seconds is given up, the session has to outlast that on a machine that is busy.
	case "$1" in helper) mount_options+=(-o linger=2) ;; ssh) mount_options+=(-o linger=20) ;; esac
	case "$1" in
	local | helper) uri=$1:$backing ;;
	mem)
		uri=mem:
		backing=
		;;
	ssh)
		start_sshd
		uri=ssh://box$backing
		mount_options+=(-o "ssh_command=ssh -F $tmp/ssh/ssh_config")
		;;
	*)
		echo "unknown backend '$1'"
		exit 2
		;;
	esac
}

daemon_answers() {
	! kill -0 "$daemon_pid" 2>/dev/null || { is_mounted && stat "$mnt" >/dev/null; }
}

# start_daemon [mount option...]: mounts $uri on $mnt.
start_daemon() {
	local mounted=true

	[ -z "${MOUNTED_IO_URING:-}" ] || { switch_io_uring_on; set -- -o io_uring "$@"; }
	[ -z "${MOUNTED_WRITES:-}" ] || set -- -o "writes=$MOUNTED_WRITES" "$@"
	"$ISTHMUS" mount -f "${mount_options[@]}" "$@" "$uri" "$mnt" >"$tmp/daemon.log" 2>&1 </dev/null 7<&- &
	daemon_pid=$!
	wait_for 20 daemon_answers && is_mounted || mounted=false
	[ -z "${MOUNTED_IO_URING:-}" ] || switch_io_uring_back
	if ! "$mounted"; then
		fail "no mount of $uri:"
		cat "$tmp/daemon.log"
		[ ! -f "$tmp/ssh/sshd.log" ] || tail -n 40 "$tmp/ssh/sshd.log"
		return 1
	fi
}

# ---- requests by io_uring, where MOUNTED_IO_URING is set ------------------------

io_uring_parameter=/sys/module/fuse/parameters/enable_uring
io_uring_was=''

need_io_uring() {
	[ "$(id -u)" = 0 ] && [ -w "$io_uring_parameter" ] ||
		skip_all "no io_uring for FUSE that could be switched on"
}

# The kernel looks at it when a mount is made, whoever makes it: not for longer than that.
switch_io_uring_on() {
	exec 7<"$io_uring_parameter"
	flock 7
	io_uring_was=$(cat "$io_uring_parameter")
	echo Y >"$io_uring_parameter"
}

switch_io_uring_back() {
	echo "$io_uring_was" >"$io_uring_parameter"
	io_uring_was=
	exec 7<&-
}

# Where it hangs is told where there is a debugger.
kill_hanging() {
	echo "  the daemon hangs: killed"
	grep -lF " $mnt fuse" /proc/[0-9]*/mounts 2>/dev/null | sed 's/^/  in a mount namespace that has a copy of the mount: /'
	! command -v gdb >/dev/null ||
		gdb -p "$1" -batch -ex 'thread apply all bt 12' 2>/dev/null | grep -E '^(Thread |#)'
	kill -ABRT "$1"
}

# Unmounts; the daemon must end by itself with exit code 0.
stop_daemon() {
	local status=0

	[ -n "$daemon_pid" ] || return 0
	! is_mounted || "$ISTHMUS" umount "$mnt" || umount "$mnt" || umount -l "$mnt"
	wait_for 15 not_running "$daemon_pid" || kill_hanging "$daemon_pid"
	wait "$daemon_pid" || status=$?
	daemon_pid=
	[ "$status" = 0 ] || { echo "  the daemon exited with $status:"; show_log "$tmp/daemon.log"; return 1; }
}

no_far_helper() {
	! pgrep -f "^$tmp/far/"
}

# second_mount [mount option...]: $mnt2 is another mount of the workspace, until the test ends.
second_mount() {
	mkdir -p "$mnt2"
	"$ISTHMUS" mount -f "${mount_options[@]}" "$@" "$uri" "$mnt2" >"$tmp/second.log" 2>&1 </dev/null &
	second_pid=$!
	trap end_second_mount EXIT
	wait_for 20 grep -qF " $mnt2 fuse" /proc/self/mounts || fail "no second mount"
}

end_second_mount() {
	"$ISTHMUS" umount "$mnt2" || umount -l "$mnt2"
	wait "$second_pid" || { echo "  the second daemon exited with $?:"; show_log "$tmp/second.log"; exit 1; }
}

# show_log FILE: its end; of a sanitizer's report its beginning, which says what and where.
show_log() {
	if grep -qE '(ERROR|WARNING): [A-Za-z]*Sanitizer|runtime error:' "$1"; then
		grep -m 1 -A 60 -E '(ERROR|WARNING): [A-Za-z]*Sanitizer|runtime error:' "$1"
	else
		tail -n 30 "$1"
	fi
}

# A zombie counts as ended.
not_running() {
	! grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status" 2>/dev/null
}

# What a failed test left must not fail the next one.
forget_mount() {
	local pid

	while is_mounted; do
		umount -l "$mnt" || break
	done
	while read -r pid; do
		kill -KILL "$pid"
	done < <(pgrep -f "^$ISTHMUS mount .*$mnt\$")
}

remount() {
	stop_daemon && start_daemon "$@"
}

# ---- comparing ----------------------------------------------------------------

# tree_listing DIR: everything a program can see of a tree, except inode numbers.
tree_listing() {
	(
		cd "$1" || exit 1
		find . -mindepth 1 -type d -printf '%P %y %m %U %G %T@\n' -o \
			-mindepth 1 -printf '%P %y %m %U %G %T@ %s %n %l\n' | sort
		find . -type f -print0 | sort -z | xargs -0r sha256sum
		# Access control lists and labels of the machine are not the tree's.
		find . -print0 | sort -z | xargs -0r getfattr -h -d -m '^user\.' -e hex 2>/dev/null
	)
}

same_tree() {
	tree_listing "$1" >"$tmp/listing.1" && tree_listing "$2" >"$tmp/listing.2" || return 1
	[ -s "$tmp/listing.1" ] || fail "$1 is empty" || return 1
	diff "$tmp/listing.1" "$tmp/listing.2" >"$tmp/listing.diff" && return
	head -n 20 "$tmp/listing.diff"
	fail "trees differ: $1 $2"
}

# ---- running ------------------------------------------------------------------

# Not `(...) || status=$?`: that would switch errexit off inside.
run_one() {
	local name=$1 status

	rm -f "$tmp/skip"
	(set -e; cd "$tmp"; "$name") >"$tmp/output" 2>&1 </dev/null
	status=$?
	if [ -e "$tmp/skip" ]; then
		skipped=$((skipped + 1))
		echo "skip: ${name#test_}: $(cat "$tmp/skip")"
	else
		count "$status" "${name#test_}" "$tmp/output"
	fi
}

# count STATUS NAME OUTPUT: one more result.
count() {
	if [ "$1" = 0 ]; then
		passed=$((passed + 1))
		return
	fi
	failed=$((failed + 1))
	echo "FAILED $2 on ${uri:-no mount} ($1):"
	show_log "$3"
}

# run_functions: every test_* of the script, in the order of their names in the file.
run_functions() {
	local name found=false

	passed=0 failed=0 skipped=0
	while read -r name; do
		# shellcheck disable=SC2053 # a pattern
		[[ ${name#test_} == ${TEST_ONLY:-*} ]] || continue
		found=true
		run_one "$name"
		[ -n "$daemon_pid" ] || forget_mount
	done < <(grep -o '^test_[a-z0-9_]*' "$0")
	"$found" || { echo "no function of $0 is named test_${TEST_ONLY:-*}"; failed=1; }
}

finish() {
	echo "$passed passed, $failed failed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"
	[ "$failed" = 0 ]
}

need_fuse() {
	[ -z "${MOUNTED_IO_URING:-}" ] || need_io_uring
	if [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
		skip_all "/dev/fuse is not there or not accessible"
	fi
}

# run_tests BACKEND [mount option...]: mounts once, runs everything, unmounts.
run_tests() {
	local name=$1
	shift

	need_fuse
	prepare_backend "$name"
	run_tests_prepared "$@"
}

run_tests_prepared() {
	start_daemon "$@" || { echo "0 passed, 1 failed"; exit 1; }
	run_functions
	stop_daemon >"$tmp/output" 2>&1
	count $? "the daemon ends with 0" "$tmp/output"
	if [ -d "$tmp/far" ]; then
		wait_for 10 no_far_helper
		count $? "the helper at the far end ends" "$tmp/output"
	fi
	finish
}

# run_tests_unmounted BACKEND: the tests mount for themselves.
run_tests_unmounted() {
	need_fuse
	prepare_backend "$1"
	run_functions
	finish
}
