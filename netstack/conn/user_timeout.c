/*
 * Sets the user timeout of a connection (RFC 5482, for this side alone). Few
 * connections have one, so its state is in a larger net_conn_ext, which
 * replaces the connection's own when a timeout is set.
 */
#include "netstack/conn/conn.h"

#include <errno.h>
#include <string.h>

/* Replaces the connection's ext, which is freed. */
static struct net_conn_user_timeout *make_timeout(struct net_conn *conn)
{
	struct net_conn_ext *was = net_conn_ext(conn);
	struct net_conn_user_timeout *timeout;

	if (!was)
		return NULL;
	timeout = net_mem_calloc(1, sizeof(*timeout));
	if (!timeout)
		return NULL;
	memcpy(timeout, was,
	       was->counted ? sizeof(struct net_counted) : sizeof(*was));
	timeout->all.ext.has_user_timeout = true;
	if (was->pollers) /* the list's head moves */
		was->pollers->pprev = &timeout->all.ext.pollers;
	net_mem_free(was);
	conn->ext = &timeout->all.ext;
	return timeout;
}

int net_conn_set_user_timeout(struct net_conn *conn, uint32_t timeout_ms)
{
	struct net_conn_user_timeout *timeout = net_conn_user_timeout(conn);

	if (!timeout && timeout_ms == 0)
		return 0;
	if (!timeout)
		timeout = make_timeout(conn);
	if (!timeout)
		return -ENOMEM;
	timeout->timeout_ms = timeout_ms;
	return 0;
}
