#!/usr/bin/env python3
"""GET /health on the server of --metrics, for load balancers: 200 while a program serves, 503 and
the reason otherwise.

Usage: test_health.py BUILD_DIR SOURCE_DIR [CASE...]
"""

import contextlib
import pathlib
import signal
import subprocess

from harness import WAIT_MAX_S, check, chosen, command, eventually, main
from proxies import PORT, Peer, Tap, dial_proxy, echo_bytes, read_exactly
from stopped_shard import stopped_shard
from test_proxy_control import Control
from web import need_programs

AT = "127.0.0.1:9469"
OK = (200, "ok\n")


def ask(at=AT, path="/health", *words):
    """Returns the status and the body; status 0: nobody answers."""
    done = subprocess.run(["curl", "-sS", "--max-time", "60", "-w", "\n%{http_code}", *words,
                           f"http://{at}{path}"], check=False, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def await_health(wanted, at=AT):
    eventually(lambda: ask(at) == wanted, WAIT_MAX_S, lambda: f"not {wanted}: {ask(at)}")


def programs(source):
    """The programs that serve, and their options."""
    zone = pathlib.Path(source) / "tests/integration/dns.zone"
    return {"coronet-echo": ["--port", "7777"], "coronet-httpd": ["--port", "80"],
            "coronet-dns": ["--port", "53", "--zone", f"example.com={zone}"],
            "coronet-proxy": ["--port", "80", "--to", "10.9.0.2:80", "--health-interval", "0"]}


def every_program(env):
    """Every program that serves says so, by GET and HEAD, under both names."""
    need_programs("curl")
    for app, options in programs(env.args[0]).items():
        with env.running([env.app(app), "--link", f"ring:{app}", "--addr", "10.9.0.1/16",
                          "--poll", "adaptive", "--shards", "2", "--metrics", AT, *options]):
            for path in ("/health", "/healthz"):
                check(ask(AT, path) == OK, f"{app}: {ask(AT, path)}")
            status, head = ask(AT, "/health", "-I")
            check(status == 200 and "Content-Length: 3" in head and head.endswith("\n\n"),
                  f"{app}: {head}")
            check(ask(AT, "/x")[0] == 404, "/x")
            check("/health" in ask(AT, "/")[1], f"{ask(AT, '/')}")


def draining(env):
    """A program that drains says so until its last session has ended."""
    kind = Tap()
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, "--shards", "2", "--metrics", AT) as proxy, \
            dial_proxy(kind) as sock:
        sock.sendall(b"x")
        read_exactly(sock, 1)
        check(ask() == OK, f"{ask()}")
        proxy.signal(signal.SIGTERM)
        await_health((503, "draining\n"))
        status, head = ask(AT, "/health", "-I")
        check(status == 503 and "Content-Length: 9" in head, head)
        sock.sendall(b"y")
        check(read_exactly(sock, 1) == b"y", "the session has ended")
        check(ask() == (503, "draining\n"), f"{ask()}")
        sock.close()
        check(proxy.wait(WAIT_MAX_S) == 0, proxy.story())


def draining_server(env):
    """The same with a file that is being sent."""
    site = env.scratch / "site"
    site.mkdir()
    (site / "large").write_bytes(bytes(64 << 20))
    with env.running([env.app("coronet-httpd"), "--link", "tap:he0", "--addr", "10.9.0.1/16",
                      "--port", "80", "--root", site, "--poll", "adaptive", "--metrics",
                      AT]) as server:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "he0")
        command("ip", "link", "set", "he0", "up")
        with dial_proxy(Tap(), 80, SO_RCVBUF=65536) as sock:
            sock.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            read_exactly(sock, 1000)
            check(ask() == OK, f"{ask()}")
            server.signal(signal.SIGTERM)
            await_health((503, "draining\n"))
        check(server.wait(WAIT_MAX_S) == 0, server.story())


def no_backend(env):
    """A proxy without a usable backend says so, and serves again when one is up."""
    kind = Tap()
    control = Control(env)
    with Peer(kind, echo_bytes) as one, kind.serve(
            env, "--to", f"one={one.at}", "--health-interval", "0.5", "--fall", "1", "--rise",
            "1", "--metrics", AT, *control.options):
        await_health(OK)
        for end, begin in ((["one", "drain"], ["one", "ready"]),
                           (["weight", "one", "0"], ["weight", "one", "1"])):
            control("backend", *end)
            check(ask() == (503, "no backend is up\n"), f"{end}: {ask()}")
            control("backend", *begin)
            await_health(OK)  # a check may have failed on a busy machine
        one.__exit__()
        await_health((503, "no backend is up\n"))
        with Peer(kind, echo_bytes, port=one.port):
            await_health(OK)


def starting(env):
    """A program that waits for its link says that it starts."""
    path = env.scratch_for({}) / "m.sock"
    argv = [env.app("coronet-echo"), "--addr", "10.9.0.1/16", "--port", "7777", "--poll",
            "adaptive"]
    waiting = env.start([*argv, "--link", f"memif:{path},role=client", "--metrics", AT])
    await_health((503, "starting\n"))
    with env.running([*argv, "--link", f"memif:{path},role=server"]):
        waiting.wait_ready()
        await_health(OK)
        waiting.terminate()


def stopped(env):
    """A shard that does not run its loop is named."""
    kind = Tap()
    with kind.serve(env, "--to", f"{kind.near}:9", "--health-interval", "0", "--shards", "2",
                    "--metrics", AT) as proxy:
        with stopped_shard(proxy, 1):
            status, body = ask()
            check(status == 503 and body.startswith("shard 1 has not answered") and
                  body.count("\n") == 1, f"{status} {body}")
        await_health(OK)


def own_address(env):
    """The stack itself answers at one of its own addresses, also while it drains."""
    kind, at = Tap(), "10.9.0.1:9470"
    with Peer(kind, echo_bytes) as peer, kind.serve(
            env, "--to", peer.at, "--shards", "2", "--metrics", at) as proxy, \
            dial_proxy(kind) as sock:
        for _ in range(8):
            check(ask(at) == OK, f"{ask(at)}")
        sock.sendall(b"x")
        read_exactly(sock, 1)
        proxy.signal(signal.SIGTERM)
        await_health((503, "draining\n"), at)
        sock.close()
        check(proxy.wait(WAIT_MAX_S) == 0, proxy.story())


HAPROXY = """
defaults
	mode tcp
	timeout connect 5s
	timeout client 5s
	timeout server 5s
frontend all
	bind 127.0.0.1:9471
	default_backend proxies
backend proxies
	option httpchk GET /health
	http-check expect status 200
	server one {server} check port 9469 addr 127.0.0.1 inter 100ms fall 1 rise 1
	server two {other} backup
"""


def haproxy_checks(env):
    """haproxy takes a proxy that drains out of use, and so none of its clients is refused."""
    need_programs("haproxy")
    kind = Tap()
    config = env.scratch / "haproxy.cfg"
    with Peer(kind, echo_bytes) as peer, Peer(kind, echo_bytes) as spare, kind.serve(
            env, "--to", peer.at, "--metrics", AT) as proxy, contextlib.ExitStack() as later:
        config.write_text(HAPROXY.format(server=f"{kind.host}:{PORT}", other=spare.at))
        haproxy = env.start(["haproxy", "-db", "-f", config])
        later.callback(haproxy.kill)

        def is_served():
            with contextlib.suppress(OSError), dial_proxy(kind, 9471, "127.0.0.1") as sock:
                sock.sendall(b"x")
                return sock.recv(1) == b"x"
            return False
        eventually(lambda: is_served() and peer.seen, WAIT_MAX_S, haproxy.story)
        with dial_proxy(kind) as sock:
            sock.sendall(b"x")
            read_exactly(sock, 1)
            proxy.signal(signal.SIGTERM)
            eventually(lambda: is_served() and spare.seen, WAIT_MAX_S, haproxy.story)


CASES = [every_program, draining, draining_server, no_backend, starting, stopped, own_address,
         haproxy_checks]


def cases(env):
    yield from chosen(env, CASES, words=1)


if __name__ == "__main__":
    main(cases)
