/*
 * Faults that lwIP 2.2.1 has, or that others who ship lwIP had to mend: each
 * as a peer would meet it. docs/internals.md lists those that cannot happen.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/net_priv.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define MSS	  536u	      /* what a SYN without options means */
#define NEAR_WRAP 0xfffffe00u /* sequence numbers wrap within the test */

static struct net_conn *the_conn;
static size_t to_send;

static void send_and_close(struct net_conn *conn, void *arg)
{
	static uint8_t data[65536];

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	the_conn = conn;
	result = net_send_all(conn, data, to_send);
	ended++;
}

/* A handshake with a window smaller than 64 KiB; the handler sends `bytes`. */
static uint32_t connect_small(struct peer *peer, uint16_t wnd, size_t bytes)
{
	struct segment s;

	to_send = bytes;
	serve(send_and_close);
	*peer = (struct peer){
		.port = 1000, .stack_port = 7, .snd = NEAR_WRAP, .wnd = wnd};
	peer_send(peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	peer->rcv = s.seq + 1;
	peer_send(peer, PEER_ACK, NULL, 0);
	return peer->rcv;
}

/*
 * A segment that has to be split for a small window: FIN and PSH belong to its
 * end alone (libvma 908).
 */
static void test_fin_stays_at_the_end_of_a_split_segment(void **state)
{
	struct peer peer;
	struct segment s;
	uint32_t base = connect_small(&peer, 2000, 2100);
	unsigned fins = 0;

	for (unsigned ms = 0; ms < 2000 && !fins; ms++) {
		run_ms(1);
		while (peer_next(&s)) {
			if (s.flags & (PEER_FIN | PEER_PSH))
				assert_int_equal(s.seq + s.len, base + 2100);
			fins += (s.flags & PEER_FIN) != 0;
			if (s.seq != peer.rcv)
				continue;
			peer.rcv += s.len + ((s.flags & PEER_FIN) != 0);
			if (peer.rcv - base < 2000) /* nothing is read */
				peer.wnd = (uint16_t)(2000 - (peer.rcv - base));
			peer_send(&peer, PEER_ACK, NULL, 0);
		}
	}
	assert_int_equal(fins, 1);
	assert_int_equal(peer.rcv - base, 2101);
}

#define T(f) cmocka_unit_test_setup_teardown(f, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_fin_stays_at_the_end_of_a_split_segment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
