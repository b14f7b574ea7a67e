#!/usr/bin/env python3
"""coronet-proxy controlled by coronet-ctl, and its Prometheus metrics.

Usage: test_proxy_control.py BUILD_DIR [CASE...]
"""

import contextlib
import json
import re
import subprocess

from harness import WAIT_MAX_S, check, chosen, command, eventually, main
from proxies import (MIB, Peer, Tap, check_broken, check_echo, dial_proxy, echo_bytes,
                     read_exactly, send_name)
from steering import Config, Load, await_line, backend_names
from stopped_shard import stopped_shard
from web import need_programs, run_curl


def metric(page, series, **labels):
    """Returns a value of a Prometheus page."""
    wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
    start = f"{series}{{{wanted}}} " if wanted else f"{series} "
    found = [line for line in page.splitlines() if line.startswith(start)]
    check(len(found) == 1, f"{start}: {found}")
    return float(found[0][len(start):])


class Control:
    """Runs coronet-ctl for a program with its own socket."""

    def __init__(self, env):
        self.path = env.scratch_for({}) / "c"
        self.ctl = env.app("coronet-ctl")
        self.options = ("--control", self.path)

    def __call__(self, *words, status=0):
        """Returns its output; one line of stderr if it must fail."""
        done = subprocess.run([str(self.ctl), "--control", str(self.path), *words], check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=WAIT_MAX_S)
        check(done.returncode == status, f"{words}: status {done.returncode}: {done.stderr}")
        check(not status or (done.stderr.count("\n") == 1 and not done.stdout), f"{done}")
        return done.stderr if status else done.stdout

    def backend(self, backend):
        return json.loads(self("backend", backend, "--json"))


def drain_by_control(env, kind):
    """Under load, drain and down stop new sessions and keep existing ones; ready allows new
    ones."""
    control = Control(env)
    with Peer(kind, echo_bytes) as one, Peer(kind, echo_bytes) as two, \
            kind.serve(env, "--to", f"one={one.at},weight=3", "--to", f"two={two.at}",
                       "--shards", "2", "--health-interval", "0",  # so that a check runs, too
                       *control.options) as proxy, contextlib.ExitStack() as later:
        stays = []
        for _ in range(16):
            stays.append(dial_proxy(kind))
            stays[-1].sendall(b"x")
            check(stays[-1].recv(1) == b"x", "the echo differs")
        stay = control.backend("one")["sessions"]
        check(stay >= 3, f"{stay} sessions at one")
        load = later.enter_context(Load(kind))
        for state in ("drain", "down"):
            load.more(20)
            text = control("backend", "one", state)
            check(re.search(rf"^one +{one.at} +{state} +up ", text, re.MULTILINE), text)
            load.more(8)  # sessions that chose it before have connected
            eventually(lambda: control.backend("one")["sessions"] == stay, WAIT_MAX_S,
                       lambda: f"not {stay} sessions stay: {control.backend('one')}")
            seen = one.seen
            load.more(40)
            check(one.seen == seen, f"a backend at {state} gets clients")
            for sock in stays:
                sock.sendall(b"y" * 1000)
                check(read_exactly(sock, 1000) == b"y" * 1000, f"a session was lost: {state}")
            sessions = control.backend("one")["sessions"]
            check(sessions == stay, f"{sessions} of {stay} sessions stay at {state}")
        control("backend", "one", "ready")
        seen = one.seen
        load.more(40)
        check(one.seen > seen, "ready again, and gets no client")
        for sock in stays:
            sock.close()
        later.close()
        eventually(lambda: control.backend("one")["sessions"] == 0, WAIT_MAX_S,
                   lambda: f"sessions stay: {control.backend('one')}")
        await_line(proxy, "backend one: state set to drain")


def backends_by_control(env, kind):
    """The table shows states, health, weights and the queue; errors are explained."""
    control = Control(env)
    with Peer(kind, echo_bytes) as one, kind.serve(
            env, "--to", f"one={one.at},weight=7,maxconn=1,check=none", "--to",
            f"two={kind.near}:9,state=down,backup", "--health-interval", "0.2", "--rise", "1",
            "--fall", "1", "--queue-timeout", "100", *control.options):
        eventually(lambda: control.backend("two")["health"] == "down", WAIT_MAX_S, "nobody checks")
        with dial_proxy(kind) as first, dial_proxy(kind) as second:
            first.sendall(b"x" * 1000)
            read_exactly(first, 1000)
            eventually(lambda: "queue: 1 wait" in control("backends"), WAIT_MAX_S,
                       lambda: control("backends"))
            names = [each["name"] for each in json.loads(control("conns", "--json"))]
            check("one" in names and "client" in names, f"{names}")
            text = control("backends")
            check(re.search(rf"^one +{one.at} +ready +up +1 +1 +7 +100 +1 +0 +0 .*no$", text,
                            re.MULTILINE), text)
            check(re.search(rf"^two +{kind.near}:9 +down +down +0 +0 +1 .*yes$", text,
                            re.MULTILINE), text)
            second.sendall(b"x" * 1000)
            first.close()
            read_exactly(second, 1000)
        answer = json.loads(control("backends", "--json"))
        check(answer["queue"]["queued"] == 1 and answer["queue"]["refused"] == 0, f"{answer}")
        eventually(lambda: control.backend("one")["sent_bytes"] == 2000 ==
                   control.backend("one")["received_bytes"], WAIT_MAX_S,
                   lambda: f"{control.backend('one')}")
        for words, status, wanted in (
                (["backend"], 2, "backend NAME [drain|ready|down]"),
                (["backend", "one", "drained"], 2, "expected drain, ready or down"),
                (["backend", "a,drain"], 2, "expected a name"), (["backend", ""], 2, "a name"),
                (["backend", "three", "drain"], 1, "there is no backend 'three'"),
                (["backend", "o" * 900], 1, "there is no backend 'oooo"),
                (["backend", "one", "ready", "now"], 2, "expected coronet-ctl backend"),
                (["backends", "one"], 2, "expected coronet-ctl backends\n"),
                (["reload", "now"], 2, "expected coronet-ctl reload\n"),
                (["ask", "/proxy/backend"], 1, "expected NAME"),
                (["ask", "/proxy/backend,one,x"], 1, "'x': expected drain, ready or down")):
            text = control(*words, status=status)
            check(wanted in text, f"{words}: {text}")
        check(control.backend("one")["state"] == "ready", "a mistake has changed something")


def reload_by_control(env, kind):
    """coronet-ctl reload waits until the files are read, and prints the result."""
    control = Control(env)
    with Peer(kind, send_name(b"one")) as one, Peer(kind, send_name(b"two")) as two:
        config = Config(env, f"to = one={one.at}")
        with kind.serve(env, "--config", config.path, *control.options) as proxy:
            for _ in range(5):
                config.write(f"to = one={one.at}", f"to = two={two.at}")
                check(control("reload") == "reloaded: 2 backends, 1 of them new, 0 gone\n", "two")
                check(control.backend("two")["state"] == "ready", "it is not there at once")
                config.write(f"to = one={one.at}")
                check(control("reload") == "reloaded: 1 backends, 0 of them new, 1 gone\n", "one")
                control("backend", "two", status=1)
            config.write("to = banana")
            error = control("reload", status=1)
            check("line 1" in error and "banana" in error and "nothing has changed" in error,
                  error)
            check(backend_names(kind, 3) == {b"one"}, "a wrong file changed something")
            check(json.loads(control("ask", "/proxy/reload.status"))["done"], "no end")
            check(proxy.alive(), proxy.story())


def reload_routes(env, kind):
    """A reload changes the routes of its file, also for sessions; those of coronet-ctl stay."""
    control = Control(env)
    far, other_net = "192.0.2.0/24", "198.51.100.0/24"
    command("ip", "addr", "add", "192.0.2.9/32", "dev", "lo")

    def routes():
        return [(row["to"], row["via"]) for row in json.loads(control("routes", "--json"))
                if "via" in row]

    with Peer(kind, echo_bytes, host="192.0.2.9") as one:
        to = [f"to = one={one.at}", "health-interval = 0", "eject-after = 0"]
        config = Config(env, *to, f"route = {far} via {kind.near}")

        def reload(*lines):
            config.write(*to, *lines)
            return control("reload")

        with kind.serve(env, "--config", config.path, "--shards", "3", *control.options) as proxy, \
                dial_proxy(kind) as stays:
            stays.sendall(b"before")
            check(read_exactly(stays, 6) == b"before", "the echo differs")
            check(reload(f"route = {far} via {kind.near}") ==
                  "reloaded: 1 backends, 0 of them new, 0 gone\n", "nothing has changed")
            check(reload() == "reloaded: 1 backends, 0 of them new, 0 gone; routes have changed\n",
                  "the route has gone")
            check(routes() == [], f"{routes()}")
            with contextlib.suppress(ConnectionResetError), dial_proxy(kind) as sock:
                check_broken(sock)
            stays.sendall(b"meanwhile")
            check(reload(f"gateway = {kind.near}").endswith("; routes have changed\n"), "gateway")
            check(routes() == [("0.0.0.0/0", kind.near)], f"{routes()}")
            check(read_exactly(stays, 9) == b"meanwhile", "the echo differs")
            check_echo(kind)
            control("route", "add", other_net, "via", kind.near)
            last = [f"route = {far} via {kind.other}", f"route = {far} via {kind.near}"]
            wanted = [(far, kind.other), (far, kind.near), (other_net, kind.near)]
            reload(*last)
            check(routes() == wanted, f"{routes()}")
            check_echo(kind)
            control("route", "del", far, "via", kind.other)
            check("changed" not in reload(*last), "it returns")
            check(routes() == wanted[1:], f"{routes()}")
            config.write(*to)
            with stopped_shard(proxy, 1):  # shard 2 has changed its routes by then
                error = control("reload", status=1)
            check("shard 1" in error and "nothing has changed" in error, error)
            for _ in range(16):
                check_echo(kind)
            check(routes() == wanted[1:], f"{routes()}")
            for line, reason in ((f"route = {far} via 10.7.0.1", "10.7.0.1: not in a network"),
                                 (f"route = {far}", "line 4: --route"),
                                 ("gateway = 224.0.0.1", "line 4: --gateway '224.0.0.1'")):
                config.write(*to, line)
                error = control("reload", status=1)
                check(reason in error and "nothing has changed" in error, error)
            check(routes() == wanted[1:], f"{routes()}")


def backend_metrics(env, kind):
    """Metrics of each backend pass promtool and have the right labels."""
    need_programs("promtool")
    page = "127.0.0.1:9465"
    with Peer(kind, echo_bytes) as one, kind.serve(
            env, "--to", f"one={one.at}", "--to", f"two={kind.near}:9", "--health-interval", "0",
            "--eject-after", "0", "--metrics", page) as proxy, Load(kind) as load:
        load.more(30)
        with dial_proxy(kind) as sock:
            sock.sendall(b"x" * (3 * MIB // 2))
            read_exactly(sock, 3 * MIB // 2)
            text = run_curl(f"http://{page}/metrics")
            sent = metric(text, "coronet_proxy_backend_sent_bytes_total", backend="one")
            check(sent >= MIB, f"{sent} bytes: a session is counted late")
        load.__exit__()
        done = subprocess.run(["promtool", "check", "metrics"], check=False, input=text,
                              capture_output=True, text=True)
        check(done.returncode == 0 and not done.stdout + done.stderr, f"{done}")

        def total(suffix, **labels):
            return metric(run_curl(f"http://{page}/metrics"), f"coronet_proxy_{suffix}", **labels)
        eventually(lambda: total("sessions") == 0, WAIT_MAX_S, "sessions stay")
        connects = total("backend_connects_total", backend="one")
        check(connects == one.seen > 30, f"{connects} connects, {one.seen} seen")
        check(total("backend_sent_bytes_total", backend="one") == 14 * load.done + 3 * MIB // 2 ==
              total("backend_received_bytes_total", backend="one"), "bytes")
        check(total("backend_connect_failures_total", backend="two", reason="refused") > 0, "refused")
        check(total("backend_connect_failures_total", backend="one", reason="refused") == 0, "one")
        for which in ("connect", "response"):
            check(total(f"backend_{which}_seconds_count", backend="one") == connects, which)
            check(total(f"backend_{which}_seconds_bucket", backend="one", le="10") == connects, which)
            check(0 < total(f"backend_{which}_seconds_sum", backend="one") < WAIT_MAX_S, which)
        check(total("backend_health", backend="one", health="up") == 1, "health")
        check(total("backend_state", backend="one", state="drain") == 0, "state")
        check(proxy.alive(), proxy.story())


CASES = [drain_by_control, backends_by_control, reload_by_control, reload_routes,
         backend_metrics]


def cases(env):
    yield from chosen(env, CASES, Tap())


if __name__ == "__main__":
    main(cases)
