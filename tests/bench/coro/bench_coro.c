/*
 * bench_coro.c - the cost of coroutines, as ratios in one run.
 *
 * Every contender of a row runs in turn, again and again, on one pinned core;
 * its figure is the best of its turns, since other work of the machine can only
 * slow a turn down. Contenders that are not installed are reported as absent.
 * See --help.
 */
#include "bench.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include "asm/ctx.h"
#include "tests/command_line.h"

#define N_ELEMS(a) (sizeof(a) / sizeof((a)[0]))

struct coro_sched *sched;
size_t live_bytes;
static int turns;

int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

void die(const char *what, int err)
{
	fprintf(stderr, "bench-coro: %s: %s\n", what, strerror(err));
	exit(1);
}

void *map_stack(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap", errno);
	return p;
}

static uint64_t seed = 88172645463325252u;

uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

/* ---- the table ---- */

struct contender {
	const char *name;
	double (*run)(long n); /* NULL: not installed */
	double best;
};

struct row {
	const char *name;
	const char *unit;
	long n;
	size_t live;
	double goal;   /* at most so much of the reference; 0: none */
	bool absolute; /* goal is in units, not a ratio */
	bool once;
	struct contender c[8]; /* ours first, the reference second */
};

#if HAVE_BOOST
#define BOOST(fn) fn
#else
#define BOOST(fn) NULL
#endif
#if HAVE_FIBER
#define FIBER(fn) fn
#else
#define FIBER(fn) NULL
#endif
#if HAVE_PCL
#define PCL(fn) fn
#else
#define PCL(fn) NULL
#endif
#if HAVE_PTH
#define PTH(fn) fn
#else
#define PTH(fn) NULL
#endif

#define COPY_ROW(bytes)                                                        \
	{                                                                      \
		.name = "shared-" #bytes, .unit = "ns", .n = 400000,           \
		.live = bytes, .goal = 1.2,                                    \
		.c = {{"coronet", copy_coronet}, {"AVX2 floor", copy_floor}},  \
	}

static struct row rows[] = {
	{.name = "switch",
	 .unit = "ns",
	 .n = 2000000,
	 .goal = 0.64,
	 .c = {{"coronet", switch_coronet},
	       {"Boost", BOOST(switch_boost)},
	       {"floor", switch_floor},
	       {"PCL", PCL(switch_pcl)}}},
	{.name = "switch-fp",
	 .unit = "ns",
	 .n = 2000000,
	 .goal = 1.0,
	 .c = {{"coronet", switch_coronet_fp}, {"Boost", BOOST(switch_boost)}}},
	{.name = "switch-slow",
	 .unit = "ns",
	 .n = 100000,
	 .c = {{"coronet", switch_coronet},
	       {"ucontext", switch_ucontext},
	       {"Pth", PTH(switch_pth)}}},
	COPY_ROW(64),
	COPY_ROW(448),
	COPY_ROW(960),
	COPY_ROW(4032),
	{.name = "random-100k",
	 .unit = "ns",
	 .n = 1000000,
	 .goal = 0.25,
	 .c = {{"coronet", many_coronet},
	       {"floor", many_floor},
	       {"prefetched", many_floor_prefetch}}},
	{.name = "yield-64",
	 .unit = "ns",
	 .n = 1000000,
	 .c = {{"coronet", yield_64}}},
	{.name = "yield-1000",
	 .unit = "ns",
	 .n = 1000000,
	 .c = {{"coronet", yield_1000}}},
	{.name = "create",
	 .unit = "ns",
	 .n = 500000,
	 .goal = 0.3,
	 .c = {{"coronet", create_coronet},
	       {"Boost pooled", FIBER(create_boost_fiber)},
	       {"bare fcontext", BOOST(create_boost)},
	       {"spawned", create_spawn},
	       {"ucontext", create_ucontext}}},
	{.name = "timer-1M",
	 .unit = "ns",
	 .n = 500000,
	 .goal = 0.2,
	 .c = {{"coronet", timer_coronet},
	       {"binary heap", timer_heap},
	       {"touch", timer_floor}}},
	{.name = "timer-new-1M",
	 .unit = "ns",
	 .n = 512000,
	 .c = {{"coronet", timer_coronet_cycle},
	       {"binary heap", timer_heap_cycle}}},
	{.name = "timer-all-1M",
	 .unit = "ns",
	 .n = MILLION,
	 .goal = 0.2,
	 .c = {{"coronet", timer_coronet_all},
	       {"binary heap", timer_heap_all}}},
	{.name = "timer-fire-1M",
	 .unit = "ns",
	 .n = MILLION,
	 .c = {{"coronet", timer_coronet_fire},
	       {"binary heap", timer_heap_fire}}},
	{.name = "memory-1M",
	 .unit = "B",
	 .n = 1,
	 .goal = 192,
	 .absolute = true,
	 .once = true,
	 .c = {{"coronet", memory_million}}},
};

static unsigned contenders(const struct row *r)
{
	unsigned k = 0;

	while (k < N_ELEMS(r->c) && r->c[k].name != NULL)
		k++;
	return k;
}

static void run_row(struct row *r)
{
	unsigned count = contenders(r);

	live_bytes = r->live;
	for (int turn = 0; turn < (r->once ? 1 : turns); turn++)
		for (unsigned k = 0; k < count; k++) {
			struct contender *c = &r->c[k];
			double v;

			if (c->run == NULL)
				continue;
			v = c->run(r->n);
			if (turn == 0 || v < c->best)
				c->best = v;
		}
}

static double reached(const struct row *r)
{
	if (r->absolute)
		return r->c[0].best;
	return r->c[1].best > 0 ? r->c[0].best / r->c[1].best : 0;
}

static const char *verdict(const struct row *r)
{
	if (r->goal == 0)
		return "-";
	if (reached(r) == 0)
		return "absent";
	return reached(r) <= r->goal ? "PASS" : "MISS";
}

static void print_row(const struct row *r)
{
	printf("%-12s %8.1f %-2s  ", r->name, r->c[0].best, r->unit);
	if (r->goal == 0 && reached(r) > 0)
		printf("%6.2f %6s  %-6s", reached(r), "", verdict(r));
	else if (r->goal == 0)
		printf("%6s %6s  %-6s", "", "", verdict(r));
	else if (r->absolute)
		printf("%6.0f %6.0f  %-6s", reached(r), r->goal, verdict(r));
	else
		printf("%6.2f %6.2f  %-6s", reached(r), r->goal, verdict(r));
	for (unsigned k = 1; k < contenders(r); k++) {
		if (r->c[k].run == NULL)
			printf("  %s: not installed", r->c[k].name);
		else
			printf("  %s %.1f", r->c[k].name, r->c[k].best);
	}
	printf("\n");
	fflush(stdout);
}

static void write_json(FILE *f, bool (*wanted)(const char *))
{
	const char *sep = "";

	fprintf(f,
		"{\n  \"bench\": \"coro\",\n  \"isa\": \"%s\",\n"
		"  \"rows\": [",
		ctx_isa_name(ctx_isa_chosen()));
	for (size_t i = 0; i < N_ELEMS(rows); i++) {
		const struct row *r = &rows[i];

		if (!wanted(r->name))
			continue;
		fprintf(f,
			"%s\n    {\"name\": \"%s\", \"unit\": \"%s\", "
			"\"goal\": %g, \"reached\": %.3f, "
			"\"verdict\": \"%s\", \"values\": {",
			sep, r->name, r->unit, r->goal, reached(r), verdict(r));
		sep = ",";
		for (unsigned k = 0; k < contenders(r); k++)
			if (r->c[k].run != NULL)
				fprintf(f, "%s\"%s\": %.2f", k ? ", " : "",
					r->c[k].name, r->c[k].best);
		fprintf(f, "}}");
	}
	fprintf(f, "\n  ]\n}\n");
	if (fclose(f) != 0)
		die("--json", errno);
}

#define N_ROWS N_ELEMS(rows)

static struct conf {
	FILE *json;
	bool quick;
	unsigned n_only;
	const char *only[N_ROWS]; /* rows to run; none: all */
} conf;

static bool wanted(const char *name)
{
	for (unsigned i = 0; i < conf.n_only; i++)
		if (strcmp(conf.only[i], name) == 0)
			return true;
	return conf.n_only == 0;
}

static void pin(void)
{
	cpu_set_t set;
	int cpu = sched_getcpu();

	CPU_ZERO(&set);
	CPU_SET(cpu < 0 ? 0 : cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static const struct opt options[] = {
	{"json", OPT_FILE, OPT_AT(struct conf, json), "FILE",
	 .help = "Write the results as JSON to FILE",
	 .example = "/tmp/coro.json"},
	{"quick", OPT_FLAG, OPT_AT(struct conf, quick),
	 .help = "Take 3 turns instead of 15"},
};

COMMAND_SET(coro_opts, options, NULL);

static void add_row(const struct argp_state *state, const char *arg)
{
	for (size_t i = 0; i < N_ROWS && conf.n_only < N_ROWS; i++)
		if (strcmp(rows[i].name, arg) == 0) {
			conf.only[conf.n_only++] = arg;
			return;
		}
	opt_refuse_or_exit(state, "ROW", arg, "a row of the table",
			   rows[0].name);
}

int main(int argc, char **argv)
{
	static const struct command_line line = {
		.set = &coro_opts,
		.doc = "Measures the cost of coroutines, of all rows or of "
		       "each "
		       "ROW.",
		.args_doc = "[ROW...]",
		.take_argument = add_row,
	};
	unsigned missed = 0;
	int err;

	command_line_read(&line, argc, argv, &conf);
	turns = conf.quick ? 3 : 15;
	pin();
	err = coro_sched_open(&(struct coro_sched_attr){0}, &sched);
	if (err < 0)
		die("coro_sched_open", -err);
	printf("%-12s %11s  %6s %6s  %-6s  reference and others\n", "row",
	       "coronet", "ratio", "goal", "");
	for (size_t i = 0; i < N_ELEMS(rows); i++) {
		if (!wanted(rows[i].name))
			continue;
		run_row(&rows[i]);
		print_row(&rows[i]);
		missed += strcmp(verdict(&rows[i]), "MISS") == 0;
	}
	printf("best of %d interleaved turns on one core; copy loop: %s; "
	       "%u missed\n",
	       turns, ctx_isa_name(ctx_isa_chosen()), missed);
	if (conf.json != NULL)
		write_json(conf.json, wanted);
	return 0;
}
