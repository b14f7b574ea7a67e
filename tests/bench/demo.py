#!/usr/bin/env python3
"""coronet's echo server beside the kernel's, on this machine, right now.

Needs no privilege, no hugepage and no NIC: coronet's two processes are joined
by memif, the epoll pair by the loopback interface.
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
        "demo", "Runs coronet-echo and coronet-load over memif, then the "
        "epoll pair on loopback, and prints their figures side by side.")
    cores = figures.two_cores()
    figures.check_programs(options, ["coronet-echo", "coronet-load",
                                     "epoll-echo", "epoll-load"])
    with Children("demo") as children:
        path = children.path("memif.sock")
        roles = ("server", "client")

        print(f"coronet over memif, {options.seconds:g} s:", flush=True)
        coronet = figures.coronet_pair(
            children, options, lambda i: f"memif:{path},role={roles[i]}",
            cores)
        print(f"epoll on loopback, {options.seconds:g} s:", flush=True)
        epoll = figures.epoll_pair(children, options, cores)

    shared = " (shared: there is only one)" if cores[0] == cores[1] else ""
    print(f"\n{options.conns} connections, {options.size} B requests, server "
          f"on core {cores[0]}, load on core {cores[1]}{shared}\n")
    figures.print_table([("coronet over memif", coronet),
                         ("epoll on loopback", epoll)], "coronet / epoll")
    print("\n" + WHAT_IT_SHOWS)
    figures.write_json(options, {
        "coronet": coronet, "epoll": epoll,
        "requests_ratio": figures.ratios(coronet, epoll)[0]})
    return 0


if __name__ == "__main__":
    main(demo)
