# shellcheck shell=bash
# containers_lib.sh - containers for the tests, which leave nothing behind, by engines of our own:
#     start_engine podman|docker     an engine of our own below $tmp, with the images "box"
#                                    (busybox; WORKDIR /work, users root and app) and "bare" (no shell)
#     run_box NAME IMAGE [option of run...]    a running container without a network
# $engine is its program.  Exit code 77 where it cannot run, with the reason.

: "${tmp:?lib.sh comes first}" "${mnt:?}"
engine=
engine_pid=''

engine_log() {
	tail -n 3 "$tmp/engine.log" | tr '\n' ' '
}

engine_is_quiet() {
	! pgrep -f "$tmp/engine/"
}

stop_engine() {
	local mounted boxes

	[ -n "$engine" ] || return 0
	mapfile -t boxes < <("$engine" ps -aq 2>/dev/null)
	remove_box "${boxes[@]}"
	if [ -n "$engine_pid" ]; then
		kill "$engine_pid" 2>/dev/null
		wait_for 15 not_running "$engine_pid" || kill -KILL "$engine_pid"
	fi
	# podman cleans up after a container by a process of its own, which mounts the store once more.
	wait_for 15 engine_is_quiet
	while read -r mounted; do umount -l "$mounted"; done < <(cut -d' ' -f2 /proc/self/mounts | grep -F "$tmp/engine/" | sort -r)
	engine=''
}

# Not the containers of whoever runs the tests.  Limits that a process without CAP_SYS_RESOURCE may set.
configure_podman() {
	cat >"$tmp/engine/containers.conf" <<-END
		[containers]
		default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
		netns = "none"
		[engine]
		cgroup_manager = "cgroupfs"
		events_logger = "none"
		runtime = "$(command -v runc >/dev/null && echo runc || echo crun)"
		tmp_dir = "$tmp/engine/tmp"
	END
	cat >"$tmp/engine/storage.conf" <<-END
		[storage]
		driver = "overlay"
		graphroot = "$tmp/engine/store"
		runroot = "$tmp/engine/run"
	END
	export CONTAINERS_CONF=$tmp/engine/containers.conf CONTAINERS_STORAGE_CONF=$tmp/engine/storage.conf
	unset CONTAINER_HOST
}

start_dockerd() {
	export DOCKER_HOST=unix://$tmp/engine/docker.sock DOCKER_CONFIG=$tmp/engine/config
	unset DOCKER_CONTEXT
	dockerd --data-root "$tmp/engine/store" --exec-root "$tmp/engine/run" --pidfile "$tmp/engine/pid" \
		-H "$DOCKER_HOST" --iptables=false --ip6tables=false --bridge=none \
		--default-ulimit nofile=1024:1024 >"$tmp/engine.log" 2>&1 &
	engine_pid=$!
	wait_for 40 docker version || skip_all "dockerd does not start here: $(engine_log)"
}

# import DIR IMAGE [Dockerfile instruction...]
import_image() {
	local changes=() change

	for change in "${@:3}"; do changes+=(-c "$change"); done
	tar -C "$1" -cf "$tmp/engine/image.tar" .
	"$engine" import "${changes[@]}" "$tmp/engine/image.tar" "$2" >"$tmp/engine.import" 2>&1 ||
		skip_all "$engine cannot import an image: $(tail -n 1 "$tmp/engine.import")"
}

need_static_busybox() {
	[ -x "$(command -v busybox)" ] && ! ldd "$(command -v busybox)" >/dev/null 2>&1 ||
		skip_all "busybox-static is not installed"
}

# make_root DIR: the tree of a machine with busybox, the users root and app, and /work.
make_root() {
	local applet

	mkdir -p "$1"/{bin,usr,dev,proc,sys,etc,work,root,home/app}
	mkdir -m 1777 "$1/tmp"
	cp "$(command -v busybox)" "$1/bin/busybox"
	for applet in $("$1/bin/busybox" --list | grep -vxE 'busybox|init|linuxrc'); do
		ln -sf busybox "$1/bin/$applet"
	done
	printf 'root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n' >"$1/etc/passwd"
	chown 1000:1000 "$1/home/app"
}

make_images() {
	local root=$tmp/engine/root bare=$tmp/engine/bare

	make_root "$root"
	mkdir -p "$bare"/{bin,dev,proc,sys,etc,app}
	mkdir -m 1777 "$bare/tmp"
	printf 'main(){for(;;)pause();}' |
		cc -w -O2 -static -x c - -o "$bare/bin/pause" 2>/dev/null || skip_all "cc cannot link statically"
	import_image "$root" localhost/isthmus-test-box:1 "WORKDIR /work" "ENV PLACE=container"
	import_image "$bare" localhost/isthmus-test-bare:1 "WORKDIR /app"
}

# What stops a container nicely would wait for ten seconds: the first process of ours takes no SIGTERM.
remove_box() {
	local now=()

	[ $# != 0 ] || return 0
	[ "$engine" = docker ] || now=(-t 0)
	"$engine" rm -f "${now[@]}" "$@" >/dev/null 2>&1
}

run_box() {
	local name=$1 image=$2 command=(/bin/sleep 1000000)

	[ "$image" = box ] || command=(/bin/pause)
	"$engine" run -d --name "$name" --network none "${@:3}" "localhost/isthmus-test-$image:1" "${command[@]}" \
		>"$tmp/engine.run" 2>&1
}

start_engine() {
	[ "$(id -u)" = 0 ] || skip_all "containers of our own need root"
	command -v "$1" >/dev/null || skip_all "$1 is not installed"
	[ "$1" != docker ] || command -v dockerd >/dev/null || skip_all "dockerd is not installed"
	need_static_busybox
	mkdir -p "$tmp/engine"
	engine=$1
	if [ "$1" = docker ]; then start_dockerd; else configure_podman; fi
	make_images
	run_box probe box || skip_all "$1 cannot run a container here: $(tail -n 1 "$tmp/engine.run")"
	"$engine" exec probe true >"$tmp/engine.run" 2>&1 ||
		skip_all "$1 cannot run a command in a container: $(tail -n 1 "$tmp/engine.run")"
	remove_box probe
}

# What an agent's framework wants of a place: read, write, access, mkdir -p, and commands with their
# output as it comes, exit code, time-out, abort and environment.  By itself, not behind || or &&: the
# first command that fails ends the test.
operations() {
	local pid code=0

	expect hello "$("$ISTHMUS" exec "$mnt" -- echo hello)"
	"$ISTHMUS" exec "$mnt" -- sh -c 'exit 42' || code=$?
	expect 42 "$code" "exit code"
	code=0
	"$ISTHMUS" exec "$mnt" --timeout 0.1 -- sleep 10 2>"$tmp/err" || code=$?
	[ "$code" != 0 ] && grep -qi 'time' "$tmp/err" || fail "time-out: $code $(cat "$tmp/err")"
	rm -f "$tmp/said"
	"$ISTHMUS" exec "$mnt" -- sh -c 'echo first; exec sleep 1236' >"$tmp/said" &
	pid=$!
	wait_for 10 grep -q first "$tmp/said" || fail "output does not come while the command runs"
	kill -TERM "$pid"
	code=0
	wait "$pid" || code=$?
	[ "$code" != 0 ] || fail "an aborted command succeeds"
	expect 'it is' "$("$ISTHMUS" exec "$mnt" -e 'SEEN=it is' -- sh -c 'echo "$SEEN"')" "environment"
	mkdir -p "$mnt/a/deep/directory"
	head -c 200000 /dev/urandom >"$tmp/bytes"
	cp "$tmp/bytes" "$mnt/a/deep/directory/bytes"
	expect "$(sha256sum <"$tmp/bytes")" "$("$ISTHMUS" exec "$mnt" -- sh -c 'sha256sum <a/deep/directory/bytes')" "bytes"
	"$ISTHMUS" exec "$mnt" -- sh -c 'cp a/deep/directory/bytes back'
	cmp "$tmp/bytes" "$mnt/back"
	! cat "$mnt/nothing" 2>/dev/null || fail "what is not there can be read"
	rm -r "$mnt/a" "$mnt/back"
}
