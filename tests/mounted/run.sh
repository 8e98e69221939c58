#!/bin/bash
# isthmus run: an agent here, whose shell works at the workspace.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

agent=$(cd "$(dirname "$0")" && pwd)/run_agent.py

# run_case AGENT CASE [ARGUMENT...]: what the agent printed.
run_case() {
	"$ISTHMUS" run "${mount_options[@]}" --agent "$1" "$uri" -- "$agent" "${@:2}"
}

setup_case() {
	need python3
	"$(dirname "$agent")/own_mounts.sh" true 2>/dev/null || skip "no mount namespaces"
	mkdir -p "$backing/sub"
	echo text >"$backing/sub/here"
}

nothing_left() {
	[ -z "$(ls -A "$XDG_RUNTIME_DIR/isthmus")" ] || fail "left: $(ls -A "$XDG_RUNTIME_DIR/isthmus")"
	! grep -F "$XDG_RUNTIME_DIR" /proc/self/mounts
}

test_every_way_to_a_shell_leads_to_the_workspace() {
	setup_case
	expect "$(printf "0 'there\\\\n' ''%.0s\n" 1 2 3 4 5)" "$(run_case other routes)"
	nothing_left
}

test_commands_behave_as_in_a_local_shell() {
	setup_case
	run_case other semantics >"$tmp/got"
	diff "$tmp/got" - <<-END
		7 'out\n' 'err\n'
		137 '' ''
		0 'name one two\n' ''
		3 'given\n' ''
		0 '/dev/null\n' ''
		0 '$backing/sub\ntext\n' ''
		0 'outside\n' ''
	END
}

test_keys_and_tokens_stay_here() {
	setup_case
	expect "0 ',kept,0\\n' ''" "$(run_case other environment)"
}

test_output_comes_while_the_command_runs() {
	setup_case
	expect "$(printf 'first\nsecond')" "$(run_case other streaming)"
}

test_output_by_one_stream_keeps_its_order() {
	setup_case
	expect "20" "$(run_case other one_stream)"
}

test_a_killed_shell_leaves_nothing_running_there() {
	setup_case
	local mark=98765.$RANDOM

	run_case pi leash "$mark"
	wait_for 20 no_process "sleep $mark"
}

no_process() {
	! pgrep -fx "$1"
}

# As at the end of a terminal.
test_what_commands_left_running_ends_or_is_named() {
	setup_case
	local first=87654.$RANDOM second=76543.$RANDOM

	expect "0 'left\\n' ''" "$(run_case other leave "$first" "$second" 2>"$tmp/notes")"
	no_process "sleep $first" || fail "it goes on: $(pgrep -fx "sleep $first")"
	grep -q "still running at \"$uri\".*process $(pgrep -fx "sleep $second") sleep $second .*'kill $(pgrep -fx "sleep $second")'" \
		"$tmp/notes" || fail "said: $(cat "$tmp/notes")"
	pkill -fx "sleep $second"
	nothing_left
}

# start_waiting: a run whose agent waits ($run, $waiting).
start_waiting() {
	rm -f "$tmp/started" # of another run
	# A shell has interrupts ignored in the background.
	python3 -c '
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$ISTHMUS" run "${mount_options[@]}" "$uri" -- "$agent" wait >"$tmp/started" 2>"$tmp/notes" &
	run=$!
	wait_for 30 grep -q started "$tmp/started" || fail "not started: $(cat "$tmp/notes")"
	waiting=$(cut -d' ' -f2 "$tmp/started")
}

test_a_killed_run_leaves_nothing() {
	setup_case
	local run waiting

	start_waiting
	kill -KILL "$run"
	wait "$run" || true
	wait_for 20 not_running "$waiting" || fail "the agent goes on"
	wait_for 20 nothing_left || nothing_left
}

test_an_interrupt_of_the_run_alone_reaches_the_agent() {
	setup_case
	local run waiting status=0

	start_waiting
	kill -INT "$run"
	wait_for 10 not_running "$waiting" || fail "the agent goes on"
	wait "$run" || status=$?
	expect 130 "$status"
	nothing_left
}

test_variables_are_given_to_commands() {
	setup_case
	expect "there,given" "$(GIVEN=given "$ISTHMUS" run "${mount_options[@]}" -e OTHER=there -e GIVEN "$uri" -- \
		python3 -c 'import os, subprocess
subprocess.run([os.environ["SHELL"], "-c", "echo $OTHER,$GIVEN"])')"
	! "$ISTHMUS" run -e 1X=2 "$uri" -- true 2>"$tmp/notes" || fail "it took 1X"
	grep -q '"1X=2" is not NAME=VALUE' "$tmp/notes"
}

test_an_agent_that_is_not_there_is_told_of_first() {
	printf '#!/bin/sh\ntouch "%s"\nexec sh\n' "$tmp/connected" >"$tmp/connect"
	chmod 755 "$tmp/connect"
	! "$ISTHMUS" run "cmd:$tmp/connect !/" -- no-such-agent 2>"$tmp/notes" || fail "it ran"
	grep -q '"no-such-agent" is not in PATH' "$tmp/notes"
	[ ! -e "$tmp/connected" ] || fail "it connected first"
}

test_a_shell_as_the_agent_is_told_what_it_is() {
	setup_case
	"$ISTHMUS" run "${mount_options[@]}" "$uri" -- bash </dev/null 2>"$tmp/notes"
	grep -q "typed at the prompt runs here.*isthmus exec -t $XDG_RUNTIME_DIR/isthmus/run-.* -- bash' is a shell there" "$tmp/notes"
}

test_a_terminal_is_one_there() {
	setup_case
	expect "4 33 99 /dev/pts" "$(run_case other terminal)"
}

test_claude_code_knows_the_new_directory() {
	setup_case
	run_case claude claude >"$tmp/got"
	head -n 4 "$tmp/got" | diff - <(
		cat <<-END
			5 '' ''
			no file
			0 'a  b\n' ''
			$backing/sub
		END
	)
	sed -n 5p "$tmp/got" | grep -q "^125 '' .*does not know, so nothing was run"
	expect "0 'here\\n' ''" "$(sed -n 6p "$tmp/got")"
}

test_gemini_cli_learns_of_background_jobs() {
	setup_case
	expect "$(printf "6 'out\\\\n' ''\nTrue")" "$(run_case gemini gemini)"
}

test_the_wrapper_of_codex_runs_here_and_its_command_there() {
	setup_case
	local login

	login=$(getent passwd "$(id -un)" | cut -d: -f7)
	expect "$(printf "2 'wrapper\\\\nthere\\\\n' ''\n0 'there\\\\n' ''")" "$(run_case codex codex "$login")"
}

test_paths_are_the_same_on_both_sides() {
	setup_case
	expect "True text" "$(run_case other same_path)"
}

test_commits_have_the_user_s_name() {
	setup_case
	need git
	git config --global user.name "Some One"
	git config --global user.email one@example.org
	GIT_CONFIG_GLOBAL=$tmp/gitconfig run_case other commit >"$tmp/got"
	rm -rf "${backing:?}/repo"
	grep -q "Some One one@example.org\|$(HOME=$tmp/far git config user.email || echo none)" "$tmp/got"
}

test_the_exit_code_is_the_agent_s() {
	setup_case
	local status=0

	"$ISTHMUS" run "${mount_options[@]}" "$uri" -- python3 -c 'import sys; sys.exit(9)' || status=$?
	expect 9 "$status"
	status=0
	"$ISTHMUS" run "${mount_options[@]}" "$uri" -- python3 -c 'import os; os.kill(os.getpid(), 15)' || status=$?
	expect 143 "$status"
	status=0
	"$ISTHMUS" run "${mount_options[@]}" "$uri" -- no-such-agent || status=$?
	expect 127 "$status"
	nothing_left
}

# Nobody answers at the workspace.
test_a_run_that_is_ended_while_it_mounts_leaves_nothing() {
	setup_case
	local run status signal

	printf '#!/bin/sh\ntouch "%s"\nexec cat >/dev/null\n' "$tmp/reached" >"$tmp/silent"
	chmod 755 "$tmp/silent"
	for signal in TERM INT HUP; do
		rm -f "$tmp/reached"
		python3 -c '
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL) # a shell has it ignored in the background
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$ISTHMUS" run "cmd:$tmp/silent !/" -- true >"$tmp/got" 2>&1 &
		run=$!
		wait_for 20 [ -e "$tmp/reached" ] || fail "not reached: $(cat "$tmp/got")"
		kill -"$signal" "$run"
		status=0
		wait "$run" || status=$?
		expect 125 "$status" "exit code after $signal"
		grep -q 'the daemon was ended by signal 15' "$tmp/got" || fail "said: $(cat "$tmp/got")"
		wait_for 10 not_running "$(pgrep -f "^$ISTHMUS run cmd:$tmp/silent")" || fail "the daemon is left"
		! ls -d "$XDG_RUNTIME_DIR"/isthmus/run-* 2>/dev/null || fail "left"
		! grep -F "$XDG_RUNTIME_DIR" /proc/self/mounts || fail "mounted"
	done
}

test_two_runs_share_one_mount() {
	setup_case
	run_case other wait_for_file "$tmp/go" >"$tmp/first" &
	local first=$!

	wait_for 30 grep -q started "$tmp/first"
	run_case other routes >"$tmp/second" 2>"$tmp/notes"
	expect "" "$(cat "$tmp/notes")" "said of the same options"
	"$ISTHMUS" run "${mount_options[@]}" -o ttl=3 "$uri" -- true 2>"$tmp/notes"
	grep -q "mounted by another run, with other options, which count" "$tmp/notes"
	expect 1 "$(grep -cF "$XDG_RUNTIME_DIR" /proc/self/mounts)" "mounts while the first run goes on"
	touch "$tmp/go"
	wait "$first"
	expect "['here']" "$(tail -n 1 "$tmp/first")"
	nothing_left
}

test_a_mount_that_is_there_stays() {
	setup_case
	start_daemon
	expect "True text" "$("$ISTHMUS" run "$mnt" -- "$agent" same_path)"
	is_mounted
	stop_daemon
}

test_a_workspace_that_would_hide_the_home_is_shown_elsewhere() {
	setup_case
	HOME=$backing/sub run_case other semantics >"$tmp/got" 2>"$tmp/notes"
	grep -q "would hide \"$backing/sub\"" "$tmp/notes"
	expect "0 '$backing/sub\\ntext\\n' ''" "$(sed -n 6p "$tmp/got")"
}

test_where_no_command_runs_there_is_no_run() {
	setup_case
	local status=0

	"$ISTHMUS" run mem: -- "$agent" routes >"$tmp/got" 2>&1 || status=$?
	expect 125 "$status"
	grep -q "it holds files only" "$tmp/got"
	nothing_left
}

run_tests_unmounted "$1"
