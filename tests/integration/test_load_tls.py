#!/usr/bin/env python3
"""The load tools and the echo servers with TLS and HTTP, on both stacks, and nginx.

Usage: test_load_tls.py BUILD_DIR
"""

import contextlib
import functools
import itertools
import json
import os
import re
import socket
import ssl
import urllib.request

import certs
from harness import WAIT_MAX_S, check, command, eventually, main
from web import Nginx, random_file

NAME = "server.test"
SERVER, NEAR, LOAD = "10.9.0.1", "10.9.1.1", "10.9.1.9"
PORT, HTTPS_PORT = 7777, 8443
BULK = 3 << 20
IP_FREEBIND = 15  # which Python's socket does not name


class Tool:
    """A load tool, and its server's address."""

    def __init__(self, env, words, at, port):
        self.env, self.words, self.at, self.port = env, words, at, port

    def start(self, *options):
        return self.env.start([*self.words, "--target", f"{self.at}:{self.port}", "--interval", "0",
                               "--report-limited", "--json", "--timeout", WAIT_MAX_S, *options])

    def run(self, *options, seconds=0.5):
        """Returns the exit status and the report."""
        program = self.start("--seconds", seconds, *options)
        status = program.wait(WAIT_MAX_S)
        check(program.output("stdout"), program.story())
        return status, json.loads(program.output("stdout"))

    def longer(self, is_done, *options):
        """Runs for longer each time, until the report is what the test waits for."""
        found, seconds = [], itertools.accumulate(itertools.repeat(0.5))

        def once():
            found[:] = self.run(*options, seconds=next(seconds))
            return is_done(*found)
        eventually(once, WAIT_MAX_S, lambda: f"{options}: {found}")
        return found

    def serves(self, done, *options):
        """Runs until something was done; there must be no error."""
        def is_done(status, report):
            check(report["errors"]["total"] == 0, f"{options}: {report['errors']}")
            return status == 0 and report[done] > 0
        return self.longer(is_done, *options)[1]

    def fails(self, kind, *options):
        """Runs until a connection has ended; each must end with this error."""
        status, report = self.longer(lambda status, report: report["errors"]["total"],
                                     "--conns", "4", *options)
        errors = report["errors"]
        check(status == 1 and report["requests"] == 0 and errors["total"] == errors[kind],
              f"{options}: status {status}, {errors}")


def new_pair(env):
    return certs.make_pair(env, "server", f"DNS:{NAME}", f"IP:{SERVER}", "IP:127.0.0.1")


def cert_options(pair):
    return ["--tls-cert", pair[0], "--tls-key", pair[1]]


def new_listener(stack, at="127.0.0.1"):
    """A listener for one program: connections of an earlier one would wait in its backlog."""
    listener = stack.enter_context(socket.socket())
    listener.settimeout(WAIT_MAX_S)
    listener.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
    listener.bind((at, 0))
    listener.listen()
    return listener


def listening_port(server):
    return int(re.search(r"listening on \S+:(\d+)", server.output("stdout")).group(1))


@contextlib.contextmanager
def coronet_over_memif(env, program, port, options, shards=1):
    path = env.scratch_for({}) / "l.sock"
    more = ["--shards", shards, "--poll", "adaptive", "--memory", "512M"]
    with env.running([env.app(program), "--link", f"memif:{path},role=server", "--addr",
                      f"{SERVER}/16", *options, *more]) as server:
        yield Tool(env, [env.app("coronet-load"), "--link", f"memif:{path}", "--addr",
                         f"{LOAD}/16", *more], SERVER, port)
        check(server.alive(), server.story())
        server.terminate()


@contextlib.contextmanager
def epoll_pair(env, options):
    with env.running([env.app("epoll-echo"), "--addr", "127.0.0.1", "--port", "0", "--threads",
                      "2", *options], ready="listening on.*") as server:
        command("ip", "link", "set", "lo", "up")
        yield Tool(env, [env.app("epoll-load"), "--threads", "2"], "127.0.0.1",
                   listening_port(server))
        check(server.alive(), server.story())
        server.terminate()


@contextlib.contextmanager
def echo_over(env, path, options):
    """A pair of the path: epoll, memif, or memif with two shards."""
    if path == "epoll":
        with epoll_pair(env, options) as tool:
            yield tool
    else:
        with coronet_over_memif(env, "coronet-echo", PORT, ["--port", PORT, *options],
                                shards=2 if path == "shards" else 1) as tool:
            yield tool


def trust(env):
    return ["--tls-ca", env.scratch / "ca.pem", "--tls-name", NAME]


def echoes(env, path):
    """Every mode, with every byte verified where bytes come back."""
    with echo_over(env, path, cert_options(new_pair(env))) as tool:
        for options in ((), ("--size", "100000", "--conns", "8"), ("--mode", "cps"),
                        ("--mode", "bulk", "--conns", "4", "--size", "5000"),
                        ("--rate", "500")):
            tool.serves("bytes", *trust(env), "--verify", *options)
        report = tool.serves("opened", *trust(env), "--mode", "idle", "--conns", "100")
        check(report["tls"] and report["open_at_end"] == 100, f"idle: {report}")
        tool.serves("requests", "--tls")  # without verifying


def certificates_that_do_not_fit(env, path):
    """Another name, another CA, and no TLS at either side."""
    certs.make_ca(env, "other")
    pair = new_pair(env)
    with echo_over(env, path, cert_options(pair)) as tool:
        tool.fails("tls", "--tls-ca", env.scratch / "ca.pem", "--tls-name", "other.test")
        tool.fails("tls", "--tls-ca", env.scratch / "other.pem", "--tls-name", NAME)
        tool.serves("requests", *trust(env))
    with echo_over(env, path, []) as tool:
        tool.fails("tls", "--tls")


def ciphers(env, path):
    """--tls-ciphers decides what is agreed on, which Python's server sees."""
    pair = new_pair(env)
    context = certs.server_context(*pair)
    command("ip", "link", "set", "lo", "up")
    agreed = (("TLS_AES_256_GCM_SHA384", "TLSv1.3"),
              ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2"),
              ("ECDHE-ECDSA-AES128-GCM-SHA256:TLS_CHACHA20_POLY1305_SHA256", "TLSv1.3"))
    if path == "epoll":
        at = "127.0.0.1"
        words = [env.app("epoll-load")]
    else:
        at = NEAR
        words = [env.app("coronet-load"), "--link", "tap:lc0", "--addr", f"{LOAD}/16", "--poll",
                 "adaptive"]
    for names, version in agreed:
        with contextlib.ExitStack() as stack:
            listener = new_listener(stack, at)
            tool = Tool(env, words, at, listener.getsockname()[1])
            load = tool.start("--conns", "1", "--seconds", "3600", "--tls-ciphers", names,
                              *trust(env))
            if path != "epoll":
                eventually(lambda: "lc0" in [name for _, name in socket.if_nameindex()],
                           WAIT_MAX_S, load.story)
                command("ip", "addr", "replace", f"{NEAR}/16", "dev", "lc0")
                command("ip", "link", "set", "lc0", "up")
            sock, _ = listener.accept()
            sock.settimeout(WAIT_MAX_S)
            with context.wrap_socket(sock, server_side=True) as peer:
                cipher, spoken, _ = peer.cipher()
                check(peer.version() == version and cipher in names.split(":"),
                      f"{names}: {cipher}, {spoken}")
                peer.sendall(peer.recv(64))
                check(peer.recv(64), "no second request")
            load.kill()


def truncated(env):
    """A server that ends without close_notify has broken TLS; one that sends it has closed."""
    pair = new_pair(env)
    context = certs.server_context(*pair)
    command("ip", "link", "set", "lo", "up")
    for kind, shut in (("tls", False), ("closed", True)):
        with contextlib.ExitStack() as stack:
            listener = new_listener(stack)
            tool = Tool(env, [env.app("epoll-load")], "127.0.0.1", listener.getsockname()[1])
            load = tool.start("--conns", "1", "--seconds", "3600", "--tls")
            sock, _ = listener.accept()
            sock.settimeout(WAIT_MAX_S)
            peer = context.wrap_socket(sock, server_side=True)
            check(peer.recv(64), "no request")
            if shut:
                with contextlib.suppress(ssl.SSLError, OSError):
                    peer.settimeout(0)
                    peer.unwrap()
            os.close(peer.detach())
            again, _ = listener.accept()  # the slot has failed, and comes back
            again.close()
            load.signal(15)
            check(load.wait(WAIT_MAX_S) == 1, load.story())
            errors = json.loads(load.output("stdout"))["errors"]
            check(errors[kind] >= 1, f"shut {shut}: {errors}")


def resumed(env):
    """Connections one after another resume sessions only with --tls-resume."""
    pair = new_pair(env)
    context = certs.server_context(*pair)
    command("ip", "link", "set", "lo", "up")
    count = {}
    for options in ((), ("--tls-resume",)):
        with contextlib.ExitStack() as stack:
            listener = new_listener(stack)
            tool = Tool(env, [env.app("epoll-load")], "127.0.0.1", listener.getsockname()[1])
            load = tool.start("--conns", "1", "--seconds", "3600", "--mode", "cps", "--tls",
                              *options)
            for _ in range(10):
                sock, _ = listener.accept()
                sock.settimeout(WAIT_MAX_S)
                with context.wrap_socket(sock, server_side=True) as peer:
                    peer.sendall(peer.recv(64))
                    count[options] = count.get(options, 0) + peer.session_reused
                    peer.recv(1)  # the end
            load.kill()
    check(count == {(): 0, ("--tls-resume",): 9}, f"resumed: {count}")


def counter(name):
    """The sum of a counter of the page for Prometheus, over all shards and labels given."""
    with urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=WAIT_MAX_S) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines
               if re.match(name + r"[{ ]", line) and ('result=' not in line
                                                      or 'result="done"' in line))


def resumed_by_coronet(env, path):
    """The server's counters say how many handshakes were resumed."""
    shards = 2 if path == "shards" else 1
    with coronet_over_memif(env, "coronet-echo", PORT,
                            ["--port", PORT, "--metrics", "127.0.0.1:9464",
                             *cert_options(new_pair(env))], shards) as tool:
        command("ip", "link", "set", "lo", "up")
        tool.serves("requests", *trust(env), "--mode", "cps", "--conns", "16")
        done = counter("coronet_tls_handshakes_total")
        check(done > 0 and counter("coronet_tls_resumed_total") == 0, "resumed without the option")
        report = tool.serves("requests", *trust(env), "--mode", "cps", "--conns", "16",
                             "--tls-resume", "--seconds", "3")
        more = counter("coronet_tls_resumed_total")
        # each connection begins with a full handshake, and a refused one may follow at the end
        check(more >= report["requests"] - 64,
              f"{more} resumed of {counter('coronet_tls_handshakes_total') - done}: {report}")


def make_site(env):
    root = env.scratch / "site"
    root.mkdir(exist_ok=True)
    (root / "small.txt").write_bytes(b"x" * 128)
    (root / "empty").write_bytes(b"")
    random_file(root / "bulk.bin", BULK)
    return root


def requests(env, tool, tls):
    """Responses of all sizes, in all modes that have any, and refused ones."""
    options = [*trust(env)] if tls else []
    for path in ("/small.txt", "/empty"):
        report = tool.serves("requests", "--http", path, *options)
        check(report["bytes"] >= report["requests"] * (100 if path == "/small.txt" else 20),
              f"{path}: {report}")
    report = tool.serves("requests", "--http", "/bulk.bin", "--conns", "4", *options)
    # the measurement begins within the responses of the four
    check(report["bytes"] >= BULK * (report["requests"] - 4), f"bulk: {report}")
    tool.serves("requests", "--http", "/small.txt", "--mode", "cps", *options)
    tool.serves("requests", "--http", "/small.txt", "--rate", "500", *options)
    report = tool.serves("opened", "--http", "/small.txt", "--mode", "idle", "--conns", "50",
                         *options)
    check(report["open_at_end"] == 50, f"idle: {report}")
    tool.fails("verify", "--http", "/none", *options)


def http_over_memif(env, tls):
    pair = new_pair(env)
    with coronet_over_memif(
            env, "coronet-httpd", HTTPS_PORT if tls else 8080,
            ["--root", make_site(env), "--port", "8080", "--tls-port", HTTPS_PORT,
             *cert_options(pair)]) as tool:
        requests(env, tool, tls)


def http_on_loopback(env, tls):
    command("ip", "link", "set", "lo", "up")
    pair = new_pair(env)
    with Nginx(env, "127.0.0.1", HTTPS_PORT, make_site(env), pair=pair if tls else ()):
        requests(env, Tool(env, [env.app("epoll-load")], "127.0.0.1", HTTPS_PORT), tls)


def refused_options(env):
    """Each wrong combination is refused with one line that says what to do."""
    load = [env.app("epoll-load"), "--target", "127.0.0.1:1"]
    pair = new_pair(env)
    for words, expected in (
            ([*load, "--tls-name", "a.test"], "--tls-name is for TLS: add --tls"),
            ([*load, "--tls-ciphers", "TLS_AES_128_GCM_SHA256"], "--tls-ciphers is for TLS"),
            ([*load, "--tls-ciphers", "a b", "--tls"], "--tls-ciphers 'a b': expected names"),
            ([*load, "--tls-ciphers", "NONE", "--tls"], "--tls-ciphers: no cipher match"),
            ([*load, "--tls-ca", pair[1]], "no certificate"),
            ([*load, "--http", "index"], "--http 'index': expected a path"),
            ([*load, "--http", "/a b"], "--http '/a b': expected a path"),
            ([*load, "--http", "/", "--verify"], "not with --mode bulk, --verify and --size"),
            ([*load, "--http", "/", "--size", "64"], "not with --mode bulk, --verify and --size"),
            ([env.app("epoll-echo"), *cert_options(pair), "--udp"], "no --udp"),
            ([env.app("epoll-echo"), "--tls-cert", pair[1]], "epoll-echo: "),
            ([env.app("coronet-echo"), "--link", "ring:r0", "--addr", "10.9.0.1/16", "--tls-cert",
              pair[1]], "is no certificate in PEM"),
            ([env.app("coronet-load"), "--link", "ring:r0", "--addr", "10.9.0.1/16", "--target",
              "10.9.0.2:1", "--tls", "--udp"], "without --rate, --verify, --http and --tls")):
        program = env.start(words)
        status = program.wait(WAIT_MAX_S)
        error = program.output("stderr").strip()
        check(status == 2 and expected in error and error.count("\n") <= 1,
              f"status {status}, not '{expected}': {program.story()}")


def cases(env):
    bind = functools.partial
    for path in ("memif", "shards", "epoll"):
        yield f"{path}, echoes", bind(echoes, env, path)
    for path in ("memif", "epoll"):
        yield f"{path}, certificates that do not fit", bind(certificates_that_do_not_fit, env,
                                                            path)
        yield f"{path}, ciphers", bind(ciphers, env, path)
    yield "epoll, a truncated connection", bind(truncated, env)
    yield "epoll, resumed sessions", bind(resumed, env)
    for path in ("memif", "shards"):
        yield f"{path}, resumed sessions", bind(resumed_by_coronet, env, path)
    for tls in (False, True):
        word = "HTTPS" if tls else "HTTP"
        yield f"memif, {word} of coronet-httpd", bind(http_over_memif, env, tls)
        yield f"epoll, {word} of nginx", bind(http_on_loopback, env, tls)
    yield "refused options", bind(refused_options, env)


if __name__ == "__main__":
    main(cases)
