/*
 * Congestion control: the interface between a controller and recovery/.
 *
 * A controller works on the recovery state of a connection (struct
 * net_recovery). It sets rec->cwnd, the bytes that may be in flight, and the
 * rate at which they may leave. A connection without recovery state is in slow
 * start, whatever its controller: it has lost nothing and has not filled a long
 * path.
 */
#pragma once

#include "netstack/recovery/recovery.h"

struct net_ack;
struct net_recovery;

/* All functions are required unless marked, and need recovery state. */
struct net_cc {
	const char *name;
	uint8_t burst;	    /* segments that may leave at once after a pause */
	uint8_t flow_burst; /* segments at once while data is in flight */
	uint8_t buffer;	    /* send buffer, in windows */
	bool models;	    /* it keeps its model through a second of idling */
	/* Called when recovery state was created or the controller changed.
	 * Returns false without memory. */
	bool (*begin)(struct net_conn *conn);
	void (*end)(struct net_conn *conn); /* optional */
	/* A repair begins; then rec->state becomes its kind. */
	void (*on_loss)(struct net_conn *conn);
	/* A segment is found lost, before on_loss(). Optional. */
	void (*on_lost)(struct net_recovery *rec, const struct net_seg *seg);
	/* ECN-Echo has arrived, once a window, while nothing is lost. */
	void (*on_ecn)(struct net_conn *conn);
	/* A timeout, after on_loss(); rec->cwnd is one segment. Optional. */
	void (*on_rto)(struct net_conn *conn);
	/* An ACK has arrived, or segments were found lost without one. */
	void (*on_ack)(struct net_conn *conn, const struct net_ack *ack);
	/* The repair is over; rec->state is still its kind. */
	void (*on_recovered)(struct net_conn *conn);
	/* The repair was spurious: nothing had been lost. */
	void (*on_undo)(struct net_conn *conn);
	/* Sets the window after an idle time of this number of RTOs. */
	void (*on_idle)(struct net_conn *conn, uint32_t timeouts);
	/* Data leaves while nothing is in flight. Optional. */
	void (*on_restart)(struct net_conn *conn);
	/* Bytes a second; 0: as fast as the window allows. */
	double (*pacing_rate)(const struct net_conn *conn);
};

extern const struct net_cc net_cc_cubic, net_cc_reno, net_cc_bbr;

/* ---- cc.c ---- */

/* The controller of a connection. */
const struct net_cc *net_cc_of(const struct net_conn *conn);
/* Starts the controller of new recovery state; CUBIC if memory is short. */
void net_cc_begin(struct net_conn *conn);
void net_cc_end(struct net_conn *conn);

/* ---- cwnd.c: functions of the loss-based controllers ---- */

/* Sets ssthresh in bytes, at least two segments, before cwnd is reduced. */
void net_cwnd_cut(struct net_conn *conn, uint32_t ssthresh);
/*
 * Grows cwnd for an ACK: in slow start, or beyond ssthresh by `avoid`, called
 * with the bytes acknowledged. In a repair reduces cwnd as RFC 6937.
 */
void net_cwnd_on_ack(struct net_conn *conn, const struct net_ack *ack,
		     void (*avoid)(struct net_conn *conn, uint32_t acked));
/*
 * Cuts the window as for a loss, without a repair (RFC 3168 6.1.2, RFC 9438
 * 4.6).
 */
void net_cwnd_on_ecn(struct net_conn *conn);
void net_cwnd_on_recovered(struct net_conn *conn);
void net_cwnd_on_undo(struct net_conn *conn);
void net_cwnd_on_idle(struct net_conn *conn, uint32_t timeouts);
double net_cwnd_pacing_rate(const struct net_conn *conn);
/* Begins the proportional rate reduction (RFC 6937) of `flight` bytes. */
void net_prr_begin(struct net_recovery *rec, uint32_t flight);

/* ---- hystart.c: the end of slow start, RFC 9406 and trains of ACKs ---- */

struct net_hystart {
	uint32_t end; /* the round ends when this is acknowledged */
	/* minimum RTT of a round; 0: none yet */
	uint32_t last_us, least_us, base_us;
	/* when the round began, and when the last ACK of its train arrived */
	uint32_t begun_us, acked_us;
	uint8_t samples;
	uint8_t rounds; /* of conservative slow start */
	bool begun, conservative, train;
};

/*
 * Returns by how many bytes the window grows for an ACK in slow start. Sets
 * ssthresh when slow start is over.
 */
uint32_t net_hystart_on_ack(struct net_conn *conn, const struct net_ack *ack);

/* ---- pacing.c: when data may leave ---- */

struct net_pacing {
	int64_t at_ns;	  /* time up to which the rate has been used */
	int64_t due_ns;	  /* if held: when more may be sent */
	bool held;	  /* data that the windows allow waits */
	uint32_t late_us; /* when the last wait ended */
};

/* Allows the full burst that may be sent after a pause. */
void net_pacing_begin(struct net_conn *conn);
/* The limit of net_set_pacing_rate() as stored, bytes a second; 0: none. */
double net_pacing_cap(const struct net_conn *conn);
/* Bytes a second; 0: it is not paced. */
double net_pacing_rate(const struct net_conn *conn);
/* Bytes that may leave now; UINT32_MAX: no limit. */
uint32_t net_pacing_room(struct net_conn *conn);
void net_pacing_sent(struct net_conn *conn, uint32_t bytes);
/*
 * Arms the timer for `bytes` that wait, `first` of them in the first segment.
 */
void net_pacing_hold(struct net_conn *conn, uint32_t first, uint32_t bytes);
void net_pacing_release(struct net_conn *conn); /* ends the hold */
/*
 * Returns when the pause will allow the largest burst, ns; 0: it is not paced.
 */
int64_t net_pacing_rested_ns(const struct net_conn *conn);
