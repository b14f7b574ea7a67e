#!/usr/bin/env python3
"""coronet-echo on a TAP with an address that dnsmasq leases.

Usage: test_dhcp.py BUILD_DIR
The lease has a short T1, so that a renewal is seen; how leases end is tested in tests/net, since
dnsmasq leases no address for less than two minutes.
"""

import contextlib
import functools
import json
import re
import shutil
import socket
import subprocess

from harness import Skip, WAIT_MAX_S, check, command, eventually, main

PORT = 7777
SERVER = "10.9.0.1"
LEASED = "10.9.0.40"
ROUTER = "10.9.0.254"
BESIDE = "172.31.0.1"
FAR = "192.0.2.0/24"
MAC = "02:00:00:00:00:40"
T1_S = 3


@contextlib.contextmanager
def dnsmasq(env, tap, *more, router=ROUTER):
    """A server on the TAP's side of the kernel, which leases one address."""
    if not shutil.which("dnsmasq"):
        raise Skip("dnsmasq is not installed")
    command("ip", "addr", "add", f"{SERVER}/16", "dev", tap)
    command("ip", "link", "set", tap, "up")
    process = env.start(
        ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--port=0",
         f"--interface={tap}", "--bind-interfaces", "--dhcp-authoritative", "--no-ping",
         "--log-dhcp", f"--dhcp-range={LEASED},{LEASED},255.255.0.0,120",
         f"--dhcp-leasefile={env.scratch / (tap + '.leases')}", "--user=root",
         f"--dhcp-option=option:T1,{T1_S}", f"--dhcp-option=option:router,{router}", *more])
    try:
        yield process
    finally:
        process.kill()


class Echo:
    """coronet-echo on a TAP, without another address."""

    def __init__(self, env, number, *more):
        self.env = env
        self.tap = f"dh{number}"
        self.socket = env.scratch / f"control{number}"
        self.log = env.scratch / f"log{number}"
        self.argv = [env.app("coronet-echo"), "--link", f"tap:{self.tap}", "--addr", "dhcp",
                     "--port", PORT, "--poll", "adaptive", "--control", self.socket,
                     "--log-level", "coronet.link=info", "--log-to", self.log, *more]

    def ctl(self, *words):
        done = subprocess.run(
            [self.env.app("coronet-ctl"), "--control", self.socket, "--json", *words],
            check=False, capture_output=True, text=True)
        check(done.returncode == 0, f"coronet-ctl {words}: {done.stderr}")
        return json.loads(done.stdout)

    def addresses(self):
        return {row["address"]: row for row in self.ctl("addr")}

    def routes(self):
        return {row["to"]: row.get("via") for row in self.ctl("routes")}

    def lines(self, pattern):
        return [line for line in self.log.read_text().splitlines() if re.search(pattern, line)]

    def await_lease(self, server):
        eventually(lambda: f"{LEASED}/16" in self.addresses(), WAIT_MAX_S,
                   lambda: f"no lease: {self.addresses()}, {server.output('stderr')}")


def echoes(address, text):
    with socket.create_connection((address, PORT), timeout=WAIT_MAX_S) as sock:
        sock.sendall(text)
        got = b""
        while len(got) < len(text):
            part = sock.recv(100)
            check(part, "the connection ended")
            got += part
    check(got == text, f"sent {text}, received {got}")


def leased(env, number):
    """The address is leased, echoes, and is renewed."""
    echo = Echo(env, number)
    with env.running(echo.argv), dnsmasq(env, echo.tap) as server:
        echo.await_lease(server)
        check("leased_until" in echo.addresses()[f"{LEASED}/16"], echo.addresses())
        check(echo.routes().get("0.0.0.0/0") == ROUTER, echo.routes())
        echoes(LEASED, b"leased")
        eventually(lambda: echo.lines("event=lease .*renewed=yes"), WAIT_MAX_S,
                   lambda: f"no renewal: {echo.lines('event=')}")
        first = echo.lines("event=lease ")[0]
        check(f"address={LEASED}/16 server={SERVER} seconds=120" in first, first)
        echoes(LEASED, b"renewed")


def routed(env, number):
    """Classless routes replace the router."""
    echo = Echo(env, number)
    option = f"--dhcp-option=121,{FAR},10.9.0.253"
    with env.running(echo.argv), dnsmasq(env, echo.tap, option) as server:
        echo.await_lease(server)
        check(echo.routes().get(FAR) == "10.9.0.253", echo.routes())
        check("0.0.0.0/0" not in echo.routes(), echo.routes())


def sharded(env, number):
    """Every shard has the address: the ports of the connections choose one of them."""
    echo = Echo(env, number, "--shards", 2)
    with env.running(echo.argv), dnsmasq(env, echo.tap) as server:
        echo.await_lease(server)
        for i in range(16):
            echoes(LEASED, f"connection {i}".encode())
        taken = [row["accepted"] for row in echo.ctl("shards")]
        check(len(taken) == 2 and all(taken), f"connections of the shards: {taken}")


def kept(env, number):
    """A leased address is not removed by hand."""
    echo = Echo(env, number)
    with env.running(echo.argv), dnsmasq(env, echo.tap) as server:
        echo.await_lease(server)
        done = subprocess.run(
            [env.app("coronet-ctl"), "--control", echo.socket, "addr", "del", f"{LEASED}/16"],
            check=False, capture_output=True, text=True)
        check(done.returncode != 0 and "leased by DHCP" in done.stderr, done.stderr)
        check(f"{LEASED}/16" in echo.addresses(), echo.addresses())


def restarted(env, number):
    """The next start asks for the address of the last one."""
    echo = Echo(env, number, "--lease-dir", env.scratch)
    echo.argv[2] += f",mac={MAC}"
    file = env.scratch / "dhcp-1.lease"
    with env.running(echo.argv), dnsmasq(env, echo.tap) as server:
        echo.await_lease(server)
        eventually(file.exists, WAIT_MAX_S, "no lease file")
        check(file.stat().st_mode & 0o777 == 0o600, oct(file.stat().st_mode))
    text = file.read_text()
    check(text.startswith(f"coronet-lease 1 mac={MAC} address={LEASED} expires="), text)
    with env.running(echo.argv), dnsmasq(env, echo.tap) as server:
        echo.await_lease(server)
        seen = server.output("stderr")
        check("DHCPREQUEST" in seen and "DHCPDISCOVER" not in seen, seen)
        echoes(LEASED, b"again")
    file.write_text("nonsense\n")
    with env.running(echo.argv), dnsmasq(env, echo.tap) as server:
        echo.await_lease(server)
        check("DHCPDISCOVER" in server.output("stderr"), server.output("stderr"))
        check(len(echo.lines("is no lease file")) == 1, echo.lines("lease"))


def beside(env, number):
    """A router outside the network of a /32 is reached on the link."""
    echo = Echo(env, number)
    mask = "--dhcp-option=option:netmask,255.255.255.255"
    with env.running(echo.argv), dnsmasq(env, echo.tap, mask, router=BESIDE) as server:
        command("ip", "addr", "add", f"{BESIDE}/32", "dev", echo.tap)
        eventually(lambda: f"{LEASED}/32" in echo.addresses(), WAIT_MAX_S,
                   lambda: f"no lease: {echo.addresses()}, {server.output('stderr')}")
        check(echo.routes().get("0.0.0.0/0") == BESIDE, echo.routes())
        echoes(LEASED, b"through the router")


def cases(env):
    for number, (name, function) in enumerate(
            (("an address is leased and renewed", leased), ("routes replace the router", routed),
             ("every shard has the address", sharded), ("a leased address stays", kept),
             ("a restart asks for its address", restarted),
             ("a router outside the network is on the link", beside)), 1):
        yield name, functools.partial(function, env, number)


if __name__ == "__main__":
    main(cases)
