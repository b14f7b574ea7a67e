/*
 * Private to coronet-proxy: definitions that its files share.
 *
 *   coronet_proxy.c         the stack, listeners, statistics, the end
 *   coronet_proxy_config.c  the configuration, and reloads of it
 *   coronet_proxy_names.c   lookups of backends' names
 *   coronet_proxy_health.c  health checks of the backends
 *   coronet_proxy_change.c  changes of the backends by coronet-ctl
 *   coronet_proxy_control.c commands for coronet-ctl
 *   coronet_proxy_metrics.c metrics for Prometheus
 *   coronet_proxy_begin.c   a session until bytes flow in both directions
 *   coronet_proxy_session.c from there to its last byte
 *   coronet_proxy_tls.c     TLS with clients and backends
 *   coronet_proxy_udp.c     sessions of UDP clients
 *
 * Both connections of a session belong to one shard. The state of a shard is in
 * its struct proxy_shard, which its thread alone uses, except where noted
 * there. The state of the program is in struct proxy, constant once the shards
 * run except for atomic fields.
 *
 * Options that a reload may change are in a struct proxy_config. It is
 * constant: a reload makes another and posts it to each shard. A coroutine may
 * find another one after it has blocked, so it keeps no pointer into one
 * meanwhile.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <coronet/net.h>

#include "apps/common/coronet_shutdown.h"
#include "apps/common/counters.h"
#include "apps/common/pending.h"
#include "apps/common/source_rate.h"
#include "apps/proxy/access_log.h"
#include "apps/proxy/backend_queue.h"
#include "apps/proxy/pool.h"
#include "apps/proxy/proxy_opts.h"
#include "apps/proxy/session_limit.h"
#include "apps/proxy/proxy_proto.h"
#include "apps/proxy/steer_opts.h"
#include "apps/proxy/tls_opts.h"

struct proxy_shard;
struct udp_carrier;

/* A listening address and the coroutine that accepts there. */
struct proxy_listener {
	struct proxy_shard *shard;
	struct net_listener *net;
	struct limit_waiter waiter; /* at the limit of clients */
	int number;		    /* of its rate */
	bool tls;
};

/* A shard's counters; other threads read them. */
struct proxy_counters {
	uint64_t sessions;	       /* now */
	uint64_t accepted, over_limit; /* clients; reset at the limit */
	uint64_t no_backend; /* sessions without an available backend */
	uint64_t retries;    /* attempts to connect beyond a session's first */
	uint64_t no_retry;   /* retries that the budget did not allow */
	uint64_t queued;     /* sessions that waited for a backend */
	uint64_t queue_full, queue_timeout;
	uint64_t sticky_hits;	    /* sessions with their client's backend */
	uint64_t sticky_displaced;  /* clients' backends forgotten for others */
	uint64_t denied, over_rate; /* clients */
	uint64_t over_listener; /* new clients beyond their listener's rate */
	uint64_t rate_waits;	/* those that have waited for it */
	uint64_t bad_header;	/* PROXY headers wrong, late or too long */
	uint64_t bad_hello;	/* ClientHellos late, or for no backend */
	uint64_t idle;		/* sessions that moved no byte for too long */
	uint64_t broken;	/* sessions that ended by a reset of one side */
	uint64_t displaced;	/* half-open clients that others displaced */
	uint64_t bytes_to, bytes_from; /* backends */
	uint64_t udp_sessions;	       /* now */
	uint64_t udp_begun, udp_displaced;
	uint64_t udp_to, udp_from; /* datagrams to and from backends */
	uint64_t udp_dropped; /* datagrams: no session, or no room to send */
};

/* Parsed options; constant and reference-counted. */
struct proxy_config {
	_Atomic unsigned refs;
	struct proxy_opts opts;
	struct steer_opts steer;
	struct proxy_rate rates[PROXY_MAX_LISTENS]; /* of those that run */
#if PROXY_TLS
	struct tls_opts tls;
	struct net_tls *tls_server; /* of clients; NULL: none */
	struct net_tls *tls_clients[BACKEND_TLS_KINDS]; /* of backends */
#endif
	struct net_opts net; /* routes and gateways, and the addresses alone */
	struct config_text *texts; /* texts that the options point into */
};

struct proxy_shard {
	struct net_stack *stack;
	unsigned index;
	struct proxy_config *config; /* a reference */
	struct pool *pool;	     /* a reference */
	struct pool_cursor cursor;
	struct retry_budget budget;
	struct queue_shard queue;
	struct proxy_listener listeners[PROXY_MAX_LISTENS + 1];
	unsigned n_listeners;
	uint64_t ids;		       /* sessions that got an ID */
	struct check *checks;	       /* of backends' health */
	struct session *free;	       /* memory kept for later sessions */
	struct pending_list half_open; /* sessions with a partial beginning */
	struct udp_carrier *udp;       /* NULL: no UDP listener */
	struct shutdown shutdown;
	struct limit_shard limit;
	_Alignas(64) struct proxy_counters counters;
};

struct proxy {
	struct net_opts net;
	struct proxy_config *first; /* the options it was started with */
	struct shutdown_plan shutdown;
	struct proxy_shard *shards;
	unsigned n_shards;
	struct session_limit limit;	/* of all shards' sessions */
	struct pending_limit half_open; /* of all shards' half-open ones */
	struct backend_queue queue;
	struct source_rate *rate;
	struct {
		_Alignas(64) _Atomic int64_t full_ns; /* rate_bucket_take() */
	} listener_rates[PROXY_MAX_LISTENS];
	struct sticky *sticky;
	struct line_log *log;	/* NULL: none */
	uint64_t instance;	/* random; a part of the unique IDs */
	_Atomic int64_t say_ns; /* when exhaustion may be logged again */
};

extern struct proxy proxy;

struct session {
	struct proxy_shard *shard;
	struct net_conn *client, *server;
	struct session *next_free;
	struct coro_timer timer;
	struct shutdown_closing closing;
	struct net_watch watch; /* of the client, while `dialer` connects */
	struct coro *dialer;
	int64_t client_ns, server_ns; /* when each last sent or acknowledged */
	int64_t limit_ns;	      /* how long it may be idle; 0: for ever */
	enum access_end limit_end;    /* its end after that time */
	uint32_t client_acked, server_acked; /* up to where, at the last look */
	struct proxy_addrs addrs; /* from the client's PROXY header */
	struct pending pending;	  /* while its beginning is partial */
	struct queue_waiter waiter;
	char *early; /* first bytes, to be sent to the backend; or NULL */
	size_t early_len, early_room;
	uint8_t *tlvs; /* of its PROXY header; or NULL */
	size_t tlvs_len;
	char *server_name;	 /* of TLS; or NULL */
	struct proxy_tls *tls;	 /* of the client; or NULL */
	struct backend *backend; /* counted there; a reference; or NULL */
	uint64_t sticky;	 /* its client in proxy.sticky; 0: none */
	int64_t begin_ns, queue_ns, connect_ns;
	int64_t connected_ns; /* when its backend was connected */
	uint64_t bytes_to, bytes_from, id;
	unsigned retries;
	enum access_end end;
	uint8_t coroutines;
	bool carries, half_closed, failed;
	bool expects_tls; /* a handshake is to come */
	bool header_sent; /* the PROXY header, to the backend */
	bool left;	  /* the client has closed while a backend was dialed */
};

/* ---- coronet_proxy_session.c ---- */

/*
 * Serves a client in coroutines of its own; tls: after a handshake. Owns conn,
 * also if it fails. The caller has counted the client for --max-clients; the
 * end of the session undoes that, but a failure of this call does not. Returns
 * 0 or -ENOMEM.
 */
int session_start(struct proxy_shard *shard, struct net_conn *conn, bool tls);

/* Resets the session's connections; its coroutines notice. */
void session_fail(struct session *s, enum access_end end);

/*
 * From now on the session fails with `end` once it has been idle for limit_ns;
 * 0: never.
 */
void session_watch(struct session *s, int64_t limit_ns, enum access_end end);

/*
 * Counts the rest of a session's bytes, of TCP or UDP, and its end at the
 * backend, whose reference it takes. sticky: its client in proxy.sticky, or 0.
 */
void session_leave_backend(struct backend *backend, uint64_t sticky,
			   uint64_t bytes_to, uint64_t bytes_from);

/*
 * With --sticky, sets wish->kept to the client's backend. Returns the client,
 * or 0. addrs: those of the client; wish->allowed must be set.
 */
uint64_t proxy_sticky_find(const struct proxy_shard *shard,
			   const struct pool *pool,
			   const struct proxy_addrs *addrs,
			   struct pool_wish *wish);

/* Notes that the client (0: none) gets a session with a backend of the pool. */
void proxy_sticky_put(struct proxy_shard *shard, const struct pool *pool,
		      uint64_t client, const struct pool_wish *wish,
		      unsigned index);

/* Resets a client that half_open displaces: a pending_list's displace(). */
void session_displace(struct pending *item);

/* Frees the memory that the shard has kept of ended sessions. */
void session_fini(struct proxy_shard *shard);

/* ---- coronet_proxy_begin.c ---- */

/*
 * Reads the PROXY header and ClientHello of a client if they are expected,
 * connects to a backend and sends the first bytes to it. Returns 0, or a
 * negative errno with s->end set. Called in the session's first coroutine.
 */
int session_begin(struct session *s);

/* Returns true, or false and in *end the reason if a client is refused. */
bool proxy_admits(struct proxy_shard *shard, const struct proxy_addrs *addrs,
		  enum access_end *end);

/* Returns whether a client has to begin with a PROXY header. */
bool proxy_expects_header(const struct proxy_shard *shard,
			  const struct proxy_addrs *addrs);

/* The addresses of a connection: the client is the source. */
void proxy_addrs_of(const struct net_conn *conn, struct proxy_addrs *out);

/* ---- coronet_proxy.c ---- */

/*
 * Counts a new client of a listener (number -1: it has no rate). Returns 0, or
 * the ns until the listener's rate, which all shards share, may allow it.
 */
int64_t proxy_over_rate(const struct proxy_shard *shard, int number);

/* Called when a session of the shard has ended. */
void proxy_session_ended(struct proxy_shard *shard);

/*
 * The sum of all shards' counters, which may be of slightly different moments.
 */
struct proxy_counters proxy_total(void);

/*
 * Called when connecting to a backend has failed with err. Returns whether the
 * cause is local, which is logged.
 */
bool proxy_dial_failed(struct proxy_shard *shard, const struct backend *backend,
		       int err);

/* ---- coronet_proxy_health.c ---- */

/*
 * Called when the shard has got a configuration: starts its checks of backends
 * that are not checked yet. Backends without checks are up. Returns 0 or
 * -ENOMEM.
 */
int health_start(struct proxy_shard *shard);

/* Called when the stack has closed: frees checks that were interrupted. */
void health_fini(struct proxy_shard *shard);

/* ---- coronet_proxy_udp.c ---- */

/*
 * Opens a UDP listener of the shard, before it runs. number: of its rate.
 * Returns 0 or -errno; an
 * address that cannot be used is reported on stderr.
 */
int udp_listen(struct proxy_shard *shard, const struct net_addr *addr,
	       int number);

/* Called when the shard has got a configuration: --udp-timeout may be new. */
void udp_apply_config(struct proxy_shard *shard);

/* From now on no UDP session begins, and idle ones end within a second. */
void udp_drain(struct proxy_shard *shard);

/* Called when the stack has closed: frees what is left. */
void udp_fini(struct proxy_shard *shard);

/* ---- coronet_proxy_control.c, coronet_proxy_metrics.c ---- */

/*
 * Add commands, and metrics and a condition of health, while the stack is open.
 * Return 0 or -errno.
 */
int proxy_control_add(void);
int proxy_metrics_add(void);

/*
 * Begin and end a reload of the configuration; in between, reload_report() sets
 * its result, which is logged and kept for requests. Called by the reloading
 * thread.
 */
void reload_begins(void);
__attribute__((format(printf, 2, 3))) void
reload_report(bool ok, const char *format, ...);
void reload_ends(void);

/* ---- coronet_proxy_config.c ---- */

/*
 * Reads the command line and the files that it names, and starts the threads
 * that read them again and resolve names. argv must stay valid. 0, or -errno
 * with a line in proxy.net.error.
 */
int config_open(const struct argp *argp, int argc, char **argv);

/*
 * Warns if the program has become another user (--user), and that user cannot
 * read what a reload needs. It blocks: called before anything is served.
 */
void config_try(void);

/* Gives the shard the present configuration, on its thread, before it runs. */
int config_join(struct proxy_shard *shard);

/* Called when all shards have joined: from now on changes reach them. */
void config_run(void);

/* Called before the stack closes: no change reaches the shards any more. */
void config_stop(void);

/* Called after the stack has closed. */
void config_fini(void);

/*
 * Makes the configuration be read again, as SIGHUP does; the result is logged.
 * From any thread or signal handler, once the program runs.
 */
void proxy_reload(void);

struct proxy_config *config_ref(struct proxy_config *config);
void config_unref(struct proxy_config *config); /* NULL is ignored */

/*
 * Gets a reference each to the current configuration and pool, for
 * config_unref() and pool_unref(). Returns false if the program is ending. Any
 * thread.
 */
bool config_current(struct proxy_config **config, struct pool **pool);

/* Returns whether the stack can dial an address that is not its own. */
bool config_dialable(const struct net_addr *addr);
/* Converts an address, without its port; family 0: of another family. */
void config_read_sockaddr(const struct sockaddr *from, struct net_addr *out);

/* Refuses backends whose address is the stack's: 0, or -EINVAL with a line. */
int config_refuse_own(const struct proxy_opts *opts, struct opt_error *error);

/*
 * Makes a pool that replaces `old`: 0 with a reference in *out, or -errno. No
 * other change is made meanwhile.
 */
typedef int config_pool_fn(struct proxy_config *config, const struct pool *old,
			   void *arg, struct pool **out);

/* The result of a change. */
struct pool_change {
	struct pool *pool; /* a reference to the pool as it was changed */
	bool taken; /* all shards use it; one that a handler keeps will later */
};

/*
 * Calls `change` and publishes its pool. Called by a thread that may block.
 * Returns 0, the error of `change`, -EBUSY (another change, or a
 * reload, has not ended within wait_ns) or -ESHUTDOWN (the program does not
 * serve).
 */
int config_change_pool(config_pool_fn *change, void *arg, int64_t wait_ns,
		       struct pool_change *out);

/*
 * Publishes a pool in which the backend has another address, and logs that.
 * Called by a thread that may block.
 */
void config_move_backend(const struct backend *backend,
			 const struct net_addr *addr);

/*
 * Starts a thread that is never joined and takes no signals. Returns 0 or
 * -errno.
 */
int proxy_start_thread(void *(*fn)(void *arg), void *arg);

/* ---- coronet_proxy_change.c ---- */

/*
 * Change the list of backends on all shards: add one as --to does, remove one,
 * or set the weight of one (0: no new sessions). They return 0, or -errno with
 * a line in error->text; then nothing has changed. out->pool is the caller's,
 * for pool_unref(). name gets the name of the backend that was added, sessions
 * the number of those that go on. Called by a thread that may block.
 */
int change_add(const char *text, char name[BACKEND_NAME_MAX],
	       struct pool_change *out, struct opt_error *error);
int change_remove(const char *name, unsigned *sessions, struct pool_change *out,
		  struct opt_error *error);
int change_weight(const char *name, unsigned weight, struct pool_change *out,
		  struct opt_error *error);

/*
 * Logs which of these changes a reload undoes. before: the options that they
 * have changed; old: the pool with the changes; new: the one that follows.
 * Returns how many.
 */
unsigned change_log_undone(const struct proxy_opts *before,
			   const struct pool *old, const struct pool *new);

/* ---- coronet_proxy_names.c ---- */

/* Starts the thread that resolves names. Returns 0 or -errno. */
int names_open(void);

/* Makes that thread resolve every name now. Any thread. */
void names_renew(void);

/* Makes it resolve those that it has not resolved yet. Any thread. */
void names_look(void);

/* ---- coronet_proxy_config.c ---- */

/*
 * A reference to the present pool, for reading its backends, for pool_unref().
 * From any thread; NULL while the program does not run.
 */
struct pool *proxy_pool_ref(void);

/*
 * Sets the operator's state of a backend: with BACKEND_DRAIN and BACKEND_DOWN
 * it gets no new sessions, and its present ones go on; with BACKEND_READY it
 * gets sessions again, with a slow start. The state holds until the next such
 * call or a reload that changes its state= in the configuration. Any thread may
 * call this once the program runs; it blocks only for a lock that is held for a
 * few instructions. Returns 0 or -ENOENT: there is no backend of that name.
 */
int proxy_backend_set_state(const char *name, enum backend_state state);
