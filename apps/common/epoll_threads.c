/*
 * Parses --threads and --cpu, pins those threads, and waits until all of them
 * have ended.
 */
#include "apps/common/epoll_threads.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "apps/common/opts.h"
#include "apps/common/sys.h"

#define AT(member) OPT_AT(struct epoll_threads, member)

static const struct opt rows[] = {
	{"threads", OPT_NUMBER, AT(n), "N", "1", 1, EPOLL_THREADS_MAX,
	 .help = "Number of threads", .group = 1},
	{"cpu", OPT_NUMBER, AT(cpu), "N", NULL, 0, 1023,
	 .help = "Run the first thread on this CPU, and others on the CPUs "
		 "that follow it (default: any CPU)"},
	{.name = "lcore", .kind = OPT_ALIAS},
};

/*
 * Checks CPUs by trying each: the main thread does little, and may stay where
 * the last try put it.
 */
static int check_cpus(void *base, struct opt_error *error)
{
	const struct epoll_threads *threads = base;
	char cpu[16];

	for (uint32_t i = 0; threads->cpu >= 0 && i < threads->n; i++) {
		snprintf(cpu, sizeof(cpu), "%u", (uint32_t)threads->cpu + i);
		if (sys_pin_cpu((uint32_t)threads->cpu + i))
			return opt_refuse(error, "--cpu", cpu,
					  "a CPU that this process may run on, "
					  "for each thread",
					  "--cpu 0");
	}
	return 0;
}

OPT_SET(epoll_threads, rows, 0x400, check_cpus)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct epoll_threads *threads = state->input;

	if (key != ARGP_KEY_INIT)
		return epoll_threads_parse(key, arg, state);
	threads->cpu = -1;
	opt_set_defaults(rows, OPT_COUNT(rows), threads);
	return 0;
}

const struct argp epoll_threads_argp = {.options = epoll_threads_options,
					.parser = parse_key,
					.help_filter = epoll_threads_help};

void epoll_threads_pin(const struct epoll_threads *threads, uint32_t index)
{
	if (threads->cpu >= 0)
		sys_pin_cpu((unsigned int)threads->cpu + index);
}

int shutdown_signals(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

void shutdown_wait(int signals, int drain_event, int done_event,
		   uint32_t threads)
{
	struct pollfd files[] = {
		{.fd = signals, .events = POLLIN},
		{.fd = done_event, .events = POLLIN},
	};
	struct signalfd_siginfo info;
	uint64_t count, done = 0, one = 1;
	bool draining = false;

	while (done < threads) {
		if (poll(files, 2, -1) < 0)
			continue;
		if ((files[0].revents & POLLIN) &&
		    read(signals, &info, sizeof(info)) == sizeof(info)) {
			if (draining)
				_exit(1);
			draining = true;
			if (write(drain_event, &one, sizeof(one)) < 0)
				_exit(1);
		}
		if ((files[1].revents & POLLIN) &&
		    read(done_event, &count, sizeof(count)) == sizeof(count))
			done += count;
	}
}
