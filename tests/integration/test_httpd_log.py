#!/usr/bin/env python3
"""coronet-httpd's access log: a right line for every response, whatever clients and disks do.

Usage: test_httpd_log.py BUILD_DIR [CASE...]
"""

import contextlib
import datetime
import functools
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import threading

import certs
from harness import WAIT_MAX_S, accepted_by, check, chosen, command, eventually, main, read_metric
from httpd_server import GET, HOST, Answers, dial_server, serve_files
from web import need_programs, random_file, run_curl, run_wrk

BULK = 8 << 20
TLS_PORT = 8443
METRICS = 9467
LOST = "coronet_httpd_access_log_dropped_lines_total"
REQUESTS = "coronet_httpd_requests_total"
REFUSED = "coronet_httpd_refused_requests_total"

# A text in quotes, in which neither " nor \ is a byte of its own.
QUOTED = r'"((?:[ !#-\[\]-~]|\\x[0-9A-F]{2})*)"'
COMMON = (r"(\S+) - - \[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] " + QUOTED
          + r" (\d{3}) (\d+)")
COMBINED = f"{COMMON} {QUOTED} {QUOTED}"
REPORT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z lost=(\d+)"


class Line:
    """A line in the combined format, or the common one."""

    def __init__(self, text, pattern=COMBINED):
        found = re.fullmatch(pattern, text)
        check(found, f"a line: {text!r}")
        self.text = text
        self.client, time, self.request, self.status, self.bytes = found.groups()[:5]
        self.time = datetime.datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z")
        self.status, self.bytes = int(self.status), int(self.bytes)
        self.referer, self.agent = (found.groups() + (None, None))[5:7]


def unescape(text):
    """Returns the bytes that a text of the log stands for."""
    return re.sub(rb"\\x([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]),
                  text.encode("ascii"))


def texts_of(path):
    """Returns the lines that are complete."""
    data = path.read_bytes() if path.exists() else b""
    return data[:data.rfind(b"\n") + 1].decode("ascii").splitlines()


def lines_of(*paths, pattern=COMBINED):
    """Returns the lines of files, and the number of lost lines that they report."""
    lines, lost = [], 0
    for text in (text for path in paths for text in texts_of(path)):
        report = re.fullmatch(REPORT, text)
        if report:
            lost += int(report[1])
        else:
            lines.append(Line(text, pattern))
    return lines, lost


def await_lines(path, count, read=lambda path: lines_of(path)[0]):
    """Waits until a file has so many lines; returns them."""
    eventually(lambda: len(read(path)) >= count, WAIT_MAX_S,
               lambda: f"{len(read(path))} of {count} lines: {texts_of(path)}")
    lines = read(path)
    check(len(lines) == count, f"{len(lines)} instead of {count} lines: {texts_of(path)}")
    return lines


def read_json(path):
    return [json.loads(text) for text in texts_of(path)]


def make_site(env):
    root = env.scratch / "root"
    root.mkdir(exist_ok=True)
    (root / "index.html").write_bytes(b"hello\n")
    (root / "folder").mkdir(exist_ok=True)
    (root / "folder/index.html").write_bytes(b"folder\n")
    random_file(root / "bulk", BULK)
    return root


@contextlib.contextmanager
def logging(env, name, *options, log=None):
    """Serves a site; yields the server and its log, whose name is new in each case."""
    log = log or env.scratch / name
    with serve_files(env, "--root", make_site(env), "--access-log", log, *options) as server:
        command("ip", "link", "set", "lo", "up")
        yield server, log
        if server.alive():
            server.terminate()


def send(data, *, end=False):
    """Sends bytes on a connection of its own, and reads to the end."""
    with dial_server() as sock, contextlib.suppress(ConnectionError):
        sock.sendall(data)
        if end:
            sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


# Bytes to send, what is logged of the first line (None: all of it), the status, and the bytes of
# the body (None: any).
EXCHANGES = [
    (b"GET / HTTP/1.0\r\n\r\n", None, 200, 6),
    (b"HEAD / HTTP/1.0\r\n\r\n", None, 200, 0),
    (b"HEAD /none HTTP/1.0\r\n\r\n", None, 404, 0),
    (b"GET /none HTTP/1.0\r\n\r\n", None, 404, 14),
    (b"GET /folder?a=b HTTP/1.0\r\n\r\n", None, 301, 22),
    (b"GET / HTTP/1.0\r\nIf-None-Match: *\r\n\r\n", None, 304, 0),
    (b"GET / HTTP/1.0\r\nIf-Match: \"x\"\r\n\r\n", None, 412, None),
    (b"GET / HTTP/1.0\r\nRange: bytes=1-3\r\n\r\n", None, 206, 3),
    (b"GET /bulk HTTP/1.0\r\nRange: bytes=100-\r\n\r\n", None, 206, BULK - 100),
    (b"GET /bulk HTTP/1.0\r\n\r\n", None, 200, BULK),
    (b"GET / HTTP/1.0\r\nRange: bytes=9-\r\n\r\n", None, 416, None),
    (b"POST / HTTP/1.0\r\n\r\n", None, 405, None),
    (b"BREW / HTTP/1.0\r\n\r\n", None, 501, None),
    (b"GET / HTTP/2.0\r\n\r\n", None, 505, None),
    (b"GET / HTTP/1.1\r\n\r\n", None, 400, 16),
    (b"GET / HTTP/1.1\nHost: x\n\n", None, 400, None),
    (b"GET /../x HTTP/1.0\r\n\r\n", None, 400, None),
    (b"\r\nGET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.0", 200, 6),
    (b"GET / HTTP/1.0\r\nContent-Length: 2000000\r\n\r\n", None, 413, None),
    (b"GET / HTTP/1.0\r\nA: " + b"b" * 20000 + b"\r\n\r\n", None, 431, None),
    (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", None, 417, None),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 8187 + b"...", 414, None),
    (b"\x16\x03\x01\x02\x00\x01\x00\xff\"\\\n", b"\x16\x03\x01\x02\x00\x01\x00\xff\"\\", 400, None),
]


def every_response(env):
    """Each response has one line, with the request line, the status and the bytes that were sent,
    however the request was split, and in order."""
    with logging(env, "every") as (_, log):
        begin = datetime.datetime.now(datetime.timezone.utc)
        count = 0
        for data, request, status, size in EXCHANGES:
            if request is None:
                request = data.split(b"\n")[0].removesuffix(b"\r")
            for step in (len(data), 700 if len(data) > 500 else 1):
                with dial_server() as sock, contextlib.suppress(ConnectionError):
                    for at in range(0, len(data), step):
                        sock.sendall(data[at:at + step])
                    got = b"".join(iter(lambda s=sock: s.recv(65536), b""))
                count += 1
                line = await_lines(log, count)[-1]
                check(unescape(line.request) == request and line.status == status
                      and size in (None, line.bytes) and (line.referer, line.agent) == ("-", "-")
                      and line.client == "10.9.1.1", f"{line.text} for {data[:80]!r} in {step}")
                body = got.partition(b"\r\n\r\n")[2]
                check(not got or line.bytes == len(body), f"{line.text}: {len(body)} bytes came")
                check(begin - datetime.timedelta(seconds=1) < line.time
                      <= datetime.datetime.now(datetime.timezone.utc), f"{line.text}: the time")


def curls(env):
    """curl's Referer and User-Agent, several ranges, and compressed and conditional requests."""
    need_programs("curl")
    with logging(env, "curls") as (_, log):
        out = env.scratch / "out"
        url = f"http://{HOST}/"
        sizes = [int(run_curl("-o", out, "-w", "%{size_download}", "-A", f"agent {number}", "-e",
                              "http://a.test/?q=\"1\"", *words))
                 for number, words in enumerate((
                     [url], [url + "bulk"], ["-r", "0-9,100-199,1000000-2999999", url + "bulk"],
                     ["-I", url], ["-r", "0-1,3-3", url], ["--http1.0", url + "none"]))]
        for number, (line, size) in enumerate(zip(await_lines(log, len(sizes)), sizes)):
            check(line.bytes == (size if number != 3 else 0), f"{line.text}: {size} bytes came")
            check(unescape(line.agent) == f"agent {number}".encode()
                  and unescape(line.referer) == b'http://a.test/?q="1"', line.text)


def connections(env):
    """Requests of a connection are numbered, pipelined ones as well, in JSON and over TLS."""
    need_programs("curl", "openssl")
    cert, key = certs.make_pair(env, "front", "DNS:www.front.test", f"IP:{HOST}")
    with logging(env, "json", "--access-log-format", "json", "--tls-cert", cert, "--tls-key", key,
                 "--tls-port", TLS_PORT) as (_, log):
        with dial_server() as sock:
            port = sock.getsockname()[1]
            sock.sendall(3 * (GET + b"Referer: a\xc3\"\r\n\r\n") + GET[:-3])
            answers = Answers(sock)
            for _ in range(3):
                answers.next()
            sock.sendall(GET[-3:] + b"\r\n")
            answers.next()
            sock.sendall(b"garbage\r\n")
            check(answers.next()[0] == 400, "garbage is not refused")
        lines = await_lines(log, 5, read_json)
        check(lines[4]["connection_requests"] == 5 and lines[4]["status"] == 400
              and lines[4]["request"] == "garbage", f"{lines[4]}")
        for number, line in enumerate(lines[:4], 1):
            check(line["connection_requests"] == number and line["client"] == f"10.9.1.1:{port}"
                  and line["listener"] == f"{HOST}:80" and line["scheme"] == "http"
                  and line["tls"] is None and line["cipher"] is None and line["host"] == "x"
                  and line["end"] == "done" and 0 <= line["duration_ms"] < WAIT_MAX_S * 1000
                  and line["referer"] == ("a\xc3\"" if number < 4 else None), f"{line}")
        for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
                              (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
            context = certs.client_context(env)
            context.minimum_version = context.maximum_version = version
            before = len(read_json(log))
            with socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S) as plain, \
                    context.wrap_socket(plain, server_hostname="www.front.test") as sock:
                sock.sendall(2 * (b"GET /bulk HTTP/1.1\r\nHost: www.front.test\r\n\r\n"))
                answers = Answers(sock)
                answers.next()
                answers.next()
                cipher = sock.cipher()[0]
            for number, line in enumerate(await_lines(log, before + 2, read_json)[before:], 1):
                check(line["tls"] == name and line["cipher"] == cipher and line["bytes"] == BULK
                      and line["scheme"] == "https" and line["listener"] == f"{HOST}:{TLS_PORT}"
                      and line["host"] == "www.front.test"
                      and line["connection_requests"] == number, f"{line}")
        with socket.create_connection((HOST, TLS_PORT), WAIT_MAX_S) as sock:
            sock.sendall(b"no handshake\r\n\r\n")
            while sock.recv(4096):
                pass
        send(b"GET / HTTP/1.0\r\n\r\n")
        last = await_lines(log, before + 3, read_json)[-1]
        check(last["request"] == "GET / HTTP/1.0", f"a failed handshake has a line: {last}")


def no_forgery(env):
    """No byte of a client ends a line or a text, in any format."""
    for form in ("common", "combined", "json"):
        with logging(env, f"forged.{form}", "--access-log-format", form) as (_, log):
            count = 0
            for byte in range(256):
                byte = bytes([byte])
                send(b"GET / HTTP/1.0\r\nUser-Agent: a" + byte + b"b\r\n\r\n", end=True)
                send(b"GET /a" + byte + b"b HTTP/1.0\r\nReferer: c\r\n\r\n", end=True)
                count += 2
            if form == "json":
                lines = await_lines(log, count, read_json)
                agents = [line["user_agent"] for line in lines[::2]]
                paths = [line["request"] for line in lines[1::2]]
                check(all(len(line) == 15 for line in lines), "a field more or less")
                encode = functools.partial(str.encode, encoding="latin-1")
            else:
                pattern = COMMON if form == "common" else COMBINED
                lines = await_lines(log, count, lambda log, p=pattern: lines_of(log, pattern=p)[0])
                agents = [line.agent for line in lines[::2]]
                paths = [line.request for line in lines[1::2]]
                encode = unescape
            for byte in set(range(256)) - {10}:
                wanted = b"a" + bytes([byte]) + b"b"
                check(form == "common" or encode(agents[byte]) == wanted,
                      f"{agents[byte]!r} for {wanted}")
                check(encode(paths[byte]) == b"GET /" + wanted + b" HTTP/1.0",
                      f"{paths[byte]!r} for {wanted}")


def ask_for_bulk(fields=b""):
    """Returns a connection whose response is being sent, and the bytes of its body that came."""
    sock = dial_server(buffers=4096)
    sock.sendall(b"GET /bulk HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n")
    got = sock.recv(1 << 20)
    while len(got) < 100000:
        got += sock.recv(1 << 20)
    return sock, len(got) - got.index(b"\r\n\r\n") - 4


def check_cut_off(line, status, end, body):
    """Not all of the bytes that came were acknowledged, and of those that were not all came."""
    check(line["status"] == status and line["end"] == end and line["listener"] == f"{HOST}:80"
          and body - 65536 < line["bytes"] < body + (1 << 20), f"{line}: {body} bytes came")


def late_clients(env):
    """A request that is not whole in time has status 408; silent clients have no line. A response
    that nobody reads has the bytes that were sent."""
    with logging(env, "late", "--header-timeout", "1", "--send-timeout", "1",
                 "--access-log-format", "json") as (_, log):
        with dial_server(), dial_server() as sock:
            sock.sendall(b"GET /late HTTP/1.1\r\nUser-Agent: slow\r\nHo")
            check(Answers(sock).next()[0] == 408, "no 408")
        line = await_lines(log, 1, read_json)[-1]
        check(line["status"] == 408 and line["request"] == "GET /late HTTP/1.1"
              and line["user_agent"] == "slow" and line["bytes"] == 20
              and line["duration_ms"] >= 1000, f"{line}")
        sock, body = ask_for_bulk()
        with sock:
            check_cut_off(await_lines(log, 2, read_json)[-1], 200, "send-timeout", body)


def clients_that_leave(env):
    """A client that closes or resets in its head has status 499; a response that is cut off has
    the bytes that were sent."""
    with logging(env, "left", "--header-timeout", "300", "--send-timeout", "300",
                 "--access-log-format", "json", "--metrics", f"127.0.0.1:{METRICS}") as (_, log):
        with dial_server() as sock:
            sock.sendall(b"\r\n")
        for number, leave in enumerate((socket.socket.close, reset), 1):
            sock = dial_server()
            sock.sendall(b"\r\nGET /gone HT")
            sock.sendall(b"T")
            eventually(lambda: read_metric(METRICS, "coronet_httpd_half_requests") == 1,
                       WAIT_MAX_S, "the request has not begun")
            port = sock.getsockname()[1]
            leave(sock)
            line = await_lines(log, number, read_json)[-1]
            check(line["status"] == 499 and line["request"].startswith("GET /gone HT")
                  and line["client"] == f"10.9.1.1:{port}" and line["listener"] == f"{HOST}:80"
                  and line["bytes"] == 0 and line["end"] == "client-closed", f"{line}")
        for number, (fields, status) in enumerate((
                (b"", 200), (b"Range: bytes=0-2999999,4000000-6999999\r\n", 206)), 3):
            sock, body = ask_for_bulk(fields)
            reset(sock)
            check_cut_off(await_lines(log, number, read_json)[-1], status, "client-closed", body)


def displaced_and_stopped(env):
    """Displaced requests have status 408; at the end of the program the others have a line."""
    with logging(env, "stopped", "--max-half-open", "1", "--drain-timeout", "0.5",
                 "--access-log-format", "json", "--idle-timeout", "60",
                 "--header-timeout", "60") as (server, log):
        with dial_server() as first, dial_server() as second, dial_server(buffers=4096) as third:
            first.sendall(b"GET /first")
            # Until it is known to have begun, the second might displace nothing.
            third.sendall(b"GET /bulk HTTP/1.1\r\nHost: x\r\n\r\n")
            third.recv(100)
            second.sendall(b"GET /second")
            check(Answers(first).next()[0] == 408, "no 408")
            line = await_lines(log, 1, read_json)[0]
            check(line["status"] == 408 and line["request"] == "GET /first", f"{line}")
            server.terminate()
        lines = {line["request"]: line for line in await_lines(log, 3, read_json)[1:]}
        line = lines["GET /second"]
        check((line["status"], line["bytes"], line["end"]) == (499, 0, "stopped"), f"{line}")
        line = lines["GET /bulk HTTP/1.1"]
        check(line["status"] == 200 and line["bytes"] < BULK and line["end"] == "stopped",
              f"{line}")


def rotation(env):
    """Under load on two shards, logrotate moves the file again and again: no line is lost or
    torn."""
    need_programs("wrk")
    folder = env.scratch / "rotated"
    folder.mkdir()
    log = folder / "access"
    with logging(env, "rotated/access", "--shards", "2", "--memory", "1G", "--metrics",
                 f"127.0.0.1:{METRICS}", "--stats", "0.2") as (server, _):
        tool = shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin")
        rules = env.scratch / "logrotate.conf"
        rules.write_text(f"{log} {{\n\trotate 1000\n\tnocompress\n\tpostrotate\n"
                         f"\t\tkill -USR1 {server.process.pid}\n\tendscript\n}}\n", "ascii")
        rules.chmod(0o644)
        stop, turns, errors = threading.Event(), [], []

        def rotate():
            try:
                while not stop.wait(0.1):
                    if tool:
                        command(tool, "-f", "-s", folder / "state", rules)
                    else:
                        log.rename(folder / f"access.{len(turns)}")
                        server.signal(signal.SIGUSR1)
                    eventually(log.exists, WAIT_MAX_S, "the log is not reopened")
                    turns.append(1)
            except Exception as error:  # for the case's own thread
                errors.append(error)
        rotator = threading.Thread(target=rotate)
        rotator.start()

        def is_enough():
            return len(turns) >= 5 and read_metric(METRICS, REQUESTS) > 1000 and \
                sum(map(bool, accepted_by(server).values())) == 2

        while not is_enough() and not errors:
            run_wrk(f"http://{HOST}/", 16, seconds=1, extra=["-H", "Referer: http://a.test/"])
        stop.set()
        rotator.join()
        check(not errors, f"{errors}")
        count = read_metric(METRICS, REQUESTS) + read_metric(METRICS, REFUSED)
        server.terminate()
    paths = list(folder.glob("access*"))
    lines, lost = lines_of(*paths)
    check(len(paths) > 5, f"{paths}")
    check(count <= len(lines) + lost <= count + 16, f"{count} requests, "
          f"{len(lines)} lines, {lost} lost")
    check(lost == 0 or len(lines) > 8000 * 2, f"{lost} of {len(lines)} lines are lost")
    check(all(line.referer == "http://a.test/" for line in lines if line.status == 200), "referers")


def fifo(env):
    """A FIFO without a reader, with one that stops, and with one that goes: clients are served,
    and lost lines are counted and reported."""
    pipe = env.scratch / "fifo"
    command("mkfifo", pipe)
    with logging(env, "fifo", "--metrics", f"127.0.0.1:{METRICS}", "--stats", "0.2") as (server, _):
        def ask(count):
            with dial_server() as sock:
                answers = Answers(sock)
                for _ in range(count):
                    sock.sendall(GET + b"User-Agent: " + b"a" * 900 + b"\r\n\r\n")
                    check(answers.next()[0] == 200, "no answer")
        ask(10)
        eventually(lambda: read_metric(METRICS, LOST) == 10, WAIT_MAX_S,
                   lambda: f"{read_metric(METRICS, LOST)} of 10 lost lines")
        eventually(lambda: "in total 10 lines of the access log lost" in server.output("stderr"),
                   WAIT_MAX_S, "no line of --stats")
        check("nobody reads it" in server.output("stderr"), server.story())
        with pipe.open("rb") as reader:
            check(re.fullmatch(REPORT, reader.readline().decode().strip())[1] == "10", "no report")
            ask(500)  # more than the pipe holds
            for _ in range(500):
                Line(reader.readline().decode().strip())
            check(read_metric(METRICS, LOST) == 10, "a slow reader loses lines")
        ask(5)
        eventually(lambda: read_metric(METRICS, LOST) == 15, WAIT_MAX_S, "not counted")
        with pipe.open("rb") as reader:
            check(re.fullmatch(REPORT, reader.readline().decode().strip())[1] == "5", "no report")
            ask(500)
            server.terminate()  # with a full pipe
            check(re.search("'.*fifo': \\d+ lines could not be written", server.output("stderr")),
                  server.story())


def standard_output(env):
    """/dev/stdout is the pipe that the program's output is."""
    reading, writing = os.pipe()
    program = env.start([env.app("coronet-httpd"), "--link", "tap:cs0", "--addr", f"{HOST}/16",
                         "--poll", "adaptive", "--access-log", "/dev/stdout"], stdout=writing)
    os.close(writing)
    with open(reading, encoding="ascii") as out:
        check(out.readline().startswith("listening on"), program.story())
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "cs0")
        command("ip", "link", "set", "cs0", "up")
        send(b"GET /none HTTP/1.0\r\n\r\n")
        check(Line(out.readline().strip()).status == 404, "another line")
        program.terminate()


def local_daemon(env):
    """The socket of a local daemon that is not there yet, ends, and is started again."""
    path = env.scratch / "devlog"

    def bind():
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(str(path))
        sock.settimeout(WAIT_MAX_S)
        return sock

    def receive(sock):
        text = sock.recv(65536).decode("ascii")
        found = re.fullmatch(r"<134>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d coronet-httpd\[\d+\]: (.*)",
                             text)
        check(found, f"a datagram: {text!r}")
        return found[1]
    with logging(env, "devlog", "--metrics", f"127.0.0.1:{METRICS}",
                 log=f"unix:{path}") as (server, _):
        for turn in range(1, 4):
            send(b"GET / HTTP/1.0\r\n\r\n")
            eventually(lambda t=turn: read_metric(METRICS, LOST) == t, WAIT_MAX_S, "not counted")
            with bind() as sock:
                check(re.fullmatch(REPORT, receive(sock))[1] == "1", "no report")
                send(b"GET / HTTP/1.0\r\nUser-Agent: a\r\n\r\n")
                line = Line(receive(sock))
                check(line.status == 200 and line.agent == "a", line.text)
            path.unlink()
        check(server.alive(), server.story())


def syslog_server(env):
    """RFC 5424 over UDP, sent by the kernel."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(WAIT_MAX_S)
        port = sock.getsockname()[1]
        with logging(env, "udp", log=f"udp:127.0.0.1:{port}"):
            send(b"GET /none HTTP/1.0\r\n\r\n")
            text = sock.recv(65536).decode("ascii")
        found = re.fullmatch(r"<134>1 \S+Z \S+ coronet-httpd \d+ access - (.*)", text)
        check(found and Line(found[1]).status == 404, f"a datagram: {text!r}")


def full_disk(env):
    """Lines that a full disk does not take are lost, none is torn, and every client is served."""
    folder = env.scratch / "disk"
    folder.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=1m", "none", folder)
    filler = folder / "filler"
    filler.write_bytes(bytes(1000 << 10))  # 24 KiB are left
    with logging(env, "disk/access", "--metrics", f"127.0.0.1:{METRICS}") as (server, log):
        asked = 0

        def ask():
            nonlocal asked
            with dial_server() as sock:
                answers = Answers(sock)
                for _ in range(100):
                    sock.sendall(GET + b"User-Agent: " + b"a" * 300 + b"\r\n\r\n")
                    check(answers.next()[0] == 200, "no answer")
                    asked += 1
        while read_metric(METRICS, LOST) == 0:
            ask()
        filler.unlink()
        ask()
        eventually(lambda: sum(map(lambda got: got if isinstance(got, int) else len(got),
                                   lines_of(log))) == asked, WAIT_MAX_S,
                   lambda: f"{asked} requests, {len(texts_of(log))} lines")
        lines, lost = lines_of(log)
        check(lost == read_metric(METRICS, LOST) > 0 and len(lines) >= 100, f"{lost} lost")
        server.terminate()
    command("umount", folder)
    with logging(env, "full", log="/dev/full") as (server, _):
        send(b"GET / HTTP/1.0\r\n\r\n")
        server.terminate()
        check("'/dev/full': 1 lines could not be written" in server.output("stderr"),
              server.story())


def reloads(env):
    """SIGHUP leaves the log as it is; coronet-ctl set log.reopen reopens it."""
    control = env.scratch / "control"
    with logging(env, "reloads", "--control", control) as (server, log):
        moved = env.scratch / "reloads.1"
        log.rename(moved)
        server.signal(signal.SIGHUP)
        eventually(lambda: "SIGHUP" in server.output("stderr"), WAIT_MAX_S, server.story)
        send(b"GET /a HTTP/1.0\r\n\r\n")
        await_lines(moved, 1)
        check(not log.exists(), "SIGHUP has reopened the log")
        command(env.app("coronet-ctl"), "--control", control, "set", "log.reopen")
        eventually(log.exists, WAIT_MAX_S, "the log is not reopened")
        send(b"GET /b HTTP/1.0\r\n\r\n")
        check(await_lines(log, 1)[0].request == "GET /b HTTP/1.0", "in the wrong file")


CASES = [every_response, curls, connections, no_forgery, late_clients, clients_that_leave,
         displaced_and_stopped, rotation, fifo, standard_output, local_daemon, syslog_server,
         full_disk, reloads]


def cases(env):
    yield from chosen(env, CASES, prefix="httpd log: ")


if __name__ == "__main__":
    main(cases)
