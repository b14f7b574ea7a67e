/*
 * Starts threads that do not poll, and runs code on DPDK's.
 */
#include "dpdk_glue/thread.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>

#include <rte_alarm.h>

#include "dpdk_glue/glue_priv.h"

/* The process's CPUs that no shard is pinned to, or all if there is none. */
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
	pthread_attr_t attr;
	int rc;

	rc = pthread_attr_init(&attr);
	if (rc)
		return -rc;
	pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* that of --seccomp names a call */
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = pthread_create(thread, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (rc)
		return -rc;
	pthread_setname_np(*thread, name);
	return 0;
}

struct errand {
	void (*fn)(void *arg);
	void *arg;
	sem_t done;
};

static _Thread_local bool runs_errand;

static void run_errand(void *arg)
{
	struct errand *errand = arg;

	runs_errand = true;
	errand->fn(errand->arg);
	runs_errand = false;
	sem_post(&errand->done);
}

void glue_on_interrupt_thread(void (*fn)(void *arg), void *arg)
{
	struct errand errand = {.fn = fn, .arg = arg};

	if (runs_errand) {
		fn(arg);
		return;
	}
	sem_init(&errand.done, 0, 0);
	if (rte_eal_alarm_set(1, run_errand, &errand) < 0)
		run_errand(&errand);
	while (sem_wait(&errand.done) < 0)
		;
	sem_destroy(&errand.done);
}
