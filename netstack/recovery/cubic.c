/*
 * CUBIC (RFC 9438): beyond slow start the window follows a cubic curve of the
 * time since the last loss, around the window at which that came. In segments
 * and seconds.
 */
#include "netstack/recovery/recovery_priv.h"

#define BETA  0.7f
#define C     0.4f
#define ALPHA (3.0f * (1.0f - BETA) / (1.0f + BETA)) /* RFC 9438 4.3 */
#define UNIT  1.024e-6f				     /* seconds */

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

static bool begin(struct net_conn *conn)
{
	net_recovery_of(conn)->cubic = (struct net_cubic){0};
	return true;
}

static void on_loss(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_cubic *cubic = &rec->cubic;
	float segs = (float)rec->cwnd / conn->pcb.mss;

	/* RFC 9438 4.7, fast convergence. */
	cubic->w_max = segs < cubic->w_max ? segs * (1.0f + BETA) / 2.0f : segs;
	cubic->in_epoch = false;
	net_cwnd_cut(conn, (uint32_t)((float)rec->cwnd * BETA));
}

/* RFC 9438 4.2; where the curve begins. */
static void begin_epoch(struct net_cubic *cubic, float segs)
{
	cubic->in_epoch = true;
	cubic->epoch_us = net_now_us();
	cubic->w_est = segs;
	cubic->origin = segs < cubic->w_max ? cubic->w_max : segs;
	cubic->k = cube_root((cubic->origin - segs) / C);
}

static float curve(const struct net_cubic *cubic, float s)
{
	float t = s - cubic->k;

	return C * t * t * t + cubic->origin;
}

static void avoid(struct net_conn *conn, uint32_t acked)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_cubic *cubic = &rec->cubic;
	float mss = conn->pcb.mss, segs = (float)rec->cwnd / mss;
	float n = (float)acked / mss, now_s, target;

	if (!cubic->in_epoch)
		begin_epoch(cubic, segs);
	now_s = (float)(net_now_us() - cubic->epoch_us) * UNIT;
	cubic->w_est += (cubic->w_est < cubic->w_max ? ALPHA : 1.0f) * n / segs;
	target = curve(cubic, now_s + (float)(conn->srtt_us >> 3) * UNIT);
	if (target > 1.5f * segs)
		target = 1.5f * segs;
	if (curve(cubic, now_s) < cubic->w_est)
		segs = segs < cubic->w_est ? cubic->w_est : segs; /* 4.3 */
	else if (target > segs)
		segs += (target - segs) / segs * n;
	rec->cwnd = (uint32_t)(segs * mss);
}

static void on_ack(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_cubic *cubic = &net_recovery_of(conn)->cubic;

	if (ack->acked && !ack->limited) /* 5.8: the curve waits meanwhile */
		cubic->epoch_us += net_now_us() - ack->since_us;
	net_cwnd_on_ack(conn, ack, avoid);
}

static void on_undo(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	net_cwnd_on_undo(conn);
	rec->cubic.w_max = (float)rec->cwnd / conn->pcb.mss;
	rec->cubic.in_epoch = false;
}

const struct net_cc net_cc_cubic = {
	.name = "cubic",
	.burst = 10,
	.begin = begin,
	.on_loss = on_loss,
	.on_ack = on_ack,
	.on_recovered = net_cwnd_on_recovered,
	.on_undo = on_undo,
	.on_idle = net_cwnd_on_idle,
	.pacing_rate = net_cwnd_pacing_rate,
};
