#include "apps/common/log_signal.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

#include <coronet/net.h>

static void on_usr1(int signo)
{
	int saved = errno;

	net_log_reopen();
	errno = saved;
}

void log_signal_catch(void)
{
	const struct sigaction action = {.sa_handler = on_usr1,
					 .sa_flags = SA_RESTART};

	sigaction(SIGUSR1, &action, NULL);
}
