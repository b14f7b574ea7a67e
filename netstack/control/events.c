/*
 * Writes the log lines of events. Each kind has a limit of its own: lines
 * beyond it are suppressed, and the next one of its kind says how many.
 */
#include "netstack/program/events.h"

#include "netstack/conn/end.h"
#include "netstack/control/control_priv.h"

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LIMIT(name)                                                            \
	static struct net_log_limit name = {.per_second = NET_EVENTS_PER_S}

/* A connection's two ends, ID and name, as text. */
struct who {
	char local[NET_ADDR_TEXT_MAX], peer[NET_ADDR_TEXT_MAX];
	char id[NET_ID_TEXT_MAX];
	char name[NET_NAME_MAX + 2];
};

/* A value with a space in it is quoted, and no quote stays in one. */
static void put_name(const char *name, char *out, size_t len)
{
	bool plain = *name && strcspn(name, " =\"") == strlen(name);

	snprintf(out, len, plain ? "%s" : "\"%s\"", name);
	for (char *at = out + 1; *at && at[1]; at++)
		if (*at == '"')
			*at = '\'';
}

static void describe_conn(struct net_conn *conn, struct who *who)
{
	const char *name = net_name_in(net_here(), conn);
	struct net_addr local, peer;

	/* lwIP has forgotten local_port by the time it frees a pcb. */
	net_addr_from_lwip(&conn->pcb.local_ip, conn->pcb.own_port, &local);
	net_addr_from_lwip(&conn->pcb.remote_ip, conn->pcb.remote_port, &peer);
	net_addr_format(&local, who->local, sizeof(who->local));
	net_addr_format(&peer, who->peer, sizeof(who->peer));
	net_id_format(conn, who->id, sizeof(who->id));
	if (name)
		put_name(name, who->name, sizeof(who->name));
	else
		strcpy(who->name, "-");
}

void net_event_say_opened(struct net_conn *conn, bool dialed)
{
	LIMIT(limit);
	struct who who;

	describe_conn(conn, &who);
	net_log_event(NET_LOG_INFO, &limit,
		      "coronet.conn: event=opened local=%s peer=%s id=%s "
		      "name=%s by=%s handler=%s",
		      who.local, who.peer, who.id, who.name,
		      dialed ? "us" : "peer",
		      conn->served ? net_handler_name(conn) : "-");
}

/* Bytes in both directions and retransmissions, if they are counted. */
static void put_sums(const struct net_conn *conn, char *out, size_t len)
{
	const struct net_conn_ext *counts = net_counts(conn);
	int64_t age_ns = net_conn_age_ns(conn);

	if (counts)
		snprintf(out, len,
			 "age_ms=%" PRIi64 " bytes_in=%" PRIu64
			 " bytes_out=%" PRIu64 " retrans=%u",
			 age_ns / 1000000, counts->rx_bytes, counts->tx_acked,
			 counts->retransmits);
	else
		snprintf(out, len, "age_ms=- bytes_in=- bytes_out=- retrans=-");
}

void net_event_say_closed(struct net_conn *conn)
{
	LIMIT(limit);
	enum net_end end = net_conn_end(conn);
	char sums[128];
	struct who who;

	if (end == NET_END_UNACCEPTED || conn->connecting)
		return;
	describe_conn(conn, &who);
	put_sums(conn, sums, sizeof(sums));
	net_log_event(NET_LOG_INFO, &limit,
		      "coronet.conn: event=closed local=%s peer=%s id=%s "
		      "name=%s reason=%s %s unread=%u unacked=%u",
		      who.local, who.peer, who.id, who.name, net_end_name(end),
		      sums, conn->orphaned ? 0 : net_rxq_bytes(conn),
		      net_send_queued(&conn->pcb));
}

void net_event_say_refused(const struct tcp_hdr *tcp, const char *reason)
{
	LIMIT(limit);
	char local[NET_ADDR_TEXT_MAX], peer[NET_ADDR_TEXT_MAX];
	struct net_addr addr;

	net_addr_from_lwip(ip_current_dest_addr(), lwip_ntohs(tcp->dest),
			   &addr);
	net_addr_format(&addr, local, sizeof(local));
	net_addr_from_lwip(ip_current_src_addr(), lwip_ntohs(tcp->src), &addr);
	net_addr_format(&addr, peer, sizeof(peer));
	net_log_event(NET_LOG_INFO, &limit,
		      "coronet.listen: event=refused local=%s peer=%s "
		      "reason=%s",
		      local, peer, reason);
}

void net_event_say_listener(const struct net_listener *listener,
			    const char *event)
{
	LIMIT(limit);
	char local[NET_ADDR_TEXT_MAX];

	net_addr_format(&listener->addr, local, sizeof(local));
	net_log_event(NET_LOG_INFO, &limit,
		      "coronet.listen: event=%s local=%s shard=%u", event,
		      local, net_here()->shard);
}

void net_event_say_unasked(const ip_addr_t *ip)
{
	LIMIT(limit);
	char text[NET_ADDR_TEXT_MAX];
	struct net_addr addr;

	net_addr_from_lwip(ip, 0, &addr);
	net_log_event(NET_LOG_INFO, &limit,
		      "coronet.neigh: event=unasked neighbour=%s",
		      net_ip_format(&addr, text));
}

static const char *dial_reason(int err)
{
	switch (err) {
	case -ECONNREFUSED:
		return "refused";
	case -ETIMEDOUT:
		return "timeout";
	case -EHOSTUNREACH:
		return "unreachable";
	case -EADDRINUSE:
	case -EADDRNOTAVAIL:
		return "no-port";
	case -ENOMEM:
	case -ENOBUFS:
		return "no-memory";
	case -ECANCELED:
		return "canceled";
	case -ECONNRESET:
		return "peer-reset";
	default:
		return "other";
	}
}

void net_event_say_dial(const struct net_addr *addr, int err)
{
	LIMIT(limit);
	char peer[NET_ADDR_TEXT_MAX];

	net_addr_format(addr, peer, sizeof(peer));
	net_log_event(NET_LOG_INFO, &limit,
		      "coronet.dial: event=failed peer=%s reason=%s errno=%d",
		      peer, dial_reason(err), -err);
}

void net_event_say_rto(struct net_conn *conn)
{
	LIMIT(limit);
	struct who who;

	describe_conn(conn, &who);
	net_log_event(NET_LOG_DEBUG, &limit,
		      "coronet.recovery: event=rto local=%s peer=%s id=%s "
		      "name=%s in_a_row=%u unacked=%u",
		      who.local, who.peer, who.id, who.name, conn->pcb.nrtx,
		      conn->pcb.snd_nxt - conn->pcb.lastack);
}
