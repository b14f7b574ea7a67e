#!/usr/bin/env python3
"""Checks that docs/globals.md lists all writable variables that threads share.

A shard writes only to its own variables. A variable found here that is not in the list becomes a
field of struct net_stack or a NET_SHARD_VAR, or gets a row that says why threads may share it.
Usage: check_globals.py PAGE ARCHIVE...
"""

import pathlib
import re
import subprocess
import sys

HEADING = "# Variables that threads share"
ROW = re.compile(r"^\| `(?P<folder>\w+)/[\w/]+\.[cS]` \| (?P<names>[^|]+) \|",
                 re.M)
LIBRARY = re.compile(r"(?:^|/)(?P<folder>netstack|coro|asm|dpdk_glue)/(?:\w+/)?lib[^/]+\.a")
WRITABLE = (".data", ".bss", "*COM*")
CONSTANT = ".data.rel.ro"  # addresses, written by the loader alone
ADDED = ("__odr_asan", ".L", "__gcov", "__sancov", "DW.ref")  # by compilers


def listed(page):
    """Returns the folder and name of each variable in the list."""
    text = page.read_text().split(HEADING, 1)
    if len(text) != 2:
        sys.exit(f"{page}: no heading '{HEADING}'")
    rows = re.split(r"^##", text[1], flags=re.M)[0]
    return {(row["folder"], name)
            for row in ROW.finditer(rows)
            for name in re.findall(r"`(\w+)`", row["names"])}


def variables_of(archive):
    """Returns the folder, name and object of each writable variable in an archive. lwIP, which is
    part of netstack's, has its own test."""
    out = subprocess.run(["objdump", "-t", archive], capture_output=True,
                         text=True, check=True).stdout
    source = folder = ""
    for line in out.splitlines():
        if "file format" in line:
            source = line.split(":")[0]
            at = LIBRARY.search(source) or LIBRARY.search(archive)
            folder = at["folder"] if at else ""
        fields, tab, rest = line.partition("\t")
        words = fields.split()
        if not tab or "liblwip" in source or {"d", "F", "df"} & set(words[1:-1]):
            continue
        section, name = words[-1], rest.split()[-1]
        if (section.startswith(WRITABLE) and not section.startswith(CONSTANT)
                and not name.startswith(ADDED)):
            yield folder, re.sub(r"\.\d+$", "", name), source.rsplit("/", 1)[-1]


def main():
    """Returns the exit status."""
    page, archives = pathlib.Path(sys.argv[1]), sys.argv[2:]
    there = [variable for archive in archives for variable in variables_of(archive)]
    documented, bad = listed(page), False
    for folder, name, source in there:
        if (folder, name) not in documented:
            print(f"{folder}: threads would share {name} of {source}: see {page}")
            bad = True
    for folder, name in sorted(documented - {variable[:2] for variable in there}):
        print(f"note: {page.name} lists {name} of {folder}, which is gone")
    print(f"{len(there)} variables that threads share")
    if not there:
        sys.exit("none at all: are these our archives?")
    return bad


if __name__ == "__main__":
    sys.exit(main())
