/*
 * Listening, accepting, serving.
 */
#include "netstack/api/api.h"
#include "netstack/program/events.h"
#include "netstack/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKLOG_DEFAULT 4096

bool net_addr_is_own(const struct net_addr *addr)
{
	ip_addr_t ip;

	if (addr->family == 0)
		return true;
	net_addr_to_lwip(addr, &ip);
	if (ip_addr_isany_val(ip))
		return true;
	for (unsigned i = 0; i < net_here()->n_netifs; i++) {
		struct netif *netif = &net_here()->netifs[i];

		if (addr->family == 4
			    ? ip4_addr_eq(netif_ip4_addr(netif), ip_2_ip4(&ip))
			    : netif_get_ip6_addr_match(netif, ip_2_ip6(&ip)) >=
				      0)
			return true;
	}
	return false;
}

bool net_is_local(struct net_stack *stack, const struct net_addr *addr)
{
	ip_addr_t ip;

	NET_CHECK_STACK(stack);
	if (!stack || !addr || !addr->family)
		return false;
	net_addr_to_lwip(addr, &ip);
	return !ip_addr_isany_val(ip) && net_addr_is_own(addr);
}

void net_addr_read(const struct net_addr *addr, ip_addr_t *ip)
{
	net_addr_to_lwip(addr, ip);
	if (IP_IS_V6_VAL(*ip) && ip6_addr_lacks_zone(ip_2_ip6(ip), IP6_UNICAST))
		ip6_addr_select_zone(ip_2_ip6(ip), ip_2_ip6(ip));
}

/* Is there a listener already? ip: NULL for every address, a zero one for all
 * of its family. */
static bool is_taken(const ip_addr_t *ip, uint16_t port)
{
	if (net_listener_find_exact(ip, port))
		return true;
	if (!ip)
		return net_listener_find_exact(IP4_ADDR_ANY, port) ||
		       net_listener_find_exact(IP6_ADDR_ANY, port);
	return ip_addr_isany(ip) && net_listener_find_exact(NULL, port);
}

/* A port without a listener at this address or at every one; 0: none. */
static uint16_t choose_port(const ip_addr_t *ip)
{
	struct net_ephemeral search = net_ephemeral_listen();

	for (unsigned i = 0; i < net_port_count(); i++) {
		uint16_t port = net_ephemeral_next(&search);

		if (!is_taken(ip, port) && !net_listener_find_exact(NULL, port))
			return port;
	}
	return 0;
}

int net_listen(struct net_stack *stack, const struct net_addr *addr,
	       unsigned backlog, struct net_listener **out)
{
	struct net_listener *listener;
	uint16_t port;
	ip_addr_t ip;

	NET_CHECK_STACK(stack);
	if (!stack || !addr || !out)
		return -EINVAL;
	if (stack->draining)
		return -ECANCELED;
	if (!net_addr_is_own(addr))
		return -EADDRNOTAVAIL;
	net_addr_read(addr, &ip);
	port = addr->port;
	if (port == 0)
		port = choose_port(addr->family ? &ip : NULL);
	if (port == 0 || is_taken(addr->family ? &ip : NULL, port))
		return -EADDRINUSE;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->addr = *addr;
	listener->addr.port = port;
	listener->ip = ip;
	listener->backlog = backlog ? backlog : BACKLOG_DEFAULT;
	listener->cc = stack->cc;
	listener->next = stack->listeners;
	listener->pprev = &stack->listeners;
	if (listener->next)
		listener->next->pprev = &listener->next;
	stack->listeners = listener;
	net_listener_hash(listener);
	net_event_listener(listener, "listening");
	*out = listener;
	return 0;
}

struct net_addr net_listener_addr(const struct net_listener *listener)
{
	return listener ? listener->addr : (struct net_addr){0};
}

int net_listener_set_cc(struct net_listener *listener, const char *name)
{
	int number = name ? net_cc_number(name) : -1;

	NET_CHECK_THREAD();
	if (!listener)
		return -EBADF;
	if (number < 0)
		return -EINVAL;
	listener->cc = (uint8_t)number;
	return 0;
}

int net_listener_set_name(struct net_listener *listener, const char *name)
{
	NET_CHECK_THREAD();
	if (!listener)
		return -EBADF;
	if (!name)
		return -EINVAL;
	snprintf(listener->handler_name, NET_NAME_MAX, "%s", name);
	listener->named = true;
	return 0;
}

struct task {
	net_handler handler;
	void *arg;
};

/* Returns what to call; the listener may be gone from here on. */
__attribute__((noinline)) static struct task
begin_serving(struct net_conn *conn)
{
	struct net_listener *listener = conn->listener;
	struct task task = {listener->handler, listener->handler_arg};

	listener->refs--;
	net_listener_put(listener);
	return task;
}

/* Called when the handler has returned. */
static void end_serving(void *arg)
{
	struct net_conn *conn = arg;

	if (conn->n_views)
		net_views_reclaim(conn);
	conn->served = false;
	if (conn->owned)
		net_close(conn);
	else
		net_conn_put(conn); /* the handler has closed it */
}

/*
 * The body of a served connection's coroutine. Its last call is the handler, so
 * that it has no frame while the handler waits; end_serving() comes after it.
 */
static void serve_conn(void *arg)
{
	struct net_conn *conn = arg;
	struct task task = begin_serving(conn);

	coro_set_last(conn);
	task.handler(conn, task.arg);
}

/*
 * The same, after a TLS handshake. If that fails, the handler is not called.
 */
static void serve_conn_tls(void *arg)
{
	struct net_conn *conn = arg;
	struct net_tls *tls = conn->listener->tls;
	struct task task = begin_serving(conn);

	coro_set_last(conn);
	if ((*(const struct net_tls_calls **)(void *)tls)->accept(conn, tls) ==
	    0)
		task.handler(conn, task.arg);
}

static int spawn_handler(struct net_listener *listener, struct net_conn *conn)
{
	static const struct coro_attr attr = {.name = "conn"};
	void (*serve)(void *arg) = listener->tls ? serve_conn_tls : serve_conn;
	/* Nobody looks at what it returns. */
	coro_fn body = (coro_fn)(void (*)(void))serve;
	int err = coro_spawn(net_here()->sched, &attr, body, conn, NULL);

	if (err < 0) {
		net_here()->stats.no_memory++;
		return err;
	}
	listener->refs++;
	conn->served = true;
	if (conn->pending) /* not one that was reset while it was queued */
		net_listener_forget(conn);
	return 0;
}

static void wake_acceptors(struct net_listener *listener)
{
	net_wake(listener->acceptor);
	net_poll_wake(listener->pollers, ~0u);
}

err_t net_listener_established(struct net_conn *conn)
{
	struct net_listener *listener = conn->listener;

	if (listener->stopped)
		goto refuse;
	conn->owned = true;
	conn->attached = true;
	net_here()->stats.accepted++;
	net_client_established(conn);
	if (listener->handler) {
		if (spawn_handler(listener, conn) == 0) {
			net_event_opened(conn, false);
			return ERR_OK;
		}
		conn->owned = false;
		goto refuse;
	}
	conn->link_next = NULL;
	if (listener->tail)
		listener->tail->link_next = conn;
	else
		listener->head = conn;
	listener->tail = conn;
	listener->queued++;
	net_event_opened(conn, false);
	wake_acceptors(listener);
	return ERR_OK;

refuse:
	conn->attached = false;
	return ERR_MEM;
}

static struct net_conn *pop_conn(struct net_listener *listener)
{
	struct net_conn *conn = listener->head;

	if (!conn)
		return NULL;
	listener->head = conn->link_next;
	listener->queued--;
	if (!listener->head)
		listener->tail = NULL;
	conn->link_next = NULL;
	if (conn->pending)
		net_listener_forget(conn);
	return conn;
}

static int wait_acceptable(struct net_listener *listener, struct coro *self)
{
	int err;

	if (net_here()->draining)
		return -ECANCELED;
	listener->acceptor = self;
	listener->refs++;
	err = coro_park_in_call(CORO_FOREVER);
	listener->refs--;
	listener->acceptor = NULL;
	if (listener->closed) {
		net_listener_put(listener);
		net_call_end(err);
		return -EINVAL;
	}
	net_call_end(err);
	return net_here()->draining ? -ECANCELED : err;
}

int net_accept(struct net_listener *listener, struct net_conn **out)
{
	struct coro *self = coro_self();
	struct net_conn *conn;

	NET_CHECK_THREAD();
	if (!listener)
		return -EBADF;
	if (!out || listener->tls)
		return -EINVAL;
	if (!self)
		return -EPERM;
	if (listener->acceptor)
		return -EBUSY;
	while (!(conn = pop_conn(listener))) {
		int err = wait_acceptable(listener, self);

		if (err < 0)
			return err;
	}
	*out = conn;
	return 0;
}

int net_listener_serve(struct net_listener *listener, net_handler handler,
		       void *arg)
{
	struct net_conn *conn;

	NET_CHECK_THREAD();
	if (!listener)
		return -EBADF;
	if (!handler)
		return -EINVAL;
	coro_sched_last(net_here()->sched, end_serving);
	listener->handler = handler;
	listener->handler_arg = arg;
	if (!listener->named)
		net_code_name((uintptr_t)handler, listener->handler_name,
			      sizeof(listener->handler_name));
	while ((conn = listener->head)) {
		listener->head = conn->link_next;
		listener->queued--;
		if (spawn_handler(listener, conn) < 0)
			net_abort(conn);
	}
	listener->tail = NULL;
	return 0;
}

/* Ends listening; the memory stays for its owner. May be called twice. */
void net_listener_stop(struct net_listener *listener)
{
	struct net_conn *conn;

	if (listener->stopped)
		return;
	listener->stopped = true;
	net_event_listener(listener, "stopped");
	net_listener_unhash(listener);
	while ((conn = pop_conn(listener)))
		net_abort(conn);
	wake_acceptors(listener);
}

int net_listener_drain(struct net_listener *listener)
{
	if (!listener)
		return -EBADF;
	listener->draining = true;
	return (int)listener->pending;
}

void net_listener_close(struct net_listener *listener)
{
	NET_CHECK_THREAD();
	if (!listener || listener->closed) /* by net_stack_close() */
		return;
	*listener->pprev = listener->next;
	if (listener->next)
		listener->next->pprev = listener->pprev;
	net_listener_stop(listener);
	listener->closed = true;
	net_listener_put(listener);
}
