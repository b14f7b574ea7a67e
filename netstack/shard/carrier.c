/*
 * Lets connections continue at once when a link has its carrier back, or when
 * an address that was removed is added again.
 *
 * While a link has no carrier, the retransmissions of its connections are lost,
 * and each doubles the wait for the next one (RFC 6298 5.5), up to a minute.
 * That is meant for a congested path. Here the cause is known, and so is its
 * end: a sweep over all connections, a part every millisecond, restores their
 * timeouts, as RFC 6069 does when a router reports an outage. The sweep spreads
 * the retransmissions of many connections over time.
 */
#include "netstack/shard/shard.h"

#include "netstack/link/link.h"
#include "netstack/tcp/tcp.h"

/* Bounds of a millisecond's part of a sweep. */
#define SWEEP_BUCKETS 4096u
#define SWEEP_CONNS   256u

static NET_SHARD_VAR struct {
	bool active, again; /* again: another link returned meanwhile */
	uint32_t bucket;    /* the next one of the sweep */
} sweep;
#define sweep NET_SHARD(sweep)

/* Connections of other links without a carrier stay as they are. */
static void resume_conn(struct net_conn *conn)
{
	const struct net_port *port = net_conn_port(conn);

	if (!conn->pcb_live || !port || port->no_carrier)
		return;
	net_persist_carrier_returned(&conn->pcb);
	net_timer_check(conn);
}

static void sweep_some(void)
{
	uint32_t end = LWIP_MIN(sweep.bucket + SWEEP_BUCKETS,
				net_here()->bucket_mask + 1);
	unsigned n = 0;

	while (sweep.bucket < end && n < SWEEP_CONNS) {
		struct net_conn *conn = net_here()->buckets[sweep.bucket++];

		for (; conn; conn = conn->pcb.hash_next, n++)
			resume_conn(conn);
	}
	if (sweep.bucket <= net_here()->bucket_mask)
		return;
	sweep.active = sweep.again;
	sweep.again = false;
	sweep.bucket = 0;
}

static void begin_sweep(void)
{
	sweep.again = sweep.active;
	sweep.active = true;
}

void net_carrier_tick(void)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++) {
		struct net_port *port = &net_here()->ports[i];
		bool none = !glue_port_has_carrier(port->glue);

		if (port->no_carrier && !none) {
			begin_sweep();
			net_announce_port(port);
			net_group_announce(port);
		}
		port->no_carrier = none;
	}
	if (net_here()->addr_returned)
		begin_sweep();
	net_here()->addr_returned = false;
	if (sweep.active)
		sweep_some();
}
