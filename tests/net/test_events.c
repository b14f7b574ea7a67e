/*
 * Events in the log: the keys of each line; no event is logged by default; a
 * flood of one kind does not suppress others.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/api/api.h"
#include "netstack/conn/conn.h"
#include "netstack/program/events.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static int ends[2];
static char text[1 << 16];
static struct net_conn *ours;
static long (*wanted)(struct net_conn *conn); /* the last call of the handler */

static void set_levels(const char *levels)
{
	char err[300] = "";

	assert_int_equal(net_log_set_levels(levels, true, err, sizeof(err)), 0);
}

static void read_to_end(struct net_conn *conn, void *arg)
{
	struct net_view view;

	ours = conn;
	while ((result = net_recv_view(conn, &view)) > 0)
		net_view_release(conn, &view);
	if (wanted)
		result = wanted(conn);
	ended++;
}

static int set_up(void **state)
{
	int err = peer_listen(state);

	ours = NULL;
	wanted = NULL;
	ended = 0;
	if (err || pipe2(ends, O_NONBLOCK))
		return -1;
	net_log_set_fd(ends[1]);
	set_levels("coronet.*=debug");
	return 0;
}

static int tear_down(void **state)
{
	set_levels("notice");
	net_log_flush();
	net_log_set_fd(STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
	return peer_teardown(state);
}

/* Returns the lines logged since the last call. */
static const char *event_lines(void)
{
	ssize_t n;

	while (net_log_waiting())
		usleep(1000);
	n = read(ends[0], text, sizeof(text) - 1);
	text[n < 0 ? 0 : n] = '\0';
	return text;
}

/* Returns the line of an event such as "event=closed", which must exist. */
static const char *line_of(const char *event)
{
	static char line[NET_LOG_BYTES];
	const char *at = strstr(event_lines(), event);

	if (!at)
		fail_msg("no %s in: %s", event, text);
	while (at > text && at[-1] != '\n')
		at--;
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
	return line;
}

/* Returns the value of a key, which must appear once. */
static const char *value_of(const char *line, const char *key)
{
	static char value[NET_LOG_BYTES];
	char start[64];
	const char *at;

	snprintf(start, sizeof(start), " %s=", key);
	at = strstr(line, start);
	if (!at)
		fail_msg("no %s= in: %s", key, line);
	at += strlen(start);
	assert_null(strstr(at, start));
	snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, " "), at);
	return value;
}

static void assert_value(const char *line, const char *key, const char *value)
{
	if (strcmp(value_of(line, key), value) != 0)
		fail_msg("%s is not %s in: %s", key, value, line);
}

static void connect_one(struct peer *peer)
{
	serve(read_to_end);
	peer_connect(peer, 1000, 7, 99);
	run_rounds(2);
	assert_non_null(ours);
}

/* Closes from the peer's side, and acknowledges the stack's FIN. */
static void close_kindly(struct peer *peer)
{
	struct segment s;

	peer_send(peer, PEER_ACK | PEER_FIN, NULL, 0);
	peer->snd++;
	while (peer_next(&s))
		if (s.flags & PEER_FIN)
			peer->rcv = s.seq + s.len + 1;
	peer_send(peer, PEER_ACK, NULL, 0);
	run_rounds(2);
}

/* ---- connections ---- */

static void test_opening_and_closing_are_logged(void **state)
{
	struct peer peer;
	char id[64], opened[NET_LOG_BYTES];

	connect_one(&peer);
	snprintf(opened, sizeof(opened), "%s", line_of("event=opened"));
	assert_memory_equal(opened, "coronet.conn: event=opened local=", 33);
	assert_value(opened, "local", "10.0.0.1:7");
	assert_value(opened, "peer", "10.0.0.2:1000");
	assert_value(opened, "name", "-");
	assert_value(opened, "by", "peer");
	assert_string_not_equal(value_of(opened, "handler"), "-");
	strcpy(id, value_of(opened, "id"));
	net_conn_set_name(ours, "alice");
	peer_send(&peer, PEER_ACK | PEER_PSH, "hello", 5);
	run_ms(100);
	close_kindly(&peer);
	assert_int_equal(ended, 1);
	snprintf(opened, sizeof(opened), "%s", line_of("event=closed"));
	assert_value(opened, "local", "10.0.0.1:7");
	assert_value(opened, "peer", "10.0.0.2:1000");
	assert_value(opened, "id", id);
	assert_value(opened, "name", "alice");
	assert_value(opened, "reason", "done");
	assert_value(opened, "bytes_in", "5");
	assert_value(opened, "bytes_out", "0");
	assert_value(opened, "retrans", "0");
	assert_value(opened, "unread", "0");
	assert_value(opened, "unacked", "0");
	assert_in_range(atoi(value_of(opened, "age_ms")), 80, 200);
}

static void test_events_are_not_logged_by_default(void **state)
{
	struct peer peer;

	set_levels("notice");
	connect_one(&peer);
	close_kindly(&peer);
	peer_send_syn_of((const uint8_t[]){10, 0, 0, 3}, 9);
	assert_string_equal(event_lines(), "");
	/* Another component's level does not matter. */
	set_levels("coronet.listen=info");
	ours = NULL;
	peer_connect(&peer, 1001, 7, 99);
	run_rounds(2);
	assert_string_equal(event_lines(), "");
}

static void test_a_name_with_spaces_stays_one_value(void **state)
{
	struct peer peer;
	const char *line;

	connect_one(&peer);
	net_conn_set_name(ours, "a b\" reason=done\n");
	close_kindly(&peer);
	line = line_of("event=closed");
	assert_non_null(strstr(line, " name=\"a b' reason=done?\" reason="));
}

static void test_reset_by_the_peer_is_logged(void **state)
{
	struct peer peer;

	connect_one(&peer);
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(2);
	assert_int_equal(result, -ECONNRESET);
	assert_value(line_of("event=closed"), "reason", "peer-reset");
}

static long aborts(struct net_conn *conn)
{
	net_abort(conn);
	return 1;
}

static void test_abort_is_logged_for_its_connection_only(void **state)
{
	struct peer peer, other;
	struct segment s;

	connect_one(&peer);
	peer_connect(&other, 1001, 7, 99);
	peer_send(&other, PEER_ACK | PEER_FIN, NULL, 0);
	other.snd++;
	while (peer_next(&s))
		if (s.flags & PEER_FIN)
			other.rcv = s.seq + 1;
	wanted = aborts;
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(2);
	assert_value(line_of("event=closed"), "reason", "abort");
	peer_send(&other, PEER_ACK, NULL, 0); /* of our FIN */
	run_rounds(2);
	assert_value(line_of("event=closed"), "reason", "done");
}

static void closes_at_once(struct net_conn *conn, void *arg)
{
	ours = conn;
	coro_sleep_ns(50000000);
}

static void test_unread_bytes_reset_and_are_counted(void **state)
{
	const char *line;
	struct peer peer;

	serve(closes_at_once);
	peer_connect(&peer, 1000, 7, 99);
	peer_send(&peer, PEER_ACK | PEER_PSH, "abc", 3);
	run_ms(100);
	line = line_of("event=closed");
	assert_value(line, "reason", "unread");
	assert_value(line, "unread", "3");
}

static void test_data_after_the_end_resets(void **state)
{
	struct peer peer;

	serve(closes_at_once);
	peer_connect(&peer, 1000, 7, 99);
	run_ms(100);
	while (peer_next(&(struct segment){0}))
		;
	peer.rcv++; /* its FIN */
	peer_send(&peer, PEER_ACK | PEER_PSH, "abc", 3);
	run_rounds(2);
	assert_value(line_of("event=closed"), "reason", "late-data");
}

static void test_a_peer_that_never_closes_is_given_up(void **state)
{
	struct peer peer;

	serve(closes_at_once);
	peer_connect(&peer, 1000, 7, 99);
	run_ms(100);
	while (peer_next(&(struct segment){0}))
		;
	peer.rcv++;
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned s = 0; s < 60 && net_here()->n_conns; s++)
		run_ms(1000);
	assert_value(line_of("event=closed"), "reason", "fin-timeout");
}

static void test_drop_by_an_operator_is_logged(void **state)
{
	struct peer peer;

	connect_one(&peer);
	net_conn_drop(ours);
	run_rounds(2);
	assert_value(line_of("event=closed"), "reason", "drop");
}

static long send_and_wait(struct net_conn *conn)
{
	net_send(conn, "x", 1);
	return net_recv_view(conn, &(struct net_view){0});
}

static void send_with_timeout(struct net_conn *conn, void *arg)
{
	ours = conn;
	net_set_user_timeout(conn, *(unsigned *)arg);
	result = send_and_wait(conn);
	ended++;
}

/* Acknowledges nothing until the connection ends; returns the log line. */
static const char *vanish(unsigned timeout_ms)
{
	struct peer peer;

	net_listener_serve(listener, send_with_timeout, &timeout_ms);
	peer_connect(&peer, 1000, 7, 99);
	for (unsigned s = 0; s < 2000 && !ended; s++) {
		run_ms(1000);
		while (peer_next(&(struct segment){0}))
			;
	}
	assert_int_equal(result, -ETIMEDOUT);
	return line_of("event=closed");
}

static void test_retransmission_timeout_is_logged_with_its_count(void **state)
{
	const char *line = vanish(0);

	assert_value(line, "reason", "timeout");
	assert_value(line, "unacked", "1");
	assert_in_range(atoi(value_of(line, "retrans")), 11, 14);
	assert_non_null(strstr(text, "coronet.recovery: event=rto local="));
	assert_non_null(strstr(text, " in_a_row=12 unacked=1"));
}

static void test_user_timeout_is_logged(void **state)
{
	assert_value(vanish(5000), "reason", "user-timeout");
}

static void says_once_asked(struct net_conn *conn, void *arg)
{
	ours = conn;
	result = net_recv(conn, got, 1);
	result = send_and_wait(conn);
	ended++;
}

static void test_closed_window_timeout_is_logged(void **state)
{
	struct peer peer;

	serve(says_once_asked);
	peer_connect(&peer, 1000, 7, 99);
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK | PEER_PSH, "?", 1);
	for (unsigned s = 0; s < 2000 && !ended; s++) {
		run_ms(1000);
		while (peer_next(&(struct segment){0}))
			;
	}
	assert_int_equal(result, -ETIMEDOUT);
	assert_value(line_of("event=closed"), "reason", "window-shut");
}

static void test_every_end_has_a_name_and_a_text(void **state)
{
	for (unsigned i = 0; i < NET_ENDS; i++) {
		assert_non_null(net_end_name(i));
		assert_non_null(net_end_text(i));
		for (unsigned j = 0; j < i; j++) {
			assert_string_not_equal(net_end_name(i),
						net_end_name(j));
			assert_string_not_equal(net_end_text(i),
						net_end_text(j));
		}
	}
}

static void test_keepalive_timeout_is_logged(void **state)
{
	struct peer peer;

	connect_one(&peer);
	assert_int_equal(net_set_keepalive(ours, 2, 1, 3), 0);
	for (unsigned s = 0; s < 30 && !ended; s++) {
		run_ms(1000);
		while (peer_next(&(struct segment){0}))
			;
	}
	assert_value(line_of("event=closed"), "reason", "keepalive");
}

static void test_end_by_the_program_is_logged(void **state)
{
	struct peer peer;

	connect_one(&peer);
	event_lines();
	run_ms(3000);
	peer_teardown(state);
	assert_value(line_of("event=closed"), "reason", "stopped");
	assert_non_null(strstr(text, "event=stopped local=*:7 shard=0"));
	assert_int_equal(peer_setup(state), 0);
}

/* ---- refusals ---- */

static void send_syn(uint16_t port)
{
	struct peer p = {
		.port = port, .stack_port = 7, .snd = 99, .wnd = 65535};

	peer_send(&p, PEER_SYN, NULL, 0);
}

static void test_refused_clients_are_logged(void **state)
{
	struct net_limits limits = {.clients = 1};
	struct peer peer;
	const char *line;

	assert_int_equal(net_listener_limit(listener, &limits), 0);
	connect_one(&peer);
	send_syn(1001);
	run_rounds(2);
	line = line_of("event=refused");
	assert_memory_equal(line, "coronet.listen: event=refused local=", 36);
	assert_value(line, "local", "10.0.0.1:7");
	assert_value(line, "peer", "10.0.0.2:1001");
	assert_value(line, "reason", "clients");
	net_here()->memory_full = true;
	send_syn(1002);
	run_rounds(1);
	net_here()->memory_full = false;
	assert_value(line_of("event=refused"), "reason", "memory");
}

static void test_full_backlog_is_logged(void **state)
{
	for (uint16_t port = 1001; port <= 1008; port++) {
		struct peer peer;

		peer_connect(&peer, port, 7, 99);
	}
	event_lines();
	send_syn(1009);
	run_rounds(2);
	assert_value(line_of("event=refused"), "reason", "backlog");
}

static struct net_addr far_end = {.family = 4, .ip = {10, 0, 0, 2}, .port = 9};

static void *dial_peer(void *arg)
{
	result = net_dial(stack, arg, NULL, &ours);
	ended++;
	return NULL;
}

static void test_end_of_a_dial_is_logged(void **state)
{
	struct segment s;
	struct peer peer = {.port = 9, .wnd = 65535, .snd = 500};
	const char *line;

	net_spawn(stack, "dial", dial_peer, &far_end);
	s = peer_wait(100);
	peer.stack_port = s.src;
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(result, -ECONNREFUSED);
	line = line_of("event=failed");
	assert_memory_equal(line, "coronet.dial: event=failed peer=", 32);
	assert_value(line, "peer", "10.0.0.2:9");
	assert_value(line, "reason", "refused");
	assert_null(strstr(text, "event=closed"));

	net_spawn(stack, "dial", dial_peer, &far_end);
	s = peer_wait(100);
	peer.stack_port = s.src;
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_SYN | PEER_ACK, NULL, 0);
	peer.snd++;
	run_rounds(2);
	assert_int_equal(result, 0);
	line = line_of("event=opened");
	assert_value(line, "by", "us");
	assert_value(line, "peer", "10.0.0.2:9");
	assert_value(line, "handler", "-");
	net_abort(ours);
	assert_value(line_of("event=closed"), "reason", "abort");
}

/* ---- limits ---- */

static unsigned count_lines(const char *needle)
{
	unsigned n = 0;

	for (const char *at = text; (at = strstr(at, needle)); at++)
		n++;
	return n;
}

static void test_repeated_events_are_limited_and_summed_up(void **state)
{
	struct net_limits limits = {.clients = 1};
	uint64_t before = net_log_suppressed();
	struct peer peer;

	run_ms(2000); /* lets the rate limit of earlier events expire */
	assert_int_equal(net_listener_limit(listener, &limits), 0);
	connect_one(&peer);
	event_lines();
	for (unsigned i = 0; i < 250; i++) {
		send_syn((uint16_t)(2000 + i));
		run_rounds(1);
		if (i % 50 ==
		    0) /* drains the ring, which must not be the bound */
			net_log_flush();
	}
	event_lines();
	assert_int_equal(count_lines("event=refused"), NET_EVENTS_PER_S);
	assert_null(strstr(text, "held="));
	assert_int_equal(net_log_suppressed() - before, 150);
	/* Another kind of event has its own limit. */
	close_kindly(&peer);
	event_lines();
	assert_int_equal(count_lines("event=closed"), 1);
	assert_null(strstr(text, "held="));
	connect_one(&peer);
	run_ms(2000);
	send_syn(4000);
	run_rounds(2);
	assert_value(line_of("event=refused"), "held", "150");
	send_syn(4001);
	run_rounds(2);
	assert_null(strstr(line_of("event=refused"), "held="));
}

int main(void)
{
#define CASE(test_) cmocka_unit_test_setup_teardown(test_, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(test_opening_and_closing_are_logged),
		CASE(test_events_are_not_logged_by_default),
		CASE(test_a_name_with_spaces_stays_one_value),
		CASE(test_reset_by_the_peer_is_logged),
		CASE(test_abort_is_logged_for_its_connection_only),
		CASE(test_unread_bytes_reset_and_are_counted),
		CASE(test_data_after_the_end_resets),
		CASE(test_a_peer_that_never_closes_is_given_up),
		CASE(test_drop_by_an_operator_is_logged),
		CASE(test_retransmission_timeout_is_logged_with_its_count),
		CASE(test_user_timeout_is_logged),
		CASE(test_closed_window_timeout_is_logged),
		CASE(test_every_end_has_a_name_and_a_text),
		CASE(test_keepalive_timeout_is_logged),
		CASE(test_end_by_the_program_is_logged),
		CASE(test_refused_clients_are_logged),
		CASE(test_full_backlog_is_logged),
		CASE(test_end_of_a_dial_is_logged),
		CASE(test_repeated_events_are_limited_and_summed_up),
	};

	return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
