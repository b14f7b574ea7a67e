/*
 * Every allocation may fail: a connection's life is repeated, each time with
 * the next allocation failing. Nothing crashes, hangs or leaks.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/mem/mem.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xffffff00u
#define SITES_MAX 400u

static unsigned released, loans;

static void release(void *arg)
{
	released++;
}

/* Uses every call that reads and every call that writes. */
static void lead_a_life(struct net_conn *conn, void *arg)
{
	static const uint8_t block[3000];
	struct iovec parts[] = {{(void *)(uintptr_t)block, 700},
				{(void *)(uintptr_t)block, 100}};
	struct net_poll_item item = {.conn = conn, .events = NET_READABLE};
	struct net_view view;
	char line[256];

	net_set_read_deadline(conn, net_here()->now_ns + INT64_C(20000000000));
	if (net_poll(&item, 1, CORO_FOREVER) < 0)
		return;
	if (net_recv_until(conn, line, sizeof(line), "\n", 1) <= 0)
		return;
	if (net_send(conn, line, 5) < 0 || net_sendv_all(conn, parts, 2) < 0)
		return;
	loans++;
	if (net_send_owned(conn, block, sizeof(block), release, NULL) < 0)
		return;
	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			return;
	net_close_wait(conn, net_here()->now_ns + INT64_C(5000000000));
}

static bool saw_reset;

/* A slow, correct peer that resends unacknowledged bytes. */
struct script {
	struct peer peer;
	uint32_t base, acked; /* first byte, first not acknowledged */
	const char *text;
	size_t len;
	bool open, fin_got;
};

static void take_segment(struct script *s, const struct segment *got_one)
{
	saw_reset |= got_one->flags & PEER_RST;
	if (got_one->flags & PEER_SYN) {
		s->peer.rcv = got_one->seq + 1;
		s->open = true;
	}
	if ((int32_t)(got_one->ack - s->acked) > 0)
		s->acked = got_one->ack;
	if (got_one->seq != s->peer.rcv)
		return;
	s->peer.rcv += got_one->len;
	if (got_one->flags & PEER_FIN) {
		s->peer.rcv++;
		s->fin_got = true;
	}
}

/*
 * Resends all unacknowledged bytes, a few per segment, one segment out of
 * order.
 */
static void say_again(struct script *s)
{
	uint32_t end = s->base + 1 + (uint32_t)s->len;
	uint32_t at = s->acked;

	if (!s->open) {
		s->peer.snd = s->base;
		peer_send(&s->peer, PEER_SYN, NULL, 0);
		return;
	}
	if ((int32_t)(end - at) > 20) {
		s->peer.snd = at + 10;
		peer_send(&s->peer, PEER_ACK, s->text + (at + 10 - s->base - 1),
			  10);
	}
	while ((int32_t)(end - at) > 0) {
		unsigned n = LWIP_MIN(end - at, 7u);

		s->peer.snd = at;
		peer_send(&s->peer, PEER_ACK, s->text + (at - s->base - 1), n);
		at += n;
	}
	s->peer.snd = end;
	peer_send(&s->peer, PEER_ACK | PEER_FIN, NULL, 0);
	s->peer.snd = end + 1; /* else it is old once the FIN has come */
	peer_send(&s->peer, PEER_ACK, NULL, 0);
}

static void act_script(struct script *s)
{
	struct segment one;

	say_again(s);
	for (unsigned i = 0; i < 20; i++) {
		run_ms(5);
		while (peer_next(&one))
			take_segment(s, &one);
	}
}

/* Returns true if the allocation that was to fail has been reached. */
static bool live_with_failure(unsigned n)
{
	struct script s = {.base = NEAR_WRAP, .acked = NEAR_WRAP + 1};
	uint64_t failures = stack->stats.no_memory;
	static char text[2000];

	memset(text, 'x', sizeof(text));
	text[40] = '\n';
	s.text = text;
	s.len = sizeof(text);
	s.peer = (struct peer){
		.port = (uint16_t)(2000 + n), .stack_port = 7, .wnd = 65535};
	saw_reset = false;
	net_mem_fail_after(n);
	for (unsigned i = 0; i < 100 && !saw_reset && !s.fin_got; i++)
		act_script(&s);
	if (!saw_reset && !s.fin_got)
		fail_msg("allocation %u: the connection hangs", n);
	act_script(&s);
	s.peer.snd = s.base + 2 + (uint32_t)s.len;
	peer_send(&s.peer, PEER_ACK | PEER_RST, NULL, 0);
	run_ms(3000); /* TIME_WAIT, if that is where it is */
	net_mem_fail_after(0);
	return stack->stats.no_memory > failures;
}

static void expect_nothing_left(unsigned n, uint64_t live)
{
	if (net_here()->n_conns || net_here()->ports[0].frames_in ||
	    coro_sched_live(stack->sched) || net_mem_live_bytes() != live ||
	    released != loans)
		fail_msg("allocation %u: %u connections, %u frames, "
			 "%u coroutines, %ld bytes, %u of %u loans are left",
			 n, net_here()->n_conns, net_here()->ports[0].frames_in,
			 coro_sched_live(stack->sched),
			 (long)(net_mem_live_bytes() - live), loans - released,
			 loans);
}

static void lead_lives(void)
{
	uint64_t live;
	unsigned n;

	serve(lead_a_life);
	released = loans = 0;
	live_with_failure(0); /* ARP's answer and the like stay */
	live = net_mem_live_bytes();
	for (n = 1; n < SITES_MAX && live_with_failure(n); n++)
		expect_nothing_left(n, live);
	assert_in_range(n, 20, SITES_MAX - 1);
}

static void test_any_allocation_may_fail(void **state)
{
	lead_lives();
}

/* The same if every segment has to be copied. */
static void test_any_allocation_may_fail_while_segments_are_copied(void **state)
{
	fake_frames_spare = 0;
	run_rounds(16);
	lead_lives();
}

static void test_any_allocation_may_fail_while_lending(void **state)
{
	fake_lends = true;
	lead_lives();
}

/* The same with SYN cookies. */
static void test_any_allocation_may_fail_with_cookies(void **state)
{
	net_listener_limit(listener,
			   &(struct net_limits){.half_open_per_source = 1});
	lead_lives();
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_any_allocation_may_fail),
		T(test_any_allocation_may_fail_while_segments_are_copied),
		T(test_any_allocation_may_fail_while_lending),
		T(test_any_allocation_may_fail_with_cookies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
