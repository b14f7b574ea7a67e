/*
 * Views: pieces of received data in the hands of a handler.
 *
 * A view that is out has a slot here, which its `owner` names together with the
 * slot's serial number. So a view that is released twice, or after its
 * connection has ended, is recognised without touching what it referred to. The
 * slots of a connection are a list: when its handler returns, or whoever
 * else owns it lets go of it, what is left is reclaimed and the log says so.
 */
#include "netstack/net_log.h"
#include "netstack/net_priv.h"

#include <errno.h>
#include <sys/mman.h>

#define SLOTS (1u << 20) /* views of all connections; address space */

struct slot {
	struct pbuf *p; /* NULL: free */
	struct net_conn *conn;
	uint32_t next, prev; /* of the connection; free: the next free one */
	uint32_t serial;
};

static struct slot *slots; /* the first is never used: 0 is none */
static uint32_t first_free, n_touched;

int net_view_init(void)
{
	void *mem =
		mmap(NULL, SLOTS * sizeof(struct slot), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return -ENOMEM;
	slots = mem;
	first_free = 0;
	n_touched = 1;
	return 0;
}

void net_view_fini(void)
{
	if (slots)
		munmap(slots, SLOTS * sizeof(struct slot));
	slots = NULL;
}

void net_views_end(void)
{
	for (uint32_t i = 1; i < n_touched; i++)
		if (slots[i].p) {
			pbuf_free(slots[i].p);
			slots[i].p = NULL;
		}
}

static uint32_t take_slot(void)
{
	uint32_t index = first_free;

	if (index)
		first_free = slots[index].next;
	else if (n_touched < SLOTS)
		index = n_touched++;
	return index;
}

bool net_view_out(struct net_conn *conn, struct pbuf *p, struct net_view *view)
{
	uint32_t index = take_slot();
	struct slot *slot = &slots[index];

	if (!index)
		return false;
	slot->p = p;
	slot->conn = conn;
	slot->prev = 0;
	slot->next = conn->views;
	if (conn->views)
		slots[conn->views].prev = index;
	conn->views = index;
	conn->n_views++;
	view->owner = (void *)((uintptr_t)slot->serial << 32 | index);
	return true;
}

static struct pbuf *free_slot(uint32_t index)
{
	struct slot *slot = &slots[index];
	struct pbuf *p = slot->p;

	if (slot->prev)
		slots[slot->prev].next = slot->next;
	else
		slot->conn->views = slot->next;
	if (slot->next)
		slots[slot->next].prev = slot->prev;
	slot->conn->n_views--;
	slot->p = NULL;
	slot->serial++;
	slot->next = first_free;
	first_free = index;
	return p;
}

__attribute__((cold, noinline)) static struct pbuf *complain(void)
{
	net_the.stats.view_misuses++;
	net_log_seldom("coronet: coroutine '%s' gives back a view that is out "
		       "no more: it was released, sent or reclaimed before",
		       coro_self() ? coro_name(coro_self()) : "(none)");
	return NULL;
}

struct pbuf *net_view_back(const struct net_view *view)
{
	uint32_t index = (uint32_t)(uintptr_t)view->owner;
	uint32_t serial = (uint32_t)((uintptr_t)view->owner >> 32);

	if (__builtin_expect(index == 0 || index >= n_touched ||
				     !slots[index].p ||
				     slots[index].serial != serial,
			     0))
		return complain();
	return free_slot(index);
}

/* ---- what was forgotten ---- */

__attribute__((cold, noinline)) void net_views_reclaim(struct net_conn *conn)
{
	char peer[NET_ADDR_TEXT_MAX];
	struct net_addr addr = net_peer_addr(conn);

	net_the.stats.views_reclaimed += conn->n_views;
	net_log_seldom(
		"coronet: %u view(s) of %s were never released: handler %s, "
		"coroutine '%s'",
		conn->n_views, net_addr_format(&addr, peer, sizeof(peer)),
		net_handler_name(conn),
		coro_self() ? coro_name(coro_self()) : "(none)");
	while (conn->views)
		pbuf_free(free_slot(conn->views));
}
