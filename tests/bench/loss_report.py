"""The tables and plots of ./dev bench loss, from a run's figures."""

import collections
import os

import plots
import tables
from loss_rows import (BURST_LOSS, BURST_S, KEYS, PLOT_CELL, all_rows, judge_row, point_of,
                       quick_rows)
from tables import spread

RESULTS = ("PASS", "MISS", "FULL", "not measured")
COLOURS = {("coronet", "cubic"): "#0072b2", ("coronet", "bbr"): "#56b4e9",
           ("kernel", "cubic"): "#d55e00", ("kernel", "bbr"): "#e69f00"}
PLOTS = {"loss-start": "Start-up of a stream",
         "loss-burst": f"A burst of losses: {BURST_LOSS} % for {BURST_S * 1000:g} ms",
         "loss-competition-cubic": "A kernel's stream (CUBIC) joins coronet's",
         "loss-competition-bbr": "A kernel's stream (BBR) joins coronet's"}
# A group's title, and the columns of its table.
GROUPS = {
    "goodput": (
        "Goodput of one stream",
        "Mbit/s after half a second, or ten round trips. Goals: >= 0.95 of the kernel's CUBIC, "
        ">= 0.9 of its BBR."),
    "fairness": (
        "Two streams: ours and the kernel's",
        "Both begin at the same time; a stream's share of what both carried in the second half. "
        "Column coronet: ours beside a kernel's; column kernel: a kernel's beside another "
        "kernel's, which is what the kernel makes of it by itself. Goal: 0.4 to 0.6."),
    "echo": (
        "Echoes of 64 B",
        "p99 in ms of 2,000 echoes a second over 512 connections, open loop; \"+ stream\": a "
        "kernel's CUBIC stream fills the same bottleneck. Goal: <= the kernel's."),
    "mixed": (
        "Between coronet and a kernel",
        "Mbit/s of a stream to or from a kernel's, beside the kernel at both ends.")}


def describe_figures(group, found):
    """Returns a measurement in a few words."""
    if group == "echo":
        text = f"p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f} ms"
    elif group == "fairness":
        text = (f"{found['share']:.2f} of {found['mbit']:.1f} + {found['other_mbit']:.1f} Mbit/s")
    else:
        text = f"{found['mbit']:.1f} Mbit/s"
    return text + "".join(f" ({why})" for why in found["limited"])


def judged(found):
    """Returns, by group, every row whose points were both to be measured, and the count of each
    result."""
    results = {point_of(one): one["runs"] for one in found["points"]}
    reasons = {point_of(one): one["reason"] for one in found["points"] if one["reason"]}
    rows = [judge_row(row, results, reasons)
            for row in (quick_rows() if found["quick"] else all_rows())
            if all(point in results for point in row.points())]
    count = collections.Counter(one.result for one in rows)
    groups = {group: [one for one in rows if one.row.ours.group == group] for group in GROUPS}
    return ({group: mine for group, mine in groups.items() if mine},
            ", ".join(f"{count[result]} {result}" for result in RESULTS))


def cells_of(one):
    """Returns the cells of both points and of the row; "-" for nothing."""
    key = KEYS[one.row.ours.group]
    lists = [[run[key] for run in runs.values()] for runs in one.runs]
    return [spread(values) if values else "-" for values in (*lists, one.values)]


def table(group, rows):
    """A table and the notes below it, each once."""
    notes, lines = list(dict.fromkeys(one.note for one in rows if one.note)), []
    for one in rows:
        ours = one.row.ours
        control = ours.control if ours.stack == "coronet" else ours.stack
        note = f" [{notes.index(one.note) + 1}]" if one.note else ""
        lines.append([*ours.cell.texts(), control + " + stream" * ours.background, *cells_of(one),
                      str(len(one.values)), (one.result + note).strip()])
    header = ["rate", "RTT", "loss", "buffer", "control", "coronet", "kernel",
              "ours" if group == "fairness" else "ratio", "turns", "result"]
    yield "table", header, lines
    if notes:
        yield "text", "\n".join(f"[{i}] {note}." for i, note in enumerate(notes, 1))


def groups_of(groups):
    return [block for group, rows in groups.items() for title, text in [GROUPS[group]]
            for block in (("head", title), ("text", text), *table(group, rows))]


def summary(found):
    """For the terminal."""
    groups, count = judged(found)
    return tables.markdown([*groups_of(groups), *[("text", line) for line in undrawn(found)],
                            ("text", count)], level=3).rstrip()


def markdown(found, images=""):
    groups, count = judged(found)
    stamp = collections.defaultdict(lambda: "?", found["machine"])
    blocks = [("text", f"A run of `./dev bench loss` on {found['date']}, which took "
                       f"{found['took_s'] // 60} min, on {stamp['processor']}, {stamp['cores']} "
                       f"cores, kernel {stamp['kernel']}, coronet {stamp['coronet']}; "
                       f"{found['turns']} turns of {found['seconds']:g} s or more. {count}."),
              *groups_of(groups)]
    drawn = drawings(found)
    if drawn:
        blocks += [("head", "Throughput over time"),
                   ("text", f"One run each, {PLOT_CELL.name()}: what an application reads, so "
                            "that a hole which is filled makes a peak.")]
    blocks += [("plot", name, PLOTS[name]) for name in drawn]
    blocks += [("text", line) for line in undrawn(found)]
    return tables.markdown(blocks, images, level=3)


def undrawn(found):
    """Yields a line for each plot with missing runs."""
    for name, title in PLOTS.items():
        reasons = [trace["reason"] for trace in found["traces"]
                   if trace["plot"] == name and not trace["flows"]]
        if reasons:
            yield (f"{title}: {len(reasons)} curve{'s' * (len(reasons) > 1)} not drawn, "
                   f"{'; '.join(dict.fromkeys(reasons))}.")


def publish(found, folder, top):
    """Writes docs/loss.md between its marks, and docs/plots; returns the paths."""
    return tables.publish("loss", {"docs/loss.md": markdown(found, "plots/")},
                          [os.path.join(folder, name + ".svg") for name in drawings(found)], top)


# ---- plots ----

def drawings(found):
    """Returns gnuplot's texts by the names of plots with a curve."""
    made = {}
    for name, title in PLOTS.items():
        traces = [one for one in found["traces"] if one["plot"] == name and one["flows"]]
        settings = ['set xlabel "seconds"', 'set ylabel "Mbit/s"', "set yrange [0:*]",
                    plots.OUTSIDE, f'set title "{title}; {PLOT_CELL.name()}"',
                    *[f"set xrange [0:{one['seconds']:g}]" for one in traces[:1]],
                    *[f"set arrow from {one['burst_at']:g}, graph 0 to {one['burst_at']:g}, "
                      "graph 1 nohead dt 2 lc '#777777'"
                      for one in traces if one["burst_at"] is not None]]
        curves = [([f"{t:.3f} {rate:.3f}" for t, rate in flow["curve"]],
                   f'with lines lc "{COLOURS[flow["stack"], flow["control"]]}" lw 2 title '
                   f'"{flow["stack"]}, {flow["control"].upper()}"')
                  for one in traces for flow in one["flows"]]
        made[name] = plots.format_plot(settings, curves)
    return {name: drawing for name, drawing in made.items() if drawing}


def write_files(found, folder):
    """Writes the plots as SVG; returns the paths."""
    return plots.draw_plots(drawings(found), folder, ["svg"])
