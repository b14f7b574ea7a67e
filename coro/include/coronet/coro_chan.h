/*
 * coro_chan.h - channels between coroutines, and select. A channel is the
 * thread's that uses it first, and another thread is refused by an abort; one
 * that coro_chan_open_shared() opened is for the coroutines of all threads.
 *
 * A channel carries values of one size, copied in and out; a value in flight
 * lies in the channel or in the scheduler's memory, never on a stack that may
 * be somebody else's. Waiting senders and receivers are served in the order
 * they came.
 *
 * The waiting calls return 0, -EPIPE (closed), -ETIMEDOUT, -ECANCELED, -ENOMEM,
 * -EPERM (outside a coroutine, and it would have to wait).
 */
#pragma once

#include <coronet/coro.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct coro_chan;

/*
 * value_bytes: 0 (a bare event) .. 1 MiB. capacity: how many values it holds
 * that nobody has received yet; 0: a send waits for its receiver. *out is owned
 * by the caller: coro_chan_free(). Returns 0, -EINVAL, -ENOMEM.
 */
int coro_chan_open(size_t value_bytes, size_t capacity, struct coro_chan **out);

/*
 * The same, for any number of senders and receivers on any threads. Sending,
 * receiving, closing and select do what they do on others, and a select may mix
 * both kinds. A channel has a lock, held while a value is copied. Trysend,
 * tryrecv, close, count and state may be called from threads without a
 * scheduler as well, not from signal handlers; the scheduler of whoever waits
 * is woken if it sleeps. A deadline or a coro_cancel() that comes when another
 * thread has just done the exchange comes too late: the call returns 0. Of
 * several cases that can be done, a select with shared channels takes a random
 * one.
 */
int coro_chan_open_shared(size_t value_bytes, size_t capacity,
			  struct coro_chan **out);

/* One more owner: each calls coro_chan_free(), and the last one frees. To be
 * called by an owner, for a thread that will be one. Returns ch. */
struct coro_chan *coro_chan_ref(struct coro_chan *ch);

/* No more sends. Waiting senders get -EPIPE at once, receivers when what it
 * holds has been received. Closing twice is harmless. */
void coro_chan_close(struct coro_chan *ch);

/* Give up an owner's share; the last one frees it: nobody may wait on it then.
 * Values that it holds are forgotten. NULL is ignored. */
void coro_chan_free(struct coro_chan *ch);

int coro_chan_send(struct coro_chan *ch, const void *value);
int coro_chan_send_until(struct coro_chan *ch, const void *value,
			 int64_t deadline_ns);
int coro_chan_recv(struct coro_chan *ch, void *value); /* NULL: thrown away */
int coro_chan_recv_until(struct coro_chan *ch, void *value,
			 int64_t deadline_ns);

/* The same without waiting: -EAGAIN. Also from timers and outside. */
int coro_chan_trysend(struct coro_chan *ch, const void *value);
int coro_chan_tryrecv(struct coro_chan *ch, void *value);

size_t coro_chan_count(const struct coro_chan *ch); /* values it holds */

/*
 * Waiting for a channel among other things: what could be
 * done now without waiting, and a call when that may have changed. A waiting
 * receiver makes a channel of capacity 0 one that can be sent to, and a waiting
 * sender one that can be received from; a watch is neither.
 */
enum coro_chan_bits {
	CORO_CHAN_CAN_RECV = 1, /* a value, or the end: -EPIPE */
	CORO_CHAN_CAN_SEND = 2, /* room, or -EPIPE */
	CORO_CHAN_CLOSED = 4,
};

unsigned coro_chan_state(const struct coro_chan *ch);

/*
 * fn is called from the coroutine, timer or thread's own stack that changed the
 * channel, after the change: it may unpark and take its own watch off, no more.
 * For a shared channel it is called on the watching thread in its next round,
 * outside coroutines, once for all changes by then. The memory is the caller's,
 * must not lie on a shared stack, and must stay until coro_chan_unwatch(), on
 * the same thread, which is harmless for one that watches nothing. Returns 0,
 * and for shared channels also -ENOMEM, -EPERM (the thread has no scheduler).
 */
struct coro_chan_watch {
	struct coro_chan_watch *next;	/* private */
	struct coro_chan_watch **pprev; /* private; NULL: watches nothing */
	void (*fn)(struct coro_chan_watch *w);
};

int coro_chan_watch(struct coro_chan *ch, struct coro_chan_watch *w);
void coro_chan_unwatch(struct coro_chan_watch *w);

enum coro_op {
	CORO_RECV,
	CORO_SEND,
};

struct coro_case {
	struct coro_chan *chan; /* NULL: never ready */
	enum coro_op op;
	void *value; /* to receive into, or to send from */
	int err;     /* set on the chosen one: 0 or -EPIPE */
};

/*
 * Do exactly one of the cases, the first that can be done; of several that can,
 * the one whose channel no select has chosen for the longest time. The array
 * and the values may lie on the caller's stack. Returns the index of the case
 * done, or -ETIMEDOUT, -ECANCELED, -ENOMEM, -EPERM, -EINVAL (more than 1,024
 * cases).
 */
int coro_select(struct coro_case *cases, unsigned n);
int coro_select_until(struct coro_case *cases, unsigned n, int64_t deadline_ns);

/* With a default: -EAGAIN if none can be done now. */
int coro_select_try(struct coro_case *cases, unsigned n);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
