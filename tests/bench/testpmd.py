#!/usr/bin/env python3
"""coronet's echo pair with dpdk-testpmd between them.

testpmd owns two vhost-user ports and forwards each to the other (io mode), as
a virtual switch would; coronet-echo sits on one, coronet-load on the other.
"""

import os
import shutil
import subprocess

import figures
from children import Children, Failure, check, main

MBUFS = 16384
MEMORY_MB = 256


def choose_cores():
    """Cores for the server, the load and testpmd's forwarding.

    Of the three only testpmd never sleeps: on two cores it has one for itself,
    and the pair, which waits for each other anyway, shares the other. On one core it gets the time
    that the pair leaves.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= 3:
        return cores[0], cores[1], cores[2]
    return cores[0], cores[0], cores[-1]


def only_idle_time():
    """Runs in testpmd's process: gives it the lowest priority."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def command(paths, prefix, main_core, core):
    """testpmd's command line: a core for its prompt, one for forwarding."""
    program = shutil.which("dpdk-testpmd")
    if not program:
        raise Failure("dpdk-testpmd is not there: run ./dev setup, or install "
                      "Debian's package dpdk-dev")
    # Line buffered, since its output is waited for.
    argv = ["stdbuf", "-oL", program, "--no-huge", "-m", str(MEMORY_MB), "--no-pci",
            "--no-shconf", "--no-telemetry", "--file-prefix", prefix,
            "--lcores", f"0@{main_core},1@{core}"]
    for i, path in enumerate(paths):
        argv += ["--vdev", f"net_vhost{i},iface={path}"]
    return argv + ["--", "-i", "--forward-mode=io", "--auto-start",
                   "--disable-link-check", f"--total-num-mbufs={MBUFS}"]


def finish(forwarder):
    """Gets testpmd's counters and ends it; returns its output."""
    try:
        forwarder.process.stdin.write(b"show port stats all\nquit\n")
        forwarder.process.stdin.close()
        forwarder.process.wait(60)
    except (OSError, subprocess.TimeoutExpired):
        raise Failure(f"dpdk-testpmd did not follow 'quit': {forwarder.story()}") from None
    check(forwarder.process.returncode == 0, f"dpdk-testpmd failed: {forwarder.story()}")
    lines = forwarder.output("stdout").splitlines()
    starts = [i for i, line in enumerate(lines) if "NIC statistics" in line]
    ends = [i for i, line in enumerate(lines)
            if line.strip() and not line.strip().strip("#")]
    check(starts and ends, f"dpdk-testpmd printed no counters: {forwarder.story()}")
    # Rates cover the time since the last query, when nothing ran.
    return "\n".join(line for line in lines[starts[0]:ends[-1] + 1]
                     if line.strip() and "pps:" not in line
                     and "Throughput" not in line)


def remove_runtime_folder(prefix):
    """EAL leaves root's run-time folder behind, empty but for its sockets."""
    if os.geteuid() == 0:
        shutil.rmtree(os.path.join("/var/run/dpdk", prefix),
                      ignore_errors=True)


def testpmd():
    """Runs the three processes; returns the figures and testpmd's counters."""
    options = figures.parse_options(
        "testpmd", "Runs coronet-echo and coronet-load on two vhost-user "
        "ports that dpdk-testpmd forwards between.")
    for name in ("coronet-echo", "coronet-load"):
        figures.program_path(options, "apps", name)  # or fails before the first run
    server_core, load_core, core = choose_cores()
    prefix = f"coronet-testpmd-{os.getpid()}"
    try:
        with Children("testpmd") as children:
            paths = [children.path(f"vhost{i}.sock") for i in range(2)]
            forwarder = children.start(
                command(paths, prefix, server_core, core),
                prepare=only_idle_time if core == server_core else None,
                stdin=subprocess.PIPE)
            forwarder.wait_ready("io packet forwarding.*")
            print(f"coronet through dpdk-testpmd, {options.seconds:g} s:",
                  flush=True)
            coronet = figures.coronet_pair(
                children, options, lambda i: f"vhost:{paths[i]}",
                (server_core, load_core), watch=[forwarder])
            counters = finish(forwarder)
    finally:
        remove_runtime_folder(prefix)
    print(f"\n{options.conns} connections, {options.size} B requests, server "
          f"on core {server_core}, load on core {load_core}, testpmd on core "
          f"{core}\n")
    figures.print_table([("coronet over vhost-user", coronet)])
    print("\ndpdk-testpmd's own counters:\n" + counters)
    figures.write_json(options, {"coronet": coronet})
    return 0


if __name__ == "__main__":
    main(testpmd)
