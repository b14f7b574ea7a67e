/*
 * coro_chan.h - channels between coroutines, and select.
 *
 * Threads: a channel belongs to the thread that uses it first; sending,
 * receiving or closing from another ends the process with a message. A channel
 * that coro_chan_open_shared() has opened is for the coroutines of all threads.
 *
 * A channel carries values of one size, copied in and out; a value in flight
 * lies in the channel or in the scheduler's memory, never on a shared stack.
 * Waiting senders and receivers are served in the order in which they came.
 *
 * The calls that block return 0 or
 *   -EPIPE      the channel is closed; a receiver gets the values in it first
 *   -ETIMEDOUT  the call's or the coroutine's deadline has passed
 *   -ECANCELED  coro_cancel() was called on the coroutine
 *   -ENOMEM     no memory to wait with, or to save the coroutine's stack
 *   -EPERM      called outside a coroutine, and it would have to wait
 * Deadlines are absolute, in ns of the scheduler's clock; CORO_FOREVER: none.
 */
#pragma once

#include <coronet/coro.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct coro_chan;

/*
 * Opens a channel for the coroutines of one thread. value_bytes: size of a
 * value, 0 (a bare event) to 1 MiB. capacity: how many values it holds that
 * have not been received; 0: a send waits for its receiver. *out is owned by
 * the caller, who gives it to coro_chan_free(). From any thread. Returns 0,
 * -EINVAL (value_bytes is too large, or the product of the two) or -ENOMEM.
 */
int coro_chan_open(size_t value_bytes, size_t capacity, struct coro_chan **out);

/*
 * Like coro_chan_open(), for any number of senders and receivers on any
 * threads. The calls are the same as on other channels, and a select may mix
 * both kinds. The channel has a spinlock, held while a value is copied.
 * coro_chan_trysend(), coro_chan_tryrecv(), coro_chan_close(),
 * coro_chan_count() and coro_chan_state() may also be called from threads
 * without a scheduler, not from signal handlers. A sleeping scheduler whose
 * coroutine is served is woken. If a deadline or a coro_cancel() comes when
 * another thread has just done the exchange, the call returns 0, and the
 * coro_cancel() is reported to the next blocking call. Of several cases that
 * can be done, a select with shared channels takes a random one.
 */
int coro_chan_open_shared(size_t value_bytes, size_t capacity,
			  struct coro_chan **out);

/*
 * Adds an owner: each calls coro_chan_free(), and the last one frees. Called by
 * an owner on behalf of a thread that becomes one. From any thread. Returns ch.
 */
struct coro_chan *coro_chan_ref(struct coro_chan *ch);

/*
 * Closes the channel for sending. Waiting and later senders get -EPIPE,
 * receivers once it is empty. Closing again does nothing. Does not block.
 */
void coro_chan_close(struct coro_chan *ch);

/*
 * Gives up an owner's share. The last owner's call frees the channel, with the
 * values in it; no coroutine may wait on it and no watch be set then (an
 * assertion checks it). From any thread. NULL is ignored.
 */
void coro_chan_free(struct coro_chan *ch);

/*
 * Sends a copy of *value. Blocks while the channel is full; without capacity,
 * until a receiver has come. value: borrowed, may lie on the coroutine's stack.
 * Errors: see the beginning.
 */
int coro_chan_send(struct coro_chan *ch, const void *value);
int coro_chan_send_until(struct coro_chan *ch, const void *value,
			 int64_t deadline_ns);

/*
 * Receives into *value, which may lie on the coroutine's stack; NULL discards
 * the value. Blocks while the channel is empty. Errors: see the beginning.
 */
int coro_chan_recv(struct coro_chan *ch, void *value);
int coro_chan_recv_until(struct coro_chan *ch, void *value,
			 int64_t deadline_ns);

/*
 * Like coro_chan_send() and coro_chan_recv() without blocking: return -EAGAIN
 * instead. Also outside coroutines and from timers. Return 0, -EAGAIN or
 * -EPIPE.
 */
int coro_chan_trysend(struct coro_chan *ch, const void *value);
int coro_chan_tryrecv(struct coro_chan *ch, void *value);

/* Returns how many values the channel holds. */
size_t coro_chan_count(const struct coro_chan *ch);

/*
 * The state of a channel, for a program that waits for it among other things:
 * the operations that would not block now. A channel of capacity 0 can be sent
 * to while a receiver waits, and received from while a sender waits; a watch is
 * neither.
 */
enum coro_chan_bits {
	CORO_CHAN_CAN_RECV = 1, /* a value, or the end: -EPIPE */
	CORO_CHAN_CAN_SEND = 2, /* room, or -EPIPE */
	CORO_CHAN_CLOSED = 4,
};

/* Returns bits of enum coro_chan_bits that hold now. */
unsigned coro_chan_state(const struct coro_chan *ch);

/*
 * A callback for changes of a channel's state. fn is called after the change,
 * by the coroutine, timer or thread that made it; it may make coroutines ready
 * and call coro_chan_unwatch() on its own watch, and must do nothing else. For
 * a shared channel fn is called on the watching thread in its next round,
 * outside coroutines, once for all changes by then. The memory is the caller's:
 * zeroed at first except for fn, not on a shared stack, and valid until
 * coro_chan_unwatch().
 */
struct coro_chan_watch {
	struct coro_chan_watch *next;	/* private */
	struct coro_chan_watch **pprev; /* private; NULL: watches nothing */
	void (*fn)(struct coro_chan_watch *w);
};

/*
 * Begins to watch a channel. ch and w are borrowed until coro_chan_unwatch(). w
 * must not watch a channel already. Returns 0, for a shared channel also -EPERM
 * (the thread has no scheduler) or -ENOMEM.
 */
int coro_chan_watch(struct coro_chan *ch, struct coro_chan_watch *w);

/*
 * Ends a watch, on the thread that began it. One that watches nothing is
 * ignored.
 */
void coro_chan_unwatch(struct coro_chan_watch *w);

enum coro_op {
	CORO_RECV,
	CORO_SEND,
};

/* One of the operations that coro_select() chooses from. */
struct coro_case {
	struct coro_chan *chan; /* borrowed; NULL: never ready */
	enum coro_op op;
	void *value; /* to receive into, or to send from */
	int err;     /* set on the chosen one: 0 or -EPIPE */
};

/*
 * Does exactly one of n cases: blocks until one can be done. Of several that
 * can be done it takes the one whose channel no select has chosen for the
 * longest time. The array and the values may lie on the coroutine's stack.
 * Returns the index of the case, whose err is 0 or -EPIPE (the channel is
 * closed), or -EINVAL (more than 1,024 cases), or an error of blocking calls
 * (see the beginning).
 */
int coro_select(struct coro_case *cases, unsigned n);
int coro_select_until(struct coro_case *cases, unsigned n, int64_t deadline_ns);

/*
 * Like coro_select() without blocking: returns the index of the case, -EAGAIN
 * if none can be done now, or -EINVAL. Also outside coroutines and from timers.
 */
int coro_select_try(struct coro_case *cases, unsigned n);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
