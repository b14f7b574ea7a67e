#!/usr/bin/env python3
"""The share of each folder's lines that the tests execute, by gcovr.

Usage: coverage.py BUILD_DIR FOLDER...
Run in the source root. Files of a folder are listed, worst first, with the lines that were not
executed. Exit status 1 below the goal in any folder.
"""

import json
import subprocess
import sys

GOAL = 90.0  # per cent of a folder's lines
LISTED = 12  # files a folder, at most


def measured(build, folders):
    """gcovr's JSON: {file: {line: count}}."""
    filters = [word for folder in folders for word in ("--filter", f"{folder}/")]
    # gcov derives counts of branches from others. A function that had not returned when its
    # program ended may get a negative one, which gcovr takes for an error.
    done = subprocess.run(["gcovr", "--root", ".", "--object-directory", build, *filters,
                           "--gcov-ignore-parse-errors", "--json", "-", build], check=True,
                          stdout=subprocess.PIPE)
    found = {}
    for file in json.loads(done.stdout)["files"]:
        lines = found.setdefault(file["file"], {})
        for line in file["lines"]:
            if not line.get("gcovr/noncode"):
                number = line["line_number"]
                lines[number] = lines.get(number, 0) + line["count"]
    return found


def ranges(numbers):
    """[1, 2, 3, 7] as '1-3,7'."""
    spans = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def percent(run, lines):
    return 100.0 * run / lines if lines else 100.0


def report(name, files):
    """Prints one folder's line and its files'; returns the executed and all lines."""
    total = [sum(bool(count) for count in lines.values()) for lines in files.values()]
    every = [len(lines) for lines in files.values()]
    missing = sorted(((path, sorted(n for n, count in lines.items() if not count))
                      for path, lines in files.items()), key=lambda item: -len(item[1]))
    print(f"{name:<40} {percent(sum(total), sum(every)):6.1f} %  {sum(total)} of {sum(every)}")
    for path, lines in [item for item in missing if item[1]][:LISTED]:
        print(f"  {path:<38} {len(lines):4} not run: {ranges(lines)[:120]}")
    return sum(total), sum(every)


def main():
    build, folders = sys.argv[1], sys.argv[2:]
    found = measured(build, folders)
    sums, low = [], []
    for folder in folders:
        files = {path: lines for path, lines in found.items() if path.startswith(folder + "/")}
        sums.append(report(folder, files))
        if percent(*sums[-1]) < GOAL or not files:
            low.append(folder)
    run, lines = map(sum, zip(*sums))
    print(f"{'total':<40} {percent(run, lines):6.1f} %  {run} of {lines}")
    if low:
        print(f"coverage: below {GOAL:g} %: {', '.join(low)}")
    return 1 if low else 0


sys.exit(main())
