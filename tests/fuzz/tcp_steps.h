/*
 * Hundreds of segments with sequence numbers close to a connection's window. An
 * input is a list of steps, each a segment, a time to wait or a call. The stack
 * runs over tests/net's port of arrays.
 *
 * Checks: lwIP's own assertions, the sanitizers, the form of all sent segments,
 * and that at the end nothing is held: no memory, no frame, no count.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called at each frame that leaves, and after each round. */
struct steps_watch {
	void (*frame)(const uint8_t *frame, unsigned len);
	void (*round)(void);
};

/* One stack, for any number of inputs; watch may be NULL. */
void steps_open(const struct steps_watch *watch, bool predict_off);
void steps_run(const uint8_t *data, size_t size);
void steps_close(void);
