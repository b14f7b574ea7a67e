#!/usr/bin/env python3
"""coronet-echo on a TAP with an address that dnsmasq or kea leases.

Usage: test_dhcp.py BUILD_DIR
dnsmasq leases no address for less than two minutes, so its lease has a short T1; that of kea runs
out.
"""

import functools
import re
import socket

import leases
from harness import WAIT_MAX_S, check, command, eventually, main
from leases import LEASED, PORT, Crowd, LeasedEcho, check_echo, check_echo_on, receive

SERVER = "10.9.0.1"
ROUTER = "10.9.0.254"
BESIDE = "172.31.0.1"
FAR = "192.0.2.0/24"
MAC = "02:00:00:00:00:40"
T1_S = 3
CROWD = 200  # connections
SHORT_S = 12  # of a lease; the stack takes none under ten seconds


def dnsmasq(env, tap, *more, router=ROUTER):
    return leases.dnsmasq(env, tap, [f"{SERVER}/16"], "--dhcp-authoritative",
                          f"--dhcp-option=option:T1,{T1_S}",
                          f"--dhcp-option=option:router,{router}", *more)


class Echo(LeasedEcho):
    def __init__(self, env, number, *more):
        super().__init__(env, "dhcp", number, *more)

    def lines(self, pattern):
        return [line for line in self.log.read_text().splitlines() if re.search(pattern, line)]

    def await_lease(self, server):
        eventually(lambda: f"{LEASED}/16" in self.addresses(), WAIT_MAX_S,
                   lambda: f"no lease: {self.addresses()}, {server.output('stderr')}")

    def await_renewal(self):
        eventually(lambda: self.lines("event=lease .*renewed=yes"), WAIT_MAX_S,
                   lambda: f"no renewal: {self.lines('event=')}")

    def await_end(self):
        eventually(lambda: self.lines("event=lease-lost"), WAIT_MAX_S,
                   lambda: f"the lease does not end: {self.lines('event=')}")
        check(not self.addresses(), self.addresses())


def leased(env, number):
    """The address is leased, echoes, and is renewed."""
    echo = Echo(env, number)
    with env.running(echo.argv), dnsmasq(env, echo.tap) as server:
        echo.await_lease(server)
        check("leased_until" in echo.addresses()[f"{LEASED}/16"], echo.addresses())
        check(echo.routes().get("0.0.0.0/0") == ROUTER, echo.routes())
        check_echo(LEASED, b"leased")
        echo.await_renewal()
        first = echo.lines("event=lease ")[0]
        check(f"address={LEASED}/16 server={SERVER} seconds=120" in first, first)
        check_echo(LEASED, b"renewed")


def routed(env, number):
    """Classless routes replace the router."""
    echo = Echo(env, number)
    option = f"--dhcp-option=121,{FAR},10.9.0.253"
    with env.running(echo.argv), dnsmasq(env, echo.tap, option) as server:
        echo.await_lease(server)
        check(echo.routes().get(FAR) == "10.9.0.253", echo.routes())
        check("0.0.0.0/0" not in echo.routes(), echo.routes())


def sharded(env, number):
    """Every shard has the address."""
    echo = Echo(env, number, "--shards", 2)
    with env.running(echo.argv), dnsmasq(env, echo.tap) as server:
        echo.await_lease(server)
        echo.check_shards(LEASED)


def kept(env, number):
    """A leased address is not removed by hand."""
    echo = Echo(env, number)
    with env.running(echo.argv), dnsmasq(env, echo.tap) as server:
        echo.await_lease(server)
        echo.check_kept(f"{LEASED}/16", "leased by DHCP")


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
        check_echo(LEASED, b"again")
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
        check_echo(LEASED, b"through the router")


def kea(env, tap):
    return leases.kea(env, tap, f"{SERVER}/16", SHORT_S, **{"option-data": [
        {"name": "routers", "data": ROUTER},
        {"name": "routes", "data": "18C000020A0900FD", "csv-format": False}]})


def run_out(env, number):
    """kea's lease is renewed, and ends without kea; its connection goes on with the next lease."""
    echo = Echo(env, number)
    with env.running(echo.argv):
        with kea(env, echo.tap) as server:
            echo.await_lease(server)
            check(echo.routes().get(FAR) == "10.9.0.253", echo.routes())
            sock = socket.create_connection((LEASED, PORT), timeout=WAIT_MAX_S)
            check_echo_on(sock, b"leased")
            echo.await_renewal()
        with sock:
            echo.await_end()
            check(FAR not in echo.routes(), echo.routes())
            sock.sendall(b"meanwhile")
            with kea(env, echo.tap) as server:
                echo.await_lease(server)
                check(receive(sock, 9) == b"meanwhile", "other bytes came back")
                check_echo_on(sock, b"leased again")


def run_out_under_load(env, number):
    """200 connections on two shards go on when the lease is back, or end if they are to; without
    their address nothing of them is lost or counted as ended."""
    echo = Echo(env, number, "--shards", 2)

    def total(name):
        return sum(row[name] for row in echo.ctl("shards"))

    with env.running(echo.argv) as program:
        with kea(env, echo.tap) as server:
            echo.await_lease(server)
            crowd = Crowd(LEASED, CROWD)
            crowd.more("with the lease")
            echo.await_renewal()
        with crowd:
            echo.await_end()
            crowd.end_sending(CROWD // 4)
            check(total("conns") == total("accepted") == CROWD, f"{echo.ctl('shards')}")
            with kea(env, echo.tap) as server:
                echo.await_lease(server)
                crowd.await_all(lambda i: crowd.ended[i] or i >= CROWD // 4, "ends")
                crowd.more("with the next lease")
                eventually(lambda: total("conns") == CROWD - CROWD // 4, WAIT_MAX_S,
                           lambda: f"ended connections stay: {echo.ctl('shards')}")
                check(total("accepted") == CROWD, f"{echo.ctl('shards')}")
                check(total("reset") == total("timed_out") == 0, f"{echo.ctl('shards')}")
        check(program.alive(), program.story())
        program.terminate()


def cases(env):
    for number, (name, function) in enumerate(
            (("an address is leased and renewed", leased), ("routes replace the router", routed),
             ("every shard has the address", sharded), ("a leased address stays", kept),
             ("a restart asks for its address", restarted),
             ("a router outside the network is on the link", beside),
             ("a connection outlives its lease", run_out),
             ("connections outlive their lease under load", run_out_under_load)), 1):
        yield name, functools.partial(function, env, number)


if __name__ == "__main__":
    main(cases)
