/*
 * The Prometheus page on the stack's own network: displaced clients when all
 * slots are taken. The clock stands still.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <coronet/net_control.h>

#include "netstack/control/control_priv.h"
#include "tests/net/peer.h"

#define PAGE	    9464
#define SILENT	    40
#define FIRST_PORT  1001
#define REQUEST	    "GET /metrics HTTP/1.1\r\n\r\n"
#define ALL_ARE_OUT (FIRST_PORT + SILENT - NET_HTTP_CLIENTS)

static struct peer silent[SILENT];
static bool is_reset[65536]; /* by the peer's port */
static uint16_t answered;    /* the port that got a page last */
static _Atomic bool is_held, may_go_on;

/*
 * A part of the page that waits for the test, on the thread that writes the
 * page.
 */
static void hold_page(struct net_metrics *page, void *arg)
{
	atomic_store(&is_held, true);
	while (!atomic_load(&may_go_on))
		usleep(100);
}

static int open_page(void **state)
{
	struct net_opts opts;
	int err = peer_setup(state);

	net_opts_init(&opts);
	net_addr_parse("10.0.0.1:9464", -1, &opts.metrics);
	memset(is_reset, 0, sizeof(is_reset));
	answered = 0;
	is_held = false;
	may_go_on = true;
	return err < 0 ? err : net_scrape_open(&opts, 1);
}

static int close_page(void **state)
{
	atomic_store(&may_go_on, true);
	return peer_teardown(state);
}

/* Records the stack's segments. */
static void read_all(void)
{
	struct segment s;

	while (peer_next(&s)) {
		is_reset[s.dst] |= s.flags & PEER_RST;
		if (s.len > 12 && memcmp(s.data, "HTTP/1.1 200", 12) == 0)
			answered = s.dst;
	}
}

/* Connects more clients than slots, silent or with half of a request. */
static void connect_silent(void)
{
	for (uint16_t i = 0; i < SILENT; i++) {
		peer_connect(&silent[i], FIRST_PORT + i, PAGE, 99);
		if (i % 2)
			peer_send(&silent[i], PEER_ACK | PEER_PSH, REQUEST, 9);
		run_rounds(2);
		read_all();
	}
}

static void send_request(struct peer *peer, uint16_t port)
{
	peer_connect(peer, port, PAGE, 99);
	peer_send(peer, PEER_ACK | PEER_PSH, REQUEST, sizeof(REQUEST) - 1);
	run_rounds(2);
	read_all();
}

/* Runs rounds until another thread has written the page. */
static void await_page(uint16_t port)
{
	while (answered != port && !is_reset[port]) {
		usleep(100);
		run_rounds(1);
		read_all();
	}
	assert_false(is_reset[port]);
}

static void test_oldest_silent_client_is_displaced(void **state)
{
	struct peer scraper;

	connect_silent();
	for (uint16_t port = FIRST_PORT; port < FIRST_PORT + SILENT; port++)
		assert_int_equal(is_reset[port], port < ALL_ARE_OUT);
	send_request(&scraper, 2000);
	assert_true(is_reset[ALL_ARE_OUT]);
	assert_false(is_reset[ALL_ARE_OUT + 1]);
	await_page(2000);
}

static void test_client_being_answered_keeps_its_slot(void **state)
{
	struct peer early, late;

	assert_int_equal(net_metrics_add(hold_page, NULL), 0);
	may_go_on = false;
	send_request(&early, 2000);
	while (!atomic_load(&is_held)) {
		usleep(100);
		run_rounds(1);
	}
	connect_silent();
	assert_false(is_reset[2000]);
	atomic_store(&may_go_on, true);
	await_page(2000);
	send_request(&late, 2001);
	await_page(2001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_oldest_silent_client_is_displaced, open_page,
			close_page),
		cmocka_unit_test_setup_teardown(
			test_client_being_answered_keeps_its_slot, open_page,
			close_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
