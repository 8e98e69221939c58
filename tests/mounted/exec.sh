#!/bin/bash
# isthmus exec: commands at the workspace, as if they ran here.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

at() {
	"$ISTHMUS" exec "$mnt" "$@"
}

exit_code_of() {
	local code=0

	"$@" >/dev/null 2>&1 || code=$?
	echo "$code"
}

test_output_streams_stay_apart() {
	at -- sh -c 'echo out; echo err >&2; echo out again' >"$tmp/out" 2>"$tmp/err"
	expect "out
out again" "$(cat "$tmp/out")" stdout
	expect err "$(cat "$tmp/err")" stderr
}

test_exit_codes_are_passed_on() {
	expect 0 "$(exit_code_of at -- true)" true
	expect 1 "$(exit_code_of at -- false)" false
	expect 7 "$(exit_code_of at -- sh -c 'exit 7')" 'exit 7'
	expect 255 "$(exit_code_of at -- sh -c 'exit 255')" 'exit 255'
	expect 127 "$(exit_code_of at -- /does/not/exist)" 'no such command'
	expect 143 "$(exit_code_of at -- sh -c 'kill -TERM $$')" 'killed by TERM'
	expect 137 "$(exit_code_of at -- sh -c 'kill -KILL $$')" 'killed by KILL'
}

test_arguments_arrive_as_they_are() {
	at -- printf '[%s]' 'a b' '' "qu'o\"te" $'new\nline' '$HOME' '*' >"$tmp/out"
	printf '[%s]' 'a b' '' "qu'o\"te" $'new\nline' '$HOME' '*' | cmp - "$tmp/out"
}

test_stdin_is_passed_on_whole() {
	head -c 5000000 /dev/urandom >"$tmp/in"
	at -- cat <"$tmp/in" >"$tmp/out"
	cmp "$tmp/in" "$tmp/out"
	expect 3 "$(seq 3 | at -- wc -l | tr -d ' ')" lines
}

# A program that finds a pipe may read that rather than files, as rg does.
test_no_input_is_none_there() {
	expect /dev/null "$(at -- readlink /proc/self/fd/0 </dev/null)" "nothing"
	expect pipe "$(: | at -- sh -c '[ -p /dev/stdin ] && echo pipe')" "an empty pipe"
}

test_much_output_is_whole_and_in_order() {
	at -- seq 400000 >"$tmp/out"
	seq 400000 | cmp - "$tmp/out"
}

test_output_is_not_held_back() {
	local started

	started=$(date +%s%N)
	at -- sh -c 'echo first; sleep 5' 2>/dev/null | {
		read -r line
		expect first "$line" "first line"
		[ $(($(date +%s%N) - started)) -lt 3000000000 ] || fail "the first line took more than 3 s"
	}
}

test_nothing_of_the_local_environment_leaks() {
	LEAK_ME=secret at -- env >"$tmp/env"
	! grep -q LEAK_ME "$tmp/env" || fail "LEAK_ME leaked"
	grep -q '^PATH=' "$tmp/env"
	grep -q '^HOME=' "$tmp/env"
	! grep -q "^XDG_STATE_HOME=$tmp/state" "$tmp/env" || fail "XDG_STATE_HOME leaked"
	expect "a b=c" "$(at -e 'GIVEN=a b=c' -- sh -c 'echo "$GIVEN"')" "-e GIVEN"
}

test_directory_is_mapped() {
	mkdir -p "$mnt/sub/dir"
	expect "$backing/sub/dir" "$(at -C sub/dir -- pwd)" "-C"
	expect "$backing/sub" "$(cd "$mnt/sub" && "$ISTHMUS" exec -- pwd)" "cwd inside the mount"
	expect "$backing" "$(at -- pwd)" "default"
}

test_changes_are_visible_at_once() {
	local i

	[ ! -e "$mnt/made-0" ]
	for i in 1 2 3 4 5; do
		cat "$mnt/counter" 2>/dev/null || true
		at -- sh -c "echo $i >counter; touch made-$i; mkdir -p d/$i; rm -f made-$((i - 1))"
		expect "$i" "$(cat "$mnt/counter")" "content after exec"
		[ -e "$mnt/made-$i" ] || fail "made-$i is not there"
		[ ! -e "$mnt/made-$((i - 1))" ] || fail "made-$((i - 1)) is still there"
		expect "$i" "$(find "$mnt/d" -mindepth 1 | wc -l)" "directories"
	done
	echo local >"$mnt/counter"
	expect local "$(at -- cat counter)" "content at the workspace"
}

processes_at_workspace() {
	pgrep -fc "isthmus-marker-$1" || true
}

none_left() {
	[ "$(processes_at_workspace "$1")" = 0 ]
}

some_run() {
	[ "$(processes_at_workspace "$1")" -ge "$2" ]
}

# A tree of processes, one of which left the session and ignores TERM.
tree_command() {
	echo "sh -c 'sleep 97; : isthmus-marker-$1' & setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done; : isthmus-marker-$1' & sleep 98; : isthmus-marker-$1"
}

# parent_of PID
parent_of() {
	awk '/^PPid:/ { print $2 }' "/proc/$1/status"
}

# A command's parent is its supervisor, whose parent is the helper.
test_a_session_that_ends_is_told_of() {
	local code=0 helper client

	[[ "$uri" != local:* ]] || skip "commands run by the daemon itself"
	"$ISTHMUS" exec "$mnt" -- sh -c 'echo $PPID; exec sleep 1000' >"$tmp/supervisor" 2>"$tmp/err" &
	client=$!
	wait_for 20 test -s "$tmp/supervisor"
	helper=$(parent_of "$(cat "$tmp/supervisor")")
	grep -q helper "/proc/$helper/comm"
	kill -KILL "$helper"
	wait "$client" || code=$?
	expect 125 "$code" "exit code"
	grep 'ended while the command ran' "$tmp/err"
	"$ISTHMUS" log "$mnt" --op exec --json | grep '"result":"ECONNRESET"'
	wait_for 20 at -- true
}

test_timeout_kills_the_whole_tree() {
	local started=$SECONDS

	expect 124 "$(exit_code_of at --timeout 1 -- sh -c "$(tree_command timeout.$$)")" "exit code"
	[ $((SECONDS - started)) -lt "$(patient 10)" ] || fail "took $((SECONDS - started)) s"
	wait_for 5 none_left "timeout.$$" || fail "processes are left"
}

test_death_of_the_client_kills_the_whole_tree() {
	local pid

	"$ISTHMUS" exec "$mnt" -- sh -c "$(tree_command "client.$$")" &
	pid=$!
	wait_for 5 some_run "client.$$" 4 || fail "the tree did not start"
	kill -KILL "$pid"
	wait "$pid" || true
	wait_for 8 none_left "client.$$" || fail "processes are left"
}

test_interrupt_reaches_the_command() {
	local pid code=0

	# setsid: an interrupt from the terminal, which a background job would ignore.
	setsid bash -c 'trap - INT; exec "$0" exec "$1" -- sh -c "$2"' "$ISTHMUS" "$mnt" "$(tree_command int.$$)" &
	pid=$!
	wait_for 5 some_run "int.$$" 4 || fail "the tree did not start"
	pkill -INT -P "$pid" 2>/dev/null || kill -INT "$pid"
	wait "$pid" || code=$?
	expect 130 "$code" "exit code"
	wait_for 8 none_left "int.$$" || fail "processes are left"
}

test_many_at_once() {
	local pids=() i

	for i in $(seq 12); do
		(expect "$((i * 1000))" "$(at -- seq "$((i * 1000))" | wc -l)" "lines") &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i"
	done
}

test_a_directory_that_is_no_mount_is_refused() {
	expect 125 "$(exit_code_of "$ISTHMUS" exec "$tmp" -- true)" "exit code"
	"$ISTHMUS" exec "$tmp" -- true 2>"$tmp/err" || true
	grep -qF "$tmp" "$tmp/err" || fail "the message does not name it: $(cat "$tmp/err")"
}

test_the_log_has_the_exit_code() {
	at -- sh -c 'exit 42' || true
	"$ISTHMUS" log "$mnt" --op exec --json | tail -n 1 >"$tmp/log"
	grep -q '"exit_code": *42' "$tmp/log" || fail "last line: $(cat "$tmp/log")"
}

# Nobody has listed the root of this mount yet.
test_the_first_file_in_the_root_is_reported() {
	local other=$tmp/other

	mkdir -p "$other"
	"$ISTHMUS" mount "${mount_options[@]}" "$uri" "$other"
	"$ISTHMUS" exec "$other" -- touch first-file
	"$ISTHMUS" log "$other" --op exec --json | tail -n 1 >"$tmp/log"
	"$ISTHMUS" umount "$other"
	grep -q '"changed": *\[.*"first-file"' "$tmp/log" || fail "last line: $(cat "$tmp/log")"
}

# Who changed this file last?  The command that did, and the paths that it changed.
test_the_log_names_the_command_that_changed_a_file() {
	ls "$mnt" >/dev/null
	at -- sh -c 'echo x >by-command; echo y >beside-it'
	expect by-command "$("$ISTHMUS" log "$mnt" --path by-command --json --op exec |
		python3 -c 'import json, sys
for line in sys.stdin: [print(name) for name in json.loads(line).get("changed", []) if name == "by-command"]')" "the command"
	"$ISTHMUS" log "$mnt" --op exec -n 1 >"$tmp/log"
	grep -q '^    changed  by-command$' "$tmp/log" || fail "no such path: $(cat "$tmp/log")"
	grep -q '^    changed  beside-it$' "$tmp/log" || fail "no such path: $(cat "$tmp/log")"
	"$ISTHMUS" log "$mnt" --path by-command >"$tmp/log"
	grep -q ' exec .* [23] changed' "$tmp/log" || fail "the command is missing: $(cat "$tmp/log")"
	! grep -q 'changed  beside-it' "$tmp/log" || fail "not asked for: $(cat "$tmp/log")"
	rm "$mnt/by-command" "$mnt/beside-it"
}

test_all_that_a_command_changed_is_listed() {
	mkdir "$mnt/many"
	ls "$mnt/many" >/dev/null
	at -- sh -c 'cd many; for i in $(seq 600); do : >"$i"; done'
	expect 600 "$("$ISTHMUS" log "$mnt" --op exec --json -n 1 | python3 -c '
import json, sys
record = json.loads(sys.stdin.readline())
assert "changed_truncated" not in record
print(sum(name.startswith("many/") for name in record["changed"]))')" "paths"
	rm -r "$mnt/many"
}

# count_changed DIRECTORY: how many paths below it the last command is said to have changed.
count_changed() {
	"$ISTHMUS" log "$mnt" --op exec --json -n 1 | python3 -c '
import json, sys
print(sum(name.startswith(sys.argv[1] + "/") for name in json.loads(sys.stdin.readline()).get("changed", [])))' "$1"
}

# The reports of these changes are on their way when the command starts.
test_what_others_changed_before_a_command_is_not_listed() {
	local i counts=

	mkdir "$mnt/before"
	ls "$mnt/before" >/dev/null
	for i in $(seq 10); do
		for name in {1..200}; do : >"$backing/before/$i.$name"; done
		at -- sh -c 'echo x >"before/by-command.$1"' sh "$i"
		counts+=" $(count_changed before)"
	done
	rm -r "$mnt/before"
	expect " 1 1 1 1 1 1 1 1 1 1" "$counts" "paths"
}

# Lookups that find what the command has made before its report comes.
test_what_is_seen_before_it_is_reported_is_listed() {
	local reader

	mkdir "$mnt/seen"
	ls "$mnt/seen" >/dev/null
	python3 -c '
import os, sys
while not os.path.exists(sys.argv[1] + "/end"):
    for name in range(1, 1001):
        try:
            open(f"{sys.argv[1]}/{name}").read()
        except FileNotFoundError:
            break' "$mnt/seen" &
	reader=$!
	at -- sh -c 'cd seen; for i in $(seq 1000); do echo "$i" >"$i"; done'
	: >"$mnt/seen/end"
	wait "$reader"
	expect 1000 "$(count_changed seen)" "paths"
	rm -r "$mnt/seen"
}

test_secrets_do_not_reach_the_log() {
	local other=$tmp/other

	at -- env API_TOKEN=hunter2 sh -c 'echo --password hunter3 "$API_TOKEN"' >"$tmp/out"
	expect "--password hunter3 hunter2" "$(cat "$tmp/out")" "what the command had"
	"$ISTHMUS" log "$mnt" --op exec --json | tail -n 1 >"$tmp/log"
	! grep hunter "$tmp/log" || fail "a secret is in the log"
	grep -q '"redacted":true' "$tmp/log" || fail "not marked: $(cat "$tmp/log")"
	mkdir -p "$other"
	"$ISTHMUS" mount "${mount_options[@]}" -o log_secrets "$uri" "$other"
	"$ISTHMUS" exec "$other" -- env API_TOKEN=hunter2 true
	"$ISTHMUS" log "$other" --op exec --json >"$tmp/log"
	"$ISTHMUS" umount "$other"
	grep -q '"detail":"env API_TOKEN=hunter2 true"' "$tmp/log" || fail "not as it was: $(cat "$tmp/log")"
}

test_a_terminal_is_given() {
	need python3
	at -- test -t 0 && fail "a terminal without -t"
	python3 - "$ISTHMUS" "$mnt" >"$tmp/terminal" <<-'END' || fail "$(cat "$tmp/terminal")"
		import fcntl, os, pty, select, signal, struct, sys, termios, time

		pid, terminal = pty.fork()
		if pid == 0:
		    os.environ["TERM"] = "vt220"
		    os.execv(sys.argv[1], [sys.argv[1], "exec", sys.argv[2], "-t", "--", "sh", "-c",
		        "test -t 0 && test -t 1 && echo $TERM; stty size; read x; stty size; sleep 30"])

		def resize(rows, columns):
		    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

		seen = b""

		def wait_for(text):
		    global seen
		    end = time.monotonic() + 10
		    while text not in seen:
		        assert select.select([terminal], [], [], max(0, end - time.monotonic()))[0], seen
		        seen += os.read(terminal, 4096)

		wait_for(b"vt220")
		resize(33, 77)
		time.sleep(0.5)
		os.write(terminal, b"go\n")
		wait_for(b"33 77")
		time.sleep(0.5)
		os.write(terminal, b"\x03")  # as a key: the far terminal makes it a signal
		end = time.monotonic() + 10
		while True:
		    done, status = os.waitpid(pid, os.WNOHANG)
		    if done or time.monotonic() > end:
		        break
		    time.sleep(0.05)
		assert done, "still running"
		assert os.waitstatus_to_exitcode(status) == 130, status
	END
}

test_a_second_interrupt_ends_what_ignores_the_first() {
	local pid code=0 started=$SECONDS

	setsid bash -c 'trap - INT; exec "$0" exec "$1" -- sh -c "$2"' "$ISTHMUS" "$mnt" \
		"trap '' INT; : isthmus-marker-second.$$; while :; do sleep 1; done" &
	pid=$!
	wait_for 5 some_run "second.$$" 1 || fail "it did not start"
	sleep 0.3
	kill -INT "$pid"
	sleep 0.3
	kill -INT "$pid"
	wait "$pid" || code=$?
	expect 130 "$code" "exit code"
	wait_for 5 none_left "second.$$" || fail "it still runs"
	[ $((SECONDS - started)) -lt "$(patient 8)" ] || fail "took $((SECONDS - started)) s"
}

# mount_other [OPTION...]: another mount of the workspace, at $other, with an umask of its own.
mount_other() {
	other=$tmp/other
	mkdir -p "$other"
	(umask 027; "$ISTHMUS" mount "${mount_options[@]}" "$@" "$uri" "$other")
}

umount_other() {
	"$ISTHMUS" umount "$other"
}

# Nor by a command of cmd:, which inherits that of the daemon.
test_the_environment_of_the_mount_stays_here() {
	local place uri=$uri

	for place in "$uri" "cmd:env !$backing"; do
		uri=$place
		case $place in cmd:*) mount_options=() ;; esac
		LEAK_ME=secret SSH_AUTH_SOCK=$tmp/none mount_other
		"$ISTHMUS" exec "$other" -- env >"$tmp/env"
		umount_other
		! grep -E 'LEAK_ME|SSH_AUTH_SOCK|ISTHMUS_|XDG_STATE_HOME' "$tmp/env" || fail "leaked from $place"
		grep -q '^PATH=.*/usr/bin' "$tmp/env"
	done
}

interleaved='for i in 1 2 3; do echo o$i; echo e$i >&2; done'

test_output_by_one_stream_keeps_its_order() {
	local i

	for i in $(seq 20); do
		expect "o1 e1 o2 e2 o3 e3" "$(at -- sh -c "$interleaved" 2>&1 | paste -sd ' ')" "a pipe, $i"
		expect "o1 e1 o2 e2 o3 e3" "$(at --merge -- sh -c "$interleaved" 2>/dev/null | paste -sd ' ')" "--merge, $i"
		at -- sh -c "$interleaved" >"$tmp/both" 2>&1
		expect "o1 e1 o2 e2 o3 e3" "$(paste -sd ' ' "$tmp/both")" "a file, $i"
	done
}

# That of the caller on this machine, else of the login there.
test_commands_have_the_umask_of_their_user() {
	case $uri in
	local:*) expect "0077 600" "$(umask 077; at -- sh -c 'umask; : >made; stat -c %a made' | paste -sd ' ')" ;;
	helper:*)
		mount_other
		expect 0027 "$("$ISTHMUS" exec "$other" -- sh -c umask)"
		umount_other
		;;
	ssh:*)
		echo 'umask 077' >"$tmp/far/.bashrc"
		mount_other
		expect "0077 600" "$("$ISTHMUS" exec "$other" -- sh -c 'umask; : >made; stat -c %a made' | paste -sd ' ')"
		rm "$tmp/far/.bashrc"
		umount_other
		;;
	esac
	rm -f "$mnt/made"
}

test_commands_have_the_environment_of_the_login() {
	[[ "$uri" = ssh:* ]] || skip "no login"
	mkdir -p "$tmp/far/bin" "$tmp/far/login"
	printf '#!/bin/sh\necho "$FROM_RC,$FROM_LOGIN"\n' >"$tmp/far/bin/of-the-login"
	chmod 755 "$tmp/far/bin/of-the-login"
	printf 'export FROM_RC=rc PATH=%s/bin:$PATH\n' "$tmp/far" >"$tmp/far/.bashrc"
	printf 'echo noise\nexport FROM_LOGIN=login PATH=%s/login:%s/bin:$PATH\n' "$tmp/far" "$tmp/far" >"$tmp/far/.bash_profile"
	mount_other
	expect "rc," "$("$ISTHMUS" exec "$other" -- of-the-login)" "a program that the login finds"
	expect "$tmp/far" "$("$ISTHMUS" exec "$other" -- printenv HOME)" HOME
	umount_other
	mount_other -o env=login
	expect "rc,login" "$("$ISTHMUS" exec "$other" -- of-the-login)" "env=login"
	! "$ISTHMUS" exec "$other" -- no-such-program 2>"$tmp/err" || fail "it ran"
	grep -q "where PATH is $tmp/far/login:$tmp/far/bin:/" "$tmp/err" || fail "$(cat "$tmp/err")"
	umount_other
	rm "$tmp/far/.bashrc" "$tmp/far/.bash_profile"
}

test_a_login_shell_without_an_end_is_told_of() {
	[[ "$uri" = ssh:* ]] || skip "no login"
	echo 'exit 0' >"$tmp/far/.bash_profile"
	mount_other -o env=login
	! "$ISTHMUS" exec "$other" -- true 2>"$tmp/err" || fail "it ran"
	grep -q 'login shell at the workspace gives no environment' "$tmp/err" || fail "$(cat "$tmp/err")"
	rm "$tmp/far/.bash_profile"
	"$ISTHMUS" exec "$other" -- true
	umount_other
}

test_what_is_not_found_says_where_it_was_looked_for() {
	! at -- no-such-program 2>"$tmp/err" || fail "it ran"
	grep -q "where PATH is /.*:/usr/bin.*env=login" "$tmp/err" || fail "$(cat "$tmp/err")"
	! at -e PATH=/only/here -- no-such-program 2>"$tmp/err" || fail "it ran"
	grep -q "where PATH is /only/here;" "$tmp/err" || fail "$(cat "$tmp/err")"
	! at -- sh -c no-such-program 2>"$tmp/err" || fail "it ran"
	grep -q "exit code 127: the PATH there is /.*:/usr/bin" "$tmp/err" || fail "$(cat "$tmp/err")"
}

test_a_directory_may_be_named_as_the_workspace_names_it() {
	mkdir -p "$mnt/named"
	expect "$backing/named" "$(at -C "$(at -C named -- pwd)" -- pwd)" "what pwd printed"
	expect "$backing/named" "$(at -C "$mnt/named" -- pwd)" "on the mount"
	expect "$backing/named" "$(at -C /named -- pwd)" "from the root"
	expect 125 "$(exit_code_of at -C "$backing/no-such" -- true)" "none there"
	expect 125 "$(exit_code_of at -C /etc -- true)" "outside"
}

test_bad_words_and_closed_files_are_told_of() {
	expect 125 "$(exit_code_of at -e 1X=2 -- true)" "no name"
	expect 0 "$(exit_code_of at -e _X1=2 -- true)" "a name"
	expect "" "$(echo given | at -n -- cat)" "-n"
	! at -- echo x >&- 2>"$tmp/err" || fail "it ran"
	expect "isthmus exec: cannot write to standard output: it is closed" "$(cat "$tmp/err")"
}

run_tests "$1"
