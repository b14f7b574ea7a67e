/*
 * dpdk_glue for benchmarks of the stack alone: a port whose frames are an array
 * in memory, and a clock that the benchmark moves. Each thread has its own.
 * What arrives and what becomes of what is sent is the benchmark's affair: it
 * defines glue_rx() and glue_tx().
 */
#pragma once

#include <stdint.h>

#include "dpdk_glue/glue.h"

/* The clock, in ns. */
extern _Thread_local int64_t array_now_ns;

/* Frames of `room` bytes each, all of them free; ends the program without. */
void array_port_make(unsigned room);
void array_port_free(void);

/* A TCP segment over IPv4 of len bytes; NULL: none is free, or it is longer. */
struct glue_frame *array_take(unsigned len);
