#!/usr/bin/env python3
"""Threads, signals and ends of programs on the stack, by coronet-run.

Usage: test_run_threads.py BUILD_DIR
"""

import contextlib
import fcntl
import functools
import os
import pathlib
import signal
import socket
import termios
import threading

from harness import WAIT_MAX_S, Failure, check, command, eventually, main, preload_of
from test_run import OURS, OnTap, exactly, pair, without_leaks


def signals(env):
    """Signal handlers interrupt waiting calls, SIGTERM ends a program and its connections."""
    script = """
import select, signal, socket, sys, time
def note_signal(number, frame):
    raise KeyError(number)
signal.signal(signal.SIGUSR1, note_signal)
s = socket.create_connection(("10.9.1.1", 7003), 60)
for wait in (lambda: s.recv(1), lambda: select.select([s], [], []), lambda: time.sleep(600),
             lambda: signal.pause()):
    try:
        s.sendall(b"waiting")
        wait()
    except KeyError:
        s.sendall(b"woken")
s.sendall(b"x" * 1000000)
time.sleep(600)
"""
    def waits():
        """Whether main()'s thread sleeps at every look."""
        stat = pathlib.Path(f"/proc/{program.process.pid}/stat")
        return all(stat.read_text().rsplit(")", 1)[1].split()[0] == "S" for _ in range(20))

    with socket.create_server(("0.0.0.0", 7003)) as listener:
        program = OnTap(env).start("python3", "-c", script)
        sock = listener.accept()[0]
        sock.settimeout(WAIT_MAX_S)
        for _ in range(4):
            exactly(sock, b"waiting")
            eventually(waits, WAIT_MAX_S, program.story)
            program.signal(signal.SIGUSR1)
            exactly(sock, b"woken")
        exactly(sock, b"x" * 1000000)
        program.signal(signal.SIGTERM)
        check(sock.recv(1) == b"", "no end of the stream")
        status = program.wait(WAIT_MAX_S)
        check(status == -signal.SIGTERM, f"status {status}: {program.story()}")


ENDS = """
import os, resource, signal, socket
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for number in (signal.SIGPIPE, signal.SIGQUIT):  # a background job of a shell ignores SIGQUIT
    signal.signal(number, signal.SIG_DFL)
s = socket.create_connection(("10.9.1.1", 7008), 60)
s.settimeout(None)
s.sendall(b"x" * 100000)
%s
print("goes on", flush=True)
s.recv(1)
"""


def default_actions(env):
    """A signal that ends the program by default closes its connections first. A call that it
    comes in does not return."""
    with socket.create_server(("0.0.0.0", 7008)) as listener:
        listener.settimeout(WAIT_MAX_S)
        for number, how in (
                (signal.SIGPIPE, "r, w = os.pipe(); os.close(r); os.write(w, b'x')"),
                (signal.SIGPIPE, "s.shutdown(socket.SHUT_WR); s.send(b'x')"),
                (signal.SIGALRM, "signal.setitimer(signal.ITIMER_REAL, 0.1); s.recv(1)"),
                (signal.SIGVTALRM, "signal.setitimer(signal.ITIMER_VIRTUAL, 0.1)\nwhile True: pass"),
                (signal.SIGQUIT, "os.kill(os.getpid(), signal.SIGQUIT); s.recv(1)")):
            program = OnTap(env).start("python3", "-c", ENDS % how)
            with listener.accept()[0] as sock:
                sock.settimeout(WAIT_MAX_S)
                exactly(sock, b"x" * 100000)
                try:
                    check(sock.recv(1) == b"", f"{how}: no end of the stream")
                except TimeoutError:
                    raise Failure(f"{how}: {program.story()}") from None
            status = program.wait(WAIT_MAX_S)
            check(status == -number and not program.output("stdout"),
                  f"{how}: status {status}: {program.story()}")


HANDLERS = """
import os, signal, socket, time
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append("usr1"))
signal.signal(signal.SIGPIPE, lambda *_: got.append("pipe"))
s = socket.create_connection(("10.9.1.1", 7004), 60)
s.settimeout(None)
os.kill(os.getpid(), signal.SIGUSR1)
assert got == ["usr1"], got  # at once, though Python asks for the alternate stack
s.shutdown(socket.SHUT_WR)
try:
    s.send(b"x")
except BrokenPipeError:
    pass
print(end="")  # where Python looks
assert got == ["usr1", "pipe"], got
print("computes", flush=True)
end = time.monotonic() + 60
while len(got) == 2:  # no call gives the stack a turn
    assert time.monotonic() < end, "the handler has not run"
# One that came while main() waited, and is ignored by then.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
os.kill(os.getpid(), signal.SIGUSR1)
s.close()
print("done", flush=True)
"""


def handlers(env):
    """Handlers run on the program's thread, also while it computes."""
    with socket.create_server(("0.0.0.0", 7004)):
        program = OnTap(env).start("python3", "-c", HANDLERS)
        eventually(lambda: "computes" in program.output("stdout") or not program.alive(),
                   WAIT_MAX_S, program.story)
        program.signal(signal.SIGUSR1)
        check(program.wait(WAIT_MAX_S) == 0, program.story())


WAITS = """
import os, socket, subprocess, threading, time
def fetch(n):
    s = socket.create_connection(("10.9.1.1", 7005), 60)
    s.sendall(b"%d" % n)
    got.append(s.recv(10))
    s.close()
got = []
threads = [threading.Thread(target=fetch, args=(n,)) for n in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()  # in a semaphore
assert sorted(got) == [b"0", b"1", b"2", b"3"], got
# Options are set with Python's lock held, for which main() waits in a condition variable.
def options(n):
    s = socket.create_connection(("10.9.1.1", 7005), 60)
    for _ in range(500):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(b"%d" % n)
    got.append(s.recv(10))
    s.close()
threads = [threading.Thread(target=options, args=(n,)) for n in range(4)]
for t in threads:
    t.start()
while any(t.is_alive() for t in threads):
    time.sleep(0.0001)  # the stack's turn, and behind it Python's lock
for t in threads:
    t.join()
assert len(got) == 8, got
# SIGPIPE comes to the thread that writes, and here it is blocked.
import signal
def pipe():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
    s = socket.create_connection(("10.9.1.1", 7005), 60)
    s.shutdown(socket.SHUT_WR)
    try:
        os.write(s.fileno(), b"x")
    except BrokenPipeError:
        got.append(signal.sigtimedwait([signal.SIGPIPE], 60).si_signo)
for number in (signal.SIGPIPE, signal.SIGQUIT):  # a background job of a shell ignores SIGQUIT
    signal.signal(number, signal.SIG_DFL)
t = threading.Thread(target=pipe)
t.start()
t.join()
assert got.pop() == signal.SIGPIPE, got
import ctypes
c = ctypes.CDLL(None)
thread, call = ctypes.c_ulong(), ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
    lambda _: fetch(5))
assert c.pthread_create(ctypes.byref(thread), None, call, None) == 0
assert c.pthread_join(thread, None) == 0 and got[-1] == b"5", got
lock = threading.Lock()
lock.acquire()
began = time.monotonic()
assert not lock.acquire(timeout=0.05) and time.monotonic() - began >= 0.05
# While it waits for a child, its connection answers the peer, who holds the child.
s = socket.create_connection(("10.9.1.1", 7005), 60)
s.sendall(b"x" * 3000000)
assert subprocess.call(["sh", "-c", "while ! [ -e $GO ]; do sleep 0.1; done; exit 7"]) == 7
s.recv(1)
"""


def waits_for_threads(env):
    """While main() joins a thread or waits for a child, the stack runs."""
    go = env.scratch / "go_waits"

    def echo(listener):
        for _ in range(10):
            sock = listener.accept()[0]
            sock.settimeout(WAIT_MAX_S)
            sock.sendall(sock.recv(10))
            sock.close()
        sock = listener.accept()[0]
        sock.settimeout(WAIT_MAX_S)
        left = 3000000
        while left and (part := sock.recv(1 << 16)):
            left -= len(part)
        if not left:
            go.touch()
        sock.close()

    with socket.create_server(("0.0.0.0", 7005)) as listener:
        thread = threading.Thread(target=echo, args=[listener], daemon=True)
        thread.start()
        OnTap(env).client("python3", "-c", WAITS, env={"GO": str(go)})
        thread.join(WAIT_MAX_S)
    go.unlink()


AT_ONCE = """
import hashlib, os, select, socket, threading
data = os.urandom(1 << 20)
bad = []
def echo():
    try:
        with socket.create_connection(("10.9.1.1", 7020), 60) as s:
            got = hashlib.sha256()
            sender = threading.Thread(target=s.sendall, args=(data,))
            sender.start()
            left = len(data)
            while left:
                part = s.recv(left)
                assert part, f"{left} bytes are missing"
                got.update(part)
                left -= len(part)
            sender.join()
            assert got.digest() == hashlib.sha256(data).digest(), "other bytes"
    except BaseException as error:
        bad.append(repr(error))
threads = [threading.Thread(target=echo) for _ in range(8)]
waiting = socket.create_connection(("10.9.1.1", 7021), 60)
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    select.select([waiting], [], [], 0.01)
assert not bad, bad
waiting.sendall(b"computes")
end = b""
while end != b"acknowledged":  # no call on a socket of the stack
    with open(os.environ["GO"], "rb") as file:
        end = file.read()
"""


def threads_at_once(env):
    """Each thread has a connection that two threads use, and no byte is misplaced. While none of
    them makes a call, the peer's bytes are received."""
    go = env.scratch / "go_at_once"
    go.touch()

    def echo(sock):
        with contextlib.suppress(OSError):
            while part := sock.recv(1 << 16):
                sock.sendall(part)
        sock.close()

    def accept(listener):
        with contextlib.suppress(OSError):  # the socket is shut down at the end
            while True:
                threading.Thread(target=echo, args=[listener.accept()[0]], daemon=True).start()

    def not_acknowledged(sock):
        return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), "little")
    with socket.create_server(("0.0.0.0", 7020)) as listener, \
            socket.create_server(("0.0.0.0", 7021)) as other:
        acceptor = threading.Thread(target=accept, args=[listener], daemon=True)
        acceptor.start()
        program = OnTap(env).start("python3", "-c", AT_ONCE, env={"GO": str(go)})
        sock = other.accept()[0]
        sock.settimeout(WAIT_MAX_S)
        exactly(sock, b"computes")
        sock.sendall(bytes(10000))
        eventually(lambda: not_acknowledged(sock) == 0, WAIT_MAX_S, program.story)
        go.write_bytes(b"acknowledged")
        check(program.wait(WAIT_MAX_S) == 0, program.story())
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join(WAIT_MAX_S)  # otherwise it would accept clients of the next case


ALL_SIGNALS = """
import os, signal, socket, threading
def talk():
    s = socket.create_connection(("10.9.1.1", 7006), 60)
    s.settimeout(None)
    for _ in range(1000):
        s.sendall(b"x")
        assert s.recv(1) == b"y"
    os.kill(os.getpid(), signal.SIGUSR1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
threading.Thread(target=talk, daemon=True).start()
got = signal.sigwait(range(1, signal.NSIG))
assert got == signal.SIGUSR1, got
"""


def waits_for_all_signals(env):
    """main() in sigwait() gets its own signals, and the TAP's driver those for its frames."""
    with socket.create_server(("0.0.0.0", 7006)) as listener:
        listener.settimeout(WAIT_MAX_S)
        program = OnTap(env).start("python3", "-c", ALL_SIGNALS)
        sock = listener.accept()[0]
        sock.settimeout(WAIT_MAX_S)
        for _ in range(1000):
            exactly(sock, b"x")
            sock.sendall(b"y")
        check(program.wait(WAIT_MAX_S) == 0, program.story())


UNDISTURBED = """
import ctypes, socket
s = socket.create_connection(("10.9.1.1", 7007), 60)
s.sendall(b"waits")
c = ctypes.CDLL(None, use_errno=True)
assert c.poll(None, 0, 1000) == 0, ctypes.get_errno()
assert c.usleep(500000) == 0, ctypes.get_errno()
"""


def frames_end_no_call(env):
    """Signals for the TAP's driver do not interrupt the program's calls with EINTR."""
    with socket.create_server(("0.0.0.0", 7007)) as listener:
        listener.settimeout(WAIT_MAX_S)
        program = OnTap(env).start("python3", "-c", UNDISTURBED)
        sock = listener.accept()[0]
        sock.settimeout(WAIT_MAX_S)
        exactly(sock, b"waits")
        with contextlib.suppress(OSError):  # its end resets the connection
            while program.alive():
                sock.sendall(b"x")
        check(program.wait(WAIT_MAX_S) == 0, program.story())


def another_thread_exits(env):
    """exit() in another thread ends the program while main() is in a call of the stack or in an
    unhooked one."""
    pause = "ctypes.CDLL(None).syscall(34)"  # a system call by number, which no hook sees
    for number, waits in enumerate((pause, "s.recv(1)")):
        with socket.create_server(("0.0.0.0", 7010 + number)) as listener:
            program = OnTap(env).start("python3", "-c", f"""
import ctypes, socket, threading
s = socket.create_connection(("10.9.1.1", {7010 + number}), 60)
s.settimeout(None)
s.sendall(b"x" * 300000)
t = threading.Thread(target=ctypes.CDLL(None).exit, args=(3,))
t.start()
{waits}
""")
            sock = listener.accept()[0]
            sock.settimeout(WAIT_MAX_S)
            if waits == "s.recv(1)":
                exactly(sock, b"x" * 300000)
                check(sock.recv(1) == b"", "no end of the stream")
            else:  # the connection may stay open, but the program's end does not wait for it
                threading.Thread(target=take_all, args=[sock], daemon=True).start()
            check(program.wait(WAIT_MAX_S) == 3, program.story())


def take_all(sock):
    with contextlib.suppress(OSError):
        while sock.recv(1 << 16):
            pass


def computes(env):
    """A program that computes without calls can still be ended."""
    program = OnTap(env).start("python3", "-uc", "print('begins')\nwhile True: pass")
    eventually(lambda: "begins" in program.output("stdout"), WAIT_MAX_S, program.story)
    program.signal(signal.SIGTERM)
    status = program.wait(WAIT_MAX_S)
    check(status == -signal.SIGTERM, f"status {status}: {program.story()}")


def cancelled_threads(env):
    """pthread_cancel() ends a call that waits, and the thread after it, as on the kernel."""
    program = env.build / "tests/integration/cancelled-threads"
    wanted = command(program, "127.0.0.1", 7030)
    check(wanted.count(": cancelled") in (6, 4), wanted)  # 4 with AddressSanitizer
    got = OnTap(env).client(program, OURS, 7030)
    check(got == wanted, f"{got} instead of {wanted}")


WITHOUT_EXIT = """
import ctypes, os, signal, socket, subprocess
c = ctypes.CDLL(None)
s = socket.create_connection(("10.9.1.1", 7031), 60)
try:
    subprocess.run(["/nosuchprogram"])
except FileNotFoundError: # its child, made by vfork(), has called _exit()
    s.sendall(b"sent")
"""


def ends_without_exit(env):
    """_exit() and quick_exit() close the connections, also in a signal handler while a call waits,
    but not in a child."""
    for ends, wanted in (("os._exit(3)", 3), ("c._Exit(4)", 4), ("c.quick_exit(5)", 5),
                         ("c.signal(14, c._exit); c.alarm(1); s.settimeout(None); s.recv(1)", 14)):
        with socket.create_server(("0.0.0.0", 7031)) as listener:
            program = OnTap(env).start("python3", "-c", WITHOUT_EXIT + ends)
            sock = listener.accept()[0]
            sock.settimeout(WAIT_MAX_S)
            exactly(sock, b"sent")
            check(sock.recv(1) == b"", f"{ends}: more than was written")
            status = program.wait(WAIT_MAX_S)
            check(status == wanted, f"{ends}: status {status}: {program.story()}")


ACCEPTS = """
import socket
listener = socket.create_server(("10.9.0.1", 7032))
print("listens", flush=True)
while True:
    listener.accept()
"""
CONNECTS = "import socket; socket.create_connection(('10.9.0.1', 7032), 60)"


def unmaps_after_bursts(env):
    """When a memif client leaves, DPDK's thread waits for the bursts before it unmaps the rings."""
    library = env.build / "tests/integration/libseen-unmapping.so"
    near, far = pair(env)
    server = env.start([*near, "python3", "-c", ACCEPTS],
                       env={**os.environ, **without_leaks(), "LD_PRELOAD": preload_of(library)})
    eventually(lambda: "listens" in server.output("stdout"), WAIT_MAX_S, server.story)
    client = env.start([*far, "python3", "-c", CONNECTS], env={**os.environ, **without_leaks()})
    check(client.wait(WAIT_MAX_S) == 0, client.story())
    eventually(lambda: "seen-unmapping: after bursts" in server.output("stderr"),
               WAIT_MAX_S, server.story)
    server.kill()


def cases(env):
    for case in (cancelled_threads, signals, default_actions, handlers, computes, waits_for_threads,
                 threads_at_once, waits_for_all_signals, frames_end_no_call, another_thread_exits,
                 ends_without_exit, unmaps_after_bursts):
        if not env.args or case.__name__ in env.args:
            yield case.__name__.replace("_", " "), functools.partial(case, env)


if __name__ == "__main__":
    main(cases)
