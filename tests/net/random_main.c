/*
 * Random lives, one after another: test-net-random --help.
 *
 * Each life has its own process, so that no state is left of the one before,
 * and a crash is a failure of the seed like any other.
 */
#include "tests/net/random.h"

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CPU_SECONDS 60 /* of one life; more is a hang */

bool verbose;
bool over_ip6;
bool bulk_lives;
bool brief_lives;

static struct {
	uint64_t from, count;
	double seconds;
	bool sender, one, keep_going, differ;
} args = {.from = 1, .count = 300};

/* Memory shared by parent and child. */
struct shared {
	uint64_t frames;
};
static struct shared *shared;

static const struct argp_option options[] = {
	{"seed", 's', "N", 0, "live this one life, in this process", 0},
	{"verbose", 'v', NULL, 0, "print what is drawn and every segment", 0},
	{"from", 'f', "N", 0,
	 "the first seed (default 1; CORONET_SEED is "
	 "added)",
	 0},
	{"count", 'n', "N", 0, "how many (default 300)", 0},
	{"seconds", 't', "S", 0, "as many as that time allows", 0},
	{"sender", 'r', NULL, 0, "the weight on what the stack receives", 0},
	{"differ", 'd', NULL, 0,
	 "each twice, with header prediction and without: nothing may differ",
	 0},
	{"bulk", 'b', NULL, 0, "long streams in full segments and bursts", 0},
	{"brief", 'B', NULL, 0, "a few segments each, and soon an end", 0},
	{"ip6", '6', NULL, 0, "over IPv6 instead of IPv4", 0},
	{"keep-going", 'k', NULL, 0, "go on after a failure", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 's':
		args.one = true;
		args.from = strtoull(arg, NULL, 0);
		break;
	case 'v':
		verbose = true;
		break;
	case 'f':
		args.from = strtoull(arg, NULL, 0);
		break;
	case 'n':
		args.count = strtoull(arg, NULL, 0);
		break;
	case 't':
		args.seconds = strtod(arg, NULL);
		args.count = UINT64_MAX;
		break;
	case 'r':
		args.sender = true;
		break;
	case 'd':
		args.differ = true;
		break;
	case 'b':
		bulk_lives = true;
		break;
	case 'B':
		brief_lives = true;
		break;
	case '6':
		over_ip6 = true;
		break;
	case 'k':
		args.keep_going = true;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* In the child. */
static void live(uint64_t seed)
{
	struct itimerval limit = {.it_value.tv_sec = CPU_SECONDS};

	setitimer(ITIMER_VIRTUAL, &limit, NULL);
	life_run(seed, args.sender);
	shared->frames += life.frames;
}

/* Whether the life passes; side and round: see differ_begin(). */
static bool run(uint64_t seed, int side, uint64_t round)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child < 0) {
		perror("fork");
		exit(1);
	}
	if (child == 0) {
		differ_begin(side, round);
		live(seed);
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

/* Whether both lives pass, without a difference. */
static bool run_both(uint64_t seed)
{
	bool well = run(seed, 0, 0) && run(seed, 1, 0);
	uint64_t round = well ? differ_first() : 0;

	differ_forget();
	if (!round)
		return well;
	printf("seed %llu: round %llu is another without prediction\n",
	       (unsigned long long)seed, (unsigned long long)round);
	run(seed, 0, round);
	run(seed, 1, round);
	return false;
}

static void say_how(const char *program, uint64_t seed)
{
	printf("replay: %s%s%s%s%s %s %llu%s\n", program,
	       args.sender ? " --sender" : "", bulk_lives ? " --bulk" : "",
	       brief_lives ? " --brief" : "", over_ip6 ? " --ip6" : "",
	       args.differ ? "--differ --count 1 --from" : "--seed",
	       (unsigned long long)seed, args.differ ? "" : " -v");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options, parse,
		NULL,	 "Random lives of connections against the stack.",
		NULL,	 NULL,
		NULL};
	const char *base = getenv("CORONET_SEED");
	unsigned failed = 0;
	uint64_t seed, done = 0;
	double began = now_s(), until;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || !differ_init())
		return 1;
	if (args.one) {
		life_run(args.from, args.sender);
		printf("seed %llu: well\n", (unsigned long long)args.from);
		return 0;
	}
	until = args.seconds > 0 ? began + args.seconds : 0;
	seed = args.from + (base ? strtoull(base, NULL, 0) : 0);
	for (; done < args.count && (until <= 0 || now_s() < until);
	     done++, seed++) {
		if (args.differ ? run_both(seed) : run(seed, -1, 0))
			continue;
		say_how(argv[0], seed);
		failed++;
		if (!args.keep_going)
			break;
	}
	printf("%s: %llu seeds, %llu frames, %.1f s; %u failed\n",
	       args.sender ? "random sender" : "random peer",
	       (unsigned long long)done, (unsigned long long)shared->frames,
	       now_s() - began, failed);
	return failed != 0;
}
