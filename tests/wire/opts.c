#include "tests/wire/opts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/common/opts.h"

/* Decimal numbers are read with nine decimals, as 1e-9 units. */
#define UNIT	  OPTS_NS_PER_S
#define DAY_NS	  (86400 * OPTS_NS_PER_S)
#define MAX_MS	  60000
#define MAX_MBIT  400000
#define MAX_BYTES (UINT64_C(1) << 40)

enum kind { PERCENT, MS, SECONDS, MBIT, QUEUE };

/* What both an option and a key of --a-to-b or --b-to-a may set. */
static const struct setting {
	const char *name;
	enum kind kind;
	size_t offset; /* in struct wire_conf; QUEUE sets two members */
	const char *arg;
	const char *example;
	const char *doc;
} settings[] = {
	{"loss", PERCENT, offsetof(struct wire_conf, loss), "PERCENT", "1",
	 "Frames that vanish"},
	{"delay", MS, offsetof(struct wire_conf, delay_ns), "MS", "10",
	 "Each way: a round trip takes twice as long"},
	{"jitter", MS, offsetof(struct wire_conf, jitter_ns), "MS", "2",
	 "Added to the delay, evenly from 0 to MS; overtakes nobody"},
	{"reorder", PERCENT, offsetof(struct wire_conf, reorder), "PERCENT",
	 "0.5", "Frames held back so that later ones overtake them"},
	{"reorder-by", MS, offsetof(struct wire_conf, reorder_by_ns), "MS", "1",
	 "For how long (default 1)"},
	{"duplicate", PERCENT, offsetof(struct wire_conf, duplicate), "PERCENT",
	 "0.1", "Frames that come twice"},
	{"corrupt", PERCENT, offsetof(struct wire_conf, corrupt), "PERCENT",
	 "0.1", "Frames with one bit flipped behind the Ethernet header"},
	{"rate", MBIT, offsetof(struct wire_conf, rate_bps), "MBIT", "100",
	 "Bits a second, counted from the Ethernet header on; 0: no limit"},
	{"queue", QUEUE, 0, "FRAMES|BYTES", "100 or 64000B",
	 "Waiting for the rate, the frame being sent included; what finds it "
	 "full is dropped (default 1000)"},
	{"down-at", SECONDS, offsetof(struct wire_conf, down_ns), "SECONDS",
	 "2", "The link goes down: nothing arrives and nothing leaves"},
	{"up-at", SECONDS, offsetof(struct wire_conf, up_ns), "SECONDS", "3",
	 "The link comes back"},
};
#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

static const char *const expected[] = {
	[PERCENT] = "percent from 0 to 100",
	[MS] = "milliseconds from 0 to 60000",
	[SECONDS] = "seconds from 0 to 86400 after the start",
	[MBIT] = "Mbit/s from 0.001 to 400000, or 0",
	[QUEUE] = "frames from 1 to 1000000, or bytes with a B behind them",
};

enum {
	OPT_SETTING = 0x1000, /* and on, one for each of settings[] */
	OPT_LINK = 0x2000,
	OPT_SEED,
	OPT_A_TO_B,
	OPT_B_TO_A,
	OPT_HOLD,
	OPT_MTU,
	OPT_SECONDS,
	OPT_JSON,
	OPT_LCORE,
	OPT_POLL,
	OPT_HUGE,
};

/* Options that count only once all of them are known. */
struct parsing {
	struct wire_opts *opts;
	char *override[WIRE_ENDS];
};

static int parse_queue(const char *text, struct wire_conf *conf)
{
	size_t len = strlen(text);
	char digits[24];
	uint64_t n;
	int err;

	if (len == 0 || text[len - 1] != 'B') {
		err = opts_parse_number(text, 1, 1000000, &n);
		if (err == 0) {
			conf->queue_pkts = n;
			conf->queue_bytes = 0;
		}
		return err;
	}
	if (len > sizeof(digits))
		return -EINVAL;
	memcpy(digits, text, len - 1);
	digits[len - 1] = '\0';
	err = opts_parse_number(digits, 1, MAX_BYTES, &n);
	if (err == 0) {
		conf->queue_pkts = 0;
		conf->queue_bytes = n;
	}
	return err;
}

static int parse_value(const struct setting *setting, const char *text,
		       struct wire_conf *conf)
{
	char *member = (char *)conf + setting->offset;
	int64_t value = 0;
	int err = 0;

	switch (setting->kind) {
	case PERCENT:
		err = opts_parse_seconds(text, 0, 100 * UNIT, &value);
		if (err == 0)
			*(uint64_t *)(void *)member =
				(uint64_t)((unsigned __int128)value *
					   WIRE_SURE / (100 * UNIT));
		return err;
	case MS:
		err = opts_parse_seconds(text, 0, MAX_MS * UNIT, &value);
		if (err == 0)
			*(int64_t *)(void *)member = value / 1000;
		return err;
	case SECONDS:
		err = opts_parse_seconds(text, 0, DAY_NS, &value);
		if (err == 0)
			*(int64_t *)(void *)member = value;
		return err;
	case MBIT:
		err = opts_parse_seconds(text, 0, MAX_MBIT * UNIT, &value);
		if (err == 0 && value != 0 && value < UNIT / 1000)
			err = -ERANGE;
		if (err == 0)
			*(uint64_t *)(void *)member = (uint64_t)value / 1000;
		return err;
	case QUEUE:
		return parse_queue(text, conf);
	}
	return -EINVAL;
}

static void take_setting(const struct argp_state *state,
			 const struct setting *setting, const char *text,
			 struct wire_opts *opts)
{
	char option[32], example[64];

	if (parse_value(setting, text, &opts->conf[WIRE_A]) == 0 &&
	    parse_value(setting, text, &opts->conf[WIRE_B]) == 0)
		return;
	snprintf(option, sizeof(option), "--%s", setting->name);
	snprintf(example, sizeof(example), "--%s %s", setting->name,
		 setting->example);
	opts_refuse(state, option, text, expected[setting->kind], example);
}

static const struct setting *find_setting(const char *name, size_t len)
{
	for (size_t i = 0; i < N_SETTINGS; i++)
		if (strlen(settings[i].name) == len &&
		    strncmp(settings[i].name, name, len) == 0)
			return &settings[i];
	return NULL;
}

/* "loss=1,delay=20" for one direction. */
static void take_override(const struct argp_state *state, const char *option,
			  char *words, struct wire_conf *conf)
{
	char example[64], *save = NULL;

	snprintf(example, sizeof(example), "%s loss=1,delay=20", option);
	if (!*words)
		opts_refuse(state, option, words, "key=value,...", example);
	for (char *word = strtok_r(words, ",", &save); word;
	     word = strtok_r(NULL, ",", &save)) {
		size_t len = strcspn(word, "=");
		const struct setting *setting = find_setting(word, len);

		if (!setting || !word[len])
			opts_refuse(state, option, word,
				    "key=value with loss, delay, jitter, "
				    "reorder, reorder-by, duplicate, corrupt, "
				    "rate, queue, down-at or up-at",
				    example);
		if (parse_value(setting, word + len + 1, conf))
			opts_refuse(state, option, word,
				    expected[setting->kind], example);
	}
}

static void take_link(struct argp_state *state, char *text,
		      struct wire_opts *opts)
{
	struct glue_link *link;
	char err[512];

	if (opts->n_links == WIRE_ENDS)
		opts_refuse(state, "--link", text, "two links, no third",
			    "--link tap:wa --link tap:wb");
	link = &opts->links[opts->n_links];
	if (glue_link_parse(text, link, err, sizeof(err)) < 0) {
		fprintf(stderr, "%s: --%s\n", state->name, err);
		exit(OPTS_EXIT_USAGE);
	}
	if (opts->n_links == 1 && link->kind == opts->links[0].kind &&
	    strcmp(link->name, opts->links[0].name) == 0)
		opts_refuse(state, "--link", text,
			    "another link than the first",
			    "--link tap:wa --link tap:wb");
	opts->link_texts[opts->n_links++] = text;
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

	if (conf->up_ns == WIRE_NEVER || conf->up_ns > conf->down_ns)
		return;
	snprintf(text, sizeof(text), "%g", (double)conf->up_ns / OPTS_NS_PER_S);
	opts_refuse(state, "--up-at", text, "a time after --down-at",
		    "--down-at 2 --up-at 3");
}

/* What only shows when all options are known. */
static void finish(const struct argp_state *state, struct parsing *parsing)
{
	static const char *const names[] = {"--a-to-b", "--b-to-a"};
	struct wire_opts *opts = parsing->opts;

	if (opts->n_links < WIRE_ENDS)
		opts_refuse(state, opts->n_links ? "a second --link" : "--link",
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

	if (key >= OPT_SETTING && key < OPT_SETTING + (int)N_SETTINGS) {
		take_setting(state, &settings[key - OPT_SETTING], arg, opts);
		return 0;
	}
	switch (key) {
	case ARGP_KEY_INIT:
		opts_begin(state);
		set_defaults(opts);
		return 0;
	case OPT_LINK:
		take_link(state, arg, opts);
		return 0;
	case OPT_SEED:
		opts->seed = opts_number(state, "--seed", arg, 0, UINT64_MAX,
					 "--seed 7");
		return 0;
	case OPT_A_TO_B:
		parsing->override[WIRE_A] = arg;
		return 0;
	case OPT_B_TO_A:
		parsing->override[WIRE_B] = arg;
		return 0;
	case OPT_HOLD:
		opts->hold_pkts = (unsigned)opts_number(
			state, "--hold", arg, 1, 1000000, "--hold 16384");
		return 0;
	case OPT_MTU:
		opts->mtu =
			(unsigned)opts_number(state, "--mtu", arg, GLUE_MTU_MIN,
					      GLUE_MTU_MAX, "--mtu 1500");
		return 0;
	case OPT_SECONDS:
		opts->run_ns = opts_seconds(state, "--seconds", arg,
					    OPTS_NS_PER_S / 100, DAY_NS,
					    "--seconds 10");
		return 0;
	case OPT_JSON:
		opts->json = open_json(state, arg);
		return 0;
	case OPT_LCORE:
		opts->lcore = (int)opts_number(state, "--lcore", arg, 0, 1023,
					       "--lcore 0");
		return 0;
	case OPT_POLL:
		opts->adaptive =
			choose(state, "--poll", arg, "busy", "adaptive");
		return 0;
	case OPT_HUGE:
		opts->huge_off = choose(state, "--huge", arg, "auto", "off");
		return 0;
	case ARGP_KEY_ARG:
		opts_refuse_argument(state, arg);
	case ARGP_KEY_END:
		finish(state, parsing);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option first_options[] = {
	{"link", OPT_LINK, "KIND:NAME[,KEY=VALUE...]", 0,
	 "An end, A and then B, written as for every coronet program", 1},
	{"seed", OPT_SEED, "N", 0,
	 "The same seed gives the same frames the same fate (default 1)", 1},
	{"a-to-b", OPT_A_TO_B, "KEY=VALUE,...", 0,
	 "The impairments below for one direction, in place of those for both: "
	 "loss=1,delay=20",
	 1},
	{"b-to-a", OPT_B_TO_A, "KEY=VALUE,...", 0, "The same the other way", 1},
	{"hold", OPT_HOLD, "FRAMES", 0,
	 "Frames under way at most, each direction (default 16384)", 1},
	{"mtu", OPT_MTU, "BYTES", 0, "576 to 9000 (default 1500)", 1},
	{"seconds", OPT_SECONDS, "SECONDS", 0,
	 "End by itself (default: at SIGINT or SIGTERM)", 1},
	{"json", OPT_JSON, "FILE", 0, "The counters as JSON", 1},
	{"lcore", OPT_LCORE, "CPU", 0, "Pin the polling thread to a CPU", 1},
	{"poll", OPT_POLL, "busy|adaptive", 0,
	 "Never sleep, or back off when idle (default: adaptive on at most two "
	 "CPUs, busy on more)",
	 1},
	{"huge", OPT_HUGE, "auto|off", 0, "Use hugepages if there are any", 1},
	{0, 0, 0, 0, "Impairments, of both directions:", 2},
};
#define N_FIRST (sizeof(first_options) / sizeof(first_options[0]))

void wire_opts_parse(int argc, char **argv, struct wire_opts *out)
{
	struct argp_option options[N_FIRST + N_SETTINGS + 1] = {0};
	struct parsing parsing = {.opts = out};
	const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Forwards frames between two links as an imperfect "
		       "wire would.",
	};

	memcpy(options, first_options, sizeof(first_options));
	for (size_t i = 0; i < N_SETTINGS; i++)
		options[N_FIRST + i] = (struct argp_option){
			.name = settings[i].name,
			.key = OPT_SETTING + (int)i,
			.arg = settings[i].arg,
			.doc = settings[i].doc,
			.group = 2,
		};
	opts_set_version("wire");
	if (argp_parse(&argp, argc, argv, 0, NULL, &parsing))
		exit(OPTS_EXIT_USAGE);
}
