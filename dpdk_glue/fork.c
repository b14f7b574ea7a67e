/*
 * DPDK's memory and fork().
 *
 * A child does not need this memory, since the stack does not run there. It is
 * not inherited: a copy on write could give the parent a page other than the
 * one whose address a card has, and fork() would copy all of its page tables.
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

/* Called for memory that DPDK allocates later. */
static void on_event(enum rte_mem_event type, const void *addr, size_t len,
		     void *arg)
{
	if (type == RTE_MEM_EVENT_ALLOC)
		madvise((void *)addr, len, MADV_DONTFORK);
}

void glue_fork_start(void)
{
	rte_memseg_contig_walk(leave_out, NULL);
	/* This fails if memory cannot grow. */
	rte_mem_event_callback_register("coronet-fork", on_event, NULL);
}
