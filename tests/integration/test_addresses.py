#!/usr/bin/env python3
"""Addresses and routes of a stack whose neighbour is the kernel, over a TAP.

Usage: test_addresses.py BUILD_DIR
Addresses are added and removed while connections use them; the kernel answers for addresses of its
own, learns announced ones, and is a gateway.
"""

import contextlib
import functools
import json
import re
import socket
import subprocess
import threading

from harness import WAIT_MAX_S, check, command, eventually, main
from leases import check_echo_on, receive

MOVED = {"IPv4": "10.9.0.7/16", "IPv6": "fd00:9::7/64"}
KERNELS = {"IPv4": "10.9.1.1/16", "IPv6": "fd00:9::2/64"}
FAR = {"IPv4": ("192.0.2.9", "192.0.2.0/24 via 10.9.1.1 src 10.9.0.2", "10.9.0.2"),
       "IPv6": ("2001:db8::9", "2001:db8::/32 via fd00:9::2 dev 1 src fd00:9::5", "fd00:9::5")}
STAYS = {"IPv4": "10.9.0.1/16", "IPv6": "fd00:9::1/64"}
OWN = ["--addr", STAYS["IPv4"], "--addr", STAYS["IPv6"]]
PORT = 7777
WRONG_MAC = "02:00:00:00:00:99"


class Echo:
    """coronet-echo on a TAP, whose other end has addresses of the kernel."""

    def __init__(self, env, number):
        self.env = env
        self.tap = f"ad{number}"
        self.socket = env.scratch / f"control{number}"
        self.argv = [env.app("coronet-echo"), "--link", f"tap:{self.tap}", *OWN, "--port", PORT,
                     "--poll", "adaptive", "--control", self.socket]

    @contextlib.contextmanager
    def serving(self):
        with self.env.running(self.argv):
            give_addresses(self.tap)
            yield self

    def ctl(self, *words):
        done = subprocess.run([self.env.app("coronet-ctl"), "--control", self.socket, *words],
                              check=False, capture_output=True, text=True)
        check(done.returncode == 0, f"coronet-ctl {words}: {done.stderr}")
        return done.stdout

    def refuses(self, *words, reason):
        done = subprocess.run([self.env.app("coronet-ctl"), "--control", self.socket, *words],
                              check=False, capture_output=True, text=True)
        check(done.returncode != 0 and re.search(reason, done.stderr),
              f"coronet-ctl {words}: {done.returncode}, {done.stderr}")

    def states(self):
        return {row["address"]: row["state"] for row in json.loads(self.ctl("--json", "addr"))}


def give_addresses(tap):
    for address in KERNELS.values():
        command("ip", "addr", "add", address, "dev", tap,
                *(["nodad"] if ":" in address else []))
    command("ip", "link", "set", tap, "up")


def host(address):
    return address.split("/", maxsplit=1)[0]


def connect(address):
    sock = socket.create_connection((host(address), PORT), timeout=WAIT_MAX_S)
    sock.settimeout(WAIT_MAX_S)
    return sock


def lost(sock):
    """Whether segments of a connection are not acknowledged (SIOCOUTQ counts bytes)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(info[24:28], "little") > 0  # tcpi_unacked


def moving(env, number, family):
    """A connection goes on after its address was away; others never notice."""
    address = MOVED[family]
    with Echo(env, number).serving() as echo, connect(STAYS[family]) as other:
        check(address not in echo.states(), "it has the address already")
        echo.ctl("addr", "add", address, "dev", "1")
        with connect(address) as sock:
            check_echo_on(sock, b"before")
            echo.ctl("addr", "del", address)
            check(address not in echo.states(), f"it still has {address}")
            sock.sendall(b"meanwhile")
            eventually(lambda: lost(sock), WAIT_MAX_S, "the bytes were acknowledged")
            check_echo_on(other, b"of another address")
            echo.ctl("addr", "add", address)
            check(receive(sock, 9) == b"meanwhile", "other bytes came back")
            check_echo_on(sock, b"after")
        conflicts = echo.ctl("addr")
        check("duplicate" not in conflicts, conflicts)


def duplicate(env, number, family):
    """The kernel has the address that is added: it is withdrawn, and the program goes on."""
    with Echo(env, number).serving() as echo:
        # The only probe finds the kernel's address only if that is in use already.
        with connect(STAYS[family]) as sock:
            echo.ctl("addr", "add", KERNELS[family])
            eventually(lambda: echo.states().get(KERNELS[family]) == "duplicate", WAIT_MAX_S,
                       lambda: f"no conflict: {echo.states()}")
            check_echo_on(sock, b"goes on")
        echo.ctl("addr", "del", KERNELS[family])
        check(KERNELS[family] not in echo.states(), "it is still listed")


def announced(env, number, family):
    """The kernel, which believes in another MAC, learns the right one without asking."""
    address = MOVED[family]
    with Echo(env, number).serving() as echo:
        command("ip", "neigh", "replace", host(address), "lladdr", WRONG_MAC, "dev", echo.tap,
                "nud", "stale")
        echo.ctl("addr", "add", address)

        def entry():
            return command("ip", "neigh", "show", host(address), "dev", echo.tap)

        eventually(lambda: "lladdr" in entry() and WRONG_MAC not in entry(), WAIT_MAX_S,
                   lambda: f"it was not learnt: {entry()}")


class FarServer(threading.Thread):
    """Echoes one connection at an address behind the kernel, and notes where it comes from."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.listener = socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.port = self.listener.getsockname()[1]
        self.peers = set()
        self.start()

    def run(self):
        while True:
            try:
                sock, peer = self.listener.accept()
            except OSError:
                return
            self.peers.add(peer[0])
            threading.Thread(target=self.echo, args=(sock,), daemon=True).start()

    def close(self):
        """Ends the thread first: it would accept from the socket that gets the number next."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.join()
        self.listener.close()

    @staticmethod
    def echo(sock):
        with sock, contextlib.suppress(OSError):
            while data := sock.recv(65536):
                sock.sendall(data)


def routed(env, number, family):
    """A proxy reaches a backend behind the kernel by --route, from the address that src names."""
    far, route, source = FAR[family]
    tap = f"ad{number}"
    command("ip", "addr", "add", far, "dev", "lo", *(["nodad"] if ":" in far else []))
    server = FarServer(far)
    config = env.scratch / f"proxy{number}.conf"
    config.write_text(f"route = {route}\n")
    target = f"[{far}]:{server.port}" if ":" in far else f"{far}:{server.port}"
    control = env.scratch / f"routes{number}"
    with env.running([env.app("coronet-proxy"), "--link", f"tap:{tap}", *OWN,
                      "--addr", "10.9.0.2/16", "--addr", "fd00:9::5/64", "--config", config,
                      "--port", PORT, "--to", target, "--poll", "adaptive",
                      "--control", control]):
        give_addresses(tap)
        with connect(STAYS[family]) as sock:
            check_echo_on(sock, b"far")
        check(server.peers == {source}, f"connections come from {server.peers}")
        routes = json.loads(command(env.app("coronet-ctl"), "--control", control, "--json",
                                    "routes"))
        check(any(row.get("from") == source and "via" in row for row in routes), routes)
    server.close()


def changed(env, number, family):
    """A connection from behind the kernel goes on after its route was away."""
    far, route, _ = FAR[family]
    words = route.split(" src ")[0].split()
    command("ip", "addr", "replace", far, "dev", "lo", *(["nodad"] if ":" in far else []))
    with Echo(env, number).serving() as echo:
        echo.ctl("route", "add", *words)
        with socket.create_connection((host(STAYS[family]), PORT), WAIT_MAX_S, (far, 0)) as sock:
            check_echo_on(sock, b"before")
            echo.ctl("route", "del", " ".join(words))
            sock.sendall(b"meanwhile")
            eventually(lambda: lost(sock), WAIT_MAX_S, "the bytes were acknowledged")
            echo.ctl("route", "add", *words)
            check(receive(sock, 9) == b"meanwhile", "other bytes came back")
            check_echo_on(sock, b"after")


def refused(env, number):
    """Wrong words are refused by name."""
    with Echo(env, number).serving() as echo:
        for words, reason in ((["add", "10.9.0.1/16"], "has 10.9.0.1 already"),
                              (["del", "10.9.0.9/16"], "does not have 10.9.0.9/16"),
                              (["add", "10.9.0.9"], "expected an address and the bits"),
                              (["add", "224.0.0.1/8"], "expected an address and the bits"),
                              (["add", "10.9.0.9/16", "dev", "2"], "there is no link 2"),
                              (["add", "10.9.0.9/16", "dev", "0"], "and a link"),
                              (["add", "10.9.0.9/16", "on", "1"], "expected dev")):
            echo.refuses("addr", *words, reason=reason)
        for words, reason in ((["add", "192.0.2.0/24", "via", "10.9.0.1", "dev", "2"],
                               "192.0.2.0/24 via 10.9.0.1: there is no such link"),
                              (["add", "192.0.2.1/24", "via", "10.9.1.1"], "bits after the prefix"),
                              (["add", "default via 192.0.2.1"], "no address has a network"),
                              (["del", "default via 10.9.1.1"], "there is no such route"),
                              (["add", "default"], "expected via GATEWAY")):
            echo.refuses("route", *words, reason=reason)


def cases(env):
    number = 0
    for name, function in (("an address moves", moving), ("the kernel has it", duplicate),
                           ("the kernel learns its MAC", announced),
                           ("a network behind a gateway", routed),
                           ("a route changes", changed)):
        for family in MOVED:
            number += 1
            yield f"{name}, {family}", functools.partial(function, env, number, family)
    yield "wrong changes are refused", functools.partial(refused, env, number + 1)


if __name__ == "__main__":
    main(cases)
