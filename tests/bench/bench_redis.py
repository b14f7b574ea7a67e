#!/usr/bin/env python3
"""redis-server and redis-benchmark, unmodified, on the kernel and by coronet-run.

Usage: bench_redis.py BUILD_DIR [--rounds N] [--requests N]

64 clients, a request at a time each (-P 1), server and clients each on a CPU of their own where
there are two. Paths:
  loopback  both on the kernel
  memif     both on coronet
  veth      redis-benchmark on the kernel of another namespace, redis-server on the kernel here
            or on coronet (af_packet)
The points are measured by turns, round after round; printed are medians, and the lowest and highest.
"""

import argparse
import contextlib
import os
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness  # noqa: E402
from harness import PATIENCE, Env, Namespace, check, command, eventually  # noqa: E402
from web import need  # noqa: E402

OURS, FAR, PORT, CLIENTS = "10.9.0.1", "10.9.1.1", 6379, 64
GOAL = 3  # times the kernel's loopback, over memif
COMMANDS = ("SET", "GET")
READY = "Ready to accept connections"


def pinned(cpu):
    """A command's first words, so that both ends do not share a CPU."""
    cpus = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", cpus[cpu % len(cpus)]] if len(cpus) > 1 else []


class Bench:
    """Starts what a point needs, and keeps its figures."""

    def __init__(self, env, options):
        self.env, self.options = env, options
        self.results = {}
        self.count = 0

    def run_with(self, cpu, *link):
        cpus = sorted(os.sched_getaffinity(0))
        pin = ["--lcore", cpus[cpu]] if len(cpus) > 1 else []
        return [self.env.app("coronet-run"), *pin, "--poll",
                "busy" if len(cpus) > 1 else "adaptive", "--memory", "2G", *link]

    @contextlib.contextmanager
    def server(self, before, address):
        program = self.env.start([*before, "redis-server", "--bind", address, "--port", PORT,
                                  "--save", "", "--protected-mode", "no"])
        try:
            eventually(lambda: READY in program.output("stdout") or not program.alive(), PATIENCE,
                       program.story)
            check(program.alive(), program.story())
            yield program
        finally:
            program.kill()

    def ask(self, before, address):
        """Requests a second, of each command."""
        text = command(*before, "redis-benchmark", "-h", address, "-p", PORT, "-t", "set,get", "-n",
                       self.options.requests, "-c", CLIENTS, "-P", 1, "--csv")
        rates = {name: float(rate) for name, rate in re.findall(r'^"(\w+)","([\d.]+)"', text, re.M)}
        check(set(rates) == set(COMMANDS), text)
        return rates

    def loopback(self):
        with self.server(pinned(0), "127.0.0.1"):
            return self.ask(pinned(1), "127.0.0.1")

    def memif(self):
        link = f"memif:{self.env.scratch}/m{self.count}"
        with self.server(self.run_with(0, "--link", f"{link},role=server", "--addr", f"{OURS}/16"),
                         OURS):
            return self.ask(self.run_with(1, "--link", f"{link},role=client", "--addr",
                                          "10.9.0.2/16"), OURS)

    @contextlib.contextmanager
    def veth(self):
        near, far = f"rn{self.count}", f"rf{self.count}"
        with Namespace(self.env) as space:
            command("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            try:
                space.take(far)
                space.command("ip", "addr", "add", f"{FAR}/16", "dev", far)
                space.command("ip", "link", "set", far, "up")
                command("ip", "link", "set", near, "up")
                yield near, space.inside(*pinned(1))
            finally:
                command("ip", "link", "del", near)

    def veth_kernel(self):
        with self.veth() as (near, inside):
            command("ip", "addr", "add", f"{OURS}/16", "dev", near)
            with self.server(pinned(0), OURS):
                return self.ask(inside, OURS)

    def veth_coronet(self):
        with self.veth() as (near, inside), self.server(self.run_with(
                0, "--link", f"af_packet:{near},csum=trust", "--addr", f"{OURS}/16"), OURS):
            return self.ask(inside, OURS)

    def measure(self, name, point):
        self.count += 1
        for what, rate in point().items():
            self.results.setdefault(name, {}).setdefault(what, []).append(rate)


def show(results):
    print(f"{'requests a second':26}" + "".join(f"{what:>34}" for what in COMMANDS))
    for name, rates in results.items():
        cells = "".join(f"{statistics.median(rates[what]):,.0f} "
                        f"({min(rates[what]):,.0f} - {max(rates[what]):,.0f})".rjust(34)
                        for what in COMMANDS)
        print(f"{name:26}{cells}")
    base = results["loopback, kernel"]
    ratios = {what: statistics.median(results["memif, coronet"][what]) /
              statistics.median(base[what]) for what in COMMANDS}
    for what, ratio in ratios.items():
        print(f"{what}: coronet over memif is {ratio:.1f} times the kernel over loopback: "
              f"{'PASS' if ratio >= GOAL else 'MISS'} (goal {GOAL})")


def main():
    if harness.INSIDE not in sys.argv:
        harness.reenter()
    sys.argv.remove(harness.INSIDE)
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=200000)
    options = parser.parse_args()
    env = Env(pathlib.Path(options.build).resolve(), [])
    try:
        need("redis-server", "redis-benchmark", "taskset")
        bench = Bench(env, options)
        command("ip", "link", "set", "lo", "up")
        for number in range(options.rounds):
            for name, point in (("loopback, kernel", bench.loopback),
                                ("memif, coronet", bench.memif),
                                ("veth, kernel", bench.veth_kernel),
                                ("veth, coronet", bench.veth_coronet)):
                bench.measure(name, point)
            print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr, flush=True)
        show(bench.results)
    except (harness.Failure, harness.Skip) as trouble:
        sys.exit(f"bench_redis: {trouble}")
    finally:
        env.close()


if __name__ == "__main__":
    main()
