#!/usr/bin/env python3
"""ECN (RFC 3168) between us and a kernel, through a wire that marks packets in a long queue.

Usage: test_ecn.py BUILD_DIR
"""

import contextlib
import functools
import re
import sys
import time

from harness import WAIT_MAX_S, Spoiled, check, command, eventually, in_a_quiet_moment, main
from wires import HOSTS, Network, Wire

# 20 Mbit/s over 20 ms are 33 frames in flight; with 20 in the queue new ones are marked.
RATE = 20e6
PATH = ["--delay", "10", "--rate", "20", "--queue", "100", "--mark", "20"]
BYTES = 8 << 20

# The kernel's default in a namespace may be BBR, which ignores marks.
SOURCE = """
import socket, sys
conn = socket.socket()
conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
conn.connect((sys.argv[1], int(sys.argv[2])))
while True:
    conn.sendall(bytes(65536))
"""

SINK = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
conn = listener.accept()[0]
while conn.recv(1 << 16):
    pass
"""


class Pair:
    """Our link at A of a wire, and a kernel at B."""

    def __init__(self, env, wire, link, inside):
        self.env, self.wire, self.link, self.inside = env, wire, link, inside

    def kernel(self, script, *words):
        return self.env.start([*self.inside, sys.executable, "-c", script, *words])

    def kernel_counter(self, name):
        found = re.search(rf"^{name}\s+(\d+)", command(*self.inside, "nstat", "-asz", name), re.M)
        return int(found.group(1))

    def kernel_says_ecn(self):
        """Whether `ss` shows ecn for the active connection."""
        lines = re.findall(r"^\s.*\bcwnd:.*$", command(*self.inside, "ss", "-tine", "state",
                                                       "established"), re.MULTILINE)
        return any(" ecn " in f" {line} " for line in lines)


@contextlib.contextmanager
def pair(env, kernel_ecn, *options):
    socket, interface = env.scratch_for({}) / "a.sock", "we0"
    wire = Wire(env, f"memif:{socket},role=server", f"tap:{interface}", "--control", *options)
    with wire.running():
        network = Network(env, wire, [interface])
        try:
            inside = network.join().inside(0)
            command(*inside, "ip", "addr", "flush", "dev", interface)
            command(*inside, "ip", "addr", "add", f"{HOSTS[1]}/24", "dev", interface)
            command(*inside, "sysctl", "-qw", f"net.ipv4.tcp_ecn={kernel_ecn}")
            yield Pair(env, wire, ["--link", f"memif:{socket},role=client", "--addr",
                                   f"{HOSTS[0]}/24", "--poll", "adaptive"], inside)
        finally:
            network.part()


@contextlib.contextmanager
def we_send(path, *options):
    """The stack dials and sends; a_to_b has the bytes."""
    sink = path.kernel(SINK, HOSTS[1], "7777")
    eventually(lambda: "ready" in sink.output("stdout"), WAIT_MAX_S, sink.story)
    ours = path.env.start([path.env.build / "tests/wire/flow", "source", f"{HOSTS[1]}:7777",
                           *path.link, *options])
    yield "a_to_b", ours
    ours.kill()
    sink.kill()


@contextlib.contextmanager
def the_kernel_sends(path, *options):
    """The kernel dials and sends; b_to_a has the bytes."""
    with path.env.running([path.env.build / "tests/wire/flow", "sink", "7777", *path.link,
                           *options]):
        source = path.kernel(SOURCE, HOSTS[0], "7777")
        yield "b_to_a", source
        source.kill()


def watch(path, direction, program, until):
    eventually(lambda: until(path.wire.now()[direction]), WAIT_MAX_S,
               lambda: f"{path.wire.now()[direction]}: {program.story()}")


def marks_in_place_of_drops(env, sends, options):
    """With ECN packets are marked, none is dropped, and the rate is used."""
    def attempt():
        with pair(env, 1, *PATH) as path, sends(path, *options) as (direction, program):
            watch(path, direction, program, lambda counts: counts["marked"] > 0)
            check(path.kernel_says_ecn(), "ss shows no ecn")
            begin, before = time.monotonic(), path.wire.now()[direction]["out_bytes"]
            watch(path, direction, program, lambda counts: counts["out_bytes"] > before + BYTES)
            after = path.wire.now()[direction]
            rate = (after["out_bytes"] - before) * 8 / (time.monotonic() - begin)
            # Each side has seen the other's marks or echoes.
            capable = path.kernel_counter("IpExtInECT0Pkts")
            marked = path.kernel_counter("IpExtInCEPkts")
        check(after["marked"] > 1, f"hardly a mark: {after}")
        if direction == "a_to_b":
            check(capable > 1000 and marked > 0, f"ECT(0) {capable}, CE {marked}")
        if after["queue_dropped"] or rate < 0.6 * RATE:
            raise Spoiled(f"{rate / 1e6:.1f} Mbit/s: {after}")

    in_a_quiet_moment(attempt)


def drops_without_it(env, sends, kernel_ecn, options):
    """Without an agreement on ECN no packet is marked, and the queue overflows."""
    with pair(env, kernel_ecn, *PATH) as path, sends(path, *options) as (direction, program):
        watch(path, direction, program, lambda counts: counts["queue_dropped"] > 0)
        check(not path.kernel_says_ecn(), "ss shows ecn")
        counts = path.wire.now()
        check(counts["a_to_b"]["marked"] == counts["b_to_a"]["marked"] == 0, f"marks: {counts}")


def cases(env):
    for cc in ("cubic", "reno", "bbr"):
        yield (f"we send with {cc}: marks in place of drops",
               functools.partial(marks_in_place_of_drops, env, we_send,
                                 ["--ecn", "on", "--cc", cc]))
    yield ("a kernel sends: marks in place of drops",
           functools.partial(marks_in_place_of_drops, env, the_kernel_sends, []))
    yield ("we send without ECN: drops",
           functools.partial(drops_without_it, env, we_send, 1, []))
    yield ("a kernel is refused ECN: drops",
           functools.partial(drops_without_it, env, the_kernel_sends, 1, ["--ecn", "off"]))
    yield ("a kernel does not answer: drops",
           functools.partial(drops_without_it, env, we_send, 0, ["--ecn", "on"]))


if __name__ == "__main__":
    main(cases)
