#!/usr/bin/env python3
"""./dev bench net: its table from known figures, and its veth rows.

Usage: test_net.py BUILD_DIR (TAP)
"""

import contextlib
import io
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "integration")]

import bench_net  # noqa: E402
import rig  # noqa: E402
import veth  # noqa: E402
from harness import check, command, main  # noqa: E402

VETH = [row for row in bench_net.ROWS if row.name == "veth"]
POINTS = list(dict.fromkeys(p for row in VETH for p in row.points))


def table(results):
    """Returns the lines of the veth rows, by their labels."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        bench_net.print_table(VETH, results, True)
    lines = out.getvalue().splitlines()[2:]
    check(len(lines) == len(VETH), f"{len(lines)} lines of {len(VETH)} rows")
    return dict(zip((row.text.strip() for row in VETH), lines))


def runs(*rates, limited=False):
    return [{"requests_per_s": rate, "limited": limited} for rate in rates]


def case_ratios():
    """Ratios are taken within a turn, against a goal; the limiting side is shown."""
    results = {point: runs(100, 200, 300) for point in POINTS}
    results["xdp"] = runs(200, 100, 450, limited=True)
    lines = table(results)
    over = lines["over epoll on a veth"]
    check("1.5 x" in over and "0.5 - 2" in over and "PASS" in over
          and "the load was the limit" in over, over)
    one = lines["one connection"]
    check("MISS" in one and "the load" not in one, one)


def case_not_measured():
    """A row without one of its points has no figure."""
    lines = table({"epollveth": runs(1, 1, 1), "packet": runs(2, 2, 2)})
    for what, line in lines.items():
        check(("not measured" in line) == (what != "af_packet instead"), line)


def case_reasons():
    """Without a namespace, or without root, a point is not measured."""
    bare = rig.Rig.__new__(rig.Rig)
    for alone, root, word in ((False, True, "namespace"),
                              (True, False, "root")):
        bare.alone, before = alone, rig.real_root
        rig.real_root = lambda root=root: root
        try:
            bare.veth("af_xdp", None)
            check(False, f"measured, alone {alone}, root {root}")
        except rig.Skip as why:
            check(word in str(why), f"{why}")
        finally:
            rig.real_root = before


def case_short_run(env):
    """A short run of every row that this user can run leaves nothing behind."""
    done = subprocess.run(
        [sys.executable, "-B", os.path.join(HERE, "bench_net.py"), "veth",
         "--seconds", "0.2", "--repeat", "1", "--build", str(env.build)],
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=240)
    check(done.returncode == 0, done.stdout)
    missing = done.stdout.count(": not measured: ")
    wanted = 0 if veth.real_root() else 4  # those of AF_XDP
    check(missing == wanted, done.stdout)
    check(("AF_XDP needs root" in done.stdout) == (wanted > 0), done.stdout)
    check(done.stdout.count("1/1") == len(POINTS) - missing, done.stdout)
    check("bn1" not in command("ip", "link"), "an interface is left")


def cases(env):
    yield "ratios are taken within a turn", case_ratios
    yield "a row without its points", case_not_measured
    yield "why a veth row is not measured", case_reasons
    if not env.sanitized:
        yield "a short run of the veth rows", lambda: case_short_run(env)


if __name__ == "__main__":
    main(cases)
