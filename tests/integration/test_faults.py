#!/usr/bin/env python3
"""Lost links, dead peers and stopped processes: everything recovers by itself.

Usage: test_faults.py BUILD_DIR [links|processes] [--long]
--long leaves links down and processes stopped for 25 s and more instead of 1.
After every case the control path must work: ping and connections are answered, a line of
statistics is printed, SIGTERM ends the program cleanly.
"""

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import subprocess
import threading
import time

import proxies
from harness import (WAIT_MAX_S, Skip, await_rounds, check, command, eventually, main, preload_of,
                     rounds_of)
from test_control import Echo
from test_links import under_way

HUGEPAGES = "/sys/kernel/mm/hugepages"
HOST, NEAR = "10.9.0.1", "10.9.1.1"
PORT = 7777
KIB = 1024
STATS_S = 0.2


class Tap:
    """A program behind a TAP link with a fixed name."""

    def __init__(self, env, app, link, *options):
        self.link, self.env = link, env
        self.argv = [env.app(app), "--link", f"tap:{link}", "--addr", f"{HOST}/16",
                     "--poll", "adaptive", "--stats", STATS_S, *options]

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


def dial_server(port=PORT, host=HOST):
    sock = socket.socket()
    sock.settimeout(WAIT_MAX_S)
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


def check_control_path(server, ends=True):
    """Ping, statistics and a clean end."""
    check(server.alive(), f"the server ended: {server.story()}")
    eventually(answers_ping, WAIT_MAX_S, lambda: f"no ping is answered: {server.story()}")
    await_rounds(server, 0)
    if ends:
        server.terminate()


class Bulk:
    """An echoed stream, sent and read at the same time, that can be completed."""

    def __init__(self):
        self.data = random.Random(1).randbytes(256 * KIB + 1)  # again and again
        self.sock = dial_server()
        self.sent = self.received = 0
        self.error = None
        self.enough = threading.Event()
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
        while not self.enough.is_set():
            part = self.data[self.sent % len(self.data):][:16 * KIB]
            self.sock.sendall(part)
            self.sent += len(part)
        self.sock.shutdown(socket.SHUT_WR)

    def read(self):
        while part := self.sock.recv(65536):
            at = self.received % len(self.data)
            wanted = self.data[at:at + len(part)]
            wanted += self.data[:len(part) - len(wanted)]
            if part != wanted:
                raise OSError("another answer")
            self.received += len(part)

    def await_more(self, size=64 * KIB):
        wanted = self.received + size
        eventually(lambda: self.received >= wanted or self.error, WAIT_MAX_S,
                   lambda: f"stuck after {self.received} bytes")

    def check_complete(self):
        self.await_more()
        self.enough.set()
        for thread in self.threads:
            thread.join(2 * WAIT_MAX_S)
            check(not thread.is_alive(), f"stuck after {self.received} bytes")
        check(self.error is None, f"after {self.received} bytes: {self.error}")
        check(self.received == self.sent, f"{self.received} of {self.sent} came back")
        self.sock.close()


# ---- links ----


def link_down_and_up(env):
    """Connections survive a link that goes down and up, with and without bytes in flight."""
    tap = Tap(env, "coronet-echo", "fl0", "--port", PORT)
    with tap.running() as server:
        with dial_server() as idle, dial_server() as sender:
            check_echo(idle)
            check_echo(sender)
            for _ in range(2):
                bulk = Bulk()
                bulk.await_more(1024 * KIB)
                tap.set("down")
                sender.sendall(b"into the dark")
                await_rounds(server, (25 if "--long" in env.args else 1) / STATS_S)
                check(server.alive(), f"the server ended: {server.story()}")
                tap.set("up")
                check(proxies.read_exactly(sender, 13) == b"into the dark", "the echo differs")
                check_echo(idle)
                bulk.check_complete()
        check(try_echo(seconds=WAIT_MAX_S), "no new connection is served")
        check_control_path(server)


def interface_deleted(env):
    """A deleted TAP: the program ends cleanly, and starts again."""
    tap = Tap(env, "coronet-echo", "fl1", "--port", PORT)
    with tap.running() as server:
        sock = dial_server()
        check_echo(sock)
        command("ip", "link", "del", tap.link)
        await_rounds(server, 2)
        server.terminate()
        sock.close()
    with tap.running() as server:
        check(try_echo(seconds=WAIT_MAX_S), "no new connection is served")
        check_control_path(server)


def no_signals_left(env):
    """DPDK's TAP port needs queued signals for received frames; the user has none left."""
    none = functools.partial(resource.setrlimit, resource.RLIMIT_SIGPENDING, (0, 0))
    tap = Tap(env, "coronet-echo", "fl6", "--port", PORT)
    with tap.running(preexec_fn=none) as server:
        for _ in range(20):
            with dial_server() as sock:
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


def check_load(program, seconds=WAIT_MAX_S, late=False):
    """Checks that a load ends by itself with every request answered. late: it may still be opening
    connections."""
    status = program.wait(seconds)
    check(status == 0 or late and status == 1, f"exit status {status}: {program.story()}")
    report = json.loads(program.output("stdout"))
    errors = report["errors"]["total"] - (report["errors"]["timeout"] if late else 0)
    check(errors == 0 and (late or report["requests"] > 0), f"{report}")


def memif_server_comes_and_goes(env):
    """A client's link comes up again with a new server, however the last one ended."""
    path = env.scratch_for({}) / "m.sock"
    load = functools.partial(memif_load, env, path, "server", "--seconds", "0.5", "--verify")
    first = env.start(load())
    eventually(path.exists, WAIT_MAX_S, "no socket was made")
    with env.running(memif_echo(env, path, "client")) as echo:
        check_load(first)
        for how in ("ends", "is killed"):
            if how == "is killed":
                victim = env.start(memif_load(env, path, "server", "--seconds", "3600",
                                              "--interval", "0.2"))
                under_way(victim)
                victim.kill()
            check_load(env.start(load()))
            check(echo.alive(), f"the echo ended: {echo.story()}")
        echo.terminate()


def memif_server_changes_queues(env):
    """A client of two queues works with servers of two queues, of one, and of two again."""
    path = env.scratch_for({}) / "m.sock"
    first = env.start(memif_load(env, path, "server", "--seconds", "0.5", "--shards", "2"))
    eventually(path.exists, WAIT_MAX_S, "no socket was made")
    with env.running([*memif_echo(env, path, "client"), "--shards", "2"]) as echo:
        check_load(first)
        for shards in ("1", "2"):
            check_load(env.start(memif_load(env, path, "server", "--seconds", "0.5", "--shards",
                                            shards, "--verify")))
            line = f"using {shards} of 2 queues, since the server has {shards}"
            eventually(lambda: line in echo.output("stderr"), WAIT_MAX_S, echo.story)
        echo.terminate()


def sleeps(program):
    """Whether the program's first thread is in clock_nanosleep(2), on x86_64."""
    with contextlib.suppress(OSError):  # it has just ended
        words = pathlib.Path(f"/proc/{program.process.pid}/syscall").read_text(encoding="ascii")
        return words.split()[0] == "230"
    return False


def memif_client_leaves_unread(env):
    """A client ends while the server is stopped: the server still reads its last resets."""
    echo = Echo(env)
    with echo.serve() as server:
        load = env.start(memif_load(env, echo.memif, "client", "--seconds", "3600"))
        eventually(lambda: echo.counted("conns") == 8, WAIT_MAX_S, load.story)
        server.signal(signal.SIGSTOP)
        load.signal(signal.SIGINT)
        load.wait(WAIT_MAX_S)
        server.signal(signal.SIGCONT)
        eventually(lambda: echo.counted("conns") == 0, WAIT_MAX_S,
                   lambda: f"{echo.counted('conns')} connections do not end")
        server.terminate()


def memif_client_before_its_server(env):
    """A client may start before its server."""
    path = env.scratch_for({}) / "m.sock"
    echo = env.start(memif_echo(env, path, "client"))
    eventually(lambda: sleeps(echo) or not echo.alive(), WAIT_MAX_S,
               lambda: f"it does not wait: {echo.story()}")
    load = env.start(memif_load(env, path, "server", "--seconds", "1", "--verify"))
    echo.wait_ready()
    check_load(load)
    echo.terminate()


def memif_server_between_bind_and_listen(env):
    """A client waits for a server stopped before listen(), which refuses connections."""
    path = env.scratch_for({}) / "m.sock"
    library = env.build / "tests/integration/librefused-at-first.so"
    with env.running(memif_echo(env, path, "server")) as echo:
        check_load(env.start(memif_load(env, path, "client", "--seconds", "1", "--verify"),
                             env={**os.environ, "LD_PRELOAD": preload_of(library)}))
        echo.terminate()


def memif_socket_removed(env):
    """A deleted socket file is created again, without harm to connections."""
    path = env.scratch_for({}) / "m.sock"
    with env.running(memif_echo(env, path, "server")) as echo:
        lasting = env.start(memif_load(env, path, "client", "--seconds", "3600", "--interval", "0.2",
                                       "--verify"))
        under_way(lasting)
        path.unlink()
        eventually(path.exists, WAIT_MAX_S, "the socket was not made again")
        await_rounds(echo, 2)
        lasting.signal(signal.SIGINT)
        check_load(lasting)
        check_load(env.start(memif_load(env, path, "client", "--seconds", "0.5", "--verify")))
        echo.terminate()
    check(not path.exists(), "the socket file was left behind")


def call_and_hang_up(path, number):
    """A stranger's connection: silent, with garbage, or with a short wait."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(WAIT_MAX_S)
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
    """Strangers that connect and hang up do not harm a load, nor the next one."""
    path = env.scratch_for({}) / "m.sock"
    with env.running(memif_echo(env, path, "server")) as echo:
        for number in range(100):
            call_and_hang_up(path, number)
        load = env.start(memif_load(env, path, "client", "--seconds", "3600", "--interval", "0.2",
                                    "--verify"))
        under_way(load)
        for number in range(200):
            call_and_hang_up(path, number)
        load.signal(signal.SIGINT)
        check_load(load)
        check(echo.alive(), f"the echo ended: {echo.story()}")
        check_load(env.start(memif_load(env, path, "client", "--seconds", "0.5", "--verify")))
        echo.terminate()


def memif_backend_restarts(env):
    """A proxy serves the kernel from a memif backend that is killed and restarted."""
    path = env.scratch_for({}) / "m.sock"
    backend = [env.app("coronet-echo"), "--link", f"memif:{path},role=server", "--addr",
               "10.8.0.2/16", "--port", PORT, "--poll", "adaptive"]
    tap = Tap(env, "coronet-proxy", "fl2", "--link", f"memif:{path},role=client", "--addr",
              "10.8.0.1/16", "--port", PORT, "--to", f"10.8.0.2:{PORT}", "--health-interval",
              "0.3", "--rise", "1", "--connect-timeout", "1", "--idle-timeout", "10")
    with env.running(backend) as first, tap.running() as proxy:
        eventually(try_echo, WAIT_MAX_S, lambda: f"nothing is served: {proxy.story()}")
        with dial_server() as sock:
            check_echo(sock)
            first.kill()
            for _ in range(2):
                with env.running(backend) as again:
                    eventually(try_echo, WAIT_MAX_S,
                               lambda: "the backend is back, but its link is not: "
                                       f"{proxy.story()}{again.story()}")
                    eventually(answers_ping, WAIT_MAX_S, "no ping is answered")
                    again.kill()
            eventually(lambda: not try_echo(), WAIT_MAX_S, "an echo without a backend")
            eventually(answers_ping, WAIT_MAX_S, "no ping is answered while the backend is away")
            # A session that lost its backend ends with an error.
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"x")
                sock.recv(1)
                check(False, "no error for a connection whose backend is gone")
        check_control_path(proxy)


# ---- processes ----


def hugepage_files():
    return {str(path) for path in pathlib.Path("/dev/hugepages").glob("*map*")}


def killed_and_started_again(env, app):
    """A program starts again after a kill, whatever the last one left behind."""
    before = hugepage_files()
    options = ["--to", f"{NEAR}:9001"] if app == "coronet-proxy" else []
    tap = Tap(env, app, "fl3", "--port", PORT, *options)
    request = b"GET / HTTP/1.0\r\n\r\n"

    def is_served():
        with contextlib.suppress(OSError), dial_server() as sock:
            sock.sendall(request)
            return sock.recv(1)
        return b""

    with proxies.Peer(proxies.Tap(), proxies.echo_bytes, host=NEAR, port=9001):
        for _ in range(3):
            with tap.running() as server:
                eventually(is_served, WAIT_MAX_S, lambda: f"nothing is served: {server.story()}")
                with dial_server() as sock:
                    server.signal(signal.SIGKILL)
                    server.process.wait()
                    # The next program owns the address, and sends a reset.
                    with tap.running() as again:
                        with contextlib.suppress(ConnectionError):
                            sock.sendall(request)
                            check(sock.recv(1) == b"", f"{app} knows the connections of another")
                        eventually(is_served, WAIT_MAX_S,
                                   lambda: f"nothing is served: {again.story()}")
                        check_control_path(again, ends=False)
    check(hugepage_files() <= before, f"hugepages were left behind: {hugepage_files() - before}")


def memif_killed_and_started_again(env):
    path = env.scratch_for({}) / "m.sock"
    for _ in range(3):
        with env.running(memif_echo(env, path, "server")) as echo:
            check_load(env.start(memif_load(env, path, "client", "--seconds", "0.5")))
            echo.kill()
            check(path.exists(), "a killed server left no socket: the case shows nothing")


def refusals(env, control):
    """Returns the number of frames that did not fit the first link."""
    done = command(env.app("coronet-ctl"), "--control", control, "links", "--json")
    return json.loads(done)[0]["ports"][0]["tx_busy"]


def busy_intervals(load):
    """Returns the number of intervals with answers to a load's requests."""
    return len(re.findall(r" [1-9][\d,]* req/s", load.output("stderr")))


def most_conns(load):
    return max((int(n) for n in re.findall(r" (\d+) conns ", load.output("stderr"))), default=0)


def blocked_memif_peer(env, conns=1000):
    """Frames for a peer that takes none wait for its link, and do not delay others."""
    path, control = env.scratch_for({}) / "m.sock", env.scratch / "control"
    argv = [*memif_echo(env, path, "server"), "--link", "tap:fl8", "--addr", "10.8.0.1/16",
            "--control", control, "--memory", "1G"]
    with env.running(argv) as server:
        command("ip", "addr", "add", "10.8.0.2/16", "dev", "fl8")
        command("ip", "link", "set", "fl8", "up")
        load = env.start(memif_load(env, path, "client", "--seconds", "3600", "--verify", "--size",
                                    "4096", "--conns", conns, "--memory", "1G", "--interval",
                                    "0.2"))
        eventually(lambda: most_conns(load) > conns // 2 or not load.alive(),
                   WAIT_MAX_S, lambda: f"not half of them are open: {load.story()}")
        load.signal(signal.SIGSTOP)
        eventually(lambda: refusals(env, control) > 0, WAIT_MAX_S, "the link is not blocked")
        with dial_server(host="10.8.0.1") as sock:
            check_echo(sock)
            began, before = time.monotonic(), refusals(env, control)
            while (took := time.monotonic() - began) < 1:
                check_echo(sock)
            refused = refusals(env, control) - before
        # One per connection, and one for each of its timeouts.
        check(refused < 4 * conns * (1 + took),
              f"{refused} frames were tried in vain in {took:.1f} s")
        load.signal(signal.SIGCONT)
        answered = busy_intervals(load)
        eventually(lambda: busy_intervals(load) > answered + 1 or not load.alive(), WAIT_MAX_S,
                   lambda: f"nothing is answered: {load.story()}")
        load.signal(signal.SIGINT)
        check_load(load, late=True)  # a full link loses SYNs, too
        server.terminate()


def times_asked_again(sock):
    """Returns the kernel's timer retransmissions that were not answered yet."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 3)[2]


def stopped_for_a_while(env):
    """SIGSTOP and SIGCONT, like a paused virtual machine: time jumps, nothing is lost."""
    tap = Tap(env, "coronet-echo", "fl4", "--port", PORT)
    with tap.running() as server, contextlib.ExitStack() as stack:
        socks = [stack.enter_context(dial_server()) for _ in range(200)]
        for sock in socks:
            check_echo(sock)
        bulk = Bulk()
        bulk.await_more(1024 * KIB)
        server.signal(signal.SIGSTOP)
        for sock in socks[::2]:
            sock.sendall(b"while it sleeps")
        # The kernel retransmits, and doubles its timeout each time.
        eventually(lambda: times_asked_again(socks[0]) >= (7 if "--long" in env.args else 3),
                   WAIT_MAX_S, "the kernel does not ask again")
        server.signal(signal.SIGCONT)
        bulk.check_complete()
        for sock in socks[::2]:
            check(proxies.read_exactly(sock, 15) == b"while it sleeps", "the echo differs")
        for sock in socks:
            check_echo(sock)
        check_control_path(server, ends=False)
        stack.close()
        server.terminate()


def wall_clock_jumps(env):
    """The wall clock may jump: only Date fields depend on it."""
    jumping = env.build / "tests/integration/libjumping-clock.so"
    preload = preload_of(jumping)
    year = command("env", f"LD_PRELOAD={preload}", "ASAN_OPTIONS=detect_leaks=0",
                   "date", "+%Y").strip()
    check(year == "2023", f"the clock does not jump: it is {year}")
    tap = Tap(env, "coronet-proxy", "fl5", "--port", PORT, "--to", f"{NEAR}:9001",
              "--idle-timeout", "60", "--health-interval", "0.3")
    with tap.running(env={**os.environ, "LD_PRELOAD": preload}) as server, \
            proxies.Peer(proxies.Tap(), proxies.echo_bytes, host=NEAR, port=9001):
        eventually(try_echo, WAIT_MAX_S, lambda: f"nothing is served: {server.story()}")
        with dial_server() as sock:
            before = rounds_of(server)
            while rounds_of(server) < before + 2 / STATS_S:
                check_echo(sock)
                await_rounds(server, 1)
        check(" down" not in server.output("stderr"),
              f"a backend that answers was taken down: {server.story()}")
        check_control_path(server)


def stopped_when_it_listens(env, app, *argv):
    """A supervisor may stop a program as soon as it is ready."""
    library = env.build / "tests/integration/libstopped-when-listening.so"
    program = env.start([env.app(app), *argv],
                        env={**os.environ, "LD_PRELOAD": preload_of(library)})
    status = program.wait(WAIT_MAX_S)
    check(status == 0, f"exit status {status}: {program.story()}")
    check("listening on" in program.output("stdout"), program.story())


def check_without_hugepages(env, reason):
    """A program that sees 500 free pages runs without hugepages, and prints why in one line."""
    library = env.build / "tests/integration/libplenty-of-hugepages.so"
    with env.running([env.app("coronet-echo"), "--link", "ring:r0", "--addr", "10.9.0.1/16"],
                     env={**os.environ, "LD_PRELOAD": preload_of(library)}) as server:
        server.terminate()
    lines = [line for line in server.output("stderr").splitlines() if "hugepages" in line]
    check(len(lines) == 1 and "running without hugepages" in lines[0] and reason in lines[0],
          f"expected one line that says {reason!r}: {server.story()}")


def hugepages_of_another(env):
    """The free pages are being taken by another program: this one runs without hugepages."""
    if not pathlib.Path(HUGEPAGES).exists():
        raise Skip("a kernel without hugepages")
    other = os.open(HUGEPAGES, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        check_without_hugepages(env, "another program has been starting")
    finally:
        os.close(other)


def hugepages_that_cannot_be_mapped(env):
    """The kernel reports free pages but does not map them: the program runs without hugepages."""
    if not pathlib.Path(HUGEPAGES).exists():
        raise Skip("a kernel without hugepages")
    if int(pathlib.Path("/proc/sys/vm/nr_hugepages").read_text(encoding="ascii")):
        raise Skip("hugepages are set aside here")
    check_without_hugepages(env, "they cannot be used")


def stops_when_listening(env):
    """Yields each program, the name of the case and its function."""
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
    links = [link_down_and_up, interface_deleted, no_signals_left, memif_server_comes_and_goes,
             memif_server_changes_queues, memif_client_leaves_unread,
             memif_client_before_its_server, memif_server_between_bind_and_listen,
             memif_socket_removed, memif_strangers, memif_backend_restarts,
             memif_killed_and_started_again, blocked_memif_peer]
    processes = [stopped_for_a_while, wall_clock_jumps, hugepages_of_another,
                 hugepages_that_cannot_be_mapped]
    bind = functools.partial
    for function in (links if "links" in env.args else processes if "processes" in env.args else
                     links + processes):
        yield function.__name__.replace("_", " "), bind(function, env)
    if "links" in env.args:
        return
    for app in ("coronet-echo", "coronet-httpd", "coronet-proxy"):
        yield f"{app} killed and started again", bind(killed_and_started_again, env, app)
    yield from stops_when_listening(env)


if __name__ == "__main__":
    main(cases)
