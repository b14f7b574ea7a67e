/*
 * A pool that all shards receive from runs empty: which connections are reset,
 * and when. One thread runs the shards in turn, on DPDK's own frames and on a
 * clock of the test's, so that a shard can stand still.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <coronet/coro_io.h>

#include "dpdk_glue/glue_csum.h"
#include "netstack/conn/conn.h"
#include "netstack/shard/shard.h"
#include "tests/net/frames.h"
#include "tests/net/random_queue.h"

#define MS	  INT64_C(1000000)
#define GRACE	  (100 * MS)
#define SHARDS	  4u
#define CLIENTS	  72u
#define QUEUE	  64u /* descriptors of the link's ring */
#define FRAMES	  32768u
#define HOLD_PORT 7u
#define ECHO_PORT 9u
#define NEAR_WRAP 0xffffff00u

const uint8_t fake_mac[6] = {2, 0, 0, 0, 0, 1};
const uint8_t fake_peer_mac[6] = {2, 0, 0, 0, 0, 2};

static unsigned n_shards;
static struct net_stack *stacks[SHARDS];
static int64_t now = 1000 * MS, paused_until[SHARDS];

/* The peer's connections. */
static struct client {
	uint16_t port, to;
	uint32_t snd, rcv;
	bool open, reset;
	unsigned answers; /* segments with data */
} clients[CLIENTS];
static unsigned n_clients;

/* Frames that are taken from the pool of the queue. */
static struct glue_frame *taken[FRAMES];
static unsigned n_taken;

#define CHECK(condition)                                                       \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__,     \
				#condition);                                   \
			_exit(1);                                              \
		}                                                              \
	} while (0)

/* ---- in place of the stack's clock, and of its threads ---- */

int64_t __wrap_glue_now_ns(void);
int __wrap_net_post(unsigned shard, void (*fn)(void *arg), void *arg);
void __sanitizer_cov_trace_pc(void);

int64_t __wrap_glue_now_ns(void)
{
	return now;
}

int __wrap_net_post(unsigned shard, void (*fn)(void *arg), void *arg)
{
	return coro_post(stacks[shard]->sched, fn, arg);
}

/* The build counts the code that runs, for test-net-random alone. */
void __sanitizer_cov_trace_pc(void)
{
}

/* ---- the stack ---- */

/* Keeps a connection's views until it ends: the peer sends no more. */
static void hold_views(struct net_conn *conn, void *arg)
{
	struct net_view views[NET_VIEWS_FRAMES + 1];
	unsigned n = 0;

	(void)arg;
	while (n <= NET_VIEWS_FRAMES && net_recv_view(conn, &views[n]) > 0)
		n++;
	while (n)
		net_view_release(conn, &views[--n]);
}

static void echo(struct net_conn *conn, void *arg)
{
	uint8_t room[100];
	long n;

	(void)arg;
	while ((n = net_recv(conn, room, sizeof(room))) > 0)
		net_send_all(conn, room, (size_t)n);
}

static void listen_at(uint16_t port, net_handler handler)
{
	struct net_listener *l;

	CHECK(net_listen(net_here(), &net_addr_any(port), 128, &l) == 0);
	net_listener_serve(l, handler, NULL);
}

static void enter_shard(unsigned shard)
{
	net_shard_enter(stacks[shard]);
	CHECK(coro_sched_enter(stacks[shard]->sched) == 0);
}

static void leave_shard(unsigned shard)
{
	coro_sched_leave(stacks[shard]->sched);
	net_shard_enter(NULL);
}

static void open_shards(unsigned n)
{
	struct net_opts opts;

	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:r0,queue=64";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.shards = opts.max_shards = n_shards = n;
	opts.huge_off = true;
	opts.poll = NET_POLL_BUSY;
	opts.watchdog_ms = 0;
	opts.max_conns = 4096;
	opts.log_level = "error";
	CHECK(net_program_open(&opts) == 0);
	for (unsigned i = 0; i < n; i++) {
		CHECK(net_shard_open(&opts, i) == 0);
		stacks[i] = net_here();
		listen_at(HOLD_PORT, hold_views);
		listen_at(ECHO_PORT, echo);
		net_budget_set(0);
		leave_shard(i);
	}
	queue_open(QUEUE);
}

/* ---- frames ---- */

static void send_segment(struct client *c, uint8_t flags, unsigned len)
{
	static const uint8_t zeros[1000];
	struct segment s = {.src = c->port,
			    .dst = c->to,
			    .seq = c->snd,
			    .ack = c->rcv,
			    .flags = flags,
			    .wnd = 65535,
			    .options = zeros,
			    .data = zeros,
			    .len = len};
	uint8_t frame[1100] = {0}, *ip = frame + 14;
	unsigned tcp_len = frame_put_tcp(ip + 20, &s);
	uint16_t sum;

	frame_ethernet(frame, 0x0800);
	ip[0] = 0x45;
	put16(ip + 2, 20 + tcp_len);
	ip[8] = 64;
	ip[9] = 6;
	memcpy(ip + 12, peer_ip, 4);
	memcpy(ip + 16, stack_ip, 4);
	sum = (uint16_t)~glue_sum_fold(glue_sum_add(0, ip, 20));
	memcpy(ip + 10, &sum, 2);
	sum = (uint16_t)~glue_sum_fold(
		glue_sum_pseudo(ip + 12, 4, 6, (uint16_t)tcp_len) +
		glue_sum_add(0, ip + 20, tcp_len));
	memcpy(ip + 36, &sum, 2);
	queue_put(frame, 14 + 20 + tcp_len);
}

/* A reset, or another segment, of which only the answer is of interest. */
static void take_segment(const struct segment *s)
{
	for (unsigned i = 0; i < n_clients; i++) {
		struct client *c = &clients[i];

		if (c->port != s->dst)
			continue;
		c->reset |= (s->flags & PEER_RST) != 0;
		if (s->flags & PEER_SYN) {
			c->rcv = s->seq + 1;
			c->open = true;
		}
		if (s->len && s->seq == c->rcv) {
			c->rcv += s->len;
			c->answers++;
		}
	}
}

/* In place of the fake port, for frame_answer_arp(). */
void fake_receive(const void *data, unsigned len, uint16_t flags,
		  uint16_t l4_off)
{
	(void)flags;
	(void)l4_off;
	queue_put(data, len);
}

static void take_frame(const void *data, unsigned len)
{
	const uint8_t *frame = data;
	struct segment s;

	(void)len;
	if (get16(frame + 12) == 0x0806)
		frame_answer_arp(frame);
	if (get16(frame + 12) != 0x0800 || frame[14 + 9] != 6)
		return;
	s = frame_get_tcp(frame + 34, get16(frame + 16) - 20);
	take_segment(&s);
}

static void run_shards(void)
{
	for (unsigned i = 0; i < n_shards; i++) {
		if (paused_until[i] > now)
			continue;
		enter_shard(i);
		net_stack_work(stacks[i]);
		leave_shard(i);
	}
	queue_take(take_frame);
}

/* Sixteen rounds, so that each shard looks at its pool. */
static void pass_ms(void)
{
	for (unsigned i = 0; i < 16; i++) {
		now += MS / 16;
		run_shards();
	}
}

static void pass_ns(int64_t ns)
{
	for (; ns > 0; ns -= MS)
		pass_ms();
}

/* ---- the pool ---- */

static struct glue_port *port_of_queue(void)
{
	return stacks[0]->ports[0].glue;
}

static void empty_pool(void)
{
	while (n_taken < FRAMES &&
	       (taken[n_taken] = glue_tx_alloc(port_of_queue(), 60)))
		n_taken++;
	CHECK(n_taken < FRAMES);
}

static void fill_pool(void)
{
	while (n_taken)
		glue_frame_free(taken[--n_taken]);
}

/* ---- the peer ---- */

static unsigned shard_of(uint16_t port, uint16_t to)
{
	return glue_flow_shard(glue_flow_fold(peer_ip, stack_ip, 4), port, to);
}

static struct client *connect_to(uint16_t to, unsigned shard)
{
	struct client *c = &clients[n_clients++];
	unsigned port = 2000 + 100 * n_clients;

	while (shard_of((uint16_t)port, to) != shard)
		port++;
	*c = (struct client){.port = (uint16_t)port, .to = to};
	c->snd = NEAR_WRAP;
	for (unsigned i = 0; i < 100 && !c->open; i++) {
		send_segment(c, PEER_SYN, 0);
		pass_ms();
	}
	CHECK(c->open);
	c->snd++;
	send_segment(c, PEER_ACK, 0);
	pass_ms();
	return c;
}

/* A connection whose handler keeps so many frames. */
static struct client *hold(unsigned shard, unsigned frames)
{
	unsigned before = stacks[shard]->ports[0].frames_in;
	struct client *c = connect_to(HOLD_PORT, shard);

	for (unsigned i = 0; i < frames; i++) {
		send_segment(c, PEER_ACK, 500);
		c->snd += 500;
		pass_ms();
	}
	CHECK(stacks[shard]->ports[0].frames_in - before == frames);
	return c;
}

static unsigned resets_of(unsigned shard)
{
	return (unsigned)stacks[shard]->stats.memory_resets;
}

static unsigned resets(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < n_shards; i++)
		n += resets_of(i);
	return n;
}

/* Runs until so many were reset; each time, takes the frames that return. */
static void run_until_reset(unsigned n, int64_t within)
{
	int64_t until = now + within;

	while (resets() < n && now < until) {
		empty_pool();
		pass_ms();
	}
	CHECK(resets() == n);
	pass_ms();
}

static void close_shards(void)
{
	fill_pool();
	for (unsigned i = 0; i < n_shards; i++)
		paused_until[i] = 0;
	for (unsigned i = 0; i < n_clients; i++)
		if (!clients[i].reset)
			send_segment(&clients[i], PEER_RST, 0);
	pass_ns(100 * MS);
	queue_close();
	for (unsigned i = 0; i < n_shards; i++) {
		const struct net_stack *s = stacks[i];

		CHECK(s->n_conns == 0 && s->half_open == 0);
		CHECK(s->ports[0].frames_in == 0 && s->ooseq_held == 0);
		CHECK(!glue_port_empty_pools(s->ports[0].glue));
		CHECK(queue_missing(i) == 0);
		enter_shard(i);
		net_shard_close(stacks[i]);
	}
	net_program_close();
}

/* ---- the tests, in processes of their own ---- */

static void reset_greatest_first(unsigned greatest)
{
	open_shards(2);
	hold(!greatest, 20);
	hold(greatest, 30);
	run_until_reset(1, 500 * MS);
	CHECK(resets_of(greatest) == 1);
	for (int64_t until = now + GRACE - 5 * MS; now < until; pass_ms())
		empty_pool();
	CHECK(resets() == 1);
	run_until_reset(2, 500 * MS);
	CHECK(resets_of(!greatest) == 1);
	close_shards();
}

static void greatest_is_on_the_first(void)
{
	reset_greatest_first(0);
}

static void greatest_is_on_the_second(void)
{
	reset_greatest_first(1);
}

/* A reset is enough: its frames return. */
static void others_stay(void)
{
	open_shards(SHARDS);
	for (unsigned i = 0; i < SHARDS; i++)
		hold(i, NET_VIEWS_FRAMES - i);
	empty_pool();
	pass_ns(2000 * MS);
	CHECK(resets() == 1 && resets_of(0) == 1);
	close_shards();
}

/* The shard with the greatest holder bids, and then stands still. */
static void bidder_stands_still(void)
{
	int64_t at;

	open_shards(2);
	hold(0, 20);
	hold(1, 30);
	empty_pool();
	pass_ns(130 * MS);
	CHECK(resets() == 0);
	paused_until[1] = now + 1000 * MS;
	run_until_reset(1, 500 * MS);
	CHECK(resets_of(0) == 1);
	paused_until[1] = 0;
	at = now;
	run_until_reset(2, 500 * MS);
	CHECK(now - at > GRACE - 5 * MS && resets_of(1) == 1);
	close_shards();
}

/* Shard 0, which has the only queue, finds its pool empty and stands still. */
static void frames_return_meanwhile(void)
{
	open_shards(2);
	hold(0, 30);
	hold(1, 30);
	empty_pool();
	pass_ns(5 * MS);
	CHECK(glue_port_empty_pools(port_of_queue()));
	paused_until[0] = now + 1000 * MS;
	fill_pool();
	pass_ns(900 * MS);
	CHECK(resets() == 0);
	CHECK(stacks[1]->ports[0].frames_to_hold > 0);
	close_shards();
}

/* As with a queue per shard, on a port that spreads flows by its own rule. */
static void others_hold_more_of_another_pool(void)
{
	open_shards(2);
	hold(0, 20);
	queue_take_from(1);
	hold(0, 30);
	hold(1, 30);
	queue_take_from(0);
	run_until_reset(1, 500 * MS);
	CHECK(stacks[0]->ports[0].frames_in == 30);
	for (int64_t until = now + 1000 * MS; now < until; pass_ms())
		empty_pool();
	CHECK(resets() == 1);
	close_shards();
}

/* ---- many that hold frames, and shards that stand still ---- */

static unsigned random_below(unsigned n)
{
	static uint32_t state = 1;

	state = state * 1664525 + 1013904223;
	return (state >> 8) % n;
}

/* One of the shards stands still, up to 300 ms; the queue's as well. */
static void pause_some(void)
{
	if (random_below(100) == 0)
		paused_until[random_below(n_shards)] =
			now + (int64_t)(1 + random_below(300)) * MS;
}

static void run_crowd_ms(int64_t *last_reset)
{
	unsigned before = resets();

	pause_some();
	pass_ms();
	if (resets() == before)
		return;
	CHECK(resets() == before + 1);
	CHECK(now - *last_reset >= GRACE - MS);
	*last_reset = now;
}

/* An answer to each; the peer repeats what was lost. */
static void check_reception(struct client **echoes, int64_t *last_reset)
{
	for (unsigned i = 0; i < SHARDS; i++) {
		unsigned before = echoes[i]->answers;
		int64_t until = now + 3000 * MS;

		while (echoes[i]->answers == before && now < until) {
			send_segment(echoes[i], PEER_ACK, 10);
			for (unsigned k = 0; k < 20; k++)
				run_crowd_ms(last_reset);
		}
		CHECK(echoes[i]->answers > before);
		echoes[i]->snd += 10;
	}
}

static void crowd_holds_frames(unsigned n)
{
	struct client *echoes[SHARDS];
	int64_t last_reset = 0;

	open_shards(SHARDS);
	for (unsigned i = 0; i < SHARDS; i++)
		echoes[i] = connect_to(ECHO_PORT, i);
	for (unsigned i = 0; i < n; i++)
		hold(i % SHARDS, NET_VIEWS_FRAMES - i / SHARDS % 16);
	check_reception(echoes, &last_reset);
	CHECK(resets() == 0);
	for (unsigned i = 0; i < 4000 && resets() < 8; i++) {
		empty_pool();
		run_crowd_ms(&last_reset);
	}
	CHECK(resets() == 8);
	check_reception(echoes, &last_reset);
	CHECK(resets() < 12);
	for (unsigned i = 0; i < SHARDS; i++)
		CHECK(!echoes[i]->reset);
	close_shards();
}

static void crowd_of_24(void)
{
	crowd_holds_frames(24);
}

static void crowd_of_64(void)
{
	crowd_holds_frames(64);
}

/* DPDK starts once in a process. */
static void in_child(void (*test)(void))
{
	pid_t pid = fork();
	int status = -1;

	assert_true(pid >= 0);
	if (pid == 0) {
		test();
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_greatest_holder_of_all_shards_is_reset_first(void **state)
{
	(void)state;
	in_child(greatest_is_on_the_first);
	in_child(greatest_is_on_the_second);
}

static void test_one_reset_ends_a_shortage_for_all_shards(void **state)
{
	(void)state;
	in_child(others_stay);
}

static void test_bid_of_a_stopped_shard_expires(void **state)
{
	(void)state;
	in_child(bidder_stands_still);
}

static void test_stopped_shard_of_the_queue_causes_no_reset(void **state)
{
	(void)state;
	in_child(frames_return_meanwhile);
}

static void test_holders_of_another_pools_frames_are_not_reset(void **state)
{
	(void)state;
	in_child(others_hold_more_of_another_pool);
}

static void test_reception_resumes_beside_many_holders(void **state)
{
	(void)state;
	in_child(crowd_of_24);
	in_child(crowd_of_64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_greatest_holder_of_all_shards_is_reset_first),
		cmocka_unit_test(test_one_reset_ends_a_shortage_for_all_shards),
		cmocka_unit_test(test_bid_of_a_stopped_shard_expires),
		cmocka_unit_test(
			test_stopped_shard_of_the_queue_causes_no_reset),
		cmocka_unit_test(
			test_holders_of_another_pools_frames_are_not_reset),
		cmocka_unit_test(test_reception_resumes_beside_many_holders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
