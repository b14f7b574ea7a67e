#!/usr/bin/env python3
"""Cache lines that two shards share: where false sharing would be.

    ./dev bench lines [--least N]

Runs programs whose loads and stores are counted line by line (line_sharing.c),
with two shards: bench-loop, then coronet-echo and coronet-load, which talk over
a memif link with two queues. Names each line that one thread wrote at least N
times (default 1,000) while another one used it as often. Speed says nothing
here: counting makes everything many times slower.
"""

import argparse
import os
import re
import subprocess
import sys

from children import Children, Failure, main
import figures

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILT = os.path.join(TOP, "build-lines")
ECHOES = 200_000
CONNS = 64


def place(file, offset):
    """Function and line of the source, or the file where that is not known."""
    if not os.access(file, os.R_OK):
        return file
    out = subprocess.run(["addr2line", "-f", "-s", "-e", file, offset], check=True,
                         capture_output=True, text=True).stdout.split()
    return f"{out[0]} ({out[1]})"


def shared(child):
    """Prints the lines that a program's report names; how many there are."""
    with open(child.err_path, encoding="utf-8", errors="replace") as file:
        said = file.read()
    name = child.name
    total = re.search(r"(\d+) of (\d+) lines were shared by (\d+) threads", said)
    if not total:
        raise Failure(f"{name} made no report: {said}")
    for line in said.splitlines():
        if found := re.match(r"line (\S+) (\S+)", line):
            print(f"  {found[1]} {found[2]}")
        elif found := re.match(r"thread (\d+) (bytes .*) at (\S+) (\S+)$", line):
            print(f"    thread {found[1]}: {found[2]}, last at {place(found[3], found[4])}")
    print(f"{name}: {total[1]} of {int(total[2]):,} lines are shared", flush=True)
    return int(total[1])


def loop(children):
    """bench-loop: two shards, each with its clients in its own thread."""
    argv = [os.path.join(BUILT, "tests", "bench", "bench-loop"), "-r", str(ECHOES), "-t", "2",
            str(CONNS)]
    return shared(children.run("bench-loop", argv, 300))


def memif(children):
    """coronet-echo and coronet-load over memif, two shards and queues each."""
    path = children.path("lines.sock")
    both = ["--shards", "2", "--poll", "adaptive", "--huge", "off"]
    server = children.start("coronet-echo", [
        os.path.join(BUILT, "apps", "coronet-echo"), "--link", f"memif:{path},role=server",
        "--addr", f"{figures.SERVER_ADDR}/{figures.PREFIX}", "--port", str(figures.PORT), *both])
    server.wait_for_line("listening on", figures.READY_TIMEOUT)
    load = children.run("coronet-load", [
        os.path.join(BUILT, "apps", "coronet-load"), "--link", f"memif:{path},role=client",
        "--addr", f"{figures.CLIENT_ADDR}/{figures.PREFIX}",
        "--target", f"{figures.SERVER_ADDR}:{figures.PORT}", "--mode", "echo",
        "--conns", str(CONNS), "--seconds", "5", "--interval", "0", *both], 120, [server])
    server.stop()
    return shared(load) + shared(server)


def run():
    parser = argparse.ArgumentParser(prog="./dev bench lines", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=int, default=1000, help="accesses (default 1000)")
    os.environ["LINES_MIN"] = str(parser.parse_args().least)
    with Children("bench-lines") as children:
        found = loop(children) + memif(children)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(run))
