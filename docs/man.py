#!/usr/bin/env python3
"""Manual pages from what is there already, so that nothing is described twice.

Usage: man.py program NAME EXE VERSION PAGE.md...  a page of section 1, on stdout
       man.py header NAME FILE VERSION             a page of section 3, on stdout
       man.py calls FILE...                        the calls that headers declare, a line each
       man.py aliases NAME PAGE...                 writes pages that stand for another

A program's options are those of its --help (help2man), and its description is the section
of its name in one of the pages in docs/ (lowdown), without tables of options, which --help
has. A public header's page is the header: its comments and its declarations.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

# One line an option, however long.
HELP_FORMAT = "rmargin=2000,opt-doc-col=60,header-col=1"
EXIT_STATUS = ("0: done. 1: it failed, and said why. 2: a wrong option or configuration: starting it "
               "again does not help.")
SEE_ALSO = {
    "program": "Configuration files, links and systemd units are described in docs/deploy.md, "
               "the C interface in coronet-net(3).",
    "header": "All calls with examples: docs/api.md (the network) and docs/coroutines.md.",
}


def date():
    """Of the sources if a package is made of them, else today's."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return time.strftime("%Y-%m-%d", time.gmtime(epoch))


# ---- section 1 ----

def section_of(name, pages):
    """A program's section of the documents, or of a page that is all about it."""
    for page in pages:
        text = pathlib.Path(page).read_text(encoding="utf-8")
        found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
        if found:
            return found[1]
        if name.endswith("-" + pathlib.Path(page).stem):
            return text.partition("\n")[2]
    return ""


def for_terminals(markdown):
    """Without links, which lead nowhere in a manual, and without tables of options."""
    markdown = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", markdown).replace("build/apps/", "")
    return re.sub(r"^\| option \|.*\n(\|.*\n)+", "", markdown, flags=re.M)


def roff_of(markdown):
    text = subprocess.run(["lowdown", "-tman", "-"], input=markdown, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    text = text.replace(r"\fC", r"\fB")  # a font that terminals have
    # A bar in a cell is written with a backslash, and a line may end after it.
    text = text.replace(r"\e|", r"|\:")
    # Its headings are sections of the page, of which a description has none.
    text = re.sub(r"^\.S[HS]\n", ".SS ", text, flags=re.M)
    return re.sub(r"^\.[LP]P\n(?=\.(?:IP|[LP]P|EX|TS|S[HS]))", "", text, flags=re.M)


def without_empty_paragraphs(text):
    return re.sub(r"^(\.S[HS] .*\n)\.[LP]P\n", r"\1", text, flags=re.M)


def summary(exe):
    """The first sentence of --help, as the line NAME wants it."""
    text = subprocess.run([exe, "--help"], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "ARGP_HELP_FMT": HELP_FORMAT}).stdout
    first = text.splitlines()[1]
    return re.split(r"\. |\.$|: ", first)[0].strip()


def program(name, exe, version, *pages):
    prose = roff_of(for_terminals(section_of(name, pages)))
    with tempfile.NamedTemporaryFile("w", suffix=".h2m", encoding="utf-8") as include:
        include.write(f"[EXIT STATUS]\n{EXIT_STATUS}\n\n[SEE ALSO]\n{SEE_ALSO['program']}\n")
        include.flush()
        text = subprocess.run(
            ["help2man", "--no-info", "--section=1", f"--name={summary(exe)}",
             "--manual=coronet", f"--source=coronet {version}", f"--version-string={version}",
             f"--include={include.name}", exe], check=True, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "ARGP_HELP_FMT": HELP_FORMAT, "LC_ALL": "C.UTF-8"}).stdout
    # Options, and their groups, begin here; help2man takes a group's heading for text.
    head, rest = re.split(r"\n(?=\.TP\n|\.IP\n\w[\w ]*:\n)", text, maxsplit=1)
    text = f"{head}\n.PP\n{prose.strip()}\n.SH OPTIONS\n{rest}"
    text = re.sub(r"^\.IP\n(\w[\w ]*):$", r".SS \1", text, flags=re.M)
    text = re.sub(r'^(\.TH \S+ "1") "[^"]*"', rf'\1 "{date()}"', text, flags=re.M)
    text = re.sub(r"^\.PP\n+(?=\.(?:PP|IP|EX|S[HS])\b)", "", text, flags=re.M)
    return without_empty_paragraphs(text)


# ---- section 3 ----

COMMENT = re.compile(r"/\*.*?\*/", re.S)
HEADING = re.compile(r"/\* ---- (.*) ---- \*/")
CALL = re.compile(r"^(?:[\w*]+[ \t*]+)+\**(\w+)\(", re.M)
NOISE = re.compile(r"^(#pragma .*|#ifdef __cplusplus\nextern \"C\" \{\n#endif|"
                   r"#ifdef __cplusplus\n\}\n#endif)\n", re.M)


def escape(text):
    """So that roff prints it as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def expand(text):
    return text.expandtabs(8)


def comment_text(comment):
    """A comment without its stars."""
    lines = comment.removeprefix("/*").removesuffix("*/").split("\n")
    return "\n".join(re.sub(r"^ \* ?|^ \*$", "", line).rstrip() for line in lines).strip("\n ")


def prose(comment):
    """Paragraphs; lines that are set in stay as they are."""
    out = []
    for paragraph in re.split(r"\n\s*\n", comment_text(comment)):
        inside = False
        out.append(".PP")
        for line in paragraph.split("\n"):
            set_in = line.startswith("  ")
            if set_in != inside:
                out.append(".EX" if set_in else ".EE")
                inside = set_in
            out.append(escape(line if set_in else line.strip()))
        if inside:
            out.append(".EE")
    return "\n".join(out)


def blocks(text):
    """(comment or "", declarations) of what stands between empty lines, and headings alone."""
    for block in re.split(r"\n\s*\n(?=\S)", text):
        block = block.strip("\n")
        if not block:
            continue
        found = COMMENT.match(block)
        if found and not HEADING.match(block):
            yield found[0], block[found.end():].strip("\n")
        else:
            yield "", block


def calls(text):
    """What a header declares that can be called, in its order."""
    bare = COMMENT.sub("", NOISE.sub("", text))
    bare = re.sub(r"\{[^{}]*\}", "", re.sub(r"\{[^{}]*\}", "", bare))
    bare = re.sub(r"^#.*(?:\\\n.*)*", "", bare, flags=re.M)
    names = [m[1] for m in CALL.finditer(bare)
             if not m[0].startswith(("typedef", "return")) and m[1] != "__attribute__"]
    names += re.findall(r"^__attribute__\(.*\)\s*(?:\w+[ *]+)+(\w+)\(", bare, re.M)
    return [name for name in dict.fromkeys(names) if not name.endswith("_")]


def header(name, path, version):
    text = NOISE.sub("", pathlib.Path(path).read_text(encoding="utf-8"))
    parts = list(blocks(text))
    about = comment_text(parts[0][0])
    include = "coronet/" + pathlib.Path(path).name
    first, _, rest = about.partition("\n\n")
    brief = re.split(r"(?<=\w)\. ", re.sub(r"^\S+(?: -|:) ", "", " ".join(first.split())))[0]
    module = "coronet-coro" if "coro" in pathlib.Path(path).name else "coronet"
    out = [f'.TH {name.upper()} "3" "{date()}" "coronet {version}" "coronet"',
           ".SH NAME", f"{escape(', '.join([name]))} \\- {escape(brief.rstrip('.'))}",
           ".SH SYNOPSIS", f".B #include <{include}>", ".PP",
           escape(f"cc program.c $(pkg-config --cflags --libs {module})"),
           ".SH DESCRIPTION"]
    out.append(prose(f"/*\n{first}\n\n{rest}*/").replace(".PP\n", "", 1))
    for comment, code in parts[1:]:
        heading = HEADING.match(code)
        if heading:
            out.append(f".SH {escape(heading[1].upper())}")
            code = code[heading.end():].strip("\n")
        if code.startswith("#include") or not (comment or code):
            continue
        if code:
            out += [".PP", ".EX", escape(expand(code)), ".EE"]
        if comment:
            out += [".RS 4", prose(comment).replace(".PP\n", "", 1), ".RE"]
    out += [".SH SEE ALSO", escape(SEE_ALSO["header"])]
    return without_empty_paragraphs("\n".join(out) + "\n")


def main():
    what, words = sys.argv[1], sys.argv[2:]
    if what == "program":
        sys.stdout.write(program(*words))
    elif what == "header":
        sys.stdout.write(header(*words))
    elif what == "calls":
        for path in words:
            print("\n".join(calls(pathlib.Path(path).read_text(encoding="utf-8"))))
    elif what == "aliases":
        for path in words[1:]:
            pathlib.Path(path).write_text(f".so man3/{words[0]}.3\n", encoding="utf-8")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
