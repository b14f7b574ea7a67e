/*
 * Writing to a connection.
 */
#include "netstack/api/api.h"

#include <errno.h>
#include <limits.h>

static int writable_error(const struct net_conn *conn)
{
	if (conn->err)
		return conn->err;
	if (!conn->pcb_live || conn->wr_shut)
		return -EPIPE;
	return 0;
}

long net_iov_bytes(const struct iovec *iov, unsigned n)
{
	size_t total = 0;

	if (n > NET_IOV_MAX || (n && !iov))
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		if (iov[i].iov_len && !iov[i].iov_base)
			return -EINVAL;
		if (__builtin_add_overflow(total, iov[i].iov_len, &total) ||
		    total > LONG_MAX)
			return -EINVAL;
	}
	return (long)total;
}

/* Checks a connection at the beginning of every call that writes. */
static inline int send_enter(const struct net_conn *conn)
{
	int err;

	if (likely(conn && !conn->writer && !conn->err &&
		   (conn->gate & NET_GATE_WRITE) == NET_GATE_WRITE_OPEN))
		return 0;
	err = net_conn_enter(conn, conn ? conn->writer : NULL);

	return err < 0 ? err : writable_error(conn);
}

int net_send_enter(const struct net_conn *conn)
{
	return send_enter(conn);
}

/* Is memory itself short, with nothing in flight that would ever make room? */
static bool is_stuck(const struct tcp_pcb *pcb)
{
	return !pcb->unacked && !pcb->unsent;
}

bool net_conn_writable(const struct net_conn *conn)
{
	if (writable_error(conn) < 0)
		return true;
	if (conn->wants == NET_WANTS_MEMORY && !is_stuck(&conn->pcb))
		return false;
	return net_send_room(conn) > 0;
}

long net_send_refused(struct net_conn *conn)
{
	if (is_stuck(&conn->pcb))
		return -ENOMEM;
	conn->wants = NET_WANTS_MEMORY;
	return 0;
}

int net_send_wait(struct net_conn *conn, enum net_wants wants)
{
	bool refused = conn->wants == NET_WANTS_MEMORY;
	int err;

	net_conn_queue_output(conn);
	if (!refused)
		conn->wants = wants;
	net_count_phase(conn);
	err = net_conn_wait(conn, &conn->writer, conn->ext->write_deadline);
	if (err == -EBADF)
		return err; /* it is gone */
	if (!refused || err == 0)
		conn->wants = NET_WANTS_NOTHING;
	net_count_phase(conn);
	return err < 0 ? err : net_send_enter(conn);
}

/* Queues as many bytes as there is room for now; returns that number. */
static long queue_now(struct net_conn *conn, const void *buf, size_t len)
{
	size_t n = LWIP_MIN(net_send_room(conn), len);
	uint16_t mss = conn->pcb.mss;
	err_t err;

	if (n < len && n > mss)
		n -= n % mss; /* the rest would be a small segment */
	if (n == 0)
		return 0;
	err = net_predict_write(conn, buf, (uint16_t)n);
	if (err == ERR_INPROGRESS)
		err = net_lwip_write(conn, buf, (uint16_t)n,
				     TCP_WRITE_FLAG_COPY);
	if (err == ERR_OK) {
		net_send_queued_some(conn);
		return (long)n;
	}
	return err == ERR_MEM ? net_send_refused(conn) : -EPIPE;
}

static long wait_writable(struct net_conn *conn)
{
	int err = net_send_enter(conn);
	size_t n;

	if (err < 0)
		return err;
	while ((n = net_send_room(conn)) == 0) {
		err = net_send_wait(conn, NET_WANTS_ROOM);
		if (err < 0)
			return err;
	}
	return (long)n;
}

cold static long writable_traced(struct net_conn *conn)
{
	NET_CALL_COLD(conn, "net_writable", 0, wait_writable(conn),
		      net_tls_calls(conn)->writable(conn));
}

long net_writable(struct net_conn *conn)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return writable_traced(conn);
	return net_call_end(wait_writable(conn));
}

static inline long send_some(struct net_conn *conn, const void *buf, size_t len)
{
	int err = send_enter(conn);
	long n;

	if (err < 0 || len == 0)
		return err;
	if (!buf)
		return -EINVAL;
	while ((n = queue_now(conn, buf, len)) == 0) {
		err = net_send_wait(conn, NET_WANTS_ROOM);
		if (err < 0)
			return err;
	}
	return n;
}

long net_send_tls(struct net_conn *conn, const void *buf, size_t len, bool all)
{
	const struct iovec iov = {.iov_base = (void *)(uintptr_t)buf,
				  .iov_len = len};
	int err = net_send_enter(conn);

	if (err < 0 || len == 0)
		return err;
	if (!buf || len > LONG_MAX)
		return -EINVAL;
	return net_tls_calls(conn)->sendv(conn, &iov, 1, (long)len, all);
}

cold static long send_traced(struct net_conn *conn, const void *buf, size_t len)
{
	NET_CALL_COLD(conn, "net_send", len, send_some(conn, buf, len),
		      net_send_tls(conn, buf, len, false));
}

long net_send(struct net_conn *conn, const void *buf, size_t len)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return send_traced(conn, buf, len);
	return net_call_end(send_some(conn, buf, len));
}

long net_send_every(struct net_conn *conn, const void *buf, size_t len)
{
	size_t done = 0;

	do {
		long n = send_some(conn, (const uint8_t *)buf + done,
				   len - done);

		if (n < 0)
			return n;
		done += (size_t)n;
	} while (done < len);
	return (long)done;
}

cold static long send_all_traced(struct net_conn *conn, const void *buf,
				 size_t len)
{
	NET_CALL_COLD(conn, "net_send_all", len, net_send_every(conn, buf, len),
		      net_send_tls(conn, buf, len, true));
}

long net_send_all(struct net_conn *conn, const void *buf, size_t len)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return send_all_traced(conn, buf, len);
	return net_call_end(net_send_every(conn, buf, len));
}

/* Like net_send(), for vectors, from byte `skip` of them on; 0: no room. */
static long queue_vectors(struct net_conn *conn, const struct iovec *iov,
			  unsigned n, size_t skip)
{
	size_t done = 0;

	for (unsigned i = 0; i < n; i++) {
		const uint8_t *at = iov[i].iov_base;
		size_t left = iov[i].iov_len;
		size_t over = LWIP_MIN(skip, left);

		skip -= over;
		for (left -= over, at += over; left;) {
			long part = queue_now(conn, at, left);

			if (part <= 0)
				return done ? (long)done : part;
			done += (size_t)part;
			at += part;
			left -= (size_t)part;
		}
	}
	return (long)done;
}

static long send_vectors(struct net_conn *conn, const struct iovec *iov,
			 unsigned n, size_t skip)
{
	int err = net_send_enter(conn);
	long done;

	if (err < 0)
		return err;
	while ((done = queue_vectors(conn, iov, n, skip)) == 0) {
		err = net_send_wait(conn, NET_WANTS_ROOM);
		if (err < 0)
			return err;
	}
	return done;
}

static long send_checked(struct net_conn *conn, const struct iovec *iov,
			 unsigned n, long total)
{
	if (total < 0)
		return total;
	return total ? send_vectors(conn, iov, n, 0) : net_send_enter(conn);
}

cold static long sendv_tls(struct net_conn *conn, const struct iovec *iov,
			   unsigned n, long total, bool all)
{
	if (total < 0)
		return total;
	return total ? net_tls_calls(conn)->sendv(conn, iov, n, total, all)
		     : net_send_enter(conn);
}

cold static long sendv_traced(struct net_conn *conn, const struct iovec *iov,
			      unsigned n, long total)
{
	NET_CALL_COLD(conn, "net_sendv", total < 0 ? 0 : (size_t)total,
		      send_checked(conn, iov, n, total),
		      sendv_tls(conn, iov, n, total, false));
}

long net_sendv(struct net_conn *conn, const struct iovec *iov, unsigned n)
{
	long total = net_iov_bytes(iov, n);

	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return sendv_traced(conn, iov, n, total);
	return net_call_end(send_checked(conn, iov, n, total));
}

static long sendv_all(struct net_conn *conn, const struct iovec *iov,
		      unsigned n, long total)
{
	long done = 0;

	if (total <= 0)
		return total ? total : net_send_enter(conn);
	while (done < total) {
		long part = send_vectors(conn, iov, n, (size_t)done);

		if (part < 0)
			return part;
		done += part;
	}
	return done;
}

cold static long sendv_all_traced(struct net_conn *conn,
				  const struct iovec *iov, unsigned n,
				  long total)
{
	NET_CALL_COLD(conn, "net_sendv_all", total < 0 ? 0 : (size_t)total,
		      sendv_all(conn, iov, n, total),
		      sendv_tls(conn, iov, n, total, true));
}

long net_sendv_all(struct net_conn *conn, const struct iovec *iov, unsigned n)
{
	long total = net_iov_bytes(iov, n);

	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return sendv_all_traced(conn, iov, n, total);
	return net_call_end(sendv_all(conn, iov, n, total));
}
