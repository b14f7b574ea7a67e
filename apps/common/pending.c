#include "apps/common/pending.h"

#include <stddef.h>

void pending_init(struct pending_list *list, unsigned max,
		  void (*displace)(struct pending *item))
{
	*list = (struct pending_list){.max = max, .displace = displace};
	list->newest = &list->oldest;
}

void pending_enter(struct pending_list *list, struct pending *item)
{
	if (item->pprev)
		return;
	item->next = NULL;
	item->pprev = list->newest;
	*list->newest = item;
	list->newest = &item->next;
	if (++list->n > list->max) {
		struct pending *oldest = list->oldest;

		pending_leave(list, oldest);
		list->displaced++;
		list->displace(oldest);
	}
}

void pending_leave(struct pending_list *list, struct pending *item)
{
	if (!item->pprev)
		return;
	*item->pprev = item->next;
	if (item->next)
		item->next->pprev = item->pprev;
	else
		list->newest = item->pprev;
	item->pprev = NULL;
	list->n--;
}
