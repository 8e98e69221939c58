#!/bin/bash
# Containers, by a real engine of our own: podman or docker.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/mounted/containers_lib.sh
. "$(dirname "$0")/containers_lib.sh"

# ours NAME: processes of isthmus in the container, zombies ("[isthmus-helper-]") included: sleep(1), its
# first process, reaps nobody.
ours() {
	"$engine" exec "$1" ps 2>/dev/null | grep 'isthmus'
}

nothing_of_ours() {
	! ours "$1"
}

files_of_ours() {
	"$engine" exec "$1" find / -xdev -name '*isthmus-*' 2>/dev/null | sort | tr '\n' ' '
}

# refused TEXT URI [option...]: the mount fails within 15 s with a sentence that has TEXT.
refused() {
	local text=$1 started=$SECONDS code=0

	timeout -k 5 40 "$ISTHMUS" mount "${@:3}" "$2" "$mnt" >"$tmp/out" 2>&1 </dev/null || code=$?
	[ "$code" = 1 ] || [ "$code" = 2 ] || fail "$2: ended with $code: $(cat "$tmp/out")"
	[ $((SECONDS - started)) -le 15 ] || fail "$2: took $((SECONDS - started)) s"
	grep -qF -- "$text" "$tmp/out" || fail "$2: '$text' is not in: $(cat "$tmp/out")"
	! is_mounted || fail "$2: left a mount"
}

test_the_image_decides_about_directory_and_user() {
	uri=$engine://plain
	run_box plain box -u app -w /home/app -e FROM_ENGINE=given
	start_daemon
	"$engine" exec plain sh -c 'echo there >/home/app/there'
	expect there "$(cat "$mnt/there")"
	echo here >"$mnt/here"
	expect 'here 1000' "$("$engine" exec plain sh -c 'echo $(cat /home/app/here) $(stat -c %u /home/app/here)')"
	expect "/home/app 1000 given" "$("$ISTHMUS" exec "$mnt" -- sh -c 'echo $PWD $(id -u) $FROM_ENGINE')" "what a command sees"
	stop_daemon
	wait_for 10 nothing_of_ours plain || fail "left $(ours plain)"
	! "$engine" exec plain ps | grep isthmus || fail "a proper end leaves a zombie"
	expect 1 "$(files_of_ours plain | wc -w)" "files left: the helper"
}

test_a_user_and_a_directory_can_be_named() {
	uri=$engine://app@named/tmp/work
	run_box named box
	"$engine" exec -u app named mkdir /tmp/work
	start_daemon
	echo here >"$mnt/here"
	expect 1000 "$("$engine" exec named stat -c %u /tmp/work/here)" "owner of a new file"
	stop_daemon
}

test_keep_no_leaves_nothing() {
	uri="$engine://clean?keep=no"
	run_box clean box
	start_daemon
	echo here >"$mnt/here"
	expect '' "$(files_of_ours clean)" "files while it is mounted"
	stop_daemon
	wait_for 10 nothing_of_ours clean || fail "left $(ours clean)"
	expect '' "$(files_of_ours clean)" "files left"
}

test_an_image_without_a_shell() {
	uri=$engine://bare
	run_box bare bare
	start_daemon
	printf '\0\1\377' >"$mnt/bytes"
	expect "00 01 ff" "$(od -An -tx1 "$mnt/bytes" | xargs)"
	mkdir "$mnt/dir"
	expect "bytes dir" "$(cd "$mnt" && echo *)"
	stop_daemon
	uri="$engine://bare?keep=no"
	start_daemon
	expect "bytes dir" "$(cd "$mnt" && echo *)"
	stop_daemon
	! "$engine" cp "bare:/tmp/." - | tar -t | grep isthmus || fail "the helper is left"
}

test_directories_that_cannot_hold_the_helper() {
	# A home and a /tmp that let nothing run; a volume does.
	local only=(--read-only)

	[ "$engine" = docker ] || only+=(--read-only-tmpfs=false)
	run_box narrow box "${only[@]}" --tmpfs /tmp:rw,noexec --tmpfs /data:rw,exec --tmpfs /dev/shm:rw,noexec
	uri=$engine://narrow/data
	start_daemon
	echo here >"$mnt/here"
	expect here "$("$engine" exec narrow cat /data/here)"
	"$engine" exec narrow ls /data | grep -q '^isthmus-0$' || fail "the helper is not in the volume"
	stop_daemon
	run_box shut box "${only[@]}" --tmpfs /tmp:rw,noexec --tmpfs /dev/shm:rw,noexec
	refused "a directory of it must be writable and let programs run" "$engine://shut/work"
	grep -qE '/tmp[:/]' "$tmp/out" || fail "the reasons are missing: $(cat "$tmp/out")"
	! grep -q "no shell" "$tmp/out" || fail "it has a shell: $(cat "$tmp/out")"
	nothing_of_ours shut || fail "left $(ours shut)"
	! "$engine" exec shut ls /tmp /dev/shm | grep isthmus || fail "left these files"
	run_box shutbare bare "${only[@]}" --tmpfs /dev/shm:rw,noexec
	refused "there is no shell, and isthmus-helper cannot be put there" "$engine://shutbare/app"
}

test_bad_input_is_answered_with_a_remedy() {
	run_box down box
	"$engine" kill down >/dev/null
	refused "start it with '$engine start down'" "$engine://down/work"
	expect false "$("$engine" inspect -f '{{.State.Running}}' down)" "a stopped container is never started"
	refused "'$engine ps -a' shows the names" "$engine://nosuch/work"
	run_box still box
	"$engine" pause still >/dev/null
	refused "$engine unpause still" "$engine://still/work"
	"$engine" unpause still >/dev/null
	refused "no such user in the container" "$engine://nobodyhere@still/work"
	refused "cannot open the directory \"/nowhere\"" "$engine://still/nowhere"
	refused "is not the name of a container" "$engine://--rm/work"
	refused "is not the name of a user" "$engine://-u@still/work"
	refused 'no option "contxt"' "$engine://still/work?contxt=x"
	refused "no name is given" "$engine:///work"
	nothing_of_ours still || fail "left $(ours still)"
}

test_an_id_that_fits_several() {
	local id first seen=' '

	for ((i = 0; i < 17; i++)); do
		run_box "twin$i" box
		id=$("$engine" inspect -f '{{.Id}}' "twin$i")
		first=${id:0:1}
		[[ $seen != *" $first "* ]] || break
		seen+="$first "
	done
	refused "write more of the id" "$engine://$first/work"
	"$engine" ps -q | xargs "$engine" kill >/dev/null
}

test_an_engine_out_of_reach() {
	if [ "$engine" = docker ]; then
		DOCKER_HOST=unix://$tmp/nosocket refused "DOCKER_HOST" docker://any/work
		refused "docker context ls" "docker://any/work?context=nosuch"
		chmod 600 "$tmp/engine/docker.sock"
		chmod 711 "$tmp"
		mkdir -m 700 "$tmp/user" "$tmp/user/run" && mkdir "$tmp/user/mnt"
		chown -R 65534 "$tmp/user"
		setpriv --reuid 65534 --clear-groups env HOME="$tmp/user" XDG_RUNTIME_DIR="$tmp/user/run" \
			XDG_STATE_HOME="$tmp/user" DOCKER_CONFIG="$tmp/user" \
			"$ISTHMUS" mount docker://any/work "$tmp/user/mnt" >"$tmp/out" 2>&1 && fail "mounted without rights"
		grep -q 'group docker\|/dev/fuse' "$tmp/out" || fail "$(cat "$tmp/out")"
	else
		refused "podman system connection list" "podman://any/work?connection=nosuch"
	fi
	PATH=$tmp/empty "$ISTHMUS" mount "$engine://any/work" "$mnt" >"$tmp/out" 2>&1 && fail "mounted without $engine"
	grep -q "cannot run \"$engine\".*; install" "$tmp/out" || fail "$(cat "$tmp/out")"
}

test_a_restarting_container() {
	# Where it is not running at the moment podman says so; docker says that it is restarting.
	"$engine" run -d --name again --restart always --network none localhost/isthmus-test-box:1 false >/dev/null 2>&1 || true
	wait_for 10 "$engine" inspect again || fail "not made"
	refused again "$engine://again/work"
	wait_for 10 remove_box again || fail "still there" # podman refuses while it is being started
}

# finds FINDING TEXT: the doctor's lines about a container have it.
finds() {
	grep -E "^$1 " "$tmp/doctor" | grep -qF -- "$2" || fail "no $1 '$2' in: $(cat "$tmp/doctor")"
}

test_doctor_says_what_a_container_is_like() {
	run_box sick box
	run_box sickbare bare
	"$ISTHMUS" doctor "$engine://app@sick/work?keep=no" >"$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	finds ok 'uid 1000, HOME='
	finds ok 'sh, but no bash'
	finds warning '/work cannot be written: Permission denied'
	! "$engine" exec sick grep -q '^overlay / ' /proc/mounts || finds warning 'overlay: files belong to the container'
	grep -qE 'user namespaces (are refused|can be made)' "$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	"$ISTHMUS" doctor "$engine://sickbare/app" >"$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	finds warning 'none: exec can run programs but no command lines'
	wait_for 10 nothing_of_ours sick || fail "left $(ours sick)"
	expect '' "$(files_of_ours sick)" "files left"
	! "$ISTHMUS" doctor "$engine://nosuch/work" >"$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	finds fault "'$engine ps -a' shows the names"
	! "$ISTHMUS" doctor "$engine://sick/nowhere" >"$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	finds fault 'cannot open the directory "/nowhere"'
}

test_a_service_of_compose_is_found_by_its_labels() {
	local label=com.docker.compose

	run_box one box --label $label.project=shop --label $label.service=web
	run_box two box --label $label.project=shop --label $label.service=db
	run_box three box --label $label.project=shop --label $label.service=db
	uri="$engine://web/work?compose=shop"
	start_daemon
	echo here >"$mnt/here"
	expect here "$("$engine" exec one cat /work/here)"
	stop_daemon
	refused "has several containers" "$engine://db/work?compose=shop"
	refused "has no running container" "$engine://mail/work?compose=shop"
}

test_a_dead_client_leaves_nothing() {
	uri=$engine://gone
	run_box gone box
	start_daemon -o linger=1
	"$ISTHMUS" exec "$mnt" -- sh -c 'sleep 1234 & sleep 1234' &
	wait_for 10 eval '[ "$("$engine" exec gone ps | grep -c "[s]leep 1234")" -ge 2 ]' || fail "the command does not run"
	kill -KILL "$daemon_pid"
	wait "$daemon_pid" || true
	daemon_pid=
	umount -l "$mnt"
	wait_for 20 eval 'nothing_of_ours gone && ! "$engine" exec gone ps | grep -q "[s]leep 1234"' ||
		fail "left $("$engine" exec gone ps)"
}

# CONTAINER PATTERN: the process of the daemon whose command line matches is killed under an open file.
a_killed_connection_is_made_anew() {
	exec 5>"$mnt/open"
	echo one >&5
	pkill -KILL -P "$daemon_pid" -f "$2" || fail "no process \"$2\" below $daemon_pid"
	echo two >&5
	exec 5>&-
	expect "one two" "$("$engine" exec "$1" cat /work/open | xargs)"
	stop_daemon
	wait_for 10 nothing_of_ours "$1" || fail "left $(ours "$1")"
}

test_a_killed_exec_of_the_engine_is_made_anew() {
	uri=$engine://again2
	run_box again2 box
	start_daemon -o linger=30
	a_killed_connection_is_made_anew again2 "^$engine exec"
}

test_kill_reaches_the_tree() {
	uri=$engine://tree
	run_box tree box
	start_daemon
	! "$ISTHMUS" exec "$mnt" --timeout 0.5 -- sh -c 'sleep 1235 & (sleep 1235; :) & wait' || fail "no time-out"
	wait_for 10 eval '! "$engine" exec tree ps | grep -q "[s]leep 1235"' || fail "left $("$engine" exec tree ps)"
	stop_daemon
}

# begins_anew NAME: a crash, and another life of the same container.
begins_anew() {
	"$engine" kill "$1" >/dev/null 5>&- 6>&-
	"$engine" start "$1" >/dev/null 5>&- 6>&-
}

replaced_is_told() {
	wait_for 20 eval '"$ISTHMUS" status "$mnt" | grep -q "workspace replaced"' ||
		fail "status says $("$ISTHMUS" status "$mnt")"
	"$ISTHMUS" log "$mnt" --op connection | grep -q 'workspace replaced' || fail "the log does not say it"
}

# What was open is lost; all else goes on with the new one.
handles_are_stale() {
	begins_anew "$1"
	replaced_is_told
	! { echo two >&5; } 2>"$tmp/err" || fail "a write to what was open before succeeds"
	grep -q 'Stale file handle' "$tmp/err" || fail "$(cat "$tmp/err")"
	exec 5>&-
	expect one "$(cat "$mnt/open")"
	echo three >"$mnt/after"
	expect three "$("$engine" exec "$1" cat /work/after)"
}

test_a_restarted_container_is_another_place() {
	uri=$engine://life
	run_box life box
	start_daemon -o timeout=20
	echo one >"$mnt/open"
	exec 5>>"$mnt/open"
	handles_are_stale life
	stop_daemon
	# Told by the helper alone: the engine is not known.
	uri="cmd:$engine exec -i -w /work life !"
	start_daemon -o timeout=20
	exec 5>>"$mnt/open"
	handles_are_stale life
	stop_daemon
}

test_another_container_of_the_name() {
	uri=$engine://heir
	run_box heir box
	start_daemon -o timeout=30
	mkdir "$mnt/dir"
	echo one | tee "$mnt/file" "$mnt/dir/file" >/dev/null
	cat "$mnt/file" "$mnt/dir/file" >/dev/null
	remove_box heir
	run_box heir box
	"$engine" exec heir sh -c 'echo two >/work/file'
	# Until the link is known to be lost, what is cached counts.
	replaced_is_told
	expect two "$(cat "$mnt/file")"
	expect file "$(cd "$mnt" && echo *)" "what is there"
	! cat "$mnt/dir/file" 2>/dev/null || fail "a file of the one before is there"
	stop_daemon
}

test_a_command_says_that_its_container_was_removed() {
	local code=0 reason="o such container.*'$engine ps -a' shows the names" pid

	uri=$engine://removed
	run_box removed box
	start_daemon -o timeout=15
	remove_box removed
	"$ISTHMUS" exec "$mnt" -- true 2>"$tmp/err" &
	pid=$!
	wait_for 8 grep -q "still waiting.*$reason" "$tmp/err" || fail "no word of it: $(cat "$tmp/err")"
	kill -0 "$pid" || fail "it does not wait for another one of the name"
	wait "$pid" || code=$?
	expect 125 "$code" "exit code"
	tail -n 1 "$tmp/err" | grep -q "out of reach: .*$reason" || fail "no reason: $(cat "$tmp/err")"
	stop_daemon
}

# make_slow_engine: $tmp/slow has an engine whose exec waits while there is a file "hold".
make_slow_engine() {
	rm -f "$tmp/hold" "$tmp/held"
	mkdir -p "$tmp/slow"
	cat >"$tmp/slow/$engine" <<-END
		#!/bin/sh
		case "\$*" in "exec -i"*) while [ -e "$tmp/hold" ]; do touch "$tmp/held"; sleep 0.05; done ;; esac
		exec "$(command -v "$engine")" "\$@"
	END
	chmod +x "$tmp/slow/$engine"
}

# writer: writes a line that is acknowledged, another one once told so, and then says what fsync,
# close and another write come to.
writer() {
	python3 -c '
import errno, os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
def outcome(call, *arguments):
    try:
        call(*arguments)
        return "0"
    except OSError as error:
        return errno.errorcode[error.errno]
def wait_for(name):
    while not os.path.exists(sys.argv[2] + name):
        time.sleep(0.02)
os.write(file, b"kept\n")
os.fsync(file)
print("kept", flush=True)
wait_for("write")
print(outcome(os.write, file, b"lost\n"), flush=True)
wait_for("end")
print(outcome(os.fsync, file), outcome(os.write, file, b"more\n"), flush=True)
print(outcome(os.close, file))' "$mnt/written" "$tmp/writer." >"$tmp/writer.out" 2>&1 &
	writer_pid=$!
}

test_what_was_not_acknowledged_is_named_as_lost() {
	local what='not acknowledged and lost: what was written to "written"'

	uri=$engine://lost
	run_box lost box
	make_slow_engine
	PATH=$tmp/slow:$PATH start_daemon -o timeout=60
	rm -f "$tmp"/writer.*
	writer
	wait_for 10 grep -qx kept "$tmp/writer.out" || fail "$(cat "$tmp/writer.out")"
	touch "$tmp/hold"
	pkill -STOP -P "$daemon_pid" -f "$engine exec -i lost" || fail "no exec of $engine below $daemon_pid"
	touch "$tmp/writer.write"
	wait_for 10 grep -qx 0 "$tmp/writer.out" || fail "a write waits for its acknowledgement: $(cat "$tmp/writer.out")"
	remove_box lost
	run_box lost box
	rm "$tmp/hold"
	pkill -KILL -P "$daemon_pid" -f "$engine exec -i lost" || true
	replaced_is_told
	"$ISTHMUS" status "$mnt" | grep -qF "$what" || fail "status says $("$ISTHMUS" status "$mnt")"
	"$ISTHMUS" log "$mnt" --op connection | grep -qF "$what" || fail "the log says $("$ISTHMUS" log "$mnt" --op connection)"
	touch "$tmp/writer.end"
	wait "$writer_pid"
	expect "kept 0 EIO ESTALE 0" "$(xargs <"$tmp/writer.out")" "acknowledged, then fsync, write and close"
	[ ! -e "$mnt/written" ] || fail "it is there"
	stop_daemon
}

test_restart_stop_does_not_follow() {
	uri="$engine://stay/work?restart=stop"
	run_box stay box
	start_daemon -o timeout=20
	echo one >"$mnt/file"
	begins_anew stay
	wait_for 20 eval '"$ISTHMUS" status "$mnt" | grep -q "restart=stop does not follow"' ||
		fail "status says $("$ISTHMUS" status "$mnt")"
	! echo two >"$mnt/other" 2>/dev/null || fail "it works on"
	"$ISTHMUS" status "$mnt" | grep -q '^link *offline' || fail "status says $("$ISTHMUS" status "$mnt")"
	wait_for 10 nothing_of_ours stay || fail "left $(ours stay)"
	stop_daemon
}

# The engine is asked once the stream is there: what it says before is about the container that ended.
test_a_restart_while_it_connects_is_noticed() {
	uri="$engine://swift/work?restart=stop"
	run_box swift box
	make_slow_engine
	PATH=$tmp/slow:$PATH start_daemon -o timeout=20
	touch "$tmp/hold"
	"$engine" kill swift >/dev/null
	wait_for 20 test -e "$tmp/held" || fail "it does not connect again"
	sleep 0.3
	"$engine" start swift >/dev/null
	rm "$tmp/hold"
	wait_for 20 eval '"$ISTHMUS" status "$mnt" | grep -q "restart=stop does not follow"' ||
		fail "status says $("$ISTHMUS" status "$mnt")"
	stop_daemon
}

# A machine with sshd, and containers at it: this one.  The engine there is ours.
start_sshd_with_engine() {
	local name settings="HOME=$tmp/far XDG_CACHE_HOME=$tmp/far/cache XDG_RUNTIME_DIR=$tmp/far PATH=$tmp/there:$PATH"

	[ ! -e "$tmp/ssh/ssh_config" ] || return 0
	mkdir -p "$tmp/far" "$tmp/there"
	for name in CONTAINERS_CONF CONTAINERS_STORAGE_CONF DOCKER_HOST DOCKER_CONFIG; do
		[ -z "${!name:-}" ] || settings+=" $name=${!name}"
	done
	"$sshd_script" start "$tmp/ssh" "SetEnv $settings" || skip "no sshd"
}

test_a_container_at_an_ssh_host() {
	local ssh

	start_sshd_with_engine
	ssh=(-o "ssh_command=ssh -F $tmp/ssh/ssh_config")
	run_box inner box
	"$engine" exec inner sh -c 'mkdir /work/dir && echo there >/work/dir/there'
	uri="ssh://box/work/dir?inside=$engine:inner"
	start_daemon "${ssh[@]}"
	expect there "$(cat "$mnt/there")"
	expect "/bin/sleep 1000000 " "$("$ISTHMUS" exec "$mnt" -- sh -c 'tr "\0" " " </proc/1/cmdline')" "where a command runs"
	rm "$mnt/there"
	operations
	stop_daemon
	wait_for 10 nothing_of_ours inner || fail "left $(ours inner)"
	# Without a directory, the image's; a user; and as an option of the mount.
	"$engine" exec inner chmod 777 /work
	uri=ssh://box
	start_daemon "${ssh[@]}" -o "inside=$engine:app@inner"
	echo here >"$mnt/here"
	expect 1000 "$("$engine" exec inner stat -c %u /work/here)" "owner of a new file"
	begins_anew inner
	replaced_is_told
	expect here "$(cat "$mnt/here")"
	stop_daemon
	"$ISTHMUS" doctor "$uri" "${ssh[@]}" -o "inside=$engine:inner" >"$tmp/doctor" || fail "$(cat "$tmp/doctor")"
	finds ok 'sh, but no bash'
}

test_a_container_at_an_ssh_host_outlives_the_link_but_not_the_mount() {
	start_sshd_with_engine
	run_box inner3 box
	uri="ssh://box/work?inside=$engine:inner3"
	start_daemon -o "ssh_command=ssh -F $tmp/ssh/ssh_config" -o linger=30
	a_killed_connection_is_made_anew inner3 '^ssh '
	start_daemon -o "ssh_command=ssh -F $tmp/ssh/ssh_config" -o linger=1
	kill -KILL "$daemon_pid"
	wait "$daemon_pid" || true
	daemon_pid=
	umount -l "$mnt"
	wait_for 20 nothing_of_ours inner3 || fail "left $(ours inner3)"
	wait_for 10 eval '! pgrep -f "^$engine exec -i inner3"' || fail "left $(pgrep -af "^$engine exec -i inner3")"
}

test_a_container_at_an_ssh_host_that_cannot_be_reached() {
	local ssh

	start_sshd_with_engine
	ssh=(-o "ssh_command=ssh -F $tmp/ssh/ssh_config")
	run_box down2 box
	run_box bare2 bare
	run_box inner2 box
	"$engine" kill down2 >/dev/null
	refused "start it with '$engine start down2'" "ssh://box/work?inside=$engine:down2" "${ssh[@]}"
	grep -qF "\"$engine:down2 at box\"" "$tmp/out" || fail "$(cat "$tmp/out")"
	refused "'$engine ps -a' shows the names" "ssh://box/work?inside=$engine:nosuch" "${ssh[@]}"
	refused "its image has no shell" "ssh://box/app?inside=$engine:bare2" "${ssh[@]}"
	refused 'cannot open the directory "/nowhere"' "ssh://box/nowhere?inside=$engine:inner2" "${ssh[@]}"
	refused 'write inside=docker:' "ssh://box/work?inside=inner" "${ssh[@]}"
	refused 'write inside=docker:' "ssh://box/work?inside=lxd:inner" "${ssh[@]}"
	refused 'write inside=docker:' "ssh://box?inside=$engine:inner/work" "${ssh[@]}"
	refused 'is not the name of a container' "ssh://box/work?inside=$engine:--rm" "${ssh[@]}"
	refused 'is not the name of a user' "ssh://box/work?inside=$engine:-u@inner" "${ssh[@]}"
	refused 'no option "insid"' "ssh://box/work?insid=x" "${ssh[@]}"
	printf '#!/bin/sh\necho "sh: 1: exec: %s: not found" >&2\nexit 127\n' "$engine" >"$tmp/there/$engine"
	chmod +x "$tmp/there/$engine"
	refused "install " "ssh://box/work?inside=$engine:inner2" "${ssh[@]}"
	rm "$tmp/there/$engine"
}

# A command of that name at the machine, the second word of which is the container.
play() {
	cat >"$tmp/there/$1" <<-END
		#!/bin/sh
		echo "\$*" >>"$tmp/$1.calls"
		name=\$2
		while [ "\$1" != -- ]; do shift; done
		shift
		exec "$engine" exec -i "\$name" "\$@"
	END
	chmod +x "$tmp/there/$1"
}

test_other_ends_at_an_ssh_host() {
	# shellcheck disable=SC2016
	local boot='-- sh -c while read -r isthmus; do eval "$isthmus"; done' inside

	start_sshd_with_engine
	run_box inner4 box
	play_kubectl "$tmp/there"
	play lxc-attach
	play systemd-run
	for inside in kube:main@inner4 kube:deploy.inner4 lxc:inner4 nspawn:inner4 nspawn:app@inner4; do
		uri="ssh://box/work?inside=$inside"
		start_daemon -o "ssh_command=ssh -F $tmp/ssh/ssh_config"
		expect "/bin/sleep 1000000 " "$("$ISTHMUS" exec "$mnt" -- sh -c 'tr "\0" " " </proc/1/cmdline')" "at $uri"
		stop_daemon
	done
	expect "exec -i inner4 -c main $boot
exec -i deploy/inner4 $boot" "$(cat "$tmp/kubectl.calls")" "kubectl"
	expect "-n inner4 $boot" "$(cat "$tmp/lxc-attach.calls")" "lxc-attach"
	expect "-M inner4 --pipe --quiet --collect $boot
-M inner4 --uid app --pipe --quiet --collect $boot" "$(cat "$tmp/systemd-run.calls")" "systemd-run"
	refused 'is not the name of a pod' "ssh://box/work?inside=kube:-x" -o "ssh_command=ssh -F $tmp/ssh/ssh_config"
	refused 'enters as root' "ssh://box/work?inside=lxc:app@inner4" -o "ssh_command=ssh -F $tmp/ssh/ssh_config"
	rm "$tmp/there/kubectl" "$tmp/there/lxc-attach" "$tmp/there/systemd-run"
}

# As kubectl: noise on stderr, no users, options before and behind the verb.
play_kubectl() {
	local directory=${1:-$tmp/bin}

	mkdir -p "$directory"
	cat >"$directory/kubectl" <<-END
		#!/bin/bash
		echo "\$*" >>"$tmp/kubectl.calls"
		while [[ \$1 == --context || \$1 == -n ]]; do shift 2; done
		missing() { echo 'E1127 07:46:11.264947   16748 memcache.go:265] "Unhandled Error"' >&2; echo "Error from server (NotFound): pods \"\$1\" not found" >&2; exit 1; }
		case "\$1 \$2" in
		"exec -i")
			pod=\${3#deploy/}; shift 3
			[ "\$1" != -c ] || { [ "\$2" = main ] || { echo "error: container \$2 is not valid for pod \$pod" >&2; exit 1; }; shift 2; }
			[ "\$1" = -- ] || exit 64
			shift
			"$engine" inspect "\$pod" >/dev/null 2>&1 || missing "\$pod"
			echo 'Defaulted container "main" out of: main' >&2
			exec "$engine" exec -i "\$pod" "\$@" ;;
		"get "*/* | "get pod")
			pod=\$3
			[[ \$2 = pod ]] || pod=\${2#deploy/}
			"$engine" inspect "\$pod" >/dev/null 2>&1 || missing "\$pod"
			[[ \$* != *default-container* ]] || exec cat "$tmp/kubectl.containers"
			exec "$engine" inspect -f '{{.Id}} {{.State.StartedAt}}' "\$pod" ;;
		*) exit 64 ;;
		esac
	END
	chmod +x "$directory/kubectl"
	printf '\nmain\n' >"$tmp/kubectl.containers"
	PATH=$tmp/bin:$PATH
}

test_operations_are_the_same_everywhere() {
	run_box ops box
	play_kubectl
	for uri in "$engine://ops/work" "kube://main@ops/work?namespace=test&context=far" kubectl://deploy.ops \
		"cmd:$engine exec -i ops !/work" \
		"cmd:nsenter -t $("$engine" inspect -f '{{.State.Pid}}' ops) -m -p -u -i !/work"; do
		start_daemon
		echo "at $uri"
		operations
		stop_daemon
	done
	grep -qxF -- "--context far -n test exec -i ops -c main -- sh -c while read -r isthmus; do eval \"\$isthmus\"; done" "$tmp/kubectl.calls" ||
		fail "kubectl was called so: $(cat "$tmp/kubectl.calls")"
	refused "'kubectl get pods' shows the names" kube://nosuch/work
	! grep -q memcache "$tmp/out" || fail "lines of kubectl's log: $(cat "$tmp/out")"
	refused "shows its containers" kube://other@ops/work
	refused "is not the name of a namespace" "kube://ops/work?namespace=-x"
	printf '\nmain\nside\n' >"$tmp/kubectl.containers"
	refused '"ops" has several containers (main side): write which, as in kube://main@ops/dir' kube://ops/work
	refused '"deploy/ops" has several containers (main side): write which, as in kube://main@deploy.ops/dir' \
		kube://deploy.ops/work
	# Two questions of a cluster that answers too late have one deadline.
	cp "$tmp/bin/kubectl" "$tmp/kubectl.fast"
	sed -i '2i [[ $1 != exec ]] || exec sleep 60; sleep 6' "$tmp/bin/kubectl"
	printf '\nmain\n' >"$tmp/kubectl.containers"
	refused "get a shell that reads its input" kube://ops/work
	mv "$tmp/kubectl.fast" "$tmp/bin/kubectl"
	printf 'main\nside\nmain\n' >"$tmp/kubectl.containers"
	"$ISTHMUS" doctor kube://ops/work >"$tmp/out" || fail "$(cat "$tmp/out")"
	grep -qxF -- "get pod ops -o jsonpath={.metadata.annotations.kubectl\.kubernetes\.io/default-container}{\"\\n\"}{range .spec.containers[*]}{.name}{\"\\n\"}{end}" "$tmp/kubectl.calls" ||
		fail "kubectl was called so: $(cat "$tmp/kubectl.calls")"
	expect "exec -i ops -c main -- sh" "$(grep -o '^exec -i ops .*-- sh' "$tmp/kubectl.calls" | tail -n 1)"
}

trap 'stop_daemon >/dev/null 2>&1; stop_engine; cleanup' EXIT
need_fuse
start_engine "$1"
run_functions
finish
