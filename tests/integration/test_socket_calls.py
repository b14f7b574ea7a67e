#!/usr/bin/env python3
"""Results of socket calls on the kernel and, by coronet-run, on the stack.

Usage: test_socket_calls.py BUILD_DIR [GROUP...]

The program in socket_calls/ makes the calls and writes a line about each. It runs twice, against
the same peer: behind a veth, and on the stack, behind a TAP. The lines are equal except those of
DIFFERENCES, which docs/unchanged.md explains.
"""

import contextlib
import errno
import functools
import itertools
import select
import socket
import struct
import threading

from harness import WAIT_MAX_S, Namespace, check, command, comment, eventually, main
from test_run import KERNELS, KERNELS6, OURS, OURS6, bring_up, without_leaks

RESET = struct.pack("ii", 1, 0)
GROUPS = ["new", "connect", "listen", "stream", "end", "faults", "poll", "epoll", "options",
          "descriptors", "stdio", "signals", "threads", "datagrams", "datagram options",
          "datagram faults", "small stacks", "after main"]
# label: (the kernel, the stack), with the reasons in docs/unchanged.md
DIFFERENCES = {
    "splice: to the socket": ("3", "-1 EPIPE"),
    "SCM_RIGHTS: send": ("1", "-1 EOPNOTSUPP"),
    "SCM_RIGHTS: recv": ("1", "-1 EAGAIN"),
    "SCM_RIGHTS: read": ("3", "no line"),
    "fork: write in the child": ("0", f"{errno.ENOTSUP}"),
    "clone: write in the child": ("0", f"{errno.ENOTSUP}"),
    "O_ASYNC: SIGIO": ("1", "0"),
    "connected: TCP_NODELAY: at first": ("0", "1"),
    "listening: TCP_NODELAY: at first": ("0", "1"),
    "UDP: IP_RECVERR: recvmsg": ("3", "0"),
}
for STATE, NAME in itertools.product(("connected", "listening"),
                                     ("SO_TIMESTAMP", "SO_ZEROCOPY", "IP_RECVERR")):
    for LINE, ANSWER in (": at first", "0"), ("", "0"), (": then", "1"):
        DIFFERENCES[f"{STATE}: {NAME}{LINE}"] = ANSWER, "-1 ENOPROTOOPT"


class Peer:
    """Follows the script in the first line of each connection: see calls.h."""

    def __init__(self):
        self.listener = socket.create_server(("::", 0), family=socket.AF_INET6,
                                             dualstack_ipv6=True)
        self.port = self.listener.getsockname()[1]
        with socket.create_server(("::", 0), family=socket.AF_INET6) as refuses:
            self.closed_port = refuses.getsockname()[1]
        self.datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.datagrams.bind(("::", self.port))
        threading.Thread(target=self.accept, daemon=True).start()
        threading.Thread(target=self.echo, daemon=True).start()

    def accept(self):
        while True:
            sock = self.listener.accept()[0]
            threading.Thread(target=self.obey, args=(sock,), daemon=True).start()

    def echo(self):
        with contextlib.suppress(OSError):
            while True:
                data, source = self.datagrams.recvfrom(1 << 16)
                self.datagrams.sendto(data, source)

    def obey(self, sock):
        sock.settimeout(WAIT_MAX_S)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(sock)
            first, line = sock, b""
            while not line.endswith(b"\n"):
                byte = sock.recv(1)
                if not byte:
                    return
                line += byte
            for word in line.decode().split():
                name, _, value = word.partition(":")
                if name == "dial":
                    sock = stack.enter_context(socket.create_connection(
                        (sock.getpeername()[0], int(value)), WAIT_MAX_S))
                elif name == "follow":
                    self.do_end(first, "")
                else:
                    getattr(self, f"do_{name}")(sock, value)
            self.do_end(sock, "")

    @staticmethod
    def do_say(sock, text):
        sock.sendall(text.encode())

    @staticmethod
    def do_count(sock, count):
        sock.sendall(bytes(int(count)))

    @staticmethod
    def do_read(sock, count):
        left = int(count)
        while left and (part := sock.recv(left)):
            left -= len(part)

    @staticmethod
    def do_hold(sock, _):
        poll = select.poll()
        poll.register(sock, 0)
        poll.poll(WAIT_MAX_S * 1000)

    @staticmethod
    def do_end(sock, _):
        while sock.recv(1 << 16):
            pass

    @staticmethod
    def do_echo(sock, _):
        while part := sock.recv(1 << 16):
            sock.sendall(part)

    @staticmethod
    def do_eof(sock, _):
        sock.shutdown(socket.SHUT_WR)

    @staticmethod
    def do_close(sock, _):
        sock.close()

    @staticmethod
    def do_reset(sock, _):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()

    def close(self):
        self.listener.close()
        self.datagrams.close()


def words_of(env, peer, groups):
    return [env.build / "tests/integration/socket-calls", OURS, KERNELS, KERNELS6, str(peer.port),
            str(peer.closed_port), *groups]


def results_of(program):
    """Returns the program's lines by label; the last is its exit status."""
    status = program.wait(6 * WAIT_MAX_S)
    results = {}
    for line in program.output("stdout").splitlines():
        label, _, result = line.rpartition(": ")
        check(label not in results or label == "group", f"two lines for '{label}'")
        results[label] = result
    return {**results, "exit status": f"{status}" if status == 0 else program.story()}


def on_the_kernel(env, peer, groups):
    with Namespace(env) as there:
        command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        there.take_interface("veth1")
        command("ip", "addr", "add", f"{KERNELS}/16", "dev", "veth0")
        command("ip", "addr", "add", f"{KERNELS6}/64", "dev", "veth0", "nodad")
        command("ip", "link", "set", "veth0", "up")
        there.command("ip", "addr", "add", f"{OURS}/16", "dev", "veth1")
        there.command("ip", "addr", "add", f"{OURS6}/64", "dev", "veth1", "nodad")
        there.command("ip", "link", "set", "veth1", "up")
        eventually(lambda: "NO-CARRIER" not in command("ip", "link", "show", "veth0"), WAIT_MAX_S,
                   "the veth has no carrier")
        try:
            return results_of(env.start(there.inside(*words_of(env, peer, groups))))
        finally:
            command("ip", "link", "del", "veth0")


def on_the_stack(env, peer, groups):
    program = env.start(
        [env.app("coronet-run"), "--link", "tap:calls", "--addr", f"{OURS}/16",
         "--addr", f"{OURS6}/64", "--poll", "adaptive", *words_of(env, peer, groups)],
        env=without_leaks())
    bring_up("calls", program)
    return results_of(program)


def groups_of(env):
    """Without arguments all, except that ASan's own hooks fault where the kernel says EFAULT."""
    return env.args or (GROUPS if not env.sanitized else [*set(GROUPS) - {"faults", "datagram faults"}])


def differences(kernel, stack):
    """Returns a line about each label whose results are not what they should be."""
    wrong = {}
    hung = stack["exit status"] != "0"  # then the last line is what matters
    for label in {**kernel, **stack}:
        got = kernel.get(label, "no line"), stack.get(label, "no line")
        wanted = DIFFERENCES.get(label, got[:1] * 2) if label in kernel else got[:1] * 2
        if got != wanted and (label in stack or not hung):
            wrong[label] = f"{label}: {got[0]}; on the stack {got[1]}, expected {wanted[1]}"
    return wrong


def compare(env, turns=6, before=None):
    """before: the labels that were wrong in an earlier turn; None: this is the first one.

    If the program was stopped, SIGCONT interrupts calls with a timeout on the kernel, and has it
    repeat a connect() that another thread had ended. So what differs for that has another turn.
    """
    peer = Peer()
    kernel, stack = (run(env, peer, groups_of(env)) for run in (on_the_kernel, on_the_stack))
    peer.close()
    wrong = differences(kernel, stack)
    comment(f"{len(kernel)} lines, of which {len(DIFFERENCES.keys() & kernel.keys())} are different, "
            "as expected")
    repeated = "HANGS" in kernel.values()
    if before is not None and not repeated:
        wrong = {label: line for label, line in wrong.items() if label in before}
    interrupted = all("EINTR" in line for line in wrong.values())
    if wrong and turns > 1 and (repeated or interrupted):
        comment("\n".join(["once more:", *wrong.values()]))
        compare(env, turns - 1, before if repeated else wrong.keys())
    else:
        check(not wrong, "\n".join(wrong.values()))


def cases(env):
    yield "the kernel and the stack answer alike", functools.partial(compare, env)


if __name__ == "__main__":
    main(cases)
