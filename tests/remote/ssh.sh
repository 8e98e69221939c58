#!/bin/bash
# ssh.sh PROBE: a real sshd; what ssh has to say reaches the user, in time.
set -euo pipefail

probe=$1
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
dir=$(mktemp -d /tmp/isthmus-ssh-XXXXXX)
agent=
cleanup() {
	[ -z "$agent" ] || kill "$agent" || true
	"$here/sshd.sh" stop "$dir"
	rm -rf "$dir"
}
trap cleanup EXIT
failed=0
mkdir "$dir/ws"
"$here/sshd.sh" start "$dir" "SetEnv XDG_CACHE_HOME=$dir/cache" "LogLevel DEBUG1" || exit $?

# expect NAME SECONDS PATTERN PROBE_ARGUMENT...
expect() {
	local name=$1 limit=$2 pattern=$3 said start=$SECONDS

	shift 3
	said=$("$probe" "$@" 2>&1 || true)
	if [[ $said =~ $pattern ]] && [ $((SECONDS - start)) -le "$limit" ]; then
		echo "good: $name"
	else
		echo "FAILED: $name ($((SECONDS - start)) s): it said: $said" >&2
		failed=1
	fi
}

ssh="ssh_command=ssh -F $dir/ssh_config"
expect "a directory" 15 '^ok ' "ssh://box$dir/ws" "$ssh"
# Hosts that only the configuration understands, as those of systemd-ssh-proxy.
sed -e '1s/.*/Host vsock,4 a%b vsock%4/' -e 's/^[[:blank:]]*HostName.*/HostName 127.0.0.1/' "$dir/ssh_config" >"$dir/hosts"
{ printf 'Host vsock/* unix/*\nProxyCommand %s %%h %%p %s\n' "$dir/proxy" "$(sed -n 's/^[[:blank:]]*Port //p' "$dir/ssh_config")"
	printf 'UserKnownHostsFile /dev/null\nStrictHostKeyChecking no\n'
	sed -n '/User \|Identity\|Batch/p' "$dir/ssh_config"; cat "$dir/hosts"; } >"$dir/proxied"
cat >"$dir/proxy" <<END
#!/bin/sh
echo "\$1" >>$dir/proxied.hosts
exec python3 -c '
import os, socket, sys, threading
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def up():
    while data := os.read(0, 65536):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := peer.recv(65536):
    os.write(1, data)' "\$3"
END
chmod +x "$dir/proxy"
for host in vsock%2F1234 unix%2frun%2Fsome.sock; do
	expect "the host $host" 15 '^ok ' "ssh://$host$dir/ws" "ssh_command=ssh -F $dir/proxied"
done
if [ "$(paste -sd ' ' "$dir/proxied.hosts" | tr ' ' '\n' | uniq | paste -sd ' ')" != "vsock/1234 unix/run/some.sock" ]; then
	echo "FAILED: the proxy was asked for $(cat "$dir/proxied.hosts")" >&2
	failed=1
fi
# Some versions of ssh refuse a comma, which is theirs to say.
for host in vsock,4 vsock%2c4 a%25b vsock%4; do
	expect "the host $host" 15 '^ok |"vsock,4": hostname contains invalid characters' "ssh://$host$dir/ws" "ssh_command=ssh -F $dir/proxied"
done
expect "an option in disguise" 5 '^error .*%2Doption' "ssh://%2Doption$dir/ws" "$ssh"
expect "a host with a blank" 5 '^error 22' "ssh://a%2F b$dir/ws" "$ssh"
if grep -qw aes /proc/cpuinfo; then
	expect_cipher() {
		grep -q "kex: server->client cipher: $2 " "$dir/sshd.log" && echo "good: $1" ||
			{ echo "FAILED: $1: $(grep -m 3 'cipher:' "$dir/sshd.log")" >&2; failed=1; }
	}
	case $(ssh -G box) in *"ciphers chacha20"*) expect_cipher "the fast cipher" aes128-gcm@openssh.com ;; esac
	expect "ciphers of the user's" 15 '^ok ' "ssh://box$dir/ws" "$ssh -o Ciphers=aes192-ctr"
	expect_cipher "which are used" aes192-ctr
fi
# An ssh that tells its arguments.
mkdir "$dir/bin"
printf '#!/bin/sh\necho "$*" >>%s/told\nexec %s "$@"\n' "$dir" "$(command -v ssh)" >"$dir/bin/ssh"
chmod +x "$dir/bin/ssh"
printf '#!/bin/sh\n: >%s/ran\n' "$dir" >"$dir/bin/marks"
chmod +x "$dir/bin/marks"
# becomes_master WANT [OPTION...]
becomes_master() {
	local got

	rm -f "$dir/told"
	PATH=$dir/bin:$PATH expect "a shared connection" 15 '^ok ' "ssh://box$dir/ws" \
		"$ssh -o ControlPath=$dir/%C ${*:2}"
	got=$(grep -v -e ' -G ' "$dir/told" | grep -q -e -oControlMaster=no && echo no || echo yes)
	[ "$got" = "$1" ] || { echo "FAILED: others' sessions through ours: $(cat "$dir/told")" >&2; failed=1; }
}
becomes_master no
becomes_master yes -o ControlPersist=1
printf 'Host box\n%s\n' "RemoteCommand cat" "LocalForward 127.0.0.1:$(sed -n 's/.*Port //p' "$dir/ssh_config") 127.0.0.1:1" \
	"ExitOnForwardFailure yes" "PermitLocalCommand yes" "LocalCommand cat" >"$dir/for_logins"
cat "$dir/ssh_config" >>"$dir/for_logins"
expect "a configuration for logins" 15 '^ok ' "ssh://box$dir/ws" "ssh_command=ssh -F $dir/for_logins"

# What it says for other uses of the host, of which older versions know nothing.
for line in "StdinNull yes" "SessionType none" "SessionType subsystem" "ForkAfterAuthentication yes" "RequestTTY force" \
	"ChannelTimeout session=1s"; do
	printf 'Host box\n%s\n' "$line" >"$dir/other_uses"
	cat "$dir/ssh_config" >>"$dir/other_uses"
	ssh -G -F "$dir/other_uses" box >/dev/null 2>&1 || continue
	expect "the configuration \"$line\"" 15 '^ok ' "ssh://box$dir/ws" "ssh_command=ssh -F $dir/other_uses"
done

# Nothing but the session itself is asked of the far end, whatever the configuration says for logins.
ssh-agent -D -a "$dir/agent" >/dev/null 2>&1 &
agent=$!
for _ in {1..200}; do [ -S "$dir/agent" ] || sleep 0.1; done
printf 'Host box\n%s\n' "IdentityAgent $dir/agent" "ForwardAgent yes" "ForwardX11 yes" "ForwardX11Trusted yes" \
	"GSSAPIDelegateCredentials yes" >"$dir/forwards"
cat "$dir/ssh_config" >>"$dir/forwards"
# asks_for_more COMMAND...: what sshd is asked for besides, while it runs.
asks_for_more() {
	local before

	before=$(wc -l <"$dir/sshd.log")
	DISPLAY=127.0.0.1:99 XAUTHORITY=$dir/none "$@" >/dev/null 2>&1 </dev/null || true
	tail -n "+$((before + 1))" "$dir/sshd.log" | grep -oE 'request (auth-agent-req@openssh.com|x11-req)' || true
}
more=$(asks_for_more ssh -F "$dir/forwards" box true)
[[ $more = *auth-agent* && $more = *x11* ]] || { echo "FAILED: the test does not see what is asked for" >&2; failed=1; }
more=$(asks_for_more "$probe" "ssh://box$dir/ws" "ssh_command=ssh -F $dir/forwards")
[ -z "$more" ] || { echo "FAILED: asked for: $more" >&2; failed=1; }
expect "forwardings left out" 15 '^ok ' "ssh://box$dir/ws" "ssh_command=ssh -F $dir/forwards"
kill "$agent"
agent=
expect "once more" 15 '^ok ' "ssh://box$dir/ws" "$ssh"
[ "$(ls "$dir/cache/isthmus" | wc -l)" = 1 ] || { echo "FAILED: more than the helper is left" >&2; failed=1; }
expect "no such directory" 15 '^error 2: .*nowhere.*No such file.*create it there first' "ssh://box$dir/nowhere" "$ssh"
expect "a file" 15 '^error 20: .*Not a directory; if it is a file, name its directory$' "ssh://box$dir/ssh_config" "$ssh"
expect "unknown host" 15 '^error 113: .*no-such-host.invalid.*(resolve|known)' "ssh://no-such-host.invalid/tmp" "$ssh -o StrictHostKeyChecking=no"
expect "nobody listens" 15 '^error 113: .*Connection refused' "ssh://127.0.0.1:1/tmp" "$ssh"
expect "an IPv6 address without brackets" 5 '^error 22: .*brackets' "ssh://::1/tmp" "$ssh"
expect "no port" 5 '^error 22: ' "ssh://box:0/tmp" "$ssh"
expect "an option for a host" 5 '^error 22: .*not sent to ssh' "ssh://-oProxyCommand=x/tmp" "ssh_command=$dir/bin/marks"
for host in '-lroot@box' 'u@-box' 'u@' 'bo;x' 'bo x' 'u v@box' $'bo\tx' $'bo\nx' $'bo\x7fx' '$HOME' 'u`id`@box' 'u&@box' \
	'u\@box' "b'ox" 'b"ox' 'b\ox' 'b(ox' 'b{ox' '[::1' '[::1]]' '[[::1]]' 'b>ox' 'u|v@box'; do
	expect "no host: $host" 5 '^error 22: ' "ssh://$host/tmp" "ssh_command=$dir/bin/marks"
done
[ ! -e "$dir/ran" ] || { echo "FAILED: ssh was run for what is no host" >&2; failed=1; }
expect "an IPv6 address" 15 '^error .*"u@::1": ssh: connect to' "ssh://u@[::1]:1/tmp" "$ssh"
for user in 'DOMAIN\user' 'host$' 'a.b@c' 'ü'; do
	expect "a user: $user" 15 '^error 113: .*Connection refused' "ssh://$user@127.0.0.1:1/tmp" "$ssh"
done
expect "no ssh" 5 '^error .*no-such-ssh.*not found' "ssh://box/tmp" ssh_command=no-such-ssh
expect "unknown option" 5 '^error 22: .*color' "ssh://box/tmp" color=red
expect "bad number" 5 '^error 22: .*timeout' "ssh://box/tmp" timeout=soon

ssh-keygen -q -t ed25519 -N '' -f "$dir/other_key"
sed -i "s#IdentityFile .*#IdentityFile $dir/other_key#" "$dir/ssh_config"
expect "key refused" 15 '^error 13: .*Permission denied \(publickey\).*ssh-add' "ssh://box$dir/ws" "$ssh"
sed -i "s#IdentityFile .*#IdentityFile $dir/user_key#" "$dir/ssh_config"
ssh-keygen -q -p -P '' -N secret -f "$dir/user_key" >/dev/null
expect "passphrase needed" 15 '^error 13: .*Permission denied' "ssh://box$dir/ws" "$ssh"
ssh-keygen -q -p -P secret -N '' -f "$dir/user_key" >/dev/null
awk -v key="$(cut -d' ' -f2 "$dir/other_key.pub")" '{ $3 = key; print }' "$dir/known_hosts" >"$dir/changed"
cp "$dir/known_hosts" "$dir/good"
cp "$dir/changed" "$dir/known_hosts"
expect "host key changed" 15 '^error 13: .*HAS CHANGED.*ssh-keygen -R' "ssh://box$dir/ws" "$ssh"
: >"$dir/known_hosts"
expect "host key unknown" 15 '^error 13: .*Host key verification failed' "ssh://box$dir/ws" "$ssh"
cp "$dir/good" "$dir/known_hosts"

# A host that takes the connection and says nothing.
cat >"$dir/silent.py" <<-END
	import socket, time
	s = socket.create_server(("127.0.0.1", 0))
	print(s.getsockname()[1], flush=True)
	time.sleep(60)
END
exec 3< <(exec python3 "$dir/silent.py")
silent=$!
read -r port <&3
expect "a host that says nothing" 16 '^error (110|107): .*(timed out|banner)' "ssh://127.0.0.1:$port/tmp" "$ssh"
kill $silent
exit $failed
