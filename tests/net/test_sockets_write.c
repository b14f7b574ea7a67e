/* Writing to sockets of the stack, their options, and their end. */
#include "tests/net/sockets_io.h"

/* ---- writing ---- */

static void *write_body(void *arg)
{
	struct iovec iov[3] = {{"one", 3}, {NULL, 0}, {"two", 3}};

	assert_int_equal(write(fd, "zero", 4), 4);
	keep_result(writev(fd, iov, 3));
	return NULL;
}

static void test_writes_leave_together(void **state)
{
	connect_socket();
	run_coro(write_body);
	assert_int_equal(result, 6);
	peer_receives("zeroonetwo");
}

static char much[1 << 20];

static void *write_much_body(void *arg)
{
	keep_result(send(fd, much, sizeof(much), recv_flags));
	return NULL;
}

static size_t read_all_sent(void)
{
	struct segment s;
	size_t bytes = 0;

	while (peer_next(&s)) {
		if (s.seq == peer.rcv) {
			peer.rcv += s.len;
			bytes += s.len;
		}
		peer_send(&peer, PEER_ACK, NULL, 0);
		run_rounds(1);
	}
	return bytes;
}

static void test_write_blocks_until_all_has_been_taken(void **state)
{
	size_t bytes = 0;

	connect_socket();
	recv_flags = 0;
	run_coro(write_much_body);
	assert_int_equal(ended, 0);
	while (bytes < sizeof(much)) {
		bytes += read_all_sent();
		run_ms(1);
	}
	assert_int_equal(ended, 1);
	assert_int_equal(result, sizeof(much));
}

static void *close_only_body(void *arg)
{
	close(fd);
	fd = -1;
	return NULL;
}

static void test_close_ends_a_write(void **state)
{
	connect_socket();
	recv_flags = 0;
	run_coro(write_much_body);
	assert_int_equal(ended, 0);
	net_spawn(stack, "close", close_only_body, NULL);
	run_rounds(4);
	assert_int_equal(ended, 1);
	assert_in_range(result, 10000, sizeof(much) - 1);
}

static void test_nonblocking_write_accepts_as_much_as_fits(void **state)
{
	connect_socket();
	recv_flags = MSG_DONTWAIT;
	run_coro(write_much_body);
	assert_int_equal(ended, 1);
	assert_in_range(result, 10000, sizeof(much) - 1);
	for (unsigned i = 0; i < 100 && result > 0; i++)
		run_coro(write_much_body);
	assert_int_equal(error, EAGAIN);
	poll_for(POLLOUT, -1);
	assert_int_equal(ended, 0);
	read_all_sent();
	run_ms(2);
	expect_event(POLLOUT);
}

static volatile sig_atomic_t pipes;

static void on_pipe(int signo)
{
	pipes++;
}

static void test_write_after_shutdown_is_epipe_with_sigpipe(void **state)
{
	struct sigaction action = {.sa_handler = on_pipe}, old;

	pipes = 0;
	sigaction(SIGPIPE, &action, &old);
	connect_socket();
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(pipes, 1);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(pipes, 1);
	sigaction(SIGPIPE, &old, NULL);
}

static void test_half_closed_socket_still_reads(void **state)
{
	struct segment s;

	connect_socket();
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_FIN));
	peer.rcv = s.seq + 1;
	peer_sends("late");
	read_some(9, 0);
	expect_bytes("late");
	assert_int_equal(shutdown(fd, SHUT_RD), 0);
	read_some(9, 0);
	assert_int_equal(result, 0);
	assert_int_equal(shutdown(fd, 9), -1);
	assert_int_equal(errno, EINVAL);
}

static void *sendfile_body(void *arg)
{
	int file = fileno(arg);
	off_t at = 2;

	assert_int_equal(sendfile(fd, file, &at, 3), 3);
	assert_int_equal(at, 5);
	assert_int_equal(lseek(file, 6, SEEK_SET), 6);
	keep_result(sendfile(fd, file, NULL, 100));
	assert_int_equal(lseek(file, 0, SEEK_CUR), 10);
	return NULL;
}

static void test_sendfile_moves_the_offset_and_sends(void **state)
{
	FILE *file = tmpfile();

	fputs("0123456789", file);
	fflush(file);
	connect_socket();
	net_spawn(stack, "sendfile", sendfile_body, file);
	run_rounds(2);
	assert_int_equal(result, 4);
	peer_receives("2346789");
	fclose(file);
}

/* ---- options ---- */

static int get_int(int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, level, name, &value, &len) < 0 ? -errno : value;
}

static int set_int(int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) < 0 ? -errno
								      : 0;
}

static void test_socket_options_work(void **state)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);
	char cc[16] = "reno";

	connect_socket();
	assert_int_equal(get_int(SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	assert_int_equal(get_int(SOL_SOCKET, SO_DOMAIN), AF_INET);
	assert_int_equal(get_int(SOL_SOCKET, SO_ACCEPTCONN), 0);
	assert_int_equal(set_int(SOL_SOCKET, SO_REUSEADDR, 1), 0);
	assert_int_equal(get_int(SOL_SOCKET, SO_REUSEADDR), 1);
	assert_int_equal(get_int(IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(set_int(IPPROTO_TCP, TCP_NODELAY, 0), 0);
	assert_int_equal(get_int(IPPROTO_TCP, TCP_NODELAY), 0);
	assert_int_equal(set_int(IPPROTO_TCP, TCP_KEEPIDLE, 33), 0);
	assert_int_equal(set_int(IPPROTO_TCP, TCP_KEEPIDLE, -1), -EINVAL);
	assert_int_equal(get_int(IPPROTO_TCP, TCP_KEEPIDLE), 33);
	assert_int_equal(set_int(SOL_SOCKET, SO_KEEPALIVE, 1), 0);
	assert_int_equal(set_int(IPPROTO_TCP, TCP_USER_TIMEOUT, 500), 0);
	assert_int_equal(set_int(SOL_SOCKET, SO_MARK, 1), -ENOPROTOOPT);
	assert_int_equal(get_int(SOL_SOCKET, SO_MARK), -ENOPROTOOPT);
	assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, 4), 0);
	len = sizeof(cc);
	memset(cc, 0, sizeof(cc));
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, &len),
			 0);
	assert_string_equal(cc, "reno");
	len = sizeof(info);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
	assert_int_equal(info.tcpi_state, TCP_ESTABLISHED);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &len, 1), -1);
	assert_int_equal(errno, EINVAL);
}

/* Keepalive set before connect() sends probes. */
static void *keepalive_body(void *arg)
{
	fd = socket(AF_INET, SOCK_STREAM, 0);
	set_int(SOL_SOCKET, SO_KEEPALIVE, 1);
	set_int(IPPROTO_TCP, TCP_KEEPIDLE, 2);
	keep_result(connect_to(fd, "10.0.0.2", 80));
	return NULL;
}

static void test_keepalive_set_before_connect_is_applied(void **state)
{
	struct segment s;

	run_coro(keepalive_body);
	answer_syn(PEER_SYN | PEER_ACK);
	while (peer_next(&s))
		;
	s = peer_wait(4000);
	assert_int_equal(s.seq, peer.rcv - 1);
}

static void test_linger_0_resets(void **state)
{
	struct linger linger = {.l_onoff = 1};
	struct segment s;

	connect_socket();
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)),
		0);
	run_coro(close_body);
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_RST));
}

static void test_close_lingers(void **state)
{
	struct linger linger = {.l_onoff = 1, .l_linger = 5};
	struct segment s;

	connect_socket();
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	run_coro(close_body);
	assert_int_equal(ended, 0);
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_FIN));
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(4);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
}

static void test_close_goes_on_after_lingering(void **state)
{
	struct linger linger = {.l_onoff = 1, .l_linger = 1};
	struct segment s;

	connect_socket();
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	run_coro(close_body);
	run_ms(1100);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	while (peer_next(&s))
		assert_int_equal(s.flags & PEER_RST, 0);
	s = peer_wait(4000);
	assert_int_equal(s.flags & (PEER_FIN | PEER_RST), PEER_FIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_writes_leave_together),
		T(test_write_blocks_until_all_has_been_taken),
		T(test_close_ends_a_write),
		T(test_nonblocking_write_accepts_as_much_as_fits),
		T(test_write_after_shutdown_is_epipe_with_sigpipe),
		T(test_half_closed_socket_still_reads),
		T(test_sendfile_moves_the_offset_and_sends),
		T(test_socket_options_work),
		T(test_keepalive_set_before_connect_is_applied),
		T(test_linger_0_resets),
		T(test_close_lingers),
		T(test_close_goes_on_after_lingering),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
