#!/usr/bin/env python3
"""Overload: a program refuses some clients, serves others, and recovers by itself.

Usage: test_overload.py BUILD_DIR [--full]
--full has eight times the readers that never read.
Floods of SYNs, tables and pools that are full, requests that never end, readers
that never read, a process without file descriptors. Bounds on the time are far above a slow
machine's needs: the tests show that others are served at all, and that the program recovers when
the load is gone.
"""

import contextlib
import functools
import random
import re
import resource
import socket
import struct
import time

import proxies
from harness import WAIT_MAX_S, Skip, await_rounds, check, command, eventually, main
from test_faults import HOST, PORT, Tap, check_control_path, check_echo, dial_server, try_echo

SPOOFED = "10.9.2"  # sources of a flood: ARP is answered, but no host exists
PAGE = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def connections(server):
    """Returns the connections in the last line of statistics, half-open ones included."""
    found = re.findall(r" (\d+) connections(?:, (\d+) half open)?", server.output("stderr"))
    return sum(int(n or 0) for n in found[-1]) if found else None


def check_recovers(server, seconds=WAIT_MAX_S):
    """Checks that no connection is left, and that the control path works."""
    eventually(lambda: connections(server) == 0, seconds,
               lambda: f"connections are left: {server.story()}")
    check_control_path(server)


def seconds_spent(function):
    """Returns the seconds that a call took."""
    begin = time.monotonic()
    function()
    return time.monotonic() - begin


def get_page():
    with dial_server() as sock:
        sock.sendall(PAGE)
        answer = proxies.read_to_end(sock)
        check(answer.startswith(b"HTTP/1.1 200 "), f"answered {answer[:60]}")


def medians(function, count=40):
    """Returns the median and the maximum time of count calls, in ms."""
    times = sorted(seconds_spent(function) * 1e3 for _ in range(count))
    return times[len(times) // 2], times[-1]


def print_times(name, before, during):
    print(f"# {name}: median {before[0]:.1f} ms, worst {before[1]:.1f} ms before; "
          f"{during[0]:.1f} ms and {during[1]:.1f} ms under load", flush=True)


# ---- SYNs ----


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def syn(generator, server_mac):
    """Returns an Ethernet frame with a SYN from a host that does not exist."""
    source = socket.inet_aton(f"{SPOOFED}.{generator.randrange(1, 255)}")
    target = socket.inet_aton(HOST)
    tcp = struct.pack("!HHIIBBHHH", generator.randrange(1024, 65536), PORT,
                      generator.getrandbits(32), 0, 0x60, 2, 64240, 0, 0)
    tcp += b"\x02\x04\x05\xb4"
    pseudo = source + target + struct.pack("!HH", 6, len(tcp))
    tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0, source, target)
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return server_mac + b"\x02\0\0\0\0\x55" + b"\x08\0" + ip + tcp


def mac_of_server():
    """Returns the server's MAC address, as the kernel has learnt it."""
    words = command("ip", "neigh", "show", HOST).split()
    return bytes.fromhex(words[words.index("lladdr") + 1].replace(":", ""))


@contextlib.contextmanager
def spoofed_behind(link):
    """The kernel answers ARP for the sources, and drops packets for them."""
    command("ip", "link", "add", "hole", "type", "veth", "peer", "name", "hole-end")
    for end in ("hole", "hole-end"):
        command("ip", "link", "set", end, "arp", "off", "up")  # nothing waits for a neighbour
    command("ip", "route", "add", f"{SPOOFED}.0/24", "dev", "hole")
    for path in (f"/proc/sys/net/ipv4/conf/{link}/proxy_arp",
                 f"/proc/sys/net/ipv4/conf/{link}/forwarding"):
        with open(path, "w", encoding="ascii") as file:
            file.write("1")
    try:
        yield
    finally:
        command("ip", "link", "del", "hole")


def syn_flood(env):
    """Clients connect while ten times the backlog is half open."""
    count, generator = (10000 if env.sanitized else 40000), random.Random(1)
    tap = Tap(env, "coronet-echo", "ol0", "--port", PORT)
    with tap.running() as server, spoofed_behind(tap.link), \
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        check(try_echo(seconds=WAIT_MAX_S), "no connection is served before the flood")
        raw.bind((tap.link, 0))
        mac = mac_of_server()
        frames = [syn(generator, mac) for _ in range(count)]
        with dial_server() as old:
            honest, begin = 0, time.monotonic()
            for i, frame in enumerate(frames):
                with contextlib.suppress(BlockingIOError, OSError):
                    raw.send(frame)
                if i % (count // 20) == 0:
                    check_echo(old)
                    with dial_server() as sock:
                        check_echo(sock)
                    honest += 1
            check(honest >= 20, f"{honest} clients were served during the flood")
            check_echo(old)
        print(f"# {count} SYNs and {honest} clients in {time.monotonic() - begin:.1f} s", flush=True)
        eventually(lambda: (connections(server) or 0) > 100, WAIT_MAX_S,
                   lambda: f"no SYN was taken: {server.story()}")
        check_recovers(server, 150)


# ---- tables, pools, memory ----


def connection_table_full(env):
    """Beyond --max-conns only existing clients are served, and later new ones again."""
    most = 100
    tap = Tap(env, "coronet-echo", "ol1", "--port", PORT, "--max-conns", str(most))
    with tap.running() as server:
        for _ in range(2):
            with contextlib.ExitStack() as stack:
                socks = [stack.enter_context(dial_server()) for _ in range(most)]
                for sock in socks:
                    check_echo(sock)
                more = [stack.enter_context(socket.socket()) for _ in range(5)]
                for sock in more:
                    sock.setblocking(False)
                    sock.connect_ex((HOST, PORT))
                for sock in socks:  # behind those SYNs
                    check_echo(sock)
                check(not any(map(is_connected, more)), "one more was served")
                for sock in more:
                    sock.close()
                check_control_path(server, ends=False)
                for sock in socks[:10]:
                    sock.close()
                eventually(try_echo, WAIT_MAX_S,
                           "no new connection in place of the closed ones")
            eventually(lambda: connections(server) == 0, WAIT_MAX_S, server.story)
        check_recovers(server)


def is_connected(sock):
    with contextlib.suppress(OSError):
        return bool(sock.getpeername())
    return False


def open_many(count, first, receive_buffer=0):
    """Opens count connections that send their first bytes; fewer if more are refused."""
    socks = []
    for _ in range(count):
        sock = socket.socket()
        sock.settimeout(10)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            sock.connect((HOST, PORT))
            sock.send(first)
        except OSError:
            sock.close()
            break
        socks.append(sock)
    return socks


def close_all(socks):
    """Closes a few at a time: a TAP's queue drops surplus frames, and a lost reset is not
    resent."""
    for number, sock in enumerate(socks):
        sock.close()
        if number % 100 == 99:
            await_answer()


def await_answer():
    """Waits until the server has handled queued frames: a closed port answers."""
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection((HOST, PORT + 1), WAIT_MAX_S).close()


def one_unread_byte_each(env):
    """More connections than frames each have sent one byte of a request."""
    count = 4000 if env.sanitized else 13000
    tap = Tap(env, "coronet-httpd", "ol2", "--port", PORT, "--header-timeout", "120",
              "--idle-timeout", "120", "--max-half-open", "20000")
    with tap.running() as server:
        before = medians(get_page)
        socks = open_many(count, b"G")
        check(len(socks) > count // 4, f"only {len(socks)} connections were taken")
        during = medians(get_page)
        check_control_path(server, ends=False)
        print_times(f"{len(socks)} half requests", before, during)
        close_all(socks)
        check_recovers(server)


def unread_while_dialling(env):
    """More sessions than frames hold a byte each, while their backend never answers."""
    count = 4000 if env.sanitized else 13000
    tap = Tap(env, "coronet-proxy", "ol5", "--port", PORT, "--to", f"{SPOOFED}.9:80",
              "--connect-timeout", "5", "--health-interval", "0")
    with tap.running() as server, spoofed_behind(tap.link):
        socks = open_many(count, b"G")
        check(len(socks) > count // 4, f"only {len(socks)} connections were taken")
        check_control_path(server, ends=False)
        free = [int(n) for n in re.findall(r"(\d+) of \d+ frames free", server.output("stderr"))]
        print(f"# {len(socks)} sessions, at least {min(free)} frames were free", flush=True)
        for sock in socks:  # the proxy gives up all of them in time
            sock.settimeout(WAIT_MAX_S)
            with contextlib.suppress(ConnectionResetError):
                check(sock.recv(1) == b"", "an answer from nobody")
        close_all(socks)
        check_recovers(server)


def requests_that_never_end(env):
    """Requests that never end have bounded time; others are served meanwhile."""
    tap = Tap(env, "coronet-httpd", "ol3", "--port", PORT, "--header-timeout", "3")
    with tap.running() as server:
        socks = open_many(1000, b"GET / HTTP/1.1\r\nHost:")
        check(len(socks) > 100, f"only {len(socks)} connections were taken")
        for _ in range(20):
            get_page()
        for sock in socks:
            sock.settimeout(WAIT_MAX_S)
            with contextlib.suppress(ConnectionResetError):
                answer = proxies.read_to_end(sock)
                check(not answer or b" 408 " in answer, f"answered {answer[:60]}")
        close_all(socks)
        check_recovers(server)


def resident_mib(server):
    """Returns the resident memory in MiB, hugepages included."""
    with open(f"/proc/{server.process.pid}/smaps_rollup", encoding="ascii") as file:
        text = file.read()
    return sum(int(kib) for kib in re.findall(
        r"^(?:Rss|Shared_Hugetlb|Private_Hugetlb):\s+(\d+) kB", text, re.MULTILINE)) / 1024


def readers_that_never_read(env):
    """With readers that never read the memory budget holds, others are served, and all memory is
    returned."""
    budget = 192
    if "--memory" not in command(env.app("coronet-httpd"), "--help"):
        raise Skip("no --memory")
    count = 8000 if "--full" in env.args else 1000
    root = env.scratch_for({}) / "big"
    root.write_bytes(bytes(2 << 20))
    tap = Tap(env, "coronet-httpd", "ol4", "--port", PORT, "--root", root, "--send-timeout",
              "600", "--memory", f"{budget}M")
    with tap.running() as server:
        head = b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

        def ask():
            with dial_server() as sock:
                sock.sendall(head)
                check(proxies.read_to_end(sock).startswith(b"HTTP/1.1 200 "), "no answer")

        before, at_first = medians(ask), resident_mib(server)
        socks = open_many(count, PAGE, 2048)
        check(len(socks) > count // 4, f"only {len(socks)} connections were taken")
        try:
            during, most = medians(ask), resident_mib(server)
        except TimeoutError:
            check(False, f"nobody else is served beside {len(socks)} readers that do not read, "
                         f"at {resident_mib(server):.0f} MiB: {server.story()}")
        check_control_path(server, ends=False)
        print_times(f"{len(socks)} readers, {at_first:.0f} -> {most:.0f} MiB", before, during)
        if not env.sanitized:  # a sanitizer keeps freed memory
            check(most < budget * 1.1, f"{most:.0f} MiB of {budget}: {server.story()}")
        close_all(socks)
        check_recovers(server)


# ---- file descriptors ----


def out_of_files(env):
    """epoll-proxy out of descriptors: clients wait, backends stay up, and it recovers later."""
    kind = proxies.Epoll()
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (64, 64))
    with proxies.Peer(kind, proxies.echo_bytes) as peer, env.running(
            [env.app("epoll-proxy"), "--port", proxies.PORT, "--to", peer.at,
             "--health-interval", "0.5", "--fall", "1", "--rise", "1", "--stats", "0.5"],
            preexec_fn=limit) as proxy:
        proxies.check_echo(kind)
        socks = [proxies.dial_proxy(kind) for _ in range(80)]
        await_rounds(proxy, 2)  # health checks without a descriptor
        check(proxy.alive(), proxy.story())
        for sock in socks:
            proxies.reset_socket(sock)
        eventually(lambda: echoes(kind), WAIT_MAX_S,
                   lambda: f"nobody is served any more: {proxy.story()}")
        check(" down" not in proxy.output("stderr"),
              f"a backend is called down: {proxy.story()}")
        proxy.terminate()


def echoes(kind):
    try:
        with proxies.dial_proxy(kind) as sock:
            sock.settimeout(2)
            sock.sendall(b"x")
            return sock.recv(1) == b"x"
    except OSError:
        return False


def cases(env):
    for function in (syn_flood, connection_table_full, one_unread_byte_each,
                     unread_while_dialling, requests_that_never_end, readers_that_never_read, out_of_files):
        yield function.__name__.replace("_", " "), functools.partial(function, env)


if __name__ == "__main__":
    main(cases)
