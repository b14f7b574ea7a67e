/*
 * Whose a coroutine is, for a person: the connection that it serves.
 */
#include "netstack/conn/conn.h"
#include "netstack/program/program.h"

#include <stdio.h>

const char *net_handler_name(const struct net_conn *conn)
{
	const struct net_listener *listener = net_listener_find_in(
		net_observed(), &conn->pcb.local_ip, conn->client_port);

	return listener && listener->handler ? listener->handler_name
					     : "no handler";
}

/*
 * A word that is the address of a connection in use. The first that is found is
 * the coroutine's own: a handler's caller has it in its frame.
 */
__attribute__((no_sanitize("address"))) bool
net_conn_recognize(uintptr_t word, char *text, size_t len)
{
	const struct net_conn *conn = (const struct net_conn *)word;
	char peer[NET_ADDR_TEXT_MAX];
	struct net_addr addr;

	if (!net_mem_is_conn(net_observed(), conn) ||
	    !(conn->owned || conn->served))
		return false;
	addr = net_peer_addr(conn);
	net_addr_format(&addr, peer, sizeof(peer));
	if (conn->served)
		snprintf(text, len, "handler %s, peer %s",
			 net_handler_name(conn), peer);
	else
		snprintf(text, len, "peer %s", peer);
	return true;
}
