/*
 * Statistics: the counters, and the line that --stats prints.
 */
#include "netstack/program/log.h"
#include "netstack/shard/shard.h"

#include <inttypes.h>
#include <stdio.h>

void net_stack_stats(struct net_stack *stack, struct net_stats *out)
{
	*out = stack->stats;
	out->log_dropped = net_log_dropped();
	out->conns = stack->n_conns;
	out->memory_bytes = net_budget_used();
	out->memory_max_bytes = net_budget_whole();
	for (unsigned i = 0; i < stack->n_ports; i++) {
		struct glue_port_stats s;

		glue_port_stats(stack->ports[i].glue, &s);
		out->rx_frames += s.rx_frames;
		out->rx_bytes += s.rx_bytes;
		out->rx_bad_frame += s.rx_bad_frame;
		out->rx_refused += s.rx_refused;
		out->rx_bad_csum += s.rx_bad_csum;
		out->rx_missed += s.rx_missed;
		out->tx_frames += s.tx_frames;
		out->tx_bytes += s.tx_bytes;
		out->tx_dropped += s.tx_dropped + s.tx_no_frame;
		out->frames_free += glue_port_frames_free(stack->ports[i].glue);
		out->frames += glue_port_frames(stack->ports[i].glue);
	}
}

struct memory {
	uint64_t resident_kib, huge_kib;
};

/* Cold: it opens a file. Zeros where there is no /proc. */
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
 * All the process holds; hugepages are no part of what Linux calls resident.
 * What a connection takes is what has come on top since the stack opened.
 */
static void format_memory(const struct net_stack *stack, unsigned conns,
			  char *text, size_t room)
{
	struct memory now = read_memory();
	uint64_t all_kib = now.resident_kib + now.huge_kib;
	char huge[48] = "", each[48] = "";

	if (now.huge_kib)
		snprintf(huge, sizeof(huge), " and %.1f MiB of hugepages",
			 (double)now.huge_kib / 1024);
	if (conns >= 1000 && all_kib > stack->opened_kib)
		snprintf(each, sizeof(each), ", %.0f B a connection",
			 (double)(all_kib - stack->opened_kib) * 1024 / conns);
	snprintf(text, room, ", %.1f MiB resident%s%s",
		 (double)now.resident_kib / 1024, huge, each);
}

uint64_t net_resident_kib(void)
{
	struct memory now = read_memory();

	return now.resident_kib + now.huge_kib;
}

void net_stats_start(struct net_stack *stack)
{
	stack->opened_kib = net_resident_kib();
}

__attribute__((noinline)) void net_stats_say(struct net_stack *stack)
{
	double s = (double)stack->stats_ns / 1e9;
	struct net_stats now, *was = &stack->stats_last;
	char memory[160];

	net_stack_stats(stack, &now);
	format_memory(stack, now.conns, memory, sizeof(memory));
	net_log("stats: rx %.0f/s tx %.0f/s frames, %.2f/%.2f Gbit/s, %u "
		"connections, +%" PRIu64 " accepted, %" PRIu64
		" dropped, %" PRIu64 " bad, %u of %u frames free%s",
		(double)(now.rx_frames - was->rx_frames) / s,
		(double)(now.tx_frames - was->tx_frames) / s,
		(double)(now.rx_bytes - was->rx_bytes) * 8e-9 / s,
		(double)(now.tx_bytes - was->tx_bytes) * 8e-9 / s, now.conns,
		now.accepted - was->accepted, now.tx_dropped + now.rx_missed,
		now.rx_bad_csum + now.rx_bad_frame, now.frames_free, now.frames,
		memory);
	*was = now;
	stack->next_stats_ns = stack->now_ns + stack->stats_ns;
}
