#!/usr/bin/env python3
"""Addresses that two keepalived move between two stacks on a bridge.

Usage: test_vrrp.py BUILD_DIR SOURCE_ROOT
The configuration and the script of keepalived are those of docs/addresses.md. VRRP has a link of
its own, between the namespaces of the two; the script's namespace has the bridge and is the client.
"""

import contextlib
import functools
import os
import pathlib
import re
import shutil
import signal

from harness import (WAIT_MAX_S, Failure, Namespace, Skip, Spoiled, check, command, eventually,
                     in_a_quiet_moment, main)
from leases import ask_ctl, check_echo_on
from test_addresses import connect, host

EXAMPLE = r"^<!-- keepalived: {} -->\n```\w*\n(.*?)^```\n"
MOVED = {"192.0.2.20/24": "10.9.0.7/16", "2001:db8::20/64": "fd00:9::7/64"}
CLIENTS = ("10.9.1.1/16", "fd00:9::99/64")
PORT = 7777


def example(env, name):
    """Returns a block of docs/addresses.md with the addresses of the test."""
    text = (pathlib.Path(env.args[0]) / "docs/addresses.md").read_text()
    found = re.search(EXAMPLE.format(re.escape(name)), text, re.M | re.S)
    check(found, f"docs/addresses.md has no {name}")
    return functools.reduce(lambda text, pair: text.replace(*pair), MOVED.items(), found[1])


class Host:
    """coronet-echo on a bridge, and a keepalived that gives it the addresses."""

    def __init__(self, env, number, priority):
        self.env, self.number = env, number
        self.tap, self.veth = f"vs{number}", f"vr{number}"
        self.mac = f"02:00:00:00:07:{number:02}"
        self.control = env.scratch / f"control{number}"
        self.space = Namespace(env)
        self.daemon = None
        self.daemons = []
        self.files = {name: env.scratch / f"{name}{number}"
                      for name in ("keepalived.conf", "script", "fifo", "pid", "vrrp.pid")}
        self.write("script", example(env, "script").replace(
            "coronet-ctl", f"{env.app('coronet-ctl')} --control {self.control}"))
        self.files["script"].chmod(0o755)
        config = example(env, "keepalived.conf")
        for pattern, text in (("/etc/keepalived/coronet", str(self.files["script"])),
                              ("/run/coronet-vrrp", str(self.files["fifo"])),
                              ("interface .*", f"interface {self.veth}"),
                              ("priority .*", f"priority {priority}")):
            config = re.sub(pattern, text, config)
        self.write("keepalived.conf", config)

    def write(self, name, text):
        self.files[name].write_text(text)

    @contextlib.contextmanager
    def serving(self):
        with self.env.running(
                [self.env.app("coronet-echo"), "--link", f"tap:{self.tap},mac={self.mac}",
                 "--addr", f"10.9.0.{self.number}/16", "--addr", f"fd00:9::{self.number}/64",
                 "--dad", "off", "--port", PORT, "--poll", "adaptive", "--control", self.control]):
            command("ip", "link", "set", self.tap, "master", "br0", "up")
            self.space.take_interface(self.veth)
            self.space.command("ip", "addr", "add", f"172.31.0.{self.number}/24", "dev", self.veth)
            self.space.command("ip", "link", "set", self.veth, "up")
            try:
                yield self
            finally:
                self.end_daemon()
                self.space.close()

    def start_daemon(self):
        files = self.files
        self.daemon = self.env.start(self.space.inside(
            "keepalived", "--dont-fork", "--log-console", "--vrrp",
            f"--use-file={files['keepalived.conf']}", f"--pid={files['pid']}",
            f"--vrrp_pid={files['vrrp.pid']}"))
        self.daemons.append(self.daemon)

    def delays(self):
        """Returns how often a daemon ran late, so that the other may have taken over."""
        return sum(daemon.output("stdout").count("thread timer expired")
                   + daemon.output("stderr").count("thread timer expired")
                   for daemon in self.daemons)

    def end_daemon(self):
        """It may be stopped, or have ended."""
        if self.daemon and self.daemon.alive():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                self.signal_daemon(signal.SIGCONT)
            self.daemon.terminate()

    def signal_daemon(self, number):
        """The child of the daemon does the work."""
        os.kill(int(self.files["vrrp.pid"].read_text()), number)

    def ask(self, *words):
        return ask_ctl(self.env, self.control, *words)

    def has(self):
        """Returns which of the addresses that move it has."""
        return set(MOVED.values()) & {row["address"] for row in self.ask("addr")}

    def await_addresses(self, wanted):
        eventually(lambda: self.has() == set(wanted), WAIT_MAX_S,
                   lambda: f"host {self.number} has {self.has()}: {self.daemon.story()}")

    def accepted(self):
        return sum(row["accepted"] for row in self.ask("shards"))


@contextlib.contextmanager
def two_hosts(env, stops=0):
    """stops: how often the case stops a daemon."""
    if not shutil.which("keepalived", path=os.environ["PATH"]):
        raise Skip("keepalived is not installed")
    if not pathlib.Path("/proc/self/uid_map").read_text().split()[2].startswith("4294967295"):
        raise Skip("keepalived runs no scripts in a user namespace")
    command("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", 0)
    command("ip", "link", "add", "vr1", "type", "veth", "peer", "name", "vr2")
    for address in CLIENTS:
        command("ip", "addr", "add", address, "dev", "br0", *["nodad"] * (":" in address))
    command("ip", "link", "set", "br0", "up")
    try:
        first, second = Host(env, 1, 251), Host(env, 2, 250)
        with first.serving(), second.serving():
            try:
                yield first, second
            except Failure as failure:
                if first.delays() + second.delays() > stops:
                    raise Spoiled(f"the daemons were delayed: {failure}") from failure
                raise
    finally:
        command("ip", "link", "del", "br0")


def check_learnt(at):
    """The client has heard which host has the addresses now: it does not ask."""
    for address in MOVED.values():
        def entry(address=address):
            return command("ip", "neigh", "show", host(address), "dev", "br0")
        eventually(lambda: at.mac in entry(), WAIT_MAX_S,
                   lambda: f"{address} is not at {at.mac}: {entry()}")


def connections(at):
    """Connects to each of the addresses; returns the connections, which this host has."""
    before = at.accepted()
    socks = [connect(address) for address in MOVED.values()]
    for sock in socks:
        check_echo_on(sock, b"here")
    check(at.accepted() == before + len(socks), f"not at host {at.number}")
    return socks


def check_reset(socks):
    """The host that has the address now does not know these connections."""
    for sock in socks:
        with sock:
            sock.sendall(b"still there?")
            with contextlib.suppress(ConnectionResetError):
                check(False, f"a connection goes on: {sock.recv(100)}")


def planned(env):
    """The first keepalived ends, and begins again: the addresses move there and back."""
    with two_hosts(env) as (first, second):
        first.start_daemon()
        second.start_daemon()
        first.await_addresses(MOVED.values())
        second.await_addresses([])
        socks = connections(first)
        first.daemon.terminate()
        second.await_addresses(MOVED.values())
        first.await_addresses([])
        check_learnt(second)
        check_reset(socks)
        socks = connections(second)
        first.start_daemon()
        first.await_addresses(MOVED.values())
        second.await_addresses([])
        check_learnt(first)
        check_reset(socks)
        connections(first)


def frozen(env):
    """The first keepalived stops for a time, but not its stack: the second takes over."""
    with two_hosts(env, stops=1) as (first, second):
        first.start_daemon()
        second.start_daemon()
        first.await_addresses(MOVED.values())
        second.await_addresses([])
        socks = connections(first)
        first.signal_daemon(signal.SIGSTOP)
        second.await_addresses(MOVED.values())
        check_learnt(second)
        check_reset(socks)
        socks = connections(second)
        first.signal_daemon(signal.SIGCONT)
        second.await_addresses([])
        check_learnt(first)
        check_reset(socks)
        connections(first)


def cases(env):
    os.environ["PATH"] += ":/usr/sbin"
    for name, function in (("addresses move when a daemon ends", planned),
                           ("addresses move when a daemon stops", frozen)):
        yield name, functools.partial(in_a_quiet_moment, functools.partial(function, env))


if __name__ == "__main__":
    main(cases, privileged=True)
