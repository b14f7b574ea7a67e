#!/usr/bin/env python3
"""Downloads through a router whose next link has a smaller MTU.

Usage: test_path_mtu.py BUILD_DIR

coronet-httpd sits behind a TAP of MTU 1500; this namespace is the router, and
its link to a client in another namespace has an MTU of 1300 bytes (1000 over IPv4). The router
reports it, or a filter drops the report: the download must complete in both cases.
"""

import contextlib
import functools
import os
import pathlib
import shutil
import subprocess
import time

from harness import Namespace, Skip, check, command, main

PORT = 80
MIB = 1 << 20
FILE_BYTES = 2 * MIB
SERVERS = {"IPv4": "10.9.0.1", "IPv6": "[fd00:9::1]"}
NARROW = {"IPv4": 1000, "IPv6": 1300}
# A retransmission timeout is about 0.2 s here, and three in a row indicate a black hole; the rest
# allows for a slow machine.
SECONDS = 30


def write_setting(path, value):
    pathlib.Path("/proc/sys/net", path).write_text(f"{value}\n")


def refused_packets():
    """Returns how many packets were too long for this namespace to forward."""
    fields = pathlib.Path("/proc/net/snmp").read_text().splitlines()
    names, values = [line.split()[1:] for line in fields if line.startswith("Ip:")]
    found = int(dict(zip(names, values))["FragFails"])
    for line in pathlib.Path("/proc/net/snmp6").read_text().splitlines():
        name, value = line.split()
        if name == "Ip6OutPktTooBigs" or name == "Ip6InTooBigErrors":
            found += int(value)
    return found


@contextlib.contextmanager
def filtered(silent):
    """If silent, drops the router's reports of a small MTU."""
    if silent:
        if not shutil.which("nft"):
            raise Skip("no nft")
        command("nft", "add table inet path; add chain inet path out "
                "{ type filter hook output priority 0; }; "
                "add rule inet path out icmp type destination-unreachable drop; "
                "add rule inet path out icmpv6 type packet-too-big drop")
    try:
        yield
    finally:
        if silent:
            command("nft", "delete", "table", "inet", "path")


@contextlib.contextmanager
def far_client(env, tap, number, serve=()):
    """Makes a namespace behind this one; yields the words that run a command there.

    serve: a server's words; it is there, and has said "bound", before the first packet.
    """
    near, far = f"pn{number}", f"pf{number}"
    space = Namespace(env)
    server = None
    try:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", tap)
        command("ip", "addr", "add", "fd00:9::2/64", "dev", tap, "nodad")
        command("ip", "link", "set", tap, "up")
        command("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        space.take_interface(far)
        command("ip", "addr", "add", "10.8.0.1/24", "dev", near, "noprefixroute")
        command("ip", "addr", "add", "fd00:8::1/64", "dev", near, "nodad", "noprefixroute")
        command("ip", "link", "set", near, "up")
        for words in (["10.8.0.2/24"], ["fd00:8::2/64", "nodad"]):
            space.command("ip", "addr", "add", *words, "dev", far)
        space.command("ip", "link", "set", far, "up")
        space.command("ip", "route", "add", "default", "via", "10.8.0.1")
        space.command("ip", "-6", "route", "add", "default", "via", "fd00:8::1")
        command("ip", "route", "add", "10.8.0.0/24", "dev", near, "mtu", "lock", NARROW["IPv4"])
        command("ip", "-6", "route", "add", "fd00:8::/64", "dev", near, "mtu", "lock",
                NARROW["IPv6"])
        if serve:
            server = env.start(space.inside(*serve)).wait_ready("bound")
        write_setting("ipv4/ip_forward", 1)
        write_setting("ipv6/conf/all/forwarding", 1)
        yield space.inside()
    finally:
        # The far namespace removes its end, but only some time after it has ended.
        subprocess.run(["ip", "link", "del", near], check=False, capture_output=True)
        if server:
            server.kill()
        space.close()


def download(env, number, family, silent):
    if not shutil.which("curl"):
        raise Skip("no curl")
    root = env.scratch / f"root{number}"
    root.mkdir()
    data = os.urandom(FILE_BYTES)
    (root / "big").write_bytes(data)
    tap = f"pt{number}"
    with env.running([env.app("coronet-httpd"), "--link", f"tap:{tap}",
                      "--addr", "10.9.0.1/16", "--addr", "fd00:9::1/64",
                      "--gateway", "10.9.1.1", "--gateway", "fd00:9::2",
                      "--port", PORT, "--root", root, "--poll", "adaptive"]), \
            far_client(env, tap, number) as inside, filtered(silent):
        before = refused_packets()
        for attempt in ("first", "second"):
            begin = time.monotonic()
            done = subprocess.run(
                [*inside, "curl", "--silent", "--show-error", "--max-time", str(SECONDS),
                 f"http://{SERVERS[family]}/big"],
                check=False, stdin=subprocess.DEVNULL, capture_output=True)
            seconds = time.monotonic() - begin
            check(done.returncode == 0, f"{attempt}: {done.stderr.decode()}, {len(done.stdout)} "
                  f"of {FILE_BYTES} bytes in {seconds:.1f} s")
            check(done.stdout == data, f"{attempt}: the bytes are wrong")
            print(f"# {attempt}: {seconds:.2f} s", flush=True)
        check(refused_packets() > before, "the path was not narrow")


def cases(env):
    number = 0
    for family in SERVERS:
        for silent in (False, True):
            number += 1
            yield (f"a narrow path over {family}, {'silent' if silent else 'reported'}",
                   functools.partial(download, env, number, family, silent))


if __name__ == "__main__":
    main(cases)
