/*
 * The control plane's commands: their answers, and their cost for the shard.
 * The test's thread is the shard; another thread answers requests, as in a
 * program.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <coronet/net_control.h>

#include "netstack/control/control_priv.h"
#include "tests/net/asking.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define MANY 600u

static const char *text_in(const cJSON *object, const char *key)
{
	const char *text =
		cJSON_GetStringValue(cJSON_GetObjectItem(object, key));

	assert_non_null(text);
	return text;
}

static long number_in(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItem(object, key);

	assert_true(cJSON_IsNumber(item));
	return (long)item->valuedouble;
}

static cJSON *rows_of(const cJSON *answer, const char *key)
{
	cJSON *rows = cJSON_GetObjectItem(answer, key);

	assert_true(cJSON_IsArray(rows));
	return rows;
}

/* Returns the only connection and its ID. */
static cJSON *only_conn(char *id)
{
	cJSON *answer = asked(0, "/coronet/conns"), *row;

	assert_int_equal(cJSON_GetArraySize(rows_of(answer, "conns")), 1);
	row = cJSON_DetachItemFromArray(rows_of(answer, "conns"), 0);
	if (id)
		strcpy(id, text_in(row, "id"));
	cJSON_Delete(answer);
	return row;
}

/* ---- the protocol ---- */

static void test_greeting_matches_dpdk_telemetry(void **state)
{
	char *text = net_control_greeting();
	cJSON *greeting = cJSON_Parse(text);

	assert_true(strlen(text) <
		    1024); /* as many bytes as its clients read */
	assert_int_equal(number_in(greeting, "max_output_len"),
			 NET_CONTROL_MAX_OUTPUT);
	assert_memory_equal(text_in(greeting, "version"), "coronet ", 8);
	assert_true(number_in(greeting, "pid") > 0);
	cJSON_Delete(greeting);
	free(text);
}

static void test_commands_are_listed_and_explained(void **state)
{
	cJSON *names = asked(0, "/"), *name, *help;
	char request[128];

	assert_true(cJSON_GetArraySize(names) > 10);
	cJSON_ArrayForEach(name, names)
	{
		snprintf(request, sizeof(request), "/help,%s",
			 name->valuestring);
		help = asked(0, request);
		assert_true(strlen(text_in(help, name->valuestring)) > 8);
		cJSON_Delete(help);
	}
	cJSON_Delete(names);
}

static void test_unknown_commands_are_answered_by_null(void **state)
{
	char *text = asked_text(0, "/nothing/like/it,7", NULL);

	assert_string_equal(text, "{\"/nothing/like/it\":null}");
	free(text);
	text = asked_text(0, "", NULL);
	assert_string_equal(text, "{\"\":null}");
	free(text);
}

static void test_every_list_command_answers(void **state)
{
	static const char *const lists[][2] = {
		{"/coronet/listeners", "listeners"},
		{"/coronet/shards", "shards"},
		{"/coronet/mem", "mem"},
		{"/coronet/routes", "routes"},
		{"/coronet/links", "links"}};

	for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		cJSON *answer = asked(0, lists[i][0]);

		assert_int_equal(
			cJSON_GetArraySize(rows_of(answer, lists[i][1])), 1);
		cJSON_Delete(answer);
	}
}

static void test_captures_are_refused_with_a_reason(void **state)
{
	static const char *const wrong[][2] = {
		{"/coronet/capture.start", "expected the name of a file"},
		{"/coronet/capture.start,a.pcapng",
		 "expected an absolute path"},
		{"/coronet/capture.start,/tmp/a,bytes=7", "a size from 1K"},
		{"/coronet/capture.start,/tmp/a,speed=7",
		 "one of the keys bytes=, "}};
	cJSON *answer;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		answer = asked(0, wrong[i][0]);
		assert_non_null(strstr(text_in(answer, "error"), wrong[i][1]));
		cJSON_Delete(answer);
	}
	answer = asked(0, "/coronet/capture");
	assert_string_equal(text_in(answer, "state"), "none");
	cJSON_Delete(answer);
}

static void test_captures_start_and_stop(void **state)
{
	cJSON *answer =
		asked(0, "/coronet/capture.start,/a,filter=tcp, or udp");

	assert_string_equal(text_in(answer, "state"), "runs");
	assert_string_equal(text_in(answer, "file"), "/a");
	cJSON_Delete(answer);
	answer = asked(0, "/coronet/capture.stop");
	assert_string_equal(text_in(answer, "state"), "stopped");
	assert_int_equal(number_in(answer, "dropped"), 0);
	cJSON_Delete(answer);
}

static void test_routes_and_neighbours_are_listed(void **state)
{
	struct peer peer;
	cJSON *answer = asked(0, "/coronet/routes"), *row;

	row = cJSON_GetArrayItem(rows_of(answer, "routes"), 0);
	assert_string_equal(text_in(row, "to"), "10.0.0.0/24");
	cJSON_Delete(answer);
	peer_connect(&peer, 1000, 7, 1);
	answer = asked(0, "/coronet/neigh");
	row = cJSON_GetArrayItem(rows_of(answer, "neigh"), 0);
	assert_string_equal(text_in(row, "address"), "10.0.0.2");
	assert_string_equal(text_in(row, "state"), "reachable");
	cJSON_Delete(answer);
}

static unsigned levels;

static void count_levels(const char *type, unsigned level, void *arg)
{
	levels += strcmp(type, "lib.eal") == 0 ? level : 0;
}

static void test_log_levels_are_set(void **state)
{
	cJSON *answer = asked(0, "/coronet/log.level,lib.eal=debug");

	assert_string_equal(text_in(answer, "lib.eal"), "debug");
	cJSON_Delete(answer);
	levels = 0;
	glue_log_types(count_levels, NULL);
	assert_int_equal(levels, 8);
	cJSON_Delete(asked(0, "/coronet/log.level,lib.eal=info"));
	for (unsigned i = 0; i < 3; i++) {
		static const char *const wrong[] = {
			"/coronet/log.level,lib.eal",
			"/coronet/log.level,lib.eal=loud",
			"/coronet/log.level,=info=loud"};

		answer = asked(0, wrong[i]);
		assert_non_null(strstr(text_in(answer, "error"), "expected"));
		cJSON_Delete(answer);
	}
}

/* ---- connections ---- */

static void test_waiting_calls_of_a_connection_are_listed(void **state)
{
	struct peer peer;
	cJSON *row, *wait, *answer;

	serve(echo_views);
	net_listener_set_name(listener, "echo");
	peer_connect(&peer, 1000, 7, 1);
	run_ms(3000);
	row = only_conn(NULL);
	assert_string_equal(text_in(row, "state"), "established");
	assert_string_equal(text_in(row, "local"), "10.0.0.1:7");
	assert_string_equal(text_in(row, "peer"), "10.0.0.2:1000");
	assert_string_equal(text_in(row, "handler"), "echo");
	assert_in_range(number_in(row, "age_ms"), 2900, 3100);
	wait = cJSON_GetArrayItem(rows_of(row, "waits"), 0);
	assert_string_equal(text_in(wait, "in"), "net_recv");
	cJSON_Delete(row);
	answer = asked(0, "/coronet/coros");
	row = cJSON_GetArrayItem(rows_of(answer, "coros"), 0);
	assert_string_equal(text_in(row, "name"), "conn");
	assert_string_equal(text_in(row, "in"), "net_recv");
	assert_string_equal(text_in(row, "of"),
			    "handler echo, peer 10.0.0.2:1000");
	cJSON_Delete(answer);
}

static void name_it(struct net_conn *conn, void *arg)
{
	char long_name[200];

	assert_null(net_conn_name(conn));
	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	assert_int_equal(net_conn_set_name(conn, long_name), 0);
	assert_int_equal(strlen(net_conn_name(conn)), NET_NAME_MAX - 1);
	assert_int_equal(net_conn_set_name(conn, "user\n7"), 0);
	assert_string_equal(net_conn_name(conn), "user?7");
	echo_views(conn, arg);
}

static void test_names_are_shown_and_forgotten(void **state)
{
	struct peer peer;
	cJSON *row, *answer;

	assert_int_equal(net_conn_set_name(NULL, "x"), -EBADF);
	serve(name_it);
	peer_connect(&peer, 1000, 7, 1);
	row = only_conn(NULL);
	assert_string_equal(text_in(row, "name"), "user?7");
	cJSON_Delete(row);
	answer = asked(0, "/coronet/coros");
	row = cJSON_GetArrayItem(rows_of(answer, "coros"), 0);
	assert_non_null(strstr(text_in(row, "of"), ", named user?7"));
	cJSON_Delete(answer);
	/* A later connection at the same address has none. */
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(3);
	serve(echo_views);
	peer_connect(&peer, 1001, 7, 1);
	cJSON_Delete(only_conn(NULL)); /* from now on it may have one */
	row = only_conn(NULL);
	assert_null(cJSON_GetObjectItem(row, "name"));
	cJSON_Delete(row);
}

static void say_bye(struct net_conn *conn, void *arg)
{
	char byte;

	assert_int_equal(net_recv(conn, &byte, 1), 1);
	assert_int_equal(net_send_all(conn, "bye", 3), 3);
}

/* No coroutine has a handle, and the FIN is in flight. */
static void test_closed_connections_are_listed_as_closed(void **state)
{
	struct peer peer[3];
	cJSON *answer, *row;
	char *page;

	serve(say_bye);
	for (unsigned i = 0; i < 3; i++)
		peer_connect(&peer[i], (uint16_t)(1000 + i), 7, 1);
	for (unsigned i = 0; i < 3; i++)
		peer_send(&peer[i], PEER_ACK | PEER_PSH, "?", 1);
	run_rounds(3);
	answer = asked(0, "/coronet/conns");
	assert_int_equal(cJSON_GetArraySize(rows_of(answer, "conns")), 3);
	cJSON_ArrayForEach(row, rows_of(answer, "conns"))
	{
		assert_true(cJSON_IsTrue(cJSON_GetObjectItem(row, "closed")));
		assert_string_equal(text_in(row, "state"), "fin-wait-1");
		assert_int_equal(number_in(row, "unread"), 0);
		assert_int_equal(number_in(row, "unacked"), 3);
		assert_null(cJSON_GetObjectItem(row, "handler"));
	}
	cJSON_Delete(answer);
	page = asked_text(0, "page", NULL);
	assert_non_null(strstr(page, "state=\"closing\"} 3\n"));
	assert_non_null(strstr(page, "state=\"open\"} 0\n"));
	free(page);
}

static int conns_by(const char *filter)
{
	char request[128];
	cJSON *answer;
	int n;

	snprintf(request, sizeof(request), "/coronet/conns,%s", filter);
	answer = asked(0, request);
	n = cJSON_GetArraySize(rows_of(answer, "conns"));
	cJSON_Delete(answer);
	return n;
}

static void test_filters_select_connections(void **state)
{
	struct peer peer[3];

	serve(echo_views);
	net_listener_set_name(listener, "echo");
	for (unsigned i = 0; i < 3; i++)
		peer_connect(&peer[i], (uint16_t)(1000 + i), 7, 1);
	peer_send(&peer[2], PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(1); /* the handler has not closed yet */
	assert_int_equal(conns_by("port=7"), 3);
	assert_int_equal(conns_by("port=1001"), 1);
	assert_int_equal(conns_by("port=1001,peer=10.0.0.2"), 1);
	assert_int_equal(conns_by("port=1003"), 0);
	assert_int_equal(conns_by("peer=10.0.0.0/30"), 3);
	assert_int_equal(conns_by("peer=10.0.0.2/31"), 3);
	assert_int_equal(conns_by("peer=10.0.0.0/31"), 0);
	assert_int_equal(conns_by("peer=fd00::/8"), 0);
	assert_int_equal(conns_by("state=established"), 2);
	assert_int_equal(conns_by("state=SYN-SENT"), 0);
	assert_int_equal(conns_by("handler=ec"), 3);
	assert_int_equal(conns_by("handler=ed"), 0);
}

static void test_wrong_filters_are_refused(void **state)
{
	static const char *const wrong[] = {
		"peer=10.0.0", "peer=10.0.0.1:80", "peer=10.0.0.0/33",
		"port=0",      "port=65536",	   "port=+7",
		"state=open",  "shape=x",	   "port",
		"cursor=x",    "cursor=0:1x",	   "cursor=-1:0",
		"cursor=1:0"};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char request[64];
		cJSON *answer;

		snprintf(request, sizeof(request), "/coronet/conns,%s",
			 wrong[i]);
		answer = asked(0, request);
		text_in(answer, "error");
		cJSON_Delete(answer);
	}
}

static void test_id_of_an_ended_connection_is_invalid(void **state)
{
	char id[NET_ID_TEXT_MAX], again[NET_ID_TEXT_MAX], request[96];
	struct peer peer;
	cJSON *row;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, 1);
	cJSON_Delete(only_conn(id));
	cJSON_Delete(only_conn(again));
	assert_string_equal(id, again);
	snprintf(request, sizeof(request), "/coronet/drop,%s", id);
	row = asked(0, request);
	assert_string_equal(text_in(row, "peer"), "10.0.0.2:1000");
	cJSON_Delete(row);
	expect(NULL, PEER_RST | PEER_ACK, peer.rcv, peer.snd, 0);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECONNABORTED);
	/* The same addresses and ports, at the same memory address. */
	peer_connect(&peer, 1000, 7, 1);
	cJSON_Delete(only_conn(again));
	assert_memory_equal(id, again, strrchr(id, '-') - id);
	assert_string_not_equal(id, again);
	row = asked(0, request);
	assert_non_null(strstr(text_in(row, "error"), "it has ended"));
	cJSON_Delete(row);
	run_rounds(2);
	assert_int_equal(ended, 1);
}

static void test_malformed_ids_are_refused(void **state)
{
	static const char *const wrong[] = {"",		 "7",	    "0-1-2",
					    "0-1-2-3-4", "x-1-2-3", "0-1-2-3 ",
					    "1-1-2-3",	 "0-1-2-3"};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char request[64];
		cJSON *answer;

		snprintf(request, sizeof(request), "/coronet/conn,%s",
			 wrong[i]);
		answer = asked(0, request);
		text_in(answer, "error");
		cJSON_Delete(answer);
	}
}

/* ---- a walk beside work ---- */

static struct peer peers[MANY];
static unsigned echoes;

/* An echo is answered in every round of the walk. */
static void echo_once(unsigned round)
{
	struct peer *peer = &peers[0];

	peer_send(peer, PEER_ACK | PEER_PSH, "ping", 4);
	run_rounds(2);
	expect(NULL, PEER_ACK | PEER_PSH, peer->rcv, peer->snd, 4);
	peer->rcv += 4;
	echoes++;
}

/*
 * Adds a page's IDs to a set; returns true if there is another page, with its
 * params.
 */
static bool take_page(cJSON *seen, char *params, size_t len, unsigned *rounds)
{
	char request[128], *text;
	cJSON *all, *page, *row;
	const cJSON *next;
	unsigned rows;
	bool more;

	snprintf(request, sizeof(request), "/coronet/conns%s", params);
	text = asked_text(0, request, echo_once);
	all = cJSON_Parse(text);
	page = cJSON_GetObjectItem(all, "/coronet/conns");
	rows = (unsigned)cJSON_GetArraySize(rows_of(page, "conns"));
	*rounds = (unsigned)number_in(page, "rounds");
	/* Eight connections a round, plus the rest of a bucket. */
	assert_true(rows <= *rounds * 12);
	assert_true(strlen(text) < NET_CONTROL_MAX_OUTPUT);
	cJSON_ArrayForEach(row, rows_of(page, "conns"))
	{
		assert_null(cJSON_GetObjectItem(seen, text_in(row, "id")));
		cJSON_AddTrueToObject(seen, text_in(row, "id"));
	}
	next = cJSON_GetObjectItem(page, "next");
	more = next != NULL;
	if (more)
		snprintf(params, len, ",cursor=%s", next->valuestring);
	cJSON_Delete(all);
	free(text);
	return more;
}

static void test_a_walk_leaves_each_round_short(void **state)
{
	cJSON *seen = cJSON_CreateObject();
	char params[64] = "";
	unsigned pages = 0, rounds, all_rounds = 0;
	bool more;

	serve(echo_views);
	for (unsigned i = 0; i < MANY; i++)
		peer_connect(&peers[i], (uint16_t)(1000 + i), 7, 1);
	echoes = 0;
	do {
		more = take_page(seen, params, sizeof(params), &rounds);
		pages++;
		all_rounds += rounds;
	} while (more);
	assert_int_equal(cJSON_GetArraySize(seen), MANY);
	assert_true(pages > MANY / 128);
	assert_true(all_rounds >= MANY / 12);
	assert_true(echoes > 0);
	cJSON_Delete(seen);
}

static void test_coroutines_are_listed_once_in_pages(void **state)
{
	cJSON *seen = cJSON_CreateObject();
	char request[96] = "/coronet/coros";
	bool more;

	serve(echo_views);
	for (unsigned i = 0; i < MANY; i++)
		peer_connect(&peers[i], (uint16_t)(1000 + i), 7, 1);
	do {
		cJSON *page = asked(0, request), *row, *next;

		cJSON_ArrayForEach(row, rows_of(page, "coros"))
		{
			assert_null(
				cJSON_GetObjectItem(seen, text_in(row, "id")));
			cJSON_AddTrueToObject(seen, text_in(row, "id"));
		}
		next = cJSON_GetObjectItem(page, "next");
		more = next != NULL;
		if (more)
			snprintf(request, sizeof(request),
				 "/coronet/coros,cursor=%s", next->valuestring);
		cJSON_Delete(page);
	} while (more);
	assert_int_equal(cJSON_GetArraySize(seen), MANY);
	cJSON_Delete(seen);
}

static void test_a_shard_that_does_not_answer_is_named(void **state)
{
	char *answer = asked_in_vain("/coronet/shards");

	assert_non_null(strstr(answer, "shard 0 has not answered"));
	free(answer);
	run_rounds(2); /* frees what was asked */
}

/* ---- commands of programs ---- */

static char *answer_own(const char *params, void *arg)
{
	char *text;

	return asprintf(&text, "{\"got\":\"%s\",\"arg\":%d}",
			params ? params : "-", *(int *)arg) < 0
		       ? NULL
		       : text;
}

static void test_programs_add_commands(void **state)
{
	int arg = 42;
	cJSON *answer;

	assert_int_equal(net_control_add("own", "help", answer_own, &arg),
			 -EINVAL);
	assert_int_equal(net_control_add("/a,b", "help", answer_own, &arg),
			 -EINVAL);
	assert_int_equal(net_control_add("/info", "help", answer_own, &arg),
			 -EEXIST);
	assert_int_equal(net_control_add("/own", "help", answer_own, &arg), 0);
	assert_int_equal(net_control_add("/own", "help", answer_own, &arg),
			 -EEXIST);
	answer = asked(0, "/own,x=y,z");
	assert_string_equal(text_in(answer, "got"), "x=y,z");
	assert_int_equal(number_in(answer, "arg"), 42);
	cJSON_Delete(answer);
}

static void own_metrics(struct net_metrics *page, void *arg)
{
	net_metric(page, "own_things", NET_GAUGE, "Things.");
	net_metric_value(page, "kind=\"a\"", 1.5);
	net_metric_value(page, "", 3);
	net_metric(page, "own_seconds", NET_HISTOGRAM, "Times.");
	net_metric_histogram(page, "kind=\"a\"", (const double[]){0.5, 2},
			     (const uint64_t[]){1, 2, 4}, 2, 12.25);
	net_metric_histogram(page, "", NULL, (const uint64_t[]){7}, 0, 1);
}

static void test_metrics_page_has_the_counters(void **state)
{
	struct peer peer;
	char *page;

	assert_int_equal(net_metrics_add(own_metrics, NULL), 0);
	serve(echo_views);
	peer_connect(&peer, 1000, 7, 1);
	peer_send(&peer, PEER_ACK | PEER_PSH, "ping", 4);
	run_rounds(2);
	expect(NULL, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 4);
	run_ms(5000);
	page = asked_text(0, "page", NULL);
	assert_non_null(strstr(page, "own_things{kind=\"a\"} 1.5\n"
				     "own_things 3\n"));
	assert_non_null(strstr(page,
			       "# TYPE own_seconds histogram\n"
			       "own_seconds_bucket{kind=\"a\",le=\"0.5\"} 1\n"
			       "own_seconds_bucket{kind=\"a\",le=\"2\"} 3\n"
			       "own_seconds_bucket{kind=\"a\",le=\"+Inf\"} 7\n"
			       "own_seconds_sum{kind=\"a\"} 12.25\n"
			       "own_seconds_count{kind=\"a\"} 7\n"
			       "own_seconds_bucket{le=\"+Inf\"} 7\n"
			       "own_seconds_sum 1\nown_seconds_count 7\n"));
	assert_non_null(strstr(page, "\ncoronet_accepts_total{shard=\"0\"} "
				     "1\n"));
	assert_non_null(strstr(page, "\ncoronet_connections{shard=\"0\",state="
				     "\"open\"} 1\n"));
	assert_non_null(strstr(page, "coronet_retransmits_total{shard=\"0\","
				     "cause=\"rto\"} "));
	assert_null(strstr(page, "cause=\"rto\"} 0\n"));
	assert_non_null(strstr(page, "cause=\"fast\"} 0\n"));
	assert_null(strstr(page,
			   "coronet_retransmission_timeouts_total{shard=\"0\"} "
			   "0\n"));
	assert_non_null(strstr(page, "\ncoronet_rtt_seconds_bucket{shard="
				     "\"0\",le=\"+Inf\"} 1\n"));
	assert_non_null(strstr(page, "\ncoronet_link_up{link=\"ring:fake\"} "
				     "1\n"));
	assert_non_null(strstr(page, "\ncoronet_link_carrier_losses_total{link="
				     "\"ring:fake\"} 3\n"));
	free(page);
}

static void test_histograms_count_times_in_their_buckets(void **state)
{
	struct net_hist hist = {0};

	net_hist_add(&hist, 0);
	net_hist_add(&hist, 1023);
	net_hist_add(&hist, 1024);
	net_hist_add(&hist, 2047);
	net_hist_add(&hist, 2048);
	net_hist_add(&hist, UINT64_MAX / 2);
	assert_int_equal(hist.buckets[0], 2);
	assert_int_equal(hist.buckets[1], 2);
	assert_int_equal(hist.buckets[2], 1);
	assert_int_equal(hist.buckets[NET_HIST_BUCKETS - 1], 1);
}

int main(void)
{
#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, peer_listen_many, peer_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_greeting_matches_dpdk_telemetry),
		TEST(test_commands_are_listed_and_explained),
		TEST(test_unknown_commands_are_answered_by_null),
		TEST(test_every_list_command_answers),
		TEST(test_captures_are_refused_with_a_reason),
		TEST(test_captures_start_and_stop),
		TEST(test_routes_and_neighbours_are_listed),
		TEST(test_log_levels_are_set),
		TEST(test_waiting_calls_of_a_connection_are_listed),
		TEST(test_names_are_shown_and_forgotten),
		TEST(test_closed_connections_are_listed_as_closed),
		TEST(test_filters_select_connections),
		TEST(test_wrong_filters_are_refused),
		TEST(test_id_of_an_ended_connection_is_invalid),
		TEST(test_malformed_ids_are_refused),
		TEST(test_a_walk_leaves_each_round_short),
		TEST(test_coroutines_are_listed_once_in_pages),
		TEST(test_a_shard_that_does_not_answer_is_named),
		TEST(test_programs_add_commands),
		TEST(test_metrics_page_has_the_counters),
		TEST(test_histograms_count_times_in_their_buckets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
