/*
 * A thread's io_uring with its pool of buffers that the kernel receives into.
 *
 * The pool is made and freed by any thread; the ring belongs to the thread that
 * calls uring_ring_begin(). A buffer belongs to the kernel until a completion
 * names it, then to the caller until uring_buf_return().
 */
#pragma once

#include <liburing.h>
#include <stdint.h>

/* Tests build with a small ring, and with the second choice of flags. */
#ifndef URING_SQ_ENTRIES
#define URING_SQ_ENTRIES 1024
#define URING_CQ_ENTRIES 8192
#define URING_BUFS	 1024 /* a power of two */
#define URING_BUF_SIZE	 16384
#endif
#ifndef URING_FIRST_SETUP
#define URING_FIRST_SETUP 0
#endif

struct uring_ring {
	struct io_uring uring;
	struct io_uring_buf_ring *entries; /* what the kernel may fill */
	char *memory;			   /* of all buffers */
	uint32_t lent;			   /* buffers that are the caller's */
	int returned;			   /* given back since the last flush */
	/* Of lent buffers: what they hold, and the next one in a queue. */
	uint32_t buf_len[URING_BUFS];
	uint16_t next_buf[URING_BUFS];
};

/*
 * Whether the kernel has what is needed: 0, or -errno with a line on stderr
 * that says how to get it.
 */
int uring_check(const char *program);

/* The pool's memory: 0 or -ENOMEM. */
int uring_pool_open(struct uring_ring *ring);
void uring_pool_close(struct uring_ring *ring);

/* The ring, with the pool registered: 0 or -errno. The using thread. */
int uring_ring_begin(struct uring_ring *ring);
/* Cancels the requests that are left. The same thread. */
void uring_ring_end(struct uring_ring *ring);

static inline char *uring_buf(const struct uring_ring *ring, uint32_t id)
{
	return ring->memory + (size_t)id * URING_BUF_SIZE;
}

/* Gives a buffer back; the kernel sees it after uring_bufs_flush(). */
static inline void uring_buf_return(struct uring_ring *ring, uint32_t id)
{
	io_uring_buf_ring_add(ring->entries, uring_buf(ring, id),
			      URING_BUF_SIZE, (unsigned short)id,
			      URING_BUFS - 1, ring->returned++);
	ring->lent--;
}

static inline void uring_bufs_flush(struct uring_ring *ring)
{
	io_uring_buf_ring_advance(ring->entries, ring->returned);
	ring->returned = 0;
}
