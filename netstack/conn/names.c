/*
 * Names that applications give to connections. They are in a table by the
 * connection's address, so that connections without a name take no memory for
 * it. The first name creates the table, and only its used parts take memory.
 * Below it, a connection is described for people who debug a coroutine.
 */
#include "netstack/conn/conn.h"
#include "netstack/program/program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct net_conn_name {
	struct net_conn_name *next;
	const struct net_conn *conn;
	char text[NET_NAME_MAX];
};
static_assert(sizeof(struct net_conn_name) == 64, "a cache line");

/* A shard's table; another thread finds it by net_stack.names. */
static NET_SHARD_VAR struct net_names {
	struct net_conn_name **buckets; /* owned; NULL: none yet */
	uint32_t mask;
} own_names;
#define own_names NET_SHARD(own_names)

/* Hashes the pointer alone: a signal handler may pass any. */
static struct net_conn_name **bucket_of(const struct net_names *names,
					const struct net_conn *conn)
{
	uint64_t mixed = ((uintptr_t)conn >> 6) * UINT64_C(0x9e3779b97f4a7c15);

	return &names->buckets[(uint32_t)(mixed >> 32) & names->mask];
}

static struct net_conn_name *find_name(const struct net_stack *stack,
				       const struct net_conn *conn)
{
	struct net_conn_name *name;

	if (!conn->announced || !stack->names)
		return NULL;
	name = *bucket_of(stack->names, conn);
	while (name && name->conn != conn)
		name = name->next;
	return name;
}

const char *net_name_in(const struct net_stack *stack,
			const struct net_conn *conn)
{
	const struct net_conn_name *name = find_name(stack, conn);

	return name ? name->text : NULL;
}

void net_name_forget(struct net_conn *conn)
{
	struct net_conn_name **at, *name;

	if (!net_here()->names)
		return;
	at = bucket_of(net_here()->names, conn);
	while (*at && (*at)->conn != conn)
		at = &(*at)->next;
	name = *at;
	if (!name)
		return;
	*at = name->next;
	net_mem_free(name);
}

/* Makes the table when the first connection gets a name. */
static bool has_table(void)
{
	if (net_here()->names)
		return true;
	own_names.buckets =
		net_mem_map_table(net_here()->max_conns, &own_names.mask);
	if (!own_names.buckets)
		return false;
	net_here()->names = &own_names;
	return true;
}

static struct net_conn_name *make_name(struct net_conn *conn)
{
	struct net_conn_name *name, **bucket;

	name = has_table() ? net_mem_malloc(sizeof(*name)) : NULL;
	if (!name)
		return NULL;
	bucket = bucket_of(&own_names, conn);
	name->conn = conn;
	name->next = *bucket;
	name->text[0] = '\0';
	*bucket = name;
	conn->announced = true;
	return name;
}

int net_conn_set_name(struct net_conn *conn, const char *text)
{
	struct net_conn_name *name;
	size_t n;

	NET_CHECK_CONN(conn);
	if (!conn || !conn->owned)
		return -EBADF;
	name = find_name(net_here(), conn);
	if (!text) {
		if (name)
			net_name_forget(conn);
		return 0;
	}
	if (!name)
		name = make_name(conn);
	if (!name)
		return -ENOMEM;
	n = strnlen(text, NET_NAME_MAX - 1);
	for (size_t i = 0; i < n; i++)
		name->text[i] =
			(unsigned char)text[i] < ' ' || text[i] == '\x7f'
				? '?'
				: text[i];
	name->text[n] = '\0';
	return 0;
}

const char *net_conn_name(const struct net_conn *conn)
{
	NET_CHECK_CONN(conn);
	return conn ? net_name_in(net_here(), conn) : NULL;
}

void net_names_fini(void)
{
	net_here()->names = NULL;
	if (own_names.buckets)
		net_mem_unmap_table(own_names.buckets, own_names.mask);
	own_names.buckets = NULL;
}

/* ---- the connection that a coroutine serves ---- */

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
