"""What the demo scripts share: their options, a pair's run, the figures."""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "integration"))

import uring  # noqa: E402
from children import Failure  # noqa: E402

SERVER_ADDR = "10.9.0.1"
CLIENT_ADDR = "10.9.1.9"
PREFIX = 16
PORT = 7777
READY_TIMEOUT = 60  # seconds: EAL initialises in there
LOAD_EXTRA = 120    # seconds a load may take beyond what it measures


def whole(low, high):
    """An argparse type: a whole number from low to high."""
    def parse(text):
        if not (text.isascii() and text.isdigit()
                and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(
                f"'{text}': expected a whole number from {low} to {high}")
        return int(text)
    return parse


def seconds(text):
    """An argparse type: a time to measure."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(
            f"'{text}': expected seconds from 0.1 to 3600")
    return value


class OneLineParser(argparse.ArgumentParser):
    """A wrong option is one line and exit status 2."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def parse_options(name, description):
    """The options of both scripts."""
    top = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    parser = OneLineParser(prog=name, description=description,
                           allow_abbrev=False)
    parser.add_argument("--seconds", type=seconds, default=5.0, metavar="N",
                        help="measured time of each run (default 5)")
    parser.add_argument("--conns", type=whole(1, 10000), default=64,
                        metavar="N", help="connections (default 64)")
    parser.add_argument("--size", type=whole(1, 65536), default=64,
                        metavar="BYTES", help="of a request (default 64)")
    parser.add_argument("--json", metavar="FILE",
                        help="write all figures there as well")
    parser.add_argument("--build", default=os.path.join(top, "build"),
                        metavar="FOLDER", help="where the programs were built")
    return parser.parse_args()


def program(options, name):
    """The path of a built program."""
    path = os.path.join(options.build, "apps", name)
    if not os.access(path, os.X_OK):
        raise Failure(f"{path} is not there: run ./dev build first")
    return path


def check_programs(options, names):
    """Fails before the first run rather than between two."""
    for name in names:
        program(options, name)


def no_uring(options, children):
    """Why uring-echo cannot run here; None if it can."""
    path = os.path.join(options.build, "apps", "uring-echo")
    if not os.access(path, os.X_OK):
        return uring.NOT_BUILT
    server = children.start("uring-echo", [path, "--addr", "127.0.0.1",
                                           "--port", "0"])
    try:
        server.wait_for_line("listening on", READY_TIMEOUT)
        server.stop()
    except Failure:
        return uring.refusal(server.messages())
    return None


def two_cores():
    """A core for each of two busy programs; the same one if there is but one."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[min(1, len(cores) - 1)]


def load(children, name, options, argv, watch):
    """Runs a load tool with its progress shown; returns its figures."""
    path = children.path(name + ".json")
    argv = argv + ["--mode", "echo", "--conns", str(options.conns),
                   "--size", str(options.size),
                   "--seconds", f"{options.seconds:g}", "--json", path,
                   # The table says it where the load was the limit.
                   "--report-limited"]
    # Its progress belongs on the terminal, not in a file.
    children.run(name, argv, options.seconds + LOAD_EXTRA, watch=watch,
                 stderr=None)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Failure(f"{name} left no figures: {error}") from None


def coronet_pair(children, options, kind, cores, watch=()):
    """coronet-echo loaded by coronet-load. kind(i) is the link of each."""
    server_core, load_core = cores
    server = children.start("coronet-echo", [
        program(options, "coronet-echo"), "--link", kind(0),
        "--addr", f"{SERVER_ADDR}/{PREFIX}", "--port", str(PORT),
        "--lcore", str(server_core)])
    server.wait_for_line("listening on", READY_TIMEOUT)
    figures = load(children, "coronet-load", options, [
        program(options, "coronet-load"), "--link", kind(1),
        "--addr", f"{CLIENT_ADDR}/{PREFIX}",
        "--target", f"{SERVER_ADDR}:{PORT}", "--lcore", str(load_core)],
        watch=[server, *watch])
    server.stop()
    return figures


def kernel_pair(children, options, cores, name):
    """epoll-echo or uring-echo loaded by epoll-load on the loopback interface."""
    server_core, load_core = cores
    server = children.start(name, [
        program(options, name), "--addr", "127.0.0.1", "--port", "0",
        "--cpu", str(server_core)])
    port = server.wait_for_line("listening on", READY_TIMEOUT).split(":")[-1]
    figures = load(children, "epoll-load", options, [
        program(options, "epoll-load"), "--target", f"127.0.0.1:{port}",
        "--cpu", str(load_core)], watch=[server])
    server.stop()
    return figures


LATENCIES = (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999"))


def as_time(value_us):
    """Microseconds in the unit that reads best."""
    if value_us < 1000:
        return f"{value_us:.1f} us"
    return f"{value_us / 1000:.2f} ms"


def as_ratio(value):
    """Three digits that count, and never an exponent."""
    if 0.001 <= value < 999.5:
        return f"{value:.3g} x"
    return f"{value:,.0f} x" if value >= 1 else f"{value:.4f} x"


def row(label, cells):
    """A line of the table."""
    return f"{label:<24}" + "".join(f"{cell:>14}" for cell in cells)


def ratios(ours, theirs):
    """ours / theirs: the rate, then the latencies."""
    pairs = [(ours["requests_per_s"], theirs["requests_per_s"])]
    pairs += [(ours["latency_us"][key], theirs["latency_us"][key])
              for _, key in LATENCIES]
    return [a / b if b else 0 for a, b in pairs]


def print_table(rows, over=()):
    """rows: (label, figures); over: (label, figures) that the first row is
    divided by."""
    print(row("", ["requests/s"] + [name for name, _ in LATENCIES]))
    for label, figures in rows:
        print(row(label, [f"{figures['requests_per_s']:,.0f}"] +
                  [as_time(figures["latency_us"][key])
                   for _, key in LATENCIES]))
    for label, theirs in over:
        print(row(label, [as_ratio(value)
                          for value in ratios(rows[0][1], theirs)]))
    for label, figures in rows:
        if figures.get("generator_limited"):
            print(f"({label}: {figures['tool']} had no time to spare, the "
                  "server may be faster than this.)")


def write_json(options, figures):
    """All figures, where --json says."""
    if not options.json:
        return
    try:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)
            file.write("\n")
    except OSError as error:
        raise Failure(f"--json '{options.json}': {error.strerror}") from None
