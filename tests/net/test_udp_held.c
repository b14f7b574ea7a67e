/*
 * Datagrams that the program holds and sends again: in the frame in which they
 * came, with the right checksum, or as copies.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"
#include "netstack/link/link.h"
#include "netstack/udp/udp.h"
#include "tests/bytes.h"
#include "tests/net/datagrams.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define PORT 53

/* A version of IP. */
struct version {
	struct net_addr us, peer, other;
};
static struct version versions[2];

static struct net_udp *udp;
static struct datagram wire;
static struct net_datagram held[4];

static int setup(void **state)
{
	int err = udp_setup(state);
	const struct net_addr any = {.port = PORT};

	versions[0] =
		(struct version){udp_at(udp_us4, PORT), udp_at(udp_peer4, 4000),
				 udp_at(udp_peer4, 999)};
	versions[1] =
		(struct version){udp_at(udp_us6, PORT), udp_at(udp_peer6, 4000),
				 udp_at(udp_peer6, 999)};
	if (err == 0)
		err = net_udp_open(stack, &any, NULL, &udp);
	/* The neighbours become known, to the fast path after a second. */
	for (unsigned i = 0; i < 6 && err == 0; i++) {
		err = net_udp_send(udp, &versions[i % 2].peer, "x", 1) != 1 ||
		      !datagram_next(&wire);
		if (i == 1) {
			fake_now_ns += INT64_C(1000000000);
			run_rounds(2);
		}
	}
	fake_resends = true;
	return err;
}

/* Returns whether UDP has a checksum; all are right then, also IP's. */
static bool has_sum(void)
{
	bool v6 = wire.to.family == 6;
	const uint8_t *ip = wire.frame, *l4 = ip + (v6 ? 40 : 20);
	unsigned len = wire.udp_len;
	uint64_t sum;

	if (get16(l4 + 6) == 0)
		return false;
	if (!v6)
		assert_int_equal(glue_sum_fold(glue_sum_add(0, ip, 20)),
				 0xffff);
	sum = glue_sum_pseudo(ip + (v6 ? 8 : 12), v6 ? 16 : 4, 17, len);
	assert_int_equal(glue_sum_fold(glue_sum_add(sum, l4, len)), 0xffff);
	return true;
}

/*
 * The datagram that was sent. summed: it has a checksum; else the port fills
 * that in.
 */
static void expect_sent(const struct net_addr *to, const void *data,
			unsigned len, bool summed)
{
	bool v6 = to->family == 6;

	assert_true(datagram_next(&wire));
	assert_int_equal(wire.icmp_type, 0);
	assert_int_equal(wire.len, len);
	assert_int_equal(wire.udp_len, len + 8);
	assert_memory_equal(wire.data, data, len);
	assert_int_equal(wire.from.port, PORT);
	assert_memory_equal(wire.from.ip, v6 ? udp_us6.ip : udp_us4.ip, 16);
	assert_int_equal(wire.to.port, to->port);
	assert_memory_equal(wire.to.ip, to->ip, 16);
	assert_int_equal(wire.ttl, 64);
	assert_int_equal(has_sum(), summed);
}

static void take_held(unsigned n)
{
	run_rounds(1);
	assert_int_equal(net_udp_recv_batch(udp, held, 4), n);
}

static void test_answer_leaves_in_its_frame(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct version *v = &versions[i];
		unsigned frames;

		datagram_say(v->peer, v->us, "odd");
		datagram_say(v->peer, v->us, "even");
		datagram_say(v->peer, v->us, "");
		take_held(3);
		frames = fake_frames_out;
		assert_int_equal(net_udp_send_batch(udp, held, 3), 3);
		assert_int_equal(fake_frames_out, frames);
		assert_memory_equal(held[0].data, "odd", 3);
		expect_sent(&v->peer, "odd", 3, true);
		assert_memory_equal(held[0].data, "odd", 3);
		net_udp_release(udp, held, 3);
		expect_sent(&v->peer, "even", 4, true);
		expect_sent(&v->peer, "", 0, true);
		assert_int_equal(fake_frames_out, frames - 3);
		assert_int_equal(net_here()->stats.view_misuses, 0);
	}
}

static void test_other_peers_get_another_checksum(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct version *v = &versions[i];
		unsigned frames;

		/* Sums on both sides of the carry. */
		for (unsigned port = 1; port < 65536; port += 4099) {
			struct net_addr to = udp_at(v->other, port);

			datagram_say(v->peer, v->us, "some payload");
			take_held(1);
			frames = fake_frames_out;
			held[0].peer = to;
			assert_int_equal(net_udp_send_batch(udp, held, 1), 1);
			assert_int_equal(fake_frames_out, frames);
			expect_sent(&to, "some payload", 12, true);
			net_udp_release(udp, held, 1);
		}
	}
}

/*
 * A sum that would be 0, which means none, is sent as its other form. One sum
 * of all looks like a partial one, and is left to the port.
 */
static void test_all_checksums_are_right(void **state)
{
	struct datagram d = {.from = versions[0].peer, .to = versions[0].us};
	const uint8_t *ip = wire.frame;
	unsigned zeros = 0, left = 0;

	d.len = 2;
	for (unsigned i = 0; i < 65536; i++) {
		struct net_addr to = udp_at(versions[0].other, 5000);

		put16(d.data, i);
		assert_true(datagram_send(&d));
		take_held(1);
		held[0].peer = to;
		assert_int_equal(net_udp_send_batch(udp, held, 1), 1);
		assert_true(datagram_next(&wire));
		assert_memory_equal(wire.data, d.data, 2);
		left += !has_sum();
		zeros += get16(ip + 26) == 0xffff;
		net_udp_release(udp, held, 1);
	}
	assert_int_equal(left, 1);
	assert_in_range(zeros, 1, 2);
}

static void test_frame_under_way_is_copied(void **state)
{
	const struct version *v = &versions[0];
	unsigned frames;

	datagram_say(v->peer, v->us, "twice");
	take_held(1);
	frames = fake_frames_out;
	assert_int_equal(net_udp_send_batch(udp, held, 1), 1);
	held[0].peer = v->other;
	assert_int_equal(net_udp_send_batch(udp, held, 1), 1);
	assert_int_equal(fake_frames_out, frames + 1);
	expect_sent(&v->peer, "twice", 5, true);
	expect_sent(&v->other, "twice", 5, false);
	/* It has left: its frame is free for a third one. */
	assert_int_equal(net_udp_send_batch(udp, held, 1), 1);
	assert_int_equal(fake_frames_out, frames);
	expect_sent(&v->other, "twice", 5, true);
	net_udp_release(udp, held, 1);
	assert_int_equal(fake_frames_out, frames - 1);
}

/* Sends held[0] as the caller has changed it: not in its frame. */
static void expect_copy(const struct net_addr *to, const void *data,
			unsigned len)
{
	unsigned frames = fake_frames_out;

	assert_int_equal(net_udp_send_batch(udp, held, 1), 1);
	assert_int_equal(fake_frames_out, frames + 1);
	expect_sent(to, data, len, false);
}

static void test_changed_datagrams_are_copied(void **state)
{
	const struct version *v = &versions[0];
	void *owner;

	datagram_say(v->peer, v->us, "whole");
	take_held(1);
	owner = held[0].owner;
	held[0].owner = (void *)((uintptr_t)owner + (UINT64_C(2) << 32));
	expect_copy(&v->peer, "whole", 5);
	held[0].owner = (void *)UINT64_C(0x1ffffffff);
	expect_copy(&v->peer, "whole", 5);
	held[0].owner = owner;
	held[0].len = 3;
	expect_copy(&v->peer, "who", 3);
	held[0].data = (const uint8_t *)held[0].data + 2;
	expect_copy(&v->peer, "ole", 3);
	held[0].data = "other";
	held[0].len = 5;
	expect_copy(&v->peer, "other", 5);
	net_udp_release(udp, held, 1);
	/* To the other version of IP. */
	datagram_say(v->peer, v->us, "over");
	take_held(1);
	held[0].peer = versions[1].peer;
	held[0].local = (struct net_addr){0};
	expect_copy(&versions[1].peer, "over", 4);
	net_udp_release(udp, held, 1);
}

static void test_ports_that_keep_frames_get_copies(void **state)
{
	const struct version *v = &versions[0];

	fake_resends = false;
	datagram_say(v->peer, v->us, "kept");
	take_held(1);
	expect_copy(&v->peer, "kept", 4);
	net_udp_release(udp, held, 1);
}

/* Its port has to compute the sum of such a datagram. */
static void test_missing_and_partial_sums_are_left_to_the_port(void **state)
{
	for (unsigned i = 0; i < 3; i++) {
		const struct version *v = &versions[i == 2];
		struct datagram d = {.from = v->peer,
				     .to = v->us,
				     .data = "sums",
				     .len = 4,
				     .no_sum = i == 0,
				     .partial_sum = i > 0};
		unsigned frames;

		assert_true(datagram_send(&d));
		take_held(1);
		frames = fake_frames_out;
		assert_int_equal(net_udp_send_batch(udp, held, 1), 1);
		assert_int_equal(fake_frames_out, frames);
		expect_sent(&v->peer, "sums", 4, false);
		net_udp_release(udp, held, 1);
	}
}

static void test_connected_socket_answers_its_peer(void **state)
{
	const struct version *v = &versions[0];
	unsigned frames;

	datagram_say(v->other, v->us, "before");
	take_held(1);
	assert_int_equal(net_udp_connect(udp, &v->peer), 0);
	assert_int_equal(net_udp_send_batch(udp, held, 1), -EISCONN);
	net_udp_release(udp, held, 1);
	datagram_say(v->peer, v->us, "now");
	take_held(1);
	frames = fake_frames_out;
	assert_int_equal(net_udp_send_batch(udp, held, 1), 1);
	assert_int_equal(fake_frames_out, frames);
	expect_sent(&v->peer, "now", 3, true);
	net_udp_release(udp, held, 1);
}

/* A whole answer still has to fit the path to its peer. */
static void test_known_path_mtu_bounds_an_answer(void **state)
{
	const struct version *v = &versions[0];
	struct datagram d = {.from = v->peer, .to = v->us, .len = 1000};
	struct net_addr peer = v->peer;

	assert_int_equal(net_udp_send(udp, &peer, d.data, 1000), 1000);
	assert_true(datagram_next(&wire));
	datagram_send_error(&wire, 3, 4, 600);
	assert_true(datagram_send(&d));
	take_held(1);
	assert_int_equal(net_udp_send_batch(udp, held, 1), -EMSGSIZE);
	net_udp_release(udp, held, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_answer_leaves_in_its_frame),
		T(test_other_peers_get_another_checksum),
		T(test_all_checksums_are_right),
		T(test_frame_under_way_is_copied),
		T(test_changed_datagrams_are_copied),
		T(test_ports_that_keep_frames_get_copies),
		T(test_missing_and_partial_sums_are_left_to_the_port),
		T(test_connected_socket_answers_its_peer),
		T(test_known_path_mtu_bounds_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
