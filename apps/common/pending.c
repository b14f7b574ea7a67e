/* Limits incomplete requests: beyond the limit the oldest one is displaced. */
#include "apps/common/pending.h"

#include <stddef.h>

static void unlink_item(struct pending_list *list, struct pending *item)
{
	*item->pprev = item->next;
	if (item->next)
		item->next->pprev = item->pprev;
	else
		list->newest = item->pprev;
	item->pprev = NULL;
	list->n--;
	list->first = list->oldest ? list->oldest->turn : PENDING_NONE;
}

/* The list whose oldest item is the oldest of all; NULL: there is none. */
static struct pending_list *oldest_list(struct pending_limit *limit)
{
	struct pending_list *oldest = NULL;
	uint64_t turn = PENDING_NONE;

	for (struct pending_list *l = limit->lists; l; l = l->next) {
		uint64_t first = l->first;

		if (first < turn) {
			turn = first;
			oldest = l;
		}
	}
	return oldest;
}

/* Counts one less, if there are too many: two shards never displace two items
 * when there is one too many. */
static bool take_excess(struct pending_limit *limit)
{
	unsigned n = limit->n;

	do {
		if (n <= limit->max)
			return false;
	} while (!atomic_compare_exchange_weak(&limit->n, &n, n - 1));
	return true;
}

/*
 * A shard that exceeds the limit calls this after its own item can be seen. It
 * displaces items of its own list, or wakes the shard that has the oldest,
 * which looks again: so some shard looks for as long as there are too many.
 * Each turn takes an item off the list.
 */
static void make_room(struct pending_list *list)
{
	while (list->limit->n > list->limit->max) {
		struct pending_list *from = oldest_list(list->limit);
		struct pending *item;

		if (!from) /* the last one is about to be uncounted */
			return;
		if (from != list) {
			coro_wake_post(from->sched, &from->wake);
			return;
		}
		if (!take_excess(list->limit))
			return;
		item = list->oldest;
		unlink_item(list, item);
		list->displaced++;
		list->displace(item);
	}
}

static void on_wake(struct coro_wake *wake)
{
	make_room((struct pending_list *)(void *)((char *)wake -
						  offsetof(struct pending_list,
							   wake)));
}

void pending_init(struct pending_list *list, struct pending_limit *limit,
		  void (*displace)(struct pending *item))
{
	*list = (struct pending_list){
		.limit = limit, .displace = displace, .first = PENDING_NONE};
	list->newest = &list->oldest;
	list->sched = coro_sched_ref(coro_sched_self());
	coro_wake_init(&list->wake, on_wake);
	list->next = limit->lists;
	while (!atomic_compare_exchange_weak(&limit->lists, &list->next, list))
		; /* bounded by the shards that begin at the same time */
}

void pending_fini(struct pending_list *list)
{
	coro_sched_unref(list->sched);
	list->sched = NULL;
}

void pending_enter(struct pending_list *list, struct pending *item)
{
	if (item->pprev)
		return;
	item->turn = atomic_fetch_add(&list->limit->turns, 1);
	item->next = NULL;
	item->pprev = list->newest;
	*list->newest = item;
	list->newest = &item->next;
	list->n++;
	if (list->oldest == item)
		list->first = item->turn;
	atomic_fetch_add(&list->limit->n, 1);
	make_room(list);
}

void pending_leave(struct pending_list *list, struct pending *item)
{
	if (!item->pprev)
		return;
	unlink_item(list, item);
	atomic_fetch_sub(&list->limit->n, 1);
}
