#!/usr/bin/env python3
"""--check of every program on coronet: options and files are checked, nothing is opened.

Usage: test_check.py BUILD_DIR
"""

import functools
import subprocess

from certs import make_pair
from harness import WAIT_MAX_S, check, command, main

LINK = ["--link", "tap:check0", "--addr", "10.9.0.1/16"]
ZONE = """$ORIGIN a.test.
@ 60 IN SOA ns hostmaster 1 60 60 60 60
@ 60 IN NS ns
ns 60 IN A 10.9.0.1
"""


def run(env, app, *words, link=LINK):
    return subprocess.run([str(word) for word in (env.app(app), *link, *words, "--check")],
                          check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=WAIT_MAX_S)


def valid(env):
    """Status 0 and a line; neither a link nor a socket is made, also beside a running program."""
    cert, key = make_pair(env, "front", "DNS:www.front.test")
    (env.scratch / "zone").write_text(ZONE, encoding="ascii")
    (env.scratch / "site").mkdir()
    (env.scratch / "site/index.html").write_text("hello\n", encoding="ascii")
    control = env.scratch / "control"
    config = env.scratch / "edge.conf"
    config.write_text("link = memif:/nonexistent/a.sock,role=server\naddr = 10.9.0.1/16\n"
                      "to = one=10.9.0.2:80\nto = two=name.example:80\n", encoding="ascii")
    tls = ["--tls-cert", cert, "--tls-key", key]
    access = ["--access-log", env.scratch / "access"]
    others = ["--control", control, "--capture", env.scratch / "capture", "--huge", "auto",
              "--metrics", "127.0.0.1:9464", "--log-to", env.scratch / "log", "--shards", "2",
              "--exception", "tap:check1", "--gateway", "10.9.0.254"]

    def check_all():
        for app, words, link in (
                ("coronet-echo", others, LINK), ("coronet-echo", [], ["--link", "pci:0000:7f:00.0",
                                                                     "--addr", "dhcp"]),
                ("coronet-proxy", ["--to", "10.9.0.2:80", *access, *others], LINK),
                ("coronet-proxy", ["--config", config], []),
                ("coronet-proxy", ["--listen", "tls:0.0.0.0:443", "--listen", "udp:0.0.0.0:53", *tls,
                                   "--to", "10.9.0.2:80"], LINK),
                ("coronet-httpd", [*tls, "--root", env.scratch / "site", *access, *others], LINK),
                ("coronet-dns", ["--zone", f"a.test={env.scratch / 'zone'}", *others], LINK),
                ("coronet-load", ["--target", "10.9.0.2:80"], LINK)):
            done = run(env, app, *words, link=link)
            check(done.returncode == 0 and done.stdout == "the options are valid\n"
                  and not done.stderr, f"{app} {words}: {done}")
        done = subprocess.run([str(env.app("coronet-run")), *LINK, "--check", "--", "/bin/false"],
                              check=False, capture_output=True, text=True, timeout=WAIT_MAX_S)
        check(done.returncode == 0 and done.stdout == "the options are valid\n", f"{done}")

    check_all()
    links = command("ip", "-o", "link")
    check("check" not in links, f"a link was made: {links}")
    made = [path for path in (control, env.scratch / "capture", env.scratch / "log",
                              env.scratch / "access")
            if path.exists()]
    check(not made, f"made: {made}")
    with env.running([env.app("coronet-echo"), *LINK, "--control", control]) as server:
        check_all()
        check(control.exists() and server.alive(), server.story())


def invalid(env):
    """Status 2 and one line that names what is wrong."""
    cert, key = make_pair(env, "front", "DNS:www.front.test")
    other = make_pair(env, "other", "DNS:www.other.test")[1]
    (env.scratch / "zone").write_text(ZONE.replace("10.9.0.1", "10.9.0"), encoding="ascii")
    to = ["--to", "10.9.0.2:80"]
    config = env.scratch / "edge.conf"
    config.write_text("to = 10.9.0.2:80\n\nbalance = none\n", encoding="ascii")
    (env.scratch / "plain").write_text("no socket\n", encoding="ascii")
    for app, words, name, link in (
            ("coronet-echo", ["--dpdk-prefix", "a", "--user", "nobody"], "--dpdk-prefix", LINK),
            ("coronet-echo", ["--dpdk-prefix", "a", "--huge", "off"], "--dpdk-prefix", LINK),
            ("coronet-echo", ["--capture", f"{env.scratch}/x,filter=tcp and and"], "tcp and and",
             LINK),
            ("coronet-echo", ["--capture", "/nonexistent/a"], "'/nonexistent/a'", LINK),
            ("coronet-echo", ["--capture", "/dev/null"], "not a plain file", LINK),
            ("coronet-echo", ["--control", "/nonexistent/c"], "/nonexistent/c", LINK),
            ("coronet-echo", ["--control", env.scratch / "plain"], "not a socket", LINK),
            ("coronet-echo", ["--exception", "tap:check0"], "--exception 'tap:check0'", LINK),
            ("coronet-echo", ["--exception", "tap:x", "--link", "tap:y", "--exception", "tap:x"],
             "--exception 'tap:x'", LINK),
            ("coronet-echo", [], "no --link given", []),
            ("coronet-echo", [], "pci:zz", ["--link", "pci:zz", "--addr", "10.9.0.1/16"]),
            ("coronet-echo", ["--memory", "20M"], "--memory 20M", LINK),
            ("coronet-echo", ["--route", "192.0.2.0/24 via 10.8.0.1"], "10.8.0.1", LINK),
            ("coronet-echo", ["--lcores", "0", "--shards", "2"], "--shards 2", LINK),
            ("coronet-proxy", [*to, "--listen", "10.8.0.1:80"], "10.8.0.1:80", LINK),
            ("coronet-proxy", [*to, "--tls-cert", cert, "--tls-key", other, "--listen",
                               "tls:10.9.0.1:443"], str(other), LINK),
            ("coronet-proxy", ["--config", config], "line 3", LINK),
            ("coronet-httpd", ["--root", "/nonexistent"], "/nonexistent", LINK),
            ("coronet-httpd", ["--tls-cert", cert], str(cert), LINK),
            ("coronet-dns", ["--zone", f"a.test={env.scratch / 'zone'}"], "zone", LINK),
            ("coronet-load", ["--target", "10.9.0.2"], "--target", LINK)):
        done = run(env, app, *words, link=link)
        check(done.returncode == 2 and not done.stdout and name in done.stderr
              and done.stderr.count("\n") == 1, f"{app} {words}: {done}")
    done = subprocess.run([str(env.app("coronet-run")), *LINK, "--check", "--", "/bin/nosuch"],
                          check=False, capture_output=True, text=True, timeout=WAIT_MAX_S)
    check(done.returncode == 2 and "/bin/nosuch" in done.stderr, f"{done}")
    check(key, "no key")


def cases(env):
    for function in (valid, invalid):
        yield function.__name__, functools.partial(function, env)


if __name__ == "__main__":
    main(cases)
