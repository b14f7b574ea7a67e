#!/usr/bin/env python3
"""A proxy between real programs: nginx behind it, curl, wrk and sockets in front.

Usage: test_proxy.py BUILD_DIR tap|epoll [--long]
With tap, coronet-proxy is the proxy, with epoll, epoll-proxy is (proxies.py).
--long moves 10 GiB instead of 256 MiB.
"""

import collections
import contextlib
import functools
import json
import pathlib
import re
import select
import selectors
import socket
import struct
import threading
import time

import harness
from harness import (WAIT_MAX_S, Failure, Spoiled, await_rounds, check, command, eventually,
                     in_a_quiet_moment, main)
from proxies import (GIB, MIB, PORT, V2_SIGNATURE, Epoll, Peer, Tap, check_broken, check_echo,
                     dial_proxy, echo_bytes, proxy_url, read_exactly, read_to_end, reset_socket,
                     send_name)
from web import SMALL, Nginx, curl_digests, need_programs, random_file, run_curl, wrk_enough

# ---- cases: bytes ----


def bodies(env, kind):
    """Parallel downloads and an upload have the right SHA-256."""
    need_programs("curl")
    long = "--long" in env.args
    each = GIB if long else 32 * MIB // (8 if env.sanitized else 1)
    rounds, at_once = (3, 3) if long else (1, 7)
    wanted = random_file(env.scratch / "body", each)
    moved, begin = 0, time.monotonic()
    # Checks before nginx has started would find it down.
    with kind.serve(env, "--to", f"{kind.near}:9001", "--to", f"{kind.near}:9002",
                    "--health-interval", "0"), \
            Nginx(env, kind.near, 9001, env.scratch), Nginx(env, kind.near, 9002, env.scratch):
        for _ in range(rounds):
            digests, total = curl_digests(proxy_url(kind, "body"), at_once)
            check(digests == [wanted] * at_once, "the SHA-256 of a download differs")
            moved += total
        run_curl("-T", env.scratch / "body", proxy_url(kind, "uploaded"))
        moved += each
        command("cmp", env.scratch / "body", env.scratch / "uploaded")
        small = run_curl(proxy_url(kind, "small"))
        check(small == SMALL, f"a small answer came as {small!r}")
    spent = time.monotonic() - begin
    print(f"# {moved / MIB:.0f} MiB of bodies, {moved / MIB / spent:.0f} MiB/s", flush=True)
    check(moved == (rounds * at_once + 1) * each, f"{moved} bytes were moved")
    (env.scratch / "uploaded").unlink()


def both_directions_at_once(env, kind):
    """Full duplex through an echo: bytes sent while receiving are not lost."""
    size = (64 if not env.sanitized else 8) * MIB
    block = random_file(env.scratch / "block", MIB) and (env.scratch / "block").read_bytes()
    with Peer(kind, echo_bytes) as peer, kind.serve(env, "--to", peer.at):
        with dial_proxy(kind) as sock:
            def send():
                for _ in range(size // MIB):
                    sock.sendall(block)
                sock.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            for number in range(size // MIB):
                check(read_exactly(sock, MIB) == block, f"MiB {number} came back wrong")
            check(sock.recv(1) == b"", "bytes beyond the end")
            sender.join()


def half_close(env, kind):
    """Each side's FIN is passed on alone; the other direction continues."""
    def answer_at_end(sock):
        sock.sendall(b"%d" % len(read_to_end(sock)))

    def end_first(sock):
        sock.sendall(b"bye")
        sock.shutdown(socket.SHUT_WR)
        got.append(read_to_end(sock))

    got = []
    with Peer(kind, answer_at_end) as peer, kind.serve(env, "--to", peer.at):
        for size in (0, 1, 3 * MIB):
            with dial_proxy(kind) as sock:
                sock.sendall(bytes(size))
                sock.shutdown(socket.SHUT_WR)
                check(read_to_end(sock) == b"%d" % size, "the answer after the end is wrong")
    with Peer(kind, end_first) as peer, kind.serve(env, "--to", peer.at, "--health-interval", "0",
                                                   "--stats", "0.1") as proxy:
        with dial_proxy(kind) as sock:
            check(read_to_end(sock) == b"bye", "the backend's last words are wrong")
            await_rounds(proxy, 2)  # it stays like this
            sock.sendall(b"x" * MIB)
            sock.shutdown(socket.SHUT_WR)
            eventually(lambda: got, WAIT_MAX_S, "the backend never saw the client's end")
        check(got[0] == b"x" * MIB, f"{len(got[0])} bytes after the backend's FIN")


def resets(env, kind):
    """A RST from either side is passed to the other; other sessions are not affected."""
    def reset_it(sock):
        sock.recv(1)
        reset_socket(sock)

    with Peer(kind, echo_bytes) as peer, kind.serve(env, "--to", peer.at) as proxy:
        with dial_proxy(kind) as bystander:
            for number in range(20):
                sock = dial_proxy(kind)
                sock.sendall(bytes(10000))
                if number % 2:
                    sock.recv(1)
                reset_socket(sock)
            eventually(lambda: sum(isinstance(error, ConnectionResetError)
                                   for error in peer.errors) >= 10, WAIT_MAX_S,
                       f"backends saw {len(peer.errors)} resets of the 10 that they had to")
            bystander.sendall(b"still")
            check(read_exactly(bystander, 5) == b"still", "a bystander was harmed")
        check(proxy.alive(), f"the proxy died: {proxy.story()}")
    with Peer(kind, reset_it) as peer, kind.serve(env, "--to", peer.at):
        for _ in range(10):
            with dial_proxy(kind) as sock:
                sock.sendall(b"x")
                check_broken(sock)


def resets_in_bulk(env, kind):
    """A reset with megabytes in flight ends only its own session."""
    def pour(sock):
        with contextlib.suppress(OSError):
            for _ in range(64):
                sock.sendall(bytes(MIB))

    def give_up(sock):
        sock.shutdown(socket.SHUT_WR)
        read_exactly(sock, 3 * MIB)
        reset_socket(sock)

    options = ("--health-interval", "0")
    with Peer(kind, pour) as peer, kind.serve(env, "--to", peer.at, *options) as proxy:
        for number in range(8):
            with dial_proxy(kind) as sock:
                if number % 2:  # the kernel reports a reset differently then
                    sock.shutdown(socket.SHUT_WR)
                read_exactly(sock, (1 + number % 4) * MIB)
                reset_socket(sock)
        with dial_proxy(kind) as sock:
            read_exactly(sock, MIB)
        check(proxy.alive(), f"the proxy died: {proxy.story()}")
    with Peer(kind, give_up) as peer, kind.serve(env, "--to", peer.at, *options) as proxy:
        for _ in range(8):
            with dial_proxy(kind) as sock:
                pour(sock)
        check(proxy.alive(), f"the proxy died: {proxy.story()}")


def largest_buffers():
    """Returns the kernel's maximum socket buffers for receiving and sending."""
    return sum(int(pathlib.Path(f"/proc/sys/net/ipv4/tcp_{kind}mem").read_text().split()[2])
               for kind in "rw")


def back_pressure(env, kind):
    """A backend that does not read stops only its client."""
    stop = threading.Event()

    def stuck(sock):
        if sock.recv(1, socket.MSG_PEEK) == b"s":
            stop.wait(WAIT_MAX_S)
            while sock.recv(MIB):
                pass
        else:
            echo_bytes(sock)

    # Most bytes are in the kernel's buffers; with epoll also in the proxy's sockets.
    limit = 8 * MIB + (0 if isinstance(kind, Tap) else largest_buffers())
    with Peer(kind, stuck, receive_buffer=65536) as peer, kind.serve(env, "--to", peer.at) as proxy:
        check_echo(kind)
        before = proxy.resident_bytes()
        with dial_proxy(kind, SO_SNDBUF=65536) as sock:
            sent = 0
            sock.sendall(b"s")
            sock.settimeout(1)
            with contextlib.suppress(TimeoutError):
                while sent < 2 * limit:
                    sent += sock.send(bytes(65536))
            check(sent < limit, f"{sent} bytes went to a backend that does not read")
            check_echo(kind)
            grown = proxy.resident_bytes() - before
            check(grown < 16 * MIB * (4 if env.sanitized else 1), f"the proxy grew by {grown}")
            stop.set()
            sock.settimeout(WAIT_MAX_S)
            sock.sendall(bytes(MIB))
            sock.shutdown(socket.SHUT_WR)
            check(read_to_end(sock) == b"", "bytes from a backend that sends none")


def over_ip6(env, kind):
    """IPv6 clients with IPv4 backends, and vice versa."""
    with Peer(kind, echo_bytes) as peer, kind.serve(env, "--to", peer.at, *(
            ["--listen", f"[{kind.host6}]:{PORT}"] if isinstance(kind, Epoll) else []),
            port=0 if isinstance(kind, Epoll) else PORT):
        check_echo(kind, host=kind.host6)
    with Peer(kind, echo_bytes, host=kind.near6 if isinstance(kind, Epoll) else "::") as peer:
        with kind.serve(env, "--to", f"[{kind.near6}]:{peer.port}"):
            check_echo(kind)


# ---- cases: many ----


class KeepAlive:
    """One of many connections: sends requests repeatedly, and checks each answer."""
    request = b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n"

    def __init__(self, kind, rounds):
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.connect_ex((kind.host, PORT))
        self.left = rounds
        self.asked = False
        self.data = b""

    def ready(self, events):
        """Continues; returns True when the last answer is complete."""
        if not self.asked and events & selectors.EVENT_WRITE:
            check(self.sock.send(self.request) == len(self.request), "a short write")
            self.asked = True
            return False
        if not events & selectors.EVENT_READ:
            return False
        part = self.sock.recv(4096)
        check(part, "the proxy closed one of many connections")
        self.data += part
        head, _, body = self.data.partition(b"\r\n\r\n")
        if len(body) < len(SMALL):
            return False
        check(head.startswith(b"HTTP/1.1 200 ") and body == SMALL.encode(), "a wrong answer")
        self.data = b""
        self.asked = False
        self.left -= 1
        return self.left == 0


def await_connected(connections):
    """Waits for the last of many handshakes."""
    for connection in connections:
        poll = select.poll()
        poll.register(connection.sock, select.POLLOUT)
        check(poll.poll(WAIT_MAX_S * 1000), "a handshake does not end")


def keep_alive(env, kind, count):
    """All connections are open before the first request and after the last one."""
    size = count // (10 if env.sanitized else 1)
    with kind.serve(env, "--to", f"{kind.near}:9001", "--stats", "0.5", "--health-interval", "0",
                    "--connect-timeout", WAIT_MAX_S) as proxy, \
            Nginx(env, kind.near, 9001), contextlib.ExitStack() as stack, \
            selectors.DefaultSelector() as selector:
        connections = []
        for number in range(size):
            connections.append(KeepAlive(kind, rounds=3))
            stack.enter_context(connections[-1].sock)
            if number % 500 == 499:  # as many as a backlog holds
                await_connected(connections[-500:])
        eventually(lambda: re.search(f"proxy: {size} sessions", proxy.output("stderr")), WAIT_MAX_S,
                   f"never {size} sessions: {proxy.story()}")
        waiting = collections.deque(connections)
        while waiting or selector.get_map():
            # A TAP queues 1,000 frames and drops others: more requests at once would wait for the
            # kernel's retransmissions, which double their timeout.
            while waiting and len(selector.get_map()) < 200:
                connection = waiting.popleft()
                selector.register(connection.sock, selectors.EVENT_WRITE, connection)
            events = selector.select(WAIT_MAX_S)
            check(events, f"{len(selector.get_map())} connections wait in vain")
            for key, mask in events:
                connection = key.data
                done = connection.ready(mask)
                if done or not connection.asked:  # the answer is complete
                    selector.unregister(connection.sock)
                    waiting.extend([] if done else [connection])
                else:
                    selector.modify(connection.sock, selectors.EVENT_READ, connection)
        latest = re.findall(r"proxy: (\d+) sessions.* (\d+) broken", proxy.output("stderr"))[-1]
        check(latest == (str(size), "0"), f"at the end: {latest[0]} sessions, {latest[1]} broken")


def wrk_load(env, kind):
    """wrk reports no error of any kind."""
    with kind.serve(env, "--to", f"{kind.near}:9001", "--balance", "least", "--health-interval",
                    "0", "--connect-timeout", WAIT_MAX_S), Nginx(env, kind.near, 9001):
        for connections in (1, 64, 500):
            rate = wrk_enough(proxy_url(kind, "small"), connections)
            print(f"# wrk, {connections} connections: {rate:.0f} requests/s", flush=True)


# ---- cases: backends ----


class Client(threading.Thread):
    """Requests one page after the other; records failures and their times."""

    def __init__(self, kind, keep):
        super().__init__(daemon=True)
        self.kind, self.keep = kind, keep
        self.done = []  # (begin, end, backend or None if it failed, the backend before)
        self.errors = []  # failures, with their times
        self.stop = False
        self.start()

    def end(self):
        self.stop = True
        self.join(WAIT_MAX_S)

    def story(self):
        """Returns the failures, and the answers before them."""
        return (f"keeps its connection: {self.keep}, now {time.monotonic():.3f}, errors "
                f"{self.errors[-3:]}, {len(self.done)} requests, the last {self.done[-5:]}")

    def ask(self, sock):
        sock.sendall(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n")
        data = b""
        while b"\r\n\r\n" not in data:
            part = sock.recv(65536)
            if not part:
                raise ConnectionResetError("closed before the answer")
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        while len(body) < length:
            part = sock.recv(65536)
            if not part:
                raise ConnectionResetError("closed within the answer")
            body += part
        if body != b"p" * length or not head.startswith(b"HTTP/1.1 200"):
            raise Failure(f"a wrong answer: {head!r}")
        return int(re.search(rb"X-Backend: (\d+)", head)[1])

    def run(self):
        sock, backend = None, None
        while not self.stop:
            begin, before = time.monotonic(), backend
            try:
                sock = sock or dial_proxy(self.kind)
                backend = self.ask(sock)
                self.done.append((begin, time.monotonic(), backend, before))
            except OSError as error:
                self.errors.append((time.monotonic(), repr(error), before))
                self.done.append((begin, time.monotonic(), None, before))
                if sock:
                    sock.close()
                sock = backend = None
            if sock and not self.keep:
                sock.close()
                sock = backend = None


def judge(clients, killed_port, killing, killed):
    """Checks that failed requests were on the dead backend, or not yet on any when it died."""
    failed = 0
    for client in clients:
        bad = [entry for entry in client.done if entry[2] is None]
        # A new request may also reach the dying backend, while its last process lives.
        check(len(bad) <= 3, f"a client failed {len(bad)} times: {bad}")
        for begin, end, _, before in bad:
            failed += 1
            check(end >= killing, f"a request failed {killing - end:.3f} s before the kill")
            if client.keep and before:
                check(before == killed_port, f"a connection to {before} broke, not {killed_port}")
            else:
                check(begin <= killed, f"a request begun {begin - killed:.3f} s after it failed")
        client.done.clear()
    return failed


# Unanswered checks in a row, so that a machine that stalls for a second or two does not mark live
# backends down.
FALL = "15"


def backends_die(env, kind):
    """Under load each backend is killed and restarted; sessions of others do not fail."""
    (env.scratch / "page").write_bytes(b"p" * 20000)
    ports = (9001, 9002, 9003)
    failed = 0
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(kind.serve(
            env, *[word for port in ports for word in ("--to", f"{kind.near}:{port}")],
            "--health-interval", "0.2", "--fall", FALL, "--stats", "1"))
        servers = {port: stack.enter_context(Nginx(env, kind.near, port, env.scratch))
                   for port in ports}
        eventually(lambda: all_up(proxy, ports), WAIT_MAX_S,
                   f"backends do not come up: {proxy.story()}")
        clients = [Client(kind, keep=number % 2 == 0) for number in range(24)]
        for client in clients:
            stack.callback(client.end)
        for port, server in servers.items():
            eventually(lambda p=port: all(len(client.done) > 4 for client in clients) and any(
                entry[2] == p for client in clients for entry in list(client.done)), WAIT_MAX_S,
                       f"no load on {port}: {proxy.story()}")
            for client in clients:
                check(all(entry[2] for entry in client.done),
                      f"a request failed before the kill of {port}: {client.story()}\n"
                      f"{proxy.story()}")
            killing = time.monotonic()
            server.kill()
            killed = time.monotonic()
            downs = proxy.output("stderr").count(f":{port} is down")
            eventually(lambda p=port, n=downs: proxy.output("stderr").count(f":{p} is down") > n - 1
                       and proxy.output("stderr").rfind(f":{p} is down")
                       > proxy.output("stderr").rfind(f":{p} is up"), WAIT_MAX_S,
                       f"{port} is dead and reported up: {proxy.story()}")
            counts = [len(client.done) for client in clients]
            eventually(lambda t=tuple(counts): all(len(client.done) > count + 2 for client, count
                                                 in zip(clients, t)), WAIT_MAX_S,
                       lambda: f"the load stands still: {proxy.story()}")
            failed += judge(clients, port, killing, killed)
            server.start()
            eventually(lambda: all_up(proxy, ports), WAIT_MAX_S,
                       f"{port} does not come back: {proxy.story()}")
            back = time.monotonic()
            eventually(lambda p=port, t=back: any(entry[2] == p and entry[0] > t for client in clients
                                                  for entry in list(client.done)), WAIT_MAX_S,
                       f"{port} is back and gets nothing")
        for client in clients:
            client.end()
            check(all(entry[2] for entry in client.done),
                  f"a request failed after the last kill, killed {killed:.3f}, back {back:.3f}: "
                  f"{client.story()}\n{proxy.story()}")
    check(failed > 0, "no connection was on a dead backend: this proved nothing")
    print(f"# {failed} connections died with their backends", flush=True)


def all_up(proxy, ports):
    """Whether the last line of each backend says that it is up."""
    said = proxy.output("stderr")
    return all(said.rfind(f":{port} is up") >= said.rfind(f":{port} is down") for port in ports)


def next_backend(env, kind):
    """If a backend refuses or does not answer, the next is tried at once; without one the client is
    reset."""
    closed = socket.create_server(("127.0.0.1", 0))
    refused = f"{kind.near}:{closed.getsockname()[1]}"
    closed.close()
    with Peer(kind, echo_bytes) as peer:
        with kind.serve(env, "--to", refused, "--to", peer.at, "--health-interval", "0"):
            for _ in range(10):
                check_echo(kind)
        with kind.serve(env, "--to", f"{kind.nobody}:80", "--to", peer.at,
                        "--health-interval", "0", "--connect-timeout", "0.3"):
            def soon():
                """Checks a time that is much shorter than the timeouts of the kernel and the
                proxy."""
                begin = time.monotonic()
                try:
                    check_echo(kind)
                    check_echo(kind)
                except ConnectionResetError:  # the peer had no time to answer either
                    raise Spoiled("both backends were too slow") from None
                spent = time.monotonic() - begin
                if spent > 2:
                    raise Spoiled(f"the next backend came after {spent:.1f} s")

            for _ in range(2):
                in_a_quiet_moment(soon)
    with kind.serve(env, "--to", refused, "--health-interval", "0"):
        for _ in range(5):
            with contextlib.suppress(ConnectionResetError), dial_proxy(kind) as sock:
                check_broken(sock)


def balances(env, kind):
    """Each balancing method distributes clients as documented."""
    def backend_of(source=None):
        with dial_proxy(kind, source=source) as sock:
            return sock.recv(1)

    def options_to(peers):
        return [word for peer in peers for word in ("--to", peer.at)]

    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(kind, send_name(letter)))
                 for letter in (b"a", b"b", b"c")]
        with kind.serve(env, *options_to(peers), "--health-interval", "0"):
            seen = [backend_of() for _ in range(9)]
            check(seen == [b"a", b"b", b"c"] * 3, f"round robin: {seen}")
        with kind.serve(env, *options_to(peers), "--health-interval", "0", "--balance", "least"):
            with contextlib.ExitStack() as held:
                socks = [held.enter_context(dial_proxy(kind)) for _ in range(6)]
                seen = [sock.recv(1) for sock in socks]
                check(sorted(seen) == [b"a", b"a", b"b", b"b", b"c", b"c"], f"least: {seen}")
                freed = [sock for sock, letter in zip(socks, seen) if letter == b"b"]
                for sock in freed:
                    sock.close()

                def least_is_found():
                    """Waits until the proxy has seen two sessions end."""
                    with contextlib.ExitStack() as two:
                        again = [two.enter_context(dial_proxy(kind)).recv(1) for _ in range(2)]
                    return again == [b"b", b"b"]

                eventually(least_is_found, WAIT_MAX_S, "the least busy was b, and is not chosen")
        with kind.serve(env, *options_to(peers), "--health-interval", "0", "--balance", "hash"):
            for source in (kind.near, kind.other):
                seen = {backend_of(source) for _ in range(6)}
                check(len(seen) == 1, f"hash: one client saw {seen}")


# ---- cases: the PROXY protocol ----


def answers(*words):
    """Whether curl gets an answer."""
    try:
        return bool(run_curl(*words))
    except Failure:
        return False


def send_proxy(env, kind):
    """nginx learns the client's address from the header, in both versions."""
    need_programs("curl")
    for version in ("v1", "v2"):
        with kind.serve(env, "--to", f"{kind.near}:9001", "--send-proxy", version,
                        "--health-interval", "0.2", "--stats", "0.2") as proxy, \
                Nginx(env, kind.near, 9001, proxy_protocol=True) as nginx:
            eventually(lambda: answers(proxy_url(kind, "who")), WAIT_MAX_S, proxy.story)
            said = run_curl("--interface", kind.other, "--local-port", "40000-40100",
                        proxy_url(kind, "who")).split()
            check(said[0] == kind.other and 40000 <= int(said[1]) <= 40100
                  and said[2:] == [kind.host, str(PORT)], f"{version}: nginx saw {said}")
            await_rounds(proxy, 2)  # health checks
            check("broken header" not in nginx.errors(), f"health checks: {nginx.errors()}")


def v2_header(source, dest, source_port, dest_port):
    body = (socket.inet_aton(source) + socket.inet_aton(dest)
            + struct.pack("!HH", source_port, dest_port))
    return V2_SIGNATURE + b"\x21\x11" + struct.pack("!H", len(body)) + body


def accept_proxy(env, kind):
    """A client's PROXY header is passed on; a client without one is reset."""
    request = b"GET /who HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    headers = [b"PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n",
               v2_header("192.0.2.7", "192.0.2.8", 1234, 80)]
    wrong = [b"GET / HTTP/1.1\r\n\r\n", b"PROXY TCP4 192.0.2.7\r\n", V2_SIGNATURE + b"\x31\x11\0\0",
             b"PROXY " + b"x" * 200]
    # Checks before nginx has started would find it down.
    with kind.serve(env, "--to", f"{kind.near}:9001", "--send-proxy", "v2", "--accept-proxy",
                    "--proxy-timeout", WAIT_MAX_S, "--health-interval", "0"), \
            Nginx(env, kind.near, 9001, proxy_protocol=True):
        for header in headers:
            for cuts in ([header + request], [header, request],
                         [bytes([byte]) for byte in header] + [request]):
                with dial_proxy(kind) as sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for part in cuts:
                        sock.sendall(part)
                        eventually(lambda s=sock: kind.has_taken_all(s), WAIT_MAX_S,
                                   "a part is not read", pause=0.001)
                    answer = read_to_end(sock)
                check(b"\r\n\r\n192.0.2.7 1234 192.0.2.8 80\n" in answer, f"nginx said {answer!r}")
        for data in wrong:
            with dial_proxy(kind) as sock:
                sock.sendall(data)
                check_broken(sock)
    with Peer(kind, echo_bytes) as peer, kind.serve(env, "--to", peer.at, "--accept-proxy",
                                              "--proxy-timeout", "1"):
        begin = time.monotonic()
        with dial_proxy(kind) as sock:
            sock.sendall(b"PROXY TCP4 ")
            check_broken(sock)
        spent = time.monotonic() - begin
        check(spent > 1, f"a header that never ends was cut after {spent:.1f} s")


# ---- two links, and the cases ----


def two_links(env, kind):
    """Clients on one NIC, backends on another, each with its own address."""
    with env.running([env.app(kind.app), "--link", "tap:front0", "--addr", "10.9.0.1/16",
                      "--link", "tap:back0", "--addr", "10.8.0.1/16", "--poll", "adaptive",
                      "--listen", f"10.9.0.1:{PORT}", "--to", "10.8.1.1:9001"]):
        for link, address in (("front0", "10.9.1.1/16"), ("back0", "10.8.1.1/16")):
            command("ip", "addr", "add", address, "dev", link)
            command("ip", "link", "set", link, "up")
        seen = []

        def note(sock):
            seen.append(sock.getpeername()[0])
            echo_bytes(sock)

        with Peer(kind, note, host="10.8.1.1", port=9001):
            with dial_proxy(kind) as sock:
                data = bytes(3 * MIB)
                threading.Thread(target=sock.sendall, args=[data], daemon=True).start()
                check(read_exactly(sock, len(data)) == data, "the echo differs")
        check(set(seen) == {"10.8.0.1"}, f"the backend saw {set(seen)}")
        for link in ("front0", "back0"):
            stats = json.loads(command("ip", "-s", "-j", "link", "show", link))[0]["stats64"]
            for direction in ("rx", "tx"):
                moved = stats[direction]["bytes"]
                check(moved > 3 * MIB, f"{moved} bytes of {direction} on {link}")


CASES = [bodies, both_directions_at_once, half_close, resets, resets_in_bulk, back_pressure,
         over_ip6, balances, send_proxy, accept_proxy, next_backend, backends_die, wrk_load]


def cases(env):
    kind = {"tap": Tap, "epoll": Epoll}[env.args[0]]()
    if "--long" in env.args:
        harness.CASE_SECONDS = 3600
    only = [word for word in env.args[1:] if not word.startswith("--")]
    wanted = [(function.__name__, functools.partial(function, env, kind)) for function in CASES]
    # A connection is two of epoll-proxy's files, of which a process has 20,000 here.
    count = 10000 if isinstance(kind, Tap) else 4000
    wanted.append(("keep_alive", functools.partial(keep_alive, env, kind, count)))
    if isinstance(kind, Tap):
        wanted.append(("two_links", functools.partial(two_links, env, kind)))
    for title, function in wanted:
        if not only or title in only:
            yield f"{kind.app}: {title.replace('_', ' ')}", function


if __name__ == "__main__":
    main(cases)
