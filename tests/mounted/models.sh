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

run_tests "$1"
