/*
 * Congestion control: what a controller is to the rest of recovery/.
 *
 * A controller works on the recovery state of a connection (struct
 * net_recovery). It sets rec->cwnd, the bytes that may be in flight, and the
 * rate at which they may leave. A connection without recovery state is in slow
 * start, whichever controller it has been given: it has lost nothing and has
 * not filled a long path.
 */
#pragma once

#include "netstack/recovery/recovery.h"

struct net_ack;
struct net_recovery;

/* All functions are required unless marked, and need recovery state. */
struct net_cc {
	const char *name;
	uint8_t burst;	    /* segments that may leave at once after a pause */
	uint8_t flow_burst; /* the same while data is under way */
	uint8_t buffer;	    /* windows that the send buffer holds */
	bool models;	    /* it remembers a path for a second of rest */
	/* Recovery state was made, or the controller changed. False: no
	 * memory. */
	bool (*begin)(struct net_conn *conn);
	void (*end)(struct net_conn *conn); /* optional */
	/* A repair begins: of what, rec->state tells from then on. */
	void (*on_loss)(struct net_conn *conn);
	/* The same for each segment, before; optional. */
	void (*on_lost)(struct net_recovery *rec, const struct net_seg *seg);
	/* ECN-Echo, once a window, while nothing is lost. */
	void (*on_ecn)(struct net_conn *conn);
	/* A timeout, after on_loss(); rec->cwnd is one segment. Optional. */
	void (*on_rto)(struct net_conn *conn);
	/* Each ACK, and each time segments are found lost without one. */
	void (*on_ack)(struct net_conn *conn, const struct net_ack *ack);
	/* What was lost is repaired; rec->state still tells how. */
	void (*on_recovered)(struct net_conn *conn);
	/* Nothing had been lost. */
	void (*on_undo)(struct net_conn *conn);
	/* The window after so many timeouts' time of silence. */
	void (*on_idle)(struct net_conn *conn, uint32_t timeouts);
	/* Something leaves while nothing is under way; optional. */
	void (*on_restart)(struct net_conn *conn);
	/* Bytes a second; 0: as fast as the window allows. */
	double (*pacing_rate)(const struct net_conn *conn);
};

extern const struct net_cc net_cc_cubic, net_cc_reno, net_cc_bbr;

/* ---- cc.c ---- */

/* The controller that a connection has been given. */
const struct net_cc *net_cc_of(const struct net_conn *conn);
/* Starts the controller of new recovery state; CUBIC if memory is short. */
void net_cc_begin(struct net_conn *conn);
void net_cc_end(struct net_conn *conn);

/* ---- cwnd.c: what controllers that are told by loss have in common ---- */

/* Begins a cut to so many bytes; what there was is kept for an undo. */
void net_cwnd_cut(struct net_conn *conn, uint32_t ssthresh);
/* Slow start; `avoid` is called beyond ssthresh for bytes acknowledged. */
void net_cwnd_on_ack(struct net_conn *conn, const struct net_ack *ack,
		     void (*avoid)(struct net_conn *conn, uint32_t acked));
/* As for a loss that needs no repair (RFC 3168 6.1.2, RFC 9438 4.6). */
void net_cwnd_on_ecn(struct net_conn *conn);
void net_cwnd_on_recovered(struct net_conn *conn);
void net_cwnd_on_undo(struct net_conn *conn);
void net_cwnd_on_idle(struct net_conn *conn, uint32_t timeouts);
double net_cwnd_pacing_rate(const struct net_conn *conn);

/* ---- prr.c: sending while repairing, RFC 6937 ---- */

/* Begins a repair of so many bytes in flight. */
void net_prr_begin(struct net_recovery *rec, uint32_t flight);
void net_prr_on_ack(struct net_conn *conn, const struct net_ack *ack);

/* ---- hystart.c: the end of slow start, RFC 9406 and trains of ACKs ---- */

struct net_hystart {
	uint32_t end; /* the round lasts until this is acknowledged */
	/* round trips, the least of a round; 0: none yet */
	uint32_t last_us, least_us, base_us;
	uint32_t begun_us, acked_us; /* the round, its last ACK of the train */
	uint8_t samples;
	uint8_t rounds; /* of conservative slow start */
	bool begun, conservative, train;
};

/*
 * Of bytes acknowledged in slow start, how many the window grows by. Sets
 * ssthresh when slow start is over.
 */
uint32_t net_hystart_on_ack(struct net_conn *conn, const struct net_ack *ack);

/* ---- pacing.c: when it may leave ---- */

struct net_pacing {
	int64_t at_ns;	  /* up to which the rate has been used */
	int64_t due_ns;	  /* if held: when there is room for more */
	bool held;	  /* what could leave by the windows waits for it */
	uint32_t late_us; /* when that last ended */
};

/* All that may be sent after a pause may be sent. */
void net_pacing_begin(struct net_conn *conn);
/* What net_set_pacing_rate() allows, as it is kept; 0: no limit. */
double net_pacing_cap(const struct net_conn *conn);
/* Bytes a second; 0: it is not paced. */
double net_pacing_rate(const struct net_conn *conn);
/* Bytes that may leave now; UINT32_MAX: as many as you like. */
uint32_t net_pacing_room(struct net_conn *conn);
void net_pacing_sent(struct net_conn *conn, uint32_t bytes);
/* So many bytes wait, the first segment of them so long: arms the timer. */
void net_pacing_hold(struct net_conn *conn, uint32_t first, uint32_t bytes);
void net_pacing_release(struct net_conn *conn);
/* When a pause begins to earn no more, ns. */
int64_t net_pacing_rested_ns(const struct net_conn *conn);
