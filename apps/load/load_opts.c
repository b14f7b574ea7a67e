#include "apps/load/load_opts.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SIZE	  64
#define DEFAULT_BULK_SIZE 16384
#define MAX_CONNS	  10000000
#define MAX_SIZE	  (16u << 20)
#define MAX_RATE	  1000000000
#define DAY_NS		  (86400 * OPT_NS_PER_S)

enum {
	KEY_TARGET = 0x100,
	KEY_MODE,
	KEY_CONNS,
	KEY_SIZE,
	KEY_SECONDS,
	KEY_WARMUP,
	KEY_RATE,
	KEY_RAMP,
	KEY_TIMEOUT,
	KEY_VERIFY,
	KEY_INTERVAL,
	KEY_JSON,
	KEY_REPORT_LIMITED,
};

static const char *const mode_names[] = {
	[LOAD_ECHO] = "echo",
	[LOAD_CPS] = "cps",
	[LOAD_IDLE] = "idle",
	[LOAD_BULK] = "bulk",
};

static const struct argp_option options[] = {
	{0, 0, 0, 0, "What to load:", 10},
	{"target", KEY_TARGET, "ADDR:PORT", 0,
	 "The server's address and port, as in 10.9.0.1:7777 or [fd00::1]:7777",
	 0},
	{"mode", KEY_MODE, "MODE", 0,
	 "echo: requests and responses on persistent connections (default); "
	 "cps: connect, one request and response, close; idle: connect and "
	 "hold; bulk: write without waiting, read what comes back",
	 0},
	{"conns", KEY_CONNS, "N", 0,
	 "Number of connections at a time (default 64)", 0},
	{"size", KEY_SIZE, "BYTES", 0,
	 "Bytes per request (default 64), or per write in bulk mode (default "
	 "16384)",
	 0},
	{"verify", KEY_VERIFY, 0, 0,
	 "Send bytes that identify their connection and position, and check "
	 "them when they come back",
	 0},
	{0, 0, 0, 0, "When and how fast:", 11},
	{"seconds", KEY_SECONDS, "SECONDS", 0,
	 "Duration of the measurement (default 5)", 0},
	{"warmup", KEY_WARMUP, "SECONDS", 0,
	 "Duration of load before the measurement (default 0)", 0},
	{"rate", KEY_RATE, "N", 0,
	 "Open loop (echo and cps): send N requests/s over all connections and "
	 "count latency from the time each should have been sent. 0, the "
	 "default, is a closed loop: each connection sends when its response "
	 "has arrived",
	 0},
	{"ramp", KEY_RAMP, "SECONDS", 0,
	 "Open the connections evenly over this time (default 0)", 0},
	{"timeout", KEY_TIMEOUT, "SECONDS", 0,
	 "Timeout of a connect and of a response (default 5)", 0},
	{0, 0, 0, 0, "What to show:", 12},
	{"interval", KEY_INTERVAL, "SECONDS", 0,
	 "Interval of progress lines on stderr; 0: none (default 1)", 0},
	{"json", KEY_JSON, "FILE", OPTION_ARG_OPTIONAL,
	 "Print the result as JSON to FILE or, without FILE, to stdout alone",
	 0},
	{"report-limited", KEY_REPORT_LIMITED, 0, 0,
	 "Report even if this load generator was the bottleneck, so that rates "
	 "are lower bounds. Without this option there is no report then, and "
	 "the exit status is 3",
	 0},
	{0},
};

const char *load_mode_name(enum load_mode mode)
{
	assert(mode < sizeof(mode_names) / sizeof(mode_names[0]));
	return mode_names[mode];
}

static void set_defaults(struct load_opts *opts)
{
	*opts = (struct load_opts){
		.mode = LOAD_ECHO,
		.conns = 64,
		.duration_ns = 5 * OPT_NS_PER_S,
		.timeout_ns = 5 * OPT_NS_PER_S,
		.interval_ns = 1 * OPT_NS_PER_S,
	};
}

static enum load_mode parse_mode(const struct argp_state *state,
				 const char *text)
{
	int i;

	for (i = 0; i <= LOAD_BULK; i++)
		if (strcmp(text, mode_names[i]) == 0)
			return (enum load_mode)i;
	opts_refuse(state, "--mode", text, "echo, cps, idle or bulk",
		    "--mode echo");
}

/*
 * getopt knows optional arguments only as --json=FILE; a word that follows and
 * is no option is taken too. "-" is stdout.
 */
static FILE *open_json(struct argp_state *state, const char *arg)
{
	char expected[160];
	FILE *file;

	if (!arg && state->next < state->argc) {
		arg = state->argv[state->next];
		if (arg[0] == '-' && arg[1] != '\0')
			arg = NULL;
		else
			state->next++;
	}
	if (!arg || strcmp(arg, "-") == 0)
		return stdout;
	file = fopen(arg, "we");
	if (file)
		return file;
	snprintf(expected, sizeof(expected), "a file that can be written (%s)",
		 strerror(errno));
	opts_refuse(state, "--json", arg, expected, "--json result.json");
}

/* Checks what is known only after all options. */
static void check_opts(struct argp_state *state, struct load_opts *opts)
{
	char rate[24];

	if (!opts->target_text)
		opts_refuse(state, "--target", NULL,
			    "the server's address and port",
			    "--target 10.9.0.1:7777");
	if (opts->rate && opts->mode != LOAD_ECHO && opts->mode != LOAD_CPS) {
		snprintf(rate, sizeof(rate), "%ju", (uintmax_t)opts->rate);
		opts_refuse(state, "--rate", rate,
			    "a rate with --mode echo or cps only",
			    "--mode echo --rate 10000");
	}
	if (opts->size == 0)
		opts->size = opts->mode == LOAD_BULK ? DEFAULT_BULK_SIZE
						     : DEFAULT_SIZE;
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct load_opts *opts = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		set_defaults(opts);
		return 0;
	case KEY_TARGET:
		if (opt_parse_endpoint(arg, &opts->target) ||
		    !opt_is_host(&opts->target))
			opts_refuse(state, "--target", arg,
				    "an IP address and a port from 1 to 65535",
				    "--target 10.9.0.1:7777 or "
				    "--target [fd00::1]:7777");
		opts->target_text = arg;
		return 0;
	case KEY_MODE:
		opts->mode = parse_mode(state, arg);
		return 0;
	case KEY_CONNS:
		opts->conns = (uint32_t)opts_number(state, "--conns", arg, 1,
						    MAX_CONNS, "--conns 64");
		return 0;
	case KEY_SIZE:
		opts->size = (uint32_t)opts_number(state, "--size", arg, 1,
						   MAX_SIZE, "--size 64");
		return 0;
	case KEY_SECONDS:
		opts->duration_ns =
			opts_seconds(state, "--seconds", arg,
				     OPT_NS_PER_S / 100, DAY_NS, "--seconds 5");
		return 0;
	case KEY_WARMUP:
		opts->warmup_ns = opts_seconds(state, "--warmup", arg, 0,
					       DAY_NS, "--warmup 0.5");
		return 0;
	case KEY_RATE:
		opts->rate = opts_number(state, "--rate", arg, 0, MAX_RATE,
					 "--rate 10000");
		return 0;
	case KEY_RAMP:
		opts->ramp_ns = opts_seconds(state, "--ramp", arg, 0, DAY_NS,
					     "--ramp 2");
		return 0;
	case KEY_TIMEOUT:
		opts->timeout_ns =
			opts_seconds(state, "--timeout", arg,
				     OPT_NS_PER_S / 100, DAY_NS, "--timeout 5");
		return 0;
	case KEY_VERIFY:
		opts->verify = true;
		return 0;
	case KEY_INTERVAL:
		opts->interval_ns = opts_seconds(state, "--interval", arg, 0,
						 DAY_NS, "--interval 1");
		return 0;
	case KEY_JSON:
		opts->json = open_json(state, arg);
		return 0;
	case KEY_REPORT_LIMITED:
		opts->report_limited = true;
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	case ARGP_KEY_END:
		check_opts(state, opts);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp load_opts_argp = {.options = options, .parser = parse_key};
