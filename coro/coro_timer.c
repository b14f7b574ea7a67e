/*
 * coro_timer.c - a hierarchical timing wheel (Varghese and Lauck, 1987).
 *
 * A timer's tick is its expiry rounded up, so that none fires early. Its level
 * is the highest group of six bits in which its tick differs from the wheel's,
 * its slot those six bits: arming and cancelling are O(1). When the wheel
 * reaches a slot of a higher level, its timers move down, at most once a level.
 * A bitmap a level finds the next occupied slot, so a long pause costs no more
 * than the timers it made due, each of which fires once.
 *
 * Nine levels of 64 slots hold every tick of int64_t: no longest timeout.
 */
#include "coro_priv.h"

#define SLOT_MASK (CORO_WHEEL_SLOTS - 1)

static int64_t tick_up(int64_t ns)
{
	int64_t part = ns & ((1 << CORO_WHEEL_TICK_BITS) - 1);

	return (ns >> CORO_WHEEL_TICK_BITS) + (part != 0);
}

void coro_wheel_init(struct coro_wheel *w, int64_t now_ns)
{
	w->tick = now_ns >> CORO_WHEEL_TICK_BITS;
}

static void list_push(struct coro_timer **head, struct coro_timer *t)
{
	t->next = *head;
	t->pprev = head;
	if (t->next != NULL)
		t->next->pprev = &t->next;
	*head = t;
}

/* tick: that of t, above the wheel's. */
static void wheel_insert(struct coro_wheel *w, struct coro_timer *t,
			 int64_t tick)
{
	unsigned level =
		(63 - __builtin_clzll(tick ^ w->tick)) / CORO_WHEEL_BITS;
	unsigned slot = tick >> (level * CORO_WHEEL_BITS) & SLOT_MASK;

	w->map[level] |= UINT64_C(1) << slot;
	list_push(&w->slot[level][slot], t);
}

/* Take t off its list; a slot that becomes empty is struck from the map. */
static void timer_unlink(struct coro_wheel *w, struct coro_timer *t)
{
	struct coro_timer **pprev = t->pprev;
	size_t i = pprev - &w->slot[0][0];

	*pprev = t->next;
	if (t->next != NULL)
		t->next->pprev = pprev;
	else if ((uintptr_t)pprev - (uintptr_t)&w->slot < sizeof(w->slot))
		w->map[i / CORO_WHEEL_SLOTS] &=
			~(UINT64_C(1) << i % CORO_WHEEL_SLOTS);
	t->pprev = NULL;
}

void coro_timer_init(struct coro_timer *t, void (*fn)(struct coro_timer *t))
{
	*t = (struct coro_timer){.fn = fn};
}

void coro_timer_arm(struct coro_sched *s, struct coro_timer *t,
		    int64_t expires_ns)
{
	struct coro_wheel *w = &s->wheel;
	int64_t tick = tick_up(expires_ns);

	coro_check_shared(s, t, "coro_timer_arm: the timer");
	if (t->pprev != NULL) {
		/* Later than it was: leave it where it is, to be moved when the
		 * wheel comes by. So pushing a timeout back, as connections do
		 * all the time, touches nothing but the timer. */
		if (expires_ns >= t->expires_ns) {
			t->expires_ns = expires_ns;
			return;
		}
		timer_unlink(w, t);
	} else {
		w->armed++;
	}
	t->expires_ns = expires_ns;
	/* Due already: at the next advance, not in the one that may be running,
	 * so a timer that arms itself for the past can't hold the loop. */
	if (unlikely(tick <= s->now >> CORO_WHEEL_TICK_BITS || tick <= w->tick))
		list_push(&w->due, t);
	else
		wheel_insert(w, t, tick);
}

bool coro_timer_cancel(struct coro_sched *s, struct coro_timer *t)
{
	if (t->pprev == NULL)
		return false;
	timer_unlink(&s->wheel, t);
	s->wheel.armed--;
	return true;
}

bool coro_timer_armed(const struct coro_timer *t)
{
	return t->pprev != NULL;
}

/*
 * Move a list to a new head, so that what its callbacks arm isn't in it, and
 * turn it round: lists are pushed at their head, and those of one tick should
 * fire in the order they were armed.
 */
static void list_take(struct coro_timer **from, struct coro_timer **to)
{
	struct coro_timer *t = *from, *next;

	*from = NULL;
	*to = NULL;
	for (; t != NULL; t = next) {
		next = t->next;
		list_push(to, t);
	}
}

/* Fire what is due by that tick, put back what has been pushed back. */
static void fire_all(struct coro_sched *s, struct coro_timer **list, int64_t by)
{
	struct coro_timer *t;

	while ((t = *list) != NULL) {
		int64_t tick = tick_up(t->expires_ns);

		*list = t->next;
		if (t->next != NULL)
			t->next->pprev = list;
		if (unlikely(tick > by)) {
			wheel_insert(&s->wheel, t, tick);
			continue;
		}
		t->pprev = NULL;
		s->wheel.armed--;
		t->fn(t);
	}
}

/* The first occupied slot, its tick in *tick; false if there is none. */
static bool wheel_next(const struct coro_wheel *w, unsigned *level,
		       unsigned *slot, int64_t *tick)
{
	unsigned shift;

	/* A lower level's slots all come before a higher one's. */
	for (*level = 0; *level < CORO_WHEEL_LEVELS; ++*level)
		if (w->map[*level] != 0)
			break;
	if (*level == CORO_WHEEL_LEVELS)
		return false;
	*slot = __builtin_ctzll(w->map[*level]);
	shift = *level * CORO_WHEEL_BITS;
	*tick = (w->tick >> (shift + CORO_WHEEL_BITS)
				    << (shift + CORO_WHEEL_BITS)) |
		(int64_t)*slot << shift;
	return true;
}

/* Empty one slot, the wheel standing at its tick. */
static void wheel_turn(struct coro_sched *s, unsigned level, unsigned slot)
{
	struct coro_wheel *w = &s->wheel;
	struct coro_timer *t, *list, *due, *now = NULL;
	int64_t tick;

	w->map[level] &= ~(UINT64_C(1) << slot);
	list_take(&w->slot[level][slot], &list);
	if (level == 0) {
		fire_all(s, &list, w->tick);
		return;
	}
	while ((t = list) != NULL) {
		list = t->next;
		tick = tick_up(t->expires_ns);
		if (tick <= w->tick)
			list_push(&now, t);
		else
			wheel_insert(w, t, tick);
	}
	list_take(&now, &due);
	fire_all(s, &due, w->tick);
}

void coro_sched_advance(struct coro_sched *s, int64_t now_ns)
{
	struct coro_wheel *w = &s->wheel;
	int64_t now_tick, tick;
	unsigned level, slot;
	struct coro_timer *due;

	if (likely(now_ns > s->now))
		s->now = now_ns;
	now_tick = s->now >> CORO_WHEEL_TICK_BITS;
	if (unlikely(w->due != NULL)) {
		list_take(&w->due, &due);
		fire_all(s, &due, now_tick);
	}
	if (now_tick <= w->tick)
		return;
	/* Bounded by the occupied slots up to now_tick. */
	while (wheel_next(w, &level, &slot, &tick) && tick <= now_tick) {
		w->tick = tick;
		wheel_turn(s, level, slot);
	}
	w->tick = now_tick;
}

int64_t coro_sched_next_ns(const struct coro_sched *s)
{
	unsigned level, slot;
	int64_t tick;

	if (s->wheel.due != NULL)
		return s->now;
	if (!wheel_next(&s->wheel, &level, &slot, &tick))
		return CORO_FOREVER;
	if (tick >= CORO_FOREVER >> CORO_WHEEL_TICK_BITS)
		return CORO_FOREVER;
	return tick << CORO_WHEEL_TICK_BITS;
}
