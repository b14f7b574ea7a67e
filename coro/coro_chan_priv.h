/*
 * coro_chan_priv.h - channels: definitions for coro_chan.c (channels of one
 * thread) and coro_shared.c (channels of all threads).
 */
#pragma once

#include <coronet/coro_chan.h>
#include <coronet/coro_sync.h>

#include "coro_priv.h"

#include <string.h>

struct chan_node {
	struct coro_link link; /* first; in a shared wait .next is NULL while
				  the node is in no queue */
	struct coro_select *sel;
	struct coro_chan *chan;
	void *slot; /* the value, in the same block */
	enum coro_op op;
};

/* coro_select.done, if it is not the index of the case done */
enum { SEL_WAITS = -1, SEL_LEFT = -2 };

struct coro_select {
	struct coro *co;
	struct shared_wait *shared; /* NULL: all channels are the thread's */
	uint32_t cap;		    /* bytes of this block */
	unsigned n;
	atomic_int done; /* index of the case done, or why there is none */
	int err;
	struct chan_node nodes[];
};

/*
 * Additional state of a wait in which another thread may do a case
 * (coro_shared.c).
 */
struct shared_wait {
	struct coro_wake wake; /* first */
	struct coro_select *sel;
	struct coro_sched *sched;
	struct coro_select *next_woken;
	bool remote; /* another thread did a case, and posts a wake-up */
	bool back;   /* that wake-up has arrived */
	unsigned n;
	struct coro_chan *chans[]; /* n shared channels, in address order */
};

struct coro_chan {
	struct coro_link waiters[2]; /* by enum coro_op */
	union {
		struct coro_chan_watch *watches;
		struct shared_watch *shared_watches;
	};
	size_t value_bytes;
	size_t capacity;
	size_t count;
	size_t first;
	const void *thread; /* its owner, set by the first use */
	uint64_t served[2]; /* when a select last chose it, by enum coro_op */
	bool closed;
	bool shared;	 /* by all threads; lock guards all but the sizes */
	atomic_int lock; /* shared only */
	atomic_uint refs;
	char ring[];
};

static inline char *chan_ring_at(struct coro_chan *ch, size_t i)
{
	size_t at = ch->first + i;

	if (at >= ch->capacity)
		at -= ch->capacity;
	return ch->ring + at * ch->value_bytes;
}

static inline void chan_copy(const struct coro_chan *ch, void *to,
			     const void *from)
{
	if (to && ch->value_bytes != 0)
		memcpy(to, from, ch->value_bytes);
}

/* Add a value to the ring, which has room for it. */
static inline void chan_ring_put(struct coro_chan *ch, const void *value)
{
	chan_copy(ch, chan_ring_at(ch, ch->count), value);
	ch->count++;
}

static inline void chan_ring_get(struct coro_chan *ch, void *value)
{
	chan_copy(ch, value, chan_ring_at(ch, 0));
	if (++ch->first == ch->capacity)
		ch->first = 0;
	ch->count--;
}

static inline struct chan_node *chan_first_waiter(const struct coro_chan *ch,
						  enum coro_op op)
{
	const struct coro_link *q = &ch->waiters[op];

	return q->next == q ? NULL : (struct chan_node *)q->next;
}

/* The first waiter whose wait has not ended yet; NULL: none. */
struct chan_node *chan_live_waiter(const struct coro_chan *ch, enum coro_op op);
unsigned chan_state(const struct coro_chan *ch); /* CORO_CHAN_CAN_... */
/* Notifies the watches of the thread's own channels that sel waits for. */
void coro_chan_notify_local(const struct coro_select *sel);

static inline void chan_link(struct chan_node *node)
{
	struct coro_link *q = &node->chan->waiters[node->op];

	node->link.next = q;
	node->link.prev = q->prev;
	q->prev->next = &node->link;
	q->prev = &node->link;
}

/* ---- coro_shared.c ---- */
static inline bool coro_shared_any(const struct coro_case *cases, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (cases[i].chan && unlikely(cases[i].chan->shared))
			return true;
	return false;
}

size_t coro_shared_wait_bytes(unsigned n);
void coro_shared_wait_init(struct shared_wait *w, struct coro_select *sel,
			   struct coro_sched *s);
/* Does a case that is ready and returns its index, or links all: -EAGAIN. */
int coro_shared_link(struct coro_select *sel, struct coro_case *cases);
/*
 * Removes a waiter of this thread from its queue and ends its wait. Returns
 * false if another thread has ended it before.
 */
bool coro_shared_take(struct chan_node *node);
/* Ends a wait and removes it from all queues. */
void coro_shared_abandon(struct coro_select *sel);
/* Returns whether sel must not be freed before its wake-up has arrived. */
bool coro_shared_orphan(struct coro_sched *s, struct coro_select *sel);
int coro_shared_trysend(struct coro_chan *ch, const void *value);
int coro_shared_tryrecv(struct coro_chan *ch, void *value);
int coro_shared_select_try(struct coro_case *cases, unsigned n);
int coro_shared_watch(struct coro_chan *ch, struct coro_chan_watch *w);
/* Returns false if it watches no shared channel. */
bool coro_shared_unwatch(struct coro_chan_watch *w);
void coro_shared_close(struct coro_chan *ch);
size_t coro_shared_count(struct coro_chan *ch);
unsigned coro_shared_state(struct coro_chan *ch);
