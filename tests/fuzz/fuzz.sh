#!/bin/sh
# Runs every fuzz target of build-fuzz/ for some seconds, one a core at a time.
# Usage: fuzz.sh SECONDS, as ./dev fuzz
set -eu
cd "$(dirname "$0")/../.."

. ./tests/shell.sh

# fuzz_one NAME SECONDS: a target's findings stay in build-fuzz/: its corpus for
# the next run, and the input of a crash, which libFuzzer names.
fuzz_one() {
	target=$1
	seconds=$2
	mkdir -p "build-fuzz/corpus/$target"
	set -- "build-fuzz/corpus/$target" "tests/fuzz/corpus/$target"
	if [ -f "tests/fuzz/$target.dict" ]; then # words do not help every target
		set -- -dict="tests/fuzz/$target.dict" "$@"
	fi
	quietly "build-fuzz/$target.log" "build-fuzz/tests/fuzz/fuzz-$target" \
		-max_total_time="$seconds" -timeout=10 -print_final_stats=1 \
		-artifact_prefix="build-fuzz/$target-" "$@" ||
		die "fuzz-$target found the above"
	echo "fuzz-$target: $(grep -E '^Done' "build-fuzz/$target.log")"
}

# As many targets at a time as there are cores.
fuzz() {
	seconds=$1
	names=
	programs=
	for source in tests/fuzz/fuzz_*.c; do
		name=$(basename "$source" .c)
		names="$names ${name#fuzz_}"
		programs="$programs tests/fuzz/fuzz-${name#fuzz_}"
	done
	# shellcheck disable=SC2086
	nice -n "${CORONET_BUILD_NICE:-0}" ninja -C build-fuzz --quiet $programs ||
		die "a fuzz target does not build"
	report "fuzzing each of$names for $seconds s"
	status=0
	running=
	for name in $names; do
		fuzz_one "$name" "$seconds" &
		running="$running $!"
		# shellcheck disable=SC2086
		set -- $running
		if [ $# -ge "$(nproc)" ]; then
			wait "$1" || status=1
			running=${running# "$1"}
		fi
	done
	for pid in $running; do
		wait "$pid" || status=1
	done
	[ $status = 0 ] && report "fuzz: nothing found"
	return $status
}

fuzz "$1"
