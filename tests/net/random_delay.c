/* What is under way on a path: delayed, duplicated, reordered or lost. */
#include "tests/net/random.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PACKETS 8192u

static struct carried *heap[MOST_PACKETS]; /* by time */
static unsigned n_packets;
static uint64_t n_sent;

static bool is_before(const struct carried *a, const struct carried *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push_packet(struct carried *packet)
{
	unsigned i = n_packets;

	if (n_packets == MOST_PACKETS) {
		free(packet); /* the path is full: lost */
		return;
	}
	n_packets++;
	for (; i && is_before(packet, heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = packet;
}

static struct carried *pop_packet(void)
{
	struct carried *top = heap[0], *last = heap[--n_packets];
	unsigned i = 0, child;

	while ((child = 2 * i + 1) < n_packets) {
		if (child + 1 < n_packets &&
		    is_before(heap[child + 1], heap[child]))
			child++;
		if (!is_before(heap[child], last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return top;
}

void path_reset(void)
{
	while (n_packets)
		free(heap[--n_packets]);
	n_sent = 0;
}

int64_t path_next(void)
{
	return n_packets ? heap[0]->at : NEVER;
}

bool path_empty(void)
{
	return n_packets == 0;
}

struct carried *path_due(void)
{
	return path_next() <= fake_now_ns ? pop_packet() : NULL;
}

void path_carry(struct flow *flow, enum direction to, const uint8_t *frame,
		unsigned len)
{
	const struct path_draw *path = &flow->d->path[to];
	unsigned copies = 1 + rng_chance(&life.rng, path->dup);

	for (unsigned i = 0; i < copies; i++) {
		struct carried *packet;

		if (rng_chance(&life.rng, path->loss))
			continue;
		packet = malloc(sizeof(*packet) + len);
		if (!packet)
			abort();
		packet->at = fake_now_ns + path->delay;
		if (path->jitter)
			packet->at += (int64_t)(rng_next(&life.rng) %
						(uint64_t)path->jitter);
		if (rng_chance(&life.rng, path->reorder))
			packet->at +=
				path->delay * rng_between(&life.rng, 1, 4) / 2;
		packet->order = n_sent++;
		packet->flow = flow;
		packet->to = to;
		packet->len = len;
		memcpy(packet->frame, frame, len);
		ecn_travel(flow, to, packet->frame);
		push_packet(packet);
	}
}
