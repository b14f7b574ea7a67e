#!/usr/bin/env python3
"""TLS over a TAP against OpenSSL's own programs and Python's ssl, in both roles.

Usage: test_tls.py BUILD_DIR
"""

import contextlib
import functools
import hashlib
import os
import select
import socket
import ssl
import subprocess
import threading

from harness import WAIT_MAX_S, check, command, comment, eventually, main, read_metric

HOST, PORT, METRICS = "10.9.0.1", 7777, 9090
CLIENT, PEER, PEER_PORT = "10.9.0.2", "10.9.1.1", 4433
NAME = "server.test"
BULK = 8 << 20


def make_pair(env, name, key_options):
    """Makes a certificate that signs itself; returns the paths of it and its key."""
    cert, key = env.scratch / f"{name}.pem", env.scratch / f"{name}.key"
    command("openssl", "req", "-x509", *key_options, "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{NAME},IP:{PEER}",
            "-keyout", key, "-out", cert)
    return cert, key


KINDS = {
    "ECDSA": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "RSA": ["-newkey", "rsa:2048"],
}


@functools.cache
def pair_of(env, kind):
    return make_pair(env, kind.lower(), KINDS[kind])


@contextlib.contextmanager
def serving(env, kind="ECDSA"):
    """Runs example-tls-echo at a TAP."""
    cert, key = pair_of(env, kind)
    with env.running([env.app("example-tls-echo"), cert, key, "--link", "tap:tl0",
                      "--addr", f"{HOST}/16", "--poll", "adaptive", "--huge", "off",
                      "--metrics", f"127.0.0.1:{METRICS}"]) as server:
        command("ip", "link", "set", "lo", "up")
        command("ip", "addr", "add", f"{PEER}/16", "dev", "tl0")
        command("ip", "link", "set", "tl0", "up")
        yield server
        check(server.alive(), server.story())
        server.terminate()


metric = functools.partial(read_metric, METRICS)


def failed():
    return metric('coronet_tls_handshakes_total{shard="0",result="failed"}')


def s_client(ca, *options):
    """Sends a line by openssl s_client; returns its status and what it printed."""
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"{HOST}:{PORT}", "-servername", NAME,
         "-verify_hostname", NAME, "-CAfile", ca, "-verify_return_error", "-no_ign_eof", *options],
        input="coronet says hello\n", capture_output=True, text=True, timeout=WAIT_MAX_S,
        check=False)
    return done.returncode, done.stdout + done.stderr


def by_openssl(env, kind, version):
    with serving(env, kind):
        ca = pair_of(env, kind)[0]
        text = eventually(lambda: (said := s_client(ca, f"-tls{version}"))[0] == 0 and said[1],
                          WAIT_MAX_S, lambda: f"openssl s_client: {s_client(ca)}")
        check(f"TLSv1.{version[-1]}" in text, text)
        other = make_pair(env, "other", KINDS["ECDSA"])[0]
        before = failed()
        status, text = s_client(other)
        check(status != 0 and "verify error" in text, f"a wrong CA was taken: {text}")
        eventually(lambda: failed() > before, WAIT_MAX_S, "the refusal was not counted")
        status, text = s_client(ca, "-tls1_1", "-cipher", "ALL@SECLEVEL=0")
        check(status != 0, f"TLS 1.1 was taken: {text}")


def context_for(env, kind="ECDSA"):
    return ssl.create_default_context(cafile=str(pair_of(env, kind)[0]))


def connect(env):
    sock = socket.create_connection((HOST, PORT), timeout=WAIT_MAX_S)
    return context_for(env).wrap_socket(sock, server_hostname=NAME, suppress_ragged_eofs=False)


def exchange_bytes(sock, data):
    """Sends all data while it reads as much. Returns the SHA-256 of what came.

    By one thread: Python before 3.13 lets two use OpenSSL's object at the same time.
    """
    received, sent, left = hashlib.sha256(), 0, len(data)
    sock.setblocking(False)
    while left:
        ready = select.select([sock], [sock] if sent < len(data) else [], [], WAIT_MAX_S)
        check(ready[0] or ready[1], f"{left} bytes are missing")
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if ready[1]:
                sent += sock.send(data[sent:sent + 65536])
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while left:  # OpenSSL may have more than the socket
                part = sock.recv(65536)
                check(part, f"it ended {left} bytes early")
                received.update(part)
                left -= len(part)
    sock.settimeout(WAIT_MAX_S)
    return received


def echo_bulk(env):
    """Eight MiB in both directions at once, with their hash."""
    with serving(env):
        sent = os.urandom(1 << 20) * (BULK >> 20)
        with connect(env) as sock:
            received = exchange_bytes(sock, sent)
            check(received.digest() == hashlib.sha256(sent).digest(), "the echo differs")
            sock.unwrap()  # waits for the peer's close_notify


def hostile_clients(env):
    """Truncated streams and garbage are counted, and others are served."""
    with serving(env):
        with connect(env) as sock:
            sock.sendall(b"hello")
            check(sock.recv(5) == b"hello", "no echo")
            os.close(sock.detach())  # FIN without close_notify
        before = failed()
        with socket.create_connection((HOST, PORT), timeout=WAIT_MAX_S) as plain:
            plain.sendall(b"\x16\x03\x01\x00\x08\x02garbage")
            check(plain.recv(100)[:1] == b"\x15", "no alert")
        eventually(lambda: failed() == before + 1, WAIT_MAX_S, "garbage was not counted")
        with connect(env) as sock:
            sock.sendall(b"again")
            check(sock.recv(5) == b"again", "no echo")
            sock.unwrap()


# ---- as a client ----

def ask(env, ca, name=NAME, server=f"{PEER}:{PEER_PORT}"):
    """Runs example-tls-ask; returns its status and what it said."""
    program = env.start([env.app("example-tls-ask"), server, name, ca, "--link", "tap:tl0",
                         "--addr", f"{CLIENT}/16", "--poll", "adaptive", "--huge", "off"])
    eventually(lambda: subprocess.run(["ip", "link", "show", "tl0"], check=False,
                                      capture_output=True).returncode == 0,
               WAIT_MAX_S, program.story)
    command("ip", "link", "set", "tl0", "up")
    # The last step: with an address, the program may end before another one.
    command("ip", "addr", "add", f"{PEER}/16", "dev", "tl0")
    status = program.wait(WAIT_MAX_S)
    return status, program.output("stdout") + program.output("stderr")


def ask_openssl(env, kind, version):
    cert, key = pair_of(env, kind)
    command("ip", "link", "set", "lo", "up")
    server = env.start(["openssl", "s_server", "-accept", str(PEER_PORT), "-cert", cert,
                        "-key", key, f"-tls{version}", "-rev", "-naccept", "3"])
    server.wait_ready("ACCEPT")
    status, text = ask(env, cert)
    check("olleh" in text, f"status {status}: {text}")
    other = make_pair(env, "other", KINDS["ECDSA"])[0]
    status, text = ask(env, other)
    check(status == 1 and "the peer's certificate: " in text, f"status {status}: {text}")
    status, text = ask(env, cert, name="other.test")
    check(status == 1 and "hostname mismatch" in text, f"status {status}: {text}")
    server.kill()


def truncated_answer(env):
    """A server that closes without close_notify: its answer may be incomplete."""
    cert, key = pair_of(env, "ECDSA")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    command("ip", "link", "set", "lo", "up")
    with socket.create_server(("0.0.0.0", PEER_PORT)) as listener:
        def serve():
            for clean in (False, True):
                sock = context.wrap_socket(listener.accept()[0], server_side=True)
                while sock.recv(100):  # up to its close_notify: unread bytes would be a RST
                    pass
                sock.sendall(b"part of an answer\n")
                if clean:
                    with contextlib.suppress(OSError):
                        sock.unwrap()
                    sock.close()
                else:
                    os.close(sock.detach())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        status, text = ask(env, cert)
        check(status == 1 and "without close_notify" in text, f"status {status}: {text}")
        check("part of an answer" in text, text)
        status, text = ask(env, cert)
        check(status == 0 and "part of an answer" in text, f"status {status}: {text}")


def cases(env):
    bind = functools.partial
    if not (env.build / "apps/example-tls-echo").exists():
        comment("built without TLS")
        return
    for kind in KINDS:
        for version in ("1_2", "1_3"):
            yield f"server: openssl s_client, {kind}, TLS {version}", bind(by_openssl, env, kind,
                                                                         version)
    yield "server: bulk in both directions", bind(echo_bulk, env)
    yield "server: hostile clients", bind(hostile_clients, env)
    for version in ("1_2", "1_3"):
        yield f"client: openssl s_server, TLS {version}", bind(ask_openssl, env, "ECDSA", version)
    yield "client: RSA", bind(ask_openssl, env, "RSA", "1_3")
    yield "client: a truncated answer", bind(truncated_answer, env)


if __name__ == "__main__":
    main(cases)
