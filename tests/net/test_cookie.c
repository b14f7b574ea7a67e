/*
 * A flood of SYNs: half-open connections stay few, and honest clients connect
 * by a cookie. The listener at port 7 has a backlog of 8.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"
#include "lwip/prot/tcp.h"

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define BACKLOG	  8
#define NEAR_WRAP 0xffffffffu /* the SYN is the last number */

static void send_syn(uint16_t port, const uint8_t *options, unsigned len)
{
	const struct segment syn = {.src = port,
				    .dst = 7,
				    .seq = NEAR_WRAP,
				    .flags = PEER_SYN,
				    .wnd = 1000,
				    .options = options,
				    .options_len = len,
				    .data = (const uint8_t *)""};

	peer_send_raw(&syn);
}

/* Sends SYNs without ACKs, until the backlog is full. */
static void flood_syns(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		send_syn((uint16_t)(10000 + i), (const uint8_t *)"", 0);
		expect(NULL, PEER_SYN | PEER_ACK, ANY, 0, 0);
	}
}

/* Gets a cookie; sets the peer up to answer it. */
static void get_cookie(struct peer *peer, uint16_t port, const uint8_t *options,
		       unsigned len)
{
	uint64_t sent = net_here()->stats.cookies_sent;
	struct segment s;

	send_syn(port, options, len);
	expect(&s, PEER_SYN | PEER_ACK, ANY, 0, 0);
	assert_int_equal(net_here()->stats.cookies_sent, sent + 1);
	*peer = (struct peer){.port = port,
			      .stack_port = 7,
			      .snd = 0,
			      .rcv = s.seq + 1,
			      .wnd = 1000};
}

static struct net_conn *find_conn(uint16_t port)
{
	ip_addr_t local, remote;

	IP_ADDR4(&local, 10, 0, 0, 1);
	IP_ADDR4(&remote, 10, 0, 0, 2);
	return net_demux_find(&local, 7, &remote, port);
}

static void expect_refused(const struct peer *peer)
{
	expect(NULL, PEER_RST, peer->rcv, 0, 0);
	assert_null(find_conn(peer->port));
}

static void test_flood_is_answered_and_keeps_nothing(void **state)
{
	flood_syns(1000);
	assert_int_equal(net_here()->half_open, BACKLOG);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_here()->stats.cookies_sent, 1000 - BACKLOG);
	assert_int_equal(net_here()->stats.backlog_drops, 0);
}

static void test_cookie_opens_a_working_connection(void **state)
{
	struct segment s;
	struct peer peer;

	serve(echo_views);
	flood_syns(BACKLOG);
	get_cookie(&peer, 1000, (const uint8_t *)"", 0);
	peer_send(&peer, PEER_ACK, NULL, 0);
	peer_expect_nothing();
	assert_int_equal(net_here()->n_conns, 1);
	assert_int_equal(net_here()->half_open, BACKLOG);
	assert_int_equal(net_here()->stats.accepted, 1);
	assert_int_equal(net_here()->stats.cookies_accepted, 1);
	assert_int_equal(find_conn(1000)->srtt_us, 0); /* there is no sample */
	peer_send(&peer, PEER_ACK | PEER_PSH, "hello", 5);
	expect(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 5);
	assert_memory_equal(s.data, "hello", 5);
	peer.rcv += 5;
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	assert_true(peer_next(&s));
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
}

static void test_data_replaces_a_lost_cookie_ack(void **state)
{
	struct segment s;
	struct peer peer;

	serve(echo_views);
	flood_syns(BACKLOG);
	get_cookie(&peer, 1000, (const uint8_t *)"", 0);
	peer_send(&peer, PEER_ACK | PEER_PSH, "at once", 7);
	expect(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 7);
	assert_memory_equal(s.data, "at once", 7);
}

static void test_cookie_remembers_the_options(void **state)
{
	static const struct {
		uint16_t named, kept;
	} mss[] = {{1, 216},	 {216, 216},   {535, 216},   {536, 536},
		   {1220, 1220}, {1359, 1220}, {1460, 1460}, {9000, 1460}};
	static const uint8_t scales[] = {0, 7, 14, 15, 255};
	uint16_t port = 20000;

	serve(echo_views);
	flood_syns(BACKLOG);
	for (unsigned i = 0; i < 8; i++) {
		for (unsigned k = 0; k < 5; k++) {
			const uint8_t options[] = {2,
						   4,
						   (uint8_t)(mss[i].named >> 8),
						   (uint8_t)mss[i].named,
						   1,
						   3,
						   3,
						   scales[k],
						   4,
						   2,
						   1,
						   1};
			bool sack = i % 2; /* else the NOPs start earlier */
			struct peer peer;
			struct tcp_pcb *pcb;

			get_cookie(&peer, ++port, options, sack ? 12 : 8);
			peer_send(&peer, PEER_ACK, NULL, 0);
			run_rounds(2);
			assert_non_null(find_conn(port));
			pcb = &find_conn(port)->pcb;
			assert_int_equal(pcb->state, ESTABLISHED);
			assert_int_equal(pcb->mss, mss[i].kept);
			assert_int_equal(pcb->snd_scale,
					 scales[k] > 14 ? 14 : scales[k]);
			assert_int_equal(pcb->snd_wnd, 1000u << pcb->snd_scale);
			assert_int_equal(!!(pcb->flags & TF_SACK), sack);
			tcp_abort(pcb);
			run_rounds(2);
			while (fake_sent(got, sizeof(got)))
				;
		}
	}
}

static void test_syn_ack_has_only_offered_options(void **state)
{
	static const uint8_t all[] = {2, 4, 5, 180, 1, 3, 3, 7, 4, 2, 1, 1};
	struct segment s;

	flood_syns(BACKLOG);
	send_syn(1000, all, sizeof(all));
	assert_true(peer_next(&s));
	assert_int_equal(s.options_len, 12);
	assert_int_equal(s.options[0], 2);
	assert_int_equal(s.options[2] << 8 | s.options[3], 1460);
	assert_int_equal(s.options[5], 3);
	assert_int_equal(s.options[7], net_here()->rcv_scale);
	assert_int_equal(s.options[10], 4);
	send_syn(1001, all, 4);
	assert_true(peer_next(&s));
	assert_int_equal(s.options_len, 4);
}

/*
 * The ACK with a cookie is checked like any segment of a connection: an MSS, a
 * window scale or SACK-permitted in it is ignored.
 */
static void test_options_of_the_cookie_ack_are_ignored(void **state)
{
	static const uint8_t syn_options[] = {2, 4, 5, 180};
	static const uint16_t named[] = {1, 8960};

	serve(echo_views);
	flood_syns(BACKLOG);
	for (unsigned i = 0; i < 2; i++) {
		const uint8_t options[] = {2,
					   4,
					   (uint8_t)(named[i] >> 8),
					   (uint8_t)named[i],
					   1,
					   3,
					   3,
					   14,
					   4,
					   2,
					   1,
					   1};
		struct peer peer;
		struct segment ack = {.dst = 7,
				      .flags = PEER_ACK,
				      .wnd = 1000,
				      .options = options,
				      .options_len = sizeof(options),
				      .data = (const uint8_t *)""};
		uint16_t port = (uint16_t)(1000 + i);

		get_cookie(&peer, port, syn_options, sizeof(syn_options));
		ack.src = port;
		ack.seq = peer.snd;
		ack.ack = peer.rcv;
		peer_send_raw(&ack);
		run_rounds(2);
		assert_non_null(find_conn(port));
		assert_int_equal(find_conn(port)->pcb.state, ESTABLISHED);
		assert_int_equal(find_conn(port)->pcb.mss, 1460);
		assert_int_equal(find_conn(port)->pcb.snd_scale, 0);
		assert_false(find_conn(port)->pcb.flags & TF_SACK);
	}
}

static void send_from_elsewhere(const struct peer *peer)
{
	static const uint8_t from[] = {10, 0, 0, 3};
	const struct segment s = {.src = peer->port,
				  .dst = 7,
				  .seq = peer->snd,
				  .ack = peer->rcv,
				  .flags = PEER_ACK,
				  .wnd = 1000,
				  .options = (const uint8_t *)"",
				  .data = (const uint8_t *)"",
				  .from = from};

	peer_send_raw(&s);
	run_rounds(2);
}

static void test_wrong_cookies_are_refused(void **state)
{
	struct peer peer, forged;

	serve(echo_views);
	flood_syns(BACKLOG);
	get_cookie(&peer, 1000, (const uint8_t *)"", 0);
	for (unsigned bit = 0; bit < 32; bit++) {
		forged = peer;
		forged.rcv ^= 1u << bit;
		peer_send(&forged, PEER_ACK, NULL, 0);
		expect_refused(&forged);
		forged = peer;
		forged.snd ^= 1u << bit;
		peer_send(&forged, PEER_ACK, NULL, 0);
		expect_refused(&forged);
	}
	forged = peer;
	forged.port++;
	peer_send(&forged, PEER_ACK, NULL, 0);
	expect_refused(&forged);
	send_from_elsewhere(&peer);
	assert_int_equal(net_here()->stats.cookies_refused, 66);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_cookie_lives_a_minute_or_two(void **state)
{
	struct peer young, old;

	serve(echo_views);
	flood_syns(BACKLOG);
	get_cookie(&young, 1000, (const uint8_t *)"", 0);
	get_cookie(&old, 1001, (const uint8_t *)"", 0);
	fake_now_ns += 64 * INT64_C(1000000000);
	peer_send(&young, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(find_conn(1000));
	fake_now_ns += 66 * INT64_C(1000000000);
	flood_syns(1000); /* cookies are in use again */
	fake_now_ns += 3 * INT64_C(1000000000);
	run_rounds(2);
	while (fake_sent(got, sizeof(got)))
		; /* of half-open ones */
	peer_send(&old, PEER_ACK, NULL, 0);
	expect_refused(&old);
}

static void test_cookies_are_refused_without_a_flood(void **state)
{
	struct peer peer;

	serve(echo_views);
	flood_syns(BACKLOG);
	get_cookie(&peer, 1000, (const uint8_t *)"", 0);
	fake_now_ns += 129 * INT64_C(1000000000);
	run_rounds(2);
	while (fake_sent(got, sizeof(got)))
		;
	peer_send(&peer, PEER_ACK, NULL, 0);
	expect_refused(&peer);
	assert_int_equal(net_here()->stats.cookies_refused, 0);
}

static void *accept_one(void *arg)
{
	struct net_conn *conn;

	if (net_accept(listener, &conn) == 0)
		net_abort(conn);
	ended++;
	return NULL;
}

static void test_full_accept_queue_drops_cookie_acks(void **state)
{
	struct peer peer, late;

	flood_syns(BACKLOG);
	get_cookie(&late, 999, (const uint8_t *)"", 0);
	for (uint16_t i = 0; i < BACKLOG; i++) {
		get_cookie(&peer, (uint16_t)(1000 + i), (const uint8_t *)"", 0);
		peer_send(&peer, PEER_ACK, NULL, 0);
		run_rounds(1);
	}
	assert_int_equal(net_here()->stats.accepted, BACKLOG);
	send_syn(3000, (const uint8_t *)"", 0);
	peer_send(&late, PEER_ACK, NULL, 0);
	peer_expect_nothing(); /* dropped, not reset, since there may be room
				  later */
	assert_int_equal(net_here()->stats.backlog_drops, 2);
	net_spawn(stack, "accept", accept_one, NULL);
	run_rounds(2);
	assert_int_equal(ended, 1);
	expect(NULL, PEER_RST | PEER_ACK, ANY, ANY, 0); /* the abort's */
	peer_send(&late, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(find_conn(999));
	assert_int_equal(net_here()->stats.accepted, BACKLOG + 1);
}

static void test_half_open_ends_after_a_while(void **state)
{
	flood_syns(BACKLOG);
	run_ms(TCP_SYN_RCVD_TIMEOUT + 1000);
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(listener->pending, 0);
}

static void test_half_open_connections_take_at_most_half(void **state)
{
	struct peer peer[70];
	struct segment s;

	net_listener_close(listener);
	assert_int_equal(net_listen(stack, &net_addr_any(7), 1000, &listener),
			 0);
	serve(echo_views);
	for (uint16_t i = 0; i < 70; i++) {
		peer[i] = (struct peer){.port = (uint16_t)(2000 + i),
					.stack_port = 7,
					.snd = 9,
					.wnd = 99};
		peer_send(&peer[i], PEER_SYN, NULL, 0);
		expect(&s, PEER_SYN | PEER_ACK, ANY, peer[i].snd, 0);
		peer[i].rcv = s.seq + 1;
	}
	assert_int_equal(net_here()->half_open, 32); /* of 64 */
	for (unsigned i = 0; i < 70; i++) {
		peer_send(&peer[i], PEER_ACK, NULL, 0);
		run_rounds(1);
	}
	assert_int_equal(net_here()->n_conns, 64);
	assert_int_equal(net_here()->stats.accepted, 64);
	assert_int_equal(net_here()->half_open, 0);
	assert_true(net_here()->stats.no_memory > 0);
	peer_expect_nothing(); /* a client without room may retry */
}

/* ---- IPv6 ---- */

static const uint8_t stack_ip6[16] = {0xfd, [15] = 1};
static const uint8_t peer_ip6[16] = {0xfd, [15] = 2};

static int listen6(void **state)
{
	struct net_opts opts;
	struct nd6_neighbor_cache_entry *peer;

	fake_now_ns = 1000000000;
	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 64;
	opts.poll = NET_POLL_BUSY;
	if (net_stack_open(&opts, &stack) < 0 ||
	    net_listen(stack, &net_addr_any(7), BACKLOG, &listener) < 0)
		return -1;
	ended = 0;
	peer = &neighbor_cache[0]; /* known without a solicitation */
	memset(peer, 0, sizeof(*peer));
	memcpy(peer->next_hop_address.addr, peer_ip6, 16);
	peer->netif = &net_here()->netifs[0];
	memcpy(peer->lladdr, fake_peer_mac, 6);
	peer->state = ND6_REACHABLE;
	peer->counter.reachable_time = 3600000;
	return 0;
}

static void send_segment6(const struct peer *peer, uint8_t flags,
			  const char *data)
{
	static const uint8_t options[] = {2, 4, 5, 160, 1, 3, 3, 2};
	uint8_t frame[14 + 40 + 20 + 64] = {0}, *ip = frame + 14;
	unsigned header = flags & PEER_SYN ? 28 : 20;
	size_t len = strlen(data);
	struct tcp_hdr *tcp = (void *)(ip + 40);

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	frame[12] = 0x86;
	frame[13] = 0xdd;
	ip[0] = 0x60;
	ip[5] = (uint8_t)(header + len);
	ip[6] = 6;
	ip[7] = 64;
	memcpy(ip + 8, peer_ip6, 16);
	memcpy(ip + 24, stack_ip6, 16);
	tcp->src = lwip_htons(peer->port);
	tcp->dest = lwip_htons(7);
	tcp->seqno = lwip_htonl(peer->snd);
	tcp->ackno = lwip_htonl(peer->rcv);
	TCPH_HDRLEN_FLAGS_SET(tcp, header / 4, flags);
	tcp->wnd = lwip_htons(peer->wnd);
	memcpy(tcp + 1, options, header - 20);
	memcpy((uint8_t *)tcp + header, data, len);
	fake_receive(frame, 54 + header + (unsigned)len,
		     GLUE_FRAME_IP6 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK, 54);
}

/* Returns the TCP header of the next sent segment, or NULL. */
static const struct tcp_hdr *next_segment6(void)
{
	static uint8_t frame[9216];

	run_rounds(2);
	while (fake_sent(frame, sizeof(frame)))
		if (frame[12] == 0x86 && frame[14 + 6] == 6)
			return (const void *)(frame + 54);
	return NULL;
}

static void test_cookie_works_over_ipv6(void **state)
{
	struct peer peer = {.port = 1000, .snd = NEAR_WRAP, .wnd = 999};
	const struct tcp_hdr *tcp = NULL;

	serve(echo_views);
	for (; peer.port <= 1000 + BACKLOG; peer.port++) {
		send_segment6(&peer, PEER_SYN, "");
		tcp = next_segment6();
		assert_non_null(tcp);
		assert_int_equal(TCPH_FLAGS(tcp), PEER_SYN | PEER_ACK);
	}
	peer.port--;
	assert_int_equal(net_here()->stats.cookies_sent, 1);
	peer.snd++;
	peer.rcv = lwip_ntohl(tcp->seqno) + 1;
	send_segment6(&peer, PEER_ACK, "over six");
	tcp = next_segment6();
	assert_non_null(tcp);
	assert_int_equal(net_here()->stats.cookies_accepted, 1);
	assert_int_equal(TCPH_FLAGS(tcp) & PEER_SYN, 0);
	assert_int_equal(lwip_ntohl(tcp->seqno), peer.rcv);
	assert_int_equal(lwip_ntohl(tcp->ackno), 8);
	assert_memory_equal((const uint8_t *)tcp + 20, "over six", 8);
	while (next_segment6())
		;
}

static void test_flood_over_ipv6_is_bounded(void **state)
{
	struct peer peer = {.port = 1000, .snd = NEAR_WRAP, .wnd = 999};
	struct net_listener *own;
	struct net_addr addr;

	serve(echo_views);
	do
		send_segment6(&peer, PEER_SYN, "");
	while (next_segment6() && ++peer.port < 40000);
	assert_int_equal(peer.port, 1000 + BACKLOG + 16385);
	send_segment6(&peer, PEER_SYN, "");
	assert_null(next_segment6());
	assert_int_equal(net_here()->stats.syns_shed, 2);
	assert_int_equal(net_addr_parse("[fd00::1]:7", -1, &addr), 0);
	assert_int_equal(net_listen(stack, &addr, BACKLOG, &own), 0);
	send_segment6(&peer, PEER_SYN, "");
	assert_non_null(next_segment6());
	net_listener_close(own);
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_flood_is_answered_and_keeps_nothing),
		T(test_cookie_opens_a_working_connection),
		T(test_data_replaces_a_lost_cookie_ack),
		T(test_cookie_remembers_the_options),
		T(test_syn_ack_has_only_offered_options),
		T(test_options_of_the_cookie_ack_are_ignored),
		T(test_wrong_cookies_are_refused),
		T(test_cookie_lives_a_minute_or_two),
		T(test_cookies_are_refused_without_a_flood),
		T(test_full_accept_queue_drops_cookie_acks),
		T(test_half_open_ends_after_a_while),
		cmocka_unit_test_setup_teardown(test_cookie_works_over_ipv6,
						listen6, peer_teardown),
		cmocka_unit_test_setup_teardown(test_flood_over_ipv6_is_bounded,
						listen6, peer_teardown),
		T(test_half_open_connections_take_at_most_half),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
