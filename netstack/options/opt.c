/*
 * Reads the value of a row of a table, and describes valid values.
 */
#include "netstack/options/opt.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 48 /* bytes of a number as text */

/* What a kind is called, and what one of its unit is stored as. */
static const struct kind {
	const char *noun;
	bool decimal;
	uint64_t stored, per; /* 1e-9 of the unit: stored / per */
} kinds[] = {
	[OPT_NUMBER] = {.noun = "a whole number"},
	[OPT_SIZE] = {.noun = "a size"},
	[OPT_BYTES] = {.noun = "a size"},
	[OPT_SECONDS] = {"seconds", true, 1, 1},
	[OPT_SECONDS_FP] = {"seconds", true, 1, 1},
	[OPT_MS] = {"milliseconds", true, 1, 1000},
	[OPT_MBIT] = {"Mbit/s", true, 1, 1000},
	[OPT_PERCENT] = {"percent", true, UINT64_C(1) << 63, 100000000000},
	[OPT_CUSTOM] = {.noun = "another value"},
};

/* ---- errors ---- */

static void clean_text(char *text)
{
	for (; *text; text++)
		if (iscntrl((unsigned char)*text))
			*text = '?';
}

int opt_expect(struct opt_error *error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(error->expected, sizeof(error->expected), format, ap);
	va_end(ap);
	return -EINVAL;
}

int opt_fail(struct opt_error *error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(error->text, sizeof(error->text), format, ap);
	va_end(ap);
	clean_text(error->text);
	return -EINVAL;
}

int opt_refuse(struct opt_error *error, const char *option, const char *value,
	       const char *expected, const char *example)
{
	if (!value)
		return opt_fail(error,
				"%s is missing: expected %s, for example %s",
				option, expected, example);
	/* A value may be longer than the line; the rest of it is not cut. */
	return opt_fail(error, "%s '%.*s': expected %s, for example %s", option,
			(int)sizeof(error->text) / 2, value, expected, example);
}

/* ---- descriptions of valid values ---- */

/* A bound as a user would write it. */
static const char *format_bound(enum opt_kind kind, uint64_t value, char *text)
{
	unsigned unit = 0;

	if (kinds[kind].decimal) {
		snprintf(text, VALUE_MAX, "%.12g", (double)value / 1e9);
		return text;
	}
	while (kind != OPT_NUMBER && unit < 3 && value && value % 1024 == 0) {
		value /= 1024;
		unit++;
	}
	snprintf(text, VALUE_MAX, unit ? "%ju%c" : "%ju", (uintmax_t)value,
		 " KMG"[unit]);
	return text;
}

static void expect_bounds(const struct opt *opt, struct opt_error *error)
{
	char min[VALUE_MAX], max[VALUE_MAX];
	const char *noun = kinds[opt->kind].noun;

	format_bound(opt->kind, opt->min, min);
	format_bound(opt->kind, opt->max, max);
	opt_expect(error,
		   opt->max == UINT64_MAX ? "%s%s from %s on"
					  : "%s%s from %s to %s",
		   opt->or_zero ? "0, or " : "", noun, min, max);
}

/* "a|b|c" as "a, b or c" */
static void expect_words(const struct opt *opt, struct opt_error *error)
{
	size_t n = 0;

	for (const char *c = opt->arg; *c && n < sizeof(error->expected) - 5;
	     c++)
		if (*c != '|')
			error->expected[n++] = *c;
		else
			n += (size_t)sprintf(error->expected + n, "%s",
					     strchr(c + 1, '|') ? ", "
								: " or ");
	error->expected[n] = '\0';
}

static void expect_kind(const struct opt *opt, struct opt_error *error)
{
	if (opt->expected)
		opt_expect(error, "%s", opt->expected);
	else if (opt->kind == OPT_CHOICE || opt->kind == OPT_WORD)
		expect_words(opt, error);
	else if (opt->kind == OPT_ENDPOINT)
		opt_expect(error, "an address and a port from 1 to 65535");
	else if (opt->kind == OPT_HOST)
		opt_expect(error, "the address of one host and a port from 1 "
				  "to 65535");
	else if (opt->kind == OPT_FLAG)
		opt_expect(error, "no value");
	else
		expect_bounds(opt, error);
}

static const char *format_example(const struct opt *opt, char *text, size_t len)
{
	char bound[VALUE_MAX];
	const char *value = opt->example ? opt->example : opt->initial;

	if (!value && (opt->kind == OPT_CHOICE || opt->kind == OPT_WORD))
		value = opt->arg;
	if (!value && opt->kind == OPT_FLAG)
		value = "";
	if (!value)
		value = format_bound(opt->kind, opt->min, bound);
	snprintf(text, len, "--%s%s%.*s", opt->name, *value ? " " : "",
		 value == opt->arg ? (int)strcspn(value, "|")
				   : (int)strlen(value),
		 value);
	return text;
}

/* ---- values ---- */

static void store_value(const struct opt *opt, uint64_t value, void *base)
{
	void *member = (char *)base + opt->at.offset;

	switch (opt->at.bytes) {
	case 1:
		*(uint8_t *)member = (uint8_t)value;
		break;
	case 2:
		*(uint16_t *)member = (uint16_t)value;
		break;
	case 4:
		*(uint32_t *)member = (uint32_t)value;
		break;
	default:
		assert(opt->at.bytes == 8);
		*(uint64_t *)member = value;
	}
}

static int read_decimal(const struct opt *opt, const char *text, uint64_t min,
			void *base)
{
	const struct kind *kind = &kinds[opt->kind];
	uint64_t value;
	int err = opt_parse_decimal(text, min, opt->max, &value);

	if (err)
		return err;
	if (opt->kind == OPT_SECONDS_FP)
		*(double *)((char *)base + opt->at.offset) =
			(double)value / 1e9;
	else
		store_value(opt,
			    (uint64_t)((unsigned __int128)value * kind->stored /
				       kind->per),
			    base);
	return 0;
}

static int read_number(const struct opt *opt, const char *text, uint64_t min,
		       void *base)
{
	uint64_t value;
	int err = opt->kind == OPT_NUMBER
			  ? opt_parse_number(text, min, opt->max, &value)
			  : opt_parse_size(text, opt->kind == OPT_BYTES, min,
					   opt->max, &value);

	if (err == 0)
		store_value(opt, value, base);
	return err;
}

/* A number of any kind; with or_zero, 0 is read beside the bounds. */
static int read_bounded(const struct opt *opt, const char *text, void *base)
{
	int (*read)(const struct opt *, const char *, uint64_t, void *) =
		kinds[opt->kind].decimal ? read_decimal : read_number;
	struct opt zero = *opt;

	zero.max = 0;
	if (opt->or_zero && read(&zero, text, 0, base) == 0)
		return 0;
	return read(opt, text, opt->min, base);
}

static int read_word(const struct opt *opt, const char *text, void *base)
{
	int at = opt_find_word(opt->arg, text);

	if (at < 0)
		return at;
	if (opt->kind == OPT_WORD)
		*(const char **)((char *)base + opt->at.offset) = text;
	else
		store_value(opt, opt->min + (uint64_t)at, base);
	return 0;
}

static int read_endpoint(const struct opt *opt, const char *text, void *base)
{
	struct opt_endpoint end;

	if (opt_parse_endpoint(text, &end) < 0 ||
	    (opt->kind == OPT_HOST && !opt_is_host(&end)))
		return -EINVAL;
	*(struct opt_endpoint *)((char *)base + opt->at.offset) = end;
	return 0;
}

static int open_file(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	bool is_stdout = !text || strcmp(text, "-") == 0;
	FILE *file = is_stdout ? stdout : fopen(text, "we");

	if (!file)
		return opt_expect(error, "a file that can be written (%s)",
				  strerror(errno));
	*(FILE **)((char *)base + opt->at.offset) = file;
	return 0;
}

static int read_value(const struct opt *opt, const char *text, void *base,
		      struct opt_error *error)
{
	switch (opt->kind) {
	case OPT_FLAG:
		if (text)
			return -EINVAL;
		store_value(opt, true, base);
		return 0;
	case OPT_CHOICE:
	case OPT_WORD:
		return read_word(opt, text, base);
	case OPT_TEXT:
		*(const char **)((char *)base + opt->at.offset) = text;
		return 0;
	case OPT_ENDPOINT:
	case OPT_HOST:
		return read_endpoint(opt, text, base);
	case OPT_FILE:
		return open_file(opt, text, base, error);
	case OPT_CUSTOM:
		return opt->read(opt, text, base, error);
	case OPT_HEADING:
	case OPT_ALIAS:
		return -EINVAL;
	case OPT_NUMBER:
	case OPT_SIZE:
	case OPT_BYTES:
	case OPT_SECONDS:
	case OPT_SECONDS_FP:
	case OPT_MS:
	case OPT_PERCENT:
	case OPT_MBIT:
		break;
	}
	return read_bounded(opt, text, base);
}

int opt_set(const struct opt *opt, const char *text, void *base,
	    struct opt_error *error)
{
	char option[80], example[160];

	error->expected[0] = error->text[0] = '\0';
	if (read_value(opt, text, base, error) == 0)
		return 0;
	if (error->text[0])
		return -EINVAL;
	if (!error->expected[0])
		expect_kind(opt, error);
	snprintf(option, sizeof(option), "--%s", opt->name);
	return opt_refuse(error, option, text ? text : "", error->expected,
			  format_example(opt, example, sizeof(example)));
}

/* ---- tables ---- */

const struct opt *opt_find(const struct opt *rows, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].name && strcmp(rows[i].name, name) == 0)
			return &rows[i];
	return NULL;
}

void opt_set_defaults(const struct opt *rows, size_t n, void *base)
{
	struct opt_error error;

	for (size_t i = 0; i < n; i++)
		if (rows[i].initial &&
		    opt_set(&rows[i], rows[i].initial, base, &error) < 0) {
			fprintf(stderr, "a default is wrong: %s\n", error.text);
			abort();
		}
}

/* "one of the keys weight=, maxconn= and backup" */
static int expect_keys(const struct opt *rows, size_t n,
		       struct opt_error *error)
{
	size_t len = (size_t)snprintf(error->expected, sizeof(error->expected),
				      "one of the keys ");

	for (size_t i = 0; i < n && len < sizeof(error->expected); i++)
		len += (size_t)snprintf(error->expected + len,
					sizeof(error->expected) - len, "%s%s%s",
					rows[i].name,
					rows[i].kind == OPT_FLAG ? "" : "=",
					i + 2 < n    ? ", "
					: i + 1 == n ? ""
						     : " and ");
	return -EINVAL;
}

int opt_set_key(const struct opt *rows, size_t n, char *word, void *base,
		struct opt_error *error)
{
	char *value = strchr(word, '='), expected[sizeof(error->expected)];
	const struct opt *opt;

	if (value)
		*value++ = '\0';
	opt = opt_find(rows, n, word);
	if (!opt || (!value && opt->kind != OPT_FLAG))
		return expect_keys(rows, n, error);
	if (opt_set(opt, value, base, error) == 0)
		return 0;
	snprintf(expected, sizeof(expected), "%s", error->expected);
	error->text[0] = '\0'; /* it names the key as an option */
	return opt_expect(error, "%s= with %s", opt->name, expected);
}

char *opt_format_help(const struct opt *opt)
{
	const char *marks[] = {"{default}", "{min}", "{max}"};
	char min[VALUE_MAX], max[VALUE_MAX], *text;
	const char *values[] = {opt->initial,
				format_bound(opt->kind, opt->min, min),
				format_bound(opt->kind, opt->max, max)};
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	for (const char *c = opt->help; *c; c++) {
		unsigned i = 0;

		while (i < 3 && strncmp(c, marks[i], strlen(marks[i])) != 0)
			i++;
		if (i < 3) {
			fputs(values[i], out);
			c += strlen(marks[i]) - 1;
		} else {
			fputc(*c, out);
		}
	}
	if (opt->initial && !strstr(opt->help, marks[0]))
		fprintf(out, " (default %s)", opt->initial);
	return fclose(out) == 0 ? text : NULL;
}
