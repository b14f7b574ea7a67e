/* Why connections end, as the log and the sock trace tell it. */
#pragma once

struct net_conn;

/*
 * Whoever ends a connection sets net_here()->ending just before; what lwIP ends
 * by itself is told apart when its pcb is freed.
 */
enum net_end {
	NET_END_NONE,
	NET_END_DONE, /* both sides have closed */
	NET_END_PEER_RESET,
	NET_END_TIMEOUT, /* nobody acknowledged */
	NET_END_WINDOW,	 /* the peer's stayed shut */
	NET_END_USER_TIMEOUT,
	NET_END_KEEPALIVE,
	NET_END_FIN_TIMEOUT, /* of a peer that never closed */
	NET_END_ABORT,	     /* net_abort() */
	NET_END_UNREAD,	     /* closed before all was read, RFC 2525 2.17 */
	NET_END_LATE_DATA,   /* data came after it was closed */
	NET_END_DROP,	     /* by an operator */
	NET_END_MEMORY,
	NET_END_ORPHAN,	 /* too many that are closed and not at their end */
	NET_END_STOPPED, /* the program ends */
	NET_END_UNTOLD,	 /* nobody was told that it began */
	NET_END_BROKEN,	 /* an assertion of lwIP failed */
	NET_ENDS
};

/* While lwIP frees the connection's pcb: why. */
enum net_end net_conn_end(const struct net_conn *conn);

/* As a word, for the log's reason=. */
const char *net_end_name(enum net_end end);

/* As a sentence of the connection's, for people. */
const char *net_end_text(enum net_end end);
