/* Answers of the control socket: their characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"
#include "tests/net/asking.h"
#include "tests/net/peer.h"

static void test_answers_are_utf8_whatever_was_asked(void **state)
{
	/* A character; a cut one, a lone byte, half of a pair, a long '/'. */
	char *text = asked_text(
		0,
		"/\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 \xe2\x82 \xff "
		"\xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80 \xc3",
		NULL);

	assert_string_equal(
		text, "{\"/\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 ?? ? ??? ?? "
		      "???? ?\":null}");
	free(text);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_answers_are_utf8_whatever_was_asked),
	};

	return cmocka_run_group_tests_name("control_answers", tests, NULL,
					   NULL);
}
