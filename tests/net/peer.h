/*
 * The other end of the wire, by hand: forges segments and reads the stack's.
 *
 * The stack under test is 10.0.0.1, the peer 10.0.0.2. The peer answers ARP by
 * itself; tests do everything else.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <coronet/net.h>

#define PEER_FIN 0x01
#define PEER_SYN 0x02
#define PEER_RST 0x04
#define PEER_PSH 0x08
#define PEER_ACK 0x10
#define PEER_ECE 0x40
#define PEER_CWR 0x80

struct segment {
	uint16_t src, dst;
	uint32_t seq, ack;
	uint8_t flags;
	uint16_t wnd;
	const uint8_t *options;
	unsigned options_len;
	const uint8_t *data;
	unsigned len;
	const uint8_t *from, *to; /* IPv4; NULL: the peer's, the stack's */
	bool to_all;		  /* an Ethernet broadcast */
	uint16_t ip_id;		  /* as received */
	uint8_t tos;		  /* ECN's field with it */
};

/* One connection as the peer sees it. */
struct peer {
	uint16_t port;	     /* ours */
	uint16_t stack_port; /* theirs */
	uint32_t snd, rcv;   /* next to send, next expected */
	uint16_t wnd;
};

extern _Thread_local struct net_stack *stack; /* this thread's */

/*
 * Set by handlers: the call's result, bytes, and the number of ended handlers.
 */
extern _Thread_local struct net_listener *listener; /* at port 7, backlog 8 */
extern long result;
extern unsigned ended;
extern uint8_t got[65536];
extern size_t got_len;

/* peer_setup(), and the listener. */
int peer_listen(void **state);

/* The same with 8,192 connections at most and a backlog of 8,000. */
int peer_listen_many(void **state);

/*
 * The same at 10.0.0.1 and, on a second link, 10.1.0.1, after both addresses
 * have been announced; the connections are 64 at most.
 */
int peer_listen_on_two_links(void **state);

/* The same at fd00::1 and fd01::1, with 64 connections at most. */
int peer_listen6(void **state);

/*
 * A handler that echoes until the end of the stream, and sets result and ended.
 */
void echo_views(struct net_conn *conn, void *arg);

/* Gives the listener's connections a handler. */
void serve(net_handler handler);

/*
 * net_opts_init(), without header prediction if CORONET_PREDICT is "off";
 * traces CORONET_TRACE connections.
 */
void peer_opts_init(struct net_opts *opts);

/* cmocka's setup and teardown: a stack; every frame back in its pool. */
int peer_setup(void **state);
int peer_teardown(void **state);

/* Runs rounds of the loop, with a still clock, or with one that advances. */
void run_rounds(unsigned n);
void run_ms(unsigned ms);

void peer_send_raw(const struct segment *segment);
void peer_send(struct peer *peer, uint8_t flags, const void *data,
	       unsigned len);

/*
 * Sends a SYN with these options from port 1000 to port 7, and takes the
 * answer; the handshake's last ACK is left to the caller.
 */
struct segment peer_open(struct peer *peer, uint32_t iss,
			 const uint8_t *options, unsigned options_len);

/* A SYN to port 7 from a host of this IPv4 address; two rounds. */
void peer_send_syn_of(const uint8_t from[4], uint16_t src_port);

/* Runs the stack until it has sent a TCP segment; false if it sends none. */
bool peer_next(struct segment *out);

/* The same, for at most ms; fails the test if it sends none. */
struct segment peer_wait(unsigned ms);

/* A value of expect() and check_segment() that matches any field. */
#define ANY INT64_MIN

/*
 * Runs the stack until it has sent a TCP segment. Fails the test, in the
 * caller's line, if it sends none or if one of these fields has another value;
 * `seq` and `ack` are taken modulo 2^32. Writes the segment to `out` unless
 * that is NULL.
 */
#define expect(out, flags, seq, ack, len)                                      \
	expect_at(__FILE__, __LINE__, out, flags, seq, ack, len)
void expect_at(const char *file, int line, struct segment *out, int64_t flags,
	       int64_t seq, int64_t ack, int64_t len);

/* The same for a segment that a test has taken already. */
#define check_segment(segment, flags, seq, ack, len)                           \
	check_segment_at(__FILE__, __LINE__, segment, flags, seq, ack, len)
void check_segment_at(const char *file, int line, const struct segment *segment,
		      int64_t flags, int64_t seq, int64_t ack, int64_t len);

/* Fails the test if the stack sends any TCP segment now. */
void peer_expect_nothing(void);

/* The three-way handshake with a listener of the stack. */
void peer_connect(struct peer *peer, uint16_t port, uint16_t stack_port,
		  uint32_t iss);

/* The stack has closed first: carries its side of `peer` into TIME_WAIT. */
void reach_time_wait(struct peer *peer);
