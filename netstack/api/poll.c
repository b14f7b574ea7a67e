/*
 * Waiting for several things at once, for a descriptor, or for a function that
 * blocks.
 *
 * A net_poll() that has to wait allocates one block with a node for each item,
 * since the caller's shared stack may be used by another coroutine meanwhile. A
 * node is in the list of its object: a connection, a listener, a UDP socket, or
 * the watches of a channel. An event there only makes the coroutine ready,
 * which then checks its items itself. So the events are level-triggered, and
 * any number of coroutines may wait for one object.
 */
#include "netstack/api/api.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include <coronet/coro_chan.h>
#include <coronet/coro_io.h>

#define ALL_EVENTS (NET_READABLE | NET_WRITABLE | NET_PEER_CLOSED)

static_assert(sizeof(struct net_poller) +
			      NET_POLL_MAX * sizeof(struct net_poll_node) <=
		      65536,
	      "the largest class of mem/slab.c");

static void on_channel(struct coro_chan_watch *watch)
{
	struct net_poll_node *node =
		(void *)((char *)watch - offsetof(struct net_poll_node, watch));

	net_poller_wake(node->poller);
}

/* ---- readiness ---- */

/* Returns the events that are wanted, and others if that is cheaper. */
static unsigned conn_events(const struct net_conn *conn, unsigned wanted)
{
	unsigned events = 0;

	if (!conn->owned || conn->lingering)
		return NET_GONE;
	if (conn->cancelled)
		return NET_FAILED | NET_READABLE | NET_WRITABLE;
	if (unlikely(conn->shard & NET_SHARD_TLS))
		return net_tls_calls(conn)->events(conn, wanted);
	if (conn->err)
		events |= NET_FAILED;
	if (conn->eof)
		events |= NET_PEER_CLOSED;
	if (net_conn_readable(conn))
		events |= NET_READABLE;
	if ((wanted & NET_WRITABLE) && net_conn_writable(conn))
		events |= NET_WRITABLE;
	return events;
}

unsigned net_ready(const struct net_conn *conn, unsigned events)
{
	NET_CHECK_CONN(conn);
	if (!conn)
		return NET_GONE;
	return conn_events(conn, events) & (events | NET_FAILED | NET_GONE);
}

static unsigned listener_events(const struct net_listener *listener)
{
	if (listener->closed)
		return NET_GONE;
	return listener->head ? NET_READABLE : 0;
}

static unsigned udp_events(const struct net_udp *udp)
{
	if (!udp->owned)
		return NET_GONE;
	if (udp->cancelled)
		return NET_FAILED | NET_READABLE | NET_WRITABLE;
	return (udp->room.port ? 0 : NET_WRITABLE) |
	       (udp->rx_head || udp->err ? NET_READABLE : 0);
}

unsigned net_udp_ready(const struct net_udp *udp, unsigned events)
{
	NET_CHECK_THREAD();
	if (!udp)
		return NET_GONE;
	return udp_events(udp) & (events | NET_FAILED | NET_GONE);
}

static unsigned chan_events(const struct coro_chan *chan)
{
	unsigned state = coro_chan_state(chan), events = 0;

	if (state & CORO_CHAN_CAN_RECV)
		events |= NET_READABLE;
	if (state & CORO_CHAN_CAN_SEND)
		events |= NET_WRITABLE;
	if (state & CORO_CHAN_CLOSED)
		events |= NET_PEER_CLOSED;
	return events;
}

/* Fills every revents; returns how many are not zero. */
static int collect_events(struct net_poll_item *items, unsigned n)
{
	int ready = 0;

	for (unsigned i = 0; i < n; i++) {
		struct net_poll_item *item = &items[i];
		unsigned events = 0;

		if (item->conn)
			events = conn_events(item->conn, item->events);
		else if (item->listener)
			events = listener_events(item->listener);
		else if (item->chan)
			events = chan_events(item->chan);
		else if (item->udp)
			events = udp_events(item->udp);
		item->revents = events & (item->events | NET_FAILED | NET_GONE);
		ready += item->revents != 0;
	}
	return ready;
}

static int check_items(const struct net_poll_item *items, unsigned n)
{
	if (n > NET_POLL_MAX || (n && !items))
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		if ((items[i].events & ~ALL_EVENTS) ||
		    !!items[i].conn + !!items[i].listener + !!items[i].chan +
				    !!items[i].udp >
			    1)
			return -EINVAL;
	return 0;
}

/* ---- waiting ---- */

static void link_into_list(struct net_poll_node **list,
			   struct net_poll_node *node)
{
	node->next = *list;
	node->pprev = list;
	if (node->next)
		node->next->pprev = &node->next;
	*list = node;
}

/* Returns 0, or why a channel cannot be watched. A failed node may be
 * unlinked. */
static int link_node(struct net_poll_node *node, struct net_poller *poller,
		     const struct net_poll_item *item)
{
	*node = (struct net_poll_node){.poller = poller,
				       .conn = item->conn,
				       .listener = item->listener,
				       .udp = item->udp,
				       .events = item->events | NET_FAILED |
						 NET_GONE};
	if (item->conn) {
		link_into_list(&net_conn_ext(item->conn)->pollers, node);
	} else if (item->listener) {
		item->listener->refs++;
		link_into_list(&item->listener->pollers, node);
	} else if (item->udp) {
		link_into_list(&item->udp->pollers, node);
	} else if (item->chan) {
		node->watch.fn = on_channel;
		return coro_chan_watch(item->chan, &node->watch);
	}
	return 0;
}

static void unlink_node(struct net_poll_node *node)
{
	coro_chan_unwatch(&node->watch);
	if (!node->pprev)
		return;
	*node->pprev = node->next;
	if (node->next)
		node->next->pprev = node->pprev;
	if (node->conn) {
		net_conn_put(node->conn);
	} else if (node->udp) {
		net_udp_put(node->udp);
	} else {
		node->listener->refs--;
		net_listener_put(node->listener);
	}
}

static struct net_poller *poller_new(const struct net_poll_item *items,
				     unsigned n)
{
	struct net_poller *poller;

	for (unsigned i = 0; i < n; i++)
		if (items[i].conn && !net_conn_ext(items[i].conn))
			return NULL;
	poller = net_mem_malloc(sizeof(*poller) + n * sizeof(poller->nodes[0]));
	if (!poller)
		return NULL;
	memset(poller->nodes, 0, n * sizeof(poller->nodes[0]));
	*poller = (struct net_poller){
		.next = net_here()->pollers,
		.pprev = &net_here()->pollers,
		.co = coro_self(),
		.n = n,
	};
	if (poller->next)
		poller->next->pprev = &poller->next;
	net_here()->pollers = poller;
	return poller;
}

static int link_nodes(struct net_poller *poller,
		      const struct net_poll_item *items)
{
	int err = 0;

	for (unsigned i = 0; err == 0 && i < poller->n; i++)
		err = link_node(&poller->nodes[i], poller, &items[i]);
	return err;
}

/* A cleanup of the coroutine, so that its end removes the nodes, too. */
static void poller_free(void *arg)
{
	struct net_poller *poller = arg;

	*poller->pprev = poller->next;
	if (poller->next)
		poller->next->pprev = poller->pprev;
	for (unsigned i = 0; i < poller->n; i++)
		unlink_node(&poller->nodes[i]);
	net_mem_free(poller);
}

/* Parks until something is ready, or an error occurs. */
static int park_poller(struct net_poller *poller, struct net_poll_item *items,
		       int64_t deadline_ns)
{
	int err, ready;

	do {
		if (net_here()->draining)
			return -ECANCELED;
		poller->woken = false;
		err = coro_park_at("net_poll", deadline_ns);
		ready = collect_events(items, poller->n);
	} while (err == 0 && ready == 0);
	return ready ? ready : err;
}

/* Traces each connection that is traced when net_poll() has to wait. */
static void trace_items(const struct net_poll_item *items, unsigned n,
			enum net_trace_kind kind, int result)
{
	for (unsigned i = 0; i < n; i++)
		if (items[i].conn && net_traced(items[i].conn))
			net_trace_poll(items[i].conn, kind, result);
}

int net_poll(struct net_poll_item *items, unsigned n, int64_t deadline_ns)
{
	struct net_poller *poller;
	int err = check_items(items, n), ready;

	NET_CHECK_THREAD();
	if (err < 0)
		return err;
	ready = collect_events(items, n);
	if (ready || deadline_ns <= net_here()->now_ns)
		return ready;
	if (!coro_self())
		return -EPERM;
	poller = poller_new(items, n);
	if (!poller)
		return -ENOMEM;
	err = coro_cleanup_push(poller_free, poller);
	if (err < 0) {
		poller_free(poller);
		return err;
	}
	trace_items(items, n, NET_TRACE_CALL, 0);
	ready = link_nodes(poller, items);
	if (ready == 0)
		ready = park_poller(poller, items, deadline_ns);
	trace_items(items, n, NET_TRACE_DONE, ready);
	coro_cleanup_pop(true);
	if (ready == -ETIMEDOUT && deadline_ns <= net_here()->now_ns)
		return 0;
	return ready;
}

/* ---- the kernel ---- */

int net_fd_wait(int fd, int events, int64_t deadline_ns)
{
	struct net_stack *stack = net_here();

	if (stack->sched && net_stack_stopping(stack))
		return -ECANCELED;
	return coro_fd_wait(fd, events, deadline_ns);
}

int net_offload(coro_fn fn, void *arg, void **result, int64_t deadline_ns)
{
	return coro_offload_until(fn, arg, result, deadline_ns);
}
