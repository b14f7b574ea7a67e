/*
 * Calls that are variants of others, and the kernel's descriptors in each;
 * other options.
 */
#include "tests/net/sockets.h"

#include <linux/sockios.h>
#include <limits.h>
#include <netdb.h>
#include <sys/select.h>
#include <sys/un.h>
#include <time.h>

/* Called by fortified and old programs; no header declares them. */
ssize_t __read_chk(int number, void *at, size_t len, size_t space);
ssize_t __recv_chk(int number, void *at, size_t len, size_t space, int flags);
ssize_t __recvfrom_chk(int number, void *at, size_t len, size_t space,
		       int flags, struct sockaddr *sa, socklen_t *sa_len);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t bytes);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *ts,
		const sigset_t *mask, size_t bytes);
ssize_t __read(int number, void *at, size_t len);
ssize_t __write(int number, const void *at, size_t len);
ssize_t __send(int number, const void *at, size_t len, int flags);
int __close(int number);
int __dup2(int from, int to);
int __fcntl(int number, int cmd, ...);
int __poll(struct pollfd *fds, nfds_t n, int timeout);

static char buf[256];
static int pair[2];

/* ---- ours ---- */

static void *aliases_body(void *arg)
{
	struct sockaddr_in in;
	socklen_t len = sizeof(in);
	struct pollfd item = {.fd = fd, .events = POLLIN};
	const struct timespec now = {0};
	sigset_t none;
	int copy;

	sigemptyset(&none);
	assert_int_equal(__poll_chk(&item, 1, 0, sizeof(item)), 1);
	assert_int_equal(__ppoll_chk(&item, 1, &now, &none, sizeof(item)), 1);
	assert_int_equal(__poll(&item, 1, 0), 1);
	assert_int_equal(__read_chk(fd, buf, 1, sizeof(buf)), 1);
	assert_int_equal(__recv_chk(fd, buf, 1, sizeof(buf), 0), 1);
	assert_int_equal(__recvfrom_chk(fd, buf, 1, sizeof(buf), 0,
					(struct sockaddr *)&in, &len),
			 1);
	assert_int_equal(len, 0); /* a stream's bytes have no address */
	assert_int_equal(__read(fd, buf, 1), 1);
	assert_int_equal(__fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(fcntl64(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_int_equal(__read(fd, buf, 1), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ioctl(fd, FIONBIO, &(int){0}), 0);
	assert_int_equal(fcntl64(fd, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(__write(fd, "a", 1), 1);
	assert_int_equal(__send(fd, "b", 1, 0), 1);
	assert_int_equal(sendto(fd, "c", 1, 0, NULL, 0), 1);
	copy = __dup2(fd, 900);
	assert_int_equal(copy, 900);
	assert_int_equal(__close(copy), 0);
	keep_result(0);
	return NULL;
}

static void test_alias_calls_work(void **state)
{
	connect_socket();
	peer_sends("abcd");
	run_coro(aliases_body);
	assert_int_equal(ended, 1);
	peer_receives("abc");
}

static void *msg_body(void *arg)
{
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_controllen = 7};
	struct sockaddr_in in;
	socklen_t len = sizeof(in);

	assert_int_equal(recvmsg(fd, &msg, 0), 4);
	assert_int_equal(msg.msg_controllen, 0);
	iov.iov_len = 2;
	keep_result(sendmsg(fd, &msg, 0));
	assert_int_equal(getpeername(fd, (struct sockaddr *)&in, &len), 0);
	assert_int_equal(ntohs(in.sin_port), 80);
	assert_int_equal(send(fd, "x", 1, MSG_OOB), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	return NULL;
}

static void test_message_calls_work(void **state)
{
	int queued = -1;

	connect_socket();
	peer_sends("abcd");
	run_coro(msg_body);
	assert_int_equal(result, 2);
	assert_int_equal(ioctl(fd, SIOCOUTQ, &queued), 0);
	assert_int_equal(queued, 2);
	peer_receives("ab");
}

/* ---- waiting, in every form ---- */

static fd_set in_set;

static void *wait_body(void *arg)
{
	const struct timespec soon = {.tv_nsec = 5000000};
	struct epoll_event event = {.events = EPOLLIN};
	struct pollfd item = {.fd = fd, .events = POLLIN};
	sigset_t none;
	int set = epoll_create(1);

	sigemptyset(&none);
	assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
	assert_int_equal(ppoll(&item, 1, &soon, &none), 0);
	FD_SET(fd, &in_set);
	assert_int_equal(pselect(fd + 1, &in_set, NULL, NULL, &soon, &none), 0);
	assert_false(FD_ISSET(fd, &in_set));
	assert_int_equal(epoll_pwait(set, &event, 1, 5, &none), 0);
	assert_int_equal(epoll_pwait2(set, &event, 1, &soon, &none), 0);
	assert_int_equal(epoll_wait(set, &event, 0, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ppoll(&item, 1, &(struct timespec){-1, 0}, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(close(set), 0);
	keep_result(0);
	return NULL;
}

static void test_each_wait_call_times_out(void **state)
{
	connect_socket();
	run_coro(wait_body);
	assert_int_equal(ended, 0);
	run_ms(60);
	assert_int_equal(ended, 1);
}

/* ---- the kernel's ---- */

static void until_ended(void)
{
	for (unsigned i = 0; i < 1000 && !ended; i++)
		run_ms(1);
	assert_int_equal(ended, 1);
}

static void *datagram_body(void *arg)
{
	struct iovec iov[2] = {{buf, 1}, {buf + 1, sizeof(buf) - 1}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	struct sockaddr_un un;
	socklen_t len = sizeof(un);

	assert_int_equal(recvfrom(pair[0], buf, sizeof(buf), 0,
				  (struct sockaddr *)&un, &len),
			 3);
	assert_int_equal(recvmsg(pair[0], &msg, 0), 2);
	assert_int_equal(readv(pair[0], iov, 2), 4);
	assert_int_equal(sendto(pair[0], "five!", 5, 0, NULL, 0), 5);
	iov[1].iov_len = 5;
	keep_result(writev(pair[0], iov, 2));
	return NULL;
}

static void test_kernel_datagram_sockets_work(void **state)
{
	static const size_t sizes[] = {3, 2, 4};

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
	run_coro(datagram_body);
	for (unsigned i = 0; i < 3; i++) {
		run_ms(2);
		assert_int_equal(ended, 0);
		assert_int_equal(send(pair[1], "four", sizes[i], 0), sizes[i]);
	}
	until_ended();
	assert_int_equal(result, 6);
	assert_int_equal(recv(pair[1], buf, sizeof(buf), 0), 5);
	assert_int_equal(recv(pair[1], buf, sizeof(buf), 0), 6);
	close(pair[0]);
	close(pair[1]);
}

static void *pipe_body(void *arg)
{
	struct iovec iov[2] = {{"abc", 3}, {"def", 3}};
	FILE *file = tmpfile();
	off_t at = 1;

	fputs("0123", file);
	fflush(file);
	assert_int_equal(writev(pair[1], iov, 2), 6);
	keep_result(sendfile(pair[1], fileno(file), &at, 9));
	fclose(file);
	return NULL;
}

static void test_pipe_accepts_vectors_and_files(void **state)
{
	assert_int_equal(pipe(pair), 0);
	run_coro(pipe_body);
	until_ended();
	assert_int_equal(result, 3);
	assert_int_equal(read(pair[0], buf, sizeof(buf)), 9);
	assert_memory_equal(buf, "abcdef123", 9);
	close(pair[0]);
	close(pair[1]);
}

/* ---- options ---- */

static long get_option(int level, int name, size_t size)
{
	socklen_t len = (socklen_t)size;

	memset(buf, 0, sizeof(buf));
	return getsockopt(fd, level, name, buf, &len) < 0 ? -errno : (long)len;
}

static int option_value(void)
{
	int number;

	memcpy(&number, buf, sizeof(number));
	return number;
}

static void set_and_get(int level, int name, int number)
{
	assert_int_equal(setsockopt(fd, level, name, &number, sizeof(number)),
			 0);
	assert_int_equal(get_option(level, name, sizeof(int)), sizeof(int));
	assert_int_equal(option_value(), number);
}

static void test_every_socket_option_is_set_and_read(void **state)
{
	struct timeval tv = {.tv_sec = 1, .tv_usec = 500000};
	struct linger linger = {1, 3};

	connect_socket();
	set_and_get(SOL_SOCKET, SO_KEEPALIVE, 1);
	set_and_get(SOL_SOCKET, SO_REUSEPORT, 1);
	set_and_get(IPPROTO_TCP, TCP_CORK, 1);
	set_and_get(IPPROTO_TCP, TCP_CORK, 0);
	set_and_get(IPPROTO_TCP, TCP_KEEPINTVL, 7);
	set_and_get(IPPROTO_TCP, TCP_KEEPCNT, 3);
	set_and_get(IPPROTO_TCP, TCP_USER_TIMEOUT, 900);
	set_and_get(IPPROTO_IP, IP_TOS, 16);
	set_and_get(SOL_SOCKET, SO_MAX_PACING_RATE, 100000);
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)), 0);
	assert_int_equal(get_option(SOL_SOCKET, SO_SNDTIMEO, sizeof(tv)),
			 sizeof(tv));
	assert_memory_equal(buf, &tv, sizeof(tv));
	assert_int_equal(get_option(SOL_SOCKET, SO_RCVTIMEO, sizeof(tv)),
			 sizeof(tv));
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)),
		0);
	assert_int_equal(get_option(SOL_SOCKET, SO_LINGER, sizeof(linger)),
			 sizeof(linger));
	assert_memory_equal(buf, &linger, sizeof(linger));
	linger.l_onoff = 0;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	assert_int_equal(get_option(IPPROTO_TCP, TCP_MAXSEG, sizeof(int)), 4);
	assert_in_range(option_value(), 500, 1460);
	assert_int_equal(get_option(SOL_SOCKET, SO_PROTOCOL, sizeof(int)), 4);
	assert_int_equal(option_value(), IPPROTO_TCP);
	assert_int_equal(get_option(IPPROTO_TCP, TCP_TIMESTAMP, sizeof(int)),
			 -ENOPROTOOPT);
	assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "x", 1),
			 -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(get_option(SOL_SOCKET, SO_TYPE, 2),
			 2); /* truncated, as by the kernel */
}

/* Options chosen before connect() apply afterwards. */
static void *chosen_body(void *arg)
{
	unsigned rate = 100000;

	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4),
			 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate,
				    sizeof(rate)),
			 0);
	assert_int_equal(bind_to(fd, "10.0.0.1", 0), 0);
	get_option(IPPROTO_TCP, TCP_CONGESTION, 16);
	assert_string_equal(buf, "reno");
	assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "x", 1),
			 -1);
	assert_int_equal(errno, ENOENT);
	keep_result(connect_to(fd, "10.0.0.2", 80));
	return NULL;
}

#define MAX_PACING_RATE_AT 112 /* in the kernel's struct tcp_info */

static void test_options_set_before_connect_are_applied(void **state)
{
	uint64_t rate;

	run_coro(chosen_body);
	answer_syn(PEER_SYN | PEER_ACK);
	assert_int_equal(result, 0);
	get_option(IPPROTO_TCP, TCP_CONGESTION, 16);
	assert_string_equal(buf, "reno");
	/* The C library's struct tcp_info ends before the rates. */
	assert_int_equal(
		get_option(IPPROTO_TCP, TCP_INFO, MAX_PACING_RATE_AT + 8),
		MAX_PACING_RATE_AT + 8);
	memcpy(&rate, buf + MAX_PACING_RATE_AT, sizeof(rate));
	assert_in_range(rate, 99900, 100000);
}

/* ---- ports ---- */

static unsigned port_of(int sock)
{
	struct sockaddr_in in = {0};
	socklen_t len = sizeof(in);

	assert_int_equal(getsockname(sock, (struct sockaddr *)&in, &len), 0);
	return ntohs(in.sin_port);
}

static void *ports_body(void *arg)
{
	int a = socket(AF_INET, SOCK_STREAM, 0);
	int b = socket(AF_INET, SOCK_STREAM, 0);
	unsigned port;

	assert_int_equal(bind_to(a, "10.0.0.1", 0), 0);
	port = port_of(a);
	assert_true(port);
	assert_int_equal(listen(a, 1), 0);
	assert_int_equal(port_of(a), port);
	assert_int_equal(bind_to(b, "10.0.0.1", (uint16_t)port), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(bind_to(b, "0.0.0.0", (uint16_t)port), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(bind_to(b, "10.0.0.1", (uint16_t)(port ^ 1)), 0);
	close(b);
	close(a);
	b = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind_to(b, "0.0.0.0", (uint16_t)port), 0);
	assert_int_equal(listen(b, 1), 0);
	close(b);
	keep_result(0);
	return NULL;
}

static void test_bind_refuses_ports_in_use(void **state)
{
	run_coro(ports_body);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
}

/* ---- calls that the kernel refuses at once ---- */

static void *refused_body(void *arg)
{
	int ends[2], other = socket(AF_INET, SOCK_STREAM, 0);
	char c = 'x';
	static struct iovec iov[IOV_MAX + 1]; /* of no bytes */
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = IOV_MAX + 1};

	assert_int_equal(pipe(ends), 0);
#define REFUSED(call, err)                                                     \
	(assert_int_equal(call, -1), assert_int_equal(errno, err))
	REFUSED(accept(ends[0], NULL, NULL), ENOTSOCK);
	REFUSED(accept(other, NULL, NULL), EINVAL);
	REFUSED(recv(ends[0], &c, 1, 0), ENOTSOCK);
	REFUSED(recvfrom(ends[0], &c, 1, 0, NULL, NULL), ENOTSOCK);
	REFUSED(read(ends[1], &c, 1), EBADF);
	REFUSED(write(ends[0], &c, 1), EBADF);
	REFUSED(readv(fd, iov, IOV_MAX + 1), EINVAL);
	REFUSED(writev(fd, iov, IOV_MAX + 1), EINVAL);
	REFUSED(recvmsg(fd, &msg, 0), EMSGSIZE);
	REFUSED(sendmsg(fd, &msg, 0), EMSGSIZE);
	REFUSED(sendfile(fd, ends[0], NULL, 1), EINVAL);
	close(ends[0]);
	close(ends[1]);
	ends[0] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	REFUSED(sendfile(fd, ends[0], &(off_t){-1}, 1), EINVAL);
	close(ends[0]);
	close(other);
	keep_result(0);
	return NULL;
}

static void test_invalid_calls_do_not_wait(void **state)
{
	connect_socket();
	run_coro(refused_body);
	assert_int_equal(ended, 1);
}

/* ---- names ---- */

static void *reverse_body(void *arg)
{
	struct sockaddr_in in = make_address("127.0.0.1", 80);
	char host[NI_MAXHOST], service[NI_MAXSERV];

	assert_int_equal(getnameinfo((struct sockaddr *)&in, sizeof(in), host,
				     sizeof(host), service, sizeof(service),
				     NI_NUMERICHOST | NI_NUMERICSERV),
			 0);
	assert_string_equal(host, "127.0.0.1");
	assert_string_equal(service, "80");
	assert_int_equal(getnameinfo((struct sockaddr *)&in, sizeof(in), host,
				     sizeof(host), NULL, 0, 0),
			 0);
	assert_true(host[0]);
	assert_non_null(gethostbyname2("127.0.0.1", AF_INET));
	assert_null(gethostbyname2("127.0.0.1.", AF_INET + 1000));
	keep_result(0);
	return NULL;
}

static void test_reverse_lookups_run_on_another_thread(void **state)
{
	run_coro(reverse_body);
	while (!ended) {
		run_rounds(1);
		usleep(100);
	}
	assert_int_equal(result, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_alias_calls_work),
		T(test_message_calls_work),
		T(test_each_wait_call_times_out),
		T(test_kernel_datagram_sockets_work),
		T(test_pipe_accepts_vectors_and_files),
		T(test_every_socket_option_is_set_and_read),
		T(test_options_set_before_connect_are_applied),
		T(test_bind_refuses_ports_in_use),
		T(test_invalid_calls_do_not_wait),
		T(test_reverse_lookups_run_on_another_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
