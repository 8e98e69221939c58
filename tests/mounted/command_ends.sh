#!/bin/bash
# cmd:PROGRAM [argument]... !/dir with the programs that people reach a container or another user by:
# each mounted for real, with what an agent's framework does there.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/mounted/containers_lib.sh
. "$(dirname "$0")/containers_lib.sh"

root=$tmp/root own_mounts=$(cd "$(dirname "$0")" && pwd)/own_mounts.sh

# runs WORD...: skips the test where this command cannot run a shell here.
runs() {
	"$@" /bin/sh -c 'exit 0' </dev/null >"$tmp/probe" 2>&1 ||
		skip "$* cannot run a command here: $(tail -n 1 "$tmp/probe")"
}

# works WORD...: leads to the tree at $root.
works() {
	runs "$@"
	uri="cmd:$* !/work"
	start_daemon
	operations
	stop_daemon
}

test_bwrap() {
	need bwrap
	works "$own_mounts" bwrap --bind "$root" / --proc /proc --dev /dev --unshare-pid --unshare-ipc --unshare-uts --die-with-parent
}

test_unshare_and_chroot() {
	works "$own_mounts" unshare -p -f -u -i "--mount-proc=$root/proc" --kill-child chroot "$root"
}

nobody_sleeps() {
	! pgrep -f '[s]leep 1237'
}

test_a_chroot_without_proc() {
	local code=0

	runs chroot "$root"
	uri="cmd:chroot $root !/work"
	start_daemon -o linger=1
	timeout 20 "$ISTHMUS" exec "$mnt" --timeout 0.5 -- sh -c 'sleep 1237 & sleep 1237 & wait' 2>"$tmp/err" || code=$?
	expect 124 "$code" "$(cat "$tmp/err"): exit code"
	wait_for 10 nobody_sleeps || fail "left $(pgrep -af '[s]leep 1237')"
	stop_daemon
}

# Without an init system of its own; neither flag is needed where systemd runs.
test_systemd_nspawn() {
	need systemd-nspawn
	works "$own_mounts" systemd-nspawn -q -D "$root" --register=no --keep-unit --pipe
}

end_lxc() {
	lxc-stop -P "$tmp/lxc" -n box -k
	wait_for 10 eval '! pgrep -f "\[lxc monitor\] $tmp/lxc"'
}

test_lxc_attach() {
	need lxc-start lxc-attach
	mkdir -p "$tmp/lxc/box"
	printf '%s\n' 'lxc.uts.name = box' "lxc.rootfs.path = dir:$root" 'lxc.net.0.type = empty' \
		'lxc.mount.auto = proc:mixed' >"$tmp/lxc/box/config"
	"$own_mounts" lxc-start -P "$tmp/lxc" -n box -- /bin/sleep 1000000 >"$tmp/probe" 2>&1 ||
		skip "lxc-start cannot run a container here: $(tail -n 1 "$tmp/probe")"
	trap end_lxc EXIT
	works lxc-attach -P "$tmp/lxc" -n box --
}

# refused COMMAND...: it fails.
refused() {
	if "$@" >"$tmp/out" 2>&1; then
		fail "was not refused: $*"
	fi
}

# Another user of this machine: what is made there is his.
test_sudo() {
	need sudo
	mkdir -p "$tmp/work" && chown nobody "$tmp/work" && chmod 711 "$tmp"
	runs sudo -n -u nobody
	uri="cmd:sudo -n -u nobody env HOME=$tmp/work !$tmp/work"
	start_daemon
	operations
	expect nobody "$("$ISTHMUS" exec "$mnt" -- id -un)"
	echo new >"$mnt/new"
	expect nobody "$(stat -c %U "$tmp/work/new")" "owner"
	# What nobody may not write, root does not write as nobody.
	echo old >"$tmp/work/fixed" && chown nobody: "$tmp/work/fixed" && chmod 444 "$tmp/work/fixed"
	refused sh -c 'echo x >"$1"' sh "$mnt/fixed"
	refused "$ISTHMUS" tool write fixed x --root "$mnt" --yes
	refused "$ISTHMUS" tool edit fixed --old-text old --new-text x --root "$mnt" --yes
	expect old "$(cat "$tmp/work/fixed")" "a file without the owner's permission to write"
	stop_daemon
}

# A script of one's own that says something on the way.
test_a_jump_script() {
	mkdir -p "$tmp/bin" "$tmp/work"
	printf '#!/bin/sh\necho "Welcome to $1" >&2\nshift\nexec "$@"\n' >"$tmp/bin/jump"
	chmod +x "$tmp/bin/jump"
	uri="cmd:$tmp/bin/jump box !$tmp/work"
	start_daemon
	operations
	stop_daemon
}

trap 'stop_daemon >/dev/null 2>&1; cleanup' EXIT
need_fuse
[ "$(id -u)" = 0 ] || skip_all "containers of our own need root"
need_static_busybox
make_root "$root"
run_functions
finish
