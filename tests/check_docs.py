#!/usr/bin/env python3
"""Every C program the documents show is a file that the build compiles.

A block that begins with ```c and stands below a line <!-- FILE --> must be
FILE to the letter; a longer block of C without such a line is refused.
Usage: check_docs.py SOURCE_ROOT
"""

import pathlib
import re
import sys

BLOCK = re.compile(r"(?:<!-- (?P<file>[\w./-]+) -->\n)?```c\n(?P<code>.*?)```\n",
                   re.S)
SHORT = 12  # lines a snippet may have that is no program


def check(root, page):
    """The complaints about one page."""
    bad = []
    for block in BLOCK.finditer(page.read_text()):
        code = block["code"]
        where = f"{page.relative_to(root)}: '{code.splitlines()[0]}'"
        if block["file"]:
            path = root / block["file"]
            if not path.is_file():
                bad.append(f"{where}: there is no {block['file']}")
            elif path.read_text() != code:
                bad.append(f"{where}: differs from {block['file']}")
        elif len(code.splitlines()) > SHORT:
            bad.append(f"{where}: more than {SHORT} lines and no file named")
    return bad


def main():
    """All pages; exit status 1 if any complains."""
    root = pathlib.Path(sys.argv[1])
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    bad = [line for page in pages for line in check(root, page)]
    print("\n".join(bad) or f"docs: {len(pages)} pages ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
