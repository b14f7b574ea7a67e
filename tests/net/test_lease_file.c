/*
 * Lease files: the line that is written, files that are refused, and writes
 * that have to wait.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/link/lease_file.h"
#include "tests/apps/in_folder.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#include <coronet/coro_io.h>

static const uint8_t mac[6] = {2, 0, 0, 0, 0xab, 9};

static int setup(void **state)
{
	return in_folder_make();
}

static int teardown(void **state)
{
	return in_folder_remove();
}

/* What the file of the first link has; an error of net_lease_file_read(). */
static int read_back(struct net_lease_record *out)
{
	struct net_lease_file *file;
	int err;

	assert_int_equal(net_lease_file_open(folder, 0, &file), 0);
	err = net_lease_file_read(file, mac, out);
	net_lease_file_close(file);
	return err;
}

static void test_line_is_read_as_it_was_written(void **state)
{
	static const char line[] = "coronet-lease 1 mac=02:00:00:00:ab:09 "
				   "address=10.9.0.40 expires=4102444800\n";
	struct net_lease_record record = {0};
	char text[NET_LEASE_TEXT_MAX];

	write_file("dhcp-1.lease", line);
	assert_int_equal(read_back(&record), 0);
	assert_memory_equal(record.mac, mac, 6);
	assert_memory_equal(&record.ip, "\12\11\0\50", 4);
	assert_true(record.expires_s == 4102444800);
	assert_int_equal(net_lease_format(&record, text), sizeof(line) - 1);
	assert_string_equal(text, line);
}

static void test_other_spellings_are_refused(void **state)
{
	static const char *const wrong[] = {
		"",
		"\n",
		"coronet-lease 1",
		"coronet-lease 2 mac=02:00:00:00:ab:09 address=10.9.0.40 "
		"expires=0\n",
		"coronet-lease 1 mac=02:00:00:00:ab:09 address=10.9.0.40 "
		"expires=0",
		"coronet-lease 1 mac=02:00:00:00:ab:09 address=10.9.0.40 "
		"expires=0\n\n",
		"coronet-lease 1 mac=02:00:00:00:AB:09 address=10.9.0.40 "
		"expires=0\n",
		"coronet-lease 1 mac=2:0:0:0:ab:9 address=10.9.0.40 "
		"expires=0\n",
		"coronet-lease 1  mac=02:00:00:00:ab:09 address=10.9.0.40 "
		"expires=0\n",
		"coronet-lease 1 mac=02:00:00:00:ab:09 address=10.9.0.296 "
		"expires=0\n",
		"coronet-lease 1 mac=02:00:00:00:ab:09 address=10.9.0.040 "
		"expires=0\n",
		"coronet-lease 1 mac=02:00:00:00:ab:09 address=0.9.0.40 "
		"expires=0\n",
		"coronet-lease 1 mac=02:00:00:00:ab:09 address=127.0.0.1 "
		"expires=0\n",
		"coronet-lease 1 mac=02:00:00:00:ab:09 address=224.0.0.1 "
		"expires=0\n",
		"coronet-lease 1 mac=02:00:00:00:ab:09 address=10.9.0.40 "
		"expires=-1\n",
		"coronet-lease 1 mac=02:00:00:00:ab:09 address=10.9.0.40 "
		"expires=99999999999999999999\n",
	};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct net_lease_record record;

		write_file("dhcp-1.lease", wrong[i]);
		if (read_back(&record) != -EBADMSG)
			fail_msg("'%s' is taken", wrong[i]);
	}
}

static void test_file_of_another_link_counts_as_none(void **state)
{
	struct net_lease_record record;

	assert_int_equal(read_back(&record), -ENOENT);
	write_file("dhcp-1.lease", "coronet-lease 1 mac=02:00:00:00:ab:08 "
				   "address=10.9.0.40 expires=0\n");
	assert_int_equal(read_back(&record), -ENOENT);
}

static void test_lease_that_has_expired_counts_as_none(void **state)
{
	struct net_lease_record record;

	write_file("dhcp-1.lease", "coronet-lease 1 mac=02:00:00:00:ab:09 "
				   "address=10.9.0.40 expires=1000000000\n");
	assert_int_equal(read_back(&record), -ENOENT);
}

/* A FIFO would block the program, and a link lead elsewhere. */
static void test_what_is_no_plain_file_is_refused(void **state)
{
	struct net_lease_record record;
	const char *at = in_folder("dhcp-1.lease");

	assert_int_equal(mkfifo(at, 0600), 0);
	assert_int_equal(read_back(&record), -EBADMSG);
	assert_int_equal(unlink(at), 0);
	assert_int_equal(symlink("/dev/null", at), 0);
	assert_int_equal(read_back(&record), -ELOOP);
	assert_int_equal(unlink(at), 0);
	assert_int_equal(mkdir(at, 0700), 0);
	assert_int_equal(read_back(&record), -EBADMSG);
}

/* ---- writing ---- */

static atomic_uint n_begun, may_end;

/* Keeps a thread busy. */
static void *occupy_thread(void *arg)
{
	atomic_fetch_add(&n_begun, 1);
	while (!atomic_load(&may_end))
		usleep(1000);
	return NULL;
}

static void *offload_body(void *arg)
{
	assert_int_equal(coro_offload(occupy_thread, NULL, NULL), 0);
	return NULL;
}

static void test_write_without_a_thread_is_repeated(void **state)
{
	struct net_lease_record record = {0}, found;
	struct net_lease_file *file;

	assert_int_equal(peer_listen(state), 0);
	memcpy(record.mac, mac, 6);
	memcpy(&record.ip, "\12\11\0\50", 4);
	record.expires_s = INT64_C(4000000000);
	net_spawn(stack, "thread", offload_body, NULL);
	run_rounds(1);
	while (atomic_load(&n_begun) == 0)
		usleep(1000);
	net_spawn(stack, "queue", offload_body, NULL);
	run_rounds(1);
	assert_int_equal(net_lease_file_open(folder, 0, &file), 0);
	net_lease_file_write(file, &record);
	run_rounds(2);
	atomic_store(&may_end, 1);
	for (unsigned i = 0;
	     i < 10000 && access(in_folder("dhcp-1.lease"), F_OK) < 0; i++) {
		fake_now_ns += 10000000;
		run_rounds(1);
		usleep(1000);
	}
	assert_int_equal(net_lease_file_read(file, mac, &found), 0);
	assert_memory_equal(&found.ip, &record.ip, 4);
	assert_int_equal(peer_teardown(state), 0);
	net_lease_file_close(file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_line_is_read_as_it_was_written),
		TEST(test_other_spellings_are_refused),
		TEST(test_file_of_another_link_counts_as_none),
		TEST(test_lease_that_has_expired_counts_as_none),
		TEST(test_what_is_no_plain_file_is_refused),
		TEST(test_write_without_a_thread_is_repeated),
	};

	coro_offload_limits(1, 1);
	return cmocka_run_group_tests_name("lease_file", tests, NULL, NULL);
}
