/*
 * Runs a function that may exit in a process of its own, and keeps what it
 * printed.
 */
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct in_child {
	int status; /* exit status, -1 when it was killed */
	char out[8192];
	char err[8192];
};

static void in_child_read(FILE *file, char *to, size_t size)
{
	size_t len;

	rewind(file);
	len = fread(to, 1, size - 1, file);
	to[len] = '\0';
	fclose(file);
}

static inline struct in_child in_child_run(int (*function)(void *), void *arg)
{
	struct in_child result;
	FILE *out = tmpfile(), *err = tmpfile();
	int status;
	pid_t pid;

	assert(out && err);
	fflush(NULL);
	pid = fork();
	assert(pid >= 0);
	if (pid == 0) {
		dup2(fileno(out), STDOUT_FILENO);
		dup2(fileno(err), STDERR_FILENO);
		status = function(arg);
		fflush(NULL);
		_exit(status);
	}
	waitpid(pid, &status, 0);
	result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	in_child_read(out, result.out, sizeof(result.out));
	in_child_read(err, result.err, sizeof(result.err));
	return result;
}
