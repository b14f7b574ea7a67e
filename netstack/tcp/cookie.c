/*
 * SYN cookies, RFC 4987 3.6: when a listener has as many half-open connections
 * as it may have, a SYN is answered without keeping any state. The sequence
 * number of the SYN-ACK encodes the state, authenticated by a hash; the ACK
 * that returns it makes the connection.
 *
 * The number: 8 bits of options, masked, and 24 bits of SipHash-2-4 over the
 * connection's addresses, the peer's number, the options and the minute.
 */
#include "netstack/program/events.h"
#include "netstack/tcp/tcp.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

#define EPOCH_NS INT64_C(64000000000) /* a cookie lives one to two of these */

/* A cookie keeps the largest of these that does not exceed the peer's MSS. */
static const uint16_t mss_steps[8] = {216,  536,  1220, 1360,
				      1440, 1460, 4312, 8960};

struct sealed {
	ip_addr_t local, remote;
	uint32_t isn, epoch;
	uint16_t local_port, remote_port;
	uint16_t options; /* MASK: the hash that hides them */
	uint16_t zero;
};
#define MASK 0xffffu

/* State of the shard: a peer with a cookie answers to the same shard. */
static NET_SHARD_VAR uint8_t key[crypto_shorthash_KEYBYTES];
static NET_SHARD_VAR int64_t last_sent_ns;
static NET_SHARD_VAR bool ever_sent;
#define key	     NET_SHARD(key)
#define last_sent_ns NET_SHARD(last_sent_ns)
#define ever_sent    NET_SHARD(ever_sent)

void net_cookie_init(void)
{
	randombytes_buf(key, sizeof(key));
	ever_sent = false;
}

/* May an ACK of no connection that is known have a cookie? */
bool net_cookie_hot(void)
{
	return ever_sent && net_here()->now_ns - last_sent_ns < 2 * EPOCH_NS;
}

static uint32_t compute_seal(const struct tcp_hdr *tcp, uint32_t isn,
			     uint32_t epoch, uint16_t options)
{
	uint8_t hash[crypto_shorthash_BYTES];
	struct sealed sealed;
	uint32_t value;

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

static uint32_t epoch_now(void)
{
	return (uint32_t)(net_here()->now_ns / EPOCH_NS);
}

static uint8_t compute_mask(const struct tcp_hdr *tcp, uint32_t isn)
{
	return (uint8_t)compute_seal(tcp, isn, 0, MASK);
}

static uint8_t pack_options(const struct net_syn_options *options)
{
	unsigned step = 7;

	while (step && mss_steps[step] > options->mss)
		step--;
	return (uint8_t)(step << 5 | options->sack << 4 | options->wscale);
}

static uint32_t encode_cookie(const struct tcp_hdr *tcp,
			      const struct net_syn_options *options)
{
	uint32_t isn = lwip_ntohl(tcp->seqno);
	uint8_t packed = pack_options(options);

	return (uint32_t)(packed ^ compute_mask(tcp, isn)) << 24 |
	       compute_seal(tcp, isn, epoch_now(), packed);
}

static bool decode_cookie(const struct tcp_hdr *tcp,
			  struct net_syn_options *out)
{
	struct net_ts ts;
	uint32_t cookie = lwip_ntohl(tcp->ackno) - 1;
	uint32_t isn = lwip_ntohl(tcp->seqno) - 1;
	uint8_t packed = (uint8_t)(cookie >> 24) ^ compute_mask(tcp, isn);
	uint32_t epoch = epoch_now();

	cookie &= 0xffffff;
	if (cookie != compute_seal(tcp, isn, epoch, packed) &&
	    cookie != compute_seal(tcp, isn, epoch - 1, packed))
		return false;
	*out = (struct net_syn_options){.mss = mss_steps[packed >> 5],
					.wscale = packed & 15,
					.sack = packed >> 4 & 1};
	out->has_ts = net_ts_returned(tcp, 2 * EPOCH_NS, &ts);
	if (out->has_ts) {
		out->ts = ts.value;
		out->ecn = (ts.echo & 1) && net_here()->ecn != NET_ECN_OFF;
	}
	return true;
}

bool net_cookie_is_in(const struct tcp_hdr *ack)
{
	struct net_syn_options options;

	return net_cookie_hot() && decode_cookie(ack, &options);
}

/*
 * The cookie has no room for ECN. The last bit of the timestamp that goes with
 * it says whether there is ECN, and comes back with the ACK: without timestamps
 * there is no ECN after a cookie. The timestamp is no later than our clock for
 * it (RFC 7323 5).
 */
static void put_ecn(const struct net_syn_options *options,
		    struct net_reply *reply)
{
	uint32_t value;

	if (!options->has_ts)
		return;
	value = net_ts_now() + net_ts_offset(reply->from, reply->from_port,
					     reply->to, reply->to_port);
	net_ts_write(reply->options + reply->options_len - NET_TS_BYTES,
		     ((value - 1) & ~1u) | options->ecn, options->ts);
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
	};
	struct net_syn_options options;

	net_syn_read(tcp, &options);
	options.ecn &= options.has_ts;
	reply.seq = encode_cookie(tcp, &options);
	net_syn_answer(&options, &reply);
	put_ecn(&options, &reply);
	net_reply_send(&reply);
	net_here()->stats.cookies_sent++;
	last_sent_ns = net_here()->now_ns;
	ever_sent = true;
}

enum net_cookie net_cookie_take(const struct pbuf *p,
				struct net_listener *listener,
				struct net_conn **out)
{
	const struct tcp_hdr *tcp = p->payload;
	struct net_opening opening = {
		.listener = listener,
		.iss = lwip_ntohl(tcp->ackno) - 1,
		.irs = lwip_ntohl(tcp->seqno) - 1,
	};

	if (!decode_cookie(tcp, &opening.options)) {
		net_here()->stats.cookies_refused++;
		return NET_COOKIE_NONE;
	}
	if (net_clients_admit(listener, ip_current_src_addr(),
			      NET_ASKS_WITH_COOKIE) == NET_ADMIT_NOT) {
		net_here()->stats.clients_refused++;
		net_event_refused(tcp, "clients");
		return NET_COOKIE_NO_ROOM; /* it may send its data later */
	}
	opening.options.mss =
		tcp_eff_send_mss(opening.options.mss, ip_current_dest_addr(),
				 ip_current_src_addr());
	if (net_handshake_open(&opening, tcp, out) < 0)
		return NET_COOKIE_NO_ROOM;
	net_here()->stats.cookies_accepted++;
	return NET_COOKIE_TAKEN;
}
