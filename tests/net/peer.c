/* The other end of the wire: forges segments and parses the stack's. */
#include "tests/net/peer.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/frames.h"

_Thread_local struct net_stack *stack;
_Thread_local struct net_listener *listener;
long result;
unsigned ended;
uint8_t got[65536];
size_t got_len;

void peer_opts_init(struct net_opts *opts)
{
	const char *predict = getenv("CORONET_PREDICT");
	const char *trace = getenv("CORONET_TRACE");

	net_opts_init(opts);
	opts->predict_off = predict && strcmp(predict, "off") == 0;
	opts->trace_conns = trace ? (unsigned)atoi(trace) : 0;
}

static int open_stack(unsigned max_conns)
{
	struct net_opts opts;

	fake_now_ns = 1000000000;
	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = max_conns;
	opts.poll = NET_POLL_BUSY;
	return net_stack_open(&opts, &stack);
}

int peer_setup(void **state)
{
	return open_stack(64);
}

int peer_teardown(void **state)
{
	net_stack_close(stack);
	assert_int_equal(fake_frames_out, 0);
	return 0;
}

void run_rounds(unsigned n)
{
	while (n--)
		net_stack_round(stack);
}

void run_ms(unsigned ms)
{
	while (ms--) {
		fake_now_ns += 1000000;
		net_stack_round(stack);
	}
}

void peer_send_raw(const struct segment *s)
{
	uint8_t frame[4096] = {0}, *ip = frame + 14, *tcp = ip + 20;
	unsigned total = 20 + frame_put_tcp(tcp, s);
	uint16_t flags = GLUE_FRAME_IP4 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK;

	frame_ethernet(frame, 0x0800);
	ip[0] = 0x45;
	ip[1] = s->tos;
	put16(ip + 2, total);
	ip[8] = 64;
	ip[9] = 6;
	memcpy(ip + 12, s->from ? s->from : peer_ip, 4);
	memcpy(ip + 16, s->to ? s->to : stack_ip, 4);
	if (s->to_all) {
		memset(frame, 0xff, 6);
		flags |= GLUE_FRAME_MCAST;
	}
	fake_receive(frame, 14 + total, flags, 34);
}

void peer_send(struct peer *peer, uint8_t flags, const void *data, unsigned len)
{
	struct segment s = {.src = peer->port,
			    .dst = peer->stack_port,
			    .seq = peer->snd,
			    .ack = peer->rcv,
			    .flags = flags,
			    .wnd = peer->wnd,
			    .options = (const uint8_t *)"",
			    .data = data ? data : "",
			    .len = len};

	peer_send_raw(&s);
	peer->snd +=
		len + ((flags & PEER_SYN) != 0) + ((flags & PEER_FIN) != 0);
}

struct segment peer_open(struct peer *peer, uint32_t iss,
			 const uint8_t *options, unsigned options_len)
{
	struct segment syn = {.src = 1000,
			      .dst = 7,
			      .seq = iss,
			      .flags = PEER_SYN,
			      .wnd = 65535,
			      .options = options,
			      .options_len = options_len,
			      .data = (const uint8_t *)""};
	struct segment s;

	peer_send_raw(&syn);
	assert_true(peer_next(&s));
	*peer = (struct peer){.port = 1000,
			      .stack_port = 7,
			      .snd = iss + 1,
			      .rcv = s.seq + 1,
			      .wnd = 65535};
	return s;
}

void peer_send_syn_of(const uint8_t from[4], uint16_t src_port)
{
	peer_send_raw(&(struct segment){.src = src_port,
					.dst = 7,
					.seq = 99,
					.flags = PEER_SYN,
					.wnd = 65535,
					.options = (const uint8_t *)"",
					.data = (const uint8_t *)"",
					.from = from});
	run_rounds(2);
}

static void parse_segment(const uint8_t *frame, struct segment *out)
{
	const uint8_t *ip = frame + 14;

	assert_memory_equal(frame, fake_peer_mac, 6);
	assert_memory_equal(ip + 12, stack_ip, 4);
	assert_memory_equal(ip + 16, peer_ip, 4);
	*out = frame_get_tcp(ip + 20, get16(ip + 2) - 20);
	out->ip_id = (uint16_t)get16(ip + 4);
	out->tos = ip[1];
}

/* Takes a TCP segment that was already sent; answers ARP meanwhile. */
static bool take_segment(struct segment *out)
{
	static _Thread_local uint8_t frame[9216];

	while (fake_sent(frame, sizeof(frame))) {
		unsigned type = get16(frame + 12);

		if (type == 0x0806)
			frame_answer_arp(frame);
		if (type == 0x0800 && frame[14 + 9] == 6) {
			parse_segment(frame, out);
			return true;
		}
	}
	return false;
}

bool peer_next(struct segment *out)
{
	for (unsigned i = 0; i < 8; i++) {
		if (take_segment(out))
			return true;
		net_stack_round(stack);
	}
	return take_segment(out);
}

struct segment peer_wait(unsigned ms)
{
	struct segment s;

	for (; ms; ms--) {
		if (peer_next(&s))
			return s;
		run_ms(1);
	}
	fail_msg("the stack sends nothing");
	return s;
}

static const char *number_text(char out[24], int64_t value)
{
	if (value == ANY)
		return "any";
	snprintf(out, 24, "%" PRId64, value);
	return out;
}

static const char *flags_text(char out[9], int64_t flags)
{
	char *end = out;

	if (flags == ANY || flags == 0)
		return flags ? "any flags" : "no flags";
	for (unsigned i = 0; i < 8; i++)
		if (flags & 1 << i)
			*end++ = "FSRPAUEC"[i];
	*end = '\0';
	return out;
}

/*
 * Prints the received segment (NULL: none) and the expected one in one line of
 * TAP.
 */
static void fail_segment(const char *file, int line, const struct segment *s,
			 int64_t flags, int64_t seq, int64_t ack, int64_t len)
{
	char letters[9], numbers[3][24], wanted[128], came[128] = "got nothing";

	if (s)
		snprintf(came, sizeof(came), "got %s seq %u ack %u len %u",
			 flags_text(letters, s->flags), s->seq, s->ack, s->len);
	snprintf(wanted, sizeof(wanted), "expected %s seq %s ack %s len %s",
		 flags_text(letters, flags), number_text(numbers[0], seq),
		 number_text(numbers[1], ack), number_text(numbers[2], len));
	_assert_string_equal(came, wanted, file, line);
}

static bool matches(int64_t expected, int64_t value)
{
	return expected == ANY || expected == value;
}

static int64_t modulo_2_32(int64_t number)
{
	return number == ANY ? ANY : (uint32_t)number;
}

void check_segment_at(const char *file, int line, const struct segment *s,
		      int64_t flags, int64_t seq, int64_t ack, int64_t len)
{
	seq = modulo_2_32(seq);
	ack = modulo_2_32(ack);
	if (!s || !matches(flags, s->flags) || !matches(seq, s->seq) ||
	    !matches(ack, s->ack) || !matches(len, s->len))
		fail_segment(file, line, s, flags, seq, ack, len);
}

void expect_at(const char *file, int line, struct segment *out, int64_t flags,
	       int64_t seq, int64_t ack, int64_t len)
{
	struct segment s = {0};
	bool came = peer_next(&s);

	if (out)
		*out = s;
	check_segment_at(file, line, came ? &s : NULL, flags, seq, ack, len);
}

void peer_expect_nothing(void)
{
	struct segment s;

	if (peer_next(&s))
		fail_msg("the stack sent flags %02x, seq %u, %u bytes", s.flags,
			 s.seq, s.len);
}

void peer_connect(struct peer *peer, uint16_t port, uint16_t stack_port,
		  uint32_t iss)
{
	struct segment s;

	*peer = (struct peer){.port = port,
			      .stack_port = stack_port,
			      .snd = iss,
			      .wnd = 65535};
	peer_send(peer, PEER_SYN, NULL, 0);
	expect(&s, PEER_SYN | PEER_ACK, ANY, peer->snd, 0);
	peer->rcv = s.seq + 1;
	peer_send(peer, PEER_ACK, NULL, 0);
	run_rounds(2);
}

/* So that no test measures the chunk of memory that the first one takes. */
static void use_small_pbuf(void)
{
	pbuf_free(pbuf_alloc(PBUF_LINK, 28, PBUF_RAM));
}

static int listen_for(unsigned max_conns, unsigned backlog)
{
	int err = open_stack(max_conns);

	if (err == 0)
		use_small_pbuf();

	result = 12345;
	ended = 0;
	got_len = 0;
	if (err == 0)
		err = net_listen(stack, &net_addr_any(7), backlog, &listener);
	return err;
}

int peer_listen(void **state)
{
	return listen_for(64, 8);
}

int peer_listen_many(void **state)
{
	return listen_for(8192, 8000);
}

int peer_listen_on_two_links(void **state)
{
	struct net_opts opts;

	fake_now_ns = 1000000000;
	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:a";
	opts.links[opts.n_links++] = "ring:b";
	for (unsigned i = 0; i < 2; i++) {
		opts.addr_links[opts.n_addrs] = i;
		net_addr_parse_prefix(i ? "10.1.0.1/24" : "10.0.0.1/24",
				      &opts.addrs[opts.n_addrs++]);
	}
	opts.max_conns = 64;
	opts.poll = NET_POLL_BUSY;
	if (net_stack_open(&opts, &stack) < 0 ||
	    net_listen(stack, &net_addr_any(7), 64, &listener) < 0)
		return -1;
	run_ms(1200);
	while (fake_sent(got, sizeof(got)))
		;
	return 0;
}

int peer_listen6(void **state)
{
	struct net_opts opts;
	int err;

	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	net_addr_parse_prefix("fd01::1/64", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 64;
	opts.poll = NET_POLL_BUSY;
	err = net_stack_open(&opts, &stack);
	return err ? err : net_listen(stack, &net_addr_any(7), 8, &listener);
}

void echo_views(struct net_conn *conn, void *arg)
{
	struct net_view view;
	long n;

	while ((n = net_recv_view(conn, &view)) > 0)
		if ((n = net_send_view(conn, &view)) < 0)
			break;
	result = n;
	ended++;
}

void serve(net_handler handler)
{
	net_listener_serve(listener, handler, NULL);
}

void reach_time_wait(struct peer *peer)
{
	struct segment s;

	assert_true(peer_next(&s));
	while (!(s.flags & PEER_FIN))
		assert_true(peer_next(&s));
	peer->rcv = s.seq + s.len + 1;
	peer_send(peer, PEER_ACK | PEER_FIN, NULL, 0);
	assert_true(peer_next(&s));
	assert_int_equal(net_here()->n_conns + net_time_waits.n, 1);
}
