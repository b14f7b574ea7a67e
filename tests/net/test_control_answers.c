/* Answers of the control socket: their pages and their characters. */
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

/* More than an answer has room for. */
static void test_listeners_are_listed_in_pages(void **state)
{
	struct net_listener *all[300];
	char request[64] = "/coronet/listeners";
	bool listed[300] = {false};
	unsigned n = 0, pages = 0;

	for (unsigned i = 0; i < 300; i++) {
		const struct net_addr at = net_addr_any((uint16_t)(2000 + i));

		assert_int_equal(net_listen(net_here(), &at, 0, &all[i]), 0);
	}
	while (*request) {
		cJSON *page = asked(0, request), *row;
		const cJSON *next = cJSON_GetObjectItem(page, "next");

		cJSON_ArrayForEach(row, cJSON_GetObjectItem(page, "listeners"))
		{
			const char *local = cJSON_GetStringValue(
				cJSON_GetObjectItem(row, "local"));
			int port = atoi(strrchr(local, ':') + 1);

			if (port < 2000)
				continue;
			assert_false(listed[port - 2000]);
			listed[port - 2000] = true;
			n++;
		}
		snprintf(request, sizeof(request), "%s%s",
			 next ? "/coronet/listeners,cursor=" : "",
			 next ? next->valuestring : "");
		cJSON_Delete(page);
		assert_true(++pages <= 3);
	}
	assert_int_equal(n, 300);
	for (unsigned i = 0; i < 300; i++)
		net_listener_close(all[i]);
}

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
		TEST(test_listeners_are_listed_in_pages),
		TEST(test_answers_are_utf8_whatever_was_asked),
	};

	return cmocka_run_group_tests_name("control_answers", tests, NULL,
					   NULL);
}
