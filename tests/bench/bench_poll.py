#!/usr/bin/env python3
"""What --poll adaptive costs while nothing happens, and what the first frame waits then.

Usage: bench_poll.py BUILD_DIR [--rounds N] [--seconds S]

A client of the kernel's asks coronet-echo for 64 bytes 20 times a second, so that the server sleeps
before each. Printed are the share of a core that the idle server takes, and the round trips with
--poll adaptive and --poll busy, whose difference is the wait. epoll-echo on the same path, in
its own namespace, is beside them. The points are measured by turns, round after round; medians, and
the lowest and highest.
"""

import argparse
import contextlib
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness  # noqa: E402
from harness import PATIENCE, Env, Namespace, check, command, cpu_seconds  # noqa: E402

OURS, KERNELS, PORT = "10.9.0.1", "10.9.1.1", 7777
PAUSE_S, ASKED = 0.05, 60
IDLE_GOAL, WAIT_GOAL_US = 0.01, 50


def round_trips():
    """Microseconds, after a pause each."""
    with socket.create_connection((OURS, PORT), PATIENCE) as sock:
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


class Bench:
    """Starts what a point needs, and keeps its figures."""

    def __init__(self, env, options):
        self.env, self.options = env, options
        self.count = 0
        self.idle, self.trips = {}, {}

    def echo(self, link, poll):
        return self.env.running([self.env.app("coronet-echo"), "--link", link, "--addr",
                                 f"{OURS}/16", "--port", PORT, "--poll", poll])

    @contextlib.contextmanager
    def on_tap(self, poll):
        link = f"pt{self.count}"
        with self.echo(f"tap:{link}", poll) as server:
            command("ip", "addr", "add", f"{KERNELS}/16", "dev", link)
            command("ip", "link", "set", link, "up")
            yield server

    @contextlib.contextmanager
    def veth(self):
        near, far = f"pn{self.count}", f"pf{self.count}"
        command("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        try:
            command("ip", "addr", "add", f"{KERNELS}/16", "dev", near)
            command("ip", "link", "set", near, "up")
            yield far
        finally:
            subprocess.run(["ip", "link", "del", near], check=False, capture_output=True)

    @contextlib.contextmanager
    def on_veth(self, kind, poll):
        with self.veth() as far:
            command("ip", "link", "set", far, "up")
            with self.echo(f"{kind}:{far},csum=trust", poll) as server:
                yield server

    @contextlib.contextmanager
    def of_epoll(self):
        with Namespace(self.env) as space, self.veth() as far:
            space.take(far)
            space.command("ip", "addr", "add", f"{OURS}/16", "dev", far)
            space.command("ip", "link", "set", far, "up")
            with self.env.running(space.inside(self.env.app("epoll-echo"), "--addr", OURS,
                                               "--port", PORT)) as server:
                yield server

    def measure(self, name, point, sleeps):
        self.count += 1
        with point as server:
            round_trips()[:1]  # neighbours, caches
            if sleeps:
                before, begin = cpu_seconds(server.process.pid), time.monotonic()
                time.sleep(self.options.seconds)
                share = (cpu_seconds(server.process.pid) - before) / (time.monotonic() - begin)
                self.idle.setdefault(name, []).append(share)
            self.trips.setdefault(name, []).append(statistics.median(round_trips()))

    def round(self):
        for kind, point in (("tap", self.on_tap),
                            ("af_packet", lambda poll: self.on_veth("af_packet", poll)),
                            ("af_xdp", lambda poll: self.on_veth("af_xdp", poll))):
            for poll in ("adaptive", "busy"):
                self.measure((kind, poll), point(poll), poll == "adaptive")
        self.measure(("veth", "epoll-echo"), self.of_epoll(), True)


def span(values, scale=1, digits=0):
    low, high = min(values) * scale, max(values) * scale
    return f"{statistics.median(values) * scale:.{digits}f} ({low:.{digits}f} - {high:.{digits}f})"


def verdict(value, goal):
    return f"{'PASS' if value < goal else 'MISS'} (goal < {goal:g})"


def show(bench):
    for (kind, poll), trips in bench.trips.items():
        print(f"{kind:10}{poll:12}round trip {span(trips)} us")
    for (kind, poll), shares in bench.idle.items():
        says = "" if poll == "epoll-echo" else ": " + verdict(
            100 * statistics.median(shares), 100 * IDLE_GOAL)
        print(f"{kind:10}{poll:12}idle, percent of a core {span(shares, 100, 2)}{says}")
    for kind in ("tap", "af_packet", "af_xdp"):
        wait = (statistics.median(bench.trips[kind, "adaptive"])
                - statistics.median(bench.trips[kind, "busy"]))
        print(f"{kind:10}the first frame waits {wait:.0f} us: {verdict(wait, WAIT_GOAL_US)}")


def main():
    if harness.INSIDE not in sys.argv:
        harness.reenter()
    sys.argv.remove(harness.INSIDE)
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    options = parser.parse_args()
    env = Env(pathlib.Path(options.build).resolve(), [])
    try:
        bench = Bench(env, options)
        command("ip", "link", "set", "lo", "up")
        os.environ["LIBXDP_SKIP_DISPATCHER"] = "1"
        for number in range(options.rounds):
            bench.round()
            print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr, flush=True)
        show(bench)
        check(bench.trips, "nothing was measured")
    except (harness.Failure, harness.Skip) as trouble:
        sys.exit(f"bench_poll: {trouble}")
    finally:
        env.close()


if __name__ == "__main__":
    main()
