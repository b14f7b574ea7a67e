#!/usr/bin/env python3
"""The .deb packages in a Debian made for the test: installed, started, removed.

Usage: test_package.py FOLDER_OF_DEBS MIRROR

As root. mmdebstrap makes the smallest Debian of this machine's suite in a folder; apt installs
the packages with what they depend on. systemd then boots there as process 1 of namespaces of
its own, services serve each other over memif, and dpkg removes them while they run. Programs
are built against the development package in a folder, too.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent / "integration"))

import harness  # noqa: E402
from harness import check, command  # noqa: E402
from test_service import DEVICES, MASKED, TARGET, Systemd, mounted  # noqa: E402

SOURCE = pathlib.Path(__file__).parents[1]
PACKAGES = ("coronet", "libcoronet0", "libcoronet-dev")
SERVER = "link = memif:/run/coronet/mem/m.sock,role=server\naddr = 10.7.0.1/16\nport = 7777\n"


def deb(folder, name):
    found = list(folder.glob(f"{name}_*_amd64.deb"))
    check(len(found) == 1, f"{len(found)} packages {name} in {folder}")
    return found[0]


def run(*argv, **rest):
    done = subprocess.run(list(map(str, argv)), check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **rest)
    check(done.returncode == 0, f"{' '.join(map(str, argv))}: {done.stdout[-3000:]}")
    return done.stdout


def suite():
    text = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    return re.search(r"^VERSION_CODENAME=(\w+)", text, re.M)[1]


def bootstrap(debs, mirror, root):
    """Makes the Debian, outside of our namespaces, since it needs the network."""
    inside = root.with_suffix(".debs")
    inside.mkdir()
    for name in ("libcoronet0", "coronet"):
        shutil.copy(deb(debs, name), inside)
    run("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase",
        "--include=systemd,iproute2", "--aptopt=APT::Install-Recommends false",
        f"--customize-hook=copy-in {inside} /tmp",
        f"--customize-hook=chroot \"$1\" sh -c 'DEBIAN_FRONTEND=noninteractive apt-get install "
        f"-y --no-install-recommends /tmp/{inside.name}/*.deb'",
        f"--customize-hook=rm -r \"$1/tmp/{inside.name}\"", suite(), root, mirror)


# ---- cases ----

def contents(debs):
    """Every file is in its package, and in one only."""
    owner = {}
    wanted = {
        "coronet": ["usr/bin/coronet-proxy", "usr/bin/coronet-httpd", "usr/bin/coronet-dns",
                    "usr/bin/epoll-echo",
                    "usr/share/man/man1/coronet-httpd.1.gz",
                    "usr/share/bash-completion/completions/coronet-proxy",
                    "lib/systemd/system/coronet-proxy@.service", "usr/lib/sysusers.d/coronet.conf",
                    "usr/share/coronet/systemd/tap.conf", "etc/coronet/"],
        "libcoronet0": [r"usr/lib/x86_64-linux-gnu/libcoronet.so.0",
                        r"usr/lib/x86_64-linux-gnu/libcoronet-coro.so.0"],
        "libcoronet-dev": ["usr/include/coronet/net.h", "usr/share/man/man3/net_send.3.gz",
                           "usr/lib/x86_64-linux-gnu/libcoronet.a",
                           "usr/lib/x86_64-linux-gnu/pkgconfig/coronet.pc"]}
    for name in PACKAGES:
        lines = run("dpkg-deb", "--contents", deb(debs, name)).splitlines()
        paths = [line.split(None, 5)[5].split(" -> ")[0].removeprefix("./") for line in lines]
        for path in paths:
            check(path.endswith("/") or not path or path not in owner, f"{path} is {name}'s and others'")
            owner[path] = name
        missing = [path for path in wanted[name] if path not in paths]
        check(not missing, f"{name} has no {missing}: {paths}")
        check(not [path for path in paths if "/local/" in path], f"{name}: {paths}")


def development(debs, scratch):
    """README's program builds against the packages alone, and starts."""
    root = scratch / "dev"
    for name in ("libcoronet0", "libcoronet-dev"):
        run("dpkg-deb", "-x", deb(debs, name), root)
    libs = root / "usr/lib/x86_64-linux-gnu"
    paths = {**os.environ, "PKG_CONFIG_PATH": str(libs / "pkgconfig"), "LD_LIBRARY_PATH": str(libs)}
    for path in (libs / "pkgconfig").glob("*.pc"):
        path.write_text(re.sub(r"^prefix=.*", f"prefix={root}/usr", path.read_text(), flags=re.M))
    flags = run("pkg-config", "--cflags", "--libs", "coronet", env=paths).split()
    run("gcc", SOURCE / "apps/examples/echo.c", "-o", scratch / "echo", *flags)
    done = subprocess.run([scratch / "echo", "--link", "nosuch:"], check=False, env=paths,
                          capture_output=True, text=True)
    check(done.returncode == 2 and "unknown kind 'nosuch'" in done.stderr, done.stderr)


def installed(root):
    """The packages create users, valid units, and programs that find all their libraries."""
    users = (root / "etc/passwd").read_text() + (root / "etc/group").read_text()
    check(re.search("^coronet:", users, re.M) and re.search("^vfio:", users, re.M), users)
    for path in sorted((root / "usr/bin").glob("coronet-*")):
        said = run("chroot", root, path.relative_to(root), "--version")
        version = re.search(r"version: '(.*)'", (SOURCE / "meson.build").read_text())[1]
        check(said == f"{path.name} (coronet) {version}\n", said)
        check("not found" not in run("chroot", root, "ldd", f"/usr/bin/{path.name}"), "a library")


def prepare(root):
    """Provides what a boot needs beyond a chroot."""
    # The root must be a mount, since units get their own mount namespaces.
    command("mount", "--bind", root, root)
    for name in ("run", "tmp", "dev"):
        mounted("tmpfs", root / name)
    for name, numbers in DEVICES.items():
        (root / "dev" / name).parent.mkdir(exist_ok=True)
        command("mknod", "-m", "666", root / "dev" / name, "c", *numbers)
    mounted("devpts", root / "dev/pts", "-o", "newinstance,ptmxmode=0666")
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    (root / "dev/shm").mkdir()
    (root / "etc/systemd/system/ours.target").write_text(TARGET)
    for name in MASKED:
        (root / f"etc/systemd/system/{name}.service").symlink_to("/dev/null")
    (root / "etc/coronet/mem.conf").write_text(SERVER)


def started_and_removed(env, root):
    prepare(root)
    cgroup = mounted("cgroup2", env.scratch / "cgroups") / f"coronet-package-{os.getpid()}"
    cgroup.mkdir()
    systemd = Systemd(env, root, cgroup)
    try:
        try:
            systemd.start("coronet-echo@mem")
        except harness.Failure as trouble:
            check(False, f"{trouble}: {systemd.ctl('status', 'coronet-echo@mem')}")
        unit = systemd.show("coronet-echo@mem")
        check((unit["ActiveState"], unit["DynamicUser"]) == ("active", "yes")
              and int(unit["UID"]) > 60000, f"{unit['ActiveState']}, user {unit['UID']}")
        said = systemd.inside("coronet-load", "--link",
                              "memif:/run/coronet/mem/m.sock,role=client", "--addr", "10.7.0.2/16",
                              "--target", "10.7.0.1:7777", "--conns", "4", "--seconds", "1",
                              "--poll", "adaptive", "--report-limited")
        check(re.search(r"^ +errors +none$", said, re.M), f"{said} {systemd.journal('coronet-echo@mem')}")
        faults = systemd.inside("systemd-analyze", "verify", *(
            f"/lib/systemd/system/coronet-{name}@.service" for name in ("echo", "proxy", "httpd", "dns")))
        check("coronet" not in faults, faults)
        systemd.inside("dpkg", "--remove", "coronet")
        unit = systemd.show("coronet-echo@mem")
        check((unit.get("ActiveState"), unit.get("Result")) == ("inactive", "success"),
              f"after removal: {unit.get('ActiveState')}, {unit.get('Result')}")
        check((root / "etc/coronet/mem.conf").exists(), "the administrator's file is gone")
        (root / "etc/coronet/mem.conf").unlink()
        systemd.inside("dpkg", "--purge", "coronet", "libcoronet0")
        said = systemd.inside("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n")
        check("coronet" not in said, said)
        left = [str(path) for folder in ("usr", "etc", "lib", "var/lib/systemd")
                for path in (root / folder).rglob("*coronet*")]
        check(not left, f"left behind: {left}")
    finally:
        systemd.close()
        command("umount", "--recursive", root)


def cases(env):
    debs, scratch = map(pathlib.Path, env.args)
    root = scratch / "root"
    for name, function in (("what is in them", functools.partial(contents, debs)),
                           ("a program is built with them",
                            functools.partial(development, debs, scratch)),
                           ("installed by apt", functools.partial(installed, root)),
                           ("started, and removed while they run",
                            functools.partial(started_and_removed, env, root))):
        yield f"packages: {name}", function


def main():
    debs, mirror = sys.argv[1:]
    debs = pathlib.Path(debs).resolve()
    if os.getuid() != 0:
        sys.exit("test_package: mmdebstrap and a systemd of its own take root")
    with tempfile.TemporaryDirectory(prefix="coronet-package.") as scratch:
        os.chmod(scratch, 0o755)
        bootstrap(debs, mirror, pathlib.Path(scratch) / "root")
        status = subprocess.run([sys.executable, "-B", __file__, str(SOURCE / "build"), str(debs),
                                 scratch], check=False).returncode
    sys.exit(status)


if __name__ == "__main__":
    try:
        # With a build folder: the cases, in namespaces of their own.
        harness.main(cases) if len(sys.argv) > 3 else main()
    except harness.Failure as trouble:
        sys.exit(f"test_package: {trouble}")
