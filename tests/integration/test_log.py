#!/usr/bin/env python3
"""Usage: test_log.py BUILD_DIR [CASE...]

The log of running programs: its destinations and levels, and full disks, stopped FIFO readers and
missing files, which block no client.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import time

from harness import WAIT_MAX_S, Failure, check, chosen, command, eventually, main
from test_control import Echo

USAGE = 2  # the exit status
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
ADDRESS = r"\d+\.\d+\.\d+\.\d+:\d+"
ID = r"\d+-[0-9a-f]{8}-[0-9a-f]+-[0-9a-f]+"
OPENED = (rf"coronet\.conn: event=opened local={ADDRESS} peer={ADDRESS} id={ID} name=- by=peer "
          r"handler=\S+( held=\d+)?")
CLOSED = (rf"coronet\.conn: event=closed local={ADDRESS} peer={ADDRESS} id={ID} name=- "
          r"reason=[a-z-]+ age_ms=\d+ bytes_in=\d+ bytes_out=\d+ retrans=\d+ unread=\d+ "
          r"unacked=\d+( held=\d+)?")
INFO = "coronet.conn=info"


def load(echo, *words, idle=False):
    """Runs coronet-load against the program, without errors. idle: it may have had no time."""
    program = echo.env.start([
        echo.env.app("coronet-load"), "--link", f"memif:{echo.memif},role=client", "--addr",
        "10.9.1.9/16", "--target", "10.9.0.1:7777", "--poll", "adaptive", "--control", "off",
        "--report-limited", *map(str, words)])
    status = program.wait(WAIT_MAX_S)
    check(status == 0 or idle and re.search(r"^ +errors +none$", program.output("stdout"), re.M),
          program.story())


def some_conns(echo, count=20):
    """Opens count connections, which echo a little and close."""
    load(echo, "--mode", "echo", "--conns", count, "--seconds", 1)


def many_conns(echo, enough):
    """Opens connections until there are enough; a busy machine takes longer."""
    deadline = time.monotonic() + WAIT_MAX_S
    while not enough():
        check(time.monotonic() < deadline, "too few connections")
        load(echo, "--mode", "cps", "--conns", 16, "--seconds", 2, idle=True)


def metric(echo, name):
    with socket.create_connection(("127.0.0.1", 9464)) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        page = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    return float(re.search(rf"^{name} (\S+)$", page, re.MULTILINE)[1])


def all_match(lines, *patterns):
    for line in lines:
        check(any(re.fullmatch(pattern, line) for pattern in patterns), f"a line: {line!r}")


# ---- levels ----


def quiet_by_default(env):
    """Thousands of connections are opened and closed without a line in the log."""
    echo = Echo(env)
    with echo.serve() as server:
        many_conns(echo, lambda: echo.counted("accepted") > 1000)
        server.terminate()
    check(server.output("stderr") == "", f"it says: {server.output('stderr')}")


def levels_live(env):
    """Levels are set at run time; events name connections like coronet-ctl."""
    echo = Echo(env)
    with echo.loaded(conns=5) as server:
        check("event=" not in server.output("stderr"), server.output("stderr"))
        levels = json.loads(echo.ctl("set", "log.level", INFO, "--json"))
        check(levels["coronet.conn"] == "info" and levels["coronet.dial"] == "notice", f"{levels}")
        check(levels["lib.eal"] == "warning", f"DPDK's own: {levels}")
        rows = json.loads(echo.ctl("conns", "--json"))
        echo.ctl("drop", rows[0]["id"])
        eventually(lambda: f"peer={rows[0]['peer']} id={rows[0]['id']} " in server.output("stderr"),
                   WAIT_MAX_S, lambda: f"no line of {rows[0]}: {server.story()}")
        line = next(line for line in server.output("stderr").splitlines() if rows[0]["id"] in line)
        check("event=closed" in line and "reason=drop" in line, line)
        # The slot is reused.
        eventually(lambda: "event=opened" in server.output("stderr"), WAIT_MAX_S, "none opens")
        echo.ctl("set", "log.level", "coronet.*=notice")
        before = server.output("stderr")
        all_match(before.splitlines(), OPENED, CLOSED)
        echo.ctl("drop", rows[1]["id"])
        eventually(lambda: echo.counted("conns") == 5, WAIT_MAX_S, "not opened again")
        check(server.output("stderr") == before, "it goes on")
        # One DPDK component is enabled, the others are not.
        text = echo.ctl("set", "log.level", "pmd.net.memif=debug")
        check(re.search(r"^pmd\.net\.memif +debug$", text, re.MULTILINE), text)
        check(re.search(r"^lib\.ethdev +warning$", text, re.MULTILINE), text)


def levels_at_the_start(env):
    """--log-level on the command line; a flood is bounded and summed up."""
    echo = Echo(env, "--log-level", f"{INFO},coronet.listen=info,coronet.echo=error")
    with echo.serve() as server:
        some_conns(echo)
        text = server.output("stderr")
        check("coronet.listen: event=listening local=*:7777 shard=0\n" in text, text)
        check(text.count("event=opened") >= 20, text)
        eventually(lambda: server.output("stderr").count("event=closed") >= 20, WAIT_MAX_S,
                   lambda: f"they do not end: {server.story()}")
        many_conns(echo, lambda: metric(echo, "coronet_log_held_lines_total") > 1000)
        some_conns(echo)
        server.terminate()
    lines = server.output("stderr").splitlines()
    check(len(lines) < 2000, f"{len(lines)} lines")
    check(any(re.search(r" held=[1-9]\d*$", line) for line in lines), "nobody says how many")
    # If the machine is too slow to read the pipe, lines are dropped, and that is logged.
    all_match(lines, OPENED, CLOSED, r"coronet\.listen: event=\w+ local=\*:7777 shard=0",
              r"coronet: \d+ lines of the log were dropped here: they could not be written in time")


def wrong_words(env):
    """Wrong levels and destinations are refused with a message."""
    fifo, nowhere = env.scratch / "fifo", env.scratch / "none/log"
    command("mkfifo", fifo)
    for option, value, said in (
            ("--log-level", "coronet.con=info", "'coronet.con': there is no such component"),
            ("--log-level", "pmd.net.nosuch=debug", "'pmd.net.nosuch': there is no such"),
            ("--log-level", "coronet.conn=loud", "expected [COMPONENT=]LEVEL"),
            ("--log-to", nowhere, f"'{nowhere}': expected stderr, journal or a file that can be "
                                 "written (No such file or directory)"),
            ("--log-to", env.scratch, "expected stderr, journal or a file that can be written "
                                     "(Is a directory)"),
            ("--log-to", fifo, "or a FIFO that has a reader"),
            ("--log-to", "", "expected stderr, journal or a file")):
        program = env.start([env.app("coronet-echo"), "--link", "ring:r0", "--addr",
                             "10.9.0.1/16", f"{option}={value}"])
        status = program.wait(WAIT_MAX_S)
        text = program.output("stderr")
        check(status == USAGE and text.count("\n") == 1 and said in text,
              f"{option} {value}: status {status}: {text}")


# ---- destinations ----


@contextlib.contextmanager
def stream_of(echo, journal, *words, make=os.pipe):
    """Runs the program with a stream as stderr, optionally marked as journald's."""
    ends = make()
    read, write = (end if isinstance(end, int) else end.detach() for end in ends)
    info = os.fstat(write)
    environ = dict(echo.environ)
    environ.pop("JOURNAL_STREAM", None)
    if journal:
        environ["JOURNAL_STREAM"] = f"{info.st_dev}:{info.st_ino}"
    server = echo.env.start([*echo.argv, *words], env=environ,
                            preexec_fn=lambda: os.dup2(write, 2))
    os.close(write)
    try:
        yield server.wait_ready(), read
    finally:
        server.kill()
        os.close(read)


def journal(env):
    """Lines have priorities if JOURNAL_STREAM names stderr, or with --log-to journal, only."""
    notice = r"<5>stats: .*"
    for case, named, words, make, patterns in (
            ("pipe", True, (), os.pipe, (notice,)),
            ("socket, as systemd's", True, (), socket.socketpair, (notice,)),
            ("asked for", False, ("--log-to", "journal"), os.pipe, (notice,)),
            ("no journal", False, (), os.pipe, (notice[3:],)),
            ("events", True, ("--log-level", INFO), os.pipe,
             (notice, f"<6>{OPENED}", f"<6>{CLOSED}"))):
        echo = Echo(env, "--stats", "0.2")
        with stream_of(echo, named, *words, make=make) as (server, read):
            some_conns(echo)
            server.terminate()
            with os.fdopen(os.dup(read), "rb") as stream:
                lines = stream.read().decode().splitlines()
        check(any(re.fullmatch(patterns[0], line) for line in lines), f"{case}: {lines}")
        check(case != "events" or len(lines) >= 40, f"{case}: {lines}")
        all_match(lines, *patterns)


def drops_one(echo):
    """Drops a listed connection; returns False if the load has ended it meanwhile."""
    for row in json.loads(echo.ctl("conns", "--json")):
        with contextlib.suppress(Failure):
            echo.ctl("drop", row["id"])
            return True
    return False


def rotation(env):
    """The file is renamed under load, and reopened by a signal and by coronet-ctl: every line is
    complete, in exactly one file."""
    log = env.scratch_for({}) / "echo.log"
    echo = Echo(env, "--log-to", log, "--log-level", INFO)
    moved = []
    with echo.loaded(conns=10) as server:
        for turn in range(6):
            for _ in range(3):
                eventually(lambda: drops_one(echo), WAIT_MAX_S, "nothing to drop")
            target = log.with_suffix(f".{turn}")
            log.rename(target)
            moved.append(target)
            if turn % 2:
                server.signal(signal.SIGUSR1)
                eventually(log.exists, WAIT_MAX_S, "not reopened")
            else:
                text = echo.ctl("set", "log.reopen")
                check(re.match(rf"log +{log}\ndropped_lines +0\n", text), text)
                check(log.exists(), "coronet-ctl returns before it is opened")
            eventually(lambda: echo.counted("conns") == 10, WAIT_MAX_S, "not opened again")
        log.rename(log.with_suffix(".last"))
        moved.append(log.with_suffix(".last"))
        log.mkdir()
        error = echo.ctl("set", "log.reopen", status=1)
        check("Is a directory; the old file is kept" in error, error)
        check(server.output("stderr") == "", f"on stderr: {server.output('stderr')}")
    lines = [line for path in moved for line in path.read_text().splitlines()]
    stamped = [rf"{TIME} info {pattern}" for pattern in (OPENED, CLOSED)]
    all_match(lines, *stamped, rf"{TIME} error coronet: --log-to '{log}': Is a directory; .*kept")
    dropped = [line for line in lines if "reason=drop" in line]
    check(len(dropped) == 18, f"{len(dropped)} of 18 lines: {lines}")
    # A line may still wait to be written when the file is reopened.
    check(sum("event=" in path.read_text() for path in moved[1:-1]) > 1, "files without a line")


def full_disk(env):
    """With a full disk every client is served, and lost lines are counted."""
    echo = Echo(env, "--log-to", "/dev/full", "--log-level", "debug")
    with echo.serve() as server:
        some_conns(echo)
        eventually(lambda: metric(echo, "coronet_log_dropped_lines_total") >= 40, WAIT_MAX_S,
                   lambda: f"{metric(echo, 'coronet_log_dropped_lines_total')} dropped")
        check(echo.counted("timed_out") == 0, "connections have timed out")
        server.terminate()


def stopped_reader(env):
    """A FIFO whose reader stops, then closes: every client is served in time."""
    fifo = env.scratch_for({}) / "fifo"
    command("mkfifo", fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    echo = Echo(env, "--log-to", fifo, "--log-level", "debug")
    with echo.serve() as server:
        # Up to 400 lines a time, until the FIFO is full.
        many_conns(echo, lambda: metric(echo, "coronet_log_dropped_lines_total") > 0)
        os.close(reader)
        some_conns(echo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        text = bytearray()

        def is_reported():
            """Reads on; lines that the FIFO held before come first."""
            some_conns(echo, 1)
            with contextlib.suppress(BlockingIOError):
                while data := os.read(reader, 65536):
                    text.extend(data)
            return re.search(rb"\d+Z warning coronet: \d+ lines of the log were dropped", text)
        eventually(is_reported, WAIT_MAX_S, lambda: f"no report: {text[-500:]}")
        for line in text.decode().splitlines():
            check(re.match(rf"{TIME} \w+ coronet", line), f"a line: {line!r}")
        server.terminate()
    os.close(reader)


def two_logs(env):
    """One signal reopens coronet-proxy's access log and its log."""
    folder = env.scratch_for({})
    logs = [folder / "access.log", folder / "proxy.log"]
    control = folder / "control"
    with env.running([env.app("coronet-proxy"), "--link", "ring:r0", "--addr", "10.9.0.1/16",
                      "--port", "8080", "--to", "10.9.0.2:80", "--poll", "adaptive",
                      "--access-log", logs[0], "--log-to", logs[1],
                      "--control", control]) as proxy:
        for again in (lambda: proxy.signal(signal.SIGUSR1),
                      lambda: command(env.app("coronet-ctl"), "--control", control, "set",
                                      "log.reopen")):
            for log in logs:
                log.rename(log.with_suffix(".1"))
            again()
            eventually(lambda: all(log.exists() for log in logs), WAIT_MAX_S, "not reopened")
        proxy.terminate()


def holds(program, path):
    """Returns whether a program has a file open."""
    fds = pathlib.Path(f"/proc/{program.process.pid}/fd")
    with contextlib.suppress(OSError):
        return any(fd.readlink() == path for fd in fds.iterdir())
    return False


def signals_all_the_time(env):
    """SIGUSR1 ends no appliance that still reads its files, or that has begun to end."""
    folder = env.scratch_for({})
    zone = folder / "zone"
    zone.write_text("@ IN SOA ns a 1 2 3 4 5\n@ IN NS ns\nns IN A 192.0.2.1\n")
    appliances = {"echo": [], "httpd": ["--root", folder, "--access-log", folder / "access"],
                  "dns": ["--zone", f"example.com={zone}"],
                  "proxy": ["--port", "8080", "--to", "10.9.0.2:80"]}
    for name, options in appliances.items():
        config = folder / f"{name}.conf"
        os.mkfifo(config)
        writer = os.open(config, os.O_RDWR)  # so that the program waits for an end of file
        program = env.start([env.app(f"coronet-{name}"), "--link", "ring:r0", "--addr",
                             "10.9.0.1/16", "--huge", "off", "--memory", "512M", "--poll",
                             "adaptive", "--config", config, *options])
        eventually(lambda: holds(program, config), WAIT_MAX_S, program.story)
        program.signal(signal.SIGUSR1)
        os.write(writer, b"# nothing\n")
        os.close(writer)
        program.wait_ready()
        program.signal(signal.SIGTERM)

        def ended():
            program.signal(signal.SIGUSR1)
            return not program.alive()
        eventually(ended, WAIT_MAX_S, program.story, pause=0.0005)
        check(program.wait(0) == 0, program.story())


CASES = [quiet_by_default, levels_live, levels_at_the_start, wrong_words, journal, rotation,
         full_disk, stopped_reader, two_logs, signals_all_the_time]


def cases(env):
    yield from chosen(env, CASES, prefix="log: ")


if __name__ == "__main__":
    main(cases)
