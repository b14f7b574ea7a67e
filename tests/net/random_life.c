/*
 * One life: opens a stack, runs its connections as drawn, and checks that all
 * memory is free when they have ended. The clock jumps from one event to the
 * next.
 */
#include "tests/net/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST	   (4 * 3600 * SECOND)
#define MOST_ROUND 20000000u

struct life life;

/* ---- beginning ---- */

static void open_stack(void)
{
	struct net_opts opts;

	draw_opts(&life.draw, &opts);
	opts.timestamps_off = life.draw.ts_off;
	opts.ecn = life.draw.ecn;
	opts.predict_off = !differ_predicts();
	if (net_stack_open(&opts, &life.stack) < 0 ||
	    net_listen(life.stack, &net_addr_any(PORT), 8, &life.listener) < 0)
		violated(NULL, "no stack: %s", opts.error);
	net_listener_serve(life.listener, app_serve, NULL);
}

/* Advances the clock until the stack's ISN is this far before the wrap. */
static void wait_for_isn(const struct flow *flow, uint32_t before_wrap)
{
	ip_addr_t local, remote;
	uint32_t isn;

	path_addresses(&local, &remote);
	isn = net_isn(&local, flow->stack_port, &remote, flow->peer_port);
	fake_now_ns += (int64_t)(0 - before_wrap - isn) * 4000;
}

static void init_flow(struct flow *flow, unsigned index)
{
	const struct draw *d = &life.draw.flow[index];
	uint64_t seed = life.draw.seed * 64 + index * 2;

	memset(flow, 0, sizeof(*flow));
	flow->d = d;
	flow->index = index;
	flow->rng.state = seed ^ UINT64_C(0x9ee7000000);
	flow->app_rng.state = seed ^ UINT64_C(0xa99000000);
	flow->ts.rng.state = seed ^ UINT64_C(0x57a3b00000);
	flow->ecn.rng.state = seed ^ UINT64_C(0xec30000000);
	flow->ecn.echoes_bits = rng_chance(&flow->ecn.rng, 50);
	flow->peer_port = (uint16_t)(1000 + index);
	flow->stack_port = d->dialed ? (uint16_t)(2000 + index) : PORT;
	flow->isn = (uint32_t)rng_next(&flow->rng);
	if (d->near_wrap)
		flow->isn = 0 - rng_between(&flow->rng, 1, d->in_bytes + 2000);
}

static void begin_life(uint64_t seed, bool sender)
{
	memset(&life, 0, sizeof(life));
	draw_life(seed, sender, &life.draw);
	if (over_ip6 && life.draw.mtu < 1280) /* RFC 8200 5 */
		life.draw.mtu = 1280;
	life.rng.state = seed ^ UINT64_C(0x9a7400000);
	if (verbose)
		draw_print(&life.draw);
	make_pattern();
	seed_entropy(seed);
	open_stack();
	for (unsigned i = 0; i < life.draw.n_flows; i++)
		init_flow(&life.flows[i], i);
	if (life.flows[0].d->near_wrap)
		wait_for_isn(&life.flows[0],
			     rng_between(&life.rng, 1,
					 life.flows[0].d->out_bytes + 3000));
	net_stack_round(life.stack);
	path_collect();
	life.start = fake_now_ns;
	work_start();
	life.next_starve = life.draw.starve_every
				   ? life.start + life.draw.starve_every
				   : NEVER;
	life.starve_end = NEVER;
	life.memory = net_mem_live_bytes();
	for (unsigned i = 0; i < life.draw.n_flows; i++) {
		life.flows[i].watch.heard = life.start;
		if (life.flows[i].d->dialed)
			app_dial(&life.flows[i]);
		else
			peer_start(&life.flows[i]);
	}
	trouble_begin();
	fault_arm(life.draw.fault_from, life.draw.fault_count,
		  life.draw.fault_rate);
}

/* ---- running a life ---- */

static void starve_port(void)
{
	if (fake_now_ns >= life.next_starve) {
		life.starving = true;
		life.starve_end = fake_now_ns + life.draw.starve_for;
		life.next_starve = NEVER;
		fake_tx_budget = (int)rng_below(&life.rng, 3);
	} else if (fake_now_ns >= life.starve_end) {
		life.starving = false;
		life.next_starve = fake_now_ns + life.draw.starve_every;
		life.starve_end = NEVER;
		fake_tx_budget = -1;
	}
}

static int64_t next_event(void)
{
	int64_t next = path_next();

	if (coro_sched_ready(life.stack->sched) ||
	    (net_here()->output.head != net_here()->output.tail &&
	     fake_tx_budget != 0))
		next = earlier(next, fake_now_ns + 5000);
	next = earlier(next, coro_sched_next_ns(life.stack->sched));
	next = earlier(next, earlier(life.next_starve, life.starve_end));
	next = earlier(next, trouble_due());
	for (unsigned i = 0; i < life.draw.n_flows; i++) {
		next = earlier(next, peer_due(&life.flows[i]));
		next = earlier(next, app_disturb_due(&life.flows[i]));
	}
	next = earlier(next, fake_now_ns + SECOND);
	return next > fake_now_ns ? next : fake_now_ns + 1000;
}

static void run_round(void)
{
	uint64_t before = life.frames, in;

	fake_now_ns = next_event();
	starve_port();
	trouble_run();
	path_deliver();
	for (unsigned i = 0; i < life.draw.n_flows; i++) {
		peer_run(&life.flows[i]);
		app_disturb(&life.flows[i]);
	}
	in = life.frames - before;
	before = in / GLUE_BURST; /* a round takes one */
	for (uint64_t i = 0; i <= before; i++) {
		uint64_t out = life.frames;

		work_begin();
		net_stack_round(life.stack);
		fault_step();
		path_collect();
		work_end((unsigned)(in + life.frames - out));
		life.rounds++;
	}
	check_round();
	differ_round();
}

static bool is_over(void)
{
	if (net_here()->n_conns || net_here()->half_open || !path_empty())
		return false;
	for (unsigned i = 0; i < life.draw.n_flows; i++)
		if (!app_over(&life.flows[i]) || !peer_over(&life.flows[i]))
			return false;
	return !coro_sched_ready(life.stack->sched);
}

/* ---- ending ---- */

static void end_life(void)
{
	fault_disarm();
	trouble_end();
	for (unsigned i = 0; i < 3;
	     i++) { /* loans come back, timers are over */
		fake_tx_budget = -1;
		fake_now_ns += 30 * SECOND;
		net_stack_round(life.stack);
		path_collect();
	}
	net_stack_round(life.stack); /* a neighbour's answer to the last */
	for (unsigned i = 0; i < life.draw.n_flows; i++)
		check_flow_end(&life.flows[i]);
	check_life_end();
	net_stack_close(life.stack);
	path_reset();
}

void life_run(uint64_t seed, bool sender)
{
	begin_life(seed, sender);
	while (!is_over()) {
		run_round();
		if (fake_now_ns - life.start > LONGEST)
			violated(NULL, "does not end");
		if (life.rounds > MOST_ROUND)
			violated(NULL, "%llu rounds and no end",
				 (unsigned long long)life.rounds);
	}
	end_life();
}
