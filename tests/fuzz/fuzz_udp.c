/*
 * Datagrams and ICMP errors to UDP sockets that are opened, connected, read and
 * closed meanwhile. An input is a list of steps; each begins with a byte that
 * says what it is, and one that is its argument.
 *
 * Checks: the sanitizers, lwIP's assertions, the bytes of every datagram, the
 * counters and limits of sockets, the form of sent frames, and that at the end
 * no memory is held.
 */
#include "dpdk_glue/glue_csum.h"
#include "tests/fuzz/fuzz_host.h"

#define SOCKETS	  4u
#define PORT	  53u /* and the next one */
#define PEER_PORT 1000u
#define HELD_MAX  8u
#define QUEUE_MAX 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum step {
	STEP_OPEN,
	STEP_CONNECT,
	STEP_DATAGRAM,
	STEP_RAW, /* an IP packet, any bytes */
	STEP_SEND,
	STEP_TAKE,
	STEP_ERROR, /* of ICMP, about the datagram that was sent last */
	STEP_CLOSE,
};
/* Flags in the first byte, above the step. */
enum {
	V6 = 8,
	WRONG = 16, /* a length or a checksum */
	SHARED = 32,
	CHAIN = 64, /* in segments */
	EMPTY = 128 /* no frame can be kept: datagrams are copied */
};

static struct {
	struct net_udp *udp;
	struct net_datagram held[HELD_MAX];
	unsigned n_held;
	uint64_t taken;
} socks[SOCKETS];

static struct {
	uint8_t packet[60]; /* the beginning of what was sent last */
	unsigned len;
	bool v6;
} last;

static bool any_bytes; /* a raw packet may have reached a socket */
static unsigned n_calls;

static void on_news(struct net_udp *udp, struct net_udp_watch *watch)
{
	n_calls++;
}

static struct net_udp_watch watch = {on_news};

static struct net_addr addr_of(bool v6, const uint8_t *ip, unsigned port)
{
	struct net_addr addr = {.family = v6 ? 6 : 4,
				.prefix_len = v6 ? 128 : 32,
				.port = (uint16_t)port};

	memcpy(addr.ip, ip, v6 ? 16 : 4);
	return addr;
}

/* ---- sent frames ---- */

static void take_sent(void)
{
	static uint8_t frame[9216];
	unsigned len;

	while ((len = fake_sent(frame, sizeof(frame)))) {
		bool v6 = get16(frame + 12) == 0x86dd;
		const uint8_t *ip = frame + ETH;

		if (get16(frame + 12) == 0x0806)
			continue;
		assert(get16(ip + (v6 ? 4 : 2)) + (v6 ? 40u : 0u) == len - ETH);
		if (ip[v6 ? 6 : 9] != 17)
			continue;
		assert(get16(ip + (v6 ? 44 : 24)) ==
		       len - ETH - (v6 ? 40 : 20));
		last.v6 = v6;
		last.len = len - ETH < sizeof(last.packet)
				   ? len - ETH
				   : (unsigned)sizeof(last.packet);
		memcpy(last.packet, ip, last.len);
	}
}

static void check_sock(unsigned i)
{
	struct net_udp_stats stats;
	int err = net_udp_stats(socks[i].udp, &stats);

	assert(err == 0);
	assert(stats.queued <= QUEUE_MAX);
	assert(stats.views == socks[i].n_held);
	assert(stats.rx >= socks[i].taken + stats.queued);
	assert(!!(net_udp_ready(socks[i].udp, NET_READABLE) & NET_READABLE) ==
	       (stats.queued || net_udp_error(socks[i].udp, false)));
}

static void run_link(void)
{
	net_stack_round(stack);
	net_stack_round(stack);
	take_sent();
	for (unsigned i = 0; i < SOCKETS; i++)
		if (socks[i].udp)
			check_sock(i);
}

/* ---- to the stack ---- */

/* Writes an IP header to the stack; returns where the payload goes. */
static uint8_t *ip_header(uint8_t *frame, bool v6, unsigned proto, unsigned len)
{
	uint8_t *payload = put_ip_header(frame, v6, proto), *ip = frame + ETH;
	uint16_t sum;

	if (v6) {
		ip[0] = 0x60;
		put16(ip + 4, len);
		return payload;
	}
	put16(ip + 2, 20 + len);
	sum = (uint16_t)~glue_sum_fold(glue_sum_add(0, ip, 20));
	memcpy(ip + 10, &sum, 2);
	return payload;
}

static void sum_l4(uint8_t *l4, unsigned len, bool v6, unsigned proto,
		   unsigned at)
{
	const uint8_t *addrs = v6 ? l4 - 32 : l4 - 8;
	uint64_t sum = 0;
	uint16_t value;

	put16(l4 + at, 0);
	if (proto != 1)
		sum = glue_sum_pseudo(addrs, v6 ? 16 : 4, (uint8_t)proto, len);
	value = (uint16_t)~glue_sum_fold(glue_sum_add(sum, l4, len));
	memcpy(l4 + at, &value, 2);
}

static void deliver(const uint8_t *frame, unsigned len, unsigned what)
{
	fake_frames_exhausted = what & EMPTY;
	fake_frames_spare = what & EMPTY ? 0 : -1;
	if (what & CHAIN) {
		fake_segment_bytes = ETH + 48;
		fake_receive(frame, len, 0, 0);
		fake_segment_bytes = 0;
	} else {
		fake_receive_wire(frame, len);
	}
	run_link();
	fake_frames_exhausted = false;
	fake_frames_spare = -1;
}

/* Its bytes count upwards from the first one. */
static void datagram_step(struct input *in, unsigned what)
{
	static uint8_t frame[ETH + 48 + 1500];
	bool v6 = what & V6;
	unsigned arg = byte(in), len = byte(in) * 5 + 2, seed = byte(in);
	uint8_t *udp = ip_header(frame, v6, 17, 8 + len);

	put16(udp, PEER_PORT + (arg & 3));
	put16(udp + 2, PORT + (arg >> 2 & 1));
	put16(udp + 4, 8 + len);
	for (unsigned i = 0; i < len; i++)
		udp[8 + i] = (uint8_t)(seed + i);
	if (what & WRONG && arg & 64)
		put16(udp + 4, byte(in));
	sum_l4(udp, 8 + len, v6, 17, 6);
	if (what & WRONG && !(arg & 64))
		udp[6] ^= 1;
	any_bytes |= what & WRONG;
	deliver(frame, (unsigned)(udp - frame) + 8 + len, what);
}

static void raw_step(struct input *in, unsigned what)
{
	uint8_t frame[ETH + 256] = {0};
	unsigned len = byte(in);
	bool v6 = what & V6;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	put16(frame + 12, v6 ? 0x86dd : 0x0800);
	len = copy_bytes(in, frame + ETH, len);
	if (len >= 20 && !v6 && !(what & WRONG)) {
		uint16_t sum;

		put16(frame + ETH + 10, 0);
		sum = (uint16_t)~glue_sum_fold(
			glue_sum_add(0, frame + ETH, 20));
		memcpy(frame + ETH + 10, &sum, 2);
	}
	any_bytes = true;
	deliver(frame, ETH + len, what);
}

static void error_step(struct input *in, unsigned what)
{
	uint8_t frame[ETH + 40 + 8 + sizeof(last.packet)];
	bool v6 = last.v6;
	unsigned type = byte(in), code = byte(in), mtu = byte(in) * 8;
	uint8_t *icmp;

	if (last.len == 0)
		return;
	icmp = ip_header(frame, v6, v6 ? 58 : 1, 8 + last.len);
	memset(icmp, 0, 8);
	icmp[0] = (uint8_t)type;
	icmp[1] = (uint8_t)code;
	put16(icmp + 6, mtu);
	memcpy(icmp + 8, last.packet, last.len);
	if (what & WRONG)
		icmp[8 + byte(in) % last.len] ^= (uint8_t)byte(in);
	sum_l4(icmp, 8 + last.len, v6, v6 ? 58 : 1, 2);
	deliver(frame, (unsigned)(icmp - frame) + 8 + last.len, what);
}

/* ---- calls ---- */

static void close_step(unsigned i)
{
	if (socks[i].udp)
		net_udp_release(socks[i].udp, socks[i].held, socks[i].n_held);
	net_udp_close(socks[i].udp);
	memset(&socks[i], 0, sizeof(socks[i]));
}

static void open_step(unsigned what, unsigned arg)
{
	struct net_udp_opts opts = {.rx_datagrams = QUEUE_MAX,
				    .shared = what & SHARED};
	bool v6 = what & V6;
	struct net_addr at = addr_of(v6, v6 ? us6 : us4, PORT + (arg >> 2 & 1));
	unsigned i = arg & 3;

	close_step(i);
	if (arg & 16)
		memset(at.ip, 0, sizeof(at.ip));
	if (arg & 32)
		at = (struct net_addr){.port = at.port};
	if (net_udp_open(stack, &at, &opts, &socks[i].udp) == 0)
		net_udp_set_watch(socks[i].udp, &watch);
}

static void connect_step(unsigned what, unsigned arg)
{
	bool v6 = what & V6;
	struct net_addr peer =
		addr_of(v6, v6 ? them6 : them4, PEER_PORT + (arg >> 2 & 3));

	if (socks[arg & 3].udp)
		net_udp_connect(socks[arg & 3].udp, &peer);
}

static void send_step(unsigned what, unsigned arg)
{
	static const uint8_t bytes[1500];
	bool v6 = what & V6;
	struct iovec iov = {(void *)(uintptr_t)bytes, (arg >> 4) * 105u};
	struct net_addr peer =
		addr_of(v6, v6 ? them6 : them4, PEER_PORT + (arg >> 2 & 3));

	if (socks[arg & 3].udp)
		net_udp_sendv_from(socks[arg & 3].udp, NULL, &peer, &iov, 1);
	run_link();
}

static void check_bytes(const struct net_datagram *d)
{
	const uint8_t *bytes = d->data;

	if (any_bytes)
		return;
	assert(d->peer.port - PEER_PORT < 4 && d->local.port - PORT < 2);
	for (size_t i = 1; i < d->len; i++)
		assert(bytes[i] == (uint8_t)(bytes[0] + i));
}

/* By copy or by peeking, or a batch that is held for a while. */
static void take_step(unsigned what, unsigned arg)
{
	unsigned i = arg & 3, room = HELD_MAX - socks[i].n_held;
	struct net_udp *udp = socks[i].udp;
	struct net_datagram d;
	uint8_t few[16];
	int n;

	if (!udp)
		return;
	if (arg & 4) {
		if (net_udp_recv(udp, few, sizeof(few), &d) >= 0)
			socks[i].taken++;
	} else if (arg & 8) {
		if (net_udp_peek(udp, &d) == 0) {
			check_bytes(&d);
			socks[i].taken += net_udp_discard(udp) == 0;
		}
	} else if (room && !(arg & 16)) {
		n = net_udp_recv_batch(udp, &socks[i].held[socks[i].n_held],
				       room);
		socks[i].taken += n > 0 ? (unsigned)n : 0;
		socks[i].n_held += n > 0 ? (unsigned)n : 0;
	} else {
		for (unsigned j = 0; j < socks[i].n_held; j++)
			check_bytes(&socks[i].held[j]);
		net_udp_release(udp, socks[i].held, socks[i].n_held);
		socks[i].n_held = 0;
	}
	run_link();
}

static void run_step(struct input *in)
{
	unsigned what = byte(in);

	switch ((enum step)(what & 7)) {
	case STEP_OPEN:
		open_step(what, byte(in));
		break;
	case STEP_CONNECT:
		connect_step(what, byte(in));
		break;
	case STEP_DATAGRAM:
		datagram_step(in, what);
		break;
	case STEP_RAW:
		raw_step(in, what);
		break;
	case STEP_SEND:
		send_step(what, byte(in));
		break;
	case STEP_TAKE:
		take_step(what, byte(in));
		break;
	case STEP_ERROR:
		error_step(in, what);
		break;
	case STEP_CLOSE:
		close_step(byte(in) & 3);
		break;
	}
}

/* ---- the ends of an input ---- */

static void clean_up(void)
{
	for (unsigned i = 0; i < SOCKETS; i++)
		close_step(i);
	assert(net_udps.n == 0 && net_udps.n_connected == 0);
	forget_neighbours();
	fake_now_ns += INT64_C(60000000000); /* what waited for ARP is gone */
	run_link();
	assert(fake_frames_out == 0);
	forget_hosts();
	memset(&last, 0, sizeof(last));
	any_bytes = false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};

	if (!stack)
		open_fuzzed_stack();
	add_neighbours();
	run_link();
	for (unsigned i = 0; i < MAX_STEPS && in.at < in.end; i++)
		run_step(&in);
	clean_up();
	return 0;
}
