#!/usr/bin/env python3
"""Sum the tests of meson build folders up in one line: N passed, N failed.

A TAP test counts as many as its subtests; one that died without a failed
subtest counts as one failure more. Usage: summary.py BUILD_DIR...
"""

import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
OUTCOMES = {"OK": PASSED, "EXPECTEDFAIL": PASSED, "SKIP": SKIPPED}


def subtests(junit):
    """The outcomes of each TAP test's subtests, by PROJECT.TEST."""
    found = {}
    for suite in junit.getroot().iter("testsuite"):
        outcomes = found.setdefault(suite.get("name"), [])
        for case in suite.iter("testcase"):
            if case.find("skipped") is not None:
                outcomes.append(SKIPPED)
            elif case.find("failure") is not None or case.find("error") is not None:
                outcomes.append(FAILED)
            else:
                outcomes.append(PASSED)
    return found


def outcomes_of(logs, project):
    """One outcome for each test or subtest in a folder of meson logs."""
    by_test = subtests(ElementTree.parse(logs / "testlog.junit.xml"))
    for line in (logs / "testlog.json").read_text().splitlines():
        test = json.loads(line)
        whole = OUTCOMES.get(test["result"], FAILED)
        parts = by_test.get(f"{project}.{test['name']}", [])
        yield from parts
        if not parts or (whole == FAILED and FAILED not in parts):
            yield whole


def main():
    count = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    for build in map(pathlib.Path, sys.argv[1:]):
        info = json.loads((build / "meson-info/intro-projectinfo.json").read_text())
        for outcome in outcomes_of(build / "meson-logs", info["descriptive_name"]):
            count[outcome] += 1
    skipped = f", {count[SKIPPED]} skipped" if count[SKIPPED] else ""
    print(f"{count[PASSED]} passed, {count[FAILED]} failed{skipped}")
    return 1 if count[FAILED] or not count[PASSED] else 0


sys.exit(main())
