#!/bin/bash
# A workspace where names that differ in case only lead to one file (ignores_case_fs.c).
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

test_a_name_is_found_in_any_case() {
	echo here >"$backing/ReadMe.txt"
	wait_for 5 test -e "$mnt/ReadMe.txt"
	ls "$mnt" >/dev/null
	expect here "$(cat "$mnt/readme.txt")" "content"
	expect here "$(cat "$mnt/README.TXT")" "content"
	echo changed >"$mnt/readme.TXT"
	wait_for 5 grep -x changed "$mnt/ReadMe.txt"
	expect ReadMe.txt "$(find "$mnt" -iname "*readme*" -printf %f)" "names"
	expect ReadMe.txt "$(find "$backing" -iname "*readme*" -printf %f)" "names there"
}

test_a_file_is_removed_by_any_name() {
	echo x >"$mnt/File"
	cat "$mnt/FILE" >/dev/null
	rm "$mnt/file"
	expect "" "$(find "$mnt" -iname "*file*" -printf %f)" "names"
	wait_for 5 test ! -e "$mnt/File" || fail "it is found by the name that it was made with"
	wait_for 5 test ! -e "$backing/File" || fail "it is there"
}

test_a_rename_may_change_the_case() {
	need python3

	echo x >"$mnt/new1"
	python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$mnt/new1" "$mnt/NEW1"
	expect NEW1 "$(find "$mnt" -iname "*new1*" -printf %f)" "names"
	expect NEW1 "$(find "$backing" -iname "*new1*" -printf %f)" "names there"
}

test_what_others_make_is_found_at_once() {
	if [ -e "$mnt/LATER" ]; then fail "it is there before"; fi
	mkdir "$backing/Later"
	wait_for 5 test -d "$mnt/LATER"
	touch "$mnt/later/in"
	expect in "$(ls "$mnt/LATER")" "names in it"
}

test_a_hidden_name_is_hidden_in_any_case() {
	local name

	echo x >"$backing/Secret.PEM"
	for name in Secret.PEM secret.pem SECRET.PEM; do
		if [ -e "$mnt/$name" ]; then fail "$name is there"; fi
	done
	expect "" "$(find "$mnt" -iname "*secret*" -printf %f)" "names"
	expect "Permission denied" "$( (echo x >"$mnt/sEcret.pem") 2>&1 | sed 's/.*: //')" "making one"
}

test_status_and_doctor_say_so() {
	"$ISTHMUS" status "$mnt" | grep -q "^names .*differ in case only"
	"$ISTHMUS" doctor "$uri" | grep -q "^warning *file names "
}

test_writes_that_do_not_wait_are_refused() {
	[[ $uri != local:* ]] || skip "it has no writes=back"
	local answer

	mkdir "$tmp/other"
	if answer=$("$ISTHMUS" mount -o writes=back "$uri" "$tmp/other" 2>&1); then fail "it is mounted"; fi
	[[ $answer = *"use writes=through"* ]] || fail "it says '$answer'"
}

need_fuse
prepare_backend "$1"
mkdir "$tmp/below"
"$programs/ignores_case_fs" "$tmp/below" "$backing" >/dev/null || skip_all "no mounts here"
trap 'fusermount3 -u -z "$backing" || umount -l "$backing"; cleanup' EXIT
echo x >"$backing/Any" # tells that it ignores case
run_tests_prepared -o 'hide=Secret.*'
