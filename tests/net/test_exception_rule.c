/*
 * The value of --exception.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/program/exception_rule.h"

static struct net_exception_rule rule;
static char error[256];

static int parse_rule(const char *text)
{
	return net_exception_parse(text, &rule, error, sizeof(error));
}

static void test_exception_default_passes_all_other_frames(void **state)
{
	assert_int_equal(parse_rule("tap:kern0"), 0);
	assert_string_equal(rule.name, "kern0");
	assert_true(net_ports_has(&rule.tcp, 22));
	assert_true(net_ports_has(&rule.udp, 65535));
	assert_false(rule.echo || rule.other_off || rule.addr_off);
	assert_int_equal(rule.rate, NET_EXCEPTION_RATE);
}

static void test_ports_are_listed_or_excluded(void **state)
{
	assert_int_equal(parse_rule("tap:k,tcp=22+179+1000-1002,udp=!53+123"),
			 0);
	assert_true(net_ports_has(&rule.tcp, 22));
	assert_true(net_ports_has(&rule.tcp, 179));
	assert_true(net_ports_has(&rule.tcp, 1000));
	assert_true(net_ports_has(&rule.tcp, 1002));
	assert_false(net_ports_has(&rule.tcp, 23));
	assert_false(net_ports_has(&rule.tcp, 999));
	assert_false(net_ports_has(&rule.tcp, 1003));
	assert_false(net_ports_has(&rule.udp, 53));
	assert_false(net_ports_has(&rule.udp, 123));
	assert_true(net_ports_has(&rule.udp, 54));
	assert_int_equal(parse_rule("tap:k,tcp=none,udp=1-65535"), 0);
	assert_false(net_ports_has(&rule.tcp, 22));
	assert_true(net_ports_has(&rule.udp, 1));
	assert_false(net_ports_has(&rule.udp, 0));
}

static void test_other_keys_are_read(void **state)
{
	assert_int_equal(
		parse_rule("tap:fifteen-letters,echo=kernel,other=off,addr=off,"
			   "rate=1"),
		0);
	assert_true(rule.echo && rule.other_off && rule.addr_off);
	assert_int_equal(rule.rate, 1);
}

static void test_wrong_options_are_refused_with_the_value(void **state)
{
	static const struct {
		const char *text, *named;
	} wrong[] = {
		{"", "expected tap:"},
		{"kern0", "expected tap:"},
		{"tap:", "expected tap:"},
		{"tap:sixteen-letters-", "expected tap:"},
		{"tap:a/b", "expected tap:"},
		{"tap:%d", "expected tap:"},
		{"tap:..", "expected tap:"},
		{"tap:k,tcp", "expected one of the keys tcp=, udp=, "},
		{"tap:k,tcp=", "tcp=\': expected tcp= with "},
		{"tap:k,tcp=0", "tcp=0\': expected tcp= with "},
		{"tap:k,tcp=22+", "tcp=22+\': expected tcp= with "},
		{"tap:k,tcp=!", "tcp=!\': expected tcp= with "},
		{"tap:k,tcp=65536", "tcp=65536\': expected tcp= with "},
		{"tap:k,udp=9-8", "udp=9-8\': expected udp= with "},
		{"tap:k,udp=9-", "udp=9-\': expected udp= with "},
		{"tap:k,udp=-9", "udp=-9\': expected udp= with "},
		{"tap:k,udp=1 ", "udp=1 \': expected udp= with "},
		{"tap:k,udp=99999999999999999999",
		 "udp=99999999999999999999\': expected udp= with "},
		{"tap:k,echo=yes", "echo=yes\': expected echo= with "},
		{"tap:k,other=1", "other=1\': expected other= with "},
		{"tap:k,addr=", "addr=\': expected addr= with "},
		{"tap:k,rate=0", "rate=0\': expected rate= with "},
		{"tap:k,rate=1000001", "rate=1000001\': expected rate= with "},
		{"tap:k,rate=10k", "rate=10k\': expected rate= with "},
		{"tap:k,colour=red", "expected one of the keys tcp=, udp=, "},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(parse_rule(wrong[i].text), -EINVAL);
		assert_non_null(strstr(error, wrong[i].named));
		assert_non_null(strstr(error, "--exception '"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_exception_default_passes_all_other_frames),
		cmocka_unit_test(test_ports_are_listed_or_excluded),
		cmocka_unit_test(test_other_keys_are_read),
		cmocka_unit_test(test_wrong_options_are_refused_with_the_value),
	};

	return cmocka_run_group_tests_name("exception-rule", tests, NULL, NULL);
}
