#!/usr/bin/env python3
"""The same seeded scripts against a program of ours and its twin on the kernel.

Usage: test_twins.py BUILD_DIR [--seeds FIRST:COUNT]
Slow, stalling, half-closing and aborting clients and backends (twin_scripts.py)
of echo, proxy and httpd over a TAP link; the same against epoll-echo and epoll-proxy on loopback,
to detect scripts that expect too much. Then scenarios of slow readers in which bytes were once
lost.
"""

import concurrent.futures
import contextlib
import fcntl
import functools
import pathlib
import re
import socket
import sys
import termios
import threading

import proxies
from harness import await_rounds, check, command, eventually, kernel_count, main
from twin_scripts import (WAIT_MAX_S, Run, Script, bound_time, connect, faults, payload,
                          probe_when_idle)
from uring import no_uring

HOST, NEAR = "10.9.0.1", "10.9.1.1"
AT_ONCE = 80  # scripts that run in parallel
SHOWN = 3  # failing scripts that are printed in full
KIB = 1024


@contextlib.contextmanager
def over_tap(env, app, *options):
    """A program of ours behind a TAP link."""
    over_tap.count = getattr(over_tap, "count", 0) + 1
    link = f"tw{over_tap.count}"
    with env.running([env.app(app), "--link", f"tap:{link}", "--addr", f"{HOST}/16",
                      "--poll", "adaptive", *options]) as server:
        command("ip", "addr", "add", f"{NEAR}/16", "dev", link)
        command("ip", "link", "set", link, "up")
        yield server


def seeds(env, count):
    """Returns the seeds of a case: its own, or those of --seeds."""
    if "--seeds" in env.args:
        first, _, count = env.args[env.args.index("--seeds") + 1].partition(":")
        return range(int(first), int(first) + int(count))
    return range(1, 1 + (count // 2 if env.sanitized else count))


def run_all(scripts, run_one):
    """Runs all scripts; returns a list of (script, fault)."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(run_one, scripts))
    return [(script, wrong) for script, wrong in zip(scripts, found) if wrong]


def check_none(bad, count, name):
    shown = "\n".join(f"{script}\n  " + "\n  ".join(wrong) for script, wrong in bad[:SHOWN])
    check(not bad, f"{name}: {len(bad)} of {count} scripts went wrong: "
                   f"{[script.seed for script, _ in bad]}\n{shown}")


# ---- echo ----


def run_echo(address, script):
    party = script.client
    with contextlib.suppress(ConnectionError):
        run = Run(connect(address, party), party, payload(script.seed, party.total))
        run.start().join()
        wrong = faults(run, run, party.abrupt)
        return wrong
    return ["could not connect"]


def echo(env):
    """The client's bytes come back; the echo server plays the second party."""
    scripts = [Script(seed) for seed in seeds(env, 120)]
    for script in scripts:  # it reads what it sends
        bound_time(script.client, script.client)
    for app in ("epoll-echo", *([] if no_uring(env.build) else ["uring-echo"])):
        with env.running([env.app(app), "--port", "7777"]):
            check_none(run_all(scripts, functools.partial(run_echo, ("127.0.0.1", 7777))),
                       len(scripts), app)
    with over_tap(env, "coronet-echo", "--port", "7777") as server:
        check_none(run_all(scripts, functools.partial(run_echo, (HOST, 7777))),
                   len(scripts), "coronet-echo")
        server.terminate()


def io_uring_is_found_where_any_address_can_be_bound(env):
    """With net.ipv4.ip_nonlocal_bind=1, as set by the proxy benchmark, the check for io_uring does
    not hang."""
    setting = pathlib.Path("/proc/sys/net/ipv4/ip_nonlocal_bind")
    before = no_uring(env.build)
    setting.write_text("1", "ascii")
    try:
        check(no_uring(env.build) == before, f"it was '{before}'")
    finally:
        setting.write_text("0", "ascii")


# ---- proxy ----


class Backend:
    """Plays the second party of the script that its client names."""

    def __init__(self, kind):
        self.scripts, self.runs = {}, {}
        self.peer = proxies.Peer(kind, self.serve)

    def serve(self, sock):
        seed = int.from_bytes(proxies.read_exactly(sock, 8), "big")
        party = self.scripts[seed].server
        if party.receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, party.receive_buffer)
        probe_when_idle(sock)
        run = Run(sock, party, payload(-seed, party.total))
        self.runs[seed].set_result(run.start())
        run.join()

    def expect(self, script):
        self.scripts[script.seed] = script
        self.runs[script.seed] = concurrent.futures.Future()
        return self.runs[script.seed]


def run_proxied(backend, address, script):
    """Runs both directions of a script through a proxy."""
    expected = backend.expect(script)
    try:
        sock = connect(address, script.client)
        sock.sendall(script.seed.to_bytes(8, "big"))
    except OSError as error:
        return [f"could not connect: {error}"]
    client = Run(sock, script.client, payload(script.seed, script.client.total)).start()
    try:
        server = expected.result(5 if script.client.abrupt else WAIT_MAX_S)
    except concurrent.futures.TimeoutError:
        client.join()  # a client that leaves at once may never reach the backend
        return ["its backend never heard of it"] if not script.client.abrupt else []
    client.join()
    server.ended.wait()
    return ([f"client: {wrong}" for wrong in faults(client, server, script.abrupt)] +
            [f"server: {wrong}" for wrong in faults(server, client, script.abrupt)])


def proxy(env):
    scripts = [Script(seed) for seed in seeds(env, 160)]
    for kind in (proxies.Epoll(), proxies.Tap()):
        backend = Backend(kind)
        with backend.peer as peer, kind.serve(env, "--to", peer.at,
                                              "--health-interval", "0") as program:
            address = (kind.host, proxies.PORT)
            check_none(run_all(scripts, functools.partial(run_proxied, backend, address)),
                       len(scripts), kind.app)
            program.terminate()


# ---- httpd ----

SIZES = [0, 1, 1459, 1460, 1461, 2920, 20000, 65535, 65536, 70001, 130000, 300000]


def answers(data):
    """Returns the statuses and bodies in a stream of answers; None if it is truncated."""
    found, data = [], bytes(data)
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if not end or not length or len(rest) < int(length[1]):
            return None
        found.append((int(head.split()[1]), rest[:int(length[1])]))
        data = rest[int(length[1]):]
    return found


def requests(script):
    """Returns the client's requests: sizes, and their bytes."""
    most = script.server.total or 1
    fitting = [size for size in SIZES if size <= most] or [0]
    wanted = [fitting[(script.seed * 7 + i) % len(fitting)] for i in range(1 + script.seed % 4)]
    wanted = wanted if sum(wanted) <= 2 * most else wanted[:1]
    lines = [f"GET /{size} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for size in wanted]
    return wanted, b"".join(lines)


def run_requests(script):
    """Sends requests, half-closes, and reads all answers up to the end."""
    wanted, data = requests(script)
    party = script.client
    cut = script.seed % max(1, len(data))
    party.end_after = min(party.end_after, sum(wanted))
    party.writes = [(0, cut), (party.stall_ms // 2, len(data) - cut)]
    try:
        run = Run(connect((HOST, 80), party), party, data).start().join()
    except OSError as error:
        return [f"could not connect: {error}"]
    if run.ending == "hangs":
        return [f"hangs after {len(run.received)} bytes"]
    if party.abrupt:
        return []
    got = answers(run.received)
    expected = [(200, payload(size, size)) for size in wanted]
    if run.ending == "EOF" and got == expected:
        return []
    sizes = got and [(status, len(body)) for status, body in got]
    return [f"asked for {wanted}, got {sizes} in {len(run.received)} bytes, then {run.ending}"]


def httpd(env):
    folder = env.scratch_for({})
    for size in SIZES:
        (folder / str(size)).write_bytes(payload(size, size))
    scripts = [Script(seed) for seed in seeds(env, 120)]
    with over_tap(env, "coronet-httpd", "--port", "80", "--root", folder) as server:
        check_none(run_all(scripts, run_requests), len(scripts), "coronet-httpd")
        server.terminate()


# ---- bytes that were once lost ----


def unread(socks):
    """Returns the unread bytes in the kernel."""
    return sum(int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)
               for sock in socks)


def await_stillness(program, *socks):
    """Waits until no more bytes come for an interval of the program's --stats."""
    def still():
        before = unread(socks)
        await_rounds(program, 1)
        return unread(socks) == before > 0
    eventually(still, WAIT_MAX_S, "bytes come without end, or none")


def ask_for(buffer, size):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.settimeout(WAIT_MAX_S)
    sock.connect((HOST, 80))
    sock.sendall(b"GET /f%d HTTP/1.0\r\n\r\n" % size)
    return sock


def rest_of(sock, wanted):
    """Reads a whole answer; returns its fault, or None."""
    try:
        body = proxies.read_to_end(sock).partition(b"\r\n\r\n")[2]
    except OSError as error:
        return f"{len(wanted)} bytes: {error}"
    if body == wanted:
        return None
    return f"{len(wanted)} bytes: {len(body)} arrived before a clean EOF"


def downloads_after_a_pause(env):
    """Clients with full windows get 562 files after a pause with nothing in flight."""
    folder = env.scratch_for({})
    step = 1000 if env.sanitized else 250
    sizes = range(60000, 130001, step)
    for size in sizes:
        (folder / f"f{size}").write_bytes(payload(size, size))
    with over_tap(env, "coronet-httpd", "--port", "80", "--root", folder, "--send-timeout",
                  WAIT_MAX_S, "--stats", "0.2") as server:
        for buffer in (70000, 90000):
            with contextlib.ExitStack() as stack:
                socks = [stack.enter_context(ask_for(buffer, size)) for size in sizes]
                await_stillness(server, *socks)
                await_rounds(server, 6)  # nothing is in flight for longer than an RTO
                wrong = list(filter(None, (rest_of(sock, (folder / f"f{size}").read_bytes())
                                           for sock, size in zip(socks, sizes))))
            check(not wrong, f"SO_RCVBUF {buffer}: {len(wrong)} of {len(sizes)} downloads: "
                  + "; ".join(wrong[:5]))
        server.terminate()


def fill(sock):
    """Sends until the window stays closed: the kernel has probed it twice since the last accepted
    byte."""
    block, probes = bytes(65536), kernel_count("TCPWinProbe")
    sock.setblocking(False)

    def is_shut():
        nonlocal probes
        with contextlib.suppress(BlockingIOError):
            while sock.send(block):
                probes = kernel_count("TCPWinProbe")
        return kernel_count("TCPWinProbe") >= probes + 2
    eventually(is_shut, WAIT_MAX_S, "the window is never shut")
    sock.settimeout(WAIT_MAX_S)


def answer_while_nobody_reads(env, kind):
    """A backend that reads nothing answers a blocked upload: both windows are zero."""
    go, size = threading.Event(), 300000

    def serve(sock):
        go.wait(WAIT_MAX_S)
        sock.sendall(payload(1, size))
        done.wait(WAIT_MAX_S)

    done = threading.Event()
    with proxies.Peer(kind, serve) as peer, kind.serve(env, "--to", peer.at,
                                                       "--health-interval", "0"):
        with proxies.dial_proxy(kind) as sock:
            fill(sock)  # with zero-window probes, on both sides of the proxy
            go.set()
            data = bytearray()
            with contextlib.suppress(TimeoutError):
                while len(data) < size:
                    part = sock.recv(65536)
                    check(part, f"a clean EOF after {len(data)} bytes")
                    data += part
            done.set()
        check(len(data) == size, f"{len(data)} of {size} bytes of the answer came")
        check(data == payload(1, size), "the answer came back wrong")


def upload_while_client_does_not_read(env, kind):
    """The backend answers as it reads; the client reads after it has sent all."""
    size = 8 * 1024 * KIB // (4 if env.sanitized else 1)
    got = {}

    def serve(sock):
        sock.settimeout(WAIT_MAX_S)
        filled = threading.Thread(target=flood, args=[sock])
        filled.start()
        got["data"] = proxies.read_exactly(sock, size)
        filled.join()

    def flood(sock):
        with contextlib.suppress(OSError):
            sock.sendall(bytes(1024 * KIB))

    data = payload(2, size)
    with proxies.Peer(kind, serve) as peer, kind.serve(
            env, "--to", peer.at, "--health-interval", "0", "--stats", "0.2") as proxy:
        with proxies.dial_proxy(kind, SO_RCVBUF=4096) as sock:
            await_stillness(proxy, sock)  # the direction to the client is full
            with contextlib.suppress(TimeoutError):
                sock.sendall(data)
            eventually(lambda: "data" in got, WAIT_MAX_S,
                       f"the backend got only a part of {size} bytes")
        check(got["data"] == data, "the upload came wrong")


def tcp_state(sock):
    """The kernel's state of the connection: 1 is established."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def reset_of_a_reader_that_sleeps(env, kind):
    """--idle-timeout resets a client with a zero window, which must get the reset."""
    def pour(sock):
        while True:
            sock.sendall(bytes(65536))

    with proxies.Peer(kind, pour) as peer, kind.serve(
            env, "--to", peer.at, "--health-interval", "0", "--idle-timeout", "1"):
        with proxies.dial_proxy(kind, SO_RCVBUF=8192) as sock:
            eventually(lambda: tcp_state(sock) != 1, WAIT_MAX_S,
                       "the client never heard of the reset")
            with contextlib.suppress(ConnectionResetError):
                while sock.recv(65536):
                    pass
                check(False, "a clean EOF in the middle of a stream")


def keepalive_of_a_reader_that_sleeps(env):
    """Keepalives of a client with a zero window are answered."""
    folder = env.scratch_for({})
    size, most = 4 * 1024 * KIB, 3
    (folder / "big").write_bytes(payload(size, size))
    with over_tap(env, "coronet-httpd", "--port", "80", "--root", folder) as server:
        with socket.socket() as sock:
            for level, option, value in (
                    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, most)):
                sock.setsockopt(level, option, value)
            sock.settimeout(WAIT_MAX_S)
            sock.connect((HOST, 80))
            probes = kernel_count("TCPKeepAlive")
            sock.sendall(b"GET /big HTTP/1.0\r\n\r\n")
            # Of which so many in a row must not fail.
            eventually(lambda: kernel_count("TCPKeepAlive") > probes + most + 1
                       or tcp_state(sock) != 1, WAIT_MAX_S, "the kernel does not probe")
            data = proxies.read_to_end(sock)
        check(data.endswith(payload(size, size)), f"{len(data)} bytes came")
        server.terminate()


def cases(env):
    bind = functools.partial
    for function in (echo, proxy, httpd):
        yield f"twins: {function.__name__}", bind(function, env)
    if "--seeds" in env.args:
        return
    yield ("io_uring is found where any address can be bound",
           bind(io_uring_is_found_where_any_address_can_be_bound, env))
    yield "downloads after a pause", bind(downloads_after_a_pause, env)
    for kind in (proxies.Tap, proxies.Epoll):
        for function in (answer_while_nobody_reads, upload_while_client_does_not_read,
                         reset_of_a_reader_that_sleeps):
            yield f"{kind.app}: {function.__name__.replace('_', ' ')}", bind(function, env, kind())
    yield "keepalive of a reader that sleeps", bind(keepalive_of_a_reader_that_sleeps, env)


if __name__ == "__main__":
    main(cases)
