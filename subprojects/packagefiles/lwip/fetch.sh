#!/bin/sh
# Fetches lwIP's source from Debian's archive into subprojects/, checks its SHA-256
# and unpacks it. meson's wraps do the same from a fixed address; this asks the
# mirror that the machine's apt is configured with. LWIP_TARBALL names a local copy.
set -eu
cd "$(dirname "$0")/../../.."

# This tarball, whatever the mirror.
LWIP_DIR=subprojects/lwip-2.2.1
LWIP_SUITE=trixie
LWIP_FILE=lwip_2.2.1+dfsg1.orig.tar.xz
LWIP_SHA256=83729c274c499d3348e9fbbe043a3113f3fa8953e7efddc7c21c7fcbb1f2b7b1

. ./tests/shell.sh

# fetch_lwip: apt-get source with a configuration of our own, so that the
# machine's needs no deb-src line and stays as it is. Works as any user.
fetch_lwip() {
	mirror=$(debian_mirror) || die "apt has no Debian archive configured$way_out"
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -r "$keyring" ] && signed="[signed-by=$keyring] " || signed=
	apt=$PWD/$CACHE/apt
	rm -rf "$apt"
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
	echo "deb-src $signed$mirror $LWIP_SUITE main" >"$apt/sources.list"
	cat >"$apt/apt.conf" <<-END
	Dir::Etc::sourcelist "$apt/sources.list";
	Dir::Etc::sourceparts "-";
	Dir::State::lists "$apt/lists";
	Dir::Cache "$apt/cache";
	APT::Sandbox::User "root";
	APT::Get::List-Cleanup "false";
	#clear APT::Update::Post-Invoke;
	#clear APT::Update::Post-Invoke-Success;
	END
	report "fetching lwIP's source ($LWIP_FILE) from Debian's archive"
	quietly "$apt/log" apt-get -q -c "$apt/apt.conf" update ||
		die "Debian's archive cannot be reached$way_out"
	(cd "$apt" && quietly "$apt/log" apt-get -q -c "$apt/apt.conf" \
		source --download-only --only-source "lwip/$LWIP_SUITE") ||
		die "lwIP's source could not be fetched$way_out"
	[ -f "$apt/$LWIP_FILE" ] ||
		die "Debian's archive has no $LWIP_FILE any more$way_out"
	mv "$apt/$LWIP_FILE" "$CACHE/$LWIP_FILE"
	rm -rf "$apt"
}

lwip_genuine() {
	echo "$LWIP_SHA256  $1" | sha256sum --check --status 2>/dev/null
}

setup_lwip() {
	[ -e "$LWIP_DIR/.complete" ] && return 0
	way_out="; the way out: get $LWIP_FILE (SHA-256 $LWIP_SHA256) elsewhere \
and run: LWIP_TARBALL=/path/to/$LWIP_FILE ./dev setup"
	mkdir -p "$CACHE"
	tarball=${LWIP_TARBALL:-$CACHE/$LWIP_FILE}
	[ -n "${LWIP_TARBALL:-}" ] || lwip_genuine "$tarball" || fetch_lwip
	[ -r "$tarball" ] || die "cannot read $tarball"
	lwip_genuine "$tarball" || die "$tarball has the wrong SHA-256$way_out"
	rm -rf "$LWIP_DIR"
	mkdir -p "$LWIP_DIR"
	tar -xJf "$tarball" -C "$LWIP_DIR" --strip-components=1 --no-same-owner
	ln -s ../packagefiles/lwip/meson.build "$LWIP_DIR/meson.build"
	touch "$LWIP_DIR/.complete"
	report "lwIP's source is in $LWIP_DIR"
}

setup_lwip
