/*
 * Random lives, one after another: test-net-random --help.
 */
#include "tests/net/random.h"

#include <stdio.h>
#include <time.h>

#include "tests/net/random_lives.h"

bool verbose;
bool over_ip6;
bool bulk_lives;
bool brief_lives;

static struct conf {
	struct lives_opts lives; /* first */
	double seconds;
	bool sender, keep_going, differ, bulk, brief, ip6;
} conf = {.lives.seed = LIVES_ALL};

/* Memory shared by parent and child. */
struct shared {
	uint64_t frames;
};
static struct shared *shared;

#define AT(member) OPT_AT(struct conf, member)

static const struct opt rows[] = {
	LIVES_ROWS("300"),
	{"seconds", OPT_SECONDS_FP, AT(seconds), "SECONDS", NULL, 0,
	 100 * OPT_DAY_NS, .letter = 't',
	 .help = "Live as many lives as this time allows"},
	{"sender", OPT_FLAG, AT(sender), .letter = 'r',
	 .help = "Put the weight on what the stack receives"},
	{"differ", OPT_FLAG, AT(differ), .letter = 'd',
	 .help = "Live each life twice, with header prediction and without; "
		 "nothing may differ"},
	{"bulk", OPT_FLAG, AT(bulk), .letter = 'b',
	 .help = "Send long streams in full segments and bursts"},
	{"brief", OPT_FLAG, AT(brief), .letter = 'B',
	 .help = "End each connection after a few segments"},
	{"ip6", OPT_FLAG, AT(ip6), .letter = '6',
	 .help = "Use IPv6 instead of IPv4"},
	{"keep-going", OPT_FLAG, AT(keep_going), .letter = 'k',
	 .help = "Continue after a failure"},
};

COMMAND_SET(random_opts, rows, NULL);

static double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Which side of a pair a life is, and the round to print: differ_begin(). */
struct pair_side {
	int side;
	uint64_t round;
};

static void live_one(uint64_t seed, void *arg)
{
	const struct pair_side *which = arg;

	differ_begin(which->side, which->round);
	life_run(seed, conf.sender);
	shared->frames += life.frames;
}

static bool run_life(uint64_t seed, int side, uint64_t round)
{
	struct pair_side which = {side, round};

	return lives_run(seed, live_one, &which, true);
}

/* Returns whether both lives pass, without a difference. */
static bool run_both(uint64_t seed)
{
	bool well = run_life(seed, 0, 0) && run_life(seed, 1, 0);
	uint64_t round = well ? differ_first() : 0;

	differ_forget();
	if (!round)
		return well;
	printf("seed %llu: round %llu is another without prediction\n",
	       (unsigned long long)seed, (unsigned long long)round);
	run_life(seed, 0, round);
	run_life(seed, 1, round);
	return false;
}

static void print_replay(const char *program, uint64_t seed)
{
	printf("replay: %s%s%s%s%s %s %llu%s\n", program,
	       conf.sender ? " --sender" : "", bulk_lives ? " --bulk" : "",
	       brief_lives ? " --brief" : "", over_ip6 ? " --ip6" : "",
	       conf.differ ? "--differ --count 1 --from" : "--seed",
	       (unsigned long long)seed, conf.differ ? "" : " -v");
	fflush(stdout);
}

static void read_options(const struct command_line *line, int argc, char **argv)
{
	command_line_read(line, argc, argv, &conf);
	verbose = conf.lives.verbose;
	over_ip6 = conf.ip6;
	bulk_lives = conf.bulk;
	brief_lives = conf.brief;
	if (conf.seconds > 0)
		conf.lives.count = UINT64_MAX;
	setvbuf(stdout, NULL, _IOLBF, 0);
}

int main(int argc, char **argv)
{
	static const struct command_line line = {
		.set = &random_opts,
		.doc = "Random lives of connections against the stack.",
	};
	unsigned failed = 0;
	uint64_t seed, done = 0;
	double began = now_seconds(), until;

	read_options(&line, argc, argv);
	shared = lives_share(sizeof(*shared));
	if (!differ_init())
		return 1;
	seed = conf.lives.seed;
	if (seed != LIVES_ALL) {
		life_run(seed, conf.sender);
		printf("seed %llu: well\n", (unsigned long long)seed);
		return 0;
	}
	until = conf.seconds > 0 ? began + conf.seconds : 0;
	seed = lives_first_seed(&conf.lives);
	for (; done < conf.lives.count && (until <= 0 || now_seconds() < until);
	     done++, seed++) {
		if (conf.differ ? run_both(seed) : run_life(seed, -1, 0))
			continue;
		print_replay(argv[0], seed);
		failed++;
		if (!conf.keep_going)
			break;
	}
	printf("%s: %llu seeds, %llu frames, %.1f s; %u failed\n",
	       conf.sender ? "random sender" : "random peer",
	       (unsigned long long)done, (unsigned long long)shared->frames,
	       now_seconds() - began, failed);
	return failed != 0;
}
