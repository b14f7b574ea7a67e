#include "apps/common/opts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *opts_version(void)
{
	return CORONET_VERSION;
}

void opts_set_version(const char *program)
{
	static char text[80];

	snprintf(text, sizeof(text), "%s (coronet) %s", program,
		 CORONET_VERSION);
	argp_program_version = text;
}

static opts_place_fn *place;

void opts_set_place(opts_place_fn *the_place)
{
	place = the_place;
}

void opts_begin(struct argp_state *state)
{
	argp_err_exit_status = OPTS_EXIT_USAGE;
	/*
	 * getopt has already printed a line about the error when argp would
	 * print its "Try ..." here; argp_parse() then returns an error.
	 */
	state->err_stream = NULL;
}

/* In opts_try() a refusal jumps here instead of ending the program. */
static _Thread_local struct {
	bool set;
	jmp_buf env;
	const char *place;
	char *error;
	size_t len;
} catcher;

/* Stores the line, without a newline, and jumps: the program does not end. */
__attribute__((noreturn)) static void throw_refusal(const char *option,
						    const char *value,
						    const char *expected,
						    const char *example)
{
	char *error = catcher.error;

	snprintf(error, catcher.len,
		 value ? "%s%s '%s': expected %s, for example %s"
		       : "%s%s%s is missing: expected %s, for example %s",
		 value ? catcher.place : "", option, value ? value : "",
		 expected, example);
	for (char *c = error; *c; c++)
		if (iscntrl((unsigned char)*c))
			*c = '?';
	longjmp(catcher.env, 1);
}

/* setjmp(3) is in a function of its own, which changes no variable after it. */
static int parse_caught(argp_parser_t parser, int key, char *value,
			struct argp_state *state)
{
	if (setjmp(catcher.env))
		return -EINVAL;
	parser(key, value, state);
	return 0;
}

int opts_try(const struct argp *argp, const char *name, char *value,
	     const char *where, void *input, char *error, size_t len)
{
	const struct argp_option *option = argp->options;
	struct argp_state state = {
		.root_argp = argp, .input = input, .name = (char *)""};
	int err;

	while (name && option->name && strcmp(option->name, name) != 0)
		option++;
	if (name && !option->name)
		return -ENOENT;
	catcher.set = true;
	catcher.place = where;
	catcher.error = error;
	catcher.len = len;
	err = parse_caught(argp->parser, name ? option->key : ARGP_KEY_END,
			   value, &state);
	catcher.set = false;
	return err;
}

/* Prints a value so that it stays on the line it is printed on. */
static void print_quoted(const char *value)
{
	fputc('\'', stderr);
	for (; *value; value++)
		fputc(iscntrl((unsigned char)*value) ? '?' : *value, stderr);
	fputc('\'', stderr);
}

void opts_refuse(const struct argp_state *state, const char *option,
		 const char *value, const char *expected, const char *example)
{
	if (catcher.set)
		throw_refusal(option, value, expected, example);
	fprintf(stderr, "%s: %s%s", state->name,
		place && value ? place(state, option + 2) : "", option);
	if (value) {
		fputc(' ', stderr);
		print_quoted(value);
	} else {
		fputs(" is missing", stderr);
	}
	fprintf(stderr, ": expected %s, for example %s\n", expected, example);
	exit(OPTS_EXIT_USAGE);
}

void opts_refuse_argument(const struct argp_state *state, const char *argument)
{
	fprintf(stderr, "%s: ", state->name);
	print_quoted(argument);
	fputs(": expected options only, see --help\n", stderr);
	exit(OPTS_EXIT_USAGE);
}

int opts_parse_number(const char *text, uint64_t min, uint64_t max,
		      uint64_t *out)
{
	uint64_t value = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'),
					   &value))
			return -ERANGE;
	}
	if (value < min || value > max)
		return -ERANGE;
	*out = value;
	return 0;
}

/* The digits behind the point, at most nine, as nanoseconds. */
static int parse_fraction(const char *text, uint64_t *out_ns)
{
	char digits[] = "000000000";
	size_t len = strlen(text);

	if (len == 0 || len > sizeof(digits) - 1)
		return -EINVAL;
	memcpy(digits, text, len);
	return opts_parse_number(digits, 0, UINT64_MAX, out_ns);
}

int opts_parse_seconds(const char *text, int64_t min_ns, int64_t max_ns,
		       int64_t *out_ns)
{
	const char *point = strchr(text, '.');
	uint64_t whole, fraction = 0;
	char digits[16];
	size_t len = point ? (size_t)(point - text) : strlen(text);
	int err;

	/* Ten digits are three centuries: no overflow below. */
	if (len >= sizeof(digits))
		return -EINVAL;
	memcpy(digits, text, len);
	digits[len] = '\0';
	err = opts_parse_number(digits, 0, 9999999999, &whole);
	if (err == 0 && point)
		err = parse_fraction(point + 1, &fraction);
	if (err)
		return err;
	if (whole > INT64_MAX / OPTS_NS_PER_S - 1)
		return -ERANGE;
	whole = whole * OPTS_NS_PER_S + fraction;
	if ((int64_t)whole < min_ns || (int64_t)whole > max_ns)
		return -ERANGE;
	*out_ns = (int64_t)whole;
	return 0;
}

int opts_parse_address(const char *text, uint16_t port,
		       struct opts_endpoint *out)
{
	struct opts_endpoint end = {.port = port};
	struct sockaddr_in *in = (struct sockaddr_in *)&end.addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&end.addr;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		end.addr_len = sizeof(*in);
	} else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		end.addr_len = sizeof(*in6);
	} else {
		return -EINVAL;
	}
	snprintf(end.host, sizeof(end.host), "%s", text);
	*out = end;
	return 0;
}

int opts_parse_endpoint(const char *text, struct opts_endpoint *out)
{
	const char *colon = strrchr(text, ':');
	bool brackets = text[0] == '[';
	char host[INET6_ADDRSTRLEN + 2];
	uint64_t port;
	size_t len;

	if (!colon || opts_parse_number(colon + 1, 1, UINT16_MAX, &port))
		return -EINVAL;
	len = (size_t)(colon - text);
	if (len == 0 || len >= sizeof(host))
		return -EINVAL;
	if (brackets && text[len - 1] != ']')
		return -EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)len - 2 * brackets,
		 text + brackets);
	/* Without brackets nobody can tell where an IPv6 address ends. */
	if (brackets != (strchr(host, ':') != NULL))
		return -EINVAL;
	return opts_parse_address(host, (uint16_t)port, out);
}

static bool is_host4(uint32_t ip)
{
	return ip >> 24 != 0 && ip >> 24 < 224;
}

bool opts_is_host(const struct opts_endpoint *end)
{
	const struct sockaddr_in *in = (const void *)&end->addr;
	const struct sockaddr_in6 *in6 = (const void *)&end->addr;
	const uint8_t *ip = in6->sin6_addr.s6_addr;

	if (end->addr.ss_family == AF_INET)
		return is_host4(ntohl(in->sin_addr.s_addr));
	if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		return is_host4((uint32_t)ip[12] << 24 | ip[13]);
	return ip[0] != 0xff && !IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

unsigned opts_source_limit(unsigned max_clients)
{
	return max_clients < 2048 ? 1024 : max_clients / 2;
}

uint64_t opts_number(const struct argp_state *state, const char *option,
		     const char *text, uint64_t min, uint64_t max,
		     const char *example)
{
	char expected[80];
	uint64_t value;

	if (opts_parse_number(text, min, max, &value) == 0)
		return value;
	snprintf(expected, sizeof(expected), "a whole number from %ju to %ju",
		 (uintmax_t)min, (uintmax_t)max);
	opts_refuse(state, option, text, expected, example);
}

int64_t opts_seconds(const struct argp_state *state, const char *option,
		     const char *text, int64_t min_ns, int64_t max_ns,
		     const char *example)
{
	char expected[80];
	int64_t value;

	if (opts_parse_seconds(text, min_ns, max_ns, &value) == 0)
		return value;
	snprintf(expected, sizeof(expected), "seconds from %g to %g",
		 (double)min_ns / OPTS_NS_PER_S,
		 (double)max_ns / OPTS_NS_PER_S);
	opts_refuse(state, option, text, expected, example);
}
