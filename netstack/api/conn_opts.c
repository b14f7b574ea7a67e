/*
 * Properties of a connection.
 */
#include "netstack/api/api.h"

#include <errno.h>

/* lwIP adds a keepalive's times up in milliseconds, in 32 bits. */
#define KEEPALIVE_MAX_S (UINT32_MAX / 1000)
#define KEEPALIVE_MASK	0xfffffu /* of the pcb's fields: seconds */
static_assert(KEEPALIVE_MASK >= 1000000, "the longest there may be");

#define USER_TIMEOUT_MAX_MS 2000000000u

/* Without memory for a deadline the connection fails, so that no call hangs. */
void net_set_read_deadline(struct net_conn *conn, int64_t deadline_ns)
{
	struct net_conn_ext *ext;

	NET_CHECK_CONN(conn);
	ext = conn ? net_conn_ext(conn) : NULL;
	if (ext)
		ext->read_deadline = deadline_ns;
	else if (conn)
		net_conn_kill(conn, -ENOMEM);
}

void net_set_write_deadline(struct net_conn *conn, int64_t deadline_ns)
{
	struct net_conn_ext *ext;

	NET_CHECK_CONN(conn);
	ext = conn ? net_conn_ext(conn) : NULL;
	if (ext)
		ext->write_deadline = deadline_ns;
	else if (conn)
		net_conn_kill(conn, -ENOMEM);
}

void net_set_nodelay(struct net_conn *conn, bool on)
{
	NET_CHECK_CONN(conn);
	if (!conn)
		return;
	if (on)
		tcp_nagle_disable(&conn->pcb);
	else
		tcp_nagle_enable(&conn->pcb);
}

int net_set_keepalive(struct net_conn *conn, unsigned idle_s,
		      unsigned interval_s, unsigned count)
{
	NET_CHECK_CONN(conn);
	if (!conn || !conn->owned)
		return -EBADF;
	if (!conn->pcb_live)
		return -ENOTCONN;
	if (idle_s == 0) {
		ip_reset_option(&conn->pcb, SOF_KEEPALIVE);
		return 0;
	}
	if (idle_s > 1000000 || interval_s == 0 || interval_s > 1000000 ||
	    count == 0 || count > 255 ||
	    idle_s + (uint64_t)count * interval_s > KEEPALIVE_MAX_S)
		return -EINVAL;
	conn->pcb.keep_idle_s = idle_s & KEEPALIVE_MASK;
	conn->pcb.keep_intvl_s = interval_s & KEEPALIVE_MASK;
	conn->pcb.keep_probes = (uint8_t)count;
	ip_set_option(&conn->pcb, SOF_KEEPALIVE);
	net_timer_check(conn);
	return 0;
}

int net_set_user_timeout(struct net_conn *conn, unsigned ms)
{
	int err;

	NET_CHECK_CONN(conn);
	if (!conn || !conn->owned)
		return -EBADF;
	if (ms > USER_TIMEOUT_MAX_MS)
		return -EINVAL;
	if (!conn->pcb_live)
		return -ENOTCONN;
	err = net_conn_set_user_timeout(conn, ms);
	if (err == 0)
		net_timer_by(conn, net_here()->now_ns); /* look again */
	return err;
}

int net_set_cc(struct net_conn *conn, const char *name)
{
	int number = name ? net_cc_number(name) : -1;

	NET_CHECK_CONN(conn);
	if (!conn || !conn->owned)
		return -EBADF;
	if (number < 0)
		return -EINVAL;
	if (!conn->pcb_live)
		return -ENOTCONN;
	net_cc_choose(conn, (unsigned)number);
	return 0;
}

int net_set_pacing_rate(struct net_conn *conn, uint64_t bytes_per_s)
{
	NET_CHECK_CONN(conn);
	if (!conn || !conn->owned)
		return -EBADF;
	if (!conn->pcb_live)
		return -ENOTCONN;
	net_pacing_set_cap(conn, bytes_per_s);
	if (conn->pcb.unsent)
		net_conn_queue_output(conn);
	return 0;
}

void net_set_watch(struct net_conn *conn, struct net_watch *watch)
{
	NET_CHECK_CONN(conn);
	net_check_shared(watch, "net_set_watch: the watch");
	if (!conn)
		return;
	conn->watched = watch != NULL;
	if (!watch)
		return;
	conn->watch = watch;
	watch->received = conn->pcb.rcv_nxt;
}

struct net_addr net_local_addr(const struct net_conn *conn)
{
	struct net_addr addr = {0};

	if (conn)
		net_addr_from_lwip(&conn->pcb.local_ip, conn->pcb.local_port,
				   &addr);
	return addr;
}

struct net_addr net_peer_addr(const struct net_conn *conn)
{
	struct net_addr addr = {0};

	if (conn)
		net_addr_from_lwip(&conn->pcb.remote_ip, conn->pcb.remote_port,
				   &addr);
	return addr;
}

struct net_stack *net_conn_stack(const struct net_conn *conn)
{
	return net_here();
}
