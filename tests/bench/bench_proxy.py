#!/usr/bin/env python3
"""coronet-proxy compared with the kernel's proxies, with the same nginx and wrk.

Usage: bench_proxy.py BUILD_DIR [--rounds N] [--seconds S]

Paths, between the kernel that wrk and nginx run on and the proxy:
  tap    a TAP link: coronet-proxy polls its other end itself; for a proxy on the
         kernel's stack, tests/wire carries frames on to a second TAP, in a namespace of
         the proxy's own. wire polls, and so takes CPU time that wrk and nginx want too
  veth   for the kernel's proxies alone: a pair between the namespaces, the shortest way
         there is, without a third process
  taps the roles swapped: clients and backends are on the other stack than the proxy, a TAP to
  each. coronet-proxy between epoll-load and epoll-echo,
         the kernel's proxies between coronet-load and coronet-echo; 64 B echoes
  memif  coronet-load, coronet-proxy and coronet-echo, a memif link between each two; its
         counterpart is epoll-load, epoll-proxy and epoll-echo on loopback
Every proxy has one thread.
"""

import contextlib
import functools
import json
import os
import pathlib
import socket

import turns
from harness import check, eventually
from web import Nginx, listening, random_file, run_wrk

NEAR, PROXY, PORT = "10.9.1.1", "10.9.0.1", 8080
BACK, BEHIND = "10.8.0.1", "10.8.0.2"  # the proxy's side of its second TAP, and the far one
PROXIES = ("coronet-proxy", "epoll-proxy", "nginx stream", "haproxy")
BULK_MIB = 32
RATE = "requests/s, {}"  # with this number of connections

NGINX = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
master_process off;
worker_rlimit_nofile 20000;
user root;
events {{ worker_connections 19000; }}
stream {{ server {{ listen {at}:{port} {how}; proxy_pass {to}; }} }}
"""

HAPROXY = """
global
	nbthread 1
	maxconn 9000
defaults
	mode tcp
	timeout connect 5s
	timeout client 60s
	timeout server 60s
frontend f
	bind {at}:{port} backlog 16384
	default_backend b
backend b
	server s {to}
"""


def nginx_command(folder, at, port, to, how="backlog=16384"):
    """Writes the configuration of nginx as a proxy; returns its command line."""
    conf = folder / "nginx.conf"
    conf.write_text(NGINX.format(folder=folder, at=at, port=port, to=to, how=how))
    return ["nginx", "-p", folder, "-e", folder / "error.log", "-c", conf]


def proxy_command(env, name, folder, to=f"{NEAR}:9001"):
    """Writes a kernel proxy's configuration to the folder; returns its command line."""
    if name == "epoll-proxy":
        return [env.app("epoll-proxy"), "--listen", f"{PROXY}:{PORT}", "--to", to,
                "--health-interval", "0"]
    if name == "haproxy":
        conf = folder / "haproxy.conf"
        conf.write_text(HAPROXY.format(at=PROXY, port=PORT, to=to))
        return ["haproxy", "-db", "-f", conf]
    return nginx_command(folder, PROXY, PORT, to)


class Bench(turns.Bench):
    def __init__(self, env, options):
        super().__init__(env, options)
        self.connections = (1, 64)
        random_file(env.scratch / "bulk", BULK_MIB << 20)

    @contextlib.contextmanager
    def coronet_tap(self):
        link = self.link("px")
        with self.env.running([
                self.env.app("coronet-proxy"), "--link", f"tap:{link}", "--addr", f"{PROXY}/16",
                "--port", PORT, "--to", f"{NEAR}:9001", "--health-interval", "0"]):
            self.set_up(link, NEAR)
            yield

    @contextlib.contextmanager
    def kernel(self, path, name):
        """Runs a proxy in its own namespace, behind a TAP and a wire, or a veth."""
        with self.beyond(path, PROXY) as (space, near):
            self.set_up(near, NEAR)
            program = self.proxy(name, space.inside())
            try:
                eventually(lambda: listening(PROXY, PORT), 10, f"{name}: {program.story()}")
                yield
            finally:
                program.kill()

    def proxy(self, name, inside=(), **rest):
        """Starts one of the kernel's proxies."""
        folder = self.env.scratch / self.link("proxy")
        folder.mkdir()
        return self.env.start(
            [*inside, *proxy_command(self.env, name, folder, **rest)],
            env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})

    def http(self, path, proxy):
        """Measures wrk's requests and curl's bytes through a proxy."""
        where = self.coronet_tap() if proxy == "coronet-proxy" else self.kernel(path, proxy)
        url, found = f"http://{PROXY}:{PORT}", {}
        with where, Nginx(self.env, NEAR, 9001, self.env.scratch):
            eventually(lambda: listening(PROXY, PORT), 10, f"{proxy} does not answer")
            for count in self.connections:
                found[RATE.format(count)], output, errors = run_wrk(f"{url}/small", count,
                                                                self.options.seconds)
                check(not errors, f"{proxy}: {output}")
            found["MiB/s"] = turns.downloads(f"{url}/bulk", BULK_MIB)
        return found

    # ---- echoes ----

    def begin_load(self, count, *argv):
        return self.env.start([*argv, "--mode", "echo", "--conns", count, "--seconds",
                               self.options.seconds, "--warmup", "0.3", "--report-limited",
                               "--json"])

    def end_load(self, load):
        check(load.wait(60) == 0, load.story())
        return json.loads(load.output("stdout"))["requests_per_s"]

    def loads(self, *argv):
        return {RATE.format(count): self.end_load(self.begin_load(count, *argv))
                for count in self.connections}

    def taps_around_coronet(self):
        """One TAP before the proxy and one behind it."""
        env, links = self.env, [self.link("tf"), self.link("tb")]
        with env.running([
                env.app("coronet-proxy"), "--link", f"tap:{links[0]}", "--addr", f"{PROXY}/16",
                "--link", f"tap:{links[1]}", "--addr", f"{BACK}/16",
                "--listen", f"{PROXY}:{PORT}", "--to", f"{BEHIND}:7777",
                "--health-interval", "0"]):
            self.set_up(links[0], NEAR)
            self.set_up(links[1], BEHIND)
            with env.running([env.app("epoll-echo"), "--addr", BEHIND, "--port", "7777"]):
                found = self.loads(env.app("epoll-load"), "--target", f"{PROXY}:{PORT}")
        await_gone(*links)
        return found

    def taps_around_kernel(self, proxy):
        env, front, back = self.env, self.link("tf"), self.link("tb")
        found = {}
        with env.running([env.app("coronet-echo"), "--link", f"tap:{back}",
                          "--addr", f"{BEHIND}/16", "--port", "7777"]):
            self.set_up(back, BACK)
            # Each load creates the first link, so the proxy listens before the link exists.
            any_address = pathlib.Path("/proc/sys/net/ipv4/ip_nonlocal_bind")
            any_address.write_text("1", "ascii")
            program = self.proxy(proxy, to=f"{BEHIND}:7777")
            eventually(is_listening, 10, f"{proxy}: {program.story()}")
            any_address.write_text("0", "ascii")
            for count in self.connections:
                load = self.begin_load(count, env.app("coronet-load"), "--link", f"tap:{front}",
                                       "--addr", f"{NEAR}/16", "--target", f"{PROXY}:{PORT}")
                eventually(lambda: front in interfaces(), 20, "no TAP")
                self.set_up(front, PROXY)
                found[RATE.format(count)] = self.end_load(load)
                await_gone(front)
            program.kill()
        await_gone(back)
        return found

    def memif(self):
        env = self.env
        front, back = (f"memif:{env.scratch}/{self.link(name)}.sock" for name in "fb")
        common = ["--poll", "adaptive"]
        with env.running([env.app("coronet-proxy"), "--link", f"{front},role=server",
                          "--addr", "10.9.0.1/16", "--link", f"{back},role=server",
                          "--addr", "10.8.0.1/16", "--listen", f"10.9.0.1:{PORT}",
                          "--to", "10.8.0.2:7777", "--health-interval", "0", *common]), \
                env.running([env.app("coronet-echo"), "--link", f"{back},role=client",
                             "--addr", "10.8.0.2/16", "--port", "7777", *common]):
            return self.loads(env.app("coronet-load"), "--link", f"{front},role=client",
                              "--addr", "10.9.1.9/16", "--target", f"10.9.0.1:{PORT}", *common)

    def loopback(self):
        env = self.env
        with env.running([env.app("epoll-proxy"), "--listen", f"127.0.0.1:{PORT}",
                          "--to", "127.0.0.1:7777", "--health-interval", "0"]), \
                env.running([env.app("epoll-echo"), "--addr", "127.0.0.1", "--port", "7777"]):
            return self.loads(env.app("epoll-load"), "--target", f"127.0.0.1:{PORT}")

    def points(self):
        bind = functools.partial
        at = [("tap", "coronet-proxy")] + [(path, proxy) for path in ("tap", "veth")
                                           for proxy in PROXIES[1:]]
        return {**{f"{path}, {proxy}": bind(self.http, path, proxy) for path, proxy in at},
                "taps, coronet-proxy": self.taps_around_coronet,
                **{f"taps, {proxy}": bind(self.taps_around_kernel, proxy)
                   for proxy in PROXIES[1:]},
                "memif, coronet-proxy": self.memif, "loopback, epoll-proxy": self.loopback}


def is_listening():
    """Whether a program listens on PORT, even if the address does not exist yet."""
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{PORT:04X}") and line.split()[3] == "0A"
               for line in lines)


def interfaces():
    return [name for _, name in socket.if_nameindex()]


def await_gone(*links):
    eventually(lambda: not set(links) & set(interfaces()), 10, "the TAPs stay")


if __name__ == "__main__":
    turns.main(__doc__, Bench, needs=("wrk", "curl", "nginx", "haproxy"), seconds=2)
