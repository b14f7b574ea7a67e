#!/usr/bin/env python3
"""An echo server against the kernel's TCP, over IPv4 and again over IPv6.

Usage: test_peers.py BUILD_DIR tap|epoll
With tap, coronet-echo is the server and a TAP link joins it to the kernel.
With epoll, epoll-echo is the server, on loopback: a case that fails between two kernel ends is
wrong about TCP.
"""

import contextlib
import fcntl
import functools
import hashlib
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

from harness import (WAIT_MAX_S, Failure, Spoiled, check, command, eventually,
                     in_a_quiet_moment, main)

PORT = 7777
CLOSED_PORT = 7778
MIB = 1 << 20


class Tap:
    """coronet-echo at the other end of a TAP link."""
    app = "coronet-echo"
    drain_seconds = 1
    hosts = {"IPv4": "10.9.0.1", "IPv6": "fd00:9::1"}

    def __init__(self):
        self.count = 0

    @contextlib.contextmanager
    def serve(self, env):
        self.count += 1
        link = f"ct{self.count}"  # a new name, should the last one linger
        with env.running([
                env.app(self.app), "--link", f"tap:{link}", "--addr", "10.9.0.1/16",
                "--addr", "fd00:9::1/64", "--port", PORT, "--poll", "adaptive"]) as server:
            command("ip", "addr", "add", "10.9.1.1/16", "dev", link)
            command("ip", "addr", "add", "fd00:9::2/64", "dev", link, "nodad")
            command("ip", "link", "set", link, "up")
            yield server


class Epoll:
    """epoll-echo on loopback."""
    app = "epoll-echo"
    drain_seconds = 5
    hosts = {"IPv4": "127.0.0.1", "IPv6": "::1"}

    @contextlib.contextmanager
    def serve(self, env):
        with env.running([env.app(self.app), "--addr", "::", "--port", PORT]) as server:
            yield server


def dial_server(host, port=PORT, receive_buffer=0, send_buffer=0):
    """A connected socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    if send_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    sock.settimeout(WAIT_MAX_S)
    sock.connect((host, port))
    return sock


def read_to_end(sock):
    """Reads up to the peer's FIN."""
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def read_exactly(sock, size):
    parts = []
    while size and (part := sock.recv(min(size, 65536))):
        parts.append(part)
        size -= len(part)
    check(size == 0, f"the connection ended {size} bytes early")
    return b"".join(parts)


def check_echo(host, size=1000, seed=0):
    """Checks that a connection gets its own bytes back."""
    data = random.Random(seed).randbytes(size)
    with dial_server(host) as sock:
        sock.sendall(data)
        check(read_exactly(sock, size) == data, "the echo differs from what was sent")


def echo_again(*socks):
    """Checks that open connections still echo."""
    for sock in socks:
        sock.sendall(b"still there")
        check(read_exactly(sock, 11) == b"still there", "the echo differs")


def reset(sock):
    """Closes with a RST instead of a FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def ping(_env, _server, host):
    """Five pings are answered, with any delay: ping fails if one answer is missing."""
    for payload in (56, 1400):
        command("ping", "-c", "5", "-i", "0.2", "-w", WAIT_MAX_S, "-s", payload, host)


def echo_large_file(env, _server, host):
    """Echoes a large file; an eighth of it under sanitizers, which are slow."""
    echo_file(env, host, 100 * MIB // (8 if env.sanitized else 1))


def echo_file(env, host, size, seed=0):
    """socat sends a file of random bytes, and the echo's SHA-256 is compared."""
    path = env.scratch / f"file{seed}"
    generator = random.Random(seed)
    sent = hashlib.sha256()
    with path.open("wb") as file:
        for left in range(size, 0, -MIB):
            sent.update(block := generator.randbytes(min(left, MIB)))
            file.write(block)
    target = f"TCP6:[{host}]:{PORT}" if ":" in host else f"TCP4:{host}:{PORT}"
    received = hashlib.sha256()
    total = 0
    with path.open("rb") as file, subprocess.Popen(
            ["socat", "-b", "65536", "-t", "120", "STDIO", target],
            stdin=file, stdout=subprocess.PIPE) as socat:
        while part := socat.stdout.read(MIB):
            received.update(part)
            total += len(part)
    path.unlink()
    check(socat.returncode == 0, f"socat exited with {socat.returncode}")
    check(total == size, f"{total} of {size} bytes came back")
    check(received.digest() == sent.digest(), "the SHA-256 differs")


class Exchange:
    """One of many connections: sends its own bytes, round by round."""
    rounds = 4
    size = 256

    def __init__(self, host, number):
        self.generator = random.Random(number)
        self.sock = dial_server(host)
        self.sock.setblocking(False)
        self.left = self.rounds
        self.next_round()

    def next_round(self):
        self.expected = self.generator.randbytes(self.size)
        sent = self.sock.send(self.expected)
        check(sent == self.size, "an empty socket took less than a message")
        self.left -= 1

    def readable(self):
        """Reads available bytes; returns True once the last round is complete."""
        part = self.sock.recv(self.size)
        check(part, "the server closed one of many connections")
        check(self.expected.startswith(part), "a connection got bytes that are not its own")
        self.expected = self.expected[len(part):]
        if not self.expected and self.left:
            self.next_round()
        return not self.expected


def thousand_connections(_env, _server, host):
    echo_at_once(host, 1000)


def echo_at_once(host, count):
    """All connections are open before the first is done, and each gets its own bytes."""
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for number in range(count):
            exchange = Exchange(host, number)
            stack.enter_context(exchange.sock)
            selector.register(exchange.sock, selectors.EVENT_READ, exchange)
        unfinished = len(selector.get_map())
        while unfinished:
            events = selector.select(WAIT_MAX_S)
            check(events, f"{unfinished} of {count} connections wait for their echo in vain")
            for key, _ in events:
                if key.data.readable():
                    selector.unregister(key.fileobj)
                    unfinished -= 1


def half_close(_env, _server, host):
    """The client's FIN ends one direction; the other drains, then ends, too."""
    for size in (0, 1, 65536, 2 * MIB):
        data = random.Random(size).randbytes(size)
        with dial_server(host) as sock:
            def send(sock=sock, data=data):
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            received = read_to_end(sock)
            sender.join(WAIT_MAX_S)
            check(received == data, f"{len(received)} of {size} bytes came back before the FIN")


def reset_midstream(_env, server, host):
    for number in range(50):
        sock = dial_server(host)
        sock.sendall(bytes(10000))
        if number % 2:
            sock.recv(1)
        reset(sock)
    blocked = [dial_server(host, receive_buffer=4096) for _ in range(5)]
    fill(blocked)
    for sock in blocked:  # with the server's output blocked
        reset(sock)
    check(server.alive(), f"the server died: {server.story()}")
    check_echo(host)


def probes_a_closed_window(sock):
    """Whether the kernel has probed twice without an acknowledged byte since."""
    backoff = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 5)[4]
    return backoff >= 2


def fill(socks):
    """Sends until every window stays closed; returns the accepted bytes of each."""
    block = random.Random(1).randbytes(65536)
    sent = [0] * len(socks)
    for sock in socks:
        sock.setblocking(False)

    def all_are_shut():
        for i, sock in enumerate(socks):
            with contextlib.suppress(BlockingIOError):
                while sent[i] < 64 * MIB:
                    sent[i] += sock.send(block[sent[i] % len(block):])
        return all(sent[i] >= 64 * MIB or probes_a_closed_window(sock)
                   for i, sock in enumerate(socks))
    eventually(all_are_shut, WAIT_MAX_S, lambda: f"no window is shut after {sent} bytes")
    for sock in socks:
        sock.settimeout(WAIT_MAX_S)
    return sent


def peer_that_never_reads(env, server, host):
    """A peer closes its window by not reading, so the server must stop reading from it."""
    # Far above any window, far below the bytes to send. The kernel's buffers grow with the load,
    # ours do not.
    limit = (32 if env.args[0] == "epoll" else 8) * MIB
    before = server.resident_bytes()
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(dial_server(host, receive_buffer=4096, send_buffer=65536))
                 for _ in range(12)]
        stalled = list(zip(socks, fill(socks)))
        taken = max(sent for _, sent in stalled)
        check(taken <= limit, f"the server took {taken} bytes from a peer that never reads")
        check_echo(host, size=100000)  # others are served
        grown = server.resident_bytes() - before
        allowed = len(stalled) * limit // (1 if env.sanitized else 2)
        check(grown < allowed, f"the server grew by {grown} bytes")
        sock, sent = stalled[0]  # it reads at last: nothing is lost
        sock.shutdown(socket.SHUT_WR)
        received = read_to_end(sock)
        block = random.Random(1).randbytes(65536)
        expected = (block * (sent // len(block) + 1))[:sent]
        check(received == expected, f"{len(received)} of {sent} bytes came back in the end")
        for sock, _ in stalled[1:]:
            reset(sock)


def closed_port(_env, _server, host):
    """A closed port refuses at once: a second SYN would follow after a second."""
    def attempt():
        begin = time.monotonic()
        try:
            dial_server(host, CLOSED_PORT).close()
        except ConnectionRefusedError:
            spent = time.monotonic() - begin
            if spent > 0.9:
                raise Spoiled(f"refused only after {spent:.1f} s") from None
            return
        except OSError as error:
            raise Failure(f"{error} instead of a refused connection") from None
        raise Failure("a connection to a closed port was accepted")

    in_a_quiet_moment(attempt)


def sigterm_idle(env, kind, _host):
    with kind.serve(env) as server:
        server.terminate()


def unacknowledged(sock):
    """Returns the number of sent bytes that the peer has not acknowledged."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def refuses(kind, host):
    """Whether a server has started to end after SIGTERM."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.settimeout(kind.drain_seconds)  # without the link there is no answer
        try:
            sock.connect((host, PORT))
        except OSError:
            return True
    return False


def sigterm_drains(env, kind, host):
    """A queued echo still arrives after the signal."""
    data = random.Random(2).randbytes(32768)

    def attempt():
        with kind.serve(env) as server:
            with dial_server(host, receive_buffer=4096) as sock:
                sock.sendall(data)
                eventually(lambda: unacknowledged(sock) == 0, WAIT_MAX_S, "it takes no more")
                begin = time.monotonic()
                server.signal(signal.SIGTERM)
                eventually(lambda: refuses(kind, host), WAIT_MAX_S, "it takes new clients")
                with contextlib.suppress(ConnectionResetError):
                    received = b""
                    while part := sock.recv(65536):
                        received += part
                spent = time.monotonic() - begin
                if received != data and spent > kind.drain_seconds:
                    raise Spoiled(f"{len(received)} of {len(data)} bytes in {spent:.1f} s")
                check(received == data, f"{len(received)} of {len(data)} queued bytes came back")
            status = server.wait(WAIT_MAX_S)
            check(status == 0, f"exit status {status} after draining: {server.story()}")

    in_a_quiet_moment(attempt)


def second_sigterm(env, kind, host):
    """A second SIGTERM ends the server at once, with status 1; status 0 would be the end of the
    drain."""
    def attempt():
        with kind.serve(env) as server, dial_server(host) as sock:
            sock.sendall(b"x")
            check(read_exactly(sock, 1) == b"x", "the echo differs")
            begin = time.monotonic()
            server.signal(signal.SIGTERM)
            check(read_to_end(sock) == b"", "bytes nobody sent")  # it drains
            server.signal(signal.SIGTERM)
            status = server.wait(WAIT_MAX_S)
            spent = time.monotonic() - begin
            if status == 0 and spent > kind.drain_seconds:
                raise Spoiled(f"{spent:.1f} s between the signals")
            check(status == 1, f"exit status {status}: {server.story()}")

    in_a_quiet_moment(attempt)


SHARED = [ping, echo_large_file, thousand_connections, half_close, reset_midstream,
          peer_that_never_reads, closed_port]
ENDING = [sigterm_idle, sigterm_drains, second_sigterm]


def title(function, family):
    return f"{function.__name__.replace('_', ' ')} over {family}"


def cases(env):
    """The shared cases on one server, which must survive them all."""
    kind = {"tap": Tap, "epoll": Epoll}[env.args[0]]()
    running = contextlib.ExitStack()
    state = {}

    def start():
        state["server"] = running.enter_context(kind.serve(env))

    def shared(function, host):
        check("server" in state and state["server"].alive(), "the server is not running")
        function(env, state["server"], host)

    def finish():
        check("server" in state and state["server"].alive(), "the server is not running")
        state["server"].terminate()

    with running:
        yield f"{kind.app} starts", start
        for family, host in kind.hosts.items():
            for function in SHARED:
                yield title(function, family), functools.partial(shared, function, host)
        yield f"{kind.app} ends cleanly after all that", finish
    for family, host in kind.hosts.items():
        for function in ENDING:
            yield title(function, family), functools.partial(function, env, kind, host)


if __name__ == "__main__":
    main(cases)
