/*
 * The parameters that a seed draws for a life. About every third draw of a kind
 * is the plain case, so that odd values meet plain and odd ones.
 */
#include "tests/net/random.h"

#include <stdio.h>
#include <string.h>

/*
 * Bytes of the longest Ethernet, IPv6 and TCP headers, which ports deliver
 * unsplit.
 */
#define HEADERS 118

static int64_t log_us(struct rng *rng, uint32_t lo, uint32_t hi)
{
	return (int64_t)rng_log(rng, lo, hi) * 1000;
}

static void draw_path(struct rng *rng, struct path_draw *path)
{
	memset(path, 0, sizeof(*path));
	path->delay = log_us(rng, 20, 100000);
	if (rng_chance(rng, 600))
		path->loss = rng_chance(rng, 500) ? rng_below(rng, 30)
						  : rng_below(rng, 251);
	if (rng_chance(rng, 400))
		path->jitter = (int64_t)rng_below(rng, 200) * path->delay / 100;
	if (rng_chance(rng, 300))
		path->reorder = rng_below(rng, 300);
	if (rng_chance(rng, 300))
		path->dup = rng_below(rng, 200);
}

static void draw_handshake(struct rng *rng, struct draw *d)
{
	static const unsigned usual[] = {0,   100,  216,  217,
					 536, 1000, 1460, 8960};

	d->dialed = rng_chance(rng, 300);
	d->mss = rng_chance(rng, 500) ? usual[rng_below(rng, 8)]
				      : rng_between(rng, 100, 1460);
	d->wscale = rng_chance(rng, 400) ? -1 : (int)rng_below(rng, 15);
	d->sack = rng_chance(rng, 650);
	d->crossing = d->dialed && rng_chance(rng, 150);
	d->cookie = !d->dialed && rng_chance(rng, 150);
	d->near_wrap = rng_chance(rng, 600);
}

static unsigned peer_mss(const struct draw *d)
{
	unsigned mss = d->mss ? d->mss : 536;

	return mss < 216 ? 216 : mss > 1460 ? 1460 : mss;
}

static void draw_receiver(struct rng *rng, struct draw *d)
{
	unsigned mss = peer_mss(d), most = d->wscale < 0 ? 65535 : 1 << 20;
	unsigned kind = rng_below(rng, 10);

	if (kind < 4)
		d->room = most;
	else if (kind < 6)
		d->room = rng_between(rng, 2 * mss, 16 * mss);
	else if (kind < 8)
		d->room = rng_between(rng, mss / 2, 3 * mss);
	else
		d->room = rng_log(rng, 1, 2 * mss);
	if (d->room > most)
		d->room = most;
	d->ack_every = rng_chance(rng, 300)   ? 1
		       : rng_chance(rng, 600) ? 2
					      : rng_between(rng, 3, 20);
	d->ack_delay = rng_between(rng, 1, 200) * MS;
	d->partial = rng_chance(rng, 250) ? rng_below(rng, 500) : 0;
	d->renege = d->sack && rng_chance(rng, 150) ? rng_below(rng, 200) : 0;
	d->dsack = d->sack && rng_chance(rng, 500);
	d->shrink = rng_chance(rng, 150) ? rng_between(rng, 1, 60) : 0;
	d->mute = rng_chance(rng, 150);
	d->reading = (enum reading)rng_below(rng, 4);
	if (rng_chance(rng, 300))
		d->reading = READ_EAGER;
	d->read_bytes = rng_log(rng, 1 + d->room / 16, d->room + 1);
	d->read_pause = log_us(rng, 100, 500000);
}

static uint32_t draw_bytes(struct rng *rng, bool weight, uint32_t unit)
{
	uint32_t most = unit < 1000 ? unit * 400 : 400000;

	if (rng_chance(rng, weight ? 20 : 150))
		return 0;
	if (weight && rng_chance(rng, 700))
		return rng_log(rng, 1 + most / 16, most);
	return rng_log(rng, 1, most);
}

static void draw_sender(struct rng *rng, struct draw *d, bool sender)
{
	d->in_seg = rng_chance(rng, 500)   ? 1460
		    : rng_chance(rng, 700) ? rng_between(rng, 50, 1460)
					   : rng_log(rng, 1, 200);
	d->in_bytes = draw_bytes(rng, sender, d->in_seg);
	d->in_flight = rng_log(rng, d->in_seg, 300000);
	d->in_burst = rng_log(rng, 1 + d->in_bytes / 64, 1 + d->in_bytes);
	d->in_pause = rng_chance(rng, 400) ? log_us(rng, 100, 400000) : 0;
	if (rng_chance(rng, sender ? 600 : 250))
		d->mischief = rng_between(rng, 1, 300);
	d->fin = (enum fin)rng_below(rng, 4);
	d->fin_late = log_us(rng, 1000, 20000000);
	if (rng_chance(rng, 60))
		d->rst_at = log_us(rng, 1000, 5000000);
	else if (rng_chance(rng, 50))
		d->vanish_at = log_us(rng, 1000, 5000000);
}

static void draw_app(struct rng *rng, struct draw *d, bool sender)
{
	uint32_t unit = peer_mss(d) < d->room ? peer_mss(d) : d->room;

	d->echo = rng_chance(rng, 150);
	d->out_bytes = d->echo ? d->in_bytes : draw_bytes(rng, !sender, unit);
	d->writes = 1 + rng_below(rng, 63);
	d->reads = 1 + rng_below(rng, 31);
	d->write_max = rng_log(rng, 1 + d->out_bytes / 100, 2 + d->out_bytes);
	d->read_max = rng_log(rng, 1 + d->in_bytes / 300, 100000);
	d->write_pause = rng_chance(rng, 300) ? log_us(rng, 50, 200000) : 0;
	d->app_read_pause = rng_chance(rng, 400) ? log_us(rng, 50, 300000) : 0;
	d->hold = rng_chance(rng, 300) ? rng_below(rng, 8) : 0;
	d->shut_wr = rng_chance(rng, 500);
	d->shut_rd = rng_chance(rng, 50);
	d->read_until = UINT32_MAX;
	if (rng_chance(rng, 150))
		d->read_until = rng_below(rng, d->in_bytes + 1);
	d->ending = (enum ending)rng_below(rng, 4);
	if (d->ending == END_ABORT && rng_chance(rng, 600))
		d->ending = END_CLOSE;
	d->linger = log_us(rng, 1000, 100000000);
	if (rng_chance(rng, 100))
		d->deadline = log_us(rng, 10000, 60000000);
	if (rng_chance(rng, 40))
		d->cancel_at = log_us(rng, 1000, 3000000);
	d->keepalive = rng_chance(rng, 250);
	d->nagle = rng_chance(rng, 200);
	d->watched = d->dialed && rng_chance(rng, 300);
}

/* Bounds the parameters so that the life ends. */
static void bound_draw(struct rng *rng, struct draw *d)
{
	uint32_t out = d->out_bytes;

	if (d->watched) {
		d->echo = false;
		d->keepalive = true;
	}
	if (d->echo && d->in_bytes / d->room > 400)
		d->in_bytes = d->room * 400;
	/* A window that its scale would round to nothing. */
	while (d->wscale > 0 && d->room >> d->wscale < 4)
		d->wscale--;
	/* Reads so slow that the life would take hours. */
	if (out / d->read_bytes > 400)
		d->read_bytes = out / 400 + 1;
	if (out / d->room > 400)
		d->out_bytes = out = d->room * 400;
	d->stall_at = out ? rng_below(rng, out) : 0;
	/* Orphans are given up after four minutes. */
	d->stall = log_us(rng, 100000, 200000000);
	if (d->reading == READ_ABSENT && !d->rst_at && !d->vanish_at)
		d->rst_at = log_us(rng, 1000000, 200000000);
	if (d->echo)
		d->out_bytes = d->in_bytes;
	if (d->in_bytes && d->in_bytes / d->in_seg > 800)
		d->in_bytes = d->in_seg * 800;
	if ((d->vanish_at || d->rst_at) && !d->deadline && !d->keepalive)
		d->deadline = log_us(rng, 1000000, 60000000);
}

/* Many segments in flight: repeated walks of the queue cost too much. */
static void draw_long_and_fat(struct rng *rng, struct draw *d)
{
	d->path[TO_PEER].delay = rng_between(rng, 20, 100) * MS;
	d->path[TO_PEER].loss = d->path[TO_STACK].loss = 0;
	d->mss = rng_between(rng, 216, 600);
	d->wscale = (int)rng_between(rng, 5, 9);
	d->sack = true;
	d->cookie = d->echo = false;
	d->room = 1 << 20;
	d->reading = READ_EAGER;
	d->shrink = d->partial = 0;
	d->out_bytes = rng_between(rng, 300000, 1000000);
	d->write_max = d->out_bytes;
	d->write_pause = 0;
	d->mischief = 300;
}

/*
 * Runs of full segments over a path with few losses, in both directions or one.
 */
static void draw_bulk(struct rng *rng, struct draw *d)
{
	for (unsigned i = 0; i < 2; i++)
		d->path[i] = (struct path_draw){
			.delay = log_us(rng, 5, 50000),
			.loss = rng_chance(rng, 200) ? 1 : 0};
	d->mss = d->in_seg = 1460;
	d->wscale = (int)rng_between(rng, 5, 9);
	d->cookie = d->watched = false;
	d->room = 1 << 20;
	d->reading = READ_EAGER;
	d->shrink = d->partial = d->mischief = 0;
	d->in_bytes = rng_between(rng, 200000, 1000000);
	d->in_flight = rng_log(rng, 20000, 300000);
	d->in_burst = d->in_bytes;
	d->in_pause = 0;
	d->read_until = UINT32_MAX;
	d->read_max = LWIP_MAX(d->read_max, 2000); /* or it takes hours */
	d->shut_rd = false;
	d->rst_at = d->vanish_at = d->deadline = d->cancel_at = 0;
}

/*
 * A few segments and an end soon after: most of such a life is the handshake
 * and the close. Every third peer's window is filled to the byte.
 */
static void draw_brief(struct rng *rng, struct draw *d)
{
	unsigned loss = rng_chance(rng, 500) ? 0 : 100;

	for (unsigned i = 0; i < 2; i++)
		d->path[i].loss = LWIP_MIN(d->path[i].loss, loss);
	d->in_bytes = rng_chance(rng, 250) ? 0 : rng_log(rng, 1, 4 * d->in_seg);
	d->out_bytes = rng_chance(rng, 250) ? 0 : rng_log(rng, 1, 6000);
	if (d->echo)
		d->out_bytes = d->in_bytes;
	if (d->out_bytes && rng_chance(rng, 333))
		d->room = d->out_bytes;
	d->reading = rng_chance(rng, 800) ? READ_EAGER : READ_SLOW;
	d->read_pause = log_us(rng, 10, 10000);
	d->in_burst = d->in_bytes + 1;
	d->write_max = d->out_bytes + 1;
	d->in_pause = d->write_pause = 0;
	if (rng_chance(rng, 700))
		d->mischief = d->shrink = d->partial = 0;
	d->fin_late = log_us(rng, 10, 100000);
	d->linger = log_us(rng, 1, 100000);
	d->rst_at = d->vanish_at = d->deadline = d->cancel_at = 0;
}

static void draw_flow(struct rng *rng, bool sender, struct draw *d)
{
	memset(d, 0, sizeof(*d));
	draw_path(rng, &d->path[TO_STACK]);
	draw_path(rng, &d->path[TO_PEER]);
	if (rng_chance(rng, 500)) /* a path like most */
		d->path[TO_STACK].delay = d->path[TO_PEER].delay;
	draw_handshake(rng, d);
	draw_receiver(rng, d);
	draw_sender(rng, d, sender);
	draw_app(rng, d, sender);
	if (rng_chance(rng, 30))
		draw_long_and_fat(rng, d);
	if (bulk_lives)
		draw_bulk(rng, d);
	if (brief_lives)
		draw_brief(rng, d);
	bound_draw(rng, d);
}

static void draw_stamps(struct rng *rng, struct draw *d)
{
	static const int64_t ticks[] = {MS, MS, 4 * MS, 10 * MS, SECOND};

	if (rng_chance(rng, 350))
		return;
	d->ts_tick = ticks[rng_below(rng, 5)];
	d->ts_begin = (uint32_t)rng_next(rng);
	if (rng_chance(rng, 600)) /* it wraps soon */
		d->ts_begin = 0 - rng_log(rng, 1, 10000);
}

/*
 * Uses a separate random sequence, so that other draws of the seed do not
 * change.
 */
static void draw_control(struct rng *rng, struct draw *d)
{
	static const char *const controls[] = {"cubic", "reno", "bbr"};

	d->cc = controls[rng_below(rng, 3)];
	if (rng_chance(rng, 200))
		d->pace = rng_log(rng, 20000 + d->out_bytes / 20, 4000000);
}

/* A connection that is given up then has a cause, as with a deadline. */
static void draw_user_timeout(struct rng *rng, struct draw *d)
{
	if (rng_chance(rng, 100))
		d->user_timeout_ms = rng_log(rng, 1, 100000);
}

static void draw_ecn(struct rng *rng, struct draw *d)
{
	d->ecn = rng_chance(rng, 600);
	for (unsigned to = 0; to < 2; to++)
		if (rng_chance(rng, 600))
			d->marks[to] = rng_log(rng, 1, 400);
	if (rng_chance(rng, 200))
		d->ecn_lies = rng_log(rng, 1, 300);
}

static void draw_trouble(struct rng *rng, struct life_draw *out)
{
	struct trouble_draw *d = &out->trouble;

	if (rng_chance(rng, 150))
		out->rmem_max = rng_log(rng, 1u << 18, 1u << 30);
	if (rng_chance(rng, 150))
		out->wmem_max = rng_log(rng, 1u << 18, 1u << 26);
	if (rng_chance(rng, 150)) {
		d->pause_every = log_us(rng, 10000, 10000000);
		d->pause_for = log_us(rng, 1000, 100000000);
	}
	if (!bulk_lives && rng_chance(rng, 200))
		d->mtu_every = log_us(rng, 1000, 10000000);
	if (rng_chance(rng, 150))
		d->forge_every = log_us(rng, 100, 1000000);
	if (!differ_lives() && rng_chance(rng, 100)) {
		d->short_every = log_us(rng, 10000, 10000000);
		d->short_for = log_us(rng, 100, 60000000);
	}
}

void draw_life(uint64_t seed, bool sender, struct life_draw *out)
{
	struct rng rng = {seed * 2 + sender}, control = {~seed * 2 + sender};
	bool cookies = false;

	for (unsigned i = 0; i < 4; i++)
		rng_next(&rng);
	memset(out, 0, sizeof(*out));
	out->seed = seed;
	out->n_flows = rng_chance(&rng, 700) ? 1 : rng_between(&rng, 2, 3);
	out->mtu = rng_chance(&rng, 800) ? 1500 : rng_between(&rng, 576, 9000);
	out->lends = rng_chance(&rng, 500);
	if (rng_chance(&rng, 100))
		out->frame_segments = rng_between(&rng, HEADERS, 600);
	if (rng_chance(&rng, 200)) {
		out->starve_every = log_us(&rng, 1000, 2000000);
		out->starve_for = log_us(&rng, 20, 300000);
	}
	if (rng_chance(&rng, 150)) {
		out->fault_from = rng_log(&rng, 1, 3000);
		out->fault_count =
			rng_chance(&rng, 500) ? 1 : rng_log(&rng, 1, 200);
		out->fault_rate = rng_chance(&rng, 700)
					  ? 1000
					  : rng_between(&rng, 50, 1000);
	}
	for (unsigned i = 0; i < out->n_flows; i++)
		draw_flow(&rng, sender, &out->flow[i]);
	for (unsigned i = 0; i < out->n_flows; i++)
		draw_control(&control, &out->flow[i]);
	for (unsigned i = 0; i < out->n_flows; i++)
		draw_ecn(&control, &out->flow[i]);
	for (unsigned i = 0; i < out->n_flows; i++)
		draw_user_timeout(&control, &out->flow[i]);
	out->ecn = (enum net_ecn)rng_below(&control, 3);
	if (rng_chance(&control, 600))
		out->ecn = NET_ECN_ON;
	for (unsigned i = 0; i < out->n_flows; i++)
		cookies |= out->flow[i].cookie;
	/* The reset of a segment before the cookie may end the peer alone. */
	for (unsigned i = 0; cookies && i < out->n_flows; i++)
		if (!out->flow[i].deadline && !out->flow[i].keepalive)
			out->flow[i].deadline = 300 * SECOND;
	for (unsigned i = 0; i < out->n_flows; i++)
		draw_stamps(&rng, &out->flow[i]);
	out->ts_off = rng_chance(&rng, 100);
	for (unsigned i = 0; i < out->n_flows; i++)
		if (!bulk_lives && rng_chance(&rng, 100))
			out->flow[i].drop_at = log_us(&rng, 100, 10000000);
	if (bulk_lives)
		out->mtu = 1500;
	draw_trouble(&control, out);
}

/* ---- the stream and the stack of a life ---- */

uint8_t pattern[2 * PATTERN];

void make_pattern(void)
{
	struct rng rng = {1};

	if (pattern[0] || pattern[1] || pattern[2])
		return;
	for (unsigned i = 0; i < PATTERN; i++)
		pattern[i] = pattern[i + PATTERN] = (uint8_t)rng_next(&rng);
}

void draw_opts(const struct life_draw *draw, struct net_opts *opts)
{
	fake_now_ns = SECOND;
	net_opts_init(opts);
	opts->links[opts->n_links++] = "ring:test";
	net_addr_parse_prefix(STACK_ADDR, &opts->addrs[opts->n_addrs++]);
	opts->mtu = draw->mtu;
	opts->max_conns = 64;
	opts->rmem_max = draw->rmem_max;
	opts->wmem_max = draw->wmem_max;
	opts->poll = NET_POLL_BUSY;
	opts->log_level = "error"; /* resets for lack of memory are drawn */
	fake_lends = draw->lends;
	fake_segment_bytes = draw->frame_segments;
}

/* ---- printing ---- */

static double ns_to_ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static void print_path(const char *name, const struct path_draw *p)
{
	printf("  %s: delay %.3f ms, jitter %.3f, loss %u, dup %u, reorder %u "
	       "of 1000\n",
	       name, ns_to_ms(p->delay), ns_to_ms(p->jitter), p->loss, p->dup,
	       p->reorder);
}

static void print_flow(const struct draw *d, unsigned index)
{
	static const char *const readings[] = {"eager", "slow", "stalls",
					       "absent"};
	static const char *const fins[] = {"after data", "with data",
					   "after theirs", "late"};
	static const char *const endings[] = {"return", "close", "close_wait",
					      "abort"};

	printf("flow %u: %s%s%s\n", index, d->dialed ? "dialed" : "accepted",
	       d->cookie ? ", by a cookie" : "",
	       d->near_wrap ? ", numbers near the wrap" : "");
	print_path("to the stack", &d->path[TO_STACK]);
	print_path("to the peer", &d->path[TO_PEER]);
	printf("  handshake: mss %u, wscale %d, sack %d, timestamps each %.0f "
	       "ms from %u\n",
	       d->mss, d->wscale, d->sack, ns_to_ms(d->ts_tick), d->ts_begin);
	printf("  receiver: room %u, ack every %u or %.0f ms, partial %u, "
	       "renege %u, shrink %u, dsack %d, mute %d\n",
	       d->room, d->ack_every, ns_to_ms(d->ack_delay), d->partial,
	       d->renege, d->shrink, d->dsack, d->mute);
	printf("  reads: %s, %u bytes each %.3f ms, stalls at %u for %.0f ms\n",
	       readings[d->reading], d->read_bytes, ns_to_ms(d->read_pause),
	       d->stall_at, ns_to_ms(d->stall));
	printf("  sender: %u bytes by %u, in flight %u, bursts of %u each "
	       "%.3f ms, mischief %u\n",
	       d->in_bytes, d->in_seg, d->in_flight, d->in_burst,
	       ns_to_ms(d->in_pause), d->mischief);
	printf("  its end: fin %s (%.0f ms), rst at %.0f ms, vanishes at %.0f "
	       "ms\n",
	       fins[d->fin], ns_to_ms(d->fin_late), ns_to_ms(d->rst_at),
	       ns_to_ms(d->vanish_at));
	printf("  app: %s, %u bytes by %u (calls %02x, pause %.3f ms), reads "
	       "by %u (calls %02x, pause %.3f ms) until %u, holds %u\n",
	       d->echo ? "echo" : "both directions", d->out_bytes, d->write_max,
	       d->writes, ns_to_ms(d->write_pause), d->read_max, d->reads,
	       ns_to_ms(d->app_read_pause), d->read_until, d->hold);
	printf("  user timeout %u ms\n", d->user_timeout_ms);
	printf("  congestion control: %s, at most %u bytes/s; ecn %d, marks "
	       "%u to the stack and %u to the peer, lies %u\n",
	       d->cc, d->pace, d->ecn, d->marks[TO_STACK], d->marks[TO_PEER],
	       d->ecn_lies);
	printf("  its end: %s%s%s, linger %.0f ms, deadline %.0f ms, cancel "
	       "%.0f ms, dropped at %.0f ms, keepalive %d, nagle %d\n",
	       d->watched ? "watched" : endings[d->ending],
	       d->shut_wr ? ", shuts writing" : "",
	       d->shut_rd ? ", shuts reading" : "", ns_to_ms(d->linger),
	       ns_to_ms(d->deadline), ns_to_ms(d->cancel_at),
	       ns_to_ms(d->drop_at), d->keepalive, d->nagle);
}

void draw_print(const struct life_draw *draw)
{
	printf("seed %llu: %u flows, mtu %u, timestamps %d, ecn %d, lends %d, "
	       "frame "
	       "segments %u, "
	       "starves %.3f ms each %.3f ms, faults from %u, %u at %u\n",
	       (unsigned long long)draw->seed, draw->n_flows, draw->mtu,
	       !draw->ts_off, (int)draw->ecn, draw->lends, draw->frame_segments,
	       ns_to_ms(draw->starve_for), ns_to_ms(draw->starve_every),
	       draw->fault_from, draw->fault_count, draw->fault_rate);
	printf("rmem %llu, wmem %llu; pauses each %.3f ms of %.3f, path MTU "
	       "each %.3f, forged ICMP each %.3f, no memory each %.3f for "
	       "%.3f\n",
	       (unsigned long long)draw->rmem_max,
	       (unsigned long long)draw->wmem_max,
	       ns_to_ms(draw->trouble.pause_every),
	       ns_to_ms(draw->trouble.pause_for),
	       ns_to_ms(draw->trouble.mtu_every),
	       ns_to_ms(draw->trouble.forge_every),
	       ns_to_ms(draw->trouble.short_every),
	       ns_to_ms(draw->trouble.short_for));
	for (unsigned i = 0; i < draw->n_flows; i++)
		print_flow(&draw->flow[i], i);
}
