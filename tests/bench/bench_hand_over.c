/*
 * What it costs to hand a frame over: a burst that arrives at the shard of its
 * flows, beside one that arrives at another. One thread plays both shards over
 * a ring, so this is the work alone; between two cores there are cache misses
 * as well.
 */
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

static struct glue_frame *make(uint16_t src_port)
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

/* ns a frame: to receive it, to hand it to its owner, and to free it there. */
static double measure(uint16_t src_port, unsigned owner)
{
	struct glue_frame *frames[GLUE_BURST];
	int64_t ns = 0, start;

	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned n;

		for (unsigned i = 0; i < GLUE_BURST; i++)
			glue_tx(ports[0], make(src_port));
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

int main(void)
{
	struct glue_link link;
	char error[256];
	struct glue_eal_conf conf = {.links = &link,
				     .n_links = 1,
				     .lcore = -1,
				     .n_shards = 2,
				     .huge_off = true,
				     .mtu = 1500,
				     .mem_mib = 256};
	uint16_t fold = glue_flow_fold("\12\0\0\2", "\12\0\0\1", 4);
	uint16_t src_ports[2] = {1000, 1000};
	double home[TURNS], over[TURNS];

	if (glue_link_parse("ring:r0", &link, error, sizeof(error)) < 0 ||
	    glue_eal_start(&conf, error, sizeof(error)) < 0)
		goto failed;
	for (unsigned i = 0; i < 2; i++) {
		struct glue_port_conf port = {.mtu = 1500, .shard = i};

		if (glue_port_open(0, &port, &ports[i], error, sizeof(error)))
			goto failed;
		while (glue_flow_shard(fold, src_ports[i], 7) != i)
			src_ports[i]++;
	}
	for (unsigned turn = 0; turn < TURNS; turn++) {
		home[turn] = measure(src_ports[0], 0);
		over[turn] = measure(src_ports[1], 1);
	}
	qsort(home, TURNS, sizeof(double), ascending);
	qsort(over, TURNS, sizeof(double), ascending);
	printf("frame that arrives right  %6.1f ns\n"
	       "frame handed over         %6.1f ns\n"
	       "on top                    %6.1f ns (medians of %u turns)\n",
	       home[TURNS / 2], over[TURNS / 2],
	       over[TURNS / 2] - home[TURNS / 2], TURNS);
	glue_port_close(ports[0]);
	glue_port_close(ports[1]);
	glue_eal_stop();
	return 0;

failed:
	fprintf(stderr, "%s\n", error);
	return 1;
}
