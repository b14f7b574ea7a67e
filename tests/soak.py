#!/usr/bin/env python3
"""Runs random lives for so many minutes, on every core: ./dev soak MINUTES [SEED].

Each core takes turns of half a minute: random peer and random sender, over
IPv4 and IPv6, and several shards on one queue, in the release build and under
sanitizers; one core also runs scripts of whole programs against the kernel's
TCP (test_twins.py), where that can be done. The first failure ends it, with
the seed and the command that replays it.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import threading
import time

PROGRAM = "tests/net/test-net-random"
SHARDS = "tests/net/test-net-random-shards"
TWINS = "tests/integration/test_twins.py"
TWIN_SCRIPTS = 100  # per turn
TURN_S = 30
STRIDE = 1 << 40  # distance of two cores' seeds


class Soak:
    """State shared by the cores."""

    def __init__(self, builds, seconds, seed):
        self.turns = [(build, PROGRAM, mode + weight + ip) for mode in ([], ["--differ"])
                      for weight in ([], ["--sender"]) for ip in ([], ["--ip6"])
                      for build in builds]
        self.turns[2:2] = [(build, SHARDS, []) for build in builds]
        self.until = time.monotonic() + seconds
        self.seed = seed
        self.builds = builds
        self.seeds = self.scripts = 0
        self.failed = None  # output of the failed program
        self.lock = threading.Lock()

    def seconds_left(self):
        """Returns the seconds left."""
        return self.until - time.monotonic()

    def turn(self, core, number, seed):
        """Runs lives from `seed` on for one turn; returns their number."""
        build, program, mode = self.turns[(core + number) % len(self.turns)]
        # A life of several shards takes up to a second.
        command = [os.path.join(build, program), *mode, "--from", str(seed),
                   "--count" if program == SHARDS else "--seconds",
                   f"{min(TURN_S, max(1, self.seconds_left())):.0f}"]
        done = subprocess.run(command, capture_output=True, text=True,
                              check=False)
        count = re.search(r"(\d+) seeds", done.stdout)
        with self.lock:
            if done.returncode != 0 and not self.failed:
                self.failed = f"{' '.join(command)}\n{done.stdout}{done.stderr}"
            self.seeds += int(count[1]) if count else 0
        return int(count[1]) if count else 0

    def twins(self, number, seed):
        """Runs scripts of whole programs, in their own namespaces."""
        build = self.builds[number % len(self.builds)]
        command = [sys.executable, TWINS, build, "--seeds",
                   f"{seed % 2**32}:{TWIN_SCRIPTS}"]
        done = subprocess.run(command, capture_output=True, text=True,
                              check=False)
        with self.lock:
            if done.returncode != 0 and not self.failed:
                self.failed = f"{' '.join(command)}\n{done.stdout}{done.stderr}"
            if " # SKIP" not in done.stdout:
                self.scripts += TWIN_SCRIPTS

    def core(self, index):
        """Runs turns until the time is over or a life has failed."""
        seed, number = self.seed + index * STRIDE, 0
        while self.seconds_left() > 0 and not self.failed:
            seed += self.turn(index, number, seed)
            if index == 0 and self.seconds_left() > 0 and not self.failed:
                self.twins(number, seed)
            number += 1


def report(soak, cores):
    """Prints a line per minute while the cores work."""
    said = time.monotonic()
    while not all(core.done() for core in cores):
        time.sleep(0.5)
        if time.monotonic() - said >= 60:
            said = time.monotonic()
            print(f"soak: {soak.seeds} seeds, {max(0, soak.seconds_left()):.0f} s left",
                  flush=True)


def main():
    minutes, seed, *builds = sys.argv[1:]
    soak = Soak(builds, float(minutes) * 60,
                int(seed) if seed else int(time.time()) * 1000)
    print(f"soak: {minutes} minutes on {os.cpu_count()} cores, from seed "
          f"{soak.seed}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        cores = [pool.submit(soak.core, i) for i in range(os.cpu_count())]
        report(soak, cores)
    for core in cores:
        core.result()
    print(f"soak: {soak.seeds} seeds, {soak.scripts} scripts of whole programs")
    if soak.failed:
        print(soak.failed, end="")
        return 1
    print("soak: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
