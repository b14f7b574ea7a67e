#!/bin/sh
# symbols.sh LIBRARY: it exports coro_* alone, and asks for no executable stack.
set -eu
extra=$(nm -D --defined-only "$1" | awk '{print $3}' |
	grep -v -e '^coro_' -e '@' -e '^__' -e '^_init$' -e '^_fini$' || true)
[ -z "$extra" ] || { echo "exports: $extra"; exit 1; }
if readelf -lW "$1" | grep GNU_STACK | grep -q RWE; then
	echo "executable stack"
	exit 1
fi
