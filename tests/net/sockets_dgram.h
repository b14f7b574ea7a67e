/*
 * Helpers for tests of UDP in libcoronet-sockets: the stack is 10.0.0.1 and
 * fd00::1, the peer 10.0.0.2 and fd00::2 (datagrams.h).
 */
#pragma once

#include "tests/net/datagrams.h"
#include "tests/net/sockets.h"

#define PORT	  5353
#define PEER_PORT 4000
#define OUR_ADDR  udp_at(udp_us4, PORT)
#define ITS_ADDR  udp_at(udp_peer4, PEER_PORT)

static struct datagram sent;

static inline int dgram_setup(void **state)
{
	fd = server = -1;
	ended = 0;
	error = 0;
	fake_tx_budget = -1;
	unsetenv("CORONET_ADDRS");
	return udp_setup(state);
}

#define TD(name)                                                               \
	cmocka_unit_test_setup_teardown(name, dgram_setup, sockets_teardown)

static inline void *step_body(void *arg)
{
	((void (*)(void))arg)();
	ended++;
	return NULL;
}

/* Runs fn in a coroutine, until it has ended or waits. */
static inline void begin_call(void (*fn)(void))
{
	ended = 0;
	assert_int_equal(net_spawn(stack, "test", step_body, (void *)fn), 0);
	run_rounds(4);
}

/* The same for one that does not wait. */
static inline void run_call(void (*fn)(void))
{
	begin_call(fn);
	assert_int_equal(ended, 1);
}

static inline struct sockaddr_in6 make_address6(const char *ip, uint16_t port)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
				   .sin6_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET6, ip, &in6.sin6_addr), 1);
	return in6;
}

/* A call that fails with an errno. */
#define FAILS(call, wanted)                                                    \
	do {                                                                   \
		assert_int_equal((call), -1);                                  \
		assert_int_equal(errno, wanted);                               \
	} while (0)

static inline long send_text(int to, const char *ip, uint16_t port,
			     const char *text)
{
	struct sockaddr_in in = make_address(ip, port);

	return sendto(to, text, strlen(text), 0, (struct sockaddr *)&in,
		      sizeof(in));
}

static inline int set_option(int number, int level, int name, int value)
{
	return setsockopt(number, level, name, &value, sizeof(value));
}

static inline int get_option(int number, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(number, level, name, &value, &len) < 0 ? -errno
								 : value;
}

static inline void open_bound(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind_to(fd, "10.0.0.1", PORT), 0);
	assert_true(net_sockets_ours(fd));
}

static inline void open_connected(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(connect_to(fd, "10.0.0.2", PEER_PORT), 0);
	assert_true(net_sockets_ours(fd));
}

static inline uint16_t port_of(int number)
{
	struct sockaddr_in in;
	socklen_t len = sizeof(in);

	assert_int_equal(getsockname(number, (struct sockaddr *)&in, &len), 0);
	return ntohs(in.sin_port);
}

static inline void peer_says(const char *text)
{
	assert_true(datagram_say(ITS_ADDR, OUR_ADDR, text));
	run_rounds(4);
}

static inline short events_of(int number)
{
	struct pollfd p = {.fd = number,
			   .events = POLLIN | POLLOUT | POLLRDHUP};

	assert_true(poll(&p, 1, 0) >= 0);
	return p.revents;
}
