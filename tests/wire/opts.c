#include "tests/wire/opts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/common/opts.h"

#define DAY_NS (86400 * OPT_NS_PER_S)

enum {
	KEY_SETTING = 0x1000, /* and on, one for each of wire_settings[] */
	KEY_LINK = 0x2000,
	KEY_BESIDE_A,
	KEY_BESIDE_B,
	KEY_SEED,
	KEY_A_TO_B,
	KEY_B_TO_A,
	KEY_HOLD,
	KEY_MTU,
	KEY_SECONDS,
	KEY_JSON,
	KEY_LCORE,
	KEY_POLL,
	KEY_HUGE,
	KEY_CONTROL,
};

/* Options that count only once all of them are known. */
struct parsing {
	struct wire_opts *opts;
	char *override[WIRE_ENDS];
};

static void take_setting(const struct argp_state *state,
			 const struct wire_setting *setting, const char *text,
			 struct wire_opts *opts)
{
	char option[32], example[64];

	if (wire_setting_parse(setting, text, &opts->conf[WIRE_A]) == 0 &&
	    wire_setting_parse(setting, text, &opts->conf[WIRE_B]) == 0)
		return;
	snprintf(option, sizeof(option), "--%s", setting->name);
	snprintf(example, sizeof(example), "--%s %s", setting->name,
		 setting->example);
	opts_refuse(state, option, text, wire_setting_expected(setting),
		    example);
}

/* "loss=1,delay=20" for one direction. */
static void take_override(const struct argp_state *state, const char *option,
			  char *words, struct wire_conf *conf)
{
	const char *wrong, *expected;
	char example[64];

	snprintf(example, sizeof(example), "%s loss=1,delay=20", option);
	if (wire_settings_apply(words, conf, &wrong, &expected) < 0)
		opts_refuse(state, option, wrong, expected, example);
}

static bool is_taken(const struct wire_opts *opts, const struct glue_link *link)
{
	for (unsigned i = 0; i < opts->n_links; i++)
		if (link->kind == opts->links[i].kind &&
		    strcmp(link->name, opts->links[i].name) == 0)
			return true;
	return false;
}

static void add_link(struct argp_state *state, const char *option, char *text,
		     enum wire_end end, struct wire_opts *opts)
{
	struct glue_link *link = &opts->links[opts->n_links];
	char err[512], example[64];

	snprintf(example, sizeof(example), "%s tap:wc", option);
	if (opts->n_links == WIRE_LINKS)
		opts_refuse(state, option, text, "8 links at most", example);
	if (glue_link_parse(text, link, err, sizeof(err)) < 0) {
		fprintf(stderr, "%s: --%s\n", state->name, err);
		exit(OPT_EXIT_USAGE);
	}
	if (is_taken(opts, link))
		opts_refuse(state, option, text, "a link of its own", example);
	opts->end_of[opts->n_links++] = end;
}

/* A, then B. */
static void take_link(struct argp_state *state, char *text,
		      struct wire_opts *opts)
{
	enum wire_end end = opts->link_texts[WIRE_A] ? WIRE_B : WIRE_A;

	if (opts->link_texts[WIRE_B])
		opts_refuse(state, "--link", text, "two links, no third",
			    "--link tap:wa --link tap:wb");
	add_link(state, "--link", text, end, opts);
	opts->link_texts[end] = text;
}

static FILE *open_json(const struct argp_state *state, const char *path)
{
	FILE *file = fopen(path, "we");
	char reason[160];

	if (file)
		return file;
	snprintf(reason, sizeof(reason), "a file that can be written (%s)",
		 strerror(errno));
	opts_refuse(state, "--json", path, reason, "--json wire.json");
}

static void set_defaults(struct wire_opts *opts)
{
	*opts = (struct wire_opts){
		.seed = 1,
		.hold_pkts = 16384,
		.mtu = 1500,
		.lcore = -1,
		.adaptive = sysconf(_SC_NPROCESSORS_ONLN) <= 2,
	};
	for (int end = 0; end < WIRE_ENDS; end++) {
		wire_conf_init(&opts->conf[end]);
		opts->conf[end].reorder_by_ns = 1000000;
		opts->conf[end].queue_pkts = 1000;
	}
}

static void check_down(const struct argp_state *state,
		       const struct wire_conf *conf)
{
	char text[32];

	if (wire_setting_up_follows_down(conf))
		return;
	snprintf(text, sizeof(text), "%g", (double)conf->up_ns / OPT_NS_PER_S);
	opts_refuse(state, "--up-at", text, "a time after --down-at",
		    "--down-at 2 --up-at 3");
}

/* Checks that need all options. */
static void finish(const struct argp_state *state, struct parsing *parsing)
{
	static const char *const names[] = {"--a-to-b", "--b-to-a"};
	struct wire_opts *opts = parsing->opts;

	if (!opts->link_texts[WIRE_B])
		opts_refuse(state,
			    opts->link_texts[WIRE_A] ? "a second --link"
						     : "--link",
			    NULL, "two links", "--link tap:wa --link tap:wb");
	for (int end = 0; end < WIRE_ENDS; end++) {
		if (parsing->override[end])
			take_override(state, names[end], parsing->override[end],
				      &opts->conf[end]);
		check_down(state, &opts->conf[end]);
	}
}

static bool choose(const struct argp_state *state, const char *option,
		   const char *text, const char *no, const char *yes)
{
	char words[64], example[64];

	if (strcmp(text, no) == 0)
		return false;
	if (strcmp(text, yes) == 0)
		return true;
	snprintf(words, sizeof(words), "%s or %s", no, yes);
	snprintf(example, sizeof(example), "%s %s", option, yes);
	opts_refuse(state, option, text, words, example);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct parsing *parsing = state->input;
	struct wire_opts *opts = parsing->opts;

	if (key >= KEY_SETTING && key < KEY_SETTING + WIRE_SETTINGS) {
		take_setting(state, &wire_settings[key - KEY_SETTING], arg,
			     opts);
		return 0;
	}
	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		set_defaults(opts);
		return 0;
	case KEY_LINK:
		take_link(state, arg, opts);
		return 0;
	case KEY_BESIDE_A:
		add_link(state, "--beside-a", arg, WIRE_A, opts);
		return 0;
	case KEY_BESIDE_B:
		add_link(state, "--beside-b", arg, WIRE_B, opts);
		return 0;
	case KEY_SEED:
		opts->seed = opts_number(state, "--seed", arg, 0, UINT64_MAX,
					 "--seed 7");
		return 0;
	case KEY_A_TO_B:
		parsing->override[WIRE_A] = arg;
		return 0;
	case KEY_B_TO_A:
		parsing->override[WIRE_B] = arg;
		return 0;
	case KEY_HOLD:
		opts->hold_pkts = (unsigned)opts_number(
			state, "--hold", arg, 1, 1000000, "--hold 16384");
		return 0;
	case KEY_MTU:
		opts->mtu =
			(unsigned)opts_number(state, "--mtu", arg, GLUE_MTU_MIN,
					      GLUE_MTU_MAX, "--mtu 1500");
		return 0;
	case KEY_SECONDS:
		opts->run_ns = opts_seconds(state, "--seconds", arg,
					    OPT_NS_PER_S / 100, DAY_NS,
					    "--seconds 10");
		return 0;
	case KEY_JSON:
		opts->json = open_json(state, arg);
		return 0;
	case KEY_LCORE:
		opts->lcore = (int)opts_number(state, "--lcore", arg, 0, 1023,
					       "--lcore 0");
		return 0;
	case KEY_POLL:
		opts->adaptive =
			choose(state, "--poll", arg, "busy", "adaptive");
		return 0;
	case KEY_HUGE:
		opts->huge_off = choose(state, "--huge", arg, "auto", "off");
		return 0;
	case KEY_CONTROL:
		opts->control = true;
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	case ARGP_KEY_END:
		finish(state, parsing);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option first_options[] = {
	{"link", KEY_LINK, "KIND:NAME[,KEY=VALUE...]", 0,
	 "An end, A and then B, written as for every coronet program", 1},
	{"beside-a", KEY_BESIDE_A, "KIND:NAME[,KEY=VALUE...]", 0,
	 "One more link at A's end: it shares rate and queue with A "
	 "(repeatable)",
	 1},
	{"beside-b", KEY_BESIDE_B, "KIND:NAME[,KEY=VALUE...]", 0,
	 "The same at B's end", 1},
	{"seed", KEY_SEED, "N", 0,
	 "The same seed gives the same frames the same fate (default 1)", 1},
	{"a-to-b", KEY_A_TO_B, "KEY=VALUE,...", 0,
	 "The impairments below for one direction, in place of those for both: "
	 "loss=1,delay=20",
	 1},
	{"b-to-a", KEY_B_TO_A, "KEY=VALUE,...", 0,
	 "The same in the other direction", 1},
	{"hold", KEY_HOLD, "FRAMES", 0,
	 "Frames under way at most, each direction (default 16384)", 1},
	{"mtu", KEY_MTU, "BYTES", 0, "576 to 9000 (default 1500)", 1},
	{"seconds", KEY_SECONDS, "SECONDS", 0,
	 "End by itself (default: at SIGINT or SIGTERM)", 1},
	{"json", KEY_JSON, "FILE", 0, "The counters as JSON", 1},
	{"lcore", KEY_LCORE, "CPU", 0, "Pin the polling thread to a CPU", 1},
	{"poll", KEY_POLL, "busy|adaptive", 0,
	 "Never sleep, or back off when idle (default: adaptive on at most two "
	 "CPUs, busy on more)",
	 1},
	{"huge", KEY_HUGE, "auto|off", 0, "Use hugepages if there are any", 1},
	{"control", KEY_CONTROL, NULL, 0,
	 "Take lines from stdin while it runs: \"both\", \"a-to-b\" or "
	 "\"b-to-a\" and KEY=VALUE,... as above, or \"counters\"",
	 1},
	{0, 0, 0, 0, "Impairments, of both directions:", 2},
};
#define N_FIRST (sizeof(first_options) / sizeof(first_options[0]))

void wire_opts_parse(int argc, char **argv, struct wire_opts *out)
{
	struct argp_option options[N_FIRST + WIRE_SETTINGS + 1] = {0};
	struct parsing parsing = {.opts = out};
	const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Forwards frames between two links as an imperfect "
		       "wire would.",
	};

	memcpy(options, first_options, sizeof(first_options));
	for (size_t i = 0; i < WIRE_SETTINGS; i++)
		options[N_FIRST + i] = (struct argp_option){
			.name = wire_settings[i].name,
			.key = KEY_SETTING + (int)i,
			.arg = wire_settings[i].arg,
			.doc = wire_settings[i].doc,
			.group = 2,
		};
	opts_set_version("wire");
	if (argp_parse(&argp, argc, argv, 0, NULL, &parsing))
		exit(OPT_EXIT_USAGE);
}
