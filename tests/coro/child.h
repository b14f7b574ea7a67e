/* child.h - runs a function in a child; captures its stderr and exit status. */
#pragma once

#include "test_coro.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static char said[65536];

/* Runs fn in a child, its stderr into `said`; returns its wait status. */
static inline int in_child(void (*fn)(void))
{
	int fds[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		/* cmocka's handlers would run the next test in the child. */
		for (int i = 0; i < 5; i++)
			signal((int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL,
				       SIGABRT}[i],
			       SIG_DFL);
		dup2(fds[1], STDERR_FILENO);
		fn();
		_exit(0);
	}
	close(fds[1]);
	while ((n = read(fds[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += n;
	said[len] = '\0';
	close(fds[0]);
	waitpid(pid, &status, 0);
	return status;
}

/* n frames of a kilobyte. */
__attribute__((noinline, unused)) static int recurses(volatile int n)
{
	volatile char pad[1000];

	pad[0] = (char)n;
	__asm__ volatile("" : : "r"(pad) : "memory");
	return n <= 0 ? pad[0] : recurses(n - 1) + pad[0];
}
