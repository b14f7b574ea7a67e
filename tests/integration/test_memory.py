#!/usr/bin/env python3
"""coronet-httpd under --memory, with kernel clients that do not read.

Usage: test_memory.py BUILD_DIR
"""

import contextlib
import functools
import re
import socket

from harness import check, command, eventually, main

HOST, PORT = "10.9.0.1", 80
MIB = 1 << 20
CLIENTS = 3000
GET = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


def answer(what=b"index.html", seconds=60):
    """Returns the first bytes that a new client gets."""
    with socket.create_connection((HOST, PORT), timeout=seconds) as client:
        client.sendall(GET % what)
        return client.recv(15)


@contextlib.contextmanager
def serve(env, *options):
    root = env.scratch / "root"
    root.mkdir(exist_ok=True)
    (root / "index.html").write_text("hello\n")
    (root / "big.bin").write_bytes(bytes(4 * MIB))
    with env.running([env.app("coronet-httpd"), "--link", "tap:cm0", "--addr", f"{HOST}/16",
                      "--port", PORT, "--root", root, "--huge", "off", *options]) as server:
        command("ip", "addr", "add", "10.9.0.2/16", "dev", "cm0")
        command("ip", "link", "set", "cm0", "up", "txqueuelen", "20000")
        eventually(lambda: server.alive() and answer() == b"HTTP/1.1 200 OK", 60,
                   f"no first answer: {server.story()}")
        yield server


@contextlib.contextmanager
def clients(number, request):
    """Clients that have sent a request and do not read."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.settimeout(60)
            with contextlib.suppress(ConnectionError):  # it may be reset by now
                client.connect((HOST, PORT))
                client.sendall(request)
        yield


def own_mib(server):
    """Returns the server's memory before the first client, in MiB, rounded up."""
    return server.resident_bytes() // MIB + 1


def case_clients_that_do_not_read(env):
    with serve(env) as server:
        own = own_mib(server)
        server.terminate()
    memory = own + (200 if env.sanitized else 64)
    with serve(env, "--memory", f"{memory}M") as server:
        with clients(300 if env.sanitized else CLIENTS, GET % b"big.bin"):
            for _ in range(20):
                check(answer() == b"HTTP/1.1 200 OK", f"no answer: {server.story()}")
            used = server.resident_bytes()
            check(used <= memory * MIB,
                  f"{used / MIB:.1f} MiB resident with --memory {memory}M")
        eventually(lambda: answer() == b"HTTP/1.1 200 OK" and
                   server.resident_bytes() < (own + 40) * MIB or env.sanitized, 60,
                   f"{server.resident_bytes() / MIB:.1f} MiB are still resident, {own} at first")
        server.terminate()


def case_one_byte_each(env):
    with serve(env) as server, clients(200 if env.sanitized else 11000, b"G"):
        for _ in range(20):
            check(answer() == b"HTTP/1.1 200 OK", f"no answer: {server.story()}")
        server.terminate()


def case_too_little(env):
    program = env.start([env.app("coronet-httpd"), "--link", "tap:cm0", "--addr", f"{HOST}/16",
                         "--port", PORT, "--huge", "off", "--memory", "20M"])
    check(program.wait(60) != 0, "a stack of 20 MiB opens")
    least = re.search(r"--memory 20M: too little: .* give (\d+)M or more", program.output("stderr"))
    check(least, f"no size is given: {program.story()}")
    with serve(env, "--memory", f"{int(least[1]) + 8}M") as server:
        server.terminate()


def cases(env):
    for name, function in (
            ("clients that do not read leave memory for others", case_clients_that_do_not_read),
            ("a byte unread of each of 11,000 leaves frames for others", case_one_byte_each),
            ("--memory: too little is refused with a size that is enough", case_too_little)):
        yield name, functools.partial(function, env)


if __name__ == "__main__":
    main(cases)
