#!/usr/bin/env python3
"""coronet-echo on bonds: connections survive losses of members.

Usage: test_bond.py BUILD_DIR
"""

import contextlib
import functools
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.request

from harness import WAIT_MAX_S, READY, Namespace, Skip, check, command, eventually, main
from test_links import bond_member_word, checksums_in_software

RARP = 0x8035  # EtherType of a bond's announcement of its address
ADDR = ["--addr", "10.9.0.1/16"]
ADDR6 = ["--addr", "fd00:9::1/64"]


class Stream:
    """A connection that echoes all the time, and compares the bytes."""

    def __init__(self, address, port=0):
        self.sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.sock.settimeout(WAIT_MAX_S)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(("", port))
        self.sock.connect((address, 7777))
        self.rounds, self.wrong, self.ends = 0, None, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.ends:
                data = os.urandom(20000)
                self.sock.sendall(data)
                back = b""
                while len(back) < len(data):
                    part = self.sock.recv(65536)
                    check(part, "the connection has ended")
                    back += part
                check(back == data, "other bytes came back")
                self.rounds += 1
        except Exception as wrong:  # pylint: disable=broad-exception-caught
            self.wrong = wrong

    def goes_on(self, what):
        """Waits for echoes of bytes sent after this call."""
        enough = self.rounds + 20
        eventually(lambda: self.rounds > enough or self.wrong, WAIT_MAX_S, f"{what}: it stands")
        check(not self.wrong, f"{what}: {self.wrong!r}")

    def end(self):
        self.ends = True
        self.thread.join(WAIT_MAX_S)
        check(not self.wrong, repr(self.wrong))
        self.sock.close()


@contextlib.contextmanager
def bridge(*ports):
    """A bridge for the members, optionally with existing interfaces."""
    command("ip", "link", "set", "lo", "up")  # for the metrics
    command("ip", "link", "add", "br0", "type", "bridge")
    try:
        checksums_in_software("br0")
        # A fixed address: otherwise a bridge has that of a port, which the bond changes.
        command("ip", "link", "set", "br0", "address", "02:00:00:00:00:aa", "up")
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "br0")
        command("ip", "-6", "addr", "add", "fd00:9::2/64", "dev", "br0", "nodad")
        for port in ports:
            command("ip", "link", "set", port, "master", "br0")
        yield
    finally:
        command("ip", "link", "del", "br0")


@contextlib.contextmanager
def veths(*names):
    """Makes a0 and a1, b0 and b1, ...: one end for the bond, the other for its switch."""
    try:
        for name in names:
            command("ip", "link", "add", f"{name}0", "type", "veth", "peer", "name", f"{name}1")
            for end in (f"{name}0", f"{name}1"):
                command("ip", "link", "set", end, "up")
        yield
    finally:
        for name in names:
            # It is gone if its other end was in a namespace that has ended.
            subprocess.call(["ip", "link", "del", f"{name}1"], stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def elsewhere(env, *interfaces):
    """A namespace for interfaces, whose kernel sends nothing by them. net_af_packet of two
    programs in one namespace may choose the same number for a group of sockets."""
    with Namespace(env) as there:
        there.command("sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
        for interface in interfaces:
            there.take_interface(interface)
            there.command("ip", "link", "set", interface, "up")
        yield there


def links_of(env, folder):
    return command(env.app("coronet-ctl"), f"--control={folder}/control", "links")


def sender_of(env, folder):
    return re.search(r"^0\.sender +(\S+)$", links_of(env, folder), re.MULTILINE).group(1)


def echo_on(env, folder, link, *options, there=None):
    argv = [env.app("coronet-echo"), "--link", link, *ADDR, "--port", "7777", "--poll", "adaptive",
            "--control", f"{folder}/control", "--metrics", "127.0.0.1:9464", *options]
    return env.running(there.inside(*argv) if there else argv)


def live_through_losses(env, folder, server, far_ends, members):
    """Each member loses its carrier and gets it back, then all of them at once."""
    streams = [Stream("10.9.0.1"), Stream("fd00:9::1")]

    def turn(end, state):
        command("ip", "link", "set", end, state)
        line = f"member {members[far_ends.index(end)]} {state}"
        count = server.output("stderr").count(line)
        eventually(lambda: server.output("stderr").count(line) >= max(count, 1), WAIT_MAX_S,
                   lambda: f"no {line!r}: {server.story()}")

    for stream in streams:
        stream.goes_on("at first")
    heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    heard.bind(("br0", RARP))
    for lost, left in ((0, 1), (1, 0), (0, 1)):
        turn(far_ends[lost], "down")
        eventually(lambda m=members[left]: sender_of(env, folder) == m, WAIT_MAX_S, server.story)
        for stream in streams:
            stream.goes_on(f"without {members[lost]}")
        heard.settimeout(WAIT_MAX_S)
        mac = re.search(r"^0\.mac +(\S+)$", links_of(env, folder), re.MULTILINE).group(1)
        check(heard.recv(64)[:12].hex(":") == f"ff:ff:ff:ff:ff:ff:{mac}", "another announcement")
        turn(far_ends[lost], "up")
        for stream in streams:
            stream.goes_on(f"with {members[lost]} again")
    turn(far_ends[1], "down")
    eventually(lambda: sender_of(env, folder) == members[0], WAIT_MAX_S, server.story)
    turn(far_ends[0], "down")
    eventually(lambda: "bond:b0: down, no carrier" in server.output("stderr"), WAIT_MAX_S,
               server.story)
    check(re.search(r"^0\.state +down$", links_of(env, folder), re.MULTILINE), "it is not down")
    turn(far_ends[1], "up")
    for stream in streams:
        stream.goes_on("after all were lost")
        stream.end()
    check(re.search(r"^0\.carrier_losses +1$", links_of(env, folder), re.MULTILINE),
          links_of(env, folder))
    with urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=WAIT_MAX_S) as answer:
        page = answer.read().decode()
    for wanted in ('coronet_link_up{link="bond:b0"} 1\n',
                   'coronet_link_carrier_losses_total{link="bond:b0"} 1\n',
                   'coronet_link_sender_changes_total{link="bond:b0"} 5\n'):
        check(wanted in page, f"no {wanted!r} in {page}")
    # One line per event: nine of members, five of the sender, two of the bond.
    lines = [line for line in server.output("stderr").splitlines() if "bond:b0" in line]
    check(len(lines) == 16, f"{len(lines)} lines: {lines}")


def backup_over_veths(env):
    folder = env.scratch_for({})
    with veths("a", "b"), bridge():
        for end in ("a1", "b1"):
            command("ip", "link", "set", end, "master", "br0")
        with echo_on(env, folder, "bond:b0,members=af_packet:a0+af_packet:b0", *ADDR6) as server:
            live_through_losses(env, folder, server, ["a1", "b1"],
                                ["af_packet:a0", "af_packet:b0"])
            server.terminate()


def backup_over_taps(env, *options):
    """TAP members are set down at the kernel's side."""
    folder = env.scratch_for({})
    with bridge():
        with echo_on(env, folder, "bond:b0,members=tap:ta+tap:tb", *ADDR6, *options) as server:
            for end in ("ta", "tb"):
                command("ip", "link", "set", end, "master", "br0", "up")
            live_through_losses(env, folder, server, ["ta", "tb"], ["tap:ta", "tap:tb"])
            server.terminate()


def received_frames():
    """Returns the received frames of each kernel interface."""
    with open("/proc/net/dev", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[2:]]
    return {row[0].rstrip(":"): int(row[2]) for row in rows}


@contextlib.contextmanager
def testpmd_bond(env, ends, tap):
    """DPDK's own 802.3ad over interfaces, forwarding between them and a TAP."""
    program = shutil.which("dpdk-testpmd")
    if not program:
        raise Skip("dpdk-testpmd is not installed")
    member = bond_member_word()
    devices = [f"--vdev=net_af_packet{i},iface={end}" for i, end in enumerate(ends)]
    bond = ",".join(f"{member}=net_af_packet{i}" for i in range(len(ends)))
    cpu = min(os.sched_getaffinity(0))
    forwarder = env.start(
        [program, "--no-huge", "-m", "512", "--no-shconf", "--no-pci", "--no-telemetry",
         "--lcores", f"0@{cpu},1@{cpu}", *devices, f"--vdev=net_tap0,iface={tap}",
         f"--vdev=net_bonding0,mode=4,{bond}", "--", "--forward-mode=io", "--auto-start",
         f"--portlist={len(ends)},{len(ends) + 1}", "--total-num-mbufs=16384",
         "--no-lsc-interrupt", "--disable-link-check"], stdin=subprocess.PIPE)
    try:
        eventually(lambda: tap in received_frames() or not forwarder.alive(), WAIT_MAX_S,
                   forwarder.story)
        check(forwarder.alive(), forwarder.story())
        yield
    finally:
        forwarder.kill()


LACP = "bond:b0,mode=802.3ad,members=af_packet:a0+af_packet:b0"


def lacp_carries_connections(env):
    folder = env.scratch_for({})
    with veths("a", "b"), elsewhere(env, "a0", "b0") as there, \
            testpmd_bond(env, ("a1", "b1"), "peer0"), \
            echo_on(env, folder, LACP, *ADDR6, there=there) as server:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "peer0")
        command("ip", "-6", "addr", "add", "fd00:9::2/64", "dev", "peer0", "nodad")
        checksums_in_software("peer0")
        command("ip", "link", "set", "peer0", "up")
        carry_connections_by_both()
        check("sender" not in links_of(env, folder), "802.3ad has no one member that sends")
        server.terminate()


def carry_connections_by_both():
    for address in ("10.9.0.1", "fd00:9::1"):
        ping = ["ping", "-q", "-c", "1", "-W", "1", address]
        eventually(lambda p=ping: subprocess.call(p, stdout=subprocess.DEVNULL) == 0, WAIT_MAX_S,
                   "the two sides do not agree")
    # The low bits of a port choose the member; the kernel gives out even ones.
    streams = [Stream("10.9.0.1", port) for port in range(20000, 20016)]
    before = received_frames()
    for end in ("a1", "b1"):
        eventually(lambda e=end: received_frames()[e] > before[e] + 100, WAIT_MAX_S,
                   f"{end} gets nothing")
    for stream in streams:
        stream.goes_on("over both")
        stream.end()


def lacp_goes_on_while_idle(env):
    """An idle program answers a restarted LACP partner."""
    folder = env.scratch_for({})
    with veths("a", "b"), elsewhere(env, "a0", "b0") as there, \
            echo_on(env, folder, LACP, there=there) as server:
        with testpmd_bond(env, ("a1", "b1"), "peer0"):
            eventually(lambda: re.search(r"^0\.ports\.0\.tx_frames +[1-9]", links_of(env, folder),
                                         re.MULTILINE), WAIT_MAX_S, "the stack's first frame waits")
        for _ in range(3):
            before = received_frames()
            with testpmd_bond(env, ("a1", "b1"), "peer0"):
                for end in ("a1", "b1"):
                    eventually(lambda e=end, n=before[end]: received_frames()[e] > n, WAIT_MAX_S,
                               f"{end}: a new partner is not answered")
        server.terminate()


def bonds_that_cannot_be(env):
    for members, status, wanted in (
            ("tap:ta", 2, "1 member; expected two or more"),
            ("tap:ta+tap:ta", 2, "'tap:ta' is a member already"),
            ("tap:ta+memif:/tmp/e.sock", 2, "takes no other MAC address"),
            ("tap:a+tap:b+tap:c+tap:d+tap:e", 2, "more than 4 members"),
            ("tap:ta+nosuch:b", 2, "unknown kind 'nosuch'"),
            ("tap:ta+af_packet:nosuch0", 1, "there is no interface 'nosuch0'"),
            ("tap:ta+port:net_tap7", 1, "DPDK has no port of that name"),
            ("tap:ta+tap:tb,mode=backup", 2, "expected active-backup or 802.3ad"),
            ("tap:ta+tap:tb,queues=2", 2, "queues=2 for only 1 shard")):
        server = env.start([env.app("coronet-echo"), "--link", f"bond:b0,members={members}",
                            *ADDR])
        check(server.wait(WAIT_MAX_S) == status and wanted in server.output("stderr") and
              READY not in server.output("stdout"), f"no {wanted!r}: {server.story()}")


def cases(env):
    for function in (backup_over_veths, backup_over_taps, lacp_carries_connections,
                     lacp_goes_on_while_idle, bonds_that_cannot_be):
        yield function.__name__.replace("_", " "), functools.partial(function, env)
    yield ("backup over taps with two shards",
           functools.partial(backup_over_taps, env, "--shards", "2"))


if __name__ == "__main__":
    main(cases)
