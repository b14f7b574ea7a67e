#!/usr/bin/env python3
"""Both ends' statistics of one connection: net_conn_stats() and the kernel's TCP_INFO.

Usage: test_tcp_info.py BUILD_DIR

coronet (tests/wire/info) and this namespace's kernel send each other a megabyte
through tests/wire, with or without losses. Then their statistics are compared.
"""

import contextlib
import functools
import json
import socket
import struct
import threading

from harness import (WAIT_MAX_S, Spoiled, check, command, comment, eventually, in_a_quiet_moment,
                     kernel_count, linger, main)
from wires import Wire

BYTES = 1 << 20
PORT = 7000
DELAY_MS = 10  # of each direction
OURS, KERNELS = "10.7.0.1", "10.7.0.2"

# struct tcp_info of linux/tcp.h
HEAD = "state ca_state retransmits probes backoff options".split()
NAMES = [("I", """rto ato snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent
    last_ack_sent last_data_recv last_ack_recv pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd
    advmss reordering rcv_rtt rcv_space total_retrans"""),
         ("Q", "pacing_rate max_pacing_rate bytes_acked bytes_received"),
         ("I", "segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out"),
         ("Q", "delivery_rate busy_time rwnd_limited sndbuf_limited"),
         ("I", "delivered delivered_ce"),
         ("Q", "bytes_sent bytes_retrans"),
         ("I", "dsack_dups reord_seen rcv_ooopack snd_wnd")]


def kernels_view(sock):
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 512)
    found = dict(zip(HEAD, raw))
    found["snd_wscale"], found["rcv_wscale"] = raw[6] & 15, raw[6] >> 4
    at = 8
    for letter, words in NAMES:
        for name in words.split():
            found[name], = struct.unpack_from(letter, raw, at)
            at += struct.calcsize(letter)
    return found


@contextlib.contextmanager
def connected(env, number, options, loss):
    """(our program, the wire, a socket of the kernel's) over a lossy wire."""
    sock_path, tap = env.scratch_for({}) / "m.sock", f"ti{number}"
    wire = Wire(env, f"memif:{sock_path},role=server", f"tap:{tap}", "--control",
                "--delay", DELAY_MS, "--seed", 3)
    with wire.running():
        command("ip", "addr", "add", f"{KERNELS}/16", "dev", tap)
        command("ip", "link", "set", tap, "up")
        with env.running([env.build / "tests/wire/info", PORT, BYTES, "--link",
                          f"memif:{sock_path},role=client", "--addr", f"{OURS}/16",
                          "--poll", "adaptive", *options]) as program, \
                socket.create_connection((OURS, PORT), WAIT_MAX_S) as sock:
            sock.settimeout(WAIT_MAX_S)
            if loss:  # the handshake has measured the round trip
                wire.configure(f"both loss={loss}")
            yield program, wire, sock


def exchange(program, sock):
    """Sends a megabyte in each direction; returns the statistics (ours, the kernel's)."""
    sender = threading.Thread(target=sock.sendall, args=(b"k" * BYTES,))
    sender.start()
    left = BYTES
    while left:
        data = sock.recv(min(left, 1 << 20))
        check(data, f"our end closed: {program.story()}")
        left -= len(data)
    sender.join()
    eventually(lambda: "}" in program.output("stdout"), WAIT_MAX_S,
               lambda: f"our end prints nothing: {program.story()}")
    eventually(lambda: kernels_view(sock)["unacked"] == 0, WAIT_MAX_S,
               "the kernel waits for an ACK")
    line = next(text for text in program.output("stdout").splitlines() if text.startswith("{"))
    return json.loads(line), kernels_view(sock)


def expect(ours, theirs, what):
    check(ours == theirs, f"{what}: {ours} here, {theirs} there")


def check_sums(ours, kernels):
    """Checks that each end received what the other sent. The kernel dialed, and counts its SYN."""
    expect(ours["bytes_acked"], BYTES, "bytes acknowledged, bytes sent")
    expect(ours["bytes_acked"], kernels["bytes_received"], "acknowledged, received")
    expect(ours["bytes_received"], kernels["bytes_acked"] - 1, "received, acknowledged")
    expect(ours["bytes_sent"] - ours["bytes_retrans"], BYTES, "sent once")
    expect(ours["unacked"] + ours["sacked"] + ours["lost"] + ours["notsent_bytes"], 0, "in flight")


def check_agreed(ours, kernels):
    for name in ("state", "snd_mss", "rcv_mss", "advmss", "pmtu", "reordering"):
        expect(ours[name], kernels[name], name)
    expect(ours["options"] & 7, kernels["options"] & 7, "options")
    expect(ours["snd_wscale"], kernels["rcv_wscale"], "a window's scale")
    expect(ours["rcv_wscale"], kernels["snd_wscale"], "a window's scale")


def check_times(ours, kernels):
    """A busy machine lengthens round trips, and shortens them if it stops us between reading the
    clock and the link."""
    for side in (ours, kernels):
        if side["min_rtt"] < DELAY_MS * 1000:
            raise Spoiled(f"too short: {side['min_rtt']} us")
        check(side["min_rtt"] <= side["rtt"] + side["rttvar"] * 4, f"no least one: {side}")
        check(side["rto"] > side["rtt"], f"{side['rto']} us after {side['rtt']} us")
    ratio = ours["min_rtt"] / kernels["min_rtt"]
    check(0.3 < ratio < 3, f"least round trips: {ours['min_rtt']} and {kernels['min_rtt']} us")


def ends_agree(env, number, options):
    in_a_quiet_moment(functools.partial(compare_ends, env, number, options))


def compare_ends(env, number, options):
    with connected(env, number, options, 0) as (program, wire, sock):
        ours, kernels = exchange(program, sock)
        directions = wire.now()
    check(all(directions[direction]["lost"] == 0 for direction in ("a_to_b", "b_to_a")),
          f"the wire has lost something: {directions}")
    check_sums(ours, kernels)
    check_agreed(ours, kernels)
    check_times(ours, kernels)
    expect(ours["ca_state"], 0, "state of congestion control")
    # On a busy machine either end may add a tail loss probe.
    for sender, receiver, direction in ((ours, kernels, "from us"), (kernels, ours, "to us")):
        late = sender["data_segs_out"] - receiver["data_segs_in"]
        # A retransmission may be in flight at one reading, or be sent between the two.
        check(-1 <= late <= sender["total_retrans"],
              f"segments of data {direction}: {sender['data_segs_out']}, "
              f"{receiver['data_segs_in']} came; "
              f"{sender['total_retrans']} were sent again")
    expect(ours["delivered"], ours["data_segs_out"] - ours["total_retrans"] + ours["dsack_dups"],
          "delivered")
    check(abs(ours["segs_out"] - kernels["segs_in"]) <= 3, f"{ours}\n{kernels}")
    comment(f"rtt {ours['rtt']} us, the kernel's {kernels['rtt']} us; {ours['segs_out']} segments")


def lossy(env, number):
    with connected(env, number, [], 2) as (program, wire, sock):
        ours, kernels = exchange(program, sock)
        directions = wire.now()
    lost = directions["a_to_b"]["lost"]  # ours is at A
    check(lost > 0 and directions["b_to_a"]["lost"] > 0, f"the wire has lost nothing: {directions}")
    check_sums(ours, kernels)
    check_agreed(ours, kernels)
    check(ours["total_retrans"] > 0 and ours["bytes_retrans"] > 0, f"nothing sent again: {ours}")
    check(ours["rcv_ooopack"] > 0 and kernels["rcv_ooopack"] > 0, f"{ours}\n{kernels}")
    # The wire has lost some of all sent frames, ACKs and ARP included.
    missing = ours["data_segs_out"] - kernels["data_segs_in"]
    check(0 <= missing <= lost, f"{missing} did not arrive, {lost} were lost")
    comment(f"{ours['total_retrans']} sent again, {missing} of {ours['data_segs_out']} lost; "
            f"{ours['total_rto']} timeouts, the kernel's: {kernels['total_retrans']} again")


def slow_reader(env, number):
    """The kernel's program does not read at first: our data waits for its window."""
    shut = kernel_count("TCPToZeroWindowAdv")
    with connected(env, number, [], 0) as (program, _, sock):
        eventually(lambda: kernel_count("TCPToZeroWindowAdv") > shut, WAIT_MAX_S,
                   "the kernel's window is never shut")
        linger(1)
        ours, kernels = exchange(program, sock)
    check(ours["rwnd_limited"] >= 500000, f"held up for {ours['rwnd_limited']} us alone")
    check(ours["busy_time"] >= ours["rwnd_limited"] + ours["sndbuf_limited"],
          f"busy for less than it was held up: {ours}")
    check(kernels["rwnd_limited"] < 500000, f"the kernel's end was held up as well: {kernels}")
    comment(f"held up for {ours['rwnd_limited']} us of {ours['busy_time']}")


def cases(env):
    yield "both ends agree", functools.partial(ends_agree, env, 1, [])
    yield ("without timestamps as well",
           functools.partial(ends_agree, env, 2, ["--timestamps", "off"]))
    yield "where segments are lost", functools.partial(lossy, env, 3)
    yield "where the reader is slow", functools.partial(slow_reader, env, 4)


if __name__ == "__main__":
    main(cases)
