"""The guest of QEMU that nic.py boots: its kernel, its initial RAM disk, its cards and its shell.

Kernel and files come from Debian's packages: a kernel with its modules, busybox, and this machine's
libraries for the programs of a build. The guest has no other root file system and no network but
the cards, each of which ends in a TAP of the caller's network namespace.
"""

import contextlib
import glob
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

from harness import WAIT_MAX_S, Failure, check, command, comment, eventually

PROGRAMS = ("coronet-echo", "coronet-ctl", "coronet-httpd", "coronet-proxy")
PMDS = ("bus_pci", "bus_vdev", "mempool_ring", "mempool_stack", "net_e1000", "net_vmxnet3",
        "net_virtio")
# In the order of their dependencies; a kernel may have some of them built in.
MODULES = ("irqbypass", "vfio", "vfio_virqfd", "iommufd", "vfio_iommu_type1", "vfio-pci-core",
           "vfio-pci", "uio", "uio_pci_generic", "dca", "i2c-algo-bit", "igb")
# The first serial line is the console. On the second, the guest runs each line that it reads,
# and ends the output with a line that has the exit status. await repeats a command for a minute,
# until it succeeds.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /usr/sbin
export PATH=/usr/sbin:/coronet
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
chmod 755 /
mkdir -p /dev/hugepages /dev/shm /etc /var; ln -s /run /var/run
echo user:x:1000:1000::/:/usr/sbin/sh >/etc/passwd
mount -t hugetlbfs hugetlbfs /dev/hugepages
mount -t tmpfs tmpfs /run
for module in {modules}; do insmod /coronet/$module.ko; done
now() {{ cut -d. -f1 /proc/uptime; }}
await() {{ e=$(($(now) + 60)); until eval "$1"; do [ $(now) -lt $e ] || return; sleep 0.1; done; }}
stty raw -echo </dev/ttyS1
exec </dev/ttyS1 >/dev/ttyS1 2>&1
echo ready
while read -r line; do (eval "$line") </dev/null; printf '\\n= %s\\n' $?; done
"""
PULLED = 30  # the slot of a card that is pulled out, and is on another NUMA node
DEVICES = "/sys/bus/pci/devices"
PULLED_DEVICE = "e1000e,bus=outer,id=pulled"
# One thread for all CPUs: with several, QEMU 10 ended once in iotlb_to_section() and stalled once.
QEMU = """-nodefaults -no-user-config -display none -no-reboot -machine q35,kernel-irqchip=off
    -accel tcg,thread=single -cpu max -smp 2 -m 1536 -object memory-backend-ram,id=m0,size=1024M
    -object memory-backend-ram,id=m1,size=512M -numa node,memdev=m0,cpus=0
    -numa node,memdev=m1,cpus=1 -serial file:console
    -chardev socket,id=agent,path=agent,server=on,wait=on -serial chardev:agent
    -monitor unix:monitor,server=on,wait=off"""
APPEND = "console=ttyS0 quiet panic=-1 no_timer_check hugepages=192"


def output_of(*words, **options):
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def has_device(device):
    """Whether this QEMU emulates a device."""
    return output_of("qemu-system-x86_64", "-device", device.split(",")[0] + ",help",
                     stderr=subprocess.DEVNULL)


def kernel_package(lean):
    """The kernel for clouds is small, but has no driver for the physical function of an igb."""
    return f"linux-image-{'amd64' if not lean and has_device('igb') else 'cloud-amd64'}"


def fetch_kernel(folder, package):
    """Returns the path of a kernel of Debian's, which is downloaded once and not installed."""
    folder /= package
    if not glob.glob(f"{folder}/boot/vmlinuz-*"):
        depends = output_of("apt-cache", "depends", package)
        version = re.search(r"Depends: (linux-image-\S+)", depends)[1]
        folder.mkdir(parents=True, exist_ok=True)
        output_of("apt-get", "-q", "download", version, cwd=folder, stderr=subprocess.STDOUT)
        archive = glob.glob(f"{folder}/{version}_*.deb")[0]
        output_of("dpkg-deb", "-x", archive, folder)
        os.unlink(archive)
    return glob.glob(f"{folder}/boot/vmlinuz-*")[0]


def copy_file(path, root):
    """Copies a file to the same path below root, with the symbolic link that leads to it."""
    real = os.path.realpath(path)
    link = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    for target in (real, link):
        os.makedirs(os.path.dirname(f"{root}{target}"), exist_ok=True)
    shutil.copy(real, f"{root}{real}")
    if link != real and not os.path.lexists(f"{root}{link}"):
        os.symlink(real, f"{root}{link}")


def build_initrd(build, folder, kernel):
    """Writes folder/initrd, with programs of the build and the modules of a kernel."""
    programs = [build / "apps" / name for name in PROGRAMS]
    eal = re.search(r"librte_eal\S+ => (\S+)", output_of("ldd", programs[0]))[1]
    pmds = [path for name in PMDS for path in glob.glob(
        f"{os.path.dirname(os.path.realpath(eal))}/dpdk/pmds-*/librte_{name}.so.*.*")]
    libraries = re.findall(r"(?:=> |^\s*)(/\S+) \(", output_of("ldd", *programs, *pmds), re.M)
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("coronet", "dev", "proc", "run", "sys", "tmp", "usr/sbin"):
        (root / name).mkdir(parents=True)
    for path in filter(os.path.islink, ("/bin", "/lib", "/lib64", "/sbin")):
        os.symlink(os.readlink(path), f"{root}{path}")
    for path in (shutil.which("busybox"), *libraries, *pmds):
        copy_file(path, root)
    modules = {pathlib.Path(path).name.split(".")[0]: path for path in
               glob.glob(f"{folder}/{kernel}/**/*.ko*", recursive=True)}
    modules = {name: modules[name] for name in MODULES if name in modules}
    for path in (*programs, *modules.values()):
        shutil.copy(path, root / "coronet")
    for path in root.glob("coronet/*.xz"):
        output_of("xz", "-d", path)
    (root / "init").write_text(INIT.format(modules=" ".join(modules)))
    (root / "init").chmod(0o755)
    paths = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with open(folder / "initrd", "wb") as archive:
        subprocess.run(["busybox", "cpio", "-o", "-H", "newc"], check=True, cwd=root,
                       input=paths.encode() + b"\n", stdout=archive, stderr=subprocess.DEVNULL)


def missing_part(folder, lean):
    """Returns why no guest can be booted on this machine, or None."""
    for program in ("qemu-system-x86_64", "busybox"):
        if not shutil.which(program):
            return f"{program} is missing: apt-get install qemu-system-x86 busybox-static"
    if os.getuid() != 0 or not os.access("/dev/net/tun", os.W_OK):
        return "needs root and /dev/net/tun, for network namespaces and TAPs"
    try:
        fetch_kernel(folder, kernel_package(lean))
    except (subprocess.CalledProcessError, IndexError, TypeError):
        return f"{kernel_package(lean)} cannot be downloaded (apt-get update)"
    return None


def prepare(build, lean):
    """Fetches and builds the guest's files, which may need a network."""
    missing = missing_part(build / "nic", lean)
    if missing:
        print(f"1..0 # SKIP {missing}")
        sys.exit(0 if lean else 1)
    build_initrd(build, build / "nic", kernel_package(lean))


def pci_address(slot):
    return f"0000:{'41:00' if slot == PULLED else f'00:{slot:02x}'}.0"


def set_addresses(interface, network):
    """Sets the kernel's addresses in a network."""
    command("ip", "addr", "add", f"10.77.{network}.1/24", "dev", interface)
    command("ip", "addr", "add", f"fd77:{network}::1/64", "dev", interface, "nodad")
    command("ip", "link", "set", interface, "up")


class Guest:
    """A machine with cards, which are devices of QEMU by their slots, and perhaps an IOMMU."""

    def __init__(self, env, cards, iommu, lean):
        files, self.env, self.agent = env.build / "nic", env, None
        self.folder = files / ("iommu" if iommu else "plain")
        self.folder.mkdir(exist_ok=True)
        words = [*QEMU.split(), "-append", APPEND + " intel_iommu=on" * iommu,
                 "-kernel", fetch_kernel(files, kernel_package(lean)), "-initrd", files / "initrd"]
        if iommu:  # before the cards, one of which can be pulled out
            words += ["-device", "intel-iommu,intremap=on,aw-bits=48",
                      "-device", "pxb-pcie,id=far,bus_nr=64,numa_node=1",
                      "-device", "pcie-root-port,id=outer,bus=far,chassis=1"]
            cards = {**cards, PULLED: PULLED_DEVICE}
        for slot, device in cards.items():
            address = "" if slot == PULLED else f",bus=pcie.0,addr={slot:x}"
            many = "mq=on" in device
            # The kernel and the card leave checksums and segments to each other.
            offloads = "off" if device.startswith(("e1000", "igb")) else "on"
            command("ip", "tuntap", "add", f"nic{slot}", "mode", "tap", *["multi_queue"] * many)
            set_addresses(f"nic{slot}", slot)
            words += ["-netdev", f"tap,id=nic{slot},ifname=nic{slot},script=no,downscript=no,"
                      f"vnet_hdr={offloads}" + ",queues=3" * many,
                      "-device", f"{device},netdev=nic{slot},romfile={address}"]
        self.taps = [f"nic{slot}" for slot in cards]
        self.qemu = env.start(["qemu-system-x86_64", *words], cwd=self.folder)

    def connect(self, name):
        """Returns a connection to a socket of QEMU, or None."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(2 * WAIT_MAX_S)
        with contextlib.suppress(OSError):
            sock.connect(str(self.folder / name))
            return sock

    def boot(self):
        """Waits until the guest reads commands."""
        sock = None

        def connected():
            nonlocal sock
            sock = self.connect("agent")
            return sock or not self.qemu.alive()

        eventually(connected, WAIT_MAX_S, "QEMU does not listen")
        check(sock, f"QEMU did not start: {self.qemu.story()}")
        agent = sock.makefile("rw")
        while (line := agent.readline()).strip() != "ready":
            check(line, f"the guest has ended: see {self.folder}/console; {self.qemu.story()}")
        self.agent = agent

    def ask(self, line):
        """Runs a shell command in the guest; returns its output and exit status."""
        check(self.agent, "the guest has not booted")
        self.agent.write(line.replace("\n", " ") + "\n")
        self.agent.flush()
        said = ""
        while not (end := re.search(r"\n= (\d+)\n$", said)):
            part = self.agent.readline()
            check(part, f"the guest has ended: see {self.folder}/console: {said}")
            said += part
        return said[:end.start()], int(end[1])

    def require(self, line, message):
        said, status = self.ask(line)
        check(status == 0, f"{message}: {said.strip()}")
        return said

    def await_line(self, pattern):
        self.require(f"await \"grep -q '{pattern}' /run/log\"", f"never '{pattern}'")

    def monitor(self, line):
        """Sends a command to QEMU's monitor."""
        command("sh", "-c", f"echo '{line}' | socat -t 60 - UNIX-CONNECT:{self.folder}/monitor")

    def cause(self, event, line):
        """Sends a command to QEMU, and waits for the program's line about it."""
        self.monitor(event)
        self.await_line(line)

    def plug_in(self):
        self.monitor(f"device_add {PULLED_DEVICE},netdev=nic{PULLED},romfile=")
        self.require(f"await 'test -e {DEVICES}/{pci_address(PULLED)}'", "no card is plugged in")

    def pull_out(self, line):
        self.cause("device_del pulled", line)
        self.require(f"await '! test -e {DEVICES}/{pci_address(PULLED)}'",
                     "the machine cannot take the card away")

    def bind(self, address, driver):
        device = f"{DEVICES}/{address}"
        self.require(f"echo {driver} >{device}/driver_override; "
                     f"echo {address} >{device}/driver/unbind; "
                     f"echo {address} >/sys/bus/pci/drivers_probe; "
                     f"test $(basename $(readlink {device}/driver)) = {driver}",
                     f"the card is not bound to {driver}")

    def links(self):
        return self.require("coronet-ctl --control=/run/control links", "no answer by coronet-ctl")

    @staticmethod
    def value_of(links, name):
        """Returns a value that `coronet-ctl links` shows for the first link."""
        found = re.search(rf"^0\.(?:ports\.\d+\.)?{name} +(\S+)", links, re.MULTILINE)
        return found[1] if found else "?"

    @contextlib.contextmanager
    def serving(self, program, *words):
        """Runs a program that listens, and ends it after the block."""
        self.ask(f"dmesg -c >/dev/null; : >/run/log; coronet-{program} --control /run/control "
                 f"{' '.join(words)} >>/run/log 2>&1 & echo $! >/run/pid")
        gone = "! test -e /proc/$(cat /run/pid)"
        try:
            self.require(f"await 'grep -q listening /run/log || {gone}'; "
                         "grep -q 'listening on' /run/log", "it does not start")
            yield
        except (Failure, OSError) as failure:
            log = self.ask("grep -v listening /run/log; dmesg | grep -m1 'Request device'")[0]
            raise Failure(f"{failure}; {log.strip() or 'it says nothing'}") from None
        finally:
            said, status = self.ask(f"kill $(cat /run/pid); await '{gone}' || {{ cd /proc/$(cat "
                                    "/run/pid)/task; grep . */comm */wchan */stack */syscall; "
                                    "cat /run/log; kill -9 $(cat /run/pid); false; }")
        check(status == 0, f"it does not end after SIGTERM: {said}")

    def leave_to_user(self):
        comment(f"the guest's shell: socat - UNIX-CONNECT:{self.folder}/agent\n"
                f"the kernel's side: nsenter --net --target $(pgrep -o qemu-system)\n"
                "Ctrl-C ends both")
        self.agent.close()
        signal.pause()
