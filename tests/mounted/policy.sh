#!/bin/bash
# -o hide, protect and agentsignore: what programs on the mount see, whichever they are, and what
# the cache, the log and the change feed do not tell them.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

policy_options=(-o 'hide=.env*,hide=!.env.example,hide=secrets/,protect=.git/hooks,agentsignore')

test_programs_do_not_see_what_is_hidden() {
	mkdir -p "$backing/p/secrets/in" "$backing/p/src"
	echo token >"$backing/p/.env"
	echo token >"$backing/p/secrets/in/key"
	echo example >"$backing/p/.env.example"
	echo 'token' >"$backing/p/src/.env.local"
	wait_for 20 test -d "$mnt/p/src" || return
	cd "$mnt/p"
	expect ".env.example src " "$(find . -mindepth 1 -printf '%P\n' | sort | tr '\n' ' ')" "find" || return
	expect "" "$(grep -rl token . 2>&1)" "grep" || return
	expect "cat: .env: No such file or directory" "$(cat .env 2>&1)" || return
	ls secrets 2>/dev/null && { fail "ls shows secrets"; return; }
	expect "cat: secrets/in/key: No such file or directory" "$(cat secrets/in/key 2>&1)" || return
	ln -s .env link
	expect "cat: link: No such file or directory" "$(cat link 2>&1)" "by a link" || return
	getfattr -n user.isthmus.hash .env 2>/dev/null && { fail "it has a hash"; return; }
	expect example "$(cat .env.example)"
}

test_hidden_names_cannot_be_made() {
	mkdir -p "$mnt/m" && cd "$mnt/m"
	echo x >file
	(echo x >.env) 2>/dev/null && { fail ".env was written"; return; }
	mv file .env 2>/dev/null && { fail "file became .env"; return; }
	ln file .env 2>/dev/null && { fail "a link .env was made"; return; }
	mkdir secrets 2>/dev/null && { fail "secrets was made"; return; }
	expect file "$(ls -A "$backing/m")"
}

test_what_is_protected_can_only_be_read() {
	mkdir -p "$backing/.git/hooks"
	echo run >"$backing/.git/hooks/pre-commit"
	cd "$mnt"
	wait_for 20 test -e .git/hooks/pre-commit || return
	expect run "$(cat .git/hooks/pre-commit)" || return
	(echo evil >>.git/hooks/pre-commit) 2>/dev/null && { fail "it was written"; return; }
	(echo evil >.git/hooks/new) 2>/dev/null && { fail "a hook was made"; return; }
	rm -f .git/hooks/pre-commit 2>/dev/null && { fail "it was removed"; return; }
	chmod +x .git/hooks/pre-commit 2>/dev/null && { fail "it was made executable"; return; }
	mv .git old 2>/dev/null && { fail ".git was moved"; return; }
	expect run "$(cat .git/hooks/pre-commit)" "after mv .git"
}

test_a_list_made_at_the_workspace_hides_at_once() {
	mkdir -p "$backing/a/b"
	echo 1 >"$backing/a/b/key"
	wait_for 20 test -d "$mnt/a/b" || return
	cd "$mnt/a"
	expect 1 "$(cat b/key)" || return
	echo key >"$backing/a/.agentsignore"
	wait_for 20 eval '! cat b/key' || { fail "b/key is shown"; return; }
	expect "" "$(ls b)" "the listing" || return
	(echo '!key' >b/.agentsignore) 2>/dev/null && { fail "a list was made on the mount"; return; }
	rm -f .agentsignore 2>/dev/null && { fail "the list was removed"; return; }
	rm "$backing/a/.agentsignore"
	wait_for 20 cat b/key || fail "b/key is not shown again"
}

# What changes there is reported to the daemon and logged; exec runs there.
test_changes_of_commands_name_nothing_hidden() {
	mkdir "$mnt/x"
	"$ISTHMUS" exec "$mnt/x" -- sh -c 'echo 1 >.env; echo 1 >seen; cat .env' >"$tmp/out" ||
		{ fail "exec failed"; return; }
	expect 1 "$(cat "$tmp/out")" "exec is not bound" || return
	wait_for 20 test -e "$mnt/x/seen" || { fail "seen is not shown"; return; }
	"$ISTHMUS" log "$mnt" --op exec --json >"$tmp/log" || { fail "no log"; return; }
	grep -q 'x/seen' "$tmp/log" || { fail "the log lacks the change of x/seen"; return; }
	grep '"changed' "$tmp/log" | grep -o '"changed.*' | grep -q '\.env"' && fail "the log names .env"
	expect seen "$(ls -A "$mnt/x")"
}

test_status_names_the_policy_and_its_bound() {
	"$ISTHMUS" status "$mnt" >"$tmp/status" || return
	grep -qF 'policy       hides .env*, hides !.env.example, hides secrets/, protects .git/hooks, hides what .agentsignore lists, but not from commands of exec' "$tmp/status" ||
		{ fail "status: $(grep policy "$tmp/status")"; return; }
	"$ISTHMUS" status "$mnt" --json | grep -q '"binds_exec":[[:space:]]*false' || fail "no binds_exec"
}

# ask_for_search DIRECTORY TEXT: the files that the mount says lack it, and PATH=LINES of those that have it on few lines,
# as a tool asks for them.
ask_for_search() {
	python3 - "$("$ISTHMUS" status "$mnt" --json | sed -n 's/.*"control":[[:space:]]*"\([^"]*\)".*/\1/p')" "$@" <<-'END'
		import json, socket, struct, sys
		def take(size):
		    data = b""
		    while len(data) < size:
		        data += connection.recv(size - len(data)) or sys.exit("closed")
		    return data
		connection = socket.socket(socket.AF_UNIX)
		connection.connect(sys.argv[1])
		request = json.dumps({"request": "search", "path": sys.argv[2], "texts": sys.argv[3:], "context": 0}).encode()
		connection.sendall(struct.pack("<IB", len(request), ord("J")) + request)
		told = []
		while True:
		    size, kind = struct.unpack("<IB", take(5))
		    payload = take(size)
		    if chr(kind) == "U":
		        told += payload.decode().split("\0")[:-1]
		    elif chr(kind) == "C":
		        told.append(payload.decode().replace("\0", "=").replace("\n", ";"))
		    else:
		        break
		print(*sorted(told), chr(kind))
	END
}

lines_with_pin_come() {
	found=$(ask_for_search search pin | sed 's/.* src.lined/src\/lined/')
	[ "$found" = "src/lined=2001 6;a pin; J" ]
}

test_a_search_tells_of_nothing_hidden() {
	local i found

	mkdir -p "$backing/search/secrets" "$backing/search/src"
	for i in 1 2 3 4 5 6 7 8 9; do
		printf '%5000s' nothing >"$backing/search/src/f$i" # more than a look at names brings
	done
	printf '%5000s' nothing | tee "$backing/search/.env" "$backing/search/secrets/key" >"$backing/search/src/listed"
	for i in src secrets; do
		{
			seq 2000
			echo "a pin"
		} >"$backing/search/$i/lined"
	done
	echo listed >"$backing/search/src/.agentsignore"
	wait_for 20 test -d "$mnt/search/src" || return
	case "$uri" in
	local:*) expect "J" "$(ask_for_search search needle)" "what is near is searched from here" ;;
	*)
		expect "F" "$(ask_for_search search/secrets needle)" "a hidden directory" || return
		expect "src/f1 src/f2 src/f3 src/f4 src/f5 src/f6 src/f7 src/f8 src/f9 src/lined J" \
			"$(ask_for_search search needle | sed 's:^src/.agentsignore ::')" "files that lack it" || return
		# What the search says of a file is not used if a report of the file comes meanwhile.
		wait_for 10 lines_with_pin_come || fail "lines: $found"
		;;
	esac
}

test_what_is_no_pattern_is_refused() {
	local pattern message

	mkdir -p "$tmp/other"
	for pattern in '' '#c' '[a'; do
		message=$("$ISTHMUS" mount -o "hide=$pattern" mem: "$tmp/other" 2>&1) &&
			{ fail "hide=$pattern is accepted"; return; }
		grep -q gitignore <<<"$message" || { fail "hide=$pattern: $message"; return; }
	done
}

prepare_backend "$1"
mount_options+=("${policy_options[@]}")
run_tests_prepared
