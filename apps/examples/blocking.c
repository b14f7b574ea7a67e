/*
 * blocking.c - a file, a name and a database from coroutines: what can only
 * block runs on another thread by coro_offload(), and this thread goes on.
 */
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <coronet/coro_io.h>

/* Not on a coroutine's stack: another thread uses it. */
struct job {
	const char *what;
	void *(*run)(void *job);
	char result[80];
};

static int ended;

/* open(2), pwrite(2), fsync(2) and pread(2) wait for the disk. */
static void *use_file(void *arg)
{
	struct job *job = arg;
	char path[] = "/tmp/coronet-blocking-XXXXXX", text[16] = "";
	int fd = mkstemp(path);

	if (fd < 0)
		return NULL;
	unlink(path);
	if (pwrite(fd, "written", 7, 0) == 7 && fsync(fd) == 0 &&
	    pread(fd, text, sizeof(text) - 1, 0) == 7)
		snprintf(job->result, sizeof(job->result), "%s", text);
	close(fd);
	return NULL;
}

/* getaddrinfo(3) waits for name servers. */
static void *look_up(void *arg)
{
	const struct addrinfo hints = {.ai_family = AF_INET,
				       .ai_socktype = SOCK_STREAM};
	struct job *job = arg;
	struct addrinfo *found;

	if (getaddrinfo("localhost", "80", &hints, &found) != 0)
		return NULL;
	if (((struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr ==
	    htonl(INADDR_LOOPBACK))
		snprintf(job->result, sizeof(job->result), "loopback");
	freeaddrinfo(found);
	return NULL;
}

static int take_sum(void *arg, int n, char **values, char **names)
{
	struct job *job = arg;

	(void)names;
	if (n == 1 && values[0])
		snprintf(job->result, sizeof(job->result), "%s", values[0]);
	return 0;
}

/* A library that reads and writes files as it likes. */
static void *query(void *arg)
{
	sqlite3 *db;

	if (sqlite3_open(":memory:", &db) == SQLITE_OK)
		sqlite3_exec(db,
			     "create table t(n); insert into t values (1), "
			     "(2), (39); select sum(n) from t;",
			     take_sum, arg, NULL);
	sqlite3_close(db);
	return NULL;
}

static struct job jobs[] = {
	{.what = "file", .run = use_file},
	{.what = "name", .run = look_up},
	{.what = "database", .run = query},
};
#define N_JOBS (int)(sizeof(jobs) / sizeof(jobs[0]))

static void *offload(void *arg)
{
	struct job *job = arg;
	int64_t deadline =
		coro_sched_clock(coro_sched_self()) + INT64_C(30000000000);
	/* An error means that the function has not run, and never will. */
	int err = coro_offload_until(job->run, job, NULL, deadline);

	if (err < 0)
		snprintf(job->result, sizeof(job->result), "%s",
			 strerror(-err));
	ended++;
	return NULL;
}

/* Counts turns meanwhile: the thread is free for other coroutines. */
static void *go_on(void *arg)
{
	unsigned *turns = arg;

	do {
		++*turns;
		coro_sleep_ns(100000);
	} while (ended < N_JOBS);
	return NULL;
}

int main(void)
{
	static unsigned turns;
	struct coro_sched *s;
	int err;

	if (coro_sched_open(NULL, &s) < 0)
		return 1;
	for (int i = 0; i < N_JOBS; i++)
		coro_spawn(s, NULL, offload, &jobs[i], NULL);
	coro_spawn(s, NULL, go_on, &turns, NULL);
	err = coro_sched_run(s);
	coro_sched_close(s);
	for (int i = 0; i < N_JOBS; i++)
		printf("%s: %s\n", jobs[i].what, jobs[i].result);
	printf("the thread %s\n", turns ? "went on" : "stood still");
	return err < 0;
}
