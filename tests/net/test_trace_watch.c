/*
 * The connection trace as clients of the control socket see it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"
#include "tests/net/asking.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"
#include "tests/net/traced.h"

static void expect_ok(uint64_t client, const char *request)
{
	cJSON *answer = asked(client, request);
	const char *error =
		cJSON_GetStringValue(cJSON_GetObjectItem(answer, "error"));

	if (error)
		fail_msg("%s: %s", request, error);
	cJSON_Delete(answer);
}

static void expect_error(uint64_t client, const char *request, const char *part)
{
	cJSON *answer = asked(client, request);
	const char *error =
		cJSON_GetStringValue(cJSON_GetObjectItem(answer, "error"));

	assert_non_null(error);
	assert_true(has_line(error, part));
	cJSON_Delete(answer);
}

/* Returns the kinds of the events read, one after another. */
static char *kinds_read(uint64_t client)
{
	cJSON *page = asked(client, "/coronet/trace");
	const cJSON *event;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	cJSON_ArrayForEach(event, cJSON_GetObjectItem(page, "events"))
	{
		fprintf(out, "%s ",
			cJSON_GetStringValue(
				cJSON_GetObjectItem(event, "kind")));
	}
	fclose(out);
	cJSON_Delete(page);
	return text;
}

static void expect_kinds(uint64_t client, const char *expected)
{
	char *text = kinds_read(client);

	assert_string_equal(text, expected);
	free(text);
}

/* Both ends close, and the connection ends. */
static void close_as_peer(struct peer *p)
{
	peer_send(p, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	traced_drain();
	p->rcv++;
	peer_send(p, PEER_ACK, NULL, 0);
	run_rounds(3);
}

static void test_a_client_follows_a_connection_to_its_end(void **state)
{
	struct peer p;

	serve(traced_echo);
	net_ask_open(1);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	expect_ok(1, "/coronet/trace.start,10.0.0.2:1000");
	expect_kinds(1, "begin ");
	peer_send(&p, PEER_ACK | PEER_PSH, "a", 1);
	p.rcv += peer_wait(1).len;
	expect_kinds(1, "in call done call out ");
	expect_kinds(1, "");
	close_as_peer(&p);
	assert_int_equal(traced_rings(),
			 1); /* it has ended, and waits for a reader */
	expect_kinds(1, "in state done call out state done in end ");
	assert_int_equal(traced_rings(), 0);
	net_traces_client_gone(1);
	run_rounds(2);
	net_ask_shut();
}

static void test_later_connection_is_followed(void **state)
{
	struct peer p, other;

	serve(traced_read_all);
	net_ask_open(1);
	expect_ok(1, "/coronet/trace.start,10.0.0.2:1001,port=7");
	peer_connect(&other, 1000, 7, 99);
	peer_connect(&p, 1001, 7, 99);
	run_rounds(2);
	expect_kinds(1, "begin in call ");
	assert_int_equal(traced_rings(), 1);
	net_traces_client_gone(1);
	run_rounds(2);
	assert_int_equal(traced_rings(), 0);
	expect_error(1, "/coronet/trace", "watches no connection");
	net_ask_shut();
}

static void test_slow_client_gets_the_number_of_missed_events(void **state)
{
	const cJSON *missed;
	struct peer p;
	cJSON *page;

	serve(traced_echo);
	net_ask_open(1);
	expect_ok(1, "/coronet/trace.start,10.0.0.0/8");
	peer_connect(&p, 1000, 7, 99);
	for (unsigned i = 0; i < 40; i++) {
		peer_send(&p, PEER_ACK | PEER_PSH, "x", 1);
		p.rcv += peer_wait(1).len;
	}
	run_rounds(2);
	/* begin, in, call; then in, done, call, done, call, out each. */
	page = asked(1, "/coronet/trace");
	missed = cJSON_GetArrayItem(cJSON_GetObjectItem(page, "events"), 0);
	assert_string_equal(
		cJSON_GetStringValue(cJSON_GetObjectItem(missed, "kind")),
		"missed");
	assert_int_equal(cJSON_GetObjectItem(missed, "events")->valuedouble,
			 3 + 40 * 6 - NET_TRACE_EVENTS);
	assert_int_equal(
		cJSON_GetArraySize(cJSON_GetObjectItem(page, "events")),
		1 + NET_TRACE_EVENTS);
	cJSON_Delete(page);
	net_traces_client_gone(1);
	run_rounds(2);
	net_ask_shut();
}

static void test_clients_that_watch_are_bounded(void **state)
{
	net_ask_open(1);
	for (unsigned i = 0; i < NET_TRACE_WATCHES; i++)
		expect_ok(10 + i, "/coronet/trace.start,10.9.9.9");
	expect_error(20, "/coronet/trace.start,10.9.9.9",
		     "too many tracing clients");
	expect_ok(10,
		  "/coronet/trace.start,10.9.9.8"); /* its own watch again */
	expect_kinds(11, "");
	net_traces_client_gone(12);
	run_rounds(1);
	expect_ok(20, "/coronet/trace.start,10.9.9.9");
	for (unsigned i = 10; i <= 20; i++)
		net_traces_client_gone(i);
	run_rounds(2);
	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++)
		assert_null(net_here()->traces->watches[w].wants);
	net_ask_shut();
}

static void test_small_clock_differences_do_not_reorder_events(void **state)
{
	const int64_t offset = 1795843674000000000, us = 1000;

	assert_true(net_control_steady_offset(0, offset) == offset);
	assert_true(net_control_steady_offset(offset, offset - 10 * us) ==
		    offset);
	assert_true(net_control_steady_offset(offset, offset + 10 * us) ==
		    offset);
	/* The system's clock was set. */
	assert_true(net_control_steady_offset(offset, offset + 2000 * us) ==
		    offset + 2000 * us);
	assert_true(net_control_steady_offset(offset, offset - 2000 * us) ==
		    offset - 2000 * us);
}

static void test_numbers_are_printed_in_full(void **state)
{
	cJSON *all = cJSON_CreateObject();
	char *text;

	net_control_number(all, "a", 7);
	net_control_number(all, "b", 1795843674401700);
	net_control_number(all, "c", UINT64_MAX);
	text = cJSON_PrintUnformatted(all);
	assert_string_equal(text, "{\"a\":7,\"b\":1795843674401700,"
				  "\"c\":18446744073709551615}");
	free(text);
	cJSON_Delete(all);
}

/* A client that keeps its slot and does not poll. */
static void test_client_that_does_not_poll_loses_its_watch(void **state)
{
	struct timespec ts;
	int64_t now;
	struct peer p;

	serve(traced_read_all);
	net_ask_open(1);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = ts.tv_sec * 1000;
	assert_int_equal(net_traces_expire(now), -1);
	peer_connect(&p, 1000, 7, 99);
	expect_ok(1, "/coronet/trace.start,10.0.0.2");
	expect_kinds(1, "begin ");
	assert_in_range(net_traces_expire(now + 30000), 1, 62000);
	run_rounds(2);
	assert_int_equal(traced_rings(), 1);
	assert_int_equal(net_traces_expire(now + 120000), -1);
	run_rounds(2);
	assert_int_equal(traced_rings(), 0);
	expect_error(1, "/coronet/trace", "watches no connection");
	net_ask_shut();
}

static void test_invalid_peers_are_refused(void **state)
{
	net_ask_open(1);
	expect_error(1, "/coronet/trace.start", "expected a peer");
	expect_error(1, "/coronet/trace.start,nobody", "'nobody': expected");
	expect_error(1, "/coronet/trace.start,10.9.0.1:x", "expected a peer");
	expect_error(1, "/coronet/trace.start,10.9.0.1,port=0", "port '0'");
	expect_error(1, "/coronet/trace.start,0-1-2-3", "no connection");
	expect_error(1, "/coronet/trace", "watches no connection");
	net_ask_shut();
}

/* More rings than a page has room for: every event is returned once. */
static void test_pages_have_every_event_once(void **state)
{
	struct peer p[12];
	unsigned events = 0, pages = 0;
	bool more = true;

	serve(traced_echo);
	traced_first(12);
	net_ask_open(1);
	for (unsigned i = 0; i < 12; i++) {
		peer_connect(&p[i], (uint16_t)(1000 + i), 7, 99);
		for (unsigned k = 0; k < 12; k++) {
			peer_send(&p[i], PEER_ACK | PEER_PSH, "x", 1);
			p[i].rcv += peer_wait(1).len;
		}
	}
	run_rounds(2);
	expect_ok(1, "/coronet/trace.start,10.0.0.2");
	while (more) {
		cJSON *page = asked(1, "/coronet/trace");

		events += (unsigned)cJSON_GetArraySize(
			cJSON_GetObjectItem(page, "events"));
		more = cJSON_IsTrue(cJSON_GetObjectItem(page, "more"));
		cJSON_Delete(page);
		assert_true(++pages < 20);
	}
	assert_int_equal(events, 12 * NET_TRACE_EVENTS);
	assert_true(pages > 2);
	net_traces_client_gone(1);
	run_rounds(2);
	net_ask_shut();
}

/* Returns whether the client's trace by ID is over; each event has that ID. */
static bool has_ended(uint64_t client, const char *id)
{
	cJSON *page = asked(client, "/coronet/trace");
	bool over = cJSON_IsTrue(cJSON_GetObjectItem(page, "ended"));
	const cJSON *event;

	cJSON_ArrayForEach(event, cJSON_GetObjectItem(page, "events"))
	{
		assert_string_equal(
			cJSON_GetStringValue(cJSON_GetObjectItem(event, "id")),
			id);
	}
	cJSON_Delete(page);
	return over;
}

static void expect_id(const char *expected)
{
	char id[NET_ID_TEXT_MAX];

	net_id_format(traced_conn, id, sizeof(id));
	assert_string_equal(id, expected);
}

static void start_by_id(char *request, size_t len, const char **id)
{
	int n = snprintf(request, len, "/coronet/trace.start,");

	*id = request + n;
	net_id_format(traced_conn, request + n, len - (size_t)n);
	expect_ok(1, request);
}

/* Its ID stays the same although other connections with IDs end. */
static void test_connection_is_followed_by_its_id_until_it_ends(void **state)
{
	char request[64];
	const char *id;
	struct peer p;

	serve(traced_echo);
	traced_first(1);
	net_ask_open(1);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	++*net_turn_of(net_demux_hash_of(traced_conn));
	start_by_id(request, sizeof(request), &id);
	++*net_turn_of(net_demux_hash_of(traced_conn));
	expect_id(id);
	assert_false(has_ended(1, id));
	assert_false(has_ended(1, id));
	close_as_peer(&p);
	assert_true(has_ended(1, id));
	expect_error(1, request, "no connection");
	net_traces_client_gone(1);
	run_rounds(2);
	net_ask_shut();
}

/* Its ring is needed for another one before its end was reported. */
static void test_trace_by_id_ends_although_its_ring_is_reused(void **state)
{
	char request[64];
	struct peer p;
	const char *id;

	serve(traced_echo);
	traced_first(1);
	net_ask_open(1);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	start_by_id(request, sizeof(request), &id);
	assert_false(has_ended(1, id));
	peer_send(&p, PEER_ACK | PEER_RST, NULL, 0);
	run_rounds(3);
	peer_connect(&p, 1001, 7, 99);
	run_rounds(2);
	assert_true(has_ended(1, id));
	net_traces_client_gone(1);
	run_rounds(2);
	net_ask_shut();
}

static void test_trace_by_id_without_a_ring_is_refused(void **state)
{
	struct peer p[NET_TRACE_EXTRA + 1];
	char request[64];

	serve(traced_read_all);
	net_ask_open(1);
	expect_ok(2, "/coronet/trace.start,10.0.0.0/8");
	for (unsigned i = 0; i <= NET_TRACE_EXTRA; i++)
		peer_connect(&p[i], (uint16_t)(1000 + i), 7, 99);
	run_rounds(2);
	snprintf(request, sizeof(request), "/coronet/trace.start,");
	net_id_format(traced_conn, request + strlen(request),
		      sizeof(request) - strlen(request));
	expect_error(1, request, "cannot be traced");
	expect_error(1, "/coronet/trace", "watches no connection");
	net_traces_client_gone(2);
	run_rounds(2);
	net_ask_shut();
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)
#define MANY_TEST(name)                                                        \
	cmocka_unit_test_setup_teardown(name, peer_listen_many, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_client_follows_a_connection_to_its_end),
		TEST(test_later_connection_is_followed),
		TEST(test_slow_client_gets_the_number_of_missed_events),
		TEST(test_clients_that_watch_are_bounded),
		TEST(test_small_clock_differences_do_not_reorder_events),
		TEST(test_numbers_are_printed_in_full),
		TEST(test_client_that_does_not_poll_loses_its_watch),
		TEST(test_invalid_peers_are_refused),
		TEST(test_connection_is_followed_by_its_id_until_it_ends),
		TEST(test_trace_by_id_ends_although_its_ring_is_reused),
		MANY_TEST(test_trace_by_id_without_a_ring_is_refused),
		MANY_TEST(test_pages_have_every_event_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
