#!/usr/bin/env python3
"""coronet-httpd over TLS: curl, wrk and Python's ssl on a TAP.

Usage: test_httpd_tls.py BUILD_DIR
"""

import contextlib
import functools
import hashlib
import os
import shutil
import signal
import socket
import ssl
import subprocess

import certs
from harness import WAIT_MAX_S, check, command, eventually, main
from httpd_server import GET, HOST, Answers, serve_files
from web import need_programs, random_file

TLS_PORT = 8443
BULK = 8 << 20
NAMES = {"one": "www.one.test", "two": "*.two.test", "three": "www.three.test"}


def make_pair(env, name):
    return certs.make_pair(env, name, f"DNS:{NAMES[name]}", f"IP:{HOST}")


@contextlib.contextmanager
def serving(env, *options, names=("one",), ends=False, made=None):
    """Serves a folder with a random file over HTTP and HTTPS.

    ends: the case ends the server. made: the one certificate and key, which exist.
    """
    root = env.scratch / "root"
    root.mkdir(exist_ok=True)
    (root / "index.html").write_text("hello\n", encoding="ascii")
    random_file(root / "bulk", BULK)
    pairs = []
    for name in names:
        cert, key = made or make_pair(env, name)
        pairs += ["--tls-cert", cert, "--tls-key", key]
    with serve_files(env, *pairs, "--tls-port", TLS_PORT, "--root", root, *options) as server:
        command("ip", "link", "set", "lo", "up")
        yield server
        if not ends:
            check(server.alive(), server.story())
            server.terminate()


def dial(env, name="www.one.test"):
    """Returns a connection with TLS, whose certificate is right for the name."""
    context = certs.client_context(env)
    sock = socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S)
    return context.wrap_socket(sock, server_hostname=name)


def name_of(sock):
    """The common name of the server's certificate."""
    return dict(field[0] for field in sock.getpeercert()["subject"])["commonName"]


def curl(env, url, *options):
    return command("curl", "-sS", "--max-time", WAIT_MAX_S, "--cacert", env.scratch / "ca.pem",
                   *options, url)


def https(path, host=HOST):
    return f"https://{host}:{TLS_PORT}/{path}"


def answers(env):
    """Two requests on one connection, the whole of a file and a part of it."""
    need_programs("curl", "openssl")
    with serving(env):
        data = (env.scratch / "root/bulk").read_bytes()
        out = env.scratch / "out"
        curl(env, https("bulk"), "-o", out)
        check(hashlib.sha256(out.read_bytes()).digest() == hashlib.sha256(data).digest(),
              "8 MiB arrived with other bytes")
        curl(env, https("bulk"), "-o", out, "-r", "1000000-2999999")
        check(out.read_bytes() == data[1000000:3000000], "a range arrived with other bytes")
        said = curl(env, https(""), https(""), "-w", "%{http_version} %{num_connects}\n")
        check(said == "hello\n1.1 1\nhello\n1.1 0\n", f"two requests: {said!r}")
        with dial(env) as sock:
            sock.sendall(3 * (GET + b"\r\n"))
            three = Answers(sock)
            check([three.next()[2] for _ in range(3)] == 3 * [b"hello\n"], "pipelined requests")
        said = curl(env, f"http://{HOST}/")
        check(said == "hello\n", f"over HTTP: {said!r}")
        said = curl(env, https(""), "-I")
        check("strict-transport-security" not in said.lower(), f"HSTS unasked: {said!r}")


def names_choose_certificates(env, *options):
    with serving(env, *options, names=NAMES):
        for asked, name in (("www.one.test", "one"), ("a.two.test", "two"),
                            ("www.three.test", "three")):
            with dial(env, asked) as sock:
                check(name_of(sock) == name, f"{asked} got the certificate of {name_of(sock)}")
        with dial(env, HOST) as sock:
            check(name_of(sock) == "one", f"no name: the certificate of {name_of(sock)}")


def redirects(env):
    """Requests over HTTP go to HTTPS, whose answers have the field of HSTS."""
    with serving(env, "--redirect", "--hsts", "31536000"):
        said = curl(env, f"http://{HOST}/a/b?c=d", "-w", "%{http_code} %{redirect_url}", "-o",
                    "/dev/null")
        check(said == f"301 {https('a/b?c=d')}", f"{said!r}")
        for line, status, location in (
                (b"GET /x HTTP/1.1\r\nHost: a.test:80", 301, https("x", "a.test")),
                (b"GET /x HTTP/1.1\r\nHost: [2001:db8::1]:80", 301,
                 https("x", "[2001:db8::1]")),
                (b"GET /x HTTP/1.1\r\nHost: [2001:db8::1]", 301,
                 https("x", "[2001:db8::1]")),
                (b"HEAD http://in.target/x HTTP/1.1\r\nHost: other", 301,
                 https("x", "in.target")),
                (b"GET /x HTTP/1.0", 400, None), (b"POST /x HTTP/1.1\r\nHost: x", 405, None)):
            with socket.create_connection((HOST, 80), WAIT_MAX_S) as sock:
                sock.sendall(line + b"\r\n\r\n")
                found, fields, _ = Answers(sock).next(body=False)
                check((found, fields.get("location")) == (status, location),
                      f"{line!r}: {found} {fields}")
                check("strict-transport-security" not in fields, "HSTS over HTTP")
        said = curl(env, f"http://{HOST}/bulk", "-L", "-o", "/dev/null", "-w",
                    "%{http_code} %{num_redirects} %{size_download}")
        check(said == f"200 1 {BULK}", f"curl -L: {said!r}")
        for path in ("", "nothing"):
            said = curl(env, https(path), "-I").lower()
            check("strict-transport-security: max-age=31536000\n" in said, f"no HSTS: {said!r}")


def replace(env, old, new):
    for kind in ("pem", "key"):
        shutil.copy(env.scratch / f"{new}.{kind}", env.scratch / f"{old}.{kind}")


def renewal(env):
    """SIGHUP reads the files again; connections go on, and wrong files change nothing."""
    with serving(env) as server, dial(env) as before:
        before.sendall(GET + b"\r\n")
        check(Answers(before).next()[0] == 200, "the first request")
        make_pair(env, "three")
        replace(env, "one", "three")
        server.signal(signal.SIGHUP)

        def has_new_one():
            with contextlib.suppress(ssl.SSLError), dial(env, "www.three.test"):
                return True
            return False
        eventually(has_new_one, WAIT_MAX_S, server.story)
        eventually(lambda: "certificates as they are now" in server.output("stderr"), WAIT_MAX_S,
                   server.story)  # the shards had them before the line was written
        before.sendall(GET + b"\r\n")
        check(Answers(before).next()[0] == 200, "a request on a connection that was open")
        (env.scratch / "one.key").write_text("no key\n", encoding="ascii")
        server.signal(signal.SIGHUP)
        eventually(lambda: "previous certificates stay" in server.output("stderr"), WAIT_MAX_S,
                   server.story)
        check(f"{env.scratch}/one.key" in server.output("stderr"), server.story())
        with dial(env, "www.three.test") as sock:
            sock.sendall(GET + b"\r\n")
            check(Answers(sock).next()[0] == 200, "a request after files that were wrong")


def renewal_during_handshakes(env, *options):
    """Handshakes that have begun with the old context end with it."""
    with serving(env, *options) as server:
        waiting = [socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S) for _ in range(20)]
        make_pair(env, "three")
        replace(env, "one", "three")
        server.signal(signal.SIGHUP)
        eventually(lambda: "certificates as they are now" in server.output("stderr"), WAIT_MAX_S,
                   server.story)
        context = certs.client_context(env)
        for sock in waiting:
            with context.wrap_socket(sock, server_hostname=HOST) as wrapped:
                wrapped.sendall(GET + b"\r\n")
                check(Answers(wrapped).next()[0] == 200, "a request after a late handshake")


def ask_with(env, context, session=None):
    """Makes a request; returns whether the session was resumed, and the one to resume next."""
    sock = socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S)
    with context.wrap_socket(sock, server_hostname="www.one.test", session=session) as wrapped:
        wrapped.sendall(GET + b"\r\n")
        check(Answers(wrapped).next()[0] == 200, "a request")
        return wrapped.session_reused, wrapped.session


def tickets(env):
    """Sessions go on in another process with the same keys, and after they were rotated."""
    keys, context = env.scratch / "ticket.keys", certs.client_context(env)
    keys.write_bytes(os.urandom(80))
    with serving(env, "--tls-ticket-keys", keys):
        resumed, session = ask_with(env, context)
        check(not resumed, "the first session is an earlier one")
    with serving(env, "--tls-ticket-keys", keys, "--shards", "2") as server:
        for _ in range(8):  # some on each shard
            resumed, session = ask_with(env, context, session)
            check(resumed, "not resumed by another process")
        keys.write_bytes(os.urandom(80) + keys.read_bytes())
        server.signal(signal.SIGHUP)
        eventually(lambda: "as they are now" in server.output("stderr"), WAIT_MAX_S, server.story)
        resumed, session = ask_with(env, context, session)
        check(resumed, "not resumed after a rotation")
        keys.write_bytes(b"short")
        server.signal(signal.SIGHUP)
        eventually(lambda: "has not 1 to 16 keys" in server.output("stderr"), WAIT_MAX_S,
                   server.story)
        check(ask_with(env, context, session)[0], "a wrong file has changed the keys")
    with serving(env):
        check(not ask_with(env, context, session)[0], "resumed without the keys")


def stapling(env):
    """A client that asks for the certificate's status gets the file's response."""
    pair = cert, _ = make_pair(env, "one")
    ca, request = certs.make_ca(env), env.scratch / "ocsp.req"
    response, index = env.scratch / "one.ocsp", env.scratch / "index"
    serial = command("openssl", "x509", "-in", cert, "-noout", "-serial").strip().split("=")[1]
    index.write_text(f"V\t491231235959Z\t\t{serial}\tunknown\t/CN=one\n", encoding="ascii")
    command("openssl", "ocsp", "-issuer", ca, "-cert", cert, "-no_nonce", "-reqout", request)
    command("openssl", "ocsp", "-index", index, "-CA", ca, "-rsigner", ca, "-rkey",
            ca.with_suffix(".key"), "-reqin", request, "-respout", response, "-ndays", "1")
    with serving(env, "--tls-ocsp", response, made=pair):
        done = subprocess.run(["openssl", "s_client", "-connect", f"{HOST}:{TLS_PORT}", "-status",
                               "-CAfile", ca], input="", capture_output=True, text=True,
                              check=False, timeout=WAIT_MAX_S)
        check("OCSP Response Status: successful" in done.stdout
              and "Cert Status: good" in done.stdout, done.stdout + done.stderr)


def secrets(path):
    return {line for line in path.read_text(encoding="ascii").splitlines() if line[0] != "#"}


def key_log(env):
    """--tls-keylog gets the secrets that the client has as well, and nothing else gets them."""
    ours, theirs = env.scratch / "server.keys", env.scratch / "client.keys"
    for shards, version in ((1, ssl.TLSVersion.TLSv1_2), (2, ssl.TLSVersion.TLSv1_3)):
        with serving(env, "--tls-keylog", ours, "--shards", shards) as server:
            check(ours.stat().st_mode & 0o777 == 0o600, f"mode {ours.stat().st_mode:o}")
            context = certs.client_context(env)
            context.maximum_version = version
            context.keylog_filename = theirs
            for _ in range(4):
                ask_with(env, context)
            server.signal(signal.SIGHUP)
            eventually(lambda: "as they are now" in server.output("stderr"), WAIT_MAX_S,
                       server.story)
            ask_with(env, context)
        check(secrets(theirs) and secrets(theirs) == secrets(ours),
              f"{version}: {secrets(theirs) ^ secrets(ours)}")
    with serving(env, "--tls-keylog", "/dev/full") as server:
        check(not ask_with(env, certs.client_context(env))[0], "resumed")
        eventually(lambda: "a secret of TLS is missing in the key log: No space left"
                   in server.output("stderr"), WAIT_MAX_S, server.story)
    ignored = env.scratch / "ignored.keys"
    context = certs.client_context(env)  # now: Python's contexts take the variable
    os.environ["SSLKEYLOGFILE"] = str(ignored)
    try:
        with serving(env):
            ask_with(env, context)
    finally:
        del os.environ["SSLKEYLOGFILE"]
    check(not ignored.exists(), "SSLKEYLOGFILE was obeyed")


def garbage(env):
    """Peers that do not speak TLS, or stop within a handshake, cost others nothing."""
    with serving(env) as server:
        silent = [socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S) for _ in range(10)]
        # OpenSSL sends no alert to a client of HTTP. 0x15: RFC 8446 5.1.
        for sent, reply in ((GET + b"\r\n", b""), (b"\x16\x03\x01\x00\x05hello", b"\x15")):
            with socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S) as sock:
                sock.sendall(sent)
                data = b"".join(iter(lambda: sock.recv(4096), b""))
                check(data[:1] == reply, f"{sent!r} was answered with {data!r}")
        eventually(lambda: "TLS handshake with 10.9.1.1" in server.output("stderr"), WAIT_MAX_S,
                   server.story)
        with dial(env) as sock:
            sock.sendall(GET + b"\r\n")
            check(Answers(sock).next()[0] == 200, "a request beside them")
        for sock in silent:
            sock.close()


def ends_silently(sock):
    with contextlib.suppress(ConnectionResetError):
        return sock.recv(1) == b""
    return True


def too_many_handshakes(env):
    """Connections beyond --max-handshakes are reset, and others served when there is room."""
    with serving(env, "--max-handshakes", "4") as server:
        silent = [socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S) for _ in range(4)]
        # The reset may come before connect() returns.
        with contextlib.suppress(ConnectionResetError), \
                socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S) as sock:
            check(sock.recv(1) == b"", "a fifth connection got bytes")
        for sock in silent:
            sock.close()

        def is_served():
            with contextlib.suppress(OSError), dial(env) as sock:
                sock.sendall(GET + b"\r\n")
                return Answers(sock).next()[0] == 200
            return False
        eventually(is_served, WAIT_MAX_S, server.story)


def drain(env):
    """After SIGTERM, a download ends with all its bytes and close_notify.

    A client that has not begun its handshake delays the end no longer than one without a request.
    """
    with serving(env, ends=True) as server, dial(env) as sock, \
            socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S) as silent:
        sock.sendall(b"GET /bulk HTTP/1.1\r\nHost: x\r\n\r\n")
        got = Answers(sock)
        got.receive()
        server.signal(signal.SIGTERM)
        eventually(lambda: "draining" in server.output("stderr"), WAIT_MAX_S, server.story)
        check(got.next()[2] == (env.scratch / "root/bulk").read_bytes(), "other bytes")
        check(sock.recv(1) == b"", "bytes behind the answer")
        check(ends_silently(silent), "the silent client got bytes")
        server.wait(WAIT_MAX_S)


def shards(env, *options):
    """wrk's connections on two shards, through a renewal."""
    need_programs("wrk")
    if len(os.sched_getaffinity(0)) < 2:
        return
    with serving(env, "--shards", "2", *options) as server:
        load = subprocess.Popen(["wrk", "-t2", "-c32", "-d3s", https("")], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        for turn in range(1, 4):
            server.signal(signal.SIGHUP)
            eventually(lambda: server.output("stderr").count("as they are now") >= turn,
                       WAIT_MAX_S, server.story)
        text = load.communicate(timeout=WAIT_MAX_S)[0]
        check(load.returncode == 0 and "Socket errors" not in text and "Non-2xx" not in text, text)
        check(" 0 requests in" not in text, text)


def other_threads(env):
    """--tls-offload: nothing of this changes when other threads do the handshakes."""
    for case in (names_choose_certificates, renewal_during_handshakes, shards):
        case(env, "--tls-offload")


def refusals(env):
    cert, key = make_pair(env, "one")
    other = make_pair(env, "two")[1]
    common = [env.app("coronet-httpd"), "--link", "ring:r0", "--addr", "10.9.0.1/16"]
    for options, expected in (
            (["--redirect"], "--redirect needs a certificate: add --tls-cert FILE"),
            (["--hsts", "60"], "--hsts needs a certificate: add --tls-cert FILE"),
            (["--tls-key", key], f"--tls-key '{key}': no --tls-cert precedes it"),
            (["--tls-cert", cert, "--tls-key", key, "--tls-key", key], "no --tls-cert precedes it"),
            (["--tls-cert", cert, "--tls-key", key, "--tls-port", "80"],
             "--tls-port 80 is the port of HTTP as well"),
            (["--tls-cert", cert], str(cert)),
            (["--tls-cert", cert, "--tls-key", other], str(other)),
            (["--tls-ticket-keys", key], "--tls-ticket-keys needs a certificate"),
            (["--tls-cert", cert, "--tls-key", key, "--tls-ticket-keys", key], "has not 1 to 16"),
            (["--tls-ocsp", cert], f"--tls-ocsp '{cert}': no --tls-cert precedes it"),
            (["--tls-cert", cert, "--tls-key", key, "--tls-ocsp", cert], "no successful OCSP"),
            (["--tls-keylog", "/tmp/keys"], "--tls-keylog needs a certificate"),
            (["--tls-offload"], "--tls-offload needs a certificate"),
            (["--tls-cert", "/no/such/file"], "/no/such/file")):
        done = subprocess.run([*common, *options], capture_output=True, text=True, check=False,
                              timeout=WAIT_MAX_S)
        check(done.returncode == 2 and expected in done.stderr and "\n" == done.stderr[-1],
              f"{options}: status {done.returncode}: {done.stderr!r}")


def cases(env):
    return [(case.__name__.replace("_", " "), functools.partial(case, env)) for case in (
        answers, names_choose_certificates, redirects, renewal, renewal_during_handshakes, tickets,
        stapling, key_log, garbage, too_many_handshakes, drain, shards, other_threads, refusals)]


if __name__ == "__main__":
    main(cases)
