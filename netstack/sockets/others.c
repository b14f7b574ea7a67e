/*
 * Calls by threads that do not own the socket, in a whole program.
 *
 * Such a call is posted to the owner's thread, which makes it in a coroutine,
 * with the same arguments, while the caller's thread sleeps. What the arguments
 * point to is the caller's memory, which stays as it is for so long. The owner
 * does so in its next round: when its own code blocks in one of the calls of
 * this library. A caller that holds a lock for which the owner's code waits by
 * other means waits for ever, as docs/unchanged.md says.
 */
#include "netstack/sockets/sockets_priv.h"

#include <semaphore.h>
#include <signal.h>
#include <time.h>

struct call {
	net_any_fn fn;
	const long *args;
	long result;
	int err; /* errno */
	bool returned;
	bool sigpipe; /* is due in the thread that called */
	sem_t done;
};

static unsigned call_key; /* a coroutine's call */
static bool has_key;

int net_others_begin(void)
{
	int err = coro_key_create(NULL, &call_key);

	has_key = err == 0;
	return err;
}

/* Threads block SIGPIPE for themselves, as libpq and OpenSSL's users do. */
void net_raise_sigpipe(void)
{
	struct call *call =
		has_key && coro_self() ? coro_local_get(call_key) : NULL;

	if (call)
		call->sigpipe = true;
	else
		raise(SIGPIPE);
}

static void finish(void *arg)
{
	struct call *call = arg;

	if (!call->returned) { /* the stack closes */
		call->result = -1;
		call->err = ECANCELED;
	}
	sem_post(&call->done);
}

static void *make(void *arg)
{
	struct call *call = arg;
	const long *a = call->args;

	if (coro_local_set(call_key, call) < 0 ||
	    coro_cleanup_push(finish, call) < 0) {
		call->result = -1;
		call->err = ENOMEM;
		call->returned = true;
		finish(call);
		return NULL;
	}
	errno = 0;
	call->result = call->fn(a[0], a[1], a[2], a[3], a[4], a[5]);
	call->err = errno;
	/* An int, if it returns one, has nothing defined above it. */
	if ((int)call->result == -1 && call->err)
		call->result = -1;
	call->returned = true;
	coro_cleanup_pop(true);
	return NULL;
}

static void begin(void *arg)
{
	const struct coro_attr attr = {.name = "another thread"};
	struct call *call = arg;

	if (coro_spawn(coro_sched_self(), &attr, make, call, NULL) == 0)
		return;
	call->result = -1;
	call->err = ENOMEM;
	sem_post(&call->done);
}

long net_others_call(net_any_fn fn, const long args[6])
{
	static const struct timespec nap = {.tv_nsec = 100000};
	struct call call = {.fn = fn, .args = args};
	int saved = errno, err;

	sem_init(&call.done, 0, 0);
	while ((err = coro_post(net_whole.sched, begin, &call)) == -EAGAIN)
		net_real()->nanosleep(&nap, NULL);
	while (err == 0 && sem_wait(&call.done) < 0) {
		/* a signal's handler has run; the call goes on */
	}
	sem_destroy(&call.done);
	if (err < 0) {
		errno = ECANCELED;
		return -1;
	}
	if (call.sigpipe)
		raise(SIGPIPE);
	errno = call.result < 0 ? call.err : saved;
	return call.result;
}

long net_others(long a, long b, long c, long d, long e, long f, net_any_fn fn)
{
	const long args[6] = {a, b, c, d, e, f};

	return net_others_call(fn, args);
}
