#!/usr/bin/env python3
"""coronet-proxy's limit of new clients for each listener: --listen ADDRESS:PORT,rate=N,burst=N.

Usage: test_proxy_rate.py BUILD_DIR [CASE...]
"""

import contextlib
import json
import signal
import socket
import threading
import time

from certs import client_context, make_pair
from harness import WAIT_MAX_S, check, chosen, eventually, main
from proxies import PORT, Peer, Tap, dial_proxy, echo_bytes, read_exactly
from steering import Config, await_line
from test_proxy_control import Control, metric
from web import run_curl

SHARDS = ["--shards", "2"]
PAGE = "127.0.0.1:9468"
COMMON = [*SHARDS, "--health-interval", "0", "--metrics", PAGE]


def listen(keys, prefix="", port=PORT):
    return ["--listen", f"{prefix}10.9.0.1:{port}{keys}"]


def refusals():
    return metric(run_curl(f"http://{PAGE}/metrics"), "coronet_proxy_refusals_total",
                  reason="listener_rate")


def waits():
    return metric(run_curl(f"http://{PAGE}/metrics"), "coronet_proxy_rate_waits_total")


def is_served(kind, port=PORT):
    """Whether a new client gets an echo; otherwise it was reset."""
    try:
        with dial_proxy(kind, port) as sock:
            sock.sendall(b"x")
            return sock.recv(1) == b"x"
    except (ConnectionResetError, BrokenPipeError):
        return False


def count_served(kind, clients, port=PORT):
    """Returns how many clients got an echo, and the seconds that this took."""
    begin = time.monotonic()
    served = sum(is_served(kind, port) for _ in range(clients))
    return served, time.monotonic() - begin


def excess_is_reset(env, kind):
    """With --over-limit reset, clients beyond rate and burst are reset, counted and logged; all
    shards share the rate, and other listeners have their own."""
    log = env.scratch / "access"
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, *listen(",rate=1,burst=8"), *listen(",rate=1000", port=8081),
            *listen("", port=8082), *COMMON, "--over-limit", "reset", "--access-log", log,
            "--access-log-format", "json", port=0):
        served, seconds = count_served(kind, 40)
        check(8 <= served <= 8 + seconds + 1, f"{served} served in {seconds} s")
        check(refusals() == 40 - served, f"{refusals()} refused")
        eventually(lambda: log.read_text().count('"listener-rate"') == 40 - served, WAIT_MAX_S,
                   lambda: log.read_text())
        refused = next(line for line in map(json.loads, log.read_text().splitlines())
                       if line["end"] == "listener-rate")
        check(refused["listener"] == f"10.9.0.1:{PORT}", f"{refused}")
        for port in (8081, 8082):
            check(count_served(kind, 40, port)[0] == 40, f"port {port} has a limit")
        check(peer.seen == served + 80, f"{peer.seen} at the backend")
        eventually(lambda: is_served(kind), WAIT_MAX_S, "the rate has ended for ever")


def excess_waits(env, kind):
    """With --over-limit wait, all clients are served, no faster than the rate."""
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, *listen(",rate=20,burst=1"), *COMMON, port=0) as proxy, \
            contextlib.ExitStack() as later:
        begin = time.monotonic()
        socks = [later.enter_context(dial_proxy(kind)) for _ in range(24)]
        for sock in socks:
            sock.sendall(b"x")
        for sock in socks:
            check(read_exactly(sock, 1) == b"x", "not served")
        seconds = time.monotonic() - begin
        check(seconds >= 23 / 20, f"24 clients in {seconds} s")
        check(waits() > 0 and refusals() == 0, f"{waits()} have waited, {refusals()} refused")
        check(proxy.alive(), proxy.story())


def gone_client_takes_nothing(env, kind):
    """A client that leaves while it waits is not counted: the next one has its turn."""
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, *listen(",rate=1,burst=1"), "--health-interval", "0",
            "--metrics", PAGE, port=0):
        check(is_served(kind), "the first client")
        # One a second, if they were counted: longer than the last one waits for its echo.
        for _ in range(2 * WAIT_MAX_S):
            sock = dial_proxy(kind)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()
        check(is_served(kind), "the last client")


def datagrams(env, kind):
    """A UDP listener has a limit of new sessions; those that have begun go on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as backend, \
            contextlib.ExitStack() as later:
        backend.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
        backend.bind((kind.near, 0))

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    data, peer = backend.recvfrom(2048)
                    backend.sendto(data, peer)
        threading.Thread(target=serve, daemon=True).start()
        later.enter_context(kind.serve(
            env, "--to", f"{kind.near}:{backend.getsockname()[1]}",
            *listen(",rate=1,burst=4", "udp:", 7000), *COMMON, port=0))
        begin = time.monotonic()
        socks = []
        for _ in range(12):
            sock = later.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.connect((kind.host, 7000))
            sock.settimeout(0.3)
            sock.send(b"new")
            socks.append(sock)
        served = []
        for sock in socks:
            with contextlib.suppress(TimeoutError):
                served.append((sock, sock.recv(9)))
        seconds = time.monotonic() - begin
        check(4 <= len(served) <= 4 + seconds + 1, f"{len(served)} served in {seconds} s")
        check(refusals() == 12 - len(served), f"{refusals()}")
        for sock, _ in served:
            sock.settimeout(WAIT_MAX_S)
            sock.send(b"again")
            check(sock.recv(9) == b"again", "a session was stopped")


def handshakes(env, kind):
    """Clients of tls: are limited before their handshake."""
    cert, key = make_pair(env, "front", "DNS:www.test")
    context = client_context(env)
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, *listen(",rate=1,burst=3", "tls:", 8443), *COMMON,
            "--over-limit", "reset", "--tls-cert", cert, "--tls-key", key, port=0):
        begin, served = time.monotonic(), 0
        for _ in range(12):
            with contextlib.suppress(OSError), dial_proxy(kind, 8443) as raw, \
                    context.wrap_socket(raw, server_hostname="www.test") as sock:
                sock.sendall(b"x")
                served += sock.recv(1) == b"x"
        seconds = time.monotonic() - begin
        check(3 <= served <= 3 + seconds + 1, f"{served} served in {seconds} s")
        check(refusals() == 12 - served, f"{refusals()} refused of {12 - served}")


def reload_changes_the_rate(env, kind):
    """A reload changes, ends and begins the rate; clients that wait go on by the new one."""
    control = Control(env)
    with Peer(kind, echo_bytes) as peer, contextlib.ExitStack() as later:
        lines = [f"to = {peer.at}", "health-interval = 0"]

        def reload(keys, port=PORT):
            config.write(*lines, f"listen = 10.9.0.1:{port}{keys}")
            return control("reload")
        config = Config(env, *lines, "listen = 10.9.0.1:8080,rate=1,burst=100000")
        later.enter_context(kind.serve(env, "--config", config.path, *SHARDS, "--metrics", PAGE,
                                       *control.options, port=0))
        check(count_served(kind, 40)[0] == 40, "less than the burst")
        check("next start" not in reload(",rate=1,burst=1"), "a change of the rate is refused")
        # The bucket that was nearly full has no tokens beyond the new burst.
        socks = [later.enter_context(dial_proxy(kind)) for _ in range(20)]
        eventually(lambda: waits() > 0, WAIT_MAX_S, "nobody waits")
        reload("")
        for sock in socks:
            sock.sendall(b"x")
            check(read_exactly(sock, 1) == b"x", "not served")
        before = waits()
        check(count_served(kind, 40)[0] == 40 and waits() == before, "the rate stays")
        reload(",rate=100")
        check(count_served(kind, 20)[0] == 20, "not served")
        check("next start" in reload(",rate=100", 8081), "a change of the port is not refused")
        check("line 3: --listen '10.9.0.1:8080,rate=0': expected rate= with a whole number from 1"
              in control_error(control, config, lines, ",rate=0"), "rate=0")
        check(is_served(kind), "not served")


def control_error(control, config, lines, keys):
    config.write(*lines, f"listen = 10.9.0.1:{PORT}{keys}")
    return control("reload", status=1)


def end_while_clients_wait(env, kind):
    """SIGTERM ends the program although clients wait for the rate."""
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, *listen(",rate=1,burst=1"), *COMMON, port=0) as proxy, \
            contextlib.ExitStack() as later:
        check(is_served(kind), "the first client")
        for _ in range(30):
            later.enter_context(dial_proxy(kind))
        eventually(lambda: waits() > 0, WAIT_MAX_S, "nobody waits")
        proxy.signal(signal.SIGTERM)
        await_line(proxy, "draining")
        later.close()
        check(proxy.wait(WAIT_MAX_S) == 0, proxy.story())


CASES = [excess_is_reset, excess_waits, gone_client_takes_nothing, datagrams, handshakes,
         reload_changes_the_rate, end_while_clients_wait]


def cases(env):
    yield from chosen(env, CASES, Tap())


if __name__ == "__main__":
    main(cases)
