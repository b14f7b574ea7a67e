/*
 * Calls net_tap's signal handler regularly, in case a signal was lost.
 */
#include "dpdk_glue/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_alarm.h>

#define KICK_US 100000
#define FDS_MAX 256 /* a port's descriptors are among the first */

/* The kernel sends SIGIO instead of a signal that it cannot queue. */
void glue_tap_prepare(void)
{
	struct sigaction action;

	if (sigaction(SIGIO, NULL, &action) == 0 &&
	    action.sa_handler == SIG_DFL)
		signal(SIGIO, SIG_IGN);
}

/* The signal that net_tap requested for its descriptors; 0: none. */
static int signal_of_taps(void)
{
	char path[32], target[32];

	for (int fd = 0; fd < FDS_MAX; fd++) {
		ssize_t n;
		int number;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		number = fcntl(fd, F_GETSIG);
		if (strcmp(target, "/dev/net/tun") == 0 && number > 0)
			return number;
	}
	return 0;
}

/* Calling the handler takes no room in the signal queue, and interrupts no
 * system call of another thread. */
static void call_handler(void *arg)
{
	struct glue_device *device = arg;
	struct sigaction action;

	if (sigaction(device->tap_signal, NULL, &action) == 0 &&
	    action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN)
		action.sa_handler(device->tap_signal);
	rte_eal_alarm_set(KICK_US, call_handler, device);
}

void glue_tap_watch(struct glue_device *device)
{
	device->tap_signal = signal_of_taps();
	if (device->tap_signal == 0)
		return; /* without a signal net_tap reads each time */
	rte_eal_alarm_set(KICK_US, call_handler, device);
}

void glue_tap_unwatch(struct glue_device *device)
{
	if (device->tap_signal)
		rte_eal_alarm_cancel(call_handler, device);
}
