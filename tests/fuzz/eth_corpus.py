#!/usr/bin/env python3
"""Writes the first inputs of fuzz-eth: eth_corpus.py tests/fuzz/corpus/eth

One small file for each kind of frame. Other findings of the fuzzer are added by hand.
"""
import ipaddress
import struct
import sys

import corpus_files

ARP, IP4, IP6, RAW, WAIT, CONNECT, TOO_BIG, ACK = range(8)
FIX, GROUP, V6, CHAIN = 8, 16, 32, 64
MAC = bytes.fromhex("020000000002")


def a4(text):
    return ipaddress.IPv4Address(text).packed


def a6(text):
    return ipaddress.IPv6Address(text).packed


def step(what, data):
    return bytes([what, len(data)]) + data


def arp(op, sender, target, mac=MAC):
    return step(ARP, struct.pack("!HHBBH", 1, 0x800, 6, 4, op) + mac +
                a4(sender) + bytes(6) + a4(target))


def ip4(proto, payload, options=b"", src="10.0.0.2", frag=0, flags=FIX):
    head = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, 0, 0, 1, frag, 64, proto, 0)
    return step(IP4 | flags, head + a4(src) + a4("10.0.0.1") + options + payload)


def ip6(nxt, payload, src="fd00::2", dst="fd00::1", hops=64, flags=FIX):
    head = struct.pack("!IHBB", 0x60000000, len(payload), nxt, hops)
    return step(IP6 | flags, head + a6(src) + a6(dst) + payload)


def icmp6(kind, body, code=0, **rest):
    return ip6(58, struct.pack("!BBH", kind, code, 0) + body, **rest)


def lladdr(kind, mac=MAC):
    return bytes([kind, 1]) + mac


def tcp(flags, options=b"", data=b"", sport=2000):
    options += bytes(-len(options) % 4)
    return struct.pack("!HHIIBBHHH", sport, 7, 99, 0, (20 + len(options)) // 4 << 4,
                       flags, 65535, 0, 0) + options + data


LL = "fe80::ff:fe00:1"
TOO_BIG_BODY = struct.pack("!I", 1280) + bytes.fromhex("6000000005dc0640") + \
    a6("fd00::1") + a6("fd00::2") + struct.pack("!HHII", 7, 1000, 1, 2)
OPTIONS = b"\x02\x04\x05\xb4\x01\x03\x03\x07\x04\x02\x08\x0a\0\0\0\1\0\0\0\0"
PADN = b"\x01\x04\0\0\0\0"

INPUTS = {
    "arp-request": arp(1, "10.0.0.3", "10.0.0.1"),
    "arp-reply": arp(2, "10.0.0.2", "10.0.0.1"),
    "arp-ours": arp(1, "10.0.0.1", "10.0.0.1"),
    "arp-probe": arp(1, "0.0.0.0", "10.0.0.1"),
    "arp-short": step(ARP, b"\0\1\x08\0\x06\4\0\1"),
    "arp-flood": b"".join(arp(1, f"10.0.0.{i}", "10.0.0.1") for i in range(10, 30)),
    "ns": icmp6(135, bytes(4) + a6("fd00::1") + lladdr(1), src="fd00::3", hops=255),
    "ns-ll": icmp6(135, bytes(4) + a6(LL) + lladdr(1), src="fe80::3", dst=LL, hops=255),
    "ns-dad": icmp6(135, bytes(4) + a6("fd00::1") + b"\x0e\1nonce!", src="::",
                    dst="ff02::1:ff00:1", hops=255, flags=FIX | GROUP),
    "ns-short": icmp6(135, bytes(4) + a6("fd00::1") + b"\1", hops=255),
    "na": icmp6(136, b"\x60\0\0\0" + a6("fd00::2") + lladdr(2), hops=255),
    "na-all": icmp6(136, b"\x20\0\0\0" + a6("fd00::2") + lladdr(2), dst="ff02::1", hops=255,
                    flags=FIX | GROUP),
    "ra": icmp6(134, b"\x40\0\x07\x08" + bytes(8) + lladdr(1) + b"\5\1\0\0\0\0\5\xdc" +
                b"\3\4\x40\xc0" + bytes(12) + a6("fd01::"), src="fe80::3", dst="ff02::1",
                hops=255, flags=FIX | GROUP),
    "redirect": icmp6(137, bytes(4) + a6("fe80::4") + a6("fd00::2") + lladdr(2),
                      src="fe80::3", hops=255),
    "mld-query": icmp6(130, b"\0\x64\0\0" + bytes(16), src="fe80::3", dst="ff02::1", hops=1,
                       flags=FIX | GROUP),
    "mld-query-alert": ip6(0, b"\x3a\0\5\2\0\0\1\0" + b"\x82\0\0\0\0\x64\0\0" + bytes(16),
                           src="fe80::3", dst="ff02::1", hops=1, flags=FIX | GROUP),
    "echo6": icmp6(128, b"\0\1\0\1ping"),
    "echo6-chain": icmp6(128, b"\0\1\0\1" + bytes(120), flags=FIX | CHAIN),
    "too-big6": icmp6(2, TOO_BIG_BODY),
    "unreachable6": icmp6(1, bytes(4) + TOO_BIG_BODY[4:]),
    "destination-options": ip6(60, b"\6\0" + PADN + tcp(2, OPTIONS)),
    "hop-by-hop": ip6(0, b"\6\0" + PADN + tcp(2)),
    "options-twice": ip6(60, b"\x3c\0" + PADN + b"\6\0" + PADN + tcp(2)),
    "routing": ip6(43, b"\6\2\0\1" + bytes(20) + tcp(2)),
    "fragment6": ip6(44, b"\6\0\0\1\0\0\0\7" + tcp(2)),
    "atomic-fragment": ip6(44, b"\6\0\0\0\0\0\0\7" + tcp(2)),
    "udp6": ip6(17, struct.pack("!HHHH", 53, 53, 12, 0) + b"data"),
    "echo4": ip4(1, b"\x08\0\0\0\0\1\0\1ping"),
    "too-big4": ip4(1, b"\3\4\0\0\0\0\3\xe8\x45\0\5\xdc\0\0\x40\0\x40\6\0\0" + a4("10.0.0.1") +
                    a4("10.0.0.2") + struct.pack("!HHI", 7, 1000, 1)),
    "record-route": ip4(6, tcp(2), options=b"\7\7\4\0\0\0\0\1"),
    "source-route": ip4(6, tcp(2), options=b"\x83\7\4\x0a\0\0\3\1"),
    "fragment4": ip4(6, tcp(2), frag=0x2000),
    "udp4": ip4(17, struct.pack("!HHHH", 53, 53, 12, 0) + b"data"),
    "igmp": ip4(2, b"\x11\x64" + bytes(6)),
    "broadcast-source": ip4(6, tcp(2), src="255.255.255.255"),
    "tcp-options": ip4(6, tcp(2, OPTIONS)),
    "tcp-options-cut": ip4(6, tcp(2, b"\2\4\5\xb4\3")),
    "tcp-mss-0": ip4(6, tcp(2, b"\2\4\0\0")),
    "vlan": bytes([RAW, 24]) + b"\x81\0" + b"\0\1\x08\0" + bytes(20),
    "lldp": bytes([RAW, 20]) + b"\x88\xcc" + bytes(20),
}
for v6 in (0, V6):
    name = "6" if v6 else "4"
    dial = bytes([CONNECT | v6, 0])
    INPUTS["path-report" + name] = dial + bytes([TOO_BIG | v6, 0, 5, 0]) + \
        bytes([ACK | v6, 0]) * 4 + bytes([TOO_BIG | v6, 4, 4, 0, ACK | v6, 0])
    INPUTS["path-zero" + name] = dial + bytes([TOO_BIG | v6, 8, 0, 0, ACK | v6, 0])
    INPUTS["path-silent" + name] = dial + bytes([WAIT | 0xf8, 25]) + bytes([ACK | v6, 0]) * 3
    INPUTS["path-again" + name] = dial + bytes([TOO_BIG | v6, 0, 5, 0]) + \
        bytes([ACK | v6, 0]) + bytes([CONNECT | v6, 1]) + bytes([ACK | v6, 9]) * 5 + \
        bytes([WAIT, 255, ACK | v6, 0])


if __name__ == "__main__":
    corpus_files.write(sys.argv[1], INPUTS)
