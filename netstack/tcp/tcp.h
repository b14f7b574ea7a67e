/*
 * The parts of TCP that lwIP does not do: finding the connection of a segment,
 * deciding whether lwIP may see it, connections without an owner (half-open,
 * orphaned, in TIME_WAIT), timers, the output phase.
 *
 * Every call acts on the shard of the calling thread. TCP ports are in host
 * byte order; "the current segment" is the one that lwIP's ip_data describes.
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
/* net_tcp_input() when the caller has found the connection, or NULL: none. */
void net_tcp_input_found(struct net_conn *conn, struct pbuf *p,
			 struct netif *inp);
/*
 * Takes all pcbs off lwIP's lists, and enters new ones into the hash table.
 * Called after lwIP has worked on a connection.
 */
void net_pcbs_take_back(void);

/* ---- burst.c ---- */
/*
 * Processes n TCP frames of a port, at most GLUE_BURST, and owns them. Each
 * frame holds one unfragmented segment to the port's first interface, which is
 * up; its checksums are verified, and IPv6 has no extension headers.
 */
void net_tcp_input_burst(struct net_port *port,
			 struct glue_frame *const *frames, unsigned n);
/*
 * Defined in link/neighbour.c: a connection to `dest` through an interface
 * makes progress, so its neighbour is reachable (RFC 4861 7.3.1).
 */
void net_link_confirm6(const struct netif *netif, const ip6_addr_t *dest);

/* ---- predict.c ---- */
/*
 * Header prediction: processes a segment if it is the next one expected. p
 * begins with the TCP header and is one piece; ip_data is not needed. Returns
 * true if the segment was processed and p is freed; otherwise the caller keeps
 * p.
 */
bool net_predict_input(struct net_conn *conn, struct pbuf *p);
/*
 * Consecutive segments of a connection are processed together, as GRO does.
 * Returns whether this connection allows that after net_predict_input() has
 * processed the first one.
 */
static inline bool net_predict_runs(const struct net_conn *conn)
{
	return conn->pcb.state == ESTABLISHED && !conn->watched &&
	       !conn->has_recovery;
}
/*
 * net_predict_next() queues p if it is the next data of the connection and
 * net_predict_runs(). Returns true if it was queued; it then owns p. After the
 * last segment, before anything else happens, the caller calls
 * net_predict_settle(), which updates the window, wakes the reader, and
 * requests the ACK and the timer.
 */
bool net_predict_next(struct net_conn *conn, struct pbuf *p);
void net_predict_settle(struct net_conn *conn);

/* ---- predict_out.c; recovery/recovery.h declares net_predict_output() ---- */
/*
 * Queue len bytes (not 0) as tcp_write() would: net_predict_write() copies
 * them, net_predict_refer() borrows them until they are acknowledged. They
 * return ERR_OK or ERR_MEM as tcp_write() does, or ERR_INPROGRESS: the caller
 * must use tcp_write().
 */
err_t net_predict_write(struct net_conn *conn, const void *data, uint16_t len);
err_t net_predict_refer(struct net_conn *conn, const void *data, uint16_t len);
/*
 * Defined in link/output.c: sends the segment in p, a chain that begins with
 * the TCP header; borrowed. Returns false if its neighbour is not known or the
 * port has no free frame.
 */
bool net_link_send_tcp(const struct tcp_pcb *pcb, const struct pbuf *p);

/* ---- predict_close.c ---- */
/*
 * Closes a connection as tcp_close() does, if it has sent all written data and
 * its owner has read all received data. Returns false if it did nothing.
 */
bool net_predict_close(struct net_conn *conn);

/* ---- lwip/pcb.c ---- */
/*
 * Makes a connection whose pcb is as tcp_alloc() returns it, without lwIP. May
 * reset the oldest orphan for it. NULL: no memory, or --max-conns is reached.
 */
struct net_conn *net_conn_new(void);
/* Called when the pcb was freed, by lwIP or by code that replaces lwIP's. */
void net_conn_pcb_freed(struct net_conn *conn);

/* ---- demux.c ---- */
int net_demux_init(unsigned max_conns); /* 0 or -ENOMEM */
void net_demux_fini(void);
uint32_t net_demux_hash(const ip_addr_t *local, uint16_t local_port,
			const ip_addr_t *remote, uint16_t remote_port);
/* The connection with these addresses and ports; NULL: none. */
struct net_conn *net_demux_find(const ip_addr_t *local, uint16_t local_port,
				const ip_addr_t *remote, uint16_t remote_port);
/* net_demux_find() for a caller that has the net_demux_hash() already. */
struct net_conn *net_demux_find_hashed(uint32_t hash, const ip_addr_t *local,
				       uint16_t local_port,
				       const ip_addr_t *remote,
				       uint16_t remote_port);
/*
 * net_demux_find_hashed() for IPv4 addresses in network byte order. Stores the
 * hash in rx_hash.
 */
struct net_conn *net_demux_find4(uint32_t hash, uint32_t local,
				 uint16_t local_port, uint32_t remote,
				 uint16_t remote_port);
/*
 * Finds the connection of the current segment, and stores the segment's hash in
 * rx_hash.
 */
struct net_conn *net_demux_find_current(const struct tcp_hdr *tcp);
void net_demux_insert(struct net_conn *conn);
/* The same for a caller that has the connection's net_demux_hash() already. */
void net_demux_insert_hashed(struct net_conn *conn, uint32_t hash);
void net_demux_remove(struct net_conn *conn);
/* The hash of a connection's addresses and ports. */
uint32_t net_demux_hash_of(const struct net_conn *conn);
/*
 * Called when a connection begins, once its addresses are set: decides whether
 * it is traced. how: "accepted" or the like; static.
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
/*
 * Calls fn for each connection in the hash table. fn may free it and others;
 * then those of the same bucket are visited again.
 */
void net_for_each_conn(void (*fn)(struct net_conn *conn));

/* ---- local_index.c: addresses in a record ---- */
#define NET_LOCAL_BITS 11 /* the owner may use the others */

/*
 * The index of one of the stack's addresses in the table of addresses, and a
 * bit that is set for IPv6. Returns false if the stack does not use it.
 */
bool net_local_index_of(const ip_addr_t *local, uint16_t *out);
const ip_addr_t *net_local_index_ip(uint16_t local_index);
/*
 * Pack and unpack a peer's address. The words are in network byte order;
 * local_index is the index of the connection's local address, which determines
 * the IP version.
 */
void net_remote_pack(const ip_addr_t *ip, uint32_t words[4], uint8_t *zone);
ip_addr_t net_remote_unpack(const uint32_t words[4], uint16_t local_index,
			    uint8_t zone);

/* ---- handshake.c ---- */
/* The options that a SYN offers. */
struct net_syn_options {
	uint32_t ts;	    /* if has_ts: RFC 7323 */
	uint16_t mss;	    /* the peer's; the default if it sent none; once
			       the SYN is answered, no more than ours */
	uint8_t wscale : 4; /* NET_NO_WSCALE: none */
	uint8_t sack : 1;
	uint8_t has_ts : 1;
	uint8_t ecn : 1; /* RFC 3168 */
};
#define NET_NO_WSCALE 15u

struct net_reply;

/* Reads the options of the current SYN, which net_check_header() has passed. */
void net_syn_read(const struct tcp_hdr *syn, struct net_syn_options *out);
/*
 * Appends a timestamp to the options of a reply, if the SYN offered timestamps.
 */
void net_ts_answer(const struct net_syn_options *options,
		   struct net_reply *reply);
/*
 * Sets the window and the options of a SYN-ACK, whose addresses are set. Lowers
 * options->mss to what the interface takes.
 */
void net_syn_answer(struct net_syn_options *options, struct net_reply *reply);

/* The state of a handshake when its last segment arrives. */
struct net_opening {
	struct net_listener *listener;
	struct net_syn_options options;
	uint32_t iss, irs; /* initial sequence numbers, ours and the peer's */
	uint16_t wnd;	   /* of the SYN; 0: unknown */
	uint32_t rtt_us;   /* 0: not measured */
	unsigned timeouts, resent; /* of the SYN-ACK */
};

/*
 * The current segment acknowledges our SYN-ACK: creates the established
 * connection, applies the segment's ACK and window, and hands the connection to
 * its listener; a client that was admitted is counted. The caller processes the
 * segment's data and other flags. Returns 0 with *out, -ENOMEM, or
 * -ECONNABORTED (the listener did not accept it, and it was reset).
 */
int net_handshake_open(const struct net_opening *opening,
		       const struct tcp_hdr *tcp, struct net_conn **out);
/*
 * Defined in api/listen.c: hands an established connection to its listener.
 * Returns ERR_OK, or ERR_MEM: the caller resets the connection.
 */
err_t net_listener_established(struct net_conn *conn);
/*
 * Called after lwIP has processed a handshake segment: corrects the values that
 * lwIP computes differently (MSS, windows). before: the connection's state
 * before it. The connection is the one on lwIP's list; if there is none, it has
 * ended.
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
 * connection, which is not freed. If it returns true, it has set the initial
 * sequence number of the new connection.
 */
bool net_handshake_renews(const struct tcp_hdr *tcp,
			  const struct net_past *past);
/*
 * Simultaneous open, for a connection in SYN_SENT: if the segment, which was
 * checked, is a SYN without an ACK, answers it, enters SYN_RCVD and returns
 * true.
 */
bool net_handshake_crossed(struct net_conn *conn, const struct tcp_hdr *tcp);

/* ---- check.c: p begins with the TCP header, as it came ---- */
/* Returns whether the header's length, flags and options are valid. */
bool net_check_header(const struct pbuf *p);
/*
 * Returns whether lwIP may see a connection's segment; *p may be replaced by a
 * copy. If it returns false, it has answered the segment if necessary.
 */
bool net_check_conn(struct net_conn *conn, struct pbuf **p);
/* net_check_conn() for the segment that created the connection. */
bool net_check_opened(struct net_conn *conn, struct pbuf **p);
/* Returns whether a segment without a connection may be answered. */
bool net_check_stranger(struct pbuf *p);

#define NET_OPT_END	0
#define NET_OPT_NOP	1
#define NET_OPT_MSS	2
#define NET_OPT_WSCALE	3
#define NET_OPT_SACK_OK 4
#define NET_OPT_TS	8

/* Finds an option in a checked header; NULL: there is none of this kind. */
const uint8_t *net_tcp_option(const struct tcp_hdr *tcp, uint8_t kind);

/* ---- timestamps.c: RFC 7323 (see recovery/recovery.h for output) ---- */
struct net_ts {
	uint32_t value, echo; /* TSval, TSecr */
};

/* Reads the option of a checked header. Returns false if there is none. */
bool net_ts_read(const struct tcp_hdr *tcp, struct net_ts *out);
/* The offset that a connection adds to the clock for its timestamps. */
uint32_t net_ts_offset(const ip_addr_t *local, uint16_t local_port,
		       const ip_addr_t *remote, uint16_t remote_port);
/* Enables timestamps on a new connection; value: TSval of the peer's SYN. */
void net_ts_accept(struct net_conn *conn, uint32_t value);
/*
 * Makes the SYN offer timestamps, unless they are off. Called before lwIP
 * dials, once the local address and port are set.
 */
void net_ts_offer(struct net_conn *conn, const ip_addr_t *remote,
		  uint16_t port);
/*
 * Returns whether a SYN, or the ACK of a cookie, offers timestamps that may be
 * accepted.
 */
bool net_ts_offered(const struct tcp_hdr *syn, struct net_ts *out);
/*
 * Called for a connection in SYN_SENT, before lwIP sees a segment for it: notes
 * the timestamp of a SYN or SYN-ACK, or stops using timestamps without one.
 */
void net_ts_answered(struct net_conn *conn, const struct tcp_hdr *tcp);
/*
 * For an ACK without a connection: returns whether its option echoes a
 * timestamp that we sent to its source within the last age_ns. Nobody else
 * knows that value, so both sides agreed on timestamps in a handshake that left
 * no record here.
 */
bool net_ts_returned(const struct tcp_hdr *ack, int64_t age_ns,
		     struct net_ts *out);
/* 24 days, in tcp_ticks: after that the peer's clock may have wrapped. */
#define NET_TS_AGE (UINT32_C(24 * 24 * 3600) * 1000 / TCP_SLOW_INTERVAL)

/*
 * PAWS, RFC 7323 5.3 R1 and 5.5: whether a segment with this TSval is from an
 * earlier turn of the sequence numbers. TS.Recent is about as old as the last
 * segment.
 */
static inline bool net_ts_is_old(const struct net_conn *conn, uint32_t value)
{
	return (int32_t)(value - conn->pcb.ts_recent) < 0 &&
	       tcp_ticks - conn->pcb.tmr <= NET_TS_AGE;
}

/*
 * RFC 7323 4.3: the timestamp of an acceptable segment is echoed from now on if
 * the segment begins at or before Last.ACK.sent, which is RCV.NXT unless an ACK
 * is pending. So one ACK of several segments echoes the earliest of them.
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

int net_time_wait_init(void); /* 0 or -ENOMEM */
void net_time_wait_fini(void);
/*
 * Called when a connection has entered TIME_WAIT: replaces it by a record, if
 * possible. Returns true if it did, and the pcb is freed.
 */
bool net_time_wait_check(struct net_conn *conn);
/*
 * Returns whether the current segment, which has no connection, belongs to a
 * record; if so, it has been answered. For a SYN that reopens the connection it
 * frees the record, sets the new connection's initial sequence number and
 * returns false.
 */
bool net_time_wait_input(const struct pbuf *p);
/*
 * Returns whether a connection between these addresses may be dialed: they have
 * no record, or the record could be freed.
 */
bool net_time_wait_yields(const ip_addr_t *local, uint16_t local_port,
			  const ip_addr_t *remote, uint16_t remote_port);

/* ---- half_open.c ---- */
enum net_half_open_input {
	NET_HALF_OPEN_NONE,   /* the segment belongs to no record */
	NET_HALF_OPEN_TAKEN,  /* the segment has been processed */
	NET_HALF_OPEN_OPENED, /* the segment has created a connection */
};

/*
 * Queues of half-open connections by the number of their timeouts so far; the
 * last queue is for SYN-ACKs that the port had no room for.
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
	int64_t retry_ns; /* when the last queue is sent again */
	struct coro_timer timer;
} net_half_opens __attribute__((visibility("hidden")));
#define net_half_opens NET_SHARD(net_half_opens)

int net_half_open_init(void); /* 0 or -ENOMEM */
void net_half_open_fini(void);
/*
 * Returns whether a SYN to the listener may become a record: the backlog and
 * the limits of the shard allow one more.
 */
bool net_half_open_may(const struct net_listener *listener);
/*
 * Answers the current SYN, which was checked and admitted, and keeps a record
 * of it. Returns false without memory, or if its destination is not in use.
 */
bool net_half_open_begin(struct net_listener *listener,
			 const struct tcp_hdr *syn);
/*
 * Processes the current segment, which has no connection. *out is set with
 * NET_HALF_OPEN_OPENED.
 */
enum net_half_open_input net_half_open_input(const struct pbuf *p,
					     struct net_conn **out);
/* Sends a reset for each half-open connection, and frees its record. */
void net_half_open_reset_all(void);

/* ---- orphan.c ---- */

/* The orphans of a shard (closed by their owners), in the order of closing. */
extern NET_SHARD_VAR struct net_orphan_list {
	struct net_conn *oldest, *newest;
	unsigned n;
} net_orphans __attribute__((visibility("hidden")));
#define net_orphans NET_SHARD(net_orphans)

/*
 * Called when the owner has closed a live connection, which becomes an orphan
 * unless it is in TIME_WAIT. May reset the oldest orphan.
 */
void net_orphan_enter(struct net_conn *conn);
void net_orphan_leave(struct net_conn *conn); /* if it is in the list */
bool net_orphan_recycle(void); /* resets the oldest; false: there is none */
/*
 * Returns whether --max-conns allows one more; the oldest orphan may be reset
 * for it.
 */
bool net_orphan_make_room(void);
/* Returns whether the peers of all orphans have acknowledged everything. */
bool net_orphans_delivered(void);

/* ---- ooseq.c: data out of order; held if pcb.rcv_sacks is not NULL ---- */
/*
 * Keeps the data and the FIN of a segment that is ahead of RCV.NXT, and
 * acknowledges it. Returns what lwIP must still process, a segment without
 * data; NULL: nothing. Owns p.
 */
struct pbuf *net_ooseq_take(struct net_conn *conn, struct pbuf *p);
/*
 * Called after data has arrived in order, if data is held: passes the held data
 * that follows to the reader. The connection is alive. Returns a FIN that is
 * next in order, for lwIP; NULL: there is none.
 */
struct pbuf *net_ooseq_deliver(struct net_conn *conn);
void net_ooseq_clear(struct net_conn *conn);
/*
 * Sends an ACK that reports the numbers from left to right as duplicates
 * (D-SACK).
 */
void net_ooseq_send_dsack(struct net_conn *conn, uint32_t left, uint32_t right);
/* Copies data that lies in frames into memory, as far as there is memory. */
void net_ooseq_copy_frames(struct net_conn *conn);
/* Frames of empty pools among the held data; walks the queue. */
unsigned net_ooseq_frames(const struct net_conn *conn);
uint64_t net_ooseq_bytes(const struct net_conn *conn); /* estimated memory */

/* ---- syn_limit.c ---- */
/*
 * Returns whether a listener may answer one more SYN with a cookie, which is
 * counted. If it may not and `full` is set, SYNs to it are shed for a while.
 */
bool net_syn_limit_cookie(struct net_listener *listener, bool full);
/*
 * Frees the frames of a burst whose SYNs are shed. Returns how many frames are
 * left, at the start of the array and in order.
 */
unsigned net_syn_limit_shed(const struct net_port *port,
			    struct glue_frame **frames, unsigned n);

/* ---- cookie.c ---- */
enum net_cookie { NET_COOKIE_NONE, NET_COOKIE_NO_ROOM, NET_COOKIE_TAKEN };

void net_cookie_init(void);
/* Returns whether a cookie was sent so recently that an ACK may return it. */
bool net_cookie_hot(void);
/* Returns whether the current segment, an ACK, carries a cookie. */
bool net_cookie_is_in(const struct tcp_hdr *ack);
/* Answers the current SYN with a SYN-ACK that carries a cookie. */
void net_cookie_send(const struct pbuf *p);
/*
 * Opens the connection of the current segment, an ACK, if it carries a cookie.
 * Returns NET_COOKIE_TAKEN with *out, NET_COOKIE_NONE (no valid cookie), or
 * NET_COOKIE_NO_ROOM (limits, memory, or the listener refuses the connection).
 */
enum net_cookie net_cookie_take(const struct pbuf *p,
				struct net_listener *listener,
				struct net_conn **out);

/* ---- ephemeral.c: a search for a free port ---- */

/* Ports chosen by the stack. */
#define NET_PORT_FIRST 16384u
#define NET_PORT_COUNT (65536u - NET_PORT_FIRST)
/*
 * The kernel's own ports begin here (ip(7)). A stack that shares an address
 * with the kernel does not use them.
 */
#define NET_PORT_KERNEL 32768u

/* The number of ports that the stack may choose from. */
static inline unsigned net_port_count(void)
{
	return net_here()->shares_ports ? NET_PORT_KERNEL - NET_PORT_FIRST
					: NET_PORT_COUNT;
}

struct net_ephemeral {
	uint32_t offset;
	uint32_t *counter;
};

void net_ephemeral_init(void);
/*
 * Begin a search: for a connection from `local` to a destination; and for a
 * listener.
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

/*
 * Sends a reply, or drops it if there is no route. Returns false if the port
 * has no room or memory is short.
 */
bool net_reply_send(const struct net_reply *reply);
/* Like net_link_send_tcp(), for a reply; p: its TCP header. */
bool net_link_send_reply(const struct net_reply *reply, const struct pbuf *p);

/*
 * lwIP's tcp.c and tcp_in.c call these in place of tcp_rst() (to abort a
 * connection, or to reply to a segment) and tcp_rst_netif(). pcb may be NULL.
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

/* Calls of lwIP's timers for a connection; tests read it. */
extern NET_SHARD_VAR uint64_t net_lwip_ticks
	__attribute__((visibility("hidden")));
#define net_lwip_ticks NET_SHARD(net_lwip_ticks)

void net_timer_init(struct net_conn *conn);
/*
 * Returns whether the timer fires within NET_FINE_NS. It is then not moved: if
 * it fires too early it is armed again, which is cheaper than moving it for
 * each packet.
 */
static inline bool net_timer_is_near(const struct net_conn *conn)
{
	return conn->timer.expires_ns <= net_here()->now_ns + NET_FINE_NS;
}
void net_timer_check(struct net_conn *conn); /* arms it if necessary */
/*
 * Arms the timer at the end of input. Most handlers answer in the same round,
 * so the output phase does it, once for the request and the answer. With
 * recovery state it is armed here, because one more output would change what
 * pacing allows.
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
/* Sets now_us and tcp_ticks from now_ns, at the start of a round. */
void net_timers_set_clock(void);

/* ---- output.c ---- */
/* The output phase: sends for queued connections while the ports have room. */
void net_output_all(void);

/* ---- random.c ---- */
int net_random_init(void); /* 0, -ENOMEM or -EIO (no random numbers) */
void net_random_fini(void);
/*
 * A hash of a connection's addresses and ports that cannot be predicted without
 * the stack's key.
 */
uint64_t net_tuple_hash(const ip_addr_t *local, uint16_t local_port,
			const ip_addr_t *remote, uint16_t remote_port);
/* The IPv4 identification of the next datagram, in network byte order. */
uint16_t net_ip_id(const ip4_addr_t *dest);
