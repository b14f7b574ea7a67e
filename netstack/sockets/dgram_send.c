/*
 * Sends datagrams: send(), sendto(), sendmsg() of a UDP socket.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/whole.h"

#include <limits.h>
#include <netinet/in.h>

/* A message, checked. */
struct letter {
	const struct iovec *iov;
	size_t n;
	struct net_addr peer; /* family 0: the connected one */
	struct net_dgram_control control;
};

static long check_bytes(const struct msghdr *msg)
{
	if (msg->msg_iovlen > IOV_MAX)
		return -EMSGSIZE;
	if (!net_can_read(msg->msg_iov, msg->msg_iovlen * sizeof(struct iovec)))
		return -EFAULT;
	for (size_t i = 0, total = 0; i < msg->msg_iovlen; i++) {
		const struct iovec *iov = &msg->msg_iov[i];

		if (iov->iov_len > UINT16_MAX ||
		    (total += iov->iov_len) > UINT16_MAX)
			return -EMSGSIZE;
		if (!net_can_read(iov->iov_base, iov->iov_len))
			return -EFAULT;
	}
	return 0;
}

static long check_peer(const struct net_sock *sock, const struct msghdr *msg,
		       struct net_addr *out)
{
	long err;

	*out = (struct net_addr){0};
	if (!msg->msg_name || msg->msg_namelen == 0)
		return sock->dgram->connected ? 0 : -EDESTADDRREQ;
	if (msg->msg_namelen > sizeof(struct sockaddr_storage))
		return -EINVAL;
	if (!net_can_read(msg->msg_name, msg->msg_namelen))
		return -EFAULT;
	err = net_addr_from_sockaddr(msg->msg_name, msg->msg_namelen, out);
	if (err < 0)
		return err;
	if (out->family == 6 && !sock->v6)
		return -EAFNOSUPPORT;
	if (out->port == 0)
		return -EINVAL;
	return out->family == 4 && sock->v6_only ? -ENETUNREACH : 0;
}

static long check_letter(const struct net_sock *sock, const struct msghdr *msg,
			 int flags, struct letter *out)
{
	long err;

	if (flags & (MSG_OOB | MSG_MORE))
		return -EOPNOTSUPP;
	err = check_bytes(msg);
	if (err == 0)
		err = check_peer(sock, msg, &out->peer);
	if (err == 0)
		err = net_dgram_get_control(sock, msg, &out->control);
	if (err == 0 && sock->wr_shut)
		err = -EPIPE;
	out->iov = msg->msg_iov;
	out->n = msg->msg_iovlen;
	return err;
}

/* TTL and TOS are those of the family; a message's own hold for it alone. */
static void set_fields(struct net_sock *sock, const struct letter *letter)
{
	const struct net_dgram_control *control = &letter->control;
	unsigned family =
		letter->peer.family ? letter->peer.family : sock->remote.family;
	struct net_udp_opts opts = net_dgram_udp_opts(sock, family);

	if (control->ttl >= 0)
		opts.ttl = opts.group_ttl = (uint8_t)control->ttl;
	if (control->tos >= 0)
		opts.tos = (uint8_t)control->tos;
	net_udp_set_opts(sock->dgram->udp, &opts);
}

static long send_letter(struct net_sock *sock, const struct letter *letter)
{
	struct net_dgram *d = sock->dgram;
	long n = net_dgram_open(sock);

	if (n < 0)
		return n;
	set_fields(sock, letter);
	n = net_udp_sendv_from(d->udp, &letter->control.local,
			       letter->peer.family ? &letter->peer : NULL,
			       letter->iov, (unsigned)letter->n);
	d->lacks_room = n == -EAGAIN;
	if (n >= 0)
		d->has_passed = true;
	if (n == -EADDRNOTAVAIL && letter->control.local.family == 6)
		return -EINVAL; /* as Linux does for IPV6_PKTINFO */
	if (n == -EADDRNOTAVAIL && letter->control.local.family == 4)
		return -ENETUNREACH; /* and for IP_PKTINFO */
	return n == -EHOSTUNREACH ? -ENETUNREACH : n;
}

static long total_of(const struct letter *letter)
{
	size_t total = 0;

	for (size_t i = 0; i < letter->n; i++)
		total += letter->iov[i].iov_len;
	return (long)total;
}

long net_dgram_sendmsg(struct net_sock *sock, const struct msghdr *msg,
		       int flags)
{
	struct letter letter;
	int64_t until = 0;
	long n;

	if (sock->state == NET_SOCK_CLOSED)
		return -EBADF;
	n = check_letter(sock, msg, flags, &letter);
	if (n < 0)
		return n;
	if (sock->dgram->to_port_0 && !letter.peer.family)
		return total_of(&letter);
	for (;;) {
		n = send_letter(sock, &letter);
		if (n != -EAGAIN || sock->nonblock || flags & MSG_DONTWAIT)
			return n;
		n = net_sock_wait(sock, &sock->writable,
				  sock->opts.send_timeout_ns, &until);
		if (n < 0)
			return n;
	}
}

long net_dgram_send(struct net_sock *sock, const struct iovec *iov, size_t n,
		    int flags)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov,
			     .msg_iovlen = n};

	return net_dgram_sendmsg(sock, &msg, flags);
}

long net_dgram_sendmmsg(struct net_sock *sock, struct mmsghdr *msgs, unsigned n,
			int flags)
{
	unsigned done = 0;
	long err = 0;

	net_sock_hold(sock);
	for (; done < n; done++) {
		err = net_can_write(&msgs[done], sizeof(msgs[done]))
			      ? net_dgram_sendmsg(sock, &msgs[done].msg_hdr,
						  flags)
			      : -EFAULT;
		if (err < 0)
			break;
		msgs[done].msg_len = (unsigned)err;
	}
	net_sock_put(sock);
	return done || err >= 0 ? (long)done : err;
}
