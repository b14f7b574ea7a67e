/*
 * munmap() in whole programs.
 *
 * libcoronet replaces libc's munmap(), so that DPDK does not unmap memory that
 * a burst still uses (dpdk_glue/burst_sync.h). In a whole program it cannot:
 * libcoronet is a dependency of the preloaded library, and the linker finds
 * libc before it. So the preloaded library replaces munmap() as well. Only the
 * stack's threads wait: a program never unmaps the memory of a port.
 */
#include "netstack/sockets/whole.h"

#include <sys/mman.h>

#include "dpdk_glue/glue.h"

NET_HOOK int munmap(void *addr, size_t len)
{
	if (net_whole.on && net_whole_own_thread())
		return glue_unmap(addr, len);
	return net_real()->munmap(addr, len);
}
