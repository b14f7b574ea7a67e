/*
 * UDP in libcoronet-sockets: whose a socket is, names, connecting, options.
 */
#include "tests/net/sockets_dgram.h"

#include <linux/errqueue.h>
#include <netinet/udp.h>

/* ---- kernel or stack ---- */

static void bind_step(void)
{
	struct sockaddr_in in;
	socklen_t len = sizeof(in);

	open_bound();
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	assert_int_equal(len, sizeof(in));
	assert_int_equal(ntohs(in.sin_port), PORT);
	assert_int_equal(ntohl(in.sin_addr.s_addr), 0x0a000001);
	FAILS(getpeername(fd, (struct sockaddr *)&in, &len), ENOTCONN);
	FAILS(bind_to(fd, "10.0.0.1", PORT + 1), EINVAL);
	FAILS(listen(fd, 1), EOPNOTSUPP);
	FAILS(accept(fd, NULL, NULL), EOPNOTSUPP);
	server = socket(AF_INET, SOCK_DGRAM, 0);
	FAILS(bind_to(server, "10.0.0.1", PORT), EADDRINUSE);
	assert_int_equal(bind_to(server, "10.0.0.1", 0), 0);
	assert_true(port_of(server) >= 1024);
}

static void test_bound_socket_has_its_name(void **state)
{
	run_call(bind_step);
}

static void kernels_step(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	server = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind_to(server, "127.0.0.1", 0), 0);
	assert_int_equal(send_text(fd, "127.0.0.1", port_of(server), "x"), 1);
	assert_false(net_sockets_ours(fd));
	assert_false(net_sockets_ours(server));
	/* Decided by its first datagram. */
	send_text(fd, "10.0.0.2", PEER_PORT, "y");
	assert_false(net_sockets_ours(fd));
}

static void test_loopback_stays_with_the_kernel(void **state)
{
	char byte;

	run_call(kernels_step);
	assert_int_equal(recv(server, &byte, 1, MSG_DONTWAIT), 1);
	assert_int_equal(byte, 'x');
}

static void first_datagram_step(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(send_text(fd, "10.0.0.2", PEER_PORT, "x"), 1);
	assert_true(net_sockets_ours(fd));
	FAILS(send_text(fd, "127.0.0.1", PEER_PORT, "x"), ENETUNREACH);
	FAILS(send(fd, "x", 1, 0), EDESTADDRREQ);
}

static void test_first_datagram_decides(void **state)
{
	run_call(first_datagram_step);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.to.port, PEER_PORT);
	assert_int_equal(sent.from.port, port_of(fd));
}

static int set;

static void back_step(void)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
	uint16_t port;

	fd = socket(AF_INET, SOCK_DGRAM, 0);
	server = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind_to(server, "127.0.0.1", 0), 0);
	assert_int_equal(bind_to(fd, "0.0.0.0", 0), 0);
	assert_true(net_sockets_ours(fd));
	port = port_of(fd);
	set = epoll_create1(0);
	assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
	assert_int_equal(send_text(fd, "127.0.0.1", port_of(server), "x"), 1);
	assert_false(net_sockets_ours(fd));
	assert_int_equal(port_of(fd), port);
	/* It is still a member of the set. */
	assert_int_equal(send_text(server, "127.0.0.1", port, "y"), 1);
	event = (struct epoll_event){0};
	assert_int_equal(epoll_wait(set, &event, 1, -1), 1);
	assert_int_equal(event.data.u32, 7);
	close(set);
}

static void test_socket_bound_to_any_reaches_the_kernels_addresses(void **state)
{
	begin_call(back_step);
	for (unsigned i = 0; i < 1000 && !ended; i++)
		run_ms(1);
	assert_int_equal(ended, 1);
}

static void back_by_connect_step(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind_to(fd, "0.0.0.0", PORT), 0);
	assert_int_equal(connect_to(fd, "127.0.0.1", 9), 0);
	assert_false(net_sockets_ours(fd));
	assert_int_equal(port_of(fd), PORT);
	server = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind_to(server, "10.0.0.1", PORT), 0);
	FAILS(connect_to(server, "127.0.0.1", 9), ENETUNREACH);
}

static void test_connect_to_loopback_makes_it_the_kernels(void **state)
{
	run_call(back_by_connect_step);
}

static void used_step(void)
{
	char byte;

	assert_int_equal(recv(fd, &byte, 1, 0), 1);
	FAILS(connect_to(fd, "127.0.0.1", 9), ENETUNREACH);
	FAILS(send_text(fd, "127.0.0.1", 9, "x"), ENETUNREACH);
	assert_true(net_sockets_ours(fd));
}

static void any_step(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind_to(fd, "0.0.0.0", PORT), 0);
}

static void test_socket_that_has_received_stays_on_the_stack(void **state)
{
	run_call(any_step);
	peer_says("x");
	run_call(used_step);
}

/* ---- connecting ---- */

static void connect_step(void)
{
	struct sockaddr_in in, none = {.sin_family = AF_UNSPEC};
	socklen_t len = sizeof(in);
	uint16_t port;

	open_connected();
	port = port_of(fd);
	assert_int_equal(getpeername(fd, (struct sockaddr *)&in, &len), 0);
	assert_int_equal(ntohs(in.sin_port), PEER_PORT);
	assert_int_equal(connect_to(fd, "10.0.0.2", PEER_PORT + 1), 0);
	assert_int_equal(port_of(fd), port); /* others may know it */
	assert_int_equal(getpeername(fd, (struct sockaddr *)&in, &len), 0);
	assert_int_equal(ntohs(in.sin_port), PEER_PORT + 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&none, sizeof(none)),
			 0);
	FAILS(getpeername(fd, (struct sockaddr *)&in, &len), ENOTCONN);
	FAILS(send(fd, "x", 1, 0), EDESTADDRREQ);
	assert_int_equal(connect_to(fd, "10.0.0.2", 0), 0);
	assert_int_equal(send(fd, "x", 1, 0), 1); /* nowhere, as on Linux */
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	assert_int_equal(ntohl(in.sin_addr.s_addr), 0x0a000001);
}

static void test_connected_socket_connects_again_and_dissolves(void **state)
{
	run_call(connect_step);
}

static void bound_connect_step(void)
{
	struct sockaddr_in none = {.sin_family = AF_UNSPEC};

	open_bound();
	assert_int_equal(connect_to(fd, "10.0.0.2", PEER_PORT), 0);
	server = socket(AF_INET, SOCK_DGRAM, 0); /* as iperf3's server does */
	assert_int_equal(bind_to(server, "10.0.0.1", PORT), 0);
	close(server);
	server = -1;
	assert_int_equal(connect(fd, (struct sockaddr *)&none, sizeof(none)),
			 0);
	assert_int_equal(port_of(fd), PORT);
}

static void test_bound_socket_keeps_its_port_when_it_connects(void **state)
{
	char text[2];

	run_call(bound_connect_step);
	peer_says("x");
	assert_int_equal(recv(fd, text, 2, MSG_DONTWAIT), 1);
}

static void mapped_step(void)
{
	struct sockaddr_in6 in6 = make_address6("::ffff:10.0.0.2", PEER_PORT);
	struct sockaddr_in6 name;
	socklen_t len = sizeof(name);

	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	assert_int_equal(
		sendto(fd, "x", 1, 0, (struct sockaddr *)&in6, sizeof(in6)), 1);
	in6 = make_address6("fd00::2", PEER_PORT);
	assert_int_equal(
		sendto(fd, "y", 1, 0, (struct sockaddr *)&in6, sizeof(in6)), 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&in6, sizeof(in6)), 0);
	assert_int_equal(getpeername(fd, (struct sockaddr *)&name, &len), 0);
	assert_int_equal(len, sizeof(name));
	assert_memory_equal(&name.sin6_addr, &in6.sin6_addr, 16);
	server = socket(AF_INET6, SOCK_DGRAM, 0);
	assert_int_equal(set_option(server, IPPROTO_IPV6, IPV6_V6ONLY, 1), 0);
	in6 = make_address6("::", 99);
	assert_int_equal(bind(server, (struct sockaddr *)&in6, sizeof(in6)), 0);
	FAILS(set_option(server, IPPROTO_IPV6, IPV6_V6ONLY, 0), EINVAL);
	in6 = make_address6("::ffff:10.0.0.2", PEER_PORT);
	FAILS(sendto(server, "x", 1, 0, (struct sockaddr *)&in6, sizeof(in6)),
	      ENETUNREACH);
}

static void test_ipv6_socket_carries_both_families(void **state)
{
	run_call(mapped_step);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.to.family, 4);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.to.family, 6);
}

/* ---- errors ---- */

static void refused_step(void)
{
	char control[128], byte;
	struct sockaddr_in in;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_name = &in,
			     .msg_namelen = sizeof(in),
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	const struct sock_extended_err *ee;

	assert_int_equal(events_of(fd), POLLERR | POLLOUT);
	FAILS(recvmsg(fd, &msg, MSG_ERRQUEUE), EAGAIN); /* no IP_RECVERR */
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_RECVERR, 1), 0);
	assert_int_equal(recvmsg(fd, &msg, MSG_ERRQUEUE), 0);
	assert_int_equal(msg.msg_flags, MSG_ERRQUEUE);
	assert_int_equal(ntohs(in.sin_port), PEER_PORT);
	assert_int_equal(cmsg->cmsg_level, IPPROTO_IP);
	assert_int_equal(cmsg->cmsg_type, IP_RECVERR);
	ee = (const void *)CMSG_DATA(cmsg);
	assert_int_equal(ee->ee_errno, ECONNREFUSED);
	assert_int_equal(ee->ee_origin, SO_EE_ORIGIN_ICMP);
	assert_int_equal(events_of(fd), POLLOUT);
}

static void send_x(void)
{
	assert_int_equal(send(fd, "x", 1, 0), 1);
}

static void refuse_datagram(void)
{
	run_call(send_x);
	assert_true(datagram_next(&sent));
	datagram_send_error(&sent, 3, 3, 0);
}

static void so_error_step(void)
{
	assert_int_equal(get_option(fd, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	assert_int_equal(get_option(fd, SOL_SOCKET, SO_ERROR), 0);
	assert_int_equal(events_of(fd), POLLOUT);
}

static void refused_send_step(void)
{
	FAILS(send(fd, "x", 1, 0), ECONNREFUSED);
	assert_int_equal(send(fd, "x", 1, 0), 1);
}

static void refused_recv_step(void)
{
	char byte;

	FAILS(recv(fd, &byte, 1, MSG_DONTWAIT), ECONNREFUSED);
	FAILS(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

static void test_unreachable_port_is_reported_once(void **state)
{
	run_call(open_connected);
	refuse_datagram();
	run_call(refused_step);
	refuse_datagram();
	run_call(so_error_step);
	refuse_datagram();
	run_call(refused_send_step);
	assert_true(datagram_next(&sent));
	datagram_send_error(&sent, 3, 3, 0);
	run_call(refused_recv_step);
}

static short polled;

static void poll_step(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	assert_int_equal(poll(&p, 1, -1), 1);
	polled = p.revents;
}

static void test_unreachable_port_ends_a_poll(void **state)
{
	run_call(open_connected);
	run_call(send_x);
	assert_true(datagram_next(&sent));
	begin_call(poll_step);
	assert_int_equal(ended, 0);
	datagram_send_error(&sent, 3, 3, 0);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(polled, POLLERR);
}

/* ---- options ---- */

static void options_step(void)
{
	struct timeval soon = {.tv_usec = 1000};
	char byte;

	open_connected();
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_TTL, 9), 0);
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_TOS, 0x28), 0);
	assert_int_equal(get_option(fd, IPPROTO_IP, IP_TTL), 9);
	assert_int_equal(set_option(fd, SOL_SOCKET, SO_BROADCAST, 1), 0);
	assert_int_equal(set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1), 0);
	assert_int_equal(
		set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO), 0);
	FAILS(set_option(fd, IPPROTO_IP, IP_TTL, 300), EINVAL);
	FAILS(set_option(fd, IPPROTO_UDP, UDP_CORK, 1), ENOPROTOOPT);
	FAILS(set_option(fd, SOL_SOCKET, SO_TIMESTAMP, 1), ENOPROTOOPT);
	assert_int_equal(get_option(fd, IPPROTO_IP, IP_MTU), 1500);
	assert_int_equal(get_option(fd, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
	assert_int_equal(get_option(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_UDP);
	assert_int_equal(get_option(fd, IPPROTO_TCP, TCP_NODELAY), -EOPNOTSUPP);
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)),
		0);
	assert_int_equal(send(fd, "x", 1, 0), 1);
	FAILS(recv(fd, &byte, 1, 0), EAGAIN); /* after a millisecond */
}

static void test_options_have_their_effect(void **state)
{
	begin_call(options_step);
	run_ms(50); /* the kernel counts in its ticks */
	assert_int_equal(ended, 1);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.ttl, 9);
	assert_int_equal(sent.tos, 0x28);
}

static void options_before_step(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_TTL, 11), 0);
	assert_int_equal(set_option(fd, SOL_SOCKET, SO_RCVBUF, 2304), 0);
	assert_int_equal(bind_to(fd, "10.0.0.1", PORT), 0);
	assert_int_equal(get_option(fd, IPPROTO_IP, IP_MTU), -ENOTCONN);
	assert_int_equal(send_text(fd, "10.0.0.2", PEER_PORT, "x"), 1);
}

static void test_options_set_before_bind_are_kept(void **state)
{
	int n = 0;
	char text[8];

	run_call(options_before_step);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.ttl, 11);
	for (unsigned i = 0; i < 100; i++) /* SO_RCVBUF holds fewer */
		peer_says("x");
	while (recv(fd, text, 8, MSG_DONTWAIT) == 1)
		n++;
	assert_in_range(n, 1, 50);
}

static void share_step(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	server = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1), 0);
	assert_int_equal(bind_to(fd, "10.0.0.1", PORT), 0);
	FAILS(bind_to(server, "10.0.0.1", PORT), EADDRINUSE);
	assert_int_equal(set_option(server, SOL_SOCKET, SO_REUSEPORT, 1), 0);
	assert_int_equal(bind_to(server, "10.0.0.1", PORT), 0);
}

static void test_so_reuseport_shares_a_port(void **state)
{
	char byte;
	int n = 0;

	run_call(share_step);
	for (unsigned port = 1; port <= 32; port++)
		assert_true(datagram_say(udp_at(udp_peer4, 2000 + port),
					 OUR_ADDR, "x"));
	run_rounds(4);
	while (recv(fd, &byte, 1, MSG_DONTWAIT) == 1)
		n++;
	assert_in_range(n, 1, 31);
	while (recv(server, &byte, 1, MSG_DONTWAIT) == 1)
		n++;
	assert_int_equal(n, 32);
}

/* ---- groups ---- */

static void set_and_unset(int level, const int names[2], const void *value,
			  socklen_t len)
{
	assert_int_equal(setsockopt(fd, level, names[0], value, len), 0);
	FAILS(setsockopt(fd, level, names[0], value, len), EADDRINUSE);
	assert_int_equal(setsockopt(fd, level, names[1], value, len), 0);
	FAILS(setsockopt(fd, level, names[1], value, len), EADDRNOTAVAIL);
	FAILS(setsockopt(fd, level, names[0], value, 4), EINVAL);
}

static struct sockaddr_storage storage4(const char *ip)
{
	struct sockaddr_storage storage = {0};
	struct sockaddr_in in = make_address(ip, 0);

	memcpy(&storage, &in, sizeof(in));
	return storage;
}

static void groups_step(void)
{
	struct ip_mreqn mreq = {.imr_multiaddr.s_addr = inet_addr("239.1.2.3")};
	struct ip_mreq_source from = {
		.imr_multiaddr.s_addr = inet_addr("239.1.2.3"),
		.imr_interface.s_addr = inet_addr("10.0.0.1"),
		.imr_sourceaddr.s_addr = inet_addr("10.0.0.2")};
	struct ipv6_mreq mreq6 = {
		.ipv6mr_multiaddr.s6_addr = {0xff, 0x12, [15] = 9}};
	struct sockaddr_in6 any = make_address6("::", PORT);
	struct group_req req = {.gr_group = storage4("239.1.2.4")};
	struct group_source_req req_from = {.gsr_group = storage4("239.1.2.4"),
					    .gsr_source = storage4("10.0.0.2")};

	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
	assert_true(net_sockets_ours(fd));
	set_and_unset(IPPROTO_IP,
		      (int[]){IP_ADD_MEMBERSHIP, IP_DROP_MEMBERSHIP}, &mreq,
		      sizeof(mreq));
	set_and_unset(
		IPPROTO_IP,
		(int[]){IP_ADD_SOURCE_MEMBERSHIP, IP_DROP_SOURCE_MEMBERSHIP},
		&from, sizeof(from));
	set_and_unset(IPPROTO_IPV6, (int[]){IPV6_JOIN_GROUP, IPV6_LEAVE_GROUP},
		      &mreq6, sizeof(mreq6));
	set_and_unset(IPPROTO_IP, (int[]){MCAST_JOIN_GROUP, MCAST_LEAVE_GROUP},
		      &req, sizeof(req));
	set_and_unset(
		IPPROTO_IP,
		(int[]){MCAST_JOIN_SOURCE_GROUP, MCAST_LEAVE_SOURCE_GROUP},
		&req_from, sizeof(req_from));
	mreq.imr_address.s_addr = inet_addr("10.0.0.9");
	FAILS(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq,
			 sizeof(mreq)),
	      ENODEV);
	mreq.imr_address.s_addr = inet_addr("10.0.0.1");
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq,
				    sizeof(struct ip_mreq)),
			 0);
}

static void test_options_join_and_leave_groups(void **state)
{
	struct net_addr group = {
		.family = 4, .ip = {239, 1, 2, 3}, .port = PORT};
	char byte;

	run_call(groups_step);
	assert_true(datagram_say(ITS_ADDR, group, "x"));
	run_rounds(4);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 1);
	assert_int_equal(byte, 'x');
}

static void group_options_step(void)
{
	struct in_addr ours = {inet_addr("10.0.0.1")};
	struct in_addr theirs = {inet_addr("10.0.0.9")};

	open_bound();
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, 5), 0);
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 0), 0);
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0), 0);
	FAILS(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &theirs,
			 sizeof(theirs)),
	      EADDRNOTAVAIL);
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &ours,
				    sizeof(ours)),
			 0);
	assert_int_equal(get_option(fd, IPPROTO_IP, IP_MULTICAST_IF),
			 (int)ours.s_addr);
	assert_int_equal(send_text(fd, "239.1.2.3", PEER_PORT, "x"), 1);
}

static void test_datagram_to_a_group_follows_its_options(void **state)
{
	run_call(group_options_step);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.ttl, 5);
	assert_int_equal(sent.to.ip[0], 239);
	assert_int_equal(sent.from.ip[3], 1);
}

/* ---- the end ---- */

static void shutdown_step(void)
{
	char byte;

	open_bound();
	FAILS(shutdown(fd, SHUT_RD), ENOTCONN);
	assert_int_equal(connect_to(fd, "10.0.0.2", PEER_PORT), 0);
	FAILS(shutdown(fd, 7), EINVAL);
	assert_int_equal(shutdown(fd, SHUT_RD), 0);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	FAILS(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
	assert_int_equal(events_of(fd), POLLIN | POLLOUT | POLLRDHUP);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	FAILS(send(fd, "x", 1, 0), EPIPE);
	assert_int_equal(events_of(fd), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
}

static void test_shutdown_ends_each_direction(void **state)
{
	run_call(shutdown_step);
}

static void copies_step(void)
{
	int copy;

	open_bound();
	copy = dup(fd);
	assert_true(net_sockets_ours(copy));
	close(fd);
	fd = copy;
}

static void test_copy_keeps_the_socket_open(void **state)
{
	char byte;

	run_call(copies_step);
	peer_says("x");
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 1);
	close(fd);
	fd = -1;
	peer_says("x"); /* is refused */
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.icmp_type, 3);
	assert_int_equal(sent.icmp_code, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TD(test_bound_socket_has_its_name),
		TD(test_loopback_stays_with_the_kernel),
		TD(test_first_datagram_decides),
		TD(test_socket_bound_to_any_reaches_the_kernels_addresses),
		TD(test_connect_to_loopback_makes_it_the_kernels),
		TD(test_socket_that_has_received_stays_on_the_stack),
		TD(test_connected_socket_connects_again_and_dissolves),
		TD(test_bound_socket_keeps_its_port_when_it_connects),
		TD(test_ipv6_socket_carries_both_families),
		TD(test_unreachable_port_is_reported_once),
		TD(test_unreachable_port_ends_a_poll),
		TD(test_options_have_their_effect),
		TD(test_options_set_before_bind_are_kept),
		TD(test_so_reuseport_shares_a_port),
		TD(test_options_join_and_leave_groups),
		TD(test_datagram_to_a_group_follows_its_options),
		TD(test_shutdown_ends_each_direction),
		TD(test_copy_keeps_the_socket_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
