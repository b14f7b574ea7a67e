/*
 * The end of a handshake: the connection made by its last segment, with data
 * and FIN in it, and a listener that closes first. The listener at port 7 has a
 * backlog of 8.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lwip/memp.h"
#include "lwip/prot/tcp.h"

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/opening.h"

/* Sets the stack's next ISN by its clock. */
static void set_isn(uint32_t isn)
{
	ip_addr_t local, remote;

	IP_ADDR4(&local, 10, 0, 0, 1);
	IP_ADDR4(&remote, 10, 0, 0, 2);
	run_rounds(1);
	fake_now_ns +=
		(int64_t)(isn - net_isn(&local, 7, &remote, 1000)) * 4000;
	assert_int_equal(net_isn(&local, 7, &remote, 1000), isn);
}

static void test_sequence_numbers_of_both_sides_wrap(void **state)
{
	struct segment s;

	set_isn(NEAR_WRAP);
	s = open_handshake();
	check_segment(&s, PEER_SYN | PEER_ACK, NEAR_WRAP, 0, 0);
	serve(echo_views);
	peer_send(&peer, PEER_ACK, "hello", 5);
	expect(&s, PEER_ACK | PEER_PSH, 0, 5, 5);
	assert_memory_equal(s.data, "hello", 5);
}

static void test_bare_ack_makes_the_connection(void **state)
{
	const struct net_conn *conn;

	open_handshake();
	run_ms(30);
	peer.wnd = 100;
	serve(echo_views);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	peer_expect_nothing();
	conn = find_conn(1000);
	assert_non_null(conn);
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(net_here()->stats.accepted, 1);
	assert_int_equal(net_listener_clients(listener), 1);
	assert_int_equal(listener->pending, 0);
	assert_int_equal(conn->pcb.mss, 1460);
	assert_int_equal(conn->pcb.cwnd, 14600);
	assert_int_equal(conn->pcb.snd_wnd, 100 << 7);
	assert_int_equal(conn->pcb.snd_wnd_max, 65535); /* the SYN's */
	assert_int_equal(conn->pcb.rcv_scale, net_here()->rcv_scale);
	assert_int_equal(conn->pcb.rcv_wnd, TCP_WND);
	assert_int_equal(conn->pcb.rcv_ann_right_edge, TCP_WND);
	assert_true(conn->pcb.flags & TF_SACK);
	assert_true(conn->pcb.flags & TF_NODELAY);
	assert_in_range(conn->srtt_us >> 3, 29000, 31000);
	assert_int_equal(conn->ext->tx_segs, 1);
	assert_int_equal(conn->ext->rx_segs, 1);
	assert_false(coro_timer_armed(&conn->timer));
}

static void test_tiny_window_is_treated_as_larger(void **state)
{
	peer_send_raw(&(struct segment){.src = 1000,
					.dst = 7,
					.seq = 4,
					.flags = PEER_SYN,
					.wnd = 1,
					.options = (const uint8_t *)"",
					.data = (const uint8_t *)""});
	peer.rcv = peer_wait(1).seq + 1;
	peer.port = 1000;
	serve(echo_views);
	peer_send_raw(&(struct segment){.src = 1000,
					.dst = 7,
					.seq = 5,
					.ack = peer.rcv,
					.flags = PEER_ACK,
					.wnd = 3,
					.options = (const uint8_t *)"",
					.data = (const uint8_t *)""});
	run_rounds(2);
	assert_int_equal(find_conn(1000)->pcb.snd_wnd, 3);
	assert_int_equal(find_conn(1000)->pcb.snd_wnd_max, 2 * NET_MSS_FLOOR);
}

static void expect_echo(const char *data, uint32_t ack)
{
	struct segment s;

	expect(&s, ANY, peer.rcv, ack, strlen(data));
	assert_memory_equal(s.data, data, s.len);
}

static void third_segment_with_data(bool predicts)
{
	open_handshake();
	net_here()->predicts = predicts;
	serve(echo_views);
	peer_send(&peer, PEER_ACK | PEER_PSH, "at once", 7);
	expect_echo("at once", 7);
	assert_int_equal(find_conn(1000)->ext->rx_segs, 1);
	assert_int_equal(find_conn(1000)->ext->rx_bytes, 7);
}

static void test_data_comes_with_the_third_segment(void **state)
{
	third_segment_with_data(true);
}

static void test_data_comes_without_prediction(void **state)
{
	third_segment_with_data(false);
}

static void test_data_comes_in_pieces(void **state)
{
	open_handshake();
	serve(echo_views);
	fake_segment_bytes = 60;
	peer_send(&peer, PEER_ACK | PEER_PSH, "at once", 7);
	expect_echo("at once", 7);
	fake_segment_bytes = 0;
}

static void test_the_end_comes_with_the_third_segment(void **state)
{
	open_handshake();
	serve(echo_views);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	expect(NULL, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
}

static void test_data_and_the_end_come_with_the_third_segment(void **state)
{
	open_handshake();
	serve(echo_views);
	peer_send(&peer, PEER_ACK | PEER_FIN, "all", 3);
	expect_echo("all", 4);
	run_rounds(2);
	assert_int_equal(ended, 1);
}

static void test_pieces_out_of_order_complete_the_handshake(void **state)
{
	open_handshake();
	serve(echo_views);
	send_segment(PEER_ACK, peer.snd + 2, peer.rcv, "llo");
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
	assert_int_equal(net_here()->ooseq_held, 1);
	send_segment(PEER_ACK, peer.snd, peer.rcv, "he");
	expect_echo("hello", 5);
}

static void test_data_that_overlaps_the_syn_is_accepted(void **state)
{
	open_handshake();
	serve(echo_views);
	send_segment(PEER_ACK, peer.snd - 2, peer.rcv, "-hello");
	expect_echo("ello", 4);
}

/* Its sequence numbers, compared with zero, lie in the past. */
static void test_later_window_update_is_used(void **state)
{
	set_isn(0x90000000u);
	peer_open(&peer, 0x8fffffffu, all_options, 4);
	serve(echo_views);
	send_segment(PEER_ACK, peer.snd, peer.rcv, "");
	run_rounds(2);
	assert_int_equal(find_conn(1000)->pcb.snd_wnd, 500);
	peer.wnd = 700;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(find_conn(1000)->pcb.snd_wnd, 700);
}

static void test_mss_beyond_ours_is_reduced(void **state)
{
	struct {
		struct tcp_hdr tcp;
		uint8_t mss[4];
	} syn = {.mss = {2, 4, 0xff, 0xff}};
	struct net_syn_options read;

	TCPH_HDRLEN_FLAGS_SET(&syn.tcp, 6, PEER_SYN);
	net_syn_read(&syn.tcp, &read);
	assert_int_equal(read.mss, TCP_MSS);
}

static void test_link_limits_the_mss_of_the_syn(void **state)
{
	const uint8_t options[] = {2, 4, 0x23, 0x28}; /* 9,000 bytes */

	peer_open(&peer, 7, options, sizeof(options));
	serve(echo_views);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(find_conn(1000)->pcb.mss, 1460);
}

/* Each kind twice, behind a kind that a SYN has no use for. */
static void test_first_of_equal_options_counts(void **state)
{
	struct {
		struct tcp_hdr tcp;
		uint8_t options[40];
	} syn = {.options = {30, 4, 0, 0, 2, 4, 3, 232, 2, 4, 2,
			     88, 3, 3, 5, 1, 3, 3, 9,	4, 2, 8,
			     10, 0, 0, 1, 2, 0, 0, 0,	0, 0}};
	struct net_syn_options read;

	TCPH_HDRLEN_FLAGS_SET(&syn.tcp, 15, PEER_SYN);
	net_syn_read(&syn.tcp, &read);
	assert_int_equal(read.mss, 1000);
	assert_int_equal(read.wscale, 5);
	assert_true(read.sack);
	assert_true(read.has_ts);
	assert_int_equal(read.ts, 0x102);
	net_here()->timestamps_off = true;
	net_syn_read(&syn.tcp, &read);
	assert_false(read.has_ts);
	assert_int_equal(read.ts, 0);
	TCPH_HDRLEN_FLAGS_SET(&syn.tcp, 5, PEER_SYN);
	net_syn_read(&syn.tcp, &read);
	assert_int_equal(read.mss, 536);
	assert_int_equal(read.wscale, NET_NO_WSCALE);
	assert_false(read.sack);
}

/* The first one is made by lwIP, and each further one is a copy. */
static void test_connection_begins_as_lwip_begins_it(void **state)
{
	struct net_conn *first = net_conn_new(), *copy, *own;

	run_ms(1000);
	copy = net_conn_new();
	own = net_conn_of(tcp_alloc(TCP_PRIO_NORMAL));
	assert_non_null(first);
	assert_ptr_not_equal(copy->ext, first->ext);
	assert_true(copy->ext->has_counters);
	assert_int_equal(net_here()->n_conns, 3);
	assert_int_equal(net_here()->n_counted, 3);
	memp_free(MEMP_TCP_PCB, first);
	net_mem_free(net_conn_ext(copy));
	copy->ext = own->ext;
	assert_memory_equal(copy, own, sizeof(*own));
	copy->ext = &net_conn_no_ext;
	memp_free(MEMP_TCP_PCB, copy);
	memp_free(MEMP_TCP_PCB, own);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_here()->n_counted, 1);
	net_here()->max_counted = 0;
	copy = net_conn_new();
	assert_ptr_equal(copy->ext, &net_conn_no_ext);
	memp_free(MEMP_TCP_PCB, copy);
}

/* The hash of the last SYN is remembered, and must serve no other addresses. */
static void test_timestamps_of_each_connection_begin_elsewhere(void **state)
{
	ip_addr_t local, remote, other;
	uint32_t offsets[4];

	IP_ADDR4(&local, 10, 0, 0, 1);
	IP_ADDR4(&remote, 10, 0, 0, 2);
	IP_ADDR4(&other, 10, 0, 0, 3);
	for (unsigned i = 0; i < 2; i++) {
		uint32_t again[4] = {net_ts_offset(&local, 7, &remote, 1000),
				     net_ts_offset(&local, 7, &remote, 1001),
				     net_ts_offset(&local, 8, &remote, 1000),
				     net_ts_offset(&local, 7, &other, 1000)};

		if (i)
			assert_memory_equal(again, offsets, sizeof(again));
		memcpy(offsets, again, sizeof(again));
		net_isn(&local, 7, &remote, 1000);
	}
	for (unsigned i = 1; i < 4; i++)
		assert_int_not_equal(offsets[i], offsets[0]);
}

/* An ISN that is set for one connection only. */
static void test_a_fixed_number_is_used_once(void **state)
{
	struct segment s;

	net_here()->isn_fixed = true;
	net_here()->isn = 77;
	assert_int_equal(open_handshake().seq, 77);
	peer.port = 1001;
	send_segment(PEER_SYN, 5, 0, "");
	assert_true(peer_next(&s));
	assert_int_not_equal(s.seq, 77);
}

/* Karn's rule; and slow start ends early, as after any timeout. */
static void test_resent_syn_ack_gives_no_rtt_sample(void **state)
{
	const struct net_conn *conn;
	struct segment s;

	open_handshake();
	run_ms(3100);
	while (peer_next(&s))
		;
	serve(echo_views);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	conn = find_conn(1000);
	assert_int_equal(conn->srtt_us, 0);
	assert_int_equal(conn->pcb.ssthresh, 2 * 1460);
	assert_int_equal(conn->ext->tx_segs, 3);
	assert_int_equal(conn->ext->retransmits, 2);
	assert_int_equal(conn->ext->rtos, 2);
	peer_connect(&peer, 1001, 7, 5);
	assert_int_not_equal(find_conn(1001)->srtt_us, 0);
	assert_true(find_conn(1001)->pcb.ssthresh > 1u << 29);
}

static void test_repeated_syn_gives_no_rtt_sample(void **state)
{
	open_handshake();
	send_segment(PEER_SYN, NEAR_WRAP, 0, "");
	discard_frames();
	serve(echo_views);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(find_conn(1000)->srtt_us, 0);
	assert_int_equal(find_conn(1000)->ext->retransmits, 1);
	assert_int_equal(find_conn(1000)->ext->rtos, 0);
}

static void test_ack_without_memory_leaves_it_half_open(void **state)
{
	open_handshake();
	serve(echo_views);
	net_here()->max_conns = 0;
	send_segment(PEER_ACK, peer.snd, peer.rcv, "hello");
	peer_expect_nothing();
	expect_half_open();
	assert_true(net_here()->stats.no_memory > 0);
	net_here()->max_conns = 64;
	send_segment(PEER_ACK, peer.snd, peer.rcv, "hello");
	expect_echo("hello", 5);
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(net_listener_clients(listener), 1);
}

static void test_short_memory_keeps_the_window_of_the_syn_ack(void **state)
{
	struct segment s;

	serve(echo_views);
	peer_connect(&peer, 999, 7,
		     5); /* lets the slabs allocate their memory */
	open_handshake();
	net_here()->next_budget_ns = INT64_MAX;
	net_here()->rcv_limit = 8192;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(find_conn(1000)->pcb.rcv_wnd, 65535);
	peer_send(&peer, PEER_ACK, "x", 1);
	assert_true(peer_next(&s));
	assert_in_range(s.wnd << net_here()->rcv_scale, 65535 - 255, 65535);
	net_here()->next_budget_ns = 0;
}

/* ---- its listener ---- */

static void test_closed_listener_refuses_the_ack(void **state)
{
	uint64_t live = net_mem_live_bytes();

	open_handshake();
	net_listener_close(listener);
	assert_int_equal(net_here()->half_open, 1);
	peer_send(&peer, PEER_ACK, "data", 4);
	expect(NULL, PEER_RST | PEER_ACK, peer.rcv, peer.snd - 4, 0);
	peer_expect_nothing();
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_client_entries, 0);
	assert_int_equal(net_mem_live_bytes(), live);
}

static void test_closed_listener_resends_no_syn_ack(void **state)
{
	open_handshake();
	net_listener_close(listener);
	run_ms(1100);
	peer_expect_nothing();
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(net_client_entries, 0);
}

static void test_draining_listener_completes_the_handshake(void **state)
{
	open_handshake();
	assert_int_equal(net_listener_drain(listener), 1);
	serve(echo_views);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(find_conn(1000));
	assert_int_equal(net_listener_drain(listener), 0);
	peer.port = 1001;
	send_segment(PEER_SYN, 5, 0, "");
	expect(NULL, PEER_RST | PEER_ACK, 0, 6, 0);
}

static void test_closing_stack_resets_the_handshake(void **state)
{
	open_handshake();
	net_half_open_reset_all();
	expect(NULL, PEER_RST | PEER_ACK, peer.rcv, peer.snd, 0);
	expect_gone();
}

static void test_expired_handshake_is_not_counted_as_a_client(void **state)
{
	struct segment s;

	net_listener_limit(listener, &(struct net_limits){.clients = 1});
	open_handshake();
	peer.port = 1001;
	send_segment(PEER_SYN, 5, 0, "");
	peer_expect_nothing();
	assert_int_equal(net_here()->stats.clients_refused, 1);
	peer.port = 1000;
	send_segment(PEER_RST, peer.snd, 0, "");
	run_rounds(2);
	expect_gone();
	peer.port = 1001;
	send_segment(PEER_SYN, 5, 0, "");
	assert_true(peer_next(&s));
	serve(echo_views);
	send_segment(PEER_ACK, 6, s.seq + 1, "");
	run_rounds(2);
	assert_int_equal(net_listener_clients(listener), 1);
	send_segment(PEER_RST, 6, 0, "");
	run_rounds(2);
	assert_int_equal(net_listener_clients(listener), 0);
	expect_gone();
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_sequence_numbers_of_both_sides_wrap),
		T(test_bare_ack_makes_the_connection),
		T(test_tiny_window_is_treated_as_larger),
		T(test_data_comes_with_the_third_segment),
		T(test_data_comes_without_prediction),
		T(test_data_comes_in_pieces),
		T(test_the_end_comes_with_the_third_segment),
		T(test_data_and_the_end_come_with_the_third_segment),
		T(test_pieces_out_of_order_complete_the_handshake),
		T(test_data_that_overlaps_the_syn_is_accepted),
		T(test_later_window_update_is_used),
		T(test_mss_beyond_ours_is_reduced),
		T(test_link_limits_the_mss_of_the_syn),
		T(test_first_of_equal_options_counts),
		T(test_connection_begins_as_lwip_begins_it),
		T(test_timestamps_of_each_connection_begin_elsewhere),
		T(test_a_fixed_number_is_used_once),
		T(test_resent_syn_ack_gives_no_rtt_sample),
		T(test_repeated_syn_gives_no_rtt_sample),
		T(test_ack_without_memory_leaves_it_half_open),
		T(test_short_memory_keeps_the_window_of_the_syn_ack),
		T(test_closed_listener_refuses_the_ack),
		T(test_closed_listener_resends_no_syn_ack),
		T(test_draining_listener_completes_the_handshake),
		T(test_closing_stack_resets_the_handshake),
		T(test_expired_handshake_is_not_counted_as_a_client),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
