#!/usr/bin/env python3
"""Two shards over links with two queues, or with one, whose frames are handed over.

Usage: test_queues.py BUILD_DIR
memif, TAP and ring links are in test_shards.py.
"""

import contextlib
import ctypes
import fcntl
import functools
import os
import re
import socket
import struct

from harness import WAIT_MAX_S, check, command, eventually, main, received_by
from test_links import (ECHO_ADDRS, LOAD_ADDRS, SIOCETHTOOL, TARGETS, Pair, check_load,
                        checksums_in_software, forwarded, testpmd)
from test_shards import CONNS, check_all_serve, echo_from_kernel

SHARDS = ["--shards", "2", "--stats", "0.2", "--memory", "512M"]

# DPDK frees a queue's memory only if queues share memory, which ours do not.
XDP_LEAK = "leak:libxdp\n"


def check_queues(server, queues):
    """Checks that a shard with a queue receives by it, and one without by hand-over."""
    def as_it_should():
        own, handed = received_by(server)
        if queues == 2:
            return own.get(0) and own.get(1)
        return own.get(0) and handed.get(1)
    eventually(as_it_should, WAIT_MAX_S,
               lambda: f"by queue and handed over: {received_by(server)}: {server.story()}")
    own, _ = received_by(server)
    check(queues == 2 or own[1] == 0, f"{own[1]} frames by a queue that is none: {server.story()}")


def check_forwards_by_queues(forwarder, queues):
    """Checks that testpmd has seen frames of every queue, and of no other."""
    text = forwarder.output("stdout")
    streams = {int(queue) for queue in re.findall(
        r"Forward Stats for RX Port= *\d+/Queue= *(\d+).*\n *RX-packets: *[1-9]", text)}
    if queues > 1:  # with one queue it prints nothing about queues
        check(streams == set(range(queues)), f"queues {streams} of {forwarder.story()}")


def vhost(env, queues):
    folder = env.scratch_for({})
    paths = [folder / "a.sock", folder / "b.sock"]
    keys = f",queues={queues}"
    pair = Pair(env, f"vhost:{paths[0]}{keys}", f"vhost:{paths[1]}{keys}", {}, SHARDS)
    with testpmd(env, paths, "io", queues) as forwarder:
        with pair.serve() as server:
            report = check_load(pair, "--target", TARGETS["IPv4"], "--conns", CONNS,
                                enough=lambda report: report["requests"] >= CONNS)
            check(report["open_at_end"] == CONNS, f"{report['open_at_end']} stayed open")
            check_all_serve(server, 2)
            check_queues(server, queues)
            server.terminate()
    check(len(forwarded(forwarder)) == 2, f"no counters of two ports: {forwarder.story()}")
    check_forwards_by_queues(forwarder, queues)


@contextlib.contextmanager
def veth(*options):
    """veth0 for a program, veth1 for the kernel."""
    command("ip", "link", "add", "veth0", *options, "type", "veth", "peer", "name", "veth1",
            *options)
    try:
        for interface in ("veth0", "veth1"):
            checksums_in_software(interface)
            command("ip", "link", "set", interface, "up")
        command("ip", "addr", "add", "10.9.2.4/16", "dev", "veth1")
        yield
    finally:
        command("ip", "link", "del", "veth0")


ETHTOOL_GET_CHANNELS, ETHTOOL_SET_CHANNELS = 0x3C, 0x3D


def receive_by(interface, queues):
    """ethtool -L INTERFACE rx QUEUES"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        buffer = ctypes.create_string_buffer(struct.pack("9I", ETHTOOL_GET_CHANNELS, *[0] * 8))
        request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(buffer))
        fcntl.ioctl(sock, SIOCETHTOOL, request)
        struct.pack_into("I", buffer, 0, ETHTOOL_SET_CHANNELS)
        struct.pack_into("I", buffer, 5 * 4, queues)  # rx_count
        fcntl.ioctl(sock, SIOCETHTOOL, request)


def echo(env, link):
    return [env.app("coronet-echo"), "--link", link, *ECHO_ADDRS, "--port", "7777", *SHARDS,
            "--poll", "adaptive"]


def xdp_options(env):
    """For programs that open AF_XDP sockets: Popen arguments."""
    if not env.sanitized:
        return {}
    path = env.scratch / "xdp.supp"
    path.write_text(XDP_LEAK)
    return {"env": {**os.environ, "LSAN_OPTIONS": f"suppressions={path}:print_suppressions=0"}}


def kernel_peer(env, link, queues, options=None):
    with env.running(echo(env, link), **(options or {})) as server, contextlib.ExitStack() as stack:
        echo_from_kernel(stack, server, "10.9.0.1")
        check_all_serve(server, 2)
        check_queues(server, queues)
        stack.close()
        server.terminate()


def af_packet(env, queues):
    """The kernel spreads flows over the sockets of a fanout group."""
    keys = "" if queues == 2 else f",queues={queues}"
    with veth():
        kernel_peer(env, f"af_packet:veth0{keys}", queues)


def af_xdp_one_queue(env):
    with veth():
        kernel_peer(env, "af_xdp:veth0", 1, xdp_options(env))
        check("xdp" not in command("ip", "link", "show", "veth0"), "a program was left behind")


def af_xdp_two_queues(env, keys):
    """A TAP has as many combined channels as a program has opened queues."""
    server = echo(env, "tap:xq0")
    load = [env.app("coronet-load"), "--link", f"af_xdp:xq0{keys}", *LOAD_ADDRS, *SHARDS,
            "--poll", "adaptive", "--interval", "0", "--report-limited"]
    pair = Pair(env, "tap:xq0", "ring:r0", {})
    pair.echo, pair.load = server, load
    pair.user = xdp_options(env)
    with pair.serve() as server:
        command("ip", "link", "set", "xq0", "up")
        report = check_load(pair, "--target", TARGETS["IPv4"], "--conns", CONNS,
                            enough=lambda report: report["requests"] >= CONNS)
        check(report["open_at_end"] == CONNS, f"{report['open_at_end']} stayed open")
        check_all_serve(server, 2)
        check_queues(server, 2)
        load = pair.start_load("--target", TARGETS["IPv4"], "--conns", CONNS, "--seconds", "3600")
        check_queues(load, 2)
        load.terminate()
        check("xdp" not in command("ip", "link", "show", "xq0"), "a program was left behind")
        server.terminate()


def af_xdp_fewer_on_purpose(env):
    """With queues=1 the user handles the interface's other queue."""
    with veth("numrxqueues", "2"):
        receive_by("veth0", 2)
        with env.running(echo(env, "af_xdp:veth0,queues=1"), **xdp_options(env)) as server:
            server.terminate()


def af_xdp_taken(env):
    """A queue of a program that has just ended is waited for; one of another program is not."""
    with veth():
        with env.running(echo(env, "af_xdp:veth0"), **xdp_options(env)) as first:
            refused(env, echo(env, "af_xdp:veth0"), "another program may have the queue", n_lines=2)
            waiting = env.start(echo(env, "af_xdp:veth0"), **xdp_options(env))
            eventually(lambda: "trying again" in waiting.output("stderr"), WAIT_MAX_S,
                       waiting.story)
            first.kill()
        waiting.wait_ready()
        waiting.terminate()


def refused(env, argv, *words, n_lines=1):
    """Runs a program that must end with a line that contains the words, after n_lines - 1 others."""
    program = env.start(argv)
    status = program.wait(WAIT_MAX_S)
    lines = program.output("stderr").strip().splitlines()
    check(status == 2 and len(lines) == n_lines and all(word in lines[-1] for word in words),
          f"status {status}, not {words}: {program.story()}")


def af_xdp_on_unsuitable_interfaces(env):
    """The loopback interface and an MTU too large for XDP are refused."""
    refused(env, echo(env, "af_xdp:lo"), "does not work on the loopback interface")
    command("ip", "link", "add", "xq8", "mtu", 9000, "type", "veth", "peer", "name", "xq9", "mtu",
            9000)
    try:
        refused(env, echo(env, "af_xdp:xq8"), "an MTU of about 3500 at most", n_lines=2)
    finally:
        command("ip", "link", "del", "xq8")


def af_xdp_queues_that_would_not_be_read(env):
    """Queues that no shard would read are refused in one line, and its remedy works."""
    with veth("numrxqueues", "2"):
        receive_by("veth0", 2)
        refused(env, echo(env, "af_xdp:veth0"), "receives by 2 queues and 1 would be read",
                "no combined channels", "'ethtool -L veth0 rx 1'", "queues=1")
        refused(env, echo(env, "af_xdp:veth0,queues=2"), "queues=2, but DPDK reads 1",
                "no combined channels")
        receive_by("veth0", 1)
        kernel_peer(env, "af_xdp:veth0", 1, xdp_options(env))
    with env.running(echo(env, "tap:xq1")) as server:
        one = [*echo(env, "af_xdp:xq1"), "--shards", "1"]
        refused(env, one, "receives by 2 queues and 1 would be read", "one by each shard",
                "'ethtool -L xq1 combined 1' or more shards", "queues=1")
        refused(env, [*echo(env, "af_xdp:xq1,queues=3"), "--shards", "3"],
                "queues=3, but DPDK reads 2", "'ethtool -L' may change that")
        server.terminate()


def cases(env):
    bind = functools.partial
    for queues in (2, 1):
        yield f"vhost, queues {queues}", bind(vhost, env, queues)
        yield f"AF_PACKET, queues {queues}", bind(af_packet, env, queues)
    for keys in ("", ",queues=2"):
        yield f"AF_XDP, two queues '{keys}'", bind(af_xdp_two_queues, env, keys)
    yield "AF_XDP, one queue", bind(af_xdp_one_queue, env)
    yield "AF_XDP, a queue that another program has", bind(af_xdp_taken, env)
    for function in (af_xdp_fewer_on_purpose, af_xdp_on_unsuitable_interfaces,
                     af_xdp_queues_that_would_not_be_read):
        yield function.__name__.replace("_", " "), bind(function, env)


if __name__ == "__main__":
    main(cases)
