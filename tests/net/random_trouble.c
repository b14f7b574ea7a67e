/*
 * Trouble from outside: a paused process, a path whose MTU changes and whose
 * routers report it, forged reports, and memory shortage.
 */
#include "tests/net/random.h"

#include <string.h>

#include "dpdk_glue/glue_csum.h"
#include "tests/bytes.h"

#define BALLAST	      512
#define MOST_PAUSES   30  /* in a life */
#define MOST_EVENTS   300 /* of each other kind */
#define BALLAST_BYTES 65000u
#define ROOM	      (16u << 20) /* for the life itself */

static struct {
	struct rng rng;
	unsigned mtu; /* of the path; 0: the link's */
	struct event {
		int64_t due;
		unsigned left;
	} pause, change, forgery, shortage;
	int64_t free_due;
	uint8_t last[94]; /* the beginning of the last segment sent */
	unsigned n_ballast;
	void *ballast[BALLAST];
} trouble;

/* ---- reports of routers ---- */

static void put_sum(uint8_t *at, uint64_t sum, const uint8_t *data,
		    unsigned len)
{
	uint16_t value = (uint16_t)~glue_sum_fold(glue_sum_add(sum, data, len));

	memcpy(at, &value, sizeof(value));
}

/* An ICMP error that quotes the beginning of a packet of the stack's. */
static void receive_icmp(const uint8_t *packet, unsigned quoted, uint8_t type,
			 uint8_t code, uint32_t value)
{
	uint8_t frame[14 + 40 + 8 + 80] = {0};
	unsigned payload = 8 + quoted;
	uint8_t *icmp = path_packet(frame, over_ip6 ? 58 : 1, payload);
	uint64_t pseudo = 0;

	icmp[0] = type;
	icmp[1] = code;
	put32(icmp + 4, value);
	memcpy(icmp + 8, packet, quoted);
	if (over_ip6)
		pseudo = glue_sum_pseudo(frame + 14 + 8, 16, 58, payload);
	else
		put_sum(frame + 14 + 10, 0, frame + 14, 20);
	put_sum(icmp + 2, pseudo, icmp, payload);
	fake_receive_wire(frame, 14 + path_header() + payload);
	life.frames++;
}

static void receive_mtu_report(const uint8_t *packet, unsigned quoted,
			       uint32_t mtu)
{
	if (over_ip6)
		receive_icmp(packet, quoted, 2, 0, mtu);
	else
		receive_icmp(packet, quoted, 3, 4, mtu & 0xffff);
}

/* Some routers are silent, and some old ones report no MTU. */
bool trouble_passes(const uint8_t *frame, unsigned len)
{
	unsigned quoted =
		path_header() + (rng_chance(&trouble.rng, 500) ? 8 : 20);
	unsigned mtu = trouble.mtu;

	memcpy(trouble.last, frame,
	       len < sizeof(trouble.last) ? len : sizeof(trouble.last));
	if (!mtu || len <= 14 + mtu)
		return true;
	if (rng_chance(&trouble.rng, 800))
		receive_mtu_report(
			frame + 14, quoted,
			!over_ip6 && rng_chance(&trouble.rng, 100) ? 0 : mtu);
	return false;
}

/* Forges a report: another segment, another port, cut off, or another cause. */
static void forge_report(void)
{
	static const uint8_t types[2][6] = {{3, 4, 5, 11, 12, 255},
					    {1, 3, 4, 100, 255, 2}};
	uint8_t *packet = trouble.last + 14;
	uint8_t *tcp = packet + path_header();
	unsigned quoted = path_header() + 20;
	uint32_t mtu = rng_chance(&trouble.rng, 500)
			       ? rng_below(&trouble.rng, 1500)
			       : (uint32_t)rng_next(&trouble.rng);

	switch (rng_below(&trouble.rng, 4)) {
	case 0:
		put32(tcp + 4, get32(tcp + 4) + 0x40000000);
		break;
	case 1:
		put16(tcp, rng_below(&trouble.rng, 65536));
		break;
	case 2:
		quoted = rng_below(&trouble.rng, quoted);
		break;
	case 3: /* right, but for the cause: RFC 5927 4 */
		receive_icmp(packet, quoted,
			     types[over_ip6][rng_below(&trouble.rng, 5)],
			     (uint8_t)rng_below(&trouble.rng, 4),
			     (uint32_t)rng_next(&trouble.rng));
		return;
	}
	receive_mtu_report(packet, quoted, mtu);
}

/* ---- time ---- */

/* Stops the process: for ns the stack can neither send nor receive. */
static void stand_still(int64_t ns)
{
	fake_now_ns += ns;
	life.pauses++;
	life.paused += ns;
	for (unsigned i = 0; i < life.draw.n_flows; i++) {
		struct watch *watch = &life.flows[i].watch;

		watch->active += ns;
		if (watch->owes_since != NEVER)
			watch->owes_since += ns;
		if (watch->window_since != NEVER)
			watch->window_since += ns;
	}
}

/* ---- memory ---- */

static void fill_memory(void)
{
	while (trouble.n_ballast < BALLAST && !net_here()->memory_full) {
		void *ballast = net_mem_malloc(BALLAST_BYTES);

		if (!ballast)
			break;
		trouble.ballast[trouble.n_ballast++] = ballast;
		net_budget_changed();
	}
}

static void free_memory(void)
{
	while (trouble.n_ballast)
		net_mem_free(trouble.ballast[--trouble.n_ballast]);
	net_budget_changed();
}

/* ---- a life's ---- */

static int64_t next_due(int64_t every)
{
	return every ? fake_now_ns + 1 +
			       (int64_t)(rng_next(&trouble.rng) %
					 (uint64_t)(2 * every))
		     : NEVER;
}

void trouble_begin(void)
{
	const struct trouble_draw *d = &life.draw.trouble;

	memset(&trouble, 0, sizeof(trouble));
	trouble.rng.state = life.draw.seed ^ UINT64_C(0x7b0b1e0000);
	trouble.pause = (struct event){next_due(d->pause_every), MOST_PAUSES};
	trouble.change = (struct event){next_due(d->mtu_every), MOST_EVENTS};
	trouble.forgery = (struct event){next_due(d->forge_every), MOST_EVENTS};
	trouble.shortage =
		(struct event){next_due(d->short_every), MOST_EVENTS};
	trouble.free_due = NEVER;
	if (d->short_every)
		net_budget_set(net_mem_bytes() + net_budget_elsewhere() + ROOM);
}

void trouble_end(void)
{
	trouble.pause.due = trouble.change.due = trouble.forgery.due =
		trouble.shortage.due = trouble.free_due = NEVER;
	trouble.mtu = 0;
	free_memory();
}

int64_t trouble_due(void)
{
	int64_t due = earlier(trouble.pause.due, trouble.change.due);

	due = earlier(due, earlier(trouble.forgery.due, trouble.shortage.due));
	return earlier(due, trouble.free_due);
}

static bool event_is_due(struct event *event, int64_t every)
{
	if (fake_now_ns < event->due)
		return false;
	event->due = --event->left ? next_due(every) : NEVER;
	return true;
}

void trouble_run(void)
{
	const struct trouble_draw *d = &life.draw.trouble;
	unsigned least = over_ip6 ? 1280 : 576;

	if (event_is_due(&trouble.pause, d->pause_every))
		stand_still(1 + (int64_t)(rng_next(&trouble.rng) %
					  (uint64_t)d->pause_for));
	if (event_is_due(&trouble.change, d->mtu_every))
		trouble.mtu =
			rng_chance(&trouble.rng, 300) || life.draw.mtu <= least
				? 0
				: rng_between(&trouble.rng, least,
					      life.draw.mtu);
	if (event_is_due(&trouble.forgery, d->forge_every) && trouble.last[14])
		forge_report();
	if (event_is_due(&trouble.shortage, d->short_every)) {
		fill_memory();
		trouble.free_due = fake_now_ns + d->short_for;
	}
	if (fake_now_ns >= trouble.free_due) {
		free_memory();
		trouble.free_due = NEVER;
	}
	if (trouble.n_ballast)
		fault_given++; /* any consequence has a cause */
}
