#!/usr/bin/env python3
"""Checks the layers of netstack/ by symbols, as check_layers.sh checks them by includes.

An object uses symbols of its own folder and of those before it in the order of check_layers.sh. A
folder can declare a function that a later one defines, and call it without an include: each such
call is listed below with its reason.
Usage: check_calls.py SOURCE_ROOT ARCHIVE
"""

import pathlib
import re
import subprocess
import sys

ORDER = re.compile(r"^order='(?P<folders>[a-z ]+)'$", re.M)
MEMBER = re.compile(r"\[(?P<path>[^\]]+)\]:$")
UNDEFINED = "Uvw"  # the types of nm that do not define a symbol

# Reasons by the symbol that is called, for the folders that may call it.
EVENT = "an event is reported where it happens, and control/ writes it (program/events.h)"
POST = "a public call to another shard"
ALLOWED = {
    "net_shard_here": ("*", "the shard that the thread runs (state.h)"),
    "net_event_say_dial": ("api", EVENT),
    "net_event_say_listener": ("api", EVENT),
    "net_event_say_opened": ("api", EVENT),
    "net_event_say_refused": ("tcp", EVENT),
    "net_event_say_rto": ("conn", EVENT),
    "net_event_say_unasked": ("link", EVENT),
    "net_post": ("link control", POST),
    "net_call": ("control", POST),
    "net_serve_with": ("tls", "net_serve_tls() listens on every shard, as net_serve() does"),
    "net_stack_close": ("tls", "the public call; net_serve_tls() closes the stack, as net_serve() does"),
    "net_stack_stats": ("control", "the public call that reads a shard's counters"),
    "net_udp_local_addr": ("udp", "the public call, for a message about a misused socket"),
    "net_stack_stopping": ("api control", "the public call that asks whether the stack stops"),
    "net_clock_ns": ("control", "the public call that reads the clock"),
    "net_addr_parse": ("program", "a public call, for the options of addresses"),
    "net_addr_parse_prefix": ("program", "the same"),
    "net_listener_established": ("tcp", "a completed handshake is handed to its listener"),
    "net_predict_output": ("recovery", "the last step of output sends what prediction prepared"),
    "net_random": ("recovery", "BBR draws its phase from the generator of sequence numbers"),
    "net_link_send_tcp": ("tcp", "predicted output goes past lwIP's IP to the link"),
    "net_link_confirm6": ("tcp", "progress of a connection shows that its neighbour is reachable"),
    "net_link_send_reply": ("tcp", "a reply without a pcb goes past lwIP's IP to the link"),
}


def folder_of(root, path):
    """Returns the folder of netstack/ that an object's source lies in; "": in none."""
    folder, _, source = path.name.removesuffix(".o").partition("_")
    return folder if (root / "netstack" / folder / source).exists() else ""


def read_objects(root, archive):
    """Returns the folder, name, definitions and uses of each object of an archive."""
    out = subprocess.run(["nm", "-P", archive], check=True, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL).stdout
    objects = []
    for line in out.splitlines():
        member = MEMBER.search(line)
        if member:
            path = pathlib.PurePath(member["path"])
            objects.append((folder_of(root, path), path.name, set(), set()))
            continue
        symbol, kind = line.split()[:2]
        objects[-1][3 if kind in UNDEFINED else 2].add(symbol)
    return objects


def main():
    """Returns the exit status."""
    root, archive = pathlib.Path(sys.argv[1]), sys.argv[2]
    order = ORDER.search((root / "tests/check_layers.sh").read_text())["folders"].split()
    # lwIP calls everything but the loop, and everything may call lwip/.
    rank = {folder: at for at, folder in enumerate(order)} | {"lwip": order.index("shard") - 0.5}
    objects = [entry for entry in read_objects(root, archive) if entry[0] in rank]
    home = {symbol: folder for folder, _, defined, _ in objects if folder != "lwip"
            for symbol in defined}
    bad, used = False, set()
    for folder, name, _, uses in objects:
        for symbol in sorted(uses):
            if symbol not in home or rank[home[symbol]] <= rank[folder]:
                continue
            used.add(symbol)
            callers, _ = ALLOWED.get(symbol, ("", ""))
            if callers != "*" and folder not in callers.split():
                print(f"{name}: {folder}/ uses {symbol} of {home[symbol]}/, which stands above it")
                bad = True
    for symbol in sorted(ALLOWED.keys() - used):
        print(f"{symbol}: no lower folder uses it any more: remove it from check_calls.py")
        bad = True
    if not home:
        sys.exit(f"{archive}: no object of netstack/")
    print(f"calls: {len(objects)} objects, {len(used)} symbols used against the order")
    return bad


if __name__ == "__main__":
    sys.exit(main())
