/* Runs fuzzed steps against a connection: segments, times and calls. */
#include "tests/fuzz/tcp_steps.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "netstack/shard/shard.h"
#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"

#include "lwip/prot/ip4.h"
#include "lwip/prot/tcp.h"

#define ETH	  14u
#define MAX_STEPS 200u
#define PORTS	  8u /* of the peer: few, so that they meet again */

struct input {
	const uint8_t *at, *end;
};

static struct net_stack *stack;
static struct net_listener *listeners[4];
static unsigned handlers, epochs;
static uint32_t last_seq[PORTS];   /* of the stack's last segment to the port */
static uint32_t last_stamp[PORTS]; /* its timestamp */
static const struct steps_watch *watch;

static unsigned next_byte(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static unsigned next_word(struct input *in)
{
	unsigned high = next_byte(in);

	return high << 8 | next_byte(in);
}

/* ---- handlers ---- */

static void echo_handler(struct net_conn *conn, void *arg)
{
	struct net_view view;

	handlers++;
	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
	handlers--;
}

static void hang_up(struct net_conn *conn, void *arg)
{
	net_shutdown(conn, NET_SHUT_WR);
}

static void send_blocks(struct net_conn *conn, void *arg)
{
	static const uint8_t block[3000];

	handlers++;
	net_set_write_deadline(conn, net_now_ns(stack) + 60000000000);
	while (net_send(conn, block, sizeof(block)) > 0)
		;
	handlers--;
}

static void *dial_peer(void *arg)
{
	const struct net_dial_opts opts = {.timeout_ms = 500};
	struct net_addr addr;
	struct net_conn *conn;

	handlers++;
	net_addr_parse("10.0.0.2:1000", -1, &addr);
	if (net_dial(stack, &addr, &opts, &conn) == 0) {
		echo_handler(conn, NULL);
		net_close(conn);
	}
	handlers--;
	return NULL;
}

/* Port 9 has no handler: its connections wait to be accepted. */
static void *accept_waiting(void *arg)
{
	struct net_conn *conn;

	while (listeners[2]->head)
		if (net_accept(listeners[2], &conn) == 0)
			net_abort(conn);
	return NULL;
}

void steps_open(const struct steps_watch *who, bool predict_off)
{
	static const net_handler handlers_of[4] = {echo_handler, hang_up, NULL,
						   send_blocks};
	struct net_opts opts;
	int err;

	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:fuzz";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 12;
	opts.poll = NET_POLL_BUSY;
	opts.predict_off = predict_off;
	watch = who;
	memset(last_seq, 0, sizeof(last_seq));
	memset(last_stamp, 0, sizeof(last_stamp));
	err = net_stack_open(&opts, &stack);
	assert(err == 0);
	for (uint16_t i = 0; i < 4; i++) {
		err = net_listen(stack, &net_addr_any((uint16_t)(7 + i)), 2,
				 &listeners[i]);
		assert(err == 0);
		if (handlers_of[i])
			net_listener_serve(listeners[i], handlers_of[i], NULL);
	}
}

/* ---- segments to the stack ---- */

static void answer_arp(const uint8_t *request)
{
	uint8_t frame[42];

	memcpy(frame, request, sizeof(frame));
	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	frame[21] = 2; /* a reply */
	memcpy(frame + 22, fake_peer_mac, 6);
	memcpy(frame + 28, request + 38, 4);
	memcpy(frame + 32, fake_mac, 6);
	memcpy(frame + 38, request + 28, 4);
	fake_receive(frame, sizeof(frame), 0, 0);
}

static void check_sent(const uint8_t *frame, unsigned len)
{
	const struct ip_hdr *ip = (const void *)(frame + ETH);
	const struct tcp_hdr *tcp = (const void *)(frame + ETH + 20);
	uint8_t flags = TCPH_FLAGS(tcp);
	unsigned port = lwip_ntohs(tcp->dest) - 1000u;
	struct net_ts ts;

	assert(len >= ETH + 40 && len <= ETH + 1500);
	assert(lwip_ntohs(IPH_LEN(ip)) == len - ETH);
	assert(TCPH_HDRLEN_BYTES(tcp) <= len - ETH - 20);
	assert(flags & (TCP_ACK | TCP_SYN | TCP_RST));
	if (flags & TCP_RST)
		assert(tcp->wnd == 0 && ((flags & TCP_ACK) || tcp->ackno == 0));
	if (port >= PORTS)
		return;
	last_seq[port] = lwip_ntohl(tcp->seqno);
	if (net_ts_read(tcp, &ts))
		last_stamp[port] = ts.value;
}

static void run_link(void)
{
	static uint8_t frame[9216];
	unsigned len;

	net_stack_round(stack);
	while ((len = fake_sent(frame, sizeof(frame)))) {
		if (watch)
			watch->frame(frame, len);
		if (frame[12] == 8 && frame[13] == 6 && frame[21] == 1 &&
		    frame[41] == 2)
			answer_arp(frame);
		else if (frame[12] == 8 && frame[13] == 0 && frame[23] == 6)
			check_sent(frame, len);
	}
	assert(net_here()->n_conns <= 12);
	assert(net_here()->half_open <= 6);
	if (watch)
		watch->round();
}

static void wait_ms(unsigned ms)
{
	for (; ms > 10; ms -= 10) {
		fake_now_ns += 10000000;
		run_link();
	}
	fake_now_ns += ms * INT64_C(1000000);
	run_link();
}

/* ---- segments from the stack ---- */

static struct tcp_pcb *pcb_of(unsigned local_port, unsigned port)
{
	struct net_conn *conn;
	ip_addr_t local, remote;

	IP_ADDR4(&local, 10, 0, 0, 1);
	IP_ADDR4(&remote, 10, 0, 0, 2);
	conn = net_demux_find(&local, (uint16_t)local_port, &remote,
			      (uint16_t)port);
	return conn ? &conn->pcb : NULL;
}

static uint32_t choose_seq(const struct tcp_pcb *pcb, unsigned how)
{
	switch (pcb ? how & 3 : 3) {
	case 0:
	case 1:
		return pcb->rcv_nxt;
	case 2:
		return pcb->rcv_nxt + pcb->rcv_wnd;
	default:
		return how & 4 ? 0xfffffff0u : 0;
	}
}

static uint32_t choose_ack(const struct tcp_pcb *pcb, unsigned port,
			   unsigned how)
{
	switch (pcb ? how & 3 : 3) {
	case 0:
	case 1:
		return pcb->snd_nxt;
	case 2:
		return pcb->lastack;
	default:
		return last_seq[port] + 1; /* a cookie's, if it was one */
	}
}

static struct net_conn *dialed;

static void remember_dialed(struct net_conn *conn)
{
	if (conn->pcb.remote_port == 1000 && conn->pcb.local_port > 1024)
		dialed = conn;
}

static unsigned choose_local(unsigned how)
{
	dialed = NULL;
	if (how & 0x80)
		net_for_each_conn(remember_dialed);
	return dialed ? dialed->pcb.local_port : 7 + how % 5; /* 11: closed */
}

/* The peer's next segment, changed by the fields below. */
struct forged {
	unsigned local, port; /* port: of the peer's, less 1000 */
	uint32_t seq_delta, ack_delta;
	unsigned how, len, options_len;
	uint8_t flags, wnd;
	bool segmented, from_self;
	bool offers, stale, bare; /* timestamps: the peer's SYN and after */
	uint8_t options[40];
};

/*
 * Writes the timestamp option that the connection, or its SYN, requires;
 * returns its length.
 */
static unsigned put_stamp(const struct forged *f, const struct tcp_pcb *pcb,
			  uint8_t *options)
{
	bool agreed = pcb && (pcb->flags & NET_TF_TS);
	uint32_t now = (uint32_t)(fake_now_ns / 1000000) - 2000; /* it wraps */

	if (f->bare || f->options_len > 28 || (!f->offers && !agreed))
		return 0;
	net_ts_write(options, f->stale ? now - 5000 : now, last_stamp[f->port]);
	return NET_TS_BYTES;
}

static void send_forged(const struct forged *f)
{
	uint8_t frame[ETH + 60 + 20 + 40 + 1400] = {0};
	struct ip_hdr *ip = (void *)(frame + ETH);
	struct tcp_hdr *tcp = (void *)(frame + ETH + 20);
	struct tcp_pcb *pcb = pcb_of(f->local, 1000 + f->port);
	unsigned stamp = put_stamp(f, pcb, (void *)(tcp + 1));
	unsigned options = stamp + f->options_len;
	unsigned len = 40 + options + f->len;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	frame[12] = 8;
	IPH_VHL_SET(ip, 4, 5);
	IPH_LEN_SET(ip, lwip_htons((uint16_t)len));
	IPH_TTL_SET(ip, 64);
	IPH_PROTO_SET(ip, 6);
	IP4_ADDR(&ip->src, 10, 0, 0, f->from_self ? 1 : 2);
	IP4_ADDR(&ip->dest, 10, 0, 0, 1);
	tcp->src = lwip_htons((uint16_t)(1000 + f->port));
	tcp->dest = lwip_htons((uint16_t)f->local);
	tcp->seqno = lwip_htonl(choose_seq(pcb, f->how) + f->seq_delta);
	tcp->ackno = lwip_htonl(choose_ack(pcb, f->port, f->how >> 3) +
				f->ack_delta);
	TCPH_HDRLEN_FLAGS_SET(tcp, 5 + options / 4, f->flags);
	tcp->wnd = lwip_htons((uint16_t)(f->wnd * 257));
	memcpy((uint8_t *)(tcp + 1) + stamp, f->options, f->options_len);
	fake_segment_bytes = f->segmented ? ETH + 40 + options + 7 : 0;
	fake_receive(frame, ETH + len,
		     GLUE_FRAME_IP4 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK,
		     ETH + 20);
	fake_segment_bytes = 0;
}

static void read_ports(struct input *in, struct forged *f)
{
	unsigned where = next_byte(in);

	f->local = choose_local(where);
	f->port = dialed ? 0 : where >> 4 & 7;
}

static void receive(struct input *in)
{
	static const uint8_t usual[] = {
		TCP_ACK,	   TCP_ACK | TCP_PSH, TCP_SYN,
		TCP_ACK | TCP_FIN, TCP_RST,	      TCP_ACK | TCP_RST,
		TCP_SYN | TCP_ACK, TCP_ACK | TCP_PSH,
	};
	unsigned what = next_byte(in);
	struct forged f = {.flags = usual[what & 7], .wnd = 255};

	read_ports(in, &f);
	f.segmented = what & 0x80;
	if (what & 0x08)
		f.len = next_byte(in) * 5u;
	if (what & 0x10)
		f.options_len = next_byte(in) % 11 * 4;
	for (unsigned i = 0; i < f.options_len; i++)
		f.options[i] = (uint8_t)next_byte(in);
	if (what & 0x20)
		f.wnd = (uint8_t)next_byte(in);
	if (what & 0x40) {
		f.how = next_byte(in);
		f.seq_delta = (uint32_t)(int16_t)next_word(in);
		f.ack_delta = (uint32_t)(int8_t)next_byte(in);
		f.flags ^= next_byte(in) & 0x3f;
		f.from_self = f.how & 0x80;
		f.stale = f.how & 0x20;
		f.bare = f.how & 0x40;
	}
	send_forged(&f);
}

static void handshake(struct input *in, bool offers)
{
	struct forged f = {
		.flags = TCP_SYN, .how = 7, .wnd = 255, .offers = offers};

	read_ports(in, &f);
	send_forged(&f);
	run_link();
	f.flags = TCP_ACK;
	f.seq_delta = 1; /* of what may not be kept */
	if (pcb_of(f.local, 1000 + f.port))
		f.how = f.seq_delta = 0;
	send_forged(&f);
	run_link();
}

static void flood_segments(struct input *in)
{
	struct forged f = {.flags = TCP_SYN, .how = 7, .wnd = 255};

	read_ports(in, &f);
	for (f.port = 0; f.port < PORTS; f.port++)
		send_forged(&f);
	run_link();
}

/*
 * Waits a cookie's epoch in large steps. The number of waits in one input is
 * bounded, or timers would be delayed for longer than any connection lasts.
 */
static void wait_epoch(void)
{
	if (++epochs > 3)
		return;
	for (unsigned s = 0; s < 70; s++) {
		fake_now_ns += 1000000000;
		run_link();
	}
}

static void run_step(struct input *in)
{
	unsigned what = next_byte(in);

	switch (what & 15) {
	case 0:
		wait_ms(what & 0x80 ? 1000 : what >> 4);
		break;
	case 1:
		wait_ms(50);
		break;
	case 2:
		wait_epoch();
		break;
	case 3:
		if (handlers < 20)
			net_spawn(stack, "dial", dial_peer, NULL);
		run_link();
		break;
	case 4:
		net_spawn(stack, "accept", accept_waiting, NULL);
		run_link();
		break;
	case 5:
		fake_tx_budget = (int)(what >> 4);
		break;
	case 6:
		handshake(in, what & 0x10);
		break;
	case 7:
		flood_segments(in);
		break;
	default:
		receive(in);
		if (!(what & 0x80))
			run_link();
	}
}

/* ---- the end of an input ---- */

static void abort_pcb(struct net_conn *conn)
{
	tcp_abort(&conn->pcb);
}

static void clean_up(void)
{
	fake_tx_budget = -1;
	for (unsigned i = 0; i < 100; i++) {
		net_for_each_conn(abort_pcb);
		net_half_open_reset_all();
		if (listeners[2]->head)
			net_spawn(stack, "accept", accept_waiting, NULL);
		wait_ms(20);
		if (handlers == 0 && net_here()->n_conns == 0 &&
		    !net_time_waits.oldest && !listeners[2]->head &&
		    fake_frames_out == 0)
			break;
	}
	for (unsigned i = 0; i < 4; i++)
		assert(listeners[i]->pending == 0 && listeners[i]->queued == 0);
	assert(handlers == 0);
	assert(net_here()->n_conns == 0);
	assert(net_here()->half_open == 0);
	assert(net_here()->ooseq_held == 0);
	assert(net_here()->ports[0].frames_in == 0);
	assert(net_time_waits.n == 0);
	assert(!net_time_waits.oldest && !net_time_waits.newest);
	assert(fake_frames_out == 0);
}

void steps_run(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};

	epochs = 0;
	for (unsigned i = 0; i < MAX_STEPS && in.at < in.end; i++)
		run_step(&in);
	run_link();
	clean_up();
}

void steps_close(void)
{
	net_stack_close(stack);
	fake_reset();
}
