/*
 * The parts of TCP that lwIP does not do: finding the connection of a segment,
 * deciding whether lwIP may see it, the states that need no coroutine, timers,
 * the output phase.
 */
#pragma once

#include "netstack/recovery/recovery.h"
#include "netstack/shard_var.h"

/* ---- input.c ---- */
/*
 * Processes a TCP segment; lwIP's ip_data is set. Owns p, which begins with the
 * TCP header.
 */
void net_tcp_input(struct pbuf *p, struct netif *inp);
/* The same, with the segment's connection, or NULL, found by the caller. */
void net_tcp_input_found(struct net_conn *conn, struct pbuf *p,
			 struct netif *inp);
/*
 * Takes the pcbs off lwIP's lists, and hashes the new ones. Called after lwIP
 * has worked on a connection.
 */
void net_pcbs_take_back(void);

/* ---- burst.c ---- */
/*
 * Processes n TCP frames of a port, at most GLUE_BURST, and owns them. Each is
 * one segment for the port's first interface, which is up, with verified
 * checksums, and no fragment; one of IPv6 has no extension header.
 */
void net_tcp_input_burst(struct net_port *port,
			 struct glue_frame *const *frames, unsigned n);
/*
 * link/neighbour.c, which it calls: a connection to `dest` makes progress, so
 * its neighbour is reachable (RFC 4861 7.3.1).
 */
void net_link_confirm6(const ip6_addr_t *dest);

/* ---- predict.c ---- */
/*
 * Header prediction: processes a segment if it is the next one expected. p is
 * as in net_tcp_input(), but one piece; ip_data is not needed. Returns true if
 * the segment was processed; p is freed then.
 */
bool net_predict_input(struct net_conn *conn, struct pbuf *p);
/*
 * Consecutive segments of a connection are processed together, as GRO does.
 * Returns whether the segments after one that net_predict_input() has processed
 * may be.
 */
static inline bool net_predict_runs(const struct net_conn *conn)
{
	return conn->pcb.state == ESTABLISHED && !conn->watched &&
	       !conn->has_recovery;
}
/*
 * net_predict_next() queues p if it is the next data of the connection, right
 * after such a segment. Returns true if it was queued; p is not the caller's
 * then. net_predict_settle() follows the last of them, before anything else
 * happens: it wakes the reader, updates the window, and requests the ACK and
 * the timer.
 */
bool net_predict_next(struct net_conn *conn, struct pbuf *p);
void net_predict_settle(struct net_conn *conn);

/* ---- predict_out.c; recovery/recovery.h declares net_predict_output() ---- */
/*
 * Queue len bytes (not 0) as tcp_write() would, by copying or by reference.
 * They return ERR_OK, ERR_MEM as tcp_write() would, or ERR_INPROGRESS: the
 * caller must use tcp_write().
 */
err_t net_predict_write(struct net_conn *conn, const void *data, uint16_t len);
err_t net_predict_refer(struct net_conn *conn, const void *data, uint16_t len);
/*
 * link/output.c, which it calls: sends a segment, which is p alone. Returns
 * false if its neighbour is not known or the port has no free frame.
 */
bool net_link_send_tcp(const struct tcp_pcb *pcb, const struct pbuf *p);

/* ---- predict_close.c ---- */
/*
 * Closes a connection as tcp_close() does, if it has sent all that was written
 * and its owner has read all that came. Returns false if it did nothing.
 */
bool net_predict_close(struct net_conn *conn);

/* ---- lwip/pcb.c ---- */
/* Called when lwIP has freed the pcb, or code in its place, on whatever path.
 */
void net_conn_pcb_freed(struct net_conn *conn);

/* ---- demux.c ---- */
int net_demux_init(unsigned max_conns);
void net_demux_fini(void);
uint32_t net_demux_hash(const ip_addr_t *local, uint16_t local_port,
			const ip_addr_t *remote, uint16_t remote_port);
struct net_conn *net_demux_find(const ip_addr_t *local, uint16_t local_port,
				const ip_addr_t *remote, uint16_t remote_port);
/* The same with net_demux_hash(), which the caller has. */
struct net_conn *net_demux_find_hashed(uint32_t hash, const ip_addr_t *local,
				       uint16_t local_port,
				       const ip_addr_t *remote,
				       uint16_t remote_port);
/* The same between IPv4 addresses in network byte order. Sets rx_hash. */
struct net_conn *net_demux_find4(uint32_t hash, uint32_t local,
				 uint16_t local_port, uint32_t remote,
				 uint16_t remote_port);
/*
 * Finds the connection of the current segment, and stores the segment's hash in
 * rx_hash.
 */
struct net_conn *net_demux_find_current(const struct tcp_hdr *tcp);
void net_demux_insert(struct net_conn *conn);
void net_demux_remove(struct net_conn *conn);
/* The hash of a connection's addresses and ports. */
uint32_t net_demux_hash_of(const struct net_conn *conn);
/*
 * Called when a connection begins, once its addresses are set: it may be
 * traced.
 */
static inline void net_trace_begins(struct net_conn *conn, const char *how)
{
	if (unlikely(net_here()->traces))
		net_trace_born(conn, net_demux_hash_of(conn), how);
}
/*
 * Stores net_demux_hash() of the TCP segments in n frames, at most GLUE_BURST,
 * and prefetches their connections if there are many.
 */
void net_demux_hash_burst(struct glue_frame *const *frames, unsigned n,
			  uint32_t *hashes);
void net_for_each_conn(void (*fn)(struct net_conn *conn));

/* ---- local_index.c: addresses in a record ---- */
#define NET_LOCAL_BITS 11 /* the owner may use the others */

/*
 * The index of one of the stack's addresses in the table of interfaces; false:
 * it is not the stack's.
 */
bool net_local_index_of(const ip_addr_t *local, uint16_t *out);
const ip_addr_t *net_local_index_ip(uint16_t local_index);
/*
 * Pack and unpack a peer's address; words are in network byte order, and
 * `local_index` is that of the stack's address on the same connection.
 */
void net_remote_pack(const ip_addr_t *ip, uint32_t words[4], uint8_t *zone);
ip_addr_t net_remote_unpack(const uint32_t words[4], uint16_t local_index,
			    uint8_t zone);

/* ---- handshake.c ---- */
/* The options that a SYN offers. */
struct net_syn_options {
	uint32_t ts;	    /* if has_ts: RFC 7323 */
	uint16_t mss;	    /* the peer's; the default if it sent none */
	uint8_t wscale : 4; /* NET_NO_WSCALE: none */
	uint8_t sack : 1;
	uint8_t has_ts : 1;
	uint8_t ecn : 1; /* RFC 3168 */
};
#define NET_NO_WSCALE 15u

struct net_reply;

/* Reads the options of the current SYN, which were checked. */
void net_syn_read(const struct tcp_hdr *syn, struct net_syn_options *out);
/*
 * Appends a timestamp to the options of a reply, if timestamps were agreed on.
 */
void net_ts_answer(const struct net_syn_options *options,
		   struct net_reply *reply);
/* Sets the window and the options of a SYN-ACK, whose addresses are set. */
void net_syn_answer(const struct net_syn_options *options,
		    struct net_reply *reply);

/* What is known of a handshake when its last segment arrives. */
struct net_opening {
	struct net_listener *listener;
	struct net_syn_options options;
	uint32_t iss, irs; /* initial sequence numbers, ours and the peer's */
	uint16_t wnd;	   /* of the SYN; 0: unknown */
	uint32_t rtt_us;   /* 0: not measured */
	unsigned timeouts, resent; /* of the SYN-ACK */
};

/*
 * The current segment acknowledges our SYN-ACK: creates the connection in its
 * state after that ACK and its window, and hands it to its listener, counted as
 * a client if it was admitted. The segment's data and other flags are left to
 * the caller. Returns 0 with *out, -ENOMEM, or -ECONNABORTED (the listener did
 * not accept it, and it was reset).
 */
int net_handshake_open(const struct net_opening *opening,
		       const struct tcp_hdr *tcp, struct net_conn **out);
/*
 * Hands an established connection to its listener (api/listen.c). On an error
 * the caller resets the connection, and reports that to nobody.
 */
err_t net_listener_established(struct net_conn *conn);
/*
 * After a handshake segment for a connection that was in state `before`: sets
 * the values that lwIP computes differently (MSS, window). The connection is on
 * lwIP's list if it is alive.
 */
void net_handshake_settle(enum tcp_state before);
/*
 * Returns whether a segment is a SYN that reopens a connection in TIME_WAIT;
 * the old connection is freed then.
 */
bool net_handshake_reopens(struct net_conn *conn, const struct tcp_hdr *tcp);
/* A connection in TIME_WAIT: its next sequence numbers. */
struct net_past {
	uint32_t rcv_nxt, snd_nxt;
	uint32_t ts_recent; /* if has_ts: timestamps had been agreed on */
	bool has_ts;
};

/*
 * Like net_handshake_reopens(), for the current segment and the record of a
 * connection. If it returns true, the new connection's initial sequence number
 * is set.
 */
bool net_handshake_renews(const struct tcp_hdr *tcp,
			  const struct net_past *past);
/*
 * Simultaneous open: if the segment, whose options were checked, is the SYN of
 * a peer that dials us while this connection is in SYN_SENT, answers it and
 * returns true.
 */
bool net_handshake_crossed(struct net_conn *conn, const struct tcp_hdr *tcp);

/* ---- check.c: p begins with the TCP header, as it came ---- */
bool net_check_header(const struct pbuf *p);
/*
 * Returns whether lwIP may see the segment, which *p may replace by a copy. If
 * not, the segment was answered if necessary.
 */
bool net_check_conn(struct net_conn *conn, struct pbuf **p);
/* The same for the segment that created the connection. */
bool net_check_opened(struct net_conn *conn, struct pbuf **p);
bool net_check_stranger(struct pbuf *p); /* of no connection */

#define NET_OPT_END	0
#define NET_OPT_NOP	1
#define NET_OPT_MSS	2
#define NET_OPT_WSCALE	3
#define NET_OPT_SACK_OK 4
#define NET_OPT_TS	8

/* Finds an option in a checked header; NULL: there is none of this kind. */
const uint8_t *net_tcp_option(const struct tcp_hdr *tcp, uint8_t kind);

/* ---- timestamps.c: RFC 7323; what leaves is in recovery/recovery.h ---- */
struct net_ts {
	uint32_t value, echo; /* TSval, TSecr */
};

/* Reads the option of a checked header. Returns false if there is none. */
bool net_ts_read(const struct tcp_hdr *tcp, struct net_ts *out);
/* The offset that a connection adds to the clock for its timestamps. */
uint32_t net_ts_offset(const ip_addr_t *local, uint16_t local_port,
		       const ip_addr_t *remote, uint16_t remote_port);
/* Agrees on timestamps for a new connection; value: that of the peer's SYN. */
void net_ts_accept(struct net_conn *conn, uint32_t value);
/*
 * Makes the SYN offer timestamps: before lwIP dials, with local address and
 * port set.
 */
void net_ts_offer(struct net_conn *conn, const ip_addr_t *remote,
		  uint16_t port);
/*
 * Whether a SYN, or the ACK of a cookie, offers timestamps that may be
 * accepted.
 */
bool net_ts_offered(const struct tcp_hdr *syn, struct net_ts *out);
/* For a connection in SYN_SENT, before lwIP sees a segment for it. */
void net_ts_answered(struct net_conn *conn, const struct tcp_hdr *tcp);
/*
 * For an ACK without a connection: returns whether its option echoes a
 * timestamp that we sent to its source within age_ns. Nobody else knows that
 * value, so both sides have agreed on timestamps in a handshake that left no
 * record here.
 */
bool net_ts_returned(const struct tcp_hdr *ack, int64_t age_ns,
		     struct net_ts *out);
/* 24 days, in tcp_ticks: after that the peer's clock may have wrapped. */
#define NET_TS_AGE (UINT32_C(24 * 24 * 3600) * 1000 / TCP_SLOW_INTERVAL)

/*
 * PAWS, RFC 7323 5.3 R1 and 5.5: whether a segment is from an earlier turn.
 * TS.Recent is about as old as the last segment.
 */
static inline bool net_ts_is_old(const struct net_conn *conn, uint32_t value)
{
	return (int32_t)(value - conn->pcb.ts_recent) < 0 &&
	       tcp_ticks - conn->pcb.tmr <= NET_TS_AGE;
}

/*
 * RFC 7323 4.3: the timestamp of an acceptable segment is echoed from now on if
 * the segment begins at or before Last.ACK.sent, which is RCV.NXT unless an ACK
 * is due. So the earliest of several segments that one ACK covers counts.
 */
static inline void net_ts_note(struct net_conn *conn, uint32_t seq,
			       uint32_t value)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (TCP_SEQ_LEQ(seq, pcb->rcv_nxt) &&
	    !(pcb->flags & (TF_ACK_DELAY | TF_ACK_NOW)))
		conn->pcb.ts_recent = value;
}

/* ---- time_wait.c ---- */

/* The records of a shard, by addresses and in the order of their ends. */
extern NET_SHARD_VAR struct net_time_wait_table {
	struct net_wait **buckets;
	uint32_t bucket_mask;
	unsigned n; /* at most max_conns */
	struct net_wait_block *oldest, *newest;
	struct coro_timer timer;
} net_time_waits __attribute__((visibility("hidden")));
#define net_time_waits NET_SHARD(net_time_waits)

int net_time_wait_init(void);
void net_time_wait_fini(void);
/*
 * Replaces a connection that has entered TIME_WAIT by a record, if possible.
 * Returns true if it did; the control block is freed then.
 */
bool net_time_wait_check(struct net_conn *conn);
/*
 * Returns whether the current segment, which has no connection, belongs to a
 * record; it was answered then. For a SYN that reopens a connection it returns
 * false: the record is freed, and the new connection's initial sequence number
 * is set.
 */
bool net_time_wait_input(const struct pbuf *p);
/*
 * Whether a connection between these addresses may be dialed: there is no
 * record of them, or it could be freed.
 */
bool net_time_wait_yields(const ip_addr_t *local, uint16_t local_port,
			  const ip_addr_t *remote, uint16_t remote_port);

/* ---- half_open.c ---- */
enum net_half_open_input {
	NET_HALF_OPEN_NONE,   /* the segment belongs to no record */
	NET_HALF_OPEN_TAKEN,  /* it has been dealt with */
	NET_HALF_OPEN_OPENED, /* it has made a connection */
};

/*
 * Queues of half-open connections by their timeouts so far; the last one is for
 * SYN-ACKs that the port had no room for.
 */
#define NET_HALF_OPEN_UNSENT 5
#define NET_HALF_OPEN_QUEUES 6

/* The half-open connections of a shard. */
extern NET_SHARD_VAR struct net_half_open_table {
	uint32_t *buckets;
	uint32_t bucket_mask;
	struct net_half_open_queue {
		uint32_t oldest, newest;
	} queues[NET_HALF_OPEN_QUEUES];
	int64_t retry_ns; /* of what is in the last queue */
	struct coro_timer timer;
} net_half_opens __attribute__((visibility("hidden")));
#define net_half_opens NET_SHARD(net_half_opens)

int net_half_open_init(void);
void net_half_open_fini(void);
/*
 * Whether a SYN to the listener may become a record: the limits allow one more.
 */
bool net_half_open_may(const struct net_listener *listener);
/*
 * Answers the current SYN, which was checked and admitted, and keeps a record
 * of it. Returns false without memory.
 */
bool net_half_open_begin(struct net_listener *listener,
			 const struct tcp_hdr *syn);
/* Processes the current segment, which has no connection. */
enum net_half_open_input net_half_open_input(const struct pbuf *p,
					     struct net_conn **out);
void net_half_open_reset_all(void);

/* ---- orphan.c ---- */

/* The orphans of a shard, in the order of their closes. */
extern NET_SHARD_VAR struct net_orphan_list {
	struct net_conn *oldest, *newest;
	unsigned n;
} net_orphans __attribute__((visibility("hidden")));
#define net_orphans NET_SHARD(net_orphans)

/* The owner has closed a connection that is alive and not in TIME_WAIT. */
void net_orphan_enter(struct net_conn *conn);
void net_orphan_leave(struct net_conn *conn);
bool net_orphan_recycle(void); /* ends the oldest; false: there is none */
/*
 * Whether --max-conns allows one more; the oldest orphan may be reset for it.
 */
bool net_orphan_make_room(void);
/* Whether the peers of all orphans have acknowledged everything. */
bool net_orphans_delivered(void);

/* ---- ooseq.c: what came before its turn; held if pcb.rcv_sacks ---- */
/*
 * Keeps the data and the FIN of a segment that is ahead of RCV.NXT, and
 * acknowledges it. Returns the part that lwIP must see; NULL: none. Owns p.
 */
struct pbuf *net_ooseq_take(struct net_conn *conn, struct pbuf *p);
/*
 * After data has arrived in order: passes kept data that follows it to the
 * reader. The connection is alive. Returns a FIN that is next in order, for
 * lwIP; NULL: there is none.
 */
struct pbuf *net_ooseq_deliver(struct net_conn *conn);
void net_ooseq_clear(struct net_conn *conn);
/*
 * Sends an ACK that reports the numbers from left to right as duplicates
 * (D-SACK).
 */
void net_ooseq_send_dsack(struct net_conn *conn, uint32_t left, uint32_t right);
/* Copies data that lies in frames to other memory, as far as there is any. */
void net_ooseq_copy_frames(struct net_conn *conn);
unsigned net_ooseq_frames(const struct net_conn *conn); /* walks */
uint64_t net_ooseq_bytes(const struct net_conn *conn);	/* of memory, about */

/* ---- syn_limit.c ---- */
/*
 * Whether a listener may answer one more SYN with a cookie. If it may not, and
 * is full, SYNs to it are shed for a while.
 */
bool net_syn_limit_cookie(struct net_listener *listener, bool full);
/*
 * Frees the frames of a burst that are shed. Returns how many are left, in
 * order.
 */
unsigned net_syn_limit_shed(const struct net_port *port,
			    struct glue_frame **frames, unsigned n);

/* ---- cookie.c ---- */
enum net_cookie { NET_COOKIE_NONE, NET_COOKIE_NO_ROOM, NET_COOKIE_TAKEN };

void net_cookie_init(void);
bool net_cookie_hot(void);
/* Whether the ACK that is being received carries a cookie. */
bool net_cookie_is_in(const struct tcp_hdr *ack);
/* Answers the SYN that is being received. */
void net_cookie_send(const struct pbuf *p);
/*
 * Whether the ACK that is being received carries a cookie of the listener. With
 * NET_COOKIE_TAKEN, *out is the connection that was made from it.
 */
enum net_cookie net_cookie_take(const struct pbuf *p,
				struct net_listener *listener,
				struct net_conn **out);

/* ---- ephemeral.c: a search for a free port ---- */
struct net_ephemeral {
	uint32_t offset;
	uint32_t *counter;
};

void net_ephemeral_init(void);
/*
 * Begin a search: for a connection from local to a destination; for a listener.
 */
struct net_ephemeral net_ephemeral_dial(const ip_addr_t *local,
					const ip_addr_t *remote,
					uint16_t remote_port);
struct net_ephemeral net_ephemeral_listen(void);
/*
 * Returns the next port to try; net_port_count() calls return each port once.
 */
uint16_t net_ephemeral_next(struct net_ephemeral *search);

/* ---- reply.c ---- */
struct net_reply {
	uint8_t ttl, tos; /* 0: TCP_TTL */
	const ip_addr_t *from, *to;
	uint16_t from_port, to_port;
	uint32_t seq, ack;
	uint8_t flags;
	uint16_t wnd;
	uint8_t options[12 + NET_TS_BYTES];
	uint8_t options_len; /* a multiple of 4 */
};

/* Sends it. Returns false if the port has no room or memory is short. */
bool net_reply_send(const struct net_reply *reply);
/* link/output.c: sends it, with p as TCP's header; like net_link_send_tcp(). */
bool net_link_send_reply(const struct net_reply *reply, const struct pbuf *p);

/*
 * lwIP's tcp.c and tcp_in.c call these in place of tcp_rst() and
 * tcp_rst_netif().
 */
void net_rst_abort(const struct tcp_pcb *pcb, uint32_t seq, uint32_t ack,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   uint16_t local_port, uint16_t remote_port);
void net_rst_reply(const struct tcp_pcb *pcb, uint32_t seg_ack,
		   uint32_t seg_end, const ip_addr_t *local_ip,
		   const ip_addr_t *remote_ip, uint16_t local_port,
		   uint16_t remote_port);
void net_rst_netif(struct netif *netif, uint32_t seg_ack, uint32_t seg_end,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   uint16_t local_port, uint16_t remote_port);

/* ---- too_big.c ---- */
/* An ICMP "needs fragments" or "too big", checked by dpdk_glue; borrowed. */
void net_too_big_input(const struct net_port *port,
		       const struct glue_frame *frame);

/* ---- timer.c ---- */
void net_timer_init(struct net_conn *conn);
/*
 * Whether the timer fires within NET_FINE_NS. It is then left alone: if it
 * comes too early it is armed again, which is cheaper than moving it for each
 * packet.
 */
static inline bool net_timer_is_near(const struct net_conn *conn)
{
	return conn->timer.expires_ns <= net_here()->now_ns + NET_FINE_NS;
}
void net_timer_check(struct net_conn *conn); /* arms it if necessary */
/*
 * The same at the end of input. Most handlers answer in the same round, so the
 * output phase does it, once for the request and the answer. With recovery
 * state that is no option: one more output changes what the pace allows.
 */
static inline void net_timer_after_input(struct net_conn *conn)
{
	if (net_timer_is_near(conn))
		return;
	if (unlikely(conn->has_recovery))
		net_timer_check(conn);
	else
		net_conn_queue_output(conn);
}
void net_timers_set_clock(void);

/* ---- output.c ---- */
void net_output_all(void);

/* ---- random.c ---- */
int net_random_init(void);
void net_random_fini(void);
/*
 * A hash of a connection's addresses and ports that cannot be predicted without
 * the stack's key.
 */
uint64_t net_tuple_hash(const ip_addr_t *local, uint16_t local_port,
			const ip_addr_t *remote, uint16_t remote_port);
uint16_t net_ip_id(const ip4_addr_t *dest);
