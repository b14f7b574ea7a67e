/*
 * Options as tables: one reader of values, one wording of errors.
 *
 * A row of a table has an option's name, kind, member in a struct, bounds,
 * default and help. --help, completions, manual pages, configuration files and
 * errors are all derived from it. A wrong value is described by one line:
 *	--conns '0': expected a whole number from 1 to 9, for example --conns 4
 *
 *	static const struct opt rows[] = {
 *		{"conns", OPT_NUMBER, OPT_AT(struct load, conns), "N", "4",
 *		 1, 9, .help = "Number of connections at a time"},
 *	};
 *	OPT_SET(load_set, rows, 0x100, NULL)
 *	const struct argp load_argp = OPT_ARGP(load_set);
 *
 * Values are read strictly: no sign, space or trailing character; of an option
 * that is given twice, the last value counts. Strings are borrowed from the
 * command line. The functions of opt_argp.c are called before any other thread
 * runs, the others on any thread.
 */
#pragma once

#include <argp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#define OPT_EXIT_USAGE 2

/* Decimal values are read as multiples of 1e-9: seconds as nanoseconds. */
#define OPT_NS_PER_S INT64_C(1000000000)
#define OPT_DAY_NS   (86400 * OPT_NS_PER_S)

enum opt_kind {
	OPT_HEADING,	/* no option: help is a heading of --help */
	OPT_ALIAS,	/* another name of the option above */
	OPT_FLAG,	/* bool: true if given; has no value */
	OPT_NUMBER,	/* an unsigned integer of any size, or an int */
	OPT_SIZE,	/* uint64_t, bytes: digits and K, M or G */
	OPT_BYTES,	/* like OPT_SIZE; the unit is optional */
	OPT_SECONDS,	/* int64_t, ns; from here to OPT_MBIT with decimals */
	OPT_SECONDS_FP, /* double, seconds */
	OPT_MS,		/* int64_t, ns */
	OPT_PERCENT,	/* uint64_t: 100 percent are 2^63 */
	OPT_MBIT,	/* uint64_t, bits a second */
	OPT_CHOICE,	/* bool or enum: position in arg's words, from min on */
	OPT_WORD,	/* const char *: one of arg's words */
	OPT_TEXT,	/* const char *: any value */
	OPT_ENDPOINT,	/* struct opt_endpoint: an address and a port */
	OPT_HOST,	/* struct opt_endpoint of one host (opt_is_host()) */
	OPT_FILE,	/* FILE *, opened to be written; "-" is stdout */
	OPT_CUSTOM	/* as the row's function reads it */
};

/* An address and a port, as text and in the form of the socket calls. */
struct opt_endpoint {
	char host[INET6_ADDRSTRLEN]; /* without brackets */
	uint16_t port;
	struct sockaddr_storage addr;
	socklen_t addr_len;
};

/* What was expected, and the whole line for the user. */
struct opt_error {
	char expected[400];
	char text[512];
};

struct opt;

/*
 * Reads a value into the struct at base. Returns 0, or -EINVAL after
 * opt_expect() or opt_fail(); without either, the row's `expected` is used.
 */
typedef int opt_read_fn(const struct opt *opt, const char *text, void *base,
			struct opt_error *error);

/* Checks options together after the last one. Returns 0, or -EINVAL with
 * error->text set. */
typedef int opt_check_fn(void *base, struct opt_error *error);

/* A number that a macro defines, as text: for a default that help mentions. */
#define OPT_NUMBER_TEXT(number)	 OPT_NUMBER_TEXT_(number)
#define OPT_NUMBER_TEXT_(number) #number

struct opt_member {
	size_t offset, bytes;
};
#define OPT_AT(type, member)                                                   \
	{                                                                      \
		offsetof(type, member), sizeof(((type *)0)->member)            \
	}

struct opt {
	const char *name; /* without dashes */
	enum opt_kind kind;
	struct opt_member at;
	const char *arg;     /* in --help; words are separated by | */
	const char *initial; /* the default as a user would write it, or NULL */
	/* Bounds: bytes, or for kinds with decimals 1e-9 of their unit. */
	uint64_t min, max;
	/* {min}, {max} and {default} are replaced; without {default}, "(default
	 * X)" is appended if there is one. */
	const char *help;
	const char *example;  /* a value; NULL: the default, or min */
	const char *expected; /* NULL: from kind and bounds */
	opt_read_fn *read;    /* OPT_CUSTOM */
	bool or_zero;	      /* 0 is valid, too */
	bool arg_optional;    /* a value may be missing */
	bool fixed;	      /* not changed when options are read again */
	char letter;	      /* of a short option */
	int group;	      /* of argp; 0: that of the previous row */
};

/* ---- opt_value.c: reading texts. The calls return 0, -EINVAL (malformed) or
 * -ERANGE, and write *out only on success. ---- */

/* A whole decimal number from min to max. */
int opt_parse_number(const char *text, uint64_t min, uint64_t max,
		     uint64_t *out);
/* A number with up to nine decimals ("2", "0.25"), as multiples of 1e-9. */
int opt_parse_decimal(const char *text, uint64_t min, uint64_t max,
		      uint64_t *out);
/* A number and K, M or G, as bytes; bare: the unit is optional. */
int opt_parse_size(const char *text, bool bare, uint64_t min, uint64_t max,
		   uint64_t *out);
/* The position of a word among words separated by |; or -EINVAL. */
int opt_find_word(const char *words, const char *text);
/* An IPv4 or IPv6 address ("10.9.0.1", "::1"); *out gets this port. */
int opt_parse_address(const char *text, uint16_t port,
		      struct opt_endpoint *out);
/* "10.9.0.1:7777" or "[fd00::1]:7777", port 1 to 65535. No names. */
int opt_parse_endpoint(const char *text, struct opt_endpoint *out);
/*
 * Returns whether an address belongs to one host, to which a peer can connect:
 * not in 0.0.0.0/8, not a multicast group, not a broadcast address.
 */
bool opt_is_host(const struct opt_endpoint *end);
/*
 * Checks that a file can be written, or made in its folder, without making it.
 * Returns 0, or -EISDIR or another negative errno.
 */
int opt_check_writable(const char *path);
/*
 * Reads numbers and ranges ("2-5,8") and calls fn with each, until fn does not
 * return 0. Returns 0, the result of fn, or -EINVAL after opt_expect().
 */
typedef int opt_range_fn(void *arg, uint64_t first, uint64_t last,
			 struct opt_error *error);
int opt_parse_ranges(const char *text, char separator, uint64_t min,
		     uint64_t max, opt_range_fn *fn, void *arg,
		     struct opt_error *error);

/* ---- opt.c: rows ---- */

/* Sets error->expected; returns -EINVAL. */
__attribute__((format(printf, 2, 3))) int opt_expect(struct opt_error *error,
						     const char *format, ...);
/* Sets error->text, in printable characters; returns -EINVAL. */
__attribute__((format(printf, 2, 3))) int opt_fail(struct opt_error *error,
						   const char *format, ...);
/*
 * Sets the line "OPTION 'VALUE': expected EXPECTED, for example EXAMPLE"; value
 * NULL: "OPTION is missing: ...". Returns -EINVAL.
 */
int opt_refuse(struct opt_error *error, const char *option, const char *value,
	       const char *expected, const char *example);

/* Returns the row of that name among n, or NULL. */
const struct opt *opt_find(const struct opt *rows, size_t n, const char *name);

/*
 * Reads a value (NULL: a flag's, or none) into the struct at base. Returns 0,
 * or -EINVAL with error->expected, and in error->text the line of opt_refuse()
 * as for "--NAME".
 */
int opt_set(const struct opt *opt, const char *text, void *base,
	    struct opt_error *error);

/* Sets the member of each row that has a default. */
void opt_set_defaults(const struct opt *rows, size_t n, void *base);

/*
 * Reads "KEY=VALUE", or "KEY" of a flag, as one of the rows; cuts the word at
 * its "=". Returns 0, or -EINVAL with error->expected.
 */
int opt_set_key(const struct opt *rows, size_t n, char *word, void *base,
		struct opt_error *error);

/* The row's help with its default and bounds, to be freed by free(3); NULL:
 * no memory. */
char *opt_format_help(const struct opt *opt);

/* ---- opt_argp.c: command lines ---- */

/* The options of one argp parser, whose input is the struct of the rows. */
struct opt_set {
	const struct opt *rows;
	size_t n;
	int first_key; /* the keys of a program's sets must not overlap */
	opt_check_fn *check;
	struct argp_option *options; /* of argp; n + 1 elements */
};

#define OPT_COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/*
 * Defines a set and the functions that argp calls. argp reads its options
 * before it calls any of them, so they are filled in before main().
 */
#define OPT_SET(set, rows, first_key, check)                                   \
	static struct argp_option set##_options[OPT_COUNT(rows) + 1];          \
	const struct opt_set set = {rows, OPT_COUNT(rows), first_key, check,   \
				    set##_options};                            \
	static error_t set##_parse(int key, char *arg,                         \
				   struct argp_state *state)                   \
	{                                                                      \
		return opt_parse_key(&set, key, arg, state);                   \
	}                                                                      \
	static char *set##_help(int key, const char *text, void *input)        \
	{                                                                      \
		return opt_filter_help(&set, key, text);                       \
	}                                                                      \
	__attribute__((constructor)) static void set##_prepare(void)           \
	{                                                                      \
		opt_fill_options(&set);                                        \
	}

/* The initializer of a struct argp, with more members as arguments. */
#define OPT_ARGP(set, ...)                                                     \
	{                                                                      \
		.options = set##_options, .parser = set##_parse,               \
		.help_filter = set##_help, __VA_ARGS__                         \
	}

void opt_fill_options(const struct opt_set *set);
char *opt_filter_help(const struct opt_set *set, int key, const char *text);

/*
 * An argp parser: reads the set's options, and calls its check after the last.
 * A wrong option ends the program with one line on stderr and OPT_EXIT_USAGE.
 */
error_t opt_parse_key(const struct opt_set *set, int key, char *arg,
		      struct argp_state *state);

/*
 * Sets the function that returns where an option comes from, such as
 * net_config_place(). By default all options come from the command line.
 */
typedef const char *opt_place_fn(const struct argp_state *state,
				 const char *name);
void opt_use_place(opt_place_fn *place);

/*
 * Called by a program's parser on ARGP_KEY_INIT: makes argp_parse() return an
 * error for a wrong option, without argp's second line; the program then exits
 * with OPT_EXIT_USAGE. --help is written to a stream of opt_open_help().
 */
void opt_begin(struct argp_state *state);

/* ---- opt_help.c ---- */

/*
 * Returns a stream for argp's --help that passes the text on to `out`, and
 * moves the left margins that argp misplaces to the start of their lines.
 * Without memory it returns `out` itself. There is one such stream at a time;
 * it need not be closed.
 */
FILE *opt_open_help(FILE *out);

/* ---- opt_argp.c, continued ---- */

/* Prints opt_refuse()'s line after the program's name, and exits. */
__attribute__((noreturn)) void
opt_refuse_or_exit(const struct argp_state *state, const char *option,
		   const char *value, const char *expected,
		   const char *example);

/* Refuses an argument that is no option, on ARGP_KEY_ARG, and exits. */
__attribute__((noreturn)) void
opt_refuse_argument(const struct argp_state *state, const char *argument);

/*
 * Reads one option by its name; name NULL: calls the set's check. Returns 0,
 * -ENOENT (no such option) or -EINVAL with error->text, which begins with
 * `place`. For a file that is read again while the program runs; value must
 * stay valid, like a string of argv.
 */
int opt_try(const struct opt_set *set, const char *name, const char *value,
	    const char *place, void *base, struct opt_error *error);
