#!/usr/bin/env python3
"""What ./dev bench loss makes of figures that are known, and a short run.

Usage: test_loss.py BUILD_DIR (TAP)
"""

import contextlib
import dataclasses
import io
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "integration")]

import bench_loss  # noqa: E402
import loss_report  # noqa: E402
import loss_rows  # noqa: E402
import tables  # noqa: E402
from loss_rows import Cell, Point, Row, judge  # noqa: E402
from harness import Failure, check, main  # noqa: E402

CELL = Cell(100, 50, 0.1, 2)


def equal(found, expected):
    check(found == expected, f"{found!r}, expected {expected!r}")


def run_of(key, value, limited=(), idle=0.5, **more):
    return {key: value, "limited": list(limited), "idle": idle, **more}


def verdict(row, ours, theirs, reasons=None):
    """Of runs a turn; None where a turn has none."""
    return judge(row, {point: {turn: run for turn, run in enumerate(runs)
                               if run is not None}
                       for point, runs in zip(row.points(), (ours, theirs))},
                 reasons or {})


def rates(*values, **more):
    return [value if value is None else run_of("mbit", value, **more)
            for value in values]


# ---- judging ----

def case_goals():
    for control, goal in (("cubic", 0.95), ("bbr", 0.9)):
        row = Row(Point("goodput", CELL, control))
        equal(row.goal(), f">= {goal}")
        equal(verdict(row, rates(100 * goal), rates(100)).result, "PASS")
        equal(verdict(row, rates(100 * goal - 0.1), rates(100)).result,
              "MISS")
        equal(verdict(row, rates(300), rates(100)).result, "PASS")


def case_echo_goal():
    row = Row(Point("echo", CELL))

    def p99(value):
        return [run_of("p99", value)]

    equal(row.goal(), "<= 1")
    equal(verdict(row, p99(20), p99(20)).result, "PASS")
    equal(verdict(row, p99(20.1), p99(20)).result, "MISS")
    equal(verdict(row, p99(5), p99(20)).values, [0.25])


def case_fairness_goal():
    """Too much for ours is as wrong as too little; the kernel's own share
    beside another kernel's decides nothing."""
    row = Row(Point("fairness", CELL, "cubic"))
    equal(row.goal(), "0.4 - 0.6")
    for share, result in ((0.39, "MISS"), (0.4, "PASS"), (0.5, "PASS"),
                          (0.6, "PASS"), (0.61, "MISS")):
        equal(verdict(row, [run_of("share", share)],
                      [run_of("share", 0.9)]).result, result)


def case_medians_of_ratios():
    """1/2, 9/3 and 4/4 have another median than 4 over 3."""
    row = Row(Point("goodput", CELL, "cubic"))
    found = verdict(row, rates(1, 9, 4), rates(2, 3, 4))
    equal((found.values, statistics.median(found.values), found.result),
          ([0.5, 3, 1], 1, "PASS"))
    equal(verdict(row, rates(1, 9, 1), rates(2, 3, 4)).result, "MISS")


def case_turns():
    """A ratio needs both of the same turn."""
    row = Row(Point("goodput", CELL, "cubic"))
    found = verdict(row, rates(50, None, 10), rates(50, 100, None))
    equal((found.values, found.result), ([1], "PASS"))
    found = verdict(row, rates(None, 10), rates(50, None),
                    {row.points()[1]: "no time", row.ours: "no time"})
    equal((found.values, found.result, found.note),
          ([], "not measured", "no time"))
    found = verdict(row, [], rates(100), {row.ours: "no --cc"})
    equal((found.result, found.note), ("not measured", "no --cc"))
    equal(verdict(row, rates(10), rates(0)).result, "not measured")


def case_full():
    """Where the wire was the limit nothing is said of a stack, either way."""
    row = Row(Point("goodput", CELL, "cubic"))
    late = {"limited": ["the wire was late"]}
    for ours, theirs in ((rates(1, 1, **late), rates(100, 100)),
                         (rates(100, 100), rates(1, 1, **late))):
        equal(verdict(row, ours, theirs).result, "FULL")
    found = verdict(row, rates(1, **late), rates(100))
    equal(found.note, "coronet: the wire was late")
    # In one of three turns, by chance.
    ours = [*rates(100, 100), *rates(1, **late)]
    equal(verdict(row, ours, rates(100, 100, 100)).result, "PASS")
    ours = [*rates(100), *rates(1, 1, **late)]
    equal(verdict(row, ours, rates(100, 100, 100)).result, "FULL")


def case_busy_cores():
    """They are named where a goal was missed, which stays missed."""
    row = Row(Point("goodput", CELL, "cubic"))
    found = verdict(row, rates(1, idle=0), rates(100))
    equal((found.result, found.note), ("MISS", "coronet: its cores were full"))
    equal(verdict(row, rates(1), rates(100)).note, "")
    equal(verdict(row, rates(100, idle=0), rates(100)).note, "")


def case_no_goal():
    row = [one for one in loss_rows.all_rows()
           if one.ours.group == "mixed"][0]
    equal((row.goal(), verdict(row, rates(1), rates(100)).result), ("", ""))


# ---- what the wire and the sinks tell ----

def ways(**changed):
    calm = dict.fromkeys(("late", "missed", "overflowed", "no_frame",
                          "refused"), 0) | {"out_frames": 10000}
    return {"a_to_b": calm, "b_to_a": {**calm, **changed}}


def case_limits():
    equal(loss_rows.limits_of(ways()), [])
    equal(loss_rows.limits_of(ways(late=500)), [])
    check("6%" in loss_rows.limits_of(ways(late=600))[0], "not late")
    for key in ("missed", "overflowed", "no_frame", "refused"):
        equal(loss_rows.limits_of(ways(**{key: 2})), [])
        check("dropped 3 frames" in loss_rows.limits_of(ways(**{key: 3}))[0],
              key)
    check("TAP" in loss_rows.limits_of(ways(), 3)[0], "no TAP")
    equal(loss_rows.limits_of(ways(), 2), [])
    equal(loss_rows.limits_of(ways(out_frames=0)), [])


def case_goodput():
    """10 Mbit/s after a second of nothing."""
    samples = [(t / 10, max(0, t - 10) * 125000) for t in range(41)]
    check(abs(loss_rows.goodput(samples, 1, 3) - 10) < 1e-9, "no 10 Mbit/s")
    equal(loss_rows.goodput(samples, 0, 2), 5)
    # Few lines: those around.
    few = [(0, 0), (1, 0), (3, 2500000), (4, 2500000)]
    equal(loss_rows.goodput(few, 1.5, 2.5), 10)
    equal(loss_rows.goodput(few, 0, 9), 5)
    equal(loss_rows.goodput(few, 5, 9), None)
    equal(loss_rows.goodput([], 0, 9), None)


def case_curve():
    samples = [(0, 0), (1, 125000), (1, 125000), (3, 625000)]
    equal(loss_rows.curve(samples, 5), [(5.5, 1.0), (7.0, 2.0)])
    equal(loss_rows.curve(samples, 0, 2), [(1.5, 5 / 3)])
    equal(loss_rows.curve([], 0), [])


# ---- the matrix ----

def case_matrix():
    """Every cell that the goals name, once."""
    wanted = {(rate, rtt, loss, buffer, control)
              for rate in (100, 1000) for rtt in (1, 10, 50, 100, 200)
              for loss in (0, 0.1, 1) for buffer in (0.5, 2)
              for control in ("cubic", "bbr")}
    rows = loss_rows.all_rows()
    found = [(row.ours.cell.rate, row.ours.cell.rtt, row.ours.cell.loss,
              row.ours.cell.buffer, row.ours.control)
             for row in rows if row.ours.group == "goodput"]
    check(len(found) == 120 and set(found) == wanted, f"{len(found)} rows")
    equal({row.ours.group for row in rows},
          {"goodput", "fairness", "echo", "mixed"})
    check(any(row.ours.background for row in rows), "no background")
    for row in rows:
        theirs = row.points()[1]
        check(theirs.stack == "kernel", row.text())
        equal((row.ours.cell, row.ours.control, row.ours.background),
              (theirs.cell, theirs.control, theirs.background))
    equal({row.ours.group for row in loss_rows.quick_rows()},
          {"goodput", "fairness", "echo"})


def case_quick_is_quick():
    points = {p for row in loss_rows.quick_rows() for p in row.points()}
    options = bench_loss.parse(["quick"])
    turn, _ = loss_rows.expected_seconds(points, [], options.seconds)
    check(options.turns * turn < 150, f"{options.turns * turn} s")


def case_a_turn_takes_45_minutes():
    """By default, with its plots; and no time is saved where it decides."""
    points = {p for row in loss_rows.all_rows() for p in row.points()}
    seconds = bench_loss.parse([]).seconds
    turn, traces = loss_rows.expected_seconds(points, loss_rows.all_traces(),
                                              seconds)
    check(turn + traces <= 45 * 60, f"{turn + traces} s")
    for point in points:
        took = loss_rows.measured_seconds(point, seconds)
        check(point.group == "echo" or took >= 25 * point.cell.rtt / 1000,
              point.name())
        if point.group == "fairness":
            check(took >= max(10, point.cell.rtt / 10), point.name())
    equal([loss_rows.measured_seconds(Row(Point("goodput", 
        Cell(100, rtt, loss, 2), "cubic")).ours, 2)
        for rtt, loss in ((10, 0.1), (50, 0), (50, 0.1), (50, 1), (200, 0.1))],
          [2, 2, 4, 2, 10])


def case_cell():
    cell = Cell(1000, 200, 0.1, 2)
    equal(cell.bdp_bytes(), 25000000)
    equal(cell.queue_bytes(), 50000000)
    check(cell.hold_frames() * 1514 > 75000000, "it holds too little")
    equal(cell.wire_options(7)[:6],
          ["--rate", 1000, "--delay", "100", "--loss", "0.1"])
    equal(Cell(100, 1, 0, 0.5).queue_bytes(), 6250)
    equal(Cell(100, 0.1, 0, 0.5).queue_bytes(), 3028)
    equal(cell.name(), "1 Gbit/s, 200 ms, 0.1 %, 2 BDP")


def case_json():
    point = Point("echo", CELL, "cubic", True, "kernel")
    found = json.loads(json.dumps({**dataclasses.asdict(point), "runs": {}}))
    equal(loss_rows.point_of(found), point)


def case_needs_option():
    equal([row.ours.needs_option() for row in loss_rows.quick_rows()],
          [False, False, False, True, False, False])
    check(not any(row.points()[1].needs_option() for row in loss_rows.all_rows()),
          "the kernel needs no option")


# ---- the report ----

def known():
    """A PASS, a MISS, a FULL, one without a run, and curves."""
    points = []

    def add(row, ours, theirs, reason=None):
        points.extend(
            {**dataclasses.asdict(point), "reason": reason if not runs else None,
             "runs": {str(i): run for i, run in enumerate(runs)}}
            for point, runs in zip(row.points(), (ours, theirs)))

    add(Row(Point("goodput", Cell(100, 10, 0, 2), "cubic")),
        rates(90, 95, 93), rates(92, 95, 93))
    add(Row(Point("goodput", Cell(100, 50, 0, 2), "cubic")), rates(10),
        rates(90))
    add(Row(Point("goodput", Cell(100, 50, 0, 2), "bbr")), [], rates(90),
        "these programs have no --cc")
    add(Row(Point("fairness", Cell(100, 50, 0, 2), "cubic")),
        [run_of("share", 0.5, ["the wire was late"])], [run_of("share", 0.4)])
    flow = {"stack": "coronet", "control": "cubic",
            "curve": [[0.5, 10], [1.5, 90]]}
    return {"schema": 1, "date": "2026-01-02 03:04 UTC", "quick": False,
            "seconds": 4, "turns": 3, "took_s": 600,
            "machine": {"processor": "a fast one", "cores": "2"},
            "points": points,
            "traces": [{"plot": "loss-burst", "seconds": 2, "burst_at": 1,
                        "reason": None, "flows": [flow]},
                       {"plot": "loss-start", "seconds": 2, "burst_at": None,
                        "reason": "failed", "flows": []}]}


def line_with(text, *words):
    found = [line for line in text.splitlines()
             if all(word in line for word in words)]
    check(len(found) == 1, f"{len(found)} lines with {words} in\n{text}")
    return found[0]


def case_text():
    text = loss_report.text(known())
    line = line_with(text, "100 Mbit/s, 10 ms, 0 %, 2 BDP, cubic")
    check("93 (90 - 95)" in line and line.endswith("3  PASS"), line)
    line = line_with(text, "100 Mbit/s, 50 ms, 0 %, 2 BDP, cubic", ">= 0.95")
    check(line.endswith("1  MISS") and "0.111" in line, line)
    line_with(text, "0  not measured: these programs have no --cc")
    line_with(text, "1  FULL: coronet: the wire was late")
    check(text.endswith("1 PASS, 1 MISS, 1 FULL, 1 not measured"), text)


def case_markdown():
    text = loss_report.markdown(known(), "plots/")
    line = line_with(text, "| 10 ms")
    equal([cell.strip() for cell in line.strip("|").split("|")],
          ["100 Mbit/s", "10 ms", "0 %", "2", "cubic", "93 (90 - 95)",
           "93 (92 - 95)", "1 (0.978 - 1)", "3", "PASS"])
    line = line_with(text, "| 50 ms", "MISS")
    equal([cell.strip() for cell in line.strip("|").split("|")][7:],
          ["0.111", "1", "MISS"])
    line_with(text, "| bbr", "not measured [1]")
    line_with(text, "[1] these programs have no --cc.")
    line_with(text, "FULL [1]")
    line_with(text, "![A burst", "(plots/loss-burst.svg)")
    check("loss-start" not in text, "a plot of nothing")
    line_with(text, "Start-up of a stream: 1 curve not drawn, failed.")
    check("600" not in text and "10 min" in text, text)


def case_published(env):
    docs = env.scratch / "docs"
    (docs / "plots").mkdir(parents=True)
    page = docs / "loss.md"
    begin, end = tables.marks("loss")
    page.write_text(f"# Before\n\n{begin}old\n{end}\n\nAfter\n", encoding="utf-8")
    made = loss_report.draw(known(), str(env.scratch))
    equal([os.path.basename(path) for path in made], ["loss-burst.svg"])
    for _ in range(2):
        loss_report.publish(known(), str(env.scratch), str(env.scratch))
        text = page.read_text(encoding="utf-8")
        check(text.startswith("# Before\n\n" + begin)
              and text.endswith(end + "\n\nAfter\n"), text)
        check("old" not in text and "| 10 ms" in text, text)
        equal(text.count(begin), 1)
        check(all(len(line) <= 100 for line in text.splitlines()
                  if not line.startswith("|")), text)
    check((docs / "plots" / "loss-burst.svg").stat().st_size > 1000, "no plot")


# ---- a run that was stopped ----

STAMP = {"commit": "abc", "programs": "123"}
NARROW = ["goodput", "--rate", "100", "--rtt", "10", "--buffer", "2", "--cc",
          "cubic"]


class Pretence:
    """Measures nothing: each has a figure of its own, until `most` have."""

    def __init__(self, most=1000):
        self.most, self.asked = most, []

    def run(self, point, turn):
        if len(self.asked) == self.most:
            raise KeyboardInterrupt
        self.asked.append((turn, point))
        return run_of("mbit", len(self.asked))

    def trace(self, trace):
        self.asked.append(trace.plot)
        return [{"stack": stack, "control": control, "curve": [[0, 1]]}
                for stack, control, _ in trace.flows]


class Nobody:
    programs = []


def go(path, words, measure, resume=True, stamp=None):
    """Whether it came to its end; what the file has then."""
    stamp = stamp or STAMP
    options = bench_loss.parse([*words, "--json", path])
    before = (bench_loss.kept(path, stamp, options.seconds) if resume
              else None)
    run = bench_loss.Run(options, Nobody(), measure, stamp, before)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run.all()
        whole = True
    except KeyboardInterrupt:
        whole = False
    with open(path, encoding="utf-8") as file:
        return whole, json.load(file)


def runs_of(found):
    return {(int(turn), loss_rows.point_of(one)): run["mbit"]
            for one in found["points"] for turn, run in one["runs"].items()}


def case_resumed(env):
    """Three losses and two stacks are six a turn; stopped in the second."""
    path = str(env.scratch / "resumed" / "loss.json")
    first, second, third = Pretence(8), Pretence(), Pretence()
    whole, found = go(path, NARROW, first)  # nothing is there yet
    equal((whole, len(runs_of(found))), (False, 8))
    before = runs_of(found)
    whole, found = go(path, NARROW, second)
    equal((whole, len(second.asked)), (True, 18 - 8))
    check(not set(first.asked) & set(second.asked), "measured again")
    equal({key: runs_of(found)[key] for key in before}, before)
    equal(go(path, NARROW, third)[1]["points"], found["points"])
    equal(third.asked, [])
    # Anew without it; and one turn more.
    equal(len(runs_of(go(path, [*NARROW, "--turns", "1"], Pretence(),
                         resume=False)[1])), 6)
    more = Pretence()
    equal(len(runs_of(go(path, [*NARROW, "--turns", "2"], more)[1])), 12)
    equal({turn for turn, _ in more.asked}, {1})


def case_resumed_rows_are_added(env):
    """What another choice of rows has measured stays, plots as well."""
    path = str(env.scratch / "added" / "loss.json")
    go(path, NARROW, Pretence())
    drawing, again = Pretence(), Pretence()
    _, found = go(path, ["plots"], drawing)
    equal((len(runs_of(found)), len(found["traces"]), len(drawing.asked)),
          (18, 10, 10))
    _, found = go(path, ["plots", "goodput", "--rtt", "50", "--turns", "1"],
                  again)
    check(not [one for one in again.asked if isinstance(one, str)], "redrawn")
    equal((found["turns"], len(found["traces"])), (3, 10))
    equal(len(runs_of(found)), 18 + len(again.asked))
    check("3 turns" in loss_report.markdown(found), "the most turns are told")


def case_resumed_from_others(env):
    """Figures of other programs are not mixed with ours."""
    path = str(env.scratch / "others" / "loss.json")
    go(path, NARROW, Pretence())
    for words, stamp, name in ((NARROW, {**STAMP, "commit": "def"}, "commit"),
                               (NARROW, {**STAMP, "programs": "4"},
                                "programs"),
                               ([*NARROW, "--seconds", "3"], STAMP,
                                "seconds")):
        try:
            go(path, words, Pretence(), stamp=stamp)
        except Failure as why:
            check(f"its {name}: " in str(why) and "without --resume" in
                  str(why), str(why))
        else:
            check(False, f"{name} made no difference")
    for text in ("", "[]", '{"schema": 1}'):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            go(path, NARROW, Pretence())
        except Failure as why:
            check("cannot be resumed" in str(why), str(why))
        else:
            check(False, f"{text!r} was resumed")


def case_no_time_left(env):
    """A bound ends a run in order, and what was left out is said."""
    path = str(env.scratch / "late" / "loss.json")
    measure = Pretence()
    options = bench_loss.parse([*NARROW, "--minutes", "1", "--json", path])
    run = bench_loss.Run(options, Nobody(), measure, STAMP)
    # A third of a minute each: nothing begins after the fourth.
    run.spent = lambda: 20.0 * len(measure.asked) + 0.1
    with contextlib.redirect_stdout(io.StringIO()):
        run.all()
    equal((len(measure.asked), run.failed), (3, 0))
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    text = loss_report.text(found)
    check(text.endswith("2 not measured"), text)
    equal(text.count("not measured: there was no time left"), 2)
    check("there was no time left" in loss_report.markdown(found), "unsaid")


def bench(env, *words, status=0):
    done = subprocess.run(
        [sys.executable, "-B", os.path.join(HERE, "bench_loss.py"), "--build",
         str(env.build), *words], check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == status, f"status {done.returncode}: {done.stdout}")
    return done.stdout


def case_bad_input(env):
    for words in (["sometimes"], ["quick", "publish"], ["--rtt", "11"],
                  ["--loss", "x"], ["--turns", "0"],
                  ["--minutes", "nan"], ["publish", "--resume"],
                  ["fairness", "--loss", "1"], ["--nosuch"]):
        out = bench(env, *words, status=2)
        equal(out.count("\n"), 1)
        check(words[-1].lstrip("-") in out or "no such rows" in out
              or "at a time" in out, out)
    out = bench(env, "render", "--json", str(env.scratch / "none"), status=1)
    check("run ./dev bench loss first" in out, out)


def case_run(env):
    """A cell of each group, once, and what render makes of it."""
    path = env.scratch / "run" / "loss.json"
    out = bench(env, "goodput", "fairness", "echo", "mixed", "--rate", "100",
                "--rtt", "10", "--loss", "0", "--buffer", "2", "--cc", "cubic",
                "--seconds", "1", "--turns", "1", "--json", str(path))
    found = json.loads(path.read_text(encoding="utf-8"))
    equal(len(found["points"]), 11)
    for point in found["points"]:
        check(len(point["runs"]) == 1, f"{point}\n{out}")
        run = point["runs"]["0"]
        for key in {"goodput": ["mbit"], "mixed": ["mbit"],
                    "fairness": ["share", "other_mbit"],
                    "echo": ["p50", "p99"]}[point["group"]]:
            check(run[key] > 0, f"{key}: {point}")
    again = bench(env, "render", "--json", str(path))
    check(again.splitlines()[-1] in out, again)


def cases(env):
    yield "goals of goodput", case_goals
    yield "the goal of echoes", case_echo_goal
    yield "fairness has two bounds", case_fairness_goal
    yield "medians of ratios", case_medians_of_ratios
    yield "ratios are taken within a turn", case_turns
    yield "a wire that is the limit", case_full
    yield "cores that are full", case_busy_cores
    yield "rows without a goal", case_no_goal
    yield "what a wire tells of itself", case_limits
    yield "goodput of a sink's lines", case_goodput
    yield "a curve of a sink's lines", case_curve
    yield "the matrix has every cell", case_matrix
    yield "quick takes less than three minutes", case_quick_is_quick
    yield "a turn of everything takes 45 minutes", case_a_turn_takes_45_minutes
    yield "a cell's numbers", case_cell
    yield "points go into JSON and back", case_json
    yield "which points need --cc", case_needs_option
    yield "the table", case_text
    yield "markdown", case_markdown
    yield "docs between their marks", lambda: case_published(env)
    yield "a run goes on where it stopped", lambda: case_resumed(env)
    yield "other rows are added to it", lambda: case_resumed_rows_are_added(env)
    yield "other programs' figures stay out", \
        lambda: case_resumed_from_others(env)
    yield "a run without time left", lambda: case_no_time_left(env)
    yield "wrong options", lambda: case_bad_input(env)
    if not env.sanitized:
        yield "a short run of every group", lambda: case_run(env)


if __name__ == "__main__":
    main(cases)
