/*
 * BBR's state: delivery rate samples, the model of the path, the state machine.
 * Names are those of draft-ietf-ccwg-bbr-06, whose sections the comments cite.
 * Amounts are bytes, rates bytes a second.
 *
 * The state is allocated with the recovery state of a connection that has this
 * controller, and so exists only while the connection moves data.
 */
#pragma once

#include "netstack/recovery/recovery_priv.h"

/* ---- rate.c: delivery rate samples, section 4.1 ---- */

/*
 * The delivery state when a segment was sent. A mark covers all segments sent
 * between its time and that of the next mark. A segment's time finds its mark,
 * so segments store nothing more. Marks last for four round trips.
 */
struct net_rate_mark {
	uint64_t delivered, lost;
	uint32_t sent_us;
	uint32_t delivered_us, first_us;
	uint32_t in_flight : 31; /* after the last segment it covers */
	uint32_t app_limited : 1;
};

#define NET_RATE_MARKS 128u
#define NET_RATE_FINE  32u /* marks per round trip, at most */

struct net_rate {
	uint64_t delivered, lost; /* bytes, since the recovery state was made */
	uint64_t app_limited_to;  /* the application is the limit until this
				     is `delivered`; 0: it is not */
	uint32_t delivered_us;	  /* when the newest segment was delivered */
	uint32_t first_us;	  /* when that segment was sent */
	unsigned first, n;	  /* of marks, a ring */
	struct net_rate_mark marks[NET_RATE_MARKS];
};

/* The sample of an ACK, section 4.1.2.1: RS in the draft. */
struct net_rate_sample {
	double rate;		  /* bytes a second; 0: no sample */
	uint64_t delivered;	  /* during the interval of the sample */
	uint64_t prior_delivered; /* before it */
	uint64_t acked, newly_lost;
	uint64_t lost; /* since the newest segment was sent */
	uint32_t in_flight;
	bool app_limited;
	bool has_mark; /* prior_delivered and what follows it are known */
};

/* The rate samples of a connection whose controller takes them, or NULL. */
struct net_rate *net_rate_of(const struct net_conn *conn);
void net_rate_begin(struct net_rate *rate);
/* Called when bytes have left; the pipe includes them already. */
void net_rate_sent(struct net_conn *conn, uint32_t bytes);
/* Called when all queued data has left: the application may be the limit. */
void net_rate_app_limited(struct net_conn *conn);
void net_rate_sample(struct net_conn *conn, const struct net_ack *ack,
		     struct net_rate_sample *out);
/* The mark of a segment sent at sent_us; NULL: it was dropped. */
const struct net_rate_mark *net_rate_mark_at(const struct net_rate *rate,
					     uint32_t sent_us);

/* ---- bbr_model.c, bbr.c ---- */

enum net_bbr_state {
	BBR_STARTUP,
	BBR_DRAIN,
	BBR_DOWN, /* the first of ProbeBW's four */
	BBR_CRUISE,
	BBR_REFILL,
	BBR_UP,
	BBR_PROBE_RTT,
};

enum net_bbr_acks {
	BBR_ACKS_INIT,
	BBR_ACKS_REFILLING,
	BBR_ACKS_STARTING, /* still for data sent before the probe */
	BBR_ACKS_FEEDBACK,
	BBR_ACKS_STOPPING,
};

#define BBR_INFINITE   1e18
#define BBR_BETA       0.7
#define BBR_THRESH     0.02 /* tolerated loss, as a part of in_flight */
#define BBR_LEAST_LOST 3u   /* segments: fewer losses may be chance */
#define BBR_LOSS_SEGS  300u /* loss is judged over this many, or a round */
#define BBR_MIN_SEGS   4u
#define BBR_RTT_ROUNDS 10u

struct net_bbr {
	struct net_rate rate;
	struct net_rate_sample rs; /* of the ACK at hand */
	enum net_bbr_state state;
	enum net_bbr_acks acks;
	unsigned mss;
	bool sack;   /* without SACK, a peer reports one loss a round */
	double pipe; /* C.inflight, after the ACK at hand */
	double pacing_rate, pacing_gain, cwnd_gain;

	/* rounds, 5.5.1 */
	uint64_t next_round_delivered, round_count;
	unsigned rounds_since_probe;
	bool round_start, cwnd_limited; /* the latter: in this round */

	/* bandwidth, 5.5.2: the maximum of this cycle and of the last one */
	double bw_cycle[2], max_bw, bw;
	/* a plateau, 5.3.1.2 */
	double full_bw;
	unsigned full_bw_count;
	bool full_bw_now, full_bw_reached;

	/* round trips, 5.5.7, 5.3.4 */
	uint32_t min_rtt_us, min_rtt_stamp_us; /* 0: none yet */
	uint32_t probe_rtt_us, probe_rtt_stamp_us;
	uint32_t probe_rtt_done_us;
	bool probe_rtt_expired, probe_rtt_timed, probe_rtt_round_done;
	bool idle_restart;

	/* aggregation of ACKs, 5.5.9: the maxima of two periods of rounds */
	uint32_t extra_start_us;
	double extra_delivered, extra_acked[2];
	uint64_t extra_round;

	/* loss, 5.5.10 */
	double bw_latest, inflight_latest;
	double bw_short, inflight_short, inflight_long;
	uint64_t loss_round_delivered;
	bool loss_round_start, loss_in_round;
	uint64_t ecn_round; /* the last round with a mark; 0: none */
	uint64_t judged_delivered, judged_lost; /* of `rate`, judged so far */
	unsigned lost_ranges;			/* in this round */
	uint32_t lost_end;
	uint64_t lost_before; /* rate.lost at the last ACK */

	/* probing, 5.3.3 */
	uint32_t cycle_us, probe_wait_us;
	uint64_t drain_round;
	unsigned up_rounds;
	double up_acked, up_acked_per_inc;
	bool probe_sample, prev_too_high, prev_precautionary;

	double prior_cwnd;
	/* values to restore, 5.5.11 */
	enum net_bbr_state undo_state;
	double undo_bw_short, undo_inflight_short, undo_inflight_long;
};
_Static_assert(sizeof(struct net_bbr) <= 4608, "a class of mem/slab.c");

static inline struct net_bbr *net_bbr_of(const struct net_conn *conn)
{
	return net_recovery_of(conn)->bbr;
}

static inline bool net_bbr_probes_bw(const struct net_bbr *bbr)
{
	return bbr->state >= BBR_DOWN && bbr->state <= BBR_UP;
}

/* ---- bbr_model.c: the model of the path ---- */

void net_bbr_model_begin(struct net_bbr *bbr, uint32_t srtt_us);
void net_bbr_reset_full_bw(struct net_bbr *bbr);
void net_bbr_reset_congestion(struct net_bbr *bbr);
void net_bbr_reset_short_term(struct net_bbr *bbr);
void net_bbr_start_round(struct net_bbr *bbr);
/* UpdateLatestDeliverySignals() to CheckFullBWReached(), 5.2.3 */
void net_bbr_model_before(struct net_bbr *bbr, double cwnd);
void net_bbr_update_min_rtt(struct net_bbr *bbr, const struct net_ack *ack);
/* AdvanceLatestDeliverySignals(), BoundBWForModel() */
void net_bbr_model_after(struct net_bbr *bbr);
void net_bbr_advance_max_bw(struct net_bbr *bbr);
/* The bandwidth-delay product times gain; and at the bandwidth bw, rounded up
 * to what the path needs: Inflight(). */
double net_bbr_bdp(const struct net_bbr *bbr, double gain);
double net_bbr_inflight(const struct net_bbr *bbr, double bw);
double net_bbr_max_inflight(const struct net_bbr *bbr);
double net_bbr_with_headroom(const struct net_bbr *bbr);
/*
 * Returns whether `lost` bytes of `of` indicate congestion: more than 2 %, and
 * not a few losses that may be chance. Without SACK any loss does.
 */
bool net_bbr_is_too_much(const struct net_bbr *bbr, double lost, double of);
/* Returns whether the current sample shows such a loss. */
bool net_bbr_too_high(const struct net_bbr *bbr);
