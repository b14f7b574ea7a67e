/*
 * Segments in one object with their pbuf: the order of frees, sizes of writes,
 * and the same output as lwIP's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lwip/memp.h"

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static uint64_t before;

static struct tcp_seg *new_segment(unsigned copied)
{
	struct tcp_seg *seg;

	before = net_mem_live_bytes();
	seg = net_seg_new(copied);
	assert_non_null(seg);
	memset(seg->tcphdr + 1, 0x5a, copied);
	seg->next = NULL;
	return seg;
}

static void test_a_segment_is_one_object(void **state)
{
	struct tcp_seg *seg = new_segment(1460);

	assert_int_equal(net_mem_live_bytes(),
			 before + net_mem_size(net_seg_of(seg)));
	assert_int_equal(seg->p->tot_len, 1480);
	assert_ptr_equal(seg->p->payload, seg->tcphdr);
	assert_int_equal((uintptr_t)seg->tcphdr % 4, 0);
	net_seg_free(seg);
	assert_int_equal(net_mem_live_bytes(), before);
}

static void test_lwip_may_free_the_pbuf_first(void **state)
{
	struct tcp_seg *seg = new_segment(64);

	tcp_seg_free(seg);
	assert_int_equal(net_mem_live_bytes(), before);
}

static void test_a_pbuf_that_is_held_keeps_the_object(void **state)
{
	struct tcp_seg *seg = new_segment(64);
	struct pbuf *p = seg->p;

	pbuf_ref(p);
	net_seg_free(seg);
	assert_true(net_mem_live_bytes() > before);
	assert_int_equal(((uint8_t *)p->payload)[20], 0x5a);
	pbuf_free(p);
	assert_int_equal(net_mem_live_bytes(), before);
}

static void test_segment_frees_its_chain(void **state)
{
	struct tcp_seg *seg = new_segment(0);
	struct pbuf *more = pbuf_alloc(PBUF_RAW, 100, PBUF_RAM);

	assert_non_null(more);
	pbuf_cat(seg->p, more);
	net_seg_free(seg);
	assert_int_equal(net_mem_live_bytes(), before);
}

/* ---- writing ---- */

#define stack_test(test)                                                       \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

#define MSS  1460u
#define MUCH (5 * MSS + 100)

static uint8_t bytes[MUCH];
static size_t first_part; /* written before the rest */
static struct net_conn *conn;

static void writer(struct net_conn *c, void *arg)
{
	uint8_t ask;

	conn = c;
	net_recv(conn, &ask, 1);
	if (first_part)
		assert_int_equal(net_send_all(conn, bytes, first_part),
				 first_part);
	assert_int_equal(
		net_send_all(conn, bytes + first_part, MUCH - first_part),
		MUCH - first_part);
	net_recv(conn, &ask, 1);
}

static void connect_to(struct peer *peer, net_handler handler)
{
	static const uint8_t mss[] = {2, 4, MSS >> 8, MSS & 255};

	serve(handler);
	peer_open(peer, UINT32_MAX - MSS, mss, sizeof(mss));
	peer_send(peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(conn);
}

/* Checks the lengths of the sent segments, and their PSH flags. */
static void expect_lengths(const unsigned *len, const bool *push, unsigned n)
{
	struct segment s;
	struct peer peer;
	unsigned at = 0;

	for (unsigned i = 0; i < MUCH; i++)
		bytes[i] = (uint8_t)(i * 11 + i / 256);
	connect_to(&peer, writer);
	peer_send(&peer, PEER_ACK | PEER_PSH, "?", 1);
	run_rounds(3);
	for (unsigned i = 0; i < n; i++) {
		expect(&s, push[i] ? PEER_ACK | PEER_PSH : PEER_ACK,
		       peer.rcv + at, peer.snd, len[i]);
		assert_memory_equal(s.data, bytes + at, s.len);
		at += s.len;
	}
	assert_false(peer_next(&s));
}

static void test_long_write_is_split_into_segments(void **state)
{
	const unsigned len[] = {MSS, MSS, MSS, MSS, MSS, 100};
	const bool push[] = {false, false, false, false, false, true};

	first_part = 0;
	expect_lengths(len, push, 6);
}

static void test_write_behind_full_segments_starts_a_new_one(void **state)
{
	const unsigned len[] = {MSS, MSS, MSS, MSS, MSS, 100};
	const bool push[] = {false, true, false, false, false, true};

	first_part = 2 * MSS;
	expect_lengths(len, push, 6);
}

static void test_write_fills_a_partial_segment(void **state)
{
	const unsigned len[] = {MSS, MSS, MSS, MSS, MSS, 100};

	first_part = MSS + 10;
	expect_lengths(
		len, (const bool[]){false, true, false, false, false, true}, 6);
}

static void wait_for_more(struct net_conn *c, void *arg)
{
	uint8_t more;

	conn = c;
	net_recv(c, &more, 1);
}

/* Without memory for the last segment, nothing is queued or leaked. */
static void test_a_write_without_memory_leaves_no_segment(void **state)
{
	struct peer peer;
	uint64_t had;

	connect_to(&peer, wait_for_more);
	had = net_mem_live_bytes();
	net_mem_fail_after(6);
	assert_int_equal(net_predict_write(conn, bytes, MUCH), ERR_MEM);
	net_mem_fail_after(0);
	assert_int_equal(net_mem_live_bytes(), had);
	assert_null(conn->pcb.unsent);
	assert_int_equal(conn->pcb.snd_queuelen, 0);
	assert_int_equal(net_predict_write(conn, bytes, MUCH), ERR_OK);
	assert_int_equal(conn->pcb.snd_queuelen, 6);
}

/* The bytes of a burst of full segments can be written in the same round. */
static void test_write_room_fits_a_received_burst(void **state)
{
	struct peer peer;

	connect_to(&peer, wait_for_more);
	assert_int_equal(net_send_room(conn), GLUE_BURST * MSS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(test_a_segment_is_one_object),
		stack_test(test_lwip_may_free_the_pbuf_first),
		stack_test(test_a_pbuf_that_is_held_keeps_the_object),
		stack_test(test_segment_frees_its_chain),
		stack_test(test_long_write_is_split_into_segments),
		stack_test(test_write_behind_full_segments_starts_a_new_one),
		stack_test(test_write_fills_a_partial_segment),
		stack_test(test_a_write_without_memory_leaves_no_segment),
		stack_test(test_write_room_fits_a_received_burst),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
