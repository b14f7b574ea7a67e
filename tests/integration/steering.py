"""Helpers of the tests that steer coronet-proxy: its file, its load, and what it prints."""

import signal
import threading

from harness import WAIT_MAX_S, Failure, check, eventually
from proxies import check_echo, dial_proxy


class Config:
    """A file of --config that is written again while the program runs."""

    def __init__(self, env, *lines):
        self.path = env.scratch / "edge.conf"
        self.write(*lines)

    def write(self, *lines):
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.path)

    def reload(self, proxy, *lines, says="reloaded"):
        """Writes the file, sends SIGHUP, and waits for the line that contains says."""
        before = proxy.output("stderr").count(says)
        self.write(*lines)
        proxy.signal(signal.SIGHUP)
        eventually(lambda: proxy.output("stderr").count(says) > before, WAIT_MAX_S,
                   lambda: f"no '{says}': {proxy.story()}")
        return proxy.output("stderr").splitlines()[-1]


def backend_name(kind):
    """Returns the name that a new client's backend sends."""
    with dial_proxy(kind) as sock:
        return sock.recv(64)


def backend_names(kind, count=8):
    return {backend_name(kind) for _ in range(count)}


def await_line(proxy, text):
    eventually(lambda: text in proxy.output("stderr"), WAIT_MAX_S,
               lambda: f"nobody says '{text}': {proxy.story()}")


class Load:
    """Threads that connect, echo and close in a loop until the load is stopped."""

    def __init__(self, kind, clients=4):
        self.kind, self.stop = kind, threading.Event()
        self.done, self.errors = 0, []
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(clients)]

    def run(self):
        while not self.stop.is_set():
            try:
                check_echo(self.kind)
                self.done += 1
            except (OSError, Failure) as error:
                self.errors.append(error)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(WAIT_MAX_S)

    def more(self, count):
        """Waits until count more clients have been served."""
        goal = self.done + count
        eventually(lambda: self.done >= goal or self.errors, WAIT_MAX_S, "the load is stalled")
        check(not self.errors, f"{len(self.errors)} of the load failed: {self.errors[:1]}")
