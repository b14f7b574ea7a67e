#!/usr/bin/env python3
"""The wire between files, between two kernels' TCP stacks, between two of ours; routes that change
under a flow.

Usage: test_wire.py BUILD_DIR [predict-off]

With predict-off, only the cases with our TCP run, without header prediction.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import random
import re
import signal
import struct
import subprocess
import sys
import time

from harness import (WAIT_MAX_S, Spoiled, check, command, eventually, in_a_quiet_moment,
                     linger, main)
from wires import HOSTS, SOURCE, Network, Wire, prediction

MIB = 1 << 20


# ---- between files ----

PCAP_HEADER = struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1)


def write_pcap(path, frames):
    path.write_bytes(PCAP_HEADER + b"".join(
        struct.pack("<IIII", 0, i, len(frame), len(frame)) + frame
        for i, frame in enumerate(frames)))


def read_pcap(path):
    data, at, frames = path.read_bytes(), len(PCAP_HEADER), []
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        frames.append(data[at + 16:at + 16 + size])
        at += 16 + size
    return frames


def some_frames(count=500):
    """Frames of all lengths, two of them malformed, since a wire does not check frames."""
    generator = random.Random(count)
    frames = [generator.randbytes(generator.randint(20, 1514)) for _ in range(count)]
    broken = bytes(12) + b"\x08\x00" + b"\x45" + b"\xff" * 45
    return [b"short", broken, *frames]


def through_files(env, frames, *options):
    """Sends frames from A; returns those that arrive at B, and the counters."""
    folder = env.scratch_for({})
    write_pcap(folder / "a-in", frames)
    write_pcap(folder / "b-in", [])
    for seconds in (1, 4, 16):  # a slow machine gets more time to take them all in
        wire = Wire(env, f"pcap:{folder}/a-in,{folder}/a-out",
                    f"pcap:{folder}/b-in,{folder}/b-out", "--seconds", seconds, *options)
        a_to_b, b_to_a = wire.run_to_end()
        if a_to_b["in_frames"] == len(frames):
            break
    check(a_to_b["in_frames"] == len(frames), f"{len(frames)} frames entered: {a_to_b}")
    check(b_to_a["in_frames"] == 0, f"no frame came the other way: {b_to_a}")
    arrived = read_pcap(folder / "b-out")
    check(len(arrived) == a_to_b["out_frames"], f"{len(arrived)} frames arrived: {a_to_b}")
    return arrived, a_to_b


def frames_pass_unchanged(env):
    frames = some_frames()
    arrived, counts = through_files(env, frames, "--delay", "5", "--jitter", "3")
    check(arrived == frames, "what arrived is not what was sent")
    check(counts["out_bytes"] == sum(map(len, frames)), f"bytes: {counts}")


def seed_decides(env):
    frames = some_frames()
    options = ["--loss", "20", "--duplicate", "20", "--corrupt", "20", "--seed"]
    first, counts = through_files(env, frames, *options, "1")
    check(first != frames and counts["lost"] and counts["duplicated"], f"impaired: {counts}")
    check(through_files(env, frames, *options, "1")[0] == first, "the same seed, another result")
    check(through_files(env, frames, *options, "2")[0] != first, "another seed, the same result")


def corruption_flips_one_bit(env):
    frames = some_frames()
    arrived, counts = through_files(env, frames, "--corrupt", "30", "--duplicate", "100")
    flipped = 0
    for i, frame in enumerate(arrived):
        original = frames[i // 2]
        check(len(frame) == len(original), f"frame {i} changed its length")
        bits = sum((a ^ b).bit_count() for a, b in zip(frame, original))
        check(bits <= 1, f"{bits} bits of frame {i} are flipped")
        flipped += bits
    check(0 < flipped == counts["corrupted"], f"{flipped} frames are corrupted: {counts}")


def held_frames_are_counted(env):
    """A wire frees the frames under way at its end, and their number is bounded by --hold."""
    frames = some_frames(300)
    _, counts = through_files(env, frames, "--delay", "60000", "--hold", "100")
    check(counts["under_way"] == 100 and counts["overflowed"] == 202, f"counters: {counts}")


def addressed(to, source, payload):
    """Returns an Ethernet frame between two hosts, given by the last byte of their addresses."""
    return bytes([2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, source, 0x88, 0xb5]) + payload


def links_share_an_end(env):
    """Two hosts at each end get the frames for themselves, for unknown hosts and broadcasts."""
    everybody, nobody = 255, 9
    folder = env.scratch_for({})
    hosts = {"a": 1, "c": 2, "b": 3, "d": 4}
    beyond = {"a": (3, 4, nobody), "c": (4, everybody), "b": (1, 2, nobody), "d": (2, everybody)}

    def frame(name, to):
        data = addressed(to, hosts[name], bytes([hosts[name], to]) * 30)
        return b"\xff" * 6 + data[6:] if to == everybody else data

    for name, tos in beyond.items():
        write_pcap(folder / f"{name}-in", [frame(name, to) for to in tos])
    link = {name: f"pcap:{folder}/{name}-in,{folder}/{name}-out" for name in hosts}
    # All frames have come in before the first leaves, so that every host is learnt.
    wire = Wire(env, link["a"], link["b"], "--beside-a", link["c"], "--beside-b", link["d"],
                "--seconds", 3, "--delay", 1000)
    for side in wire.run_to_end():
        check(side["in_frames"] == side["out_frames"] == 5, f"counters: {side}")
    for name, host in hosts.items():
        others = ("b", "d") if name in ("a", "c") else ("a", "c")
        expected = [frame(other, to) for other in others for to in beyond[other]
                    if to in (host, everybody, nobody)]
        arrived = read_pcap(folder / f"{name}-out")
        check(sorted(arrived) == sorted(expected), f"{name} got {[one.hex() for one in arrived]}")


def narrow_path_between_files(env):
    """Packets up to the path's MTU pass; with --too-big report, the senders of longer ones with DF
    get ICMP errors."""
    def packet(size, flags):
        header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size, 1, flags, 64, 17, 0,
                             bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2]))
        return addressed(2, 1, header + bytes(size - 20))[:12] + b"\x08\x00" + header + \
            bytes(size - 20)

    small, long, may_cut = packet(1000, 0x4000), packet(1001, 0x4000), packet(1400, 0)
    for how, reported in (("drop", 0), ("report", 2)):
        folder = env.scratch_for({})
        write_pcap(folder / "a-in", [small, long, may_cut, long, small])
        write_pcap(folder / "b-in", [])
        wire = Wire(env, f"pcap:{folder}/a-in,{folder}/a-out",
                    f"pcap:{folder}/b-in,{folder}/b-out", "--seconds", 2,
                    "--a-to-b", f"path-mtu=1000,too-big={how}", "--b-to-a", "delay=1")
        a_to_b, b_to_a = wire.run_to_end()
        check(a_to_b["too_big"] == 3 and a_to_b["reported"] == reported, f"{how}: {a_to_b}")
        check(read_pcap(folder / "b-out") == [small, small], f"{how}: the wrong frames passed")
        answers = read_pcap(folder / "a-out")
        check(len(answers) == reported == b_to_a["out_frames"], f"{how}: {len(answers)} answers")
        for answer in answers:
            check(answer[:6] == long[6:12] and answer[34:36] == b"\x03\x04"
                  and answer[40:42] == struct.pack(">H", 1000), f"no ICMP: {answer.hex()}")


def wrong_lines_change_nothing(env):
    """Each wrong line gets one line on stderr; the wire continues, also after end of input."""
    folder = env.scratch_for({})
    for name in ("a-in", "b-in"):
        write_pcap(folder / name, [])
    wire = Wire(env, f"pcap:{folder}/a-in,{folder}/a-out", f"pcap:{folder}/b-in,{folder}/b-out",
                "--control")
    with wire.running():
        pipe = wire.program.process.stdin
        pipe.write(b"both loss=101\nfaster\n")
        wire.configure("a-to-b loss=1,rate=10")
        complaints = wire.program.output("stderr").strip().split("\n")
        check(len(complaints) == 2, wire.program.story())
        check("'loss=101'" in complaints[0] and "'faster'" in complaints[1], wire.program.story())
        check(wire.now()["a_to_b"]["in_frames"] == 0, wire.program.story())
        pipe.close()
        wire.program.process.stdin = None
        wire.end()


def late_frames_are_counted(env):
    """Frames that leave late, since the wire was stopped, are counted."""
    frames, delay_ms = some_frames(98), 1000

    def attempt():
        folder = env.scratch_for({})
        write_pcap(folder / "a-in", frames)
        write_pcap(folder / "b-in", [])
        wire = Wire(env, f"pcap:{folder}/a-in,{folder}/a-out",
                    f"pcap:{folder}/b-in,{folder}/b-out", "--control", "--delay", delay_ms)
        with wire.running():
            eventually(lambda: wire.now()["a_to_b"]["in_frames"] == 100, WAIT_MAX_S, "no frames")
            wire.program.signal(signal.SIGSTOP)
            linger(delay_ms / 1000 + 0.1)
            wire.program.signal(signal.SIGCONT)
            eventually(lambda: wire.now()["a_to_b"]["out_frames"] == 100, WAIT_MAX_S, "none left")
            found = wire.now()
            wire.end()
        check(0 < found["busy_seconds"] < found["seconds"], f"busy: {found}")
        late = found["a_to_b"]["late"]
        if late < 100:
            raise Spoiled(f"of 100 frames {late} were late: {found}")
        check(late == 100 and found["a_to_b"]["late_most"] > 1e6, f"late: {found}")

    in_a_quiet_moment(attempt)


# ---- between two kernels ----


@contextlib.contextmanager
def kernels(env, *options):
    """Joins two kernels by a wire of two TAPs, with new names each time."""
    number = sum(1 for _ in env.scratch.iterdir())
    interfaces = [f"wa{number}", f"wb{number}"]
    wire = Wire(env, *[f"tap:{interface}" for interface in interfaces], *options)
    with wire.running():
        network = Network(env, wire, interfaces)
        try:
            yield network.join()
        finally:
            network.part()


def ping(network, *options):
    return subprocess.run([str(word) for word in (*network.inside(0), "ping", *options, HOSTS[1])],
                          check=False, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True).stdout


def ping_takes_the_delay(env):
    """Pings take the delays of both directions, 10 and 15 ms."""
    with kernels(env, "--delay", "10", "--b-to-a", "delay=15") as network:
        def attempt():
            output = ping(network, "-c", "10", "-i", "0.1", "-w", WAIT_MAX_S)
            check(" 10 received" in output, output)
            least = float(re.search(r"min/avg/max/mdev = ([\d.]+)/", output)[1])
            check(least >= 25, f"the fastest of ten took {least} ms, expected 25")
            if least >= 30:
                raise Spoiled(f"the fastest of ten took {least} ms, expected 25")

        in_a_quiet_moment(attempt)
        a_to_b, b_to_a = network.wire.end()
    check(min(a_to_b["out_frames"], b_to_a["out_frames"]) >= 10, f"{a_to_b}\n{b_to_a}")


def link_goes_down_and_up(env):
    """Pings are answered before and after two seconds without a link."""
    def attempt(down):
        with kernels(env, "--down-at", down, "--up-at", down + 2) as network:
            output = ping(network, "-D", "-c", (down + 4) * 10, "-i", "0.1", "-W", "5")
            a_to_b, _ = network.wire.end()
        answered = [float(when)
                    for when in re.findall(r"\[([\d.]+)\] \d+ bytes .*icmp_seq", output)]
        check(answered, output)
        gap = max(b - a for a, b in zip(answered, answered[1:]))
        if a_to_b["down"] == 0:
            raise Spoiled(f"nothing was sent while the link was down: {output}")
        first = re.search(r"icmp_seq=1 .*time=([\d.]+)", output)
        if not first or float(first[1]) > 500:  # the MAC address may have been resolved again
            raise Spoiled(f"the link was down before the first ping: {output}")
        # An answer just before may be printed late, and so shorten the gap.
        if gap <= 1:
            raise Spoiled(f"of 2 s without a link, {gap:.1f} s show: {output}")

    downs = itertools.chain((2, 4, 8, 16), itertools.repeat(32))
    in_a_quiet_moment(lambda: attempt(next(downs)))


def transfer(network, size):
    """Sends a file by kernel TCP from A to B, checks it, and returns the seconds it took."""
    scratch = network.env.scratch_for({})
    data = random.Random(size).randbytes(size)
    (scratch / "sent").write_bytes(data)
    receiver = network.env.start([*network.inside(1), "socat", "-u", "TCP4-LISTEN:7000",
                                  f"CREATE:{scratch}/received"])
    eventually(lambda: ":7000" in command(*network.inside(1), "ss", "-ltn"), WAIT_MAX_S,
               "no listener")
    begin = time.monotonic()
    sender = network.env.start([*network.inside(0), "socat", "-u", f"OPEN:{scratch}/sent",
                                f"TCP4:{HOSTS[1]}:7000"])
    for program in (sender, receiver):
        status = program.wait(WAIT_MAX_S)
        check(status == 0, f"exit status {status}: {program.story()}")
    took = time.monotonic() - begin
    received = (scratch / "received").read_bytes()
    check(len(received) == size, f"{len(received)} of {size} bytes arrived")
    check(hashlib.sha256(received).digest() == hashlib.sha256(data).digest(),
          "the SHA-256 differs")
    return took


def kernel_tcp_through_loss(env):
    size = 8 * MIB
    with kernels(env, "--loss", "1", "--delay", "1") as network:
        transfer(network, size)
        a_to_b, b_to_a = network.wire.end()
    check(a_to_b["in_bytes"] > size, f"less than was sent: {a_to_b}")
    check(a_to_b["in_frames"] >= size // 1448, f"fewer frames than segments: {a_to_b}")
    share = a_to_b["lost"] / a_to_b["in_frames"]
    check(0.005 < share < 0.016, f"{share:.2%} of the frames were lost: {a_to_b}")
    for key in ("duplicated", "reordered", "corrupted", "queue_dropped", "down", "overflowed"):
        check(a_to_b[key] == b_to_a[key] == 0, f"{key}: {a_to_b} {b_to_a}")


def kernel_tcp_through_everything(env):
    """The transfer is intact under every impairment, since the kernel verifies checksums."""
    with kernels(env, "--loss", "0.5", "--duplicate", "1", "--reorder", "1", "--corrupt", "0.5",
                 "--delay", "1", "--jitter", "1") as network:
        transfer(network, 4 * MIB)
        a_to_b, _ = network.wire.end()
    for key in ("lost", "duplicated", "reordered", "corrupted"):
        check(a_to_b[key] > 0, f"nothing was {key}: {a_to_b}")


def rate_is_kept(env):
    """A transfer of 4 MiB takes as long as 20 Mbit/s allow."""
    size, rate = 4 * MIB, 20e6
    least = size * 8 / rate

    def attempt():
        with kernels(env, "--a-to-b", "rate=20,queue=100") as network:
            took = transfer(network, size)
            _, b_to_a = network.wire.end()
        check(took >= least, f"it took {took:.2f} s, expected {least:.2f} s")
        check(b_to_a["queue_dropped"] == 0, f"the other way has no limit: {b_to_a}")
        if took >= 1.5 * least:
            raise Spoiled(f"it took {took:.2f} s, expected {least:.2f} s or little more")

    in_a_quiet_moment(attempt)


# ---- between two of ours ----

def coronet_through(env, wire_options, *load_options, seconds=3):
    """Runs coronet-load to coronet-echo through a wire of two memif links."""
    folder = env.scratch_for({})
    sockets = [folder / "a.sock", folder / "b.sock"]
    wire = Wire(env, *[f"memif:{path},role=server" for path in sockets], *wire_options)
    echo = [env.app("coronet-echo"), "--link", f"memif:{sockets[1]},role=client",
            "--addr", "10.9.0.1/16", "--port", "7777", "--poll", "adaptive", *prediction(env)]
    load = [env.app("coronet-load"), "--link", f"memif:{sockets[0]},role=client",
            "--addr", "10.9.1.9/16", "--target", "10.9.0.1:7777", "--poll", "adaptive",
            "--interval", "0", "--timeout", WAIT_MAX_S, "--seconds", seconds, "--verify",
            "--report-limited", "--json", *prediction(env),
            *load_options]
    with wire.running(), env.running(echo) as server:
        program = env.start(load)
        status = program.wait(2 * WAIT_MAX_S)
        check(server.alive(), f"the server ended: {server.story()}")
        report = json.loads(program.output("stdout"))
        server.terminate()
        counters = wire.end()
    check(report["errors"]["total"] == 0, f"errors: {report['errors']}\n{program.story()}")
    check(status == 0, f"exit status {status}: {program.story()}")
    check(report["requests"] > 0, f"nothing came back: {program.story()}")
    return report, counters


def coronet_through_a_clean_wire(env):
    report, counters = coronet_through(env, [], "--conns", "16")
    for side in counters:
        check(side["out_frames"] >= report["requests"], f"{report['requests']} requests: {side}")
        check(side["lost"] + side["queue_dropped"] + side["overflowed"] == 0, f"drops: {side}")


def coronet_through_trouble(env, keys, options, load_options):
    """Runs a load until every impairment has occurred in both directions."""
    for seconds in (3, 12, 48):
        _, counters = coronet_through(env, options, *load_options, seconds=seconds)
        missing = [key for side in counters for key in keys if side[key] == 0]
        if not missing:
            break
    check(not missing, f"nothing was {missing}: {counters}")


# ---- between the kernel and ours ----


ASKER = """
import os, socket, sys, time
conn = socket.create_connection((sys.argv[1], int(sys.argv[2])))
end = time.monotonic() + 3
while time.monotonic() < end:
    asked, answer = os.urandom(5000), b""
    conn.sendall(asked)
    while len(answer) < len(asked):
        answer += conn.recv(65536)
    assert asked == answer
"""


def send_window(inside):
    """Returns the send window of the only connection there, in bytes, as the kernel shows it."""
    found = re.search(r"\bsnd_wnd:(\d+)", command(*inside, "ss", "-tin", "state", "established"))
    return int(found.group(1)) if found else 0


@contextlib.contextmanager
def beside_a_kernel(env, *options):
    """Runs a wire between our HOSTS[0] and a kernel's HOSTS[1]; yields our options and the words
    that run a command at the kernel's end."""
    socket, interface = env.scratch_for({}) / "a.sock", "wg0"
    wire = Wire(env, f"memif:{socket},role=server", f"tap:{interface}", *options)
    with wire.running():
        network = Network(env, wire, [interface])
        try:
            inside = network.join().inside(0)
            command(*inside, "ip", "addr", "flush", "dev", interface)
            command(*inside, "ip", "addr", "add", f"{HOSTS[1]}/24", "dev", interface)
            yield ["--link", f"memif:{socket},role=client", "--addr", f"{HOSTS[0]}/24",
                   "--poll", "adaptive", *prediction(env)], inside
        finally:
            network.part()


def window_grows_on_a_long_path(env):
    """A kernel that sends to us over 200 ms gets more than the initial window."""
    with beside_a_kernel(env, "--delay", "100") as (link, inside):
        with env.running([env.build / "tests/wire/flow", "sink", "7777", *link]):
            source = env.start([*inside, sys.executable, "-c", SOURCE, HOSTS[0], "7777"])
            eventually(lambda: send_window(inside) > 3 * MIB // 4, WAIT_MAX_S,
                       lambda: f"the window is {send_window(inside)}: {source.story()}")
            source.kill()


def kernel_has_timestamps(inside, wanted):
    """Whether all connections there that have received bytes have timestamps, or none of them."""
    found = re.findall(r"^\s.*\bbytes_received:.*$",
                       command(*inside, "ss", "-tino", "state", "established"), re.MULTILINE)
    return found and all((" ts " in f" {line} ") == wanted for line in found)


def kernel_agrees_on_timestamps(env, wanted):
    """Timestamps (RFC 7323) are agreed with a kernel, whichever side connects; data is intact."""
    option = ["--timestamps", "on" if wanted else "off"]
    with beside_a_kernel(env) as (link, inside):
        with env.running([env.app("coronet-echo"), "--port", "7777", *link, *option]):
            client = env.start([*inside, sys.executable, "-c", ASKER, HOSTS[0], "7777"])
            eventually(lambda: kernel_has_timestamps(inside, wanted), WAIT_MAX_S, client.story)
            check(client.wait(WAIT_MAX_S) == 0, client.story())
        with env.running([*inside, env.app("epoll-echo"), "--addr", HOSTS[1], "--port", "7778"]):
            load = env.start([env.app("coronet-load"), "--target", f"{HOSTS[1]}:7778", *link,
                              *option, "--conns", "4", "--size", "5000", "--seconds", "3",
                              "--verify", "--report-limited", "--json"])
            eventually(lambda: kernel_has_timestamps(inside, wanted), WAIT_MAX_S, load.story)
            check(load.wait(WAIT_MAX_S) == 0, load.story())


# ---- a route that changes under a flow ----

ECHO_CLIENT = """
import hashlib, random, socket, sys, threading
data = random.Random(int(sys.argv[3])).randbytes(int(sys.argv[3]))
conn = socket.create_connection((sys.argv[1], int(sys.argv[2])))
sender = threading.Thread(target=conn.sendall, args=(data,))
sender.start()
back, got = hashlib.sha256(), 0
while got < len(data) and (piece := conn.recv(1 << 16)):
    back.update(piece)
    got += len(piece)
sender.join()
print(got, "intact" if back.digest() == hashlib.sha256(data).digest() else "broken")
"""


def echo_through_a_change(env, number, wire_options, change, holds, size=8 * MIB):
    """Echoes a kernel's bytes by coronet-echo while the route changes.

    holds() gets the counters of both directions at the end.
    """
    socket, interface = env.scratch_for({}) / "b.sock", f"wr{number}"
    wire = Wire(env, f"tap:{interface}", f"memif:{socket},role=server", "--control",
                *wire_options)
    echo = [env.app("coronet-echo"), "--link", f"memif:{socket},role=client",
            "--addr", f"{HOSTS[1]}/24", "--port", "7777", "--poll", "adaptive",
            *prediction(env)]
    with wire.running(), env.running(echo) as server:
        network = Network(env, wire, [interface])
        try:
            inside = network.join().inside(0)
            client = env.start([*inside, sys.executable, "-c", ECHO_CLIENT, HOSTS[1], "7777",
                                size])
            for number, line in enumerate(change, 1):
                eventually(lambda: wire.now()["b_to_a"]["out_bytes"] > number * size // 8,
                           WAIT_MAX_S,
                           lambda: f"nothing comes back: {client.story()}\n{server.story()}")
                wire.configure(line)
            changed = wire.now()
            status = client.wait(WAIT_MAX_S)
            check(server.alive(), f"the server ended: {server.story()}")
            check(status == 0 and client.output("stdout") == f"{size} intact\n", client.story())
            after = wire.now()
        finally:
            network.part()
        server.terminate()
        wire.end()
    check(changed["b_to_a"]["out_bytes"] < size, f"it was over before the change: {changed}")
    holds(after["a_to_b"], after["b_to_a"])


def routes_that_change():
    """Returns name: (options of the wire, lines that change it, check of the counters)."""
    # Slow enough for every change to come during the transfer.
    fast = ["--rate", "40", "--delay", "2", "--queue", "200"]

    def reported(*sides):
        for side in sides:
            check(0 < side["reported"] == side["too_big"], f"not reported: {side}")

    def silent(_, back):
        check(back["too_big"] > 0 == back["reported"], f"not silent: {back}")

    def anything(*_):
        pass
    return {
        "the MTU shrinks, and routers say so":
            (fast, ["both path-mtu=1000,too-big=report"], reported),
        # Linux does not probe for such a path by default, so only we send over it.
        "the MTU shrinks, and nobody says so":
            (fast, ["b-to-a path-mtu=1000,too-big=drop"], silent),
        "the MTU shrinks twice, then grows":
            (fast, ["both path-mtu=1400,too-big=report", "both path-mtu=800", "both path-mtu=0"],
             reported),
        "the round trip grows from 10 to 100 ms":
            (["--rate", "200", "--delay", "5"], ["both delay=50"], anything),
        "the round trip shrinks from 100 to 10 ms":
            (["--rate", "200", "--delay", "50"], ["both delay=5"], anything),
        "the rate falls from 100 to 10 Mbit/s":
            (["--rate", "100", "--delay", "5", "--queue", "100"], ["both rate=10"], anything),
        "the rate grows from 10 to 100 Mbit/s":
            (["--rate", "10", "--delay", "5", "--queue", "100"], ["both rate=100"], anything),
        "everything changes at once":
            (fast, ["both rate=50,delay=20,path-mtu=1200,too-big=report,loss=0.1"], anything),
    }


# ---- errors ----

def missing_link(env):
    wire = Wire(env, "pcap:/nonexistent/in,/tmp/out", "ring:r0")
    program = env.start(wire.argv)
    status = program.wait(WAIT_MAX_S)
    lines = program.output("stderr").strip().split("\n")
    check(status == 1 and len(lines) == 1 and "/nonexistent/in" in lines[0], program.story())
    check(program.output("stdout") == "", "something on stdout")


UNPREDICTED = ["coronet through a clean wire", "window grows on a long path",
               "a kernel agrees on timestamps", "the MTU shrinks, and routers say so",
               "the round trip grows from 10 to 100 ms", "everything changes at once",
               "coronet through loss, duplication and reordering: small requests",
               "coronet through loss, duplication and reordering: bulk",
               "coronet through loss, delay and jitter"]


def cases(env):
    if "predict-off" not in env.args:
        yield from all_cases(env)
        return
    chosen = [(name, case) for name, case in all_cases(env) if name in UNPREDICTED]
    check(len(chosen) == len(UNPREDICTED), f"of {UNPREDICTED} there is {chosen}")
    yield from chosen


def all_cases(env):
    for function in (frames_pass_unchanged, seed_decides, corruption_flips_one_bit,
                     held_frames_are_counted, links_share_an_end, narrow_path_between_files,
                     wrong_lines_change_nothing, late_frames_are_counted, ping_takes_the_delay,
                     link_goes_down_and_up, kernel_tcp_through_loss,
                     kernel_tcp_through_everything, rate_is_kept,
                     coronet_through_a_clean_wire, window_grows_on_a_long_path,
                     missing_link):
        yield function.__name__.replace("_", " "), functools.partial(function, env)
    for wanted in (True, False):
        yield (f"a kernel agrees on {'' if wanted else 'no '}timestamps",
               functools.partial(kernel_agrees_on_timestamps, env, wanted))
    for number, (name, words) in enumerate(routes_that_change().items()):
        yield name, functools.partial(echo_through_a_change, env, number, *words)
    trouble = ["--loss", "1", "--duplicate", "2", "--reorder", "2"]
    keys = ("lost", "duplicated", "reordered")
    for name, load in {"small requests": ["--conns", "32"],
                       "large requests": ["--conns", "4", "--size", "65536"],
                       "bulk": ["--conns", "4", "--mode", "bulk"]}.items():
        yield (f"coronet through loss, duplication and reordering: {name}",
               functools.partial(coronet_through_trouble, env, keys, trouble, load))
    yield ("coronet through loss, delay and jitter",
           functools.partial(coronet_through_trouble, env, ["lost"],
                             ["--loss", "1", "--delay", "5", "--jitter", "3"],
                             ["--conns", "4", "--mode", "bulk"]))
    yield ("coronet through corruption",
           functools.partial(coronet_through_trouble, env, ["corrupted"],
                             ["--corrupt", "0.5"], ["--conns", "32"]))


if __name__ == "__main__":
    main(cases)
