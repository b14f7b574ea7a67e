/* UDP: names, connecting, datagrams, errors. */
#include "calls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#define ADDR(addr) ((struct sockaddr *)&(addr))

static char buf[70000];

static int udp_socket(void)
{
	return socket(AF_INET, SOCK_DGRAM, 0);
}

static int dial_port(int fd, unsigned port)
{
	struct sockaddr_in addr = peer_addr(port);

	return connect(fd, ADDR(addr), sizeof(addr));
}

static int dissolve(int fd)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	return connect(fd, &none, sizeof(none));
}

static long say_to(int fd, const char *text, unsigned port)
{
	struct sockaddr_in addr = peer_addr(port);

	return sendto(fd, text, strlen(text), 0, ADDR(addr), sizeof(addr));
}

/* A connected socket whose peer has answered: its neighbour is known. */
static int talking(void)
{
	int fd = udp_socket();

	dial_port(fd, peer_port);
	send(fd, "hello", 5, 0);
	recv(fd, buf, 5, 0);
	errno = 0;
	return fd;
}

static unsigned port_of(int fd)
{
	struct sockaddr_in addr = {0};
	socklen_t len = sizeof(addr);

	getsockname(fd, ADDR(addr), &len);
	return ntohs(addr.sin_port);
}

/* ---- states ---- */

static void unbound(void)
{
	struct sockaddr_in addr = {0};
	socklen_t len = sizeof(addr);
	int fd = udp_socket();

	show("UDP: getsockname", getsockname(fd, ADDR(addr), &len));
	show("UDP: no port", addr.sin_port);
	show("UDP: getpeername", getpeername(fd, ADDR(addr), &len));
	show("UDP: unbound: send", send(fd, "x", 1, 0));
	show("UDP: recv, not waiting", recv(fd, buf, 1, MSG_DONTWAIT));
	show("UDP: listen", listen(fd, 1));
	show("UDP: accept", accept(fd, NULL, NULL));
	show("UDP: shutdown", shutdown(fd, SHUT_WR));
	show_poll("UDP: poll", 1, wait_for(fd, POLLIN | POLLOUT));
	close(fd);
}

static void check_bound(void)
{
	struct sockaddr_in addr = own_addr(0);
	struct sockaddr_in6 addr6 = {.sin6_family = AF_INET6};
	socklen_t len = sizeof(addr);
	int fd = udp_socket(), other = udp_socket();

	show("UDP: bind, IPv6", bind(fd, ADDR(addr6), sizeof(addr6)));
	show("UDP: bind, short", bind(fd, ADDR(addr), 5));
	show("UDP: bind", bind(fd, ADDR(addr), sizeof(addr)));
	show("UDP: bind again", bind(fd, ADDR(addr), sizeof(addr)));
	show("UDP: bound: getsockname", getsockname(fd, ADDR(addr), &len));
	show("UDP: bound: a port", addr.sin_port != 0);
	show("UDP: bound: getpeername", getpeername(fd, ADDR(addr), &len));
	getsockname(fd, ADDR(addr), &len);
	show("UDP: bind in use", bind(other, ADDR(addr), sizeof(addr)));
	show("UDP: bound: send", send(fd, "x", 1, 0));
	show("UDP: bound: shutdown", shutdown(fd, SHUT_RD));
	show_poll("UDP: shut down: poll", 1,
		  wait_for(fd, POLLIN | POLLOUT | POLLRDHUP));
	show("UDP: shut down: recv", recv(fd, buf, 1, 0));
	show("UDP: shut down: recv, not waiting",
	     recv(fd, buf, 1, MSG_DONTWAIT));
	close(other);
	close(fd);
}

static void connected(void)
{
	struct sockaddr_in addr = {0};
	socklen_t len = sizeof(addr);
	int fd = talking();
	unsigned port = port_of(fd);

	show("UDP: connected: getpeername", getpeername(fd, ADDR(addr), &len));
	show("UDP: connected: peer's port", ntohs(addr.sin_port) == peer_port);
	show("UDP: connected: length of a name", len);
	addr = own_addr(0);
	show("UDP: connected: bind", bind(fd, ADDR(addr), sizeof(addr)));
	show("UDP: connected: connect again", dial_port(fd, closed_port));
	show("UDP: connected: keeps its port", port_of(fd) == port);
	show("UDP: connected: sendto another", say_to(fd, "x", peer_port));
	show("UDP: connected: sendto port 0", say_to(fd, "x", 0));
	show("UDP: connected: port 0", dial_port(fd, 0));
	show("UDP: connected: port 0: send", send(fd, "x", 1, 0));
	close(fd);
	fd = talking();
	show("UDP: connected: dissolve", dissolve(fd));
	show("UDP: dissolved: getpeername", getpeername(fd, ADDR(addr), &len));
	show("UDP: dissolved: send", send(fd, "x", 1, 0));
	show("UDP: dissolved: dissolve", dissolve(fd));
	show("UDP: dissolved: sendto", say_to(fd, "x", peer_port));
	show("UDP: dissolved: recv", recv(fd, buf, 10, 0));
	close(fd);
	fd = talking();
	show("UDP: SHUT_WR", shutdown(fd, SHUT_WR));
	show("UDP: SHUT_WR: send", send(fd, "x", 1, MSG_NOSIGNAL));
	show("UDP: SHUT_WR: send, with a signal", send(fd, "x", 1, 0));
	show_poll("UDP: SHUT_WR: poll", 1,
		  wait_for(fd, POLLIN | POLLOUT | POLLRDHUP));
	show("UDP: SHUT_RD", shutdown(fd, SHUT_RD));
	show_poll("UDP: both shut: poll", 1,
		  wait_for(fd, POLLIN | POLLOUT | POLLRDHUP));
	show("UDP: shutdown, wrong", shutdown(fd, 9));
	close(fd);
}

static void check_ipv6(void)
{
	struct sockaddr_in6 addr = peer_addr6(peer_port);
	struct sockaddr_in addr4 = peer_addr(peer_port);
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET6, SOCK_DGRAM, 0), on = 1;

	show("UDP6: sendto", sendto(fd, "abc", 3, 0, ADDR(addr), sizeof(addr)));
	show("UDP6: recvfrom", recvfrom(fd, buf, 10, 0, ADDR(addr), &len));
	show("UDP6: length of a name", len);
	show("UDP6: sendto IPv4's sockaddr",
	     sendto(fd, "abcd", 4, 0, ADDR(addr4), sizeof(addr4)));
	show("UDP6: recvfrom mapped",
	     recvfrom(fd, buf, 10, 0, ADDR(addr), &len));
	show("UDP6: is mapped", IN6_IS_ADDR_V4MAPPED(&addr.sin6_addr));
	show("UDP6: connect mapped", connect(fd, ADDR(addr), len));
	show("UDP6: connect IPv4's sockaddr",
	     connect(fd, ADDR(addr4), sizeof(addr4)));
	show("UDP6: send", send(fd, "x", 1, 0));
	show("UDP6: recv", recv(fd, buf, 10, 0));
	show("UDP6: V6ONLY",
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)));
	close(fd);
	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	show("UDP6: V6ONLY: mapped", connect(fd, ADDR(addr), len));
	show("UDP6: V6ONLY: IPv4's sockaddr",
	     connect(fd, ADDR(addr4), sizeof(addr4)));
	close(fd);
	fd = udp_socket();
	addr = peer_addr6(peer_port);
	show("UDP: connect to IPv6", connect(fd, ADDR(addr), sizeof(addr)));
	close(fd);
}

/* ---- datagrams ---- */

static void check_sizes(void)
{
	int fd = talking(), n = -1;

	show("UDP: send nothing", send(fd, "", 0, 0));
	show_poll("UDP: nothing: poll", 1, wait_for(fd, POLLIN));
	show("UDP: nothing: FIONREAD", ioctl(fd, FIONREAD, &n));
	show("UDP: nothing: its size", n);
	show("UDP: nothing: recv", recv(fd, buf, 10, 0));
	show("UDP: write nothing", write(fd, "", 0));
	show("UDP: nothing: read", read(fd, buf, 10));
	show("UDP: six bytes", send(fd, "abcdef", 6, 0));
	wait_for(fd, POLLIN);
	show("UDP: read of nothing", read(fd, buf, 0));
	show("UDP: FIONREAD", ioctl(fd, FIONREAD, &n));
	show("UDP: its size", n);
	show("UDP: SIOCOUTQ", ioctl(fd, TIOCOUTQ, &n));
	show("UDP: MSG_PEEK", recv(fd, buf, 3, MSG_PEEK));
	show("UDP: MSG_PEEK, MSG_TRUNC",
	     recv(fd, buf, 3, MSG_PEEK | MSG_TRUNC));
	show("UDP: MSG_TRUNC", recv(fd, buf, 3, MSG_TRUNC));
	show("UDP: it is gone", recv(fd, buf, 3, MSG_DONTWAIT));
	show("UDP: 1472 bytes", send(fd, buf, 1472, 0));
	show("UDP: 1472 bytes: recv", recv(fd, buf, sizeof(buf), 0));
	show("UDP: 65508 bytes", send(fd, buf, 65508, 0));
	show("UDP: 65536 bytes", send(fd, buf, 65536, 0));
	show("UDP: MSG_OOB", send(fd, "x", 1, MSG_OOB));
	show("UDP: recv, MSG_OOB", recv(fd, buf, 1, MSG_OOB | MSG_DONTWAIT));
	show("UDP: recv, MSG_WAITALL", send(fd, "abc", 3, 0));
	show("UDP: recv, MSG_WAITALL: not all", recv(fd, buf, 10, MSG_WAITALL));
	close(fd);
}

static void addresses(void)
{
	struct sockaddr_in addr = peer_addr(peer_port);
	struct sockaddr_in6 addr6 = peer_addr6(peer_port);
	socklen_t len = 4;
	int fd = udp_socket();

	show("UDP: sendto", sendto(fd, "x", 1, 0, ADDR(addr), sizeof(addr)));
	show("UDP: recvfrom, short", recvfrom(fd, buf, 1, 0, ADDR(addr), &len));
	show("UDP: recvfrom, short: the length", len);
	addr = peer_addr(peer_port);
	show("UDP: sendto, short", sendto(fd, "x", 1, 0, ADDR(addr), 8));
	show("UDP: sendto, IPv6",
	     sendto(fd, "x", 1, 0, ADDR(addr6), sizeof(addr6)));
	addr.sin_family = AF_UNIX;
	show("UDP: sendto, wrong family",
	     sendto(fd, "x", 1, 0, ADDR(addr), sizeof(addr)));
	show("UDP: sendto, port 0", say_to(fd, "x", 0));
	close(fd);
}

static void messages(void)
{
	struct sockaddr_in from = {0};
	struct iovec iov[3] = {{buf, 2}, {NULL, 0}, {buf + 10, 2}};
	struct msghdr msg = {.msg_name = &from,
			     .msg_namelen = sizeof(from),
			     .msg_iov = iov,
			     .msg_iovlen = 3};
	int fd = talking();

	show("UDP: writev", writev(fd, iov, 3));
	show("UDP: recvmsg", recvmsg(fd, &msg, 0));
	show("UDP: recvmsg: flags", msg.msg_flags);
	show("UDP: recvmsg: port", ntohs(from.sin_port) == peer_port);
	show("UDP: recvmsg: length of a name", msg.msg_namelen);
	send(fd, "abcdef", 6, 0);
	show("UDP: recvmsg, cut", recvmsg(fd, &msg, 0));
	show("UDP: recvmsg, cut: flags", msg.msg_flags == MSG_TRUNC);
	send(fd, "abcdef", 6, 0);
	show("UDP: readv", readv(fd, iov, 3));
	send(fd, "abcd", 4, 0);
	wait_for(fd, POLLIN);
	show("UDP: readv of no bytes", readv(fd, &iov[1], 1));
	show("UDP: readv of no bytes: then", recv(fd, buf, 10, 0));
	show("UDP: writev of no bytes", writev(fd, &iov[1], 1));
	send(fd, "efghi", 5, 0);
	show("UDP: writev of no bytes: recv", recv(fd, buf, 10, 0));
	msg.msg_iovlen = 2000;
	show("UDP: recvmsg, many buffers", recvmsg(fd, &msg, MSG_DONTWAIT));
	show("UDP: sendmsg, many buffers", sendmsg(fd, &msg, 0));
	close(fd);
}

static void check_many(void)
{
	struct timespec soon = {.tv_nsec = 1000000}, wrong = {.tv_nsec = -1};
	struct iovec iov[4];
	struct mmsghdr msgs[4];
	int fd = talking();

	memset(msgs, 0, sizeof(msgs));
	for (unsigned i = 0; i < 4; i++) {
		iov[i] = (struct iovec){buf + 100 * i, i + 1};
		msgs[i].msg_hdr.msg_iov = &iov[i];
		msgs[i].msg_hdr.msg_iovlen = 1;
	}
	show("UDP: sendmmsg", sendmmsg(fd, msgs, 4, 0));
	show("UDP: sendmmsg: the last", msgs[3].msg_len);
	show("UDP: recvmmsg", recvmmsg(fd, msgs, 4, 0, NULL));
	show("UDP: recvmmsg: the last", msgs[3].msg_len);
	show("UDP: recvmmsg, not waiting",
	     recvmmsg(fd, msgs, 4, MSG_DONTWAIT, NULL));
	sendmmsg(fd, msgs, 1, 0);
	show("UDP: recvmmsg, for one",
	     recvmmsg(fd, msgs, 4, MSG_WAITFORONE, NULL));
	show("UDP: recvmmsg, wrong time", recvmmsg(fd, msgs, 4, 0, &wrong));
	show("UDP: recvmmsg of none", recvmmsg(fd, msgs, 0, 0, NULL));
	show("UDP: sendmmsg of none", sendmmsg(fd, msgs, 0, 0));
	sendmmsg(fd, msgs, 1, 0);
	wait_for(fd, POLLIN);
	usleep(2000);
	show("UDP: recvmmsg, with a time", recvmmsg(fd, msgs, 1, 0, &soon));
	close(fd);
}

/* ---- errors ---- */

static void refused(void)
{
	struct timeval second = {.tv_sec = 10};
	struct epoll_event event = {.events = EPOLLIN};
	int fd = udp_socket(), set = epoll_create1(0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
	dial_port(fd, closed_port);
	show("UDP: to a closed port", send(fd, "x", 1, 0));
	show("UDP: refused: recv", recv(fd, buf, 1, 0));
	show("UDP: refused: recv again", recv(fd, buf, 1, MSG_DONTWAIT));
	send(fd, "x", 1, 0);
	show_poll("UDP: refused: poll", 1, wait_for(fd, POLLIN));
	show("UDP: refused: SO_ERROR", so_error(fd));
	show("UDP: refused: SO_ERROR again", so_error(fd));
	send(fd, "x", 1, 0);
	wait_for(fd, POLLIN);
	show("UDP: refused: send", send(fd, "x", 1, 0));
	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	wait_for(fd, POLLIN);
	show("UDP: refused: epoll", epoll_wait(set, &event, 1, 1000));
	show("UDP: refused: its events", event.events);
	so_error(fd);
	show("UDP: refused: MSG_ERRQUEUE", recv(fd, buf, 1, MSG_ERRQUEUE));
	close(set);
	close(fd);
}

static void error_queue(void)
{
	char control[200];
	struct sockaddr_in name = {0};
	struct iovec iov = {buf, 100};
	struct msghdr msg = {.msg_name = &name,
			     .msg_namelen = sizeof(name),
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	const struct cmsghdr *cmsg;
	const struct sock_extended_err *ee;
	const struct sockaddr_in *offender;
	int fd = udp_socket();

	set_int(fd, IPPROTO_IP, IP_RECVERR, 1);
	dial_port(fd, closed_port);
	send(fd, "abc", 3, 0);
	show_poll("UDP: IP_RECVERR: poll", 1, wait_for(fd, POLLIN));
	show("UDP: IP_RECVERR: recvmsg", recvmsg(fd, &msg, MSG_ERRQUEUE));
	show("UDP: IP_RECVERR: flags", msg.msg_flags);
	show("UDP: IP_RECVERR: port", ntohs(name.sin_port) == closed_port);
	cmsg = CMSG_FIRSTHDR(&msg);
	show_text("UDP: IP_RECVERR: control", "%d %d %zu", cmsg->cmsg_level,
		  cmsg->cmsg_type, cmsg->cmsg_len);
	ee = (const void *)CMSG_DATA(cmsg);
	offender = (const void *)(ee + 1);
	show_text("UDP: IP_RECVERR: error", "%u %u %u %u", ee->ee_errno,
		  ee->ee_origin, ee->ee_type, ee->ee_code);
	show_text("UDP: IP_RECVERR: offender", "%d %u",
		  offender->sin_addr.s_addr == name.sin_addr.s_addr,
		  offender->sin_port);
	show("UDP: IP_RECVERR: again", recvmsg(fd, &msg, MSG_ERRQUEUE));
	close(fd);
}

static void faults(void)
{
	struct iovec iov = {nowhere, 4};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	socklen_t len = 16;
	int fd = talking();

	show("UDP: send from nowhere", send(fd, nowhere, 3, 0));
	show("UDP: sendmsg of nothing", sendmsg(fd, nowhere, 0));
	show("UDP: sendto nowhere", sendto(fd, "x", 1, 0, nowhere, 16));
	send(fd, "abc", 3, 0);
	wait_for(fd, POLLIN);
	show("UDP: peek to nowhere", recv(fd, nowhere, 3, MSG_PEEK));
	show("UDP: recvmsg to nowhere", recvmsg(fd, &msg, 0));
	show("UDP: it is lost", recv(fd, buf, 3, MSG_DONTWAIT));
	send(fd, "abc", 3, 0);
	wait_for(fd, POLLIN);
	show("UDP: recvfrom, name to nowhere",
	     recvfrom(fd, buf, 3, 0, nowhere, &len));
	show("UDP: recvmmsg to nowhere", recvmmsg(fd, nowhere, 1, 0, NULL));
	show("UDP: sendmmsg from nowhere", sendmmsg(fd, nowhere, 1, 0));
	close(fd);
}

void calls_on_datagrams(void)
{
	close(talk("end")); /* the link is up then */
	unbound();
	check_bound();
	connected();
	check_ipv6();
	check_sizes();
	addresses();
	messages();
	check_many();
	refused();
	error_queue();
}

void calls_with_dgram_faults(void)
{
	faults();
}
