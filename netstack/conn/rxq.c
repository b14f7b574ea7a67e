/*
 * Bytes received and not yet read.
 *
 * A connection's queue is a circular list of single pbufs, with a pointer to
 * the last. Data that arrives at an empty queue stays in its frame. Small
 * pieces that have to wait behind others are copied together, so that an unread
 * byte costs about a byte: a buffer is twice as large as the one before it, up
 * to 2 KiB.
 *
 * Frames are shared by all connections, and receiving needs them. So when the
 * frames held here (unread, out of order, as views, queued for sending) reach
 * the port's limit, each segment is copied before lwIP sees it, or dropped for
 * want of memory.
 */
#include "netstack/conn/conn.h"

#include <string.h>

#define SMALL_BYTES 512u /* larger pieces stay in their frames */
#define BLOCK_BYTES 2304u
#define FIRST_BYTES 64u

/* Payload of an empty pbuf that takes this many bytes of a slab. */
#define ROOM_OF(bytes) ((bytes)-LWIP_MEM_ALIGN_SIZE(sizeof(struct pbuf)))

/* ---- admission ---- */

__attribute__((noinline)) bool net_rxq_copy_segment(struct pbuf **p)
{
	struct pbuf *copy = pbuf_alloc(PBUF_RAW, (*p)->tot_len, PBUF_RAM);

	if (!copy) {
		net_here()->stats.rx_no_memory++;
		return false;
	}
	pbuf_copy_partial(*p, copy->payload, (*p)->tot_len, 0);
	copy->flags |= (*p)->flags & PBUF_FLAG_PUSH;
	pbuf_free(*p);
	*p = copy;
	return true;
}

/* ---- appending ---- */

static void link_last(struct net_conn *conn, struct pbuf *p)
{
	struct pbuf *tail = conn->rx_tail;

	p->next = tail ? tail->next : p;
	if (tail)
		tail->next = p;
	conn->rx_tail = p;
}

/* Bytes that can still be put behind what a buffer of our own holds. */
static unsigned room_in(const struct pbuf *p)
{
	const uint8_t *end;

	if (p->type_internal != (uint8_t)PBUF_RAM || p->ref != 1)
		return 0;
	end = (const uint8_t *)p + net_mem_size(p);
	return (unsigned)(end - ((const uint8_t *)p->payload + p->len));
}

static void copy_behind(struct pbuf *to, const struct pbuf *from, unsigned off,
			unsigned len)
{
	memcpy((uint8_t *)to->payload + to->len,
	       (const uint8_t *)from->payload + off, len);
	to->len = (uint16_t)(to->len + len);
	to->tot_len = to->len;
}

/* Allocates a buffer for further data, larger than the one before it. */
static struct pbuf *new_block(const struct pbuf *tail, unsigned len)
{
	unsigned bytes = FIRST_BYTES;
	struct pbuf *block;

	if (tail->type_internal == (uint8_t)PBUF_RAM)
		bytes = LWIP_MIN(2 * net_mem_size(tail), BLOCK_BYTES);
	while (ROOM_OF(bytes) < len)
		bytes *= 2;
	block = pbuf_alloc(PBUF_RAW, (uint16_t)ROOM_OF(bytes), PBUF_RAM);
	if (block)
		block->len = block->tot_len = 0;
	return block;
}

/* Out of line: packs a small piece behind others; without memory it is left
 * alone. */
__attribute__((noinline)) struct pbuf *net_rxq_pack(struct pbuf *tail,
						    struct pbuf *p)
{
	unsigned part = LWIP_MIN(room_in(tail), p->len);
	struct pbuf *block = NULL;

	if (part < p->len) {
		block = new_block(tail, p->len - part);
		if (!block)
			return p;
		copy_behind(block, p, part, p->len - part);
	}
	copy_behind(tail, p, 0, part);
	pbuf_free(p);
	return block;
}

/*
 * Appends a chain. Where lwIP trimmed what had come before, empty pbufs lead
 * the chain: a reader would take one for the end.
 */
void net_rxq_append_slowly(struct net_conn *conn, struct pbuf *p)
{
	struct pbuf *next;

	for (; p; p = next) {
		next = p->next;
		p->next = NULL;
		p->tot_len = p->len;
		if (p->len == 0) {
			pbuf_free(p);
			continue;
		}
		if (conn->rx_tail && p->len <= SMALL_BYTES)
			p = net_rxq_pack(conn->rx_tail, p);
		if (p)
			link_last(conn, p);
	}
}

/* Replaces the first piece, a frame, by a copy. */
void net_rxq_replace_first(struct net_conn *conn, struct pbuf *copy)
{
	struct pbuf *tail = conn->rx_tail, *first = tail->next;

	copy->next = first == tail ? copy : first->next;
	if (first == tail)
		conn->rx_tail = copy;
	else
		tail->next = copy;
	first->next = NULL;
	pbuf_free(first);
}

/* Puts a copy in place of p, which is behind prev; NULL: no memory. */
static struct pbuf *replace_by_copy(struct net_conn *conn, struct pbuf *prev,
				    struct pbuf *p)
{
	struct pbuf *copy = pbuf_alloc(PBUF_RAW, p->len, PBUF_RAM);

	if (!copy)
		return NULL;
	memcpy(copy->payload, p->payload, p->len);
	copy->next = p->next == p ? copy : p->next;
	if (prev != p)
		prev->next = copy;
	if (conn->rx_tail == p)
		conn->rx_tail = copy;
	p->next = NULL;
	pbuf_free(p);
	return copy;
}

void net_rxq_copy_frames(struct net_conn *conn)
{
	struct pbuf *p, *copy;

	if (conn->orphaned || !conn->rx_tail)
		return;
	p = conn->rx_tail;
	do {
		struct pbuf *next = p->next;

		copy = net_is_frame(next) ? replace_by_copy(conn, p, next)
					  : NULL;
		p = copy ? copy : next;
	} while (p != conn->rx_tail);
}

unsigned net_rxq_frames(const struct net_conn *conn)
{
	const struct pbuf *p = net_rxq_head(conn);
	unsigned n = 0;

	for (; p; p = net_rxq_next(conn, p))
		n += net_is_scarce_frame(p);
	return n;
}

/* ---- looking ---- */

size_t net_rxq_look(const struct pbuf *tail, size_t from, void *buf, size_t len)
{
	const struct pbuf *p = tail;
	size_t done = 0;

	while (p && done < len) {
		size_t skip, part;

		p = p->next;
		skip = LWIP_MIN(from, (size_t)p->len);
		part = LWIP_MIN(p->len - skip, len - done);
		memcpy((uint8_t *)buf + done,
		       (const uint8_t *)p->payload + skip, part);
		from -= skip;
		done += part;
		if (p == tail)
			break;
	}
	return done;
}

/* ---- emptying ---- */

void net_rxq_clear(struct net_conn *conn)
{
	if (conn->orphaned) /* its rx_tail is a link, and nothing is received */
		return;
	while (conn->rx_tail)
		pbuf_free(net_rxq_take(conn));
}

unsigned net_rxq_bytes(const struct net_conn *conn)
{
	const struct pbuf *p = net_rxq_head(conn);
	unsigned bytes = 0;

	for (; p; p = net_rxq_next(conn, p))
		bytes += p->len;
	return bytes - conn->rx_off;
}
