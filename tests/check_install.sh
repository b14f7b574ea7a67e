#!/bin/sh
# Checks that a foreign program can use the files of 'meson install': README's
# example builds against a prefix with pkg-config alone, shared and static, in C
# and in C++, with each compiler that is installed, and starts from there.
# Usage: check_install.sh BUILD_DIR SOURCE_ROOT
set -eu
build=${1:?usage: check_install.sh BUILD_DIR SOURCE_ROOT}
source=${2:?usage: check_install.sh BUILD_DIR SOURCE_ROOT}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

fail() {
	echo "install: $*" >&2
	exit 1
}

# The prefix the build was made for, moved: the .pc files follow.
meson install -C "$build" --no-rebuild --quiet --destdir "$root/stage" >"$root/log" 2>&1 || {
	cat "$root/log"
	fail "meson install"
}
pc=$(dirname "$(find "$root/stage" -name coronet.pc)")
old=$(sed -n 's/^prefix=//p' "$pc/coronet.pc")
prefix=$root/stage$old
sed -i "s,^prefix=.*,prefix=$prefix," "$pc"/coronet*.pc
PKG_CONFIG_PATH=$pc
export PKG_CONFIG_PATH
test -f "$(find "$root" -name 'coronet-proxy@.service')" || fail "no unit"
pkg-config --cflags coronet | grep -q stack-clash-protection ||
	fail "cflags: large frames are not probed"
libdir=$(pkg-config --variable=libdir coronet)

# runs WHAT PROGRAM: checks that it starts, with its own libraries alone.
runs() {
	env -u LD_LIBRARY_PATH "$2" --link nosuch: 2>"$root/said" &&
		fail "$1: a wrong link was taken"
	grep -q "unknown kind 'nosuch'" "$root/said" || {
		cat "$root/said"
		fail "$1: does not start"
	}
	echo "install: $1: ok"
}

# build WHAT COMPILER LANGUAGE SOURCE FLAG...
build() {
	what=$1 compiler=$2 language=$3 file=$4
	shift 4
	"$compiler" -x "$language" "$source/$file" -x none -o "$root/program" "$@" \
		>"$root/log" 2>&1 || {
		tail -n 20 "$root/log"
		fail "$what: does not link"
	}
	runs "$what" "$root/program"
}

# The library needs OpenSSL and libseccomp unless it was built without them.
chosen=$(pkg-config --print-requires-private coronet | grep -E '^(openssl|libseccomp)' || true)

# Debian's libpcap names libraries for static links that it does not depend on.
can_link_dpdk() {
	echo 'int main(void) { return 0; }' >"$root/empty.c"
	# shellcheck disable=SC2046,SC2086 # words
	"$1" "$root/empty.c" -o "$root/empty" \
		$(pkg-config --static --libs libdpdk libsodium libcjson libcares $chosen) >"$root/log" 2>&1
}

# shellcheck disable=SC2046,SC2086 # words
for compiler in gcc clang; do
	command -v "$compiler" >/dev/null || continue
	build "$compiler, shared" "$compiler" c apps/examples/echo.c \
		$(pkg-config --cflags --libs coronet) "-Wl,-rpath,$libdir"
	ldd "$root/program" | grep -q libcoronet.so || fail "not shared"
	build "$compiler, sockets" "$compiler" c apps/examples/echo.c \
		$(pkg-config --cflags --libs coronet-sockets) "-Wl,-rpath,$libdir"
	ldd "$root/program" | grep -q libcoronet-sockets.so || fail "no sockets"
	# Ours static, DPDK's shared; its flags leave drivers out.
	build "$compiler, our archives" "$compiler" c apps/examples/echo.c \
		$(pkg-config --cflags coronet) "-L$libdir" -l:libcoronet.a \
		-l:libcoronet-coro.a -pthread -lrte_net_bond \
		$(pkg-config --libs libdpdk libpcap libsodium libcjson libcares $chosen)
	if can_link_dpdk "$compiler"; then
		build "$compiler, static" "$compiler" c apps/examples/echo.c \
			$(pkg-config --static --cflags --libs coronet)
		ldd "$root/program" | grep -q -e libcoronet -e librte &&
			fail "--static: not static"
	else
		echo "install: $compiler, static: DPDK itself does not link here:"
		grep -m 3 'cannot find' "$root/log" || cat "$root/log"
	fi
	"$compiler" -static "$source/apps/examples/sieve.c" -o "$root/sieve" \
		$(pkg-config --static --cflags --libs coronet-coro) ||
		fail "$compiler -static: the coroutines do not link"
	"$root/sieve" >/dev/null || fail "$compiler -static: does not run"
done
# shellcheck disable=SC2046,SC2086 # words
for compiler in g++ clang++; do
	command -v "$compiler" >/dev/null || continue
	build "$compiler, shared" "$compiler" c++ tests/use_headers.cc \
		$(pkg-config --cflags --libs coronet) "-Wl,-rpath,$libdir"
done
echo "install: ok"
