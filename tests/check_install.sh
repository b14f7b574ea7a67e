#!/bin/sh
# What 'meson install' leaves behind serves a program of somebody else's: the
# README's example builds against it with pkg-config alone, and starts.
# Usage: check_install.sh BUILD_DIR SOURCE_ROOT
set -eu
build=${1:?usage: check_install.sh BUILD_DIR SOURCE_ROOT}
source=${2:?usage: check_install.sh BUILD_DIR SOURCE_ROOT}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

meson install -C "$build" --no-rebuild --quiet --destdir "$root"
pc=$(find "$root" -name coronet.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
# shellcheck disable=SC2046 # words
cc -o "$root/echo" "$source/apps/examples/echo.c" \
	$(pkg-config --cflags --libs coronet)
test -f "$(find "$root" -name 'coronet-proxy@.service')"
lib=$(dirname "$(find "$root" -name 'libcoronet.so')")
LD_LIBRARY_PATH=$lib "$root/echo" --link nosuch: 2>"$root/said" && exit 1
grep -q "unknown kind 'nosuch'" "$root/said" || {
	cat "$root/said"
	exit 1
}
echo "install: ok"
