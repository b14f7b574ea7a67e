#!/usr/bin/env python3
"""Every writable variable of lwIP belongs to a shard or to a thread.

Usage: test_globals.py ARCHIVE...

The archives are lwIP as netstack/ builds it. A variable that is found here
belongs into GLOBALS of subprojects/packagefiles/lwip/edits.py.
"""
import subprocess
import sys

WRITABLE = (".data", ".bss", "*COM*")
CONSTANT = ".data.rel.ro"  # addresses, written by the loader alone


def variables(archive):
    """Yields section and name of each variable that the archive defines."""
    out = subprocess.run(["objdump", "-t", archive], capture_output=True,
                         text=True, check=True).stdout
    for line in out.splitlines():
        fields, tab, rest = line.partition("\t")
        words = fields.split()
        # value, flags, section; size and name. An object has the flag O, a
        # thread's none; d and F are sections and functions.
        if tab and len(words) >= 3 and rest and not {"d", "F", "df"} & set(words[1:-1]):
            yield words[-1], rest.split()[-1]


def main(archives):
    """Returns the exit status."""
    shared, own = [], set()
    for archive in archives:
        for section, name in variables(archive):
            if section.startswith((".tdata", ".tbss", "net_shard")):
                own.add(name)
            elif (section.startswith(WRITABLE)
                  and not section.startswith(CONSTANT)
                  and not name.startswith("__odr_asan")):
                shared.append(f"{name} ({section})")
    if shared:
        print("shards would share", ", ".join(sorted(shared)))
        return 1
    missing = {"tcp_active_pcbs", "ip_data", "arp_table", "inseg"} - own
    if missing:
        print("not found at all:", ", ".join(sorted(missing)))
        return 1
    print(f"{len(own)} variables, none of which shards share")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
