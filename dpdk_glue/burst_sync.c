/*
 * Makes munmap() wait for the bursts under way.
 */
#include "dpdk_glue/burst_sync.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dpdk_glue/glue.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif

#define WAIT_US	  50
#define WAITS_MAX 200000 /* 10 s: such a thread was stopped, not preempted */

/* Each shard's count has a cache line of its own. */
static struct {
	unsigned count;
} __attribute__((aligned(64))) bursts[GLUE_MAX_SHARDS];

static bool started;
static __thread bool polls;

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

unsigned *glue_sync_count(unsigned shard)
{
	return &bursts[shard].count;
}

/* No thread of a child polls, and counts that were odd at the fork stay so. */
static void stop_in_child(void)
{
	__atomic_store_n(&started, false, __ATOMIC_RELAXED);
}

int glue_sync_start(void)
{
	polls = true;
	if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) < 0)
		return -errno;
	if (__atomic_exchange_n(&started, true, __ATOMIC_ACQ_REL))
		return 0;
	return -pthread_atfork(NULL, NULL, stop_in_child);
}

void glue_sync_polls(bool on)
{
	polls = on;
}

bool glue_sync_works(void)
{
	return __atomic_load_n(&started, __ATOMIC_ACQUIRE);
}

/* Wait until the burst that was seen under way has ended. */
static void wait_for(unsigned shard, unsigned seen)
{
	static const struct timespec pause = {.tv_nsec = WAIT_US * 1000};

	for (unsigned i = 0; i < WAITS_MAX; i++) {
		if (__atomic_load_n(&bursts[shard].count, __ATOMIC_ACQUIRE) !=
		    seen)
			return;
		nanosleep(&pause, NULL);
	}
}

void glue_sync_wait(void)
{
	if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) < 0)
		return;
	for (unsigned i = 0; i < GLUE_MAX_SHARDS; i++) {
		unsigned seen =
			__atomic_load_n(&bursts[i].count, __ATOMIC_ACQUIRE);

		if (seen % 2)
			wait_for(i, seen);
	}
}

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
/* ThreadSanitizer's own munmap(), which must see every call. */
int __interceptor_munmap(void *addr, size_t len);
#define UNMAP(addr, len) __interceptor_munmap(addr, len)
#else
#define UNMAP(addr, len) (int)syscall(SYS_munmap, addr, len)
#endif

int glue_unmap(void *addr, size_t len)
{
	int saved = errno;

	if (!polls && glue_sync_works())
		glue_sync_wait();
	errno = saved;
	return UNMAP(addr, len);
}

/* Replaces libc's munmap() in every library of the process. */
__attribute__((visibility("default"))) int munmap(void *addr, size_t len)
{
	return glue_unmap(addr, len);
}
