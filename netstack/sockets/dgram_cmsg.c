/*
 * UDP: control data of messages, in both directions (ip(7), ipv6(7)).
 *
 * A link of the stack is no interface of the kernel, so IP_PKTINFO names number
 * 1, which every system has, and ignores the number when sending.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/whole.h"

#include <linux/errqueue.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <string.h>

#define INTERFACE 1u

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* RFC 4291 */

/* ---- received control data ---- */

/* The place of the next control message, and the remaining room. */
struct control {
	struct msghdr *msg;
	uint8_t *at;
	size_t room;
};

static void control_put(struct control *c, int level, int type,
			const void *data, size_t size)
{
	struct cmsghdr head = {
		.cmsg_len = CMSG_LEN(size),
		.cmsg_level = level,
		.cmsg_type = type,
	};
	size_t space = CMSG_SPACE(size);

	if (c->room < sizeof(head)) {
		c->msg->msg_flags |= MSG_CTRUNC;
		return;
	}
	if (c->room < head.cmsg_len) {
		c->msg->msg_flags |= MSG_CTRUNC;
		head.cmsg_len = c->room;
	}
	memcpy(c->at, &head, sizeof(head));
	memcpy(c->at + CMSG_LEN(0), data, head.cmsg_len - CMSG_LEN(0));
	space = space < c->room ? space : c->room;
	c->at += space;
	c->room -= space;
}

static void put_int(struct control *c, int level, int type, int value)
{
	control_put(c, level, type, &value, sizeof(value));
}

static void put_pktinfo(struct control *c, const struct net_addr *local)
{
	struct in_pktinfo info = {.ipi_ifindex = INTERFACE};

	if (local->ip[0] >> 4 != 0xe) /* an answer cannot come from a group */
		memcpy(&info.ipi_spec_dst, local->ip, 4);
	memcpy(&info.ipi_addr, local->ip, 4);
	control_put(c, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
}

static void put_pktinfo6(struct control *c, const struct net_addr *local)
{
	struct in6_pktinfo info = {.ipi6_ifindex = INTERFACE};

	if (local->family == 4) {
		memcpy(&info.ipi6_addr, mapped, 12);
		memcpy(info.ipi6_addr.s6_addr + 12, local->ip, 4);
	} else {
		memcpy(&info.ipi6_addr, local->ip, 16);
	}
	control_put(c, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof(info));
}

static struct control control_begin(struct msghdr *msg)
{
	struct control c = {.msg = msg, .at = msg->msg_control};

	if (c.at && net_can_write(c.at, msg->msg_controllen))
		c.room = msg->msg_controllen;
	return c;
}

static void control_end(struct control *c)
{
	c->msg->msg_controllen =
		c->at ? (size_t)(c->at - (uint8_t *)c->msg->msg_control) : 0;
}

void net_dgram_put_control(const struct net_sock *sock,
			   const struct net_datagram *datagram,
			   struct msghdr *msg)
{
	const struct net_dgram *d = sock->dgram;
	bool is4 = datagram->local.family == 4;
	struct control c = control_begin(msg);

	if (d->pktinfo6 && sock->v6)
		put_pktinfo6(&c, &datagram->local);
	if (is4 && d->pktinfo)
		put_pktinfo(&c, &datagram->local);
	if (is4 && d->recv_ttl)
		put_int(&c, IPPROTO_IP, IP_TTL, datagram->ttl);
	if (is4 && d->recv_tos)
		control_put(&c, IPPROTO_IP, IP_TOS, &datagram->tos, 1);
	if (!is4 && d->recv_hops)
		put_int(&c, IPPROTO_IPV6, IPV6_HOPLIMIT, datagram->ttl);
	if (!is4 && d->recv_tclass)
		put_int(&c, IPPROTO_IPV6, IPV6_TCLASS, datagram->tos);
	control_end(&c);
}

/* "Port unreachable", the only error that reaches a socket. */
void net_dgram_put_error(const struct net_sock *sock, int err,
			 const struct net_addr *peer, struct msghdr *msg)
{
	bool is4 = peer->family == 4;
	struct {
		struct sock_extended_err ee;
		struct sockaddr_in6 offender; /* or sockaddr_in, shorter */
	} error = {
		.ee = {.ee_errno = (uint32_t)-err,
		       .ee_origin =
			       is4 ? SO_EE_ORIGIN_ICMP : SO_EE_ORIGIN_ICMP6,
		       .ee_type = is4 ? ICMP_DEST_UNREACH : ICMP6_DST_UNREACH,
		       .ee_code = is4 ? ICMP_PORT_UNREACH
				      : ICMP6_DST_UNREACH_NOPORT},
	};
	struct net_addr offender = *peer;
	struct control c = control_begin(msg);
	socklen_t len = sizeof(error.offender);

	msg->msg_flags = MSG_ERRQUEUE;
	if (msg->msg_name)
		net_addr_to_sockaddr(peer, sock->v6, msg->msg_name,
				     &msg->msg_namelen);
	offender.port = 0;
	net_addr_to_sockaddr(&offender, !is4,
			     (struct sockaddr *)&error.offender, &len);
	control_put(&c, is4 ? IPPROTO_IP : IPPROTO_IPV6,
		    is4 ? IP_RECVERR : IPV6_RECVERR, &error,
		    sizeof(error.ee) + len);
	control_end(&c);
}

/* ---- control data to send ---- */

static bool get_local(const struct cmsghdr *cmsg, struct net_addr *out)
{
	struct in_pktinfo info;
	struct in6_pktinfo info6;

	if (cmsg->cmsg_level == IPPROTO_IP) {
		if (cmsg->cmsg_len != CMSG_LEN(sizeof(info)))
			return false;
		memcpy(&info, CMSG_DATA(cmsg), sizeof(info));
		memcpy(out->ip, &info.ipi_spec_dst, 4);
		out->family = 4;
	} else {
		if (cmsg->cmsg_len < CMSG_LEN(sizeof(info6)))
			return false;
		memcpy(&info6, CMSG_DATA(cmsg), sizeof(info6));
		out->family = 6;
		memcpy(out->ip, &info6.ipi6_addr, 16);
		if (memcmp(&info6.ipi6_addr, mapped, 12) == 0) {
			memset(out->ip, 0, sizeof(out->ip));
			memcpy(out->ip, info6.ipi6_addr.s6_addr + 12, 4);
			out->family = 4;
		}
	}
	if (net_addr_is_any(out))
		out->family = 0;
	return true;
}

/* A number from least to 255, of 4 bytes; IP_TOS may have 1. */
static bool get_number(const struct cmsghdr *cmsg, int least, int *out)
{
	uint8_t byte;

	if (cmsg->cmsg_len == CMSG_LEN(sizeof(*out))) {
		memcpy(out, CMSG_DATA(cmsg), sizeof(*out));
	} else if (cmsg->cmsg_len == CMSG_LEN(1) && cmsg->cmsg_type == IP_TOS) {
		memcpy(&byte, CMSG_DATA(cmsg), 1);
		*out = byte;
	} else {
		return false;
	}
	return *out >= least && *out <= UINT8_MAX;
}

static bool get_one(const struct cmsghdr *cmsg, struct net_dgram_control *out)
{
	if (cmsg->cmsg_level == IPPROTO_IP)
		switch (cmsg->cmsg_type) {
		case IP_PKTINFO:
			return get_local(cmsg, &out->local);
		case IP_TTL:
			return get_number(cmsg, 1, &out->ttl);
		case IP_TOS:
			return get_number(cmsg, 0, &out->tos);
		default:
			return false;
		}
	if (cmsg->cmsg_level == IPPROTO_IPV6)
		switch (cmsg->cmsg_type) {
		case IPV6_PKTINFO:
			return get_local(cmsg, &out->local);
		case IPV6_HOPLIMIT:
			return get_number(cmsg, 0, &out->ttl);
		case IPV6_TCLASS:
			return get_number(cmsg, 0, &out->tos);
		default:
			return false;
		}
	return false;
}

int net_dgram_get_control(const struct net_sock *sock, const struct msghdr *msg,
			  struct net_dgram_control *out)
{
	struct msghdr head = *msg;

	*out = (struct net_dgram_control){.ttl = -1, .tos = -1};
	if (!msg->msg_control || msg->msg_controllen == 0)
		return 0;
	if (!net_can_read(msg->msg_control, msg->msg_controllen))
		return -EFAULT;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&head); c;
	     c = CMSG_NXTHDR(&head, c)) {
		const uint8_t *end =
			(uint8_t *)msg->msg_control + msg->msg_controllen;

		if (c->cmsg_len < sizeof(*c) ||
		    c->cmsg_len > (size_t)(end - (uint8_t *)c))
			return -EINVAL;
		/* Others' levels are ignored, as Linux does. */
		if (c->cmsg_level == IPPROTO_IP ||
		    (c->cmsg_level == IPPROTO_IPV6 && sock->v6)) {
			if (!get_one(c, out))
				return -EINVAL;
		} else if (c->cmsg_level == IPPROTO_UDP ||
			   (c->cmsg_level == SOL_SOCKET &&
			    c->cmsg_type != SCM_RIGHTS &&
			    c->cmsg_type != SCM_CREDENTIALS)) {
			return -EINVAL; /* among them UDP_SEGMENT */
		}
	}
	return 0;
}
