#!/usr/bin/env python3
"""Links with a VLAN (vlan=ID) against the kernel's TCP behind an 802.1Q tag.

Usage: test_vlan.py BUILD_DIR
"""

import contextlib
import functools
import random
import re
import socket
import struct
import threading

from harness import WAIT_MAX_S, accepted_by, check, command, comment, eventually, main
from test_links import (ECHO_ADDRS, TARGETS, arp_request, check_load, checksums_in_software,
                        memif_pair)
from test_peers import dial_server, read_exactly
from vlan_device import Raw, vlan_device

VID = 7
HOSTS = ("10.9.0.1", "fd00:9::1")
PAYLOADS = {"10.9.0.1": 1472, "fd00:9::1": 1452}  # of a ping of 1500 bytes
SIZES = (1, 1460, 3000, 4 << 20)
CONNS = 64  # so that neither of two shards is likely to go without


@contextlib.contextmanager
def echo_on(env, link, *options):
    argv = [env.app("coronet-echo"), "--link", link, *ECHO_ADDRS, "--port", "7777", "--poll",
            "adaptive", "--stats", "0.2", *options]
    with env.running(argv) as server:
        yield server


@contextlib.contextmanager
def kernel_on(lower):
    """The kernel has addresses on the VLAN interface only."""
    command("ip", "link", "set", lower, "up")
    with vlan_device(lower, "v7", VID) as made:
        comment(f"{lower}: {made}")
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "v7")
        command("ip", "addr", "add", "fd00:9::2/64", "dev", "v7", "nodad")
        command("ip", "link", "set", "v7", "mtu", 1500, "up")
        yield


def check_echo(host, size):
    """Checks that the same bytes come back while more are being sent."""
    data = random.Random(size).randbytes(size)
    with dial_server(host) as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        received = read_exactly(sock, size)
        sender.join()
        check(received == data, "the echo differs from what was sent")


def check_everything(host):
    """Checks pings as long as the MTU, and echoes from a byte to many full segments."""
    command("ping", "-c", "2", "-i", "0.2", "-w", WAIT_MAX_S, "-M", "do", "-s", PAYLOADS[host],
            host)
    for size in SIZES:
        check_echo(host, size)
    with dial_server(host) as sock:
        sock.sendall(b"x")
        read_exactly(sock, 1)
        mss = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        check(mss >= 1500 - (72 if ":" in host else 52), f"the MSS is {mss}")


def check_shards(server, shards):
    """Connections reach every shard, and each shard answers."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(dial_server(HOSTS[i % 2])) for i in range(CONNS)]
        for sock in socks:
            sock.sendall(b"y" * 3000)
        for sock in socks:
            check(read_exactly(sock, 3000) == b"y" * 3000, "the echo differs")
        eventually(lambda: len([n for n in accepted_by(server).values() if n]) == shards,
                   WAIT_MAX_S, lambda: f"{accepted_by(server)} were taken: {server.story()}")


def tap_echo(env, shards, keys=""):
    options = ["--shards", shards, "--memory", "1G"] if shards > 1 else []
    with echo_on(env, f"tap:vl0,vlan={VID}{keys}", *options) as server, kernel_on("vl0"):
        for host in HOSTS:
            check_everything(host)
        if shards > 1:
            check_shards(server, shards)
        server.terminate()


def tap_splits_tso_frames(env):
    """net_tap finds IP behind the tag when it splits a TSO frame."""
    with echo_on(env, f"tap:vl0,vlan={VID},tso=on", "--mtu", 1486) as server, kernel_on("vl0"):
        check_echo(HOSTS[0], 4 << 20)
        server.terminate()


def af_packet_echo(env, shards):
    """The kernel removes the tag, and DPDK reports it in the mbuf."""
    options = ["--shards", shards, "--memory", "1G"] if shards > 1 else []
    command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    try:
        command("ip", "link", "set", "veth0", "up")
        with (echo_on(env, f"af_packet:veth0,vlan={VID}", *options) as server,
              kernel_on("veth1")):
            for interface in ("veth1", "v7"):
                checksums_in_software(interface)
            for host in HOSTS:
                check_everything(host)
            if shards > 1:
                check_shards(server, shards)
            server.terminate()
    finally:
        command("ip", "link", "del", "veth0")


def memif_echo(env, family, mtu):
    """Both ends have the tag."""
    pair = memif_pair(env, "--mtu", mtu)
    for argv in (pair.echo, pair.load):
        argv[argv.index("--link") + 1] += f",vlan={VID}"
    with pair.serve() as server:
        check_load(pair, "--target", TARGETS[family], "--mode", "bulk", "--conns", "8",
                   enough=lambda report: report["bytes"] > 1 << 20)
        server.terminate()


def memif_datagrams(env):
    """coronet-echo sends the frames back that the datagrams came in."""
    pair = memif_pair(env)
    for argv in (pair.echo, pair.load):
        argv[argv.index("--link") + 1] += f",vlan={VID}"
        argv.append("--udp")
    with pair.serve() as server:
        seconds = 1
        while pair.run_load("--target", TARGETS["IPv4"], "--conns", "8", "--seconds",
                            seconds)[1]["requests"] < 1000:
            seconds *= 2
            check(seconds < WAIT_MAX_S, f"datagrams do not come back: {server.story()}")
        server.terminate()


def tagged(frame, *tags):
    """Returns the frame with tags, as (ethertype, TCI), the outermost first."""
    words = b"".join(struct.pack("!HH", *tag) for tag in tags)
    return frame[:12] + words + frame[12:]


def others_counted(server):
    found = re.findall(r"(\d+) of other VLANs", server.output("stderr"))
    return int(found[-1]) if found else 0


class Asker:
    """Sends ARP requests on an interface that has just come up."""

    def __init__(self, interface, *own_tags):
        self.raw = Raw(interface)
        self.own_tags = own_tags
        self.frame = arp_request(HOSTS[0])
        self.marks = 0
        self.answers(again=True)

    def answers(self, *frames, again=False):
        """Returns the VIDs of the replies to frames.

        A valid request with its own MAC follows them: its reply shows that they were received. It
        is repeated until the interface is up.
        """
        self.marks += 1
        mac = b"\x02\0\0\0\1" + bytes([self.marks])
        mark = tagged(self.frame[:6] + mac + self.frame[12:22] + mac + self.frame[28:],
                      *self.own_tags)
        found = {}
        for frame in frames:
            self.raw.send(frame)
        self.raw.send(mark)

        def all_there():
            if again:
                self.raw.send(mark)
            for got, vid in self.raw.incoming():
                if got[12:14] == b"\x08\x06":
                    found.setdefault(got[:6], []).append(vid)
            return mac in found
        eventually(all_there, WAIT_MAX_S, "a request of the link's own is not answered")
        return found.get(self.frame[6:12], [])

    def close(self):
        self.raw.close()


STRANGERS = {
    "untagged": [],
    "VID 0": [(0x8100, 0)],
    "another VID": [(0x8100, 8)],
    "VID 4095": [(0x8100, 4095)],
    "802.1ad": [(0x88A8, VID), (0x8100, VID)],
    "802.1Q twice": [(0x8100, VID), (0x8100, VID)],
}


def other_vlans_get_nothing(env):
    """ARP requests of other VLANs are counted and dropped; the VLAN's own is answered."""
    with echo_on(env, f"tap:vl0,vlan={VID}") as server:
        command("ip", "link", "set", "vl0", "up")
        with contextlib.closing(Asker("vl0", (0x8100, VID))) as asker:
            for sent, (name, tags) in enumerate(STRANGERS.items(), 1):
                got = asker.answers(*[tagged(asker.frame, *tags)] * 2)
                check(not got, f"{name}: answered in {got}")
                eventually(lambda sent=sent: others_counted(server) >= 2 * sent, WAIT_MAX_S,
                           lambda name=name: f"{name}: not counted: {server.story()}")
            got = asker.answers(*[tagged(asker.frame, (0x8100, 0xA000 | VID))] * 2)
            check(got == [VID] * 2, f"answered in {got}")
        server.terminate()


def without_a_vlan(env):
    """Without a VLAN, priority tags are accepted, and other tags dropped."""
    with echo_on(env, "tap:vl0") as server:
        command("ip", "link", "set", "vl0", "up")
        with contextlib.closing(Asker("vl0")) as asker:
            for tags in ([], [(0x8100, 0xE000)]):
                got = asker.answers(*[tagged(asker.frame, *tags)] * 2)
                check(got == [None] * 2, f"{tags}: answered in {got}")
            got = asker.answers(*[tagged(asker.frame, (0x8100, VID))] * 2)
            check(not got, f"answered in {got}")
            eventually(lambda: others_counted(server) == 2, WAIT_MAX_S, server.story)
        server.terminate()


def bad_vlans(env):
    """A wrong VLAN is refused in one line with the value and the range, also in a file."""
    config = env.scratch_for({}) / "vlan.conf"
    for value in ("0", "4095", "x"):
        config.write_text(f"link = tap:vl0,vlan={value}\naddr = 10.9.0.1/16\n")
        for words in (["--link", f"tap:vl0,vlan={value}", *ECHO_ADDRS], ["--config", config]):
            program = env.start([env.app("coronet-echo"), *words])
            status = program.wait(WAIT_MAX_S)
            lines = program.output("stderr").strip().splitlines()
            wanted = f"vlan is '{value}'; expected a VLAN ID from 1 to 4094"
            check(status == 2 and len(lines) == 1 and wanted in lines[0],
                  f"status {status}: {program.story()}")


def cases(env):
    bind = functools.partial
    yield "bad VLANs", bind(bad_vlans, env)
    yield "other VLANs get nothing", bind(other_vlans_get_nothing, env)
    yield "without a VLAN", bind(without_a_vlan, env)
    yield "TAP, 1 shard", bind(tap_echo, env, 1)
    yield "TAP, 2 shards", bind(tap_echo, env, 2)
    yield "TAP, 2 shards behind one queue", bind(tap_echo, env, 2, ",queues=1")
    yield "TAP splits TSO frames", bind(tap_splits_tso_frames, env)
    yield "AF_PACKET, 1 shard", bind(af_packet_echo, env, 1)
    yield "AF_PACKET, 2 shards", bind(af_packet_echo, env, 2)
    for family, mtu in (("IPv4", 1500), ("IPv6", 1500), ("IPv4", 9000), ("IPv4", 2032)):
        yield f"memif over {family}, MTU {mtu}", bind(memif_echo, env, family, mtu)
    yield "memif, datagrams", bind(memif_datagrams, env)


if __name__ == "__main__":
    main(cases)
