#!/usr/bin/env python3
"""coronet-proxy's UDP listeners over a TAP: sessions, failures, limits and the end.

Usage: test_proxy_udp.py BUILD_DIR
"""

import contextlib
import functools
import os
import select
import shutil
import signal
import socket
import subprocess
import threading
import time

from harness import (WAIT_MAX_S, Failure, Skip, Spoiled, check, command, eventually,
                     in_a_quiet_moment, main, read_metric)
from steering import Config

PORT = 5353
STACK4, STACK6 = "10.9.0.1", "fd00:9::1"
METRICS = 9090


class Backend:
    """Answers each datagram with its name and the datagram, in a thread."""

    def __init__(self, name, address, port=7000, answer=None):
        self.name, self.port, self.address = name, port, address
        self.answer = answer or (lambda data: name.encode() + b":" + data)
        self.seen = []
        self.sock = None

    def __enter__(self):
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_DGRAM)
        self.sock.bind((self.address, self.port))
        self.end, self.ending = socket.socketpair()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def run(self):
        while True:
            ready, _, _ = select.select([self.sock, self.end], [], [])
            if self.end in ready:
                return
            data, source = self.sock.recvfrom(65535)
            self.seen.append(data)
            answer = self.answer(data)
            if answer is not None:
                self.sock.sendto(answer, source)

    def __exit__(self, *_):
        self.ending.close()
        self.thread.join()
        self.end.close()
        self.sock.close()

    @property
    def to(self):
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.name}={host}:{self.port}"


@contextlib.contextmanager
def proxying(env, *options, shards=1):
    with env.running([env.app("coronet-proxy"), "--link", "tap:pu0", "--addr", f"{STACK4}/16",
                      "--addr", f"{STACK6}/64", "--listen", f"udp:{STACK4}:{PORT}", "--listen",
                      f"udp:[{STACK6}]:{PORT}", "--shards", shards, "--poll", "adaptive",
                      "--huge", "off", "--metrics", f"127.0.0.1:{METRICS}", *options]) as proxy:
        command("ip", "link", "set", "lo", "up")
        for number in range(1, 5):
            command("ip", "addr", "add", f"10.9.{number}.1/16", "dev", "pu0")
        command("ip", "addr", "add", "fd00:9::2/64", "dev", "pu0", "nodad")
        command("ip", "link", "set", "pu0", "up")
        yield proxy
        if proxy.alive():
            proxy.terminate()
        check(proxy.wait(WAIT_MAX_S) == 0, proxy.story())


def two_backends(**answers):
    return (Backend("one", "10.9.1.1", **answers), Backend("two", "10.9.2.1", **answers))


def client(source="10.9.3.1", stack=STACK4, port=PORT):
    sock = socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((source, 0))
    sock.connect((stack, port))
    return sock


def ask(sock, data=b"hello"):
    """Sends a datagram until its answer comes, as UDP's clients do; returns that."""
    for _ in range(WAIT_MAX_S):
        with contextlib.suppress(ConnectionRefusedError, TimeoutError):
            sock.send(data)
            sock.settimeout(1)
            while True:
                answer = sock.recv(65535)
                if answer.partition(b":")[2] == data:  # no late one to another
                    return answer
    raise AssertionError("no answer")


metric = functools.partial(read_metric, METRICS)


def await_health(backend, health):
    await_metric(f'coronet_proxy_backend_health{{backend="{backend}",health="{health}"}}',
                 lambda n: n == 1)


def await_metric(name, is_right):
    eventually(lambda: is_right(metric(name)), WAIT_MAX_S, f"{name} is {metric(name)}")


def answers_come_from_the_address_asked(env):
    """IPv4 and IPv6 clients of IPv4 and IPv6 backends; no byte changes."""
    six = Backend("six", "fd00:9::2")
    with proxying(env, "--to", "one=10.9.1.1:7000", "--to", "six=[fd00:9::2]:7000"), \
            Backend("one", "10.9.1.1"), six:
        names = set()
        for source, stack in (("10.9.3.1", STACK4), ("fd00:9::2", STACK6)):
            for _ in range(2):
                with client(source, stack) as sock:
                    for data in (b"", b"x", bytes(range(256)) * 5):
                        name, _, rest = ask(sock, data).partition(b":")
                        check(rest == data, f"{len(rest)} bytes came of {len(data)}")
                        names.add(name)
        check(names == {b"one", b"six"}, f"{names} have answered")
        check(metric("coronet_proxy_udp_sessions") == 4, "not one session a client")


def session_keeps_its_backend(env):
    """All datagrams of a port go to one backend, however clients are spread."""
    with contextlib.ExitStack() as stack:
        backends = two_backends()
        stack.enter_context(proxying(env, "--to", backends[0].to, "--to", backends[1].to))
        for backend in backends:
            stack.enter_context(backend)
        names = []
        for _ in range(4):
            sock = stack.enter_context(client())
            answers = {ask(sock, b"%d" % i).split(b":")[0] for i in range(10)}
            check(len(answers) == 1, f"{answers} have answered one client")
            names += answers
        check(names.count(b"one") == 2, f"not in turn: {names}")


def hash_keeps_a_client_with_its_backend(env):
    with contextlib.ExitStack() as stack:
        backends = two_backends()
        stack.enter_context(proxying(env, "--balance", "hash", "--to", backends[0].to, "--to",
                                     backends[1].to))
        for backend in backends:
            stack.enter_context(backend)
        for source in ("10.9.1.1", "10.9.2.1", "10.9.3.1", "10.9.4.1"):
            names = set()
            for _ in range(5):
                with client(source) as sock:
                    names.add(ask(sock).split(b":")[0])
            check(len(names) == 1, f"{source} was sent to {names}")


def idle_sessions_end(env):
    backends = two_backends()
    log = env.scratch / "access"
    with proxying(env, "--to", backends[0].to, "--udp-timeout", "0.5", "--access-log", log), \
            backends[0], client() as sock:
        ask(sock)
        port = sock.getsockname()[1]
        await_metric("coronet_proxy_udp_sessions", lambda n: n == 0)
        begun = metric("coronet_proxy_udp_sessions_total")
        ask(sock)
        check(metric("coronet_proxy_udp_sessions_total") > begun, "the second is no new session")
        eventually(lambda: log.read_text().count("end=done") > begun, WAIT_MAX_S, "not logged")
        line = log.read_text().splitlines()[-1]
        for part in (f"client=10.9.3.1:{port}", f"listener={STACK4}:{PORT}", "backend=one",
                     "to=5", "from=9"):
            check(part in line.split(), f"no {part} in: {line}")


def reloaded_timeout_holds_for_old_sessions(env):
    """A reload that shortens --udp-timeout ends the sessions that are idle for longer."""
    backends = two_backends()
    config = Config(env, f"to = {backends[0].to}", "udp-timeout = 600")
    with proxying(env, "--config", config.path) as proxy, backends[0], client() as sock:
        ask(sock)
        check(metric("coronet_proxy_udp_sessions") == 1, "no session")
        config.reload(proxy, f"to = {backends[0].to}", "udp-timeout = 0.5")
        await_metric("coronet_proxy_udp_sessions", lambda n: n == 0)


def session_ends_with_its_answers(env):
    backends = two_backends()
    with proxying(env, "--to", backends[0].to, "--udp-responses", "1"), backends[0], \
            client() as sock:
        for number in range(1, 4):
            ask(sock)
            await_metric("coronet_proxy_udp_sessions", lambda n: n == 0)
            check(metric("coronet_proxy_udp_sessions_total") >= number, "sessions are kept")


def refused_backend_is_left(env):
    """ICMP says that the backend has no socket: its clients go to another."""
    backends = two_backends()
    with proxying(env, "--to", backends[0].to, "--to", backends[1].to, "--health-interval", "0",
                  "--eject-after", "3", "--eject-time", "600") as proxy, \
            contextlib.ExitStack() as stack:
        with backends[0], backends[1]:
            socks = [stack.enter_context(client()) for _ in range(8)]
            for sock in socks:
                ask(sock)
        with backends[1]:
            for sock in socks:
                check(ask(sock).startswith(b"two:"), "not by the other backend")
            with client() as sock:
                ask(sock)
        check("backend one refused 3 sessions in a row: ejected" in proxy.output("stderr"),
              proxy.story())


def checked_by_datagrams(env):
    """check=dns and check=udp:TEXT: down without the answer, up with it."""
    def dns(data):
        return data[:2] + b"\x81\x80" + data[4:] if len(data) == 17 else b"dns:" + data

    def pong(data):
        return b"say pong" if data == b"ping" else b"pong:" + data

    dns_backend = Backend("dns", "10.9.1.1", answer=dns)
    pong_backend = Backend("pong", "10.9.2.1", answer=pong)
    mute = Backend("mute", "10.9.4.1", answer=lambda data: None)
    with proxying(env, "--to", dns_backend.to + ",check=dns", "--to",
                  pong_backend.to + ",check=udp:pong,send=ping", "--to", mute.to + ",check=dns",
                  "--health-interval", "0.1", "--rise", "1", "--fall", "6"):
        for _ in range(2):
            with dns_backend, pong_backend, mute:
                await_health("dns", "up")
                await_health("pong", "up")
                await_health("mute", "down")
                with client() as sock:
                    check(ask(sock)[:4] in (b"dns:", b"pong"), "the wrong backend")
            await_health("dns", "down")
            await_health("pong", "down")


def down_backend_loses_its_sessions(env):
    """A backend whose checks fail keeps no client, though no ICMP comes."""
    muted = threading.Event()

    def unless_muted(data):
        return None if muted.is_set() else b"one:" + data

    one = Backend("one", "10.9.1.1", answer=unless_muted)
    two = Backend("two", "10.9.2.1")
    with proxying(env, "--to", one.to + ",check=udp:one", "--to", two.to + ",check=udp:two,backup",
                  "--health-interval", "0.1", "--rise", "1", "--fall", "6"), one, two, \
            client() as sock:
        eventually(lambda: ask(sock).startswith(b"one:"), WAIT_MAX_S, "one is not used")
        muted.set()
        eventually(lambda: ask(sock).startswith(b"two:"), WAIT_MAX_S, "it stays")


def longest_idle_session_gives_way(env):
    """Beyond --max-udp-sessions a flood costs the oldest, and no new client."""
    backends = two_backends()

    def flood():
        """A part of it may be lost while the proxy does not run."""
        with contextlib.ExitStack() as stack:
            for sock in [stack.enter_context(client()) for _ in range(200)]:
                sock.send(b"flood")

    with proxying(env, "--to", backends[0].to, "--max-udp-sessions", "50") as proxy, backends[0]:
        with client() as sock:
            eventually(lambda: flood() or metric("coronet_proxy_udp_displaced_total") > 300,
                       WAIT_MAX_S, "no session is displaced")
            for _ in range(5):
                check(ask(sock) == b"one:hello", "no answer")
        check(metric("coronet_proxy_udp_sessions") <= 50, "more sessions than allowed")
        check(proxy.alive(), proxy.story())


def ports_to_a_backend_run_out(env):
    """A client host that has begun a session for each port to the backend locks nobody out."""
    one = Backend("one", "10.9.1.1",
                  answer=lambda data: None if data == b"flood" else b"one:" + data)

    def flood():
        """Again from each port, since a part is lost while the proxy does not run."""
        for port in range(1024, 65000):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.bind(("10.9.3.1", port))
                sock.sendto(b"flood", (STACK4, PORT))
        return metric("coronet_proxy_udp_displaced_total") > 1000

    # No session ends before the last one has begun.
    with proxying(env, "--to", one.to, "--udp-timeout", 10 * WAIT_MAX_S) as proxy, one:
        eventually(flood, WAIT_MAX_S, lambda: f"no session is displaced: {proxy.story()}")
        for _ in range(5):
            with client() as sock:
                check(ask(sock) == b"one:hello", "no answer")
        check(metric("coronet_proxy_udp_sessions") == 49152, "ports are not used")


def without_a_backend_datagrams_are_dropped(env):
    backends = two_backends()
    with proxying(env, "--to", backends[0].to + ",maxconn=2", "--deny", "10.9.4.0/24"), \
            backends[0], contextlib.ExitStack() as stack:
        for _ in range(2):
            ask(stack.enter_context(client()))
        for source, data in (("10.9.3.1", b"no room"), ("10.9.4.1", b"denied")):
            dropped = metric("coronet_proxy_udp_dropped_total")
            stack.enter_context(client(source)).send(data)
            await_metric("coronet_proxy_udp_dropped_total", lambda n, was=dropped: n == was + 1)
            check(data not in backends[0].seen, f"{data} was sent on")


def end_waits_for_answers(env):
    """After SIGTERM sessions get their answers; once idle for a second they end."""
    go = threading.Event()

    def late(data):
        if data == b"late":
            go.wait(WAIT_MAX_S)
        return b"one:" + data

    def attempt():
        go.clear()
        one = Backend("one", "10.9.1.1", answer=late)
        with proxying(env, "--to", one.to + ",check=none", "--udp-timeout", "600") as proxy, one, \
                client() as sock:
            ask(sock)
            sock.send(b"late")
            begin = time.monotonic()
            eventually(lambda: b"late" in one.seen, WAIT_MAX_S, "it has not arrived")
            proxy.signal(signal.SIGTERM)
            eventually(lambda: "draining" in proxy.output("stderr"), WAIT_MAX_S,
                       "it does not drain")
            go.set()
            spent = time.monotonic() - begin
            check(proxy.wait(WAIT_MAX_S) == 0, proxy.story())
            sock.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                check(sock.recv(100) == b"one:late", "a wrong answer")
                return
            if spent > 0.5:
                raise Spoiled(f"the answer was {spent:.1f} s late")
            raise Failure("no answer while it drains")

    in_a_quiet_moment(attempt)


def shards_share_clients(env):
    backends = two_backends()
    with proxying(env, "--to", backends[0].to, "--to", backends[1].to, shards=2), backends[0], \
            backends[1], contextlib.ExitStack() as stack:
        socks = [stack.enter_context(client()) for _ in range(64)]
        for turn in range(3):
            for sock in socks:
                check(ask(sock, b"%d" % turn).endswith(b":%d" % turn), "a wrong answer")
        check(metric("coronet_proxy_udp_sessions") == 64, "not a session a client")


def refusals(env):
    """What cannot be is refused with a line."""
    common = ["--link", "tap:pu1", "--addr", f"{STACK4}/16", "--to", "10.9.1.1:7000"]
    udp = ["--listen", f"udp:{STACK4}:53"]
    for program, words, expected in (
            ("coronet-proxy", [*common, *udp, "--send-proxy", "v2"], "--send-proxy"),
            ("coronet-proxy", [*common, *udp, "--accept-proxy"], "--accept-proxy"),
            ("coronet-proxy", [*common, "--listen", "udp:10.9.0.1"], "an address and a port"),
            ("coronet-proxy", [*common, *udp, *udp], "each address and port once"),
            ("epoll-proxy", [*udp, "--to", "10.9.1.1:7000"], "coronet-proxy for UDP")):
        done = subprocess.run([env.app(program), *map(str, words)], text=True, check=False,
                              capture_output=True, timeout=WAIT_MAX_S)
        check(done.returncode == 2 and expected in done.stderr,
              f"{program} {words}: {done.returncode}, {done.stderr}")


def name_servers(env):
    """dig and dnsperf through the proxy to two dnsmasq, by UDP and TCP at once."""
    for program in ("dnsmasq", "dig", "dnsperf"):
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(proxying(
            env, "--listen", f"{STACK4}:{PORT}", "--to", "one=10.9.1.1:53,check=dns", "--to",
            "two=10.9.2.1:53,check=dns", "--udp-responses", "1", "--health-interval", "0.2"))
        for address in ("10.9.1.1", "10.9.2.1"):
            server = env.start(
                ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
                 "--user=root", "--pid-file=", f"--listen-address={address}", "--bind-interfaces",
                 "--host-record=www.example.com,192.0.2.7"])
            stack.callback(server.kill)
        for words in ([], ["+tcp"]):
            done = subprocess.run(["dig", f"@{STACK4}", "-p", str(PORT), "+short", "+tries=10",
                                   "+time=2", *words, "www.example.com"], text=True, check=False,
                                  capture_output=True)
            check("192.0.2.7" in done.stdout, f"{words}: {done.stdout}{done.stderr}")
        queries = env.scratch / "queries"
        queries.write_text("www.example.com A\n")
        done = subprocess.run(["dnsperf", "-s", STACK4, "-p", str(PORT), "-d", str(queries), "-l",
                               "3", "-c", "20", "-q", "50", "-t", "10"], text=True, check=False,
                              capture_output=True, timeout=120)
        lost = [line for line in done.stdout.splitlines() if "Queries lost" in line]
        check(lost and "(0.00%)" in lost[0], done.stdout + done.stderr + proxy.story())


RSYSLOG = """
module(load="imudp")
template(name="text" type="string" string="%app-name% %msg%\\n")
input(type="imudp" address="{address}" port="514")
action(type="omfile" file="{file}" template="text")
"""


@contextlib.contextmanager
def rsyslogd(env, address):
    """Runs a log server that listens at the address; yields the file to which it writes."""
    file, config, pid = (env.scratch / f"rsyslog-{address}-{what}"
                         for what in ("lines", "conf", "pid"))
    config.write_text(RSYSLOG.format(address=address, file=file))
    file.touch()
    server = env.start(["rsyslogd", "-n", "-f", config, "-i", pid])
    try:
        eventually(lambda: f"{address}:514 " in command("ss", "-Hlun"), WAIT_MAX_S, server.story)
        yield file
    finally:
        server.kill()


def log_lines(env):
    """logger sends lines through the proxy to two rsyslogd: each arrives once, and unchanged."""
    os.environ["PATH"] += ":/usr/sbin"
    for program in ("logger", "rsyslogd"):
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")
    turns, lines = 8, 40  # no more at a time than every queue on the way holds
    sent = [[f"turn {turn} line {line} \u00fc%s {'x' * (20 * line)}|" for line in range(lines)]
            for turn in range(turns)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(proxying(env, "--to", "one=10.9.1.1:514,check=none", "--to",
                                     "two=10.9.2.1:514,check=none", "--udp-responses", "0"))
        files = [stack.enter_context(rsyslogd(env, address)) for address in ("10.9.1.1",
                                                                            "10.9.2.1")]
        command("ping", "-c", "1", STACK4)  # the kernel reorders what waits for ARP

        def arrived():
            return [file.read_text().splitlines() for file in files]

        for turn in sent:
            before = sum(map(len, arrived()))
            subprocess.run(["logger", "--udp", "--server", STACK4, "--port", str(PORT),
                            "--rfc5424", "--tag", "coronet"], input="\n".join(turn) + "\n",
                           text=True, check=True, timeout=WAIT_MAX_S)
            eventually(lambda want=before + lines: sum(map(len, arrived())) >= want, WAIT_MAX_S,
                       lambda: f"{[len(each) for each in arrived()]} of {before + lines} lines")
        # Each logger is a client of its own, and has all of its lines at one server, in order.
        wanted = [[f"coronet {line}" for turn in sent[begin::2] for line in turn]
                  for begin in (0, 1)]
        if arrived()[0][:1] != wanted[0][:1]:
            wanted.reverse()
        for found, expected in zip(arrived(), wanted):
            check(len(found) == len(expected), f"{len(found)} of {len(expected)} lines")
            wrong = [pair for pair in zip(found, expected) if pair[0] != pair[1]]
            check(not wrong, f"{len(wrong)} lines differ: {wrong[:1]}")
        for direction, count in (("to_backend", turns * lines), ("from_backend", 0)):
            found = metric(f'coronet_proxy_udp_datagrams_total{{direction="{direction}"}}')
            check(found == count, f"{found} datagrams {direction}")
        check(metric("coronet_proxy_udp_dropped_total") == 0, "datagrams are dropped")


def cases(env):
    for function in (answers_come_from_the_address_asked, session_keeps_its_backend,
                     hash_keeps_a_client_with_its_backend, idle_sessions_end,
                     reloaded_timeout_holds_for_old_sessions, session_ends_with_its_answers,
                     refused_backend_is_left, checked_by_datagrams,
                     down_backend_loses_its_sessions, longest_idle_session_gives_way,
                     ports_to_a_backend_run_out, without_a_backend_datagrams_are_dropped,
                     end_waits_for_answers, shards_share_clients, refusals, name_servers, log_lines):
        yield function.__name__.replace("_", " "), functools.partial(function, env)


if __name__ == "__main__":
    main(cases)
