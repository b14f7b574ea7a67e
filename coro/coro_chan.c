/*
 * coro_chan.c - channels and select.
 *
 * A wait, be it for one channel or many, is one block of the scheduler's
 * memory: a node for each case, linked into its channel, and room for each
 * value, since the waiter's own stack may be somebody else's. Whoever comes to
 * the other side of a channel does the whole exchange, takes the nodes out of
 * all channels, and makes the waiter ready; the waiter copies a received value
 * out of the block itself.
 */
#include <coronet/coro_chan.h>
#include <coronet/coro_sync.h>

#include "coro_priv.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_MAX ((size_t)1 << 20)
#define CASES_MAX 1024

struct chan_node {
	struct coro_link link; /* first */
	struct coro_select *sel;
	struct coro_chan *chan;
	void *slot; /* the value, in the same block */
	enum coro_op op;
};

struct coro_select {
	struct coro *co;
	uint32_t cap; /* bytes of this block */
	unsigned n;
	int done; /* index of the case done; -1: none */
	int err;
	struct chan_node nodes[];
};

struct coro_chan {
	struct coro_link waiters[2]; /* by enum coro_op */
	struct coro_chan_watch *watches;
	size_t value_bytes;
	size_t capacity;
	size_t count;
	size_t first;
	const void *thread; /* whose it has become by its first use */
	uint64_t served[2]; /* when a select last chose it, by enum coro_op */
	bool closed;
	char ring[];
};

int coro_chan_open(size_t value_bytes, size_t capacity, struct coro_chan **out)
{
	struct coro_chan *ch;
	size_t bytes;

	if (value_bytes > VALUE_MAX ||
	    __builtin_mul_overflow(value_bytes, capacity, &bytes) ||
	    __builtin_add_overflow(bytes, sizeof(*ch), &bytes))
		return -EINVAL;
	ch = malloc(bytes);
	if (ch == NULL)
		return -ENOMEM;
	memset(ch, 0, sizeof(*ch));
	ch->value_bytes = value_bytes;
	ch->capacity = capacity;
	for (int i = 0; i < 2; i++)
		ch->waiters[i].next = ch->waiters[i].prev = &ch->waiters[i];
	*out = ch;
	return 0;
}

void coro_chan_free(struct coro_chan *ch)
{
	if (ch == NULL)
		return;
	assert(ch->waiters[CORO_RECV].next == &ch->waiters[CORO_RECV]);
	assert(ch->waiters[CORO_SEND].next == &ch->waiters[CORO_SEND]);
	assert(ch->watches == NULL);
	free(ch);
}

size_t coro_chan_count(const struct coro_chan *ch)
{
	return ch->count;
}

/* A channel belongs to the thread that uses it first. */
static inline void check_thread(struct coro_chan *ch, const char *call)
{
	const void *here = &coro_tls_sched;

	if (likely(ch->thread == here))
		return;
	if (ch->thread != NULL)
		coro_die_thread(call);
	ch->thread = here;
}

/* ---- watches ---- */

void coro_chan_watch(struct coro_chan *ch, struct coro_chan_watch *w)
{
	coro_check_shared(coro_tls_sched, w, "coro_chan_watch: the watch");
	w->next = ch->watches;
	w->pprev = &ch->watches;
	if (w->next != NULL)
		w->next->pprev = &w->next;
	ch->watches = w;
}

void coro_chan_unwatch(struct coro_chan_watch *w)
{
	if (w->pprev == NULL)
		return;
	*w->pprev = w->next;
	if (w->next != NULL)
		w->next->pprev = w->pprev;
	w->pprev = NULL;
}

cold static void tell_all(struct coro_chan *ch)
{
	struct coro_chan_watch *w = ch->watches, *next;

	for (; w != NULL; w = next) {
		next = w->next;
		w->fn(w);
	}
}

/* The channel has changed. */
static inline void tell(struct coro_chan *ch)
{
	if (unlikely(ch->watches != NULL))
		tell_all(ch);
}

/* ---- the waiters ---- */

static struct chan_node *first_waiter(const struct coro_chan *ch,
				      enum coro_op op)
{
	const struct coro_link *q = &ch->waiters[op];

	return q->next == q ? NULL : (struct chan_node *)q->next;
}

unsigned coro_chan_state(const struct coro_chan *ch)
{
	unsigned state = 0;

	if (ch->closed)
		state = CORO_CHAN_CLOSED | CORO_CHAN_CAN_RECV |
			CORO_CHAN_CAN_SEND;
	if (ch->count > 0 || first_waiter(ch, CORO_SEND) != NULL)
		state |= CORO_CHAN_CAN_RECV;
	if (ch->count < ch->capacity || first_waiter(ch, CORO_RECV) != NULL)
		state |= CORO_CHAN_CAN_SEND;
	return state;
}

static void unlink_all(struct coro_select *sel)
{
	for (unsigned i = 0; i < sel->n; i++) {
		struct coro_link *l = &sel->nodes[i].link;

		if (sel->nodes[i].chan == NULL)
			continue;
		l->prev->next = l->next;
		l->next->prev = l->prev;
	}
}

/* A waiting coroutine is woken for another reason, or destroyed. */
void coro_select_abandon(struct coro_sched *s, struct coro_select *sel)
{
	if (sel->done >= 0)
		return;
	unlink_all(sel);
	sel->n = 0;
}

void coro_select_free(struct coro_sched *s, struct coro *co)
{
	coro_buf_put(s, co->select, co->select->cap);
	co->ctx.flags2 &= ~CORO_F2_SELECT;
}

/* This node's case is done: wake its coroutine. */
static void node_done(struct chan_node *node, int err)
{
	struct coro_select *sel = node->sel;
	struct coro_sched *s = coro_owner(sel->co);

	if (unlikely(s != coro_tls_sched))
		coro_die_foreign(sel->co);
	unlink_all(sel);
	sel->done = node - sel->nodes;
	sel->err = err;
	coro_ready_with(s, sel->co, 0);
}

void coro_chan_close(struct coro_chan *ch)
{
	struct chan_node *node;

	check_thread(ch, "coro_chan_close");
	ch->closed = true;
	while ((node = first_waiter(ch, CORO_SEND)) != NULL)
		node_done(node, -EPIPE);
	/* Receivers wait only when it holds nothing. */
	while ((node = first_waiter(ch, CORO_RECV)) != NULL)
		node_done(node, -EPIPE);
	tell(ch);
}

/* ---- without waiting ---- */

static char *ring_at(struct coro_chan *ch, size_t i)
{
	size_t at = ch->first + i;

	if (at >= ch->capacity)
		at -= ch->capacity;
	return ch->ring + at * ch->value_bytes;
}

static void copy_value(const struct coro_chan *ch, void *to, const void *from)
{
	if (to != NULL && ch->value_bytes != 0)
		memcpy(to, from, ch->value_bytes);
}

int coro_chan_trysend(struct coro_chan *ch, const void *value)
{
	struct chan_node *receiver;

	check_thread(ch, "coro_chan_send");
	if (unlikely(ch->closed))
		return -EPIPE;
	receiver = first_waiter(ch, CORO_RECV);
	if (receiver != NULL) {
		copy_value(ch, receiver->slot, value);
		node_done(receiver, 0);
		return 0;
	}
	if (ch->count == ch->capacity)
		return -EAGAIN;
	copy_value(ch, ring_at(ch, ch->count), value);
	ch->count++;
	tell(ch);
	return 0;
}

int coro_chan_tryrecv(struct coro_chan *ch, void *value)
{
	struct chan_node *sender = first_waiter(ch, CORO_SEND);

	check_thread(ch, "coro_chan_recv");
	if (ch->count > 0) {
		copy_value(ch, value, ring_at(ch, 0));
		if (++ch->first == ch->capacity)
			ch->first = 0;
		ch->count--;
		if (sender != NULL) { /* there is room for its value now */
			copy_value(ch, ring_at(ch, ch->count), sender->slot);
			ch->count++;
			node_done(sender, 0);
		}
		tell(ch);
		return 0;
	}
	if (sender != NULL) {
		copy_value(ch, value, sender->slot);
		node_done(sender, 0);
		return 0;
	}
	return ch->closed ? -EPIPE : -EAGAIN;
}

static bool case_is_ready(const struct coro_case *c)
{
	const unsigned bit =
		c->op == CORO_SEND ? CORO_CHAN_CAN_SEND : CORO_CHAN_CAN_RECV;

	return c->chan != NULL && coro_chan_state(c->chan) & bit;
}

/*
 * Of the cases that can be done, the one whose channel no select has chosen for
 * the longest time: whichever coroutines select over whichever channels, each
 * choice of another makes a channel that is passed over more likely, so none
 * starves. NULL: none can be done.
 */
static struct coro_case *case_choose(struct coro_case *cases, unsigned n)
{
	struct coro_case *best = NULL;
	uint64_t oldest = UINT64_MAX;

	for (unsigned i = 0; i < n; i++) {
		struct coro_case *c = &cases[i];

		if (c->chan == NULL || c->chan->served[c->op] >= oldest ||
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
	c = case_choose(cases, n);
	if (c == NULL)
		return -EAGAIN;
	c->chan->served[c->op] = ++turn;
	c->err = c->op == CORO_SEND ? coro_chan_trysend(c->chan, c->value)
				    : coro_chan_tryrecv(c->chan, c->value);
	return (int)(c - cases);
}

/* ---- waiting ---- */

static size_t slot_bytes(const struct coro_case *c)
{
	return c->chan == NULL ? 0 : (c->chan->value_bytes + 15) & ~(size_t)15;
}

static struct coro_select *select_new(struct coro_sched *s,
				      const struct coro_case *cases, unsigned n)
{
	size_t bytes =
		sizeof(struct coro_select) + n * sizeof(struct chan_node);
	struct coro_select *sel;
	uint32_t cap;
	char *slot;

	slot = (char *)((bytes + 15) & ~(size_t)15);
	bytes = (size_t)slot;
	for (unsigned i = 0; i < n; i++)
		bytes += slot_bytes(&cases[i]);
	if (bytes > CORO_BUF_MAX)
		return NULL;
	sel = coro_buf_get(s, bytes, &cap);
	if (sel == NULL)
		return NULL;
	slot += (uintptr_t)sel;
	*sel = (struct coro_select){s->cur, cap, n, -1, 0};
	for (unsigned i = 0; i < n; i++) {
		struct chan_node *node = &sel->nodes[i];

		*node = (struct chan_node){.sel = sel,
					   .slot = slot,
					   .chan = cases[i].chan,
					   .op = cases[i].op};
		slot += slot_bytes(&cases[i]);
	}
	return sel;
}

static void select_link(struct coro_select *sel, const struct coro_case *cases)
{
	for (unsigned i = 0; i < sel->n; i++) {
		struct chan_node *node = &sel->nodes[i];
		struct coro_link *q;

		if (node->chan == NULL)
			continue;
		if (node->op == CORO_SEND)
			copy_value(node->chan, node->slot, cases[i].value);
		q = &node->chan->waiters[node->op];
		node->link.next = q;
		node->link.prev = q->prev;
		q->prev->next = &node->link;
		q->prev = &node->link;
		tell(node->chan);
	}
}

/* The wait is over: take what it brought, free the block. */
static int select_finish(struct coro_sched *s, struct coro *co,
			 struct coro_case *cases, int err)
{
	struct coro_select *sel = co->select;

	if (err == 0) {
		struct chan_node *node = &sel->nodes[sel->done];

		err = sel->done;
		cases[err].err = sel->err;
		if (node->op == CORO_RECV && sel->err == 0)
			copy_value(node->chan, cases[err].value, node->slot);
	}
	coro_select_free(s, co);
	return err;
}

static int select_wait(struct coro_case *cases, unsigned n, int64_t deadline_ns,
		       const char *where)
{
	struct coro_sched *s = coro_tls_sched;
	struct coro *co = coro_current();
	int err = coro_may_block(co);

	if (err < 0)
		return err;
	co->select = select_new(s, cases, n);
	if (co->select == NULL)
		return -ENOMEM;
	select_link(co->select, cases);
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
