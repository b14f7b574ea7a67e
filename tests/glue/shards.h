/*
 * Helpers for tests of shards: DPDK in a separate process, frames of flows, and
 * the checks in that process.
 */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpdk_glue/glue.h"
#include "tests/bytes.h"

#define LEN   60u
#define FLOWS 512u
#define WAIT_S                                                                 \
	300 /* bounds waits for events that take no time on an idle machine */
#define SHARDS_MAX 8u

static char error[256];
static struct glue_link links[2];

static inline bool out_of_time(time_t until)
{
	sched_yield();
	return time(NULL) > until;
}

static inline time_t deadline_s(void)
{
	return time(NULL) + WAIT_S;
}

/* Starts EAL for shards that are not pinned. */
static inline void start_eal(unsigned n_links, unsigned n_shards)
{
	struct glue_eal_conf conf = {
		.links = links,
		.n_links = n_links,
		.lcore = -1,
		.n_shards = n_shards,
		.huge_off = true,
		.mtu = 1500,
	};

	conf.mem_mib = 64;
	for (unsigned i = 0; i < n_links; i++)
		conf.mem_mib += glue_link_shards_mem_mib(&links[i], n_shards);
	if (glue_eal_start(&conf, error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		exit(2);
	}
}

static inline struct glue_port *open_port(unsigned index, unsigned shard)
{
	struct glue_port_conf conf = {.mtu = 1500, .shard = shard};
	struct glue_port *port = NULL;

	if (glue_port_open(index, &conf, &port, error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		exit(2);
	}
	return port;
}

#define CHECK(condition)                                                       \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__,     \
				#condition);                                   \
			exit(1);                                               \
		}                                                              \
	} while (0)

/* DPDK's EAL starts once in a process, so each test has its own process. */
static inline void in_child(void (*test)(void))
{
	pid_t pid = fork();
	int status = -1;

	assert_true(pid >= 0);
	if (pid == 0) {
		test();
		glue_eal_stop();
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- frames ---- */

/* A segment of flow `flow`; its number is in the payload. */
static inline struct glue_frame *make_segment(struct glue_port *port,
					      unsigned flow, uint32_t number)
{
	struct glue_frame *f = glue_tx_alloc(port, LEN);
	uint8_t *ip;

	if (!f)
		return NULL;
	memset(f->data, 0, LEN);
	memcpy(f->data, "\2\0\0\0\0\1\2\0\0\0\0\2\10\0", 14);
	ip = f->data + 14;
	ip[0] = 0x45;
	put16(ip + 2, LEN - 14);
	ip[8] = 64;
	ip[9] = 6;
	memcpy(ip + 12, "\12\0\0\2\12\0\0\1", 8);
	put16(ip + 20, 1000 + flow);
	put16(ip + 22, 7);
	ip[32] = 0x50;
	put32(ip + 40, number);
	f->flags = GLUE_FRAME_IP4 | GLUE_FRAME_TCP;
	f->l3_off = 14;
	f->l4_off = 34;
	return f;
}

static inline unsigned flow_of(const struct glue_frame *f)
{
	return get16(f->data + 34) - 1000;
}

static inline unsigned shard_of(unsigned flow)
{
	uint16_t fold = glue_flow_fold("\12\0\0\2", "\12\0\0\1", 4);

	return glue_flow_shard(fold, (uint16_t)(1000 + flow), 7);
}

static inline struct glue_port_stats stats_of(struct glue_port *port)
{
	struct glue_port_stats stats;

	glue_port_stats(port, &stats);
	return stats;
}

#define IN_CHILD(name)                                                         \
	static void test_##name(void **state)                                  \
	{                                                                      \
		in_child(name);                                                \
	}
