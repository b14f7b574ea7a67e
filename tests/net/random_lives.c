/* Runs random lives in processes of their own. */
#include "tests/net/random_lives.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CPU_SECONDS 60 /* of one life; more is a hang */

uint64_t lives_first_seed(const struct lives_opts *opts)
{
	const char *base = getenv("CORONET_SEED");

	return opts->from + (base ? strtoull(base, NULL, 0) : 0);
}

void *lives_share(size_t bytes)
{
	void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return shared;
}

bool lives_run(uint64_t seed, void (*live)(uint64_t seed, void *arg), void *arg,
	       bool bounded)
{
	struct itimerval limit = {.it_value.tv_sec = CPU_SECONDS};
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child < 0) {
		perror("fork");
		exit(1);
	}
	if (child == 0) {
		if (bounded)
			setitimer(ITIMER_VIRTUAL, &limit, NULL);
		live(seed, arg);
		fflush(stdout);
		_exit(0);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		printf("seed %llu: %s\n", (unsigned long long)seed,
		       WTERMSIG(status) == SIGVTALRM
			       ? "a life takes a minute of CPU: it hangs"
			       : strsignal(WTERMSIG(status)));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The first life once more: a seed gives the same life everywhere. */
static bool is_repeated(uint64_t seed, void (*live)(uint64_t seed, void *arg),
			bool bounded, const uint64_t *digest)
{
	uint64_t before = *digest;

	if (!lives_run(seed, live, NULL, bounded))
		return false;
	if (*digest != before)
		printf("seed %llu: another life the second time\n",
		       (unsigned long long)seed);
	return *digest == before;
}

uint64_t lives_run_many(const struct lives_opts *opts,
			void (*live)(uint64_t seed, void *arg), bool bounded,
			const uint64_t *digest, const char *program)
{
	uint64_t done = 0, seed = lives_first_seed(opts);

	for (; done < opts->count; done++, seed++) {
		if (lives_run(seed, live, NULL, bounded) &&
		    (done || is_repeated(seed, live, bounded, digest)))
			continue;
		printf("replay: %s -v --seed %llu\n", program,
		       (unsigned long long)seed);
		break;
	}
	return done;
}
