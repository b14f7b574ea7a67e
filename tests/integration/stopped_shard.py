"""Stops a single thread of a program, like a shard that a coroutine blocks."""

import contextlib
import ctypes
import os
import pathlib

from harness import check

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000


@contextlib.contextmanager
def stopped_shard(program, index):
    """Stops one shard of a running program; its other threads continue."""
    libc = ctypes.CDLL(None, use_errno=True)
    tasks = {int(task.name): (task / "comm").read_text()
             for task in pathlib.Path(f"/proc/{program.process.pid}/task").iterdir()}
    found = [tid for tid, comm in tasks.items() if comm == f"shard-{index}\n"]
    check(len(found) == 1, f"{tasks}")
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        check(libc.ptrace(request, found[0], None, None) == 0, os.strerror(ctypes.get_errno()))
    os.waitpid(found[0], WALL)
    try:
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, found[0], None, None)
