/*
 * Private to epoll-proxy: definitions that its files share.
 *
 * epoll_proxy.c has the threads, their listeners and the end,
 * epoll_proxy_session.c a client's connection, epoll_proxy_check.c the
 * backends' health. A worker is one thread with everything it needs: listeners
 * (SO_REUSEPORT), epoll set, table of backends, sessions; workers share nothing
 * that they write. Each object that epoll events point to begins with a struct
 * source.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "apps/common/epoll_threads.h"
#include "apps/proxy/balance.h"
#include "apps/proxy/proxy_opts.h"
#include "apps/proxy/proxy_proto.h"
#include "apps/proxy/sources.h"

#define BUF_SIZE (128u << 10)

enum source_kind {
	SOURCE_DRAIN,
	SOURCE_LISTENER,
	SOURCE_CLIENT,
	SOURCE_SERVER,
	SOURCE_CHECK
};

struct source {
	enum source_kind kind;
	int fd; /* -1: none */
};

/* A session's connection to one of its two peers. */
struct side {
	struct source source; /* first */
	bool readable;	      /* more may be readable without a new event */
	bool bulk;	      /* it fills buffers: spliced, not copied */
	bool hung_up;	      /* the end may follow a short read */
	bool eof;	      /* the peer has finished sending */
	bool shut;	      /* we have finished sending */
	uint32_t from, to;    /* kept[from] to kept[to - 1] */
	char *kept; /* bytes for the other side's peer; owned; or NULL */
};

enum session_state {
	SESSION_HEADER,	    /* waits for the client's PROXY header */
	SESSION_CONNECTING, /* waits for the backend */
	SESSION_CARRYING,
	SESSION_STATES
};

struct session {
	struct side client, server;
	enum session_state state;
	bool dead, again;
	int backend; /* -1: none counted */
	uint64_t tried;
	int64_t due_ns;	   /* when it is checked next */
	int64_t active_ns; /* when a byte moved last */
	int64_t unacked;   /* bytes of both peers, at the last check */
	struct source_key source;
	struct proxy_addrs addrs;
	struct session *next, *prev; /* in the list of its state, or `dead` */
	struct session *next_again;
};

/* Sessions of a state, in the order of due_ns. */
struct session_list {
	struct session *first, *last;
};

struct check {
	struct source source; /* first */
	int backend;
	int64_t due_ns; /* the next check, or the timeout of this one */
};

struct proxy_counters {
	uint64_t accepted, over_limit, no_backend, retries, bad_header, idle,
		broken, displaced, over_source, bytes_to, bytes_from;
};

struct worker {
	pthread_t thread;
	int index, epoll;
	int pipe[2]; /* for splice(2), empty between calls; -1: none */
	struct source drain;
	struct source listeners[PROXY_MAX_LISTENS + 1];
	unsigned n_listeners;
	bool accepting, draining;
	int64_t now_ns,
		retry_ns; /* accepting is off until then; 0: until room */
	int64_t say_ns;	  /* when exhaustion may be logged again */
	unsigned sessions, max_sessions;
	unsigned headers, max_headers; /* sessions in SESSION_HEADER */
	unsigned max_source;
	struct sources sources;
	struct session_list lists[SESSION_STATES];
	struct session *again, *dead;
	struct balance balance;
	struct check checks[BALANCE_MAX];
	struct proxy_counters counters;
	char buf[BUF_SIZE];
};

struct config {
	struct proxy_opts opts;
	struct epoll_threads threads;
	int64_t stats_ns;
};

extern struct config config;

/* ---- epoll_proxy.c ---- */
void worker_set_accepting(struct worker *w, bool on);
/* Replaces the pipe by an empty one, or by none if that fails. */
void worker_new_pipe(struct worker *w);
/* Starts to connect to a backend. Returns the socket, or -errno. */
int worker_connect(int backend);

/* ---- epoll_proxy_session.c ---- */
void session_start(struct worker *w, int fd, struct source_key source);
/* Handles epoll events of one side of a session. */
void session_event(struct worker *w, struct side *side, uint32_t events);
void session_fail(struct worker *w, struct session *s);
/*
 * Continues sessions that stopped for fairness, ends those whose time is over,
 * and frees those that have ended.
 */
void sessions_go_on(struct worker *w);
/* When the next session has to be checked; INT64_MAX: never. */
int64_t sessions_due_ns(const struct worker *w);

/* ---- epoll_proxy_check.c ---- */
/* Called when worker_connect() has failed; logs err if the cause is local. */
void worker_connect_failed(struct worker *w, int backend, int err);
void checks_start(struct worker *w);
void checks_run(struct worker *w);
int64_t checks_due_ns(const struct worker *w);
void check_event(struct worker *w, struct check *check);
void checks_stop(struct worker *w);
