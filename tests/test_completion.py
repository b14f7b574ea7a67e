#!/usr/bin/env python3
"""bash completions, in an interactive bash that gets tabs.

Usage: test_completion.py FOLDER PROGRAM...
"""

import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile

WAIT_MAX_S = 60  # bounds every wait, so that a hang fails
# The text before the tab, and bash's completion; HERE is a folder of files.
TYPED = {
    "coronet-httpd": [
        ("--roo", "--root="), ("--root=HERE/sit", "--root=HERE/site/"),
        ("--root HERE/site/ind", "--root HERE/site/index.html "), ("--cc cub", "--cc cubic "),
        ("--cc=r", "--cc=reno "),
        ("--log-to j", "--log-to journal "), ("--log-to=st", "--log-to=stderr "),
        ("--log-to HERE/site/ind", "--log-to HERE/site/index.html "), ("--log-to F", "--log-to F"), ("--link m", "--link memif:"), ("--link=ta", "--link=tap:"),
        ("--port 8", "--port 8"), ("--poll=busy --hug", "--poll=busy --huge="),
        ("--access-log unix", "--access-log unix:"), ("--access-log-format j", "--access-log-format json "),
        ("--usa", "--usage "), ("--nosuch", "--nosuch")],
    "coronet-echo": [
        ("--link bo", "--link bond:"), ("--link l", "--link list "), ("--addr d", "--addr dhcp "),
        ("--addr=a", "--addr=auto "), ("--exception t", "--exception tap:"),
        ("--lease-dir D", "--lease-dir D"), ("--lease-dir of", "--lease-dir off "),
        ("--lease-dir HERE/si", "--lease-dir HERE/site/"),
        ("--lease-dir HERE/site/ind", "--lease-dir HERE/site/ind"),
        ("--capture HERE/site/ind", "--capture HERE/site/index.html "), ("--rou", "--route=")],
    "coronet-load": [
        ("--js", "--json "), ("--json HERE/site/ind", "--json HERE/site/index.html "),
        ("--json --ver", "--json --ver"), ("--json --veri", "--json --verify ")],
    "coronet-proxy": [("--bal", "--balance="), ("--balance=l", "--balance=least "),
                      ("--acc", "--acce"), ("--uni", "--unique-id "),
                      ("--access-log udp", "--access-log udp:"),
                      ("--access-log HERE/site/ind", "--access-log HERE/site/index.html ")],
    "coronet-dns": [("--zo", "--zone="), ("--rate-s", "--rate-slip=")],
    "coronet-ctl": [
        ("con", "conn"), ("conns --pe", "conns --peer="), ("--control HERE/site/ind",
                                                          "--control HERE/site/index.html "),
        ("cap", "capture "), ("capture sta", "capture status "), ("tra", "trace"),
        ("trace.", "trace.conns "), ("set tr", "set trace.conns "), ("set ex", "set exception "),
        ("capture HERE/site/ind", "capture HERE/site/index.html "),
        ("capture --bytes 7 sto", "capture --bytes 7 stop "),
        ("--control=HERE/site/index.html --json backen",
         "--control=HERE/site/index.html --json backend"),
        ("backend web1 dr", "backend web1 drain "), ("backend 10.9.0.2:80 do",
                                                     "backend 10.9.0.2:80 down "),
        ("backend dr", "backend dr"), ("backend ad", "backend add "),
        ("backend rem", "backend remove "), ("set l", "set log."),
        ("set log.r", "set log.reopen "), ("set metrics o", "set metrics off "), ("rel", "reload "),
        ("mem x", "mem x")],
    "coronet-run": [("--sock", "--sockets="), ("--link m", "--link memif:")],
    "epoll-echo": [("--thr", "--threads="), ("--cp", "--cpu="), ("--lc", "--lcore=")],
}


class Bash:
    """An interactive bash in a folder, on its own terminal, with one completion."""

    def __init__(self, script, folder):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)  # relative names complete as well
            os.environ.update(TERM="dumb", PS1="READY> ", INPUTRC="/dev/null")
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.pid = pid
        self.read_until("READY> ")
        # Control and T prints the line as it is, control and U empties it.
        self.send("bind 'set bell-style none'; bind -x '\"\\C-t\": printf \"LINE<%s>\\n\" "
                  f"\"$READLINE_LINE\"'; stty cols 500; . {script}; PS1='NEXT''> '\r")
        self.read_until("NEXT> ")

    def send(self, text):
        os.write(self.terminal, text.encode())

    def read_until(self, mark):
        text = ""
        while mark not in text:
            if not select.select([self.terminal], [], [], WAIT_MAX_S)[0]:
                raise TimeoutError(f"bash says no {mark!r} but {text!r}")
            text += os.read(self.terminal, 65536).decode(errors="replace")
        return text

    def complete(self, line):
        """Returns the line after a tab."""
        self.send(f"{line}\t\x14")
        text = self.read_until(">\r\n")
        self.send("\x15")
        return re.search(r"LINE<(.*)>\r\n", text)[1]

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


def cases(folder, programs, here):
    for program in programs:
        script = folder / program
        syntax = subprocess.run(["bash", "-n", script], check=False, capture_output=True, text=True)
        yield f"{program}: a script", syntax.returncode == 0 and not syntax.stderr, syntax.stderr
        if program not in TYPED:
            continue
        bash = Bash(script, here)
        for before, after in TYPED[program]:
            before, after = (f"{program} {text}".replace("HERE", here) for text in (before, after))
            found = bash.complete(before)
            yield f"{before.replace(here, 'HERE')}<TAB>", found == after, repr(found)
        bash.close()


def main():
    folder, programs = pathlib.Path(sys.argv[1]).resolve(), [os.path.basename(p) for p in sys.argv[2:]]
    failed = number = 0
    with tempfile.TemporaryDirectory() as here:
        (pathlib.Path(here) / "site").mkdir()
        (pathlib.Path(here) / "site" / "index.html").touch()
        for number, (name, good, details) in enumerate(cases(folder, programs, here), 1):
            print(f"{'ok' if good else 'not ok'} {number} - {name}")
            if not good:
                failed += 1
                print(f"# {details}")
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
