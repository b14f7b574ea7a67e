/*
 * Views: pieces of received data that a handler holds.
 *
 * An unreleased view has a slot here. Its `owner` has the slot's offset and
 * serial number, so a view that is released twice, or after its connection has
 * ended, is recognised without touching its data. When a connection's handler
 * returns, or another owner closes it, its unreleased views are searched for,
 * reclaimed and logged.
 */
#include "netstack/program/log.h"
#include "netstack/conn/conn.h"

#include <errno.h>
#include <sys/mman.h>

#define TABLE_BYTES (NET_VIEW_SLOTS * sizeof(struct net_view_slot))

#undef net_view_slots
#undef net_view_free
NET_SHARD_VAR struct net_view_slot *net_view_slots; /* not the first */
NET_SHARD_VAR uint32_t net_view_free;
/* Slots that were ever used, and the first. */
static NET_SHARD_VAR uint32_t touched;
#define net_view_slots NET_SHARD(net_view_slots)
#define net_view_free  NET_SHARD(net_view_free)
#define touched	       NET_SHARD(touched)

int net_view_init(void)
{
	void *mem = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return -ENOMEM;
	net_view_slots = mem;
	net_view_free = 0;
	touched = 1;
	return 0;
}

void net_view_fini(void)
{
	if (net_view_slots)
		munmap(net_view_slots, TABLE_BYTES);
	net_view_slots = NULL;
}

void net_views_free(void)
{
	for (uint32_t i = 1; i < touched; i++)
		if (net_view_slots[i].serial & 1) {
			pbuf_free(net_view_slots[i].p);
			net_view_slots[i].serial++;
		}
}

bool net_views_visit(uint32_t *next, unsigned n,
		     void (*visit)(const struct net_conn *conn,
				   const struct pbuf *p))
{
	uint32_t end = touched - *next > n ? *next + n : touched;

	for (; *next < end; (*next)++) {
		const struct net_view_slot *slot = &net_view_slots[*next];

		if (slot->serial & 1)
			visit(slot->conn, slot->p);
	}
	return *next < touched;
}

/* Called if every slot that was ever used is in use. */
cold bool net_view_new_slot(void)
{
	if (touched == NET_VIEW_SLOTS)
		return false;
	net_view_slots[touched].next = net_view_free;
	net_view_free = touched++ * (uint32_t)sizeof(struct net_view_slot);
	return true;
}

cold struct pbuf *net_view_misused(void)
{
	net_here()->stats.view_misuses++;
	net_log_seldom_of(
		NET_COMPONENT_API,
		"coronet: coroutine '%s' releases a view that it no longer "
		"holds: it was released, sent or reclaimed before",
		coro_self() ? coro_name(coro_self()) : "(none)");
	return NULL;
}

/* ---- views that were never released ---- */

cold void net_views_reclaim(struct net_conn *conn)
{
	char peer[NET_ADDR_TEXT_MAX];
	struct net_addr addr;

	net_addr_from_lwip(&conn->pcb.remote_ip, conn->pcb.remote_port, &addr);
	net_here()->stats.views_reclaimed += conn->n_views;
	net_log_seldom_of(
		NET_COMPONENT_API,
		"coronet: %u view(s) of %s were never released: handler %s, "
		"coroutine '%s'",
		conn->n_views, net_addr_format(&addr, peer, sizeof(peer)),
		net_handler_name(conn),
		coro_self() ? coro_name(coro_self()) : "(none)");
	for (uint32_t i = 1; i < touched && conn->n_views; i++) {
		struct net_view_slot *slot = &net_view_slots[i];

		if (slot->serial & 1 && slot->conn == conn)
			pbuf_free(net_view_free_slot(slot, i * sizeof(*slot)));
	}
}
