/*
 * Bulk transfer in Gbit/s between two coronet processes over memif, on two
 * CPUs, with each kind of send call. In one direction, the server discards; in
 * both, it echoes. bench-bulk-loop measures the cost in the stack alone.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bulk.h"
#include "tests/command_line.h"

#define WARM_NS INT64_C(500000000)

enum how { COPIED, OWNED, HOWS };

static const char *const how_names[HOWS] = {"copied", "given"};

/* Memory that the two processes and the parent share. */
struct shared {
	volatile uint64_t received; /* bytes at the end of the path */
	uint64_t from;
	double gbit_s;
};

static struct conf {
	unsigned mtu, streams, runs;
	size_t size;
	double seconds;
	char path[64];
} conf;

static struct shared *shared;

static void *conduct(void *arg)
{
	int64_t begun_ns;

	net_link_wait(bulk.stack, 5000);
	for (unsigned i = 0; i < conf.streams; i++)
		net_spawn(bulk.stack, "send", bulk_send, NULL);
	coro_sleep_ns(WARM_NS);
	begun_ns = net_clock_ns();
	shared->from = shared->received;
	coro_sleep_ns((int64_t)(conf.seconds * 1e9));
	shared->gbit_s = (double)(shared->received - shared->from) * 8 /
			 (double)(net_clock_ns() - begun_ns);
	net_stack_stop(bulk.stack);
	return NULL;
}

enum side { SERVER, CLIENT };

static void open_stack(enum side side, int cpu)
{
	struct net_opts opts;
	static char link[128];

	net_opts_init(&opts);
	snprintf(link, sizeof(link), "memif:%s,role=%s", conf.path,
		 side == SERVER ? "server" : "client");
	opts.links[opts.n_links++] = link;
	net_addr_parse_prefix(side == SERVER ? "10.9.0.1/16" : "10.9.1.9/16",
			      &opts.addrs[opts.n_addrs++]);
	opts.mtu = conf.mtu;
	opts.lcores[0] = cpu;
	opts.n_lcores = cpu >= 0;
	opts.poll = NET_POLL_BUSY;
	if (net_stack_open(&opts, &bulk.stack) < 0) {
		fprintf(stderr, "bench-bulk: %s\n", opts.error);
		_exit(1);
	}
}

static void serve_bulk(int cpu)
{
	freopen("/dev/null", "w", stdout);
	open_stack(SERVER, cpu);
	net_serve(bulk.stack, &net_addr_any(BULK_PORT), bulk_serve, NULL);
	_exit(0);
}

static void load_bulk(int cpu)
{
	while (access(conf.path, F_OK) < 0)
		usleep(10000);
	usleep(100000);
	open_stack(CLIENT, cpu);
	net_spawn(bulk.stack, "conduct", conduct, NULL);
	net_stack_run(bulk.stack);
	net_stack_close(bulk.stack);
	_exit(0);
}

/* Picks the first allowed CPU, and another one if there is one. */
static void two_cpus(int *a, int *b)
{
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	for (*a = 0; !CPU_ISSET(*a, &set);)
		++*a;
	for (*b = CPU_SETSIZE - 1; *b > *a && !CPU_ISSET(*b, &set);)
		--*b;
}

static void run_pair(void)
{
	pid_t server, client;
	int a, b;

	two_cpus(&a, &b);
	server = fork();
	if (server == 0)
		serve_bulk(a);
	client = fork();
	if (client == 0)
		load_bulk(b);
	waitpid(client, NULL, 0);
	kill(server, SIGTERM);
	waitpid(server, NULL, 0);
	unlink(conf.path);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(unsigned streams, bool echo, enum how how)
{
	double *each = calloc(conf.runs, sizeof(*each));

	conf.streams = streams;
	bulk.echo = echo;
	bulk.given = how == OWNED;
	for (unsigned i = 0; i < conf.runs; i++) {
		memset(shared, 0, sizeof(*shared));
		run_pair();
		each[i] = shared->gbit_s;
	}
	qsort(each, conf.runs, sizeof(*each), by_value);
	printf("%3u streams, %s, MTU %u, %s: %7.2f (%.2f - %.2f) Gbit/s\n",
	       streams, echo ? "both directions" : "one direction  ", conf.mtu,
	       how_names[how], each[conf.runs / 2], each[0],
	       each[conf.runs - 1]);
	fflush(stdout);
	free(each);
}

#define AT(member) OPT_AT(struct conf, member)

static const struct opt rows[] = {
	{"mtu", OPT_NUMBER, AT(mtu), "BYTES", "1500", 576, 9000,
	 .help = "Largest IP packet"},
	{"seconds", OPT_SECONDS_FP, AT(seconds), "SECONDS", "2",
	 OPT_NS_PER_S / 10, OPT_DAY_NS, .help = "Duration of a run"},
	{"size", OPT_NUMBER, AT(size), "BYTES", "65536", 1, BULK_MAX,
	 .help = "Bytes that are handed over at once"},
	{"runs", OPT_NUMBER, AT(runs), "N", "1", 1, 1000,
	 .help = "Runs, of which the median is shown"},
	{"streams", OPT_NUMBER, AT(streams), "N", NULL, 1, 1000,
	 .help = "Measure this number of streams alone (default: 1, and 64)"},
};

COMMAND_SET(bulk_opts, rows, NULL);

static void measure_all(unsigned only_streams)
{
	for (int echo = 0; echo < 2; echo++)
		for (enum how how = COPIED; how < HOWS; how++) {
			measure(only_streams ? only_streams : 1, echo, how);
			if (!only_streams)
				measure(64, echo, how);
		}
}

static uint8_t block[BULK_MAX];

int main(int argc, char **argv)
{
	static const struct command_line line = {
		.set = &bulk_opts,
		.doc = "Measures bulk transfer between two coronet processes "
		       "over memif.",
	};
	unsigned streams;

	command_line_read(&line, argc, argv, &conf);
	bulk = (struct bulk){.to = "10.9.0.1",
			     .from = "10.9.1.9",
			     .block = block,
			     .size = conf.size};
	streams = conf.streams;
	snprintf(conf.path, sizeof(conf.path), "/tmp/bench-bulk.%d", getpid());
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bulk.received = &shared->received;
	measure_all(streams);
	return 0;
}
