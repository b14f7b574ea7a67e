/*
 * The list of UDP sockets: what it shows, in pages, a few sockets per round.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"
#include "tests/net/asking.h"
#include "tests/net/datagrams.h"
#include "tests/net/peer.h"

#define MANY	   300u
#define SLICE_ROWS 8 /* as netstack/control/udps.c */

static struct net_udp *open_at(unsigned port, const struct net_udp_opts *how)
{
	struct net_addr local = udp_at(udp_us4, port);
	struct net_udp *udp;

	assert_int_equal(net_udp_open(stack, &local, how, &udp), 0);
	return udp;
}

/* The only socket of the list; the caller deletes it. */
static cJSON *only_row(void)
{
	cJSON *answer = asked(0, "/coronet/udp");
	cJSON *rows = cJSON_GetObjectItem(answer, "udp"), *row;

	assert_int_equal(cJSON_GetArraySize(rows), 1);
	assert_null(cJSON_GetObjectItem(answer, "next"));
	row = cJSON_DetachItemFromArray(rows, 0);
	cJSON_Delete(answer);
	return row;
}

static const char *text_in(const cJSON *row, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItem(row, key));
}

static long number_in(const cJSON *row, const char *key)
{
	const cJSON *item = cJSON_GetObjectItem(row, key);

	assert_true(cJSON_IsNumber(item));
	return (long)item->valuedouble;
}

static void test_list_without_a_socket_is_empty(void **state)
{
	cJSON *answer = asked(0, "/coronet/udp");

	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(answer, "udp")),
			 0);
	cJSON_Delete(answer);
}

static void test_queue_and_drops_of_a_socket_are_listed(void **state)
{
	struct net_udp *udp =
		open_at(53, &(struct net_udp_opts){.rx_datagrams = 2});
	cJSON *row;

	for (unsigned i = 0; i < 5; i++)
		datagram_say(udp_at(udp_peer4, 1000), udp_at(udp_us4, 53),
			     "four");
	run_rounds(2);
	row = only_row();
	assert_string_equal(text_in(row, "local"), "10.0.0.1:53");
	assert_null(cJSON_GetObjectItem(row, "peer"));
	assert_null(cJSON_GetObjectItem(row, "reader"));
	assert_int_equal(number_in(row, "queued"), 2);
	assert_int_equal(number_in(row, "queued_bytes"), 8);
	assert_int_equal(number_in(row, "drops"), 3);
	assert_int_equal(number_in(row, "rx"), 2);
	cJSON_Delete(row);
	net_udp_close(udp);
}

static void *read_one(void *arg)
{
	char buf[8];

	net_udp_recv(arg, buf, sizeof(buf), NULL);
	return NULL;
}

static void test_peer_and_reader_of_a_connected_socket_are_listed(void **state)
{
	struct net_addr peer = udp_at(udp_peer4, 1000);
	struct net_udp *udp = open_at(54, NULL);
	cJSON *row;

	assert_int_equal(net_udp_connect(udp, &peer), 0);
	net_spawn(stack, "reading", read_one, udp);
	run_rounds(2);
	row = only_row();
	assert_string_equal(text_in(row, "local"), "10.0.0.1:54");
	assert_string_equal(text_in(row, "peer"), "10.0.0.2:1000");
	assert_string_equal(text_in(row, "reader"), "reading");
	cJSON_Delete(row);
	net_udp_close(udp);
	run_rounds(2);
}

/* Adds a page's sockets to a set; returns whether there is another page. */
static bool take_page(cJSON *seen, char *request, size_t len)
{
	cJSON *page = asked(0, request), *row;
	const cJSON *next = cJSON_GetObjectItem(page, "next");
	bool more = next != NULL;
	cJSON *rows = cJSON_GetObjectItem(page, "udp");
	char key[2 * NET_ADDR_TEXT_MAX];

	assert_in_range(cJSON_GetArraySize(rows), 0,
			SLICE_ROWS * number_in(page, "rounds"));
	cJSON_ArrayForEach(row, rows)
	{
		const char *peer = text_in(row, "peer");

		snprintf(key, sizeof(key), "%s %s", text_in(row, "local"),
			 peer ? peer : "");
		assert_null(cJSON_GetObjectItem(seen, key));
		cJSON_AddTrueToObject(seen, key);
	}
	if (more)
		snprintf(request, len, "/coronet/udp,cursor=%s",
			 next->valuestring);
	cJSON_Delete(page);
	return more;
}

static unsigned count_listed(unsigned *pages)
{
	cJSON *seen = cJSON_CreateObject();
	char request[96] = "/coronet/udp";
	unsigned n;

	*pages = 1;
	while (take_page(seen, request, sizeof(request)))
		(*pages)++;
	n = (unsigned)cJSON_GetArraySize(seen);
	cJSON_Delete(seen);
	return n;
}

static void test_sockets_are_listed_once_in_pages(void **state)
{
	static struct net_udp *udps[MANY];
	unsigned pages;

	for (unsigned i = 0; i < MANY; i++) {
		struct net_addr peer = udp_at(udp_peer4, 1000 + i);

		udps[i] = open_at(2000 + i, NULL);
		if (i % 2)
			assert_int_equal(net_udp_connect(udps[i], &peer), 0);
	}
	assert_int_equal(count_listed(&pages), MANY);
	assert_in_range(pages, 3, 8);
	for (unsigned i = 0; i < MANY; i++)
		net_udp_close(udps[i]);
}

static void test_cursors_beyond_the_tables_end_the_list(void **state)
{
	struct net_udp *udp = open_at(55, NULL);
	cJSON *answer = asked(0, "/coronet/udp,cursor=0:999999999999999999");

	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(answer, "udp")),
			 0);
	cJSON_Delete(answer);
	answer = asked(0, "/coronet/udp,cursor=0:16777215");
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(answer, "udp")),
			 1);
	cJSON_Delete(answer);
	net_udp_close(udp);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, udp_setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_list_without_a_socket_is_empty),
		TEST(test_queue_and_drops_of_a_socket_are_listed),
		TEST(test_peer_and_reader_of_a_connected_socket_are_listed),
		TEST(test_sockets_are_listed_once_in_pages),
		TEST(test_cursors_beyond_the_tables_end_the_list),
	};

	return cmocka_run_group_tests_name("control_udp", tests, NULL, NULL);
}
