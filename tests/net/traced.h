/*
 * Connections with a sock trace, and what their rings hold as text.
 */
#pragma once

#include "netstack/conn/trace.h"
#include "tests/net/peer.h"

extern struct net_conn *traced_conn; /* the last that a handler has had */
extern uint64_t told_events;	     /* of the ring, that told() has given */

/*
 * What is new in the ring, a line an event with its time in ms since
 * traced_first(); the caller's to free.
 */
char *told(const struct net_trace *trace);
void expect_told(const struct net_trace *trace, const char *expected);
/* Otherwise it prints the text. */
bool has_line(const char *text, const char *part);

/* The first n connections have a ring; time begins. */
void traced_first(unsigned n);
/* Handlers: echoes, by buffers; reads to the end; aborts. */
void traced_echo(struct net_conn *accepted, void *arg);
void traced_read_all(struct net_conn *accepted, void *arg);
void traced_abort(struct net_conn *accepted, void *arg);
/* A watch's filter that takes every connection. */
bool traced_wants_all(const void *filter, const struct net_conn *which);
/* What the peer was sent is gone. */
void traced_drain(void);
/* How many there are now. */
unsigned traced_rings(void);
/* Whether it goes the long way, for its ring. */
bool traced_is_marked(const struct net_conn *which);
