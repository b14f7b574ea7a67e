/*
 * SYN cookies, RFC 4987 3.6: when a listener's half-open connections are as
 * many as it may have, a SYN is answered without keeping anything. The
 * sequence number of the answer holds what must be known later, sealed; the
 * ACK that brings it back makes the connection.
 *
 * The number: 8 bits of options, masked, and 24 bits of SipHash-2-4 over the
 * connection's addresses, the peer's number, the options and the minute.
 *
 * lwIP builds the connection itself: it is shown the SYN that was never kept,
 * made up from the cookie, and what it answers is thrown away.
 */
#include "netstack/tcp/tcp.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

#define EPOCH_NS  INT64_C(64000000000) /* a cookie lives one to two of these */
#define NO_WSCALE 15u
#define SYN_BYTES (TCP_HLEN + 12 + NET_TS_BYTES)

/* What a peer may name; the largest that is not larger is kept. */
static const u16_t mss_steps[8] = {216,	 536,  1220, 1360,
				   1440, 1460, 4312, 8960};

struct syn {
	u32_t isn; /* the peer's */
	u8_t mss_step;
	u8_t wscale; /* NO_WSCALE: not offered */
	bool sack;
	bool has_ts; /* not in the cookie: see net_ts_returned() */
	u32_t ts;    /* the peer's */
};

struct sealed {
	ip_addr_t local, remote;
	u32_t isn, epoch;
	u16_t local_port, remote_port;
	u16_t options; /* MASK: the hash that hides them */
	u16_t zero;
};
#define MASK 0xffffu

/* The shard's: whoever is sent one answers to the same shard. */
static _Thread_local uint8_t key[crypto_shorthash_KEYBYTES];
static _Thread_local int64_t last_sent_ns;
static _Thread_local bool ever_sent;

void net_cookie_init(void)
{
	randombytes_buf(key, sizeof(key));
	ever_sent = false;
}

/* Whether an ACK of nothing known may bear a cookie. */
bool net_cookie_hot(void)
{
	return ever_sent && net_here()->now_ns - last_sent_ns < 2 * EPOCH_NS;
}

static u32_t seal(const struct tcp_hdr *tcp, u32_t isn, u32_t epoch,
		  u16_t options)
{
	uint8_t hash[crypto_shorthash_BYTES];
	struct sealed sealed;
	u32_t value;

	memset(&sealed, 0, sizeof(sealed));
	ip_addr_copy(sealed.local, *ip_current_dest_addr());
	ip_addr_copy(sealed.remote, *ip_current_src_addr());
	sealed.local_port = tcp->dest;
	sealed.remote_port = tcp->src;
	sealed.isn = isn;
	sealed.epoch = epoch;
	sealed.options = options;
	crypto_shorthash(hash, (const void *)&sealed, sizeof(sealed), key);
	memcpy(&value, hash, sizeof(value));
	return value & 0xffffff;
}

static u32_t epoch_now(void)
{
	return (u32_t)(net_here()->now_ns / EPOCH_NS);
}

static u8_t mask(const struct tcp_hdr *tcp, u32_t isn)
{
	return (u8_t)seal(tcp, isn, 0, MASK);
}

static u32_t encode(const struct tcp_hdr *tcp, const struct syn *syn)
{
	u8_t options =
		(u8_t)(syn->mss_step << 5 | syn->sack << 4 | syn->wscale);

	return (u32_t)(options ^ mask(tcp, syn->isn)) << 24 |
	       seal(tcp, syn->isn, epoch_now(), options);
}

static bool decode(const struct tcp_hdr *tcp, struct syn *out)
{
	struct net_ts ts;
	u32_t cookie = lwip_ntohl(tcp->ackno) - 1;
	u32_t isn = lwip_ntohl(tcp->seqno) - 1;
	u8_t options = (u8_t)(cookie >> 24) ^ mask(tcp, isn);
	u32_t epoch = epoch_now();

	cookie &= 0xffffff;
	if (cookie != seal(tcp, isn, epoch, options) &&
	    cookie != seal(tcp, isn, epoch - 1, options))
		return false;
	*out = (struct syn){.isn = isn,
			    .mss_step = options >> 5,
			    .wscale = options & 15,
			    .sack = options >> 4 & 1};
	out->has_ts = net_ts_returned(tcp, 2 * EPOCH_NS, &ts);
	if (out->has_ts)
		out->ts = ts.value;
	return true;
}

/* ---- sending ---- */

static void read_syn(const struct tcp_hdr *tcp, struct syn *out)
{
	const uint8_t *mss = net_tcp_option(tcp, NET_OPT_MSS);
	const uint8_t *wscale = net_tcp_option(tcp, NET_OPT_WSCALE);
	unsigned named = ip_current_is_v6() ? 1220 : 536;
	struct net_ts ts = {0};
	u8_t step = 7;

	if (mss)
		named = (unsigned)mss[2] << 8 | mss[3];
	while (step && mss_steps[step] > named)
		step--;
	out->isn = lwip_ntohl(tcp->seqno);
	out->mss_step = step;
	out->wscale = NO_WSCALE;
	if (wscale)
		out->wscale = wscale[2] > 14 ? 14 : wscale[2];
	out->sack = net_tcp_option(tcp, NET_OPT_SACK_OK) != NULL;
	out->has_ts = net_ts_offered(tcp, &ts);
	out->ts = ts.value;
}

/* MSS, window scale, SACK permitted, padded to words; returns the bytes. */
static u8_t write_options(uint8_t *opt, unsigned mss, int wscale, bool sack)
{
	const uint8_t *begin = opt;

	*opt++ = NET_OPT_MSS;
	*opt++ = 4;
	*opt++ = (uint8_t)(mss >> 8);
	*opt++ = (uint8_t)mss;
	if (wscale >= 0) {
		*opt++ = NET_OPT_NOP;
		*opt++ = NET_OPT_WSCALE;
		*opt++ = 3;
		*opt++ = (uint8_t)wscale;
	}
	if (sack) {
		*opt++ = NET_OPT_NOP;
		*opt++ = NET_OPT_NOP;
		*opt++ = NET_OPT_SACK_OK;
		*opt++ = 2;
	}
	return (u8_t)(opt - begin);
}

/* Our timestamp of a connection that is not there; returns the bytes. */
static u8_t write_timestamp(uint8_t *opt, const struct net_reply *reply,
			    const struct syn *syn)
{
	if (!syn->has_ts)
		return 0;
	net_ts_write(opt,
		     net_ts_now() + net_ts_offset(reply->from, reply->from_port,
						  reply->to, reply->to_port),
		     syn->ts);
	return NET_TS_BYTES;
}

void net_cookie_send(const struct pbuf *p)
{
	const struct tcp_hdr *tcp = p->payload;
	struct net_reply reply = {
		.from = ip_current_dest_addr(),
		.to = ip_current_src_addr(),
		.from_port = lwip_ntohs(tcp->dest),
		.to_port = lwip_ntohs(tcp->src),
		.ack = lwip_ntohl(tcp->seqno) + 1,
		.flags = TCP_SYN | TCP_ACK,
		.wnd = TCPWND_MIN16(TCP_WND),
	};
	struct syn syn;

	read_syn(tcp, &syn);
	reply.seq = encode(tcp, &syn);
	reply.options_len = write_options(
		reply.options, tcp_eff_send_mss(TCP_MSS, reply.from, reply.to),
		syn.wscale == NO_WSCALE ? -1 : net_rcv_scale(), syn.sack);
	reply.options_len += write_timestamp(reply.options + reply.options_len,
					     &reply, &syn);
	net_reply_send(&reply);
	net_here()->stats.cookies_sent++;
	last_sent_ns = net_here()->now_ns;
	ever_sent = true;
}

/* ---- taking ---- */

static struct pbuf *make_syn(const struct tcp_hdr *ack, const struct syn *syn)
{
	uint8_t options[SYN_BYTES - TCP_HLEN];
	u8_t len = write_options(options, mss_steps[syn->mss_step],
				 syn->wscale == NO_WSCALE ? -1 : syn->wscale,
				 syn->sack);
	struct tcp_hdr *tcp;
	struct pbuf *p;

	if (syn->has_ts) {
		net_ts_write(options + len, syn->ts, 0);
		len += NET_TS_BYTES;
	}
	p = pbuf_alloc(PBUF_RAW, (u16_t)(TCP_HLEN + len), PBUF_RAM);
	if (!p)
		return NULL;
	tcp = p->payload;
	memset(tcp, 0, TCP_HLEN);
	tcp->src = ack->src;
	tcp->dest = ack->dest;
	tcp->seqno = lwip_htonl(syn->isn);
	TCPH_HDRLEN_FLAGS_SET(tcp, (TCP_HLEN + len) / 4, TCP_SYN);
	tcp->wnd = ack->wnd;
	memcpy(tcp + 1, options, len);
	return p;
}

static err_t swallow4(struct netif *netif, struct pbuf *p,
		      const ip4_addr_t *dest)
{
	return ERR_OK;
}

static err_t swallow6(struct netif *netif, struct pbuf *p,
		      const ip6_addr_t *dest)
{
	return ERR_OK;
}

/* The answer to a SYN that was answered long ago does not leave. */
static void input_silently(struct pbuf *p, struct netif *inp)
{
	struct netif *netif =
		ip_route(ip_current_dest_addr(), ip_current_src_addr());
	netif_output_fn output4;
	netif_output_ip6_fn output6;

	if (!netif) {
		pbuf_free(p);
		return;
	}
	output4 = netif->output;
	output6 = netif->output_ip6;
	netif->output = swallow4;
	netif->output_ip6 = swallow6;
	tcp_input(p, inp);
	netif->output = output4;
	netif->output_ip6 = output6;
}

/*
 * What lwIP made is on its list, half open: ours from here. Its round trip
 * is not measured, the SYN having come and gone in no time.
 */
static struct net_conn *collect(void)
{
	struct tcp_pcb *pcb = tcp_active_pcbs;

	if (!pcb)
		return NULL;
	pcb->rttest = 0;
	if (pcb->unacked)
		net_seg_of(pcb->unacked)->state |= NET_SEG_RESENT;
	net_pcbs_take_back();
	return net_conn_of(pcb);
}

/* Whether its listener has as many clients as it may. */
static bool is_refused(const struct tcp_hdr *tcp)
{
	const struct net_listener *listener = net_listener_find(
		ip_current_dest_addr(), lwip_ntohs(tcp->dest));

	return net_clients_admit(listener, ip_current_src_addr(),
				 NET_ASKS_WITH_COOKIE) == NET_ADMIT_NOT;
}

enum net_cookie net_cookie_take(struct pbuf *p, struct netif *inp,
				struct net_conn **out)
{
	const struct tcp_hdr *tcp = p->payload;
	struct syn syn;
	struct pbuf *made;
	struct net_conn *conn;

	if (!decode(tcp, &syn)) {
		net_here()->stats.cookies_refused++;
		return NET_COOKIE_NONE;
	}
	if (is_refused(tcp)) {
		net_here()->stats.clients_refused++;
		return NET_COOKIE_NO_ROOM; /* it may send its data later */
	}
	made = make_syn(tcp, &syn);
	if (!made) {
		net_clients_unadmit();
		return NET_COOKIE_NO_ROOM;
	}
	net_here()->isn_fixed = true;
	net_here()->isn = lwip_ntohl(tcp->ackno) - 1;
	input_silently(made, inp);
	net_here()->isn_fixed = false;
	conn = collect();
	net_clients_unadmit(); /* lwIP had no memory */
	if (!conn)
		return NET_COOKIE_NO_ROOM;
	net_here()->stats.cookies_accepted++;
	*out = conn;
	return NET_COOKIE_TAKEN;
}
