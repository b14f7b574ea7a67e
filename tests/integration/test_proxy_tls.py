#!/usr/bin/env python3
"""coronet-proxy with TLS, to clients and to backends: Python's ssl, curl, nginx and haproxy.

Usage: test_proxy_tls.py BUILD_DIR [CASE...]
"""

import contextlib
import hashlib
import json
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess

from certs import client_context, make_pair, server_context
from harness import WAIT_MAX_S, check, chosen, eventually, main
from proxies import (MIB, V2_SIGNATURE, Peer, Tap, check_broken, dial_proxy, echo_bytes,
                     read_exactly, read_to_end, reset_socket, send_name)
from steering import Config, await_line
from web import SMALL, Nginx, listening, need_programs, run_curl

TLS_PORT = 8443
LISTEN = ["--listen", f"tls:0.0.0.0:{TLS_PORT}"]
FRONT = "www.front.test"
HEALTH_OFF = ["--health-interval", "0"]
SSL_TLV, ALPN_TLV, AUTHORITY_TLV = 0x20, 0x01, 0x02
VERSION_TLV, CN_TLV, CIPHER_TLV = 0x21, 0x22, 0x23


# ---- peers ----

def front(env, name="front", host=FRONT):
    """Returns the options of a listener with a certificate for the host."""
    cert, key = make_pair(env, name, f"DNS:{host}", f"IP:{Tap.host}")
    return [*LISTEN, "--tls-cert", cert, "--tls-key", key]


def wrap(env, sock, name=FRONT, **loaded):
    context = client_context(env)
    if "cert" in loaded:
        context.load_cert_chain(loaded["cert"], loaded["key"])
    if "alpn" in loaded:
        context.set_alpn_protocols(loaded["alpn"])
    return context.wrap_socket(sock, server_hostname=name)


def dial(env, kind, name=FRONT, **loaded):
    return wrap(env, dial_proxy(kind, TLS_PORT), name, **loaded)


class ByHand:
    """TLS whose bytes the test moves: `first` leaves in one segment with the ClientHello."""

    def __init__(self, context, raw, first=b""):
        self.raw, self.first = raw, first
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=FRONT)

    def flush(self):
        self.raw.sendall(self.first + self.outgoing.read())
        self.first = b""

    def step(self, function):
        """Calls the function until it needs no more bytes of the peer; returns its result."""
        while True:
            try:
                return function()
            except ssl.SSLWantReadError:
                self.flush()
                part = self.raw.recv(65536)
                if part:
                    self.incoming.write(part)
                else:
                    self.incoming.write_eof()
            finally:
                self.flush()


def over_tls(context, serve):
    """A Peer's function that does TLS first."""
    def run(sock):
        with context.wrap_socket(sock, server_side=True) as secure:
            serve(secure)
    return run


def check_echo(sock, text=b"are you there?"):
    sock.sendall(text)
    check(read_exactly(sock, len(text)) == text, "the echo differs")


def log_lines(env, kind, *options, to):
    """Starts a proxy with an access log in JSON. Returns a context of (proxy, lines)."""
    path = env.scratch / "access"
    path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def run():
        with kind.serve(env, *to, *options, *HEALTH_OFF, "--access-log", path,
                        "--access-log-format", "json", port=0) as proxy:
            yield proxy, lambda: [json.loads(line) for line in path.read_text().splitlines()]
    return run()


def await_log(proxy, lines, count):
    eventually(lambda: len(lines()) >= count, WAIT_MAX_S,
               lambda: f"{lines()} of {count}: {proxy.story()}")
    return lines()


# ---- clients ----

def terminates(env, kind):
    """Bytes of both directions are whole; ends are passed on; the access log says how."""
    size = 8 * MIB // (8 if env.sanitized else 1)
    data = random.Random(1).randbytes(size)
    ended = []

    def count_and_answer(sock):
        total = hashlib.sha256(read_to_end(sock)).digest()
        ended.append(True)
        sock.sendall(total + data)

    with Peer(kind, count_and_answer) as peer, \
            log_lines(env, kind, *front(env), to=["--to", f"one={peer.at}"]) as (proxy, lines):
        for version, cipher in ((ssl.TLSVersion.TLSv1_3, "TLS_"), (ssl.TLSVersion.TLSv1_2, "ECDHE")):
            context = client_context(env)
            context.minimum_version = context.maximum_version = version
            got = talk_half_closed(ByHand(context, dial_proxy(kind, TLS_PORT)), data)
            check(got == hashlib.sha256(data).digest() + data, f"{version}: {len(got)} bytes differ")
        check(len(ended) == 2, "the backends saw no end")
        for line, version, cipher in zip(await_log(proxy, lines, 2), ("TLSv1.3", "TLSv1.2"),
                                         ("TLS_", "ECDHE-")):
            check(line["tls"] == version and line["cipher"].startswith(cipher), f"{line}")
            check(line["sni"] == FRONT and line["tls_client"] is None, f"{line}")
            check(line["end"] == "done" and line["to"] == size and line["from"] == size + 32,
                  f"{line}")


def talk_half_closed(client, data):
    """Sends all data and close_notify, then reads to the peer's: Python's sockets of TLS cannot
    close one direction alone."""
    client.step(client.tls.do_handshake)
    for at in range(0, len(data), 65536):
        client.tls.write(data[at:at + 65536])
        client.flush()
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.flush()
    got = bytearray()
    with contextlib.suppress(ssl.SSLZeroReturnError):
        while part := client.step(lambda: client.tls.read(65536)):
            got += part
    return bytes(got)


def truncated(env, kind):
    """A FIN without close_notify is no end of the data: the backend gets a reset."""
    ends = []

    def serve(sock):
        sock.sendall(sock.recv(64))
        try:
            ends.append(read_to_end(sock))
        except ConnectionResetError:
            ends.append("reset")

    with Peer(kind, serve) as peer, \
            log_lines(env, kind, *front(env), to=["--to", peer.at]) as (proxy, lines):
        secure = dial(env, kind)
        check_echo(secure, b"half of a")
        raw = socket.socket(fileno=secure.detach())
        raw.shutdown(socket.SHUT_WR)
        eventually(lambda: ends, WAIT_MAX_S, proxy.story)
        check(ends == ["reset"], f"the backend saw {ends}")
        check(await_log(proxy, lines, 1)[0]["end"] == "client-reset", f"{lines()}")
        raw.close()
        check(proxy.alive(), proxy.story())


def names(env, kind):
    """The name that a client asks for chooses the certificate and the backend."""
    cert, key = make_pair(env, "wild", "DNS:*.wild.test")
    with Peer(kind, send_name(b"front")) as one, Peer(kind, send_name(b"wild")) as two, \
            Peer(kind, send_name(b"rest")) as three, \
            kind.serve(env, *front(env), "--tls-cert", cert, "--tls-key", key, *HEALTH_OFF,
                       "--to", f"one={one.at},sni={FRONT}", "--to", f"two={two.at},sni=*.wild.test",
                       "--to", f"three={three.at}"):
        for name, backend in ((FRONT, b"front"), ("a.wild.test", b"wild"), ("A.WILD.test", b"wild")):
            with dial(env, kind, name) as sock:
                check(sock.recv(64) == backend, f"{name} reached another backend")
        context = client_context(env)
        with context.wrap_socket(dial_proxy(kind, TLS_PORT), server_hostname=kind.host) as sock:
            check(sock.recv(64) == b"rest", "no name reached another backend")
        # Without TLS, the same backends are chosen by the ClientHello that passes through.
        with dial_proxy(kind) as sock:
            sock.sendall(b"no hello")
            check(sock.recv(64) == b"rest", "plain bytes reached another backend")


def read_tlvs(data):
    found = {}
    while data:
        kind, size = struct.unpack("!BH", data[:3])
        found[kind] = data[3:3 + size]
        data = data[3 + size:]
    return found


def certificates_of_clients(env, kind):
    """They are required or optional; backends and the log learn the name."""
    headers = []

    def serve(sock):
        head = read_exactly(sock, 16)
        check(head[:12] == V2_SIGNATURE, f"{head}")
        headers.append(read_exactly(sock, int.from_bytes(head[14:], "big"))[12:])
        echo_bytes(sock)

    person = make_pair(env, "person", subject="Jörg, of the test", ca="people")
    stranger = make_pair(env, "stranger", ca="strangers")
    ask = ["--tls-client-ca", env.scratch / "people.pem", "--tls-alpn", "h2,http/1.1",
           "--send-proxy", "v2"]
    with Peer(kind, serve) as peer:
        with log_lines(env, kind, *front(env), *ask, to=["--to", peer.at]) as (proxy, lines):
            with dial(env, kind, cert=person[0], key=person[1], alpn=["http/1.1"]) as sock:
                check_echo(sock)
                check(sock.selected_alpn_protocol() == "http/1.1", "ALPN")
            tlvs = read_tlvs(headers.pop())
            check(tlvs[AUTHORITY_TLV] == FRONT.encode() and tlvs[ALPN_TLV] == b"http/1.1", f"{tlvs}")
            check(tlvs[SSL_TLV][:5] == b"\x07\0\0\0\0", f"{tlvs}")
            inner = read_tlvs(tlvs[SSL_TLV][5:])
            check(inner[CN_TLV].decode() == "Jörg, of the test", f"{inner}")
            check(inner[VERSION_TLV] == b"TLSv1.3" and b"AES" in inner[CIPHER_TLV], f"{inner}")
            check(await_log(proxy, lines, 1)[0]["tls_client"] == "Jörg, of the test", f"{lines()}")
            for loaded in ({}, {"cert": stranger[0], "key": stranger[1]}):
                with contextlib.suppress(ConnectionResetError), dial(env, kind, **loaded) as sock:
                    try:
                        check(not sock.recv(1), "a client without the certificate came in")
                    except ssl.SSLError as error:
                        check("alert" in str(error).lower(), f"{error}")
            check({line["end"] for line in await_log(proxy, lines, 3)[1:]} == {"tls-failed"},
                  f"{lines()}")
            check(not headers, "a refused client reached a backend")
        with log_lines(env, kind, *front(env), *ask, "--tls-client-cert", "optional",
                       to=["--to", peer.at]) as (proxy, lines):
            with dial(env, kind, alpn=["h2"]) as sock:
                check_echo(sock)
            tlvs = read_tlvs(headers.pop())
            check(tlvs[SSL_TLV][:5] == b"\x01\0\0\0\x01" and CN_TLV not in read_tlvs(
                tlvs[SSL_TLV][5:]), f"{tlvs}")
            with contextlib.suppress(ConnectionResetError, ssl.SSLError), \
                    dial(env, kind, cert=stranger[0], key=stranger[1], alpn=["h2"]) as sock:
                check(not sock.recv(1), "a stranger came in")
            check(proxy.alive(), proxy.story())


def header_before_tls(env, kind, *options):
    """A PROXY header precedes the handshake, also in one segment with it."""
    header = V2_SIGNATURE + b"\x21\x11\0\x0c" + socket.inet_aton("192.0.2.7") + \
        socket.inet_aton("192.0.2.8") + struct.pack("!HH", 1234, 80)
    with Peer(kind, echo_bytes) as peer, \
            log_lines(env, kind, *front(env), "--accept-proxy", *options,
                      to=["--to", peer.at]) as (proxy, lines):
        for number, head in enumerate((header, b"PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n")):
            client = ByHand(client_context(env), dial_proxy(kind, TLS_PORT), head)
            client.step(client.tls.do_handshake)
            client.raw.close()
            check(await_log(proxy, lines, number + 1)[number]["client"] == "192.0.2.7:1234",
                  f"{lines()}")
        with dial_proxy(kind, TLS_PORT) as sock:
            sock.sendall(b"POST / HTTP/1.1\r\n")
            check_broken(sock)
        check(await_log(proxy, lines, 3)[2]["end"] == "bad-header", f"{lines()}")


def handshakes_elsewhere(env, kind):
    """--tls-offload: other threads take what is behind the header, and refuse what is none."""
    header_before_tls(env, kind, "--tls-offload")


def bad_clients(env, kind):
    """Garbage, silence and too many handshakes end; those that are open go on."""
    with Peer(kind, echo_bytes) as peer, \
            log_lines(env, kind, *front(env), "--max-half-open", "8", "--hello-timeout", "3",
                      to=["--to", peer.at]) as (proxy, lines), dial(env, kind) as stays:
        check_echo(stays)
        with dial_proxy(kind, TLS_PORT) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            check(read_to_end(sock)[:1] in (b"\x15", b""), "no alert")
        check(await_log(proxy, lines, 1)[0]["end"] == "tls-failed", f"{lines()}")
        with dial_proxy(kind, TLS_PORT) as sock:
            check_broken(sock)  # after three seconds of silence
        check(await_log(proxy, lines, 2)[1]["end"] == "hello-timeout", f"{lines()}")
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(dial_proxy(kind, TLS_PORT)) for _ in range(24)]
            eventually(lambda: "displaced" in {line["end"] for line in lines()}, WAIT_MAX_S,
                       lambda: f"{lines()}")
            check(silent, "none")
        with dial_proxy(kind, TLS_PORT) as sock:
            sock.sendall(b"\x16\x03\x01")
            reset_socket(sock)
        check_echo(stays)
        with dial(env, kind) as sock:
            check_echo(sock)
        check(proxy.alive(), proxy.story())


# ---- backends ----

def encrypts_again(env, kind):
    """Backends are verified by CA and name; a wrong one fails as one that does not connect."""
    right = server_context(*make_pair(env, "back", "DNS:back.test", f"IP:{kind.near}"))
    other = server_context(*make_pair(env, "other", "DNS:back.test", ca="others"))
    ca = ["--backend-ca", env.scratch / "ca.pem"]
    with Peer(kind, over_tls(right, echo_bytes)) as good, \
            Peer(kind, over_tls(other, echo_bytes)) as bad, Peer(kind, echo_bytes) as plain:
        data = random.Random(2).randbytes(3 * MIB // (8 if env.sanitized else 1))
        for to in (f"one={good.at},tls=verify", f"one={good.at},tls=verify,tls-name=back.test",
                   f"one={bad.at},tls=insecure"):
            options = ca if "verify" in to else []
            with kind.serve(env, *front(env), "--to", to, *options, *HEALTH_OFF):
                for sock in (dial_proxy(kind), dial(env, kind)):
                    with sock:
                        for at in range(0, len(data), 65536):
                            check_echo(sock, data[at:at + 65536])
        for to, reason in ((f"one={good.at},tls=verify,tls-name=wrong.test", "name"),
                           (f"one={bad.at},tls=verify,tls-name=back.test", "certificate"),
                           (f"one={plain.at},tls=verify", "")):
            with log_lines(env, kind, *front(env), *ca, "--connect-timeout", "2",
                           to=["--to", to]) as (proxy, lines):
                with dial(env, kind) as sock:
                    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
                        sock.sendall(b"hello")
                        check(not sock.recv(1), f"{to}: reached")
                check(await_log(proxy, lines, 1)[0]["end"] == "connect-failed", f"{lines()}")
                if reason:
                    await_line(proxy, "TLS handshake with backend one failed")
                    check(reason in proxy.output("stderr"), f"{to}: {proxy.story()}")
                check(proxy.alive(), proxy.story())
        # One that does not verify is skipped, as one that refuses.
        with kind.serve(env, *front(env), *ca, "--to", f"one={bad.at},tls=verify,tls-name=back.test",
                        "--to", f"two={good.at},tls=verify,backup", *HEALTH_OFF):
            for _ in range(4):
                with dial(env, kind) as sock:
                    check_echo(sock)


def resumed(env, kind):
    """Sessions are resumed with clients that keep them, and with backends."""
    reused = []
    right = server_context(*make_pair(env, "back", f"IP:{kind.near}"))

    def note(sock):
        reused.append(sock.session_reused)
        echo_bytes(sock)

    with Peer(kind, over_tls(right, note)) as good, \
            log_lines(env, kind, *front(env), "--backend-ca", env.scratch / "ca.pem",
                      to=["--to", f"one={good.at},tls=verify"]) as (proxy, lines):
        context, session = client_context(env), None
        for count in range(1, 5):
            with context.wrap_socket(dial_proxy(kind, TLS_PORT), server_hostname=FRONT,
                                     session=session) as sock:
                check_echo(sock)
                session = sock.session
                check(sock.session_reused == (count > 1), f"the client's session {count}")
            await_log(proxy, lines, count)  # the proxy has the backend's ticket
        check([line["resumed"] for line in lines()] == [False, True, True, True], f"{lines()}")
        check(reused == [False, True, True, True], f"backends: {reused}")


def key_log(env, kind):
    """--tls-keylog gets the secrets of clients and of backends."""
    logged, client, backend = (env.scratch / f"{name}.keys" for name in ("proxy", "one", "two"))
    right = server_context(*make_pair(env, "back", f"IP:{kind.near}"))
    right.keylog_filename = backend
    with Peer(kind, over_tls(right, echo_bytes)) as good, \
            kind.serve(env, *front(env), "--backend-ca", env.scratch / "ca.pem", "--to",
                       f"one={good.at},tls=verify", "--tls-keylog", logged, *HEALTH_OFF):
        context = client_context(env)
        context.keylog_filename = client
        with context.wrap_socket(dial_proxy(kind, TLS_PORT), server_hostname=FRONT) as sock:
            check_echo(sock)
    ours, theirs = (set(path.read_text(encoding="ascii").splitlines())
                    for path in (client, backend))
    check(ours and theirs and (ours | theirs) - {"# TLS secrets log file, generated by OpenSSL / "
                                                 "Python"}
          == set(logged.read_text(encoding="ascii").splitlines()), f"{ours}, {theirs}")


def end_of_a_backend(env, kind):
    """A backend's close_notify is an end, its FIN without one is not."""
    right = server_context(*make_pair(env, "back", f"IP:{kind.near}"))

    def close(sock):
        sock.recv(64)
        sock.sendall(b"all of it")
        with contextlib.suppress(OSError):
            sock.unwrap()

    def cut(sock):
        sock.recv(64)
        sock.sendall(b"a part")
        socket.socket(fileno=sock.detach()).close()

    with Peer(kind, over_tls(right, close)) as closes, Peer(kind, over_tls(right, cut)) as cuts:
        for peer, whole in ((closes, True), (cuts, False)):
            with kind.serve(env, "--to", f"{peer.at},tls=verify", "--backend-ca",
                            env.scratch / "ca.pem", *HEALTH_OFF), dial_proxy(kind) as sock:
                sock.sendall(b"x")
                try:
                    got = read_to_end(sock)
                    check(whole and got == b"all of it", f"{got}")
                except ConnectionResetError:
                    check(not whole, "an end came as a reset")


def health(env, kind):
    """Checks do the handshake: a backend without TLS, or with another's certificate, is down."""
    need_programs("nginx", "curl")
    pair = make_pair(env, "back", f"IP:{kind.near}")
    other = server_context(*make_pair(env, "other", f"IP:{kind.near}", ca="others"))
    with Peer(kind, echo_bytes) as plain, Peer(kind, over_tls(other, echo_bytes)) as stranger, \
            kind.serve(env, *front(env), "--backend-ca", env.scratch / "ca.pem",
                       "--health-interval", "0.1", "--fall", "6", "--connect-timeout", "2",
                       "--to", f"plain={plain.at},tls=verify", "--to",
                       f"stranger={stranger.at},tls=verify", "--to",
                       f"web={kind.near}:9443,tls=verify,check=http:/small") as proxy:
        for name in ("plain", "stranger", "web"):
            await_line(proxy, f"backend {name} is down")
        with Nginx(env, kind.near, 9443, pair=pair):
            await_line(proxy, "backend web is up")
            for _ in range(4):
                said = run_curl("--cacert", env.scratch / "ca.pem", "--resolve",
                                f"{FRONT}:{TLS_PORT}:{kind.host}",
                                f"https://{FRONT}:{TLS_PORT}/small")
                check(said == SMALL, f"{said!r}")
        check(proxy.alive(), proxy.story())


def header_to_haproxy(env, kind):
    """haproxy takes the PROXY header before TLS, and learns what the client's TLS was."""
    need_programs("haproxy", "curl")
    cert, key = make_pair(env, "back", f"IP:{kind.near}")
    pem = env.scratch / "both.pem"
    pem.write_bytes(cert.read_bytes() + key.read_bytes())
    config = env.scratch / "haproxy.cfg"
    config.write_text(
        "defaults\n mode http\n timeout connect 9s\n timeout client 9s\n timeout server 9s\n"
        f"frontend f\n bind {kind.near}:9444 accept-proxy ssl crt {pem}\n"
        " http-request return status 200 content-type text/plain lf-string "
        "\"%[src] %[fc_pp_authority] %[ssl_fc]\\n\"\n", encoding="ascii")
    with kind.serve(env, *front(env), "--to", f"{kind.near}:9444,tls=verify", "--backend-ca",
                    env.scratch / "ca.pem", "--send-proxy", "v2", "--health-interval", "0.1",
                    "--fall", "1000") as proxy:
        haproxy = env.start(["haproxy", "-f", config, "-db"])
        eventually(lambda: listening(kind.near, 9444) or not haproxy.alive(), WAIT_MAX_S,
                   "haproxy does not listen")
        said = run_curl("--cacert", env.scratch / "ca.pem", "--resolve",
                        f"{FRONT}:{TLS_PORT}:{kind.host}", f"https://{FRONT}:{TLS_PORT}/")
        check(said == f"{kind.near} {FRONT} 1\n", f"{said!r}")
        check(proxy.alive() and haproxy.alive(), proxy.story())


# ---- life ----

def renewal(env, kind):
    """A reload uses new certificates for new clients; open sessions go on; a wrong file changes
    nothing and is named."""
    cert, key = make_pair(env, "front", f"DNS:{FRONT}")
    make_pair(env, "later", "DNS:later.test")
    with Peer(kind, echo_bytes) as peer:
        lines = [f"listen = tls:0.0.0.0:{TLS_PORT}", f"tls-cert = {cert}", f"tls-key = {key}",
                 f"to = {peer.at}", "health-interval = 0"]
        config = Config(env, *lines)
        with kind.serve(env, "--config", config.path, "--shards", "2") as proxy, \
                dial(env, kind) as before:
            check_echo(before)
            shutil.copy(env.scratch / "later.pem", cert)
            config.reload(proxy, *lines, says="nothing has changed")  # not its key
            check("does not belong" in proxy.output("stderr") or "key" in proxy.output("stderr"),
                  proxy.story())
            with contextlib.ExitStack() as stack:
                sock = stack.enter_context(dial(env, kind))
                check_echo(sock)
                shutil.copy(env.scratch / "later.key", key)
                config.reload(proxy, *lines)
                check_echo(sock)
            with dial(env, kind, "later.test") as sock:
                check_echo(sock)
            check_echo(before)
            config.reload(proxy, *(line for line in lines if "tls-" not in line),
                          says="nothing has changed")
            check("add --tls-cert FILE" in proxy.output("stderr"), proxy.story())
            # A listener goes on until the next start, and needs its certificate until then.
            config.reload(proxy, *lines[3:], says="nothing has changed")
            with dial(env, kind, "later.test") as sock:
                check_echo(sock)
            check_echo(before)
            for _ in range(3):  # while handshakes are under way
                with dial_proxy(kind, TLS_PORT) as raw:
                    config.reload(proxy, *lines)
                    with wrap(env, raw, "later.test") as sock:
                        check_echo(sock)
            proxy.signal(signal.SIGTERM)
            before.unwrap()
            check(proxy.wait(WAIT_MAX_S) == 0, proxy.story())


def refusals(env, kind):
    """What is wrong is named before the program starts."""
    cert, key = make_pair(env, "front", f"DNS:{FRONT}")
    pair = ["--tls-cert", cert, "--tls-key", key]
    to = ["--to", "10.9.1.1:80"]
    listen = ["--link", "tap:x", "--addr", "10.9.0.1/16", *LISTEN]
    for words, reason in (
            (["coronet-proxy", *listen, *to], "expected a certificate as well: add --tls-cert FILE"),
            (["coronet-proxy", *listen[:4], *to, *pair], "expected --listen tls:ADDRESS:PORT as well"),
            (["coronet-proxy", *listen, *to, *pair, "--tls-client-cert", "required"],
             "expected --tls-client-ca FILE as well"),
            (["coronet-proxy", *listen, *to, *pair, "--backend-ca", cert],
             "--backend-ca: expected --to with tls=verify as well"),
            (["coronet-proxy", *listen, *to, *pair, "--listen", f"10.9.0.1:{TLS_PORT}", "--listen",
              f"tls:10.9.0.1:{TLS_PORT}"], "each address and port once"),
            (["coronet-proxy", *listen, *to, "--tls-cert", cert, "--tls-key", cert], "key"),
            (["coronet-proxy", *listen[:4], *to, "--tls-alpn", "h2"],
             "--tls-alpn: expected --listen tls:ADDRESS:PORT as well"),
            (["coronet-proxy", *listen[:4], *to, "--tls-offload"],
             "--tls-offload: expected --listen tls:ADDRESS:PORT as well"),
            (["coronet-proxy", *listen, *to, *pair, "--tls-alpn", "h2,"], "1 to 255 bytes"),
            (["coronet-proxy", *listen, *to, *pair, "--tls-alpn", ",h2"], "1 to 255 bytes"),
            (["coronet-proxy", *listen, *to, *pair, "--tls-alpn", "h 2"], "1 to 255 bytes"),
            (["coronet-proxy", *listen, *pair, "--to", "10.9.1.1:80,tls-name=a.test"],
             "tls=verify or tls=insecure together with tls-name="),
            (["coronet-proxy", *listen, *pair, "--to", "10.9.1.1:80,tls=verify,check=dns"],
             "check=tcp, http or expect:TEXT together with tls="),
            (["coronet-proxy", *listen[:4], "--listen", "udp:10.9.0.1:53", "--to",
              "10.9.1.1:80,tls=verify"], "expected no tls= with --listen udp:10.9.0.1:53"),
            (["epoll-proxy", *LISTEN, *to], "coronet-proxy for TLS")):
        done = subprocess.run([str(word) for word in (env.app(words[0]), *words[1:])], check=False,
                              capture_output=True, text=True, timeout=WAIT_MAX_S)
        check(done.returncode == 2 and done.stderr.count("\n") == 1 and reason in done.stderr,
              f"{words}: {done.returncode}: {done.stderr}")


CASES = [terminates, truncated, names, certificates_of_clients, header_before_tls,
         handshakes_elsewhere, bad_clients, encrypts_again, resumed, key_log, end_of_a_backend, health,
         header_to_haproxy, renewal, refusals]


def cases(env):
    yield from chosen(env, CASES, Tap())


if __name__ == "__main__":
    main(cases)
