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

# lwIP's writable globals, which every shard has for itself, by the source that
# defines them and the header that declares them (netstack/shard_var.h).
# tests/lwip/test_globals.py finds those that an option adds.
GLOBALS = {
    "src/core/ipv4/etharp.c": ["arp_table", "etharp_cached_entry"],
    "src/core/ipv4/igmp.c": ["allsystems", "allrouters"],
    "src/core/ipv4/ip4.c": ["ip_id", "ip4_default_multicast_netif"],
    "src/core/ipv6/nd6.c": [
        "neighbor_cache", "destination_cache", "prefix_list",
        "default_router_list", "nd6_reachable_time", "nd6_retrans_timer",
        "nd6_queue_size", "nd6_cached_destination_index"],
    "src/core/netif.c": ["netif_list", "netif_default", "netif_num"],
    "src/core/pbuf.c": ["pbuf_free_ooseq_pending"],
    "src/core/tcp.c": [
        "tcp_port", "tcp_ticks", "tcp_bound_pcbs", "tcp_listen_pcbs",
        "tcp_active_pcbs", "tcp_tw_pcbs", "tcp_active_pcbs_changed",
        "tcp_timer", "tcp_timer_ctr"],
    "src/core/udp.c": ["udp_port", "udp_pcbs"],
    "src/include/lwip/netif.h": ["netif_list", "netif_default"],
    "src/include/lwip/pbuf.h": ["pbuf_free_ooseq_pending"],
    "src/include/lwip/priv/nd6_priv.h": [
        "neighbor_cache", "destination_cache", "prefix_list",
        "default_router_list", "nd6_reachable_time", "nd6_retrans_timer"],
    "src/include/lwip/priv/tcp_priv.h": [
        "tcp_ticks", "tcp_active_pcbs_changed", "tcp_bound_pcbs",
        "tcp_listen_pcbs", "tcp_active_pcbs", "tcp_tw_pcbs"],
    "src/include/lwip/udp.h": ["udp_pcbs"],
}

# Variables that mean something only while one packet is handled, so that every
# thread may have them for itself. `a, b` are declared at once.
SCRATCH = {
    "src/core/ip.c": ["ip_data"],
    "src/core/ipv6/nd6.c": ["multicast_address", "nd6_ra_buffer"],
    "src/core/tcp_in.c": [
        "inseg", "tcphdr", "tcphdr_optlen", "tcphdr_opt1len", "tcphdr_opt2",
        "tcp_optidx", "seqno, ackno", "recv_acked", "tcplen", "flags",
        "recv_flags", "recv_data", "tcp_input_pcb"],
    "src/include/lwip/ip.h": ["ip_data"],
    "src/include/lwip/priv/tcp_priv.h": ["tcp_input_pcb"],
}

# The same inside functions: file, function, name.
SCRATCH_LOCALS = [
    ("src/core/ipv4/ip4_addr.c", "ip4addr_ntoa", "str"),
    ("src/core/ipv6/ip6_addr.c", "ip6addr_ntoa", "str"),
    ("src/core/ipv6/nd6.c", "nd6_select_router", "last_router"),
]

# Variables of which a structure's member has the name as well.
NAMED_TWICE = [
    ("src/core/ipv6/nd6.c", "reachable_time", 5),
    ("src/core/ipv6/nd6.c", "retrans_timer", 2),
    ("src/include/lwip/priv/nd6_priv.h", "reachable_time", 1),
    ("src/include/lwip/priv/nd6_priv.h", "retrans_timer", 1),
]

# lwIP walks to the end of its queues of segments in every call that appends,
# which of many connections is a cache miss a segment.
ENDS = "netstack/lwip/ends.c remembers where the queue ends."
QUEUE_ENDS = [
    ("src/include/lwip/tcp.h", None,
     r"(?<=tcpwnd_size_t bytes_acked;)", " s32_t unsent_near; u32_t rcv_max;"),
    ("src/core/tcp_out.c", "tcp_output",
     r"\bfor \(; useg\b[^)]*\)", "useg = net_unacked_last(pcb)"),
    ("src/core/tcp_out.c", "tcp_output",
     r"(?<=useg->next = )seg\b", "net_unacked_append(pcb, seg)"),
    ("src/core/tcp_out.c", "tcp_output",
     r"(?<=pcb->unsent = )seg->next\b", "net_unsent_leave(pcb, seg)"),
    ("src/core/tcp_out.c", "tcp_write",
     r"\bfor \(last_unsent = [^)]*\)",
     "last_unsent = net_unsent_last(pcb)"),
    ("src/core/tcp_in.c", "tcp_receive",
     r"(?<=pcb->unsent = )(tcp_free_acked_segments\([^)]*\))",
     r"net_unsent_acked(pcb, \1)"),
]

# The window grows with the path, up to what the user says.
GROWS = "conn/rcv_wnd.c sizes the receive window."

# tcp/ooseq.c reports data that is out of order.
SACKS = ("Ranges and their bytes are tcp/ooseq.c's, of connections that have "
         "any: lwIP only writes into its ACKs what that one points to.")

# RFC 7323 is tcp/timestamps.c's: its option comes by the hooks for more options,
# and pcb->mss counts bytes of data alone.
STAMPS = ("netstack's timestamps take 12 bytes of options beside those that "
          "lwIP knows.")

# Repairs are recovery/'s, and lwIP's flag for its own is the sock trace's.
FAST = "No pcb of ours is ever in lwIP's fast recovery (NET_TF_TRACED)."

# A table of addresses that differ from thread to thread: made where it is used.
PCB_LISTS = (
    "#define tcp_pcb_lists ((struct tcp_pcb **[]){&tcp_listen_pcbs.pcbs, "
    "&tcp_bound_pcbs, &tcp_active_pcbs, &tcp_tw_pcbs})")


def shard_local(file, name):
    """An edit that gives each shard a variable of its own."""
    declares = file.endswith(".h")
    return Edit(
        file=file,
        within=None,
        find=rf"^((?:static|extern) )?"
             rf"((?:\w+[ *]+)+{name}(?:\[\w*\])?(?: = \w+)?;)",
        replace=("" if declares else f"#undef {name}\n") +
                rf"\1NET_SHARD_VAR \2\n#define {name} NET_SHARD({name})",
        times=1,
        why="A shard has an lwIP of its own.",
    )


def thread_local(file, name, within=None):
    """An edit that gives each thread a variable of its own."""
    where = r"^ +static " if within else r"^(?:(?:static|extern) )?"
    return Edit(
        file=file,
        within=within,
        find=rf"({where})(?=(?:\w+[ *]+)+{name}(?:\[\w*\])?(?: = \w+)?;)",
        replace=r"\1_Thread_local ",
        times=1,
        why="Shards handle packets at the same time.",
    )


# Fields of tcp_pcb that netstack/lwip/pcb_layout.h does without, and how often
# a file names them.
ABSENT = ("callback_arg|refused_data|rttest|rtseq|sa|sv|rto_end|polltmr|"
          "pollinterval|prio|keep_idle|keep_intvl|keep_cnt")
ABSENT_IN = {
    "src/include/lwip/priv/tcp_priv.h": 10,
    "src/core/tcp.c": 44,
    "src/core/tcp_in.c": 34,
    "src/core/tcp_out.c": 6,
}
LAYOUT = ("Six cache lines of a connection were touched where four do, and a "
          "sixth of its bytes were never used.")

EDITS = [
    Edit(
        file="src/core/ipv6/mld6.c",
        within="mld6_send",
        find=r"&\(group->group_address\)",
        replace="(type == ICMP6_TYPE_MLD "
                "? &(const ip6_addr_t){{PP_HTONL(0xff020000u), 0, 0, "
                "PP_HTONL(2)}, 0} : &(group->group_address))",
        times=2,
        why="A Done message goes to all routers (RFC 2710 4); lwIP sends it "
            "to the group, where no router needs to listen.",
    ),
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
] + [
    Edit(file, within, find, replace, 1, ENDS)
    for file, within, find, replace in QUEUE_ENDS
] + [
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_output_segment",
        find=r"\bpcb->rttest == 0",
        replace="0",
        times=1,
        why="lwIP measures one round trip at a time for a timeout that "
            "recovery/rtt.c stands in for.",
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
        why="A probe must have a number that was acknowledged, or the peer "
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
    Edit(
        file="src/include/lwip/tcp.h",
        within=None,
        find=r"\brcv_sacks\[LWIP_TCP_MAX_SACK_NUM\](?=;)",
        replace="LWIP_RCV_SACKS",
        times=1,
        why=SACKS,
    ),
    Edit(
        file="src/include/lwip/tcp.h",
        within=None,
        find=r"(?<=LWIP_TCP_SACK_VALID\(pcb, idx\) \()",
        replace="(pcb)->rcv_sacks && ",
        times=1,
        why=SACKS,
    ),
    Edit(
        file="src/include/lwip/tcp.h",
        within=None,
        find=r"(?<=u32_t rcv_ann_right_edge;)",
        replace=" u32_t rcv_mark;",
        times=1,
        why=GROWS,
    ),
    Edit(
        file="src/include/lwip/tcp.h",
        within=None,
        find=r"(?<=u8_t rcv_scale;)",
        replace=" u32_t rcv_mark_us;",
        times=1,
        why=GROWS,
    ),
    Edit(
        file="src/core/tcp_in.c",
        within="tcp_parseopt",
        find=r"\bTCP_RCV_SCALE\b",
        replace="LWIP_RCV_SCALE",
        times=1,
        why=GROWS,
    ),
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_build_wnd_scale_option",
        find=r"\bPP_HTONL\(([^()]*)\bTCP_RCV_SCALE\b",
        replace=r"lwip_htonl(\1LWIP_RCV_SCALE",
        times=1,
        why=GROWS,
    ),
    Edit(
        file="src/core/tcp_in.c",
        within="tcp_receive",
        find=r"\bLWIP_TCP_SACK_VALID\(pcb, 0\)",
        replace="LWIP_OWN_SACKS && LWIP_TCP_SACK_VALID(pcb, 0)",
        times=2,
        why=SACKS,
    ),
    Edit(
        file="src/core/init.c",
        within=None,
        find=r"\bLWIP_TCP_SACK_OUT && !TCP_QUEUE_OOSEQ\b",
        replace="LWIP_OWN_SACKS && !TCP_QUEUE_OOSEQ",
        times=1,
        why=SACKS,
    ),
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_write",
        find=r"\boptlen = LWIP_TCP_OPT_LENGTH_SEGMENT\(0, pcb\);",
        replace=r"\g<0> mss_local = (u16_t)(mss_local + optlen);",
        times=1,
        why=STAMPS,
    ),
    Edit(
        file="src/core/tcp_out.c",
        within="tcp_split_unsent_seg",
        find=r"\bLWIP_TCP_OPT_LENGTH\(optflags\)",
        replace="LWIP_TCP_OPT_LENGTH_SEGMENT(optflags, pcb)",
        times=1,
        why=STAMPS,
    ),
] + [
    Edit(
        file=file,
        within=None,
        find=rf"(?<![.>])(?<! {{4}}u32_t )\b{name}\b",
        replace=f"nd6_{name}",
        times=times,
        why="shard_local() makes a macro of the name.",
    )
    for file, name, times in NAMED_TWICE
] + [
    shard_local(file, name) for file in GLOBALS for name in GLOBALS[file]
] + [
    thread_local(file, name) for file in SCRATCH for name in SCRATCH[file]
] + [
    thread_local(file, name, within) for file, within, name in SCRATCH_LOCALS
] + [
    Edit(
        file="src/core/tcp.c",
        within=None,
        find=r"^[^\n;#]*\btcp_pcb_lists\[\] = [^;]*;",
        replace="",
        times=1,
        why="See PCB_LISTS.",
    ),
    Edit(
        file="src/include/lwip/priv/tcp_priv.h",
        within=None,
        find=r"^extern [^\n;]*\btcp_pcb_lists\[[^;]*;",
        replace=PCB_LISTS,
        times=1,
        why="See PCB_LISTS.",
    ),
    Edit(
        file="src/include/lwip/tcp.h",
        within=None,
        find=r"^struct tcp_pcb (?=\{)",
        replace="LWIP_TCP_PCB struct LWIP_STOCK_PCB ",
        times=1,
        why=LAYOUT,
    ),
    Edit(
        file="src/include/lwip/tcp.h",
        within=None,
        find=r"^struct tcp_pcb_listen (?=\{)",
        replace="struct LWIP_STOCK_LISTEN ",
        times=1,
        why=LAYOUT,
    ),
] + [
    Edit(
        file="src/core/ipv6/nd6.c",
        within="nd6_send_ns",
        find=r"\bip6_addr_net_eq(?=\(target_addr\b)",
        replace="net_nd_in_network",
        times=1,
        why="The network of an address has the prefix that the user gave.",
    ),
] + [
    Edit(file, within, r"\bTF_INFR\b", "LWIP_TF_INFR", times, FAST)
    for file, within, times in (
        ("src/include/lwip/priv/tcp_priv.h", None, 2),
        ("src/core/tcp_in.c", "tcp_receive", 3),
        ("src/core/tcp_out.c", "tcp_rexmit_fast", 2))
] + [
    Edit(file, None, rf"(?:\((\w+)\)|\b(\w+))->({ABSENT})\b",
         r"LWIP_PCB(\1\2, \3)", times, LAYOUT)
    for file, times in ABSENT_IN.items()
]
