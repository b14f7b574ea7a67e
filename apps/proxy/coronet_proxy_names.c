/*
 * Looks up the names of backends, at the same time.
 *
 * With --resolver the stack asks for a name, in a coroutine on the first shard
 * (net_resolve()), which hands the answer to the thread that decides.
 *
 * Otherwise the C library does, since resolv.conf(5) often names a server that
 * only the kernel reaches. Its resolver blocks for as long as resolv.conf(5)
 * lets it, often ten seconds for a name that nobody answers. So each lookup has
 * a thread of its own, at most one per name, and an answer is used when it
 * arrives.
 *
 * One more thread decides when a name is due, and reports lookups that take
 * longer than LATE_NS. Threads are never joined: after config_stop() they
 * change nothing, and the process ends them.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <arpa/nameser.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <resolv.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <coronet/net_resolve.h>

#include "apps/common/host.h"

#define SOONEST_NS INT64_C(1000000000) /* until a name is asked for again */
#define LATE_NS	   INT64_C(5000000000)
#define NS_PER_S   INT64_C(1000000000)
#define ASK_MS	   60000 /* net_resolve() gives up earlier */
#define FOUND_MAX  (2 * NET_RESOLVE_ADDRS)
#define ANSWER_MAX 4096 /* bytes; what is longer is cut */

/* Names of a pool, and of older pools whose lookups have not ended. */
#define NAMES_MAX (2 * BALANCE_MAX)

struct name {
	struct backend *backend; /* a reference; NULL: free */
	int64_t due_ns;		 /* asked: when it is late; else when to ask */
	bool asked, late;
};

static struct {
	pthread_mutex_t lock;
	struct name all[NAMES_MAX];    /* under the lock */
	atomic_bool renew;	       /* all are due */
	_Atomic(struct lookup *) done; /* by the stack */
	sem_t changed;
} names = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* One name, for as long as it is asked. */
struct lookup {
	struct backend *backend; /* a reference */
	struct backend_spec spec;
	struct net_addr used; /* its address so far; family 0: none */
	int64_t most_ns;      /* --resolve-interval */
	/* the answer */
	struct net_addr found[FOUND_MAX];
	int result;	 /* how many, or an error of net_resolve() */
	unsigned ttl_s;	 /* of net_resolve() */
	const char *why; /* there are none; NULL: unknown */
	struct lookup *next_done;
};

/* ---- the TTL of a host name's DNS records ---- */

/* The smallest TTL of the answer's records: aliases and addresses. */
static int64_t smallest_ttl(const unsigned char *answer, int len)
{
	int64_t ttl = -ENOENT;
	ns_msg message;

	if (ns_initparse(answer, len, &message) < 0)
		return -ENOENT;
	for (int i = 0; i < ns_msg_count(message, ns_s_an); i++) {
		ns_rr record;

		if (ns_parserr(&message, ns_s_an, i, &record) < 0)
			break;
		if (ttl < 0 || ns_rr_ttl(record) < ttl)
			ttl = ns_rr_ttl(record);
	}
	return ttl;
}

/*
 * Queries the name servers of resolv.conf(5) for a host's addresses of a family
 * (4 or 6). Returns the smallest TTL of the answer, in seconds, or -ENOENT:
 * there is no answer, as for a name of /etc/hosts. Blocks as long as the
 * resolver.
 */
static int64_t query_ttl(const char *host, uint8_t family)
{
	unsigned char answer[ANSWER_MAX];
	struct __res_state state;
	int len;

	memset(&state, 0, sizeof(state));
	if (res_ninit(&state) < 0)
		return -ENOENT;
	len = res_nsearch(&state, host, ns_c_in,
			  family == 4 ? ns_t_a : ns_t_aaaa, answer,
			  sizeof(answer));
	res_nclose(&state);
	if (len > (int)sizeof(answer))
		len = sizeof(answer);
	return len < 0 ? -ENOENT : smallest_ttl(answer, len);
}

/* ---- a lookup ---- */

/*
 * Chooses one of a name's addresses: the one in use, if it is among them, else
 * the first that the stack can reach.
 */
static bool pick_addr(const struct lookup *lookup, struct net_addr *out)
{
	struct net_addr used = lookup->used;
	bool found = false;

	used.port = lookup->spec.port;
	for (int i = 0; i < lookup->result; i++) {
		struct net_addr addr = lookup->found[i];

		addr.port = lookup->spec.port;
		addr.prefix_len = 0; /* as in the addresses of a pool */
		if (!config_dialable(&addr))
			continue;
		if (!found || memcmp(&addr, &used, sizeof(addr)) == 0)
			*out = addr;
		found = true;
	}
	return found;
}

/* How long an address holds: as the answer says, within bounds. */
static int64_t hold_ns(int64_t ttl_s, int64_t most_ns)
{
	if (ttl_s < 0 || ttl_s > most_ns / NS_PER_S)
		return most_ns;
	if (ttl_s * NS_PER_S < SOONEST_NS)
		return most_ns < SOONEST_NS ? most_ns : SOONEST_NS;
	return ttl_s * NS_PER_S;
}

/* Returns when to ask again. */
static int64_t report_none(const struct lookup *lookup)
{
	net_log_seldom("coronet-proxy: backend %s: '%s': %s%s",
		       lookup->backend->name, lookup->spec.host,
		       lookup->why ? lookup->why
				   : "no address that this stack can reach",
		       lookup->used.family ? "; the old one is kept" : "");
	return lookup->most_ns < SOONEST_NS ? lookup->most_ns : SOONEST_NS;
}

/*
 * Uses what was found; blocks if the C library has found it. Returns when to
 * ask again: after most_ns at the latest.
 */
static int64_t use_answer(const struct lookup *lookup)
{
	struct net_addr addr;
	int64_t ttl_s = lookup->ttl_s == UINT_MAX ? -1 : (int64_t)lookup->ttl_s;

	if (!pick_addr(lookup, &addr))
		return report_none(lookup);
	if (memcmp(&addr, &lookup->used, sizeof(addr)) != 0)
		config_move_backend(lookup->backend, &addr);
	if (!proxy.net.n_resolvers)
		ttl_s = query_ttl(lookup->spec.host, addr.family);
	return hold_ns(ttl_s, lookup->most_ns);
}

/* Asks the C library, which may take seconds. */
static void ask_library(struct lookup *lookup)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC,
				       .ai_socktype = SOCK_STREAM};
	struct addrinfo *list = NULL;
	int err = getaddrinfo(lookup->spec.host, NULL, &hints, &list);

	lookup->why = err ? gai_strerror(err) : NULL;
	for (struct addrinfo *at = list; at && lookup->result < (int)FOUND_MAX;
	     at = at->ai_next)
		config_read_sockaddr(at->ai_addr,
				     &lookup->found[lookup->result++]);
	if (list)
		freeaddrinfo(list);
}

/* Needs the lock. NULL: the backend has no entry. */
static struct name *find_name(const struct backend *backend)
{
	for (unsigned i = 0; i < NAMES_MAX; i++)
		if (names.all[i].backend == backend)
			return &names.all[i];
	return NULL;
}

static void lookup_free(struct lookup *lookup)
{
	backend_unref(lookup->backend);
	free(lookup);
}

/* The name may be asked for again in next_ns. Frees the lookup. */
static void end_lookup(struct lookup *lookup, int64_t next_ns)
{
	struct name *name;

	pthread_mutex_lock(&names.lock);
	name = find_name(lookup->backend); /* it stays while it is asked */
	name->asked = name->late = false;
	name->due_ns = net_clock_ns() + next_ns;
	pthread_mutex_unlock(&names.lock);
	lookup_free(lookup);
}

static void *lookup_thread(void *arg)
{
	ask_library(arg);
	end_lookup(arg, use_answer(arg));
	sem_post(&names.changed);
	return NULL;
}

/* ---- a lookup by the stack ---- */

/* Hands a lookup to the names' thread: a shard does not wait for locks. */
static void hand_over(struct lookup *lookup)
{
	lookup->next_done = atomic_load(&names.done);
	while (!atomic_compare_exchange_weak(&names.done, &lookup->next_done,
					     lookup))
		;
	sem_post(&names.changed);
}

static void *lookup_coro(void *arg)
{
	struct lookup *lookup = arg;
	const struct net_resolve_opts opts = {.port = lookup->spec.port,
					      .timeout_ms = ASK_MS,
					      .ttl_s = &lookup->ttl_s};

	lookup->result = net_resolve(net_stack_here(), lookup->spec.host, &opts,
				     lookup->found, FOUND_MAX);
	hand_over(lookup);
	return NULL;
}

static void begin_coro(void *arg)
{
	struct lookup *lookup = arg;

	lookup->result =
		net_spawn(net_stack_here(), "name", lookup_coro, lookup);
	if (lookup->result < 0)
		hand_over(lookup);
}

/* On the names' thread. */
static void take_answers(void)
{
	struct lookup *lookup = atomic_exchange(&names.done, NULL);

	while (lookup) {
		struct lookup *next = lookup->next_done;

		if (lookup->result < 0)
			lookup->why = host_error(lookup->result);
		end_lookup(lookup, use_answer(lookup));
		lookup = next;
	}
}

/* ---- when ---- */

/* Starts a lookup. Returns false without memory or a thread. */
static bool lookup_start(const struct pool_entry *entry, int64_t most_ns)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));
	int err;

	if (!lookup)
		return false;
	lookup->backend = backend_ref(entry->backend);
	lookup->spec = entry->spec;
	lookup->used = entry->addr;
	lookup->most_ns = most_ns;
	err = proxy.net.n_resolvers ? net_post(0, begin_coro, lookup)
				    : proxy_start_thread(lookup_thread, lookup);
	if (err == 0)
		return true;
	lookup_free(lookup);
	return false;
}

static void start_lookup(struct name *name, const struct pool_entry *entry,
			 int64_t most_ns, int64_t now_ns)
{
	name->asked = lookup_start(entry, most_ns);
	name->due_ns = now_ns + (name->asked ? LATE_NS : SOONEST_NS);
	if (!name->asked)
		net_log_seldom("coronet-proxy: backend %s: '%s': no memory or "
			       "no thread to look the name up",
			       entry->backend->name, entry->spec.host);
}

static void report_late(struct name *name, const struct pool_entry *entry)
{
	name->late = true;
	net_log("coronet-proxy: backend %s: '%s': no answer within %d s%s",
		entry->backend->name, entry->spec.host,
		(int)(LATE_NS / NS_PER_S),
		entry->addr.family ? "; the old one is kept" : "");
}

/* Returns the entry of a backend, a new one if need be; NULL: all are taken. */
static struct name *slot_of(struct backend *backend)
{
	struct name *name = find_name(backend);

	if (name)
		return name;
	name = find_name(NULL);
	if (name)
		*name = (struct name){.backend = backend_ref(backend)};
	return name;
}

static void forget_others(const struct pool *pool)
{
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		struct name *name = &names.all[i];

		if (!name->backend || name->asked ||
		    pool_find(pool, name->backend) >= 0)
			continue;
		backend_unref(name->backend);
		name->backend = NULL;
	}
}

/* Does what is due of one name. Returns when to look again; INT64_MAX: when
 * something changes. */
static int64_t look_at(const struct pool_entry *entry, int64_t most_ns,
		       bool renew, int64_t now_ns)
{
	struct name *name = slot_of(entry->backend);

	if (!name) /* until lookups of former pools end */
		return now_ns + SOONEST_NS;
	if (!name->asked && (renew || name->due_ns <= now_ns))
		start_lookup(name, entry, most_ns, now_ns);
	else if (name->asked && !name->late && name->due_ns <= now_ns)
		report_late(name, entry);
	return name->late ? INT64_MAX : name->due_ns;
}

/* Looks at all current names. Returns how long nothing is due, or INT64_MAX. */
static int64_t look_at_all(void)
{
	int64_t now_ns = net_clock_ns(), next_ns = INT64_MAX;
	bool renew = atomic_exchange(&names.renew, false);
	struct proxy_config *config;
	struct pool *pool;

	if (!config_current(&config, &pool))
		return INT64_MAX;
	pthread_mutex_lock(&names.lock);
	forget_others(pool);
	for (unsigned i = 0; i < pool->n; i++) {
		int64_t at_ns;

		if (!pool->entries[i].spec.by_name)
			continue;
		at_ns = look_at(&pool->entries[i],
				config->steer.resolve_interval_ns, renew,
				now_ns);
		next_ns = at_ns < next_ns ? at_ns : next_ns;
	}
	pthread_mutex_unlock(&names.lock);
	pool_unref(pool);
	config_unref(config);
	return next_ns == INT64_MAX ? INT64_MAX : next_ns - now_ns;
}

static void *names_thread(void *arg)
{
	for (;;) {
		struct timespec until;
		int64_t wait_ns;

		take_answers();
		wait_ns = look_at_all();

		if (wait_ns == INT64_MAX) {
			sem_wait(&names.changed);
			continue;
		}
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += wait_ns % NS_PER_S;
		until.tv_sec += wait_ns / NS_PER_S + until.tv_nsec / NS_PER_S;
		until.tv_nsec %= NS_PER_S;
		sem_timedwait(&names.changed, &until);
	}
	return NULL;
}

int names_open(void)
{
	sem_init(&names.changed, 0, 0);
	return proxy_start_thread(names_thread, NULL);
}

void names_renew(void)
{
	atomic_store(&names.renew, true);
	names_look();
}

void names_look(void)
{
	sem_post(&names.changed);
}
