/*
 * Events in the log: one line each, of key=value; docs/operate.md lists the
 * keys. An event that its component's level suppresses costs one test.
 *
 * Declared here for the code that detects an event; control/events.c writes the
 * lines.
 */
#pragma once

#include "netstack/program/log.h"

#include "lwip/ip_addr.h"

/*
 * The limit of lines a second for each kind of event; others are suppressed.
 */
#define NET_EVENTS_PER_S 100

struct net_conn;
struct net_listener;
struct tcp_hdr;

void net_event_say_opened(struct net_conn *conn, bool dialed);
void net_event_say_closed(struct net_conn *conn);
void net_event_say_refused(const struct tcp_hdr *tcp, const char *reason);
void net_event_say_dial(const struct net_addr *addr, int err);
void net_event_say_rto(struct net_conn *conn);
void net_event_say_unasked(const ip_addr_t *ip);
void net_event_say_listener(const struct net_listener *listener,
			    const char *event);

/* Called when the handshake is done. */
static inline void net_event_opened(struct net_conn *conn, bool dialed)
{
	if (net_log_on(NET_COMPONENT_CONN, NET_LOG_INFO))
		net_event_say_opened(conn, dialed);
}

/* Called while lwIP frees the pcb, which is still in the hash table. */
static inline void net_event_closed(struct net_conn *conn)
{
	if (net_log_on(NET_COMPONENT_CONN, NET_LOG_INFO))
		net_event_say_closed(conn);
}

/* Called if the current segment (network byte order) opens no connection. */
static inline void net_event_refused(const struct tcp_hdr *tcp,
				     const char *reason)
{
	if (net_log_on(NET_COMPONENT_LISTEN, NET_LOG_INFO))
		net_event_say_refused(tcp, reason);
}

/* Called when net_dial() fails with err. */
static inline void net_event_dial(const struct net_addr *addr, int err)
{
	if (net_log_on(NET_COMPONENT_DIAL, NET_LOG_INFO))
		net_event_say_dial(addr, err);
}

/* Called at a retransmission timeout. */
static inline void net_event_rto(struct net_conn *conn)
{
	if (net_log_on(NET_COMPONENT_RECOVERY, NET_LOG_DEBUG))
		net_event_say_rto(conn);
}

/* Called if a neighbour is not resolved because too many others are being. */
static inline void net_event_unasked4(uint32_t ip)
{
	ip_addr_t addr = IPADDR4_INIT(ip);

	if (net_log_on(NET_COMPONENT_NEIGH, NET_LOG_INFO))
		net_event_say_unasked(&addr);
}

static inline void net_event_unasked6(const ip6_addr_t *ip)
{
	ip_addr_t addr;

	if (!net_log_on(NET_COMPONENT_NEIGH, NET_LOG_INFO))
		return;
	ip_addr_copy_from_ip6(addr, *ip);
	net_event_say_unasked(&addr);
}

/* event: "listening" or "stopped". */
static inline void net_event_listener(const struct net_listener *listener,
				      const char *event)
{
	if (net_log_on(NET_COMPONENT_LISTEN, NET_LOG_INFO))
		net_event_say_listener(listener, event);
}
