#!/usr/bin/env python3
"""The benchmark's report from known figures, and from a short run.

Usage: test_report.py BUILD_DIR (TAP)
"""

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


def echo_run(rate, limited=False, cpu=None, p99=20.0, p50=10.0):
    return {"requests_per_s": rate, "bytes_per_s": rate * 64, "limited": limited,
            "server_cpu": cpu, "latency_us": {"p50": p50, "p90": 12.0, "p99": p99, "p999": 900.0,
                                              "p9999": 5000.0, "max": 6000.0}}


def point(table, path, conns, *runs, reason=None):
    return {"table": table, "path": path, "conns": conns, "runs": list(runs), "reason": reason}


def known_results():
    """A report with every kind of figure in it."""
    idle = {"none_kib": 1024, "server_kib": 1024 + 10000, "after_kib": 12000,
            "opened_per_s": 50000.0}
    full = [echo_run(rate, True, 0.99, 400.0) for rate in (1e5, 2e5, 1e5)]
    return {
        "date": "2026-01-02 03:04 UTC", "quick": False, "seconds": 2.0, "repeat": 3,
        "hugepages": True, "cores": [0, 1], "took_s": 61, "open_rate": 50000,
        "machine": {"processor": "a <fast> one", "cores": "2", "kernel": "6.1", "DPDK": "22.11"},
        "points": [
            point("macswap", "macswap", 0, *[echo_run(8e6)] * 3),
            point("echo", "memif", 64, echo_run(4e6), echo_run(2e6), echo_run(3e6)),
            point("echo", "loopback", 64, *full),
            point("echo", "uring", 64, *[echo_run(4e5, True, 0.99)] * 3),
            point("echo", "tap", 64, echo_run(4e4, True)),
            point("echo", "kerneltap", 64, echo_run(5e4, True, 0.5)),
            point("echo", "memif", 1000000, reason="too little memory"),
            point("echo", "tap", 1000000, reason="too little memory"),
            point("open", "memif", 64, echo_run(5e4)),
            point("cps", "memif", 64, echo_run(9e5)),
            point("bulk", "memif", 1, {**echo_run(1), "bytes_per_s": 2.5e9}),
            point("idle", "memif", 10000, idle)],
        "coro": {"isa": "avx2", "rows": [
            {"name": "switch", "unit": "ns", "goal": 0.64, "reached": 0.5, "verdict": "PASS",
             "values": {"coronet": 2.5, "Boost": 5.0}}]},
        "proxy": [{"path": "tap", "proxy": proxy, "figures": {"requests/s, 64": rates}}
                  for proxy, rates in (("coronet-proxy", [30000, 20000]),
                                       ("haproxy", [10000, 10000]))],
        "coro_reason": None, "proxy_reason": None}


def row(text, start):
    """Returns the cells of the table line with this beginning."""
    lines = [line for line in text.splitlines() if line.startswith("| " + start)]
    check(lines, f"no line '{start}' in\n{text}")
    return [cell.strip() for cell in lines[0].strip("|").split("|")]


def expect(found, expected):
    check(found == expected, f"{found!r}, expected {expected!r}")


def case_figures():
    """Medians; ratios within a turn: 4/1, 2/2 and 3/1 have another median than 3 over 1."""
    text = report.markdown(known_results())
    for part in ("which took 1 min 1 s", "measured 1 to 3 times for 2 s", "8.00 M"):
        check(part in text, f"no '{part}' in\n{text}")
    for start, cells in {"64 ": {1: "3.00 M (2.00 M - 4.00 M)"}, "10,000": {4: "1,024 B"},
                         "1 ": {1: "20"}, "switch": {1: "2.5 ns", 2: "Boost 5", 3: "0.5"},
                         "echo, 64 connections: coronet over memif / epoll on":
                         {1: "30 x (10 x - 40 x)"},
                         "echo, 64 connections: coronet over memif / io_uring on":
                         {1: "7.5 x (5 x - 10 x)"},
                         "haproxy, tap": {1: "2.50 x (2.00 x - 3.00 x)"}}.items():
        expect({i: row(text, start)[i] for i in cells}, cells)
    expect([tables.format_short(value)
           for value in (1234567, 12345, 999.6, 999.4, 0.0542, 0.00012, 0)],
          ["1.23 M", "12 k", "1,000", "999", "0.0542", "0.0001", "0"])
    expect([tables.as_time(us) for us in (0.5, 999.7, 1500)], ["0.5 us", "1 ms", "1.5 ms"])


def case_lower_bounds():
    """A figure limited by the load is marked, but not if the server was also at its limit."""
    found = known_results()
    expect([cell.startswith("≥ ") for cell in row(report.markdown(found), "64 ")[2:6]],
          [False, False, True, True])
    for one in found["points"]:
        for run in one["runs"]:
            run["limited"] = False
    check("≥" not in report.markdown(found), "≥ without a reason")


def case_reasons():
    found = known_results()
    found["points"] += [point("cps", "tap", 64), point("cps", "uring", 64, reason="it is refused"),
                        point("cps", "loopback", 64, reason="failed: it fell")]
    text = report.markdown(found)
    for line in ("echo memif 1,000,000, echo tap 1,000,000: too little memory",
                 "cps tap 64: there was no time left", "cps loopback 64: failed: it fell",
                 "cps uring 64: it is refused"):
        check(f"- {line}\n" in text, text)
    expect(row(text, "at a time")[1:], [points.PATHS[path][0]
                                       for path in ("memif", "loopback", "uring", "tap")])
    expect(row(text[text.index("| at a time"):], "64 ")[1:], ["900 k", "failed", "-", "-"])


def case_again():
    """A table measured again leaves the others, and is noted."""
    new = {**known_results(), "date": "2027-05-06 07:08 UTC", "coro": None, "proxy": [],
           "points": [point("cps", "memif", 64, echo_run(7e5))]}
    both = merged(known_results(), new)
    text = report.markdown(both)
    expect(row(text, "64 ")[1], "3.00 M (2.00 M - 4.00 M)")
    check(row(text, "at a time") and "700 k" in text, text)
    check("Measured again on 2027-05-06 07:08 UTC: cps." in text, text)
    expect((both["coro"], both["proxy"]), (known_results()["coro"], known_results()["proxy"]))
    both = merged(known_results(), {**new, "points": [], "coro": {"isa": "new"}})
    expect((both["coro"], both["again"]), ({"isa": "new"}, {"coro": new["date"]}))


class Page(html.parser.HTMLParser):
    """Finds unclosed elements, and URLs that the page would fetch."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.ids, self.fetched = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.fetched += [value for name, value in attrs
                         if name in ("src", "href", "xlink:href") and value[:1] != "#"]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag != "meta" and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def case_written(env):
    """One page with all in it, and each plot twice."""
    folder = env.scratch_for({})
    made = [os.path.basename(path) for path in report.write_files(known_results(), str(folder))]
    for name in ("echo", "latency", "memory", "coro", "proxy"):
        for suffix, first in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
            check(name + suffix in made, f"{name}{suffix} was not made")
            check((folder / (name + suffix)).read_bytes().startswith(first), name + suffix)
    text, page = (folder / "report.html").read_text(encoding="utf-8"), Page()
    page.feed(text)
    expect((page.open, page.wrong, page.fetched), ([], [], []))
    expect(len(page.ids), len(set(page.ids)))
    expect(text.count("<svg"), 5)
    check("a &lt;fast&gt; one" in text, "not escaped")
    check("<code>./dev bench</code>" in text, "no code")


def case_latencies_below_one_us(env):
    """The logarithmic axis names its decades, also those below one."""
    found, folder = known_results(), env.scratch_for({})
    found["points"] = [point("echo", "memif", 64, echo_run(4e6, p50=0.6))]
    plots.draw_plots(plots.of_report(found), str(folder))
    text = (folder / "latency.svg").read_text(encoding="utf-8")
    check(">0.1<" in text and ">0<" not in text, "no 0.1 on the axis")


def case_published(env):
    top, folder = env.scratch / "top", env.scratch_for({})
    (top / "docs").mkdir(parents=True)
    begin, end = tables.name_marks("bench")
    names = ("README.md", "docs/benchmarks.md")
    for name in names:
        (top / name).write_text(f"before\n{begin}OUTDATED\n{end}\nafter\n", encoding="utf-8")
    report.write_files(known_results(), str(folder))
    for _ in range(2):
        report.publish(known_results(), str(folder), str(top))
    for name in names:
        text = (top / name).read_text(encoding="utf-8")
        check(text.startswith("before\n" + begin) and text.endswith(end + "\nafter\n"), text)
        check("OUTDATED" not in text and "2026-01-02" in text, text)
        expect([line for line in text.split("\n")
               if len(line) > 100 and not line.startswith(("|", "<", "#", "!"))], [])
    check("(plots/echo.svg)" in text and (top / "docs/plots/echo.svg").exists(), text)


def case_readme_has_existing_rows_only():
    """README has the selected rows of the echo table, and no others."""
    text = report.readme(known_results())
    check("| 64 " in text, text)
    check("| 8 " not in text, text)


def case_nothing_measured():
    """A run without any point still gives a report, without plots."""
    found = {**known_results(), "coro": None, "proxy": [], "open_rate": None}
    for one in found["points"]:
        one["runs"], one["reason"] = [], "failed: all of it"
    expect(plots.of_report(found), {})
    check("failed: all of it" in report.markdown(found), "no reason")
    report.summary(found)


def matrix(env, *words, status=0):
    """Runs the benchmark; returns its output. status: the expected one; None: any."""
    done = subprocess.run(
        [sys.executable, os.path.join(HERE, "matrix.py"), *words, "--build", str(env.build)],
        check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=240)
    check(status in (None, done.returncode), f"exit {done.returncode}: {done.stdout}")
    return done.stdout


def short_run(env, folder, refused):
    """Returns the report of a run that is long enough to measure anything here, and whether it
    omitted points to end in time."""
    only = [word for table in ("echo", "cps", "bulk", "idle") for word in ("--only", table)]
    for seconds, status in (("0.1", None), ("0.3", None), ("1", 0)):
        said = matrix(env, "quick", "--seconds", seconds, "--repeat", "1", *only, "--folder",
                      str(folder), status=status)
        found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        if all(one["runs"] and (one["table"] == "idle" or one["runs"][0]["requests_per_s"] > 0)
               for one in found["points"] if not refused(one)):
            break
    return found, "the rest is left out" in said


def case_run(env):
    """Runs every path; the report's figures were measured."""
    folder, no_uring = env.scratch / "run", uring.no_uring(str(env.build))
    found, hurried = short_run(env, folder, lambda one: no_uring and "uring" in one["path"])
    for one in found["points"]:
        if no_uring and "uring" in one["path"]:
            expect((one["runs"], one["reason"]), ([], no_uring))
            continue
        if hurried and not one["runs"] and not one["reason"]:
            continue
        expect((len(one["runs"]), one["reason"]), (1, None))
        run = one["runs"][0]
        if one["table"] != "idle":
            check(run["requests_per_s"] > 0, f"{one}")
        elif one["path"] == "memif":
            check(run["server_kib"] > run["none_kib"], f"{one}")
        else:  # of the whole machine, which also runs other programs
            check(run["none_kib"] > 0 and run["server_kib"] > 0, f"{one}")
    expect(len({(p["table"], p["path"]) for p in found["points"]}), 18)
    text = (folder / "report.md").read_text(encoding="utf-8")
    check("quick" in text and found["date"] in text, text)
    matrix(env, "render", "--folder", str(folder))
    check(text == (folder / "report.md").read_text(encoding="utf-8"),
          "rendered again it is another report")


def case_bad_input(env):
    for words, said in ((["sometimes"], "sometimes"),
                        (["quick", "--seconds", "0"], "'0': expected seconds"),
                        (["again"], "say which tables")):
        out = matrix(env, *words, status=2)
        check(said in out and out.count("\n") == 1, out)
    out = matrix(env, "render", "--folder", str(env.scratch / "none"), status=1)
    check("run ./dev bench first" in out, out)


def cases(env):
    yield "medians, and ratios within a turn", case_figures
    yield "a load's limit makes a lower bound", case_lower_bounds
    yield "what was not measured has a reason", case_reasons
    yield "a table measured again", case_again
    yield "markdown, one page and plots", lambda: case_written(env)
    yield "latencies below one us", lambda: case_latencies_below_one_us(env)
    yield "figures go into README and docs", lambda: case_published(env)
    yield "README has existing rows only", case_readme_has_existing_rows_only
    yield "a report of nothing", case_nothing_measured
    yield "wrong options", lambda: case_bad_input(env)
    if not env.sanitized:
        yield "a short run of every path", lambda: case_run(env)


if __name__ == "__main__":
    main(cases)
