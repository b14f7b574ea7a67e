#include "dpdk_glue/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "dpdk_glue/glue_priv.h"

/* Those of the process that no shard is pinned to, or all if there is none. */
static cpu_set_t idle_cpus(void)
{
	cpu_set_t all = *glue_eal_cpus(), idle = all;

	for (unsigned i = 0; i < glue_eal_shards(); i++)
		if (glue_eal_lcore(i) >= 0)
			CPU_CLR(glue_eal_lcore(i), &idle);
	return CPU_COUNT(&idle) ? idle : all;
}

int glue_thread_start(pthread_t *thread, const char *name,
		      void *(*run)(void *arg), void *arg)
{
	cpu_set_t cpus = idle_cpus();
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return -rc;
	pthread_setaffinity_np(*thread, sizeof(cpus), &cpus);
	pthread_setname_np(*thread, name);
	return 0;
}
