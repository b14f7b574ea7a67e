/*
 * Network cards as sysfs shows them: each test makes a folder with the files of
 * a machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpdk_glue/glue_priv.h"
#include "dpdk_glue/pci.h"

#define CARD   "0000:03:00.0"
#define OTHER  "0000:03:00.1"
#define NEEDED 4 /* MiB of locked memory, which any user may lock */

static char root[] = "/tmp/coronet-pci-XXXXXX";
static char text[512];

/* A shell command in the folder; the test fails if it does. */
static void run_shell(const char *command)
{
	char line[1024];

	snprintf(line, sizeof(line), "cd %s && %s", root, command);
	assert_int_equal(system(line), 0);
}

/* A card of Intel's in group 7, on a machine with an IOMMU. */
static int make_card(void **state)
{
	strcpy(root, "/tmp/coronet-pci-XXXXXX");
	assert_non_null(mkdtemp(root));
	run_shell("mkdir -p sys/bus/pci/devices/" CARD
		  " sys/bus/pci/devices/" OTHER
		  " sys/bus/pci/drivers/vfio-pci sys/bus/pci/drivers/e1000e"
		  " sys/bus/pci/drivers/mlx5_core "
		  "sys/bus/pci/drivers/uio_pci_generic"
		  " sys/kernel/iommu_groups/7/devices dev/vfio");
	run_shell("cd sys/bus/pci/devices && for card in " CARD " " OTHER "; do"
		  " echo 0x020000 >$card/class; echo 0x8086 >$card/vendor;"
		  " echo 0x10d3 >$card/device;"
		  " ln -s ../../../../kernel/iommu_groups/7 $card/iommu_group;"
		  " done");
	run_shell("ln -s x sys/kernel/iommu_groups/7/devices/" CARD);
	run_shell(": >dev/vfio/vfio; : >dev/vfio/7");
	return 0;
}

static int remove_card(void **state)
{
	char line[64];

	snprintf(line, sizeof(line), "rm -rf %s", root);
	return system(line);
}

static void bind_driver(const char *card, const char *driver)
{
	char line[256];

	snprintf(line, sizeof(line),
		 "ln -sfn ../../../drivers/%s sys/bus/pci/devices/%s/driver",
		 driver, card);
	run_shell(line);
}

static void is_taken(void)
{
	assert_int_equal(glue_pci_check(root, CARD, NEEDED, text, sizeof(text)),
			 0);
}

static void is_refused(int code, const char *word, const char *remedy)
{
	assert_int_equal(glue_pci_check(root, CARD, NEEDED, text, sizeof(text)),
			 code);
	if (!strstr(text, word) || !strstr(text, remedy) ||
	    !strstr(text, "link pci:" CARD ": "))
		fail_msg("expected '%s' and '%s' in: %s", word, remedy, text);
}

/* Checks that the output of glue_port_list() has a text. */
static void list_has(const char *wanted)
{
	char *written = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&written, &len);

	assert_non_null(out);
	assert_int_equal(glue_port_list(root, out), 0);
	fclose(out);
	if (!strstr(written, wanted))
		fail_msg("expected '%s' in: %s", wanted, written);
	free(written);
}

static void test_card_with_vfio_is_accepted(void **state)
{
	bind_driver(CARD, "vfio-pci");
	is_taken();
}

static void test_missing_card_is_refused(void **state)
{
	run_shell("rm -r sys/bus/pci/devices/" CARD);
	is_refused(-ENODEV, "no PCI device", "dpdk-devbind.py --status-dev");
}

static void test_card_of_a_kernel_driver_is_refused(void **state)
{
	bind_driver(CARD, "e1000e");
	run_shell("mkdir -p sys/bus/pci/devices/" CARD "/net/enp3s0");
	is_refused(-EBUSY, "driver e1000e has the card as interface enp3s0",
		   "dpdk-devbind.py --bind=vfio-pci " CARD);
	run_shell(
		"mv sys/bus/pci/devices/" CARD "/net sys/bus/pci/devices/" CARD
		"/virtio3 && mkdir sys/bus/pci/devices/" CARD "/virtio3/net &&"
		" mv sys/bus/pci/devices/" CARD "/virtio3/enp3s0"
		" sys/bus/pci/devices/" CARD "/virtio3/net");
	is_refused(-EBUSY, "as interface enp3s0", "--bind=vfio-pci");
}

static void test_card_without_a_driver_is_refused(void **state)
{
	is_refused(-ENODEV, "no driver has the card",
		   "dpdk-devbind.py --bind=vfio-pci " CARD);
	run_shell("rm -r sys/kernel/iommu_groups/*");
	is_refused(-ENODEV, "needs an IOMMU", "intel_iommu=on");
	is_refused(-ENODEV, "can write to any memory",
		   "--bind=uio_pci_generic " CARD);
}

/* UIO would let a second process reset the card. */
static void test_card_of_uio_in_use_is_refused(void **state)
{
	bind_driver(CARD, "uio_pci_generic");
	run_shell("mkdir -p sys/bus/pci/devices/" CARD "/uio/uio3 proc/12/fd "
		  "proc/4711/fd proc/self && ln -s /dev/uio2 proc/12/fd/9 && "
		  ": >dev/uio3");
	if (geteuid() == 0)
		is_taken();
	run_shell("ln -s /dev/uio3 proc/4711/fd/9");
	is_refused(-EBUSY, "another process has the card",
		   "process 4711 has /dev/uio3 open");
	list_has(CARD " 0x8086:0x10d3, driver uio_pci_generic\n"
		      "    another process has the card");
}

static int claim_card(void)
{
	return glue_pci_claim(root, CARD, text, sizeof(text));
}

static void test_card_of_uio_is_claimed_by_one_process(void **state)
{
	char path[128];
	int other;

	bind_driver(CARD, "uio_pci_generic");
	run_shell("mkdir -p sys/bus/pci/devices/" CARD "/uio/uio3 && "
		  ": >dev/uio3");
	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/" CARD, root);
	other = open(path, O_RDONLY | O_DIRECTORY);
	assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(claim_card(), -EBUSY);
	assert_non_null(strstr(text, "another process has the card"));
	if (geteuid() == 0) /* users learn first that they may not use it */
		list_has("    another process has the card");
	bind_driver(CARD, "vfio-pci"); /* which excludes others itself */
	assert_int_equal(claim_card(), 0);
	bind_driver(CARD, "uio_pci_generic");
	flock(other, LOCK_UN);
	assert_int_equal(claim_card(), 0);
	assert_int_equal(claim_card(), 0);
	assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
	glue_pci_release();
	assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
	close(other);
}

static void test_other_dpdk_drivers_are_accepted(void **state)
{
	bind_driver(CARD, "mlx5_core");
	is_taken();
	bind_driver(CARD, "uio_pci_generic");
	is_taken();
}

static void test_card_is_refused_while_its_iommu_group_is_in_use(void **state)
{
	bind_driver(CARD, "vfio-pci");
	run_shell("ln -s x sys/kernel/iommu_groups/7/devices/" OTHER);
	is_taken(); /* nobody has the other one */
	bind_driver(OTHER, "vfio-pci");
	is_taken();
	bind_driver(OTHER, "e1000e");
	is_refused(-EBUSY, OTHER " is in the same IOMMU group (7)",
		   "bind both to vfio-pci");
	run_shell("echo 0x060400 >sys/bus/pci/devices/" OTHER
		  "/class"); /* a bridge */
	is_taken();
}

/*
 * Checks the error for an unprivileged user's process with this limit of locked
 * memory.
 */
static void check_as_user(rlim_t locked, int code, const char *word,
			  const char *remedy)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct rlimit limit = {locked, locked};

		if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
			_exit(2);
		setrlimit(RLIMIT_MEMLOCK, &limit);
		if (glue_pci_check(root, CARD, NEEDED, text, sizeof(text)) ==
		    code)
			_exit(code < 0 &&
			      (!strstr(text, word) || !strstr(text, remedy)));
		_exit(3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_user_without_vfio_files_is_refused(void **state)
{
	bind_driver(CARD, "vfio-pci");
	run_shell("chmod 755 . && chmod 000 dev/vfio/7 && chmod 666 "
		  "dev/vfio/vfio");
	check_as_user(NEEDED << 20, -EACCES, "may not open", "docs/deploy.md");
	run_shell("chmod 666 dev/vfio/7");
	check_as_user(NEEDED << 20, 0, "", "");
	run_shell("rm dev/vfio/7");
	check_as_user(NEEDED << 20, -ENOENT, "dev/vfio/7", "No such file");
}

static void test_user_without_roots_rights_is_refused_by_uio(void **state)
{
	bind_driver(CARD, "uio_pci_generic");
	run_shell("chmod 755 . && mkdir -p sys/bus/pci/devices/" CARD
		  "/uio/uio3 && : >dev/uio3 && chmod 000 dev/uio3");
	check_as_user(0, -EACCES, "may not open", "dev/uio3 (owner ");
	run_shell("chmod 666 dev/uio3");
	check_as_user(0, -EPERM, "physical addresses", "run as root");
	run_shell("rm dev/uio3");
	check_as_user(0, -ENOENT, "dev/uio3", "No such file");
}

static void test_user_without_locked_memory_is_refused(void **state)
{
	bind_driver(CARD, "vfio-pci");
	run_shell("chmod 755 . && chmod 666 dev/vfio/*");
	check_as_user(NEEDED << 20, 0, "", "");
	check_as_user((NEEDED << 20) - 4096, -ENOMEM,
		      "needs 4 MiB of locked memory, and this process may lock "
		      "4092 KiB",
		      "LimitMEMLOCK");
	run_shell("mv dev/vfio/7 dev/vfio/noiommu-7"); /* locks nothing */
	check_as_user(64 << 10, 0, "", "");
}

static void test_missing_dpdk_port_is_explained(void **state)
{
	glue_pci_explain(root, CARD, "", text, sizeof(text));
	assert_non_null(strstr(text, "0x8086:0x10d3"));
	assert_non_null(strstr(text, "librte-net-*: e1000, "));
	glue_pci_explain(root, CARD, "EAL: it is on fire", text, sizeof(text));
	assert_non_null(strstr(text, "could not use it: EAL: it is on fire"));
}

/* A user's limit is often 8 MiB, and the list then says so. */
static bool may_lock_64_mib(void)
{
	struct rlimit limit;

	return geteuid() == 0 || (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
				  limit.rlim_cur >= 64 << 20);
}

static void test_cards_and_interfaces_are_listed(void **state)
{
	bind_driver(OTHER, "vfio-pci");
	bind_driver(CARD, "e1000e");
	run_shell("rm sys/kernel/iommu_groups/7/devices/" CARD " &&"
		  " echo 1 >sys/bus/pci/devices/" OTHER "/numa_node");
	run_shell("mkdir -p sys/bus/pci/devices/" CARD "/net/enp3s0"
		  " sys/class/net/enp3s0/queues/rx-0 "
		  "sys/class/net/enp3s0/queues/rx-1"
		  " sys/class/net/enp3s0/queues/tx-0 sys/class/net/veth0"
		  " sys/class/net/lo");
	run_shell("cd sys/class/net/enp3s0 && echo 1 >carrier && echo 25000 "
		  ">speed");
	run_shell("echo 0 >sys/class/net/veth0/carrier");
	list_has(CARD " 0x8086:0x10d3, driver e1000e\n"
		      "    the kernel's driver e1000e has the card");
	list_has("  interface enp3s0, link up, 25000 Mbit/s, 2 receive queues\n"
		 "    --link af_packet:enp3s0 or --link af_xdp:enp3s0");
	list_has(OTHER " 0x8086:0x10d3, driver vfio-pci, NUMA node 1\n");
	list_has(may_lock_64_mib() ? "    --link pci:" OTHER "\n"
				   : "    the card needs 64 MiB of locked");
	list_has("\ninterface veth0, link down\n"
		 "    --link af_packet:veth0");
	run_shell("rm -r sys/bus/pci/devices/*");
	list_has("no network card on the PCI bus\n");
	list_has("--link memif:");
}

/* An abort() inside DPDK prints its log, which is captured until then. */
static void test_an_abort_shows_the_last_lines(void **state)
{
	struct glue_captured log;
	int ends[2], status;
	pid_t pid;
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		dup2(ends[1], STDERR_FILENO);
		glue_capture_start(&log);
		fprintf(stderr, "EAL: the same bus twice\n");
		abort();
	}
	close(ends[1]);
	n = read(ends[0], text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	while (n > 0 && (size_t)n < sizeof(text) - 1) {
		ssize_t more =
			read(ends[0], text + n, sizeof(text) - 1 - (size_t)n);

		if (more <= 0)
			break;
		n += more;
		text[n] = '\0';
	}
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(text, "EAL: the same bus twice"));
}

int main(void)
{
#define ON_CARD(name)                                                          \
	cmocka_unit_test_setup_teardown(name, make_card, remove_card)
	const struct CMUnitTest tests[] = {
		ON_CARD(test_card_with_vfio_is_accepted),
		ON_CARD(test_missing_card_is_refused),
		ON_CARD(test_card_of_a_kernel_driver_is_refused),
		ON_CARD(test_card_without_a_driver_is_refused),
		ON_CARD(test_other_dpdk_drivers_are_accepted),
		ON_CARD(test_card_of_uio_in_use_is_refused),
		ON_CARD(test_card_of_uio_is_claimed_by_one_process),
		ON_CARD(test_card_is_refused_while_its_iommu_group_is_in_use),
		ON_CARD(test_user_without_vfio_files_is_refused),
		ON_CARD(test_user_without_roots_rights_is_refused_by_uio),
		ON_CARD(test_user_without_locked_memory_is_refused),
		ON_CARD(test_missing_dpdk_port_is_explained),
		ON_CARD(test_cards_and_interfaces_are_listed),
		cmocka_unit_test(test_an_abort_shows_the_last_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
