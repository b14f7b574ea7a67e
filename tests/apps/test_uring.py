#!/usr/bin/env python3
"""What only uring-echo can do: be refused by the kernel, run out of buffers.

Usage: test_uring.py URING_ECHO EPOLL_LOAD [NAME...]; prints TAP. The rest is
tested by test_epoll.py, whose echo tests run against uring-echo as well.
"""

import contextlib
import ctypes
import errno
import random
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

from epoll_pair import ECHO, Server, TIMEOUT, receive, receive_all, main

IO_URING_SETUP = 425         # asm/unistd.h
PR_SET_NO_NEW_PRIVS = 38     # linux/prctl.h
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2      # linux/seccomp.h
RET_ERRNO, RET_ALLOW = 0x50000, 0x7fff0000


def refuse_io_uring(error):
    """From here on io_uring_setup(2) fails so, as a container's profile has it."""
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


class Uring(unittest.TestCase):

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
        """They find the small pool empty, and then have nothing to say."""
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

    def test_peers_that_never_read_leave_buffers_to_the_others(self):
        """More of them than the small pool has buffers."""
        data = random.Random(1).randbytes(1 << 16)

        def fill(socks):
            """Sends until the server takes no more from any: how much that was."""
            sent = [0] * len(socks)
            for sock in socks:
                sock.setblocking(False)
            still = 0
            while still < 20:
                before = sum(sent)
                for i, sock in enumerate(socks):
                    with contextlib.suppress(BlockingIOError):
                        sent[i] += sock.send(data[sent[i] % len(data):])
                still = still + 1 if sum(sent) == before else 0
                if still:  # a slow machine that had no time may take more yet
                    time.sleep(0.01)
            for sock in socks:
                sock.settimeout(TIMEOUT)
            return sent

        with Server() as server, contextlib.ExitStack() as stack:
            stuck = [stack.enter_context(server.connect()) for _ in range(6)]
            sent = fill(stuck)
            with server.connect() as sock:
                for _ in range(20):
                    sock.sendall(data[:3000])
                    self.assertEqual(receive(sock, 3000), data[:3000])
            # When they read at last, nothing is missing and nothing changed places.
            for sock, count in zip(stuck, sent):
                sock.shutdown(socket.SHUT_WR)
                back = receive_all(sock)
                self.assertEqual(len(back), count)
                self.assertTrue(back == (data * (count // len(data) + 1))[:count])


if __name__ == "__main__":
    sys.exit(main(Uring))
