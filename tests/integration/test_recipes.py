#!/usr/bin/env python3
"""docs/deploy.md's recipes, executed, and the service units it describes.

Usage: test_recipes.py BUILD_DIR SOURCE_ROOT

A recipe is a block of shell below a line <!-- recipe: NAME -->; its name says
"(root)" where it changes users or uses AF_XDP, which a user namespace cannot. It runs unchanged,
in an empty folder, with the build's programs in PATH.
"""

import functools
import os
import pathlib
import pwd
import re
import shutil
import signal

from harness import WAIT_MAX_S, Skip, check, command, main
from test_queues import xdp_options

RECIPE = re.compile(r"^<!-- recipe: (?P<name>[^\n]+) -->\n```sh\n(?P<code>.*?)^```\n", re.M | re.S)
RECIPES = 7  # at least
PROGRAMS = ("coronet-echo", "coronet-httpd", "coronet-proxy")
LINKS = {None: "memif:{folder}/m.sock,role=server", "tap.conf": "tap:unit0",
         "af_packet.conf": "af_packet:veth0"}


def require_programs(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")


def is_root():
    """Whether the script runs as root of the machine, not of a user namespace."""
    return pathlib.Path("/proc/self/uid_map").read_text().split()[2] == "4294967295"


def nobody():
    """Returns Popen arguments that run a program as the recipes' user."""
    if not is_root():
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def group_of(pgid):
    """Returns the command lines of a group's running processes."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == pgid and state != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " ").strip())
        except (OSError, ValueError):
            continue  # it has ended meanwhile
    return found


def run_recipe(env, name, code):
    """Runs a recipe; any process or file that it leaves behind is a failure."""
    user = nobody()
    if "(root)" in name and not is_root():
        raise Skip("changing users and AF_XDP take root")
    require_programs(*(word for word in ("dpdk-testpmd", "curl", "setpriv") if word in code))
    if "--lcores 0@0,1@1" in code and not {0, 1} <= os.sched_getaffinity(0):
        raise Skip("the recipe names cores 0 and 1")
    path = f"{env.readable_build(user)}/apps:{os.environ['PATH']}"
    recipe = env.start(["sh", "-eu", "-c", code], cwd=env.scratch_for(user),
                       env={**xdp_options(env).get("env", os.environ), "PATH": path},
                       start_new_session=True)
    try:
        status = recipe.wait(240)
        check(status == 0, f"exit status {status}: {recipe.story()}")
        left = group_of(recipe.process.pid)
        check(not left, f"left behind: {left}")
    finally:
        try:
            os.killpg(recipe.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def settings(*files):
    """Reads the settings of units, drop-ins after the unit; an empty value clears."""
    found = {}
    for file in files:
        for line in file.read_text().splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                repeated = name == "DeviceAllow" and value
                found[name] = found.get(name, []) + [value] if repeated else [value]
    return {name: values[-1] if len(values) == 1 else values for name, values in found.items()}


def unit(env, program):
    return env.build / "apps/systemd" / f"{program}@.service"


def seconds_of(config, name):
    return float(re.search(rf"^{name} = (\d+)", config, re.M)[1])


def example_fits_the_unit(env, source):
    """The shipped configuration is accepted, and drains within the unit's time."""
    config = source / "apps/systemd/edge.conf"
    said = settings(unit(env, "coronet-proxy"), source / "apps/systemd/tap.conf")
    check(seconds_of(config.read_text(), "drain-timeout") < float(said["TimeoutStopSec"]),
          "the unit kills a service that still drains")
    argv = said["ExecStart"].replace("/etc/coronet/%i.conf", str(config)).split()
    with env.running([env.app(pathlib.Path(argv[0]).name), *argv[1:]]) as proxy:
        proxy.signal(getattr(signal, said["KillSignal"]))
        check(proxy.wait(WAIT_MAX_S) == 0, proxy.story())


def wrong_configuration_is_not_restarted(env, source):
    said = settings(unit(env, "coronet-proxy"))
    config = env.scratch / "wrong.conf"
    config.write_text("link = tap:front0\nto = nowhere\n")
    proxy = env.start([env.app("coronet-proxy"), "--config", config])
    check(proxy.wait(WAIT_MAX_S) == int(said["RestartPreventExitStatus"]), proxy.story())


def with_rights(env, said, capabilities):
    """Returns a command with exactly the unit's capabilities and user."""
    words = ["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities.split())]
    sets = ",".join(words)
    user = env.ordinary_user()
    ids = ["--reuid", user["user"], "--regid", user["group"], "--clear-groups"] if user else []
    check(said["NoNewPrivileges"] == "yes", "the unit may gain rights")
    return user, ["setpriv", *ids, "--no-new-privs", "--bounding-set", sets, "--inh-caps", sets,
                  "--ambient-caps", sets]


def start_on_link(env, source, dropin, capabilities=None):
    """Starts coronet-echo like its unit, on a link of the drop-in's kind."""
    require_programs("setpriv")
    files = [unit(env, "coronet-echo"), *([source / "apps/systemd" / dropin] if dropin else [])]
    said = settings(*files)
    check(said["CapabilityBoundingSet"] == said["AmbientCapabilities"],
          "what the unit bounds and what it gives differ")
    if capabilities is None:
        capabilities = said["AmbientCapabilities"]
    user, rights = with_rights(env, said, capabilities)
    folder = env.scratch_for(user)
    config = folder / "unit.conf"
    config.write_text(f"link = {LINKS[dropin].format(folder=folder)}\n"
                      "addr = 10.9.0.1/16\npoll = adaptive\n")
    program = env.readable_build(user) / "apps/coronet-echo"
    return env.start([*rights, program, "--config", config],
                     env={**os.environ, "RUNTIME_DIRECTORY": str(folder)})


def rights_suffice(env, source, dropin):
    echo = start_on_link(env, source, dropin)
    echo.wait_ready().terminate()


def rights_are_needed(env, source, dropin):
    """Without any one capability of a drop-in the link fails."""
    given = settings(source / "apps/systemd" / dropin)["AmbientCapabilities"].split()
    for name in given:
        rest = " ".join(other for other in given if other != name)
        echo = start_on_link(env, source, dropin, rest)
        check(echo.wait(WAIT_MAX_S) in (1, 2), f"{name} is not needed: {echo.story()}")
        check("not permitted" in echo.output("stderr"), echo.story())


def with_veth(function, env, *args):
    command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    try:
        function(env, *args)
    finally:
        command("ip", "link", "del", "veth0")


def units_are_valid(env, source):
    """systemd accepts each unit, with each drop-in, without a warning."""
    require_programs("systemd-analyze")
    for program in PROGRAMS:
        folder = env.scratch / "units"
        name = f"{program}@edge.service"
        text = unit(env, program).read_text()
        binary = re.search(r"^ExecStart=(\S+)", text, re.M)[1]
        check(pathlib.Path(binary).name == program, f"{name} starts {binary}")
        for dropin in (None, "tap.conf", "af_packet.conf", "pci.conf"):
            shutil.rmtree(folder, ignore_errors=True)
            (folder / f"{name}.d").mkdir(parents=True)
            (folder / name).write_text(text.replace(binary, str(env.app(program))))
            if dropin:
                shutil.copy(source / "apps/systemd" / dropin, folder / f"{name}.d")
            said = command("systemd-analyze", "verify", "--man=no", folder / name)
            ours = [line for line in said.splitlines() if "coronet" in line]
            check(not ours, f"{name}, {dropin}: {ours}")


def cases(env):
    source = pathlib.Path(env.args[0])
    recipes = list(RECIPE.finditer((source / "docs/deploy.md").read_text()))
    check(len(recipes) >= RECIPES, f"only {len(recipes)} recipes found")
    bind = functools.partial
    for recipe in recipes:
        yield recipe["name"].replace("#", ""), bind(run_recipe, env, recipe["name"], recipe["code"])
    for function in (units_are_valid, example_fits_the_unit, wrong_configuration_is_not_restarted):
        yield function.__name__.replace("_", " "), bind(function, env, source)
    for dropin in LINKS:
        yield f"rights suffice: {dropin}", bind(with_veth, rights_suffice, env, source, dropin)
        if dropin:
            yield f"rights are needed: {dropin}", bind(with_veth, rights_are_needed, env, source, dropin)


if __name__ == "__main__":
    main(cases)
