"""Runs coronet-httpd on a TAP link, and reads its answers."""

import contextlib
import socket

from harness import WAIT_MAX_S, check, command

HOST, PORT = "10.9.0.1", 80
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


@contextlib.contextmanager
def serve_files(env, *options):
    number = serve_files.count = getattr(serve_files, "count", 0) + 1
    link = f"ch{number}"
    with env.running([env.app("coronet-httpd"), "--link", f"tap:{link}", "--addr", f"{HOST}/16",
                      "--port", PORT, "--poll", "adaptive", *options]) as server:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", link)
        command("ip", "link", "set", link, "up")
        yield server


def dial_server(buffers=0):
    sock = socket.socket()
    if buffers:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
    sock.settimeout(WAIT_MAX_S)
    sock.connect((HOST, PORT))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Answers:
    """Reads one answer after the other from a socket."""

    def __init__(self, sock):
        self.sock, self.data = sock, b""

    def receive(self):
        part = self.sock.recv(65536)
        self.data += part
        return part

    def exactly(self, size):
        """Reads size bytes. Collects parts in a list, since a body may be large."""
        parts, left = [self.data[:size]], size - len(self.data[:size])
        self.data = self.data[size:]
        while left:
            part = self.sock.recv(min(left, 65536))
            check(part, "an answer's body ended early")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def next(self, body=True):
        """Returns (status, fields, body), or None at the end of the stream."""
        while b"\r\n\r\n" not in self.data:
            if not self.receive():
                check(not self.data, f"half an answer: {self.data!r}")
                return None
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        check(lines[0].startswith("HTTP/1.1 "), f"a status line of {lines[0]!r}")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        length = int(fields["content-length"]) if body else 0
        return int(lines[0].split()[1]), fields, self.exactly(length)


def send_request(address, port, path, *fields, method="GET"):
    """Sends one request on a connection of its own; returns (status, fields, body)."""
    with socket.create_connection((address, port), WAIT_MAX_S) as sock:
        sock.sendall("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", "Connection: close",
                                  *fields, "", ""]).encode())
        data = b""
        while part := sock.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    names = [line.split(":")[0].lower() for line in lines[1:]]
    check(len(set(names)) == len(names) or names.count("x-backend") > 1,  # that one is nginx's
          f"a field comes twice: {head!r}")
    found = dict(line.split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), {k.lower(): v for k, v in found.items()}, body


def whole_answer(sock):
    sock.sendall(GET + b"\r\n")
    return Answers(sock).next()[2]


def is_served(sock):
    """Whether the connection is served."""
    sock.sendall(GET + b"\r\n")
    return Answers(sock).next()[0] == 200
