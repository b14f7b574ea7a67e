"""The tables and plots of ./dev bench loss, from what a run has found."""

import os
import shutil
import statistics

import plots
from loss_rows import (BURST_LOSS, BURST_S, PLOT_CELL, all_rows, judge,
                       percent, point_of, quick_rows)
from report import filled, table_lines

BEGIN, END = "<!-- loss: begin -->", "<!-- loss: end -->"
TITLES = {"goodput": "Goodput of one stream",
          "fairness": "Two streams: ours and the kernel's",
          "echo": "Echoes of 64 B",
          "mixed": "Between coronet and a kernel"}
COLOURS = {("coronet", "cubic"): "#0072b2", ("coronet", "bbr"): "#56b4e9",
           ("kernel", "cubic"): "#d55e00", ("kernel", "bbr"): "#e69f00"}
PLOTS = {"loss-start": "Start-up of a stream",
         "loss-burst": f"A burst of losses: {BURST_LOSS} % for "
                       f"{BURST_S * 1000:g} ms",
         "loss-competition-cubic": "A kernel's stream (CUBIC) joins coronet's",
         "loss-competition-bbr": "A kernel's stream (BBR) joins coronet's"}


def short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def span(values, unit=""):
    """Median (lowest - highest)."""
    middle = f"{short(statistics.median(values))}{unit}"
    if len(values) == 1:
        return middle
    return f"{middle} ({short(min(values))} - {short(max(values))})"


def brief(group, found):
    """A measurement in a few words."""
    if group == "echo":
        text = f"p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f} ms"
    elif group == "fairness":
        text = (f"{found['share']:.2f} of {found['mbit']:.1f} + "
                f"{found['other_mbit']:.1f} Mbit/s")
    else:
        text = f"{found['mbit']:.1f} Mbit/s"
    return text + "".join(f" ({why})" for why in found["limited"])


# ---- rows from JSON ----

def results_of(found):
    """({point: {turn: figures}}, {point: reason})."""
    results, reasons = {}, {}
    for one in found["points"]:
        point = point_of(one)
        results[point] = one["runs"]
        if one["reason"]:
            reasons[point] = one["reason"]
    return results, reasons


def judged(found):
    """Every row of which both points were to be measured."""
    results, reasons = results_of(found)
    rows = quick_rows() if found["quick"] else all_rows()
    return [(judge(row, results, reasons), results) for row in rows
            if all(point in results for point in row.points())]


KEYS = {"goodput": "mbit", "mixed": "mbit", "fairness": "share", "echo": "p99"}


def figure(results, point):
    """What a point said in the turns; "-" for none."""
    values = [run[KEYS[point.group]] for run in results[point].values()]
    return span(values) if values else "-"


def count(results):
    done = sum(one.result == "PASS" for one, _ in results)
    missed = sum(one.result == "MISS" for one, _ in results)
    full = sum(one.result == "FULL" for one, _ in results)
    none = sum(one.result == "not measured" for one, _ in results)
    return (f"{done} PASS, {missed} MISS, {full} FULL, {none} not measured")


# ---- for the terminal ----

def text(found):
    rows = judged(found)
    lines = []
    for group, title in TITLES.items():
        mine = [one for one in rows if one[0].row.ours.group == group]
        if not mine:
            continue
        lines += ["", f"{title} ({units(group)})",
                  f"{'row':<46}{'coronet':>22}{'kernel':>22}"
                  f"{'value':>22}  {'goal':<9}  n  result"]
        for one, results in mine:
            value = span(one.values) if one.values else "-"
            lines.append(
                f"{one.row.text():<46}"
                f"{figure(results, one.row.ours):>22}"
                f"{figure(results, one.row.theirs):>22}"
                f"{value:>22}  {one.row.goal():<9}  {len(one.values)}  "
                + ": ".join(filter(None, (one.result, one.note))))
    return "\n".join([*lines, *undrawn(found), "", count(rows)])


def units(group):
    return {"goodput": "Mbit/s; value: ours over the kernel's",
            "mixed": "Mbit/s; value: over the kernel's at both ends",
            "fairness": "share of the stream that is named, beside a kernel's; "
                        "value: ours",
            "echo": "p99, ms; value: ours over the kernel's"}[group]


# ---- for docs/loss.md ----

def cell_columns(row, with_control):
    cell = row.ours.cell
    columns = [cell.rate_text(), f"{cell.rtt} ms", percent(cell.loss),
               f"{cell.buffer:g}"]
    return columns + ([row.ours.control] if with_control else [])


def result_text(one, notes):
    """PASS, or with a number of a note below the table."""
    if not one.note:
        return one.result
    if one.note not in notes:
        notes.append(one.note)
    return f"{one.result} [{notes.index(one.note) + 1}]".strip()


def markdown_table(rows, group):
    header = ["rate", "RTT", "loss", "buffer", "control", "coronet", "kernel",
              {"fairness": "ours"}.get(group, "ratio"), "turns", "result"]
    notes, lines = [], []
    for one, results in rows:
        extra = {True: " + stream", False: ""}[one.row.ours.background]
        stack = one.row.ours.stack
        columns = cell_columns(one.row, True)
        columns[4] = {"coronet": columns[4]}.get(stack, stack) + extra
        lines.append([*columns, figure(results, one.row.ours),
                      figure(results, one.row.theirs),
                      span(one.values) if one.values else "-",
                      str(len(one.values)), result_text(one, notes)])
    return [*table_lines(header, lines), "",
            *[f"[{i}] {note}." for i, note in enumerate(notes, 1)]]


EXPLAINED = {
    "goodput": "Mbit/s after half a second, or ten round trips. "
               "Goals: >= 0.95 of the kernel's CUBIC, >= 0.9 of its BBR.",
    "fairness": "Both begin at the same time; a stream's share of what both "
                "carried in the second half. Column coronet: ours beside a "
                "kernel's; column kernel: a kernel's beside another kernel's, "
                "which is what the kernel makes of it by itself. Goal: 0.4 to "
                "0.6.",
    "echo": "p99 in ms of 2,000 echoes a second over 512 connections, open "
            "loop; \"+ stream\": a kernel's CUBIC stream fills the same "
            "bottleneck. Goal: <= the kernel's.",
    "mixed": "Mbit/s of a stream to or from a kernel's, beside the kernel at "
             "both ends."}


def markdown(found, images=""):
    rows = judged(found)
    stamp = found["machine"]
    took = found["took_s"]
    out = [f"A run of `./dev bench loss` on {found['date']}, which took "
           f"{took // 60} min, on {stamp.get('processor', 'a machine')}, "
           f"{stamp.get('cores', '?')} cores, kernel "
           f"{stamp.get('kernel', '?')}, coronet {stamp.get('coronet', '?')}; "
           f"{found['turns']} turns of {found['seconds']:g} s or more. "
           f"{count(rows)}.", ""]
    for group, title in TITLES.items():
        mine = [one for one in rows if one[0].row.ours.group == group]
        if mine:
            out += [f"### {title}", "", EXPLAINED[group], "",
                    *markdown_table(mine, group), ""]
    drawn_here = drawn(found)
    if drawn_here:
        out += ["### Throughput over time", "",
                f"One run each, {PLOT_CELL.name()}: what an application reads, so "
                "that a hole which is filled makes a peak.", ""]
    for name in drawn_here:
        out += [f"![{PLOTS[name]}]({images}{name}.svg)", ""]
    for line in undrawn(found):
        out += [line, ""]
    return "\n".join(out).rstrip() + "\n"


def undrawn(found):
    """A line for each plot that some of its runs are missing of."""
    for name, title in PLOTS.items():
        reasons = [trace["reason"] for trace in found["traces"]
                   if trace["plot"] == name and not trace["flows"]]
        if reasons:
            yield (f"{title}: {len(reasons)} curve{'s' * (len(reasons) > 1)} "
                   f"not drawn, {'; '.join(dict.fromkeys(reasons))}.")


def publish(found, folder, top):
    """docs/loss.md between its marks, and docs/plots; the paths."""
    made = []
    docs = os.path.join(top, "docs")
    for name in drawn(found):
        path = os.path.join(docs, "plots", name + ".svg")
        shutil.copyfile(os.path.join(folder, name + ".svg"), path)
        made.append(path)
    path = os.path.join(docs, "loss.md")
    with open(path, encoding="utf-8") as file:
        old = file.read()
    begin, end = old.index(BEGIN), old.index(END)
    with open(path, "w", encoding="utf-8") as file:
        file.write(old[:begin] + BEGIN + "\n"
                   + filled(markdown(found, "plots/")) + old[end:])
    return [*made, path]


# ---- plots ----

def traces_of(found, name):
    return [trace for trace in found["traces"]
            if trace["plot"] == name and trace["flows"]]


def plot_of(found, name):
    traces = traces_of(found, name)
    plot = plots.Plot('set xlabel "seconds"', 'set ylabel "Mbit/s"',
                      "set yrange [0:*]",
                      "set key outside right top vertical",
                      f'set title "{PLOTS[name]}; {PLOT_CELL.name()}"')
    if traces:
        plot.settings.append(f"set xrange [0:{traces[0]['seconds']:g}]")
    for trace in traces:
        if trace["burst_at"] is not None:
            plot.settings.append(
                f"set arrow from {trace['burst_at']:g}, graph 0 to "
                f"{trace['burst_at']:g}, graph 1 nohead dt 2 lc '#777777'")
        for flow in trace["flows"]:
            colour = COLOURS[(flow["stack"], flow["control"])]
            plot.add([f"{t:.3f} {rate:.3f}" for t, rate in flow["curve"]],
                     f'with lines lc "{colour}" lw 2 title '
                     f'"{flow["stack"]}, {flow["control"].upper()}"')
    return plot


def drawn(found):
    return [name for name in PLOTS if plot_of(found, name).curves]


def draw(found, folder):
    """The plots as SVG; the paths."""
    return plots.draw_all({name: plot_of(found, name)
                           for name in drawn(found)}, folder,
                          plots.SIZES[:1])
