/*
 * CUBIC (RFC 9438): beyond slow start the window follows a cubic curve of the
 * time since the last loss, around the window at which that came. In segments
 * and seconds; an ACK may add less than a byte, or a millionth of the window,
 * which must not be lost.
 */
#include "netstack/recovery/recovery_priv.h"

#define BETA  0.7
#define C     0.4
#define ALPHA (3.0 * (1.0 - BETA) / (1.0 + BETA)) /* RFC 9438 4.3 */
#define UNIT  1.024e-6				  /* seconds */

/* Newton's method: from above the root it only falls, to within a millionth. */
static double cube_root(double a)
{
	double x = a > 1.0 ? a : 1.0;

	if (a <= 0.0)
		return 0.0;
	for (unsigned i = 0; i < 40; i++) {
		double next = (2.0 * x + a / (x * x)) / 3.0;

		if (x - next < x * 1e-6)
			break;
		x = next;
	}
	return x;
}

static bool begin_cubic(struct net_conn *conn)
{
	net_recovery_of(conn)->cubic = (struct net_cubic){0};
	return true;
}

static void on_loss(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_cubic *cubic = &rec->cubic;
	double segs = (double)rec->cwnd / conn->pcb.mss;

	/* RFC 9438 4.7, fast convergence. */
	cubic->w_max = segs < cubic->w_max ? segs * (1.0 + BETA) / 2.0 : segs;
	cubic->in_epoch = false;
	net_cwnd_cut(conn, (uint32_t)((double)rec->cwnd * BETA));
}

/* RFC 9438 4.2; where the curve begins. */
static void begin_epoch(struct net_cubic *cubic, double segs)
{
	cubic->in_epoch = true;
	cubic->epoch_us = net_now_us();
	cubic->w_est = segs;
	cubic->origin = segs < cubic->w_max ? cubic->w_max : segs;
	cubic->k = cube_root((cubic->origin - segs) / C);
}

static double window_at(const struct net_cubic *cubic, double s)
{
	double t = s - cubic->k;

	return C * t * t * t + cubic->origin;
}

static void avoid_congestion(struct net_conn *conn, uint32_t acked)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_cubic *cubic = &rec->cubic;
	double mss = conn->pcb.mss, bytes;
	double segs = ((double)rec->cwnd + cubic->part) / mss;
	double n = (double)acked / mss, now_s, target;

	if (!cubic->in_epoch)
		begin_epoch(cubic, segs);
	now_s = (double)(net_now_us() - cubic->epoch_us) * UNIT;
	cubic->w_est += (cubic->w_est < cubic->w_max ? ALPHA : 1.0) * n / segs;
	target = window_at(cubic, now_s + (double)(conn->srtt_us >> 3) * UNIT);
	if (target > 1.5 * segs)
		target = 1.5 * segs;
	if (window_at(cubic, now_s) < cubic->w_est)
		segs = segs < cubic->w_est ? cubic->w_est : segs; /* 4.3 */
	else if (target > segs)
		segs += (target - segs) / segs * n;
	bytes = segs * mss;
	rec->cwnd = (uint32_t)bytes;
	cubic->part = bytes - rec->cwnd;
}

static void on_ack(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_cubic *cubic = &net_recovery_of(conn)->cubic;

	if (ack->acked && !ack->limited) /* 5.8: the curve waits meanwhile */
		cubic->epoch_us += net_now_us() - ack->since_us;
	net_cwnd_on_ack(conn, ack, avoid_congestion);
}

static void on_undo(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	net_cwnd_on_undo(conn);
	rec->cubic.w_max = (double)rec->cwnd / conn->pcb.mss;
	rec->cubic.in_epoch = false;
}

/* No time passes on the curve while nothing is sent. */
static void on_idle(struct net_conn *conn, uint32_t timeouts)
{
	net_recovery_of(conn)->cubic.in_epoch = false;
	net_cwnd_on_idle(conn, timeouts);
}

const struct net_cc net_cc_cubic = {
	.name = "cubic",
	.burst = 10,
	.flow_burst = 4,
	.buffer = 2,
	.begin = begin_cubic,
	.on_loss = on_loss,
	.on_ecn = net_cwnd_on_ecn,
	.on_ack = on_ack,
	.on_recovered = net_cwnd_on_recovered,
	.on_undo = on_undo,
	.on_idle = on_idle,
	.pacing_rate = net_cwnd_pacing_rate,
};
