/*
 * lwIP as coronet builds it: no threads, raw API, both IP versions, no timers
 * of its own, checksums left to dpdk_glue.
 */
#pragma once

#include "netstack/lwip/pcb_layout.h"

/* One thread, no operating system underneath. */
#define NO_SYS		     1
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN	     0
#define LWIP_SOCKET	     0
#define LWIP_TIMERS	     0 /* tcp/timer.c and coro's wheel */

/* Memory: mem.c calls netstack's slabs; memp.c is netstack's own. */
void *net_mem_malloc(unsigned long size);
void *net_mem_calloc(unsigned long count, unsigned long size);
void net_mem_free(void *mem);
#define MEM_CUSTOM_ALLOCATOR 1
#define MEM_LIBC_MALLOC	     0
#define MEM_CUSTOM_MALLOC    net_mem_malloc
#define MEM_CUSTOM_CALLOC    net_mem_calloc
#define MEM_CUSTOM_FREE	     net_mem_free
#define MEM_ALIGNMENT	     8
#define MEMP_NUM_TCP_PCB     (1 << 20)
#define MEMP_NUM_TCP_SEG     (1 << 22)
#define MEMP_NUM_PBUF	     (1 << 22)
#define PBUF_POOL_SIZE	     256
#define MEMP_NUM_ARP_QUEUE   4096
#define MEMP_NUM_ND6_QUEUE   1024
#define MEMP_NUM_IGMP_GROUP  4096 /* udp/group.c bounds those of a link */
#define MEMP_NUM_MLD6_GROUP  4096

/* Layers. */
#define LWIP_ARP		      1
#define LWIP_ETHERNET		      1
#define LWIP_IPV4		      1
#define LWIP_IPV6		      1
#define LWIP_ICMP		      1
#define LWIP_UDP		      1
#define LWIP_TCP		      1
#define LWIP_RAW		      0
#define LWIP_DHCP		      0
#define LWIP_ACD		      0
#define LWIP_IGMP		      1
#define LWIP_MULTICAST_TX_OPTIONS     1 /* igmp.c wants it */
#define IP_REASSEMBLY		      0 /* fragments are an attacker's tool */
#define IP_FRAG			      0
#define LWIP_IPV6_REASS		      0
#define LWIP_IPV6_FRAG		      0
#define LWIP_IPV6_DHCP6		      0
#define LWIP_IPV6_AUTOCONFIG	      0 /* addresses are the user's */
#define LWIP_IPV6_SEND_ROUTER_SOLICIT 0
#define LWIP_IPV6_DUP_DETECT_ATTEMPTS 0
#define LWIP_IPV6_NUM_ADDRESSES	      8
#define IP_DEFAULT_TTL		      64
#define LWIP_ICMP6_HL		      64

/* Neighbours. */
#define ARP_TABLE_SIZE		  512 /* a quarter for strangers */
#define ARP_QUEUEING		  1
#define ARP_QUEUE_LEN		  1024 /* a burst of SYNs waits for one answer */
#define LWIP_ND6_NUM_NEIGHBORS	  127  /* as many as lwIP can */
#define LWIP_ND6_NUM_DESTINATIONS 64
#define LWIP_ND6_QUEUEING	  1

/* TCP. */
#define TCP_TMR_INTERVAL	 20 /* ms; RTO floor 3 slow ticks: 120 ms */
#define TCP_MSL			 500
#define LWIP_TCP_RTO_TIME	 1000 /* RFC 6298 2.1 */
#define TCP_MSS			 8960 /* the port's MTU lowers it */
#define LWIP_WND_SCALE		 1
#define TCP_RCV_SCALE		 3 /* at least: conn/rcv_wnd.c says */
#define LWIP_RCV_SCALE		 net_rcv_scale()
#define TCP_WND			 (256 * 1024) /* at first */
#define TCP_SND_BUF		 (256 * 1024)
#define TCP_SND_QUEUELEN	 65000 /* 64 MiB of full segments */
#define TCP_SNDLOWAT		 16384 /* unused by the raw API */
#define TCP_WND_UPDATE_THRESHOLD (TCP_WND_MAX(pcb) / 4) /* scaled or not */
#define TCP_OVERSIZE		 TCP_MSS
#define LWIP_TCP_SACK_OUT	 1
#define LWIP_TCP_MAX_SACK_NUM	 4
#define LWIP_RCV_SACKS		 *rcv_sacks /* tcp/ooseq.c; NULL: none */
#define LWIP_OWN_SACKS		 0
#define TCP_QUEUE_OOSEQ		 0 /* lwIP is given none */
#define LWIP_TCP_KEEPALIVE	 1
#define TCP_LISTEN_BACKLOG	 0 /* counted by netstack, without its limit */
#define LWIP_CALLBACK_API	 0
#define LWIP_EVENT_API		 1 /* one event function: a smaller pcb */
#define SO_REUSE		 0
#define LWIP_TF_INFR		 0 /* the bit is NET_TF_TRACED */

/* dpdk_glue checks and fills IP, TCP and UDP checksums. */
#define CHECKSUM_GEN_IP	     0
#define CHECKSUM_GEN_UDP     0
#define CHECKSUM_GEN_TCP     0
#define CHECKSUM_CHECK_IP    0
#define CHECKSUM_CHECK_UDP   0
#define CHECKSUM_CHECK_TCP   0
#define CHECKSUM_GEN_ICMP    1
#define CHECKSUM_GEN_ICMP6   1
#define CHECKSUM_CHECK_ICMP  1
#define CHECKSUM_CHECK_ICMP6 1

#define LWIP_NETIF_TX_SINGLE_PBUF 0
#define LWIP_SUPPORT_CUSTOM_PBUF  1
#define LWIP_STATS		  0

/* ip4.h looks for this one before it reads the hooks. */
#define LWIP_HOOK_IP4_ROUTE_SRC(src, dest) net_route_src4(src, dest)
#define LWIP_HOOK_FILENAME		   "netstack/lwip/hooks.h"
