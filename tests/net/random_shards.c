/*
 * The program, its processes, and the shards of a life with what disturbs them.
 *
 * DPDK starts once in a process, so each life has its own.
 */
#include "tests/net/random_shards.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/coro_io.h>

#include "netstack/api/api.h"
#include "netstack/tcp/tcp.h"
#include "tests/net/random_lives.h"
#include "tests/net/random_queue.h"

#define LONGEST	  (900 * SECOND)
#define SEND_ROOM (256u << 10) /* less than a handler sends at first */
#define STUCK_AT  (6 * SECOND) /* the mutes have sent what they could */
#define ROOM	  (4u << 20)   /* bytes of a shard's budget at least */

const uint8_t fake_mac[6] = {2, 0, 0, 0, 0, 1};
const uint8_t fake_peer_mac[6] = {2, 0, 0, 0, 0, 2};
struct crowd crowd;
bool verbose;

static struct net_stack *stacks[SHARDS_MAX];
static int64_t paused_until[SHARDS_MAX], next_pause, next_drop, next_forgery;

/* ---- in place of the stack's clock, and of its threads ---- */

int64_t __wrap_glue_now_ns(void);
int __wrap_net_post(unsigned shard, void (*fn)(void *arg), void *arg);

int64_t __wrap_glue_now_ns(void)
{
	return crowd.now;
}

int __wrap_net_post(unsigned shard, void (*fn)(void *arg), void *arg)
{
	return coro_post(stacks[shard]->sched, fn, arg);
}

/* The build counts the code that runs, for test-net-random alone. */
void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void)
{
}

static void enter_shard(unsigned shard)
{
	net_shard_enter(stacks[shard]);
	if (coro_sched_enter(stacks[shard]->sched) < 0)
		abort();
}

static void leave_shard(unsigned shard)
{
	coro_sched_leave(stacks[shard]->sched);
	net_shard_enter(NULL);
}

/* ---- draws ---- */

static void draw_crowd(uint64_t seed, struct crowd_draw *d)
{
	struct rng rng = {seed};

	for (unsigned i = 0; i < 4; i++)
		rng_next(&rng);
	*d = (struct crowd_draw){.seed = seed};
	d->shards = rng_between(&rng, 3, 6);
	d->readers = rng_between(&rng, 4, 24);
	d->mutes = rng_between(&rng, 20, 180);
	d->queue = 64u << rng_below(&rng, 3);
	d->delay = (int64_t)rng_log(&rng, 20, 5000) * 1000;
	d->loss = rng_chance(&rng, 500) ? 0 : rng_below(&rng, 20);
	d->mss = rng_chance(&rng, 700) ? 1460 : rng_between(&rng, 536, 1460);
	d->step = (int64_t)rng_between(&rng, 20, 200) * 1000;
	if (rng_chance(&rng, 300))
		d->budget = rng_log(&rng, ROOM, 64u << 20);
	if (rng_chance(&rng, 300)) {
		d->path_mtu = rng_between(&rng, 576, 1499);
		d->mtu_at = (int64_t)rng_log(&rng, 1, 5000) * MS;
	}
	if (rng_chance(&rng, 400)) {
		d->pause_every = (int64_t)rng_log(&rng, 20, 2000) * MS;
		d->pause_for = (int64_t)rng_log(&rng, 1, 1000) * MS;
	}
	d->ip6 = rng_chance(&rng, 500);
	d->rmem_max = d->wmem_max = SEND_ROOM;
	if (rng_chance(&rng, 300))
		d->rmem_max = rng_log(&rng, SEND_ROOM, 1u << 30);
	if (rng_chance(&rng, 200))
		d->wmem_max = rng_log(&rng, SEND_ROOM, 1u << 30);
	if (rng_chance(&rng, 300))
		d->drop_every = (int64_t)rng_log(&rng, 50, 2000) * MS;
	if (rng_chance(&rng, 300))
		d->forge_every = (int64_t)rng_log(&rng, 1, 1000) * MS;
	if (d->ip6) {
		d->mss = LWIP_MIN(d->mss, 1440);
		if (d->path_mtu) /* RFC 8200 5: at least 1280 */
			d->path_mtu = 1280 + d->path_mtu % 220;
	}
}

static void print_draw(const struct crowd_draw *d)
{
	printf("seed %llu: IPv%u, %u shards, %u readers, %u mutes, queue %u, "
	       "delay %.3f ms, loss %u, mss %u, step %.3f ms, budget %llu, "
	       "mtu %u at %.0f ms, pauses of %.0f ms each %.0f ms, drops each "
	       "%.0f ms, forged errors each %.0f ms, rmem %llu, wmem %llu\n",
	       (unsigned long long)d->seed, d->ip6 ? 6 : 4, d->shards,
	       d->readers, d->mutes, d->queue, (double)d->delay / 1e6, d->loss,
	       d->mss, (double)d->step / 1e6, (unsigned long long)d->budget,
	       d->path_mtu, (double)d->mtu_at / 1e6, (double)d->pause_for / 1e6,
	       (double)d->pause_every / 1e6, (double)d->drop_every / 1e6,
	       (double)d->forge_every / 1e6, (unsigned long long)d->rmem_max,
	       (unsigned long long)d->wmem_max);
}

void crowd_violated(const char *what, ...)
{
	va_list args;

	print_draw(&crowd.draw);
	if (verbose)
		crowd_print();
	printf("seed %llu, at %.6f s: ", (unsigned long long)crowd.draw.seed,
	       (double)crowd.now / 1e9);
	va_start(args, what);
	vprintf(what, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_Exit(1);
}

/* ---- the queue ---- */

void queue_receive(const uint8_t *frame, unsigned len)
{
	if (queue_put(frame, len))
		crowd.to_stack++;
	else
		crowd.lost++;
}

static void take_sent(const void *frame, unsigned len)
{
	const uint8_t *bytes = frame;

	for (unsigned i = 0; i < len; i++)
		crowd.digest =
			(crowd.digest ^ bytes[i]) * UINT64_C(0x100000001b3);
	crowd_take(bytes, len);
}

/* ---- beginning and end ---- */

static void listen_at(uint16_t port, net_handler handler)
{
	struct net_listener *l;

	if (net_listen(net_here(), &net_addr_any(port), 512, &l) < 0)
		crowd_violated("cannot listen");
	net_listener_serve(l, handler, NULL);
}

static void open_shards(void)
{
	const struct crowd_draw *d = &crowd.draw;
	struct net_opts opts;
	char link[32];

	snprintf(link, sizeof(link), "ring:r0,queue=%u", d->queue);
	net_opts_init(&opts);
	opts.links[opts.n_links++] = link;
	net_addr_parse_prefix(d->ip6 ? "fd00::1/64" : "10.0.0.1/24",
			      &opts.addrs[opts.n_addrs++]);
	net_addr_parse(d->ip6 ? "fd00::2" : "10.0.0.2", 0,
		       d->ip6 ? &opts.gateway6 : &opts.gateway4);
	opts.shards = opts.max_shards = d->shards;
	opts.huge_off = true;
	opts.poll = NET_POLL_BUSY;
	opts.watchdog_ms = 0;
	opts.max_conns = 4096;
	opts.rmem_max = d->rmem_max;
	opts.wmem_max = d->wmem_max;
	opts.log_level = "error";
	if (net_program_open(&opts) < 0)
		crowd_violated("no program: %s", opts.error);
	for (unsigned i = 0; i < d->shards; i++) {
		if (net_shard_open(&opts, i) < 0)
			crowd_violated("no shard: %s", opts.error);
		stacks[i] = net_here();
		listen_at(ECHO_PORT, echo_views_or_copies);
		listen_at(TALK_PORT, send_then_read);
		net_budget_set(d->budget ? net_mem_bytes() +
						   net_budget_elsewhere() +
						   d->budget
					 : 0);
		leave_shard(i);
	}
	queue_open(d->queue);
}

static void check_pools(void)
{
	for (unsigned i = 0; i < crowd.draw.shards; i++)
		if (queue_missing(i))
			crowd_violated("pool %u: %d frames are missing", i,
				       queue_missing(i));
}

static void check_end(unsigned shard)
{
	const struct net_stack *s = stacks[shard];

	if (s->n_conns || s->half_open || s->ports[0].frames_in ||
	    s->ooseq_held)
		crowd_violated("shard %u has %u connections, %u half open, %u "
			       "frames, %u pieces at the end",
			       shard, s->n_conns, s->half_open,
			       s->ports[0].frames_in, s->ooseq_held);
}

static void close_shards(void)
{
	queue_close();
	check_pools();
	for (unsigned i = 0; i < crowd.draw.shards; i++) {
		enter_shard(i);
		check_end(i);
		net_shard_close(stacks[i]);
	}
	net_program_close();
}

/* ---- running the shards ---- */

/* One shard stands still, as its handler computes, or the whole process. */
static void pause_some(void)
{
	const struct crowd_draw *d = &crowd.draw;
	int64_t ns;

	if (!d->pause_every || crowd.now < next_pause)
		return;
	ns = 1 + (int64_t)(rng_next(&crowd.rng) % (uint64_t)d->pause_for);
	next_pause = crowd.now + ns + 1 +
		     (int64_t)(rng_next(&crowd.rng) %
			       (uint64_t)(2 * d->pause_every));
	crowd.paused += ns;
	if (rng_chance(&crowd.rng, 300))
		crowd.now += ns;
	else
		paused_until[rng_below(&crowd.rng, d->shards)] = crowd.now + ns;
}

static struct net_conn *victim;
static unsigned passed_over; /* connections before the victim */

static void choose_victim(struct net_conn *conn)
{
	if (!victim && passed_over-- == 0)
		victim = conn;
}

/* As an operator does with coronet-ctl drop. */
static void drop_one(unsigned shard)
{
	victim = NULL;
	enter_shard(shard);
	if (stacks[shard]->n_conns) {
		passed_over = rng_below(&crowd.rng, stacks[shard]->n_conns);
		net_for_each_conn(choose_victim);
	}
	if (victim) {
		net_conn_drop(victim);
		crowd.may_reset = true;
	}
	leave_shard(shard);
}

static bool is_event_due(int64_t *next, int64_t every)
{
	if (!every || crowd.now < *next)
		return false;
	*next = crowd.now + 1 +
		(int64_t)(rng_next(&crowd.rng) % (uint64_t)(2 * every));
	return true;
}

static void disturb_some(void)
{
	const struct crowd_draw *d = &crowd.draw;
	unsigned shard;

	pause_some();
	if (is_event_due(&next_forgery, d->forge_every))
		crowd_forge_error();
	if (!is_event_due(&next_drop, d->drop_every))
		return;
	shard = rng_below(&crowd.rng, d->shards);
	if (paused_until[shard] <= crowd.now)
		drop_one(shard);
}

static bool is_idle(unsigned shard)
{
	return !coro_sched_ready(stacks[shard]->sched) &&
	       stacks[shard]->output.head == stacks[shard]->output.tail;
}

static unsigned frames_held(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < crowd.draw.shards; i++)
		n += stacks[i]->ports[0].frames_in;
	return n;
}

/* Returns whether every shard has done all that it can do now. */
static bool run_shards(void)
{
	bool idle = true;

	for (unsigned i = 0; i < crowd.draw.shards; i++) {
		unsigned work;

		if (paused_until[i] > crowd.now)
			continue;
		enter_shard(i);
		work = net_stack_work(stacks[i]);
		crowd.may_reset |= net_here()->memory_full ||
				   stacks[i]->stats.memory_resets;
		idle &= work == 0 && is_idle(i);
		leave_shard(i);
	}
	return idle;
}

static int64_t next_due(void)
{
	int64_t due = crowd_due();

	for (unsigned i = 0; i < crowd.draw.shards; i++) {
		int64_t wakes = coro_sched_next_ns(stacks[i]->sched);

		if (paused_until[i] > crowd.now)
			wakes = paused_until[i];
		due = LWIP_MIN(due, wakes);
	}
	return LWIP_MIN(due, crowd.now + 100 * MS);
}

static void run_round(void)
{
	bool idle;

	disturb_some();
	crowd_run();
	idle = run_shards();
	queue_take(take_sent);
	crowd.now =
		LWIP_MAX(crowd.now + crowd.draw.step, idle ? next_due() : 0);
}

static bool is_over(void)
{
	if (crowd.alive)
		return false;
	for (unsigned i = 0; i < crowd.draw.shards; i++)
		if (stacks[i]->n_conns || stacks[i]->half_open || !is_idle(i))
			return false;
	return true;
}

/*
 * What connections may hold of a pool that all shards share leaves enough to
 * receive, so that the queue always has a buffer. Shards that stand still leave
 * frames in their rings.
 */
static void check_pool(void)
{
	if (crowd.draw.pause_every)
		return;
	if (crowd.lost)
		crowd_violated("a frame had no buffer, connections hold %u",
			       frames_held());
	if (glue_port_empty_pools(stacks[0]->ports[0].glue))
		crowd_violated("the pool is empty, connections hold %u frames",
			       frames_held());
}

/* The last frames may be on their way from one shard to another. */
static void empty_rings(void)
{
	memset(paused_until, 0, sizeof(paused_until));
	for (unsigned i = 0; i < 4; i++) {
		run_shards();
		queue_take(take_sent);
	}
}

static void live_one(uint64_t seed)
{
	memset(&crowd, 0, sizeof(crowd));
	draw_crowd(seed, &crowd.draw);
	if (verbose)
		print_draw(&crowd.draw);
	crowd.rng.state = seed ^ UINT64_C(0xc503d00000);
	crowd.now = SECOND;
	next_pause = crowd.now + crowd.draw.pause_every;
	next_drop = crowd.now + crowd.draw.drop_every;
	next_forgery = crowd.now + crowd.draw.forge_every;
	seed_entropy(seed);
	open_shards();
	crowd_begin();
	while (!is_over()) {
		run_round();
		check_pool();
		if (!crowd.wakes && crowd.ended == crowd.draw.readers &&
		    (crowd_is_stuck() || crowd.now > STUCK_AT)) {
			crowd.held = frames_held();
			crowd_wake();
		}
		if (crowd.now > LONGEST)
			crowd_violated("no end: %u clients are left",
				       crowd.alive);
	}
	empty_rings();
	close_shards();
}

/* ---- the program ---- */

/* Memory shared by parent and child. */
static struct shared {
	uint64_t frames, resets, digest;
} * shared;

static const struct opt rows[] = {LIVES_ROWS("10")};

COMMAND_SET(shards_opts, rows, NULL);

static void report(uint64_t seed)
{
	printf("seed %llu: %llu frames to the stack, %llu without a buffer, %u "
	       "held, %u resets, %.1f s, digest %016llx\n",
	       (unsigned long long)seed, (unsigned long long)crowd.to_stack,
	       (unsigned long long)crowd.lost, crowd.held, crowd.resets,
	       (double)crowd.now / 1e9, (unsigned long long)crowd.digest);
}

static void live_and_count(uint64_t seed, void *arg)
{
	live_one(seed);
	if (verbose)
		report(seed);
	shared->frames += crowd.to_stack;
	shared->resets += crowd.resets;
	shared->digest = crowd.digest;
}

int main(int argc, char **argv)
{
	static const struct command_line line = {
		.set = &shards_opts,
		.doc = "Random lives of several shards on one queue.",
	};
	struct lives_opts opts = {.seed = LIVES_ALL};
	uint64_t done;

	command_line_read(&line, argc, argv, &opts);
	verbose = opts.verbose;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (opts.seed != LIVES_ALL) {
		live_one(opts.seed);
		report(opts.seed);
		return 0;
	}
	shared = lives_share(sizeof(*shared));
	done = lives_run_many(&opts, live_and_count, false, &shared->digest,
			      argv[0]);
	printf("random shards: %llu seeds, %llu frames, %llu resets; %s\n",
	       (unsigned long long)done, (unsigned long long)shared->frames,
	       (unsigned long long)shared->resets,
	       done < opts.count ? "one failed" : "none failed");
	return done < opts.count;
}
