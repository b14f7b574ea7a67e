#!/usr/bin/env python3
"""coronet on the drivers of network cards, in a guest of QEMU.

Usage: nic.py BUILD_DIR [MODEL...] [--keep] [--lean]

QEMU emulates the cards (no KVM, no hugepages of this machine), the guest is Debian's cloud kernel
with busybox and our programs, and this machine's kernel is the peer: each card ends in a TAP of a
network namespace that is made for the run. --keep leaves the first guest and its namespace, and
says how to enter them. --lean has one boot and few runs, for ./dev test, and is skipped (status 77)
where it cannot run. Needs root, for TAPs. The guest's files are below BUILD_DIR/nic.
"""

import argparse
import concurrent.futures
import contextlib
import glob
import hashlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

# Their QEMU devices; the card's slot is its place here, from FIRST_SLOT on. Without receive-side
# scaling: QEMU 7.2 stalls at times with it.
MODELS = {
    "e1000": "e1000",
    "e1000e": "e1000e",
    "vmxnet3": "vmxnet3",
    "virtio": "virtio-net-pci,disable-legacy=on,iommu_platform=on,mq=on,vectors=8,rss=off",
    "virtio-packed": "virtio-net-pci,disable-legacy=on,iommu_platform=on,packed=on",
}
FIRST_SLOT = 4
TAP_QUEUES = {"virtio": 3}
SUMS = ("vmxnet3", "virtio", "virtio-packed")  # TCP's, and cut segments
DRIVERS = ("bus_pci", "bus_vdev", "mempool_ring", "mempool_stack", "net_e1000", "net_vmxnet3",
           "net_virtio")
# In the order in which they need each other; a kernel may have some of them built in.
MODULES = ("irqbypass", "vfio", "vfio_virqfd", "iommufd", "vfio_iommu_type1", "vfio-pci-core",
           "vfio-pci", "uio", "uio_pci_generic")
PORT = 7777
PATIENCE = 60  # seconds; an emulated machine beside other work is slow
MANY = 1000  # connections at once, and a tenth of them where only queues or addresses differ
BYTES = 32 << 20  # by each address, and an eighth of them there
RUNS = [("vfio-pci with an IOMMU", True, ("", "--shards 2", "--shards 3", "mac=02:00:00:00:00:77")),
        ("uio_pci_generic", False, ("", "--shards 3"))]
LEAN_RUNS = [("vfio-pci with an IOMMU", True, ("--shards 2",))]
LEAN_MODELS = ["e1000e", "virtio"]

REFUSED = "e1000e"
PULLED = 30  # the slot of a card that is pulled out, and on another NUMA node
# What a program says, and ends, where a card cannot be used: a command of the guest, in which
# ECHO is coronet-echo on the card and AS_USER runs it without privileges.
REFUSALS = [
    ("ECHO", "no driver has the card; bind it: modprobe vfio-pci; dpdk-devbind"),
    ("coronet-echo --addr 10.77.99.2/24 --link pci:1f:1f.7",
     "link pci:0000:1f:1f.7: this machine has no PCI device"),
    ("bind", ""),
    ("ECHO >/run/log 2>&1 & for i in $(seq 600); do grep -q listening /run/log && break; "
     "sleep 0.1; done; ECHO; kill $!; wait", "another process has the card"),
    ("AS_USER", "user 1000 may not open /dev/vfio/"),
    ("coronet-echo --link list", r"0000:00:05.0 0x8086:0x10d3, driver vfio-pci.*queues at most: 1; "
     r"checksums: yes; TSO: no; RSS: no.*--link pci:0000:00:05.0\s"),
    ("chmod 666 /dev/vfio/*; AS_USER", r"needs \d+ MiB of locked memory.*may lock 8192 KiB"),
    ("cd PMDS; mv librte_net_e1000* /run; ECHO; mv /run/librte_net_e1000* .",
     "none of DPDK's installed drivers takes the card .0x8086:0x10d3.*librte-net-.*e1000"),
    ("cd PMDS; lib=$(ls librte_bus_pci.so.*.*); cp $lib librte_zz.so.${lib#*.so.}; ECHO; "
     "rm librte_zz*", "DPDK ended the program; it said last:.*already registered"),
]

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
stty raw -echo </dev/ttyS1
exec </dev/ttyS1 >/dev/ttyS1 2>&1
echo ready
while read -r line; do sh -c "$line" </dev/null; echo "= $?"; done
"""


class Failure(Exception):
    """What did not work, in a sentence."""


def run(*words, **options):
    """What a command writes."""
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


# ---- the guest's files ----


def kernel(folder):
    """Debian's kernel for guests, unpacked, not installed; downloaded once."""
    if not glob.glob(f"{folder}/boot/vmlinuz-*"):
        told = run("apt-cache", "depends", "linux-image-cloud-amd64")
        package = re.search(r"Depends: (linux-image-\S+)", told)[1]
        folder.mkdir(parents=True, exist_ok=True)
        run("apt-get", "-q", "download", package, cwd=folder, stderr=subprocess.STDOUT)
        archive = glob.glob(f"{folder}/{package}_*.deb")[0]
        run("dpkg-deb", "-x", archive, folder)
        os.unlink(archive)
    return glob.glob(f"{folder}/boot/vmlinuz-*")[0]


def with_links(paths):
    """The paths, each with the links that lead to it and the folders above: what cpio needs."""
    found = set()
    waiting = list(paths)
    while waiting:
        path = os.path.normpath(waiting.pop())
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if path in found or path == "/":
            continue
        found.add(path)
        waiting.append(os.path.dirname(path))
        if os.path.islink(path):
            waiting.append(os.path.join(os.path.dirname(path), os.readlink(path)))
    return sorted(found)


def pack(folder, names, archive):
    told = "".join(name + "\n" for name in names)
    with open(archive, "ab") as out:
        subprocess.run(["busybox", "cpio", "-o", "-H", "newc"], check=True, cwd=folder, stdout=out,
                       input=told.encode(), stderr=subprocess.DEVNULL)


def make_initrd(build, folder):
    """This machine's libraries as they lie here, and the rest from a folder of its own."""
    programs = [str(build / "apps" / name) for name in ("coronet-echo", "coronet-ctl")]
    eal = re.search(r"librte_eal\S+ => (\S+)", run("ldd", programs[0]))[1]
    pmds = [path for name in DRIVERS for path in glob.glob(
        f"{os.path.dirname(os.path.realpath(eal))}/dpdk/pmds-*/librte_{name}.so.*.*")]
    needed = re.findall(r"(?:=> |^\s*)(/\S+) \(", run("ldd", *programs, *pmds), re.MULTILINE)
    own = folder / "own"
    shutil.rmtree(own, ignore_errors=True)
    for name in ("coronet", "dev", "proc", "run", "sys", "tmp", "usr/sbin"):
        (own / name).mkdir(parents=True)
    os.chmod(own, 0o755)
    for name in MODULES:
        for path in glob.glob(f"{folder}/kernel/**/{name}.ko*", recursive=True):
            shutil.copy(path, own / "coronet")
            if path.endswith(".xz"):
                run("xz", "-d", own / "coronet" / os.path.basename(path))
    for program in programs:
        shutil.copy(program, own / "coronet")
    there = [name for name in MODULES if (own / "coronet" / f"{name}.ko").exists()]
    (own / "init").write_text(INIT.format(modules=" ".join(there)))
    os.chmod(own / "init", 0o755)
    initrd = folder / "initrd"
    initrd.unlink(missing_ok=True)
    shared = [path for path in ("/bin", "/lib", "/lib64", "/sbin") if os.path.islink(path)]
    busybox = os.path.realpath(shutil.which("busybox"))
    pack("/", [path.lstrip("/") for path in with_links([*shared, *needed, *pmds, busybox])], initrd)
    pack(own, [str(path.relative_to(own)) for path in sorted(own.rglob("*"))], initrd)
    return initrd


# ---- the guest ----


class Guest:
    """A machine with all the cards, and the network namespace at their other ends."""

    def __init__(self, folder, models, iommu):
        self.namespace = f"nic{os.getpid()}"
        self.models = models
        self.agent = None
        self.heard = b""
        self.folder = folder
        run("ip", "netns", "add", self.namespace)
        words = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                 "-machine", "q35,kernel-irqchip=off", "-accel", "tcg,thread=multi", "-cpu", "max",
                 "-smp", "2", "-m", "1536",
                 "-object", "memory-backend-ram,id=m0,size=1024M",
                 "-object", "memory-backend-ram,id=m1,size=512M",
                 "-numa", "node,memdev=m0,cpus=0", "-numa", "node,memdev=m1,cpus=1", "-kernel", kernel(folder / "kernel"),
                 "-initrd", folder / "initrd", "-serial", f"file:{folder}/console",
                 "-chardev", f"socket,id=agent,path={folder}/agent,server=on,wait=off",
                 "-serial", "chardev:agent", "-append",
                 "console=ttyS0 quiet panic=-1 no_timer_check hugepages=192" +
                 " intel_iommu=on" * iommu]
        if iommu:  # before the cards
            words += ["-device", "intel-iommu,intremap=on,aw-bits=48"]
        for model in models:
            words += self.add_card(self.slot(model), TAP_QUEUES.get(model, 1), model in SUMS,
                                   f"{MODELS[model]},addr={self.slot(model)}")
        if iommu:  # a card that can be pulled out
            words += ["-device", "pxb-pcie,id=far,bus_nr=64,numa_node=1",
                      "-device", "pcie-root-port,id=outer,bus=far,chassis=1",
                      "-monitor", f"unix:{folder}/monitor,server=on,wait=off",
                      *self.add_card(PULLED, 1, False, "e1000e,bus=outer,id=pulled")]
        self.qemu = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, "qemu-system-x86_64", *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=open(folder / "qemu.log", "w"),
            stderr=subprocess.STDOUT, start_new_session=True)

    def add_card(self, slot, queues, sums, device):
        many = queues > 1
        headers = "on" if sums else "off"
        run("ip", "-n", self.namespace, "-batch", "-",
            input=f"tuntap add nic{slot} mode tap {'multi_queue' * many}\n"
                  f"addr add 10.77.{slot}.1/24 dev nic{slot}\n"
                  f"addr add fd77:{slot}::1/64 dev nic{slot} nodad\nlink set nic{slot} up\n")
        return ["-netdev", f"tap,id=nic{slot},ifname=nic{slot},script=no,downscript=no,"
                f"vnet_hdr={headers}" + f",queues={queues}" * many,
                "-device", f"{device},netdev=nic{slot},romfile="]

    def slot(self, model):
        return FIRST_SLOT + list(MODELS).index(model)

    def read_until(self, pattern, seconds):
        """What the guest writes up to a pattern, and its match."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.heard, re.MULTILINE)):
            self.agent.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                part = self.agent.recv(65536)
            except TimeoutError:
                raise Failure(f"the guest says nothing more: {self.heard[-300:]!r}") from None
            if not part:
                raise Failure(f"the guest has ended: see {self.folder}/console")
            self.heard += part
        before, self.heard = self.heard[:found.start()], self.heard[found.end():]
        return before.decode(errors="replace"), found

    def await_boot(self):
        deadline = time.monotonic() + 3 * PATIENCE
        self.agent = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.agent.connect(str(self.folder / "agent"))
                break
            except OSError:
                if self.qemu.poll() is not None or time.monotonic() > deadline:
                    raise Failure(f"QEMU did not start: see {self.folder}/qemu.log") from None
                time.sleep(0.05)
        self.read_until(rb"^ready\r?\n", 3 * PATIENCE)

    def ask(self, line, seconds=PATIENCE):
        """A shell command's output in the guest, and its status."""
        self.agent.sendall(line.replace("\n", " ").encode() + b"\n")
        text, found = self.read_until(rb"^= (\d+)\r?\n", seconds)
        return text, int(found[1])

    def end(self):
        if self.agent:
            self.agent.close()
        self.qemu.kill()
        self.qemu.wait()
        run("ip", "netns", "del", self.namespace)

    def command(self, line):
        """To QEMU itself."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self.folder / "monitor"))
            monitor.sendall(line.encode() + b"\n")
            monitor.shutdown(socket.SHUT_WR)
            while monitor.recv(4096):
                pass

    def bind(self, address, driver):
        device = f"/sys/bus/pci/devices/{address}"
        text, status = self.ask(
            f"echo {driver} >{device}/driver_override; "
            f"echo {address} >/sys/bus/pci/drivers_probe; "
            f"test $(basename $(readlink {device}/driver)) = {driver}")
        if status:
            raise Failure(f"the card is not bound to {driver}: {text}")

    def await_line(self, pattern):
        _, status = self.ask(f"for i in $(seq {10 * PATIENCE}); do grep -q '{pattern}' /run/log "
                             "&& exit 0; sleep 0.1; done; exit 1", 2 * PATIENCE)
        if status:
            raise Failure(f"never '{pattern}'")

    def await_gone(self, slot):
        device = f"/sys/bus/pci/devices/{address_of(slot)}"
        _, gone = self.ask(f"for i in $(seq {10 * PATIENCE}); do test -e {device} || exit 1; "
                           "sleep 0.1; done", 2 * PATIENCE)
        if not gone:
            raise Failure("the machine cannot take the card away")

    @contextlib.contextmanager
    def echo(self, links):
        """coronet-echo on a card, once it listens; its control socket's view at the end."""
        self.ask("dmesg -c >/dev/null; : >/run/log")
        self.ask(f"coronet-echo {links} --control /run/control >/run/log 2>&1 & echo $! >/run/pid")
        _, status = self.ask(f"for i in $(seq {10 * PATIENCE}); do grep -q 'listening on' /run/log "
                             "&& exit 0; test -e /proc/$(cat /run/pid) || exit 1; sleep 0.1; done; "
                             "exit 1", 2 * PATIENCE)
        told = {}
        try:
            if status:
                raise Failure("it does not start")
            yield told
            told["links"] = self.ask("coronet-ctl --control=/run/control links")[0]
        except Failure as failure:
            log = self.ask("grep -v listening /run/log; dmesg | grep -m1 'Request device'")[0]
            raise Failure(f"{failure}; {log.strip() or 'it says nothing'}") from None
        finally:
            _, status = self.ask("kill $(cat /run/pid); for i in $(seq 200); do test -e "
                                 "/proc/$(cat /run/pid) || exit 0; sleep 0.1; done; kill -9 "
                                 "$(cat /run/pid); exit 1")
        if status:
            raise Failure("it does not end when told to")


# ---- the peer, in the namespace ----


def echo_once(address, size, pool):
    """Sends so many bytes and takes them back."""
    sent = os.urandom(min(size, 1 << 20)) * max(size >> 20, 1)
    digest, left = hashlib.sha256(), size
    with socket.create_connection((address, PORT), PATIENCE) as sock:
        sending = pool.submit(sock.sendall, sent) if size > 1000 else sock.sendall(sent)
        while left and (part := sock.recv(min(left, 1 << 18))):
            digest.update(part)
            left -= len(part)
        if left or digest.digest() != hashlib.sha256(sent).digest():
            raise Failure(f"{left} bytes of {size} are missing, or others came")
        return sending


def all_at_once(address, count):
    """Every connection is open before the first speaks."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection((address, PORT), PATIENCE))
                 for _ in range(count)]
        for number, sock in enumerate(socks):
            sock.sendall(b"%8d" % number)
        for number, sock in enumerate(socks):
            if sock.recv(8, socket.MSG_WAITALL) != b"%8d" % number:
                raise Failure(f"connection {number} of {count} has no echo")


def speak(slot, size, count):
    """All that a peer does with a card; runs in the namespace."""
    for address in (f"10.77.{slot}.2", f"fd77:{slot}::2"):
        if subprocess.call(["ping", "-q", "-c", "3", "-i", "0.2", "-w", str(PATIENCE), address],
                           stdout=subprocess.DEVNULL) != 0:
            raise Failure(f"no answer to ping {address}")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(echo_once, address, size // 4, pool) for _ in range(4)]:
                done.result()
        all_at_once(address, count)


def peer(namespace, slot, size, count):
    done = subprocess.run(["ip", "netns", "exec", namespace, sys.executable, "-B", __file__,
                           "--speak", str(slot), str(size), str(count)], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise Failure(done.stdout.strip().splitlines()[-1])


def answer_lines():
    """A connection to each address that a line names, kept: each time it must echo."""
    socks = {}
    for line in sys.stdin:
        address = line.strip()
        sock = socks.get(address) or socket.create_connection((address, PORT), PATIENCE)
        socks[address] = sock
        sock.sendall(b"still there")
        print(sock.recv(11, socket.MSG_WAITALL) == b"still there", flush=True)


@contextlib.contextmanager
def answering(guest):
    """A function that echoes over the one connection to an address, as answer_lines() has it."""
    with subprocess.Popen(["ip", "netns", "exec", guest.namespace, sys.executable, "-B", __file__,
                           "--answer"], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as program:

        def echoes(address):
            program.stdin.write(address + "\n")
            program.stdin.flush()
            if program.stdout.readline() != "True\n":
                raise Failure(f"no echo by {address}")

        try:
            yield echoes
        finally:
            program.kill()


# ---- a run ----


def address_of(slot):
    return f"0000:{'41:00' if slot == PULLED else f'00:{slot:02x}'}.0"


def link_of(slot, key=""):
    return (f"--link pci:{address_of(slot)}{key} --addr 10.77.{slot}.2/24 "
            f"--addr fd77:{slot}::2/64")


def fact(links, name):
    """A line of `coronet-ctl links`."""
    found = re.search(rf"^0\.(?:ports\.\d+\.)?{name} +(\S+)", links, re.MULTILINE)
    return found[1] if found else "?"


def check_card(guest, model, driver, option):
    slot = guest.slot(model)
    guest.bind(address_of(slot), driver)
    key, words = (f",{option}", "") if "=" in option else ("", option)
    run("ip", "-n", guest.namespace, "neigh", "flush", "all")  # of another mac=
    begin = time.monotonic()
    with guest.echo(f"{link_of(slot, key)} {words}") as told:
        peer(guest.namespace, slot, *((BYTES // 8, MANY // 10) if option else (BYTES, MANY)))
    links = told["links"]
    cut = sum(map(int, re.findall(r"\.tx_tso +(\d+)", links)))
    wanted = model == "vmxnet3" or option == "tso=on"
    if model in SUMS and (fact(links, "hw_csum") != "yes" or bool(cut) != wanted):
        raise Failure(f"checksums {fact(links, 'hw_csum')}, {cut} frames by TSO")
    if option.startswith("mac=") and fact(links, "mac") != option[4:]:
        raise Failure(f"its address is {fact(links, 'mac')}")
    return (f"queues {fact(links, 'queues')}, checksums {fact(links, 'hw_csum')}, "
            f"{cut:6} frames by TSO, {time.monotonic() - begin:4.1f} s")


def check_refusals(guest, model):
    """Each message, as the card is on its way to vfio-pci."""
    address = address_of(guest.slot(model))
    echo = f"coronet-echo --addr 10.77.99.2/24 --link pci:{address[5:]}"
    for command, wanted in REFUSALS:
        if command == "bind":
            guest.bind(address, "vfio-pci")
            continue
        said, _ = guest.ask(
            f"export PATH; {command}"
            .replace("AS_USER", "su user -c 'PATH=$PATH ECHO'").replace("ECHO", echo + " 2>&1")
            .replace("PMDS", "/usr/lib/*/dpdk/pmds-*"))
        if not re.search(wanted, said, re.DOTALL) or "listening" in said:
            raise Failure(f"{command}: expected '{wanted}', it said: {said}")
    return f"{len(REFUSALS) - 1} messages"


def check_life(guest, model):
    """A carrier that goes and comes, and a card that is pulled out: the others go on."""
    slot = guest.slot(model)
    guest.bind(address_of(slot), "vfio-pci")
    guest.bind(address_of(PULLED), "vfio-pci")
    addresses = f"10.77.{slot}.2", f"10.77.{PULLED}.2"
    with answering(guest) as echoes, \
            guest.echo(f"{link_of(slot)} {link_of(PULLED)} --lcores 0") as told:
        guest.await_line("the card is on NUMA node 1, and shard 0.s CPU 0 on node 0")
        for address in addresses:
            echoes(address)
        guest.command(f"set_link nic{slot} off")
        guest.await_line(f"{address_of(slot)}: down, no carrier")
        echoes(addresses[1])
        guest.command(f"set_link nic{slot} on")
        guest.await_line(f"{address_of(slot)}: up")
        echoes(addresses[0])
        guest.command("device_del pulled")
        guest.await_line(f"{address_of(PULLED)}: the card has been taken away")
        guest.await_gone(PULLED)
        echoes(addresses[0])
    states = re.findall(r"^(\d)\S*state +(\S+)", told["links"], re.MULTILINE)
    lines, _ = guest.ask("grep -cE '^coronet: link.*(down|away)' /run/log")
    losses = re.findall(r"carrier_losses +(\d+)", told["links"])
    if states != [("0", "up"), ("1", "down")] or losses != ["1", "1"] or int(lines) != 2:
        raise Failure(f"{states}, {losses} losses, {lines} lines in the log")
    return "carrier lost and back, another card pulled out"


def check_bond(guest, model):
    """Two cards, their wires in one bridge, and a connection: each loses its carrier, and comes
    back; then one is pulled out."""
    cards = guest.slot(model), PULLED
    guest.command(f"device_add e1000e,bus=outer,id=pulled,netdev=nic{PULLED},romfile=")
    guest.ask(f"for i in $(seq {10 * PATIENCE}); do test -e "
              f"/sys/bus/pci/devices/{address_of(PULLED)} && break; sleep 0.1; done", 2 * PATIENCE)
    for slot in cards:
        guest.bind(address_of(slot), "vfio-pci")
    run("ip", "-n", guest.namespace, "-batch", "-",
        input="link add bond type bridge\nlink set bond up\naddr add 10.77.99.1/24 dev bond\n" +
        "".join(f"link set nic{slot} master bond\n" for slot in cards))
    link = (f"--link bond:b0,members=pci:{address_of(cards[0])}+pci:{address_of(cards[1])} "
            "--addr 10.77.99.2/24")
    with contextlib.ExitStack() as stack:
        echoes = stack.enter_context(answering(guest))
        told = stack.enter_context(guest.echo(link))
        echoes("10.77.99.2")
        for slot, other in (cards, cards[::-1], cards):
            guest.command(f"set_link nic{slot} off")
            guest.await_line(f"member pci:{address_of(other)} sends now")
            echoes("10.77.99.2")
            guest.command(f"set_link nic{slot} on")
            guest.await_line(f"member pci:{address_of(slot)} up")
            echoes("10.77.99.2")
            guest.ask(": >/run/log")
        guest.command("device_del pulled")
        guest.await_line(f"member pci:{address_of(cards[0])} sends now")
        guest.await_line(f"member pci:{address_of(PULLED)} has been taken away")
        guest.await_gone(PULLED)
        echoes("10.77.99.2")
    states = fact(told["links"], "state"), fact(told["links"], "sender_changes")
    if states != ("up", "4"):
        raise Failure(f"at the end: {states}")
    return "carriers lost and back, one card pulled out"


def check_all(guest, driver, options):
    guest.await_boot()
    checks = [(model, option or "--shards 1", check_card, (driver, option))
              for model in guest.models
              for option in options + ("tso=on",) * (model == "virtio")]
    if driver == "vfio-pci" and REFUSED in guest.models:
        checks.insert(0, (REFUSED, "what it cannot use", check_refusals, ()))
        checks.append((REFUSED, "a link's life", check_life, ()))
        checks.append((REFUSED, "a bond's life", check_bond, ()))
    failed = 0
    for model, name, check, words in checks:
        try:
            told = "ok    " + check(guest, model, *words)
        except Failure as failure:
            told = f"FAIL  {failure}"
            failed += 1
        print(f"{model:14} {name:26} {told}", flush=True)
    return len(checks) - failed, failed


def what_is_missing(folder):
    """Why it cannot run here, or None."""
    for program in ("qemu-system-x86_64", "busybox"):
        if not shutil.which(program):
            return f"{program} is missing: apt-get install qemu-system-x86 busybox-static"
    if os.getuid() != 0 or not os.access("/dev/net/tun", os.W_OK):
        return "needs root and /dev/net/tun, for network namespaces and TAPs"
    try:
        kernel(folder / "kernel")
    except (subprocess.CalledProcessError, IndexError, TypeError):
        return "linux-image-cloud-amd64 cannot be downloaded (apt-get update)"
    return None


def main():
    if sys.argv[1:2] == ["--answer"]:
        return answer_lines()
    if sys.argv[1:2] == ["--speak"]:
        try:
            speak(*map(int, sys.argv[2:5]))
        except (Failure, OSError) as failure:
            sys.exit(str(failure))
        return 0
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1].split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--lean", action="store_true")
    args = parser.parse_intermixed_args()
    for model in args.models:
        if model not in MODELS:
            parser.error(f"no model '{model}'; there are: {', '.join(MODELS)}")
    folder = args.build.resolve() / "nic"
    folder.mkdir(exist_ok=True)
    missing = what_is_missing(folder)
    if missing:
        print(f"nic: {missing}", file=sys.stderr)
        return 77 if args.lean else 1
    make_initrd(args.build.resolve(), folder)
    begin = time.monotonic()
    passed = failed = 0
    for driver, iommu, options in LEAN_RUNS if args.lean else RUNS:
        models = args.models or (LEAN_MODELS if args.lean else list(MODELS))
        print(f"# {driver}", flush=True)
        guest = Guest(folder, models, iommu)
        try:
            done = check_all(guest, driver.split()[0], options)
            passed, failed = passed + done[0], failed + done[1]
        finally:
            if not args.keep:
                guest.end()
        if args.keep:
            print(f"the peer's side: ip netns exec {guest.namespace} sh\n"
                  f"the guest's shell: socat - UNIX-CONNECT:{guest.folder}/agent\n"
                  f"to end both: kill {guest.qemu.pid}; ip netns del {guest.namespace}")
            break
    print(f"{passed} passed, {failed} failed, {time.monotonic() - begin:.0f} s")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
