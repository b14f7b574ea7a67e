"""epoll-echo or uring-echo, epoll-load and small peers, for tests on loopback.

The programs are the first two arguments of the script that imports this.
"""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

ECHO, LOAD = sys.argv[1:3]
NAME = "uring-echo" if "uring" in os.path.basename(ECHO) else "epoll-echo"
TIMEOUT = 120  # seconds until what has to come is missed: a bound for hangs
DRAIN_SECONDS = 5  # that the server waits for its peers at its end

# Memory that a peer that never reads may cost. uring-echo lets 64 buffers wait, and receives
# 32 more until its receive has ended. With older kernels or their flags it receives all of
# the pool, 16 MiB; sanitizers also keep the memory of copies that have grown.
STUCK_KIB = 2048
if NAME == "uring-echo":
    release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    STUCK_KIB = 49152 if release < (6, 10) or ECHO.endswith("older") else 5120


class Spoiled(AssertionError):
    """The attempt failed, maybe because the machine was busy."""


def in_a_quiet_moment(attempt):
    """Repeats an attempt while it is Spoiled; a wrong program spoils every one."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return attempt()
        except Spoiled:
            if time.monotonic() > deadline:
                raise


def wait_for(condition, message):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(message)
        time.sleep(0.01)


class Server:
    """The echo server on a free port."""

    def __init__(self, *options, addr="127.0.0.1", files=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        self.addr = addr
        self.expected_status = 0
        self.was_signalled = False
        self.process = subprocess.Popen(
            [ECHO, "--addr", addr, "--port", "0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=limit if files else None)
        self.line = self.process.stdout.readline()
        self.port = int(self.line.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """The server must end cleanly, whatever the test did."""
        with self.process:
            # A second signal would cut its draining short.
            if self.process.poll() is None and not self.was_signalled:
                self.process.terminate()
            try:
                status = self.process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
            if kind is None and status != self.expected_status:
                raise AssertionError(f"{NAME} ended with {status}: "
                                     + self.process.stderr.read())

    def connect(self):
        sock = socket.create_connection((self.addr, self.port), TIMEOUT)
        sock.settimeout(TIMEOUT)
        return sock

    def signal(self, number=signal.SIGTERM):
        self.was_signalled |= number in (signal.SIGTERM, signal.SIGINT)
        self.process.send_signal(number)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_kib(self):
        with open(f"/proc/{self.process.pid}/status",
                  encoding="ascii") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        return 0


class Peer:
    """A server in the test: `serve` handles each connection."""

    def __init__(self, serve):
        self.serve = serve
        self.accepted = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                self.accepted += 1
                threading.Thread(target=self.serve_one, args=[sock],
                                 daemon=True).start()

    def serve_one(self, sock):
        with sock, contextlib.suppress(OSError):
            self.serve(sock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def receive(sock, count):
    """Returns count bytes, or fewer at the end of the stream."""
    data = bytearray()
    while len(data) < count:
        piece = sock.recv(min(65536, count - len(data)))
        if not piece:
            break
        data += piece
    return bytes(data)


def receive_all(sock):
    return receive(sock, 1 << 40)


def reset_socket(sock):
    """Closes with a RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                    struct.pack("ii", 1, 0))
    sock.close()


def run_program(*argv, **more):
    return subprocess.run(argv, capture_output=True, text=True,
                          timeout=TIMEOUT, check=False, **more)


def command(port, *options, addr="127.0.0.1"):
    return [LOAD, "--target", f"{addr}:{port}", "--interval", "0", "--timeout",
            "60", "--report-limited", *options]


def run_load(port, *options, addr="127.0.0.1"):
    """Runs a short load; returns the exit status and the figures."""
    done = run_program(*command(port, "--seconds", "0.4", "--json", *options, addr=addr))
    return done.returncode, json.loads(done.stdout)


def load_enough(enough, port, *options, **more):
    """Runs a load, each time twice as long, until its figures suffice."""
    seconds = 0.4
    while True:
        status, figures = run_load(port, *options, "--seconds", f"{seconds}", **more)
        # Without a request in the time measured the status is 1, and there is no error.
        late = figures["requests"] == 0 and figures["errors"]["total"] == 0
        if (status != 0 and not late) or enough(figures) or seconds > TIMEOUT / 2:
            return status, figures
        seconds *= 2


def load_until(enough, port, *options):
    """Runs a load until the server has seen enough."""
    with subprocess.Popen(command(port, "--seconds", "3600", "--json", *options),
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: enough() or process.poll() is not None,
                     "the server never saw enough")
            if process.poll() is not None:
                raise AssertionError(f"epoll-load ended by itself: {process.returncode}")
        finally:
            process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=TIMEOUT)
    return process.returncode, json.loads(out)


def refusal():
    """Returns why the kernel refuses uring-echo; "" if it does not."""
    # An address of another machine: it ends at once either way.
    done = run_program(ECHO, "--addr", "192.0.2.1", "--port", "0")
    why = done.stderr.strip() if "refuses io_uring" in done.stderr else ""
    # A kernel that is recent enough has what it is asked for.
    recent = int(os.uname().release.split(".")[0]) >= 6
    return "" if recent and "Linux 6.0" in why else why


def main(*cases):
    """Runs all tests, or the named ones, and prints TAP; returns the exit status."""
    loader = unittest.defaultTestLoader
    tests = [test for case in cases
             for test in loader.loadTestsFromTestCase(case)]
    why = refusal()
    if why:
        print(f"1..0 # SKIP {why}")
        return 0
    names = sys.argv[3:]
    if names:
        tests = [t for t in tests if any(n in t.id() for n in names)]
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, test in enumerate(tests, 1):
        result = unittest.TestResult()
        begun = time.monotonic()
        test.run(result)
        good = result.wasSuccessful()
        failed += not good
        name = test.id().split(".", 1)[1]
        print(f"{'' if good else 'not '}ok {number} - {name}", flush=True)
        for _, trace in result.failures + result.errors:
            for line in trace.splitlines():
                print("#", line, flush=True)
        print(f"# {time.monotonic() - begun:.1f} s", flush=True)
    return 1 if failed else 0
