/*
 * dpdk_glue/kernel_tap.h without a kernel: two arrays of frames in memory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dpdk_glue/kernel_tap.h"

#define FAKE_KERNEL_MAX 64

/* What the interface was opened with; the addresses are a copy. */
extern struct glue_kernel_tap_conf fake_kernel_conf;
extern struct glue_kernel_addr fake_kernel_addrs[64];

/* How many are open, and whether they take what they are given. */
extern unsigned fake_kernel_open;
extern bool fake_kernel_full;

/* How often it was asked for a frame. */
extern unsigned fake_kernel_reads;

/* Takes the oldest frame that the kernel was given: its bytes; 0: none. */
unsigned fake_kernel_got(uint8_t *data, unsigned room);

/* A frame that the kernel sends. */
void fake_kernel_send(const void *data, unsigned len);

/* Forgets all of it. */
void fake_kernel_reset(void);
