#!/usr/bin/env python3
"""coronet-proxy whose backends are added, removed and weighted by coronet-ctl while it runs.

Usage: test_proxy_backends.py BUILD_DIR [CASE...]
"""

import contextlib
import json
import re
import signal
import socket
import threading

from certs import make_pair, server_context
from harness import WAIT_MAX_S, check, chosen, command, eventually, main
from proxies import (Peer, Tap, check_echo, dial_proxy, echo_bytes, proxy_url, read_exactly,
                     send_name)
from steering import Config, Load, await_line, backend_names
from stopped_shard import stopped_shard
from test_proxy_control import Control
from web import SMALL, Nginx, need_programs, run_curl

SHARDS = ["--shards", "2"]
MOST = 64  # backends


def names_of(control):
    return [row["name"] for row in json.loads(control("backends", "--json"))["backends"]]


class Socket:
    """The control socket, without a coronet-ctl for each command."""

    def __init__(self, control):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(WAIT_MAX_S)
        self.sock.connect(str(control.path))
        self.sock.recv(4096)

    def __call__(self, command_, params):
        self.sock.send(f"/proxy/{command_},{params}".encode())
        return json.loads(self.sock.recv(1 << 18))[f"/proxy/{command_}"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


def backend_joins_and_leaves(env, kind):
    """A backend that is added gets clients at once; one that is removed gets none, keeps its
    sessions, and its metrics go."""
    control, page = Control(env), "127.0.0.1:9466"
    with Peer(kind, send_name(b"one")) as one, Peer(kind, send_name(b"two")) as two, \
            kind.serve(env, "--to", f"one={one.at}", *SHARDS, "--metrics", page,
                       *control.options) as proxy:
        check(backend_names(kind) == {b"one"}, "another backend answers")
        text = control("backend", "add", f"two={two.at},weight=3,check=none")
        check(re.search(rf"^two +{two.at} +ready +up +0 +0 +3 ", text, re.MULTILINE), text)
        check("not applied" not in text, text)
        check(backend_names(kind, 16) == {b"one", b"two"}, "no shard knows it")
        check('backend="two"' in run_curl(f"http://{page}/metrics"), "it has no metrics")
        with contextlib.ExitStack() as later:
            socks = [later.enter_context(dial_proxy(kind)) for _ in range(16)]
            stays = [sock for sock in socks if sock.recv(3) == b"two"]
            check(stays, "no session at two")
            seen = two.seen
            eventually(lambda: control.backend("two")["sessions"] == len(stays), WAIT_MAX_S,
                       lambda: f"{control.backend('two')}")
            check(control("backend", "remove", "two") ==
                  f"removed two; {len(stays)} sessions go on\n", "sessions")
            check(names_of(control) == ["one"], f"{names_of(control)}")
            check('backend="two"' not in run_curl(f"http://{page}/metrics"), "metrics stay")
            check(backend_names(kind, 16) == {b"one"} and two.seen == seen,
                  "it still gets clients")
            control("backend", "two", status=1)
            for sock in stays:  # the other direction, too
                sock.sendall(b"x")
                sock.shutdown(socket.SHUT_WR)
                check(sock.recv(1) == b"", "a session was lost")
        check(not two.errors, f"{two.errors}")
        await_line(proxy, "backend two: added by coronet-ctl")
        await_line(proxy, f"backend two: removed by coronet-ctl; {len(stays)} sessions go on")
        control("backend", "add", f"two={two.at}")  # again
        check(backend_names(kind, 16) == {b"one", b"two"}, "it does not come back")


def weights_by_control(env, kind):
    """A weight is the share of new sessions; with 0 a backend gets none and keeps its own."""
    control = Control(env)
    with Peer(kind, echo_bytes) as one, Peer(kind, echo_bytes) as two, kind.serve(
            env, "--to", f"one={one.at}", "--to", f"two={two.at}", "--health-interval", "0",
            *SHARDS, *control.options) as proxy, dial_proxy(kind) as first, \
            dial_proxy(kind) as second:
        for sock in (first, second):
            sock.sendall(b"x")
            read_exactly(sock, 1)
        control("backend", "weight", "one", "0")
        seen = one.seen
        for _ in range(20):
            check_echo(kind)
        check(one.seen == seen, "weight 0 gets clients")
        for sock in (first, second):
            sock.sendall(b"x")
            check(read_exactly(sock, 1) == b"x", "a session was lost")
        check(control.backend("one")["weight"] == 0, f"{control.backend('one')}")
        control("backend", "weight", "one", "9")
        before = one.seen, two.seen
        for _ in range(100):
            check_echo(kind)
        share = one.seen - before[0]
        check(84 <= share <= 96, f"{share} of 100 clients with weight 9 of 10")
        await_line(proxy, "backend one: weight set to 9")


def refused_changes(env, kind):
    """A wrong change is explained as for --to, and changes nothing."""
    control = Control(env)
    with Peer(kind, echo_bytes) as one, kind.serve(
            env, "--to", f"one={one.at}", "--health-interval", "0", *SHARDS,
            *control.options):
        for words, status, wanted in (
                (["add"], 2, "expected drain"), (["add", "a", "b"], 2, "expected coronet-ctl"),
                (["add", "banana"], 1, "--to 'banana': expected the address or the name"),
                (["add", ""], 1, "--to '': expected"),
                (["add", "a=10.9.1.1:9,weight=257"], 1, "weight"),
                (["add", "a=10.9.1.1:9,colour=red"], 1, "colour"),
                (["add", f"one={kind.near}:99"], 1, "expected each backend once"),
                (["add", f"{kind.host}:99"], 1, f"--to '{kind.host}:99': expected another host"),
                (["add", f"{kind.host}:8080"], 1, "expected another host"),
                (["add", "a=10.9.1.1:9,check=expect:" + "x" * 200], 1, "expected"),
                (["add", "a=10.9.1.1:9,sni=" + "x" * 2000], 1, "longer than"),
                (["remove", "two"], 1, "there is no backend 'two'"),
                (["remove", "o" * 900], 1, "there is no backend"),
                (["remove", "one"], 1, "one is the only one"), (["remove", ""], 2, "a name"),
                (["remove", "a,b"], 2, "a name"), (["weight", "one"], 2, "expected drain"),
                (["weight", "two", "1"], 1, "there is no backend 'two'"),
                (["weight", "one", "257"], 1, "weight '257': expected a whole number from 0 to 256"),
                (["weight", "one", ""], 1, "weight ''"), (["weight", "one", "x"], 1, "'x'")):
            if len(words) == 1 or (words[0] == "weight" and len(words) == 2):
                wanted = "expected coronet-ctl backend"
            text = control("backend", *words, status=status)
            check(wanted in text, f"{words}: {text}")
        for request in ("/proxy/backend.weight", "/proxy/backend.weight,one",
                        "/proxy/backend.weight,,1", "/proxy/backend.add", "/proxy/backend.remove"):
            control("ask", request, status=1)
        check(names_of(control) == ["one"] and control.backend("one")["weight"] == 1,
              "a mistake has changed something")
        for number in range(1, MOST):
            control("backend", "add", f"more{number}={kind.near}:{number}")
        text = control("backend", "add", f"last={kind.near}:9", status=1)
        check(f"expected at most {MOST} backends" in text, text)
        check(len(names_of(control)) == MOST, f"{len(names_of(control))} backends")
        control("backend", "remove", "more1")
        control("backend", "add", f"last={kind.near}:9")
        check(names_of(control)[-1] == "last", f"{names_of(control)}")


def file_wins(env, kind):
    """A reload undoes the changes of coronet-ctl, and says which."""
    control = Control(env)
    with Peer(kind, echo_bytes) as one, Peer(kind, echo_bytes) as two, Peer(kind, echo_bytes) as six:
        lines = [f"to = one={one.at}", f"to = two={two.at},weight=2"]
        config = Config(env, *lines)
        with kind.serve(env, "--config", config.path, *SHARDS, *control.options) as proxy:
            control("backend", "add", f"six={six.at}")
            control("backend", "remove", "one")
            control("backend", "weight", "two", "7")
            check(names_of(control) == ["two", "six"], f"{names_of(control)}")
            check(control("reload") == "reloaded: 2 backends, 1 of them new, 1 gone; changes by "
                  "coronet-ctl are undone\n", proxy.story())
            check(names_of(control) == ["one", "two"], f"{names_of(control)}")
            check(control.backend("two")["weight"] == 2, f"{control.backend('two')}")
            for line in ("backend six, added by coronet-ctl, is removed",
                         "backend one, removed by coronet-ctl, is back",
                         "backend two: weight 7, set by coronet-ctl, is now 2"):
                await_line(proxy, line)
            before = proxy.output("stderr").count("coronet-ctl")
            check("undone" not in control("reload"), "undone twice")
            # A file that agrees with a change undoes nothing.
            control("backend", "add", f"six={six.at},weight=4")
            control("backend", "remove", "two")
            control("backend", "weight", "one", "3")
            config.write(f"to = one={one.at},weight=3", f"to = six={six.at},weight=4")
            check("undone" not in control("reload"), proxy.story())
            check(names_of(control) == ["one", "six"], f"{names_of(control)}")
            check(proxy.output("stderr").count("reload: backend") == 3, proxy.story())
            check(before, proxy.story())


def queued_clients_go_to_others(env, kind):
    """Clients that wait for a backend that is removed get the one that was added."""
    control = Control(env)
    with Peer(kind, send_name(b"one")) as one, Peer(kind, send_name(b"two")) as two, kind.serve(
            env, "--to", f"one={one.at},maxconn=1", "--queue-timeout", "100", "--health-interval",
            "0", *SHARDS, *control.options), contextlib.ExitStack() as later:
        first = later.enter_context(dial_proxy(kind))
        check(first.recv(3) == b"one", "no first session")
        waiting = [later.enter_context(dial_proxy(kind)) for _ in range(8)]
        eventually(lambda: "queue: 8 wait" in control("backends"), WAIT_MAX_S,
                   lambda: control("backends"))
        control("backend", "add", f"two={two.at},maxconn=3")
        control("backend", "remove", "one")
        eventually(lambda: "queue: 5 wait" in control("backends"), WAIT_MAX_S,
                   lambda: control("backends"))
        control("backend", "add", f"three={two.at}")
        for sock in waiting:
            check(sock.recv(3) == b"two", "a client went elsewhere")
        first.sendall(b"x")
        first.shutdown(socket.SHUT_WR)
        check(first.recv(1) == b"", "the session of one was lost")


def changes_under_load(env, kind):
    """Backends come, change and go under load, beside reloads, and no connection is lost."""
    control = Control(env)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(kind, echo_bytes)) for _ in range(5)]
        config = Config(env, *(f"to = p{i}={peers[i].at}" for i in range(2)))
        proxy = stack.enter_context(kind.serve(
            env, "--config", config.path, "--balance", "least", *SHARDS, *control.options,
            # A check that a busy machine delays for longer than the interval is a failed one.
            "--health-interval", "0.1", "--fall", "1000"))
        sock = stack.enter_context(Socket(control))
        load = stack.enter_context(Load(kind, clients=8))
        done = threading.Event()

        def reload_often():
            while not done.is_set():
                proxy.signal(signal.SIGHUP)
                await_line(proxy, "reloaded: ")
                done.wait(0.02)
        reloads = threading.Thread(target=reload_often, daemon=True)
        reloads.start()
        stack.callback(done.set)
        for turn in range(150):
            i = 2 + turn % 3
            answer = sock("backend.add", f"p{i}={peers[i].at},weight=2")
            check("error" not in answer or "each backend once" in answer["error"], f"{answer}")
            load.more(4)
            sock("backend.weight", f"p{i},{turn % 4}")
            sock("backend.remove", "p0")
            load.more(4)
            sock("backend.remove", f"p{i}")
        done.set()
        reloads.join(WAIT_MAX_S)
        load.more(20)
        check(all(peer.seen for peer in peers), f"{[peer.seen for peer in peers]}")
        check(not any(peer.errors for peer in peers), "a backend has lost a connection")
        control("reload")
        check(names_of(control) == ["p0", "p1"], f"{names_of(control)}")
        eventually(lambda: "undone" in proxy.output("stderr"), WAIT_MAX_S, proxy.story)


def memory_does_not_grow(env, kind):
    """A backend is added and removed 10,000 times, with its check and under load."""
    control = Control(env)
    with Peer(kind, echo_bytes) as one, Peer(kind, echo_bytes) as two, kind.serve(
            env, "--to", f"one={one.at}", *SHARDS, "--health-interval", "86400",
            *control.options) as proxy, Socket(control) as sock, Load(kind, clients=2) as load:

        def change(count):
            for _ in range(count):
                check(sock("backend.add", f"two={two.at}").get("applied"), "not added")
                check(sock("backend.remove", "two").get("applied"), "not removed")

        def coroutines():
            return sum(row["coroutines"] for row in json.loads(control("shards", "--json")))
        change(1000)
        load.more(10)
        before, coros = proxy.resident_bytes(), coroutines()
        change(9000)
        load.more(10)
        grown = proxy.resident_bytes() - before
        # What is freed stays with a sanitizer for a while.
        check(grown < (16 if env.sanitized else 4) << 20, f"grown by {grown} bytes")
        eventually(lambda: coroutines() < coros + 50, WAIT_MAX_S,
                   lambda: f"{coros} coroutines before, {coroutines()} now")


def backend_by_name(env, kind):
    """A name is looked up as at the start: the backend is used once it has an address."""
    control = Control(env)
    hosts = env.scratch / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    command("mount", "--bind", hosts, "/etc/hosts")
    try:
        with Peer(kind, send_name(b"one")) as one, Peer(kind, send_name(b"two")) as two, \
                kind.serve(env, "--to", f"one={one.at}", "--resolve-interval", "0.2", *SHARDS,
                           *control.options):
            text = control("backend", "add", f"two=late.test:{two.port}")
            check("unresolved" in text, text)
            check(backend_names(kind) == {b"one"}, "an unresolved backend is used")
            hosts.write_text(f"127.0.0.1 localhost\n{kind.near} late.test\n")
            eventually(lambda: control.backend("two")["address"] == two.at, WAIT_MAX_S,
                       lambda: f"{control.backend('two')}")
            check(backend_names(kind) == {b"one", b"two"}, "the backend is not used")
            control("backend", "add", f"three=late.test:{one.port}")  # known: found at once
            eventually(lambda: control.backend("three")["address"] == one.at, WAIT_MAX_S,
                       lambda: f"{control.backend('three')}")
            control("backend", "remove", "two")
            control("backend", "remove", "three")
            check(backend_names(kind) == {b"one"}, "a backend stays")
    finally:
        command("umount", "/etc/hosts")


def backend_with_tls(env, kind):
    """A backend with tls= may join a proxy that has had none."""
    control = Control(env)
    cert, key = make_pair(env, "back", f"IP:{kind.near}")
    context = server_context(cert, key)

    def secret(sock):
        with context.wrap_socket(sock, server_side=True) as secure:
            secure.sendall(b"two")
            secure.recv(1)

    with Peer(kind, send_name(b"one")) as one, Peer(kind, secret) as two, kind.serve(
            env, "--to", f"one={one.at}", "--health-interval", "0", *SHARDS,
            *control.options):
        control("backend", "add", f"two={two.at},tls=insecure")
        check(backend_names(kind, 16) == {b"one", b"two"}, "the backend is not used")
        control("backend", "remove", "two")
        control("backend", "add", f"two={two.at},tls=insecure")
        control("backend", "weight", "one", "0")
        check(backend_names(kind) == {b"two"}, "no TLS")


def stopped_shard_is_named(env, kind):
    """The answer says that a shard has not applied the change, and a reload meanwhile waits or is
    refused."""
    control = Control(env)
    with Peer(kind, send_name(b"one")) as one, Peer(kind, send_name(b"two")) as two, kind.serve(
            env, "--to", f"one={one.at}", "--health-interval", "0", *SHARDS,
            *control.options) as proxy:
        with stopped_shard(proxy, 1):
            text = control("backend", "add", f"two={two.at}")
            check("a shard has not applied it yet" in text, text)

            def is_refused():
                """A reload holds the backends for seconds while it waits for the shard."""
                proxy.signal(signal.SIGHUP)
                return "is being applied; ask again" in sock("backend.weight", "one,2").get(
                    "error", "")
            with Socket(control) as sock:
                eventually(is_refused, WAIT_MAX_S, proxy.story)
        control("reload")
        check(names_of(control) == ["one"], f"{names_of(control)}")
        control("backend", "add", f"two={two.at}")
        check(backend_names(kind, 16) == {b"one", b"two"}, "a shard has another list")


def nginx_behind(env, kind):
    """curl gets a page from an nginx that has joined, after the only other backend has left."""
    need_programs("nginx", "curl")
    control = Control(env)
    with Peer(kind, echo_bytes) as one, kind.serve(
            env, "--to", f"one={one.at}", *SHARDS, *control.options), \
            Nginx(env, kind.near, 9101) as nginx:
        control("backend", "add", f"web={kind.near}:9101,check=http:/small")
        control("backend", "remove", "one")
        for _ in range(8):
            check(run_curl(proxy_url(kind, "small")) == SMALL, f"another page: {nginx.errors()}")


def udp_session_leaves_a_removed_backend(env, kind):
    """A UDP client that never pauses is served by its removed backend for --udp-timeout, then by
    another one."""
    control = Control(env)
    answers = []

    def serve(sock, name):
        with contextlib.suppress(OSError):
            while True:
                _, peer = sock.recvfrom(2048)
                sock.sendto(name, peer)
    with contextlib.ExitStack() as stack:
        to = []
        for name in (b"one", b"two"):
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
            sock.bind((kind.near, 0))
            threading.Thread(target=serve, args=(sock, name), daemon=True).start()
            to += ["--to", f"{name.decode()}={kind.near}:{sock.getsockname()[1]}"]
        stack.enter_context(kind.serve(env, *to, "--listen", "udp:10.9.0.1:7000", "--udp-timeout",
                                       "5", "--health-interval", "0", *SHARDS, *control.options))
        sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sock.settimeout(WAIT_MAX_S)
        sock.connect((kind.host, 7000))

        def ask():
            sock.send(b"?")
            answers.append(sock.recv(64))
            return answers[-1]
        first = ask()
        control("backend", "remove", first.decode())
        check(ask() == first, "the session ended at once")
        eventually(lambda: ask() != first, WAIT_MAX_S, "the session stays for ever")
        check(ask() != first, "it returns")


CASES = [backend_joins_and_leaves, weights_by_control, refused_changes, file_wins,
         queued_clients_go_to_others, udp_session_leaves_a_removed_backend, changes_under_load, memory_does_not_grow, backend_by_name,
         backend_with_tls, stopped_shard_is_named, nginx_behind]


def cases(env):
    yield from chosen(env, CASES, Tap())


if __name__ == "__main__":
    main(cases)
