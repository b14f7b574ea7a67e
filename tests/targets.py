#!/usr/bin/env python3
"""Print the ninja targets that some tests need, in one line.
Usage: targets.py BUILD_DIR SUITE_OR_TEST...
"""

import json
import pathlib
import subprocess
import sys


def introspect(build, what):
    done = subprocess.run(["meson", "introspect", f"--{what}", build], check=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main():
    build, wanted = sys.argv[1], set(sys.argv[2:])
    needed = set()
    for test in introspect(build, "tests"):
        if wanted & {test["name"], *(suite.rpartition(":")[2] for suite in test["suite"])}:
            needed.update(test["depends"])
    root = pathlib.Path(build).resolve()
    for target in introspect(build, "targets"):
        if target["id"] in needed:
            print(*(pathlib.Path(name).relative_to(root) for name in target["filename"]), end=" ")


if __name__ == "__main__":
    main()
