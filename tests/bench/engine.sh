#!/bin/bash
# engine.sh podman|docker DIR: the container "bench" of an engine of our own, with DIR at /data, until
# the standard input ends.  Prints the variables by which that engine is found, and "ready"; or why
# it cannot run here.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/../mounted/lib.sh"
# shellcheck source=tests/mounted/containers_lib.sh
. "$(dirname "$0")/../mounted/containers_lib.sh"

trap 'stop_engine; cleanup' EXIT
start_engine "$1"
run_box bench box -v "$2:/data" || skip_all "no container: $(tail -n 1 "$tmp/engine.run")"
env | grep -E '^(DOCKER_HOST|DOCKER_CONFIG|CONTAINERS_CONF|CONTAINERS_STORAGE_CONF)='
echo ready
cat >/dev/null
