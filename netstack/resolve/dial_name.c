/*
 * net_dial_name(): Happy Eyeballs version 2 (RFC 8305).
 *
 * A race lies on the heap. Each lookup and each attempt has a coroutine of its
 * own, which reports its end by the race's semaphore; the caller's coroutine
 * decides. The race is freed by the last of them.
 */
#include "netstack/resolve/resolve_priv.h"

#include <errno.h>
#include <string.h>

#include "netstack/api/api.h"
#include "netstack/mem/mem.h"
#include "netstack/program/program.h"

#define NS_PER_MS	    INT64_C(1000000)
#define TIMEOUT_MS_DEFAULT  30000
#define RESOLUTION_DELAY_NS (50 * NS_PER_MS)  /* RFC 8305 3 */
#define ATTEMPT_DELAY_NS    (250 * NS_PER_MS) /* RFC 8305 5 */
#define FAMILIES	    2u
#define ATTEMPTS_MAX	    (FAMILIES * NET_RESOLVE_ADDRS)

struct race;

/* The addresses of one family. */
struct lookup {
	struct race *race;
	struct coro *co; /* owned; NULL: not wanted */
	bool ended;
	uint8_t family;
	int result; /* of net_resolve() */
	unsigned next;
	int64_t ended_ns;
	struct net_addr addrs[NET_RESOLVE_ADDRS];
};

struct attempt {
	struct race *race;
	struct coro *co; /* owned */
	struct net_conn *conn;
	struct net_addr addr;
	bool ended;
	int err;
};

struct race {
	struct coro_sem events;
	unsigned refs;
	bool over; /* the caller has left */
	struct net_dial_opts opts;
	int64_t deadline_ns;
	int64_t began_ns;		 /* the last attempt */
	struct lookup lookups[FAMILIES]; /* IPv6, IPv4 */
	struct attempt attempts[ATTEMPTS_MAX];
	unsigned n_attempts, n_running;
	int err; /* of the last attempt that has failed */
	uint16_t port;
	char name[NET_NAME_BYTES + 1];
};

static void race_unref(struct race *race)
{
	if (--race->refs == 0)
		net_mem_free(race);
}

static unsigned left_ms(const struct race *race)
{
	int64_t left = (race->deadline_ns - net_here()->now_ns) / NS_PER_MS;

	return left > 0 ? (unsigned)left : 1;
}

/* ---- coroutines of a race ---- */

static void *look_up(void *arg)
{
	struct lookup *l = arg;
	const struct net_resolve_opts opts = {
		.family = l->family,
		.port = l->race->port,
		.timeout_ms = left_ms(l->race),
	};

	l->result = net_resolve(net_here(), l->race->name, &opts, l->addrs,
				NET_RESOLVE_ADDRS);
	l->ended = true;
	l->ended_ns = net_here()->now_ns;
	coro_sem_post(&l->race->events);
	race_unref(l->race);
	return NULL;
}

static void *run_attempt(void *arg)
{
	struct attempt *a = arg;
	struct race *race = a->race;
	const struct net_dial_opts opts = {.source = race->opts.source,
					   .timeout_ms = left_ms(race)};

	a->err = net_dial(net_here(), &a->addr, &opts, &a->conn);
	a->ended = true;
	race->n_running--;
	if (a->err < 0)
		race->err = a->err;
	else if (race->over)
		net_abort(a->conn);
	coro_sem_post(&race->events);
	race_unref(race);
	return NULL;
}

static int race_spawn(struct race *race, coro_fn fn, void *arg,
		      struct coro **out)
{
	const struct coro_attr attr = {.name = "dial-name"};
	int err = coro_spawn(net_here()->sched, &attr, fn, arg, out);

	race->refs += err == 0;
	return err;
}

/* ---- the caller ---- */

/* A cleanup of the coroutine: ends all that still runs. */
static void race_leave(void *arg)
{
	struct race *race = arg;

	race->over = true;
	for (unsigned i = 0; i < race->n_attempts; i++) {
		struct attempt *a = &race->attempts[i];

		coro_cancel(a->co);
		coro_detach(a->co);
		if (a->ended)
			net_abort(a->conn);
	}
	for (unsigned i = 0; i < FAMILIES; i++) {
		if (!race->lookups[i].co)
			continue;
		coro_cancel(race->lookups[i].co);
		coro_detach(race->lookups[i].co);
	}
	race_unref(race);
}

/* Returns the lookup with the next address; families alternate (RFC 8305 4). */
static struct lookup *next_lookup(struct race *race)
{
	for (unsigned i = 0; i < FAMILIES; i++) {
		struct lookup *l =
			&race->lookups[(race->n_attempts + i) % FAMILIES];

		if (l->ended && (int)l->next < l->result)
			return l;
	}
	return NULL;
}

/* Returns when the next attempt may begin, to an address of this lookup. */
static int64_t attempt_due_ns(const struct race *race, const struct lookup *l)
{
	const struct lookup *ip6 = &race->lookups[0];

	if (race->n_attempts == 0)
		return ip6->co && !ip6->ended
			       ? l->ended_ns + RESOLUTION_DELAY_NS
			       : 0;
	return race->n_running ? race->began_ns + ATTEMPT_DELAY_NS : 0;
}

static int begin_attempt(struct race *race, struct lookup *l)
{
	struct attempt *a = &race->attempts[race->n_attempts];
	int err;

	*a = (struct attempt){.race = race, .addr = l->addrs[l->next++]};
	err = race_spawn(race, run_attempt, a, &a->co);
	if (err < 0)
		return err;
	race->n_attempts++;
	race->n_running++;
	race->began_ns = net_here()->now_ns;
	return 0;
}

/* Begins the attempts that are due. *due_ns: when the next one is. */
static int begin_due(struct race *race, int64_t *due_ns)
{
	struct lookup *l;
	int err = 0;

	while (err == 0 && (l = next_lookup(race))) {
		*due_ns = attempt_due_ns(race, l);
		if (net_here()->now_ns < *due_ns)
			return 0;
		err = begin_attempt(race, l);
	}
	*due_ns = CORO_FOREVER;
	return err;
}

static struct net_conn *take_winner(struct race *race)
{
	for (unsigned i = 0; i < race->n_attempts; i++) {
		struct net_conn *conn = race->attempts[i].conn;

		if (!race->attempts[i].ended || race->attempts[i].err < 0)
			continue;
		race->attempts[i].conn = NULL;
		return conn;
	}
	return NULL;
}

/* Returns whether nothing is left that could succeed; then *err says why. */
static bool is_lost(struct race *race, int *err)
{
	int result = 0;

	if (race->n_running || next_lookup(race))
		return false;
	for (unsigned i = 0; i < FAMILIES; i++) {
		if (race->lookups[i].co && !race->lookups[i].ended)
			return false;
		if (race->lookups[i].result < 0)
			result = net_resolve_error(result,
						   race->lookups[i].result);
	}
	*err = race->n_attempts ? race->err : result;
	return true;
}

static int run_race(struct race *race, struct net_conn **out)
{
	int64_t due_ns;
	int err = 0;

	for (;;) {
		*out = take_winner(race);
		if (*out)
			return 0;
		err = begin_due(race, &due_ns);
		if (err < 0 || is_lost(race, &err))
			return err;
		if (due_ns > race->deadline_ns)
			due_ns = race->deadline_ns;
		err = coro_sem_wait_until(&race->events, due_ns);
		if (err == -ETIMEDOUT &&
		    net_here()->now_ns < race->deadline_ns &&
		    net_here()->now_ns < coro_deadline())
			continue;
		if (err < 0)
			return err;
	}
}

static int begin_lookups(struct race *race)
{
	const bool wanted[FAMILIES] = {
		net_resolve_wants(6, race->opts.source.family),
		net_resolve_wants(4, race->opts.source.family)};
	int err = wanted[0] || wanted[1] ? 0 : -EADDRNOTAVAIL;

	for (unsigned i = 0; i < FAMILIES && err == 0; i++) {
		race->lookups[i].race = race;
		race->lookups[i].family = i ? 4 : 6;
		if (wanted[i])
			err = race_spawn(race, look_up, &race->lookups[i],
					 &race->lookups[i].co);
	}
	return err;
}

static int dial_name(struct net_stack *stack, struct race *race,
		     struct net_conn **out)
{
	unsigned timeout_ms = race->opts.timeout_ms;
	struct net_conn *conn = NULL;
	int err = coro_cleanup_push(race_leave, race);

	if (err < 0) {
		race_leave(race);
		return err;
	}
	race->deadline_ns =
		stack->now_ns +
		(timeout_ms ? timeout_ms : TIMEOUT_MS_DEFAULT) * NS_PER_MS;
	err = begin_lookups(race);
	if (err == 0)
		err = run_race(race, &conn);
	coro_cleanup_pop(true);
	if (err == 0)
		*out = conn;
	return err;
}

static bool is_source(const struct net_addr *source)
{
	return source->port == 0 &&
	       (source->family == 0 || source->family == 4 ||
		source->family == 6);
}

int net_dial_name(struct net_stack *stack, const char *name, uint16_t port,
		  const struct net_dial_opts *opts, struct net_conn **out)
{
	int64_t deadline_ns = net_dial_deadline(opts);
	struct net_conn *conn;
	struct race *race;
	int err;

	NET_CHECK_STACK(stack);
	if (!stack || !name || !out || port == 0 ||
	    strnlen(name, sizeof(race->name)) == sizeof(race->name) ||
	    (opts && !is_source(&opts->source)))
		return -EINVAL;
	if (!coro_self())
		return -EPERM;
	race = net_mem_malloc(sizeof(*race));
	if (!race)
		return -ENOMEM;
	memset(race, 0, sizeof(*race));
	race->refs = 1;
	race->port = port;
	if (opts)
		race->opts = *opts;
	strcpy(race->name, name);
	err = dial_name(stack, race, &conn);
	if (err == 0 && opts && opts->tls) /* the race was TCP's alone */
		err = net_dial_tls(conn, opts->tls,
				   opts->tls_name ? opts->tls_name : name,
				   deadline_ns);
	if (err == 0)
		*out = conn;
	return err;
}
