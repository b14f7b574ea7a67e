/*
 * TCP beside lwIP: which connection a segment belongs to, whether lwIP may see
 * it, the states that need no coroutine, timers, the output phase.
 */
#pragma once

#include "netstack/recovery/recovery.h"

/* ---- input.c ---- */
/* A TCP segment, ip_data set; owns p, which begins with its header. */
void net_tcp_input(struct pbuf *p, struct netif *inp);

/* ---- predict.c ---- */
/*
 * Whether a segment, as net_tcp_input() takes it but of one piece, is the one
 * expected: it is dealt with then, and p is gone. ip_data is not needed.
 */
bool net_predict_input(struct net_conn *conn, struct pbuf *p);
/*
 * Segments of a connection that come one right after the other are taken
 * together, as GRO does. Whether those behind a segment that
 * net_predict_input() has taken may be.
 */
static inline bool net_predict_runs(const struct net_conn *conn)
{
	return !conn->watched && !conn->repairing;
}
/*
 * Whether p, right behind such a segment, is the next data of the same
 * connection: it is queued then, and p is gone. net_predict_settle() does what
 * is done once for all that were taken, before anything else happens: it wakes
 * the reader, settles the window and asks for the ACK and the timer.
 */
bool net_predict_next(struct net_conn *conn, struct pbuf *p);
void net_predict_settle(struct net_conn *conn);

/* ---- demux.c ---- */
int net_demux_init(unsigned max_conns);
void net_demux_fini(void);
uint32_t net_demux_hash(const ip_addr_t *local, u16_t local_port,
			const ip_addr_t *remote, u16_t remote_port);
struct net_conn *net_demux_find(const ip_addr_t *local, u16_t local_port,
				const ip_addr_t *remote, u16_t remote_port);
/* The same by IPv4 addresses in network byte order. */
struct net_conn *net_demux_find4(u32_t local, u16_t local_port, u32_t remote,
				 u16_t remote_port);
/* The same for the segment at hand, whose hash is then known. */
struct net_conn *net_demux_find_current(const struct tcp_hdr *tcp);
void net_demux_insert(struct net_conn *conn);
void net_demux_remove(struct net_conn *conn);
/* Of its addresses and ports. */
uint32_t net_demux_hash_of(const struct net_conn *conn);
/* It is about to begin, by its addresses: it may be one that is traced. */
static inline void net_trace_begins(struct net_conn *conn, const char *how)
{
	if (__builtin_expect(net_here()->traces != NULL, 0))
		net_trace_born(conn, net_demux_hash_of(conn), how);
}
/* Pulls what the frames of a burst, GLUE_BURST at most, belong to. */
void net_demux_prefetch(struct glue_frame *const *frames, unsigned n);
void net_for_each_conn(void (*fn)(struct net_conn *conn));

/* ---- place.c: addresses in a record ---- */
#define NET_PLACE_BITS 11 /* the owner may use the others */

/* That of an address of ours in the table of interfaces; false: it is none. */
bool net_place_of(const ip_addr_t *local, u16_t *out);
const ip_addr_t *net_place_ip(u16_t place);
/* A peer's, in network byte order; `place` is that of ours beside it. */
void net_remote_pack(const ip_addr_t *ip, u32_t words[4], u8_t *zone);
ip_addr_t net_remote_unpack(const u32_t words[4], u16_t place, u8_t zone);

/* ---- pcbs.c ---- */
/* Takes back what lwIP has put on its lists, and hashes what is new there. */
void net_pcbs_take_back(void);
/* The same after a segment that has left its connection open. */
void net_pcbs_take_back_open(struct net_conn *conn);

/* ---- handshake.c ---- */
/* What a SYN offers beside its number. */
struct net_syn_options {
	u32_t ts;	 /* if has_ts: RFC 7323 */
	u16_t mss;	 /* what the peer takes, also where it has named none */
	u8_t wscale : 4; /* NET_NO_WSCALE: none */
	u8_t sack : 1;
	u8_t has_ts : 1;
	u8_t ecn : 1; /* RFC 3168 */
};
#define NET_NO_WSCALE 15u

struct net_reply;

/* Of the SYN at hand, its options checked. */
void net_syn_read(const struct tcp_hdr *syn, struct net_syn_options *out);
/* A timestamp behind the options of a reply, if they were agreed upon. */
void net_ts_answer(const struct net_syn_options *options,
		   struct net_reply *reply);
/* The window and the options of a SYN-ACK, whose addresses are set. */
void net_syn_answer(const struct net_syn_options *options,
		    struct net_reply *reply);

/* What is known of a handshake when its last segment comes. */
struct net_opening {
	struct net_listener *listener;
	struct net_syn_options options;
	u32_t iss, irs;		   /* our first number, and the peer's */
	u16_t wnd;		   /* of the SYN; 0: it is not known */
	uint32_t rtt_us;	   /* 0: not measured */
	unsigned timeouts, resent; /* of the SYN-ACK */
};

/*
 * The segment at hand acknowledges our SYN: makes the connection as it is once
 * the ACK and its window are taken, and gives it to its listener, as a client
 * if it has been admitted. What else the segment bears is left. Returns 0 with
 * *out, -ENOMEM, or -ECONNABORTED: the listener takes it not, it was reset.
 */
int net_handshake_open(const struct net_opening *opening,
		       const struct tcp_hdr *tcp, struct net_conn **out);
/*
 * After a segment of a handshake, of a connection that was in state `before`:
 * sets what lwIP sees otherwise than we. The connection is on lwIP's list, if
 * it lives.
 */
void net_handshake_settle(enum tcp_state before);
/*
 * Whether a segment is a SYN that opens anew what is in TIME_WAIT; the old
 * connection is gone then.
 */
bool net_handshake_reopens(struct net_conn *conn, const struct tcp_hdr *tcp);
/* Of a connection in TIME_WAIT: the end of what it has received and sent. */
struct net_past {
	u32_t rcv_nxt, snd_nxt;
	u32_t ts_recent; /* if has_ts: timestamps had been agreed upon */
	bool has_ts;
};

/*
 * The same of what is kept of one, for the segment at hand; if so, the new
 * connection's first number is set.
 */
bool net_handshake_renews(const struct tcp_hdr *tcp,
			  const struct net_past *past);
/*
 * Simultaneous open. Of a connection in SYN_SENT: whether the segment, with its
 * options checked, is the SYN of a peer that dials us at the same time; answers
 * it then.
 */
bool net_handshake_crossed(struct net_conn *conn, const struct tcp_hdr *tcp);

/* ---- check.c: p begins with the TCP header, as it came ---- */
bool net_check_header(const struct pbuf *p);
/*
 * Whether lwIP may have it, or what it has been copied to; if not, it has been
 * answered where it must be.
 */
bool net_check_conn(struct net_conn *conn, struct pbuf **p);
/* The same for the segment that has made the connection. */
bool net_check_opened(struct net_conn *conn, struct pbuf **p);
bool net_check_stranger(struct pbuf *p); /* of no connection */

#define NET_OPT_END	0
#define NET_OPT_NOP	1
#define NET_OPT_MSS	2
#define NET_OPT_WSCALE	3
#define NET_OPT_SACK_OK 4
#define NET_OPT_TS	8

/* An option of a header that has been checked; NULL: it has none of the kind */
const uint8_t *net_tcp_option(const struct tcp_hdr *tcp, uint8_t kind);

/* ---- timestamps.c: RFC 7323; what leaves is in recovery/recovery.h ---- */
struct net_ts {
	u32_t value, echo; /* TSval, TSecr */
};

/* The option of a header that has been checked. False: it has none. */
bool net_ts_read(const struct tcp_hdr *tcp, struct net_ts *out);
/* What a connection adds to the clock for its timestamps. */
u32_t net_ts_offset(const ip_addr_t *local, u16_t local_port,
		    const ip_addr_t *remote, u16_t remote_port);
/* Agreed upon with the peer of a new connection, whose SYN had this one. */
void net_ts_accept(struct net_conn *conn, u32_t value);
/* Before lwIP dials, local address and port set: the SYN offers them. */
void net_ts_offer(struct net_conn *conn, const ip_addr_t *remote, u16_t port);
/* Whether a SYN, or what stands for one, offers what we may accept. */
bool net_ts_offered(const struct tcp_hdr *syn, struct net_ts *out);
/* Of a connection in SYN_SENT, before lwIP sees a segment for it. */
void net_ts_answered(struct net_conn *conn, const struct tcp_hdr *tcp);
/*
 * Of the ACK that is being received, which has no connection: whether its
 * option echoes what we have sent to its source within age_ns, which nobody
 * else knows. So both sides have agreed on timestamps in a handshake of which
 * nothing was kept.
 */
bool net_ts_returned(const struct tcp_hdr *ack, int64_t age_ns,
		     struct net_ts *out);
/* Of tcp_ticks, 24 days: then the peer's clock may have wrapped. */
#define NET_TS_AGE (UINT32_C(24 * 24 * 3600) * 1000 / TCP_SLOW_INTERVAL)

/*
 * PAWS, RFC 7323 5.3 R1 and 5.5: whether a segment is from an earlier turn.
 * TS.Recent is about as old as the last segment.
 */
static inline bool net_ts_is_old(const struct net_conn *conn, u32_t value)
{
	return (s32_t)(value - conn->pcb.ts_recent) < 0 &&
	       tcp_ticks - conn->pcb.tmr <= NET_TS_AGE;
}

/*
 * RFC 7323 4.3: what a segment that is acceptable says is echoed from now on if
 * it reaches back to Last.ACK.sent, which is RCV.NXT unless an ACK is owed. So
 * of several that are acknowledged together the earliest counts.
 */
static inline void net_ts_note(struct net_conn *conn, u32_t seq, u32_t value)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (TCP_SEQ_LEQ(seq, pcb->rcv_nxt) &&
	    !(pcb->flags & (TF_ACK_DELAY | TF_ACK_NOW)))
		conn->pcb.ts_recent = value;
}

/* ---- time_wait.c ---- */
int net_time_wait_init(void);
void net_time_wait_fini(void);
/*
 * Of a living connection in TIME_WAIT: whether it has become a record, and its
 * control block is gone.
 */
bool net_time_wait_check(struct net_conn *conn);
/*
 * Whether the segment at hand, of no connection, is for a record: it has been
 * answered then. A SYN that opens one anew is not: the record is gone, and the
 * new connection's first number is set.
 */
bool net_time_wait_input(const struct pbuf *p);
/* Whether no record is in the way of dialing; one that can gives way. */
bool net_time_wait_yields(const ip_addr_t *local, u16_t local_port,
			  const ip_addr_t *remote, u16_t remote_port);

/* ---- half_open.c ---- */
enum net_half_open_input {
	NET_HALF_OPEN_NONE,   /* the segment is of no record */
	NET_HALF_OPEN_TAKEN,  /* it has been dealt with */
	NET_HALF_OPEN_OPENED, /* it has made a connection */
};

int net_half_open_init(void);
void net_half_open_fini(void);
/* Whether a listener's SYN may become a record, or is one too many. */
bool net_half_open_may(const struct net_listener *listener);
/*
 * Answers the SYN at hand, checked and admitted, and keeps a record of it.
 * False: there is no memory for that.
 */
bool net_half_open_begin(struct net_listener *listener,
			 const struct tcp_hdr *syn);
/* Of the segment at hand, of no connection. */
enum net_half_open_input net_half_open_input(const struct pbuf *p,
					     struct net_conn **out);
void net_half_open_reset_all(void);

/* ---- orphan.c ---- */
/* Its owner has let go of a living connection, not in TIME_WAIT. */
void net_orphan_enter(struct net_conn *conn);
void net_orphan_leave(struct net_conn *conn);
bool net_orphan_recycle(void); /* ends the oldest; false: there is none */
/* Whether --max-conns allows one more, for which the oldest orphan may end. */
bool net_orphan_make_room(void);
/* Whether their peers have acknowledged everything. */
bool net_orphans_delivered(void);

/* ---- ooseq.c: what came before its turn; held if pcb.rcv_sacks ---- */
/*
 * Of a segment with data or a FIN that lies ahead, both are kept and answered.
 * Returns what lwIP is to see of it, NULL: nothing. Owns p.
 */
struct pbuf *net_ooseq_take(struct net_conn *conn, struct pbuf *p);
/*
 * After data has come in order, of a living connection: what follows it goes to
 * the reader. Returns a FIN whose turn it is, for lwIP; NULL: there is none.
 */
struct pbuf *net_ooseq_deliver(struct net_conn *conn);
void net_ooseq_clear(struct net_conn *conn);
/* Acknowledges, and says which numbers have come more than once. */
void net_ooseq_say_twice(struct net_conn *conn, u32_t left, u32_t right);
/* Copies what lies in frames into memory, as far as there is memory. */
void net_ooseq_copy_frames(struct net_conn *conn);
unsigned net_ooseq_frames(const struct net_conn *conn); /* walks */
uint64_t net_ooseq_bytes(const struct net_conn *conn);	/* of memory, about */

/* ---- syn_limit.c ---- */
/*
 * Whether a listener may answer one more SYN with a cookie. If not and it is
 * full, SYNs to it are shed for a while.
 */
bool net_syn_limit_cookie(struct net_listener *listener, bool full);
/* Frees what is to be shed of a burst; how many frames are left, in order. */
unsigned net_syn_limit_shed(const struct net_port *port,
			    struct glue_frame **frames, unsigned n);

/* ---- cookie.c ---- */
enum net_cookie { NET_COOKIE_NONE, NET_COOKIE_NO_ROOM, NET_COOKIE_TAKEN };

void net_cookie_init(void);
bool net_cookie_hot(void);
/* Whether the ACK that is being received bears one. */
bool net_cookie_is_in(const struct tcp_hdr *ack);
/* Answers the SYN that is being received. */
void net_cookie_send(const struct pbuf *p);
/*
 * Of the ACK that is being received: whether it bears a cookie of the
 * listener's, and the connection that was made of it.
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
/* For a connection from local to a destination; for a listener. */
struct net_ephemeral net_ephemeral_dial(const ip_addr_t *local,
					const ip_addr_t *remote,
					u16_t remote_port);
struct net_ephemeral net_ephemeral_listen(void);
/* The next to try; net_port_count() calls give each port once. */
u16_t net_ephemeral_next(struct net_ephemeral *search);

/* ---- reply.c ---- */
struct net_reply {
	u8_t ttl, tos; /* 0: TCP_TTL */
	const ip_addr_t *from, *to;
	u16_t from_port, to_port;
	u32_t seq, ack;
	u8_t flags;
	u16_t wnd;
	uint8_t options[12 + NET_TS_BYTES];
	u8_t options_len; /* a multiple of 4 */
};

/* False: the port has no room, or memory is short. */
bool net_reply_send(const struct net_reply *reply);

/* What tcp.c and tcp_in.c call for tcp_rst() and tcp_rst_netif(). */
void net_rst_abort(const struct tcp_pcb *pcb, u32_t seq, u32_t ack,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   u16_t local_port, u16_t remote_port);
void net_rst_reply(const struct tcp_pcb *pcb, u32_t seg_ack, u32_t seg_end,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   u16_t local_port, u16_t remote_port);
void net_rst_netif(struct netif *netif, u32_t seg_ack, u32_t seg_end,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   u16_t local_port, u16_t remote_port);

/* ---- too_big.c ---- */
/* An ICMP "needs fragments" or "too big", checked by dpdk_glue; borrowed. */
void net_too_big_input(const struct net_port *port,
		       const struct glue_frame *frame);

/* ---- timer.c ---- */
void net_timer_init(struct net_conn *conn);
void net_timer_check(struct net_conn *conn); /* arm if there is a reason */
void net_timers_set_clock(void);

/* ---- output.c ---- */
int net_output_init(unsigned max_conns);
void net_output_fini(void);
bool net_output_has_room(void); /* for one more connection in its queue */
void net_output_all(void);

/* ---- random.c ---- */
int net_random_init(void);
void net_random_fini(void);
/* Of a connection's addresses and ports, unpredictable without our key. */
uint64_t net_tuple_hash(const ip_addr_t *local, u16_t local_port,
			const ip_addr_t *remote, u16_t remote_port);
u16_t net_ip_id(const ip4_addr_t *dest);
