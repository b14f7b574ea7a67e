#!/usr/bin/env python3
"""What loss costs coronet and the kernel, through the same wire.

Usage: bench_loss.py BUILD_DIR [--seconds N] [--only WORD] [--stack NAME]...
                     [--loss PERCENT]... [--delay MS]...

For each loss and delay (of each direction): one stream one way, in Mbit/s,
and echoes of 64 B at a fixed rate over many connections, with their latency.
A stack is coronet, cubic, bbr, or PATH: coronet's programs of another build.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness  # noqa: E402
from harness import check, command  # noqa: E402
from test_wire import HOSTS, SOURCE, Network, Wire, kernels  # noqa: E402

PORT = 7000
CONNS, RATE = 512, 2000  # a request each 256 ms and connection
SINK = """
import socket, sys, time
listener = socket.create_server(("", %d))
print("listening on", flush=True)
conn = listener.accept()[0]
room, taken, begun, told = bytearray(1 << 20), 0, time.monotonic(), 0.5
while n := conn.recv_into(room):
    taken += n
    if (now := time.monotonic() - begun) >= told:
        print(f"{now:.6f} {taken}", flush=True)
        told += 0.5
"""


def rate_of(sink):
    """Mbit/s from the first second on, of the lines a sink has printed."""
    lines = [line.split() for line in sink.output("stdout").splitlines() if line[:1].isdigit()]
    points = [(float(t), int(n)) for t, n in lines if float(t) >= 1]
    check(len(points) > 1, f"too few lines: {sink.story()}")
    (t0, n0), (t1, n1) = points[0], points[-1]
    return (n1 - n0) * 8e-6 / (t1 - t0)


def percentiles(program, seconds):
    status = program.wait(seconds + 60)
    check(status == 0, f"exit status {status}: {program.story()}")
    report = json.loads(program.output("stdout"))
    check(report["errors"]["total"] == 0, f"errors: {program.story()}")
    return {key: report["latency_us"][key] / 1000 for key in ("p50", "p99", "p999")}


@contextlib.contextmanager
def going(env, argv):
    """A program that says nothing, killed after the block."""
    program = env.start(argv)
    try:
        yield program
    finally:
        program.kill()


def load_options(seconds):
    return ["--conns", CONNS, "--rate", RATE, "--ramp", "1", "--warmup", "2", "--seconds", seconds,
            "--timeout", "30", "--interval", "0", "--report-limited", "--json"]


def pause(program, seconds):
    """Let a program run for so long; it must not end by itself."""
    with contextlib.suppress(Exception):
        program.process.wait(seconds)
    check(program.alive(), f"it ended: {program.story()}")


class Coronet:
    """coronet at both ends, over memif."""

    def __init__(self, env, programs):
        self.env = env
        self.flow = programs / "tests/wire/flow"
        self.apps = programs / "apps"

    @contextlib.contextmanager
    def ends(self, wire_options):
        folder = self.env.scratch_for({})
        sockets = [folder / "a.sock", folder / "b.sock"]
        wire = Wire(self.env, *[f"memif:{path},role=server" for path in sockets], *wire_options)
        with wire.running():
            yield [["--link", f"memif:{path},role=client", "--addr", f"10.9.0.{n}/16",
                    "--poll", "adaptive"] for n, path in enumerate(sockets, 1)]

    def bulk(self, wire_options, seconds):
        with self.ends(wire_options) as (a, b), \
                self.env.running([self.flow, "sink", PORT, *b]) as sink, \
                going(self.env, [self.flow, "source", f"10.9.0.2:{PORT}", *a]) as source:
            pause(source, seconds + 1.5)
            return rate_of(sink)

    def echo(self, wire_options, seconds):
        with self.ends(wire_options) as (a, b), \
                self.env.running([self.apps / "coronet-echo", "--port", PORT, *b]):
            load = self.env.start([self.apps / "coronet-load", "--target", f"10.9.0.2:{PORT}",
                                   *a, *load_options(seconds)])
            return percentiles(load, seconds)


def set_control(inside, interface, control):
    """By route: a namespace may not choose any control as its default."""
    command(*inside, "ip", "route", "replace", "10.7.0.0/24", "dev", interface,
            "congctl", control)
    command(*inside, "sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")


class Kernel:
    """The kernel's TCP at both ends, over TAPs."""

    def __init__(self, env, control):
        self.env = env
        self.control = control

    @contextlib.contextmanager
    def ends(self, wire_options):
        with kernels(self.env, *wire_options) as network:
            for end, interface in enumerate(network.interfaces):
                set_control(network.inside(end), interface, self.control)
            yield network

    def bulk(self, wire_options, seconds):
        with self.ends(wire_options) as network, \
                self.env.running([*network.inside(1), sys.executable, "-c", SINK % PORT]) as sink, \
                going(self.env, [*network.inside(0), sys.executable, "-c", SOURCE, HOSTS[1],
                                 PORT]) as source:
            pause(source, seconds + 1.5)
            return rate_of(sink)

    def echo(self, wire_options, seconds):
        with self.ends(wire_options) as network, \
                self.env.running([*network.inside(1), self.env.app("epoll-echo"),
                                  "--port", PORT]):
            load = self.env.start([*network.inside(0), self.env.app("epoll-load"),
                                   "--target", f"{HOSTS[1]}:{PORT}", *load_options(seconds)])
            return percentiles(load, seconds)


class Mixed(Coronet):
    """One end coronet over memif, the other the kernel over a TAP."""

    def __init__(self, env, programs, sends):
        super().__init__(env, programs)
        self.sends = sends

    def bulk(self, wire_options, seconds):
        folder = self.env.scratch_for({})
        number = sum(1 for _ in self.env.scratch.iterdir())
        socket, tap = folder / "a.sock", f"wm{number}"
        wire = Wire(self.env, f"memif:{socket},role=server", f"tap:{tap}", *wire_options)
        ours = ["--link", f"memif:{socket},role=client", "--addr", f"{HOSTS[0]}/24",
                "--poll", "adaptive"]
        with wire.running():
            network = Network(self.env, wire, [tap])
            try:
                network.join()
                inside = network.inside(0)
                command(*inside, "ip", "addr", "del", f"{HOSTS[0]}/24", "dev", tap)
                command(*inside, "ip", "addr", "add", f"{HOSTS[1]}/24", "dev", tap)
                set_control(inside, tap, "cubic")
                return self.through(inside, ours, seconds)
            finally:
                network.part()

    def through(self, inside, ours, seconds):
        if self.sends:
            sink = [*inside, sys.executable, "-c", SINK % PORT]
            source = [self.flow, "source", f"{HOSTS[1]}:{PORT}", *ours]
        else:
            sink = [self.flow, "sink", PORT, *ours]
            source = [*inside, sys.executable, "-c", SOURCE, HOSTS[0], PORT]
        with self.env.running(sink) as receiver, \
                going(self.env, source) as sender:
            pause(sender, seconds + 1.5)
            return rate_of(receiver)

    def echo(self, wire_options, seconds):
        return {}


def stack_of(env, name):
    if name in ("cubic", "bbr"):
        return Kernel(env, name)
    if name in ("to-kernel", "from-kernel"):
        return Mixed(env, env.build, name == "to-kernel")
    return Coronet(env, env.build if name == "coronet" else pathlib.Path(name))


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--repeat", type=int, default=1, help="the median is shown")
    parser.add_argument("--only", choices=["bulk", "echo"])
    parser.add_argument("--stack", action="append")
    parser.add_argument("--loss", action="append", type=float)
    parser.add_argument("--delay", action="append", type=float)
    return parser.parse_args()


def measure(env, opts, name, loss, delay):
    stack = stack_of(env, name)
    text = f"{loss:6g} % {delay:4g} ms  {pathlib.Path(name).name:12}"
    runs = [["--loss", loss, "--delay", delay, "--seed", seed + 1] for seed in range(opts.repeat)]
    if opts.only != "echo":
        rates = [stack.bulk(wire, opts.seconds) for wire in runs]
        text += f" {statistics.median(rates):9.2f} Mbit/s ({min(rates):.1f} - {max(rates):.1f})"
    if opts.only != "bulk":
        found = [stack.echo(wire, opts.seconds) for wire in runs]
        for key in found[0]:
            text += f"  {key} {statistics.median(one[key] for one in found):8.2f} ms"
    print(text, flush=True)


def main():
    if harness.INSIDE not in sys.argv:
        harness.reenter()
    sys.argv.remove(harness.INSIDE)
    opts = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    env = harness.Env(opts.build.resolve(), [])
    try:
        command("ip", "link", "set", "lo", "up")
        for loss in opts.loss or [0.1, 1]:
            for delay in opts.delay or [1, 10, 50]:
                for name in opts.stack or ["coronet", "cubic", "bbr"]:
                    measure(env, opts, name, loss, delay)
    except harness.Failure as failure:
        sys.exit(f"bench_loss.py: {failure}")
    finally:
        env.close()


if __name__ == "__main__":
    main()
