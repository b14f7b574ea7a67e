"""The edits made to lwIP 2.2.1 when its source is configured.

lwIP's source is never changed and never committed: edit.py writes an edited
copy of each file named here into the build folder, which is compiled instead.
An edit names identifiers and is ours; it quotes no line of lwIP's. Prefer to
go round lwIP from outside (hooks, renamed symbols, netstack/'s own functions)
and edit where there is no outside.
"""
from typing import NamedTuple, Optional


class Edit(NamedTuple):
    """One substitution, as re.subn() with re.MULTILINE understands it."""

    file: str  # below lwIP's root
    within: Optional[str]  # the function it is confined to; None: the file
    find: str  # a regular expression
    replace: str
    times: int  # how often it must match there, exactly
    why: str


# The number of a segment without data that the peer takes: SND.NXT, or the
# window's edge if the peer has shrunk its window beneath that by more than
# what scaling cuts off (netstack/tcp/reply.c has the same for resets).
ACCEPTABLE = (
    "(pcb->state >= ESTABLISHED && "
    "(s32_t)(pcb->snd_nxt - (pcb->lastack + pcb->snd_wnd)) "
    ">> pcb->snd_scale > 0"
    " ? pcb->lastack + pcb->snd_wnd : pcb->snd_nxt)")

# RFC 9293 3.10.7.4, fifth check, of the state ESTABLISHED.
WINDOW_IS_NEWS = (
    "TCP_SEQ_BETWEEN(ackno, pcb->lastack, pcb->snd_nxt) && "
    "(TCP_SEQ_LT(pcb->snd_wl1, seqno) || "
    "(pcb->snd_wl1 == seqno && TCP_SEQ_LEQ(pcb->snd_wl2, ackno)))")

EDITS = [
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_split_unsent_seg",
        find=r"\bTCPH_SET_FLAG\b",
        replace="TCPH_FLAGS_SET",
        times=1,
        why="The flags that the first half keeps are ORed into those it has, "
            "so FIN and PSH stay on it: FIN leaves in the middle of the "
            "stream and the peer sees a clean end there.",
    ),
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_output",
        find=r"\bseg->len(?= (?:>|<=) wnd\))",
        replace="seg->len + ((TCPH_FLAGS(seg->tcphdr) & TCP_FIN) && "
                "pcb->snd_wnd <= pcb->cwnd)",
        times=2,
        why="A FIN takes a number of the peer's window, though none of the "
            "congestion window: it was sent into a window of 0, where a "
            "retransmission timeout ended the connection although the peer "
            "answered.",
    ),
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_output_segment",
        find=r"\bpcb->rttest == 0",
        replace="0",
        times=1,
        why="lwIP measures one round trip at a time for a timeout that "
            "recovery/rtt.c stands in for; recovery/persist.c keeps a time "
            "where the number of the segment measured would be.",
    ),
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_send_empty_ack",
        find=r"\bpcb->snd_nxt\b",
        replace=ACCEPTABLE,
        times=1,
        why="A peer that has shrunk its window drops an ACK with a number "
            "beyond it, and with the ACK what it says.",
    ),
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_keepalive",
        find=r"(?<=lwip_htonl\()pcb->snd_nxt\b",
        replace="pcb->lastack",
        times=1,
        why="A probe must bear a number that was acknowledged, or the peer "
            "need not answer; SND.NXT may lie beyond what has arrived.",
    ),
    Edit(
        file="src/core/tcp_in.c",
        within="tcp_receive",
        find=r"(?<=if \()TCP_SEQ_LT\(pcb->snd_wl1[^{]*(?=\) \{)",
        replace=WINDOW_IS_NEWS,
        times=1,
        why="lwIP does not see a window shrink that comes with the same "
            "numbers, and takes one from a segment whose ACK is old, where "
            "the same window reaches less far.",
    ),
    Edit(
        file="src/core/tcp.c",
        within="tcp_slowtmr",
        find=r"\(pcb->state == ESTABLISHED\)",
        replace="(pcb->state == ESTABLISHED) || (pcb->state == FIN_WAIT_2)",
        times=1,
        why="Keepalive ends where we have shut our side: a program that still "
            "reads never learns that its peer has vanished.",
    ),
]
