/*
 * ClientHellos: the server's name however the bytes are split, and wrong values
 * of every length.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "apps/proxy/client_hello.h"

/* A message under construction. */
static uint8_t message[CLIENT_HELLO_MAX * 2];
static size_t len;

static void put_bytes(const void *bytes, size_t n)
{
	memcpy(message + len, bytes, n);
	len += n;
}

static void append_u8(unsigned n)
{
	message[len++] = (uint8_t)n;
}

static void append_u16(unsigned n)
{
	append_u8(n >> 8);
	append_u8(n);
}

static void overwrite_u16(size_t at, size_t n)
{
	message[at] = (uint8_t)(n >> 8);
	message[at + 1] = (uint8_t)n;
}

/* The message alone, without records; name NULL: no such extension. */
static void build_hello(const char *name, unsigned padding)
{
	static const uint8_t random[32] = {1, 2, 3};
	size_t extensions;

	len = 0;
	append_u8(1);
	append_u8(0);
	append_u16(0); /* its length, set below */
	append_u16(0x0303);
	put_bytes(random, 32);
	append_u8(32);
	put_bytes(random, 32);
	append_u16(4);
	append_u16(0x1301);
	append_u16(0x1302);
	append_u8(1);
	append_u8(0);
	extensions = len;
	append_u16(0);
	append_u16(0x002b); /* supported_versions */
	append_u16(3);
	append_u8(2);
	append_u16(0x0304);
	if (padding) {
		append_u16(21);
		append_u16(padding);
		memset(message + len, 0, padding);
		len += padding;
	}
	if (name) {
		size_t n = strlen(name);

		append_u16(0);
		append_u16((unsigned)n + 5);
		append_u16((unsigned)n + 3);
		append_u8(0);
		append_u16((unsigned)n);
		put_bytes(name, n);
	}
	append_u16(0x0017);
	append_u16(0);
	overwrite_u16(extensions, len - extensions - 2);
	overwrite_u16(2, len - 4);
}

/* In records of so many bytes at most. */
static size_t wrap_in_records(uint8_t *out, size_t each)
{
	size_t n = 0;

	for (size_t at = 0; at < len; at += each) {
		size_t part = len - at < each ? len - at : each;

		out[n++] = 22;
		out[n++] = 3;
		out[n++] = 1;
		out[n++] = (uint8_t)(part >> 8);
		out[n++] = (uint8_t)part;
		memcpy(out + n, message + at, part);
		n += part;
	}
	return n;
}

static uint8_t records[CLIENT_HELLO_MAX * 8];
static struct client_hello hello;

static enum client_hello_result feed_all(size_t n)
{
	client_hello_init(&hello);
	return client_hello_feed(&hello, records, n);
}

static void test_name_is_read_from_a_whole_hello(void **state)
{
	build_hello("WWW.Example.COM", 0);
	assert_int_equal(feed_all(wrap_in_records(records, 16384)),
			 CLIENT_HELLO_NAME);
	assert_string_equal(hello.name, "www.example.com");
	build_hello("www.example.com.", 200);
	assert_int_equal(feed_all(wrap_in_records(records, 16384)),
			 CLIENT_HELLO_NAME);
	assert_string_equal(hello.name, "www.example.com");
}

static void test_hello_may_be_split_anywhere(void **state)
{
	size_t n;

	build_hello("split.example", 40);
	n = wrap_in_records(records, 16384);
	for (size_t cut = 0; cut <= n; cut++) {
		client_hello_init(&hello);
		client_hello_feed(&hello, records, cut);
		assert_int_equal(
			client_hello_feed(&hello, records + cut, n - cut),
			CLIENT_HELLO_NAME);
		assert_string_equal(hello.name, "split.example");
	}
	client_hello_init(&hello);
	for (size_t i = 0; i < n; i++)
		client_hello_feed(&hello, records + i, 1);
	assert_int_equal(hello.result, CLIENT_HELLO_NAME);
}

static void test_hello_in_records_of_every_size_is_read(void **state)
{
	build_hello("records.example", 40);
	for (size_t each = 1; each <= len; each++) {
		assert_int_equal(feed_all(wrap_in_records(records, each)),
				 CLIENT_HELLO_NAME);
		assert_string_equal(hello.name, "records.example");
	}
}

static void test_hello_without_a_name_is_reported_at_its_end(void **state)
{
	size_t n;

	build_hello(NULL, 0);
	n = wrap_in_records(records, 16384);
	assert_int_equal(feed_all(n), CLIENT_HELLO_NO_NAME);
	for (size_t cut = 0; cut < n; cut++)
		assert_true(feed_all(cut) == CLIENT_HELLO_MORE || cut > n - 5);
	/* A hello of TLS 1.2 may have no extensions at all. */
	len = 4 + 34 + 33 + 6 + 2;
	overwrite_u16(2, len - 4);
	assert_int_equal(feed_all(wrap_in_records(records, 16384)),
			 CLIENT_HELLO_NO_NAME);
}

static void test_other_protocols_are_recognized_at_once(void **state)
{
	static const char *const others[] = {
		"GET / HTTP/1.1\r\n", "\x80\x2e\x01",	      "\x16\x02",
		"\x15\x03\x01",	      "\x16\x03\x01\x40\x01", "SSH-2.0"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		client_hello_init(&hello);
		assert_int_equal(
			client_hello_feed(&hello, others[i], strlen(others[i])),
			CLIENT_HELLO_NOT);
	}
	build_hello("x.example", 0);
	message[0] = 2; /* a ServerHello */
	assert_int_equal(feed_all(wrap_in_records(records, 16384)),
			 CLIENT_HELLO_NOT);
	build_hello("x.example", 0);
	wrap_in_records(records, 16384);
	overwrite_u16(0, 0);
	records[0] = 22;
	records[1] = 3;
	records[3] = records[4] = 0; /* an empty record */
	assert_int_equal(feed_all(100), CLIENT_HELLO_NOT);
}

/*
 * Any byte with any value: parsing ends, and a name lies within the bytes. A
 * wrong length is detected when it is read, or when the promised bytes have
 * come, at the latest at the end of the message.
 */
static void test_any_changed_byte_is_harmless(void **state)
{
	unsigned names = 0, refused = 0;
	size_t n, same;

	build_hello("lies.example", 8);
	n = wrap_in_records(records, 16384);
	for (size_t i = 0; i < n; i++) {
		uint8_t was = records[i];

		for (unsigned value = 0; value < 256; value++) {
			enum client_hello_result result;

			records[i] = (uint8_t)value;
			result = feed_all(n);
			names += result == CLIENT_HELLO_NAME;
			refused += result == CLIENT_HELLO_NOT;
			same = strlen(hello.name);
			if (result == CLIENT_HELLO_NAME)
				assert_true(same <= 12);
			/*
			 * Only a hello that claims to be longer waits for more
			 * bytes.
			 */
			if (result == CLIENT_HELLO_MORE)
				assert_true(i < 9);
		}
		records[i] = was;
	}
	assert_true(names > 0 && refused > 0);
}

static void test_inconsistent_lengths_are_refused(void **state)
{
	static const int lies[] = {-3, -2, -1, 1, 2, 3, 1000};
	size_t extensions = 4 + 34 + 33 + 6 + 2;
	size_t name = extensions + 2 + 7; /* its extension's type */

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		size_t at[] = {extensions, name + 2, name + 4, name + 7};

		for (int k = 0; k < 4; k++) {
			size_t value;

			build_hello("lies.example", 0);
			value = (size_t)message[at[k]] << 8 |
				message[at[k] + 1];
			overwrite_u16(at[k], (size_t)((long)value + lies[i]));
			if (feed_all(wrap_in_records(records, 16384)) !=
			    CLIENT_HELLO_NOT)
				fail_msg("length %d, lie %d", k, lies[i]);
		}
	}
}

static void test_invalid_names_are_refused(void **state)
{
	char name[300];

	memset(name, 'a', sizeof(name));
	name[SERVER_NAME_MAX - 1] = '\0';
	build_hello(name, 0);
	assert_int_equal(feed_all(wrap_in_records(records, 16384)),
			 CLIENT_HELLO_NAME);
	assert_int_equal(strlen(hello.name), SERVER_NAME_MAX - 1);
	name[SERVER_NAME_MAX - 1] = 'a';
	name[SERVER_NAME_MAX] = '\0';
	build_hello(name, 0);
	assert_int_equal(feed_all(wrap_in_records(records, 16384)),
			 CLIENT_HELLO_NOT);
	build_hello("", 0);
	assert_int_equal(feed_all(wrap_in_records(records, 16384)),
			 CLIENT_HELLO_NOT);
	build_hello("a b.example", 0);
	assert_int_equal(feed_all(wrap_in_records(records, 16384)),
			 CLIENT_HELLO_NOT);
	build_hello("a\x80.example", 0);
	assert_int_equal(feed_all(wrap_in_records(records, 16384)),
			 CLIENT_HELLO_NOT);
}

static void test_hello_longer_than_the_bound_is_refused(void **state)
{
	size_t n;

	build_hello("late.example", 16000);
	n = wrap_in_records(records, 1); /* six bytes each */
	assert_true(n > CLIENT_HELLO_MAX);
	assert_int_equal(feed_all(CLIENT_HELLO_MAX), CLIENT_HELLO_MORE);
	assert_int_equal(feed_all(n), CLIENT_HELLO_NOT);
	assert_int_equal(hello.taken, CLIENT_HELLO_MAX + 1);
	assert_int_equal(client_hello_feed(&hello, records, n),
			 CLIENT_HELLO_NOT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name_is_read_from_a_whole_hello),
		cmocka_unit_test(test_hello_may_be_split_anywhere),
		cmocka_unit_test(test_hello_in_records_of_every_size_is_read),
		cmocka_unit_test(
			test_hello_without_a_name_is_reported_at_its_end),
		cmocka_unit_test(test_other_protocols_are_recognized_at_once),
		cmocka_unit_test(test_any_changed_byte_is_harmless),
		cmocka_unit_test(test_inconsistent_lengths_are_refused),
		cmocka_unit_test(test_invalid_names_are_refused),
		cmocka_unit_test(test_hello_longer_than_the_bound_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
