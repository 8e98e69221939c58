#!/bin/bash
# The recipes of isthmus-places(7), each run as it is written there, with stand-ins for the programs
# of others; the places are this machine, by a private sshd.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

page=$(dirname "$0")/../../fs/isthmus-places.7

# recipe SECTION [NUMBER]: the commands of that section; directories at the places are ours.
recipe() {
	awk -v title="$1" -v wanted="${2:-1}" '
		/^\.S[sh] / { inside = substr($0, 5) == title }
		inside && /^\.Bd -literal/ { block++; next }
		/^\.Ed/ { if (inside && block == wanted) exit; next }
		inside && block == wanted && !/^\./' "$page" |
		sed -e 's/\\e/\\/g' -e "s|/workspaces/|$tmp/workspaces/|"
}

# stand_in NAME: a program of that name with the script from stdin.
stand_in() {
	{ echo '#!/bin/bash'; cat; } >"$tmp/bin/$1"
	chmod +x "$tmp/bin/$1"
}

# entry HOST: what others' programs write to ssh's configuration.
entry() {
	sed "s/^Host box/Host $1/" "$tmp/ssh/ssh_config"
}

setup() {
	rm -rf "${tmp:?}/bin" "$HOME/.ssh" "$tmp/project"
	mkdir -p "$tmp/bin" "$HOME/.ssh" "$HOME/ws" "$tmp/project" "$tmp/far/app" "$tmp/workspaces/app"
	echo here | tee "$tmp/far/app/marker" >"$tmp/workspaces/app/marker"
	port=$(sed -n 's/^Port //p' "$tmp/ssh/ssh_config")
	# ssh(1) reads its configuration in the home directory that the system knows, not in $HOME.
	stand_in ssh <<-END
		exec "$(command -v ssh)" -F "\$HOME/.ssh/config" "\$@"
	END
	touch "$HOME/.ssh/config"
	trap '"$ISTHMUS" umount --lazy "$HOME/ws" 2>/dev/null || true' EXIT
}

no_daemon() {
	! pgrep -f "^[^ ]*isthmus mount .*$HOME/ws"
}

# works SECTION [NUMBER]
works() {
	local commands

	commands=$(recipe "$@")
	[ -n "$commands" ] || fail "no recipe for $1"
	(cd "$tmp/project" && PATH=$tmp/bin:${ISTHMUS%/*}:$PATH bash -eu -c "$commands") || fail "$commands"
	expect here "$(cat "$HOME/ws/marker")" "$1"
	"$ISTHMUS" umount "$HOME/ws"
	wait_for 15 no_daemon || fail "the daemon stays"
}

test_codespaces() {
	setup
	stand_in gh <<-END
		[ "\$*" = "codespace ssh --config" ] || exit 64
		cat <<'ENTRY'
		$(entry cs.NAME.BRANCH)
		ENTRY
	END
	works "GitHub Codespaces"
}

test_coder() {
	setup
	stand_in coder <<-END
		[ "\$*" = "config-ssh --yes" ] || exit 64
		cat >>~/.ssh/config <<'ENTRY'
		$(entry dev.coder)
		ENTRY
	END
	works Coder
}

# let_ssh_in [ssh option...]: with the key of sshd here, whatever host and user are named.
let_ssh_in() {
	stand_in ssh <<-END
		exec "$(command -v ssh)" -F "\$HOME/.ssh/config" -l "$(id -un)" -i "$tmp/ssh/user_key" -oHostKeyAlias=[127.0.0.1]:$port \\
			-oUserKnownHostsFile="$tmp/ssh/known_hosts" $* "\$@"
	END
}

test_daytona() {
	setup
	let_ssh_in -oHostName=127.0.0.1 -p "$port"
	works Daytona
	expect "user TOKEN hostname ssh.app.daytona.io" \
		"$(ssh -F "$HOME/.ssh/config" -G daytona | grep -E '^(user|hostname) ' | xargs)"
}

test_google_cloud() {
	setup
	stand_in gcloud <<-END
		case "\$*" in
		"compute config-ssh") cat >>~/.ssh/config <<'ENTRY'
		$(entry vm1.us-central1-a.my-project)
		ENTRY
			;;
		"compute ssh vm1 --zone=us-central1-a --tunnel-through-iap --quiet --command=sh")
			exec ssh -F "$tmp/ssh/ssh_config" box sh ;;
		*) exit 64 ;;
		esac
	END
	works "Google Cloud"
	works "Google Cloud" 2
}

test_amazon() {
	setup
	let_ssh_in
	stand_in aws <<-END
		[ "\$*" = "ssm start-session --target i-0123456789abcdef0 --document-name AWS-StartSSHSession --parameters portNumber=22" ] || exit 64
		exec "$linksim" --rtt-ms 0 127.0.0.1 $port
	END
	works "Amazon EC2 by Session Manager"
}

test_lima() {
	setup
	mkdir -p "$HOME/.lima/default"
	entry lima-default >"$HOME/.lima/default/ssh.config"
	works Lima
}

test_vagrant() {
	setup
	stand_in vagrant <<-END
		[ "\$*" = ssh-config ] || exit 64
		cat <<'ENTRY'
		$(entry default)
		ENTRY
	END
	works Vagrant
}

test_dev_containers() {
	need jq
	setup
	stand_in devcontainer <<-END
		[ "\$*" = "up --workspace-folder ." ] || exit 64
		echo '[1 ms] starting'
		echo '{"outcome":"success","containerId":"826abcac45af","remoteUser":"vscode","remoteWorkspaceFolder":"$tmp/workspaces/app"}'
	END
	stand_in docker <<-END
		[ "\$1" != inspect ] || { echo 826abcac45af then; exit; }
		[ "\$1 \$2 \$3 \$4 \$5" = "exec -i -u vscode 826abcac45af" ] || exit 64
		HOME=$tmp/far exec "\${@:6}"
	END
	works "Dev containers"
}

test_a_container_at_another_machine() {
	setup
	stand_in ssh <<-END
		words=("\$@")
		words[-1]=\${words[-1]/#exec docker/exec $tmp/bin/docker}
		exec "$(command -v ssh)" -F "\$HOME/.ssh/config" "\${words[@]}"
	END
	entry build >"$HOME/.ssh/config"
	stand_in docker <<-END
		case "\$*" in
		"context create build --docker host=ssh://build") exit ;;
		"--context build inspect "*) echo web then; exit ;;
		"--context build exec -i web "*) shift 2 ;;
		"exec -i web "*) ;;
		*) exit 64 ;;
		esac
		HOME=$tmp/far exec "\${@:4}"
	END
	works "Containers of another machine"
	works "Containers of another machine" 2
}

test_every_recipe_is_tried() {
	local blocks tried

	# vm.sh tries the guest of its own.
	blocks=$(sed '/^\.Ss QEMU/,/^\.S[hs]/d' "$page" | grep -c '^\.Bd -literal')
	tried=$(grep -cE '^	works ' "$0")
	expect "$blocks" "$tried" "recipes and trials"
}

need_fuse
start_sshd
run_functions
finish
