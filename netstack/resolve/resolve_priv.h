/*
 * The parts of a shard's resolver. All of its state is on the heap, since
 * c-ares and several coroutines use it.
 */
#pragma once

#include <coronet/coro_chan.h>
#include <coronet/coro_sync.h>
#include <coronet/net_udp.h>

#include <sys/stat.h>

/* Debian 12 has only functions that later versions call deprecated. */
#define CARES_NO_DEPRECATED
#include <ares.h>

#include "netstack/program/log.h"
#include "netstack/resolve/resolve.h"
#include "netstack/shard_var.h"
#include "netstack/state.h"

#define NET_NAME_BYTES 254 /* RFC 1035 2.3.4: 253 characters, and the NUL */

/* A piece of a text, not NUL-terminated. */
struct net_word {
	const char *text;
	size_t len;
};

#define TTL_MAX_S	   86400
#define NEGATIVE_TTL_MAX_S 3600 /* RFC 2308 5 */
#define FAILURE_TTL_S	   1	/* RFC 9520 3.2 */

/* ---- cache.c ---- */

/* The addresses of one family of a name, or the query for them. */
struct net_name {
	struct net_name *hash_next;
	struct net_name *older, *newer; /* by use */
	struct coro_sem answered;
	uint64_t hash;
	int64_t expires_ns;
	unsigned refs;	  /* calls that wait for it, or read it */
	unsigned answers; /* answers so far; a call waits for the next */
	int16_t err;	  /* 0, or the error of net_resolve() */
	uint8_t family;
	uint8_t n;  /* addresses */
	bool asked; /* a query is open */
	uint8_t addrs[NET_RESOLVE_ADDRS][16];
	char text[]; /* in lower case, NUL-terminated */
};
static_assert(sizeof(struct net_name) + NET_NAME_BYTES <= 700, "as documented");

#define NET_NAME_BUCKETS 512u

struct net_name_cache {
	struct net_name *buckets[NET_NAME_BUCKETS];
	struct net_name *oldest, *newest;
	unsigned n;
};

/*
 * Finds the entry of a name and family, or makes one, and takes a reference.
 * Returns 0, -ENOMEM or -ENOBUFS (every entry is in use).
 */
int net_name_get(struct net_name_cache *cache, const char *text, uint8_t family,
		 struct net_name **out);
/* Drops the reference. arg: a struct net_name (for coro_cleanup_push()). */
void net_name_put(void *arg);
/*
 * Stores how a query has ended; the caller has filled in the addresses. Wakes
 * all that wait for it.
 */
void net_name_answer(struct net_name *name, int err, int64_t ttl_s);
void net_name_cache_clear(struct net_name_cache *cache);

/* ---- file.c ---- */

/* A small file in memory. */
struct net_file {
	char *text; /* owned; NULL: there is no such file, or no memory */
	size_t len;
	struct timespec changed;
	int64_t size;
	int64_t look_ns; /* when to check the file again */
};

/*
 * Reads a regular file if it is new or its time or size has changed, which is
 * checked at most once a second. Keeps the whole lines within its first `max`
 * bytes. Blocks the thread. Returns whether the text has changed.
 */
bool net_file_refresh(struct net_file *file, const char *path, size_t max);
void net_file_clear(struct net_file *file);
/*
 * Reads the next line of the text between *at and end; false: there is none.
 */
bool net_file_line(const char **at, const char *end, struct net_word *line);
/* Reads the next word of a line; false: its end, or a comment. */
bool net_file_word(struct net_word *line, struct net_word *word);
/* Reads an address without a port. Returns false if the word is none. */
bool net_word_addr(const struct net_word *word, struct net_addr *out);

/* ---- conf.c ---- */

/*
 * Finds at most n addresses of a name (in lower case) and family (0: both) in
 * hosts(5). Returns how many.
 */
unsigned net_hosts_find(struct net_file *hosts, const char *name,
			uint8_t family, struct net_addr *out, unsigned n);

#define NET_SEARCH_MAX 8u
#define NET_NDOTS_MAX  15u

struct net_resolv_conf {
	struct net_file file, systemds;
	struct net_addr servers[NET_MAX_RESOLVERS]; /* without loopback ones */
	unsigned n_servers;
	char search[NET_SEARCH_MAX][NET_NAME_BYTES];
	unsigned n_search, ndots;
};

/* Reads resolv.conf(5) if it has changed, and returns whether it has. */
bool net_conf_refresh(struct net_resolv_conf *conf);
void net_conf_clear(struct net_resolv_conf *conf);
/*
 * Copies a host name in lower case, without a final dot. Returns its length; 0:
 * it is not a valid name.
 */
size_t net_name_copy(const char *text, size_t len, char out[NET_NAME_BYTES]);

/* ---- wire.c ---- */

/* One for each query, if c-ares uses a port once; and those of TCP. */
#define NET_DNS_SOCKETS	       (NET_RESOLVE_QUERIES + 32u)
#define NET_DNS_DATAGRAM_BYTES 4096u /* of a response */

/* A socket of c-ares; its number is its index plus 1. */
struct net_dns_socket {
	struct net_resolver *resolver;
	struct net_udp *udp;	/* UDP; or NULL */
	struct net_conn *conn;	/* TCP, once it is connected; or NULL */
	struct coro *dialer;	/* the coroutine that connects TCP; or NULL */
	struct net_addr server; /* the peer of TCP */
	struct net_udp_watch udp_watch;
	struct net_watch watch;
	bool used, stream, reads, writes;
	bool gone;   /* c-ares has closed it while it connects */
	int16_t err; /* negative errno of the handshake; or 0 */
};

extern const struct ares_socket_functions net_dns_functions;
/* Notes the events that c-ares waits for on a socket; data: the resolver. */
void net_dns_interest(void *data, ares_socket_t fd, int reads, int writes);
/* Fills items with the sockets that c-ares waits for; returns how many. */
unsigned net_dns_items(struct net_resolver *resolver,
		       struct net_poll_item items[NET_DNS_SOCKETS]);
/* Calls c-ares for the sockets that are ready. */
void net_dns_process(struct net_resolver *resolver);

/* ---- query.c ---- */

struct net_resolver {
	ares_channel channel;
	bool has_channel, driven;
	bool changes_servers;
	unsigned queries;	/* open queries */
	struct coro_chan *wake; /* wakes the coroutine that drives c-ares */
	struct net_dns_socket sockets[NET_DNS_SOCKETS];
	struct net_poll_item items[NET_DNS_SOCKETS + 1]; /* while it waits */
	struct net_name_cache cache;
	struct net_file hosts;
	struct net_resolv_conf conf;
	struct net_addr servers[NET_MAX_RESOLVERS]; /* in use */
	unsigned n_servers;
	unsigned leased_turn; /* of net_leased_servers() */
};

/* Returns the shard's resolver, which it makes if necessary: 0 or -ENOMEM. */
int net_resolver_get(struct net_resolver **out);
/*
 * Called before a query: opens c-ares if necessary and reads changed files. If
 * there are other servers now, they are asked what the former ones have not
 * answered. Returns 0, -ENOMEM, -EHOSTUNREACH (there is no server) or
 * -ECANCELED.
 */
int net_resolver_refresh(struct net_resolver *resolver);
/*
 * Starts a query for a name; its end, which may come at once, calls
 * net_name_answer(). Returns 0, or without a query -ENOBUFS, -ENOMEM or
 * -ECANCELED.
 */
int net_query_start(struct net_resolver *resolver, struct net_name *name);
/* Wakes the coroutine that drives c-ares. */
void net_query_wake(struct net_resolver *resolver);
/*
 * The TTL of a negative response (RFC 2308 5), in seconds; 0: it has no SOA.
 * The bytes are untrusted.
 */
int64_t net_negative_ttl_s(const uint8_t *bytes, size_t len);

/* ---- resolve.c ---- */

/*
 * Returns whether to look up addresses of `family` for a caller that requests
 * `asked`; 0 means the families of which the stack has an address that is not
 * link-local.
 */
bool net_resolve_wants(uint8_t family, uint8_t asked);
/* The more specific error of two lookups that found no address. */
int net_resolve_error(int a, int b);
