/*
 * flood: an echo client without a TCP stack. It forges segments in frames and
 * keeps 32 bytes per connection, so that it costs a fraction of the server,
 * which is measured. It handles a lossless link, and a resend in case a frame
 * was lost.
 *
 * One thread; everything is allocated at the start.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "apps/load/hist.h"
#include "dpdk_glue/glue.h"

enum flood_mode {
	FLOOD_ECHO,
	FLOOD_CPS,
	FLOOD_BULK,   /* streams, which the server sends back */
	FLOOD_UDP,    /* datagrams, which the server echoes */
	FLOOD_BOUNCE, /* frames that the other side sends back as they are */
};

enum flow_state {
	FLOW_CLOSED,
	FLOW_SYN,   /* SYN sent */
	FLOW_READY, /* open, no request in flight */
	FLOW_ASKED, /* a request is in flight */
	FLOW_FIN,   /* FIN sent */
};

struct flow {
	uint32_t snd, rcv; /* next to send, next expected */
	union {
		int64_t due_ns; /* the request's: latency counts from here */
		struct {
			uint32_t una; /* the oldest not acknowledged */
			uint32_t wnd; /* bytes the server takes */
		} bulk;
	};
	uint32_t sent_ms; /* time of the last send or ACK */
	union {
		uint32_t backlog; /* requests due behind this one (open loop) */
		uint32_t apart;	  /* bulk: from a byte's number back to here */
	};
	uint16_t got;  /* bytes of the answer so far; bulk: a shift */
	uint16_t port; /* ours */
	uint8_t state; /* enum flow_state */
	bool unacked;  /* in the queue of delayed ACKs; bulk: in `dirty` */
};
_Static_assert(sizeof(struct flow) == 32, "two flows a cache line");

/*
 * The closed loop asks on every flow at once while the link holds that many.
 * With more flows FLOOD_TURNS of them are asked at a time: an answer sets off
 * the next flow's request, in an order that visits all and has nothing to do
 * with memory's.
 */
#define FLOOD_WINDOW 1024u
#define FLOOD_TURNS  256u

/* An answer is acknowledged by the flow's next request, or after this time. */
#define FLOOD_ACK_MS 40
#define FLOOD_ACKS   (1u << 20)
struct flood_ack {
	uint32_t index;
	uint32_t due_ms;
};

/* A datagram that takes longer is lost: flood_udp.c. A power of two. */
#define FLOOD_PERIODS 4u

struct flood {
	/* options */
	struct glue_link link;
	enum flood_mode mode;
	uint32_t conns, size;
	double seconds, warmup_s;
	uint64_t rate; /* requests a second; 0: a closed loop */
	int lcore;
	bool huge_off;
	bool with_syns;		       /* and a flood of SYNs while measuring */
	uint32_t server_ip, client_ip; /* host byte order; the first of ours */
	uint16_t server_port;
	FILE *json; /* NULL: stdout */

	/* state */
	struct glue_port *port;
	struct flow *flows;
	uint8_t server_mac[6];
	bool mac_known;
	int64_t now_ns;
	uint32_t now_ms;
	uint32_t open, opening, next_open;
	uint32_t next_ask; /* counter of the closed loop's turns over the flows
			    */
	bool measuring, closing;
	double step_ns;	  /* between two requests of the open loop */
	int64_t first_ns; /* when its first is due */
	uint64_t next_due;
	uint32_t unsent[FLOOD_WINDOW]; /* requests that found no frame */
	uint32_t n_unsent;
	struct flood_ack *acks; /* a ring of FLOOD_ACKS */
	uint32_t ack_head, ack_tail;
	uint32_t *dirty; /* flows that have an ACK to send, in bulk */
	uint32_t n_dirty, bulk_window;
	uint32_t scan; /* where the search for lost segments goes on */
	uint32_t in_flight[FLOOD_PERIODS]; /* datagrams sent in the last periods
					    */
	uint32_t to_send;		   /* new ones */
	uint8_t period;
	int64_t period_ns; /* when it began */

	/* results */
	struct hist latency;
	uint64_t answers, bytes, resent, wrong, resets, unexpected, syns;
	int64_t open_ns, busy_ns, measured_ns, last_ns;
};

/* The source address and port of a frame select its flow. */
#define FLOOD_PORTS_BITS 15
#define FLOOD_PORT_FIRST 16384u

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };
enum { ETH = 14, IP = 20, TCP = 20, HEAD = ETH + IP + TCP };

/* ---- flood_bulk.c ---- */

/* False: no memory. */
bool flood_bulk_init(struct flood *fl);
void flood_bulk_start(struct flood *fl, uint32_t index);
/* A segment of an open flow: its TCP header and data. */
void flood_bulk_take(struct flood *fl, uint32_t index, const uint8_t *tcp,
		     const uint8_t *data, unsigned len);
/* Sends data up to the window, and ACKs, after a burst. */
void flood_bulk_turn(struct flood *fl);

/* ---- flood_udp.c ---- */

/* Lets half a window of datagrams leave. */
void flood_udp_start(struct flood *fl);
/* A turn: sends received answers as requests; replaces what is lost. */
void flood_udp_turn(struct flood *fl);

/* ---- flood_tcp.c ---- */

/*
 * Builds a segment without options and payload; returns NULL if no frame is
 * free.
 */
struct glue_frame *flood_segment(struct flood *fl, uint32_t index,
				 uint8_t flags, unsigned options, unsigned len);
/*
 * Sends a segment without a payload. If no frame is free, the resend does it
 * later.
 */
void flood_send_bare(struct flood *fl, uint32_t index, uint8_t flags);

/* Begins a connection; the flow is closed. */
void flood_connect(struct flood *fl, uint32_t index);
/* Sends a request whose latency counts from due_ns; the flow is ready. */
void flood_ask(struct flood *fl, uint32_t index, int64_t due_ns);
/* Handles a received frame. */
void flood_input(struct flood *fl, const struct glue_frame *frame);
/* Sends a request on the next flow. */
void flood_ask_next(struct flood *fl);
/* Sends requests that found no frame before, and due ACKs. */
void flood_send_late(struct flood *fl);
/* Resends unanswered requests after RESEND_MS, a few flows per call. */
void flood_resend(struct flood *fl);
/* Sends frames that only a forwarder would send back. */
void flood_bounce(struct flood *fl, unsigned frames);
/* Sends SYNs without ACKs, as many as the port accepts. */
void flood_syns(struct flood *fl);
/* Asks for the server's MAC. */
void flood_arp(struct flood *fl);
/* Resets a connection, so that the server can forget it. */
void flood_reset(struct flood *fl, uint32_t index);
