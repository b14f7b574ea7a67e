#!/usr/bin/env python3
"""UDP over a TAP against the kernel: echoes in both directions, closed ports, path MTU.

Usage: test_udp.py BUILD_DIR
"""

import contextlib
import errno
import functools
import hashlib
import json
import random
import signal
import socket
import subprocess
import threading
import time

from harness import WAIT_MAX_S, Spoiled, check, command, eventually, in_a_quiet_moment, main
from test_path_mtu import NARROW, far_client

PORT = 7777
CLOSED = 7778
PEERS = {"IPv4": "10.9.1.1", "IPv6": "fd00:9::2"}
STACKS = {"IPv4": "10.9.0.1", "IPv6": "fd00:9::1"}
FAR = {"IPv4": "10.8.0.2", "IPv6": "fd00:8::2"}
PREFIXES = {"IPv4": "10.9.0.1/16", "IPv6": "fd00:9::1/64"}
FAMILIES = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}
LARGEST = {"IPv4": 1472, "IPv6": 1452}
HEADERS = {"IPv4": 28, "IPv6": 48}
REFUSED = 3  # the status of tests/integration/datagrams


def set_up(tap):
    command("ip", "addr", "add", "10.9.1.1/16", "dev", tap)
    command("ip", "addr", "add", "fd00:9::2/64", "dev", tap, "nodad")
    command("ip", "link", "set", tap, "up")


def connected(family, port):
    sock = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
    sock.settimeout(WAIT_MAX_S)
    sock.connect((STACKS[family], port))
    return sock


def check_listed(env, control, shards, n):
    """coronet-ctl lists a socket for each shard, and they have received n datagrams."""
    done = subprocess.run([env.app("coronet-ctl"), "--control", control, "--json", "udp"],
                          check=False, capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    rows = json.loads(done.stdout)
    check([row["shard"] for row in rows] == list(range(shards)), rows)
    check(all(row["local"] == f"*:{PORT}" and row["reader"] == "echo_datagrams"
              and row["drops"] == 0 for row in rows), rows)
    check(sum(row["rx"] for row in rows) == n, rows)


def echo(env, shards):
    """Datagrams of the kernel's of every size come back with the same hash."""
    control = env.scratch / f"control{shards}"
    with env.running([env.app("coronet-echo"), "--link", "tap:ud0", "--udp", "--port", PORT,
                      "--control", control, "--addr", PREFIXES["IPv4"], "--addr", PREFIXES["IPv6"],
                      "--shards", shards, "--poll", "adaptive", "--memory", "1G"]) as server:
        set_up("ud0")
        for family in FAMILIES:
            rng = random.Random(family)
            sizes = [0, 1, LARGEST[family], *(rng.randrange(LARGEST[family]) for _ in range(60))]
            socks = [connected(family, PORT) for _ in range(8)]  # so that every shard gets some
            asked, answered = hashlib.sha256(), hashlib.sha256()
            for number, size in enumerate(sizes):
                data = rng.randbytes(size)
                asked.update(data)
                sock = socks[number % len(socks)]
                sock.send(data)
                answered.update(sock.recv(65536))
            check(asked.digest() == answered.digest(), f"{family}: an echo differs")
        check_listed(env, control, shards, len(FAMILIES) * len(sizes))
        check_closed_port("IPv4")
        check_closed_port("IPv6")
        server.terminate()


def check_closed_port(family):
    """The stack answers "port unreachable", which the kernel reports."""
    with connected(family, CLOSED) as sock:
        def refused():
            try:
                sock.send(b"x")
                sock.settimeout(0.2)
                sock.recv(1)
            except TimeoutError:
                return False
            except OSError as error:
                return error.errno == errno.ECONNREFUSED
            return False
        eventually(refused, WAIT_MAX_S, f"{family}: a closed port does not refuse")


def answered(source, server, port, datagram):
    """Returns the answer to a datagram, or b"" if none comes soon."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.3)
        sock.bind((source, 0))
        try:
            sock.connect((server, port))
            sock.send(datagram)
            return sock.recv(65536)
        except OSError:
            return b""


def check_jammed_link(env, app, port, datagram, *options):
    """A server answers on one TAP while another one is down, with queries in its queue."""
    control = env.scratch / "control"
    links = {"ja0": ("10.9.0.1", "10.9.1.1"), "jb0": ("10.8.0.1", "10.8.1.1")}
    argv = [env.app(app), "--poll", "adaptive", "--shards", 1, "--memory", "256M", "--huge", "off",
            "--control", control, *options]
    for tap, (server, _) in links.items():
        argv += ["--link", f"tap:{tap}", "--addr", f"{server}/16"]

    def asked(tap):
        return answered(links[tap][1], links[tap][0], port, datagram)

    def busy():
        done = subprocess.run([env.app("coronet-ctl"), "--control", control, "--json", "udp"],
                              check=True, capture_output=True, text=True)
        return sum(row["tx_busy"] for row in json.loads(done.stdout))

    def jam(program):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((links["ja0"][1], 0))
            sock.connect((links["ja0"][0], port))
            program.signal(signal.SIGSTOP)
            for _ in range(900):
                sock.send(datagram)
            command("ip", "link", "set", "ja0", "down")
            program.signal(signal.SIGCONT)
        eventually(lambda: asked("jb0"), WAIT_MAX_S, "the other link is not served")
        found = busy()
        command("ip", "link", "set", "ja0", "up")
        eventually(lambda: asked("ja0"), WAIT_MAX_S, "the link is not served again")
        return found

    with env.running(argv) as program:
        for tap, (_, source) in links.items():
            command("ip", "addr", "add", f"{source}/16", "dev", tap)
            command("ip", "link", "set", tap, "up")
            eventually(lambda tap=tap: asked(tap), WAIT_MAX_S, f"{tap} is not served")
        eventually(lambda: jam(program), 2 * WAIT_MAX_S, "the link never was without room")
        program.terminate()


@contextlib.contextmanager
def kernel_echo(family):
    """Echoes with a kernel socket at every address of this namespace."""
    sock = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
    sock.bind(("", PORT))

    def serve():
        while True:
            data, peer = sock.recvfrom(65536)
            if data == b"end":
                return
            sock.sendto(data, peer)
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        with socket.socket(FAMILIES[family], socket.SOCK_DGRAM) as end:
            end.sendto(b"end", ("127.0.0.1" if family == "IPv4" else "::1", PORT))
        thread.join()
        sock.close()


def client_argv(env, family, peer, port, size, count, gateway="-"):
    host = f"[{peer}]" if family == "IPv6" else peer
    return [env.build / "tests/integration/datagrams", "tap:ud0", PREFIXES[family], gateway,
            f"{host}:{port}", size, count]


def client(env, family):
    """A program on the stack gets its datagrams back from the kernel, and learns that none listens.
    """
    command("ip", "link", "set", "lo", "up")
    with kernel_echo(family):
        program = env.start(client_argv(env, family, PEERS[family], PORT, 9000, 200))
        program.wait_ready("connected")
        set_up("ud0")
        check(program.wait(2 * WAIT_MAX_S) == 0, program.story())
        check(f"echoed 200, room {LARGEST[family]}" in program.output("stdout"), program.story())
    program = env.start(client_argv(env, family, PEERS[family], CLOSED, 10, 1))
    program.wait_ready("connected")
    set_up("ud0")
    check(program.wait(2 * WAIT_MAX_S) == REFUSED, program.story())


FAR_ECHO = """
import socket, sys
sock = socket.socket(int(sys.argv[1]), socket.SOCK_DGRAM)
sock.bind(("", int(sys.argv[2])))
print("bound", flush=True)
while True:
    data, peer = sock.recvfrom(65536)
    sock.sendto(data, peer)
"""


def path_mtu(env, family):
    """A router reports its smaller MTU: later datagrams fit, and are answered."""
    program = env.start(client_argv(env, family, FAR[family], PORT, 9000, 50,
                                    gateway=PEERS[family]))
    program.wait_ready("connected")
    server = ["python3", "-c", FAR_ECHO, str(int(FAMILIES[family])), str(PORT)]
    with far_client(env, "ud0", 7, server):
        check(program.wait(2 * WAIT_MAX_S) == 0, program.story())
        room = NARROW[family] - HEADERS[family]
        check(f"echoed 50, room {room}" in program.output("stdout"), program.story())


def new_mac(env):
    """The kernel's new MAC address reaches every shard with its next solicitation."""
    def answered_all(socks):
        for sock in socks:
            sock.settimeout(0.1)
            try:
                sock.send(b"x")
                sock.recv(1)
            except OSError:
                return False
        return True

    def change(socks, macs):
        eventually(lambda: answered_all(socks), WAIT_MAX_S, "no echo")
        command("ip", "link", "set", "ud0", "address", next(macs))
        command("ip", "-6", "neigh", "flush", "dev", "ud0")
        began = time.monotonic()
        eventually(lambda: answered_all(socks), WAIT_MAX_S, "no echo to the new MAC")
        if time.monotonic() - began > 4:  # probing the old one takes 8 seconds or more
            raise Spoiled("the echo was late")

    with env.running([env.app("coronet-echo"), "--link", "tap:ud0", "--udp", "--port", PORT,
                      "--addr", PREFIXES["IPv6"], "--shards", 2, "--poll", "adaptive",
                      "--memory", "1G"]) as server:
        set_up("ud0")
        socks = [connected("IPv6", PORT) for _ in range(8)]  # so that every shard has some
        macs = (f"02:00:00:00:99:{i:02x}" for i in range(256))
        in_a_quiet_moment(lambda: change(socks, macs))
        server.terminate()


def cases(env):
    for shards in (1, 3):
        yield f"the kernel's datagrams are echoed, {shards} shards", \
            functools.partial(echo, env, shards)
    yield "a link without room does not stop the other one", functools.partial(
        check_jammed_link, env, "coronet-echo", PORT, b"x" * 100, "--udp", "--port", PORT)
    yield "a neighbour's new MAC address, 2 shards", functools.partial(new_mac, env)
    for family in FAMILIES:
        yield f"a client over {family}", functools.partial(client, env, family)
        yield f"a narrow path over {family}", functools.partial(path_mtu, env, family)


if __name__ == "__main__":
    main(cases)
