"""Programs that never outlive the script that started them.

    with Children("demo") as children:
        server = children.start(["coronet-echo", ...])
        server.wait_ready()
        children.run(["coronet-load", ...], 60)

Each child is the leader of a session of its own, so that a terminal's Ctrl-C reaches the script
alone, which then ends the children in order. What a child prints goes to files in a temporary
folder and is shown when it fails. Leaving the block, by its end, an error, SIGINT, SIGTERM or
SIGHUP at any moment, ends every child with all its descendants and removes the folder; if the
script is killed, the kernel kills the children.
"""

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

from harness import POLL_SECONDS, Failure, Program, check  # noqa: E402

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
SUN_PATH_MAX = 107  # bytes of a socket's path

_libc = ctypes.CDLL(None, use_errno=True)


class Interrupted(BaseException):
    """A stop signal was received."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


_interrupted = False
_open = []  # Children whose block was not left in order


def _interrupt(number, _frame):
    # Once: the end of the children, which it starts, must not be interrupted.
    global _interrupted
    if not _interrupted:
        _interrupted = True
        raise Interrupted(number)


@contextlib.contextmanager
def _signals_held():
    """A stop signal waits until the block is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Child(Program):
    """One process; made by Children.start()."""

    def __init__(self, children, argv, prepare, **popen_args):
        parent = os.getpid()

        def in_child():
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            if prepare:
                prepare()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

        super().__init__(children, argv, start_new_session=True, preexec_fn=in_child,
                         env=children.env, **popen_args)

    def check_alive(self):
        """Raises Failure if the child has ended."""
        check(self.alive(), f"{self.name} ended: {self.story()}")


class Children:
    """The children of one script, and its temporary folder."""

    def __init__(self, name):
        self.name = name
        self.scratch = self.env = None
        self.programs = []

    def __enter__(self):
        with _signals_held():
            _open.append(self)
            self.scratch = self._make_folder()
            # DPDK's run-time folder of an unprivileged user.
            self.env = dict(os.environ, XDG_RUNTIME_DIR=self.scratch)
        return self

    def _make_folder(self):
        folder = tempfile.mkdtemp(prefix=f"coronet-{self.name}-")
        if len(os.fsencode(folder)) <= SUN_PATH_MAX - 20:
            return folder
        os.rmdir(folder)
        return tempfile.mkdtemp(prefix=f"coronet-{self.name}-", dir="/tmp")

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends all running children. Can be called again if it was interrupted."""
        with _signals_held():
            self._end_all()
            if self.scratch:
                shutil.rmtree(self.scratch, ignore_errors=True)
            if self in _open:
                _open.remove(self)

    def _end_all(self):
        """Sends SIGTERM to every child, then SIGKILL."""
        alive = [child for child in self.programs if child.alive()]
        for child in alive:
            child.process.terminate()
        end = time.monotonic() + 2
        for child in alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0, end - time.monotonic()))
        while self.programs:
            child = self.programs[-1]
            # The whole session, with the child's own children.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()
            self.programs.pop()

    def path(self, name):
        """A path in the temporary folder."""
        return os.path.join(self.scratch, name)

    def start(self, argv, prepare=None, **popen_args):
        """Starts a child; prepare() runs in it before the program."""
        with _signals_held():
            try:
                return Child(self, argv, prepare, **popen_args)
            except OSError as error:
                raise Failure(f"cannot start {argv[0]}: {error.strerror}") from None

    def run(self, argv, timeout, watch=(), started=None, **popen_args):
        """Runs a child to its end, with started(child) meanwhile. Failure when it or a watched
        one fails."""
        child = self.start(argv, **popen_args)
        end = time.monotonic() + timeout
        if started:
            started(child)
        while child.alive():
            for other in watch:
                other.check_alive()
            check(time.monotonic() < end, f"{child.name} did not end in {timeout:.0f} s: "
                  + child.story())
            time.sleep(POLL_SECONDS)
        check(child.process.returncode == 0, f"{child.name} failed: {child.story()}")
        return child


def main(function):
    """Runs a script's function and turns its outcome into an exit status."""
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        status = function()
        sys.stdout.flush()
    except Failure as failure:
        print(f"{os.path.basename(sys.argv[0])}: {failure}", file=sys.stderr)
        status = 1
    except Interrupted as interrupted:
        status = 128 + interrupted.number
    except BrokenPipeError:
        # There is no reader any more; discards the rest of the buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    finally:
        # A signal can come just as a block is entered or left.
        for children in list(_open):
            children.close()
    sys.exit(status)
