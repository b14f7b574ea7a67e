/*
 * The reader of options: each kind of value, at, below and above its bounds;
 * defaults, help, errors, keys, and the parser of argp.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/options/opt.h"
#include "tests/apps/in_child.h"
#include "tests/apps/words.h"

#define S OPT_NS_PER_S

/* Of each kind, and of each size of a number. */
static struct values {
	uint16_t port;
	uint32_t conns;
	int cpu;
	uint64_t seed, memory, bytes, loss, rate, total;
	int64_t timeout_ns, rescan_ns, delay_ns;
	double stats_s;
	bool off, verbose;
	int balance;
	const char *cc, *root;
	struct opt_endpoint listen, target;
	FILE *json;
} values;

static int read_sum(const struct opt *opt, const char *text, void *base,
		    struct opt_error *error)
{
	struct values *to = base;
	uint64_t n;

	if (strcmp(text, "line") == 0)
		return opt_fail(error, "a line\nof its own");
	if (strcmp(text, "own") == 0)
		return opt_expect(error, "the text of the function");
	if (opt_parse_number(text, 1, 9, &n) < 0)
		return -EINVAL;
	to->total += n;
	return 0;
}

#define AT(member) OPT_AT(struct values, member)

static const struct opt rows[] = {
	{.kind = OPT_HEADING, .help = "Numbers:", .group = 3},
	{"port", OPT_NUMBER, AT(port), "PORT", "80", 1, 65535, .help = "Port",
	 .letter = 'p'},
	{"conns", OPT_NUMBER, AT(conns), "N", NULL, 5, 4000000,
	 .help = "From {min} to {max} connections"},
	{"cpu", OPT_NUMBER, AT(cpu), "N", NULL, 0, 1023, .help = "CPU"},
	{.name = "lcore", .kind = OPT_ALIAS},
	{"seed", OPT_NUMBER, AT(seed), "N", NULL, 0, UINT64_MAX,
	 .help = "Seed"},
	{"memory", OPT_SIZE, AT(memory), "SIZE", "256M", 1 << 20, 1ull << 46,
	 .help = "Memory, {min} to {max}"},
	{"bytes", OPT_BYTES, AT(bytes), "SIZE", NULL, 1024, UINT64_MAX,
	 .help = "Size"},
	{"timeout", OPT_SECONDS, AT(timeout_ns), "SECONDS", "2.5", S / 100,
	 OPT_DAY_NS, .help = "Give up after {default} seconds, or {max}"},
	{"rescan", OPT_SECONDS, AT(rescan_ns), "SECONDS", "0", S / 100,
	 OPT_DAY_NS, .help = "Interval", .or_zero = true},
	{"stats", OPT_SECONDS_FP, AT(stats_s), "SECONDS", NULL, S / 10,
	 OPT_DAY_NS, .help = "Interval"},
	{"delay", OPT_MS, AT(delay_ns), "MS", NULL, 0, 60000 * S,
	 .help = "Delay"},
	{"loss", OPT_PERCENT, AT(loss), "PERCENT", NULL, 0, 100 * S,
	 .help = "Loss"},
	{"rate", OPT_MBIT, AT(rate), "MBIT", NULL, S / 1000, 400000 * S,
	 .help = "Rate", .or_zero = true},
	{"off", OPT_CHOICE, AT(off), "on|off", "on", .help = "Switch"},
	{"balance", OPT_CHOICE, AT(balance), "rr|least|hash", "least", 1,
	 .help = "Kind"},
	{"cc", OPT_WORD, AT(cc), "cubic|reno", NULL, .help = "Control"},
	{"root", OPT_TEXT, AT(root), "PATH", NULL, .help = "Folder"},
	{"listen", OPT_ENDPOINT, AT(listen), "ADDRESS:PORT", NULL,
	 .help = "Listen", .example = "10.9.0.1:80"},
	{"target", OPT_HOST, AT(target), "ADDRESS:PORT", NULL, .help = "Target",
	 .example = "10.9.0.1:80"},
	{"json", OPT_FILE, AT(json), "FILE", NULL, .help = "Result",
	 .example = "a.json", .arg_optional = true},
	{"verbose", OPT_FLAG, AT(verbose), NULL, NULL, .help = "More"},
	{"sum", OPT_CUSTOM, AT(total), "N", NULL, .help = "Added up",
	 .read = read_sum, .expected = "a digit", .example = "3"},
};
#define N_ROWS OPT_COUNT(rows)

static int check_both(void *base, struct opt_error *error)
{
	struct values *all = base;

	if (all->verbose && all->conns == 7)
		return opt_refuse(error, "--conns", NULL, "another number",
				  "--conns 8");
	return 0;
}

OPT_SET(test_set, rows, 0x100, check_both)

static error_t begin(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_INIT) {
		opt_begin(state);
		state->child_inputs[0] = &values;
		return 0;
	}
	if (key == ARGP_KEY_ARG)
		opt_refuse_argument(state, arg);
	return ARGP_ERR_UNKNOWN;
}

static int parse_words(void *sentence)
{
	static const struct argp argp = OPT_ARGP(test_set);
	static const struct argp_child children[] = {{&argp, 0, NULL, 0}, {0}};
	static const struct argp all = {.parser = begin, .children = children};
	static struct words words;

	words_split(&words, "tool", sentence);
	return argp_parse(&all, words.argc, words.argv, 0, NULL, NULL)
		       ? OPT_EXIT_USAGE
		       : 0;
}

static int set_option(const char *name, const char *text,
		      struct opt_error *error)
{
	return opt_set(opt_find(rows, N_ROWS, name), text, &values, error);
}

static void assert_set(const char *name, const char *text)
{
	struct opt_error error;

	if (set_option(name, text, &error) < 0)
		fail_msg("%s", error.text);
}

/* The line names option and value, and has an example. */
static void assert_refused(const char *name, const char *text,
			   const char *expected)
{
	struct values before = values;
	struct opt_error error;
	char start[128];

	if (set_option(name, text, &error) != -EINVAL)
		fail_msg("--%s '%s' was taken", name, text);
	assert_memory_equal(&before, &values, sizeof(values));
	snprintf(start, sizeof(start),
		 "--%s '%s': expected %s, for example "
		 "--%s ",
		 name, text, expected, name);
	if (strncmp(error.text, start, strlen(start)) != 0)
		fail_msg("'%s' does not begin with '%s'", error.text, start);
}

static void test_numbers_are_digits_within_their_bounds(void **state)
{
	static const char *const wrong[] = {"",
					    " 6",
					    "6 ",
					    "+6",
					    "-6",
					    "0x10",
					    "1e3",
					    "12a",
					    "6.0",
					    "abc",
					    "٣",
					    "1,000",
					    "6\n",
					    "4",
					    "0",
					    "4000001",
					    "-1",
					    "4294967301",
					    "18446744073709551621",
					    "184467440737095516150"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (!strchr(wrong[i], '\n'))
			assert_refused("conns", wrong[i],
				       "a whole number from 5 to 4000000");
	assert_set("conns", "5");
	assert_int_equal(values.conns, 5);
	assert_set("conns", "4000000");
	assert_int_equal(values.conns, 4000000);
	assert_set("conns", "007");
	assert_int_equal(values.conns, 7);
}

static void test_numbers_have_the_size_of_their_member(void **state)
{
	assert_set("port", "65535");
	assert_set("cpu", "1023");
	assert_set("seed", "18446744073709551615");
	assert_int_equal(values.port, 65535);
	assert_int_equal(values.cpu, 1023);
	assert_true(values.seed == UINT64_MAX);
	assert_refused("seed", "18446744073709551616",
		       "a whole number from 0 on");
	assert_refused("port", "65536", "a whole number from 1 to 65535");
}

static void test_sizes_have_a_unit(void **state)
{
	static const char *const wrong[] = {"",
					    "256",
					    "M",
					    "0M",
					    "-1M",
					    "1023K",
					    "1.5G",
					    "256MB",
					    "256m",
					    " 256M",
					    "256 M",
					    "1T",
					    "65537G",
					    "17179869184G",
					    "17179869185G",
					    "99999999999999999999G"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_refused("memory", wrong[i], "a size from 1M to 65536G");
	assert_set("memory", "1024K");
	assert_true(values.memory == 1 << 20);
	assert_set("memory", "65536G");
	assert_true(values.memory == 1ull << 46);
}

static void test_sizes_in_bytes_need_no_unit(void **state)
{
	assert_refused("bytes", "1023", "a size from 1K on");
	assert_refused("bytes", "1024B", "a size from 1K on");
	assert_refused("bytes", "17179869184G", "a size from 1K on");
	assert_set("bytes", "1024");
	assert_true(values.bytes == 1024);
	assert_set("bytes", "17179869183G");
	assert_true(values.bytes == 17179869183ull << 30);
}

static void test_seconds_have_up_to_nine_decimals(void **state)
{
	static const char *const wrong[] = {"",
					    ".5",
					    "1.",
					    "1.2.3",
					    "-1",
					    "1s",
					    "1e1",
					    "inf",
					    "nan",
					    " 1",
					    "1,5",
					    "0x1",
					    "1.-5",
					    "1. 5",
					    "1.5e1",
					    "0.009",
					    "86400.000000001",
					    "86401",
					    "1.0000000001",
					    "18446744074",
					    "99999999999999999999"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_refused("timeout", wrong[i],
			       "seconds from 0.01 to "
			       "86400");
	assert_set("timeout", "0.01");
	assert_int_equal(values.timeout_ns, S / 100);
	assert_set("timeout", "86400");
	assert_int_equal(values.timeout_ns, OPT_DAY_NS);
	assert_set("timeout", "1.000000001");
	assert_int_equal(values.timeout_ns, S + 1);
	assert_set("stats", "0.1");
	assert_true(values.stats_s == 0.1);
	assert_refused("stats", "0.09", "seconds from 0.1 to 86400");
}

static void test_zero_may_be_valid_beside_the_bounds(void **state)
{
	assert_set("rescan", "0.01");
	assert_set("rescan", "0");
	assert_int_equal(values.rescan_ns, 0);
	assert_refused("rescan", "0.009", "0, or seconds from 0.01 to 86400");
	assert_set("rate", "0.0");
	assert_int_equal(values.rate, 0);
}

static void test_other_units_are_converted(void **state)
{
	assert_set("delay", "2.5");
	assert_int_equal(values.delay_ns, 2500000);
	assert_refused("delay", "60000.1", "milliseconds from 0 to 60000");
	assert_set("loss", "100");
	assert_true(values.loss == UINT64_C(1) << 63);
	assert_set("loss", "50");
	assert_true(values.loss == UINT64_C(1) << 62);
	assert_set("loss", "0");
	assert_true(values.loss == 0);
	assert_refused("loss", "100.000000001", "percent from 0 to 100");
	assert_refused("loss", "1%", "percent from 0 to 100");
	assert_set("rate", "0.001");
	assert_int_equal(values.rate, 1000);
	assert_set("rate", "400000");
	assert_true(values.rate == 400000000000);
	assert_refused("rate", "0.0009", "0, or Mbit/s from 0.001 to 400000");
}

static void test_words_are_those_of_the_help(void **state)
{
	static const char *const wrong[] = {"",		"RR", "r",    "rrr",
					    "rr|least", "|",  "hash "};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_refused("balance", wrong[i], "rr, least or hash");
	assert_set("balance", "rr");
	assert_int_equal(values.balance, 1);
	assert_set("balance", "hash");
	assert_int_equal(values.balance, 3);
	assert_set("off", "off");
	assert_true(values.off);
	assert_set("off", "on");
	assert_false(values.off);
	assert_refused("off", "ON", "on or off");
	assert_set("cc", "reno");
	assert_string_equal(values.cc, "reno");
	assert_refused("cc", "vegas", "cubic or reno");
}

static void test_addresses_have_a_port(void **state)
{
	static const char *const wrong[] = {"",
					    ":",
					    ":80",
					    "10.9.0.1",
					    "10.9.0.1:",
					    "10.9.0.1:0",
					    "10.9.0.1:65536",
					    "10.9.0.1: 7",
					    "10.9.0:77",
					    "host:77",
					    "fd00::1:77",
					    "[fd00::1]",
					    "[fd00::1]77",
					    "[fd00::1:77",
					    "[10.9.0.1]:77",
					    "[]:77",
					    "[fd00::g]:77",
					    " 10.9.0.1:80",
					    "10.9.0.1:80 "};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_refused("listen", wrong[i],
			       "an address and a port from 1 to 65535");
	assert_set("listen", "0.0.0.0:65535");
	assert_int_equal(values.listen.port, 65535);
	assert_set("listen", "[fd00::1]:1");
	assert_string_equal(values.listen.host, "fd00::1");
	assert_refused("target", "0.0.0.0:80",
		       "the address of one host and a port from 1 to 65535");
	assert_refused("target", "224.0.0.1:80",
		       "the address of one host and a port from 1 to 65535");
	assert_set("target", "10.9.0.1:80");
}

struct seen {
	unsigned n;
	uint64_t first[4], last[4];
};

static int see_range(void *arg, uint64_t first, uint64_t last,
		     struct opt_error *error)
{
	struct seen *seen = arg;

	if (seen->n == 4)
		return opt_expect(error, "at most 4");
	seen->first[seen->n] = first;
	seen->last[seen->n++] = last;
	return 0;
}

static void test_ranges_are_read_in_order(void **state)
{
	struct opt_error error;
	struct seen seen = {0};

	assert_int_equal(opt_parse_ranges("2-5,8,0,1023", ',', 0, 1023,
					  see_range, &seen, &error),
			 0);
	assert_int_equal(seen.n, 4);
	assert_int_equal(seen.first[0], 2);
	assert_int_equal(seen.last[0], 5);
	assert_int_equal(seen.first[1], 8);
	assert_int_equal(seen.last[1], 8);
	assert_int_equal(seen.last[3], 1023);
}

static void test_wrong_ranges_are_described(void **state)
{
	static const char *const wrong[][2] = {
		{"", "numbers and ranges of them, as in 2-5+8"},
		{"1+", "numbers and ranges of them, as in 2-5+8"},
		{"+1", "numbers and ranges of them, as in 2-5+8"},
		{"1,2", "numbers and ranges of them, as in 2-5+8"},
		{"1-", "numbers and ranges of them, as in 2-5+8"},
		{"-1", "numbers and ranges of them, as in 2-5+8"},
		{"1-2-3", "numbers and ranges of them, as in 2-5+8"},
		{"1 +2", "numbers and ranges of them, as in 2-5+8"},
		{"5-2", "ranges that begin with the smaller number"},
		{"0", "numbers from 1 to 9 and ranges of them"},
		{"10", "numbers from 1 to 9 and ranges of them"},
		{"1-99999999999999999999",
		 "numbers from 1 to 9 and ranges of them"},
		{"1+2+3+4+5", "at most 4"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct opt_error error;
		struct seen seen = {0};

		if (opt_parse_ranges(wrong[i][0], '+', 1, 9, see_range, &seen,
				     &error) != -EINVAL)
			fail_msg("'%s' was taken", wrong[i][0]);
		assert_string_equal(error.expected, wrong[i][1]);
	}
}

static void test_functions_read_what_no_kind_does(void **state)
{
	struct opt_error error;

	assert_set("sum", "3");
	assert_set("sum", "4");
	assert_int_equal(values.total, 7);
	assert_refused("sum", "x", "a digit");
	assert_refused("sum", "own", "the text of the function");
	assert_int_equal(set_option("sum", "line", &error), -EINVAL);
	assert_string_equal(error.text, "a line?of its own");
}

static void test_a_value_cannot_break_the_line(void **state)
{
	struct opt_error error;
	char text[2000];

	assert_int_equal(set_option("conns", "5\n6\033[2J", &error), -EINVAL);
	assert_non_null(strstr(error.text, "--conns '5?6?[2J': expected a"));
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(set_option("conns", text, &error), -EINVAL);
	assert_non_null(strstr(error.text, "': expected a whole number"));
}

static void test_defaults_are_read_like_values(void **state)
{
	memset(&values, 0xff, sizeof(values));
	opt_set_defaults(rows, N_ROWS, &values);
	assert_int_equal(values.port, 80);
	assert_true(values.memory == 256 << 20);
	assert_int_equal(values.timeout_ns, 5 * S / 2);
	assert_int_equal(values.rescan_ns, 0);
	assert_int_equal(values.balance, 2);
	assert_false(values.off);
	assert_int_equal(values.conns, UINT32_MAX); /* has none */
}

static void assert_help(const char *name, const char *expected)
{
	char *text = opt_format_help(opt_find(rows, N_ROWS, name));

	assert_string_equal(text, expected);
	free(text);
}

static void test_help_shows_default_and_bounds(void **state)
{
	assert_help("port", "Port (default 80)");
	assert_help("conns", "From 5 to 4000000 connections");
	assert_help("memory", "Memory, 1M to 65536G (default 256M)");
	assert_help("timeout", "Give up after 2.5 seconds, or 86400");
	assert_help("verbose", "More");
}

static void test_keys_are_rows(void **state)
{
	struct opt_error error;
	char good[] = "conns=9", flag[] = "verbose", wrong[] = "conns=x",
	     unknown[] = "colour=red", bare[] = "conns", value[] = "verbose=1";

	values.verbose = false;
	assert_int_equal(opt_set_key(rows + 1, 2, good, &values, &error), 0);
	assert_int_equal(values.conns, 9);
	assert_int_equal(opt_set_key(rows, N_ROWS, flag, &values, &error), 0);
	assert_true(values.verbose);
	assert_int_equal(opt_set_key(rows + 1, 2, wrong, &values, &error),
			 -EINVAL);
	assert_string_equal(error.expected,
			    "conns= with a whole number from 5 to 4000000");
	assert_int_equal(opt_set_key(rows + 1, 2, unknown, &values, &error),
			 -EINVAL);
	assert_string_equal(error.expected, "one of the keys port= and conns=");
	assert_int_equal(opt_set_key(rows + 1, 2, bare, &values, &error),
			 -EINVAL);
	assert_string_equal(error.expected, "one of the keys port= and conns=");
	assert_int_equal(opt_set_key(rows, N_ROWS, value, &values, &error),
			 -EINVAL);
}

static void test_argp_reads_the_table(void **state)
{
	memset(&values, 0, sizeof(values));
	assert_int_equal(parse_words("--conns 6 -p 7 --lcore 3 --verbose "
				     "--timeout=1"),
			 0);
	assert_int_equal(values.conns, 6);
	assert_int_equal(values.port, 7);
	assert_int_equal(values.cpu, 3);
	assert_true(values.verbose);
	assert_int_equal(values.timeout_ns, S);
}

static void test_option_given_twice_takes_the_last(void **state)
{
	assert_int_equal(parse_words("--conns 6 --timeout 1 --conns 9"), 0);
	assert_int_equal(values.conns, 9);
}

static void test_value_may_be_left_out(void **state)
{
	char path[] = "/tmp/coronet-opt-XXXXXX", words[80];

	assert_int_equal(parse_words("--json --conns 5"), 0);
	assert_ptr_equal(values.json, stdout);
	assert_int_equal(parse_words("--json -"), 0);
	assert_ptr_equal(values.json, stdout);
	close(mkstemp(path));
	snprintf(words, sizeof(words), "--json %s --conns 5", path);
	assert_int_equal(parse_words(words), 0);
	assert_ptr_not_equal(values.json, stdout);
	fclose(values.json);
	unlink(path);
}

static void assert_exits(const char *words, const char *line)
{
	struct in_child run = in_child_run(parse_words, (void *)words);

	assert_int_equal(run.status, OPT_EXIT_USAGE);
	assert_string_equal(run.out, "");
	if (!strstr(run.err, line) ||
	    strchr(run.err, '\n') != run.err + strlen(run.err) - 1)
		fail_msg("'%s' printed '%s'", words, run.err);
}

static const char *say_place(const struct argp_state *state, const char *name)
{
	return strcmp(name, "conns") == 0 ? "--config 'f', line 3: " : "";
}

static void test_a_wrong_option_ends_the_program_with_one_line(void **state)
{
	values.conns = 7;
	assert_exits("--conns 4", "tool: --conns '4': expected a whole number "
				  "from 5 to 4000000, for example --conns 5\n");
	assert_exits("--memory 4", "for example --memory 256M\n");
	assert_exits("--cc x", "for example --cc cubic\n");
	assert_exits("--json /", "a file that can be written (Is a directory)");
	assert_exits("--nosuch", "nosuch");
	assert_exits("--conns", "conns");
	assert_exits("--verbose=1", "verbose");
	assert_exits("stray", "tool: 'stray': expected options only");
	assert_exits("--verbose --conns 7",
		     "tool: --conns is missing: expected another number, for "
		     "example --conns 8\n");
	opt_use_place(say_place);
	assert_exits("--conns 4", "tool: --config 'f', line 3: --conns '4'");
	opt_use_place(NULL);
}

static int print_help(void *unused)
{
	return parse_words("--help");
}

static void test_help_is_from_the_table(void **state)
{
	struct in_child run = in_child_run(print_help, NULL);

	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "Numbers:"));
	assert_non_null(strstr(run.out, "-p, --port=PORT"));
	assert_non_null(strstr(run.out, "Port (default 80)"));
	assert_non_null(strstr(run.out, "--cpu=N, --lcore=N"));
	assert_non_null(strstr(run.out, "From 5 to 4000000 connections"));
	assert_non_null(strstr(run.out, "--json[=FILE]"));
}

static void test_one_option_is_read_while_the_program_runs(void **state)
{
	struct opt_error error;

	values.verbose = true;
	assert_int_equal(opt_try(&test_set, "conns", "8", "", &values, &error),
			 0);
	assert_int_equal(values.conns, 8);
	assert_int_equal(opt_try(&test_set, NULL, NULL, "", &values, &error),
			 0);
	assert_int_equal(opt_try(&test_set, "conns", "7", "", &values, &error),
			 0);
	assert_int_equal(opt_try(&test_set, NULL, NULL, "", &values, &error),
			 -EINVAL);
	assert_int_equal(opt_try(&test_set, "nosuch", "8", "", &values, &error),
			 -ENOENT);
	assert_int_equal(
		opt_try(&test_set, "conns", "", "line 9: ", &values, &error),
		-EINVAL);
	assert_string_equal(error.text,
			    "line 9: --conns '': expected a whole number from "
			    "5 to 4000000, for example --conns 5");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers_are_digits_within_their_bounds),
		cmocka_unit_test(test_numbers_have_the_size_of_their_member),
		cmocka_unit_test(test_sizes_have_a_unit),
		cmocka_unit_test(test_sizes_in_bytes_need_no_unit),
		cmocka_unit_test(test_seconds_have_up_to_nine_decimals),
		cmocka_unit_test(test_zero_may_be_valid_beside_the_bounds),
		cmocka_unit_test(test_other_units_are_converted),
		cmocka_unit_test(test_words_are_those_of_the_help),
		cmocka_unit_test(test_addresses_have_a_port),
		cmocka_unit_test(test_ranges_are_read_in_order),
		cmocka_unit_test(test_wrong_ranges_are_described),
		cmocka_unit_test(test_functions_read_what_no_kind_does),
		cmocka_unit_test(test_a_value_cannot_break_the_line),
		cmocka_unit_test(test_defaults_are_read_like_values),
		cmocka_unit_test(test_help_shows_default_and_bounds),
		cmocka_unit_test(test_keys_are_rows),
		cmocka_unit_test(test_argp_reads_the_table),
		cmocka_unit_test(test_option_given_twice_takes_the_last),
		cmocka_unit_test(test_value_may_be_left_out),
		cmocka_unit_test(
			test_a_wrong_option_ends_the_program_with_one_line),
		cmocka_unit_test(test_help_is_from_the_table),
		cmocka_unit_test(
			test_one_option_is_read_while_the_program_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
