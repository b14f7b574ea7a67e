"""Cases of test_proxy_limits.py: timeouts, limits of clients, and a proxy's shutdown."""

import contextlib
import functools
import select
import signal
import socket
import time

from harness import (WAIT_MAX_S, Failure, Spoiled, await_rounds, check, eventually,
                     in_a_quiet_moment, repeat_for)
from proxies import (Peer, check_broken, check_echo, dial_proxy, echo_bytes, read_exactly,
                     read_to_end)

DRAIN_DEFAULT = 30  # seconds, of --drain-timeout
STACK_DRAIN = 1  # seconds that the stack itself waits for its connections at the end


def idle_timeout(env, kind):
    """A session ends when both directions have been idle for --idle-timeout, and no sooner."""
    limit = 1.5

    def attempt():
        begin = time.monotonic()
        with dial_proxy(kind) as talker, dial_proxy(kind) as silent:
            silent.sendall(b"x")
            check(silent.recv(1) == b"x", "the echo differs")
            latest = time.monotonic()
            worst = latest - begin
            while not select.select([silent], [], [], 0.1)[0]:
                try:
                    talker.sendall(b"y")
                    alive = talker.recv(1) == b"y"
                except ConnectionResetError:
                    alive = False
                worst, latest = max(worst, time.monotonic() - latest), time.monotonic()
                if not alive and worst > limit / 2:
                    raise Spoiled(f"the talker was silent for {worst:.1f} s")
                check(alive, "the talker was cut off")
                check(latest - begin < WAIT_MAX_S, "a silent connection lives on")
            check_broken(silent)
            spent = time.monotonic() - begin
            check(spent > limit, f"cut off after {spent:.1f} s")

    with Peer(kind, echo_bytes) as peer, kind.serve(env, "--to", peer.at, "--idle-timeout", limit):
        in_a_quiet_moment(attempt)


def client_limit(env, kind):
    """A client beyond the limit waits in the backlog, or is reset."""
    with Peer(kind, echo_bytes) as peer:
        with kind.serve(env, "--to", peer.at, "--max-clients", "3", "--stats", "0.1") as proxy:
            held = [dial_proxy(kind) for _ in range(3)]
            for sock in held:
                sock.sendall(b"x")
                check(sock.recv(1) == b"x", "the echo differs")
            with dial_proxy(kind) as fourth:
                fourth.sendall(b"later")
                await_rounds(proxy, 2)
                fourth.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    raise Failure(f"the fourth of three was served: {fourth.recv(5)!r}")
                held.pop().close()
                fourth.settimeout(WAIT_MAX_S)
                check(read_exactly(fourth, 5) == b"later", "the echo differs")
            for sock in held:
                sock.close()
        with kind.serve(env, "--to", peer.at, "--max-clients", "1", "--over-limit", "reset"):
            with dial_proxy(kind) as first:
                first.sendall(b"x")
                check(first.recv(1) == b"x", "the echo differs")
                with contextlib.suppress(ConnectionResetError), dial_proxy(kind) as second:
                    check_broken(second)
                first.sendall(b"y")
                check(first.recv(1) == b"y", "the echo differs")
            eventually(functools.partial(echoes, kind), WAIT_MAX_S, "the limit stays reached")


def echoes(kind):
    """Whether a new client gets its echo."""
    try:
        check_echo(kind)
    except (OSError, Failure):
        return False
    return True


def refused(kind):
    try:
        dial_proxy(kind).close()
    except OSError:
        return True
    return False


def drain(env, kind):
    """After SIGTERM no client is accepted, and existing sessions finish."""
    with Peer(kind, echo_bytes) as peer, kind.serve(env, "--to", peer.at) as proxy:
        with dial_proxy(kind) as sock:
            sock.sendall(b"before")
            check(read_exactly(sock, 6) == b"before", "the echo differs")
            proxy.signal(signal.SIGTERM)
            eventually(lambda: refused(kind), WAIT_MAX_S, "a new client is taken while draining")

            def echo_goes_on():
                sock.sendall(b"x" * 100000)
                check(read_exactly(sock, 100000) == b"x" * 100000, "cut off while draining")

            repeat_for(1.5 * STACK_DRAIN, echo_goes_on)
            check(proxy.alive(), "ended with a connection left")
            sock.shutdown(socket.SHUT_WR)
            check(read_to_end(sock) == b"", "bytes beyond the end")
        check(proxy.wait(WAIT_MAX_S) == 0, f"draining: {proxy.story()}")


def drain_timeout(env, kind):
    """Sessions left at the end of --drain-timeout are reset; a second signal ends at once."""
    with Peer(kind, echo_bytes) as peer:
        with (kind.serve(env, "--to", peer.at, "--drain-timeout", "1") as proxy,
              dial_proxy(kind) as sock):
            sock.sendall(b"x")
            check(sock.recv(1) == b"x", "the echo differs")
            begin = time.monotonic()
            proxy.signal(signal.SIGTERM)
            check_broken(sock)
            check(proxy.wait(WAIT_MAX_S) == 0, f"draining: {proxy.story()}")
            spent = time.monotonic() - begin
            check(0.9 < spent < DRAIN_DEFAULT, f"the drain took {spent:.1f} s")
        # The timeout is longer than any wait of this test.
        with kind.serve(env, "--to", peer.at, "--drain-timeout", 2 * WAIT_MAX_S) as proxy, \
                dial_proxy(kind) as sock:
            sock.sendall(b"x")
            check(sock.recv(1) == b"x", "the echo differs")
            proxy.signal(signal.SIGTERM)
            eventually(lambda: refused(kind), WAIT_MAX_S, "a new client is taken while draining")
            sock.sendall(b"x")
            check(sock.recv(1) == b"x", "one signal ended a connection")
            check(proxy.alive(), "one signal ended it with a connection left")
            proxy.signal(signal.SIGTERM)
            proxy.wait(WAIT_MAX_S)


def drain_delivers(env, kind):
    """A half-closed client that reads slowly gets every byte while the proxy drains."""
    size = 300000

    def pour(sock):
        read_to_end(sock)
        sock.sendall(bytes(size))

    with Peer(kind, pour) as peer, kind.serve(env, "--to", peer.at) as proxy:
        with dial_proxy(kind, SO_RCVBUF=8192) as sock:
            sock.shutdown(socket.SHUT_WR)
            got = len(read_exactly(sock, 1))
            proxy.signal(signal.SIGTERM)
            eventually(lambda: refused(kind), WAIT_MAX_S, "a new client is taken while draining")

            def read_a_little():
                nonlocal got
                got += len(sock.recv(1000))

            repeat_for(1.5 * STACK_DRAIN, read_a_little)
            check(got < size / 2, "it reads too fast to show anything")
            while part := sock.recv(4096):
                got += len(part)
            check(got == size, f"{got} of {size} bytes")
        check(proxy.wait(WAIT_MAX_S) == 0, f"draining: {proxy.story()}")


def drain_serves_the_queue(env, kind):
    """Clients in the kernel's backlog at the time of SIGTERM are served."""
    with Peer(kind, echo_bytes) as peer, kind.serve(env, "--to", peer.at) as proxy:
        check_echo(kind)
        proxy.signal(signal.SIGSTOP)
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(dial_proxy(kind)) for _ in range(500)]
            proxy.signal(signal.SIGTERM)
            proxy.signal(signal.SIGCONT)
            for number, sock in enumerate(socks):
                sock.sendall(b"ping")
                check(read_exactly(sock, 4) == b"ping", f"client {number} was forgotten")
        check(proxy.wait(WAIT_MAX_S) == 0, f"draining: {proxy.story()}")


def out_of_connections(env, kind):
    """A backend is not marked down because no connection is left for its check."""
    with Peer(kind, echo_bytes) as peer, \
            kind.serve(env, "--to", peer.at, "--max-conns", "6", "--health-interval", "0.1",
                       "--fall", "1", "--stats", "0.1") as proxy:
        with contextlib.ExitStack() as stack:
            def held():
                """Opens one more client; a check may have the last connection at that moment."""
                try:
                    sock = dial_proxy(kind)
                    stack.enter_context(sock)
                    sock.sendall(b"x")
                    return sock.recv(1) == b"x"
                except OSError:
                    return False

            for _ in range(3):
                eventually(held, WAIT_MAX_S, f"no client is served: {proxy.story()}")
            # From here on no check gets a connection, so that none can fail for another reason.
            since = len(proxy.output("stderr"))
            eventually(lambda: "--max-conns" in proxy.output("stderr"), WAIT_MAX_S,
                       "nothing is said of what is missing")
            await_rounds(proxy, 3)  # of the health checks as well
            check(" is down" not in proxy.output("stderr")[since:], proxy.story())
        eventually(functools.partial(echoes, kind), WAIT_MAX_S, "no connection comes free")
