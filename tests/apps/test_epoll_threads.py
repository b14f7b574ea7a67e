#!/usr/bin/env python3
"""epoll-load with several threads against epoll-echo with several, on loopback.

Usage: test_epoll_threads.py EPOLL_ECHO EPOLL_LOAD [NAME...]; prints TAP.
coronet-load's shards meet the same in tests/integration/test_load_shards.py.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from epoll_pair import (LOAD, TIMEOUT, Peer, Server, Spoiled, command, in_a_quiet_moment,
                        load_enough, main, run_load, run_program, wait_for)

CONNS = 61  # no number of threads divides it
THREADS = (1, 2, 4)


def dealt_out(conns, threads):
    used = min(conns, threads)
    return sorted(conns * (k + 1) // used - conns * k // used for k in range(used))


def sockets_of(process):
    """Returns the number of sockets in each thread's epoll set, without its eventfd."""
    folder = f"/proc/{process.pid}/fdinfo"
    counts = []
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):  # it may be closed by now
            with open(f"{folder}/{name}", encoding="ascii") as file:
                files = re.findall(r"^tfd:", file.read(), re.MULTILINE)
            if files:
                counts.append(len(files) - 1)
    return sorted(counts)


def threads_of(process):
    return len(os.listdir(f"/proc/{process.pid}/task"))


@contextlib.contextmanager
def running(port, *options):
    """An endless load."""
    with subprocess.Popen(command(port, "--seconds", "3600", "--json", *options),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            yield process
        finally:
            process.kill()


class Threads(unittest.TestCase):

    def check_counts(self, mode, figures, conns):
        """The threads' counts add up to the requested total."""
        self.assertEqual(figures["errors"]["total"], 0)
        if mode != "cps":
            self.assertEqual(figures["opened"], conns)
            self.assertEqual(figures["open_at_end"], conns)
        if mode == "idle":
            self.assertEqual(figures["latency_us"]["samples"], conns)
        if mode in ("echo", "cps"):
            self.assertEqual(figures["bytes"], figures["requests"] * 64)
            self.assertEqual(figures["latency_us"]["samples"], figures["requests"])

    def test_every_mode_adds_up(self):
        done = {"echo": "requests", "cps": "requests", "bulk": "bytes", "idle": "opened"}
        with Server("--threads", "2") as server:
            for threads in THREADS:
                for mode, what in done.items():
                    with self.subTest(threads=threads, mode=mode):
                        status, figures = load_enough(
                            lambda f, what=what: f[what] >= CONNS, server.port, "--verify",
                            "--mode", mode, "--conns", str(CONNS), "--threads", str(threads))
                        self.assertEqual(status, 0)
                        self.assertGreaterEqual(figures[what], CONNS)
                        self.check_counts(mode, figures, CONNS)

    def test_open_loop_keeps_its_rate(self):
        rate = 1000

        def attempt(threads):
            with Server() as server:
                status, figures = run_load(server.port, "--rate", f"{rate}", "--threads",
                                       f"{threads}", "--conns", f"{CONNS}", "--verify",
                                       "--seconds", "1")
            self.assertEqual(status, 0)
            self.assertEqual(figures["errors"]["total"], 0)
            reached = figures["requests_per_s"]
            self.assertLessEqual(reached, rate * 1.1)
            if reached < rate * 0.95:
                raise Spoiled(f"{reached} requests/s instead of {rate}")

        for threads in THREADS:
            with self.subTest(threads=threads):
                in_a_quiet_moment(lambda n=threads: attempt(n))

    def check_parts(self, threads, conns, mode, number):
        """Each thread has its connections; a signal ends all of them, with one report."""
        asked = set()

        def echo(sock):
            while data := sock.recv(65536):
                asked.add(sock)
                sock.sendall(data)

        with Peer(echo) as peer, \
                running(peer.port, "--threads", str(threads), "--conns", str(conns),
                        "--mode", mode, "--verify") as process:
            wait_for(lambda: len(asked) == conns, f"not {conns} have asked")
            self.assertEqual(sockets_of(process), dealt_out(conns, threads))
            self.assertEqual(threads_of(process), 1 + min(threads, conns))
            process.send_signal(number)
            out, _ = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0)
        figures = json.loads(out)
        self.assertTrue(figures["interrupted"])
        self.assertEqual(figures["opened"], conns)
        self.assertEqual(figures["open_at_end"], conns)
        self.assertEqual(figures["errors"]["total"], 0)

    def test_each_thread_has_its_connections(self):
        for threads, conns, mode, number in (
                (1, 5, "echo", signal.SIGINT), (2, CONNS, "echo", signal.SIGTERM),
                (4, CONNS, "bulk", signal.SIGINT), (4, CONNS, "idle", signal.SIGTERM),
                (4, 3, "echo", signal.SIGINT), (3, 1, "idle", signal.SIGINT)):
            with self.subTest(threads=threads, conns=conns, mode=mode):
                self.check_parts(threads, conns, mode, number)

    def test_latencies_of_all_threads_are_in_the_report(self):
        """One connection is answered late; it is the only one of its thread."""
        late = []

        def serve(sock):
            late.append(sock)
            pause = 0.2 if sock is late[0] else 0
            while data := sock.recv(64):
                time.sleep(pause)
                sock.sendall(data)

        with Peer(serve) as peer:
            _, figures = load_enough(
                lambda f: f["latency_us"]["samples"] > 100 and f["latency_us"]["max"] > 2e5,
                peer.port, "--threads", "2", "--conns", "2", "--seconds", "1")
        self.assertGreaterEqual(figures["latency_us"]["max"], 2e5)
        # An average of the two threads' medians would be 100 ms.
        self.assertLess(figures["latency_us"]["p50"], 1e5)

    def test_no_listener_ends_at_once_with_status_1(self):
        with Server() as server:
            port = server.port
        status, figures = run_load(port, "--threads", "3", "--conns", "9", "--seconds", "3600")
        self.assertEqual(status, 1)
        self.assertEqual(figures["errors"]["refused"], 9)

    def test_one_text_report(self):
        with Server() as server:
            done = run_program(*command(server.port, "--threads", "3", "--conns", "9",
                                "--seconds", "0.4"))
        self.assertEqual(done.returncode, 0)
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].startswith("epoll-load: echo, 9 connections"))
        for word in ("measured", "requests", "latency", "errors", "generator"):
            self.assertEqual(sum(line.startswith(f"  {word} ") for line in lines), 1, done.stdout)

    def test_threads_run_on_cpus_that_follow(self):
        cpus = sorted(os.sched_getaffinity(0))
        first = next((cpu for cpu in cpus if cpu + 1 in cpus), None)
        if first is None:
            self.skipTest("no two CPUs that follow one another")
        with Server() as server, \
                running(server.port, "--threads", "2", "--cpu", str(first)) as process:
            wait_for(lambda: threads_of(process) == 3, "there are no threads")
            wait_for(lambda: sum(sockets_of(process)) == 64, "not all are open")
            pinned = [sorted(os.sched_getaffinity(int(task)))
                      for task in os.listdir(f"/proc/{process.pid}/task")
                      if int(task) != process.pid]
        self.assertEqual(sorted(pinned), [[first], [first + 1]])

    def test_wrong_numbers_are_one_line_and_status_2(self):
        last = max(os.sched_getaffinity(0))
        for words, value in (("--threads 0", "0"), ("--threads 257", "257"),
                             ("--threads x", "x"), ("--threads", "threads"),
                             ("--cpu 1023", "1023"), ("--lcore 1x", "1x"),
                             (f"--threads 2 --cpu {last}", str(last + 1))):
            done = run_program(LOAD, "--target", "127.0.0.1:7777", *words.split())
            with self.subTest(words):
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertIn(value, done.stderr)


if __name__ == "__main__":
    sys.exit(main(Threads))
