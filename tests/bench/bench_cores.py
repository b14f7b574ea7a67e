#!/usr/bin/env python3
"""The gain and the cost of a second shard, as ratios within one run.

    ./dev bench cores [--turns N] [--seconds S]

Shards of bench-loop have their clients in their own thread, so that two of them on two cores show
only their mutual interference. bench-hand-over measures the cost of a hand-over, in one thread
(the work alone) and between two, where cache lines move from core to core. The memif row runs
coronet-echo with one shard and with two, each with a queue, under
--poll adaptive, and as many of coronet-load's: one on the other core, or two
on the same two. Each shard has as many connections. CPU time is that of the
server's threads while requests come.
"""

import argparse
import os
import re
import statistics
import sys
import time

from children import Children, Failure, main
import figures
from harness import WAIT_MAX_S

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

CONNS = 128  # a shard, over memif


def built_path(*path):
    program = os.path.join(TOP, "build", *path)
    if not os.access(program, os.X_OK):
        raise Failure(f"{program} is not there: run ./dev build")
    return program


def run_loop(children, cpus):
    """Returns the echoes per second of shards on these CPUs, summed up."""
    argv = ["taskset", "-c", ",".join(map(str, cpus)), built_path("tests", "bench", "bench-loop"),
            "-r", "4000000", "-t", str(len(cpus)), "64"]
    text = children.run(argv, 300).output("stdout")
    found = re.search(r"(\d+) echoes a second together", text)
    if not found:
        raise Failure(f"bench-loop said: {text}")
    return int(found[1])


def hand_over(children):
    """Returns the extra ns of a frame that is handed over: in one thread, and in two."""
    text = children.run([built_path("tests", "bench", "bench-hand-over")], 300).output("stdout")
    found = [float(ns) for ns in re.findall(r"on top (-?[\d.]+) ns", text)]
    if len(found) != 2:
        raise Failure(f"bench-hand-over said: {text}")
    return found


def cpu_seconds(pid):
    """Returns the CPU seconds of all threads of a process, by the scheduler's clocks."""
    used = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            used += int(file.read().split()[0])
    return used / 1e9


def rates_after(load, seconds):
    """Returns the requests per second, for each second so far, once there are enough."""
    end = time.monotonic() + WAIT_MAX_S + seconds
    while True:
        found = re.findall(r"^ *\d+ s +([\d,]+) req/s", load.output("stderr"), re.MULTILINE)
        if len(found) >= seconds:
            return [int(rate.replace(",", "")) for rate in found]
        load.check_alive()
        if time.monotonic() > end:
            raise Failure(f"coronet-load does not report: {load.story()}")
        time.sleep(0.005)


def memif(children, shards, seconds, count):
    """Returns the server's CPU time per request, in us, without the first second."""
    path = children.path(f"{count}.sock")
    server = children.start([
        built_path("apps", "coronet-echo"), "--link", f"memif:{path},role=server",
        "--addr", f"{figures.SERVER_ADDR}/{figures.PREFIX}", "--port", str(figures.PORT),
        "--lcores", "0,1" if shards == 2 else "0", "--poll", "adaptive", "--huge", "off"])
    server.wait_ready()
    load = children.start([
        built_path("apps", "coronet-load"), "--link", f"memif:{path},role=client",
        "--addr", f"{figures.CLIENT_ADDR}/{figures.PREFIX}",
        "--target", f"{figures.SERVER_ADDR}:{figures.PORT}", "--mode", "echo",
        "--conns", str(CONNS * shards),
        "--lcores", "0,1" if shards == 2 else "1", "--seconds", str(seconds + 2),
        "--poll", "adaptive", "--huge", "off", "--interval", "1", "--report-limited"])
    rates_after(load, 1)
    before = cpu_seconds(server.process.pid)
    requests = sum(rates_after(load, 1 + seconds)[1:])
    used = cpu_seconds(server.process.pid) - before
    load.process.wait(WAIT_MAX_S)
    server.terminate()
    return used * 1e6 / requests


def print_row(what, values, unit, goal, met):
    middle = statistics.median(values)
    print(f"{what:<52}{middle:>8.3g} {unit:<3} ({min(values):.3g} - {max(values):.3g})"
          f"  {goal}  {'PASS' if met(middle) else 'MISS'}", flush=True)


def run():
    parser = argparse.ArgumentParser(prog="./dev bench cores", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7, help="of each point (default 7)")
    parser.add_argument("--seconds", type=int, default=2, help="a load's (default 2)")
    options = parser.parse_args()
    if os.cpu_count() < 2:
        raise Failure("two shards need two CPUs, and here is one")
    with Children("bench-cores") as children:
        turns = range(options.turns)
        # One shard's rate is measured on either CPU, since they may differ.
        sets = [(run_loop(children, [0]), run_loop(children, [1]), run_loop(children, [0, 1]))
                for _ in turns]
        print_row("two shards over one, echoes a second", [2 * c / (a + b) for a, b, c in sets],
                  "x", ">= 1.9", lambda x: x >= 1.9)
        frames = [hand_over(children) for _ in turns]
        for where, on_top in zip(("one thread", "two threads"), zip(*frames)):
            print_row(f"a frame handed over, on top, {where}", on_top, "ns", "<= 40",
                      lambda x: x <= 40)
        pairs = [(memif(children, 1, options.seconds, 2 * i),
                  memif(children, 2, options.seconds, 2 * i + 1)) for i in turns]
        print_row("CPU time a request, two shards over one, memif", [b / a for a, b in pairs], "x",
                  "<= 1.1", lambda x: x <= 1.1)
    return 0


if __name__ == "__main__":
    sys.exit(main(run))
