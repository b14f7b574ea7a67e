/*
 * Opens connections: net_dial(), its source address and its port.
 */
#include "netstack/api/api.h"
#include "netstack/program/events.h"

#include <errno.h>

#define DIAL_TIMEOUT_MS 30000
#define NO_PORT_NS	50000000 /* until a free one is looked for again */
#define NO_PORT_SLOTS	16u

/* Addresses between which no port was free, until until_ns. */
struct no_port {
	ip_addr_t local, remote;
	uint16_t remote_port;
	net_port_is_free is_free; /* distinguishes TCP from UDP */
	int64_t until_ns;
};
static NET_SHARD_VAR struct no_port no_ports[NO_PORT_SLOTS];
#define no_ports NET_SHARD(no_ports)

/*
 * A connection in TIME_WAIT gives its 4-tuple up to a new one whose sequence
 * numbers lie beyond all of its own (RFC 6191's idea, with our ISN's clock in
 * place of timestamps). The ports of a destination are taken in turn, so it is
 * the oldest of its kind. Returns whether the tuple is free now.
 */
static bool take_over(struct net_conn *old)
{
	const struct tcp_pcb *pcb = &old->pcb;
	uint32_t isn;

	if (pcb->state != TIME_WAIT)
		return false;
	isn = net_isn(&pcb->local_ip, pcb->local_port, &pcb->remote_ip,
		      pcb->remote_port);
	if ((int32_t)(isn - pcb->snd_nxt) <= 0)
		return false;
	tcp_abort(&old->pcb);
	return true;
}

static bool tuple_is_free(const ip_addr_t *local, uint16_t port,
			  const ip_addr_t *remote, uint16_t remote_port)
{
	struct net_conn *old = net_demux_find(local, port, remote, remote_port);

	if (port == remote_port && ip_addr_eq(local, remote))
		return false; /* it would dial itself */
	return !net_listener_find(local, port) && (!old || take_over(old)) &&
	       net_time_wait_yields(local, port, remote, remote_port);
}

bool net_flow_is_here(uint16_t fold, uint16_t port, uint16_t remote_port)
{
	return net_here()->n_shards == 1 ||
	       glue_flow_shard(fold, port, remote_port) == net_here()->shard;
}

uint16_t net_flow_fold(const ip_addr_t *local, const ip_addr_t *remote)
{
	if (net_here()->n_shards == 1)
		return 0;
	return IP_IS_V6(local) ? glue_flow_fold(ip_2_ip6(local)->addr,
						ip_2_ip6(remote)->addr, 16)
			       : glue_flow_fold(&ip_2_ip4(local)->addr,
						&ip_2_ip4(remote)->addr, 4);
}

/*
 * Returns the slot that notes that a destination has no port left. To check all
 * ports takes milliseconds: a program that connects again and again must not
 * stall all connections for that.
 */
static struct no_port *no_port_slot(const ip_addr_t *remote,
				    uint16_t remote_port)
{
	uint32_t h = IP_IS_V6(remote) ? ip_2_ip6(remote)->addr[3]
				      : ip_2_ip4(remote)->addr;

	h = (h ^ remote_port) * 2654435761u;
	return &no_ports[(h >> 16) % NO_PORT_SLOTS];
}

static bool known_full(const struct no_port *slot, const ip_addr_t *local,
		       const ip_addr_t *remote, uint16_t remote_port,
		       net_port_is_free is_free)
{
	return net_here()->now_ns < slot->until_ns &&
	       slot->is_free == is_free && slot->remote_port == remote_port &&
	       ip_addr_eq(&slot->local, local) &&
	       ip_addr_eq(&slot->remote, remote);
}

uint16_t net_port_choose(const ip_addr_t *local, const ip_addr_t *remote,
			 uint16_t remote_port, net_port_is_free is_free)
{
	struct no_port *slot = no_port_slot(remote, remote_port);
	struct net_ephemeral search;
	uint16_t fold;

	if (known_full(slot, local, remote, remote_port, is_free))
		return 0;
	search = net_ephemeral_dial(local, remote, remote_port);
	fold = net_flow_fold(local, remote);
	for (unsigned i = 0; i < net_port_count(); i++) {
		uint16_t port = net_ephemeral_next(&search);

		if (net_flow_is_here(fold, port, remote_port) &&
		    is_free(local, port, remote, remote_port))
			return port;
	}
	*slot = (struct no_port){*local, *remote, remote_port, is_free,
				 net_here()->now_ns + NO_PORT_NS};
	return 0;
}

/*
 * An address that the user has chosen sends through its own link. *local gets
 * its zone.
 */
static int check_source(ip_addr_t *local, const ip_addr_t *remote)
{
	const struct net_ifaddr *own = net_ifaddr_named(local);
	struct net_hop hop;

	if (IP_GET_TYPE(local) != IP_GET_TYPE(remote) || !own)
		return -EADDRNOTAVAIL;
	/* No frame may carry a loopback address, so both ends have one. */
	if (!!ip_addr_isloopback(remote) != !!ip_addr_isloopback(local))
		return -EHOSTUNREACH;
	ip_addr_copy(*local, own->ip);
	if (ip_addr_ismulticast(remote) || net_link_owns(own->netif, remote))
		return 0;
	return net_route_find(own->netif->state, remote, &hop);
}

int net_source_choose(const struct net_addr *source, const ip_addr_t *remote,
		      ip_addr_t *local)
{
	const struct net_ifaddr *own = NULL;
	struct net_hop hop;

	if (source && source->family) {
		net_addr_to_lwip(source, local);
		return check_source(local, remote);
	}
	if (ip_addr_ismulticast(remote))
		own = net_group_source(remote);
	else if (ip_addr_isloopback(remote))
		own = net_ifaddr_named(remote);
	else if (net_route_find(NULL, remote, &hop) == 0)
		own = net_route_source(&hop, remote);
	if (!own)
		return -EHOSTUNREACH;
	ip_addr_copy(*local, own->ip);
	return 0;
}

/* Begins the trace before the SYN leaves; lwIP sets the same fields later. */
static void begin_trace(struct net_conn *conn, const ip_addr_t *remote,
			uint16_t port)
{
	ip_addr_copy(conn->pcb.remote_ip, *remote);
	conn->pcb.remote_port = port;
	net_trace_begins(conn, "dialed");
}

int net_route(struct net_stack *stack, const struct net_addr *addr,
	      struct net_addr *source)
{
	ip_addr_t local, remote;
	int err;

	NET_CHECK_STACK(stack);
	if (!stack || !addr || addr->family == 0)
		return -EINVAL;
	net_addr_to_lwip(addr, &remote);
	err = net_source_choose(NULL, &remote, &local);
	if (err == 0 && source)
		net_addr_from_lwip(&local, 0, source);
	return err;
}

static int start_dial(struct net_conn *conn, const struct net_addr *addr,
		      const struct net_dial_opts *opts)
{
	struct tcp_pcb *pcb = &conn->pcb;
	ip_addr_t local, remote;
	uint16_t port;
	err_t rc;
	int err;

	net_addr_to_lwip(addr, &remote);
	if (ip_addr_ismulticast(&remote))
		return -EHOSTUNREACH; /* RFC 1122 4.2.3.10 */
	err = net_source_choose(opts ? &opts->source : NULL, &remote, &local);
	if (err < 0)
		return err;
	port = opts ? opts->source.port : 0;
	if (port &&
	    !net_flow_is_here(net_flow_fold(&local, &remote), port, addr->port))
		return -EADDRNOTAVAIL;
	if (port && !tuple_is_free(&local, port, &remote, addr->port))
		return -EADDRINUSE;
	if (!port)
		port = net_port_choose(&local, &remote, addr->port,
				       tuple_is_free);
	if (!port)
		return -EADDRNOTAVAIL;
	ip_addr_copy(pcb->local_ip, local);
	pcb->local_port = port;
	conn->connecting = true;
	conn->attached = true;
	tcp_nagle_disable(pcb);
	net_ts_offer(conn, &remote, addr->port);
	net_ecn_offer(&conn->pcb);
	if (unlikely(net_here()->traces))
		begin_trace(conn, &remote, addr->port);
	rc = tcp_connect(pcb, &remote, addr->port, NULL);
	if (rc == ERR_OK && net_traced(conn))
		net_trace_settle(conn);
	net_pcbs_take_back();
	switch (rc) {
	case ERR_OK:
		return 0;
	case ERR_RTE:
		return -EHOSTUNREACH;
	case ERR_MEM:
	case ERR_BUF:
		return -ENOMEM;
	default:
		return -EINVAL;
	}
}

int64_t net_dial_deadline(const struct net_dial_opts *opts)
{
	unsigned timeout_ms =
		opts && opts->timeout_ms ? opts->timeout_ms : DIAL_TIMEOUT_MS;

	return net_here()->now_ns + timeout_ms * INT64_C(1000000);
}

/* Waits for the handshake; returns the most specific error. */
static int finish_dial(struct net_conn *conn, const struct net_dial_opts *opts)
{
	int64_t deadline = net_dial_deadline(opts);
	ip_addr_t remote;

	ip_addr_copy(remote, conn->pcb.remote_ip);
	while (conn->connecting && !conn->err) {
		int err = net_conn_wait(conn, &conn->writer, deadline);

		if (err == -ETIMEDOUT)
			return net_neighbour_reachable(&remote) ? err
								: -EHOSTUNREACH;
		if (err < 0)
			return err;
	}
	if (conn->err == -ETIMEDOUT && !net_neighbour_reachable(&remote))
		return -EHOSTUNREACH;
	return conn->err;
}

cold static long finish_traced(struct net_conn *conn,
			       const struct net_dial_opts *opts)
{
	struct net_trace_call call;

	net_trace_call(conn, "net_dial", 0, &call);
	return net_trace_call_end(&call, finish_dial(conn, opts));
}

cold int net_dial_tls(struct net_conn *conn, struct net_tls *tls,
		      const char *name, int64_t deadline_ns)
{
	const struct net_tls_calls *calls =
		*(const struct net_tls_calls **)(void *)tls;
	int err = calls->connect(conn, tls, name, deadline_ns);

	if (err == -EPROTO) /* an alert may be on its way */
		net_close(conn);
	else if (err < 0 && err != -EBADF)
		net_abort(conn);
	net_call_end(err);
	return err;
}

int net_dial(struct net_stack *stack, const struct net_addr *addr,
	     const struct net_dial_opts *opts, struct net_conn **out)
{
	int64_t deadline_ns = net_dial_deadline(opts);
	struct net_conn *conn;
	struct tcp_pcb *pcb;
	int err;

	NET_CHECK_STACK(stack);
	if (!stack || !addr || !out)
		return -EINVAL;
	if (!coro_self())
		return -EPERM;
	if (addr->family == 0 || addr->port == 0)
		return -EINVAL;
	if (stack->draining)
		return -ECANCELED;
	pcb = tcp_new_ip_type(addr->family == 6 ? IPADDR_TYPE_V6
						: IPADDR_TYPE_V4);
	if (!pcb) {
		net_event_dial(addr, -ENOMEM);
		return -ENOMEM;
	}
	conn = net_conn_of(pcb);
	conn->owned = true;
	err = start_dial(conn, addr, opts);
	if (err == 0 && opts && opts->local)
		net_addr_from_lwip(&pcb->local_ip, pcb->local_port,
				   opts->local);
	if (err == 0)
		err = net_traced(conn) ? (int)finish_traced(conn, opts)
				       : finish_dial(conn, opts);
	if (err < 0) {
		net_event_dial(addr, err);
		if (err != -EBADF)
			net_abort(conn);
		net_call_end(err);
		return err;
	}
	if (opts && opts->tls)
		err = net_dial_tls(conn, opts->tls, opts->tls_name,
				   deadline_ns);
	if (err < 0) {
		net_event_dial(addr, err);
		return err;
	}
	stack->stats.dialed++;
	*out = conn;
	return 0;
}
