/*
 * The table of controllers, and the choice of one for a connection.
 */
#include "netstack/recovery/recovery_priv.h"

#include <string.h>

/* Indexed by net_conn.cc, which is two bits. */
static const struct net_cc *const controllers[] = {
	&net_cc_cubic,
	&net_cc_reno,
	&net_cc_bbr,
};

#define COUNT (sizeof(controllers) / sizeof(controllers[0]))

int net_cc_number(const char *name)
{
	for (unsigned i = 0; i < COUNT; i++)
		if (strcmp(controllers[i]->name, name) == 0)
			return (int)i;
	return -1;
}

const char *net_cc_name(const struct net_conn *conn)
{
	return controllers[conn->cc]->name;
}

const char *net_cc_title(unsigned number)
{
	return number < COUNT ? controllers[number]->name : "?";
}

const struct net_cc *net_cc_of(const struct net_conn *conn)
{
	return controllers[conn->cc];
}

void net_cc_begin(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	rec->cc = net_cc_of(conn);
	if (rec->cc->begin(conn))
		return;
	rec->cc = &net_cc_cubic;
	rec->cc->begin(conn);
}

void net_cc_end(struct net_conn *conn)
{
	const struct net_cc *cc = net_recovery_of(conn)->cc;

	if (cc->end)
		cc->end(conn);
}

void net_cc_choose(struct net_conn *conn, unsigned number)
{
	if (conn->cc == number)
		return;
	conn->cc = number & 3;
	if (!conn->has_recovery)
		return;
	net_cc_end(conn);
	net_cc_begin(conn);
}

/*
 * A connection that fills a path needs recovery state: for the end of slow
 * start, for pacing and for a model of the path. If the round trip is short,
 * the first two have no effect, and header prediction can continue.
 */
#define LONG_US NET_MS(1)

static bool fills_its_path(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	return pcb->cwnd > NET_CC_BULK * pcb->mss &&
	       net_send_queued(pcb) > NET_CC_BULK * pcb->mss &&
	       (pcb->min_rtt_us >= LONG_US || net_cc_of(conn)->models);
}

void net_cc_engage(struct net_conn *conn)
{
	if (conn->pcb.state >= ESTABLISHED &&
	    (conn->paced || (conn->srtt_us && fills_its_path(conn))))
		net_recovery_begin(conn);
}
