#!/usr/bin/env python3
"""Writes the first inputs of fuzz-dhcp: dhcp_corpus.py tests/fuzz/corpus/dhcp

An input is `sname` and `file`, 64 and 128 bytes, and then the options of a message.
"""
import sys

import corpus_files

EMPTY = bytes(192)
ACK = bytes([53, 1, 5, 54, 4, 10, 0, 0, 1])
OFFER = bytes([53, 1, 2, 54, 4, 10, 0, 0, 1])
LEASE = bytes([51, 4, 0, 0, 14, 16])
END = b"\xff"
ROUTES = bytes([0, 10, 0, 0, 1, 9, 10, 128, 10, 0, 0, 2, 32, 10, 1, 2, 3, 0, 0, 0, 0])


def option(code, value):
    return bytes([code, len(value)]) + value


corpus_files.write(sys.argv[1], {
    "ack": EMPTY + ACK + LEASE + option(1, b"\xff\xff\xff\0") + option(3, bytes([10, 0, 0, 1]))
           + option(6, bytes([10, 0, 0, 53] * 2)) + option(26, b"\x05\x78")
           + option(58, b"\0\0\3\0") + option(59, b"\0\0\7\0") + END,
    "nak": EMPTY + bytes([53, 1, 6, 54, 4, 10, 0, 0, 1]) + END,
    "routes": EMPTY + ACK + LEASE + option(121, ROUTES) + END,
    "routes-split": EMPTY + ACK + option(121, ROUTES[:8]) + LEASE + option(121, ROUTES[8:]) + END,
    "route-too-wide": EMPTY + ACK + option(121, bytes([33, 1, 2, 3, 4, 5, 10, 0, 0, 1])) + END,
    "overload": LEASE.ljust(64, b"\0") + option(1, b"\xff\0\0\0").ljust(128, b"\0") + OFFER
                + option(52, b"\3") + END,
    "overload-lies": (b"\x33\x3f" * 32) + bytes(128) + OFFER + option(52, b"\2") + END,
    "length-lies": EMPTY + ACK + b"\x33\xff\0\0",
    "pads": EMPTY + bytes(20) + OFFER + bytes(20) + LEASE,
    "whole": bytes([2, 1, 6, 0, 1, 2, 3, 4]) + bytes(228) + b"\x63\x82\x53\x63" + ACK + LEASE + END,
})
