#!/usr/bin/env python3
"""coronet-gdb.py under gdb: names, states, blocking calls and backtraces.

Usage: test_gdb_script.py GDB_SCRIPT PROGRAM [--core]
PROGRAM is gdb_states.c, which stops with coroutines in every state. With
--core the same is asked of a core file of it (not under ASan, whose shadow
memory would be written out).
"""

import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

# name: state, the blocking call, the function its body blocks in (None: none).
COROUTINES = {
    "holder": ("parked", "holding on", "in_holder"),
    "parker": ("parked", "coro_park", "in_park"),
    "loner": ("parked", "coro_park", "in_park"),
    "sleeper": ("waiting", "coro_sleep", "in_sleep"),
    "locker": ("waiting", "coro_mutex_lock", "in_mutex"),
    "reader": ("waiting", "coro_rwlock_rdlock", "in_rdlock"),
    "writer": ("waiting", "coro_rwlock_wrlock", "in_wrlock"),
    "waiter": ("waiting", "coro_cond_wait", "in_cond"),
    "counter": ("waiting", "coro_sem_wait", "in_sem"),
    "grouped": ("waiting", "coro_wait_group_wait", "in_group"),
    "barred": ("waiting", "coro_barrier_wait", "in_barrier"),
    "sender": ("waiting", "coro_chan_send", "in_send"),
    "receiver": ("waiting", "coro_chan_recv", "in_recv"),
    "chooser": ("waiting", "coro_select", "in_select"),
    "joiner": ("waiting", "coro_join", "in_join"),
    "suspended": ("suspended", "", "in_suspend"),
    "yielder": ("queued", "", "in_yield"),
    "unborn": ("queued", "", None),
    "fresh": ("new", "", None),
    "resumer": ("normal", "", "in_resume"),
    "runner": ("running", "", None),
}

LISTED = re.compile(r"(0x[0-9a-f]+) +(\w+) +(\w+) *(.*)")
FRAME = re.compile(r" +#\d+ +0x[0-9a-f]+ in (\w+)")


def gdb(*commands, program):
    """Runs the commands in one gdb batch; returns the output."""
    words = ["gdb", "-q", "-nx", "-batch"]
    for command in ("set confirm off", "set pagination off", "set width 0",
                    "set disable-randomization off",
                    "set debuginfod enabled off", *commands):
        words += ["-ex", command]
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0", TSAN_OPTIONS="")
    done = subprocess.run([*words, *program], capture_output=True, text=True,
                          timeout=100, env=env)
    return done.stdout + done.stderr


def section(text, name):
    """Returns the text between one mark and the next."""
    return text.split(f"=={name}\n")[1].split("==")[0]


def listed(text):
    """Returns {name: (address, state, where)} of coro list."""
    return {m[2]: (m[1], m[3], m[4].strip())
            for m in map(LISTED.fullmatch, text.splitlines()) if m}


def backtraces(text):
    """Returns {name: functions, innermost first} of coro bt."""
    found, name = {}, None
    for line in text.splitlines():
        head, frame = LISTED.fullmatch(line), FRAME.match(line)
        if head:
            name = head[2]
            found[name] = []
        elif frame:
            found[name].append(frame[1])
    return found


def ask(script, program, first):
    """Runs every command once, each output under its mark."""
    counter = ("next(c for c in coroutines(sched())"
               " if name_of(sched(), c) == 'counter')")
    commands = [*first, f"source {script}"]
    # gdb ends a batch at its first error, so the wrong command comes last.
    for mark, command in (
            ("list", "coro list"), ("all", "coro bt all"),
            ("name", "coro bt locker"),
            ("address", "python gdb.execute('coro bt %#x' %"
             f" int({counter}.address))"),
            ("wrong", "coro what")):
        commands += [f"echo =={mark}\\n", command]
    return gdb(*commands, program=program)


def test_list_shows_names_states_and_functions(said):
    """Lists every coroutine, its state and its blocking call; no ended one."""
    found = {name: rest[1:] for name, rest in
             listed(section(said, "list")).items()}
    wanted = {name: rest[:2] for name, rest in COROUTINES.items()}
    for name in sorted({*found, *wanted}):
        assert found.get(name) == wanted.get(name), (
            f"{name}: {found.get(name)}, not {wanted.get(name)}")


def test_backtraces_show_every_function_of_every_stack(said):
    """Functions are in order, wherever the bytes are. Others may be in between: a return address
    left in a frame looks like a call."""
    found = backtraces(section(said, "all"))
    for name, (_, _, function) in COROUTINES.items():
        own = [f for f in found[name] if re.match("in_|deeper|run_state", f)]
        wanted = [function, "deeper", "run_state"] if function else []
        assert own == wanted, f"{name}: {found[name]}, not {wanted}"


def test_running_coroutine_is_left_to_gdb(said):
    assert re.search(r"running.*\n    runs: use bt", section(said, "all"))


def test_coroutine_is_selected_by_name_or_address(said):
    for mark, name, function in (("name", "locker", "in_mutex"),
                                 ("address", "counter", "in_sem")):
        found = backtraces(section(said, mark))
        assert list(found) == [name], found
        assert function in found[name], found


def test_wrong_command_prints_the_usage(said):
    assert "coro list | coro bt" in section(said, "wrong")


TESTS = (test_list_shows_names_states_and_functions,
         test_backtraces_show_every_function_of_every_stack,
         test_running_coroutine_is_left_to_gdb,
         test_coroutine_is_selected_by_name_or_address,
         test_wrong_command_prints_the_usage)


def core_of(program, folder):
    """Returns the core file of a program that aborts, or None."""
    limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
    subprocess.run(
        [os.path.abspath(program), "--abort"], cwd=folder, timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE,
                                              (limit, limit)))
    return next(map(str, pathlib.Path(folder).glob("core*")), None)


def sessions(script, program, folder, with_core):
    """Yields gdb's output for the live process, and for a core file."""
    yield "live", ask(script, [program], ["break stop_here", "run"])
    if with_core:
        core = core_of(program, folder)
        yield "core", core and ask(script, [program, core], [])


def main():
    script, program, *rest = sys.argv[1:]
    if shutil.which("gdb") is None:
        print("1..0 # SKIP no gdb here")
        return
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind, said in sessions(script, program, folder,
                                   rest == ["--core"]):
            for test in TESTS:
                count += 1
                if said is None:
                    print(f"ok {count} - {kind} # SKIP "
                          "/proc/sys/kernel/core_pattern leaves none here")
                    continue
                try:
                    test(said)
                    print(f"ok {count} - {kind}: {test.__name__}")
                except (AssertionError, LookupError) as bad:
                    print(f"not ok {count} - {kind}: {test.__name__}")
                    print(f"# {bad!r}", said.replace("\n", "\n# "), sep="\n# ")
    print(f"1..{count}")


main()
