"""Cases of coronet-proxy: TLS server names, PROXY headers, and backends given by name."""

import contextlib
import re
import socket
import ssl
import struct
import threading

from harness import WAIT_MAX_S, await_rounds, check, command, eventually
from proxies import (PORT, V2_SIGNATURE, Peer, check_broken, dial_proxy, proxy_url, read_to_end,
                     send_name)
from steering import await_line, backend_name
from web import listening, need_programs, run_curl


def make_cert(env, host):
    key, cert = env.scratch / f"{host}.key", env.scratch / f"{host}.pem"
    command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-keyout", key, "-out", cert, "-subj", f"/CN={host}", "-days", "2")
    return key, cert


def certificate_byte_by_byte(kind, asked):
    """Returns the server's certificate for a client that sends its hello byte by byte."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(come, go, server_hostname=asked)
    with dial_proxy(kind) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                return tls.getpeercert(binary_form=True)
            except ssl.SSLWantReadError:
                for byte in go.read():
                    sock.sendall(bytes([byte]))
                come.write(sock.recv(65536))


def server_names(env, kind):
    """The proxy picks openssl's server by the name that openssl's client or curl asks for."""
    need_programs("openssl", "curl")
    hosts = {"a.example": 9101, "b.example": 9102, "default.example": 9103}
    options = []
    with contextlib.ExitStack() as stack:
        for host, port in hosts.items():
            sni = {"a.example": ",sni=a.example", "b.example": ",sni=b.example|*.b.example"}
            options += ["--to", f"{host}={kind.near}:{port}{sni.get(host, '')}"]
        proxy = stack.enter_context(kind.serve(env, *options, "--hello-timeout", "2",
                                               "--health-interval", "0"))
        for host, port in hosts.items():
            key, cert = make_cert(env, host)
            stack.enter_context(env.running(
                ["openssl", "s_server", "-accept", f"{kind.near}:{port}", "-key", key,
                 "-cert", cert, "-www"], ready="ACCEPT.*"))
        for asked, answers in [("a.example", "a.example"), ("b.example", "b.example"),
                               ("x.y.b.example", "b.example"), ("c.example", "default.example"),
                               (None, "default.example")]:
            client = ["openssl", "s_client", "-connect", f"{kind.host}:{PORT}"]
            text = command(*client, *(["-servername", asked] if asked else ["-noservername"]))
            check(re.search(rf"subject=CN ?= ?{answers}", text),
                  f"asked for {asked}, got no {answers}: {text[:300]}")
        page = run_curl("-k", "--resolve", f"b.example:{PORT}:{kind.host}",
                    f"https://b.example:{PORT}/")
        check("s_server" in page, f"no page: {page[:200]}")
        check(b"a.example" in certificate_byte_by_byte(kind, "a.example"),
              "another server for a hello in single bytes")
        with dial_proxy(kind) as sock:
            sock.sendall(b"SSH-2.0-nobody\r\n")  # no TLS: the default
            sock.shutdown(socket.SHUT_WR)
            read_to_end(sock)
        with dial_proxy(kind) as sock:
            sock.sendall(b"\x16\x03\x01")
            check_broken(sock)
        check(proxy.alive(), proxy.story())


def unique_id_and_tlvs(env, kind):
    """TLVs of the received header are copied to the sent one, together with a unique ID."""
    got = []

    def keep(sock):
        got.append(sock.recv(4096))

    def tlv(kind_of, value):
        return struct.pack(">BH", kind_of, len(value)) + value

    def send(tlvs):
        block = socket.inet_aton("192.0.2.1") + socket.inet_aton("192.0.2.2") + \
            struct.pack(">HH", 1000, 2000) + tlvs
        with dial_proxy(kind) as sock:
            sock.sendall(V2_SIGNATURE + b"\x21\x11" + struct.pack(">H", len(block)) + block +
                         b"hey")
            read_to_end(sock)
        return got[-1]

    with Peer(kind, keep) as peer, kind.serve(
            env, "--to", peer.at, "--accept-proxy", "--send-proxy", "v2", "--unique-id",
            "--health-interval", "0"):
        authority = tlv(2, b"www.example.com")
        header = send(authority + tlv(4, b"\0" * 5))
        check(header.endswith(b"hey"), f"{header}")
        length = struct.unpack(">H", header[14:16])[0]
        check(len(header) == 16 + length + 3, f"a wrong length: {header}")
        rest = header[28:-3]
        check(rest.startswith(authority), f"{rest}")
        rest = rest[len(authority):]
        check(rest[0] == 5 and struct.unpack(">H", rest[1:3])[0] == len(rest) - 3, f"{rest}")
        check(re.fullmatch(rb"[0-9a-f]{16}-0-1", rest[3:]), f"{rest}")
        own = send(tlv(5, b"theirs"))
        check(own[28:-3] == tlv(5, b"theirs"), "a unique ID was replaced or doubled")


HAPROXY = """
defaults
	mode http
	timeout connect 5s
	timeout client 5s
	timeout server 5s
frontend all
	bind {address}:{port} accept-proxy
	http-request return status 200 content-type text/plain lf-string "{fetches}"
"""


def headers_that_haproxy_reads(env, kind):
    """haproxy finds the client, the authority and the unique ID in our header."""
    need_programs("haproxy", "curl")
    config = env.scratch / "haproxy.cfg"
    config.write_text(HAPROXY.format(
        address=kind.near, port=9201,
        fetches="%[src] %[src_port] %[fc_pp_authority] %[fc_pp_unique_id]"))
    with kind.serve(env, "--to", f"{kind.near}:9201", "--send-proxy", "v2", "--unique-id",
                    "--accept-proxy", "--proxy-from", kind.near, "--health-interval", "0"):
        env.start(["haproxy", "-db", "-f", config])
        eventually(lambda: listening(kind.near, 9201), WAIT_MAX_S, "haproxy does not listen")
        block = socket.inet_aton("192.0.2.1") + socket.inet_aton("192.0.2.2") + struct.pack(
            ">HHBH", 1000, 2000, 2, 11) + b"www.example"
        with dial_proxy(kind) as sock:
            sock.sendall(V2_SIGNATURE + b"\x21\x11" + struct.pack(">H", len(block)) + block +
                         b"GET / HTTP/1.0\r\n\r\n")
            answer = read_to_end(sock).decode()
        check(re.search(r"192\.0\.2\.1 1000 www\.example [0-9a-f]{16}-0-1$", answer), answer)
        page = run_curl("--interface", kind.other, proxy_url(kind, ""))
        check(re.match(rf"{kind.other} \d+ - [0-9a-f]{{16}}-0-2$", page) or
              re.match(rf"{kind.other} \d+  [0-9a-f]{{16}}-0-2$", page), page)


def resolves_names(env, kind):
    """A backend given by name is used once the name resolves, and followed to a new address."""
    hosts = env.scratch / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    command("mount", "--bind", hosts, "/etc/hosts")
    try:
        with Peer(kind, send_name(b"one")) as one, \
                Peer(kind, send_name(b"two"), host=kind.other, port=one.port), kind.serve(
                    env, "--to", f"moves=moves.test:{one.port}", "--resolve-interval", "0.2",
                    "--health-interval", "0") as proxy:
            with contextlib.suppress(ConnectionResetError), dial_proxy(kind) as sock:
                check_broken(sock)
            hosts.write_text(f"{kind.near} moves.test\n")
            await_line(proxy, f"backend moves is at {kind.near}:{one.port}")
            check(backend_name(kind) == b"one", "not the address of the name")
            hosts.write_text(f"{kind.other} moves.test\n")
            await_line(proxy, f"backend moves is at {kind.other}:{one.port}")
            eventually(lambda: backend_name(kind) == b"two", WAIT_MAX_S,
                       "it does not follow the name")
            hosts.write_text("127.0.0.1 localhost\n")
            await_line(proxy, "the old one is kept")
            check(backend_name(kind) == b"two", "a name that is gone takes the backend along")
    finally:
        command("umount", "/etc/hosts")


class NameServer:
    """A DNS server for one name, with an address and a TTL that may change. It does not answer
    queries for names that begin with "dead", or if it is silent."""

    def __init__(self, address, ttl, at="127.0.0.1"):
        self.address, self.ttl, self.asked, self.silent = address, ttl, 0, False
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((at, 53))
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            query, peer = self.sock.recvfrom(512)
            if not query:
                break
            if query[13:17] == b"dead":
                continue
            self.asked += 1
            if self.silent:
                continue
            end = query.index(b"\0", 12) + 5
            wants_ip4 = query[end - 4:end - 2] == b"\0\1"
            answer = struct.pack(">HHHIH", 0xc00c, 1, 1, self.ttl, 4) + \
                socket.inet_aton(self.address)
            self.sock.sendto(query[:2] + b"\x81\x80\0\1" + struct.pack(">H", wants_ip4) +
                             b"\0\0\0\0" + query[12:end] + (answer if wants_ip4 else b""), peer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.sendto(b"", self.sock.getsockname())  # a socket in use keeps its port
        self.thread.join()
        self.sock.close()


def obeys_ttls(env, kind):
    """A name is resolved again when its TTL has passed, although --resolve-interval is long."""
    resolv = env.scratch / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    command("mount", "--bind", resolv, "/etc/resolv.conf")
    try:
        with Peer(kind, send_name(b"one")) as one, NameServer(kind.near, 1) as server, \
                Peer(kind, send_name(b"two"), host=kind.other, port=one.port), kind.serve(
                    env, "--to", f"moves=moves.example.:{one.port}", "--resolve-interval", "3600",
                    "--health-interval", "0", "--stats", "0.2") as proxy:
            await_line(proxy, f"backend moves is at {kind.near}:{one.port}")
            check(backend_name(kind) == b"one", "not the address of the name")
            server.ttl = 3000
            server.address = kind.other
            await_line(proxy, f"backend moves is at {kind.other}:{one.port}")
            check(backend_name(kind) == b"two", "it does not follow the name")
            asked = server.asked
            await_rounds(proxy, 8)  # longer than the TTL before
            check(server.asked <= asked + 2,
                  f"asked {server.asked - asked} times within a long TTL")
    finally:
        command("umount", "/etc/resolv.conf")


def resolves_by_the_stack(env, kind):
    """With --resolver the stack asks. The address is followed, and kept when the server is silent
    and in spite of a name without an answer."""
    with Peer(kind, send_name(b"one")) as one, \
            Peer(kind, send_name(b"two"), host=kind.other, port=one.port), kind.serve(
                env, "--to", "dead=dead.example.:80", "--to", f"moves=moves.example.:{one.port}",
                "--resolver", kind.near, "--resolve-interval", "3600", "--health-interval",
                "0") as proxy, NameServer(kind.near, 1, at=kind.near) as server:
        await_line(proxy, f"backend moves is at {kind.near}:{one.port}")
        eventually(lambda: backend_name(kind) == b"one", WAIT_MAX_S, "not the name's address")
        server.address = kind.other
        await_line(proxy, f"backend moves is at {kind.other}:{one.port}")
        eventually(lambda: backend_name(kind) == b"two", WAIT_MAX_S, "it does not follow the name")
        server.silent = True
        await_line(proxy, "backend moves: 'moves.example.': no name server has answered; "
                          "the old one is kept")
        check(backend_name(kind) == b"two", "a silent server takes the backend along")
        await_line(proxy, "backend dead: 'dead.example.': no name server has answered")


def dead_names_hold_up_no_other(env, kind):
    """A name that moves is followed, behind three names without an answer, for each of which the C
    library waits longer than this test."""
    resolv = env.scratch / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
    command("mount", "--bind", resolv, "/etc/resolv.conf")
    dead = [word for i in range(3) for word in ("--to", f"d{i}=dead{i}.example.:80")]
    try:
        with Peer(kind, send_name(b"one")) as one, NameServer(kind.near, 1) as server, \
                Peer(kind, send_name(b"two"), host=kind.other, port=one.port):
            with kind.serve(env, *dead, "--to", f"moves=moves.example.:{one.port}",
                            "--resolve-interval", "3600", "--health-interval", "0") as proxy:
                await_line(proxy, f"backend moves is at {kind.near}:{one.port}")
                server.address = kind.other
                await_line(proxy, f"backend moves is at {kind.other}:{one.port}")
                check(backend_name(kind) == b"two", "it does not follow the name")
                for i in range(3):
                    await_line(proxy, f"backend d{i}: 'dead{i}.example.': no answer within 5 s")
    finally:
        command("umount", "/etc/resolv.conf")
