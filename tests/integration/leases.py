"""coronet-echo on a TAP, with addresses that dnsmasq, kea or radvd on the kernel's side give."""

import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import threading
import time

from harness import POLL_SECONDS, WAIT_MAX_S, Failure, Skip, check, command, eventually

PORT = 7777
LEASED = "10.9.0.40"


@contextlib.contextmanager
def server(env, tap, addresses, argv, **environment):
    """Runs a server on the TAP's side of the kernel, which has the addresses."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if not shutil.which(argv[0], path=path):
        raise Skip(f"{argv[0]} is not installed")
    for address in addresses:
        command("ip", "addr", "replace", address, "dev", tap, *["nodad"] * (":" in address))
    command("ip", "link", "set", tap, "up")
    process = env.start(argv, env={**os.environ, "PATH": path, **environment})
    try:
        yield process
    finally:
        process.kill()


def dnsmasq(env, tap, addresses, *options):
    """A server that leases one address."""
    return server(
        env, tap, addresses,
        ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--port=0",
         f"--interface={tap}", "--bind-interfaces", "--no-ping", "--log-dhcp",
         f"--dhcp-range={LEASED},{LEASED},255.255.0.0,120",
         f"--dhcp-leasefile={env.scratch / (tap + '.leases')}", "--user=root", *options])


def kea(env, tap, address, seconds, **subnet):
    """ISC's server: it leases the same address, for so few seconds as dnsmasq does not."""
    config = env.scratch / f"{tap}.kea"
    config.write_text(json.dumps({"Dhcp4": {
        "interfaces-config": {"interfaces": [tap]},
        "lease-database": {"type": "memfile", "persist": False},
        "valid-lifetime": seconds,
        "option-def": [{"name": "routes", "code": 121, "type": "binary"}],
        "subnet4": [{"subnet": "10.9.0.0/16", "interface": tap,
                     "pools": [{"pool": f"{LEASED}-{LEASED}"}], **subnet}],
        "loggers": [{"name": "kea-dhcp4", "severity": "INFO",
                     "output_options": [{"output": "stderr"}]}]}}))
    return server(env, tap, [address], ["kea-dhcp4", "-c", config],
                  KEA_PIDFILE_DIR=str(env.scratch), KEA_LOCKFILE_DIR="none")


def ask_ctl(env, control, *words):
    """Returns the answer of coronet-ctl."""
    done = subprocess.run([env.app("coronet-ctl"), "--control", control, "--json", *words],
                          check=False, capture_output=True, text=True)
    check(done.returncode == 0, f"coronet-ctl {words}: {done.stderr}")
    return json.loads(done.stdout)


class LeasedEcho:
    """coronet-echo on a TAP, with no other address than --addr KIND finds."""

    def __init__(self, env, kind, number, *more):
        self.env = env
        self.tap = f"{kind}{number}"
        self.socket = env.scratch / f"control{number}"
        self.log = env.scratch / f"log{number}"
        self.argv = [env.app("coronet-echo"), "--link", f"tap:{self.tap}", "--addr", kind,
                     "--port", PORT, "--poll", "adaptive", "--control", self.socket,
                     "--log-level", "coronet.link=info", "--log-to", self.log, *more]

    def ctl(self, *words):
        return ask_ctl(self.env, self.socket, *words)

    def addresses(self, state=None):
        return {row["address"]: row for row in self.ctl("addr") if state in (None, row["state"])}

    def routes(self):
        return {row["to"]: row.get("via") for row in self.ctl("routes")}

    def check_kept(self, address, reason):
        """The operator cannot remove the address, for a reason."""
        done = subprocess.run(
            [self.env.app("coronet-ctl"), "--control", self.socket, "addr", "del", address],
            check=False, capture_output=True, text=True)
        check(done.returncode != 0 and reason in done.stderr, done.stderr)
        check(address in self.addresses(), self.addresses())

    def check_shards(self, address):
        """Each of two shards has the address: the ports of connections choose one of them."""
        for i in range(16):
            check_echo(address, f"connection {i}".encode())
        taken = [row["accepted"] for row in self.ctl("shards")]
        check(len(taken) == 2 and all(taken), f"connections of the shards: {taken}")


class Crowd(threading.Thread):
    """Connections that send one message after another, and wait for the echo of each."""

    def __init__(self, address, count):
        super().__init__(daemon=True)
        self.socks = [socket.create_connection((address, PORT), timeout=WAIT_MAX_S)
                      for _ in range(count)]
        self.echoes = [0] * count
        self.got = [b""] * count
        self.to_end = 0  # as many of the first connections shall be closed for sending
        self.ending = [False] * count  # it has been closed for sending
        self.ended = [False] * count
        self.stop = False
        self.error = None
        self.start()

    @staticmethod
    def message(i, n):
        return f"{i:08}{n:08}".encode() * 8

    def run(self):
        try:
            with selectors.DefaultSelector() as selector:
                for i, sock in enumerate(self.socks):
                    sock.setblocking(False)
                    selector.register(sock, selectors.EVENT_READ, i)
                    sock.sendall(self.message(i, 0))
                while not self.stop:
                    for key, _ in selector.select(POLL_SECONDS):
                        self.read(key.fileobj, key.data)
                        if self.ended[key.data]:
                            selector.unregister(key.fileobj)
                    for i in range(self.to_end):
                        if not self.ending[i]:
                            self.socks[i].shutdown(socket.SHUT_WR)
                            self.ending[i] = True
                    time.sleep(0.1)  # leaves the CPU to the program and the servers
        except (OSError, Failure) as error:
            self.error = error

    def read(self, sock, i):
        data = sock.recv(1000)
        if not data:
            check(self.ending[i], f"connection {i} ended after {self.echoes[i]} echoes")
            self.ended[i] = True
            return
        self.got[i] += data
        wanted = self.message(i, self.echoes[i])
        if len(self.got[i]) < len(wanted):
            return
        check(self.got[i] == wanted, f"{self.got[i]} on connection {i} in place of {wanted}")
        self.got[i] = b""
        self.echoes[i] += 1
        if not self.ending[i]:
            sock.sendall(self.message(i, self.echoes[i]))

    def await_all(self, condition, what):
        """Waits until condition(i) holds for each connection."""
        def missing():
            return [i for i in range(len(self.socks)) if not condition(i)]
        eventually(lambda: self.error or not missing(), WAIT_MAX_S,
                   lambda: f"{what}: {len(missing())} connections are missing")
        check(not self.error, f"{what}: {self.error!r}")

    def more(self, what):
        """Waits until each connection that goes on has three more echoes."""
        before = list(self.echoes)
        self.await_all(lambda i: self.ending[i] or self.echoes[i] >= before[i] + 3, what)

    def end_sending(self, count):
        """Closes the first connections for sending; each still gets the echo on the way."""
        self.to_end = count
        self.await_all(lambda i: self.ending[i] or i >= count, "closed for sending")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop = True
        self.join()
        for sock in self.socks:
            sock.close()


def receive(sock, n):
    got = b""
    while len(got) < n:
        part = sock.recv(100)
        check(part, "the connection ended")
        got += part
    return got


def check_echo_on(sock, text):
    sock.sendall(text)
    got = receive(sock, len(text))
    check(got == text, f"sent {text}, received {got}")


def check_echo(address, text):
    with socket.create_connection((address, PORT), timeout=WAIT_MAX_S) as sock:
        check_echo_on(sock, text)
