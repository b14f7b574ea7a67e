/* UDP: options and control data. */
#include "calls.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ADDR(addr) ((struct sockaddr *)&(addr))

static const struct {
	const char *name;
	int level, option, value;
} options[] = {
#define OPTION(level, option, value)                                           \
	{                                                                      \
#option, level, option, value                                  \
	}
	OPTION(SOL_SOCKET, SO_BROADCAST, 1),
	OPTION(SOL_SOCKET, SO_REUSEADDR, 1),
	OPTION(SOL_SOCKET, SO_REUSEPORT, 1),
	OPTION(SOL_SOCKET, SO_RCVBUF, 100000),
	OPTION(SOL_SOCKET, SO_SNDBUF, 100000),
	OPTION(SOL_SOCKET, SO_PRIORITY, 3),
	OPTION(SOL_SOCKET, SO_KEEPALIVE, 1),
	OPTION(SOL_SOCKET, SO_RCVLOWAT, 5),
	OPTION(IPPROTO_IP, IP_TTL, 7),
	OPTION(IPPROTO_IP, IP_TTL, 256),
	OPTION(IPPROTO_IP, IP_TOS, 0x20),
	OPTION(IPPROTO_IP, IP_PKTINFO, 1),
	OPTION(IPPROTO_IP, IP_RECVTTL, 1),
	OPTION(IPPROTO_IP, IP_RECVTOS, 1),
	OPTION(IPPROTO_IP, IP_RECVERR, 1),
	OPTION(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO),
	OPTION(IPPROTO_IP, IP_MTU_DISCOVER, 99),
	OPTION(IPPROTO_IP, IP_MTU, 1400),
	OPTION(IPPROTO_IP, IP_MULTICAST_TTL, 4),
	OPTION(IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9),
	OPTION(IPPROTO_TCP, TCP_NODELAY, 1),
	OPTION(SOL_SOCKET, 999, 1),
	OPTION(999, 1, 1),
};

static void each_option(void)
{
	char label[100];

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		struct sockaddr_in addr = peer_addr(peer_port);
		int level = options[i].level, option = options[i].option;

		connect(fd, ADDR(addr), sizeof(addr));
		snprintf(label, sizeof(label), "UDP: %s %d", options[i].name,
			 options[i].value);
		show(label, setsockopt(fd, level, option, &options[i].value,
				       sizeof(int)));
		snprintf(label, sizeof(label), "UDP: %s %d: then",
			 options[i].name, options[i].value);
		show(label, get_int(fd, level, option));
		close(fd);
	}
}

static void check_types(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in addr = peer_addr(peer_port);

	show("UDP: IP_MTU before", get_int(fd, IPPROTO_IP, IP_MTU));
	connect(fd, ADDR(addr), sizeof(addr));
	show("UDP: SO_TYPE", get_int(fd, SOL_SOCKET, SO_TYPE));
	show("UDP: SO_DOMAIN", get_int(fd, SOL_SOCKET, SO_DOMAIN));
	show("UDP: SO_PROTOCOL", get_int(fd, SOL_SOCKET, SO_PROTOCOL));
	show("UDP: SO_ACCEPTCONN", get_int(fd, SOL_SOCKET, SO_ACCEPTCONN));
	show("UDP: SO_ERROR", so_error(fd));
	close(fd);
}

/* ---- control data ---- */

union control {
	char bytes[256];
	struct cmsghdr align;
};

static void show_control(const char *label, struct msghdr *msg)
{
	char text[200] = "";

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 " %d:%d:%zu", c->cmsg_level, c->cmsg_type,
			 c->cmsg_len);
	show_text(label, "%zu%s%s", msg->msg_controllen, text,
		  msg->msg_flags & MSG_CTRUNC ? " cut" : "");
}

static void receive_control(int fd, const char *label, size_t room)
{
	union control control;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = room};

	memset(&control, 0, sizeof(control));
	send(fd, "x", 1, 0);
	recvmsg(fd, &msg, 0);
	show_control(label, &msg);
}

static void received(void)
{
	struct sockaddr_in addr = peer_addr(peer_port);
	struct sockaddr_in6 addr6 = peer_addr6(peer_port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	connect(fd, ADDR(addr), sizeof(addr));
	receive_control(fd, "UDP: no control data", 256);
	set_int(fd, IPPROTO_IP, IP_RECVTTL, 1);
	receive_control(fd, "UDP: TTL", 256);
	set_int(fd, IPPROTO_IP, IP_RECVTOS, 1);
	set_int(fd, IPPROTO_IP, IP_PKTINFO, 1);
	receive_control(fd, "UDP: all", 256);
	receive_control(fd, "UDP: room for none", 0);
	receive_control(fd, "UDP: little room", 8);
	receive_control(fd, "UDP: room for a part", 20);
	receive_control(fd, "UDP: room for one", 32);
	receive_control(fd, "UDP: room for more than one", 40);
	close(fd);
	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	connect(fd, ADDR(addr6), sizeof(addr6));
	set_int(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	set_int(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	set_int(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	receive_control(fd, "UDP6: all", 256);
	close(fd);
	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	connect(fd, ADDR(addr), sizeof(addr));
	set_int(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	set_int(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	receive_control(fd, "UDP6: all, mapped", 256);
	close(fd);
}

static long send_control(int fd, int level, int type, const void *data,
			 size_t size)
{
	union control control;
	char byte = 'x';
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = CMSG_SPACE(size)};

	memset(&control, 0, sizeof(control));
	control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(size),
					 .cmsg_level = level,
					 .cmsg_type = type};
	memcpy(CMSG_DATA(&control.align), data, size);
	return sendmsg(fd, &msg, 0);
}

static void check_sent(void)
{
	struct sockaddr_in addr = peer_addr(peer_port);
	struct in_pktinfo info = {.ipi_spec_dst = own_addr(0).sin_addr};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), value = 5;
	uint8_t byte = 8;

	connect(fd, ADDR(addr), sizeof(addr));
	show("UDP: sends IP_TTL",
	     send_control(fd, IPPROTO_IP, IP_TTL, &value, sizeof(value)));
	show("UDP: sends IP_TOS",
	     send_control(fd, IPPROTO_IP, IP_TOS, &value, sizeof(value)));
	show("UDP: sends IP_TOS, a byte",
	     send_control(fd, IPPROTO_IP, IP_TOS, &byte, 1));
	show("UDP: sends IP_TTL, a byte",
	     send_control(fd, IPPROTO_IP, IP_TTL, &byte, 1));
	value = 0;
	show("UDP: sends IP_TTL 0",
	     send_control(fd, IPPROTO_IP, IP_TTL, &value, sizeof(value)));
	value = 300;
	show("UDP: sends IP_TTL 300",
	     send_control(fd, IPPROTO_IP, IP_TTL, &value, sizeof(value)));
	show("UDP: sends IP_TOS 300",
	     send_control(fd, IPPROTO_IP, IP_TOS, &value, sizeof(value)));
	show("UDP: sends IP_PKTINFO",
	     send_control(fd, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info)));
	show("UDP: sends IP_PKTINFO, short",
	     send_control(fd, IPPROTO_IP, IP_PKTINFO, &info, 8));
	info.ipi_spec_dst.s_addr = htonl(0x0a0909ff);
	show("UDP: sends IP_PKTINFO, a stranger's",
	     send_control(fd, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info)));
	show("UDP: sends an unknown type",
	     send_control(fd, IPPROTO_IP, 99, &value, sizeof(value)));
	show("UDP: sends an unknown level",
	     send_control(fd, 999, 99, &value, sizeof(value)));
	show("UDP: sends a file",
	     send_control(fd, SOL_SOCKET, SCM_RIGHTS, &(int){0}, sizeof(int)));
	close(fd);
}

void calls_on_dgram_options(void)
{
	check_types();
	each_option();
	received();
	check_sent();
}
