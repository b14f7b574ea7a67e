/*
 * Opens a stack as its options say, then makes the system call that the first
 * argument names, and prints its error if the process still runs. A second
 * thread, which is older than the stack, makes it if the name begins with
 * "thread:". For test_privileges.py.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <coronet/net.h>

static char *none[] = {NULL};
static const char *wanted;
static sem_t opened, done;

static int call_execve(void)
{
	return execve("/bin/true", none, none);
}

static int call_fork(void)
{
	return (int)syscall(SYS_fork);
}

static int call_ptrace(void)
{
	return (int)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static int call_process_vm_readv(void)
{
	return (int)process_vm_readv(getppid(), NULL, 0, NULL, 0, 0);
}

static int call_mount(void)
{
	return mount("none", "/nowhere", "tmpfs", 0, NULL);
}

static int call_setuid(void)
{
	return (int)syscall(SYS_setuid, 0);
}

static int call_capset(void)
{
	return (int)syscall(SYS_capset, NULL, NULL);
}

static int call_unshare(void)
{
	return unshare(CLONE_NEWUSER);
}

static int call_bpf(void)
{
	return (int)syscall(SYS_bpf, 0, NULL, 0);
}

static int call_init_module(void)
{
	return (int)syscall(SYS_init_module, NULL, 0, "");
}

static int call_socket(void)
{
	return socket(AF_ALG, SOCK_SEQPACKET, 0);
}

static int call_mmap(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
		       ? -1
		       : 0;
}

static int call_rt_sigaction(void)
{
	return signal(SIGSYS, SIG_IGN) == SIG_ERR ? -1 : 0;
}

static int call_kill(void)
{
	return kill(getppid(), 0);
}

static int call_io_uring_setup(void)
{
	return (int)syscall(SYS_io_uring_setup, 0, NULL);
}

/* Allowed. */
static int call_openat(void)
{
	return open("/proc/self/stat", O_RDONLY);
}

static const struct {
	const char *name;
	int (*fn)(void);
} calls[] = {
	{"execve", call_execve},
	{"fork", call_fork},
	{"ptrace", call_ptrace},
	{"process_vm_readv", call_process_vm_readv},
	{"mount", call_mount},
	{"setuid", call_setuid},
	{"capset", call_capset},
	{"unshare", call_unshare},
	{"bpf", call_bpf},
	{"init_module", call_init_module},
	{"socket", call_socket},
	{"mmap", call_mmap},
	{"rt_sigaction", call_rt_sigaction},
	{"kill", call_kill},
	{"io_uring_setup", call_io_uring_setup},
	{"openat", call_openat},
};

static void make_call(void)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (strcmp(calls[i].name, wanted) == 0) {
			int rc = calls[i].fn();

			printf("%s: %s\n", wanted,
			       rc < 0 ? strerror(errno) : "done");
			fflush(stdout);
		}
}

static void *wait_and_call(void *arg)
{
	sem_wait(&opened);
	make_call();
	sem_post(&done);
	return NULL;
}

int main(int argc, char **argv)
{
	struct net_stack *stack;
	pthread_t thread;
	bool other;

	if (argc < 2)
		return 2;
	other = strncmp(argv[1], "thread:", 7) == 0;
	wanted = argv[1] + (other ? 7 : 0);
	argv[1] = argv[0];
	sem_init(&opened, 0, 0);
	sem_init(&done, 0, 0);
	if (pthread_create(&thread, NULL, wait_and_call, NULL) != 0 ||
	    net_stack_open_args(argc - 1, argv + 1, &stack) < 0)
		return 1;
	puts("open");
	fflush(stdout);
	if (other) {
		sem_post(&opened);
		sem_wait(&done);
	} else {
		make_call();
		sem_post(&opened);
	}
	net_stack_close(stack);
	return 0;
}
