#!/usr/bin/env python3
"""coronet's echo server beside the kernel's, on this machine, right now.

Needs no privilege, no hugepage and no NIC: coronet's two processes are joined
by memif, the kernel's by the loopback interface: a server on epoll, and one on
io_uring where the kernel has it.
"""

import figures
from children import Children, main

WHAT_IT_SHOWS = """\
What this shows: memif is memory shared by two processes, with no NIC and no
wire, and loopback is the kernel's whole TCP path twice on one machine; so this
compares two software paths under one load, and says nothing of a network."""


def demo():
    """Both pairs, one after the other, and the table."""
    options = figures.parse_options(
        "demo", "Runs coronet-echo and coronet-load over memif, then "
        "epoll-echo and uring-echo with epoll-load on loopback, and prints "
        "their figures side by side.")
    cores = figures.two_cores()
    for name in ("coronet-echo", "coronet-load", "epoll-echo", "epoll-load"):
        figures.program_path(options, "apps", name)  # or fails before the first run
    with Children("demo") as children:
        refusal = figures.no_uring(options, children)
        path = children.path("memif.sock")
        roles = ("server", "client")

        print(f"coronet over memif, {options.seconds:g} s:", flush=True)
        coronet = figures.coronet_pair(
            children, options, lambda i: f"memif:{path},role={roles[i]}",
            cores)
        print(f"epoll on loopback, {options.seconds:g} s:", flush=True)
        epoll = figures.kernel_pair(children, options, cores, "epoll-echo")
        uring = None
        if not refusal:
            print(f"io_uring on loopback, {options.seconds:g} s:", flush=True)
            uring = figures.kernel_pair(children, options, cores,
                                        "uring-echo")

    shared = " (shared: there is only one)" if cores[0] == cores[1] else ""
    print(f"\n{options.conns} connections, {options.size} B requests, server "
          f"on core {cores[0]}, load on core {cores[1]}{shared}\n")
    rows = [("coronet over memif", coronet), ("epoll on loopback", epoll)]
    over = [("coronet / epoll", epoll)]
    if uring:
        rows.append(("io_uring on loopback", uring))
        over.append(("coronet / io_uring", uring))
    figures.print_table(rows, over)
    if refusal:
        print(f"(io_uring on loopback: not measured: {refusal})")
    print("\n" + WHAT_IT_SHOWS)
    figures.write_json(options, {
        "coronet": coronet, "epoll": epoll, "io_uring": uring,
        "io_uring_reason": refusal,
        "requests_ratio": figures.ratios(coronet, epoll)[0],
        "requests_ratio_io_uring":
            figures.ratios(coronet, uring)[0] if uring else None})
    return 0


if __name__ == "__main__":
    main(demo)
