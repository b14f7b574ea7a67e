#!/usr/bin/env python3
"""Print why each failed test failed, and end with one line: N passed, N failed.

Reads the logs that `meson test` left in each build folder: testlog, and those of
further runs beside it, testlog-NAME. A TAP test counts as many as its subtests;
one that died without a failed subtest counts as one failure more. A part is
something else that was run, and its exit status; it counts as one. A test that
failed and passes in the log testlog-again is flaky: it is reported and counts as
passed, or with --strict as failed. Exit status 1 if anything failed or nothing passed.
Usage: summary.py [--strict] BUILD_DIR... [PART=STATUS...]
       summary.py --failed BUILD_DIR: the names of the tests that failed
"""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
OUTCOMES = {"OK": PASSED, "EXPECTEDFAIL": PASSED, "SKIP": SKIPPED}
REASON_LINES = 20  # of a failed case, its last ones
NOT_OK = re.compile(r"not ok \d+ -? ?(.*)")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parsed(junit):
    """Returns the tree of a JUnit file. meson writes a test's output to it unchanged, which may
    have characters that XML forbids."""
    text = junit.read_text(encoding="utf-8", errors="replace")
    return ElementTree.fromstring(NOT_XML.sub("?", text))


def subtests(junit):
    """Returns the outcomes of each TAP test's subtests, by PROJECT.TEST."""
    found = {}
    for suite in junit.iter("testsuite"):
        outcomes = found.setdefault(suite.get("name"), [])
        for case in suite.iter("testcase"):
            if case.find("skipped") is not None:
                outcomes.append(SKIPPED)
            elif case.find("failure") is not None or case.find("error") is not None:
                outcomes.append(FAILED)
            else:
                outcomes.append(PASSED)
    return found


def tests_of(log):
    """Returns meson's log of each test."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def outcomes_of(log, project, tests):
    """Returns one outcome for each test or subtest of a run."""
    junit = log.with_suffix(".junit.xml")
    by_test = subtests(parsed(junit)) if junit.exists() else {}
    for test in tests:
        whole = OUTCOMES.get(test["result"], FAILED)
        parts = by_test.get(f"{project}.{test['name']}", [])
        yield from parts
        if not parts or (whole == FAILED and FAILED not in parts):
            yield whole


def failed_cases(output):
    """Yields (case, its diagnostic lines) of a TAP output's failed subtests."""
    case, lines = None, []
    for line in output.splitlines():
        failed = NOT_OK.match(line)
        if failed or not line.startswith("#"):
            if case is not None:
                yield case, lines
            case, lines = (failed[1], []) if failed else (None, [])
        elif case is not None:
            lines.append(line.removeprefix("#").removeprefix(" "))
    if case is not None:
        yield case, lines


def reasons(test):
    """Yields (title, lines) for the reasons of a failed test."""
    errors = (test.get("stderr") or "").splitlines()
    output = test.get("stdout") or ""
    found = list(failed_cases(output))
    for number, (case, lines) in enumerate(found):
        # Child processes, and some programs that write TAP, put reasons on stderr.
        if number == 0:
            lines = [*errors[-REASON_LINES // 2:], *lines]
        yield f"{test['name']}: {case}", lines or errors
    if not found:
        how = f"{test['name']}: {test['result']}, exit status {test.get('returncode')}"
        yield how, [*output.splitlines(), *errors]


def failed(test):
    return OUTCOMES.get(test["result"], FAILED) == FAILED


def print_reasons(build, tests, word="FAILED"):
    for test in filter(failed, tests):
        for title, lines in reasons(test):
            print(f"\n{word} {build}: {title}")
            for line in lines[-REASON_LINES:]:
                print(f"    {line}")


def name_of(test):
    """Returns a test's name in the form that `meson test` accepts."""
    return test["name"].rpartition(" / ")[2]


def runs_of(build):
    """(log, its tests, tests that failed but passed when run again) of a build folder.

    A test that ran again counts by that run alone."""
    logs = sorted(build.glob("meson-logs/testlog*.json"))
    again = {name_of(test): test for log in logs if log.stem == "testlog-again"
             for test in tests_of(log)}
    for log in logs:
        tests = tests_of(log)
        if log.stem == "testlog-again":
            yield log, tests, []
            continue
        repeated = [test for test in tests if failed(test) and name_of(test) in again]
        flaky = [test for test in repeated if not failed(again[name_of(test)])]
        yield log, [test for test in tests if test not in repeated], flaky


def main():
    if sys.argv[1] == "--failed":
        logs = pathlib.Path(sys.argv[2]).glob("meson-logs/testlog*.json")
        print(" ".join(name_of(test) for log in logs for test in tests_of(log) if failed(test)))
        return 0
    words = sys.argv[1:]
    strict = "--strict" in words
    words = [word for word in words if word != "--strict"]
    count = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    for build in (pathlib.Path(word) for word in words if "=" not in word):
        info = build / "meson-info/intro-projectinfo.json"
        project = json.loads(info.read_text())["descriptive_name"] if info.exists() else ""
        for log, tests, flaky in runs_of(build):
            for outcome in outcomes_of(log, project, tests):
                count[outcome] += 1
            print_reasons(build, tests)
            print_reasons(build, flaky, "flaky:")
            count[FAILED] += len(flaky) if strict else 0
    for part, status in (word.split("=") for word in words if "=" in word):
        count[PASSED if status == "0" else FAILED] += 1
        if status != "0":
            print(f"\nFAILED {part}: see its output above")
    skipped = f", {count[SKIPPED]} skipped" if count[SKIPPED] else ""
    print(f"\n{count[PASSED]} passed, {count[FAILED]} failed{skipped}")
    return 1 if count[FAILED] or not count[PASSED] else 0


if __name__ == "__main__":
    sys.exit(main())
