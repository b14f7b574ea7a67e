#!/usr/bin/env python3
"""The effect of loss, delay and slow links on coronet and the kernel.

    ./dev bench loss                      every row, three turns of 45 minutes
    ./dev bench loss quick                one row of each kind, in three minutes
    ./dev bench loss --turns 1            every row once
    ./dev bench loss --resume             go on with the run that was stopped
    ./dev bench loss goodput --rtt 50     these rows
    ./dev bench loss render               the tables once more, from loss.json
    ./dev bench loss publish              tables and plots into docs/

Both stacks go through the same wire (tests/wire), which has one core; all stacks share the others.
A row's points are measured by turns; the report has medians over the turns, with the lowest and
highest, and PASS or MISS against a goal. FULL: the wire or its links were the limit, so the row
does not judge a stack. A run writes build/bench/loss.json, which has every figure, after each
measurement; --resume keeps those of the same programs.
"""

import contextlib
import dataclasses
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
import tables  # noqa: E402
import turns  # noqa: E402
from harness import Failure, Skip, check, command  # noqa: E402
from figures import TOP  # noqa: E402
from loss_ends import Bottleneck, Idle, confine, samples_of, wait_for  # noqa: E402

VERBS = ("quick", "render", "publish")
GROUPS = (*rows_of.KEYS, "plots")
# Options that select rows by their cell: values and unit.
FILTERS = {"rate": (rows_of.RATES, "MBIT"), "rtt": (rows_of.RTTS, "MS"),
           "loss": (rows_of.LOSSES, "PERCENT"), "buffer": (rows_of.BUFFERS, "BDP")}
STACKS = {"coronet": ("coronet", "coronet"), "kernel": ("kernel", "kernel"),
          "to-kernel": ("coronet", "kernel"), "from-kernel": ("kernel", "coronet")}  # at A and B
ECHO_PORT = 6999
CONNS, RATE = 512, 2000  # echoes a second: one each 256 ms and connection
POINTS = 64              # of a curve, or fewer
PROGRAMS = ("apps/coronet-echo", "apps/coronet-load", "apps/epoll-echo", "apps/epoll-load",
            "tests/wire/flow", "tests/wire/wire")


# ---- one measurement each ----

class Measure:
    """Runs a point; returns its figures."""

    def __init__(self, env, seconds):
        self.env, self.seconds = env, seconds
        self.options = command(env.app("coronet-echo"), "--help")

    def bottleneck(self, pairs, cell, seed, needs_option):
        if needs_option and "--cc=" not in self.options:
            raise Skip("these programs have no --cc")
        return Bottleneck(self.env, self.options, pairs, cell.wire_options(seed))

    def run(self, point, turn):
        pairs = [(*STACKS[point.stack], point.control)]
        if point.group == "fairness":
            pairs.append(("kernel", "kernel", point.control))
        if point.background:
            pairs.append(("kernel", "kernel", "cubic"))
        bottleneck = self.bottleneck(pairs, point.cell, turn + 1, point.needs_option())
        measure = {"fairness": self.fairness, "echo": self.echo}.get(point.group, self.goodput)
        with bottleneck.running():
            found = measure(bottleneck, point, rows_of.measured_seconds(point, self.seconds))
        return {**found, "wire": bottleneck.counters,
                "limited": rows_of.limits_of(bottleneck.counters, bottleneck.tap_dropped)}

    @staticmethod
    def streams(bottleneck, begin, end):
        """Measures each pair's stream between two times after its first byte."""
        with bottleneck.streams() as sinks:
            for sink in sinks:
                wait_for(sink, begin)
            idle = Idle()
            for sink in sinks:
                wait_for(sink, end)
            spare = idle.share()
            rates = [rows_of.goodput(samples_of(sink), begin, end) for sink in sinks]
        check(None not in rates, f"too few lines: {rates}")
        return spare, rates

    def goodput(self, bottleneck, point, seconds):
        skip = rows_of.skip_seconds(point.cell)
        spare, (rate,) = self.streams(bottleneck, skip, skip + seconds)
        return {"mbit": rate, "idle": spare}

    def fairness(self, bottleneck, _point, seconds):
        """Measures both flows over the second half of their common time."""
        spare, rates = self.streams(bottleneck, seconds / 2, seconds)
        check(sum(rates), "nothing came")
        return {"share": rates[0] / sum(rates), "mbit": rates[0], "other_mbit": rates[1],
                "idle": spare}

    def echo(self, bottleneck, point, seconds):
        words = ["--conns", CONNS, "--rate", RATE, "--ramp", "1", "--warmup", "2", "--seconds",
                 f"{seconds:g}", "--timeout", "60", "--interval", "0", "--report-limited",
                 "--json"]
        client, server = bottleneck.pairs[0]
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.env.running(server.run("echo", "--port", ECHO_PORT)))
            if point.background:
                wait_for(stack.enter_context(bottleneck.stream(bottleneck.pairs[1])), 1)
            idle = Idle()
            load = self.env.start(client.run("load", "--target",
                                             f"{server.address}:{ECHO_PORT}", *words))
            status = load.wait(seconds + 120)
            check(status == 0, f"exit status {status}: {load.story()}")
        report = json.loads(load.output("stdout"))
        check(report["errors"]["total"] == 0, f"errors: {load.story()}")
        return {**{key: report["latency_us"][key] / 1000 for key in ("p50", "p99", "p999")},
                "requests_per_s": report["requests_per_s"], "idle": idle.share()}

    def trace(self, trace):
        """Returns the curve of each flow: (s since the first began, Mbit/s)."""
        pairs = [(stack, stack, control) for stack, control, _ in trace.flows]
        bottleneck = self.bottleneck(pairs, rows_of.PLOT_CELL, 1,
                                     any(stack == "coronet" and control != "cubic"
                                         for stack, control, _ in trace.flows))
        with bottleneck.running(), contextlib.ExitStack() as stack:
            first = stack.enter_context(bottleneck.stream(bottleneck.pairs[0]))
            sinks, begins = [first], [0]
            if trace.burst_at:
                wait_for(first, trace.burst_at)
                bottleneck.wire.configure(f"both loss={rows_of.BURST_LOSS}")
                time.sleep(rows_of.BURST_S)
                bottleneck.wire.configure("both loss=0")
            for pair, (_, _, at) in zip(bottleneck.pairs[1:], trace.flows[1:]):
                wait_for(first, at)
                sinks.append(stack.enter_context(bottleneck.stream(pair)))
                wait_for(sinks[-1], 0)
                begins.append(samples_of(first)[-1][0] - samples_of(sinks[-1])[-1][0])
            wait_for(first, trace.seconds)
            curves = [rows_of.rate_curve(samples_of(sink), begin, trace.seconds / POINTS)
                      for sink, begin in zip(sinks, begins)]
        return [{"stack": flow[0], "control": flow[1],
                 "curve": [point for point in curve if point[0] <= trace.seconds]}
                for flow, curve in zip(trace.flows, curves)]


# ---- figures of an earlier run ----

def stamp_of(options):
    """Returns the properties that must be equal for figures to be combined."""
    digest = hashlib.sha256()
    for name in PROGRAMS:
        digest.update(pathlib.Path(options.build, name).read_bytes())
    return {"commit": machine.commit(TOP), "programs": digest.hexdigest()}


def read_kept_figures(path, stamp, seconds):
    """Returns the figures for --resume; None if there are none."""
    try:
        found = tables.load_json(path)
        for key in ("points", "traces", "took_s", "turns", "quick"):
            found[key]  # else KeyError
        theirs = {"commit": found["machine"]["coronet"], "programs": found["programs"],
                  "seconds": found["seconds"]}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as why:
        raise Failure(f"{path} cannot be resumed: {why!r}; run without --resume") from why
    for name, value in {**stamp, "seconds": seconds}.items():
        check(theirs[name] == value, f"{path} cannot be resumed: its {name}: "
              f"{str(theirs[name])[:40]}, now {str(value)[:40]}; run without --resume")
    return found


# ---- the run ----

class Run(turns.Run):
    """Measures all rows by turns, and keeps the report's data.

    before: the figures for --resume, or None.
    """

    def __init__(self, options, env, measure, stamp, before=None):
        super().__init__(60 * options.minutes)
        self.options, self.env, self.measure = options, env, measure
        self.rows, self.traces = chosen_rows(options), chosen_traces(options)
        self.points = list(dict.fromkeys(point for row in self.rows for point in row.points()))
        self.results = {point: {} for point in self.points}
        self.reasons = {}
        self.spent_before = 0
        self.out = {"schema": 2, "quick": options.verb == "quick", "seconds": options.seconds,
                    "turns": options.turns, "programs": stamp["programs"], "traces": [],
                    "machine": {**machine.describe(TOP, options.build),
                                "coronet": stamp["commit"]}}
        if before:
            self.take_up(before)

    def take_up(self, before):
        """Takes up earlier figures, also of rows that are not requested now."""
        for one in before["points"]:
            point = rows_of.point_of(one)
            self.results[point] = {int(turn): run for turn, run in one["runs"].items()}
            if not one["runs"] and one["reason"] and point not in self.points:
                self.reasons[point] = one["reason"]
        self.out.update(traces=[trace for trace in before["traces"] if trace["flows"]],
                        turns=max(self.options.turns, before["turns"]),
                        quick=self.out["quick"] and before["quick"])
        self.spent_before = before["took_s"]

    def clear(self):
        for program in self.env.programs:
            program.kill()
        self.env.programs.clear()

    def point(self, turn, point):
        if turns.is_final(self.reasons.get(point)):
            return
        found, reason = self.guarded(point.name(), lambda: self.measure.run(point, turn))
        if reason:
            self.reasons[point] = reason
            return
        self.results[point][turn] = found
        self.write()
        self.report(f"{turn + 1}/{self.options.turns} {point.name()}: "
                 + loss_report.describe_figures(point.group, found))

    def trace(self, trace):
        flows, reason = self.guarded(trace.plot, lambda: self.measure.trace(trace))
        self.out["traces"].append({"plot": trace.plot, "seconds": trace.seconds,
                                   "burst_at": trace.burst_at, "reason": reason,
                                   "flows": flows or []})
        if flows:
            self.report(f"{trace.plot}: "
                     + ", ".join(f"{flow['stack']} {flow['control']}" for flow in flows))

    def missing(self):
        """Returns the points without figures, in the order of measuring: (turn, point), turn by
        turn; then traces."""
        drawn = [(one["plot"], *[(flow["stack"], flow["control"]) for flow in one["flows"]])
                 for one in self.out["traces"]]
        return ([(turn, point) for turn in range(self.options.turns)
                 for point in self.points if turn not in self.results[point]],
                [one for one in self.traces
                 if (one.plot, *[flow[:2] for flow in one.flows]) not in drawn])

    def all(self):
        points, traces = self.missing()
        minutes = sum(rows_of.expected_seconds([point for _, point in points], traces,
                                               self.options.seconds)) / 60
        had = sum(map(len, self.results.values()))
        print(f"{len(self.rows)} rows, {self.options.turns} turns: about "
              f"{minutes:.{0 if minutes > 5 else 1}f} min"
              + (f" more, {had} measurements kept" if had else "")
              + f"; nothing begins after {self.options.minutes:g} min", flush=True)
        try:
            for trace in traces:
                self.trace(trace)
            for turn, point in points:
                self.point(turn, point)
        finally:
            self.write()

    def write(self):
        self.out["machine"].update(machine.properties_after())
        self.out.update(
            date=turns.format_now(), took_s=round(self.spent_before + self.seconds_spent()),
            points=[{**dataclasses.asdict(point), "reason": self.reasons.get(point),
                     "runs": {str(turn): found for turn, found in runs.items()}}
                    for point, runs in self.results.items()])
        tables.save_json(self.options.json, self.out)


# ---- options ----

def chosen_rows(options):
    rows = rows_of.quick_rows() if options.verb == "quick" else rows_of.all_rows()
    return [row for row in rows
            if row.ours.group in (options.groups or GROUPS)
            and row.ours.control in (options.cc or rows_of.GOODPUT_GOALS)
            and all(getattr(row.ours.cell, name) in (getattr(options, name) or values)
                    for name, (values, _) in FILTERS.items())]


def chosen_traces(options):
    narrowed = (options.verb == "quick" or options.cc
                or any(getattr(options, name) for name in FILTERS))
    wanted = "plots" in options.groups if options.groups else not narrowed
    return rows_of.all_traces() if wanted else []


def parse_options(argv=None):
    parser = figures.new_parser(
        "bench loss",
        "Measures coronet beside the kernel through loss, delay and narrow links.")
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="quick, render or publish; rows, of: " + " ".join(GROUPS))
    parser.add_argument("--seconds", type=figures.seconds, metavar="N",
                        help="of each measurement, more where the round trip is long and for "
                        "echoes and shares (default 2, quick 1.5)")
    parser.add_argument("--turns", type=figures.whole_number(1, 100), metavar="N",
                        help="how often each row is measured (default 3, quick 2)")
    parser.add_argument("--minutes", metavar="N",
                        type=figures.number(float, 0.01, 100000, "minutes"),
                        help="no measurement begins later; the report says what was left out "
                        "(default 300, quick 2.5)")
    parser.add_argument("--resume", action="store_true",
                        help="keep what an earlier run of the same commit, programs and "
                        "--seconds has measured")
    for name, (values, unit) in FILTERS.items():
        parser.add_argument(f"--{name}", type=float, choices=values, action="append",
                            metavar=unit,
                            help="these rows alone, of: " + " ".join(map(str, values)))
    parser.add_argument("--cc", action="append", choices=tuple(rows_of.GOODPUT_GOALS),
                        help="these rows alone")
    parser.add_argument("--json", metavar="FILE", type=os.path.abspath,
                        help="every figure (default: bench/loss.json in the build folder)")
    return checked(parser, parser.parse_args(argv))


def checked(parser, options):
    """Sorts the words into verbs and groups, and checks the options that depend on them."""
    verbs = [word for word in options.words if word in VERBS]
    options.verb = verbs[0] if verbs else "all"
    options.groups = [word for word in options.words if word not in VERBS]
    for word in options.groups:
        if word not in GROUPS:
            parser.error(f"no row '{word}'; there are: {' '.join(GROUPS)}")
    if len(verbs) > 1:
        parser.error(f"one of {', '.join(VERBS)} at a time")
    quick = options.verb == "quick"
    options.json = options.json or os.path.join(options.build, "bench", "loss.json")
    options.seconds = options.seconds or (1.5 if quick else 2)
    options.turns = options.turns or (2 if quick else 3)
    options.minutes = options.minutes or (2.5 if quick else 300)
    if options.resume and options.verb in ("render", "publish"):
        parser.error(f"--resume: {options.verb} measures nothing")
    if not chosen_rows(options) and not chosen_traces(options):
        parser.error("there are no such rows")
    return options


def measure(options):
    check({"tests", "apps"} <= set(os.listdir(options.build)),
          f"{options.build} has no programs: run ./dev build first")
    stamp = stamp_of(options)
    before = read_kept_figures(options.json, stamp, options.seconds) if options.resume else None
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
    options = parse_options()
    failed = 0
    if options.verb not in ("render", "publish"):
        if harness.INSIDE not in sys.argv:
            harness.reenter()
        failed = measure(options)
    turns.check_there(options.json, "./dev bench loss")
    turns.show_report(loss_report, options.json, options.verb == "publish")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, OSError) as failure:
        sys.exit(f"bench loss: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
