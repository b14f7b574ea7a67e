/* Lines on stdin that change a wire while it runs: parsing, effects, errors. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/wire/control.h"

static struct wire_conf conf[WIRE_ENDS], before[WIRE_ENDS];
static struct wire_request asked;
static struct wire_control control;
static char err[512], line[WIRE_CONTROL_LINE];
static int fds[2];

static int setup(void **state)
{
	for (int end = 0; end < WIRE_ENDS; end++)
		wire_conf_init(&conf[end]);
	memcpy(before, conf, sizeof(before));
	if (pipe(fds) < 0)
		return -errno;
	wire_control_init(&control, fds[0]);
	return 0;
}

static int teardown(void **state)
{
	close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	return 0;
}

static int parse_line(const char *text)
{
	snprintf(line, sizeof(line), "%s", text);
	return wire_control_parse(line, conf, &asked, err, sizeof(err));
}

static void refuses(const char *text, const char *says)
{
	assert_int_equal(parse_line(text), -EINVAL);
	if (!strstr(err, says) || strchr(err, '\n'))
		fail_msg("'%s' is refused with '%s'", text, err);
	assert_memory_equal(conf, before, sizeof(conf));
}

static void write_text(const char *text)
{
	assert_int_equal(write(fds[1], text, strlen(text)), strlen(text));
}

static void receive_text(const char *text)
{
	assert_true(wire_control_next(&control, line));
	assert_string_equal(line, text);
}

static void test_one_direction_or_both_change(void **state)
{
	assert_int_equal(parse_line("a-to-b delay=20,rate=10"), 0);
	assert_true(asked.changes[WIRE_A] && !asked.changes[WIRE_B]);
	assert_int_equal(conf[WIRE_A].delay_ns, 20000000);
	assert_int_equal(conf[WIRE_A].rate_bps, 10000000);
	assert_memory_equal(&conf[WIRE_B], &before[WIRE_B], sizeof(conf[0]));
	assert_int_equal(parse_line("b-to-a path-mtu=900,too-big=report"), 0);
	assert_true(!asked.changes[WIRE_A] && asked.changes[WIRE_B]);
	assert_int_equal(conf[WIRE_B].mtu, 900);
	assert_true(conf[WIRE_B].send_too_big);
	assert_int_equal(conf[WIRE_A].mtu, 0);
	assert_int_equal(parse_line("b-to-a too-big=drop"), 0);
	assert_false(conf[WIRE_B].send_too_big);
	assert_int_equal(parse_line("both loss=1"), 0);
	assert_true(asked.changes[WIRE_A] && asked.changes[WIRE_B]);
	assert_true(conf[WIRE_A].loss && conf[WIRE_B].loss);
	/* Earlier changes remain. */
	assert_int_equal(conf[WIRE_A].delay_ns, 20000000);
	assert_false(asked.counters);
}

static void test_counters_change_nothing(void **state)
{
	assert_int_equal(parse_line("counters"), 0);
	assert_true(asked.counters);
	assert_false(asked.changes[WIRE_A] || asked.changes[WIRE_B]);
	assert_memory_equal(conf, before, sizeof(conf));
}

static void test_wrong_lines_change_nothing(void **state)
{
	refuses("", "'': expected both, a-to-b, b-to-a or counters");
	refuses("faster", "'faster': expected both");
	refuses("counters please", "'counters': expected both");
	refuses("both", "'': expected key=value");
	refuses("both ", "'': expected key=value");
	refuses("both loss", "'loss': expected one of the keys loss=, delay=");
	refuses("both color=red", "'color=red'");
	refuses("both loss=1,delay=x",
		"'loss=1,delay=x': expected delay= with milliseconds");
	refuses("both path-mtu=67",
		"expected path-mtu= with 0, or a whole number from 68");
	refuses("both path-mtu=9001",
		"'path-mtu=9001': expected path-mtu= with 0");
	refuses("both too-big=ignore",
		"'too-big=ignore': expected too-big= with drop or");
	refuses("a-to-b up-at=3", "expected up-at after down-at");
}

static void test_lines_are_read_whole_and_in_order(void **state)
{
	assert_false(wire_control_next(&control, line));
	write_text("both lo");
	assert_false(wire_control_next(&control, line));
	write_text("ss=1\ncounters\n\nboth");
	receive_text("both loss=1");
	receive_text("counters");
	receive_text("");
	assert_false(wire_control_next(&control, line));
	write_text(" rate=1\n");
	receive_text("both rate=1");
}

static void test_end_of_input_yields_no_line(void **state)
{
	write_text("counters\nbo");
	close(fds[1]);
	fds[1] = -1;
	receive_text("counters");
	for (int i = 0; i < 3; i++)
		assert_false(wire_control_next(&control, line));
	assert_true(control.ended);
}

static void test_a_line_without_end_is_cut(void **state)
{
	char longest[WIRE_CONTROL_LINE + 1];

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	write_text(longest);
	longest[WIRE_CONTROL_LINE - 1] = '\0';
	receive_text(longest);
	refuses(line, "expected both");
	write_text("\ncounters\n");
	receive_text("x");
	receive_text("counters");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_one_direction_or_both_change),
		TEST(test_counters_change_nothing),
		TEST(test_wrong_lines_change_nothing),
		TEST(test_lines_are_read_whole_and_in_order),
		TEST(test_end_of_input_yields_no_line),
		TEST(test_a_line_without_end_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
