/*
 * Router advertisements: what is read of them; and the interface identifiers
 * and the secret of SLAAC.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/link/slaac_id.h"
#include "tests/apps/in_folder.h"
#include "tests/net/ra_bytes.h"

/* Reads a copy of exact size, so that a sanitizer sees reads beyond it. */
static int read_ra(const struct ra_bytes *b, struct net_ra_msg *out)
{
	uint8_t *copy = malloc(b->len ? b->len : 1);
	int err;

	assert_non_null(copy);
	memcpy(copy, b->data, b->len);
	memset(out, 0xa5, sizeof(*out));
	err = net_ra_read(copy, b->len, out);
	free(copy);
	return err;
}

/* ---- reading ---- */

static void test_every_option_is_read(void **state)
{
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 1800, 0x08);
	ra_add(&b, 1, "\2\0\0\0\0\2", 6);
	ra_prefix(&b, PREFIX, 64, 0xc0, 7200, 3600);
	ra_servers(&b, 600, SERVER, 1);
	assert_int_equal(read_ra(&b, &msg), 0);
	assert_int_equal(msg.router_s, 1800);
	assert_int_equal(msg.preference, 1);
	assert_int_equal(msg.n_prefixes, 1);
	assert_memory_equal(msg.prefixes[0].ip, PREFIX, 16);
	assert_int_equal(msg.prefixes[0].bits, 64);
	assert_true(msg.prefixes[0].on_link && msg.prefixes[0].autonomous);
	assert_int_equal(msg.prefixes[0].valid_s, 7200);
	assert_int_equal(msg.prefixes[0].preferred_s, 3600);
	assert_int_equal(msg.n_servers, 1);
	assert_memory_equal(msg.servers[0].ip, SERVER, 16);
	assert_int_equal(msg.servers[0].lifetime_s, 600);
	assert_true(msg.has_mac);
	assert_memory_equal(msg.mac, "\2\0\0\0\0\2", 6);
}

static void test_mac_that_is_no_hosts_is_skipped(void **state)
{
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 1800, 0);
	ra_add(&b, 1, "\3\0\0\0\0\2", 6); /* a group's */
	ra_add(&b, 1, "\0\0\0\0\0\0", 6);
	ra_add(&b, 1, "\2\0\0\0\0\2\0\0\0\0\0\0\0\0", 14);
	assert_int_equal(read_ra(&b, &msg), 0);
	assert_false(msg.has_mac);
}

static void test_flags_of_a_prefix_are_distinguished(void **state)
{
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 0, 0);
	ra_prefix(&b, PREFIX, 64, 0x80, 60, 60);
	ra_prefix(&b, PREFIX, 64, 0x40, 60, 60);
	assert_int_equal(read_ra(&b, &msg), 0);
	assert_true(msg.prefixes[0].on_link && !msg.prefixes[0].autonomous);
	assert_true(!msg.prefixes[1].on_link && msg.prefixes[1].autonomous);
}

static void test_preferences_are_read(void **state)
{
	static const struct {
		unsigned flags;
		int preference;
	} rows[] = {{0x00, 0}, {0x08, 1}, {0x10, 0}, {0x18, -1}, {0xc8, 1}};
	struct net_ra_msg msg;
	struct ra_bytes b;

	for (unsigned i = 0; i < 5; i++) {
		ra_begin(&b, 60, rows[i].flags);
		assert_int_equal(read_ra(&b, &msg), 0);
		assert_int_equal(msg.preference, rows[i].preference);
	}
}

static void test_bits_behind_a_prefix_are_cleared(void **state)
{
	static const uint8_t ones[16] = {0xfd, 0x77, 0xff, 0xff, 0xff, 0xff,
					 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
					 0xff, 0xff, 0xff, 0xff};
	struct net_ra_msg msg;
	struct ra_bytes b;

	for (unsigned bits = 8; bits <= 128; bits++) {
		ra_begin(&b, 0, 0);
		ra_prefix(&b, ones, bits, 0x80, 60, 60);
		assert_int_equal(read_ra(&b, &msg), 0);
		for (unsigned i = 0; i < 128; i++) {
			unsigned bit =
				msg.prefixes[0].ip[i / 8] >> (7 - i % 8) & 1;

			assert_int_equal(
				bit,
				i < bits && ones[i / 8] >> (7 - i % 8) & 1);
		}
	}
}

static void test_prefixes_that_no_host_may_use_are_skipped(void **state)
{
	static const char *const wrong[] = {
		"\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\0", /* link-local */
		"\xff\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0",	/* a group */
		"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1",	/* loopback */
	};
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 0, 0);
	for (unsigned i = 0; i < 3; i++)
		ra_prefix(&b, (const uint8_t *)wrong[i], 64, 0xc0, 60, 60);
	ra_prefix(&b, PREFIX, 0, 0xc0, 60, 60);
	ra_prefix(&b, PREFIX, 129, 0xc0, 60, 60);
	assert_int_equal(read_ra(&b, &msg), 0);
	assert_int_equal(msg.n_prefixes, 0);
}

/* RFC 4862 5.5.3 c. */
static void test_longer_preference_than_validity_forms_no_address(void **state)
{
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 0, 0);
	ra_prefix(&b, PREFIX, 64, 0xc0, 60, 61);
	assert_int_equal(read_ra(&b, &msg), 0);
	assert_true(msg.prefixes[0].on_link && !msg.prefixes[0].autonomous);
}

static void test_servers_that_cannot_be_asked_are_skipped(void **state)
{
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 0, 0);
	ra_servers(&b, 60,
		   (const uint8_t *)"\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\1"
				    "\xff\2\0\0\0\0\0\0\0\0\0\0\0\0\0\1"
				    "\xfd\x77\0\0\0\0\0\0\0\0\0\0\0\0\0\x35"
				    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1",
		   4);
	assert_int_equal(read_ra(&b, &msg), 0);
	assert_int_equal(msg.n_servers, 1);
	assert_memory_equal(msg.servers[0].ip, SERVER, 16);
}

static void test_lists_are_bounded(void **state)
{
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 0, 0);
	for (unsigned i = 0; i < 2 * NET_RA_PREFIXES; i++)
		ra_prefix(&b, PREFIX, 64, 0xc0, i + 1, 0);
	for (unsigned i = 0; i < 2 * NET_RA_SERVERS; i++)
		ra_servers(&b, i + 1, SERVER, 1);
	assert_int_equal(read_ra(&b, &msg), 0);
	assert_int_equal(msg.n_prefixes, NET_RA_PREFIXES);
	assert_int_equal(msg.prefixes[NET_RA_PREFIXES - 1].valid_s,
			 NET_RA_PREFIXES);
	assert_int_equal(msg.n_servers, NET_RA_SERVERS);
}

static void test_options_of_wrong_length_are_skipped(void **state)
{
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 9, 0);
	ra_add(&b, 3, (const char[22]){64, (char)0xc0, [14] = (char)0xfd}, 22);
	ra_add(&b, 3, (const char[38]){64, (char)0xc0, [14] = (char)0xfd}, 38);
	ra_add(&b, 25, (const char[14]){0}, 14); /* no address */
	ra_add(&b, 25, (const char[30]){[6] = (char)0xfd},
	       30); /* one, a half */
	ra_add(&b, 200, (const char[6]){0}, 6);
	assert_int_equal(read_ra(&b, &msg), 0);
	assert_int_equal(msg.router_s, 9);
	assert_int_equal(msg.n_prefixes + msg.n_servers, 0);
}

static void test_lengths_that_lie_are_refused(void **state)
{
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 0, 0);
	ra_prefix(&b, PREFIX, 64, 0xc0, 60, 60);
	for (unsigned len = 0; len < 16 + 32; len++) {
		struct ra_bytes cut = b;

		cut.len = len;
		assert_int_equal(read_ra(&cut, &msg), len == 16 ? 0 : -EBADMSG);
	}
	b.data[17] = 0;
	assert_int_equal(read_ra(&b, &msg), -EBADMSG);
	b.data[17] = 5;
	assert_int_equal(read_ra(&b, &msg), -EBADMSG);
}

static void test_other_messages_are_refused(void **state)
{
	struct net_ra_msg msg;
	struct ra_bytes b;

	ra_begin(&b, 0, 0);
	b.data[0] = 133;
	assert_int_equal(read_ra(&b, &msg), -EBADMSG);
	b.data[0] = 134;
	b.data[1] = 1;
	assert_int_equal(read_ra(&b, &msg), -EBADMSG);
}

/* ---- identifiers ---- */

static void test_identifier_depends_on_everything(void **state)
{
	uint8_t secret[NET_SLAAC_SECRET] = {1}, first[8], id[8];

	net_slaac_id(secret, PREFIX, 0, 0, first);
	net_slaac_id(secret, PREFIX, 0, 0, id);
	assert_memory_equal(id, first, 8);
	net_slaac_id(secret, PREFIX, 1, 0, id);
	assert_memory_not_equal(id, first, 8);
	net_slaac_id(secret, PREFIX, 0, 1, id);
	assert_memory_not_equal(id, first, 8);
	net_slaac_id(secret, (const uint8_t *)"\xfd\x77\0\0\0\0\0\1", 0, 0, id);
	assert_memory_not_equal(id, first, 8);
	secret[NET_SLAAC_SECRET - 1] = 1;
	net_slaac_id(secret, PREFIX, 0, 0, id);
	assert_memory_not_equal(id, first, 8);
}

/* ---- the secret ---- */

#define SECRET_FILE "slaac.secret"

static int setup_folder(void **state)
{
	return in_folder_make();
}

static int teardown_folder(void **state)
{
	return in_folder_remove();
}

static void test_secret_is_the_same_after_a_restart(void **state)
{
	uint8_t first[NET_SLAAC_SECRET], again[NET_SLAAC_SECRET];
	struct stat about;

	net_slaac_secret_load(folder, first);
	net_slaac_secret_load(folder, again);
	assert_memory_equal(again, first, sizeof(first));
	assert_int_equal(stat(in_folder(SECRET_FILE), &about), 0);
	assert_int_equal(about.st_mode, S_IFREG | 0600);
	assert_int_equal(unlink(in_folder(SECRET_FILE)), 0);
}

static void test_secret_without_a_folder_is_random(void **state)
{
	uint8_t first[NET_SLAAC_SECRET], again[NET_SLAAC_SECRET];

	net_slaac_secret_load(NULL, first);
	net_slaac_secret_load(NULL, again);
	assert_memory_not_equal(again, first, sizeof(first));
	net_slaac_secret_load(in_folder("missing"), first);
	net_slaac_secret_load(in_folder("missing"), again);
	assert_memory_not_equal(again, first, sizeof(first));
}

static void test_file_without_a_secret_stays(void **state)
{
	uint8_t first[NET_SLAAC_SECRET], again[NET_SLAAC_SECRET];
	struct stat about;

	write_file(SECRET_FILE, "coronet-secret 1 00\n");
	net_slaac_secret_load(folder, first);
	net_slaac_secret_load(folder, again);
	assert_memory_not_equal(again, first, sizeof(first));
	assert_int_equal(stat(in_folder(SECRET_FILE), &about), 0);
	assert_int_equal(about.st_size, 20);
}

static void test_secret_has_one_spelling(void **state)
{
	static const uint8_t secret[NET_SLAAC_SECRET] = {0xab, 0xcd};
	char text[NET_SLAAC_SECRET_TEXT];
	uint8_t out[NET_SLAAC_SECRET];
	size_t len = net_slaac_secret_format(secret, text);

	assert_int_equal(net_slaac_secret_parse(text, len, out), 0);
	assert_memory_equal(out, secret, sizeof(out));
	assert_int_equal(net_slaac_secret_parse(text, len - 1, out), -EBADMSG);
	text[17] = 'A'; /* for 'a' */
	assert_int_equal(net_slaac_secret_parse(text, len, out), -EBADMSG);
	text[17] = 'g';
	assert_int_equal(net_slaac_secret_parse(text, len, out), -EBADMSG);
	text[17] = 'a';
	text[0] = 'C';
	assert_int_equal(net_slaac_secret_parse(text, len, out), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_option_is_read),
		cmocka_unit_test(test_mac_that_is_no_hosts_is_skipped),
		cmocka_unit_test(test_flags_of_a_prefix_are_distinguished),
		cmocka_unit_test(test_preferences_are_read),
		cmocka_unit_test(test_bits_behind_a_prefix_are_cleared),
		cmocka_unit_test(
			test_prefixes_that_no_host_may_use_are_skipped),
		cmocka_unit_test(
			test_longer_preference_than_validity_forms_no_address),
		cmocka_unit_test(test_servers_that_cannot_be_asked_are_skipped),
		cmocka_unit_test(test_lists_are_bounded),
		cmocka_unit_test(test_options_of_wrong_length_are_skipped),
		cmocka_unit_test(test_lengths_that_lie_are_refused),
		cmocka_unit_test(test_other_messages_are_refused),
		cmocka_unit_test(test_identifier_depends_on_everything),
		cmocka_unit_test_setup_teardown(
			test_secret_is_the_same_after_a_restart, setup_folder,
			teardown_folder),
		cmocka_unit_test_setup_teardown(
			test_secret_without_a_folder_is_random, setup_folder,
			teardown_folder),
		cmocka_unit_test_setup_teardown(
			test_file_without_a_secret_stays, setup_folder,
			teardown_folder),
		cmocka_unit_test(test_secret_has_one_spelling),
	};

	return cmocka_run_group_tests_name("ra_msg", tests, NULL, NULL);
}
