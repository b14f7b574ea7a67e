"""A veth: one end here, for a server, the other in a namespace of its own, for
its load, so that what goes between them cannot take the kernel's loopback.

    with Veth(children, 1, "10.9.1.9/16") as veth:
        ...  # the server on veth.near
        children.start("load", [*veth.inside, ...])  # on veth.far

The caller has a network namespace that it may change (harness.reenter()).
"""

import os

from children import Failure

READY_S = 10  # for unshare to have made a namespace


def real_root():
    """Whether root here is root outside: a user namespace's may not load the
    BPF programs that AF_XDP needs."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        mapped = file.read().split()
    return os.geteuid() == 0 and mapped[:2] == ["0", "0"]


class Veth:
    """Both ends are up; the far one has an address if it is the kernel's."""

    def __init__(self, children, number, run, address=None):
        """number: makes its names its own; run(words...): a command that has
        to succeed; address: ADDRESS/PREFIX of the kernel at the far end."""
        self.children, self.run, self.address = children, run, address
        self.near, self.far = f"bn{number}", f"bf{number}"
        self.holder = None
        self.inside = []

    def __enter__(self):
        self.holder = self.children.start(
            "veth-peer", ["unshare", "--net", "sh", "-c",
                          "echo made; exec sleep infinity"])
        self.holder.wait_for_line("made", READY_S)
        pid = str(self.holder.process.pid)
        self.inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
        self.run("ip", "link", "add", self.near, "type", "veth", "peer",
                 "name", self.far)
        self.run("ip", "link", "set", self.far, "netns", pid)
        self.run("ip", "link", "set", self.near, "up")
        if self.address:
            self.run(*self.inside, "ip", "addr", "add", self.address, "dev",
                     self.far)
        self.run(*self.inside, "ip", "link", "set", self.far, "up")
        # A server that is killed leaves nothing in a bpffs without a
        # dispatcher; nobody else has a program on these interfaces.
        self.children.env["LIBXDP_SKIP_DISPATCHER"] = "1"
        return self

    def __exit__(self, *_):
        try:
            self.run("ip", "link", "del", self.near)
        except Failure:
            pass  # it never came to be; the namespace takes the rest along
        self.holder.process.kill()
        self.holder.process.wait()
