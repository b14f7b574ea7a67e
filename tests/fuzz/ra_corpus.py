#!/usr/bin/env python3
"""Writes the first inputs of fuzz-ra: ra_corpus.py tests/fuzz/corpus/ra

An input is the options of a router advertisement, a whole one, or the file of a secret.
"""
import ipaddress
import struct
import sys

import corpus_files

FIXED = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0x08, 1800, 0, 0)
MAC = bytes([1, 1, 2, 0, 0, 0, 0, 2])


def prefix(text, bits, flags, valid=7200, preferred=3600):
    return (struct.pack("!BBBBIII", 3, 4, bits, flags, valid, preferred, 0)
            + ipaddress.IPv6Address(text).packed)


def servers(*texts, lifetime=600):
    return (struct.pack("!BBHI", 25, 1 + 2 * len(texts), 0, lifetime)
            + b"".join(ipaddress.IPv6Address(text).packed for text in texts))


corpus_files.write(sys.argv[1], {
    "whole": FIXED + MAC + prefix("fd77::", 64, 0xc0) + servers("fd77::35"),
    "options": MAC + prefix("fd77::", 64, 0xc0) + servers("fd77::35", "fd77::36"),
    "prefixes": prefix("fd77::", 48, 0x80) * 5 + prefix("fd78:1::", 65, 0x40) * 5,
    "strange-prefixes": prefix("fe80::", 64, 0xc0) + prefix("ff02::", 64, 0xc0)
                        + prefix("::1", 128, 0xc0) + prefix("fd77::", 129, 0xc0),
    "lifetimes": prefix("fd77::", 64, 0xc0, 10, 11) + prefix("fd78::", 64, 0xc0, 0, 0),
    "servers": servers("fe80::1", "fd77::35", "::1", lifetime=0) * 4,
    "server-cut": servers("fd77::35")[:-8],
    "zero-length": b"\x19\0" + bytes(6),
    "secret": b"coronet-secret 1 " + b"5a" * 32 + b"\n",
    "secret-cut": b"coronet-secret 1 " + b"5a" * 31 + b"\n",
})
