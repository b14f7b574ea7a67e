#!/usr/bin/env python3
"""Manual pages: no warning of man or mandoc; every option and every call is documented; names with
an underscore, which Markdown may take for emphasis, are shown as they are. In --help, a program's
own options come before the common ones.

Usage: check_man.py FOLDER -- PROGRAM... -- HEADER... -- PAGE.md...
Skipped without mandoc and groff.
"""

import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "docs"))

import man  # noqa: E402


def output(*argv):
    done = subprocess.run(list(map(str, argv)), check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "MANWIDTH": "100"})
    return done.stdout


SKIPPED = 77


def lint(page):
    """Returns the complaints of the installed tools."""
    faults = []
    # A page that includes another has no content of its own.
    if page.read_text(encoding="utf-8").startswith(".so "):
        return faults
    # Our pages may have any heading; lists in a table are for groff.
    faults += output("mandoc", "-Tlint", "-W", "warning", page).splitlines()
    faults += output("groff", "-t", "-man", "-Tutf8", "-ww", "-z", page).splitlines()
    return faults


def plain(page):
    """Returns the page's text as shown, without line breaks."""
    text = output("mandoc", "-Tutf8", "-Owidth=500", page)
    return re.sub(r".\x08", "", text)


def names(text):
    """Returns the names with an underscore."""
    return set(re.findall(r"\b[^\W_]\w*_\w+", text))


def main():
    missing = [tool for tool in ("mandoc", "groff") if not shutil.which(tool)]
    if missing:
        print(f"man: not installed: {' '.join(missing)}")
        return SKIPPED
    groups = " ".join(sys.argv[1:]).split(" -- ")
    (folder,), programs, headers, prose = ([pathlib.Path(path) for path in group.split()]
                                           for group in groups)
    faults, checked = [], 0
    for page in sorted(folder.glob("*.[13]")):
        faults += lint(page)
        checked += 1
    for program in programs:
        text = plain(folder / f"{program.name}.1")
        options = set(re.findall(r"--[\w-]+", output(program, "--help")))
        faults += [f"{program.name}(1): no {option}" for option in sorted(options)
                   if option not in text]
        faults += [f"{program.name}(1): no section {name}" for name in
                   ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO")
                   if not re.search(rf"^{name}$", text, re.M)]
        section = man.for_terminals(man.section_of(program.name, prose))
        faults += [f"{program.name}(1): {name} is not shown as it is"
                   for name in sorted(names(section) | names(output(program, "--help")))
                   if name not in text]
        if not section.strip():
            faults.append(f"{program.name}(1): no description but the first sentence of --help")
        common = output(program, "--help").partition("\n Common options:\n")[2]
        if "--link" in options and (not common or re.search(r"^ \w.*:$", common, re.M)):
            faults.append(f"{program.name}: the common options do not end --help, with a heading")
        commands = output(program, "--help").partition("\nCommands:\n")[2]
        faults += [f"{program.name}(1): no command {command}"
                   for command in re.findall(r"^  (\S.*?)(?:  |$)", commands, re.M)
                   if not re.search(rf"^ +{re.escape(command)}( |$)", text, re.M)]
    for header in headers:
        source = header.read_text(encoding="utf-8")
        text = plain(folder / f"coronet-{header.stem}.3")
        calls = man.calls(source)
        if len(calls) < 2:
            faults.append(f"{header}: only {calls} are calls")
        for call in calls:
            if f"{call}(" not in text:
                faults.append(f"coronet-{header.stem}(3): no {call}()")
            if not (folder / f"{call}.3").exists():
                faults.append(f"no page for {call}(): configure the build again")
    print("\n".join(faults))
    print(f"man: {checked} pages, {len(faults)} faults")
    return 1 if faults or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
