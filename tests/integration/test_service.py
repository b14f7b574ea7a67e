#!/usr/bin/env python3
"""The services as docs/deploy.md installs them, under a systemd that is process 1.

Usage: test_service.py BUILD_DIR SOURCE_ROOT

systemd runs in its own namespaces, on a temporary copy of this machine's root (an overlay in
memory), with only our services and its own; services that would configure this machine find /sys
and /proc/sys read-only.
"""

import contextlib
import functools
import json
import pathlib
import re
import shutil
import subprocess
import time

from harness import WAIT_MAX_S, Skip, check, command, eventually, main
from web import need_programs, run_curl

SYSTEMD = "/lib/systemd/systemd"
PROGRAMS = ("coronet-echo", "coronet-httpd", "coronet-proxy")
SHARE = "usr/local/share/coronet/systemd"
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8),
           "urandom": (1, 9), "tty": (5, 0), "net/tun": (10, 200)}
WEB = "link = tap:web0\naddr = 10.8.0.1/16\n"
MEM = ("link = memif:/run/coronet/mem/m.sock,role=server\naddr = 10.7.0.1/16\n"
       "metrics = 127.0.0.1:9464\nlog-level = coronet.*=info\n")
KERNEL = "[Service]\nRestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n"  # docs/deploy.md
# How a service has ended; systemd forgets it when it unloads the unit.
END = ("[Service]\nExecStopPost=+/bin/sh -c 'echo $EXIT_CODE $EXIT_STATUS >\"/run/$$1.end\"' sh %N\n")
WRONG = "link = tap:wrong0\nto = nowhere\n"

# Units with which a booting systemd would change the shared kernel.
MASKED = ("systemd-sysctl", "systemd-udevd", "systemd-udev-trigger", "systemd-modules-load",
          "systemd-remount-fs", "systemd-random-seed", "systemd-binfmt")

# Arguments: the new root, a cgroup of its own.
START = """
echo $$ >"$2/cgroup.procs"
exec unshare --cgroup --mount --propagation unchanged --pid --uts --ipc --fork \\
	--kill-child=KILL sh -euc '
	mount -t proc proc "$1/proc"
	mount --bind "$1/proc/sys" "$1/proc/sys"
	mount -o remount,ro,bind "$1/proc/sys"
	mount -t sysfs -o ro sysfs "$1/sys"
	mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
	container=other exec setpriv --bounding-set -sys_time,-sys_module,-sys_boot \\
		chroot "$1" /lib/systemd/systemd --unit=ours.target \\
		--log-target=console --show-status=0' sh "$1"
"""
TARGET = "[Unit]\nRequires=basic.target systemd-journald.service\nAfter=basic.target\n"


def mounted(kind, where, *options):
    """Mounts a file system that the kernel may lack, or refuse here."""
    where.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", kind, *options, kind, where], check=False,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip(f"no {kind} to be mounted: {done.stderr.strip()}")
    return where


def make_root(env):
    """Makes a root with this machine's files, its own /dev and /run, and only our services."""
    layers = mounted("tmpfs", env.scratch / "layers")
    for name in ("upper", "work"):
        (layers / name).mkdir()
    root = mounted("overlay", env.scratch / "root", "-o",
                   f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work")
    for name in ("run", "tmp", "dev"):
        mounted("tmpfs", root / name)
    for name, numbers in DEVICES.items():
        (root / "dev" / name).parent.mkdir(exist_ok=True)
        command("mknod", "-m", "666", root / "dev" / name, "c", *numbers)
    mounted("devpts", root / "dev/pts", "-o", "newinstance,ptmxmode=0666")
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    (root / "dev/shm").mkdir()
    shutil.rmtree(root / "etc/systemd/system", ignore_errors=True)
    return root


def install(env, source, root):
    """Does the steps of meson install and of the administrator in docs/deploy.md."""
    (root / "etc/systemd/system").mkdir(parents=True)
    (root / "etc/systemd/system/ours.target").write_text(TARGET)
    for name in MASKED:
        (root / f"etc/systemd/system/{name}.service").symlink_to("/dev/null")
    (root / "etc/coronet").mkdir()
    units = root / "usr/local/lib/systemd/system"
    for folder in (root / SHARE, units):
        folder.mkdir(parents=True, exist_ok=True)
    for path in (source / "apps/systemd").glob("*.conf"):
        shutil.copy(path, root / SHARE)
    shutil.copy(env.app("coronet-ctl"), root / "usr/local/bin")
    for program in PROGRAMS:
        shutil.copy(env.app(program), root / "usr/local/bin")
        shutil.copy(env.build / "apps/systemd" / f"{program}@.service", units)
    shutil.copy(root / SHARE / "edge.conf", root / "etc/coronet")
    for name, text in (("web", WEB), ("mem", MEM), ("wrong", WRONG)):
        (root / "etc/coronet" / f"{name}.conf").write_text(text)
    for service in ("coronet-proxy@edge", "coronet-httpd@web"):
        folder = root / "etc/systemd/system" / f"{service}.service.d"
        folder.mkdir()
        shutil.copy(root / SHARE / "tap.conf", folder / "link.conf")
        (folder / "end.conf").write_text(END)
    folder = root / "etc/systemd/system/coronet-echo@mem.service.d"
    folder.mkdir()
    (folder / "metrics.conf").write_text(KERNEL)


class Systemd:
    """A running systemd, and commands for it."""

    def __init__(self, env, root, cgroup):
        self.cgroup = cgroup
        self.program = env.start(["sh", "-euc", START, "sh", root, cgroup])
        task = pathlib.Path(f"/proc/{self.program.process.pid}/task/{self.program.process.pid}")
        eventually(lambda: (task / "children").read_text().split(), WAIT_MAX_S,
                   self.program.story())
        self.pid = (task / "children").read_text().split()[0]
        eventually(lambda: self.ctl("is-active", "ours.target").strip() == "active", WAIT_MAX_S,
                   f"systemd does not come up: {self.program.story()}")

    def inside(self, *argv):
        done = subprocess.run(["nsenter", "-t", self.pid, "-m", "-p", "-r", *map(str, argv)],
                              check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        return done.stdout

    def ctl(self, *words):
        return self.inside("systemctl", *words)

    def show(self, service):
        lines = self.ctl("show", service).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def start(self, service):
        said = self.ctl("start", service)
        eventually(lambda: "listening on" in self.journal(service), WAIT_MAX_S,
                   f"{service}: {said} {self.journal(service)}")

    def journal(self, service):
        return self.inside("journalctl", "--no-pager", "-o", "cat", "-u", service)

    def priorities(self, service):
        """Returns journald's lines: {line: priority}."""
        rows = self.inside("journalctl", "--no-pager", "-o", "json", "-u", service).splitlines()
        rows = [json.loads(row) for row in rows]
        return {row["MESSAGE"]: row["PRIORITY"] for row in rows}

    def close(self):
        self.program.kill()
        eventually(lambda: not (self.cgroup / "cgroup.events").read_text().count("populated 1"),
                   WAIT_MAX_S, "processes are left")
        for folder in sorted(self.cgroup.rglob("*/"), reverse=True):
            folder.rmdir()
        self.cgroup.rmdir()


@contextlib.contextmanager
def booted(env, source):
    if not pathlib.Path(SYSTEMD).exists():
        raise Skip("systemd is not installed")
    if pathlib.Path("/proc/self/uid_map").read_text().split()[2] != "4294967295":
        raise Skip("a systemd of its own takes root")
    if env.sanitized:
        raise Skip("a sanitizer does what the units forbid")
    # In a chroot the harness cannot make its mounts private.
    if " shared:" in pathlib.Path("/proc/self/mountinfo").read_text():
        raise Skip("what is mounted here would be mounted outside as well")
    cgroup = mounted("cgroup2", env.scratch / "cgroups") / f"coronet-test-{time.time_ns()}"
    root = make_root(env)
    install(env, source, root)
    cgroup.mkdir()
    systemd = Systemd(env, root, cgroup)
    try:
        yield systemd
    finally:
        systemd.close()
        # Otherwise the whole root would be deleted file by file.
        command("umount", "--recursive", root)
        command("umount", env.scratch / "layers")


def status_of(systemd, service):
    """Returns /proc/PID/status of the service's process."""
    said = systemd.inside("cat", f"/proc/{systemd.show(service)['MainPID']}/status")
    return dict(re.findall(r"^(\w+):\s*(.*)$", said, re.M))


def services(env, source):
    """Services run as dynamic users, restart when killed, and drain when stopped."""
    need_programs("curl", "nsenter", "setpriv", "unshare")
    with booted(env, source) as systemd:
        for service in ("coronet-proxy@edge", "coronet-httpd@web", "coronet-echo@mem"):
            systemd.start(service)
            found = status_of(systemd, service)
            check(found["Uid"].split()[0] != "0" and found["NoNewPrivs"] == "1",
                  f"{service}: {found}")
            wanted = 0 if service == "coronet-echo@mem" else 1 << 12  # CAP_NET_ADMIN
            check(int(found["CapEff"], 16) == int(found["CapBnd"], 16) == wanted, f"{found}")
        command("ip", "addr", "add", "10.8.1.1/16", "dev", "web0")
        command("ip", "link", "set", "web0", "up")
        check("It answers." in run_curl("--retry", 5, "--retry-connrefused", "http://10.8.0.1/"),
              "curl")

        # An operator queries it by the socket in the runtime folder.
        for name, port in (("edge", 8080), ("web", 80), ("mem", 7777)):
            found = systemd.inside("env", f"RUNTIME_DIRECTORY=/run/coronet/{name}", "coronet-ctl",
                                  "listeners", "--json")
            check(f":{port}\"" in found, f"{name}: {found}")
        check("\ncoronet_shards 1\n" in run_curl("http://127.0.0.1:9464/metrics"), "no metrics")
        found = systemd.priorities("coronet-echo@mem")
        check({"6"} == {priority for line, priority in found.items()
                        if line.startswith("coronet.listen: event=listening ")}, f"{found}")
        check(not any(line.startswith("<") for line in found), f"priorities are text: {found}")

        systemd.ctl("reload", "coronet-proxy@edge")
        eventually(lambda: "reloaded: 2 backends, 0 of them new, 0 gone" in
                   systemd.journal("coronet-proxy@edge"), WAIT_MAX_S,
                   f"no reload: {systemd.journal('coronet-proxy@edge')}")
        found = systemd.priorities("coronet-proxy@edge")
        check({"5"} == {priority for line, priority in found.items() if "reloaded: 2" in line},
              f"{found}")
        systemd.ctl("kill", "--signal=KILL", "coronet-echo@mem")
        eventually(lambda: systemd.show("coronet-echo@mem")["NRestarts"] == "1", WAIT_MAX_S,
                   "it does not come back")
        systemd.ctl("start", "coronet-proxy@wrong")
        eventually(lambda: systemd.show("coronet-proxy@wrong")["ExecMainStatus"] == "2", WAIT_MAX_S,
                   f"a wrong option: {systemd.journal('coronet-proxy@wrong')}")
        # A unit that will be restarted is activating until its last failure.
        eventually(lambda: systemd.show("coronet-proxy@wrong")["ActiveState"] == "failed",
                   WAIT_MAX_S, f"it has not failed: {systemd.show('coronet-proxy@wrong')}")
        found = systemd.show("coronet-proxy@wrong")
        check(found["NRestarts"] == "0", f"it was tried again: {found}")

        for service in ("coronet-proxy@edge", "coronet-httpd@web"):
            systemd.ctl("stop", service)
            found = systemd.show(service)
            check((found["ActiveState"], found["Result"]) == ("inactive", "success"), f"{found}")
            # It has drained and exited, and the signal has not killed it. Its last lines do not show
            # that: journald loses what a process wrote just before its end.
            end = systemd.inside("cat", f"/run/{service}.end").strip()
            check(end == "exited 0", f"{service}: {end}")


def cases(env):
    source = pathlib.Path(env.args[0])
    yield "services under systemd", functools.partial(services, env, source)


if __name__ == "__main__":
    main(cases)
