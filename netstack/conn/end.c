/*
 * Ends connections, for a reason; the names of the reasons, and which one
 * applies when lwIP frees a pcb.
 */
#include "netstack/conn/end.h"

#include "netstack/state.h"

static const struct {
	const char *name, *text;
} ends[NET_ENDS] = {
	[NET_END_NONE] = {"unknown", "ended"},
	[NET_END_DONE] = {"done", "closed"},
	[NET_END_PEER_RESET] = {"peer-reset", "reset by the peer"},
	[NET_END_TIMEOUT] = {"timeout", "gave up: no answer"},
	[NET_END_WINDOW] = {"window-shut",
			    "gave up: the peer's window stayed shut"},
	[NET_END_USER_TIMEOUT] = {"user-timeout",
				  "gave up: the user timeout has passed"},
	[NET_END_KEEPALIVE] = {"keepalive", "gave up: no answer to keepalives"},
	[NET_END_FIN_TIMEOUT] = {"fin-timeout",
				 "gave up: the peer did not close"},
	[NET_END_ABORT] = {"abort", "reset: by the application"},
	[NET_END_UNREAD] = {"unread",
			    "reset: the application closed with bytes unread"},
	[NET_END_LATE_DATA] =
		{"late-data",
		 "reset: the peer sent data after the application had closed"},
	[NET_END_DROP] = {"drop", "reset: dropped by the operator"},
	[NET_END_MEMORY] = {"memory", "reset: memory is short"},
	[NET_END_ORPHAN] =
		{"orphan",
		 "reset: closed by its owner, and room was needed for another"},
	[NET_END_STOPPED] = {"stopped", "reset: the program ends"},
	[NET_END_UNACCEPTED] =
		{"unaccepted",
		 "reset: no memory for its coroutine, or its listener stopped"},
	[NET_END_BROKEN] = {"broken", "reset: an assertion of lwIP failed"},
};

void net_conn_reset(struct net_conn *conn, enum net_end why)
{
	net_here()->ending = why;
	tcp_abandon(&conn->pcb, conn->pcb.state != SYN_SENT);
}

/* lwIP ends a connection whose timeouts in a row have reached this number. */
void net_conn_give_up(struct net_conn *conn)
{
	conn->pcb.nrtx = TCP_MAXRTX;
}

/*
 * Returns why a connection ends. If no call has set a reason, lwIP ends it by
 * itself: both FINs are acknowledged, or data has come that nobody will read.
 * The peer's FIN is known if it came before ours was acknowledged.
 */
enum net_end net_conn_end(const struct net_conn *conn)
{
	if (conn->in_time_wait)
		return NET_END_DONE;
	if (net_here()->ending)
		return (enum net_end)net_here()->ending;
	return conn->eof ? NET_END_DONE : NET_END_LATE_DATA;
}

const char *net_end_name(enum net_end end)
{
	return ends[end].name;
}

const char *net_end_text(enum net_end end)
{
	return ends[end].text;
}
