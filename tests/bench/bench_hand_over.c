/*
 * The cost of handing a frame over to another shard: a burst that arrives at
 * the shard of its flows, compared with one that arrives at another shard.
 * First one thread runs both shards over a ring, which is the work alone. Then
 * the other shard has a thread on another CPU, so that cache lines of frames
 * and rings move. Counts the time of both threads in the calls that move
 * frames.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk_glue/glue.h"
#include "tests/bytes.h"

#define LEN    60u
#define ROUNDS 20000u
#define TURNS  9u

static struct glue_port *ports[2];
static atomic_uint taken;     /* frames, by the other thread */
static atomic_llong taker_ns; /* time of the other thread in these calls */
static atomic_bool stop;
static atomic_int ready; /* of the other thread: 1, or -1 */

static struct glue_frame *new_frame(uint16_t src_port)
{
	struct glue_frame *f = glue_tx_alloc(ports[0], LEN);

	if (!f)
		abort();
	memset(f->data, 0, LEN);
	memcpy(f->data, "\2\0\0\0\0\1\2\0\0\0\0\2\10\0", 14);
	f->data[14] = 0x45;
	put16(f->data + 16, LEN - 14);
	f->data[23] = 6;
	memcpy(f->data + 26, "\12\0\0\2\12\0\0\1", 8);
	put16(f->data + 34, src_port);
	put16(f->data + 36, 7);
	f->data[46] = 0x50;
	f->flags = GLUE_FRAME_IP4 | GLUE_FRAME_TCP;
	f->l3_off = 14;
	f->l4_off = 34;
	return f;
}

static void pin_cpu(unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static int open_port(unsigned shard, char *error, size_t len)
{
	struct glue_port_conf conf = {.mtu = 1500, .shard = shard};

	return glue_port_open(0, &conf, &ports[shard], error, len);
}

/* The other shard's thread. */
static void *take_frames(void *arg)
{
	struct glue_frame *frames[GLUE_BURST];
	char *error = arg;

	pin_cpu(1);
	if (glue_thread_enter(1, error, 256) < 0 ||
	    open_port(1, error, 256) < 0) {
		ready = -1;
		return NULL;
	}
	ready = 1;
	while (!stop) {
		int64_t start = glue_now_ns();
		unsigned n = glue_rx(ports[1], frames, GLUE_BURST);

		if (n == 0)
			continue;
		for (unsigned i = 0; i < n; i++)
			glue_frame_free(frames[i]);
		taker_ns += glue_now_ns() - start;
		taken += n;
	}
	glue_port_close(ports[1]);
	glue_thread_leave();
	return NULL;
}

/* Returns ns per frame, of both threads. */
static double measure_apart(uint16_t src_port)
{
	struct glue_frame *frames[GLUE_BURST];
	int64_t ns = 0, start, before = taker_ns;

	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned was = taken;

		for (unsigned i = 0; i < GLUE_BURST; i++)
			glue_tx(ports[0], new_frame(src_port));
		glue_tx_flush(ports[0]);
		start = glue_now_ns();
		if (glue_rx(ports[0], frames, GLUE_BURST))
			abort();
		ns += glue_now_ns() - start;
		while (taken - was < GLUE_BURST)
			;
	}
	ns += taker_ns - before;
	return (double)ns / ROUNDS / GLUE_BURST;
}

/*
 * Returns ns per frame: to receive it, hand it to its owner, and free it there.
 */
static double measure(uint16_t src_port, unsigned owner)
{
	struct glue_frame *frames[GLUE_BURST];
	int64_t ns = 0, start;

	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned n;

		for (unsigned i = 0; i < GLUE_BURST; i++)
			glue_tx(ports[0], new_frame(src_port));
		glue_tx_flush(ports[0]);
		start = glue_now_ns();
		n = glue_rx(ports[0], frames, GLUE_BURST);
		if (owner == 1)
			n += glue_rx(ports[1], frames + n, GLUE_BURST);
		for (unsigned i = 0; i < n; i++)
			glue_frame_free(frames[i]);
		ns += glue_now_ns() - start;
		if (n != GLUE_BURST)
			abort();
	}
	return (double)ns / ROUNDS / GLUE_BURST;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, TURNS, sizeof(double), ascending);
	return values[TURNS / 2];
}

static void print_row(const char *where, double home, double over)
{
	printf("%s: arrives right %.1f ns, handed over %.1f ns, on top %.1f ns "
	       "a frame\n",
	       where, home, over, over - home);
}

static int run_hand_over(char *error, size_t len)
{
	uint16_t fold = glue_flow_fold("\12\0\0\2", "\12\0\0\1", 4);
	uint16_t src_ports[2] = {1000, 1000};
	double home[TURNS], over[TURNS];
	pthread_t taker;

	pin_cpu(0);
	for (unsigned i = 0; i < 2; i++) {
		if (open_port(i, error, len) < 0)
			return 1;
		while (glue_flow_shard(fold, src_ports[i], 7) != i)
			src_ports[i]++;
	}
	for (unsigned turn = 0; turn < TURNS; turn++) {
		home[turn] = measure(src_ports[0], 0);
		over[turn] = measure(src_ports[1], 1);
	}
	print_row("one thread", median(home), median(over));
	glue_port_close(ports[1]);
	if (pthread_create(&taker, NULL, take_frames, error))
		return 1;
	while (ready == 0)
		;
	for (unsigned turn = 0; turn < TURNS && ready > 0; turn++) {
		home[turn] = measure(src_ports[0], 0);
		over[turn] = measure_apart(src_ports[1]);
	}
	stop = true;
	pthread_join(taker, NULL);
	glue_port_close(ports[0]);
	if (ready < 0)
		return 1;
	print_row("two threads", median(home), median(over));
	return 0;
}

int main(void)
{
	struct glue_link link;
	char error[256] = "";
	struct glue_eal_conf conf = {.links = &link,
				     .n_links = 1,
				     .lcore = -1,
				     .n_shards = 2,
				     .huge_off = true,
				     .mtu = 1500,
				     .mem_mib = 256};
	int status = 1;

	if (glue_link_parse("ring:r0", &link, error, sizeof(error)) == 0 &&
	    glue_eal_start(&conf, error, sizeof(error)) == 0) {
		status = run_hand_over(error, sizeof(error));
		glue_eal_stop();
	}
	if (status)
		fprintf(stderr, "%s\n", error);
	return status;
}
