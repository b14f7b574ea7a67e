#!/usr/bin/env python3
"""The whole benchmark: every path, one report.

    ./dev bench            everything, a quarter of an hour
    ./dev bench quick      the same shape in less than two minutes
    ./dev bench again --only TABLE    a table of the report that is there
    ./dev bench render     the report once more, from its report.json
    ./dev bench publish    that report's figures into README and docs/

Every point is measured several times, the points by turns, so that a machine that grows slower does
so for all of them; the report has medians with the lowest and the highest. build/bench/ then has
report.md, report.json, report.html and the plots. The paths are rig.py's.
"""

import argparse
import math
import os
import pathlib
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "integration")]

import bench_proxy  # noqa: E402
import children  # noqa: E402
import harness  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402
import tables  # noqa: E402
import turns  # noqa: E402
from harness import Skip  # noqa: E402
from figures import TOP  # noqa: E402
from rig import FILES_BESIDE, Rig, figures, prepare_network  # noqa: E402

TABLES = ("macswap", "echo", "nohuge", "open", "half", "cps", "bulk", "idle", "proxy", "coro")
PORTS = 60000           # of one client address, with some in TIME_WAIT
QUICK_S = 100           # no point of a quick run starts later
KIB_CORONET = 3         # a connection, the server's and its load's
KIB_KERNEL = 8          # the same with a kernel server
CORO_QUICK = ("switch", "switch-fp", "switch-slow", "shared-64", "shared-448", "shared-960",
              "random-100k", "create", "memory-1M")
NO_NETWORK = ("a TAP needs a network namespace: neither root, user namespaces nor sudo -n here")
# The kernel's server on paths with one.
SERVERS = {"loopback": "epoll-echo", "kerneltap": "epoll-echo",
           "uring": "uring-echo", "uringtap": "uring-echo"}
LOADS = ("tap", "loopback", "uring")  # epoll-load's, which is the kernel's client


def all_points():
    """(table, path, connections, whether a quick run has it), in the order of measuring."""
    paths = ("memif", "loopback", "tap", "kerneltap")
    servers = ("memif", "loopback", "uring", "tap", "kerneltap", "uringtap")
    return [("macswap", "macswap", 0, True),
            *[("echo", path, conns, conns in (1, 64) or (path, conns) == ("memif", 10000))
              for conns in (1, 8, 64, 1000, 10000, 100000, 1000000) for path in servers],
            ("nohuge", "memif", 64, True),
            *[("open", path, 64, True) for path in paths],
            ("half", "memif", 64, False),
            *[("cps", path, 64, True) for path in servers],
            *[("bulk", path, conns, conns == 1) for conns in (1, 64) for path in paths],
            *[("idle", path, conns, conns == 10000) for conns in (10000, 100000, 1000000)
              for path in ("memif", "kerneltap")]]


class Matrix(turns.Run):
    """Measures everything, and keeps it for the report; one method per table."""

    def __init__(self, options, started):
        super().__init__(QUICK_S if options.quick else math.inf)
        self.options = options
        self.rig = Rig(options, started)
        self.clear = self.rig.reset
        self.rates = {}      # of the first turn's echoes, by path
        self.out = {
            "schema": 1, "date": turns.format_now(), "quick": options.quick,
            "seconds": options.seconds, "repeat": options.repeat,
            "hugepages": self.rig.huge, "cores": list(self.rig.cores), "open_rate": None,
            "machine": machine.describe(TOP, options.build),
            "coro": None, "coro_reason": None, "proxy": [], "proxy_reason": None,
            "points": [{"table": table, "path": path, "conns": conns, "runs": [], "reason": None}
                       for table, path, conns, quick in all_points()
                       if self.wanted(table) and (quick or not options.quick)]}

    def wanted(self, table):
        return not self.options.only or table in self.options.only

    # ---- measurements ----

    def check_needs(self, path, conns):
        """Skips points that this machine cannot run."""
        rig, free = self.rig, machine.available_kib()
        kib = KIB_KERNEL if path in ("kerneltap", "uringtap") else KIB_CORONET
        if "tap" in path and not rig.alone:
            raise Skip(NO_NETWORK)
        if conns * kib > free * 0.8:
            raise Skip(f"{conns:,} connections take {conns * kib >> 10:,} MiB; {free >> 10:,} MiB "
                       "are available")
        if path in LOADS and conns > PORTS:
            raise Skip("epoll-load has one address, and so 64,000 ports")
        if path != "memif" and conns + FILES_BESIDE > rig.files:
            raise Skip("the kernel's sockets are files, of which a process may have "
                       f"{rig.files:,} here (ulimit -Hn)")

    def load(self, path, conns, *words, seconds=math.inf):
        """Measures a server and its load; the kernel's client may have fewer seconds."""
        self.check_needs(path, conns)
        words = ["--conns", str(conns), *words]
        if path in LOADS:
            words += ["--seconds", f"{min(seconds, self.options.seconds):g}"]
        if path == "memif":
            return self.rig.memif_flood(*words)
        if path == "tap":
            return self.rig.tap_load(*words)
        if path in LOADS:
            return self.rig.loopback(*words, name=SERVERS[path])
        return self.rig.kerneltap_flood(*words, server=SERVERS[path])

    def macswap(self, _path, _conns):
        return self.rig.macswap()

    def echo(self, path, conns, *words):
        # Every connection has had a request before the measurement.
        warmup = "2" if conns >= 1000000 else "1" if conns >= 100000 else "0.3"
        found = self.load(path, conns, "--warmup", warmup, *words)
        if conns == 64 and not words:
            self.rates.setdefault(path, found["requests_per_s"])
        return found

    def nohuge(self, _path, conns):
        if not self.rig.huge:
            raise Skip("there are no hugepages here: every row is without them")
        return self.rig.memif_flood("--conns", str(conns), huge=False)

    def open(self, path, conns):
        """The open loop, every path at half of the slowest path's rate."""
        if self.out["open_rate"] is None:
            if not self.rates:
                raise Skip("no echo could be measured before")
            slowest = min(self.rates.values()) / 2
            digits = 10 ** max(0, len(f"{slowest:.0f}") - 2)
            self.out["open_rate"] = int(slowest // digits * digits)
        return self.echo(path, conns, "--rate", str(self.out["open_rate"]))

    def half(self, path, conns):
        """The open loop at half of this path's own rate."""
        if path not in self.rates:
            raise Skip("its closed loop could not be measured")
        return self.echo(path, conns, "--rate", f"{self.rates[path] / 2:.0f}")

    def cps(self, path, conns):
        # A kernel client keeps each port for a minute.
        return self.load(path, conns, "--mode", "cps", seconds=1)

    def bulk(self, path, conns):
        words = ["--mode", "bulk", "--warmup", "0.3"]
        if path != "kerneltap":
            return self.load(path, conns, *words)
        self.check_needs(path, conns)  # flood streams only over memif
        return self.rig.kerneltap_load("--conns", str(conns), *words, "--seconds",
                                       f"{self.options.seconds:g}")

    def idle(self, path, conns):
        self.check_needs(path, conns)
        measure = self.rig.idle_coronet if path == "memif" else self.rig.idle_epoll
        return measure(conns, 2 if self.options.quick else 3)

    # ---- the run ----

    def point(self, turn, point):
        name = f"{point['table']} {point['path']} {point['conns']}"
        if turns.is_final(point["reason"]) or (point["table"] == "idle" and turn > 0):
            return
        found, reason = self.guarded(name, lambda: getattr(self, point["table"])(
            point["path"], point["conns"]))
        if reason:
            point["reason"] = reason.replace("failed", f"failed in turn {turn + 1}", 1)
            if turns.is_final(reason):
                self.report(f"{name}: not measured: {reason}")
            return
        point["runs"].append(found)
        self.report(f"{turn + 1}/{self.options.repeat} {name:<26} "
                 + report.describe_run(point["table"], found))

    def turn(self, number):
        for point in self.out["points"]:
            if self.late():
                self.report("the rest is left out, so that this ends in time")
                return
            self.point(number, point)

    def coroutines(self):
        """Runs bench-coro, which has its own turns."""
        path = os.path.join(self.options.folder, "coro.json")
        program = self.rig.built_path("tests", "bench", "bench-coro")
        self.rig.children.run([program, "--json", path, *(
            ["--quick", *CORO_QUICK] if self.options.quick else [])], 600)
        self.out["coro"] = tables.load_json(path)
        os.unlink(path)
        self.report("coroutines")

    def proxies(self, turn, bench):
        """Runs a round of every proxy on every path."""
        if not self.rig.alone:
            raise Skip(NO_NETWORK)
        for name, measure in bench.points().items():
            if self.options.quick and name.startswith("veth"):
                continue
            bench.turn += 1
            bench.note(name, measure())
            self.report(f"{turn + 1}/{self.options.repeat} proxy {name}")
        self.out["proxy"] = [dict(zip(("path", "proxy", "figures"), (*name.split(", "), found)))
                             for name, found in bench.results.items()]

    def part(self, what, measure):
        if self.wanted(what) and not self.late():
            self.out[what + "_reason"] = (self.guarded(what, measure)[1]
                                          or self.out[what + "_reason"])

    def all(self):
        env = harness.Env(pathlib.Path(self.options.build), [])
        bench = bench_proxy.Bench(env, argparse.Namespace(seconds=1 if self.options.quick else 2))
        if self.options.quick:
            bench.connections = (64,)
        try:
            for turn in range(self.options.repeat):
                self.turn(turn)
                self.part("proxy", lambda: self.proxies(turn, bench))
                if turn == 0:
                    self.part("coro", self.coroutines)
                self.write()
        finally:
            env.close()
            self.write()

    def write(self):
        self.out["took_s"] = round(self.seconds_spent())
        self.out["machine"].update(machine.properties_after())
        path = os.path.join(self.options.folder, "report.json")
        again = self.options.what == "again"
        tables.save_json(path, merged(tables.load_json(path), self.out) if again else self.out)


def merged(old, new):
    """Returns the old report with the new one's points, and a note about them."""
    def key(point):
        return point["table"], point["path"], point["conns"]

    there = {key(point): point for point in new["points"]}
    old["points"] = [there.get(key(point), point) for point in old["points"]]
    parts = {what: new[what] for what in ("proxy", "coro") if new[what]}
    old.update(parts)
    old.setdefault("again", {}).update(
        dict.fromkeys([*[p["table"] for p in new["points"]], *parts], new["date"]))
    return old


def parse():
    parser = figures.new_parser("bench", "Measures coronet beside the kernel, and reports.")
    parser.add_argument("what", nargs="?", default="all",
                        choices=("all", "quick", "again", "render", "publish"))
    parser.add_argument("--seconds", type=figures.seconds, metavar="N",
                        help="of each measurement (default 2, quick 0.5)")
    parser.add_argument("--repeat", type=figures.whole_number(1, 100), metavar="N", default=3,
                        help="times each (default 3)")
    parser.add_argument("--only", action="append", metavar="TABLE", choices=TABLES,
                        help="leave out the other tables (repeatable)")
    parser.add_argument("--folder", metavar="FOLDER", type=os.path.abspath,
                        help="where the report goes (default: bench/ there)")
    options = parser.parse_args()
    options.folder = options.folder or os.path.join(options.build, "bench")
    options.quick = options.what == "quick"
    options.seconds = options.seconds or (0.5 if options.quick else 2.0)
    if options.what == "again" and not options.only:
        parser.error("again: say which tables, as in: again --only idle")
    return options


def measure(options):
    os.makedirs(options.folder, exist_ok=True)
    if harness.INSIDE in sys.argv:
        prepare_network()
    with children.Children("bench") as started:
        matrix = Matrix(options, started)
        print(f"server on core {matrix.rig.cores[0]}, load on core {matrix.rig.cores[1]}; "
              f"{'' if matrix.rig.huge else 'no '}hugepages; {options.repeat} x "
              f"{options.seconds:g} s", flush=True)
        matrix.all()
    return matrix.failed


def run():
    options = parse()
    source = os.path.join(options.folder, "report.json")
    if options.what not in ("all", "quick"):
        turns.check_there(source, "./dev bench")
    failed = measure(options) if options.what not in ("render", "publish") else 0
    turns.show_report(report, source, options.what == "publish")
    return 1 if failed else 0


if __name__ == "__main__":
    if harness.INSIDE not in sys.argv:
        if not {"render", "publish", "-h", "--help"} & set(sys.argv):
            parse()  # reports a wrong option at once
            if harness.namespace_command():
                harness.reenter()
    children.main(run)
