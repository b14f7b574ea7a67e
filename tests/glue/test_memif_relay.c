/*
 * The relay before a memif server: strangers, handshakes, removed sockets.
 *
 * A plain socket of the test's own plays DPDK's server.
 */

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpdk_glue/memif_relay.h"

#define SIZE	   GLUE_RELAY_MESSAGE
#define ACK	   1
#define HELLO	   2
#define INIT	   3
#define OTHER	   4
#define ADD_RING   5
#define CONNECT	   6
#define CONNECTED  7
#define DISCONNECT 8

static char folder[64], path[GLUE_RELAY_PATH_MAX], inner[GLUE_RELAY_PATH_MAX];
static struct glue_relay relay;
static int server; /* DPDK's listener */

static bool path_exists(void)
{
	struct stat st;

	return path[0] && stat(path, &st) == 0;
}

static bool listened_late; /* a socket whose path existed already */

/* Instead of the C library's. */
int listen(int fd, int backlog)
{
	listened_late |= path_exists();
	return (int)syscall(SYS_listen, fd, backlog);
}

static bool no_files;
static unsigned n_refused;

/* Instead of the C library's. */
int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	if (no_files) {
		n_refused++;
		errno = EMFILE;
		return -1;
	}
	return (int)syscall(SYS_accept4, fd, addr, len, flags);
}

static int set_address(struct sockaddr_un *addr, const char *name)
{
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	snprintf(addr->sun_path, sizeof(addr->sun_path), "%s", name);
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
}

static int listen_at(const char *name)
{
	struct sockaddr_un addr;
	int fd = set_address(&addr, name);

	assert_int_equal(bind(fd, (void *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static int connect_to(const char *name)
{
	struct sockaddr_un addr;
	int fd = set_address(&addr, name);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (void *)&addr, sizeof(addr)), 0);
	return fd;
}

static void run_steps(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		glue_relay_step(&relay, -1, 0);
}

static void send_message(int fd, uint8_t type, uint8_t mark)
{
	uint8_t bytes[SIZE] = {type, 0, mark};

	assert_int_equal(send(fd, bytes, SIZE, MSG_NOSIGNAL), SIZE);
}

static void assert_message(int fd, uint8_t type, uint8_t mark)
{
	uint8_t bytes[SIZE + 1];

	assert_int_equal(recv(fd, bytes, sizeof(bytes), 0), SIZE);
	assert_int_equal(bytes[0], type);
	assert_int_equal(bytes[2], mark);
}

static void hears_nothing(int fd)
{
	char byte;

	assert_int_equal(recv(fd, &byte, 1, 0), -1);
	assert_int_equal(errno, EAGAIN);
}

static void hears_the_end(int fd)
{
	char byte;

	assert_int_equal(recv(fd, &byte, 1, 0), 0);
}

static int assert_accepts(void)
{
	return accept4(server, NULL, NULL, SOCK_NONBLOCK);
}

static int setup(void **state)
{
	struct stat st;
	int probe;

	listened_late = false;
	strcpy(folder, "/tmp/coronet-relay-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/e.sock", folder);
	assert_int_equal(glue_relay_inner_path(path, inner), 0);
	server = listen_at(inner);
	assert_int_equal(glue_relay_open(&relay, path, inner, 0640), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	probe = assert_accepts();
	assert_true(probe >= 0);
	send_message(probe, HELLO, 7);
	run_steps(1);
	hears_the_end(probe);
	close(probe);
	return 0;
}

static int teardown(void **state)
{
	glue_relay_close(&relay);
	close(server);
	return rmdir(folder); /* it is empty */
}

/* Connects a client through the relay; its far end goes to *inner_end. */
static int join_client(uint8_t mark, int *inner_end)
{
	int fd = connect_to(path);

	run_steps(1);
	assert_message(fd, HELLO, 7);
	send_message(fd, INIT, mark);
	run_steps(1);
	*inner_end = assert_accepts();
	assert_true(*inner_end >= 0);
	hears_nothing(*inner_end);
	send_message(*inner_end, HELLO, 7);
	run_steps(1);
	assert_message(*inner_end, INIT, mark);
	hears_nothing(fd); /* the second greeting is swallowed */
	return fd;
}

static void test_strangers_never_reach_dpdk(void **state)
{
	for (unsigned i = 0; i < 100; i++) {
		int fd = connect_to(path);

		if (i % 3 == 0)
			run_steps(1);
		if (i % 3 == 1)
			send_message(fd, OTHER, 0); /* no INIT */
		close(fd);
		run_steps(i % 2 ? 3 : 0);
	}
	run_steps(GLUE_RELAY_CLIENTS * 2);
	assert_int_equal(assert_accepts(), -1);
	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++)
		assert_int_equal(relay.clients[i].state, GLUE_RELAY_FREE);
}

static void test_handshake_passes_in_both_directions(void **state)
{
	int far, fd = join_client(1, &far);

	for (uint8_t i = 0; i < 20; i++) {
		send_message(far, OTHER, i);
		send_message(fd, OTHER, (uint8_t)(100 + i));
		run_steps(1);
		assert_message(fd, OTHER, i);
		assert_message(far, OTHER, (uint8_t)(100 + i));
	}
	close(fd);
	run_steps(1);
	hears_the_end(far);
	close(far);
}

static void test_last_message_before_the_end_is_passed_on(void **state)
{
	int far, fd = join_client(1, &far);

	send_message(far, OTHER, 9);
	close(far);
	run_steps(2);
	assert_message(fd, OTHER, 9);
	hears_the_end(fd);
	close(fd);
}

static unsigned left, looks;
static unsigned looks_needed;

static void on_leave(void *arg)
{
	assert_ptr_equal(arg, &left);
	left++;
}

static bool has_read(void *arg)
{
	return ++looks >= looks_needed;
}

/* Mimics a server whose frames have been read at the nth poll. */
static void reads_at(unsigned n)
{
	relay.on_leave = on_leave;
	relay.has_read = has_read;
	relay.arg = &left;
	left = looks = 0;
	looks_needed = n;
}

static void test_last_frames_of_a_client_are_read_before_its_end(void **state)
{
	int far, fd;

	for (unsigned says = 0; says < 2; says++) {
		reads_at(5);
		fd = join_client(1, &far);
		if (says)
			send_message(fd, DISCONNECT, 0);
		else
			close(fd);
		run_steps(5);
		hears_nothing(far);
		assert_int_equal(left, 1);
		if (says)
			hears_the_end(fd);
		run_steps(1);
		hears_the_end(far);
		close(far);
		if (says)
			close(fd);
	}
}

static void test_unread_frames_delay_the_end_for_a_bounded_time(void **state)
{
	int far, fd, next, next_far;

	reads_at(UINT_MAX);
	fd = join_client(1, &far);
	close(fd);
	run_steps(1000);
	hears_nothing(far);
	run_steps(2);
	hears_the_end(far);
	close(far);

	fd = join_client(1, &far);
	close(fd);
	run_steps(3);
	hears_nothing(far);
	next = join_client(2, &next_far);
	hears_the_end(far);
	close(far);
	close(next);
	close(next_far);
	run_steps(2);
}

static void test_server_may_end_while_frames_are_read(void **state)
{
	int far, fd;

	reads_at(UINT_MAX);
	fd = join_client(1, &far);
	close(fd);
	run_steps(2);
	close(far);
	run_steps(2);
	assert_int_equal(relay.clients[0].state, GLUE_RELAY_FREE);
}

/* What the owner of the relay hears about a client that connects. */
static struct {
	unsigned connects, connected, rings;
	int far;
} seen;

static void on_connect(void *arg)
{
	seen.connects++;
	hears_nothing(seen.far); /* DPDK does not know yet */
}

static void on_connected(void *arg, unsigned n_rings)
{
	seen.connected++;
	seen.rings = n_rings;
}

static void watch_connects(void)
{
	memset(&seen, 0, sizeof(seen));
	relay.on_connect = on_connect;
	relay.on_connected = on_connected;
}

static void test_owner_hears_of_a_client_before_and_after_dpdk(void **state)
{
	int fd;

	watch_connects();
	fd = join_client(1, &seen.far);
	send_message(seen.far, ACK, 0);
	run_steps(1);
	for (uint8_t i = 0; i < 3; i++) {
		send_message(fd, ADD_RING, i % 2); /* two are of one kind */
		run_steps(1);
		assert_message(seen.far, ADD_RING, i % 2);
	}
	send_message(fd, CONNECT, 0);
	run_steps(1);
	assert_int_equal(seen.connects, 1);
	assert_int_equal(seen.connected, 0);
	assert_message(seen.far, CONNECT, 0);
	send_message(seen.far, CONNECTED, 0);
	run_steps(1);
	assert_int_equal(seen.connects, 1);
	assert_int_equal(seen.connected, 1);
	assert_int_equal(seen.rings, 1);
	close(fd);
	close(seen.far);
	run_steps(2);
}

/* DPDK accepts one client at a time, whose queues must not rest. */
static void test_client_that_dpdk_does_not_accept_cannot_connect(void **state)
{
	int fd;

	watch_connects();
	fd = join_client(1, &seen.far);
	send_message(fd, CONNECT, 0);
	run_steps(2);
	hears_the_end(fd);
	hears_the_end(seen.far);
	assert_int_equal(seen.connects, 0);
	close(fd);
	close(seen.far);
}

static void test_descriptors_are_passed_on(void **state)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	uint8_t bytes[SIZE] = {OTHER};
	struct iovec iov = {.iov_base = bytes, .iov_len = SIZE};
	struct msghdr head = {.msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&head);
	int far, fd = join_client(1, &far), event = eventfd(41, 0), got;
	uint64_t value;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &event, sizeof(int));
	assert_int_equal(sendmsg(fd, &head, 0), SIZE);
	run_steps(1);
	memset(&control, 0, sizeof(control));
	head.msg_controllen = sizeof(control);
	assert_int_equal(recvmsg(far, &head, 0), SIZE);
	c = CMSG_FIRSTHDR(&head);
	assert_non_null(c);
	memcpy(&got, CMSG_DATA(c), sizeof(int));
	assert_int_equal(read(got, &value, sizeof(value)), sizeof(value));
	assert_int_equal(value, 41);
	close(got);
	close(event);
	close(fd);
	close(far);
	run_steps(1);
}

/* DPDK must not see the end of the connection before it has greeted. */
static void test_connection_closes_only_after_dpdk_has_greeted(void **state)
{
	int fd = connect_to(path), far;

	run_steps(1);
	send_message(fd, INIT, 1);
	run_steps(1);
	close(fd);
	run_steps(2);
	far = assert_accepts();
	assert_true(far >= 0);
	hears_nothing(far);
	send_message(far, HELLO, 7);
	run_steps(1);
	hears_the_end(far);
	close(far);
}

static void test_new_client_displaces_a_silent_one(void **state)
{
	int silent[GLUE_RELAY_CLIENTS], far, fd;

	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++) {
		silent[i] = connect_to(path);
		run_steps(1);
	}
	fd = join_client(5, &far);
	for (unsigned i = 0; i < GLUE_RELAY_CLIENTS; i++)
		close(silent[i]);
	close(fd);
	close(far);
	run_steps(2);
}

static void test_truncated_message_ends_the_connection(void **state)
{
	int far, fd = join_client(1, &far);
	uint8_t bytes[SIZE + 8] = {OTHER};

	assert_int_equal(send(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	run_steps(1);
	hears_the_end(fd);
	hears_the_end(far);
	close(fd);
	close(far);
	fd = join_client(2, &far);
	assert_int_equal(send(fd, bytes, 5, 0), 5);
	run_steps(1);
	hears_the_end(far);
	close(fd);
	close(far);
}

static void test_removed_socket_comes_back(void **state)
{
	int far, fd = join_client(1, &far), second, second_far;

	assert_int_equal(unlink(path), 0);
	run_steps(1);
	second = join_client(2, &second_far);
	send_message(fd, OTHER, 3); /* the first is still served */
	run_steps(1);
	assert_message(far, OTHER, 3);
	close(fd);
	close(far);
	close(second);
	close(second_far);
	run_steps(2);
}

static void test_removed_folder_may_come_back_later(void **state)
{
	int far, fd;

	unlink(path);
	assert_int_equal(rmdir(folder), 0);
	run_steps(2);
	assert_int_equal(mkdir(folder, 0700), 0);
	run_steps(1);
	fd = join_client(1, &far);
	close(fd);
	close(far);
	run_steps(1);
}

static void test_other_servers_socket_is_left_alone(void **state)
{
	int other, fd, caller;

	assert_int_equal(unlink(path), 0);
	other = listen_at(path);
	run_steps(3);
	caller = connect_to(path);
	fd = accept4(other, NULL, NULL, 0);
	assert_true(fd >= 0);
	close(fd);
	close(caller);
	close(other); /* ends, and leaves its file behind */
	run_steps(1);
	fd = join_client(1, &other);
	close(fd);
	close(other);
	run_steps(1);
}

static void test_other_file_is_left_alone(void **state)
{
	struct stat st;

	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	run_steps(3);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	rmdir(path);
}

static void test_inner_socket_has_no_name(void **state)
{
	struct stat st;

	assert_int_equal(stat(inner, &st), -1);
	assert_int_equal(errno, ENOENT);
}

static void test_path_exists_only_while_the_relay_listens(void **state)
{
	assert_true(path_exists());
	unlink(path);
	run_steps(1);
	assert_true(path_exists());
	assert_false(listened_late);
}

static void test_probe_reports_why_it_cannot_connect(void **state)
{
	assert_int_equal(glue_socket_probe(path), 0);
	assert_int_equal(glue_socket_await(path), 0);
	assert_false(glue_socket_is_dead(path));
	glue_relay_close(&relay);
	assert_int_equal(glue_socket_probe(path), -ENOENT);
	close(listen_at(path));
	assert_int_equal(glue_socket_probe(path), -ECONNREFUSED);
	assert_true(glue_socket_is_dead(path));
	unlink(path);
}

static void test_inner_paths_differ_and_fit(void **state)
{
	char a[GLUE_RELAY_PATH_MAX], b[GLUE_RELAY_PATH_MAX];
	char deep[GLUE_RELAY_PATH_MAX];

	assert_int_equal(glue_relay_inner_path("/tmp/x/e.sock", a), 0);
	assert_int_equal(glue_relay_inner_path("/tmp/x/e.sock", b), 0);
	assert_string_not_equal(a, b);
	assert_memory_equal(a, "/tmp/x/.m", 9);
	assert_int_equal(glue_relay_inner_path("e.sock", a), 0);
	assert_memory_equal(a, "./.m", 4);
	assert_int_equal(glue_relay_inner_path("/e.sock", a), 0);
	assert_memory_equal(a, "/.m", 3);
	memset(deep, 'x', sizeof(deep) - 1);
	deep[0] = '/';
	deep[sizeof(deep) - 3] = '/';
	deep[sizeof(deep) - 1] = '\0';
	assert_int_equal(glue_relay_inner_path(deep, a), -ENAMETOOLONG);
}

/* A client that waits would end each poll() at once. */
static void test_accepting_pauses_without_files(void **state)
{
	int client = connect_to(path);

	n_refused = 0;
	no_files = true;
	run_steps(1);
	no_files = false;
	assert_int_equal(n_refused, 1);
	assert_true(relay.accept_ms > 0);
	relay.accept_ms = INT64_MAX;
	run_steps(3);
	hears_nothing(client);
	relay.accept_ms = 1; /* long ago */
	run_steps(1);
	assert_message(client, HELLO, 7);
	close(client);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(test_strangers_never_reach_dpdk),
		T(test_handshake_passes_in_both_directions),
		T(test_last_message_before_the_end_is_passed_on),
		T(test_last_frames_of_a_client_are_read_before_its_end),
		T(test_unread_frames_delay_the_end_for_a_bounded_time),
		T(test_server_may_end_while_frames_are_read),
		T(test_owner_hears_of_a_client_before_and_after_dpdk),
		T(test_client_that_dpdk_does_not_accept_cannot_connect),
		T(test_descriptors_are_passed_on),
		T(test_connection_closes_only_after_dpdk_has_greeted),
		T(test_new_client_displaces_a_silent_one),
		T(test_truncated_message_ends_the_connection),
		T(test_removed_socket_comes_back),
		T(test_removed_folder_may_come_back_later),
		T(test_other_servers_socket_is_left_alone),
		T(test_other_file_is_left_alone),
		T(test_inner_socket_has_no_name),
		T(test_path_exists_only_while_the_relay_listens),
		T(test_probe_reports_why_it_cannot_connect),
		T(test_accepting_pauses_without_files),
		cmocka_unit_test(test_inner_paths_differ_and_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
