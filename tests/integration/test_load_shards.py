#!/usr/bin/env python3
"""coronet-load with several shards against coronet-echo with several.

Usage: test_load_shards.py BUILD_DIR
"""

import functools
import json
import re
import signal

from harness import WAIT_MAX_S, check, eventually, main
from test_links import TARGETS, Pair, check_load

CONNS = 61  # a prime, which no number of shards divides
PAIRS = ((1, 1), (1, 4), (2, 1), (2, 2), (4, 2), (4, 4))  # the load's shards, the server's
STATS = ["--stats", "0.2", "--memory", "1G"]


class LoadShards(Pair):
    """coronet-load and coronet-echo with several shards each."""

    def __init__(self, env, load_shards, echo_shards):
        user = env.ordinary_user()
        path = env.scratch_for(user) / "l.sock"
        super().__init__(env, f"memif:{path},role=server", f"memif:{path},role=client", user)
        self.echo += ["--shards", echo_shards, *STATS]
        self.load += ["--shards", load_shards, *STATS, "--target", TARGETS["IPv4"]]


def accepted(server):
    """Returns the connections that a server has accepted, by its statistics."""
    return sum(map(int, re.findall(r"stats: rx .*\+(\d+) accepted", server.output("stderr"))))


def check_accepted(server, before, opened):
    """Checks the server's connections, which include those of shorter tries (check_load())."""
    eventually(lambda: accepted(server) - before >= opened, WAIT_MAX_S,
               lambda: f"{accepted(server) - before} of {opened} accepted: {server.story()}")


def check_counts(mode, report, conns):
    """Checks that the shards' counts add up to the requested total."""
    if mode != "cps":
        check(report["opened"] == conns and report["open_at_end"] == conns,
              f"{mode}: {conns} connections asked for: {report}")
    if mode == "idle":
        check(report["answered_before"] == conns and report["answered_after"] == conns,
              f"not all answered: {report}")
        check(report["latency_us"]["samples"] == conns, f"connects: {report['latency_us']}")
    if mode in ("echo", "cps"):
        check(report["bytes"] == report["requests"] * report["size"], f"{mode}: {report}")
        check(report["latency_us"]["samples"] == report["requests"], f"{mode}: {report}")


def every_mode(env, load_shards, echo_shards, conns):
    pair = LoadShards(env, load_shards, echo_shards)
    done = {"echo": "requests", "cps": "requests", "bulk": "bytes", "idle": "opened"}
    with pair.serve() as server:
        for mode, what in done.items():
            before = accepted(server)
            report = check_load(pair, "--mode", mode, "--conns", conns, seconds=0.5,
                                enough=lambda report, what=what: report[what] >= conns)
            check_counts(mode, report, conns)
            check_accepted(server, before, report["opened"])
        server.terminate()


def connections_of(load, shards):
    """Returns each shard's connections, by the last statistics."""
    if shards == 1:
        return [int(n) for n in re.findall(r"stats: rx .* (\d+) connections,",
                                           load.output("stderr"))][-1:]
    found = re.findall(r"shard (\d+): .* (\d+) connections,", load.output("stderr"))
    return [int(n) for _, n in found[-shards:]]


def dealt_out(conns, shards):
    used = min(conns, shards)
    parts = [conns * (k + 1) // used - conns * k // used for k in range(used)]
    return parts + [0] * (shards - used)


def each_shard_has_its_connections(env, shards, conns, mode, signo):
    """Each shard has its connections, and a signal ends all, with one report."""
    pair = LoadShards(env, shards, 2)
    expected = dealt_out(conns, shards)
    with pair.serve() as server:
        load = pair.start_load("--mode", mode, "--conns", conns, "--seconds", "3600",
                               "--timeout", WAIT_MAX_S, "--verify")
        # The statistics also count connections that are still being opened.
        eventually(lambda: connections_of(load, shards) == expected and accepted(server) >= conns
                   or not load.alive(), WAIT_MAX_S,
                   lambda: f"{connections_of(load, shards)}, not {expected}: {load.story()}")
        check(load.alive(), f"it ended by itself: {load.story()}")
        load.signal(signo)
        status = load.wait(WAIT_MAX_S)
        report = json.loads(load.output("stdout"))
        check(report["interrupted"] and report["errors"]["total"] == 0, f"{report}")
        check(report["opened"] == conns and report["open_at_end"] == conns, f"{report}")
        check(status == 0, f"exit status {status}: {load.story()}")
        server.terminate()


def one_text_report(env):
    pair = LoadShards(env, 3, 2)
    with pair.serve() as server:
        load = env.start([*pair.load, "--conns", "9", "--seconds", "1", "--timeout", WAIT_MAX_S],
                         **pair.user)
        status = load.wait(WAIT_MAX_S)
        lines = load.output("stdout").splitlines()
        check(status == 0 and lines[0].startswith("coronet-load: echo, 9 connections"),
              f"status {status}: {load.story()}")
        for word in ("measured", "requests", "latency", "errors", "generator"):
            check(sum(line.startswith(f"  {word} ") for line in lines) == 1,
                  f"not one line of {word}: {load.story()}")
        server.terminate()


def no_peer_at_the_start(env):
    """While the link is not up, a signal ends the load without a report."""
    user = env.ordinary_user()
    for shards in ("1", "3"):
        path = env.scratch_for(user) / "n.sock"
        load = env.start([env.readable_build(user) / "apps/coronet-load", "--link",
                          f"memif:{path},role=server", "--addr", "10.9.1.9/16", "--json",
                          "--target", TARGETS["IPv4"], "--poll", "adaptive",
                          "--shards", shards, *STATS], **user)
        eventually(lambda load=load: "stats:" in load.output("stderr"), WAIT_MAX_S,
                   lambda load=load: f"it does not run: {load.story()}")
        load.signal(signal.SIGTERM)
        status = load.wait(WAIT_MAX_S)
        check(status == 1 and load.output("stdout") == "", f"status {status}: {load.story()}")


def cases(env):
    bind = functools.partial
    for load_shards, echo_shards in PAIRS:
        yield (f"every mode, {load_shards} shards load {echo_shards}",
               bind(every_mode, env, load_shards, echo_shards, CONNS))
    yield "fewer connections than shards", bind(every_mode, env, 4, 2, 3)
    for shards, conns, mode, signo in (
            (1, 5, "echo", signal.SIGINT), (2, CONNS, "echo", signal.SIGTERM),
            (4, CONNS, "bulk", signal.SIGINT), (4, CONNS, "idle", signal.SIGINT),
            (4, 3, "echo", signal.SIGTERM), (4, 1, "idle", signal.SIGTERM)):
        yield (f"{mode}: {conns} connections on {shards} shards",
               bind(each_shard_has_its_connections, env, shards, conns, mode, signo))
    yield "one report in text", bind(one_text_report, env)
    yield "no peer at the start", bind(no_peer_at_the_start, env)


if __name__ == "__main__":
    main(cases)
