#!/bin/bash
# own_mounts.sh [--keep MOUNT_POINT] COMMAND...: as root, in a mount namespace of its own.  Without
# copies of what others have mounted: their daemons would live on, whoever unmounts them, until the
# namespace is gone.
keep=
[ "$1" != --keep ] || { keep=$2; shift 2; }
exec unshare -m sh -c '
	keep=$1
	shift
	while read -r _ at type _; do
		at=$(printf "%b" "$at")
		[ "$type" != fuse.isthmus ] || [ "$at" = "$keep" ] || umount -l "$at"
	done </proc/self/mounts
	exec "$@"' - "$keep" "$@"
