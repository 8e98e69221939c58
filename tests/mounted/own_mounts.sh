#!/bin/bash
# own_mounts.sh COMMAND...: as root, in a mount namespace of its own.  Without copies of what others
# have mounted: their daemons would live on, whoever unmounts them, until the namespace is gone.
exec unshare -m sh -c 'umount -a -l -t fuse.isthmus 2>/dev/null; exec "$@"' - "$@"
