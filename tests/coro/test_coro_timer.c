/*
 * The timing wheel, against a plain list of expiries.
 */
#include "test_coro.h"

struct probe {
	struct coro_timer timer; /* first */
	int64_t fired_at;
	unsigned fired;
	int64_t period;
};

static struct coro_sched *the_sched;

static void on_fire(struct coro_timer *t)
{
	struct probe *p = (struct probe *)t;

	p->fired++;
	p->fired_at = coro_sched_now(the_sched);
	if (p->period)
		coro_timer_arm(the_sched, t, t->expires_ns + p->period);
}

static int setup(void **state)
{
	int err = sched_setup(state);

	the_sched = *state;
	return err;
}

static void advance(int64_t ns)
{
	fake_now += ns;
	coro_sched_advance(the_sched, fake_now);
}

static uint64_t seed = 88172645463325252u;

static uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static void test_timer_fires_never_early_and_within_a_tick(void **state)
{
	static struct probe p;

	for (int64_t ns = 1; ns < 40 * SEC; ns = ns * 3 + 7) {
		p = (struct probe){0};
		coro_timer_init(&p.timer, on_fire);
		coro_timer_arm(the_sched, &p.timer, fake_now + ns);
		assert_true(coro_timer_armed(&p.timer));
		advance(ns - 1);
		assert_int_equal(p.fired, 0);
		advance(TICK);
		assert_int_equal(p.fired, 1);
		assert_false(coro_timer_armed(&p.timer));
	}
}

static void test_random_timers_fire_once_and_in_time(void **state)
{
	enum { N = 20000 };
	static struct probe p[N];
	int64_t start = fake_now;

	for (int i = 0; i < N; i++) {
		p[i] = (struct probe){0};
		coro_timer_init(&p[i].timer, on_fire);
		coro_timer_arm(the_sched, &p[i].timer,
			       start + next_random() %
					       (1u << (next_random() % 31)) *
					       64);
	}
	for (int i = 0; i < N; i += 3)
		assert_true(coro_timer_cancel(the_sched, &p[i].timer));
	for (int i = 1; i < N; i += 3) /* re-arming moves */
		coro_timer_arm(the_sched, &p[i].timer,
			       start + next_random() % SEC);
	while (coro_sched_next_ns(the_sched) != CORO_FOREVER) {
		int64_t next = coro_sched_next_ns(the_sched);

		advance(next > fake_now ? next - fake_now : 0);
	}
	for (int i = 0; i < N; i++) {
		assert_int_equal(p[i].fired, i % 3 != 0);
		if (!p[i].fired)
			continue;
		assert_true(p[i].fired_at >= p[i].timer.expires_ns);
		assert_true(p[i].fired_at < p[i].timer.expires_ns + TICK);
	}
}

static void test_next_is_never_late(void **state)
{
	static struct probe p;

	for (int i = 0; i < 20000; i++) {
		int64_t expires =
			fake_now + next_random() % (UINT64_C(1) << (i % 45));

		p = (struct probe){0};
		coro_timer_init(&p.timer, on_fire);
		coro_timer_arm(the_sched, &p.timer, expires);
		assert_true(coro_sched_next_ns(the_sched) < expires + TICK);
		coro_timer_cancel(the_sched, &p.timer);
		assert_true(coro_sched_next_ns(the_sched) == CORO_FOREVER);
		advance(next_random() % (3 * TICK));
	}
}

static void test_timer_a_hundred_years_ahead_fires(void **state)
{
	static struct probe p;
	const int64_t year = 365 * 24 * 3600 * SEC;

	p = (struct probe){0};
	coro_timer_init(&p.timer, on_fire);
	coro_timer_arm(the_sched, &p.timer, fake_now + 100 * year);
	for (int i = 0; i < 99; i++)
		advance(year);
	assert_int_equal(p.fired, 0);
	advance(year + TICK);
	assert_int_equal(p.fired, 1);
}

static void test_timer_at_forever_never_fires(void **state)
{
	static struct probe p;

	p = (struct probe){0};
	coro_timer_init(&p.timer, on_fire);
	coro_timer_arm(the_sched, &p.timer, CORO_FOREVER);
	assert_true(coro_sched_next_ns(the_sched) > fake_now + 1000 * SEC);
	advance(INT64_C(1) << 60);
	assert_int_equal(p.fired, 0);
	assert_true(coro_timer_cancel(the_sched, &p.timer));
	assert_false(coro_timer_cancel(the_sched, &p.timer));
}

static void test_timer_pushed_back_fires_at_its_last_time(void **state)
{
	static struct probe p;

	p = (struct probe){0};
	coro_timer_init(&p.timer, on_fire);
	coro_timer_arm(the_sched, &p.timer, fake_now - SEC); /* due at once */
	for (int i = 0; i < 100; i++) {
		coro_timer_arm(the_sched, &p.timer, fake_now + 10 * MS);
		advance(9 * MS);
		assert_int_equal(p.fired, 0);
	}
	advance(MS + TICK);
	assert_int_equal(p.fired, 1);
	assert_int_equal(coro_sched_next_ns(the_sched), CORO_FOREVER);
}

static void test_periodic_timer_fires_once_after_a_long_pause(void **state)
{
	static struct probe p;

	p = (struct probe){.period = MS};
	coro_timer_init(&p.timer, on_fire);
	coro_timer_arm(the_sched, &p.timer, fake_now + MS);
	advance(3600 * SEC);
	assert_int_equal(p.fired, 1);
	advance(0);
	assert_int_equal(p.fired, 2);
	coro_timer_cancel(the_sched, &p.timer);
}

static void test_time_backwards_is_ignored(void **state)
{
	static struct probe p;
	int64_t now = coro_sched_now(the_sched);

	p = (struct probe){0};
	coro_timer_init(&p.timer, on_fire);
	coro_timer_arm(the_sched, &p.timer, now + MS);
	coro_sched_advance(the_sched, now - 5 * SEC);
	assert_true(coro_sched_now(the_sched) == now);
	advance(MS + TICK);
	assert_int_equal(p.fired, 1);
}

static void test_expired_timer_fires_at_the_next_advance(void **state)
{
	static struct probe p;

	p = (struct probe){0};
	coro_timer_init(&p.timer, on_fire);
	coro_timer_arm(the_sched, &p.timer, fake_now - SEC);
	assert_int_equal(p.fired, 0);
	assert_true(coro_sched_next_ns(the_sched) <= fake_now);
	advance(0);
	assert_int_equal(p.fired, 1);
}

/* Each expiry is computed from the one before, so that delays do not add up. */
static void test_periodic_timer_does_not_drift(void **state)
{
	static struct probe p;
	int64_t start = fake_now;

	p = (struct probe){.period = MS};
	coro_timer_init(&p.timer, on_fire);
	coro_timer_arm(the_sched, &p.timer, start + MS);
	for (unsigned n = 0; n < 20000; n++) {
		advance(1 + next_random() % (MS / 8));
		assert_true(p.fired_at <= fake_now);
		assert_true(p.timer.expires_ns == start + (p.fired + 1) * MS);
		/* None is due and hasn't fired. */
		assert_true(p.timer.expires_ns > fake_now - TICK);
	}
	assert_true(p.fired > 1000);
	coro_timer_cancel(the_sched, &p.timer);
}

static void test_many_timers_come_and_go(void **state)
{
	enum { MOST = 1000000 };
	const int n = RUNNING_ON_VALGRIND ? MOST / 50 : MOST;
	struct probe *p = calloc(n, sizeof(*p));
	int64_t start = fake_now;
	unsigned fired = 0;

	assert_non_null(p);
	for (int i = 0; i < n; i++) {
		coro_timer_init(&p[i].timer, on_fire);
		coro_timer_arm(the_sched, &p[i].timer,
			       start + next_random() % (100 * SEC));
	}
	for (int i = 0; i < n; i += 2)
		assert_true(coro_timer_cancel(the_sched, &p[i].timer));
	for (int i = 0; i < 11; i++)
		advance(10 * SEC);
	for (int i = 0; i < n; i++)
		fired += p[i].fired;
	assert_int_equal(fired, n / 2);
	assert_int_equal(coro_sched_next_ns(the_sched), CORO_FOREVER);
	free(p);
}

static struct probe victims[8];

static void cancels_all(struct coro_timer *t)
{
	on_fire(t);
	for (int i = 0; i < 8; i++)
		coro_timer_cancel(the_sched, &victims[i].timer);
}

static void test_callback_may_cancel_timers_of_the_same_tick(void **state)
{
	unsigned fired = 0;

	for (int i = 0; i < 8; i++) {
		victims[i] = (struct probe){0};
		coro_timer_init(&victims[i].timer, cancels_all);
		coro_timer_arm(the_sched, &victims[i].timer, fake_now + MS);
	}
	advance(2 * MS);
	for (int i = 0; i < 8; i++)
		fired += victims[i].fired;
	assert_int_equal(fired, 1);
}

extern __thread unsigned coro_mem_fail_in; /* in coro_mem.c */

enum { CROWD = 1000 };
static struct probe crowd[CROWD];

static void arm_crowd(int64_t expires_ns)
{
	for (int i = 0; i < CROWD; i++) {
		crowd[i] = (struct probe){0};
		coro_timer_init(&crowd[i].timer, on_fire);
		coro_timer_arm(the_sched, &crowd[i].timer, expires_ns);
	}
}

static void
test_timers_of_one_tick_are_armed_and_cancelled_in_any_order(void **state)
{
	static bool armed[CROWD];

	for (int64_t in = 2 * MS; in < 3600 * SEC; in *= 30) {
		arm_crowd(fake_now + in);
		for (int k = 0; k < 3 * CROWD; k++) {
			struct probe *p = &crowd[next_random() % CROWD];

			if (!coro_timer_cancel(the_sched, &p->timer))
				coro_timer_arm(the_sched, &p->timer,
					       p->timer.expires_ns);
		}
		for (int i = 0; i < CROWD; i++)
			armed[i] = coro_timer_armed(&crowd[i].timer);
		advance(in + TICK);
		for (int i = 0; i < CROWD; i++)
			assert_int_equal(crowd[i].fired, armed[i]);
		assert_true(coro_sched_next_ns(the_sched) == CORO_FOREVER);
	}
}

static void test_slot_is_empty_after_its_timers_are_cancelled(void **state)
{
	for (int round = 0; round < 3; round++) {
		arm_crowd(fake_now + SEC);
		for (int i = 0; i < CROWD; i++) {
			assert_true(coro_sched_next_ns(the_sched) <
				    fake_now + SEC + TICK);
			coro_timer_cancel(the_sched, &crowd[i].timer);
		}
		assert_true(coro_sched_next_ns(the_sched) == CORO_FOREVER);
	}
}

static int turn_of[CROWD], turns;

static void note_turn(struct coro_timer *t)
{
	turn_of[(struct probe *)t - crowd] = turns++;
}

static void test_timers_of_one_tick_fire_in_the_order_of_arming(void **state)
{
	for (int64_t in = 0; in < 3600 * SEC; in = in * 30 + MS) {
		arm_crowd(fake_now + in);
		turns = 0;
		for (int i = 0; i < CROWD; i++)
			crowd[i].timer.fn = note_turn;
		advance(in + TICK);
		for (int i = 0; i < CROWD; i++)
			assert_int_equal(turn_of[i], i);
	}
}

static void test_timers_need_no_memory_to_fire(void **state)
{
	static struct probe p[6];

	for (int i = 0; i < 6; i++) {
		p[i] = (struct probe){0};
		coro_timer_init(&p[i].timer, on_fire);
		coro_mem_fail_in = 1; /* no memory for a new slot */
		coro_timer_arm(the_sched, &p[i].timer,
			       fake_now + (i + 1) * SEC);
		assert_int_equal(coro_mem_fail_in, 0);
	}
	assert_true(coro_timer_cancel(the_sched, &p[5].timer));
	assert_true(coro_timer_cancel(the_sched, &p[2].timer));
	assert_true(coro_timer_cancel(the_sched, &p[0].timer));
	coro_timer_arm(the_sched, &p[1].timer, fake_now + 3 * SEC);
	coro_timer_arm(the_sched, &p[3].timer, fake_now + SEC);
	assert_true(coro_sched_next_ns(the_sched) <= fake_now);
	advance(SEC + TICK);
	assert_int_equal(p[3].fired, 1);
	assert_int_equal(p[1].fired + p[4].fired, 0);
	advance(2 * SEC);
	assert_int_equal(p[1].fired, 1);
	advance(2 * SEC);
	assert_int_equal(p[4].fired, 1);
	assert_int_equal(p[0].fired + p[2].fired + p[5].fired, 0);
	assert_true(coro_sched_next_ns(the_sched) == CORO_FOREVER);
}

/* ---- the spill list, while it is processed ---- */

enum { SPILLED = 9 };
static struct probe spilled[SPILLED];

/*
 * Arms a timer without memory, so that it spills. The list is processed from
 * the last one.
 */
static void arm_spilled(int i, void (*fn)(struct coro_timer *t),
			int64_t expires_ns)
{
	spilled[i] = (struct probe){0};
	coro_timer_init(&spilled[i].timer, fn);
	coro_mem_fail_in = 1;
	coro_timer_arm(the_sched, &spilled[i].timer, expires_ns);
	assert_int_equal(coro_mem_fail_in, 0);
}

/* Its neighbour is next in the list, 2 is its middle, 0 its end; 8, which has
 * been moved back to the list, is that list's. */
static void cancels_spilled(struct coro_timer *t)
{
	static const int victims_of[] = {6, 2, 0, 8};

	on_fire(t);
	for (unsigned i = 0; i < 4; i++) {
		struct coro_timer *victim = &spilled[victims_of[i]].timer;

		assert_true(coro_timer_cancel(the_sched, victim));
		assert_false(coro_timer_armed(victim));
		assert_false(coro_timer_cancel(the_sched, victim));
	}
}

static void test_callback_may_cancel_timers_of_the_spill_list(void **state)
{
	static const unsigned fires[SPILLED] = {0, 1, 0, 1, 1, 1, 0, 1, 0};

	for (int i = 0; i < SPILLED; i++)
		arm_spilled(i, i == 7 ? cancels_spilled : on_fire,
			    fake_now + (i == 8 ? 60 * SEC : MS));
	coro_mem_fail_in = 1; /* 8, which is first, spills again */
	advance(MS + TICK);
	assert_int_equal(coro_mem_fail_in, 0);
	for (int i = 0; i < SPILLED; i++)
		assert_int_equal(spilled[i].fired, fires[i]);
	assert_true(coro_sched_next_ns(the_sched) == CORO_FOREVER);
	advance(120 * SEC);
	for (int i = 0; i < SPILLED; i++)
		assert_int_equal(spilled[i].fired, fires[i]);
}

/* Arms another one, for which there is no memory, and advances from within. */
static void advances(struct coro_timer *t)
{
	on_fire(t);
	arm_spilled(8, on_fire, fake_now + SEC);
	coro_sched_advance(the_sched, fake_now);
}

static void test_spilled_callback_may_advance(void **state)
{
	for (int i = 0; i < SPILLED - 1; i++)
		arm_spilled(i, i == 7 ? advances : on_fire, fake_now + MS);
	advance(MS + TICK);
	for (int i = 0; i < SPILLED - 1; i++)
		assert_int_equal(spilled[i].fired, 1);
	assert_int_equal(spilled[8].fired, 0);
	advance(SEC + TICK);
	assert_int_equal(spilled[8].fired, 1);
	assert_true(coro_sched_next_ns(the_sched) == CORO_FOREVER);
}

/* Compares the timers with a plain list. */
static void test_random_timers_without_memory(void **state)
{
	static bool armed[CROWD];

	arm_crowd(CORO_FOREVER);
	for (int i = 0; i < CROWD; i++)
		coro_timer_cancel(the_sched, &crowd[i].timer);
	memset(armed, 0, sizeof(armed));
	for (int n = 0; n < 20 * CROWD; n++) {
		unsigned i = next_random() % 64;
		struct probe *p = &crowd[i];

		if (next_random() % 2)
			coro_mem_fail_in = 1 + next_random() % 2;
		if (next_random() % 3 == 0) {
			assert_int_equal(
				coro_timer_cancel(the_sched, &p->timer),
				armed[i]);
			armed[i] = false;
		} else {
			p->fired = 0;
			coro_timer_arm(the_sched, &p->timer,
				       fake_now + next_random() % (10 * SEC));
			armed[i] = true;
		}
		if (next_random() % 4 == 0)
			advance(next_random() % SEC);
		for (i = 0; i < 64; i++) {
			p = &crowd[i];
			if (armed[i] && p->fired) {
				assert_true(p->fired_at >= p->timer.expires_ns);
				armed[i] = false;
			}
			assert_int_equal(coro_timer_armed(&p->timer), armed[i]);
		}
	}
	coro_mem_fail_in = 0;
	advance(20 * SEC);
	for (int i = 0; i < 64; i++)
		assert_false(coro_timer_armed(&crowd[i].timer));
	assert_true(coro_sched_next_ns(the_sched) == CORO_FOREVER);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, sched_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_timer_fires_never_early_and_within_a_tick),
		T(test_random_timers_fire_once_and_in_time),
		T(test_next_is_never_late),
		T(test_timer_a_hundred_years_ahead_fires),
		T(test_timer_at_forever_never_fires),
		T(test_timer_pushed_back_fires_at_its_last_time),
		T(test_periodic_timer_fires_once_after_a_long_pause),
		T(test_time_backwards_is_ignored),
		T(test_expired_timer_fires_at_the_next_advance),
		T(test_periodic_timer_does_not_drift),
		T(test_many_timers_come_and_go),
		T(test_callback_may_cancel_timers_of_the_same_tick),
		T(test_timers_of_one_tick_are_armed_and_cancelled_in_any_order),
		T(test_slot_is_empty_after_its_timers_are_cancelled),
		T(test_timers_of_one_tick_fire_in_the_order_of_arming),
		T(test_timers_need_no_memory_to_fire),
		T(test_callback_may_cancel_timers_of_the_spill_list),
		T(test_spilled_callback_may_advance),
		T(test_random_timers_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
