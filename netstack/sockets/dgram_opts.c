/*
 * UDP: getsockopt(), setsockopt(), ioctl().
 *
 * As for TCP, each option is set on the kernel's socket that holds the number,
 * which checks the value; those with an effect are then read from there. An
 * option that is not in these lists is refused (ENOPROTOOPT).
 */
#include "netstack/sockets/dgram.h"

#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78 /* linux/in6.h, Linux 4.15 */
#endif

/* A queue of SO_RCVBUF bytes has one datagram for so many of them, at least. */
#define DATAGRAM_BYTES 256u

static bool is_known_socket(int name)
{
	switch (name) {
	case SO_RCVTIMEO:
	case SO_SNDTIMEO:
	case SO_RCVBUF:
	case SO_RCVBUFFORCE:
	case SO_REUSEPORT:
	case SO_REUSEADDR: /* and these have no effect */
	case SO_SNDBUF:
	case SO_SNDBUFFORCE:
	case SO_PRIORITY:
	case SO_BROADCAST:
	case SO_DONTROUTE:
	case SO_BUSY_POLL:
	case SO_LINGER:
	case SO_KEEPALIVE:
	case SO_RCVLOWAT:
	case SO_MAX_PACING_RATE:
		return true;
	default:
		return false;
	}
}

static bool is_known_ip(int name)
{
	switch (name) {
	case IP_TOS:
	case IP_TTL:
	case IP_PKTINFO:
	case IP_RECVTTL:
	case IP_RECVTOS:
	case IP_RECVERR:
	case IP_MULTICAST_TTL:
	case IP_MULTICAST_LOOP:
	case IP_MTU_DISCOVER: /* and these have no effect */
	case IP_FREEBIND:
	case IP_BIND_ADDRESS_NO_PORT:
	case IP_MULTICAST_ALL:
		return true;
	default:
		return false;
	}
}

static bool is_known_ipv6(int name)
{
	switch (name) {
	case IPV6_TCLASS:
	case IPV6_UNICAST_HOPS:
	case IPV6_RECVPKTINFO:
	case IPV6_RECVHOPLIMIT:
	case IPV6_RECVTCLASS:
	case IPV6_RECVERR:
	case IPV6_V6ONLY:
	case IPV6_MULTICAST_HOPS:
	case IPV6_MULTICAST_LOOP:
	case IPV6_MTU_DISCOVER: /* and these have no effect */
	case IPV6_MTU:
	case IPV6_DONTFRAG:
	case IPV6_FREEBIND:
	case IPV6_MULTICAST_IF:
		return true;
	default:
		return false;
	}
}

static bool is_known(int level, int name)
{
	return (level == SOL_SOCKET && is_known_socket(name)) ||
	       (level == IPPROTO_IP && is_known_ip(name)) ||
	       (level == IPPROTO_IPV6 && is_known_ipv6(name));
}

/* ---- reading them ---- */

static int kernels_int(int fd, int level, int name)
{
	int value = 0;
	socklen_t len = sizeof(value);

	net_real()->getsockopt(fd, level, name, &value, &len);
	return value;
}

/* The kernel's default of SO_RCVBUF, which the stack's own replaces. */
static int kernels_rcvbuf;
static pthread_once_t kernels_rcvbuf_once = PTHREAD_ONCE_INIT;

static void ask_kernels_rcvbuf(void)
{
	int fd = net_real()->socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	kernels_rcvbuf = kernels_int(fd, SOL_SOCKET, SO_RCVBUF);
	net_real()->close(fd);
}

static void load_socket(struct net_sock *sock, int fd)
{
	int bytes = kernels_int(fd, SOL_SOCKET, SO_RCVBUF);

	pthread_once(&kernels_rcvbuf_once, ask_kernels_rcvbuf);
	sock->dgram->rx_bytes =
		bytes > 0 && bytes != kernels_rcvbuf ? (unsigned)bytes : 0;
}

static void load_ip(struct net_dgram *d, int fd)
{
	d->pktinfo = kernels_int(fd, IPPROTO_IP, IP_PKTINFO);
	d->recv_ttl = kernels_int(fd, IPPROTO_IP, IP_RECVTTL);
	d->recv_tos = kernels_int(fd, IPPROTO_IP, IP_RECVTOS);
	d->recv_err = kernels_int(fd, IPPROTO_IP, IP_RECVERR);
	d->ttl = (uint8_t)kernels_int(fd, IPPROTO_IP, IP_TTL);
	d->tos = (uint8_t)kernels_int(fd, IPPROTO_IP, IP_TOS);
	d->group_ttl = (uint8_t)kernels_int(fd, IPPROTO_IP, IP_MULTICAST_TTL);
	d->group_quiet = !kernels_int(fd, IPPROTO_IP, IP_MULTICAST_LOOP);
}

static void load_ipv6(struct net_dgram *d, int fd)
{
	d->pktinfo6 = kernels_int(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO);
	d->recv_hops = kernels_int(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT);
	d->recv_tclass = kernels_int(fd, IPPROTO_IPV6, IPV6_RECVTCLASS);
	d->recv_err6 = kernels_int(fd, IPPROTO_IPV6, IPV6_RECVERR);
	d->hops = (uint8_t)kernels_int(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS);
	d->tclass = (uint8_t)kernels_int(fd, IPPROTO_IPV6, IPV6_TCLASS);
	d->group_hops =
		(uint8_t)kernels_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS);
	d->group_quiet6 = !kernels_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP);
}

void net_dgram_opts_load(struct net_sock *sock, int fd)
{
	int saved = errno;

	load_socket(sock, fd);
	load_ip(sock->dgram, fd);
	if (sock->v6)
		load_ipv6(sock->dgram, fd);
	errno = saved;
}

struct net_udp_opts net_dgram_udp_opts(const struct net_sock *sock,
				       unsigned family)
{
	const struct net_dgram *d = sock->dgram;
	bool is6 = family == 6;
	struct net_udp_opts opts = {
		.ttl = is6 ? d->hops : d->ttl,
		.tos = is6 ? d->tclass : d->tos,
		.rx_bytes = d->rx_bytes,
		.shared = sock->opts.reuse_port,
		.group_ttl = is6 ? d->group_hops : d->group_ttl,
		.group_quiet = is6 ? d->group_quiet6 : d->group_quiet,
		.group_local = d->group_local,
	};

	if (d->rx_bytes)
		opts.rx_datagrams = d->rx_bytes / DATAGRAM_BYTES;
	return opts;
}

/* ---- setting and getting ---- */

long net_dgram_setopt(struct net_sock *sock, int fd, int level, int name,
		      const void *value, socklen_t len)
{
	struct net_udp_opts opts;

	if (!is_known(level, name))
		return net_dgram_set_group(sock, level, name, value, len);
	if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY && sock->dgram->udp)
		return -EINVAL;
	if (net_real()->setsockopt(fd, level, name, value, len) < 0)
		return -errno;
	net_sock_opts_load(sock, fd);
	net_dgram_opts_load(sock, fd);
	if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
		sock->v6_only = sock->v6 && kernels_int(fd, level, IPV6_V6ONLY);
		sock->dgram->at.family = sock->v6_only ? 6 : 0;
	}
	opts = net_dgram_udp_opts(sock, sock->dgram->at.family);
	if (sock->dgram->udp)
		net_udp_set_opts(sock->dgram->udp, &opts);
	return 0;
}

static long give_int(void *value, socklen_t *len, int number)
{
	if (*len > sizeof(number))
		*len = sizeof(number);
	memcpy(value, &number, *len);
	return 0;
}

static int take_error(struct net_sock *sock)
{
	return sock->dgram->udp ? -net_udp_error(sock->dgram->udp, true) : 0;
}

/* The largest packet to the peer. */
static long get_mtu(struct net_sock *sock, void *value, socklen_t *len)
{
	bool is6 = sock->remote.family == 6;
	long room;

	if (!sock->dgram->connected)
		return -ENOTCONN;
	room = net_udp_room(sock->dgram->udp, NULL);
	return room < 0 ? room
			: give_int(value, len, (int)room + (is6 ? 48 : 28));
}

static long get_link(const struct net_sock *sock, void *value, socklen_t *len)
{
	int addr;

	memcpy(&addr, sock->dgram->group_local.ip, sizeof(addr));
	return give_int(value, len, addr);
}

long net_dgram_getopt(struct net_sock *sock, int fd, int level, int name,
		      void *value, socklen_t *len)
{
	if (level == SOL_SOCKET && name == SO_ERROR)
		return give_int(value, len, take_error(sock));
	if (level == IPPROTO_IP && name == IP_MULTICAST_IF)
		return get_link(sock, value, len);
	if ((level == IPPROTO_IP && name == IP_MTU) ||
	    (level == IPPROTO_IPV6 && name == IPV6_MTU))
		return get_mtu(sock, value, len);
	if (!is_known(level, name) &&
	    (level != SOL_SOCKET ||
	     (name != SO_TYPE && name != SO_DOMAIN && name != SO_PROTOCOL &&
	      name != SO_ACCEPTCONN)))
		return level == SOL_SOCKET || level == IPPROTO_IP ||
				       level == IPPROTO_IPV6 ||
				       level == IPPROTO_UDP
			       ? -ENOPROTOOPT
			       : -EOPNOTSUPP;
	return net_real()->getsockopt(fd, level, name, value, len) < 0 ? -errno
								       : 0;
}

long net_dgram_ioctl(struct net_sock *sock, unsigned long request, int *value)
{
	struct net_datagram first = {0};

	if (request == FIONREAD && sock->dgram->udp)
		net_udp_peek(sock->dgram->udp, &first);
	*value = (int)first.len;
	return 0;
}
