#!/bin/bash
# vm: a real virtual machine, emulated by QEMU, reached by a virtio-serial port; the sockets of
# Firecracker and Cloud Hypervisor, and vsock, by stand-ins of their outer ends.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
helper=${ISTHMUS%/fs/*}/backends/remote/isthmus-helper
cache=$here/../../.cache/guest
qemu_pid=''

# ---- the machine -------------------------------------------------------------------

# A kernel with its modules; it is only unpacked, not installed.
find_kernel() {
	local package

	[ ! -e "$cache/.complete" ] || return 0
	need apt-cache apt-get dpkg-deb
	package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends:/ { print $2; exit }')
	[ -n "$package" ] || skip "no package of a kernel is known here"
	rm -rf "$cache"
	mkdir -p "$cache"
	(cd "$cache" && timeout 60 apt-get download "$package" && dpkg-deb -x "$package"_*.deb . && rm -rf ./*.deb usr) \
		>/dev/null 2>&1 || skip "the kernel cannot be downloaded"
	touch "$cache/.complete"
}

need_machine() {
	need qemu-system-x86_64 busybox python3
	! ldd "$(command -v busybox)" >/dev/null 2>&1 || skip "busybox-static is not installed"
	[ "$(uname -m)" = x86_64 ] || skip "the guest is for x86_64"
	find_kernel
	[ -e "$tmp/initrd" ] || python3 "$here/make_guest.py" "$cache" "$helper" "$(command -v busybox)" "$tmp/initrd"
}

# start_machine [QEMU_ARGUMENT...]
start_machine() {
	rm -f "$tmp/vm.sock"
	qemu-system-x86_64 -M pc -accel tcg -m 160 -display none -nodefaults -no-reboot \
		-kernel "$cache"/boot/vmlinuz-* -initrd "$tmp/initrd" -append "console=ttyS0 quiet panic=-1" \
		-serial "file:$tmp/console" -device virtio-serial-pci \
		-chardev "socket,id=port,path=$tmp/vm.sock,server=on,wait=off" \
		-device virtserialport,chardev=port,name=isthmus \
		-monitor "unix:$tmp/monitor.sock,server=on,wait=off" "$@" >"$tmp/qemu.log" 2>&1 5>&- 6<&- &
	qemu_pid=$!
	trap end_machine EXIT
	wait_for 30 test -S "$tmp/vm.sock" || skip "QEMU does not start: $(tail -n 1 "$tmp/qemu.log")"
}

boot() {
	need_machine
	start_machine
	wait_for 60 grep -q READY "$tmp/console" || skip "the guest is not up within 60 s"
}

kill_machine() {
	kill -KILL "$qemu_pid" 2>/dev/null || true
	wait "$qemu_pid" 2>/dev/null || true
	qemu_pid=''
}

end_machine() {
	exec 5>&- 6<&- || true
	stop_daemon >/dev/null 2>&1 || true
	kill_machine
}

# monitor COMMAND: what QEMU's monitor answers.
monitor() {
	python3 - "$tmp/monitor.sock" "$1" <<-'END'
		import socket, sys
		def until_prompt():
		    text = b""
		    while not text.endswith(b"(qemu) "):
		        text += monitor.recv(4096)
		    return text
		monitor = socket.socket(socket.AF_UNIX)
		monitor.settimeout(60)
		monitor.connect(sys.argv[1])
		until_prompt()
		monitor.sendall(sys.argv[2].encode() + b"\n")
		print(until_prompt().decode(errors="replace"))
	END
}

at() {
	"$ISTHMUS" exec "$mnt" -- "$@"
}

mount_machine() {
	uri=vm:unix:$tmp/vm.sock!/ws
	mount_options=(-o timeout=60 -o linger=600)
	start_daemon
}

# ---- QEMU --------------------------------------------------------------------------------

test_a_machine_behind_a_serial_port() {
	local code=0

	boot
	# What somebody left in the port before us: noise, and the beginning of a greeting.
	python3 - "$tmp/vm.sock" <<-'END'
		import os, socket, sys
		for rest in (os.urandom(200000), b"\xffisthmC\x01" + bytes(10)):
		    port = socket.socket(socket.AF_UNIX)
		    port.connect(sys.argv[1])
		    port.sendall(rest)
		    port.close()
	END
	mount_machine
	head -c 3000000 /dev/urandom >"$tmp/data"
	cp "$tmp/data" "$mnt/data"
	expect "$(sha256sum <"$tmp/data")" "$(at sha256sum <"$mnt/data" | sed 's/data$/-/')" "what arrived"
	at sh -c 'cat /proc/version; mkdir -p a/b; echo there >a/b/c; exit 42' >"$tmp/out" || code=$?
	expect 42 "$code" "exit code"
	grep -q cloud-amd64 "$tmp/out" || fail "not the guest's kernel: $(cat "$tmp/out")"
	expect there "$(cat "$mnt/a/b/c")"
	cmp "$tmp/data" "$mnt/data"
	stop_daemon
	# The port is free again, and takes the next client.
	mount_machine
	expect there "$(cat "$mnt/a/b/c")" "mounted again"
	stop_daemon
}

test_a_snapshot_restored_under_the_mount() {
	local code=0

	boot
	mount_machine
	echo before >"$mnt/file"
	exec 5>>"$mnt/held" 6<"$mnt/file"
	echo one >&5
	at sh -c 'echo run >>count'
	monitor "migrate \"exec:cat >$tmp/snapshot\"" >"$tmp/migrate.log"
	[ -s "$tmp/snapshot" ] || fail "no snapshot: $(cat "$tmp/migrate.log")"
	monitor cont >/dev/null
	# What the snapshot will not know.
	at sh -c 'echo run >>count; echo run >>count'
	echo after >"$mnt/file"
	echo two >&5
	mkdir "$mnt/new"
	expect 3 "$(at wc -l count | sed 's/ .*//')" "runs before"
	at sh -c 'echo >sleeps; exec sleep 300' >"$tmp/sleep.out" 2>&1 5>&- 6<&- &
	sleep_pid=$!
	wait_for 30 test -e "$mnt/sleeps" || fail "no sleep"
	kill_machine
	start_machine -incoming "exec:cat $tmp/snapshot"
	# One run more, and none of those twice.
	wait_for 60 at true || fail "it does not come back: $("$ISTHMUS" status "$mnt")"
	at sh -c 'echo run >>count'
	expect 2 "$(at wc -l count | sed 's/ .*//')" "runs"
	wait "$sleep_pid" || code=$?
	expect 125 "$code" "the command that ran: $(cat "$tmp/sleep.out")"
	expect before "$(cat "$mnt/file")" "a file of the snapshot"
	[ ! -e "$mnt/new" ] || fail "a directory that the snapshot does not have"
	python3 -c '
import errno, os, sys
for fd, use in ((5, lambda: (os.write(5, b"three\n"), os.fsync(5))), (6, lambda: os.fsync(6) or os.pread(6, 100, 1 << 20))):
    try:
        use()
    except OSError as error:
        print(errno.errorcode[error.errno])
    else:
        print("fine")' >"$tmp/handles"
	expect ESTALE "$(sed -n 1p "$tmp/handles")" "the handle for writing"
	exec 5>&- 6<&- || true
	expect one "$(cat "$mnt/held")" "nothing is written through it"
	grep -q 'was set back to an earlier state' "$tmp/daemon.log" || fail "the daemon does not say so: $(cat "$tmp/daemon.log")"
	stop_daemon
}

# ---- Others ------------------------------------------------------------------------------

# listen ADDRESS [ARGUMENT...]: a helper on this machine, until the test ends.
listen() {
	"$helper" --listen "$@" >"$tmp/listen.log" 2>&1 &
	listener=$!
	trap end_background EXIT
}

end_background() {
	stop_daemon >/dev/null 2>&1 || true
	end_children
}

work() {
	mkdir -p "$tmp/ws"
	start_daemon
	echo text >"$mnt/file"
	expect text "$(at cat file)"
	stop_daemon
}

test_a_listening_helper_on_a_unix_socket() {
	listen "unix:$tmp/helper.sock"
	wait_for 10 test -S "$tmp/helper.sock" || fail "$(cat "$tmp/listen.log")"
	expect 600 "$(stat -c %a "$tmp/helper.sock")" mode
	uri=vm:unix:$tmp/helper.sock!$tmp/ws
	work
	# One is killed, the next takes its place.
	kill -KILL "$listener"
	wait "$listener" || true
	listen "unix:$tmp/helper.sock"
	wait_for 10 sh -c "'$ISTHMUS' mount '$uri' '$mnt'" || fail "$(cat "$tmp/listen.log")"
	"$ISTHMUS" umount "$mnt"
}

test_the_socket_of_firecracker() {
	listen "unix:$tmp/guest.sock"
	wait_for 10 test -S "$tmp/guest.sock" || fail "$(cat "$tmp/listen.log")"
	# As their documents say; the guest begins to listen at the fourth connection.
	python3 -c '
import socket, sys, threading
def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
seen = 0
while True:
    client, _ = server.accept()
    line = b""
    while not line.endswith(b"\n"):
        line += client.recv(1)
    seen += 1
    assert line == b"CONNECT 5000\n", line
    if seen < 4:
        client.close()
        continue
    client.sendall(b"OK 1073741824\n")
    guest = socket.socket(socket.AF_UNIX)
    guest.connect(sys.argv[2])
    for pair in ((client, guest), (guest, client)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
' "$tmp/v.sock" "$tmp/guest.sock" >"$tmp/hybrid.log" 2>&1 &
	wait_for 10 test -S "$tmp/v.sock" || fail "$(cat "$tmp/hybrid.log")"
	uri=vm:hybrid:$tmp/v.sock:5000!$tmp/ws
	work
}

is_back() {
	"$ISTHMUS" status "$mnt" | grep ' 1 reconnects'
}

# After the first connection its answers take longer than a first attempt waits for.
test_a_guest_that_became_slow() {
	listen "unix:$tmp/guest.sock"
	wait_for 10 test -S "$tmp/guest.sock" || fail "$(cat "$tmp/listen.log")"
	python3 -c '
import socket, sys, threading, time
def copy(source, target, delay):
    try:
        while data := source.recv(65536):
            time.sleep(delay)
            delay = 0
            target.sendall(data)
    except OSError:
        pass
    target.close()
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
delay = 0
while True:
    client, _ = server.accept()
    guest = socket.socket(socket.AF_UNIX)
    guest.connect(sys.argv[2])
    threading.Thread(target=copy, args=(client, guest, 0), daemon=True).start()
    threading.Thread(target=copy, args=(guest, client, delay), daemon=True).start()
    if not delay:
        sys.stdin.readline()
        client.shutdown(socket.SHUT_RDWR)
    delay = 7
' "$tmp/slow.sock" "$tmp/guest.sock" < <(wait_for 60 test -e "$tmp/ws/mounted"; echo) >"$tmp/slow.log" 2>&1 &
	wait_for 10 test -S "$tmp/slow.sock" || fail "$(cat "$tmp/slow.log")"
	uri=vm:unix:$tmp/slow.sock!$tmp/ws
	mount_options=(-o timeout=60)
	start_daemon
	touch "$mnt/mounted"
	wait_for 60 is_back || fail "it does not come back: $("$ISTHMUS" status "$mnt")"
	at true
	stop_daemon
}

test_vsock() {
	python3 -c '
import socket
server = socket.socket(socket.AF_VSOCK)
server.bind((socket.VMADDR_CID_ANY, 47149))
server.listen()
client = socket.socket(socket.AF_VSOCK)
client.settimeout(3)
client.connect((1, 47149))' 2>/dev/null || skip "no vsock to this machine itself (vsock_loopback)"
	listen vsock:47150
	uri=vm:vsock:1:47150!$tmp/ws
	work
}

# ---- Bad input -------------------------------------------------------------------------

# refused PATTERN URI: says why, in time, and leaves nothing.
refused() {
	local started=$SECONDS

	! "$ISTHMUS" mount "$2" "$mnt" 2>"$tmp/err" || fail "$2 was mounted"
	grep -q "$1" "$tmp/err" || fail "$2: $(cat "$tmp/err")"
	[ $((SECONDS - started)) -le "$(patient 20)" ] || fail "$2 took $((SECONDS - started)) s"
	! is_mounted || fail "a mount is left"
}

test_sockets_that_lead_nowhere() {
	local form

	refused "No such file.*; start the virtual machine" "vm:unix:$tmp/missing.sock!/ws"
	refused "No such file.*; start the virtual machine" "vm:hybrid:$tmp/missing.sock:5000!/ws"
	python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$tmp/dead.sock"
	refused "Connection refused; nobody serves that socket" "vm:unix:$tmp/dead.sock!/ws"
	trap end_background EXIT
	accept_silently "$tmp/silent.sock"
	refused "isthmus-helper --listen" "vm:unix:$tmp/silent.sock!/ws"
	for form in unix: unix:relative vsock:3 vsock:0:5 vsock:3:x hybrid:/v.sock hybrid:/v.sock:0 tcp:1:2; do
		refused "is not an address" "vm:$form!/ws"
	done
	for form in vsock:0 vsock:x tcp:5 unix: ''; do
		if timeout 10 "$helper" --listen "$form" 2>"$tmp/err"; then fail "it listens on $form"; fi
		[ -s "$tmp/err" ] || fail "nothing is said of $form"
	done
}

run_tests_unmounted "${1:-local}"
