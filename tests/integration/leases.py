"""coronet-echo on a TAP, with addresses that dnsmasq on the kernel's side gives."""

import contextlib
import json
import shutil
import socket
import subprocess

from harness import Skip, WAIT_MAX_S, check, command

PORT = 7777
LEASED = "10.9.0.40"


@contextlib.contextmanager
def dnsmasq(env, tap, addresses, *options):
    """A server on the TAP's side of the kernel, which has the addresses and leases one."""
    if not shutil.which("dnsmasq"):
        raise Skip("dnsmasq is not installed")
    for address in addresses:
        command("ip", "addr", "add", address, "dev", tap, *["nodad"] * (":" in address))
    command("ip", "link", "set", tap, "up")
    process = env.start(
        ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--port=0",
         f"--interface={tap}", "--bind-interfaces", "--no-ping", "--log-dhcp",
         f"--dhcp-range={LEASED},{LEASED},255.255.0.0,120",
         f"--dhcp-leasefile={env.scratch / (tap + '.leases')}", "--user=root", *options])
    try:
        yield process
    finally:
        process.kill()


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


def check_echo_on(sock, text):
    sock.sendall(text)
    got = b""
    while len(got) < len(text):
        part = sock.recv(100)
        check(part, "the connection ended")
        got += part
    check(got == text, f"sent {text}, received {got}")


def check_echo(address, text):
    with socket.create_connection((address, PORT), timeout=WAIT_MAX_S) as sock:
        check_echo_on(sock, text)
