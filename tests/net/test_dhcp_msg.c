/* Messages of DHCP: what is read of a server's, and what is written. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/net/dhcp_bytes.h"

static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1};

static void begin_message(struct dhcp_bytes *b, unsigned type)
{
	dhcp_begin(b, 0x12345678, mac, "\12\0\0\5");
	dhcp_add(b, 53, (const char[]){(char)type}, 1);
	dhcp_add(b, 54, "\12\0\0\1", 4);
}

/* Reads a copy of exact size, so that a sanitizer sees reads beyond it. */
static int read_bytes(const uint8_t *data, size_t len, struct net_dhcp_msg *out)
{
	uint8_t *copy = malloc(len ? len : 1);
	int err;

	assert_non_null(copy);
	memcpy(copy, data, len);
	memset(out, 0xa5, sizeof(*out));
	err = net_dhcp_read(copy, len, out);
	free(copy);
	return err;
}

static int read_msg(const struct dhcp_bytes *b, struct net_dhcp_msg *out)
{
	return read_bytes(b->data, b->len, out);
}

static uint32_t ip_of(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	const uint8_t bytes[4] = {a, b, c, d};
	uint32_t out;

	memcpy(&out, bytes, 4);
	return out;
}

/* ---- reading ---- */

static void test_every_option_is_read(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_ACK);
	dhcp_add(&b, 1, "\xff\xff\xff\0", 4);
	dhcp_add(&b, 3, "\12\0\0\1\12\0\0\2", 8);
	dhcp_add(&b, 6, "\12\0\0\x35", 4);
	dhcp_add(&b, 26, "\5\x78", 2);
	dhcp_add32(&b, 51, 3600);
	dhcp_add32(&b, 58, 1000);
	dhcp_add32(&b, 59, 2000);
	dhcp_end(&b);
	assert_int_equal(read_msg(&b, &msg), 0);
	assert_int_equal(msg.type, NET_DHCP_ACK);
	assert_int_equal(msg.xid, 0x12345678);
	assert_memory_equal(msg.mac, mac, 6);
	assert_int_equal(msg.ip, ip_of(10, 0, 0, 5));
	assert_int_equal(msg.server, ip_of(10, 0, 0, 1));
	assert_int_equal(msg.mask_bits, 24);
	assert_int_equal(msg.n_routers, 2);
	assert_int_equal(msg.routers[1], ip_of(10, 0, 0, 2));
	assert_int_equal(msg.n_servers, 1);
	assert_int_equal(msg.servers[0], ip_of(10, 0, 0, 53));
	assert_int_equal(msg.mtu, 1400);
	assert_int_equal(msg.lease_s, 3600);
	assert_int_equal(msg.t1_s, 1000);
	assert_int_equal(msg.t2_s, 2000);
	assert_false(msg.has_routes);
}

static void test_pads_and_a_missing_end_are_accepted(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_OFFER);
	b.len += 3; /* pads */
	dhcp_add32(&b, 51, 7);
	assert_int_equal(read_msg(&b, &msg), 0);
	assert_int_equal(msg.lease_s, 7);
}

static void test_options_after_the_end_are_ignored(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_OFFER);
	dhcp_end(&b);
	dhcp_add32(&b, 51, 7);
	assert_int_equal(read_msg(&b, &msg), 0);
	assert_int_equal(msg.lease_s, 0);
}

static void test_message_without_type_or_server_is_refused(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	dhcp_begin(&b, 1, mac, "\12\0\0\5");
	dhcp_add(&b, 53, "\2", 1);
	assert_int_equal(read_msg(&b, &msg), -EBADMSG);
	dhcp_begin(&b, 1, mac, "\12\0\0\5");
	dhcp_add(&b, 54, "\12\0\0\1", 4);
	assert_int_equal(read_msg(&b, &msg), -EBADMSG);
	dhcp_add(&b, 53, "\2", 1);
	assert_int_equal(read_msg(&b, &msg), 0);
}

/* A client's message, another hardware, another protocol. */
static void test_wrong_fixed_fields_are_refused(void **state)
{
	static const struct {
		unsigned at;
		uint8_t value;
	} wrong[] = {{0, 1}, {1, 6}, {2, 16}, {236, 98}, {239, 0}};
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	for (unsigned i = 0; i < 5; i++) {
		begin_message(&b, NET_DHCP_ACK);
		assert_int_equal(read_msg(&b, &msg), 0);
		b.data[wrong[i].at] = wrong[i].value;
		assert_int_equal(read_msg(&b, &msg), -EBADMSG);
	}
}

static void test_types_of_clients_are_refused(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	for (unsigned type = 0; type < 16; type++) {
		bool servers = type == NET_DHCP_OFFER || type == NET_DHCP_ACK ||
			       type == NET_DHCP_NAK;

		begin_message(&b, type);
		assert_int_equal(read_msg(&b, &msg), servers ? 0 : -EBADMSG);
	}
}

/* Whatever its end is, no byte beyond it is read. */
static void test_message_cut_anywhere_is_safe(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_ACK);
	dhcp_add(&b, 121, "\x18\12\1\2\12\0\0\1\0\12\0\0\1", 13);
	for (unsigned len = 0; len < b.len; len++) {
		int err = read_bytes(b.data, len, &msg);

		/* Only the ends of options cut no option. */
		assert_int_equal(err, len == 240 + 3 + 6 ? 0 : -EBADMSG);
	}
}

static void test_length_beyond_the_message_is_refused(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_ACK);
	dhcp_add(&b, 200, "ab", 2);
	b.data[b.len - 3] = 3; /* its length */
	assert_int_equal(read_msg(&b, &msg), -EBADMSG);
	b.len = NET_DHCP_BYTES_MAX + 1;
	assert_int_equal(read_msg(&b, &msg), -EBADMSG);
}

static void test_wrong_lengths_of_values_are_refused(void **state)
{
	static const struct {
		uint8_t code, good;
	} options[] = {{1, 4},	{3, 4},	 {6, 8},  {26, 2}, {51, 4},
		       {54, 4}, {58, 4}, {59, 4}, {53, 1}, {52, 1}};
	static const char value[9] = "\3\0\0\0\0\0\0\0";
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	for (unsigned i = 0; i < 10; i++)
		for (int more = -1; more <= 1; more += 2) {
			dhcp_begin(&b, 1, mac, "\12\0\0\5");
			if (options[i].code != 53)
				dhcp_add(&b, 53, "\5", 1);
			if (options[i].code != 54)
				dhcp_add(&b, 54, "\12\0\0\1", 4);
			dhcp_add(&b, options[i].code, value,
				 options[i].good + (unsigned)more);
			assert_int_equal(read_msg(&b, &msg), -EBADMSG);
		}
}

static void test_wrong_values_are_refused(void **state)
{
	static const struct {
		uint8_t code;
		char value[4];
		uint8_t len;
	} wrong[] = {
		{1, {0}, 4},		     /* no network */
		{1, {1, 0, 0, 0}, 4},	     /* ones after a zero */
		{1, {'\xff', 0, '\xff'}, 4}, /* holes */
		{26, {0, 67}, 2},	     /* less than any MTU */
		{51, {0}, 4},		     /* no time */
		{52, {0}, 1},
		{52, {4}, 1},
		{54, {0}, 4},
	};
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		dhcp_begin(&b, 1, mac, "\12\0\0\5");
		dhcp_add(&b, 53, "\5", 1);
		if (wrong[i].code != 54)
			dhcp_add(&b, 54, "\12\0\0\1", 4);
		dhcp_add(&b, wrong[i].code, wrong[i].value, wrong[i].len);
		assert_int_equal(read_msg(&b, &msg), -EBADMSG);
	}
}

static void test_overloaded_fields_hold_options(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_ACK);
	dhcp_add(&b, 52, "\3", 1);
	memcpy(b.data + 108, "\x33\4\0\0\0\x09\xff", 7); /* file */
	memcpy(b.data + 44, "\x1a\2\5\xdc\xff", 5);	 /* sname */
	assert_int_equal(read_msg(&b, &msg), 0);
	assert_int_equal(msg.lease_s, 9);
	assert_int_equal(msg.mtu, 1500);
	b.data[44 + 1] = 62; /* to the end of sname */
	assert_int_equal(read_msg(&b, &msg), -EBADMSG);
	b.data[44 + 1] = 63; /* beyond it */
	assert_int_equal(read_msg(&b, &msg), -EBADMSG);
}

static void test_file_is_no_option_without_overload(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_ACK);
	memset(b.data + 44, 0x77, 192);
	assert_int_equal(read_msg(&b, &msg), 0);
	assert_int_equal(msg.lease_s, 0);
}

/* ---- option 121 ---- */

static int read_routes(const char *value, unsigned len,
		       struct net_dhcp_msg *out)
{
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_ACK);
	dhcp_add(&b, 121, value, len);
	return read_msg(&b, out);
}

static void test_routes_have_networks_of_any_width(void **state)
{
	struct net_dhcp_msg msg;

	assert_int_equal(read_routes("\0\12\0\0\1"
				     "\11\12\x80\12\0\0\2"
				     "\x20\12\1\2\3\0\0\0\0",
				     21, &msg),
			 0);
	assert_true(msg.has_routes);
	assert_int_equal(msg.n_routes, 3);
	assert_int_equal(msg.routes[0].bits, 0);
	assert_int_equal(msg.routes[0].to, 0);
	assert_int_equal(msg.routes[0].via, ip_of(10, 0, 0, 1));
	assert_int_equal(msg.routes[1].bits, 9);
	assert_int_equal(msg.routes[1].to, ip_of(10, 128, 0, 0));
	assert_int_equal(msg.routes[2].bits, 32);
	assert_int_equal(msg.routes[2].to, ip_of(10, 1, 2, 3));
	assert_int_equal(msg.routes[2].via, 0);
}

static void test_bits_behind_a_route_are_cleared(void **state)
{
	struct net_dhcp_msg msg;

	assert_int_equal(read_routes("\11\12\xff\12\0\0\2", 7, &msg), 0);
	assert_int_equal(msg.routes[0].to, ip_of(10, 128, 0, 0));
}

static void test_routes_with_bad_prefixes_are_refused(void **state)
{
	struct net_dhcp_msg msg;

	assert_int_equal(read_routes("", 0, &msg), -EBADMSG);
	assert_int_equal(read_routes("\x21\12\1\2\3\4\12\0\0\1", 10, &msg),
			 -EBADMSG);
	assert_int_equal(read_routes("\xff\12\1\2\3\12\0\0\1", 9, &msg),
			 -EBADMSG);
	assert_int_equal(read_routes("\x18\12\1\2\12\0\0", 7, &msg), -EBADMSG);
	assert_int_equal(read_routes("\0\12\0\0\1\x18", 6, &msg), -EBADMSG);
}

static void test_pieces_of_an_option_are_joined(void **state)
{
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_ACK);
	dhcp_add(&b, 121, "\x18\12\1", 3);
	dhcp_add32(&b, 51, 60);
	dhcp_add(&b, 121, "\2\12\0\0\1", 5);
	assert_int_equal(read_msg(&b, &msg), 0);
	assert_int_equal(msg.n_routes, 1);
	assert_int_equal(msg.routes[0].to, ip_of(10, 1, 2, 0));
	assert_int_equal(msg.routes[0].via, ip_of(10, 0, 0, 1));
}

static void test_lists_keep_their_first_entries(void **state)
{
	char many[NET_DHCP_ROUTES * 5 + 5] = {0}, ips[60] = {0};
	struct net_dhcp_msg msg;
	struct dhcp_bytes b;

	begin_message(&b, NET_DHCP_ACK);
	many[4] = 1;
	dhcp_add(&b, 121, many, sizeof(many));
	ips[3] = 7;
	dhcp_add(&b, 3, ips, sizeof(ips));
	dhcp_add(&b, 6, ips, sizeof(ips));
	assert_int_equal(read_msg(&b, &msg), 0);
	assert_int_equal(msg.n_routes, NET_DHCP_ROUTES);
	assert_int_equal(msg.routes[0].via, ip_of(0, 0, 0, 1));
	assert_int_equal(msg.n_routers, NET_DHCP_ROUTERS);
	assert_int_equal(msg.n_servers, NET_DHCP_SERVERS);
	assert_int_equal(msg.servers[0], ip_of(0, 0, 0, 7));
}

/* ---- writing ---- */

static const uint8_t *find_option(const uint8_t *bytes, unsigned code)
{
	const uint8_t *at = bytes + 240;

	while (*at != 255 && *at != code)
		at += 2 + at[1];
	return *at == code ? at : NULL;
}

static void test_request_has_the_options_that_are_set(void **state)
{
	struct net_dhcp_out msg = {.type = NET_DHCP_REQUEST,
				   .mac = mac,
				   .xid = 0x01020304,
				   .secs = 258,
				   .wanted = ip_of(10, 0, 0, 5),
				   .server = ip_of(10, 0, 0, 1)};
	uint8_t out[NET_DHCP_BYTES];

	net_dhcp_write(&msg, out);
	assert_memory_equal(out, "\1\1\6\0\1\2\3\4\1\2\0\0\0\0\0\0", 16);
	assert_memory_equal(out + 28, mac, 6);
	assert_memory_equal(out + 236, "\x63\x82\x53\x63\x35\1\3", 7);
	assert_memory_equal(find_option(out, 50) + 2, "\12\0\0\5", 4);
	assert_memory_equal(find_option(out, 54) + 2, "\12\0\0\1", 4);
	assert_memory_equal(find_option(out, 57) + 2, "\5\xdc", 2);
	assert_memory_equal(find_option(out, 55),
			    "\x37\10\1\x79\3\6\x1a\x33\x3a\x3b", 10);
}

static void test_options_of_zero_are_left_out(void **state)
{
	struct net_dhcp_out msg = {.type = NET_DHCP_REQUEST,
				   .mac = mac,
				   .ciaddr = ip_of(10, 0, 0, 5)};
	uint8_t out[NET_DHCP_BYTES];

	net_dhcp_write(&msg, out);
	assert_memory_equal(out + 12, "\12\0\0\5", 4);
	assert_null(find_option(out, 50));
	assert_null(find_option(out, 54));
	msg.type = NET_DHCP_DECLINE;
	net_dhcp_write(&msg, out);
	assert_null(find_option(out, 55));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_option_is_read),
		cmocka_unit_test(test_pads_and_a_missing_end_are_accepted),
		cmocka_unit_test(test_options_after_the_end_are_ignored),
		cmocka_unit_test(
			test_message_without_type_or_server_is_refused),
		cmocka_unit_test(test_wrong_fixed_fields_are_refused),
		cmocka_unit_test(test_types_of_clients_are_refused),
		cmocka_unit_test(test_message_cut_anywhere_is_safe),
		cmocka_unit_test(test_length_beyond_the_message_is_refused),
		cmocka_unit_test(test_wrong_lengths_of_values_are_refused),
		cmocka_unit_test(test_wrong_values_are_refused),
		cmocka_unit_test(test_overloaded_fields_hold_options),
		cmocka_unit_test(test_file_is_no_option_without_overload),
		cmocka_unit_test(test_routes_have_networks_of_any_width),
		cmocka_unit_test(test_bits_behind_a_route_are_cleared),
		cmocka_unit_test(test_routes_with_bad_prefixes_are_refused),
		cmocka_unit_test(test_pieces_of_an_option_are_joined),
		cmocka_unit_test(test_lists_keep_their_first_entries),
		cmocka_unit_test(test_request_has_the_options_that_are_set),
		cmocka_unit_test(test_options_of_zero_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
