#!/bin/sh
# sshd.sh: a private sshd on loopback, with its own keys and configuration; ~/.ssh is not touched.
#   sshd.sh start DIR [sshd_config line...]   DIR/ssh_config then knows the host "box"
#   sshd.sh stop DIR
set -eu

command=${1:?start or stop}
dir=${2:?directory}
shift 2

start() {
	sshd=$(command -v sshd || echo /usr/sbin/sshd)
	[ -x "$sshd" ] || { echo "sshd is not installed (apt-get install openssh-server)" >&2; exit 77; }
	mkdir -p "$dir"
	chmod 700 "$dir"
	[ "$(id -u)" != 0 ] || install -d -m 755 /run/sshd
	ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key"
	ssh-keygen -q -t ed25519 -N '' -f "$dir/user_key"
	cp "$dir/user_key.pub" "$dir/authorized_keys"
	# Without PAM, sshd refuses an account whose password is locked, keys or not.
	pam=no
	case $(passwd -S 2>/dev/null || true) in *" L "*) pam=yes ;; esac
	cat >"$dir/sshd_config" <<-END
		HostKey $dir/host_key
		AuthorizedKeysFile $dir/authorized_keys
		PidFile $dir/sshd.pid
		ListenAddress 127.0.0.1
		StrictModes no
		UsePAM $pam
		PasswordAuthentication no
		KbdInteractiveAuthentication no
		PermitRootLogin yes
		PermitUserEnvironment yes
		MaxStartups 100
		LogLevel DEBUG1
		AcceptEnv ISTHMUS_TEST_*
	END
	for line; do echo "$line" >>"$dir/sshd_config"; done
	tries=0
	until listen; do
		tries=$((tries + 1))
		[ $tries -lt 20 ] || { cat "$dir/sshd.log" >&2; exit 1; }
	done
	printf '[127.0.0.1]:%s %s\n' "$port" "$(cut -d' ' -f1,2 "$dir/host_key.pub")" >"$dir/known_hosts"
	cat >"$dir/ssh_config" <<-END
		Host box
		HostName 127.0.0.1
		Port $port
		User $(id -un)
		IdentityFile $dir/user_key
		IdentitiesOnly yes
		BatchMode yes
		IdentityAgent none
		UserKnownHostsFile $dir/known_hosts
		GlobalKnownHostsFile /dev/null
		StrictHostKeyChecking yes
		KexAlgorithms curve25519-sha256
	END
}

# Tries one port; true once sshd listens there.
listen() {
	# Below the ports that the kernel gives to outgoing connections.
	port=$(($(od -An -N2 -tu2 /dev/urandom) % 12000 + 20000))
	rm -f "$dir/sshd.log"
	"$sshd" -f "$dir/sshd_config" -p "$port" -E "$dir/sshd.log" || return 1
	waits=$((100 * ${TEST_PATIENCE:-1}))
	while [ "$waits" -gt 0 ]; do
		[ ! -s "$dir/sshd.pid" ] || return 0
		! grep -q '^Cannot bind any address' "$dir/sshd.log" || return 1
		sleep 0.1
		waits=$((waits - 1))
	done
	return 1
}

stop() {
	[ ! -s "$dir/sshd.pid" ] || kill "$(cat "$dir/sshd.pid")" 2>/dev/null || true
}

"$command" "$@"
