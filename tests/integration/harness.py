"""Base of the integration tests: namespaces, programs, TAP output.

A test script calls main(cases): it starts itself again inside a network,
mount and PID namespace of its own, so that links, routes and programs vanish
with it in any case, and runs cases(env) there. It needs root, user namespaces, or sudo -n;
otherwise the script is skipped with the reason.
"""

import contextlib
import functools
import json
import os
import pathlib
import pwd
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

INSIDE = "--inside-namespaces"
CASE_SECONDS = 300  # bound of one case
WAIT_MAX_S = 120  # bounds every wait for an event, so that a hang fails the test
POLL_SECONDS = 0.02  # between two polls of a condition
STORIES_MAX = 8  # programs whose story is shown when a case has failed
READY = "listening on"
CRASHES = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGILL, -signal.SIGFPE}
SANITIZER = re.compile(r"(ERROR|WARNING): \w+Sanitizer|runtime error:")


class Skip(Exception):
    """The case cannot run here; the message says why."""


class Failure(Exception):
    """The case has failed; the message says why."""


class Spoiled(Failure):
    """The attempt failed, maybe because the machine was busy."""


def check(condition, message):
    """Fails the case unless the condition holds."""
    if not condition:
        raise Failure(message)


class Program:
    """A program under test; its output goes to files in the scratch folder."""

    def __init__(self, env, argv, /, **popen_args):
        self.argv = [str(arg) for arg in argv]
        self.name = pathlib.Path(self.argv[0]).name
        self.may_crash = False
        folder = pathlib.Path(tempfile.mkdtemp(prefix=self.name + ".", dir=env.scratch))
        self.paths = {name: folder / name for name in ("stdout", "stderr")}
        with self.paths["stdout"].open("wb") as out, self.paths["stderr"].open("wb") as err:
            files = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            self.process = subprocess.Popen(self.argv, **files | popen_args)
        env.programs.append(self)

    def output(self, name):
        """Returns the program's output so far on "stdout" or "stderr"."""
        return self.paths[name].read_text(errors="replace")

    def alive(self):
        return self.process.poll() is None

    def wait_ready(self, line=f"{READY}.*", seconds=WAIT_MAX_S):
        """Waits for the line on stdout that says it is ready."""
        deadline = time.monotonic() + seconds
        while not re.search(f"^{line}\n", self.output("stdout"), re.MULTILINE):
            check(self.alive(), f"{self.name} ended before it was ready: {self.story()}")
            check(time.monotonic() < deadline, f"{self.name} is never ready: {self.story()}")
            time.sleep(POLL_SECONDS)
        return self

    def wait(self, seconds):
        """Waits for the program to end by itself; returns the exit status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} still runs after {seconds} s: {self.story()}") from None

    def signal(self, number):
        self.process.send_signal(number)

    def terminate(self, seconds=WAIT_MAX_S):
        """Sends SIGTERM; the program must end cleanly."""
        self.signal(signal.SIGTERM)
        status = self.wait(seconds)
        check(status == 0, f"{self.name} exited with {status}: {self.story()}")

    def kill(self):
        if self.alive():
            self.process.kill()
            self.process.wait()

    def complaints(self):
        """Returns what the sanitizers reported or which signal crashed it, or an empty string."""
        text = self.output("stderr")
        found = SANITIZER.search(text)
        if found:
            return text[found.start():found.start() + 2000]
        status = self.process.poll()
        if status in CRASHES and not self.may_crash:
            return f"{' '.join(self.argv)}: ended by {signal.Signals(-status).name}\n"
        return ""

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def story(self):
        """Returns the command, the end of its output and sanitizer reports, for diagnostics."""
        tail = (self.output("stdout")[-1000:] + self.output("stderr")[-2000:]).strip()
        return (f"{' '.join(self.argv)} (status {self.process.poll()})\n{tail}\n"
                f"{self.complaints()}").rstrip()


class Env:
    """A script's environment: the build under test, a scratch folder, running programs."""

    def __init__(self, build, args):
        self.build = build
        self.args = args
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="coronet-test."))
        self.scratch.chmod(0o755)
        self.programs = []
        options = json.loads((build / "meson-info/intro-buildoptions.json").read_text())
        options = {option["name"]: option["value"] for option in options}
        self.sanitized = options["b_sanitize"] != "none"
        self.released = not self.sanitized and options["optimization"] in ("2", "3")

    def app(self, name):
        """The path of a built app."""
        path = self.build / "apps" / name
        check(path.exists(), f"{name} is not built")
        return path

    def start(self, argv, /, **popen_args):
        return Program(self, argv, **popen_args)

    @contextlib.contextmanager
    def running(self, argv, /, ready=f"{READY}.*", **popen_args):
        """Runs a server that is ready when the block starts, and is killed after it if needed."""
        program = self.start(argv, **popen_args)
        try:
            yield program.wait_ready(ready)
        finally:
            program.kill()

    def ordinary_user(self):
        """Returns Popen arguments that run a program as another user than root.

        In a user namespace no other user is mapped; there the program already runs as an
        unprivileged user of the machine.
        """
        if not pathlib.Path("/proc/self/uid_map").read_text().split()[2].startswith("4294967295"):
            return {}
        user = pwd.getpwuid(int(os.environ.get("SUDO_UID", "0")) or pwd.getpwnam("nobody").pw_uid)
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.scratch)}
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [],
                "env": {**environment, **sanitizer_options()}}

    def readable_build(self, user):
        """Returns the build folder, or a copy if that user cannot read it."""
        probe = subprocess.run(["test", "-x", self.build / "apps"], check=False, **user)
        if probe.returncode == 0:
            return self.build
        copy = self.scratch / "build"
        if not copy.exists():
            wanted = [*self.build.glob("apps/*"), *self.build.glob("**/*.so*")]
            for path in (path for path in wanted if path.is_file()):
                target = copy / path.relative_to(self.build)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target, follow_symlinks=True)
        return copy

    def scratch_for(self, user):
        """Makes a folder that the user may write to."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        if user:
            os.chown(folder, user["user"], user["group"])
        return folder

    def close(self):
        for program in self.programs:
            program.kill()
        shutil.rmtree(self.scratch, ignore_errors=True)


class Namespace:
    """A network namespace, held by a process until it is closed."""

    def __init__(self, env):
        own = os.readlink("/proc/self/ns/net")
        self.holder = env.start(["unshare", "--net", "sleep", "3600"])
        self.path = f"/proc/{self.holder.process.pid}/ns/net"
        eventually(lambda: os.readlink(self.path) != own, WAIT_MAX_S, "no namespace was made")

    def inside(self, *argv):
        """Returns the words that run a command in it."""
        return ["nsenter", f"--net={self.path}", *argv]

    def command(self, *argv):
        return command(*self.inside(*argv))

    def take_interface(self, interface):
        """Moves an interface from the script's namespace into it."""
        command("ip", "link", "set", interface, "netns", self.holder.process.pid)

    def close(self):
        self.holder.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def sanitizer_options():
    """Returns the sanitizers' options for the environment."""
    return {key: value for key, value in os.environ.items() if key.endswith("SAN_OPTIONS")}


def command(*argv):
    """Runs a system command, which must succeed; returns its output."""
    done = subprocess.run([str(arg) for arg in argv], check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, f"{' '.join(map(str, argv))}: {done.stdout.strip()}")
    return done.stdout


def preload_of(library):
    """Returns LD_PRELOAD for a library, with the sanitizers' runtimes before it."""
    needed = re.findall(r"=> (\S*/lib(?:a|ub)san\S*)", command("ldd", str(library)))
    return ":".join([*sorted(needed, key=lambda path: "libasan" not in path), str(library)])


def accepted_by(program):
    """Returns the connections that each shard has accepted, by the program's statistics."""
    taken = {}
    for shard, count in re.findall(r"shard (\d+): .*\+(\d+) accepted", program.output("stderr")):
        taken[int(shard)] = taken.get(int(shard), 0) + int(count)
    return taken


def received_by(program):
    """Returns the frames that each shard received by its queue, and by hand-over.

    They are sums of rates from the program's statistics, so only zero and more than zero are
    meaningful.
    """
    own, handed = {}, {}
    for shard, received, taken in re.findall(
            r"shard (\d+): .* rx (\d+)/s .*taken over (\d+)/s", program.output("stderr")):
        shard, received, taken = int(shard), int(received), int(taken)
        own[shard] = own.get(shard, 0) + received - taken
        handed[shard] = handed.get(shard, 0) + taken
    return own, handed


def cpu_seconds(pid):
    """Returns the CPU seconds of all threads of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def eventually(condition, seconds, message, pause=POLL_SECONDS):
    """Polls until the condition holds, and returns its value; message is a text or a function
    that returns one."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise Failure(message() if callable(message) else message)
        time.sleep(pause)
    return value


def rounds_of(program):
    """Returns how often a program's --stats timer has fired."""
    line = r"^proxy: .*\n" if program.name.endswith("-proxy") else r"^stats: rx .*\n"
    return len(re.findall(line, program.output("stderr"), re.MULTILINE))


def await_rounds(program, count):
    """Waits until the --stats timer has fired count more times. That takes at least count
    intervals, so the program's shorter timers have fired as well."""
    wanted = rounds_of(program) + count + 1  # one interval has already started
    eventually(lambda: rounds_of(program) >= wanted, WAIT_MAX_S,
               lambda: f"no statistics: {program.story()}")


def repeat_for(seconds, action):
    """Repeats an action, with pauses, until so many seconds have passed before its last turn.

    The last turn shows the state at that time or later: the program under test may have been
    stopped meanwhile, but is never ahead of the clock.
    """
    end = time.monotonic() + seconds
    over = False
    while not over:
        over = time.monotonic() >= end
        action()
        time.sleep(POLL_SECONDS)


def linger(seconds):
    """Pauses a peer of the test. A test may depend on the pause being this long, but not on its
    being no longer."""
    time.sleep(seconds)


def kernel_count(name):
    """Returns one of the TcpExt counters of this network namespace, such as TCPWinProbe."""
    names, values = [line.split() for line in
                     pathlib.Path("/proc/net/netstat").read_text().splitlines()
                     if line.startswith("TcpExt:")]
    return int(values[names.index(name)])


def read_metric(port, name):
    """Returns a value of the page for Prometheus; name has its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_MAX_S) as page:
        for line in page.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
    raise Failure(f"no metric {name}")


def in_a_quiet_moment(attempt):
    """Repeats an attempt while it is Spoiled; returns its result.

    For checks that need an idle machine. A wrong program spoils every attempt; other exceptions
    than Spoiled fail at once.
    """
    deadline = time.monotonic() + WAIT_MAX_S
    while True:
        try:
            return attempt()
        except Spoiled:
            if time.monotonic() > deadline:
                raise


def namespace_command(privileged=False):
    """Returns a command that runs another in new namespaces, or None.

    User namespaces are preferred, unless the test needs the machine's root.
    """
    # In a chroot the root's mount propagation cannot be changed, and need not be.
    basic = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    variants = [basic, [*basic, "--propagation", "unchanged"]]
    if os.getuid() != 0:
        users = [[*variant, "--user", "--map-root-user"] for variant in variants]
        roots = [["sudo", "-n", *variant] for variant in variants]
        variants = roots + users if privileged else users + roots
    for variant in variants:
        with contextlib.suppress(OSError):
            if subprocess.run([*variant, "true"], check=False, stdin=subprocess.DEVNULL,
                              capture_output=True).returncode == 0:
                return variant
    return None


def reenter(privileged=False):
    """Starts this script again inside namespaces."""
    namespaces = namespace_command(privileged)
    if namespaces is None:
        print("1..0 # SKIP no network namespace: neither root, user namespaces nor sudo -n")
        sys.exit(0)
    if namespaces[0] == "sudo":  # sudo clears the environment
        namespaces = [*namespaces, "env", *map("=".join, sanitizer_options().items())]
    sys.stdout.flush()
    # -B: under sudo the cached bytecode would be root's.
    os.execvp(namespaces[0], [*namespaces, sys.executable, "-B", sys.argv[0], INSIDE,
                              *sys.argv[1:]])


def set_congestion_control():
    """Sets the kernel peers' congestion control, whatever the machine's default is: BBR takes the
    losses of a busy machine for a policer's, and then sends 2 KB/s for minutes. User namespaces
    may set Reno only."""
    with contextlib.suppress(OSError):  # where /proc/sys is read-only
        pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("reno")


def comment(text):
    """Prints a TAP diagnostic."""
    for line in text.strip().splitlines():
        print(f"# {line}", flush=True)


def run_case(number, name, function, env):
    """Runs one case and prints its line; returns True unless it failed."""
    def expire(*_):
        raise Failure(f"not done after {CASE_SECONDS} s")

    signal.signal(signal.SIGALRM, expire)
    signal.alarm(CASE_SECONDS)
    begin = time.monotonic()
    trouble = ""
    try:
        function()
    except Skip as reason:
        print(f"ok {number} - {name} # SKIP {reason}", flush=True)
        return True
    except Failure as failure:
        trouble = str(failure)
    except Exception:  # a bug in the case fails it, too
        trouble = traceback.format_exc()
    finally:
        signal.alarm(0)
    for program in env.programs:
        trouble += program.complaints()
    if trouble:
        stories = (program.story() for program in env.programs[-STORIES_MAX:])
        trouble = "".join(f"--- {story}\n" for story in stories if story not in trouble) + trouble
    env.programs[:] = [program for program in env.programs if program.alive()]
    print(f"{'not ok' if trouble else 'ok'} {number} - {name}", flush=True)
    comment(trouble or f"{time.monotonic() - begin:.1f} s")
    return not trouble


def chosen(env, functions, *args, words=0, prefix=""):
    """Yields (name, function) for those that are named behind `words` arguments, or for all."""
    names = env.args[words:]
    for function in functions:
        if not names or function.__name__ in names:
            yield (prefix + function.__name__.replace("_", " "),
                   functools.partial(function, env, *args))


def main(cases, privileged=False):
    """Runs the cases that cases(env) yields as (name, function).

    privileged: as the machine's root instead of a user namespace's, if both are available.
    """
    if INSIDE not in sys.argv:
        reenter(privileged)
    sys.argv.remove(INSIDE)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    env = Env(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:])
    failed = number = 0
    try:
        command("ip", "link", "set", "lo", "up")
        set_congestion_control()
        for number, (name, function) in enumerate(cases(env), 1):
            failed += not run_case(number, name, function, env)
    finally:
        env.close()
    if not number:
        sys.exit(f"no case is called so: {' '.join(env.args)}")
    print(f"1..{number}", flush=True)
    sys.exit(1 if failed else 0)
