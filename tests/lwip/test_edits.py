#!/usr/bin/env python3
"""The edits to lwIP's source fit it, and say so when they do not.

Usage: test_edits.py PACKAGEFILES LWIP_ROOT
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = LWIP = None  # from the command line
TCP_OUT = "src/core/tcp_out.c"
EDITS = """
from collections import namedtuple
Edit = namedtuple("Edit", "file within find replace times why")
EDITS = [%s]
"""


class Edits(unittest.TestCase):
    """edit.py on a copy of the source that each test may change."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.root = pathlib.Path(self.dir.name) / "lwip"
        self.out = pathlib.Path(self.dir.name) / "out"
        for folder in ("src/core", "src/include"):
            shutil.copytree(LWIP / folder, self.root / folder)

    def edit(self, *args, edits=None):
        """Runs edit.py with the project's edits, or others."""
        return subprocess.run(
            [sys.executable, "-B", FOLDER / "edit.py",
             edits or FOLDER / "edits.py", *args],
            capture_output=True, text=True, check=False)

    def with_edits(self, text):
        """A file of these edits."""
        path = pathlib.Path(self.dir.name) / "edits.py"
        path.write_text(EDITS % text, encoding="utf-8")
        return path

    def doctor(self, name, old, new, count=-1):
        """Makes a file of the source another one."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, count), encoding="utf-8")

    def assert_refused(self, result, *words):
        """It failed and says in one sentence what does not fit."""
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in ("cannot be edited", "./dev setup", *words):
            self.assertIn(word, result.stderr)

    def test_edits_fit_the_source_and_leave_it_alone(self):
        """Every file is edited, into the output alone."""
        before = (self.root / TCP_OUT).read_text(encoding="utf-8")
        result = self.edit("headers", self.root, self.out)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(TCP_OUT, result.stdout.split())
        for name in result.stdout.split():
            copy = self.out / name
            self.assertEqual(
                self.edit("source", self.root, name, copy).returncode, 0)
            self.assertNotEqual(copy.read_text(encoding="utf-8"),
                                (self.root / name).read_text(encoding="utf-8"))
        self.assertEqual((self.root / TCP_OUT).read_text(encoding="utf-8"),
                         before)

    def test_missing_identifier_is_refused(self):
        """A source in which an edit finds nothing."""
        self.doctor(TCP_OUT, "TCPH_SET_FLAG(useg", "TCPH_FLAGS_SET(useg")
        self.assert_refused(self.edit("headers", self.root, self.out),
                            TCP_OUT, "0 matches", "tcp_split_unsent_seg()")

    def test_one_match_too_many_is_refused(self):
        """A source in which an edit finds more than it knows of."""
        self.doctor(TCP_OUT, "TCPH_SET_FLAG(useg",
                    "TCPH_SET_FLAG(seg->tcphdr, 0); TCPH_SET_FLAG(useg")
        self.assert_refused(self.edit("source", self.root, TCP_OUT, self.out),
                            "2 matches", "not 1")
        self.assertFalse(self.out.exists())

    def test_missing_function_is_refused(self):
        """A source whose function has another name."""
        self.doctor(TCP_OUT, "\ntcp_split_unsent_seg(", "\ntcp_split(")
        self.assert_refused(self.edit("headers", self.root, self.out),
                            "0 definitions of tcp_split_unsent_seg()")

    def test_missing_file_is_refused(self):
        """A source without the file."""
        (self.root / TCP_OUT).unlink()
        self.assert_refused(self.edit("headers", self.root, self.out), TCP_OUT)

    def test_missing_global_is_refused(self):
        """A source in which a variable has another name, or a header."""
        for name in ("src/core/tcp.c", "src/include/lwip/priv/tcp_priv.h"):
            self.doctor(name, "u32_t tcp_ticks;", "u32_t tcp_tocks;")
            self.assert_refused(
                self.edit("headers", self.root, self.out), name, "0 matches",
                "tcp_ticks")
            self.doctor(name, "tcp_tocks", "tcp_ticks")

    def test_missing_local_is_refused(self):
        """A source in which a function keeps no such variable."""
        self.doctor("src/core/ipv6/nd6.c", "static s8_t last_router;",
                    "s8_t last_router = 0;")
        self.assert_refused(self.edit("headers", self.root, self.out),
                            "0 matches", "nd6_select_router()", "last_router")

    def test_one_declaration_of_two_names_stays_one(self):
        """`a, b` is found as it is declared."""
        name = "src/core/tcp_in.c"
        self.edit("source", self.root, name, self.out)
        self.assertIn("static _Thread_local u32_t seqno, ackno;",
                      self.out.read_text(encoding="utf-8"))
        self.doctor(name, "u32_t seqno, ackno;", "u32_t seqno;", 1)
        self.assert_refused(self.edit("headers", self.root, self.out), name,
                            "seqno, ackno")

    def test_match_outside_the_function_does_not_count(self):
        """An edit stays within its function."""
        edits = self.with_edits(
            'Edit("src/core/tcp_out.c", "tcp_send_fin", r"\\btcp_set_flags\\b",'
            ' "tcp_mark", 1, "")')
        result = self.edit("source", self.root, TCP_OUT, self.out, edits=edits)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        text = self.out.read_text(encoding="utf-8")
        self.assertEqual(text.count("tcp_mark"), 1)
        self.assertIn("tcp_set_flags", text)

    def test_headers_are_all_there(self):
        """All headers are copied, edited or not; unchanged ones keep their time, strays go."""
        header = self.out / "lwip/priv/tcp_priv.h"
        stray = self.out / "lwip/stray.h"
        edits = self.with_edits(
            'Edit("src/include/lwip/priv/tcp_priv.h", None,'
            ' r"^(?=extern .*\\btcp_ticks\\b)", "/* mine */ ", 1, "")')
        result = self.edit("headers", self.root, self.out, edits=edits)
        self.assertEqual((result.returncode, result.stdout), (0, "\n"))
        self.assertIn("/* mine */ extern u32_t tcp_ticks;",
                      header.read_text(encoding="utf-8"))
        stray.write_text("", encoding="utf-8")
        old = (self.out / "lwip/ip.h").stat().st_mtime_ns
        self.edit("headers", self.root, self.out, edits=self.with_edits(""))
        self.assertNotIn("mine", header.read_text(encoding="utf-8"))
        self.assertFalse(stray.exists())
        self.assertEqual((self.out / "lwip/ip.h").stat().st_mtime_ns, old)
        include = self.root / "src/include"
        self.assertEqual(
            {path.relative_to(self.out) for path in self.out.rglob("*.h")},
            {path.relative_to(include) for path in include.rglob("*.h")})


if __name__ == "__main__":
    LWIP = pathlib.Path(sys.argv.pop())
    FOLDER = pathlib.Path(sys.argv.pop())
    unittest.main()
