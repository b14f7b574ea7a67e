/*
 * Buffers and copies that wait to be sent.
 */
#include "apps/echo/uring_queue.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static uint16_t pop_buf(struct uring_queue *queue,
			const struct uring_ring *ring)
{
	uint16_t id = queue->first;

	queue->first = ring->next_buf[id];
	queue->n_bufs--;
	return id;
}

static void pop_piece(struct uring_queue *queue)
{
	struct uring_piece *piece = queue->kept;

	queue->kept = piece->next;
	if (!queue->kept)
		queue->kept_end = &queue->kept;
	free(piece);
}

static int keep(struct uring_queue *queue, const char *data, uint32_t len)
{
	struct uring_piece *piece = malloc(sizeof(*piece) + len);

	if (!piece)
		return -ENOMEM;
	memcpy(piece->data, data, len);
	piece->from = 0;
	piece->to = len;
	piece->next = NULL;
	*queue->kept_end = piece;
	queue->kept_end = &piece->next;
	return 0;
}

int uring_queue_push(struct uring_queue *queue, struct uring_ring *ring,
		     uint16_t id, uint32_t len)
{
	int err;

	if (queue->kept) {
		err = keep(queue, uring_buf(ring, id), len);
		uring_buf_return(ring, id);
		return err;
	}
	ring->buf_len[id] = len;
	if (queue->n_bufs++ == 0)
		queue->first = id;
	else
		ring->next_buf[queue->last] = id;
	queue->last = id;
	return 0;
}

int uring_queue_sent(struct uring_queue *queue, struct uring_ring *ring,
		     uint32_t n, uint32_t sent)
{
	uint32_t len, part;
	bool all = true;
	int err = 0;
	uint16_t id;

	while (queue->n_bufs && (n > 0 || !all)) {
		id = pop_buf(queue, ring);
		len = ring->buf_len[id];
		part = sent < len ? sent : len;
		sent -= part;
		if (part < len) {
			all = false;
			if (err == 0)
				err = keep(queue, uring_buf(ring, id) + part,
					   len - part);
		}
		uring_buf_return(ring, id);
		n -= n > 0;
	}
	return err;
}

void uring_queue_kept_sent(struct uring_queue *queue, uint32_t sent)
{
	queue->kept->from += sent;
	if (queue->kept->from == queue->kept->to)
		pop_piece(queue);
}

void uring_queue_clear(struct uring_queue *queue, struct uring_ring *ring)
{
	while (queue->n_bufs)
		uring_buf_return(ring, pop_buf(queue, ring));
	while (queue->kept)
		pop_piece(queue);
}
