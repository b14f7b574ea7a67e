/*
 * Host names: a cache, and c-ares on the stack's own UDP and TCP calls.
 *
 * A shard makes its resolver when it first needs one. c-ares does timers, the
 * choice of servers and the formats of messages; its sockets are the stack's
 * (resolve/wire.c). One coroutine drives it while queries are open
 * (resolve/query.c).
 */
#pragma once

#include <coronet/net_resolve.h>

/* Notes the name servers of the options for this shard. */
void net_resolve_open(const struct net_opts *opts);
/* Ends all queries and closes their sockets, while coroutines still live. */
void net_resolve_stop(void);
/* Frees the resolver, after the last coroutine. */
void net_resolve_fini(void);

/* For tests: paths to use instead of resolv.conf(5) and hosts(5). */
extern const char *net_resolv_conf_file, *net_systemd_conf_file;
extern const char *net_hosts_file;
