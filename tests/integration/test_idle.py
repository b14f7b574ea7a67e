#!/usr/bin/env python3
"""The CPU use of adaptive polling while idle, and the answer to a request after that.

Usage: test_idle.py BUILD_DIR
"""

import contextlib
import functools
import time

from harness import check, command, comment, cpu_seconds, linger, main
from test_links import checksums_in_software, echo_once

ADDRS = ("--addr", "10.9.0.1/16")
SECONDS = 2
# Share of a core: a nap after each empty round takes a quarter, spinning takes all.
SHARE = 0.05
SHARE_SANITIZED = 0.15


@contextlib.contextmanager
def tap(env):
    with running(env, "tap:tap0") as server:
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "tap0")
        command("ip", "link", "set", "tap0", "up")
        yield server


@contextlib.contextmanager
def af_packet(env):
    command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    try:
        checksums_in_software("veth1")
        command("ip", "addr", "add", "10.9.1.1/16", "dev", "veth1")
        command("ip", "link", "set", "veth0", "up")
        command("ip", "link", "set", "veth1", "up")
        with running(env, "af_packet:veth0") as server:
            yield server
    finally:
        command("ip", "link", "del", "veth0")


def running(env, link):
    return env.running([env.app("coronet-echo"), "--link", link, *ADDRS, "--port", "7777",
                        "--poll", "adaptive"])


def idle_share(pid):
    began, cpu = time.monotonic(), cpu_seconds(pid)
    linger(SECONDS)
    return (cpu_seconds(pid) - cpu) / (time.monotonic() - began)


def sleeps_until_something_comes(env, link):
    most = SHARE_SANITIZED if env.sanitized else SHARE
    with link(env) as server:
        for _ in range(2):
            echo_once("10.9.0.1")
            share = idle_share(server.process.pid)
            comment(f"{100 * share:.1f} % of a core")
            check(share < most, f"an idle server took {100 * share:.1f} % of a core, "
                                f"expected less than {100 * most:.0f}")
        echo_once("10.9.0.1")
        server.terminate()


def cases(env):
    bind = functools.partial
    yield "an idle server on a TAP sleeps", bind(sleeps_until_something_comes, env, tap)
    yield "an idle server on AF_PACKET sleeps", bind(sleeps_until_something_comes, env, af_packet)


if __name__ == "__main__":
    main(cases)
