/*
 * The cost of bulk transfer in the stack alone: both ends of each stream are on
 * one stack, over a port that returns every frame. Measures the CPU time of
 * both ends, which depends little on a busy machine; no checksums, no second
 * process. Usage: bench-bulk-loop [-m MIB] [-s BYTES] [STREAMS...]; BYTES are
 * handed over at once. A few MiB are for callgrind, which counts instructions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "netstack/shard/shard.h"
#include "tests/bench/array_port.h"
#include "tests/bench/bulk.h"

#define ROOM	 1600u
#define ROUND_NS 3000

enum how { COPIED, GIVEN, ECHOED, HOWS };

static const char *const how_names[HOWS] = {"copied", "given", "echoed"};

static uint8_t block[BULK_MAX];
static unsigned mib = 512;
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

static void swap(uint8_t *a, uint8_t *b, unsigned n)
{
	uint8_t kept[6];

	memcpy(kept, a, n);
	memcpy(a, b, n);
	memcpy(b, kept, n);
}

/* Swaps source and destination. */
static void turn(struct glue_frame *frame)
{
	uint8_t *data = frame->data;

	memcpy(data, "\2\0\0\0\0\1", 6);
	memcpy(data + 6, "\2\0\0\0\0\2", 6);
	swap(data + 26, data + 30, 4);
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
	swap(arp + 14, arp + 24, 4);
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
		turn(frame);
	} else {
		glue_frame_free(frame);
		return;
	}
	sent[tail++ % 4096] = frame;
}

/* ---- the run ---- */

static double cpu_s(void)
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

static void run(enum how how, unsigned streams)
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
	transfer((uint64_t)mib << 18);
	begun_s = cpu_s();
	waiting = transfer((uint64_t)mib << 20);
	ns = (cpu_s() - begun_s) * 1e9 / mib / 1024;
	printf("%4u streams, %s: %6.1f ns of CPU a KiB, %.0f frames wait\n",
	       streams, how_names[how], ns, waiting);
	fflush(stdout);
	net_stack_close(bulk.stack);
	array_port_free();
}

static unsigned number(const char *text, unsigned most)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || end == text || n == 0 || n > most) {
		fprintf(stderr,
			"bench-bulk-loop: '%s' is no number from 1 to %u, as "
			"in: bench-bulk-loop -m 512 -s 65536 1 64\n",
			text, most);
		exit(2);
	}
	return (unsigned)n;
}

int main(int argc, char **argv)
{
	int opt;

	bulk = (struct bulk){.to = "10.9.0.2",
			     .block = block,
			     .size = 65536,
			     .received = &received};
	while ((opt = getopt(argc, argv, "m:s:")) == 'm' || opt == 's')
		if (opt == 'm')
			mib = number(optarg, 1u << 16);
		else
			bulk.size = number(optarg, BULK_MAX);
	if (opt != -1)
		return 2;
	for (enum how how = COPIED; how < HOWS; how++) {
		if (optind == argc) {
			run(how, 1);
			run(how, 64);
		}
		for (int i = optind; i < argc; i++)
			run(how, number(argv[i], 1000));
	}
	return 0;
}
