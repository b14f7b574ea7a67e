"""Child processes that never outlive the script that started them.

    with Children("demo") as children:
        server = children.start("server", [...])
        server.wait_for_line("listening on", 20)
        children.run("load", [...], 60)

Each child is the leader of a session of its own, so that a terminal's Ctrl-C
reaches the script alone, which then ends the children in order. What a child
prints goes to files in a temporary folder and is shown when it fails. Leaving
the block, by its end, an error, SIGINT, SIGTERM or SIGHUP at any moment, ends
every child with all its descendants and removes the folder; if the script is
killed, the kernel kills the children.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "integration"))

from harness import Failure  # noqa: E402

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_TIMEOUT = 30  # seconds a child may take to drain
PR_SET_PDEATHSIG = 1
SUN_PATH_MAX = 107  # bytes of a socket's path

_libc = ctypes.CDLL(None, use_errno=True)


class Interrupted(BaseException):
    """A stop signal came."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


_interrupted = False
_open = []  # Children whose block has not been left in order


def _interrupt(number, _frame):
    # Once: what it sets off, ending the children, must not be interrupted.
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


class Child:
    """One process; made by Children.start()."""

    def __init__(self, name, argv, folder, env, prepare, **files):
        self.name = name
        self.argv = argv
        self.out_path = os.path.join(folder, name + ".out")
        self.err_path = os.path.join(folder, name + ".err")
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

        with open(self.out_path, "wb") as out, \
                open(self.err_path, "wb") as err:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out,
                       "stderr": err}
            streams.update(files)
            self.process = subprocess.Popen(
                argv, start_new_session=True, preexec_fn=in_child, env=env,
                **streams)

    def output(self):
        """Everything it has printed on stdout."""
        with open(self.out_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def messages(self):
        """The end of what it printed on stderr, else on stdout."""
        with open(self.err_path, encoding="utf-8", errors="replace") as file:
            text = file.read().strip() or self.output().strip()
        return "\n".join("    " + line for line in text.splitlines()[-20:])

    def failure(self, what):
        """The Failure that tells what happened, with the child's own words."""
        text = f"{self.name} {what}: {' '.join(self.argv)}"
        messages = self.messages()
        return Failure(text + "\n" + messages if messages else text)

    def status_text(self):
        """How it ended."""
        code = self.process.returncode
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit status {code}"

    def check_alive(self):
        """Raises Failure when the child is no more."""
        if self.process.poll() is not None:
            raise self.failure(self.status_text())

    def wait_for_line(self, start, timeout):
        """The first line of stdout that begins so."""
        end = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None
            for line in self.output().splitlines(keepends=True):
                if line.startswith(start) and line.endswith("\n"):
                    return line.strip()
            if ended:
                raise self.failure(self.status_text())
            if time.monotonic() > end:
                raise self.failure(f"did not say '{start}' in {timeout} s")
            time.sleep(0.02)

    def wait_for_path(self, path, timeout):
        """Until the child has made this file or socket."""
        end = time.monotonic() + timeout
        while not os.path.exists(path):
            self.check_alive()
            if time.monotonic() > end:
                raise self.failure(f"did not make {path} in {timeout} s")
            time.sleep(0.02)

    def stop(self):
        """Lets it drain; Failure when it cannot end well."""
        self.check_alive()
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise self.failure(
                f"did not end {STOP_TIMEOUT} s after SIGTERM") from None
        if self.process.returncode != 0:
            raise self.failure(self.status_text() + " after SIGTERM")


class Children:
    """The children of one script, and its temporary folder."""

    def __init__(self, name):
        self.name = name
        self.folder = None
        self.children = []
        self.env = None

    def __enter__(self):
        with _signals_held():
            _open.append(self)
            self.folder = self._make_folder()
            # DPDK keeps an ordinary user's run-time files there.
            self.env = dict(os.environ, XDG_RUNTIME_DIR=self.folder)
        return self

    def _make_folder(self):
        folder = tempfile.mkdtemp(prefix=f"coronet-{self.name}-")
        if len(os.fsencode(folder)) <= SUN_PATH_MAX - 20:
            return folder
        os.rmdir(folder)
        return tempfile.mkdtemp(prefix=f"coronet-{self.name}-", dir="/tmp")

    def __exit__(self, kind, value, trace):
        self.close()
        return False

    def close(self):
        """Ends what still runs. Can be called again if it was interrupted."""
        with _signals_held():
            self._end_all()
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)
            if self in _open:
                _open.remove(self)

    def _end_all(self):
        """Asks every child to end, then makes it."""
        alive = [c for c in self.children if c.process.poll() is None]
        for child in alive:
            child.process.terminate()
        end = time.monotonic() + 2
        for child in alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0, end - time.monotonic()))
        while self.children:
            child = self.children[-1]
            # The whole session: a child's own children go with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()
            self.children.pop()

    def path(self, name):
        """A path in the temporary folder."""
        return os.path.join(self.folder, name)

    def start(self, name, argv, prepare=None, **files):
        """Starts a child; prepare() runs in it before the program."""
        with _signals_held():
            try:
                child = Child(name, argv, self.folder, self.env, prepare,
                              **files)
            except OSError as error:
                raise Failure(f"cannot start {argv[0]}: {error.strerror}"
                              ) from None
            self.children.append(child)
        return child

    def run(self, name, argv, timeout, watch=(), **files):
        """Runs a child to its end. Failure when it or a watched one fails."""
        child = self.start(name, argv, **files)
        end = time.monotonic() + timeout
        while child.process.poll() is None:
            for other in watch:
                other.check_alive()
            if time.monotonic() > end:
                raise child.failure(f"did not end in {timeout:.0f} s")
            time.sleep(0.02)
        if child.process.returncode != 0:
            raise child.failure(child.status_text())
        return child


def main(function):
    """Runs a script's function and turns what happens into an exit status."""
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
        # Nobody reads any more; what is left in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    finally:
        # A signal can come just as a block is entered or left.
        for children in list(_open):
            children.close()
    sys.exit(status)
