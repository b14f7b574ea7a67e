/* UDP: opens, connects and closes sockets, and reports their properties. */
#include "netstack/api/api.h"

#include <string.h>

int net_udp_wait_result(const struct net_udp *udp, int err)
{
	if (!udp->owned)
		return -EBADF; /* closed by another coroutine meanwhile */
	if (net_here()->draining || udp->cancelled)
		return -ECANCELED;
	return err;
}

int net_udp_waited(struct net_udp *udp, int err)
{
	int result = net_udp_wait_result(udp, err);

	udp->waiters--;
	net_udp_put(udp);
	net_call_end(err);
	return result;
}

/* ---- opening ---- */

/* A port at which no unconnected socket excludes this one; 0: none. */
static uint16_t choose_port(const ip_addr_t *ip)
{
	struct net_ephemeral search = net_ephemeral_listen();

	for (unsigned i = 0; i < net_port_count(); i++) {
		uint16_t port = net_ephemeral_next(&search);

		if (!net_udp_is_taken(ip, port, false) &&
		    !net_udp_is_taken(NULL, port, false))
			return port;
	}
	return 0;
}

int net_udp_open(struct net_stack *stack, const struct net_addr *local,
		 const struct net_udp_opts *opts, struct net_udp **out)
{
	struct net_udp *udp;
	ip_addr_t ip;
	uint16_t port;

	NET_CHECK_STACK(stack);
	if (!stack || !local || !out)
		return -EINVAL;
	if (stack->draining)
		return -ECANCELED;
	if (!net_addr_is_own(local))
		return -EADDRNOTAVAIL;
	if (stack->memory_full || net_udps.n >= NET_UDP_MAX ||
	    net_udp_tables_open() < 0)
		return -ENOMEM;
	net_addr_read(local, &ip);
	port = local->port;
	if (port == 0)
		port = choose_port(local->family ? &ip : NULL);
	if (port == 0 || net_udp_is_taken(local->family ? &ip : NULL, port,
					  opts && opts->shared))
		return -EADDRINUSE;
	udp = net_udp_new(opts);
	if (!udp)
		return -ENOMEM;
	ip_addr_copy(udp->local, ip);
	udp->local_port = port;
	udp->port_chosen = local->port == 0;
	net_udp_hash(udp);
	*out = udp;
	return 0;
}

void net_udp_close(struct net_udp *udp)
{
	NET_CHECK_UDP(udp);
	if (udp && udp->owned)
		net_udp_disown(udp);
}

/* ---- connecting ---- */

static bool is_broadcast4(const ip4_addr_t *ip)
{
	for (unsigned i = 0; i < net_here()->n_netifs; i++)
		if (ip4_addr_isbroadcast(ip, &net_here()->netifs[i]))
			return true;
	return false;
}

int net_udp_read_peer(const struct net_addr *peer, ip_addr_t *remote)
{
	if (peer->port == 0 || (peer->family != 4 && peer->family != 6))
		return -EINVAL;
	net_addr_read(peer, remote);
	if (ip_addr_isany_val(*remote))
		return -EINVAL;
	if (ip_addr_isloopback(remote) && !net_ifaddr_named(remote))
		return -EHOSTUNREACH;
	if (IP_IS_V4_VAL(*remote) && is_broadcast4(ip_2_ip4(remote)))
		return -EACCES;
	return 0;
}

static bool tuple_is_free(const ip_addr_t *local, uint16_t port,
			  const ip_addr_t *remote, uint16_t remote_port)
{
	return !net_udp_find(local, port, remote, remote_port);
}

/* Finds both addresses; *port is the socket's, or a new one. */
static int choose_ends(const struct net_udp *udp, const struct net_addr *peer,
		       ip_addr_t *local, ip_addr_t *remote, uint16_t *port)
{
	struct net_addr source = {0};
	int err = net_udp_read_peer(peer, remote);

	if (err < 0)
		return err;
	if (!IP_IS_ANY_TYPE_VAL(udp->local)) {
		if (IP_GET_TYPE(&udp->local) != IP_GET_TYPE(remote))
			return -EADDRNOTAVAIL;
		if (!ip_addr_isany_val(udp->local))
			net_addr_from_lwip(&udp->local, 0, &source);
	}
	if (!source.family && ip_addr_ismulticast(remote) &&
	    udp->group_local.family == (IP_IS_V6(remote) ? 6 : 4))
		source = udp->group_local;
	err = net_source_choose(&source, remote, local);
	if (err < 0)
		return err;
	*port = udp->local_port;
	if (udp->port_chosen) {
		*port = net_port_choose(local, remote, peer->port,
					tuple_is_free);
		return *port ? 0 : -EADDRNOTAVAIL;
	}
	if (!net_flow_is_here(net_flow_fold(local, remote), *port, peer->port))
		return -EADDRNOTAVAIL;
	return net_udp_find_connected(local, *port, remote, peer->port)
		       ? -EADDRINUSE
		       : 0;
}

int net_udp_connect(struct net_udp *udp, const struct net_addr *peer)
{
	ip_addr_t local, remote;
	uint16_t port;
	int err;

	NET_CHECK_UDP(udp);
	err = net_udp_enter(udp);
	if (err < 0)
		return err;
	if (!peer)
		return -EINVAL;
	if (udp->remote_port)
		return -EISCONN;
	err = choose_ends(udp, peer, &local, &remote, &port);
	if (err < 0)
		return err;
	net_udp_queue_clear(udp);
	net_udp_unhash(udp);
	ip_addr_copy(udp->local, local);
	ip_addr_copy(udp->remote, remote);
	udp->local_port = port;
	udp->remote_port = peer->port;
	net_udp_hash(udp);
	return 0;
}

/* ---- options, errors, addresses, statistics ---- */

void net_udp_set_read_deadline(struct net_udp *udp, int64_t deadline_ns)
{
	NET_CHECK_UDP(udp);
	if (udp)
		udp->read_deadline = deadline_ns;
}

int net_udp_set_opts(struct net_udp *udp, const struct net_udp_opts *opts)
{
	NET_CHECK_UDP(udp);
	if (!udp || !udp->owned)
		return -EBADF;
	if (!opts)
		return -EINVAL;
	net_udp_configure(udp, opts);
	return 0;
}

void net_udp_set_watch(struct net_udp *udp, struct net_udp_watch *watch)
{
	NET_CHECK_UDP(udp);
	net_check_shared(watch, "net_udp_set_watch: the watch");
	if (!udp || !udp->owned)
		return;
	udp->watch = watch;
	if (!watch)
		net_room_leave(&udp->room);
}

int net_udp_error(struct net_udp *udp, bool take)
{
	NET_CHECK_UDP(udp);
	if (!udp || !udp->owned)
		return -EBADF;
	return take ? net_udp_take_error(udp) : udp->err;
}

int net_udp_cancel(struct net_udp *udp)
{
	NET_CHECK_UDP(udp);
	if (!udp || !udp->owned)
		return -EBADF;
	udp->cancelled = true;
	net_udp_wake(udp, ~0u);
	net_udp_wake_senders(udp);
	return 0;
}

struct net_addr net_udp_local_addr(const struct net_udp *udp)
{
	struct net_addr addr = {0};

	if (!udp)
		return addr;
	if (IP_IS_ANY_TYPE_VAL(udp->local))
		addr.port = udp->local_port;
	else
		net_addr_from_lwip(&udp->local, udp->local_port, &addr);
	return addr;
}

struct net_addr net_udp_peer_addr(const struct net_udp *udp)
{
	struct net_addr addr = {0};

	if (udp && udp->remote_port)
		net_addr_from_lwip(&udp->remote, udp->remote_port, &addr);
	return addr;
}

int net_udp_stats(const struct net_udp *udp, struct net_udp_stats *out)
{
	NET_CHECK_UDP(udp);
	if (!udp || !udp->owned)
		return -EBADF;
	*out = udp->stats;
	out->queued = udp->rx_queued;
	out->queued_bytes = udp->rx_queued_bytes;
	out->views = udp->n_held;
	return 0;
}
