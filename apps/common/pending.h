/*
 * Clients that have begun a request and not ended it: so many at most, and the
 * one that began first makes room for the next. A request that is whole when it
 * arrives never waits here, so that those who begin many and end none displace
 * each other.
 *
 * Each shard has a list of its own, and the limit is that of all lists. If the
 * oldest of all is another shard's, that one displaces it in its next round, so
 * there may be more of them for that long.
 *
 * No memory is kept: an item lies in what it stands for.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <coronet/coro.h>

struct pending {
	struct pending *next, **pprev; /* pprev NULL: on no list */
	uint64_t turn;		       /* its place in the order of all */
};

/* The program's; all zero but for `max`. */
struct pending_limit {
	unsigned max;
	struct pending_list *_Atomic lists; /* only grows */
	_Alignas(64) _Atomic unsigned n;    /* items of all lists */
	_Atomic uint64_t turns;
};

/* A shard's: its thread's alone, but for `first` and `wake`. */
struct pending_list {
	struct pending *oldest, **newest; /* set by pending_init() */
	unsigned n;
	uint64_t displaced;
	/* Ends what the item stands for; it is on the list no more. */
	void (*displace)(struct pending *item);
	struct pending_limit *limit;
	struct pending_list *next;
	struct coro_sched *sched; /* a reference; may be closed */
	struct coro_wake wake;
	_Alignas(64) _Atomic uint64_t first; /* the oldest's turn; or none */
};
#define PENDING_NONE UINT64_MAX

/*
 * On the shard's thread, whose scheduler is open. The memory stays until
 * pending_fini(). `displace` is called on this thread, in a coroutine or not.
 */
void pending_init(struct pending_list *list, struct pending_limit *limit,
		  void (*displace)(struct pending *item));

/* When no shard runs any more; nothing for a list that is all zero. */
void pending_fini(struct pending_list *list);

/* The newest from now on, unless it is on the list already. */
void pending_enter(struct pending_list *list, struct pending *item);

/* Nothing if it is not on the list. */
void pending_leave(struct pending_list *list, struct pending *item);
