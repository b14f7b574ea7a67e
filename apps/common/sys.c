/* System calls that the programs share. */
#include "apps/common/sys.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

int64_t sys_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t sys_no_core_ns(void)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "re");
	int64_t waited_ns = 0;

	if (!file)
		return 0;
	/* The fields: time on a core, time waiting for one, number of turns. */
	if (fscanf(file, "%*d %" SCNd64, &waited_ns) != 1)
		waited_ns = 0;
	fclose(file);
	return waited_ns;
}

uint64_t sys_raise_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 0;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	getrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur;
}

int sys_pin_cpu(unsigned int cpu)
{
	cpu_set_t set;

	if (cpu >= CPU_SETSIZE)
		return -EINVAL;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

struct sys_memory sys_memory_now(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	struct sys_memory memory = {0};
	char line[256];

	if (!status)
		return memory;
	while (fgets(line, sizeof(line), status)) {
		sscanf(line, "VmRSS: %" SCNu64, &memory.resident);
		sscanf(line, "HugetlbPages: %" SCNu64, &memory.huge);
	}
	fclose(status);
	return memory;
}
