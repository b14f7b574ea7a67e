#!/usr/bin/env python3
"""check_words.py, on samples and a repository made here. Usage: test_words.py; prints TAP."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import check_words

HERE = pathlib.Path(__file__).resolve().parent
REFUSED = (
    ("a.c", "/*\n * The door is\n * at rest.\n */\n", ["a.c:2: 'door'", "a.c:3: 'at rest'"]),
    ("a.c", "/* It is given\n * away. */\n", ["a.c:1: 'given away'"]),
    ("a.c", "int n_told;\n", ["a.c:1: 'told'"]),
    ("a.c", "static void due(int a,\n\t\tint b)\n{\n}\n", ["a.c:1: 'due'"]),
    ("a.c", "x = snd_most + their_way;\n", ["a.c:1: 'snd_most'", "a.c:1: 'their_way'"]),
    ("a.sh", "# made anew\n", ["a.sh:1: 'anew'"]),
    ("a.md", "This happens\nat times.\n", ["a.md:2: 'at times'"]),
    ("a.c", "__attribute__((cold)) static int\nsay(int a)\n{\n}\n", ["a.c:2: 'say'"]),
    ("a.c", "__attribute__((format(printf, 1, 2))) static int say(int a)\n{\n}\n",
     ["a.c:1: 'say'"]),
    ("a.c", "static void *dial(void *arg)\n{\n}\nvoid ask(void)\n{\n}\n",
     ["a.c:1: 'dial'", "a.c:4: 'ask'"]),
    ("a.c", "/* ---- who may come in ---- */\n", ["a.c:1: 'who may'"]),
    ("a.c", "/* ---- what comes ---- */\n", ["a.c:1: '---- what'"]),
    ("a.py", "# ---- whose it is ----\n", ["a.py:1: '---- whose'"]),
    ("a.h", "/* Whether it is. */\n/*\n * Whether it was. */\n",
     ["a.h:1: '/ Whether'", "a.h:2: '/ Whether'"]),
    ("a.c", "/* It is sent all the same, and others besides. */\n",
     ["a.c:1: 'all the same'", "a.c:1: 'besides'"]),
    ("a.c", "T(test_who_waits_sleeps, half_sacked_is_none);\n",
     ["a.c:1: 'test_who_waits_sleeps'", "a.c:1: 'half_sacked_is_none'"]),
    ("a.md", "The rest is left: then for 50 ms. Then the next backend is tried.\n",
     ["a.md:1: 'then for 50'", "a.md:1: 'then the next backend is tried'"]),
    ("a.md", "CPU 2000: the last is 1023. These bytes do not hold it, each way.\n",
     ["a.md:1: 'the last is 1023'", "a.md:1: 'bytes do not hold'", "a.md:1: 'each way'"]),
)
ACCEPTED = (
    ("a.c", "/* On the way out, either way; a memory block. At most two, in place. */\n"),
    ("a.c", 'puts("the rest of it is ours");\n'),
    ("a.c", "int under_way = net_stack_rest(stack) + net_sockets_ours(fd);\n"),
    ("a.c", "#define WAYS 4\nint indoors, bellows, foretold;\n"),
    ("a.py", "at = file.tell()\n"),
    ("a.h", "/* Returns whether all are the same, or all the same but one. */\n"),
    ("a.c", "/* ---- whatever, or what ---- */\n"),
    ("a.py", "def ask(self):\n    pass\n"),
    ("a.md", "It is cancelled, as every call is.\n"),
    ("a.md", "Everybody who may read it sees routers that do not say what fits.\n"),
)


def git(folder, *words):
    """Runs git in the folder of a sample, as a user of its own."""
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words],
                   check=True, capture_output=True)


def check_in(folder):
    """Returns the exit status of the check in a folder, and its output."""
    done = subprocess.run([sys.executable, HERE / "check_words.py", folder],
                          capture_output=True, text=True)
    return done.returncode, done.stdout


def case_refused():
    """Each sample is refused, with file, line and word."""
    for name, text, expected in REFUSED:
        lines = check_words.check_text(name, text)
        assert len(lines) == len(expected), (text, lines)
        assert all(line.startswith(begin) for line, begin in zip(lines, expected)), lines
        assert all(": say: " in line for line in lines), lines


def case_accepted():
    """Ordinary uses of the same words are accepted."""
    for name, text in ACCEPTED:
        lines = check_words.check_text(name, text)
        assert lines == [], lines


def case_subjects():
    """Subjects count after the commit that adds the check, and after a later tag."""
    with tempfile.TemporaryDirectory() as folder:
        git(folder, "init", "-q")
        (pathlib.Path(folder) / "tests").mkdir()
        git(folder, "commit", "-q", "--allow-empty", "-m", "a: open the door")
        shutil.copy(HERE / "check_words.py", pathlib.Path(folder) / "tests")
        git(folder, "add", "tests/check_words.py")
        git(folder, "commit", "-q", "-m", "a: open the listener")
        assert check_in(folder) == (0, "words: ok\n")
        git(folder, "commit", "-q", "--allow-empty", "-m", "a: ring the bell")
        status, out = check_in(folder)
        assert status == 1 and "'bell': say: wait queue" in out, out
        git(folder, "tag", "v1.0.0")
        assert check_in(folder) == (0, "words: ok\n")


CASES = (case_refused, case_accepted, case_subjects)


def main():
    """Runs every case."""
    print(f"1..{len(CASES)}")
    bad = 0
    for i, case in enumerate(CASES, 1):
        try:
            case()
            print(f"ok {i} - {case.__doc__}")
        except AssertionError as error:
            bad += 1
            print(f"not ok {i} - {case.__doc__}")
            print(f"# {error}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
