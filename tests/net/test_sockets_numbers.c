/*
 * Descriptor numbers that change owners: closed by the C library or a system
 * call, and reused by the kernel.
 */
#include "netstack/sockets/sockets_priv.h"
#include "netstack/sockets/whole.h"
/* after it: it has a variable fd */
#include "tests/net/sockets.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

/* Makes a system call that no hook sees, like a runtime with its own calls. */
static void close_unseen(int number)
{
	long rc;

	__asm__ volatile("syscall"
			 : "=a"(rc)
			 : "a"(SYS_close), "D"((long)number)
			 : "rcx", "r11", "memory");
	assert_int_equal(rc, 0);
}

static void peer_gets_fin(void)
{
	struct segment s;

	do
		s = peer_wait(10);
	while (!(s.flags & PEER_FIN));
}

static void test_a_system_call_closes_the_socket(void **state)
{
	connect_socket();
	assert_int_equal(syscall(SYS_close, fd), 0);
	assert_false(net_sockets_ours(fd));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	fd = -1;
	peer_gets_fin();
}

static void test_system_calls_read_and_write(void **state)
{
	char text[4];
	int copies[2];

	connect_socket();
	assert_int_equal(syscall(SYS_write, fd, "abc", 3ul), 3);
	peer_receives("abc");
	peer_sends("xyz");
	copies[0] = (int)syscall(SYS_dup, fd);
	copies[1] = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0ul);
	assert_int_equal(syscall(SYS_read, copies[1], text, 4ul), 3);
	assert_memory_equal(text, "xyz", 3);
	assert_int_equal(syscall(SYS_close_range, copies[0], copies[1], 0), 0);
	assert_true(net_sockets_ours(fd));
}

/* libuv, for example, then adds sockets to its epoll set one by one. */
static void test_a_program_finds_no_io_uring(void **state)
{
	char params[256] = {0};

	connect_socket();
	errno = 0;
	assert_int_equal(syscall(SYS_io_uring_setup, 8u, params), -1);
	assert_int_equal(errno, ENOSYS);
}

static struct net_real kernels;
static unsigned kernel_closes;

static int count_close(int number)
{
	kernel_closes++;
	return kernels.close(number);
}

static int count_close_range(unsigned first, unsigned last, int flags)
{
	kernel_closes++;
	return kernels.close_range(first, last, flags);
}

/*
 * There may be a million numbers. The kernel closes four ranges: below, between
 * and above three numbers that the stack knows.
 */
static void test_a_range_costs_what_is_open(void **state)
{
	int file = memfd_create("file", 0);

	connect_socket();
	assert_int_equal(dup2(fd, 310), 310);
	assert_int_equal(dup2(fd, 320), 320);
	assert_int_equal(dup2(file, 305), 305);
	assert_int_equal(dup2(file, 315), 315);
	assert_int_equal(dup2(file, 330), 330);
	assert_int_equal(dup2(file, 340), 340);
	net_whole_reserve(340);
	net_whole.on = true;
	net_caller.state = NET_TURNING;
	kernels = net_real_calls;
	net_real_calls.close = count_close;
	net_real_calls.close_range = count_close_range;
	kernel_closes = 0;
	assert_int_equal(close_range(300, ~0U, 0), 0);
	net_real_calls = kernels;
	net_whole.on = false;
	net_caller.state = NET_OUTSIDE;
	assert_int_equal(net_fds_until(~0U), 341);
	assert_int_equal(kernel_closes, 7);
	for (int number = 300; number <= 340; number++)
		assert_int_equal(fcntl(number, F_GETFD), -1);
	assert_true(net_sockets_ours(fd));
	close(file);
}

static FILE *stream;
static DIR *folder;

static int end_number(int number)
{
	int rc = stream	  ? fclose(stream)
		 : folder ? closedir(folder)
			  : close(number);

	stream = NULL;
	folder = NULL;
	return rc;
}

static int first_of_pair(int (*make)(int fds[2]))
{
	int fds[2];

	assert_int_equal(make(fds), 0);
	close(fds[1]);
	return fds[0];
}

static int make_sockets(int fds[2])
{
	return socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
}

static int make_named(void)
{
	char path[] = "/tmp/coronet-fd-XXXXXX";
	int number = mkstemp(path);

	unlink(path);
	return number;
}

/* Gets the lowest free number from the kernel, by one of several calls. */
static int get_number(unsigned which)
{
	sigset_t none;

	sigemptyset(&none);
	switch (which) {
	case 0:
		return open("/dev/zero", O_RDWR);
	case 1:
		return openat(AT_FDCWD, "/dev/zero", O_RDWR);
	case 2:
		return first_of_pair(pipe);
	case 3:
		return first_of_pair(make_sockets);
	case 4:
		return eventfd(0, 0);
	case 5:
		return timerfd_create(CLOCK_MONOTONIC, 0);
	case 6:
		return signalfd(-1, &none, 0);
	case 7:
		return memfd_create("fd", 0);
	case 8:
		return inotify_init();
	case 9:
		return make_named();
	case 10:
		return epoll_create1(0);
	case 11:
		return socket(AF_UNIX, SOCK_STREAM, 0);
	case 12:
		return dup(0);
	case 13:
		return fcntl(0, F_DUPFD, 0);
	case 14:
		return (int)syscall(SYS_openat, AT_FDCWD, "/dev/zero", O_RDWR);
	case 15:
		return (int)syscall(SYS_memfd_create, "fd", 0);
	case 16:
		stream = fopen("/dev/zero", "r");
		return fileno(stream);
	case 17:
		folder = opendir("/");
		return dirfd(folder);
	default:
		return -1;
	}
}

/* Otherwise bytes written to a file would reach the old peer. */
static void test_reused_descriptor_number_is_the_kernels(void **state)
{
	unsigned which = 0;

	for (;; which++) {
		int number;

		connect_socket();
		close_unseen(fd);
		assert_true(net_sockets_ours(fd));
		number = get_number(which);
		if (number < 0)
			break;
		assert_int_equal(number, fd);
		assert_false(net_sockets_ours(fd));
		peer_gets_fin();
		peer.rcv++;
		peer_send(&peer, PEER_ACK | PEER_RST, NULL, 0);
		run_rounds(2);
		assert_int_equal(end_number(fd), 0);
	}
	assert_int_equal(which, 18);
	fd = -1;
}

/*
 * Sends a message with a descriptor of ours, or receives one with a descriptor.
 */
static ssize_t pass_number(ssize_t (*call)(int fd, struct msghdr *msg,
					   int flags),
			   int through, int *number)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {"x", 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	ssize_t n;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), number, sizeof(int));
	iov.iov_base = &(char){'x'};
	n = call(through, &msg, 0);
	memcpy(number, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	return n;
}

static ssize_t send_message(int through, struct msghdr *msg, int flags)
{
	return sendmsg(through, msg, flags);
}

static void test_descriptors_are_passed_in_messages(void **state)
{
	int pair[2], number;

	connect_socket();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	number = fd;
	assert_int_equal(pass_number(send_message, pair[0], &number), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	number = pair[1];
	assert_int_equal(pass_number(send_message, pair[0], &number), 1);
	close_unseen(fd);
	assert_int_equal(pass_number(recvmsg, pair[1], &number), 1);
	assert_int_equal(number, fd);
	assert_false(net_sockets_ours(fd));
	peer_gets_fin();
	close(pair[0]);
	close(pair[1]);
}

static void test_descriptors_are_passed_in_several_messages(void **state)
{
	char in[2][8];
	struct iovec out_iov[2] = {{"ab", 2}, {"cd", 2}};
	struct iovec in_iov[2] = {{in[0], 8}, {in[1], 8}};
	struct mmsghdr out[2] = {
		{.msg_hdr.msg_iov = &out_iov[0], .msg_hdr.msg_iovlen = 1},
		{.msg_hdr.msg_iov = &out_iov[1], .msg_hdr.msg_iovlen = 1}};
	struct mmsghdr heard[2] = {
		{.msg_hdr.msg_iov = &in_iov[0], .msg_hdr.msg_iovlen = 1},
		{.msg_hdr.msg_iov = &in_iov[1], .msg_hdr.msg_iovlen = 1}};

	connect_socket();
	assert_int_equal(sendmmsg(fd, out, 2, 0), 2);
	assert_int_equal(out[0].msg_len, 2);
	assert_int_equal(out[1].msg_len, 2);
	peer_receives("abcd");
	assert_int_equal(recvmmsg(fd, heard, 2, MSG_DONTWAIT, NULL), -1);
	assert_int_equal(errno, EAGAIN);
	peer_sends("xyz");
	assert_int_equal(recvmmsg(fd, heard, 2, MSG_DONTWAIT, NULL), 1);
	assert_int_equal(heard[0].msg_len, 3);
	peer_sends("xyz");
	assert_int_equal(recvmmsg(fd, heard, 2, MSG_WAITFORONE, NULL), 1);
	assert_int_equal(heard[0].msg_len, 3);
}

static void *reopen_null(void *arg)
{
	*(int *)arg = open("/dev/null", O_WRONLY);
	return NULL;
}

/* Another thread gets the number: its bytes must not reach the peer. */
static void test_descriptor_number_is_reused_by_another_thread(void **state)
{
	pthread_t thread;
	struct segment s;
	int number = -1;

	connect_socket();
	while (peer_next(&s))
		;
	close_unseen(fd);
	assert_int_equal(pthread_create(&thread, NULL, reopen_null, &number),
			 0);
	pthread_join(thread, NULL);
	assert_int_equal(number, fd);
	assert_int_equal(write(fd, "file", 4), 4);
	peer_expect_nothing();
}

/* fclose() closes the number inside the C library, and the socket with it. */
static void test_fclose_closes_the_socket(void **state)
{
	char c = 'x';
	int next;

	connect_socket();
	stream = fdopen(fd, "r+");
	assert_non_null(stream);
	assert_int_equal(fclose(stream), 0);
	assert_false(net_sockets_ours(fd));
	next = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	assert_int_equal(next, fd);
	assert_int_equal(read(next, &c, 1), 1);
	assert_int_equal(c, 0);
	assert_int_equal(close(next), 0);
	fd = -1;
	peer_gets_fin();
}

static void test_freopen_closes_the_socket(void **state)
{
	connect_socket();
	stream = fdopen(fd, "r+");
	stream = freopen("/dev/zero", "r", stream);
	assert_non_null(stream);
	assert_false(net_sockets_ours(fileno(stream)));
	peer_gets_fin();
	assert_int_equal(end_number(-1), 0);
	fd = -1;
}

static int set, other_set;

static void *make_sets(void *arg)
{
	set = epoll_create1(0);
	other_set = dup(set);
	keep_result(set);
	return NULL;
}

/*
 * A set records the kernel's numbers. A closed one is removed, also if the
 * set's own number is gone, since the pointer stored with it may be freed
 * memory of the program.
 */
static void test_closed_descriptor_leaves_its_epoll_set(void **state)
{
	struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 666};
	int number;

	run_coro(make_sets);
	number = eventfd(0, 0);
	assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, number, &event), 0);
	assert_int_equal(close(set), 0);
	assert_int_equal(close(number), 0);
	set = open("/dev/null", O_RDONLY);
	connect_socket();
	assert_int_equal(fd, number);
	assert_int_equal(epoll_wait(other_set, &event, 1, 0), 0);
	close(other_set);
	close(set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_system_call_closes_the_socket),
		T(test_system_calls_read_and_write),
		T(test_a_program_finds_no_io_uring),
		T(test_a_range_costs_what_is_open),
		T(test_reused_descriptor_number_is_the_kernels),
		T(test_descriptors_are_passed_in_messages),
		T(test_descriptors_are_passed_in_several_messages),
		T(test_descriptor_number_is_reused_by_another_thread),
		T(test_fclose_closes_the_socket),
		T(test_freopen_closes_the_socket),
		T(test_closed_descriptor_leaves_its_epoll_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
