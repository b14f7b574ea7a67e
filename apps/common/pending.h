/*
 * Clients that have begun a request and not ended it: so many at most, and the
 * one that began first makes room for the next. A request that is whole when it
 * arrives never waits here, so that those who begin many and end none displace
 * each other.
 *
 * No memory is kept: an item lies in what it stands for. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pending {
	struct pending *next, **pprev; /* pprev NULL: on no list */
};

struct pending_list {
	struct pending *oldest, **newest; /* set by pending_init() */
	unsigned n, max;
	uint64_t displaced;
	/* Ends what the item stands for; it is on the list no more. */
	void (*displace)(struct pending *item);
};

void pending_init(struct pending_list *list, unsigned max,
		  void (*displace)(struct pending *item));

/* The newest from now on, unless it is on the list already. */
void pending_enter(struct pending_list *list, struct pending *item);

/* Nothing if it is not on the list. */
void pending_leave(struct pending_list *list, struct pending *item);
