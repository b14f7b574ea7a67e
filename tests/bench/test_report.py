#!/usr/bin/env python3
"""The benchmark's report: from figures that are known, and from a short run.

Usage: test_report.py BUILD_DIR (TAP)
"""

import copy
import html.parser
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "integration")]

import plots  # noqa: E402
import points  # noqa: E402
import report  # noqa: E402
import tables  # noqa: E402
import uring  # noqa: E402
from matrix import merged  # noqa: E402
from harness import check, main  # noqa: E402

LATENCY = {"p50": 10.0, "p90": 12.0, "p99": 20.0, "p999": 900.0,
           "p9999": 5000.0, "max": 6000.0}


def echo_run(rate, limited=False, cpu=None, p99=20.0):
    return {"requests_per_s": rate, "bytes_per_s": rate * 64,
            "latency_us": dict(LATENCY, p99=p99), "limited": limited,
            "server_cpu": cpu}


def point(table, path, conns, runs, reason=None):
    return {"table": table, "path": path, "conns": conns, "runs": runs,
            "reason": reason}


def known():
    """A report with every kind of figure in it."""
    idle = {"none_kib": 1024, "server_kib": 1024 + 10000, "after_kib": 12000,
            "opened_per_s": 50000.0}
    return {
        "date": "2026-01-02 03:04 UTC", "quick": False, "seconds": 2.0,
        "repeat": 3, "hugepages": True, "cores": [0, 1], "took_s": 61,
        "open_rate": 50000,
        "machine": {"processor": "a <fast> one", "cores": "2",
                    "kernel": "6.1", "DPDK": "22.11"},
        "points": [
            point("macswap", "macswap", 0, [echo_run(8e6)] * 3),
            point("echo", "memif", 64, [echo_run(4e6), echo_run(2e6),
                                        echo_run(3e6)]),
            point("echo", "loopback", 64,
                  [echo_run(1e5, True, 0.99, 400.0),
                   echo_run(2e5, True, 0.99, 400.0),
                   echo_run(1e5, True, 0.99, 400.0)]),
            point("echo", "uring", 64, [echo_run(4e5, True, 0.99)] * 3),
            point("echo", "tap", 64, [echo_run(4e4, True)]),
            point("echo", "kerneltap", 64, [echo_run(5e4, True, 0.5)]),
            point("echo", "memif", 1000000, [], "too little memory"),
            point("echo", "tap", 1000000, [], "too little memory"),
            point("open", "memif", 64, [echo_run(5e4)]),
            point("cps", "memif", 64, [echo_run(9e5)]),
            point("bulk", "memif", 1, [dict(echo_run(1),
                                            bytes_per_s=2.5e9)]),
            point("idle", "memif", 10000, [idle]),
        ],
        "coro": {"isa": "avx2", "rows": [
            {"name": "switch", "unit": "ns", "goal": 0.64, "reached": 0.5,
             "verdict": "PASS", "values": {"coronet": 2.5, "Boost": 5.0}}]},
        "proxy": [
            {"path": "tap", "proxy": "coronet-proxy",
             "figures": {"requests/s, 64": [30000, 20000]}},
            {"path": "tap", "proxy": "haproxy",
             "figures": {"requests/s, 64": [10000, 10000]}}],
        "coro_reason": None, "proxy_reason": None,
    }


def cells(text, start):
    """Of the line of a table that begins so."""
    lines = [line for line in text.splitlines()
             if line.startswith("| " + start)]
    check(lines, f"no line '{start}' in\n{text}")
    return [cell.strip() for cell in lines[0].strip("|").split("|")]


def case_medians():
    text = report.markdown(known())
    row = cells(text, "64 ")
    check(row[1] == "3.00 M (2.00 M - 4.00 M)", f"{row}")
    check("which took 1 min 1 s" in text, text[:400])
    check("8.00 M" in text, "no ceiling")
    row = cells(text, "10,000")
    check(row[4] == "1,024 B", f"{row}")
    check(cells(text, "1 ")[1] == "20", "no bulk of 20 Gbit/s")
    check(cells(text, "switch")[1:4] == ["2.5 ns", "Boost 5", "0.5"],
          "no switch")


def case_ratios_by_turn():
    """4/1, 2/2 and 3/1 have another median than 3 over 1."""
    text = report.markdown(known())
    row = cells(text, "echo, 64 connections: coronet over memif / epoll on")
    check(row[1] == "30 x (10 x - 40 x)", f"{row}")
    row = cells(text, "echo, 64 connections: coronet over memif / io_uring on")
    check(row[1] == "7.5 x (5 x - 10 x)", f"{row}")
    row = cells(text, "haproxy, tap")
    check(row[1] == "2.50 x (2.00 x - 3.00 x)", f"{row}")


def case_lower_bounds():
    """A load's limit is told, but not where the server was full as well."""
    row = cells(report.markdown(known()), "64 ")
    check(not row[2].startswith("≥"), f"saturated server: {row}")
    check(not row[3].startswith("≥"), f"saturated server: {row}")
    check(row[4].startswith("≥ ") and row[5].startswith("≥ "), f"{row}")
    unlimited = known()
    for one in unlimited["points"]:
        for run in one["runs"]:
            run["limited"] = False
    check("≥" not in report.markdown(unlimited), "≥ without a reason")


def case_reasons():
    found = known()
    found["points"].append(point("cps", "tap", 64, []))
    found["points"].append(point("cps", "loopback", 64, [],
                                 "failed: it fell"))
    found["points"].append(point("cps", "uring", 64, [], "it is refused"))
    text = report.markdown(found)
    check("- echo memif 1,000,000, echo tap 1,000,000: too little memory"
          in text, text)
    check("- cps tap 64: there was no time left" in text, text)
    check("- cps loopback 64: failed: it fell" in text, text)
    check("- cps uring 64: it is refused" in text, text)
    check(cells(text, "at a time")[1] == points.PATHS["memif"][0], text)
    check("failed" in "".join(cells(text, "64  ")) or "failed" in text, text)


def case_again():
    """One table anew leaves the others, and is told."""
    new = known()
    new.update(date="2027-05-06 07:08 UTC", coro=None, proxy=[])
    new["points"] = [point("cps", "memif", 64, [echo_run(7e5)])]
    both = merged(known(), new)
    text = report.markdown(both)
    check(cells(text, "64 ")[1] == "3.00 M (2.00 M - 4.00 M)", text)
    check(cells(text, "at a time") and "700 k" in text, text)
    check("Measured again on 2027-05-06 07:08 UTC: cps." in text, text)
    check(both["coro"] == known()["coro"], "no coroutines any more")


class Page(html.parser.HTMLParser):
    """Which elements stay open, and what the page would fetch."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.ids, self.fetched = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta",):
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href") and value[:1] != "#":
                self.fetched.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in ("meta",):
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def case_written(env):
    """One page with all in it, and each plot twice."""
    folder = env.scratch / "report"
    folder.mkdir()
    made = [os.path.basename(path)
            for path in report.write(known(), str(folder))]
    for name in ("echo", "latency", "memory", "coro", "proxy"):
        for suffix, first in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
            check(name + suffix in made, f"{name}{suffix} was not made")
            begin = (folder / (name + suffix)).read_bytes()[:5]
            check(begin.startswith(first), f"{name}{suffix}: {begin}")
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    check(not page.open and not page.wrong,
          f"open: {page.open}, wrong: {page.wrong}")
    check(not page.fetched, f"the page fetches {page.fetched}")
    check(len(page.ids) == len(set(page.ids)), "an id is there twice")
    check(text.count("<svg") == 5, f"{text.count('<svg')} plots")
    check("a &lt;fast&gt; one" in text, "not escaped")
    check("<code>./dev bench</code>" in text, "no code")


def case_latencies_below_one_us(env):
    """The logarithmic axis names its decades, also those below one."""
    folder = env.scratch / "short"
    folder.mkdir()
    found = copy.deepcopy(known())
    for one in found["points"]:
        for run in one["runs"]:
            if "latency_us" in run:
                run["latency_us"]["p50"] = 0.6
    report.write(found, str(folder))
    text = (folder / "latency.svg").read_text(encoding="utf-8")
    check(">0.1<" in text and ">0<" not in text, "no 0.1 on the axis")


def case_published(env):
    top, folder = env.scratch / "top", env.scratch / "report2"
    (top / "docs").mkdir(parents=True)
    folder.mkdir()
    for name in ("README.md", "docs/benchmarks.md"):
        begin, end = tables.marks("bench")
        (top / name).write_text(f"before\n{begin}OUTDATED\n{end}\nafter\n", encoding="utf-8")
    report.write(known(), str(folder))
    report.publish(known(), str(folder), str(top))
    for name in ("README.md", "docs/benchmarks.md"):
        text = (top / name).read_text(encoding="utf-8")
        check(text.startswith("before\n") and text.endswith("after\n"), text)
        check("OUTDATED" not in text and "2026-01-02" in text, text)
        long = [line for line in text.split("\n")
                if len(line) > 100 and not line.startswith(("|", "<", "#", "!"))]
        check(not long, f"more than 100 columns: {long}")
    check("(plots/echo.svg)" in text, text)
    check((top / "docs/plots/echo.svg").exists(), "no plot")


def case_nothing_measured():
    """Every point left out is a report still, without a plot."""
    found = copy.deepcopy(known())
    for one in found["points"]:
        one["runs"], one["reason"] = [], "failed: all of it"
    found.update(coro=None, proxy=[], open_rate=None)
    check(plots.of_report(found) == {}, f"{plots.of_report(found)}")
    check("failed: all of it" in report.markdown(found), "no reason")
    report.summary(found)


def matrix(env, *words, status=0):
    """Runs it; what it printed. status: expected, None: any."""
    done = subprocess.run(
        [sys.executable, os.path.join(HERE, "matrix.py"), *words,
         "--build", str(env.build)], check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=240)
    failed = [line for line in done.stdout.splitlines() if "failed" in line]
    check(status in (None, done.returncode),
          f"exit {done.returncode}: {done.stdout}" + "\n".join(failed))
    return done.stdout


def refused(env, one):
    """Whether a point cannot be measured here: why."""
    return (one["path"] in ("uring", "uringtap")
            and uring.no_uring(str(env.build)))


def short_run(env, folder):
    """The report of a run long enough for this machine to measure anything,
    and whether it left points out so as to end in time."""
    for seconds, status in (("0.1", None), ("0.3", None), ("1", 0)):
        said = matrix(env, "quick", "--seconds", seconds, "--repeat", "1", "--only", "echo",
                      "--only", "cps", "--only", "bulk", "--only", "idle", "--folder",
                      str(folder), status=status)
        with open(folder / "report.json", encoding="utf-8") as file:
            found = json.load(file)
        if all(one["runs"] and (one["table"] == "idle" or one["runs"][0]["requests_per_s"] > 0)
               for one in found["points"] if not refused(env, one)):
            break
    return found, "the rest is left out" in said


def case_run(env):
    """Every path for real; what is in the report was measured."""
    folder = env.scratch / "run"
    found, hurried = short_run(env, folder)
    for one in found["points"]:
        name = f"{one['table']} {one['path']} {one['conns']}"
        why = refused(env, one)
        if why:
            check(not one["runs"] and one["reason"] == why, f"{name}: {one}")
            continue
        if hurried and not one["runs"] and not one["reason"]:
            continue
        check(len(one["runs"]) == 1 and not one["reason"],
              f"{name}: {one['reason']}")
        run = one["runs"][0]
        if one["table"] == "idle" and one["path"].startswith("kernel"):
            # Of the whole machine, on which others come and go.
            check(run["none_kib"] > 0 and run["server_kib"] > 0, f"{name}: {run}")
        elif one["table"] == "idle":
            check(run["server_kib"] > run["none_kib"], f"{name}: {run}")
        else:
            check(run["requests_per_s"] > 0, f"{name}: {run}")
    paths = {(p["table"], p["path"]) for p in found["points"]}
    check(len(paths) == 18, f"{sorted(paths)}")
    text = (folder / "report.md").read_text(encoding="utf-8")
    check("quick" in text and found["date"] in text, text)
    matrix(env, "render", "--folder", str(folder))
    check(text == (folder / "report.md").read_text(encoding="utf-8"),
          "rendered again it is another report")


def case_bad_input(env):
    out = matrix(env, "sometimes", status=2)
    check("sometimes" in out and out.count("\n") == 1, out)
    out = matrix(env, "quick", "--seconds", "0", status=2)
    check("'0': expected seconds" in out and out.count("\n") == 1, out)
    out = matrix(env, "render", "--folder", str(env.scratch / "none"),
                 status=1)
    check("run ./dev bench first" in out, out)


def cases(env):
    yield "medians with the lowest and highest", case_medians
    yield "ratios are taken within a turn", case_ratios_by_turn
    yield "a load's limit makes a lower bound", case_lower_bounds
    yield "what was not measured has a reason", case_reasons
    yield "a table measured again", case_again
    yield "markdown, one page and plots", lambda: case_written(env)
    yield "latencies below one us", lambda: case_latencies_below_one_us(env)
    yield "figures go into README and docs", lambda: case_published(env)
    yield "a report of nothing", case_nothing_measured
    yield "wrong options", lambda: case_bad_input(env)
    if not env.sanitized:
        yield "a short run of every path", lambda: case_run(env)


if __name__ == "__main__":
    main(cases)
