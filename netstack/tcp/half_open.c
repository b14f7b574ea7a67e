/*
 * Half-open connections: a SYN was received and answered. Until the handshake
 * ends, such a connection is a record of 64 bytes; the ACK that completes the
 * handshake makes the connection (tcp/handshake.c). So a flood of SYNs costs
 * little memory and no control block.
 *
 * Records wait in queues by the number of SYN-ACKs sent: all records of a queue
 * have the same timeout, so that the oldest is due first and one timer serves
 * them all. They refer to each other by four bytes (mem/slab.c).
 *
 * Records whose SYN-ACK could not be sent wait in a queue of their own, and are
 * tried again together. They are forgotten after twenty seconds, since a link
 * may stay blocked: otherwise they would fill the backlog for good.
 */
#include "netstack/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

#define AT_ONCE 256u /* records that are due in one round */

/*
 * RFC 6298: a second, and twice as long each time. A record is kept for five
 * seconds after the last answer, twenty after the first if no SYN came again.
 */
#define TIMEOUTS NET_HALF_OPEN_UNSENT
static const int64_t wait_ns[TIMEOUTS] = {
	INT64_C(1000000000), INT64_C(2000000000), INT64_C(4000000000),
	INT64_C(8000000000), INT64_C(5000000000),
};
static_assert(TIMEOUTS == 5, "the last one waits for the end");
/* An answer that could not be sent for 20 s is given up. */
#define UNSENT_NS INT64_C(20000000000)

struct net_half_open {
	struct net_listener *listener; /* counts it in `pending` */
	uint32_t hash_next;	       /* references; 0: none */
	uint32_t older, newer;	       /* in its queue */
	uint32_t sent_us;	       /* our answer, or when it was due */
	uint32_t iss, irs;	       /* our first number, and the peer's */
	uint32_t remote[4];
	struct net_syn_options options;
	uint16_t remote_port;
	uint16_t wnd; /* of the SYN */
	uint16_t local_index : NET_LOCAL_BITS;
	uint16_t unsent : 1;	     /* its answer has yet to leave */
	uint16_t source_counted : 1; /* its source counts it */
	uint8_t zone;
	uint8_t timeouts : 3;
	uint8_t resent : 4; /* answers beyond the first; stops at 15 */
	uint8_t challenged : 1;
};
static_assert(sizeof(struct net_half_open) <= 64, "a cache line each");

#undef net_half_opens
NET_SHARD_VAR struct net_half_open_table net_half_opens;
#define net_half_opens NET_SHARD(net_half_opens)

static struct net_half_open_table *table_here(void)
{
	return &net_half_opens;
}

static inline struct net_half_open *record_at(uint32_t ref)
{
	return ref ? net_mem_at(ref) : NULL;
}

static inline const ip_addr_t *local_of(const struct net_half_open *half)
{
	return net_local_index_ip(half->local_index);
}

static inline ip_addr_t remote_of(const struct net_half_open *half)
{
	return net_remote_unpack(half->remote, half->local_index, half->zone);
}

/* The window that is accepted; the one that is announced is smaller. */
static inline uint32_t rcv_wnd_of(const struct net_half_open *half)
{
	return half->options.wscale == NET_NO_WSCALE ? TCPWND_MIN16(TCP_WND)
						     : TCP_WND;
}

/* ---- the table ---- */

static uint32_t *bucket_of(uint32_t hash)
{
	struct net_half_open_table *table = table_here();

	return &table->buckets[hash & table->bucket_mask];
}

static bool is_record_of(const struct net_half_open *half,
			 const uint32_t remote[4], uint8_t zone,
			 const struct tcp_hdr *tcp)
{
	return half->remote_port == lwip_ntohs(tcp->src) &&
	       memcmp(half->remote, remote, sizeof(half->remote)) == 0 &&
	       half->zone == zone &&
	       half->listener->addr.port == lwip_ntohs(tcp->dest) &&
	       ip_addr_eq(local_of(half), ip_current_dest_addr());
}

/* Returns the table's reference to the record of this segment, or NULL. */
static uint32_t *find_record(const struct tcp_hdr *tcp)
{
	uint32_t *ref = bucket_of(net_here()->rx_hash);
	uint32_t remote[4];
	uint8_t zone;

	net_remote_pack(ip_current_src_addr(), remote, &zone);
	while (*ref && !is_record_of(record_at(*ref), remote, zone, tcp))
		ref = &record_at(*ref)->hash_next;
	return *ref ? ref : NULL;
}

/* Returns where the table refers to a record that is there. */
static uint32_t *ref_to(const struct net_half_open *half)
{
	ip_addr_t remote = remote_of(half);
	uint32_t hash =
		net_demux_hash(local_of(half), half->listener->addr.port,
			       &remote, half->remote_port);
	uint32_t *ref = bucket_of(hash);

	while (record_at(*ref) != half)
		ref = &record_at(*ref)->hash_next;
	return ref;
}

/* ---- queues ---- */

static unsigned queue_of(const struct net_half_open *half)
{
	return half->unsent ? NET_HALF_OPEN_UNSENT : half->timeouts;
}

static int64_t due_ns(const struct net_half_open *half)
{
	return half->unsent
		       ? table_here()->retry_ns
		       : net_us_to_ns(half->sent_us) + wait_ns[half->timeouts];
}

static void arm_timer(int64_t when_ns)
{
	struct coro_timer *timer = &table_here()->timer;

	if (!coro_timer_armed(timer) || timer->expires_ns > when_ns)
		coro_timer_arm(net_here()->sched, timer, when_ns);
}

static void append_record(struct net_half_open *half)
{
	struct net_half_open_queue *queue =
		&table_here()->queues[queue_of(half)];
	uint32_t ref = net_mem_ref(half);

	if (half->unsent && !queue->oldest)
		table_here()->retry_ns = net_here()->now_ns + NET_FINE_NS;
	half->newer = 0;
	half->older = queue->newest;
	queue->newest = ref;
	if (half->older) { /* the timer is armed for an older one */
		record_at(half->older)->newer = ref;
		return;
	}
	queue->oldest = ref;
	arm_timer(due_ns(half));
}

static void unlink_record(const struct net_half_open *half)
{
	struct net_half_open_queue *queue =
		&table_here()->queues[queue_of(half)];

	if (half->older)
		record_at(half->older)->newer = half->newer;
	else
		queue->oldest = half->newer;
	if (half->newer)
		record_at(half->newer)->older = half->older;
	else
		queue->newest = half->older;
}

/* ---- SYN-ACKs ---- */

/* Addresses a reply and sends it; false: it has not left. */
static bool send_reply(struct net_half_open *half, struct net_reply *reply)
{
	ip_addr_t remote = remote_of(half);

	reply->from = local_of(half);
	reply->to = &remote;
	reply->from_port = half->listener->addr.port;
	reply->to_port = half->remote_port;
	reply->ack = half->irs + 1;
	if (reply->flags & TCP_SYN)
		net_syn_answer(&half->options, reply);
	else if (!(reply->flags & TCP_RST))
		net_ts_answer(&half->options, reply);
	return net_reply_send(reply);
}

static bool send_syn_ack(struct net_half_open *half)
{
	struct net_reply reply = {.seq = half->iss, .flags = TCP_SYN | TCP_ACK};

	return send_reply(half, &reply);
}

/* Answers a record's SYN, once more or at last. */
static void answer_syn(struct net_half_open *half, bool timed_out)
{
	bool waited = half->unsent;

	unlink_record(half);
	half->timeouts += timed_out;
	half->resent += !waited && half->resent < 15;
	half->challenged = false;
	half->unsent = !send_syn_ack(half);
	if (!waited || !half->unsent)
		half->sent_us = net_now_us();
	append_record(half);
}

/* RFC 3168 6.1.1.1: the peer may have given ECN up, as no answer came. */
static void answer_syn_again(struct net_half_open *half,
			     const struct tcp_hdr *syn)
{
	if (!net_ecn_offered(syn))
		half->options.ecn = 0;
	answer_syn(half, false);
}

/* The window that our SYN has announced without scale (RFC 7323 2.2). */
static uint16_t announced_by(const struct net_half_open *half)
{
	bool scaled = half->options.wscale != NET_NO_WSCALE;

	return (uint16_t)(TCPWND_MIN16(TCP_WND) >>
			  (scaled ? net_rcv_scale() : 0));
}

/* RFC 5961 section 7: one challenge for each time that the SYN is answered. */
static void send_challenge(struct net_half_open *half)
{
	struct net_reply reply = {
		.seq = half->iss + 1,
		.flags = TCP_ACK,
		.wnd = announced_by(half),
	};

	if (half->challenged)
		return;
	half->challenged = true;
	net_here()->stats.challenge_acks++;
	send_reply(half, &reply);
}

static void send_reset(struct net_half_open *half)
{
	struct net_reply reply = {.seq = half->iss + 1,
				  .flags = TCP_RST | TCP_ACK};

	send_reply(half, &reply);
}

/* ---- beginning and end ---- */

/*
 * Returns whether a listener may have one more half-open connection: it has a
 * backlog, and all listeners share half of --max-conns and a sixteenth of the
 * memory.
 */
bool net_half_open_may(const struct net_listener *listener)
{
	uint64_t bytes = net_here()->half_open * sizeof(struct net_half_open);

	return listener->pending < listener->backlog &&
	       net_here()->half_open < (net_here()->max_conns + 1) / 2 &&
	       bytes < net_here()->half_open_bytes;
}

bool net_half_open_begin(struct net_listener *listener,
			 const struct tcp_hdr *syn)
{
	struct net_half_open *half;
	uint16_t local_index;

	if (!net_local_index_of(ip_current_dest_addr(), &local_index))
		return false;
	half = net_mem_malloc(sizeof(*half));
	if (!half)
		return false;
	*half = (struct net_half_open){
		.listener = listener,
		.sent_us = net_now_us(),
		.iss = net_isn(ip_current_dest_addr(), listener->addr.port,
			       ip_current_src_addr(), lwip_ntohs(syn->src)),
		.irs = lwip_ntohl(syn->seqno),
		.remote_port = lwip_ntohs(syn->src),
		.wnd = lwip_ntohs(syn->wnd),
		.local_index = local_index & ((1u << NET_LOCAL_BITS) - 1),
		.source_counted = net_clients_hold(),
	};
	net_remote_pack(ip_current_src_addr(), half->remote, &half->zone);
	net_syn_read(syn, &half->options);
	listener->pending++;
	net_here()->half_open++;
	half->hash_next = *bucket_of(net_here()->rx_hash);
	*bucket_of(net_here()->rx_hash) = net_mem_ref(half);
	half->unsent = !send_syn_ack(half);
	append_record(half);
	return true;
}

static void uncount_record(const struct net_half_open *half)
{
	ip_addr_t remote = remote_of(half);

	net_clients_resume(&remote, half->listener->addr.port);
	net_clients_unadmit();
}

/* Forgets the record that the table refers to here. */
static void forget_record(uint32_t *ref)
{
	struct net_half_open *half = record_at(*ref);
	struct net_listener *listener = half->listener;

	*ref = half->hash_next;
	unlink_record(half);
	if (half->source_counted)
		uncount_record(half);
	net_here()->half_open--;
	listener->pending--;
	net_listener_put(listener);
	net_mem_free(half);
}

/* ---- time ---- */

/*
 * Answers again, or forgets the record: after the last timeout, or if nobody
 * listens any more.
 */
static void time_out(struct net_half_open *half)
{
	if (half->timeouts + 1u == TIMEOUTS || half->listener->stopped)
		forget_record(ref_to(half));
	else
		answer_syn(half, true);
}

/* The bit of the port that the answer leaves by; 0: there is no route. */
static uint32_t port_bit(const struct net_half_open *half)
{
	ip_addr_t remote = remote_of(half);
	const struct netif *netif = ip_route(local_of(half), &remote);
	const struct net_port *port = netif ? netif->state : NULL;

	return port ? UINT32_C(1) << (port - net_here()->ports) : 0;
}

/*
 * Sends an answer that has not left, unless its port has refused another, or
 * forgets the record.
 */
static void retry_unsent(struct net_half_open *half, uint32_t *refused)
{
	int64_t end_ns = net_us_to_ns(half->sent_us) + UNSENT_NS;
	uint32_t port;

	if (half->listener->stopped || end_ns <= net_here()->now_ns) {
		forget_record(ref_to(half));
		return;
	}
	port = port_bit(half);
	if (!port || !(port & *refused)) {
		answer_syn(half, false);
		*refused |= half->unsent ? port : 0;
		return;
	}
	unlink_record(half);
	append_record(half);
}

/*
 * Tries each answer that has not left once. A port that refuses one must not
 * delay the answers that leave by the others. Returns how many it has tried.
 */
static unsigned retry_all_unsent(unsigned most)
{
	struct net_half_open_queue *queue =
		&table_here()->queues[NET_HALF_OPEN_UNSENT];
	uint32_t ref, last = queue->newest, refused = 0;
	unsigned n = 0;

	if (!last || table_here()->retry_ns > net_here()->now_ns)
		return 0;
	do {
		ref = queue->oldest;
		retry_unsent(record_at(ref), &refused);
	} while (++n < most && ref != last);
	table_here()->retry_ns =
		net_here()->now_ns + (refused || ref == last ? NET_FINE_NS : 0);
	return n;
}

/* Handles records that are due, at most AT_ONCE in a round. */
static void handle_due(struct coro_timer *timer)
{
	int64_t now_ns = net_here()->now_ns;
	unsigned n = retry_all_unsent(AT_ONCE / 2);

	for (unsigned i = 0; i < TIMEOUTS; i++) {
		struct net_half_open *half;

		while ((half = record_at(table_here()->queues[i].oldest)) &&
		       due_ns(half) <= now_ns && n++ < AT_ONCE)
			time_out(half);
	}
	for (unsigned i = 0; i < NET_HALF_OPEN_QUEUES; i++) {
		uint32_t oldest = table_here()->queues[i].oldest;

		if (oldest)
			arm_timer(due_ns(record_at(oldest)));
	}
}

/* ---- input ---- */

static bool seq_ok(const struct net_half_open *half, uint32_t seq, uint32_t len)
{
	uint32_t ahead = seq - (half->irs + 1);

	return ahead <= rcv_wnd_of(half) ||
	       ((int32_t)ahead < 0 && (int32_t)(ahead + len) > 0);
}

/* RFC 7323 3.2 and 5.3, of a segment that is no SYN and no reset. */
static bool stamp_ok(const struct net_half_open *half,
		     const struct tcp_hdr *tcp)
{
	struct net_ts ts;

	return !half->options.has_ts ||
	       (net_ts_read(tcp, &ts) &&
		(int32_t)(ts.value - half->options.ts) >= 0);
}

/* Karn: a SYN that has been answered twice measures nothing. */
static uint32_t rtt_of(const struct net_half_open *half)
{
	return half->resent ? 0 : LWIP_MAX(net_now_us() - half->sent_us, 1u);
}

/*
 * The ACK of our SYN: the connection takes the record's place in every count.
 * Without memory for it the record stays, and the segment will come again.
 */
static enum net_half_open_input
open_conn(uint32_t *ref, const struct tcp_hdr *tcp, struct net_conn **out)
{
	struct net_half_open *half = record_at(*ref);
	const struct net_opening opening = {
		.listener = half->listener,
		.options = half->options,
		.iss = half->iss,
		.irs = half->irs,
		.wnd = half->wnd,
		.rtt_us = rtt_of(half),
		.timeouts = half->timeouts,
		.resent = half->resent,
	};
	int err;

	if (half->source_counted)
		net_clients_resume(ip_current_src_addr(),
				   half->listener->addr.port);
	net_here()->half_open--;
	err = net_handshake_open(&opening, tcp, out);
	net_here()->half_open++;
	if (err == -ENOMEM) {
		net_clients_hold();
		return NET_HALF_OPEN_TAKEN;
	}
	half->source_counted = false;
	forget_record(ref);
	return err < 0 ? NET_HALF_OPEN_TAKEN : NET_HALF_OPEN_OPENED;
}

static void refuse_segment(struct net_half_open *half)
{
	net_here()->stats.rx_unacceptable++;
	send_challenge(half);
}

static void take_rst(uint32_t *ref, uint32_t seq)
{
	struct net_half_open *half = record_at(*ref);
	uint32_t ahead = seq - (half->irs + 1);

	if (ahead == 0)
		forget_record(ref);
	else if (ahead < rcv_wnd_of(half))
		refuse_segment(half);
	else
		net_here()->stats.rx_unacceptable++;
}

/*
 * Forgets the record: its SYN had been answered with a cookie before, there
 * being no room, and that answer is the one that has arrived first.
 */
static enum net_half_open_input give_way(uint32_t *ref)
{
	forget_record(ref);
	return NET_HALF_OPEN_NONE;
}

/*
 * RFC 9293 3.10.7.4, SYN-RECEIVED, with RFC 5961: the same SYN is answered
 * again, and a RST with exactly the next number ends it.
 */
__attribute__((noinline)) static enum net_half_open_input
input_to_record(const struct pbuf *p, struct net_conn **out)
{
	const struct tcp_hdr *tcp = p->payload;
	uint32_t seq = lwip_ntohl(tcp->seqno), ack = lwip_ntohl(tcp->ackno);
	uint8_t flags = TCPH_FLAGS(tcp);
	uint32_t len =
		p->tot_len - TCPH_HDRLEN_BYTES(tcp) + !!(flags & TCP_FIN);
	struct net_half_open *half;
	uint32_t *ref = find_record(tcp);

	if (!ref)
		return NET_HALF_OPEN_NONE;
	half = record_at(*ref);
	if (flags & TCP_RST)
		take_rst(ref, seq);
	else if ((flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && seq == half->irs)
		answer_syn_again(half, tcp);
	else if ((flags & TCP_SYN) || !seq_ok(half, seq, len))
		refuse_segment(half);
	else if (!stamp_ok(half, tcp) || !(flags & TCP_ACK))
		net_here()->stats.rx_unacceptable++;
	else if (ack != half->iss + 1 && net_cookie_is_in(tcp))
		return give_way(ref);
	else if (ack != half->iss + 1)
		net_rst_reply(NULL, ack, seq + len, ip_current_dest_addr(),
			      ip_current_src_addr(), lwip_ntohs(tcp->dest),
			      lwip_ntohs(tcp->src));
	else
		return open_conn(ref, tcp, out);
	return NET_HALF_OPEN_TAKEN;
}

/* A SYN rarely has a record in its bucket. */
enum net_half_open_input net_half_open_input(const struct pbuf *p,
					     struct net_conn **out)
{
	if (!*bucket_of(net_here()->rx_hash))
		return NET_HALF_OPEN_NONE;
	return input_to_record(p, out);
}

/* ---- the shard opens and closes ---- */

int net_half_open_init(void)
{
	uint32_t n = 1024;

	while (n < net_here()->max_conns / 8)
		n *= 2;
	table_here()->buckets = net_mem_map(n * sizeof(uint32_t), 4096);
	if (!table_here()->buckets)
		return -ENOMEM;
	table_here()->bucket_mask = n - 1;
	coro_timer_init(&table_here()->timer, handle_due);
	return 0;
}

void net_half_open_reset_all(void)
{
	for (unsigned i = 0; i < NET_HALF_OPEN_QUEUES; i++) {
		struct net_half_open *half;

		while ((half = record_at(table_here()->queues[i].oldest))) {
			send_reset(half);
			forget_record(ref_to(half));
		}
	}
}

/* The memory of what is left is in slabs, which are freed as a whole. */
void net_half_open_fini(void)
{
	if (!table_here()->buckets)
		return;
	coro_timer_cancel(net_here()->sched, &table_here()->timer);
	munmap(table_here()->buckets,
	       (table_here()->bucket_mask + 1ul) * sizeof(uint32_t));
	memset(table_here(), 0, sizeof(*table_here()));
}
