/*
 * coronet's options for lwIP's own tests, changed only where the tests require
 * it.
 */
#pragma once

#include "netstack/lwip/lwipopts.h"

/* The tests count allocations of stock pools and the stock heap. */
#undef MEM_CUSTOM_ALLOCATOR
#undef MEM_CUSTOM_MALLOC
#undef MEM_CUSTOM_CALLOC
#undef MEM_CUSTOM_FREE
#undef LWIP_STATS
#undef MEMP_NUM_TCP_PCB
#undef MEMP_NUM_TCP_PCB_LISTEN
#undef MEMP_NUM_TCP_SEG
#undef MEMP_NUM_PBUF
#undef PBUF_POOL_SIZE
#define LWIP_STATS		1
#define MEM_SIZE		(1 << 20)
#define MEMP_NUM_TCP_PCB	8
#define MEMP_NUM_TCP_PCB_LISTEN 8
#define MEMP_NUM_TCP_SEG	TCP_SND_QUEUELEN
#define MEMP_NUM_PBUF		64
#define PBUF_POOL_SIZE		400

/*
 * The tests call these without the header; cc.h leaves them to the C library.
 */
#define htons(x) lwip_htons(x)
#define htonl(x) lwip_htonl(x)

/* The tests set a function for each event. */
#undef LWIP_CALLBACK_API
#undef LWIP_EVENT_API
#define LWIP_CALLBACK_API 1
#define LWIP_EVENT_API	  0

/*
 * The tests write TCP_WND into segments unscaled, and fill a send buffer that
 * is larger than the window.
 */
#undef TCP_MSS
#undef TCP_WND
#undef TCP_RCV_SCALE
#undef LWIP_RCV_SCALE
#undef TCP_SND_BUF
#undef TCP_SND_QUEUELEN
#define TCP_MSS		 1460
#define TCP_WND		 (10 * TCP_MSS)
#define TCP_RCV_SCALE	 0
#define LWIP_RCV_SCALE	 0
#define TCP_SND_BUF	 (12 * TCP_MSS)
#define TCP_SND_QUEUELEN 40

/* The tests inspect lwIP's own queue of segments out of order. */
#undef LWIP_RCV_SACKS
#undef LWIP_OWN_SACKS
#undef TCP_QUEUE_OOSEQ
#define LWIP_RCV_SACKS	rcv_sacks[LWIP_TCP_MAX_SACK_NUM]
#define LWIP_OWN_SACKS	1
#define TCP_QUEUE_OOSEQ 1

/* The tests inspect lwIP's own fast retransmission. */
#undef LWIP_TF_INFR
#define LWIP_TF_INFR TF_INFR

/*
 * The tests wait six slow ticks for the first retransmission, whatever a tick
 * is.
 */
#undef LWIP_TCP_RTO_TIME
#define LWIP_TCP_RTO_TIME (6 * TCP_SLOW_INTERVAL)

/* The tests name the pool of lwIP's timers, which netstack/ does not use. */
#undef LWIP_TIMERS
#define LWIP_TIMERS 1

/* ends.c has the only functions of netstack/ here: those patched lwIP calls. */
#undef LWIP_HOOK_IP4_ROUTE_SRC
#undef LWIP_HOOK_FILENAME
#define LWIP_HOOK_FILENAME "netstack/lwip/ends.h"

/* The tests use lwIP's stock pcb. */
#undef LWIP_STOCK_PCB
#undef LWIP_STOCK_LISTEN
#undef LWIP_TCP_PCB
#undef LWIP_PCB
#define LWIP_STOCK_PCB	  tcp_pcb
#define LWIP_STOCK_LISTEN tcp_pcb_listen
#define LWIP_TCP_PCB
#define LWIP_PCB(pcb, field) ((pcb)->field)
