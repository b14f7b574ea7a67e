/*
 * Preloaded: makes the creation of a program's Nth thread fail, with
 * FAILING_THREAD=N.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef int create_fn(pthread_t *thread, const pthread_attr_t *attr,
		      void *(*start)(void *), void *arg);

int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
		   void *(*start)(void *), void *arg)
{
	static _Atomic int made;
	const char *failing = getenv("FAILING_THREAD");
	void *found = dlsym(RTLD_NEXT, "pthread_create");
	create_fn *create;

	if (failing && ++made == atoi(failing))
		return EAGAIN;
	memcpy(&create, &found, sizeof(create)); /* ISO C has no such cast */
	return create(thread, attr, start, arg);
}
