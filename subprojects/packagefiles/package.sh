#!/bin/sh
# Builds .deb packages in build-package/: ./dev package. The packages that this
# needs are installed, and lwIP's source is in place.
set -eu
cd "$(dirname "$0")/../.."

LWIP_DIR=subprojects/lwip-2.2.1

. ./tests/shell.sh

# The version that meson.build has; what is not released sorts before it.
version() {
	sed -n "s/^  version: '\(.*\)',$/\1/p" meson.build
}

# source_files: what belongs to the sources, NUL after each; lwIP's as well.
source_files() {
	if git rev-parse --git-dir >/dev/null 2>&1; then
		git ls-files -z --cached --others --exclude-standard
	else
		find . -path './build*' -prune -o -path ./subprojects/packagecache -prune \
			-o -path "./$LWIP_DIR" -prune -o ! -type d -print0
	fi
	find "$LWIP_DIR" ! -type d -print0
}

# debian/ lies with what else packages; a package is built from a copy.
package() {
	tree=build-package/coronet
	rm -rf build-package
	mkdir -p "$tree"
	source_files | tar -c --null -T - | tar -x -C "$tree"
	mv "$tree/subprojects/packagefiles/debian" "$tree/debian"
	date=$(date -R -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null ||
		date +%s)}")
	cat >"$tree/debian/changelog" <<-END
	coronet ($(version)) unstable; urgency=medium

	  * See CHANGELOG.md.

	 -- the coronet authors <coronet@localhost>  $date
	END
	report "building packages; the log is build-package/log"
	(cd "$tree" && MESON_OPTIONS='--buildtype=release -Dlto=false' \
		quietly ../log dpkg-buildpackage -b -us -uc) ||
		die "the packages could not be built"
	rm -rf "$tree"
	ls build-package/*.deb
}

package
