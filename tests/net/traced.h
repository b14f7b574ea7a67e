/* Connections that are traced, and the text of their rings. */
#pragma once

#include "netstack/conn/trace.h"
#include "tests/net/peer.h"

extern struct net_conn *traced_conn; /* the connection of the latest handler */
extern uint64_t printed_events; /* of the ring, that trace_text() has printed */

/*
 * Returns the ring's new events, one a line, with the ms since traced_first();
 * the caller frees it.
 */
char *trace_text(const struct net_trace *trace);
void expect_trace(const struct net_trace *trace, const char *expected);
/* Prints the text if it has no such line. */
bool has_line(const char *text, const char *part);

/* Gives the first n connections a ring, and starts the time. */
void traced_first(unsigned n);
/* Handlers: echoes, by buffers; reads to the end; aborts. */
void traced_echo(struct net_conn *accepted, void *arg);
void traced_read_all(struct net_conn *accepted, void *arg);
void traced_abort(struct net_conn *accepted, void *arg);
/* A watch's filter that accepts every connection. */
bool traced_wants_all(const void *filter, const struct net_conn *which);
/* Discards the segments sent to the peer. */
void traced_drain(void);
/* Returns the number of rings. */
unsigned traced_rings(void);
/* Returns whether the connection leaves the fast path for its ring. */
bool traced_is_marked(const struct net_conn *which);
