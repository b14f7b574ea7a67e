/* The backends of coronet-proxy, and the choice of one for each session. */
#include "apps/proxy/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE 256u /* a weight's parts: slow starts give less of them */

static _Atomic uint32_t last_number; /* that a backend got */

/* ---- life ---- */

struct backend *backend_ref(struct backend *backend)
{
	atomic_fetch_add(&backend->refs, 1);
	return backend;
}

void backend_unref(struct backend *backend)
{
	if (backend && atomic_fetch_sub(&backend->refs, 1) == 1)
		free(backend);
}

/* Makes its clients forget it. */
static void renew_number(struct backend *backend)
{
	uint32_t number;

	do {
		number = (atomic_fetch_add(&last_number, 1) + 1) % STICKY_IDS;
	} while (number == 0);
	backend->number = number;
}

static struct backend *backend_new(const struct backend_spec *spec,
				   int64_t since_ns)
{
	struct backend *backend =
		aligned_alloc(_Alignof(struct backend), sizeof(*backend));

	if (!backend)
		return NULL;
	memset(backend, 0, sizeof(*backend));
	strcpy(backend->name, spec->name);
	strcpy(backend->host, spec->host);
	backend->port = spec->port;
	backend->refs = 1;
	backend->state = (int)spec->state;
	backend->up = true;
	backend->since_ns = since_ns;
	renew_number(backend);
	return backend;
}

struct pool *pool_ref(struct pool *pool)
{
	atomic_fetch_add(&pool->refs, 1);
	return pool;
}

void pool_unref(struct pool *pool)
{
	if (!pool || atomic_fetch_sub(&pool->refs, 1) != 1)
		return;
	for (unsigned i = 0; i < pool->n; i++)
		backend_unref(pool->entries[i].backend);
	free(pool);
}

/* Returns the entry of the same backend: its name, host and port. */
static const struct pool_entry *find_same(const struct pool *pool,
					  const struct backend_spec *spec)
{
	for (unsigned i = 0; pool && i < pool->n; i++) {
		const struct backend *b = pool->entries[i].backend;

		if (strcmp(b->name, spec->name) == 0 &&
		    strcmp(b->host, spec->host) == 0 && b->port == spec->port)
			return &pool->entries[i];
	}
	return NULL;
}

static void set_addr(struct pool_entry *entry)
{
	const struct opt_endpoint *end = &entry->spec.end;
	const struct sockaddr_in *in = (const void *)&end->addr;
	const struct sockaddr_in6 *in6 = (const void *)&end->addr;

	entry->addr = (struct net_addr){.port = end->port};
	if (end->addr.ss_family == AF_INET) {
		entry->addr.family = 4;
		memcpy(entry->addr.ip, &in->sin_addr, 4);
	} else {
		entry->addr.family = 6;
		memcpy(entry->addr.ip, &in6->sin6_addr, 16);
	}
}

static int add_entry(struct pool *pool, const struct backend_spec *spec,
		     const struct pool *old, int64_t now_ns)
{
	struct pool_entry *entry = &pool->entries[pool->n];
	const struct pool_entry *same = find_same(old, spec);

	entry->spec = *spec;
	entry->backend = same ? backend_ref(same->backend)
			      : backend_new(spec, old ? now_ns : 0);
	if (!entry->backend)
		return -ENOMEM;
	if (!spec->by_name)
		set_addr(entry);
	else if (same)
		entry->addr = same->addr;
	pool->by_name |= spec->sni[0] != '\0';
	pool->n++;
	return 0;
}

static void fill_slots(struct pool *pool)
{
	const char *names[BALANCE_MAX];
	unsigned weights[BALANCE_MAX];

	for (unsigned i = 0; i < pool->n; i++) {
		names[i] = pool->entries[i].spec.name;
		weights[i] = pool->entries[i].spec.weight;
	}
	balance_fill(pool->slots, names, weights, pool->n);
}

struct pool *pool_build(const struct backend_spec *specs, unsigned n,
			const struct pool_rules *rules, const struct pool *old,
			int64_t now_ns)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->refs = 1;
	pool->rules = *rules;
	for (unsigned i = 0; i < n; i++)
		if (add_entry(pool, &specs[i], old, now_ns) < 0) {
			pool_unref(pool);
			return NULL;
		}
	if (rules->kind == BALANCE_HASH)
		fill_slots(pool);
	return pool;
}

struct pool *pool_readdress(const struct pool *old, unsigned index,
			    const struct net_addr *addr)
{
	struct pool *pool = malloc(sizeof(*pool));

	if (!pool)
		return NULL;
	*pool = *old;
	pool->refs = 1;
	for (unsigned i = 0; i < pool->n; i++)
		backend_ref(pool->entries[i].backend);
	pool->entries[index].addr = *addr;
	return pool;
}

int pool_find(const struct pool *pool, const struct backend *backend)
{
	for (unsigned i = 0; i < pool->n; i++)
		if (pool->entries[i].backend == backend)
			return (int)i;
	return -ENOENT;
}

unsigned pool_count_missing(const struct pool *a, const struct pool *b)
{
	unsigned n = 0;

	for (unsigned i = 0; i < a->n; i++)
		n += pool_find(b, a->entries[i].backend) < 0;
	return n;
}

/* Applies the pool's settings to the state of a backend. */
static void update_backend(const struct pool *pool, unsigned index,
			   const struct pool *old, int64_t now_ns)
{
	const struct pool_entry *entry = &pool->entries[index];
	const struct pool_entry *same = find_same(old, &entry->spec);

	if (entry->spec.weight == 0)
		renew_number(entry->backend);
	if (same && same->spec.state != entry->spec.state)
		backend_set_state(entry->backend, entry->spec.state, now_ns);
}

void pool_replace(const struct pool *old, const struct pool *pool,
		  int64_t now_ns)
{
	for (unsigned i = 0; i < pool->n; i++)
		update_backend(pool, i, old, now_ns);
	for (unsigned i = 0; i < old->n; i++)
		if (pool_find(pool, old->entries[i].backend) < 0)
			old->entries[i].backend->gone_ns = now_ns;
}

int pool_find_name(const struct pool *pool, const char *name)
{
	for (unsigned i = 0; i < pool->n; i++)
		if (strcmp(pool->entries[i].spec.name, name) == 0)
			return (int)i;
	return -ENOENT;
}

uint64_t pool_for_name(const struct pool *pool, const char *name)
{
	uint64_t best = 0, unnamed = 0;
	unsigned most = 0;

	if (!pool->by_name)
		return POOL_ALL;
	for (unsigned i = 0; i < pool->n; i++) {
		const struct backend_spec *spec = &pool->entries[i].spec;
		uint64_t bit = UINT64_C(1) << i;
		unsigned well = 0;

		if (!spec->sni[0])
			unnamed |= bit;
		else if (name && *name)
			well = backend_spec_serves(spec, name);
		if (well > most)
			best = 0;
		if (well && well >= most) {
			most = well;
			best |= bit;
		}
	}
	return best ? best : unnamed;
}

/* ---- eligible backends ---- */

static bool is_alive(const struct pool_entry *entry)
{
	return entry->addr.family && entry->backend->up && entry->spec.weight &&
	       entry->backend->state == BACKEND_READY;
}

static bool is_ejected(const struct backend *backend, int64_t now_ns)
{
	return backend->ejected_until_ns > now_ns;
}

static bool is_full(const struct pool_entry *entry)
{
	return entry->spec.maxconn &&
	       entry->backend->active >= entry->spec.maxconn;
}

/* Returns the first tier that has any: regular, backup, then ejected ones. */
static uint64_t find_candidates(const struct pool *pool,
				const struct pool_wish *wish)
{
	uint64_t tiers[4] = {0};

	for (unsigned i = 0; i < pool->n; i++) {
		const struct pool_entry *entry = &pool->entries[i];
		uint64_t bit = UINT64_C(1) << i;

		if (!(wish->allowed & ~wish->tried & bit) || !is_alive(entry))
			continue;
		tiers[2 * is_ejected(entry->backend, wish->now_ns) +
		      entry->spec.backup] |= bit;
	}
	for (int i = 0; i < 4; i++)
		if (tiers[i])
			return tiers[i];
	return 0;
}

static uint64_t without_full(const struct pool *pool, uint64_t among)
{
	for (unsigned i = 0; i < pool->n; i++)
		if (among >> i & 1 && is_full(&pool->entries[i]))
			among &= ~(UINT64_C(1) << i);
	return among;
}

/* Returns how much of its weight a backend has by now: 1 to WHOLE. */
static unsigned ramp_weight(const struct pool *pool, unsigned i, int64_t now_ns)
{
	int64_t since_ns = pool->entries[i].backend->since_ns;
	int64_t whole_ns = pool->rules.slow_start_ns;

	if (since_ns == 0 || whole_ns == 0 || now_ns - since_ns >= whole_ns)
		return WHOLE;
	if (now_ns <= since_ns)
		return 1;
	return 1 + (unsigned)((now_ns - since_ns) * (int64_t)(WHOLE - 1) /
			      whole_ns);
}

unsigned pool_ramp_percent(const struct pool *pool, unsigned index,
			   int64_t now_ns)
{
	unsigned percent = ramp_weight(pool, index, now_ns) * 100 / WHOLE;

	return percent ? percent : 1;
}

enum backend_health pool_health(const struct pool *pool, unsigned index,
				int64_t now_ns)
{
	const struct pool_entry *entry = &pool->entries[index];

	if (entry->addr.family == 0)
		return BACKEND_UNRESOLVED;
	if (!entry->backend->up)
		return BACKEND_FAILS;
	if (is_ejected(entry->backend, now_ns))
		return BACKEND_EJECTED;
	return ramp_weight(pool, index, now_ns) < WHOLE ? BACKEND_WARMING
							: BACKEND_UP;
}

const char *backend_health_name(enum backend_health health)
{
	static const char *const names[] = {
		[BACKEND_UP] = "up",
		[BACKEND_WARMING] = "warming",
		[BACKEND_EJECTED] = "ejected",
		[BACKEND_FAILS] = "down",
		[BACKEND_UNRESOLVED] = "unresolved",
	};

	return names[health];
}

static unsigned weight_of(const struct pool *pool, unsigned i, int64_t now_ns)
{
	return pool->entries[i].spec.weight * ramp_weight(pool, i, now_ns);
}

/* ---- choosing ---- */

/*
 * Smooth weighted round robin: each backend gains its weight, and the one that
 * has gained most is next and pays what all gained. So turns are in proportion
 * and spread out.
 */
static int choose_in_turn(const struct pool *pool, struct pool_cursor *cursor,
			  uint64_t among, int64_t now_ns)
{
	int64_t sum = 0;
	int best = -ENOENT;

	for (unsigned k = 0; k < pool->n; k++) {
		unsigned i = (cursor->next + k) % pool->n;

		if (!(among >> i & 1))
			continue;
		cursor->turns[i] += weight_of(pool, i, now_ns);
		sum += weight_of(pool, i, now_ns);
		if (best < 0 || cursor->turns[i] > cursor->turns[best])
			best = (int)i;
	}
	if (best >= 0)
		cursor->turns[best] -= sum;
	return best;
}

/* Chooses by sessions per weight, with the new one; equals take turns. */
static int choose_least(const struct pool *pool, struct pool_cursor *cursor,
			uint64_t among, int64_t now_ns)
{
	uint64_t best_load = 0, best_weight = 1;
	int best = -ENOENT;

	for (unsigned k = 0; k < pool->n; k++) {
		unsigned i = (cursor->next + k) % pool->n;
		uint64_t load, weight;

		if (!(among >> i & 1))
			continue;
		load = (uint64_t)pool->entries[i].backend->active + 1;
		weight = weight_of(pool, i, now_ns);
		if (best < 0 || load * best_weight < best_load * weight) {
			best_load = load;
			best_weight = weight;
			best = (int)i;
		}
	}
	if (best >= 0)
		cursor->next = ((unsigned)best + 1) % pool->n;
	return best;
}

/*
 * Skips backends that cannot be chosen: the next slot may be any's. A backend
 * in its slow start takes only a part of its clients, always the same ones.
 */
static int choose_by_hash(const struct pool *pool, uint64_t hash,
			  uint64_t among, int64_t now_ns)
{
	unsigned client = (unsigned)(hash >> 48) % WHOLE;
	int warming = -ENOENT;

	for (unsigned k = 0; k < BALANCE_SLOTS; k++) {
		uint8_t i = pool->slots[(hash + k) % BALANCE_SLOTS];

		if (i >= pool->n || !(among >> i & 1))
			continue;
		if (client < ramp_weight(pool, i, now_ns))
			return i;
		if (warming < 0)
			warming = i;
	}
	return warming;
}

static int choose_entry(const struct pool *pool, struct pool_cursor *cursor,
			const struct pool_wish *wish, uint64_t among)
{
	switch (pool->rules.kind) {
	case BALANCE_RR:
		return choose_in_turn(pool, cursor, among, wish->now_ns);
	case BALANCE_LEAST:
		return choose_least(pool, cursor, among, wish->now_ns);
	case BALANCE_HASH:
		return choose_by_hash(pool, wish->hash, among, wish->now_ns);
	}
	return -ENOENT;
}

/* Counts one session more, unless other shards have just filled the backend. */
static bool take_slot(const struct pool_entry *entry)
{
	unsigned n = entry->backend->active;

	do {
		if (entry->spec.maxconn && n >= entry->spec.maxconn)
			return false;
	} while (!atomic_compare_exchange_weak(&entry->backend->active, &n,
					       n + 1));
	return true;
}

int pool_kept(const struct pool *pool, const struct pool_wish *wish)
{
	for (unsigned i = 0; wish->kept && i < pool->n; i++) {
		const struct pool_entry *entry = &pool->entries[i];

		if (entry->backend->number == wish->kept)
			return wish->allowed & ~wish->tried &
						       UINT64_C(1) << i &&
					       is_alive(entry) &&
					       !is_ejected(entry->backend,
							   wish->now_ns)
				       ? (int)i
				       : -ENOENT;
	}
	return -ENOENT;
}

uint64_t pool_group(const struct pool *pool, uint64_t allowed)
{
	for (unsigned i = 0; pool->by_name && i < pool->n; i++)
		if (allowed >> i & 1 && pool->entries[i].spec.sni[0])
			return balance_hash(pool->entries[i].spec.sni,
					    strlen(pool->entries[i].spec.sni));
	return 0;
}

int pool_take(const struct pool *pool, struct pool_cursor *cursor,
	      const struct pool_wish *wish)
{
	uint64_t among = find_candidates(pool, wish);
	int kept = pool_kept(pool, wish);

	if (kept >= 0)
		return take_slot(&pool->entries[kept]) ? kept : -EAGAIN;
	if (among == 0)
		return -ENOENT;
	/* Each turn removes a backend that has no room: at most 64. */
	while ((among = without_full(pool, among)) != 0) {
		int i = choose_entry(pool, cursor, wish, among);

		if (i < 0)
			break;
		if (take_slot(&pool->entries[i]))
			return i;
		among &= ~(UINT64_C(1) << i);
	}
	return -EAGAIN;
}

void backend_release(struct backend *backend)
{
	atomic_fetch_sub(&backend->active, 1);
}

/* ---- results of connection attempts ---- */

void pool_connected(const struct pool *pool, unsigned index)
{
	struct backend *backend = pool->entries[index].backend;

	atomic_fetch_add_explicit(&backend->served, 1, memory_order_relaxed);
	if (backend->failures)
		backend->failures = 0;
}

bool pool_failed(const struct pool *pool, unsigned index, int64_t now_ns)
{
	struct backend *backend = pool->entries[index].backend;
	unsigned failures = atomic_fetch_add(&backend->failures, 1) + 1;

	atomic_fetch_add_explicit(&backend->failed, 1, memory_order_relaxed);
	if (pool->rules.eject_after == 0 ||
	    failures < pool->rules.eject_after || is_ejected(backend, now_ns))
		return false;
	backend->failures = 0;
	backend->ejected_until_ns = now_ns + pool->rules.eject_ns;
	backend->since_ns = now_ns + pool->rules.eject_ns;
	renew_number(backend);
	atomic_fetch_add_explicit(&backend->ejections, 1, memory_order_relaxed);
	return true;
}

bool pool_report(const struct pool *pool, unsigned index, bool well,
		 int64_t now_ns)
{
	struct backend *backend = pool->entries[index].backend;

	if (well == backend->up) {
		backend->streak = 0;
		return false;
	}
	if (++backend->streak < (well ? pool->rules.rise : pool->rules.fall))
		return false;
	backend->streak = 0;
	if (well) {
		backend->failures = 0;
		backend->ejected_until_ns = 0;
		backend->since_ns = now_ns;
	}
	if (!well)
		renew_number(backend);
	backend->up = well;
	return true;
}

/* ---- counters ---- */

const double backend_bounds_s[BACKEND_BOUNDS] = {
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
	0.05,	0.1,	 0.25,	 0.5,	1,	2.5,   5,    10};

void backend_count_time(struct backend_times *times, int64_t ns)
{
	unsigned i = 0;

	if (ns < 0)
		ns = 0;
	while (i < BACKEND_BOUNDS && (double)ns > backend_bounds_s[i] * 1e9)
		i++;
	atomic_fetch_add_explicit(&times->counts[i], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&times->sum_ns, (uint64_t)ns,
				  memory_order_relaxed);
}

static enum backend_failure failure_of(int err)
{
	switch (err) {
	case -ECONNREFUSED:
	case -ECONNRESET:
		return BACKEND_REFUSED;
	case -ETIMEDOUT:
		return BACKEND_TIMEOUT;
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		return BACKEND_UNREACHABLE;
	case -EADDRNOTAVAIL:
		return BACKEND_NO_PORT;
	case -ENOMEM:
		return BACKEND_NO_MEMORY;
	case -EPROTO:
		return BACKEND_BAD_TLS;
	default:
		return BACKEND_OTHER;
	}
}

void backend_count_failure(struct backend *backend, int err)
{
	atomic_fetch_add_explicit(&backend->not_made[failure_of(err)], 1,
				  memory_order_relaxed);
}

const char *backend_failure_name(enum backend_failure failure)
{
	static const char *const names[] = {
		[BACKEND_REFUSED] = "refused",
		[BACKEND_TIMEOUT] = "timeout",
		[BACKEND_UNREACHABLE] = "unreachable",
		[BACKEND_NO_PORT] = "no_port",
		[BACKEND_NO_MEMORY] = "no_memory",
		[BACKEND_BAD_TLS] = "tls",
		[BACKEND_OTHER] = "other",
	};

	return names[failure];
}

/* ---- the operator's word ---- */

void backend_set_state(struct backend *backend, enum backend_state state,
		       int64_t now_ns)
{
	if (state == BACKEND_READY && backend->state != BACKEND_READY)
		backend->since_ns = now_ns;
	if (state != BACKEND_READY)
		renew_number(backend);
	backend->state = (int)state;
}

unsigned pool_usable(const struct pool *pool, int64_t now_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < pool->n; i++)
		n += is_alive(&pool->entries[i]) &&
		     !is_ejected(pool->entries[i].backend, now_ns);
	return n;
}

/* ---- retries ---- */

void retry_budget_init(struct retry_budget *budget)
{
	budget->millis = RETRY_BUDGET_MAX * 1000;
}

void retry_budget_earn(struct retry_budget *budget, unsigned percent)
{
	budget->millis += (int64_t)percent * 10;
	if (budget->millis > RETRY_BUDGET_MAX * 1000)
		budget->millis = RETRY_BUDGET_MAX * 1000;
}

bool retry_budget_spend(struct retry_budget *budget)
{
	if (budget->millis < 1000)
		return false;
	budget->millis -= 1000;
	return true;
}
