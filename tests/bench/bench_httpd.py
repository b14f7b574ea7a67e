#!/usr/bin/env python3
"""coronet-httpd compared with nginx: the same files, by wrk and curl.

Usage: bench_httpd.py BUILD_DIR [--rounds N] [--seconds S]

Paths, between the kernel that wrk and curl run on and the server:
  tap   coronet-httpd polls the other end of a TAP itself; for nginx, tests/wire carries frames
        on to a second TAP, in nginx's own namespace. wire polls, and so uses CPU time that wrk
        also needs
  veth  for nginx alone: a pair between the namespaces, the shortest way there is
Both servers have one thread and no log.
"""

import contextlib
import functools
import gzip

import turns
from harness import check, eventually
from web import Nginx, listening, random_file, run_curl, run_wrk

NEAR, SERVER, PORT = "10.9.1.1", "10.9.0.1", 8080
SMALL_BYTES, BULK_MIB = 128, 32
# Requests: a column's name, the path, wrk's connections, further fields, the status.
REQUESTS = (("requests/s, 1", "/small.txt", 1, (), "200"),
            ("requests/s, 64", "/small.txt", 64, (), "200"),
            ("64, gzip", "/style.css", 64, ("-H", "Accept-Encoding: gzip"), "200"),
            ("64, range", "/bulk.bin", 64, ("-H", "Range: bytes=1000-1999"), "206"),
            ("64, 304", "/small.txt", 64, ("-H", "If-None-Match: *"), "304"))


class Inside(Nginx):
    """nginx in another network namespace, where its listening socket is checked."""

    def __init__(self, env, far, root):
        self.far = far
        super().__init__(env, SERVER, PORT, root=root, gzip_static=True)

    def start(self):
        start = self.env.start
        self.env.start = lambda argv, **rest: start(self.far.inside(*argv), **rest)
        try:
            super().start()
        finally:
            self.env.start = start


class Bench(turns.Bench):
    def __init__(self, env, options):
        super().__init__(env, options)
        self.root = env.scratch / "site"
        self.root.mkdir()
        css = b"body { color: black }\n" * 200
        (self.root / "small.txt").write_bytes(b"x" * SMALL_BYTES)
        (self.root / "style.css").write_bytes(css)
        (self.root / "style.css.gz").write_bytes(gzip.compress(css, mtime=0))
        random_file(self.root / "bulk.bin", BULK_MIB << 20)

    @contextlib.contextmanager
    def coronet(self):
        link = self.link("hx")
        with self.env.running([
                self.env.app("coronet-httpd"), "--link", f"tap:{link}", "--addr", f"{SERVER}/16",
                "--port", PORT, "--root", self.root]):
            self.set_up(link, NEAR)
            yield

    @contextlib.contextmanager
    def nginx(self, path):
        with self.beyond(path, SERVER) as (space, near):
            self.set_up(near, NEAR)
            with Inside(self.env, space, self.root):
                yield

    def measure(self, server):
        url, figures = f"http://{SERVER}:{PORT}", {}
        with server():
            eventually(lambda: listening(SERVER, PORT), 10, "nobody answers")
            for column, what, connections, fields, expected in REQUESTS:
                status = run_curl("-o", "/dev/null", "-w", "%{http_code}", *fields, url + what)
                check(status == expected, f"{column} is answered with {status}")
                figures[column], output, errors = run_wrk(url + what, connections,
                                                      self.options.seconds, extra=list(fields))
                check(not [e for e in errors if "Non-2xx" not in e or status != "304"], output)
            figures["MiB/s"] = turns.downloads(f"{url}/bulk.bin", BULK_MIB)
        return figures

    def points(self):
        bind = functools.partial
        return {"tap, coronet-httpd": bind(self.measure, self.coronet),
                "tap, nginx": bind(self.measure, bind(self.nginx, "tap")),
                "veth, nginx": bind(self.measure, bind(self.nginx, "veth"))}


if __name__ == "__main__":
    turns.main(__doc__, Bench, needs=("curl", "wrk", "nginx"), seconds=2)
