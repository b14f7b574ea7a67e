"""Runs the wire program, and joins two network namespaces by it."""

import contextlib
import json
import re
import subprocess

from harness import WAIT_MAX_S, Namespace, check, command, eventually

HOSTS = ("10.7.0.1", "10.7.0.2")


def prediction(env):
    """The options of header prediction for our programs."""
    return ["--predict", "off"] if "predict-off" in env.args else []


class Wire:
    """A running wire and its counters."""

    def __init__(self, env, link_a, link_b, *options):
        """With --control among the options, configure() and now() work."""
        self.env = env
        self.json = env.scratch_for({}) / "wire.json"
        self.links = [link_a, link_b]
        self.argv = [env.build / "tests/wire/wire", "--link", link_a, "--link", link_b,
                     "--json", self.json, "--poll", "adaptive", *options]
        self.program = None

    @contextlib.contextmanager
    def running(self):
        ready = re.escape(f"forwarding {self.links[0]} <-> {self.links[1]}")
        with self.env.running(self.argv, ready=ready, stdin=subprocess.PIPE) as self.program:
            yield self

    def ask(self, line, answer):
        """Sends line, and returns the first new line on stdout that matches answer."""
        before = len(self.program.output("stdout"))
        self.program.process.stdin.write(line.encode() + b"\n")
        self.program.process.stdin.flush()
        found = []

        def answered():
            found[:] = re.findall(f"^{answer}$", self.program.output("stdout")[before:], re.M)
            return found or not self.program.alive()

        eventually(answered, WAIT_MAX_S, lambda: f"no answer to '{line}': {self.program.story()}")
        check(found, f"'{line}' ended it: {self.program.story()}")
        return found[0]

    def configure(self, line):
        """Changes the wire's settings; the change has taken effect on return."""
        self.ask(line, re.escape(f"changed: {line}"))

    def now(self):
        """Returns the counters so far: a dictionary with a_to_b and b_to_a."""
        return json.loads(self.ask("counters", r"\{.*\}"))

    def run_to_end(self, seconds=WAIT_MAX_S):
        """Runs a wire that ends by itself; returns its counters."""
        self.program = self.env.start(self.argv)
        status = self.program.wait(seconds)
        check(status == 0, f"exit status {status}: {self.program.story()}")
        return self.counters()

    def end(self):
        """Ends the wire with SIGTERM; returns its counters."""
        self.program.terminate()
        return self.counters()

    def counters(self):
        """Returns the counters of both directions; each frame must be accounted for."""
        report = json.loads(self.json.read_text())
        text = self.program.output("stdout")
        both = [report["a_to_b"], report["b_to_a"]]
        for (here, there), side in zip((self.links, self.links[::-1]), both):
            gone = sum(side[key] for key in ("out_frames", "too_big", "lost", "down",
                                            "queue_dropped", "overflowed", "no_frame", "under_way"))
            check(side["in_frames"] + side["duplicated"] == gone, f"frames went missing: {side}")
            check(f"{here} -> {there}: in_frames {side['in_frames']} " in text,
                  f"the text lacks the counters: {text}")
        return both


class Network:
    """Two network namespaces with a wire between them."""

    def __init__(self, env, wire, interfaces):
        self.env, self.wire, self.interfaces = env, wire, interfaces
        self.spaces = []

    def inside(self, end):
        """Returns the words that run a command at that end."""
        return self.spaces[end].inside()

    def join(self):
        for end, interface in enumerate(self.interfaces):
            self.spaces.append(Namespace(self.env))
            self.spaces[end].take_interface(interface)
            command(*self.inside(end), "ip", "addr", "add", f"{HOSTS[end]}/24", "dev", interface)
            command(*self.inside(end), "ip", "link", "set", interface, "up")
        return self

    def part(self):
        for space in self.spaces:
            space.close()


SOURCE = """
import socket, sys
conn = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    conn.sendall(bytes(65536))
"""
