#!/usr/bin/env python3
"""coronet-echo and coronet-load over every kind of link except a real NIC.

Usage: test_links.py BUILD_DIR memif|vhost|others
"""

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import urllib.request

from harness import WAIT_MAX_S, READY, Skip, check, command, eventually, main
from test_peers import echo_large_file

ECHO_ADDRS = ["--addr", "10.9.0.1/16", "--addr", "fd00:9::1/64"]
LOAD_ADDRS = ["--addr", "10.9.1.9/16", "--addr", "fd00:9::9/64"]
TARGETS = {"IPv4": "10.9.0.1:7777", "IPv6": "[fd00:9::1]:7777"}


class Pair:
    """coronet-echo on one link, and a load over another."""

    def __init__(self, env, server_link, client_link, user, options=()):
        build = env.readable_build(user)
        self.env, self.user = env, user
        self.echo = [build / "apps/coronet-echo", "--link", server_link, *ECHO_ADDRS,
                     "--port", "7777", "--poll", "adaptive", *options]
        self.load = [build / "apps/coronet-load", "--link", client_link, *LOAD_ADDRS,
                     "--poll", "adaptive", "--interval", "0", "--report-limited", *options]

    def serve(self):
        return self.env.running(self.echo, **self.user)

    def start_load(self, *options):
        return self.env.start([*self.load, *options, "--json"], **self.user)

    def run_load(self, *options, seconds=WAIT_MAX_S):
        """Runs coronet-load to its end; returns its exit status and its JSON."""
        load = self.start_load(*options)
        status = load.wait(seconds)
        try:
            return status, json.loads(load.output("stdout")), load
        except ValueError:
            check(False, f"no JSON from {load.story()}")


def check_load(pair, *options, seconds=1, enough=lambda report: True):
    """Runs a load that must have no error; returns its JSON.

    It runs again for longer until it has done enough, since the machine may be slow. A load that
    got no answer exits with 1, and did not do enough.
    """
    while True:
        status, report, load = pair.run_load(*options, "--timeout", WAIT_MAX_S, "--verify",
                                             "--seconds", seconds)
        check(report["errors"]["total"] == 0, f"errors: {report['errors']}\n{load.story()}")
        if status == 0 and enough(report):
            return report
        seconds *= 4
        check(seconds < WAIT_MAX_S,
              f"too little was done, exit status {status}: {report}\n{load.story()}")


def measured_answers(load):
    """Whether a load with --interval got answers in its measuring phase.

    The first line of that phase counts answers of the one before as well.
    """
    lines = [line for line in load.output("stderr").splitlines()
             if " req/s" in line and not line.endswith(("(opening)", "(warm-up)"))]
    return any(re.search(r" [1-9][\d,]* req/s", line) for line in lines[1:])


def under_way(load):
    """Waits until a load with --interval has got an answer."""
    eventually(lambda: measured_answers(load) or not load.alive(), WAIT_MAX_S,
               f"nothing is answered: {load.story()}")
    check(load.alive(), f"the load ended early: {load.story()}")


def memif_pair(env, *options):
    user = env.ordinary_user()
    path = env.scratch_for(user) / "e.sock"
    return Pair(env, f"memif:{path},role=server", f"memif:{path},role=client", user, options)


def memif_echo(env, family, conns):
    pair = memif_pair(env)
    with pair.serve() as server:
        report = check_load(pair, "--target", TARGETS[family], "--conns", conns,
                            enough=lambda report: report["requests"] >= conns)
        check(report["open_at_end"] == conns, f"{report['open_at_end']} of {conns} stayed open")
        server.terminate()


def memif_without_hugepages(env):
    pair = memif_pair(env, "--huge", "off")
    with pair.serve() as server:
        check_load(pair, "--target", TARGETS["IPv4"],
                   enough=lambda report: report["requests"] > 0)
        server.terminate()


def memif_large_messages(env):
    """Messages of many segments, over frames smaller than a segment."""
    pair = memif_pair(env)
    with pair.serve() as server:
        for size in (1, 1460, 1461, 65536, 1 << 20):
            check_load(pair, "--target", TARGETS["IPv4"], "--conns", "4", "--size", size,
                       enough=lambda report: report["requests"] > 0)
        server.terminate()


def memif_mode(env, mode, *options):
    pair = memif_pair(env)
    done = {"cps": "requests", "bulk": "bytes", "idle": "open_at_end"}[mode]
    with pair.serve() as server:
        check_load(pair, "--target", TARGETS["IPv4"], "--mode", mode, "--conns", "64",
                   *options, enough=lambda report: report[done] >= 64)
        server.terminate()


def memif_jumbo_frames(env):
    """A frame takes several mbufs, received and sent; losses overlap them."""
    for mtu in (2500, 9000):
        pair = memif_pair(env, "--mtu", mtu)
        with pair.serve() as server:
            for family in TARGETS:
                check_load(pair, "--target", TARGETS[family], "--mode", "bulk", "--conns",
                           "16", enough=lambda report: report["bytes"] > 1 << 20)
            server.terminate()


def memif_clients_come_and_go(env):
    """The server outlives its peers, even one that is killed."""
    pair = memif_pair(env)
    with pair.serve() as server:
        for _ in range(3):
            check_load(pair, "--target", TARGETS["IPv4"], "--conns", "8", seconds=0.5)
        load = pair.start_load("--target", TARGETS["IPv4"], "--seconds", "3600",
                               "--interval", "0.2")
        under_way(load)
        load.kill()
        check_load(pair, "--target", TARGETS["IPv4"], "--conns", "8", seconds=0.5)
        server.terminate()


def memif_refused(env):
    """Without a listener the load fails with a message."""
    pair = memif_pair(env)
    with pair.serve():
        status, report, load = pair.run_load("--target", "10.9.0.1:7778", "--conns", "4",
                                             "--seconds", "1")
        check(status == 1, f"exit status {status}: {load.story()}")
        check(report["errors"]["total"] >= 4, f"errors: {report['errors']}")
        check(report["requests"] == 0, "requests were answered")


def memif_server_dies(env):
    pair = memif_pair(env)
    with pair.serve() as server:
        load = pair.start_load("--target", TARGETS["IPv4"], "--seconds", "3600", "--timeout", "1",
                               "--interval", "0.2")
        under_way(load)
        server.kill()
        eventually(lambda: re.search(r" [1-9][\d,]* errors", load.output("stderr")), WAIT_MAX_S,
                   f"a dead server is no error: {load.story()}")
        load.signal(signal.SIGINT)
        status = load.wait(WAIT_MAX_S)
        check(status == 1, f"exit status {status}: {load.story()}")


def memif_load_interrupted(env):
    """Ctrl-C ends a run early, with a report of the measurements."""
    pair = memif_pair(env)
    with pair.serve():
        load = pair.start_load("--target", TARGETS["IPv4"], "--seconds", "3600",
                               "--interval", "0.2")
        under_way(load)
        load.signal(signal.SIGINT)
        status = load.wait(WAIT_MAX_S)
        check(status == 0, f"exit status {status}: {load.story()}")
        report = json.loads(load.output("stdout"))
        check(report["interrupted"] and report["requests"] > 0, f"report: {report}")


def memif_socket_is_removed(env):
    pair = memif_pair(env)
    folder = next(word for word in map(str, pair.echo) if word.startswith("memif:"))
    path = folder.removeprefix("memif:").partition(",")[0]
    with pair.serve() as server:
        check(os.path.exists(path), "there is no socket while serving")
        server.terminate()
    check(not os.path.exists(path), "the socket file was left behind")


def memif_socket_has_its_mode(env):
    """Whatever the umask is, others may not connect unless mode= says so."""
    for key, want in (("", 0o600), (",mode=666", 0o666)):
        user = env.ordinary_user()
        path = env.scratch_for(user) / "e.sock"
        pair = Pair(env, f"memif:{path},role=server{key}", f"memif:{path},role=client", user,
                    ("--huge", "off"))
        for mask in (0, 0o077):
            before = os.umask(mask)
            try:
                with pair.serve():
                    mode = stat.S_IMODE(path.stat().st_mode)
                    check(mode == want, f"umask {mask:o}, '{key}': {mode:o}, not {want:o}")
            finally:
                os.umask(before)


@contextlib.contextmanager
def testpmd(env, paths, mode, queues=1):
    """dpdk-testpmd, forwarding between two vhost-user ports it serves."""
    program = shutil.which("dpdk-testpmd")
    if not program:
        raise Skip("dpdk-testpmd is not installed")
    vdevs = [f"--vdev=net_vhost{i},iface={path},queues={queues}" for i, path in enumerate(paths)]
    cpus = sorted(os.sched_getaffinity(0))
    lcores = f"0@{cpus[0]},1@{cpus[-1]}"
    forwarder = env.start(
        [program, "--no-huge", "-m", "512", "--no-shconf", "--no-pci", "--no-telemetry",
         "--lcores", lcores, *vdevs, "--", f"--forward-mode={mode}", "--auto-start",
         f"--rxq={queues}", f"--txq={queues}", "--total-num-mbufs=16384", "--no-lsc-interrupt", "--disable-link-check"],
        stdin=subprocess.PIPE)
    try:
        eventually(lambda: all(map(os.path.exists, paths)), WAIT_MAX_S, "testpmd made no sockets")
        yield forwarder
        forwarder.signal(signal.SIGINT)
        forwarder.wait(WAIT_MAX_S)
    finally:
        forwarder.kill()


def forwarded(forwarder):
    """Returns testpmd's counters of received and sent frames of each port."""
    text = forwarder.output("stdout")
    ports = re.findall(r"Forward statistics for port (\d+).*?RX-packets: (\d+).*?TX-packets: (\d+)",
                       text, re.DOTALL)
    return {int(port): (int(received), int(sent)) for port, received, sent in ports}


def vhost_through_testpmd(env, family):
    folder = env.scratch_for({})
    paths = [folder / "a.sock", folder / "b.sock"]
    pair = Pair(env, f"vhost:{paths[0]}", f"vhost:{paths[1]}", {})
    with testpmd(env, paths, "io") as forwarder:
        with pair.serve() as server:
            report = check_load(pair, "--target", TARGETS[family], "--conns", "16",
                                enough=lambda report: report["requests"] >= 16)
            server.terminate()
    counters = forwarded(forwarder)
    check(len(counters) == 2, f"no counters of two ports: {forwarder.story()}")
    for port, (received, sent) in counters.items():
        check(min(received, sent) >= report["requests"],
              f"port {port}: {received} received, {sent} sent, {report['requests']} requests")


ETHTOOL_SET_TX_CSUM = 0x17
SIOCETHTOOL = 0x8946


def checksums_in_software(interface):
    """ethtool -K INTERFACE tx off: otherwise a raw socket sees frames without the checksums that
    hardware would fill in."""
    value = struct.pack("II", ETHTOOL_SET_TX_CSUM, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        buffer = ctypes.create_string_buffer(value)
        request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(buffer))
        fcntl.ioctl(sock, SIOCETHTOOL, request)


def echo_once(host, data=b"over the wire" * 1000):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(WAIT_MAX_S)
        sock.connect((host, 7777))
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while part := sock.recv(65536):
            received += part
        check(received == data, f"{len(received)} of {len(data)} bytes came back")


def af_packet_on_veth(env):
    command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    try:
        for interface in ("veth0", "veth1"):
            checksums_in_software(interface)
            command("ip", "link", "set", interface, "up")
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "veth1")
        command("ip", "addr", "add", "fd00:9::2/64", "dev", "veth1", "nodad")
        with env.running([env.app("coronet-echo"), "--link", "af_packet:veth0", *ECHO_ADDRS,
                          "--port", "7777", "--poll", "adaptive"]) as server:
            for host in ("10.9.0.1", "fd00:9::1"):
                command("ping", "-c", "3", "-i", "0.2", "-w", WAIT_MAX_S, host)
                echo_once(host)
            server.terminate()
    finally:
        command("ip", "link", "del", "veth0")


def tap_splits_tso_frames(env):
    """Segments leave as TSO frames, net_tap splits them, and the kernel gets every byte."""
    with env.running([env.app("coronet-echo"), "--link", "tap:tso0,tso=on", *ECHO_ADDRS,
                      "--mtu", "1486", "--stats", "0.2", "--port", "7777",
                      "--poll", "adaptive"]) as server:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "tso0")
        command("ip", "addr", "add", "fd00:9::2/64", "dev", "tso0", "nodad")
        command("ip", "link", "set", "tso0", "up")
        echo_large_file(env, server, "10.9.0.1")
        said = len(server.output("stderr"))  # the next line has the rest
        eventually(lambda: server.output("stderr")[said:].count("\n") > 1, WAIT_MAX_S,
                   "--stats says nothing more")
        rates = re.findall(r"rx (\d+)/s tx (\d+)/s", server.output("stderr"))
        received, sent = (sum(map(int, column)) for column in zip(*rates))
        check(sent * 4 < received, f"{sent} frames a second sent, {received} received")
        echo_large_file(env, server, "fd00:9::1")  # net_tap splits IPv4 only
        server.terminate()


def tap_comes_once(env):
    """The interface is final when it appears: an address added then is not lost."""
    monitor = env.start(["ip", "-o", "monitor", "link"])
    made = 0

    def hears():
        nonlocal made
        command("ip", "tuntap", "add", f"heard{made}", "mode", "tap")
        made += 1
        return "heard" in monitor.output("stdout")
    eventually(hears, WAIT_MAX_S, monitor.story)
    with env.running([env.app("coronet-echo"), "--link", "tap:once0", *ECHO_ADDRS, "--poll",
                      "adaptive"]) as server:
        server.terminate()
    eventually(lambda: re.search(r"^Deleted .* once0:", monitor.output("stdout"), re.MULTILINE),
               WAIT_MAX_S, monitor.story)
    monitor.kill()
    gone = re.findall(r"^Deleted .* once0:", monitor.output("stdout"), re.MULTILINE)
    check(len(gone) == 1, f"it went {len(gone)} times: {monitor.story()}")


def tap_names_are_the_kernels(env):
    for name in ("a/b", "a b", "a%d", ".", ".."):
        server = env.start([env.app("coronet-echo"), "--link", f"tap:{name}", *ECHO_ADDRS])
        check(server.wait(WAIT_MAX_S) in (1, 2) and
              f"link tap:{name}: " in server.output("stderr") and
              "name an interface such as tap:coro0" in server.output("stderr"), server.story())


def tap_refuses_tso_frames_over_its_mtu(env):
    """DPDK 22.11's net_tap has an MTU of 1500 with the Ethernet header; a later one takes more."""
    server = env.start([env.app("coronet-echo"), "--link", "tap:tso1,tso=on", *ECHO_ADDRS,
                        "--port", "7777", "--poll", "adaptive"])
    eventually(lambda: not server.alive() or READY in server.output("stdout"), WAIT_MAX_S,
               server.story)
    if not server.alive():
        check(server.wait(WAIT_MAX_S) == 2 and "use --mtu 1486" in server.output("stderr"),
              server.story())
        return
    command("ip", "addr", "add", "10.9.1.1/16", "dev", "tso1")
    command("ip", "link", "set", "tso1", "up")
    echo_large_file(env, server, "10.9.0.1")
    server.terminate()


def arp_request(target):
    """Returns a broadcast ARP request for the address."""
    sender = b"\x02\0\0\0\0\x09"
    return (b"\xff" * 6 + sender + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) +
            sender + socket.inet_aton("10.9.1.9") + bytes(6) + socket.inet_aton(target)
            ).ljust(60, b"\0")


def pcap_files(env):
    """An ARP request read from a file is answered into another."""
    folder = env.scratch_for({})
    asked, answered = folder / "in.pcap", folder / "out.pcap"
    frame = arp_request("10.9.0.1")
    asked.write_bytes(struct.pack("=IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) +
                      struct.pack("=IIII", 0, 0, len(frame), len(frame)) + frame)
    with env.running([env.app("coronet-echo"), "--link", f"pcap:{asked},{answered}", "--stats",
                      "0.2", *ECHO_ADDRS, "--port", "7777", "--poll", "adaptive"]) as server:
        eventually(lambda: re.search(r" tx [1-9]\d*/s", server.output("stderr")), WAIT_MAX_S,
                   f"nothing was sent: {server.story()}")
        server.terminate()
    reply = b"\x08\x06" + struct.pack("!HHBBH", 1, 0x800, 6, 4, 2)
    found = answered.read_bytes()
    at = found.find(reply)
    check(at >= 0, "no ARP reply was written")
    check(found[at + 16:at + 20] == socket.inet_aton("10.9.0.1"), "the reply is for another address")


def bond_member_word():
    """Returns the devarg of net_bonding that names a member; DPDK 23.11 renamed it."""
    version = command("pkg-config", "--modversion", "libdpdk")
    return "slave" if version < "23.11" else "member"


def any_port_by_name(env):
    """A bond made by DPDK of two TAPs, both in a kernel bridge."""
    member = bond_member_word()
    try:
        command("ip", "link", "add", "br0", "type", "bridge")
        command("ip", "link", "set", "br0", "up")
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "br0")
        bond = f"--vdev=net_bonding0,mode=1,{member}=net_tap8,{member}=net_tap9"
        with env.running([env.app("coronet-echo"), "--link", "port:net_bonding0", *ECHO_ADDRS,
                          "--port", "7777", "--poll", "adaptive", "--",
                          "--vdev=net_tap8,iface=bond0a", "--vdev=net_tap9,iface=bond0b",
                          bond]) as server:
            for tap in ("bond0a", "bond0b"):
                command("ip", "link", "set", tap, "master", "br0", "up")
            echo_once("10.9.0.1")
            server.terminate()
    finally:
        command("ip", "link", "del", "br0")


def carrier_losses_are_shown(env):
    """The log, `coronet-ctl links` and the metrics show when the far side goes down and up."""
    folder = env.scratch_for({})

    def links():
        return command(env.app("coronet-ctl"), f"--control={folder}/control", "links")

    with env.running([env.app("coronet-echo"), "--link", "port:net_tap8", *ECHO_ADDRS, "--control",
                      f"{folder}/control", "--metrics", "127.0.0.1:9464", "--",
                      "--vdev=net_tap8,iface=carrier0"]) as server:
        command("ip", "link", "set", "lo", "up")
        for state, losses in ("up", 0), ("down", 1), ("up", 1), ("down", 2):
            command("ip", "link", "set", "carrier0", state)
            eventually(lambda s=state, n=losses: re.search(
                rf"^0\.state +{s}$.*^0\.carrier_losses +{n}$", links(), re.MULTILINE | re.DOTALL),
                WAIT_MAX_S, f"never {state} with {losses} losses: {links()}")
            # the link starts up; DPDK's thread misses a change that is undone before it polls
            eventually(lambda s=state: re.findall(
                "net_tap8: (up|down)", "net_tap8: up" + server.output("stderr"))[-1] == s,
                WAIT_MAX_S, f"no line of the log: {server.story()}")
        with urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=WAIT_MAX_S) as answer:
            page = answer.read().decode()
        for line in ('coronet_link_up{link="port:net_tap8"} 0\n',
                     'coronet_link_carrier_losses_total{link="port:net_tap8"} 2\n'):
            check(line in page, f"no {line!r} in {page}")
        server.terminate()


def unknown_port_names(env):
    """Unknown port names are refused with the known ones; a link's own device cannot be named."""
    for link, words, wanted in (
            ("port:net_tap7", ["--vdev=net_tap8,iface=given0"], "it has: net_tap8"),
            ("port:net_tap7", [], "it has: none"),
            ("tap:given1", ["--vdev=net_tap0,iface=given0"], "give that port another number")):
        server = env.start([env.app("coronet-echo"), "--link", link, *ECHO_ADDRS, "--", *words])
        check(server.wait(WAIT_MAX_S) == 1 and wanted in server.output("stderr") and
              READY not in server.output("stdout"), server.story())


def ring_starts_and_ends(env):
    with env.running([env.app("coronet-echo"), "--link", "ring:r0", *ECHO_ADDRS,
                      "--port", "7777", "--poll", "adaptive"]) as server:
        server.terminate()


def cases(env):
    bind = functools.partial
    kind = env.args[0]
    if kind == "memif":
        most = 200 if env.sanitized else 1000
        for family in TARGETS:
            for conns in (1, 64, most):
                yield (f"memif echo over {family}, {conns} connections",
                       bind(memif_echo, env, family, conns))
        yield "memif cps", bind(memif_mode, env, "cps")
        yield "memif bulk", bind(memif_mode, env, "bulk")
        yield "memif idle", bind(memif_mode, env, "idle")
        for function in (memif_without_hugepages, memif_large_messages, memif_jumbo_frames,
                         memif_clients_come_and_go, memif_refused, memif_server_dies,
                         memif_load_interrupted, memif_socket_is_removed,
                         memif_socket_has_its_mode):
            yield function.__name__.replace("_", " "), bind(function, env)
    elif kind == "vhost":
        for family in TARGETS:
            yield (f"vhost through testpmd over {family}",
                   bind(vhost_through_testpmd, env, family))
    else:
        for function in (af_packet_on_veth, tap_comes_once, tap_names_are_the_kernels,
                         tap_splits_tso_frames, tap_refuses_tso_frames_over_its_mtu, pcap_files,
                         any_port_by_name, carrier_losses_are_shown, unknown_port_names,
                         ring_starts_and_ends):
            yield function.__name__.replace("_", " "), bind(function, env)


if __name__ == "__main__":
    main(cases)
