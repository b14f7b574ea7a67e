"""Whether uring-echo runs here: the kernel may refuse io_uring."""
import os
import subprocess
import threading

WAIT_MAX_S = 60  # seconds
NOT_BUILT = "uring-echo is not built (./dev setup installs liburing-dev)"


def refusal(words):
    """Returns the kernel's reason in uring-echo's output; None if it does not refuse."""
    refused = "the kernel refuses io_uring"
    return words[words.index(refused):].strip() if refused in words else None


def no_uring(build):
    """Returns why uring-echo cannot run; None if it can."""
    path = os.path.join(build, "apps", "uring-echo")
    if not os.access(path, os.X_OK):
        return NOT_BUILT
    with subprocess.Popen([path, "--addr", "127.0.0.1", "--port", "0"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        timeout = threading.Timer(WAIT_MAX_S, server.kill)
        timeout.start()
        line = server.stdout.readline()  # that it listens, or why not
        timeout.cancel()
        server.kill()
    return refusal(line)
