/*
 * Sockets of UDP: their memory, and waking the coroutines that wait on one.
 */
#include "netstack/udp/udp.h"
#include "netstack/program/log.h"

#include <string.h>

void net_udp_configure(struct net_udp *udp, const struct net_udp_opts *opts)
{
	udp->ttl = opts && opts->ttl ? opts->ttl : IP_DEFAULT_TTL;
	udp->tos = opts ? opts->tos : 0;
	udp->group_ttl = opts && opts->group_ttl ? opts->group_ttl : 1;
	udp->group_quiet = opts && opts->group_quiet;
	udp->group_local = opts ? opts->group_local : (struct net_addr){0};
	udp->rx_max = opts && opts->rx_datagrams ? opts->rx_datagrams
						 : NET_UDP_DATAGRAMS;
	udp->rx_max_bytes =
		opts && opts->rx_bytes ? opts->rx_bytes : NET_UDP_BYTES;
}

struct net_udp *net_udp_new(const struct net_udp_opts *opts)
{
	struct net_udp *udp = net_mem_calloc(1, sizeof(*udp));

	if (!udp)
		return NULL;
	udp->shard = (uint8_t)net_here()->shard;
	net_udp_configure(udp, opts);
	udp->shared = opts && opts->shared;
	udp->read_deadline = CORO_FOREVER;
	udp->owned = true;
	udp->next = net_udps.all;
	udp->pprev = &net_udps.all;
	if (udp->next)
		udp->next->pprev = &udp->next;
	net_udps.all = udp;
	return udp;
}

void net_udp_put(struct net_udp *udp)
{
	if (udp->owned || udp->waiters || udp->pollers)
		return;
	if (udp->held)
		net_mem_free(udp->held);
	net_mem_free(udp);
}

void net_udp_wake(struct net_udp *udp, unsigned events)
{
	net_wake(udp->reader);
	if (udp->watch)
		udp->watch->fn(udp, udp->watch);
	if (unlikely(udp->pollers))
		net_poll_wake(udp->pollers, events);
}

void net_udp_wake_senders(struct net_udp *udp)
{
	struct net_udp_sender *sender;

	LIST_FOREACH(sender, &udp->senders, link)
	net_room_wake(&sender->wait);
}

static void notify_room(struct net_room_wait *wait)
{
	struct net_udp *udp =
		(void *)((char *)wait - offsetof(struct net_udp, room));

	if (udp->watch)
		udp->watch->fn(udp, udp->watch);
}

void net_udp_watch_room(struct net_udp *udp, struct net_port *port)
{
	udp->room.notify = notify_room;
	net_room_wait(&udp->room, port);
}

cold static void report_held(struct net_udp *udp, unsigned n)
{
	char text[NET_ADDR_TEXT_MAX];
	struct net_addr local = net_udp_local_addr(udp);

	net_here()->stats.views_reclaimed += n;
	net_log_seldom_of(
		NET_COMPONENT_API,
		"coronet: %u datagram(s) of the UDP socket %s were never "
		"released: coroutine '%s'",
		n, net_addr_format(&local, text, sizeof(text)),
		coro_self() ? coro_name(coro_self()) : "(none)");
}

void net_udp_disown(struct net_udp *udp)
{
	unsigned held = net_udp_unhold_all(udp);

	udp->watch = NULL;
	net_room_leave(&udp->room);
	if (held && net_here()->sched)
		report_held(udp, held);
	net_udp_queue_clear(udp);
	net_udp_group_leave_all(udp);
	net_udp_unhash(udp);
	*udp->pprev = udp->next;
	if (udp->next)
		udp->next->pprev = udp->pprev;
	udp->owned = false;
	net_udp_wake(udp, ~0u);
	net_udp_wake_senders(udp);
	net_udp_put(udp);
}

void net_udp_wake_all(void)
{
	for (struct net_udp *udp = net_udps.all; udp; udp = udp->next) {
		net_udp_wake(udp, ~0u);
		net_udp_wake_senders(udp);
	}
}

void net_udp_fini(void)
{
	struct net_udp_sockets *here = &net_udps;

	while (here->all) { /* what waited on it is gone */
		here->all->reader = NULL;
		here->all->waiters = 0;
		net_udp_disown(here->all);
	}
	if (!here->ports)
		return;
	net_mem_unmap_table(here->ports, NET_UDP_BUCKETS - 1);
	net_mem_unmap_table(here->tuples, NET_UDP_BUCKETS - 1);
	memset(here, 0, sizeof(*here));
}
