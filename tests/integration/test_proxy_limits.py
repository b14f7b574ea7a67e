#!/usr/bin/env python3
"""Resources of the proxies, idle timeouts, and exhausted limits.

Usage: test_proxy_limits.py BUILD_DIR tap|epoll
With tap, coronet-proxy is the proxy, with epoll, epoll-proxy is (proxies.py).
"""

import contextlib
import re
import resource
import socket
import struct
import time

from harness import (WAIT_MAX_S, Failure, Spoiled, await_rounds, check, chosen, eventually,
                     in_a_quiet_moment, main, repeat_for)
from proxies import (PORT, Epoll, Peer, Tap, check_broken, check_echo, dial_proxy, echo_bytes,
                     read_to_end)
from proxy_limits import (client_limit, drain, drain_delivers, drain_serves_the_queue,
                          drain_timeout, idle_timeout, out_of_connections)
from test_proxy_shards import check_sessions


def slow_reader_is_not_idle(env, kind):
    """A client that slowly reads the backend's old bytes is not idle."""
    size, limit = 20000, 1

    def pour(sock):
        sock.sendall(bytes(size))
        read_to_end(sock)

    def attempt():
        got, longest, last = 0, 0.0, time.monotonic()

        def read_a_little():
            nonlocal got, longest, last
            got += len(sock.recv(100))
            longest = max(longest, time.monotonic() - last)
            last = time.monotonic()

        with dial_proxy(kind, SO_RCVBUF=2048) as sock, contextlib.suppress(ConnectionResetError):
            repeat_for(1.5 * limit, read_a_little)
            check(got < size / 2, "it reads too fast to show anything")
            while part := sock.recv(2000):
                got += len(part)
        if got < size and longest > limit / 2:
            raise Spoiled(f"{longest:.1f} s between two reads")
        check(got == size, f"cut off after {got} of {size} bytes, none "
                           f"later than {longest:.1f} s after another")

    with Peer(kind, pour) as peer, kind.serve(env, "--to", peer.at, "--idle-timeout", limit):
        in_a_quiet_moment(attempt)


def frames_free(proxy):
    """Waits for another line of --stats; returns its number of free frames."""
    await_rounds(proxy, 1)
    return int(re.findall(r"(\d+) of \d+ frames free", proxy.output("stderr"))[-1])


def dialling_holds_no_frame(env, kind):
    """Clients of backends that do not answer hold no frames of the NIC."""
    count = 300
    with kind.serve(env, "--to", f"{kind.nobody}:80", "--accept-proxy", "--connect-timeout", "60",
                    "--health-interval", "0", "--stats", "0.2") as proxy:
        before = frames_free(proxy)
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(dial_proxy(kind)).sendall(b"PROXY UNKNOWN\r\n" + bytes(1000))
            eventually(lambda: f"proxy: {count} sessions" in proxy.output("stderr"), WAIT_MAX_S,
                       "the clients are not all there")
            held = before - frames_free(proxy)
            check(held < count / 4, f"{held} frames held by {count} clients")
        check(proxy.alive(), proxy.story())


def reset_ends_dialling(env, kind):
    """Clients that reset while a backend does not answer free their slots."""
    count = 300
    with kind.serve(env, "--to", f"{kind.nobody}:80", "--max-clients", count, "--connect-timeout",
                    2 * WAIT_MAX_S, "--health-interval", "0", "--stats", "0.2") as proxy:
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                sock = stack.enter_context(dial_proxy(kind))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            check_sessions(proxy, count)
        check_sessions(proxy, 0)  # does not wait for --connect-timeout


def out_of_files(env, kind):
    """More clients than descriptors: they wait, and the backend stays up."""
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, "--health-interval", "0.5", "--fall", "3", "--stats", "0.5",
            limit=(resource.RLIMIT_NOFILE, 60)) as proxy, contextlib.ExitStack() as stack:
        socks = [stack.enter_context(dial_proxy(kind)) for _ in range(80)]
        served = 0
        for sock in socks:
            sock.sendall(b"x")
        await_rounds(proxy, 4)  # at least three health checks
        for sock in socks:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                served += sock.recv(1) == b"x"
        check(0 < served < 80, f"{served} of 80 clients were served")
        check(" is down" not in proxy.output("stderr"), proxy.story())
        for sock in socks:
            sock.close()
        eventually(lambda: served_again(kind), WAIT_MAX_S, "it does not recover")


def served_again(kind):
    with contextlib.suppress(OSError, Failure):
        check_echo(kind)
        return True
    return False


def headers_displace_each_other(env, kind):
    """Beyond the limit of incomplete PROXY headers, the oldest is reset."""
    with Peer(kind, echo_bytes) as peer, \
            kind.serve(env, "--to", peer.at, "--accept-proxy", "--max-half-open", "2",
                       "--proxy-timeout", "60", "--stats", "0.2") as proxy, \
            contextlib.ExitStack() as stack:
        socks = []
        for number in range(3):
            socks.append(stack.enter_context(dial_proxy(kind)))
            socks[-1].sendall(b"PROXY ")
            check_sessions(proxy, min(number + 1, 2))  # so that they begin in this order
        check_broken(socks[0])
        for sock in socks[1:]:
            sock.sendall(b"UNKNOWN\r\nx")
            check(sock.recv(1) == b"x", "displaced, but not the oldest")
        eventually(lambda: " 1 displaced" in proxy.output("stderr"), WAIT_MAX_S,
                   "it is not counted")


def served_from(kind, source):
    """Whether a client from that address is accepted and served, at any time."""
    try:
        with dial_proxy(kind, source=source) as sock:
            sock.sendall(b"x")
            return sock.recv(1) == b"x"
    except OSError:
        return False


class Newcomer:
    """A client in a thread of its own."""

    def __init__(self, kind, source):
        self.sock = socket.socket()
        self.sock.bind((source, 0))
        self.sock.setblocking(False)
        self.sock.connect_ex((kind.host, PORT))

    def is_served(self):
        with contextlib.suppress(OSError):
            self.sock.send(b"x")
            return self.sock.recv(1) == b"x"
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


def source_limit(env, kind):
    """A source has a limit of clients, and does not block other sources."""
    with Peer(kind, echo_bytes) as peer, \
            kind.serve(env, "--to", peer.at, "--max-clients-per-source", "2",
                       "--stats", "0.2") as proxy:
        with (dial_proxy(kind, source=kind.near) as first,
              dial_proxy(kind, source=kind.near) as second):
            for sock in first, second:
                sock.sendall(b"x")
                check(sock.recv(1) == b"x", "two of two are not served")
            with Newcomer(kind, kind.near) as third:
                def counted():
                    check(not third.is_served(), "a third of two was served")
                    return re.search(r" [1-9]\d* (SYNs )?over a source's limit",
                                     proxy.output("stderr"))
                eventually(counted, WAIT_MAX_S, "it is not counted")
            check(served_from(kind, kind.other), "another source is kept out")
        eventually(lambda: served_from(kind, kind.near), WAIT_MAX_S,
                   "nobody is let in after two have gone")


CASES = [idle_timeout, client_limit, drain, drain_timeout, drain_delivers,
         slow_reader_is_not_idle, headers_displace_each_other, source_limit]
ONLY = {Tap: [dialling_holds_no_frame, reset_ends_dialling, out_of_connections],
        Epoll: [out_of_files, drain_serves_the_queue]}


def cases(env):
    kind = {"tap": Tap, "epoll": Epoll}[env.args[0]]()
    yield from chosen(env, CASES + ONLY[type(kind)], kind, words=1, prefix=f"{kind.app}: ")


if __name__ == "__main__":
    main(cases)
