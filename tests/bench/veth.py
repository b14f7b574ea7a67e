"""A veth: one end here, for a server, the other in its own namespace, for its load, so that their
traffic cannot use the kernel's loopback.

    with Veth(children, 1, "10.9.1.9/16") as veth:
        ...  # the server on veth.near
        children.start([*veth.inside, ...])  # on veth.far

The caller has a network namespace that it may change (harness.reenter()).
"""

import contextlib
import os

from children import Failure
from harness import Namespace, command


def real_root():
    """Whether root here is the machine's root: a user namespace's may not load AF_XDP's BPF
    programs."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        mapped = file.read().split()
    return os.geteuid() == 0 and mapped[:2] == ["0", "0"]


class Veth:
    """Both ends are up; the far one has an address if it is the kernel's."""

    def __init__(self, children, number, address=None):
        """number: makes its names its own; address: ADDRESS/PREFIX of the kernel at the far
        end."""
        self.children, self.address = children, address
        self.near, self.far = f"bn{number}", f"bf{number}"
        self.space = None
        self.inside = []

    def __enter__(self):
        self.space = Namespace(self.children)
        self.inside = self.space.inside()
        command("ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far)
        self.space.take_interface(self.far)
        command("ip", "link", "set", self.near, "up")
        if self.address:
            self.space.command("ip", "addr", "add", self.address, "dev", self.far)
        self.space.command("ip", "link", "set", self.far, "up")
        # A killed server leaves nothing in a bpffs without a dispatcher; no other program is
        # attached to these interfaces.
        self.children.env["LIBXDP_SKIP_DISPATCHER"] = "1"
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Failure):  # it was never made, or is gone with its namespace
            command("ip", "link", "del", self.near)
        self.space.close()
