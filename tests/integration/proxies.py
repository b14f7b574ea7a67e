"""The two proxies under test, and clients and backends for them.

Tap is coronet-proxy at the other end of a TAP link to the kernel, whose programs are its clients
and backends. Epoll is epoll-proxy on loopback: a case that also fails there is wrong about TCP.
"""

import contextlib
import fcntl
import functools
import pathlib
import resource
import socket
import struct
import sys
import termios
import threading

from harness import WAIT_MAX_S, Failure, check, command

PORT = 8080
MIB = 1 << 20
GIB = 1 << 30
V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


class Tap:
    """coronet-proxy at the other end of a TAP link."""
    app = "coronet-proxy"
    host, host6 = "10.9.0.1", "fd00:9::1"  # the proxy's addresses
    near, near6 = "10.9.1.1", "fd00:9::2"  # addresses of clients and backends
    other = "10.9.1.77"  # another address of a client
    nobody = "10.9.3.3"  # an unused address

    def __init__(self):
        self.count = 0

    @contextlib.contextmanager
    def serve(self, env, *options, port=PORT):
        self.count += 1
        link = f"cp{self.count}"
        ports = ["--port", port] if port else []
        with env.running([
                env.app(self.app), "--link", f"tap:{link}", "--addr", "10.9.0.1/16",
                "--addr", "fd00:9::1/64", *ports, "--poll", "adaptive", *options]) as proxy:
            self.configure(link)
            yield proxy

    @staticmethod
    def has_taken_all(sock):
        """Whether the proxy has read the client's bytes: it acknowledges them in the same round,
        except the first segment since the last ACK."""
        left = fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(left, sys.byteorder) <= 1

    def configure(self, link):
        """Configures the kernel's side of the link; other links have gone."""
        for address in (self.near, self.other):
            command("ip", "addr", "add", f"{address}/16", "dev", link)
        command("ip", "addr", "add", f"{self.near6}/64", "dev", link, "nodad")
        command("ip", "link", "set", link, "up")


class Epoll:
    """epoll-proxy on loopback."""
    app = "epoll-proxy"
    host, host6 = "127.0.0.1", "::1"
    near, near6 = "127.0.0.1", "::1"
    other = "127.0.0.77"
    nobody = "192.0.2.1"

    @contextlib.contextmanager
    def serve(self, env, *options, port=PORT, limit=None):
        """limit: (resource, value) for setrlimit."""
        ports = ["--port", port] if port else []
        setup = functools.partial(resource.setrlimit, limit[0], (limit[1],) * 2) if limit else None
        with env.running([env.app(self.app), *ports, *options], preexec_fn=setup) as proxy:
            yield proxy

    @staticmethod
    def has_taken_all(sock):
        """Whether the proxy has read the client's bytes: the kernel holds none of them."""
        ends = [address_in_proc(end) for end in (sock.getpeername(), sock.getsockname())]
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines():
            words = line.split()
            if words[1:3] == ends:
                return words[4].endswith(":00000000")
        return True  # it has gone


def address_in_proc(address):
    """Returns an IPv4 address and port in the form of /proc/net/tcp."""
    number, = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


# ---- small peers of our own ----


class Peer:
    """A backend in the test: `serve` handles each connection in a thread."""

    def __init__(self, kind, serve, host=None, port=0, receive_buffer=0):
        self.serve = serve
        self.seen = 0
        self.errors = []
        host = host or kind.near
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        # The address comes up together with the link: bound even before that.
        self.listener.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
        self.listener.bind((host, port))
        self.listener.listen(256)
        self.port = self.listener.getsockname()[1]
        at = f"[{host}]" if ":" in host else host
        self.at = f"{at}:{self.port}"
        self.acceptor = threading.Thread(target=self.run, daemon=True)
        self.acceptor.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                threading.Thread(target=self.serve_one, args=[sock], daemon=True).start()

    def serve_one(self, sock):
        self.seen += 1
        sock.settimeout(WAIT_MAX_S)
        with sock:
            try:
                self.serve(sock)
            except OSError as error:
                self.errors.append(error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.acceptor.join()  # it would accept from the socket that gets the number next
        self.listener.close()


def echo_bytes(sock):
    while part := sock.recv(65536):
        sock.sendall(part)


def send_name(text):
    """A backend that sends its name and keeps the connection."""
    def serve(sock):
        sock.sendall(text)
        while sock.recv(65536):
            pass
    return serve


def dial_proxy(kind, port=PORT, host=None, source=None, timeout=WAIT_MAX_S, **buffers):
    host = host or kind.host
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    for option, value in buffers.items():
        sock.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
    sock.settimeout(timeout)
    if source:
        sock.bind((source, 0))
    sock.connect((host, port))
    return sock


def read_to_end(sock):
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def read_exactly(sock, size):
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        check(part, f"the connection ended {size - len(data)} bytes early")
        data += part
    return bytes(data)


def reset_socket(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def check_broken(sock, seconds=WAIT_MAX_S):
    """Checks that the proxy resets the connection, without a byte before that."""
    sock.settimeout(seconds)
    try:
        data = sock.recv(1)
    except ConnectionResetError:
        return
    except TimeoutError:
        raise Failure(f"the connection lives after {seconds} s") from None
    raise Failure(f"expected a reset, received {data!r}")


def check_echo(kind, **where):
    with dial_proxy(kind, **where) as sock:
        sock.sendall(b"are you there?")
        check(read_exactly(sock, 14) == b"are you there?", "the echo differs")


def proxy_url(kind, path, port=PORT):
    return f"http://{kind.host}:{port}/{path}"
