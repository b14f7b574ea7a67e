/*
 * The ranges of data that arrived out of order: an array, ordered by sequence
 * number. Private to ooseq.c.
 *
 * When a router's queue overflows, every second segment in flight may be lost,
 * so the bound allows that many ranges of full segments in a window. The array
 * is a ring, in which an insertion moves the shorter side, since most holes
 * appear at one end and are filled at the other. It has two levels: runs of
 * NET_RUN ranges, each a ring of its own. Moving a whole run by one slot is
 * one step, so that the worst insertion among 16,384 ranges takes the moves of
 * two runs and 64 such steps.
 */
#pragma once

#include "netstack/tcp/tcp.h"

#include <assert.h>

#include "lwip/prot/tcp.h"

#define NET_SMALL_BYTES 512u /* of data; less is copied */
#define NET_RANGES_MAX	16384u
#define NET_BLOCK	2048u /* ranges in one object of memory, at most */
#define NET_RUN		128u  /* ranges that are moved together */
#define NET_SACKS	LWIP_TCP_MAX_SACK_NUM

struct net_range {
	uint32_t begin, end;
	struct pbuf *first, *last;
};

/* What pcb.rcv_sacks points to: lwIP reads `sacks`, the newest first. */
struct net_ooseq {
	struct tcp_sack_range sacks[NET_SACKS];
	uint32_t pieces, bytes;
	uint16_t n, room; /* number of ranges, and of slots for them */
	uint16_t head;	  /* slot of the first range */
	bool has_fin;
	uint32_t fin;	/* sequence number of the FIN */
	uint8_t *turns; /* of each run: where its ring begins */
	/* The slots: in `ranges`, or in objects of NET_BLOCK each. */
	struct net_range *blocks[NET_RANGES_MAX / NET_BLOCK];
	struct net_range ranges[]; /* followed by the turns */
};

static inline struct net_ooseq *net_ooseq_of(const struct net_conn *conn)
{
	return (struct net_ooseq *)(void *)conn->pcb.rcv_sacks;
}

/* The slot of a range; room is a power of two. */
static inline unsigned net_range_slot(const struct net_ooseq *q, unsigned i)
{
	return (q->head + i) & (q->room - 1u);
}

static inline struct net_range *net_range_at(struct net_ooseq *q, unsigned i)
{
	unsigned slot = net_range_slot(q, i);
	unsigned turn = q->turns[slot / NET_RUN];
	unsigned at = slot / NET_RUN * NET_RUN + (slot + turn) % NET_RUN;

	return &q->blocks[at / NET_BLOCK][at % NET_BLOCK];
}
static_assert(NET_BLOCK % NET_RUN == 0 && NET_RUN <= UINT8_MAX,
	      "a run lies in one block");

/*
 * Returns the connection's queue, with room for one more range; NULL: it may
 * have no more, or there is no memory. A full queue is replaced by a larger
 * one, which makes pointers into it invalid.
 */
struct net_ooseq *net_ranges_make_room(struct net_conn *conn);
/* Frees the queue, whose pieces were freed before. */
void net_ranges_free(struct net_ooseq *q);
/* The index of the first range that ends at seq or later; q->n: none does. */
unsigned net_ranges_find(struct net_ooseq *q, uint32_t seq);
/* Inserts an empty range. The queue has room. */
void net_ranges_insert(struct net_ooseq *q, unsigned at, uint32_t begin);
/* Removes n ranges, whose pieces were freed or belong to another range. */
void net_ranges_remove(struct net_ooseq *q, unsigned at, unsigned n);
