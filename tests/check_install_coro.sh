#!/bin/sh
# The coroutine runtime alone (-Dnet=disabled) builds, passes tests and installs
# from a tree that has nothing of netstack/ but its options, and neither
# dpdk_glue/ nor lwIP, where pkg-config knows neither DPDK nor libsodium. A
# program then builds against the installed library, shared and static.
# Usage: check_install_coro.sh SOURCE_ROOT COMPILER [WORD...]
set -eu
source=${1:?usage: check_install_coro.sh SOURCE_ROOT COMPILER [WORD...]}
shift
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

fail() {
	echo "install-coro: $*" >&2
	exit 1
}

# quietly WHAT COMMAND...: the output is shown on failure alone.
quietly() {
	what=$1
	shift
	"$@" >"$root/log" 2>&1 && return
	tail -n 40 "$root/log" >&2
	fail "$what"
}

mkdir -p "$root/source/apps" "$root/source/netstack" "$root/pc"
cp -r "$source/meson.build" "$source/meson_options.txt" "$source/asm" \
	"$source/coro" "$source/docs" "$source/tests" "$root/source"
cp -r "$source/apps/examples" "$root/source/apps"
cp -r "$source/netstack/options" "$root/source/netstack"
# All that pkg-config knows is the test framework.
cp "$(pkg-config --variable=pcfiledir cmocka)/cmocka.pc" "$root/pc"
PKG_CONFIG_LIBDIR=$root/pc
export PKG_CONFIG_LIBDIR
unset PKG_CONFIG_PATH DESTDIR || :
for package in libdpdk libsodium; do
	pkg-config --exists "$package" && fail "$package is not hidden"
done

build=$root/build
CC=$* quietly "meson setup" meson setup "$build" "$root/source" -Dnet=disabled \
	--buildtype=debug "--prefix=$root/prefix"
grep -E -i 'libdpdk|libsodium|lwip' "$build/meson-logs/meson-log.txt" &&
	fail "meson looked for the above"
quietly "ninja" ninja -C "$build"
quietly "its tests" meson test -C "$build" --no-rebuild --print-errorlogs \
	coro-core coro-symbols example-hello
quietly "ninja install" ninja -C "$build" install

PKG_CONFIG_LIBDIR=$(dirname "$(find "$root/prefix" -name coronet-coro.pc)")
libdir=$(pkg-config --variable=libdir coronet-coro)
find "$root/prefix" -type f -o -type l | grep -E 'coronet/net\.h|libcoronet\.|bin/' &&
	fail "the above was installed"

# runs LINK COMMAND...: the command builds hello, which prints what it should.
runs() {
	link=$1
	shift
	quietly "$link: does not build" "$@"
	"$root/hello" | cmp -s - "$source/apps/examples/expected/hello.txt" ||
		fail "$link: says something else"
	echo "install-coro: $link: ok"
}

hello=$source/apps/examples/hello.c
# shellcheck disable=SC2046 # words
runs shared "$@" -o "$root/hello" "$hello" "-Wl,-rpath,$libdir" \
	$(pkg-config --cflags --libs coronet-coro)
ldd "$root/hello" | grep -q libcoronet-coro.so || fail "not shared"
# shellcheck disable=SC2046 # words
runs static "$@" -static -o "$root/hello" "$hello" \
	$(pkg-config --static --cflags --libs coronet-coro)
echo "install-coro: ok"
