#!/usr/bin/env python3
"""coronet-httpd beside nginx: the same files, wrk and curl in front of both.

Usage: bench_httpd.py BUILD_DIR [--rounds N] [--seconds S]

Paths, between the kernel that wrk and curl run on and the server:
  tap   coronet-httpd polls the other end of a TAP itself; for nginx, tests/wire carries frames
        on to a second TAP, in a namespace of nginx's own. wire polls, and so takes CPU time
        that wrk wants too
  veth  for nginx alone: a pair between the namespaces, the shortest way there is
Both servers have one thread and no log. The points are measured by turns, round after round;
printed are medians, and the lowest and highest.
"""

import argparse
import contextlib
import gzip
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness  # noqa: E402
from harness import Env, Namespace, check, command, eventually  # noqa: E402
from web import Nginx, curl, listening, need, random_file, wrk  # noqa: E402

NEAR, SERVER, PORT = "10.9.1.1", "10.9.0.1", 8080
SMALL_BYTES, BULK_MIB, BULK_AT_ONCE = 128, 32, 4
POINTS = (("tap", "coronet-httpd"), ("tap", "nginx"), ("veth", "nginx"))
# What is asked for: a column's name, the path, wrk's connections, further fields.
REQUESTS = (("requests/s, 1", "/small.txt", 1, ()),
            ("requests/s, 64", "/small.txt", 64, ()),
            ("64, gzip", "/style.css", 64, ("Accept-Encoding: gzip",)),
            ("64, range", "/bulk.bin", 64, ("Range: bytes=1000-1999",)),
            ("64, 304", "/small.txt", 64, ("If-None-Match: *",)))
COLUMNS = (*(name for name, *_ in REQUESTS), "MiB/s")


class Inside(Nginx):
    """nginx in another network namespace, which its listening socket is looked for in."""

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


def make_site(root):
    root.mkdir()
    css = b"body { color: black }\n" * 200
    (root / "small.txt").write_bytes(b"x" * SMALL_BYTES)
    (root / "style.css").write_bytes(css)
    (root / "style.css.gz").write_bytes(gzip.compress(css, mtime=0))
    random_file(root / "bulk.bin", BULK_MIB << 20)


class Bench:
    """Starts what a point needs, and keeps its figures."""

    def __init__(self, env, options):
        self.env, self.options = env, options
        self.root = env.scratch / "site"
        self.results = {}
        self.count = 0
        make_site(self.root)

    def link_up(self, link, address, inside=()):
        command(*inside, "ip", "addr", "add", f"{address}/16", "dev", link)
        command(*inside, "ip", "link", "set", link, "up")

    @contextlib.contextmanager
    def coronet(self, _path):
        link = f"hx{self.count}"
        with self.env.running([
                self.env.app("coronet-httpd"), "--link", f"tap:{link}", "--addr", f"{SERVER}/16",
                "--port", PORT, "--root", self.root]):
            self.link_up(link, NEAR)
            yield

    @contextlib.contextmanager
    def nginx(self, path):
        near, far = f"hx{self.count}", f"hk{self.count}"
        with contextlib.ExitStack() as stack:
            space = stack.enter_context(Namespace(self.env))
            if path == "tap":
                stack.enter_context(self.env.running(
                    [self.env.build / "tests/wire/wire", "--link", f"tap:{near}",
                     "--link", f"tap:{far}"], ready="forwarding.*"))
            else:
                command("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            space.take(far)
            space.command("ip", "link", "set", "lo", "up")
            self.link_up(far, SERVER, space.inside())
            self.link_up(near, NEAR)
            stack.enter_context(Inside(self.env, space, self.root))
            yield

    def note(self, point, column, value):
        self.results.setdefault(point, {}).setdefault(column, []).append(value)

    def measure(self, point):
        path, server = point
        self.count += 1
        url = f"http://{SERVER}:{PORT}"
        with (self.coronet if server == "coronet-httpd" else self.nginx)(path):
            eventually(lambda: listening(SERVER, PORT), 10, f"{server} does not answer")
            for column, what, connections, fields in REQUESTS:
                words = [word for field in fields for word in ("-H", field)]
                status = curl("-o", "/dev/null", "-w", "%{http_code}", *words, url + what)
                check(status == {"64, range": "206", "64, 304": "304"}.get(column, "200"),
                      f"{server} answers {column} with {status}")
                rate, output, errors = wrk(url + what, connections, self.options.seconds,
                                           extra=words)
                check(not [e for e in errors if "Non-2xx" not in e or status != "304"],
                      f"{server}: {output}")
                self.note(point, column, rate)
            begin = time.monotonic()
            downloads = [subprocess.Popen(["curl", "-sS", "-o", "/dev/null", f"{url}/bulk.bin"])
                         for _ in range(BULK_AT_ONCE)]
            for download in downloads:
                check(download.wait(120) == 0, f"{server}: curl failed")
            self.note(point, "MiB/s", BULK_AT_ONCE * BULK_MIB / (time.monotonic() - begin))


def show(results):
    print(f"{'path':6}{'server':15}" + "".join(f"{column:>26}" for column in COLUMNS))
    for (path, server), figures in results.items():
        line = f"{path:6}{server:15}"
        for column in COLUMNS:
            values = figures[column]
            line += (f"{statistics.median(values):,.0f} ({min(values):,.0f} - {max(values):,.0f})"
                     .rjust(26))
        print(line, flush=True)


def main():
    if harness.INSIDE not in sys.argv:
        harness.reenter()
    sys.argv.remove(harness.INSIDE)
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    options = parser.parse_args()
    env = Env(pathlib.Path(options.build).resolve(), [])
    try:
        need("curl", "wrk", "nginx")
        bench = Bench(env, options)
        command("ip", "link", "set", "lo", "up")
        for number in range(options.rounds):
            for point in POINTS:
                bench.measure(point)
            print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr, flush=True)
        show(bench.results)
    except (harness.Failure, harness.Skip) as trouble:
        sys.exit(f"bench_httpd: {trouble}")
    finally:
        env.close()


if __name__ == "__main__":
    main()
