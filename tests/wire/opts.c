/* The command line of wire. */
#include "tests/wire/opts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/common/opts.h"

#define AT(member) OPT_AT(struct wire_opts, member)
#define LINK	   "KIND:NAME[,KEY=VALUE...]"

/* ---- links ---- */

static bool is_taken(const struct wire_opts *opts, const struct glue_link *link)
{
	for (unsigned i = 0; i < opts->n_links; i++)
		if (link->kind == opts->links[i].kind &&
		    strcmp(link->name, opts->links[i].name) == 0)
			return true;
	return false;
}

static int add_link(const char *text, enum wire_end end, struct wire_opts *opts,
		    struct opt_error *error)
{
	struct glue_link *link = &opts->links[opts->n_links];
	char reason[sizeof(error->text)];

	if (opts->n_links == WIRE_LINKS)
		return opt_expect(error, "%d links at most", WIRE_LINKS);
	if (glue_link_parse(text, link, reason, sizeof(reason)) < 0)
		return opt_fail(error, "--%s", reason);
	if (is_taken(opts, link))
		return opt_expect(error, "a link of its own");
	opts->end_of[opts->n_links++] = end;
	return 0;
}

/* A, then B. */
static int read_link(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	struct wire_opts *opts = base;
	enum wire_end end = opts->link_texts[WIRE_A] ? WIRE_B : WIRE_A;

	if (opts->link_texts[WIRE_B])
		return opt_expect(error, "two links, no third");
	opts->link_texts[end] = text;
	return add_link(text, end, opts, error);
}

static int read_beside_a(const struct opt *opt, const char *text, void *base,
			 struct opt_error *error)
{
	return add_link(text, WIRE_A, base, error);
}

static int read_beside_b(const struct opt *opt, const char *text, void *base,
			 struct opt_error *error)
{
	return add_link(text, WIRE_B, base, error);
}

/* ---- the table ---- */

static const struct opt rows[] = {
	{"link", OPT_CUSTOM, .arg = LINK, .read = read_link,
	 .example = "tap:wa",
	 .help = "An end, A and then B, written as for every coronet program",
	 .group = 1},
	{"beside-a", OPT_CUSTOM, .arg = LINK, .read = read_beside_a,
	 .example = "tap:wc",
	 .help = "One more link at A's end: it shares rate and queue with A "
		 "(repeatable)"},
	{"beside-b", OPT_CUSTOM, .arg = LINK, .read = read_beside_b,
	 .example = "tap:wc", .help = "The same at B's end"},
	{"seed", OPT_NUMBER, AT(seed), "N", "1", 0, UINT64_MAX,
	 .help = "The same seed gives the same frames the same fate"},
	{"a-to-b", OPT_TEXT, AT(override[WIRE_A]), "KEY=VALUE,...",
	 .help = "The impairments below for one direction, in place of those "
		 "for both: loss=1,delay=20"},
	{"b-to-a", OPT_TEXT, AT(override[WIRE_B]), "KEY=VALUE,...",
	 .help = "The same in the other direction"},
	{"hold", OPT_NUMBER, AT(hold_pkts), "FRAMES", "16384", 1, 1000000,
	 .help = "Frames under way at most, each direction"},
	{"mtu", OPT_NUMBER, AT(mtu), "BYTES", "1500", GLUE_MTU_MIN,
	 GLUE_MTU_MAX, .help = "{min} to {max}"},
	{"seconds", OPT_SECONDS, AT(run_ns), "SECONDS", NULL,
	 OPT_NS_PER_S / 100, OPT_DAY_NS,
	 .help = "End by itself (default: at SIGINT or SIGTERM)"},
	{"json", OPT_FILE, AT(json), "FILE", .help = "The counters as JSON",
	 .example = "wire.json"},
	{"lcore", OPT_NUMBER, AT(lcore), "CPU", NULL, 0, 1023,
	 .help = "Pin the polling thread to a CPU"},
	{"poll", OPT_CHOICE, AT(adaptive), "busy|adaptive",
	 .help = "Never sleep, or back off when idle (default: adaptive on at "
		 "most two CPUs, busy on more)"},
	{"huge", OPT_CHOICE, AT(huge_off), "auto|off",
	 .help = "Use hugepages if there are any"},
	{"control", OPT_FLAG, AT(control), .arg = NULL,
	 .help = "Take lines from stdin while it runs: \"both\", \"a-to-b\" or "
		 "\"b-to-a\" and KEY=VALUE,... as above, or \"counters\""},
};

/* One direction's impairments. */
static int apply_override(struct wire_opts *opts, enum wire_end end,
			  struct opt_error *error)
{
	static const char *const names[][2] = {
		{"--a-to-b", "--a-to-b loss=1,delay=20"},
		{"--b-to-a", "--b-to-a loss=1,delay=20"}};
	char *words = strdup(opts->override[end]);
	int err = -EINVAL;

	if (words)
		err = wire_settings_apply(words, &opts->conf[end], error);
	else
		opt_expect(error, "more memory");
	free(words);
	if (err == 0)
		return 0;
	return opt_refuse(error, names[end][0], opts->override[end],
			  error->expected, names[end][1]);
}

static int check_down(const struct wire_conf *conf, struct opt_error *error)
{
	char text[32];

	if (wire_setting_up_follows_down(conf))
		return 0;
	snprintf(text, sizeof(text), "%g", (double)conf->up_ns / OPT_NS_PER_S);
	return opt_refuse(error, "--up-at", text, "a time after --down-at",
			  "--down-at 2 --up-at 3");
}

static int finish_opts(void *base, struct opt_error *error)
{
	struct wire_opts *opts = base;
	int err = 0;

	if (!opts->link_texts[WIRE_B])
		return opt_refuse(
			error,
			opts->link_texts[WIRE_A] ? "a second --link" : "--link",
			NULL, "two links", "--link tap:wa --link tap:wb");
	opts->conf[WIRE_B] = opts->conf[WIRE_A];
	for (int end = 0; err == 0 && end < WIRE_ENDS; end++) {
		if (opts->override[end])
			err = apply_override(opts, (enum wire_end)end, error);
		if (err == 0)
			err = check_down(&opts->conf[end], error);
	}
	return err;
}

OPT_SET(wire_set, rows, 0x2000, finish_opts)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct wire_opts *opts = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &opts->conf[WIRE_A];
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	default:
		return wire_set_parse(key, arg, state);
	}
}

void wire_opts_parse(int argc, char **argv, struct wire_opts *out)
{
	static const struct argp_child children[] = {
		{&wire_settings_argp, 0, "Impairments, of both directions:", 2},
		{0}};
	static const struct argp argp = {
		.options = wire_set_options,
		.parser = parse_key,
		.children = children,
		.help_filter = wire_set_help,
		.doc = "Forwards frames between two links as an imperfect "
		       "wire would.",
	};

	*out = (struct wire_opts){
		.lcore = -1,
		.adaptive = sysconf(_SC_NPROCESSORS_ONLN) <= 2,
	};
	opt_set_defaults(rows, OPT_COUNT(rows), out);
	wire_settings_init(&out->conf[WIRE_A]);
	opts_set_version("wire");
	if (argp_parse(&argp, argc, argv, 0, NULL, out))
		exit(OPT_EXIT_USAGE);
}
