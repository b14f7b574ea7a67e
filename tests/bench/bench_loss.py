#!/usr/bin/env python3
"""What loss, delay and narrow links cost coronet and the kernel.

    ./dev bench loss                      every row, three turns of 45 minutes
    ./dev bench loss quick                one row of each kind, in three minutes
    ./dev bench loss --turns 1            every row once
    ./dev bench loss --resume             go on with the run that was stopped
    ./dev bench loss goodput --rtt 50     these rows
    ./dev bench loss render               the tables once more, from loss.json
    ./dev bench loss publish              tables and plots into docs/

Both stacks go through the same wire (tests/wire), which has one core; all
stacks share the others. A row's points are measured by turns; told are medians
of what the turns said, with the lowest and highest, and PASS or MISS against a
goal. FULL: the wire or its links were the limit, which says nothing of a stack.
A run writes build/bench/loss.json, which has every figure, after each
measurement; --resume keeps those of the same programs.
"""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import pathlib
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "integration")]

import figures  # noqa: E402
import harness  # noqa: E402
import loss_report  # noqa: E402
import loss_rows as rows_of  # noqa: E402
import machine  # noqa: E402
from harness import Failure, check, command  # noqa: E402
from loss_ends import Bottleneck, Idle, confine, samples_of, wait_for  # noqa: E402
from loss_rows import BURST_LOSS, BURST_S, GROUPS, PLOT_CELL  # noqa: E402

TOP = os.path.dirname(os.path.dirname(HERE))
VERBS = ("quick", "render", "publish")
CONNS, RATE = 512, 2000  # echoes a second: one each 256 ms and connection
QUICK_S = 150            # no measurement of a quick run begins later
POINTS = 64              # of a curve, or fewer
WARMUP_S = 2             # of a load: its connections, and all asked once
PROGRAMS = ("apps/coronet-echo", "apps/coronet-load", "apps/epoll-echo",
            "apps/epoll-load", "tests/wire/flow", "tests/wire/wire")


class Unmeasured(Exception):
    """This cannot be measured here; the message says why."""


# ---- one measurement each ----

def stacks_of(point):
    """At A and at B."""
    return {"coronet": ("coronet", "coronet"), "kernel": ("kernel", "kernel"),
            "to-kernel": ("coronet", "kernel"),
            "from-kernel": ("kernel", "coronet")}[point.stack]


class Measure:
    """Runs a point; returns its figures."""

    def __init__(self, env, seconds):
        self.env, self.seconds = env, seconds
        self.options = command(env.app("coronet-echo"), "--help")

    def run(self, point, turn):
        if point.needs_option() and "--cc=" not in self.options:
            raise Unmeasured("these programs have no --cc")
        seconds = rows_of.measured_seconds(point, self.seconds)
        pairs = [(*stacks_of(point), point.control)]
        if point.group == "fairness":
            pairs.append(("kernel", "kernel", point.control))
        if point.background:
            pairs.append(("kernel", "kernel", "cubic"))
        bottleneck = Bottleneck(self.env, self.options, pairs,
                                point.cell.wire_options(turn + 1))
        with bottleneck.running():
            found = {"goodput": self.goodput, "mixed": self.goodput,
                     "fairness": self.fairness, "echo": self.echo}[
                         point.group](bottleneck, point, seconds)
        found["limited"] = rows_of.limits_of(bottleneck.counters,
                                             bottleneck.tap_dropped)
        found["wire"] = bottleneck.counters
        return found

    def goodput(self, bottleneck, point, seconds):
        skip = rows_of.skip_seconds(point.cell)
        with bottleneck.streams() as (sink,):
            wait_for(sink, skip)
            idle = Idle()
            wait_for(sink, skip + seconds)
            spare = idle.share()
            samples = samples_of(sink)
        rate = rows_of.goodput(samples, skip, skip + seconds)
        check(rate is not None, f"too few lines: {sink.story()}")
        return {"mbit": rate, "idle": spare}

    def fairness(self, bottleneck, _point, seconds):
        """The second half of what both have sent at the same time."""
        idle = Idle()
        with bottleneck.streams() as sinks:
            for sink in sinks:
                wait_for(sink, seconds)
            rates = [rows_of.goodput(samples_of(sink), seconds / 2, seconds)
                     for sink in sinks]
        check(None not in rates and sum(rates), f"too few lines: {rates}")
        return {"share": rates[0] / sum(rates), "mbit": rates[0],
                "other_mbit": rates[1], "idle": idle.share()}

    def echo(self, bottleneck, point, seconds):
        words = ["--conns", CONNS, "--rate", RATE, "--ramp", "1", "--warmup",
                 WARMUP_S, "--seconds", f"{seconds:g}", "--timeout", "60",
                 "--interval", "0", "--report-limited", "--json"]
        client, server = bottleneck.pairs[0]
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.env.running(server.echo(6999)))
            if point.background:
                sink = stack.enter_context(
                    bottleneck.stream(bottleneck.pairs[1]))
                wait_for(sink, 1)
            idle = Idle()
            load = self.env.start(client.load(server.address, 6999, words))
            status = load.wait(seconds + 120)
            check(status == 0, f"exit status {status}: {load.story()}")
        report = json.loads(load.output("stdout"))
        check(report["errors"]["total"] == 0, f"errors: {load.story()}")
        return {**{key: report["latency_us"][key] / 1000
                   for key in ("p50", "p99", "p999")},
                "requests_per_s": report["requests_per_s"],
                "idle": idle.share()}

    def trace(self, trace):
        """The curve of each flow, in its own words: begins, (s, Mbit/s)."""
        pairs = [(stack, stack, control) for stack, control, _ in trace.flows]
        if any(stack == "coronet" and control != "cubic"
               for stack, control, _ in trace.flows) and \
                "--cc=" not in self.options:
            raise Unmeasured("these programs have no --cc")
        bottleneck = Bottleneck(self.env, self.options, pairs,
                                PLOT_CELL.wire_options(1))
        with bottleneck.running(), contextlib.ExitStack() as stack:
            first = stack.enter_context(bottleneck.stream(bottleneck.pairs[0]))
            sinks, begins = [first], [0]
            if trace.burst_at:
                self.burst(bottleneck.wire, first, trace.burst_at)
            for pair, (_, _, at) in zip(bottleneck.pairs[1:], trace.flows[1:]):
                wait_for(first, at)
                sinks.append(stack.enter_context(bottleneck.stream(pair)))
                wait_for(sinks[-1], 0)
                begins.append(samples_of(first)[-1][0]
                              - samples_of(sinks[-1])[-1][0])
            wait_for(first, trace.seconds)
            curves = [rows_of.curve(samples_of(sink), begin,
                                    trace.seconds / POINTS)
                      for sink, begin in zip(sinks, begins)]
        return [{"stack": flow[0], "control": flow[1],
                 "curve": [point for point in curve
                           if point[0] <= trace.seconds]}
                for flow, curve in zip(trace.flows, curves)]

    @staticmethod
    def burst(wire, sink, at):
        wait_for(sink, at)
        wire.say(f"both loss={BURST_LOSS}")
        time.sleep(BURST_S)
        wire.say("both loss=0")


# ---- what an earlier run has left ----

def digest_of(build):
    """Of the programs that are measured: others have other figures."""
    found = hashlib.sha256()
    for name in PROGRAMS:
        found.update(pathlib.Path(build, name).read_bytes())
    return found.hexdigest()


def kept(path, stamp, seconds):
    """What --resume goes on with, None: nothing is there.

    stamp: commit and programs, which have to be the same, as has the length
    of a measurement.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        absent = {"points", "traces", "took_s", "turns", "quick"} - set(found)
        if absent:
            raise KeyError(min(absent))
        theirs = {"commit": found["machine"]["coronet"],
                  "programs": found["programs"], "seconds": found["seconds"]}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as why:
        raise Failure(f"{path} cannot be resumed: {why!r}; "
                      "run without --resume") from why
    for name, value in {**stamp, "seconds": seconds}.items():
        if theirs[name] != value:
            raise Failure(f"{path} cannot be resumed: its {name}: "
                          f"{str(theirs[name])[:40]}, now {str(value)[:40]}; "
                          "run without --resume")
    return found


# ---- the run ----

class Run:
    """All rows by turns, and what the report is made of.

    before: what --resume goes on with, or None.
    """

    def __init__(self, options, env, measure, stamp, before=None):
        self.options, self.env, self.stamp = options, env, stamp
        self.measure = measure
        self.quick = options.verb == "quick"
        self.rows = chosen_rows(options)
        self.points = list(dict.fromkeys(
            point for row in self.rows for point in row.points()))
        self.traces = chosen_traces(options)
        self.results = {point: {} for point in self.points}
        self.reasons = {}
        self.impossible = set()
        self.drawn = []
        self.turns, self.spent_before = options.turns, 0
        if before:
            self.take_up(before)
        self.machine = machine.describe(TOP, options.build)
        self.begun = time.monotonic()
        self.failed = 0

    def take_up(self, before):
        """Rows that are not asked for now are kept as well."""
        for one in before["points"]:
            runs = {int(turn): run for turn, run in one["runs"].items()}
            self.results[rows_of.point_of(one)] = runs
            if not runs and one["reason"]:
                self.reasons[rows_of.point_of(one)] = one["reason"]
        for point in self.points:
            self.reasons.pop(point, None)
        self.drawn = [trace for trace in before["traces"] if trace["flows"]]
        self.turns = max(self.turns, before["turns"])
        self.quick = self.quick and before["quick"]
        self.spent_before = before["took_s"]

    def missing(self):
        """(turn, point) that have no figures yet, in the order of measuring:
        a whole turn, then the next."""
        return [(turn, point) for turn in range(self.options.turns)
                for point in self.points if turn not in self.results[point]]

    def is_drawn(self, trace):
        flows = [[stack, control] for stack, control, _ in trace.flows]
        return any(one["plot"] == trace.plot
                   and [[flow["stack"], flow["control"]]
                        for flow in one["flows"]] == flows
                   for one in self.drawn)

    def spent(self):
        return time.monotonic() - self.begun

    def late(self):
        return self.spent() > 60 * self.options.minutes

    def say(self, text):
        print(f"{self.spent():6.0f} s  {text}", flush=True)

    def guarded(self, name, run, keep, impossible=lambda: None):
        """One that fails leaves the others their report."""
        if self.late():
            keep(None, "there was no time left")
            return
        try:
            keep(run(), None)
        except Unmeasured as why:
            impossible()
            keep(None, str(why))
        except (Failure, OSError) as why:
            self.failed += 1
            self.say(f"{name}: failed: {why}")
            keep(None, "a measurement failed")
        finally:
            for program in self.env.programs:
                program.kill()
            self.env.programs.clear()

    def point(self, turn, point):
        if point in self.impossible:
            return

        def keep(found, reason):
            if reason:
                self.reasons.setdefault(point, reason)
                return
            self.results[point][turn] = found
            self.write()
            self.say(f"{turn + 1}/{self.options.turns} {point.name()}: "
                     + loss_report.brief(point.group, found))

        self.guarded(point.name(), lambda: self.measure.run(point, turn), keep,
                     lambda: self.impossible.add(point))

    def trace(self, trace):
        def keep(found, reason):
            self.drawn += [{"plot": trace.plot, "seconds": trace.seconds,
                            "burst_at": trace.burst_at, "reason": reason,
                            "flows": found or []}]
            if found:
                self.say(f"{trace.plot}: "
                         + ", ".join(f"{flow['stack']} {flow['control']}"
                                     for flow in found))

        self.guarded(trace.plot, lambda: self.measure.trace(trace), keep)

    def all(self):
        missing = self.missing()
        traces = [one for one in self.traces if not self.is_drawn(one)]
        points, drawing = rows_of.expected_seconds(
            [point for _, point in missing], traces, self.options.seconds)
        minutes = (points + drawing) / 60
        had = sum(map(len, self.results.values()))
        print(f"{len(self.rows)} rows, {self.options.turns} turns: about "
              f"{minutes:.{0 if minutes > 5 else 1}f} min"
              + (f" more, {had} measurements kept" if had else "")
              + f"; nothing begins after {self.options.minutes:g} min",
              flush=True)
        try:
            for trace in traces:
                self.trace(trace)
            for turn, point in missing:
                self.point(turn, point)
        finally:
            self.write()

    def found(self):
        return {
            "schema": 2,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime(
                "%Y-%m-%d %H:%M UTC"),
            "quick": self.quick,
            "seconds": self.options.seconds, "turns": self.turns,
            "took_s": round(self.spent_before + self.spent()),
            "programs": self.stamp["programs"],
            "machine": {**self.machine, "coronet": self.stamp["commit"],
                        **machine.after()},
            "points": [{**point.as_json(),
                        "runs": {str(turn): found for turn, found
                                 in self.results[point].items()},
                        "reason": self.reasons.get(point)}
                       for point in self.results],
            "traces": self.drawn,
        }

    def write(self):
        path = self.options.json
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.found(), file, indent=1)
            file.write("\n")
        os.replace(path + ".new", path)


# ---- options ----

def chosen(options, cell):
    return all(not asked or value in asked for asked, value in (
        (options.rate, cell.rate), (options.rtt, cell.rtt),
        (options.loss, cell.loss), (options.buffer, cell.buffer)))


def chosen_rows(options):
    rows = (rows_of.quick_rows() if options.verb == "quick"
            else rows_of.all_rows())
    return [row for row in rows
            if (not options.groups or row.ours.group in options.groups)
            and (not options.cc or row.ours.control in options.cc)
            and chosen(options, row.ours.cell)]


def chosen_traces(options):
    if options.groups:
        return rows_of.all_traces() if "plots" in options.groups else []
    narrowed = (options.verb == "quick" or options.cc or options.rate
                or options.rtt or options.loss or options.buffer)
    return [] if narrowed else rows_of.all_traces()


def one_of(values):
    """An argparse type: one of some numbers."""
    def parse(text):
        for value in values:
            if text == f"{value:g}":
                return value
        raise argparse.ArgumentTypeError(
            f"'{text}': expected " + ", ".join(f"{v:g}" for v in values))
    return parse


def minutes(text):
    """An argparse type: more than none, and no NaN."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if 0 < value < 1e6:
        return value
    raise argparse.ArgumentTypeError(
        f"'{text}': expected minutes, such as 45 or 2.5")


def parse(argv=None):
    parser = figures.OneLineParser(
        prog="bench loss", allow_abbrev=False,
        description="Measures coronet beside the kernel through loss, delay "
                    "and narrow links.")
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="quick, render or publish; rows, of: "
                        + " ".join(GROUPS))
    parser.add_argument("--seconds", type=figures.seconds, metavar="N",
                        help="of each measurement, more where the round trip "
                        "is long and for echoes and shares (default 2, quick 1.5)")
    parser.add_argument("--turns", type=figures.whole(1, 100), metavar="N",
                        help="how often each row is measured (default 3, "
                        "quick 2)")
    parser.add_argument("--minutes", type=minutes, metavar="N",
                        help="no measurement begins later; the report says "
                        "what was left out (default 300, quick 2.5)")
    parser.add_argument("--resume", action="store_true",
                        help="keep what an earlier run of the same commit, "
                        "programs and --seconds has measured")
    for name, values, unit in (("rate", rows_of.RATES, "MBIT"),
                               ("rtt", rows_of.RTTS, "MS"),
                               ("loss", rows_of.LOSSES, "PERCENT"),
                               ("buffer", rows_of.BUFFERS, "BDP")):
        parser.add_argument(f"--{name}", type=one_of(values), action="append",
                            metavar=unit, help="these rows alone, of: "
                            + " ".join(f"{v:g}" for v in values).replace(
                                "%", "%%"))
    parser.add_argument("--cc", action="append",
                        choices=tuple(rows_of.GOODPUT_GOALS),
                        help="these rows alone")
    parser.add_argument("--json", metavar="FILE",
                        help="every figure (default: bench/loss.json in the "
                        "build folder)")
    parser.add_argument("--build", default=os.path.join(TOP, "build"),
                        metavar="FOLDER", help="where the programs were built")
    parser.add_argument(harness.INSIDE, action="store_true",
                        help=argparse.SUPPRESS)
    return checked(parser, parser.parse_args(argv))


def checked(parser, options):
    """The words told apart, and what depends on them."""
    options.verb = next((w for w in options.words if w in VERBS), "all")
    options.groups = [word for word in options.words if word not in VERBS]
    for word in options.groups:
        if word not in GROUPS:
            parser.error(f"no row '{word}'; there are: {' '.join(GROUPS)}")
    if len(options.words) - len(options.groups) > 1:
        parser.error(f"one of {', '.join(VERBS)} at a time")
    quick = options.verb == "quick"
    options.build = os.path.abspath(options.build)
    options.json = os.path.abspath(
        options.json or os.path.join(options.build, "bench", "loss.json"))
    if options.seconds is None:
        options.seconds = 1.5 if quick else 2
    if options.turns is None:
        options.turns = 2 if quick else 3
    if options.minutes is None:
        options.minutes = QUICK_S / 60 if quick else 300
    if options.resume and options.verb in ("render", "publish"):
        parser.error(f"--resume: {options.verb} measures nothing")
    if not chosen_rows(options) and not chosen_traces(options):
        parser.error("there are no such rows")
    return options


def measure(options):
    if not {"tests", "apps"} <= set(os.listdir(options.build)):
        raise Failure(f"{options.build} has no programs: run ./dev build first")
    stamp = {"commit": machine.commit(TOP),
             "programs": digest_of(options.build)}
    before = (kept(options.json, stamp, options.seconds) if options.resume
              else None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    env = harness.Env(pathlib.Path(options.build), [])
    confine()
    try:
        command("ip", "link", "set", "lo", "up")
        run = Run(options, env, Measure(env, options.seconds), stamp, before)
        run.all()
    finally:
        env.close()
    return run.failed


def main():
    options = parse()
    failed = 0
    if options.verb not in ("render", "publish"):
        if harness.INSIDE not in sys.argv:
            harness.reenter()
        failed = measure(options)
    if not os.path.exists(options.json):
        raise Failure(f"{options.json} is not there: run ./dev bench loss first")
    with open(options.json, encoding="utf-8") as file:
        found = json.load(file)
    print(loss_report.text(found))
    folder = os.path.dirname(options.json)
    made = loss_report.draw(found, folder)
    if options.verb == "publish":
        made += loss_report.publish(found, folder, TOP)
    for path in made:
        print(os.path.relpath(path))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, OSError) as failure:
        sys.exit(f"bench loss: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
