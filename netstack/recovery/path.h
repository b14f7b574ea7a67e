/*
 * Private to recovery/path.c, recovery/recut.c and their callers: the path's
 * MTU and what follows from it.
 */
#pragma once

#include "netstack/recovery/recovery.h"

/* In pcb->flags, where lwIP has no flag: its MSS is less than agreed. */
#define NET_TF_PATH 0x8000u

/* ---- recovery/path.c ---- */

/* Bytes of IP packet that a destination takes; 0: nothing is known. */
unsigned net_path_mtu(const ip_addr_t *ip);

/* Whether IPv4 TCP to it is sent with DF. */
bool net_path_df(const ip4_addr_t *dest);

/*
 * Decides the MSS: after each segment of a handshake, whichever side began it.
 * Never below NET_MSS_FLOOR, and no more than the path is known to take.
 */
void net_path_settle(struct net_conn *conn);

/* Before output, of a connection with NET_TF_PATH. */
void net_path_review(struct net_conn *conn);

/* An ICMP "needs fragments" or "too big", checked by dpdk_glue; borrowed. */
void net_path_too_big(struct net_port *port, const struct glue_frame *frame);

/*
 * A retransmission timeout, before anything is sent again: lowers the MSS when
 * the path seems to swallow long packets.
 */
void net_path_timed_out(struct net_conn *conn);

/* ---- recovery/recut.c ---- */

/* Cuts what is longer than mss bytes. False: no memory, nothing is lost. */
bool net_recut_unsent(struct net_conn *conn, unsigned mss);
/* And marks it lost; what the peer holds already stays as it is. */
void net_recut_unacked(struct net_conn *conn, unsigned mss);
