/*
 * The NUMA node of a port that DPDK was given. Its calls are replaced.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ALLOW_EXPERIMENTAL_API
#include <rte_bus.h>
#include <rte_dev.h>

#include "dpdk_glue/port_priv.h"

static const char *bus;
static int card;	 /* stands for a struct rte_device */
static int node_of_dpdk; /* what DPDK reports */

int rte_eth_dev_get_port_by_name(const char *name, uint16_t *id)
{
	*id = 3;
	return strcmp(name, "0000:00:04.0") == 0 ? 0 : -1;
}

int rte_eth_dev_info_get(uint16_t id, struct rte_eth_dev_info *out)
{
	memset(out, 0, sizeof(*out));
	out->device = (struct rte_device *)&card;
	return 0;
}

const struct rte_bus *rte_dev_bus(const struct rte_device *device)
{
	return (const struct rte_bus *)device;
}

const char *rte_bus_name(const struct rte_bus *of)
{
	assert_ptr_equal(of, &card);
	return bus;
}

int rte_eth_dev_socket_id(uint16_t id)
{
	assert_int_equal(id, 3);
	return node_of_dpdk;
}

static int node_of(const char *name)
{
	struct glue_link link = {.kind = GLUE_LINK_PORT};

	strcpy(link.name, name);
	return glue_node_of_card(&link);
}

static void test_given_card_is_on_the_node_that_dpdk_reports(void **state)
{
	bus = "pci";
	node_of_dpdk = 1;
	assert_int_equal(node_of("0000:00:04.0"), 1);
	bus = "vmbus";
	node_of_dpdk = -1;
	assert_int_equal(node_of("0000:00:04.0"), -1);
}

static void test_virtual_device_is_on_no_node(void **state)
{
	bus = "vdev";
	node_of_dpdk = 1;
	assert_int_equal(node_of("0000:00:04.0"), -1);
}

static void test_unknown_port_is_on_no_node(void **state)
{
	bus = "pci";
	node_of_dpdk = 1;
	assert_int_equal(node_of("net_none"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_given_card_is_on_the_node_that_dpdk_reports),
		cmocka_unit_test(test_virtual_device_is_on_no_node),
		cmocka_unit_test(test_unknown_port_is_on_no_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
