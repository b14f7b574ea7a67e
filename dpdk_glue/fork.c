/*
 * DPDK's memory and fork().
 *
 * A child has no use for it: the stack does not run there. It is left out of
 * children, since a copy on write would give the parent another page than the
 * one that a card has an address of, and since fork() copies the page tables of
 * all of it.
 */
#include "dpdk_glue/glue_priv.h"

#include <sys/mman.h>

#include <rte_memory.h>

static int leave_out(const struct rte_memseg_list *list,
		     const struct rte_memseg *first, size_t len, void *arg)
{
	madvise(first->addr, len, MADV_DONTFORK);
	return 0;
}

/* More of it, which DPDK has taken later. */
static void on_event(enum rte_mem_event type, const void *addr, size_t len,
		     void *arg)
{
	if (type == RTE_MEM_EVENT_ALLOC)
		madvise((void *)addr, len, MADV_DONTFORK);
}

void glue_fork_start(void)
{
	rte_memseg_contig_walk(leave_out, NULL);
	/* Fails where memory cannot grow. */
	rte_mem_event_callback_register("coronet-fork", on_event, NULL);
}
