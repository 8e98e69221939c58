#!/bin/bash
# Every option of every --help is in the manual, and the manual has no other.
set -euo pipefail

isthmus=$1
tools=$2
sources=$3
manual=$sources/fs/isthmus.1
tools_manual=$sources/tools/isthmus-tools.1
failed=0

complain() {
	echo "$*"
	failed=1
}

# Options of the section of a command: mdoc's "Fl x" and "Fl -word" at the start of an item.
manual_options() {
	sed -n "/^\.Ss $1\$/,/^\.S[sh] /p" "$manual" | grep '^\.It Fl' | tr ' ,' '\n' |
		sed -n 's/^\(-[a-z][a-z-]*\)$/-\1/p; s/^\([A-Za-z]\)$/-\1/p' | sort -u
}

# Of a --help: the words that look like options at the start of a line's explanation.
help_options() {
	"$isthmus" "$1" --help | sed -n '/^  \+-/p' | sed 's/^ *//; s/   *[^ ].*//' |
		tr ' ,=[' '\n' | grep -E '^--?[A-Za-z]' | sort -u
}

for command in mount umount list status lost exec forward log doctor; do
	help=$(help_options "$command")
	in_manual=$(manual_options "$command")
	[ -n "$help" ] || complain "$command --help lists no options"
	for option in $help; do
		grep -qxe "$option" <<<"$in_manual" || complain "$command $option is in --help only"
	done
	for option in $in_manual; do
		grep -qxe "$option" <<<"$help" || complain "$command $option is in the manual only"
	done
done

# Every command of the overview has a section.
"$isthmus" help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p' | while read -r command; do
	grep -qE "^\.Ss (.*, )?$command(,.*)?\$" "$manual" || { echo "no section on $command"; exit 1; }
done || failed=1

# Words of -o: what the manual has is what
# the sources know, and what the table of schemes has.
known_words=$(
	awk '/char \*const fuse_words\[\]|^} own\[\]/ { inside = 1 } inside { print } /};/ { inside = 0 }' \
		"$sources/fs/commands/mount_options.c" | grep -o '"[a-z_]*"' | tr -d '"'
)
place_words=$("$isthmus" mount --help | sed -n '/^URI/,$s/^ *-o //p' | tr ',' '\n' | sed 's/=.*//')
[ "$(wc -l <<<"$place_words")" -gt 7 ] || complain "only these options of places were found: $place_words"
known_words=$(printf '%s\n' "$known_words" "$place_words" | grep -vxE 'dev|suid|exec|atime|async|comment' | sort -u)
manual_words=$(sed -n '/^The options of$/,/^\.Ss umount$/p' "$manual" | sed -n 's/^\.It Cm //p' |
	tr ',' '\n' | sed 's/^ *\(Cm \)\?//; s/ .*//' | sort)
[ "$(wc -l <<<"$known_words")" -gt 15 ] || complain "only these words of -o were found: $known_words"
[ "$known_words" = "$manual_words" ] ||
	complain "words of -o, known < > manual: $(diff <(echo "$known_words") <(echo "$manual_words"))"

# Every scheme has a paragraph.
for scheme in $("$isthmus" mount --help | sed -n '/^URI/,$s/^  \([a-z]*\):.*/\1/p'); do
	sed -n '/^\.Ss Workspaces/,/^\.Ss mount/p' "$manual" | grep -E "^\.It Cm (.*[ ,])?$scheme:" >/dev/null ||
		complain "the manual has no paragraph on $scheme: in Workspaces"
done

# The tools: options, and what tools there are.
tool_words=$(sed -n '/^\.\(It\|Op\) Fl /p' "$tools_manual" | tr -d -- '-')
tool_help=$("$tools" tool --help)
tool_names=$(sed -n '/^\.Sh TOOLS/,/^\.Sh PERM/p' "$tools_manual" | grep '^\.It Cm' | tr ' ' '\n')
for command in tool mcp; do
	for option in $("$tools" "$command" --help | grep -o '^ *--[a-z-]*' | tr -d ' -' | sort -u); do
		grep -qE "Fl $option( |\$)" <<<"$tool_words" || complain "$command --$option is in --help only"
	done
done
for option in $(sed -n 's/^\.It Fl -\([a-z-]*\).*/\1/p' "$tools_manual"); do
	grep -qE -- "--$option( |\$)" <<<"$tool_help" || complain "tool --$option is in the manual only"
done
for tool in $("$tools" tool list | sed -n 's/  *built-in .*//p'); do
	grep -qxF "$tool" <<<"$tool_names" || complain "the tool $tool is not in the manual"
done

if command -v mandoc >/dev/null; then
	! mandoc -T lint -W warning "$sources"/{fs,tools}/*.[1-8] | grep -v 'conventional order: Sh DESCRIPTION$' || failed=1
	examples=$(python3 "$sources/tests/docs/examples.py" "$sources"/{fs,tools}/*.[1-8]) || complain "$examples"
fi
exit "$failed"
