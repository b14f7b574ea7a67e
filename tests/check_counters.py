#!/usr/bin/env python3
"""Checks that operators can see every counter: that each member of struct net_stats is a metric, that
docs/operate.md has each metric of the stack, and that coronet-ctl's columns of shards exist.
Usage: check_counters.py SOURCE_ROOT
"""

import pathlib
import re
import sys

STATS = re.compile(r"^struct net_stats \{\n(?P<body>.*?)^\};", re.M | re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
MEMBERS = re.compile(r"(?:u?int64_t|unsigned|struct net_hist)\s+(?P<names>[^;]+);")
METRIC = re.compile(r'"(coronet_\w+)"')
COLUMNS = re.compile(r"shard_columns\[\] = \{\n(?P<rows>.*?)\};", re.S)
KEY = re.compile(r'"(?P<key>\w+)", CTL_')


def members(header):
    """Returns the names of the members of struct net_stats."""
    body = COMMENT.sub("", STATS.search(header)["body"])
    return [name.strip() for found in MEMBERS.finditer(body) for name in found["names"].split(",")]


def main():
    """Returns the exit status."""
    root = pathlib.Path(sys.argv[1])
    table = (root / "netstack/control/counters.c").read_text()
    metrics = table + (root / "netstack/control/metrics.c").read_text()
    shards = (root / "netstack/control/tables.c").read_text()
    columns = COLUMNS.search((root / "apps/ctl/coronet_ctl.c").read_text())["rows"]
    page = (root / "docs/operate.md").read_text()
    names = members((root / "netstack/include/coronet/net_stack.h").read_text())
    bad = False
    for name in names:
        if not re.search(rf"\b(AT|ONE)\({name}\)", table):
            print(f"net_stats.{name}: no metric of netstack/control/counters.c has it")
            bad = True
    for key in KEY.findall(columns):
        if not re.search(rf"\bAT\({key}\), LISTED\b", table) and f'to, "{key}",' not in shards:
            print(f"coronet-ctl shards: no shard reports {key!r}")
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
