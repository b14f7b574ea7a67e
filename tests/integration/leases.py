"""coronet-echo on a TAP, with addresses that dnsmasq, kea or radvd on the kernel's side give."""

import contextlib
import json
import os
import shutil
import socket
import subprocess

from harness import Skip, WAIT_MAX_S, check, command

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
        done = subprocess.run(
            [self.env.app("coronet-ctl"), "--control", self.socket, "--json", *words],
            check=False, capture_output=True, text=True)
        check(done.returncode == 0, f"coronet-ctl {words}: {done.stderr}")
        return json.loads(done.stdout)

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
