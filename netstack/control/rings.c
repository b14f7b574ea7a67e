/*
 * How many connections keep their last events: --trace-conns, and changes while
 * the program runs.
 */
#include "netstack/control/control_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "netstack/options/opt.h"

/* The control thread's, once it runs. */
static unsigned kept;

void net_rings_begin(const struct net_opts *opts)
{
	kept = opts->trace_conns;
}

struct keep {
	unsigned n;
	int err;
};

static bool keep_step(void *data)
{
	struct keep *keep = data;

	keep->err = net_traces_keep(keep->n);
	return true;
}

static int keep_on(unsigned shard, unsigned n)
{
	struct net_ask *ask = net_ask_new(keep_step, sizeof(struct keep));
	struct keep *keep;
	int err;

	if (!ask)
		return -ENOMEM;
	keep = (void *)ask->data;
	keep->n = net_part_of(n, net_ask_shards(), shard);
	err = net_ask_run(ask, shard);
	if (err == 0)
		err = keep->err;
	net_ask_put(ask);
	return err;
}

/* Sets the number on all shards or none. */
static cJSON *keep_all(unsigned n)
{
	int err = net_ask_shards() ? 0 : -EAGAIN;
	unsigned s = 0;

	while (err == 0 && s < net_ask_shards()) {
		err = keep_on(s, n);
		s += err == 0;
	}
	if (err == 0) {
		kept = n;
		return NULL;
	}
	for (unsigned back = 0; back < s; back++)
		keep_on(back, kept);
	return net_control_ask_error(s, err);
}

static cJSON *trace_conns(const char *params)
{
	cJSON *to = NULL;
	uint64_t n;

	if (params) {
		if (opt_parse_number(params, 0, NET_TRACE_MAX, &n) < 0)
			return net_control_error(
				"'%s': expected a number of connections, from "
				"0 to %u",
				params, NET_TRACE_MAX);
		to = keep_all((unsigned)n);
	}
	if (to)
		return to;
	to = cJSON_CreateObject();
	net_control_number(to, "trace_conns", kept);
	return to;
}

const struct net_command net_ring_commands[] = {
	{"/coronet/trace.conns",
	 "How many connections at a time keep their last events. Parameter: a "
	 "number, which applies to connections that begin later",
	 trace_conns},
	{0},
};
