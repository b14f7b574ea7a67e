/*
 * coronet: options that change while the program runs. A thread of the program
 * reads its files again by net_reread_args(), sets the options that may change,
 * and gives the stack what differs (docs/api.md).
 */
#pragma once

#include <coronet/net_stack.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Sets one common option by its full name without dashes, as a line "name =
 * value" of a configuration file does. value: borrowed as the strings of opts;
 * NULL is read as "". Returns 0, -ENOENT (this is no common option), or -EINVAL
 * with opts->error set.
 */
int net_opts_set(struct net_opts *opts, const char *name, const char *value);

/*
 * Changes the routes of the running stack, on all shards, from those of one set
 * of options to those of another (routes, gateway4 and gateway6). from: what
 * net_stack_open() or the last such call got. Routes that both have stay as
 * they are, also if coronet-ctl has removed one of them. Routes that
 * coronet-ctl has added, and those of leases and routers, stay behind those of
 * `to`. The next packet to each destination follows the change. Both sets are
 * borrowed; the addresses of `to` must be those of net_stack_open().
 *
 * Blocks for two seconds at most for each shard: call it on a thread of the
 * program's own, and not on two at a time. Returns 1 (changed), 0 (both sets
 * have the same routes in the same order), or, with to->error set and the
 * routes as they were,
 *   -EINVAL     a new route cannot be used, as of net_stack_open()
 *   -ENOSPC     there is no room for all routes
 *   -EAGAIN     the stack is starting, or a shard has too many requests
 *   -ETIMEDOUT  a shard does not answer
 *   -ESHUTDOWN  the stack is closing
 *   -ENOMEM     no memory
 */
int net_routes_change(const struct net_opts *from, struct net_opts *to);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
