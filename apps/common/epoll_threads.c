#include "apps/common/epoll_threads.h"

#include <stdio.h>

#include "apps/common/opts.h"
#include "apps/common/sys.h"

enum { OPT_THREADS = 0x400, OPT_CPU };

static const struct argp_option options[] = {
	{"threads", OPT_THREADS, "N", 0, "Number of threads (default 1)", 1},
	{"cpu", OPT_CPU, "N", 0,
	 "Run the first thread on this CPU, and others on the CPUs that follow "
	 "it (default: any CPU)",
	 1},
	{"lcore", 0, 0, OPTION_ALIAS, 0, 1},
	{0},
};

/*
 * Checks CPUs by trying each: the main thread does little, and may stay where
 * the last try put it.
 */
static void check_cpus(const struct argp_state *state,
		       const struct epoll_threads *threads)
{
	char cpu[16];

	for (uint32_t i = 0; threads->cpu >= 0 && i < threads->n; i++) {
		snprintf(cpu, sizeof(cpu), "%u", (uint32_t)threads->cpu + i);
		if (sys_pin_cpu((uint32_t)threads->cpu + i))
			opts_refuse(state, "--cpu", cpu,
				    "a CPU this process may run on, one a "
				    "thread",
				    "--cpu 0");
	}
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct epoll_threads *threads = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		*threads = (struct epoll_threads){.n = 1, .cpu = -1};
		return 0;
	case OPT_THREADS:
		threads->n =
			(uint32_t)opts_number(state, "--threads", arg, 1,
					      EPOLL_THREADS_MAX, "--threads 2");
		return 0;
	case OPT_CPU:
		threads->cpu = (int)opts_number(state, "--cpu", arg, 0, 1023,
						"--cpu 0");
		return 0;
	case ARGP_KEY_END:
		check_cpus(state, threads);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp epoll_threads_argp = {.options = options,
					.parser = parse_key};

void epoll_threads_pin(const struct epoll_threads *threads, uint32_t index)
{
	if (threads->cpu >= 0)
		sys_pin_cpu((unsigned int)threads->cpu + index);
}
