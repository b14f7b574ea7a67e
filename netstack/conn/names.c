/*
 * Names that applications give to connections. They are in a table by the
 * connection's address, so that connections without a name take no memory for
 * it. The first name creates the table, and only its used parts take memory.
 */
#include "netstack/conn/conn.h"
#include "netstack/program/program.h"

#include <errno.h>
#include <string.h>

struct net_conn_name {
	struct net_conn_name *next;
	const struct net_conn *conn;
	char text[NET_NAME_MAX];
};
static_assert(sizeof(struct net_conn_name) == 64, "a cache line");

/* Hashes the pointer alone: a signal handler may pass any. */
static struct net_conn_name **bucket_of(const struct net_stack *stack,
					const struct net_conn *conn)
{
	uint64_t mixed = ((uintptr_t)conn >> 6) * UINT64_C(0x9e3779b97f4a7c15);

	return &stack->names[(uint32_t)(mixed >> 32) & stack->names_mask];
}

static struct net_conn_name *find_name(const struct net_stack *stack,
				       const struct net_conn *conn)
{
	struct net_conn_name *name;

	if (!conn->announced || !stack->names)
		return NULL;
	name = *bucket_of(stack, conn);
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
	at = bucket_of(net_here(), conn);
	while (*at && (*at)->conn != conn)
		at = &(*at)->next;
	name = *at;
	if (!name)
		return;
	*at = name->next;
	net_mem_free(name);
}

static struct net_conn_name *make_name(struct net_conn *conn)
{
	struct net_stack *stack = net_here();
	struct net_conn_name *name, **bucket;

	if (!stack->names)
		stack->names =
			net_mem_map_table(stack->max_conns, &stack->names_mask);
	name = stack->names ? net_mem_malloc(sizeof(*name)) : NULL;
	if (!name)
		return NULL;
	bucket = bucket_of(stack, conn);
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
	struct net_stack *stack = net_here();

	if (stack->names)
		net_mem_unmap_table(stack->names, stack->names_mask);
	stack->names = NULL;
}
