#!/usr/bin/env python3
"""Run tests many times on a disturbed machine; print the failures.

Each turn runs the tests once in each of three regimes: "busy", beside two endless
loops a core; "one-core", with one core for everything; "stopped", beside a process
that stops programs under test for 10 to 300 ms and continues them, at random.
Logs of turns with failures stay in BUILD_DIR/stress/.
Usage: stress.py BUILD_DIR [TURNS] [NAME...], as ./dev test stress
"""

import collections
import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading

import summary

TURNS = 5
PROCESSES = 6  # as in ./dev test


@contextlib.contextmanager
def busy(*_):
    """Runs two endless loops per core, with the tests' priority."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"])
             for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        yield []
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextlib.contextmanager
def one_core(*_):
    yield ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


def programs_of(build):
    """Returns the processes whose program is in the build folder."""
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.readlink(f"/proc/{entry}/exe").startswith(f"{build}/"):
                yield int(entry)


def stop_at_random(build, rng, done):
    """Stops one program at a time until the event is set; continues each."""
    while not done.wait(rng.uniform(0, 0.2)):
        pids = list(programs_of(build))
        pause = rng.uniform(0.01, 0.3)
        if not pids:
            continue
        pid = rng.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            done.wait(pause)
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def stopped(build, seed):
    done = threading.Event()
    thread = threading.Thread(target=stop_at_random, args=(build, random.Random(seed), done))
    thread.start()
    try:
        yield []
    finally:
        done.set()
        thread.join()


REGIMES = {"busy": busy, "one-core": one_core, "stopped": stopped}


def run(build, regime, seed, names):
    """Runs the tests once; returns (title, last line of the reason) of each failure."""
    what = names or ["--no-suite", "quick", "--no-suite", "measured"]
    with REGIMES[regime](build, seed) as prefix:
        subprocess.run(
            [*prefix, "meson", "test", "-C", build, "--no-rebuild", "--quiet", "--logbase",
             "testlog-stress", "--num-processes", str(PROCESSES), *what],
            check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    log = build / "meson-logs/testlog-stress.json"
    failures = [(title, lines[-1] if lines else "") for test in summary.tests_of(log)
                if summary.failed(test) for title, lines in summary.reasons(test)]
    if failures:
        kept = build / "stress" / f"{regime}-{seed}"
        kept.mkdir(parents=True, exist_ok=True)
        for path in log.parent.glob("testlog-stress*"):
            shutil.move(path, kept / path.name)
    return failures


def arguments():
    """Returns (build folder, turns, names of tests); exits with status 2 if they are wrong."""
    build, rest = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    turns = TURNS
    if rest and rest[0].isdigit():
        turns = int(rest.pop(0))
    if turns < 1:
        print("stress: 0 turns: expected at least 1, as in: ./dev test stress 5",
              file=sys.stderr)
        sys.exit(2)
    return build, turns, rest


def main():
    build, turns, names = arguments()
    first_seed = int(os.environ.get("CORONET_SEED", "1"))
    table = collections.defaultdict(list)
    for seed in range(first_seed, first_seed + turns):
        for regime in REGIMES:
            failures = run(build, regime, seed, names)
            print(f"seed {seed}, {regime}: {len(failures)} failed", flush=True)
            for title, reason in failures:
                table[title, regime].append((seed, reason))
    for (title, regime), found in sorted(table.items()):
        seeds = ", ".join(str(seed) for seed, _ in found)
        print(f"{title} | {regime} | {len(found)} of {turns} | seed {seeds} | {found[0][1]}")
    print(f"stress: {len(table)} rows of failures; logs are in {build}/stress/" if table
          else "stress: nothing failed")
    sys.exit(1 if table else 0)


if __name__ == "__main__":
    main()
