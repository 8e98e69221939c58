#!/bin/bash
# run.sh all|local|remote|large|tools|places|programs BUILD_DIR [OPTION...]: the benches; "all" are those but
# programs, one after the other.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

what=$1 build=$(cd ../.. && cd -- "$2" && pwd -P)
shift 2
case "$what" in
all)
	for what in local remote large tools places; do
		python3 "$what.py" "$build" "$@"
	done
	;;
*) exec python3 "$what.py" "$build" "$@" ;;
esac
