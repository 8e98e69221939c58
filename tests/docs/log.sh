#!/bin/bash
# Every operation and field that the mount log may have stands in its document, and no other.
set -euo pipefail

sources=$1
document=$sources/LOG.md
failed=0

complain() {
	echo "$*"
	failed=1
}

documented() {
	grep -qF "\`$1\`" "$document"
}

ops=$(sed -n 's/.*\(request_begin\|begin_on_handle\|make_entry\|remove_entry\)(.*"\([a-z_]*\)".*/\2/p; s/.*record\.op = "\([a-z_]*\)".*/\1/p; s/^\t\treturn "\([a-z]*\)";$/\1/p; s/^\treturn "\([a-z]*\)";$/\1/p; s/.*\.op = "\([a-z_]*\)".*/\1/p' \
	"$sources"/edge/*.c "$sources"/control/control_exec.c "$sources"/log/mount_log*.c "$sources"/commands/mount_command.c | sort -u)
[ "$(wc -w <<<"$ops")" -gt 25 ] || complain "only these operations were found: $ops"
for op in $ops; do
	documented "$op" || complain "operation $op is not in LOG.md"
done
# shellcheck disable=SC2016
known=$(sed -n '/^static const char \*const operations/,/};/p' "$sources/commands/log_command.c")
for op in $(sed -n '/^### Operations/,/^`flush`/p' "$document" | grep '^|' | grep -o '`[a-z_]*`' | tr -d '`'); do
	grep -qE "\"$op\"" "$sources"/{edge,inode,control,log,mount}/*.c "$sources"/commands/mount_command.c "$sources"/../tools/base/call_log.c || complain "LOG.md has the operation $op, the sources have not"
	grep -qF "\"$op\"" <<<"$known" ||
		complain "isthmus log --op does not know $op"
done

fields=$(sed -n 's/.*put_\(key\|bytes\|member\|digest\)(out, "\([a-z_0-9]*\)".*/\2/p; s/.*put_text(out, ",\\"\([a-z_]*\)\\".*/\1/p' \
	"$sources"/../ops/support/log_format.c | sort -u)
[ "$(wc -w <<<"$fields")" -gt 15 ] || complain "only these fields were found: $fields"
for field in $fields; do
	grep -qE "\`$field\`|\"$field\"" "$document" || complain "field $field is not in LOG.md"
done
exit "$failed"
