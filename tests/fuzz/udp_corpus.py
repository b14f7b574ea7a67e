#!/usr/bin/env python3
"""Writes the first inputs of fuzz-udp: udp_corpus.py tests/fuzz/corpus/udp

One small file for each kind of step. Other findings of the fuzzer are added by hand.
"""
import struct
import sys

import corpus_files

OPEN, CONNECT, DATAGRAM, RAW, SEND, TAKE, ERROR, CLOSE = range(8)
V6, WRONG, SHARED, CHAIN, EMPTY = 8, 16, 32, 64, 128
COPY, PEEK, RELEASE = 4, 8, 16


def datagram(flags=0, arg=0, fives=3, seed=65, more=b""):
    return bytes([DATAGRAM | flags, arg, fives, seed]) + more


def raw4(options=b"", frag=0, length=12, data=b"abcd", flags=0):
    udp = struct.pack("!HHHH", 1000, 53, length, 0) + data
    head = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, 0, 20 + len(options) + len(udp), 1,
                       frag, 64, 17, 0)
    packet = head + bytes([10, 0, 0, 2, 10, 0, 0, 1]) + options + udp
    return bytes([RAW | flags, len(packet)]) + packet


OPEN4, OPEN6, OPEN_ANY = bytes([OPEN, 0]), bytes([OPEN | V6, 1]), bytes([OPEN, 32])
SAID = bytes([SEND, 0x40])

INPUTS = {
    "received-by-copy": OPEN4 + datagram() + bytes([TAKE, COPY]),
    "received-by-peeking": OPEN4 + datagram() + bytes([TAKE, PEEK]),
    "received-and-held": OPEN_ANY + datagram() + datagram(V6) + bytes([TAKE, 0, TAKE, RELEASE]),
    "ipv6": OPEN6 + datagram(V6) + bytes([TAKE, PEEK | 1]),
    "connected": OPEN4 + bytes([CONNECT, 0]) + datagram() + datagram(arg=1) +
                 bytes([TAKE, COPY, CLOSE, 0]),
    "segments": OPEN4 + datagram(CHAIN, fives=200) + bytes([TAKE, PEEK]),
    "pool-empty": OPEN4 + datagram() + datagram(EMPTY) + bytes([TAKE, 0, TAKE, RELEASE]),
    "queue-full": OPEN4 + 10 * datagram() + bytes([TAKE, 0]),
    "shared": bytes([OPEN | SHARED, 0, OPEN | SHARED, 1]) + datagram() + datagram(arg=1) +
              datagram(arg=2) + bytes([TAKE, PEEK, TAKE, PEEK | 1]),
    "wrong-checksum": OPEN4 + datagram(WRONG),
    "wrong-length": OPEN4 + datagram(WRONG, 64, more=b"\x05"),
    "no-socket": datagram() + datagram(V6),
    "options": OPEN4 + raw4(options=bytes(4)) + bytes([TAKE, COPY]),
    "fragment": OPEN4 + raw4(frag=0x2000),
    "short-length": OPEN4 + raw4(length=7),
    "refused": OPEN4 + bytes([CONNECT, 0]) + SAID + bytes([ERROR, 3, 3, 0, TAKE, COPY]),
    "refused-ipv6": OPEN6 + bytes([CONNECT | V6, 1, SEND | V6, 0x41, ERROR, 1, 4, 0, TAKE, COPY]),
    "too-big": OPEN4 + bytes([SEND, 0xf0, ERROR, 3, 4, 80, SEND, 0xf0]),
    "wrong-quote": OPEN4 + SAID + bytes([ERROR | WRONG, 3, 3, 0, 20, 255]),
}

if __name__ == "__main__":
    corpus_files.write(sys.argv[1], INPUTS)
