#!/bin/bash
# dev.sh: ./dev installs and builds no more than a command needs, says what it does, and sums up when it is
# ended.  apt, meson and ninja are stand-ins, which note how they were called.
set -uo pipefail

source=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dev-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

stand_in() {
	cat >"$tmp/bin/$1"
	chmod +x "$tmp/bin/$1"
}

prepare() {
	rm -rf "${tmp:?}"/*
	mkdir -p "$tmp/bin" "$tmp/tree/tests"
	cp "$source/dev" "$tmp/tree/"
	cp "$source"/tests/{summary.py,targets.py,leftovers.sh} "$tmp/tree/tests/"
	printf '#!/bin/sh\necho the demo runs\n' >"$tmp/tree/tests/demo.sh"
	chmod +x "$tmp/tree/tests/demo.sh"
	stand_in id <<<'echo 0'
	stand_in dpkg-query <<<'exit 1'
	stand_in apt-get <<-'END'
		case "$*" in
		*--print-uris*) printf "'http://mirror/%s.deb' %s.deb 500000 MD5:0\n" a a b b ;;
		*)
			echo "$*" >>"$NOTES/apt"
			echo 'dlstatus:1:12.5:Retrieving file 1 of 2'
			echo 'pmstatus:gcc:60.25:Unpacking gcc (amd64)'
			;;
		esac
	END
	stand_in meson <<-'END'
		echo "$*" >>"$NOTES/meson"
		[ "$1" = setup ] || exit 0
		mkdir -p build/meson-info
		touch build/build.ninja
		echo '[{"name": "wire", "depends": ["w"]}, {"name": "tree", "depends": ["t"]}]' >build/meson-info/intro-tests.json
		printf '[{"id": "%s", "filename": ["%s"]}, {"id": "%s", "filename": ["%s"]}]\n' \
			w "$PWD/build/tests/test_wire" t "$PWD/build/tests/test_tree" >build/meson-info/intro-targets.json
	END
	stand_in ninja <<-'END'
		echo "$*" >>"$NOTES/ninja"
		echo '[3/7] Compiling C object one.o'
		[ ! -e "$NOTES/slow" ] || { touch "$NOTES/building"; sleep 60; }
	END
}

# dev ARGUMENT...: what it prints is in $tmp/out.
dev() {
	code=0
	PATH=$tmp/bin:$PATH NOTES=$tmp TMPDIR=$tmp "$tmp/tree/dev" "$@" >"$tmp/out" 2>&1 </dev/null || code=$?
}

fail() {
	printf '  %s\n' "$*"
	return 1
}

shows() {
	grep -qE -- "$1" "$tmp/out" || fail "'$1' is not in: $(cat "$tmp/out")"
}

installed() {
	grep -qw -- "$1" "$tmp/apt"
}

test_demo_installs_and_builds_the_programs_only() {
	local name

	dev demo
	[ "$code" = 0 ] || fail "exit code $code: $(cat "$tmp/out")" || return
	installed gcc || fail "no compiler: $(cat "$tmp/apt")" || return
	for name in clang gcc-aarch64-linux-gnu vim podman openssh-server libcunit1-dev; do
		! installed "$name" || fail "installs $name" || return
	done
	[ "$(cat "$tmp/ninja")" = '-C build programs' ] || fail "ninja $(cat "$tmp/ninja")" || return
	shows 'the demo runs'
}

test_what_takes_long_shows_progress() {
	dev build
	shows 'installing \(2 packages .* 1 MB\): gcc ' && shows '12% Retrieving file 1 of 2' && shows '\[3/7\] Compiling'
}

test_tests_say_what_they_install_and_nothing_optional() {
	local name

	dev test wire
	shows 'installing .*gcc' && shows 'with daemons.*: openssh-server' || return
	installed clang || fail "no clang" || return
	for name in docker.io lxc qemu-system-x86 podman debootstrap; do
		! installed "$name" || fail "installs $name" || return
	done
	dev setup --all
	installed lxc && installed podman || fail "setup --all: $(cat "$tmp/apt")"
}

test_a_named_test_builds_its_own_targets_only() {
	dev test wire/numbers
	[ "$(cat "$tmp/ninja")" = '-C build tests/test_wire' ] || fail "ninja $(cat "$tmp/ninja")"
}

test_what_is_ended_in_a_build_sums_up() {
	local pid started=$SECONDS

	touch "$tmp/slow"
	PATH=$tmp/bin:$PATH NOTES=$tmp TMPDIR=$tmp TEST_PATIENCE=1 "$tmp/tree/dev" test wire >"$tmp/out" 2>&1 </dev/null &
	pid=$!
	until [ -e "$tmp/building" ] || [ $((SECONDS - started)) -gt 40 ]; do sleep 0.1; done
	kill -TERM "$pid"
	wait "$pid"
	code=$?
	[ $((SECONDS - started)) -lt 50 ] || fail "waits for the end of the build" || return
	[ "$code" = 143 ] || fail "exit code $code" || return
	shows '^0 passed, 0 failed' && shows 'NOT RUN after SIGTERM: build-gcc'
}

# lint_passed ARGUMENT...: of three headers; a.h includes b.h.
lint_passed() {
	(cd "$tmp/tree" && printf '%s\n' a.h b.h c.h | "$source/tests/lint_passed.py" "$@" | tr '\n' ' ')
}

test_lint_checks_again_what_includes_a_changed_file() {
	(cd "$tmp/tree" && git init -q && echo '#include "b.h"' >a.h && echo 1 >b.h && echo 1 >c.h)
	[ "$(lint_passed --new headers cc)" = 'a.h b.h c.h ' ] || fail "new: $(lint_passed --new headers cc)" || return
	lint_passed --note headers cc
	[ -z "$(lint_passed --new headers cc)" ] || fail "passed: $(lint_passed --new headers cc)" || return
	[ "$(lint_passed --new headers cc-2)" = 'a.h b.h c.h ' ] || fail "another compiler is the same" || return
	echo 2 >"$tmp/tree/b.h"
	[ "$(lint_passed --new headers cc)" = 'a.h b.h ' ] || fail "changed: $(lint_passed --new headers cc)"
}

for name in $(declare -F | sed -n 's/^declare -f test_//p'); do
	# shellcheck disable=SC2053 # a pattern
	[[ $name == ${TEST_ONLY:-*} ]] || continue
	prepare
	if "test_$name"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED $name on dev"
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
