/*
 * A port's limits over several shards: all clients, and clients and half-open
 * connections of a source, on any shard.
 *
 * Each shard is a thread with a fake port and a peer of its own. It runs the
 * test's steps and waits in between, so that one shard works at a time, except
 * in the races.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define MOST	   4u
#define CONNS	   64u	  /* of each shard */
#define TURNS	   50000u /* of a race */
#define LAST_TURNS 4000u  /* of a race for the last slot, by all shards */
#define CLIENTS	   16u	  /* concurrent clients of a shard */

static struct shard {
	pthread_t thread;
	sem_t go, done;
	void (*work)(struct shard *shard, unsigned arg);
	unsigned arg;
	/* its own */
	unsigned number;
	struct peer clients[CLIENTS];
	unsigned n_clients;
	uint16_t port; /* the client's next one */
	int err;
	bool answered; /* the last SYN */
	uint8_t flags; /* what with */
	unsigned got_in, refused, seen;
} shards[MOST];

static unsigned n_shards;
static struct net_opts opts;
static struct net_limits limits;

/* ---- the shards ---- */

static void run_on_shard(unsigned number,
			 void (*work)(struct shard *, unsigned), unsigned arg)
{
	shards[number].work = work;
	shards[number].arg = arg;
	sem_post(&shards[number].go);
	sem_wait(&shards[number].done);
}

/* Runs a step on all shards at once. */
static void on_all(void (*work)(struct shard *, unsigned), unsigned arg)
{
	for (unsigned i = 0; i < n_shards; i++) {
		shards[i].work = work;
		shards[i].arg = arg;
		sem_post(&shards[i].go);
	}
	for (unsigned i = 0; i < n_shards; i++)
		sem_wait(&shards[i].done);
}

static void wait_for_end(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
}

static void *shard_main(void *arg)
{
	struct shard *me = arg;

	fake_now_ns = 1000000000;
	me->err = net_shard_open(&opts, me->number);
	stack = net_here();
	if (me->err == 0)
		me->err = net_listen(stack, &net_addr_any(7), 0, &listener);
	if (me->err == 0)
		me->err = net_listener_limit(listener, &limits);
	if (me->err == 0)
		me->err = net_listener_serve(listener, wait_for_end, NULL);
	for (;;) {
		sem_post(&me->done);
		sem_wait(&me->go);
		if (!me->work)
			break;
		me->work(me, me->arg);
	}
	if (stack->sched)
		net_shard_close(stack);
	fake_reset();
	sem_post(&me->done);
	return NULL;
}

static void open_shards(unsigned n, struct net_limits given)
{
	n_shards = n;
	limits = given;
	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.poll = NET_POLL_BUSY;
	opts.shards = n;
	opts.max_conns = CONNS * n;
	assert_int_equal(net_program_open(&opts), 0);
	memset(shards, 0, sizeof(shards));
	for (unsigned i = 0; i < n; i++) {
		shards[i].number = i;
		shards[i].port = (uint16_t)(1000 + 1000 * i);
		sem_init(&shards[i].go, 0, 0);
		sem_init(&shards[i].done, 0, 0);
		assert_int_equal(pthread_create(&shards[i].thread, NULL,
						shard_main, &shards[i]),
				 0);
		sem_wait(&shards[i].done); /* it is open */
		assert_int_equal(shards[i].err, 0);
	}
}

static int close_shards(void **state)
{
	for (unsigned i = 0; i < n_shards; i++) {
		run_on_shard(i, NULL, 0);
		pthread_join(shards[i].thread, NULL);
		sem_destroy(&shards[i].go);
		sem_destroy(&shards[i].done);
	}
	if (n_shards)
		net_program_close();
	n_shards = 0;
	return 0;
}

/* ---- steps of a shard ---- */

static void send_syn(struct shard *shard, unsigned arg)
{
	struct peer *peer = &shard->clients[shard->n_clients];
	struct segment s = {0};

	*peer = (struct peer){.port = shard->port++,
			      .stack_port = 7,
			      .snd = 99,
			      .wnd = 65535};
	peer_send(peer, PEER_SYN, NULL, 0);
	shard->answered = peer_next(&s);
	shard->flags = s.flags;
	peer->rcv = s.seq + 1;
}

/* Completes the handshake of the last SYN. */
static void send_ack(struct shard *shard, unsigned arg)
{
	peer_send(&shard->clients[shard->n_clients++], PEER_ACK, NULL, 0);
	run_rounds(3);
}

/* Sends a SYN of another host, which answers cannot reach. */
static void send_syn_of(struct shard *shard, unsigned host)
{
	const uint8_t from[4] = {10, 0, 0, (uint8_t)host};

	peer_send_syn_of(from, shard->port++);
	while (fake_sent((uint8_t[9216]){0}, 9216))
		;
}

/* Resets the latest client's connection. */
static void reset_last(struct shard *shard, unsigned arg)
{
	peer_send(&shard->clients[--shard->n_clients], PEER_RST | PEER_ACK,
		  NULL, 0);
	run_rounds(3);
}

static void pass_a_second(struct shard *shard, unsigned arg)
{
	struct segment s;

	run_ms(1000);
	while (peer_next(&s))
		;
}

static void close_here(struct shard *shard, unsigned arg)
{
	net_shard_close(stack);
	stack = net_here();
}

static void note_clients(struct shard *shard, unsigned arg)
{
	shard->seen = net_listener_clients(listener);
}

static void note_refused(struct shard *shard, unsigned arg)
{
	shard->refused = (unsigned)stack->stats.clients_refused;
}

static void note_half_open(struct shard *shard, unsigned arg)
{
	shard->seen = stack->half_open;
}

/* ---- clients on a shard that the test chooses ---- */

static bool gets_in(unsigned number)
{
	run_on_shard(number, send_syn, 0);
	if (shards[number].answered)
		run_on_shard(number, send_ack, 0);
	return shards[number].answered;
}

static unsigned clients_seen_by(unsigned number)
{
	run_on_shard(number, note_clients, 0);
	return shards[number].seen;
}

static unsigned half_open_on(unsigned number)
{
	run_on_shard(number, note_half_open, 0);
	return shards[number].seen;
}

static unsigned refused_on(unsigned number)
{
	run_on_shard(number, note_refused, 0);
	return shards[number].refused;
}

static void check_clients(unsigned count)
{
	for (unsigned i = 0; i < n_shards; i++)
		assert_int_equal(clients_seen_by(i), count);
}

/* ---- limits ---- */

/*
 * Opens as many clients as allowed, one shard after another; then every shard
 * refuses one.
 */
static void fill_to_limit(unsigned limit)
{
	for (unsigned i = 0; i < limit; i++)
		assert_true(gets_in(i % n_shards));
	check_clients(limit);
	for (unsigned i = 0; i < n_shards; i++) {
		unsigned refused = refused_on(i);

		assert_false(gets_in(i));
		assert_int_equal(refused_on(i), refused + 1);
	}
	check_clients(limit);
}

static void test_limit_holds_for_all_shards(void **state)
{
	for (unsigned n = 1; n <= MOST; n *= 2) {
		open_shards(n, (struct net_limits){.clients = 6});
		fill_to_limit(6);
		run_on_shard(n - 1, reset_last, 0);
		check_clients(5);
		assert_true(
			gets_in(0)); /* the slot that another shard released */
		assert_false(gets_in(n - 1));
		close_shards(NULL);
	}
}

static void test_one_shard_may_have_all_slots(void **state)
{
	open_shards(4, (struct net_limits){.clients = 5});
	for (unsigned i = 0; i < 5; i++)
		assert_true(gets_in(3));
	for (unsigned i = 0; i < 4; i++)
		assert_false(gets_in(i));
	check_clients(5);
}

static void test_a_source_has_one_limit_on_all_shards(void **state)
{
	for (unsigned n = 2; n <= MOST; n *= 2) {
		open_shards(n, (struct net_limits){.clients_per_source = 3});
		fill_to_limit(3);
		/* Another source has its own three slots. */
		for (unsigned i = 0; i < 4; i++)
			run_on_shard(i % n, send_syn_of, 3);
		for (unsigned i = 0, all = 0; i < n; i++) {
			all += half_open_on(i);
			assert_true(all <= 3);
			assert_true(i + 1 < n || all == 3);
		}
		close_shards(NULL);
	}
}

/* A refused source has taken no slot of others. */
static void test_refused_source_takes_no_slot(void **state)
{
	open_shards(2,
		    (struct net_limits){.clients = 2, .clients_per_source = 1});
	assert_true(gets_in(0));
	for (unsigned i = 0; i < 10; i++)
		assert_false(gets_in(i % 2));
	run_on_shard(1, send_syn_of, 3);
	assert_int_equal(half_open_on(1), 1);
	run_on_shard(0, send_syn_of, 4);
	assert_int_equal(half_open_on(0), 0);
}

static void test_half_open_limit_of_all_shards_leads_to_cookies(void **state)
{
	open_shards(2, (struct net_limits){.clients = 3,
					   .half_open_per_source = 2});
	for (unsigned i = 0; i < 2; i++) {
		run_on_shard(i, send_syn, 0);
		assert_int_equal(shards[i].flags, PEER_SYN | PEER_ACK);
		shards[i].n_clients++;
	}
	assert_int_equal(half_open_on(0), 1);
	assert_int_equal(half_open_on(1), 1);
	run_on_shard(1, send_syn, 0); /* a cookie: no state is kept */
	assert_int_equal(shards[1].flags, PEER_SYN | PEER_ACK);
	assert_int_equal(half_open_on(1), 1);
	run_on_shard(1, send_ack, 0);
	check_clients(1);
	shards[0].n_clients--;
	run_on_shard(0, send_ack,
		     0); /* that makes room for one that is half open */
	check_clients(2);
	assert_int_equal(refused_on(0) + refused_on(1), 0);
	assert_false(gets_in(0));
}

/*
 * Notes the default limits: half the backlogs of all shards, and half of the
 * program's connections.
 */
static void note_limits(struct shard *shard, unsigned arg)
{
	struct net_limits most;

	net_listener_limits(listener, &most);
	shard->seen = most.clients_per_source;
	shard->got_in = most.half_open_per_source;
}

static void test_default_limits_hold_for_the_program(void **state)
{
	open_shards(4, (struct net_limits){0});
	run_on_shard(0, note_limits, 0);
	assert_int_equal(shards[0].seen, 1024); /* the least */
	assert_int_equal(shards[0].got_in, 4 * 4096 / 2);
	close_shards(NULL);
	open_shards(2, (struct net_limits){0});
	run_on_shard(1, note_limits, 0);
	assert_int_equal(shards[1].got_in, 2 * 4096 / 2);
}

/* ---- release of counts ---- */

static void test_closing_shard_releases_its_counts(void **state)
{
	open_shards(2,
		    (struct net_limits){.clients = 4, .clients_per_source = 4});
	for (unsigned i = 0; i < 2; i++) {
		assert_true(gets_in(0));
		assert_true(gets_in(1));
	}
	assert_false(gets_in(0));
	run_on_shard(1, close_here, 0);
	assert_int_equal(clients_seen_by(0), 2);
	assert_true(gets_in(0));
	assert_true(gets_in(0));
	assert_false(gets_in(0));
}

/* Connections that are reset all the time leave no counts behind. */
static void test_no_client_stays_counted(void **state)
{
	open_shards(2, (struct net_limits){.clients = 3});
	for (unsigned i = 0; i < 50; i++) {
		assert_true(gets_in(0));
		assert_true(gets_in(1));
		run_on_shard(i % 2, reset_last, 0);
		run_on_shard(!(i % 2), reset_last, 0);
	}
	check_clients(0);
	fill_to_limit(3);
}

/* A handler that never returns holds its connection until the shard closes. */
static _Atomic bool held;

static void hold_conn(struct net_conn *conn, void *arg)
{
	while (held)
		coro_yield();
}

static void serve_held(struct shard *shard, unsigned arg)
{
	serve(hold_conn);
}

static void test_close_releases_connections_held_by_handlers(void **state)
{
	held = true;
	open_shards(2, (struct net_limits){.clients = 2});
	run_on_shard(1, serve_held, 0);
	assert_true(gets_in(1));
	run_on_shard(1, send_syn, 0); /* and one that is half open */
	run_on_shard(1, close_here, 0);
	assert_int_equal(clients_seen_by(0), 0);
	assert_true(gets_in(0));
	assert_true(gets_in(0));
	assert_false(gets_in(0));
	held = false;
}

static void fail_after(struct shard *shard, unsigned n)
{
	net_mem_fail_after(n);
}

/*
 * One of the first allocations of a connection is its source's entry. Without
 * memory for the connection itself, it stays half open.
 */
static void test_without_memory_a_client_is_not_counted(void **state)
{
	unsigned uncounted = 0;

	open_shards(2, (struct net_limits){.clients_per_source = 1});
	for (unsigned n = 1; n <= 8; n++) {
		run_on_shard(0, fail_after, n);
		if (gets_in(0)) {
			uncounted +=
				clients_seen_by(1) == 0 && half_open_on(0) == 0;
			run_on_shard(0, reset_last, 0);
		}
		run_on_shard(0, fail_after, 0);
		for (unsigned i = 0; i < 200 && half_open_on(0); i++)
			run_on_shard(0, pass_a_second, 0);
		check_clients(0);
	}
	assert_int_equal(uncounted, 1);
	fill_to_limit(1);
}

/* ---- races ---- */

/* Concurrent clients, as counted by the racing shards. */
static _Atomic unsigned in_now, most_in;
static _Atomic unsigned met; /* number of calls of meet() */

/*
 * Returns when all shards have called it: at the same moment if each has a CPU.
 */
static void meet_at_barrier(void)
{
	unsigned all = (atomic_fetch_add(&met, 1) / n_shards + 1) * n_shards;

	for (unsigned looks = 1; atomic_load(&met) < all; looks++)
		if (looks % 256 == 0)
			sched_yield();
}

static void note_in(void)
{
	unsigned now = atomic_fetch_add(&in_now, 1) + 1;
	unsigned most = atomic_load(&most_in);

	while (now > most &&
	       !atomic_compare_exchange_weak(&most_in, &most, now))
		;
}

static bool admitted(unsigned host)
{
	ip_addr_t ip;

	IP_ADDR4(&ip, 10, 0, 0, host);
	return net_clients_admit(listener, &ip, NET_ASKS) == NET_ADMIT;
}

/* All shards ask for the last slot at the same moment: one of them gets it. */
static void race_for_the_last(struct shard *shard, unsigned hosts)
{
	for (unsigned turn = 0; turn < LAST_TURNS / n_shards; turn++) {
		bool in;

		meet_at_barrier();
		in = admitted(2 + shard->number % hosts);
		shard->got_in += in;
		meet_at_barrier();
		if (in)
			net_clients_unadmit();
	}
}

/* The second of one turn may be the first of the next, once there is room. */
static void check_last_place(unsigned shards_racing, unsigned hosts,
			     struct net_limits given)
{
	unsigned got_in = 0;

	open_shards(shards_racing, given);
	met = 0;
	on_all(race_for_the_last, hosts);
	for (unsigned i = 0; i < n_shards; i++)
		got_in += shards[i].got_in;
	assert_int_equal(got_in, LAST_TURNS / n_shards);
	close_shards(NULL);
}

static void test_one_shard_gets_the_last_slot(void **state)
{
	for (unsigned n = 2; n <= MOST; n *= 2) {
		check_last_place(n, 1, (struct net_limits){.clients = 1});
		check_last_place(n, n, (struct net_limits){.clients = 1});
	}
}

static void test_one_shard_gets_the_last_slot_of_a_source(void **state)
{
	for (unsigned n = 2; n <= MOST; n *= 2)
		check_last_place(n, 1,
				 (struct net_limits){.clients_per_source = 1});
}

/*
 * Opens and closes a connection as fast as possible, in parallel with other
 * shards.
 */
static void establish_client(struct net_conn *conn, unsigned host)
{
	*conn = (struct net_conn){0};
	IP_ADDR4(&conn->pcb.remote_ip, 10, 0, 0, host);
	net_client_half_open(conn);
	net_client_established(conn);
}

static void note_entries(struct shard *shard, unsigned arg)
{
	shard->seen = net_client_entries;
}

static void race_clients(struct shard *shard, unsigned hosts)
{
	static _Thread_local struct net_conn conns[2];

	meet_at_barrier();
	for (unsigned turn = 0; turn < TURNS; turn++) {
		unsigned n = 0;

		for (unsigned i = 0; i < 2; i++) {
			unsigned host = 2 + (turn + i) % hosts;

			if (!admitted(host))
				continue;
			note_in();
			establish_client(&conns[n++], host);
		}
		shard->got_in += n;
		while (n) {
			atomic_fetch_sub(&in_now, 1);
			net_client_forget(&conns[--n]);
		}
	}
}

static void check_race(unsigned hosts, struct net_limits given, unsigned most)
{
	unsigned got_in = 0;

	in_now = most_in = 0;
	open_shards(MOST, given);
	met = 0;
	on_all(race_clients, hosts);
	for (unsigned i = 0; i < MOST; i++)
		got_in += shards[i].got_in;
	assert_true(most_in <= most);
	assert_true(got_in > 0);
	assert_int_equal(in_now, 0);
	check_clients(0);
	on_all(note_entries, 0);
	for (unsigned i = 0; i < MOST; i++)
		assert_int_equal(shards[i].seen, 0);
	fill_to_limit(most);
	close_shards(NULL);
}

static void test_no_race_exceeds_a_limit(void **state)
{
	check_race(1, (struct net_limits){.clients_per_source = 3}, 3);
	check_race(5, (struct net_limits){.clients = 3}, 3);
	check_race(1,
		   (struct net_limits){.clients = 5, .clients_per_source = 3},
		   3);
}

#define T(test) cmocka_unit_test_teardown(test, close_shards)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_limit_holds_for_all_shards),
		T(test_one_shard_may_have_all_slots),
		T(test_a_source_has_one_limit_on_all_shards),
		T(test_refused_source_takes_no_slot),
		T(test_half_open_limit_of_all_shards_leads_to_cookies),
		T(test_default_limits_hold_for_the_program),
		T(test_closing_shard_releases_its_counts),
		T(test_no_client_stays_counted),
		T(test_close_releases_connections_held_by_handlers),
		T(test_without_memory_a_client_is_not_counted),
		T(test_one_shard_gets_the_last_slot),
		T(test_one_shard_gets_the_last_slot_of_a_source),
		T(test_no_race_exceeds_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
