#!/usr/bin/env python3
"""coronet-echo on a TAP with IPv6 addresses that it forms from advertisements of dnsmasq or radvd.

Usage: test_auto.py BUILD_DIR
dnsmasq advertises no lifetime of less than two minutes; those of radvd run out.
"""

import functools
import ipaddress
import re
import socket

import leases
from harness import WAIT_MAX_S, check, command, eventually, main
from leases import LEASED, PORT, LeasedEcho, check_echo, check_echo_on, receive

PREFIX = "fd77::/64"
ROUTER = "fd77::1"


def router(env, tap):
    """A router that advertises one prefix, and leases an IPv4 address."""
    return leases.dnsmasq(env, tap, [f"{ROUTER}/64", "10.9.0.1/16"], "--enable-ra",
                          "--dhcp-range=fd77::,ra-only,64,7200", f"--ra-param={tap},4,1800")


RADVD = """
interface {tap} {{
	AdvSendAdvert on;
	MinRtrAdvInterval 3;
	MaxRtrAdvInterval 4;
	AdvDefaultLifetime 10;
	AdvDefaultPreference high;
	prefix {prefix} {{
		AdvPreferredLifetime 10;
		AdvValidLifetime 15;
	}};
	RDNSS {router} {{
		AdvRDNSSLifetime 10;
	}};
}};
"""


def radvd(env, tap):
    """A router whose lifetimes are short."""
    config = env.scratch / f"{tap}.radvd"
    config.write_text(RADVD.format(tap=tap, prefix=PREFIX, router=ROUTER))
    return leases.server(env, tap, [f"{ROUTER}/64"],
                         ["radvd", "--nodaemon", "--logmethod=stderr", f"--config={config}",
                          f"--pidfile={env.scratch / (tap + '.pid')}"])


class Echo(LeasedEcho):
    def __init__(self, env, number, *more):
        super().__init__(env, "auto", number, *more)

    def find(self, network, state="preferred"):
        """Returns the address in a network that has this state, with its prefix; or None."""
        for text in self.addresses(state):
            if ipaddress.ip_interface(text).ip in ipaddress.ip_network(network):
                return text
        return None

    def await_address(self, process, network=PREFIX, state="preferred"):
        eventually(lambda: self.find(network, state), WAIT_MAX_S,
                   lambda: f"no address: {self.addresses()}, {process.output('stderr')}")
        return self.find(network, state)


def host(address):
    return address.split("/")[0]


def formed(env, number):
    """Addresses are formed, echo, have a default router, and cannot be removed by hand."""
    echo = Echo(env, number)
    with env.running(echo.argv), router(env, echo.tap) as process:
        address = echo.await_address(process)
        check(address.endswith("/64") and "ff:fe" not in address, address)
        check(re.match(r"\d{4}-", echo.addresses()[address]["leased_until"]), echo.addresses())
        check(echo.find("fe80::/64"), f"no link-local address: {echo.addresses()}")
        gateway = echo.routes().get("::/0", "")
        check(gateway.startswith("fe80::"), echo.routes())
        check_echo(host(address), b"formed")
        echo.check_kept(address, "formed by --addr auto")


def sharded(env, number):
    """Every shard has the addresses."""
    echo = Echo(env, number, "--shards", 2)
    with env.running(echo.argv), router(env, echo.tap) as process:
        address = echo.await_address(process)
        echo.check_shards(host(address))


def restarted(env, number):
    """The kernel has the address that the next start forms, so that one takes another."""
    echo = Echo(env, number, "--lease-dir", env.scratch)
    with env.running(echo.argv), router(env, echo.tap) as process:
        address = echo.await_address(process)
        file = env.scratch / "slaac.secret"
        check(file.stat().st_mode & 0o777 == 0o600, oct(file.stat().st_mode))
    with env.running(echo.argv), router(env, echo.tap) as process:
        check(echo.await_address(process) == address, f"{address}: {echo.addresses()}")
    with env.running(echo.argv):
        command("ip", "addr", "add", f"{host(address)}/64", "dev", echo.tap, "nodad")
        with router(env, echo.tap) as process:
            other = echo.await_address(process)
            check(other != address, f"{address} is the kernel's: {echo.addresses()}")
            log = echo.log.read_text()
            check(re.search(f"event=duplicate link=1 address={host(address)} mac=", log), log)
            check_echo(host(other), b"another one")


def beside_dhcp(env, number):
    """DHCP and SLAAC on one link."""
    echo = Echo(env, number, "--addr", "dhcp")
    with env.running(echo.argv), router(env, echo.tap) as process:
        check_echo(host(echo.await_address(process)), b"of IPv6")
        eventually(lambda: f"{LEASED}/16" in echo.addresses(), WAIT_MAX_S,
                   lambda: f"no lease: {echo.addresses()}, {process.output('stderr')}")
        check_echo(LEASED, b"of IPv4")


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


def run_out(env, number):
    """What radvd advertised ends without it; a connection goes on when radvd is back."""
    echo = Echo(env, number)
    with env.running(echo.argv):
        with radvd(env, echo.tap) as process:
            address = echo.await_address(process)
            check(echo.routes().get("::/0", "").startswith("fe80::"), echo.routes())
            sock = socket.create_connection((host(address), PORT), timeout=WAIT_MAX_S)
            check_echo_on(sock, b"formed")
        with sock:
            echo.await_address(process, state="deprecated")
            check_echo_on(sock, b"deprecated")
            eventually(lambda: "::/0" not in echo.routes(), WAIT_MAX_S,
                       lambda: f"the router does not expire: {echo.routes()}")
            eventually(lambda: address not in echo.addresses(), WAIT_MAX_S,
                       lambda: f"it does not expire: {echo.addresses()}")
            sock.sendall(b"meanwhile")
            with radvd(env, echo.tap) as process:
                check(echo.await_address(process) == address, echo.addresses())
                check(receive(sock, 9) == b"meanwhile", "other bytes came back")
                check_echo_on(sock, b"formed again")


def cases(env):
    for number, (name, function) in enumerate(
            (("addresses are formed", formed), ("every shard has the addresses", sharded),
             ("a restart forms the same address", restarted), ("DHCP runs beside it", beside_dhcp),
             ("a router withdraws itself", withdrawn),
             ("a connection outlives its address", run_out)), 1):
        yield name, functools.partial(function, env, number)


if __name__ == "__main__":
    main(cases)
