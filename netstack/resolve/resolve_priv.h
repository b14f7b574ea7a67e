/*
 * The parts of a shard's resolver. All of it lies on the heap, since c-ares and
 * several coroutines use it.
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

/* What is known of one family of a name, or being asked. */
struct net_name {
	struct net_name *hash_next;
	struct net_name *older, *newer; /* by use */
	struct coro_sem answered;
	uint64_t hash;
	int64_t expires_ns;
	unsigned refs;	  /* calls that wait, or read */
	unsigned answers; /* how many came: a call waits for the next */
	int16_t err;	  /* 0, or the error of net_resolve() */
	uint8_t family;
	uint8_t n; /* addresses */
	bool asked;
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
/* Drops the reference. A cleanup of coroutines: arg is a struct net_name. */
void net_name_put(void *arg);
/* Stores the answer that a query has found, and wakes all that wait for it. */
void net_name_answer(struct net_name *name, int err, int64_t ttl_s);
void net_name_cache_clear(struct net_name_cache *cache);

/* ---- file.c ---- */

/* A small file in memory. */
struct net_file {
	char *text; /* owned; NULL: there is no such file, or no memory */
	size_t len;
	struct timespec changed;
	int64_t size;
	int64_t look_ns; /* when its time is looked at again */
};

/*
 * Reads a regular file again, if it was not read before or its time or size has
 * changed, which is looked at once a second at most: its first `max` bytes, and
 * of these whole lines. Returns whether the text is another one.
 */
bool net_file_refresh(struct net_file *file, const char *path, size_t max);
void net_file_clear(struct net_file *file);
/*
 * Takes the next line of the text between *at and end; false: there is none.
 */
bool net_file_line(const char **at, const char *end, struct net_word *line);
/* Takes the next word of a line; false: its end, or a comment. */
bool net_file_word(struct net_word *line, struct net_word *word);
/* Reads a word that is an address without a port. */
bool net_word_addr(const struct net_word *word, struct net_addr *out);

/* ---- conf.c ---- */

/*
 * Finds the addresses of a name in lower case, of a family (0: both), n at
 * most. Returns how many.
 */
unsigned net_hosts_find(struct net_file *hosts, const char *name,
			uint8_t family, struct net_addr *out, unsigned n);

#define NET_SEARCH_MAX 8u
#define NET_NDOTS_MAX  15u

struct net_resolv_conf {
	struct net_file file, systemds;
	struct net_addr servers[NET_MAX_RESOLVERS]; /* none is a loopback's */
	unsigned n_servers;
	char search[NET_SEARCH_MAX][NET_NAME_BYTES];
	unsigned n_search, ndots;
};

/* Reads resolv.conf(5) if it has changed. Returns whether it has. */
bool net_conf_refresh(struct net_resolv_conf *conf);
void net_conf_clear(struct net_resolv_conf *conf);
/*
 * Copies a host's name in lower case and without the dot at its end. Returns
 * its length, 0 if it is none.
 */
size_t net_name_copy(const char *text, size_t len, char out[NET_NAME_BYTES]);

/* ---- wire.c ---- */

#define NET_DNS_SOCKETS	       32u
#define NET_DNS_DATAGRAM_BYTES 4096u /* of a response */

/* A socket of c-ares; its number is its index plus 1. */
struct net_dns_socket {
	struct net_resolver *resolver;
	struct net_udp *udp;	/* UDP; or NULL */
	struct net_conn *conn;	/* TCP that is connected; or NULL */
	struct coro *dialer;	/* TCP that connects, in this coroutine */
	struct net_addr server; /* that it connects to */
	struct net_udp_watch watch;
	bool used, stream, reads, writes;
	bool gone;   /* c-ares has closed it while it connects */
	int16_t err; /* of the handshake */
};

extern const struct ares_socket_functions net_dns_functions;
/* Notes what c-ares waits for on a socket; data: the resolver. */
void net_dns_interest(void *data, ares_socket_t fd, int reads, int writes);
/* Fills items with the sockets that c-ares waits for; returns how many. */
unsigned net_dns_items(struct net_resolver *resolver,
		       struct net_poll_item items[NET_DNS_SOCKETS]);
/* Has c-ares work on the sockets that are ready. */
void net_dns_process(struct net_resolver *resolver);

/* ---- query.c ---- */

struct net_resolver {
	ares_channel channel;
	bool has_channel, driven;
	unsigned queries;	/* open */
	struct coro_chan *wake; /* for the coroutine that drives */
	struct net_dns_socket sockets[NET_DNS_SOCKETS];
	struct net_name_cache cache;
	struct net_file hosts;
	struct net_resolv_conf conf;
	struct net_addr servers[NET_MAX_RESOLVERS]; /* in use */
	unsigned n_servers;
	unsigned leased_turn; /* of net_leased_servers() */
};

/* The shard's resolver, made if need be. Returns 0 or -ENOMEM. */
int net_resolver_get(struct net_resolver **out);
/*
 * Before a query: opens c-ares and, while no query is open, reads the files
 * that have changed. Returns 0, -ENOMEM, -EHOSTUNREACH (there is no server) or
 * -ECANCELED.
 */
int net_resolver_refresh(struct net_resolver *resolver);
/*
 * Asks the servers for a name; net_name_answer() is called in any case, maybe
 * at once. Returns 0, -ENOBUFS, -ENOMEM or -ECANCELED; without 0 nothing was
 * asked.
 */
int net_query_start(struct net_resolver *resolver, struct net_name *name);
/* Wakes the coroutine that drives c-ares. */
void net_query_wake(struct net_resolver *resolver);
/*
 * How long a response's lack of an address holds (RFC 2308 5), in seconds;
 * without a SOA 0. The bytes are untrusted.
 */
int64_t net_negative_ttl_s(const uint8_t *bytes, size_t len);

/* ---- resolve.c ---- */

/*
 * Whether addresses of a family are wanted if the caller asks for one, or for
 * 0: those of which the stack has an address that is not link-local.
 */
bool net_resolve_wants(uint8_t family, uint8_t asked);
/* Of two lookups without addresses: the error that says more. */
int net_resolve_error(int a, int b);
