/* Reading from a socket of the stack and waiting for it, in a coroutine. */
#pragma once

#include "tests/net/sockets.h"

static char buf[65536];

static struct pollfd item;
static int timeout_ms;

static inline void *poll_body(void *arg)
{
	struct pollfd its = item;

	keep_result(poll(&its, 1, timeout_ms));
	item = its;
	return NULL;
}

static inline void poll_for(short events, int ms)
{
	item = (struct pollfd){.fd = fd, .events = events};
	timeout_ms = ms;
	run_coro(poll_body);
}

static inline void expect_event(int revents)
{
	assert_int_equal(ended, 1);
	assert_int_equal(result, revents != 0);
	assert_int_equal(item.revents, revents);
}

static size_t room;
static int recv_flags;

static inline void *recv_body(void *arg)
{
	char here[512]; /* on the shared stack */
	long n = recv(fd, here, room, recv_flags);

	if (n > 0)
		memcpy(buf, here, (size_t)n);
	keep_result(n);
	return NULL;
}

static inline void read_some(size_t len, int flags)
{
	room = len;
	recv_flags = flags;
	run_coro(recv_body);
}

static inline void expect_bytes(const char *text)
{
	assert_int_equal(ended, 1);
	assert_int_equal(result, strlen(text));
	assert_memory_equal(buf, text, strlen(text));
}
