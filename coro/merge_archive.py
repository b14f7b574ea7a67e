#!/usr/bin/env python3
"""Makes an archive of one object out of archives of many.

Only what has default visibility, the public calls, stays visible in it; hidden
symbols become local. So a program that links the archive may have an lwIP, or
anything else, under the names that ours has inside.
With --keep-hidden as the compiler's last word they stay as they are, but for
those that link-time optimisation made of static ones, whose names may be those
of another archive's.
Usage: merge_archive.py OUTPUT OBJCOPY AR ARCHIVE... -- COMPILER [WORD...]
"""

import pathlib
import subprocess
import sys
import tempfile


KEEP = "--keep-hidden"


def merge(output, objcopy, ar, archives, compiler, hides):
    """Runs linker, objcopy and ar; raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        one = pathlib.Path(folder, output.stem.removeprefix("lib") + ".o")
        subprocess.run(
            [*compiler, "-r", "-nostdlib", "-o", one, "-Wl,--whole-archive",
             *archives, "-Wl,--no-whole-archive"], check=True)
        subprocess.run(
            [objcopy, "--wildcard", "--localize-symbol=*.lto_priv.*",
             *(["--localize-hidden"] if hides else []), one], check=True)
        output.unlink(missing_ok=True)
        subprocess.run([ar, "rcsD", output, one], check=True)


def main():
    output, objcopy, ar, *rest = sys.argv[1:]
    at = rest.index("--")
    archives, compiler = rest[:at], rest[at + 1:]
    hides = compiler[-1] != KEEP
    try:
        merge(pathlib.Path(output), objcopy, ar, archives,
              compiler if hides else compiler[:-1], hides)
    except subprocess.CalledProcessError as error:
        sys.exit(f"merge_archive.py: {error}")


if __name__ == "__main__":
    main()
