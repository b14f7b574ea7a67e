#!/usr/bin/env python3
"""Unmodified programs of Debian on the stack, by coronet-run.

Usage: test_run.py BUILD_DIR

Over a TAP they talk to the kernel of this namespace, as clients and as servers; over memif to each
other.
"""

import contextlib
import errno
import functools
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading

from harness import WAIT_MAX_S, Skip, check, command, eventually, main

OURS, KERNELS = "10.9.0.1", "10.9.1.1"
OURS6, KERNELS6 = "fd00:9::1", "fd00:9::1:1"
BIG = 8 << 20
numbers = iter(range(1000))


def need_programs(*programs):
    for program in programs:
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
            raise Skip(f"{program} is not installed")


def listening(address, port):
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True


def without_leaks():
    """Disables leak checks for foreign programs, which may not free memory at their end."""
    return {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def bring_up(link, program, address=f"{KERNELS}/16"):
    """Configures the kernel's end of a TAP as soon as the program has made it."""
    eventually(lambda: link in [name for _, name in socket.if_nameindex()] or not program.alive(),
               WAIT_MAX_S, program.story)
    trouble = ""

    def try_command(*words):
        nonlocal trouble
        result = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
        trouble = f"ip {' '.join(words)}: {result.stderr}"
        # A program without requests may have ended.
        return result.returncode == 0 or not program.alive()

    for words in (["addr", "replace", address, "dev", link],
                  ["addr", "replace", f"{KERNELS6}/64", "dev", link, "nodad"],
                  ["link", "set", link, "up"]):
        eventually(lambda w=words: try_command(*w), WAIT_MAX_S, lambda: trouble + program.story())


def trouble_of(program):
    """Returns where the threads of a hanging program wait, and the state of the kernel's end."""
    said = [program.story()]
    for task in sorted(pathlib.Path(f"/proc/{program.process.pid}/task").iterdir()):
        with contextlib.suppress(OSError):
            said.append(" ".join((task / part).read_text().strip()
                                 for part in ("comm", "wchan", "syscall")))
    for words in (["ip", "addr"], ["ip", "route"], ["ip", "neigh"], ["ip", "-s", "link"],
                  ["ss", "-tan"],
                  ["gdb", "-batch", "-p", program.process.pid, "-ex", "thread apply all bt 20"]):
        if shutil.which(words[0]):
            done = subprocess.run([str(word) for word in words], check=False, capture_output=True,
                                  text=True)
            said.append(f"{words[0]} {words[1]}:\n{done.stdout[-6000:]}")
    return "\n".join(said)


def exactly(sock, wanted):
    got = b""
    while len(got) < len(wanted):
        part = sock.recv(len(wanted) - len(got))
        check(part, f"closed after {got!r}")
        got += part
    check(got == wanted, f"{got!r} in place of {wanted!r}")


class OnTap:
    """Runs programs on the stack, each at the other end of its own TAP."""

    def __init__(self, env):
        self.env = env

    def start(self, *words, options=(), **popen_args):
        link = f"run{next(numbers)}"
        path = f"{os.environ['PATH']}:/usr/sbin"
        popen_args["env"] = {**os.environ, "PATH": path, **without_leaks(),
                             **popen_args.get("env", {})}
        program = self.env.start(
            [self.env.app("coronet-run"), "--link", f"tap:{link}", "--addr", f"{OURS}/16",
             "--addr", f"{OURS6}/64", "--poll", "adaptive", *options, *words], **popen_args)
        program.link = link
        bring_up(link, program)
        return program

    @contextlib.contextmanager
    def server(self, port, *words, **more):
        program = self.start(*words, **more)
        try:
            eventually(lambda: listening(OURS, port) or not program.alive(), WAIT_MAX_S,
                       lambda: f"does not listen: {trouble_of(program)}")
            check(program.alive(), f"ended: {program.story()}")
            yield program
        finally:
            program.kill()

    def client(self, *words, status=0, **more):
        """Runs a client to its end; returns its output."""
        program = self.start(*words, **more)
        got = program.wait(WAIT_MAX_S)
        check(got == status, f"status {got}: {program.story()}")
        return program.output("stdout")


@contextlib.contextmanager
def kernel_server(env, port, *words, **more):
    path = f"{os.environ['PATH']}:/usr/sbin"
    program = env.start(words, **{**more, "env": {**os.environ, "PATH": path}})
    try:
        eventually(lambda: listening("127.0.0.1", port) or not program.alive(), WAIT_MAX_S,
                   lambda: f"does not listen: {program.story()}")
        check(program.alive(), f"ended: {program.story()}")
        yield program
    finally:
        program.kill()


def ends_by_sigterm(program, status=0):
    program.signal(signal.SIGTERM)
    got = program.wait(WAIT_MAX_S)
    check(got == status, f"status {got} after SIGTERM: {program.story()}")


# ---- redis ----

def redis_server(address):
    return ["redis-server", "--bind", address, "--port", 6379, "--save", "", "--protected-mode",
            "no"]


def benchmarked(text):
    rates = re.findall(r'^"(?:SET|GET)","([\d.]+)"', text, re.MULTILINE)
    check(len(rates) == 2 and all(float(rate) > 0 for rate in rates), f"no rates: {text}")


BENCHMARK = ["-t", "set,get", "-n", 4000, "-c", 20, "--csv"]


def redis_serves(env):
    need_programs("redis-server", "redis-benchmark", "redis-cli")
    with OnTap(env).server(6379, *redis_server(OURS)) as server:
        benchmarked(command("redis-benchmark", "-h", OURS, *BENCHMARK))
        check(command("redis-cli", "-h", OURS, "set", "name", "value").strip() == "OK", "no OK")
        check(command("redis-cli", "-h", OURS, "get", "name").strip() == "value", "no value")
        ends_by_sigterm(server)


def redis_asks(env):
    need_programs("redis-server", "redis-benchmark")
    with kernel_server(env, 6379, *redis_server("0.0.0.0")):
        benchmarked(OnTap(env).client("redis-benchmark", "-h", KERNELS, *BENCHMARK))


# ---- HTTP ----

NGINX = """daemon off; master_process off; worker_processes 1; pid {folder}/pid; {user}
error_log stderr;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
        fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
        server {{ listen {port}; listen [::]:{port}; root {folder}; sendfile on; }} }}
"""


def folder_of(env):
    folder = pathlib.Path(env.scratch_for({}))
    (folder / "small").write_text("hello\n")
    (folder / "big").write_bytes(os.urandom(BIG))
    return folder


def nginx_command(folder, port):
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "conf").write_text(NGINX.format(folder=folder, port=port, user=user))
    return ["nginx", "-p", folder, "-e", "stderr", "-c", folder / "conf"]


def fetches(folder, address, port):
    """curl fetches small and large files, several at a time, over both families."""
    for host in (address, f"[{OURS6}]" if address == OURS else f"[{KERNELS6}]"):
        url = f"http://{host}:{port}"
        check(command("curl", "-sS", f"{url}/small") == "hello\n", f"{url}/small differs")
        command("curl", "-sS", "-Z", "--parallel-max", "4", *[
            word for n in range(4) for word in ("-o", folder / f"got{n}", f"{url}/big")])
        for n in range(4):
            check((folder / f"got{n}").read_bytes() == (folder / "big").read_bytes(),
                  f"{url}/big differs")


def nginx_serves(env):
    need_programs("nginx", "curl", "wrk")
    folder = folder_of(env)
    with OnTap(env).server(8080, *nginx_command(folder, 8080)) as server:
        fetches(folder, OURS, 8080)
        text = command("wrk", "-t1", "-c32", "-d2", f"http://{OURS}:8080/small")
        check("Requests/sec" in text and "Socket errors" not in text, text)
        ends_by_sigterm(server)


def children(program):
    pid = program.process.pid
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return list(map(int, text.split()))


def only_child(program, old):
    """Returns the program's child if it has one, and not the old one; otherwise None."""
    found = children(program)
    return found[0] if len(found) == 1 and found != [old] else None


def nginx_in_child(env):
    """Its master process binds and listens, and its worker has the stack. After a reload, or if
    the worker dies, a new worker has it."""
    need_programs("nginx", "curl")
    folder = folder_of(env)
    words = nginx_command(folder, 8080)
    conf = (folder / "conf").read_text().replace("master_process off", "master_process on")
    (folder / "conf").write_text(conf)
    program = OnTap(env).start(*words, options=("--in-child",))
    try:
        eventually(lambda: listening(OURS, 8080), WAIT_MAX_S, program.story)
        fetches(folder, OURS, 8080)
        old, = children(program)
        for number, pid in ((signal.SIGHUP, program.process.pid), (signal.SIGKILL, None)):
            os.kill(pid or old, number)
            old = eventually(lambda: only_child(program, old), WAIT_MAX_S, program.story)
            bring_up(program.link, program)
            eventually(lambda: listening(OURS, 8080), WAIT_MAX_S, program.story)
            fetches(folder, OURS, 8080)
        ends_by_sigterm(program)
    finally:
        workers = children(program) if program.alive() else []
        program.kill()
        for pid in workers:  # of a case that failed: they would keep the link
            os.kill(pid, signal.SIGKILL)


def python_serves(env):
    """Python serves each request in a thread, on a socket that the main thread accepted."""
    folder = folder_of(env)
    with OnTap(env).server(8000, "python3", "-m", "http.server", "--bind", "::", 8000,
                           cwd=folder):
        fetches(folder, OURS, 8000)


def curl_fetches(env):
    need_programs("nginx", "curl")
    folder, run = folder_of(env), OnTap(env)
    with kernel_server(env, 8081, *nginx_command(folder, 8081)):
        for host in (KERNELS, f"[{KERNELS6}]"):
            url = f"http://{host}:8081"
            check(run.client("curl", "-sS", f"{url}/small") == "hello\n", "the file differs")
            run.client("curl", "-sS", "-Z", "-o", folder / "got0", f"{url}/big", "-o", folder / "got1",
                       f"{url}/big")
            for name in ("got0", "got1"):
                check((folder / name).read_bytes() == (folder / "big").read_bytes(), "differs")
        run.client("curl", "-sS", f"http://{KERNELS}:9/", status=7)  # refused


def wget_fetches(env):
    need_programs("nginx", "wget")
    folder, run = folder_of(env), OnTap(env)
    with kernel_server(env, 8081, *nginx_command(folder, 8081)):
        run.client("wget", "-q", "-O", folder / "got", f"http://{KERNELS}:8081/big")
        check((folder / "got").read_bytes() == (folder / "big").read_bytes(), "the file differs")


HAPROXY = """global
    nbthread 2
defaults
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    mode http
frontend f
    bind *:8080
    bind :::8080 v6only
    default_backend b
backend b
    server s {kernels}:8081
"""


def haproxy_proxies(env):
    need_programs("nginx", "haproxy", "curl")
    folder = folder_of(env)
    (folder / "haproxy.cfg").write_text(HAPROXY.format(kernels=KERNELS))
    with kernel_server(env, 8081, *nginx_command(folder, 8081)), \
            OnTap(env).server(8080, "haproxy", "-db", "-f", folder / "haproxy.cfg") as server:
        fetches(folder, OURS, 8080)
        server.signal(signal.SIGUSR1)  # soft stop
        check(server.wait(WAIT_MAX_S) == 0, server.story())


def haproxy_on_both_sides(env):
    """haproxy alternates between servers on the kernel and on the stack, and reuses socket numbers
    for both."""
    need_programs("nginx", "haproxy", "curl")
    folder = folder_of(env)
    text = (HAPROXY.format(kernels=KERNELS).replace("mode http", "mode http\n    option httpclose")
            + "    server k 127.0.0.1:8081\n")
    (folder / "haproxy.cfg").write_text(text)
    with kernel_server(env, 8081, *nginx_command(folder, 8081)), \
            OnTap(env).server(8080, "haproxy", "-db", "-f", folder / "haproxy.cfg"):
        for turn in range(20):
            status = command("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}",
                             f"http://{OURS}:8080/small")
            check(status == "200", f"request {turn + 1} is answered with {status}")


# ---- streams ----

def received(text):
    """Returns the receiver's bits per second, by iperf3."""
    found = re.search(r"([\d.]+) ([KMG]?)bits/sec +receiver", text)
    check(found and float(found[1]) > 0, f"nothing received: {text}")


def iperf3(env):
    """iperf3 opens a listener for each test."""
    need_programs("iperf3")
    run, mores = OnTap(env), ([], ["-R"], ["-P", 4], ["--bidir"])

    def measure_each(server, port, client):
        for number, more in enumerate(mores, 1):
            eventually(lambda n=number: f"(test #{n})" in server.output("stdout"), WAIT_MAX_S,
                       server.story)
            received(client(["-p", port, "-n", "20M", *more]))

    server = run.start("iperf3", "-s", "--forceflush", "-p", 5201)
    measure_each(server, 5201, lambda words: command("iperf3", "-c", OURS, *words))
    server.signal(signal.SIGTERM)  # its handler leaves by longjmp()
    check(server.wait(WAIT_MAX_S) in (0, 1) and "interrupt" in server.output("stderr"),
          server.story())
    server = env.start(["iperf3", "-s", "--forceflush", "-p", "5202"])
    measure_each(server, 5202, lambda words: run.client("iperf3", "-c", KERNELS, *words))
    server.kill()


def netcat(env):
    """netcat sends a file in each direction: all bytes arrive, though the program has ended."""
    need_programs("nc")
    folder, run = folder_of(env), OnTap(env)
    data = (folder / "big").read_bytes()
    with socket.create_server(("0.0.0.0", 7000)) as listener, (folder / "big").open("rb") as big:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)  # nc has to wait for it
        got = bytearray()

        def receive_all():
            sock = listener.accept()[0]
            while part := sock.recv(1 << 16):
                got.extend(part)
            sock.sendall(b"thanks\n")
            sock.close()
        thread = threading.Thread(target=receive_all, daemon=True)
        thread.start()
        text = run.client("nc", "-N", KERNELS, 7000, stdin=big)
        thread.join(WAIT_MAX_S)
        check(got == data, f"{len(got)} of {len(data)} bytes arrived")
        check(text == "thanks\n", f"the answer: {text!r}")
    server = run.start("nc", "-l", OURS, 7001)
    eventually(lambda: subprocess.run(["nc", "-N", OURS, "7001"], check=False,
                                      input=data, capture_output=True).returncode == 0,
               WAIT_MAX_S, server.story)
    check(server.wait(WAIT_MAX_S) == 0, server.story())
    check(server.paths["stdout"].read_bytes() == data, "what nc received differs")


# ---- memcached ----

def ask(sock, text, until):
    sock.sendall(text)
    got = b""
    while not got.endswith(until):
        part = sock.recv(1 << 16)
        check(part, f"closed after {got[-100:]!r}")
        got += part
    return got


def memcached(env):
    """memcached's worker is another thread than the accepting one."""
    need_programs("memcached")
    user = ["-u", "root"] if os.getuid() == 0 else []
    with OnTap(env).server(11211, "memcached", "-t", 4, "-l", OURS, "-U", 0, *user) as server:
        socks = [socket.create_connection((OURS, 11211), WAIT_MAX_S) for _ in range(20)]
        value = os.urandom(100000)
        for n, sock in enumerate(socks):
            head = f"set k{n} 0 0 {len(value)}\r\n".encode()
            check(ask(sock, head + value + b"\r\n", b"\r\n") == b"STORED\r\n", "not stored")
        for n, sock in enumerate(reversed(socks)):
            got = ask(sock, f"get k{n}\r\n".encode(), b"END\r\n")
            check(value in got, f"{len(got)} bytes for a value of {len(value)}")
            sock.close()
        ends_by_sigterm(server)


# ---- two stacks ----

def pair(env):
    """Returns the options for both ends of a memif."""
    path = env.scratch / f"memif{next(numbers)}"
    run = [env.app("coronet-run"), "--poll", "adaptive", "--memory", "2G"]
    return ([*run, "--link", f"memif:{path},role=server", "--addr", f"{OURS}/16"],
            [*run, "--link", f"memif:{path},role=client", "--addr", "10.9.0.2/16"])


class Far:
    """A server by coronet-run, and its clients at the other end of a memif."""

    def __init__(self, env, *server, options=(), **popen_args):
        self.env = env
        near, self.far = pair(env)
        self.popen_args = {"env": {**os.environ, **without_leaks(),
                                   "PATH": f"{os.environ['PATH']}:/usr/sbin"}, **popen_args}
        self.server = env.start([*near, *options, *server], **self.popen_args)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.kill()

    def ask(self, *words, **popen_args):
        """Runs a client until it succeeds: the first may come before the server listens."""
        client = None

        def succeeds():
            nonlocal client
            client = self.env.start([*self.far, *words], **{**self.popen_args, **popen_args})
            status = client.wait(WAIT_MAX_S)
            check(status == 0 or self.server.alive(), f"{client.story()}\n{self.server.story()}")
            return status == 0
        eventually(succeeds, WAIT_MAX_S, lambda: f"{client.story()}\n{self.server.story()}")
        return client


MEMCACHED_CLIENT = """
import socket
s = socket.create_connection(("10.9.0.1", 11211), 60)
value = b"v" * 50000
s.sendall(b"set k 0 0 50000\\r\\n" + value + b"\\r\\n")
f = s.makefile("rb")
assert f.readline() == b"STORED\\r\\n"
s.sendall(b"get k\\r\\n")
assert f.readline() == b"VALUE k 0 50000\\r\\n" and f.read(50002) == value + b"\\r\\n"
"""


def over_memif(env):
    need_programs("redis-server", "redis-benchmark", "nginx", "curl", "iperf3", "nc", "memcached",
                  "haproxy")
    folder = folder_of(env)
    big, got = (folder / "big").read_bytes(), folder / "got"

    def fetched(path):
        check(path.read_bytes() == big, "the file differs")
        path.unlink()

    with Far(env, *redis_server(OURS)) as far:
        benchmarked(far.ask("redis-benchmark", "-h", OURS, *BENCHMARK).output("stdout"))
    with Far(env, *nginx_command(folder, 8080)) as far:
        far.ask("curl", "-sS", "-o", got, f"http://{OURS}:8080/big")
        fetched(got)
    with Far(env, "python3", "-m", "http.server", "--bind", OURS, 8080, cwd=folder) as far:
        far.ask("wget", "-q", "-O", got, f"http://{OURS}:8080/big")
        fetched(got)
    with Far(env, "iperf3", "-s") as far:
        far.ask("iperf3", "-c", OURS, "-n", "50M")
        far.ask("iperf3", "-c", OURS, "-n", "50M", "-R")
    user = ["-u", "root"] if os.getuid() == 0 else []
    with Far(env, "memcached", "-t", 4, "-l", OURS, "-U", 0, *user) as far:
        far.ask("python3", "-c", MEMCACHED_CLIENT)
    with Far(env, "nc", "-l", OURS, 7001) as far:
        with (folder / "big").open("rb") as data:
            far.ask("nc", "-N", OURS, 7001, stdin=data)
        check(far.server.wait(WAIT_MAX_S) == 0, far.server.story())
        fetched(far.server.paths["stdout"])
    # haproxy has a memif to its client and a TAP to its server.
    config, link = folder / "haproxy.cfg", f"run{next(numbers)}"
    config.write_text(HAPROXY.format(kernels="10.8.1.1"))
    with kernel_server(env, 8081, *nginx_command(folder, 8081)), \
            Far(env, "haproxy", "-db", "-f", config,
                options=["--link", f"tap:{link}", "--addr", "10.8.0.1/16"]) as far:
        bring_up(link, far.server, "10.8.1.1/16")
        far.ask("curl", "-sS", "-o", got, f"http://{OURS}:8080/big")
        fetched(got)


# ---- effects on the system ----

def keeps_to_itself(env):
    """Child programs use the kernel; closing all descriptors does not close the stack's own."""
    run = OnTap(env)
    text = run.client("python3", "-c", """
import subprocess
print(open("/proc/self/maps").read().count("coronet-run"), flush=True)
subprocess.run("grep -c coronet-run /proc/self/maps; echo; env; echo; ls /proc/self/fd", shell=True)
""")
    counts, variables, fds = text.split("\n\n")
    check(set(fds.split()) <= {"0", "1", "2", "3"}, f"a child inherits {fds.split()}")
    given = {f"{name}={value}" for name, value in os.environ.items()}
    added = [line for line in variables.splitlines()
             if line not in given and not re.match("(_|PWD|OLDPWD)=", line)]
    leaked = [line for line in added if "coronet-run" in line or "CORONET" in line]
    check(not leaked, f"a child's environment: {leaked}")
    counts = [int(count) for count in counts.split()]
    check(counts[0] > 0 and counts[1] == 0, f"preloaded, in a child: {counts}")
    with socket.create_server(("0.0.0.0", 7002)) as listener:
        program = run.start("python3", "-c", """
import os, socket
os.closerange(3, 100000)
s = socket.create_connection(("10.9.1.1", 7002), 60)
s.sendall(b"after closing all")
child = os.fork()
if child == 0:
    try:
        s.sendall(b"from a child")
    except OSError as error:
        os._exit(error.errno)
    os._exit(0)
s.sendall(b"%4d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
        sock = listener.accept()[0]
        sock.settimeout(WAIT_MAX_S)
        exactly(sock, b"after closing all%4d" % errno.ENOTSUP)
        check(sock.recv(1) == b"", "more than was written")
        check(program.wait(WAIT_MAX_S) == 0, program.story())


def stdio_at_the_end(env):
    """exit() writes what a stream on a socket has buffered."""
    with socket.create_server(("0.0.0.0", 7003)) as listener:
        OnTap(env).client("python3", "-c", """
import ctypes, socket
c = ctypes.CDLL(None)
c.fdopen.restype = ctypes.c_void_p
fd = socket.create_connection(("10.9.1.1", 7003)).detach()
c.fputs(b"buffered", ctypes.c_void_p(c.fdopen(fd, b"w")))
""")
        exactly(listener.accept()[0], b"buffered")


def descriptors_of_the_stack(env):
    """DPDK opens and closes descriptors as peers come and go: no child inherits them, none
    leaks."""
    go = env.scratch / "go"
    script = f"""
import os, subprocess, time
while not os.path.exists("{go}"):
    time.sleep(0.1)
subprocess.run(["ls", "/proc/self/fd"], check=True)
print("\\n%d" % len(os.listdir("/proc/%d/fd" % os.getpid())))"""

    def seen(peers):
        with Far(env, "python3", "-c", script) as far:
            for _ in range(peers):
                far.ask("sleep", "0.1")
            go.touch()
            check(far.server.wait(WAIT_MAX_S) == 0, far.server.story())
            go.unlink()
            fds, n = far.server.output("stdout").split("\n\n")
            check(set(fds.split()) <= {"0", "1", "2", "3"}, f"a child inherits {fds.split()}")
            return int(n)

    one, more = seen(1), seen(6)
    check(more <= one + 1, f"{one} descriptors after one peer, {more} after six")


def scripts(env):
    """A program executed by a shell or env(1) is on the stack; with --children its children,
    too."""
    ask = 'import socket; socket.create_connection(("10.9.1.1", 7008), 60).sendall(b"{}")'
    starts = f"python3 -c '{ask}' # and does not become it\ntrue"
    texts = {f"""#!/bin/sh
name=$(echo becomes | sed s/becomes/became/)
exec python3 -c '{ask.format("'$name'")}'""": (OURS, b"became"),
             "#!/usr/bin/env python3\n" + ask.format("env"): (OURS, b"env"),
             "#!/bin/sh\n" + starts.format("started"): (KERNELS, b"started")}
    script = env.scratch / "script"
    with socket.create_server(("0.0.0.0", 7008)) as listener:
        listener.settimeout(WAIT_MAX_S)
        command("ip", "addr", "add", f"{KERNELS}/32", "dev", "lo")
        for text, (address, said) in texts.items():
            script.write_text(text)
            script.chmod(0o755)
            program = OnTap(env).start(script)
            sock, peer = listener.accept()
            check(peer[0] == address, f"from {peer[0]}, expected {address}: {program.story()}")
            exactly(sock, said)
            check(program.wait(WAIT_MAX_S) == 0, program.story())
        check("only with --children" in program.output("stderr"), program.story())
        program = OnTap(env).start(script, options=["--children"])
        check(listener.accept()[1][0] == OURS, "not on the stack with --children")
        command("ip", "addr", "del", f"{KERNELS}/32", "dev", "lo")
        check(program.wait(WAIT_MAX_S) == 0, program.story())


EXECUTES = """
import ctypes, os
argv, envp = (ctypes.c_char_p * 2)(b"true"), (ctypes.c_char_p * 1)()
c, end, folder, AT_EMPTY_PATH = ctypes.CDLL(None), None, os.open("/usr/bin", os.O_PATH), 0x1000
for name, fd in (b"nosuchprogram", -1), (b"true", os.open("/usr/bin/true", os.O_PATH)):
    path = b"/usr/bin/" + name
    c."""


def executes(env):
    """Each call that executes a program in the place of this one reports it, but only if the
    program exists."""
    for call in ("execve(path, argv, envp)", "execv(path, argv)", "execvp(path, argv)",
                 "execvp(name, argv)", "execvpe(name, argv, envp)", "execl(path, name, end)",
                 "execlp(name, name, name, end)", "execle(path, name, name, end, envp)",
                 "fexecve(fd, argv, envp)", "execveat(folder, name, argv, envp, 0)",
                 "execveat(fd, b'', argv, envp, AT_EMPTY_PATH)", "syscall(59, path, argv, envp)",
                 "syscall(322, folder, name, argv, envp, 0)"):
        program = env.start([env.app("coronet-run"), "--link", "ring:r0", "--addr", f"{OURS}/16",
                             "python3", "-c", EXECUTES + call],
                            env={**os.environ, **without_leaks()})
        status, text = program.wait(WAIT_MAX_S), program.output("stderr")
        check(status == 0 and re.findall(r"executes (\S+),", text) in (["true"], ["/usr/bin/true"]),
              f"{call}: {program.story()}")


def crashes(env):
    """A program that crashes ends by the signal, as without the stack."""
    for statement, signo in (("string_at(8)", signal.SIGSEGV), ("abort()", signal.SIGABRT),
                             ("faulthandler.enable(); string_at(8)", signal.SIGSEGV),
                             ("kill(getpid(), 11)", signal.SIGSEGV)):
        program = env.start([env.app("coronet-run"), "--link", "ring:r0", "--addr", f"{OURS}/16",
                             "python3", "-c", "import faulthandler; from ctypes import string_at; "
                             f"from os import abort, getpid, kill; {statement}"],
                            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:"
                                                               "handle_abort=0"})
        program.may_crash = True
        check(program.wait(WAIT_MAX_S) == -signo, f"{statement}: {program.story()}")


def refused(env):
    run = env.app("coronet-run")
    (env.scratch / "static.c").write_text("int main(void) { return 0; }\n")
    static = env.scratch / "static"
    link = ["--link", "ring:r0", "--addr", f"{OURS}/16"]
    cases = [([], 2, "PROGRAM is missing"), (["--link"], 2, "requires an argument"),
             ([*link, "--sockets", "10.9.0.0/99", "true"], 2, "'10.9.0.0/99'"),
             ([*link, "nosuchprogram"], 2, "nosuchprogram"),
             (["--link", "nosuch:x", "true"], 2, "nosuch"),
             (["--addr", "10.9.0.1/16", "true"], 1, "--link")]
    if shutil.which("cc"):
        command("cc", "-static", "-o", static, env.scratch / "static.c")
        cases.append(([*link, static], 2, "statically"))
    for words, status, wanted in cases:
        program = env.start([run, *words])
        got = program.wait(WAIT_MAX_S)
        lines = program.output("stderr").strip().splitlines()
        check(got == status and len(lines) == 1 and wanted in lines[0],
              f"{words}: status {got}: {program.story()}")


def cases(env):
    for case in (redis_serves, redis_asks, nginx_serves, nginx_in_child, python_serves,
                 curl_fetches, wget_fetches, haproxy_proxies, haproxy_on_both_sides, iperf3,
                 netcat, memcached, over_memif, keeps_to_itself, stdio_at_the_end,
                 descriptors_of_the_stack, scripts, executes, crashes, refused):
        if not env.args or case.__name__ in env.args:
            yield case.__name__.replace("_", " "), functools.partial(case, env)


if __name__ == "__main__":
    main(cases)
