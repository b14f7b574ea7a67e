/*
 * Shards over memif with queues at both ends and a thread for each shard:
 * frames arrive at the shard of their flow, in order.
 */
#include "tests/glue/shards.h"

#include <rte_ethdev.h>

#include "dpdk_glue/port_priv.h"

#define BURST_YIELDS 10000 /* of a burst that waits for the link */

struct world {
	unsigned n_shards;
	uint32_t per_shard; /* frames that each sends */
	pthread_barrier_t barrier;
	unsigned left; /* atomic: shards that have not received all frames */
	uint32_t got[SHARDS_MAX]; /* atomic, with those the rings had no room
				     for */
	uint32_t wrong, disorder; /* atomic */
	uint64_t stats[SHARDS_MAX][2];
	unsigned queues[2];
};
static struct world world;
static char folder[] = "/tmp/coronet-shards-XXXXXX"; /* of the socket */

struct view {
	unsigned shard;
	struct glue_port *server, *client;
	uint32_t sent, got;
	uint32_t last[FLOWS]; /* number of each flow's last frame */
};

/* Frames that the client's side sends, each shard those of all flows. */
static void send_some(struct view *view)
{
	for (unsigned i = 0; i < 8 && view->sent < world.per_shard; i++) {
		unsigned flow =
			view->sent * world.n_shards % FLOWS + view->shard;
		struct glue_frame *f = make_segment(view->client, flow % FLOWS,
						    view->sent + 1);

		if (!f)
			break;
		glue_tx(view->client, f);
		view->sent++;
	}
	glue_tx_flush(view->client);
}

static void take_some(struct view *view)
{
	struct glue_frame *frames[GLUE_BURST];
	unsigned n = glue_rx(view->server, frames, GLUE_BURST);

	for (unsigned i = 0; i < n; i++) {
		unsigned flow = flow_of(frames[i]);
		uint32_t number = get32(frames[i]->data + 54);

		if (shard_of(flow) != view->shard)
			__atomic_add_fetch(&world.wrong, 1, __ATOMIC_RELAXED);
		if (number <= view->last[flow])
			__atomic_add_fetch(&world.disorder, 1,
					   __ATOMIC_RELAXED);
		view->last[flow] = number;
		glue_frame_free(frames[i]);
	}
	view->got += n;
	__atomic_store_n(
		&world.got[view->shard],
		view->got + (uint32_t)stats_of(view->server).rx_hand_over_full,
		__ATOMIC_RELAXED);
	glue_tx_flush(view->server);		       /* which carries */
	n = glue_rx(view->client, frames, GLUE_BURST); /* and there */
	CHECK(n == 0);
}

static uint32_t all_got(void)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < world.n_shards; i++)
		sum += __atomic_load_n(&world.got[i], __ATOMIC_RELAXED);
	return sum;
}

static void *shard_main(void *arg)
{
	static _Thread_local struct view view;
	unsigned shard = (unsigned)(uintptr_t)arg;
	struct glue_port_stats stats;
	time_t until = deadline_s();

	view.shard = shard;
	CHECK(glue_thread_enter(shard, error, sizeof(error)) == 0);
	view.server = open_port(0, shard);
	view.client = open_port(1, shard);
	pthread_barrier_wait(&world.barrier);
	while (!glue_port_link_up(view.client) && !out_of_time(until))
		;
	while (!glue_port_link_up(view.server) && !out_of_time(until))
		;
	while (all_got() < world.n_shards * world.per_shard &&
	       !out_of_time(until)) {
		send_some(&view);
		take_some(&view);
	}
	pthread_barrier_wait(&world.barrier);
	CHECK(glue_port_frames_free(view.server) ==
	      glue_port_frames(view.server));
	CHECK(glue_port_frames_free(view.client) ==
	      glue_port_frames(view.client));
	stats = stats_of(view.server);
	world.stats[shard][0] = stats.rx_handed_over;
	world.stats[shard][1] = stats.rx_taken_over;
	if (shard == 0) {
		world.queues[0] = glue_port_queues(view.server);
		world.queues[1] = glue_port_queues(view.client);
	}
	pthread_barrier_wait(&world.barrier);
	glue_port_close(view.client);
	glue_port_close(view.server);
	if (shard)
		glue_thread_leave();
	return NULL;
}

/* Runs after glue_eal_stop(): the server has removed its socket by then. */
static void remove_folder(void)
{
	if (rmdir(folder) == 0)
		return;
	perror(folder);
	_exit(1);
}

/* The keys are those of the server's and of the client's --link. */
static void parse_links(const char *server_keys, const char *client_keys)
{
	char text[160];

	CHECK(mkdtemp(folder));
	CHECK(atexit(remove_folder) == 0);
	snprintf(text, sizeof(text), "memif:%s/m.sock,role=server%s", folder,
		 server_keys);
	CHECK(glue_link_parse(text, &links[0], error, sizeof(error)) == 0);
	snprintf(text, sizeof(text), "memif:%s/m.sock,role=client%s", folder,
		 client_keys);
	CHECK(glue_link_parse(text, &links[1], error, sizeof(error)) == 0);
}

static void memif_world(unsigned n_shards, const char *server_keys,
			const char *client_keys, uint32_t per_shard)
{
	pthread_t threads[SHARDS_MAX];
	uint64_t handed = 0, taken = 0;

	parse_links(server_keys, client_keys);
	world.n_shards = n_shards;
	world.per_shard = per_shard;
	pthread_barrier_init(&world.barrier, NULL, n_shards);
	start_eal(2, n_shards);
	for (unsigned i = 1; i < n_shards; i++)
		CHECK(pthread_create(&threads[i], NULL, shard_main,
				     (void *)(uintptr_t)i) == 0);
	shard_main(NULL);
	for (unsigned i = 1; i < n_shards; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < n_shards; i++) {
		handed += world.stats[i][0];
		taken += world.stats[i][1];
	}
	CHECK(world.wrong == 0);
	CHECK(world.disorder == 0);
	CHECK(all_got() == n_shards * per_shard);
	CHECK(handed == taken);
	CHECK(n_shards == 1 || handed > 0);
}

static void two_shards_two_queues(void)
{
	memif_world(2, "", "", 20000);
	CHECK(world.queues[0] == 2 && world.queues[1] == 2);
}

static void client_with_one_queue(void)
{
	memif_world(2, "", ",queues=1", 20000);
	CHECK(world.queues[0] == 2 && world.queues[1] == 1);
}

static void eight_shards_three_queues(void)
{
	memif_world(8, ",queues=3", "", 2000);
	CHECK(world.queues[0] == 3 && world.queues[1] == 3);
}

/* ---- frames that are sent again ---- */

/* Sends what the port has, and takes the one frame that arrives. */
static struct glue_frame *carry_one(struct glue_port *from,
				    struct glue_port *to, uint32_t number)
{
	time_t until = deadline_s();
	struct glue_frame *f[GLUE_BURST] = {NULL};

	do /* the client provides the server's buffers as it receives */
		glue_tx_flush(from);
	while (glue_rx(to, f, GLUE_BURST) == 0 && !out_of_time(until));
	CHECK(f[0] && f[0]->seg_len == LEN);
	CHECK(get32(f[0]->data + 54) == number);
	return f[0];
}

static void send_again(struct glue_port *port, struct glue_frame *f,
		       uint32_t number)
{
	CHECK(glue_tx_again(port, f, LEN));
	CHECK(!glue_tx_again(port, f, LEN)); /* it is under way */
	put32(f->data + 54, number);
	f->flags = GLUE_FRAME_IP4 | GLUE_FRAME_TCP;
	glue_tx(port, f);
}

/* By memif, which copies frames; either of the two owners may be the last. */
static void received_frames_are_sent_again(void)
{
	struct glue_port *server, *client;
	time_t until = deadline_s();
	struct glue_frame *f;

	parse_links("", "");
	start_eal(2, 1);
	server = open_port(0, 0);
	client = open_port(1, 0);
	while (!(glue_port_link_up(client) && glue_port_link_up(server)) &&
	       !out_of_time(until))
		;
	glue_tx(client, make_segment(client, 1, 100));
	f = carry_one(client, server, 100);
	for (uint32_t i = 1; i <= 3; i++) {
		send_again(server, f, 100 + i);
		glue_frame_free(carry_one(server, client, 100 + i));
	}
	send_again(server, f, 104);
	glue_frame_free(f);
	glue_frame_free(carry_one(server, client, 104));
	CHECK(glue_port_frames_free(server) == glue_port_frames(server));
	CHECK(glue_port_frames_free(client) == glue_port_frames(client));
	glue_port_close(client);
	glue_port_close(server);
}

/* ---- handshakes ---- */

static eth_rx_burst_t driver_rx;
static uint16_t watched_id;
static unsigned bursts_that_saw_the_link_come_up;

static bool driver_up(void)
{
	struct rte_eth_link link = {0};

	return rte_eth_link_get_nowait(watched_id, &link) == 0 &&
	       link.link_status == RTE_ETH_LINK_UP;
}

/* A burst that begins while the link is down lasts until it is up, if it may.
 */
static uint16_t watching_rx(void *queue, struct rte_mbuf **bufs, uint16_t n)
{
	bool was_up = driver_up();

	for (unsigned i = 0; i < BURST_YIELDS && !driver_up(); i++)
		sched_yield();
	if (!was_up && driver_up())
		bursts_that_saw_the_link_come_up++;
	return driver_rx(queue, bufs, n);
}

/*
 * The client opens first, and comes again when its server is open, which is
 * polled all the time.
 */
static void no_burst_is_under_way_while_memif_connects(void)
{
	struct glue_port *server, *client;
	struct glue_frame *frames[GLUE_BURST];
	time_t until = deadline_s();

	parse_links("", "");
	start_eal(2, 1);
	client = open_port(1, 0);
	CHECK(!glue_port_active(client));
	server = open_port(0, 0);
	CHECK(glue_port_active(server));
	watched_id = server->id;
	driver_rx = rte_eth_fp_ops[server->id].rx_pkt_burst;
	rte_eth_fp_ops[server->id].rx_pkt_burst = watching_rx;
	while (!(glue_port_link_up(client) && glue_port_link_up(server)) &&
	       !out_of_time(until))
		CHECK(glue_rx(server, frames, GLUE_BURST) == 0);
	CHECK(bursts_that_saw_the_link_come_up == 0);
	CHECK(glue_port_active(client) && glue_port_active(server));
	glue_tx(client, make_segment(client, 1, 100));
	glue_frame_free(carry_one(client, server, 100));
	glue_port_close(client);
	glue_port_close(server);
}

IN_CHILD(no_burst_is_under_way_while_memif_connects)
IN_CHILD(received_frames_are_sent_again)
IN_CHILD(two_shards_two_queues)
IN_CHILD(client_with_one_queue)
IN_CHILD(eight_shards_three_queues)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_no_burst_is_under_way_while_memif_connects),
		cmocka_unit_test(test_received_frames_are_sent_again),
		cmocka_unit_test(test_two_shards_two_queues),
		cmocka_unit_test(test_client_with_one_queue),
		cmocka_unit_test(test_eight_shards_three_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
