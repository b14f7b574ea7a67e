#!/usr/bin/env python3
"""Checks that all C in the documents compiles, that every call named there exists, and that every
public call is documented.

A block that begins with ```c and stands below a line <!-- FILE --> must be
FILE to the letter, which the build compiles. Any other is a fragment: it is
compiled here, with every warning an error, after what the page's fragments
assume (tests/docs/PAGE.h), as the body of a function or, if it
defines functions itself, as it is. Names of the interface in `backquotes`
must be in one of our headers, and every function these declare must be on
the page of its library. Any other function, `name()`, and any source file must
exist, and a function must be in the file that the page names behind it.
Usage: check_docs.py SOURCE_ROOT COMPILER [WORD...]
"""

import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"(?:<!-- (?P<file>[\w./-]+) -->\n)?```c\n(?P<code>.*?)```\n",
                   re.S)
DEFINES = re.compile(r"^\w[^;=]*\)\n\{$", re.M)
QUOTED = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"\b(?:coro|net)_\w*[a-z0-9]\b")
CALL = re.compile(r"\b([a-z]\w*)\(\)")
# A function, and the file that a page says it is in.
FOUND_IN = re.compile(r"`(\w+)\(\)`\s\(`([\w./]+\.[chS])`")
FILE = re.compile(r"[\w./-]*\w\.(?:[chS]|py|sh)")
# Other projects'.
ELSEWHERE = {"co_yield_ct", "co_get_epoll_ct", "taskyield", "nty_schedule_run",
             "nty_coroutine_get_sched", "dpdk-devbind.py", "dpdk-telemetry.py"}
SOURCES = ("apps", "asm", "coro", "dpdk_glue", "netstack", "subprojects", "tests")
FOLDERS = ("coro", "netstack", "dpdk_glue")
HEADERS = ("coro/include/coronet", "netstack/include/coronet")
PAGES = {"coro/include/coronet": "docs/coroutines.md",
         "netstack/include/coronet": "docs/api.md"}
FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused",
         "-Wno-unused-parameter", "-D_GNU_SOURCE", "-O1", "-c", "-x", "c", "-",
         "-o", "/dev/null")


def fragment_source(root, page, code, line):
    """Returns a translation unit of one fragment; errors name the page's lines."""
    assumed = root / "tests/docs" / (page.stem.lower() + ".h")
    text = f'#include "{assumed}"\n' if assumed.is_file() else ""
    at = f'#line {line} "{page.relative_to(root)}"\n'
    if DEFINES.search(code):
        return text + at + code
    return (text + "void *fragment(void *arg);\nvoid *fragment(void *arg)\n{\n"
            + at + code + "\nreturn NULL;\n}\n")


def compile_fragment(root, compiler, source):
    """Compiles a fragment; returns the compiler's complaints."""
    includes = [f"-I{(root / header).parent}" for header in HEADERS]
    done = subprocess.run([*compiler, *FLAGS, *includes], input=source,
                          capture_output=True, text=True)
    return done.stderr.splitlines() if done.returncode else []


def check_blocks(root, page, compiler):
    """Returns the complaints about a page's C."""
    text, bad = page.read_text(), []
    for block in BLOCK.finditer(text):
        code = block["code"]
        line = text.count("\n", 0, block.start("code")) + 1
        if not block["file"]:
            source = fragment_source(root, page, code, line)
            bad += compile_fragment(root, compiler, source)
        elif not (root / block["file"]).is_file():
            bad.append(f"{page}:{line}: there is no {block['file']}")
        elif (root / block["file"]).read_text() != code:
            bad.append(f"{page}:{line}: differs from {block['file']}")
    return bad


def check_names(root, page):
    """Returns the names in backquotes that are in none of our headers, files and programs;
    `coro_*` matches many."""
    known = {path.stem for path in root.glob("*/*.[chS]")}
    for folder in FOLDERS:
        for header in (root / folder).rglob("*.h"):
            known |= set(re.findall(r"\w+", header.read_text()))
    return [f"{page}: no header has `{name}`"
            for quoted in QUOTED.findall(page.read_text())
            for name in NAME.findall(quoted)
            if name not in known and f"{name}_*" not in quoted]


def project_words(root):
    """Returns the names called or defined in our sources and lwIP's, and all source files."""
    words, files = set(ELSEWHERE), set(ELSEWHERE)
    for folder in SOURCES:
        for path in (root / folder).rglob("*.*"):
            if path.suffix in (".c", ".h", ".S", ".py", ".sh"):
                files.add(str(path.relative_to(root)))
                words |= set(re.findall(r"\b(\w+)\(",
                                        path.read_text(errors="replace")))
    return words, files


def check_sources(page, words, files):
    """Returns the functions and source files in backquotes that do not exist. A file may be named
    from its folder on."""
    bad = []
    for quoted in QUOTED.findall(page.read_text()):
        bad += [f"{page}: there is no function `{name}()`"
                for name in CALL.findall(quoted) if name not in words]
        if FILE.fullmatch(quoted) and not quoted.startswith(("/", "./")):
            if not any(file == quoted or file.endswith("/" + quoted)
                       for file in files):
                bad.append(f"{page}: there is no file `{quoted}`")
    return bad


def check_homes(root, page):
    """Returns the functions that are not in the file that the page names behind them. A file may be
    named from its folder in netstack/ on."""
    bad = []
    for name, file in FOUND_IN.findall(page.read_text()):
        paths = [path for path in (root / "netstack" / file, root / file) if path.is_file()]
        text = "".join(path.read_text() for path in paths)
        if not re.search(rf"^(?!\t)(?:.*[\s*])?{name}\([^;{{}}]*\)\n\{{", text, re.M):
            bad.append(f"{page}: {file} does not define `{name}()`")
    return bad


def declared(header):
    """Returns the functions that a header declares for its users."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    found = re.findall(r"^[a-z][\w \t*]*?\b((?:coro|net)_\w+)\(", text, re.M)
    return [name for name in found if not name.endswith("_pair")]


def check_complete(root):
    """Returns the functions of the public headers that their page does not name."""
    bad = []
    for folder, page in PAGES.items():
        text = (root / page).read_text()
        for header in sorted((root / folder).glob("*.h")):
            bad += [f"{page}: nothing of {name}() in {header.name}"
                    for name in declared(header)
                    if not re.search(rf"\b{name}\b", text)]
    return bad


def main():
    """All pages; exit status 1 if any complains."""
    root, compiler = pathlib.Path(sys.argv[1]), sys.argv[2:]
    pages = [root / "README.md", root / "CONTRIBUTING.md",
             *sorted((root / "docs").glob("*.md"))]
    bad, blocks = check_complete(root), 0
    words, files = project_words(root)
    for page in pages:
        bad += check_blocks(root, page, compiler) + check_names(root, page)
        bad += check_sources(page, words, files) + check_homes(root, page)
        blocks += len(BLOCK.findall(page.read_text()))
    print("\n".join(bad) or f"docs: {len(pages)} pages, {blocks} blocks ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
