#!/usr/bin/env python3
"""coronet on DPDK's drivers of network cards, in a guest of QEMU.

Usage: nic.py BUILD_DIR [MODEL...] [--keep] [--lean]

QEMU emulates the cards, and this machine's kernel is the peer, in a network namespace. The guest
boots twice: behind an IOMMU, and without one. --keep stops after the first boot and says how to
enter the guest. --lean boots once, with two cards and few checks. The files are in BUILD_DIR/nic.
"""

import functools
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "integration"))

from harness import INSIDE, Skip, comment, main  # noqa: E402
from nic_checks import CHECKS, IMPOSSIBLE, LEAN, MODELS, slot_of  # noqa: E402
from nic_guest import Guest, has_device, pci_address, prepare  # noqa: E402

RUNS = ("vfio-pci", "uio_pci_generic")
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
    words, table, begin = set(env.args), {}, time.monotonic()
    lean, keep = "--lean" in words, "--keep" in words
    models = [name for name in (LEAN if lean else MODELS) if name in words or not words - OPTIONS]
    for name in [name for name in models if not has_device(MODELS[name][0])]:
        models.remove(name)
        IMPOSSIBLE[name, ""] = f"this QEMU has no {name}; QEMU 8 and later have it"
        yield name, functools.partial(run_check, None, "", name, "", {})
    for number, driver in enumerate(RUNS[:1] if lean or keep else RUNS, 1):
        guest = Guest(env, {slot_of(name): MODELS[name][0] for name in models},
                      driver == "vfio-pci", lean)
        yield f"{driver}: boot", guest.boot
        for name in models:
            for check_name in LEAN[name] if lean else MODELS[name][number]:
                yield (f"{driver}: {name}: {check_name}",
                       functools.partial(run_check, guest, driver, name, check_name, table))
        if keep:
            guest.leave_to_user()
        guest.end()
    for row, cells in [("", {name: name for name in models}), *table.items()]:
        print(f"# {row:27}" + "".join(f"{cells.get(name, ''):>15}" for name in models))
    comment(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    if INSIDE not in sys.argv:
        strange = set(sys.argv[2:]) - {*MODELS} - OPTIONS
        if strange or len(sys.argv) == 1:
            sys.exit(f"nic: no model {' '.join(strange)}; there are: {', '.join(MODELS)}")
        prepare(pathlib.Path(sys.argv[1]).resolve(), "--lean" in sys.argv)
    main(cases, privileged=True)
