#!/usr/bin/env python3
"""Eleven unmodified programs on the stack at the same time, by coronet-run, while everything around
them is random.

Usage: test_run_soak.py BUILD_DIR [SECONDS] [SEED]

Each program has a TAP of its own, whose other end is this namespace's kernel. Clients check each
byte of each answer, and end their connections in every way. Programs are stopped for up to 300 ms,
get signals, and create child processes. At the end each program must be alive and answer; it must
have no connection left, no more descriptors and frames than at the beginning, and be idle.
"""

import collections
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import struct
import threading
import time

import harness
from harness import WAIT_MAX_S, Failure, check, command, comment, cpu_seconds, eventually, main
from test_run import NGINX, bring_up, kernel_server, listening, nginx_command, without_leaks

SECONDS = 60
CLIENTS = 2  # of each program
SILENT_MAX = 20  # connections of a client that wait for nothing
IDLE_SECONDS, IDLE_SHARE = 5, 0.05
SMALL_MAX, BIG = 1 << 17, 1 << 21
BEHIND = 8081  # the kernel's server for haproxy

# ---- the programs ----

NGINX_ONE = NGINX.replace("listen [::]:{port};", "keepalive_requests 1000000;")

LIGHTTPD = """
server.document-root = "{folder}"
server.bind = "{ours}"
server.port = 80
server.max-keep-alive-idle = 600
server.max-keep-alive-requests = 1000
"""

HAPROXY = """global
    nbthread 2
defaults
    mode http
    timeout connect 60s
    timeout client 600s
    timeout server 600s
frontend f
    bind {ours}:80
    default_backend b
backend b
    http-reuse never
    server s 127.0.0.1:8081
"""

# Each request: kind, length, bytes. F creates child processes before it answers.
ECHO = """
import os, signal, socket, struct, subprocess, sys, threading
signal.signal(signal.SIGUSR1, lambda *_: None)
def serve(sock):
    with sock, sock.makefile("rb") as file:
        while head := file.read(5):
            kind, length = struct.unpack("!cI", head)
            data = file.read(length)
            if kind == b"F":
                child = os.fork()
                if not child:
                    os._exit(0)
                os.waitpid(child, 0)
                subprocess.run(["true"], check=True)
            sock.sendall(data)
def quietly(sock):
    try:
        serve(sock)
    except (OSError, struct.error):
        pass
server = socket.create_server((sys.argv[1], 7))
while True:
    threading.Thread(target=quietly, args=[server.accept()[0]], daemon=True).start()
"""

ASYNCIO = """
import asyncio, struct, sys
async def serve(reader, writer):
    try:
        while True:
            kind, length = struct.unpack("!cI", await reader.readexactly(5))
            writer.write(await reader.readexactly(length))
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    writer.close()
async def run():
    async with await asyncio.start_server(serve, sys.argv[1], 7) as server:
        await server.serve_forever()
asyncio.run(run())
"""

WSGI = """
import pathlib
def app(environ, start):
    data = pathlib.Path("{folder}" + environ["PATH_INFO"]).read_bytes()
    start("200 OK", [("Content-Length", str(len(data)))])
    return [data]
"""

NODE = """
const fs = require("fs");
const server = require("http").createServer((request, response) => {
    const data = fs.readFileSync("{folder}" + request.url);
    response.writeHead(200, {"Content-Length": data.length});
    response.end(data);
});
server.keepAliveTimeout = 600000;
server.listen(80, "{ours}");
"""

MOSQUITTO = """
listener 1883 {ours}
allow_anonymous true
log_dest none
user root
"""

Kind = collections.namedtuple("Kind", "words conf port protocol signals options",
                              defaults=((), ()))
PROGRAMS = {
    "redis": Kind("redis-server --bind {ours} --protected-mode no --save '' --dir {folder} "
                  "--io-threads 2 --io-threads-do-reads yes", "", 6379, "Redis"),
    "memcached": Kind("memcached -t 2 -l {ours} -U 0 -u root", "", 11211, "Memcached"),
    "nginx": Kind("nginx -p {folder} -e stderr -c {folder}/conf", NGINX_ONE, 80, "Http",
                  (signal.SIGUSR1,)),
    "haproxy": Kind("haproxy -db -f {folder}/conf", HAPROXY, 80, "Http"),
    "lighttpd": Kind("lighttpd -D -f {folder}/conf", LIGHTTPD, 80, "Http", (signal.SIGHUP,)),
    "python3": Kind("python3 {folder}/conf {ours}", ECHO, 7, "Forking", (signal.SIGUSR1,)),
    "asyncio": Kind("python3 {folder}/conf {ours}", ASYNCIO, 7, "Echo"),
    "gunicorn": Kind("gunicorn -b {ours}:80 --threads 8 --keep-alive 600 --chdir {folder} conf:app",
                     WSGI, 80, "Http", (), ("--in-child",)),
    "node": Kind("node {folder}/conf", NODE, 80, "Http"),
    "iperf3": Kind("iperf3 -s --forceflush", "", 5201, "Iperf3"),
    "mosquitto": Kind("mosquitto -c {folder}/conf", MOSQUITTO, 1883, "Mqtt"),
}
# The default action of these is to ignore them.
HARMLESS = (signal.SIGCONT, signal.SIGURG, signal.SIGCHLD)

# ---- requests and answers ----


class Protocol:
    """One connection's requests. Each is a pair: its bytes, and the bytes of the answer or a
    function that reads and checks it."""

    def __init__(self, rng, folder):
        self.rng, self.folder = rng, folder

    def data(self):
        return self.rng.randbytes(self.rng.choice((1, 100, 5000, SMALL_MAX)))

    def key(self):
        return b"%032x" % self.rng.getrandbits(128)

    def hello(self):
        return b"", b""


class Echo(Protocol):
    kinds = b"E"

    def request(self):
        data = self.data()
        return struct.pack("!BI", self.rng.choice(self.kinds), len(data)) + data, data


class Forking(Echo):
    kinds = b"EEEEEEEEEF"


class Redis(Protocol):
    def request(self):
        if self.rng.random() < 0.01:
            return b"BGSAVE\r\n", lambda read: read.line()
        key, data = self.key(), self.data()
        return (b"*4\r\n$5\r\nSETEX\r\n$32\r\n%s\r\n$2\r\n20\r\n$%d\r\n%s\r\n"
                b"*2\r\n$3\r\nGET\r\n$32\r\n%s\r\n" % (key, len(data), data, key),
                b"+OK\r\n$%d\r\n%s\r\n" % (len(data), data))


class Memcached(Protocol):
    def request(self):
        key, data = self.key(), self.data()
        return (b"set %s 0 20 %d\r\n%s\r\nget %s\r\n" % (key, len(data), data, key),
                b"STORED\r\nVALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(data), data))


class Http(Protocol):
    def request(self):
        name = self.rng.choice(("small", "small", "medium", "big"))
        wanted = (self.folder / name).read_bytes()

        def answer(read):
            head = [read.line()]
            while head[-1] != b"\r\n":
                head.append(read.line())
            check(b" 200 " in head[0], f"{head[0]!r}")
            length = re.search(rb"(?i)content-length: *(\d+)", b"".join(head))
            check(length and int(length[1]) == len(wanted), f"{head} for {name}")
            got = read.exactly(len(wanted))
            check(hashlib.sha256(got).digest() == hashlib.sha256(wanted).digest(),
                  f"{name} differs")
        return b"GET /%s HTTP/1.1\r\nHost: test\r\n\r\n" % name.encode(), answer


class Mqtt(Protocol):
    @staticmethod
    def packet(kind, *parts):
        body = b"".join(struct.pack("!H", len(part)) + part if isinstance(part, bytes)
                        else bytes(part) for part in parts)
        size, rest = bytearray(), len(body)
        while not size or rest:
            size.append(rest % 128 | (128 if rest >= 128 else 0))
            rest //= 128
        return bytes([kind]) + size + body

    def hello(self):
        self.topic = self.key()
        return (self.packet(0x10, b"MQTT", (4, 2, 0, 0), self.topic)
                + self.packet(0x82, (0, 1), self.topic, (0,)),
                b"\x20\x02\x00\x00" + b"\x90\x03\x00\x01\x00")

    def request(self):
        packet = self.packet(0x30, self.topic, tuple(self.data()))
        return packet, packet


class Iperf3:
    """Its client makes the connections."""


# ---- a client ----


class Ended(Exception):
    """The program has closed the connection."""


class Reader:
    def __init__(self, sock):
        self.sock, self.buffer = sock, bytearray()

    def receive(self):
        part = self.sock.recv(1 << 16)
        if not part:
            raise Ended
        self.buffer += part

    def take_bytes(self, count):
        got = bytes(self.buffer[:count])
        del self.buffer[:count]
        return got

    def exactly(self, count):
        while len(self.buffer) < count:
            self.receive()
        return self.take_bytes(count)

    def line(self):
        while b"\n" not in self.buffer:
            self.receive()
        return self.take_bytes(self.buffer.index(b"\n") + 1)

    def answer(self, wanted):
        if callable(wanted):
            wanted(self)
            return
        got = self.exactly(len(wanted))
        if got != wanted:
            first = next(n for n, (a, b) in enumerate(zip(got, wanted)) if a != b)
            raise Failure(f"byte {first} of {len(wanted)} is wrong: {got[first:first + 40]!r}, "
                          f"expected {wanted[first:first + 40]!r}")


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Client:
    """Connects to a program, asks, and ends the connection in one of the ways below."""

    def __init__(self, program, rng):
        self.program, self.rng = program, rng
        self.silent = collections.deque()
        self.counts = collections.Counter()

    def connect(self):
        sock = socket.socket()
        sock.settimeout(WAIT_MAX_S)
        if self.rng.random() < 0.1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((self.program.ours, self.program.kind.port))
        return sock

    def ask(self):
        """Makes one connection."""
        protocol = globals()[self.program.kind.protocol](self.rng, self.program.folder)
        sock = self.connect()
        reader = Reader(sock)
        end = self.rng.choice(("close", "reset", "abandon", "half_close", "be_silent"))
        for number in range(self.rng.randrange(0 if end == "be_silent" else 1, 20)):
            request, wanted = protocol.hello() if number == 0 else (b"", b"")
            more, last = protocol.request()
            sock.sendall(request + more)
            reader.answer(wanted)
            reader.answer(last)
            self.counts["requests"] += 1
        self.counts[end] += 1
        getattr(self, end)(protocol, sock, reader)

    @staticmethod
    def close(_, sock, __):
        sock.close()

    def reset(self, protocol, sock, _):
        """In the middle of a request or its answer."""
        request = protocol.request()[0]
        sock.sendall(request[:self.rng.randrange(1, len(request) + 1)])
        if self.rng.random() < 0.5:
            time.sleep(self.rng.uniform(0, 0.05))
        reset(sock)

    @staticmethod
    def abandon(protocol, sock, _):
        """Closes with an answer on its way."""
        sock.sendall(protocol.request()[0])
        sock.close()

    @staticmethod
    def half_close(protocol, sock, reader):
        """Some programs answer, some end at once."""
        request, wanted = protocol.request()
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(Ended, ConnectionResetError):
            reader.answer(wanted)
            while True:
                reader.receive()
        sock.close()

    def be_silent(self, _, sock, __):
        self.silent.append(sock)
        while len(self.silent) > SILENT_MAX or self.silent and self.rng.random() < 0.4:
            self.rng.choice((reset, socket.socket.close))(self.silent.popleft())

    def finish(self):
        while self.silent:
            self.silent.popleft().close()


class Iperf3Client(Client):
    """The program closes its listening socket after each test, and then opens another."""

    def await_listener(self):
        process, line = self.program.process, f"(test #{self.counts['requests'] + 1})"
        eventually(lambda: line in process.output("stdout"), WAIT_MAX_S, process.story)

    def ask(self):
        self.await_listener()
        more = self.rng.choice(([], ["-R"], ["-P", "3"], ["--bidir"]))
        text = command("iperf3", "-c", self.program.ours, "-n", "4M", *more)
        check("receiver" in text, text)
        self.counts["requests"] += 1
        self.await_listener()


# ---- a program ----


class Running:
    """A program on the stack, with its link and its clients."""

    def __init__(self, env, number, name, files, rng):
        self.name, self.kind, self.env, self.rng = name, PROGRAMS[name], env, rng
        self.ours, kernels = f"10.{number}.0.1", f"10.{number}.1.1"
        self.folder = pathlib.Path(env.scratch_for({}))
        for file, data in files.items():
            (self.folder / file).write_bytes(data)
        values = {"folder": self.folder, "ours": self.ours, "port": 80, "user": "user root;"}
        conf = self.folder / ("conf.py" if name == "gunicorn" else "conf")
        # Those of nginx have their braces doubled.
        conf.write_text(self.kind.conf.format(**values) if name == "nginx" else re.sub(
            r"\{(folder|ours)\}", lambda found: str(values[found[1]]), self.kind.conf))
        words = shlex.split(self.kind.words.format(**values))
        self.control = self.folder / "control"
        self.process = env.start(
            [env.app("coronet-run"), "--link", f"tap:soak{number}", "--addr", f"{self.ours}/16",
             "--control", self.control, "--log-level", "warning", *self.kind.options, *words],
            cwd=self.folder, env={**os.environ, **without_leaks(),
                                  "PATH": f"{os.environ['PATH']}:/usr/sbin"})
        bring_up(f"soak{number}", self.process, f"{kernels}/16")
        kind = Iperf3Client if self.kind.protocol == "Iperf3" else Client
        self.clients = [kind(self, random.Random(rng.random()))
                        for _ in range(1 if kind is Iperf3Client else CLIENTS)]
        self.before = {}

    def pids(self):
        """The program's processes; short-lived children are left out."""
        first = self.process.process.pid
        if not self.kind.options:
            return [first]
        children = pathlib.Path(f"/proc/{first}/task/{first}/children").read_text()
        return [first, *map(int, children.split())]

    def ask(self, *words):
        done = command(self.env.build / "apps/coronet-ctl", "--control", self.control, "--json",
                       *words)
        return json.loads(done)

    def descriptors(self):
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids())

    def state(self):
        """What must be at the end as it was at the beginning."""
        shard, = self.ask("shards")
        memory, = self.ask("mem")
        conns = self.ask("conns")
        return {"conns": len([c for c in conns if c["state"] != "time-wait"]),
                "half_open": shard["half_open"], "descriptors": self.descriptors(),
                "frames": memory["frames"] - memory["frames_free"],
                "held": memory["frames_received_and_held"],
                "coroutines": shard["coroutines"]}

    def story(self):
        return f"{self.name}: {self.process.story()}"


def clients_of(program, over, failures):
    """Starts the threads of a program's clients, which end with the first failure of any."""
    def run(client):
        while not over.is_set():
            try:
                client.ask()
            except Exception as error:  # each is a failure of the program or the test
                failures.append(f"{program.name}: {error!r}, after {dict(client.counts)}")
                over.set()
        client.finish()
    threads = [threading.Thread(target=run, args=[client]) for client in program.clients]
    for thread in threads:
        thread.start()
    return threads


# ---- disturbances ----


def disturb(programs, over, rng, counts):
    """Stops one program at a time for a moment, or sends it a signal that it handles or ignores."""
    while not over.wait(rng.uniform(0, 0.2)):
        program = rng.choice(programs)
        pid = rng.choice(program.pids())
        if rng.random() < 0.5:
            number = rng.choice(HARMLESS + program.kind.signals)
            os.kill(pid, number)
            counts[signal.Signals(number).name] += 1
            continue
        os.kill(pid, signal.SIGSTOP)
        time.sleep(rng.uniform(0.01, 0.3))
        os.kill(pid, signal.SIGCONT)
        counts["stops"] += 1


def answers(program):
    """One orderly connection."""
    client = program.clients[0]
    if isinstance(client, Iperf3Client):
        client.ask()
        return
    protocol = globals()[program.kind.protocol](client.rng, program.folder)
    with client.connect() as sock:
        reader = Reader(sock)
        for request, wanted in protocol.hello(), protocol.request():
            sock.sendall(request)
            reader.answer(wanted)


def same_as_before(program):
    """Nothing is left of its clients."""
    now = {}

    def is_same():
        now.update(program.state())
        return all(now[name] <= program.before[name] for name in now)
    eventually(is_same, WAIT_MAX_S,
               lambda: f"{program.story()}\nhas {now}, had {program.before}", 1)


def idle(programs):
    def used():
        return {program.name: sum(map(cpu_seconds, program.pids())) for program in programs}
    before = used()
    time.sleep(IDLE_SECONDS)
    shares = {name: (seconds - before[name]) / IDLE_SECONDS for name, seconds in used().items()}
    comment(f"CPU when idle: {', '.join(f'{name} {share:.1%}' for name, share in shares.items())}")
    check(max(shares.values()) <= IDLE_SHARE, f"not idle: {shares}")


def start(env, files, rng):
    """Starts the installed programs, each of which must answer."""
    installed = os.environ["PATH"] + ":/usr/sbin"
    names = [name for name, kind in PROGRAMS.items()
             if shutil.which(kind.words.split()[0], path=installed)]
    programs = [Running(env, number, name, files, rng) for number, name in enumerate(names, 20)]
    for program in programs:
        if program.kind.protocol != "Iperf3":
            eventually(lambda p=program: listening(p.ours, p.kind.port), WAIT_MAX_S, program.story)
        pids = program.pids()
        for _ in range(3):
            answers(program)
        check(pids == program.pids() and program.process.alive(), program.story())
        program.before = settled(program)
    return programs


def settled(program):
    """Returns the program's state without clients, once two looks at it are the same."""
    states = [{}]

    def is_settled():
        states.append(program.state())
        return states[-1] == states[-2] and not states[-1]["conns"]
    eventually(is_settled, WAIT_MAX_S, lambda: f"{program.story()}\nhas {states[-1]}", 0.3)
    return states[-1]


def soak(env, seconds, seed):
    comment(f"seed {seed}")
    rng = random.Random(seed)
    files = {name: rng.randbytes(size)
             for name, size in (("small", 6), ("medium", SMALL_MAX), ("big", BIG))}
    folder = pathlib.Path(env.scratch_for({}))
    for name, data in files.items():
        (folder / name).write_bytes(data)
    with kernel_server(env, BEHIND, *nginx_command(folder, BEHIND)):
        run_lives(start(env, files, rng), seconds, rng)


def run_lives(programs, seconds, rng):
    over, failures, counts = threading.Event(), [], collections.Counter()
    pids = [program.pids() for program in programs]
    threads = [thread for program in programs for thread in clients_of(program, over, failures)]
    threads.append(threading.Thread(target=disturb, args=(
        programs, over, random.Random(rng.random()), counts)))
    threads[-1].start()
    over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join(2 * WAIT_MAX_S)
        check(not thread.is_alive(), f"a client hangs: {failures}")
    comment(f"{dict(counts)}")
    for program in programs:
        made = sum((client.counts for client in program.clients), collections.Counter())
        comment(f"{program.name}: {dict(made)}")
    stories = [program.story() for program in programs if not program.process.alive()]
    check(not failures and not stories, "\n".join(failures + stories))
    for program, before in zip(programs, pids):
        check(program.pids() == before, f"processes {before} have become {program.story()}")
        answers(program)
        same_as_before(program)
    idle(programs)


def cases(env):
    seconds = int(env.args[0]) if env.args else SECONDS
    seed = int(env.args[1]) if env.args[1:] else random.randrange(1 << 32)
    harness.CASE_SECONDS += seconds
    yield f"soak of {seconds} s", functools.partial(soak, env, seconds, seed)


if __name__ == "__main__":
    main(cases)
