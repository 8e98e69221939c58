#!/bin/bash
# Random work on a mount, compared with a model: the content of a file, and names.
# OPERATIONS, NAME_OPERATIONS (of each of 8 processes) and SEED make it longer or repeat it.
# shellcheck source=tests/mounted/lib.sh
. "$(dirname "$0")/lib.sh"

test_content_is_as_the_model_says() {
	"$programs/data_model" "$mnt" "${OPERATIONS:-2500}" ${SEED:+"$SEED"}
}

test_names_are_as_the_model_says() {
	mkdir "$mnt/names"
	"$programs/name_model" "$mnt/names" "${NAME_OPERATIONS:-1200}" ${SEED:+"$SEED"}
	[ -z "$backing" ] || same_tree "$mnt/names" "$backing/names"
}

# One after the other: nothing is under way but what the mount itself does.
test_names_of_one_process_are_as_the_model_says() {
	local round

	for round in 1 2 3 4 5; do
		mkdir "$mnt/one-$round"
		"$programs/name_model" "$mnt/one-$round" 3000 "${SEED:-$RANDOM$RANDOM}" 1
	done
}

run_tests "$1"
