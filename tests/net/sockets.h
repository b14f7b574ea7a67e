/*
 * Helpers for tests of libcoronet-sockets, which link it, so that socket calls
 * are the library's; the stack is 10.0.0.1 and the peer 10.0.0.2 (peer.h).
 */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <coronet/net_sockets.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static struct peer peer;
static int fd = -1, server = -1;
static int error; /* errno after a call that failed */

/* Runs fn in a coroutine until it has ended or waits. */
static inline void run_coro(coro_fn fn)
{
	ended = 0;
	result = 12345;
	assert_int_equal(net_spawn(stack, "test", fn, NULL), 0);
	run_rounds(4);
}

/* Keeps the result of a call, and its errno if it failed. */
static inline void keep_result(long value)
{
	result = value;
	error = value < 0 ? errno : 0;
	ended++;
}

static inline struct sockaddr_in make_address(const char *ip, uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET, ip, &in.sin_addr), 1);
	return in;
}

static inline int connect_to(int sock, const char *ip, uint16_t port)
{
	struct sockaddr_in in = make_address(ip, port);

	return connect(sock, (struct sockaddr *)&in, sizeof(in));
}

static inline int bind_to(int sock, const char *ip, uint16_t port)
{
	struct sockaddr_in in = make_address(ip, port);

	return bind(sock, (struct sockaddr *)&in, sizeof(in));
}

/* ---- connected sockets ---- */

static inline void *connect_body(void *arg)
{
	fd = socket(AF_INET, SOCK_STREAM, 0);
	keep_result(connect_to(fd, "10.0.0.2", 80));
	return NULL;
}

/* The peer answers the next SYN. */
static inline void answer_syn(uint8_t flags)
{
	struct segment s;

	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_SYN));
	peer = (struct peer){.port = s.dst,
			     .stack_port = s.src,
			     .snd = 0xfffffff0u,
			     .rcv = s.seq + 1,
			     .wnd = 65535};
	peer_send(&peer, flags, NULL, 0);
	run_rounds(4);
}

static inline void connect_socket(void)
{
	run_coro(connect_body);
	answer_syn(PEER_SYN | PEER_ACK);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	ended = 0;
}

static inline void *close_body(void *arg)
{
	keep_result(close(fd));
	fd = -1;
	return NULL;
}

static inline void peer_sends(const char *text)
{
	peer_send(&peer, PEER_ACK | PEER_PSH, text, (unsigned)strlen(text));
	run_rounds(4);
}

/* Expects the stack's next bytes, and acknowledges them. */
static inline void peer_receives(const char *text)
{
	struct segment s;

	do
		s = peer_wait(10);
	while (s.len == 0);
	assert_int_equal(s.len, strlen(text));
	assert_memory_equal(s.data, text, s.len);
	peer.rcv += s.len;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
}

/* Lets the process open n files, or skips the test if that is not allowed. */
static inline void allow_files(unsigned n)
{
	struct rlimit files;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	if (files.rlim_max <= n)
		skip();
	if (files.rlim_cur <= n)
		files.rlim_cur = files.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

static inline int sockets_setup(void **state)
{
	fd = server = -1;
	error = 0;
	result = 12345;
	ended = 0;
	unsetenv("CORONET_ADDRS");
	return peer_setup(state);
}

/* Checks that every descriptor and every socket is closed. */
static inline int sockets_teardown(void **state)
{
	int err = peer_teardown(state);

	if (fd >= 0)
		close(fd);
	if (server >= 0)
		close(server);
	net_sockets_addrs(NULL);
	return err;
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, sockets_setup, sockets_teardown)
