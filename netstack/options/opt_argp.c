/*
 * Tables of options as parsers of argp(3).
 */
#include "netstack/options/opt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static opt_place_fn *place;

void opt_use_place(opt_place_fn *the_place)
{
	place = the_place;
}

static int key_of(const struct opt_set *set, size_t i)
{
	const struct opt *opt = &set->rows[i];

	if (opt->kind == OPT_HEADING || opt->kind == OPT_ALIAS)
		return 0;
	return opt->letter ? opt->letter : set->first_key + (int)i;
}

static const struct opt *find_key(const struct opt_set *set, int key)
{
	for (size_t i = 0; key && i < set->n; i++)
		if (key_of(set, i) == key)
			return &set->rows[i];
	return NULL;
}

void opt_fill_options(const struct opt_set *set)
{
	for (size_t i = 0; i < set->n; i++) {
		const struct opt *opt = &set->rows[i];

		set->options[i] = (struct argp_option){
			.name = opt->name,
			.key = key_of(set, i),
			.arg = opt->arg,
			.flags = opt->kind == OPT_ALIAS ? OPTION_ALIAS
				 : opt->arg_optional	? OPTION_ARG_OPTIONAL
							: 0,
			.doc = opt->help,
			.group = opt->group,
		};
	}
}

/* argp frees what is not `text`. */
char *opt_filter_help(const struct opt_set *set, int key, const char *text)
{
	const struct opt *opt = find_key(set, key);

	return opt && text ? opt_format_help(opt) : (char *)text;
}

void opt_begin(struct argp_state *state)
{
	argp_err_exit_status = OPT_EXIT_USAGE;
	/*
	 * getopt has already printed a line about the error when argp would
	 * print its "Try ..." here; argp_parse() then returns an error.
	 */
	state->err_stream = NULL;
	if (state->out_stream == stdout)
		state->out_stream = opt_open_help(stdout);
}

/* Not argp_failure(): a parent may have silenced argp's own stream. */
__attribute__((noreturn)) static void exit_wrong(const struct argp_state *state,
						 const char *name,
						 const struct opt_error *error)
{
	fprintf(stderr, "%s: %s%s\n", state->name,
		place && name ? place(state, name) : "", error->text);
	exit(OPT_EXIT_USAGE);
}

void opt_refuse_or_exit(const struct argp_state *state, const char *option,
			const char *value, const char *expected,
			const char *example)
{
	struct opt_error error;

	opt_refuse(&error, option, value, expected, example);
	exit_wrong(state, value ? option + strspn(option, "-") : NULL, &error);
}

void opt_refuse_argument(const struct argp_state *state, const char *argument)
{
	struct opt_error error;

	opt_fail(&error, "'%.256s': expected options only, see --help",
		 argument);
	exit_wrong(state, NULL, &error);
}

/*
 * getopt knows optional values only as --name=VALUE; a word that follows and is
 * no option is one as well.
 */
static char *take_next_word(struct argp_state *state)
{
	char *word = NULL;

	if (state->next < state->argc)
		word = state->argv[state->next];
	if (!word || (word[0] == '-' && word[1] != '\0'))
		return NULL;
	state->next++;
	return word;
}

error_t opt_parse_key(const struct opt_set *set, int key, char *arg,
		      struct argp_state *state)
{
	const struct opt *opt = find_key(set, key);
	struct opt_error error;

	if (key == ARGP_KEY_END && set->check) {
		if (set->check(state->input, &error) < 0)
			exit_wrong(state, NULL, &error);
		return 0;
	}
	if (!opt)
		return ARGP_ERR_UNKNOWN;
	if (opt->arg_optional && !arg)
		arg = take_next_word(state);
	if (opt_set(opt, arg, state->input, &error) < 0)
		exit_wrong(state, opt->name, &error);
	return 0;
}

int opt_try(const struct opt_set *set, const char *name, const char *value,
	    const char *the_place, void *base, struct opt_error *error)
{
	const struct opt *opt = name ? opt_find(set->rows, set->n, name) : NULL;
	struct opt_error inner;
	int err;

	if (!name)
		return set->check ? set->check(base, error) : 0;
	if (!opt)
		return -ENOENT;
	err = opt_set(opt, value, base, &inner);
	if (err < 0)
		snprintf(error->text, sizeof(error->text), "%s%s", the_place,
			 inner.text);
	return err;
}
