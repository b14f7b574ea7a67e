#!/usr/bin/env python3
"""--user and --seccomp: what each thread of a program has given up, and that it still works.

Usage: test_privileges.py BUILD_DIR
"""

import contextlib
import functools
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import ssl
import stat
import struct
import subprocess
import urllib.request

from certs import client_context, make_pair
from harness import WAIT_MAX_S, Skip, check, command, eventually, main
from test_bond import Stream
from test_load import veth
from test_links import (ECHO_ADDRS, TARGETS, Pair, check_load, checksums_in_software, forwarded,
                        testpmd)
from test_peers import dial_server, read_exactly

USER = "nobody"
NET_ADMIN = 1 << 12
USAGE = 2  # the exit status
ADDRS = ["--addr", "10.9.0.1/16", "--poll", "adaptive"]
ZONE = """$ORIGIN a.test.
@ 60 IN SOA ns hostmaster {serial} 60 60 60 60
@ 60 IN NS ns
ns 60 IN A 10.9.0.1
"""


def switches():
    """Whether there is another user: a user namespace has but one, and --seccomp alone is used."""
    return pathlib.Path("/proc/self/uid_map").read_text().split()[2].startswith("4294967295")


def need_root():
    if not switches():
        raise Skip("this user namespace has no other user")


def filters(env):
    """Whether the build has a filter, and makes no other calls for a sanitizer."""
    options = json.loads((env.build / "meson-info/intro-buildoptions.json").read_text())
    return not env.sanitized and any(option["name"] == "seccomp" and option["value"] != "disabled"
                                     for option in options)


def need_seccomp(env):
    if not filters(env):
        raise Skip("no filter, or a sanitizer makes system calls that it refuses")


def user_folder(env):
    """A folder of the user's, below one of root's."""
    user = pwd.getpwnam(USER)
    return env.scratch_for({"user": user.pw_uid, "group": user.pw_gid} if switches() else {})


def sandbox(env):
    """The options of the cases that are about something else."""
    user = ["--user", USER] if switches() else []
    return user + (["--seccomp", "kill"] if filters(env) else [])


def environment():
    """LeakSanitizer cannot trace a process that was another user's."""
    return {**os.environ, "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"}


def threads_of(program):
    """Returns each thread's fields of /proc/PID/task/TID/status."""
    found = []
    for path in pathlib.Path(f"/proc/{program.process.pid}/task").glob("*/status"):
        with contextlib.suppress(OSError):
            found.append(dict(line.split(":\t", 1) for line in path.read_text().splitlines()
                              if ":\t" in line))
    return found


def check_threads(program, caps=0):
    """Every thread is the user's and has no capability; one of DPDK's has caps."""
    user = pwd.getpwnam(USER)
    threads, holders = threads_of(program), 0
    check(len(threads) > 1, f"threads: {threads}")
    for thread in threads:
        limited = thread["NoNewPrivs"] == "1" and thread["Seccomp"] == "2"
        check(limited or not {"--user", "--seccomp"} & set(program.argv), f"{thread}")
    for thread in threads if switches() else ():
        check(thread["Uid"].split() == [str(user.pw_uid)] * 4, f"{thread}")
        check(thread["Gid"].split() == [str(user.pw_gid)] * 4, f"{thread}")
        check(sorted(map(int, thread["Groups"].split())) == sorted(os.getgrouplist(USER,
                                                                                user.pw_gid)),
              f"{thread}")
        has = int(thread["CapPrm"], 16)
        check(has in (0, caps) and int(thread["CapEff"], 16) == has
              and int(thread["CapInh"], 16) == int(thread["CapAmb"], 16) == 0, f"{thread}")
        holders += has != 0
    check(holders == (caps != 0 and switches()), f"{holders} have capabilities: {threads}")


def is_owned(path):
    return path.exists() and path.lstat().st_uid == (pwd.getpwnam(USER).pw_uid if switches() else 0)


def ctl(env, control, *words):
    return command(env.app("coronet-ctl"), "--control", control, *words)


def echo_once(address="10.9.0.1"):
    with dial_server(address) as sock:
        sock.sendall(b"once" * 1000)
        check(read_exactly(sock, 4000) == b"once" * 1000, "other bytes came back")


@contextlib.contextmanager
def tap(env, app, name, *words, caps=0):
    """Runs a program on a TAP, whose other end is 10.9.1.1."""
    argv = [env.app(app), "--link", f"tap:{name}", *ADDRS, *words]
    with env.running(argv, env=environment()) as program:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", name)
        command("ip", "link", "set", name, "up")
        check_threads(program, caps)
        yield program


# ---- kinds of links ----


def on_tap(env, *more):
    with tap(env, "coronet-echo", "pr0", *sandbox(env), "--stats", "0.1", *more) as server:
        echo_once()
        eventually(lambda: "stats: rx" in server.output("stderr"), WAIT_MAX_S, server.story)
        # The carrier comes and goes.
        command("ip", "link", "set", "pr0", "down")
        command("ip", "link", "set", "pr0", "up")
        echo_once()
        check_threads(server)
        server.terminate()
    check(not os.path.exists("/sys/class/net/pr0"), "the interface is still there")


def on_veth(env, kind, caps, *more):
    if kind == "af_xdp":
        need_root()
    with veth():
        for _ in range(2):  # the interface is as it was
            with env.running([env.app("coronet-echo"), "--link", f"{kind}:veth0,csum=trust",
                              *ADDRS, *sandbox(env), *more], env=environment()) as server:
                check_threads(server, caps)
                echo_once()
                server.terminate()
            check("xdp" not in command("ip", "link", "show", "veth0"), "its program is still there")


def on_bond(env):
    """Another member takes over, for which the interfaces' MAC addresses are set."""
    for name in ("bm0", "bm1"):
        command("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p")
        checksums_in_software(name)
        checksums_in_software(f"{name}p")
    command("ip", "link", "add", "brp", "address", "02:00:00:00:00:99", "type", "bridge")
    for name in ("bm0", "bm1", "brp"):
        if name != "brp":
            command("ip", "link", "set", f"{name}p", "master", "brp", "up")
        command("ip", "link", "set", name, "up")
    command("ip", "addr", "add", "10.9.1.1/16", "dev", "brp")
    try:
        with env.running([env.app("coronet-echo"), "--link",
                          "bond:b0,members=af_packet:bm0+af_packet:bm1", *ADDRS, *sandbox(env)],
                         env=environment()) as server:
            check_threads(server, NET_ADMIN)
            stream = Stream("10.9.0.1")
            stream.goes_on("at first")
            for name in ("bm0", "bm1"):
                command("ip", "link", "set", f"{name}p", "down")
                stream.goes_on(f"without {name}")
                command("ip", "link", "set", f"{name}p", "up")
                stream.goes_on(f"with {name}")
            stream.end()
            check("Operation not permitted" not in server.output("stderr"), server.story())
            server.terminate()
    finally:
        for name in ("bm0", "bm1", "brp"):
            command("ip", "link", "del", name)


def on_memif(env, *more):
    """Both ends; each comes back after the other has started again. The socket is the user's."""
    path = user_folder(env) / "e.sock"
    pair = Pair(env, f"memif:{path},role=server", f"memif:{path},role=client",
                {"env": environment()}, [*sandbox(env), *more])
    with pair.serve() as server:
        check(is_owned(path) and stat.S_ISSOCK(path.lstat().st_mode), f"{path.lstat()}")
        for _ in range(2):
            check_load(pair, "--target", TARGETS["IPv4"], "--conns", 8,
                       enough=lambda report: report["requests"] > 0)
            check_threads(server)
        path.unlink()
        eventually(lambda: is_owned(path), WAIT_MAX_S, "the socket does not come back")
        check_load(pair, "--target", TARGETS["IPv4"], enough=lambda report: report["requests"] > 0)
        server.terminate()
    check(not list(path.parent.iterdir()), f"left: {list(path.parent.iterdir())}")


def memif_client(env):
    """The client is the one that serves, and follows a server that starts again."""
    folder = user_folder(env)
    path = folder / "e.sock"
    words = ["--port", "7777", "--poll", "adaptive", *sandbox(env)]
    server = [env.app("coronet-load"), "--link", f"memif:{path},role=server", "--addr",
              "10.9.1.9/16", "--target", TARGETS["IPv4"], "--poll", "adaptive", "--seconds", 1,
              "--report-limited", *sandbox(env)]
    first = env.start([*server[:server.index("--seconds")], "--seconds", 3600, *sandbox(env)],
                      env=environment())
    with env.running([env.app("coronet-echo"), "--link", f"memif:{path},role=client", *ECHO_ADDRS,
                      *words], env=environment()) as echo:
        check_threads(echo)
        first.kill()
        again = env.start(server, env=environment())
        check(again.wait(WAIT_MAX_S) == 0, again.story())
        check("may not write" not in echo.output("stderr"), echo.story())
        echo.terminate()
    path.unlink(missing_ok=True)


def on_vhost(env):
    folder = user_folder(env)
    paths = [folder / "a.sock", folder / "b.sock"]
    pair = Pair(env, f"vhost:{paths[0]}", f"vhost:{paths[1]}", {"env": environment()}, sandbox(env))
    with testpmd(env, paths, "io") as forwarder:
        with pair.serve() as server:
            check_threads(server)
            check_load(pair, "--target", TARGETS["IPv4"], "--conns", 8,
                       enough=lambda report: report["requests"] > 0)
            server.terminate()
    check(len(forwarded(forwarder)) == 2, forwarder.story())


def vhost_server(env):
    """The socket is the user's, and is removed at the end."""
    program = shutil.which("dpdk-testpmd")
    if not program:
        raise Skip("dpdk-testpmd is not installed")
    path = user_folder(env) / "v.sock"
    server = env.start([env.app("coronet-echo"), "--link", f"vhost:{path},role=server", *ADDRS,
                        *sandbox(env)], env=environment())
    eventually(path.exists, WAIT_MAX_S, server.story)
    check(is_owned(path), f"{path.lstat()}")
    forwarder = env.start(
        [program, "--no-huge", "-m", "256", "--no-shconf", "--no-pci", "--no-telemetry",
         f"--vdev=net_vhost0,iface={path},client=1", "--", "--auto-start",
         "--total-num-mbufs=16384", "--no-lsc-interrupt", "--disable-link-check"],
        stdin=subprocess.PIPE)
    server.wait_ready()
    check_threads(server)
    server.terminate()
    forwarder.kill()
    check(not path.exists(), "the socket is still there")


def on_memory(env):
    folder = user_folder(env)
    header = struct.pack("IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1)
    (folder / "in.pcap").write_bytes(header)
    for link in ("ring:r0", f"pcap:{folder}/in.pcap,{folder}/out.pcap"):
        control = folder / "control"
        with env.running([env.app("coronet-echo"), "--link", link, *ADDRS, "--control", control,
                          *sandbox(env)], env=environment()) as server:
            check_threads(server)
            check("10.9.0.1" in ctl(env, control, "addr"), "no address")
            server.terminate()


# ---- operation as the user ----


def operations(env, *more):
    """Log rotation, coronet-ctl, captures, metrics and the end."""
    folder = user_folder(env)
    log, control = folder / "log", folder / "control"
    words = ["--log-to", log, "--control", control, "--metrics", "127.0.0.1:9464", "--capture",
             folder / "first.pcapng", "--log-level", "coronet.conn=info", *more]
    with tap(env, "coronet-echo", "pr0", *sandbox(env), *words) as server:
        for path in (log, control, folder / "first.pcapng"):
            check(is_owned(path), f"{path} is not the user's: {path.lstat()}")
        echo_once()
        eventually(lambda: "event=closed" in log.read_text(), WAIT_MAX_S, "no line")
        log.rename(folder / "log.1")
        server.signal(signal.SIGUSR1)
        eventually(lambda: is_owned(log), WAIT_MAX_S, "the log was not reopened")
        ctl(env, control, "set", "log.reopen")
        ctl(env, control, "addr", "add", "10.9.0.7/16")
        echo_once("10.9.0.7")
        eventually(lambda: "event=closed" in log.read_text(), WAIT_MAX_S, "no line in the new file")
        for words in (["conns"], ["links"], ["shards"], ["set", "log.level", "coronet.*=info"],
                      ["capture", "stop"], ["capture", folder / "second.pcapng"]):
            ctl(env, control, *words)
        echo_once()
        ctl(env, control, "capture", "stop")
        check(is_owned(folder / "second.pcapng"), "the capture is not the user's")
        check((folder / "second.pcapng").stat().st_size > 1000, "an empty capture")
        with urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=WAIT_MAX_S) as page:
            check(b"coronet_receive_frames_total" in page.read(), "no metrics")
        ctl(env, control, "set", "metrics", "127.0.0.1:9465")
        with urllib.request.urlopen("http://127.0.0.1:9465/metrics", timeout=WAIT_MAX_S) as page:
            check(page.status == 200, "no metrics at the new port")
        check_threads(server)
        server.terminate()
    check(not control.exists(), "the control socket is still there")


def exception_rule(env):
    """The kernel's interface stays open, and its rule can change."""
    control = user_folder(env) / "control"
    with tap(env, "coronet-echo", "pr0", *sandbox(env), "--control", control, "--exception",
             "tap:prk") as server:
        ctl(env, control, "set", "exception", "tap:prk,tcp=22")
        wrong = subprocess.run([env.app("coronet-ctl"), "--control", control, "set", "exception",
                                "tap:prx"], check=False, capture_output=True, text=True)
        check(not switches() or (wrong.returncode != 0 and "CAP_NET_ADMIN" in wrong.stderr),
              f"{wrong}")
        if not switches():
            ctl(env, control, "set", "exception", "tap:prk,tcp=22")
        check("tcp=22" in ctl(env, control, "exception"), "the rule has not changed")
        server.terminate()


def tls_context(env):
    context = client_context(env)
    context.check_hostname = False
    return context


def certificate(env):
    """Returns the serial number of the certificate that the server has now."""
    with socket.create_connection(("10.9.0.1", 443), WAIT_MAX_S) as plain:
        with tls_context(env).wrap_socket(plain) as sock:
            return ssl.DER_cert_to_PEM_cert(sock.getpeercert(True))


def httpd_reload(env):
    """Files and certificates that the user may read are reread; a warning names others."""
    folder = user_folder(env)
    site = folder / "site"
    site.mkdir()
    (site / "index.html").write_text("first\n")
    cert, key = make_pair(env, "front", "IP:10.9.0.1")
    for path in (cert, key):
        shutil.copy(path, folder)
        os.chown(folder / path.name, folder.stat().st_uid, -1)
    words = ["--root", site, "--tls-cert", folder / cert.name, "--tls-key", folder / key.name,
             "--rescan", "0.1"]
    with tap(env, "coronet-httpd", "pr0", *sandbox(env), *words) as server:
        check("cannot be read again" not in server.output("stderr"), server.story())
        before = certificate(env)
        cert, key = make_pair(env, "front", "IP:10.9.0.1")
        for path in (cert, key):
            (folder / path.name).write_bytes(path.read_bytes())
        server.signal(signal.SIGHUP)
        eventually(lambda: certificate(env) != before, WAIT_MAX_S, "the old certificate")
        (site / "index.html").write_text("second\n")
        eventually(lambda: b"second" in urllib.request.urlopen(
            "http://10.9.0.1/", timeout=WAIT_MAX_S).read(), WAIT_MAX_S, "the old file")
        server.terminate()
    if not switches():
        return
    os.chown(folder / key.name, 0, 0)
    with tap(env, "coronet-httpd", "pr0", "--user", USER, *words) as server:
        check(re.search(rf"--user {USER}: --tls-key '.*{key.name}' cannot be read again when it "
                        "has changed: Permission denied", server.output("stderr")), server.story())
        before = certificate(env)
        server.signal(signal.SIGHUP)
        eventually(lambda: server.output("stderr").count("Permission denied") > 1, WAIT_MAX_S,
                   server.story)
        check(certificate(env) == before, "it has lost its certificate")
        server.terminate()


def dns_reload(env):
    folder = user_folder(env)
    zone = folder / "zone"
    zone.write_text(ZONE.format(serial=1))
    words = ["--zone", f"a.test={zone}"]
    with tap(env, "coronet-dns", "pr0", *sandbox(env), *words) as server:
        check("cannot be read again" not in server.output("stderr"), server.story())
        zone.write_text(ZONE.format(serial=2))
        server.signal(signal.SIGHUP)
        eventually(lambda: "serial 2" in server.output("stderr"), WAIT_MAX_S, server.story)
        server.terminate()
    if not switches():
        return
    zone.chmod(0o600)
    os.chown(zone, 0, 0)
    with tap(env, "coronet-dns", "pr0", *sandbox(env), *words) as server:
        check(f"--zone '{zone}' cannot be read again" in server.output("stderr"), server.story())
        server.terminate()


def proxy_reload(env):
    """The access log is the user's; a reload works, or a warning says that it would not."""
    folder = user_folder(env)
    config, access = folder / "edge.conf", folder / "access"
    lines = f"port = 80\nto = 10.9.1.1:8000\naccess-log = {access}\n"
    lines += f"user = {USER}\n" if switches() else ""
    config.write_text(lines)
    web = env.start(["python3", "-m", "http.server", "8000"], cwd=folder)
    words = ["--config", config, *sandbox(env)[2 if switches() else 0:]]
    with tap(env, "coronet-proxy", "pr0", *words) as server:
        check(is_owned(access), f"{access.lstat()}")
        check("a reload would fail" not in server.output("stderr"), server.story())

        def served():
            with contextlib.suppress(OSError):
                return urllib.request.urlopen("http://10.9.0.1/edge.conf",
                                              timeout=WAIT_MAX_S).read()
            return None
        eventually(served, WAIT_MAX_S, server.story)
        config.write_text(lines + "to = 10.9.1.2:8000\n")
        server.signal(signal.SIGHUP)
        eventually(lambda: "2 backends" in server.output("stderr"), WAIT_MAX_S, server.story)
        access.rename(folder / "access.1")
        server.signal(signal.SIGUSR1)
        eventually(lambda: is_owned(access), WAIT_MAX_S, "the access log was not reopened")
        server.terminate()
    config.chmod(0o600)
    os.chown(config, 0, 0)
    with tap(env, "coronet-proxy", "pr0", *words) as server:
        wanted = f"--user {USER}: a reload would fail: --config '{config}': Permission denied"
        check(not switches() or wanted in server.output("stderr"), server.story())
        server.terminate()
    web.kill()


# ---- files ----


def files_of_root(env):
    """Nothing is created in root's folder, and a link to root's file is not followed."""
    folder = user_folder(env)
    secret = env.scratch / "secret"
    secret.write_text("root's\n")
    secret.chmod(0o600)
    (folder / "log").symlink_to(secret)
    closed = env.scratch / "closed"
    closed.mkdir(mode=0o755)
    echo, proxy = ["coronet-echo"], ["coronet-proxy", "--to", "10.9.0.2:80"]
    for app, words, wanted in (
            (echo, ["--log-to", folder / "log"], "--log-to"),
            (echo, ["--log-to", closed / "log"], "--log-to"),
            (echo, ["--control", closed / "control"], "--control"),
            (echo, ["--capture", closed / "capture"], str(closed / "capture")),
            (proxy, ["--access-log", folder / "log"], "--access-log"),
            (proxy, ["--access-log", closed / "access"], "--access-log"),
            (echo, ["--link", f"memif:{closed}/e.sock,role=server"], "memif"),
            (echo, ["--link", f"vhost:{closed}/e.sock,role=server"], "vhost")):
        link = [] if words[0] == "--link" else ["--link", "ring:r0"]
        program = env.start([env.app(app[0]), *app[1:], *link, *ADDRS, "--user", USER, *words],
                            env=environment())
        got = program.wait(WAIT_MAX_S)
        check(got in (1, USAGE) and wanted in program.output("stderr")
              and "Permission denied" in program.output("stderr"), program.story())
    check(secret.read_text() == "root's\n" and secret.stat().st_uid == 0, "the file has changed")
    check(not list(closed.iterdir()), f"made: {list(closed.iterdir())}")


def client_of_root(env):
    """A warning says that a memif client could not connect again."""
    folder = env.scratch_for({})
    path = folder / "e.sock"
    with env.running([env.app("coronet-echo"), "--link", f"memif:{path},role=server", *ADDRS]):
        with env.running([env.app("coronet-echo"), "--link", f"memif:{path},role=client", "--addr",
                          "10.9.0.2/16", "--poll", "adaptive", *sandbox(env)],
                         env=environment()) as client:
            eventually(lambda: f"may not write to {path}" in client.output("stderr"), WAIT_MAX_S,
                       client.story)
            client.terminate()


# ---- refusals ----


def refused(env):
    for words, status, wanted in (
            (["--user", "no-such-user"], USAGE, "expected a user of this machine"),
            (["--user", f"{USER}:no-such-group"], USAGE, "expected a group of this machine"),
            (["--user", "root"], USAGE, "other than root"),
            (["--user", "123456"], USAGE, "123456:123456"),
            (["--user", ""], USAGE, "expected a user"),
            (["--seccomp", "on"], USAGE, "off, log or kill"),
            *([(["--user", USER, "--dpdk-prefix", "x"], USAGE, "--dpdk-prefix")]
              if switches() else [])):
        program = env.start([env.app("coronet-echo"), "--link", "ring:r0", *ADDRS, *words])
        check(program.wait(WAIT_MAX_S) == status and wanted in program.output("stderr")
              and len(program.output("stderr").splitlines()) == 1, program.story())
    for option in (["--user", USER], ["--seccomp", "log"]):
        program = env.start([env.app("coronet-run"), "--link", "ring:r0", *ADDRS, *option, "true"])
        check(program.wait(WAIT_MAX_S) == USAGE and option[0] in program.output("stderr"),
              program.story())


def not_root(env):
    """Another user than root cannot become a third; the same user stays as it is."""
    user = env.ordinary_user()
    build = env.readable_build(user)
    for name, ready in (("daemon", False), (USER, True)):
        if ready and not user:
            continue
        if user.get("user") not in (None, pwd.getpwnam(USER).pw_uid):
            raise Skip(f"the ordinary user of this machine is not {USER}")
        program = env.start([build / "apps/coronet-echo", "--link", "ring:r0", *ADDRS, "--user",
                             name], **user)
        if ready:
            program.wait_ready()
            program.terminate()
            continue
        wanted = "no user" if not user else "only root can become another user"
        check(program.wait(WAIT_MAX_S) == 1 and wanted in program.output("stderr"),
              program.story())


def checked(env):
    """--check reads both, and changes nothing."""
    for words, status in ((["--user", USER], 0), (["--user", "no-such-user"], USAGE),
                          (["--user", USER, "--dpdk-prefix", "x"], USAGE)):
        done = subprocess.run([env.app("coronet-echo"), "--link", "tap:pr9", *ADDRS, "--check",
                               *words], check=False, capture_output=True, text=True)
        check(done.returncode == status, f"{words}: {done}")
    if filters(env):
        command(env.app("coronet-echo"), "--link", "tap:pr9", *ADDRS, "--check", "--seccomp",
                "kill")


# ---- system calls ----


def call(env, name, *words):
    program = env.start([env.build / "tests/integration/refused-call", name, "--link", "ring:r0",
                         *ADDRS, *words])
    return program.wait(WAIT_MAX_S), program


REFUSED = ("execve", "fork", "ptrace", "process_vm_readv", "mount", "setuid", "capset", "unshare",
           "bpf", "init_module", "socket", "mmap", "rt_sigaction", "kill", "io_uring_setup")


def killed(env):
    """Each refused call ends the process, on each thread, with a line that names it."""
    need_seccomp(env)
    for name in REFUSED:
        for prefix in ("", "thread:"):
            status, program = call(env, prefix + name, "--seccomp", "kill")
            check(status == -signal.SIGSYS and "open\n" == program.output("stdout"),
                  program.story())
            check(re.search(rf"--seccomp kill: system call \d+ \({name}\) is not allowed",
                            program.output("stderr")), program.story())
    status, program = call(env, "openat", "--seccomp", "kill")
    check(status == 0 and "openat: done" in program.output("stdout"), program.story())


def logged(env):
    """With log and off, the program goes on."""
    need_seccomp(env)
    for mode in ("log", "off"):
        status, program = call(env, "execve", "--seccomp", mode)
        check(status == 0 and "execve" not in program.output("stdout"), program.story())
    status, program = call(env, "socket", "--seccomp", "log")
    check(status == 0 and "socket: " in program.output("stdout"), program.story())


def root_cannot_return(env):
    """A thread that is older than the stack is no longer root's either."""
    for name in ("setuid", "thread:setuid"):
        status, program = call(env, name, "--user", USER)
        check(status == 0 and "setuid: Operation not permitted" in program.output("stdout"),
              program.story())


# ---- all ----


def cases(env):
    os.umask(0o022)

    def as_root(function):
        def case():
            need_root()
            function(env)
        return case
    bind = functools.partial
    for poll in ("adaptive", "busy"):
        yield f"TAP, {poll}", bind(on_tap, env, "--poll", poll)
    two = ["--shards", "2", "--memory", "512M"]
    yield "TAP, two shards", bind(on_tap, env, *two)
    yield "AF_PACKET", bind(on_veth, env, "af_packet", 0)
    yield "AF_XDP", bind(on_veth, env, "af_xdp", NET_ADMIN)
    yield "AF_XDP, two shards", bind(on_veth, env, "af_xdp", NET_ADMIN, *two)
    yield "bond", bind(on_bond, env)
    yield "memif", bind(on_memif, env)
    yield "memif, two shards", bind(on_memif, env, *two)
    yield "memif client", bind(memif_client, env)
    yield "vhost", bind(on_vhost, env)
    yield "vhost server", bind(vhost_server, env)
    yield "ring and pcap", bind(on_memory, env)
    yield "operations", bind(operations, env)
    yield "operations, two shards", bind(operations, env, *two)
    yield "exception", bind(exception_rule, env)
    yield "httpd reload", bind(httpd_reload, env)
    yield "dns reload", bind(dns_reload, env)
    yield "proxy reload", bind(proxy_reload, env)
    yield "files of root", as_root(files_of_root)
    yield "memif client of root", as_root(client_of_root)
    yield "root cannot return", as_root(root_cannot_return)
    for function in (refused, not_root, checked, killed, logged):
        yield function.__name__.replace("_", " "), bind(function, env)


if __name__ == "__main__":
    main(cases, privileged=True)
