#!/bin/bash
# fuzz.sh BUILD_DIR SECONDS: runs every libFuzzer target so long, starting from its corpus.  What it
# finds beyond that stays in BUILD_DIR/fuzz-corpus; an input that fails is left there too.
set -euo pipefail

build=$1 seconds=$2
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
failed=0

for target in "$build"/tests/fuzz/fuzz_*; do
	[ -x "$target" ] && [ -f "$target" ] || continue
	name=${target##*/fuzz_}
	found=$build/fuzz-corpus/$name
	mkdir -p "$found"
	echo "fuzz: $name for $seconds s"
	"$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$found/crash-" "$found" "$here/fuzz/corpus/$name" \
		>"$found.log" 2>&1 || failed=1
	grep -E '^(skipped|  ran): |ERROR|SUMMARY|stat::(number_of_executed|peak_rss)|crash-' "$found.log" || true
done
exit $failed
