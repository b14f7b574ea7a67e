/*
 * The page for load balancers. The test's thread is the shard; another thread
 * answers requests, as in a program.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <coronet/net_control.h>

#include "netstack/control/control_priv.h"
#include "tests/net/asking.h"
#include "tests/net/peer.h"

static const char *program_is_unwell;

static const char *own_health(void *arg)
{
	return program_is_unwell;
}

static void check_http(const char *request, const char *begin, const char *end)
{
	char *text = asked_text(0, request, NULL);
	size_t len = strlen(text);

	assert_memory_equal(text, begin, strlen(begin));
	assert_true(len >= strlen(end));
	assert_string_equal(text + len - strlen(end), end);
	free(text);
}

#define GET_HEALTH "GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
#define OK	   "HTTP/1.1 200 OK\r\n"
#define NOT_OK	   "HTTP/1.1 503 Service Unavailable\r\n"

static void test_health_says_whether_the_program_serves(void **state)
{
	assert_int_equal(net_health_add(NULL, NULL), -EINVAL);
	program_is_unwell = NULL;
	check_http(GET_HEALTH, OK, "\r\n\r\nok\n");
	assert_int_equal(net_health_add(own_health, NULL), 0);
	check_http(GET_HEALTH, OK, "\r\n\r\nok\n");
	check_http(
		"GET /healthz?a=b HTTP/1.0\r\n\r\n", OK,
		"Content-Length: 3\r\nCache-Control: no-store\r\nConnection: "
		"close\r\n\r\nok\n");
	check_http("HEAD /health HTTP/1.1\r\n\r\n", OK, "close\r\n\r\n");
	program_is_unwell = "draining";
	check_http(GET_HEALTH, NOT_OK, "\r\n\r\ndraining\n");
	check_http("HEAD /healthz HTTP/1.1\r\n\r\n", NOT_OK, "close\r\n\r\n");
	program_is_unwell = NULL;
	check_http(GET_HEALTH, OK, "ok\n");
	check_http("POST /health HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ", "\n");
}

static void test_stack_that_does_not_run_is_not_healthy(void **state)
{
	char *text = asked_in_vain(GET_HEALTH);

	assert_memory_equal(text, NOT_OK, sizeof(NOT_OK) - 1);
	assert_non_null(strstr(text, "\r\n\r\nshard 0 has not answered"));
	free(text);
	run_rounds(2); /* frees what was asked */
	net_ask_open(0);
	check_http(GET_HEALTH, NOT_OK, "\r\n\r\nstarting\n");
	net_ask_shut();
	check_http(GET_HEALTH, NOT_OK, "\r\n\r\nstopping\n");
}

int main(void)
{
#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, peer_listen_many, peer_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_health_says_whether_the_program_serves),
		TEST(test_stack_that_does_not_run_is_not_healthy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
