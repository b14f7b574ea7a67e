"""Cases of coronet-httpd: conditional requests, ranges, compressed and changing files."""

import functools
import gzip
import hashlib
import os
import re
import subprocess

from harness import WAIT_MAX_S, check, eventually
from httpd_server import HOST, PORT, Answers, dial_server, send_request, serve_files
from web import Nginx, need_programs, random_file

MIB = 1 << 20
MODIFIED = 784111777
MODIFIED_TEXT = "Sun, 06 Nov 1994 08:49:37 GMT"
NOTE = bytes(range(256)) * 40


def make_site(env):
    """Makes a folder with files of each kind that the server treats differently."""
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


def parts_of(fields, body):
    """Returns (Content-Range, bytes) of each part of a multipart answer."""
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
    """An unchanged file is not sent again, and a range request gets only its range."""
    with serve_files(env, "--root", make_site(env)) as server:
        get = functools.partial(send_request, HOST, PORT)
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
        check((fields["etag"], fields["content-type"]) == (etag, "application/octet-stream"),
              fields)
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
        with dial_server() as sock:  # the connection persists after each of these answers
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
    """nginx and coronet-httpd answer with the same statuses, bytes and ranges."""
    root = make_site(env)
    with (Nginx(env, "127.0.0.1", 8080, root=root, gzip_static=True),
          serve_files(env, "--root", root)):
        servers = (("127.0.0.1", 8080), (HOST, PORT))
        for path, fields in LIKE_NGINX:
            outcomes = []
            for server in servers:
                etag = send_request(*server, path)[1].get("etag", "")
                for method in "GET", "HEAD":
                    status, found, body = send_request(
                        *server, path, *(field.replace("ETAG", etag) for field in fields),
                        method=method)
                    several = found.get("content-type", "").startswith("multipart")
                    outcomes.append((method, status,
                                 parts_of(found, body) if several and body else
                                 body if status in (200, 206) else None,
                                 found.get("content-range"), found.get("content-encoding"),
                                 found.get("last-modified") if status == 200 else None))
            theirs, ours = outcomes[:2], outcomes[2:]
            # nginx heeds ranges with HEAD, which RFC 9110 14.2 leaves to GET.
            if any(field.startswith("Range") for field in fields):
                del theirs[1], ours[1]
            check(ours == theirs, f"{path} {fields}: {str(ours)[:300]}, nginx {str(theirs)[:300]}")


def like_nginx_by_curl(env):
    """curl has the same exit status, code and bytes from nginx as from coronet-httpd."""
    need_programs("curl")
    root = make_site(env)
    with (Nginx(env, "127.0.0.1", 8080, root=root, gzip_static=True),
          serve_files(env, "--root", root)):
        for words in (["/note.bin"], ["-r", "0-99", "/note.bin"], ["-r", "0-0,-1", "/note.bin"],
                      ["--compressed", "/style.css"], ["-L", "/sub"],
                      ["-L", "/sub?a=b&c"],
                      ["--path-as-is", "/sub/../note.bin"], ["--path-as-is", "/../../etc/passwd"],
                      ["-I", "/note.bin"], ["-z", MODIFIED_TEXT, "/note.bin"],
                      ["-z", f"-{MODIFIED_TEXT}", "/note.bin"], ["-C", "5000", "/note.bin"],
                      ["-f", "/none"], ["/note.bin", "/sub/", "/empty.txt"]):
            outcomes = []
            for server in ("http://127.0.0.1:8080", f"http://{HOST}"):
                done = subprocess.run(
                    ["curl", "-s", "-o", "-", "-w",
                     "%{http_code} %{num_redirects} %{url_effective};", "--max-time",
                     str(WAIT_MAX_S), *(server + word if word.startswith("/") else word
                                      for word in words)],
                    check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
                outcomes.append((done.returncode, done.stdout.replace(server.encode(), b"")))
            if "-I" in words or b"400 " in outcomes[0][1] or b"0-0,-1" in " ".join(words).encode():
                # Fields, error pages and boundaries are each server's own.
                outcomes = [(status, output.rpartition(b"\n")[2].split()[0][-3:])
                            for status, output in outcomes]
            theirs, ours = outcomes
            check(theirs == ours, f"{words}: nginx {theirs!r:.300}, ours {ours!r:.300}")


def files_that_change(env):
    """An answer has one state of a file to its last byte; the next answer has the newest."""
    root = env.scratch / "changing"
    root.mkdir()
    wanted = random_file(root / "large", 16 * MIB)
    (root / "note.txt").write_bytes(b"before")
    with serve_files(env, "--root", root, "--rescan", "0.05",
                     "--send-timeout", WAIT_MAX_S) as server, \
            dial_server(buffers=65536) as slow, dial_server() as quick:
        def shows(path, status, body):
            quick.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            found = answers.next()
            return (found[0], body if body is None else found[2]) == (status, body)
        answers = Answers(quick)
        slow.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        reader = Answers(slow)
        reader.receive()
        check(shows("/note.txt", 200, b"before"), "no note")
        etag = send_request(HOST, PORT, "/note.txt")[1]["etag"]
        with (root / "large").open("r+b") as file:  # in place, and shorter
            file.write(b"x" * MIB)
            file.truncate(MIB)
        (root / "new").write_bytes(b"after")
        os.rename(root / "new", root / "note.txt")
        for path, status, body in (("/note.txt", 200, b"after"), ("/large", 200, b"x" * MIB)):
            eventually(lambda p=path, s=status, b=body: shows(p, s, b), WAIT_MAX_S,
                       lambda p=path: f"{p} stays: {server.story()}")
        check(send_request(HOST, PORT, "/note.txt", f"If-None-Match: {etag}")[0] == 200,
              "an old tag")
        check(send_request(HOST, PORT, "/note.txt", f"If-Range: {etag}",
                           "Range: bytes=0-0")[0] == 200,
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
