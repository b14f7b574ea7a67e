#!/usr/bin/env python3
"""Unmodified libraries in coroutines: hiredis, libcurl and libpq on the stack.

Usage: test_gateway.py BUILD_DIR

apps/examples/gateway.c serves clients that each have a library ask a server of this namespace's
kernel, over a TAP: redis-server, nginx, PostgreSQL. Many ask at once; one thread answers.
"""

import contextlib
import ctypes
import glob
import os
import pathlib
import pwd
import re
import selectors
import shutil
import socket
import subprocess

from harness import WAIT_MAX_S, Failure, Skip, check, command, comment, eventually, main, preload_of

OURS, KERNELS, PORT = "10.9.0.1", "10.9.1.1", 7000
REDIS, HTTP, SQL = 6379, 8080, 5432
AT_ONCE = 1000
SANITIZED_AT_ONCE = 100


@contextlib.contextmanager
def gateway(env, number, path="apps/example-gateway", **environment):
    """Runs the example at the other end of a TAP."""
    link = f"gw{number}"
    with env.running([env.build / path, "--link", f"tap:{link}", "--addr",
                      f"{OURS}/16", "--poll", "adaptive"],
                     env={**os.environ, **environment}) as program:
        command("ip", "addr", "add", f"{KERNELS}/16", "dev", link)
        command("ip", "link", "set", link, "up")
        yield program


class Client:
    """A client with one request."""

    def __init__(self, question, wanted):
        self.wanted, self.got = wanted.encode() + b"\n", b""
        self.sock = socket.create_connection((OURS, PORT), WAIT_MAX_S)
        self.question = question.encode() + b"\n"

    def read(self):
        """Reads; returns True at the end of the stream."""
        data = self.sock.recv(4096)
        self.got += data
        return not data


def ask_all(questions):
    """All clients connect, then all send their request at once, and each gets its own answer."""
    clients = [Client(*each) for each in questions]
    selector = selectors.DefaultSelector()
    for client in clients:
        client.sock.sendall(client.question)
        selector.register(client.sock, selectors.EVENT_READ, client)
    while selector.get_map():
        ready = selector.select(WAIT_MAX_S)
        check(ready, f"{len(selector.get_map())} of {len(clients)} have no answer")
        for key, _ in ready:
            if key.data.read():
                selector.unregister(key.fileobj)
                key.fileobj.close()
    wrong = [client for client in clients if client.got != client.wanted]
    if wrong:
        raise Failure(f"{len(wrong)} of {len(clients)} answers are wrong, one is "
                      f"{wrong[0].got!r} to {wrong[0].question!r}")


def expect_summary(program, clients):
    program.terminate()
    summary = re.search(r"served (\d+), at most (\d+) at a time, with (\d+) KiB",
                     program.output("stdout"))
    check(summary, f"no summary: {program.story()}")
    check(int(summary[1]) == clients, f"served {summary[1]} of {clients}")
    check(int(summary[2]) == clients, f"{summary[2]} of {clients} at a time")
    comment(summary[0])
    return int(summary[3])


STACK_KIB = 256  # of STACK_BYTES in gateway.c


def how_many(env):
    return SANITIZED_AT_ONCE if env.sanitized else AT_ONCE


def with_redis(env, n, number, **environment):
    with gateway(env, number, **environment) as program, env.running(
            ["redis-server", "--port", REDIS, "--bind", KERNELS, "--save", "", "--protected-mode",
             "no", "--maxclients", 5000, "--daemonize", "no", "--dir", env.scratch,
             "--tcp-backlog", 4096], ready=".*Ready to accept connections.*"):
        ask_all([(f"redis {KERNELS} {REDIS} key{i}", f"value of key{i}")
                 for i in range(n)])
        return expect_summary(program, n)


NGINX = """daemon off; master_process off; pid {scratch}/nginx.pid; error_log stderr;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {scratch}/a; proxy_temp_path {scratch}/b;
fastcgi_temp_path {scratch}/c; uwsgi_temp_path {scratch}/d; scgi_temp_path {scratch}/e;
server {{ listen {address}:{port} backlog=4096;
location / {{ return 200 "this is $uri\\n"; }} }} }}
"""


def with_nginx(env, n, number, **environment):
    config = env.scratch / "nginx.conf"
    config.write_text(NGINX.format(scratch=env.scratch, address=KERNELS, port=HTTP))
    with gateway(env, number, **environment) as program:
        nginx = env.start([shutil.which("nginx") or "/usr/sbin/nginx", "-c", config,
                           "-e", "stderr"])
        try:
            eventually(lambda: accepts(HTTP), WAIT_MAX_S, nginx.story)
            ask_all([(f"http http://{KERNELS}:{HTTP}/page{i}", f"this is /page{i}")
                     for i in range(n)])
            return expect_summary(program, n)
        finally:
            nginx.kill()


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection((KERNELS, port), 1):
        return True
    return False


@contextlib.contextmanager
def postgres(env, connections, number):
    """A PostgreSQL server, run by an unprivileged user."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    if not found:
        raise Skip("PostgreSQL is not installed")
    tools, data = pathlib.Path(found[-1]).parent, env.scratch / f"pg{number}"
    user = {}
    if not os.getuid() and "4294967295" in pathlib.Path("/proc/self/uid_map").read_text():
        entry = pwd.getpwnam("postgres")
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    data.mkdir()
    if user:
        os.chown(data, user["user"], user["group"])
    done = subprocess.run([tools / "initdb", "-D", data, "-U", "test", "-A", "trust", "-N"],
                          capture_output=True, text=True, check=False, cwd="/", **user)
    check(done.returncode == 0, f"initdb: {done.stdout}{done.stderr}")
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("host all all 10.9.0.0/16 trust\n")
    argv = [tools / "postgres", "-D", data, "-h", KERNELS, "-p", SQL, "-k", data]
    for option in (f"max_connections={connections}", "shared_buffers=64MB", "fsync=off",
                   "max_wal_senders=0", "autovacuum=off"):
        argv += ["-c", option]
    server = env.start(argv, cwd="/", **user)
    try:
        # It accepts connections before it serves them; its last line says which.
        state = data / "postmaster.pid"
        eventually(lambda: state.exists() and state.read_text().rstrip().endswith("ready"),
                   WAIT_MAX_S, server.story)
        yield server
    finally:
        server.terminate()


def with_postgres(env, n, number, **environment):
    with gateway(env, number, **environment) as program, postgres(env, n + 10, number):
        connect = f"host={KERNELS} port={SQL} user=test dbname=postgres gssencmode=disable"
        ask_all([(f"sql {connect}; SELECT 'row ' || {i}", f"row {i}") for i in range(n)])
        return expect_summary(program, n)


def stacks_are_measured(env):
    """Measures the stack use of each library, which leaves much of the stack."""
    for number, case in enumerate((with_redis, with_nginx, with_postgres), 5):
        used = case(env, 10, number, CORO_MEASURE_STACKS="1")
        check(0 < used < STACK_KIB / 2, f"{case.__name__}: {used} KiB of {STACK_KIB}")


def preloaded(env):
    """The sockets library comes by LD_PRELOAD instead of being linked."""
    library = env.build / "netstack/libcoronet-sockets.so"
    with_redis(env, 10, 8, path="tests/integration/gateway-preloaded",
               LD_PRELOAD=preload_of(library))


def errors_are_reported(env):
    """The libraries report the stack's errors in their own words."""
    curl = ctypes.CDLL("libcurl.so.4")
    curl.curl_easy_strerror.restype = ctypes.c_char_p
    could_not_connect = curl.curl_easy_strerror(7).decode()
    with gateway(env, 4):
        ask_all([(f"redis {KERNELS} 1 x", "Connection refused"),
                 (f"http http://{KERNELS}:1/", f"error: {could_not_connect}"),
                 ("what", "error: expected redis, http or sql")])


def cases(env):
    if not (env.build / "apps/example-gateway").exists():
        yield "libraries", lambda: (_ for _ in ()).throw(Skip("example-gateway is not built"))
        return
    for number, case in enumerate((with_redis, with_nginx, with_postgres), 1):
        yield case.__name__.replace("_", " "), lambda number=number, case=case: case(
            env, how_many(env), number)
    for case in (errors_are_reported, stacks_are_measured, preloaded):
        yield case.__name__.replace("_", " "), lambda case=case: case(env)


if __name__ == "__main__":
    main(cases)
