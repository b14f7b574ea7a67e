#!/usr/bin/env python3
"""./dev demo and ./dev testpmd as a user runs them, and stopped at any time.

Usage: test_demo.py SOURCE_ROOT BUILD_ROOT; prints TAP. Each script gets a
temporary folder of its own, so that what it leaves behind is seen, and so is
any process that still carries that folder's name.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BUILD = sys.argv[1:3]
TIMEOUT = 240  # seconds: a bound for hangs


class Script:
    """A run of one of the scripts."""

    def __init__(self, name, *options, build=BUILD, seconds="0.5"):
        self.folder = tempfile.mkdtemp(prefix="coronet-test-")
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(SOURCE, "tests/bench", name + ".py"),
             "--build", build, "--seconds", seconds, *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, TMPDIR=self.folder))

    def finish(self):
        """Waits for its end; returns stdout and stderr."""
        return self.process.communicate(timeout=TIMEOUT)

    def processes(self):
        """Processes that carry the folder in their command or environment."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) in (os.getpid(), self.process.pid):
                continue
            for name in ("cmdline", "environ"):
                try:
                    with open(f"/proc/{pid}/{name}", "rb") as file:
                        if self.folder.encode() in file.read():
                            found.append(pid)
                except OSError:
                    pass
        return found

    def files(self):
        return os.listdir(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self.process:
            self.process.kill()
        shutil.rmtree(self.folder)


def becomes_true(condition):
    """Whether the condition becomes true within TIMEOUT."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Scripts(unittest.TestCase):

    def assert_nothing_left(self, script):
        self.assertEqual(script.processes(), [])
        self.assertEqual(script.files(), [])

    def figures(self, seconds):
        """Returns the output of ./dev demo, and its --json."""
        with tempfile.NamedTemporaryFile("r") as file:
            with Script("demo", "--conns", "5", "--json", file.name,
                        seconds=seconds) as script:
                out, err = script.finish()
                self.assertEqual(script.process.returncode, 0, err)
                self.assert_nothing_left(script)
            return out, json.load(file)

    def test_demo_prints_its_table(self):
        # A machine that is slow or busy gets more time.
        for seconds in ("0.5", "2", "8", "32"):
            out, figures = self.figures(seconds)
            sides = [side for side in ("coronet", "epoll", "io_uring") if figures[side]]
            few = min(figures[side]["requests"] for side in sides)
            if few > 100:
                break
        self.assertGreater(few, 100)
        self.assertIn("epoll", sides)
        for side in sides:
            self.assertEqual(figures[side]["errors"]["total"], 0)
            self.assertEqual(figures[side]["conns"], 5)
        self.assertRegex(out, r"(?m)^ +requests/s +p50 +p99 +p99.9$")
        rows = ["coronet over memif", "epoll on loopback", "coronet / epoll"]
        if "io_uring" in sides:
            self.assertIsNone(figures["io_uring_reason"])
            rows += ["io_uring on loopback", "coronet / io_uring"]
        else:
            self.assertIn("(io_uring on loopback: not measured: "
                          + figures["io_uring_reason"], out)
        for row in rows:
            self.assertRegex(out, rf"(?m)^{row}( +[\d,.]+( x| us| ms)?)+$")

    def test_without_io_uring_the_demo_says_so(self):
        """If uring-echo is not built, or the kernel refuses it, the other parts run."""
        refusal = "the kernel refuses io_uring: Operation not permitted; ask for it"
        with self.build_without_uring() as build:
            for reason in ("uring-echo is not built", refusal):
                with self.subTest(reason), \
                        Script("demo", "--conns", "5", build=build) as script:
                    out, err = script.finish()
                    self.assertEqual(script.process.returncode, 0, err)
                    self.assert_nothing_left(script)
                    self.assertIn("(io_uring on loopback: not measured: " + reason, out)
                    self.assertNotIn("coronet / io_uring", out)
                    self.assertIn("coronet / epoll", out)
                self.script(build, "uring-echo",
                            f"echo 'uring-echo: {refusal}' >&2; exit 1")

    def test_stopped_while_it_checks_for_io_uring(self):
        """The demo is stopped while the check for io_uring hangs."""
        with self.build_without_uring() as build:
            self.script(build, "uring-echo", "sleep 600\ntrue")
            with Script("demo", build=build) as script:
                self.assertTrue(becomes_true(script.processes))
                script.process.send_signal(signal.SIGTERM)
                _, err = script.finish()
                self.assertEqual(script.process.returncode, 128 + signal.SIGTERM, err)
                self.assert_nothing_left(script)

    @staticmethod
    @contextlib.contextmanager
    def build_without_uring():
        """A build folder with the demo's programs, but for uring-echo."""
        with tempfile.TemporaryDirectory() as build:
            os.mkdir(os.path.join(build, "apps"))
            for name in ("coronet-echo", "coronet-load", "epoll-echo", "epoll-load"):
                os.symlink(os.path.join(BUILD, "apps", name),
                           os.path.join(build, "apps", name))
            yield build

    @staticmethod
    def script(build, name, commands):
        """Replaces a program by a shell script."""
        path = os.path.join(build, "apps", name)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{commands}\n")
        os.chmod(path, 0o755)

    def test_ratios_of_any_size_are_plain_numbers(self):
        sys.path.insert(0, os.path.join(SOURCE, "tests/bench"))
        from tables import as_ratio
        for value, text in ((0, "0 x"), (0.00012, "0.0001 x"), (0.0456, "0.0456 x"),
                            (1, "1 x"), (12.345, "12.3 x"), (999.4, "999 x"),
                            (999.6, "1,000 x"), (1234567.8, "1.23 M x")):
            self.assertEqual(as_ratio(value), text)

    def test_testpmd_shows_frames_of_both_ports(self):
        if not shutil.which("dpdk-testpmd"):
            self.skipTest("dpdk-testpmd is not installed")
        with Script("testpmd", "--conns", "5") as script:
            out, err = script.finish()
            self.assertEqual(script.process.returncode, 0, err)
            self.assert_nothing_left(script)
        for port in range(2):
            self.assertRegex(
                out, rf"NIC statistics for port {port}(?s:.)*?"
                     r"RX-packets: [1-9]\d+")

    def stop_at_random(self, name, times, number):
        # Half a second may not suffice for a request on a busy machine, and
        # then the script fails by itself.
        chance = random.Random(number)
        for _ in range(times):
            with Script(name, seconds="10") as script:
                time.sleep(0.2 + chance.random() * 3)
                script.process.send_signal(number)
                time.sleep(chance.random() * 0.2)
                # A second signal must not keep it from clearing up.
                script.process.send_signal(signal.SIGINT)
                out, err = script.finish()
                # Negative: the signal came before the script had started. Of two that are
                # pending on a busy machine the lower number comes first.
                statuses = [0] + [status for n in (number, signal.SIGINT)
                                  for status in (128 + n, -n)]
                if "Python runtime state:" in err:
                    statuses.append(1)  # Python itself had not started
                self.assertIn(script.process.returncode, statuses, out + err)
                self.assert_nothing_left(script)

    def test_demo_interrupted_leaves_nothing(self):
        self.stop_at_random("demo", 6, signal.SIGINT)

    def test_demo_terminated_leaves_nothing(self):
        self.stop_at_random("demo", 4, signal.SIGTERM)

    def test_testpmd_interrupted_leaves_nothing(self):
        if not shutil.which("dpdk-testpmd"):
            self.skipTest("dpdk-testpmd is not installed")
        self.stop_at_random("testpmd", 4, signal.SIGINT)

    def test_a_killed_demo_takes_its_children_along(self):
        with Script("demo", seconds="600") as script:
            self.assertTrue(becomes_true(script.processes))
            script.process.kill()
            script.finish()
            self.assertTrue(becomes_true(lambda: not script.processes()),
                            "its children live on")

    def test_a_child_that_fails_is_quoted(self):
        with tempfile.TemporaryDirectory() as build:
            os.mkdir(os.path.join(build, "apps"))
            for name in ("coronet-echo", "coronet-load", "epoll-echo",
                         "epoll-load"):
                self.script(build, name, "echo no luck today >&2; exit 7")
            with Script("demo", build=build) as script:
                _, err = script.finish()
                self.assertEqual(script.process.returncode, 1)
                self.assert_nothing_left(script)
        self.assertIn("coronet-echo ended before it was ready", err)
        self.assertIn("(status 7)", err)
        self.assertIn("no luck today", err)

    def test_programs_not_built_are_one_line(self):
        with Script("demo", build="/nowhere") as script:
            out, err = script.finish()
            self.assertEqual(script.process.returncode, 1)
        self.assertEqual(out, "")
        self.assertEqual(err.count("\n"), 1)
        self.assertIn("./dev build", err)

    def test_wrong_options_are_one_line_and_status_2(self):
        for words in (["--conns", "0"], ["--conns", "x"], ["--size", "-1"],
                      ["--seconds", "nan"], ["--seconds", "0"], ["--fast"],
                      ["extra"]):
            with Script("demo", *words) as script, self.subTest(words):
                out, err = script.finish()
                self.assertEqual(script.process.returncode, 2)
                self.assertEqual(out, "")
                self.assertEqual(err.count("\n"), 1)


def main():
    """Runs the tests and prints TAP."""
    tests = list(unittest.defaultTestLoader.loadTestsFromTestCase(Scripts))
    tests = [t for t in tests if not sys.argv[3:]
             or any(n in t.id() for n in sys.argv[3:])]
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, test in enumerate(tests, 1):
        result = unittest.TestResult()
        test.run(result)
        good = result.wasSuccessful()
        failed += not good
        name = test.id().split(".", 1)[1]
        skipped = f" # SKIP {result.skipped[0][1]}" if result.skipped else ""
        print(f"{'' if good else 'not '}ok {number} - {name}{skipped}",
              flush=True)
        for _, trace in result.failures + result.errors:
            for line in trace.splitlines():
                print("#", line, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
