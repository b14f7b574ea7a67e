/*
 * Describes for people which connection a coroutine serves.
 */
#include "netstack/conn/conn.h"
#include "netstack/program/program.h"

#include <stdio.h>
#include <string.h>

_Thread_local const struct net_conn *net_recognized;

const char *net_handler_name(const struct net_conn *conn)
{
	const struct net_listener *listener = net_listener_find_in(
		net_observed(), &conn->pcb.local_ip, conn->pcb.own_port);

	return listener && listener->handler ? listener->handler_name
					     : "no handler";
}

/* Adds the name that the application gave the connection, if any. */
static void add_name(const struct net_conn *conn, char *text, size_t len)
{
	const char *name = net_name_in(net_observed(), conn);
	size_t used = strlen(text);

	if (name)
		snprintf(text + used, len - used, ", named %s", name);
}

/*
 * Is the word the address of a connection in use? The first that is found is
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
	net_recognized = conn;
	net_addr_from_lwip(&conn->pcb.remote_ip, conn->pcb.remote_port, &addr);
	net_addr_format(&addr, peer, sizeof(peer));
	if (conn->served)
		snprintf(text, len, "handler %s, peer %s",
			 net_handler_name(conn), peer);
	else
		snprintf(text, len, "peer %s", peer);
	add_name(conn, text, len);
	return true;
}
