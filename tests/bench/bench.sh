#!/bin/sh
# Runs benchmarks of build/, which is built: ./dev bench [NAME [ARG...]]
set -eu
cd "$(dirname "$0")/../.."

. ./tests/shell.sh

# bench_programs: NAME PATH, a line each, of the benchmarks that are built.
bench_programs() {
	for program in build/tests/*/bench-*; do
		[ -f "$program" ] && [ -x "$program" ] &&
			echo "${program##*/bench-} $program"
	done
	return 0
}

name=${1:-all}
[ $# -eq 0 ] || shift
case $name in
all | quick | again | render | publish | -*) python3 tests/bench/matrix.py "$name" "$@" ;;
net) python3 tests/bench/bench_net.py "$@" ;;
loss) python3 tests/bench/bench_loss.py "$@" ;;
proxy) python3 tests/bench/bench_proxy.py build "$@" ;;
httpd) python3 tests/bench/bench_httpd.py build "$@" ;;
poll) python3 tests/bench/bench_poll.py build "$@" ;;
redis) python3 tests/bench/bench_redis.py build "$@" ;;
dns) python3 tests/bench/bench_dns.py build "$@" ;;
tls) python3 tests/bench/bench_tls.py build "$@" ;;
cores) python3 tests/bench/bench_cores.py "$@" ;;
*)
	program=$(bench_programs | sed -n "s/^$name //p")
	[ -n "$program" ] || die "no benchmark '$name'; there are: quick, again, render, publish, \
$(bench_programs | cut -d' ' -f1 | tr '\n' ' ')net loss proxy httpd poll redis dns tls cores"
	"$program" "$@"
	;;
esac
