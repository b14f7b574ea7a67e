/*
 * Whole programs: what the calls need to know of one whose main() is a
 * coroutine (run_main.c), and does not matter to a program that was written
 * for coroutines.
 */
#include "netstack/sockets/sockets_priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct net_whole net_whole;

int net_whole_cancelled(void)
{
	bool restarts;

	if (!net_whole.on)
		return -ECANCELED;
	if (net_whole.ending || net_stack_stopping(net_whole.stack))
		while (net_is_main())
			coro_park();
	if (!net_is_main() || !net_whole.interrupted)
		return -ECANCELED;
	net_whole.interrupted = false;
	restarts = net_whole.handle_signals();
	return restarts && !net_whole.unrestartable ? 0 : -EINTR;
}

int net_whole_turn(void)
{
	int saved = errno, err;

	if (!net_is_main() || net_forked)
		return 0;
	atomic_store(&net_whole.handled, false);
	err = coro_yield();
	if (err == -ECANCELED)
		err = net_whole_cancelled();
	errno = saved;
	return err;
}

long net_whole_done(long r)
{
	if (r >= 0 && net_whole.batch)
		net_whole.batch--;
	else
		net_whole_turn();
	return r;
}

/* ---- descriptors that are not the program's ---- */

/* What the program starts does not inherit it, and so cannot hold a link. */
void net_whole_reserve(int fd)
{
	net_real()->fcntl(fd, F_SETFD, FD_CLOEXEC);
	if ((unsigned)fd < NET_FDS_MAX)
		net_fds[fd].reserved = true;
}

/* All that run before main() does, other than its own. */
void net_whole_note_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		int tid = atoi(entry->d_name);

		if (tid > 0 && tid != gettid() &&
		    net_whole.n_threads < NET_WHOLE_THREADS)
			net_whole.threads[net_whole.n_threads++] = tid;
	}
	if (dir)
		closedir(dir);
}

bool net_whole_own_thread(void)
{
	int tid = gettid();

	for (unsigned i = 0; i < net_whole.n_threads; i++)
		if (net_whole.threads[i] == tid)
			return true;
	return false;
}

/*
 * Programs close whatever numbers they find. The stack's own look closed to
 * them, and only the stack itself, outside coroutines, closes them.
 */
bool net_whole_keeps(int fd)
{
	if (!net_whole.on || (unsigned)fd >= NET_FDS_MAX ||
	    !net_fds[fd].reserved || net_forked)
		return false;
	if (coro_self() || (net_sockets_tls.stack != net_whole.stack &&
			    !net_whole_own_thread()))
		return true;
	net_fds[fd].reserved = false;
	return false;
}

bool net_whole_keeps_any(unsigned first, unsigned last)
{
	if (!net_whole.on || net_forked)
		return false;
	for (unsigned fd = first; fd <= last && fd < NET_FDS_MAX; fd++)
		if (net_fds[fd].reserved)
			return true;
	return false;
}
