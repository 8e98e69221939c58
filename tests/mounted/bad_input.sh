#!/bin/bash
# Bad input: a clear message that names the thing, exit code not 0, soon, nothing left behind.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

# refused SECONDS TEXT COMMAND...: must fail within SECONDS and say TEXT.
refused() {
	local seconds=$1 text=$2 started=$SECONDS code=0
	shift 2

	timeout -k 5 $((seconds + 20)) "$@" >"$tmp/out" 2>&1 || code=$?
	[ "$code" != 0 ] || fail "$*: succeeded"
	[ "$code" -lt 126 ] || [ "$code" = 127 ] || fail "$*: ended with $code: $(cat "$tmp/out")"
	[ $((SECONDS - started)) -le "$(patient "$seconds")" ] || fail "$*: took $((SECONDS - started)) s"
	grep -qF -- "$text" "$tmp/out" || fail "$*: '$text' is not in: $(cat "$tmp/out")"
	! is_mounted || fail "$*: left a mount"
	[ -z "$(pgrep -f "^$ISTHMUS mount .*$tmp")" ] || fail "$*: left a daemon"
	[ -z "$(find "$XDG_RUNTIME_DIR" -name '*.sock' -o -name '*.json')" ] ||
		fail "$*: left $(find "$XDG_RUNTIME_DIR" -type s -o -name '*.json')"
}

test_unknown_scheme() {
	refused 2 "nosuch" "$ISTHMUS" mount nosuch://x "$mnt"
}

test_malformed_uris() {
	refused 2 "just-a-word" "$ISTHMUS" mount just-a-word "$mnt"
	refused 2 "local:" "$ISTHMUS" mount local: "$mnt"
	refused 2 "relative" "$ISTHMUS" mount local:relative/dir "$mnt"
	refused 2 "ssh://" "$ISTHMUS" mount ssh:// "$mnt"
	refused 2 "99999" "$ISTHMUS" mount ssh://box:99999/x "$mnt"
	refused 2 "-oProxyCommand" "$ISTHMUS" mount "ssh://-oProxyCommand=touch $tmp/pwned/x" "$mnt"
	[ ! -e "$tmp/pwned" ]
}

test_missing_directory() {
	refused 2 "$tmp/nowhere" "$ISTHMUS" mount "local:$tmp/nowhere" "$mnt"
	refused 10 "$tmp/nowhere" "$ISTHMUS" mount "helper:$tmp/nowhere" "$mnt"
}

test_workspace_is_a_file() {
	echo x >"$tmp/file"
	refused 2 "$tmp/file\": Not a directory; if it is a file, name its directory" "$ISTHMUS" mount "local:$tmp/file" "$mnt"
	refused 10 "$tmp/file\": Not a directory; if it is a file, name its directory" "$ISTHMUS" mount "helper:$tmp/file" "$mnt"
}

test_mount_point_is_missing_or_a_file() {
	refused 2 "$tmp/nopoint" "$ISTHMUS" mount "$uri" "$tmp/nopoint"
	refused 2 "mkdir -p it first" "$ISTHMUS" mount "$uri" "$tmp/no/such/point"
	echo x >"$tmp/file"
	refused 2 "$tmp/file" "$ISTHMUS" mount "$uri" "$tmp/file"
}

test_mount_point_is_not_empty() {
	mkdir -p "$tmp/full/thing"
	refused 2 "not empty" "$ISTHMUS" mount "$uri" "$tmp/full"
	[ -d "$tmp/full/thing" ]
}

test_mount_point_is_mounted_already() {
	"$ISTHMUS" mount "$uri" "$mnt"
	! "$ISTHMUS" mount "$uri" "$mnt" >"$tmp/out" 2>&1 || fail "mounted twice"
	grep -qF "$mnt" "$tmp/out" || fail "$(cat "$tmp/out")"
	"$ISTHMUS" umount "$mnt"
}

test_mount_point_inside_the_workspace() {
	mkdir -p "$backing/inside"
	refused 2 "inside" "$ISTHMUS" mount "$uri" "$backing/inside"
	refused 2 "inside" "$ISTHMUS" mount "helper:$backing" "$backing/inside"
	mkdir -p "$backing/inside/deep"
	ln -s "$backing" "$tmp/link"
	refused 2 "inside" "$ISTHMUS" mount "helper:$tmp/link" "$tmp/link/inside/deep"
	expect deep "$(ls -A "$backing/inside")" "what the attempts leave"
	rmdir "$backing/inside/deep"
}

# Nothing is connected to before what was written has been looked at.
test_values_of_options_are_checked_first() {
	local option

	printf '#!/bin/sh\ntouch "%s"\nexec sh\n' "$tmp/connected" >"$tmp/connect"
	chmod 755 "$tmp/connect"
	for option in writes=behind cache=of memory=little cache_size=1 hide= env=logon channels=many; do
		! "$ISTHMUS" mount -o "$option" "cmd:$tmp/connect !/" "$mnt" 2>"$tmp/err" || fail "it took $option"
		grep -q "${option%%=*}" "$tmp/err" || fail "$option: $(cat "$tmp/err")"
		[ ! -e "$tmp/connected" ] || fail "$option: it connected first"
	done
}

test_unknown_option() {
	refused 2 "no-such-option" "$ISTHMUS" mount --no-such-option "$uri" "$mnt"
	refused 2 "nosuchkey" "$ISTHMUS" mount -o nosuchkey=1 "$uri" "$mnt"
	refused 2 'option "-o ttl" needs a value' "$ISTHMUS" mount -o ttl "$uri" "$mnt"
	refused 2 'option "-o ro" takes no value' "$ISTHMUS" mount -o ro=yes "$uri" "$mnt"
}

test_mistyped_words_are_guessed() {
	refused 2 'did you mean "--read-only"?' "$ISTHMUS" mount --readonly "$uri" "$mnt"
	refused 2 'option "--ttl" needs a value' "$ISTHMUS" mount --ttl
	refused 2 '"--json" takes no value' "$ISTHMUS" list --json=yes
	refused 2 'unknown option "-x"' "$ISTHMUS" umount -x "$mnt"
	refused 2 'Did you mean -o ttl?' "$ISTHMUS" mount -o tll=3 "$uri" "$mnt"
	refused 2 'it has ssh_command, inside, timeout,' "$ISTHMUS" mount -o timout=3 ssh://box/x "$mnt"
	refused 2 '"helper:" has no option "ssh_command", which is for ssh:; it has timeout,' \
		"$ISTHMUS" mount -o ssh_command=true "helper:$tmp" "$mnt"
	refused 2 '"local:" has no option "size", which is for mem:; it has hide,' "$ISTHMUS" mount -o size=1M "local:$tmp" "$mnt"
	refused 2 'ssh://[user@]host[:port][/dir]' "$ISTHMUS" mount nowhere://srv/app "$mnt"
	refused 2 'has no option "cache"' "$ISTHMUS" mount -o cache=on mem: "$mnt"
	refused 2 'locks takes "local" or "workspace", not "lokal"' "$ISTHMUS" mount -o locks=lokal "local:$tmp" "$mnt"
	refused 2 'write on, memory, off or strict' "$ISTHMUS" mount -o cache=strct "helper:$tmp" "$mnt"
	refused 2 'option memory="lots" is not a size' "$ISTHMUS" mount -o memory=lots "helper:$tmp" "$mnt"
	refused 2 'no less than 1048576' "$ISTHMUS" mount -o memory=4k "helper:$tmp" "$mnt"
	refused 2 'timeout="0" is not a number of seconds from 1 to 86400' "$ISTHMUS" mount -o timeout=0 ssh://box/x "$mnt"
	refused 2 'linger="x" is not a number' "$ISTHMUS" mount -o linger=x ssh://box/x "$mnt"
	refused 2 'channels="5" is not a number of connections from 1 to 4' "$ISTHMUS" mount -o channels=5 ssh://box/x "$mnt"
	! grep 'id you mean' "$tmp/out" || fail "a word that is right is guessed at"
	refused 2 'did you mean "--timeout"?' "$ISTHMUS" exec "$mnt" --timout 3 -- true
	refused 2 'did you mean "write"?' "$ISTHMUS" log "$mnt" --op read,wrte
	refused 2 'unknown operation "":' "$ISTHMUS" log "$mnt" --op ''
	refused 2 'a bracket in it does not close; write \[' "$ISTHMUS" log "$mnt" --path '['
	refused 2 'a bracket in it does not close; write \[' "$ISTHMUS" log "$mnt" --path 'a/[[:x:]]'
	refused 2 "write \"local:$tmp/ws\"" env -C "$tmp" "$ISTHMUS" mount ws "$mnt"
	refused 2 'write "ssh://box:22/srv"' "$ISTHMUS" mount box:22/srv "$mnt"
	refused 2 'write "ssh://c/srv"' "$ISTHMUS" mount c:/srv "$mnt"
	refused 2 'write "docker://web"' "$ISTHMUS" mount DOCKER://web "$mnt"
	refused 2 'write docker://' "$ISTHMUS" mount docker:web "$mnt"
	refused 2 "the URI comes first: isthmus mount $uri $mnt" "$ISTHMUS" mount "$mnt" "$uri"
}

test_words_of_scp_and_of_bindfs_are_uris() {
	local word ssh="ssh_command=$tmp/no-ssh"

	printf '#!/bin/sh\necho "$*" >>%s/words\nexit 255\n' "$tmp" >"$tmp/no-ssh"
	chmod +x "$tmp/no-ssh"
	while read -r word; do
		: >"$tmp/words"
		refused 5 'on "' "$ISTHMUS" mount -o "$ssh" "${word% *}" "$mnt"
		grep -qF -e "-- ${word#* } exec" "$tmp/words" || fail "$word: $(cat "$tmp/words")"
	done <<-'END'
		box:/srv/app box
		me@box:/srv/app me@box
		box: box
		Box.example.org:src/app Box.example.org
		me@[::1]:/srv me@::1
	END
	refused 5 '"box"' "$ISTHMUS" doctor -o "$ssh" box:~/app
	refused 5 '"box"' "$ISTHMUS" run -o "$ssh" box:/srv -- true
	refused 5 'write local:/srv' "$ISTHMUS" run /srv -- true
	for word in "$ISTHMUS mount" "$ISTHMUS"; do
		$word "$tmp/ws" "$mnt" || fail "$word $tmp/ws"
		"$ISTHMUS" list >"$tmp/out"
		"$ISTHMUS" umount "$mnt"
		grep -q " local:$tmp/ws\$" "$tmp/out" || fail "$word: $(cat "$tmp/out")"
	done
}

# A rule that says less than was meant would allow what it should not.
test_mistyped_permission_rules_are_refused() {
	local rule

	for rule in '{"permisions": []}' '[{"tool": "bash", "patern": "make *", "action": "allow"}]' \
		'[{"tool": "bash", "action": "alow"}]' '[{"tool": "bahs", "action": "deny"}]' '[' '3'; do
		echo "$rule" >"$tmp/rules"
		refused 2 "\"$tmp/rules\" cannot be used" "$ISTHMUS" tool bash --root "$tmp/ws" --policy "$tmp/rules" true
	done
	refused 2 'unknown option "--polcy"' "$ISTHMUS" mcp --polcy x
}

test_a_refused_tool_says_what_to_do() {
	refused 2 'Check the path: list the directory with ls' "$ISTHMUS" tool read --root "$tmp/ws" nowhere
	refused 2 '"action":"allow"}' "$ISTHMUS" tool bash --root "$tmp/ws" 'touch x'
}

test_no_directory_for_runtime_files() {
	refused 2 'runtime files, "/no/such/directory/isthmus": No such file or directory: set XDG_RUNTIME_DIR' \
		env XDG_RUNTIME_DIR=/no/such/directory "$ISTHMUS" mount "$uri" "$mnt"
	chmod 755 "$tmp/ws"
	mkdir -m 755 "$tmp/ws/isthmus"
	refused 2 "runtime files, \"$tmp/ws/isthmus\": it belongs to another user" env XDG_RUNTIME_DIR="$tmp/ws" "$ISTHMUS" mount "$uri" "$mnt"
	env XDG_RUNTIME_DIR="$tmp/ws" "$ISTHMUS" list 2>"$tmp/err"
	grep -qF "runtime files, \"$tmp/ws/isthmus\": it belongs to another user" "$tmp/err"
}

test_no_helper_where_it_was_said_to_be() {
	refused 2 "isthmus-helper is not in \"$tmp/ws\"" "$ISTHMUS" mount -o "helper_dir=$tmp/ws" "helper:$backing" "$mnt"
	refused 5 "isthmus-helper is not in \"$tmp/ws\"" "$ISTHMUS" mount \
		-o "helper_dir=$tmp/ws,ssh_command=sh -c 'exec sh' " "ssh://box$backing" "$mnt"
}

# Names that would clear the screen, turn the text round, hide, or forge a line.
hidden=$'\e[2J\u202e\u200b\u009b'

# clean WHAT FILE: it shows them as bytes.
clean() {
	! LC_ALL=C grep -qE $'\e|\xe2\x80|\xc2\x9b' "$2" || fail "$1 prints them raw: $(od -c "$2")"
	LC_ALL=C grep -qF '\x1b[2J\xe2\x80\xae\xe2\x80\x8b\xc2\x9b' "$2" || fail "$1 does not show them: $(cat "$2")"
}

# says WHAT COMMAND...: whatever comes of it.
says() {
	timeout "$(patient 60)" "${@:2}" >"$tmp/out" 2>&1 </dev/null || true
	clean "$1" "$tmp/out"
}

hidden_characters_in_what_commands_say() {
	local place="$tmp/p$hidden" word

	mkdir "$place" && mkdir "$backing/d$hidden" && echo text >"$backing/f$hidden" || return 1
	says 'a mount of nothing' "$ISTHMUS" mount "local:$tmp/no$hidden" "$mnt" || return 1
	says 'a mount at nothing' "$ISTHMUS" mount "$uri" "$tmp/no$hidden" || return 1
	"$ISTHMUS" mount "$uri" "$place" || return 1
	says 'a second mount' "$ISTHMUS" mount "$uri" "$place" || return 1
	cat "$place/f$hidden" >/dev/null
	says list "$ISTHMUS" list || return 1
	says status "$ISTHMUS" status "$place" || return 1
	says log "$ISTHMUS" log "$place" || return 1
	says exec "$ISTHMUS" exec "$place" -- "no$hidden" || return 1
	says 'exec elsewhere' "$ISTHMUS" exec "$tmp/no$hidden" -- true || return 1
	says 'umount of nothing' "$ISTHMUS" umount "$tmp/no$hidden" || return 1
	for word in log status; do
		says "$word of nothing" "$ISTHMUS" "$word" "$tmp/no$hidden" || return 1
	done
	says 'a command' "$ISTHMUS" "no$hidden" || return 1
	says 'an option' "$ISTHMUS" umount "--no$hidden" || return 1
	for word in ls 'find --pattern=*' 'glob --pattern=*' 'grep text'; do
		# shellcheck disable=SC2086 # words
		says "$word" env -C "$place" "$ISTHMUS" tool $word || return 1
	done
	says 'a tool that fails' "$ISTHMUS" tool read --root "$place" "no$hidden" || return 1
	"$ISTHMUS" umount "$tmp/no"$'\n''isthmus: all is well' >"$tmp/out" 2>&1
	! grep -q '^isthmus: all' "$tmp/out" || fail "a name forges a line: $(cat "$tmp/out")"
}

test_no_command_prints_hidden_characters() {
	local failed=0

	hidden_characters_in_what_commands_say || failed=1
	! grep -qF "$tmp/p" /proc/self/mounts || "$ISTHMUS" umount "$tmp/p$hidden" || failed=1
	return "$failed"
}

test_unknown_command() {
	refused 2 "frobnicate" "$ISTHMUS" frobnicate
	refused 2 "'isthmus help' lists them" "$ISTHMUS" help frobnicate
	refused 2 'did you mean "mount"?' "$ISTHMUS" help mont
	refused 2 "usage" "$ISTHMUS"
}

test_too_few_arguments() {
	refused 2 "mount" "$ISTHMUS" mount
	refused 2 "mount" "$ISTHMUS" mount "$uri"
	refused 2 "umount" "$ISTHMUS" umount
	refused 2 "exec" "$ISTHMUS" exec
}

test_umount_of_what_is_no_mount() {
	refused 2 "$mnt" "$ISTHMUS" umount "$mnt"
	refused 2 "$tmp/nowhere" "$ISTHMUS" umount "$tmp/nowhere"
}

test_status_log_and_exec_of_what_is_no_mount() {
	refused 2 "$tmp" "$ISTHMUS" status "$tmp"
	refused 2 "$tmp" "$ISTHMUS" log "$tmp"
	refused 2 "$tmp" "$ISTHMUS" exec "$tmp" -- true
	refused 2 "nowhere" "$ISTHMUS" status "$tmp/nowhere"
}

test_umount_says_which_mount_was_meant() {
	"$ISTHMUS" mount "$uri" "$mnt"
	mkdir -p "$mnt/dir"
	! "$ISTHMUS" umount "$mnt/dir" 2>"$tmp/out" || fail "unmounted a directory"
	grep -qF "it lies on the mount \"$mnt\"" "$tmp/out" || fail "$(cat "$tmp/out")"
	"$ISTHMUS" mount mem: "$mnt/dir"
	! "$ISTHMUS" umount "$mnt" 2>"$tmp/out" || fail "unmounted below a mount"
	grep -qF "\"$mnt/dir\" is mounted below it" "$tmp/out" || fail "$(cat "$tmp/out")"
	"$ISTHMUS" umount "$mnt/dir"
	"$ISTHMUS" umount "$mnt"
}

test_a_mount_without_the_right_says_which() {
	[ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || skip "needs root and setpriv"
	refused 5 CAP_SYS_ADMIN setpriv --bounding-set -sys_admin --inh-caps -sys_admin "$ISTHMUS" mount "$uri" "$mnt"
	refused 5 '--cap-add SYS_ADMIN' setpriv --bounding-set -sys_admin --inh-caps -sys_admin "$ISTHMUS" doctor
}

test_ssh_host_that_does_not_resolve() {
	need ssh
	refused 15 "no-such-host.invalid" "$ISTHMUS" mount ssh://no-such-host.invalid/x "$mnt"
}

test_ssh_port_where_nobody_listens() {
	need ssh
	refused 15 "refused" "$ISTHMUS" mount ssh://127.0.0.1:1/x "$mnt"
}

test_ssh_host_that_hangs() {
	need ssh
	# A listener that accepts and never says a word.
	python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); time.sleep(60)' >"$tmp/port" &
	local hanging=$!
	wait_for 5 test -s "$tmp/port"
	refused 17 "127.0.0.1" "$ISTHMUS" mount "ssh://127.0.0.1:$(cat "$tmp/port")/x" "$mnt"
	kill "$hanging"
}

test_ssh_that_talks_garbage() {
	local noise

	for noise in 'head -c 3000000 /dev/urandom' 'yes hello' 'echo bye' 'cat /dev/zero' 'true' 'false'; do
		printf '#!/bin/sh\n%s\n' "$noise" >"$tmp/fake-ssh"
		chmod +x "$tmp/fake-ssh"
		refused 17 "" "$ISTHMUS" mount -o "ssh_command=$tmp/fake-ssh" ssh://box/x "$mnt"
	done
}

# A script for cmd:, which leaves its pid, and nothing of it may stay.
command_refused() {
	printf '#!/bin/sh\necho $$ >>"%s"\n%s\n' "$tmp/pids" "$1" >"$tmp/command"
	chmod +x "$tmp/command"
	refused 15 "$2" "$ISTHMUS" mount "cmd:$tmp/command !/" "$mnt"
	grep -qF "cannot reach the workspace on \"$tmp/command\"" "$tmp/out" || fail "it says: $(cat "$tmp/out")"
	wait_for 5 eval '! xargs ps -p <"$tmp/pids"' || fail "it runs still: $1"
}

test_a_command_that_is_no_shell() {
	local script='must give a shell that reads its input'

	command_refused 'exit 0' "$script"
	command_refused 'echo no such place >&2; exit 3' 'no such place'
	command_refused 'echo welcome; exit 1' '(it said first: "welcome")'
	command_refused 'exec yes' "$script"
	command_refused 'exec sleep 98761' "$script"
	# It finds the helper, and then says nothing: one bound for both.
	command_refused 'sed -un "/isthmus-[0-9a-f]\{32\}/{s/.*\(isthmus-[0-9a-f]*\).*/\1 have/p;q}"; exec sleep 98763' "$script"
}

test_a_command_that_asks_for_a_password() {
	local advice='nobody can be asked for a password: let the command get in without one'

	command_refused 'printf "Password: " >&2; read -r answer; exit 1' "$advice"
	command_refused 'printf "Password: "; exec sleep 98762' "$advice"
	command_refused "printf \"Enter passphrase for key 'id': \" >&2; exit 1" 'load the key into the agent'
}

# As a terminal that echoes, or an interpreter of another language: no page of ours.
test_what_comes_back_is_cut() {
	command_refused 'read -r line; echo "$line" >&2; exec head -c 3000 /dev/zero | tr "\0" x >&2' '...'
	[ "$(wc -c <"$tmp/out")" -lt 1500 ] || fail "it says: $(cat "$tmp/out")"
}

test_an_engine_that_does_not_answer() {
	need docker
	accept_silently "$tmp/engine.sock"
	local hanging=$!
	export DOCKER_HOST=unix://$tmp/engine.sock DOCKER_CONFIG=$tmp/engine
	refused 15 "the engine must answer ('docker ps')" "$ISTHMUS" mount docker://web/srv "$mnt"
	refused 15 "'docker ps' must show them" "$ISTHMUS" mount 'docker://web/srv?compose=shop' "$mnt"
	kill "$hanging"
	DOCKER_HOST=ssh://nobody@127.0.0.1:1 refused 15 'where DOCKER_HOST or -o context leads' "$ISTHMUS" mount docker://web/srv "$mnt"
	wait_for 5 eval '! pgrep -f "^docker .*web"' || fail "left $(pgrep -af '^docker .*web')"
}

# As an ordinary user, whom doctor tells the same as mount would where /dev/fuse is for all.
test_sockets_of_another_user() {
	local engine user=(setpriv --reuid 65534 --regid 65534 --clear-groups env "HOME=$tmp/nobody" "XDG_RUNTIME_DIR=$tmp/nobody"
		"XDG_STATE_HOME=$tmp/nobody" "XDG_CACHE_HOME=$tmp/nobody" "DOCKER_CONFIG=$tmp/nobody")

	[ "$(id -u)" = 0 ] || skip "needs root"
	chmod 711 "$tmp"
	"${user[@]}" "$ISTHMUS" --version >/dev/null 2>&1 || skip "nobody cannot run $ISTHMUS"
	mkdir -m 700 "$tmp/nobody" && chown 65534 "$tmp/nobody"
	python3 -c '
import os, socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o600)
server.listen()
time.sleep(60)' "$tmp/roots.sock" &
	local server=$!
	wait_for 10 test -S "$tmp/roots.sock"
	refused 15 "mount as that user" "${user[@]}" "$ISTHMUS" doctor "vm:unix:$tmp/roots.sock!/ws"
	for engine in docker podman; do
		command -v "$engine" >/dev/null || continue
		refused 15 "the engine's socket is" "${user[@]}" "DOCKER_HOST=unix://$tmp/roots.sock" \
			"CONTAINER_HOST=unix://$tmp/roots.sock" "$ISTHMUS" doctor "$engine://web/srv"
		! grep -qF '\x0a' "$tmp/out" || fail "line ends of $engine: $(cat "$tmp/out")"
	done
	kill "$server"
}

test_an_ssh_command_that_is_not_there() {
	refused 5 "/no/such/ssh" "$ISTHMUS" mount -o ssh_command=/no/such/ssh ssh://box/x "$mnt"
	grep -q 'correct the option ssh_command$' "$tmp/out" || fail "it says: $(cat "$tmp/out")"
	refused 5 "install it" env PATH="${ISTHMUS%/*}" "$ISTHMUS" mount ssh://box/x "$mnt"
}

# observe_ssh: $tmp/ssh-command tells $tmp/calls of its arguments.
observe_ssh() {
	start_sshd
	cat >"$tmp/ssh-command" <<-END
		#!/bin/sh
		echo "\$*" >>"$tmp/calls"
		exec ssh -F "$tmp/ssh/ssh_config" "\$@"
	END
	chmod +x "$tmp/ssh-command"
}

called_again() {
	[ "$(wc -l <"$tmp/calls")" -ge 2 ]
}

test_an_ssh_that_may_ask_does_so_once() {
	need ssh script
	observe_ssh
	script -qc "'$ISTHMUS' mount -o 'ssh_command=$tmp/ssh-command' -o linger=1 'ssh://box$backing' '$mnt'" /dev/null >"$tmp/out" </dev/null ||
		fail "no mount: $(cat "$tmp/out")"
	sleep 0.5
	expect 1 "$(wc -l <"$tmp/calls")" "connections once the terminal is gone"
	! grep -q BatchMode "$tmp/calls" || fail "it could not ask: $(cat "$tmp/calls")"
	pkill -KILL -P "$(pgrep -f "^$ISTHMUS mount .*$mnt\$")"
	wait_for 10 called_again || fail "not connected again"
	tail -n +2 "$tmp/calls" | grep -q -- -oBatchMode=yes || fail "it might ask again: $(cat "$tmp/calls")"
	"$ISTHMUS" umount "$mnt"
	stop_sshd
	rm -rf "$tmp/ssh" "$tmp/far"
}

# ... and how else could the far end of ssh:// be this machine.
test_mount_point_inside_the_workspace_by_ssh() {
	start_sshd
	mkdir -p "$backing/inside" "$tmp/away"
	refused 15 "inside" "$ISTHMUS" mount -o "ssh_command=ssh -F $tmp/ssh/ssh_config" "ssh://box$backing" "$backing/inside"
	expect "" "$(ls -A "$backing/inside")" "what the attempt leaves"
	"$ISTHMUS" mount -o "ssh_command=ssh -F $tmp/ssh/ssh_config" -o linger=1 "ssh://box$backing" "$tmp/away"
	"$ISTHMUS" umount "$tmp/away"
	stop_sshd
	rm -rf "$tmp/ssh" "$tmp/far"
}

test_a_refused_key_is_reported_in_the_words_of_ssh() {
	start_sshd
	: >"$tmp/ssh/authorized_keys"
	refused 15 "Permission denied" "$ISTHMUS" mount -o "ssh_command=ssh -F $tmp/ssh/ssh_config" "ssh://box$backing" "$mnt"
	stop_sshd
}

test_a_changed_host_key_is_reported_in_the_words_of_ssh() {
	rm -rf "$tmp/ssh" "$tmp/far"
	start_sshd
	ssh-keygen -q -t ed25519 -N '' -f "$tmp/ssh/other"
	echo "$(cut -d' ' -f1 "$tmp/ssh/known_hosts") $(cut -d' ' -f1,2 "$tmp/ssh/other.pub")" >"$tmp/ssh/known_hosts.new"
	mv "$tmp/ssh/known_hosts.new" "$tmp/ssh/known_hosts"
	refused 15 "ost key verification failed" "$ISTHMUS" mount -o "ssh_command=ssh -F $tmp/ssh/ssh_config" "ssh://box$backing" "$mnt"
	stop_sshd
}

test_no_dev_fuse_says_what_to_do() {
	[ "$(id -u)" = 0 ] || skip "needs root to hide /dev/fuse"
	refused 5 "/dev/fuse" "$(dirname "$0")/own_mounts.sh" sh -c '
		mount -t tmpfs none /dev && exec "$1" mount "$2" "$3"' - "$ISTHMUS" "$uri" "$mnt"
}

test_doctor_runs_anywhere() {
	local code=0

	timeout "$(patient 15)" "$ISTHMUS" doctor >"$tmp/out" 2>&1 || code=$?
	[ "$code" -le 1 ] || fail "exit code $code"
	grep -q '/dev/fuse' "$tmp/out" || fail "$(cat "$tmp/out")"
}

test_help_and_version_go_to_stdout() {
	"$ISTHMUS" help | grep -q mount
	"$ISTHMUS" --help | grep -q mount
	"$ISTHMUS" mount --help | grep -q URI
	"$ISTHMUS" version | grep -qE '[0-9]+\.[0-9]+'
}

run_tests_unmounted "$1"
