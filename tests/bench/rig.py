"""Servers, loads and the links between them: one measurement per call.

A rig starts a server and its load, waits for the load's end and returns the
load's figures. The server has the first core, the load the second; the links
and sockets are new ones each time. Paths, by the names the reports use:

    memif     coronet-echo; flood, which is no TCP stack, on the other end
    tap       coronet-echo on a TAP; epoll-load on the kernel's side of it
    loopback  epoll-echo and epoll-load, both the kernel's
    uring     the same with uring-echo
    kerneltap epoll-echo on the kernel's side of a TAP; flood on the other,
              coronet-load for what flood does not know
    uringtap  the same with uring-echo
    veth      one end the server's: epoll-echo, or coronet-echo by AF_XDP or
              AF_PACKET; on the other, in a namespace of its own, epoll-load,
              or flood by AF_XDP
    macswap   dpdk-testpmd swapping MAC addresses; flood's frames over memif

The TAPs and veths want a network namespace that the caller made
(harness.reenter()), AF_XDP real root; the others run anywhere.
"""

import contextlib
import fcntl
import os
import re
import resource
import shutil
import socket
import statistics
import struct
import sys
import threading
import time

import figures
import harness
from harness import WAIT_MAX_S, Failure, Skip, command, eventually
from veth import Veth, real_root

HUGE_NEEDED = 160   # free 2 MiB pages for two processes at once
SOURCES = 22        # addresses, of which a million connections need 21
BUSY_LIMIT = 0.95   # of a load's time
FILES_BESIDE = 100  # descriptors that are no connection
TAP_QUEUE = 16384   # frames: 10,000 connections send requests at once
SIOCGIFADDR = 0x8915  # linux/sockios.h
SAMPLE_S = 0.1      # between two samples of the server's CPU time


def has_address(name, address):
    """Whether an interface exists with this IPv4 address."""
    request = struct.pack("16s24x", name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, SIOCGIFADDR, request)
        except OSError:
            return False
    return socket.inet_ntoa(answer[20:24]) == address


def free_hugepages():
    """Free pages of 2 MiB."""
    try:
        with open("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                  encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def file_limit():
    """Raises the limit of open files to the maximum, and returns it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Watch:
    """Measures the share of a core that a process uses, in its busiest half second."""

    def __init__(self, pid):
        self.path = f"/proc/{pid}/schedstat"
        self.done = threading.Event()
        self.samples = []
        self.thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def _sample(self):
        while not self.done.wait(SAMPLE_S):
            try:
                with open(self.path, encoding="ascii") as file:
                    self.samples.append((time.monotonic(),
                                         int(file.read().split()[0]) * 1e-9))
            except (OSError, ValueError):
                return

    def busiest(self, window=5):
        """Returns the share of one core, or None."""
        shares = [(b[1] - a[1]) / (b[0] - a[0])
                  for a, b in zip(self.samples, self.samples[window:])]
        return max(shares, default=None)


def ip(*words):
    command("ip", *words)


def prepare_network():
    """Configures a network namespace that only the benchmark uses."""
    ip("link", "set", "lo", "up")
    # For kernel clients: all ports, and reuse of those in TIME_WAIT.
    for name, value in (("ip_local_port_range", "1024 65535"),
                        ("tcp_tw_reuse", "1")):
        with contextlib.suppress(OSError), \
                open(f"/proc/sys/net/ipv4/{name}", "w",
                     encoding="ascii") as file:
            file.write(value)


def kill_child(server):
    """Kills a child at once, since it may have a million connections, which are measured."""
    server.kill()


class Rig:
    """Starts servers and loads; options: build, seconds."""

    def __init__(self, options, children):
        self.options = options
        self.children = children
        self.huge = free_hugepages() >= HUGE_NEEDED
        self.cores = figures.two_cores()
        self.files = file_limit()
        self.alone = harness.INSIDE in sys.argv  # a network of our own
        self.count = 0
        if len(set(self.cores)) < 2:
            raise Failure("two cores are needed, one for the server and one "
                          "for its load")

    def reset(self):
        """Ends the programs that a failed measurement has left."""
        for child in self.children.programs:
            child.kill()

    # ---- shared parts ----

    def memory(self, huge=True):
        return ["--huge", "auto" if self.huge and huge else "off"]

    def memif(self):
        """Returns the two ends of a new memif."""
        self.count += 1
        path = self.children.path(f"{self.count}.sock")
        return f"memif:{path},role=server", f"memif:{path},role=client"

    def tap(self):
        """Returns a TAP's name, and a server address that no earlier run had, so that no
        connection of it is in TIME_WAIT."""
        self.count += 1
        return (f"bench{self.count}",
                f"10.9.{2 + self.count // 250}.{self.count % 250 + 1}")

    def built_path(self, *path):
        return figures.program_path(self.options, *path)

    def figures_of(self, argv, server, timeout, started=None):
        """Runs a load to its end and reads the JSON that it wrote.

        started(child) is called while it runs, for what needs its link.
        """
        with Watch(server.process.pid) as watched:
            found = figures.run_load(self.children, argv, self.options.seconds + timeout,
                                     watch=[server], started=started)
        found["server_cpu"] = watched.busiest()
        return found

    # ---- servers ----

    def coronet(self, link, program=("apps", "coronet-echo"), huge=True,
                extra=(), address=figures.SERVER_ADDR):
        """Starts a server of ours, and waits until it is ready."""
        argv = [self.built_path(*program), "--link", link,
                "--addr", f"{address}/{figures.PREFIX}",
                "--lcore", str(self.cores[0]), "--poll", "busy",
                *self.memory(huge), *extra]
        if program[-1] == "coronet-echo":
            argv += ["--port", str(figures.PORT)]
        return self.children.start(argv).wait_ready()

    def kernel(self, name="epoll-echo", options=()):
        """Starts a server on kernel sockets, and waits until it is ready."""
        if name == "uring-echo":
            refusal = figures.no_uring(self.options, self.children)
            if refusal:
                raise Skip(refusal)
        return self.children.start([
            self.built_path("apps", name), "--port", str(figures.PORT),
            "--cpu", str(self.cores[0]), *options]).wait_ready()

    # ---- loads ----

    def flood(self, link, server, *extra, huge=True, timeout=60,
              target=figures.SERVER_ADDR, started=None, inside=()):
        argv = [*inside, self.built_path("tests", "bench", "flood"), "--link", link,
                "--addr", figures.CLIENT_ADDR,
                "--target", f"{target}:{figures.PORT}",
                "--lcore", str(self.cores[1]),
                "--seconds", f"{self.options.seconds:g}",
                *self.memory(huge), *extra]
        found = self.figures_of(argv, server, timeout, started)
        found["limited"] = found["generator_busy"] > BUSY_LIMIT
        return found

    def load(self, name, server, *extra, target=figures.SERVER_ADDR,
             timeout=180, started=None, inside=()):
        """Runs coronet-load or epoll-load; returns figures in any case: the report marks those
        limited by the load instead of the server."""
        argv = [*inside, self.built_path("apps", name),
                "--target", f"{target}:{figures.PORT}",
                "--lcore", str(self.cores[1]), "--interval", "0",
                "--report-limited", *extra]
        found = self.figures_of(argv, server, timeout, started)
        found["limited"] = bool(found["generator_limited"])
        return found

    def coronet_load(self, link, server, *extra, **rest):
        return self.load("coronet-load", server, "--link", link, "--poll",
                         "busy", *self.memory(), *extra, **rest)

    # ---- the paths: server and load ----

    def memif_flood(self, *extra, program=("apps", "coronet-echo"),
                    huge=True, timeout=120, options=()):
        ours, theirs = self.memif()
        server = self.coronet(ours, program, huge, options)
        found = self.flood(theirs, server, *extra, huge=huge, timeout=timeout)
        kill_child(server)
        return found

    def memif_load(self, *extra):
        ours, theirs = self.memif()
        server = self.coronet(ours)
        found = self.coronet_load(
            theirs, server, "--addr",
            f"{figures.CLIENT_ADDR}/{figures.PREFIX}", *extra)
        kill_child(server)
        return found

    def tap_load(self, *extra):
        name, address = self.tap()
        server = self.coronet(f"tap:{name}", address=address)
        self.tap_up(name, figures.CLIENT_ADDR)
        found = self.load("epoll-load", server, *extra, target=address)
        kill_child(server)
        return found

    def loopback(self, *extra, name="epoll-echo"):
        server = self.kernel(name)
        found = self.load("epoll-load", server, *extra, target="127.0.0.1")
        kill_child(server)
        return found

    def kerneltap_flood(self, *extra, timeout=120, server="epoll-echo"):
        return self._kerneltap(
            lambda link, server, address, started: self.flood(
                link, server, *extra, target=address, timeout=timeout,
                started=started), server)

    def kerneltap_load(self, *extra):
        return self._kerneltap(
            lambda link, server, address, started: self.coronet_load(
                link, server, "--addr",
                f"{figures.CLIENT_ADDR}/{figures.PREFIX}", *extra,
                target=address, started=started))

    def _kerneltap(self, load, program="epoll-echo"):
        name, address = self.tap()
        server = self.kernel(program)
        found = load(f"tap:{name}", server, address,
                     lambda child: self.tap_up(name, address, child))
        kill_child(server)
        return found

    def tap_up(self, name, address, child=None):
        """Gives the kernel's side its address, once the other side has made the TAP."""
        def is_there():
            if child:
                child.check_alive()
            # /sys may show another namespace's.
            return name in (link for _, link in socket.if_nameindex())

        eventually(is_there, WAIT_MAX_S, f"there is no interface {name} after {WAIT_MAX_S} s")
        eventually(lambda: self.try_address(name, address), WAIT_MAX_S,
                   f"{name} does not take the address {address}")
        if child:
            threading.Thread(target=self.keep_address, daemon=True,
                             args=(name, address, child)).start()

    @staticmethod
    def try_address(name, address):
        """DPDK makes a TAP in two steps; in between there is none."""
        try:
            ip("addr", "replace", f"{address}/{figures.PREFIX}", "dev", name)
            ip("link", "set", name, "txqueuelen", str(TAP_QUEUE), "up")
        except Failure:
            return False
        return True

    def keep_address(self, name, address, child):
        """The address may have been given to the TAP of the first step, which is gone."""
        while child.alive():
            if not has_address(name, address):
                self.try_address(name, address)
            time.sleep(0.05)

    def veth_load(self, kind, *extra):
        """Runs epoll-load on the kernel at the far end."""
        with self.veth(kind, f"{figures.CLIENT_ADDR}/{figures.PREFIX}") as veth:
            server = self.veth_server(kind, veth.near)
            found = self.load("epoll-load", server, *extra, inside=veth.inside)
            kill_child(server)
        return found

    def veth_flood(self, kind, *extra, options=()):
        """Runs flood at the far end, without the kernel's TCP."""
        with self.veth("af_xdp", None) as veth:
            server = self.veth_server(kind, veth.near, options)
            found = self.flood(f"af_xdp:{veth.far},csum=trust", server, *extra,
                               inside=veth.inside)
            kill_child(server)
        return found

    def veth(self, kind, address):
        if not self.alone:
            raise Skip("a veth needs a network namespace: neither root, "
                             "user namespaces nor sudo -n here")
        if kind == "af_xdp" and not real_root():
            raise Skip("AF_XDP needs root, and not a user namespace's")
        self.count += 1
        return Veth(self.children, self.count, address)

    def veth_server(self, kind, name, options=()):
        """kind: epoll, or a kind of link."""
        if kind != "epoll":
            return self.coronet(f"{kind}:{name},csum=trust", extra=options)
        ip("addr", "add", f"{figures.SERVER_ADDR}/{figures.PREFIX}", "dev",
           name)
        return self.kernel(options=options)

    def macswap(self):
        program = shutil.which("dpdk-testpmd")
        if not program:
            raise Failure("dpdk-testpmd is not there: run ./dev setup")
        _, theirs = self.memif()
        path = theirs.split(":")[1].split(",")[0]
        memory = (["--in-memory", "--single-file-segments"] if self.huge else
                  ["--no-huge", "-m", "256", "--no-shconf"])
        prefix = f"coronet-bench-{os.getpid()}"
        core = self.cores[0]
        try:
            forwarder = self.children.start([
                "stdbuf", "-oL", program, *memory, "--no-pci",
                "--no-telemetry", "--file-prefix", prefix,
                "--lcores", f"0@{core},1@{core}", "--vdev",
                f"net_memif0,role=server,id=0,socket={path},"
                "socket-abstract=no,rsize=10,bsize=2048",
                "--", "--forward-mode=macswap", "--auto-start",
                "--disable-link-check", "--total-num-mbufs=16384",
                "--stats-period=3600"])
            forwarder.wait_ready("macswap packet forwarding.*")
            found = self.flood(theirs, forwarder, "--mode", "bounce",
                               "--size", "64")
            kill_child(forwarder)
            return found
        finally:
            if os.geteuid() == 0:
                shutil.rmtree(os.path.join("/var/run/dpdk", prefix),
                              ignore_errors=True)

    # ---- proxies: each alone on the first core ----

    def memif_proxy(self, conns):
        """coronet-proxy between two memifs, coronet-echo behind it."""
        front, load_side = self.memif()
        back, echo_side = self.memif()
        proxy = self.children.start([
            self.built_path("apps", "coronet-proxy"), "--lcore", str(self.cores[0]),
            "--link", front, "--addr", f"{figures.SERVER_ADDR}/{figures.PREFIX}",
            "--link", back, "--addr", "10.8.0.1/16", "--poll", "adaptive",
            *self.memory(), "--listen", f"{figures.SERVER_ADDR}:{figures.PORT}",
            "--to", f"10.8.0.2:{figures.PORT}", "--health-interval", "0"])
        proxy.wait_ready()
        echo = self.children.start([
            self.built_path("apps", "coronet-echo"), "--lcore", str(self.cores[1]),
            "--link", echo_side, "--addr", "10.8.0.2/16", "--poll", "adaptive",
            *self.memory(), "--port", str(figures.PORT)])
        echo.wait_ready()
        found = self.load(
            "coronet-load", proxy, "--link", load_side, "--addr",
            f"{figures.CLIENT_ADDR}/{figures.PREFIX}", "--poll", "adaptive",
            *self.memory(), *self.proxied(conns))
        kill_child(echo)
        kill_child(proxy)
        return found

    def loopback_proxy(self, conns):
        """epoll-proxy and epoll-echo on the kernel's loopback."""
        port = figures.PORT + 1
        proxy = self.children.start([
            self.built_path("apps", "epoll-proxy"), "--lcore", str(self.cores[0]),
            "--listen", f"127.0.0.1:{figures.PORT}", "--to",
            f"127.0.0.1:{port}", "--health-interval", "0"])
        proxy.wait_ready()
        echo = self.children.start([
            self.built_path("apps", "epoll-echo"), "--cpu", str(self.cores[1]),
            "--addr", "127.0.0.1", "--port", str(port)])
        echo.wait_ready()
        found = self.load("epoll-load", proxy, *self.proxied(conns),
                          target="127.0.0.1")
        kill_child(echo)
        kill_child(proxy)
        return found

    def proxied(self, conns):
        return ["--conns", str(conns), "--seconds",
                f"{self.options.seconds:g}", "--warmup", "0.3"]

    # ---- idle connections ----

    def idle_coronet(self, conns, hold=3):
        """Measures coroutines that wait in recv. Each connection has a request before
        and after. Returns the server's memory, hugepages included (held_by)."""
        ours, theirs = self.memif()
        server = self.coronet(ours, extra=("--stats", "0.5"))
        time.sleep(1.2)
        addresses = []
        for i in range(SOURCES):
            addresses += ["--addr", f"10.9.1.{i + 1}/{figures.PREFIX}"]
        found = self.coronet_load(
            theirs, server, *addresses, "--mode", "idle",
            "--conns", str(conns), "--seconds", str(hold), "--timeout", "60")
        found.update(held_by(server, conns))
        check_answered(found, conns)
        kill_child(server)
        return found

    def idle_epoll(self, conns, hold=3):
        """Measures the memory of the kernel and epoll-echo for the same connections
        over a TAP."""
        name, address = self.tap()
        server = self.kernel()
        before, seen = [], []
        stop = threading.Event()

        def linked(child):
            """The link's own queues do not count as memory of connections."""
            self.tap_up(name, address, child)
            before.append(kernel_kib(server))

        def sample():
            while not stop.wait(0.2):
                if sockets_in_use() >= conns:
                    seen.append(kernel_kib(server))

        sampler = threading.Thread(target=sample, daemon=True)
        sampler.start()
        addresses = []
        for i in range(SOURCES):
            addresses += ["--addr", f"10.9.1.{i + 1}/{figures.PREFIX}"]
        try:
            found = self.coronet_load(
                f"tap:{name}", server, *addresses, "--mode", "idle",
                "--conns", str(conns), "--seconds", str(hold),
                "--timeout", "60", target=address, timeout=400,
                started=linked)
        finally:
            stop.set()
            sampler.join()
        check_answered(found, conns)
        if not seen:
            raise Failure(f"the kernel never had {conns} idle connections")
        found["none_kib"] = before[0]
        found["server_kib"] = statistics.median(seen)
        kill_child(server)
        return found


def check_answered(found, conns):
    if found["answered_after"] != conns:
        raise Failure(f"of {conns} idle connections only "
                      f"{found['answered_after']} answered")


IDLE_LINE = re.compile(
    r"stats: rx (\d+)/s .* (\d+) connections, .* ([\d.]+) MiB resident"
    r"(?: and ([\d.]+) MiB of hugepages)?")


def held_by(server, conns):
    """Returns the server's memory by its --stats lines, in KiB: with no connection,
    while all were idle, and after the load used each of them again."""
    none = idle = after = None
    asked = False
    for line in server.output("stderr").splitlines():
        match = IDLE_LINE.match(line)
        if not match:
            continue
        held = (float(match[3]) + float(match[4] or 0)) * 1024
        if int(match[2]) == 0 and idle is None:
            none = held
        if int(match[2]) != conns:
            continue
        if int(match[1]) >= 1000:
            asked = idle is not None
        elif asked:
            after = held
        else:
            idle = held
    if idle is None or none is None:
        raise Failure(f"the server never had {conns} idle connections")
    return {"none_kib": none, "server_kib": idle,
            "after_kib": after if after is not None else idle}


def sockets_in_use():
    """TCP's, in this namespace."""
    with open("/proc/net/sockstat", encoding="ascii") as file:
        return int(re.search(r"^TCP: inuse (\d+)", file.read(), re.M)[1])


def kernel_kib(server):
    """Returns the kernel's slabs, page tables and per-CPU memory and the server's
    anonymous memory, in KiB."""
    with open("/proc/meminfo", encoding="ascii") as file:
        info = dict(line.split(":") for line in file)
    kib = sum(int(info[key].split()[0])
              for key in ("Slab", "PageTables", "Percpu") if key in info)
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return kib + int(re.search(r"RssAnon:\s+(\d+) kB", file.read())[1])
