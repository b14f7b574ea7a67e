#!/usr/bin/env python3
"""Programs with several shards over links, also with more shards than CPUs.

Usage: test_shards.py BUILD_DIR
"""

import contextlib
import functools
import random
import select
import socket

from harness import WAIT_MAX_S, accepted_by, check, command, eventually, main
from test_links import ECHO_ADDRS, TARGETS, check_load, Pair

CONNS = 128  # so that no shard of 8 is likely to go without


class Shards(Pair):
    """coronet-echo with several shards, and a load with one."""

    def __init__(self, env, shards, server_keys=""):
        user = env.ordinary_user()
        path = env.scratch_for(user) / "s.sock"
        super().__init__(env, f"memif:{path},role=server{server_keys}",
                         f"memif:{path},role=client", user)
        self.shards = shards
        self.echo += ["--shards", shards, "--stats", "0.2", "--memory", "1G"]


def check_all_serve(server, shards):
    def all_have():
        taken = accepted_by(server)
        return sum(taken.values()) >= CONNS and all(taken.get(i) for i in range(shards))
    if shards > 1:
        eventually(all_have, WAIT_MAX_S, lambda: f"{accepted_by(server)} were taken by the shards "
                   f"of {server.story()}")


def memif_echo(env, family, shards, keys=""):
    """Every shard serves its connections, whichever queue their frames come by."""
    pair = Shards(env, shards, keys)
    with pair.serve() as server:
        report = check_load(pair, "--target", TARGETS[family], "--conns", CONNS,
                            enough=lambda report: report["requests"] >= CONNS)
        check(report["open_at_end"] == CONNS, f"{report['open_at_end']} of {CONNS} stayed open")
        check_all_serve(server, shards)
        check(server.output("stdout").count("listening on") == 1, server.story())
        server.terminate()


def echo_from_kernel(stack, server, host):
    """Kernel clients stay open until the stack ends; each gets its own bytes back."""
    socks = []
    for _ in range(CONNS):
        sock = stack.enter_context(socket.create_connection((host, 7777), WAIT_MAX_S))
        sock.settimeout(WAIT_MAX_S)
        socks.append(sock)
    for turn in range(3):
        asked = [random.Random(turn * CONNS + i).randbytes(3000) for i in range(CONNS)]
        for sock, data in zip(socks, asked):
            sock.sendall(data)
        for sock, data in zip(socks, asked):
            got = b""
            while len(got) < len(data):
                part = sock.recv(len(data) - len(got))
                check(part, f"an echo ended early: {server.story()}")
                got += part
            check(got == data, "the echo differs")


def tap_echo(env, shards):
    """Kernel clients reach every shard, and each gets its answers."""
    argv = [env.app("coronet-echo"), "--link", "tap:sh0", "--addr", "10.9.0.1/16", "--port", "7777",
            "--shards", shards, "--stats", "0.2", "--poll", "adaptive", "--memory", "1G"]
    with env.running(argv) as server, contextlib.ExitStack() as stack:
        command("ip", "addr", "add", "10.9.2.4/16", "dev", "sh0")
        command("ip", "link", "set", "sh0", "up")
        echo_from_kernel(stack, server, "10.9.0.1")
        check_all_serve(server, shards)
        stack.close()
        server.terminate()


def send_unread(stack, peers, enough):
    """Peers that read nothing send until count bytes are accepted, or no more are."""
    socks = []
    for _ in range(peers):
        sock = stack.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)  # many frames
        sock.settimeout(WAIT_MAX_S)
        sock.connect(("10.9.0.1", 7777))
        sock.setblocking(False)
        socks.append(sock)
    sent = idle = 0
    while sent < enough and idle < 100:
        taken = 0
        for sock in socks:
            with contextlib.suppress(BlockingIOError):
                taken += sock.send(bytes(16384))
        sent += taken
        idle = 0 if taken else idle + 1
        if not taken:
            select.select([], socks, [], 0.02)
    return sent


def unread_behind_one_queue(env):
    """Peers that read nothing hold frames of the only queue's pool, and others are served."""
    argv = [env.app("coronet-echo"), "--link", "tap:sh0,queues=1", "--addr", "10.9.0.1/16",
            "--port", "7777", "--shards", "4", "--poll", "adaptive", "--memory", "1G"]
    with env.running(argv) as server, contextlib.ExitStack() as stack:
        command("ip", "addr", "add", "10.9.2.4/16", "dev", "sh0")
        command("ip", "link", "set", "sh0", "up")
        sent = send_unread(stack, 24, 16 << 20)
        check(sent > 8 << 20, f"only {sent} bytes were taken: {server.story()}")
        echo_from_kernel(stack, server, "10.9.0.1")
        command("ping", "-c", "3", "-i", "0.2", "-W", WAIT_MAX_S, "10.9.0.1")
        stack.close()
        server.terminate()


def opens_and_ends(env, shards):
    """With a link without a peer the program starts and ends cleanly."""
    argv = [env.app("coronet-echo"), "--link", "ring:r0", *ECHO_ADDRS, "--port", "7777",
            "--shards", shards, "--memory", "1G"]
    for _ in range(3):
        with env.running(argv) as server:
            server.terminate()


def own_address(env, shards):
    """Programs dial themselves, on every shard: 64 MiB in each direction, and no frame
    leaves."""
    program = env.start([env.build / "tests/integration/own-address", shards, 64])
    check(program.wait(10 * WAIT_MAX_S) == 0, program.story())


def too_little_memory(env):
    """Shards' pools that do not fit are refused in one line, before any shard serves."""
    argv = [env.app("coronet-echo"), "--link", "ring:r0", *ECHO_ADDRS, "--shards", "8",
            "--memory", "40M"]
    program = env.start(argv)
    status = program.wait(WAIT_MAX_S)
    lines = program.output("stderr").strip().splitlines()
    check(status == 1 and len(lines) == 1 and "--memory 40M" in lines[0],
          f"status {status}: {program.story()}")


def cases(env):
    bind = functools.partial
    for shards in (1, 2, 4, 8):
        yield f"echo over memif, {shards} shards", bind(memif_echo, env, "IPv4", shards)
    yield "echo over memif, IPv6, 3 shards", bind(memif_echo, env, "IPv6", 3)
    yield "4 shards behind one queue", bind(memif_echo, env, "IPv4", 4, ",queues=1")
    for shards in (2, 4):
        yield f"echo over TAP, {shards} shards", bind(tap_echo, env, shards)
    yield "peers that read nothing, 4 shards behind one queue", bind(unread_behind_one_queue, env)
    for shards in (2, 8):
        yield f"a ring link, {shards} shards", bind(opens_and_ends, env, shards)
    for shards in (1, 4):
        yield f"dialing the stack's own addresses, {shards} shards", bind(own_address, env, shards)
    yield "too little memory", bind(too_little_memory, env)


if __name__ == "__main__":
    main(cases)
