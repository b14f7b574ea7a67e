/*
 * The congestion window of a connection that has lost something: CUBIC (RFC
 * 9438), and PRR (RFC 6937) while it repairs. Before the first loss lwIP's own
 * slow start serves.
 */
#include "netstack/recovery/recovery_priv.h"

#define SND_BUF_MAX (4u << 20)
#define BETA	    0.7f
#define C	    0.4f
#define ALPHA	    (3.0f * (1.0f - BETA) / (1.0f + BETA)) /* RFC 9438 4.3 */
#define UNIT	    1.024e-6f				   /* seconds */

/* Newton's method: from above it only falls, and ends within 2^-20 or so. */
static float cube_root(float a)
{
	float x = a > 1.0f ? a : 1.0f;

	if (a <= 0.0f)
		return 0.0f;
	for (unsigned i = 0; i < 40; i++) {
		float next = (2.0f * x + a / (x * x)) / 3.0f;

		if (x - next < x * 1e-6f)
			break;
		x = next;
	}
	return x;
}

void net_cwnd_reduce(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct net_recovery *rec = net_recovery_of(conn);
	float segs = (float)rec->cwnd / pcb->mss;
	uint32_t least = 2u * pcb->mss;

	rec->undo_cwnd = rec->cwnd;
	rec->undo_ssthresh = pcb->ssthresh;
	rec->undo_left = 0;
	/* RFC 9438 4.7, fast convergence. */
	rec->w_max = segs < rec->w_max ? segs * (1.0f + BETA) / 2.0f : segs;
	rec->in_epoch = false;
	rec->event_us = net_now_us();
	pcb->ssthresh = (uint32_t)((float)rec->cwnd * BETA);
	if (pcb->ssthresh < least)
		pcb->ssthresh = least;
}

void net_cwnd_prr_begin(struct net_recovery *rec, uint32_t flight)
{
	rec->flight = flight ? flight : 1;
	rec->prr_delivered = rec->prr_out = 0;
}

void net_cwnd_prr(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);
	uint32_t pipe = net_recovery_pipe(conn, ack->una);
	uint32_t ssthresh = conn->pcb.ssthresh, mss = conn->pcb.mss;
	int64_t send;

	rec->prr_delivered += ack->delivered;
	if (pipe > ssthresh) {
		send = ((int64_t)rec->prr_delivered * ssthresh + rec->flight -
			1) / rec->flight -
		       rec->prr_out;
	} else {
		send = (int64_t)rec->prr_delivered - rec->prr_out;
		if (send < ack->delivered)
			send = ack->delivered;
		send += mss;
		if (send > (int64_t)ssthresh - pipe)
			send = (int64_t)ssthresh - pipe;
	}
	if (send < mss && rec->prr_out == 0)
		send = mss; /* the fast retransmit itself */
	rec->cwnd = pipe + (send > 0 ? (uint32_t)send : 0);
	if (rec->cwnd < mss)
		rec->cwnd = mss;
}

/* RFC 9438 4.2; where the curve begins. */
static void begin_epoch(struct net_recovery *rec, float segs)
{
	rec->in_epoch = true;
	rec->epoch_us = net_now_us();
	rec->w_est = segs;
	rec->origin = segs < rec->w_max ? rec->w_max : segs;
	rec->k = cube_root((rec->origin - segs) / C);
}

static float curve(const struct net_recovery *rec, float s)
{
	float t = s - rec->k;

	return C * t * t * t + rec->origin;
}

static void grow_cubic(struct net_conn *conn, uint32_t acked)
{
	struct net_recovery *rec = net_recovery_of(conn);
	float mss = conn->pcb.mss, segs = (float)rec->cwnd / mss;
	float n = (float)acked / mss, now_s, target;

	if (!rec->in_epoch)
		begin_epoch(rec, segs);
	now_s = (float)(net_now_us() - rec->epoch_us) * UNIT;
	rec->w_est += (rec->w_est < rec->w_max ? ALPHA : 1.0f) * n / segs;
	target = curve(rec, now_s + (float)(conn->srtt_us >> 3) * UNIT);
	if (target > 1.5f * segs)
		target = 1.5f * segs;
	if (curve(rec, now_s) < rec->w_est)
		segs = segs < rec->w_est ? rec->w_est : segs; /* 4.3 */
	else if (target > segs)
		segs += (target - segs) / segs * n;
	rec->cwnd = (uint32_t)(segs * mss);
}

void net_cwnd_grow(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);
	uint32_t ssthresh = conn->pcb.ssthresh;

	if (ack->acked == 0)
		return;
	if (!ack->limited) { /* RFC 9438 5.8: the curve waits meanwhile */
		rec->epoch_us += net_now_us() - ack->since_us;
		return;
	}
	if (rec->cwnd < ssthresh) {
		rec->cwnd += LWIP_MIN(ack->acked, ssthresh - rec->cwnd);
		return;
	}
	if (rec->cwnd < UINT32_C(1) << 30)
		grow_cubic(conn, ack->acked);
}

void net_cwnd_undo(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (rec->reorder_steps < 8)
		rec->reorder_steps++; /* RFC 8985 6.2: more patience */
	if (rec->undo_left == 0 || --rec->undo_left || !TAILQ_EMPTY(&rec->lost))
		return;
	rec->state = NET_RECOVERY_OPEN;
	if (rec->cwnd < rec->undo_cwnd)
		rec->cwnd = rec->undo_cwnd;
	conn->pcb.ssthresh = rec->undo_ssthresh;
	rec->w_max = (float)rec->cwnd / conn->pcb.mss;
	rec->in_epoch = false;
}

/* RFC 5681 4.1: after an idle spell the window is the initial one again. */
void net_recovery_restart(struct net_conn *conn)
{
	uint32_t window = 10u * conn->pcb.mss;

	if ((tcp_ticks - conn->pcb.tmr) * (uint64_t)(NET_TICK_NS >> 10) <
	    net_rtt_rto_us(conn))
		return;
	if (conn->repairing && conn->recovery->cwnd > window)
		conn->recovery->cwnd = window;
	if (conn->pcb.cwnd > window)
		conn->pcb.cwnd = window;
}

/*
 * The send buffer follows the congestion window, as a kernel's does: two of
 * them, so that one can be written while the other is under way. What lwIP
 * counts down is the room that is left.
 */
void net_cwnd_grow_buffer(struct tcp_pcb *pcb, uint32_t cwnd)
{
	uint32_t want = LWIP_MIN(2 * cwnd, SND_BUF_MAX);
	uint32_t has = pcb->snd_buf + (pcb->snd_lbb - pcb->lastack);

	if (has < want)
		pcb->snd_buf += want - has;
}
