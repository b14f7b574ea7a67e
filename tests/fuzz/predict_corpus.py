#!/usr/bin/env python3
"""Writes the first inputs of fuzz-predict: predict_corpus.py tests/fuzz/corpus/predict

Segments that header prediction accepts, and ones that just fail its conditions. The steps are
those of tcp_steps.c.
"""
import struct
import sys

import corpus_files

ECHO, HANG_UP, WAITS, TALK = range(4)  # handlers
ACK, PUSH, FIN = 0, 1, 3
ACCEPT, DIAL = b"\4", b"\3"
SECOND, A_WHILE = b"\x80", b"\1"
OLD_ACK = 0x10
STALE, BARE = 0x20, 0x40  # its timestamp is old, or it has none


def handshake(where):
    return bytes([6, where])


def stamped(where):
    """The same with timestamps, which the connection's segments then have."""
    return bytes([0x16, where])


def room(frames):
    return bytes([5 | frames << 4])


def seg(where, flags=PUSH, fives=0, wnd=None, how=None, seq=0, ack=0, also=0, last=True):
    """Returns a segment of n times five bytes; the stack runs after the last of a burst."""
    what = flags | (fives and 8) | (wnd is not None and 0x20)
    how = 0 if how is None and (seq or ack or also) else how
    if how is not None:
        what |= 0x40
    out = bytes([8 if last else 0x88, what, where])
    if fives:
        out += bytes([fives])
    if wnd is not None:
        out += bytes([wnd])
    if how is not None:
        out += bytes([how]) + struct.pack("!HbB", seq & 0xffff, ack, also)
    return out


def sending(*steps):
    """The stack sends bytes, which the steps acknowledge."""
    return handshake(TALK) + b"".join(steps)


AHEAD = seg(ECHO, fives=20, seq=100)
BETWEEN = seg(ECHO, fives=20)
INPUTS = {
    "in-order": handshake(ECHO) + seg(ECHO, fives=13) * 8,
    "burst": handshake(ECHO) + seg(ECHO, fives=13, last=False) * 6 + seg(ECHO, ACK),
    "one-way": handshake(WAITS) + seg(WAITS, fives=200) * 4 + ACCEPT,
    "fills-window": handshake(WAITS) + seg(WAITS, fives=255) * 53,
    "hole": handshake(ECHO) + AHEAD + BETWEEN + seg(ECHO, fives=13) * 3,
    "hole-then-in-order": handshake(ECHO) + AHEAD + seg(ECHO, fives=5) * 4 + BETWEEN,
    "twice": handshake(ECHO) + seg(ECHO, fives=9) + seg(ECHO, fives=9, seq=-45) * 2,
    "partial-ack": sending(*[seg(TALK, ACK, how=OLD_ACK, ack=n) for n in (1, 100, 127, 127)]),
    "whole-ack": sending(*[seg(TALK, ACK)] * 12),
    "ack-beyond": sending(seg(TALK, ACK, ack=1), seg(TALK, ACK)),
    "same-ack": sending(*[seg(TALK, ACK, how=OLD_ACK)] * 5, seg(TALK, ACK)),
    "ack-with-data": sending(*[seg(TALK, fives=20)] * 6),
    "window-shuts": sending(seg(TALK, ACK, wnd=0), SECOND, seg(TALK, ACK, wnd=1), seg(TALK, ACK)),
    "window-shrinks": sending(*[seg(TALK, ACK, wnd=n) for n in (200, 20, 2, 0, 255)]),
    "older-window": sending(seg(TALK, ACK, wnd=40), seg(TALK, ACK, how=OLD_ACK, wnd=200)),
    "lost": sending(seg(TALK, ACK), SECOND, seg(TALK, ACK, how=OLD_ACK, ack=100), seg(TALK, ACK)),
    "after-repair": sending(SECOND, *[seg(TALK, ACK)] * 6, seg(TALK, fives=13)),
    "late": handshake(ECHO) + (seg(ECHO, fives=13) + A_WHILE + A_WHILE) * 4,
    "fin-after": handshake(ECHO) + seg(ECHO, fives=13) + seg(ECHO, FIN) + seg(ECHO, ACK),
    "fin-with-data": handshake(ECHO) + seg(ECHO, FIN, fives=13) + seg(ECHO, fives=13),
    "half-closed": handshake(HANG_UP) + seg(HANG_UP, fives=13) * 3 + seg(HANG_UP, FIN),
    "port-busy": handshake(ECHO) + room(0) + seg(ECHO, fives=13) * 2 + room(15) + A_WHILE,
    "port-narrow": sending(room(1), *[seg(TALK, ACK)] * 4, room(15), A_WHILE),
    "dialed": DIAL + seg(0x80, 6) + seg(0x80, ACK) + seg(0x80, fives=13) * 4,
    "two": handshake(ECHO) + handshake(0x10) + (seg(ECHO, fives=7) + seg(0x10, fives=9)) * 4,
    "urgent": handshake(ECHO) + seg(ECHO, fives=13, also=0x20) + seg(ECHO, fives=13),
    "stamped": stamped(ECHO) + (seg(ECHO, fives=13) + A_WHILE) * 4,
    "stamped-burst": stamped(ECHO) + seg(ECHO, fives=13, last=False) * 6 + seg(ECHO, ACK),
    "stamped-talk": stamped(TALK) + seg(TALK, ACK) * 6 + SECOND + seg(TALK, fives=13) * 3,
    "stamped-hole": stamped(ECHO) + AHEAD + BETWEEN + seg(ECHO, fives=13) * 3,
    "stale": stamped(ECHO) + (seg(ECHO, fives=13) + seg(ECHO, fives=9, how=STALE)) * 3,
    "bare": stamped(ECHO) + (seg(ECHO, fives=13) + seg(ECHO, fives=9, how=BARE)) * 3,
    "stamped-end": stamped(HANG_UP) + seg(HANG_UP, fives=13) + seg(HANG_UP, FIN) * 2,
    "no-ack-flag": handshake(ECHO) + seg(ECHO, fives=13, also=0x10) + seg(ECHO, fives=13),
}


if __name__ == "__main__":
    corpus_files.write(sys.argv[1], INPUTS)
