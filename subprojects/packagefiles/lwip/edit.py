#!/usr/bin/env python3
"""Applies a list of edits, edits.py, to lwIP's source.

usage: edit.py EDITS headers ROOT DIR
           try all edits on the source below ROOT, write all its headers
           below DIR, edited, and print the names of the sources they change
       edit.py EDITS source ROOT NAME OUTPUT
           write the source NAME, below ROOT, with its edits

An edit that does not match as often as it says stops the build: the source is
another one, or the edit is wrong, and either is for a person to look at.
"""
import pathlib
import re
import runpy
import sys

INCLUDE = "src/include/"


class Mismatch(Exception):
    """An edit does not fit the source."""


def span_of(text, function):
    """Where a function lies: lwIP begins its name and its end at column 0."""
    starts = [m.start() for m in
              re.finditer(rf"^{re.escape(function)}\([^;{{]*\{{", text, re.M)]
    if len(starts) != 1:
        raise Mismatch(f"{len(starts)} definitions of {function}(), not 1")
    end = re.compile(r"^\}", re.M).search(text, starts[0])
    if not end:
        raise Mismatch(f"no end of {function}()")
    return starts[0], end.end()


def apply(text, edit):
    """The text after one edit."""
    begin, end = span_of(text, edit.within) if edit.within else (0, len(text))
    part, count = re.subn(edit.find, edit.replace, text[begin:end],
                          flags=re.M)
    if count != edit.times:
        place = f"{edit.within}()" if edit.within else "the file"
        raise Mismatch(f"{count} matches of {edit.find!r} in {place}, not "
                       f"{edit.times}")
    return text[:begin] + part + text[end:]


def edited(edits, root, name):
    """The text of lwIP's file `name` after its edits."""
    try:
        text = (pathlib.Path(root) / name).read_text(encoding="utf-8")
        for edit in edits:
            if edit.file == name:
                text = apply(text, edit)
    except (Mismatch, OSError, UnicodeDecodeError) as err:
        sys.exit(f"lwIP's {name} cannot be edited: {err}. It is not the "
                 "source that ./dev setup fetches, or subprojects/"
                 "packagefiles/lwip/edits.py is out of date.")
    return text


def write(path, text):
    """Writes a file unless it is so already, which would rebuild much."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_headers(edits, root, folder):
    """Leaves exactly lwIP's headers in folder, edited; returns the sources.

    All of them, since one that was found elsewhere before would not be known
    to ninja as what the objects depend on.
    """
    include = pathlib.Path(root) / INCLUDE
    names = {edit.file for edit in edits}
    names |= {f"{INCLUDE}{path.relative_to(include)}"
              for path in include.rglob("*.h")}
    texts = {name: edited(edits, root, name) for name in sorted(names)}
    folder.mkdir(parents=True, exist_ok=True)
    headers = {folder / name.removeprefix(INCLUDE): text
               for name, text in texts.items() if name.startswith(INCLUDE)}
    for path in folder.rglob("*.h"):
        if path not in headers:
            path.unlink()  # of another source
    for path, text in headers.items():  # no warnings of a library not ours
        write(path, "#pragma GCC system_header\n" + text)
    return [name for name in texts if not name.startswith(INCLUDE)]


def main(args):
    """Returns the exit status."""
    if len(args) == 4 and args[1] == "headers":
        edits = runpy.run_path(args[0])["EDITS"]
        print("\n".join(write_headers(edits, args[2], pathlib.Path(args[3]))))
    elif len(args) == 5 and args[1] == "source":
        edits = runpy.run_path(args[0])["EDITS"]
        write(pathlib.Path(args[4]), edited(edits, args[2], args[3]))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
