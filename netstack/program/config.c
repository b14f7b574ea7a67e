/*
 * Parses a whole command line: replaces --config by the options of its file,
 * leaves the words after "--" to EAL, then runs argp.
 *
 * A line "name = value" becomes the word "--name=value". Its file and line
 * number are kept, so that an error can name them. Words live until the next
 * parse, since argp and the options keep pointers into them.
 */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <coronet/net.h>

#include "netstack/options/opt.h"

#define MAX_WORDS 512
#define MAX_DEPTH 8 /* of argp parsers within argp parsers */

struct place {
	const char *path; /* a word of argv */
	unsigned line;
};

struct words {
	char *list[MAX_WORDS + 1];
	int n, n_made;
	/* Words that read_config() made; getopt(3) reorders the list. */
	struct made {
		char *word; /* malloc'ed */
		struct place place;
	} made[MAX_WORDS];
};

static struct words the_words; /* of net_parse_args() */

/* A configuration file while it is read. */
struct config {
	struct net_opts *opts; /* its error is set when something is wrong */
	const struct argp *argp;
	struct words *words;
	struct place place;
};

/* Stores an error as one line, whatever bytes of a file are in it. */
static int vrefuse_config(struct net_opts *opts, const char *before,
			  const char *format, va_list ap)
{
	int n = snprintf(opts->error, sizeof(opts->error), "%s", before);

	if (n >= 0 && (size_t)n < sizeof(opts->error))
		vsnprintf(opts->error + n, sizeof(opts->error) - (size_t)n,
			  format, ap);
	for (char *c = opts->error; *c; c++)
		if (iscntrl((unsigned char)*c))
			*c = '?';
	return -EINVAL;
}

__attribute__((format(printf, 2, 3))) static int
refuse_config(struct net_opts *opts, const char *format, ...)
{
	va_list ap;
	int err;

	va_start(ap, format);
	err = vrefuse_config(opts, "", format, ap);
	va_end(ap);
	return err;
}

#define PLACE_MAX 320

static const char *format_place(const struct place *place, char *text)
{
	snprintf(text, PLACE_MAX, "--config '%.255s', line %u: ", place->path,
		 place->line);
	return text;
}

__attribute__((format(printf, 2, 3))) static int
refuse_line(const struct config *config, const char *format, ...)
{
	char place[PLACE_MAX];
	va_list ap;
	int err;

	va_start(ap, format);
	err = vrefuse_config(config->opts, format_place(&config->place, place),
			     format, ap);
	va_end(ap);
	return err;
}

/* ---- words ---- */

static int push_word(struct words *words, char *word)
{
	if (words->n == MAX_WORDS)
		return -E2BIG;
	words->list[words->n++] = word;
	words->list[words->n] = NULL;
	return 0;
}

static void drop_words(struct words *words)
{
	words->n = 0;
	while (words->n_made)
		free(words->made[--words->n_made].word);
}

/* Returns where a word, of an option of this name, comes from; or NULL. */
static const struct place *find_place(const struct words *words,
				      const char *word, const char *name)
{
	size_t len = strlen(name);

	for (int i = 0; i < words->n_made; i++)
		if (words->made[i].word == word &&
		    strncmp(word + 2, name, len) == 0 &&
		    (word[2 + len] == '=' || word[2 + len] == '\0'))
			return &words->made[i].place;
	return NULL;
}

const char *net_config_place(const struct argp_state *state, const char *name)
{
	static char text[PLACE_MAX];
	const struct place *place;

	if (state->argv != the_words.list || state->next < 1)
		return "";
	place = find_place(&the_words, the_words.list[state->next - 1], name);
	return place ? format_place(place, text) : "";
}

/* ---- configuration files ---- */

/* Returns a program's option of exactly this name, or NULL. */
static const struct argp_option *find_option(const struct argp *argp,
					     const char *name, unsigned depth)
{
	const struct argp_option *option = argp->options;
	const struct argp_child *child = argp->children;

	for (; option &&
	       (option->name || option->key || option->doc || option->group);
	     option++)
		if (option->name && strcmp(option->name, name) == 0)
			return option;
	for (; child && child->argp && depth < MAX_DEPTH; child++) {
		option = find_option(child->argp, name, depth + 1);
		if (option)
			return option;
	}
	return NULL;
}

static char *trim_space(char *text)
{
	char *end;

	text += strspn(text, " \t");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r\n", end[-1]))
		*--end = '\0';
	return text;
}

/* A # begins a comment at the start of a line and after a blank. */
static void cut_comment(char *text)
{
	for (char *hash = strchr(text, '#'); hash; hash = strchr(hash + 1, '#'))
		if (hash == text || hash[-1] == ' ' || hash[-1] == '\t') {
			*hash = '\0';
			return;
		}
}

/*
 * Returns the value that begins at text: all that is between double quotes, or
 * else up to the end of the line or a comment. NULL: wrong quotes.
 */
static char *read_value(char *text)
{
	char *end;

	text += strspn(text, " \t");
	if (*text != '"') {
		cut_comment(text);
		return trim_space(text);
	}
	end = strchr(text + 1, '"');
	if (!end)
		return NULL;
	*end = '\0';
	cut_comment(end + 1);
	return *trim_space(end + 1) ? NULL : text + 1;
}

/* Returns whether a switch is to be set: 1, 0 or -EINVAL. */
static int parse_switch(const char *value)
{
	static const char *const texts[][2] = {
		{"yes", "no"}, {"on", "off"}, {"true", "false"}, {"1", "0"}};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		for (int off = 0; off < 2; off++)
			if (strcmp(value, texts[i][off]) == 0)
				return !off;
	return -EINVAL;
}

/* Adds the option's word: value is NULL if the line has none. */
static int add_option(const struct config *config,
		      const struct argp_option *option, const char *value)
{
	char *word;
	int on = 1, err;

	if (!option->arg && value) {
		on = parse_switch(value);
		if (on < 0)
			return refuse_line(config,
					   "%s = '%s': expected yes or no",
					   option->name, value);
	}
	if (!on)
		return 0;
	if (option->arg ? asprintf(&word, "--%s=%s", option->name, value) < 0
			: asprintf(&word, "--%s", option->name) < 0)
		return refuse_line(config, "%s", strerror(ENOMEM));
	err = push_word(config->words, word);
	if (err < 0) {
		free(word);
		return refuse_line(config, "more than %d options", MAX_WORDS);
	}
	config->words->made[config->words->n_made++] =
		(struct made){word, config->place};
	return 0;
}

/* One line: "name = value", "name" of an option without value, or nothing. */
static int read_line(const struct config *config, char *line)
{
	const struct argp_option *option;
	char *text, *equals, *value = NULL;

	text = line + strspn(line, " \t");
	equals = strchr(text, '=');
	if (equals && memchr(text, '#', (size_t)(equals - text)))
		equals = NULL; /* it is in a comment */
	if (equals) {
		*equals = '\0';
		value = read_value(equals + 1);
		if (!value)
			return refuse_line(config,
					   "%s: expected a value without "
					   "quotes, or all of it in one pair",
					   trim_space(text));
	} else {
		cut_comment(text);
	}
	text = trim_space(text);
	if (!equals && !*text)
		return 0;
	option = find_option(config->argp, text, 0);
	if (!option || strcmp(text, "config") == 0)
		return refuse_line(config, "'%s'%s: %s", text,
				   equals ? " = ..." : "",
				   option ? "a file cannot name another"
					  : "there is no such option; --help "
					    "lists the options");
	if (option->arg && !equals)
		return refuse_line(config, "'%s': expected %s = %s", text, text,
				   option->arg);
	return add_option(config, option, value);
}

#define CONFIG_LINE_MAX (1 << 20) /* bytes of a line, NUL included */

/* Reads a line without its end, cut at CONFIG_LINE_MAX; false: no line. */
static bool next_line(FILE *file, char *line, size_t *len)
{
	int c = EOF;

	*len = 0;
	while (*len < CONFIG_LINE_MAX - 1 && (c = getc(file)) != EOF &&
	       c != '\n')
		line[(*len)++] = (char)c;
	line[*len] = '\0';
	return *len || c == '\n';
}

/* Does not wait for a writer to a FIFO, which is empty then. */
static FILE *open_config(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	FILE *file = NULL;

	if (fd >= 0 && fcntl(fd, F_SETFL, 0) == 0)
		file = fdopen(fd, "r");
	if (fd >= 0 && !file)
		close(fd);
	return file;
}

static int read_config(struct words *words, struct net_opts *opts,
		       const struct argp *argp, const char *path)
{
	struct config config = {opts, argp, words, {path, 0}};
	FILE *file = open_config(path);
	char *line = malloc(CONFIG_LINE_MAX);
	size_t len;
	int err = 0;

	if (!file || !line) {
		err = refuse_config(opts, "--config '%s': %s", path,
				    strerror(errno));
		goto done;
	}
	while (err == 0 && next_line(file, line, &len)) {
		config.place.line++;
		if (strlen(line) != len)
			err = refuse_line(&config, "this is not a text file");
		else if (len == CONFIG_LINE_MAX - 1)
			err = refuse_line(&config, "the line is too long");
		else
			err = read_line(&config, line);
	}
	if (err == 0 && ferror(file)) /* a folder, for one, opens well */
		err = refuse_config(opts, "--config '%s': %s", path,
				    strerror(errno));
done:
	free(line);
	if (file)
		fclose(file);
	return err;
}

/* ---- the command line ---- */

/* The file named by "--config FILE" or "--config=FILE" at argv[*i], or NULL. */
static const char *config_path(int argc, char **argv, int *i)
{
	if (strncmp(argv[*i], "--config=", 9) == 0)
		return argv[*i] + 9;
	if (strcmp(argv[*i], "--config") == 0 && *i + 1 < argc)
		return argv[++*i];
	return NULL;
}

static const struct argp_child common_child[] = {{&net_argp, 0, NULL, 0}, {0}};

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
	if (key != ARGP_KEY_INIT)
		return ARGP_ERR_UNKNOWN;
	state->child_inputs[0] = state->input;
	return 0;
}

static const struct argp common = {.parser = parse_common,
				   .children = common_child};

/* Fills the list of words: 0 or -EINVAL. */
static int gather_words(struct words *words, const struct argp *argp, int argc,
			char **argv, struct net_opts *opts)
{
	int err = 0;

	drop_words(words);
	for (int i = 0; i < argc && err == 0; i++) {
		const char *path;

		if (strcmp(argv[i], "--") == 0) {
			opts->eal_args = argv + i + 1;
			opts->n_eal_args = (unsigned)(argc - i - 1);
			break;
		}
		path = i ? config_path(argc, argv, &i) : NULL;
		if (path)
			err = read_config(words, opts, argp, path);
		else if (push_word(words, argv[i]) < 0)
			err = refuse_config(
				opts, "more than %d words on the command line",
				MAX_WORDS);
	}
	return err;
}

int net_parse_args(const struct argp *argp, int argc, char **argv,
		   struct net_opts *opts, void *input)
{
	int err;

	if (!argp) {
		argp = &common;
		input = opts;
	}
	err = gather_words(&the_words, argp, argc, argv, opts);
	if (err < 0)
		return err;
	argp_err_exit_status = OPT_EXIT_USAGE;
	opt_use_place(net_config_place);
	return -argp_parse(argp, the_words.n, the_words.list, 0, NULL, input);
}

/* ---- reading options again ---- */

/* Finds an option that begins so; getopt(3) has refused ambiguous ones. */
static const struct argp_option *find_begun(const struct argp *argp,
					    const char *name, unsigned depth)
{
	const struct argp_option *option = argp->options;
	const struct argp_child *child = argp->children;

	for (; option &&
	       (option->name || option->key || option->doc || option->group);
	     option++)
		if (option->name &&
		    strncmp(option->name, name, strlen(name)) == 0)
			return option;
	for (; child && child->argp && depth < MAX_DEPTH; child++) {
		option = find_begun(child->argp, name, depth + 1);
		if (option)
			return option;
	}
	return NULL;
}

/* Reports the option at *i to fn; *i is moved on if its value follows. */
static int report_option(const struct words *words, const struct argp *argp,
			 int *i, net_option_fn fn, void *arg)
{
	char name[64], text[PLACE_MAX];
	const char *word = words->list[*i], *value = strchr(word, '=');
	size_t len = value ? (size_t)(value - word) : strlen(word);
	const struct argp_option *option;
	const struct place *place;

	if (strncmp(word, "--", 2) != 0 || len - 2 >= sizeof(name))
		return 0;
	snprintf(name, sizeof(name), "%.*s", (int)(len - 2), word + 2);
	option = find_option(argp, name, 0);
	if (!option)
		option = find_begun(argp, name, 0);
	if (!option)
		return 0;
	place = find_place(words, word, option->name);
	if (value)
		value++;
	else if (option->arg && *i + 1 < words->n)
		value = words->list[++*i];
	return fn(arg, option->name, value,
		  place ? format_place(place, text) : "");
}

int net_reread_args(const struct argp *argp, int argc, char **argv,
		    net_option_fn fn, void *arg, char *error, size_t len)
{
	struct words *words = calloc(1, sizeof(*words));
	struct net_opts opts = {.error = ""};
	int err = -ENOMEM;

	if (words)
		err = gather_words(words, argp, argc, argv, &opts);
	if (err < 0)
		snprintf(error, len, "%s",
			 opts.error[0] ? opts.error : strerror(-err));
	for (int i = 1; err == 0 && i < words->n; i++)
		err = report_option(words, argp, &i, fn, arg);
	if (words)
		drop_words(words);
	free(words);
	return err;
}
