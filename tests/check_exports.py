#!/usr/bin/env python3
"""Checks that a library exports exactly what its public headers declare.

The headers are the only list: they are preprocessed, and the functions and
variables that they declare are compared with the symbols of the library. This holds for the shared
library and for the archive, which is one object with local hidden symbols. Neither requires an
executable stack, and the shared library has few thread-local variables: every thread of the
program has a copy, and dlopen() has little room for them.
A file NAME.txt among the headers lists functions with which a library replaces the C library's.
Usage: check_exports.py HEADER... -- LIBRARY... -- COMPILER [WORD...]
"""

import pathlib
import re
import subprocess
import sys

# munmap() replaces libc's, for every library of the process; glue_unmap() is for coronet-run.so,
# which does so in whole programs (dpdk_glue/burst_sync.c, netstack/sockets/run_unmap.c).
INTERPOSED = {"munmap", "glue_unmap"}
# The linker lists the start and end of a section, though both are hidden.
OF_THE_TOOLS = re.compile(
    r"__odr_asan|__(a|t|ub)san_|__gcov|_init$|_fini$|__(start|stop)_net_shard$")
TLS_BYTES_MAX = 1024
BODY = "\0"  # replaces the text in braces
MARK = re.compile(r'^# \d+ "([^"]*)"')


def run(*argv):
    """Returns the command's output."""
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


def own_text(header, compiler):
    """Returns the preprocessed header without its includes."""
    root = header.resolve().parents[3]
    folders = sorted(path.parent for path in root.glob("*/include/coronet"))
    done = subprocess.run(
        [*compiler, "-E", "-D_GNU_SOURCE", *[f"-I{folder}" for folder in folders],
         "-x", "c", "-"], input=f'#include "{header.resolve()}"\n', check=True,
        stdout=subprocess.PIPE, text=True)
    ours, lines = False, []
    for line in done.stdout.splitlines():
        mark = MARK.match(line)
        if mark:
            ours = pathlib.Path(mark[1]) == header.resolve()
        elif ours and not line.startswith("#"):
            lines.append(line)
    return "\n".join(lines)


def declared(text):
    """Returns the names of the functions and variables that a C text declares."""
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
    while "{" in text:  # bounded: each turn removes the innermost bodies
        text = re.sub(r"\{[^{}]*\}", BODY, text)
    # A function ends with its body, a type at its semicolon.
    text = re.sub(rf"\b(?:static|inline)\b[^;{BODY}]*{BODY}", " ", text).replace(BODY, " ")
    names = set()
    for statement in text.split(";"):
        words = statement.split()
        if not words or words[0] in ("typedef", "static", "_Static_assert"):
            continue
        call = re.search(r"(\w+)\s*\(", statement)
        if call:
            names.add(call[1])
        elif words[0] == "extern":
            names.add(re.sub(r"\[.*", "", words[-1]).strip("*"))
        elif words[0] not in ("struct", "union", "enum"):
            sys.exit(f"check_exports.py: what does '{' '.join(words)}' declare?")
    return names


def visible(library):
    """Returns the symbols visible to a program that links the library."""
    which = "-D" if ".so" in library.name else "-g"
    lines = run("nm", which, "--defined-only", "--format=posix", library).splitlines()
    names = {line.split()[0].split("@")[0] for line in lines if len(line.split()) > 1}
    return {name for name in names if not OF_THE_TOOLS.match(name)}


def tls_bytes(headers):
    """Returns the size of the segment of thread-local variables."""
    row = re.search(r"^ *TLS +(?:0x\w+ +){4}0x(\w+)", headers, re.M)
    return int(row[1], 16) if row else 0


def complaints(library, wanted):
    """Returns the complaints about a library."""
    found = visible(library) - INTERPOSED
    bad = [f"{library.name} exports {name}, which no public header declares"
           for name in sorted(found - wanted)]
    bad += [f"{library.name} does not export {name}" for name in sorted(wanted - found)]
    headers = run("readelf", "-lW", library)
    if re.search(r"GNU_STACK.*RWE", headers):
        bad.append(f"{library.name} asks for an executable stack")
    if tls_bytes(headers) >= TLS_BYTES_MAX:
        bad.append(f"{library.name} has {tls_bytes(headers)} bytes of thread-local "
                   f"variables, {TLS_BYTES_MAX} or more")
    return bad


def main():
    words = " ".join(sys.argv[1:]).split(" -- ")
    headers, libraries, compiler = (part.split() for part in words)
    wanted = set()
    for header in headers:
        if header.endswith(".txt"):
            wanted |= set(pathlib.Path(header).read_text().split())
        else:
            wanted |= declared(own_text(pathlib.Path(header), compiler))
    bad = [line for library in libraries
           for line in complaints(pathlib.Path(library), wanted)]
    if not wanted:
        bad.append("the headers declare nothing")
    if bad:
        sys.exit("\n".join(bad))
    print(f"exports: {len(wanted)} names in {len(libraries)} libraries")


if __name__ == "__main__":
    main()
