/*
 * The order of the fields of lwIP's tcp_pcb, in cache lines. lwIP orders them
 * by subject, so that an echo would touch every line of a connection. Here the
 * first three lines have the fields for finding a connection, for an expected
 * segment and for the response. The fourth line has the rest, and struct
 * net_conn continues in it. A few fields of netstack/ fill gaps here; state.h
 * checks the offsets.
 *
 * Some fields of lwIP are never set here, or follow from another field. An edit
 * of lwIP replaces them by LWIP_PCB(), which yields their value: an assignment
 * to them has no effect.
 */
#pragma once

/* lwIP's own types stay in its header, with their constants, but are unused. */
#define LWIP_STOCK_PCB	  tcp_pcb_stock
#define LWIP_STOCK_LISTEN tcp_pcb_listen_stock

#define LWIP_PCB_FIELDS(type)                                                  \
	/* finding it: 48 bytes of addresses, 4 of IP's options */             \
	IP_PCB;                                                                \
	uint16_t local_port, remote_port; /* in this order: demux.c */         \
	struct net_conn *hash_next;                                            \
                                                                               \
	/* state and exceptions, the windows, both queues */                   \
	enum tcp_state state : 8;                                              \
	uint8_t nrtx;                                                          \
	tcpflags_t flags;                                                      \
	uint16_t mss;                                                          \
	int16_t rtime;                                                         \
	struct tcp_sack_range *rcv_sacks;                                      \
	uint32_t rcv_nxt;                                                      \
	tcpwnd_size_t rcv_wnd, rcv_ann_wnd;                                    \
	uint32_t rcv_ann_right_edge;                                           \
	struct tcp_seg *unsent, *unacked;                                      \
	uint32_t snd_nxt, lastack;                                             \
	tcpwnd_size_t snd_wnd, cwnd;                                           \
                                                                               \
	/* other fields that a segment reads or updates */                     \
	tcpwnd_size_t ssthresh;                                                \
	uint32_t snd_wl1, snd_wl2, snd_lbb;                                    \
	tcpwnd_size_t snd_wnd_max, snd_buf;                                    \
	uint16_t snd_queuelen, unsent_oversize;                                \
	int32_t unsent_near; /* lwip/ends.c */                                 \
	uint32_t rcv_max, tmr;                                                 \
	uint32_t min_rtt_us; /* recovery/rtt.c */                              \
	tcpwnd_size_t bytes_acked;                                             \
	int16_t rto;                                                           \
	uint8_t dupacks;                                                       \
	union {                                                                \
		uint8_t persist_backoff; /* lwIP's index of a duration */      \
		uint8_t persist_on;	 /* data waits for the window */       \
	};                                                                     \
	uint8_t persist_probe;                                                 \
	union {                                                                \
		uint8_t persist_cnt;   /* lwIP's count of ticks */             \
		uint8_t persist_steps; /* doublings and 1; 0: not armed */     \
	};                                                                     \
	uint8_t keep_cnt_sent;                                                 \
	uint8_t snd_scale : 4, rcv_scale : 4;                                  \
	uint32_t ts_recent; /* TS.Recent, which is as old as tmr */            \
	uint32_t ts_offset; /* our timestamps minus the clock's */             \
                                                                               \
	/* fields that are rarely used */                                      \
	union {                                                                \
		type *next;	  /* of lwIP's list of active pcbs */          \
		type *ended_prev; /* conn/ended.c */                           \
	};                                                                     \
	uint32_t                                                               \
		persist_due_us; /* recovery/persist.c, with the three above */ \
	uint32_t rcv_mark, rcv_mark_us;                                        \
	uint32_t keep_idle_s : 20, keep_probes : 8;                            \
	uint32_t is_broken : 1; /* an assertion failed: lwip/hooks.c */        \
	union {                                                                \
		struct {                                                       \
			uint32_t keep_intvl_s : 20;                            \
			uint32_t last_timer : 8; /* lwIP's, in its ticks */    \
		};                                                             \
		struct {                                                       \
			uint32_t : 20;                                         \
			uint32_t                                               \
				tick_at : 8; /* when lwIP's is due: timer.c */ \
		};                                                             \
	};                                                                     \
	uint16_t own_port; /* local_port, which lwIP clears at the end */      \
	uint16_t rate_cap; /* recovery/pacing.c; 0: none */

/* Both have these fields, since lwIP casts one to the other in its walks. */
#define LWIP_TCP_PCB                                                           \
	struct tcp_pcb {                                                       \
		LWIP_PCB_FIELDS(struct tcp_pcb)                                \
	};                                                                     \
	struct tcp_pcb_listen {                                                \
		LWIP_PCB_FIELDS(struct tcp_pcb_listen)                         \
	};

/* An rvalue that lwIP may assign to, without effect. */
#define LWIP_PCB(pcb, field)   (*LWIP_PCB_##field(pcb))
#define LWIP_PCB_NO(type, was) ((type[]){was})

/* The connection, while its owner gets events; pcb may be a listener. */
#define LWIP_PCB_callback_arg(pcb)                                             \
	LWIP_PCB_NO(void *, net_pcb_arg((struct tcp_pcb *)(pcb)))
/* lwip/event.c refuses nothing. */
#define LWIP_PCB_refused_data(pcb) LWIP_PCB_NO(struct pbuf *, NULL)
/* recovery/rtt.c measures. */
#define LWIP_PCB_rttest(pcb) LWIP_PCB_NO(uint32_t, 0)
#define LWIP_PCB_rtseq(pcb)  LWIP_PCB_NO(uint32_t, 0)
#define LWIP_PCB_sa(pcb)     LWIP_PCB_NO(int16_t, 0)
#define LWIP_PCB_sv(pcb)                                                       \
	LWIP_PCB_NO(int16_t, LWIP_TCP_RTO_TIME / TCP_SLOW_INTERVAL)
/* recovery/ repeats data; the timeout of a SYN ends with the handshake. */
#define LWIP_PCB_rto_end(pcb) LWIP_PCB_NO(uint32_t, (pcb)->lastack)
/* There is no polling, and connections have no priorities. */
#define LWIP_PCB_polltmr(pcb)	   LWIP_PCB_NO(uint8_t, 0)
#define LWIP_PCB_pollinterval(pcb) LWIP_PCB_NO(uint8_t, 0)
#define LWIP_PCB_prio(pcb)	   LWIP_PCB_NO(uint8_t, TCP_PRIO_NORMAL)
/* Stored in seconds, the unit of net_set_keepalive(). */
#define LWIP_PCB_keep_idle(pcb)                                                \
	LWIP_PCB_NO(uint32_t, (pcb)->keep_idle_s * 1000u)
#define LWIP_PCB_keep_intvl(pcb)                                               \
	LWIP_PCB_NO(uint32_t, (pcb)->keep_intvl_s * 1000u)
#define LWIP_PCB_keep_cnt(pcb) LWIP_PCB_NO(uint32_t, net_pcb_keep_cnt(pcb))
