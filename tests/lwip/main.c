/*
 * Runs lwIP's own TCP tests, those of the fetched source, on the stock path
 * with coronet's options (lwipopts.h).
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "lwip/init.h"
#include "lwip/ip6_addr.h"
#include "lwip/memp.h"
#include "lwip/stats.h"

#include "tcp/test_tcp.h"
#include "tcp/test_tcp_oos.h"
#include "tcp/test_tcp_state.h"

uint32_t net_random(void)
{
	return (uint32_t)rand();
}

int net_nd_in_network(const ip6_addr_t *ip, const ip6_addr_t *own)
{
	return ip6_addr_net_eq(ip, own);
}

/* Required by lwIP's timers, which do not run here. */
uint32_t sys_now(void)
{
	return 0;
}

_Noreturn void net_lwip_assert(const char *message, const char *file, int line)
{
	fprintf(stderr, "lwIP: %s (%s:%d)\n", message, file, line);
	abort();
}

/* Called by the suites to build themselves. */
Suite *create_suite(const char *name, testfunc *tests, size_t num_tests,
		    SFun setup, SFun teardown)
{
	Suite *suite = suite_create(name);

	for (size_t i = 0; i < num_tests; i++) {
		TCase *tcase = tcase_create(name);

		tcase_add_checked_fixture(tcase, setup, teardown);
		tcase_add_named_test(tcase, tests[i]);
		suite_add_tcase(suite, tcase);
	}
	return suite;
}

/* Called by the suites to check for leaks; skip: one bit per pool. */
void lwip_check_ensure_no_alloc(unsigned int skip)
{
	if (!(skip & SKIP_HEAP))
		ck_assert_uint_eq(lwip_stats.mem.used, 0);
	for (unsigned i = 0; i < MEMP_MAX; i++)
		if (!(skip & 1u << i))
			ck_assert_uint_eq(lwip_stats.memp[i]->used, 0);
}

int main(void)
{
	SRunner *runner;
	int failed;

	lwip_init();
	runner = srunner_create(tcp_suite());
	srunner_add_suite(runner, tcp_oos_suite());
	srunner_add_suite(runner, tcp_state_suite());
	srunner_set_fork_status(runner, CK_FORK);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
