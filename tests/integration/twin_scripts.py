"""Seeded scripts for the two ends of a TCP connection.

A script has two parties. Each has a writer and a reader, which run in parallel: the writer sends
bytes with pauses; the reader waits, then reads at its own pace. The script also has each party's
end: it half-closes when its bytes are sent or when the other has, closes with bytes unread, or
aborts. The same script runs against a program of ours and against
its twin on the kernel's sockets (test_twins.py).

Invariants: bytes arrive as they were sent; a direction that ends with a clean EOF has delivered
every byte sent before the half-close; no party waits forever.
"""

import dataclasses
import random
import socket
import struct
import threading
import time

WAIT_MAX_S = 120  # bound of one socket call; more is a hang
ENDS = ("half-close", "half-close after the other's", "close with bytes unread", "abort")


@dataclasses.dataclass
class Party:
    """The actions of one end."""
    receive_buffer: int  # SO_RCVBUF, 0: the kernel's
    no_delay: bool
    writes: list  # (pause in ms, bytes)
    stall_ms: int  # before the first byte is read
    read_size: int
    read_pause_ms: int  # bytes between two pauses
    read_pause_every: int
    end: str
    end_after: int  # bytes read before a close or an abort

    @property
    def total(self):
        return sum(size for _, size in self.writes)

    def steps(self):
        writes = ", ".join(f"{size} after {pause} ms" for pause, size in self.writes)
        buffer = f"SO_RCVBUF {self.receive_buffer}, " if self.receive_buffer else ""
        return (f"{buffer}{'no delay, ' if self.no_delay else ''}"
                f"sends {writes or 'nothing'} ({self.total} in all); "
                f"reads {self.read_size} at a time after {self.stall_ms} ms, pauses "
                f"{self.read_pause_ms} ms every {self.read_pause_every} bytes; ends by "
                f"{self.end}{f' after {self.end_after} bytes' if self.abrupt else ''}")

    @property
    def abrupt(self):
        return self.end in ENDS[2:]


def make_party(generator, most, abrupt):
    """Returns a party that sends at most `most` bytes."""
    total = int(most * generator.random() ** 2)
    writes = []
    while total > 0 and len(writes) < 12:
        size = min(total, generator.choice([1, 10, 500, 1459, 1460, 1461, 4096, 16384, 65536,
                                            generator.randrange(1, 200000)]))
        if len(writes) == 11:
            size = total
        writes.append((generator.choice([0, 0, 0, 1, 45, 130, 260]), size))
        total -= size
    return Party(
        receive_buffer=generator.choice([0, 0, 2048, 4096, 16384, 70000, 90000]),
        no_delay=generator.random() < 0.5, writes=writes,
        stall_ms=generator.choice([0, 0, 20, 150, 400, 900, 1500]),
        read_size=generator.choice([100, 1460, 8192, 65536, 65536]),
        read_pause_ms=generator.choice([0, 0, 1, 5, 130]),
        read_pause_every=generator.choice([3000, 20000, 60000]),
        end=generator.choice(ENDS[2:]) if abrupt else ENDS[0],
        end_after=generator.choice([0, 1, 1460, 20000, 60000]))


class Script:
    """Both parties, made from a seed. An echo or a file server plays the second."""

    def __init__(self, seed, most=400000):
        self.seed = seed
        generator = random.Random(seed)
        abrupt = generator.random() < 0.3
        self.client = make_party(generator, most, abrupt and generator.random() < 0.6)
        self.server = make_party(generator, most, abrupt and not self.client.abrupt)
        if not abrupt and generator.random() < 0.4:
            self.server.end = ENDS[1]
        for party, other in ((self.client, self.server), (self.server, self.client)):
            bound_time(party, other)

    @property
    def abrupt(self):
        return self.client.abrupt or self.server.abrupt

    def __str__(self):
        return f"seed {self.seed}\nclient: {self.client.steps()}\nserver: {self.server.steps()}"


def bound_time(party, other):
    """Reduces the bytes for a tiny window or a slow reader, so that the script takes seconds."""
    most = 400000
    if party.receive_buffer:
        most = min(most, party.receive_buffer * 12)
    if party.read_pause_ms:
        most = min(most, party.read_pause_every * 2000 // party.read_pause_ms)
    if party.read_size == 100:
        most = min(most, 50000)
    left = most
    for i, (pause, size) in enumerate(other.writes):
        other.writes[i] = (pause, min(size, left))
        left -= other.writes[i][1]
    other.writes = [write for write in other.writes if write[1]]
    party.end_after = min(party.end_after, other.total)


def payload(seed, size):
    return random.Random(seed).randbytes(size)


class Run:
    """One party of a script on a connected socket."""

    def __init__(self, sock, party, data):
        self.party, self.data = party, data
        self.sock, self.out = sock, sock.dup()
        self.received = bytearray()
        self.ending = "nothing yet"  # how its stream ended
        self.send_error = None
        self.sent = 0  # bytes that its kernel accepted
        self.read_end = threading.Event()
        self.stop = threading.Event()  # its writer must end
        self.ended = threading.Event()
        sock.settimeout(WAIT_MAX_S)
        self.out.settimeout(0.1)
        if party.no_delay:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.threads = [threading.Thread(target=target, daemon=True)
                        for target in (self.write, self.read)]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def join(self):
        """Joins both threads, which end by themselves: each of their calls is bounded."""
        self.threads[1].join()
        if self.ending != "EOF":
            self.stop.set()
        self.threads[0].join()
        # The kernel reports a reset once: after a failed send, recv() returns an end.
        if self.send_error and self.ending == "EOF":
            self.ending = f"fails: {self.send_error}"
        self.sock.close()
        self.out.close()
        self.ended.set()
        return self

    def send(self, part):
        """Sends data; returns True if all of it was sent in time."""
        deadline = time.monotonic() + WAIT_MAX_S
        while part and not self.stop.is_set() and time.monotonic() < deadline:
            try:
                taken = self.out.send(part)
            except TimeoutError:
                continue
            self.sent += taken
            part = part[taken:]
            deadline = time.monotonic() + WAIT_MAX_S
        return not part

    def write(self):
        data = memoryview(self.data)
        try:
            for pause, size in self.party.writes:
                if self.stop.wait(pause / 1000) or not self.send(data[:size]):
                    return
                data = data[size:]
            if self.party.abrupt:
                return
            if self.party.end == ENDS[1]:
                self.read_end.wait(3 * WAIT_MAX_S)
            self.out.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.send_error = error

    def leave(self):
        """Closes with bytes unread, or aborts."""
        self.stop.set()
        self.threads[0].join()
        if self.party.end == ENDS[3]:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.out.close()
        self.sock.close()
        self.ending = "left"

    def read(self):
        party, since = self.party, 0
        try:
            self.stop.wait(party.stall_ms / 1000)
            while not party.abrupt or len(self.received) < party.end_after:
                part = self.sock.recv(party.read_size)
                if not part:
                    self.ending = "EOF"
                    break
                self.received += part
                since += len(part)
                if party.read_pause_ms and since >= party.read_pause_every:
                    since = 0
                    self.stop.wait(party.read_pause_ms / 1000)
            if party.abrupt:
                self.leave()
        except TimeoutError:
            self.ending = "hangs"
        except OSError as error:
            self.ending = f"fails: {error}"
        finally:
            self.read_end.set()


def faults(reader, sender, abrupt):
    """Returns the faults in the reader's copy of the sender's bytes."""
    found = []
    got, given = len(reader.received), sender.sent
    if reader.received != sender.data[:got]:
        found.append(f"what arrived is not what was sent ({got} bytes)")
    if reader.ending == "hangs":
        found.append(f"hangs after {got} of {given} bytes")
    if reader.ending == "EOF" and got != given:
        found.append(f"a clean EOF after {got} of {given} bytes")
    if not abrupt and reader.ending != "EOF":
        found.append(f"{reader.ending} after {got} of {given} bytes")
    if not abrupt and given != len(sender.data):
        found.append(f"only {given} of {len(sender.data)} bytes could be sent")
    return found


def probe_when_idle(sock):
    """Lets the kernel probe an idle connection: a reset dropped by a full kernel queue is sent
    again in answer."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)


def connect(address, party):
    """Returns the client's socket, with its buffer set before the handshake."""
    sock = socket.socket()
    if party.receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, party.receive_buffer)
    sock.settimeout(WAIT_MAX_S)
    probe_when_idle(sock)
    sock.connect(address)
    return sock
