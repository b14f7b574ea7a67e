#!/usr/bin/env python3
"""Checks that operators can see every counter: that each member of struct net_stats is a metric, and
that docs/operate.md has each metric of the stack.
Usage: check_counters.py SOURCE_ROOT
"""

import pathlib
import re
import sys

STATS = re.compile(r"^struct net_stats \{\n(?P<body>.*?)^\};", re.M | re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
MEMBERS = re.compile(r"(?:u?int64_t|unsigned|struct net_hist)\s+(?P<names>[^;]+);")
METRIC = re.compile(r'"(coronet_\w+)"')


def members(header):
    """Returns the names of the members of struct net_stats."""
    body = COMMENT.sub("", STATS.search(header)["body"])
    return [name.strip() for found in MEMBERS.finditer(body) for name in found["names"].split(",")]


def main():
    """Returns the exit status."""
    root = pathlib.Path(sys.argv[1])
    metrics = (root / "netstack/control/metrics.c").read_text()
    page = (root / "docs/operate.md").read_text()
    names = members((root / "netstack/include/coronet/net_stack.h").read_text())
    bad = False
    for name in names:
        if not re.search(rf"\b{name}\b", metrics):
            print(f"net_stats.{name}: no metric of netstack/control/metrics.c has it")
            bad = True
    for name in METRIC.findall(metrics):
        if not re.search(rf"\b{name}\b", page):
            print(f"{name}: docs/operate.md does not describe it")
            bad = True
    if len(names) < 60:
        sys.exit(f"only {len(names)} members found: has struct net_stats another form?")
    print(f"counters: {len(names)}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
