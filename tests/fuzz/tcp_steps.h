/*
 * Segments by the hundred, near enough to a connection's numbers to be taken
 * and far enough to be refused: an input is a list of steps, each a segment, a
 * time to wait or a call. The stack runs over tests/net's port of arrays.
 *
 * What must hold: lwIP's own assertions, the sanitizers, the form of all that
 * is sent, and that in the end nothing is kept: no block, no frame, no count.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who looks on: at each frame that leaves, and after each round. */
struct steps_watch {
	void (*frame)(const uint8_t *frame, unsigned len);
	void (*round)(void);
};

/* One stack, for any number of inputs; watch may be NULL. */
void steps_open(const struct steps_watch *watch, bool predict_off);
void steps_run(const uint8_t *data, size_t size);
void steps_close(void);
