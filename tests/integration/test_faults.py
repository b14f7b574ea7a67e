#!/usr/bin/env python3
"""Links that go, peers that die, processes that are stopped: all recovers by itself.

Usage: test_faults.py BUILD_DIR [--long]
--long leaves links down and processes stopped for 30 s instead of 2.
In every case the control path has to be alive afterwards: ping and connections
are answered, a line of statistics comes, SIGTERM ends the program cleanly.
"""

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import threading
import time

import proxies
from harness import Skip, check, command, eventually, main, preload_of

HUGEPAGES = "/sys/kernel/mm/hugepages"
HOST, NEAR = "10.9.0.1", "10.9.1.1"
PORT = 7777
PATIENCE = 60  # a kernel that backs off takes its time
KIB = 1024


def away_seconds(env):
    return 30 if "--long" in env.args else 2


class Tap:
    """A program of ours behind a TAP link of a known name."""

    def __init__(self, env, app, link, *options):
        self.link, self.env = link, env
        self.argv = [env.app(app), "--link", f"tap:{link}", "--addr", f"{HOST}/16",
                     "--poll", "adaptive", "--stats", "0.2", *options]

    @contextlib.contextmanager
    def running(self, **popen_args):
        with self.env.running(self.argv, **popen_args) as server:
            self.configure()
            yield server

    def configure(self):
        command("ip", "addr", "add", f"{NEAR}/16", "dev", self.link)
        command("ip", "link", "set", self.link, "up")

    def set(self, state):
        command("ip", "link", "set", self.link, state)


def dial(port=PORT, host=HOST):
    sock = socket.socket()
    sock.settimeout(PATIENCE)
    sock.connect((host, port))
    return sock


def check_echo(sock, data=b"are you there?"):
    sock.sendall(data)
    check(proxies.read_exactly(sock, len(data)) == data, "the echo differs")


def try_echo(port=PORT, seconds=2):
    """Whether a new connection is served now."""
    try:
        with socket.create_connection((HOST, port), seconds) as sock:
            sock.sendall(b"x")
            return sock.recv(1) == b"x"
    except OSError:
        return False


def answers_ping():
    return subprocess.run(["ping", "-c", "1", "-W", "2", HOST], check=False,
                          stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def stats_lines(server):
    return server.output("stderr").count("\n")


def check_control_path(server, ends=True):
    """Ping, statistics and a clean end."""
    check(server.alive(), f"the server ended: {server.story()}")
    eventually(answers_ping, 30, lambda: f"no ping is answered: {server.story()}")
    before = stats_lines(server)
    eventually(lambda: stats_lines(server) > before, 30, lambda: f"no statistics: {server.story()}")
    if ends:
        server.terminate(40)


class Bulk:
    """Bytes through an echo, sent and read at the same time."""

    def __init__(self, size):
        self.data = random.Random(size).randbytes(size)
        self.sock = dial()
        self.received = bytearray()
        self.error = None
        self.threads = [threading.Thread(target=self.guarded, args=[work], daemon=True)
                        for work in (self.write, self.read)]
        for thread in self.threads:
            thread.start()

    def guarded(self, work):
        try:
            work()
        except OSError as error:
            self.error = error

    def write(self):
        for at in range(0, len(self.data), 16 * KIB):
            self.sock.sendall(self.data[at:at + 16 * KIB])
            time.sleep(0.002)  # it lasts longer than the fault takes to come
        self.sock.shutdown(socket.SHUT_WR)

    def read(self):
        while part := self.sock.recv(65536):
            self.received += part

    def check_complete(self):
        for thread in self.threads:
            thread.join(2 * PATIENCE)
            check(not thread.is_alive(), f"stuck after {len(self.received)} bytes")
        check(self.error is None, f"after {len(self.received)} bytes: {self.error}")
        check(self.received == self.data, f"{len(self.received)} of {len(self.data)} came back")
        self.sock.close()


# ---- links ----


def link_down_and_up(env):
    """Connections outlive it, with bytes in flight and without."""
    tap = Tap(env, "coronet-echo", "fl0", "--port", PORT)
    with tap.running() as server:
        with dial() as idle, dial() as sender:
            check_echo(idle)
            check_echo(sender)
            for _ in range(2):
                bulk = Bulk(4096 * KIB // (4 if env.sanitized else 1))
                eventually(lambda: bulk.received, 30, "no byte came back")
                tap.set("down")
                sender.sendall(b"into the dark")
                time.sleep(away_seconds(env))
                check(server.alive(), f"the server ended: {server.story()}")
                tap.set("up")
                check(proxies.read_exactly(sender, 13) == b"into the dark", "the echo differs")
                check_echo(idle)
                bulk.check_complete()
        check(try_echo(), "no new connection is served")
        check_control_path(server)


def interface_deleted(env):
    """The kernel's side of a TAP is gone for good: a clean end, and a fresh start."""
    tap = Tap(env, "coronet-echo", "fl1", "--port", PORT)
    with tap.running() as server:
        sock = dial()
        check_echo(sock)
        command("ip", "link", "del", tap.link)
        before = stats_lines(server)
        eventually(lambda: stats_lines(server) > before + 2, 30,
                   lambda: f"no statistics: {server.story()}")
        server.terminate(40)
        sock.close()
    with tap.running() as server:
        check(try_echo(), "no new connection is served")
        check_control_path(server)


def no_signals_left(env):
    """DPDK's TAP port is told of frames by queued signals, of which a user may have none left."""
    none = functools.partial(resource.setrlimit, resource.RLIMIT_SIGPENDING, (0, 0))
    tap = Tap(env, "coronet-echo", "fl6", "--port", PORT)
    with tap.running(preexec_fn=none) as server:
        for _ in range(20):
            with dial() as sock:
                check_echo(sock, bytes(20000))
        check_control_path(server)


# ---- memif ----


def memif_load(env, path, role, *options):
    return [env.app("coronet-load"), "--link", f"memif:{path},role={role}", "--addr",
            "10.9.1.9/16", "--target", f"{HOST}:{PORT}", "--conns", "8", "--poll", "adaptive",
            "--report-limited", "--interval", "0", "--json", *options]


def memif_echo(env, path, role):
    return [env.app("coronet-echo"), "--link", f"memif:{path},role={role}", "--addr",
            f"{HOST}/16", "--port", PORT, "--poll", "adaptive", "--stats", "0.2"]


def check_load(program, seconds=60):
    """It ends by itself, every request answered."""
    status = program.wait(seconds)
    check(status == 0, f"exit status {status}: {program.story()}")
    report = json.loads(program.output("stdout"))
    check(report["errors"]["total"] == 0 and report["requests"] > 0, f"{report}")


def memif_server_comes_and_goes(env):
    """A client's link is back as soon as there is a server again, however the last one went."""
    path = env.scratch_for({}) / "m.sock"
    load = functools.partial(memif_load, env, path, "server", "--seconds", "1", "--verify")
    first = env.start(load())
    eventually(path.exists, 30, "no socket was made")
    with env.running(memif_echo(env, path, "client")) as echo:
        check_load(first)
        for how in ("ends", "is killed"):
            if how == "is killed":
                victim = env.start(memif_load(env, path, "server", "--seconds", "60"))
                eventually(path.exists, 30, "no socket was made")
                time.sleep(1)
                victim.kill()
            check_load(env.start(load()))
            check(echo.alive(), f"the echo ended: {echo.story()}")
        echo.terminate(40)


def memif_socket_removed(env):
    """A socket file that somebody deletes is made again; connections do not notice."""
    path = env.scratch_for({}) / "m.sock"
    with env.running(memif_echo(env, path, "server")) as echo:
        lasting = env.start(memif_load(env, path, "client", "--seconds", "2", "--verify"))
        eventually(lambda: " 8 connections" in echo.output("stderr") or not lasting.alive(), 30,
                   "no connection was made")
        path.unlink()
        eventually(path.exists, 30, "the socket was not made again")
        check_load(lasting)
        check_load(env.start(memif_load(env, path, "client", "--seconds", "1", "--verify")))
        echo.terminate(40)
    check(not path.exists(), "the socket file was left behind")


def call_and_hang_up(path, number):
    """A stranger: some say nothing, some say nonsense, some wait a little."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(10)
        sock.connect(str(path))
        with contextlib.suppress(OSError):
            if number % 4 == 1:
                sock.send(bytes(number % 200))
            if number % 4 == 2:
                sock.send(b"\x03\0" + bytes(126))  # INIT, of version 0
            if number % 4 == 3:
                sock.recv(128)
                sock.send(b"\x08\0" + bytes(126))


def memif_strangers(env):
    """Whoever connects and hangs up does no harm, beside a load and before the next."""
    path = env.scratch_for({}) / "m.sock"
    with env.running(memif_echo(env, path, "server")) as echo:
        for number in range(100):
            call_and_hang_up(path, number)
        load = env.start(memif_load(env, path, "client", "--seconds", "2", "--verify"))
        time.sleep(0.5)
        for number in range(200):
            call_and_hang_up(path, number)
        check_load(load)
        check(echo.alive(), f"the echo ended: {echo.story()}")
        check_load(env.start(memif_load(env, path, "client", "--seconds", "1", "--verify")))
        echo.terminate(40)


def memif_backend_restarts(env):
    """A proxy between the kernel and a backend on memif, which is killed and started again."""
    path = env.scratch_for({}) / "m.sock"
    backend = [env.app("coronet-echo"), "--link", f"memif:{path},role=server", "--addr",
               "10.8.0.2/16", "--port", PORT, "--poll", "adaptive"]
    tap = Tap(env, "coronet-proxy", "fl2", "--link", f"memif:{path},role=client", "--addr",
              "10.8.0.1/16", "--port", PORT, "--to", f"10.8.0.2:{PORT}", "--health-interval",
              "0.3", "--rise", "1", "--connect-timeout", "1", "--idle-timeout", "10")
    with env.running(backend) as first, tap.running() as proxy:
        eventually(try_echo, 30, lambda: f"nothing is served: {proxy.story()}")
        with dial() as sock:
            check_echo(sock)
            first.kill()
            for _ in range(2):
                with env.running(backend) as again:
                    eventually(try_echo, 60, lambda: "the backend is back, the way is not: "
                                             f"{proxy.story()}{again.story()}")
                    check(answers_ping(), "no ping is answered")
                    again.kill()
            eventually(lambda: not try_echo(), 30, "an echo without a backend")
            check(answers_ping(), "no ping is answered while the backend is away")
            # What lost its backend ends with an error, not in silence.
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"x")
                sock.recv(1)
                check(False, "no error for a connection whose backend is gone")
        check_control_path(proxy)


# ---- processes ----


def hugepage_files():
    return {str(path) for path in pathlib.Path("/dev/hugepages").glob("*map*")}


def killed_and_started_again(env, app):
    """Nothing that a killed program leaves behind is in the way of the next."""
    before = hugepage_files()
    options = ["--to", f"{NEAR}:9001"] if app == "coronet-proxy" else []
    tap = Tap(env, app, "fl3", "--port", PORT, *options)
    request = b"GET / HTTP/1.0\r\n\r\n"

    def is_served():
        with contextlib.suppress(OSError), dial() as sock:
            sock.sendall(request)
            return sock.recv(1)
        return b""

    with proxies.Peer(proxies.Tap(), proxies.echo, host=NEAR, port=9001):
        for _ in range(3):
            with tap.running() as server:
                eventually(is_served, 30, lambda: f"nothing is served: {server.story()}")
                with dial() as sock:
                    server.signal(signal.SIGKILL)
                    server.process.wait()
                    # The next program answers for the address: a reset.
                    with tap.running() as again:
                        with contextlib.suppress(ConnectionError):
                            sock.sendall(request)
                            check(sock.recv(1) == b"", f"{app} knows the connections of another")
                        eventually(is_served, 30, lambda: f"nothing is served: {again.story()}")
                        check_control_path(again, ends=False)
    check(hugepage_files() <= before, f"hugepages were left behind: {hugepage_files() - before}")


def memif_killed_and_started_again(env):
    path = env.scratch_for({}) / "m.sock"
    for _ in range(3):
        with env.running(memif_echo(env, path, "server")) as echo:
            check_load(env.start(memif_load(env, path, "client", "--seconds", "0.5")))
            echo.kill()
            check(path.exists(), "a killed server left no socket: the case shows nothing")


def stopped_for_a_while(env):
    """SIGSTOP and SIGCONT, as a virtual machine that is paused: time jumps, nothing is lost."""
    tap = Tap(env, "coronet-echo", "fl4", "--port", PORT)
    with tap.running() as server, contextlib.ExitStack() as stack:
        socks = [stack.enter_context(dial()) for _ in range(200)]
        for sock in socks:
            check_echo(sock)
        bulk = Bulk(4096 * KIB // (4 if env.sanitized else 1))
        eventually(lambda: bulk.received, 30, "no byte came back")
        server.signal(signal.SIGSTOP)
        for sock in socks[::2]:
            sock.sendall(b"while it sleeps")
        time.sleep(away_seconds(env))
        server.signal(signal.SIGCONT)
        bulk.check_complete()
        for sock in socks[::2]:
            check(proxies.read_exactly(sock, 15) == b"while it sleeps", "the echo differs")
        for sock in socks:
            check_echo(sock)
        check_control_path(server, ends=False)
        stack.close()
        server.terminate(40)


def wall_clock_jumps(env):
    """The wall clock may say what it likes: nothing but a Date depends on it."""
    jumping = env.build / "tests/integration/libjumping-clock.so"
    preload = preload_of(jumping)
    year = command("env", f"LD_PRELOAD={preload}", "ASAN_OPTIONS=detect_leaks=0",
                   "date", "+%Y").strip()
    check(year == "2023", f"the clock does not jump: it is {year}")
    tap = Tap(env, "coronet-proxy", "fl5", "--port", PORT, "--to", f"{NEAR}:9001",
              "--idle-timeout", "60", "--health-interval", "0.3")
    with tap.running(env={**os.environ, "LD_PRELOAD": preload}) as server, \
            proxies.Peer(proxies.Tap(), proxies.echo, host=NEAR, port=9001):
        eventually(try_echo, 30, lambda: f"nothing is served: {server.story()}")
        with dial() as sock:
            for _ in range(20):
                check_echo(sock)
                time.sleep(0.1)
        check(" down" not in server.output("stderr"),
              f"a backend that answers was taken down: {server.story()}")
        check_control_path(server)


def stopped_when_it_listens(env, app, *argv):
    """A supervisor may stop it as soon as it has said that it is ready."""
    library = env.build / "tests/integration/libstopped-when-listening.so"
    program = env.start([env.app(app), *argv],
                        env={**os.environ, "LD_PRELOAD": preload_of(library)})
    status = program.wait(PATIENCE)
    check(status == 0, f"exit status {status}: {program.story()}")
    check("listening on" in program.output("stdout"), program.story())


def hugepages_of_another(env):
    """What is free is another's that has begun to take it: this one does without."""
    if not pathlib.Path(HUGEPAGES).exists():
        raise Skip("a kernel without hugepages")
    library = env.build / "tests/integration/libplenty-of-hugepages.so"
    other = os.open(HUGEPAGES, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with env.running([env.app("coronet-echo"), "--link", "ring:r0", "--addr", "10.9.0.1/16"],
                         env={**os.environ, "LD_PRELOAD": preload_of(library)}) as server:
            server.terminate()
    finally:
        os.close(other)


def stops_when_listening(env):
    """Each program, the name of the case and its function."""
    stack = ["--link", "ring:r0", "--addr", "10.9.0.1/16", "--poll", "adaptive", "--port", "7777"]
    to = ["--to", "10.9.0.9:1", "--health-interval", "0"]
    for app, argv in (("coronet-echo", stack), ("coronet-echo", [*stack, "--shards", "4"]),
                      ("coronet-httpd", stack), ("coronet-proxy", [*stack, *to]),
                      ("coronet-proxy", [*stack, *to, "--shards", "4"]),
                      ("epoll-echo", ["--port", "7777"]),
                      ("epoll-proxy", ["--listen", "127.0.0.1:7777", *to])):
        shards = ", 4 shards" if "--shards" in argv else ""
        yield (f"{app} stopped as soon as it listens{shards}",
               functools.partial(stopped_when_it_listens, env, app, *argv))


def cases(env):
    bind = functools.partial
    for function in (link_down_and_up, interface_deleted, no_signals_left, memif_server_comes_and_goes,
                     memif_socket_removed, memif_strangers, memif_backend_restarts,
                     memif_killed_and_started_again, stopped_for_a_while, wall_clock_jumps,
                     hugepages_of_another):
        yield function.__name__.replace("_", " "), bind(function, env)
    for app in ("coronet-echo", "coronet-httpd", "coronet-proxy"):
        yield f"{app} killed and started again", bind(killed_and_started_again, env, app)
    yield from stops_when_listening(env)


if __name__ == "__main__":
    main(cases)
