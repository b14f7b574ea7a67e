#!/usr/bin/env python3
"""What a core dump of a server with TLS would have: no key, and no secret of a connection.

Usage: test_tls_dump.py BUILD_DIR [CASE...]
"""

import contextlib
import hashlib
import hmac
import re
import signal
import socket
import subprocess
import tempfile

import certs
from harness import WAIT_MAX_S, Skip, check, chosen, eventually, main
from httpd_server import GET, HOST
from test_httpd_tls import TLS_PORT, make_pair, serving

CHUNK = 1 << 20
OVERLAP = 4096
TICKET_KEYS = bytes(range(80))


def dumped(pid):
    """Yields the bytes of a process's memory that are not marked with MADV_DONTDUMP."""
    mappings = []
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line):
                mappings.append([int(found[1], 16), int(found[2], 16), found[3], True])
            elif line.startswith("VmFlags:"):
                mappings[-1][3] = " dd" not in line
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for start, end, rights, wanted in mappings:
            if wanted and rights.startswith("rw"):
                yield from read_range(memory, start, end)


def read_range(memory, start, end):
    """Yields pieces that overlap, so that nothing is cut."""
    with contextlib.suppress(OSError, ValueError):  # of a device
        for at in range(start, end, CHUNK - OVERLAP):
            memory.seek(at)
            yield at, memory.read(min(CHUNK, end - at))


def find_all(server, secrets):
    """Returns which secrets a dump has, and where."""
    found = set()
    for start, data in dumped(server.process.pid):
        if not data.strip(b"\0"):
            continue
        for name, secret in secrets.items():
            if (at := data.find(secret)) >= 0:
                found.add(f"{name} at {start + at:#x}")
    return sorted(found)


def numbers_of(key):
    """Returns the secret numbers of a private key, in either order of their bytes."""
    text = subprocess.run(["openssl", "pkey", "-in", key, "-noout", "-text"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    numbers = {}
    for name, digits in re.findall(r"^(priv|privateExponent|prime1|prime2|exponent1|exponent2):\n"
                                   r"((?:    [0-9a-f:]+\n)+)", text, re.MULTILINE):
        number = bytes.fromhex(re.sub(r"[\s:]", "", digits)).lstrip(b"\0")
        numbers |= {name: number, f"{name}, backwards": number[::-1]}
    check(numbers, f"no numbers in {text}")
    lines = key.read_text(encoding="ascii").splitlines()[1:-2]
    return {**numbers, **{f"line {line}": line.encode() for line in lines}}


def expand(secret, label, length):
    """HKDF-Expand-Label of RFC 8446 7.1, with an empty context."""
    digest = hashlib.sha384 if len(secret) == 48 else hashlib.sha256
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    return hmac.new(secret, info + b"\1", digest).digest()[:length]


def secrets_of(log):
    """Returns the secrets of a key log, and the keys of records that follow from them."""
    secrets = {}
    lines = log.splitlines()[1:]  # behind a comment
    for which, line in (*(("first", line) for line in lines[:5]),
                        *(("last", line) for line in lines[-5:])):
        label, _, secret = line.split()
        label, secret = f"{label} of the {which}", bytes.fromhex(secret)
        secrets[label] = secret
        if "TRAFFIC" in label:
            secrets[f"key of {label}"] = expand(secret, b"key", 32 if len(secret) == 48 else 16)
    return secrets


def dial(context, session):
    sock = socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S)
    return context.wrap_socket(sock, server_hostname="www.one.test", session=session)


def check_server(env, secrets, made=None):
    """Has connections open, closed and resumed, and looks for what must not be there."""
    if env.sanitized:
        raise Skip("a build with sanitizers uses malloc()")
    keys = env.scratch / "ticket.keys"
    keys.write_bytes(TICKET_KEYS)
    with serving(env, "--tls-ticket-keys", keys, made=made) as server, \
            tempfile.NamedTemporaryFile("r") as log, contextlib.ExitStack() as later:
        context = certs.client_context(env)
        context.keylog_filename = log.name
        session = None
        for _ in range(6):
            sock = later.enter_context(dial(context, session))
            sock.sendall(GET + b"\r\n")
            check(sock.recv(4096).startswith(b"HTTP/1.1 200"), "no answer")
            session = sock.session
        check(sock.session_reused, "no session is resumed")
        sock.close()
        server.signal(signal.SIGHUP)  # reads the files once more
        eventually(lambda: "as they are now" in server.output("stderr"), WAIT_MAX_S, server.story)
        secrets = {**secrets, **secrets_of(log.read()), "ticket key": TICKET_KEYS[16:48],
                   "second ticket key": TICKET_KEYS[48:80]}
        text = server.output("stderr")
        check("core dump" not in text, text)
        # The search can find something: the server's own arguments, which are on its stack.
        check(find_all(server, {"an argument": b"--tls-ticket-keys\0"}), "nothing is found")
        found = find_all(server, secrets)
        check(not found, f"a core dump has {', '.join(found)}")
        check(len(secrets) > 8, f"{list(secrets)}")


def ecdsa(env):
    cert, key = make_pair(env, "one")
    check_server(env, numbers_of(key), (cert, key))


def both_in_one_file(env):
    """The certificate's file has the key as well."""
    cert, key = make_pair(env, "one")
    both = env.scratch / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    check_server(env, numbers_of(key), (both, both))


def rsa(env):
    cert, key = certs.make_pair(env, "one", "DNS:www.one.test", f"IP:{HOST}", new_key=certs.NEW_RSA)
    check_server(env, numbers_of(key), (cert, key))


def cases(env):
    yield from chosen(env, [ecdsa, both_in_one_file, rsa])


if __name__ == "__main__":
    main(cases)
