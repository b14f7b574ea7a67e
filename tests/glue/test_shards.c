/*
 * Shards over a DPDK ring that returns a shard's frames, run by one thread,
 * without privileges. Frames arrive at the shard of their flow, from whichever
 * queue, and return to the pool they are from.
 */
#include <sys/mman.h>

#include "dpdk_glue/port_priv.h"
#include "tests/glue/shards.h"

static struct glue_port *ports[SHARDS_MAX];

/* ---- one queue, several shards, one thread for all ---- */

static void open_ring_as(const char *link, unsigned n_shards)
{
	CHECK(glue_link_parse(link, &links[0], error, sizeof(error)) == 0);
	start_eal(1, n_shards);
	for (unsigned i = 0; i < n_shards; i++)
		ports[i] = open_port(0, i);
}

static void open_ring(unsigned n_shards)
{
	open_ring_as("ring:r0", n_shards);
}

/*
 * Receives on each shard; returns the number of frames, and counts misplaced
 * ones.
 */
static unsigned take_all(unsigned n_shards, unsigned *wrong)
{
	struct glue_frame *frames[GLUE_BURST];
	unsigned total = 0;

	for (unsigned s = 0; s < n_shards; s++) {
		unsigned n = glue_rx(ports[s], frames, GLUE_BURST);

		for (unsigned i = 0; i < n; i++) {
			*wrong += shard_of(flow_of(frames[i])) != s;
			glue_frame_free(frames[i]);
		}
		total += n;
	}
	return total;
}

/* Every frame is back in its pool, also those that another shard has freed. */
static void pools_are_full(unsigned n_shards)
{
	for (unsigned s = 0; s < n_shards; s++)
		CHECK(glue_port_frames_free(ports[s]) ==
		      glue_port_frames(ports[s]));
}

/* Only shard 0 has a queue: the others receive and send by hand-over. */
static void hand_over_on(const char *link, unsigned tag_bytes)
{
	const unsigned n_shards = 4;
	unsigned sent = 0, got = 0, wrong = 0;
	uint64_t handed = 0, taken = 0, carried = 0;
	time_t until = deadline_s();

	open_ring_as(link, n_shards);
	CHECK(glue_port_queues(ports[3]) == 1);
	for (unsigned flow = 0; flow < FLOWS; flow++) {
		struct glue_port *port = ports[flow % n_shards];
		struct glue_frame *f = make_segment(port, flow, flow);

		CHECK(f);
		glue_tx(port, f);
		glue_tx_flush(port);
		sent++;
		got += take_all(n_shards, &wrong);
	}
	while (got < sent && !out_of_time(until))
		got += take_all(n_shards, &wrong);
	CHECK(got == sent && wrong == 0);
	for (unsigned s = 0; s < n_shards; s++) {
		struct glue_port_stats stats = stats_of(ports[s]);

		handed += stats.rx_handed_over;
		taken += stats.rx_taken_over;
		carried += stats.tx_carried;
		CHECK(stats.rx_hand_over_full == 0);
		CHECK(s == 0 ? stats.tx_carried : stats.tx_handed_over);
		CHECK(stats.rx_frames == FLOWS / n_shards);
		CHECK(stats.rx_bytes == stats.rx_frames * (LEN + tag_bytes));
		CHECK(stats.tx_bytes == FLOWS / n_shards * (LEN + tag_bytes));
		CHECK(stats.rx_other_vlan == 0 && stats.tx_dropped == 0);
	}
	CHECK(handed == taken && handed == sent * 3 / 4);
	CHECK(carried == sent * 3 / 4);
	pools_are_full(n_shards);
	for (unsigned s = 0; s < n_shards; s++)
		glue_port_close(ports[s]);
}

static void fewer_queues_than_shards(void)
{
	hand_over_on("ring:r0", 0);
}

/* The tag is added and removed, and does not change a frame's shard. */
static void fewer_queues_with_a_vlan(void)
{
	hand_over_on("ring:r0,vlan=7", 4);
}

/* A frame that has a tag besides the port's: not taken, and counted. */
static void double_tags(void)
{
	struct glue_frame *frames[GLUE_BURST], *f;

	open_ring_as("ring:r0,vlan=7", 1);
	glue_tx(ports[0], make_segment(ports[0], 0, 0));
	glue_tx_flush(ports[0]);
	CHECK(glue_rx(ports[0], frames, GLUE_BURST) == 1);
	CHECK(frames[0]->seg_len == LEN && flow_of(frames[0]) == 0);
	glue_frame_free(frames[0]);
	for (unsigned raw = 0; raw < 2; raw++) {
		f = make_segment(ports[0], 0, 0);
		memcpy(f->data + 12, "\201\0\0\7", 4);
		f->flags = 0;
		glue_tx(ports[0], f);
		glue_tx_flush(ports[0]);
		if (raw) { /* forwarders see it without the port's tag */
			CHECK(glue_rx_raw(ports[0], frames, GLUE_BURST) == 1);
			CHECK(frames[0]->seg_len == LEN);
			CHECK(get16(frames[0]->data + 12) == 0x8100);
			glue_frame_free(frames[0]);
		} else {
			CHECK(glue_rx(ports[0], frames, GLUE_BURST) == 0);
		}
	}
	CHECK(stats_of(ports[0]).rx_other_vlan == 1);
	CHECK(stats_of(ports[0]).rx_refused == 0);
	pools_are_full(1);
	glue_port_close(ports[0]);
}

static unsigned tx_room, tx_went[2]; /* by the shard that sent */

/* Sends frames whose flow is the number of their shard while there is room. */
static uint16_t slow_tx(void *queue, struct rte_mbuf **bufs, uint16_t n)
{
	uint16_t i = 0;

	(void)queue;
	for (; i < n && tx_room; i++, tx_room--) {
		tx_went[flow_of(frame_of(bufs[i]))]++;
		rte_pktmbuf_free(bufs[i]);
	}
	return i;
}

static void send_while_possible(unsigned shard)
{
	struct glue_frame *f;

	while ((f = make_segment(ports[shard], shard, 0)))
		glue_tx(ports[shard], f);
	glue_tx_flush(ports[shard]);
}

/* Two shards have more to send than their queue, which is shard 0's, takes. */
static void shards_share_a_slow_queue(void)
{
	const unsigned rounds = 2000;

	open_ring(2);
	rte_eth_fp_ops[ports[0]->id].tx_pkt_burst = slow_tx;
	for (unsigned i = 0; i < rounds; i++) {
		tx_room = 8;
		send_while_possible(1);
		glue_tx_carry(ports[0]);
		send_while_possible(0);
	}
	CHECK(tx_went[0] >= rounds && tx_went[1] >= rounds);
	tx_room = UINT32_MAX;
	while (ports[0]->n_pending || ports[1]->n_pending) {
		glue_tx_flush(ports[1]);
		glue_tx_carry(ports[0]);
		glue_tx_flush(ports[0]);
	}
	CHECK(ports[0]->n_carried == 0);
	CHECK(stats_of(ports[0]).tx_carried == tx_went[1]);
	CHECK(stats_of(ports[0]).tx_dropped == 0);
	pools_are_full(2);
	for (unsigned s = 0; s < 2; s++)
		glue_port_close(ports[s]);
}

static struct glue_frame *held[32768];
static unsigned n_held;

/* Every shard keeps its frames while frames are spare. */
static void hold_while_spare(unsigned n_shards)
{
	time_t until = deadline_s();
	unsigned spare = 1;

	for (unsigned flow = 0; spare && !out_of_time(until); flow++) {
		struct glue_frame *f =
			make_segment(ports[0], flow % FLOWS, flow);

		CHECK(f);
		glue_tx(ports[0], f);
		glue_tx_flush(ports[0]);
		for (unsigned s = 0; s < n_shards && spare; s++) {
			n_held += glue_rx(ports[s], held + n_held, GLUE_BURST);
			spare = glue_port_frames_spare(ports[s]);
		}
	}
	CHECK(spare == 0);
}

static void free_held(unsigned n)
{
	while (n)
		glue_frame_free(held[--n]);
	n_held = 0;
}

static void empty_pool(void)
{
	while ((held[n_held] = glue_tx_alloc(ports[0], LEN)))
		n_held++;
	CHECK(glue_port_frames_spare(ports[0]) == 0);
}

/*
 * Shard 0, whose queue is the only one, is in a long handler after it has found
 * its pool empty. Frames that return end the shortage for the others at once,
 * be they in the pool or in the cache of shard 0's thread.
 */
static void frames_return_while_the_shard_of_the_queue_is_busy(void)
{
	open_ring(2);
	CHECK(glue_port_frames_spare(ports[1]) > 1000);
	empty_pool();
	CHECK(glue_port_empty_pools(ports[1]));
	CHECK(glue_port_frames_spare(ports[1]) == 0);
	for (unsigned i = 0; i < GLUE_BURST; i++)
		glue_frame_free(held[--n_held]);
	CHECK(!glue_port_empty_pools(ports[1]));
	CHECK(glue_port_frames_spare(ports[1]) == 0);
	free_held(n_held);
	CHECK(glue_port_frames_spare(ports[1]) > 1000);
	pools_are_full(2);
	for (unsigned s = 0; s < 2; s++)
		glue_port_close(ports[s]);
}

/* A port that spreads all flows by our rule gives no shard another one's
 * frames. */
static void empty_pool_of_another_shard_is_its_own_concern(void)
{
	struct glue_device *device;

	open_ring(2);
	device = ports[0]->device;
	empty_pool();
	CHECK(glue_port_empty_pools(ports[1]));
	device->n_queues = 2;
	device->rss = true;
	CHECK(glue_port_empty_pools(ports[1])); /* some are handed over */
	device->rss_all = true;
	CHECK(!glue_port_empty_pools(ports[1]));
	CHECK(glue_port_frames_spare(ports[1]) > 0);
	CHECK(glue_port_empty_pools(ports[0]));
	CHECK(glue_port_frames_spare(ports[0]) == 0);
	device->rss = device->rss_all = false;
	device->n_queues = 1;
	free_held(n_held);
	CHECK(glue_port_frames_spare(ports[0]) > 0);
	pools_are_full(2);
	for (unsigned s = 0; s < 2; s++)
		glue_port_close(ports[s]);
}

/* The frames of all shards count, and enough remain for the only queue. */
static void shared_pool_keeps_frames_for_reception(void)
{
	const unsigned n_shards = 4;
	unsigned wrong = 0, n = 0;
	time_t until = deadline_s();

	open_ring(n_shards);
	CHECK(glue_port_frames_spare(ports[3]) > 1000);
	hold_while_spare(n_shards);
	CHECK(n_held > 3000);
	for (unsigned s = 0; s < n_shards; s++)
		CHECK(glue_port_frames_spare(ports[s]) == 0);
	CHECK(glue_port_frames_usable(ports[0]) > 2048);
	CHECK(!glue_port_empty_pools(ports[3]));
	while (take_all(n_shards, &wrong)) /* the last round's */
		;
	for (unsigned flow = 0; flow < FLOWS; flow++) {
		glue_tx(ports[0], make_segment(ports[0], flow, flow));
		glue_tx_flush(ports[0]);
		n += take_all(n_shards, &wrong);
	}
	while (n < FLOWS && !out_of_time(until))
		n += take_all(n_shards, &wrong);
	CHECK(n == FLOWS && wrong == 0);
	free_held(n_held);
	for (unsigned s = 0; s < n_shards; s++)
		CHECK(glue_port_frames_spare(ports[s]) > 1000);
	empty_pool();
	CHECK(glue_port_empty_pools(ports[3]));
	free_held(n_held);
	CHECK(glue_port_frames_spare(ports[0]) != 0);
	CHECK(!glue_port_empty_pools(ports[3]));
	pools_are_full(n_shards);
	for (unsigned s = 0; s < n_shards; s++)
		glue_port_close(ports[s]);
}

/*
 * One of four queues gets all frames, and three shards do not take theirs over:
 * once the pool is short, frames that wait for them leave the rest of it alone.
 */
static void full_rings_leave_frames_of_a_short_pool(void)
{
	const unsigned n_shards = 4;
	struct glue_device *device;
	struct glue_port_stats stats;
	unsigned usable, wrong = 0;

	open_ring(n_shards);
	device = ports[0]->device;
	hold_while_spare(n_shards);
	while (take_all(n_shards, &wrong)) /* the last round's */
		;
	while (glue_port_frames_spare(ports[0]))
		held[n_held++] = glue_tx_alloc(ports[0], LEN);
	device->n_queues = n_shards;
	usable = glue_port_frames_usable(ports[0]);
	for (unsigned i = 0; i < 4 * HAND_OVER; i++) {
		struct glue_frame *frames[GLUE_BURST];
		struct glue_frame *f = make_segment(ports[0], i % FLOWS, i);
		unsigned n;

		CHECK(f);
		glue_tx(ports[0], f);
		glue_tx_flush(ports[0]);
		n = glue_rx(ports[0], frames, GLUE_BURST);
		while (n)
			glue_frame_free(frames[--n]);
	}
	stats = stats_of(ports[0]);
	CHECK(stats.rx_hand_over_full > 0);
	CHECK(glue_port_frames_usable(ports[0]) + HAND_OVER >= usable);
	device->n_queues = 1;
	while (take_all(n_shards, &wrong))
		;
	CHECK(wrong == 0);
	free_held(n_held);
	pools_are_full(n_shards);
	for (unsigned s = 0; s < n_shards; s++)
		glue_port_close(ports[s]);
}

/* A shard that does not receive its frames loses them; no other shard does. */
static void full_ring(void)
{
	struct glue_frame *frames[GLUE_BURST];
	unsigned behind = 0, n = 0, flow_0 = 0, flow_1 = 0;
	struct glue_port_stats stats;

	open_ring(2);
	while (shard_of(flow_0) != 0)
		flow_0++;
	while (shard_of(flow_1) != 1)
		flow_1++;
	for (unsigned i = 0; i < 3000; i++) {
		glue_tx(ports[0], make_segment(ports[0], flow_1, i));
		glue_tx_flush(ports[0]);
		CHECK(glue_rx(ports[0], frames, GLUE_BURST) == 0);
	}
	stats = stats_of(ports[0]);
	CHECK(stats.rx_handed_over > 0 && stats.rx_hand_over_full > 0);
	CHECK(stats.rx_handed_over + stats.rx_hand_over_full == 3000);
	glue_tx(ports[0], make_segment(ports[0], flow_0, 0));
	glue_tx_flush(ports[0]);
	CHECK(glue_rx(ports[0], frames, GLUE_BURST) == 1);
	glue_frame_free(frames[0]);
	while ((n = glue_rx(ports[1], frames, GLUE_BURST)) > 0) {
		for (unsigned i = 0; i < n; i++) {
			CHECK(get32(frames[i]->data + 54) == behind);
			glue_frame_free(frames[i]);
			behind++;
		}
	}
	CHECK(behind == stats.rx_handed_over);
	pools_are_full(2);
	glue_port_close(ports[1]);
	glue_port_close(ports[0]);
}

static void lent_done(struct glue_lender *lender)
{
	(void)lender;
}

/*
 * The owner of lent memory is notified on its own thread, before others send.
 */
static void lent_memory_is_copied_for_others(void)
{
	static uint8_t lent[700];
	struct glue_lender lender = {.done = lent_done};
	struct glue_frame *frames[GLUE_BURST], *f;
	unsigned flow = 0;

	open_ring(2);
	CHECK(glue_port_lends(ports[1]));
	while (shard_of(flow) != 0)
		flow++;
	memset(lent, 7, sizeof(lent));
	f = make_segment(ports[1], flow, 0);
	put16(f->data + 16, LEN - 14 + sizeof(lent));
	CHECK(glue_tx_lend(ports[1], f, lent, sizeof(lent), &lender));
	glue_tx(ports[1], f);
	glue_tx_flush(ports[1]);
	CHECK(stats_of(ports[1]).tx_handed_over == 1);
	memset(lent, 8, sizeof(lent)); /* no frame refers to it any more */
	CHECK(glue_rx(ports[0], frames, GLUE_BURST) == 1);
	CHECK(frames[0]->next == NULL);
	CHECK(frames[0]->seg_len == LEN + sizeof(lent));
	CHECK(frames[0]->data[LEN] == 7);
	/* The receiver of a ring gets the frame itself. */
	CHECK(!glue_tx_again(ports[0], frames[0], LEN));
	glue_frame_free(frames[0]);
	pools_are_full(2);
	glue_port_close(ports[0]);
	glue_port_close(ports[1]);
}

/* After fork(), a copied page would be written where the card does not look. */
static void frames_are_not_in_children(void)
{
	struct glue_frame *f;
	uintptr_t page;
	int status;
	pid_t child;

	open_ring(1);
	f = make_segment(ports[0], 1, 1);
	page = (uintptr_t)f->data & ~(uintptr_t)4095;
	CHECK(msync((void *)page, 4096, MS_ASYNC) == 0);
	child = fork();
	if (child == 0)
		_exit(msync((void *)page, 4096, MS_ASYNC) < 0 ? errno : 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ENOMEM);
	glue_frame_free(f);
	glue_port_close(ports[0]);
}

static const unsigned (*closing_order)[3];

static void check_close(void)
{
	unsigned wrong = 0;

	open_ring(3);
	/* some stay in pending[], some in the device, some in the rings */
	for (unsigned flow = 0; flow < 60; flow++) {
		glue_tx(ports[flow % 3],
			make_segment(ports[flow % 3], flow, flow));
		if (flow % 20 == 10)
			glue_tx_flush(ports[flow % 3]);
		if (flow == 40)
			take_all(3, &wrong);
	}
	for (unsigned k = 0; k < 3; k++)
		glue_port_close(ports[(*closing_order)[k]]);
}

/* A shard without a queue resets its connections as it closes. */
static void last_frames(void)
{
	static const char header[24] = "\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0"
				       "\0\0\0\0\xff\xff\0\0\1\0\0";
	char dir[] = "/tmp/glue-shards.XXXXXX", in[64], out[64], link[160];
	struct stat written;
	FILE *file;

	CHECK(mkdtemp(dir));
	snprintf(in, sizeof(in), "%s/in", dir);
	snprintf(out, sizeof(out), "%s/out", dir);
	snprintf(link, sizeof(link), "pcap:%s,%s", in, out);
	file = fopen(in, "w");
	CHECK(file && fwrite(header, sizeof(header), 1, file) == 1);
	fclose(file);
	open_ring_as(link, 3);
	for (unsigned shard = 2; shard > 0; shard--) {
		glue_tx(ports[shard], make_segment(ports[shard], shard, 1));
		CHECK(glue_tx_flush(ports[shard]) == 1);
		CHECK(stats_of(ports[shard]).tx_handed_over == 1);
		glue_port_close(ports[shard]);
	}
	glue_port_close(ports[0]);
	CHECK(stat(out, &written) == 0);
	CHECK(written.st_size == (long)(sizeof(header) + 2 * (16 + LEN)));
	unlink(in);
	unlink(out);
	rmdir(dir);
}

static void bad_input(void)
{
	struct glue_port_conf conf = {.mtu = 1500, .shard = 2};
	struct glue_port *port;

	open_ring(2);
	CHECK(glue_port_open(0, &conf, &port, error, sizeof(error)) < 0);
	CHECK(strstr(error, "shard 2 of 2"));
	CHECK(glue_thread_enter(2, error, sizeof(error)) < 0);
	CHECK(strstr(error, "shard 2 of 2"));
	glue_port_close(ports[0]);
	glue_port_close(ports[1]);
}

/* Refused before EAL starts, with the number and the reason. */
static void assert_refused(struct glue_eal_conf conf, const char *reason)
{
	conf.links = links;
	conf.n_links = 1;
	conf.huge_off = true;
	conf.mtu = 1500;
	conf.mem_mib = 256;
	CHECK(glue_eal_start(&conf, error, sizeof(error)) == -EINVAL);
	if (!strstr(error, reason)) {
		fprintf(stderr, "'%s' has no '%s'\n", error, reason);
		exit(1);
	}
}

static void bad_lcores(void)
{
	int lcores[GLUE_MAX_SHARDS + 1] = {0};
	cpu_set_t set;

	CPU_ZERO(&set);
	CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
	while (!CPU_ISSET(lcores[0], &set))
		lcores[0]++;
	lcores[1] = lcores[0];
	CHECK(glue_link_parse("ring:r0", &links[0], error, sizeof(error)) == 0);
	assert_refused((struct glue_eal_conf){.lcores = lcores, .n_lcores = 2},
		       "is named twice");
	lcores[1] = CPU_SETSIZE;
	assert_refused((struct glue_eal_conf){.lcores = lcores, .n_lcores = 2},
		       "--lcore 1024: this process may not run on that CPU");
	assert_refused((struct glue_eal_conf){.lcores = lcores, .n_lcores = 65},
		       "65 shards; expected 1 to 64");
	assert_refused((struct glue_eal_conf){.lcores = lcores,
					      .n_lcores = 2,
					      .n_shards = 1},
		       "2 lcores for 1 shards");
	CHECK(glue_link_parse("memif:/tmp/none.sock,queues=3", &links[0], error,
			      sizeof(error)) == 0);
	assert_refused((struct glue_eal_conf){.lcore = -1, .n_shards = 2},
		       "queues=3 for only 2 shards");
	assert_refused((struct glue_eal_conf){.lcore = -1, .n_shards = 2},
		       "queues=3");
}

IN_CHILD(fewer_queues_than_shards)
IN_CHILD(fewer_queues_with_a_vlan)
IN_CHILD(shards_share_a_slow_queue)
IN_CHILD(double_tags)
IN_CHILD(frames_are_not_in_children)
IN_CHILD(shared_pool_keeps_frames_for_reception)
IN_CHILD(full_rings_leave_frames_of_a_short_pool)
IN_CHILD(frames_return_while_the_shard_of_the_queue_is_busy)
IN_CHILD(empty_pool_of_another_shard_is_its_own_concern)
IN_CHILD(full_ring)
IN_CHILD(lent_memory_is_copied_for_others)
IN_CHILD(last_frames)
IN_CHILD(bad_input)
IN_CHILD(bad_lcores)

static void test_ports_close_in_any_order(void **state)
{
	static const unsigned orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}};

	for (unsigned i = 0; i < 3; i++) {
		closing_order = &orders[i];
		in_child(check_close);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fewer_queues_than_shards),
		cmocka_unit_test(test_fewer_queues_with_a_vlan),
		cmocka_unit_test(test_shards_share_a_slow_queue),
		cmocka_unit_test(test_double_tags),
		cmocka_unit_test(test_shared_pool_keeps_frames_for_reception),
		cmocka_unit_test(test_full_rings_leave_frames_of_a_short_pool),
		cmocka_unit_test(
			test_frames_return_while_the_shard_of_the_queue_is_busy),
		cmocka_unit_test(
			test_empty_pool_of_another_shard_is_its_own_concern),
		cmocka_unit_test(test_frames_are_not_in_children),
		cmocka_unit_test(test_full_ring),
		cmocka_unit_test(test_lent_memory_is_copied_for_others),
		cmocka_unit_test(test_ports_close_in_any_order),
		cmocka_unit_test(test_last_frames),
		cmocka_unit_test(test_bad_input),
		cmocka_unit_test(test_bad_lcores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
