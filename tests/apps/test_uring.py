#!/usr/bin/env python3
"""Behaviour of uring-echo alone: refusal by the kernel, and exhausted buffers.

Usage: test_uring.py URING_ECHO EPOLL_LOAD [NAME...]; prints TAP. The rest is
tested by test_epoll.py, whose echo tests run against uring-echo as well.
"""

import contextlib
import ctypes
import errno
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

from epoll_pair import (ECHO, STUCK_KIB, TIMEOUT, Server, main, receive, receive_all, reset_socket,
                        wait_for)

IO_URING_SETUP = 425         # asm/unistd.h
PR_SET_NO_NEW_PRIVS = 38     # linux/prctl.h
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2      # linux/seccomp.h
RET_ERRNO, RET_ALLOW = 0x50000, 0x7fff0000


def refuse_io_uring(error):
    """Makes io_uring_setup(2) fail from now on, as a container's profile does."""
    # Load the number; is it that of io_uring_setup? the error : allowed.
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in (
        (0x20, 0, 0, 0), (0x15, 0, 1, IO_URING_SETUP),
        (0x06, 0, 0, RET_ERRNO | error), (0x06, 0, 0, RET_ALLOW)))
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or \
            libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program):
        raise OSError(ctypes.get_errno(), "prctl")


def fill(socks, data, most=1 << 30, piece=1 << 20):
    """Sends data over and over, at most a piece at a time, until the server takes no more
    from any, or it has taken `most` bytes of one: how much that was."""
    sent = [0] * len(socks)
    for sock in socks:
        sock.setblocking(False)
    still = 0
    while still < 20 and max(sent) < most:
        before = sum(sent)
        for i, sock in enumerate(socks):
            with contextlib.suppress(BlockingIOError):
                at = sent[i] % len(data)
                sent[i] += sock.send(data[at:at + piece])
        if piece < 1 << 20:
            time.sleep(0.0002)  # so that one piece is echoed before the next comes
        still = still + 1 if sum(sent) == before else 0
        if still:  # a slow machine that had no time may take more yet
            time.sleep(0.01)
    for sock in socks:
        sock.settimeout(TIMEOUT)
    return sent


class Uring(unittest.TestCase):

    def assert_comes_back(self, sock, data, count):
        """The bytes that fill() sent are complete and in order."""
        sock.shutdown(socket.SHUT_WR)
        back = receive_all(sock)
        self.assertEqual(len(back), count)
        self.assertTrue(back == (data * (count // len(data) + 1))[:count])

    def test_a_refusal_is_one_line_with_a_way_out_and_status_1(self):
        for error, text, way_out in (
                (errno.EPERM, "Operation not permitted", "seccomp|io_uring_disabled"),
                (errno.ENOSYS, "Function not implemented", "seccomp|io_uring_disabled"),
                (errno.ENOMEM, "Cannot allocate memory", "ulimit -l"),
                (errno.EINVAL, "Invalid argument", "Linux 6.0")):
            done = subprocess.run(
                [ECHO, "--addr", "127.0.0.1", "--port", "0"], timeout=TIMEOUT,
                capture_output=True, text=True, check=False,
                preexec_fn=lambda error=error: refuse_io_uring(error))
            with self.subTest(text):
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stdout, "")
                self.assertTrue(done.stderr.startswith(
                    f"uring-echo: the kernel refuses io_uring: {text}; "), done.stderr)
                self.assertRegex(done.stderr, way_out)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_idle_peers_without_a_buffer_hold_up_nobody(self):
        """The peers find the small pool empty, and send nothing afterwards."""
        with Server() as server, contextlib.ExitStack() as stack:
            server.signal(signal.SIGSTOP)  # so that all come at once

            def client():
                return stack.enter_context(server.connect())

            first = [client() for _ in range(4)]
            for sock in first:
                sock.sendall(b"early")
            for _ in range(8):
                client()
            last = client()
            last.sendall(b"late")
            server.signal(signal.SIGCONT)
            last.settimeout(TIMEOUT / 4)
            self.assertEqual(receive(last, 4), b"late")
            for sock in first:
                self.assertEqual(receive(sock, 5), b"early")
            for sock in (last, *first):
                sock.close()

    def test_a_peer_that_never_reads_holds_a_bounded_number_of_buffers(self):
        """One variant sends less at a time than it receives: only the server bounds its queue."""
        data = random.Random(2).randbytes(1 << 20)
        most = 128 << 20
        with Server() as server, server.connect() as stuck:
            before = server.resident_kib()
            sent = fill([stuck], data, most)[0]
            self.assertLess(sent, most)
            self.assertLess(server.resident_kib() - before, STUCK_KIB)
            self.assert_comes_back(stuck, data, sent)

    def test_a_slow_sender_that_never_reads_is_stopped(self):
        """The queue is short: only copied data shows that the peer does not read."""
        data = random.Random(3).randbytes(1 << 20)
        most = 64 << 20
        with Server() as server, server.connect() as stuck:
            before = server.resident_kib()
            sent = fill([stuck], data, most, piece=8192)[0]
            self.assertLess(sent, most)
            self.assertLess(server.resident_kib() - before, STUCK_KIB)
            self.assert_comes_back(stuck, data, sent)

    def test_connections_that_were_reset_are_closed(self):
        with Server() as server, server.connect() as first:
            def files():
                return len(os.listdir(f"/proc/{server.process.pid}/fd"))

            first.sendall(b"ready?")  # then its ring is open, too
            self.assertEqual(receive(first, 6), b"ready?")
            before = files()
            for _ in range(20):
                sock = server.connect()
                fill([sock], bytes(1 << 20), 12 << 20)
                reset_socket(sock)
            wait_for(lambda: files() == before, "the server has not closed all connections")

    def test_peers_that_never_read_leave_buffers_to_the_others(self):
        """There are more such peers than buffers in the small pool."""
        data = random.Random(1).randbytes(1 << 16)

        with Server() as server, contextlib.ExitStack() as stack:
            stuck = [stack.enter_context(server.connect()) for _ in range(6)]
            sent = fill(stuck, data)
            with server.connect() as sock:
                for _ in range(20):
                    sock.sendall(data[:3000])
                    self.assertEqual(receive(sock, 3000), data[:3000])
            for sock, count in zip(stuck, sent):
                self.assert_comes_back(sock, data, count)


if __name__ == "__main__":
    sys.exit(main(Uring))
