/* Why connections end, as the log and the connection trace report it. */
#pragma once

struct net_conn;

/*
 * Code that ends a connection sets net_here()->ending just before. If lwIP ends
 * it by itself, net_conn_end() finds the reason when the pcb is freed.
 */
enum net_end {
	NET_END_NONE,
	NET_END_DONE, /* both sides have closed */
	NET_END_PEER_RESET,
	NET_END_TIMEOUT, /* the peer sent no ACK */
	NET_END_WINDOW,	 /* the peer's window stayed zero */
	NET_END_USER_TIMEOUT,
	NET_END_KEEPALIVE,
	NET_END_FIN_TIMEOUT, /* the peer never closed its side */
	NET_END_ABORT,	     /* net_abort() */
	NET_END_UNREAD,	     /* closed before all was read, RFC 2525 2.17 */
	NET_END_LATE_DATA,   /* data came after it was closed */
	NET_END_DROP,	     /* by an operator */
	NET_END_MEMORY,
	NET_END_ORPHAN,	    /* too many orphans */
	NET_END_STOPPED,    /* the program ends */
	NET_END_UNACCEPTED, /* no coroutine for it, or its listener stopped */
	NET_END_BROKEN,	    /* an assertion of lwIP failed */
	NET_ENDS
};

/*
 * Ends a connection at once, for this reason. Its peer gets a RST, except in
 * SYN_SENT (RFC 9293 3.10.5). lwIP frees the pcb, which must still be live; the
 * connection may be freed with it.
 */
void net_conn_reset(struct net_conn *conn, enum net_end why);

/*
 * Gives up a connection whose peer does not answer: the next tick of lwIP ends
 * it, for the reason that tcp/timer.c finds in its state. Called by a timer
 * that runs the tick next.
 */
void net_conn_give_up(struct net_conn *conn);

/* The reason, while lwIP frees the connection's pcb. */
enum net_end net_conn_end(const struct net_conn *conn);

/* The reason as a word, for the log's reason=. */
const char *net_end_name(enum net_end end);

/* The reason as a sentence about the connection, for people. */
const char *net_end_text(enum net_end end);
