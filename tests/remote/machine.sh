#!/bin/sh
# machine.sh PROBE HELPER QEMU: the helper built for another kind of machine serves a directory,
# run by qemu.
set -eu
command -v "$3" >/dev/null || { echo "$3 (qemu-user-static) is not installed"; exit 77; }
dir=$(mktemp -d /tmp/isthmus-machine-XXXXXX)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/ws"
printf '#!/bin/sh\nexec %s %s\n' "$3" "$2" >"$dir/isthmus-helper"
chmod +x "$dir/isthmus-helper"
said=$("$1" "helper:$dir/ws" "helper_dir=$dir" timeout=10)
echo "$said"
case $said in ok*) ;; *) exit 1 ;; esac
# A file beyond 4 GiB, and a time after 2038: what 32 bits do not hold.
truncate -s 5G "$dir/ws/large"
touch -d '2040-01-01 00:00:00 UTC' "$dir/ws/large"
said=$(PROBE_FILE=large "$1" "helper:$dir/ws" "helper_dir=$dir" timeout=10)
echo "$said"
[ "$said" = "ok 5368709120 2208988800" ]
