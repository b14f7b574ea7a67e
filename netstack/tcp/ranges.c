/*
 * The ranges of data that arrived out of order: memory, search, insertion.
 */
#include "netstack/tcp/ranges.h"

#include <string.h>

#define RANGES_FEW  256u /* that any connection may have */
#define RANGES_MIN  4u
#define FEW_REMOVED 16u /* ranges at once, one by one */

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
	unsigned runs = LWIP_MAX(room / NET_RUN, 1u);
	struct net_ooseq *q = net_mem_malloc(
		sizeof(*q) + within * sizeof(struct net_range) + runs);

	if (!q)
		return NULL;
	memset(q, 0, sizeof(*q));
	q->room = (uint16_t)room;
	q->turns = (uint8_t *)(q->ranges + within);
	memset(q->turns, 0, runs);
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

unsigned net_ranges_find(struct net_ooseq *q, uint32_t seq)
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

/* Moves ranges [from, to) up by one slot, over range `to`. */
static void move_up(struct net_ooseq *q, unsigned from, unsigned to)
{
	while (to > from) {
		unsigned slot = net_range_slot(q, to);
		uint8_t *turn = &q->turns[slot / NET_RUN];

		if (slot % NET_RUN == NET_RUN - 1 && to - from >= NET_RUN) {
			*turn = (uint8_t)((*turn + NET_RUN - 1) % NET_RUN);
			to -= NET_RUN - 1;
		}
		*net_range_at(q, to) = *net_range_at(q, to - 1);
		to--;
	}
}

/* Moves ranges (from, to] down by one slot, over range `from`. */
static void move_down(struct net_ooseq *q, unsigned from, unsigned to)
{
	while (from < to) {
		unsigned slot = net_range_slot(q, from);
		uint8_t *turn = &q->turns[slot / NET_RUN];

		if (slot % NET_RUN == 0 && to - from >= NET_RUN) {
			*turn = (uint8_t)((*turn + 1) % NET_RUN);
			from += NET_RUN - 1;
		}
		*net_range_at(q, from) = *net_range_at(q, from + 1);
		from++;
	}
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

static void close_slot(struct net_ooseq *q, unsigned at)
{
	if (at < q->n / 2u) {
		move_up(q, 0, at);
		q->head = (uint16_t)net_range_slot(q, 1);
	} else {
		move_down(q, at, q->n - 1u);
	}
	q->n--;
}

/*
 * Mostly one range is removed. A segment that joins many pays for them with
 * moves that their insertion has not needed.
 */
void net_ranges_remove(struct net_ooseq *q, unsigned at, unsigned n)
{
	for (unsigned i = at; i < at + n; i++)
		q->bytes -= net_range_at(q, i)->end - net_range_at(q, i)->begin;
	if (n > FEW_REMOVED || at == 0) {
		close_gap(q, at, n);
		return;
	}
	while (n-- > 0)
		close_slot(q, at);
}

void net_ranges_insert(struct net_ooseq *q, unsigned at, uint32_t begin)
{
	if (at < q->n - at) {
		q->head = (uint16_t)((q->head - 1u) & (q->room - 1u));
		move_down(q, 0, at);
	} else {
		move_up(q, at, q->n);
	}
	*net_range_at(q, at) = (struct net_range){.begin = begin, .end = begin};
	q->n++;
}
