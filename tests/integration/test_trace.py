#!/usr/bin/env python3
"""coronet-ctl trace of a kernel's connection, whole and with losses, and of a flood.

Usage: test_trace.py BUILD_DIR

coronet-echo and this namespace's kernel talk through tests/wire; followers come, go, stop and
do not read.
"""

import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess

from harness import WAIT_MAX_S, check, command, comment, eventually, main
from test_control import Echo
from wires import Wire

PORT = 7777
OURS, KERNELS = "10.7.0.1", "10.7.0.2"
CHUNK = 1 << 16
CAUSES = {"RACK", "TLP", "RTO", "MTU", "fast"}
WATCHES = 4


class Follower:
    """A running coronet-ctl trace, and its output."""

    def __init__(self, env, path, *words):
        self.program = env.start([env.app("coronet-ctl"), "--control", path, "trace", *words])

    def lines(self):
        return self.program.output("stdout").splitlines()

    def events(self):
        """Returns the events of --json; the last line may be incomplete."""
        text = self.program.output("stdout")
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def kinds(self):
        return [event["kind"] for event in self.events()]

    def await_kind(self, kind, **wanted):
        def found():
            return [event for event in self.events() if event["kind"] == kind
                    and all(event.get(key) == value for key, value in wanted.items())]
        eventually(lambda: found() or not self.program.alive(), WAIT_MAX_S,
                   lambda: f"no {kind} {wanted}: {self.program.story()}")
        check(found(), f"it has ended without {kind} {wanted}: {self.program.story()}")
        return found()[0]

    def end(self):
        """Ends it as by Ctrl-C."""
        self.program.signal(signal.SIGINT)
        status = self.program.wait(WAIT_MAX_S)
        check(status == 0, f"exit status {status}: {self.program.story()}")


@contextlib.contextmanager
def echo_beside_kernel(env, number, *options):
    """(coronet-echo's control socket, the wire) with the kernel at the other end."""
    folder, tap = env.scratch_for({}), f"tr{number}"
    wire = Wire(env, f"memif:{folder}/m.sock,role=server", f"tap:{tap}", "--control",
                "--delay", 5, "--seed", 5)
    with wire.running():
        command("ip", "addr", "add", f"{KERNELS}/16", "dev", tap)
        command("ip", "link", "set", tap, "up")
        with env.running([env.app("coronet-echo"), "--link", f"memif:{folder}/m.sock,role=client",
                          "--addr", f"{OURS}/16", "--port", PORT, "--poll", "adaptive",
                          "--control", folder / "c", *options]) as server:
            yield folder / "c", wire
            check(server.alive(), server.story())


def connect():
    sock = socket.create_connection((OURS, PORT), WAIT_MAX_S)
    sock.settimeout(WAIT_MAX_S)
    return sock


def port_of(sock):
    return sock.getsockname()[1]


def echo(sock, data):
    sock.sendall(data)
    back = b""
    while len(back) < len(data):
        more = sock.recv(CHUNK)
        check(more, "it was closed")
        back += more
    check(back == data, "another answer")


def rows(env, path):
    done = subprocess.run([env.app("coronet-ctl"), "--control", path, "conns", "--json"],
                          check=True, capture_output=True, text=True, timeout=WAIT_MAX_S)
    return json.loads(done.stdout)


def live_trace(env):
    """An existing and a later connection are traced, each line as it happens."""
    with echo_beside_kernel(env, 1) as (path, _), connect() as sock:
        peer = f"{KERNELS}:{port_of(sock)}"
        echo(sock, b"first")  # our end has accepted it, too
        follower = Follower(env, path, peer, "--json")
        begin = follower.await_kind("begin")
        check(begin["how"] == "already open" and begin["peer"] == peer, f"{begin}")
        check(follower.program.output("stderr") == "", f"{follower.program.story()}")
        echo(sock, b"x" * 100)
        segment = follower.await_kind("in", len=100)
        check(segment["seq"] == 1 and segment["flags"] == "P.", f"{segment}")
        check(follower.await_kind("out", len=100)["ack"] == 101, "the answer's ACK")
        done = follower.await_kind("done", call="net_send_view")
        check(done["result"] == 100 and done["coroutine"] == "conn", f"{done}")
        follower.await_kind("call", call="net_recv_view")
        with connect() as other:  # not the requested one
            echo(other, b"y" * 50)
        echo(sock, b"z")
        follower.await_kind("in", len=1)
        check({event["peer"] for event in follower.events()} == {peer}, "another's events")
        times = [event["time_us"] for event in follower.events()]
        check(times == sorted(times), f"not in order: {times}")
        by_id = Follower(env, path, begin["id"], "--json")
        by_id.await_kind("begin")
        later = Follower(env, path, f"{KERNELS}/16", "--port", PORT)
        eventually(lambda: f"{peer} begin " in later.program.output("stdout"), WAIT_MAX_S,
                   later.program.story)
        sock.close()
        check(by_id.program.wait(WAIT_MAX_S) == 0, f"{by_id.program.story()}")
        check(by_id.kinds()[-1] == "end", f"{by_id.kinds()}")
        follower.await_kind("state", state="last-ack")
        check(follower.await_kind("end")["why"] == "closed", f"{follower.events()}")
        follower.end()
        with connect() as again:
            echo(again, b"w" * 10)
            wanted = (rf"{KERNELS}:{port_of(again)} begin +accepted, {OURS}:{PORT}, ID 0-[0-9a-f-]+$",
                      r" in +\[P\.\] seq 1:11 ack 1 wnd \d+ len 10$",
                      r" done +net_recv_view = 10 after \d+\.\d{3} ms \(conn\)$",
                      r" call +net_send_view 10 bytes \(conn\)$",
                      r" out +\[P\.\] seq 1:11 ack 11 wnd \d+ len 10 cwnd \d+$")
            for line in wanted:
                eventually(lambda line=line: re.search(line, later.program.output("stdout"), re.M),
                           WAIT_MAX_S, lambda line=line: f"no {line}: {later.program.story()}")
        check(all(re.match(r"\d\d:\d\d:\d\d\.\d{6} ", line) for line in later.lines()),
              later.program.story())
        later.end()


def always_on(env):
    """With --trace-conns a connection's last events are recorded without a follower."""
    with echo_beside_kernel(env, 2, "--trace-conns", 1) as (path, _), connect() as sock, \
            connect() as second:
        echo(second, b"a" * 10)
        for _ in range(30):
            echo(sock, b"b" * 10)
        follower = Follower(env, path, f"{KERNELS}:{port_of(sock)}", "--json", "--count", 60)
        check(follower.program.wait(WAIT_MAX_S) == 0, follower.program.story())
        found = follower.events()
        check(len(found) == 60, f"{len(found)} events")
        check("begin" not in follower.kinds(), "the ring has not wrapped")
        check(sum(event.get("len") == 10 and event["kind"] == "in" for event in found) >= 8,
              f"{found}")
        follower = Follower(env, path, f"{KERNELS}:{port_of(second)}", "--json", "--seconds", 1)
        check(follower.program.wait(WAIT_MAX_S) == 0, follower.program.story())
        check(follower.events()[0]["how"] == "already open", "it has had a ring as well")


def by_id(env):
    """A connection is followed by its ID, and coronet-ctl ends after its last event."""
    with echo_beside_kernel(env, 5) as (path, _), connect() as sock:
        echo(sock, b"first")  # our end has accepted it, too
        row, = rows(env, path)
        follower = Follower(env, path, row["id"], "--json")
        follower.await_kind("begin", id=row["id"])
        sock.close()
        check(follower.program.wait(WAIT_MAX_S) == 0, follower.program.story())
        check("end" in follower.kinds(), follower.program.story())


def set_while_it_runs(env):
    """coronet-ctl set trace.conns applies to new connections."""
    with echo_beside_kernel(env, 4, "--shards", 2) as (path, _):
        def ctl(*words, status=0):
            done = subprocess.run([env.app("coronet-ctl"), "--control", path, *words], check=False,
                                  capture_output=True, text=True, timeout=WAIT_MAX_S)
            check(done.returncode == status, f"{words}: {done}")
            return done.stderr if status else done.stdout.split()

        def has_begin():
            with connect() as sock:
                echo(sock, b"x" * 10)
                follower = Follower(env, path, f"{KERNELS}:{port_of(sock)}", "--json", "--count", 1)
                check(follower.program.wait(WAIT_MAX_S) == 0, follower.program.story())
                return follower.events()[0]["how"] == "accepted"

        check(ctl("trace.conns") == ["trace_conns", "0"], "rings at first")
        check(not has_begin(), "a ring that nobody asked for")
        check(ctl("set", "trace.conns", "5000") == ["trace_conns", "5000"], "not set")
        check(all(has_begin() for _ in range(8)), "a shard keeps none")
        ctl("set", "trace.conns", "0")
        check(not has_begin(), "rings for ever")
        for wrong in ("x", "+1", "100001", "1x"):
            check("from 0 to 100000" in ctl("set", "trace.conns", wrong, status=1), wrong)
        check(ctl("trace.conns") == ["trace_conns", "0"], "a mistake changed it")


def losses(env):
    """Lost segments are resent, and the trace shows each time why."""
    with echo_beside_kernel(env, 3, "--trace-conns", 1) as (path, wire), connect() as sock:
        follower = Follower(env, path, f"{KERNELS}:{port_of(sock)}", "--json")
        follower.await_kind("begin")
        echo(sock, b"c" * CHUNK)  # the handshake and this have measured the round trip
        wire.configure("both loss=4")
        resent, cuts = [], []
        # both causes, since after an RTO RACK resends without another reduction
        while not (cuts and "RACK" in {event["resent"] for event in resent}):
            echo(sock, os.urandom(CHUNK))
            resent = [event for event in follower.events() if "resent" in event]
            cuts = [event for event in follower.events() if event["kind"] == "cwnd"
                    and event.get("why") == "loss"]
            check(follower.program.alive(), follower.program.story())
        wire.configure("both loss=0")
        echo(sock, b"d" * 1000)
        check({event["resent"] for event in resent} <= CAUSES, f"{resent}")
        check(all(event["len"] > 0 or "F" in event["flags"] for event in resent), f"{resent}")
        check(cuts[0]["ssthresh"] < 1 << 30, f"{cuts}")
        follower.end()
        traced = sum("resent" in event for event in follower.events())
        missed = sum(event["events"] for event in follower.events() if event["kind"] == "missed")
        counted = rows(env, path)[0]["retransmits"]
        check(traced <= counted <= traced + missed,
              f"{counted} resent, {traced} traced, {missed} missed")
        comment(f"{counted} sent again; by cause: " + ", ".join(
            f"{cause} {sum(event['resent'] == cause for event in resent)}"
            for cause in sorted({event["resent"] for event in resent})))


def refusals(env):
    """Errors are one line that says what to do: too many followers, wrong peers."""
    server = Echo(env)
    with server.serve():
        for words, status, wanted in (
                (["trace"], 2, "expected a PEER"),
                (["trace", "a", "b"], 2, "expected coronet-ctl trace [PEER]"),
                (["trace", "nobody"], 1, "'nobody': expected a peer"),
                (["trace", "10.9.0.1:99999"], 1, "expected a peer"),
                (["trace", "10.9.0.1,port=1"], 2, "expected a PEER"),
                (["trace", "0-0-0-0"], 1, "no connection 0-0-0-0"),
                (["trace", "10.9.0.1", "--count", "0"], 2, "a whole number from 1"),
                (["trace", "10.9.0.1", "--seconds", "x"], 2, "a whole number from 1"),
                (["trace", "10.9.0.1", "--snap", "9"], 2, "trace takes no"),
                (["conns", "--count", "9"], 2, "conns takes no --count"),
                (["conns", "--peer", "a,b"], 2, "--peer 'a,b': expected one value, without a comma"),
                (["conns", "--nonsense"], 2, "unrecognized option '--nonsense'"),
                (["ask", "/coronet/trace"], 1, "watches no connection"),
                (["ask", "/coronet/trace.start,x=1"], 1, "expected peer=")):
            text = server.ctl(*words, status=status)
            check(wanted in text, f"{words}: {text}")
        waiting = [Follower(env, server.path, "10.1.2.3") for _ in range(WATCHES)]
        for follower in waiting:
            eventually(lambda follower=follower: "no such connection yet"
                       in follower.program.output("stderr"), WAIT_MAX_S, follower.program.story)
        check("too many tracing clients" in server.ctl("trace", "10.1.2.3", status=1), "a follower too many")
        waiting[0].program.kill()  # without a message, and its slot is free again
        eventually(lambda: subprocess.run(
            [env.app("coronet-ctl"), "--control", server.path, "trace", "10.1.2.3", "--seconds",
             "1"], check=False, capture_output=True, timeout=WAIT_MAX_S).returncode == 0,
                   WAIT_MAX_S, "the slot of a killed follower is not free")
        for follower in waiting[1:]:
            check(follower.lines() == [], follower.program.story())
            follower.end()


def shards(env):
    """Connections of every shard are each traced once and in order."""
    server = Echo(env, "--shards", 2)
    with server.serve():
        load = env.start([
            env.app("coronet-load"), "--link", f"memif:{server.memif},role=client", "--addr",
            "10.9.1.9/16", "--target", "10.9.0.1:7777", "--poll", "adaptive", "--mode", "echo",
            "--conns", 12, "--rate", 200, "--seconds", 600, "--control", "off"])
        def conns():
            return [row["conns"] for row in server.ask("/coronet/shards")["shards"]]

        eventually(lambda: all(conns()) and sum(conns()) == 12, WAIT_MAX_S,
                   lambda: f"not all on both shards: {conns()}; {load.story()}")
        follower = Follower(env, server.path, "10.9.1.9", "--json")
        # On a busy machine one shard may send hundreds of events before the other runs, and a
        # connection's first events may be overwritten, which it reports as missed.
        def ids(*kinds):
            return [event["id"] for event in follower.events() if event["kind"] in kinds]

        eventually(lambda: len(set(ids("begin", "missed"))) >= 12 and len(follower.events()) >= 500,
                   WAIT_MAX_S, lambda: f"no 12 connections: {follower.program.story()}")
        follower.end()
        events = follower.events()
        begins, traced = ids("begin"), {event["id"] for event in events}
        check({conn[0] for conn in traced} == {"0", "1"}, "one shard's alone")
        check(len(begins) == len(set(begins)) and len(traced) == 12, f"{begins} of {traced}")
        check(all(isinstance(event["time_us"], int) for event in events), "a time with an exponent")
        for conn in traced:
            times = [event["time_us"] for event in events if event["id"] == conn]
            check(times == sorted(times), f"{conn}: not in order: {times}")
        load.kill()


def attacks(env):
    """Followers that do not read, stop and die, under connections that come and go."""
    server = Echo(env, "--trace-conns", 4)
    with server.serve() as program:
        load = env.start([
            env.app("coronet-load"), "--link", f"memif:{server.memif},role=client", "--addr",
            "10.9.1.9/16", "--target", "10.9.0.1:7777", "--poll", "adaptive", "--mode", "cps",
            "--conns", 20, "--rate", 1000, "--seconds", 600, "--control", "off"])
        accepted = functools.partial(server.counted, "accepted")
        eventually(lambda: accepted() > 200 or not load.alive(), WAIT_MAX_S, load.story)
        stopped = Follower(env, server.path, "10.9.1.9", "--json")
        stopped.await_kind("end")
        stopped.program.signal(signal.SIGSTOP)
        deaf = [server.join() for _ in range(2)]
        for client in deaf:  # sends requests without end, and reads nothing
            client.settimeout(0)
            with contextlib.suppress(OSError):
                client.send(b"/coronet/trace.start,10.9.0.0/16")
                for _ in range(100000):
                    client.send(b"/coronet/trace")
        before = accepted()
        eventually(lambda: accepted() > before + 2000, WAIT_MAX_S,
                   "connections do not come any more")
        check(load.alive() and program.alive(), f"{load.story()} {program.story()}")
        stopped.program.signal(signal.SIGCONT)
        eventually(lambda: "events were missed" in stopped.program.output("stderr")
                   or "missed" in stopped.kinds(), WAIT_MAX_S, stopped.program.story)
        traced = len(stopped.events())
        eventually(lambda: len(stopped.events()) > traced + 200, WAIT_MAX_S, stopped.program.story)
        stopped.end()
        check({event["peer"].split(":")[0] for event in stopped.events()} == {"10.9.1.9"}, "peers")
        for client in deaf:
            client.close()
        for _ in range(WATCHES):  # their slots are free
            Follower(env, server.path, "10.1.2.3")
        load.kill()


def cases(env):
    for function in (live_trace, always_on, by_id, set_while_it_runs, losses, shards, refusals,
                     attacks):
        if not env.args or function.__name__ in env.args:
            yield f"trace: {function.__name__.replace('_', ' ')}", functools.partial(function, env)


if __name__ == "__main__":
    main(cases)
