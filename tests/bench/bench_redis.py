#!/usr/bin/env python3
"""redis-server and redis-benchmark, unmodified, on the kernel and by coronet-run.

Usage: bench_redis.py BUILD_DIR [--rounds N] [--requests N]

64 clients, a request at a time each (-P 1), server and clients each on a CPU of their own where
there are two. Paths:
  loopback  both on the kernel
  memif     both on coronet
  veth      redis-benchmark on the kernel of another namespace, redis-server on the kernel here
            or on coronet (af_packet)
"""

import contextlib
import os
import re

import turns
from harness import WAIT_MAX_S, check, command, eventually

OURS, FAR, PORT, CLIENTS = "10.9.0.1", "10.9.1.1", 6379, 64
GOAL = 3  # times the kernel's loopback, over memif
COMMANDS = ("SET", "GET")
READY = "Ready to accept connections"


def pinned(cpu):
    """Returns a command's first words, which pin the ends to different CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", cpus[cpu % len(cpus)]] if len(cpus) > 1 else []


class Bench(turns.Bench):
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
            eventually(lambda: READY in program.output("stdout") or not program.alive(), WAIT_MAX_S,
                       program.story)
            check(program.alive(), program.story())
            yield program
        finally:
            program.kill()

    def ask(self, before, address):
        """Returns the requests per second of each command."""
        text = command(*before, "redis-benchmark", "-h", address, "-p", PORT, "-t", "set,get", "-n",
                       self.options.requests, "-c", CLIENTS, "-P", 1, "--csv")
        rates = {name: float(rate) for name, rate in re.findall(r'^"(\w+)","([\d.]+)"', text, re.M)}
        check(set(rates) == set(COMMANDS), text)
        return rates

    def loopback(self):
        with self.server(pinned(0), "127.0.0.1"):
            return self.ask(pinned(1), "127.0.0.1")

    def memif(self):
        link = f"memif:{self.env.scratch}/{self.link('m')}"
        with self.server(self.run_with(0, "--link", f"{link},role=server", "--addr", f"{OURS}/16"),
                         OURS):
            return self.ask(self.run_with(1, "--link", f"{link},role=client", "--addr",
                                          "10.9.0.2/16"), OURS)

    def veth_kernel(self):
        with self.beyond("veth", FAR) as (space, near):
            self.set_up(near, OURS)
            with self.server(pinned(0), OURS):
                return self.ask(space.inside(*pinned(1)), OURS)

    def veth_coronet(self):
        with self.beyond("veth", FAR) as (space, near):
            self.set_up(near)
            with self.server(self.run_with(0, "--link", f"af_packet:{near},csum=trust", "--addr",
                                           f"{OURS}/16"), OURS):
                return self.ask(space.inside(*pinned(1)), OURS)

    def points(self):
        return {"loopback, kernel": self.loopback, "memif, coronet": self.memif,
                "veth, kernel": self.veth_kernel, "veth, coronet": self.veth_coronet}


def finish(bench):
    for what in COMMANDS:
        ratio = bench.median("memif, coronet", what) / bench.median("loopback, kernel", what)
        turns.verdict(f"{what}, coronet over memif over the kernel over loopback", ratio,
                      f">= {GOAL}", ratio >= GOAL)


if __name__ == "__main__":
    turns.main(__doc__, Bench, needs=("redis-server", "redis-benchmark", "taskset"),
               finish=finish, requests=200000)
