"""Hosts around a bottleneck: ours over memif, the kernel's over TAPs.

A Bottleneck is tests/wire with hosts at both of its ends. The wire has a core of its own, the last;
all stacks share the others.
"""

import contextlib
import itertools
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

from harness import WAIT_MAX_S, Namespace, check, command, eventually  # noqa: E402
from wires import SOURCE, Wire  # noqa: E402

PORT = 7000
NETWORK = "10.7.0.0/16"
TAP_QUEUE = 16384  # frames
SOCKET_MIB = 64    # which a window may grow to: 2.5 x 200 ms of 1 Gbit/s
SINK = """
import socket, sys, time
listener = socket.create_server(("", int(sys.argv[1])))
print("listening on", flush=True)
conn = listener.accept()[0]
room, taken, begun, report_at = bytearray(1 << 20), 0, None, 0
while n := conn.recv_into(room):
    now = time.monotonic()
    begun = begun or now
    taken += n
    if now - begun >= report_at:
        print(f"{now - begun:.6f} {taken}", flush=True)
        report_at = now - begun + 0.1
"""
CORES = sorted(os.sched_getaffinity(0))
STACKS, WIRE = CORES[:-1] or CORES, CORES[-1]


def confine():
    """Leaves the wire's core to the wire; all that is started inherits it."""
    os.sched_setaffinity(0, STACKS)


class Idle:
    """Measures the idle time of the stacks' cores."""

    def __init__(self):
        self.before = self.ticks()

    @staticmethod
    def ticks():
        """Returns (idle, all) ticks since the boot."""
        text = pathlib.Path("/proc/stat").read_text(encoding="ascii")
        cores = [list(map(int, re.search(rf"^cpu{core} (.*)$", text, re.M)[1].split()))
                 for core in STACKS]
        return sum(sum(core[3:5]) for core in cores), sum(sum(core[:8]) for core in cores)

    def share(self):
        idle, total = (now - then for now, then in zip(self.ticks(), self.before))
        return idle / max(total, 1)


class Ours:
    """A host on coronet, with options of its programs, which attach by themselves."""

    def __init__(self, env, number, control, options):
        self.env, self.number = env, number
        self.address = f"10.7.0.{number}"
        socket = env.scratch_for({}) / "m.sock"
        self.link = f"memif:{socket},role=server"
        wanted = {"--rmem-max": f"{SOCKET_MIB}M", "--wmem-max": f"{SOCKET_MIB}M", "--cc": control}
        self.options = ["--link", f"memif:{socket},role=client", "--addr", f"{self.address}/16",
                        "--poll", "adaptive",
                        *[word for option, value in wanted.items() if f"{option}=" in options
                          for word in (option, value)]]

    def join(self):
        return contextlib.nullcontext()

    def dropped(self):
        return 0

    def run(self, name, *words):
        """Returns the words that run a program there."""
        path = "tests/wire/flow" if name == "flow" else f"apps/coronet-{name}"
        return [self.env.build / path, *words, *self.options]

    def sink(self, port):
        return self.run("flow", "sink", port)

    def source(self, address, port):
        return self.run("flow", "source", f"{address}:{port}")


class Kernels:
    """A host on the kernel's TCP, in a network namespace of its own."""

    numbers = itertools.count(1)  # a TAP's name becomes free some time after its removal

    def __init__(self, env, number, control):
        self.env, self.number, self.control = env, number, control
        self.address = f"10.7.0.{number}"
        self.interface = f"wl{next(self.numbers)}"
        self.link = f"tap:{self.interface}"
        self.inside = None

    @contextlib.contextmanager
    def join(self):
        with Namespace(self.env) as space:
            self.inside = space.inside
            space.take_interface(self.interface)
            space.command("ip", "addr", "add", f"{self.address}/16", "dev", self.interface)
            space.command("ip", "link", "set", self.interface, "txqueuelen", TAP_QUEUE, "up")
            # By route: a namespace may not select every control as its default.
            space.command("ip", "route", "replace", NETWORK, "dev", self.interface, "congctl",
                          self.control)
            space.command("sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1",
                          f"net.ipv4.tcp_rmem=4096 131072 {SOCKET_MIB << 20}",
                          f"net.ipv4.tcp_wmem=4096 16384 {SOCKET_MIB << 20}")
            yield

    def dropped(self):
        """Returns the frames that the TAP's queue dropped."""
        found = json.loads(command(*self.inside("ip", "-json", "-s", "link", "show", "dev",
                                                self.interface)))
        return found[0]["stats64"]["tx"]["dropped"]

    def sink(self, port):
        return self.inside(sys.executable, "-c", SINK, port)

    def source(self, address, port):
        return self.inside(sys.executable, "-c", SOURCE, address, port)

    def run(self, name, *words):
        return self.inside(self.env.app(f"epoll-{name}"), *words)


class Bottleneck:
    """Pairs of hosts, one of each pair at A and one at B, and the wire.

    pairs: (stack at A, stack at B, control); stacks: coronet, kernel.
    """

    def __init__(self, env, options, pairs, wire_options):
        self.env = env
        self.pairs = [tuple(
            Ours(env, 2 * i + at, control, options) if stack == "coronet"
            else Kernels(env, 2 * i + at, control) for at, stack in enumerate(stacks, 1))
            for i, (*stacks, control) in enumerate(pairs)]
        self.hosts = [host for pair in self.pairs for host in pair]
        beside = [word for i, host in enumerate(self.hosts[2:])
                  for word in (("--beside-a", "--beside-b")[i % 2], host.link)]
        self.wire = Wire(env, *[host.link for host in self.hosts[:2]], *beside, "--control",
                         "--poll", "busy", "--lcore", WIRE, *wire_options)
        self.wire.argv[:0] = ["taskset", "-c", WIRE]
        self.counters = self.tap_dropped = None

    @contextlib.contextmanager
    def running(self):
        """Runs the wire; counters and tap_dropped are set after the block."""
        with self.wire.running(), contextlib.ExitStack() as stack:
            for host in self.hosts:
                stack.enter_context(host.join())
            yield
            self.tap_dropped = sum(host.dropped() for host in self.hosts)
            self.counters = dict(zip(("a_to_b", "b_to_a"), self.wire.end()))

    @contextlib.contextmanager
    def streams(self):
        """Starts a stream from A to B of each pair; returns the counting sinks."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self.stream(pair)) for pair in self.pairs]

    @contextlib.contextmanager
    def stream(self, pair):
        port = PORT + pair[0].number
        with self.env.running(pair[1].sink(port)) as sink:
            sink.source = self.env.start(pair[0].source(pair[1].address, port))
            try:
                yield sink
            finally:
                sink.source.kill()


def samples_of(sink):
    """Returns (seconds since the first byte, bytes) of a sink's lines."""
    lines = sink.output("stdout").split("\n")[:-1]
    return [(float(t), int(n)) for t, n in (line.split() for line in lines if line[:1].isdigit())]


def wait_for(sink, seconds):
    """Waits until a sink has counted bytes for so many seconds."""
    def counted():
        check(sink.alive() and sink.source.alive(),
              f"it ended: {sink.story()}\n{sink.source.story()}")
        found = samples_of(sink)
        return found and found[-1][0] >= seconds

    eventually(counted, seconds + WAIT_MAX_S, lambda: f"nothing comes: {sink.story()}", 0.05)
