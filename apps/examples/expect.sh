#!/bin/sh
# expect.sh EXPECTED PROGRAM ARGS...: the program's output is the file's, and
# it ends well.
set -eu
expected=$1
shift
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$@" >"$out"
diff -u "$expected" "$out"
