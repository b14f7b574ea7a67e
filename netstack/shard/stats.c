/*
 * Statistics: the counters of shards, and the line that --stats prints.
 */
#include "netstack/control/counters.h"
#include "netstack/program/log.h"
#include "netstack/shard/shard.h"
#include "netstack/shard_var.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add_words(void *to, const void *from, size_t bytes)
{
	const uint64_t *words = from;
	uint64_t *sums = to;

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		sums[i] += words[i];
}

static void add_port_counter(struct net_stats *to,
			     const struct glue_port_stats *port,
			     const struct net_counter *counter)
{
	if (counter->port_at)
		add_words((char *)to + counter->at,
			  (const char *)port + counter->port_at - 1,
			  sizeof(uint64_t));
}

static void add_port(struct net_stats *to, const struct glue_port_stats *port)
{
	for (unsigned i = 0; i < net_n_metric_families; i++)
		for (unsigned k = 0; k < net_metric_families[i].n; k++)
			add_port_counter(to, port,
					 &net_metric_families[i].counters[k]);
}

void net_stack_stats(struct net_stack *stack, struct net_stats *out)
{
	*out = stack->stats;
	out->log_dropped = net_log_dropped();
	out->conns = stack->n_conns;
	out->half_open = stack->half_open;
	out->time_wait = net_time_waits.n;
	out->closing = net_orphans.n;
	out->memory_bytes = net_budget_used();
	out->memory_max_bytes = net_budget_whole();
	for (unsigned i = 0; i < stack->n_ports; i++) {
		struct glue_port_stats s;

		glue_port_stats(stack->ports[i].glue, &s);
		add_port(out, &s);
		out->frames_free += glue_port_frames_free(stack->ports[i].glue);
		out->frames += glue_port_frames(stack->ports[i].glue);
	}
}

/* What the process held once the shard was open. */
static NET_SHARD_VAR uint64_t opened_kib;
#define opened_kib NET_SHARD(opened_kib)

struct memory {
	uint64_t resident_kib, huge_kib;
};

/* Cold: it opens a file. Zeros if there is no /proc. */
static struct memory read_memory(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	struct memory memory = {0};
	char line[256];

	if (!status)
		return memory;
	while (fgets(line, sizeof(line), status)) {
		sscanf(line, "VmRSS: %" SCNu64, &memory.resident_kib);
		sscanf(line, "HugetlbPages: %" SCNu64, &memory.huge_kib);
	}
	fclose(status);
	return memory;
}

/*
 * Formats all that the process holds; hugepages are no part of what Linux calls
 * resident. What a connection takes is what has come on top since the stack
 * opened.
 */
static void format_memory(unsigned conns, char *text, size_t room)
{
	struct memory now = read_memory();
	uint64_t all_kib = now.resident_kib + now.huge_kib;
	char huge[48] = "", each[48] = "";

	if (now.huge_kib)
		snprintf(huge, sizeof(huge), " and %.1f MiB of hugepages",
			 (double)now.huge_kib / 1024);
	if (conns >= 1000 && all_kib > opened_kib)
		snprintf(each, sizeof(each), ", %.0f B a connection",
			 (double)(all_kib - opened_kib) * 1024 / conns);
	snprintf(text, room, ", %.1f MiB resident%s%s",
		 (double)now.resident_kib / 1024, huge, each);
}

uint64_t net_resident_kib(void)
{
	struct memory now = read_memory();

	return now.resident_kib + now.huge_kib;
}

void net_stats_start(void)
{
	opened_kib = net_resident_kib();
}

/* ---- totals of all shards ---- */

static void add_counter(struct net_stats *to, const struct net_stats *from,
			const struct net_counter *counter)
{
	void *sum = (char *)to + counter->at;
	const void *add = (const char *)from + counter->at;

	if (counter->bytes == sizeof(unsigned))
		*(unsigned *)sum += *(const unsigned *)add;
	else
		add_words(sum, add, counter->bytes);
}

void net_stats_sum(struct net_stats *out, const struct net_stats *shards,
		   unsigned n)
{
	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < net_n_metric_families; i++) {
		const struct net_metric_family *family =
			&net_metric_families[i];
		unsigned n_added = family->is_program ? 1 : n;

		for (unsigned k = 0; k < family->n; k++)
			for (unsigned shard = 0; shard < n_added; shard++)
				add_counter(out, &shards[shard],
					    &family->counters[k]);
	}
}

static void log_totals(const struct net_stack *stack,
		       const struct net_stats *now, const struct net_stats *was,
		       double s)
{
	char memory[160], vlan[48] = "", half[32] = "", kernel[128] = "";

	format_memory(now->conns, memory, sizeof(memory));
	if (now->half_open)
		snprintf(half, sizeof(half), ", %u half open", now->half_open);
	if (now->rx_other_vlan)
		snprintf(vlan, sizeof(vlan), ", %" PRIu64 " of other VLANs",
			 now->rx_other_vlan);
	if (stack->shares_ports)
		snprintf(kernel, sizeof(kernel),
			 ", to kernel %.0f/s from %.0f/s (%" PRIu64
			 " over the rate, %" PRIu64 " dropped)",
			 (double)(now->to_kernel - was->to_kernel) / s,
			 (double)(now->from_kernel - was->from_kernel) / s,
			 now->kernel_limited, now->kernel_dropped);
	net_log_of(NET_COMPONENT_STATS, NET_LOG_NOTICE,
		   "stats: rx %.0f/s tx %.0f/s frames, %.2f/%.2f Gbit/s, %u "
		   "connections%s, +%" PRIu64 " accepted, %" PRIu64
		   " dropped, %" PRIu64 " bad%s%s, %u of %u frames free%s",
		   (double)(now->rx_frames - was->rx_frames) / s,
		   (double)(now->tx_frames - was->tx_frames) / s,
		   (double)(now->rx_bytes - was->rx_bytes) * 8e-9 / s,
		   (double)(now->tx_bytes - was->tx_bytes) * 8e-9 / s,
		   now->conns, half, now->accepted - was->accepted,
		   now->tx_dropped + now->tx_no_frame + now->rx_missed,
		   now->rx_bad_csum + now->rx_bad_frame, vlan, kernel,
		   now->frames_free, now->frames, memory);
}

static void log_shard(unsigned shard, const struct net_stats *now,
		      const struct net_stats *was, double s)
{
	net_log_of(
		NET_COMPONENT_STATS, NET_LOG_NOTICE,
		"stats: shard %u: busy %.0f %%, rx %.0f/s tx %.0f/s frames, %u "
		"connections, +%" PRIu64
		" accepted, handed over %.0f/s (%" PRIu64
		" dropped), taken over %.0f/s",
		shard, (double)(now->busy_ns - was->busy_ns) / 1e7 / s,
		(double)(now->rx_frames - was->rx_frames) / s,
		(double)(now->tx_frames - was->tx_frames) / s, now->conns,
		now->accepted - was->accepted,
		(double)(now->handed_over - was->handed_over) / s,
		now->rx_hand_over_full,
		(double)(now->taken_over - was->taken_over) / s);
}

__attribute__((noinline)) void net_stats_log(const struct net_stack *stack,
					     const struct net_stats *now,
					     const struct net_stats *was,
					     unsigned n, double s)
{
	struct net_stats all_now, all_was;

	net_stats_sum(&all_now, now, n);
	net_stats_sum(&all_was, was, n);
	log_totals(stack, &all_now, &all_was, s);
	for (unsigned i = 0; n > 1 && i < n; i++)
		log_shard(i, &now[i], &was[i], s);
}
