/*
 * UDP: receiving. Addresses and control data are in dgram_cmsg.c.
 *
 * As on Linux, an error that ICMP has reported comes before the datagrams that
 * wait, and one that cannot be copied (EFAULT) is lost.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/whole.h"

#include <limits.h>
#include <string.h>

/* Returns 0 with the first datagram, 1 if none will come, or an error. */
static long await_datagram(struct net_sock *sock, int flags, int64_t *until,
			   struct net_datagram *out)
{
	struct net_dgram *d = sock->dgram;

	for (;;) {
		long err = net_dgram_open(sock);

		if (err == 0)
			err = net_udp_error(d->udp, true);
		if (err < 0)
			return err;
		if (net_udp_peek(d->udp, out) == 0)
			return 0;
		if (sock->nonblock || flags & MSG_DONTWAIT)
			return -EAGAIN;
		if (sock->rd_shut)
			return 1;
		err = net_sock_wait(sock, &sock->readable,
				    sock->opts.recv_timeout_ns, until);
		if (err < 0)
			return err;
	}
}

/* Returns how many bytes were copied, or -EFAULT. */
static long copy_bytes(const struct net_datagram *from, const struct iovec *iov,
		       size_t n)
{
	size_t done = 0;

	for (size_t i = 0; i < n && done < from->len; i++) {
		size_t part = from->len - done;

		if (part > iov[i].iov_len)
			part = iov[i].iov_len;
		if (part == 0)
			continue;
		if (!net_can_write(iov[i].iov_base, part))
			return -EFAULT;
		memcpy(iov[i].iov_base, (const uint8_t *)from->data + done,
		       part);
		done += part;
	}
	return (long)done;
}

static long check_name(const struct msghdr *msg)
{
	size_t room = msg->msg_namelen;

	if (!msg->msg_name)
		return 0;
	if ((int)msg->msg_namelen < 0)
		return -EINVAL;
	if (room > sizeof(struct sockaddr_storage))
		room = sizeof(struct sockaddr_storage);
	return net_can_write(msg->msg_name, room) ? 0 : -EFAULT;
}

/* Fills in all but the bytes. */
static void put_headers(struct net_sock *sock,
			const struct net_datagram *datagram, struct msghdr *msg)
{
	msg->msg_flags = 0;
	if (msg->msg_name)
		net_addr_to_sockaddr(&datagram->peer, sock->v6, msg->msg_name,
				     &msg->msg_namelen);
	else
		msg->msg_namelen = 0;
	net_dgram_put_control(sock, datagram, msg);
}

/* MSG_ERRQUEUE, with IP_RECVERR: the error that a call would return. */
static long recv_error(struct net_sock *sock, struct msghdr *msg)
{
	struct net_dgram *d = sock->dgram;
	int err = 0;

	if (sock->state == NET_SOCK_CLOSED)
		return -EBADF;
	if ((d->recv_err || d->recv_err6) && d->udp)
		err = net_udp_error(d->udp, true);
	if (err == 0)
		return -EAGAIN;
	net_dgram_put_error(sock, err, &sock->remote, msg);
	return 0;
}

static long recv_one(struct net_sock *sock, struct msghdr *msg, int flags,
		     int64_t *until)
{
	struct net_datagram datagram;
	long err = check_name(msg), n;

	if (err == 0 &&
	    !net_can_read(msg->msg_iov, msg->msg_iovlen * sizeof(struct iovec)))
		err = -EFAULT;
	if (err < 0)
		return err;
	if (flags & MSG_ERRQUEUE)
		return recv_error(sock, msg);
	err = await_datagram(sock, flags, until, &datagram);
	if (err) {
		if (err == 1) {
			msg->msg_namelen = 0;
			msg->msg_controllen = 0;
			msg->msg_flags = 0;
		}
		return err == 1 ? 0 : err;
	}
	sock->dgram->has_passed = true;
	n = copy_bytes(&datagram, msg->msg_iov, msg->msg_iovlen);
	if (n >= 0) {
		put_headers(sock, &datagram, msg);
		if ((size_t)n < datagram.len) {
			msg->msg_flags |= MSG_TRUNC;
			n = flags & MSG_TRUNC ? (long)datagram.len : n;
		}
	}
	if (!(flags & MSG_PEEK))
		net_udp_discard(sock->dgram->udp);
	return n;
}

long net_dgram_recvmsg(struct net_sock *sock, struct msghdr *msg, int flags)
{
	int64_t until = 0;

	return recv_one(sock, msg, flags, &until);
}

long net_dgram_recv(struct net_sock *sock, const struct iovec *iov, size_t n,
		    int flags)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov,
			     .msg_iovlen = n};

	return net_dgram_recvmsg(sock, &msg, flags);
}

/* ---- recvmmsg ---- */

static bool read_timeout(const struct timespec *ts, int64_t *deadline)
{
	*deadline = CORO_FOREVER;
	if (!ts)
		return true;
	if (ts->tv_sec < 0 || ts->tv_nsec < 0 || ts->tv_nsec >= 1000000000)
		return false;
	if (ts->tv_sec < INT64_MAX / 2000000000)
		*deadline = net_deadline_in(ts->tv_sec * INT64_C(1000000000) +
					    ts->tv_nsec);
	return true;
}

static long recv_next(struct net_sock *sock, struct mmsghdr *msg, int flags,
		      int64_t *until)
{
	long n;

	if (!net_can_write(msg, sizeof(*msg)))
		return -EFAULT;
	if (msg->msg_hdr.msg_iovlen > IOV_MAX)
		return -EMSGSIZE;
	n = recv_one(sock, &msg->msg_hdr, flags, until);
	if (n >= 0)
		msg->msg_len = (unsigned)n;
	return n;
}

/* As on Linux, the timeout ends a call only after a message has arrived. */
long net_dgram_recvmmsg(struct net_sock *sock, struct mmsghdr *msgs, unsigned n,
			int flags, struct timespec *timeout)
{
	int64_t deadline, left;
	unsigned done = 0;
	long err = 0;

	if (timeout && !net_can_write(timeout, sizeof(*timeout)))
		return -EFAULT;
	if (!read_timeout(timeout, &deadline))
		return -EINVAL;
	net_sock_hold(sock);
	while (done < n) {
		int64_t until = 0;

		err = recv_next(sock, &msgs[done], flags & ~MSG_WAITFORONE,
				&until);
		if (err < 0)
			break;
		done++;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (net_time_left(deadline) == 0)
			break;
	}
	left = net_time_left(deadline);
	if (timeout && left >= 0 && done)
		*timeout = (struct timespec){.tv_sec = left / 1000000000,
					     .tv_nsec = left % 1000000000};
	net_sock_put(sock);
	return done || err >= 0 ? (long)done : err;
}
