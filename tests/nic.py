#!/usr/bin/env python3
"""coronet on DPDK's drivers of network cards, in a guest of QEMU.

Usage: nic.py BUILD_DIR [MODEL...] [--keep] [--lean]

QEMU emulates the cards, and this machine's kernel is the peer, in a network namespace. The guest
boots twice, side by side: behind an IOMMU, and without one. --keep boots the first, and says how to
enter it. --lean boots the first, with two cards and few checks. The files are in BUILD_DIR/nic.
"""

import functools
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "integration"))

from harness import INSIDE, Skip, comment, main  # noqa: E402
from nic_checks import CHECKS, IMPOSSIBLE, LEAN, MODELS, slot_of  # noqa: E402
from nic_guest import Guest, has_device, pci_address, prepare  # noqa: E402

DRIVERS = ("vfio-pci", "uio_pci_generic")
OPTIONS = {"--keep", "--lean"}


def run_check(guest, driver, name, check_name, table):
    """Runs a check of a card, and records its time for the table."""
    results = table.setdefault(f"{driver}, {check_name}", {})
    results[name], begin = "FAIL", time.monotonic()
    try:
        if why := IMPOSSIBLE.get((name, check_name)):
            raise Skip(why)
        if check_name != "refusals":
            guest.bind(pci_address(slot_of(name)), driver)
        comment(CHECKS[check_name](guest, name))
        results[name] = f"{time.monotonic() - begin:.1f} s"
    except Skip:
        results[name] = "skipped"
        raise


def cases(env):
    driver, words, table, begin = env.args[0], set(env.args[1:]), {}, time.monotonic()
    lean = "--lean" in words
    models = [name for name in (LEAN if lean else MODELS) if name in words or not words - OPTIONS]
    for name in [name for name in models if not has_device(MODELS[name][0])]:
        models.remove(name)
        IMPOSSIBLE[name, ""] = f"this QEMU has no {name}; QEMU 8 and later have it"
        yield f"{driver}: {name}", functools.partial(run_check, None, "", name, "", {})
    guest = Guest(env, {slot_of(name): MODELS[name][0] for name in models}, driver == DRIVERS[0],
                  lean)
    yield f"{driver}: boot", guest.boot
    for name in models:
        for check_name in LEAN[name] if lean else MODELS[name][1 + DRIVERS.index(driver)]:
            yield (f"{driver}: {name}: {check_name}",
                   functools.partial(run_check, guest, driver, name, check_name, table))
    if "--keep" in words:
        guest.leave_to_user()
    guest.qemu.kill()
    for row, cells in [("", {name: name for name in models}), *table.items()]:
        print(f"# {row:27}" + "".join(f"{cells.get(name, ''):>15}" for name in models))
    comment(f"{time.monotonic() - begin:.0f} s")


def run_drivers():
    """Runs this script for each driver at once. Returns whether one has failed."""
    children = [subprocess.Popen([sys.executable, "-B", *sys.argv[:2], driver, *sys.argv[2:]],
                                 stdout=subprocess.PIPE, text=True) for driver in DRIVERS]
    for child in children:
        for line in child.stdout:
            print(line, end="", flush=True)
    return any([child.wait() for child in children])


if __name__ == "__main__":
    if INSIDE not in sys.argv and not set(sys.argv) & set(DRIVERS):
        strange = set(sys.argv[2:]) - {*MODELS} - OPTIONS
        if strange or len(sys.argv) == 1:
            sys.exit(f"nic: no model {' '.join(strange)}; there are: {', '.join(MODELS)}")
        prepare(pathlib.Path(sys.argv[1]).resolve(), "--lean" in sys.argv)
        if not OPTIONS & set(sys.argv):
            sys.exit(run_drivers())
        sys.argv.insert(2, DRIVERS[0])
    main(cases, privileged=True)
