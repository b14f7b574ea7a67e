#!/usr/bin/env python3
"""coronet-dns over a TAP against dig, dnsperf and hostile clients.

Usage: test_dns.py BUILD_DIR
"""

import contextlib
import functools
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

from harness import WAIT_MAX_S, Skip, check, command, comment, eventually, main, read_metric
from test_udp import check_jammed_link

STACKS = {"IPv4": "10.9.0.1", "IPv6": "fd00:9::1"}
METRICS = 9090
ZONE = (pathlib.Path(__file__).parent / "dns.zone").read_text()
BIG = "".join(f"big IN A 10.0.{i // 256}.{i % 256}\n" for i in range(3000))
TYPES = {"A": 1, "NS": 2, "SOA": 6, "AXFR": 252}


def query(name, qtype="A", ident=0x1234, udp_size=0):
    wire = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    message = struct.pack(">HHHHHH", ident, 0, 1, 0, 0, 1 if udp_size else 0) + wire + \
        struct.pack(">HH", TYPES[qtype], 1)
    if udp_size:
        message += struct.pack(">BHHIH", 0, 41, udp_size, 0, 0)
    return message


def rcode(answer):
    return answer[3] & 15


@contextlib.contextmanager
def serving(env, *options, text=ZONE + BIG, shards=1):
    """Runs coronet-dns at a TAP, with a zone file whose path is the second value."""
    zone = env.scratch / "example.com.zone"
    zone.write_text(text)
    with env.running([env.app("coronet-dns"), "--link", "tap:dn0", "--zone", f"example.com={zone}",
                      "--addr", "10.9.0.1/16", "--addr", "fd00:9::1/64", "--shards", shards,
                      "--poll", "adaptive", "--memory", "512M", "--huge", "off",
                      "--metrics", f"127.0.0.1:{METRICS}", *options]) as server:
        command("ip", "link", "set", "lo", "up")
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "dn0")
        command("ip", "addr", "add", "10.9.2.1/16", "dev", "dn0")
        command("ip", "addr", "add", "fd00:9::2/64", "dev", "dn0", "nodad")
        command("ip", "link", "set", "dn0", "up")
        yield server, zone
        check(server.alive(), server.story())
        server.terminate()


metric = functools.partial(read_metric, METRICS)


def dig(*words, stack=STACKS["IPv4"]):
    if not shutil.which("dig"):
        raise Skip("dig is not installed")
    done = subprocess.run(["dig", f"@{stack}", "+tries=5", "+time=5", *words], text=True,
                          capture_output=True, check=False)
    return done.stdout + done.stderr


def udp(source="10.9.1.1"):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((source, 0))
    sock.settimeout(WAIT_MAX_S)
    sock.connect((STACKS["IPv4"], 53))
    return sock


def tcp():
    return socket.create_connection((STACKS["IPv4"], 53), timeout=WAIT_MAX_S)


def receive(sock, n):
    data = b""
    while len(data) < n:
        piece = sock.recv(n - len(data))
        check(piece, f"the connection ended after {len(data)} of {n} bytes")
        data += piece
    return data


def receive_answer(sock):
    return receive(sock, struct.unpack(">H", receive(sock, 2))[0])


def await_answers():
    """The first datagrams may be lost while the link comes up."""
    def answered():
        with udp() as sock:
            sock.settimeout(0.2)
            try:
                sock.send(query("www.example.com"))
                return sock.recv(512)
            except OSError:
                return False
    eventually(answered, WAIT_MAX_S, "no answer")


def answers(env, shards):
    """dig gets what the zone has over both transports and families."""
    with serving(env, shards=shards):
        await_answers()
        for stack in STACKS.values():
            for over in ("+notcp", "+tcp"):
                ask = functools.partial(dig, over, stack=stack)
                check("192.0.2.3\n" in ask("alias.example.com", "A", "+short"), "CNAME")
                check("status: NXDOMAIN" in ask("no.example.com"), "NXDOMAIN")
                check("192.0.2.5\n" == ask("a.b.stars.example.com", "+short"), "wildcard")
                check("10 mail.example.com.\n" == ask("example.com", "MX", "+short"), "MX")
                check('"one" "two"\n' == ask("example.com", "TXT", "+short"), "TXT")
                referral = ask("x.sub.example.com", "+norecurse")
                check("ns.sub.example.com.\t300\tIN\tA\t192.0.2.7" in referral, referral)
                check("aa" not in referral.split("flags:")[1].split(";")[0], referral)
                check("status: REFUSED" in ask("example.net"), "a foreign name")
                edns = ask("example.com", "SOA", "+dnssec")
                check("EDNS: version: 0, flags: do; udp: 1232" in edns, edns)
        truncated = dig("+notcp", "+ignore", "big.example.com")
        check(" tc" in truncated and "ANSWER: 0" in truncated, truncated)
        check(len(dig("big.example.com", "+short").splitlines()) == 3000, "TCP after truncation")
        check("Transfer failed" in dig("example.com", "AXFR"), "AXFR")
        check("status: NOTIMP" in dig("+opcode=notify", "example.com", "SOA"), "NOTIFY")
        check(metric('coronet_dns_queries_total{transport="tcp"}') > 10, "metrics")
        check(metric('coronet_dns_answers_total{rcode="REFUSED"}') >= 4, "metrics")


def tcp_connections(env):
    """Many queries on a connection, in pieces; idle and surplus connections end."""
    with serving(env, "--idle-timeout", "2", "--max-clients", "3",
                 "--max-clients-per-source", "3"):
        await_answers()
        with tcp() as sock:
            messages = [query("www.example.com", ident=i) for i in range(200)]
            data = b"".join(struct.pack(">H", len(m)) + m for m in messages)
            for at in range(0, len(data), 7):
                sock.sendall(data[at:at + 7])
            for i in range(200):
                check(receive_answer(sock)[:2] == struct.pack(">H", i), f"answer {i}")
            message = query("big.example.com")
            sock.sendall(20 * (struct.pack(">H", len(message)) + message))
            for _ in range(20):
                check(len(receive_answer(sock)) > 48000, "a long answer")
            check(sock.recv(1) == b"", "an idle connection is not closed")
        for hostile in (b"\xff\xff", b"\0\0", b"\0\5abcde"):
            with tcp() as sock:
                sock.sendall(hostile)
                check(sock.recv(1) == b"", f"{hostile} is not the end")
        with tcp() as slow:
            slow.sendall(b"\0\x40\1")
            check(slow.recv(1) == b"", "half a query is not given up")
        held = [tcp() for _ in range(3)]
        eventually(lambda: metric("coronet_dns_clients") == 3, WAIT_MAX_S, "three clients")
        with socket.socket() as late, contextlib.suppress(TimeoutError):
            late.settimeout(0.5)
            late.connect((STACKS["IPv4"], 53))
            check(metric("coronet_dns_clients") <= 3, "a fourth client")
        for sock in held:
            sock.close()


def silent_clients(env):
    """Clients that read no answers end when what is kept for them reaches its bound."""
    with serving(env), contextlib.ExitStack() as held:
        await_answers()
        message = query("big.example.com")
        for _ in range(300):
            sock = held.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(WAIT_MAX_S)
            sock.connect((STACKS["IPv4"], 53))
            sock.sendall(40 * (struct.pack(">H", len(message)) + message))
        eventually(lambda: metric("coronet_dns_unsent_total") > 0, WAIT_MAX_S, "all are kept")
        with tcp() as sock:
            message = query("www.example.com")
            sock.sendall(struct.pack(">H", len(message)) + message)
            check(rcode(receive_answer(sock)) == 0, "another client is not served")


def hostile(env):
    """Random, cut and mutated messages: the server goes on, and answers no answers."""
    rng = random.Random(7)
    with serving(env):
        await_answers()
        with udp() as sock:
            for _ in range(3000):
                message = bytearray(query("www.example.com", udp_size=4096))
                for _ in range(rng.randrange(4)):
                    message[rng.randrange(len(message))] = rng.randrange(256)
                sock.send(bytes(message)[:rng.randrange(1, len(message) + 1)])
            for size in (0, 1, 11, 12, 600, 1400):
                sock.send(rng.randbytes(size))
        await_answers()
        with udp() as sock:
            answer = bytearray(query("www.example.com"))
            answer[2] |= 0x80
            sock.send(bytes(answer))
            sock.send(query("www.example.com", ident=0xbeef))
            check(sock.recv(2048)[:2] == b"\xbe\xef", "an answer was answered")
        check(metric("coronet_dns_ignored_total") > 0, "metrics")


def rate_limit(env):
    """A source gets its rate; a part of the rest is truncated; other sources and TCP do not care."""
    with serving(env, "--rate-limit", "50", "--rate-slip", "4"):
        await_answers()
        before = metric('coronet_dns_queries_total{transport="udp"}')
        with udp() as sock:
            got = [0, 0]
            sock.setblocking(False)

            def count_answers():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        got[sock.recv(512)[2] >> 1 & 1] += 1

            def counters():
                return [metric(f"coronet_dns_{name}_total") for name in ("slipped", "limited")]

            def all_are_counted(sent):
                # A query counts before its answer does, so read these each time.
                slipped, limited = counters()
                count_answers()
                return got[1] == slipped and sum(got) + limited >= sent

            # The socket has room for about 250 answers.
            for sent in range(100, 1001, 100):
                for i in range(100):
                    sock.send(query("www.example.com", ident=i))
                eventually(lambda n=sent: all_are_counted(n), WAIT_MAX_S, "answers are lost")
            check(metric('coronet_dns_queries_total{transport="udp"}') - before >= 1000,
                  "not all queries have come")
            slipped, limited = counters()
        comment(f"{got[0]} answers, {got[1]} truncated, {limited:.0f} dropped")
        check(abs(limited - 3 * slipped) <= 4, f"{limited} dropped, {slipped} slipped")
        check(got[0] <= 1000 - slipped - limited + 1, f"{got}")
        with udp("10.9.2.1") as sock:
            sock.send(query("www.example.com"))
            check(not sock.recv(512)[2] & 2, "another source")
        with tcp() as sock:
            message = query("www.example.com")
            sock.sendall(200 * (struct.pack(">H", len(message)) + message))
            for _ in range(200):
                receive_answer(sock)


def jammed_link(env):
    """Answers for which a link has no room do not stop the service on the other link."""
    zone = env.scratch / "example.com.zone"
    zone.write_text(ZONE)
    check_jammed_link(env, "coronet-dns", 53, query("www.example.com"),
                      "--zone", f"example.com={zone}")


def reload(env):
    """SIGHUP changes the zone without a lost query; a wrong file changes nothing."""
    def asked():
        with udp() as sock:
            sock.send(query("www.example.com"))
            return sock.recv(512)[-4:]
    with serving(env, shards=2) as (server, zone):
        await_answers()
        lost, stop = [], threading.Event()

        def ask_on():
            with udp() as sock:
                while not stop.is_set():
                    sock.send(query("big.example.com", udp_size=1232))
                    try:
                        sock.recv(2048)
                    except TimeoutError as error:
                        lost.append(error)
        thread = threading.Thread(target=ask_on)
        thread.start()
        try:
            for last in (10, 11, 12):
                zone.write_text((ZONE + BIG).replace("192.0.2.3", f"192.0.2.{last}"))
                server.signal(signal.SIGHUP)
                eventually(lambda: asked()[-1] == last, WAIT_MAX_S, "the zone is not reloaded")
            for text, reason in ((ZONE + "www IN A 192.0.2.300\n", "line 14"),
                                 (ZONE + "www IN CNAME alias\n", "www.example.com. has a CNAME"),
                                 ("", "no SOA")):
                zone.write_text(text)
                server.signal(signal.SIGHUP)
                eventually(lambda: reason in server.output("stderr"), WAIT_MAX_S,
                           f"no reason: {reason}")
            zone.unlink()
            server.signal(signal.SIGHUP)
            eventually(lambda: "No such file" in server.output("stderr"), WAIT_MAX_S, "no reason")
            check(asked()[-1] == 12, "a wrong file has changed the zone")
        finally:
            stop.set()
            thread.join()
        check(not lost, f"{len(lost)} queries were lost")
        check(metric("coronet_dns_reloads_total") == 3, "reloads")
        check(metric("coronet_dns_failed_reloads_total") == 4, "failed reloads")


def seconds_to_end(env):
    """Returns how long the program takes to end after SIGTERM, with an idle TCP client."""
    with contextlib.ExitStack() as stack:
        with serving(env):
            await_answers()
            sock = stack.enter_context(tcp())
            message = query("www.example.com")
            sock.sendall(struct.pack(">H", len(message)) + message)
            receive_answer(sock)
            began = time.monotonic()
        check(sock.recv(1) == b"", "the connection is not closed")
        return time.monotonic() - began


def shutdown(env):
    """SIGTERM ends idle TCP clients and the program, with status 0."""
    # It never ends before its drain timeout, 5 s, if it waits for them; a busy machine has quiet
    # moments.
    eventually(lambda: seconds_to_end(env) < 4.5, WAIT_MAX_S, "an idle client holds the program")


def dnsperf(env):
    """dnsperf loses no query."""
    if not shutil.which("dnsperf"):
        raise Skip("dnsperf is not installed")
    with serving(env):
        await_answers()
        names = env.scratch / "names"
        names.write_text("www.example.com A\nalias.example.com A\nno.example.com A\n"
                         "x.stars.example.com A\nexample.com MX\nx.sub.example.com A\n")
        for mode in ("udp", "tcp"):
            done = subprocess.run(["dnsperf", "-s", STACKS["IPv4"], "-d", names, "-m", mode, "-n",
                                   "1000", "-q", "20", "-c", "4"], text=True, capture_output=True,
                                  check=False, timeout=2 * WAIT_MAX_S)
            figures = [line.strip() for line in done.stdout.splitlines()
                       if "Queries" in line or "Response codes" in line]
            check(any("Queries completed:    6000 (100.00%)" in line for line in figures), done.stdout)
            comment(f"{mode}: " + "; ".join(figures))


def cases(env):
    for shards in (1, 2):
        yield f"answers to dig, {shards} shards", functools.partial(answers, env, shards)
    yield "TCP connections", functools.partial(tcp_connections, env)
    yield "silent TCP clients", functools.partial(silent_clients, env)
    yield "hostile messages", functools.partial(hostile, env)
    yield "the rate limit", functools.partial(rate_limit, env)
    yield "a link without room", functools.partial(jammed_link, env)
    yield "reloads", functools.partial(reload, env)
    yield "the end", functools.partial(shutdown, env)
    yield "dnsperf", functools.partial(dnsperf, env)


if __name__ == "__main__":
    main(cases)
