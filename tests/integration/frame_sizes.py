"""The sizes of frames that the kernel receives."""

import contextlib
import socket

SO_RCVBUFFORCE = 33
ETH_P_ALL = 3
BUFFER_BYTES = 64 << 20  # for all frames during a call
FRAME_MAX_BYTES = 1 << 17


def longest_frame(interface, use):
    """Calls use(), and returns the length of the longest frame received by an interface."""
    longest = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        sock.bind((interface, ETH_P_ALL))
        use()
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, address = sock.recvfrom(FRAME_MAX_BYTES, socket.MSG_DONTWAIT)
                if address[2] != socket.PACKET_OUTGOING:
                    longest = max(longest, len(frame))
    return longest
