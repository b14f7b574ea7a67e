"""A VLAN interface of the kernel, or a substitute if the kernel has none.

The substitute is a TAP with the kernel's frames; a thread moves them to and from a raw socket on
the interface below, and adds the tag, as
`ip link add link LOWER name NAME type vlan id ID` would.
"""

import contextlib
import fcntl
import os
import selectors
import socket
import struct
import subprocess
import threading

from harness import check, command

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_AUXDATA = 8
PACKET_OUTGOING = 4
VLAN_VALID = 0x10
TUNSETIFF = 0x400454CA
SIOCGIFHWADDR = 0x8927
IFF_TAP, IFF_NO_PI = 2, 0x1000


class Raw:
    """Frames on an interface, with the tag that the kernel removes."""

    def __init__(self, interface):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.sock.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.sock.bind((interface, ETH_P_ALL))
        self.sock.setblocking(False)

    def send(self, frame):
        with contextlib.suppress(OSError):  # the queue is full: it drops
            self.sock.send(frame)

    def receive(self):
        """Returns a frame, the VID of its tag or None, and whether this side sent it; None without
        a frame."""
        try:
            frame, ancillary, _, source = self.sock.recvmsg(65536, 256)
        except OSError:  # nothing there, or the interface is down
            return None
        if source[2] == PACKET_OUTGOING:
            return frame, None, True
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                status, _, _, _, _, tci, _ = struct.unpack_from("IIIHHHH", data)
                if status & VLAN_VALID:
                    return frame, tci & 0xFFF, False
        return frame, None, False

    def incoming(self):
        """Returns the frames received so far, as (frame, VID or None)."""
        while (got := self.receive()) is not None:
            frame, vid, sent = got
            if not sent:
                yield frame, vid

    def close(self):
        self.sock.close()


class Device:
    """A substitute for the kernel's end of the VLAN."""

    def __init__(self, lower, name, vid):
        self.tag = b"\x81\0" + struct.pack("!H", vid)
        self.vid = vid
        self.raw = Raw(lower)
        self.tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
        request = fcntl.ioctl(self.raw.sock, SIOCGIFHWADDR, struct.pack("16s24x", lower.encode()))
        mac = request[18:24].hex(":")
        command("ip", "link", "set", name, "address", mac)
        self.ended, self.end = os.pipe()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        with selectors.DefaultSelector() as selector:
            for source in (self.tap, self.raw.sock, self.ended):
                selector.register(source, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self.ended in ready:
                    return
                self.move()

    def move(self):
        """Moves the frames of either side to the other."""
        for frame, vid in self.raw.incoming():
            if vid == self.vid:
                with contextlib.suppress(OSError):  # the interface is down
                    os.write(self.tap, frame)
        with contextlib.suppress(OSError):
            while True:
                frame = os.read(self.tap, 65536)
                self.raw.send(frame[:12] + self.tag + frame[12:])

    def close(self):
        os.write(self.end, b"x")
        self.thread.join()
        self.raw.close()
        for fd in (self.tap, self.end, self.ended):
            os.close(fd)


def kernel_has_vlans(lower, name, vid):
    done = subprocess.run(["ip", "link", "add", "link", lower, "name", name, "type", "vlan",
                           "id", str(vid)], check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return True
    check("Unknown device type" in done.stderr or "not supported" in done.stderr, done.stderr)
    return False


@contextlib.contextmanager
def vlan_device(lower, name, vid):
    """Makes a VLAN interface on one that is up; yields its maker."""
    if kernel_has_vlans(lower, name, vid):
        try:
            yield "the kernel's 802.1Q"
        finally:  # it may have gone with the one below
            subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)
        return
    device = Device(lower, name, vid)
    try:
        yield "a TAP of the test's own: the kernel has no 802.1Q"
    finally:
        device.close()
