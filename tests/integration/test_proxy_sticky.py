#!/usr/bin/env python3
"""coronet-proxy --sticky: a client keeps its backend, whatever happens to the others.

Usage: test_proxy_sticky.py BUILD_DIR [CASE...]
"""

import contextlib
import socket
import ssl
import struct
import threading
import time

from certs import client_context, make_pair
from harness import WAIT_MAX_S, check, chosen, command, eventually, linger, main
from proxies import V2_SIGNATURE, Peer, Tap, dial_proxy, send_name
from steering import Config, backend_name
from test_proxy_control import Control, metric
from web import run_curl

SHARDS = ["--shards", "2"]
PAGE = "127.0.0.1:9467"
NO_CHECKS = ["--health-interval", "0"]
CLIENTS = [f"10.9.2.{i}" for i in range(1, 13)]


class Names(contextlib.ExitStack):
    """Backends that send their names."""

    def __init__(self, kind, *names):
        super().__init__()
        self.peers = {name: self.enter_context(Peer(kind, send_name(name.encode())))
                      for name in names}

    def to(self, *names, keys=""):
        return [word for name in names for word in ("--to", f"{self.spec(name)}{keys}")]

    def spec(self, name):
        return f"{name}={self.peers[name].at}"


@contextlib.contextmanager
def serving(env, kind, *options, sticky="60"):
    """Runs a proxy whose clients may have any of the addresses CLIENTS."""
    with kind.serve(env, *options, "--sticky", sticky, *SHARDS, "--metrics", PAGE) as proxy:
        for address in CLIENTS:
            command("ip", "addr", "add", f"{address}/16", "dev", f"cp{kind.count}")
        yield proxy


def name_of(kind, client, **where):
    with dial_proxy(kind, source=client, **where) as sock:
        return sock.recv(64).decode()


def names_of(kind):
    return {client: name_of(kind, client) for client in CLIENTS}


def check_kept(kind, before, turns=6):
    """Checks that the clients have the backends of before, on whatever shard they arrive."""
    for _ in range(turns):
        now = names_of(kind)
        check(now == before, f"{before} became {now}")


def page():
    return run_curl(f"http://{PAGE}/metrics")


def client_keeps_its_backend(env, kind):
    """Whatever joins, leaves or changes its weight, clients of the others stay where they are."""
    control = Control(env)
    with Names(kind, "a", "b", "c", "d") as names, serving(
            env, kind, *names.to("a", "b", "c"), *control.options, *NO_CHECKS):
        before = names_of(kind)
        check(set(before.values()) == {"a", "b", "c"}, f"the clients are not spread: {before}")
        check_kept(kind, before)
        control("backend", "add", names.spec("d") + ",weight=100")
        check_kept(kind, before)
        for backend, weight in (("d", "0"), ("a", "1"), ("b", "200")):
            control("backend", "weight", backend, weight)
            check_kept(kind, before, turns=3)
        control("backend", "remove", "c")
        kept = {client: name for client, name in before.items() if name != "c"}
        after = names_of(kind)
        check({client: after[client] for client in kept} == kept, f"{before} became {after}")
        check("c" not in after.values(), f"{after}")
        control("backend", "add", names.spec("c") + ",weight=100")
        check_kept(kind, after)
        text = page()
        check(metric(text, "coronet_proxy_sticky_entries") == len(CLIENTS), "entries")
        hits, accepts = (metric(text, f"coronet_proxy_{name}_total")
                         for name in ("sticky_hits", "accepts"))
        moved = list(before.values()).count("c")
        check(hits == accepts - len(CLIENTS) - moved, f"{hits} hits of {accepts}, {moved} moved")
        check(metric(text, "coronet_proxy_sticky_displaced_total") == 0, "displaced")


def entry_ends_with_its_backend(env, kind):
    """A drained, weightless or removed backend loses its clients, also if it comes back."""
    control = Control(env)
    with Names(kind, "a", "b") as names, serving(
            env, kind, *names.to("a", "b"), *control.options, *NO_CHECKS):
        ends = [(lambda name: control("backend", name, "drain"),
                 lambda name: control("backend", name, "ready")),
                (lambda name: control("backend", name, "down"),
                 lambda name: control("backend", name, "ready")),
                (lambda name: control("backend", "weight", name, "0"),
                 lambda name: control("backend", "weight", name, "1")),
                (lambda name: control("backend", "remove", name),
                 lambda name: control("backend", "add", names.spec(name)))]
        for end, begin in ends:
            before = name_of(kind, CLIENTS[0])
            end(before)
            after = name_of(kind, CLIENTS[0])
            check(after != before, f"{before} has been ended")
            begin(before)
            for _ in range(4):
                check(name_of(kind, CLIENTS[0]) == after, "it went back")


def entry_ends_when_checks_fail(env, kind):
    """A backend whose checks fail loses its clients, also if they return when it is up again."""
    control = Control(env)
    with Names(kind, "a") as names, serving(
            env, kind, *names.to("a"), *control.options, "--health-interval", "2", "--rise", "1",
            "--fall", "1"):
        check(name_of(kind, CLIENTS[0]) == "a", "not a")
        check(metric(page(), "coronet_proxy_sticky_entries") == 1, "no entry")
        peer = names.peers["a"]
        peer.__exit__()
        eventually(lambda: control.backend("a")["health"] == "down", WAIT_MAX_S, "it is up")
        with Peer(kind, send_name(b"a"), port=peer.port):
            eventually(lambda: control.backend("a")["health"] == "up", WAIT_MAX_S, "down")
            check(metric(page(), "coronet_proxy_sticky_entries") == 0, "the entry stays")


def failed_connect_moves_the_client(env, kind):
    """A client whose backend refuses a connection gets another one at once, and keeps that."""
    with Names(kind, "a", "b") as names, serving(env, kind, *names.to("a", "b"), *NO_CHECKS,
                                                 "--eject-after", "0"):
        before = name_of(kind, CLIENTS[0])
        peer = names.peers[before]
        peer.__exit__()
        after = name_of(kind, CLIENTS[0])
        check(after not in ("", before), f"after {before}: {after}")
        with Peer(kind, send_name(before.encode()), port=peer.port):
            for _ in range(4):
                check(name_of(kind, CLIENTS[0]) == after, "it went back")


def entry_ends_in_time(env, kind):
    """The time begins when a session begins, and again when it ends."""
    with Names(kind, "a", "b") as names, serving(env, kind, *names.to("a", "b"), *NO_CHECKS,
                                                 sticky="1"):
        client = CLIENTS[0]

        def changes():
            """In turn, each of the two shards chooses a or b for a client that it does not
            know."""
            before = name_of(kind, client)
            linger(1.2)
            return name_of(kind, client) != before
        eventually(changes, WAIT_MAX_S, "the client is known for ever")

        def remembered():
            """Looks within the second after a session that was longer. False: it was too late."""
            with dial_proxy(kind, source=client) as sock:
                before = sock.recv(64).decode()
                linger(1.5)
                ended = time.monotonic()
                sock.shutdown(socket.SHUT_WR)
                check(sock.recv(1) == b"", "no end")
            eventually(lambda: metric(page(), "coronet_proxy_sessions") == 0, WAIT_MAX_S, "no end")
            found = metric(page(), "coronet_proxy_sticky_entries") == 1
            in_time = time.monotonic() < ended + 1
            check(found or not in_time, f"forgotten after {before}")
            return in_time
        eventually(remembered, WAIT_MAX_S, "the page is always late")


def full_backend_is_waited_for(env, kind):
    """A client whose backend is at its maxconn waits for it; others do not wait behind it."""
    control = Control(env)
    with Names(kind, "a", "b") as names, serving(
            env, kind, *names.to("a", keys=",maxconn=1"), *names.to("b"), *control.options,
            *NO_CHECKS, "--queue-timeout", "100"), contextlib.ExitStack() as later:
        control("backend", "b", "drain")
        first = later.enter_context(dial_proxy(kind, source=CLIENTS[0]))
        check(first.recv(64) == b"a", "not a")
        control("backend", "b", "ready")
        second = later.enter_context(dial_proxy(kind, source=CLIENTS[0]))
        eventually(lambda: "queue: 1 wait" in control("backends"), WAIT_MAX_S,
                   lambda: control("backends"))
        for client in CLIENTS[1:]:
            check(name_of(kind, client) == "b", "others wait")
        first.close()
        check(second.recv(64) == b"a", "another backend")


def header_names_the_client(env, kind):
    """With --accept-proxy the client is the source in the header; IPv6 clients count by /64."""

    def ask(source, version4=True):
        family = socket.AF_INET if version4 else socket.AF_INET6
        block = socket.inet_pton(family, source) + socket.inet_pton(
            family, "192.0.2.2" if version4 else "2001:db8::2") + struct.pack(">HH", 1000, 2000)
        with dial_proxy(kind) as sock:
            sock.sendall(V2_SIGNATURE + (b"\x21\x11" if version4 else b"\x21\x21") +
                         struct.pack(">H", len(block)) + block)
            return sock.recv(64)

    with Names(kind, "a", "b", "c") as names, serving(
            env, kind, *names.to("a", "b", "c"), "--accept-proxy", *NO_CHECKS):
        clients = [f"192.0.2.{i}" for i in range(10, 40)]
        before = {client: ask(client) for client in clients}
        check(len(set(before.values())) == 3, f"not spread: {before}")
        for _ in range(3):
            for client in clients:
                check(ask(client) == before[client], f"{client} has moved")
        for net in range(8):
            first = ask(f"2001:db8:0:{net}::1", False)
            for host in range(2, 8):
                check(ask(f"2001:db8:0:{net}:{host}::{host}", False) == first, f"net {net}")
        mapped = {client: ask(f"::ffff:{client}", False) for client in clients}
        check(mapped == before, "a mapped address is another client")
        entries = metric(page(), "coronet_proxy_sticky_entries")
        check(entries == len(clients) + 8, f"{entries} entries")


def flood_has_a_bound(env, kind):
    """Many sources are counted, and take no more memory than the table has."""
    with Names(kind, "a", "b") as names, serving(
            env, kind, *names.to("a", "b"), "--accept-proxy", *NO_CHECKS) as proxy:
        def ask(number):
            with dial_proxy(kind) as sock:
                sock.sendall(f"PROXY TCP4 11.{number >> 8}.{number & 255}.1 192.0.2.2 1 2\r\n"
                             .encode())
                check(sock.recv(1) in (b"a", b"b"), "no backend")
        for _ in range(2000):  # for the memory of connections
            ask(0)
        before = proxy.resident_bytes()
        for number in range(1, 4000):
            ask(number)
        entries = metric(page(), "coronet_proxy_sticky_entries")
        check(entries == 4000, f"{entries} entries of 4000")
        grown = proxy.resident_bytes() - before
        check(grown < 8 << 20, f"it takes {grown} bytes")


def udp_and_tcp_share_clients(env, kind):
    """A client has one backend for both; a UDP client whose backend is full gets another one."""
    control = Control(env)

    def serve(sock, name):
        with contextlib.suppress(OSError):
            while True:
                _, peer = sock.recvfrom(2048)
                sock.sendto(name, peer)

    def ask(client):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(WAIT_MAX_S)
            sock.bind((client, 0))
            sock.connect((kind.host, 7000))
            sock.send(b"?")
            return sock.recv(64).decode()

    with Names(kind, "a", "b") as names, contextlib.ExitStack() as later:
        for name, peer in names.peers.items():
            sock = later.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
            sock.bind((kind.near, peer.port))
            threading.Thread(target=serve, args=(sock, name.encode()), daemon=True).start()
        later.enter_context(serving(env, kind, *names.to("a", "b"), *NO_CHECKS, "--listen",
                                    "udp:10.9.0.1:7000", *control.options))
        for client in CLIENTS[:6]:
            first = ask(client)
            for _ in range(6):
                check(ask(client) == first, f"{client} has moved")
            check(name_of(kind, client) == first, "TCP goes elsewhere")
        for client in CLIENTS[6:]:
            first = name_of(kind, client)
            for _ in range(6):
                check(ask(client) == first, "UDP goes elsewhere")
        other = {"a": "b", "b": "a"}[first]
        control("backend", "remove", first)
        control("backend", "add", names.spec(first) + ",maxconn=1")
        control("backend", "remove", other)
        check(ask(client) == first, "no backend")
        control("backend", "add", names.spec(other))
        check(ask(client) == other, "full, and no other")
        check(ask(client) == other, "full, and no other")


def tls_clients_are_kept(env, kind):
    """Clients of tls: keep their backend; one for each group of server names."""
    cert, key = make_pair(env, "front", "DNS:a.test", "DNS:b.test")
    context = client_context(env)

    def ask(name):
        with dial_proxy(kind, 8443) as raw, \
                context.wrap_socket(raw, server_hostname=name) as sock:
            data = sock.recv(64).decode()
            with contextlib.suppress(OSError, ssl.SSLError):
                sock.unwrap()
            return data

    with Names(kind, "a1", "a2", "b1", "b2") as names, kind.serve(
            env, *names.to("a1", "a2", keys=",sni=a.test"), *names.to("b1", "b2"), *NO_CHECKS,
            *SHARDS, "--sticky", "60", "--listen", "tls:0.0.0.0:8443", "--tls-cert", cert,
            "--tls-key", key, port=0):
        a, b = ask("a.test"), ask("b.test")
        check(a in ("a1", "a2") and b in ("b1", "b2"), f"{a}, {b}")
        for _ in range(8):
            check((ask("a.test"), ask("b.test")) == (a, b), "a client has moved")


def reload_turns_it_on_and_off(env, kind):
    """--sticky changes with a reload."""
    with Names(kind, "a", "b") as names:
        lines = [f"to = {names.spec('a')}", f"to = {names.spec('b')}", "health-interval = 0"]
        config = Config(env, *lines)
        with kind.serve(env, "--config", config.path, "--shards", "2") as proxy:
            check({backend_name(kind) for _ in range(8)} == {b"a", b"b"}, "on without the option")
            config.reload(proxy, *lines, "sticky = 60")
            check(len({backend_name(kind) for _ in range(8)}) == 1, "off")
            config.reload(proxy, *lines)
            check({backend_name(kind) for _ in range(8)} == {b"a", b"b"}, "on")


CASES = [client_keeps_its_backend, entry_ends_with_its_backend, entry_ends_when_checks_fail,
         failed_connect_moves_the_client, entry_ends_in_time, full_backend_is_waited_for, header_names_the_client,
         flood_has_a_bound, udp_and_tcp_share_clients, tls_clients_are_kept,
         reload_turns_it_on_and_off]


def cases(env):
    yield from chosen(env, CASES, Tap())


if __name__ == "__main__":
    main(cases)
