"""gnuplot's pictures of a report, each as SVG and as PNG.

Data goes in as here-documents, one block a curve, so that a plot is one text
for one gnuplot. Colours are of a palette that the colour-blind can tell apart.
"""

import math
import os
import statistics
import subprocess

SIZES = (("svg", 'svg size 900,520 dynamic noenhanced font "sans-serif,14" '
                 'background "#ffffff"'),
         ("png", 'pngcairo size 1350,780 noenhanced font "sans-serif,16"'))
COLOURS = {"memif": "#0072b2", "loopback": "#d55e00", "tap": "#56b4e9",
           "kerneltap": "#e69f00", "uring": "#cc79a7", "uringtap": "#882255",
           "half": "#009e73"}
NAMES = {"memif": "coronet over memif", "loopback": "epoll on loopback",
         "uring": "io_uring on loopback", "tap": "coronet over TAP",
         "kerneltap": "epoll over TAP", "uringtap": "io_uring over TAP"}
PERCENT = (("p50", 2), ("p90", 10), ("p99", 100), ("p999", 1000),
           ("p9999", 10000))  # one in so many is slower
COMMON = """
set border 3 lc "#555555"
set tics nomirror
set grid lc "#dddddd" lw 1
set key Left reverse
"""
DECADES = ('set xtics ("1" 1, "10" 10, "100" 100, "1k" 1e3, "10k" 1e4, '
           '"100k" 1e5, "1M" 1e6)')


def runs(found, table, path, conns):
    for point in found["points"]:
        if (point["table"], point["path"], point["conns"]) == (table, path,
                                                               conns):
            return point["runs"]
    return []


def of_table(found, table, path):
    """(connections, runs) of every point that was measured, in order."""
    return sorted((p["conns"], p["runs"]) for p in found["points"]
                  if p["table"] == table and p["path"] == path and p["runs"])


def middle(values):
    return f"{statistics.median(values):g} {min(values):g} {max(values):g}"


class Plot:
    """Text for gnuplot, and the curves in it."""

    def __init__(self, *settings):
        self.settings = [COMMON, *settings]
        self.blocks, self.curves = [], []

    def add(self, lines, how):
        """A curve through these lines of data; none: no curve."""
        if not lines:
            return
        name = f"$d{len(self.blocks)}"
        self.blocks.append(f"{name} << EOD\n" + "\n".join(lines) + "\nEOD")
        self.curves.append(f"{name} {how}")

    def text(self, terminal, path):
        return "\n".join([f"set terminal {terminal}",
                          f'set output "{path}"', *self.blocks,
                          *self.settings,
                          "plot " + ", \\\n  ".join(self.curves), ""])


def line_of(colour, title, extra=""):
    return (f'with yerrorlines lc "{colour}" lw 2 pt 7 ps 0.8 '
            f'title "{title}" {extra}')


def echo(found):
    """Throughput against connections."""
    plot = Plot("set logscale xy", 'set xlabel "connections"',
                'set ylabel "echoes a second, 64 B"',
                DECADES, 'set format y "%.0s%c"',
                "set xrange [0.8:1300000]",
                "set key outside right top vertical")
    for path, name in NAMES.items():
        plot.add([f"{conns} {middle([r['requests_per_s'] for r in found_runs])}"
                  for conns, found_runs in of_table(found, "echo", path)],
                 line_of(COLOURS[path], name))
    ceiling = [r["requests_per_s"]
               for r in runs(found, "macswap", "macswap", 0)]
    if ceiling and plot.curves:
        height = statistics.median(ceiling)
        plot.add([f"1 {height:g}", f"1000000 {height:g}"],
                 'with lines lc "#777777" dt 2 lw 2 '
                 'title "testpmd macswap"')
    return plot


def latency(found):
    """Percentiles, closed loop full and open loop dashed."""
    plot = Plot("set logscale xy", 'set ylabel "latency, us"',
                'set xlabel "percentile"',
                'set xtics ("50" 2, "90" 10, "99" 100, "99.9" 1000, '
                '"99.99" 10000)', "set xrange [1.7:12000]",
                'set format y "%g"',
                "set key outside right top vertical")
    for table, dash, what in (("echo", 1, ""), ("open", 2, ", open loop")):
        for path, name in NAMES.items():
            measured = runs(found, table, path, 64)
            if not measured:
                continue
            plot.add([f"{x} {middle([r['latency_us'][key] for r in measured])}"
                      for key, x in PERCENT],
                     f'with linespoints lc "{COLOURS[path]}" dt {dash} lw 2 '
                     f'pt 7 ps 0.6 title "{name}{what}"')
    return plot


def memory(found):
    """Bytes a connection against connections."""
    plot = Plot("set logscale xy", 'set xlabel "idle connections"',
                'set ylabel "bytes a connection"',
                DECADES, 'set format y "%.0f"',
                "set xrange [7000:1500000]", "set yrange [100:*]",
                "set key outside right top vertical")
    for path, name in (("memif", "coronet-echo"),
                       ("kerneltap", "epoll-echo and kernel")):
        lines = []
        for conns, found_runs in of_table(found, "idle", path):
            run = found_runs[0]
            size = (run["server_kib"] - run["none_kib"]) * 1024 / conns
            lines.append(f"{conns} {size:g}")
        plot.add(lines, f'with linespoints lc "{COLOURS[path]}" lw 2 pt 7 '
                        f'title "{name}"')
    return plot


def bars(rows, *settings, slope=35, size=14):
    """Rows of (label, value, lowest, highest, colour), one bar each.

    Labels lean by so many degrees; below and to the right of the bars there is
    room for the longest, which gnuplot itself leaves only below. Margins count
    in characters of the terminal's size, which are twice as high as wide.
    """
    reach = max(len(label) for label, *_ in rows) * size / 14
    plot = Plot("set style fill solid 0.85", "set boxwidth 0.7",
                f"set xtics rotate by -{slope} font ',{size}'", "unset key",
                f"set rmargin {reach * math.cos(math.radians(slope)):.0f}",
                "set bmargin "
                f"{2 + reach * math.sin(math.radians(slope)) / 2:.0f}",
                *settings)
    lines = [f'{i} {value:g} {low:g} {high:g} {colour} "{label}"'
             for i, (label, value, low, high, colour) in enumerate(rows)]
    plot.add(lines, "using 1:2:5:xtic(6) with boxes lc rgb variable")
    if any(low != high for _, _, low, high, _ in rows):
        # Not yerrorbars: those have a point, and a clearing around it.
        plot.add(lines, 'using 1:3:(0):($4-$3) with vectors heads '
                        'size screen 0.006,90 lc "#333333"')
    return plot


def number(colour):
    """gnuplot's variable colours are numbers."""
    return str(int(colour[1:], 16))


def proxy(found):
    rows = []
    for point in found["proxy"]:
        values = point["figures"].get("requests/s, 64")
        if not values:
            continue
        colour = "#0072b2" if "coronet" in point["proxy"] else "#d55e00"
        rows.append((f"{point['proxy']}, {point['path']}",
                     statistics.median(values) / 1000, min(values) / 1000,
                     max(values) / 1000, number(colour)))
    return bars(rows, 'set ylabel "thousand requests a second, 64 connections"',
                "set yrange [0:*]", 'set format y "%.0f"') if rows else Plot()


def coro(found):
    """Ours beside the others', ns."""
    rows = []
    for row in (found["coro"] or {"rows": []})["rows"]:
        if row["unit"] != "ns":
            continue
        for name, value in row["values"].items():
            colour = "#0072b2" if name == "coronet" else "#999999"
            rows.append((f"{row['name']}: {name}", value, value, value,
                         number(colour)))
    return bars(rows, "set logscale y", 'set ylabel "ns an operation"',
                "set yrange [1:*]", slope=60, size=10) if rows else Plot()


KINDS = {"echo": echo, "latency": latency, "memory": memory, "proxy": proxy,
         "coro": coro}


def drawn(found):
    """The plots that this report has data for."""
    return [name for name, make in KINDS.items() if make(found).curves]


def draw_all(wanted, folder, sizes=SIZES):
    """Writes plots by name; the paths. Without gnuplot none, said once."""
    made = []
    for name, plot in wanted.items():
        for suffix, terminal in sizes:
            path = os.path.join(folder, f"{name}.{suffix}")
            try:
                done = subprocess.run(["gnuplot"],
                                      input=plot.text(terminal, path),
                                      check=False, capture_output=True,
                                      text=True, timeout=60)
            except FileNotFoundError:
                print("gnuplot is not there, so there are no plots "
                      "(apt-get install gnuplot-nox)")
                return made
            if done.returncode:
                raise RuntimeError(f"gnuplot, {name}: {done.stderr}")
            made.append(path)
    return made


def draw(found, folder):
    """Writes all of a report's; the paths."""
    return draw_all({name: KINDS[name](found) for name in drawn(found)},
                    folder)
