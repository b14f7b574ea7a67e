#!/usr/bin/env python3
"""Wrong command lines and machines that lack something.

Usage: test_bad_input.py BUILD_DIR
For every error a program prints one line on stderr that names the value, and nothing on stdout,
and exits with 2 (usage) or 1 (runtime).
"""

import functools
import os
import pathlib
import re
import shlex
import socket
import subprocess

from harness import Failure, Skip, check, main, preload_of

USAGE, RUNTIME = 2, 1
SECONDS = 60  # bounds a program's run, so that a hang fails

CORONET = ("coronet-echo", "coronet-load", "coronet-proxy", "coronet-httpd", "coronet-dns")
EPOLL = ("epoll-echo", "epoll-load", "epoll-proxy")
ECHO = ("coronet-echo", "epoll-echo")
LOAD = ("coronet-load", "epoll-load")
HTTPD = ("coronet-httpd",)
DNS = ("coronet-dns",)
PROXY = ("coronet-proxy", "epoll-proxy")

# Valid options besides the option under test. The link starts anywhere, so that no wrong value is
# masked by a missing NIC.
VALID = {
    "coronet-echo": ["--link", "ring:r0", "--addr", "10.9.0.1/16", "--port", "7777"],
    "coronet-load": ["--link", "ring:r0", "--addr", "10.9.1.9/16",
                     "--target", "10.9.0.1:7777", "--seconds", "1"],
    "coronet-proxy": ["--link", "ring:r0", "--addr", "10.9.0.1/16", "--port", "8080",
                      "--to", "10.9.0.2:80"],
    "epoll-echo": ["--addr", "127.0.0.1", "--port", "7777"],
    "coronet-httpd": ["--link", "ring:r0", "--addr", "10.9.0.1/16", "--port", "80"],
    "coronet-dns": ["--link", "ring:r0", "--addr", "10.9.0.1/16", "--port", "53",
                    "--zone", f"example.com={pathlib.Path(__file__).parent / 'dns.zone'}"],
    "epoll-proxy": ["--port", "8080", "--to", "10.9.0.2:80"],
    "epoll-load": ["--target", "127.0.0.1:7777", "--seconds", "1"],
}

NUMBERS = ["", "x", "-1", "1x", "0x10", "1.5", " 1", "99999999999999999999"]
SECONDS_VALUES = ["", "x", "-1", "1s", "nan", "inf", "1e3", "99999999999999999999"]

# Programs, option, wrong values.
WRONG_VALUES = [
    (CORONET, "--link", [
        "", "nosuch:x", "memif", "memif:", ":x", "tap:", "tap:sixteen-letters-", "vhost:",
        "memif:/tmp/e.sock,role=boss", "memif:/tmp/e.sock,colour=red", "memif:/tmp/e.sock,role",
        "memif:/tmp/e.sock,queue=0", "memif:/tmp/e.sock,queue=100", "memif:/tmp/e.sock,csum=maybe", "tap:ct0,csum=trust",
        "memif:/tmp/e.sock,mac=1", "memif:/tmp/e.sock,mac=01:00:00:00:00:01", "memif:/" + "x" * 200,
        "tap:ct0,role=server", "pci:nonsense", "pci:", "af_packet:", "pcap:in.pcap"]),
    (CORONET, "--addr", [
        "dhcp/24", "DHCP", "auto/64", "AUTO", "slaac",
        "", "banana", "10.9.0.1/33", "10.9.0.1/", "10.9.0.1/x", "10.9.0.1/-1", "10.9.0/16",
        "10.9.0.256/16", "fd00:9::1/129", "fd00:9::1/", "fd00:9:::1/64", "10.9.0.1/16/16",
        "224.0.0.1/4", "0.0.0.0/0", "255.255.255.255/32", "ff02::1/64", "::/64"]),
    (CORONET, "--exception", [
        "", "kern0", "tap:", "tap:sixteen-letters-", "tap:k,tcp=0", "tap:k,tcp=22+", "tap:k,udp=9-8",
        "tap:k,echo=yes", "tap:k,other=1", "tap:k,addr=no", "tap:k,rate=0", "tap:k,colour=red"]),
    (CORONET, "--capture", [
        "", ",packets=1", "/tmp/a,packets=0", "/tmp/a,packets=x", "/tmp/a,packets", "/tmp/a,bytes=1",
        "/tmp/a,bytes=1T", "/tmp/a,bytes=", "/tmp/a,snap=0", "/tmp/a,snap=9217", "/tmp/a,colour=red",
        "/tmp/a,packets=1,filters=tcp"]),
    (CORONET, "--log-level", [
        "", "loud", "0", "9", "Debug", "coronet.conn", "coronet.conn=", "=debug", "coronet.conn=debug,",
        "coronet.conn:debug", "coronet.con=debug", "pmd.net.none=debug"]),
    (CORONET, "--log-to", ["", "/none/log", "/tmp", "/etc/passwd/log"]),
    (CORONET, "--resolver", [
        "", ",", "banana", "10.9.0.53,", ",10.9.0.53", "10.9.0.53:0", "10.9.0.53:x", "0.0.0.0",
        "127.0.0.53", "224.0.0.1", "fd00::x", ",".join(["10.9.0.53"] * 9)]),
    (CORONET, "--lease-dir", ["", "/nonexistent", "/dev/null"]),
    (CORONET, "--gateway", ["", "banana", "10.9.0", "10.9.0.1/16", "fd00::x", "0.0.0.0"]),
    (CORONET, "--route", [
        "", "10.0.0.0/8", "10.0.0.1/8 via 10.9.0.1", "10.0.0.0/8 via", "10.0.0.0/8 via x",
        "10.0.0.0/8 via fd00::1", "default via 0.0.0.0", "default via 10.9.0.1 dev 0",
        "default via 10.9.0.1 dev 9", "default via 10.9.0.1 src", "default via 10.9.0.1 metric 1",
        "10.0.0.0/8 via 10.9.0.1 " + "x" * 300]),
    (CORONET, "--dad", ["", "maybe", "optimistic"]),
    (CORONET, "--mtu", [*NUMBERS, "0", "575", "9001"]),
    (CORONET, "--lcore", ["", "x", "1x", "4096", "99999999999999999999"]),
    (CORONET, "--poll", ["", "sideways", "BUSY"]),
    (CORONET, "--stats", SECONDS_VALUES),
    (CORONET, "--huge", ["", "maybe", "on"]),
    (CORONET, "--dpdk-prefix", ["", "a/b", "..", "x" * 33, "a b"]),
    (CORONET, "--rmem-max", ["", "6", "255K", "1025M", "6MB", "-1M", "6m"]),
    (CORONET, "--wmem-max", ["", "4", "255K", "65M", "4MB", "-1M", "4m"]),
    (CORONET, "--pmtud", ["", "maybe", "1"]),
    (CORONET, "--timestamps", ["", "maybe", "1", "ON"]),
    (CORONET, "--ecn", ["", "maybe", "1", "ON"]),
    (CORONET, "--cc", ["", "vegas", "BBR", "cubic,bbr"]),
    (CORONET, "--control", ["", "/" + "x" * 200]),
    (CORONET, "--trace-conns", [*NUMBERS, "100001"]),
    (CORONET, "--metrics", ["", "9464", "127.0.0.1", "127.0.0.1:0", "localhost:9464",
                            "127.0.0.1:65536", "::1:x"]),
    (CORONET, "--config", ["", "/nonexistent/coronet.conf", "/", "/dev/zero"]),
    (ECHO, "--port", [*NUMBERS, "65536"]),  # 0 is any free port with epoll-echo
    (("coronet-echo",), "--port", ["0"]),
    (EPOLL, "--threads", [*NUMBERS, "0", "257"]),
    (EPOLL, "--cpu", [*NUMBERS, "1024"]),
    (("epoll-echo",), "--addr", ["", "banana", "127.0.0.1/8", "127.0.0", "::x"]),
    (LOAD, "--target", [
        "", "banana", "banana:", "ba nana:7", "10.9.0:7", "10.9.0.1", "10.9.0.1:", ":7777",
        "10.9.0.1:0", "10.9.0.1:65536",
        "10.9.0.1:x", "fd00:9::1:7777x", "[fd00:9::1]", "[fd00:9::1]:0", "[10.9.0.1]:7777",
        "0.0.0.0:7777", "[::]:7777", "224.0.0.1:7777", "[ff02::1]:7777"]),
    (LOAD, "--mode", ["", "sideways", "Echo"]),
    (LOAD, "--conns", [*NUMBERS, "0"]),
    (LOAD, "--size", [*NUMBERS, "0"]),
    (LOAD, "--seconds", [*SECONDS_VALUES, "0"]),
    (LOAD, "--warmup", SECONDS_VALUES),
    (LOAD, "--ramp", SECONDS_VALUES),
    (LOAD, "--interval", SECONDS_VALUES),
    (LOAD, "--timeout", [*SECONDS_VALUES, "0"]),
    (LOAD, "--rate", [*NUMBERS, "1000000001"]),
    (PROXY, "--port", [*NUMBERS, "0", "65536"]),
    (PROXY, "--listen", [
        "", "banana", "10.9.0.1", "10.9.0.1:", ":80", "10.9.0.1:0", "10.9.0.1:65536",
        "[fd00:9::1]", "[10.9.0.1]:80", "*:80"]),
    (("coronet-proxy",), "--listen", [
        f"10.9.0.1:80,{key}" for key in (
            "", "rate", "rate=", "rate=0", "rate=x", "rate=1000001", "burst=5", "rate=5,burst=0",
            "rate=5,", "rate=5,burst=1000001", "colour=red", "rate=" + "0" * 200)]),
    (("epoll-proxy",), "--listen", ["10.9.0.1:80,rate=5", "10.9.0.1:80,"]),
    (PROXY, "--to", [
        "", "banana", "10.9.0.2", "10.9.0.2:0", "10.9.0.2:x", "fd00::1:80x", "0.0.0.0:80",
        "0.0.0.1:80", "[::]:80", "224.0.0.1:80", "255.255.255.255:80", "[ff02::1]:80",
        "[::ffff:0.0.0.0]:80"]),
    (("coronet-proxy",), "--to", ["10.9.0.1:80", "10.9.0.1:8080", "10.9.255.255:80", "10.9.0.0:80"]),
    (("coronet-proxy",), "--to", [
        "=10.9.0.2:80", "a b=10.9.0.2:80", "a=10.9.0.1:80", "x..example:80",
        *(f"10.9.0.2:80,{key}" for key in (
            "", "weight", "weight=-1", "weight=257", "maxconn=-1", "maxconn=x", "backup=yes",
            "state=up", "check=udp:", "check=dns:x", "check=http:x", "check=expect:", "send=x",
            "check=http:/up,send=x", "sni=", "sni=a|", "colour=red"))]),
    (("epoll-proxy",), "--to", ["a=10.9.0.2:80", "web.example:80", "10.9.0.2:80,weight=2"]),
    (("coronet-proxy",), "--queue", [*NUMBERS, "2000001"]),
    (("coronet-proxy",), "--queue-timeout", [*SECONDS_VALUES, "0"]),
    (("coronet-proxy",), "--retries", [*NUMBERS, "64"]),
    (("coronet-proxy",), "--retry-budget", [*NUMBERS, "6301"]),
    (("coronet-proxy",), "--eject-after", [*NUMBERS, "1000001"]),
    (("coronet-proxy",), "--eject-time", [*SECONDS_VALUES, "0"]),
    (("coronet-proxy",), "--slow-start", SECONDS_VALUES),
    (("coronet-proxy",), "--sticky", SECONDS_VALUES),
    (("coronet-proxy",), "--client-timeout", SECONDS_VALUES),
    (("coronet-proxy",), "--server-timeout", SECONDS_VALUES),
    (("coronet-proxy",), "--half-closed-timeout", SECONDS_VALUES),
    (("coronet-proxy",), "--keepalive", [*NUMBERS, "86401"]),
    (("coronet-proxy",), "--hello-timeout", [*SECONDS_VALUES, "0"]),
    (("coronet-proxy",), "--resolve-interval", [*SECONDS_VALUES, "0"]),
    (("coronet-proxy",), "--max-rate-per-source", [*NUMBERS, "0", "1000001"]),
    (("coronet-proxy", *HTTPD), "--access-log", [
        "", "/nonexistent/access", "/", "udp:", "udp:10.9.0.1", "udp:x:1", "unix:",
        "unix:/etc/passwd", "unix:/etc/passwd/log", f"unix:/{'a' * 120}"]),
    (("coronet-proxy", *HTTPD), "--access-log-format", ["", "xml", "JSON"]),
    *((("coronet-proxy",), option, [
        "", "banana", "10.9.0.0/33", "10.9.0.1/16", "10.9.0.0/", "10.9.0.0/16,", "fd00::1/64"])
      for option in ("--allow", "--deny", "--proxy-from")),
    (("epoll-proxy",), "--to", ["127.0.0.1:8080", "127.1.2.3:8080", "[::1]:8080"]),
    (PROXY, "--balance", ["", "RR", "random"]),
    (PROXY, "--send-proxy", ["", "v3", "1"]),
    (PROXY, "--over-limit", ["", "drop"]),
    (PROXY, "--connect-timeout", [*SECONDS_VALUES, "0"]),
    (PROXY, "--proxy-timeout", [*SECONDS_VALUES, "0"]),
    (PROXY, "--health-interval", SECONDS_VALUES),
    (PROXY, "--idle-timeout", SECONDS_VALUES),
    (PROXY, "--drain-timeout", SECONDS_VALUES),
    (PROXY, "--rise", [*NUMBERS, "0", "1001"]),
    (PROXY, "--fall", [*NUMBERS, "0"]),
    (PROXY, "--max-clients", [*NUMBERS, "0"]),
    (PROXY, "--max-clients-per-source", [*NUMBERS, "0"]),
    (PROXY, "--max-half-open", [*NUMBERS, "0"]),
    (("coronet-echo",), "--max-clients", [*NUMBERS, "0"]),
    (("coronet-echo",), "--max-clients-per-source", [*NUMBERS, "0"]),
    (HTTPD, "--max-clients", [*NUMBERS, "0"]),
    (HTTPD, "--max-clients-per-source", [*NUMBERS, "0"]),
    (HTTPD, "--max-half-open", [*NUMBERS, "0"]),
    (HTTPD, "--port", [*NUMBERS, "0", "65536"]),
    (HTTPD, "--root", ["", "/nonexistent/index.html", "/dev/null", "/dev/fd"]),
    (HTTPD, "--tls-cert", ["", "/nonexistent/cert.pem"]),
    (HTTPD, "--tls-port", ["0", "65536", "x"]),
    (HTTPD, "--max-handshakes", ["0", "x"]),
    (("coronet-echo", "coronet-httpd", "coronet-proxy"), "--tls-keylog",
     ["", "/nonexistent/keys.log", "/tmp"]),
    (HTTPD, "--hsts", ["0.5", "-1", "x"]),
    (HTTPD, "--mime-types", ["/nonexistent/mime.types", "/dev/zero"]),
    (HTTPD, "--rescan", [*SECONDS_VALUES, "0.001"]),
    (HTTPD, "--idle-timeout", [*SECONDS_VALUES, "0"]),
    (HTTPD, "--header-timeout", [*SECONDS_VALUES, "0"]),
    (HTTPD, "--send-timeout", [*SECONDS_VALUES, "0"]),
    (DNS, "--zone", ["", "x", "=x", "example.com=", "example.com=/nonexistent/zone",
                     "example.com=/dev/null", "a..b=/dev/null"]),
    (DNS, "--port", [*NUMBERS, "0", "65536"]),
    (DNS, "--rate-limit", [*NUMBERS, "1000001"]),
    (DNS, "--rate-slip", [*NUMBERS, "101"]),
    (DNS, "--idle-timeout", [*SECONDS_VALUES, "0"]),
    (DNS, "--max-clients", [*NUMBERS, "0"]),
    (DNS, "--max-clients-per-source", [*NUMBERS, "0"]),
    (LOAD, "--json", ["/nonexistent/result.json", "/"]),
]

RING = ["--link", "ring:r0", "--addr", "10.9.0.1/16"]

# Programs, a whole wrong command line, words that the error must name.
WRONG_LINES = [
    (CORONET + EPOLL, ["--nosuch"], "nosuch"),
    (CORONET + EPOLL, ["stray"], "stray"),
    (CORONET + EPOLL, ["-Z"], "Z"),
    (ECHO, ["--port"], "port"),
    (CORONET, ["--link"], "link"),
    (LOAD, ["--target"], "target"),
    (("coronet-load",), ["--link", "ring:r0", "--addr", "10.9.1.9/16"], "target"),
    (("epoll-load",), [], "target"),
    (("coronet-proxy",), ["--link", "ring:r0", "--addr", "10.9.1.9/16"], "to"),
    (("epoll-proxy",), [], "to"),
    (DNS, ["--link", "ring:r0", "--addr", "10.9.1.9/16"], "zone"),
    (("epoll-proxy",), ["--to", "10.9.0.2:80", "--cpu=1023"], "1023"),
    (PROXY, ["--to", "10.9.0.2:80", "--to", "10.9.0.2:80"], "10.9.0.2:80"),
    (PROXY, ["--to", "10.9.0.2:80", "--listen", "10.9.0.1:1", "--listen", "10.9.0.1:1"],
     "10.9.0.1:1"),
    (PROXY, ["--to", "10.9.7.7:81", "--to", "10.9.7.7:80", "--listen", "10.9.7.7:80"],
     "10.9.7.7:80"),
    (("epoll-proxy",), ["--to", "127.0.0.1:81", "--listen", "0.0.0.0:81"], "127.0.0.1:81"),
    (CORONET, ["--lcores", "0,0"], "CPU 0 is named twice"),
    (CORONET, ["--lcores", "3-1"], "ranges that begin with the smaller number"),
    (CORONET, ["--lcores", "0-"], "numbers and ranges of them"),
    (CORONET, ["--lcores", ""], "numbers and ranges of them"),
    (CORONET, ["--lcores", "5000"], "numbers from 0 to 1023"),
    (CORONET, ["--shards", "65"], "expected a whole number from 1 to 64"),
    (("coronet-echo",), [*RING, "--lcores", "0", "--shards", "2"], "--lcores names 1 CPU"),
    (CORONET, ["--lcores", "0-1,1"], "CPU 1 is named twice"),
    (("coronet-echo",), [*RING, "--lcores", "0-1,0"], "CPU 0 is named twice"),
    (("coronet-echo",), [*RING, "--lcores", "1023"], "1023"),
    (("coronet-echo",), [*RING, "--lcores", "0-1", "--shards", "3"], "--lcores names 2 CPUs"),
    (("coronet-echo",), ["--link", "tap:ct0,queues=3", "--addr", "10.9.0.1/16", "--shards", "2"],
     "queues=3 for only 2 shards"),
    (("coronet-echo",), ["--link", "tap:ct0,queues=2", "--addr", "10.9.0.1/16"],
     "queues=2 for only 1 shard"),
    (("coronet-echo",), ["--link", "tap:ct0,queues=17", "--addr", "10.9.0.1/16", "--shards", "20"],
     "tap has at most 16"),
    (PROXY, ["--accept-proxy=yes", "--to", "10.9.0.2:80"], "accept-proxy"),
    (("coronet-proxy",), ["--to", "a=10.9.0.2:80", "--to", "a=10.9.0.3:80"], "a=10.9.0.3:80"),
    (("epoll-proxy",), ["--to", "10.9.0.2:80", "--queue", "1"], "queue"),
]


class Expected:
    """The expected failure of a program."""

    def __init__(self, status, names=()):
        self.status = status
        self.names = names

    def compare(self, argv, done):
        details = f"{shlex.join(map(str, argv))}\nstatus {done.returncode}, stderr: {done.stderr}"
        check(done.returncode == self.status, f"expected status {self.status}: {details}")
        lines = done.stderr.strip("\n").split("\n")
        check(len(lines) == 1 and lines[0].strip(), f"expected one line: {details}")
        check(done.stdout == "", f"expected nothing on stdout, got {done.stdout!r}: {details}")
        for name in self.names:
            check(name in lines[0], f"expected a line that names '{name}': {details}")


def fails(argv, expected, **run_args):
    """Runs a program that must fail as expected."""
    try:
        done = subprocess.run([str(arg) for arg in argv], check=False, text=True, timeout=SECONDS,
                              stdin=subprocess.DEVNULL, capture_output=True, errors="replace",
                              **run_args)
    except subprocess.TimeoutExpired:
        raise Hang(f"{shlex.join(map(str, argv))} still runs after {SECONDS} s") from None
    expected.compare(argv, done)


def with_option(app, option, value):
    """Returns a valid command line, except for one option's value."""
    words = list(VALID[app])
    if option in words:
        at = words.index(option)
        del words[at:at + 2]
    return [*words, f"{option}={value}"]


class Hang(Failure):
    """A program accepted a wrong value and continued to serve."""


def all_of(checks):
    """Runs every check and reports each failed one; stops after one hang."""
    trouble = []
    for function in checks:
        try:
            function()
        except Failure as failure:
            trouble.append(str(failure))
            if isinstance(failure, Hang):
                break
    check(not trouble, f"{len(trouble)} of {len(checks)}:\n" + "\n".join(trouble))


def wrong_values(env, app, option, values):
    path = env.app(app)
    all_of([functools.partial(fails, [path, *with_option(app, option, value)],
                              Expected(USAGE, [option.lstrip("-"), value[:40]]))
            for value in values])


def wrong_line(env, app, words, name):
    fails([env.app(app), *words], Expected(USAGE, [name]))


def coronet(env, link, *words):
    return [env.app("coronet-echo"), "--link", link, "--addr", "10.9.0.1/16",
            "--port", "7777", *words]


def wrong_config_file(env):
    """A wrong line of a file is refused like an option, and the file is named."""
    checks = []
    for number, (text, name) in enumerate([
            ("nosuch = 1\n", "nosuch"), ("port = x\n", "x"), ("mtu\n", "mtu"),
            ("mtu = 0\n", "0"), ("= 3\n", "="), ("addr = banana\n", "banana"),
            ("config = other.conf\n", "config"), ("\0\1\2\xff\n" * 10, ""),
            ("link = \"tap:x\n", "quotes"), ("help\n", "help"), ("po = 1\n", "po"),
            ("mtu = 1#400\n", "1#400"),
            ("mtu = " + "9" * 100000 + "\n", "mtu"),
            ("#" * (1 << 20) + "\n", "too long")]):
        path = env.scratch / f"wrong-{number}.conf"
        path.write_text(text, encoding="latin-1")
        checks.append(functools.partial(
            fails, coronet(env, "ring:r0", "--config", path),
            Expected(USAGE, [name, str(path), "line 1: "])))
    all_of(checks)


def every_option_can_be_in_a_file(env, app):
    """A file accepts each option of --help, and an error names the line."""
    said = subprocess.run([env.app(app), "--help"], check=True, text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=SECONDS).stdout
    options = set(re.findall(r"^ +(?:-\w(?:=\S+)?, )?--([a-z][a-z-]*)", said, re.MULTILINE))
    options -= {"config", "help", "usage", "version"}
    tested = {option[2:] for apps, option, _ in WRONG_VALUES if app in apps} - {"config"}
    check(tested <= options, f"--help does not list {tested - options}")
    late = {"root", "mime-types", "json"}  # their values are refused later, when they are used
    opened = {"control", "capture"}  # valid, but cannot be created there
    checks = []
    for option in sorted(options):
        path = env.scratch / f"every-{app}-{option}.conf"
        path.write_text(f"# All of it wrong.\n{option} = /nonexistent/%\n")
        names = ([option, "/nonexistent/%"] if option in opened else [option] if option in late
                 else [option, str(path), "line 2: "])
        checks.append(functools.partial(fails, [env.app(app), *VALID[app], "--config", path],
                                        Expected(RUNTIME if option in opened else USAGE, names)))
    all_of(checks)


def switch_in_a_file(env):
    """accept-proxy takes no value on the command line; a file may give it one."""
    checks = []
    for number, (text, names) in enumerate([
            ("accept-proxy\nnosuch\n", ["line 2: ", "nosuch"]),
            ("accept-proxy = yes\nnosuch\n", ["line 2: ", "nosuch"]),
            ("accept-proxy = perhaps\n", ["line 1: ", "perhaps"])]):
        path = env.scratch / f"switch-{number}.conf"
        path.write_text(text)
        checks.append(functools.partial(
            fails, [env.app("coronet-proxy"), *VALID["coronet-proxy"], "--config", path],
            Expected(USAGE, names)))
    all_of(checks)


def option_given_twice_takes_the_last(env):
    """The last value wins, so a wrong one is an error even after a right one."""
    fails(coronet(env, "ring:r0", "--mtu", "1500", "--mtu", "x"), Expected(USAGE, ["mtu"]))


def eal_refuses(env):
    all_of([
        functools.partial(fails, coronet(env, "ring:r0", "--", "--nosuch-eal-option"),
                          Expected(RUNTIME, ["--"])),
        functools.partial(fails, coronet(env, "ring:r0", "--", "--vdev=net_nosuch0"),
                          Expected(RUNTIME)),
    ])


def socket_path_cannot_be_made(env):
    file = env.scratch / "file"
    file.write_text("not a socket\n")
    checks = []
    for kind in ("memif", "vhost"):
        for path in ("/nonexistent/e.sock", "/proc/e.sock", f"{file}/e.sock", file, env.scratch):
            checks.append(functools.partial(
                fails, coronet(env, f"{kind}:{path},role=server"), Expected(RUNTIME, [str(path)])))
    all_of(checks)
    check(file.read_text() == "not a socket\n", "a file that was no socket was overwritten")


def socket_folder_not_writable(env):
    user = env.ordinary_user()
    if not user:
        raise Skip("root of a user namespace may write there")
    build = env.readable_build(user)
    folder = env.scratch / "not-writable"
    folder.mkdir(mode=0o755)
    argv = coronet(env, f"memif:{folder}/e.sock,role=server")
    fails([build / "apps/coronet-echo", *argv[1:]], Expected(RUNTIME, [str(folder)]), **user)


def socket_in_use(env):
    path = env.scratch / "used.sock"
    link = f"memif:{path},role=server"
    with env.running(coronet(env, link)) as server:
        fails(coronet(env, link), Expected(RUNTIME, [str(path)]))
        check(server.alive(), "the first server did not survive the second")
        server.terminate()


def memif_client_without_server(env):
    """The client waits for a server for a bounded time."""
    path = env.scratch / "nobody.sock"
    link = f"memif:{path},role=client"
    fails(coronet(env, link), Expected(RUNTIME, [f"{path}: no server listens there", "role=server"]))
    with env.running(coronet(env, f"memif:{path},role=server")) as server:
        server.kill()
    fails(coronet(env, link), Expected(RUNTIME, [f"{path}: no server listens there", "role=server"]))


def memif_client_without_permission(env):
    user = env.ordinary_user()
    if not user:
        raise Skip("root of a user namespace may write to any socket")
    build = env.readable_build(user)
    path = env.scratch / "root.sock"
    with env.running(coronet(env, f"memif:{path},role=server")) as server:
        path.chmod(0o755)
        argv = coronet(env, f"memif:{path},role=client")
        fails([build / "apps/coronet-echo", *argv[1:]],
              Expected(RUNTIME, [f"{path}: Permission denied", "run as the server's user"]), **user)
        server.terminate()


def stale_socket_is_replaced(env):
    """The socket left by a killed server does not stop the next one."""
    path = env.scratch / "stale.sock"
    link = f"memif:{path},role=server"
    with env.running(coronet(env, link)) as server:
        server.kill()
    check(path.exists(), "the killed server left nothing behind, so this shows nothing")
    with env.running(coronet(env, link)) as server:
        server.terminate()


def tap_in_use(env):
    with env.running(coronet(env, "tap:busy0")):
        fails(coronet(env, "tap:busy0"), Expected(RUNTIME, ["busy0"]))


def port_in_use(env):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        fails([env.app("epoll-echo"), "--addr", "127.0.0.1", "--port", port],
              Expected(RUNTIME, [port]))


def address_of_another(env):
    fails([env.app("epoll-echo"), "--addr", "192.0.2.1", "--port", "7777"],
          Expected(RUNTIME, ["192.0.2.1"]))


def nothing_there(env):
    """Interfaces, sockets, devices and files that do not exist."""
    all_of([functools.partial(fails, coronet(env, link), Expected(RUNTIME, [name]))
            for link, name in [
                ("af_packet:nosuch0", "nosuch0"), ("af_xdp:nosuch0", "nosuch0"),
                ("pci:0000:ff:1f.7", "ff:1f.7"), ("vhost:/nonexistent/v.sock", "/nonexistent"),
                (f"vhost:{env.scratch}/nosuch.sock", "nosuch.sock"),
                ("pcap:/nonexistent/in.pcap,/tmp/out.pcap", "/nonexistent/in.pcap"),
                (f"pcap:{env.build}/meson-info/intro-tests.json,{env.scratch}/out.pcap", "pcap"),
                ("pcap:/dev/null,/nonexistent/out.pcap", "pcap")]])


def tun_device_missing(env):
    # /dev is almost always a mount: made private, it hides /dev/net in this namespace only.
    hide = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c",
            "mount --make-rprivate /dev && mount -t tmpfs none /dev/net && exec \"$@\"", "sh"]
    if subprocess.run([*hide, "true"], check=False, capture_output=True).returncode:
        raise Skip("/dev/net cannot be hidden here")
    fails([*hide, *coronet(env, "tap:ct9")], Expected(RUNTIME, ["/dev/net/tun"]))


def no_permission(env):
    """Without CAP_NET_ADMIN and CAP_NET_RAW."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    all_of([functools.partial(fails, [*drop, *coronet(env, link)],
                              Expected(RUNTIME, [link, "CAP_NET"]))
            for link in ("tap:ct9", "af_packet:lo")])


def cpu_outside_the_allowed_set(env):
    """One line names the CPU and the allowed ones, for any of the shards."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise Skip("there is one CPU")
    first, last = cpus[0], cpus[-1]
    all_of([functools.partial(
        fails, ["taskset", "-c", first, *coronet(env, "ring:r0", option, value)],
        Expected(USAGE, [f"--lcore {last}: ", f"may run on {first}"]))
        for option, value in (("--lcore", last), ("--lcores", last),
                              ("--lcores", f"{first},{last}"))])


def memory_for_all_shards(env):
    """Too little memory for every shard's frames and connections is refused."""
    needed = {}
    for shards in (1, 2, 8):
        argv = coronet(env, "ring:r0", "--shards", shards, "--memory")
        done = subprocess.run([*map(str, argv), "20M"], check=False, text=True, timeout=SECONDS,
                              stdin=subprocess.DEVNULL, capture_output=True)
        Expected(RUNTIME, ["--memory 20M: too little"]).compare([*argv, "20M"], done)
        needed[shards] = int(re.search(r"give (\d+)M or more", done.stderr)[1])
        fails([*argv, f"{needed[shards] - 8}M"], Expected(RUNTIME, ["too little"]))
        with env.running([*argv, f"{needed[shards] + 8}M"]) as server:
            server.terminate()
            check("too little" not in server.output("stderr"), server.story())
    check(needed[8] > needed[2] + 6 * 16, f"eight shards need as little as two: {needed}")


def a_thread_that_cannot_be_made(env):
    """A failure to create any thread gives one line and the exit status, without a hang."""
    argv = coronet(env, "ring:r0", "--shards", "3")
    library = env.build / "tests/integration/libfailing-thread.so"
    environment = {**os.environ, "LD_PRELOAD": preload_of(library)}
    with env.running(argv, env=environment) as server:
        threads = len(os.listdir(f"/proc/{server.process.pid}/task")) - 1
        server.terminate()
    check(threads >= 2, f"{threads} threads beside the first")
    all_of([functools.partial(fails, argv, Expected(RUNTIME, ["thread"]),
                              env={**environment, "FAILING_THREAD": str(n)})
            for n in range(1, threads + 1)])


def help_and_version(env, app):
    """Neither is an error; the help lists every option tested here."""
    options = [option for apps, option, _ in WRONG_VALUES if app in apps]
    for word in ("--help", "--version"):
        done = subprocess.run([env.app(app), word], check=False, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=SECONDS)
        check(done.returncode == 0, f"{word}: exit status {done.returncode}: {done.stderr}")
        check(done.stderr == "", f"{word} wrote to stderr: {done.stderr}")
        check(done.stdout.strip(), f"{word} printed nothing")
        if word == "--version":
            check(len(done.stdout.strip().split("\n")) == 1, f"not one line: {done.stdout}")
        else:
            missing = [option for option in options if option not in done.stdout]
            check(not missing, f"{word} does not list {', '.join(missing)}")


def cases(env):
    bind = functools.partial
    for app in CORONET + EPOLL:
        yield f"{app}: --help and --version", bind(help_and_version, env, app)
        for apps, option, values in WRONG_VALUES:
            if app in apps:
                yield (f"{app}: wrong {option}", bind(wrong_values, env, app, option, values))
        for apps, words, name in WRONG_LINES:
            if app in apps:
                yield (f"{app}: wrong line '{' '.join(words)}'",
                       bind(wrong_line, env, app, words, name))
    for app in CORONET:
        yield (f"{app}: every option can be in a file",
               bind(every_option_can_be_in_a_file, env, app))
    for function in (wrong_config_file, switch_in_a_file, option_given_twice_takes_the_last, eal_refuses,
                     socket_path_cannot_be_made, socket_folder_not_writable, socket_in_use,
                     memif_client_without_server, memif_client_without_permission, stale_socket_is_replaced, tap_in_use, port_in_use, address_of_another,
                     nothing_there, tun_device_missing, no_permission,
                     cpu_outside_the_allowed_set, memory_for_all_shards,
                     a_thread_that_cannot_be_made):
        yield function.__name__.replace("_", " "), bind(function, env)


if __name__ == "__main__":
    main(cases)
