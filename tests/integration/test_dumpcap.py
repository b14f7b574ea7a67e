#!/usr/bin/env python3
"""dpdk-dumpcap attached to a program (--dpdk-prefix).

Usage: test_dumpcap.py BUILD_DIR
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess

from harness import WAIT_MAX_S, Skip, check, command, eventually, main
from test_capture import check_sound, fields
from test_links import TARGETS, check_load, memif_pair, under_way
from web import need_programs

PAGES = pathlib.Path("/proc/sys/vm/nr_hugepages")
# The program's size (docs/deploy.md), and the same again for dpdk-dumpcap.
ENOUGH = 80
PREFIX = f"coronet-test-{os.getpid()}"
# A sanitizer's shadow memory occupies DPDK's preferred addresses, and those used instead may be in
# use in the attaching process.
FAR_FROM_SHADOWS = ["--", "--base-virtaddr=0x200000000000"]


def pages(which):
    """Returns the number of hugepages: Total or Free."""
    return int(re.search(rf"HugePages_{which}:\s+(\d+)",
                         pathlib.Path("/proc/meminfo").read_text(encoding="ascii"))[1])


@contextlib.contextmanager
def hugepages(env, mounted=True, mode="0755"):
    """Provides enough free pages, and a hugetlbfs in this namespace only."""
    before = PAGES.read_text(encoding="ascii")
    folder = env.scratch_for(None)
    try:
        try:
            pathlib.Path("/proc/sys/vm/compact_memory").write_text("1", encoding="ascii")
            PAGES.write_text(str(int(before) + ENOUGH), encoding="ascii")
        except OSError as reason:
            raise Skip(f"hugepages cannot be set aside here: {reason}") from None
        if pages("Free") < ENOUGH:
            raise Skip(f"the kernel finds {pages('Free')} of {ENOUGH} hugepages")
        if mounted:
            command("mount", "-t", "hugetlbfs", "-o", f"mode={mode}", "none", folder)
        yield
    finally:
        if os.path.ismount(folder):
            command("umount", "--lazy", folder)
        PAGES.write_text(before, encoding="ascii")
        eventually(lambda: pages("Total") <= int(before), WAIT_MAX_S,
                   lambda: f"{pages('Total')} hugepages are left")
        shutil.rmtree(f"/var/run/dpdk/{PREFIX}", ignore_errors=True)


def shared_pair(env):
    """An echo server that others may attach to, run by root, who mounted the pages."""
    pair = memif_pair(env)
    pair.user = {}
    pair.load += ["--huge", "off"]
    pair.echo += ["--dpdk-prefix", PREFIX, *FAR_FROM_SHADOWS]
    return pair


def dumpcap(env, *words):
    return env.start(["dpdk-dumpcap", f"--file-prefix={PREFIX}", "-i", "net_memif0", *words])


def load_until(pair, enough, message):
    for _ in range(20):
        check_load(pair, "--target", TARGETS["IPv4"], "--conns", 4, "--rate", 500)
        if enough():
            return
    check(False, message())


def read_by_tshark(env):
    path = env.scratch_for(None) / "a.pcapng"
    with hugepages(env):
        pair = shared_pair(env)
        with pair.serve() as server:
            # Without a peer, only ARP frames are sent, repeatedly.
            load = pair.start_load("--target", TARGETS["IPv4"], "--conns", 4, "--rate", 500,
                                   "--interval", "0.2", "--seconds", WAIT_MAX_S)
            under_way(load)
            capture = dumpcap(env, "-q", "-c", "400", "-w", path)
            check(capture.wait(WAIT_MAX_S) == 0, capture.story())
            load.terminate()
            server.terminate()
    check_sound(path)
    ports = {words for words in fields(path, "tcp.srcport", only="tcp")}
    check(("7777",) in ports and len(ports) > 1, f"not both directions: {ports}")


def killed_while_it_captures(env):
    path = env.scratch_for(None) / "b.pcapng"
    with hugepages(env):
        pair = shared_pair(env)
        with pair.serve() as server:
            capture = dumpcap(env, "-q", "-w", path)
            load_until(pair, lambda: path.exists() and path.stat().st_size > 10000,
                       lambda: f"it wrote nothing: {capture.story()}")
            capture.kill()
            # More packets than fit.
            load_until(pair, lambda: True, None)
            check_load(pair, "--target", TARGETS["IPv4"], "--conns", 4,
                       enough=lambda report: report["requests"] > 20000)
            server.terminate()


def refused(env, words, expected):
    """A failing start prints what is missing."""
    pair = shared_pair(env)
    done = subprocess.run([*map(str, [*pair.echo[:-len(FAR_FROM_SHADOWS)], *words])],
                          capture_output=True, text=True, check=False, timeout=WAIT_MAX_S)
    check(done.returncode in (1, 2) and expected in done.stderr,
          f"status {done.returncode}: {done.stderr}")


def without_hugepages(env):
    if pages("Free") == 0:
        refused(env, [], "of 2 MiB pages are not free")
    refused(env, ["--huge", "off"], f"--dpdk-prefix {PREFIX}: other processes can "
            "attach only to hugepages, so it cannot be used with --huge off")


def name_that_is_taken(env):
    with hugepages(env), shared_pair(env).serve() as server:
        PAGES.write_text(str(int(PAGES.read_text(encoding="ascii")) + ENOUGH), encoding="ascii")
        refused(env, [], "Is another primary process running?")
        server.terminate()


def unmount_all():
    """Unmounts every hugetlbfs of this namespace."""
    mounts = subprocess.run(["findmnt", "-n", "-o", "TARGET", "-t", "hugetlbfs"], check=False,
                            capture_output=True, text=True).stdout
    for line in mounts.splitlines():
        command("umount", "--lazy", line.strip())


def without_mount(env):
    unmount_all()
    with hugepages(env, mounted=False):
        refused(env, [], "hugetlbfs")


def mount_of_root(env):
    """An unprivileged user's program gets hugepages, although it may not open a hugetlbfs."""
    unmount_all()
    with hugepages(env, mode="0700"):
        pair = memif_pair(env, "--stats", "0.2")
        with pair.serve() as server:
            eventually(lambda: "MiB of hugepages" in server.output("stderr"), WAIT_MAX_S,
                       lambda: f"no hugepages are used: {server.story()}")
            server.terminate()


def cases(env):
    need_programs("dpdk-dumpcap")
    yield "dpdk-dumpcap: tshark reads what it wrote", lambda: read_by_tshark(env)
    yield ("dpdk-dumpcap: killed while it captures",
           lambda: killed_while_it_captures(env))
    yield "--dpdk-prefix without hugepages", lambda: without_hugepages(env)
    yield "--dpdk-prefix that another has", lambda: name_that_is_taken(env)
    yield "--dpdk-prefix without a hugetlbfs", lambda: without_mount(env)
    yield "hugepages beside a hugetlbfs of root's", lambda: mount_of_root(env)


main(cases, privileged=True)
