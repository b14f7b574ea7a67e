/*
 * What may change while coronet-proxy runs: options, routes, backends, their
 * addresses.
 *
 * Threads of the program's own may block where shards must not. One reads the
 * configuration files again on SIGHUP, and checks all of them before anything
 * changes. Others resolve the names of backends (coronet_proxy_names.c). All of
 * them publish: a new configuration and a new pool replace the current ones and
 * are posted to each shard, which takes them between two rounds. A thread holds
 * `publishing` while it publishes; it holds `lock` only to read or replace the
 * current configuration and pool.
 */
#include "apps/proxy/coronet_proxy_priv.h"
#include "apps/proxy/coronet_proxy_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <coronet/net_reload.h>

#define MOST_NAPS 5000 /* until shards have taken an update */

/* Words that options point into. */
struct config_text {
	struct config_text *next;
	char text[];
};

static struct {
	const struct argp *argp;
	int argc;
	char **argv;
	uint64_t fixed; /* a hash of the options that cannot change */
	pthread_mutex_t publishing, lock;
	struct proxy_config *config; /* current; a reference each */
	struct pool *pool;
	atomic_bool running; /* the shards take what is posted */
	atomic_uint untaken; /* updates that were posted */
	sem_t reload;
} state = {.publishing = PTHREAD_MUTEX_INITIALIZER,
	   .lock = PTHREAD_MUTEX_INITIALIZER};

static void sleep_1_ms(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* ---- a configuration ---- */

void config_unref(struct proxy_config *config)
{
	if (!config || atomic_fetch_sub(&config->refs, 1) != 1)
		return;
	while (config->texts) {
		struct config_text *text = config->texts;

		config->texts = text->next;
		free(text);
	}
	steer_opts_fini(&config->steer);
	proxy_tls_close(config);
	free(config);
}

struct proxy_config *config_ref(struct proxy_config *config)
{
	atomic_fetch_add(&config->refs, 1);
	return config;
}

static char *keep_text(struct proxy_config *config, const char *text)
{
	size_t len = strlen(text) + 1;
	struct config_text *copy = malloc(sizeof(*copy) + len);

	if (!copy)
		return NULL;
	memcpy(copy->text, text, len);
	copy->next = config->texts;
	config->texts = copy;
	return copy->text;
}

/* A configuration while it is read. */
struct reading {
	struct proxy_config *config;
	uint64_t fixed;
	struct opt_error *error;
};

/* Does the option keep its value from the program's start to its end? */
static bool is_fixed(const struct opt_set *set, const char *name)
{
	const struct opt *opt = opt_find(set->rows, set->n, name);

	return opt && opt->fixed;
}

/* Of --listen, the keys may change. */
static size_t fixed_len(const char *name, const char *value)
{
	return strcmp(name, "listen") == 0 ? proxy_listen_fixed(value)
					   : strlen(value);
}

/* Common options that a reload changes. */
static bool is_route(const char *name)
{
	return strcmp(name, "route") == 0 || strcmp(name, "gateway") == 0;
}

static int read_route(const struct reading *r, const char *name,
		      const char *value, const char *place)
{
	struct net_opts *net = &r->config->net;

	if (net_opts_set(net, name, value) == 0)
		return 0;
	return opt_fail(r->error, "%s%s", place, net->error);
}

#if PROXY_TLS
/* Reads an option of TLS, all of which a reload may change; -ENOENT: none. */
static int read_tls(const struct reading *r, const char *name,
		    const char *value, const char *place)
{
	return opt_try(&tls_opts, name, value, place, &r->config->tls,
		       r->error);
}
#else
static int read_tls(const struct reading *r, const char *name,
		    const char *value, const char *place)
{
	return -ENOENT;
}
#endif

static int read_option(void *arg, const char *name, const char *value,
		       const char *place)
{
	struct reading *r = arg;
	char *text = value ? keep_text(r->config, value) : NULL;
	int err;

	if (value && !text)
		return -ENOMEM;
	if (is_route(name))
		return read_route(r, name, text, place);
	err = opt_try(&proxy_opts, name, text, place, &r->config->opts,
		      r->error);
	if (err == -ENOENT)
		err = opt_try(&steer_opts, name, text, place, &r->config->steer,
			      r->error);
	if (err == -ENOENT) {
		err = read_tls(r, name, text, place);
		if (err != -ENOENT)
			return err;
	}
	if (err == -ENOENT || is_fixed(&proxy_opts, name) ||
	    is_fixed(&steer_opts, name)) {
		r->fixed = r->fixed * 31 + balance_hash(name, strlen(name));
		if (value)
			r->fixed = r->fixed * 31 +
				   balance_hash(value, fixed_len(name, value));
	}
	return err == -ENOENT ? 0 : err;
}

/* Are all host bits of the address ones, or zeros, in that network? */
static bool is_broadcast(const struct net_addr *addr,
			 const struct net_addr *own)
{
	uint32_t mask, a, b;

	memcpy(&a, addr->ip, 4);
	memcpy(&b, own->ip, 4);
	mask = own->prefix_len ? ~0u << (32 - own->prefix_len) : 0;
	mask = htonl(mask);
	return own->prefix_len < 31 && ((a ^ b) & mask) == 0 &&
	       ((a & ~mask) == ~mask || (a & ~mask) == 0);
}

/*
 * Is a backend's address one of the stack's, where nobody but this proxy
 * listens, or the broadcast address of one of its networks?
 */
static bool is_own(const struct net_addr *backend)
{
	for (unsigned i = 0; i < proxy.net.n_addrs; i++) {
		const struct net_addr *own = &proxy.net.addrs[i];
		unsigned len = own->family == 4 ? 4 : 16;

		if (own->family == backend->family &&
		    memcmp(own->ip, backend->ip, len) == 0)
			return true;
		if (backend->family == 4 && own->family == 4 &&
		    is_broadcast(backend, own))
			return true;
	}
	return false;
}

void config_read_sockaddr(const struct sockaddr *from, struct net_addr *out)
{
	const struct sockaddr_in *in = (const void *)from;
	const struct sockaddr_in6 *in6 = (const void *)from;

	*out = (struct net_addr){0};
	if (from->sa_family == AF_INET) {
		out->family = 4;
		memcpy(out->ip, &in->sin_addr, 4);
	} else if (from->sa_family == AF_INET6) {
		out->family = 6;
		memcpy(out->ip, &in6->sin6_addr, 16);
	}
}

/* Refuses options that mean nothing without another. */
static int refuse_alone(const struct proxy_config *config,
			struct opt_error *error)
{
	if (config->steer.proxy_from.n && !config->opts.accept_proxy)
		return opt_fail(
			error, "--proxy-from: expected --accept-proxy as well");
	return 0;
}

int config_refuse_own(const struct proxy_opts *opts, struct opt_error *error)
{
	for (unsigned i = 0; i < opts->n_backends; i++) {
		struct net_addr addr;

		config_read_sockaddr((const void *)&opts->specs[i].end.addr,
				     &addr);
		if (!opts->specs[i].by_name && is_own(&addr))
			return opt_refuse(error, "--to", opts->backend_texts[i],
					  "another host", "--to 10.9.0.2:80");
	}
	return 0;
}

/*
 * Finds the rates of the listeners that run. One that is no longer in the files
 * runs until the next start, and keeps its first rate.
 */
static void match_rates(struct proxy_config *config)
{
	const struct proxy_opts *first =
		proxy.first ? &proxy.first->opts : &config->opts;

	for (unsigned i = 0; i < first->n_listens; i++) {
		int k = proxy_opts_find_listen(first, &config->opts, i);

		config->rates[i] = k < 0 ? first->listen_rates[i]
					 : config->opts.listen_rates[k];
	}
}

/* Reads all options: a new configuration, or NULL with a line in error. */
static struct proxy_config *config_read(uint64_t *fixed,
					struct opt_error *error)
{
	struct proxy_config *config = calloc(1, sizeof(*config));
	struct reading r = {config, 0, error};
	int err;

	opt_fail(error, "%s", strerror(ENOMEM));
	if (!config)
		return NULL;
	config->refs = 1;
	config->net.n_addrs = proxy.net.n_addrs;
	memcpy(config->net.addrs, proxy.net.addrs, sizeof(proxy.net.addrs));
	memcpy(config->net.addr_links, proxy.net.addr_links,
	       sizeof(proxy.net.addr_links));
	proxy_opts_init(&config->opts);
	steer_opts_init(&config->steer);
#if PROXY_TLS
	tls_opts_init(&config->tls);
#endif
	err = net_reread_args(state.argp, state.argc, state.argv, read_option,
			      &r, error->text, sizeof(error->text));
	if (err == 0)
		err = opt_try(&proxy_opts, NULL, NULL, "", &config->opts,
			      error);
	if (err == 0)
		err = opt_try(&steer_opts, NULL, NULL, "", &config->steer,
			      error);
	if (err == 0)
		err = refuse_alone(config, error);
	if (err == 0)
		err = config_refuse_own(&config->opts, error);
	if (err == 0)
		err = proxy_tls_open(config, error);
	*fixed = r.fixed;
	match_rates(config);
	if (err == 0)
		return config;
	config_unref(config);
	return NULL;
}

static struct pool *build_pool(const struct proxy_config *config,
			       const struct pool *old)
{
	const struct pool_rules rules = {
		.kind = config->opts.balance,
		.rise = config->opts.rise,
		.fall = config->opts.fall,
		.eject_after = config->steer.eject_after,
		.eject_ns = config->steer.eject_ns,
		.slow_start_ns = config->steer.slow_start_ns,
	};

	return pool_build(config->opts.specs, config->opts.n_backends, &rules,
			  old, old ? net_clock_ns() : 0);
}

/* ---- publishing ---- */

/* What a shard has to take; a reference each. */
struct update {
	struct proxy_shard *shard;
	struct proxy_config *config;
	struct pool *pool;
};

static int adopt_config(struct proxy_shard *shard, struct proxy_config *config,
			struct pool *pool)
{
	config_unref(shard->config);
	pool_unref(shard->pool);
	shard->config = config;
	shard->pool = pool;
	/* Else the first client of every shard would go to the same backend. */
	shard->cursor = (struct pool_cursor){.next = shard->index % pool->n};
	udp_apply_config(shard);
	return health_start(shard);
}

/* Runs on the shard's thread, outside coroutines. */
static void on_update(void *arg)
{
	struct update *update = arg;

	if (adopt_config(update->shard, update->config, update->pool) < 0)
		net_log("coronet-proxy: no memory to check the health of all "
			"backends");
	queue_kick(&proxy.queue);
	free(update);
	state.untaken--;
}

static void drop_update(struct update *update)
{
	config_unref(update->config);
	pool_unref(update->pool);
	free(update);
	state.untaken--;
}

/* Posts to a shard, however many posts wait there. */
static void post_update(struct proxy_shard *shard)
{
	struct update *update;
	int err;

	while (!(update = malloc(sizeof(*update))))
		sleep_1_ms();
	*update = (struct update){shard, config_ref(state.config),
				  pool_ref(state.pool)};
	state.untaken++;
	do {
		err = net_post(shard->index, on_update, update);
		if (err == -EAGAIN)
			sleep_1_ms();
	} while (err == -EAGAIN && state.running);
	if (err < 0)
		drop_update(update);
}

/*
 * Takes over both references. Needs `publishing`. Returns once the shards serve
 * new clients by the new configuration, so that what is said then is true. If a
 * handler holds up a shard for seconds, returns false without waiting for it.
 */
static bool publish_proxy_config(struct proxy_config *config, struct pool *pool)
{
	struct proxy_config *old_config;
	struct pool *old_pool;

	pool_replace(state.pool, pool, net_clock_ns());
	pthread_mutex_lock(&state.lock);
	old_config = state.config;
	old_pool = state.pool;
	state.config = config;
	state.pool = pool;
	pthread_mutex_unlock(&state.lock);
	config_unref(old_config);
	pool_unref(old_pool);
	for (unsigned i = 0; i < proxy.n_shards && state.running; i++)
		post_update(&proxy.shards[i]);
	for (int i = 0; i < MOST_NAPS && state.untaken && state.running; i++)
		sleep_1_ms();
	return state.untaken == 0;
}

bool config_current(struct proxy_config **config, struct pool **pool)
{
	bool there;

	pthread_mutex_lock(&state.lock);
	there = state.running;
	if (there) {
		*config = config_ref(state.config);
		*pool = pool_ref(state.pool);
	}
	pthread_mutex_unlock(&state.lock);
	return there;
}

struct pool *proxy_pool_ref(void)
{
	struct proxy_config *config;
	struct pool *pool;

	if (!config_current(&config, &pool))
		return NULL;
	config_unref(config);
	return pool;
}

int proxy_backend_set_state(const char *name, enum backend_state wanted)
{
	struct pool *pool = proxy_pool_ref();
	int i;

	if (!pool)
		return -ENOENT;
	i = pool_find_name(pool, name);
	if (i >= 0) {
		backend_set_state(pool->entries[i].backend, wanted,
				  net_clock_ns());
		queue_kick(&proxy.queue);
		net_log("coronet-proxy: backend %s: state set to %s", name,
			backend_state_name(wanted));
	}
	pool_unref(pool);
	return i < 0 ? i : 0;
}

/* ---- reloading ---- */

void proxy_reload(void)
{
	sem_post(&state.reload);
}

static void on_hangup(int signo)
{
	int saved = errno;

	proxy_reload();
	errno = saved;
}

static void take_config(struct proxy_config *config, uint64_t fixed)
{
	struct pool *pool = build_pool(config, state.pool);
	int routed = pool ? net_routes_change(&state.config->net, &config->net)
			  : -ENOMEM;
	unsigned added, gone, undone;
	bool taken;

	if (routed < 0) {
		reload_report(false, "%s; nothing has changed",
			      pool ? config->net.error : strerror(ENOMEM));
		pool_unref(pool);
		config_unref(config);
		return;
	}
	added = pool_count_missing(pool, state.pool);
	gone = pool_count_missing(state.pool, pool);
	undone = change_log_undone(&state.config->opts, state.pool, pool);
	taken = publish_proxy_config(config, pool);
	reload_report(true, "%u backends, %u of them new, %u gone%s%s%s%s",
		      state.pool->n, added, gone,
		      undone ? "; changes by coronet-ctl are undone" : "",
		      routed ? "; routes have changed" : "",
		      taken ? "" : "; a shard has not applied it yet",
		      fixed == state.fixed
			      ? ""
			      : "; changes of links, addresses, ports and "
				"client limits take effect at the next start");
	names_renew();
}

static void reload_config(void)
{
	struct opt_error error;
	struct proxy_config *config;
	uint64_t fixed;

	config = config_read(&fixed, &error);
	if (!config) {
		reload_report(false, "%s; nothing has changed", error.text);
		return;
	}
	pthread_mutex_lock(&state.publishing);
	if (state.running)
		take_config(config, fixed);
	else
		config_unref(config);
	pthread_mutex_unlock(&state.publishing);
}

static void *reload_thread(void *arg)
{
	for (;;) {
		if (sem_wait(&state.reload) < 0)
			continue;
		/* One reading serves all requests that came in the meantime. */
		while (sem_trywait(&state.reload) == 0)
			;
		/* Before the shards run, nobody can take the configuration. */
		while (!state.running)
			sleep_1_ms();
		reload_begins();
		reload_config();
		reload_ends();
	}
	return NULL;
}

/* ---- names ---- */

/* Does the stack have an address of that family to dial from? */
static bool has_family(uint8_t family)
{
	for (unsigned i = 0; i < proxy.net.n_addrs; i++)
		if (proxy.net.addrs[i].family == family)
			return true;
	return false;
}

bool config_dialable(const struct net_addr *addr)
{
	return addr->family && has_family(addr->family) && !is_own(addr);
}

int config_change_pool(config_pool_fn *change, void *arg, int64_t wait_ns,
		       struct pool_change *out)
{
	struct timespec until;
	struct pool *pool = NULL;
	int err;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += wait_ns / OPT_NS_PER_S;
	err = pthread_mutex_clocklock(&state.publishing, CLOCK_MONOTONIC,
				      &until);
	if (err)
		return -EBUSY;
	err = state.running ? change(state.config, state.pool, arg, &pool)
			    : -ESHUTDOWN;
	if (err == 0) {
		out->pool = pool_ref(pool);
		out->taken =
			publish_proxy_config(config_ref(state.config), pool);
	}
	pthread_mutex_unlock(&state.publishing);
	return err;
}

/* A backend that has another address. */
struct move {
	const struct backend *backend;
	const struct net_addr *addr;
};

/* The pool that is current by now may lack the backend. */
static int move_backend(struct proxy_config *config, const struct pool *old,
			void *arg, struct pool **out)
{
	const struct move *move = arg;
	int i = pool_find(old, move->backend);

	if (i < 0)
		return i;
	*out = pool_readdress(old, (unsigned)i, move->addr);
	return *out ? 0 : -ENOMEM;
}

void config_move_backend(const struct backend *backend,
			 const struct net_addr *addr)
{
	struct move move = {backend, addr};
	char text[NET_ADDR_TEXT_MAX];
	struct pool_change done;

	if (config_change_pool(move_backend, &move, OPT_DAY_NS, &done) < 0)
		return;
	pool_unref(done.pool);
	net_log("coronet-proxy: backend %s is at %s", backend->name,
		net_addr_format(addr, text, sizeof(text)));
}

/* ---- life ---- */

int config_open(const struct argp *argp, int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_hangup,
				   .sa_flags = SA_RESTART};
	struct opt_error error;
	int err;

	state.argp = argp;
	state.argc = argc;
	state.argv = argv;
	state.config = config_read(&state.fixed, &error);
	if (!state.config) {
		snprintf(proxy.net.error, sizeof(proxy.net.error), "%s",
			 error.text);
		return -EINVAL;
	}
	state.pool = build_pool(state.config, NULL);
	if (!state.pool)
		return -ENOMEM;
	proxy.first = config_ref(state.config);
	sem_init(&state.reload, 0, 0);
	/* Start before the shards, which may pin this thread to a CPU. */
	err = proxy_start_thread(reload_thread, NULL);
	if (err == 0)
		err = names_open();
	if (err == 0)
		sigaction(SIGHUP, &action, NULL);
	else
		snprintf(proxy.net.error, sizeof(proxy.net.error),
			 "a thread cannot be made: %s", strerror(-err));
	return err;
}

void config_try(void)
{
	struct proxy_config *config;
	struct opt_error error;
	uint64_t fixed;

	if (!proxy.net.user)
		return;
	config = config_read(&fixed, &error);
	if (!config)
		net_log_at(NET_LOG_WARNING,
			   "coronet-proxy: --user %s: a reload would fail: %s",
			   proxy.net.user, error.text);
	config_unref(config);
}

int config_join(struct proxy_shard *shard)
{
	return adopt_config(shard, config_ref(state.config),
			    pool_ref(state.pool));
}

void config_run(void)
{
	state.running = true;
	names_renew();
}

void config_stop(void)
{
	state.running = false;
	pthread_mutex_lock(&state.publishing);
	pthread_mutex_lock(&state.lock);
	pthread_mutex_unlock(&state.lock);
	pthread_mutex_unlock(&state.publishing);
}

/* proxy.first stays: the reload thread, which is never joined, may read it. */
void config_fini(void)
{
	for (unsigned i = 0; proxy.shards && i < proxy.n_shards; i++) {
		config_unref(proxy.shards[i].config);
		pool_unref(proxy.shards[i].pool);
	}
	config_unref(state.config);
	pool_unref(state.pool);
}
