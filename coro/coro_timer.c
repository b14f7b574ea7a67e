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
 *
 * A slot is an array of pointers to its timers, in a chain of blocks, not a
 * list through the timers: to cancel one of a million costs its own cache line
 * and its entry's, not its neighbours' too, and the timers of a slot that is
 * due are fetched ahead. The slot's last timer takes the entry of one that is
 * cancelled, so there is never more than an entry a timer; timers of one tick
 * fire in the order they were armed but for that.
 *
 * No slot is armed into while it is emptied: the wheel stands at its tick, and
 * what is due by then goes to the slot `due` for the next advance. One
 * cancelled there leaves its entry empty.
 */
#include "coro_priv.h"

#define SLOT_MASK (CORO_WHEEL_SLOTS - 1)

/* Marks a coro_timer.entry that is the next timer of the spill list. */
#define TAG ((uintptr_t)1)

/* Value of coro_wheel.turning while the spill list is emptied. */
#define SPILL INT32_MAX

static int64_t tick_up(int64_t ns)
{
	int64_t part = ns & ((1 << CORO_WHEEL_TICK_BITS) - 1);

	return (ns >> CORO_WHEEL_TICK_BITS) + (part != 0);
}

void coro_wheel_init(struct coro_wheel *w, int64_t now_ns)
{
	w->tick = now_ns >> CORO_WHEEL_TICK_BITS;
	w->turning = -1;
	w->due = CORO_WHEEL_DUE;
}

/* ---- a slot: blocks of entries ---- */

static struct coro_timer_block *block_of(uintptr_t *entry)
{
	return (void *)((uintptr_t)entry & -(uintptr_t)CORO_BLOCK_BYTES);
}

/* Is there no entry in use below this one in its block? */
static bool block_begins(const uintptr_t *entry)
{
	return ((uintptr_t)entry & (CORO_BLOCK_BYTES - 1)) ==
	       offsetof(struct coro_timer_block, entry);
}

static void map_set(struct coro_wheel *w, unsigned i)
{
	if (i < CORO_WHEEL_DUE)
		w->map[i / CORO_WHEEL_SLOTS] |= UINT64_C(1)
						<< i % CORO_WHEEL_SLOTS;
}

static void map_strike(struct coro_wheel *w, unsigned i)
{
	if (i < CORO_WHEEL_DUE)
		w->map[i / CORO_WHEEL_SLOTS] &=
			~(UINT64_C(1) << i % CORO_WHEEL_SLOTS);
}

/* Add a block and use its first entry. NULL: no memory. */
cold static uintptr_t *slot_grow(struct coro_sched *s, unsigned i)
{
	struct coro_slot *slot = &s->wheel.slot[i];
	struct coro_timer_block *b = s->wheel.free_blocks;

	if (b)
		s->wheel.free_blocks = b->next;
	else
		b = coro_arena_get(&s->arena, sizeof(*b), sizeof(*b));
	if (!b)
		return NULL;
	b->next = NULL;
	b->prev = NULL;
	b->slot = i;
	if (!slot->first) {
		slot->first = b;
		map_set(&s->wheel, i);
	} else {
		b->prev = block_of(slot->end - 1);
		b->prev->next = b;
	}
	slot->cur = b->entry + 1;
	slot->end = b->entry + CORO_BLOCK_ENTRIES;
	return b->entry;
}

/* Free the last block, whose last entry has gone. */
cold static void slot_shrink(struct coro_wheel *w, unsigned i)
{
	struct coro_slot *slot = &w->slot[i];
	struct coro_timer_block *b = block_of(slot->end - 1);

	if (b->prev) {
		b->prev->next = NULL;
		slot->end = b->prev->entry + CORO_BLOCK_ENTRIES;
		slot->cur = slot->end;
	} else {
		*slot = (struct coro_slot){0};
		map_strike(w, i);
	}
	b->next = w->free_blocks;
	w->free_blocks = b;
}

/* Free the blocks of a slot that is empty now. */
static void slot_reset(struct coro_wheel *w, unsigned i)
{
	struct coro_slot *slot = &w->slot[i];

	if (slot->first) {
		block_of(slot->end - 1)->next = w->free_blocks;
		w->free_blocks = slot->first;
	}
	*slot = (struct coro_slot){0};
}

/* Without memory for a block, keep t in a list that every advance walks. */
cold static void timer_spill(struct coro_wheel *w, struct coro_timer *t)
{
	t->entry = (uintptr_t *)((uintptr_t)w->spilled | TAG);
	w->spilled = t;
}

static struct coro_timer *spilled_next(const struct coro_timer *t)
{
	return (struct coro_timer *)((uintptr_t)t->entry & ~TAG);
}

/* Remove t from the list; false if it was not there. */
static bool unspill_from(struct coro_timer **list, const struct coro_timer *t)
{
	struct coro_timer *prev = NULL, *at = *list;

	while (at && at != t) {
		prev = at;
		at = spilled_next(at);
	}
	if (!at)
		return false;
	if (prev)
		prev->entry = t->entry;
	else
		*list = spilled_next(t);
	return true;
}

/* Remove t by walking the list, as every advance does while it has timers. */
cold static void unspill_timer(struct coro_wheel *w, const struct coro_timer *t)
{
	if (!unspill_from(&w->spilled, t))
		unspill_from(&w->respilled, t);
}

static inline void slot_put(struct coro_sched *s, unsigned i,
			    struct coro_timer *t)
{
	struct coro_slot *slot = &s->wheel.slot[i];
	uintptr_t *entry = slot->cur;

	if (likely(entry != slot->end)) {
		slot->cur = entry + 1;
	} else {
		entry = slot_grow(s, i);
		if (unlikely(!entry)) {
			timer_spill(&s->wheel, t);
			return;
		}
	}
	*entry = (uintptr_t)t;
	t->entry = entry;
}

/* tick is t's, and later than the wheel's. */
static inline void wheel_insert(struct coro_sched *s, struct coro_timer *t,
				int64_t tick)
{
	struct coro_wheel *w = &s->wheel;
	unsigned level =
		(63 - __builtin_clzll(tick ^ w->tick)) / CORO_WHEEL_BITS;
	unsigned slot = tick >> (level * CORO_WHEEL_BITS) & SLOT_MASK;

	slot_put(s, level * CORO_WHEEL_SLOTS + slot, t);
}

/* Take t out of its slot. */
static inline void timer_take(struct coro_wheel *w, struct coro_timer *t)
{
	struct coro_timer *last;
	struct coro_slot *slot;
	unsigned i;

	if (unlikely((uintptr_t)t->entry & TAG)) {
		unspill_timer(w, t);
		return;
	}
	i = block_of(t->entry)->slot;
	if (unlikely((int)i == w->turning)) {
		*t->entry = 0;
		return;
	}
	slot = &w->slot[i];
	last = (struct coro_timer *)*--slot->cur;
	*t->entry = (uintptr_t)last;
	last->entry = t->entry;
	if (unlikely(block_begins(slot->cur)))
		slot_shrink(w, i);
}

/* ---- the calls ---- */

void coro_timer_init(struct coro_timer *t, void (*fn)(struct coro_timer *t))
{
	*t = (struct coro_timer){.fn = fn};
}

void coro_timer_arm(struct coro_sched *s, struct coro_timer *t,
		    int64_t expires_ns)
{
	struct coro_wheel *w = &s->wheel;
	int64_t tick = tick_up(expires_ns);

	coro_check_thread(s, "coro_timer_arm");
	coro_check_shared(s, t, "coro_timer_arm: the timer");
	if (t->entry) {
		/* Later than it was: leave it where it is, to be moved when the
		 * wheel comes by. So pushing a timeout back, as connections do
		 * all the time, touches nothing but the timer. */
		if (expires_ns >= t->expires_ns) {
			t->expires_ns = expires_ns;
			return;
		}
		timer_take(w, t);
	} else {
		w->armed++;
	}
	t->expires_ns = expires_ns;
	/* A timer that is due already fires at the next advance, not in one
	 * that may be running: one that arms itself for the past can't hold the
	 * loop. */
	if (unlikely(tick <= s->now >> CORO_WHEEL_TICK_BITS || tick <= w->tick))
		slot_put(s, w->due, t);
	else
		wheel_insert(s, t, tick);
}

bool coro_timer_cancel(struct coro_sched *s, struct coro_timer *t)
{
	coro_check_thread(s, "coro_timer_cancel");
	if (!t->entry)
		return false;
	timer_take(&s->wheel, t);
	t->entry = NULL;
	s->wheel.armed--;
	return true;
}

bool coro_timer_armed(const struct coro_timer *t)
{
	return t->entry != NULL;
}

/* ---- the wheel turns ---- */

/* Fire t, or move it to a lower level, or to its postponed expiry. */
static void timer_fire(struct coro_sched *s, struct coro_timer *t, int64_t by)
{
	int64_t tick = tick_up(t->expires_ns);

	if (unlikely(tick > by)) {
		wheel_insert(s, t, tick);
		return;
	}
	t->entry = NULL;
	s->wheel.armed--;
	t->fn(t);
}

/* Empty slot i, whose time has come. A timer that is cancelled meanwhile leaves
 * its entry empty. */
static void slot_turn(struct coro_sched *s, unsigned i, int64_t by)
{
	struct coro_slot *slot = &s->wheel.slot[i];
	struct coro_timer_block *b, *next;
	struct coro_timer *t;
	unsigned k, n;

	s->wheel.turning = (int)i;
	map_strike(&s->wheel, i);
	for (b = slot->first; b; b = next) {
		next = b->next;
		n = next ? CORO_BLOCK_ENTRIES : slot->cur - b->entry;
		for (k = 0; next && k < CORO_BLOCK_ENTRIES; k++)
			coro_prefetch((void *)next->entry[k]);
		for (k = 0; k < n; k++) {
			t = (struct coro_timer *)b->entry[k];
			b->entry[k] = 0;
			if (t)
				timer_fire(s, t, by);
		}
	}
	s->wheel.turning = -1;
	slot_reset(&s->wheel, i);
}

/* Find the first occupied slot, and its tick; false if there is none. */
static bool wheel_next(const struct coro_wheel *w, unsigned *slot,
		       int64_t *tick)
{
	unsigned level, shift;

	/* A lower level's slots all come before a higher one's. */
	for (level = 0; level < CORO_WHEEL_LEVELS; ++level)
		if (w->map[level] != 0)
			break;
	if (level == CORO_WHEEL_LEVELS)
		return false;
	*slot = __builtin_ctzll(w->map[level]);
	shift = level * CORO_WHEEL_BITS;
	*tick = (w->tick >> (shift + CORO_WHEEL_BITS)
				    << (shift + CORO_WHEEL_BITS)) |
		(int64_t)*slot << shift;
	*slot += level * CORO_WHEEL_SLOTS;
	return true;
}

/* Put spilled timers back into the wheel, or fire them. */
cold static void spill_turn(struct coro_sched *s, int64_t by)
{
	struct coro_wheel *w = &s->wheel;
	struct coro_timer *t;

	w->turning = SPILL;
	w->respilled = w->spilled;
	w->spilled = NULL;
	while ((t = w->respilled)) {
		w->respilled = spilled_next(t);
		timer_fire(s, t, by);
	}
	w->turning = -1;
}

void coro_sched_advance(struct coro_sched *s, int64_t now_ns)
{
	struct coro_wheel *w = &s->wheel;
	int64_t now_tick, tick;
	unsigned slot;

	coro_check_thread(s, "coro_sched_advance");
	if (likely(now_ns > s->now))
		s->now = now_ns;
	if (unlikely(w->turning >= 0)) /* called by a timer */
		return;
	now_tick = s->now >> CORO_WHEEL_TICK_BITS;
	slot = w->due;
	if (unlikely(w->slot[slot].first)) {
		w->due = CORO_WHEEL_DUE + !(slot - CORO_WHEEL_DUE);
		slot_turn(s, slot, now_tick);
	}
	if (unlikely(w->spilled))
		spill_turn(s, now_tick);
	if (now_tick <= w->tick)
		return;
	/* Bounded by the occupied slots up to now_tick. */
	while (wheel_next(w, &slot, &tick) && tick <= now_tick) {
		w->tick = tick;
		slot_turn(s, slot, tick);
	}
	w->tick = now_tick;
	/* Fire timers that were due, but had no memory to move down. */
	if (unlikely(w->spilled))
		spill_turn(s, now_tick);
}

int64_t coro_sched_next_ns(const struct coro_sched *s)
{
	const struct coro_wheel *w = &s->wheel;
	unsigned slot;
	int64_t tick;

	if (w->slot[w->due].first || w->spilled)
		return s->now;
	if (!wheel_next(w, &slot, &tick))
		return CORO_FOREVER;
	if (tick >= CORO_FOREVER >> CORO_WHEEL_TICK_BITS)
		return CORO_FOREVER;
	return tick << CORO_WHEEL_TICK_BITS;
}
