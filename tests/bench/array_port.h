/*
 * dpdk_glue for benchmarks of the stack alone: a port whose frames are an array
 * in memory, and a clock that the benchmark moves. Each thread has its own. The
 * benchmark defines glue_rx() and glue_tx(), and so the received frames and the
 * use of sent ones.
 */
#pragma once

#include <stdint.h>

#include "dpdk_glue/glue.h"

/* The clock, in ns. */
extern _Thread_local int64_t array_now_ns;

/* Allocates frames of `room` bytes each, all free; exits without memory. */
void array_port_make(unsigned room);
void array_port_free(void);

/*
 * Returns a frame for a TCP segment over IPv4 of len bytes; NULL if none is
 * free or len is too large.
 */
struct glue_frame *array_take(unsigned len);
