# Functions shared by ./dev and its scripts; to be sourced by sh.
# shellcheck shell=sh

CACHE=subprojects/packagecache

report() {
	echo "dev: $*"
}

die() {
	echo "dev: $*" >&2
	exit 1
}

# quietly LOG COMMAND...: keep the output to the log, show its end on failure.
quietly() {
	log=$1
	shift
	"$@" >"$log" 2>&1 && return 0
	tail -n 40 "$log" >&2
	return 1
}

# debian_mirror: the Debian archive that this machine's apt is configured with.
debian_mirror() {
	# shellcheck disable=SC2016 # apt's own variables
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
		2>/dev/null | grep -E -m1 '/debian/?$|/debian\.list/?$'
}

# missing_packages NAME...: those of the named packages that are not installed.
missing_packages() {
	command -v dpkg-query >/dev/null ||
		die "setup needs Debian 12 or later (no dpkg-query here)"
	installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" \
		2>/dev/null | sed -n 's/^installed //p')
	for package; do
		echo "$installed" | grep -qxF "$package" || echo "$package"
	done
}

install_packages() {
	# shellcheck disable=SC2046 # package names, one a word
	set -- $(missing_packages "$@")
	[ $# -gt 0 ] || return 0
	install="apt-get install --no-install-recommends $*"
	as_root=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null ||
			die "neither root nor sudo; ask an administrator to run: $install"
		as_root=sudo
	fi
	report "installing Debian packages${as_root:+ with sudo}: $*"
	mkdir -p "$CACHE"
	apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q"
	# A stale or unreachable list may still do: the install decides.
	# shellcheck disable=SC2086 # a command, one word each
	quietly "$CACHE/apt.log" $apt update ||
		report "apt-get update failed; going on with the lists there are"
	# shellcheck disable=SC2086
	quietly "$CACHE/apt.log" $apt install -y --no-install-recommends "$@" ||
		die "packages are missing; mend what apt says above, or run: $install"
}

# install_peers NAME...: install_packages, but a server that this brings is not
# to be one of the machine's services: tests run it, in namespaces of their own.
install_peers() {
	new=$(missing_packages "$@")
	install_packages "$@"
	for service in nginx haproxy prometheus redis-server memcached postgresql apache2 \
		lighttpd mosquitto rsync squid stunnel4 varnish vsftpd; do
		case $new in
		*$service*) $as_root systemctl disable --now $service >/dev/null 2>&1 || : ;;
		esac
	done
}
