#!/usr/bin/env python3
"""TLS over a TAP against GnuTLS in both roles, and a scan of HTTPS by testssl.sh.

Usage: test_tls_peers.py BUILD_DIR
"""

import functools
import json
import os
import shutil
import subprocess

import certs
from harness import WAIT_MAX_S, check, command, comment, eventually, main
from httpd_server import HOST, serve_files
from test_tls import KINDS, NAME, PEER_PORT, PORT, ask, make_pair, pair_of, serving
from web import need_programs

TEXT = "coronet says hello"
HTTPS_PORT = 8443
SCAN_SECONDS = 1800
# Of the protocol and of what a server does; others are of the certificate or of HTTP's fields.
SCANS = ["--protocols", "--std", "--fs", "--server-preference", "--vulnerable"]
FINE = {"OK", "INFO", "LOW", "DEBUG"}


def gnutls_client(env, kind, version):
    """Sends a line by gnutls-cli, which verifies the certificate, and reads the echo."""
    need_programs("gnutls-cli")
    with serving(env, kind) as server:
        def client(ca):
            return env.start(["gnutls-cli", "--port", str(PORT), "--x509cafile", ca,
                              "--sni-hostname", NAME, "--verify-hostname", NAME, "--priority",
                              f"NORMAL:-VERS-ALL:+VERS-TLS{version}", HOST],
                             stdin=subprocess.PIPE)

        def is_up():
            program = client(pair_of(env, kind)[0])
            program.process.stdin.write(f"{TEXT}\n".encode())
            program.process.stdin.flush()
            eventually(lambda: program.output("stdout").splitlines()[-1:] == [TEXT]
                       or not program.alive(), WAIT_MAX_S, program.story)
            program.process.stdin.close()
            return program.wait(WAIT_MAX_S) == 0 and program.output("stdout")
        text = eventually(is_up, WAIT_MAX_S, server.story)
        check(f"TLS{version}" in text and TEXT in text.splitlines(), text)
        program = client(make_pair(env, "other", KINDS["ECDSA"])[0])
        check(program.wait(WAIT_MAX_S) != 0 and "issuer is unknown" in program.output("stdout"),
              program.story())


def gnutls_server(env, kind, version):
    """gnutls-serv echoes a line to a client of ours, which verifies its certificate."""
    need_programs("gnutls-serv")
    cert, key = pair_of(env, kind)
    command("ip", "link", "set", "lo", "up")
    server = env.start(["gnutls-serv", "--echo", "--port", str(PEER_PORT), "--x509certfile", cert,
                        "--x509keyfile", key, "--priority",
                        f"NORMAL:-VERS-ALL:+VERS-TLS{version}"])
    try:
        eventually(lambda: "...done" in server.output("stderr"), WAIT_MAX_S, server.story)
        status, text = ask(env, cert)
        check(status == 0 and "hello" in text, f"status {status}: {text}, {server.story()}")
        status, text = ask(env, cert, name="other.test")
        check(status == 1 and "hostname mismatch" in text, f"status {status}: {text}")
    finally:
        server.kill()


def scan(env):
    """testssl.sh finds nothing that is worse than low."""
    need_programs("testssl")
    cert, key = certs.make_pair(env, "scanned", f"DNS:{NAME}", f"IP:{HOST}")
    root, found = env.scratch / "root", env.scratch / "found.json"
    root.mkdir()
    (root / "index.html").write_text("hello\n", encoding="ascii")
    with serve_files(env, "--tls-cert", cert, "--tls-key", key, "--tls-port", HTTPS_PORT, "--root",
                     root) as server:
        command("ip", "link", "set", "lo", "up")
        program = env.start([shutil.which("testssl"), "--quiet", "--color", "0", "--warnings",
                             "off", "--nodns", "none", *SCANS, "--jsonfile", found,
                             f"{HOST}:{HTTPS_PORT}"], env={**os.environ, "TERM": "dumb"})
        program.wait(SCAN_SECONDS)
        check(found.exists(), program.story())
        findings = json.loads(found.read_text(encoding="utf-8"))
        bad = [f"{one['id']}: {one['finding']}" for one in findings if one["severity"] not in FINE]
        names = {one["id"] for one in findings}
        check({"TLS1_3", "heartbleed", "BEAST"} <= names
              and any(name.startswith("cipher_order") for name in names), f"scanned: {names}")
        check(not bad, f"{bad}: {program.output('stdout')}")
        check(server.alive(), server.story())


def cases(env):
    bind = functools.partial
    if not (env.build / "apps/example-tls-echo").exists():
        comment("built without TLS")
        return
    for kind in KINDS:
        for version in ("1.2", "1.3"):
            yield f"gnutls-cli, {kind}, TLS {version}", bind(gnutls_client, env, kind, version)
            yield f"gnutls-serv, {kind}, TLS {version}", bind(gnutls_server, env, kind, version)
    yield "testssl.sh", bind(scan, env)


if __name__ == "__main__":
    main(cases)
