#!/usr/bin/env python3
"""The idle cost of --poll adaptive, and the delay of the first frame then.

Usage: bench_poll.py BUILD_DIR [--rounds N] [--seconds S]

A kernel client requests 64 bytes from coronet-echo 20 times a second, so that the server sleeps
before each. Prints the idle server's share of a core, and the round trips with --poll adaptive and
--poll busy, whose difference is the delay, and those of epoll-echo on the same path, in its own
namespace.
"""

import contextlib
import functools
import os
import socket
import statistics
import time

import turns
from harness import WAIT_MAX_S, cpu_seconds

OURS, KERNELS, PORT = "10.9.0.1", "10.9.1.1", 7777
PAUSE_S, ASKED = 0.05, 60
IDLE_GOAL, WAIT_GOAL_US = 1, 50
IDLE, TRIP = "idle, percent of a core", "round trip, us"
KINDS = ("tap", "af_packet", "af_xdp")


def round_trips():
    """Returns round trips in microseconds, each after a pause."""
    with socket.create_connection((OURS, PORT), WAIT_MAX_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(ASKED):
            time.sleep(PAUSE_S)
            begin = time.perf_counter()
            sock.sendall(b"x" * 64)
            left = 64
            while left:
                left -= len(sock.recv(left))
            times.append((time.perf_counter() - begin) * 1e6)
    return times


class Bench(turns.Bench):
    def __init__(self, env, options):
        super().__init__(env, options)
        os.environ["LIBXDP_SKIP_DISPATCHER"] = "1"

    def echo(self, link, poll):
        return self.env.running([self.env.app("coronet-echo"), "--link", link, "--addr",
                                 f"{OURS}/16", "--port", PORT, "--poll", poll])

    @contextlib.contextmanager
    def serve(self, kind, poll):
        if kind == "tap":
            link = self.link("pt")
            with self.echo(f"tap:{link}", poll) as server:
                self.set_up(link, KERNELS)
                yield server
            return
        with self.veth() as (near, far):
            self.set_up(near, KERNELS)
            self.set_up(far)
            with self.echo(f"{kind}:{far},csum=trust", poll) as server:
                yield server

    @contextlib.contextmanager
    def of_epoll(self):
        with self.beyond("veth", OURS) as (space, near):
            self.set_up(near, KERNELS)
            with self.env.running(space.inside(self.env.app("epoll-echo"), "--addr", OURS,
                                               "--port", PORT)) as server:
                yield server

    def measure(self, point, sleeps):
        figures = {}
        with point() as server:
            round_trips()  # neighbours, caches
            if sleeps:
                before, begin = cpu_seconds(server.process.pid), time.monotonic()
                time.sleep(self.options.seconds)
                figures[IDLE] = (100 * (cpu_seconds(server.process.pid) - before)
                                 / (time.monotonic() - begin))
            figures[TRIP] = statistics.median(round_trips())
        return figures

    def points(self):
        bind = functools.partial
        points = {f"{kind}, {poll}": bind(self.measure, bind(self.serve, kind, poll),
                                          poll == "adaptive")
                  for kind in KINDS for poll in ("adaptive", "busy")}
        return {**points, "veth, epoll-echo": bind(self.measure, self.of_epoll, True)}


def finish(bench):
    for kind in KINDS:
        idle = bench.median(f"{kind}, adaptive", IDLE)
        turns.verdict(f"{kind}, {IDLE}", idle, f"< {IDLE_GOAL}", idle < IDLE_GOAL)
        wait = bench.median(f"{kind}, adaptive", TRIP) - bench.median(f"{kind}, busy", TRIP)
        turns.verdict(f"{kind}, us that the first frame waits", wait, f"< {WAIT_GOAL_US}",
                      wait < WAIT_GOAL_US)


if __name__ == "__main__":
    turns.main(__doc__, Bench, finish=finish, seconds=4)
