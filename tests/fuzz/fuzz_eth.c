/*
 * Frames of every protocol, in memory of exactly their length, through the
 * check at the border and the whole stack: ARP, neighbour discovery, ICMP,
 * extension headers, TCP options. An input is a list of steps; each begins with
 * a byte that says what it is and one that is its length or its argument.
 *
 * Checks: the sanitizers, lwIP's assertions, the form of all sent frames,
 * bounded tables, a plausible MSS, and that at the end no memory is held.
 */
#include "dpdk_glue/check.h"
#include "dpdk_glue/glue_csum.h"
#include "tests/fuzz/fuzz_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum step {
	STEP_ARP,
	STEP_IP4,
	STEP_IP6,
	STEP_RAW, /* with an ethertype of its own */
	STEP_WAIT,
	STEP_CONNECT,
	STEP_TOO_BIG, /* that quotes a segment in flight */
	STEP_ACK,
};
/* Flags in the first byte, above the step. */
enum {
	FIX = 8,    /* lengths and checksums become right */
	GROUP = 16, /* the destination MAC is a group's */
	V6 = 32,
	CHAIN = 64, /* in segments */
};

static struct net_listener *listener;
static struct {
	uint32_t rcv;
	bool known;
} peers[2][4];

static void send_blocks(struct net_conn *conn, void *arg)
{
	static const uint8_t block[6000];

	net_set_write_deadline(conn, net_now_ns(stack) + 20000000000);
	while (net_send(conn, block, sizeof(block)) > 0)
		;
}

static void open_stack(void)
{
	int err;

	open_fuzzed_stack();
	err = net_listen(stack, &net_addr_any(7), 4, &listener);
	assert(err == 0);
	net_listener_serve(listener, send_blocks, NULL);
}

/* ---- sent frames ---- */

static void check_tcp(const uint8_t *ip, bool v6)
{
	const uint8_t *tcp = ip + (v6 ? 40 : 20);
	unsigned len = v6 ? 40 + get16(ip + 4) : get16(ip + 2);
	unsigned header = (tcp[12] >> 4) * 4u, port = get16(tcp + 2) - 1000u;

	assert(len <= 1500 && header >= 20 && (v6 ? 40 : 20) + header <= len);
	if (port < 4 &&
	    memcmp(ip + (v6 ? 24 : 16), v6 ? them6 : them4, v6 ? 16 : 4) == 0) {
		peers[v6][port].rcv =
			(uint32_t)get16(tcp + 4) << 16 | get16(tcp + 6);
		peers[v6][port].rcv +=
			len - (v6 ? 40 : 20) - header + ((tcp[13] & 3) != 0);
		peers[v6][port].known = true;
	}
}

static void take_sent(void)
{
	static uint8_t frame[9216];
	unsigned len;

	while ((len = fake_sent(frame, sizeof(frame)))) {
		unsigned type = get16(frame + 12);

		assert(len >= ETH + 20);
		if (type == 0x0800)
			assert(get16(frame + ETH + 2) == len - ETH);
		if (type == 0x86dd)
			assert(get16(frame + ETH + 4) + 40 == len - ETH);
		if (type == 0x0800 && frame[ETH + 9] == 6)
			check_tcp(frame + ETH, false);
		if (type == 0x86dd && frame[ETH + 6] == 6)
			check_tcp(frame + ETH, true);
	}
}

static void check_mss(struct net_conn *conn)
{
	assert(conn->pcb.mss >= NET_MSS_FLOOR && conn->pcb.mss <= 1460);
	for (struct tcp_seg *seg = conn->pcb.unsent; seg; seg = seg->next)
		assert(seg->len <= conn->pcb.mss);
}

static void run_link(void)
{
	net_stack_round(stack);
	net_stack_round(stack);
	take_sent();
	net_for_each_conn(check_mss);
}

/* ---- frames ---- */

/* Sets the lengths and checksums that glue_check() expects. */
static void fix_checksums(uint8_t *frame, unsigned len)
{
	uint8_t *ip = frame + ETH;
	bool v6 = frame[12] == 0x86;
	struct glue_frame f = {.data = frame, .seg_len = (uint16_t)len};
	struct glue_l4 l4;
	unsigned at;
	uint64_t sum = 0;
	uint16_t value;

	if (frame[12] == 8 && frame[13] == 6)
		return;
	if (v6 && len >= ETH + 40) {
		ip[0] = 0x60;
		put16(ip + 4, len - ETH - 40);
	} else if (!v6 && len >= ETH + 20) {
		put16(ip + 2, len - ETH);
	}
	if (glue_check(&f, len, &l4) != GLUE_KEEP || !l4.addrs)
		return;
	if (!v6) {
		put16(ip + 10, 0);
		value = (uint16_t)~glue_sum_fold(
			glue_sum_add(0, ip, (size_t)(f.l4_off - f.l3_off)));
		memcpy(ip + 10, &value, 2);
	}
	at = f.l4_off + (l4.proto == GLUE_PROTO_TCP   ? 16u
			 : l4.proto == GLUE_PROTO_UDP ? 6u
						      : 2u);
	put16(frame + at, 0);
	if (l4.proto != GLUE_PROTO_ICMP)
		sum = glue_sum_pseudo(l4.addrs, l4.addr_len, l4.proto, l4.len);
	value = (uint16_t)~glue_sum_fold(
		glue_sum_add(sum, frame + f.l4_off, l4.len));
	memcpy(frame + at, &value, 2);
}

static void deliver(uint8_t *frame, unsigned len, unsigned what)
{
	if (what & FIX)
		fix_checksums(frame, len);
	if (!(what & CHAIN)) {
		fake_receive_wire(frame, len);
	} else { /* its headers stay in the first segment, or it is dropped */
		fake_segment_bytes = ETH + 20 + (what >> 7) * 40;
		fake_receive(frame, len, 0, 0);
		fake_segment_bytes = 0;
	}
	run_link();
}

static void frame_step(struct input *in, unsigned what)
{
	static const uint16_t types[] = {0x0806, 0x0800, 0x86dd};
	uint8_t frame[ETH + 256];
	unsigned len = byte(in);

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	if (what & GROUP)
		memcpy(frame, "\63\63\377\0\0\1", 6);
	if ((what & 7) == STEP_RAW) {
		unsigned type = byte(in) << 8;

		put16(frame + 12, type | byte(in));
	} else {
		put16(frame + 12, types[what & 7]);
	}
	len = copy_bytes(in, frame + ETH, len);
	deliver(frame, ETH + len, what);
}

static void say_tcp(bool v6, unsigned port, uint8_t flags, uint32_t seq,
		    uint32_t ack, unsigned options)
{
	uint8_t frame[ETH + 40 + 28] = {0};
	uint8_t *tcp = put_ip_header(frame, v6, 6);

	put16(tcp, 1000 + port);
	put16(tcp + 2, 7);
	put32(tcp + 4, seq);
	put32(tcp + 8, ack);
	tcp[12] = (uint8_t)((20 + options) / 4 << 4);
	tcp[13] = flags;
	put16(tcp + 14, 65535);
	memcpy(tcp + 20, "\2\4\5\200\4\2\1\1", options);
	deliver(frame, (unsigned)(tcp - frame) + 20 + options, FIX);
}

static void connect_step(struct input *in, unsigned what)
{
	bool v6 = what & V6;
	unsigned port = byte(in) & 3;

	say_tcp(v6, port, TCP_SYN, 99, 0, what & GROUP ? 0 : 8);
	if (peers[v6][port].known)
		say_tcp(v6, port, TCP_ACK, 100, peers[v6][port].rcv, 0);
}

static void ack_step(struct input *in, unsigned what)
{
	bool v6 = what & V6;
	unsigned arg = byte(in), port = arg & 3;

	say_tcp(v6, port, TCP_ACK, 100, peers[v6][port].rcv - (arg >> 2) * 700,
		0);
}

static struct net_conn *conn_of(bool v6, unsigned port)
{
	ip_addr_t local, remote;

	memset(&local, 0, sizeof(local));
	memset(&remote, 0, sizeof(remote));
	if (v6) {
		memcpy(ip_2_ip6(&local)->addr, us6, 16);
		memcpy(ip_2_ip6(&remote)->addr, them6, 16);
		IP_SET_TYPE(&local, IPADDR_TYPE_V6);
		IP_SET_TYPE(&remote, IPADDR_TYPE_V6);
	} else {
		memcpy(&ip_2_ip4(&local)->addr, us4, 4);
		memcpy(&ip_2_ip4(&remote)->addr, them4, 4);
	}
	return net_demux_find(&local, 7, &remote, (uint16_t)(1000 + port));
}

/*
 * Sends an ICMP "too big" for a living connection; the input may change any
 * byte of it.
 */
static void too_big_step(struct input *in, unsigned what)
{
	uint8_t frame[ETH + 40 + 8 + 60] = {0};
	bool v6 = what & V6;
	unsigned arg = byte(in), mtu = byte(in) << 8 | byte(in);
	struct net_conn *conn = conn_of(v6, arg & 3);
	uint8_t *icmp = put_ip_header(frame, v6, v6 ? 58 : 1), *ip = icmp + 8;
	uint8_t *tcp = ip + (v6 ? 40 : 20);

	icmp[0] = v6 ? 2 : 3;
	icmp[1] = v6 ? 0 : 4;
	put16(icmp + 6, mtu);
	ip[0] = v6 ? 0x60 : 0x45;
	put16(ip + (v6 ? 4 : 2), v6 ? 1460 : 1500);
	ip[v6 ? 6 : 9] = 6;
	memcpy(ip + (v6 ? 8 : 12), v6 ? us6 : us4, v6 ? 16 : 4);
	memcpy(ip + (v6 ? 24 : 16), v6 ? them6 : them4, v6 ? 16 : 4);
	put16(tcp, 7);
	put16(tcp + 2, 1000 + (arg & 3));
	if (conn)
		put32(tcp + 4, conn->pcb.lastack + (arg >> 2) * 500);
	deliver(frame, (unsigned)(tcp - frame) + 20, FIX | (what & CHAIN));
}

static void run_step(struct input *in)
{
	unsigned what = byte(in), arg;

	switch ((enum step)(what & 7)) {
	case STEP_ARP:
	case STEP_IP4:
	case STEP_IP6:
	case STEP_RAW:
		frame_step(in, what);
		break;
	case STEP_WAIT:
		arg = byte(in);
		for (unsigned i = 0; i <= (what >> 3); i++) {
			fake_now_ns += (int64_t)arg * 4000000;
			run_link();
		}
		break;
	case STEP_CONNECT:
		connect_step(in, what);
		break;
	case STEP_TOO_BIG:
		too_big_step(in, what);
		break;
	case STEP_ACK:
		ack_step(in, what);
		break;
	}
}

/* ---- the end of an input ---- */

static void abort_pcb(struct net_conn *conn)
{
	tcp_abort(&conn->pcb);
}

static void check_tables(void)
{
	unsigned stable = 0;

	for (unsigned i = 0; i < ARP_TABLE_SIZE; i++) {
		struct eth_addr *mac;
		struct netif *netif;
		ip4_addr_t *ip;

		if (!etharp_get_entry(i, &ip, &netif, &mac))
			continue;
		stable++;
		assert(!(mac->addr[0] & 1));
		assert(memcmp(ip, us4, 4) != 0);
	}
	assert(stable <= ARP_TABLE_SIZE / 2);
	for (unsigned i = 0; i < LWIP_ND6_NUM_NEIGHBORS; i++)
		assert(neighbor_cache[i].state == ND6_NO_ENTRY ||
		       memcmp(neighbor_cache[i].next_hop_address.addr, us6,
			      16) != 0);
}

static void clean_up(void)
{
	for (unsigned i = 0; i < 50; i++) {
		net_for_each_conn(abort_pcb);
		net_half_open_reset_all();
		fake_now_ns += 500000000;
		run_link();
		if (net_here()->n_conns == 0)
			break;
	}
	assert(net_here()->n_conns == 0);
	assert(net_here()->half_open == 0);
	check_tables();
	forget_neighbours();
	run_link();
	assert(fake_frames_out == 0);
	forget_hosts();
	memset(peers, 0, sizeof(peers));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};

	if (!stack)
		open_stack();
	add_neighbours();
	run_link();
	for (unsigned i = 0; i < MAX_STEPS && in.at < in.end; i++)
		run_step(&in);
	clean_up();
	return 0;
}
