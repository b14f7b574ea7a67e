/*
 * TCP sockets of the stack by POSIX calls: selection of stack or kernel,
 * connecting, listening, reading.
 */
#include "tests/net/sockets_io.h"

/* ---- connect ---- */

static void test_connect_blocks_until_the_handshake_is_over(void **state)
{
	run_coro(connect_body);
	assert_int_equal(ended, 0);
	answer_syn(PEER_SYN | PEER_ACK);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	assert_true(net_sockets_ours(fd));
	run_coro(close_body);
	assert_int_equal(result, 0);
}

static void test_connect_is_refused(void **state)
{
	run_coro(connect_body);
	answer_syn(PEER_RST | PEER_ACK);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -1);
	assert_int_equal(error, ECONNREFUSED);
}

static void *connect_timeout_body(void *arg)
{
	struct timeval tv = {.tv_usec = 50000};

	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)), 0);
	keep_result(connect_to(fd, "10.0.0.2", 80));
	return NULL;
}

static void test_connect_continues_after_so_sndtimeo(void **state)
{
	run_coro(connect_timeout_body);
	run_ms(40);
	assert_int_equal(ended, 0);
	run_ms(20);
	assert_int_equal(ended, 1);
	assert_int_equal(error, EINPROGRESS);
}

static void *connect_later_body(void *arg)
{
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	keep_result(connect_to(fd, "10.0.0.2", 80));
	assert_int_equal(connect_to(fd, "10.0.0.2", 80), -1);
	assert_int_equal(errno, EALREADY);
	return NULL;
}

static int so_error(void)
{
	int err = -1;
	socklen_t len = sizeof(err);

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len), 0);
	return err;
}

static void test_nonblocking_connect_ends_writable(void **state)
{
	run_coro(connect_later_body);
	assert_int_equal(result, -1);
	assert_int_equal(error, EINPROGRESS);
	poll_for(POLLOUT, -1);
	assert_int_equal(ended, 0);
	answer_syn(PEER_SYN | PEER_ACK);
	expect_event(POLLOUT);
	assert_int_equal(so_error(), 0);
	assert_int_equal(connect_to(fd, "10.0.0.2", 80), 0);
	assert_int_equal(connect_to(fd, "10.0.0.2", 80), -1);
	assert_int_equal(errno, EISCONN);
}

static void test_nonblocking_connect_is_refused(void **state)
{
	run_coro(connect_later_body);
	poll_for(POLLOUT, -1);
	answer_syn(PEER_RST | PEER_ACK);
	expect_event(POLLOUT | POLLERR | POLLHUP);
	assert_int_equal(so_error(), ECONNREFUSED);
	assert_int_equal(so_error(), 0);
}

static void test_close_ends_a_connect(void **state)
{
	struct segment s;

	run_coro(connect_later_body);
	run_coro(close_body);
	answer_syn(PEER_SYN | PEER_ACK);
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_RST));
}

static void *shutdown_body(void *arg)
{
	keep_result(shutdown(fd, SHUT_RDWR));
	return NULL;
}

static void *close_only_body(void *arg)
{
	close(fd);
	fd = -1;
	return NULL;
}

static void test_close_ends_a_shutdown_while_connecting(void **state)
{
	run_coro(connect_later_body);
	ended = 0;
	net_spawn(stack, "shutdown", shutdown_body, NULL);
	net_spawn(stack, "close", close_only_body, NULL);
	run_rounds(4);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -1);
	assert_int_equal(error, EBADF);
}

/* ---- stack or kernel ---- */

static void *kernels_body(void *arg)
{
	fd = socket(AF_INET, SOCK_STREAM, 0);
	keep_result(connect_to(fd, "127.0.0.1", 1));
	return NULL;
}

static void *listen_nowhere_body(void *arg)
{
	keep_result(bind_to(fd, "10.0.0.1", 80));
	return NULL;
}

static void test_loopback_addresses_use_the_kernel(void **state)
{
	run_coro(kernels_body);
	while (!ended)
		run_rounds(1);
	assert_int_equal(result, -1);
	assert_int_equal(error, ECONNREFUSED);
	assert_false(net_sockets_ours(fd));
	peer_expect_nothing();
}

static void test_prefixes_select_the_stack(void **state)
{
	assert_int_equal(net_sockets_addrs("127.0.0.0/8,fd00::/64"), 0);
	run_coro(kernels_body);
	assert_int_equal(ended, 1); /* the stack has no route there */
	assert_int_equal(error, EHOSTUNREACH);
	assert_true(net_sockets_ours(fd));
}

static void test_prefixes_compare_bits(void **state)
{
	assert_int_equal(net_sockets_addrs("128.0.0.0/1,126.0.0.0/8"), 0);
	run_coro(kernels_body);
	while (!ended)
		run_rounds(1);
	assert_int_equal(error, ECONNREFUSED);
	assert_false(net_sockets_ours(fd));
	close(fd);
	assert_int_equal(net_sockets_addrs("96.0.0.0/3"), 0);
	run_coro(kernels_body);
	assert_true(net_sockets_ours(fd));
	close(fd);
	assert_int_equal(net_sockets_addrs(""), 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	run_coro(listen_nowhere_body);
	assert_int_equal(error, EADDRNOTAVAIL); /* the kernel's error */
}

static void test_wrong_prefixes_change_nothing(void **state)
{
	static const char *const wrong[] = {"10.0.0.0/33", ",", "10.0.0.0/8,",
					    "x", "10.0.0.0/8,,fd00::/8"};
	char many[20 * 65];

	assert_int_equal(net_sockets_addrs("127.0.0.0/8"), 0);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(net_sockets_addrs(wrong[i]), -EINVAL);
	many[0] = '\0';
	for (unsigned i = 0; i < 65; i++)
		strcat(many, i ? ",10.0.0.0/8" : "10.0.0.0/8");
	assert_int_equal(net_sockets_addrs(many), -E2BIG);
	run_coro(kernels_body);
	assert_true(net_sockets_ours(fd));
}

static void test_sockets_outside_coroutines_are_the_kernels(void **state)
{
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	connect_to(fd, "127.0.0.1", 1);
	assert_int_equal(bind_to(fd, "10.0.0.1", 80), -1);
	assert_false(net_sockets_ours(fd));
}

static void *any_body(void *arg)
{
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind_to(fd, "0.0.0.0", 0), 0);
	assert_true(net_sockets_ours(fd));
	keep_result(connect_to(fd, "127.0.0.1", 1));
	return NULL;
}

static void test_socket_bound_to_any_follows_its_destination(void **state)
{
	run_coro(any_body);
	while (!ended)
		run_rounds(1);
	assert_int_equal(error, ECONNREFUSED);
	assert_false(net_sockets_ours(fd));
}

/* ---- listen, accept ---- */

static void *listen_body(void *arg)
{
	server = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind_to(server, "0.0.0.0", 80), 0);
	assert_int_equal(bind_to(server, "0.0.0.0", 81), -1);
	assert_int_equal(errno, EINVAL);
	keep_result(listen(server, 8));
	return NULL;
}

static struct sockaddr_in from;
static int accept_flags;

static void *accept_body(void *arg)
{
	socklen_t len = sizeof(from);

	fd = accept4(server, (struct sockaddr *)&from, &len, accept_flags);
	keep_result(fd);
	return NULL;
}

static void listen_socket(void)
{
	run_coro(listen_body);
	assert_int_equal(result, 0);
	accept_flags = 0;
}

static void test_accept_blocks_until_a_client_is_there(void **state)
{
	struct sockaddr_in name;
	socklen_t len = sizeof(name);

	listen_socket();
	run_coro(accept_body);
	assert_int_equal(ended, 0);
	peer_connect(&peer, 1000, 80, 5);
	run_rounds(4);
	assert_int_equal(ended, 1);
	assert_true(fd >= 0);
	assert_int_equal(ntohs(from.sin_port), 1000);
	assert_int_equal(ntohl(from.sin_addr.s_addr), 0x0a000002);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &len), 0);
	assert_int_equal(ntohs(name.sin_port), 80);
	assert_int_equal(ntohl(name.sin_addr.s_addr), 0x0a000001);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	run_coro(close_body);
}

static void test_accept4_sets_its_flags(void **state)
{
	listen_socket();
	accept_flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
	run_coro(accept_body);
	peer_connect(&peer, 1000, 80, 5);
	run_rounds(4);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_int_equal(read(fd, buf, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

static void test_nonblocking_accept_waits_in_poll(void **state)
{
	listen_socket();
	assert_int_equal(fcntl(server, F_SETFL, O_NONBLOCK), 0);
	run_coro(accept_body);
	assert_int_equal(result, -1);
	assert_int_equal(error, EAGAIN);
	fd = server;
	poll_for(POLLIN, -1);
	assert_int_equal(ended, 0);
	peer_connect(&peer, 1000, 80, 5);
	run_rounds(4);
	expect_event(POLLIN);
	run_coro(accept_body);
	assert_true(result >= 0);
}

/* IPv4 addresses have a mapped form in an IPv6 socket (RFC 4291). */
static struct sockaddr_in6 from6;

static void *listen6_body(void *arg)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
				   .sin6_port = htons(80)};
	socklen_t len = sizeof(from6);

	server = socket(AF_INET6, SOCK_STREAM, 0);
	assert_int_equal(bind_to(server, "0.0.0.0", 80), -1);
	assert_int_equal(bind(server, (struct sockaddr *)&in6, sizeof(in6)), 0);
	assert_int_equal(listen(server, 8), 0);
	fd = accept(server, (struct sockaddr *)&from6, &len);
	assert_int_equal(len, sizeof(from6));
	keep_result(fd);
	return NULL;
}

static void *connect6_body(void *arg)
{
	close(fd);
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	from6.sin6_port = htons(81);
	keep_result(connect(fd, (struct sockaddr *)&from6, sizeof(from6)));
	return NULL;
}

static void test_ipv6_sockets_use_mapped_addresses(void **state)
{
	char text[64];

	run_coro(listen6_body);
	peer_connect(&peer, 1000, 80, 5);
	run_rounds(4);
	assert_int_equal(ended, 1);
	assert_true(fd >= 0);
	assert_string_equal(inet_ntop(AF_INET6, &from6.sin6_addr, text, 64),
			    "::ffff:10.0.0.2");
	assert_int_equal(ntohs(from6.sin6_port), 1000);
	run_coro(connect6_body);
	answer_syn(PEER_SYN | PEER_ACK);
	assert_int_equal(peer.port, 81);
	assert_int_equal(result, 0);
}

/* More clients than the queue and the stack's backlog hold. */
static void test_accept_takes_many_clients(void **state)
{
	listen_socket();
	for (uint16_t i = 0; i < 24; i++) {
		peer_connect(&peer, (uint16_t)(1000 + i), 80, 5);
		run_rounds(2);
	}
	for (unsigned i = 0; i < 24; i++) {
		run_coro(accept_body);
		assert_int_equal(ended, 1);
		assert_int_equal(ntohs(from.sin_port), 1000 + i);
		assert_int_equal(close(fd), 0);
		fd = -1;
	}
}

/* The accepting coroutine waits for room then. */
static void test_stack_closes_over_a_full_queue(void **state)
{
	listen_socket();
	for (uint16_t i = 0; i < 24; i++) {
		peer_connect(&peer, (uint16_t)(1000 + i), 80, 5);
		run_rounds(2);
	}
	assert_int_equal(net_here()->n_conns, 24);
}

static void *close_server_body(void *arg)
{
	close(server);
	server = -1;
	return NULL;
}

static void test_closed_listener_resets_its_queue(void **state)
{
	struct segment s;

	listen_socket();
	peer_connect(&peer, 1000, 80, 5);
	run_rounds(4);
	net_spawn(stack, "close", close_server_body, NULL);
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_RST));
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_close_wakes_accept(void **state)
{
	listen_socket();
	run_coro(accept_body);
	net_spawn(stack, "close", close_server_body, NULL);
	run_rounds(4);
	assert_int_equal(ended, 1);
	assert_int_equal(error, EBADF);
}

/* ---- reading ---- */

static void test_read_blocks_until_bytes_come(void **state)
{
	connect_socket();
	read_some(100, 0);
	assert_int_equal(ended, 0);
	peer_sends("hello");
	expect_bytes("hello");
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(2);
	read_some(100, 0);
	assert_int_equal(result, 0);
	read_some(100, 0);
	assert_int_equal(result, 0);
}

static void test_recv_obeys_its_flags(void **state)
{
	int bytes = 0;

	connect_socket();
	read_some(4, MSG_DONTWAIT);
	assert_int_equal(error, EAGAIN);
	peer_sends("abcdef");
	assert_int_equal(ioctl(fd, FIONREAD, &bytes), 0);
	assert_int_equal(bytes, 6);
	read_some(4, MSG_PEEK);
	expect_bytes("abcd");
	read_some(4, MSG_PEEK | MSG_DONTWAIT);
	expect_bytes("abcd");
	read_some(8, MSG_WAITALL);
	assert_int_equal(ended, 0);
	peer_sends("ghij");
	expect_bytes("abcdefgh");
	read_some(9, MSG_OOB);
	assert_int_equal(error, EINVAL);
	read_some(9, 0);
	expect_bytes("ij");
}

static void *peek_all_body(void *arg)
{
	char a[2], b[6];
	struct iovec iov[] = {{a, 2}, {NULL, 0}, {b, 6}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 3};

	keep_result(recvmsg(fd, &msg, MSG_PEEK | MSG_WAITALL));
	assert_memory_equal(a, "ab", 2);
	assert_memory_equal(b, "cdef", 4);
	return NULL;
}

/* The end of the stream ends a wait for more bytes. */
static void test_waitall_peek_ends_at_the_end_of_stream(void **state)
{
	connect_socket();
	peer_sends("abc");
	run_coro(peek_all_body);
	peer_sends("def");
	assert_int_equal(ended, 0);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(4);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 6);
	read_some(9, 0);
	expect_bytes("abcdef");
}

static void test_recv_ends_after_so_rcvtimeo(void **state)
{
	struct timeval tv = {.tv_usec = 50000};

	connect_socket();
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
	read_some(4, 0);
	run_ms(45);
	assert_int_equal(ended, 0);
	run_ms(10);
	assert_int_equal(ended, 1);
	assert_int_equal(error, EAGAIN);
}

static void test_reset_is_returned_once(void **state)
{
	connect_socket();
	read_some(4, 0);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(4);
	assert_int_equal(error, ECONNRESET);
	read_some(4, 0);
	assert_int_equal(result, 0);
}

static void test_so_error_returns_a_reset(void **state)
{
	connect_socket();
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(4);
	poll_for(POLLIN, 0);
	assert_true(item.revents & POLLERR);
	assert_int_equal(so_error(), ECONNRESET);
	read_some(4, 0);
	assert_int_equal(result, 0);
}

static void *readv_body(void *arg)
{
	static char a[3], b[8];
	struct iovec iov[3] = {{a, 3}, {NULL, 0}, {b, 8}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 3};

	keep_result(readv(fd, iov, 3));
	assert_memory_equal(a, "abc", 3);
	assert_memory_equal(b, "de", 2);
	result = recvmsg(fd, &msg, MSG_WAITALL);
	assert_memory_equal(a, "012", 3);
	assert_memory_equal(b, "3456789a", 8);
	return NULL;
}

static void test_vectors_are_filled(void **state)
{
	connect_socket();
	peer_sends("abcde");
	run_coro(readv_body);
	assert_int_equal(result, 5);
	peer_sends("0123456");
	peer_sends("789ab");
	assert_int_equal(result, 11);
}

/* errno belongs to the coroutine, whatever others do while it waits. */
static void *errno_body(void *arg)
{
	errno = 1234;
	room = (size_t)read(fd, buf, sizeof(buf));
	keep_result(errno);
	return NULL;
}

static void *spoil_body(void *arg)
{
	errno = 77;
	return NULL;
}

static void test_errno_is_kept_during_a_wait(void **state)
{
	connect_socket();
	run_coro(errno_body);
	net_spawn(stack, "spoil", spoil_body, NULL);
	run_rounds(2);
	peer_sends("x");
	assert_int_equal(ended, 1);
	assert_int_equal(result, 1234);
}

static void test_close_wakes_a_reader(void **state)
{
	connect_socket();
	read_some(4, 0);
	net_spawn(stack, "close", close_body, NULL);
	run_rounds(4);
	assert_int_equal(ended, 2);
	assert_int_equal(error, EBADF);
}

static void test_stopping_stack_ends_every_wait(void **state)
{
	connect_socket();
	read_some(4, 0);
	net_stack_stop(stack);
	fake_clock_step_ns = 1000000;
	assert_int_equal(net_stack_run(stack), 0);
	fake_clock_step_ns = 0;
	assert_int_equal(ended, 1);
	assert_int_equal(error, ECANCELED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_connect_blocks_until_the_handshake_is_over),
		T(test_connect_is_refused),
		T(test_connect_continues_after_so_sndtimeo),
		T(test_nonblocking_connect_ends_writable),
		T(test_nonblocking_connect_is_refused),
		T(test_close_ends_a_connect),
		T(test_close_ends_a_shutdown_while_connecting),
		T(test_loopback_addresses_use_the_kernel),
		T(test_prefixes_select_the_stack),
		T(test_prefixes_compare_bits),
		T(test_wrong_prefixes_change_nothing),
		T(test_sockets_outside_coroutines_are_the_kernels),
		T(test_socket_bound_to_any_follows_its_destination),
		T(test_accept_blocks_until_a_client_is_there),
		T(test_accept4_sets_its_flags),
		T(test_nonblocking_accept_waits_in_poll),
		T(test_ipv6_sockets_use_mapped_addresses),
		T(test_accept_takes_many_clients),
		T(test_stack_closes_over_a_full_queue),
		T(test_closed_listener_resets_its_queue),
		T(test_close_wakes_accept),
		T(test_read_blocks_until_bytes_come),
		T(test_recv_obeys_its_flags),
		T(test_waitall_peek_ends_at_the_end_of_stream),
		T(test_recv_ends_after_so_rcvtimeo),
		T(test_reset_is_returned_once),
		T(test_so_error_returns_a_reset),
		T(test_vectors_are_filled),
		T(test_errno_is_kept_during_a_wait),
		T(test_close_wakes_a_reader),
		T(test_stopping_stack_ends_every_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
