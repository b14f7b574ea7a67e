#!/usr/bin/env python3
"""TLS: coronet-httpd beside nginx and haproxy, loaded by coronet-load and epoll-load.

Usage: bench_tls.py BUILD_DIR [--rounds N] [--seconds S] [--idle N]

Paths:
  memif     coronet-httpd and coronet-load
  tap       coronet-httpd on a TAP, epoll-load on the kernel behind it
  loopback  nginx, or haproxy with a fixed response (no bulk, no memory), and epoll-load
The server has one CPU, the load another. All agree on TLS 1.3, X25519 and AES-128-GCM; handshakes
are of connections with one request each. The load spends more on a handshake than the server and is
then the limit, so handshakes are counted by second of the server's CPU: the rate over the share of
its CPU that the server was busy. A server's memory is that of its process, by idle connection. The
kernel's part of a connection is measured with nginx behind a TAP, whose other end is coronet-load's:
what slabs, page tables and per-CPU memory of the system grow by. The last lines compare with openssl
speed.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import subprocess
import time
import urllib.request

import turns  # makes the next ones known
import certs
from bench_dns import PATH, cpu_of, pinned
from harness import WAIT_MAX_S, check, command, eventually
from turns import verdict
from web import listening, random_file

OURS, NEAR, FAR, PORT, METRICS = "10.9.0.1", "10.9.1.1", "10.9.1.9", 8443, 9464
SMALL_BYTES, BULK_MIB = 128, 1
ECDSA, RSA = "ecdsa.test", "rsa.test"
CIPHER = "TLS_AES_128_GCM_SHA256"
FULL, FULL_RSA, RESUMED = "full/CPU s, ECDSA", "full/CPU s, RSA", "resumed/CPU s"
REQUESTS, BULK_1, BULK_64, IDLE = "requests/s, 64", "Gbit/s, 1", "Gbit/s, 64", "KiB idle"
IN_KERNEL = "KiB idle, kernel"

NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log warn;
worker_rlimit_nofile 30000;
user root;
events {{ worker_connections 29000; }}
http {{
	access_log off;
	keepalive_requests 1000000000;
	keepalive_timeout 600;
	sendfile on;
	ssl_conf_command NumTickets 1;
{servers}
}}
"""
NGINX_SERVER = """
	server {{
		listen {at}:{port} ssl{backlog};
		server_name {name};
		root {root};
		ssl_protocols TLSv1.2 TLSv1.3;
		ssl_certificate {cert};
		ssl_certificate_key {key};
	}}
"""
HAPROXY = """
global
	nbthread 1
	maxconn 9000
defaults
	mode http
	timeout client 600s
	timeout http-keep-alive 600s
frontend f
	bind 127.0.0.1:{port} backlog 16384 ssl crt {folder}/certs/
	http-request return status 200 content-type text/plain string {text}
"""


def processes_of(pid):
    """The process and its children."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += processes_of(int(child))
    return found


def cpu_seconds(pid):
    ticks = 0
    for one in processes_of(pid):
        fields = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_kib(pid):
    """What the processes have, hugepages included."""
    kib = 0
    for one in processes_of(pid):
        text = pathlib.Path(f"/proc/{one}/status").read_text()
        kib += sum(int(value) for value in re.findall(r"(?:VmRSS|HugetlbPages):\s+(\d+)", text))
    return kib


def kernel_kib():
    """What the kernel has for all sockets, files and processes."""
    info = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return sum(int(info[key].split()[0]) for key in ("Slab", "PageTables", "Percpu"))


def busy_seconds(server):
    """Coronet polls, so its busy time is its own counter's."""
    if not server.coronet:
        return cpu_seconds(server.program.process.pid)
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS}/metrics", timeout=WAIT_MAX_S) as page:
        return sum(float(line.split()[-1]) for line in page.read().decode().splitlines()
                   if line.startswith("coronet_busy_seconds_total"))


def keep_up(tap, address):
    """Sets up a TAP that another program makes, if it is there: DPDK makes it in two steps."""
    for words in (("addr", "replace", f"{address}/16", "dev", tap), ("link", "set", tap, "up")):
        subprocess.run(["ip", *words], check=False, capture_output=True)


class Server:
    """A program that serves, and the load's words."""

    def __init__(self, program, load, coronet):
        self.program, self.load, self.coronet = program, load, coronet
        self.tap = None  # made by the load, and to be set up then


class Bench(turns.Bench):
    def __init__(self, env, options):
        super().__init__(env, options)
        self.root = env.scratch / "site"
        self.root.mkdir()
        (self.root / "small.txt").write_bytes(b"x" * SMALL_BYTES)
        random_file(self.root / "bulk.bin", BULK_MIB << 20)
        self.pairs = {ECDSA: certs.make_pair(env, ECDSA, f"DNS:{ECDSA}"), RSA: self.rsa_pair()}

    def rsa_pair(self):
        cert, key = self.env.scratch / "rsa.pem", self.env.scratch / "rsa.key"
        command("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                f"/CN={RSA}", "-addext", f"subjectAltName=DNS:{RSA}", "-keyout", key, "-out", cert)
        return cert, key

    # ---- servers ----

    def httpd(self, link, *words):
        pairs = [word for cert, key in self.pairs.values()
                 for word in ("--tls-cert", cert, "--tls-key", key)]
        return self.env.running([
            self.env.app("coronet-httpd"), "--link", link, "--addr", f"{OURS}/16", "--port", "8080",
            "--tls-port", PORT, "--root", self.root, *pairs, "--idle-timeout", "600", "--lcore",
            cpu_of(0), "--metrics", f"127.0.0.1:{METRICS}", "--max-handshakes", "20000", *words])

    def epoll_load(self, at):
        return [self.env.app("epoll-load"), "--cpu", cpu_of(1), "--target", f"{at}:{PORT}"]

    @contextlib.contextmanager
    def memif(self):
        link = f"memif:{self.env.scratch}/{self.link('t')}"
        poll = ["--poll", "busy" if len(os.sched_getaffinity(0)) > 1 else "adaptive"]
        with self.httpd(f"{link},role=server", *poll) as program:
            yield Server(program, [self.env.app("coronet-load"), "--link", f"{link},role=client",
                                   "--addr", f"{FAR}/16", "--lcore", cpu_of(1), *poll, "--target",
                                   f"{OURS}:{PORT}"], True)

    @contextlib.contextmanager
    def tap(self):
        link = self.link("tl")
        with self.httpd(f"tap:{link}") as program:
            self.set_up(link, NEAR)
            yield Server(program, self.epoll_load(OURS), True)

    @contextlib.contextmanager
    def kernel(self, name, at="127.0.0.1"):
        folder = self.env.scratch / self.link(name)
        (folder / "certs").mkdir(parents=True, exist_ok=True)
        conf = folder / "conf"
        if name == "nginx":
            servers = (NGINX_SERVER.format(at=at, port=PORT, name=host, root=self.root, cert=cert,
                                           key=key, backlog=" backlog=16384" * (host == ECDSA))
                       for host, (cert, key) in self.pairs.items())
            conf.write_text(NGINX.format(folder=folder, servers="".join(servers)))
            argv = ["nginx", "-p", folder, "-e", folder / "error.log", "-c", conf]
        else:
            for host, (cert, key) in self.pairs.items():
                (folder / "certs" / f"{host}.pem").write_bytes(cert.read_bytes()
                                                               + key.read_bytes())
            conf.write_text(HAPROXY.format(folder=folder, port=PORT, text="x" * SMALL_BYTES))
            argv = ["haproxy", "-db", "-f", conf]
        program = self.env.start([*pinned(0), *argv],
                                 env={**os.environ, "PATH": PATH})
        try:
            eventually(lambda: listening("127.0.0.1", PORT), WAIT_MAX_S, program.story)
            yield Server(program, self.epoll_load("127.0.0.1"), False)
            check(program.alive(), program.story())
        finally:
            program.kill()

    @contextlib.contextmanager
    def nginx_behind_tap(self):
        """nginx on all addresses, and coronet-load on the TAP's other end."""
        with self.kernel("nginx", "0.0.0.0") as server:
            server.tap = self.link("tk")
            server.load = [self.env.app("coronet-load"), "--link", f"tap:{server.tap}", "--addr",
                           f"{OURS}/16", "--lcore", cpu_of(1), "--target", f"{NEAR}:{PORT}"]
            yield server

    # ---- measurements ----

    def start_load(self, server, path, *words):
        return self.env.start([*server.load, "--tls", "--tls-ciphers", CIPHER, "--http", path,
                               "--timeout", "60", "--report-limited", "--json", *words])

    def run_load(self, server, path, *words):
        """Returns the report, and the share of its CPU that the server was busy."""
        before, begun = busy_seconds(server), time.monotonic()
        load = self.start_load(server, path, "--interval", "0", "--seconds", self.options.seconds,
                               *words)
        status = load.wait(WAIT_MAX_S)
        share = (busy_seconds(server) - before) / (time.monotonic() - begun)
        check(status == 0, load.story())
        return json.loads(load.output("stdout")), share

    def handshakes(self, server, name, *words):
        report, share = self.run_load(server, "/small.txt", "--mode", "cps", "--tls-name", name,
                                      *words)
        return report["requests_per_s"] / share

    def idle(self, server):
        """Returns the memory by connection, of the server and of the kernel, in KiB."""
        count = self.options.idle
        before = memory_kib(server.program.process.pid), kernel_kib()
        load = self.start_load(server, "/small.txt", "--mode", "idle", "--conns", count,
                               "--tls-name", ECDSA, "--interval", "1", "--seconds", "3600")
        held = re.compile(rf"{count:,} opened +{count} conns +0 errors *$", re.M)

        def all_are_held():
            if server.tap:
                keep_up(server.tap, NEAR)
            return held.search(load.output("stderr").replace("\r", "\n"))

        eventually(all_are_held, WAIT_MAX_S, load.story, pause=0.2)
        after = memory_kib(server.program.process.pid), kernel_kib()
        load.kill()
        return [(late - early) / count for early, late in zip(before, after)]

    def measure(self, where, whole):
        found = {}
        with where() as server:
            for column, name, words in ((FULL, ECDSA, ()), (FULL_RSA, RSA, ()),
                                        (RESUMED, ECDSA, ("--tls-resume",))):
                found[column] = self.handshakes(server, name, *words)
            found[REQUESTS] = self.run_load(server, "/small.txt", "--tls-name",
                                            ECDSA)[0]["requests_per_s"]
            for column, conns in ((BULK_1, 1), (BULK_64, 64)) if whole else ():
                report, _ = self.run_load(server, "/bulk.bin", "--conns", conns, "--tls-name",
                                          ECDSA)
                found[column] = report["bytes_per_s"] * 8e-9
        if whole:
            with where() as server:
                found[IDLE] = self.idle(server)[0]
        return found

    def measure_kernel(self):
        with self.nginx_behind_tap() as server:
            return dict(zip((IDLE, IN_KERNEL), self.idle(server)))

    def points(self):
        bind = functools.partial
        return {"memif, coronet-httpd": bind(self.measure, self.memif, True),
                "tap, coronet-httpd": bind(self.measure, self.tap, True),
                "loopback, nginx": bind(self.measure, bind(self.kernel, "nginx"), True),
                "tap, nginx": self.measure_kernel,
                "loopback, haproxy": bind(self.measure, bind(self.kernel, "haproxy"), False)}


def openssl_gbit():
    """AES-128-GCM in records of 16 KiB, on the server's CPU."""
    done = subprocess.run([str(word) for word in (
        *pinned(0), "openssl", "speed", "-seconds", "1", "-bytes", "16384", "-evp",
        "aes-128-gcm")], check=True, capture_output=True, text=True)
    return float(re.search(r"([\d.]+)k\s*$", done.stdout)[1]) * 8e-6


def finish(bench):
    ours, nginx = "memif, coronet-httpd", "loopback, nginx"
    for column, goal in ((FULL, 1.5), (FULL_RSA, None), (RESUMED, None), (REQUESTS, 4.0)):
        ratio = bench.median(ours, column) / bench.median(nginx, column)
        if goal:
            verdict(f"{column}, over nginx", ratio, f"{goal:g}", ratio >= goal)
        else:
            print(f"{column}, over nginx: {ratio:.3g}")
    memory, in_nginx = bench.median(ours, IDLE), bench.median(nginx, IDLE)
    print(f"{IDLE}, over nginx without the kernel's: {memory / in_nginx:.3g}")
    ratio = memory / sum(bench.median("tap, nginx", column) for column in (IDLE, IN_KERNEL))
    verdict(f"{IDLE}, over nginx and the kernel's", ratio, "1 at most", ratio <= 1)
    cipher = openssl_gbit()
    for column in (BULK_1, BULK_64):
        print(f"{column}, over openssl speed's {cipher:.3g} Gbit/s: "
              f"{bench.median(ours, column) / cipher:.3g}")


if __name__ == "__main__":
    turns.main(__doc__, Bench, needs=("nginx", "haproxy", "openssl", "taskset"), finish=finish,
               seconds=2, idle=10000)
