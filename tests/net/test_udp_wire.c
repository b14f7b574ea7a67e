/*
 * UDP on the wire: what is sent, what is refused, ICMP errors in both
 * directions.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/link/link.h"
#include "netstack/udp/udp.h"
#include "tests/net/datagrams.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define US    udp_at(udp_us4, 53)
#define US6   udp_at(udp_us6, 53)
#define PEER  udp_at(udp_peer4, 4000)
#define PEER6 udp_at(udp_peer6, 4000)
/* IPv4: port unreachable, fragmentation needed. */
#define UNREACHABLE  3, 3, 0
#define TOO_BIG(mtu) 3, 4, mtu
/* IPv6's. */
#define UNREACHABLE6  1, 4, 0
#define TOO_BIG6(mtu) 2, 0, mtu

static struct net_udp *udp;
static struct datagram wire;
static char bytes[9000];

static int setup(void **state)
{
	udp = NULL;
	ended = 0;
	return udp_setup(state);
}

static void open_at(struct net_addr at)
{
	assert_int_equal(net_udp_open(stack, &at, NULL, &udp), 0);
}

static void open_to(struct net_addr at, struct net_addr peer)
{
	open_at(at);
	assert_int_equal(net_udp_connect(udp, &peer), 0);
}

/* Sends a text from the socket, which the peer receives. */
static void send_text(const struct net_addr *peer, const char *text)
{
	assert_int_equal(net_udp_send(udp, peer, text, strlen(text)),
			 strlen(text));
	assert_true(datagram_next(&wire));
	assert_int_equal(wire.icmp_type, 0);
	assert_int_equal(wire.len, strlen(text));
	assert_memory_equal(wire.data, text, wire.len);
}

/* ---- sending ---- */

static void check_sent(const struct net_addr *us, const struct net_addr *peer)
{
	assert_int_equal(wire.from.port, us->port);
	assert_memory_equal(wire.from.ip, us->ip, 16);
	assert_int_equal(wire.to.port, peer->port);
	assert_memory_equal(wire.to.ip, peer->ip, 16);
	assert_int_equal(wire.udp_len, wire.len + 8);
	assert_int_equal(wire.ttl, 64);
}

static void test_datagram_waits_for_arp_and_later_ones_do_not(void **state)
{
	struct net_addr any = {.port = 53}, us = US, peer = PEER;

	open_at(any);
	send_text(&peer, "first");
	check_sent(&us, &peer);
	assert_true(wire.df);
	send_text(&peer, "second");
	check_sent(&us, &peer);
	assert_true(wire.df);
	send_text(&peer, "");
	assert_int_equal(net_here()->stats.udp_sent, 3);
}

static void test_ipv6_datagrams_are_sent(void **state)
{
	struct net_addr any = {.port = 53}, us = US6, peer = PEER6;

	open_at(any);
	send_text(&peer, "first");
	check_sent(&us, &peer);
	send_text(&peer, "second");
	check_sent(&us, &peer);
	open_to(udp_us6, PEER6);
	send_text(NULL, "third");
	check_sent(&(struct net_addr){.ip = {0xfd, [15] = 1},
				      .port = net_udp_local_addr(udp).port},
		   &peer);
}

static void test_options_set_ttl_and_tos(void **state)
{
	struct net_udp_opts opts = {.ttl = 7, .tos = 0xb8};
	struct net_addr any = {.port = 53}, peer = PEER, peer6 = PEER6;

	assert_int_equal(net_udp_open(stack, &any, &opts, &udp), 0);
	for (unsigned i = 0; i < 2; i++) { /* by lwIP, then without */
		send_text(&peer, "x");
		assert_int_equal(wire.ttl, 7);
		assert_int_equal(wire.tos, 0xb8);
		send_text(&peer6, "x");
		assert_int_equal(wire.ttl, 7);
		assert_int_equal(wire.tos, 0xb8);
	}
}

static void test_pieces_are_gathered(void **state)
{
	struct net_addr peer = PEER;
	const struct iovec iov[] = {{"ab", 2}, {NULL, 0}, {"cde", 3}};
	const struct iovec bad[] = {{NULL, 1}};

	open_at(US);
	send_text(&peer, "warm");
	send_text(&peer, "known now");
	fake_tx_segment_bytes = 44; /* the pieces straddle segments */
	assert_int_equal(net_udp_sendv(udp, &peer, iov, 3), 5);
	fake_tx_segment_bytes = 0;
	assert_true(datagram_next(&wire));
	assert_int_equal(wire.len, 5);
	assert_memory_equal(wire.data, "abcde", 5);
	assert_int_equal(net_udp_sendv(udp, &peer, bad, 1), -EINVAL);
}

static void test_batch_is_sent_back_as_it_came(void **state)
{
	struct net_datagram d[4];
	struct net_addr any = {.port = 53}, us = US, peer = PEER;

	open_at(any);
	send_text(&peer, "warm");
	datagram_say(PEER, US, "one");
	datagram_say(PEER, US, "two");
	run_rounds(1);
	assert_int_equal(net_udp_recv_batch(udp, d, 4), 2);
	assert_int_equal(net_udp_send_batch(udp, d, 2), 2);
	net_udp_release(udp, d, 2);
	assert_true(datagram_next(&wire));
	assert_memory_equal(wire.data, "one", 3);
	check_sent(&us, &peer);
	assert_true(datagram_next(&wire));
	assert_memory_equal(wire.data, "two", 3);
}

static unsigned released;

static void on_release(void *arg)
{
	released++;
}

static void test_owned_buffer_is_lent_and_released_once(void **state)
{
	struct net_addr peer = PEER;

	released = 0;
	open_at(US);
	send_text(&peer, "warm");
	send_text(&peer, "known now");
	fake_lends = true;
	assert_int_equal(
		net_udp_send_owned(udp, &peer, bytes, 1000, on_release, NULL),
		1000);
	run_rounds(1);
	assert_int_equal(released, 0); /* its frame has not left */
	assert_true(datagram_next(&wire));
	assert_int_equal(fake_sent_pieces, 2);
	assert_int_equal(wire.len, 1000);
	run_rounds(1);
	assert_int_equal(released, 1);
	assert_int_equal(
		net_udp_send_owned(udp, &peer, bytes, 9000, on_release, NULL),
		-EMSGSIZE);
	run_rounds(1);
	assert_int_equal(released, 2);
	assert_int_equal(net_udp_send_owned(udp, &peer, bytes, 9, NULL, NULL),
			 -EINVAL);
	assert_int_equal(
		net_udp_send_owned(NULL, &peer, bytes, 9, on_release, NULL),
		-EBADF);
	net_mem_fail_after(1);
	assert_int_equal(
		net_udp_send_owned(udp, &peer, bytes, 9, on_release, NULL),
		-ENOMEM);
	net_mem_fail_after(0);
	run_rounds(1);
	assert_int_equal(released, 4);
}

static void test_send_reports_wrong_destinations(void **state)
{
	struct net_addr peer = PEER, none = {0}, port0 = udp_peer4;
	struct net_addr loopback = {
		.family = 4, .port = 1, .ip = {127, [3] = 1}};
	struct net_addr all = {.family = 4, .port = 1, .ip = {10, 0, 0, 255}};
	struct net_addr far = {.family = 4, .port = 1, .ip = {192, 0, 2, 1}};
	struct net_addr peer6 = PEER6, stranger = udp_at(udp_peer4, 4001);
	struct net_datagram d = {
		.data = "x", .len = 1, .peer = PEER, .local = PEER};

	open_at(US);
	assert_int_equal(net_udp_send(udp, NULL, "x", 1), -EDESTADDRREQ);
	assert_int_equal(net_udp_send(udp, &none, "x", 1), -EDESTADDRREQ);
	assert_int_equal(net_udp_send(udp, &port0, "x", 1), -EINVAL);
	assert_int_equal(net_udp_send(udp, &loopback, "x", 1), -EHOSTUNREACH);
	assert_int_equal(net_udp_send(udp, &all, "x", 1), -EACCES);
	assert_int_equal(net_udp_send(udp, &far, "x", 1), -EHOSTUNREACH);
	assert_int_equal(net_udp_send(udp, &peer6, "x", 1), -EADDRNOTAVAIL);
	assert_int_equal(net_udp_send(udp, &peer, NULL, 1), -EINVAL);
	assert_int_equal(net_udp_send_batch(udp, &d, 1), -EADDRNOTAVAIL);
	assert_int_equal(net_udp_send_batch(udp, NULL, 1), -EINVAL);
	assert_int_equal(net_udp_send_batch(udp, &d, 0), -EINVAL);
	assert_int_equal(net_udp_connect(udp, &peer), 0);
	assert_int_equal(net_udp_connect(udp, &peer), -EISCONN);
	assert_int_equal(net_udp_send(udp, &stranger, "x", 1), -EISCONN);
	assert_int_equal(net_udp_send(udp, &peer, "x", 1), 1);
}

static void *send_one(void *arg)
{
	struct net_addr peer = PEER;

	result = net_udp_send(udp, &peer, "late", 4);
	ended++;
	return NULL;
}

static void test_sender_waits_while_the_port_is_behind(void **state)
{
	struct net_addr peer = PEER;

	open_at(US);
	send_text(&peer, "warm");
	send_text(&peer, "known now");
	fake_tx_budget = 0;
	assert_int_equal(net_udp_send(udp, &peer, "x", 1), -EAGAIN);
	net_spawn(stack, "test", send_one, NULL);
	run_ms(3);
	assert_int_equal(ended, 0);
	fake_tx_budget = -1;
	run_ms(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 4);
	assert_true(udp->stats.tx_busy > 1);
}

static void test_own_addresses_are_reached_without_a_frame(void **state)
{
	struct net_udp *client;
	struct net_addr us = US, any = {0};
	char buf[8];

	open_at(us);
	assert_int_equal(net_udp_open(stack, &any, NULL, &client), 0);
	assert_int_equal(net_udp_connect(client, &us), 0);
	assert_int_equal(net_udp_send(client, NULL, "self", 4), 4);
	run_rounds(2);
	assert_int_equal(net_udp_recv(udp, buf, sizeof(buf), NULL), 4);
	assert_memory_equal(buf, "self", 4);
	assert_false(datagram_next(&wire));
}

/* ---- connecting ---- */

static void test_connected_socket_hears_only_its_peer(void **state)
{
	struct net_addr peer = PEER;

	open_at(US);
	datagram_say(PEER, US, "before");
	run_rounds(1);
	assert_int_equal(net_udp_connect(udp, &peer), 0);
	assert_int_equal(udp->rx_queued, 0);
	datagram_say(PEER, US, "peer");
	datagram_say(udp_at(udp_peer4, 4001), US, "stranger");
	run_rounds(1);
	assert_int_equal(udp->rx_queued, 1);
	assert_int_equal(net_udp_peer_addr(udp).port, 4000);
	assert_int_equal(net_here()->stats.udp_no_socket, 1);
}

static void test_connect_chooses_a_port_of_its_own(void **state)
{
	struct net_addr any = {0}, peer = PEER, us = US;
	struct net_udp *second;

	open_to(any, PEER);
	assert_true(net_udp_local_addr(udp).port >= NET_PORT_FIRST);
	assert_memory_equal(net_udp_local_addr(udp).ip, udp_us4.ip, 4);
	assert_int_equal(net_udp_open(stack, &us, NULL, &second), 0);
	assert_int_equal(net_udp_connect(second, &peer), 0);
	assert_int_equal(net_udp_open(stack, &us, NULL, &second), 0);
	assert_int_equal(net_udp_connect(second, &peer), -EADDRINUSE);
	peer.port = 0;
	assert_int_equal(net_udp_connect(second, &peer), -EINVAL);
	assert_int_equal(net_udp_connect(second, NULL), -EINVAL);
	peer = PEER6;
	assert_int_equal(net_udp_connect(second, &peer), -EADDRNOTAVAIL);
}

/* ---- refused datagrams ---- */

static void check_dropped(struct datagram *d)
{
	d->len = d->len ? d->len : 4;
	datagram_send(d);
	run_rounds(1);
	assert_int_equal(udp->rx_queued, 0);
	assert_false(datagram_next(&wire)); /* and nobody is answered */
}

static void test_lying_lengths_are_dropped(void **state)
{
	struct datagram longer = {.from = PEER, .to = US, .udp_len = 100};
	struct datagram shorter = {.from = PEER, .to = US, .udp_len = 7};

	open_at(US);
	check_dropped(&longer);
	check_dropped(&shorter);
	longer.no_sum = shorter.no_sum = true; /* dpdk_glue takes these */
	check_dropped(&longer);
	check_dropped(&shorter);
}

static void test_bytes_behind_the_datagram_are_not_delivered(void **state)
{
	struct datagram d = {.from = PEER,
			     .to = US,
			     .len = 10,
			     .udp_len = 8 + 4,
			     .no_sum = true};

	open_at(US);
	assert_true(datagram_send(&d));
	run_rounds(1);
	assert_int_equal(udp->rx_queued_bytes, 4);
}

static void test_ipv6_needs_a_checksum_and_ipv4_does_not(void **state)
{
	struct net_addr any = {.port = 53};
	struct datagram d6 = {.from = PEER6, .to = US6, .no_sum = true};
	struct datagram d4 = {.from = PEER, .to = US, .no_sum = true, .len = 3};
	struct datagram bad = {.from = PEER, .to = US, .bad_sum = true};

	open_at(any);
	check_dropped(&d6);
	check_dropped(&bad);
	datagram_send(&d4);
	run_rounds(1);
	assert_int_equal(udp->rx_queued, 1);
}

/* A NIC may call a missing checksum good. */
static void test_ipv6_without_checksum_is_dropped_behind_offloads(void **state)
{
	uint8_t frame[14 + 40 + 12] = {0}, *ip = frame + 14, *hdr = ip + 40;

	open_at(US6);
	frame[12] = 0x86;
	frame[13] = 0xdd;
	ip[0] = 0x60;
	ip[5] = 12;
	ip[6] = 17;
	memcpy(ip + 8, udp_peer6.ip, 16);
	memcpy(ip + 24, udp_us6.ip, 16);
	hdr[1] = 9;
	hdr[3] = 53;
	hdr[5] = 12;
	for (unsigned i = 0; i < 2; i++) {
		fake_receive(frame, sizeof(frame),
			     GLUE_FRAME_IP6 | GLUE_FRAME_UDP |
				     GLUE_FRAME_CSUM_OK,
			     54);
		run_rounds(1);
		assert_int_equal(udp->rx_queued, i);
		hdr[7] = 1; /* any other: a NIC has verified it */
	}
}

static void test_impossible_sources_are_dropped(void **state)
{
	static const uint8_t sources[][4] = {
		{10, 0, 0, 255}, {255, 255, 255, 255}, {224, 0, 0, 1},
		{0, 0, 0, 0},	 {127, 0, 0, 1},       {10, 0, 0, 1},
	};
	struct datagram group6 = {
		.from = {.family = 6, .port = 9, .ip = {0xff, 2, [15] = 1}},
		.to = US6};
	struct datagram own6 = {.from = udp_at(udp_us6, 9), .to = US6};
	struct net_addr any = {.port = 53};

	open_at(any);
	for (unsigned i = 0; i < sizeof(sources) / 4; i++) {
		struct datagram d = {.from = {.family = 4, .port = 9},
				     .to = US};

		memcpy(d.from.ip, sources[i], 4);
		check_dropped(&d);
		d.options = 8; /* by lwIP's IP */
		check_dropped(&d);
	}
	check_dropped(&group6);
	check_dropped(&own6);
}

static void test_broadcasts_are_neither_delivered_nor_answered(void **state)
{
	struct datagram d = {
		.from = PEER,
		.to_all = true,
		.to = {.family = 4, .port = 53, .ip = {10, 0, 0, 255}}};
	struct net_addr any = {.port = 53};

	open_at(any);
	check_dropped(&d);
	d.to.port = 54;
	check_dropped(&d);
}

static void test_ip_options_and_segments_are_received(void **state)
{
	struct datagram d = {.from = PEER, .to = US, .len = 600, .options = 8};
	struct net_datagram view;

	for (unsigned i = 0; i < d.len; i++)
		d.data[i] = (uint8_t)i;
	open_at(US);
	assert_true(datagram_send(&d));
	run_rounds(1);
	assert_int_equal(net_udp_recv_batch(udp, &view, 1), 1);
	assert_int_equal(view.len, 600);
	assert_memory_equal(view.data, d.data, 600);
	assert_int_equal(view.peer.port, 4000);
	assert_memory_equal(view.peer.ip, udp_peer4.ip, 4);
	net_udp_release(udp, &view, 1);
}

/* ---- ICMP errors that are sent ---- */

static void test_closed_port_is_answered_at_a_limited_rate(void **state)
{
	unsigned n = 0;

	datagram_say(PEER, US, "first");
	assert_true(datagram_next(&wire)); /* ARP is done */
	assert_int_equal(wire.icmp_type, 3);
	assert_int_equal(wire.icmp_code, 3);
	for (unsigned i = 0; i < 300; i++) {
		datagram_say(PEER, US, "x");
		while (datagram_next(&wire))
			n++;
	}
	assert_in_range(n, 50, 101);
	assert_int_equal(net_here()->stats.udp_no_socket, 301);
}

static void test_closed_port_is_answered_in_ipv6(void **state)
{
	datagram_say(PEER6, US6, "x");
	assert_true(datagram_next(&wire));
	assert_int_equal(wire.icmp_type, 1);
	assert_int_equal(wire.icmp_code, 4);
}

/* ---- ICMP errors that come ---- */

static void *receive_one(void *arg)
{
	result = net_udp_recv(udp, bytes, sizeof(bytes), NULL);
	ended++;
	return NULL;
}

static void test_port_unreachable_ends_one_call(void **state)
{
	open_to(US, PEER);
	send_text(NULL, "hello");
	net_spawn(stack, "test", receive_one, NULL);
	run_rounds(1);
	datagram_send_error(&wire, UNREACHABLE);
	run_rounds(1);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECONNREFUSED);
	send_text(NULL, "again");
	datagram_send_error(&wire, UNREACHABLE);
	assert_int_equal(net_udp_ready(udp, NET_READABLE), NET_READABLE);
	assert_int_equal(net_udp_send(udp, NULL, "x", 1), -ECONNREFUSED);
	send_text(NULL, "once more");
	assert_int_equal(udp->stats.refused, 2);
}

static void test_port_unreachable_ends_one_call_in_ipv6(void **state)
{
	open_to(US6, PEER6);
	send_text(NULL, "hello");
	datagram_send_error(&wire, UNREACHABLE6);
	assert_int_equal(net_udp_recv(udp, bytes, 1, NULL), -ECONNREFUSED);
	assert_int_equal(net_udp_recv(udp, bytes, 1, NULL), -EPERM);
}

static void test_unbelievable_errors_are_ignored(void **state)
{
	struct net_addr peer = PEER;

	open_at(US); /* not connected */
	send_text(&peer, "hello");
	datagram_send_error(&wire, UNREACHABLE);
	assert_int_equal(udp->err, 0);
	assert_int_equal(net_udp_connect(udp, &peer), 0);
	wire.frame[20 + 3]++; /* another port of the peer's */
	datagram_send_error(&wire, UNREACHABLE);
	datagram_send_error(&wire, TOO_BIG(1000));
	wire.frame[20 + 3]--;
	fake_now_ns += INT64_C(11000000000); /* long ago */
	run_rounds(1);
	datagram_send_error(&wire, UNREACHABLE);
	datagram_send_error(&wire, TOO_BIG(1000));
	assert_int_equal(udp->err, 0);
	assert_int_equal(net_udp_room(udp, NULL), 1472);
	assert_int_equal(net_here()->stats.path_mtu_refused, 2);
}

static void test_too_big_lowers_what_may_be_sent(void **state)
{
	struct net_addr peer = PEER, us = US;

	open_at(us);
	assert_int_equal(net_udp_room(udp, &peer), 1472);
	assert_int_equal(net_udp_send(udp, &peer, bytes, 1473), -EMSGSIZE);
	assert_int_equal(net_udp_send(udp, &peer, bytes, 1472), 1472);
	assert_true(datagram_next(&wire));
	datagram_send_error(&wire, TOO_BIG(1500)); /* it would have fit */
	assert_int_equal(net_here()->stats.path_mtu_refused, 1);
	assert_int_equal(net_udp_room(udp, &peer), 1472);
	datagram_send_error(&wire, TOO_BIG(1400));
	assert_int_equal(net_udp_room(udp, &peer), 1372);
	assert_int_equal(net_udp_send(udp, &peer, bytes, 1373), -EMSGSIZE);
	assert_int_equal(net_udp_send(udp, &peer, bytes, 1372), 1372);
	assert_true(datagram_next(&wire));
	datagram_send_error(&wire, TOO_BIG(68)); /* not that little */
	assert_int_equal(net_udp_room(udp, &peer), 552 - 28);
	assert_int_equal(udp->stats.tx_too_big, 2);
}

static void test_too_big_lowers_what_may_be_sent_in_ipv6(void **state)
{
	open_to(US6, PEER6);
	assert_int_equal(net_udp_room(udp, NULL), 1452);
	assert_int_equal(net_udp_send(udp, NULL, bytes, 1452), 1452);
	assert_true(datagram_next(&wire));
	datagram_send_error(&wire, TOO_BIG6(70000));
	assert_int_equal(net_udp_room(udp, NULL), 1452);
	datagram_send_error(&wire, TOO_BIG6(1400));
	assert_int_equal(net_udp_room(udp, NULL), 1352);
}

/* RFC 1122 3.2.1.3 (g), RFC 4291 2.5.3. */
static void test_frames_with_loopback_addresses_are_refused(void **state)
{
	struct net_addr own[2], any = net_addr_any(5300);
	struct net_udp *server;

	net_addr_parse_prefix("127.0.0.1/8", &own[0]);
	net_addr_parse_prefix("::1/128", &own[1]);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(net_ifaddr_add(net_here()->ports, &own[i]), 0);
	assert_int_equal(net_udp_open(stack, &any, NULL, &server), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct net_addr us = udp_at(i ? udp_us6 : udp_us4, 5300);
		struct net_addr peer = udp_at(i ? udp_peer6 : udp_peer4, 9);

		datagram_say(peer, udp_at(own[i], 5300), "to");
		datagram_say(udp_at(own[i], 9), us, "from");
		run_rounds(4);
		assert_int_equal(server->rx_queued, i);
		datagram_say(peer, us, "good");
		run_rounds(4);
		assert_int_equal(server->rx_queued, i + 1);
	}
	net_udp_close(server);
}

/* 0.0.0.0 is not the address of a link that has none. */
static void test_datagrams_to_no_address_are_dropped(void **state)
{
	run_rounds(2);
	open_at(net_addr_any(53));
	datagram_say(PEER, net_addr_any(53), "nobody");
	run_rounds(2);
	assert_int_equal(udp->rx_queued, 0);
	datagram_say(PEER6, US6, "us");
	run_rounds(2);
	assert_int_equal(udp->rx_queued, 1);
	net_udp_close(udp);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, peer_teardown)
	const struct CMUnitTest tests[] = {
		T(test_datagram_waits_for_arp_and_later_ones_do_not),
		T(test_ipv6_datagrams_are_sent),
		T(test_options_set_ttl_and_tos),
		T(test_pieces_are_gathered),
		T(test_batch_is_sent_back_as_it_came),
		T(test_owned_buffer_is_lent_and_released_once),
		T(test_send_reports_wrong_destinations),
		T(test_sender_waits_while_the_port_is_behind),
		T(test_own_addresses_are_reached_without_a_frame),
		T(test_connected_socket_hears_only_its_peer),
		T(test_connect_chooses_a_port_of_its_own),
		T(test_lying_lengths_are_dropped),
		T(test_bytes_behind_the_datagram_are_not_delivered),
		T(test_ipv6_needs_a_checksum_and_ipv4_does_not),
		T(test_ipv6_without_checksum_is_dropped_behind_offloads),
		T(test_impossible_sources_are_dropped),
		T(test_frames_with_loopback_addresses_are_refused),
		T(test_broadcasts_are_neither_delivered_nor_answered),
		cmocka_unit_test_setup_teardown(
			test_datagrams_to_no_address_are_dropped, peer_listen6,
			peer_teardown),
		T(test_ip_options_and_segments_are_received),
		T(test_closed_port_is_answered_at_a_limited_rate),
		T(test_closed_port_is_answered_in_ipv6),
		T(test_port_unreachable_ends_one_call),
		T(test_port_unreachable_ends_one_call_in_ipv6),
		T(test_unbelievable_errors_are_ignored),
		T(test_too_big_lowers_what_may_be_sent),
		T(test_too_big_lowers_what_may_be_sent_in_ipv6),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
