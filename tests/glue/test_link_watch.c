/*
 * A card's reset and its removal while the program runs. DPDK's calls for a
 * port are replaced, and a test calls what was registered for events.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ALLOW_EXPERIMENTAL_API
#include <rte_alarm.h>
#include <rte_dev.h>

#include "dpdk_glue/link_watch.h"

#define ALARMS	   4
#define OWN_MAC	   "\2\0\0\0\0\1"
#define OTHER_MAC  "\2\0\0\0\0\2"
#define CARD_QUEUE 1024
#define CARD_NODE  1

static struct glue_link wire;
static struct glue_device device;
static struct rte_mempool *pools[2];

/* The card, as its driver sees it. */
static struct {
	bool started, linked, removed;
	int reset_error, start_error;
	unsigned resets, queues, active_when_reset;
	int nodes[4], no_memory_on; /* NUMA nodes of the descriptors */
	const char *driver;
	uint8_t mac[6];
} card;

static rte_eth_dev_cb_fn on_eth[RTE_ETH_EVENT_MAX];
static rte_dev_event_cb_fn on_dev;
static void *dev_arg;

/* ---- alarms, which DPDK calls on its interrupt thread ---- */

static struct {
	rte_eal_alarm_callback call;
	void *arg;
} alarms[ALARMS];

int rte_eal_alarm_set(uint64_t us, rte_eal_alarm_callback call, void *arg)
{
	for (unsigned i = 0; i < ALARMS; i++)
		if (!alarms[i].call) {
			alarms[i].call = call;
			alarms[i].arg = arg;
			return 0;
		}
	fail_msg("too many alarms");
	return -ENOMEM;
}

int rte_eal_alarm_cancel(rte_eal_alarm_callback call, void *arg)
{
	int found = 0;

	for (unsigned i = 0; i < ALARMS; i++)
		if (alarms[i].call == call && alarms[i].arg == arg) {
			alarms[i].call = NULL;
			found++;
		}
	return found;
}

/* Calls what is due once. */
static void run_alarms(void)
{
	__typeof__(alarms[0]) due[ALARMS];

	memcpy(due, alarms, sizeof(due));
	memset(alarms, 0, sizeof(alarms));
	for (unsigned i = 0; i < ALARMS; i++)
		if (due[i].call)
			due[i].call(due[i].arg);
}

/* ---- the port ---- */

int rte_eth_dev_callback_register(uint16_t id, enum rte_eth_event_type event,
				  rte_eth_dev_cb_fn call, void *arg)
{
	assert_ptr_equal(arg, &device);
	on_eth[event] = call;
	return 0;
}

int rte_eth_dev_callback_unregister(uint16_t id, enum rte_eth_event_type event,
				    rte_eth_dev_cb_fn call, void *arg)
{
	assert_ptr_equal(on_eth[event], call);
	on_eth[event] = NULL;
	return 0;
}

int rte_dev_event_callback_register(const char *name, rte_dev_event_cb_fn call,
				    void *arg)
{
	on_dev = call;
	dev_arg = arg;
	return 0;
}

int rte_dev_event_callback_unregister(const char *name,
				      rte_dev_event_cb_fn call, void *arg)
{
	on_dev = NULL;
	return 0;
}

int rte_eth_dev_info_get(uint16_t id, struct rte_eth_dev_info *out)
{
	*out = (struct rte_eth_dev_info){
		.driver_name = card.driver,
		.max_rx_queues = 8,
		.max_tx_queues = 8,
		.max_mtu = 9000,
	};
	return 0;
}

int rte_eth_dev_reset(uint16_t id)
{
	card.resets++;
	card.active_when_reset += device.n_active;
	if (card.reset_error)
		return card.reset_error;
	card.started = false;
	card.queues = 0;
	memcpy(card.mac, OTHER_MAC, sizeof(card.mac));
	return 0;
}

int rte_eth_dev_configure(uint16_t id, uint16_t n_rx, uint16_t n_tx,
			  const struct rte_eth_conf *conf)
{
	assert_false(card.started);
	return 0;
}

int rte_eth_dev_adjust_nb_rx_tx_desc(uint16_t id, uint16_t *rx, uint16_t *tx)
{
	return 0;
}

int rte_eth_tx_queue_setup(uint16_t id, uint16_t queue, uint16_t n,
			   unsigned node, const struct rte_eth_txconf *conf)
{
	return (int)node == card.no_memory_on ? -ENOMEM : 0;
}

int rte_eth_rx_queue_setup(uint16_t id, uint16_t queue, uint16_t n,
			   unsigned node, const struct rte_eth_rxconf *conf,
			   struct rte_mempool *pool)
{
	assert_int_equal(n, CARD_QUEUE);
	assert_ptr_equal(pool, device.pools[queue]);
	card.nodes[card.queues++] = (int)node;
	return 0;
}

int rte_eth_dev_start(uint16_t id)
{
	if (card.start_error)
		return card.start_error;
	assert_int_equal(card.queues, device.n_queues);
	card.started = true;
	return 0;
}

int rte_eth_dev_stop(uint16_t id)
{
	assert_int_equal(device.n_active, 0);
	card.started = false;
	card.queues = 0;
	return 0;
}

int rte_eth_dev_close(uint16_t id)
{
	assert_false(card.started);
	return 0;
}

int rte_dev_remove(struct rte_device *dev)
{
	card.removed = true;
	return 0;
}

int rte_eth_allmulticast_enable(uint16_t id)
{
	return 0;
}

int rte_eth_macaddr_get(uint16_t id, struct rte_ether_addr *out)
{
	memcpy(out, card.mac, sizeof(card.mac));
	return 0;
}

int rte_eth_dev_default_mac_addr_set(uint16_t id, struct rte_ether_addr *addr)
{
	memcpy(card.mac, addr, sizeof(card.mac));
	return 0;
}

int rte_eth_link_get_nowait(uint16_t id, struct rte_eth_link *out)
{
	out->link_status = card.started && card.linked;
	out->link_speed = 1000;
	return 0;
}

/* ---- tests ---- */

/* A card that is up, with two queue pairs, on a NUMA node. */
static int open_card(void **state)
{
	memset(alarms, 0, sizeof(alarms));
	memset(&card, 0, sizeof(card));
	memcpy(card.mac, OWN_MAC, sizeof(card.mac));
	card.driver = "net_able";
	card.linked = true;
	card.no_memory_on = 99;
	memset(&wire, 0, sizeof(wire));
	wire.kind = GLUE_LINK_PCI;
	memset(&device, 0, sizeof(device));
	pthread_mutex_init(&device.port_lock, NULL);
	device.link = &wire;
	device.mtu = 1500;
	device.node = CARD_NODE;
	device.n_queues = device.n_shards = 2;
	device.n_ring = CARD_QUEUE;
	device.pools = pools;
	memcpy(device.mac, OWN_MAC, sizeof(device.mac));
	assert_int_equal(glue_port_setup(&device, NULL, 0), 0);
	device.n_active = device.n_queues;
	glue_link_watch(&device);
	assert_true(device.carrier);
	return 0;
}

static int close_card(void **state)
{
	glue_link_unwatch(&device);
	for (unsigned i = 0; i < ALARMS; i++)
		assert_null(alarms[i].call);
	return 0;
}

static void send_event(enum rte_eth_event_type event)
{
	assert_non_null(on_eth[event]);
	on_eth[event](device.id, event, &device, NULL);
}

static void test_reset_card_is_configured_and_polled_again(void **state)
{
	send_event(RTE_ETH_EVENT_INTR_RESET);
	assert_int_equal(card.resets, 0); /* not in DPDK's callback */
	run_alarms();
	assert_int_equal(card.resets, 1);
	assert_int_equal(card.active_when_reset, 0);
	assert_true(card.started);
	assert_int_equal(device.n_active, 2);
	run_alarms();
	assert_true(device.carrier);
	assert_int_equal(device.carrier_losses, 1);
}

static void test_reset_card_keeps_its_mac_address(void **state)
{
	send_event(RTE_ETH_EVENT_INTR_RESET);
	run_alarms();
	assert_memory_equal(card.mac, OWN_MAC, sizeof(card.mac));
}

static void test_card_without_a_reset_is_started_again(void **state)
{
	card.reset_error = -ENOTSUP;
	send_event(RTE_ETH_EVENT_INTR_RESET);
	run_alarms();
	assert_true(card.started);
	assert_int_equal(device.n_active, 2);
}

/* As long as its physical function is down. */
static void test_failed_reset_is_repeated(void **state)
{
	card.reset_error = -EAGAIN;
	send_event(RTE_ETH_EVENT_INTR_RESET);
	run_alarms();
	run_alarms();
	assert_int_equal(card.resets, 2);
	assert_int_equal(device.n_active, 0);
	assert_false(device.carrier);
	card.reset_error = 0;
	card.start_error = -EIO;
	run_alarms();
	assert_int_equal(device.n_active, 0);
	card.start_error = 0;
	run_alarms();
	run_alarms();
	assert_int_equal(card.resets, 4);
	assert_int_equal(device.n_active, 2);
	assert_true(device.carrier);
	assert_int_equal(device.carrier_losses, 1);
}

/* Loses the carrier, and gets it back. */
static void flap(void)
{
	card.linked = false;
	run_alarms();
	assert_false(device.carrier);
	card.linked = true;
	for (int i = 0; i < 3; i++)
		run_alarms();
	assert_true(device.carrier);
}

/* net_e1000_igb_vf does not report that its physical function was reset. */
static void test_hidden_reset_is_assumed_after_a_loss_of_carrier(void **state)
{
	card.driver = "net_e1000_igb_vf";
	flap();
	assert_int_equal(card.resets, 2);
	assert_int_equal(card.active_when_reset, 0);
	assert_int_equal(device.n_active, 2);
	assert_int_equal(device.carrier_losses, 1);
	flap();
	assert_int_equal(card.resets, 4);
}

static void
test_failed_restart_after_a_loss_of_carrier_is_repeated(void **state)
{
	card.driver = "net_e1000_igb_vf";
	card.start_error = -EIO;
	card.linked = false;
	run_alarms();
	card.linked = true;
	for (int i = 0; i < 4; i++)
		run_alarms();
	assert_false(device.carrier);
	assert_int_equal(device.n_active, 0);
	card.start_error = 0;
	for (int i = 0; i < 3; i++)
		run_alarms();
	assert_true(device.carrier);
	assert_int_equal(device.n_active, 2);
}

static void test_loss_of_carrier_alone_restarts_nothing(void **state)
{
	flap();
	assert_int_equal(card.resets, 0);
}

static void test_removed_card_is_released_once(void **state)
{
	on_dev("0000:00:04.0", RTE_DEV_EVENT_REMOVE, dev_arg);
	send_event(RTE_ETH_EVENT_INTR_RMV);
	send_event(RTE_ETH_EVENT_INTR_RESET);
	run_alarms();
	assert_true(card.removed && device.gone);
	assert_int_equal(device.n_active, 0);
	assert_false(device.carrier);
	assert_int_equal(device.carrier_losses, 1);
	assert_int_equal(card.resets, 0);
}

static void test_given_port_is_watched_for_removal(void **state)
{
	glue_link_unwatch(&device);
	wire.kind = GLUE_LINK_PORT;
	glue_link_watch(&device);
	assert_non_null(on_dev);
	on_dev("0000:00:04.0", RTE_DEV_EVENT_REMOVE, dev_arg);
	run_alarms();
	assert_true(card.removed);
}

static void test_descriptors_lie_on_the_card_s_node(void **state)
{
	assert_int_equal(card.nodes[0], CARD_NODE);
	assert_int_equal(card.nodes[1], CARD_NODE);
}

static void test_node_without_memory_is_replaced_by_any(void **state)
{
	card.no_memory_on = CARD_NODE;
	send_event(RTE_ETH_EVENT_INTR_RESET);
	run_alarms();
	assert_int_equal(card.nodes[0], SOCKET_ID_ANY);
	assert_int_equal(card.nodes[1], SOCKET_ID_ANY);
	assert_true(card.started);
}

int main(void)
{
#define ON_CARD(name)                                                          \
	cmocka_unit_test_setup_teardown(name, open_card, close_card)
	const struct CMUnitTest tests[] = {
		ON_CARD(test_reset_card_is_configured_and_polled_again),
		ON_CARD(test_reset_card_keeps_its_mac_address),
		ON_CARD(test_card_without_a_reset_is_started_again),
		ON_CARD(test_failed_reset_is_repeated),
		ON_CARD(test_hidden_reset_is_assumed_after_a_loss_of_carrier),
		ON_CARD(test_failed_restart_after_a_loss_of_carrier_is_repeated),
		ON_CARD(test_loss_of_carrier_alone_restarts_nothing),
		ON_CARD(test_removed_card_is_released_once),
		ON_CARD(test_given_port_is_watched_for_removal),
		ON_CARD(test_descriptors_lie_on_the_card_s_node),
		ON_CARD(test_node_without_memory_is_replaced_by_any),
	};

	if (glue_sync_start() < 0)
		return 77; /* no membarrier(2): nothing is ever reset */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
