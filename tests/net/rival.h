/*
 * A competing sender on the path of a bottleneck: a model of a kernel's BBR
 * version 1 (draft-cardwell-iccrg-bbr-congestion-control-00) or CUBIC with the
 * kernel's HyStart. It shares no code with the stack. Every packet has its own
 * ACK. Packets keep their order, so a packet is lost when a later one's ACK
 * comes first.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RIVAL_BYTES  1000u  /* of a packet */
#define RIVAL_FLIGHT 65536u /* packets in flight at most */

enum rival_kind { RIVAL_BBR1, RIVAL_CUBIC };

struct rival_packet {
	int64_t sent_ns, first_ns, delivered_ns; /* as of its sending */
	uint64_t delivered;
};

struct rival {
	enum rival_kind kind;
	uint64_t delivered; /* packets */
	uint64_t lost, next, oldest;
	uint64_t seed;
	double cwnd, ssthresh, pacing; /* packets; packets a second, 0: none */
	int64_t min_rtt_ns, min_rtt_at_ns;
	int64_t send_at_ns; /* pacing allows none sooner */
	int64_t first_ns, delivered_ns;
	bool recovers;
	uint64_t recovers_to; /* the first packet beyond */
	uint64_t round_ends;  /* `delivered` at its sending */
	unsigned round;
	struct {
		enum { UP_FAST, DRAIN, CYCLE, SHORT } state;
		double most[10], full; /* bandwidth, by round */
		unsigned plateau, phase;
		int64_t phase_ns, done_ns;
		double prior_cwnd;
		bool conserves, filled;
	} bbr;
	struct {
		double w_max, k, w_est;
		int64_t epoch_ns, round_ns, train_ns, srtt_ns;
		int64_t round_rtt_ns;
		unsigned samples;
		uint64_t round_to;
	} cubic;
	struct rival_packet flight[RIVAL_FLIGHT];
};

void rival_begin(struct rival *r, enum rival_kind kind, unsigned seed,
		 int64_t now_ns);
bool rival_may_send(const struct rival *r, int64_t now_ns);
/* Sends a packet; returns its number. */
uint64_t rival_send(struct rival *r, int64_t now_ns);
/* Handles the ACK of that packet. */
void rival_acked(struct rival *r, uint64_t number, int64_t now_ns);
