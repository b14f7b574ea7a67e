#!/usr/bin/env python3
"""summary.py, on logs that are written here. Usage: test_summary.py; prints TAP."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
JUNIT = """<testsuites><testsuite name="coronet.net-tcp">
<testcase name="good"/><testcase name="bad"><failure/></testcase>
<testcase name="left out"><skipped/></testcase></testsuite></testsuites>"""
TAP = """TAP version 13
ok 1 - good
# 0.1 s
not ok 2 - bad
# 3 != 4
# peer.c:12: error
ok 3 - left out # SKIP no root
1..3
"""


def logged(name, result, stdout="", stderr="", status=0):
    return {"name": name, "result": result, "stdout": stdout, "stderr": stderr,
            "returncode": status}


def summary(*tests, junit=JUNIT):
    """Returns summary.py's output for these tests, and its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder)
        (build / "meson-info").mkdir()
        (build / "meson-info/intro-projectinfo.json").write_text(
            json.dumps({"descriptive_name": "coronet"}))
        if tests:
            (build / "meson-logs").mkdir()
            (build / "meson-logs/testlog.json").write_text(
                "".join(json.dumps(test) + "\n" for test in tests))
            (build / "meson-logs/testlog.junit.xml").write_bytes(
                junit.encode(errors="surrogateescape"))
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "summary.py"), folder],
                              check=False, capture_output=True, text=True)
        return done.stdout.replace(folder, "BUILD"), done.returncode


def test_last_line_counts_subtests():
    out, status = summary(logged("net-tcp", "FAIL", TAP, status=1), logged("layers", "OK"))
    assert out.splitlines()[-1] == "2 passed, 1 failed, 1 skipped", out
    assert status == 1


def test_output_that_xml_forbids():
    for bad in "\x00", "\x06", "\x1b[0m", "\ufffe", "\udcff":  # the last: a byte, no UTF-8
        printed = f"<system-out>Response ({bad})</system-out>"
        out, _ = summary(logged("net-tcp", "FAIL", TAP, status=1),
                         junit=JUNIT.replace("</testsuite>", printed + "</testsuite>"))
        assert out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped", (bad, out)


def rerun(result, *words):
    """Returns summary.py's output for a test that failed and ran again with this result."""
    with tempfile.TemporaryDirectory() as folder:
        logs = pathlib.Path(folder) / "meson-logs"
        logs.mkdir()
        first = [logged("coronet:unit / a", "FAIL", "", "why", 1), logged("coronet:unit / b", "OK")]
        again = logged("coronet:unit / a", result, "", "why", int(result != "OK"))
        (logs / "testlog.json").write_text("".join(json.dumps(test) + "\n" for test in first))
        failed = subprocess.run([sys.executable, "-B", os.path.join(HERE, "summary.py"),
                                 "--failed", folder], check=True, capture_output=True, text=True)
        assert failed.stdout == "a\n", failed.stdout
        (logs / "testlog-again.json").write_text(json.dumps(again) + "\n")
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "summary.py"), *words,
                               folder], check=False, capture_output=True, text=True)
        return done.stdout, done.returncode


def test_flaky_test_is_reported_and_passes():
    out, status = rerun("OK")
    assert (out.splitlines()[-1], status) == ("2 passed, 0 failed", 0), out
    assert "flaky: " in out and "why" in out, out


def test_flaky_test_fails_a_strict_run():
    out, status = rerun("OK", "--strict")
    assert (out.splitlines()[-1], status) == ("2 passed, 1 failed", 1), out


def test_test_that_fails_twice_fails():
    out, status = rerun("FAIL")
    assert (out.splitlines()[-1], status) == ("1 passed, 1 failed", 1), out
    assert "flaky: " not in out, out


def test_further_runs_and_parts_count():
    with tempfile.TemporaryDirectory() as folder:
        logs = pathlib.Path(folder) / "meson-logs"
        logs.mkdir()
        for name in "testlog", "testlog-more":
            (logs / f"{name}.json").write_text(json.dumps(logged(name, "OK")) + "\n")
        def run(*words):
            done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "summary.py"), folder,
                                   *words], check=False, capture_output=True, text=True)
            return done.stdout.splitlines(), done.returncode
        out, status = run("lint=0", "fuzz-20=0")
        assert (out[-1], status) == ("4 passed, 0 failed", 0), out
        out, status = run("lint=1", folder + "/none")
        assert (out[-1], status) == ("2 passed, 1 failed", 1), out
        assert "FAILED lint: see its output above" in out, out


def test_failed_case_says_why():
    out, _ = summary(logged("net-tcp", "FAIL", TAP, status=1))
    assert "FAILED BUILD: net-tcp: bad\n    3 != 4\n    peer.c:12: error\n" in out, out
    assert "0.1 s" not in out and "good" not in out, out


def test_reason_on_stderr_is_shown():
    out, _ = summary(logged("net-tcp", "FAIL", "not ok 1 - bad\n1..1\n", "went wrong\n", 1))
    assert "net-tcp: bad\n    went wrong\n" in out, out
    out, _ = summary(logged("net-tcp", "FAIL", TAP, "a child: n == 0\n", 1))
    assert "net-tcp: bad\n    a child: n == 0\n    3 != 4\n" in out, out


def test_crash_shows_its_last_lines():
    lines = "".join(f"line {i}\n" for i in range(100))
    out, status = summary(logged("layers", "FAIL", lines, "it fell\n", -11))
    assert "layers: FAIL, exit status -11" in out, out
    assert "    it fell\n" in out and "line 99" in out and "line 79\n" not in out, out
    assert out.endswith("\n0 passed, 1 failed\n") and status == 1, out


def test_timeout_is_a_failure():
    out, status = summary(logged("net-tcp", "TIMEOUT", "ok 1 - good\n", status=-9))
    assert "net-tcp: TIMEOUT" in out and status == 1, out


def test_nothing_wrong_is_one_line():
    out, status = summary(logged("layers", "OK"))
    assert out == "\n1 passed, 0 failed\n" and status == 0, out


def test_nothing_run_is_a_failure():
    out, status = summary()
    assert out == "\n0 passed, 0 failed\n" and status == 1, out


TESTS = [function for name, function in sorted(globals().items()) if name.startswith("test_")]


def main():
    failed = 0
    print(f"1..{len(TESTS)}")
    for number, test in enumerate(TESTS, 1):
        try:
            test()
            print(f"ok {number} - {test.__name__}")
        except AssertionError as bad:
            failed += 1
            print(f"not ok {number} - {test.__name__}")
            print("# " + str(bad).replace("\n", "\n# "))
    return 1 if failed else 0


sys.exit(main())
