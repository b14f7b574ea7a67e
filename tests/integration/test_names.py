#!/usr/bin/env python3
"""Host names over a TAP: dnsmasq, unbound and knotd on the kernel answer net_resolve() and
net_dial_name().

Usage: test_names.py BUILD_DIR [CASE...]
"""

import contextlib
import functools
import os
import re
import socket
import subprocess

from harness import WAIT_MAX_S, check, command, eventually, main
from test_links import checksums_in_software
from web import need_programs

OURS, OURS6 = "10.9.0.1", "fd00:9::1"
KERNELS, KERNELS6 = "10.9.1.1", "fd00:9::2"
PORT = 5300
SECOND = 5301
SERVER = 7300
PATH = f"{os.environ['PATH']}:/usr/sbin"
MANY = 100


def make_link():
    """The stack's end is nm1. It stays for all cases."""
    command("ip", "link", "add", "nm0", "type", "veth", "peer", "name", "nm1")
    for end in ("nm0", "nm1"):
        checksums_in_software(end)
        command("ip", "link", "set", end, "up")
    command("ip", "addr", "add", f"{KERNELS}/16", "dev", "nm0")
    command("ip", "addr", "add", f"{KERNELS6}/64", "dev", "nm0", "nodad")


def dig(port, name):
    done = subprocess.run(["dig", f"@{KERNELS}", "-p", str(port), "+tries=1", "+time=1", "+short",
                           name], check=False, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


@contextlib.contextmanager
def server(env, argv, port):
    """Runs a name server, which knows ready.test."""
    program = env.start(argv, env={**os.environ, "PATH": PATH})
    try:
        eventually(lambda: dig(port, "ready.test") or not program.alive(), WAIT_MAX_S,
                   program.story)
        check(program.alive(), program.story())
        yield program
    finally:
        program.kill()


def dnsmasq(env, *more, port=PORT):
    hosts = env.scratch / "many"
    hosts.write_text("".join(f"192.0.2.{n} many.test\n" for n in range(1, MANY + 1)))
    return ["dnsmasq", "--no-daemon", "--log-facility=-", "--log-queries",
            "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file", "--user=root",
            f"--port={port}", f"--listen-address={KERNELS},{KERNELS6}", "--bind-interfaces",
            "--local=/test/", "--host-record=ready.test,192.0.2.99",
            "--host-record=both.test,192.0.2.7,2001:db8::7",
            "--host-record=four.test,192.0.2.8", "--cname=alias.test,both.test",
            f"--host-record=dial.test,{KERNELS},{KERNELS6}",
            f"--host-record=half.test,{KERNELS},2001:db8::9",
            f"--addn-hosts={hosts}", *more]


UNBOUND = """
server:
	interface: {kernels}@{port}
	access-control: 0.0.0.0/0 allow
	username: ""
	chroot: ""
	directory: "{scratch}"
	pidfile: ""
	use-syslog: no
	module-config: "iterator"
	do-daemonize: no
	local-zone: "test." static
	local-data: "ready.test. 60 IN A 192.0.2.99"
	local-data: "both.test. 60 IN A 192.0.2.7"
	local-data: "both.test. 60 IN AAAA 2001:db8::7"
	local-data: "four.test. 60 IN A 192.0.2.8"
{many}
"""


def unbound(env):
    conf = env.scratch / "unbound.conf"
    many = "\n".join(f'\tlocal-data: "many.test. 60 IN A 192.0.2.{n}"'
                     for n in range(1, MANY + 1))
    conf.write_text(UNBOUND.format(kernels=KERNELS, port=PORT, scratch=env.scratch, many=many))
    return ["unbound", "-d", "-c", conf]


KNOTD = """
server:
    listen: {kernels}@{port}
    rundir: {scratch}
database:
    storage: {scratch}
log:
  - target: stderr
    any: warning
zone:
  - domain: test
    storage: {scratch}
    file: test.zone
"""
ZONE = """
$TTL 60
@ SOA ns admin 1 3600 600 86400 60
@ NS ns
ns A {kernels}
ready A 192.0.2.99
both A 192.0.2.7
both AAAA 2001:db8::7
four A 192.0.2.8
alias CNAME both
{many}
"""


def knotd(env):
    """Authoritative: it offers no recursion."""
    conf = env.scratch / "knot.conf"
    conf.write_text(KNOTD.format(kernels=KERNELS, port=PORT, scratch=env.scratch))
    many = "\n".join(f"many A 192.0.2.{n}" for n in range(1, MANY + 1))
    (env.scratch / "test.zone").write_text(ZONE.format(kernels=KERNELS, many=many))
    return ["knotd", "-c", conf]


SERVERS = {"dnsmasq": lambda env: dnsmasq(env, "--edns-packet-max=512"), "unbound": unbound,
           "knotd": knotd}


def ask(env, resolvers, *words):
    """Runs tests/integration/names; returns its lines by their first word."""
    program = env.start([env.build / "tests/integration/names", "af_packet:nm1", f"{OURS}/16",
                         f"{OURS6}/64", resolvers, *words])
    check(program.process.wait(120) == 0, program.story())
    lines = program.output("stdout").splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines}


def check_result(results, word, *expected):
    got = [re.sub(r":0$", "", text).strip("[]") for text in results[word]]
    check(got == list(expected), f"{word}: {got}")


def answers(env, program):
    """Addresses of both families, aliases, missing names, and an answer too long for UDP."""
    need_programs(program, "dig")
    with server(env, SERVERS[program](env), PORT):
        results = ask(env, f"{KERNELS}:{PORT}", "both.test", "four.test", "four.test/6",
                      "none.test", "many.test/4", "alias.test")
    check_result(results, "both.test", "2001:db8::7", "192.0.2.7")
    check_result(results, "four.test", "192.0.2.8")
    check_result(results, "four.test/6", "ENODATA")
    check_result(results, "none.test", "ENOENT")
    check(len(results["many.test/4"]) == 16, f"{results['many.test/4']}")
    if program != "unbound":
        check_result(results, "alias.test", "2001:db8::7", "192.0.2.7")


def second_server(env):
    """A server that nobody runs is passed over; one over IPv6 answers. Nobody: an error."""
    need_programs("dnsmasq", "dig")
    with server(env, dnsmasq(env), PORT):
        results = ask(env, f"{KERNELS}:{SECOND},[{KERNELS6}]:{PORT}", "both.test")
    check_result(results, "both.test", "2001:db8::7", "192.0.2.7")
    check_result(ask(env, f"{KERNELS}:{SECOND}", "both.test"), "both.test", "EAGAIN")


def resolv_conf(env):
    """Without --resolver, resolv.conf and hosts decide."""
    need_programs("dnsmasq", "dig")
    files = {"resolv.conf": f"search test\nnameserver 127.0.0.53\nnameserver {KERNELS}\n",
             "hosts": "192.0.2.55 mine.test mine\n"}
    with contextlib.ExitStack() as stack:
        for name, text in files.items():
            path = env.scratch / name
            path.write_text(text)
            command("mount", "--bind", path, f"/etc/{name}")
            stack.callback(command, "umount", f"/etc/{name}")
        with server(env, dnsmasq(env, port=53), 53):
            results = ask(env, "-", "both", "mine", "four.test.")
    check_result(results, "both", "2001:db8::7", "192.0.2.7")
    check_result(results, "mine", "192.0.2.55")
    check_result(results, "four.test.", "192.0.2.8")


def dial(env):
    """A connection prefers IPv6, and uses IPv4 if no one answers there."""
    need_programs("dnsmasq", "dig")
    with server(env, dnsmasq(env), PORT), \
            socket.create_server(("::", SERVER), family=socket.AF_INET6, dualstack_ipv6=True):
        results = ask(env, f"{KERNELS}:{PORT}", f"dial.test:{SERVER}", f"half.test:{SERVER}",
                      f"dial.test:{SERVER + 1}", f"none.test:{SERVER}")
    check(results[f"dial.test:{SERVER}"] == [f"[{KERNELS6}]:{SERVER}"], f"{results}")
    check(results[f"half.test:{SERVER}"] == [f"{KERNELS}:{SERVER}"], f"{results}")
    check(results[f"dial.test:{SERVER + 1}"] == ["ECONNREFUSED"], f"{results}")
    check(results[f"none.test:{SERVER}"] == ["ENOENT"], f"{results}")


def load(env):
    """coronet-load finds its target by name, and reports a name that does not exist."""
    need_programs("dnsmasq", "dig")
    with server(env, dnsmasq(env), PORT), env.running(
            [env.app("epoll-echo"), "--addr", "0.0.0.0", "--port", SERVER]):
        for name, status in (("none.test", 1), ("dial.test", 0)):
            program = env.start([
                env.app("coronet-load"), "--link", "af_packet:nm1", "--addr", f"{OURS}/16",
                "--resolver", f"{KERNELS}:{PORT}", "--target", f"{name}:{SERVER}", "--conns", "4",
                "--seconds", "0.5", "--shards", "2", "--report-limited"])
            check(program.process.wait(60) == status, program.story())
            text = program.output("stderr")
            check(status == 0 or f"--target 'none.test:{SERVER}': no such name" in text, text)


def cases(env):
    make_link()
    for program in SERVERS:
        yield f"{program} answers", functools.partial(answers, env, program)
    for case in (second_server, resolv_conf, dial, load):
        yield case.__name__.replace("_", " "), functools.partial(case, env)


if __name__ == "__main__":
    main(cases)
