#!/usr/bin/env python3
"""Cache lines of an echo: four of its connection and one of its coroutine; an idle coroutine keeps
two lines of its stack.

    test_echo_lines.py echo-lines

Runs echo_lines.c under valgrind's lackey, which records every load and store, and counts the cache
lines touched between its two marks.
"""

import re
import subprocess
import sys

LINE = 64
MARK = b"700000000,1"
CONN_LINES, CORO_LINES = 4, 1
SAVED = 128  # bytes of the stack of a handler that waits to receive
CHUNK = 1 << 20


def between_marks(trace):
    """Returns the trace between the two marks, without the rest."""
    begun, kept, rest = False, [], b""
    while chunk := trace.read(CHUNK):
        chunk = rest + chunk
        if not begun and (at := chunk.find(MARK)) >= 0:
            begun, chunk = True, chunk[at + len(MARK):]
        if begun and (at := chunk.find(MARK)) >= 0:
            kept.append(chunk[:at])
            begun, rest = False, b""
        elif begun:
            cut = chunk.rfind(b"\n") + 1
            kept.append(chunk[:cut])
            rest = chunk[cut:]
        else:
            rest = chunk[-len(MARK):]
    return b"".join(kept)


def accesses(trace):
    """Yields (address, bytes, the instruction's address) of each load and store."""
    pc = 0
    for kind, at, size in re.findall(rb"^(I | [LSM]) ([0-9a-f]+),(\d+)$", trace, re.M):
        if kind == b"I ":
            pc = int(at, 16)
        else:
            yield int(at, 16), int(size), pc


def lines_of(seen, start, size):
    """Returns the touched lines of an object: the accesses and their instructions."""
    lines = {}
    for (at, _), pc in seen.items():
        if start <= at < start + size:
            lines.setdefault((at - start) // LINE, []).append((at - start, pc))
    return lines


def main():
    run = subprocess.Popen(["valgrind", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no",
                            "--log-fd=1", sys.argv[1]], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, env={"CMOCKA_MESSAGE_OUTPUT": "STDOUT"})
    trace = between_marks(run.stdout)
    said = run.stderr.read().decode()
    if run.wait() != 0:
        sys.exit(f"{sys.argv[1]} failed: {said}")
    seen = {(at, size): pc for at, size, pc in accesses(trace)}
    objects = re.findall(r"^conn (\w+) (\d+) coro (\w+) (\d+) saved (\d+)$", said, re.M)
    failed = not objects
    print("TAP version 13")
    print(f"1..{1 + 3 * len(objects)}")
    print("not ok" if failed else "ok", 1, "- connections")
    number = 1
    for conn, conn_size, coro, coro_size, saved in objects:
        number += 1
        good = 0 < int(saved) <= SAVED
        failed = failed or not good
        print("ok" if good else "not ok", number, f"- saved stack: {saved} bytes")
        for name, start, size, most in (("connection", conn, conn_size, CONN_LINES),
                                        ("coroutine", coro, coro_size, CORO_LINES)):
            lines = lines_of(seen, int(start, 16), int(size))
            number += 1
            good = 0 < len(lines) <= most
            failed = failed or not good
            print("ok" if good else "not ok", number,
                  f"- {name}: lines {sorted(lines)} of {int(size) // LINE}")
            if not good:
                for line, touched in sorted(lines.items()):
                    print(f"# line {line}:", ", ".join(
                        f"offset {offset} at {pc:#x}" for offset, pc in sorted(touched)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
