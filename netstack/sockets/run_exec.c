/*
 * Programs that a whole program executes in its own place, as scripts do. Such
 * a program has only the kernel's sockets, so a line says which one it is.
 *
 * The C library's execl() and its kin call execve() without passing a hook.
 * Each of them has a hook here, which ends in one of four calls. The child of
 * vfork() shares our memory, and its calls are not reported.
 */
#include "netstack/sockets/run.h"
#include "netstack/sockets/whole.h"

#include <alloca.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define DEFAULT_PATH "/bin:/usr/bin" /* glibc's, without $PATH */

static struct {
	char name[16];
	pid_t pid;
} the;

/* ---- the report ---- */

static bool replaces_program(void)
{
	return net_whole.on && !net_is_child() && getpid() == the.pid &&
	       !getenv("CORONET_RUN_CHILDREN"); /* it will have a stack, too */
}

static void report_exec(const char *path)
{
	char line[512];
	int len;

	len = snprintf(line, sizeof(line),
		       "coronet-run: %s executes %.300s, which uses the "
		       "kernel's sockets: run that program directly\n",
		       the.name, path);
	net_real()->write(STDERR_FILENO, line, (size_t)len);
}

/* Says nothing about a call that will fail. */
static void note_file(int folder, const char *path)
{
	int saved = errno;

	if (replaces_program() && faccessat(folder, path, X_OK, 0) == 0)
		report_exec(path);
	errno = saved;
}

static void note_descriptor(int fd)
{
	char link[32], path[PATH_MAX];
	int saved = errno;
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	if (len > 0 && replaces_program() && access(link, X_OK) == 0) {
		path[len] = 0;
		report_exec(path);
	}
	errno = saved;
}

/* Is there such a program in one of $PATH's folders? */
static bool is_in_path(const char *file)
{
	const char *folder = getenv("PATH");
	char path[PATH_MAX];

	if (!folder)
		folder = DEFAULT_PATH;
	for (;;) {
		int len = (int)strcspn(folder, ":");

		snprintf(path, sizeof(path), "%.*s%s%s", len, folder,
			 len ? "/" : "", file);
		if (access(path, X_OK) == 0)
			return true;
		if (!folder[len])
			return false;
		folder += len + 1;
	}
}

static void note_program(const char *file)
{
	int saved = errno;

	if (strchr(file, '/'))
		note_file(AT_FDCWD, file);
	else if (*file && replaces_program() && is_in_path(file))
		report_exec(file);
	errno = saved;
}

/* ---- calls with a list of arguments ---- */

NET_HOOK int execve(const char *path, char *const argv[], char *const envp[])
{
	note_file(AT_FDCWD, path);
	return net_real()->execve(path, argv, envp);
}

NET_HOOK int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

NET_HOOK int execvpe(const char *file, char *const argv[], char *const envp[])
{
	note_program(file);
	return net_real()->execvpe(file, argv, envp);
}

NET_HOOK int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

NET_HOOK int fexecve(int fd, char *const argv[], char *const envp[])
{
	note_descriptor(fd);
	return net_real()->fexecve(fd, argv, envp);
}

NET_HOOK int execveat(int folder, const char *path, char *const argv[],
		      char *const envp[], int flags)
{
	if (*path)
		note_file(folder, path);
	else if (flags & AT_EMPTY_PATH)
		note_descriptor(folder);
	return net_real()->execveat(folder, path, argv, envp, flags);
}

/* ---- calls with the arguments one by one ---- */

/* Counts the first argument and the NULL at the end as well. */
static size_t count_words(va_list words)
{
	size_t n = 2;

	while (va_arg(words, char *))
		n++;
	return n;
}

static void list_words(char **argv, const char *first, va_list words)
{
	*argv++ = (char *)first;
	while ((*argv++ = va_arg(words, char *)))
		;
}

/* Declares argv, on the caller's stack since vfork() may have been called, and
 * leaves words behind the NULL. */
#define LIST_WORDS(first)                                                      \
	va_list words;                                                         \
	char **argv;                                                           \
                                                                               \
	va_start(words, first);                                                \
	argv = alloca(count_words(words) * sizeof(*argv));                     \
	va_end(words);                                                         \
	va_start(words, first);                                                \
	list_words(argv, first, words)

NET_HOOK int execl(const char *path, const char *first, ...)
{
	LIST_WORDS(first);
	va_end(words);
	return execve(path, argv, environ);
}

NET_HOOK int execlp(const char *file, const char *first, ...)
{
	LIST_WORDS(first);
	va_end(words);
	return execvpe(file, argv, environ);
}

NET_HOOK int execle(const char *path, const char *first, ...)
{
	char *const *envp;

	LIST_WORDS(first);
	envp = va_arg(words, char *const *);
	va_end(words);
	return execve(path, argv, envp);
}

void net_run_exec_begin(void)
{
	prctl(PR_GET_NAME, the.name);
	the.pid = getpid();
}
