/*
 * coro_shared.c - channels that all threads may use, and waits that another
 * thread may end.
 *
 * A shared channel has a spinlock, held for one exchange: a value's copy and a
 * few pointers (and, at close, a step for each waiter). Nobody allocates,
 * wakes, or takes another channel's lock while holding it, with one exception:
 * a select that is about to sleep locks its channels in the order of their
 * addresses, looks once more, and links itself into all of them.
 *
 * A wait ends once: the thread that changes coro_select.done from SEL_WAITS to
 * another value does its case or, if it is the waiter's own thread, leaves.
 * Only a thread that holds the lock of a channel in which the wait is linked,
 * or the waiter's own thread, may try. The winner exchanges the value under
 * that lock. If it is another thread, it then posts the wait's own wake-up;
 * until this has arrived, the block must stay, even if its coroutine is gone
 * (coro_shared_orphan).
 *
 * The other nodes of a wait that has ended stay linked until the waiter's
 * thread takes them out, or until another thread finds one and removes it.
 *
 * If a deadline or a coro_cancel() comes after another thread has done a
 * coroutine's case, the coroutine returns with that case, so that no value is
 * lost.
 */
#include "coro_chan_priv.h"

/* ---- the lock ---- */

static void chan_lock(struct coro_chan *ch)
{
	for (unsigned n = 0;
	     atomic_exchange_explicit(&ch->lock, 1, memory_order_acquire);)
		while (atomic_load_explicit(&ch->lock, memory_order_relaxed))
			coro_relax(n++);
}

/* This is the last access to the channel, which may be freed afterwards. */
static void chan_unlock(struct coro_chan *ch)
{
	atomic_store_explicit(&ch->lock, 0, memory_order_release);
}

/* ---- waits ---- */

size_t coro_shared_wait_bytes(unsigned n)
{
	return sizeof(struct shared_wait) + n * sizeof(struct coro_chan *);
}

/* Another thread has ended the wait, and this is its wake-up. */
static void wait_over(struct coro_wake *wake)
{
	struct shared_wait *w = (struct shared_wait *)wake;
	struct coro *co = w->sel->co;

	w->back = true;
	if (!co) {
		w->sched->wakes_due--;
		coro_buf_put(w->sched, w->sel, w->sel->cap);
	} else if (co->ctx.state == CORO_ST_WAITING) {
		coro_ready_with(w->sched, co, 0);
	} /* else a deadline has made it ready meanwhile */
}

/* Sort channels by address and drop duplicates. */
static unsigned sort_channels(struct coro_chan **chans, unsigned n)
{
	unsigned distinct = 0;

	for (unsigned gap = n / 2; gap > 0; gap /= 2)
		for (unsigned i = gap; i < n; i++) {
			struct coro_chan *ch = chans[i];
			unsigned k = i;

			for (; k >= gap && chans[k - gap] > ch; k -= gap)
				chans[k] = chans[k - gap];
			chans[k] = ch;
		}
	for (unsigned i = 0; i < n; i++)
		if (distinct == 0 || chans[distinct - 1] != chans[i])
			chans[distinct++] = chans[i];
	return distinct;
}

void coro_shared_wait_init(struct shared_wait *w, struct coro_select *sel,
			   struct coro_sched *s)
{
	unsigned n = 0;

	*w = (struct shared_wait){.sel = sel, .sched = s};
	coro_wake_init_own(&w->wake, wait_over);
	for (unsigned i = 0; i < sel->n; i++)
		if (sel->nodes[i].chan && sel->nodes[i].chan->shared)
			w->chans[n++] = sel->nodes[i].chan;
	w->n = sort_channels(w->chans, n);
}

static void node_unlink(struct chan_node *node)
{
	node->link.prev->next = node->link.next;
	node->link.next->prev = node->link.prev;
	node->link.next = NULL;
}

bool coro_shared_take(struct chan_node *node)
{
	struct coro_select *sel = node->sel;
	int waits = SEL_WAITS;

	node_unlink(node);
	return atomic_compare_exchange_strong(&sel->done, &waits,
					      (int)(node - sel->nodes));
}

/* Takes the longest waiter, whose wait is ours to end then. Needs the lock. */
static struct chan_node *take_first(struct coro_chan *ch, enum coro_op op)
{
	struct chan_node *node;

	do
		node = chan_first_waiter(ch, op);
	while (node && !coro_shared_take(node));
	return node;
}

/* Ends a wait that we have taken, with the lock; select_wake() comes after
 * chan_unlock(). */
static struct coro_select *complete_wait(struct chan_node *node, int err)
{
	struct shared_wait *w = node->sel->shared;

	node->sel->err = err;
	w->remote = w->sched != coro_tls_sched;
	w->next_woken = NULL;
	return node->sel;
}

static void select_wake(struct coro_select *sel)
{
	struct shared_wait *w;

	if (!sel)
		return;
	w = sel->shared;
	if (w->sched == coro_tls_sched)
		coro_ready_with(w->sched, sel->co, 0);
	else
		coro_wake_post_own(w->sched, &w->wake);
}

/* Leave all queues. The locks ensure that a thread that did a case is done. */
void coro_shared_abandon(struct coro_select *sel)
{
	struct shared_wait *w = sel->shared;
	int waits = SEL_WAITS;

	atomic_compare_exchange_strong(&sel->done, &waits, SEL_LEFT);
	for (unsigned i = 0; i < w->n; i++)
		chan_lock(w->chans[i]);
	for (unsigned i = 0; i < sel->n; i++)
		if (sel->nodes[i].link.next)
			node_unlink(&sel->nodes[i]);
	for (unsigned i = 0; i < w->n; i++)
		chan_unlock(w->chans[i]);
	w->n = 0; /* the channels may be freed from now on */
}

bool coro_shared_orphan(struct coro_sched *s, struct coro_select *sel)
{
	struct shared_wait *w = sel->shared;

	s->outside--;
	if (!w->remote || w->back)
		return false;
	sel->co = NULL;
	s->wakes_due++;
	return true;
}

/* ---- watches ---- */

/* A watch's delegate: it calls the watch on the watch's own thread. */
struct shared_watch {
	struct coro_wake wake;	   /* first */
	struct coro_chan_watch *w; /* NULL: unwatched; freed by its wake-up */
	struct coro_sched *sched;
	struct coro_chan *ch;
	struct shared_watch *next;
	struct shared_watch **pprev;
	uint32_t cap;
};

/* .pprev of a watch points here if its .next is its delegate. */
static struct coro_chan_watch *const delegated;

static void watch_notify(struct coro_wake *wake)
{
	struct shared_watch *d = (struct shared_watch *)wake;

	if (d->w) {
		d->w->fn(d->w); /* may end the watch, which frees d */
		return;
	}
	d->sched->wakes_due--;
	coro_buf_put(d->sched, d, d->cap);
}

/* Notify the watches of a change. The held lock keeps the delegates alive. */
static void delegates_notify(struct coro_chan *ch)
{
	struct shared_watch *d = ch->shared_watches;

	for (; unlikely(d); d = d->next)
		coro_wake_post_own(d->sched, &d->wake);
}

int coro_shared_watch(struct coro_chan *ch, struct coro_chan_watch *w)
{
	struct coro_sched *s = coro_tls_sched;
	struct shared_watch *d;
	uint32_t cap;

	if (!s)
		return -EPERM;
	d = coro_buf_get(s, sizeof(*d), &cap);
	if (!d)
		return -ENOMEM;
	*d = (struct shared_watch){.w = w, .sched = s, .ch = ch, .cap = cap};
	coro_wake_init_own(&d->wake, watch_notify);
	w->next = (struct coro_chan_watch *)d;
	w->pprev = (struct coro_chan_watch **)&delegated;
	chan_lock(ch);
	d->next = ch->shared_watches;
	d->pprev = &ch->shared_watches;
	if (d->next)
		d->next->pprev = &d->next;
	ch->shared_watches = d;
	chan_unlock(ch);
	return 0;
}

bool coro_shared_unwatch(struct coro_chan_watch *w)
{
	struct shared_watch *d = (struct shared_watch *)w->next;

	if (w->pprev != (struct coro_chan_watch **)&delegated)
		return false;
	coro_check_thread(d->sched, "coro_chan_unwatch");
	chan_lock(d->ch);
	*d->pprev = d->next;
	if (d->next)
		d->next->pprev = d->pprev;
	chan_unlock(d->ch);
	w->pprev = NULL;
	d->w = NULL;
	/* Only this thread clears the mark, and nobody sets it any more. */
	if (__atomic_load_n(&d->wake.posted, __ATOMIC_ACQUIRE))
		d->sched->wakes_due++;
	else
		coro_buf_put(d->sched, d, d->cap);
	return true;
}

/* ---- one exchange, with the lock ---- */

static int send_locked(struct coro_chan *ch, const void *value,
		       struct coro_select **woken)
{
	struct chan_node *receiver;

	if (ch->closed)
		return -EPIPE;
	receiver = take_first(ch, CORO_RECV);
	if (receiver) {
		chan_copy(ch, receiver->slot, value);
		*woken = complete_wait(receiver, 0);
		return 0;
	}
	if (ch->count == ch->capacity)
		return -EAGAIN;
	chan_ring_put(ch, value);
	delegates_notify(ch);
	return 0;
}

static int recv_locked(struct coro_chan *ch, void *value,
		       struct coro_select **woken)
{
	struct chan_node *sender = take_first(ch, CORO_SEND);

	if (ch->count > 0) {
		chan_ring_get(ch, value);
		if (sender)
			chan_ring_put(ch, sender->slot);
	} else if (sender) {
		chan_copy(ch, value, sender->slot);
	} else {
		return ch->closed ? -EPIPE : -EAGAIN;
	}
	if (sender)
		*woken = complete_wait(sender, 0);
	delegates_notify(ch);
	return 0;
}

static int do_locked(struct coro_case *c, struct coro_select **woken)
{
	return c->op == CORO_SEND ? send_locked(c->chan, c->value, woken)
				  : recv_locked(c->chan, c->value, woken);
}

/* ---- the calls ---- */

int coro_shared_trysend(struct coro_chan *ch, const void *value)
{
	struct coro_select *woken = NULL;
	int err;

	chan_lock(ch);
	err = send_locked(ch, value, &woken);
	chan_unlock(ch);
	select_wake(woken);
	return err;
}

int coro_shared_tryrecv(struct coro_chan *ch, void *value)
{
	struct coro_select *woken = NULL;
	int err;

	chan_lock(ch);
	err = recv_locked(ch, value, &woken);
	chan_unlock(ch);
	select_wake(woken);
	return err;
}

static void close_waiters(struct coro_chan *ch, enum coro_op op,
			  struct coro_select **list)
{
	struct chan_node *node;

	while ((node = take_first(ch, op))) {
		struct coro_select *sel = complete_wait(node, -EPIPE);

		sel->shared->next_woken = *list;
		*list = sel;
	}
}

void coro_shared_close(struct coro_chan *ch)
{
	struct coro_select *list = NULL;

	chan_lock(ch);
	ch->closed = true;
	close_waiters(ch, CORO_SEND, &list);
	close_waiters(ch, CORO_RECV, &list); /* they wait only if it is empty */
	delegates_notify(ch);
	chan_unlock(ch);
	while (list) {
		struct coro_select *sel = list;

		list = sel->shared->next_woken;
		select_wake(sel);
	}
}

size_t coro_shared_count(struct coro_chan *ch)
{
	size_t count;

	chan_lock(ch);
	count = ch->count;
	chan_unlock(ch);
	return count;
}

unsigned coro_shared_state(struct coro_chan *ch)
{
	unsigned state;

	chan_lock(ch);
	state = chan_state(ch);
	chan_unlock(ch);
	return state;
}

/* ---- select ---- */

/* A select begins at a random case, so that none of them starves whatever the
 * others are. */
static unsigned first_case(unsigned n)
{
	static coro_tls uint32_t x = 2463534242u; /* Marsaglia's xorshift */

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return (unsigned)((uint64_t)x * n >> 32);
}

int coro_shared_select_try(struct coro_case *cases, unsigned n)
{
	unsigned first = first_case(n);

	for (unsigned k = 0; k < n; k++) {
		unsigned i = first + k < n ? first + k : first + k - n;
		struct coro_case *c = &cases[i];
		int err;

		if (!c->chan)
			continue;
		err = c->op == CORO_SEND ? coro_chan_trysend(c->chan, c->value)
					 : coro_chan_tryrecv(c->chan, c->value);
		if (err == -EAGAIN)
			continue;
		c->err = err;
		return (int)i;
	}
	return -EAGAIN;
}

/*
 * Go to sleep on all channels at once, unless a shared one has changed since
 * they were tried. The others have not: only this thread changes them.
 */
int coro_shared_link(struct coro_select *sel, struct coro_case *cases)
{
	struct shared_wait *w = sel->shared;
	struct coro_select *woken = NULL;
	int chosen = -EAGAIN;

	for (unsigned i = 0; i < w->n; i++)
		chan_lock(w->chans[i]);
	for (unsigned i = 0; i < sel->n && chosen < 0; i++) {
		if (!cases[i].chan || !cases[i].chan->shared)
			continue;
		cases[i].err = do_locked(&cases[i], &woken);
		if (cases[i].err != -EAGAIN)
			chosen = (int)i;
	}
	for (unsigned i = 0; i < sel->n && chosen < 0; i++)
		if (cases[i].chan)
			chan_link(&sel->nodes[i]);
	for (unsigned i = 0; i < w->n && chosen < 0; i++)
		delegates_notify(w->chans[i]);
	for (unsigned i = 0; i < w->n; i++)
		chan_unlock(w->chans[i]);
	select_wake(woken);
	if (chosen < 0)
		coro_chan_notify_local(sel);
	return chosen;
}
