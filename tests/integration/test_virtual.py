#!/usr/bin/env python3
"""af_xdp and af_packet on veth, whose other end is the kernel's with its defaults.

Usage: test_virtual.py BUILD_DIR
A case changes only the peer's settings that it names: the interface leaves checksums to a NIC that
does not exist.
"""

import contextlib
import functools
import os
import socket

from harness import WAIT_MAX_S, check, command, eventually, main
from test_links import ECHO_ADDRS, checksums_in_software, echo_once
from test_peers import dial_server, read_exactly
from test_queues import xdp_options
from vlan_device import vlan_device

HOSTS = ("10.9.0.1", "fd00:9::1")
ADVICE = "csum=trust with this --link"


@contextlib.contextmanager
def veth():
    """Makes a pair whose veth1 is the kernel's, with addresses."""
    command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    try:
        for interface in ("veth0", "veth1"):
            command("ip", "link", "set", interface, "up")
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "veth1")
        command("ip", "addr", "add", "fd00:9::2/64", "dev", "veth1", "nodad")
        yield
    finally:
        command("ip", "link", "del", "veth0")


@contextlib.contextmanager
def echo_on(env, link, **popen_args):
    argv = [env.app("coronet-echo"), "--link", link, *ECHO_ADDRS, "--port", "7777", "--poll",
            "adaptive", "--stats", "0.2"]
    with env.running(argv, **{**xdp_options(env), **popen_args}) as server:
        yield server


def exchange(host, size):
    with dial_server(host) as sock:
        for _ in range(20):
            sock.sendall(b"x" * size)
            check(read_exactly(sock, size) == b"x" * size, "the echo differs")


def trusted(env, kind):
    """With csum=trust the peer needs no change."""
    with veth(), echo_on(env, f"{kind}:veth0,csum=trust") as server:
        for host in HOSTS:
            command("ping", "-c", "2", "-i", "0.2", "-w", WAIT_MAX_S, host)
            for size in (1, 1000):
                exchange(host, size)
            if kind == "af_xdp":  # AF_PACKET would see frames of 64 KiB
                echo_once(host)
        check(ADVICE not in server.output("stderr"), server.story())
        server.terminate()


def not_trusted(env, kind):
    """Without csum=trust no segment passes, and the log says once what to do."""
    with veth(), echo_on(env, f"{kind}:veth0") as server:
        with contextlib.suppress(OSError):
            dial_briefly(HOSTS[0])
        eventually(lambda: ADVICE in server.output("stderr"), WAIT_MAX_S, server.story)
        checksums_in_software("veth1")
        exchange(HOSTS[0], 1000)
        check(server.output("stderr").count(ADVICE) == 1, server.story())
        server.terminate()


def dial_briefly(host):
    socket.create_connection((host, 7777), 3).close()


def bpffs(env, mounted):
    """A program serves with a bpffs and without one, and leaves no BPF program behind."""
    if mounted:
        command("mount", "-t", "bpf", "bpf", "/sys/fs/bpf")
    try:
        with veth():
            with echo_on(env, "af_xdp:veth0,csum=trust") as server:
                exchange(HOSTS[0], 1000)
                server.terminate()
                check("libxdp" not in server.output("stderr"), server.story())
            check("xdp" not in command("ip", "link", "show", "veth0"), "a program is left")
    finally:
        if mounted:
            command("umount", "/sys/fs/bpf")


def starts_again(env):
    """After a SIGKILL the interface can be opened again."""
    with veth():
        for _ in range(2):
            with echo_on(env, "af_xdp:veth0,csum=trust") as server:
                exchange(HOSTS[0], 1000)
                server.kill()
        with echo_on(env, "af_xdp:veth0,csum=trust") as server:
            exchange(HOSTS[1], 1000)
            server.terminate()


def on_a_vlan(env):
    """VLAN tags in the frame are read and written."""
    command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    try:
        for interface in ("veth0", "veth1"):
            command("ip", "link", "set", interface, "up")
        with (echo_on(env, "af_xdp:veth0,vlan=7") as server,
              vlan_device("veth1", "v7", 7)):
            command("ip", "addr", "add", "10.9.1.1/16", "dev", "v7")
            command("ip", "link", "set", "v7", "mtu", 1500, "up")
            for interface in ("veth1", "v7"):
                checksums_in_software(interface)
            command("ping", "-c", "2", "-i", "0.2", "-w", WAIT_MAX_S, "-M", "do", "-s", 1472,
                    HOSTS[0])
            exchange(HOSTS[0], 5000)
            server.terminate()
    finally:
        command("ip", "link", "del", "veth0")


def cases(env):
    bind = functools.partial
    os.environ.pop("LIBXDP_SKIP_DISPATCHER", None)
    for kind in ("af_xdp", "af_packet"):
        yield f"{kind}: csum=trust", bind(trusted, env, kind)
        yield f"{kind}: checksums left to a NIC", bind(not_trusted, env, kind)
    yield "af_xdp without a bpffs", bind(bpffs, env, False)
    yield "af_xdp with a bpffs", bind(bpffs, env, True)
    yield "af_xdp after a kill", bind(starts_again, env)
    yield "af_xdp on a VLAN", bind(on_a_vlan, env)


if __name__ == "__main__":
    main(cases)
