/*
 * The ranges of data that arrived out of order: memory, search, insertion.
 */
#include "netstack/tcp/ranges.h"

#include <assert.h>
#include <string.h>

#define RANGES_FEW 256u /* that any connection may have */
#define RANGES_MIN 4u

/*
 * A sender of full segments has no more holes than this in its window, and a
 * client that sends smaller ones has to make the window grow first.
 */
static unsigned max_ranges(const struct tcp_pcb *pcb)
{
	uint32_t full = LWIP_MAX(pcb->mss, NET_SMALL_BYTES);
	uint32_t most = net_rcv_max(pcb) / (2 * full);

	return LWIP_MIN(LWIP_MAX(most, RANGES_FEW), NET_RANGES_MAX);
}

void net_ranges_free(struct net_ooseq *q)
{
	for (unsigned i = 0; q->room > NET_BLOCK && i < q->room / NET_BLOCK;
	     i++)
		if (q->blocks[i])
			net_mem_free(q->blocks[i]);
	net_mem_free(q);
}

/* Makes an empty queue; NULL: no memory. */
static struct net_ooseq *make_queue(unsigned room)
{
	unsigned within = room > NET_BLOCK ? 0 : room;
	struct net_ooseq *q =
		net_mem_malloc(sizeof(*q) + within * sizeof(struct net_range));

	if (!q)
		return NULL;
	memset(q, 0, sizeof(*q));
	q->room = (uint16_t)room;
	if (within)
		q->blocks[0] = q->ranges;
	for (unsigned i = 0; !within && i < room / NET_BLOCK; i++) {
		q->blocks[i] =
			net_mem_malloc(NET_BLOCK * sizeof(struct net_range));
		if (!q->blocks[i]) {
			net_ranges_free(q);
			return NULL;
		}
	}
	return q;
}

struct net_ooseq *net_ranges_make_room(struct net_conn *conn)
{
	struct net_ooseq *q = net_ooseq_of(conn), *larger;

	if (q && q->n >= max_ranges(&conn->pcb))
		return NULL;
	if (q && q->n < q->room)
		return q;
	larger = make_queue(q ? 4u * q->room : RANGES_MIN);
	if (!larger)
		return NULL;
	if (q) {
		memcpy(larger->sacks, q->sacks, sizeof(q->sacks));
		larger->pieces = q->pieces;
		larger->bytes = q->bytes;
		larger->n = q->n;
		larger->has_fin = q->has_fin;
		larger->fin = q->fin;
		for (unsigned i = 0; i < q->n; i++)
			*net_range_at(larger, i) = *net_range_at(q, i);
		net_ranges_free(q);
	}
	conn->pcb.rcv_sacks = larger->sacks;
	return larger;
}
static_assert(NET_RANGES_MAX == RANGES_MIN * 4096, "room grows to it");

unsigned net_ranges_find(struct net_ooseq *q, u32_t seq)
{
	unsigned low = 0, high = q->n;

	if (q->n && TCP_SEQ_LT(net_range_at(q, q->n - 1u)->end, seq))
		return q->n; /* mostly what comes is the newest */
	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (TCP_SEQ_LT(net_range_at(q, middle)->end, seq))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Closes a gap of n slots, whose ranges are gone, from the shorter side. */
static void close_gap(struct net_ooseq *q, unsigned at, unsigned n)
{
	unsigned left = q->n - n;

	if (at <= left - at) {
		for (unsigned i = at; i > 0; i--)
			*net_range_at(q, i - 1 + n) = *net_range_at(q, i - 1);
		q->head = (uint16_t)net_range_slot(q, n);
	} else {
		for (unsigned i = at; i < left; i++)
			*net_range_at(q, i) = *net_range_at(q, i + n);
	}
	q->n = (uint16_t)left;
}

void net_ranges_remove(struct net_ooseq *q, unsigned at, unsigned n)
{
	for (unsigned i = at; i < at + n; i++)
		q->bytes -= net_range_at(q, i)->end - net_range_at(q, i)->begin;
	close_gap(q, at, n);
}

void net_ranges_insert(struct net_ooseq *q, unsigned at, u32_t begin)
{
	if (at < q->n - at) {
		q->head = (uint16_t)((q->head - 1u) & (q->room - 1u));
		for (unsigned i = 0; i < at; i++)
			*net_range_at(q, i) = *net_range_at(q, i + 1);
	} else {
		for (unsigned i = q->n; i > at; i--)
			*net_range_at(q, i) = *net_range_at(q, i - 1);
	}
	*net_range_at(q, at) = (struct net_range){.begin = begin, .end = begin};
	q->n++;
}
