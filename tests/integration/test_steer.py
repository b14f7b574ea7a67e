#!/usr/bin/env python3
"""Operation of coronet-proxy while it runs.

Usage: test_steer.py BUILD_DIR [backends|clients|CASE...]
Reloads, backends that come, go, fail and fill up, health checks, timeouts, access
lists, the access log and server names, with curl, wrk, nginx and openssl around it.
"""

import contextlib
import functools
import json
import os
import re
import signal
import socket
import threading
import time

from harness import (POLL_SECONDS, WAIT_MAX_S, Failure, await_rounds, check, command, eventually,
                     main, read_metric, repeat_for)
from proxies import (Peer, Tap, check_broken, check_echo, dial_proxy, echo_bytes, read_exactly,
                     proxy_url, read_to_end, reset_socket, send_name)
from steer_names import (dead_names_hold_up_no_other, headers_that_haproxy_reads, obeys_ttls,
                         resolves_by_the_stack, resolves_names, server_names, unique_id_and_tlvs)
from steering import Config, Load, await_line, backend_name, backend_names
from stopped_shard import stopped_shard
from web import Nginx, need_programs, run_curl, run_wrk, wrk_enough


# ---- reloads ----


def reload_loses_no_session(env, kind):
    """Backends are added and removed under load: no client fails, and sessions keep their
    backend."""
    with Peer(kind, echo_bytes) as one, Peer(kind, echo_bytes) as two:
        first = [f"to = one={one.at}"]
        both = [*first, f"to = two={two.at},weight=2"]
        last = [f"to = two={two.at}"]
        config = Config(env, *first)
        with kind.serve(env, "--config", config.path, "--shards", "2") as proxy, \
                dial_proxy(kind) as stays, Load(kind) as load:
            stays.sendall(b"a")
            check(stays.recv(1) == b"a", "the echo differs")
            for lines in (both, last, both, first, last):
                load.more(20)
                config.reload(proxy, *lines)
            load.more(20)
            # Sessions of one continue, although it is no longer a backend.
            seen = one.seen
            load.more(20)
            check(one.seen == seen, "a backend that is gone gets clients")
            stays.sendall(b"b" * 100000)
            check(read_exactly(stays, 100000) == b"b" * 100000, "a session was lost")
            check("2 backends, 1 of them new, 0 gone" in proxy.output("stderr"), proxy.story())
            check("1 backends, 0 of them new, 1 gone" in proxy.output("stderr"), proxy.story())
            for _ in range(50):
                proxy.signal(signal.SIGHUP)
                load.more(1)
            load.more(20)
            stays.close()
            load.__exit__()
            proxy.terminate()


def reload_is_said_when_it_holds(env, kind):
    """Clients that connect after the "reloaded" line get the new configuration on any shard."""
    with Peer(kind, send_name(b"one")) as one, Peer(kind, send_name(b"two")) as two:
        lines = {b"one": f"to = one={one.at}", b"two": f"to = two={two.at}"}
        config = Config(env, lines[b"one"], "health-interval = 0")
        with kind.serve(env, "--config", config.path, "--shards", "2") as proxy:
            for which in [b"two", b"one"] * 20:
                config.reload(proxy, lines[which], "health-interval = 0")
                check(backend_names(kind, 2) == {which}, f"not {which}: {proxy.story()}")
            # A shard that does not run cannot have it yet.
            said_so = proxy.output("stderr").count("reloaded")
            with stopped_shard(proxy, 1):
                config.write(lines[b"two"], "health-interval = 0")
                proxy.signal(signal.SIGHUP)
                eventually(lambda: proxy.output("stderr").count("reloaded") > said_so, WAIT_MAX_S,
                           proxy.story)
                line = proxy.output("stderr").splitlines()[-1]
                check("has not applied it yet" in line, line)
            eventually(lambda: backend_names(kind, 1) == {b"two"}, WAIT_MAX_S, proxy.story)
            check(backend_names(kind, 4) == {b"two"}, proxy.story())


def wrong_reload_changes_nothing(env, kind):
    """A file with an error is refused with its line; the program continues unchanged."""
    with Peer(kind, send_name(b"one")) as one, Peer(kind, send_name(b"two")) as two:
        good = f"to = one={one.at}"
        config = Config(env, good)
        with kind.serve(env, "--config", config.path) as proxy:
            for lines, names in [
                    ([f"to = two={two.at}", "to = banana"], ["line 2", "banana"]),
                    ([f"to = two={two.at},weight=257"], ["line 1", "weight= with a whole number"]),
                    ([good, good], ["line 2", "each backend once"]),
                    ([f"to = two={two.at}", "nosuch = 1"], ["line 2", "nosuch"]),
                    ([f"to = two={two.at}", "deny = 10.9.1.1/8"], ["line 2", "10.9.1.1/8"]),
                    ([good, "proxy-from = 10.0.0.0/8"], ["--proxy-from", "--accept-proxy"]),
                    (["balance = least"], ["--to", "missing"]),
                    ([f"{good},state=drain", "route = 10.50.0.0/16 via 192.168.77.1"],
                     ["192.168.77.1"]),
                    (["to = 10.9.0.1:80"], ["another host"])]:
                line = config.reload(proxy, *lines, says="nothing has changed")
                for word in names:
                    check(word in line, f"'{word}' is missing: {line}")
                check(backend_names(kind, 3) == {b"one"}, "a wrong file changed something")
            config.path.unlink()
            proxy.signal(signal.SIGHUP)
            eventually(lambda: "No such file" in proxy.output("stderr"), WAIT_MAX_S, proxy.story)
            os.mkfifo(config.path)  # without a writer; the program must not wait for one
            before = proxy.output("stderr").count("nothing has changed")
            proxy.signal(signal.SIGHUP)
            eventually(lambda: proxy.output("stderr").count("nothing has changed") > before,
                       WAIT_MAX_S, proxy.story)
            line = config.reload(proxy, f"to = two={two.at}", "port = 81")
            check("next start" in line, f"a new port passes unsaid: {line}")
            check(backend_names(kind, 3) == {b"two"}, "the right file changed nothing")
        status = 2
        config.write("to = banana")
        done = env.start([env.app(kind.app), "--link", "ring:r0", "--addr", "10.9.0.1/16",
                          "--config", config.path])
        check(done.wait(WAIT_MAX_S) == status, f"a wrong file at the start: {done.story()}")


def drain_backend(env, kind):
    """state=drain keeps the sessions and gets no new ones; state=ready gets new ones again."""
    with Peer(kind, echo_bytes) as one, Peer(kind, send_name(b"two")) as two:
        def lines(state):
            return [f"to = one={one.at},state={state}", f"to = two={two.at}"]
        config = Config(env, f"to = one={one.at}")
        with kind.serve(env, "--config", config.path) as proxy, dial_proxy(kind) as stays:
            stays.sendall(b"x")
            check(stays.recv(1) == b"x", "the echo differs")
            config.reload(proxy, *lines("drain"))
            check(backend_names(kind) == {b"two"}, "a backend that drains gets clients")
            stays.sendall(b"y")
            check(stays.recv(1) == b"y", "a session of a backend that drains was lost")
            config.reload(proxy, *lines("ready"))
            seen = one.seen
            for _ in range(4):
                dial_proxy(kind).close()
            eventually(lambda: one.seen > seen, WAIT_MAX_S, "ready again, and gets no client")


# ---- backends that fail ----


def backup_takes_over(env, kind):
    """The backup serves only while the primary nginx is down."""
    need_programs("curl")
    with kind.serve(env, "--to", f"a={kind.near}:9001", "--to", f"b={kind.near}:9002,backup",
                    "--health-interval", "0.2", "--rise", "1", "--fall", "6") as proxy, \
            contextlib.ExitStack() as stack:
        def backend():
            head = run_curl("-D", "-", "-o", "/dev/null", proxy_url(kind, "small"))
            return re.search(r"X-Backend: (\d+)", head)[1]
        # Both count as up until the first check.
        await_line(proxy, "backend a is down")
        await_line(proxy, "backend b is down")
        primary = stack.enter_context(Nginx(env, kind.near, 9001))
        stack.enter_context(Nginx(env, kind.near, 9002))
        await_line(proxy, "backend a is up")
        await_line(proxy, "backend b is up")
        check({backend() for _ in range(4)} == {"9001"}, "the backup is used beside another")
        downs = proxy.output("stderr").count("backend a is down")
        primary.kill()
        check({backend() for _ in range(4)} == {"9002"}, "the backup does not serve")
        def turned(word):
            return proxy.output("stderr").count(f"backend a is {word}") > downs
        eventually(lambda: turned("down"), WAIT_MAX_S, proxy.story)
        primary.start()
        eventually(lambda: turned("up"), WAIT_MAX_S, proxy.story)
        check({backend() for _ in range(4)} == {"9001"}, "the backup serves on")


def ejection(env, kind):
    """A backend is ejected after --eject-after refused connects, and used again after a time."""
    with contextlib.ExitStack() as stack, Peer(kind, send_name(b"live")) as live:
        dead = stack.enter_context(Peer(kind, send_name(b"dead")))
        with kind.serve(
                env, "--to", f"dead={dead.at}", "--to", f"live={live.at}", "--eject-after", "3",
                "--eject-time", "2", "--health-interval", "0", "--stats", "0.2") as proxy:
            check(backend_names(kind) == {b"dead", b"live"}, "a backend gets no client")
            stack.close()
            check(backend_names(kind, 12) == {b"live"}, "a client got no answer")
            await_line(proxy, "backend dead failed 3 connects in a row: ejected for 2 s")
            eventually(lambda: "1 of 2 backends up" in proxy.output("stderr"), WAIT_MAX_S,
                       proxy.story)
            with Peer(kind, send_name(b"back"), port=dead.port):
                eventually(lambda: backend_name(kind) == b"back", WAIT_MAX_S, "it never comes back")


def retry_budget(env, kind):
    """Without a retry budget a client of a dead backend is reset, not sent to another one."""
    with Peer(kind, send_name(b"live")) as live:
        config = Config(env, "to = dead=10.9.1.1:1", f"to = live={live.at}", "eject-after = 0",
                        "health-interval = 0", "retry-budget = 0", "stats = 0.2")
        with kind.serve(env, "--config", config.path) as proxy:
            outcomes = []
            for _ in range(260):
                try:
                    outcomes.append(backend_name(kind))
                except ConnectionResetError:
                    outcomes.append(None)
            spent = outcomes.index(None)
            # The budget starts at a hundred, and earns one for every second client.
            check(199 <= spent <= 202, f"{spent} clients were served before the first was not")
            check(outcomes[-20:].count(None) == 10, f"then {outcomes[-20:]}")
            await_line(proxy, "retries refused")


def check_kinds(env, kind):
    """Health checks by HTTP status or by a server's reply, and a backend without checks."""
    state = {"status": b"503 Busy", "word": b"-LOADING"}

    def at6(peer):
        return f"[{kind.near6}]:{peer.port}"

    def http(sock):
        head = sock.recv(4096)
        at = at6(web6) if sock.family == socket.AF_INET6 else web.at
        if head.startswith(f"GET /up HTTP/1.1\r\nHost: {at}\r\n".encode()):
            sock.sendall(b"HTTP/1.1 " + state["status"] + b"\r\nContent-Length: 0\r\n\r\n")

    def redis(sock):
        if sock.recv(64) == b"PING\r\n":
            sock.sendall(state["word"] + b"\r\n")

    with Peer(kind, http) as web, Peer(kind, http, host="::") as web6, Peer(
            kind, redis) as store, kind.serve(
            env, "--to", f"web={web.at},check=http:/up",
            "--to", f"web6={at6(web6)},check=http:/up",
            "--to", f"store={store.at},check=expect:+PONG,send=PING\\r\\n",
            "--to", f"trusted={kind.near}:1,check=none",
            "--health-interval", "0.1", "--rise", "1", "--fall", "1") as proxy:
        await_line(proxy, "backend web is down")
        await_line(proxy, "backend web6 is down")
        await_line(proxy, "backend store is down")
        state["status"] = b"204 Fine"
        await_line(proxy, "backend web is up")
        await_line(proxy, "backend web6 is up")
        state["word"] = b"+PONG"
        await_line(proxy, "backend store is up")
        check("trusted is" not in proxy.output("stderr"), proxy.story())
    with kind.serve(env, "--to", f"web={kind.near}:9003,check=http:/who", "--to",
                    f"gone={kind.near}:9003,check=http:/nosuch", "--health-interval", "0.1",
                    "--rise", "1", "--fall", "1") as proxy:
        await_line(proxy, "backend web is down")
        with Nginx(env, kind.near, 9003):
            await_line(proxy, "backend web is up")
            await_line(proxy, "backend gone is down")
            check("backend gone is up" not in proxy.output("stderr"), proxy.story())


def checks_are_switched_off(env, kind):
    """A reload that ends the checks makes each backend up, also if a check that has begun fails."""
    def fail_check(sock):
        sock.recv(4096)
        begun.set()
        release.wait(WAIT_MAX_S)
        sock.sendall(b"HTTP/1.1 503 Busy\r\n")
        read_to_end(sock)
        ended.set()

    for kept, off in (("check=http:/", "health-interval = 0"),
                      ("check=none", "health-interval = 60")):
        begun, release, ended = (threading.Event() for _ in range(3))

        with Peer(kind, fail_check) as peer:
            def lines(words):
                return [f"to = slow={peer.at},{words}", f"to = dead={kind.near}:1,{words}",
                        "connect-timeout = 60", "fall = 1"]

            config = Config(env, *lines("check=http:/"), "health-interval = 60")
            with kind.serve(env, "--config", config.path, "--metrics", "127.0.0.1:9470") as proxy:
                await_line(proxy, "backend dead is down")
                check(begun.wait(WAIT_MAX_S), "no check")
                config.reload(proxy, *lines(kept), off)
                release.set()
                check(ended.wait(WAIT_MAX_S), "the check does not end")
                for name in "slow", "dead":
                    down = f'coronet_proxy_backend_health{{backend="{name}",health="down"}}'
                    check(read_metric(9470, down) == 0, f"{off}: {name} is down: {proxy.story()}")


def shorter_interval_holds_at_once(env, kind):
    """A reload that shortens --health-interval does not wait for the end of the old one."""
    to = f"to = late={kind.near}:9004"
    config = Config(env, to, "health-interval = 86400", "fall = 1", "rise = 1")
    with kind.serve(env, "--config", config.path) as proxy:
        await_line(proxy, "backend late is down")
        with Peer(kind, echo_bytes, port=9004):
            config.reload(proxy, to, "health-interval = 0.1", "rise = 1")
            await_line(proxy, "backend late is up")


def waiting(proxy, count):
    """Waits until the last line of statistics says that count sessions wait for a backend."""
    def all_wait():
        said = re.findall(r"proxy: (\d+) wait", proxy.output("stderr"))
        return said and int(said[-1]) == count
    eventually(all_wait, WAIT_MAX_S, lambda: f"not {count} wait: {proxy.story()}")


def queue(env, kind):
    """Sessions beyond maxconn wait, at most --queue-timeout; those beyond --queue are reset."""
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", f"a={peer.at},maxconn=1", "--queue", "2", "--queue-timeout", "4",
            "--health-interval", "0", "--stats", "0.2") as proxy:
        first = dial_proxy(kind)
        first.sendall(b"1")
        check(first.recv(1) == b"1", "the echo differs")
        second = dial_proxy(kind)
        second.sendall(b"2")
        waiting(proxy, 1)
        third = dial_proxy(kind)
        waiting(proxy, 2)
        with contextlib.suppress(ConnectionResetError), dial_proxy(kind) as fourth:
            check_broken(fourth)
        await_line(proxy, "1 queue full")
        first.close()
        check(second.recv(1) == b"2", "a queued session does not get the free slot")
        check_broken(third)
        await_line(proxy, "1 queue timeouts")
        check(peer.seen == 2, f"{peer.seen} sessions")
        second.close()
        with dial_proxy(kind) as last:
            last.sendall(b"5")
            check(last.recv(1) == b"5", "no slot comes free")
            # A client that resets leaves the queue.
            gone = dial_proxy(kind)
            waiting(proxy, 1)
            reset_socket(gone)
            waiting(proxy, 0)
            check("2 queue timeouts" not in proxy.output("stderr"), "it stayed in the queue")
            # Queued sessions leave nothing behind when the program ends.
            with dial_proxy(kind), dial_proxy(kind):
                waiting(proxy, 2)
                last.close()
        proxy.terminate()


def queue_under_load(env, kind):
    """All of wrk's requests are answered, although it has more connections than maxconn."""
    need_programs("wrk")
    with kind.serve(env, "--to", f"a={kind.near}:9001,maxconn=4", "--queue-timeout", "60",
                    "--shards", "2", "--health-interval", "0") as proxy, \
            Nginx(env, kind.near, 9001):
        wrk_enough(proxy_url(kind, "small"), connections=16, requests=20,
                   extra=["-H", "Connection: close"])
        check(proxy.alive(), proxy.story())


# ---- time ----


def await_end(log, word, meanwhile=lambda: None):
    """Waits until the access log has a session with that end; calls `meanwhile` again and again."""
    def ended():
        meanwhile()
        return f"end={word}" in log.read_text()
    eventually(ended, WAIT_MAX_S, lambda: f"no end={word}: {log.read_text()}")


def timeouts(env, kind):
    """The client's, the server's and the half-closed timeout each end a session."""
    log = env.scratch / "access.log"

    def pour(sock):
        with contextlib.suppress(OSError):
            while True:
                sock.sendall(b"x" * 100)

    with Peer(kind, send_name(b"hi")) as quiet, Peer(kind, pour) as busy:
        config = Config(env, f"to = {quiet.at}", "client-timeout = 1", "stats = 0.2")
        with kind.serve(env, "--config", config.path, "--access-log", log) as proxy:
            with dial_proxy(kind) as sock:
                check(sock.recv(2) == b"hi", "no greeting")
                check_broken(sock)
            await_end(log, "client-timeout")
            config.reload(proxy, f"to = {quiet.at}", "server-timeout = 1")
            with dial_proxy(kind) as sock:
                check(sock.recv(2) == b"hi", "no greeting")
                check_broken(sock)
            await_end(log, "server-timeout")
            config.reload(proxy, f"to = {quiet.at}", "half-closed-timeout = 0.5", "keepalive = 1")
            with dial_proxy(kind) as sock:
                check(sock.recv(2) == b"hi", "no greeting")
                await_rounds(proxy, 6)  # longer than either
                sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    raise Failure(f"{sock.recv(1)} of a session both of whose sides are open")

            def keep(sock):
                sock.sendall(b"ho")
                sock.shutdown(socket.SHUT_WR)
                sock.recv(1)  # until it is reset
            with Peer(kind, keep) as ender:
                config.reload(proxy, f"to = {ender.at}", "half-closed-timeout = 0.5",
                              "health-interval = 0")
                with dial_proxy(kind) as sock:
                    check(read_to_end(sock) == b"ho", "the end does not come through")
                    await_end(log, "half-closed-timeout")
            # A client that only acknowledges is not idle.
            limit = 1
            config.reload(proxy, f"to = {busy.at}", f"client-timeout = {limit}",
                          "health-interval = 0")
            with dial_proxy(kind) as sock:
                repeat_for(1.5 * limit, lambda: check(sock.recv(65536), "an end"))


def timeouts_of_dead_hosts(env, kind):
    """A side whose host has died is reset after its timeout, although the other side sends."""
    log = env.scratch / "dead_hosts.log"

    def trickle(sock):
        with contextlib.suppress(OSError):
            sock.sendall(b"x")

    def serve_trickle(sock):
        while not stop.wait(POLL_SECONDS):
            sock.sendall(b"x")

    def lose_host():
        command("ip", "addr", "del", f"{kind.other}/16", "dev", f"cp{kind.count}")

    stop = threading.Event()
    with Peer(kind, serve_trickle) as peer, kind.serve(
            env, "--to", peer.at, "--client-timeout", "1", "--health-interval", "0",
            "--access-log", log), dial_proxy(kind, source=kind.other) as sock:
        check(sock.recv(1) == b"x", "no byte")
        lose_host()
        await_end(log, "client-timeout")
    stop.set()
    with Peer(kind, echo_bytes, host=kind.other) as peer, kind.serve(
            env, "--to", peer.at, "--server-timeout", "1", "--health-interval", "0",
            "--access-log", log), dial_proxy(kind) as sock:
        trickle(sock)
        check(sock.recv(1) == b"x", "no byte")
        lose_host()
        await_end(log, "server-timeout", functools.partial(trickle, sock))


# ---- access ----


def access_lists(env, kind):
    """Access lists apply to the address in the PROXY header if its sender is trusted."""
    with Peer(kind, echo_bytes) as peer:
        to = f"to = {peer.at}"
        config = Config(env, to, f"deny = {kind.other}")
        with kind.serve(env, "--config", config.path, "--stats", "0.2") as proxy:
            check_echo(kind)
            with (contextlib.suppress(ConnectionResetError),
                  dial_proxy(kind, source=kind.other) as sock):
                check_broken(sock)
            await_line(proxy, "1 denied")
            config.reload(proxy, to, "allow = 10.9.1.64/26")
            check_echo(kind, source=kind.other)
            with contextlib.suppress(ConnectionResetError), dial_proxy(kind) as sock:
                check_broken(sock)
            config.reload(proxy, to, "accept-proxy", f"proxy-from = {kind.near}",
                          "deny = 192.0.2.0/24")
            check_echo(kind, source=kind.other)  # it needs no header
            with dial_proxy(kind) as sock:
                sock.sendall(b"PROXY TCP4 198.51.100.7 10.0.0.1 1 2\r\nx")
                check(sock.recv(1) == b"x", "a header is not believed")
            with dial_proxy(kind) as sock:
                sock.sendall(b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\nx")
                check_broken(sock)
            with dial_proxy(kind, source=kind.other) as sock:
                sock.sendall(b"PROXY TCP4 198.51.100.7 10.0.0.1 1 2\r\n")
                check(read_exactly(sock, 7) == b"PROXY T", "a header of anybody is believed")


def source_rate(env, kind):
    """A source's connection rate is limited; another source is not affected."""
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, "--max-rate-per-source", "5", "--stats", "0.2") as proxy:
        served = 0
        begin = time.monotonic()
        for _ in range(40):
            with contextlib.suppress(OSError, Failure):
                check_echo(kind)
                served += 1
        spent = time.monotonic() - begin
        check(5 <= served <= 6 + 5 * spent, f"{served} of 40 within {spent:.1f} s")
        check(served < 40 or spent > 6, "all were served")
        check_echo(kind, source=kind.other)
        if served < 40:
            await_line(proxy, "over a source's rate")


def many_sources(env, kind):
    """Thousands of sources use a bounded amount of memory and do not harm another source."""
    command("ip", "route", "add", "local", "10.9.64.0/18", "dev", "lo")
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, "--max-rate-per-source", "5", "--health-interval", "0",
            "--max-clients-per-source", "4") as proxy:
        def round_of(count):
            for number in range(count):
                source = f"10.9.{64 + number // 250}.{1 + number % 250}"
                check_echo(kind, source=source)
        round_of(1000)
        before = proxy.resident_bytes()
        round_of(4000)
        grown = proxy.resident_bytes() - before
        check(grown < (8 << 20) * (4 if env.sanitized else 1), f"it grew by {grown} bytes")
        check_echo(kind)


# ---- the access log ----


def fields(line):
    return dict(word.split("=", 1) for word in line.split()[1:])


def access_log(env, kind):
    """Every session is logged, although the log is rotated under load."""
    need_programs("wrk")
    log = env.scratch / "sessions.log"
    with kind.serve(env, "--to", f"web={kind.near}:9001", "--access-log", log,
                    "--health-interval", "0", "--unique-id", "--stats", "0.2") as proxy, \
            Nginx(env, kind.near, 9001):
        stop = threading.Event()
        moved = []

        def rotate():
            while not stop.wait(0.1):
                target = log.with_suffix(f".{len(moved)}")
                log.rename(target)
                moved.append(target)
                proxy.signal(signal.SIGUSR1)
                eventually(log.exists, WAIT_MAX_S, "the log is not reopened")

        rotator = threading.Thread(target=rotate)
        rotator.start()
        while len(moved) < 3:
            run_wrk(proxy_url(kind, "small"), 4, seconds=1, extra=["-H", "Connection: close"])
        stop.set()
        rotator.join()
        with dial_proxy(kind) as sock:
            sock.sendall(b"GET /small HTTP/1.0\r\n\r\n")
            answer = len(read_to_end(sock))
            port = sock.getsockname()[1]

        def lines():
            return [line for path in [*moved, log] for line in path.read_text().splitlines()]

        def own_lines():
            """wrk may have had the port before."""
            return [line for line in lines() if f":{port} " in line and " to=23 " in line]
        eventually(own_lines, WAIT_MAX_S, "no line of it")
        mine = fields(own_lines()[0])
        check(mine["backend"] == "web" and mine["end"] == "done", f"{mine}")
        check(mine["from"] == str(answer), f"{mine}")
        check(float(mine["connect_ms"]) > 0 and float(mine["duration_ms"]) > 0, f"{mine}")
        ids = [fields(line)["id"] for line in lines()]
        check(len(set(ids)) == len(ids), "a unique ID is used twice")

        def sessions():
            made = re.findall(r"proxy: \d+ sessions, \+(\d+)", proxy.output("stderr"))
            return sum(map(int, made))
        eventually(lambda: sessions() == len(lines()), WAIT_MAX_S,
                   lambda: f"{sessions()} sessions, {len(lines())} lines")


def access_log_in_json(env, kind):
    """Each line is an object, whatever name the client of TLS asks for."""
    log = env.scratch / "sessions.json"
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", f"web={peer.at}", "--access-log", log, "--access-log-format", "json",
            "--health-interval", "0"):
        for _ in range(3):
            check_echo(kind)

        def lines():
            return [json.loads(line) for line in log.read_text().splitlines()]
        eventually(lambda: len(lines()) == 3, WAIT_MAX_S, lambda: log.read_text())
        for line in lines():
            check(line["backend"] == "web" and line["end"] == "done" and line["sni"] is None
                  and line["to"] == line["from"] > 0 and line["connect_ms"] > 0, f"{line}")


def access_log_never_blocks(env, kind):
    """A log without a reader loses lines, which are counted, and no session waits for it."""
    pipe = env.scratch / "pipe.log"
    command("mkfifo", pipe)
    with pipe.open("rb+", buffering=0), Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, "--access-log", pipe, "--health-interval", "0") as proxy:
        for _ in range(600):  # more than a pipe holds
            check_echo(kind)
        proxy.terminate()


def access_log_of_the_local_daemon(env, kind):
    """The daemon is started late: its first datagram reports the lines that were lost."""
    path = env.scratch / "devlog"
    with Peer(kind, echo_bytes) as peer, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, \
            kind.serve(env, "--to", f"web={peer.at}", "--access-log", f"unix:{path}",
                       "--health-interval", "0", "--stats", "0.2") as proxy:
        check_echo(kind)
        eventually(lambda: "1 lines of the access log lost" in proxy.output("stderr"), WAIT_MAX_S,
                   "the line is not counted")
        sock.bind(str(path))
        sock.settimeout(WAIT_MAX_S)
        head = r"<134>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d coronet-proxy\[\d+\]: \S+Z "
        text = sock.recv(65536).decode()
        check(re.fullmatch(head + "lost=1", text), text)
        check_echo(kind)
        text = sock.recv(65536).decode()
        check(re.fullmatch(head + "client=.* backend=web .* end=done", text), text)


CASES = {
    "backends": [reload_loses_no_session, reload_is_said_when_it_holds,
                 wrong_reload_changes_nothing, drain_backend, backup_takes_over, ejection,
                 retry_budget, check_kinds, checks_are_switched_off,
                 shorter_interval_holds_at_once, queue, queue_under_load, resolves_names,
                 obeys_ttls, dead_names_hold_up_no_other, resolves_by_the_stack],
    "clients": [timeouts, timeouts_of_dead_hosts, access_lists, source_rate, many_sources,
                access_log, access_log_in_json, access_log_never_blocks,
                access_log_of_the_local_daemon, server_names, unique_id_and_tlvs,
                headers_that_haproxy_reads],
}


def cases(env):
    kind = Tap()
    for group, functions in CASES.items():
        for function in functions:
            if not env.args or group in env.args or function.__name__ in env.args:
                yield (function.__name__.replace("_", " "),
                       functools.partial(function, env, kind))


if __name__ == "__main__":
    main(cases)
