#!/usr/bin/env python3
"""coronet-load against scripted servers, over veth.

Usage: test_load.py BUILD_DIR
tests/apps/test_epoll.py has the same for epoll-load.
"""

import collections
import contextlib
import functools
import json
import signal
import socket
import struct
import threading
import time

from harness import (WAIT_MAX_S, Spoiled, check, command, eventually, in_a_quiet_moment, linger,
                     main)
from test_links import checksums_in_software

HOST = "10.9.1.1"


class Peer:
    """A server in threads of the test; `serve` handles each connection."""

    def __init__(self, serve):
        self.serve = serve
        self.accepted = 0
        self.broken = 0  # connections that ended with a reset
        self.listener = socket.create_server((HOST, 0), backlog=256)
        self.target = f"{HOST}:{self.listener.getsockname()[1]}"
        self.acceptor = threading.Thread(target=self.run, daemon=True)
        self.acceptor.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                self.accepted += 1
                threading.Thread(target=self.serve_one, args=[sock], daemon=True).start()

    def serve_one(self, sock):
        with sock, contextlib.suppress(OSError):
            try:
                self.serve(sock)
            except (ConnectionResetError, BrokenPipeError):
                self.broken += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.acceptor.join()  # it would accept from the socket that gets the number next
        self.listener.close()


def hang_up(sock):
    sock.recv(64)


def break_off(sock):
    sock.recv(64)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def be_silent(sock):
    while sock.recv(64):
        pass


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
                      "--interval", "0", "--timeout", "60", "--json", *options])


def load(env, target, *options):
    """Runs a load for its own duration; returns its exit status and figures."""
    program = start(env, target, "--report-limited", *options)
    status = program.wait(WAIT_MAX_S)
    return status, json.loads(program.output("stdout"))


def load_until(env, target, enough, *options):
    """Runs a load until the server has seen enough."""
    program = start(env, target, "--report-limited", "--seconds", "3600", *options)
    eventually(lambda: enough() or not program.alive(), WAIT_MAX_S,
               "the server never saw enough")
    check(program.alive(), f"it ended by itself: {program.story()}")
    program.signal(signal.SIGINT)
    status = program.wait(WAIT_MAX_S)
    figures = json.loads(program.output("stdout"))
    check(figures["interrupted"], f"not interrupted: {figures}")
    return status, figures


def check_clean(status, figures):
    check(figures["errors"]["total"] == 0, f"errors: {figures['errors']}")
    check(status == 0, f"exit status {status}")


def failures_are_counted_by_kind(env, mode, shards):
    """Each failed connection is counted by its kind, and opened again."""
    for serve, kind in ((hang_up, "closed"), (break_off, "reset"), (be_silent, "timeout"),
                        (corrupt, "verify"), (say_more, "verify")):
        if serve in (corrupt, say_more) and mode == "cps":
            continue  # the load closes when it has its answer
        if serve is hang_up and mode == "bulk":
            continue  # with bytes unread, hanging up is a reset
        timeout = "0.2" if serve is be_silent else "60"
        with Peer(serve) as peer:
            status, figures = load_until(env, peer.target, lambda p=peer: p.accepted >= 6,
                                         "--conns", "2", "--timeout", timeout,
                                         "--mode", mode, "--verify", "--shards", shards)
        errors = figures["errors"]
        check(status == 1, f"{serve.__name__}: exit status {status}")
        check(errors[kind] >= 2 and errors[kind] == errors["total"],
              f"{serve.__name__}: {errors}")


def bulk_sends_every_write(env):
    """Without --verify the bytes are lent: the same ones each time."""
    for size in (1000, 100000):
        seen = bytearray()

        def collect(sock, seen=seen):
            while data := sock.recv(65536):
                seen.extend(data[:max(0, (1 << 20) - len(seen))])
                sock.sendall(data)

        with Peer(collect) as peer:
            status, figures = load_until(env, peer.target, lambda s=seen: len(s) == 1 << 20,
                                         "--conns", "1", "--mode", "bulk", "--size", size)
        check_clean(status, figures)
        check(seen[:-size] == seen[size:] and len(set(seen)) > 200,
              f"writes of {size} bytes differ")


def bulk_that_moves_does_not_time_out(env):
    """A bulk run longer than --timeout does not time out, since any received byte counts."""
    begun = time.monotonic()
    moved = [0]

    def trickle(sock):
        while data := sock.recv(4096):
            sock.sendall(data)
            moved[0] += 1
            linger(0.01)

    with Peer(trickle) as peer:
        status, figures = load_until(
            env, peer.target, lambda: moved[0] > 100 and time.monotonic() - begun > 5,
            "--conns", "1", "--mode", "bulk", "--timeout", "3")
    check_clean(status, figures)


def connections_come_back_after_a_failure(env):
    served, echoed = [], []

    def once(sock):
        served.append(sock)
        if len(served) > 2:
            while data := sock.recv(65536):
                sock.sendall(data)
                echoed.append(len(data))

    with Peer(once) as peer:
        status, figures = load_until(env, peer.target, lambda: len(echoed) > 20,
                                     "--conns", "2", "--verify")
    check(status == 1 and figures["errors"]["total"] == 2, f"{status}, {figures['errors']}")
    check(figures["open_at_end"] == 2, f"{figures['open_at_end']} open at the end")
    check(figures["requests"] > 10, f"{figures['requests']} requests")


def nobody_there_is_refused_at_once(env):
    for shards in ("1", "2", "8"):
        status, figures = load(env, f"{HOST}:9", "--conns", "4", "--seconds", "3600",
                               "--shards", shards)
        refused = figures["errors"]["refused"]
        check(status == 1 and refused == figures["errors"]["total"], f"{status}, {figures}")
        # On a slow machine one shard may retry before all others have tried.
        check(refused == 4 if shards == "1" else refused >= 4, f"{refused} of 4 were refused")


def large_requests(env):
    size = 300000
    conns = 3
    for loop in ([], ["--rate", "20"]):
        moved = [0]
        accepted = []

        def count(sock, moved=moved, accepted=accepted):
            accepted.append(sock)
            while data := sock.recv(65536):
                sock.sendall(data)
                # The load counts no request before all its connections are open.
                if len(accepted) == conns:
                    moved[0] += len(data)

        with Peer(count) as peer:
            status, figures = load_until(env, peer.target, lambda m=moved: m[0] >= 12 * size,
                                         "--conns", conns, "--size", size, "--verify", *loop)
        check_clean(status, figures)
        check(figures["requests"] >= 9, f"{figures['requests']} requests")


def check_pace(times, begun, rate):
    """Request number N is not sent before it is due, N / rate after the start."""
    for number, came in enumerate(sorted(times)):
        early = begun + number / rate - came
        check(early <= 0, f"request {number} came {early:.3f} s before it was due")


def open_loop_keeps_its_rate(env):
    rate = 400

    def run(options):
        times = []

        def note(sock):
            while data := sock.recv(64):
                times.append(time.monotonic())
                sock.sendall(data)

        begun = time.monotonic()
        with Peer(note) as peer:
            status, figures = load(env, peer.target, "--verify", "--rate", rate,
                                   "--seconds", "1", *options)
        check_clean(status, figures)
        check_pace(times, begun, rate)
        reached = figures["requests_per_s"]
        # There may be more, if requests delayed by a pause before the window are sent in it.
        if abs(reached - rate) > rate * 0.05:
            raise Spoiled(f"{reached} requests/s instead of {rate}")

    for options in (["--conns", "20"], ["--conns", "1"], ["--conns", "7", "--mode", "cps"],
                    ["--conns", "20", "--shards", "2"], ["--conns", "2", "--shards", "3"],
                    ["--conns", "7", "--mode", "cps", "--shards", "3"]):
        in_a_quiet_moment(functools.partial(run, options))


def open_loop_counts_from_when_it_should_have_sent(env):
    rate = 200

    def run():
        times = []

        def stall(sock):
            while data := sock.recv(64):
                times.append(time.monotonic())
                if len(times) == 20:
                    linger(0.5)
                sock.sendall(data)

        begun = time.monotonic()
        with Peer(stall) as peer:
            status, figures = load_until(env, peer.target, lambda: len(times) >= 300,
                                         "--conns", "1", "--rate", rate)
        check_clean(status, figures)
        check_pace(times, begun, rate)
        # A hundred requests were due while the server slept, and waited 0 to 0.5 s.
        if figures["requests"] > 500:
            raise Spoiled(f"{figures['requests']} requests hide those hundred")
        latency = figures["latency_us"]
        check(latency["p90"] > 200000, f"p90 {latency['p90']}")
        check(latency["max"] > 400000, f"max {latency['max']}")

    in_a_quiet_moment(run)


def a_run_ends_on_time(env):
    """Connections open at the end do not delay it: they are reset."""
    for mode, shards in (("echo", "1"), ("bulk", "1"), ("echo", "3"), ("bulk", "3")):
        served = set()

        def note(sock, served=served):
            while data := sock.recv(65536):
                sock.sendall(data)
                served.add(sock)

        with Peer(note) as peer:
            program = start(env, peer.target, "--conns", "50", "--seconds", "3600",
                            "--mode", mode, "--shards", shards)
            eventually(lambda s=served: len(s) == 50, WAIT_MAX_S, "not all 50 were served")
            program.signal(signal.SIGTERM)
            program.wait(WAIT_MAX_S)
            eventually(lambda p=peer: p.broken == 50, WAIT_MAX_S,
                       f"{mode}: {peer.broken} of 50 connections were reset")
        figures = json.loads(program.output("stdout"))
        check(figures["interrupted"] and figures["open_at_end"] == 50, f"{figures}")


def lose(_):
    return []


def send_again(data):
    """The answer to an earlier request comes twice, and one comes to none."""
    return [data, data, bytes(len(data))]


def cut(data):
    return [data[:-1]]


def serve_datagrams(sock, answers_to, seen):
    """Answers every fourth datagram of a client in another way; counts those datagrams."""
    counts = collections.Counter()
    with contextlib.suppress(OSError):
        while True:
            data, peer = sock.recvfrom(65536)
            counts[peer] += 1
            wrong = counts[peer] % 4 == 0
            seen[wrong] += 1
            for answer in answers_to(data) if wrong else [data]:
                sock.sendto(answer, peer)


def datagrams_are_counted_by_kind(env, shards):
    """A lost answer is a timeout, a short one does not verify, and others are ignored."""
    for answers_to, kind in ((lose, "timeout"), (send_again, None), (cut, "verify")):
        seen = [0, 0]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((HOST, 0))
            threading.Thread(target=serve_datagrams, args=[sock, answers_to, seen],
                             daemon=True).start()
            status, figures = load(
                env, f"{HOST}:{sock.getsockname()[1]}", "--udp", "--seconds", "1",
                "--conns", "5", "--size", "100", "--shards", shards,
                "--timeout", "0.2" if kind == "timeout" else "60")
        name, errors = answers_to.__name__, figures["errors"]
        check(status == (1 if kind else 0), f"{name}: exit status {status}")
        check(errors["total"] == (errors[kind] if kind else 0), f"{name}: {errors}")
        # A busy machine may miss more timeouts.
        check(kind != "verify" or errors[kind] <= seen[1], f"{name}: {seen}, {errors}")
        check(not kind or errors[kind] > 0, f"{name}: no errors")
        check(0 < figures["requests"] <= seen[0] + (0 if kind else seen[1]),
              f"{name}: {seen}, {figures['requests']} requests")


def nobody_answers_datagrams(env):
    """The kernel reports a closed port, which is an error of its own kind."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((HOST, 0))
        port = sock.getsockname()[1]
    status, figures = load(env, f"{HOST}:{port}", "--udp", "--conns", "2", "--seconds", "1")
    check(status == 1 and figures["errors"]["refused"] == figures["errors"]["total"] > 0,
          f"exit status {status}, {figures['errors']}")


def cases(env):
    def on_veth(function, *words):
        with veth():
            function(env, *words)

    for mode, shards in (("echo", "1"), ("cps", "1"), ("bulk", "1"), ("echo", "2"), ("cps", "2")):
        yield (f"{mode}, {shards} shards: failures are counted by kind",
               functools.partial(on_veth, failures_are_counted_by_kind, mode, shards))
    for shards in ("1", "2"):
        yield (f"{shards} shards: datagrams are counted by kind",
               functools.partial(on_veth, datagrams_are_counted_by_kind, shards))
    for function in (nobody_answers_datagrams, bulk_sends_every_write,
                     bulk_that_moves_does_not_time_out, connections_come_back_after_a_failure,
                     nobody_there_is_refused_at_once, large_requests, open_loop_keeps_its_rate,
                     open_loop_counts_from_when_it_should_have_sent, a_run_ends_on_time):
        yield function.__name__.replace("_", " "), functools.partial(on_veth, function)


if __name__ == "__main__":
    main(cases)
