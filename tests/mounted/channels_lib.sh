# shellcheck shell=bash
# What the tests of further connections share (channels.sh, channels_writes.sh).

# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

connections() {
	"$ISTHMUS" status "$mnt" | sed -n 's/^traffic .* \([0-9]*\) connections$/\1/p'
}

has_connections() {
	[ "$(connections)" = "$1" ]
}

# The ssh of the first connection is the oldest.
further_sshs() {
	ps -o pid=,comm= --sort=start_time --ppid "$daemon_pid" | sed -n 's/ ssh$//p' | tail -n +2
}

has_no_further_ssh() {
	[ -z "$(further_sshs)" ]
}

kill_further() {
	further_sshs | xargs -r kill -KILL
}

stop_one() {
	further_sshs | head -n 1 | xargs -r kill -STOP
}

reset_link() {
	echo reset >"$tmp/link"
	sleep 0.1
	echo up >"$tmp/link"
}

kill_far_session() {
	pkill -KILL -f "^$tmp/far/cache/isthmus/isthmus-helper"
}
