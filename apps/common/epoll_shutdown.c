/*
 * Signals that drain, and the wait for every thread.
 */
#include "apps/common/epoll_shutdown.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <unistd.h>

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
