/*
 * UDP in libcoronet-sockets: the calls that carry datagrams, and waiting.
 */
#include "tests/net/sockets_dgram.h"

#include <sys/uio.h>

static char buf[65536], more[100];

static long receive_now(size_t len, int flags)
{
	return recv(fd, buf, len, flags | MSG_DONTWAIT);
}

/* ---- one datagram ---- */

static void test_each_call_receives_one_datagram(void **state)
{
	struct iovec iov[2] = {{buf, 2}, {more, sizeof(more)}};
	struct sockaddr_in in;
	socklen_t len = sizeof(in);
	struct msghdr msg = {.msg_iov = iov,
			     .msg_iovlen = 2,
			     .msg_name = &in,
			     .msg_namelen = sizeof(in)};

	run_call(open_bound);
	for (unsigned i = 0; i < 5; i++)
		peer_says("abcde");
	assert_int_equal(read(fd, buf, 0), 0); /* takes none */
	assert_int_equal(read(fd, buf, 100), 5);
	assert_int_equal(recv(fd, buf, 100, 0), 5);
	assert_int_equal(
		recvfrom(fd, buf, 100, 0, (struct sockaddr *)&in, &len), 5);
	assert_int_equal(len, sizeof(in));
	assert_int_equal(ntohs(in.sin_port), PEER_PORT);
	assert_int_equal(ntohl(in.sin_addr.s_addr), 0x0a000002);
	assert_int_equal(readv(fd, iov, 2), 5);
	assert_memory_equal(more, "cde", 3);
	memset(&in, 0, sizeof(in));
	assert_int_equal(recvmsg(fd, &msg, 0), 5);
	assert_int_equal(ntohs(in.sin_port), PEER_PORT);
	assert_int_equal(msg.msg_flags, 0);
	assert_int_equal(receive_now(100, 0), -1);
	assert_int_equal(errno, EAGAIN);
}

static void test_long_datagram_is_cut(void **state)
{
	struct iovec iov = {buf, 2};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	run_call(open_bound);
	peer_says("abcde");
	peer_says("fghij");
	peer_says("klmno");
	assert_int_equal(receive_now(2, 0), 2);
	assert_int_equal(receive_now(2, MSG_TRUNC), 5);
	assert_memory_equal(buf, "fg", 2);
	assert_int_equal(recvmsg(fd, &msg, 0), 2);
	assert_int_equal(msg.msg_flags, MSG_TRUNC);
}

static void test_peeked_datagram_is_received_again(void **state)
{
	int n = -1;

	run_call(open_bound);
	assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
	assert_int_equal(n, 0);
	peer_says("abc");
	peer_says("de");
	assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
	assert_int_equal(n, 3); /* of the first one */
	assert_int_equal(receive_now(2, MSG_PEEK | MSG_TRUNC), 3);
	assert_int_equal(receive_now(100, MSG_PEEK), 3);
	assert_int_equal(receive_now(100, 0), 3);
	assert_int_equal(receive_now(100, 0), 2);
}

static void test_empty_datagram_is_received(void **state)
{
	run_call(open_bound);
	peer_says("");
	assert_int_equal(events_of(fd), POLLIN | POLLOUT);
	assert_int_equal(receive_now(100, 0), 0);
	assert_int_equal(events_of(fd), POLLOUT);
	peer_says("");
	assert_int_equal(receive_now(0, 0), 0);
	assert_int_equal(receive_now(0, 0), -1);
}

static void empty_step(void)
{
	open_connected();
	assert_int_equal(send(fd, "", 0, 0), 0);
	assert_int_equal(write(fd, "", 0), 0);
	assert_int_equal(send(fd, buf, 1472, 0), 1472);
	FAILS(send(fd, buf, 1473, 0), EMSGSIZE);
	FAILS(send(fd, buf, sizeof(buf), 0), EMSGSIZE);
	FAILS(send(fd, "x", 1, MSG_OOB), EOPNOTSUPP);
	FAILS(send(fd, "x", 1, MSG_MORE), EOPNOTSUPP);
}

static void test_datagrams_from_empty_to_the_mtu_are_sent(void **state)
{
	run_call(empty_step);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.len, 0);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.len, 0);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.len, 1472);
	assert_false(datagram_next(&sent));
}

static void gather_step(void)
{
	struct iovec iov[3] = {{(char *)"ab", 2}, {NULL, 0}, {(char *)"c", 1}};
	struct sockaddr_in in = make_address("10.0.0.2", PEER_PORT + 1);
	struct msghdr msg = {.msg_iov = iov,
			     .msg_iovlen = 3,
			     .msg_name = &in,
			     .msg_namelen = sizeof(in)};

	open_connected();
	assert_int_equal(writev(fd, iov, 3), 3);
	assert_int_equal(sendmsg(fd, &msg, 0), 3); /* to another peer */
	in.sin_port = 0;
	FAILS(sendmsg(fd, &msg, 0), EINVAL);
	msg.msg_namelen = 5;
	FAILS(sendmsg(fd, &msg, 0), EINVAL);
	in = make_address("10.0.0.255", 9);
	msg.msg_namelen = sizeof(in);
	FAILS(sendmsg(fd, &msg, 0), EACCES);
}

static void test_buffers_are_gathered(void **state)
{
	run_call(gather_step);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.to.port, PEER_PORT);
	assert_int_equal(sent.len, 3);
	assert_memory_equal(sent.data, "abc", 3);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.to.port, PEER_PORT + 1);
	assert_int_equal(sent.len, 3);
}

/* ---- control data ---- */

static union {
	char bytes[256];
	struct cmsghdr align;
} control;

static const void *control_of(struct msghdr *msg, int level, int type)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
		if (c->cmsg_level == level && c->cmsg_type == type)
			return CMSG_DATA(c);
	return NULL;
}

static void any_step(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind_to(fd, "0.0.0.0", PORT), 0);
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_PKTINFO, 1), 0);
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_RECVTTL, 1), 0);
	assert_int_equal(set_option(fd, IPPROTO_IP, IP_RECVTOS, 1), 0);
}

static void answer_step(void)
{
	struct sockaddr_in in = {0};
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_name = &in,
			     .msg_namelen = sizeof(in),
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	const struct in_pktinfo *info;
	struct cmsghdr *c = &control.align;

	assert_int_equal(recvmsg(fd, &msg, 0), 3);
	info = control_of(&msg, IPPROTO_IP, IP_PKTINFO);
	assert_non_null(info);
	assert_int_equal(ntohl(info->ipi_addr.s_addr), 0x0a000001);
	assert_int_equal(ntohl(info->ipi_spec_dst.s_addr), 0x0a000001);
	assert_int_equal(info->ipi_ifindex, 1);
	assert_int_equal(*(const int *)control_of(&msg, IPPROTO_IP, IP_TTL),
			 64);
	assert_int_equal(*(const uint8_t *)control_of(&msg, IPPROTO_IP, IP_TOS),
			 0);
	/* Answered from the same address, with a TOS of its own. */
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(*info)),
			      .cmsg_level = IPPROTO_IP,
			      .cmsg_type = IP_PKTINFO};
	c = (void *)(control.bytes + CMSG_SPACE(sizeof(*info)));
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
			      .cmsg_level = IPPROTO_IP,
			      .cmsg_type = IP_TOS};
	memcpy(CMSG_DATA(c), &(int){0x40}, sizeof(int));
	msg.msg_controllen =
		CMSG_SPACE(sizeof(*info)) + CMSG_SPACE(sizeof(int));
	iov.iov_len = 3;
	assert_int_equal(sendmsg(fd, &msg, 0), 3);
	c->cmsg_type = IP_RETOPTS;
	FAILS(sendmsg(fd, &msg, 0), EINVAL);
	c->cmsg_len = 1000;
	FAILS(sendmsg(fd, &msg, 0), EINVAL);
	c = &control.align;
	((struct in_pktinfo *)CMSG_DATA(c))->ipi_spec_dst.s_addr =
		htonl(0x0a00004d);
	msg.msg_controllen = CMSG_SPACE(sizeof(*info));
	FAILS(sendmsg(fd, &msg, 0), ENETUNREACH); /* not ours */
}

static void test_pktinfo_returns_an_answer_to_the_address_asked(void **state)
{
	run_call(any_step);
	peer_says("abc");
	run_call(answer_step);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.tos, 0x40);
	assert_memory_equal(sent.from.ip, udp_us4.ip, 4);
	assert_false(datagram_next(&sent));
}

static void test_control_data_without_room_is_cut(void **state)
{
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = CMSG_LEN(sizeof(int))};

	run_call(any_step);
	peer_says("abc");
	assert_int_equal(recvmsg(fd, &msg, 0), 3);
	assert_int_equal(msg.msg_flags, MSG_CTRUNC);
	assert_int_equal(msg.msg_controllen, CMSG_LEN(sizeof(int)));
	set_option(fd, IPPROTO_IP, IP_RECVTTL, 0);
	set_option(fd, IPPROTO_IP, IP_RECVTOS, 0);
	peer_says("abc"); /* a part of the only one */
	assert_int_equal(recvmsg(fd, &msg, 0), 3);
	assert_int_equal(msg.msg_flags, MSG_CTRUNC);
	peer_says("abc");
	msg.msg_controllen = 0;
	assert_int_equal(recvmsg(fd, &msg, 0), 3);
	assert_int_equal(msg.msg_flags, MSG_CTRUNC);
}

static void any6_step(void)
{
	struct sockaddr_in6 in6 = make_address6("::", PORT);

	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&in6, sizeof(in6)), 0);
	assert_int_equal(set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1), 0);
	assert_int_equal(set_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1), 0);
	assert_int_equal(set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1), 0);
}

static void check_address6(const char *from, const char *to, bool has_hops)
{
	struct sockaddr_in6 in6 = {0};
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_name = &in6,
			     .msg_namelen = sizeof(in6),
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	const struct in6_pktinfo *info;
	struct in6_addr addr;

	assert_int_equal(recvmsg(fd, &msg, 0), 3);
	info = control_of(&msg, IPPROTO_IPV6, IPV6_PKTINFO);
	assert_non_null(info);
	inet_pton(AF_INET6, to, &addr);
	assert_memory_equal(&info->ipi6_addr, &addr, 16);
	inet_pton(AF_INET6, from, &addr);
	assert_memory_equal(&in6.sin6_addr, &addr, 16);
	assert_int_equal(control_of(&msg, IPPROTO_IPV6, IPV6_HOPLIMIT) != NULL,
			 has_hops);
	iov.iov_len = 3;
	msg.msg_controllen = CMSG_SPACE(sizeof(*info));
	assert_int_equal(sendmsg(fd, &msg, 0), 3);
}

static void test_pktinfo_of_ipv6_names_both_families(void **state)
{
	run_call(any6_step);
	assert_true(datagram_say(udp_at(udp_peer6, 1), udp_at(udp_us6, PORT),
				 "abc"));
	peer_says("abc");
	check_address6("fd00::2", "fd00::1", true);
	check_address6("::ffff:10.0.0.2", "::ffff:10.0.0.1", false);
	assert_true(datagram_next(&sent));
	assert_memory_equal(sent.from.ip, udp_us6.ip, 16);
	assert_true(datagram_next(&sent));
	assert_memory_equal(sent.from.ip, udp_us4.ip, 4);
}

/* ---- many ---- */

static struct mmsghdr msgs[8];
static struct iovec iovs[8];
static char texts[8][16];
static struct sockaddr_in names[8];
static int many_flags;
static struct timespec *many_timeout;

static void lay_out(void)
{
	memset(msgs, 0, sizeof(msgs));
	for (unsigned i = 0; i < 8; i++) {
		iovs[i] = (struct iovec){texts[i], sizeof(texts[i])};
		msgs[i].msg_hdr = (struct msghdr){
			.msg_iov = &iovs[i],
			.msg_iovlen = 1,
			.msg_name = &names[i],
			.msg_namelen = sizeof(names[i]),
		};
	}
}

static void many_step(void)
{
	keep_result(recvmmsg(fd, msgs, 8, many_flags, many_timeout));
}

static void begin_many(int flags, struct timespec *timeout)
{
	lay_out();
	many_flags = flags;
	many_timeout = timeout;
	result = 12345;
	begin_call(many_step);
}

static void test_recvmmsg_waits_for_all_or_for_one(void **state)
{
	run_call(open_bound);
	peer_says("a");
	peer_says("bc");
	begin_many(MSG_WAITFORONE, NULL);
	assert_int_equal(result, 2);
	assert_int_equal(msgs[1].msg_len, 2);
	assert_int_equal(ntohs(names[1].sin_port), PEER_PORT);
	begin_many(MSG_WAITFORONE, NULL);
	assert_int_equal(result, 12345); /* waits */
	peer_says("");
	assert_int_equal(result, 1);
	begin_many(MSG_DONTWAIT, NULL);
	assert_int_equal(result, -1);
	assert_int_equal(error, EAGAIN);
	begin_many(0, NULL);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(result, 12345);
		peer_says("x");
	}
	assert_int_equal(result, 8);
}

static void test_recvmmsg_ends_after_its_timeout(void **state)
{
	struct timespec timeout = {.tv_nsec = 5000000};

	run_call(open_bound);
	begin_many(0, &timeout);
	peer_says("a");
	assert_int_equal(result, 12345);
	run_ms(10); /* only a datagram ends it */
	assert_int_equal(result, 12345);
	peer_says("b");
	assert_int_equal(result, 2);
	assert_int_equal(timeout.tv_nsec, 0);
	timeout.tv_nsec = -1;
	begin_many(0, &timeout);
	assert_int_equal(error, EINVAL);
}

static void test_close_ends_a_waiting_recvmmsg(void **state)
{
	run_call(open_bound);
	begin_many(0, NULL);
	peer_says("a");
	assert_int_equal(result, 12345);
	close(fd);
	fd = -1;
	run_rounds(2);
	assert_int_equal(result, 1); /* and the next call fails */
	run_call(open_bound);
	begin_many(0, NULL);
	close(fd);
	fd = -1;
	run_rounds(2);
	assert_int_equal(result, -1);
	assert_int_equal(error, EBADF);
}

static void send_many_step(void)
{
	struct sockaddr_in in = make_address("10.0.0.2", PEER_PORT);

	lay_out();
	for (unsigned i = 0; i < 8; i++) {
		names[i] = in;
		iovs[i].iov_len = i;
	}
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(sendmmsg(fd, msgs, 8, 0), 8);
	assert_true(net_sockets_ours(fd));
	assert_int_equal(msgs[7].msg_len, 7);
	names[2].sin_port = 0;
	assert_int_equal(sendmmsg(fd, msgs, 8, 0), 2);
	FAILS(sendmmsg(fd, &msgs[2], 6, 0), EINVAL);
	assert_int_equal(sendmmsg(fd, msgs, 0, 0), 0);
}

static void test_sendmmsg_stops_at_the_first_error(void **state)
{
	run_call(send_many_step);
	for (unsigned i = 0; i < 10; i++) {
		assert_true(datagram_next(&sent));
		assert_int_equal(sent.len, i % 8);
	}
	assert_false(datagram_next(&sent));
}

/* ---- waiting ---- */

static unsigned n_received;

static void wait_step(void)
{
	char here[16];

	assert_int_equal(recv(fd, here, sizeof(here), 0), 1);
	n_received++;
}

static void test_two_coroutines_wait_on_one_socket(void **state)
{
	n_received = 0;
	run_call(open_bound);
	begin_call(wait_step);
	begin_call(wait_step);
	peer_says("x");
	assert_int_equal(n_received, 1);
	peer_says("x");
	assert_int_equal(n_received, 2);
}

static void full_link_step(void)
{
	assert_int_equal(send(fd, "x", 1, 0), 1);
}

static void nonblocking_step(void)
{
	FAILS(send(fd, "x", 1, MSG_DONTWAIT), EAGAIN);
}

static void test_sender_waits_for_room_on_the_link(void **state)
{
	run_call(open_connected);
	run_call(full_link_step);
	assert_true(datagram_next(&sent));
	fake_tx_budget = 0;
	run_call(nonblocking_step);
	begin_call(full_link_step);
	run_ms(3);
	assert_int_equal(ended, 0);
	fake_tx_budget = -1;
	run_ms(3);
	assert_int_equal(ended, 1);
	assert_true(datagram_next(&sent));
}

static void refused_step(void)
{
	nonblocking_step();
	assert_int_equal(events_of(fd), 0);
}

static void writable_step(void)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	assert_int_equal(poll(&p, 1, -1), 1);
	assert_int_equal(p.revents, POLLOUT);
}

/* Otherwise a program that polls for room would spin. */
static void
test_refused_sender_is_not_writable_until_there_is_room(void **state)
{
	run_call(open_connected);
	run_call(full_link_step);
	assert_true(datagram_next(&sent));
	fake_tx_budget = 0;
	run_call(refused_step);
	begin_call(writable_step);
	peer_says("x"); /* other news */
	run_ms(3);
	assert_int_equal(ended, 0);
	fake_tx_budget = -1;
	run_ms(3);
	assert_int_equal(ended, 1);
}

static int set;
static struct epoll_event event;

static void edge_step(void)
{
	event = (struct epoll_event){.events = EPOLLIN | EPOLLET};
	open_bound();
	set = epoll_create1(0);
	assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
	assert_int_equal(epoll_wait(set, &event, 1, 0), 0);
}

static int poll_ready(void)
{
	return epoll_wait(set, &event, 1, 0);
}

static void test_each_datagram_is_an_edge(void **state)
{
	run_call(edge_step);
	peer_says("x");
	assert_int_equal(poll_ready(), 1);
	assert_int_equal(event.events, EPOLLIN);
	assert_int_equal(poll_ready(), 0);
	peer_says("x"); /* the first one was not read */
	assert_int_equal(poll_ready(), 1);
	assert_int_equal(poll_ready(), 0);
	close(set);
}

static void test_full_queue_drops_and_goes_on(void **state)
{
	run_call(open_bound);
	for (unsigned i = 0; i < NET_UDP_DATAGRAMS + 10; i++)
		assert_true(datagram_say(ITS_ADDR, OUR_ADDR, "x")),
			run_rounds(1);
	for (unsigned i = 0; i < NET_UDP_DATAGRAMS; i++)
		assert_int_equal(receive_now(1, 0), 1);
	assert_int_equal(receive_now(1, 0), -1);
	peer_says("y");
	assert_int_equal(receive_now(1, 0), 1);
}

static void no_memory_step(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	FAILS(send_text(fd, "10.0.0.2", PEER_PORT, "x"), ENOMEM);
	FAILS(bind_to(fd, "10.0.0.1", PORT), ENOMEM);
	stack->memory_full = false;
	assert_int_equal(bind_to(fd, "10.0.0.1", PORT), 0);
}

static void test_without_memory_a_socket_is_not_opened(void **state)
{
	stack->memory_full = true;
	run_call(no_memory_step);
}

static void select_step(void)
{
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	assert_int_equal(select(fd + 1, &in, NULL, NULL, NULL), 1);
	assert_true(FD_ISSET(fd, &in));
}

static void test_select_waits_for_a_datagram(void **state)
{
	run_call(open_bound);
	begin_call(select_step);
	assert_int_equal(ended, 0);
	peer_says("x");
	assert_int_equal(ended, 1);
}

static void test_stopping_stack_ends_a_wait(void **state)
{
	run_call(open_bound);
	begin_many(0, NULL);
	net_stack_stop(stack);
	fake_clock_step_ns = 1000000;
	assert_int_equal(net_stack_run(stack), 0);
	fake_clock_step_ns = 0;
	assert_int_equal(result, -1);
	assert_int_equal(error, ECANCELED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TD(test_each_call_receives_one_datagram),
		TD(test_long_datagram_is_cut),
		TD(test_peeked_datagram_is_received_again),
		TD(test_empty_datagram_is_received),
		TD(test_datagrams_from_empty_to_the_mtu_are_sent),
		TD(test_buffers_are_gathered),
		TD(test_pktinfo_returns_an_answer_to_the_address_asked),
		TD(test_control_data_without_room_is_cut),
		TD(test_pktinfo_of_ipv6_names_both_families),
		TD(test_recvmmsg_waits_for_all_or_for_one),
		TD(test_recvmmsg_ends_after_its_timeout),
		TD(test_close_ends_a_waiting_recvmmsg),
		TD(test_sendmmsg_stops_at_the_first_error),
		TD(test_two_coroutines_wait_on_one_socket),
		TD(test_sender_waits_for_room_on_the_link),
		TD(test_refused_sender_is_not_writable_until_there_is_room),
		TD(test_each_datagram_is_an_edge),
		TD(test_full_queue_drops_and_goes_on),
		TD(test_without_memory_a_socket_is_not_opened),
		TD(test_select_waits_for_a_datagram),
		TD(test_stopping_stack_ends_a_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
