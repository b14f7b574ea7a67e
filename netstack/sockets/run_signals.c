/*
 * Signals of a whole program.
 *
 * A handler may make any call and may leave by longjmp(), so it must not run
 * while the thread is in the stack. A handler of this library is installed in
 * place of each handler of the program: a signal that arrives in the stack is
 * noted, and handled when the thread leaves (baton.c).
 *
 * A signal such as SIGTERM, SIGPIPE or SIGALRM ends a program that does not
 * handle it, and the kernel would then close its connections. Here the first
 * such signal stops the stack, which closes them. A second one has its default
 * action, and a timer sends it if closing takes too long.
 */
#include "netstack/sockets/run.h"
#include "netstack/sockets/whole.h"

#include <assert.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

typedef int (*action_fn)(int signo, const struct sigaction *action,
			 struct sigaction *old);

static action_fn real_action;
static struct sigaction actions[NSIG]; /* the program's, if ours replaces it */
static struct sigaction before[NSIG];
static struct sigaction reporter[NSIG]; /* coro_crash.c's actions */
static _Atomic uint64_t interrupting;	/* siginterrupt(): a bit for each */
static _Atomic int ended_by;

static_assert(NSIG <= 65, "net_caller.noted has a bit for each signal");

/*
 * Signals that the stack has taken: drivers raise some for frames (net_tap),
 * the watchdog one to look at a thread. The program believes that it has them.
 */
static bool taken[NSIG];

/* Signals whose default action ends the program, without a fault of its own. */
static const int fatal[] = {SIGHUP,  SIGINT,  SIGQUIT,	SIGUSR1,
			    SIGUSR2, SIGPIPE, SIGALRM,	SIGTERM,
			    SIGPOLL, SIGPROF, SIGVTALRM};
#define FATAL	(sizeof(fatal) / sizeof(fatal[0]))
#define GRACE_S 2 /* the loop takes one to drain */

static int set_action(int signo, const struct sigaction *action,
		      struct sigaction *old)
{
	if (!real_action)
		real_action = (action_fn)dlsym(RTLD_NEXT, "sigaction");
	return real_action(signo, action, old);
}

/* The signals of memory that is not there (touch.c). */
static bool is_touched(int signo)
{
	return signo == SIGSEGV || signo == SIGBUS;
}

static bool is_fatal(int signo)
{
	size_t i = 0;

	while (i < FATAL && fatal[i] != signo)
		i++;
	return i < FATAL;
}

/* ---- delivery ---- */

static void end_by_default(int signo);

static bool is_handler(const struct sigaction *action)
{
	return action->sa_flags & SA_SIGINFO ||
	       (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

/* Another thread may have taken the handler away since the signal came. */
static void call_handler(const struct sigaction *action, int signo,
			 siginfo_t *info, void *context)
{
	if (!is_handler(action) && action->sa_handler == SIG_DFL)
		end_by_default(signo);
	else if (!is_handler(action))
		return;
	else if (action->sa_flags & SA_SIGINFO)
		action->sa_sigaction(signo, info, context);
	else
		action->sa_handler(signo);
}

/*
 * A fault in net_touch() does not concern the program; with any other the
 * program's own action decides, at the instruction that faulted. Without a
 * handler that instruction faults once more, now with the default action, which
 * the reporter of coro_crash.c would only have restored for the program.
 */
static void on_fault(int signo, siginfo_t *info, void *context)
{
	const struct sigaction dfl = {.sa_handler = SIG_DFL};
	struct sigaction action = actions[signo];

	if (net_touch_failed(context))
		return;
	if (action.sa_flags & (int)SA_RESETHAND)
		actions[signo] = dfl;
	if (is_handler(&action)) {
		call_handler(&action, signo, info, context);
	} else if (info->si_code > 0) {
		if (action.sa_handler == SIG_DFL &&
		    is_handler(&reporter[signo]))
			call_handler(&reporter[signo], signo, info, context);
		set_action(signo, &dfl, NULL);
	} else if (action.sa_handler == SIG_DFL) {
		end_by_default(signo);
	}
}

static bool is_fault(int signo)
{
	return signo == SIGSEGV || signo == SIGBUS || signo == SIGFPE ||
	       signo == SIGILL || signo == SIGABRT || signo == SIGTRAP;
}

static uint64_t bit_of(int signo)
{
	return UINT64_C(1) << (signo - 1);
}

static sigset_t set_of(int signo)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signo);
	return set;
}

/*
 * Notes a signal that came in the stack, and gives it back to the kernel, which
 * keeps it blocked for the thread until it leaves, and further ones behind it.
 * If ppoll() lets it through in the meantime, it comes here again.
 */
static void note_signal(int signo, siginfo_t *info, ucontext_t *context)
{
	sigset_t only = set_of(signo);

	pthread_sigmask(SIG_BLOCK, &only, NULL); /* SA_NODEFER */
	sigaddset(&context->uc_sigmask, signo);
	atomic_fetch_or(&net_caller.held, bit_of(signo));
	syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signo, info);
	net_whole_note(signo);
}

/* Faults are handled at once. */
static void on_signal(int signo, siginfo_t *info, void *context)
{
	int saved = errno;

	if (net_is_child() || net_whole.closed ||
	    net_caller.state == NET_OUTSIDE || is_fault(signo)) {
		call_handler(&actions[signo], signo, info, context);
		return;
	}
	note_signal(signo, info, context);
	errno = saved;
}

/* Calls the handler with the mask that it would have. */
static void call_by_hand(const struct sigaction *action, int signo,
			 siginfo_t *info, const sigset_t *mask)
{
	sigset_t blocked;

	sigorset(&blocked, mask, &action->sa_mask);
	if (!(action->sa_flags & SA_NODEFER))
		sigaddset(&blocked, signo);
	pthread_sigmask(SIG_SETMASK, &blocked, NULL);
	if (is_handler(action)) /* still: the program may ignore it by now */
		call_handler(action, signo, info, NULL);
}

/*
 * Handles a signal that was noted: lets it through, so that its handler gets
 * from the kernel what belongs to it, the alternate stack, the context and the
 * mask. Returns whether the call may go on.
 */
static bool handle_noted(int signo)
{
	const struct timespec now = {0};
	struct sigaction action = actions[signo];
	sigset_t only = set_of(signo), all, old;
	siginfo_t info;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (atomic_fetch_and(&net_caller.held, ~bit_of(signo)) & bit_of(signo))
		sigdelset(&old, signo);
	atomic_fetch_and(&net_caller.noted, ~bit_of(signo));
	/* With SA_RESETHAND the kernel has taken the handler away already. */
	if (!(action.sa_flags & (int)SA_RESETHAND)) {
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		pthread_sigmask(SIG_UNBLOCK, &only, NULL);
	} else if (sigtimedwait(&only, &info, &now) == signo) {
		call_by_hand(&action, signo, &info, &old);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return action.sa_flags & SA_RESTART;
}

/* The program makes no more calls: the stack closes, and ends the process. */
static void wait_for_end(void)
{
	for (;;)
		pause();
}

/* Handles all that were noted. Returns whether the call may go on. */
static bool handle_all(void)
{
	bool restarts = true;
	uint64_t all;

	if (atomic_load(&ended_by))
		wait_for_end();
	while ((all = atomic_load(&net_caller.noted)))
		restarts &= handle_noted(__builtin_ctzll(all) + 1);
	return restarts;
}

/* Has the signal sent once more after a while. The C library's functions may
 * not be called in a handler. */
static void send_again(int signo)
{
	const struct itimerspec grace = {.it_value.tv_sec = GRACE_S};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
				 .sigev_signo = signo};
	int timer; /* the kernel's number of it */

	if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == 0)
		syscall(SYS_timer_settime, timer, 0, &grace, NULL);
}

/*
 * A thread that waits, or makes a call, goes no further. One that computes may
 * hold locks, of malloc() for example, so it goes on, except after SIGPIPE,
 * which comes while it writes.
 */
static void on_fatal(int signo)
{
	int none = 0, saved = errno;

	if (net_is_child() || net_fd_shares_memory() || net_whole.closed ||
	    !atomic_compare_exchange_strong(&ended_by, &none, signo)) {
		end_by_default(signo);
		return;
	}
	send_again(signo);
	net_whole_end_by(signo);
	if (net_caller.state != NET_OUTSIDE)
		net_whole_note(signo);
	else if (signo == SIGPIPE)
		wait_for_end();
	errno = saved;
}

/* ---- handlers of the program ---- */

static struct sigaction action_for(int signo, const struct sigaction *theirs)
{
	struct sigaction ours = *theirs;

	if (is_touched(signo)) {
		if (!is_handler(theirs))
			ours.sa_flags = SA_ONSTACK | SA_NODEFER;
		ours.sa_sigaction = on_fault;
		ours.sa_flags |= SA_SIGINFO;
		ours.sa_flags &= ~(int)SA_RESETHAND;
	} else if (is_handler(theirs)) {
		ours.sa_sigaction = on_signal;
		ours.sa_flags |= SA_SIGINFO;
	} else if (theirs->sa_handler == SIG_DFL && is_fatal(signo)) {
		ours.sa_handler = on_fatal;
		ours.sa_flags = SA_RESTART;
	}
	return ours;
}

static bool is_stack_handler(const struct sigaction *action)
{
	return action->sa_flags & SA_SIGINFO
		       ? action->sa_sigaction == on_signal ||
				 action->sa_sigaction == on_fault
		       : action->sa_handler == on_fatal;
}

/*
 * Is it the program that calls? The stack sets its own handlers in the loop, or
 * on its own threads. A child of vfork() resets its signals before it calls
 * exec: those are its own, and the table of actions is its parent's.
 */
static bool is_the_programs(void)
{
	return net_whole.on && !net_is_child() &&
	       net_caller.state != NET_TURNING && !net_whole_own_thread() &&
	       !net_fd_shares_memory();
}

/* A handler is in the table before the kernel can call ours: another thread may
 * get the signal at once. */
NET_HOOK int sigaction(int signo, const struct sigaction *action,
		       struct sigaction *old)
{
	struct sigaction was = {0}, theirs, ours;
	sigset_t all, mask;
	int rc;

	if (signo <= 0 || signo >= NSIG || !is_the_programs())
		return set_action(signo, action, old);
	if (taken[signo]) {
		was = actions[signo];
		if (action)
			actions[signo] = *action;
		if (old)
			*old = was;
		return 0;
	}
	if (action)
		ours = action_for(signo, action);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	theirs = actions[signo];
	if (action && is_handler(action))
		actions[signo] = *action;
	rc = set_action(signo, action ? &ours : NULL, &was);
	if (action)
		actions[signo] = rc == 0 ? *action : theirs;
	if (rc == 0 && old)
		*old = is_stack_handler(&was) ? theirs : was;
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return rc;
}

NET_HOOK int __sigaction(int signo, const struct sigaction *action,
			 struct sigaction *old);
NET_HOOK int __sigaction(int signo, const struct sigaction *action,
			 struct sigaction *old)
{
	return sigaction(signo, action, old);
}

static sighandler_t set_handler(int signo, sighandler_t handler, int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags},
			 old;

	if (sigaction(signo, &action, &old) < 0)
		return SIG_ERR;
	return old.sa_handler;
}

NET_HOOK sighandler_t signal(int signo, sighandler_t handler)
{
	bool interrupts = signo > 0 && signo < NSIG &&
			  atomic_load(&interrupting) & bit_of(signo);

	return set_handler(signo, handler, interrupts ? 0 : SA_RESTART);
}

NET_HOOK sighandler_t bsd_signal(int signo, sighandler_t handler);
NET_HOOK sighandler_t bsd_signal(int signo, sighandler_t handler)
{
	return signal(signo, handler);
}

/* The C library's own would change the flags of our handler alone. */
NET_HOOK int siginterrupt(int signo, int interrupts)
{
	struct sigaction action;

	if (sigaction(signo, NULL, &action) < 0)
		return -1;
	if (interrupts) {
		atomic_fetch_or(&interrupting, bit_of(signo));
		action.sa_flags &= ~SA_RESTART;
	} else {
		atomic_fetch_and(&interrupting, ~bit_of(signo));
		action.sa_flags |= SA_RESTART;
	}
	return sigaction(signo, &action, NULL);
}

NET_HOOK sighandler_t __sysv_signal(int signo, sighandler_t handler)
{
	return set_handler(signo, handler, (int)(SA_RESETHAND | SA_NODEFER));
}

NET_HOOK sighandler_t sysv_signal(int signo, sighandler_t handler)
{
	return __sysv_signal(signo, handler);
}

/* ---- masks ---- */

typedef int (*mask_fn)(int how, const sigset_t *set, sigset_t *old);

/* Signals that the stack has taken stay open. */
static const sigset_t *open_taken(int how, const sigset_t *set, sigset_t *copy)
{
	if (!set || how == SIG_UNBLOCK || !is_the_programs())
		return set;
	*copy = *set;
	for (int signo = 1; signo < NSIG; signo++)
		if (taken[signo] || is_touched(signo))
			sigdelset(copy, signo);
	return copy;
}

NET_HOOK int pthread_sigmask(int how, const sigset_t *mask, sigset_t *old)
{
	static mask_fn real;
	sigset_t copy;

	if (!real)
		real = (mask_fn)dlsym(RTLD_NEXT, "pthread_sigmask");
	return real(how, open_taken(how, mask, &copy), old);
}

NET_HOOK int sigprocmask(int how, const sigset_t *mask, sigset_t *old)
{
	static mask_fn real;
	sigset_t copy;

	if (!real)
		real = (mask_fn)dlsym(RTLD_NEXT, "sigprocmask");
	return real(how, open_taken(how, mask, &copy), old);
}

/* A program that waits for all signals would take those of the drivers, whose
 * ports then receive nothing more. */
typedef int (*timed_fn)(const sigset_t *set, siginfo_t *info,
			const struct timespec *timeout);

NET_HOOK int sigtimedwait(const sigset_t *mask, siginfo_t *info,
			  const struct timespec *timeout)
{
	static timed_fn real;
	sigset_t copy;

	if (!real)
		real = (timed_fn)dlsym(RTLD_NEXT, "sigtimedwait");
	return real(open_taken(SIG_BLOCK, mask, &copy), info, timeout);
}

NET_HOOK int sigwaitinfo(const sigset_t *mask, siginfo_t *info)
{
	return sigtimedwait(mask, info, NULL);
}

NET_HOOK int sigwait(const sigset_t *mask, int *signo)
{
	int rc;

	do {
		rc = sigtimedwait(mask, NULL, NULL);
	} while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return errno;
	*signo = rc;
	return 0;
}

NET_HOOK int pthread_cancel(pthread_t thread)
{
	return net_needs_baton()
		       ? net_whole_cancel(thread, net_real()->pthread_cancel)
		       : net_real()->pthread_cancel(thread);
}

NET_HOOK int pthread_setcanceltype(int type, int *old)
{
	return net_whole_cancel_type(type, old,
				     net_real()->pthread_setcanceltype);
}

/* ---- the beginning and the end ---- */

void net_run_signals_save(void)
{
	for (int signo = 1; signo < NSIG; signo++)
		set_action(signo, NULL, &before[signo]);
}

static bool has_changed(int signo)
{
	struct sigaction now;

	actions[signo] = before[signo];
	return set_action(signo, NULL, &now) == 0 &&
	       now.sa_handler != before[signo].sa_handler;
}

static bool is_for_frames(int signo)
{
	struct sigaction action;

	if (!has_changed(signo) || set_action(signo, NULL, &action) < 0)
		return false;
	net_whole.look_for_frames = action.sa_handler;
	return true;
}

/*
 * Gives the program the actions that it inherited: the log holds SIGPIPE and
 * SIGUSR1 for programs of ours, and the loop SIGINT and SIGTERM.
 */
void net_run_signals_begin(void)
{
	set_action(SIGSEGV, NULL, &reporter[SIGSEGV]);
	set_action(SIGBUS, NULL, &reporter[SIGBUS]);
	taken[SIGURG] = has_changed(SIGURG);
	for (int signo = SIGRTMIN; signo < NSIG; signo++)
		taken[signo] = is_for_frames(signo);
	net_whole.handle_signals = handle_all;
	net_whole.default_action = end_by_default;
	for (size_t i = 0; i < FATAL; i++)
		sigaction(fatal[i], &before[fatal[i]], NULL);
	/* With --in-child the program has set its handlers already. */
	for (int signo = 1; signo < NSIG; signo++)
		if (!taken[signo] && is_handler(&before[signo]))
			sigaction(signo, &before[signo], NULL);
}

static void end_by_default(int signo)
{
	const struct sigaction action = {.sa_handler = SIG_DFL};
	const sigset_t only = set_of(signo);

	set_action(signo, &action, NULL);
	pthread_sigmask(SIG_UNBLOCK, &only, NULL);
	raise(signo);
}
