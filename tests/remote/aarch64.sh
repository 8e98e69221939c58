#!/bin/sh
# aarch64.sh PROBE HELPER: the helper built for aarch64 serves a directory, run by qemu.
set -eu
command -v qemu-aarch64-static >/dev/null || { echo "qemu-user-static is not installed"; exit 77; }
dir=$(mktemp -d /tmp/isthmus-aarch64-XXXXXX)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/ws"
printf '#!/bin/sh\nexec qemu-aarch64-static %s\n' "$2" >"$dir/isthmus-helper"
chmod +x "$dir/isthmus-helper"
said=$("$1" "helper:$dir/ws" "helper_dir=$dir" timeout=10)
echo "$said"
case $said in ok*) ;; *) exit 1 ;; esac
