#!/usr/bin/env python3
"""coronet-load against servers that do what the test wants, over veth.

Usage: test_load.py BUILD_DIR
epoll-load meets the same in tests/apps/test_epoll.py.
"""

import contextlib
import functools
import json
import signal
import socket
import struct
import threading
import time

from harness import check, command, main
from test_links import checksums_in_software

HOST = "10.9.1.1"


class Peer:
    """A server in threads of the test's own; `serve` gets each connection."""

    def __init__(self, serve):
        self.serve = serve
        self.listener = socket.create_server((HOST, 0), backlog=256)
        self.target = f"{HOST}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                threading.Thread(target=self.one, args=[sock], daemon=True).start()

    def one(self, sock):
        with sock, contextlib.suppress(OSError):
            self.serve(sock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def echo(sock):
    while data := sock.recv(65536):
        sock.sendall(data)


def hang_up(sock):
    sock.recv(64)


def break_off(sock):
    sock.recv(64)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def be_silent(sock):
    sock.recv(64)
    time.sleep(3)


def corrupt(sock):
    for i in range(1000000):
        data = bytearray(sock.recv(64))
        if not data:
            return
        data[-1] ^= i == 5
        sock.sendall(data)


def say_more(sock):
    while data := sock.recv(65536):
        sock.sendall(data + b"!")


@contextlib.contextmanager
def veth():
    command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    try:
        for interface in ("veth0", "veth1"):
            checksums_in_software(interface)
            command("ip", "link", "set", interface, "up")
        command("ip", "addr", "add", f"{HOST}/16", "dev", "veth1")
        yield
    finally:
        command("ip", "link", "del", "veth0")


def start(env, target, *options):
    return env.start([env.app("coronet-load"), "--link", "af_packet:veth0", "--addr",
                      "10.9.0.9/16", "--target", target, "--poll", "adaptive",
                      "--interval", "0", "--seconds", "0.5", "--json", *options])


def load(env, target, *options):
    """A short run: its exit status and its figures."""
    program = start(env, target, "--report-limited", *options)
    status = program.wait(60)
    return status, json.loads(program.output("stdout"))


def check_clean(status, figures):
    check(figures["errors"]["total"] == 0, f"errors: {figures['errors']}")
    check(status == 0, f"exit status {status}")


def check_near(value, expected, delta):
    check(abs(value - expected) <= delta, f"{value}, expected {expected} +- {delta}")


def what_goes_wrong_has_its_name(env, mode):
    for serve, kind in ((hang_up, "closed"), (break_off, "reset"), (be_silent, "timeout"),
                        (corrupt, "verify"), (say_more, "verify")):
        if serve is say_more and mode == "cps":
            continue  # it closes when it has what it wants
        if serve is hang_up and mode == "bulk":
            continue  # with bytes unread, hanging up is a reset
        with Peer(serve) as peer:
            status, figures = load(env, peer.target, "--conns", "2", "--timeout", "0.2",
                                   "--mode", mode, "--verify")
        errors = figures["errors"]
        if serve is corrupt and mode == "cps":
            check(errors["total"] == 0, f"{errors}")  # a connection ends before that
            continue
        check(status == 1, f"{serve.__name__}: exit status {status}")
        check(errors[kind] >= 2 and errors[kind] == errors["total"],
              f"{serve.__name__}: {errors}")


def bulk_sends_every_write(env):
    """Nobody checks them, so that they are lent: the same bytes each time."""
    for size in (1000, 100000):
        seen = bytearray()

        def collect(sock, seen=seen):
            while data := sock.recv(65536):
                seen.extend(data[:max(0, (1 << 20) - len(seen))])
                sock.sendall(data)

        with Peer(collect) as peer:
            status, figures = load(env, peer.target, "--conns", "1", "--mode", "bulk",
                                   "--size", size, "--timeout", "0.4", "--seconds", "1")
        check_clean(status, figures)
        check(len(seen) == 1 << 20, f"{len(seen)} bytes")
        check(seen[:-size] == seen[size:] and len(set(seen)) > 200,
              f"writes of {size} bytes differ")


def connections_come_back_after_a_failure(env):
    served = []

    def once(sock):
        served.append(sock)
        if len(served) > 2:
            echo(sock)

    with Peer(once) as peer:
        status, figures = load(env, peer.target, "--conns", "2", "--verify")
    check(status == 1 and figures["errors"]["total"] == 2, f"{status}, {figures['errors']}")
    check(figures["open_at_end"] == 2, f"{figures['open_at_end']} open at the end")
    check(figures["requests"] > 10, f"{figures['requests']} requests")


def nobody_there_is_refused_at_once(env):
    begun = time.monotonic()
    status, figures = load(env, f"{HOST}:9", "--conns", "4", "--seconds", "5")
    check(status == 1 and figures["errors"]["refused"] == 4, f"{status}, {figures['errors']}")
    check(time.monotonic() - begun < 4, "it went on without a connection")


def large_requests(env):
    with Peer(echo) as peer:
        for loop in ([], ["--rate", "20"]):
            status, figures = load(env, peer.target, "--conns", "3", "--size", "300000",
                                   "--verify", "--seconds", "1.5", *loop)
            check_clean(status, figures)
            check(figures["requests"] > 3, f"{figures['requests']} requests")


def open_loop_keeps_its_rate(env):
    for options in (["--conns", "20"], ["--conns", "1"], ["--conns", "7", "--mode", "cps"]):
        for _ in range(3):  # others may need the cores for a while
            with Peer(echo) as peer:
                status, figures = load(env, peer.target, "--verify", "--rate", "400",
                                       "--seconds", "1", *options)
            check_clean(status, figures)
            if abs(figures["requests_per_s"] - 400) <= 20:
                break
        check_near(figures["requests_per_s"], 400, 20)


def open_loop_counts_from_when_it_should_have_sent(env):
    def stall(sock):
        for i in range(1000000):
            data = sock.recv(64)
            if not data:
                return
            if i == 20:
                time.sleep(0.5)
            sock.sendall(data)

    with Peer(stall) as peer:
        _, figures = load(env, peer.target, "--conns", "1", "--rate", "200", "--seconds", "1.5")
    latency = figures["latency_us"]
    # A third of the requests were due while the server slept.
    check(latency["p90"] > 200000, f"p90 {latency['p90']}")
    check(latency["max"] > 400000, f"max {latency['max']}")
    check_near(figures["requests"], 300, 15)


def a_run_ends_on_time(env):
    """Connections that are open at the end do not hold it up."""
    for mode in ("echo", "bulk"):
        with Peer(echo) as peer:
            program = start(env, peer.target, "--conns", "50", "--seconds", "60",
                            "--mode", mode)
            time.sleep(2)
            begun = time.monotonic()
            program.signal(signal.SIGTERM)
            program.wait(10)
            took = time.monotonic() - begun
        figures = json.loads(program.output("stdout"))
        check(figures["interrupted"] and figures["open_at_end"] == 50, f"{figures}")
        check(took < 0.9, f"{mode}: it took {took:.2f} s to end")


def cases(env):
    def on_veth(function, *words):
        with veth():
            function(env, *words)

    for mode in ("echo", "cps", "bulk"):
        yield (f"{mode}: what goes wrong has its name",
               functools.partial(on_veth, what_goes_wrong_has_its_name, mode))
    for function in (bulk_sends_every_write, connections_come_back_after_a_failure, nobody_there_is_refused_at_once,
                     large_requests, open_loop_keeps_its_rate,
                     open_loop_counts_from_when_it_should_have_sent, a_run_ends_on_time):
        yield function.__name__.replace("_", " "), functools.partial(on_veth, function)


if __name__ == "__main__":
    main(cases)
