/*
 * Limits the clients that have begun a request and not completed it: beyond the
 * limit, a new one displaces the oldest. A request that arrives complete is
 * never listed here, so clients that begin many requests and complete none only
 * displace each other.
 *
 * Each shard has a list of its own, and the limit is for the sum of all lists.
 * If the oldest item is another shard's, that shard displaces it in its next
 * round, so the limit may be exceeded until then.
 *
 * Nothing is allocated: an item is embedded in the object that it stands for.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <coronet/coro.h>

struct pending {
	struct pending *next, **pprev; /* pprev NULL: on no list */
	uint64_t turn;		       /* its position in the order of all */
};

/* The limit of the program; zeroed except for `max`. */
struct pending_limit {
	unsigned max;
	struct pending_list *_Atomic lists; /* a list that only grows */
	_Alignas(64) _Atomic unsigned n;    /* items of all lists */
	_Atomic uint64_t turns;
};

/* A shard's list: used by its thread alone, except `first` and `wake`. */
struct pending_list {
	struct pending *oldest, **newest; /* set by pending_init() */
	unsigned n;
	uint64_t displaced;
	/* Ends the request of an item, which was removed from the list. */
	void (*displace)(struct pending *item);
	struct pending_limit *limit;
	struct pending_list *next;
	struct coro_sched *sched; /* a reference; may be closed */
	struct coro_wake wake;
	_Alignas(64) _Atomic uint64_t first; /* turn of the oldest, or NONE */
};
#define PENDING_NONE UINT64_MAX

/*
 * Called on the shard's thread, while its scheduler is open. The memory must
 * stay until pending_fini(). displace() is called on this thread, in a
 * coroutine or outside.
 */
void pending_init(struct pending_list *list, struct pending_limit *limit,
		  void (*displace)(struct pending *item));

/* Called when no shard runs any more. Does nothing for a list of all zeros. */
void pending_fini(struct pending_list *list);

/* Adds an item as the newest, unless it is on the list already. */
void pending_enter(struct pending_list *list, struct pending *item);

/* Removes an item; does nothing if it is not on the list. */
void pending_leave(struct pending_list *list, struct pending *item);
