"""report.json as Markdown, as one HTML page, and as plots.

The report is made of blocks, ("head", text), ("text", text), ("list", texts),
("table", header, rows) and ("plot", name, caption), once; markdown() and
html() write the same blocks. Cells are strings; text may hold `code`.
"""

import html as escape
import os
import re
import shutil
import statistics
import textwrap

import plots

PATHS = {
    "memif": "coronet over memif",
    "tap": "coronet over TAP",
    "loopback": "epoll on loopback",
    "kerneltap": "epoll over TAP",
    "uring": "io_uring on loopback",
    "uringtap": "io_uring over TAP",
    "macswap": "testpmd macswap over memif",
}
ORDER = ("memif", "loopback", "uring", "tap", "kerneltap", "uringtap")
PERCENTILES = (("p50", "p50"), ("p90", "p90"), ("p99", "p99"),
               ("p99.9", "p999"), ("p99.99", "p9999"))
SATURATED = 0.97  # of its core: then it was the server that was the limit
AT_LEAST = "≥ "

MEMIF = (
    "memif is memory that two processes share. It has no NIC, no PCIe, no "
    "interrupts, no wire and no loss, and its frames are copied by a core "
    "instead of a DMA engine.",
    "So it can show what the software costs a request: TCP, the coroutine, "
    "the copies; how that grows with the connections; and what of it is "
    "coronet's, because `dpdk-testpmd` swapping MAC addresses over the same "
    "memif is the ceiling for anything that answers every frame.",
    "It cannot show a NIC's rate or latency: descriptor rings, doorbells, "
    "PCIe round trips, RSS, offloads and the wire's serialisation are not "
    "there. A NIC takes over checksums and copies, which would be less work "
    "than here, and adds a microsecond or more each way.",
    "Loopback is the kernel's TCP without a driver, twice on one machine: "
    "what its receive path does for the server is partly done on the load's "
    "core, in the load's `send()`. That favours the kernel.",
    "The same TAP carries the kernel's server once (the load polls DPDK's "
    "side) and coronet once (the load is the kernel's): a `read()` or "
    "`write()` a frame for whoever is on DPDK's side, so that both are "
    "slow, and what is compared is the whole path. What the kernel does for "
    "a frame that arrives is done in the load's `write()`, on the load's "
    "core.",
)

PROXY_PATHS = (
    "taps: 64 B echoes, a TAP before the proxy and one behind it, and what is "
    "at their other ends is on the stack that the proxy is not on: "
    "coronet-proxy between epoll-load and epoll-echo, the kernel's proxies "
    "between coronet-load and coronet-echo. The same path for all, with the "
    "roles changed over.",
    "tap: wrk before and nginx behind, both on the kernel's stack, one small "
    "file by keep-alive connections, and four downloads of 32 MiB at once. "
    "coronet-proxy polls the TAP's other end; for the kernel's proxies "
    "`tests/wire` carries frames on to a second TAP, and takes time of wrk's "
    "and nginx's cores, which is to their disadvantage.",
    "veth: the same for the kernel's proxies without `tests/wire`, the "
    "shortest way there is; coronet-proxy's figure beside it is that of tap, "
    "which is to its disadvantage.",
    "memif: coronet-load, coronet-proxy and coronet-echo; loopback: "
    "epoll-load, epoll-proxy and epoll-echo.",
)


# ---- figures ----

def short(value):
    """As 4.70 M, 153 k, 0.0542."""
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e4:
        return f"{value / 1e3:.0f} k"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def as_time(us):
    return f"{us:,.3g} us" if us < 1000 else f"{us / 1000:.3g} ms"


def spread(values, form=short):
    """The median, and the lowest and highest if there are several."""
    middle = form(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({form(min(values))} - {form(max(values))})"


def rate(run):
    return run["requests_per_s"]


def gbit(run):
    return run["bytes_per_s"] * 8e-9


def limited(path, run):
    """Whether the load was the limit and not the server."""
    if not run.get("limited"):
        return False
    # A poller's core is always busy: only the kernel's server tells.
    return not (path in ("loopback", "uring", "kerneltap", "uringtap")
                and (run.get("server_cpu") or 0) >= SATURATED)


class Figures:
    """The points of a report, by table, path and connections."""

    def __init__(self, found):
        self.found = found
        self.points = {(p["table"], p["path"], p["conns"]): p
                       for p in found["points"]}

    def runs(self, table, path, conns):
        point = self.points.get((table, path, conns))
        return point["runs"] if point else []

    def cell(self, table, path, conns, value=rate, form=short):
        """What a table shows of a point."""
        point = self.points.get((table, path, conns))
        if point is None:
            return ""
        if not point["runs"]:
            return "failed" if (point["reason"] or "").startswith(
                "failed") else "-"
        bound = any(limited(path, run) for run in point["runs"])
        return (AT_LEAST if bound else "") + spread(
            [value(run) for run in point["runs"]], form)

    def ratios(self, a, b, value=rate):
        """Of two points, turn by turn: both then saw the same machine."""
        return [value(x) / value(y)
                for x, y in zip(self.runs(*a), self.runs(*b)) if value(y)]

    def of(self, table, key):
        """The paths or connection counts that a table has, in order."""
        return list(dict.fromkeys(p[key] for p in self.found["points"]
                                  if p["table"] == table))

    def paths(self, table):
        there = self.of(table, "path")
        return [path for path in ORDER if path in there]


def brief(table, run):
    """One run in a few words, while it goes on."""
    if table == "bulk":
        return f"{gbit(run):.3g} Gbit/s each way"
    if table == "idle":
        return f"{run['server_kib'] / 1024:,.0f} MiB"
    latency = run["latency_us"]
    text = f"{short(rate(run)):>8}/s"
    return text + (f"  p99 {as_time(latency['p99'])}"
                   if latency.get("p99") else "")


# ---- tables ----

def echo_table(figures):
    paths = figures.paths("echo")
    rows = [[f"{conns:,}"] + [figures.cell("echo", path, conns)
                              for path in paths]
            for conns in sorted(figures.of("echo", "conns"))]
    return ("table", ["connections"] + [PATHS[p] for p in paths], rows)


def latency_rows(figures, table, text):
    rows = []
    for path in figures.paths(table):
        if not figures.runs(table, path, 64):
            continue
        rows.append([PATHS[path], text] + [
            figures.cell(table, path, 64,
                         lambda run, key=key: run["latency_us"][key],
                         as_time).replace(AT_LEAST, "")
            for _, key in PERCENTILES])
    return rows


def latency_table(figures):
    open_rate = figures.found.get("open_rate")
    rows = latency_rows(figures, "echo", "closed loop")
    if open_rate:
        rows += latency_rows(figures, "open", f"open, {short(open_rate)}/s")
    rows += latency_rows(figures, "half", "open, half of its rate")
    return ("table", ["path", "load"] + [name for name, _ in PERCENTILES],
            rows)


def simple_table(figures, table, value, form, unit):
    """Paths across, connections down."""
    paths = figures.paths(table)
    rows = [[f"{conns:,}"] + [figures.cell(table, path, conns, value, form)
                              for path in paths]
            for conns in figures.of(table, "conns")]
    return ("table", [unit] + [PATHS[p] for p in paths], rows)


def a_connection(run, conns):
    """Bytes of the server's that a connection takes."""
    return (run["server_kib"] - run["none_kib"]) * 1024 / conns


def idle_table(figures):
    rows = []
    for conns in figures.of("idle", "conns"):
        for path, who in (("memif", "coronet-echo"),
                          ("kerneltap", "epoll-echo and the kernel")):
            for run in figures.runs("idle", path, conns)[:1]:
                taken = run["server_kib"] - run["none_kib"]
                # The kernel's slabs are everybody's: only theirs are told.
                rows.append([
                    f"{conns:,}", who,
                    f"{run['server_kib'] / 1024:,.0f} MiB"
                    if path == "memif" else "",
                    f"{taken / 1024:,.0f} MiB",
                    f"{a_connection(run, conns):,.0f} B",
                    short(run["opened_per_s"]) + "/s"])
    return ("table", ["connections", "who holds them", "the server in all",
                      "the connections", "a connection", "opened"], rows)


def coro_table(coro):
    rows = []
    for row in coro["rows"]:
        ours = row["values"]["coronet"]
        others = ", ".join(f"{name} {value:,.4g}"
                           for name, value in row["values"].items()
                           if name != "coronet")
        goal = f"{row['goal']:g}" if row["goal"] else ""
        rows.append([row["name"], f"{ours:.3g} {row['unit']}", others,
                     f"{row['reached']:.3g}" if row["reached"] else "",
                     goal, row["verdict"].replace("-", "")])
    return ("table", ["row", "coronet", "others", "ratio", "goal", ""], rows)


PROXY_COLUMNS = ("requests/s, 1", "requests/s, 64", "MiB/s")


def proxy_rows(found):
    columns = [c for c in PROXY_COLUMNS
               if any(c in p["figures"] for p in found["proxy"])]
    rows = []
    for point in found["proxy"]:
        cells = [spread(point["figures"][c]) if c in point["figures"] else ""
                 for c in columns]
        rows.append([point["path"], point["proxy"]] + cells)
    return columns, rows


def proxy_table(found):
    columns, rows = proxy_rows(found)
    return ("table", ["path", "proxy"] + columns, rows)


def proxy_ratios(found):
    """coronet-proxy over each of the others, on the same TAP path."""
    by = {(p["path"], p["proxy"]): p["figures"] for p in found["proxy"]}
    columns, _ = proxy_rows(found)
    rows = []
    for (path, proxy), theirs in by.items():
        ours = by.get(("taps" if path == "taps" else "tap", "coronet-proxy"))
        if path not in ("taps", "tap", "veth") or not ours \
                or proxy == "coronet-proxy":
            continue
        cells = []
        for column in columns:
            values = [a / b for a, b in zip(ours.get(column, []),
                                            theirs.get(column, []))]
            cells.append(spread(values, lambda v: f"{v:.2f} x")
                         if values else "")
        rows.append([f"{proxy}, {path}"] + cells)
    if ("memif", "coronet-proxy") in by and ("loopback", "epoll-proxy") in by:
        ours, theirs = by["memif", "coronet-proxy"], by["loopback",
                                                        "epoll-proxy"]
        rows.append(["epoll-proxy on loopback, itself over memif"] + [
            spread([a / b for a, b in zip(ours[c], theirs[c])],
                   lambda v: f"{v:.2f} x") if c in ours and c in theirs
            else "" for c in columns])
    return ("table", ["coronet-proxy over"] + columns, rows)


def headline_rows(figures):
    """What a reader wants first: (what, ratio)."""
    pairs = [
        ("echo, 64 connections: coronet over memif / epoll on loopback",
         ("echo", "memif", 64), ("echo", "loopback", 64), rate),
        ("the same, p99", ("echo", "memif", 64), ("echo", "loopback", 64),
         lambda run: run["latency_us"]["p99"]),
        ("echo, 64 connections: coronet over memif / io_uring on loopback",
         ("echo", "memif", 64), ("echo", "uring", 64), rate),
        ("echo, 10,000 connections: coronet over memif / epoll on loopback",
         ("echo", "memif", 10000), ("echo", "loopback", 10000), rate),
        ("echo, 64 connections: coronet over TAP / epoll over TAP",
         ("echo", "tap", 64), ("echo", "kerneltap", 64), rate),
        ("echo, 64 connections: coronet / testpmd macswap, both over memif",
         ("echo", "memif", 64), ("macswap", "macswap", 0), rate),
        ("echo: 10,000 connections / 64, coronet over memif",
         ("echo", "memif", 10000), ("echo", "memif", 64), rate),
        ("echo: 1,000,000 connections / 64, coronet over memif",
         ("echo", "memif", 1000000), ("echo", "memif", 64), rate),
        ("without hugepages / with them, coronet over memif",
         ("nohuge", "memif", 64), ("echo", "memif", 64), rate),
        ("connect + echo + close: coronet over memif / epoll on loopback",
         ("cps", "memif", 64), ("cps", "loopback", 64), rate),
        ("connect + echo + close: coronet over memif / io_uring on loopback",
         ("cps", "memif", 64), ("cps", "uring", 64), rate),
        ("one bulk stream: coronet over memif / epoll on loopback",
         ("bulk", "memif", 1), ("bulk", "loopback", 1), gbit),
    ]
    rows = []
    for text, a, b, value in pairs:
        ratios = figures.ratios(a, b, value)
        if ratios:
            rows.append([text, spread(ratios, lambda v: f"{v:.3g} x")])
    return rows


def unmeasured(figures):
    """Reasons, each once, with what they are the reason for."""
    by = {}
    for point in figures.found["points"]:
        if point["reason"]:
            by.setdefault(point["reason"], []).append(
                f"{point['table']} {point['path']} {point['conns']:,}")
        elif not point["runs"]:
            by.setdefault("there was no time left", []).append(
                f"{point['table']} {point['path']} {point['conns']:,}")
    for what in ("proxy", "coro"):
        if figures.found.get(what + "_reason"):
            by.setdefault(figures.found[what + "_reason"], []).append(what)
    return [f"{', '.join(which)}: {reason}" for reason, which in by.items()]


# ---- the report ----

def intro(found):
    kind = "A short run" if found["quick"] else "A run"
    command = "./dev bench quick" if found["quick"] else "./dev bench"
    memory = ("hugepages on" if found["hugepages"]
              else "no hugepages, as an ordinary user has it")
    processor = found["machine"]["processor"]
    return (f"{kind} of `{command}` on {found['date']}, which took "
            f"{found['took_s'] // 60} min {found['took_s'] % 60} s, on "
            f"{processor}, {found['machine']['cores']} cores; {memory}. "
            f"Every point was measured {turns(found)} "
            f"{found['seconds']:g} s, the points by turns; figures are "
            "medians, with the lowest and highest. Server on core "
            f"{found['cores'][0]}, its load on core {found['cores'][1]}."
            + "".join(f" Measured again on {date}: {table}."
                      for table, date in found.get("again", {}).items()))


def turns(found):
    """How often; a quick run may have had no time for the last turn."""
    if found["repeat"] == 1:
        return "once for"
    counts = [len(p["runs"]) for p in found["points"]
              if p["table"] != "idle" and p["runs"]]
    if not counts or min(counts) == max(counts):
        return f"{max(counts, default=found['repeat'])} times for"
    return f"{min(counts)} to {max(counts)} times for"


def blocks(found):
    """The whole report, but for its title."""
    figures = Figures(found)
    out = [("text", intro(found))]
    rows = headline_rows(figures)
    if rows:
        out += [("head", "In short"),
                ("table", ["what", "ratio"], rows),
                ("text", "Ratios are taken within a turn.")]
    out += [("head", "What this can prove, and what not"), ("list", MEMIF)]
    if figures.of("echo", "path"):
        out += [("head", "Echo: requests a second"),
                ("text", "64 B there and back, closed loop: every connection "
                         "asks again when it was answered."),
                echo_table(figures), ("plot", "echo",
                                      "Requests a second by connections")]
        ceiling = figures.cell("macswap", "macswap", 0)
        if ceiling:
            out.append(("text", "The ceiling, `dpdk-testpmd` swapping MAC "
                        f"addresses of 118 B frames over memif: {ceiling} "
                        "frames/s."))
        nohuge = figures.cell("nohuge", "memif", 64)
        if nohuge and nohuge != "-":
            out.append(("text", "Without hugepages, coronet over memif at 64 "
                                f"connections: {nohuge} requests/s."))
        out += server_notes(figures)
        out += [("head", "Echo: latency, 64 connections"),
                ("text", "In the open loop requests are sent by a timetable, "
                         "and latency counts from the time each should have "
                         "been sent; every path has the same rate there, "
                         "half of what the slowest reaches. On two cores the "
                         "last percentiles are the scheduler's: a poller "
                         "that is preempted is away for milliseconds."),
                latency_table(figures),
                ("plot", "latency", "Latency by percentile")]
    if figures.of("cps", "path"):
        out += [("head", "Connect, echo, close"),
                ("text", "A connection, one 64 B request and its answer, "
                         "close, and again; connections a second."),
                simple_table(figures, "cps", rate, short, "at a time")]
    if figures.of("bulk", "path"):
        out += [("head", "Bulk"),
                ("text", "Streams that are echoed, Gbit/s each way, both "
                         "ways at once, MTU 1500 (loopback: 65536)."),
                simple_table(figures, "bulk", gbit,
                             lambda value: f"{value:.3g}", "streams")]
    if figures.of("idle", "path"):
        out += [("head", "Memory of idle connections"),
                ("text", "Each has echoed a request, then waits, in `recv` "
                         "of a coroutine or in an epoll set. Resident memory "
                         "of the process, hugepages too; for the kernel its "
                         "slabs, page tables and per-CPU memory as well. One "
                         "run."),
                idle_table(figures),
                ("plot", "memory", "Memory a connection")]
    if found["proxy"]:
        out += [("head", "Proxies"),
                ("text", "One thread each, more programs than cores in every "
                         "row."),
                ("list", PROXY_PATHS),
                proxy_table(found), proxy_ratios(found),
                ("plot", "proxy", "Proxies, requests a second")]
    if found["coro"]:
        out += [("head", "Coroutines"),
                ("text", "ns an operation on one core, best of interleaved "
                         f"turns; copy loop {found['coro']['isa']}. The "
                         "ratio is to the first of the others, or memory in "
                         "bytes."),
                coro_table(found["coro"]),
                ("plot", "coro", "Cost of coroutine operations")]
    left = unmeasured(figures)
    if left:
        out += [("head", "What was not measured"), ("list", left)]
    out += [("head", "The machine"),
            ("table", ["what", ""], [[key, value] for key, value
                                     in found["machine"].items()])]
    return out


def server_notes(figures):
    """What the figures of the echo table are bounds of."""
    out = []
    bounds = any(limited(p["path"], run) for p in figures.found["points"]
                 for run in p["runs"])
    if bounds:
        out.append(f"{AT_LEAST.strip()}: the load's core had less than 5 % "
                   "to spare in one of the turns, and not the server's, or "
                   "one cannot know: the server may be faster.")
    shares = []
    for path in ("loopback", "uring", "kerneltap", "uringtap"):
        values = [run["server_cpu"] for run in figures.runs("echo", path, 64)
                  if run.get("server_cpu")]
        if values:
            shares.append(f"{PATHS[path]} "
                          f"{statistics.median(values) * 100:.0f} %")
    if shares:
        out.append("CPU time of the kernel's server at 64 connections, in its busiest "
                   "half second: " + ", ".join(shares) + " of a core.")
    return [("text", " ".join(out))] if out else []


TITLE = "coronet beside the kernel: benchmark report"


def markdown(found, images="", title=TITLE, extra=()):
    """images: where the plots are, seen from the file."""
    out = [f"# {title}", ""]
    for block in [*extra, *blocks(found)]:
        if block[0] == "head":
            out += [f"## {block[1]}", ""]
        elif block[0] == "text":
            out += [block[1], ""]
        elif block[0] == "list":
            out += [f"- {text}" for text in block[1]] + [""]
        elif block[0] == "plot":
            if block[1] in plots.drawn(found):
                out += [f"![{block[2]}]({images}{block[1]}.svg)", ""]
        else:
            out += table_lines(block[1], block[2]) + [""]
    return "\n".join(out)


def table_lines(header, rows):
    """Markdown's, its columns even."""
    cells = [header, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row):
        return "| " + " | ".join(cell.ljust(width) for cell, width
                                 in zip(row, widths)) + " |"

    return [line(header), "|" + "|".join("-" * (w + 2) for w in widths) + "|",
            *[line(row) for row in rows]]


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem
       auto; padding: 0 1rem; color: #1a1a1a; background: #fff; }
h1 { font-size: 1.7rem } h2 { margin-top: 2.2rem; font-size: 1.25rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd; text-align: left;
         vertical-align: top }
th { border-bottom: 2px solid #888 }
figure { margin: 1.5rem 0 } figure svg { width: 100%; height: auto }
figcaption { color: #555; font-size: .9rem }
code { background: #f2f2f2; padding: 0 .2em }
"""


def inline(text):
    """Escaped, `code` as such."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>",
                  escape.escape(text, quote=False))


def html(found, folder):
    """One page, its plots in it."""
    out = ["<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
           '<meta name="viewport" content="width=device-width">',
           f"<title>{TITLE}</title><style>{STYLE}</style></head><body>",
           f"<h1>{TITLE}</h1>"]
    for block in blocks(found):
        if block[0] == "head":
            out.append(f"<h2>{inline(block[1])}</h2>")
        elif block[0] == "text":
            out.append(f"<p>{inline(block[1])}</p>")
        elif block[0] == "list":
            out.append("<ul>" + "".join(f"<li>{inline(text)}</li>"
                                        for text in block[1]) + "</ul>")
        elif block[0] == "plot":
            path = os.path.join(folder, block[1] + ".svg")
            if block[1] not in plots.drawn(found) or not os.path.exists(path):
                continue
            with open(path, encoding="utf-8") as file:
                svg = file.read()
            svg = own_ids(svg[svg.index("<svg"):], block[1])
            out.append(f"<figure>{svg}<figcaption>{inline(block[2])}"
                       "</figcaption></figure>")
        else:
            out.append(html_table(block[1], block[2]))
    return "\n".join([*out, "</body></html>", ""])


def own_ids(svg, prefix):
    """gnuplot gives every plot the same ids; one page holds several."""
    svg = re.sub(r"\bid=(['\"])", rf"id=\1{prefix}-", svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    return re.sub(r"href=(['\"])#", rf"href=\1#{prefix}-", svg)


def html_table(header, rows):
    head = "".join(f"<th>{inline(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{inline(cell)}</td>"
                                    for cell in row) + "</tr>"
                   for row in rows)
    return (f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def write(found, folder):
    """Plots, report.md and report.html; returns their paths."""
    made = plots.draw(found, folder)
    for name, text in (("report.md", markdown(found)),
                       ("report.html", html(found, folder))):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        made.append(path)
    return made


def summary(found):
    """For the terminal: what comes first, and echo's table."""
    figures = Figures(found)
    out = [""]
    tables = [("table", ["what", "ratio"], headline_rows(figures))]
    if figures.of("echo", "path"):
        tables.append(echo_table(figures))
    if found["proxy"]:
        tables.append(proxy_ratios(found))
    for _, header, rows in tables:
        if rows:
            out += table_lines(header, rows) + [""]
    return "\n".join(out)


# ---- figures for README and docs ----

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def readme_block(found):
    """README's own part of the report."""
    figures = Figures(found)
    machine = found["machine"]
    out = [BEGIN,
           f"`./dev bench` on {found['date']}: {machine['processor']}, "
           f"{machine['cores']} cores, {machine['kernel']}, "
           f"DPDK {machine['DPDK']}, "
           + ("hugepages on" if found["hugepages"] else "no hugepages")
           + f"; medians of {found['repeat']} turns of {found['seconds']:g} "
           "s with the lowest and highest. Requests a second, 64 B echoes:",
           ""]
    _, header, rows = echo_table(figures)
    out += table_lines(header, rows)
    out += ["", *table_lines(["ratio, within a turn", ""],
                             headline_rows(figures)), END]
    return "\n".join(out)


def filled(text):
    """Markdown with its paragraphs in lines of 100 columns, as in docs/."""
    lines = []
    for line in text.split("\n"):
        if line.startswith(("|", "<", "#", "!")):
            lines.append(line)
        else:
            lines += textwrap.wrap(
                line, 100, break_long_words=False, break_on_hyphens=False,
                subsequent_indent="  " if line.startswith("- ") else "") or [""]
    return "\n".join(lines)


def publish(found, folder, top):
    """README's block, docs/benchmarks.md and its plots; returns their paths.

    docs/benchmarks.md begins with what is not from a run, up to BEGIN."""
    made = []
    docs = os.path.join(top, "docs")
    os.makedirs(os.path.join(docs, "plots"), exist_ok=True)
    for name in plots.drawn(found):
        path = os.path.join(docs, "plots", name + ".svg")
        shutil.copyfile(os.path.join(folder, name + ".svg"), path)
        made.append(path)
    body = markdown(found, "plots/").split("\n", 2)[2]
    replaced = {os.path.join(top, "README.md"): readme_block(found),
                os.path.join(docs, "benchmarks.md"):
                    f"{BEGIN}\n{body}\n{END}"}
    for path, text in replaced.items():
        with open(path, encoding="utf-8") as file:
            old = file.read()
        begin, end = old.index(BEGIN), old.index(END) + len(END)
        with open(path, "w", encoding="utf-8") as file:
            file.write(old[:begin] + filled(text) + old[end:])
        made.append(path)
    return made
