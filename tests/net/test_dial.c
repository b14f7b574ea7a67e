/* Dialing: timeout, SYN retransmissions, and segments that do not end it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define SYNS_MAX 16u

static struct net_dial_opts opts;
static struct {
	int64_t begun_ms, ended_ms;
	int64_t syn_ms[SYNS_MAX];
	unsigned n_syns, n_rsts;
	uint16_t port;
	uint32_t iss;
} seen;

static int64_t now_ms(void)
{
	return fake_now_ns / 1000000;
}

static void *dial_peer(void *arg)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse("10.0.0.2:80", -1, &addr);
	seen.begun_ms = now_ms();
	result = net_dial(stack, &addr, &opts, &conn);
	seen.ended_ms = now_ms();
	ended++;
	return NULL;
}

static void note_sent(void)
{
	struct segment s;

	while (peer_next(&s)) {
		seen.n_rsts += (s.flags & PEER_RST) != 0;
		if (!(s.flags & PEER_SYN))
			continue;
		assert_true(seen.n_syns < SYNS_MAX);
		seen.syn_ms[seen.n_syns++] = now_ms();
		seen.port = s.src;
		seen.iss = s.seq;
	}
}

static void begin_dial(void)
{
	memset(&seen, 0, sizeof(seen));
	ended = 0;
	net_spawn(stack, "dial", dial_peer, NULL);
	run_rounds(2);
	note_sent();
}

static void run_until_ended(unsigned most_ms)
{
	for (unsigned ms = 0; ms < most_ms && !ended; ms++) {
		run_ms(1);
		note_sent();
	}
	assert_int_equal(ended, 1);
}

static void expect_end_after(unsigned ms)
{
	run_until_ended(2 * ms);
	assert_int_equal(result, -ETIMEDOUT);
	note_sent();
	assert_int_equal(seen.n_rsts, 0); /* RFC 9293 3.10.5 */
	assert_in_range(seen.ended_ms - seen.begun_ms, ms, ms + 10);
}

static void test_dial_ends_after_its_timeout(void **state)
{
	static const unsigned timeouts_ms[] = {1500, 10000, 30000, 200000};

	for (unsigned i = 0; i < LWIP_ARRAYSIZE(timeouts_ms); i++) {
		opts.timeout_ms = timeouts_ms[i];
		begin_dial();
		expect_end_after(timeouts_ms[i]);
	}
}

static void test_default_timeout_is_30_s(void **state)
{
	begin_dial();
	expect_end_after(30000);
}

static void test_wait_between_syns_doubles(void **state)
{
	static const unsigned waits_s[] = {1, 2, 4, 8, 16, 32, 32, 32};

	opts.timeout_ms = 140000;
	begin_dial();
	expect_end_after(140000);
	assert_int_equal(seen.n_syns, LWIP_ARRAYSIZE(waits_s) + 1);
	for (unsigned i = 0; i < LWIP_ARRAYSIZE(waits_s); i++)
		assert_in_range(seen.syn_ms[i + 1] - seen.syn_ms[i],
				waits_s[i] * 1000, waits_s[i] * 1000 + 500);
}

static void send_to_dialer(uint8_t flags, uint32_t ack)
{
	peer_send_raw(&(struct segment){
		.src = 80,
		.dst = seen.port,
		.seq = 5,
		.ack = ack,
		.flags = flags,
		.wnd = 1000,
		.options = (const uint8_t *)"",
		.data = (const uint8_t *)"",
	});
	run_rounds(2);
	note_sent();
}

/* RFC 9293 3.10.7.3: each gets a reset, without another effect. */
static void test_forged_acks_do_not_end_a_dial(void **state)
{
	begin_dial();
	assert_int_equal(seen.n_syns, 1);
	for (unsigned i = 0; i < 10; i++)
		send_to_dialer(i % 2 ? PEER_ACK : PEER_SYN | PEER_ACK,
			       seen.iss + 1000 + i);
	assert_int_equal(seen.n_syns, 1);
	assert_int_equal(seen.n_rsts, 10);
	assert_int_equal(ended, 0);
	send_to_dialer(PEER_SYN | PEER_ACK, seen.iss + 1);
	run_until_ended(10);
	assert_int_equal(result, 0);
}

/*
 * lwIP's timeout flag applies to its SYN: left set, it would keep segments from
 * header prediction.
 */
static void test_retransmitted_syn_leaves_no_rto_flag(void **state)
{
	begin_dial();
	while (seen.n_syns < 2) {
		run_ms(100);
		note_sent();
	}
	send_to_dialer(PEER_SYN | PEER_ACK, seen.iss + 1);
	run_until_ended(10);
	assert_int_equal(result, 0);
	for (struct net_conn **b = net_here()->buckets;
	     b <= net_here()->buckets + net_here()->bucket_mask; b++)
		if (*b)
			assert_false((*b)->pcb.flags & TF_RTO);
}

/* The fake port's flows are all shard 0's. */
static void test_source_port_of_another_shard_is_refused(void **state)
{
	net_addr_parse("10.0.0.1:4000", -1, &opts.source);
	net_here()->n_shards = 2;
	net_here()->shard = 1;
	begin_dial();
	net_here()->n_shards = 1;
	net_here()->shard = 0;
	assert_int_equal(ended, 1);
	assert_int_equal(result, -EADDRNOTAVAIL);
	assert_int_equal(seen.n_syns, 0);
}

static int setup(void **state)
{
	memset(&opts, 0, sizeof(opts));
	return peer_listen(state);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_dial_ends_after_its_timeout),
		T(test_default_timeout_is_30_s),
		T(test_wait_between_syns_doubles),
		T(test_forged_acks_do_not_end_a_dial),
		T(test_retransmitted_syn_leaves_no_rto_flag),
		T(test_source_port_of_another_shard_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
