/*
 * coro_crash.c - messages about a coroutine that crashes, overflows its stack,
 * or blocks its thread for too long.
 *
 * Everything here may run in a signal handler, on the alternate stack: it
 * allocates nothing, takes no lock, and follows no pointer that a crash may
 * have left wrong.
 */
#include "coro_priv.h"

#include <dlfcn.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ALTSTACK_BYTES 65536
#define FIRST_WORDS    64 /* of a stack, where its body keeps its argument */

/* ---- descriptions of coroutines ---- */

void coro_sched_recognize(struct coro_sched *s, coro_recognize_fn fn)
{
	s->recognize = fn;
}

struct coro *coro_sched_running(const struct coro_sched *s)
{
	struct coro *co = __atomic_load_n(&s->cur, __ATOMIC_RELAXED);

	return co->ctx.flags & CORO_F_MAIN ? NULL : co;
}

unsigned coro_sched_turn(const struct coro_sched *s)
{
	return __atomic_load_n(&s->head, __ATOMIC_RELAXED);
}

/* Returns the end of the words of a coroutine's first frames, in place or
 * saved; *n of them lie before it. */
static const uintptr_t *first_words(const struct coro *co, const char *sp,
				    unsigned *n)
{
	const struct ctx_stack *st = co->ctx.stack;
	const char *low = (char *)((uintptr_t)sp & -(uintptr_t)64);
	const char *end = st->top;

	*n = 0;
	if (co->ctx.state == CORO_ST_DEAD || co->ctx.state == CORO_ST_NEW)
		return NULL;
	if (sp < coro_stack_of(co)->lo || sp >= st->top)
		low = st->top - FIRST_WORDS * sizeof(uintptr_t);
	*n = (st->top - low) / sizeof(uintptr_t);
	if (st->occupant != &co->ctx) {
		if (co->ctx.save_cap < (size_t)(st->top - low))
			*n = 0;
		else
			end = (char *)co->ctx.save + (st->top - low);
	}
	if (*n > FIRST_WORDS)
		*n = FIRST_WORDS;
	return (const uintptr_t *)(const void *)end;
}

__attribute__((no_sanitize("address"))) static bool
recognize_pointers(const struct coro *co, const ucontext_t *at, char *text,
		   size_t len)
{
	static const int regs[] = {REG_RBX, REG_RBP, REG_R12, REG_R13,
				   REG_R14, REG_R15, REG_RDI};
	coro_recognize_fn fn = coro_owner(co)->recognize;
	const uintptr_t *end;
	const char *sp = co->ctx.sp;
	unsigned n;

	if (!fn)
		return false;
	if (co->ctx.state == CORO_ST_RUNNING)
		sp = at ? (const char *)at->uc_mcontext.gregs[REG_RSP] : NULL;
	if (co->last && co->ctx.state != CORO_ST_DEAD &&
	    fn((uintptr_t)co->last, text, len))
		return true;
	end = first_words(co, sp, &n);
	/* Go down from the top: the first frame's words come first. */
	for (unsigned i = 1; i <= n; i++)
		if (fn(end[-(int)i], text, len))
			return true;
	for (size_t i = 0; at && i < sizeof(regs) / sizeof(*regs); i++)
		if (fn((uintptr_t)at->uc_mcontext.gregs[regs[i]], text, len))
			return true;
	return false;
}

void coro_describe(const struct coro *co, const void *ucontext, char *text,
		   size_t len)
{
	char more[240];

	if (recognize_pointers(co, ucontext, more, sizeof(more)))
		snprintf(text, len, "coroutine '%s' (%s)", coro_name(co), more);
	else
		snprintf(text, len, "coroutine '%s'", coro_name(co));
}

/* Writes PROGRAM+0x1234, which addr2line accepts. */
static void describe_place(const ucontext_t *at, char *text, size_t len)
{
	uintptr_t pc = (uintptr_t)at->uc_mcontext.gregs[REG_RIP];
#if CORO_DL_FIND_OBJECT
	struct dl_find_object found;

	if (_dl_find_object((void *)pc, &found) == 0) {
		const char *name = found.dlfo_link_map->l_name;

		snprintf(text, len, "%s+0x%lx",
			 name[0] ? name : program_invocation_name,
			 (unsigned long)(pc - found.dlfo_link_map->l_addr));
		return;
	}
#endif
	snprintf(text, len, "0x%lx", (unsigned long)pc);
}

/* ---- a crash ---- */

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
#define N_SIGNALS (sizeof(signals) / sizeof(signals[0]))

static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned watchers;
static struct sigaction before[N_SIGNALS];

/* Write to stderr, unless its reader is so far behind that this would block. */
static void stderr_write(const char *text)
{
	struct pollfd pfd = {.fd = STDERR_FILENO, .events = POLLOUT};

	if (poll(&pfd, 1, 100) > 0 &&
	    write(STDERR_FILENO, text, strlen(text)) < 0) {
		/* there is no reader */
	}
}

static const struct coro_stack *stack_guarding(const struct coro_sched *s,
					       const char *addr)
{
	for (unsigned i = 0; i < s->nstacks; i++)
		if (coro_stack_guards(&s->stacks[i], addr))
			return &s->stacks[i];
	for (struct coro_stack *st = s->private_all; st; st = st->next_all)
		if (coro_stack_guards(st, addr))
			return st;
	return NULL;
}

static void report_overflow(const struct coro_stack *st, const void *addr)
{
	const struct coro *co = (const struct coro *)st->ctx.occupant;
	char msg[400];

	snprintf(msg, sizeof(msg),
		 "coronet: coroutine '%s' (%p) overflowed its stack of %zu "
		 "bytes (touched %p, in the guard page). Raise %s.\n",
		 co ? coro_name(co) : "?", (const void *)co, st->size, addr,
		 st->shared ? "coro_sched_attr.stack_size"
			    : "coro_attr.stack_size");
	stderr_write(msg);
}

static void report_crash(const struct coro *co, const siginfo_t *info,
			 const ucontext_t *at)
{
	static const char *const names[N_SIGNALS] = {
		"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"};
	char who[300], where[200], address[40] = "", msg[600];
	unsigned i = 0;

	while (signals[i] != info->si_signo)
		i++;
	coro_describe(co, at, who, sizeof(who));
	describe_place(at, where, sizeof(where));
	if (info->si_code > 0 && i < 2)
		snprintf(address, sizeof(address), " (address %p)",
			 info->si_addr);
	snprintf(msg, sizeof(msg), "coronet: %s%s in %s, at %s\n", names[i],
		 address, who, where);
	stderr_write(msg);
}

static struct sigaction *before_us(int signo)
{
	unsigned i = 0;

	while (signals[i] != signo)
		i++;
	return &before[i];
}

/*
 * Reports the crash. Then calls the handler that was installed before, or
 * restores it and repeats the instruction, so that a core file shows where it
 * was.
 */
static void on_crash(int signo, siginfo_t *info, void *context)
{
	const struct coro_sched *s = coro_tls_sched;
	const struct coro_stack *st = NULL;
	const struct sigaction *old = before_us(signo);
	const struct coro *co = s ? coro_sched_running(s) : NULL;
	int saved = errno;

	if (s && signo == SIGSEGV && info->si_code > 0)
		st = stack_guarding(s, info->si_addr);
	if (st)
		report_overflow(st, info->si_addr);
	else if (co)
		report_crash(co, info, context);
	errno = saved;
	if (!st && old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(signo, info, context);
		return;
	}
	sigaction(signo, old, NULL);
	if (info->si_code <= 0) /* sent by a process: it won't recur */
		syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid),
			signo);
}

/* The handler needs a stack that isn't the one that overflowed. */
static void altstack_set(struct coro_sched *s)
{
	stack_t ss;

	if (sigaltstack(NULL, &ss) < 0 || !(ss.ss_flags & SS_DISABLE))
		return;
	ss.ss_size = ALTSTACK_BYTES;
	ss.ss_flags = 0;
	ss.ss_sp = mmap(NULL, ss.ss_size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ss.ss_sp == MAP_FAILED)
		return;
	s->altstack = ss.ss_sp;
	sigaltstack(&ss, NULL);
}

void coro_crash_watch(struct coro_sched *s)
{
	struct sigaction sa = {.sa_sigaction = on_crash,
			       .sa_flags = SA_SIGINFO | SA_ONSTACK};

	altstack_set(s);
	pthread_mutex_lock(&watch_lock);
	if (watchers++ == 0)
		for (unsigned i = 0; i < N_SIGNALS; i++)
			sigaction(signals[i], &sa, &before[i]);
	pthread_mutex_unlock(&watch_lock);
}

/* Restore the old handler, unless another one has replaced ours. */
static void put_back(unsigned i)
{
	struct sigaction now;

	if (sigaction(signals[i], NULL, &now) == 0 &&
	    now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_crash)
		sigaction(signals[i], &before[i], NULL);
}

void coro_crash_unwatch(struct coro_sched *s)
{
	pthread_mutex_lock(&watch_lock);
	if (--watchers == 0)
		for (unsigned i = 0; i < N_SIGNALS; i++)
			put_back(i);
	pthread_mutex_unlock(&watch_lock);
	if (s->altstack) {
		sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
		munmap(s->altstack, ALTSTACK_BYTES);
	}
}
