#!/bin/bash
# Every option of every --help is in the manual, and the manual has no other.
set -euo pipefail

isthmus=$1
manual=$2
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

for command in mount umount list status exec log; do
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

if command -v mandoc >/dev/null; then
	mandoc -T lint -W warning "$manual" || failed=1
fi
exit "$failed"
