/*
 * How long a connection waits for its peer (RFC 5482's user timeout, for this
 * side alone). Few have such a bound: what it takes is kept in a larger
 * net_conn_ext, which is made when one is set.
 */
#include "netstack/conn/conn.h"

#include <errno.h>
#include <string.h>

/* In place of what the connection has, which goes. */
static struct net_conn_patience *make(struct net_conn *conn)
{
	struct net_conn_ext *was = net_conn_ext(conn);
	struct net_conn_patience *patience;

	if (!was)
		return NULL;
	patience = net_mem_calloc(1, sizeof(*patience));
	if (!patience)
		return NULL;
	memcpy(patience, was,
	       was->counted ? sizeof(struct net_counted) : sizeof(*was));
	patience->all.ext.patient = true;
	if (was->pollers) /* the list's head moves */
		was->pollers->pprev = &patience->all.ext.pollers;
	net_mem_free(was);
	conn->ext = &patience->all.ext;
	return patience;
}

int net_conn_set_patience(struct net_conn *conn, uint32_t timeout_ms)
{
	struct net_conn_patience *patience = net_conn_patience(conn);

	if (!patience && timeout_ms == 0)
		return 0;
	if (!patience)
		patience = make(conn);
	if (!patience)
		return -ENOMEM;
	patience->timeout_ms = timeout_ms;
	return 0;
}
