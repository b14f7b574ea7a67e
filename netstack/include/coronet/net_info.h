/*
 * net_info.h - the state, the counters and the name of a connection. net.h
 * includes it.
 *
 * Called on the thread of the connection's shard, in a coroutine or outside.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct net_conn;

/* The states of RFC 9293 3.3.2. */
enum net_tcp_state {
	NET_TCP_CLOSED, /* over: only this handle is left */
	NET_TCP_LISTEN,
	NET_TCP_SYN_SENT,
	NET_TCP_SYN_RCVD,
	NET_TCP_ESTABLISHED,
	NET_TCP_FIN_WAIT_1,
	NET_TCP_FIN_WAIT_2,
	NET_TCP_CLOSE_WAIT,
	NET_TCP_CLOSING,
	NET_TCP_LAST_ACK,
	NET_TCP_TIME_WAIT,
};

/* Bits of net_tcp_info.absent: values that are not known, and are 0. */
enum net_info_absent {
	NET_INFO_NO_COUNTS = 1, /* no counters, see net_conn_stats */
	NET_INFO_NO_RTT = 2,	/* nothing has been measured yet */
	NET_INFO_NO_RATE = 4,	/* only BBR takes samples, while data moves */
	NET_INFO_NO_RCV = 8,	/* rcv_space: not measured yet */
	NET_INFO_NO_PATH = 16,	/* pmtu, advmss: over, or no route */
};

/*
 * The values of Linux's getsockopt(TCP_INFO), under its names without "tcpi_",
 * with its meanings and units (segments, bytes, microseconds; ms for last_*).
 * Where a value of Linux differs from its name, this one does too. Differences
 * from Linux:
 *
 * - Counters (marked *) begin with the connection, if it has counters
 *   (net_conn_stats). Linux counts a SYN in bytes_acked and delivered,
 *   and a FIN in bytes_acked and bytes_received; these do not. segs_in and
 *   segs_out include the handshake.
 * - sacked, lost, retrans and ca_state are about the segments in flight now,
 *   and are exact. ca_state is never 2 (CWR).
 * - snd_mss, rcv_mss and advmss are bytes of data: the bytes that timestamps
 *   take are left out, as on Linux.
 * - reordering is always 3: reordering is tolerated by time (RFC 8985).
 * - delivered assumes that no segment in flight was cut for a smaller MTU.
 * - busy_time, rwnd_limited and sndbuf_limited: the time of a round counts for
 *   the reason that holds the next segment back at the round's end.
 *   delivered_ce counts bytes, and is given in segments.
 * - rcv_rtt is min_rtt, which sizes the receive window. rcv_space begins with
 *   the first round trip in which something was read, and is updated (*) until
 *   the window has its largest size.
 * - last_ack_recv is the time since any segment was received, to 40 ms.
 *   last_ack_sent and fackets are 0, as on Linux.
 */
struct net_tcp_info {
	unsigned absent; /* bits of enum net_info_absent */
	/* 1 ESTABLISHED, SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, TIME_WAIT,
	 * CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, 11 CLOSING: Linux's numbers */
	uint8_t state;
	uint8_t ca_state;    /* 0 open, 1 disorder, 3 recovery, 4 loss */
	uint8_t retransmits; /* timeouts since the last progress */
	uint8_t probes;	     /* unanswered window or keepalive probes */
	uint8_t backoff;     /* doublings of the running timer */
	uint8_t options;     /* 1 timestamps, 2 SACK, 4 window scale */
	uint8_t snd_wscale, rcv_wscale;
	bool delivery_rate_app_limited;
	uint32_t rto, ato;	   /* us; ato: of delayed ACKs */
	uint32_t snd_mss, rcv_mss; /* rcv_mss: the longest received * */
	uint32_t unacked, sacked, lost, retrans, fackets; /* segments */
	uint32_t last_data_sent, last_ack_sent;		  /* ms ago * */
	uint32_t last_data_recv, last_ack_recv;
	uint32_t pmtu, rcv_ssthresh;   /* bytes; rcv_ssthresh: grown so far */
	uint32_t rtt, rttvar, min_rtt; /* us; min_rtt: of all samples */
	uint32_t snd_ssthresh;	       /* segments; 0x7fffffff: none yet */
	uint32_t snd_cwnd;	       /* segments, rounded down */
	uint32_t advmss, reordering, rcv_rtt, rcv_space;
	uint32_t total_retrans, total_rto;     /* segments, timeouts * */
	uint64_t pacing_rate, max_pacing_rate; /* B/s; UINT64_MAX: no limit */
	uint64_t bytes_acked, bytes_received;  /* * */
	uint64_t bytes_sent, bytes_retrans; /* * data; retransmissions count */
	uint32_t segs_out, segs_in;	    /* * including pure ACKs */
	uint32_t data_segs_out, data_segs_in; /* * those that carry data */
	uint32_t notsent_bytes;		      /* queued behind snd_nxt */
	uint64_t delivery_rate;		      /* B/s, of the last sample */
	uint64_t busy_time, rwnd_limited, sndbuf_limited; /* us * */
	uint32_t delivered, delivered_ce;		  /* segments * */
	/* * ACKs that reported a duplicate (RFC 2883), with data in flight */
	uint32_t dsack_dups;
	uint32_t reord_seen;	   /* * ACKs that revealed reordering */
	uint32_t rcv_ooopack;	   /* * segments received out of order */
	uint32_t snd_wnd, rcv_wnd; /* bytes: the peer's, the advertised */
};

/*
 * The state and counters of a connection. After it has ended, they have their
 * last values. The counters (below the line, and marked in net_tcp_info) take
 * 192 bytes per connection. A connection has counters if fewer than
 * net_opts.counted_conns connections had them when it began; for the others
 * they are 0.
 */
struct net_conn_stats {
	enum net_tcp_state state;
	uint32_t mss;		    /* bytes we send in a segment */
	uint32_t rtt_us, rttvar_us; /* RFC 6298; 0: not measured yet */
	uint32_t rto_us;	    /* retransmission timeout now */
	uint32_t cwnd, ssthresh;    /* congestion control, bytes */
	uint32_t snd_wnd, rcv_wnd;  /* bytes: the peer's window, ours */
	uint32_t unread;	    /* bytes received, not read */
	uint32_t unsent, unacked;   /* bytes queued, bytes in flight */
	uint32_t snd_una; /* moves on by each byte that the peer acknowledges */
	const char *cc;	  /* congestion control; static storage */
	uint64_t pacing_rate; /* bytes per second; 0: not paced */
	bool ecn;	      /* negotiated (RFC 3168) */
	/* ---- */
	bool counted;		     /* false: those below are 0 */
	uint64_t rx_bytes, tx_bytes; /* in order; each byte once */
	uint32_t rx_segs, tx_segs;   /* modulo 2^32, pure ACKs included */
	uint32_t retransmits;	     /* segments, for any reason */
	uint16_t rtos;		     /* timeouts; these three stop */
	uint16_t dup_acks;	     /* counting at 65,535 */
	uint16_t out_of_order;	     /* segments received out of order */
	struct net_tcp_info info;    /* these and more, as on Linux */
};

/*
 * Fills *out. Walks over the segments in flight, which takes less than a
 * microsecond for a hundred of them. Does not block. Returns 0 or -EBADF.
 */
int net_conn_stats(const struct net_conn *conn, struct net_conn_stats *out);

/*
 * Names a connection for coronet-ctl, the coroutines' dump and the watchdog.
 * The name is copied and cut to NET_NAME_MAX bytes with the NUL; control
 * characters become '?'. NULL removes the name. A connection without one is
 * shown under its handler's name. A name takes 64 bytes, and the first name on
 * a shard allocates a table. Returns 0, -EBADF or -ENOMEM.
 */
int net_conn_set_name(struct net_conn *conn, const char *name);

/*
 * Returns the name that net_conn_set_name() gave, NULL if there is none or conn
 * is NULL. Borrowed: valid until the connection is renamed or closed.
 */
const char *net_conn_name(const struct net_conn *conn);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
