"""report.json as Markdown, as one HTML page, with plots, and in README and docs."""

import os
import statistics

import plots
import tables
from points import (AT_LEAST, KERNELS, PATHS, Points, held_kib, limited, percentile, request_rate,
                    run_gbit)
from tables import as_time, format_short, spread, table_lines

TITLE = "coronet beside the kernel: benchmark report"
PERCENTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99.9": "p999", "p99.99": "p9999"}

MEMIF = (
    "memif is memory that two processes share. It has no NIC, no PCIe, no interrupts, no wire and "
    "no loss, and its frames are copied by a core instead of a DMA engine.",
    "So it can show what the software costs a request: TCP, the coroutine, the copies; how that "
    "grows with the connections; and coronet's part of it, because `dpdk-testpmd` swapping MAC "
    "addresses over the same memif is the ceiling for anything that answers every frame.",
    "It cannot show a NIC's rate or latency: descriptor rings, doorbells, PCIe round trips, RSS, "
    "offloads and the wire's serialisation are not there. A NIC takes over checksums and copies, "
    "which would be less work than here, and adds a microsecond or more in each direction.",
    "Loopback is the kernel's TCP without a driver, twice on one machine: what its receive path "
    "does for the server is partly done on the load's core, in the load's `send()`. That favours "
    "the kernel.",
    "The same TAP carries the kernel's server once (the load polls DPDK's side) and coronet once "
    "(the load is the kernel's): a `read()` or `write()` a frame for the program on DPDK's side, so "
    "that both are slow, and what is compared is the whole path. What the kernel does for a frame "
    "that arrives is done in the load's `write()`, on the load's core.",
)

PROXY_PATHS = (
    "taps: 64 B echoes, a TAP before the proxy and one behind it, and what is at their other ends "
    "is on the stack that the proxy is not on: coronet-proxy between epoll-load and epoll-echo, "
    "the kernel's proxies between coronet-load and coronet-echo. The same path for all, with the "
    "roles changed over.",
    "tap: wrk before and nginx behind, both on the kernel's stack, one small file by keep-alive "
    "connections, and four downloads of 32 MiB at once. coronet-proxy polls the TAP's other end; "
    "for the kernel's proxies `tests/wire` carries frames on to a second TAP, and takes time of "
    "wrk's and nginx's cores, which is to their disadvantage.",
    "veth: the same for the kernel's proxies without `tests/wire`, the shortest way there is; "
    "coronet-proxy's figure beside it is that of tap, which is to its disadvantage.",
    "memif: coronet-load, coronet-proxy and coronet-echo; loopback: epoll-load, epoll-proxy and "
    "epoll-echo.",
)

# The first figures of a report: pairs of points, (table, path, connections).
ECHO, OVER_EPOLL = ("echo", "memif", 64), "coronet over memif / epoll on loopback"
OVER_URING = "coronet over memif / io_uring on loopback"
HEADLINES = (
    (f"echo, 64 connections: {OVER_EPOLL}", ECHO, ("echo", "loopback", 64), request_rate),
    ("the same, p99", ECHO, ("echo", "loopback", 64), percentile("p99")),
    (f"echo, 64 connections: {OVER_URING}", ECHO, ("echo", "uring", 64), request_rate),
    (f"echo, 10,000 connections: {OVER_EPOLL}", ("echo", "memif", 10000),
     ("echo", "loopback", 10000), request_rate),
    ("echo, 64 connections: coronet over TAP / epoll over TAP", ("echo", "tap", 64),
     ("echo", "kerneltap", 64), request_rate),
    ("echo, 64 connections: coronet / testpmd macswap, both over memif", ECHO,
     ("macswap", "macswap", 0), request_rate),
    ("echo: 10,000 connections / 64, coronet over memif", ("echo", "memif", 10000), ECHO,
     request_rate),
    ("echo: 1,000,000 connections / 64, coronet over memif", ("echo", "memif", 1000000), ECHO,
     request_rate),
    ("without hugepages / with them, coronet over memif", ("nohuge", "memif", 64), ECHO,
     request_rate),
    (f"connect + echo + close: {OVER_EPOLL}", ("cps", "memif", 64), ("cps", "loopback", 64),
     request_rate),
    (f"connect + echo + close: {OVER_URING}", ("cps", "memif", 64), ("cps", "uring", 64),
     request_rate),
    (f"one bulk stream: {OVER_EPOLL}", ("bulk", "memif", 1), ("bulk", "loopback", 1), run_gbit),
)


def describe_run(table, run):
    """Returns one run in a few words, for progress."""
    if table == "bulk":
        return f"{run_gbit(run):.3g} Gbit/s in each direction"
    if table == "idle":
        return f"{run['server_kib'] / 1024:,.0f} MiB"
    p99 = run["latency_us"].get("p99")
    return f"{format_short(request_rate(run)):>8}/s" + (f"  p99 {as_time(p99)}" if p99 else "")


# ---- tables ----

def headlines(points):
    rows = ((text, points.ratios(a, b, value)) for text, a, b, value in HEADLINES)
    return ["what", "ratio"], [[text, spread(ratios, lambda v: f"{v:.3g} x")]
                               for text, ratios in rows if ratios]


def grid(points, table, corner, value=request_rate, form=format_short):
    """Paths across, connections down."""
    paths = points.paths(table)
    return [corner, *[PATHS[path][0] for path in paths]], [
        [f"{conns:,}", *[points.cell(table, path, conns, value=value, form=form)
                         for path in paths]] for conns in points.conns(table)]


def latencies(points):
    rate_of_all = format_short(points.found["open_rate"] or 0)
    loads = (("echo", "closed loop"), ("open", f"open, {rate_of_all}/s"),
             ("half", "open, half of its rate"))
    return ["path", "load", *PERCENTILES], [
        [PATHS[path][0], load,
         *[points.cell(table, path, 64, value=percentile(key), form=as_time).replace(AT_LEAST, "")
           for key in PERCENTILES.values()]]
        for table, load in loads for path in points.paths(table) if points.runs(table, path, 64)]


def idle(points):
    rows = [[f"{conns:,}", who,
             # The kernel's slabs are shared: only the kernel's servers show them.
             f"{run['server_kib'] / 1024:,.0f} MiB" if path == "memif" else "",
             f"{held_kib(run) / 1024:,.0f} MiB", f"{held_kib(run) * 1024 / conns:,.0f} B",
             format_short(run["opened_per_s"]) + "/s"]
            for conns in points.conns("idle")
            for path, who in (("memif", "coronet-echo"), ("kerneltap", "epoll-echo and the kernel"))
            for run in points.runs("idle", path, conns)[:1]]
    return ["connections", "held by", "the server in all", "the connections",
            "a connection", "opened"], rows


def coroutines(rows):
    return ["row", "coronet", "others", "ratio", "goal", ""], [
        [row["name"], f"{row['values']['coronet']:.3g} {row['unit']}",
         ", ".join(f"{name} {value:,.4g}" for name, value in row["values"].items()
                   if name != "coronet"),
         f"{row['reached']:.3g}" if row["reached"] else "",
         f"{row['goal']:g}" if row["goal"] else "", row["verdict"].replace("-", "")]
        for row in rows]


def proxy_columns(found):
    return [column for column in ("requests/s, 1", "requests/s, 64", "MiB/s")
            if any(column in one["figures"] for one in found["proxy"])]


def proxies(found):
    columns = proxy_columns(found)
    return ["path", "proxy", *columns], [
        [one["path"], one["proxy"], *[spread(one["figures"][column])
                                      if column in one["figures"] else "" for column in columns]]
        for one in found["proxy"]]


def proxy_ratios(found):
    """coronet-proxy over each of the others, on the same TAP path."""
    by = {(one["path"], one["proxy"]): one["figures"] for one in found["proxy"]}
    columns = proxy_columns(found)
    pairs = [(f"{proxy}, {path}", ("taps" if path == "taps" else "tap", "coronet-proxy"),
              (path, proxy)) for path, proxy in by
             if path in ("taps", "tap", "veth") and proxy != "coronet-proxy"]
    pairs.append(("epoll-proxy on loopback, itself over memif", ("memif", "coronet-proxy"),
                  ("loopback", "epoll-proxy")))
    rows = []
    for text, ours, theirs in pairs:
        if ours in by and theirs in by:
            ratios = [[a / b for a, b in zip(by[ours].get(column, []), by[theirs].get(column, []))]
                      for column in columns]
            rows.append([text, *[spread(values, lambda v: f"{v:.2f} x") if values else ""
                                 for values in ratios]])
    return ["coronet-proxy over", *columns], rows


# ---- the report ----

def n_turns(found):
    """Returns the number of turns; a quick run may have had no time for the last one."""
    counts = [len(p["runs"]) for p in found["points"] if p["table"] != "idle" and p["runs"]]
    low, high = min(counts, default=found["repeat"]), max(counts, default=found["repeat"])
    if found["repeat"] == 1:
        return "once for"
    return f"{high} times for" if low == high else f"{low} to {high} times for"


def intro(found):
    kind, command = (("A short run", "./dev bench quick") if found["quick"]
                     else ("A run", "./dev bench"))
    memory = "hugepages on" if found["hugepages"] else "no hugepages, as an ordinary user has it"
    return (f"{kind} of `{command}` on {found['date']}, which took {found['took_s'] // 60} min "
            f"{found['took_s'] % 60} s, on {found['machine']['processor']}, "
            f"{found['machine']['cores']} cores; {memory}. Every point was measured "
            f"{n_turns(found)} {found['seconds']:g} s, the points by turns; figures are medians, "
            f"with the lowest and highest. Server on core {found['cores'][0]}, its load on core "
            f"{found['cores'][1]}." + "".join(f" Measured again on {date}: {table}."
                                              for table, date in found.get("again", {}).items()))


def server_notes(points):
    """Returns notes on the bounds in the echo table."""
    if any(limited(p["path"], run) for p in points.found["points"] for run in p["runs"]):
        yield (f"{AT_LEAST.strip()}: the load's core had less than 5 % to spare in one of the "
               "turns, and not the server's, or one cannot know: the server may be faster.")
    shares = {path: [run["server_cpu"] for run in points.runs("echo", path, 64)
                     if run.get("server_cpu")] for path in KERNELS}
    shares = [f"{PATHS[path][0]} {statistics.median(values) * 100:.0f} %"
              for path, values in shares.items() if values]
    if shares:
        yield ("CPU time of the kernel's server at 64 connections, in its busiest half second: "
               + ", ".join(shares) + " of a core.")


def unmeasured(found):
    """Returns the reasons, each once, with the unmeasured points."""
    by = {}
    for point in found["points"]:
        if point["reason"] or not point["runs"]:
            by.setdefault(point["reason"] or "there was no time left", []).append(
                f"{point['table']} {point['path']} {point['conns']:,}")
    for what in ("proxy", "coro"):
        if found.get(what + "_reason"):
            by.setdefault(found[what + "_reason"], []).append(what)
    return [f"{', '.join(which)}: {reason}" for reason, which in by.items()]


def echo_blocks(points):
    ceiling, nohuge = points.cell("macswap", "macswap", 0), points.cell("nohuge", "memif", 64)
    notes = " ".join(server_notes(points))
    return [
        ("head", "Echo: requests a second"),
        ("text", "64 B there and back, closed loop: every connection asks again when it was "
                 "answered."),
        ("table", *grid(points, "echo", "connections")),
        ("plot", "echo", "Requests a second by connections"),
        ("text", ceiling and "The ceiling, `dpdk-testpmd` swapping MAC addresses of 118 B frames "
                             f"over memif: {ceiling} frames/s."),
        ("text", nohuge.strip("-") and "Without hugepages, coronet over memif at 64 connections: "
                                       f"{nohuge} requests/s."),
        ("text", notes),
        ("head", "Echo: latency, 64 connections"),
        ("text", "In the open loop requests are sent by a timetable, and latency counts from the "
                 "time each should have been sent; every path has the same rate there, half of "
                 "what the slowest reaches. On two cores the last percentiles are the "
                 "scheduler's: a poller that is preempted is away for milliseconds."),
        ("table", *latencies(points)), ("plot", "latency", "Latency by percentile")]


def blocks(found):
    """Returns the whole report without its title."""
    points = Points(found)
    header, rows = headlines(points)
    out = [("text", intro(found))]
    if rows:
        out += [("head", "In short"), ("table", header, rows),
                ("text", "Ratios are taken within a turn.")]
    out += [("head", "What this can prove, and what not"), ("list", MEMIF)]
    if points.paths("echo"):
        out += echo_blocks(points)
    if points.paths("cps"):
        out += [("head", "Connect, echo, close"),
                ("text", "A connection, one 64 B request and its answer, close, and again; "
                         "connections a second."),
                ("table", *grid(points, "cps", "at a time"))]
    if points.paths("bulk"):
        out += [("head", "Bulk"),
                ("text", "Streams that are echoed, Gbit/s in each direction, both at once, "
                         "MTU 1500 (loopback: 65536)."),
                ("table", *grid(points, "bulk", "streams", run_gbit, "{:.3g}".format))]
    if points.paths("idle"):
        out += [("head", "Memory of idle connections"),
                ("text", "Each has echoed a request, then waits, in `recv` of a coroutine or in "
                         "an epoll set. Resident memory of the process, hugepages too; for the "
                         "kernel its slabs, page tables and per-CPU memory as well. One run."),
                ("table", *idle(points)), ("plot", "memory", "Memory a connection")]
    if found["proxy"]:
        out += [("head", "Proxies"),
                ("text", "One thread each, more programs than cores in every row."),
                ("list", PROXY_PATHS), ("table", *proxies(found)),
                ("table", *proxy_ratios(found)), ("plot", "proxy", "Proxies, requests a second")]
    if found["coro"]:
        out += [("head", "Coroutines"),
                ("text", "ns an operation on one core, best of interleaved turns; copy loop "
                         f"{found['coro']['isa']}. The ratio is to the first of the others, or "
                         "memory in bytes."),
                ("table", *coroutines(found["coro"]["rows"])),
                ("plot", "coro", "Cost of coroutine operations")]
    left = unmeasured(found)
    if left:
        out += [("head", "What was not measured"), ("list", left)]
    out += [("head", "The machine"), ("table", ["what", ""], list(found["machine"].items()))]
    drawn = plots.of_report(found)
    return [block for block in out if block[1] and (block[0] != "plot" or block[1] in drawn)]


def markdown(found, images=""):
    return f"# {TITLE}\n\n" + tables.markdown(blocks(found), images)


def write_files(found, folder):
    """Plots, report.md and report.html; returns their paths."""
    made = plots.draw_plots(plots.of_report(found), folder)
    for name, text in (("report.md", markdown(found)),
                       ("report.html", tables.format_html(TITLE, blocks(found), folder))):
        made.append(os.path.join(folder, name))
        with open(made[-1], "w", encoding="utf-8") as file:
            file.write(text)
    return made


def summary(found):
    """Returns the summary for the terminal: the first figures, and the echo table."""
    points = Points(found)
    wanted = (headlines(points), grid(points, "echo", "connections"), proxy_ratios(found))
    return "\n".join(line for header, rows in wanted if rows
                     for line in ("", *table_lines(header, rows)))


# ---- figures for README and docs ----

# The rows of the echo table in README.
README_CONNECTIONS = ("1", "64", "1,000", "10,000", "1,000,000")


def readme(found):
    """Returns README's part of the report."""
    points, machine = Points(found), found["machine"]
    columns, echoes = grid(points, "echo", "connections")
    return tables.markdown([
        ("text", f"`./dev bench` on {found['date']}: {machine['processor']}, {machine['cores']} "
                 f"cores, {machine['kernel']}, DPDK {machine['DPDK']}, "
                 f"{'' if found['hugepages'] else 'no '}hugepages"
                 f"{' on' if found['hugepages'] else ''}; medians of {found['repeat']} turns of "
                 f"{found['seconds']:g} s with the lowest and highest. Requests a second, 64 B "
                 "echoes:"),
        ("table", columns, [row for row in echoes if row[0] in README_CONNECTIONS])])


def publish(found, folder, top):
    """README's block, docs/benchmarks.md and its plots; returns their paths.

    docs/benchmarks.md starts with text that is not from a run, up to the first mark."""
    return tables.publish(
        "bench", {"README.md": readme(found),
                  "docs/benchmarks.md": tables.markdown(blocks(found), "plots/")},
        [os.path.join(folder, name + ".svg") for name in plots.of_report(found)], top)
