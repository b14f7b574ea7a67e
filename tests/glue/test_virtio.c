/* What the log of net_virtio shows of the rings that it drives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dpdk_glue/virtio.h"

#define NEGOTIATED(bits)                                                       \
	"virtio_ethdev_negotiate_features(): host_features before negotiate "  \
	"= 130ffffa7\n"                                                        \
	"virtio_ethdev_negotiate_features(): features after negotiate = " bits \
	"\n"
#define PACKED                                                                 \
	"set_rxtx_funcs(): virtio: using packed ring standard Tx path on "     \
	"port "                                                                \
	"0\n"
#define SPLIT "set_rxtx_funcs(): virtio: using standard Tx path on port 0\n"

static void test_packed_ring_with_indirect_descriptors_stalls(void **state)
{
	assert_true(glue_virtio_stalls(NEGOTIATED("510ef8020") PACKED));
	assert_true(glue_virtio_stalls(PACKED)); /* most hosts offer them */
}

static void test_packed_ring_without_indirect_descriptors_works(void **state)
{
	assert_false(glue_virtio_stalls(NEGOTIATED("500ef8020") PACKED));
}

static void test_the_last_negotiation_counts(void **state)
{
	assert_false(glue_virtio_stalls(
		NEGOTIATED("510ef8020") NEGOTIATED("500ef8020") PACKED));
	assert_true(glue_virtio_stalls(NEGOTIATED("500ef8020")
					       NEGOTIATED("510ef8020") PACKED));
}

static void test_split_rings_and_other_drivers_work(void **state)
{
	assert_false(glue_virtio_stalls(NEGOTIATED("110ef8020") SPLIT));
	assert_false(glue_virtio_stalls("eth_em_start(): link up\n"));
	assert_false(glue_virtio_stalls(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_packed_ring_with_indirect_descriptors_stalls),
		cmocka_unit_test(
			test_packed_ring_without_indirect_descriptors_works),
		cmocka_unit_test(test_the_last_negotiation_counts),
		cmocka_unit_test(test_split_rings_and_other_drivers_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
