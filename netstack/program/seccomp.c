/*
 * The filter of system calls (--seccomp).
 *
 * It allows what a running program, the drivers of its links, OpenSSL, c-ares
 * and the C library use once everything is open, and what they use to close it.
 * The calls that an intruder wants most are not among them: other programs,
 * other processes, other users, namespaces, mounts, modules. Where the
 * arguments are in registers, they are checked too.
 *
 * A call that is refused raises SIGSYS, so that the program can name it before
 * it ends. The handler cannot be replaced, and a thread that blocks the signal
 * ends the process without that line.
 */
#include "netstack/program/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if NET_HAS_SECCOMP
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <linux/netlink.h>

#include <seccomp.h>
#endif

/*
 * Installs a filter that allows everything. On all threads at once: this is the
 * kernel's only way to set their no_new_privs.
 */
static int pass_on_no_new_privs(void)
{
	struct sock_filter allow = {.code = BPF_RET | BPF_K,
				    .k = SECCOMP_RET_ALLOW};
	const struct sock_fprog filter = {.len = 1, .filter = &allow};
	long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			  SECCOMP_FILTER_FLAG_TSYNC |
				  SECCOMP_FILTER_FLAG_SPEC_ALLOW,
			  &filter);

	return rc < 0 ? -errno : rc > 0 ? -ESRCH : 0;
}

#if NET_HAS_SECCOMP

/* clang-format off */
static const char *const allowed[] = {
	/* memory */
	"brk", "get_mempolicy", "madvise", "mbind", "membarrier",
	"memfd_create", "mincore", "mlock", "mlock2", "mremap", "msync",
	"munlock", "munmap", "set_mempolicy",
	/* files */
	"access", "chdir", "chmod", "close", "close_range", "copy_file_range",
	"creat", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64",
	"fallocate", "fchmod", "fchmodat", "fchmodat2", "fcntl", "fdatasync",
	"flock", "fstat", "fstatfs", "fsync", "ftruncate", "getcwd", "getdents",
	"getdents64", "link", "linkat", "lseek", "lstat", "mkdir", "mkdirat",
	"newfstatat", "open", "openat", "openat2", "pipe", "pipe2", "pread64",
	"preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read",
	"readlink", "readlinkat", "readv", "rename", "renameat", "renameat2",
	"rmdir", "sendfile", "stat", "statfs", "statx", "umask", "unlink",
	"unlinkat", "write", "writev",
	/* waiting */
	"epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait",
	"epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "poll", "ppoll",
	"pselect6", "select", "signalfd", "signalfd4", "timerfd_create",
	"timerfd_gettime", "timerfd_settime",
	/* sockets, once they are there */
	"accept", "accept4", "bind", "connect", "getpeername", "getsockname",
	"getsockopt", "listen", "recvfrom", "recvmmsg", "recvmsg", "sendmmsg",
	"sendmsg", "sendto", "setsockopt", "shutdown",
	/* threads and signals */
	"exit", "exit_group", "futex", "futex_waitv", "get_robust_list",
	"getcpu", "pause", "restart_syscall", "rseq", "rt_sigpending",
	"rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
	"sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
	"sched_getparam", "sched_getscheduler", "sched_setaffinity",
	"sched_yield", "set_robust_list", "set_tid_address", "sigaltstack",
	/* time */
	"alarm", "clock_getres", "clock_gettime", "clock_nanosleep",
	"getitimer", "gettimeofday", "nanosleep", "setitimer", "time",
	"timer_create", "timer_delete", "timer_getoverrun", "timer_gettime",
	"timer_settime", "times",
	/* what the process is */
	"capget", "getegid", "geteuid", "getgid", "getgroups", "getpgid",
	"getpgrp", "getpid", "getppid", "getrandom", "getresgid", "getresuid",
	"getrlimit", "getrusage", "getsid", "gettid", "getuid", "sysinfo",
	"uname",
};
/* clang-format on */

#define NAMES_MAX  480 /* numbers of system calls that get a name */
#define NAME_BYTES 24

/* For the signal's handler, which must not allocate. */
static char names[NAMES_MAX][NAME_BYTES];
/* DPDK's messages are captured from the standard one while ports close. */
static int stderr_fd = -1;

static struct scmp_arg_cmp compare(unsigned arg, enum scmp_compare how,
				   uint64_t value)
{
	return (struct scmp_arg_cmp){.arg = arg, .op = how, .datum_a = value};
}

static int allow(scmp_filter_ctx ctx, const char *name, unsigned n,
		 const struct scmp_arg_cmp *args)
{
	int number = seccomp_syscall_resolve_name(name);
	int err;

	if (number == __NR_SCMP_ERROR)
		return 0; /* this libseccomp or kernel is older */
	err = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, number, n, args);
	return err == -EDOM ? 0 : err; /* not on this architecture */
}

static int allow_if(scmp_filter_ctx ctx, const char *name,
		    struct scmp_arg_cmp arg)
{
	return allow(ctx, name, 1, &arg);
}

/* Allows a call for each of n values of the bits `mask` of an argument. */
static int allow_bits(scmp_filter_ctx ctx, const char *name, unsigned arg,
		      uint64_t mask, const uint64_t *values, unsigned n)
{
	int err = 0;

	for (unsigned i = 0; i < n && err == 0; i++)
		err = allow_if(
			ctx, name,
			SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, mask, values[i]));
	return err;
}

/* No memory may be written and executed. */
static int allow_memory(scmp_filter_ctx ctx)
{
	static const uint64_t plain[] = {0, PROT_WRITE, PROT_EXEC};
	int err = allow_bits(ctx, "mmap", 2, PROT_WRITE | PROT_EXEC, plain, 3);

	return err ? err : allow_bits(ctx, "mprotect", 2, PROT_EXEC, plain, 1);
}

/* Threads, but no processes and no namespaces. */
static int allow_threads(scmp_filter_ctx ctx)
{
	static const uint64_t thread[] = {CLONE_THREAD};
	const uint64_t checked = CLONE_THREAD | CLONE_NEWNS | CLONE_NEWCGROUP |
				 CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
				 CLONE_NEWPID | CLONE_NEWNET;
	int err = allow_bits(ctx, "clone", 0, checked, thread, 1);

	/* Its flags are in memory, so the C library has to use clone(). */
	if (err == 0)
		err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS),
				       SCMP_SYS(clone3), 0);
	return err;
}

/* Signals to the process itself, and any handler but that of SIGSYS. */
static int allow_signals(scmp_filter_ctx ctx)
{
	static const char *const own[] = {"kill", "tgkill", "rt_tgsigqueueinfo",
					  "rt_sigqueueinfo"};
	int err =
		allow_if(ctx, "rt_sigaction", compare(0, SCMP_CMP_NE, SIGSYS));

	for (unsigned i = 0; i < 4 && err == 0; i++)
		err = allow_if(ctx, own[i],
			       compare(0, SCMP_CMP_EQ, (uint64_t)getpid()));
	return err;
}

static int allow_netlink(scmp_filter_ctx ctx, int protocol)
{
	const struct scmp_arg_cmp args[] = {
		compare(0, SCMP_CMP_EQ, AF_NETLINK),
		compare(2, SCMP_CMP_EQ, (uint64_t)protocol)};

	return allow(ctx, "socket", 2, args);
}

/* libxdp asks by generic netlink what an interface can do, also at the end. */
static int allow_xdp(scmp_filter_ctx ctx)
{
	int err = allow(ctx, "bpf", 0, NULL);

	return err ? err : allow_netlink(ctx, NETLINK_GENERIC);
}

static int allow_sockets(scmp_filter_ctx ctx)
{
	static const int families[] = {AF_UNIX, AF_INET, AF_INET6};
	int err = allow_netlink(ctx, NETLINK_ROUTE);

	for (unsigned i = 0; i < 3 && err == 0; i++)
		err = allow_if(ctx, "socket",
			       compare(0, SCMP_CMP_EQ, (uint64_t)families[i]));
	return err ? err
		   : allow_if(ctx, "socketpair",
			      compare(0, SCMP_CMP_EQ, AF_UNIX));
}

/* prctl() for names and timers, limits to be read, ioctl() but for TIOCSTI. */
static int allow_others(scmp_filter_ctx ctx)
{
	static const unsigned prctls[] = {PR_SET_NAME, PR_GET_NAME,
					  PR_SET_TIMERSLACK, PR_GET_DUMPABLE,
					  0x53564d41 /* PR_SET_VMA */};
	int err = allow_if(ctx, "ioctl", compare(1, SCMP_CMP_NE, TIOCSTI));

	if (err == 0)
		err = allow_if(ctx, "prlimit64", compare(2, SCMP_CMP_EQ, 0));
	for (unsigned i = 0; i < sizeof(prctls) / sizeof(*prctls) && !err; i++)
		err = allow_if(ctx, "prctl",
			       compare(0, SCMP_CMP_EQ, prctls[i]));
	return err;
}

static int add_rules(scmp_filter_ctx ctx, unsigned extra)
{
	int err = 0;

	for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed) && !err; i++)
		err = allow(ctx, allowed[i], 0, NULL);
	if (err == 0)
		err = allow_memory(ctx);
	if (err == 0)
		err = allow_threads(ctx);
	if (err == 0)
		err = allow_signals(ctx);
	if (err == 0)
		err = allow_sockets(ctx);
	if (err == 0)
		err = allow_others(ctx);
	if (err == 0 && extra & NET_SECCOMP_XDP)
		err = allow_xdp(ctx);
	if (err == 0 && extra & NET_SECCOMP_PORTS)
		err = allow(ctx, "iopl", 0, NULL);
	return err;
}

/* ---- a refused call ---- */

/*
 * The call was not made. Its number can only be one that the filter refuses, so
 * the handler uses others. SA_RESETHAND lets the second signal end the process.
 */
static void on_refused(int signo, siginfo_t *info, void *context)
{
	unsigned number = (unsigned)info->si_syscall;
	char line[160];
	int n;

	n = snprintf(line, sizeof(line),
		     "coronet: --seccomp kill: system call %u (%s) is not "
		     "allowed: the program ends\n",
		     number, number < NAMES_MAX ? names[number] : "");
	if (write(stderr_fd, line, (size_t)n) < 0) {
		/* nobody reads it */
	}
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signo);
}

static void name_calls(void)
{
	for (int i = 0; i < NAMES_MAX; i++) {
		char *name =
			seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, i);

		snprintf(names[i], NAME_BYTES, "%s", name ? name : "unknown");
		free(name);
	}
}

static void catch_refused(void)
{
	struct sigaction action = {
		.sa_sigaction = on_refused,
		.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER | SA_ONSTACK,
	};

	name_calls();
	stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	sigaction(SIGSYS, &action, NULL);
}

/* ---- the filter ---- */

int net_seccomp_check(enum net_seccomp mode, char *err, size_t err_len)
{
	if (mode == NET_SECCOMP_OFF || seccomp_api_get() >= 3)
		return 0;
	snprintf(err, err_len,
		 "this kernel cannot filter the system calls of all threads "
		 "(it needs CONFIG_SECCOMP_FILTER and Linux 4.14); use "
		 "--seccomp off");
	return -EINVAL;
}

static int load_filter(scmp_filter_ctx ctx, unsigned extra)
{
	int err = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);

	if (err == 0)
		err = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_LOG, 1);
	if (err == 0)
		err = add_rules(ctx, extra);
	/* These only make it faster: no slower loads, and a tree. */
	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_SSB, 1);
	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	return err ? err : seccomp_load(ctx);
}

int net_seccomp_apply(enum net_seccomp mode, unsigned extra)
{
	scmp_filter_ctx ctx;
	int err;

	if (mode == NET_SECCOMP_OFF)
		return pass_on_no_new_privs();
	ctx = seccomp_init(mode == NET_SECCOMP_KILL ? SCMP_ACT_TRAP
						    : SCMP_ACT_LOG);
	if (!ctx)
		return -ENOMEM;
	if (mode == NET_SECCOMP_KILL)
		catch_refused();
	err = load_filter(ctx, extra);
	seccomp_release(ctx);
	return err;
}

#else

int net_seccomp_check(enum net_seccomp mode, char *err, size_t err_len)
{
	if (mode == NET_SECCOMP_OFF)
		return 0;
	snprintf(err, err_len,
		 "this build has no filter of system calls (libseccomp); use "
		 "--seccomp off");
	return -EINVAL;
}

int net_seccomp_apply(enum net_seccomp mode, unsigned extra)
{
	return mode == NET_SECCOMP_OFF ? pass_on_no_new_privs() : -EINVAL;
}

#endif
