/*
 * The order of handshakes. A step may cost a millisecond of computing, so a
 * shard does one in a round, and the connections that are open go on between
 * them. Sessions that wait for their turn are in a queue. Each that leaves it
 * wakes the next.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>

static NET_SHARD_VAR struct {
	uint64_t stepped_round; /* in which a handshake did a step */
	struct net_tls_session *first, **end;
} turns;
#define turns NET_SHARD(turns)

static bool has_stepped(void)
{
	return turns.stepped_round == net_here()->stats.rounds + 1;
}

static void join_queue(struct net_tls_session *s)
{
	s->turn_pprev = turns.first ? turns.end : &turns.first;
	s->turn_next = NULL;
	*s->turn_pprev = s;
	turns.end = &s->turn_next;
}

void net_tls_leave_turns(struct net_tls_session *s)
{
	bool was_first = s->turn_pprev == &turns.first;

	if (!s->turn_pprev)
		return;
	*s->turn_pprev = s->turn_next;
	if (s->turn_next)
		s->turn_next->turn_pprev = s->turn_pprev;
	else
		turns.end = s->turn_pprev;
	s->turn_pprev = NULL;
	if (was_first && turns.first)
		net_wake(turns.first->base.conn->reader);
}

int net_tls_check_open(const struct net_conn *conn)
{
	int err = net_conn_enter(conn, NULL);

	if (err == 0 && net_here()->draining)
		err = -ECANCELED;
	if (err == 0 && net_here()->now_ns >= conn->ext->read_deadline)
		err = -ETIMEDOUT;
	return err;
}

/* The first one is woken by the next round. */
static int wait_in_queue(struct net_conn *conn)
{
	bool is_first = turns.first == net_tls_of(conn);
	int err = net_conn_wait(conn, &conn->reader,
				is_first ? net_here()->now_ns + 1
					 : conn->ext->read_deadline);

	if (err == -ETIMEDOUT && is_first &&
	    net_here()->now_ns < coro_deadline())
		err = 0;
	return err < 0 ? err : net_tls_check_open(conn);
}

int net_tls_wait_turn(struct net_conn *conn)
{
	struct net_tls_session *s = net_tls_of(conn);
	int err = 0;

	if (turns.first || has_stepped())
		join_queue(s);
	/* a session that was reset has left the queue */
	while (err == 0 && s->turn_pprev && (turns.first != s || has_stepped()))
		err = wait_in_queue(conn);
	if (err == -EBADF)
		return err; /* closed meanwhile, and perhaps freed */
	net_tls_leave_turns(s);
	if (err == 0)
		turns.stepped_round = net_here()->stats.rounds + 1;
	return err;
}
