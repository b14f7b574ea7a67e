"""The cards that nic.py tests in a guest of QEMU, and the checks of each."""

import concurrent.futures
import contextlib
import functools
import hashlib
import re

from frame_sizes import longest_frame
from harness import WAIT_MAX_S, Skip, check, command
from nic_guest import DEVICES, PULLED, pci_address, set_addresses
from proxies import Peer, echo_bytes
from test_bond import bridge, veths
from test_links import checksums_in_software
from test_peers import MIB, PORT, dial_server, echo_again, echo_at_once, echo_file
from vlan_device import vlan_device
from web import curl_digests, need_programs

# coronet-echo's configurations: keys of its link, options.
ECHOES = {
    "1 shard": ("", ""), "2 shards": ("", "--shards 2"), "3 shards": ("", "--shards 3"),
    "mac=,vlan=7": (",mac=02:00:00:00:00:77,vlan=7", ""), "tso=on": (",tso=on", ""),
    "jumbo": ("", "--mtu 9000")}
VFIO = [*(name for name in ECHOES if name != "tso=on"), "httpd"]
UIO = ["1 shard", "2 shards", "3 shards"]
VIRTIO = "virtio-net-pci,disable-legacy=on,iommu_platform=on"
# QEMU's device, and its checks behind an IOMMU, with vfio-pci, and without one, with
# uio_pci_generic. QEMU 7.2 sometimes stalls with receive-side scaling.
MODELS = {
    "e1000": ("e1000", VFIO, UIO),
    "e1000e": ("e1000e", ["refusals", *VFIO, "life", "bond"], ["VFIO", *UIO]),
    "vmxnet3": ("vmxnet3", [*VFIO, "proxy"], UIO),
    "virtio": (VIRTIO + ",mq=on,vectors=8,rss=off", [*VFIO, "tso=on"], [*UIO, "tso=on"]),
    "virtio-packed": (VIRTIO + ",packed=on", VFIO, UIO),
    "virtio-vector": (VIRTIO + ",mrg_rxbuf=off", ["vectors"], []),
    "virtio-legacy": ("virtio-net-pci,disable-modern=on", ["IOMMU"], UIO),
    "igb": ("igb", [*VFIO, "functions"], UIO),
}
LEAN = {"e1000e": ["refusals", "2 shards", "life", "bond"], "virtio": ["2 shards", "tso=on"]}
OFFLOADING = ("vmxnet3", "virtio", "virtio-packed", "virtio-legacy", "igb")
CUTTING = ("igb",)  # by QEMU itself, so that the kernel sees segments
IMPOSSIBLE = {  # in emulation
    ("vmxnet3", "jumbo"): "QEMU's device drops frames that need several buffers",
    ("virtio-legacy", "IOMMU"): "a legacy device uses physical addresses, past the IOMMU",
    ("e1000e", "VFIO"): "Debian's kernel is built without CONFIG_VFIO_NOIOMMU",
}
REFUSED = {("virtio-packed", "jumbo"): "--mtu 9000: on this card's packed rings DPDK's driver"}
PROXY_TO = "virtio"  # the card towards the proxy's backend
OTHER = 100  # added to a card's slot: another network of its wire
MANY = 1000  # connections at once, and a tenth of them where only queues or addresses differ
BYTES = 32 * MIB  # over IPv4 and over IPv6, and an eighth of them there

# Errors by command in the guest. ECHO is coronet-echo on the card, AS_USER runs it as a user.
REFUSALS = [
    ("ECHO", "no driver has the card; bind it: modprobe vfio-pci; dpdk-devbind"),
    ("coronet-echo --addr 10.77.99.2/24 --link pci:1f:1f.7",
     "link pci:0000:1f:1f.7: this machine has no PCI device"),
    ("bind", ""),
    ("ECHO >/run/log & await 'grep -q listening /run/log'; ECHO; kill $!; wait",
     "another process has the card"),
    ("AS_USER", "user 1000 may not open /dev/vfio/"),
    ("coronet-echo --link list", r"00:05.0 0x8086:0x10d3, driver vfio-pci.*link up, 1000 Mbit/s.*"
     r"queues at most: 1; checksums: yes; TSO: no; RSS: no.*--link pci:0000:00:05.0\s"),
    ("chmod 666 /dev/vfio/*; AS_USER", r"needs \d+ MiB of locked memory.*may lock 8192 KiB"),
    ("cd PMDS; mv librte_net_e1000* /run; ECHO; mv /run/librte_net_e1000* .",
     "none of DPDK's installed drivers takes the card .0x8086:0x10d3.*librte-net-.*e1000"),
    ("cd PMDS; lib=$(ls librte_bus_pci.so.*.*); cp $lib librte_zz.so.${lib#*.so.}; ECHO; "
     "rm librte_zz*", "DPDK ended the program; it said last:.*already registered"),
]


def slot_of(name):
    return 4 + list(MODELS).index(name)


def hosts_of(network):
    """Returns the stack's addresses in a network."""
    return f"10.77.{network}.2", f"fd77:{network}::2"


def link_options(slot, keys="", network=None):
    host, host6 = hosts_of(network or slot)
    return f"--link pci:{pci_address(slot)}{keys} --addr {host}/24 --addr {host6}/64"


def use_echo(env, network, size=BYTES // 8, count=MANY // 10, mtu=1500):
    """Uses an echo server from the kernel, over IPv4 and over IPv6."""
    command("ip", "neigh", "flush", "all")  # the MAC address may have changed
    for host, headers in zip(hosts_of(network), (28, 48)):
        command("ping", "-qc", 3, "-i", 0.05, "-w", WAIT_MAX_S, "-M", "do", "-s", mtu - headers,
                host)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(functools.partial(echo_file, env, host, size // 4), range(4)))
        echo_at_once(host, count)


@contextlib.contextmanager
def vlan_behind(tap, network):
    """The kernel on a VLAN of a card, behind a veth, which completes the checksums of frames."""
    with veths("trunk"), bridge(tap, "trunk0"), vlan_device("trunk1", "vlan", 7):
        set_addresses("vlan", network)
        for interface in ("trunk0", "trunk1", "vlan"):
            checksums_in_software(interface)
        yield


def check_echo(guest, name, check_name):
    """Like each check of a card, returns what it has seen."""
    slot = slot_of(name)
    keys, options = ECHOES[check_name]
    if wanted := REFUSED.get((name, check_name)):
        said, status = guest.ask(f"coronet-echo {link_options(slot, keys)} {options} 2>&1")
        check(status == 2 and wanted in said, f"status {status}: {said}")
        return "refused"
    network = OTHER + slot if "vlan" in keys else slot
    mtu = 9000 if "--mtu" in options else 1500
    command("ip", "link", "set", f"nic{slot}", "mtu", mtu)
    behind = vlan_behind(f"nic{slot}", network) if network != slot else contextlib.nullcontext()
    with behind, guest.serving("echo", link_options(slot, keys, network), options):
        for second in ("--link list", link_options(slot)) if check_name == "2 shards" else ():
            said = guest.ask(f"coronet-echo {second} 2>&1")[0]
            check("another process has the card" in said, f"{second}: {said}")
        use_echo(guest.env, network, *((BYTES, MANY) if check_name == "1 shard" else ()), mtu=mtu)
        longest = longest_frame(f"nic{slot}", functools.partial(
            echo_file, guest.env, hosts_of(network)[0], MIB))
        links = guest.links()
    checksums = guest.value_of(links, "hw_csum")
    cut = sum(map(int, re.findall(r"\.tx_tso +(\d+)", links)))
    cuts = name in ("vmxnet3", "igb") or check_name == "tso=on"
    check(name not in OFFLOADING or checksums == "yes"
          and bool(cut) == cuts and (longest > mtu + 18) == (cuts and name not in CUTTING),
          f"checksums {checksums}, {cut} frames by TSO, of up to {longest} bytes")
    check("mac=" not in keys or guest.value_of(links, "mac") in keys, "it has another MAC address")
    return f"queues {guest.value_of(links, 'queues')}, checksums {checksums}, {cut} by TSO"


def check_vectors(guest, name):
    """Vector instructions read the ring if frames have one buffer and unverified checksums."""
    slot = slot_of(name)
    link = link_options(slot, ",csum=sw").replace("pci:", "port:")
    with guest.serving("echo", link, f"-- -a {pci_address(slot)},vectorized=1"):
        use_echo(guest.env, slot)
        check(guest.value_of(guest.links(), "hw_csum") == "no", "the card verifies checksums")
    return "a split ring"


def check_httpd(guest, name):
    """Without hugepages, which a driver behind an IOMMU does not need."""
    need_programs("curl")
    served = guest.folder.parent / "root/coronet/coronet-httpd"
    wanted = [hashlib.sha256(served.read_bytes()).hexdigest()] * 4
    with guest.serving("httpd", link_options(slot_of(name)), "--huge off",
                       "--root /coronet/coronet-httpd"):
        for host in hosts_of(slot_of(name)):
            url = f"http://[{host}]/" if ":" in host else f"http://{host}/"
            check(curl_digests(url, 4)[0] == wanted, f"{url}: the SHA-256 differs")
    return "the SHA-256 of 8 downloads, without hugepages"


def check_proxy(guest, name):
    """Clients on one card, over both protocols, and a backend on another, over IPv6."""
    if f"nic{slot_of(PROXY_TO)}" not in guest.taps:
        raise Skip(f"needs {PROXY_TO} as well")
    slot, far = slot_of(name), slot_of(PROXY_TO)
    guest.bind(pci_address(far), "vfio-pci")
    with Peer(None, echo_bytes, host=f"fd77:{far}::1") as backend, \
            guest.serving("proxy", link_options(slot), link_options(far),
                          f"--port {PORT} --to {backend.at}"):
        use_echo(guest.env, slot)
    return f"to {PROXY_TO}, {backend.seen} connections"


def check_functions(guest, name):
    """A virtual function, whose physical function the guest's kernel has and resets."""
    slot = slot_of(name)
    physical = f"{DEVICES}/{pci_address(slot)}"
    guest.bind(pci_address(slot), "igb")
    card = guest.require(f"ls {physical}/net", "the kernel has no interface").strip()
    said = guest.require(f"ip link set {card} up && echo 1 >{physical}/sriov_numvfs && "
                         f"readlink {physical}/virtfn0", "no virtual function")
    function = said.strip().split("/")[-1]
    guest.bind(function, "vfio-pci")
    link = link_options(slot).replace(pci_address(slot), function)
    with guest.serving("echo", link, "--shards 2"), dial_server(hosts_of(slot)[0]) as sock:
        use_echo(guest.env, slot)
        for state, line in ("down", "down, no carrier"), ("up", f"{function}: up"):
            guest.ask(": >/run/log")
            guest.require(f"ip link set {card} {state}", "the kernel's interface")
            guest.await_line(line)
        echo_again(sock)
        driver, queues = (guest.value_of(guest.links(), key) for key in ("driver", "queues"))
    guest.require(f"echo 0 >{physical}/sriov_numvfs", "the function stays")
    return f"{driver}, queues {queues}, its physical function down and up"


def check_refusals(guest, name):
    """Checks each error while the card is moved to vfio-pci step by step."""
    address = pci_address(slot_of(name))
    program = f"coronet-echo --addr 10.77.99.2/24 --link pci:{address[5:]} 2>&1"
    for line, wanted in REFUSALS:
        if line == "bind":
            guest.bind(address, "vfio-pci")
            continue
        said, _ = guest.ask(
            line.replace("AS_USER", "su user -c 'PATH=$PATH ECHO'").replace("ECHO", program)
            .replace("PMDS", "/usr/lib/*/dpdk/pmds-*"))
        check(re.search(wanted, said, re.DOTALL) and "listening" not in said,
              f"{line}: expected '{wanted}', it said: {said}")
    return f"{len(REFUSALS) - 1} messages"


def check_life(guest, name):
    """Others continue when a card loses its carrier or is pulled out."""
    slot = slot_of(name)
    card, pulled = pci_address(slot), pci_address(PULLED)
    guest.bind(pulled, "vfio-pci")
    with guest.serving("echo", link_options(slot), link_options(PULLED), "--lcores 0"), \
            dial_server(hosts_of(slot)[0]) as near, dial_server(hosts_of(PULLED)[0]) as far:
        guest.await_line("the card is on NUMA node 1, and shard 0.s CPU 0 on node 0")
        echo_again(near, far)
        ask = "coronet-ctl --control=/run/control links"
        guest.require(f"await '! {ask} | grep -q down'", "a card without a carrier")
        guest.require(f": >/run/log; ! (for i in $(seq 25); do {ask}; done; cat /run/log)"
                      " | grep down", "a carrier is lost while two threads ask for it")
        guest.cause(f"set_link nic{slot} off", f"{card}: down, no carrier")
        echo_again(far)
        guest.cause(f"set_link nic{slot} on", f"{card}: up")
        echo_again(near)
        guest.pull_out(f"{pulled}: the card was removed from the machine")
        echo_again(near)
        links = guest.links()
    states = re.findall(r"^(\d)\S*state +(\S+)", links, re.MULTILINE)
    losses = re.findall(r"carrier_losses +(\d+)", links)
    lines, _ = guest.ask("grep -cE '^coronet: link.*(down|removed)' /run/log")
    check((states, losses, int(lines)) == ([("0", "up"), ("1", "down")], ["1", "1"], 2),
          f"{states}, {losses} losses, {lines} lines in the log")
    return "a carrier lost and back, another card pulled out"


def check_bond(guest, name):
    """Two cards on a bridge, and a connection: each loses its carrier, then one is pulled out."""
    guest.plug_in()
    cards = slot_of(name), PULLED
    members = [f"pci:{pci_address(slot)}" for slot in cards]
    guest.bind(pci_address(PULLED), "vfio-pci")
    link = f"--link bond:b0,members={'+'.join(members)} --addr 10.9.0.1/16"
    with bridge(*(f"nic{slot}" for slot in cards)), guest.serving("echo", link), \
            dial_server("10.9.0.1") as sock:
        echo_again(sock)
        for lost, other in ((0, 1), (1, 0), (0, 1)):
            guest.cause(f"set_link nic{cards[lost]} off", f"member {members[other]} sends now")
            echo_again(sock)
            guest.cause(f"set_link nic{cards[lost]} on", f"member {members[lost]} up")
            echo_again(sock)
            check(guest.value_of(guest.links(), "sender") == members[other], "it has gone back")
            guest.ask(": >/run/log")
        guest.pull_out(f"member {members[1]} was removed from the machine")
        guest.await_line(f"member {members[0]} sends now")
        echo_again(sock)
        links = guest.links()
    states = guest.value_of(links, "state"), guest.value_of(links, "sender_changes")
    check(states == ("up", "4"), f"at the end: {states}")
    return "carriers lost and back, one card pulled out"


CHECKS = {**{name: functools.partial(check_echo, check_name=name) for name in ECHOES},
          "httpd": check_httpd, "proxy": check_proxy, "vectors": check_vectors,
          "functions": check_functions, "refusals": check_refusals,
          "life": check_life, "bond": check_bond}
