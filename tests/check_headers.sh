#!/bin/sh
# Every public header compiles alone, without a warning, as C and as C++ of
# every dialect a user may have, with each compiler that is installed.
# Usage: check_headers.sh SOURCE_ROOT
set -eu
cd "${1:?usage: check_headers.sh SOURCE_ROOT}"
includes='-Icoro/include -Inetstack/include'
headers=$(find coro/include netstack/include -name "*.h" | sed "s,.*/include/,,")
failed=0

# try COMPILER LANGUAGE STANDARD FILE
try() {
	# shellcheck disable=SC2086 # words
	"$1" -x "$2" "-std=$3" $includes -Wall -Wextra -Wpedantic -Werror -D_GNU_SOURCE \
		-fsyntax-only "$4" && return
	echo "$1 -std=$3 refuses the above"
	failed=1
}

# headers_with COMPILER LANGUAGE STANDARD
headers_with() {
	for header in $headers; do
		echo "#include <$header>" >"$tmp"
		try "$1" "$2" "$3" "$tmp"
	done
}

tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT
for compiler in gcc clang; do
	command -v "$compiler" >/dev/null || continue
	for std in c11 gnu17; do
		headers_with "$compiler" c "$std"
	done
done
for compiler in g++ clang++; do
	command -v "$compiler" >/dev/null || continue
	for std in c++11 c++14 gnu++17 c++20; do
		headers_with "$compiler" c++ "$std"
		try "$compiler" c++ "$std" tests/use_headers.cc
	done
done
[ "$failed" = 0 ] && echo "headers: ok"
