/*
 * Whole programs: the descriptors and threads that are not the program's, and
 * the signal masks of those that are.
 */
#include "netstack/sockets/whole.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define NET_FDS_SIGNALLING 1024 /* the stack opens its first */

struct net_whole net_whole;

/* ---- descriptors that are not the program's ---- */

/* Child programs do not inherit it, so they cannot keep a link open. */
void net_whole_reserve(int fd)
{
	net_real()->fcntl(fd, F_SETFD, FD_CLOEXEC);
	if ((unsigned)fd >= NET_FDS_MAX)
		return;
	net_fd_has_entry(fd);
	net_fds[fd].reserved = true;
}

/* net_tap has the kernel send a signal with each frame, to the process. In a
 * thread of the program's it would end calls with EINTR. */
void net_whole_take_signals(void)
{
	const struct f_owner_ex self = {F_OWNER_TID, gettid()};

	for (int fd = 0; fd < NET_FDS_SIGNALLING; fd++)
		if (net_fds[fd].reserved && net_real()->fcntl(fd, F_GETSIG) > 0)
			net_real()->fcntl(fd, F_SETOWN_EX, &self);
}

static bool is_among(const int *tids, unsigned n, int tid)
{
	while (n && tids[n - 1] != tid)
		n--;
	return n;
}

void net_whole_note_threads(bool programs)
{
	int *tids = programs ? net_whole.programs_threads : net_whole.threads;
	unsigned *n =
		programs ? &net_whole.n_programs_threads : &net_whole.n_threads;
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		int tid = atoi(entry->d_name);

		if (tid > 0 &&
		    !is_among(net_whole.programs_threads,
			      net_whole.n_programs_threads, tid) &&
		    *n < NET_WHOLE_THREADS)
			tids[(*n)++] = tid;
	}
	if (dir)
		closedir(dir);
}

bool net_whole_own_thread(void)
{
	return is_among(net_whole.threads, net_whole.n_threads, gettid());
}

bool net_whole_has_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	bool found = !dir;

	errno = 0;
	while (!found && (entry = readdir(dir))) {
		int tid = atoi(entry->d_name);

		found = tid > 0 && tid != getpid() && tid != gettid() &&
			tid != net_whole.keeper &&
			!is_among(net_whole.threads, net_whole.n_threads, tid);
	}
	found |= errno != 0; /* the program has closed the folder */
	if (dir)
		closedir(dir);
	return found;
}

/*
 * Programs close whatever numbers they find. The stack's own look closed to
 * them, and only the stack itself closes them.
 */
bool net_whole_keeps(int fd)
{
	if (!net_whole.on || (unsigned)fd >= NET_FDS_MAX ||
	    !net_fds[fd].reserved || net_is_child())
		return false;
	if (net_caller.state != NET_TURNING && !net_whole_own_thread())
		return true;
	net_fds[fd].reserved = false;
	return false;
}

bool net_whole_keeps_any(unsigned first, unsigned last)
{
	unsigned end = net_fds_until(last);

	if (!net_whole.on || net_is_child())
		return false;
	for (unsigned fd = first; fd < end; fd++)
		if (net_fds[fd].reserved)
			return true;
	return false;
}

/* ---- signals ---- */

void net_whole_set_mask(const sigset_t *mask, sigset_t *old)
{
	sigset_t all, was;
	uint64_t held;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	held = atomic_exchange(&net_caller.held, 0);
	for (; held; held &= held - 1)
		sigdelset(&was, __builtin_ctzll(held) + 1);
	if (old)
		*old = was;
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}
