/*
 * Variables of which every shard has its own copy.
 *
 * They lie in a section of their own. A shard that opens gets a copy of that
 * section, and the thread that runs the shard stores the distance from the
 * section to this copy (net_shard_enter() in shard/stack.c). Another thread may
 * run the shard later, since no part of it belongs to a thread. In a thread
 * that runs no shard the distance is 0: the thread uses the section itself,
 * which holds the initial values.
 *
 * 	static NET_SHARD_VAR unsigned n_left;
 * 	#define n_left NET_SHARD(n_left)
 */
#pragma once

#include <stdint.h>

#define NET_SHARD_VAR __attribute__((section("net_shard")))
#define NET_SHARD(name)                                                        \
	(*(__typeof__(&(name)))net_of_shard((void *)(uintptr_t) & (name)))

extern _Thread_local intptr_t net_shard_distance
	__attribute__((visibility("hidden")));

/*
 * Makes a copy of the section as it is now, owned by the caller. *distance:
 * bytes from the section to the copy. Returns 0 or -ENOMEM.
 */
int net_shard_copy_new(intptr_t *distance);
void net_shard_copy_free(intptr_t distance);

/*
 * The compiler must not know that the address is a variable's: it could
 * conclude that nothing lies beyond that variable.
 */
static inline void *net_of_shard(void *original)
{
	__asm__("" : "+r"(original));
	return (char *)original + net_shard_distance;
}
