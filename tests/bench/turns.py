"""Runs benchmarks whose points are measured by turns, round after round.

A point is a name and a function that measures it once and returns its figures by column. The
output has medians, and the lowest and highest.
"""

import argparse
import contextlib
import datetime
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness  # noqa: E402
import tables  # noqa: E402
from figures import TOP  # noqa: E402
from harness import Env, Namespace, check, command  # noqa: E402
from web import need_programs  # noqa: E402

BULK_AT_ONCE = 4


def span(values):
    """Returns the median, and the lowest and highest."""
    low, middle, high = min(values), statistics.median(values), max(values)
    digits = 0 if high >= 100 else 2
    return f"{middle:,.{digits}f} ({low:,.{digits}f} - {high:,.{digits}f})"


def format_now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def is_final(reason):
    """Whether this reason also holds for later turns."""
    return bool(reason) and not reason.startswith("failed")


class Run:
    """Measures points one after another; a failed one does not affect the report of the others."""

    def __init__(self, seconds=math.inf):
        """Starts no point later than `seconds` from now."""
        self.begun, self.bound = time.monotonic(), seconds
        self.failed = 0

    def seconds_spent(self):
        return time.monotonic() - self.begun

    def late(self):
        return self.seconds_spent() > self.bound

    def report(self, text, file=None):
        print(f"{self.seconds_spent():6.0f} s  {text}", file=file, flush=True)

    def clear(self):
        """Ends the programs that a measurement has left."""

    def guarded(self, name, measure):
        """Returns (figures, None), or (None, the reason for none)."""
        if self.late():
            return None, "there was no time left"
        try:
            return measure(), None
        except harness.Skip as why:
            return None, str(why)
        except (harness.Failure, OSError, subprocess.TimeoutExpired) as why:
            self.failed += 1
            self.report(f"{name}: failed: {why}", sys.stderr)
            # The failed program and its status, without its command line.
            return None, "failed: " + str(why).splitlines()[0].split(": /")[0]
        finally:
            self.clear()


def check_there(source, command_line):
    check(os.path.exists(source), f"{source} is not there: run {command_line} first")


def show_report(report, source, publish):
    """Writes the report of a run's JSON next to it, and into README and docs if requested."""
    found, folder = tables.load_json(source), os.path.dirname(source)
    made = report.write_files(found, folder)
    if "SUDO_UID" in os.environ and os.getuid() == 0:  # the file belongs to the invoking user
        owner = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", -1))
        for path in (folder, *(entry.path for entry in os.scandir(folder))):
            os.chown(path, *owner)
    if publish:
        made += report.publish(found, folder, TOP)
    print(report.summary(found))
    for path in made:
        print(os.path.relpath(path))


class Bench:
    """The common parts of points: programs, links with new names each turn, results."""

    def __init__(self, env, options):
        self.env, self.options = env, options
        self.turn = 0
        self.results = {}

    def link(self, prefix):
        return f"{prefix}{self.turn}"

    def set_up(self, link, *addresses, inside=()):
        for address in addresses:
            command(*inside, "ip", "addr", "add", f"{address}/16", "dev", link)
        command(*inside, "ip", "link", "set", link, "up")

    @contextlib.contextmanager
    def veth(self):
        """Makes a pair of unconfigured interfaces."""
        near, far = self.link("vn"), self.link("vf")
        command("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        try:
            yield near, far
        finally:
            subprocess.run(["ip", "link", "del", near], check=False, capture_output=True)

    @contextlib.contextmanager
    def beyond(self, path, address):
        """Makes a namespace with the address, behind a veth pair or two TAPs and a wire.

        Also returns the interface on this side, which is not configured.
        """
        with contextlib.ExitStack() as stack:
            space = stack.enter_context(Namespace(self.env))
            if path == "tap":
                near, far = self.link("tn"), self.link("tf")
                stack.enter_context(self.env.running(
                    [self.env.build / "tests/wire/wire", "--link", f"tap:{near}",
                     "--link", f"tap:{far}"], ready="forwarding.*"))
            else:
                near, far = stack.enter_context(self.veth())
            space.take_interface(far)
            space.command("ip", "link", "set", "lo", "up")
            self.set_up(far, address, inside=space.inside())
            yield space, near

    def note(self, name, figures):
        for column, value in figures.items():
            self.results.setdefault(name, {}).setdefault(column, []).append(value)

    def median(self, name, column):
        return statistics.median(self.results[name][column])

    def show(self):
        columns = dict.fromkeys(column for row in self.results.values() for column in row)
        width = max(map(len, self.results)) + 2
        print(f"{'':{width}}" + "".join(f"{column:>32}" for column in columns))
        for name, row in self.results.items():
            cells = (span(row[column]) if column in row else "" for column in columns)
            print(f"{name:{width}}" + "".join(f"{cell:>32}" for cell in cells), flush=True)


def downloads(url, mib):
    """Returns the MiB/s of several curls that fetch so many MiB each."""
    begin = time.monotonic()
    curls = [subprocess.Popen(["curl", "-sS", "-o", "/dev/null", url])
             for _ in range(BULK_AT_ONCE)]
    for one in curls:
        check(one.wait(120) == 0, f"curl failed: {url}")
    return BULK_AT_ONCE * mib / (time.monotonic() - begin)


def verdict(what, value, goal, met):
    print(f"{what}: {value:.3g}: {'PASS' if met else 'MISS'} (goal {goal})")


def main(doc, kind, needs=(), finish=None, **numbers):
    """Measures kind(env, options).points(), a dict; finish(bench) prints the conclusions.

    numbers are options with their defaults, beside --rounds.
    """
    if harness.INSIDE not in sys.argv:
        harness.reenter()
    sys.argv.remove(harness.INSIDE)
    parser = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    for name, default in {"rounds": 3, **numbers}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    env = Env(pathlib.Path(options.build).resolve(), [])
    try:
        need_programs(*needs)
        command("ip", "link", "set", "lo", "up")
        bench = kind(env, options)
        points = bench.points()
        for number in range(options.rounds):
            for name, measure in points.items():
                bench.turn += 1
                bench.note(name, measure())
            print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr, flush=True)
        check(bench.results, "nothing was measured")
        bench.show()
        if finish:
            finish(bench)
    except (harness.Failure, harness.Skip) as trouble:
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {trouble}")
    finally:
        env.close()
