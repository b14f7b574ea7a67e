/*
 * The queue that shards share in a random life: the bursts of a driver, on
 * DPDK's frames, which come from the pool of the queue as a card takes them.
 * This header has no names of lwIP, and its source none but DPDK's: the two
 * define the same ones.
 */
#pragma once

#include <stdbool.h>

#define QUEUE_FRAME_MAX 2048u

/*
 * Once the link is open, takes the driver's place, and posts as many free
 * buffers as its ring has descriptors. queue_close() undoes that.
 */
void queue_open(unsigned n_buffers);
void queue_close(void);
/* From now on, buffers are from another shard's pool, as of its own queue. */
void queue_take_from(unsigned shard);

/*
 * A frame arrives. It is lost if the ring is full of frames that the stack has
 * not taken yet, or if the pool has no buffer; only then false is returned.
 */
bool queue_put(const void *data, unsigned len);

/* Takes the frames that the stack has sent. */
void queue_take(void (*take)(const void *frame, unsigned len));

/* Frames of a shard's pool that are missing; -1: there is no such pool. */
int queue_missing(unsigned shard);
