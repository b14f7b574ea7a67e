"""Code that the demo scripts share: their options, a pair's run, the figures."""

import argparse
import contextlib
import json
import os

from children import Failure, check
from harness import INSIDE
import uring
from tables import as_ratio, as_time

SERVER_ADDR = "10.9.0.1"
CLIENT_ADDR = "10.9.1.9"
PREFIX = 16
PORT = 7777
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LATENCIES = {"p50": "p50", "p99": "p99", "p99.9": "p999"}
LOAD_EXTRA = 120    # seconds a load may take beyond what it measures


def number(kind, low, high, what):
    """An argparse type: an int or a float from low to high."""
    def parse(text):
        with contextlib.suppress(ValueError):
            if text.isascii() and low <= kind(text) <= high:
                return kind(text)
        raise argparse.ArgumentTypeError(f"'{text}': expected {what} from {low:g} to {high:g}")
    return parse


def whole_number(low, high):
    return number(int, low, high, "a whole number")


seconds = number(float, 0.1, 3600, "seconds")


class OneLineParser(argparse.ArgumentParser):
    """A wrong option is one line and exit status 2."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def new_parser(name, description):
    """With the options that every script has."""
    parser = OneLineParser(prog=name, description=description, allow_abbrev=False)
    parser.add_argument("--build", default=os.path.join(TOP, "build"), metavar="FOLDER",
                        type=os.path.abspath, help="where the programs were built")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser


def add_json(parser):
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")


def parse_options(name, description):
    """The options of both scripts."""
    parser = new_parser(name, description)
    parser.add_argument("--seconds", type=seconds, default=5.0, metavar="N",
                        help="measured time of each run (default 5)")
    parser.add_argument("--conns", type=whole_number(1, 10000), default=64, metavar="N",
                        help="connections (default 64)")
    parser.add_argument("--size", type=whole_number(1, 65536), default=64, metavar="BYTES",
                        help="of a request (default 64)")
    add_json(parser)
    return parser.parse_args()


def program_path(options, *path):
    """The path of a built program."""
    program = os.path.join(options.build, *path)
    check(os.access(program, os.X_OK), f"{program} is not there: run ./dev build first")
    return program


def no_uring(options, children):
    """Why uring-echo cannot run here; None if it can."""
    path = os.path.join(options.build, "apps", "uring-echo")
    if not os.access(path, os.X_OK):
        return uring.NOT_BUILT
    server = children.start([path, "--addr", "127.0.0.1", "--port", "0"])
    try:
        server.wait_ready().terminate()
    except Failure:
        return uring.refusal(server.output("stderr"))
    return None


def two_cores():
    """A core for each of two busy programs; the same one if there is but one."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[min(1, len(cores) - 1)]


def run_load(children, argv, timeout, **rest):
    """Runs a load tool to its end; returns the figures that it wrote."""
    path = children.path("load.json")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # the last run's
    load = children.run([*argv, "--json", path], timeout, **rest)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Failure(f"{load.name} left no figures: {error}") from None


def pair(children, options, server, load, watch=()):
    """A server loaded by a tool, argv each; {port} is what the server listens on."""
    server = children.start(server).wait_ready()
    port = server.output("stdout").split(":")[-1].strip()
    # Its progress belongs on the terminal, not in a file; the table says it where the load was
    # the limit.
    found = run_load(children, [
        word.format(port=port) for word in load] + [
            "--mode", "echo", "--conns", str(options.conns), "--size", str(options.size),
            "--seconds", f"{options.seconds:g}", "--report-limited"],
        options.seconds + LOAD_EXTRA, watch=[server, *watch], stderr=None)
    server.terminate()
    return found


def coronet_pair(children, options, kind, cores, watch=()):
    """coronet-echo loaded by coronet-load. kind(i) is the link of each."""
    return pair(children, options, [
        program_path(options, "apps", "coronet-echo"), "--link", kind(0), "--addr",
        f"{SERVER_ADDR}/{PREFIX}", "--port", str(PORT), "--lcore", str(cores[0])], [
        program_path(options, "apps", "coronet-load"), "--link", kind(1), "--addr",
        f"{CLIENT_ADDR}/{PREFIX}", "--target", f"{SERVER_ADDR}:{PORT}", "--lcore",
        str(cores[1])], watch)


def kernel_pair(children, options, cores, name):
    """epoll-echo or uring-echo loaded by epoll-load on the loopback interface."""
    return pair(children, options, [
        program_path(options, "apps", name), "--addr", "127.0.0.1", "--port", "0", "--cpu",
        str(cores[0])], [
        program_path(options, "apps", "epoll-load"), "--target", "127.0.0.1:{port}", "--cpu",
        str(cores[1])])


def ratios(ours, theirs):
    """ours / theirs: the rate, then the latencies."""
    pairs = [(ours["requests_per_s"], theirs["requests_per_s"])]
    pairs += [(ours["latency_us"][key], theirs["latency_us"][key]) for key in LATENCIES.values()]
    return [a / b if b else 0 for a, b in pairs]


def print_table(rows, over=()):
    """rows: (label, figures); over: (label, figures) that the first row is divided by."""
    lines = [("", ["requests/s", *LATENCIES])]
    lines += [(label, [f"{figures['requests_per_s']:,.0f}",
                       *[as_time(figures["latency_us"][key]) for key in LATENCIES.values()]])
              for label, figures in rows]
    lines += [(label, map(as_ratio, ratios(rows[0][1], theirs))) for label, theirs in over]
    for label, cells in lines:
        print(f"{label:<24}" + "".join(f"{cell:>14}" for cell in cells))
    for label, figures in rows:
        if figures.get("generator_limited"):
            print(f"({label}: {figures['tool']} had no time to spare, the server may be faster "
                  "than this.)")


def write_json(options, figures):
    """All figures, where --json says."""
    if options.json:
        try:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(figures, file, indent=2)
                file.write("\n")
        except OSError as error:
            raise Failure(f"--json '{options.json}': {error.strerror}") from None
