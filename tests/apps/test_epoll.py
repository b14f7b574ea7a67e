#!/usr/bin/env python3
"""epoll-echo and epoll-load on the loopback interface.

Usage: test_epoll.py ECHO EPOLL_LOAD [NAME...]; prints TAP. ECHO is epoll-echo or
uring-echo, which pass the same tests. Every load is short and bounded; every
process is ended by the test that started it.
"""

import contextlib
import fcntl
import itertools
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import unittest

from epoll_pair import (DRAIN_SECONDS, ECHO, LOAD, NAME, STUCK_KIB, TIMEOUT, Peer, Server, Spoiled,
                        command, in_a_quiet_moment, load_enough, load_until, main, receive,
                        receive_all, reset_socket, run_load, run_program, wait_for)


class Echo(unittest.TestCase):

    def assert_echoes(self, sock, data=b"are you there?"):
        sock.sendall(data)
        self.assertEqual(receive(sock, len(data)), data)

    def test_announces_where_it_listens(self):
        with Server() as server:
            self.assertGreater(server.port, 0)
            self.assertEqual(server.line,
                             f"listening on 127.0.0.1:{server.port}\n")

    def test_half_closed_client_gets_every_byte_and_the_end(self):
        data = random.Random(1).randbytes(8 << 20)
        with Server() as server, server.connect() as sock:
            def send():
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            self.assertTrue(receive_all(sock) == data)
            sender.join()

    def test_a_thousand_connections(self):
        with Server() as server, contextlib.ExitStack() as stack:
            socks = [stack.enter_context(server.connect())
                     for _ in range(1000)]
            for i, sock in enumerate(socks):
                sock.sendall(b"%08d" % i)
            for i, sock in enumerate(socks):
                self.assertEqual(receive(sock, 8), b"%08d" % i)

    def test_peer_that_never_reads_uses_bounded_memory(self):
        data = random.Random(2).randbytes(1 << 20)
        with Server() as server, server.connect() as stuck:
            before = server.resident_kib()
            stuck.settimeout(1)
            sent = 0
            with self.assertRaises(TimeoutError):
                while True:
                    sent += stuck.send(data[sent % len(data):])
            with server.connect() as sock:
                self.assert_echoes(sock)
            self.assertLess(server.resident_kib() - before, STUCK_KIB)
            # When it reads at last, nothing is missing.
            stuck.settimeout(TIMEOUT)
            stuck.shutdown(socket.SHUT_WR)
            back = receive_all(stuck)
            self.assertEqual(len(back), sent)
            repeated = data * (sent // len(data) + 1)
            self.assertTrue(back == repeated[:sent])

    def test_flooding_client_does_not_starve_others(self):
        with Server() as server, server.connect() as flood:
            def pump():
                with contextlib.suppress(OSError):
                    while True:
                        flood.sendall(bytes(1 << 20))

            def drain():
                with contextlib.suppress(OSError):
                    while flood.recv(1 << 20):
                        pass

            threads = [threading.Thread(target=f) for f in (pump, drain)]
            for thread in threads:
                thread.start()
            with server.connect() as sock:
                for _ in range(20):
                    self.assert_echoes(sock)
            flood.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()

    def test_a_reset_ends_one_connection_only(self):
        with Server() as server, server.connect() as other:
            for _ in range(50):
                sock = server.connect()
                sock.sendall(bytes(100000))
                reset_socket(sock)
            self.assert_echoes(other)

    def test_ipv6(self):
        with Server(addr="::1") as server, server.connect() as sock:
            self.assertEqual(server.line,
                             f"listening on [::1]:{server.port}\n")
            self.assert_echoes(sock)

    @unittest.skipIf(NAME == "uring-echo", "it has no --udp")
    def test_datagrams_are_echoed_by_every_thread(self):
        with Server("--udp", "--threads", "2") as server:
            for size in (0, 1, 1000, 9000):
                for _ in range(8):
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                        sock.settimeout(TIMEOUT)
                        sock.connect((server.addr, server.port))
                        data = os.urandom(size)
                        sock.send(data)
                        self.assertEqual(sock.recv(65536), data)

    def test_threads_share_the_port(self):
        with Server("--threads", "3") as server, \
                contextlib.ExitStack() as stack:
            for _ in range(60):
                self.assert_echoes(stack.enter_context(server.connect()))
            server.signal()
            stack.close()
            self.assertEqual(server.process.wait(TIMEOUT), 0)

    def test_out_of_files_is_survived(self):
        with Server(files=40) as server, contextlib.ExitStack() as stack:
            socks = [stack.enter_context(server.connect())
                     for _ in range(60)]
            self.assert_echoes(socks[0])
            # It waits for free descriptors without using a core.
            before = server.cpu_seconds()
            time.sleep(0.5)
            self.assertLess(server.cpu_seconds() - before, 0.1)
            socks[-1].sendall(b"later")
            for sock in socks[:50]:
                sock.close()
            self.assertEqual(receive(socks[-1], 5), b"later")

    def test_port_in_use_is_one_line_and_status_1(self):
        with Server("--threads", "2") as server:
            for options in ([], ["--threads", "2"]):
                done = run_program(ECHO, "--addr", "127.0.0.1",
                           "--port", str(server.port), *options)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stdout, "")
                self.assertEqual(
                    done.stderr, f"{NAME}: cannot listen on 127.0.0.1 port "
                    f"{server.port}: Address already in use\n")

    def test_an_address_of_another_machine_is_status_1(self):
        done = run_program(ECHO, "--addr", "192.0.2.1")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_wrong_options_are_one_line_and_status_2(self):
        for words in ("--port 65536", "--port http", "--port -1",
                      "--addr nowhere", "--addr 1.2.3", "--threads 0",
                      "--threads 257", "--cpu x", "--cpu 1023", "--fast",
                      "--port", "extra"):
            done = run_program(ECHO, *words.split())
            with self.subTest(words):
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertIn(words.split()[-1].lstrip("-"), done.stderr)

    def test_version_and_help(self):
        for program in (ECHO, LOAD):
            self.assertRegex(run_program(program, "--version").stdout,
                             r"^(epoll|uring)-\w+ \(coronet\) \d+\.\d+\.\d+\n$")
            done = run_program(program, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn("Usage:", done.stdout)

    def test_either_signal_ends_it_with_status_0(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Server() as server:
                server.signal(number)
                self.assertEqual(server.process.wait(TIMEOUT), 0)

    def test_draining_echoes_received_bytes_and_closes(self):
        data = random.Random(3).randbytes(16 << 20)
        with Server() as server, server.connect() as sock, \
                server.connect() as idle:
            self.assert_echoes(idle)
            sock.settimeout(0.5)
            sent = arrived = 0
            # Send until the socket is full, with a minimum.
            while arrived <= 1 << 20:
                with contextlib.suppress(TimeoutError):
                    while sent < len(data):
                        sent += sock.send(data[sent:])
                left = fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4))
                arrived = sent - int.from_bytes(left, sys.byteorder)
            server.signal()
            self.assertEqual(receive_all(idle), b"")
            idle.close()
            sock.settimeout(TIMEOUT)
            back = receive_all(sock)
            self.assertTrue(back == data[:len(back)])
            self.assertGreaterEqual(len(back), arrived)
            with self.assertRaises(ConnectionRefusedError):
                server.connect()
            sock.close()
            self.assertEqual(server.process.wait(TIMEOUT), 0)

    def test_draining_serves_clients_in_the_backlog(self):
        with Server() as server, contextlib.ExitStack() as stack:
            server.signal(signal.SIGSTOP)
            socks = [stack.enter_context(server.connect())
                     for _ in range(200)]
            for sock in socks:
                sock.sendall(b"late")
            server.signal()
            server.signal(signal.SIGCONT)
            for sock in socks:
                self.assertEqual(receive_all(sock), b"late")

    def test_draining_echoes_bytes_that_still_arrive(self):
        def attempt():
            begun = time.monotonic()
            with Server() as server, server.connect() as sock:
                self.assert_echoes(sock)
                server.signal()
                self.assertEqual(receive_all(sock), b"")
                try:
                    for _ in range(5):
                        sock.sendall(bytes(1000))
                        time.sleep(0.05)
                    sock.shutdown(socket.SHUT_WR)
                except OSError as error:
                    if time.monotonic() - begun < DRAIN_SECONDS:
                        raise
                    raise Spoiled(f"{error} after the time to drain") from None
                self.assertEqual(server.process.wait(TIMEOUT), 0)

        in_a_quiet_moment(attempt)

    def test_a_second_signal_does_not_wait(self):
        def attempt():
            begun = time.monotonic()
            with Server() as server, server.connect() as stuck:
                self.assert_echoes(stuck)
                server.signal()
                self.assertEqual(receive_all(stuck), b"")
                # It waits for our end, which does not come.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.process.wait(0.3)
                server.signal()
                status = server.expected_status = server.process.wait(TIMEOUT)
                if status == 0 and time.monotonic() - begun > DRAIN_SECONDS:
                    raise Spoiled("the time to drain was over before")
                self.assertEqual(status, 1)

        in_a_quiet_moment(attempt)

    def test_draining_ends_even_if_a_peer_does_not(self):
        with Server() as server, server.connect() as stuck:
            self.assert_echoes(stuck)
            server.signal()
            self.assertEqual(server.process.wait(TIMEOUT), 0)


class Load(unittest.TestCase):

    def assert_clean(self, status, figures):
        self.assertEqual(figures["errors"]["total"], 0)
        self.assertEqual(status, 0)

    def test_echo_closed_loop(self):
        with Server() as server:
            status, figures = load_enough(lambda f: f["requests"] > 5000,
                                          server.port, "--verify")
        self.assert_clean(status, figures)
        self.assertEqual(figures["tool"], "epoll-load")
        self.assertGreater(figures["requests"], 5000)
        self.assertEqual(figures["requests"] * 64, figures["bytes"])
        self.assertEqual(figures["open_at_end"], 64)
        latency = figures["latency_us"]
        self.assertEqual(latency["samples"], figures["requests"])
        order = [latency[key] for key in
                 ("min", "p50", "p90", "p99", "p999", "p9999", "max")]
        self.assertEqual(order, sorted(order))
        # Little's law: at most 64 wait at a time, fewer if the load generator
        # itself is kept waiting by a busy machine. A request of each may have
        # begun before the time that is measured.
        waiting = figures["requests_per_s"] * latency["mean"] / 1e6
        before = latency["max"] / 1e6 / figures["seconds"]
        self.assertLess(waiting, 64 * (1.1 + before))
        self.assertGreater(waiting, 64 / 10)

    def test_echo_of_a_thousand_connections_over_ipv6(self):
        with Server(addr="::1") as server:
            status, figures = load_enough(lambda f: f["requests"] > 0, server.port, "--verify",
                                      "--conns", "1000", "--size", "100", addr="[::1]")
        self.assert_clean(status, figures)
        self.assertEqual(figures["opened"], 1000)

    def test_echo_of_large_requests(self):
        with Server() as server:
            status, figures = load_enough(lambda f: f["requests"] > 3,
                                          server.port, "--verify", "--conns", "3",
                                          "--size", "3000000")
        self.assert_clean(status, figures)
        self.assertGreater(figures["requests"], 3)

    def test_cps(self):
        with Server() as server:
            status, figures = load_enough(lambda f: f["requests"] > 100,
                                          server.port, "--verify", "--mode", "cps",
                                          "--conns", "10")
        self.assert_clean(status, figures)
        self.assertGreater(figures["requests"], 100)
        self.assertGreaterEqual(figures["opened"], figures["requests"])

    def test_idle(self):
        with Server() as server:
            status, figures = run_load(server.port, "--mode", "idle", "--conns",
                                   "500", "--verify")
        self.assert_clean(status, figures)
        self.assertEqual(figures["open_at_end"], 500)
        self.assertEqual(figures["requests"], 0)
        self.assertEqual(figures["latency_us"]["samples"], 500)

    def test_bulk(self):
        with Server() as server:
            status, figures = load_enough(lambda f: f["bytes"] > 10 << 20,
                                          server.port, "--mode", "bulk", "--conns",
                                          "3", "--verify")
        self.assert_clean(status, figures)
        self.assertGreater(figures["bytes"], 10 << 20)
        self.assertIsNone(figures["latency_us"]["p50"])

    def assert_pace(self, times, begun, rate):
        """Request number N is not sent before it is due, N / rate after the
        start; when it should be sent exactly, test_load_stats.c has."""
        for number, came in enumerate(sorted(times)):
            self.assertGreaterEqual(came, begun + number / rate, f"request {number}")

    def test_open_loop_keeps_its_rate(self):
        rate = 1000

        def attempt(options):
            with Server() as server:
                status, figures = run_load(server.port, "--verify", "--rate",
                                       f"{rate}", "--seconds", "1", *options)
            self.assert_clean(status, figures)
            reached = figures["requests_per_s"]
            self.assertLessEqual(reached, rate * 1.05)
            if reached < rate * 0.95:
                raise Spoiled(f"{reached} requests/s instead of {rate}")

        for options in (["--conns", "20"], ["--conns", "7", "--mode", "cps"]):
            in_a_quiet_moment(lambda o=options: attempt(o))

    def test_open_loop_measures_from_the_scheduled_time(self):
        def attempt():
            times = []

            def stall(sock):
                while data := sock.recv(64):
                    times.append(time.monotonic())
                    if len(times) == 20:
                        time.sleep(0.5)
                    sock.sendall(data)

            begun = time.monotonic()
            with Peer(stall) as peer:
                status, figures = load_until(lambda: len(times) >= 300, peer.port,
                                             "--conns", "1", "--rate", "200")
            self.assert_clean(status, figures)
            self.assert_pace(times, begun, 200)
            # A hundred were due while the server slept, and waited 0 to 0.5 s.
            if figures["requests"] > 500:
                raise Spoiled(f"{figures['requests']} requests hide those hundred")
            self.assertGreater(figures["latency_us"]["p90"], 200000)
            self.assertGreater(figures["latency_us"]["max"], 400000)

        in_a_quiet_moment(attempt)

    def refused(self, *words):
        """A run that reports nothing, since the generator was the limit."""
        done = run_program(LOAD, *words)
        if done.returncode != 3:
            raise Spoiled(f"exit status {done.returncode}: {done.stdout}")
        return done

    def test_busy_generator_reports_no_figures(self):
        # The load generates and verifies every byte, the server none, and it
        # has so many bytes in flight that it never waits: it is the limit.
        with Server("--threads", "2") as server:
            words = ["--target", f"127.0.0.1:{server.port}", "--verify",
                     "--size", "200000", "--conns", "32", "--interval", "0",
                     "--seconds", "0.5", "--timeout", "60"]
            done = in_a_quiet_moment(lambda: self.refused(*words))
            self.assertRegex(done.stdout, r"no report +the generator was "
                             r"itself the limit: busy \d+ % of one core")
            self.assertRegex(done.stdout, r"errors +none")
            self.assertNotRegex(done.stdout, "latency|requests")
            done = in_a_quiet_moment(lambda: self.refused(*words, "--json"))
            figures = json.loads(done.stdout)
            self.assertIn("itself the limit", figures["refused"])
            self.assertIsNone(figures["requests_per_s"])
            self.assertIsNone(figures["latency_us"]["p99"])
            self.assertTrue(figures["generator_limited"])

            def limited():
                done = run_program(LOAD, *words, "--report-limited")
                self.assertEqual(done.returncode, 0)
                if "at least" not in done.stdout:
                    raise Spoiled(done.stdout)
                self.assertRegex(done.stdout, r"requests .* at least [\d,]+/s")

            in_a_quiet_moment(limited)

    def test_idle_generator_reports_figures(self):
        # The server is slow, so that the generator's busy share is small.
        def take_time(sock):
            while data := sock.recv(64):
                time.sleep(0.02)
                sock.sendall(data)

        def attempt():
            with Peer(take_time) as peer:
                done = run_program(LOAD, "--target", f"127.0.0.1:{peer.port}", "--rate",
                           "80", "--conns", "4", "--seconds", "1", "--interval",
                           "0", "--json", "--timeout", "60")
            figures = json.loads(done.stdout)
            self.assertEqual(figures["errors"]["total"], 0)
            if done.returncode == 3:
                raise Spoiled(f"refused: {figures['refused']}")
            return done.returncode, figures

        status, figures = in_a_quiet_moment(attempt)
        self.assert_clean(status, figures)
        self.assertIsNone(figures["refused"])
        self.assertFalse(figures["generator_limited"])
        self.assertGreater(figures["requests_per_s"], 0)
        self.assertGreater(figures["latency_us"]["p50"], 20000)

    def test_open_loop_shows_a_server_that_stopped(self):
        def attempt():
            with Server() as server:
                began = time.monotonic()
                with subprocess.Popen(
                        command(server.port, "--json", "--rate", "1000", "--conns",
                                "10", "--seconds", "2", "--interval", "0.2"),
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                    # A stop before it sends would be shorter for its first requests.
                    while "(opening)" in process.stderr.readline():
                        pass
                    server.signal(signal.SIGSTOP)
                    time.sleep(0.3)
                    server.signal(signal.SIGCONT)
                    stopped_until = time.monotonic() - began
                    out, _ = process.communicate(timeout=TIMEOUT)
            figures = json.loads(out)
            self.assert_clean(process.returncode, figures)
            latency = figures["latency_us"]
            if stopped_until > 1.9:  # the run may have ended before the stop did
                raise Spoiled(f"the stop ended after {stopped_until:.1f} s")
            # Those due meanwhile were 300 of 2,000, and waited 0 to 300 ms.
            if not 1960 <= figures["requests"] <= 2040 or latency["p50"] > 60000 or \
                    latency["p999"] > 600000:
                raise Spoiled(f"{figures['requests']} requests, {latency}")
            self.assertGreater(latency["p999"], 270000, (stopped_until, figures))
            self.assertGreater(latency["p90"], 60000)

        in_a_quiet_moment(attempt)

    def test_ramp_opens_evenly(self):
        def attempt():
            times = []
            begun = time.monotonic()
            with Peer(lambda sock: (times.append(time.monotonic()),
                                    sock.recv(1))) as peer:
                run_load(peer.port, "--mode", "idle", "--conns", "100", "--ramp", "1")
                # The peer's threads may be behind the load.
                wait_for(lambda: len(times) >= 100, "connections are missing")
            self.assertEqual(len(times), 100)
            # Each is due a hundredth of the second after the one before.
            self.assert_pace(times, begun, 100)
            late = max(came - min(times) - number / 100
                       for number, came in enumerate(sorted(times)))
            if late > 0.15:
                raise Spoiled(f"a connection was opened {late:.3f} s late")

        in_a_quiet_moment(attempt)

    def test_progress_rewrites_one_line_on_a_terminal(self):
        ours, theirs = os.openpty()
        line = r"\r +\d+ s +[\d,]+ req/s"
        with Server() as server, subprocess.Popen(
                command(server.port, "--seconds", "3600", "--interval", "0.2"),
                stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
            os.close(theirs)
            shown = ""
            while len(re.findall(line, shown)) < 3:
                shown += os.read(ours, 65536).decode()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=TIMEOUT)
            with contextlib.suppress(OSError):  # its end of the terminal is closed
                while more := os.read(ours, 65536).decode():
                    shown += more
        os.close(ours)
        # One more ends the line, so that what follows begins its own.
        self.assertTrue(shown.startswith("\r"))
        self.assertEqual(shown.count("\n"), 1)
        self.assertTrue(shown.endswith("\n"))

    def test_ramp_and_warmup_are_not_measured(self):
        with Server() as server:
            begun = time.monotonic()
            status, figures = run_load(server.port, "--ramp", "0.5", "--warmup",
                                   "0.5")
            took = time.monotonic() - begun
        self.assert_clean(status, figures)
        self.assertGreaterEqual(figures["seconds"], 0.4)
        # The last of the ramp's 64 is opened a 64th before its end.
        self.assertLess(figures["seconds"], took - 0.95)

    def test_wrong_byte_is_detected(self):
        def corrupt(sock):
            for i in range(1000000):
                data = bytearray(sock.recv(64))
                if not data:
                    return
                data[-1] ^= i == 5
                sock.sendall(data)

        with Peer(corrupt) as peer:
            status, figures = load_until(lambda: peer.accepted >= 6, peer.port,
                                         "--conns", "2", "--verify")
        self.assertEqual(status, 1)
        self.assertGreaterEqual(figures["errors"]["verify"], 2)

    def test_surplus_bytes_are_detected(self):
        def chatter(sock):
            while sock.recv(64):
                sock.sendall(bytes(65))

        with Peer(chatter) as peer:
            status, figures = load_until(lambda: peer.accepted >= 6, peer.port,
                                         "--conns", "2")
        self.assertEqual(status, 1)
        self.assertGreaterEqual(figures["errors"]["verify"], 2)

    def test_failures_are_counted_by_kind(self):
        def hang_up(sock):
            sock.recv(64)

        def break_off(sock):
            sock.recv(64)
            reset_socket(sock)

        def be_silent(sock):
            while sock.recv(64):
                pass

        for serve, kind in ((hang_up, "closed"), (break_off, "reset"),
                            (be_silent, "timeout")):
            for mode in ("echo", "cps", "bulk"):
                if (kind, mode) == ("closed", "bulk"):
                    continue  # with bytes unread, hanging up is a reset
                timeout = "0.2" if kind == "timeout" else "60"
                with Peer(serve) as peer, self.subTest(kind, mode=mode):
                    # Each connection fails and comes back.
                    status, figures = load_until(
                        lambda p=peer: p.accepted >= 6, peer.port, "--conns",
                        "2", "--timeout", timeout, "--mode", mode)
                    self.assertEqual(status, 1)
                    self.assertGreaterEqual(figures["errors"][kind], 2)
                    self.assertEqual(figures["errors"][kind],
                                     figures["errors"]["total"])

    def test_idle_reports_connections_that_the_server_closes(self):
        missed = []

        def leave(sock):
            sock.shutdown(socket.SHUT_WR)
            receive_all(sock)
            missed.append(sock)

        with Peer(leave) as peer:
            status, figures = load_until(lambda: len(missed) == 5, peer.port,
                                         "--mode", "idle", "--conns", "5")
        self.assertEqual(status, 1)
        self.assertEqual(figures["errors"]["closed"], 5)
        self.assertEqual(figures["open_at_end"], 0)

    def test_connections_come_back_after_a_failure(self):
        served, echoed = [], []

        def serve_once(sock):
            served.append(sock)
            if len(served) > 2:
                while data := sock.recv(64):
                    sock.sendall(data)
                    echoed.append(data)

        with Peer(serve_once) as peer:
            status, figures = load_until(
                lambda: len(served) == 4 and len(echoed) > 20, peer.port,
                "--conns", "2", "--verify")
        self.assertEqual(status, 1)
        self.assertEqual(figures["errors"]["total"], 2)
        self.assertEqual(figures["open_at_end"], 2)
        self.assertGreater(figures["requests"], 10)

    def test_no_listener_ends_at_once_with_status_1(self):
        with Server() as server:
            port = server.port
        for mode in ("echo", "cps", "idle", "bulk"):
            status, figures = run_load(port, "--mode", mode, "--seconds", "3600")
            self.assertEqual(status, 1)
            self.assertEqual(figures["errors"]["refused"], 64)

    def test_wrong_options_are_one_line_and_status_2(self):
        target = "--target 127.0.0.1:7 "
        for words in ("", "--target no/where:7", target + "--conns 0",
                      target + "--mode flood", target + "--cpu 1023",
                      target + "--fast", target + "extra"):
            done = run_program(LOAD, *words.split())
            with self.subTest(words):
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_more_connections_than_files_is_refused(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))

        options = ["--target", "127.0.0.1:7", "--conns"]
        done = run_program(LOAD, *options, "190", preexec_fn=limit)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("--conns '190': expected at most 184", done.stderr)
        # The soft limit is no reason: it can be raised.
        with Server() as server:
            done = run_program(*command(server.port, "--mode", "idle", "--conns", "180",
                                "--seconds", "0.2"), preexec_fn=limit)
            self.assertEqual(done.returncode, 0)

    def test_progress_and_text(self):
        with Server() as server, subprocess.Popen(
                command(server.port, "--seconds", "3600", "--interval", "0.2"),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            opened = itertools.dropwhile(lambda line: "(opening)" in line, process.stderr)
            lines = list(itertools.islice(opened, 3))
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0)
        for line in lines:
            self.assertRegex(line, r"^ +\d+ s  [\d,]+ req/s  64 conns  "
                                   r"0 errors  p99 [\d.]+ [um]?s"
                                   r"(  generator \d+ % busy)?$")
        self.assertRegex(out, r"requests +[\d,]+, (at least )?[\d,]+/s")
        self.assertRegex(out, r"errors +none")

    def test_a_signal_ends_the_run_with_its_report(self):
        def attempt():
            echoed = []

            def echo(sock):
                while data := sock.recv(64):
                    sock.sendall(data)
                    echoed.append(data)

            with Peer(echo) as peer:
                status, figures = load_until(lambda: len(echoed) > 1000, peer.port)
            self.assertEqual(status, 0)
            self.assertTrue(figures["interrupted"])
            self.assertLess(figures["seconds"], 3600)
            if figures["requests"] <= 100:
                raise Spoiled(f"{figures['requests']} requests since it measures")

        in_a_quiet_moment(attempt)


if __name__ == "__main__":
    sys.exit(main(Echo, Load))
