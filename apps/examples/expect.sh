#!/bin/sh
# expect.sh EXPECTED PROGRAM ARGS...: the program's output is the file's.
set -eu
expected=$1
shift
"$@" | diff -u "$expected" -
