/*
 * Datagrams of a socket: those that wait to be read, and those that the program
 * holds.
 *
 * A datagram stays in its frame while the frames held here leave enough for
 * receiving, as TCP's data does (conn/rxq.c); beyond that it is copied. If a
 * pool runs empty nevertheless, net_udp_copy_frames() copies the waiting
 * datagrams.
 */
#include "netstack/udp/udp.h"

#include <errno.h>
#include <string.h>

#include "lwip/prot/udp.h"

/* Datagrams that a socket's program holds and that lie in frames, at most. */
#define HELD_IN_FRAMES 64u
#define HELD_FIRST     16u

#define COPIES 256u /* of net_udp_copy_frames() at once */

static unsigned headers_of(const struct pbuf *p)
{
	return NET_UDP_HEADER +
	       (p->flags & NET_UDP_IS_V6 ? (unsigned)IP6_HLEN : IP_HLEN);
}

struct pbuf *net_udp_copy(const struct pbuf *p)
{
	unsigned headers = headers_of(p);
	struct pbuf *copy =
		pbuf_alloc(PBUF_RAW, (uint16_t)(headers + p->len), PBUF_RAM);

	if (!copy)
		return NULL;
	memcpy(copy->payload, (const uint8_t *)p->payload - headers,
	       headers + p->len);
	copy->payload = (uint8_t *)copy->payload + headers;
	copy->len = copy->tot_len = p->len;
	copy->flags |= p->flags & NET_UDP_IS_V6;
	return copy;
}

/* ---- the list of sockets with datagrams ---- */

static void loaded_push(struct net_udp *udp)
{
	udp->loaded = true;
	udp->loaded_next = net_udps.loaded;
	udp->loaded_pprev = &net_udps.loaded;
	if (udp->loaded_next)
		udp->loaded_next->loaded_pprev = &udp->loaded_next;
	net_udps.loaded = udp;
}

static void loaded_remove(struct net_udp *udp)
{
	udp->loaded = false;
	*udp->loaded_pprev = udp->loaded_next;
	if (udp->loaded_next)
		udp->loaded_next->loaded_pprev = udp->loaded_pprev;
}

/* ---- unread datagrams ---- */

/* Puts a copy in place of p, which is not its caller's any more. */
static struct pbuf *replace_with_copy(struct pbuf *p)
{
	struct pbuf *copy = net_budget_is_short() ? NULL : net_udp_copy(p);

	net_pbuf_free(p);
	return copy;
}

void net_udp_queue(struct net_udp *udp, struct pbuf *p)
{
	if (udp->rx_queued >= udp->rx_max ||
	    udp->rx_queued_bytes + p->len > udp->rx_max_bytes) {
		udp->stats.rx_full++;
		net_here()->stats.udp_queue_full++;
		net_pbuf_free(p);
		return;
	}
	if (unlikely(!net_rxq_has_room(p))) {
		p = replace_with_copy(p);
		if (!p) {
			udp->stats.rx_no_memory++;
			net_here()->stats.rx_no_memory++;
			return;
		}
	}
	net_here()->stats.udp_received++;
	udp->stats.rx++;
	udp->stats.rx_bytes += p->len;
	udp->rx_queued++;
	udp->rx_queued_bytes += p->len;
	p->next = NULL;
	if (udp->rx_head) {
		udp->rx_tail->next = p;
		udp->rx_tail = p;
		/* The first one has woken all others that wait. */
		if (udp->watch)
			udp->watch->fn(udp, udp->watch);
		return;
	}
	udp->rx_head = udp->rx_tail = p;
	loaded_push(udp);
	net_udp_wake(udp, NET_READABLE);
}

struct pbuf *net_udp_unqueue(struct net_udp *udp)
{
	struct pbuf *p = udp->rx_head;

	udp->rx_head = p->next;
	p->next = NULL;
	udp->rx_queued--;
	udp->rx_queued_bytes -= p->len;
	if (!udp->rx_head)
		loaded_remove(udp);
	return p;
}

void net_udp_unqueue_undo(struct net_udp *udp, struct pbuf *p)
{
	p->next = udp->rx_head;
	if (!udp->rx_head) {
		udp->rx_tail = p;
		loaded_push(udp);
	}
	udp->rx_head = p;
	udp->rx_queued++;
	udp->rx_queued_bytes += p->len;
}

void net_udp_queue_clear(struct net_udp *udp)
{
	while (udp->rx_head)
		net_pbuf_free(net_udp_unqueue(udp));
}

/* Copies at most `most` datagrams of a socket. Returns how many. */
static unsigned copy_queued(struct net_udp *udp, unsigned most)
{
	struct pbuf **at = &udp->rx_head;
	unsigned n = 0;

	for (; *at && n < most; at = &(*at)->next) {
		struct pbuf *p = *at, *copy;

		if (!net_is_frame(p))
			continue;
		copy = net_udp_copy(p);
		if (!copy)
			break;
		copy->next = p->next;
		p->next = NULL;
		*at = copy;
		if (udp->rx_tail == p)
			udp->rx_tail = copy;
		net_pbuf_free(p);
		n++;
	}
	return n;
}

void net_udp_copy_frames(void)
{
	unsigned left = COPIES;

	for (struct net_udp *udp = net_udps.loaded; udp && left;
	     udp = udp->loaded_next)
		left -= copy_queued(udp, left);
}

/* ---- addresses ---- */

void net_udp_describe(const struct pbuf *p, struct net_datagram *out)
{
	const uint8_t *end = (const uint8_t *)p->payload - NET_UDP_HEADER;
	const struct udp_hdr *udp = (const void *)end;

	memset(out, 0, sizeof(*out));
	out->data = p->payload;
	out->len = p->len;
	out->peer.port = lwip_ntohs(udp->src);
	out->local.port = lwip_ntohs(udp->dest);
	if (p->flags & NET_UDP_IS_V6) { /* they are the header's last fields */
		const uint8_t *ip = end - IP6_HLEN;

		out->tos = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
		out->ttl = ip[7];
		out->peer.family = out->local.family = 6;
		out->peer.prefix_len = out->local.prefix_len = 128;
		memcpy(out->peer.ip, end - 32, 16);
		memcpy(out->local.ip, end - 16, 16);
	} else {
		const uint8_t *ip = end - IP_HLEN;

		out->tos = ip[1];
		out->ttl = ip[8];
		out->peer.family = out->local.family = 4;
		out->peer.prefix_len = out->local.prefix_len = 32;
		memcpy(out->peer.ip, end - 8, 4);
		memcpy(out->local.ip, end - 4, 4);
	}
}

bool net_udp_is_answer4(const struct pbuf *p, const struct net_datagram *d)
{
	const uint8_t *end = (const uint8_t *)p->payload - NET_UDP_HEADER;
	const struct udp_hdr *udp = (const void *)end;

	return !(p->flags & NET_UDP_IS_V6) && d->peer.family == 4 &&
	       d->local.family == 4 && memcmp(d->peer.ip, end - 8, 4) == 0 &&
	       memcmp(d->local.ip, end - 4, 4) == 0 &&
	       d->peer.port == lwip_ntohs(udp->src);
}

/* ---- frames that the program holds ---- */

/* Doubles the room. */
static bool grow_held(struct net_udp *udp)
{
	unsigned room = udp->held_room ? 2 * udp->held_room : HELD_FIRST;
	struct net_udp_held *held;

	if (room > NET_UDP_VIEWS_MAX)
		return false;
	held = net_mem_calloc(room, sizeof(*held));
	if (!held)
		return false;
	if (udp->held) {
		memcpy(held, udp->held, udp->held_room * sizeof(*held));
		net_mem_free(udp->held);
	}
	udp->held = held;
	for (unsigned i = room; i-- > udp->held_room;) {
		held[i].next = udp->held_free;
		udp->held_free = i + 1;
	}
	udp->held_room = room;
	return true;
}

/* Cold: the program holds many, so a further one must not hold a frame. */
static int spare_frame(struct pbuf **p)
{
	struct pbuf *copy = net_udp_copy(*p);

	if (!copy)
		return -ENOBUFS;
	net_pbuf_free(*p);
	*p = copy;
	return 0;
}

int net_udp_hold(struct net_udp *udp, struct pbuf *p, struct net_datagram *out)
{
	struct net_udp_held *held;

	if (!udp->held_free && !grow_held(udp))
		return -ENOBUFS;
	if (udp->n_held >= HELD_IN_FRAMES && net_is_frame(p)) {
		int err = spare_frame(&p);

		if (err < 0)
			return err;
	}
	held = &udp->held[udp->held_free - 1];
	net_udp_describe(p, out);
	held->p = p;
	held->serial++;
	out->owner = (void *)((uintptr_t)held->serial << 32 | udp->held_free);
	udp->held_free = held->next;
	udp->n_held++;
	return 0;
}

/* The entry of an owner; NULL: it holds no datagram. */
static struct net_udp_held *find_held(const struct net_udp *udp,
				      const void *owner)
{
	uint32_t at = (uint32_t)(uintptr_t)owner;
	uint32_t serial = (uint32_t)((uintptr_t)owner >> 32);
	struct net_udp_held *held;

	if (at == 0 || at > udp->held_room)
		return NULL;
	held = &udp->held[at - 1];
	return held->serial == serial && serial & 1 ? held : NULL;
}

const struct pbuf *net_udp_held_frame(const struct net_udp *udp,
				      const struct net_datagram *d)
{
	const struct net_udp_held *held = find_held(udp, d->owner);
	const struct pbuf *p = held ? held->p : NULL;

	return p && net_is_frame(p) && p->payload == d->data && p->len == d->len
		       ? p
		       : NULL;
}

struct pbuf *net_udp_unhold(struct net_udp *udp, const void *owner)
{
	struct net_udp_held *held = find_held(udp, owner);

	if (!held)
		return NULL;
	held->serial++;
	held->next = udp->held_free;
	udp->held_free = (uint32_t)(uintptr_t)owner;
	udp->n_held--;
	return held->p;
}

unsigned net_udp_unhold_all(struct net_udp *udp)
{
	unsigned n = udp->n_held;

	for (unsigned i = 0; i < udp->held_room; i++)
		if (udp->held[i].serial & 1) {
			net_pbuf_free(udp->held[i].p);
			udp->held[i].serial++;
		}
	udp->n_held = 0;
	return n;
}
