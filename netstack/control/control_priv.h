/*
 * Private to control/: requests to shards, commands and their answers. Unless a
 * comment says otherwise, calls are for the control thread, which may block.
 */
#pragma once

#include "netstack/control/control.h"

#include <cjson/cJSON.h>
#include <semaphore.h>
#include <stdatomic.h>

/* Bytes of an answer; longer ones are split into pages. */
#define NET_CONTROL_MAX_OUTPUT (128u << 10)
#define NET_CONTROL_MAX_INPUT  1024u

/* ---- ask.c: asking a shard ---- */
/*
 * Runs on the shard's thread outside any coroutine, one slice per round, and
 * must be short. Returns true after the last slice. data: that of the net_ask.
 */
typedef bool (*net_ask_step)(void *data);

struct net_ask {
	_Atomic unsigned refs;
	_Atomic bool abandoned;
	sem_t done;
	_Atomic unsigned slices; /* slices run so far, one a round */
	int err;
	net_ask_step step;
	_Alignas(16) char data[];
};

/*
 * Makes a net_ask with `bytes` of zeroed data; NULL: no memory. net_ask_put()
 * frees it.
 */
struct net_ask *net_ask_new(net_ask_step step, size_t bytes);
void net_ask_put(struct net_ask *ask);
/*
 * Blocks until the shard has run the last slice; called once for each net_ask.
 * Returns 0, -ETIMEDOUT (not done after two seconds; the shard may still write
 * the data, so it must not be read), -EAGAIN (the program is starting, or too
 * many functions are posted), -ESHUTDOWN or -EINVAL (no such shard).
 */
int net_ask_run(struct net_ask *ask, unsigned shard);
/* Returns how many shards take requests; 0: none yet. */
unsigned net_ask_shards(void);
/* Returns whether the program has stopped to take them. */
bool net_ask_is_shut(void);
/* A change to the tables of every shard; what changes follows it. */
struct net_change {
	bool add; /* otherwise it removes */
	int err;  /* set by the step: 0 or -errno */
};
/*
 * Changes the shards' tables one after another, shard 0 last. The step gets a
 * copy of *change and the `bytes` in all that begin with it; these are the last
 * step's on return. If a shard fails, those before it take the change back.
 * Returns 0, the step's error or -ENOMEM with *unasked -1, or an error of
 * net_ask_run() with *unasked set to its shard.
 */
int net_ask_change(net_ask_step step, struct net_change *change, size_t bytes,
		   int *unasked);
void net_ask_open(unsigned n_shards);

/* ---- commands.c ---- */
/*
 * Answers a request, "/name" or "/name,params". Returns the answer's text,
 * owned by the caller; NULL: no memory.
 */
char *net_control_answer(const char *request);
/* The server's greeting: version, process, largest answer in bytes. */
char *net_control_greeting(void);

struct net_command {
	const char *name, *help;
	/* Returns the answer, owned by the caller. NULL: no memory. */
	cJSON *(*fn)(const char *params);
};
extern const struct net_command net_conn_commands[], net_udp_commands[],
	net_table_commands[], net_link_commands[], net_exception_commands[],
	net_log_commands[], net_server_commands[], net_capture_commands[],
	net_trace_commands[], net_ring_commands[], net_addr_commands[],
	net_route_commands[];
/* Removes the commands that programs have added. */
void net_commands_forget(void);

/* Makes {"error": "..."}; the text says what to do. */
__attribute__((format(printf, 1, 2))) cJSON *
net_control_error(const char *format, ...);
/* Writes why a shard's net_ask_run() returned err, and what to do. */
void net_control_ask_reason(unsigned shard, int err, char *text, size_t len);
/* Makes {"error": "..."} with that text. */
cJSON *net_control_ask_error(unsigned shard, int err);
/* Adds a number with all its digits: cJSON prints a double that ends in zeros
 * with an exponent. */
void net_control_number(cJSON *to, const char *name, uint64_t n);
/*
 * Replaces bytes that are no UTF-8 by '?' in a whole answer, since names of
 * files and devices may have any bytes. Returns text, which may be NULL.
 */
char *net_control_make_utf8(char *text);
/* Adds an address as text. */
void net_control_addr(cJSON *to, const char *name, const struct net_addr *addr);
/*
 * Adds the cursor where the next page of a listing begins: at `at` of the
 * shard, or at the next shard if this one is done. Adds none after the last.
 */
void net_control_next(cJSON *to, unsigned shard, bool done, uint64_t at);
/* Returns the ns from glue_now_ns() to the time since 1970. */
int64_t net_control_wall_offset_ns(void);
/* Returns `before`, or `now` if they differ by more than 1 ms, so that times of
 * successive events do not decrease. */
int64_t net_control_steady_offset(int64_t before, int64_t now);

/* ---- id.c: IDs of connections, for operators; on the shard ---- */
#define NET_ID_TEXT_MAX 48
/* Writes the ID of a connection of this shard, and marks its ID as shown. */
void net_id_format(struct net_conn *conn, char *text, size_t len);
/* The shard in an ID, or -EINVAL: it is no ID. Any thread. */
int net_id_shard(const char *text);
/* The connection of an ID on this shard; NULL: it has ended. */
struct net_conn *net_id_find(const char *text);

/* ---- conns.c ---- */
/* Time since the connection began; -1: unknown. On the shard's thread. */
int64_t net_conn_age_ns(const struct net_conn *conn);

/* ---- trace.c ---- */
/*
 * The client whose request this thread answers: a number that no other client
 * of the socket has had.
 */
extern _Thread_local uint64_t net_control_client
	__attribute__((visibility("hidden")));
/* A client has disconnected: ends its watches. */
void net_traces_client_gone(uint64_t client);
/*
 * Ends watches that had no request for a minute. now_ms: CLOCK_MONOTONIC.
 * Returns after how many ms to call it again; -1: there is no watch.
 */
int net_traces_expire(int64_t now_ms);
void net_traces_forget(void); /* the program ends */

/* ---- rings.c ---- */
void net_rings_begin(const struct net_opts *opts);

/* ---- filter.c ---- */
/* A filter of connections: every field that is not zero must match. */
struct net_filter {
	struct net_addr peer; /* with prefix_len bits */
	uint16_t port;	      /* the local port or the peer's */
	int state;	      /* enum net_tcp_state + 1 */
	char listener[64];    /* prefix of its handler's name */
	unsigned shard;	      /* where the listing continues */
	uint64_t at;
};
/*
 * Reads "key=value,...": peer=ADDRESS[/BITS], port=N, state=NAME, cursor=S:N.
 * Returns NULL, or an error that the caller frees by cJSON_Delete().
 */
cJSON *net_filter_parse(const char *params, struct net_filter *out);
bool net_filter_takes(const struct net_filter *filter,
		      const struct net_conn *conn);
const char *net_state_name(enum net_tcp_state state);

/* ---- links.c ---- */
struct net_metrics;
/* Adds the links' state to the page; on the control thread. */
void net_links_metrics(struct net_metrics *page);

/* ---- health.c ---- */
/*
 * Returns whether the program serves: it runs, its own conditions hold, and
 * every shard answers. Otherwise writes one line, without newline, that says
 * why not.
 */
bool net_health(char *why, size_t len);
void net_health_forget(void);

/* ---- metrics.c, http.c ---- */
/* The page for Prometheus, owned by the caller; NULL: no memory. */
char *net_metrics_page(void);
void net_metrics_forget(void);
/*
 * Answers the bytes that an HTTP client has sent. Returns NULL if the request
 * is incomplete, or the whole response of *len bytes, owned by the caller.
 */
char *net_http_answer(const char *request, size_t request_len, size_t *len);
#define NET_HTTP_MAX_INPUT 4096u
#define NET_HTTP_CLIENTS   16u
#define NET_HTTP_MS	   5000 /* from a client's first byte to its last */

/* ---- scrape.c: the page on the stack's own network ---- */
void net_scrape_begin(const struct net_opts *opts);
/* Returns whether an address is one of opts->addrs. */
bool net_scrape_is_own(const struct net_addr *at);
/*
 * Returns whether the stack has the address now, or an error of net_ask_run().
 * On the control thread, while the shards run.
 */
int net_scrape_is_own_now(const struct net_addr *at);
/*
 * Listens at opts->metrics on every shard, before they run. Returns 0, or an
 * error of net_listen() with opts->error set.
 */
int net_scrape_open(struct net_opts *opts, unsigned n_shards);
/*
 * Moves the page to one of the stack's addresses. before: its address so far,
 * if that is the stack's; otherwise NULL. On the control thread, while the
 * shards run. Returns 0, or an error of net_listen(), net_listener_serve() or
 * net_ask_run() with *shard set to the shard where it occurred; the page then
 * stays at its old address.
 */
int net_scrape_move(const struct net_addr *at, const struct net_addr *before,
		    unsigned *shard);
/* Closes the page's listeners. Returns 0, or as net_scrape_move(). */
int net_scrape_shut(unsigned *shard);

/* ---- server.c ---- */
int64_t net_control_now_ms(void); /* CLOCK_MONOTONIC */
/*
 * net_http_answer() under the lock of the control thread's requests, so that
 * two threads never call functions that programs have added at the same time.
 */
char *net_http_answer_alone(const char *request, size_t request_len,
			    size_t *len);

/* ---- socket.c ---- */
/* The control socket's file, to remove it later. */
struct net_socket {
	int fd; /* -1: none */
	char path[108];
	struct net_socket_file {
		uint64_t dev, ino;
		int64_t born_ns; /* since inode numbers are reused at once */
	} file;
};
/*
 * Listens at a path, with mode 0600; replaces a socket that a program has left
 * behind. Returns 0, or -errno with a line in err: -EADDRINUSE (a program
 * answers there), -ENAMETOOLONG, -EEXIST (the file is no socket), or an error
 * of the kernel.
 */
int net_socket_open(const char *path, struct net_socket *out, char *err,
		    size_t err_len);
/* Removes the file, if it is still this socket's. */
void net_socket_close(struct net_socket *socket);
