/*
 * Makes and frees the copies of the section of shards' variables.
 */
#include "netstack/shard_var.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u

/* Defined by the linker. Hidden, or static programs ask for the shared
 * library. */
extern __attribute__((visibility("hidden"))) char __start_net_shard[];
extern __attribute__((visibility("hidden"))) char __stop_net_shard[];

_Thread_local intptr_t net_shard_distance;

/* A copy begins as far into a page as the section does: it is aligned alike. */
static size_t bytes_in_page(void)
{
	return (uintptr_t)__start_net_shard % PAGE_BYTES;
}

int net_shard_copy_new(intptr_t *distance)
{
	size_t bytes = (size_t)(__stop_net_shard - __start_net_shard);
	size_t pages = (bytes_in_page() + bytes + PAGE_BYTES - 1) / PAGE_BYTES;
	char *memory = aligned_alloc(PAGE_BYTES, pages * PAGE_BYTES);

	if (!memory)
		return -ENOMEM;
	memcpy(memory + bytes_in_page(), __start_net_shard, bytes);
	/* Subtract integers: with pointers the compiler would conclude that
	 * nobody has the memory's address, and omit the copying. */
	*distance = (intptr_t)((uintptr_t)memory + bytes_in_page() -
			       (uintptr_t)__start_net_shard);
	return 0;
}

void net_shard_copy_free(intptr_t distance)
{
	free((void *)((uintptr_t)__start_net_shard + (uintptr_t)distance -
		      bytes_in_page()));
}
