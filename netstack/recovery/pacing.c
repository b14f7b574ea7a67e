/*
 * Pacing: a connection with recovery state sends no faster than its controller
 * or net_set_pacing_rate() allows.
 *
 * It is a leaky bucket: each byte advances at_ns by the time that it takes at
 * the rate, and at_ns lies behind the clock by at most a burst. So over any
 * interval no more than the rate and one burst leaves, and only time that was
 * not used before allows a burst. The connection's timer wakes waiting data,
 * half a quantum at a time; a late wake-up loses nothing.
 *
 * If the round trip is shorter than a quantum's time, the window is used up
 * first, and no data ever waits for the timer.
 */
#include "netstack/recovery/recovery_priv.h"

#define QUANTUM_NS  INT64_C(1000000) /* of the rate may leave at once */
#define QUANTUM_MIN 2u		     /* segments, if that is more */
#define WAKE_MAX    32768.0	     /* bytes that a wake-up waits for */

/* A rate in 16 bits: eleven bits of it, and how often they are doubled. */
#define CAP_BITS 11u

void net_pacing_set_cap(struct net_conn *conn, uint64_t bytes_per_s)
{
	unsigned shift = 0;

	if (bytes_per_s == 0 || bytes_per_s >= UINT64_C(1) << 42) {
		conn->pcb.rate_cap = 0;
		conn->paced = false;
		return;
	}
	while (bytes_per_s >> shift >= 1u << CAP_BITS)
		shift++;
	conn->pcb.rate_cap =
		(uint16_t)(shift << CAP_BITS | (bytes_per_s >> shift));
	conn->paced = true;
}

double net_pacing_cap(const struct net_conn *conn)
{
	unsigned low = conn->pcb.rate_cap & ((1u << CAP_BITS) - 1);

	return (double)((uint64_t)low << (conn->pcb.rate_cap >> CAP_BITS));
}

double net_pacing_rate(const struct net_conn *conn)
{
	const struct net_recovery *rec = net_recovery_of(conn);
	double rate = rec ? rec->cc->pacing_rate(conn) : 0;

	if (conn->paced && (rate == 0 || net_pacing_cap(conn) < rate))
		rate = net_pacing_cap(conn);
	return rate;
}

/* `segs` segments, or what the rate allows in a quantum, if that is more. */
static double at_once(const struct net_conn *conn, double rate, unsigned segs)
{
	double least = segs * conn->pcb.mss;
	double bytes = rate * QUANTUM_NS / 1e9;

	return bytes > least ? bytes : least;
}

/* Bytes that may leave at once after a pause. */
static double burst_bytes(const struct net_conn *conn, double rate)
{
	return at_once(conn, rate,
		       conn->paced ? QUANTUM_MIN
				   : net_recovery_of(conn)->cc->burst);
}

/*
 * Bytes that may leave at once while data is in flight and nothing is lost.
 * Only segments that waited for the pace make up for a wake-up that was late;
 * those that waited for an ACK do not.
 */
static double burst_now(const struct net_conn *conn, double rate)
{
	const struct net_recovery *rec = net_recovery_of(conn);

	if (conn->paced || !conn->pcb.unacked ||
	    rec->state != NET_RECOVERY_OPEN || rec->pacing.held ||
	    rec->pacing.late_us == net_now_us())
		return burst_bytes(conn, rate);
	return at_once(conn, rate, rec->cc->flow_burst);
}

/* Rounded up, so never too short. */
static int64_t time_of(double bytes, double rate)
{
	return (int64_t)(bytes * 1e9 / rate) + 1;
}

void net_pacing_begin(struct net_conn *conn)
{
	net_recovery_of(conn)->pacing =
		(struct net_pacing){.at_ns = INT64_MIN / 2};
}

int64_t net_pacing_rested_ns(const struct net_conn *conn)
{
	double rate = net_pacing_rate(conn);

	if (rate == 0)
		return 0;
	return net_recovery_of(conn)->pacing.at_ns +
	       time_of(burst_bytes(conn, rate), rate);
}

uint32_t net_pacing_room(struct net_conn *conn)
{
	struct net_pacing *pacing = &net_recovery_of(conn)->pacing;
	int64_t now_ns = net_here()->now_ns, least_ns;
	double rate = net_pacing_rate(conn), room;

	if (rate == 0)
		return UINT32_MAX;
	least_ns = now_ns - time_of(burst_now(conn, rate), rate);
	if (pacing->at_ns < least_ns)
		pacing->at_ns = least_ns;
	if (pacing->at_ns >= now_ns)
		return 0;
	room = (double)(now_ns - pacing->at_ns) * rate / 1e9;
	return room < 1e9 ? (uint32_t)(room + 1e-3) : 1000000000u;
}

void net_pacing_sent(struct net_conn *conn, uint32_t bytes)
{
	struct net_pacing *pacing = &net_recovery_of(conn)->pacing;
	double rate = net_pacing_rate(conn);
	int64_t most_ns;

	if (rate == 0)
		return;
	/* Segments that left unasked, as probes do, delay later ones, but not
	 * by more than a burst's time. */
	most_ns = net_here()->now_ns + time_of(burst_bytes(conn, rate), rate);
	pacing->at_ns += time_of(bytes, rate);
	pacing->at_ns = LWIP_MIN(pacing->at_ns, most_ns);
}

void net_pacing_hold(struct net_conn *conn, uint32_t first, uint32_t bytes)
{
	struct net_pacing *pacing = &net_recovery_of(conn)->pacing;
	double rate = net_pacing_rate(conn), wait;

	if (rate == 0)
		return;
	wait = burst_bytes(conn, rate) / 2;
	if (wait > rate * QUANTUM_NS / 2e9)
		wait = rate * QUANTUM_NS / 2e9;
	if (wait > WAKE_MAX)
		wait = WAKE_MAX;
	if (wait > bytes)
		wait = bytes;
	if (wait < first)
		wait = first;
	pacing->held = true;
	pacing->due_ns = pacing->at_ns + time_of(wait, rate);
	net_timer_by(conn, pacing->due_ns);
}

void net_pacing_release(struct net_conn *conn)
{
	struct net_pacing *pacing = &net_recovery_of(conn)->pacing;

	if (pacing->held)
		pacing->late_us = net_now_us();
	pacing->held = false;
}

bool net_pacing_holds(const struct net_conn *conn)
{
	return conn->has_recovery && conn->recovery->pacing.held;
}
