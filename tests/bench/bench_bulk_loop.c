/*
 * The cost of bulk transfer in the stack alone: both ends of each stream are on
 * one stack, over a port that returns every frame. Measures the CPU time of
 * both ends, which depends little on a busy machine; no checksums, no second
 * process. See --help.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "netstack/shard/shard.h"
#include "tests/bench/array_port.h"
#include "tests/bench/bulk.h"
#include "tests/command_line.h"

#define ROOM	 1600u
#define ROUND_NS 3000

enum how { COPIED, GIVEN, ECHOED, HOWS };

static const char *const how_names[HOWS] = {"copied", "given", "echoed"};

static uint8_t block[BULK_MAX];
static struct conf {
	unsigned mib;
	size_t size;
	struct command_runs streams;
} conf;
static uint64_t received;

/* ---- the port ---- */

/* Sent frames, in order; room for all. */
static struct glue_frame *sent[4096];
static unsigned head, tail;

unsigned glue_rx(struct glue_port *port, struct glue_frame **frames,
		 unsigned max)
{
	unsigned n = 0;

	for (; n < max && head != tail; n++)
		frames[n] = sent[head++ % 4096];
	return n;
}

static void swap_bytes(uint8_t *a, uint8_t *b, unsigned n)
{
	uint8_t kept[6];

	memcpy(kept, a, n);
	memcpy(a, b, n);
	memcpy(b, kept, n);
}

/* Swaps source and destination. */
static void return_frame(struct glue_frame *frame)
{
	uint8_t *data = frame->data;

	memcpy(data, "\2\0\0\0\0\1", 6);
	memcpy(data + 6, "\2\0\0\0\0\2", 6);
	swap_bytes(data + 26, data + 30, 4);
	frame->flags |= GLUE_FRAME_CSUM_OK;
}

/* Turns an ARP request into its reply. */
static void answer_arp(struct glue_frame *frame)
{
	uint8_t *arp = frame->data + 14;

	memcpy(frame->data, "\2\0\0\0\0\1\2\0\0\0\0\2", 12);
	arp[7] = 2;
	memcpy(arp + 18, arp + 8, 6);
	memcpy(arp + 8, "\2\0\0\0\0\2", 6);
	swap_bytes(arp + 14, arp + 24, 4);
	frame->flags = GLUE_FRAME_ARP;
}

void glue_tx(struct glue_port *port, struct glue_frame *frame)
{
	const uint8_t *data = frame->data;
	bool asks = data[12] == 8 && data[13] == 6 && data[21] == 1 &&
		    data[41] == 2;

	if (asks) {
		answer_arp(frame);
	} else if (frame->flags & GLUE_FRAME_TCP) {
		return_frame(frame);
	} else {
		glue_frame_free(frame);
		return;
	}
	sent[tail++ % 4096] = frame;
}

/* ---- the run ---- */

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * Runs until so many bytes more have arrived. Returns the mean number of frames
 * on the port at the end of a round, a queue made by the windows.
 */
static double transfer(uint64_t bytes)
{
	uint64_t until = received + bytes, waiting = 0, rounds = 0;

	while (received < until) {
		net_stack_round(bulk.stack);
		array_now_ns += ROUND_NS;
		waiting += tail - head;
		rounds++;
	}
	return (double)waiting / (double)rounds;
}

static void run_streams(enum how how, unsigned streams)
{
	struct net_listener *listener;
	struct net_opts opts;
	double begun_s, ns, waiting;

	array_port_make(ROOM);
	head = tail = 0;
	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:bulk";
	net_addr_parse_prefix("10.9.0.1/16", &opts.addrs[opts.n_addrs++]);
	opts.poll = NET_POLL_BUSY;
	if (net_stack_open(&opts, &bulk.stack) < 0 ||
	    net_listen(bulk.stack, &net_addr_any(BULK_PORT), 0, &listener) < 0)
		exit(1);
	bulk.given = how == GIVEN;
	bulk.echo = how == ECHOED;
	net_listener_serve(listener, bulk_serve, NULL);
	for (unsigned i = 0; i < streams; i++)
		net_spawn(bulk.stack, "send", bulk_send, NULL);
	transfer((uint64_t)conf.mib << 18);
	begun_s = cpu_seconds();
	waiting = transfer((uint64_t)conf.mib << 20);
	ns = (cpu_seconds() - begun_s) * 1e9 / conf.mib / 1024;
	printf("%4u streams, %s: %6.1f ns of CPU a KiB, %.0f frames wait\n",
	       streams, how_names[how], ns, waiting);
	fflush(stdout);
	net_stack_close(bulk.stack);
	array_port_free();
}

#define AT(member)  OPT_AT(struct conf, member)
#define STREAMS_MAX 1000u

static const struct opt rows[] = {
	{"mib", OPT_NUMBER, AT(mib), "MIB", "512", 1, 1u << 16,
	 .help = "MiB per run; a few are for callgrind, which counts "
		 "instructions",
	 .letter = 'm'},
	{"size", OPT_NUMBER, AT(size), "BYTES", "65536", 1, BULK_MAX,
	 .help = "Bytes that are handed over at once", .letter = 's'},
};

COMMAND_SET(loop_opts, rows, NULL);

static void add_streams(const struct argp_state *state, const char *arg)
{
	command_runs_add(&conf.streams, state, "STREAMS", arg, STREAMS_MAX);
}

int main(int argc, char **argv)
{
	static const struct command_line line = {
		.set = &loop_opts,
		.doc = "Measures bulk transfer in the stack alone, over "
		       "STREAMS connections in each run (default: 1, and 64).",
		.args_doc = "[STREAMS...]",
		.take_argument = add_streams,
	};

	command_line_read(&line, argc, argv, &conf);
	bulk = (struct bulk){.to = "10.9.0.2",
			     .block = block,
			     .size = conf.size,
			     .received = &received};
	for (enum how how = COPIED; how < HOWS; how++) {
		if (conf.streams.n == 0) {
			run_streams(how, 1);
			run_streams(how, 64);
		}
		for (unsigned i = 0; i < conf.streams.n; i++)
			run_streams(how, conf.streams.numbers[i]);
	}
	return 0;
}
