/*
 * Receives datagrams: net_udp_recv(), net_udp_recv_batch(), net_udp_peek().
 */
#include "netstack/api/api.h"
#include "netstack/program/log.h"

#include <string.h>

static int wait_begin(struct net_udp *udp)
{
	if (!coro_self())
		return -EPERM;
	if (udp->reader)
		return -EBUSY;
	if (net_here()->draining)
		return -ECANCELED;
	udp->reader = coro_self();
	udp->waiters++;
	return 0;
}

/* Blocks until a datagram waits: 0, or why there is none. */
static int wait_readable(struct net_udp *udp)
{
	int err = net_udp_enter(udp);

	while (err == 0 && !udp->rx_head) {
		err = net_udp_take_error(udp);
		if (err == 0)
			err = udp->watch ? -EAGAIN : wait_begin(udp);
		if (err < 0)
			return err;
		err = coro_park_in_call(udp->read_deadline);
		udp->reader = NULL;
		err = net_udp_waited(udp, err);
	}
	return err;
}

/* Takes the first datagram as one that the program holds. */
static int take_held(struct net_udp *udp, struct net_datagram *out)
{
	struct pbuf *p = net_udp_unqueue(udp);
	int err = net_udp_hold(udp, p, out);

	if (err < 0)
		net_udp_unqueue_undo(udp, p);
	return err;
}

int net_udp_recv_batch(struct net_udp *udp, struct net_datagram *datagrams,
		       unsigned n)
{
	unsigned taken = 0;
	int err;

	NET_CHECK_UDP(udp);
	if (!datagrams || n == 0)
		return udp ? -EINVAL : -EBADF;
	err = wait_readable(udp);
	if (err < 0)
		return err;
	while (err == 0 && taken < n && udp->rx_head) {
		err = take_held(udp, &datagrams[taken]);
		taken += err == 0;
	}
	return taken ? (int)taken : err;
}

cold static void report_misuse(void)
{
	net_here()->stats.view_misuses++;
	net_log_seldom_of(NET_COMPONENT_API,
			  "coronet: coroutine '%s' releases a datagram that it "
			  "does not hold: it was released before",
			  coro_self() ? coro_name(coro_self()) : "(none)");
}

void net_udp_release(struct net_udp *udp, struct net_datagram *datagrams,
		     unsigned n)
{
	NET_CHECK_UDP(udp);
	for (unsigned i = 0; udp && i < n; i++) {
		struct pbuf *p;

		if (!datagrams[i].owner)
			continue;
		p = net_udp_unhold(udp, datagrams[i].owner);
		if (p)
			net_pbuf_free(p);
		else
			report_misuse();
		datagrams[i].owner = NULL;
		datagrams[i].data = NULL;
		datagrams[i].len = 0;
	}
}

long net_udp_recv(struct net_udp *udp, void *buf, size_t len,
		  struct net_datagram *info)
{
	struct pbuf *p;
	size_t n;
	int err;

	NET_CHECK_UDP(udp);
	if (!buf && len)
		return udp ? -EINVAL : -EBADF;
	err = wait_readable(udp);
	if (err < 0)
		return err;
	p = net_udp_unqueue(udp);
	n = LWIP_MIN(p->len, len);
	if (n)
		memcpy(buf, p->payload, n);
	udp->stats.rx_cut += n < p->len;
	if (info) {
		net_udp_describe(p, info);
		info->data = NULL;
	}
	net_pbuf_free(p);
	return (long)n;
}

/* 0: a datagram is there to be read; -EAGAIN: none is. */
static int check_readable(struct net_udp *udp)
{
	int err = net_udp_enter(udp);

	return err == 0 && !udp->rx_head ? -EAGAIN : err;
}

int net_udp_peek(struct net_udp *udp, struct net_datagram *out)
{
	int err;

	NET_CHECK_UDP(udp);
	err = check_readable(udp);
	if (err == 0)
		net_udp_describe(udp->rx_head, out);
	return err;
}

int net_udp_discard(struct net_udp *udp)
{
	int err;

	NET_CHECK_UDP(udp);
	err = check_readable(udp);
	if (err == 0)
		net_pbuf_free(net_udp_unqueue(udp));
	return err;
}
