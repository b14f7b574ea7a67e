"""The description of the machine in a report."""

import glob
import os
import platform
import re
import subprocess

CORES = str(len(os.sched_getaffinity(0)))  # before a benchmark pins itself to one

CPU = "/sys/devices/system/cpu/cpu0"


def read(path, default=""):
    """Returns a small file's text, or the default."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return default


def words_of(argv):
    """Returns a command's output, or "" if it is missing or fails."""
    try:
        done = subprocess.run(argv, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True,
                              timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def available_kib():
    """Returns the memory available to a program."""
    return int(re.search(r"MemAvailable:\s+(\d+)", read("/proc/meminfo"))[1])


def caches():
    """The first core's, as "48K L1d, 1024K L2, 32768K L3"."""
    found = []
    for index in sorted(glob.glob(CPU + "/cache/index*")):
        kind = read(index + "/type")
        if kind == "Instruction":
            continue
        suffix = "d" if kind == "Data" else ""
        found.append(f"{read(index + '/size')} L{read(index + '/level')}"
                     f"{suffix}")
    return ", ".join(found)


def processor():
    info = read("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    virtual = re.search(r"^flags\s*:.*\bhypervisor\b", info, re.MULTILINE)
    return ((model[1] if model else platform.machine())
            + (" (a virtual machine)" if virtual else ""))


def mitigations():
    """Returns the CPU vulnerabilities that the kernel mitigates, which slows system calls."""
    active = []
    for path in sorted(glob.glob("/sys/devices/system/cpu/"
                                 "vulnerabilities/*")):
        if read(path).startswith("Mitigation"):
            active.append(os.path.basename(path))
    return ", ".join(active) or "none"


def steal_s():
    """Returns the seconds stolen by the hypervisor, over all cores."""
    fields = read("/proc/stat").split("\n", maxsplit=1)[0].split()
    if len(fields) < 9:
        return 0.0
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def commit(top):
    known = words_of(["git", "-C", top, "-c", f"safe.directory={top}",
                      "describe", "--always", "--dirty"])
    return known or "unknown"


_steal_before = steal_s()


def describe(top, build):
    """Returns the properties that are constant during a run; values are strings."""
    memory = int(re.search(r"MemTotal:\s+(\d+)", read("/proc/meminfo"))[1])
    huge = read("/proc/sys/vm/nr_hugepages", "0")
    lwip = glob.glob(os.path.join(top, "subprojects", "lwip-*"))
    return {
        "processor": processor(),
        "cores": CORES,
        "caches": caches(),
        "frequency governor": read(CPU + "/cpufreq/scaling_governor",
                                   "unknown"),
        "memory": f"{memory / (1 << 20):.1f} GiB, {huge} hugepages of 2 MiB",
        # Without the suffix of a distributor or a cloud.
        "kernel": "Linux " + platform.release().split("-")[0],
        "mitigations": mitigations(),
        "system": distribution(),
        "DPDK": words_of(["pkg-config", "--modversion", "libdpdk"])
                or "unknown",
        "lwIP": os.path.basename(lwip[0])[5:] if lwip else "unknown",
        "compiler": words_of(["cc", "--version"]).split("\n")[0] or "unknown",
        "build": read(os.path.join(build, ".options"), "not made by ./dev"),
        "coronet": commit(top),
        "load before": " ".join(read("/proc/loadavg").split()[:3]),
    }


def distribution():
    name = re.search(r'^PRETTY_NAME="?(.*?)"?$', read("/etc/os-release"),
                     re.MULTILINE)
    return name[1] if name else "unknown"


def properties_after():
    """Returns the properties that only show after a run."""
    return {"stolen by the hypervisor": f"{steal_s() - _steal_before:.1f} s "
                                        "of all cores' time"}
