#!/usr/bin/env python3
"""coronet-dns beside knotd and nsd, and coronet-proxy for UDP beside nginx, all under dnsperf.

Usage: bench_dns.py BUILD_DIR [--rounds N] [--seconds S] [--names N]

A zone with NAMES addresses of each family is asked for names at random; one of five does not exist.
The server has one CPU, where there are two, and dnsperf the other. No server limits the answers to
a source, as nsd does by default. Paths:
  veth      dnsperf on the kernel of another namespace; knotd and nsd on the kernel here,
            coronet-dns on the same interface by af_packet and af_xdp
  loopback  both on the kernel, the shortest way there is for knotd and nsd
  memif     coronet-dns, and dnsperf by coronet-run
  proxy     as veth, but the server here is a proxy before a knotd beside dnsperf
"""

import contextlib
import functools
import os
import pathlib
import random
import re
import shutil
import subprocess

import turns
from bench_proxy import nginx_command
from harness import WAIT_MAX_S, check, eventually

OURS, FAR, PORT = "10.9.0.1", "10.9.1.1", 5300
CLIENTS, AT_ONCE = 16, 200
PATH = f"{os.environ['PATH']}:/usr/sbin"
MISSING = 5  # one name of so many
SERVERS = ("knotd", "nsd")

KNOTD = """
server:
    listen: {at}@{port}
    rundir: {folder}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
database:
    storage: {folder}
log:
  - target: stderr
    any: error
zone:
  - domain: bench.test
    file: {zone}
"""

NSD = """
server:
    ip-address: {at}@{port}
    server-count: 1
    username: ""
    chroot: ""
    zonesdir: "{folder}"
    database: ""
    pidfile: "{folder}/nsd.pid"
    xfrdfile: "{folder}/xfrd.state"
    zonelistfile: "{folder}/zone.list"
    xfrdir: "{folder}"
    rrl-ratelimit: 0
remote-control:
    control-enable: no
zone:
    name: bench.test
    zonefile: {zone}
"""


def cpu_of(role):
    """The CPU of the server (0) or of the client (1)."""
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[role % len(cpus)]


def pinned(role):
    return ["taskset", "-c", cpu_of(role)]


class Bench(turns.Bench):
    def __init__(self, env, options):
        super().__init__(env, options)
        names = range(options.names)
        self.zone = env.scratch / "bench.test.zone"
        head = "$TTL 3600\n@ SOA ns admin 1 3600 600 86400 60\n@ NS ns\nns A 10.9.0.1\n"
        self.zone.write_text(head
                             + "".join(f"n{i} A 10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}\n"
                                       f"n{i} AAAA 2001:db8::{i & 65535:x}\n" for i in names))
        self.queries = env.scratch / "queries"
        draw = random.Random(1)
        self.queries.write_text("".join(
            f"{'no' if draw.randrange(MISSING) == 0 else 'n'}{draw.choice(names)}.bench.test "
            f"{draw.choice(('A', 'AAAA'))}\n" for _ in range(10000)))

    # ---- servers ----

    def folder(self, name):
        folder = self.env.scratch / self.link(name)
        folder.mkdir(exist_ok=True)
        return folder

    def kernel_argv(self, name, at):
        folder = self.folder(name)
        conf = folder / "conf"
        conf.write_text({"knotd": KNOTD, "nsd": NSD}[name].format(
            at=at, port=PORT, folder=folder, zone=self.zone))
        return [name, "-c", conf] if name == "knotd" else [name, "-d", "-c", conf]

    @contextlib.contextmanager
    def kernel_server(self, name, at, before):
        """Runs knotd or nsd; ends it with its children."""
        program = self.env.start([*before, *self.kernel_argv(name, at)],
                                 env={**os.environ, "PATH": PATH})
        try:
            yield program
            check(program.alive(), program.story())
        finally:
            program.process.terminate()
            program.process.wait(WAIT_MAX_S)

    def coronet(self, name, link, *words):
        return self.env.running([
            self.env.app(name), "--link", link, "--addr", f"{OURS}/16", "--lcore", cpu_of(0),
            "--poll", "busy" if len(os.sched_getaffinity(0)) > 1 else "adaptive", *words])

    def dns(self, link):
        return self.coronet("coronet-dns", link, "--port", PORT, "--zone",
                            f"bench.test={self.zone}")

    # ---- the client ----

    def dnsperf(self, before, at, mode, *words):
        done = subprocess.run(
            [str(word) for word in (*before, "dnsperf", "-s", at, "-p", PORT, "-d", self.queries,
                                    "-m", mode, "-c", CLIENTS, "-q", AT_ONCE, *words)],
            check=False, capture_output=True, text=True, timeout=WAIT_MAX_S)
        check(done.returncode == 0, done.stdout + done.stderr)
        return done.stdout

    def measure(self, before, at, modes=("udp", "tcp")):
        """Returns answers per second, once a query was answered."""
        def answered():
            text = self.dnsperf(before, at, "udp", "-n", 1, "-q", 1, "-c", 1, "-t", 1, "-l", 1)
            return re.search("Queries completed: +[1-9]", text)

        eventually(answered, WAIT_MAX_S, f"{at} does not answer")
        found = {}
        for mode in modes:
            text = self.dnsperf(before, at, mode, "-l", self.options.seconds)
            check("Response codes:       NOERROR" in text, text)
            rate, lost = (re.search(pattern, text)[1] for pattern in
                          (r"Queries per second: +([\d.]+)", r"Queries lost: .*\(([\d.]+)%\)"))
            found[f"answers/s, {mode.upper()}"] = float(rate)
            found[f"lost %, {mode.upper()}"] = float(lost)
        return found

    # ---- points ----

    def veth_coronet(self, kind):
        with self.beyond("veth", FAR) as (space, near):
            self.set_up(near)
            with self.dns(f"{kind}:{near},csum=trust"):
                return self.measure(space.inside(*pinned(1)), OURS)

    def veth_kernel(self, name):
        with self.beyond("veth", FAR) as (space, near):
            self.set_up(near, OURS)
            with self.kernel_server(name, OURS, pinned(0)):
                return self.measure(space.inside(*pinned(1)), OURS)

    def loopback(self, name):
        with self.kernel_server(name, "127.0.0.1", pinned(0)):
            return self.measure(pinned(1), "127.0.0.1")

    def memif(self):
        link = f"memif:{self.env.scratch}/{self.link('d')}"
        with self.dns(f"{link},role=server"):
            return self.measure([self.env.app("coronet-run"), "--link", f"{link},role=client",
                                 "--addr", f"{FAR}/16", "--lcore", cpu_of(1)], OURS, ["udp"])

    @contextlib.contextmanager
    def before_knotd(self):
        """Runs the proxies' backend, beside dnsperf."""
        with self.beyond("veth", FAR) as (space, near), \
                self.kernel_server("knotd", FAR, space.inside(*pinned(1))):
            yield near, space.inside(*pinned(1))

    def proxy_coronet(self, kind):
        with self.before_knotd() as (near, inside):
            self.set_up(near)
            with self.coronet("coronet-proxy", f"{kind}:{near},csum=trust", "--listen",
                              f"udp:{OURS}:{PORT}", "--to", f"{FAR}:{PORT}", "--health-interval",
                              "0", "--udp-responses", "1"):
                return self.measure(inside, OURS, ["udp"])

    def proxy_nginx(self):
        with self.before_knotd() as (near, inside):
            self.set_up(near, OURS)
            argv = nginx_command(self.folder("nginx"), OURS, PORT, f"{FAR}:{PORT}",
                                 "udp; proxy_responses 1")
            program = self.env.start([*pinned(0), *argv], env={**os.environ, "PATH": PATH})
            try:
                return self.measure(inside, OURS, ["udp"])
            finally:
                program.kill()

    def points(self):
        bind, points = functools.partial, {}
        there = [name for name in SERVERS if shutil.which(name, path=PATH)]
        for kind in ("af_packet", "af_xdp"):
            points[f"veth, coronet-dns, {kind}"] = bind(self.veth_coronet, kind)
        for path, measure in (("veth", self.veth_kernel), ("loopback", self.loopback)):
            points.update({f"{path}, {name}": bind(measure, name) for name in there})
        points["memif, coronet-dns"] = self.memif
        if "knotd" in there:
            points["proxy, coronet-proxy, af_xdp"] = bind(self.proxy_coronet, "af_xdp")
            if pathlib.Path("/usr/lib/nginx/modules/ngx_stream_module.so").exists():
                points["proxy, nginx stream"] = self.proxy_nginx
        return points


def finish(bench):
    column = "answers/s, UDP"
    ours = max(bench.median(name, column) for name in bench.results
               if name.startswith("veth, coronet-dns"))
    for name in SERVERS:
        if f"veth, {name}" in bench.results:
            print(f"UDP, coronet-dns over {name} on the veth: "
                  f"{ours / bench.median(f'veth, {name}', column):.3g}")


if __name__ == "__main__":
    turns.main(__doc__, Bench, needs=("dnsperf", "taskset"), finish=finish, seconds=5, names=10000)
