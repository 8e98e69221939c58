#!/bin/bash
# The tools through a mount: commands run at the workspace, and the log knows each call.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

searches=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)/searches.py

# tool NAME ARGUMENT...: the result as JSON.
tool() {
	"$ISTHMUS" tool "$1" --root "$mnt" --yes --output json "${@:2}"
}

# field NAME: the value of a JSON member on stdin (the first of that name).
field() {
	sed -n "s/^[[:space:]]*\"$1\":[[:space:]]*\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" | head -1
}

ops_of_call() {
	"$ISTHMUS" log "$mnt" --call "$1" --json | sed -n 's/.*"op":"\([a-z]*\)".*/\1/p' | sort -u | tr '\n' ' '
}

test_files_change_at_the_workspace() {
	tool write new/a.txt 'one two' >/dev/null
	tool edit new/a.txt --old-text two --new-text three >/dev/null
	expect 'one three' "$(cat "$mnt/new/a.txt")" 'on the mount'
	[ -z "$backing" ] || expect 'one three' "$(cat "$backing/new/a.txt")" 'at the workspace'
	expect a.txt "$(ls -A "$mnt/new")" 'no litter'
}

# edit_lines ROOT PREFIX: one call for each of 20 lines.
edit_lines() {
	local i

	for i in $(seq 20); do
		"$ISTHMUS" tool edit --root "$1" --yes many --old-text "$2$i old" --new-text "$2$i new" >/dev/null || return 1
	done
}

# Tool calls on two mounts, and a program at the workspace that locks the file, change lines of one file.
test_no_edit_is_lost_beside_those_of_another_mount() {
	need python3
	[ -n "$backing" ] || skip "nobody else can change a mem: workspace"
	local first second

	second_mount
	for i in $(seq 20); do printf '%s\n' "a$i old" "b$i old" "c$i old"; done >"$backing/many"
	wait_for 10 cmp "$backing/many" "$mnt/many"
	wait_for 10 cmp "$backing/many" "$mnt2/many"
	edit_lines "$mnt" a &
	first=$!
	edit_lines "$mnt2" b &
	second=$!
	python3 - "$backing/many" <<-'END'
		import fcntl, os, sys, time
		path = sys.argv[1]
		for i in range(1, 21):
		    while True:
		        with open(path) as file:
		            fcntl.flock(file, fcntl.LOCK_EX)
		            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
		                text = file.read()
		                with open(path + ".new", "w") as new:
		                    new.write(text.replace(f"c{i} old", f"c{i} new"))
		                os.rename(path + ".new", path)
		                break
		    time.sleep(0.01)
	END
	wait "$first" || fail "an edit through the first mount failed"
	wait "$second" || fail "an edit through the second mount failed"
	expect 60 "$(grep -c new "$backing/many")" "lines that were changed"
	expect 60 "$(wc -l <"$backing/many")" "lines"
}

test_the_log_knows_the_call() {
	local out

	echo hello >"$mnt/log.txt"
	out=$(tool edit log.txt --old-text hello --new-text bye --call-id edit-1)
	expect edit-1 "$(field call_id <<<"$out")" 'call id'
	[ "$(field first_seq <<<"$out")" -le "$(field last_seq <<<"$out")" ] || fail "log range: $out"
	case " $(ops_of_call edit-1)" in
	*" rename "*) ;;
	*) fail "the call's operations: $(ops_of_call edit-1)" ;;
	esac
}

test_bash_runs_at_the_workspace() {
	local out

	[ -n "$backing" ] || skip 'mem: has no commands'
	mkdir "$mnt/sub"
	out=$(tool bash 'pwd -P; echo made >made.txt; cat made.txt' --workdir sub --call-id bash-1)
	expect 0 "$(field exit_code <<<"$out")" 'exit code'
	grep -q "$(cd "$backing/sub" && pwd -P)" <<<"$out" || fail "where it ran: $out"
	expect made "$(cat "$mnt/sub/made.txt")" 'visible when it has ended'
	case " $(ops_of_call bash-1)" in
	*" exec "*) ;;
	*) fail "the call's operations: $(ops_of_call bash-1)" ;;
	esac
	out=$(tool bash 'exit 9') || true
	expect 9 "$(field exit_code <<<"$out")" 'exit code'
	out=$(tool bash true --workdir .isthmus) || true
	expect NOT_A_DIRECTORY "$(field code <<<"$out")" 'where there is none at the workspace'
}

test_output_of_bash_keeps_its_order() {
	local i out

	[ -n "$backing" ] || skip 'mem: has no commands'
	for i in $(seq 20); do
		out=$("$ISTHMUS" tool bash --root "$mnt" --yes --command 'for i in 1 2 3; do echo o$i; echo e$i >&2; done' |
			paste -sd ' ')
		expect "o1 e1 o2 e2 o3 e3" "$out" "call $i"
	done
}

test_bash_says_where_a_command_was_looked_for() {
	local out

	[ -n "$backing" ] || skip 'mem: has no commands'
	out=$(tool bash no-such-program) || true
	grep -q "exit code 127; PATH is /.*:/usr/bin" <<<"$out" || fail "$out"
}

test_the_log_has_a_custom_tool_draw_its_call() {
	mkdir -p "$HOME/.config/isthmus/tools"
	cat >"$HOME/.config/isthmus/tools/draws" <<-'EOF'
		#!/usr/bin/env python3
		import json, os, sys
		if os.environ["TOOLBOX_ACTION"] == "describe":
		    print(json.dumps({"protocol": "isthmus-tool/1", "tools": [{"name": "draws", "description": "d", "renders": True,
		        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}]}))
		    sys.exit()
		for line in sys.stdin:
		    m = json.loads(line)
		    if m["type"] == "execute":
		        print(json.dumps({"type": "result", "id": m["id"], "content": [{"type": "text", "text": "raw"}], "details": {"n": 7}}), flush=True)
		    elif m["type"] == "render":
		        words = m["args"]["word"] if m["phase"] == "call" else "n %d%s" % (m["result"]["details"]["n"], ", all" * m["expanded"])
		        print(json.dumps({"type": "rendered", "id": m["id"], "ask": m["ask"], "text": words}), flush=True)
	EOF
	chmod +x "$HOME/.config/isthmus/tools/draws"
	tool draws --word hello --call-id drawn-1 --conversation drawings >/dev/null
	expect $'hello\nn 7, all' "$("$ISTHMUS" log "$mnt" --call drawn-1 --expanded | tail -n 2)" 'drawn'
	! "$ISTHMUS" log "$mnt" --expanded >"$tmp/out" 2>&1 || fail "without a call"
	rm -r "$HOME/.config/isthmus/tools"
}

# The same on a directory that is no mount.
plain_tool() {
	"$ISTHMUS" tool "$1" --root "$tmp/plain" --yes --output json "${@:2}"
}

test_calls_elsewhere_have_a_log_of_their_own() {
	local plain=$tmp/plain

	mkdir "$plain"
	plain_tool write a.txt secret --call-id plain-1 --agent 'pi 2' --user alice --conversation c-1 >"$tmp/out"
	expect 1 "$(field first_seq <"$tmp/out")" 'number'
	! plain_tool bash 'API_TOKEN=abc exit 3' >"$tmp/out" 2>&1 || fail "exit code"
	! plain_tool read sub/../none.txt >"$tmp/out" 2>&1 || fail "exit code"
	! plain_tool bash 'kill -TERM $$' >"$tmp/out" 2>&1 || fail "exit code"
	mkdir -p "$HOME/.config/isthmus/tools"
	printf '#!/bin/sh\n%s\n' '[ "$TOOLBOX_ACTION" != describe ] || echo "{\"name\": \"own\", \"description\": \"d\", \"args\": {\"command\": [\"string\", \"c\"]}}"' \
		>"$HOME/.config/isthmus/tools/own"
	chmod +x "$HOME/.config/isthmus/tools/own"
	plain_tool own --command told >"$tmp/out" 2>&1 || fail "own: $(cat "$tmp/out")"
	rm -r "$HOME/.config/isthmus/tools"
	! tool read none.txt >"$tmp/out" 2>&1 || fail "exit code" # on the mount
	"$ISTHMUS" log --tools --json | grep '"seq"' >"$tmp/log"
	expect 5 "$(wc -l <"$tmp/log")" 'lines'
	python3 - "$plain" "$tmp/log" <<-'EOF' || fail "$(cat "$tmp/log")"
		import json, sys
		plain, log = sys.argv[1:]
		lines = [json.loads(line) for line in open(log)]
		want = [dict(seq=1, op="tool_call", path=plain + "/a.txt", call="plain-1", tool="write", agent="pi 2", user="alice",
		             conversation="c-1", result=0),
		        dict(seq=2, path=plain, tool="bash", result="EXIT_STATUS", exit_code=3, detail="API_TOKEN=*** exit 3", redacted=True),
		        dict(seq=3, path=plain + "/none.txt", tool="read", result="NOT_FOUND"),
		        dict(seq=4, path=plain, tool="bash", signal=15),
		        dict(seq=5, path=plain, tool="own", process="isthmus-tools", detail=None)]
		sys.exit(any(line.get(key) != value for line, row in zip(lines, want) for key, value in row.items()) or "told" in open(log).read() or "secret" in open(log).read())
	EOF
	expect 3 "$("$ISTHMUS" log --tools --errors --json | wc -l)" 'errors'
	"$ISTHMUS" log --tools --verify >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
	sed -i 's/API_TOKEN=... exit/exit/' "$XDG_STATE_HOME/isthmus/tools.jsonl"
	! "$ISTHMUS" log --tools --verify >"$tmp/out" 2>&1 || fail "altered: $(cat "$tmp/out")"
	! "$ISTHMUS" log --tools "$plain" >"$tmp/out" 2>&1 || fail "a directory"
}

# changed_by [OPTION...] COMMAND: what the tool says that it changed.
changed_by() {
	tool bash "$@" | python3 -c 'import json, sys; print(*json.load(sys.stdin)["data"]["changed"])'
}

test_what_a_command_changed_is_named_as_the_tools_name_it() {
	[ -n "$backing" ] || skip 'mem: has no commands'
	need python3
	mkdir -p "$mnt/project/old/er"
	ls "$mnt" "$mnt/project" "$mnt/project/old" >/dev/null
	expect 'project/new/deep/file' "$(changed_by 'mkdir -p project/new/deep && echo x >project/new/deep/file')" 'a new directory'
	expect 'old/there' "$(mnt=$mnt/project changed_by 'echo x >old/there')" 'from the root of the tools'
	expect "$mnt/above" "$(mnt=$mnt/project changed_by 'echo x >../above')" 'outside it'
	expect 'project/new' "$(changed_by 'rm -r project/new')" 'removed'
	expect 'project/old' "$(changed_by 'chmod 700 project/old')" 'another mode'
	expect 'mine' "$(changed_by "touch $tmp/started; while [ ! -e $tmp/go ]; do sleep 0.02; done; echo x >mine" &
		wait_for 20 test -e "$tmp/started"
		echo x >"$mnt/not-mine"
		touch "$tmp/go"
		wait)" 'not what came through the mount'
	"$ISTHMUS" tool bash --root "$mnt" --yes --output json 'for i in $(seq 30); do echo x >"n$i"; done; false' >"$tmp/result" || :
	printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"for i in 1 2 3; do echo x >m$i; done"}}}' |
		"$ISTHMUS" mcp --yes "$mnt" >"$tmp/answers"
	grep -qF '[Changed: m1, m2, m3.]' "$tmp/answers" || fail "$(cat "$tmp/answers")"
	rm -r "${mnt:?}"/*
}

test_long_output_lies_where_its_commands_run() {
	[ -n "$backing" ] || skip 'mem: has no commands'
	need python3
	export XDG_CACHE_HOME=$tmp/here
	local out path

	out=$(tool bash 'for i in $(seq 5000); do echo "line $i"; done; printf open')
	path=$(field output_file <<<"$out")
	grep -qF 'Showing lines 3002-5001 of 5001 ' <<<"$out" || fail "$(field notice <<<"$out")"
	expect 'line 17' "$("$ISTHMUS" tool read "$path" --root "$mnt" --offset 17 --limit 1 | head -n 1)" read
	"$ISTHMUS" tool grep --root "$mnt" --path "$path" 'line 77$' >"$tmp/found"
	grep -qF 'line 77' "$tmp/found" || fail "grep: $(cat "$tmp/found")"
	expect 'line 4000' "$(tool bash "sed -n 4000p $path" | field output | sed 's/.n$//')" bash
	rm -r "$tmp/here"
	unset XDG_CACHE_HOME
}

test_the_log_shows_the_command_as_it_was_given() {
	[ -n "$backing" ] || skip 'mem: has no commands'
	tool bash 'echo "a  b" | tr a c' --call-id shown >/dev/null
	expect '/bin/bash -c echo "a  b" | tr a c' \
		"$("$ISTHMUS" log "$mnt" --call shown --op exec --json |
			python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())["detail"])')"
}

# names_of CALL: agent, user and conversation of its lines.
names_of() {
	"$ISTHMUS" log "$mnt" --json "$@" | python3 -c '
import json, sys
names = {(r.get("agent"), r.get("user"), r.get("conversation")) for r in map(json.loads, sys.stdin)}
print(*sorted(map(str, names)))'
}

test_the_log_says_on_whose_behalf() {
	tool write named.txt x --call-id named --agent 'pi 2' --user alice --conversation c-1 >/dev/null
	expect "('pi 2', 'alice', 'c-1')" "$(names_of --call named)" "names"
	"$ISTHMUS" log "$mnt" --call named | tail -n 1 >"$tmp/log"
	grep -qF '[write named by pi 2 for alice in c-1]' "$tmp/log" || fail "$(cat "$tmp/log")"
	printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code","version":"2.1"}}}' \
		'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write","arguments":{"path":"by-mcp.txt","content":"x"}}}' |
		"$ISTHMUS" mcp --user bob --conversation c-2 "$mnt" >"$tmp/answers"
	expect "('claude-code 2.1', 'bob', 'c-2')" "$(names_of --conversation c-2)" "names of the server's client"
	printf '%s\n' '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"isthmus/user":"eve","isthmus/conversation":"c-3"},"name":"write","arguments":{"path":"by-mcp.txt","content":"y"}}}' |
		"$ISTHMUS" mcp --user bob --conversation c-2 "$mnt" >"$tmp/answers"
	expect "(None, 'eve', 'c-3')" "$(names_of --conversation c-3)" "names of one call"
}

test_mcp_says_where_commands_run() {
	local far=0

	case "$uri" in local:*) ;; *) far=1 ;; esac
	printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}' |
		"$ISTHMUS" mcp "$mnt" >"$tmp/initialized"
	expect 1 "$(grep -cF "the directory $mnt; paths" "$tmp/initialized")" "the root is named"
	expect "$far" "$(grep -c 'mount of another place: commands of these tools run there' "$tmp/initialized")" "where it is"
}

# sum_of_round_trips CALL: how often the call waited for the far end.
sum_of_round_trips() {
	"$ISTHMUS" log "$mnt" --call "$1" --json |
		python3 -c 'import json, sys; print(sum(json.loads(line).get("round_trips", 0) for line in sys.stdin))'
}

need_far_end() {
	case "$uri" in
	helper:* | ssh:*) ;;
	*) skip 'there is no far end' ;;
	esac
}

test_grep_of_what_is_not_cached_takes_few_round_trips() {
	local i j trips

	need_far_end
	for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		mkdir -p "$backing/cold/d$i/e"
		for j in 1 2 3 4 5 6 7 8 9 10 11 12; do
			printf 'line\nneedle %d\n' "$j" | tee "$backing/cold/d$i/f$j" >"$backing/cold/d$i/e/f$j"
		done
	done
	expect 288 "$(tool grep needle --path cold --call-id cold-1 --limit 1000 | field matches)" matches
	trips=$(sum_of_round_trips cold-1)
	echo "  $trips round trips for 288 files in 25 directories"
	[ "$trips" -le 4 ] || fail "$trips round trips for 288 files in 25 directories"
	expect 288 "$(tool grep needle --path cold --call-id cold-2 --limit 1000 | field matches)" 'again'
	[ "$(sum_of_round_trips cold-2)" -le 1 ] || fail "warm: $(sum_of_round_trips cold-2) round trips"
	tool find '*' --path cold --call-id cold-3 >/dev/null
	expect 0 "$(sum_of_round_trips cold-3)" "round trips of find"
}

# opens_of CALL: files that the call opened below far/.
opens_of() {
	"$ISTHMUS" log "$mnt" --call "$1" --op open --json | grep -c '"path":"far/.*\.c"'
}

test_grep_looks_through_files_where_they_are() {
	local i trips

	need_far_end
	mkdir -p "$backing/far/build"
	for i in $(seq 100); do
		printf '%5000s\n' "line $i" >"$backing/far/f$i.c" # more than a look at names brings
	done
	printf 'build/\n' >"$backing/far/.gitignore"
	printf '%5000s\n' needle | tee "$backing/far/build/x.c" >"$backing/far/f7.c"
	expect 1 "$(tool grep needle --path far --call-id far-1 | field matches)" matches
	expect 1 "$(opens_of far-1)" "files that were opened"
	expect 101 "$(tool grep '[a-z]+ee?' --path far --call-id far-2 --limit 1000 | field files_searched)" \
		"without a literal all are searched"
	"$ISTHMUS" log "$mnt" --call far-1 --op search --json >"$tmp/searches"
	expect 1 "$(grep -c '"path":"far".*"round_trips":1' "$tmp/searches")" "in the log"
	echo 'a needle more' >>"$backing/far/f9.c"
	wait_for 10 eval 'expect 2 "$(tool grep needle --path far | field matches)"' || fail "what was added there"
	exec 5>>"$mnt/far/f8.c"
	echo 'a needle that is not flushed' >&5
	expect 3 "$(tool grep needle --path far --call-id far-3 | field matches)" "with what is not flushed"
	exec 5>&-
}

# moved_bytes: over the link, both ways.
moved_bytes() {
	echo $(($("$ISTHMUS" status --json "$mnt" | field bytes_received) + $("$ISTHMUS" status --json "$mnt" | field bytes_sent)))
}

test_a_backup_is_made_where_the_file_is() {
	local before moved

	need_far_end
	head -c 4000000 /dev/urandom >"$backing/large"
	cp "$backing/large" "$tmp/large"
	before=$(moved_bytes)
	tool edit_file large --content small >"$tmp/out" || fail "$(cat "$tmp/out")"
	moved=$(($(moved_bytes) - before))
	cmp "$tmp/large" "$backing/large.bak"
	expect small "$(cat "$mnt/large")" content
	echo "  $moved bytes for a backup of 4,000,000"
	[ "$moved" -lt 500000 ] || fail "$moved bytes came over the link"
}

received_bytes() {
	"$ISTHMUS" status --json "$mnt" | field bytes_received
}

test_grep_brings_only_lines_of_files_in_which_they_are_few() {
	local i before received

	need_far_end
	mkdir "$backing/few"
	for i in $(seq 40); do
		{
			seq 2000
			echo "a needle of $i"
			seq 2000
		} >"$backing/few/f$i"
	done
	before=$(received_bytes)
	expect 40 "$(tool grep 'needle of \d+$' --path few --call-id few-1 --context 2 | field matches)" matches
	received=$(($(received_bytes) - before))
	echo "  $received bytes for lines of 40 files of 18 KB"
	[ "$received" -lt 20000 ] || fail "$received bytes were received"
	expect 0 "$("$ISTHMUS" log "$mnt" --call few-1 --op open --json | grep -c '"path":"few/f')" "files that were opened"
	expect 40 "$("$ISTHMUS" log "$mnt" --call few-1 --op excerpt --path 'few/f*' --json | grep '"bytes":[1-9]' |
		grep -o '"path":"few/f[0-9]*"' | sort -u | wc -l)" "in the log: each file of which lines came"
	"$ISTHMUS" log "$mnt" --call few-1 --op excerpt --path few/f7 >"$tmp/log"
	grep -q 'excerpt .* few/f7  [1-9][0-9]*  \[grep few-1\]$' "$tmp/log" || fail "shown: $(cat "$tmp/log")"
	chmod 0 "$backing/few/f7"
	wait_for 10 eval '[ "$(stat -c %a "$mnt/few/f7")" = 0 ]' || fail "the mode is not seen"
	[ "$EUID" = 0 ] || expect 39 "$(tool grep 'needle of \d+$' --path few | field matches)" "but what may not be read"
}

# A map is written to, and nobody but the kernel knows of it.
test_grep_finds_what_is_in_the_pages_of_a_map() {
	local i

	need_far_end
	mkdir "$backing/mapped"
	for i in $(seq 30); do
		printf '%4096s' "$i" >"$backing/mapped/$i"
	done
	python3 - "$mnt/mapped/7" "$ISTHMUS" "$mnt" <<-'END' || fail "what a map has is not found"
		import mmap, subprocess, sys
		with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 4096) as pages:
		    pages[100:106] = b"needle"
		    done = subprocess.run([sys.argv[2], "tool", "grep", "needle", "--root", sys.argv[3] + "/mapped"],
		                          stdout=subprocess.PIPE, check=False)
		    sys.exit(0 if b"needle" in done.stdout else 1)
	END
}

test_searches_find_the_same_as_at_the_workspace() {
	local patterns=${SEARCH_PATTERNS:-10} trees=${SEARCH_TREES:-1} tree round seed same=true

	need_far_end
	need git
	for tree in $(seq "$trees"); do
		mkdir "$backing/searched$tree"
		python3 "$searches" tree "$backing/searched$tree" "$tree" || fail "no tree"
		for round in 1 2; do
			seed=$((tree * 10 + round))
			XDG_CACHE_HOME=$tmp/cold$seed second_mount || return
			python3 "$searches" compare "$mnt2/searched$tree" "$backing/searched$tree" "$seed" "$patterns" || same=false
			trap - EXIT
			end_second_mount
		done
	done
	"$same" || fail "searches differ"
}

# sleepers COUNT: so many of the command below run.
sleepers() {
	[ "$(pgrep -fc "^sleep 4715\.$$\$")" = "$1" ]
}

test_a_cancelled_command_leaves_nothing() {
	local pid

	[ -n "$backing" ] || skip 'mem: has no commands'
	"$ISTHMUS" tool bash --root "$mnt" --yes "(setsid sleep 4715.$$ &); sleep 4715.$$" >/dev/null 2>"$tmp/err" &
	pid=$!
	wait_for 20 sleepers 2 || fail "it did not start"
	kill -INT "$pid"
	wait "$pid" || true
	wait_for 5 sleepers 0 || fail "still running: $(pgrep -fa "^sleep 4715.$$")"
	expect 1 "$(grep -o cancelled "$tmp/err" | wc -l)" "how often it says that: $(cat "$tmp/err")"
}

test_custom_tools_at_the_workspace_and_here() {
	local tool=$mnt/.isthmus-tools/far out uri

	[ -n "$backing" ] || skip 'mem: has no commands'
	uri=$(getfattr --absolute-names --only-values -n user.isthmus.uri "$mnt" 2>/dev/null)
	mkdir -p "$tool"
	echo '{"command": ["sh", "run.sh"], "where": "workspace"}' >"$tool/tool.json"
	cat >"$tool/run.sh" <<-'END'
		[ "$TOOLBOX_ACTION" = describe ] && { printf 'name: far\nword: string it\n'; exit; }
		cat
		echo "$ISTHMUS_URI"
		pwd -P
	END
	export XDG_CONFIG_HOME=$tmp/config XDG_CACHE_HOME=$tmp/cache
	"$ISTHMUS" tool trust --root "$mnt" --yes >/dev/null
	out=$("$ISTHMUS" tool far --root "$mnt" --yes --word hello)
	expect "word: hello"$'\n'"$uri"$'\n'"$(cd "$backing" && pwd -P)" "$out" 'at the workspace'
	echo '{"command": ["sh", "run.sh"]}' >"$tool/tool.json"
	! "$ISTHMUS" tool far --root "$mnt" --yes --word hello 2>/dev/null || fail 'it has changed'
	"$ISTHMUS" tool trust --root "$mnt" --yes >/dev/null
	out=$("$ISTHMUS" tool far --root "$mnt" --yes --word hello)
	expect "word: hello"$'\n'"$uri"$'\n'"$mnt" "$out" 'here'
	cat >"$tmp/both" <<-'END'
		#!/bin/sh
		[ "$TOOLBOX_ACTION" = describe ] && { echo '{"protocol":"isthmus-tool/1","tools":[{"name":"both"}]}'; exit; }
		IFS= read -r line
		id=$(printf '%s' "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/')
		printf '{"type":"exec","id":"%s","ask":"e","argv":["sh","-c","pwd -P; sleep 60"],"timeout":1000}\n' "$id"
		IFS= read -r line
		line=$(printf '%s' "$line" | sed 's/.*"stdout":"\([^"\\]*\).*"killed":\(true\|false\).*/\1 \2/')
		printf '{"type":"result","id":"%s","content":"%s %s"}\n' "$id" "$(pwd -P)" "$line"
	END
	chmod +x "$tmp/both"
	out=$("$ISTHMUS" tool both --tool "$tmp/both" --root "$mnt" --yes)
	expect "$mnt $(cd "$backing" && pwd -P) true" "$out" 'it runs here, its commands at the workspace, for as long as it says'
	mkdir -p "$tmp/config/isthmus"
	echo '{"exec": "here"}' >"$tmp/config/isthmus/tools.json"
	out=$("$ISTHMUS" tool both --tool "$tmp/both" --root "$mnt" --yes)
	expect "$mnt $mnt true" "$out" 'its commands run here, too'
	unset XDG_CONFIG_HOME XDG_CACHE_HOME
}

test_calls_side_by_side_are_told_apart() {
	local i

	for i in 1 2 3 4 5 6 7 8; do
		mkdir -p "$mnt/many/d$i"
		echo "needle $i" >"$mnt/many/d$i/f.txt"
	done
	{
		for i in 1 2 3 4; do
			printf '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"grep","arguments":{"pattern":"needle","path":"many"}}}\n' $i
		done
		sleep 2
	} | "$ISTHMUS" mcp "$mnt" >"$tmp/answers"
	expect 4 "$(grep -c '"matches":8' "$tmp/answers")" answers
	sed -n 's/.*"call_id":"\([^"]*\)".*/\1/p' "$tmp/answers" >"$tmp/ids"
	while read -r i; do
		# Each call has all of its reads, whichever thread made them.
		expect 8 "$("$ISTHMUS" log "$mnt" --call "$i" --op open --json </dev/null |
			grep -c 'f.txt')" "opens of $i"
	done <"$tmp/ids"
}

run_tests "$@"
