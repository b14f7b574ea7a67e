#!/usr/bin/env python3
"""coronet-httpd over a TAP link: curl, wrk, and requests that nobody should send.

Usage: test_httpd.py BUILD_DIR [one-shard|shards|CASE...]
"""

import contextlib
import fcntl
import functools
import gzip
import hashlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

from harness import (WAIT_MAX_S, Failure, Spoiled, accepted_by, check, command, eventually,
                     in_a_quiet_moment, linger, main, repeat_for)
from web import Nginx, curl, curl_digests, need, random_file, wrk_enough

HOST, PORT = "10.9.0.1", 80
MIB = 1 << 20
DRAIN_DEFAULT = 30  # seconds, of --drain-timeout
STACK_DRAIN = 1  # seconds that the stack itself waits for its connections at the end

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"

# What is sent, the statuses that come back in order, whether the end follows.
EXCHANGES = [
    (GET + b"\r\n", [200], False),
    (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + GET + b"\r\n", [200, 200], False),
    (GET + b"Connection: close\r\n\r\n" + GET + b"\r\n", [200], True),
    (b"GET / HTTP/1.0\r\n\r\n", [200], True),
    (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2, [200, 200], False),
    (b"\r\n" + GET + b"\r\n", [200], False),
    (b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" + GET + b"\r\n", [404, 200], False),
    (b"GET /%69ndex.html?x HTTP/1.1\r\nHost: x\r\n\r\n", [200], False),
    (b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", [400], True),
    (b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", [400], True),
    (b"GET /%2e%2E/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", [400], True),
    (b"GET /folder/..%2findex.html HTTP/1.1\r\nHost: x\r\n\r\n", [200], False),
    (b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", [200], False),
    (b"GET http://x?a=/none HTTP/1.1\r\nHost: x\r\n\r\n", [200], False),
    (b"GET http://user@x/ HTTP/1.1\r\nHost: x\r\n\r\n", [400], True),
    (GET + b"Content-Length: 5\r\n\r\nhello" + GET + b"\r\n", [200, 200], False),
    (GET + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + GET + b"\r\n",
     [200, 200], False),
    (GET + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n" + GET + b"\r\n", [200], True),
    (GET + b"Content-Length: 2000000\r\n\r\n", [413], True),
    (GET + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n", [200], True),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", [405], True),
    (b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", [501], True),
    (GET + b"Transfer-Encoding: gzip\r\n\r\n", [501], True),
    (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", [505], True),
    (GET + b"Expect: tea\r\n\r\n", [417], True),
    (b"GET / HTTP/1.1\r\n\r\n", [400], True),
    (b"GET / HTTP/1.1\nHost: x\n\n", [400], True),
    (GET + b"A: b\rC: d\r\n\r\n", [400], True),
    (GET + b"A: b\r\n folded\r\n\r\n", [400], True),
    (GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400], True),
    (GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", [400], True),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", [414], True),
    (GET + b"A: " + b"b" * 20000 + b"\r\n\r\n", [431], True),
    (GET + b"A: b\r\n" * 101 + b"\r\n", [431], True),
    # What answers HEAD has no body, errors included (RFC 9110 9.3.2).
    (b"HEAD /none HTTP/1.1\r\nHost: x\r\n\r\n" + GET + b"\r\n", [404, 200], False),
    (b"HEAD / HTTP/1.1\r\n\r\n", [400], True),
    (b"HEAD / HTTP/2.0\r\nHost: x\r\n\r\n", [505], True),
    (b"\r\nHEAD / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", [417], True),
    (b"HEAD / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n", [413], True),
    (b"HEAD / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 101 + b"\r\n", [431], True),
    (b"HEAD /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", [414], True),
    (b"\x16\x03\x01\x02\x00\x01\x00" + b"\0" * 100 + b"\n", [400], True),
]


@contextlib.contextmanager
def serve(env, *options):
    number = serve.count = getattr(serve, "count", 0) + 1
    link = f"ch{number}"
    with env.running([env.app("coronet-httpd"), "--link", f"tap:{link}", "--addr", f"{HOST}/16",
                      "--port", PORT, "--poll", "adaptive", *options]) as server:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", link)
        command("ip", "link", "set", link, "up")
        yield server


def dial(buffers=0):
    sock = socket.socket()
    if buffers:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
    sock.settimeout(WAIT_MAX_S)
    sock.connect((HOST, PORT))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Answers:
    """Reads one answer after the other from a socket."""

    def __init__(self, sock):
        self.sock, self.data = sock, b""

    def more(self):
        part = self.sock.recv(65536)
        self.data += part
        return part

    def exactly(self, size):
        """Gathered apart: much longer than anything else here."""
        parts, left = [self.data[:size]], size - len(self.data[:size])
        self.data = self.data[size:]
        while left:
            part = self.sock.recv(min(left, 65536))
            check(part, "an answer's body ended early")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def next(self, body=True):
        """Status, fields, body; None at the end."""
        while b"\r\n\r\n" not in self.data:
            if not self.more():
                check(not self.data, f"half an answer: {self.data!r}")
                return None
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        check(lines[0].startswith("HTTP/1.1 "), f"a status line of {lines[0]!r}")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        length = int(fields["content-length"]) if body else 0
        return int(lines[0].split()[1]), fields, self.exactly(length)


def exchanges(env):
    """Each at once, and each byte by byte: the answers are the same."""
    page = b"<h1>hello</h1>\n"
    root = env.scratch / "site"
    root.mkdir()
    (root / "index.html").write_bytes(page)
    (root / "note.txt").write_bytes(b"note\n")
    (root / "photo.jpeg").write_bytes(b"")
    os.mkfifo(root / "fifo")  # nobody writes to it
    (root / "folder").mkdir()
    with serve(env, "--root", root) as server:
        for data, statuses, ends in EXCHANGES:
            head_first = data.strip().startswith(b"HEAD")
            for step in (len(data), 700 if len(data) > 500 else 1):
                with dial() as sock:
                    with contextlib.suppress(ConnectionError):  # it may have said enough
                        for at in range(0, len(data), step):
                            sock.sendall(data[at:at + step])
                    answers = Answers(sock)
                    told = f"to {data[:80]!r} in steps of {step}"
                    for number, status in enumerate(statuses):
                        answer = answers.next(body=not (head_first and number == 0))
                        check(answer, f"no answer {told}")
                        check(answer[0] == status, f"{answer[0]} instead of {status} {told}")
                        check(answer[2] == page or status != 200 or head_first, f"a wrong body {told}")
                        last = ends and number == len(statuses) - 1
                        # Only a wrong body ends what was to go on.
                        check((answer[1].get("connection") == "close") == last
                              or b"helloX" in data, f"{answer[1]} {told}")
                    if ends:
                        check(answers.next() is None, f"the end does not follow {told}")
                    else:
                        sock.sendall(GET + b"\r\n")
                        check(answers.next()[0] == 200, f"the connection does not go on {told}")
        check(server.alive(), f"it died: {server.story()}")
        done = curl("-i", f"http://{HOST}/note.txt")
        check("content-type: text/plain" in done.lower() and done.endswith("\r\n\r\nnote\n"), done)
        photo = curl("-I", f"http://{HOST}/photo.jpeg")
        check("Content-Type: image/jpeg\r\nContent-Length: 0\r\n" in photo, photo)
        check(re.search(r"\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n", done), done)
        server.terminate()


# ---- conditions, ranges, forms, folders ----

MODIFIED = 784111777
MODIFIED_TEXT = "Sun, 06 Nov 1994 08:49:37 GMT"
NOTE = bytes(range(256)) * 40


def make_site(env):
    """A folder with one of everything that is answered in its own way."""
    root = env.scratch / "forms"
    (root / "sub" / "deep").mkdir(parents=True, exist_ok=True)
    for path, data in (("index.html", b"<p>top</p>"), ("sub/index.html", b"<p>sub</p>"),
                       ("sub/deep/leaf.txt", b"leaf"), ("note.bin", NOTE), ("empty.txt", b""),
                       ("style.css", b"body { color: black }" * 20),
                       ("style.css.gz", gzip.compress(b"body { color: black }" * 20, mtime=0)),
                       ("a b.txt", b"blank")):
        (root / path).write_bytes(data)
        os.utime(root / path, (MODIFIED, MODIFIED))
    return root


def ask(address, port, path, *fields, method="GET"):
    """Status, fields, body of one request on a connection of its own."""
    with socket.create_connection((address, port), WAIT_MAX_S) as sock:
        sock.sendall("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", "Connection: close",
                                  *fields, "", ""]).encode())
        data = b""
        while part := sock.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    names = [line.split(":")[0].lower() for line in lines[1:]]
    check(len(set(names)) == len(names) or names.count("x-backend") > 1,  # that one is nginx's
          f"a field comes twice: {head!r}")
    found = dict(line.split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), {k.lower(): v for k, v in found.items()}, body


def parts_of(fields, body):
    """(Content-Range, bytes) of each part of an answer in several."""
    boundary = re.fullmatch(r"multipart/byteranges; boundary=([-\w]+)", fields["content-type"])
    check(boundary, f"a Content-Type of {fields['content-type']!r}")
    check(len(body) == int(fields["content-length"]), "a length that is not the body's")
    pieces = body.split(b"\r\n--" + boundary[1].encode())
    check(pieces[0] == b"" and pieces[-1] == b"--\r\n", f"{pieces[0]!r} ... {pieces[-1]!r}")
    found = []
    for piece in pieces[1:-1]:
        head, _, data = piece.partition(b"\r\n\r\n")
        inner = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        found.append((inner["Content-Range"], data))
    return found


def conditions(env):
    """What has not changed is not sent again; a part of it is all that was asked for."""
    with serve(env, "--root", make_site(env)) as server:
        get = functools.partial(ask, HOST, PORT)
        status, whole, body = get("/note.bin")
        check(status == 200 and body == NOTE, f"{status}, {len(body)} bytes")
        check(whole["last-modified"] == MODIFIED_TEXT and whole["accept-ranges"] == "bytes", whole)
        etag = whole["etag"]
        for field, wanted in ((f"If-None-Match: {etag}", 304), ('If-None-Match: "x"', 200),
                              (f"If-Modified-Since: {MODIFIED_TEXT}", 304),
                              ('If-Match: "x"', 412), (f"If-Match: {etag}", 200)):
            status, fields, body = get("/note.bin", field)
            check(status == wanted, f"{status} to {field}")
            check(body == {200: NOTE, 304: b"", 412: b"412 Precondition Failed\n"}[status],
                  body[:80])
            check(status != 304 or (fields["etag"] == etag and "content-length" not in fields),
                  fields)
        status, fields, body = get("/note.bin", "Range: bytes=100-199")
        check((status, body, fields["content-range"]) ==
              (206, NOTE[100:200], f"bytes 100-199/{len(NOTE)}"), f"{status} {fields}")
        check((fields["etag"], fields["content-type"]) == (etag, "application/octet-stream"), fields)
        status, fields, body = get("/note.bin", "Range: bytes=0-9,-1,500-5000")
        check(status == 206 and parts_of(fields, body) == [
            (f"bytes 0-9/{len(NOTE)}", NOTE[:10]),
            (f"bytes {len(NOTE) - 1}-{len(NOTE) - 1}/{len(NOTE)}", NOTE[-1:]),
            (f"bytes 500-5000/{len(NOTE)}", NOTE[500:5001])], f"{status} {fields}")
        status, fields, body = get("/note.bin", f"Range: bytes={len(NOTE)}-")
        check((status, fields["content-range"]) == (416, f"bytes */{len(NOTE)}"), fields)
        status, fields, body = get("/style.css", "Accept-Encoding: gzip")
        check(fields["content-encoding"] == "gzip" and fields["vary"] == "Accept-Encoding", fields)
        check(fields["content-type"] == "text/css; charset=utf-8", fields)
        packed = body
        check(gzip.decompress(packed) == b"body { color: black }" * 20, "other bytes")
        status, fields, body = get("/style.css", "Accept-Encoding: gzip", "Range: bytes=2-5")
        check((status, body) == (206, packed[2:6]) and fields["content-encoding"] == "gzip", fields)
        status, fields, body = get("/style.css")
        check("content-encoding" not in fields and fields["vary"] == "Accept-Encoding", fields)
        check(get("/sub")[1]["location"] == "/sub/" and get("/sub/")[2] == b"<p>sub</p>", "/sub")
        with dial() as sock:  # whatever was the answer, the connection goes on
            answers = Answers(sock)
            for fields, wanted in ((f"If-None-Match: {etag}", 304), ("Range: bytes=0-0,2-2", 206),
                                   ("Range: bytes=99999-", 416), ('If-Match: "x"', 412),
                                   ("A: b", 200)):
                sock.sendall(f"GET /note.bin HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n".encode())
                check(answers.next(body=wanted != 304)[0] == wanted, f"no {wanted} to {fields}")
        check(server.alive(), f"it died: {server.story()}")


# Path and fields, ETAG being the server's own; what nginx is lenient with is left out.
LIKE_NGINX = [
    ("/", ()), ("/none", ()), ("/note.bin", ()), ("/empty.txt", ()), ("/sub", ()), ("/sub/", ()),
    ("/sub/deep/leaf.txt", ()), ("/a%20b.txt", ()), ("/a%20b.txt?c=d", ()),
    ("/./note.bin", ()), ("/sub/../note.bin", ()), ("/sub/%2e%2e/note.bin", ()),
    ("/sub/..%2Fnote.bin", ()), ("//sub//deep/./leaf.txt", ()), ("/sub/deep/..", ()),
    ("/../note.bin", ()), ("/sub/../../note.bin", ()), ("/%2e%2e/%2e%2e/etc/passwd", ()),
    ("/note.bin/", ()), ("/sub/index.html", ()),
    ("/style.css", ("Accept-Encoding: gzip",)), ("/style.css", ("Accept-Encoding: gzip;q=0",)),
    *(("/note.bin", (f"Range: bytes={value}",)) for value in (
        "0-0", "0-", "-1", "-5000", "-999999", "5-10,20-30", "0-0,-1", "9999-20000", "10240-",
        "10239-", "0-,0-", "0-10239", "0-10240", "50000-50001", "0-0,50000-")),
    *(("/note.bin", ("Range: bytes=0-9", f"If-Range: {value}")) for value in (
        "ETAG", '"other"', MODIFIED_TEXT, "Sun, 06 Nov 1994 08:49:38 GMT")),
    *(("/note.bin", (f"If-None-Match: {value}",)) for value in (
        "ETAG", "W/ETAG", '"a", ETAG', "*", '"a"')),
    *(("/note.bin", (f"If-Match: {value}",)) for value in ("ETAG", "*", '"a"', '"a", ETAG')),
    *(("/note.bin", (f"If-Modified-Since: {value}",)) for value in (
        MODIFIED_TEXT, "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
        "Sat, 05 Nov 1994 08:49:37 GMT", "soon")),
    *(("/note.bin", (f"If-Unmodified-Since: {value}",)) for value in (
        MODIFIED_TEXT, "Sat, 05 Nov 1994 08:49:37 GMT")),
    ("/note.bin", ("If-None-Match: ETAG", "Range: bytes=0-9")),
    ("/note.bin", ('If-Match: "a"', "If-None-Match: ETAG")),
]


def like_nginx(env):
    """The same folder by nginx and by coronet-httpd: the same statuses, bytes and ranges."""
    root = make_site(env)
    with Nginx(env, "127.0.0.1", 8080, root=root, gzip_static=True), serve(env, "--root", root):
        places = (("127.0.0.1", 8080), (HOST, PORT))
        for path, fields in LIKE_NGINX:
            told = []
            for place in places:
                etag = ask(*place, path)[1].get("etag", "")
                for method in "GET", "HEAD":
                    status, found, body = ask(
                        *place, path, *(field.replace("ETAG", etag) for field in fields),
                        method=method)
                    several = found.get("content-type", "").startswith("multipart")
                    told.append((method, status,
                                 parts_of(found, body) if several and body else
                                 body if status in (200, 206) else None,
                                 found.get("content-range"), found.get("content-encoding"),
                                 found.get("last-modified") if status == 200 else None))
            theirs, ours = told[:2], told[2:]
            # nginx heeds ranges with HEAD, which RFC 9110 14.2 leaves to GET.
            if any(field.startswith("Range") for field in fields):
                del theirs[1], ours[1]
            check(ours == theirs, f"{path} {fields}: {str(ours)[:300]}, nginx {str(theirs)[:300]}")


def like_nginx_by_curl(env):
    """The same command lines of curl on both: the same exit status, code and bytes."""
    need("curl")
    root = make_site(env)
    with Nginx(env, "127.0.0.1", 8080, root=root, gzip_static=True), serve(env, "--root", root):
        for words in (["/note.bin"], ["-r", "0-99", "/note.bin"], ["-r", "0-0,-1", "/note.bin"],
                      ["--compressed", "/style.css"], ["-L", "/sub"],
                      ["-L", "/sub?a=b&c"],
                      ["--path-as-is", "/sub/../note.bin"], ["--path-as-is", "/../../etc/passwd"],
                      ["-I", "/note.bin"], ["-z", MODIFIED_TEXT, "/note.bin"],
                      ["-z", f"-{MODIFIED_TEXT}", "/note.bin"], ["-C", "5000", "/note.bin"],
                      ["-f", "/none"], ["/note.bin", "/sub/", "/empty.txt"]):
            told = []
            for place in ("http://127.0.0.1:8080", f"http://{HOST}"):
                done = subprocess.run(
                    ["curl", "-s", "-o", "-", "-w",
                     "%{http_code} %{num_redirects} %{url_effective};", "--max-time",
                     str(WAIT_MAX_S), *(place + word if word.startswith("/") else word
                                      for word in words)],
                    check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
                told.append((done.returncode, done.stdout.replace(place.encode(), b"")))
            if "-I" in words or b"400 " in told[0][1] or b"0-0,-1" in " ".join(words).encode():
                # Fields, error pages and boundaries are each server's own.
                told = [(status, output.rpartition(b"\n")[2].split()[0][-3:])
                        for status, output in told]
            check(told[0] == told[1], f"{words}: nginx {told[0]!r:.300}, ours {told[1]!r:.300}")


def files_that_change(env):
    """An answer is of one state of a file, to its last byte; the next one is of the newest."""
    root = env.scratch / "changing"
    root.mkdir()
    wanted = random_file(root / "large", 16 * MIB)
    (root / "note.txt").write_bytes(b"before")
    with serve(env, "--root", root, "--rescan", "0.05", "--send-timeout", WAIT_MAX_S) as server, \
            dial(buffers=65536) as slow, dial() as quick:
        def shows(path, status, body):
            quick.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            found = answers.next()
            return (found[0], body if body is None else found[2]) == (status, body)
        answers = Answers(quick)
        slow.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        reader = Answers(slow)
        reader.more()
        check(shows("/note.txt", 200, b"before"), "no note")
        etag = ask(HOST, PORT, "/note.txt")[1]["etag"]
        with (root / "large").open("r+b") as file:  # in place, and shorter
            file.write(b"x" * MIB)
            file.truncate(MIB)
        (root / "new").write_bytes(b"after")
        os.rename(root / "new", root / "note.txt")
        for path, status, body in (("/note.txt", 200, b"after"), ("/large", 200, b"x" * MIB)):
            eventually(lambda p=path, s=status, b=body: shows(p, s, b), WAIT_MAX_S,
                       lambda p=path: f"{p} stays: {server.story()}")
        check(ask(HOST, PORT, "/note.txt", f"If-None-Match: {etag}")[0] == 200, "an old tag")
        check(ask(HOST, PORT, "/note.txt", f"If-Range: {etag}", "Range: bytes=0-0")[0] == 200,
              "a part of something else")
        os.remove(root / "note.txt")
        (root / "folder").mkdir()
        (root / "folder" / "index.html").write_bytes(b"folder")
        eventually(lambda: shows("/note.txt", 404, None), WAIT_MAX_S, "it is there still")
        eventually(lambda: shows("/folder/", 200, b"folder"), WAIT_MAX_S, "no new folder")
        os.symlink("/etc/passwd", root / "passwd")
        (root / "mark").write_bytes(b"mark")
        eventually(lambda: shows("/mark", 200, b"mark"), WAIT_MAX_S, "no new file")
        check(shows("/passwd", 404, None), "a link leads out")
        check(hashlib.sha256(reader.next()[2]).hexdigest() == wanted, "a torn body")
        # The second of the pipeline is answered when the first has been read.
        check(reader.next()[2] == b"x" * MIB, "neither the old nor the new file")
        check("files below --root have changed" in server.output("stderr"), server.story())
        check(server.alive(), f"it died: {server.story()}")


def signals_that_do_not_end_it(env):
    """SIGHUP has the files looked at, even if nothing else does; SIGUSR2 is ignored."""
    root = env.scratch / "signalled"
    root.mkdir()
    (root / "index.html").write_bytes(b"before")
    with serve(env, "--root", root, "--rescan", "0") as server:
        check(ask(HOST, PORT, "/")[2] == b"before", "not the file")
        for text in b"after", b"at last":
            linger(1)  # until what was asked for before is over
            (root / "index.html").write_bytes(text)
            linger(0.2)
            check(ask(HOST, PORT, "/")[2] != text, "it changed by itself")
            (root / "new").write_bytes(text)  # written at this very moment
            server.signal(signal.SIGHUP)
            server.signal(signal.SIGUSR2)
            for path in "/", "/new":
                eventually(lambda p=path, t=text: ask(HOST, PORT, p)[2] == t, WAIT_MAX_S,
                           lambda p=path: f"{p} stays: {server.story()}")
        check(server.alive(), server.story())


def unacknowledged(sock):
    """Bytes that were sent and have not arrived: SIOCOUTQ."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]


def trickle(env):
    """A head that comes in too many pieces is refused, and one in fewer is not."""
    with serve(env, "--header-timeout", "60") as server:
        for count, status in (200, 200), (600, 400):
            with dial() as sock:
                sock.sendall(GET + b"A: ")
                for _ in range(count):
                    with contextlib.suppress(ConnectionError):
                        sock.send(b"a")
                    # The stack acknowledges every second segment at once, in
                    # the round that gave it to the server: at most two bytes
                    # make one piece.
                    while unacknowledged(sock) > 1 and not select.select([sock], [], [], 0)[0]:
                        pass
                with contextlib.suppress(ConnectionError):
                    sock.send(b"\r\n\r\n")
                answer = Answers(sock).next()
                check(answer[0] == status, f"{answer[0]} to a head in {count} pieces")
        check(server.alive(), f"it died: {server.story()}")


def pipelining(env):
    """Thousands of requests in flight, cut anywhere; answers in order."""
    with serve(env) as server, dial() as sock:
        count = 5000
        requests = b"".join(b"GET /%s HTTP/1.1\r\nHost: x\r\nX: %d\r\n\r\n"
                            % (b"" if number % 3 else b"none", number) for number in range(count))
        sock.settimeout(WAIT_MAX_S)
        sent, answers, got = 0, Answers(sock), 0
        sock.setblocking(False)
        while got < count:
            with contextlib.suppress(BlockingIOError):
                sent += sock.send(requests[sent:sent + 4999])
            with contextlib.suppress(BlockingIOError):
                check(answers.more(), f"the end after {got} answers")
            while b"\r\n\r\n" in answers.data:
                length = int(re.search(rb"Content-Length: (\d+)\r\n", answers.data)[1])
                at = answers.data.index(b"\r\n\r\n") + 4
                if len(answers.data) < at + length:
                    break
                wanted = b"200" if got % 3 else b"404"
                check(answers.data[9:12] == wanted, f"answer {got}: {answers.data[:40]!r}")
                answers.data = answers.data[at + length:]
                got += 1
        check(server.alive(), f"it died: {server.story()}")


def large_file(env):
    """A file of many windows, to several at once: equal hashes, and resumed keep-alive."""
    need("curl")
    size = (64 if not env.sanitized else 8) * MIB
    wanted = random_file(env.scratch / "large", size)
    with serve(env, "--root", env.scratch / "large"):
        digests, total = curl_digests(f"http://{HOST}/large", 4)
        check(digests == [wanted] * 4 and total == 4 * size, "the SHA-256 differs")
        with dial() as sock:
            answers = Answers(sock)
            for _ in range(2):
                sock.sendall(GET + b"\r\n")
                body = answers.next()[2]
                check(hashlib.sha256(body).hexdigest() == wanted, "the SHA-256 differs")


def slow_reader(env):
    """Who reads slowly, but reads, gets the whole of an answer that ends the connection."""
    limit, size = 1, 600000
    wanted = random_file(env.scratch / "slow", size)

    def attempt():
        data, longest, last = b"", 0.0, time.monotonic()

        def read_a_little():
            nonlocal data, longest, last
            data += sock.recv(2000)
            longest = max(longest, time.monotonic() - last)
            last = time.monotonic()

        with dial(buffers=32768) as sock, contextlib.suppress(ConnectionResetError):
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            repeat_for(2.5 * limit, read_a_little)
            check(len(data) < size / 2, "it reads too fast to show anything")
            while part := sock.recv(1 << 16):
                data += part
        body = data.partition(b"\r\n\r\n")[2]
        if hashlib.sha256(body).hexdigest() != wanted:
            # Its kernel makes room for the server after some reads only.
            kind = Spoiled if longest > limit / 4 else Failure
            raise kind(f"{len(body)} of {size} bytes, none later than {longest:.1f} s "
                       "after another")

    with serve(env, "--root", env.scratch / "slow", "--send-timeout", limit):
        in_a_quiet_moment(attempt)


def slow_readers_get_no_copies(env):
    """What a thousand clients have not read of a file costs segments; each has what it asked for,
    though the file has changed."""
    count, size = 1000, MIB
    root = env.scratch / "lent"
    root.mkdir()
    wanted = random_file(root / "file", size)
    with serve(env, "--root", root, "--rescan", "0.05") as server, contextlib.ExitStack() as stack:
        check(ask(HOST, PORT, "/file")[0] == 200, "not served")
        before = server.resident_bytes()
        socks = []
        for _ in range(count):
            socks.append(stack.enter_context(dial(buffers=4096)))
            socks[-1].sendall(b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        for sock in socks:
            check(select.select([sock], [], [], WAIT_MAX_S)[0], "no answer")
        linger(1)
        each = (server.resident_bytes() - before) / count
        print(f"# {each / 1024:.0f} KiB a reader")
        (root / "new").write_bytes(b"new")
        os.rename(root / "new", root / "file")
        eventually(lambda: ask(HOST, PORT, "/file")[2] == b"new", WAIT_MAX_S, server.story)
        for sock in socks[::100]:
            body = Answers(sock).next()[2]
            check(hashlib.sha256(body).hexdigest() == wanted, f"{len(body)} bytes differ")
        check(each < 128 << 10, f"{each / 1024:.0f} KiB a reader")


def refused():
    try:
        dial().close()
    except OSError:
        return True
    return False


def drain(env):
    """After SIGTERM answers under way are finished, and nothing else begins."""
    wanted = random_file(env.scratch / "drained", 16 * MIB)
    with serve(env, "--root", env.scratch / "drained") as server, dial() as idle, \
            dial(buffers=65536) as busy, dial() as half:
        idle.sendall(GET + b"\r\n")
        Answers(idle).next()
        half.sendall(GET)
        busy.sendall(GET + b"\r\n")
        answers = Answers(busy)
        answers.more()
        server.signal(signal.SIGTERM)
        check(idle.recv(1) == b"", "an idle connection goes on")
        eventually(refused, WAIT_MAX_S, "a new client is taken while draining")
        half.sendall(b"\r\n")
        answer = Answers(half).next()
        check(answer[0] == 200 and answer[1]["connection"] == "close", f"{answer[:2]}")
        check(hashlib.sha256(answer[2]).hexdigest() == wanted, "the SHA-256 differs")
        repeat_for(1.5 * STACK_DRAIN, lambda: check(
            server.alive(), f"it ended with an answer under way: {server.story()}"))
        check(hashlib.sha256(answers.next()[2]).hexdigest() == wanted, "the SHA-256 differs")
        busy.sendall(GET + b"\r\n")
        check(answers.next() in (None, answer), "no end after the last answer")
        check(server.wait(WAIT_MAX_S) == 0, server.story())
    with serve(env, "--root", env.scratch / "drained", "--drain-timeout", "1") as server, \
            dial(buffers=65536) as deaf:
        deaf.sendall(GET + b"\r\n")
        deaf.recv(1)
        begin = time.monotonic()
        server.signal(signal.SIGTERM)
        check(server.wait(WAIT_MAX_S) == 0, server.story())
        spent = time.monotonic() - begin
        check(0.9 < spent < DRAIN_DEFAULT, f"the drain took {spent:.1f} s")


def ask_once():
    """One connection and one request: how it went."""
    with socket.socket() as sock:
        sock.settimeout(5)  # to a link that has gone nothing is refused
        try:
            sock.connect((HOST, PORT))
        except OSError:
            return "refused"
        sock.settimeout(WAIT_MAX_S)
        try:
            sock.sendall(GET + b"Connection: close\r\n\r\n")
            data = b""
            while part := sock.recv(4096):
                data += part
        except OSError as error:
            return f"after the handshake: {error.strerror}"
        return "answered" if data.startswith(b"HTTP/1.1 200") else f"the answer {data!r}"


def drain_answers_whom_it_let_in(env, *options):
    """While clients come and go: none whose handshake was done is left without an answer."""
    with serve(env, *options) as server:
        ends = []

        def come_and_go():
            while not ends or ends[-1] != "refused":
                ends.append(ask_once())

        clients = [threading.Thread(target=come_and_go, daemon=True) for _ in range(16)]
        for client in clients:
            client.start()
        eventually(lambda: len(ends) > 200, WAIT_MAX_S, "the clients do not get going")
        server.signal(signal.SIGTERM)
        for client in clients:
            client.join(WAIT_MAX_S)
        told = {end: ends.count(end) for end in set(ends)}
        check(set(told) == {"answered", "refused"}, f"{told}")
        check(server.wait(WAIT_MAX_S) == 0, server.story())


def on_all_shards(shards):
    return "--shards", shards, "--memory", "1G", "--stats", "0.2"


def check_all_take(server, shards, count):
    """Every shard has its part of so many clients; one line announces all."""
    def all_have():
        taken = accepted_by(server)
        return sum(taken.values()) >= count and all(taken.get(i) for i in range(shards))
    eventually(all_have, WAIT_MAX_S, lambda: f"{accepted_by(server)} were taken by the shards of "
               f"{server.story()}")
    check(server.output("stdout").count("listening on") == 1, server.story())


def said(server, pattern):
    eventually(lambda: re.search(pattern, server.output("stderr")), WAIT_MAX_S,
               lambda: f"no {pattern!r} in {server.story()}")


def shards_drain(env, shards):
    """Every shard serves, and after SIGTERM ends what it has under way; then all end."""
    count = 64  # so that no shard is likely to go without
    wanted = random_file(env.scratch / "shared", 2 * MIB)
    with serve(env, "--root", env.scratch / "shared", "--send-timeout", WAIT_MAX_S,
               "--drain-timeout", WAIT_MAX_S, *on_all_shards(shards)) as server, \
            contextlib.ExitStack() as stack, dial() as idle:
        busy = [stack.enter_context(dial(buffers=65536)) for _ in range(count)]
        check(hashlib.sha256(whole_answer(idle)).hexdigest() == wanted, "the SHA-256 differs")
        for sock in busy:
            sock.sendall(GET + b"\r\n")
        readers = [Answers(sock) for sock in busy]
        for reader in readers:
            reader.more()
        check_all_take(server, shards, count + 1)
        said(server, f"httpd: {count + 1} clients,")
        server.signal(signal.SIGTERM)
        check(idle.recv(1) == b"", "an idle connection goes on")
        for _ in range(8):  # whichever shard it comes to
            eventually(refused, WAIT_MAX_S, "a new client is taken while draining")
        said(server, r"draining \d+ connections\n")
        check(server.output("stderr").count("draining") == 1, server.story())
        for reader in readers:
            check(server.alive(), f"it ended with answers under way: {server.story()}")
            check(hashlib.sha256(reader.next()[2]).hexdigest() == wanted, "the SHA-256 differs")
            check(reader.sock.recv(1) == b"", "the connection goes on")
        check(server.wait(WAIT_MAX_S) == 0, server.story())


def whole_answer(sock):
    sock.sendall(GET + b"\r\n")
    return Answers(sock).next()[2]


def shards_over_memif(env, shards):
    """curl, by way of coronet-proxy, from a server that the shards share."""
    need("curl")
    wanted = random_file(env.scratch / "memif", MIB)
    path = env.scratch / "h.sock"
    with env.running([env.app("coronet-httpd"), "--link", f"memif:{path},role=server", "--addr",
                      "10.8.0.1/16", "--root", env.scratch / "memif", "--poll", "adaptive",
                      *on_all_shards(shards)]) as server, \
            env.running([env.app("coronet-proxy"), "--link", f"memif:{path},role=client", "--addr",
                         "10.8.0.2/16", "--link", "tap:cp0", "--addr", f"{HOST}/16", "--listen",
                         f"{HOST}:{PORT}", "--to", "10.8.0.1:80", "--poll", "adaptive",
                         "--memory", "1G"]) as proxy, contextlib.ExitStack() as stack:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "cp0")
        command("ip", "link", "set", "cp0", "up")
        socks = [stack.enter_context(dial()) for _ in range(64)]
        for sock in socks:
            check(hashlib.sha256(whole_answer(sock)).hexdigest() == wanted, "the SHA-256 differs")
        check_all_take(server, shards, len(socks))
        digests, total = curl_digests(f"http://{HOST}/memif", 4)
        check(digests == [wanted] * 4 and total == 4 * MIB, "the SHA-256 differs")
        stack.close()
        server.terminate()
        proxy.terminate()


def shards_share_limits(env, shards):
    """A limit of clients is that of all shards, whichever they come to; a place is used again."""
    most = 3
    for option in "--max-clients", "--max-clients-per-source":
        with serve(env, option, most, "--header-timeout", WAIT_MAX_S,
                   "--idle-timeout", 2 * WAIT_MAX_S,
                   *on_all_shards(shards)) as server, contextlib.ExitStack() as stack:
            socks = [stack.enter_context(socket.socket()) for _ in range(32)]
            for sock in socks:
                sock.setblocking(False)
                sock.connect_ex((HOST, PORT))
            for turn in range(1, 4):
                eventually(functools.partial(clients_taken, server, turn * most), WAIT_MAX_S,
                           lambda n=turn: f"turn {n}: {accepted_by(server)} were taken by the "
                           f"shards of {server.story()}")
                said(server, r" [1-9]\d* SYNs over the limit")
                inside = [sock for sock in socks if is_connected(sock)]
                check(len(inside) == most, f"{len(inside)} are connected, {most} may be")
                for sock in inside if turn < 3 else []:
                    sock.close()  # others get in when they try again
                    socks.remove(sock)
            served = max(map(int, re.findall(r"httpd: (\d+) clients", server.output("stderr"))))
            check(served == most, f"{served} clients at a time, with {option} {most}")
            stack.close()
            server.terminate()


def clients_taken(server, count):
    """Whether so many connections have been taken by now; never more."""
    taken = sum(accepted_by(server).values())
    check(taken <= count, f"{taken} clients were taken, {count} may be: {server.story()}")
    return taken == count


def is_connected(sock):
    with contextlib.suppress(OSError):
        return bool(sock.getpeername())
    return False


def shards_displace_the_oldest(env, shards):
    """--max-half-open is that of all shards, and whoever began first makes room on any."""
    most, count = 8, 12
    with serve(env, "--max-half-open", most, "--header-timeout", WAIT_MAX_S,
               *on_all_shards(shards)) as server, contextlib.ExitStack() as stack:
        def counts():
            lines = re.findall(r"(\d+) with half a request.* (\d+) displaced",
                               server.output("stderr"))
            return lines and tuple(map(int, lines[-1]))
        socks = []
        for number in range(1, count + 1):
            socks.append(stack.enter_context(dial()))
            socks[-1].sendall(GET)
            eventually(lambda n=number: counts() == (min(n, most), max(n - most, 0)), WAIT_MAX_S,
                       lambda n=number: f"{n} have begun: {server.story()}")
        for sock in socks[:count - most]:
            answers = Answers(sock)
            check(answers.next()[0] == 408 and answers.next() is None, "the oldest stays")
        for sock in socks[count - most:]:
            sock.sendall(b"\r\n")
            check(Answers(sock).next()[0] == 200, "displaced, but not the oldest")
        server.terminate()


def nobody_reads_stderr(env):
    """A full pipe behind stderr stops no client, and a closed one ends nothing."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    os.dup2(writer, 9)
    with env.running(["sh", "-c", 'exec "$0" "$@" 2>&9', env.app("coronet-httpd"), "--link",
                      "tap:deaf0", "--addr", f"{HOST}/16", "--poll", "adaptive", "--stats", "0.1"],
                     pass_fds=[9]) as server:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "deaf0")
        command("ip", "link", "set", "deaf0", "up")
        os.close(writer)
        os.close(9)
        with dial() as sock:
            # While ten lines of statistics are due.
            repeat_for(1, lambda: check(asks(sock), "no answer"))
            os.close(reader)
            repeat_for(1, lambda: check(asks(sock), "no answer"))
        server.terminate()


def asks(sock):
    """Whether the connection is served."""
    sock.sendall(GET + b"\r\n")
    return Answers(sock).next()[0] == 200


def limits(env):
    """Requests that have begun displace each other; clients beyond a limit wait outside."""
    with serve(env, "--max-half-open", "2", "--stats", "0.2") as server, \
            contextlib.ExitStack() as stack:
        socks = [stack.enter_context(dial()) for _ in range(3)]
        whole = stack.enter_context(dial())
        check(asks(whole), "a whole request is not answered")
        for number, sock in enumerate(socks[:2], 1):
            sock.sendall(GET)
            said(server, f" {number} with half a request")  # so that they begin in this order
        socks[2].sendall(GET)
        first = Answers(socks[0])
        answer = first.next()
        check(answer and answer[0] == 408, f"the oldest of three got {answer}")
        check(first.next() is None, "no end after 408")
        for sock in socks[1:]:
            sock.sendall(b"\r\n")
            check(Answers(sock).next()[0] == 200, "displaced, but not the oldest")
        check(asks(whole), "a whole request was displaced")
        said(server, " 1 displaced")
    with serve(env, "--max-clients-per-source", "2", "--stats", "0.2") as server:
        with dial() as first, dial() as second:
            check(asks(first) and asks(second), "two of two are not served")
            with socket.socket() as third:
                third.setblocking(False)
                third.connect_ex((HOST, PORT))
                said(server, r" [1-9]\d* SYNs over the limit")
                check(not is_connected(third), "a third of two was let in")
        with dial() as another:
            check(asks(another), "nobody is let in after two have gone")


def wrk_load(env):
    """wrk finds no error, with few connections and with many."""
    need("wrk")
    with serve(env) as server:
        for connections in (1, 64, 1000):
            rate = wrk_enough(f"http://{HOST}:80/", connections)
            print(f"# wrk, {connections} connections: {rate:.0f} requests/s", flush=True)
        server.terminate()


def drip(sock, data, gap, is_over):
    """Send a byte at a time until is_over() of what comes back, or too slowly."""
    latest = time.monotonic()
    for byte in data:
        sock.sendall(bytes([byte]))
        if select.select([sock], [], [], 0.1)[0] and is_over():
            return
        spent, latest = time.monotonic() - latest, time.monotonic()
        if spent > gap:
            raise Spoiled(f"{spent:.1f} s between two bytes")
    raise Failure("every byte buys time")


def head_timeout():
    """408 for a head that does not end, though its bytes keep coming."""
    begin = time.monotonic()
    with dial() as slow:
        drip(slow, b"GET /" + b"a" * 200, 0.5, lambda: True)
        answers = Answers(slow)
        check(answers.next()[0] == 408, "no 408")
        check(answers.next() is None, "no end after 408")
        spent = time.monotonic() - begin
        check(spent > 0.6, f"408 after {spent:.1f} s")


def body_timeout():
    begin = time.monotonic()
    with dial() as dripping, contextlib.suppress(ConnectionError):
        dripping.sendall(GET + b"Content-Length: 1000\r\n\r\n")
        drip(dripping, b"x" * 200, 0.5, lambda: not dripping.recv(65536))
    spent = time.monotonic() - begin
    check(spent > 0.6, f"a body was waited for {spent:.1f} s")


def timeouts(env):
    """A request that does not get done is answered 408; silence is closed."""
    with serve(env, "--header-timeout", "0.6", "--idle-timeout", "1.2", "--send-timeout", "1"):
        in_a_quiet_moment(head_timeout)
        in_a_quiet_moment(body_timeout)
        begin = time.monotonic()
        with dial() as silent:
            check(silent.recv(1) == b"", "silence was answered")
            spent = time.monotonic() - begin
            check(spent > 1.2, f"a silent connection was closed after {spent:.1f} s")
        with dial(buffers=65536) as deaf:
            deaf.settimeout(0.5)
            with contextlib.suppress(TimeoutError, ConnectionError):
                for _ in range(20000):  # answers fill every window, then nothing is read
                    deaf.sendall(GET + b"\r\n")
                raise Failure("it takes requests and nobody takes its answers")
            poll = select.poll()
            poll.register(deaf, 0)  # errors alone: bytes wait there, unread
            check(poll.poll(WAIT_MAX_S * 1000), "a client that does not read is kept for ever")


def answers_are_counted(env):
    """By status, for Prometheus, of all shards together."""
    need("promtool")
    root = env.scratch_for({})
    (root / "note.txt").write_bytes(b"note\n")
    where = f"http://{HOST}/note.txt"
    with serve(env, "--root", root, "--metrics", "127.0.0.1:9466", "--shards",
               "2", "--memory", "1G"):
        etag = re.search(r"(?i)^etag: (.*)\r$", curl("-I", where), re.MULTILINE)[1]
        for _ in range(8):
            curl(where)
        for _ in range(3):
            curl("-H", f"If-None-Match: {etag}", where)
            curl("-r", "1-2", where)
        curl(f"http://{HOST}/none")
        curl("-X", "DELETE", where)
        page = curl("http://127.0.0.1:9466/metrics")
        found = {int(status): int(count) for status, count in re.findall(
            r'^coronet_httpd_answers_total\{status="(\d+)"\} (\d+)$', page, re.MULTILINE)}
        check({status: count for status, count in found.items() if count} ==
              {200: 9, 206: 3, 304: 3, 404: 1, 405: 1}, f"{found}")
        check(len(found) == 16 and "\ncoronet_httpd_accepts_total 17\n" in page, f"{found}")


def cases(env):
    need("curl")
    bind = functools.partial
    only = env.args
    for function in (exchanges, conditions, like_nginx, like_nginx_by_curl, files_that_change,
                     signals_that_do_not_end_it,
                     trickle, pipelining, large_file,
                     slow_reader, slow_readers_get_no_copies, wrk_load, timeouts, limits, nobody_reads_stderr,
                     answers_are_counted, drain,
                     drain_answers_whom_it_let_in):
        if not only or "one-shard" in only or function.__name__ in only:
            yield f"coronet-httpd: {function.__name__.replace('_', ' ')}", bind(function, env)
    for shards in (2, 4):
        for function, *words in ((shards_drain, shards), (shards_over_memif, shards),
                                 (shards_share_limits, shards),
                                 (shards_displace_the_oldest, shards),
                                 (drain_answers_whom_it_let_in, *on_all_shards(shards))):
            if not only or "shards" in only or function.__name__ in only:
                yield (f"coronet-httpd: {function.__name__.replace('_', ' ')}, {shards} shards",
                       bind(function, env, *words))


if __name__ == "__main__":
    main(cases)
