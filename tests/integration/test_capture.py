#!/usr/bin/env python3
"""Captures (--capture) read by tshark.

Usage: test_capture.py BUILD_DIR
"""

import collections
import functools
import os
import re
import shutil
import subprocess
import time

from harness import WAIT_MAX_S, Skip, check, command, eventually, main
from test_links import ECHO_ADDRS, TARGETS, check_load, memif_pair
from test_peers import dial_server, read_exactly
from vlan_device import vlan_device

# The kernel writes a TCP checksum of 0 as 0xffff, which is right as well: tshark doubts it.
MALFORMED = ("_ws.malformed || ip.checksum.status == 0 || "
             "(tcp.checksum.status == 0 && tcp.checksum != 0xffff)")
# The payload is random. tshark would take it for another protocol on a well-known port (6667:
# IRC), and report it as malformed.
CHECKS = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
          "-d", "tcp.port==1-65535,data"]


def tshark(path, *words):
    """Returns tshark's lines for a file, which it must read to the end."""
    if not shutil.which("tshark"):
        raise Skip("tshark is not installed")
    done = subprocess.run(["tshark", "-n", *CHECKS, "-r", str(path), *words], check=False,
                          capture_output=True, text=True)
    check(done.returncode == 0 and "cut short" not in done.stderr, done.stderr)
    return done.stdout.splitlines()


def fields(path, *names, only="frame"):
    """Returns each packet's fields as tuples; tshark 4.2 writes flags as True and False."""
    words = [word for name in names for word in ("-e", name)]
    return [tuple({"True": "1", "False": "0"}.get(field, field) for field in line.split("\t"))
            for line in tshark(path, "-Y", only, "-T", "fields", *words)]


def check_sound(path):
    bad = tshark(path, "-Y", MALFORMED)
    check(not bad, "malformed: " + "\n".join(bad[:5]))


def echo_with(env, path, options, *more):
    pair = memif_pair(env, *more)
    pair.echo += ["--capture", f"{path}{options}"]
    return pair


def path_for(env):
    user = env.ordinary_user()
    return env.scratch_for(user) / "a.pcapng"


def loaded(env, options="", family="IPv4", more=(), load=("--conns", 4, "--rate", 500)):
    """A capture of a server under some load: its path and the server."""
    path = path_for(env)
    pair = echo_with(env, path, options, *more)
    with pair.serve() as server:
        check_load(pair, "--target", TARGETS[family], *load)
        server.terminate()
    return path, server


def both_directions(env, family):
    begin = time.time()
    path, server = loaded(env, family=family)
    check_sound(path)
    found = collections.Counter()
    for direction, flags, when in fields(path, "frame.packet_flags_direction", "tcp.flags.syn",
                                   "frame.time_epoch", only="tcp"):
        found[direction, flags] += 1
        check(begin - 5 <= float(when) <= time.time(), f"at {when}, now {time.time()}")
    check(len(found) == 4, f"directions and SYNs: {found}")
    one, other = ({direction for direction, _ in found})
    check(found[one, "1"] == found[other, "1"] >= 4, f"SYNs in each direction: {found}")
    check(re.search(rf"stopped: \d\d+ packets, {path.stat().st_size} bytes, 0 dropped",
                    server.output("stderr")), server.story())
    check(path.stat().st_mode & 0o777 == 0o600, "others may read it")


def jumbo_frames(env):
    path, _ = loaded(env, more=("--mtu", 9000), load=("--mode", "bulk", "--conns", 1, "--size",
                                                        1 << 20), options=",bytes=4M")
    check_sound(path)
    check(max(int(length) for length, in fields(path, "frame.cap_len")) > 8000, "no long frame")


def filtered(env):
    path, _ = loaded(env, ",filter=tcp[tcpflags] & tcp-syn != 0 and (port 7777 or port 1)")
    check_sound(path)
    syns = fields(path, "tcp.flags.syn")
    check(len(syns) >= 8 and set(syns) == {("1",)}, f"{syns}")


def bounded(env):
    """At a limit the file is complete, and the server continues."""
    for options, wanted in ((",packets=25", lambda n, _: n == 25),
                            (",bytes=4K", lambda n, size: n > 10 and 3900 < size <= 4096),
                            (",snap=60,packets=9", lambda n, _: n == 9)):
        path = path_for(env)
        pair = echo_with(env, path, options)
        with pair.serve() as server:
            check_load(pair, "--target", TARGETS["IPv4"], "--conns", 4, "--rate", 500)
            eventually(lambda server=server: "a limit is reached" in server.output("stderr"),
                       WAIT_MAX_S, server.story)
            found = fields(path, "frame.cap_len")
            check(wanted(len(found), path.stat().st_size),
                  f"{options}: {len(found)} packets, {path.stat().st_size} bytes")
            check("snap" not in options or max(int(n) for n, in found) == 60, f"{found}")
            check_load(pair, "--target", TARGETS["IPv4"], "--conns", 4, "--rate", 500)
            server.terminate()


def disk_full(env):
    """A full disk is logged, the file has as much as fits, and the server continues."""
    folder = env.scratch / "small"
    folder.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=64k", "small", folder)
    try:
        with env.running([env.app("coronet-echo"), "--link", "tap:cap0", *ECHO_ADDRS, "--port",
                          "7777", "--poll", "adaptive", "--capture",
                          folder / "a.pcapng"]) as server:
            command("ip", "addr", "add", "10.9.1.1/16", "dev", "cap0")
            command("ip", "link", "set", "cap0", "up")
            for _ in range(2):
                with dial_server("10.9.0.1") as sock:
                    for _ in range(100):
                        sock.sendall(b"x" * 1000)
                        read_exactly(sock, 1000)
                eventually(lambda: "No space left on device" in server.output("stderr"), WAIT_MAX_S,
                           server.story)
            check_sound(folder / "a.pcapng")
            check(len(fields(folder / "a.pcapng", "frame.len")) > 20, "nothing is in the file")
            server.terminate()
    finally:
        command("umount", folder)


def killed(env):
    """Packets written before a SIGKILL can be read; two shards capture all."""
    path = path_for(env)
    with env.running([env.app("coronet-echo"), "--link", "tap:cap0,vlan=7", *ECHO_ADDRS,
                      "--port", "7777", "--poll", "adaptive", "--shards", 2, "--memory", "1G",
                      "--capture", path]) as server:
        command("ip", "link", "set", "cap0", "up")
        with vlan_device("cap0", "v7", 7):
            command("ip", "addr", "add", "10.9.1.1/16", "dev", "v7")
            command("ip", "link", "set", "v7", "up")
            ports = set()
            for _ in range(16):
                with dial_server("10.9.0.1") as sock:
                    ports.add(str(sock.getsockname()[1]))
                    sock.sendall(b"x")
                    read_exactly(sock, 1)

            def seen():
                return {port for port, in fields(path, "tcp.srcport", only="tcp")} >= ports
            eventually(lambda: server.alive() and seen(), WAIT_MAX_S, "connections are missing")
        server.kill()
    check_sound(path)
    vids = {vid for vid, in fields(path, "vlan.id", only="tcp")}
    check(vids == {"7"}, f"the tag is not as on the wire: {vids}")


def refused(env):
    folder = env.scratch_for({})
    for value, status, wanted in (
            (f"{folder}/a,filter=tcp port", 2, "the filter 'tcp port'"),
            (f"{folder}/none/a", 1, f"{folder}/none/a"), ("/dev/null", 2, "not a plain file"),
            (str(folder), 1, "Is a directory"), (f"{folder}/a,bytes=1K,snap=9999", 2, "9999")):
        program = env.start([env.app("coronet-echo"), "--link", "ring:r0", *ECHO_ADDRS,
                             "--capture", value])
        got = program.wait(WAIT_MAX_S)
        lines = program.output("stderr").strip().splitlines()
        check(got == status and len(lines) == 1 and wanted in lines[0],
              f"{value}: status {got}: {program.story()}")


def cases(env):
    os.umask(0o022)
    bind = functools.partial
    yield "both directions, IPv4", bind(both_directions, env, "IPv4")
    yield "both directions, IPv6", bind(both_directions, env, "IPv6")
    for name, case in (("jumbo frames", jumbo_frames), ("filtered", filtered),
                       ("bounded", bounded), ("disk full", disk_full), ("killed", killed),
                       ("refused", refused)):
        yield name, bind(case, env)


if __name__ == "__main__":
    main(cases)
