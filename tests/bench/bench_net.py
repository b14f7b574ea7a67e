#!/usr/bin/env python3
"""The stack's figures beside their references, in one run.

    ./dev bench net                 every row
    ./dev bench net echo cps        these rows

Every point is measured several times, the points by turns, so that a machine
that grows slower does so for all of them; the table gives medians with the
lowest and highest. The server has core 0, its load core 1. The load is flood
(flood.c), which costs a fraction of the server; where a load was itself
the limit the row says so.

The veth rows have a network namespace for each end, so that all of it runs in
one of its own where the system lets it; AF_XDP needs root as well.
"""

import dataclasses
import functools
import glob
import re
import statistics
import sys
import time

from children import Children, Failure, check, main
from points import request_rate, run_gbit
from rig import HUGE_NEEDED, Rig, Skip, figures, harness, kill_child, prepare_network
from tables import format_short

MILLION = 1000000


# ---- points: one measurement each ----

class Bench(Rig):
    """A rig that keeps all figures by point; a point returns a dict with "requests_per_s"."""

    def __init__(self, options, children):
        super().__init__(options, children)
        self.results = {}

    def points(self):
        bind = functools.partial
        timed = ["--seconds", f"{self.options.seconds:g}"]

        def memif(conns, *words, **rest):
            return bind(self.memif_flood, "--conns", str(conns), *words, **rest)

        def kernel(conns, *words, **rest):
            return bind(self.loopback, "--conns", str(conns), *timed, *words, **rest)

        def veth(kind, conns):
            return bind(self.veth_load, kind, "--conns", str(conns), "--warmup", "0.3", *timed)

        return {
            "macswap": self.macswap, "epoll": kernel(64), "uring": kernel(64, name="uring-echo"),
            "echo": memif(64), "raw": memif(64, program=("tests", "bench", "raw-echo")),
            "user": memif(64, huge=False), "one": memif(1), "thousand": memif(1000),
            "tenk": memif(10000), "hundredk": memif(100000, "--warmup", "1"),
            "million": memif(MILLION, "--warmup", "2"), "cps": memif(64, "--mode", "cps"),
            "udp": memif(64, "--mode", "udp", options=["--udp"]),
            "udpxdp": bind(self.veth_flood, "af_xdp", "--mode", "udp", options=["--udp"]),
            "udpveth": bind(self.veth_flood, "epoll", "--mode", "udp", options=["--udp"]),
            "half": lambda: memif(64, *self.half_rate())(), "syns": self.syns,
            **{f"loop{conns}": bind(self.loop, conns)
               for conns in (64, 1000, 10000, 100000, MILLION)},
            "bulk1": memif(1, "--mode", "bulk"), "bulk64": memif(64, "--mode", "bulk"),
            "epollbulk": kernel(1, "--mode", "bulk", "--warmup", "0.5"),
            "proxy": bind(self.memif_proxy, 64), "proxy1": bind(self.memif_proxy, 1),
            "epollproxy": bind(self.loopback_proxy, 64),
            "epollproxy1": bind(self.loopback_proxy, 1),
            "xdp": veth("af_xdp", 64), "xdp1": veth("af_xdp", 1),
            "packet": veth("af_packet", 64),
            "epollveth": veth("epoll", 64), "epollveth1": veth("epoll", 1),
            "xdpflood": bind(self.veth_flood, "af_xdp", "--conns", "64"),
            "epollvethflood": bind(self.veth_flood, "epoll", "--conns", "64"),
            "idle": bind(self.idle_coronet, MILLION)}

    def half_rate(self):
        """An open loop at half the closed loop's rate."""
        known = self.results.get("echo") or [self.memif_flood("--conns", "64")]
        return ["--rate", f"{statistics.median(map(request_rate, known)) / 2:.0f}"]

    def syns(self):
        """The same while the load sends SYNs at the link's full rate, from addresses behind the
        load as a gateway."""
        asked = self.half_rate()
        ours, theirs = self.memif()
        server = self.coronet(ours, extra=("--gateway", figures.CLIENT_ADDR))
        found = self.flood(theirs, server, "--conns", "64", *asked, "--syns")
        kill_child(server)
        return found

    def loop(self, conns):
        """The stack alone, no DPDK port: bench-loop."""
        child = self.children.run(["taskset", "-c", str(self.cores[0]), self.built_path(
            "tests", "bench", "bench-loop"), str(conns)], 600)
        said = re.search(r"([\d.]+) ns an echo", child.output("stdout"))
        check(said, f"bench-loop: {child.story()}")
        return {"requests_per_s": 1e9 / float(said[1])}


# ---- rows: comparisons of points ----

@dataclasses.dataclass
class Row:
    """A line of the table: its points, its figure and its goal."""

    name: str
    text: str
    points: list
    value: callable
    unit: str
    goal: float
    more: bool = True


def over(a, b, get=request_rate):
    """Returns the ratios of two points' rates, turn by turn, so that both saw the same machine."""
    return lambda r: [get(x) / get(y) for x, y in zip(r[a], r[b])]


def rates_of(point, get=request_rate):
    return lambda r: [get(x) for x in r[point]]


# Compared with 64 connections; the pattern is nearly the same: with more than 1,024, flood
# acknowledges answers by separate ACKs (flood.h).
MORE = [("1,000", "thousand", "loop1000", 0.95),
        ("10,000", "tenk", "loop10000", 0.75),
        ("100,000", "hundredk", "loop100000", 0.6),
        ("1,000,000", "million", "loop1000000", 0.4)]

ROWS = [
    Row("macswap", "testpmd macswap, 118 B frames", ["macswap"],
        rates_of("macswap"), "/s", None),
    Row("epoll", "epoll on loopback, 64 connections", ["epoll"],
        rates_of("epoll"), "/s", None),
    Row("uring", "io_uring on loopback, 64 connections", ["uring"],
        rates_of("uring"), "/s", None),
    Row("echo", "echo, 64 connections", ["echo"], rates_of("echo"), "/s", None),
    Row("echo", "  over macswap", ["echo", "macswap"],
        over("echo", "macswap"), "x", 0.40),
    Row("echo", "  over epoll on loopback", ["echo", "epoll"],
        over("echo", "epoll"), "x", 40),
    Row("echo", "  over io_uring on loopback", ["echo", "uring"],
        over("echo", "uring"), "x", 20),
    Row("echo", "  p99 over epoll's", ["echo", "epoll"],
        lambda r: [a["latency_us"]["p99"] / b["latency_us"]["p99"]
                   for a, b in zip(r["echo"], r["epoll"])], "x", 0.05, False),
    Row("one", "one connection over 64", ["one", "echo"],
        over("one", "echo"), "x", 0.25),
    Row("one", "  p50", ["one"],
        rates_of("one", lambda f: f["latency_us"]["p50"]), "us", 0.6, False),
    *(Row("many", f"{text} connections over 64", [point, "echo"],
          over(point, "echo"), "x", goal) for text, point, _, goal in MORE),
    *(Row("loop", f"{text} over 64, the stack alone", [point, "loop64"],
          over(point, "loop64"), "x", goal) for text, _, point, goal in MORE),
    Row("coro", "coroutine echo over raw callbacks", ["echo", "raw"],
        over("echo", "raw"), "x", 0.9),
    Row("cps", "connect + echo + close", ["cps"], rates_of("cps"), "/s", None),
    Row("cps", "  over macswap", ["cps", "macswap"], over("cps", "macswap"),
        "x", 0.10),
    Row("udp", "datagrams of 64 B echoed", ["udp"], rates_of("udp"), "/s", None),
    Row("udp", "  over macswap", ["udp", "macswap"], over("udp", "macswap"), "x", 0.5),
    Row("udp", "  over recvmmsg on a veth", ["udp", "udpveth"], over("udp", "udpveth"), "x", 10),
    Row("udp", "  by af_xdp, over the same", ["udpxdp", "udpveth"], over("udpxdp", "udpveth"),
        "x", None),
    Row("bulk", "one bulk stream in each direction, both at once", ["bulk1"],
        rates_of("bulk1", run_gbit), "Gbit/s", None),
    Row("bulk", "  over epoll on loopback", ["bulk1", "epollbulk"],
        over("bulk1", "epollbulk", run_gbit), "x", 2.5),
    Row("bulk", "  64 streams over one", ["bulk64", "bulk1"],
        over("bulk64", "bulk1", run_gbit), "x", 0.9),
    Row("half", "p99 at half the rate, open loop", ["echo", "half"],
        rates_of("half", lambda f: f["latency_us"]["p99"]), "us", None),
    Row("syns", "the same beside a flood of SYNs", ["echo", "half", "syns"],
        over("syns", "half"), "x", 0.9),
    Row("syns", "  the flood", ["syns"], rates_of("syns", lambda f: f["syns_per_s"]),
        "/s", None),
    Row("proxy", "proxy, 64 connections, over epoll's",
        ["proxy", "epollproxy"], over("proxy", "epollproxy"), "x", 8),
    Row("proxy", "  one connection", ["proxy1", "epollproxy1"],
        over("proxy1", "epollproxy1"), "x", 2),
    # Half of each is the load's kernel, whose TCP is equal for both.
    Row("veth", "af_xdp on a veth, 64 connections", ["xdp"], rates_of("xdp"), "/s",
        None),
    Row("veth", "  over epoll on a veth", ["xdp", "epollveth"],
        over("xdp", "epollveth"), "x", 1.1),
    Row("veth", "  one connection", ["xdp1", "epollveth1"],
        over("xdp1", "epollveth1"), "x", 1.3),
    Row("veth", "  af_packet instead", ["packet", "epollveth"],
        over("packet", "epollveth"), "x", None),
    Row("veth", "  a load that is by af_xdp, too", ["xdpflood"],
        rates_of("xdpflood"), "/s", None),
    Row("veth", "  the same, over epoll with that load",
        ["xdpflood", "epollvethflood"], over("xdpflood", "epollvethflood"),
        "x", 1.5),
    Row("idle", "a million idle: server resident", ["idle"],
        rates_of("idle", lambda f: f["server_kib"] / 1024), "MiB", 640, False),
    Row("idle", "  a connection", ["idle"],
        rates_of("idle", lambda f: f["server_kib"] * 1024 / MILLION), "B", None),
    Row("idle", "  when all have been asked again", ["idle"],
        rates_of("idle", lambda f: f["after_kib"] / 1024), "MiB", None),
    Row("idle", "  opened", ["idle"], rates_of("idle", lambda f: f["opened_per_s"]),
        "/s", None),
    Row("user", "without hugepages over with them", ["user", "echo"],
        over("user", "echo"), "x", 0.3),
]


def verdict(row, value):
    if row.goal is None:
        return "", ""
    sign = ">=" if row.more else "<="
    met = value >= row.goal if row.more else value <= row.goal
    return f"{sign} {format_short(row.goal)}", "PASS" if met else "MISS"


def print_table(rows, results, huge):
    print(f"\n{'row':<9}{'what':<37}{'median':>9} {'unit':<7}"
          f"{'lowest - highest':>19}  {'goal':>9}  result")
    for row in rows:
        if any(point not in results for point in row.points):
            print(f"{row.name:<9}{row.text:<37}{'not measured':>17}")
            continue
        if row.name == "user" and not huge:
            print(f"{row.name:<9}{row.text:<37}{'no hugepages here':>17}")
            continue
        values = row.value(results)
        middle = statistics.median(values)
        goal, result = verdict(row, middle)
        span = f"{format_short(min(values))} - {format_short(max(values))}"
        limited = any(f.get("limited") for f in results[row.points[0]])
        note = "  the load was the limit" if limited else ""
        print(f"{row.name:<9}{row.text:<37}{format_short(middle):>9} {row.unit:<7}"
              f"{span:>19}  {goal:>9}  {result}{note}")


def parse():
    names = list(dict.fromkeys(row.name for row in ROWS))
    parser = figures.new_parser("bench net", "Measures coronet beside testpmd and epoll.")
    parser.add_argument("rows", nargs="*", metavar="ROW",
                        help="of: " + " ".join(names))
    parser.add_argument("--seconds", type=figures.seconds, default=2.0,
                        metavar="N", help="of each measurement (default 2)")
    parser.add_argument("--repeat", type=figures.whole_number(1, 100), default=3,
                        metavar="N", help="times each (default 3)")
    figures.add_json(parser)
    options = parser.parse_args()
    for name in options.rows:
        if name not in names:
            parser.error(f"no row '{name}'; there are: {' '.join(names)}")
    return options


def run():
    options = parse()
    rows = [row for row in ROWS if not options.rows or
            row.name in options.rows]
    points = list(dict.fromkeys(p for row in rows for p in row.points))
    before = set(glob.glob("/dev/hugepages/*"))
    if harness.INSIDE in sys.argv:
        prepare_network()
    with Children("bench") as children:
        bench = Bench(options, children)
        print(f"server on core {bench.cores[0]}, load on core "
              f"{bench.cores[1]}; memory: "
              + ("hugepages" if bench.huge else
                 f"no hugepages (needs {HUGE_NEEDED} free ones of 2 MiB)")
              + f"; {options.repeat} x {options.seconds:g} s", flush=True)
        measured = bench.points()
        for turn in range(options.repeat):
            for point in points:
                if point == "user" and not bench.huge:
                    bench.results[point] = []
                    continue
                if point == "idle" and turn > 0:
                    continue  # memory does not vary
                begun = time.monotonic()
                try:
                    found = measured[point]()
                except Skip as why:
                    print(f"  {point}: not measured: {why}", flush=True)
                    continue
                bench.results.setdefault(point, []).append(found)
                print(f"  {turn + 1}/{options.repeat} {point:<10}"
                      f"{format_short(found['requests_per_s']):>9}/s"
                      f"{time.monotonic() - begun:7.1f} s", flush=True)
        print_table(rows, bench.results, bench.huge)
        figures.write_json(options, bench.results)
    left = set(glob.glob("/dev/hugepages/*")) - before
    if left:
        raise Failure(f"hugepage files were left behind: {sorted(left)}")
    return 0


if __name__ == "__main__":
    if harness.INSIDE not in sys.argv and not {"-h", "--help"} & set(sys.argv):
        parse()  # reports a wrong option at once
        if harness.namespace_command():
            harness.reenter()
    main(run)
