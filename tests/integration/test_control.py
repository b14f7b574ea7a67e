#!/usr/bin/env python3
"""The control socket and the Prometheus page, by operators' tools.

dpdk-telemetry.py, coronet-ctl, curl and promtool query a coronet-echo under load; clients that are
silent, lie, flood and die do not harm it.
Usage: test_control.py BUILD_DIR SOURCE_ROOT [CASE...]
"""

import contextlib
import errno
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess

from harness import WAIT_MAX_S, Skip, check, command, eventually, main
from test_capture import check_sound, fields

CONNS = 200
MANY = 20000
MANY_SANITIZED = 3000
IDLE_STACK = 128  # bytes that a million idle connections keep
METRICS = "127.0.0.1:9464"
DEFAULT = "dpdk/rte/dpdk_telemetry.v2"


class Echo:
    """coronet-echo with its runtime folder, and the commands that query it."""

    def __init__(self, env, *options):
        self.env = env
        self.folder = env.scratch_for({})
        self.memif = self.folder / "e.sock"
        self.path = self.folder / DEFAULT
        self.argv = [env.app("coronet-echo"), "--link", f"memif:{self.memif},role=server",
                     "--addr", "10.9.0.1/16", "--poll", "adaptive", "--metrics", METRICS,
                     *options]
        self.environ = {**os.environ, "RUNTIME_DIRECTORY": str(self.folder)}

    def serve(self):
        return self.env.running(self.argv, env=self.environ)

    @contextlib.contextmanager
    def loaded(self, conns=CONNS, seconds=600):
        """The program under load, every connection established."""
        with self.serve() as server:
            load = self.env.start([
                self.env.app("coronet-load"), "--link", f"memif:{self.memif},role=client",
                "--addr", "10.9.1.9/16", "--target", "10.9.0.1:7777", "--poll", "adaptive",
                "--mode", "echo", "--conns", conns, "--seconds", seconds, "--report-limited",
                "--timeout", WAIT_MAX_S, "--control", "off"])
            eventually(lambda: self.counted("conns") == conns or not load.alive(), WAIT_MAX_S,
                       lambda: f"not all connect: {load.story()}")
            try:
                yield server
                check(server.alive(), f"it has ended: {server.story()}")
            finally:
                load.kill()

    def counted(self, what):
        return self.ask("/coronet/shards")["shards"][0][what]

    def join(self):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(str(self.path))
        client.settimeout(WAIT_MAX_S)
        return client

    def ask(self, request):
        with self.join() as client:
            greeting = json.loads(client.recv(1024))
            client.send(request.encode())
            return json.loads(client.recv(greeting["max_output_len"]))[request.split(",")[0]]

    def ctl(self, *words, status=0, **popen_args):
        """Returns coronet-ctl's output; that on stderr if it must fail."""
        done = subprocess.run([str(self.env.app("coronet-ctl")), *map(str, words)], check=False,
                              env=self.environ, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=WAIT_MAX_S, **popen_args)
        check(done.returncode == status, f"{words}: status {done.returncode}: {done.stderr}")
        if status:
            check(done.stderr.count("\n") == 1 and done.stdout == "",
                  f"{words}: not one line: {done.stdout} {done.stderr}")
        return done.stderr if status else done.stdout


def telemetry(env):
    """Runs DPDK's own client on its default path."""
    script = shutil.which("dpdk-telemetry.py")
    if not script:
        raise Skip("this Debian's dpdk-dev has no dpdk-telemetry.py")
    echo = Echo(env)
    with echo.loaded() as server:
        requests = ["/", "/info", "/coronet/conns", "/coronet/links", "/coronet/none",
                    "/coronet/conns,port=1", "quit"]
        done = subprocess.run([script], check=False, env=echo.environ, capture_output=True,
                              input="\n".join(requests), text=True, timeout=WAIT_MAX_S)
        check(done.returncode == 0, f"{done.stdout} {done.stderr}")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        answers = {key: value for line in lines for key, value in line.items()}
        check("/coronet/coros" in answers["/"], f"commands: {answers['/']}")
        check(answers["/info"]["pid"] == server.process.pid, f"{answers['/info']}")
        check(answers["/coronet/none"] is None, f"{answers['/coronet/none']}")
        check(answers["/coronet/conns"]["conns"] == [], "port=1 has connections")
        check(len(lines[2]["/coronet/conns"]["conns"]) > 8, f"{lines[2]}")
        link = answers["/coronet/links"]["links"][0]
        check(link["driver"] == "net_memif" and link["xstats"]["rx_good_packets"] > 0, f"{link}")


def tables(env):
    echo = Echo(env)
    with echo.loaded():
        rows = json.loads(echo.ctl("conns", "--json"))
        check(len(rows) == CONNS == len({row["id"] for row in rows}), f"{len(rows)} rows")
        ports = {int(row["peer"].split(":")[1]) for row in rows}
        some = min(ports)
        for filters, wanted in (("--port", some), 1), (("--port", "7777"), CONNS), (
                ("--peer", "10.9.1.9"), CONNS), (("--peer", "10.9.0.0/24"), 0), (
                ("--state", "established"), CONNS), (("--state", "syn-sent"), 0):
            found = len(json.loads(echo.ctl("conns", "--json", *filters)))
            check(found == wanted, f"{filters}: {found} of {wanted}")
        text = echo.ctl("conns", "--port", some)
        check(re.search(rf"^established +\d+ +\d+ +10\.9\.0\.1:7777 +10\.9\.1\.9:{some} .*"
                        r"conn in net_recv\n\tcubic rtt:\d+\.\d+/\d+\.\d+ rto:\d+ mss:1448 "
                        r"cwnd:\d+ .*retrans:\d+", text, re.MULTILINE), text)
        for what, line in {
                "listeners": r"^ +0  \*:7777 +listening +200 ",
                "shards": r"^ +0 +200 ", "coros": r"^conn +\w+ +(net_recv|-) .*peer 10\.9\.1\.9",
                "mem": r"^ +0 +\d.*(yes|no)$", "neigh": r"^10\.9\.1\.9 +[\da-f:]{17} +0  reach",
                "routes": r"^10\.9\.0\.0/16 ", "links": r"^0\.xstats\.rx_good_packets +\d+$",
                "log.level": r"^lib\.eal +\w+$"}.items():
            text = echo.ctl(what)
            check(re.search(line, text, re.MULTILINE), f"{what}: {text}")
            json.loads(echo.ctl(what, "--json"))
        stacks = [row["stack_bytes"] for row in json.loads(echo.ctl("coros", "--json"))
                  if row.get("in") == "net_recv"]
        check(stacks and (not env.released or max(stacks) <= IDLE_STACK),
              f"handlers that wait keep {stacks} bytes, not {IDLE_STACK}")
        text = echo.ctl("set", "log.level", "pmd.net.memif=debug")
        check(re.search(r"^pmd\.net\.memif +debug$", text, re.MULTILINE), text)
        check(echo.ctl("ask", "/info").startswith("{"), "ask /info")


def drop(env):
    """A connection is reset by its ID, which is invalid afterwards."""
    echo = Echo(env)
    with echo.loaded():
        row = json.loads(echo.ctl("conns", "--json"))[3]
        text = echo.ctl("conn", row["id"])
        check(re.search(rf"^peer +{re.escape(row['peer'])}$", text, re.MULTILINE), text)
        check(echo.ctl("drop", row["id"]) == f"reset {row['id']}, peer {row['peer']}\n", "drop")
        error = echo.ctl("drop", row["id"], status=1)
        check("it has ended" in error, error)
        port = row["peer"].split(":")[1]
        left = json.loads(echo.ctl("conns", "--json", "--port", port))
        check(not any(other["id"] == row["id"] for other in left), f"{left}")


def capture(env):
    """A running program's packets, read by tshark: with limits, and until it is stopped."""
    echo = Echo(env)
    folder = env.scratch_for({})
    path = folder / "a.pcapng"

    def status():
        return json.loads(echo.ctl("capture", "status", "--json"))
    with echo.loaded():
        check(echo.ctl("capture", "status") == f"{'state':<28} none\n", "before the first")
        check(status() == {"state": "none"}, f"{status()}")
        ports = sorted(int(row["peer"].split(":")[1])
                       for row in json.loads(echo.ctl("conns", "--json")))
        # A relative path is relative to coronet-ctl's folder.
        text = echo.ctl("capture", "a.pcapng", "tcp", "port", ports[0], cwd=folder)
        check(text == f"capturing to {path}; coronet-ctl capture stop ends it\n", text)
        error = echo.ctl("capture", folder / "b.pcapng", status=1)
        check(f"a capture into '{path}' is running" in error and not (folder / "b.pcapng").exists(), error)
        eventually(lambda: status()["packets"] > 4, WAIT_MAX_S, lambda: f"no packets: {status()}")
        check(status()["state"] == "runs", f"{status()}")
        text = echo.ctl("capture", "stop")
        check(re.match(rf"state +stopped\nfile +{path}\npackets +\d+\n", text), text)
        check_sound(path)
        found = fields(path, "tcp.srcport", "tcp.dstport")
        check(len(found) == status()["packets"], f"{len(found)} in the file, {status()}")
        check(set(found) == {(str(ports[0]), "7777"), ("7777", str(ports[0]))}, f"{set(found)}")
        check(path.stat().st_mode & 0o777 == 0o600, "others may read it")
        check(path.stat().st_size == status()["bytes"], f"{status()}")
        answer = json.loads(echo.ctl("capture", path, "--packets", 9, "--snap", 60, "--bytes", "1M",
                                     "--json"))
        check(answer["file"] == str(path), f"{answer}")
        eventually(lambda: status()["state"] == "full", WAIT_MAX_S, lambda: f"{status()}")
        found = fields(path, "frame.cap_len")
        check(len(found) == 9 and max(int(n) for n, in found) == 60, f"{found}")
        check(json.loads(echo.ctl("capture", "stop", "--json"))["state"] == "full", "over already")


def errors(env):
    """Each error is one line that says what to do."""
    echo = Echo(env)
    with echo.serve() as server:
        mode = stat.S_IMODE(echo.path.stat().st_mode)
        check(mode == 0o600, f"mode {mode:o}")
        for words, status, wanted in (
                (["--control", echo.folder / "none", "conns"], 1, "no such socket; start the"),
                (["--control", "/etc/passwd", "conns"], 1, "this file is not a socket"),
                (["conns", "--state", "open"], 1, "expected a state of TCP"),
                (["conns", "--peer", "x"], 1, "expected an address or a network"),
                (["conn", "7"], 1, "expected the ID of a connection"),
                (["ask", "/none"], 1, "does not know /none"),
                (["set", "log.level", "x"], 1, "'x': expected [COMPONENT=]LEVEL"),
                (["set", "log.level", "coronet.con=debug"], 1, "no such component"),
                (["capture"], 2, "capture FILE [FILTER]"),
                (["capture", ""], 2, "expected a file"),
                (["capture", "a,b"], 2, "comma"),
                (["capture", "/none/a"], 1, "cannot write '/none/a': No such file"),
                (["capture", "/dev/null"], 1, "not a plain file"),
                (["capture", echo.folder / "a", "tcp", "port"], 1, "the filter 'tcp port'"),
                (["capture", echo.folder / "a", "x" * 1200], 2, "too long"),
                (["capture", echo.folder / "a", "--bytes", "7"], 1, "with a size from 1K on"),
                (["capture", echo.folder / "a", "--packets", "0"], 1, "a whole number from 1 on"),
                (["capture", echo.folder / "a", "--snap", "9999"], 1, "from 1 to 9216"),
                (["capture", "stop", "--snap", "9"], 2, "capture stop takes no"),
                (["capture", "status", "x"], 2, "expected coronet-ctl capture status\n"),
                (["conns", "--packets", "9"], 2, "conns takes no --bytes"),
                (["ask", "/coronet/capture.start,a"], 1, "expected an absolute path"),
                (["ask", "/coronet/capture.start"], 1, "expected the name of a file"),
                (["nonsense"], 2, "unknown command"), ([], 2, "a command is missing"),
                (["mem", "--port", "7"], 2, "mem takes no"), (["conn"], 2, "conn ID")):
            text = echo.ctl(*words, status=status)
            check(wanted in text, f"{words}: {text}")
        for words in (["shards"], ["links", "--json"]):  # the answer is lost
            with open("/dev/full", "wb") as full:
                done = subprocess.run([env.app("coronet-ctl"), *words], check=False, stdout=full,
                                      stderr=subprocess.PIPE, text=True, env=echo.environ)
            check(done.returncode == 1 and "standard output: No space left" in done.stderr,
                  f"{words}: {done}")
        second = env.start(echo.argv[:2] + [f"memif:{echo.folder}/f.sock,role=server",
                                            "--addr", "10.8.0.1/16", "--control", echo.path])
        check(second.wait(WAIT_MAX_S) == 1 and
              "another program uses this socket" in second.output("stderr"), second.story())
        second = env.start([*echo.argv[:2], "ring:r", "--addr", "10.8.0.1/16", "--control", "off",
                            "--metrics", METRICS])
        check(second.wait(WAIT_MAX_S) == 1 and second.output("stderr").endswith(
            f"--metrics {METRICS}: Address already in use; another program listens there "
            "('ss -ltnp' names it): choose another port for one of the two\n"), second.story())
        user = env.ordinary_user()
        if user and os.getuid() == 0:
            echo.folder.chmod(0o755)
            for folder in (echo.folder / "dpdk", echo.folder / "dpdk/rte"):
                folder.chmod(0o755)
            build = env.readable_build(user)
            done = subprocess.run([build / "apps/coronet-ctl", "--control", echo.path, "conns"],
                                  check=False, capture_output=True, text=True, **user)
            check(done.returncode == 1 and "permission denied" in done.stderr, f"{done}")
        server.kill()
        check(echo.path.exists(), "a killed program cannot remove its socket")
        check("nobody listens" in echo.ctl("conns", status=1), "a stale socket")
    with echo.serve() as server:  # takes the path over
        check(echo.ask("/info")["pid"] == server.process.pid, "another answers")
        server.terminate()
        check(not echo.path.exists(), "the socket is left behind")


def foreign_program(env):
    """A foreign program's answer is reported, and it gets no request."""
    folder = env.scratch_for({})
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(folder / "s"))
        server.listen()
        for greeting, wanted in ((b'{"version":"DPDK 22.11.11","pid":1,"max_output_len":16384}',
                                  "is 'DPDK 22.11.11', not coronet"),
                                 (b"hello", "does not speak"), (b"", "closed the connection")):
            ctl = env.start([env.app("coronet-ctl"), "--control", folder / "s", "conns"])
            with server.accept()[0] as client:
                if greeting:
                    client.send(greeting)
            check(ctl.wait(WAIT_MAX_S) == 1 and wanted in ctl.output("stderr"), ctl.story())


def curl(*words):
    done = subprocess.run(["curl", "-sS", "--max-time", str(WAIT_MAX_S), *words], check=False,
                          capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    return done.stdout


def names_in(page):
    """Returns the names of a page's series, without labels."""
    return {re.match(r"[a-z_0-9]+", line)[0] for line in page.splitlines()
            if line and not line.startswith("#")}


def prometheus(env):
    promtool = shutil.which("promtool")
    check(promtool, "promtool is missing: prometheus")
    echo = Echo(env)
    with echo.loaded():
        page = curl(f"http://{METRICS}/metrics")
        done = subprocess.run([promtool, "check", "metrics"], check=False, input=page,
                              capture_output=True, text=True)
        check(done.returncode == 0 and not done.stdout + done.stderr,
              f"promtool: {done.stdout}{done.stderr}")
        check(f'coronet_connections{{shard="0",state="open"}} {CONNS}\n' in page, page)
        check(int(re.search(r"^coronet_receive_frames_total\S+ (\d+)", page, re.MULTILINE)[1])
              > CONNS, page)
        eventually(lambda: not re.search(r"^coronet_rtt_seconds_count\S+ 0$",
                                         curl(f"http://{METRICS}/metrics"), re.MULTILINE),
                   WAIT_MAX_S, "no round trip is counted")
        head = curl("-I", f"http://{METRICS}/metrics")
        check("text/plain; version=0.0.4" in head, head)
        check(curl("-o", "/dev/null", "-w", "%{http_code}", f"http://{METRICS}/x") == "404", "x")
        board = json.loads((pathlib.Path(env.args[0]) / "docs/grafana-coronet.json").read_text())
        asked = set(re.findall(r"coronet_[a-z_]+", " ".join(
            target["expr"] for panel in board["panels"] for target in panel.get("targets", ()))))
        check(len(asked) > 10, f"the dashboard asks for {asked}")
        own = {name for name in asked if not re.match("coronet_(proxy|httpd)_", name)}
        check(own <= names_in(page), f"nobody serves {own - names_in(page)}")
        check(len(asked - own) > 8, f"of coronet-proxy and coronet-httpd: {asked - own}")
    # Metrics of idle programs, with those that a program adds.
    for app, options in (("coronet-httpd", []), ("coronet-proxy", ["--port", "80", "--to",
                                                                   "web=10.9.0.2:80"])):
        served = f"coronet_{app.removeprefix('coronet-')}_"
        with env.running([env.app(app), *echo.argv[1:], *options], env=echo.environ):
            page = curl(f"http://{METRICS}/metrics")
        wanted = {name for name in asked if name.startswith(served)}
        check(wanted <= names_in(page), f"{app} does not serve {wanted - names_in(page)}")
        done = subprocess.run([promtool, "check", "metrics"], check=False, input=page,
                              capture_output=True, text=True)
        check(done.returncode == 0 and not done.stdout + done.stderr, f"{app}: {done}")


def own_address(env):
    """Prometheus reaches the page by the stack's own addresses, on every shard."""
    for host, url in (("10.9.0.1", "10.9.0.1:9464"), ("fd00:9::1", "[fd00:9::1]:9464")):
        path = env.scratch_for({}) / "c"
        with env.running([env.app("coronet-echo"), "--link", "tap:cm0", "--addr", "10.9.0.1/16",
                          "--addr", "fd00:9::1/64", "--poll", "adaptive", "--shards", "2",
                          "--control", path, "--metrics", url]) as server:
            command("ip", "addr", "add", "10.9.1.1/16", "dev", "cm0")
            command("ip", "addr", "add", "fd00:9::2/64", "dev", "cm0", "nodad")
            command("ip", "link", "set", "cm0", "up")
            page = curl(f"http://{url}/metrics")
            done = subprocess.run(["promtool", "check", "metrics"], check=False, input=page,
                                  capture_output=True, text=True)
            check(done.returncode == 0 and not done.stdout + done.stderr, f"promtool: {done}")
            shards = functools.partial(re.findall, r'^coronet_accepts_total{shard="\d"} [1-9]')
            eventually(lambda: len(shards(curl(f"http://{url}/metrics"), re.MULTILINE)) == 2,
                       WAIT_MAX_S, "one shard has all clients")
            head = curl("-I", f"http://{url}/metrics")
            check("text/plain; version=0.0.4" in head, head)
            check(curl("-o", "/dev/null", "-w", "%{http_code}", f"http://{url}/x") == "404", "x")
            done = subprocess.run([env.app("coronet-ctl"), "--control", path, "listeners"],
                                  check=True, capture_output=True, text=True)
            check(done.stdout.count(" metrics\n") == 2, done.stdout)
            # More clients than slots send nothing, half of a request, or no request.
            silent = [socket.create_connection((host, 9464), WAIT_MAX_S) for _ in range(40)]
            for client in silent[:-4]:
                with contextlib.suppress(ConnectionError):  # it was displaced
                    client.send(b"GET /metr")
            silent[-2].send(b"x" * 5000)
            silent[-1].send(b"GET /metrics HTTP/1.1\r\n\r\n" + b"x" * 100000)
            for _ in range(20):
                with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as lost:
                    lost.setblocking(False)
                    lost.connect_ex((host, 9464))
            check("coronet_shards 2" in curl(f"http://{url}/metrics"), "no page")
            for client in silent:  # no client keeps a slot forever
                with contextlib.suppress(ConnectionResetError):
                    while client.recv(65536):
                        pass
                client.close()
            with socket.create_connection((host, 9464), WAIT_MAX_S) as waits:
                waits.send(b"GET /metr")
                server.terminate()
    # An unused address, and one without a port.
    for where, wanted in (("10.9.9.9:9464", "or an address of --addr"), ("10.9.0.1", "or of --addr")):
        program = env.start([env.app("coronet-echo"), "--link", "ring:r", "--addr", "10.9.0.1/16",
                             "--metrics", where])
        check(program.wait(WAIT_MAX_S) in (1, 2) and wanted in program.output("stderr"),
              program.story())


def link_names(env):
    """Links whose names begin alike have series of their own; a name may have any bytes."""
    folder = env.scratch_for({})
    names = [folder / "the-uplink-left.sock", folder / "the-uplink-right.sock",
             folder / "\udcff\u00e4\"\\.sock"]  # a byte that is no character
    links = [word for number, name in enumerate(names)
             for word in ("--link", f"memif:{name},role=server", "--addr", f"10.{number}.0.1/16")]
    with env.running([env.app("coronet-echo"), *links, "--poll", "adaptive", "--control",
                      folder / "c", "--metrics", METRICS]):
        page = subprocess.run(["curl", "-s", f"http://{METRICS}/metrics"], check=True,
                              capture_output=True, timeout=WAIT_MAX_S).stdout.decode()
        shown = [f"memif:{names[0]}", f"memif:{names[1]}",
                 f'memif:{folder}/?\u00e4\\"\\\\.sock']
        check(re.findall(r'^coronet_link_up{link="(.*)"} 0$', page, re.MULTILINE) == shown, page)
        done = subprocess.run([env.app("coronet-ctl"), "--control", folder / "c", "--json",
                               "links"], check=True, capture_output=True, timeout=WAIT_MAX_S)
        check([link["name"] for link in json.loads(done.stdout.decode())]
              == [*shown[:2], f'memif:{folder}/?\u00e4"\\.sock'], f"{done}")


def moved_page(env):
    """The Prometheus page is added, moved and removed at run time."""
    path = env.scratch_for({}) / "c"
    base = [env.app("coronet-proxy"), "--addr", "10.9.0.1/16", "--poll", "adaptive", "--listen",
            "10.9.0.1:7777", "--to", "10.9.1.1:9", "--health-interval", 0, "--control", path]

    def ctl(*words, status=0, key="metrics"):
        done = subprocess.run([env.app("coronet-ctl"), "--control", path, "--json", *words],
                              check=False, capture_output=True, text=True, timeout=WAIT_MAX_S)
        check(done.returncode == status, f"{words}: {done}")
        return done.stderr if status else json.loads(done.stdout)[key]

    def served(url):
        return re.search(r"^coronet_shards [12]$", curl(f"http://{url}/metrics"), re.MULTILINE)

    def refused(port, host="127.0.0.1"):
        with socket.socket() as sock:
            return sock.connect_ex((host, port)) == errno.ECONNREFUSED

    with env.running([*base, "--link", "ring:r"]):
        check(ctl("metrics") == "off", "a page that nobody asked for")
        check(ctl("set", "metrics", "127.0.0.1:9465") == "127.0.0.1:9465", "not there")
        check(served("127.0.0.1:9465"), "no page")
        check(ctl("set", "metrics", "127.0.0.1:9465") == "127.0.0.1:9465", "not twice")
        check(ctl("set", "metrics", "[::1]:9466") == "[::1]:9466", "did not move")
        check(served("[::1]:9466") and refused(9465), "still at its old address")
        for wrong, why in (("127.0.0.1", "expected an address and a port"),
                           ("10.9.9.9:9464", "Cannot assign requested address")):
            check(why in ctl("set", "metrics", wrong, status=1), wrong)
        check(ctl("metrics") == "[::1]:9466" and served("[::1]:9466"), "a mistake moved it")
        check(ctl("set", "metrics", "off") == "off" and ctl("metrics") == "off", "not off")
        check(ctl("set", "metrics", "127.0.0.1:9466") == "127.0.0.1:9466", "not on again")
        check(served("127.0.0.1:9466"), "no page")
        # The kernel's addresses of the same port exclude each other.
        for at in ("0.0.0.0:9466", "127.0.0.1:9466"):
            check(ctl("set", "metrics", at) == at and served("127.0.0.1:9466"), at)
        check("Cannot assign" in ctl("set", "metrics", "10.9.9.9:9466", status=1), "not refused")
        check(ctl("metrics") == "127.0.0.1:9466" and served("127.0.0.1:9466"), "a mistake moved it")
    # To the stack's own network and back, with two shards that listen or none.
    with env.running([*base, "--link", "tap:cm0", "--shards", 2]):
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "cm0")
        command("ip", "link", "set", "cm0", "up")
        for _ in range(2):
            for at in ("10.9.0.1:9464", "10.9.0.1:9465", "127.0.0.1:9464"):
                check(ctl("set", "metrics", at) == ctl("metrics") == at, at)
                check(all(served(at) for _ in range(8)), f"no page at {at}")
                if at != "10.9.0.1:9464":
                    check(all(refused(9464, "10.9.0.1") for _ in range(8)), "still there")
        ctl("addr", "add", "10.9.0.7/16", key="added")
        check(ctl("set", "metrics", "10.9.0.7:9464") == "10.9.0.7:9464", "not there")
        check(all(served("10.9.0.7:9464") for _ in range(8)), "no page at an added address")
        check(ctl("set", "metrics", "127.0.0.1:9464") == "127.0.0.1:9464", "not back")
        check("10.9.0.1:7777: shard 0 listens there already" in
              ctl("set", "metrics", "10.9.0.1:7777", status=1), "a port that is taken")
        check(ctl("metrics") == "127.0.0.1:9464" and served("127.0.0.1:9464"), "a mistake moved it")
        ctl("set", "metrics", "10.9.0.1:9464")
        with socket.create_connection(("10.9.0.1", 9464), WAIT_MAX_S) as half:
            half.send(b"GET /metr")
            check(ctl("set", "metrics", "off") == ctl("metrics") == "off", "not off")
            check(all(refused(9464, "10.9.0.1") for _ in range(8)), "still there")
            half.send(b"ics HTTP/1.1\r\n\r\n")  # an existing client is served
            check(b"200 OK" in half.recv(65536), "a client was forgotten")


def walk(env):
    """20,000 connections are listed, a few a round, while others echo."""
    many = MANY_SANITIZED if env.sanitized else MANY
    echo = Echo(env, "--counted-conns", many)
    with echo.loaded(many):
        before = echo.counted("rx_frames")
        seen, params = set(), ""
        while params is not None:
            page = echo.ask("/coronet/conns" + params)
            seen.update(row["id"] for row in page["conns"])
            # eight a round, plus the rest of the last bucket
            check(len(page["conns"]) <= 12 * page["rounds"], f"{len(page['conns'])} connections "
                  f"in {page['rounds']} rounds")
            params = f",cursor={page['next']}" if "next" in page else None
        check(len(seen) == many, f"{len(seen)} of {many}")
        eventually(lambda: echo.counted("rx_frames") > before + 1000, WAIT_MAX_S, "nothing moves")


def attacks(env):
    """Silent, lying, flooding and dying clients, of both kinds."""
    echo = Echo(env)
    with echo.loaded():
        host, port = METRICS.split(":")
        silent = [echo.join() for _ in range(40)]
        slow = [socket.create_connection((host, int(port))) for _ in range(40)]
        for client in slow:
            client.send(b"GET /metr")
        flood = echo.join()
        flood.settimeout(0)
        with contextlib.suppress(OSError):
            for _ in range(100000):
                flood.send(b"/coronet/conns")
        for size in (1, 100, 1024, 5000, 60000):
            with echo.join() as liar:
                liar.send(os.urandom(size))
            with socket.create_connection((host, int(port))) as liar, contextlib.suppress(OSError):
                liar.sendall(os.urandom(size))
        for _ in range(20):  # gone before the answer
            with echo.join() as dying:
                dying.send(b"/coronet/conns")
            with socket.create_connection((host, int(port))) as dying:
                dying.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        check(echo.counted("conns") == CONNS, "connections were lost")
        check("coronet_shards 1" in curl(f"http://{METRICS}/metrics"), "no page")
        before = echo.counted("rx_frames")
        eventually(lambda: echo.counted("rx_frames") > before, WAIT_MAX_S, "nothing moves")
        for client in (*silent, *slow, flood):
            client.close()


def stopped_program(env):
    """A stopped program is named, and no client waits forever."""
    echo = Echo(env)
    with echo.serve() as server:
        eventually(echo.path.exists, WAIT_MAX_S, "no socket")
        threads = [int(task) for task in os.listdir(f"/proc/{server.process.pid}/task")]
        check(len(threads) > 1, "no threads")
        server.signal(signal.SIGSTOP)
        ctl = env.start([env.app("coronet-ctl"), "--control", echo.path, "shards"])
        status = ctl.wait(WAIT_MAX_S)
        server.signal(signal.SIGCONT)
        check(status == 1 and "no answer for 10 s" in ctl.output("stderr"), ctl.story())


def cases(env):
    for function in (telemetry, tables, drop, capture, errors, foreign_program, prometheus,
                     own_address, link_names, moved_page, walk, attacks, stopped_program):
        if not env.args[1:] or function.__name__ in env.args[1:]:
            yield (f"control: {function.__name__.replace('_', ' ')}",
                   functools.partial(function, env))


if __name__ == "__main__":
    main(cases)
