"""Hosts around a bottleneck: ours over memif, the kernel's over TAPs.

A Bottleneck is tests/wire with hosts at both of its ends. The wire has a core
of its own, the last; all stacks share the others.
"""

import contextlib
import itertools
import json
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

from harness import PATIENCE, Namespace, check, command  # noqa: E402
from test_wire import SOURCE, Wire  # noqa: E402

PORT = 7000
NETWORK = "10.7.0.0/16"
TAP_QUEUE = 16384  # frames
SOCKET_MIB = 64    # which a window may grow to: 2.5 x 200 ms of 1 Gbit/s
SINK = """
import socket, sys, time
listener = socket.create_server(("", int(sys.argv[1])))
print("listening on", flush=True)
conn = listener.accept()[0]
room, taken, begun, told = bytearray(1 << 20), 0, None, 0
while n := conn.recv_into(room):
    now = time.monotonic()
    begun = begun or now
    taken += n
    if now - begun >= told:
        print(f"{now - begun:.6f} {taken}", flush=True)
        told = now - begun + 0.1
"""


CORES = sorted(os.sched_getaffinity(0))
STACKS, WIRE = CORES[:-1] or CORES, CORES[-1]


def confine():
    """Leaves the wire's core to the wire; all that is started inherits it."""
    os.sched_setaffinity(0, STACKS)


class Idle:
    """What the stacks' cores had to spare."""

    def __init__(self):
        self.before = self.ticks()

    @staticmethod
    def ticks():
        """(idle, all) so far."""
        idle = total = 0
        text = pathlib.Path("/proc/stat").read_text(encoding="ascii")
        for core in STACKS:
            words = re.search(rf"^cpu{core} (.*)$", text, re.M)[1].split()
            idle += int(words[3]) + int(words[4])
            total += sum(map(int, words[:8]))
        return idle, total

    def share(self):
        idle, total = self.ticks()
        return (idle - self.before[0]) / max(total - self.before[1], 1)


@contextlib.contextmanager
def going(env, argv):
    """A program that says nothing, killed after the block."""
    program = env.start(argv)
    try:
        yield program
    finally:
        program.kill()


def samples_of(sink):
    """(seconds since the first byte, bytes) of the lines a sink has printed."""
    lines = [line.split() for line in sink.output("stdout").split("\n")[:-1]
             if line[:1].isdigit()]
    return [(float(t), int(n)) for t, n in lines]


class Ours:
    """A host on coronet; options: what --help says."""

    def __init__(self, env, number, control, options):
        self.env, self.number = env, number
        self.address = f"10.7.0.{number}"
        self.socket = env.scratch_for({}) / "m.sock"
        self.options = [
            "--link", f"memif:{self.socket},role=client", "--addr",
            f"{self.address}/16", "--poll", "adaptive",
            *[word for option, value in (("--rmem-max", f"{SOCKET_MIB}M"),
                                         ("--wmem-max", f"{SOCKET_MIB}M"),
                                         ("--cc", control))
              if f"{option}=" in options for word in (option, value)]]

    def link(self):
        return f"memif:{self.socket},role=server"

    def join(self):
        """The programs attach by themselves."""

    def part(self):
        pass

    def dropped(self):
        return 0

    def flow(self, *words):
        return [self.env.build / "tests/wire/flow", *words, *self.options]

    def sink(self, port):
        return self.flow("sink", port)

    def source(self, address, port):
        return self.flow("source", f"{address}:{port}")

    def echo(self, port):
        return [self.env.app("coronet-echo"), "--port", port, *self.options]

    def load(self, address, port, words):
        return [self.env.app("coronet-load"), "--target",
                f"{address}:{port}", *self.options, *words]


class Kernels:
    """A host on the kernel's TCP, in a network namespace of its own."""

    numbers = itertools.count(1)  # a TAP that has just gone leaves its name late

    def __init__(self, env, number, control):
        self.env, self.number, self.control = env, number, control
        self.address = f"10.7.0.{number}"
        self.interface = f"wl{next(self.numbers)}"
        self.space = None

    def link(self):
        return f"tap:{self.interface}"

    def inside(self, *words):
        return self.space.inside(*words)

    def join(self):
        self.space = Namespace(self.env)
        self.space.take(self.interface)
        ip = self.inside("ip")
        command(*ip, "addr", "add", f"{self.address}/16", "dev",
                self.interface)
        command(*ip, "link", "set", self.interface, "txqueuelen", TAP_QUEUE,
                "up")
        # By route: a namespace may not choose any control as its default.
        command(*ip, "route", "replace", NETWORK, "dev", self.interface,
                "congctl", self.control)
        command(*self.inside("sysctl", "-qw"),
                "net.ipv4.tcp_no_metrics_save=1",
                f"net.ipv4.tcp_rmem=4096 131072 {SOCKET_MIB << 20}",
                f"net.ipv4.tcp_wmem=4096 16384 {SOCKET_MIB << 20}")

    def part(self):
        if self.space:
            self.space.close()

    def dropped(self):
        """What the TAP's queue had no room for."""
        found = json.loads(command(*self.inside(
            "ip", "-json", "-s", "link", "show", "dev", self.interface)))
        return found[0]["stats64"]["tx"]["dropped"]

    def sink(self, port):
        return self.inside(sys.executable, "-c", SINK, port)

    def source(self, address, port):
        return self.inside(sys.executable, "-c", SOURCE, address, port)

    def echo(self, port):
        return self.inside(self.env.app("epoll-echo"), "--port", port)

    def load(self, address, port, words):
        return self.inside(self.env.app("epoll-load"), "--target",
                           f"{address}:{port}", *words)


class Bottleneck:
    """Pairs of hosts, one of each pair at A and one at B, and the wire.

    pairs: (stack at A, stack at B, control); stacks: coronet, kernel.
    """

    def __init__(self, env, options, pairs, wire_options):
        self.env = env
        self.pairs = [tuple(
            Ours(env, 2 * i + at, control, options) if stack == "coronet"
            else Kernels(env, 2 * i + at, control)
            for at, stack in enumerate(stacks, 1))
            for i, (*stacks, control) in enumerate(pairs)]
        beside = [word for pair in self.pairs[1:]
                  for option, host in zip(("--beside-a", "--beside-b"), pair)
                  for word in (option, host.link())]
        self.wire = Wire(env, *[host.link() for host in self.pairs[0]],
                         *beside, "--control", "--poll", "busy", "--lcore",
                         WIRE, *wire_options)
        self.wire.argv[:0] = ["taskset", "-c", WIRE]
        self.counters = self.tap_dropped = None

    def hosts(self):
        return [host for pair in self.pairs for host in pair]

    @contextlib.contextmanager
    def running(self):
        """counters and tap_dropped are there after the block."""
        with self.wire.running():
            try:
                for host in self.hosts():
                    host.join()
                yield self
                self.tap_dropped = sum(h.dropped() for h in self.hosts())
                a_to_b, b_to_a = self.wire.end()
                self.counters = {"a_to_b": a_to_b, "b_to_a": b_to_a}
            finally:
                for host in self.hosts():
                    host.part()

    @contextlib.contextmanager
    def streams(self, count=None):
        """A stream from A to B of each pair: the sinks, which count."""
        with contextlib.ExitStack() as stack:
            sinks = [stack.enter_context(self.stream(pair))
                     for pair in self.pairs[:count]]
            yield sinks

    @contextlib.contextmanager
    def stream(self, pair):
        port = PORT + pair[0].number
        with self.env.running(pair[1].sink(port)) as sink, \
                going(self.env, pair[0].source(pair[1].address, port)) as source:
            sink.source = source
            yield sink


def wait_for(sink, seconds):
    """Until a sink has counted for so long."""
    deadline = time.monotonic() + seconds + PATIENCE

    def last():
        found = samples_of(sink)
        return found[-1][0] if found else -1

    while last() < seconds:
        check(sink.alive() and sink.source.alive(),
              f"it ended: {sink.story()}\n{sink.source.story()}")
        check(time.monotonic() < deadline, f"nothing comes: {sink.story()}")
        time.sleep(0.05)
