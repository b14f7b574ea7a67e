/*
 * What a port is asked for, by what its driver reports: queue pairs, checksums,
 * TSO and RSS. DPDK's calls for a port are replaced.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <rte_version.h>

#include "dpdk_glue/flow.h"
#include "dpdk_glue/port_priv.h"

static struct rte_eth_dev_info info;
static struct glue_link wire;
static struct glue_device device;
static char error[256];

#define LARGEST_TABLE 2048 /* entries: E810 and ConnectX cards */

/* A driver's table and key; what it does with those that it gets. */
static struct rte_eth_rss_reta_entry64 table[LARGEST_TABLE / 64];
static uint8_t port_key[GLUE_RSS_KEY_MAX];
static int key_error;
static bool keeps_table;

int rte_eth_dev_info_get(uint16_t id, struct rte_eth_dev_info *out)
{
	*out = info;
	return 0;
}

int rte_eth_dev_rss_reta_update(uint16_t id,
				struct rte_eth_rss_reta_entry64 *reta,
				uint16_t size)
{
	assert_int_equal(size, info.reta_size);
	if (!keeps_table)
		memcpy(table, reta, size / 64 * sizeof(*reta));
	return 0;
}

int rte_eth_dev_rss_reta_query(uint16_t id,
			       struct rte_eth_rss_reta_entry64 *reta,
			       uint16_t size)
{
	memcpy(reta, table, size / 64 * sizeof(*reta));
	return 0;
}

int rte_eth_dev_rss_hash_conf_get(uint16_t id, struct rte_eth_rss_conf *conf)
{
	memcpy(conf->rss_key, port_key, conf->rss_key_len);
	return key_error;
}

/* A card that can do everything, with two queue pairs for two shards. */
static int make_port(void **state)
{
	memset(&info, 0, sizeof(info));
	info.driver_name = "net_able";
	info.max_rx_queues = 8;
	info.max_tx_queues = 8;
	info.max_mtu = 9000;
	info.tx_offload_capa = UINT64_MAX;
	info.rx_offload_capa = UINT64_MAX;
	info.flow_type_rss_offloads = UINT64_MAX;
	info.reta_size = 128;
	info.hash_key_size = 40;
	memset(&wire, 0, sizeof(wire));
	wire.kind = GLUE_LINK_PCI;
	memset(&device, 0, sizeof(device));
	device.link = &wire;
	device.mtu = 1500;
	device.n_queues = 2;
	device.n_shards = 2;
	key_error = 0;
	keeps_table = false;
	memset(table, 0, sizeof(table));
	glue_flow_key(port_key, sizeof(port_key));
	glue_flow_start(2);
	return 0;
}

/* ---- queues ---- */

static void test_queues_are_limited_by_both_directions(void **state)
{
	assert_int_equal(glue_usable_queues(&info, 3), 3);
	info.max_tx_queues = 2;
	assert_int_equal(glue_usable_queues(&info, 3), 2);
	info.max_rx_queues = 1;
	assert_int_equal(glue_usable_queues(&info, 3), 1);
	info.max_rx_queues = 0;
	assert_int_equal(glue_usable_queues(&info, 3), 1);
}

static void test_em_has_one_queue(void **state)
{
	info.driver_name = "net_e1000_em";
	assert_int_equal(glue_usable_queues(&info, 3), 1);
	info.driver_name = "net_e1000_igb";
	assert_int_equal(glue_usable_queues(&info, 3), 3);
}

static void test_queues_of_vmxnet3_are_a_power_of_two(void **state)
{
	info.driver_name = "net_vmxnet3";
	assert_int_equal(glue_usable_queues(&info, 3), 2);
	assert_int_equal(glue_usable_queues(&info, 4), 4);
	assert_int_equal(glue_usable_queues(&info, 64), 8);
}

/* ---- checksums and TSO ---- */

static int choose_offloads(void)
{
	return glue_choose_offloads(&device, &info, error, sizeof(error));
}

static void test_able_card_does_sums_and_segments(void **state)
{
	assert_int_equal(choose_offloads(), 0);
	assert_true(device.hw_csum && device.hw_ip4_csum);
	assert_true(device.tso && device.tso6);
}

static void test_missing_header_sum_is_left_to_software(void **state)
{
	info.tx_offload_capa &= ~RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
	assert_int_equal(choose_offloads(), 0);
	assert_true(device.hw_csum && device.tso);
	assert_false(device.hw_ip4_csum);
}

static void test_virtual_link_sums_in_software_by_default(void **state)
{
	wire.kind = GLUE_LINK_VHOST;
	assert_int_equal(choose_offloads(), 0);
	assert_false(device.hw_csum || device.tso);
	wire.csum = GLUE_CSUM_HW;
	assert_int_equal(choose_offloads(), 0);
	assert_true(device.hw_csum);
}

static void test_what_the_card_lacks_is_refused_by_name(void **state)
{
	info.tx_offload_capa &= ~RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	wire.csum = GLUE_CSUM_HW;
	assert_int_equal(choose_offloads(), -EINVAL);
	assert_non_null(strstr(error, "csum=hw: this port (driver net_able)"));
	wire.csum = GLUE_CSUM_AUTO;
	wire.tso = GLUE_TSO_ON;
	info.tx_offload_capa &= ~RTE_ETH_TX_OFFLOAD_TCP_TSO;
	assert_int_equal(choose_offloads(), -EINVAL);
	assert_non_null(strstr(error, "tso=on: the port does not cut"));
}

static void test_virtio_cuts_segments_only_on_request(void **state)
{
	info.driver_name = "net_virtio";
	assert_int_equal(choose_offloads(), 0);
	assert_false(device.tso);
	wire.tso = GLUE_TSO_ON;
	assert_int_equal(choose_offloads(), 0);
	assert_true(device.tso);
}

/* ---- RSS ---- */

static struct rte_eth_conf conf;
static uint8_t key[GLUE_RSS_KEY_MAX];

static const char *ask_for_rss(void)
{
	memset(&conf, 0, sizeof(conf));
	return glue_ask_for_rss(&device, &info, &conf, key);
}

static void test_able_card_spreads_flows_by_our_rule(void **state)
{
	const struct rte_eth_rss_conf *rss = &conf.rx_adv_conf.rss_conf;

	assert_null(ask_for_rss());
	assert_int_equal(conf.rxmode.mq_mode, RTE_ETH_MQ_RX_RSS);
	assert_int_equal(rss->rss_key_len, 40);
	assert_true(rss->rss_hf & RTE_ETH_RSS_NONFRAG_IPV6_TCP);
	assert_false(rss->rss_hf & RTE_ETH_RSS_IPV4);
	assert_null(glue_set_rss(&device, &conf));
	for (unsigned i = 0; i < info.reta_size; i++)
		assert_int_equal(table[i / 64].reta[i % 64],
				 glue_flow_rule.reta[i]);
}

/* Frames of the flows that it cannot hash are handed over. */
static void test_card_without_a_hash_of_udp_spreads_tcp_alone(void **state)
{
	assert_null(ask_for_rss());
	assert_true(glue_rss_is_for_all(&conf));
	info.flow_type_rss_offloads &= ~RTE_ETH_RSS_NONFRAG_IPV6_UDP;
	assert_null(ask_for_rss());
	assert_false(glue_rss_is_for_all(&conf));
}

/* Smaller and larger tables than ours begin with, or repeat, its entries. */
static void test_table_of_each_size_is_filled(void **state)
{
	glue_flow_start(3);
	device.n_queues = 3;
	device.n_shards = 3;
	for (unsigned size = 64; size <= LARGEST_TABLE; size *= 2) {
		memset(table, 0xff, sizeof(table));
		info.reta_size = (uint16_t)size;
		assert_null(ask_for_rss());
		assert_null(glue_set_rss(&device, &conf));
		for (unsigned i = 0; i < size; i++)
			assert_int_equal(
				table[i / 64].reta[i % 64],
				glue_flow_rule.reta[i % GLUE_RETA_SIZE]);
	}
}

static void test_longer_key_is_filled(void **state)
{
	info.hash_key_size = 52;
	assert_null(ask_for_rss());
	assert_int_equal(conf.rx_adv_conf.rss_conf.rss_key_len, 52);
	assert_null(glue_set_rss(&device, &conf));
}

static void test_missing_part_of_rss_is_named(void **state)
{
	device.n_queues = 1;
	assert_non_null(strstr(ask_for_rss(), "one queue pair"));
	device.n_queues = 2;
	info.reta_size = 0;
	assert_non_null(strstr(ask_for_rss(), "no redirection table"));
	info.reta_size = 128;
	info.flow_type_rss_offloads = RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_IPV6;
	assert_non_null(strstr(ask_for_rss(), "no hash of TCP"));
	assert_int_equal(conf.rxmode.mq_mode, RTE_ETH_MQ_RX_NONE);
}

/* DPDK 23.11 and later refuse a key of another length than the driver's. */
static void test_driver_without_a_key_length(void **state)
{
	info.hash_key_size = 0;
#if RTE_VERSION < RTE_VERSION_NUM(23, 11, 0, 0)
	assert_null(ask_for_rss());
	assert_int_equal(conf.rx_adv_conf.rss_conf.rss_key_len, 40);
#else
	assert_non_null(strstr(ask_for_rss(), "no key"));
#endif
}

static void test_refused_part_of_rss_is_named(void **state)
{
	assert_null(ask_for_rss());
	keeps_table = true;
	assert_non_null(strstr(glue_set_rss(&device, &conf), "table"));
	keeps_table = false;
	port_key[39] ^= 1;
	assert_non_null(strstr(glue_set_rss(&device, &conf), "key"));
}

/* Its driver has no table before it is configured, and reports no key. */
static void test_vmxnet3_spreads_flows(void **state)
{
	info.driver_name = "net_vmxnet3";
	info.reta_size = 0;
	assert_null(ask_for_rss());
	info.reta_size = 64;
	memset(port_key, 0, sizeof(port_key));
	key_error = -ENOTSUP;
	assert_null(glue_set_rss(&device, &conf));
	key_error = -EIO;
	assert_non_null(strstr(glue_set_rss(&device, &conf), "key"));
}

int main(void)
{
#define ON_PORT(name) cmocka_unit_test_setup(name, make_port)
	const struct CMUnitTest tests[] = {
		ON_PORT(test_queues_are_limited_by_both_directions),
		ON_PORT(test_em_has_one_queue),
		ON_PORT(test_queues_of_vmxnet3_are_a_power_of_two),
		ON_PORT(test_able_card_does_sums_and_segments),
		ON_PORT(test_missing_header_sum_is_left_to_software),
		ON_PORT(test_virtual_link_sums_in_software_by_default),
		ON_PORT(test_what_the_card_lacks_is_refused_by_name),
		ON_PORT(test_virtio_cuts_segments_only_on_request),
		ON_PORT(test_able_card_spreads_flows_by_our_rule),
		ON_PORT(test_card_without_a_hash_of_udp_spreads_tcp_alone),
		ON_PORT(test_table_of_each_size_is_filled),
		ON_PORT(test_longer_key_is_filled),
		ON_PORT(test_missing_part_of_rss_is_named),
		ON_PORT(test_driver_without_a_key_length),
		ON_PORT(test_refused_part_of_rss_is_named),
		ON_PORT(test_vmxnet3_spreads_flows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
