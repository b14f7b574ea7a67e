#!/usr/bin/env python3
"""The whole benchmark: every path, one report.

    ./dev bench            everything, a quarter of an hour
    ./dev bench quick      the same shape in less than two minutes
    ./dev bench again --only TABLE    a table of the report that is there
    ./dev bench render     the report once more, from its report.json
    ./dev bench publish    that report's figures into README and docs/

Every point is measured several times, the points by turns, so that a machine
that grows slower does so for all of them; told are medians with the lowest and
the highest. build/bench/ then has report.md, report.json, report.html and the
plots. The paths are rig.py's.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import machine  # noqa: E402
import report  # noqa: E402
from rig import (FILES_BESIDE, TOP, Rig, Unmeasured, figures,  # noqa: E402
                 prepare_network)
from children import Children, Failure  # noqa: E402
import children as processes  # noqa: E402
import bench_proxy  # noqa: E402
import harness  # noqa: E402

PORTS = 60000           # of one client address, with some in TIME_WAIT
QUICK_S = 100           # no point of a quick run begins later
KIB_CORONET = 3         # a connection, the server's and its load's
KIB_KERNEL = 8          # the same where the server is the kernel's
CORO_QUICK = ("switch", "switch-fp", "switch-slow", "shared-64", "shared-448",
              "shared-960", "random-100k", "create", "memory-1M")
NO_NETWORK = ("a TAP needs a network namespace: neither root, user namespaces "
              "nor sudo -n here")
# The kernel's server on a path that has one.
SERVERS = {"loopback": "epoll-echo", "kerneltap": "epoll-echo",
           "uring": "uring-echo", "uringtap": "uring-echo"}


class Point:
    """One cell of a table: what is run, and what came of it."""

    def __init__(self, table, path, conns, run, quick=False, once=False):
        self.table, self.path, self.conns, self.run = table, path, conns, run
        self.quick, self.once = quick, once
        self.runs = []
        self.possible = True
        self.reason = None  # why there are no runs, or fewer

    def name(self):
        return f"{self.table} {self.path} {self.conns}"

    def as_json(self):
        return {"table": self.table, "path": self.path, "conns": self.conns,
                "runs": self.runs, "reason": self.reason}


# ---- what is measured ----

def needs_files(rig, conns):
    if conns + FILES_BESIDE > rig.files:
        raise Unmeasured(f"the kernel's sockets are files, of which a process "
                         f"may have {rig.files:,} here (ulimit -Hn)")


def needs_ports(conns):
    if conns > PORTS:
        raise Unmeasured("epoll-load has one address, and so 64,000 ports")


def needs_memory(conns, kib):
    free = machine.available_kib()
    if conns * kib > free * 0.8:
        raise Unmeasured(f"{conns:,} connections take {conns * kib >> 10:,} "
                         f"MiB; {free >> 10:,} MiB are available")


class Matrix:
    """The points, and the options that turn into loads' arguments."""

    def __init__(self, options, children):
        self.options = options
        self.rig = Rig(options, children)
        self.rates = {}      # of the first turn's echoes, by path
        self.open_rate = None
        self.points = self.all_points()

    def needs_network(self, path):
        if "tap" in path and not self.rig.alone:
            raise Unmeasured(NO_NETWORK)

    def seconds(self):
        return ["--seconds", f"{self.options.seconds:g}"]

    def warm(self, conns):
        """All connections are to have been asked once before it counts."""
        if conns >= 1000000:
            return ["--warmup", "2"]
        return ["--warmup", "1" if conns >= 100000 else "0.3"]

    def echo(self, path, conns, *extra):
        self.needs_network(path)
        needs_memory(conns, KIB_CORONET)
        common = ["--conns", str(conns), *self.warm(conns), *extra]
        if path == "memif":
            return self.rig.memif_flood(*common)
        if path == "tap":
            needs_ports(conns)
            needs_files(self.rig, conns)
            return self.rig.tap_load(*common, *self.seconds())
        needs_files(self.rig, conns)
        if path in ("loopback", "uring"):
            needs_ports(conns)
            return self.rig.loopback(*common, *self.seconds(),
                                     name=SERVERS[path])
        needs_memory(conns, KIB_KERNEL)
        return self.rig.kerneltap_flood(*common, server=SERVERS[path])

    def plain(self, path, conns):
        found = self.echo(path, conns)
        if conns == 64:
            self.rates.setdefault(path, found["requests_per_s"])
        return found

    def opened(self, path, conns):
        """The open loop, every path at half of the slowest path's rate."""
        if self.open_rate is None:
            if not self.rates:
                raise Unmeasured("no echo could be measured before")
            slowest = min(self.rates.values()) / 2
            digits = 10 ** max(0, len(f"{slowest:.0f}") - 2)
            self.open_rate = int(slowest // digits * digits)
        return self.echo(path, conns, "--rate", str(self.open_rate))

    def half(self, path, conns):
        """The open loop at half of what this path reached by itself."""
        if path not in self.rates:
            raise Unmeasured("its closed loop could not be measured")
        return self.echo(path, conns, "--rate",
                         f"{self.rates[path] / 2:.0f}")

    def nohuge(self, _path, conns):
        if not self.rig.huge:
            raise Unmeasured("there are no hugepages here: every row is "
                             "without them")
        return self.rig.memif_flood("--conns", str(conns), huge=False)

    def cps(self, path, conns):
        self.needs_network(path)
        common = ["--mode", "cps", "--conns", str(conns)]
        if path == "memif":
            return self.rig.memif_flood(*common)
        if path in ("kerneltap", "uringtap"):
            return self.rig.kerneltap_flood(*common, server=SERVERS[path])
        # A client of the kernel's keeps each port for a minute.
        few = [*common, "--seconds", f"{min(self.options.seconds, 1):g}"]
        if path == "tap":
            return self.rig.tap_load(*few)
        return self.rig.loopback(*few, name=SERVERS[path])

    def bulk(self, path, conns):
        self.needs_network(path)
        common = ["--mode", "bulk", "--conns", str(conns), "--warmup", "0.3",
                  *self.seconds()]
        return {"memif": self.rig.memif_flood, "tap": self.rig.tap_load,
                "loopback": self.rig.loopback,
                "kerneltap": self.rig.kerneltap_load}[path](*common)

    def idle(self, path, conns):
        hold = 2 if self.options.quick else 3
        if path == "memif":
            needs_memory(conns, KIB_CORONET)
            return self.rig.idle_coronet(conns, hold)
        self.needs_network(path)
        needs_files(self.rig, conns)
        needs_memory(conns, KIB_KERNEL)
        return self.rig.idle_epoll(conns, hold)

    def all_points(self):
        """In the order they are measured in."""
        paths = ("memif", "loopback", "tap", "kerneltap")
        servers = ("memif", "loopback", "uring", "tap", "kerneltap", "uringtap")
        points = [Point("macswap", "macswap", 0,
                        lambda _path, _conns: self.rig.macswap(), True)]
        for conns in (1, 8, 64, 1000, 10000, 100000, 1000000):
            for path in servers:
                quick = conns in (1, 64) or (path == "memif" and conns == 10000)
                points.append(Point("echo", path, conns, self.plain, quick))
        points.append(Point("nohuge", "memif", 64, self.nohuge, True))
        for path in paths:
            points.append(Point("open", path, 64, self.opened, True))
        points.append(Point("half", "memif", 64, self.half))
        for path in servers:
            points.append(Point("cps", path, 64, self.cps, True))
        for conns in (1, 64):
            for path in paths:
                points.append(Point("bulk", path, conns, self.bulk,
                                    conns == 1))
        for conns in (10000, 100000, 1000000):
            for path in ("memif", "kerneltap"):
                points.append(Point("idle", path, conns, self.idle,
                                    conns == 10000, once=True))
        if self.options.quick:
            points = [point for point in points if point.quick]
        if self.options.only:
            points = [point for point in points
                      if point.table in self.options.only]
        return points


# ---- the run ----

class Run:
    """Measures everything, and keeps it for the report."""

    def __init__(self, options, matrix):
        self.options, self.matrix = options, matrix
        self.begun = time.monotonic()
        self.failed = 0
        self.out = {
            "schema": 1,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime(
                "%Y-%m-%d %H:%M UTC"),
            "quick": options.quick,
            "seconds": options.seconds, "repeat": options.repeat,
            "hugepages": matrix.rig.huge, "cores": list(matrix.rig.cores),
            "machine": machine.describe(TOP, options.build),
            "coro": None, "coro_reason": None,
            "proxy": [], "proxy_reason": None,
        }

    def spent(self):
        return time.monotonic() - self.begun

    def late(self):
        """A quick run is to end in time, on a slow machine too."""
        return self.options.quick and self.spent() > QUICK_S

    def say(self, text, failed=False):
        print(f"{self.spent():6.0f} s  {text}",
              file=sys.stderr if failed else sys.stdout, flush=True)

    def measure(self, turn, point):
        if not point.possible or (point.once and turn > 0):
            return
        try:
            found = point.run(point.path, point.conns)
        except Unmeasured as why:
            point.possible, point.reason = False, str(why)
            self.say(f"{point.name()}: not measured: {why}")
            return
        except Failure as why:
            self.matrix.rig.reset()
            self.failed += 1
            # What ended how, without its command line.
            point.reason = (f"failed in turn {turn + 1}: "
                            + str(why).splitlines()[0].split(": /")[0])
            self.say(f"{point.name()}: failed: {why}", failed=True)
            return
        point.runs.append(found)
        what = report.brief(point.table, found)
        self.say(f"{turn + 1}/{self.options.repeat} {point.name():<26} {what}")

    def turn(self, number):
        for point in self.matrix.points:
            if self.late():
                self.say("the rest is left out, so that this ends in time")
                return
            self.measure(number, point)

    def coroutines(self):
        """bench-coro, which takes turns of its own."""
        path = os.path.join(self.options.folder, "coro.json")
        program = os.path.join(self.options.build, "tests", "bench",
                               "bench-coro")
        if not os.access(program, os.X_OK):
            raise Failure(f"{program} is not there: run ./dev build first")
        argv = [program, "--json", path]
        if self.options.quick:
            argv += ["--quick", *CORO_QUICK]
        done = subprocess.run(argv, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              timeout=600)
        if done.returncode:
            raise Failure(f"bench-coro: {done.stdout[-500:]}")
        with open(path, encoding="utf-8") as file:
            self.out["coro"] = json.load(file)
        os.unlink(path)
        self.say("coroutines")

    def proxies(self, turn, bench):
        """A round of every proxy on every path."""
        if not self.matrix.rig.alone:
            self.out["proxy_reason"] = NO_NETWORK
            return
        if self.options.quick:
            bench.connections = (64,)
        for name, measure in bench.points().items():
            if self.options.quick and name.startswith("veth"):
                continue
            bench.turn += 1
            bench.note(name, measure())
            self.say(f"{turn + 1}/{self.options.repeat} proxy {name}")
        self.out["proxy"] = [
            dict(zip(("path", "proxy", "figures"), (*name.split(", "), found)))
            for name, found in bench.results.items()]

    def wanted(self, table):
        return not self.options.only or table in self.options.only

    def all(self):
        env = harness.Env(pathlib.Path(self.options.build).resolve(), [])
        bench = bench_proxy.Bench(env, argparse.Namespace(
            seconds=1 if self.options.quick else 2))
        try:
            for turn in range(self.options.repeat):
                self.turn(turn)
                if self.wanted("proxy") and not self.late():
                    self.guarded("proxy", lambda: self.proxies(turn, bench))
                if self.wanted("coro") and turn == 0:
                    self.guarded("coro", self.coroutines)
                self.write()
        finally:
            env.close()

    def guarded(self, what, function):
        """One part that fails leaves the others their report."""
        try:
            function()
        except (Failure, harness.Failure, harness.Skip,
                subprocess.TimeoutExpired) as why:
            self.failed += 1
            self.out[what + "_reason"] = (
                "failed: " + str(why).splitlines()[0].split(": /")[0])
            self.say(f"{what}: failed: {why}", failed=True)

    def write(self):
        self.out["points"] = [p.as_json() for p in self.matrix.points]
        self.out["open_rate"] = self.matrix.open_rate
        self.out["took_s"] = round(self.spent())
        self.out["machine"].update(machine.after())
        path = os.path.join(self.options.folder, "report.json")
        out = self.out
        if self.options.what == "again":
            with open(path, encoding="utf-8") as file:
                out = merged(json.load(file), out)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(out, file, indent=1)
            file.write("\n")
        os.replace(path + ".new", path)


def merged(old, new):
    """The old report with the points that the new one has, which it says."""
    there = {(p["table"], p["path"], p["conns"]): p for p in new["points"]}
    old["points"] = [there.get((p["table"], p["path"], p["conns"]), p)
                     for p in old["points"]]
    old.setdefault("again", {}).update(
        {p["table"]: new["date"] for p in new["points"]})
    for what in ("proxy", "coro"):
        if new[what]:
            old[what] = new[what]
            old["again"][what] = new["date"]
    return old


def parse():
    parser = figures.OneLineParser(
        prog="bench", allow_abbrev=False,
        description="Measures coronet beside the kernel, and reports.")
    parser.add_argument("what", nargs="?", default="all",
                        choices=("all", "quick", "again", "render",
                                 "publish"))
    parser.add_argument("--seconds", type=figures.seconds, metavar="N",
                        help="of each measurement (default 2, quick 0.5)")
    parser.add_argument("--repeat", type=figures.whole(1, 100), metavar="N",
                        help="times each (default 3)")
    parser.add_argument("--only", action="append", metavar="TABLE",
                        choices=("macswap", "echo", "nohuge", "open", "half",
                                 "cps", "bulk", "idle", "proxy", "coro"),
                        help="leave out the other tables (repeatable)")
    parser.add_argument(harness.INSIDE, action="store_true",
                        help=argparse.SUPPRESS)
    parser.add_argument("--build", default=os.path.join(TOP, "build"),
                        metavar="FOLDER", help="where the programs were built")
    parser.add_argument("--folder", metavar="FOLDER",
                        help="where the report goes (default: bench/ there)")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.folder = os.path.abspath(
        options.folder or os.path.join(options.build, "bench"))
    options.quick = options.what == "quick"
    if options.what == "again" and not options.only:
        parser.error("again: say which tables, as in: again --only idle")
    if options.seconds is None:
        options.seconds = 0.5 if options.quick else 2.0
    if options.repeat is None:
        options.repeat = 3
    return options


def measure(options):
    os.makedirs(options.folder, exist_ok=True)
    if harness.INSIDE in sys.argv:
        prepare_network()
    with Children("bench") as started:
        matrix = Matrix(options, started)
        run = Run(options, matrix)
        memory = "hugepages" if matrix.rig.huge else "no hugepages"
        print(f"server on core {matrix.rig.cores[0]}, load on core "
              f"{matrix.rig.cores[1]}; {memory}; {options.repeat} x "
              f"{options.seconds:g} s", flush=True)
        try:
            run.all()
        finally:
            run.write()
    return run.failed


def give_back(folder):
    """Under sudo: what was written belongs to who asked for it."""
    if "SUDO_UID" not in os.environ or os.getuid() != 0:
        return
    owner = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", -1))
    for path in (folder, *(entry.path for entry in os.scandir(folder))):
        os.chown(path, *owner)


def run():
    options = parse()
    source = os.path.join(options.folder, "report.json")
    failed = 0
    if options.what not in ("all", "quick") and not os.path.exists(source):
        raise Failure(f"{source} is not there: run ./dev bench first")
    if options.what in ("all", "quick", "again"):
        failed = measure(options)
    with open(source, encoding="utf-8") as file:
        found = json.load(file)
    made = report.write(found, options.folder)
    give_back(options.folder)
    if options.what == "publish":
        made += report.publish(found, options.folder, TOP)
    if options.what in ("all", "quick", "again"):
        print(report.summary(found))
    for path in made:
        print(os.path.relpath(path))
    return 1 if failed else 0


if __name__ == "__main__":
    if harness.INSIDE not in sys.argv:
        if not {"render", "publish", "-h", "--help"} & set(sys.argv):
            parse()  # a wrong option is told at once
            if harness.namespace_command():
                harness.reenter()
    processes.main(run)
