/*
 * Preloaded: raises SIGTERM when a program has printed that it listens, before
 * it continues.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

typedef int flush_fn(FILE *file);

int fflush(FILE *file)
{
	void *found = dlsym(RTLD_NEXT, "fflush");
	bool says = file == stdout && __fpending(file) > 0;
	flush_fn *flush;
	int err;

	memcpy(&flush, &found, sizeof(flush)); /* ISO C has no such cast */
	err = flush(file);
	if (says)
		kill(getpid(), SIGTERM);
	return err;
}
