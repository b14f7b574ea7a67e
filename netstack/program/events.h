/*
 * Events in the log: a line each, key=value, whose keys docs/operate.md lists.
 * While a component's level leaves them out, one costs a test.
 *
 * Declared here for the code that detects an event; control/events.c writes the
 * lines.
 */
#pragma once

#include "netstack/program/log.h"

#include "lwip/ip_addr.h"

/*
 * At most so many lines a second of each kind of event; others are suppressed.
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

/* The handshake is done. */
static inline void net_event_opened(struct net_conn *conn, bool dialed)
{
	if (net_log_on(NET_COMPONENT_CONN, NET_LOG_INFO))
		net_event_say_opened(conn, dialed);
}

/* lwIP is freeing the pcb, which can still be found by its addresses. */
static inline void net_event_closed(struct net_conn *conn)
{
	if (net_log_on(NET_COMPONENT_CONN, NET_LOG_INFO))
		net_event_say_closed(conn);
}

/* The current segment, in network byte order, opens no connection. */
static inline void net_event_refused(const struct tcp_hdr *tcp,
				     const char *reason)
{
	if (net_log_on(NET_COMPONENT_LISTEN, NET_LOG_INFO))
		net_event_say_refused(tcp, reason);
}

/* net_dial() fails. */
static inline void net_event_dial(const struct net_addr *addr, int err)
{
	if (net_log_on(NET_COMPONENT_DIAL, NET_LOG_INFO))
		net_event_say_dial(addr, err);
}

/* A retransmission timeout has passed. */
static inline void net_event_rto(struct net_conn *conn)
{
	if (net_log_on(NET_COMPONENT_RECOVERY, NET_LOG_DEBUG))
		net_event_say_rto(conn);
}

/* A neighbour is not resolved, because too many others are. */
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

/* "listening", "stopped". */
static inline void net_event_listener(const struct net_listener *listener,
				      const char *event)
{
	if (net_log_on(NET_COMPONENT_LISTEN, NET_LOG_INFO))
		net_event_say_listener(listener, event);
}
