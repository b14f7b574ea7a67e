/*
 * dpdk_glue/kernel_tap.h without a kernel: two arrays of frames in memory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dpdk_glue/kernel_tap.h"

#define FAKE_KERNEL_MAX 64

/* The configuration that opened the interface; the addresses are a copy. */
extern struct glue_kernel_tap_conf fake_kernel_conf;
extern struct glue_kernel_addr fake_kernel_addrs[64];

/* The number of open interfaces, and whether they accept frames. */
extern unsigned fake_kernel_open;
extern bool fake_kernel_full;

/* The number of polls for a frame. */
extern unsigned fake_kernel_reads;

/* Takes the oldest frame that the kernel got; returns its length, 0: none. */
unsigned fake_kernel_got(uint8_t *data, unsigned room);

/* Queues a frame that the kernel sends. */
void fake_kernel_send(const void *data, unsigned len);

/* Discards all frames. */
void fake_kernel_reset(void);
