/*
 * Private to control/: asking shards, commands and their answers.
 */
#pragma once

#include "netstack/control/control.h"

#include <cjson/cJSON.h>
#include <semaphore.h>
#include <stdatomic.h>

/* Bytes of an answer; what is longer is told in pages. */
#define NET_CONTROL_MAX_OUTPUT (128u << 10)
#define NET_CONTROL_MAX_INPUT  1024u

/* ---- ask.c: asking a shard ---- */
/*
 * Runs on the shard's thread, a slice a round, outside any coroutine: must be
 * short. True: that was the last. data is the memory that came with the ask.
 */
typedef bool (*net_ask_step)(void *data);

struct net_ask {
	_Atomic unsigned refs;
	_Atomic bool abandoned;
	sem_t done;
	_Atomic unsigned slices; /* rounds that it took */
	int err;
	net_ask_step step;
	_Alignas(16) char data[];
};

/* Zeroed data of so many bytes; NULL: no memory. net_ask_put() frees it. */
struct net_ask *net_ask_new(net_ask_step step, size_t bytes);
void net_ask_put(struct net_ask *ask);
/*
 * Blocks until the shard has taken the last step; once for each ask. Returns 0,
 * -ETIMEDOUT (it has not for two seconds; it may still, so the data is not to
 * be looked at), -EAGAIN (the program is starting, or too much is posted),
 * -ESHUTDOWN, -EINVAL (no such shard).
 */
int net_ask_run(struct net_ask *ask, unsigned shard);
/* How many shards there are to ask; 0: none yet. */
unsigned net_ask_shards(void);
void net_ask_open(unsigned n_shards);
void net_ask_shut(void); /* who waits in net_ask_run() returns soon */

/* ---- commands.c ---- */
/*
 * Answers a request, "/name" or "/name,params", as text that is the caller's to
 * free; NULL: no memory.
 */
char *net_control_answer(const char *request);
/* What the server says first: version, process, bytes of an answer at most. */
char *net_control_greeting(void);

struct net_command {
	const char *name, *help;
	/* What the answer holds; owned by the caller. NULL: no memory. */
	cJSON *(*fn)(const char *params);
};
extern const struct net_command net_conn_commands[], net_table_commands[],
	net_link_commands[], net_exception_commands[], net_log_commands[],
	net_server_commands[], net_capture_commands[], net_trace_commands[],
	net_ring_commands[];
/* What programs have added is forgotten. */
void net_commands_forget(void);

/* {"error": "..."}: says what to do. */
__attribute__((format(printf, 1, 2))) cJSON *
net_control_error(const char *format, ...);
/* That of a shard that was asked in vain. */
cJSON *net_control_ask_error(unsigned shard, int err);
/* Adds a number; cJSON has doubles, exact up to 2^53. */
void net_control_number(cJSON *to, const char *name, uint64_t n);

/* ---- id.c: names of connections that are safe against reuse ---- */
#define NET_ID_TEXT_MAX 48
/* Of a connection of this shard, which is marked as listed. */
void net_id_format(struct net_conn *conn, char *text, size_t len);
/* Reads the shard of one; -EINVAL: it is none. */
int net_id_shard(const char *text);
/* The connection on this shard; NULL: it has gone. */
struct net_conn *net_id_find(const char *text);

/* ---- conns.c ---- */
/* -1: not known. On the shard's thread. */
int64_t net_conn_age_ns(const struct net_conn *conn);

/* ---- trace.c ---- */
/* Whose request it is that this thread answers: a number that no other client
 * of the socket has had. */
extern _Thread_local uint64_t net_control_client
	__attribute__((visibility("hidden")));
/* It has gone, and what it watched is watched no more. */
void net_traces_client_gone(uint64_t client);
/* Ends what nobody has asked for in a minute, now in ms of CLOCK_MONOTONIC; ms
 * until it is to be called again, -1: not before something is watched. */
int net_traces_expire(int64_t now_ms);
void net_traces_forget(void); /* the program ends */

/* ---- rings.c ---- */
void net_rings_begin(const struct net_opts *opts);

/* ---- filter.c ---- */
/* Which connections are wanted: all that is not zero must be so. */
struct net_filter {
	struct net_addr peer; /* with prefix_len bits */
	uint16_t port;	      /* ours or the peer's */
	int state;	      /* enum net_tcp_state + 1 */
	char listener[64];    /* its handler's name begins so */
	unsigned shard;	      /* where to go on */
	uint64_t at;
};
/*
 * Reads "key=value,...": peer=ADDRESS[/BITS], port=N, state=NAME, cursor=S:N.
 * NULL, or what is wrong with it: the caller's to free by cJSON_Delete().
 */
cJSON *net_filter_parse(const char *params, struct net_filter *out);
bool net_filter_takes(const struct net_filter *filter,
		      const struct net_conn *conn);
const char *net_state_name(enum net_tcp_state state);

/* ---- links.c ---- */
struct net_metrics;
/* Adds the links' state to the page; on the control thread. */
void net_links_metrics(struct net_metrics *page);

/* ---- metrics.c, http.c ---- */
/* The page for Prometheus, the caller's to free; NULL: no memory. */
char *net_metrics_page(void);
void net_metrics_forget(void);
/*
 * Answers what an HTTP client has sent. Returns NULL (more has to come) or the
 * whole answer, *len bytes that are the caller's to free.
 */
char *net_http_answer(const char *request, size_t request_len, size_t *len);
#define NET_HTTP_MAX_INPUT 4096u
#define NET_HTTP_CLIENTS   16u
#define NET_HTTP_MS	   5000 /* from a client's first byte to its last */

/* ---- scrape.c: the page on the stack's own network ---- */
void net_scrape_begin(const struct net_opts *opts);
/* Whether the stack itself has an address. */
bool net_scrape_is_ours(const struct net_addr *at);
/*
 * Listens there on every shard, before they run. Returns 0, or -errno with
 * opts->error set, as of net_listen().
 */
int net_scrape_open(struct net_opts *opts, unsigned n_shards);
/*
 * Moves the page to one of the stack's addresses; before: that of the stack
 * where it was, NULL: none. On the control thread, while the shards run.
 * Returns 0, or -errno, with *shard set to the one that it is of: as
 * net_listen(), net_listener_serve() and net_ask_run(). The page is then where
 * it was.
 */
int net_scrape_move(const struct net_addr *at, const struct net_addr *before,
		    unsigned *shard);
/* Nobody listens for it any more. Errors as net_ask_run()'s. */
int net_scrape_shut(unsigned *shard);

/* ---- server.c ---- */
/* net_http_answer() while the control thread answers nobody: what programs have
 * added is never called by two threads at a time. */
char *net_http_answer_alone(const char *request, size_t request_len,
			    size_t *len);

/* ---- socket.c ---- */
/* What the control socket is, to remove it later. */
struct net_socket {
	int fd; /* -1: none */
	char path[108];
	struct net_socket_file {
		uint64_t dev, ino;
		int64_t born_ns; /* inode numbers are used again at once */
	} file;
};
/*
 * Listens at a path that nobody else has, with mode 0600; a file that another
 * program has left behind gives way. Returns 0, or -errno with a line in err:
 * -EADDRINUSE (a program answers there), -ENAMETOOLONG, -EEXIST (the file is no
 * socket), and what the kernel says.
 */
int net_socket_open(const char *path, struct net_socket *out, char *err,
		    size_t err_len);
/* Removes the file, if it is still ours. */
void net_socket_close(struct net_socket *socket);
