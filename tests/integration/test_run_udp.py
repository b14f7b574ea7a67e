#!/usr/bin/env python3
"""Unmodified programs that use UDP on the stack, by coronet-run, over a TAP against the kernel.

Usage: test_run_udp.py BUILD_DIR [CASE...]
"""

import contextlib
import functools
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading

from harness import WAIT_MAX_S, check, command, eventually, main
from test_run import KERNELS, KERNELS6, OURS, OURS6, OnTap, need_programs

PORT = 5300
UPSTREAM = 5301
TEXT = "t" * 250


# ---- dig and dnsmasq ----

def dnsmasq(port, *more):
    return ["dnsmasq", "--no-daemon", "--log-facility=-", "--log-queries",
            "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file", "--user=root",
            "--edns-packet-max=1232", f"--port={port}", *more]


RECORDS = ["--address=/name.test/192.0.2.7", "--address=/name.test/2001:db8::7",
           *(f"--txt-record=long.test,{n}{TEXT}" for n in range(4))]


def dig(server, port, *question):
    return ["dig", f"@{server}", "-p", port, "+tries=1", "+timeout=5", "+noall", "+answer",
            *question]


def check_answers(ask, server, port, tcp=True):
    """Asks for short and long records, each over UDP; ask returns dig's output."""
    check("192.0.2.7" in ask(dig(server, port, "name.test", "A")), "no A record")
    check("2001:db8::7" in ask(dig(server, port, "name.test", "AAAA")), "no AAAA record")
    text = ask(dig(server, port, "+notcp", "+bufsize=1232", "long.test", "TXT"))
    check(text.count(TEXT) == 4, f"not four TXT records: {text}")
    if not tcp:
        return
    # Without EDNS the answer is cut, and dig asks again over TCP.
    text = ask(dig(server, port, "+noedns", "long.test", "TXT"))
    check(text.count(TEXT) == 4, f"not four TXT records: {text}")


def answers(server, port):
    return subprocess.run([str(word) for word in dig(server, port, "name.test", "A")], check=False,
                          capture_output=True).returncode == 0


@contextlib.contextmanager
def resolver_of_the_kernel(env, port):
    path = f"{os.environ['PATH']}:/usr/sbin"
    program = env.start(dnsmasq(port, *RECORDS), env={**os.environ, "PATH": path})
    try:
        eventually(lambda: answers("127.0.0.1", port) or not program.alive(), WAIT_MAX_S,
                   program.story)
        check(program.alive(), program.story())
        yield
    finally:
        program.kill()


def dig_asks_the_kernel(env):
    """dig on the stack asks a resolver on the kernel, also one at its loopback."""
    need_programs("dig", "dnsmasq")
    command("ip", "link", "set", "lo", "up")
    run = OnTap(env)
    with resolver_of_the_kernel(env, PORT):
        check_answers(lambda words: run.client(*words), KERNELS, PORT)
        check("192.0.2.7" in run.client(*dig(KERNELS6, PORT, "name.test", "A")), "IPv6: no answer")
        check("192.0.2.7" in run.client(*dig("127.0.0.1", PORT, "name.test", "A")),
              "loopback: no answer")
    # Nobody listens: "port unreachable" ends the wait, long before dig's own timeout.
    words = [*dig(KERNELS, PORT, "name.test", "A"), "+timeout=600"]
    check("refused" in run.client(*words, status=9), "the closed port does not refuse")


def dnsmasq_serves(env):
    """dnsmasq on the stack answers the kernel's dig, and asks a resolver of the kernel's."""
    need_programs("dig", "dnsmasq")
    command("ip", "link", "set", "lo", "up")
    for words in ([], [f"--listen-address={OURS},{OURS6}", "--bind-interfaces"]):
        with resolver_of_the_kernel(env, UPSTREAM):
            server = OnTap(env).start(*dnsmasq(PORT, *RECORDS, f"--server=127.0.0.1#{UPSTREAM}",
                                               "--local=/test/", *words))
            eventually(lambda s=server: answers(OURS, PORT) or not s.alive(), WAIT_MAX_S,
                       server.story)
            # Without --bind-interfaces, it asks for the interface of a TCP connection.
            check_answers(lambda question: command(*question), OURS, PORT, tcp=bool(words))
            check("192.0.2.7" in command(*dig(OURS6, PORT, "name.test", "A")), "IPv6: no answer")
            asked = command(*dig(OURS, PORT, "+comments", "other.example", "A"))
            check("REFUSED" in asked, f"not the resolver's answer: {asked}")
            check(f"forwarded other.example to 127.0.0.1#{UPSTREAM}" in server.output("stderr"),
                  server.story())
            server.signal(signal.SIGTERM)
            check(server.wait(WAIT_MAX_S) == 0, server.story())


# ---- iperf3 ----

def received(text):
    """Returns how many datagrams arrived, by the receiver's count."""
    end = json.loads(text)["end"]
    total = end["sum"]
    got = total["packets"] - total["lost_packets"]
    check(total["packets"] > 0 and got >= total["packets"] // 2, f"{got} arrived: {end}")


DATAGRAMS = ["-u", "-b", "50M", "-n", "2M", "--json"]


def iperf3(env):
    """iperf3 -u, whose server connects its socket to the client and opens another one."""
    need_programs("iperf3")
    run, mores = OnTap(env), ([], ["-R"], ["-P", 2])

    def measure_each(server, client):
        for number, more in enumerate(mores, 1):
            eventually(lambda n=number: f"(test #{n})" in server.output("stdout"), WAIT_MAX_S,
                       server.story)
            received(client([*DATAGRAMS, *more]))

    server = run.start("iperf3", "-s", "--forceflush")
    measure_each(server, lambda words: command("iperf3", "-c", OURS, *words))
    server.kill()
    server = env.start(["iperf3", "-s", "--forceflush"])
    measure_each(server, lambda words: run.client("iperf3", "-c", KERNELS, *words))
    server.kill()


# ---- a program with threads ----

THREADS = """
import errno, os, select, socket, threading
def fails(wanted, call, *args):
    try:
        got = call(*args)
    except OSError as error:
        assert error.errno == wanted, error
    else:
        raise AssertionError(f"no error but {got}")
peer = ("10.9.1.1", 7300)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(peer)
s.settimeout(0.1)
while True:  # the kernel's end may not be up yet
    try:
        s.send(b"hello")
        if s.recv(10) == b"hello":
            break
    except TimeoutError:
        pass
while select.select([s], [], [], 0.1)[0]:
    s.recv(10)
s.settimeout(None)
# Two threads read from one socket, a third one writes; each number comes back once.
got, lock = [], threading.Lock()
def read():
    while True:
        part = s.recv(100)
        if part == b"end":
            return
        with lock:
            got.append(int(part))
readers = [threading.Thread(target=read) for _ in range(2)]
for r in readers:
    r.start()
for n in range(1000):
    s.send(b"%d" % n)
    while True:
        with lock:
            if len(got) > n - 50:
                break
while len(got) < 1000:
    pass
for r in readers:
    s.send(b"end")
for r in readers:
    r.join()
assert sorted(got) == list(range(1000)), got
# A poll ends when nobody listens at the peer's port.
closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
closed.connect(("10.9.1.1", 7301))
closed.send(b"x")
poll = select.poll()
poll.register(closed, select.POLLIN)
assert poll.poll(60000) == [(closed.fileno(), select.POLLERR)]
fails(errno.ECONNREFUSED, closed.recv, 1)
fails(errno.EMSGSIZE, closed.send, bytes(1473))
# A socket that another thread closes ends the wait.
waits = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
waits.bind(("10.9.0.1", 0))
begun = threading.Event()
def wait():
    begun.set()
    fails(errno.EBADF, waits.recvfrom, 1)
thread = threading.Thread(target=wait)
thread.start()
begun.wait()
while "S" not in open(f"/proc/self/task/{thread.native_id}/stat").read().rsplit(")", 1)[1][:3]:
    pass
os.close(waits.detach())
thread.join()
# The kernel's loopback, from a socket that is bound to every address.
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))
both = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
both.bind(("0.0.0.0", 0))
both.sendto(b"loop", server.getsockname())
assert server.recvfrom(10) == (b"loop", ("127.0.0.1", both.getsockname()[1]))
# A child has the kernel's sockets.
child = os.fork()
if child == 0:
    try:
        s.send(b"x")
    except OSError as error:
        os._exit(0 if error.errno == errno.ENOTSUP else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
s.send(b"bye")
assert s.recv(10) == b"bye"
"""


def threads(env):
    """Threads share a socket; errors, closing and children are as for TCP."""
    command("ip", "link", "set", "lo", "up")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo:
        echo.bind(("0.0.0.0", 7300))

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    data, peer = echo.recvfrom(1000)
                    echo.sendto(data, peer)
                    if data == b"bye":
                        return
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        OnTap(env).client("python3", "-c", THREADS)
        thread.join(WAIT_MAX_S)


# ---- groups ----

GROUP, GROUP6 = "239.1.2.3", "ff15::77"
GROUP_PORT = 5400

MEMBER = f"""
import socket, struct, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(("::", {GROUP_PORT}))
v4 = struct.pack("=4s4s", socket.inet_aton("{GROUP}"), socket.inet_aton(sys.argv[1]))
v6 = struct.pack("=16si", socket.inet_pton(socket.AF_INET6, "{GROUP6}"), 0)
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, v4)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, v6)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
print("joined", flush=True)
while True:
    data, peer = s.recvfrom(1000)
    if data == b"leave":
        s.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, v4)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, v6)
    elif data == b"bye":
        break
    elif data == b"group": # the kernel's members
        s.sendto(b"to all", ("::ffff:{GROUP}", {GROUP_PORT}))
    s.sendto(data, peer)
"""


def bridge(port):
    """A bridge of the kernel's that snoops, asks about groups every second, and forgets those that
    nobody reports."""
    command("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", 1, "mcast_querier", 1,
            "mcast_startup_query_interval", 100, "mcast_query_interval", 100,
            "mcast_query_response_interval", 50, "mcast_membership_interval", 6000,
            "mcast_last_member_interval", 20)
    # Without a link-local address that is settled, the bridge sends no queries of MLD.
    pathlib.Path("/proc/sys/net/ipv6/conf/br0/accept_dad").write_text("0")
    command("ip", "link", "set", port, "master", "br0")
    command("ip", "addr", "flush", "dev", port)
    command("ip", "addr", "add", f"{KERNELS}/16", "dev", "br0")
    command("ip", "addr", "add", f"{KERNELS6}/64", "dev", "br0", "nodad")
    command("ip", "link", "set", "br0", "up")


def snooped():
    """The groups that the bridge has learnt from reports, with the seconds until it forgets
    them."""
    tables = json.loads(command("bridge", "-j", "-s", "-d", "mdb", "show", "dev", "br0") or "[]")
    return {entry["grp"]: float(entry["timer"]) for table in tables
            for entry in table.get("mdb", []) if entry["port"] != "br0"}


class Refreshed:
    """Counts how often the bridge hears of each group again."""

    def __init__(self):
        self.left, self.times = {}, {GROUP: 0, GROUP6: 0}

    def enough(self):
        now = snooped()
        for group in self.times:
            check(group in now, f"{group} is forgotten")
            self.times[group] += now[group] > self.left.get(group, 1000)
        self.left = now
        return min(self.times.values()) >= 3


def groups(env):
    """A program on the stack joins groups: the kernel's bridge learns them from its reports and
    from its answers to queries, forwards datagrams, and forgets them when it leaves."""
    need_programs("bridge")
    command("ip", "link", "set", "lo", "up")
    program = OnTap(env).start("python3", "-c", MEMBER, OURS)
    bridge(program.link)
    eventually(lambda: "joined" in program.output("stdout") or not program.alive(), WAIT_MAX_S,
               program.story)
    eventually(lambda: {GROUP, GROUP6} <= set(snooped()), WAIT_MAX_S, "the bridge learns no groups")
    with contextlib.ExitStack() as stack:
        def opened(family):
            return stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        kernel, kernel6 = opened(socket.AF_INET), opened(socket.AF_INET6)
        member = opened(socket.AF_INET)
        index = socket.if_nametoindex("br0")
        kernel.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(KERNELS))
        kernel6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        member.bind((GROUP, GROUP_PORT))
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                          socket.inet_aton(GROUP) + socket.inet_aton(KERNELS))

        def ask(sock, text, to):
            """Asks the group until the stack's member has answered, from its own address."""
            def answered():
                sock.settimeout(0.5)
                # OSError: the kernel adds its route to IPv6 groups a while after the address.
                with contextlib.suppress(OSError):
                    sock.sendto(text, (to, GROUP_PORT))
                    data, peer = sock.recvfrom(1000)
                    return data == text and peer[0] in (OURS, OURS6)
                return False
            eventually(answered, WAIT_MAX_S, f"no answer from {to}")

        ask(kernel, b"four", GROUP)
        ask(kernel6, b"six", GROUP6)
        ask(kernel, b"group", GROUP)
        member.settimeout(WAIT_MAX_S)
        while member.recvfrom(1000)[0] != b"to all":  # and the kernel's own
            pass
        # A report by the bridge's own host would make the stack withhold its own (RFC 2236 3).
        member.close()
        refreshed = Refreshed()
        eventually(refreshed.enough, WAIT_MAX_S, lambda: f"queries: {refreshed.times}")
        ask(kernel, b"leave", GROUP)
        eventually(lambda: not {GROUP, GROUP6} & set(snooped()), WAIT_MAX_S,
                   "the bridge does not forget the groups")
        kernel.sendto(b"bye", (OURS, GROUP_PORT))
    check(program.wait(WAIT_MAX_S) == 0, program.story())


def cases(env):
    for case in (dig_asks_the_kernel, dnsmasq_serves, iperf3, threads, groups):
        if not env.args or case.__name__ in env.args:
            yield case.__name__.replace("_", " "), functools.partial(case, env)


if __name__ == "__main__":
    main(cases)
