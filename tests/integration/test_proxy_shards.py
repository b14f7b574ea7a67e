#!/usr/bin/env python3
"""coronet-proxy on several shards.

Usage: test_proxy_shards.py BUILD_DIR [CASE...]
"""

import contextlib
import functools
import random
import re
import signal
import socket
import threading

from harness import WAIT_MAX_S, accepted_by, check, eventually, main
from proxies import (MIB, PORT, Peer, Tap, check_broken, dial_proxy, echo_bytes, read_exactly,
                     read_to_end, send_name)
from proxy_limits import refused

SESSIONS = 64  # so that no shard of 4 is likely to go without


@contextlib.contextmanager
def serve(env, kind, shards, *options):
    with kind.serve(env, *options, "--shards", shards, "--stats", "0.2", "--memory", "1G") as proxy:
        yield proxy
        check(proxy.output("stdout").count("listening on") == 1, proxy.story())


def check_sessions(proxy, count):
    """Waits until the line of all shards shows count sessions."""
    def latest():
        said = re.findall(r"proxy: (\d+) sessions", proxy.output("stderr"))
        return said and int(said[-1]) == count
    eventually(latest, WAIT_MAX_S, lambda: f"never {count} sessions: {proxy.story()}")


def retries(proxy):
    """Returns the retries that the shards have counted."""
    pattern = r"in all (\d+) retries"
    before = len(re.findall(pattern, proxy.output("stderr")))
    eventually(lambda: len(re.findall(pattern, proxy.output("stderr"))) > before + 1, WAIT_MAX_S,
               proxy.story)
    return int(re.findall(pattern, proxy.output("stderr"))[-1])


def end(proxy):
    proxy.signal(signal.SIGTERM)
    check(proxy.wait(WAIT_MAX_S) == 0, f"draining: {proxy.story()}")


def shards_carry(env, kind, shards):
    """Every shard has sessions, and no byte is lost or misplaced."""
    size = 2 * MIB // (8 if env.sanitized else 1)

    def talk(number, sock):
        data = random.Random(number).randbytes(size)
        sender = threading.Thread(target=sock.sendall, args=[data], daemon=True)
        sender.start()
        if read_exactly(sock, size) == data:
            whole.append(number)
        sender.join()

    whole = []
    with Peer(kind, echo_bytes) as peer, serve(env, kind, shards, "--to", peer.at,
                                         "--balance", "least") as proxy:
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(dial_proxy(kind)) for _ in range(SESSIONS)]
            talkers = [threading.Thread(target=talk, args=pair, daemon=True)
                       for pair in enumerate(socks)]
            for talker in talkers:
                talker.start()
            for talker in talkers:
                talker.join(WAIT_MAX_S)
            check(sorted(whole) == list(range(SESSIONS)), f"{len(whole)} of {SESSIONS} came whole")
            check_sessions(proxy, SESSIONS)
            taken = accepted_by(proxy)
            check(set(taken) == set(range(shards)) and all(taken.values()), f"clients: {taken}")
        check_sessions(proxy, 0)
        end(proxy)


def shards_limit(env, kind, shards):
    """--max-clients counts the sessions of all shards; an ended one makes room on any."""
    most = 8
    waiting = 16
    with Peer(kind, echo_bytes) as peer, contextlib.ExitStack() as stack, \
            serve(env, kind, shards, "--to", peer.at, "--max-clients", most,
                  "--health-interval", "0") as proxy:
        socks = [stack.enter_context(dial_proxy(kind)) for _ in range(most + waiting)]
        for sock in socks:
            sock.sendall(b"x")
        served = []

        def some_served():
            for sock in [each for each in socks if each not in served]:
                sock.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    check(sock.recv(1) == b"x", "the echo differs")
                    served.append(sock)
            return len(served) >= most
        eventually(some_served, WAIT_MAX_S, "fewer clients than the limit are served")
        for ended in range(waiting):
            some_served()
            check(len(served) == most + ended, f"{len(served) - ended} served, {most} may be")
            served[ended].close()
            eventually(lambda n=most + ended: some_served() and len(served) > n, WAIT_MAX_S,
                       lambda n=ended: f"no room after {n + 1} sessions: {proxy.story()}")
        check_sessions(proxy, most)
        said = [int(count) for count in re.findall(r"proxy: (\d+) sessions", proxy.output("stderr"))]
        check(max(said) == most, f"{max(said)} sessions, {most} may be")
        check(peer.seen == most + waiting, f"the backend saw {peer.seen} sessions")
        stack.close()
        end(proxy)


def shards_source_limit(env, kind, shards):
    """--max-clients-per-source counts a source's sessions on all shards."""
    most = 3
    with Peer(kind, echo_bytes) as peer, contextlib.ExitStack() as stack, \
            serve(env, kind, shards, "--to", peer.at, "--max-clients-per-source", most,
                  "--health-interval", "0") as proxy:
        socks = [stack.enter_context(socket.socket()) for _ in range(32)]
        for sock in socks:
            sock.setblocking(False)
            sock.connect_ex((kind.host, PORT))
        inside = []

        def some_inside():
            for sock in [each for each in socks if each not in inside]:
                with contextlib.suppress(BlockingIOError):  # it is not accepted yet
                    sock.send(b"x")
                    inside.append(sock)
            return len(inside) >= most
        for turn in range(3):
            eventually(some_inside, WAIT_MAX_S, lambda n=turn: f"turn {n}: {proxy.story()}")
            eventually(lambda: re.search(r" [1-9]\d* SYNs over a source's limit",
                                         proxy.output("stderr")), WAIT_MAX_S, proxy.story)
            check_sessions(proxy, most)
            some_inside()
            check(len(inside) == most, f"{len(inside)} were let in, {most} may be")
            for sock in inside if turn < 2 else []:
                sock.settimeout(WAIT_MAX_S)
                check(sock.recv(1) == b"x", "the echo differs")
                sock.close()  # others connect when they retry
                socks.remove(sock)
            inside.clear()
        said = [int(count) for count in re.findall(r"proxy: (\d+) sessions", proxy.output("stderr"))]
        check(max(said) == most, f"{max(said)} sessions, {most} may be")
        stack.close()
        end(proxy)


def shards_headers(env, kind, shards):
    """--max-half-open counts the PROXY headers of all shards; the oldest makes room on any."""
    most, count = 8, 12
    with Peer(kind, echo_bytes) as peer, contextlib.ExitStack() as stack, \
            serve(env, kind, shards, "--to", peer.at, "--accept-proxy", "--max-half-open", most,
                  "--proxy-timeout", WAIT_MAX_S, "--health-interval", "0") as proxy:
        def displaced(count):
            said = re.findall(r" (\d+) displaced", proxy.output("stderr"))
            return said and int(said[-1]) == count
        socks = []
        for number in range(1, count + 1):
            socks.append(stack.enter_context(dial_proxy(kind)))
            socks[-1].sendall(b"PROXY ")
            eventually(functools.partial(displaced, max(number - most, 0)), WAIT_MAX_S, proxy.story)
            check_sessions(proxy, min(number, most))
        for sock in socks[:count - most]:
            check_broken(sock)
        for sock in socks[count - most:]:
            sock.sendall(b"UNKNOWN\r\nx")
            check(sock.recv(1) == b"x", "displaced, but not the oldest")
        stack.close()
        end(proxy)


def shards_health(env, kind, shards):
    """A dead backend is down on every shard at once, and up again on every one."""
    def backend_asked():
        with dial_proxy(kind) as sock:
            return sock.recv(1)

    def clients(count):
        return {backend_asked() for _ in range(count)}

    with Peer(kind, send_name(b"a")) as first, contextlib.ExitStack() as stack:
        second = stack.enter_context(Peer(kind, send_name(b"b")))
        with serve(env, kind, shards, "--to", first.at, "--to", second.at, "--rise", 1, "--fall", 1,
                   "--health-interval", "1.5") as proxy:  # the time allowed for an answer
            check(clients(SESSIONS) == {b"a", b"b"}, "a backend gets no client")
            stack.close()
            down = f"backend {second.at} is down"
            eventually(lambda: down in proxy.output("stderr"), WAIT_MAX_S, proxy.story)
            before = retries(proxy)
            check(clients(SESSIONS) == {b"a"}, "a client got no answer of the backend that is up")
            again = retries(proxy)
            check(before == again, f"{before}, then {again} attempts at more than one backend")
            with Peer(kind, send_name(b"b"), port=second.port):
                eventually(lambda: f"backend {second.at} is up" in proxy.output("stderr"),
                           WAIT_MAX_S, proxy.story)
                check(clients(SESSIONS) == {b"a", b"b"}, "a backend is back and gets no client")
            check(proxy.output("stderr").count(down) == 1, f"not one check: {proxy.story()}")
            end(proxy)


def shards_drain(env, kind, shards):
    """After SIGTERM every shard's sessions finish, or are reset at the timeout."""
    with Peer(kind, echo_bytes) as peer:
        with contextlib.ExitStack() as stack, serve(env, kind, shards, "--to", peer.at) as proxy:
            socks = [stack.enter_context(dial_proxy(kind)) for _ in range(SESSIONS)]
            check_sessions(proxy, SESSIONS)
            proxy.signal(signal.SIGTERM)
            eventually(functools.partial(refused, kind), WAIT_MAX_S, "a new client is taken")
            for sock in socks:
                sock.sendall(b"y" * 50000)
                check(read_exactly(sock, 50000) == b"y" * 50000, "cut off while draining")
                check(proxy.alive(), "ended with connections left")
                sock.shutdown(socket.SHUT_WR)
                check(read_to_end(sock) == b"", "bytes beyond the end")
            check(proxy.wait(WAIT_MAX_S) == 0, f"draining: {proxy.story()}")
            check(proxy.output("stderr").count("draining") == 1, proxy.story())
        with contextlib.ExitStack() as stack, \
                serve(env, kind, shards, "--to", peer.at, "--drain-timeout", "1") as proxy:
            socks = [stack.enter_context(dial_proxy(kind)) for _ in range(SESSIONS)]
            check_sessions(proxy, SESSIONS)
            proxy.signal(signal.SIGTERM)
            for sock in socks:
                check_broken(sock)
            check(proxy.wait(WAIT_MAX_S) == 0, f"draining: {proxy.story()}")


CASES = [(shards_carry, 2), (shards_carry, 4), (shards_limit, 4), (shards_source_limit, 2),
         (shards_source_limit, 4), (shards_headers, 4), (shards_health, 4), (shards_drain, 4)]


def cases(env):
    kind = Tap()
    for function, shards in CASES:
        title = f"{function.__name__}_{shards}"
        if not env.args or title in env.args:
            yield (f"{kind.app}: {title.replace('_', ' ')}",
                   functools.partial(function, env, kind, shards))


if __name__ == "__main__":
    main(cases)
