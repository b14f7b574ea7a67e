/*
 * coro_chan.c - channels and select. Channels of several threads call
 * coro_shared.c where they differ.
 *
 * A coroutine that waits, for one channel or for many, allocates one block of
 * the scheduler's memory: a node for each case, linked into its channel, and
 * room for each value, since another coroutine may use the waiter's stack
 * meanwhile. The coroutine that arrives at the other side of a channel does the
 * whole exchange, takes the nodes out of all channels, and makes the waiter
 * ready; the waiter copies a received value out of the block itself.
 */
#include "coro_chan_priv.h"

#include <stdlib.h>

#define VALUE_MAX ((size_t)1 << 20)
#define CASES_MAX 1024

static int chan_open(size_t value_bytes, size_t capacity, bool shared,
		     struct coro_chan **out)
{
	struct coro_chan *ch;
	size_t bytes;

	if (value_bytes > VALUE_MAX ||
	    __builtin_mul_overflow(value_bytes, capacity, &bytes) ||
	    __builtin_add_overflow(bytes, sizeof(*ch), &bytes))
		return -EINVAL;
	ch = malloc(bytes);
	if (!ch)
		return -ENOMEM;
	memset(ch, 0, sizeof(*ch));
	ch->value_bytes = value_bytes;
	ch->capacity = capacity;
	ch->shared = shared;
	atomic_init(&ch->refs, 1);
	for (int i = 0; i < 2; i++)
		ch->waiters[i].next = ch->waiters[i].prev = &ch->waiters[i];
	*out = ch;
	return 0;
}

int coro_chan_open(size_t value_bytes, size_t capacity, struct coro_chan **out)
{
	return chan_open(value_bytes, capacity, false, out);
}

int coro_chan_open_shared(size_t value_bytes, size_t capacity,
			  struct coro_chan **out)
{
	return chan_open(value_bytes, capacity, true, out);
}

struct coro_chan *coro_chan_ref(struct coro_chan *ch)
{
	atomic_fetch_add_explicit(&ch->refs, 1, memory_order_relaxed);
	return ch;
}

void coro_chan_free(struct coro_chan *ch)
{
	if (!ch || atomic_fetch_sub(&ch->refs, 1) != 1)
		return;
	assert(ch->waiters[CORO_RECV].next == &ch->waiters[CORO_RECV]);
	assert(ch->waiters[CORO_SEND].next == &ch->waiters[CORO_SEND]);
	assert(!ch->watches);
	free(ch);
}

size_t coro_chan_count(const struct coro_chan *ch)
{
	if (ch->shared)
		return coro_shared_count((struct coro_chan *)ch);
	return ch->count;
}

/* A channel belongs to the thread that uses it first, unless it is shared. */
static inline bool is_shared(struct coro_chan *ch, const char *call)
{
	const void *here = &coro_tls_sched;

	if (likely(ch->thread == here))
		return false;
	if (ch->shared)
		return true;
	if (ch->thread)
		coro_die_thread(call);
	ch->thread = here;
	return false;
}

/* ---- watches ---- */

int coro_chan_watch(struct coro_chan *ch, struct coro_chan_watch *w)
{
	coro_check_shared(coro_tls_sched, w, "coro_chan_watch: the watch");
	if (ch->shared)
		return coro_shared_watch(ch, w);
	w->next = ch->watches;
	w->pprev = &ch->watches;
	if (w->next)
		w->next->pprev = &w->next;
	ch->watches = w;
	return 0;
}

void coro_chan_unwatch(struct coro_chan_watch *w)
{
	if (!w->pprev || unlikely(coro_shared_unwatch(w)))
		return;
	*w->pprev = w->next;
	if (w->next)
		w->next->pprev = w->pprev;
	w->pprev = NULL;
}

cold static void watches_notify(struct coro_chan *ch)
{
	struct coro_chan_watch *w = ch->watches, *next;

	for (; w; w = next) {
		next = w->next;
		w->fn(w);
	}
}

/* Notify the watches of this thread's channel that it has changed. */
static inline void chan_notify(struct coro_chan *ch)
{
	if (unlikely(ch->watches))
		watches_notify(ch);
}

/* Notify the watches of the channels where sel has begun to wait. */
void coro_chan_notify_local(const struct coro_select *sel)
{
	for (unsigned i = 0; i < sel->n; i++)
		if (sel->nodes[i].chan && !sel->nodes[i].chan->shared)
			chan_notify(sel->nodes[i].chan);
}

/* ---- the waiters ---- */

struct chan_node *chan_live_waiter(const struct coro_chan *ch, enum coro_op op)
{
	struct chan_node *node = chan_first_waiter(ch, op);

	while (node && node->sel->shared &&
	       atomic_load(&node->sel->done) != SEL_WAITS) {
		if (node->link.next == &ch->waiters[op])
			return NULL;
		node = (struct chan_node *)node->link.next;
	}
	return node;
}

unsigned chan_state(const struct coro_chan *ch)
{
	unsigned state = 0;

	if (ch->closed)
		state = CORO_CHAN_CLOSED | CORO_CHAN_CAN_RECV |
			CORO_CHAN_CAN_SEND;
	if (ch->count > 0 || chan_live_waiter(ch, CORO_SEND))
		state |= CORO_CHAN_CAN_RECV;
	if (ch->count < ch->capacity || chan_live_waiter(ch, CORO_RECV))
		state |= CORO_CHAN_CAN_SEND;
	return state;
}

unsigned coro_chan_state(const struct coro_chan *ch)
{
	if (ch->shared)
		return coro_shared_state((struct coro_chan *)ch);
	return chan_state(ch);
}

/* Takes the longest waiter whose wait we may end: see node_done(). Another
 * thread may just be ending a wait that includes shared channels. */
static struct chan_node *take_waiter(const struct coro_chan *ch,
				     enum coro_op op)
{
	struct chan_node *node;

	do
		node = chan_first_waiter(ch, op);
	while (node && unlikely(node->sel->shared) && !coro_shared_take(node));
	return node;
}

static void unlink_all(struct coro_select *sel)
{
	for (unsigned i = 0; i < sel->n; i++) {
		struct coro_link *l = &sel->nodes[i].link;

		if (!sel->nodes[i].chan)
			continue;
		l->prev->next = l->next;
		l->next->prev = l->prev;
	}
}

/* Called when a waiting coroutine is woken for another reason, or destroyed. */
void coro_select_abandon(struct coro_sched *s, struct coro_select *sel)
{
	if (unlikely(sel->shared)) {
		coro_shared_abandon(sel);
		return;
	}
	if (sel->done >= 0)
		return;
	unlink_all(sel);
	sel->n = 0;
}

void coro_select_free(struct coro_sched *s, struct coro *co)
{
	struct coro_select *sel = co->select;

	co->ctx.flags2 &= ~CORO_F2_SELECT;
	if (unlikely(sel->shared) && coro_shared_orphan(s, sel))
		return;
	coro_buf_put(s, sel, sel->cap);
}

/* This node's case is done: wake its coroutine. */
static void node_done(struct chan_node *node, int err)
{
	struct coro_select *sel = node->sel;
	struct coro_sched *s = coro_owner(sel->co);

	if (unlikely(s != coro_tls_sched))
		coro_die_foreign(sel->co);
	if (likely(!sel->shared))
		unlink_all(sel);
	atomic_store_explicit(&sel->done, node - sel->nodes,
			      memory_order_relaxed);
	sel->err = err;
	coro_ready_with(s, sel->co, 0);
}

void coro_chan_close(struct coro_chan *ch)
{
	struct chan_node *node;

	if (is_shared(ch, "coro_chan_close")) {
		coro_shared_close(ch);
		return;
	}
	ch->closed = true;
	while ((node = take_waiter(ch, CORO_SEND)))
		node_done(node, -EPIPE);
	/* Receivers wait only when it holds nothing. */
	while ((node = take_waiter(ch, CORO_RECV)))
		node_done(node, -EPIPE);
	chan_notify(ch);
}

/* ---- without waiting ---- */

int coro_chan_trysend(struct coro_chan *ch, const void *value)
{
	struct chan_node *receiver;

	if (unlikely(is_shared(ch, "coro_chan_send")))
		return coro_shared_trysend(ch, value);
	if (unlikely(ch->closed))
		return -EPIPE;
	receiver = take_waiter(ch, CORO_RECV);
	if (receiver) {
		chan_copy(ch, receiver->slot, value);
		node_done(receiver, 0);
		return 0;
	}
	if (ch->count == ch->capacity)
		return -EAGAIN;
	chan_ring_put(ch, value);
	chan_notify(ch);
	return 0;
}

int coro_chan_tryrecv(struct coro_chan *ch, void *value)
{
	struct chan_node *sender;

	if (unlikely(is_shared(ch, "coro_chan_recv")))
		return coro_shared_tryrecv(ch, value);
	sender = take_waiter(ch, CORO_SEND);
	if (ch->count > 0) {
		chan_ring_get(ch, value);
		if (sender) { /* there is room for its value now */
			chan_ring_put(ch, sender->slot);
			node_done(sender, 0);
		}
		chan_notify(ch);
		return 0;
	}
	if (sender) {
		chan_copy(ch, value, sender->slot);
		node_done(sender, 0);
		return 0;
	}
	return ch->closed ? -EPIPE : -EAGAIN;
}

static bool case_is_ready(const struct coro_case *c)
{
	const unsigned bit =
		c->op == CORO_SEND ? CORO_CHAN_CAN_SEND : CORO_CHAN_CAN_RECV;

	return c->chan && coro_chan_state(c->chan) & bit;
}

/*
 * Chooses, among the cases that can be done, the one whose channel has not been
 * chosen for the longest time, or returns NULL if none can be done. Each choice
 * makes the channels that were passed over more likely, whichever coroutines
 * select, so none starves.
 */
static struct coro_case *case_choose(struct coro_case *cases, unsigned n)
{
	struct coro_case *best = NULL;
	uint64_t oldest = UINT64_MAX;

	for (unsigned i = 0; i < n; i++) {
		struct coro_case *c = &cases[i];

		if (!c->chan || c->chan->served[c->op] >= oldest ||
		    !case_is_ready(c))
			continue;
		best = c;
		oldest = c->chan->served[c->op];
	}
	return best;
}

int coro_select_try(struct coro_case *cases, unsigned n)
{
	static coro_tls uint64_t turn;
	struct coro_case *c;

	if (n > CASES_MAX)
		return -EINVAL;
	if (unlikely(coro_shared_any(cases, n)))
		return coro_shared_select_try(cases, n);
	do {
		c = case_choose(cases, n);
		if (!c)
			return -EAGAIN;
		c->chan->served[c->op] = ++turn;
		c->err = c->op == CORO_SEND
				 ? coro_chan_trysend(c->chan, c->value)
				 : coro_chan_tryrecv(c->chan, c->value);
	} while (unlikely(c->err == -EAGAIN)); /* its waiter has just gone */
	return (int)(c - cases);
}

/* ---- waiting ---- */

static size_t slot_bytes(const struct coro_case *c)
{
	return !c->chan ? 0 : (c->chan->value_bytes + 15) & ~(size_t)15;
}

static struct coro_select *select_new(struct coro_sched *s,
				      const struct coro_case *cases, unsigned n,
				      bool shared)
{
	size_t bytes =
		sizeof(struct coro_select) + n * sizeof(struct chan_node);
	size_t shared_at = bytes, slots_at;
	struct coro_select *sel;
	uint32_t cap;
	char *slot;

	if (shared)
		bytes += coro_shared_wait_bytes(n);
	slots_at = (bytes + 15) & ~(size_t)15;
	bytes = slots_at;
	for (unsigned i = 0; i < n; i++)
		bytes += slot_bytes(&cases[i]);
	if (bytes > CORO_BUF_MAX)
		return NULL;
	sel = coro_buf_get(s, bytes, &cap);
	if (!sel)
		return NULL;
	slot = (char *)sel + slots_at;
	*sel = (struct coro_select){
		.co = s->cur, .cap = cap, .n = n, .done = SEL_WAITS};
	for (unsigned i = 0; i < n; i++) {
		struct chan_node *node = &sel->nodes[i];

		*node = (struct chan_node){.sel = sel,
					   .slot = slot,
					   .chan = cases[i].chan,
					   .op = cases[i].op};
		if (shared && node->op == CORO_SEND && node->chan)
			chan_copy(node->chan, slot, cases[i].value);
		slot += slot_bytes(&cases[i]);
	}
	if (shared) {
		sel->shared = (struct shared_wait *)((char *)sel + shared_at);
		coro_shared_wait_init(sel->shared, sel, s);
	}
	return sel;
}

static void select_link(struct coro_select *sel, const struct coro_case *cases)
{
	for (unsigned i = 0; i < sel->n; i++) {
		struct chan_node *node = &sel->nodes[i];

		if (!node->chan)
			continue;
		if (node->op == CORO_SEND)
			chan_copy(node->chan, node->slot, cases[i].value);
		chan_link(node);
		chan_notify(node->chan);
	}
}

/* Take the result of a wait that is over, and free the block. */
static int select_finish(struct coro_sched *s, struct coro *co,
			 struct coro_case *cases, int err)
{
	struct coro_select *sel = co->select;

	if (sel->done >= 0) {
		struct chan_node *node = &sel->nodes[sel->done];

		/* Another thread was faster: the next call is cancelled. */
		if (unlikely(err == -ECANCELED))
			co->ctx.flags |= CORO_F_CANCEL;
		err = sel->done;
		cases[err].err = sel->err;
		if (node->op == CORO_RECV && sel->err == 0)
			chan_copy(node->chan, cases[err].value, node->slot);
	}
	coro_select_free(s, co);
	return err;
}

static int select_wait(struct coro_case *cases, unsigned n, int64_t deadline_ns,
		       const char *where)
{
	struct coro_sched *s = coro_tls_sched;
	struct coro *co = coro_current();
	bool shared = coro_shared_any(cases, n);
	int err = coro_may_block(co);

	if (err < 0)
		return err;
	co->select = select_new(s, cases, n, shared);
	if (!co->select)
		return -ENOMEM;
	if (likely(!shared)) {
		select_link(co->select, cases);
	} else {
		err = coro_shared_link(co->select, cases);
		if (err != -EAGAIN) {
			coro_buf_put(s, co->select, co->select->cap);
			return err;
		}
		s->outside++;
	}
	co->ctx.flags2 |= CORO_F2_SELECT;
	err = coro_block(s, co, CORO_ST_WAITING, deadline_ns, where);
	return select_finish(s, co, cases, err);
}

int coro_select_until(struct coro_case *cases, unsigned n, int64_t deadline_ns)
{
	int i = coro_select_try(cases, n);

	if (i != -EAGAIN)
		return i;
	return select_wait(cases, n, deadline_ns, "coro_select");
}

int coro_select(struct coro_case *cases, unsigned n)
{
	return coro_select_until(cases, n, CORO_FOREVER);
}

static int chan_wait(struct coro_chan *ch, enum coro_op op, void *value,
		     int64_t deadline_ns, const char *where)
{
	struct coro_case c = {ch, op, value, 0};
	int err = select_wait(&c, 1, deadline_ns, where);

	return err < 0 ? err : c.err;
}

int coro_chan_send_until(struct coro_chan *ch, const void *value,
			 int64_t deadline_ns)
{
	int err = coro_chan_trysend(ch, value);

	if (err != -EAGAIN)
		return err;
	return chan_wait(ch, CORO_SEND, (void *)value, deadline_ns,
			 "coro_chan_send");
}

int coro_chan_send(struct coro_chan *ch, const void *value)
{
	return coro_chan_send_until(ch, value, CORO_FOREVER);
}

int coro_chan_recv_until(struct coro_chan *ch, void *value, int64_t deadline_ns)
{
	int err = coro_chan_tryrecv(ch, value);

	if (err != -EAGAIN)
		return err;
	return chan_wait(ch, CORO_RECV, value, deadline_ns, "coro_chan_recv");
}

int coro_chan_recv(struct coro_chan *ch, void *value)
{
	return coro_chan_recv_until(ch, value, CORO_FOREVER);
}
