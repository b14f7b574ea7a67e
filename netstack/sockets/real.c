/*
 * Finds the C library's own functions.
 */
#include "netstack/sockets/real.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct net_real net_real_calls;

/*
 * The next definition behind ours in the order of libraries: the C library's,
 * or that of a sanitizer, which calls it.
 */
static void *find_next(const char *name)
{
	void *call = dlsym(RTLD_NEXT, name);

	if (!call) {
		fprintf(stderr,
			"coronet: the C library has no %s(): libcoronet-sockets"
			" needs glibc 2.36, linked dynamically\n",
			name);
		abort();
	}
	return call;
}

/* A constructor, since dlsym() may allocate, a signal may come first, and a
 * child may not call it after fork(). */
__attribute__((constructor)) void net_real_find(void)
{
#define FIND(name) net_real_calls.name = find_next(#name);
	NET_REAL_CALLS(FIND)
#undef FIND
	net_real_calls.found = true;
}
