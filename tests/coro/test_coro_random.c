/*
 * Random lives: coroutines that lock, wait, send, select, join, sleep and
 * resume each other, while they are cancelled, destroyed, run out of time and
 * out of memory. Seeded, on a clock that stands still. After every step:
 *
 * - nobody waits for a free object, and a queue holds exactly the waiters;
 * - locks exclude, semaphores and channels neither lose nor invent;
 * - nobody sleeps past a deadline, or waits after being cancelled;
 * - the live coroutines and the armed timers are those that the test knows.
 *
 * CORO_SEEDS=FIRST,COUNT selects the seeds.
 */
#include "random_world.h"

/* ---- actions of a coroutine ---- */

static void *random_body(void *arg);

/*
 * Releases the objects that the coroutine holds; also runs when it is
 * destroyed.
 */
static void let_go(void *arg)
{
	struct slot *me = arg;

	/* Also a lock that it was granted in a call that has not returned. */
	for (unsigned i = 0; i < MUTEXES; i++) {
		if (mutexes[i].owner == coro_self())
			coro_mutex_unlock(&mutexes[i]);
		else
			assert_false(me->has_mutex[i]);
		me->has_mutex[i] = false;
	}
	if (me->has_read || me->has_write)
		assert_int_equal(coro_rwlock_unlock(&rw), 0);
	else if (rw.writer == coro_self())
		coro_rwlock_unlock(&rw);
	me->has_read = me->has_write = false;
	for (; me->tokens; me->tokens--)
		assert_int_equal(coro_sem_post(&sem), 0);
}

static void count_ended(void *arg)
{
	struct slot *me = arg;

	let_go(me);
	me->op = NOTHING;
	if (!me->handle)
		me->co = NULL;
}

static void lock_excludes(const struct slot *me)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		const struct slot *other = &slots[i];

		if (other == me || other->co == NULL)
			continue;
		for (unsigned k = 0; k < MUTEXES; k++)
			assert_false(me->has_mutex[k] && other->has_mutex[k]);
		assert_false(me->has_write &&
			     (other->has_read || other->has_write));
		assert_false(me->has_read && other->has_write);
	}
}

static void do_rwlock(struct slot *me, enum op op)
{
	me->op = op;
	if (me->has_read || me->has_write)
		return;
	if (op == RDLOCK)
		me->has_read = coro_rwlock_rdlock_until(&rw, me->deadline) == 0;
	else
		me->has_write =
			coro_rwlock_wrlock_until(&rw, me->deadline) == 0;
}

static void do_cond(struct slot *me)
{
	int err;

	if (!me->has_mutex[0])
		return;
	me->has_mutex[0] = false;
	me->op = COND;
	err = coro_cond_wait_until(&cond, &mutexes[0], me->deadline);
	/* It owns the mutex again, unless memory ran out. */
	me->has_mutex[0] = mutexes[0].owner == me->co;
	assert_true(me->has_mutex[0] || err == -ENOMEM);
}

static void do_chan(struct slot *me, enum op op)
{
	unsigned long value = me->obj;
	int err;

	me->op = op;
	if (op == SEND) {
		err = coro_chan_send_until(chans[me->obj], &value,
					   me->deadline);
		sent[me->obj] += err == 0;
	} else {
		err = coro_chan_recv_until(chans[me->obj], &value,
					   me->deadline);
		received[me->obj] += err == 0;
		assert_true(err < 0 || value == me->obj);
	}
}

static void do_select(struct slot *me)
{
	unsigned long values[CHANS];
	struct coro_case cases[CHANS];
	int i;

	for (unsigned k = 0; k < CHANS; k++) {
		values[k] = k;
		cases[k] = (struct coro_case){
			chans[k], me->obj & 1u << k ? CORO_SEND : CORO_RECV,
			&values[k], 0};
	}
	me->op = SELECT;
	i = coro_select_until(cases, CHANS, me->deadline);
	if (i < 0)
		return;
	assert_int_equal(cases[i].err, 0);
	if (cases[i].op == CORO_SEND)
		sent[i]++;
	else
		received[i]++;
	assert_int_equal(values[i], i);
}

static int new_child(struct slot *me, bool resumed)
{
	struct coro_attr attr = some_attr();
	int i = free_slot(), err;
	struct slot *child;

	if (i == NO_SLOT)
		return i;
	child = &slots[i];
	memset(child, 0, sizeof(*child));
	err = resumed ? coro_create(s, &attr, random_body, &child->co)
		      : coro_spawn(s, &attr, random_body, child, &child->co);
	if (err < 0) {
		assert_int_equal(err, -ENOMEM);
		child->co = NULL;
		return NO_SLOT;
	}
	child->handle = true;
	child->child = NO_SLOT;
	child->parent = (int)(me - slots);
	child->resumed = resumed;
	me->child = i;
	return i;
}

/* Releases the child's handle if the child ended; else the child lives on. */
static void leave_child(struct slot *me)
{
	struct slot *child;

	if (me->child == NO_SLOT)
		return; /* destroyed by the test */
	child = &slots[me->child];
	me->child = NO_SLOT;
	child->parent = NO_SLOT;
	if (child->co == NULL)
		return;
	if (coro_status(child->co) == CORO_DEAD) {
		assert_int_equal(coro_destroy(child->co), 0);
		child->co = NULL;
	}
	/* Else the test destroys it one day. */
}

static void do_join(struct slot *me)
{
	int i = new_child(me, false), err;
	void *result = NULL;

	if (i == NO_SLOT)
		return;
	me->op = JOIN;
	err = coro_join_until(slots[i].co, &result, me->deadline);
	if (err == 0) {
		assert_ptr_equal(result, &slots[i]);
		slots[i].co = NULL;
	}
	leave_child(me);
}

static void do_resume(struct slot *me)
{
	int i = new_child(me, true), err = 0;
	bool gone = false;

	for (int n = draw_below(4); i != NO_SLOT && n >= 0 && err == 0; n--) {
		me->op = RESUME;
		err = coro_resume(slots[i].co, &slots[i], NULL);
		gone = me->child == NO_SLOT;
		assert_true(err == 0 || err == -ENOMEM || gone ||
			    err == -ESRCH);
		assert_false(gone && err != -EAGAIN);
	}
	if (i != NO_SLOT)
		leave_child(me);
}

static void do_something(struct slot *me)
{
	enum op op = (enum op)(1 + draw_below(OPS - 1));
	bool *has = &me->has_mutex[draw_below(MUTEXES)];

	me->deadline = some_deadline();
	me->obj = draw_below(8);
	switch (op) {
	case MUTEX:
		me->obj = (unsigned)(has - me->has_mutex);
		me->op = op;
		if (!*has)
			*has = coro_mutex_lock_until(&mutexes[me->obj],
						     me->deadline) == 0;
		break;
	case RDLOCK:
	case WRLOCK:
		do_rwlock(me, op);
		break;
	case COND:
		do_cond(me);
		break;
	case SEM:
		me->op = op;
		me->tokens += coro_sem_wait_until(&sem, me->deadline) == 0;
		break;
	case GROUP:
		me->op = op;
		coro_wait_group_wait_until(&group, me->deadline);
		break;
	case BARRIER:
		me->op = op;
		coro_barrier_wait_until(&barrier, me->deadline);
		break;
	case SEND:
	case RECV:
		me->obj %= CHANS;
		do_chan(me, op);
		break;
	case SELECT:
		do_select(me);
		break;
	case SLEEP:
		me->op = op;
		coro_sleep_ns(draw_below(DEADLINE_MAX));
		break;
	case PARK:
		me->op = op;
		coro_park_until(me->deadline);
		break;
	case JOIN:
		do_join(me);
		break;
	case RESUME:
		do_resume(me);
		break;
	case NOTHING:
	case OPS:
		break;
	}
	me->op = NOTHING;
	lock_excludes(me);
}

static void *random_body(void *arg)
{
	struct slot *me = arg;
	volatile char deep[64 + 64 * 8];

	if (coro_cleanup_push(count_ended, me) < 0) {
		if (!me->handle)
			me->co = NULL;
		return me;
	}
	deep[draw_below(sizeof(deep))] = 1;
	for (unsigned n = 3 + draw_below(10); n && !ending; n--) {
		do_something(me);
		if (me->resumed && chance(50)) {
			coro_suspend(NULL, NULL);
			continue;
		}
		if (chance(50))
			let_go(me);
		if (chance(20))
			coro_yield();
	}
	coro_cleanup_pop(true);
	return me;
}

/* ---- actions of the test ---- */

static void spawn_one(void)
{
	int i = free_slot();
	struct coro_attr attr = some_attr();

	if (i == NO_SLOT)
		return;
	slots[i] = (struct slot){
		.child = NO_SLOT, .parent = NO_SLOT, .handle = true};
	if (coro_spawn(s, &attr, random_body, &slots[i], &slots[i].co) < 0)
		slots[i].co = NULL;
}

/* Returns whether it was granted an object that destroying it would lose. */
static bool was_given(const struct slot *slot)
{
	const struct coro *co = slot->co;

	if (co->ctx.flags2 & CORO_F2_HELD)
		return true;
	if (co->ctx.state != CORO_ST_QUEUED || co->value != 0)
		return false;
	return slot->op == SEM || slot->op == RDLOCK || slot->op == SEND ||
	       slot->op == RECV || slot->op == SELECT;
}

static void destroy_one(struct slot *slot)
{
	struct slot *parent =
		slot->parent == NO_SLOT ? NULL : &slots[slot->parent];
	bool joined = parent != NULL && parent->op == JOIN &&
		      coro_status(slot->co) != CORO_DEAD &&
		      slot->co->ext != NULL && slot->co->ext->joiner != NULL;
	int err;

	if (was_given(slot) ||
	    (parent != NULL && coro_status(slot->co) == CORO_DEAD))
		return;
	err = coro_destroy(slot->co);
	if (joined || slot->co->ctx.state == CORO_ST_NORMAL) {
		assert_int_equal(err, -EBUSY);
		return;
	}
	if (err == -ENOMEM)
		return;
	assert_int_equal(err, 0);
	slot->co = NULL;
	if (parent != NULL)
		parent->child = NO_SLOT;
	if (slot->child != NO_SLOT)
		slots[slot->child].parent = NO_SLOT;
}

static void poke_slot(struct slot *slot)
{
	switch (draw_below(4)) {
	case 0:
		coro_cancel(slot->co);
		break;
	case 1:
		destroy_one(slot);
		break;
	case 2:
		coro_unpark(slot->co);
		break;
	case 3:
		if (slot->resumed && slot->parent == NO_SLOT)
			coro_start(slot->co, slot);
		break;
	}
}

static void meddle(void)
{
	unsigned long value;
	unsigned c = draw_below(CHANS);

	switch (draw_below(8)) {
	case 0:
		coro_cond_signal(&cond);
		break;
	case 1:
		coro_cond_broadcast(&cond);
		break;
	case 2:
		coro_wait_group_add(&group, 1);
		break;
	case 3:
		coro_wait_group_done(&group);
		break;
	case 4:
		value = c;
		sent[c] += coro_chan_trysend(chans[c], &value) == 0;
		break;
	case 5:
		received[c] += coro_chan_tryrecv(chans[c], &value) == 0;
		break;
	case 6:
		fake_now += draw_below(DEADLINE_MAX);
		coro_sched_advance(s, fake_now);
		break;
	case 7:
		coro_mem_fail_in = chance(20) ? 1 + draw_below(3) : 0;
		break;
	}
}

/* ---- invariants while nothing is ready ---- */

static unsigned length(const struct coro_link *q)
{
	unsigned n = 0;

	if (q->next == NULL)
		return 0;
	for (const struct coro_link *l = q->next; l != q; l = l->next) {
		assert_ptr_equal(l->next->prev, l);
		n++;
	}
	return n;
}

static unsigned waiting_in(enum op op, unsigned obj)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SLOTS; i++)
		n += slots[i].co != NULL && slots[i].op == op &&
		     slots[i].obj == obj &&
		     slots[i].co->ctx.state == CORO_ST_WAITING;
	return n;
}

static unsigned waiting(enum op op)
{
	unsigned n = 0;

	for (unsigned obj = 0; obj < 8; obj++)
		n += waiting_in(op, obj);
	return n;
}

static void check_locks(void)
{
	unsigned on_mutexes = 0, tokens = 0;

	for (unsigned i = 0; i < MUTEXES; i++) {
		on_mutexes += length(&mutexes[i].waiters);
		if (mutexes[i].owner == NULL)
			assert_int_equal(length(&mutexes[i].waiters), 0);
		else
			assert_int_not_equal(mutexes[i].owner->ctx.state,
					     CORO_ST_DEAD);
	}
	/* A condition's waiters are in its queue or, signalled, a mutex's. */
	assert_int_equal(on_mutexes + length(&cond.waiters),
			 waiting(MUTEX) + waiting(COND));
	assert_int_equal(length(&rw.waiters),
			 waiting(RDLOCK) + waiting(WRLOCK));
	if (length(&rw.waiters) != 0) {
		const struct coro *first =
			(struct coro *)((char *)rw.waiters.next -
					offsetof(struct coro, link));

		assert_true(rw.writer != NULL || rw.readers != 0);
		if (rw.writer == NULL) /* or readers would have it too */
			assert_int_equal(first->value & 1, 1);
	}
	assert_int_equal(length(&sem.waiters), waiting(SEM));
	for (unsigned i = 0; i < SLOTS; i++)
		tokens += slots[i].co != NULL ? slots[i].tokens : 0;
	assert_int_equal(sem.count + tokens, TOKENS);
	assert_true(sem.count == 0 || length(&sem.waiters) == 0);
	assert_int_equal(length(&group.waiters), waiting(GROUP));
	assert_true(group.count != 0 || length(&group.waiters) == 0);
	assert_int_equal(length(&barrier.waiters), waiting(BARRIER));
	assert_true(length(&barrier.waiters) < PARTIES);
}

static void check_chans(void)
{
	for (unsigned i = 0; i < CHANS; i++) {
		unsigned state = coro_chan_state(chans[i]);
		size_t count = coro_chan_count(chans[i]);
		unsigned receivers = waiting_in(RECV, i);
		unsigned senders = waiting_in(SEND, i);

		assert_int_equal(sent[i], received[i] + count);
		assert_true(receivers == 0 || count == 0);
		assert_true(senders == 0 || count == capacity[i]);
		assert_true(receivers == 0 || senders == 0);
		assert_true(receivers == 0 || state & CORO_CHAN_CAN_SEND);
		assert_true(senders == 0 || state & CORO_CHAN_CAN_RECV);
	}
}

static void check_all(void)
{
	unsigned live = 0, timed = 0;

	assert_false(coro_sched_ready(s));
	for (unsigned i = 0; i < SLOTS; i++) {
		const struct coro *co = slots[i].co;

		if (co == NULL || co->ctx.state == CORO_ST_DEAD)
			continue;
		live++;
		assert_int_not_equal(co->ctx.state, CORO_ST_QUEUED);
		if (!(co->ctx.flags2 & CORO_F2_TIMED))
			continue;
		timed++;
		assert_true(co->timer.expires_ns + TICK > s->now);
	}
	assert_int_equal(coro_sched_live(s), live);
	assert_int_equal(s->wheel.armed, timed);
	check_locks();
	check_chans();
}

/* ---- a life ---- */

static void world_open(uint64_t seed)
{
	const struct coro_sched_attr attr = {.clock_ns = fake_clock,
					     .stack_count = 1 + seed % 3};

	rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	fake_now = 1000 * SEC;
	ending = false;
	coro_mem_fail_in = 0;
	assert_int_equal(coro_sched_open(&attr, &s), 0);
	memset(slots, 0, sizeof(slots));
	memset(mutexes, 0, sizeof(mutexes));
	memset(&rw, 0, sizeof(rw));
	memset(&cond, 0, sizeof(cond));
	memset(&group, 0, sizeof(group));
	memset(sent, 0, sizeof(sent));
	memset(received, 0, sizeof(received));
	coro_sem_init(&sem, TOKENS);
	coro_barrier_init(&barrier, PARTIES);
	for (unsigned i = 0; i < CHANS; i++)
		coro_chan_open(sizeof(long), capacity[i], &chans[i]);
}

static void reap_slots(void)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];

		if (slot->co == NULL || slot->parent != NO_SLOT ||
		    coro_status(slot->co) != CORO_DEAD)
			continue;
		assert_int_equal(coro_destroy(slot->co), 0);
		slot->co = NULL;
	}
}

/* Cancels all coroutines until none is left, or closes with them. */
static void world_close(void)
{
	coro_mem_fail_in = 0;
	ending = chance(50);
	for (int n = 0; ending && n < 1000 && coro_sched_live(s) != 0; n++) {
		for (unsigned i = 0; i < SLOTS; i++)
			if (slots[i].co != NULL) {
				coro_cancel(slots[i].co);
				if (slots[i].resumed)
					coro_start(slots[i].co, &slots[i]);
			}
		run_idle(s);
		reap_slots();
		check_all();
	}
	if (ending) {
		assert_int_equal(coro_sched_live(s), 0);
		for (unsigned i = 0; i < MUTEXES; i++)
			assert_null(mutexes[i].owner);
		assert_null(rw.writer);
		assert_int_equal(rw.readers, 0);
		assert_int_equal(sem.count, TOKENS);
	}
	coro_sched_close(s);
	for (unsigned i = 0; i < CHANS; i++)
		coro_chan_free(chans[i]);
}

static void live_once(uint64_t seed)
{
	world_open(seed);
	for (int step = 0; step < STEPS; step++) {
		struct slot *slot = &slots[draw_below(SLOTS)];

		if (chance(40))
			spawn_one();
		if (chance(30))
			meddle();
		if (chance(30) && slot->co != NULL)
			poke_slot(slot);
		if (chance(20)) /* before those that are ready have run */
			continue;
		run_idle(s);
		reap_slots();
		check_all();
	}
	run_idle(s);
	world_close();
}

static void test_random_lives(void **state)
{
	unsigned long first = 1, count = MANY(SEEDS);
	const char *wanted = getenv("CORO_SEEDS");

	if (RUNNING_ON_VALGRIND)
		count = 20;
	if (wanted != NULL)
		sscanf(wanted, "%lu,%lu", &first, &count);
	for (unsigned long seed = first; seed < first + count; seed++) {
		/* say_seed() prints it if an assertion fails. */
		snprintf(test_log, sizeof(test_log), "%lu", seed);
		live_once(seed);
	}
}

static int say_seed(void **state)
{
	if (coro_self() != NULL || coro_sched_self() != NULL)
		fprintf(stderr, "# CORO_SEEDS=%s,1\n", test_log);
	return coro_sched_self() != NULL ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_random_lives, say_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
