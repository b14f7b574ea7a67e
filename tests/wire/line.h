/*
 * Frames under way: a bounded queue ordered by the time they leave, and by the
 * order they came in where times are equal.
 */
#pragma once

#include <stdint.h>

struct wire_line;

/* Room for max items. Returns 0 or -ENOMEM; *out is owned by the caller. */
int wire_line_open(unsigned max, struct wire_line **out);

/* Items still in are the caller's; pop them before. */
void wire_line_close(struct wire_line *line);

/* Returns 0, or -ENOBUFS when the line is full; the item is borrowed. */
int wire_line_push(struct wire_line *line, int64_t leaves_ns, void *item);

/* The next item that leaves at now_ns or before; NULL when there is none. */
void *wire_line_pop(struct wire_line *line, int64_t now_ns);

/* When the next item leaves; INT64_MAX when the line is empty. */
int64_t wire_line_next_ns(const struct wire_line *line);

unsigned wire_line_count(const struct wire_line *line);
