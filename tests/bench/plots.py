"""gnuplot's pictures of a report, each as SVG and as PNG.

A plot is one text for one gnuplot, "" if there is nothing to draw: data goes in as here-documents,
one a curve.
"""

import math
import os
import statistics
import subprocess

from points import PATHS, Points, held_kib, percentile, request_rate

SIZES = {"svg": 'svg size 900,520 dynamic noenhanced font "sans-serif,14" background "#ffffff"',
         "png": 'pngcairo size 1350,780 noenhanced font "sans-serif,16"'}
# One in this many is slower.
PERCENT = {"p50": 2, "p90": 10, "p99": 100, "p999": 1000, "p9999": 10000}
COMMON = ('set border 3 lc "#555555"', "set tics nomirror", 'set grid lc "#dddddd" lw 1',
          "set key Left reverse")
OUTSIDE = "set key outside right top vertical"
LOGARITHMIC = (
    "set logscale xy", OUTSIDE, 'set xtics ("1" 1, "10" 10, "100" 100, "1k" 1e3, "10k" 1e4, '
    '"100k" 1e5, "1M" 1e6)')
OURS, THEIRS, OTHERS = "#0072b2", "#d55e00", "#999999"


def format_plot(settings, curves):
    """curves: (lines of data, how they are drawn); those without data are left out."""
    curves = [(f"$d{i}", lines, how) for i, (lines, how) in enumerate(curves) if lines]
    return curves and "\n".join([
        *[f"{name} << EOD\n" + "\n".join(lines) + "\nEOD" for name, lines, _ in curves],
        *COMMON, *settings,
        "plot " + ", \\\n  ".join(f"{name} {how}" for name, _, how in curves), ""]) or ""


def middle(x, values):
    """A point with its lowest and highest."""
    return f"{x} {statistics.median(values):g} {min(values):g} {max(values):g}"


def echo(found):
    """Throughput against connections."""
    points = Points(found)
    curves = [([middle(conns, list(map(request_rate, runs)))
                for conns, runs in points.measured("echo", path)],
               f'with yerrorlines lc "{colour}" lw 2 pt 7 ps 0.8 title "{name}"')
              for path, (name, colour) in PATHS.items()]
    ceiling = list(map(request_rate, points.runs("macswap", "macswap", 0)))
    if ceiling and any(lines for lines, _ in curves):
        height = statistics.median(ceiling)
        curves.append(([f"1 {height:g}", f"1000000 {height:g}"],
                       'with lines lc "#777777" dt 2 lw 2 title "testpmd macswap"'))
    return format_plot([*LOGARITHMIC, 'set xlabel "connections"', 'set format y "%.0s%c"',
                 'set ylabel "echoes a second, 64 B"', "set xrange [0.8:1300000]"], curves)


def latency(found):
    """Percentiles, closed loop full and open loop dashed."""
    points = Points(found)
    curves = [([middle(x, list(map(percentile(key), runs))) for key, x in PERCENT.items() if runs],
               f'with linespoints lc "{colour}" dt {dash} lw 2 pt 7 ps 0.6 title "{name}{what}"')
              for table, dash, what in (("echo", 1, ""), ("open", 2, ", open loop"))
              for path, (name, colour) in PATHS.items() for runs in [points.runs(table, path, 64)]]
    return format_plot(["set logscale xy", OUTSIDE, 'set ylabel "latency, us"',
                        'set xlabel "percentile"',
                 'set xtics ("50" 2, "90" 10, "99" 100, "99.9" 1000, "99.99" 10000)',
                 "set xrange [1.7:12000]", 'set format y "%g"'], curves)


def memory(found):
    """Bytes a connection against connections."""
    curves = [([f"{conns} {held_kib(runs[0]) * 1024 / conns:g}"
                for conns, runs in Points(found).measured("idle", path)],
               f'with linespoints lc "{PATHS[path][1]}" lw 2 pt 7 title "{name}"')
              for path, name in (("memif", "coronet-echo"), ("kerneltap", "epoll-echo and kernel"))]
    return format_plot([*LOGARITHMIC, 'set xlabel "idle connections"',
                        'set ylabel "bytes a connection"',
                 'set format y "%.0f"', "set xrange [7000:1500000]", "set yrange [100:*]"], curves)


def bars(rows, *settings, slope=35, size=14):
    """A bar for each (label, colour, values).

    Labels lean by so many degrees; below and to the right of the bars there is room for the
    longest, which gnuplot itself leaves only below. Margins count in characters of the terminal's
    size, which are twice as high as wide.
    """
    reach = max((len(label) for label, *_ in rows), default=0) * size / 14
    lean = math.radians(slope)
    lines = [f'{middle(i, values)} {int(colour[1:], 16)} "{label}"'
             for i, (label, colour, values) in enumerate(rows)]
    # Not yerrorbars: those have a point, and a clearing around it.
    spans = lines if any(len(set(values)) > 1 for *_, values in rows) else []
    return format_plot(["set style fill solid 0.85", "set boxwidth 0.7", "unset key",
                 f"set xtics rotate by -{slope} font ',{size}'",
                 f"set rmargin {reach * math.cos(lean):.0f}",
                 f"set bmargin {2 + reach * math.sin(lean) / 2:.0f}", *settings],
                [(lines, "using 1:2:5:xtic(6) with boxes lc rgb variable"),
                 (spans, "using 1:3:(0):($4-$3) with vectors heads size screen 0.006,90 "
                         'lc "#333333"')])


def proxy(found):
    rows = [(f"{one['proxy']}, {one['path']}", OURS if "coronet" in one["proxy"] else THEIRS,
             [value / 1000 for value in one["figures"]["requests/s, 64"]])
            for one in found["proxy"] if one["figures"].get("requests/s, 64")]
    return bars(rows, 'set ylabel "thousand requests a second, 64 connections"',
                "set yrange [0:*]", 'set format y "%.0f"')


def coro(found):
    """Ours compared with the others', in ns."""
    rows = [(f"{row['name']}: {name}", OURS if name == "coronet" else OTHERS, [value])
            for row in (found["coro"] or {"rows": []})["rows"] if row["unit"] == "ns"
            for name, value in row["values"].items()]
    return bars(rows, "set logscale y", 'set ylabel "ns an operation"', "set yrange [1:*]",
                slope=60, size=10)


def of_report(found):
    """Returns the plots that this report has data for, by name."""
    made = {kind.__name__: kind(found) for kind in (echo, latency, memory, proxy, coro)}
    return {name: text for name, text in made.items() if text}


def draw_plots(wanted, folder, kinds=tuple(SIZES)):
    """Writes plots by name; returns the paths. Without gnuplot writes none, with one message."""
    made = []
    for name, text in wanted.items():
        for kind in kinds:
            path = os.path.join(folder, f"{name}.{kind}")
            text_of_kind = f'set terminal {SIZES[kind]}\nset output "{path}"\n{text}'
            try:
                done = subprocess.run(["gnuplot"], input=text_of_kind, check=False,
                                      capture_output=True, text=True, timeout=60)
            except FileNotFoundError:
                print("gnuplot is not there, so there are no plots "
                      "(apt-get install gnuplot-nox)")
                return made
            if done.returncode:
                raise RuntimeError(f"gnuplot, {name}: {done.stderr}")
            made.append(path)
    return made
