#!/usr/bin/env python3
"""A few cases of the other scripts, which take seconds: ./dev test quick.

Usage: test_quick.py BUILD_DIR
"""

import functools

import test_httpd
import test_links
import test_peers
import test_proxy
import test_wire
from harness import main
from proxies import Tap


def on_server(function, env, kind):
    """Runs a case of test_peers.py with its own server."""
    with kind.serve(env) as server:
        function(env, server, kind.hosts["IPv4"])


def cases(env):
    bind = functools.partial
    for family in test_links.TARGETS:
        yield f"coronet-echo: memif over {family}", bind(test_links.memif_echo, env, family, 64)
    echo = test_peers.Tap()
    for function in (test_peers.echo_large_file, test_peers.half_close,
                     test_peers.reset_midstream):
        yield (f"coronet-echo: {function.__name__.replace('_', ' ')}",
               bind(on_server, function, env, echo))
    for function in (test_httpd.exchanges, test_httpd.large_file):
        yield f"coronet-httpd: {function.__name__.replace('_', ' ')}", bind(function, env)
    proxy = Tap()
    for function in (test_proxy.both_directions_at_once, test_proxy.half_close, test_proxy.resets,
                     test_proxy.next_backend):
        yield (f"coronet-proxy: {function.__name__.replace('_', ' ')}",
               bind(function, env, proxy))
    yield "wire: kernel tcp through loss", bind(test_wire.kernel_tcp_through_loss, env)


if __name__ == "__main__":
    main(cases)
