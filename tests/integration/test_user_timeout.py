#!/usr/bin/env python3
"""net_set_user_timeout() against this namespace's kernel.

Usage: test_user_timeout.py BUILD_DIR

coronet (tests/wire/user-timeout) sends without end through tests/wire to two clients: one with a
user timeout of TIMEOUT_MS, the other without.
"""

import contextlib
import socket
import threading
import time

from harness import WAIT_MAX_S, check, command, comment, eventually, main
from wires import Wire

PORT = 7000
OURS, KERNELS = "10.7.0.1", "10.7.0.2"
TIMEOUT_MS = 1500
SOME = 200000  # bytes, more than the first windows
GIVEN_UP = f"gave up {TIMEOUT_MS}: Connection timed out"


class Client:
    """A kernel socket that reads in a thread."""

    def __init__(self, timeout_ms):
        self.sock = socket.create_connection((OURS, PORT), WAIT_MAX_S)
        self.sock.settimeout(WAIT_MAX_S)
        self.sock.sendall(f"{timeout_ms}\n".encode())
        self.taken = 0
        self.ended = None  # by EOF or an exception
        self.thread = threading.Thread(target=self.read, daemon=True)

    def read(self):
        try:
            while data := self.sock.recv(1 << 16):
                self.taken += len(data)
            self.ended = "EOF"
        except OSError as error:
            self.ended = error

    def expect_more(self, what):
        wanted = self.taken + SOME
        eventually(lambda: self.taken > wanted, WAIT_MAX_S,
                   lambda: f"{what}: {self.taken} of {wanted} bytes, {self.ended}")

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


@contextlib.contextmanager
def connected(env, number):
    """(our program, the wire, a client with a user timeout, a client without)."""
    sock_path, tap = env.scratch_for({}) / "m.sock", f"ut{number}"
    wire = Wire(env, f"memif:{sock_path},role=server", f"tap:{tap}", "--control",
                "--delay", 5, "--rate", 50, "--seed", 3)
    with wire.running():
        command("ip", "addr", "add", f"{KERNELS}/16", "dev", tap)
        command("ip", "link", "set", tap, "up")
        with env.running([env.build / "tests/wire/user-timeout", PORT, "--link",
                          f"memif:{sock_path},role=client", "--addr", f"{OURS}/16",
                          "--poll", "adaptive"]) as program, \
                contextlib.closing(Client(TIMEOUT_MS)) as timed, \
                contextlib.closing(Client(0)) as untimed:
            yield program, wire, timed, untimed


def expect_given_up(program, since):
    """Waits until the timed client is given up, which must not be before its user timeout."""
    eventually(lambda: GIVEN_UP in program.output("stdout"), WAIT_MAX_S,
               lambda: f"not given up: {program.story()}")
    took = time.monotonic() - since
    check(took >= TIMEOUT_MS / 1000, f"given up after {took:.3f} s")
    check("gave up 0" not in program.output("stdout"), f"both were: {program.story()}")
    comment(f"given up after {took:.1f} s")


def vanished(env):
    with connected(env, 1) as (program, wire, timed, untimed):
        for client in (timed, untimed):
            client.thread.start()
            client.expect_more("at first")
        began = time.monotonic()
        wire.configure("both loss=100")
        expect_given_up(program, began)
        wire.configure("both loss=0")
        untimed.expect_more("when the path was back")


def closed_window(env):
    with connected(env, 2) as (program, _wire, timed, untimed):
        # Probes are answered all the time, by a window of 0.
        expect_given_up(program, time.monotonic())
        for client in (timed, untimed):
            client.thread.start()
        untimed.expect_more("when it reads")
        eventually(lambda: timed.ended, WAIT_MAX_S, "the client that was given up has no error")
        check(isinstance(timed.ended, ConnectionResetError), f"its error is {timed.ended}")


def cases(env):
    yield "a peer that has vanished", lambda: vanished(env)
    yield "a peer that keeps its window closed", lambda: closed_window(env)


if __name__ == "__main__":
    main(cases)
