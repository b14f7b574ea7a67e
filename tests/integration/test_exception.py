#!/usr/bin/env python3
"""The exception path (--exception): a kernel and coronet-httpd on one address.

Usage: test_exception.py BUILD_DIR
The peer is a kernel in a network namespace of its own, behind a veth pair.
"""

import contextlib
import ctypes
import functools
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading

from harness import WAIT_MAX_S, Failure, Namespace, Skip, check, command, eventually, main
from stopped_shard import stopped_shard
from test_links import arp_request, checksums_in_software
from test_queues import xdp_options
from vlan_device import Raw
from web import run_curl

HOSTS = ("10.9.0.1", "fd00:9::1")
PEERS = {"10.9.0.1": "10.9.1.1", "fd00:9::1": "fd00:9::2"}
PAGE = b"from the stack\n"
CLONE_NEWNET = 0x40000000


class Site:
    """An interface of this namespace, and a peer behind it."""

    def __init__(self, env):
        self.env = env
        self.space = None

    def __enter__(self):
        self.space = Namespace(self.env)
        command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        for interface in ("veth0", "veth1"):
            checksums_in_software(interface)
        self.space.take_interface("veth1")
        command("ip", "link", "set", "veth0", "up")
        for words in (["link", "set", "lo", "up"], ["addr", "add", "10.9.1.1/16", "dev", "veth1"],
                      ["addr", "add", "fd00:9::2/64", "dev", "veth1", "nodad"],
                      ["link", "set", "veth1", "up"]):
            self.peer("ip", *words)
        # The kernel must not see the frames that AF_PACKET passes to coronet.
        command("nft", "add table netdev quiet; add chain netdev quiet in "
                "{ type filter hook ingress device veth0 priority 0; policy drop; }")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Failure):
            command("nft", "delete table netdev quiet")
        with contextlib.suppress(Failure):
            command("ip", "link", "del", "veth0")
        self.space.close()

    def peer(self, *argv):
        return self.space.command(*argv)

    @contextlib.contextmanager
    def at_peer(self):
        """Sockets created in the block belong to the peer's namespace."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/self/ns/net") as own, \
                open(self.space.path) as there:
            check(libc.setns(there.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno()))
            try:
                yield
            finally:
                libc.setns(own.fileno(), CLONE_NEWNET)

    def socket(self, host="10.9.0.1", kind=socket.SOCK_STREAM):
        """Returns a socket of the peer, of the family of a host's address."""
        with self.at_peer():
            sock = socket.socket(family_of(host), kind)
        sock.settimeout(WAIT_MAX_S)
        return sock

    @contextlib.contextmanager
    def httpd(self, *options, exception="tap:kern0", link="af_packet:veth0", shards=1):
        root = self.env.scratch_for({})
        (root / "page.txt").write_bytes(PAGE)
        argv = [self.env.app("coronet-httpd"), "--link", link,
                *(("--exception", exception) if exception else ()), "--addr", "10.9.0.1/16", "--addr", "fd00:9::1/64", "--port", "80",
                "--root", root, "--poll", "adaptive", "--stats", "0.2", *options]
        if shards > 1:
            argv += ["--shards", shards, "--memory", "1G"]
        with self.env.running(argv, **xdp_options(self.env)) as server:
            yield server

    def fetch(self, host):
        """Fetches the page by a connection of the peer."""
        with self.socket(host) as sock:
            sock.connect((host, 80))
            sock.sendall(b"GET /page.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = read_to_end(sock)
        check(answer.endswith(PAGE), f"{host} answers {answer!r}")


def family_of(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def read_to_end(sock):
    data = b""
    while part := sock.recv(65536):
        data += part
    return data


def counter(name):
    """Returns one of the kernel's counters in this namespace."""
    for path in ("/proc/self/net/snmp", "/proc/self/net/netstat"):
        lines = pathlib.Path(path).read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            group = names.split(":")[0]
            table = dict(zip(names.split()[1:], values.split()[1:]))
            if name.startswith(group) and name[len(group):] in table:
                return int(table[name[len(group):]])
    raise KeyError(name)


@contextlib.contextmanager
def kernel_echo(host="10.9.0.1", port=7000):
    """A kernel server on the stack's own address."""
    with socket.create_server((host, port), family=family_of(host)) as listener:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    threading.Thread(target=echo, args=(sock,), daemon=True).start()

        def echo(sock):
            with sock, contextlib.suppress(OSError):
                while part := sock.recv(65536):
                    sock.sendall(part)
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def exchange(sock, size):
    """Sends size bytes and receives their echo at the same time."""
    data = os.urandom(size)
    sender = threading.Thread(target=sock.sendall, args=(data,))
    sender.start()
    received = b""
    while len(received) < size and (part := sock.recv(65536)):
        received += part
    sender.join()
    check(received == data, f"{len(received)} of {size} bytes came back")


def interface_has_what_it_needs(site):
    """The interface has the link's MAC, MTU and addresses, and is up."""
    with site.httpd("--mtu", 1400) as server:
        shown = command("ip", "addr", "show", "dev", "kern0")
        mac = pathlib.Path("/sys/class/net/veth0/address").read_text().strip() \
            if os.path.exists("/sys/class/net/veth0/address") else ""
        check(mac in shown, f"not veth0's MAC {mac}: {shown}")
        for wanted in ("mtu 1400", "inet 10.9.0.1/16", "inet6 fd00:9::1/64", "LOWER_UP"):
            check(wanted in shown, f"no {wanted}: {shown}")
        server.terminate()
    check("kern0" not in command("ip", "link"), "kern0 is left behind")


def both_are_reached(site, shards):
    with site.httpd(shards=shards) as server:
        resets = counter("TcpOutRsts")
        for host in HOSTS:
            with kernel_echo(host):
                for _ in range(8):
                    site.fetch(host)
                    with site.socket(host) as sock:
                        sock.connect((host, 7000))
                        exchange(sock, 1)
                        site.fetch(host)
                        exchange(sock, 1 << 18)
        check(counter("TcpOutRsts") == resets, "the kernel reset connections")
        for host in HOSTS:  # the kernel refuses closed ports
            with site.socket(host) as sock, contextlib.suppress(ConnectionRefusedError):
                sock.connect((host, 7001))
                check(False, "nobody listens there")
        eventually(lambda: counter("TcpOutRsts") == resets + 2, WAIT_MAX_S,
                   lambda: f"{counter('TcpOutRsts') - resets} resets")
        server.terminate()


def kernel_dials(site, shards):
    """The kernel's connections have the stack's address, too."""
    with site.httpd(shards=shards) as server:
        for host in HOSTS:
            listener = site.socket(host)
            with listener:
                listener.bind((PEERS[host], 0))
                listener.listen()
                port = listener.getsockname()[1]
                for _ in range(8):
                    with socket.create_connection((PEERS[host], port), WAIT_MAX_S,
                                                  (host, 0)) as ours:
                        theirs, source = listener.accept()
                        with theirs:
                            check(source[0] == host, f"from {source}")
                            ours.sendall(b"x" * 100000)
                            ours.shutdown(socket.SHUT_WR)
                            check(len(read_to_end(theirs)) == 100000, "bytes are lost")
                        site.fetch(host)
        server.terminate()


def pings(site):
    """The stack answers a ping, once; both can send pings."""
    with site.httpd() as server:
        for host in HOSTS:
            shown = site.peer("ping", "-c", "3", "-i", "0.2", "-w", WAIT_MAX_S, host)
            check("duplicates" not in shown and "DUP" not in shown, shown)
            command("ping", "-c", "2", "-i", "0.2", "-w", WAIT_MAX_S, PEERS[host])
        answered = counter("IcmpOutEchoReps")
        server.terminate()
    with site.httpd(exception="tap:kern0,echo=kernel") as server:
        shown = site.peer("ping", "-c", "3", "-i", "0.2", "-w", WAIT_MAX_S, HOSTS[0])
        check("DUP" not in shown, shown)
        check(counter("IcmpOutEchoReps") >= answered + 3, "the kernel did not answer")
        server.terminate()


def over_af_xdp(site):
    """With AF_XDP the kernel gets frames only by the exception path."""
    command("nft", "delete table netdev quiet")
    with site.httpd(link="af_xdp:veth0") as server, kernel_echo():
        for host in HOSTS:  # the kernel reassembles fragments, and answers
            site.peer("ping", "-c", "2", "-i", "0.2", "-w", WAIT_MAX_S, "-s", 4000, host)
            site.fetch(host)
        with site.socket() as sock:
            sock.connect((HOSTS[0], 7000))
            exchange(sock, 1 << 18)
        server.terminate()


def one_answer_of_arp(site):
    with site.httpd() as server:
        site.fetch(HOSTS[0])
        with site.at_peer():
            raw = Raw("veth1")
        with contextlib.closing(raw):
            frame = arp_request(HOSTS[0])
            got = []

            def answers(mac, times):
                for _ in range(times):
                    raw.send(frame[:6] + mac + frame[12:22] + mac + frame[28:])

            def seen(mac):
                got.extend(answer[:6] for answer, _ in raw.incoming()
                           if answer[12:14] == b"\x08\x06" and answer[20:22] == b"\0\2")
                return got.count(mac)
            answers(b"\x02\0\0\0\1\1", 4)
            answers(b"\x02\0\0\0\1\2", 1)  # its reply comes last
            eventually(lambda: seen(b"\x02\0\0\0\1\2"), WAIT_MAX_S, "no reply")
            site.peer("ping", "-c", "3", "-i", "0.2", "-w", WAIT_MAX_S, HOSTS[0])
            check(seen(b"\x02\0\0\0\1\1") == 4, f"{len(got)} replies: {got}")
        server.terminate()


def sshd(site):
    """sshd on the kernel, beside coronet-httpd."""
    program = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
    if not program or not shutil.which("ssh"):
        raise Skip("openssh-server is not installed")
    folder = site.env.scratch_for({})
    for key in ("host", "user"):
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key)
    os.makedirs("/run/sshd", exist_ok=True)
    with site.httpd() as server:
        ssh_server = site.env.start(
            [program, "-D", "-e", "-f", "/dev/null", "-p", "22", "-h", folder / "host",
             "-o", f"AuthorizedKeysFile={folder / 'user.pub'}", "-o", "StrictModes=no",
             "-o", "UsePAM=no", "-o", "PidFile=none", "-o", "PermitRootLogin=yes"])
        try:
            eventually(lambda: "listening on 0.0.0.0" in ssh_server.output("stderr"), WAIT_MAX_S,
                       ssh_server.story)
            for host in HOSTS:
                said = site.peer("ssh", "-F", "none", "-i", folder / "user", "-o", "BatchMode=yes",
                                 "-o", "StrictHostKeyChecking=no", "-o",
                                 f"UserKnownHostsFile={folder / 'known'}", f"root@{host}",
                                 "head -c 300000 /dev/zero | wc -c; head -c 300000 /dev/zero")
                check(said.count("\0") == 300000, f"{len(said)} bytes: {said[:300]!r}")
                site.fetch(host)
        finally:
            ssh_server.kill()
        server.terminate()


def broadcasts_pass(site):
    """Broadcasts pass as in DHCP: from no address to all, with an answer to all."""
    with site.httpd(exception="tap:kern0,addr=off") as server:
        check("inet 10.9" not in command("ip", "addr", "show", "dev", "kern0"),
              "addr=off gave addresses")
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        far = site.socket(kind=socket.SOCK_DGRAM)
        with client, far:
            for sock, name, port in ((client, b"kern0", 68), (far, b"veth1", 67)):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name)
                sock.bind(("", port))
                sock.settimeout(WAIT_MAX_S)
            command("ip", "route", "add", "255.255.255.255", "dev", "kern0")
            client.sendto(b"discover", ("255.255.255.255", 67))
            check(far.recv(100) == b"discover", "not what was sent")
            site.peer("ip", "route", "add", "255.255.255.255", "dev", "veth1")
            far.sendto(b"offer", ("255.255.255.255", 68))
            check(client.recv(100) == b"offer", "not what was sent")
            site.fetch(HOSTS[0])
        server.terminate()


def listed_ports(site):
    """The stack itself refuses connections to ports that are not listed."""
    with site.httpd(exception="tap:kern0,tcp=7000,udp=none") as server:
        with kernel_echo(port=7000), kernel_echo(port=7001):
            resets, refused = counter("TcpOutRsts"), counter("UdpNoPorts")
            with site.socket() as sock:
                sock.connect((HOSTS[0], 7000))
                exchange(sock, 1000)
            with site.socket() as sock:
                try:
                    sock.connect((HOSTS[0], 7001))
                    check(False, "7001 was reached")
                except ConnectionRefusedError:
                    pass
            check(counter("TcpOutRsts") == resets, "the kernel refused it")
        with site.socket(kind=socket.SOCK_DGRAM) as sock:
            sock.connect((HOSTS[0], 7002))
            sock.send(b"x")
            try:  # the stack's "port unreachable"
                check(not sock.recv(1), "a datagram is answered")
            except ConnectionRefusedError:
                pass
        check(counter("UdpNoPorts") == refused, "the kernel got a datagram")
        server.terminate()


def sessions_outlive_a_kill(site):
    """The kernel's sessions survive a kill and restart of coronet."""
    with kernel_echo("0.0.0.0"), site.socket() as sock:
        with site.httpd() as server:
            sock.connect((HOSTS[0], 7000))
            exchange(sock, 1000)
            server.kill()
        with site.httpd() as server:
            exchange(sock, 100000)
            site.fetch(HOSTS[0])
            server.terminate()


def floods_are_bounded(site):
    """Frames beyond the rate are dropped and counted; the stack continues."""
    with site.httpd("--metrics", "127.0.0.1:9467", exception="tap:kern0,rate=100") as server:
        site.fetch(HOSTS[0])
        before = counter("UdpNoPorts") + counter("UdpInDatagrams")
        with site.socket(kind=socket.SOCK_DGRAM) as sock:
            for _ in range(3000):
                sock.sendto(b"x", (HOSTS[0], 9))
        eventually(lambda: re.search(r"\((\d\d+) over the rate", server.output("stderr")),
                   WAIT_MAX_S, server.story)
        site.fetch(HOSTS[0])
        came = counter("UdpNoPorts") + counter("UdpInDatagrams") - before
        check(came < 2900, f"{came} of 3000 came through")
        page = run_curl("http://127.0.0.1:9467/metrics")
        counts = dict(re.findall(r'^coronet_kernel_\w+\{shard="0",\w+="(\w+)"\} (\d+)$', page,
                                 re.MULTILINE))
        check(int(counts["limited"]) > 10 and int(counts["to_kernel"]) >= came > 0 and
              int(counts["from_kernel"]) > 0, f"{came} came: {counts}")
        server.terminate()


def taken_interfaces(site):
    """An interface in use is an error of one line."""
    root = site.env.scratch_for({})
    (root / "page.txt").write_bytes(PAGE)

    def refused(exception):
        program = site.env.start([site.env.app("coronet-httpd"), "--link", "af_packet:veth0",
                                  "--exception", exception, "--addr", "10.9.0.1/16", "--root",
                                  root, "--port", "80"])
        status = program.wait(WAIT_MAX_S)
        lines = program.output("stderr").strip().splitlines()
        wanted = "another program has the interface, or it is not a TAP"
        check(status == 1 and len(lines) == 1 and wanted in lines[0] and exception in lines[0],
              f"status {status}: {program.story()}")
    refused("tap:veth0")
    with site.httpd():
        refused("tap:kern0")


def set_while_it_runs(site, shards):
    """coronet-ctl set exception adds, changes and removes it without harm to our sessions."""
    path = site.env.scratch_for({}) / "c"

    def ctl(*words, status=0):
        done = subprocess.run([site.env.app("coronet-ctl"), "--control", path, "--json", *words],
                              check=False, capture_output=True, text=True, timeout=WAIT_MAX_S)
        check(done.returncode == status, f"{words}: {done}")
        return done.stderr if status else json.loads(done.stdout)

    def reaches(port):
        with site.socket() as sock:
            try:
                sock.connect((HOSTS[0], port))
            except ConnectionRefusedError:
                return False
            exchange(sock, 1000)
            return True

    with site.httpd("--control", path, exception=None, shards=shards) as server, \
            site.socket() as stays:
        stays.connect((HOSTS[0], 80))
        for _ in range(2):
            check(ctl("exception") == [{"link": 1, "exception": "off"}], f"{ctl('exception')}")
            check(not reaches(7000), "something answers for the kernel")
            rule = "tap:kern0,echo=kernel"
            check(ctl("set", "exception", rule) == {"link": 1, "exception": rule}, "not set")
            check("inet 10.9.0.1/16" in command("ip", "addr", "show", "dev", "kern0"), "no address")
            with kernel_echo():
                check(all(reaches(7000) for _ in range(8)), "the kernel is not reached")
                site.fetch(HOSTS[0])
                for wrong, wanted in (("tap:kern0,tcp=x", "expected tcp= with all, none"), ("2,off", "from 1 to 1"),
                                      ("0,off", "from 1 to 1"), ("1,", "expected tap:"),
                                      ("tap:veth0", "another program has the interface"),
                                      ("tap:kern0,addr=off", "with addr=on; end that first")):
                    text = ctl("set", "exception", wrong, status=1)
                    check(wanted in text and text.count("\n") == 1, f"{wrong}: {text}")
                check(ctl("exception")[0]["exception"] == rule, "a mistake changed it")
                check(reaches(7000), "a mistake closed it")
                with site.socket() as kept:
                    kept.connect((HOSTS[0], 7000))
                    ctl("set", "exception", "1,tap:kern0,udp=none")  # the interface stays
                    exchange(kept, 1 << 18)
                ctl("set", "exception", "tap:kern0,tcp=1-6999")
                check(not any(reaches(7000) for _ in range(8)), "a port that is not the kernel's")
            ctl("set", "exception", "off")
            check("kern0" not in command("ip", "link"), "kern0 is left behind")
            check(ctl("set", "exception", "off")["exception"] == "off", "off twice")
        stays.sendall(b"GET /page.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        check(read_to_end(stays).endswith(PAGE), "a session of ours has gone")
        server.terminate()


def set_with_a_stuck_shard(site):
    """A stuck shard is named, nothing changes on the others, and no interface is left."""
    path = site.env.scratch_for({}) / "c"

    def set_to(rule):
        return subprocess.run([site.env.app("coronet-ctl"), "--control", path, "set", "exception",
                               rule], check=False, capture_output=True, text=True,
                              timeout=WAIT_MAX_S)

    with site.httpd("--control", path, exception=None, shards=2) as server:
        for before in ("off", "tap:kern0"):
            check(set_to(before).returncode == 0, f"{before} is refused")
            with stopped_shard(server, 1):
                for rule in ("tap:kern1", "off"):
                    done = set_to(rule)
                    check(done.returncode == 1 and
                          "shard 1 has not answered for two seconds" in done.stderr, f"{done}")
                links = command("ip", "link")
                check("kern1" not in links and ("kern0" in links) == (before != "off"), links)
            site.fetch(HOSTS[0])
        with kernel_echo(), site.socket() as sock:  # the shards still agree
            sock.connect((HOSTS[0], 7000))
            exchange(sock, 1000)
        check(set_to("tap:kern1").returncode == 0, "it is stuck for ever")
        links = command("ip", "link")
        check("kern1" in links and "kern0" not in links, links)
        server.terminate()


def with_site(env, case, *args):
    with Site(env) as site:
        case(site, *args)


def cases(env):
    bind = functools.partial
    for name, case, *args in (
            ("the interface has the link's MAC, MTU and addresses", interface_has_what_it_needs),
            ("both are reached", both_are_reached, 1),
            ("both are reached, 2 shards", both_are_reached, 2),
            ("the kernel dials", kernel_dials, 1),
            ("the kernel dials, 2 shards", kernel_dials, 2),
            ("pings", pings),
            ("over AF_XDP, fragments too", over_af_xdp),
            ("one answer of ARP", one_answer_of_arp),
            ("sshd beside coronet-httpd", sshd),
            ("broadcasts pass", broadcasts_pass),
            ("listed ports", listed_ports),
            ("sessions outlive a kill", sessions_outlive_a_kill),
            ("floods are bounded", floods_are_bounded),
            ("taken interfaces", taken_interfaces),
            ("set while it runs", set_while_it_runs, 1),
            ("set while it runs, 2 shards", set_while_it_runs, 2),
            ("set with a stuck shard", set_with_a_stuck_shard)):
        yield name, bind(with_site, env, case, *args)


if __name__ == "__main__":
    main(cases)
