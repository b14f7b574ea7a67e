/*
 * A connection's statistics in the terms of Linux's TCP_INFO, against traces
 * computed by hand.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/recovery_priv.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

#define NO_SSTHRESH 0x7fffffffu

static struct net_tcp_info tcp_info(void)
{
	struct net_conn_stats out;

	memset(&out, 0xff, sizeof(out));
	assert_int_equal(net_conn_stats(ours, &out), 0);
	return out.info;
}

static void swallow(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

static void send_text(const char *text)
{
	peer_send(&peer, PEER_ACK, text, (unsigned)strlen(text));
	run_rounds(2);
	swallow();
}

/* The SYN asked for SACK, a shift of 4 and an MSS of 1000; RTT 20 ms. */
static void test_agreed_options_are_reported(void **state)
{
	struct net_tcp_info i;

	repair_connect(true, 0);
	i = tcp_info();
	assert_int_equal(i.absent, NET_INFO_NO_RCV | NET_INFO_NO_RATE);
	assert_int_equal(i.state, 1);
	assert_int_equal(i.ca_state, 0);
	assert_int_equal(i.options, 2 | 4);
	assert_int_equal(i.snd_wscale, 4);
	assert_int_equal(i.rcv_wscale, net_here()->rcv_scale);
	assert_int_equal(i.snd_mss, 1000);
	assert_int_equal(i.advmss, 1460);
	assert_int_equal(i.pmtu, 1500);
	assert_int_equal(i.snd_cwnd, 10);
	assert_int_equal(i.snd_ssthresh, NO_SSTHRESH);
	assert_int_equal(i.reordering, 3);
	assert_int_equal(i.ato, 40000);
	assert_true(i.pacing_rate == UINT64_MAX);
	assert_true(i.max_pacing_rate == UINT64_MAX);
	/* RFC 6298: 20, and half of it; our floor adds 120 ms. */
	assert_in_range(i.rtt, 19000, 21000);
	assert_in_range(i.rttvar, 9500, 10500);
	assert_in_range(i.min_rtt, 19000, 21000);
	assert_in_range(i.rto, 139000, 141000);
	assert_int_equal(i.snd_wnd, (uint32_t)peer.wnd << 4);
	assert_int_equal(i.rcv_wnd, TCP_WND);
	assert_int_equal(i.rcv_ssthresh, net_rcv_max(&ours->pcb));
	assert_int_equal(i.segs_in, 1);
	assert_int_equal(i.segs_out, 1);
	assert_int_equal(i.data_segs_in + i.data_segs_out, 0);
	assert_int_equal(i.unacked + i.delivered + i.notsent_bytes, 0);
	net_abort(ours);
}

/* Ten leave; 1, 2 and 3 arrive: 0 is lost, and resent at once. */
static void test_loss_and_repair_are_reported(void **state)
{
	unsigned sent[16];
	struct net_tcp_info i;

	repair_connect(true, 10 * MSS);
	assert_int_equal(take_sent(sent, 16), 10);
	i = tcp_info();
	assert_int_equal(i.unacked, 10);
	assert_int_equal(i.data_segs_out, 10);
	assert_true(i.bytes_sent == 10 * MSS);
	assert_int_equal(i.delivered, 0);
	run_ms(RTT_MS);
	ACK_SACK(0, 1, 2);
	i = tcp_info();
	assert_int_equal(i.ca_state, 1); /* disorder: it may come yet */
	assert_int_equal(i.sacked, 1);
	assert_int_equal(i.lost + i.retrans, 0);
	ACK_SACK(0, 1, 4);
	EXPECT_SENT(0);
	i = tcp_info();
	assert_int_equal(i.ca_state, 3);
	assert_int_equal(i.unacked, 10);
	assert_int_equal(i.sacked, 3);
	assert_int_equal(i.lost, 1);
	assert_int_equal(i.retrans, 1);
	assert_int_equal(i.total_retrans, 1);
	assert_true(i.bytes_retrans == MSS);
	assert_true(i.bytes_sent == 11 * MSS);
	assert_true(i.bytes_acked == 0);
	assert_int_equal(i.data_segs_out, 11);
	assert_int_equal(i.delivered, 3);
	assert_int_equal(i.snd_ssthresh, 7); /* CUBIC: 0.7 of ten */
	run_ms(RTT_MS);
	ACK(10);
	i = tcp_info();
	assert_int_equal(i.ca_state, 0);
	assert_int_equal(i.unacked + i.sacked + i.lost + i.retrans, 0);
	assert_true(i.bytes_acked == 10 * MSS);
	assert_int_equal(i.delivered, 10);
	assert_int_equal(i.total_rto, 0);
	assert_int_equal(i.dsack_dups + i.reord_seen, 0);
	net_abort(ours);
}

/* 0 comes late, after 1 and 2, and was not sent again. */
static void test_reordering_is_counted_once(void **state)
{
	unsigned sent[16];

	repair_connect(true, 4 * MSS);
	assert_int_equal(take_sent(sent, 16), 4);
	run_ms(RTT_MS);
	ACK_SACK(0, 1, 3);
	assert_int_equal(tcp_info().reord_seen, 0);
	ACK(3);
	assert_int_equal(tcp_info().reord_seen, 1);
	assert_int_equal(tcp_info().total_retrans, 0);
	assert_int_equal(tcp_info().delivered, 3);
	net_abort(ours);
}

/* The peer reports by D-SACK that segment 1 came twice. */
static void test_dsack_is_counted(void **state)
{
	unsigned sent[16];

	repair_connect(true, 3 * MSS);
	assert_int_equal(take_sent(sent, 16), 3);
	run_ms(2 * RTT_MS + 3);
	EXPECT_SENT(2); /* the probe for a tail */
	ACK_SACK(2, 1, 2);
	assert_int_equal(tcp_info().dsack_dups, 1);
	assert_int_equal(tcp_info().delivered, 3); /* as Linux counts it */
	assert_int_equal(tcp_info().data_segs_out, 4);
	assert_int_equal(tcp_info().total_retrans, 1);
	net_abort(ours);
}

/* A probe at 40 ms, a timeout 140 later, another 280 after that. */
static void test_timeouts_are_counted(void **state)
{
	struct net_tcp_info i;

	repair_connect(true, MSS);
	swallow();
	run_ms(40 + 140 + 10);
	i = tcp_info();
	assert_int_equal(i.ca_state, 4);
	assert_int_equal(i.retransmits, 1);
	assert_int_equal(i.backoff, 1);
	assert_int_equal(i.total_rto, 1);
	assert_int_equal(i.total_retrans, 2);
	assert_int_equal(i.snd_cwnd, 1);
	assert_int_equal(i.lost, 1);
	assert_int_equal(i.retrans, 1);
	assert_in_range(i.rto, 278000, 282000);
	run_ms(280);
	assert_int_equal(tcp_info().retransmits, 2);
	assert_in_range(tcp_info().rto, 556000, 564000);
	swallow();
	ACK(1);
	i = tcp_info();
	assert_int_equal(i.retransmits + i.backoff, 0);
	assert_int_equal(i.total_rto, 2);
	assert_int_equal(i.delivered, 1);
	net_abort(ours);
}

static void test_received_segments_are_counted(void **state)
{
	struct net_tcp_info i;

	repair_connect(true, 0);
	send_text("hello");
	run_ms(300);
	i = tcp_info();
	assert_true(i.bytes_received == 5);
	assert_int_equal(i.data_segs_in, 1);
	assert_int_equal(i.rcv_mss, 5);
	assert_in_range(i.last_data_recv, 299, 302);
	assert_in_range(i.last_ack_recv, 260, 340);
	peer.snd += 3;
	send_text("later");
	i = tcp_info();
	assert_int_equal(i.rcv_ooopack, 1);
	assert_true(i.bytes_received == 5);
	assert_in_range(i.last_data_recv, 0, 2);
	peer.snd -= 8;
	send_text("now");
	i = tcp_info();
	assert_true(i.bytes_received == 13);
	assert_int_equal(i.data_segs_in, 3);
	assert_int_equal(i.rcv_ooopack, 1);
	assert_int_equal(i.rcv_mss, 5);
	assert_int_equal(i.segs_in, 4);
	assert_in_range(i.last_data_sent, 300, 350); /* since its start */
	net_abort(ours);
}

static void test_a_zero_window_is_probed(void **state)
{
	struct net_tcp_info i;

	repair_connect(true, 0);
	peer.wnd = 0;
	send_text("x");
	assert_int_equal(net_send(ours, "wait", 4), 4);
	run_ms(140 + 280 + 20);
	swallow();
	i = tcp_info();
	assert_int_equal(i.snd_wnd, 0);
	assert_int_equal(i.probes, 2);
	assert_int_equal(i.backoff, 2);
	assert_int_equal(i.notsent_bytes, 4);
	assert_int_equal(i.data_segs_out, 0);
	assert_int_equal(i.total_retrans, 0);
	net_abort(ours);
}

static void test_rates_are_in_bytes_a_second(void **state)
{
	repair_connect(true, 0);
	assert_int_equal(net_set_pacing_rate(ours, 1 << 20), 0);
	assert_true(tcp_info().max_pacing_rate == 1 << 20);
	assert_true(tcp_info().pacing_rate == 1 << 20);
	net_abort(ours);
}

/* Linux's numbers, through a close that the peer lets last. */
static void test_states_have_linuxs_numbers(void **state)
{
	struct segment s;

	repair_connect(true, 0);
	assert_int_equal(tcp_info().state, 1);
	assert_int_equal(net_shutdown(ours, NET_SHUT_WR), 0);
	run_rounds(2);
	while (peer_next(&s))
		peer.rcv = s.seq + s.len + !!(s.flags & PEER_FIN);
	assert_int_equal(tcp_info().state, 4);
	assert_int_equal(tcp_info().delivered, 0); /* a FIN is no data */
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(tcp_info().state, 5);
	net_abort(ours);
}

static void test_connection_without_counters_reports_them_absent(void **state)
{
	struct net_tcp_info i;

	net_here()->max_counted = 0;
	repair_connect(true, 3 * MSS);
	swallow();
	send_text("hello");
	i = tcp_info();
	assert_int_equal(i.absent, NET_INFO_NO_RCV | NET_INFO_NO_RATE |
					   NET_INFO_NO_COUNTS);
	assert_int_equal(i.unacked,
			 3); /* values without counters are still reported */
	assert_int_equal(i.snd_cwnd, 10);
	assert_true(i.bytes_sent + i.bytes_received + i.bytes_acked == 0);
	assert_int_equal(i.segs_in + i.segs_out + i.data_segs_out, 0);
	assert_int_equal(i.delivered + i.rcv_mss + i.last_data_recv, 0);
	net_abort(ours);
}

/* The memory of all counters with the default limit. */
static void test_counters_use_bounded_memory(void **state)
{
	struct net_opts opts;

	net_opts_init(&opts);
	assert_true(opts.counted_conns * sizeof(struct net_counted) <= 3 << 19);
}

static void open_window(uint16_t wnd)
{
	peer.wnd = wnd;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
}

static void take_all(void)
{
	struct segment s;

	while (peer_next(&s))
		peer.rcv = s.seq + s.len;
}

/* Linux's chronographs: 200 ms limited by a window, 50 ms until the ACK. */
static void test_times_by_limiting_factor_are_counted(void **state)
{
	struct net_tcp_info i;
	uint16_t wnd;

	repair_connect(true, 0);
	wnd = peer.wnd;
	run_ms(100);
	assert_true(tcp_info().busy_time == 0);
	peer.wnd = 0;
	send_text("x");
	assert_int_equal(net_send(ours, "wait", 4), 4);
	run_ms(200);
	i = tcp_info();
	assert_in_range(i.rwnd_limited, 199000, 202000);
	assert_true(i.busy_time == i.rwnd_limited);
	swallow();
	open_window(wnd);
	run_ms(50);
	i = tcp_info();
	assert_in_range(i.rwnd_limited, 199000, 204000);
	assert_in_range(i.busy_time - i.rwnd_limited, 49000, 54000);
	take_all();
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	i = tcp_info();
	run_ms(100);
	assert_true(tcp_info().busy_time == i.busy_time);
	assert_true(tcp_info().sndbuf_limited == 0);
	net_abort(ours);
}

/*
 * More data than the congestion window counts for the path, although the peer's
 * window is small as well.
 */
static void test_cwnd_limit_is_not_counted_as_the_peers_window(void **state)
{
	struct net_tcp_info i;

	repair_connect(true, 12 * MSS);
	run_ms(RTT_MS);
	i = tcp_info();
	assert_int_equal(i.unacked, 10);
	assert_true(i.rwnd_limited == 0);
	assert_in_range(i.busy_time, RTT_MS * 1000 - 1000,
			RTT_MS * 1000 + 4000);
	net_abort(ours);
}

/* All bytes of the buffer are in flight, and the writer has more. */
static void test_time_of_a_full_send_buffer_is_counted(void **state)
{
	struct net_tcp_info i;

	repair_connect(true, 3 * MSS);
	ours->wants = NET_WANTS_ROOM;
	net_count_phase(ours);
	run_ms(30);
	i = tcp_info();
	assert_in_range(i.sndbuf_limited, 28000, 33000);
	ours->wants = NET_WANTS_NOTHING;
	net_count_phase(ours);
	run_ms(30);
	i = tcp_info();
	assert_in_range(i.sndbuf_limited, 28000, 33000);
	assert_in_range(i.busy_time, 58000, 66000);
	net_abort(ours);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_agreed_options_are_reported),
		T(test_loss_and_repair_are_reported),
		T(test_reordering_is_counted_once),
		T(test_dsack_is_counted),
		T(test_timeouts_are_counted),
		T(test_received_segments_are_counted),
		T(test_a_zero_window_is_probed),
		T(test_rates_are_in_bytes_a_second),
		T(test_states_have_linuxs_numbers),
		T(test_connection_without_counters_reports_them_absent),
		T(test_counters_use_bounded_memory),
		T(test_times_by_limiting_factor_are_counted),
		T(test_cwnd_limit_is_not_counted_as_the_peers_window),
		T(test_time_of_a_full_send_buffer_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
