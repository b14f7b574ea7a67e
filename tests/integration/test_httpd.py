#!/usr/bin/env python3
"""coronet-httpd over a TAP link: curl, wrk, and requests that nobody should send.

Usage: test_httpd.py BUILD_DIR [one-shard|shards|CASE...]
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import select
import signal
import socket
import struct
import termios
import threading
import time

from harness import (WAIT_MAX_S, Failure, Spoiled, accepted_by, check, command, eventually,
                     in_a_quiet_moment, linger, main, read_metric, repeat_for)
from httpd_files import conditions, files_that_change, like_nginx, like_nginx_by_curl
from httpd_server import (GET, HOST, PORT, Answers, dial_server, is_served, send_request,
                          serve_files, whole_answer)
from web import curl_digests, need_programs, random_file, run_curl, wrk_enough

MIB = 1 << 20
DRAIN_DEFAULT = 30  # seconds, of --drain-timeout
STACK_DRAIN = 1  # seconds that the stack itself waits for its connections at the end

# Bytes to send, the statuses of the answers, and whether the server closes then.
EXCHANGES = [
    (GET + b"\r\n", [200], False),
    (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + GET + b"\r\n", [200, 200], False),
    (GET + b"Connection: close\r\n\r\n" + GET + b"\r\n", [200], True),
    (b"GET / HTTP/1.0\r\n\r\n", [200], True),
    (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2, [200, 200], False),
    (b"\r\n" + GET + b"\r\n", [200], False),
    (b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" + GET + b"\r\n", [404, 200], False),
    (b"GET /%69ndex.html?x HTTP/1.1\r\nHost: x\r\n\r\n", [200], False),
    (b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", [400], True),
    (b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", [400], True),
    (b"GET /%2e%2E/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", [400], True),
    (b"GET /folder/..%2findex.html HTTP/1.1\r\nHost: x\r\n\r\n", [200], False),
    (b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", [200], False),
    (b"GET http://x?a=/none HTTP/1.1\r\nHost: x\r\n\r\n", [200], False),
    (b"GET http://user@x/ HTTP/1.1\r\nHost: x\r\n\r\n", [400], True),
    (GET + b"Content-Length: 5\r\n\r\nhello" + GET + b"\r\n", [200, 200], False),
    (GET + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + GET + b"\r\n",
     [200, 200], False),
    (GET + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n" + GET + b"\r\n", [200], True),
    (GET + b"Content-Length: 2000000\r\n\r\n", [413], True),
    (GET + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n", [200], True),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", [405], True),
    (b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", [501], True),
    (GET + b"Transfer-Encoding: gzip\r\n\r\n", [501], True),
    (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", [505], True),
    (GET + b"Expect: tea\r\n\r\n", [417], True),
    (b"GET / HTTP/1.1\r\n\r\n", [400], True),
    (b"GET / HTTP/1.1\nHost: x\n\n", [400], True),
    (GET + b"A: b\rC: d\r\n\r\n", [400], True),
    (GET + b"A: b\r\n folded\r\n\r\n", [400], True),
    (GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400], True),
    (GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", [400], True),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", [414], True),
    (GET + b"A: " + b"b" * 20000 + b"\r\n\r\n", [431], True),
    (GET + b"A: b\r\n" * 101 + b"\r\n", [431], True),
    # Answers to HEAD have no body, errors included (RFC 9110 9.3.2).
    (b"HEAD /none HTTP/1.1\r\nHost: x\r\n\r\n" + GET + b"\r\n", [404, 200], False),
    (b"HEAD / HTTP/1.1\r\n\r\n", [400], True),
    (b"HEAD / HTTP/2.0\r\nHost: x\r\n\r\n", [505], True),
    (b"\r\nHEAD / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", [417], True),
    (b"HEAD / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n", [413], True),
    (b"HEAD / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 101 + b"\r\n", [431], True),
    (b"HEAD /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", [414], True),
    (b"\x16\x03\x01\x02\x00\x01\x00" + b"\0" * 100 + b"\n", [400], True),
]


def exchanges(env):
    """The answers are the same whether a request comes in one piece or byte by byte."""
    page = b"<h1>hello</h1>\n"
    root = env.scratch / "site"
    root.mkdir()
    (root / "index.html").write_bytes(page)
    (root / "note.txt").write_bytes(b"note\n")
    (root / "photo.jpeg").write_bytes(b"")
    os.mkfifo(root / "fifo")  # nobody writes to it
    (root / "folder").mkdir()
    with serve_files(env, "--root", root) as server:
        for data, statuses, ends in EXCHANGES:
            head_first = data.strip().startswith(b"HEAD")
            for step in (len(data), 700 if len(data) > 500 else 1):
                with dial_server() as sock:
                    with contextlib.suppress(ConnectionError):  # it may refuse the rest
                        for at in range(0, len(data), step):
                            sock.sendall(data[at:at + step])
                    answers = Answers(sock)
                    where = f"to {data[:80]!r} in steps of {step}"
                    for number, status in enumerate(statuses):
                        answer = answers.next(body=not (head_first and number == 0))
                        check(answer, f"no answer {where}")
                        check(answer[0] == status, f"{answer[0]} instead of {status} {where}")
                        check(answer[2] == page or status != 200 or head_first,
                              f"a wrong body {where}")
                        last = ends and number == len(statuses) - 1
                        # Only a malformed body ends a persistent connection.
                        check((answer[1].get("connection") == "close") == last
                              or b"helloX" in data, f"{answer[1]} {where}")
                    if ends:
                        check(answers.next() is None, f"the end does not follow {where}")
                    else:
                        sock.sendall(GET + b"\r\n")
                        check(answers.next()[0] == 200, f"the connection does not go on {where}")
        check(server.alive(), f"it died: {server.story()}")
        done = run_curl("-i", f"http://{HOST}/note.txt")
        check("content-type: text/plain" in done.lower() and done.endswith("\r\n\r\nnote\n"), done)
        photo = run_curl("-I", f"http://{HOST}/photo.jpeg")
        check("Content-Type: image/jpeg\r\nContent-Length: 0\r\n" in photo, photo)
        check(re.search(r"\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n", done), done)
        server.terminate()


def signals_that_do_not_end_it(env):
    """SIGHUP rescans the files, even with --rescan 0; SIGUSR2 is ignored."""
    root = env.scratch / "signalled"
    root.mkdir()
    (root / "index.html").write_bytes(b"before")
    with serve_files(env, "--root", root, "--rescan", "0") as server:
        check(send_request(HOST, PORT, "/")[2] == b"before", "not the file")
        for text in b"after", b"at last":
            linger(1)  # until the rescan that was requested before is over
            (root / "index.html").write_bytes(text)
            linger(0.2)
            check(send_request(HOST, PORT, "/")[2] != text, "it changed by itself")
            (root / "new").write_bytes(text)  # written at this very moment
            server.signal(signal.SIGHUP)
            server.signal(signal.SIGUSR2)
            for path in "/", "/new":
                eventually(lambda p=path, t=text: send_request(HOST, PORT, p)[2] == t, WAIT_MAX_S,
                           lambda p=path: f"{p} stays: {server.story()}")
        check(server.alive(), server.story())


def unacknowledged(sock):
    """Bytes that were sent and have not arrived: SIOCOUTQ."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]


def trickle(env):
    """A head in 600 pieces is refused, and one in 200 pieces is answered."""
    with serve_files(env, "--header-timeout", "60") as server:
        for count, status in (200, 200), (600, 400):
            with dial_server() as sock:
                sock.sendall(GET + b"A: ")
                for _ in range(count):
                    with contextlib.suppress(ConnectionError):
                        sock.send(b"a")
                    # The stack acknowledges every second segment at once, in
                    # the round that gave it to the server: at most two bytes
                    # make one piece.
                    while unacknowledged(sock) > 1 and not select.select([sock], [], [], 0)[0]:
                        pass
                with contextlib.suppress(ConnectionError):
                    sock.send(b"\r\n\r\n")
                answer = Answers(sock).next()
                check(answer[0] == status, f"{answer[0]} to a head in {count} pieces")
        check(server.alive(), f"it died: {server.story()}")


def pipelining(env):
    """Thousands of pipelined requests, split anywhere, are answered in order."""
    with serve_files(env) as server, dial_server() as sock:
        count = 5000
        requests = b"".join(b"GET /%s HTTP/1.1\r\nHost: x\r\nX: %d\r\n\r\n"
                            % (b"" if number % 3 else b"none", number) for number in range(count))
        sock.settimeout(WAIT_MAX_S)
        sent, answers, got = 0, Answers(sock), 0
        sock.setblocking(False)
        while got < count:
            with contextlib.suppress(BlockingIOError):
                sent += sock.send(requests[sent:sent + 4999])
            with contextlib.suppress(BlockingIOError):
                check(answers.receive(), f"the end after {got} answers")
            while b"\r\n\r\n" in answers.data:
                length = int(re.search(rb"Content-Length: (\d+)\r\n", answers.data)[1])
                at = answers.data.index(b"\r\n\r\n") + 4
                if len(answers.data) < at + length:
                    break
                wanted = b"200" if got % 3 else b"404"
                check(answers.data[9:12] == wanted, f"answer {got}: {answers.data[:40]!r}")
                answers.data = answers.data[at + length:]
                got += 1
        check(server.alive(), f"it died: {server.story()}")


def large_file(env):
    """Several clients download a large file intact, twice on one connection."""
    need_programs("curl")
    size = (64 if not env.sanitized else 8) * MIB
    wanted = random_file(env.scratch / "large", size)
    with serve_files(env, "--root", env.scratch / "large"):
        digests, total = curl_digests(f"http://{HOST}/large", 4)
        check(digests == [wanted] * 4 and total == 4 * size, "the SHA-256 differs")
        with dial_server() as sock:
            answers = Answers(sock)
            for _ in range(2):
                sock.sendall(GET + b"\r\n")
                body = answers.next()[2]
                check(hashlib.sha256(body).hexdigest() == wanted, "the SHA-256 differs")


def slow_reader(env):
    """A slow reader gets the whole of an answer that ends the connection."""
    limit, size = 1, 600000
    wanted = random_file(env.scratch / "slow", size)

    def attempt():
        data, longest, last = b"", 0.0, time.monotonic()

        def read_a_little():
            nonlocal data, longest, last
            data += sock.recv(2000)
            longest = max(longest, time.monotonic() - last)
            last = time.monotonic()

        with dial_server(buffers=32768) as sock, contextlib.suppress(ConnectionResetError):
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            repeat_for(2.5 * limit, read_a_little)
            check(len(data) < size / 2, "it reads too fast to show anything")
            while part := sock.recv(1 << 16):
                data += part
        body = data.partition(b"\r\n\r\n")[2]
        if hashlib.sha256(body).hexdigest() != wanted:
            # Its kernel makes room for the server after some reads only.
            kind = Spoiled if longest > limit / 4 else Failure
            raise kind(f"{len(body)} of {size} bytes, none later than {longest:.1f} s "
                       "after another")

    with serve_files(env, "--root", env.scratch / "slow", "--send-timeout", limit):
        in_a_quiet_moment(attempt)


def slow_readers_get_no_copies(env):
    """A thousand slow readers of a file need no copies of it; each gets the file as it was when
    the answer began, though the file has changed."""
    count, size = 1000, MIB
    root = env.scratch / "lent"
    root.mkdir()
    wanted = random_file(root / "file", size)
    with (serve_files(env, "--root", root, "--rescan", "0.05") as server,
          contextlib.ExitStack() as stack):
        check(send_request(HOST, PORT, "/file")[0] == 200, "not served")
        before = server.resident_bytes()
        socks = []
        for _ in range(count):
            socks.append(stack.enter_context(dial_server(buffers=4096)))
            socks[-1].sendall(b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        for sock in socks:
            check(select.select([sock], [], [], WAIT_MAX_S)[0], "no answer")
        linger(1)
        each = (server.resident_bytes() - before) / count
        print(f"# {each / 1024:.0f} KiB a reader")
        (root / "new").write_bytes(b"new")
        os.rename(root / "new", root / "file")
        eventually(lambda: send_request(HOST, PORT, "/file")[2] == b"new", WAIT_MAX_S, server.story)
        for sock in socks[::100]:
            body = Answers(sock).next()[2]
            check(hashlib.sha256(body).hexdigest() == wanted, f"{len(body)} bytes differ")
        check(each < 128 << 10, f"{each / 1024:.0f} KiB a reader")


def refused():
    try:
        dial_server().close()
    except OSError:
        return True
    return False


def drain(env):
    """After SIGTERM the server finishes the answers under way and accepts no clients."""
    wanted = random_file(env.scratch / "drained", 16 * MIB)
    with serve_files(env, "--root", env.scratch / "drained") as server, dial_server() as idle, \
            dial_server(buffers=65536) as busy, dial_server() as half:
        idle.sendall(GET + b"\r\n")
        Answers(idle).next()
        half.sendall(GET)
        busy.sendall(GET + b"\r\n")
        answers = Answers(busy)
        answers.receive()
        server.signal(signal.SIGTERM)
        check(idle.recv(1) == b"", "an idle connection goes on")
        eventually(refused, WAIT_MAX_S, "a new client is taken while draining")
        half.sendall(b"\r\n")
        answer = Answers(half).next()
        check(answer[0] == 200 and answer[1]["connection"] == "close", f"{answer[:2]}")
        check(hashlib.sha256(answer[2]).hexdigest() == wanted, "the SHA-256 differs")
        repeat_for(1.5 * STACK_DRAIN, lambda: check(
            server.alive(), f"it ended with an answer under way: {server.story()}"))
        check(hashlib.sha256(answers.next()[2]).hexdigest() == wanted, "the SHA-256 differs")
        busy.sendall(GET + b"\r\n")
        check(answers.next() in (None, answer), "no end after the last answer")
        check(server.wait(WAIT_MAX_S) == 0, server.story())
    with serve_files(env, "--root", env.scratch / "drained", "--drain-timeout", "1") as server, \
            dial_server(buffers=65536) as deaf:
        deaf.sendall(GET + b"\r\n")
        deaf.recv(1)
        begin = time.monotonic()
        server.signal(signal.SIGTERM)
        check(server.wait(WAIT_MAX_S) == 0, server.story())
        spent = time.monotonic() - begin
        check(0.9 < spent < DRAIN_DEFAULT, f"the drain took {spent:.1f} s")


def ask_once():
    """Sends one request on a connection of its own and returns the outcome."""
    with socket.socket() as sock:
        sock.settimeout(5)  # to a link that has gone nothing is refused
        try:
            sock.connect((HOST, PORT))
        except OSError:
            return "refused"
        sock.settimeout(WAIT_MAX_S)
        try:
            sock.sendall(GET + b"Connection: close\r\n\r\n")
            data = b""
            while part := sock.recv(4096):
                data += part
        except OSError as error:
            return f"after the handshake: {error.strerror}"
        return "answered" if data.startswith(b"HTTP/1.1 200") else f"the answer {data!r}"


def drain_answers_whom_it_let_in(env, *options):
    """Every client whose handshake completed before the drain is answered."""
    with serve_files(env, *options) as server:
        ends = []

        def come_and_go():
            while not ends or ends[-1] != "refused":
                ends.append(ask_once())

        clients = [threading.Thread(target=come_and_go, daemon=True) for _ in range(16)]
        for client in clients:
            client.start()
        eventually(lambda: len(ends) > 200, WAIT_MAX_S, "the clients do not get going")
        server.signal(signal.SIGTERM)
        for client in clients:
            client.join(WAIT_MAX_S)
        counts = {end: ends.count(end) for end in set(ends)}
        check(set(counts) == {"answered", "refused"}, f"{counts}")
        check(server.wait(WAIT_MAX_S) == 0, server.story())


def on_all_shards(shards):
    return "--shards", shards, "--memory", "1G", "--stats", "0.2"


def check_all_take(server, shards, count):
    """Waits until every shard has accepted clients; one line announces all shards."""
    def all_have():
        taken = accepted_by(server)
        return sum(taken.values()) >= count and all(taken.get(i) for i in range(shards))
    eventually(all_have, WAIT_MAX_S, lambda: f"{accepted_by(server)} were taken by the shards of "
               f"{server.story()}")
    check(server.output("stdout").count("listening on") == 1, server.story())


def await_line(server, pattern):
    eventually(lambda: re.search(pattern, server.output("stderr")), WAIT_MAX_S,
               lambda: f"no {pattern!r} in {server.story()}")


def shards_drain(env, shards):
    """Every shard serves; after SIGTERM each finishes its answers, then the program ends."""
    count = 64  # so that no shard is likely to go without
    wanted = random_file(env.scratch / "shared", 2 * MIB)
    with serve_files(env, "--root", env.scratch / "shared", "--send-timeout", WAIT_MAX_S,
               "--drain-timeout", WAIT_MAX_S, *on_all_shards(shards)) as server, \
            contextlib.ExitStack() as stack, dial_server() as idle:
        busy = [stack.enter_context(dial_server(buffers=65536)) for _ in range(count)]
        check(hashlib.sha256(whole_answer(idle)).hexdigest() == wanted, "the SHA-256 differs")
        for sock in busy:
            sock.sendall(GET + b"\r\n")
        readers = [Answers(sock) for sock in busy]
        for reader in readers:
            reader.receive()
        check_all_take(server, shards, count + 1)
        await_line(server, f"httpd: {count + 1} clients,")
        server.signal(signal.SIGTERM)
        check(idle.recv(1) == b"", "an idle connection goes on")
        for _ in range(8):  # whichever shard it comes to
            eventually(refused, WAIT_MAX_S, "a new client is taken while draining")
        await_line(server, r"draining \d+ connections\n")
        check(server.output("stderr").count("draining") == 1, server.story())
        for reader in readers:
            check(server.alive(), f"it ended with answers under way: {server.story()}")
            check(hashlib.sha256(reader.next()[2]).hexdigest() == wanted, "the SHA-256 differs")
            check(reader.sock.recv(1) == b"", "the connection goes on")
        check(server.wait(WAIT_MAX_S) == 0, server.story())


def shards_over_memif(env, shards):
    """curl downloads through coronet-proxy from a server with several shards."""
    need_programs("curl")
    wanted = random_file(env.scratch / "memif", MIB)
    path = env.scratch / "h.sock"
    with env.running([env.app("coronet-httpd"), "--link", f"memif:{path},role=server", "--addr",
                      "10.8.0.1/16", "--root", env.scratch / "memif", "--poll", "adaptive",
                      *on_all_shards(shards)]) as server, \
            env.running([env.app("coronet-proxy"), "--link", f"memif:{path},role=client", "--addr",
                         "10.8.0.2/16", "--link", "tap:cp0", "--addr", f"{HOST}/16", "--listen",
                         f"{HOST}:{PORT}", "--to", "10.8.0.1:80", "--poll", "adaptive",
                         "--memory", "1G"]) as proxy, contextlib.ExitStack() as stack:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "cp0")
        command("ip", "link", "set", "cp0", "up")
        socks = [stack.enter_context(dial_server()) for _ in range(64)]
        for sock in socks:
            check(hashlib.sha256(whole_answer(sock)).hexdigest() == wanted, "the SHA-256 differs")
        check_all_take(server, shards, len(socks))
        digests, total = curl_digests(f"http://{HOST}/memif", 4)
        check(digests == [wanted] * 4 and total == 4 * MIB, "the SHA-256 differs")
        stack.close()
        server.terminate()
        proxy.terminate()


def shards_share_limits(env, shards):
    """A limit of clients holds for all shards together; a slot that becomes free is reused."""
    most = 3
    for option in "--max-clients", "--max-clients-per-source":
        with serve_files(env, option, most, "--header-timeout", WAIT_MAX_S,
                   "--idle-timeout", 2 * WAIT_MAX_S,
                   *on_all_shards(shards)) as server, contextlib.ExitStack() as stack:
            socks = [stack.enter_context(socket.socket()) for _ in range(32)]
            for sock in socks:
                sock.setblocking(False)
                sock.connect_ex((HOST, PORT))
            for turn in range(1, 4):
                eventually(functools.partial(clients_taken, server, turn * most), WAIT_MAX_S,
                           lambda n=turn: f"turn {n}: {accepted_by(server)} were taken by the "
                           f"shards of {server.story()}")
                await_line(server, r" [1-9]\d* SYNs over the limit")
                inside = [sock for sock in socks if is_connected(sock)]
                check(len(inside) == most, f"{len(inside)} are connected, {most} may be")
                for sock in inside if turn < 3 else []:
                    sock.close()  # others get in when they try again
                    socks.remove(sock)
            served = max(map(int, re.findall(r"httpd: (\d+) clients", server.output("stderr"))))
            check(served == most, f"{served} clients at a time, with {option} {most}")
            stack.close()
            server.terminate()


def clients_taken(server, count):
    """Whether count connections have been accepted by now; more are a failure."""
    taken = sum(accepted_by(server).values())
    check(taken <= count, f"{taken} clients were taken, {count} may be: {server.story()}")
    return taken == count


def is_connected(sock):
    with contextlib.suppress(OSError):
        return bool(sock.getpeername())
    return False


def shards_displace_the_oldest(env, shards):
    """--max-half-open holds for all shards together; the oldest request on any is displaced."""
    most, count = 8, 12
    with serve_files(env, "--max-half-open", most, "--header-timeout", WAIT_MAX_S,
               *on_all_shards(shards)) as server, contextlib.ExitStack() as stack:
        def counts():
            lines = re.findall(r"(\d+) partial requests.* (\d+) displaced",
                               server.output("stderr"))
            return lines and tuple(map(int, lines[-1]))
        socks = []
        for number in range(1, count + 1):
            socks.append(stack.enter_context(dial_server()))
            socks[-1].sendall(GET)
            eventually(lambda n=number: counts() == (min(n, most), max(n - most, 0)), WAIT_MAX_S,
                       lambda n=number: f"{n} have begun: {server.story()}")
        for sock in socks[:count - most]:
            answers = Answers(sock)
            check(answers.next()[0] == 408 and answers.next() is None, "the oldest stays")
        for sock in socks[count - most:]:
            sock.sendall(b"\r\n")
            check(Answers(sock).next()[0] == 200, "displaced, but not the oldest")
        server.terminate()


def nobody_reads_stderr(env):
    """A full pipe behind stderr stops no client, and a closed one ends nothing."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    os.dup2(writer, 9)
    with env.running(["sh", "-c", 'exec "$0" "$@" 2>&9', env.app("coronet-httpd"), "--link",
                      "tap:deaf0", "--addr", f"{HOST}/16", "--poll", "adaptive", "--stats", "0.1"],
                     pass_fds=[9]) as server:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "deaf0")
        command("ip", "link", "set", "deaf0", "up")
        os.close(writer)
        os.close(9)
        with dial_server() as sock:
            # Ten lines of statistics are written meanwhile.
            repeat_for(1, lambda: check(is_served(sock), "no answer"))
            os.close(reader)
            repeat_for(1, lambda: check(is_served(sock), "no answer"))
        server.terminate()


def limits(env):
    """Unfinished requests displace the oldest one; clients beyond a limit are not accepted."""
    with serve_files(env, "--max-half-open", "2", "--stats", "0.2") as server, \
            contextlib.ExitStack() as stack:
        socks = [stack.enter_context(dial_server()) for _ in range(3)]
        whole = stack.enter_context(dial_server())
        check(is_served(whole), "a whole request is not answered")
        for number, sock in enumerate(socks[:2], 1):
            sock.sendall(GET)
            await_line(server, f" {number} partial requests")  # so that they begin in this order
        socks[2].sendall(GET)
        first = Answers(socks[0])
        answer = first.next()
        check(answer and answer[0] == 408, f"the oldest of three got {answer}")
        check(first.next() is None, "no end after 408")
        for sock in socks[1:]:
            sock.sendall(b"\r\n")
            check(Answers(sock).next()[0] == 200, "displaced, but not the oldest")
        check(is_served(whole), "a whole request was displaced")
        await_line(server, " 1 displaced")
    with serve_files(env, "--max-clients-per-source", "2", "--stats", "0.2") as server:
        with dial_server() as first, dial_server() as second:
            check(is_served(first) and is_served(second), "two of two are not served")
            with socket.socket() as third:
                third.setblocking(False)
                third.connect_ex((HOST, PORT))
                await_line(server, r" [1-9]\d* SYNs over the limit")
                check(not is_connected(third), "a third of two was let in")
        with dial_server() as another:
            check(is_served(another), "nobody is let in after two have gone")


def request_is_whole_while_answered(env):
    """A request that came in pieces does not count for --max-half-open while it is answered."""
    root = env.scratch_for({})
    wanted = random_file(root / "large", 8 * MIB)
    head = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"

    def await_partial():
        eventually(lambda: read_metric(9466, "coronet_httpd_half_requests") == 1, WAIT_MAX_S,
                   "no partial request")

    with serve_files(env, "--root", root, "--max-half-open", "1", "--metrics",
                     "127.0.0.1:9466"), dial_server(buffers=65536) as slow, dial_server() as half:
        slow.sendall(head[:10])
        await_partial()
        slow.sendall(head[10:])
        slow.recv(1, socket.MSG_PEEK)
        check(read_metric(9466, "coronet_httpd_half_requests") == 0, "its request is not whole")
        half.sendall(head[:10])
        await_partial()
        answers = Answers(slow)
        check(hashlib.sha256(answers.next()[2]).hexdigest() == wanted, "the file differs")
        slow.sendall(head)
        check(answers.next()[0] == 200, "a client was displaced that had no partial request")
        half.sendall(head[10:])
        check(Answers(half).next()[0] == 200, "the only partial request was displaced")


def wrk_load(env):
    """wrk finds no error with 1, 64 or 1000 connections."""
    need_programs("wrk")
    with serve_files(env) as server:
        for connections in (1, 64, 1000):
            rate = wrk_enough(f"http://{HOST}:80/", connections)
            print(f"# wrk, {connections} connections: {rate:.0f} requests/s", flush=True)
        server.terminate()


def drip(sock, data, gap, is_over):
    """Sends a byte at a time until is_over(). A gap longer than gap seconds spoils the test."""
    latest = time.monotonic()
    for byte in data:
        sock.sendall(bytes([byte]))
        if select.select([sock], [], [], 0.1)[0] and is_over():
            return
        spent, latest = time.monotonic() - latest, time.monotonic()
        if spent > gap:
            raise Spoiled(f"{spent:.1f} s between two bytes")
    raise Failure("every byte buys time")


def head_timeout():
    """A head that does not end gets 408, though its bytes keep coming."""
    begin = time.monotonic()
    with dial_server() as slow:
        drip(slow, b"GET /" + b"a" * 200, 0.5, lambda: True)
        answers = Answers(slow)
        check(answers.next()[0] == 408, "no 408")
        check(answers.next() is None, "no end after 408")
        spent = time.monotonic() - begin
        check(spent > 0.6, f"408 after {spent:.1f} s")


def body_timeout():
    begin = time.monotonic()
    with dial_server() as dripping, contextlib.suppress(ConnectionError):
        dripping.sendall(GET + b"Content-Length: 1000\r\n\r\n")
        drip(dripping, b"x" * 200, 0.5, lambda: not dripping.recv(65536))
    spent = time.monotonic() - begin
    check(spent > 0.6, f"a body was waited for {spent:.1f} s")


def timeouts(env):
    """An unfinished request is answered 408; an idle connection is closed."""
    with serve_files(env, "--header-timeout", "0.6", "--idle-timeout", "1.2",
                     "--send-timeout", "1"):
        in_a_quiet_moment(head_timeout)
        in_a_quiet_moment(body_timeout)
        begin = time.monotonic()
        with dial_server() as silent:
            check(silent.recv(1) == b"", "silence was answered")
            spent = time.monotonic() - begin
            check(spent > 1.2, f"a silent connection was closed after {spent:.1f} s")
        with dial_server(buffers=65536) as deaf:
            deaf.settimeout(0.5)
            with contextlib.suppress(TimeoutError, ConnectionError):
                for _ in range(20000):  # answers fill every window, then nothing is read
                    deaf.sendall(GET + b"\r\n")
                raise Failure("it takes requests and nobody takes its answers")
            poll = select.poll()
            poll.register(deaf, 0)  # errors alone: bytes wait there, unread
            check(poll.poll(WAIT_MAX_S * 1000), "a client that does not read is kept for ever")


def answers_are_counted(env):
    """The metrics count the answers of all shards by status."""
    need_programs("promtool")
    root = env.scratch_for({})
    (root / "note.txt").write_bytes(b"note\n")
    where = f"http://{HOST}/note.txt"
    with serve_files(env, "--root", root, "--metrics", "127.0.0.1:9466", "--shards",
               "2", "--memory", "1G"):
        etag = re.search(r"(?i)^etag: (.*)\r$", run_curl("-I", where), re.MULTILINE)[1]
        for _ in range(8):
            run_curl(where)
        for _ in range(3):
            run_curl("-H", f"If-None-Match: {etag}", where)
            run_curl("-r", "1-2", where)
        run_curl(f"http://{HOST}/none")
        run_curl("-X", "DELETE", where)
        page = run_curl("http://127.0.0.1:9466/metrics")
        found = {int(status): int(count) for status, count in re.findall(
            r'^coronet_httpd_answers_total\{status="(\d+)"\} (\d+)$', page, re.MULTILINE)}
        check({status: count for status, count in found.items() if count} ==
              {200: 9, 206: 3, 304: 3, 404: 1, 405: 1}, f"{found}")
        check(len(found) == 16 and "\ncoronet_httpd_accepts_total 17\n" in page, f"{found}")


def cases(env):
    need_programs("curl")
    bind = functools.partial
    only = env.args
    for function in (exchanges, conditions, like_nginx, like_nginx_by_curl, files_that_change,
                     signals_that_do_not_end_it,
                     trickle, pipelining, large_file,
                     slow_reader, slow_readers_get_no_copies, wrk_load, timeouts, limits,
                     request_is_whole_while_answered,
                     nobody_reads_stderr, answers_are_counted, drain,
                     drain_answers_whom_it_let_in):
        if not only or "one-shard" in only or function.__name__ in only:
            yield f"coronet-httpd: {function.__name__.replace('_', ' ')}", bind(function, env)
    for shards in (2, 4):
        for function, *words in ((shards_drain, shards), (shards_over_memif, shards),
                                 (shards_share_limits, shards),
                                 (shards_displace_the_oldest, shards),
                                 (drain_answers_whom_it_let_in, *on_all_shards(shards))):
            if not only or "shards" in only or function.__name__ in only:
                yield (f"coronet-httpd: {function.__name__.replace('_', ' ')}, {shards} shards",
                       bind(function, env, *words))


if __name__ == "__main__":
    main(cases)
