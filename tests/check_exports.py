#!/usr/bin/env python3
"""A library makes visible what its public headers declare, and nothing else.

The headers are the only list: they are preprocessed, and the functions and
variables that they declare are compared with the symbols of the library. That
goes for the shared library and for the archive, which is one object in which
hidden symbols are local. Neither asks for an executable stack, and the shared
library's thread-local variables are few: every thread of the program pays for
them, and dlopen() has little room for them.
A file NAME.txt among the headers lists names that a library puts in the C
library's place.
Usage: check_exports.py HEADER... -- LIBRARY... -- COMPILER [WORD...]
"""

import pathlib
import re
import subprocess
import sys

# In libc's place, for every library of the process (dpdk_glue/quiesce.c).
INTERPOSED = {"munmap"}
# The linker lists where a section begins and ends, though both are hidden.
OF_THE_TOOLS = re.compile(
    r"__odr_asan|__(a|t|ub)san_|__gcov|_init$|_fini$|__(start|stop)_net_shard$")
TLS_BYTES_MAX = 1024
BODY = "\0"  # in place of what stood in braces
MARK = re.compile(r'^# \d+ "([^"]*)"')


def run(*argv):
    """What the command prints."""
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


def own_text(header, compiler):
    """The preprocessed header without what it includes."""
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
    """The names of the functions and variables that a C text declares."""
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
    while "{" in text:  # bounded: each turn takes the innermost bodies away
        text = re.sub(r"\{[^{}]*\}", BODY, text)
    # A function ends with its body, a type goes on to its semicolon.
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
    """The symbols that a program which links the library can see."""
    which = "-D" if ".so" in library.name else "-g"
    lines = run("nm", which, "--defined-only", "--format=posix", library).splitlines()
    names = {line.split()[0].split("@")[0] for line in lines if len(line.split()) > 1}
    return {name for name in names if not OF_THE_TOOLS.match(name)}


def tls_bytes(headers):
    """The size of the segment of thread-local variables."""
    row = re.search(r"^ *TLS +(?:0x\w+ +){4}0x(\w+)", headers, re.M)
    return int(row[1], 16) if row else 0


def complaints(library, wanted):
    """What is wrong with a library."""
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
