/*
 * The control socket and the metrics page over HTTP: files, clients of every
 * kind, and forms of requests. The stack runs in a thread of the test.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"

static char folder[] = "/tmp/coronet-control.XXXXXX";
static char path[64], err[512];
static uint16_t port;
static pthread_t thread;
static struct net_stack *the_stack;
static _Atomic int ready; /* 1: running; 2: it has run; below 0: -errno */
static _Atomic bool held; /* the program does not close yet */

/* ---- a program ---- */

static uint16_t free_port(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (void *)&addr, sizeof(addr)), 0);
	getsockname(fd, (void *)&addr, &len);
	close(fd);
	return ntohs(addr.sin_port);
}

static void fill_opts(struct net_opts *opts)
{
	char text[32];

	net_opts_init(opts);
	opts->links[opts->n_links++] = "ring:fake";
	net_addr_parse_prefix("10.0.0.1/24", &opts->addrs[opts->n_addrs++]);
	opts->poll = NET_POLL_ADAPTIVE;
	opts->control = path;
	snprintf(text, sizeof(text), "127.0.0.1:%u", port);
	net_addr_parse(text, -1, &opts->metrics);
}

static void *run_program(void *arg)
{
	struct net_opts opts;
	struct net_stack *stack;
	int rc;

	fill_opts(&opts);
	rc = net_stack_open(&opts, &stack);
	if (rc < 0) {
		atomic_store(&ready, rc);
		return NULL;
	}
	the_stack = stack;
	atomic_store(&ready, 1);
	net_stack_run(stack);
	atomic_store(&ready, 2);
	while (atomic_load(&held))
		usleep(1000);
	net_stack_close(stack);
	return NULL;
}

static int setup(void **state)
{
	port = free_port();
	ready = 0;
	snprintf(path, sizeof(path), "%s/control", folder);
	pthread_create(&thread, NULL, run_program, NULL);
	while (!atomic_load(&ready))
		usleep(1000);
	assert_int_equal(ready, 1);
	return 0;
}

static int teardown(void **state)
{
	net_stack_stop(the_stack);
	pthread_join(thread, NULL);
	assert_int_equal(access(path, F_OK), -1); /* its socket is gone */
	return 0;
}

/* ---- clients ---- */

static int join_control(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const struct timeval timeout = {.tv_sec = 60};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(addr.sun_path, path);
	assert_int_equal(connect(fd, (void *)&addr, sizeof(addr)), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	return fd;
}

static int join_page(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons(port),
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct timeval timeout = {.tv_sec = 60};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (void *)&addr, sizeof(addr)), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	return fd;
}

static char reply[NET_CONTROL_MAX_OUTPUT + 1];

/* Reads the next message, NUL-terminated; returns its length. */
static ssize_t next_message(int fd)
{
	ssize_t n = recv(fd, reply, sizeof(reply) - 1, 0);

	reply[n > 0 ? n : 0] = '\0';
	return n;
}

static void expect(int fd, const char *request, const char *answer)
{
	assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL),
			 strlen(request));
	assert_true(next_message(fd) > 0);
	assert_memory_equal(reply, answer, strlen(answer));
}

static void expect_well(void)
{
	int fd = join_control();

	assert_true(next_message(fd) > 0);
	expect(fd, "/coronet/shards", "{\"/coronet/shards\":{\"shards\":[{");
	close(fd);
}

/* Reads until the end. */
static void read_page(int fd)
{
	size_t used = 0;
	ssize_t n;

	while ((n = recv(fd, reply + used, sizeof(reply) - 1 - used, 0)) > 0)
		used += (size_t)n;
	assert_int_equal(n, 0);
	reply[used] = '\0';
}

static void expect_page(const char *request, const char *status)
{
	int fd = join_page();

	assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL),
			 strlen(request));
	read_page(fd);
	assert_memory_equal(reply, status, strlen(status));
	close(fd);
}

/* ---- clients of the socket ---- */

static void test_requests_are_answered_in_turn(void **state)
{
	int fd = join_control();

	assert_true(next_message(fd) > 0);
	assert_non_null(strstr(reply, "\"max_output_len\":131072"));
	expect(fd, "/info", "{\"/info\":{\"version\":\"coronet ");
	expect(fd, "/coronet/listeners", "{\"/coronet/listeners\":{");
	expect(fd, "/none", "{\"/none\":null}");
	close(fd);
}

static void test_many_requests_at_once_are_all_answered(void **state)
{
	int fd = join_control();

	assert_true(next_message(fd) > 0);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(send(fd, "/info", 5, 0), 5);
	for (unsigned i = 0; i < 100; i++) {
		assert_true(next_message(fd) > 0);
		assert_memory_equal(reply, "{\"/info\":", 9);
	}
	close(fd);
}

static void test_client_that_reads_nothing_does_not_block_others(void **state)
{
	int fd = join_control();

	/* Sends until the socket is full, since the client reads no answers. */
	for (unsigned i = 0; i < 100000; i++)
		if (send(fd, "/", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
	expect_well();
	close(fd); /* in the midst of an answer */
	expect_well();
}

static void test_no_request_waits_for_a_shard_that_has_ended(void **state)
{
	int fd = join_control();

	assert_true(next_message(fd) > 0);
	atomic_store(&held, true);
	net_stack_stop(the_stack);
	while (atomic_load(&ready) != 2)
		usleep(1000);
	send(fd, "/coronet/shards", 15, MSG_NOSIGNAL);
	next_message(fd);
	close(fd);
	atomic_store(&held, false);
	assert_string_equal(
		reply,
		"{\"/coronet/shards\":{\"error\":\"the program is ending\"}}");
}

static void test_silent_clients_are_displaced(void **state)
{
	int fds[100];

	for (unsigned i = 0; i < 100; i++)
		fds[i] = join_control();
	expect_well();
	for (unsigned i = 0; i < 100; i++)
		close(fds[i]);
	expect_well();
}

/*
 * Sends requests until the server stops reading while it answers another client
 * twice.
 */
static void stop_reading_answers(int fd)
{
	unsigned refused = 0;

	while (refused < 2) {
		if (send(fd, "/", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) {
			refused = 0;
			continue;
		}
		expect_well();
		refused++;
	}
}

static void test_client_being_answered_is_not_displaced(void **state)
{
	int answered = join_control(), fds[100];

	stop_reading_answers(answered);
	for (unsigned i = 0; i < 100; i++)
		fds[i] = join_control();
	expect_well();
	assert_true(next_message(answered) > 0);
	for (unsigned i = 0; i < 100; i++) {
		assert_true(next_message(answered) > 0);
		assert_memory_equal(reply, "{\"/\":[", 6);
		close(fds[i]);
	}
	close(answered);
}

/* Fills every slot; none is kept forever. */
static void test_client_being_answered_is_displaced_if_all_are(void **state)
{
	int fds[NET_HTTP_CLIENTS];

	for (unsigned i = 0; i < NET_HTTP_CLIENTS; i++) {
		fds[i] = join_control();
		for (unsigned n = 0; n < 100000; n++)
			if (send(fds[i], "/", 1, MSG_DONTWAIT | MSG_NOSIGNAL) <
			    0)
				break;
	}
	expect_well();
	for (unsigned i = 0; i < NET_HTTP_CLIENTS; i++)
		close(fds[i]);
}

static void test_garbage_is_answered_or_ends_the_connection(void **state)
{
	static uint8_t garbage[8192];
	int fd;

	for (unsigned seed = 0; seed < 200; seed++) {
		size_t len = seed * 37 % sizeof(garbage);

		srandom(seed);
		for (size_t i = 0; i < len; i++)
			garbage[i] = (uint8_t)random();
		fd = join_control();
		assert_true(next_message(fd) > 0);
		assert_true(send(fd, garbage, len, MSG_NOSIGNAL) >= 0);
		if (len)
			assert_true(next_message(fd) > 0);
		close(fd);
	}
	expect_well();
}

/* ---- the file ---- */

static void test_socket_is_accessible_to_its_user_only(void **state)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_a_second_program_is_refused(void **state)
{
	struct net_socket second;

	assert_int_equal(net_socket_open(path, &second, err, sizeof(err)),
			 -EADDRINUSE);
	assert_non_null(strstr(err, "another program uses this socket"));
	expect_well();
}

static void test_stale_socket_is_replaced(void **state)
{
	struct net_socket first, second;
	char at[80];

	snprintf(at, sizeof(at), "%s/stale", folder);
	assert_int_equal(net_socket_open(at, &first, err, sizeof(err)), 0);
	close(first.fd); /* as after SIGKILL: the file stays */
	assert_int_equal(access(at, F_OK), 0);
	assert_int_equal(net_socket_open(at, &second, err, sizeof(err)), 0);
	/* The first must not remove a file that is no longer its own. */
	first.fd = dup(second.fd);
	net_socket_close(&first);
	assert_int_equal(access(at, F_OK), 0);
	net_socket_close(&second);
	assert_int_equal(access(at, F_OK), -1);
}

static void test_other_files_are_left_alone(void **state)
{
	struct net_socket socket;
	char at[200];
	int fd;

	snprintf(at, sizeof(at), "%s/file", folder);
	fd = open(at, O_CREAT | O_WRONLY, 0644);
	close(fd);
	assert_int_equal(net_socket_open(at, &socket, err, sizeof(err)),
			 -EEXIST);
	assert_non_null(strstr(err, "this file is not a socket"));
	assert_int_equal(access(at, F_OK), 0);
	unlink(at);
	assert_int_equal(
		net_socket_open("/nowhere/at/all", &socket, err, sizeof(err)),
		-ENOENT);
	memset(at, 'x', 150);
	at[150] = '\0';
	assert_int_equal(net_socket_open(at, &socket, err, sizeof(err)),
			 -ENAMETOOLONG);
}

/* ---- the page ---- */

static void test_the_page_is_served(void **state)
{
	const char *body;
	long len;

	expect_page("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
		    "HTTP/1.1 200 OK\r\n");
	body = strstr(reply, "\r\n\r\n");
	assert_non_null(body);
	len = strtol(strstr(reply, "Content-Length: ") + 16, NULL, 10);
	assert_int_equal(strlen(body + 4), len);
	assert_non_null(strstr(body, "\ncoronet_shards 1\n"));
	expect_page("HEAD /metrics?x=1 HTTP/1.1\r\n\r\n",
		    "HTTP/1.1 200 OK\r\n");
	assert_string_equal(strstr(reply, "\r\n\r\n"), "\r\n\r\n");
}

static void test_other_requests_are_refused(void **state)
{
	static char long_one[6000];

	expect_page("GET /other HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ");
	expect_page("GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 ");
	expect_page("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ");
	assert_non_null(strstr(reply, "\r\nAllow: GET, HEAD\r\n"));
	expect_page("\r\n\r\n", "HTTP/1.1 400 ");
	expect_page("GET /metrics\r\n\r\n", "HTTP/1.1 400 ");
	expect_page("GET metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ");
	expect_page("\x16\x03\x01\x02\r\n\r\n", "HTTP/1.1 400 ");
	memset(long_one, 'a', sizeof(long_one) - 1);
	expect_page(long_one, "HTTP/1.1 431 ");
	memcpy(long_one, "GET /", 5);
	memcpy(long_one + 2000, "\r\n\r\n", 5);
	expect_page(long_one, "HTTP/1.1 431 ");
}

static void test_a_request_may_come_in_pieces(void **state)
{
	static const char request[] = "GET /metrics HTTP/1.1\r\n\r\n";
	int fd = join_page();

	for (size_t i = 0; i < sizeof(request) - 1; i++) {
		assert_int_equal(send(fd, request + i, 1, MSG_NOSIGNAL), 1);
		usleep(100);
	}
	read_page(fd);
	assert_memory_equal(reply, "HTTP/1.1 200", 12);
	close(fd);
}

static void test_slow_clients_are_displaced_and_end(void **state)
{
	int fds[64];

	for (unsigned i = 0; i < 64; i++) {
		fds[i] = join_page();
		send(fds[i], "GET /me", 7, MSG_NOSIGNAL);
	}
	expect_page("GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n");
	/*
	 * Clients with a slot lose it, even if they send a byte now and then.
	 */
	for (unsigned i = 0; i < 64; i++) {
		while (send(fds[i], "t", 1, MSG_NOSIGNAL) == 1) {
			if (recv(fds[i], reply, 1, MSG_DONTWAIT) == 0)
				break;
			usleep(20000);
		}
		close(fds[i]);
	}
	expect_well();
}

static int make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	return rmdir(folder);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_requests_are_answered_in_turn),
		TEST(test_many_requests_at_once_are_all_answered),
		TEST(test_client_that_reads_nothing_does_not_block_others),
		TEST(test_no_request_waits_for_a_shard_that_has_ended),
		TEST(test_silent_clients_are_displaced),
		TEST(test_client_being_answered_is_not_displaced),
		TEST(test_client_being_answered_is_displaced_if_all_are),
		TEST(test_garbage_is_answered_or_ends_the_connection),
		TEST(test_socket_is_accessible_to_its_user_only),
		TEST(test_a_second_program_is_refused),
		TEST(test_stale_socket_is_replaced),
		TEST(test_other_files_are_left_alone),
		TEST(test_the_page_is_served),
		TEST(test_other_requests_are_refused),
		TEST(test_a_request_may_come_in_pieces),
		TEST(test_slow_clients_are_displaced_and_end),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
