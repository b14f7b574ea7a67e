/*
 * Dialing the stack's own addresses: both ends are in the stack, and no frame
 * leaves.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include <coronet/net_udp.h>

#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/frames.h"
#include "tests/net/peer.h"

#define MIB	   (1u << 20)
#define EACH_BYTES (64 * MIB)
#define PIECE	   60000u
#define PORT	   7

struct digest {
	uint8_t bytes[crypto_hash_sha256_BYTES];
};

static struct net_dial_opts opts;
static const char *target;
static int64_t took_ns;
static struct digest sent[2], received[2]; /* by the client, the server */

/* ---- the wire ---- */

/* Reports of multicast groups (MLD) have a hop-by-hop header. */
static bool is_report(const uint8_t *frame)
{
	return frame[12] == 0x86 && frame[14 + 6] == 0;
}

static unsigned frames_sent(void)
{
	static uint8_t frame[9216];
	unsigned n = 0;

	while (fake_sent(frame, sizeof(frame)))
		n += !is_report(frame);
	return n;
}

/* Runs rounds of a microsecond; returns the number of frames that left. */
static unsigned run_until(unsigned want, unsigned most_ms)
{
	unsigned frames = 0;

	for (unsigned i = 0; i < most_ms * 1000 && ended < want; i++) {
		fake_now_ns += 1000;
		net_stack_round(stack);
		frames += frames_sent();
	}
	assert_int_equal(ended, want);
	return frames;
}

/* ---- one request ---- */

static void *ask_echo(void *arg)
{
	struct net_conn *conn = NULL;
	int64_t from_ns = fake_now_ns;
	struct net_addr addr;
	char text[6] = "";

	assert_int_equal(net_addr_parse(target, -1, &addr), 0);
	result = net_dial(stack, &addr, &opts, &conn);
	if (result == 0) {
		assert_int_equal(net_send(conn, "hello", 5), 5);
		assert_int_equal(net_recv_full(conn, text, 5), 5);
		assert_string_equal(text, "hello");
		net_close(conn);
	}
	took_ns = fake_now_ns - from_ns;
	ended++;
	return NULL;
}

static void echo_handler(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
}

static void ask_at(const char *at)
{
	target = at;
	ended = 0;
	net_spawn(stack, "ask", ask_echo, NULL);
	assert_int_equal(run_until(1, 100), 0);
	assert_true(took_ns < 1000000);
}

static void expect_echo_at(const char *at)
{
	uint64_t looped = net_here()->stats.looped;

	ask_at(at);
	assert_int_equal(result, 0);
	assert_true(net_here()->stats.looped - looped >= 4);
}

static void expect_error_at(const char *at, int err)
{
	ask_at(at);
	assert_int_equal(result, err);
}

static void test_own_address_is_reached_without_frames(void **state)
{
	expect_echo_at("10.0.0.1:7");
	expect_echo_at("[fd00::1]:7");
	assert_int_equal(net_here()->stats.loop_drops, 0);
}

/* From its own address, and from one of the first link. */
static void test_other_links_address_is_reached_without_frames(void **state)
{
	expect_echo_at("10.1.0.1:7");
	expect_echo_at("[fd01::1]:7");
	net_addr_parse("10.0.0.1", 0, &opts.source);
	expect_echo_at("10.1.0.1:7");
	net_addr_parse("fd00::1", 0, &opts.source);
	expect_echo_at("[fd01::1]:7");
}

static void test_closed_port_refuses_at_once(void **state)
{
	expect_error_at("10.0.0.1:8", -ECONNREFUSED);
	expect_error_at("10.1.0.1:8", -ECONNREFUSED);
	expect_error_at("[fd01::1]:8", -ECONNREFUSED);
}

/* Shard 0 is that of every flow here, in both directions. */
static void test_shard_that_dials_has_both_ends(void **state)
{
	net_here()->n_shards = 2;
	expect_echo_at("10.0.0.1:7");
	net_here()->n_shards = 1;
}

/* RFC 1122 3.2.1.3 (g), RFC 4291 2.5.3: not even to a gateway. */
static void test_loopback_prefix_never_leaves(void **state)
{
	expect_error_at("127.0.0.1:7", -EHOSTUNREACH);
	expect_error_at("127.1.2.3:7", -EHOSTUNREACH);
	expect_error_at("[::1]:7", -EHOSTUNREACH);
	net_addr_parse("10.0.0.1", 0, &opts.source);
	expect_error_at("127.0.0.1:7", -EHOSTUNREACH);
}

static void test_answers_to_the_loopback_prefix_do_not_leave(void **state)
{
	static const uint8_t from[4] = {127, 0, 0, 1};

	peer_send_syn_of(from, 1000);
	run_ms(2000);
	assert_int_equal(frames_sent(), 0);
}

/* ---- loopback addresses of the stack ---- */

static void add_own(const char *text)
{
	struct net_addr addr;

	assert_int_equal(net_addr_parse_prefix(text, &addr), 0);
	assert_int_equal(net_ifaddr_add(&net_here()->ports[0], &addr), 0);
	run_ms(2500);
	/* Neither a probe nor an announcement. */
	assert_int_equal(frames_sent(), 0);
}

static void test_own_loopback_address_is_reached_without_frames(void **state)
{
	add_own("127.0.0.1/8");
	add_own("::1/128");
	expect_echo_at("127.0.0.1:7");
	expect_echo_at("[::1]:7");
	expect_error_at("127.0.0.1:8", -ECONNREFUSED);
	expect_error_at("127.0.0.2:7", -EHOSTUNREACH);
	expect_echo_at("10.0.0.1:7");
	expect_echo_at("[fd00::1]:7");
}

static void test_loopback_address_reaches_another_one(void **state)
{
	add_own("127.0.0.1/8");
	add_own("127.0.0.2/8");
	net_addr_parse("127.0.0.1", 0, &opts.source);
	expect_echo_at("127.0.0.2:7");
}

/* A short prefix must not lead packets for others to the address. */
static void test_loopback_address_has_no_network(void **state)
{
	struct net_addr to, source, gateway;

	add_own("127.0.0.1/1");
	add_own("::1/1");
	net_addr_parse("10.0.0.1", 0, &gateway);
	net_addr_parse("99.0.0.1", 0, &to);
	assert_int_equal(net_route(stack, &to, &source), 0);
	assert_memory_equal(source.ip, gateway.ip, 4);
	net_addr_parse("fd00::1", 0, &gateway);
	net_addr_parse("2001:db8::9", 0, &to);
	assert_int_equal(net_route(stack, &to, &source), 0);
	assert_memory_equal(source.ip, gateway.ip, 16);
}

static void test_link_learns_nothing_about_a_loopback_address(void **state)
{
	static const uint8_t from[4] = {127, 0, 0, 1};
	uint8_t frame[42] = {0}, *arp = frame + 14;

	add_own("127.0.0.1/8");
	frame_ethernet(frame, 0x0806);
	memcpy(arp, "\0\1\10\0\6\4\0\1", 8);
	memcpy(arp + 8, fake_peer_mac, 6);
	memcpy(arp + 14, peer_ip, 4);
	memcpy(arp + 24, from, 4);
	fake_receive(frame, sizeof(frame), 0, 0);
	memcpy(arp + 14, from, 4); /* another host claims it */
	fake_receive(frame, sizeof(frame), 0, 0);
	run_ms(10);
	peer_send_syn_of(from, 1000);
	run_ms(2000);
	assert_int_equal(frames_sent(), 0);
	assert_int_equal(net_here()->stats.looped, 0);
	assert_int_equal(net_here()->stats.addr_conflicts, 0);
	expect_echo_at("127.0.0.1:7");
}

static void test_loopback_and_other_addresses_do_not_mix(void **state)
{
	add_own("127.0.0.1/8");
	add_own("::1/128");
	net_addr_parse("10.0.0.1", 0, &opts.source);
	expect_error_at("127.0.0.1:7", -EHOSTUNREACH);
	net_addr_parse("127.0.0.1", 0, &opts.source);
	expect_error_at("10.0.0.1:7", -EHOSTUNREACH);
	expect_error_at("10.0.0.2:7", -EHOSTUNREACH);
	net_addr_parse("::1", 0, &opts.source);
	expect_error_at("[fd00::2]:7", -EHOSTUNREACH);
}

static void expect_datagram_at(const char *at)
{
	struct net_addr addr, any = net_addr_any(0);
	struct net_udp *to, *from;

	assert_int_equal(net_addr_parse(at, -1, &addr), 0);
	assert_int_equal(net_udp_open(stack, &addr, NULL, &to), 0);
	assert_int_equal(net_udp_open(stack, &any, NULL, &from), 0);
	assert_int_equal(net_udp_send(from, &addr, "hello", 5), 5);
	assert_int_equal(net_udp_connect(from, &addr), 0);
	assert_int_equal(net_udp_send(from, NULL, "again", 5), 5);
	run_ms(1);
	assert_int_equal(frames_sent(), 0);
	assert_int_equal(to->rx_queued, 2);
	net_udp_close(from);
	net_udp_close(to);
}

static void test_datagram_to_own_loopback_address_is_received(void **state)
{
	add_own("127.0.0.1/8");
	add_own("::1/128");
	expect_datagram_at("127.0.0.1:5353");
	expect_datagram_at("[::1]:5353");
}

/* The port has no listener, but an end must not be its own peer. */
static void test_port_does_not_dial_itself(void **state)
{
	net_addr_parse("10.0.0.1:9999", -1, &opts.source);
	expect_error_at("10.0.0.1:9999", -EADDRINUSE);
}

/* ---- a stream in each direction ---- */

static void fill_pattern(uint8_t *piece, unsigned len, uint32_t at,
			 unsigned who)
{
	for (unsigned i = 0; i < len; i++)
		piece[i] = (uint8_t)((at + i) * 2654435761u >> (11 + who));
}

struct side {
	struct net_conn *conn;
	unsigned who;
};

static void *send_stream(void *arg)
{
	struct side *side = arg;
	crypto_hash_sha256_state hash;
	uint8_t *piece = malloc(PIECE);

	crypto_hash_sha256_init(&hash);
	for (uint32_t at = 0, len; at < EACH_BYTES; at += len) {
		len = LWIP_MIN(PIECE, EACH_BYTES - at);
		fill_pattern(piece, len, at, side->who);
		crypto_hash_sha256_update(&hash, piece, len);
		if (net_send_all(side->conn, piece, len) < 0)
			break;
	}
	crypto_hash_sha256_final(&hash, sent[side->who].bytes);
	net_shutdown(side->conn, NET_SHUT_WR);
	free(piece);
	return NULL;
}

static void receive_stream(struct net_conn *conn, unsigned who)
{
	crypto_hash_sha256_state hash;
	struct net_view view;

	crypto_hash_sha256_init(&hash);
	while (net_recv_view(conn, &view) > 0) {
		crypto_hash_sha256_update(&hash, view.data, view.len);
		net_view_release(conn, &view);
	}
	crypto_hash_sha256_final(&hash, received[who].bytes);
}

static void exchange_streams(struct net_conn *conn, unsigned who)
{
	struct side *side = malloc(sizeof(*side));
	struct coro *sender;

	*side = (struct side){conn, who};
	coro_spawn(stack->sched, NULL, send_stream, side, &sender);
	receive_stream(conn, who);
	coro_join(sender, NULL);
	free(side);
	ended++;
}

static void serve_stream(struct net_conn *conn, void *arg)
{
	exchange_streams(conn, 1);
}

static void *dial_stream(void *arg)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse(arg, -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &conn), 0);
	exchange_streams(conn, 0);
	net_close(conn);
	return NULL;
}

static void exchange(const char *at)
{
	memset(sent, 0, sizeof(sent));
	memset(received, 1, sizeof(received));
	ended = 0;
	serve(serve_stream);
	net_spawn(stack, "dial", dial_stream, (void *)(uintptr_t)at);
	assert_int_equal(run_until(2, 10000), 0);
	assert_memory_equal(&sent[0], &received[1], sizeof(struct digest));
	assert_memory_equal(&sent[1], &received[0], sizeof(struct digest));
	assert_memory_not_equal(&sent[0], &sent[1], sizeof(struct digest));
	print_message("# %s: %lu packets, %lu dropped, %.0f ms\n", at,
		      net_here()->stats.looped, net_here()->stats.loop_drops,
		      (double)fake_now_ns / 1e6 - 1000);
}

static void test_bytes_arrive_as_they_were_sent(void **state)
{
	exchange("10.1.0.1:7");
}

static void test_bytes_arrive_as_they_were_sent6(void **state)
{
	exchange("[fd01::1]:7");
}

/* ---- the ring ---- */

#define FLOWS 200u

static void *ask_once(void *arg)
{
	static const char byte = 'x';
	struct net_conn *conn = NULL;
	struct net_addr addr;
	char text;

	net_addr_parse("10.0.0.1:7", -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &conn), 0);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(net_send(conn, &byte, 1), 1);
		assert_int_equal(net_recv(conn, &text, 1), 1);
	}
	net_close(conn);
	ended++;
	return NULL;
}

/*
 * Fills the ring with packets that nobody receives; its indices wrap in the
 * middle.
 */
static void fill_ring(unsigned left)
{
	struct net_loop *loop = &net_here()->loop;

	loop->head = loop->tail = UINT32_MAX - NET_LOOP_PKTS / 2;
	while (loop->tail - loop->head < NET_LOOP_PKTS - left) {
		struct pbuf *p = pbuf_alloc(PBUF_RAW, IP_HLEN, PBUF_RAM);

		memset(p->payload, 0, IP_HLEN);
		p->if_idx = 1;
		loop->ring[loop->tail++ % NET_LOOP_PKTS] = p;
	}
}

/* Lost packets are retransmitted, as behind any queue. */
static void test_full_ring_drops_and_counts(void **state)
{
	fill_ring(20);
	ended = 0;
	for (unsigned i = 0; i < FLOWS; i++)
		net_spawn(stack, "ask", ask_once, NULL);
	assert_int_equal(run_until(FLOWS, 20000), 0);
	run_rounds(100);
	assert_true(net_here()->stats.loop_drops > 0);
	assert_int_equal(net_here()->loop.head, net_here()->loop.tail);
}

/* ---- several shards ---- */

static struct net_udp *open_udp(const char *at)
{
	struct net_udp *udp = NULL;
	struct net_addr addr;

	net_addr_parse(at, -1, &addr);
	assert_int_equal(net_udp_open(stack, &addr, NULL, &udp), 0);
	return udp;
}

/*
 * The one thread is shard 0 or 1 in turn. Shard 0 owns every flow of the fake
 * port, so the list of packets for shard 0 is the only one that is used.
 */
static void become_shard(unsigned shard)
{
	net_here()->n_shards = 2;
	net_here()->shard = shard;
}

static void send_from_shard_1(const char *from, const char *to, unsigned n)
{
	struct net_addr addr;
	struct net_udp *udp;

	become_shard(1);
	udp = open_udp(from);
	net_addr_parse(to, -1, &addr);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(net_udp_send(udp, &addr, "over", 4), 4);
	net_udp_close(udp);
}

static void expect_on_shard_0(struct net_udp *udp, const char *from)
{
	struct net_datagram datagram;
	struct net_udp_stats stats;
	struct net_addr expected;
	char text[8];

	net_addr_parse(from, -1, &expected);
	become_shard(0);
	run_rounds(1);
	assert_int_equal(net_udp_stats(udp, &stats), 0);
	assert_int_equal(stats.rx, 1);
	assert_int_equal(net_udp_recv(udp, text, sizeof(text), &datagram), 4);
	assert_memory_equal(text, "over", 4);
	assert_int_equal(datagram.peer.port, expected.port);
	assert_memory_equal(datagram.peer.ip, expected.ip, 16);
}

static void test_datagram_reaches_the_shard_of_its_flow(void **state)
{
	struct net_udp *udp4 = open_udp("10.1.0.1:5000");
	struct net_udp *udp6 = open_udp("[fd00::1]:5000");
	uint64_t looped = net_here()->stats.looped;

	send_from_shard_1("10.0.0.1:6000", "10.1.0.1:5000", 1);
	assert_int_equal(net_here()->stats.looped, looped);
	assert_false(net_link_loops());
	expect_on_shard_0(udp4, "10.0.0.1:6000");
	send_from_shard_1("[fd00::1]:6000", "[fd00::1]:5000", 1);
	expect_on_shard_0(udp6, "[fd00::1]:6000");
	assert_int_equal(net_here()->stats.loop_drops, 0);
	assert_int_equal(frames_sent(), 0);
	net_udp_close(udp4);
	net_udp_close(udp6);
	net_here()->n_shards = 1;
}

static void test_packets_for_another_shard_are_bounded(void **state)
{
	struct net_udp *udp = open_udp("10.0.0.1:5000");

	for (unsigned turn = 1; turn <= 2; turn++) {
		send_from_shard_1("10.0.0.1:6000", "10.0.0.1:5000",
				  NET_LOOP_PKTS + 10);
		assert_int_equal(net_here()->stats.loop_drops, 10 * turn);
		become_shard(0);
		run_rounds(2 * NET_LOOP_PKTS / GLUE_BURST);
		assert_false(net_link_loops());
	}
	assert_int_equal(net_here()->stats.looped, 2 * NET_LOOP_PKTS);
	send_from_shard_1("10.0.0.1:6000", "10.0.0.1:5000", 10);
	become_shard(0);
	net_udp_close(udp);
	net_here()->n_shards = 1; /* what is left is freed with the stack */
}

/* ---- setup ---- */

static int setup(void **state)
{
	static const char *const addrs[] = {"10.0.0.1/24", "fd00::1/64",
					    "10.1.0.1/24", "fd01::1/64"};
	struct net_opts stack_opts;

	fake_now_ns = 1000000000;
	memset(&opts, 0, sizeof(opts));
	peer_opts_init(&stack_opts);
	stack_opts.links[stack_opts.n_links++] = "ring:a";
	stack_opts.links[stack_opts.n_links++] = "ring:b";
	for (unsigned i = 0; i < LWIP_ARRAYSIZE(addrs); i++) {
		stack_opts.addr_links[stack_opts.n_addrs] = i / 2;
		net_addr_parse_prefix(addrs[i],
				      &stack_opts.addrs[stack_opts.n_addrs++]);
	}
	net_addr_parse("10.0.0.2", 0, &stack_opts.gateway4);
	net_addr_parse("fd00::2", 0, &stack_opts.gateway6);
	stack_opts.max_conns = 1024;
	stack_opts.poll = NET_POLL_BUSY;
	if (net_stack_open(&stack_opts, &stack) < 0 ||
	    net_listen(stack, &net_addr_any(PORT), 512, &listener) < 0)
		return -1;
	serve(echo_handler);
	run_ms(1200); /* the addresses have been announced */
	frames_sent();
	return 0;
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_own_address_is_reached_without_frames),
		T(test_other_links_address_is_reached_without_frames),
		T(test_closed_port_refuses_at_once),
		T(test_shard_that_dials_has_both_ends),
		T(test_loopback_prefix_never_leaves),
		T(test_answers_to_the_loopback_prefix_do_not_leave),
		T(test_own_loopback_address_is_reached_without_frames),
		T(test_loopback_address_reaches_another_one),
		T(test_loopback_address_has_no_network),
		T(test_link_learns_nothing_about_a_loopback_address),
		T(test_loopback_and_other_addresses_do_not_mix),
		T(test_datagram_to_own_loopback_address_is_received),
		T(test_port_does_not_dial_itself),
		T(test_bytes_arrive_as_they_were_sent),
		T(test_bytes_arrive_as_they_were_sent6),
		T(test_full_ring_drops_and_counts),
		T(test_datagram_reaches_the_shard_of_its_flow),
		T(test_packets_for_another_shard_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
