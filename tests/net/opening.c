/* Handshakes by hand, from the SYN on. */
#include "tests/net/opening.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"

const uint8_t all_options[12] = {2, 4, 5, 180, 1, 3, 3, 7, 4, 2, 1, 1};

struct segment open_handshake(void)
{
	return peer_open(&peer, NEAR_WRAP, all_options, sizeof(all_options));
}

void send_segment(uint8_t flags, uint32_t seq, uint32_t ack, const char *data)
{
	peer_send_raw(&(struct segment){.src = peer.port,
					.dst = 7,
					.seq = seq,
					.ack = ack,
					.flags = flags,
					.wnd = 500,
					.options = (const uint8_t *)"",
					.data = (const uint8_t *)data,
					.len = (unsigned)strlen(data)});
}

struct net_conn *find_conn(uint16_t port)
{
	ip_addr_t local, remote;

	IP_ADDR4(&local, 10, 0, 0, 1);
	IP_ADDR4(&remote, 10, 0, 0, 2);
	return net_demux_find(&local, 7, &remote, port);
}

void discard_frames(void)
{
	static uint8_t frame[9216];

	run_rounds(2);
	while (fake_sent(frame, sizeof(frame)))
		;
}

void expect_gone(void)
{
	struct net_stats stats;

	net_stack_stats(stack, &stats);
	assert_int_equal(stats.half_open, 0);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(listener->pending, 0);
	assert_int_equal(net_client_entries, 0);
}

void expect_half_open(void)
{
	struct net_stats stats;

	net_stack_stats(stack, &stats);
	assert_int_equal(stats.half_open, 1);
	assert_int_equal(stats.conns, 0);
	assert_int_equal(listener->pending, 1);
	assert_int_equal(net_client_entries, 1);
}
