#!/usr/bin/env python3
"""coronet-echo on a TAP with IPv6 addresses that dnsmasq's router advertisements let it form.

Usage: test_auto.py BUILD_DIR
How lifetimes end is tested in tests/net, since dnsmasq advertises none of less than two minutes.
"""

import contextlib
import functools
import ipaddress
import json
import re
import shutil
import socket
import subprocess

from harness import Skip, WAIT_MAX_S, check, command, eventually, main

PORT = 7777
PREFIX = "fd77::/64"
ROUTER = "fd77::1"
LEASED = "10.9.0.40"


@contextlib.contextmanager
def router(env, tap, *more):
    """A router on the TAP's side of the kernel, which advertises one prefix and leases."""
    if not shutil.which("dnsmasq"):
        raise Skip("dnsmasq is not installed")
    command("ip", "addr", "add", f"{ROUTER}/64", "dev", tap, "nodad")
    command("ip", "addr", "add", "10.9.0.1/16", "dev", tap)
    command("ip", "link", "set", tap, "up")
    process = env.start(
        ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--port=0",
         f"--interface={tap}", "--bind-interfaces", "--no-ping", "--log-dhcp", "--enable-ra",
         "--dhcp-range=fd77::,ra-only,64,7200", f"--ra-param={tap},4,1800",
         f"--dhcp-range={LEASED},{LEASED},255.255.0.0,120",
         f"--dhcp-leasefile={env.scratch / (tap + '.leases')}", "--user=root", *more])
    try:
        yield process
    finally:
        process.kill()


class Echo:
    """coronet-echo on a TAP, with --addr auto alone."""

    def __init__(self, env, number, *more):
        self.env = env
        self.tap = f"au{number}"
        self.socket = env.scratch / f"control{number}"
        self.log = env.scratch / f"log{number}"
        self.argv = [env.app("coronet-echo"), "--link", f"tap:{self.tap}", "--addr", "auto",
                     "--port", PORT, "--poll", "adaptive",
                     "--control", self.socket, "--log-level", "coronet.link=info",
                     "--log-to", self.log, *more]

    def ctl(self, *words):
        done = subprocess.run(
            [self.env.app("coronet-ctl"), "--control", self.socket, "--json", *words],
            check=False, capture_output=True, text=True)
        check(done.returncode == 0, f"coronet-ctl {words}: {done.stderr}")
        return json.loads(done.stdout)

    def rows(self, state=None):
        return {row["address"]: row for row in self.ctl("addr")
                if state in (None, row["state"])}

    def routes(self):
        return {row["to"]: row.get("via") for row in self.ctl("routes")}

    def find(self, network, state="preferred"):
        """Returns the address in a network that has this state, with its prefix; or None."""
        for text in self.rows(state):
            if ipaddress.ip_interface(text).ip in ipaddress.ip_network(network):
                return text
        return None

    def await_address(self, process, network=PREFIX, state="preferred"):
        eventually(lambda: self.find(network, state), WAIT_MAX_S,
                   lambda: f"no address: {self.rows()}, {process.output('stderr')}")
        return self.find(network, state)


def host(address):
    return address.split("/")[0]


def echoes(address, text):
    with socket.create_connection((host(address), PORT), timeout=WAIT_MAX_S) as sock:
        sock.sendall(text)
        got = b""
        while len(got) < len(text):
            part = sock.recv(100)
            check(part, "the connection ended")
            got += part
    check(got == text, f"sent {text}, received {got}")


def formed(env, number):
    """Addresses are formed, echo, have a default router, and cannot be removed by hand."""
    echo = Echo(env, number)
    with env.running(echo.argv), router(env, echo.tap) as process:
        address = echo.await_address(process)
        check(address.endswith("/64") and "ff:fe" not in address, address)
        check(re.match(r"\d{4}-", echo.rows()[address]["leased_until"]), echo.rows())
        check(echo.find("fe80::/64"), f"no link-local address: {echo.rows()}")
        gateway = echo.routes().get("::/0", "")
        check(gateway.startswith("fe80::"), echo.routes())
        echoes(address, b"formed")
        done = subprocess.run(
            [env.app("coronet-ctl"), "--control", echo.socket, "addr", "del", address],
            check=False, capture_output=True, text=True)
        check(done.returncode != 0 and "formed by --addr auto" in done.stderr, done.stderr)
        check(echo.find(PREFIX), echo.rows())


def sharded(env, number):
    """Every shard has the addresses: the ports of the connections choose one of them."""
    echo = Echo(env, number, "--shards", 2)
    with env.running(echo.argv), router(env, echo.tap) as process:
        address = echo.await_address(process)
        for i in range(16):
            echoes(address, f"connection {i}".encode())
        taken = [row["accepted"] for row in echo.ctl("shards")]
        check(len(taken) == 2 and all(taken), f"connections of the shards: {taken}")


def restarted(env, number):
    """The kernel has the address that the next start forms, so that one takes another."""
    echo = Echo(env, number, "--lease-dir", env.scratch)
    with env.running(echo.argv), router(env, echo.tap) as process:
        address = echo.await_address(process)
        file = env.scratch / "slaac.secret"
        check(file.stat().st_mode & 0o777 == 0o600, oct(file.stat().st_mode))
    with env.running(echo.argv), router(env, echo.tap) as process:
        check(echo.await_address(process) == address, f"{address}: {echo.rows()}")
    with env.running(echo.argv):
        command("ip", "addr", "add", f"{host(address)}/64", "dev", echo.tap, "nodad")
        with router(env, echo.tap) as process:
            other = echo.await_address(process)
            check(other != address, f"{address} is the kernel's: {echo.rows()}")
            log = echo.log.read_text()
            check(re.search(f"event=duplicate link=1 address={host(address)} mac=", log), log)
            echoes(other, b"another one")


def both(env, number):
    """DHCP and SLAAC on one link."""
    echo = Echo(env, number, "--addr", "dhcp")
    with env.running(echo.argv), router(env, echo.tap) as process:
        echoes(echo.await_address(process), b"of IPv6")
        eventually(lambda: f"{LEASED}/16" in echo.rows(), WAIT_MAX_S,
                   lambda: f"no lease: {echo.rows()}, {process.output('stderr')}")
        echoes(LEASED, b"of IPv4")


def withdrawn(env, number):
    """A router that ends withdraws itself and its prefix: the address is not preferred any more."""
    echo = Echo(env, number)
    with env.running(echo.argv):
        with router(env, echo.tap) as process:
            address = echo.await_address(process)
        command("ip", "addr", "del", f"{ROUTER}/64", "dev", echo.tap)
        message = (b"\x86\0\0\0\x40\0\0\0" + bytes(8) + b"\3\4\x40\xc0" + bytes(12)
                   + ipaddress.ip_network(PREFIX).network_address.packed)
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as sock:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
            sock.sendto(message, ("ff02::1", 0, 0, socket.if_nametoindex(echo.tap)))
        found = echo.await_address(process, PREFIX, "deprecated")
        check(found == f"{host(address)}/128", f"{found}: its network is not on the link any more")
        check("::/0" not in echo.routes(), echo.routes())
        check("router-lost link=1" in echo.log.read_text(), echo.log.read_text())


def cases(env):
    for number, (name, function) in enumerate(
            (("addresses are formed", formed), ("every shard has the addresses", sharded),
             ("a restart forms the same address", restarted), ("DHCP runs beside it", both),
             ("a router withdraws itself", withdrawn)), 1):
        yield name, functools.partial(function, env, number)


if __name__ == "__main__":
    main(cases)
