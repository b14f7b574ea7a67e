#!/usr/bin/env python3
"""./dev bench loss with known figures, and a short run.

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
import tables  # noqa: E402
from loss_rows import (  # noqa: E402
    Cell, Point, Row, all_rows, all_traces, expected_seconds, goodput, judge_row, limits_of,
    measured_seconds, point_of, quick_rows, rate_curve)
from harness import Failure, check, main  # noqa: E402

CELL = Cell(100, 50, 0.1, 2)
STREAM = Row(Point("goodput", CELL))


def expect(found, expected):
    check(found == expected, f"{found!r}, expected {expected!r}")


def runs(key, *values, limited=(), idle=0.5):
    """Returns a run per turn; None if a turn has none."""
    return [value if value is None else {key: value, "limited": list(limited), "idle": idle}
            for value in values]


def rates(*values, **more):
    return runs("mbit", *values, **more)


def verdict(row, ours, theirs, reasons=None):
    results = {point: {turn: run for turn, run in enumerate(of_point) if run is not None}
               for point, of_point in zip(row.points(), (ours, theirs))}
    return judge_row(row, results, reasons or {})


# ---- judging ----

def case_goals():
    """Figures at the goal, just beyond it, and far on its good side. If two flows share, too much
    for ours is as wrong as too little; flows between us and a kernel have no goal."""
    echo, fair = Row(Point("echo", CELL)), Row(Point("fairness", CELL))
    for row, goal, key, theirs, results in (
            (STREAM, ">= 0.95", "mbit", 100, {95: "PASS", 94.9: "MISS", 300: "PASS"}),
            (Row(Point("goodput", CELL, "bbr")), ">= 0.9", "mbit", 100,
             {90: "PASS", 89.9: "MISS", 300: "PASS"}),
            (echo, "<= 1", "p99", 20, {20: "PASS", 20.1: "MISS", 5: "PASS"}),
            (fair, "0.4 - 0.6", "share", 0.9,
             {0.39: "MISS", 0.4: "PASS", 0.5: "PASS", 0.6: "PASS", 0.61: "MISS"}),
            (Row(Point("mixed", CELL, stack="to-kernel")), "", "mbit", 100, {1: ""})):
        expect(row.goal(), goal)
        expect({value: verdict(row, runs(key, value), runs(key, theirs)).result
               for value in results}, results)
    expect(verdict(echo, runs("p99", 5), runs("p99", 20)).values, [0.25])
    expect(verdict(fair, runs("share", 0.5), runs("share", 0.9)).values, [0.5])


def case_turns():
    """A ratio needs both of the same turn: 1/2, 9/3 and 4/4 have another median than 4 over 3."""
    found = verdict(STREAM, rates(1, 9, 4), rates(2, 3, 4))
    expect((found.values, statistics.median(found.values), found.result), ([0.5, 3, 1], 1, "PASS"))
    expect(verdict(STREAM, rates(1, 9, 1), rates(2, 3, 4)).result, "MISS")
    found = verdict(STREAM, rates(50, None, 10), rates(50, 100, None))
    expect((found.values, found.result), ([1], "PASS"))
    ours, theirs = STREAM.points()
    found = verdict(STREAM, rates(None, 10), rates(50, None), {theirs: "no time", ours: "no time"})
    expect((found.values, found.result, found.note), ([], "not measured", "no time"))
    found = verdict(STREAM, [], rates(100), {ours: "no --cc"})
    expect((found.result, found.note), ("not measured", "no --cc"))
    expect(verdict(STREAM, rates(10), rates(0)).result, "not measured")


def case_full():
    """If the wire was the limit, no stack is judged; full cores are named at a missed goal, which
    stays missed."""
    late = {"limited": ["the wire was late"]}
    good, bad = rates(100, 100, 100), rates(1, 1, 1, **late)
    for ours, theirs, result in ((bad, good, "FULL"), (good, bad, "FULL"),
                                 # In one of three turns, by chance.
                                 (good[:2] + bad[:1], good, "PASS"),
                                 (good[:1] + bad[:2], good, "FULL")):
        expect(verdict(STREAM, ours, theirs).result, result)
    expect(verdict(STREAM, bad, good).note, "coronet: the wire was late")
    found = verdict(STREAM, rates(1, idle=0), rates(100))
    expect((found.result, found.note), ("MISS", "coronet: its cores were full"))
    expect(verdict(STREAM, rates(1), rates(100)).note, "")
    expect(verdict(STREAM, rates(100, idle=0), rates(100)).note, "")


# ---- reports of the wire and the sinks ----

def case_limits():
    keys = ("missed", "overflowed", "no_frame", "refused")
    calm = dict.fromkeys(("late", *keys), 0) | {"out_frames": 10000}

    def limits(tap=0, **changed):
        return limits_of({"a_to_b": calm, "b_to_a": {**calm, **changed}}, tap)

    for none in (limits(), limits(late=500), limits(2), limits(out_frames=0),
                 *[limits(**{key: 2}) for key in keys]):
        expect(none, [])
    check("6%" in limits(late=600)[0], "not late")
    check(all("dropped 3 frames" in limits(**{key: 3})[0] for key in keys), "nothing dropped")
    check("TAP" in limits(3)[0], "no TAP")


def case_samples():
    """10 Mbit/s after an idle second; with few lines, the adjacent ones are used."""
    samples = [(t / 10, max(0, t - 10) * 125000) for t in range(41)]
    check(abs(goodput(samples, 1, 3) - 10) < 1e-9, "no 10 Mbit/s")
    few = [(0, 0), (1, 0), (3, 2500000), (4, 2500000)]
    expect([goodput(samples, 0, 2), goodput(few, 1.5, 2.5), goodput(few, 0, 9), goodput(few, 5, 9),
           goodput([], 0, 9)], [5, 10, 5, None, None])
    samples = [(0, 0), (1, 125000), (1, 125000), (3, 625000)]
    expect([rate_curve(samples, 5), rate_curve(samples, 0, 2), rate_curve([], 0)],
          [[(5.5, 1.0), (7.0, 2.0)], [(1.5, 5 / 3)], []])


# ---- the matrix ----

def case_matrix():
    """Every cell of the goals is there once, compared with the kernel's."""
    wanted = {(rate, rtt, loss, buffer, control)
              for rate in (100, 1000) for rtt in (1, 10, 50, 100, 200) for loss in (0, 0.1, 1)
              for buffer in (0.5, 2) for control in ("cubic", "bbr")}
    rows = all_rows()
    found = [(*dataclasses.astuple(row.ours.cell), row.ours.control)
             for row in rows if row.ours.group == "goodput"]
    expect((len(found), set(found)), (120, wanted))
    expect({row.ours.group for row in rows}, {"goodput", "fairness", "echo", "mixed"})
    check(any(row.ours.background for row in rows), "no background")
    for ours, theirs in (row.points() for row in rows):
        expect(theirs, dataclasses.replace(ours, stack="kernel"))
        check(not theirs.needs_option(), "the kernel needs no option")
    expect({row.ours.group for row in quick_rows()}, {"goodput", "fairness", "echo"})
    expect([row.ours.needs_option() for row in quick_rows()],
          [False, False, False, True, False, False])


def case_times():
    """A quick run takes less than three minutes, a full turn 45 with its plots; significant points
    get their full time."""
    quick, options = bench_loss.parse_options(["quick"]), bench_loss.parse_options([])
    turn, _ = expected_seconds({p for row in quick_rows() for p in row.points()}, [],
                               quick.seconds)
    check(quick.turns * turn < 150, f"{quick.turns * turn} s")
    points = {p for row in all_rows() for p in row.points()}
    turn, traces = expected_seconds(points, all_traces(), options.seconds)
    check(turn + traces <= 45 * 60, f"{turn + traces} s")
    for point in points:
        took, rtt = measured_seconds(point, options.seconds), point.cell.rtt / 1000
        check(point.group == "echo" or took >= 25 * rtt, point.name())
        check(point.group != "fairness" or took >= max(10, 100 * rtt), point.name())
    expect([measured_seconds(Point("goodput", Cell(100, rtt, loss, 2)), 2) for rtt, loss in
           ((10, 0.1), (50, 0), (50, 0.1), (50, 1), (200, 0.1))], [2, 2, 4, 2, 10])


def case_cell():
    cell = Cell(1000, 200, 0.1, 2)
    expect((cell.bdp_bytes(), cell.queue_bytes(), cell.name()),
          (25000000, 50000000, "1 Gbit/s, 200 ms, 0.1 %, 2 BDP"))
    check(cell.hold_frames() * 1514 > 75000000, "it holds too little")
    expect(cell.wire_options(7)[:6], ["--rate", 1000, "--delay", "100", "--loss", "0.1"])
    expect([Cell(100, rtt, 0, 0.5).queue_bytes() for rtt in (1, 0.1)], [6250, 3028])
    point = Point("echo", CELL, "cubic", True, "kernel")
    expect(point_of(json.loads(json.dumps({**dataclasses.asdict(point), "runs": {}}))), point)


# ---- the report ----

def known_results():
    """A PASS, a MISS, a FULL, one without a run, and curves."""
    points = []
    for group, rtt, control, ours, theirs, reason in (
            ("goodput", 10, "cubic", rates(90, 95, 93), rates(92, 95, 93), None),
            ("goodput", 50, "cubic", rates(10), rates(90), None),
            ("goodput", 50, "bbr", [], rates(90), "these programs have no --cc"),
            ("fairness", 50, "cubic", runs("share", 0.5, limited=["the wire was late"]),
             runs("share", 0.4), None)):
        row = Row(Point(group, Cell(100, rtt, 0, 2), control))
        points += [{**dataclasses.asdict(point), "reason": None if of_point else reason,
                    "runs": {str(i): run for i, run in enumerate(of_point)}}
                   for point, of_point in zip(row.points(), (ours, theirs))]
    flow = {"stack": "coronet", "control": "cubic", "curve": [[0.5, 10], [1.5, 90]]}
    return {"schema": 2, "date": "2026-01-02 03:04 UTC", "quick": False, "seconds": 4, "turns": 3,
            "took_s": 600, "machine": {"processor": "a fast one", "cores": "2"}, "points": points,
            "traces": [{"plot": "loss-burst", "seconds": 2, "burst_at": 1, "reason": None,
                        "flows": [flow]},
                       {"plot": "loss-start", "seconds": 2, "burst_at": None, "reason": "failed",
                        "flows": []}]}


def line_with(text, *words):
    found = [line for line in text.splitlines() if all(word in line for word in words)]
    check(len(found) == 1, f"{len(found)} lines with {words} in\n{text}")
    return found[0]


def case_markdown():
    text = loss_report.markdown(known_results(), "plots/")

    def cells(*words):
        return [cell.strip() for cell in line_with(text, *words).strip("|").split("|")]

    expect(cells("| 10 ms"), ["100 Mbit/s", "10 ms", "0 %", "2", "cubic", "93 (90 - 95)",
                             "93 (92 - 95)", "1 (0.978 - 1)", "3", "PASS"])
    expect(cells("| 50 ms", "MISS")[7:], ["0.111", "1", "MISS"])
    for words in (("| bbr", "not measured [1]"), ("[1] these programs have no --cc.",),
                  ("FULL [1]",), ("![A burst", "(plots/loss-burst.svg)"),
                  ("Start-up of a stream: 1 curve not drawn, failed.",)):
        line_with(text, *words)
    check("loss-start" not in text, "a plot of nothing")
    check("600" not in text and "10 min" in text, text)
    text = loss_report.summary(known_results())  # the same tables, with the count at the end
    expect(cells("| 50 ms", "MISS")[7:], ["0.111", "1", "MISS"])
    line_with(text, "[1] coronet: the wire was late.")
    check(text.endswith("\n1 PASS, 1 MISS, 1 FULL, 1 not measured"), text)


def case_published(env):
    docs = env.scratch / "docs"
    docs.mkdir()
    page, (begin, end) = docs / "loss.md", tables.name_marks("loss")
    page.write_text(f"# Before\n\n{begin}old\n{end}\n\nAfter\n", encoding="utf-8")
    made = loss_report.write_files(known_results(), str(env.scratch))
    expect([os.path.basename(path) for path in made], ["loss-burst.svg"])
    for _ in range(2):
        loss_report.publish(known_results(), str(env.scratch), str(env.scratch))
        text = page.read_text(encoding="utf-8")
        check(text.startswith("# Before\n\n" + begin) and text.endswith(end + "\n\nAfter\n"), text)
        check("old" not in text and "| 10 ms" in text, text)
        expect(text.count(begin), 1)
        check(all(len(line) <= 100 or line.startswith("|") for line in text.splitlines()), text)
    check((docs / "plots" / "loss-burst.svg").stat().st_size > 1000, "no plot")


# ---- a run that was stopped ----

STAMP = {"commit": "abc", "programs": "123"}
# Three losses and two stacks are six measurements per turn.
NARROW = ["goodput", "--rate", "100", "--rtt", "10", "--buffer", "2", "--cc", "cubic"]


class Pretence:
    """Measures nothing: gives each measurement a distinct figure, up to `most` of them."""

    programs = []

    def __init__(self, most=1000):
        self.most, self.asked = most, []

    def run(self, point, turn):
        if len(self.asked) == self.most:
            raise KeyboardInterrupt
        self.asked.append((turn, point))
        return rates(len(self.asked))[0]

    def trace(self, trace):
        self.asked.append(trace.plot)
        return [{"stack": stack, "control": control, "curve": [[0, 1]]}
                for stack, control, _ in trace.flows]


def go(path, words, measure=None, resume=True, stamp=None):
    """Returns whether the run completed, the file's contents, and the measured points."""
    measure, stamp = measure or Pretence(), stamp or STAMP
    options = bench_loss.parse_options([*words, "--json", str(path)])
    before = bench_loss.read_kept_figures(options.json, stamp, options.seconds) if resume else None
    run = bench_loss.Run(options, measure, measure, stamp, before)
    whole = True
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run.all()
    except KeyboardInterrupt:
        whole = False
    found = json.loads(path.read_text(encoding="utf-8"))
    return whole, found, {(int(turn), point_of(one)): run["mbit"]
                          for one in found["points"] for turn, run in one["runs"].items()}


def case_resumed(env):
    """Stopped in the second turn."""
    path = env.scratch / "resumed" / "loss.json"
    first, second, third, more = Pretence(8), Pretence(), Pretence(), Pretence()
    whole, _, before = go(path, NARROW, first)  # no file yet
    expect((whole, len(before)), (False, 8))
    whole, found, after = go(path, NARROW, second)
    expect((whole, len(second.asked)), (True, 18 - 8))
    check(not set(first.asked) & set(second.asked), "measured again")
    expect({key: after[key] for key in before}, before)
    expect((go(path, NARROW, third)[1]["points"], third.asked), (found["points"], []))
    # From the start without --resume; then one more turn.
    expect(len(go(path, [*NARROW, "--turns", "1"], resume=False)[2]), 6)
    expect(len(go(path, [*NARROW, "--turns", "2"], more)[2]), 12)
    expect({turn for turn, _ in more.asked}, {1})


def case_resumed_rows_are_added(env):
    """Figures of other selected rows stay, plots as well."""
    path = env.scratch / "added" / "loss.json"
    go(path, NARROW)
    drawing, again = Pretence(), Pretence()
    _, found, figures = go(path, ["plots"], drawing)
    expect((len(figures), len(found["traces"]), len(drawing.asked)), (18, 10, 10))
    _, found, figures = go(path, ["plots", "goodput", "--rtt", "50", "--turns", "1"], again)
    check(not [one for one in again.asked if isinstance(one, str)], "redrawn")
    expect((found["turns"], len(found["traces"])), (3, 10))
    expect(len(figures), 18 + len(again.asked))
    check("3 turns" in loss_report.markdown(found), "the highest number of turns is shown")


def case_resumed_from_others(env):
    """Figures of other programs are not mixed with ours, nor is a file read that is not ours."""
    path = env.scratch / "others" / "loss.json"
    go(path, NARROW)
    whole = path.read_text(encoding="utf-8")
    for text, words, stamp, said in (
            (whole, [], {**STAMP, "commit": "def"}, "its commit: "),
            (whole, [], {**STAMP, "programs": "4"}, "its programs: "),
            (whole, ["--seconds", "3"], STAMP, "its seconds: "),
            *[(text, [], STAMP, "cannot be resumed") for text in ("", "[]", '{"schema": 1}')]):
        path.write_text(text, encoding="utf-8")
        try:
            go(path, [*NARROW, *words], stamp=stamp)
        except Failure as why:
            check(said in str(why) and "without --resume" in str(why), str(why))
        else:
            check(False, f"{said} made no difference")


def case_no_time_left(env):
    """A bound ends a run cleanly, and omitted points are listed. Each figure is written at
    once."""
    path = env.scratch / "late" / "loss.json"
    measure = Pretence()
    options = bench_loss.parse_options([*NARROW, "--minutes", "1", "--json", str(path)])
    run = bench_loss.Run(options, measure, measure, STAMP)
    write, written = run.write, []
    run.write = lambda: (written.append(len(measure.asked)), write())
    # A third of a minute each: none starts after the fourth.
    run.seconds_spent = lambda: 20.0 * len(measure.asked) + 0.1
    with contextlib.redirect_stdout(io.StringIO()):
        run.all()
    expect((written, run.failed), ([1, 2, 3, 3], 0))
    found = json.loads(path.read_text(encoding="utf-8"))
    text = loss_report.summary(found)
    check(text.endswith("2 not measured"), text)
    expect((text.count("not measured [1]"), text.count("[1] there was no time left")), (2, 1))
    check("there was no time left" in loss_report.markdown(found), "unsaid")


def bench(env, *words, status=0):
    done = subprocess.run(
        [sys.executable, "-B", os.path.join(HERE, "bench_loss.py"), "--build", str(env.build),
         *words], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    check(done.returncode == status, f"status {done.returncode}: {done.stdout}")
    return done.stdout


def case_bad_input(env):
    for words in ("sometimes", "quick publish", "--rtt 11", "--loss x", "--turns 0",
                  "--minutes nan", "publish --resume", "fairness --loss 1", "--nosuch"):
        words = words.split()
        out = bench(env, *words, status=2)
        expect(out.count("\n"), 1)
        check(words[-1].lstrip("-") in out or "no such rows" in out or "at a time" in out, out)
    out = bench(env, "render", "--json", str(env.scratch / "none"), status=1)
    check("run ./dev bench loss first" in out, out)


def case_run(env):
    """A short run of one cell of each group, and its rendering."""
    path = env.scratch / "run" / "loss.json"
    out = bench(env, "goodput", "fairness", "echo", "mixed", "--rate", "100", "--rtt", "10",
                "--loss", "0", "--buffer", "2", "--cc", "cubic", "--seconds", "1", "--turns", "1",
                "--json", str(path))
    found = json.loads(path.read_text(encoding="utf-8"))
    expect(len(found["points"]), 11)
    keys = {"goodput": ["mbit"], "mixed": ["mbit"], "fairness": ["share", "other_mbit"],
            "echo": ["p50", "p99"]}
    for point in found["points"]:
        check(len(point["runs"]) == 1, f"{point}\n{out}")
        check(all(point["runs"]["0"][key] > 0 for key in keys[point["group"]]), f"{point}")
    again = bench(env, "render", "--json", str(path))
    check(again.splitlines()[-1] in out, again)


def cases(env):
    yield "goals", case_goals
    yield "ratios are taken within a turn", case_turns
    yield "a wire or cores that are the limit", case_full
    yield "limits reported by a wire", case_limits
    yield "goodput and a curve of a sink's lines", case_samples
    yield "the matrix has every cell", case_matrix
    yield "how long it takes", case_times
    yield "a cell's numbers", case_cell
    yield "markdown", case_markdown
    yield "docs between their marks", lambda: case_published(env)
    yield "a run goes on where it stopped", lambda: case_resumed(env)
    yield "other rows are added to it", lambda: case_resumed_rows_are_added(env)
    yield "other programs' figures stay out", lambda: case_resumed_from_others(env)
    yield "a run without time left", lambda: case_no_time_left(env)
    yield "wrong options", lambda: case_bad_input(env)
    if not env.sanitized:
        yield "a short run of every group", lambda: case_run(env)


if __name__ == "__main__":
    main(cases)
