/*
 * The peer's window: the ACKs that update it. A peer with a small window sends
 * segments and ACKs that arrive late or out of order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define MSS	  536u	      /* the MSS without the option */
#define NEAR_WRAP 0xfffffe00u /* sequence numbers wrap within the test */
#define WINDOW	  2000u

static struct peer peer;
static uint32_t base; /* of the stack's stream */

static void send_much(struct net_conn *conn, void *arg)
{
	static uint8_t data[20000];

	result = net_send_all(conn, data, sizeof(data));
	while (net_recv(conn, got, sizeof(got)) > 0)
		;
	ended++;
}

static void connect_small(void)
{
	struct segment s;

	serve(send_much);
	peer = (struct peer){
		.port = 1000, .stack_port = 7, .snd = NEAR_WRAP, .wnd = WINDOW};
	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	base = peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
}

/* Returns the number of bytes that the stack has sent. */
static uint32_t sent_bytes(void)
{
	uint32_t most = 0;
	struct segment s;

	while (peer_next(&s))
		if (s.len && s.seq + s.len - base > most)
			most = s.seq + s.len - base;
	return most;
}

static void send_ack(uint32_t seq, uint32_t offset, uint16_t wnd, unsigned len)
{
	struct segment s = {.src = peer.port,
			    .dst = peer.stack_port,
			    .seq = seq,
			    .ack = base + offset,
			    .flags = PEER_ACK,
			    .wnd = wnd,
			    .options = (const uint8_t *)"",
			    .data = got,
			    .len = len};

	peer_send_raw(&s);
}

static void test_overtaken_ack_does_not_open_the_window(void **state)
{
	connect_small();
	assert_int_equal(sent_bytes(), 3 * MSS);
	send_ack(peer.snd, 3 * MSS, 0, 0);
	assert_int_equal(sent_bytes(), 0);
	/* Sent before that, but out of order in the peer's stream. */
	send_ack(peer.snd + 100, 0, WINDOW, 100);
	assert_int_equal(sent_bytes(), 0);
	send_ack(peer.snd + 100, 3 * MSS, WINDOW, 0);
	assert_int_equal(sent_bytes(), 6 * MSS);
}

static void test_ack_of_new_data_always_updates_the_window(void **state)
{
	connect_small();
	assert_int_equal(sent_bytes(), 3 * MSS);
	/* The peer's second segment comes first, the first one again last. */
	send_ack(peer.snd + 100, MSS, WINDOW, 100);
	assert_int_equal(sent_bytes(), 4 * MSS);
	send_ack(peer.snd, 3 * MSS, 2 * MSS,
		 100); /* it has read half as much */
	assert_int_equal(sent_bytes(), 5 * MSS);
}

#define T(f) cmocka_unit_test_setup_teardown(f, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_overtaken_ack_does_not_open_the_window),
		T(test_ack_of_new_data_always_updates_the_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
