/*
 * Echoes between two marks, for test_echo_lines.py, which reads every load and
 * store of this program. Connections ask in bursts, and each request
 * acknowledges the answer before, as with bench-loop; the first connection has
 * timestamps. Prints the addresses of connections and their coroutines.
 */
#include <stddef.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "coro/coro_priv.h"
#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"
#include "tests/net/stamped.h"

#define CONNS  8u
#define WARM   40u /* warm-up bursts: round trips, windows and timers settle */
#define BURSTS 5u
#define MARK   ((uint8_t *)0x700000000) /* a store here is a mark */

static struct net_conn *conns[CONNS];
static struct coro *coros[CONNS];
static unsigned n_conns;

static void echo_handler(struct net_conn *conn, void *arg)
{
	struct net_view view;

	conns[n_conns] = conn;
	coros[n_conns++] = coro_self();
	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
}

/* Returns the bytes of its stack that a switch saves. */
static unsigned saved_bytes(const struct coro *co)
{
	return (unsigned)(co->ctx.stack->top - (char *)co->ctx.sp + 63) & -64u;
}

/* Sends a request on each connection, and takes the answers. */
static void burst_peers(struct peer *peers)
{
	static const char payload[] = "0123456789abcdef0123456789abcdef01234567"
				      "89abcdef0123456789abcde";
	struct segment s;

	stamp++;
	stamped_send(PEER_ACK | PEER_PSH, payload);
	for (unsigned i = 1; i < CONNS; i++)
		peer_send(&peers[i], PEER_ACK | PEER_PSH, payload,
			  sizeof(payload) - 1);
	for (unsigned i = 0; i < CONNS; i++) {
		s = peer_wait(1);
		assert_int_equal(s.len, sizeof(payload) - 1);
		if (s.dst == stamped.port)
			stamped.rcv += s.len;
		else
			peers[s.dst - 1000].rcv += s.len;
	}
	fake_now_ns += 3000;
}

static void test_echoes(void **state)
{
	struct peer peers[CONNS];
	volatile uint8_t *mark;

	mark = mmap(MARK, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_ptr_equal(mark, MARK);
	serve(echo_handler);
	stamped_connect();
	for (unsigned i = 1; i < CONNS; i++)
		peer_connect(&peers[i], (uint16_t)(1000 + i), 7, 5);
	for (unsigned i = 0; i < WARM; i++)
		burst_peers(peers);
	*mark = 1;
	for (unsigned i = 0; i < BURSTS; i++)
		burst_peers(peers);
	*mark = 2;
	for (unsigned i = 0; i < n_conns; i++)
		fprintf(stderr, "conn %lx %zu coro %lx %zu saved %u\n",
			(unsigned long)conns[i], sizeof(struct net_conn),
			(unsigned long)coros[i], sizeof(struct coro),
			saved_bytes(coros[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_echoes, peer_listen,
						peer_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
