/*
 * What a connection has received and not sent yet: buffers of its thread's
 * pool, or copies of what the socket did not take. There are never both, so
 * that slow peers leave the pool to the others.
 */
#pragma once

#include <stdint.h>

#include "apps/echo/uring_ring.h"

/* A copy; owned by the queue. */
struct uring_piece {
	struct uring_piece *next;
	uint32_t from, to; /* still to be sent: data[from] to data[to - 1] */
	char data[];
};

struct uring_queue {
	uint16_t first, last; /* n_bufs of the pool, by ring->next_buf */
	uint32_t n_bufs;
	struct uring_piece *kept, **kept_end;
};

static inline void uring_queue_init(struct uring_queue *queue)
{
	*queue = (struct uring_queue){.kept_end = &queue->kept};
}

static inline int uring_queue_empty(const struct uring_queue *queue)
{
	return queue->n_bufs == 0 && !queue->kept;
}

/*
 * Takes a lent buffer with len bytes in it, or a copy of them, and gives the
 * buffer back: 0 or -ENOMEM.
 */
int uring_queue_push(struct uring_queue *queue, struct uring_ring *ring,
		     uint16_t id, uint32_t len);

/*
 * Of the first n buffers the first `sent` bytes have gone. If that was not all,
 * the rest of them is copied, and the buffers behind them: 0 or -ENOMEM.
 */
int uring_queue_sent(struct uring_queue *queue, struct uring_ring *ring,
		     uint32_t n, uint32_t sent);

/* Of the first copy `sent` bytes have gone. */
void uring_queue_kept_sent(struct uring_queue *queue, uint32_t sent);

/* Gives everything back. */
void uring_queue_clear(struct uring_queue *queue, struct uring_ring *ring);
