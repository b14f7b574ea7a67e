#!/usr/bin/env python3
"""coronet-proxy beside the kernel's proxies, the same nginx behind and wrk in front.

Usage: bench_proxy.py BUILD_DIR [--rounds N] [--seconds S]

Paths, between the kernel that wrk and nginx run on and the proxy:
  tap    a TAP link: coronet-proxy polls its other end itself; for a proxy on the
         kernel's stack, tests/wire carries frames on to a second TAP, in a namespace of
         the proxy's own. wire polls, and so takes CPU time that wrk and nginx want too
  veth   for the kernel's proxies alone: a pair between the namespaces, the shortest way
         there is, without a third process
  taps   the roles changed over: what is before and behind the proxy is on the stack that
         the proxy is not on, a TAP to each. coronet-proxy between epoll-load and epoll-echo,
         the kernel's proxies between coronet-load and coronet-echo; 64 B echoes
  memif  coronet-load, coronet-proxy and coronet-echo, a memif link between each two; its
         counterpart is epoll-load, epoll-proxy and epoll-echo on loopback
Every proxy has one thread. The points are measured by turns, round after round; printed are
medians, and the lowest and highest.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness  # noqa: E402
from harness import Env, Namespace, check, command, eventually  # noqa: E402
from web import Nginx, listening, random_file, wrk  # noqa: E402

NEAR, PROXY, PORT = "10.9.1.1", "10.9.0.1", 8080
BACK, BEHIND = "10.8.0.1", "10.8.0.2"  # the proxy's side of its second TAP, and the far one
PROXIES = ("coronet-proxy", "epoll-proxy", "nginx stream", "haproxy")
BULK_MIB, BULK_AT_ONCE = 32, 4

NGINX = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
master_process off;
worker_rlimit_nofile 20000;
user root;
events {{ worker_connections 19000; }}
stream {{ server {{ listen {at}:{port} backlog=16384; proxy_pass {to}; }} }}
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


def proxy_command(env, name, folder, to=f"{NEAR}:9001"):
    """A kernel proxy's command line, its configuration written to the folder."""
    text = {"nginx stream": NGINX, "haproxy": HAPROXY}.get(name, "")
    conf = folder / f"{name.split()[0]}.conf"
    conf.write_text(text.format(folder=folder, at=PROXY, port=PORT, to=to))
    if name == "epoll-proxy":
        return [env.app("epoll-proxy"), "--listen", f"{PROXY}:{PORT}", "--to", to,
                "--health-interval", "0"]
    if name == "haproxy":
        return ["haproxy", "-db", "-f", conf]
    return ["nginx", "-p", folder, "-e", folder / "error.log", "-c", conf]


class Bench:
    """Starts what a point needs, and keeps its figures."""

    def __init__(self, env, options):
        self.env, self.options = env, options
        self.results = {}
        self.count = 0

    def note(self, path, proxy, what, value):
        self.results.setdefault((path, proxy), {}).setdefault(what, []).append(value)

    def links_up(self, link, addresses=(NEAR,), inside=()):
        for address in addresses:
            command(*inside, "ip", "addr", "add", f"{address}/16", "dev", link)
        command(*inside, "ip", "link", "set", link, "up")

    @contextlib.contextmanager
    def coronet_tap(self):
        link = f"px{self.count}"
        with self.env.running([
                self.env.app("coronet-proxy"), "--link", f"tap:{link}", "--addr", f"{PROXY}/16",
                "--port", PORT, "--to", f"{NEAR}:9001", "--health-interval", "0"]):
            self.links_up(link)
            yield

    @contextlib.contextmanager
    def kernel(self, path, name):
        """A proxy in a namespace of its own, a TAP and a wire or a veth away."""
        near, far = f"px{self.count}", f"pk{self.count}"
        with contextlib.ExitStack() as stack:
            space = stack.enter_context(Namespace(self.env))
            inside = space.inside()
            if path == "tap":
                stack.enter_context(self.env.running(
                    [self.env.build / "tests/wire/wire", "--link", f"tap:{near}",
                     "--link", f"tap:{far}"], ready="forwarding.*"))
            else:
                command("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            space.take(far)
            space.command("ip", "link", "set", "lo", "up")
            self.links_up(far, (PROXY,), inside)
            self.links_up(near)
            program = self.proxy(name, inside)
            stack.callback(program.kill)
            eventually(lambda: listening(PROXY, PORT), 10, f"{name}: {program.story()}")
            yield

    def proxy(self, name, inside=(), **rest):
        """Starts one of the kernel's proxies."""
        folder = self.env.scratch / f"proxy{self.count}"
        folder.mkdir()
        return self.env.start(
            [*inside, *proxy_command(self.env, name, folder, **rest)],
            env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})

    def measure(self, path, proxy, connections=(1, 64)):
        """wrk's requests and curl's bytes through a proxy."""
        self.count += 1
        where = self.coronet_tap() if proxy == "coronet-proxy" else self.kernel(path, proxy)
        with where, Nginx(self.env, NEAR, 9001, self.env.scratch):
            eventually(lambda: listening(PROXY, PORT), 10, f"{proxy} does not answer")
            for count in connections:
                rate, output, errors = wrk(f"http://{PROXY}:{PORT}/small", count,
                                           self.options.seconds)
                check(not errors, f"{proxy}: {output}")
                self.note(path, proxy, f"requests/s, {count}", rate)
            begin = time.monotonic()
            downloads = [subprocess.Popen(["curl", "-sS", "-o", "/dev/null",
                                           f"http://{PROXY}:{PORT}/bulk"])
                         for _ in range(BULK_AT_ONCE)]
            for download in downloads:
                check(download.wait(120) == 0, f"{proxy}: curl failed")
            self.note(path, proxy, "MiB/s", BULK_AT_ONCE * BULK_MIB / (time.monotonic() - begin))

    # ---- one TAP before the proxy and one behind it ----

    def measure_taps(self, proxy, connections=(1, 64)):
        """Echoes through a proxy, all but the proxy on the other stack."""
        self.count += 1
        links = [f"tf{self.count}", f"tb{self.count}"]
        if proxy == "coronet-proxy":
            self.taps_around_coronet(links, connections)
        else:
            self.taps_around_kernel(proxy, links, connections)
        eventually(lambda: not set(links) & set(interfaces()), 10, "the TAPs stay")

    def taps_around_coronet(self, links, connections):
        env = self.env
        with env.running([
                env.app("coronet-proxy"), "--link", f"tap:{links[0]}", "--addr", f"{PROXY}/16",
                "--link", f"tap:{links[1]}", "--addr", f"{BACK}/16",
                "--listen", f"{PROXY}:{PORT}", "--to", f"{BEHIND}:7777",
                "--health-interval", "0"]):
            self.links_up(links[0])
            self.links_up(links[1], (BEHIND,))
            with env.running([env.app("epoll-echo"), "--addr", BEHIND, "--port", "7777"]):
                for count in connections:
                    self.load("taps", "coronet-proxy",
                              [env.app("epoll-load"), "--target", f"{PROXY}:{PORT}"], count)

    def taps_around_kernel(self, proxy, links, connections):
        env = self.env
        with env.running([env.app("coronet-echo"), "--link", f"tap:{links[1]}",
                          "--addr", f"{BEHIND}/16", "--port", "7777"]):
            self.links_up(links[1], (BACK,))
            # The first link is the load's, and new with each: the proxy listens before.
            any_address = pathlib.Path("/proc/sys/net/ipv4/ip_nonlocal_bind")
            any_address.write_text("1", "ascii")
            program = self.proxy(proxy, to=f"{BEHIND}:7777")
            eventually(is_listening, 10, f"{proxy}: {program.story()}")
            any_address.write_text("0", "ascii")
            for count in connections:
                load = self.load_later(
                    [env.app("coronet-load"), "--link", f"tap:{links[0]}",
                     "--addr", f"{NEAR}/16", "--target", f"{PROXY}:{PORT}"], count)
                eventually(lambda: links[0] in interfaces(), 20, "no TAP")
                self.links_up(links[0], (PROXY,))
                self.loaded("taps", proxy, load, count)
                eventually(lambda: links[0] not in interfaces(), 10, "the TAP stays")
            program.kill()

    # ---- without the kernel, and its counterpart ----

    def load_later(self, argv, connections):
        return self.env.start([*argv, "--mode", "echo", "--conns", connections, "--seconds",
                               self.options.seconds, "--warmup", "0.3", "--report-limited",
                               "--json"])

    def loaded(self, path, proxy, load, connections):
        check(load.wait(60) == 0, load.story())
        self.note(path, proxy, f"requests/s, {connections}",
                  json.loads(load.output("stdout"))["requests_per_s"])

    def load(self, path, proxy, argv, connections):
        self.loaded(path, proxy, self.load_later(argv, connections), connections)

    def measure_memif(self, connections=(1, 64)):
        self.count += 1
        env, at = self.env, self.env.scratch
        front, back = at / f"f{self.count}.sock", at / f"b{self.count}.sock"
        common = ["--poll", "adaptive"]
        with env.running([env.app("coronet-proxy"), "--link", f"memif:{front},role=server",
                          "--addr", "10.9.0.1/16", "--link", f"memif:{back},role=server",
                          "--addr", "10.8.0.1/16", "--listen", f"10.9.0.1:{PORT}",
                          "--to", "10.8.0.2:7777", "--health-interval", "0", *common]), \
                env.running([env.app("coronet-echo"), "--link", f"memif:{back},role=client",
                             "--addr", "10.8.0.2/16", "--port", "7777", *common]):
            for count in connections:
                self.load("memif", "coronet-proxy",
                          [env.app("coronet-load"), "--link", f"memif:{front},role=client",
                           "--addr", "10.9.1.9/16", "--target", f"10.9.0.1:{PORT}", *common],
                          count)

    def measure_loopback(self, connections=(1, 64)):
        env = self.env
        with env.running([env.app("epoll-proxy"), "--listen", f"127.0.0.1:{PORT}",
                          "--to", "127.0.0.1:7777", "--health-interval", "0"]), \
                env.running([env.app("epoll-echo"), "--addr", "127.0.0.1", "--port", "7777"]):
            for count in connections:
                self.load("loopback", "epoll-proxy",
                          [env.app("epoll-load"), "--target", f"127.0.0.1:{PORT}"], count)


def is_listening():
    """Somebody does, on PORT, be the address there or not."""
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{PORT:04X}") and line.split()[3] == "0A"
               for line in lines)


def interfaces():
    return [name for _, name in socket.if_nameindex()]


def show(results):
    columns = ("requests/s, 1", "requests/s, 64", "MiB/s")
    print(f"{'path':9}{'proxy':15}" + "".join(f"{column:>30}" for column in columns))
    for (path, proxy), figures in results.items():
        line = f"{path:9}{proxy:15}"
        for column in columns:
            values = figures.get(column)
            text = (f"{statistics.median(values):,.0f} ({min(values):,.0f} - {max(values):,.0f})"
                    if values else "")
            line += f"{text:>30}"
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
    bench = Bench(env, options)
    points = [("tap", "coronet-proxy")] + [
        (path, proxy) for path in ("tap", "veth")
        for proxy in PROXIES[1:]]
    try:
        command("ip", "link", "set", "lo", "up")
        random_file(env.scratch / "bulk", BULK_MIB << 20)
        for number in range(options.rounds):
            for path, proxy in points:
                bench.measure(path, proxy)
            for proxy in PROXIES:
                bench.measure_taps(proxy)
            bench.measure_memif()
            bench.measure_loopback()
            print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr, flush=True)
        show(bench.results)
    except (harness.Failure, harness.Skip) as trouble:
        sys.exit(f"bench_proxy: {trouble}")
    finally:
        env.close()


if __name__ == "__main__":
    main()
