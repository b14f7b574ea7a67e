/*
 * Calls by which a coroutine waits for the kernel: for a descriptor, or for a
 * function that blocks.
 */
#include "netstack/api/api.h"

#include <errno.h>

#include <coronet/coro_io.h>

int net_fd_wait(int fd, int events, int64_t deadline_ns)
{
	struct net_stack *stack = net_here();

	if (stack->sched && net_stack_stopping(stack))
		return -ECANCELED;
	return coro_fd_wait(fd, events, deadline_ns);
}

int net_offload(coro_fn fn, void *arg, void **result, int64_t deadline_ns)
{
	return coro_offload_until(fn, arg, result, deadline_ns);
}
