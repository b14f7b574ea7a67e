#!/usr/bin/env python3
"""What the stack does, beside what it is measured against, in one run.

    ./dev bench net                 every row
    ./dev bench net echo cps        these rows

Every point is measured several times, the points by turns, so that a machine
that grows slower does so for all of them; the table gives medians with the
lowest and highest. The server has core 0, its load core 1. The load is flood
(flood.c), which costs a fraction of the server; where a load was itself
the limit the row says so.
"""

import argparse
import glob
import os
import statistics
import sys
import time

from rig import HUGE_NEEDED, TOP, Rig, Unmeasured, figures
from children import Children, Failure, main

MILLION = 1000000


# ---- points: one measurement each ----

class Bench(Rig):
    """A rig that keeps every figure by point; each point returns a dict with
    "requests_per_s"."""

    def __init__(self, options, children):
        super().__init__(options, children)
        self.results = {}

    def echo(self, conns, *extra, **rest):
        return self.memif_flood("--conns", str(conns), *extra, **rest)

    def point_macswap(self):
        return self.macswap()

    def point_epoll(self):
        return self.loopback("--conns", "64", "--seconds",
                             f"{self.options.seconds:g}")

    def point_uring(self):
        return self.loopback("--conns", "64", "--seconds",
                             f"{self.options.seconds:g}", name="uring-echo")

    def point_echo(self):
        return self.echo(64)

    def point_raw(self):
        return self.echo(64, program=("tests", "bench", "raw-echo"))

    def point_user(self):
        return self.echo(64, huge=False)

    def point_one(self):
        return self.echo(1)

    def point_thousand(self):
        return self.echo(1000)

    def point_hundredk(self):
        return self.echo(100000, "--warmup", "1")

    def point_million(self):
        return self.echo(MILLION, "--warmup", "2")

    def point_cps(self):
        return self.echo(64, "--mode", "cps")

    def point_half(self):
        """The open loop at half of what the closed one reached."""
        known = self.results.get("echo") or [self.point_echo()]
        rate = statistics.median(f["requests_per_s"] for f in known) / 2
        return self.echo(64, "--rate", f"{rate:.0f}")

    def bulk(self, streams):
        return self.memif_load("--mode", "bulk", "--conns", str(streams),
                               "--seconds", f"{self.options.seconds:g}",
                               "--warmup", "0.5")

    def point_bulk1(self):
        return self.bulk(1)

    def point_bulk64(self):
        return self.bulk(64)

    def point_idle(self):
        return self.idle_coronet(MILLION)


# ---- rows: what the points say together ----

class Row:
    """A line of the table: its points, its figure and its goal."""

    def __init__(self, name, text, points, value, unit, goal, more=True,
                 optional=()):
        self.name, self.text, self.points = name, text, points
        self.value, self.unit, self.goal = value, unit, goal
        self.more, self.optional = more, optional


def rate(found):
    return found["requests_per_s"]


def over(a, b):
    """Of two points' rates; by turns, so that both saw the same machine."""
    return lambda r: [rate(x) / rate(y) for x, y in zip(r[a], r[b])]


def of(point, get=rate):
    return lambda r: [get(x) for x in r[point]]


def gbit(found):
    return found["bytes_per_s"] * 8e-9


ROWS = [
    Row("macswap", "testpmd macswap, 118 B frames", ["macswap"],
        of("macswap"), "/s", None),
    Row("epoll", "epoll on loopback, 64 connections", ["epoll"],
        of("epoll"), "/s", None),
    Row("uring", "io_uring on loopback, 64 connections", ["uring"],
        of("uring"), "/s", None),
    Row("echo", "echo, 64 connections", ["echo"], of("echo"), "/s", None),
    Row("echo", "  over macswap", ["echo", "macswap"],
        over("echo", "macswap"), "x", 0.33),
    Row("echo", "  over epoll on loopback", ["echo", "epoll"],
        over("echo", "epoll"), "x", 40),
    Row("echo", "  over io_uring on loopback", ["echo", "uring"],
        over("echo", "uring"), "x", 20),
    Row("echo", "  p99 over epoll's", ["echo", "epoll"],
        lambda r: [a["latency_us"]["p99"] / b["latency_us"]["p99"]
                   for a, b in zip(r["echo"], r["epoll"])], "x", 0.05, False),
    Row("one", "echo, one connection", ["one"], of("one"), "/s", 1.9e6),
    Row("one", "  p50", ["one"],
        of("one", lambda f: f["latency_us"]["p50"]), "us", 0.5, False),
    Row("1000", "1,000 connections over 64", ["thousand", "echo"],
        over("thousand", "echo"), "x", 0.95),
    Row("100000", "100,000 connections over 64", ["hundredk", "echo"],
        over("hundredk", "echo"), "x", 0.5),
    Row("1000000", "1,000,000 connections over 64", ["million", "echo"],
        over("million", "echo"), "x", 0.3),
    Row("coro", "coroutine echo over raw callbacks", ["echo", "raw"],
        over("echo", "raw"), "x", 0.93),
    Row("cps", "connect + echo + close", ["cps"], of("cps"), "/s", None),
    Row("cps", "  over macswap", ["cps", "macswap"], over("cps", "macswap"),
        "x", 0.08),
    Row("bulk", "one bulk stream, each way, both at once", ["bulk1"],
        of("bulk1", gbit), "Gbit/s", 30),
    Row("bulk", "64 bulk streams, each way, both at once", ["bulk64"],
        of("bulk64", gbit), "Gbit/s", None),
    Row("half", "p99 at half the rate, open loop", ["echo", "half"],
        of("half", lambda f: f["latency_us"]["p99"]), "us", None),
    Row("idle", "a million idle: server resident", ["idle"],
        of("idle", lambda f: f["server_kib"] / 1024), "MiB", 768, False),
    Row("idle", "  a connection", ["idle"],
        of("idle", lambda f: f["server_kib"] * 1024 / MILLION), "B", None),
    Row("idle", "  when all have been asked again", ["idle"],
        of("idle", lambda f: f["after_kib"] / 1024), "MiB", None),
    Row("idle", "  opened", ["idle"], of("idle", lambda f: f["opened_per_s"]),
        "/s", None),
    Row("user", "without hugepages over with them", ["user", "echo"],
        over("user", "echo"), "x", 0.3),
]


def short(value):
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e4:
        return f"{value / 1e3:.0f} k"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def verdict(row, value):
    if row.goal is None:
        return "", ""
    sign = ">=" if row.more else "<="
    met = value >= row.goal if row.more else value <= row.goal
    return f"{sign} {short(row.goal)}", "PASS" if met else "MISS"


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
        span = f"{short(min(values))} - {short(max(values))}"
        limited = any(f.get("limited") for f in results[row.points[0]])
        note = "  the load was the limit" if limited else ""
        print(f"{row.name:<9}{row.text:<37}{short(middle):>9} {row.unit:<7}"
              f"{span:>19}  {goal:>9}  {result}{note}")


def parse():
    names = list(dict.fromkeys(row.name for row in ROWS))
    parser = figures.OneLineParser(
        prog="bench net", allow_abbrev=False,
        description="Measures coronet beside testpmd and epoll.")
    parser.add_argument("rows", nargs="*", metavar="ROW",
                        help="of: " + " ".join(names))
    parser.add_argument("--seconds", type=figures.seconds, default=2.0,
                        metavar="N", help="of each measurement (default 2)")
    parser.add_argument("--repeat", type=figures.whole(1, 100), default=3,
                        metavar="N", help="times each (default 3)")
    parser.add_argument("--json", metavar="FILE",
                        help="write every figure there as well")
    parser.add_argument("--build", default=os.path.join(TOP, "build"),
                        metavar="FOLDER", help="where the programs were built")
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
    with Children("bench") as children:
        bench = Bench(options, children)
        print(f"server on core {bench.cores[0]}, load on core "
              f"{bench.cores[1]}; memory: "
              + ("hugepages" if bench.huge else
                 f"no hugepages (needs {HUGE_NEEDED} free ones of 2 MiB)")
              + f"; {options.repeat} x {options.seconds:g} s", flush=True)
        for turn in range(options.repeat):
            for point in points:
                if point == "user" and not bench.huge:
                    bench.results[point] = []
                    continue
                if point == "idle" and turn > 0:
                    continue  # memory does not vary
                begun = time.monotonic()
                try:
                    found = getattr(bench, "point_" + point)()
                except Unmeasured as why:
                    print(f"  {point}: not measured: {why}", flush=True)
                    continue
                bench.results.setdefault(point, []).append(found)
                print(f"  {turn + 1}/{options.repeat} {point:<10}"
                      f"{short(found['requests_per_s']):>9}/s"
                      f"{time.monotonic() - begun:7.1f} s", flush=True)
        print_table(rows, bench.results, bench.huge)
        figures.write_json(options, bench.results)
    left = set(glob.glob("/dev/hugepages/*")) - before
    if left:
        raise Failure(f"hugepage files were left behind: {sorted(left)}")
    return 0


if __name__ == "__main__":
    main(run)
