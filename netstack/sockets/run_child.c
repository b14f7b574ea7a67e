/*
 * Child processes of a whole program, which have only the kernel's sockets.
 *
 * A server whose child processes serve clients, or that goes to the background,
 * does not work this way. The first call that shows it logs what to do, once
 * for the program and all of its children.
 */
#include "netstack/sockets/run.h"
#include "netstack/sockets/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct {
	char name[16];
	_Atomic bool *said; /* in memory that children share */
} the;

static const struct {
	const char *name, *advice;
} known[] = {
	{"nginx", "use 'daemon off; master_process off;'"},
	{"apache2", "use 'apache2 -X'"},
	{"haproxy", "use 'haproxy -db', without master-worker"},
	{"squid", "use 'squid -N'"},
	{"lighttpd", "use 'lighttpd -D', without server.max-worker"},
	{"redis-server", "use '--daemonize no'"},
};

static const char *advice_for_program(void)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(the.name, known[i].name) == 0)
			return known[i].advice;
	return "run it in the foreground and without child processes, or with "
	       "the kernel's sockets behind a proxy on the stack";
}

/* A child's calls on its copies of descriptors before exec that are harmless.
 * dup2() is not among them: it is how a program gets a socket. */
static bool shows_nothing(const char *call)
{
	return strcmp(call, "fcntl") == 0 || strcmp(call, "close") == 0 ||
	       strcmp(call, "ioctl") == 0;
}

static void refuse_call(const char *call)
{
	char line[512];
	int saved = errno;
	int len;

	if (shows_nothing(call) || atomic_exchange(the.said, true))
		return;
	len = snprintf(line, sizeof(line),
		       "coronet-run: %s: %s() in child process %d: only the "
		       "process that coronet-run started has sockets of the "
		       "stack; %s\n",
		       the.name, call, (int)getpid(), advice_for_program());
	net_real()->write(STDERR_FILENO, line, (size_t)len);
	errno = saved;
}

int net_run_children_begin(void)
{
	the.said = mmap(NULL, sizeof(*the.said), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (the.said == MAP_FAILED)
		return -ENOMEM;
	prctl(PR_GET_NAME, the.name);
	net_whole.refuse_child = refuse_call;
	return 0;
}
