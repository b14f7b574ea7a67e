/*
 * coronet-dns: zones, lookups and answers. libldns, which shares no code with
 * what writes answers, reads them.
 */
#include "dns_ask.h"

/* ---- lookup ---- */

static void test_records_of_a_name_are_answered(void **state)
{
	assert_string_equal(ask_query("www.example.com", DNS_A),
			    "NOERROR aa an www.example.com. 300 IN A 192.0.2.3;"
			    "www.example.com. 300 IN A 192.0.2.4;");
	assert_string_equal(ask_query("example.com", 16),
			    "NOERROR aa an example.com. 300 IN TXT \"one\" "
			    "\"two\";");
	assert_string_equal(ask_query("example.com", DNS_SOA),
			    "NOERROR aa an " SOA("3600"));
}

static void test_default_ttl_may_be_zero(void **state)
{
	serve_zone("z.test",
		   "$TTL 0\n@ IN SOA a. b. 1 2 3 4 5\n@ IN NS a.\n"
		   "zero IN A 192.0.2.1\n$TTL 60\nsixty IN A 192.0.2.2\n"
		   "$TTL 0\nagain IN A 192.0.2.3\nown 7 IN A 192.0.2.4\n");
	assert_string_equal(ask_query("zero.z.test", DNS_A),
			    "NOERROR aa an zero.z.test. 0 IN A 192.0.2.1;");
	assert_string_equal(ask_query("sixty.z.test", DNS_A),
			    "NOERROR aa an sixty.z.test. 60 IN A 192.0.2.2;");
	assert_string_equal(ask_query("again.z.test", DNS_A),
			    "NOERROR aa an again.z.test. 0 IN A 192.0.2.3;");
	assert_string_equal(ask_query("own.z.test", DNS_A),
			    "NOERROR aa an own.z.test. 7 IN A 192.0.2.4;");
}

static void test_case_of_the_question_is_kept_and_does_not_matter(void **state)
{
	assert_string_equal(ask_query("wWw.eXample.com", DNS_A),
			    "NOERROR aa an wWw.eXample.com. 300 IN A 192.0.2.3;"
			    "wWw.eXample.com. 300 IN A 192.0.2.4;");
}

static void test_addresses_of_servers_are_added_once(void **state)
{
	assert_string_equal(
		ask_query("example.com", DNS_MX),
		"NOERROR aa an example.com. 300 IN MX 10 mail.example.com.;"
		"example.com. 300 IN MX 20 mail.example.com.;"
		" ar mail.example.com. 300 IN A 192.0.2.2;");
	assert_string_equal(
		ask_query("example.com", DNS_NS),
		"NOERROR aa an example.com. 300 IN NS ns1.example.com.;"
		"example.com. 300 IN NS ns.example.net.;"
		" ar ns1.example.com. 300 IN A 192.0.2.1;"
		"ns1.example.com. 300 IN AAAA 2001:db8::1;");
	assert_string_equal(ask_query("_sip._udp.example.com", DNS_SRV),
			    "NOERROR aa an _sip._udp.example.com. 300 IN SRV 1 "
			    "2 5060 www.example.com.;"
			    " ar www.example.com. 300 IN A 192.0.2.3;"
			    "www.example.com. 300 IN A 192.0.2.4;");
}

static void test_negative_answers_have_the_soa(void **state)
{
	assert_string_equal(ask_query("no.example.com", DNS_A),
			    "NXDOMAIN aa ns " SOA("60"));
	assert_string_equal(
		ask_query("a.very.deep.name.that.is.not.example.com", 1),
		"NXDOMAIN aa ns " SOA("60"));
	assert_string_equal(ask_query("www.example.com", DNS_MX),
			    "NOERROR aa ns " SOA("60"));
	/* A name between others exists (RFC 4592 2.2.2). */
	assert_string_equal(ask_query("between.example.com", DNS_A),
			    "NOERROR aa ns " SOA("60"));
}

static void test_wildcard_stands_for_missing_names_only(void **state)
{
	assert_string_equal(ask_query("x.stars.example.com", DNS_A),
			    "NOERROR aa an x.stars.example.com. 300 IN A "
			    "192.0.2.5;");
	assert_string_equal(
		ask_query("long.name.below.stars.example.com", DNS_MX),
		"NOERROR aa an long.name.below.stars.example.com. 300 IN MX 5 "
		"mail.stars.example.com.;");
	/* The name in its data is not the question's. */
	assert_string_equal(ask_query("x.stars.example.com", DNS_PTR),
			    "NOERROR aa an x.stars.example.com. 300 IN PTR "
			    "*.stars.example.com.;");
	assert_string_equal(ask_query("*.stars.example.com", DNS_A),
			    "NOERROR aa an *.stars.example.com. 300 IN A "
			    "192.0.2.5;");
	assert_string_equal(ask_query("x.stars.example.com", DNS_AAAA),
			    "NOERROR aa ns " SOA("60"));
	assert_string_equal(ask_query("is.stars.example.com", DNS_A),
			    "NOERROR aa ns " SOA("60"));
	assert_string_equal(ask_query("x.is.stars.example.com", DNS_A),
			    "NXDOMAIN aa ns " SOA("60"));
	assert_string_equal(ask_query("abc.far.example.com", DNS_A),
			    "NOERROR aa an abc.far.example.com. 300 IN CNAME "
			    "away.example.com.;away.example.com. 300 IN CNAME "
			    "www.example.net.;");
}

static void test_wildcard_answers_the_longest_name(void **state)
{
	char name[256] = "", expected[600];

	while (strlen(name) < 234)
		strcat(name, "a.");
	strcat(name, "stars.example.com"); /* 251, so 253 in wire format */
	snprintf(expected, sizeof(expected),
		 "NOERROR aa an %s. 300 IN MX 5 mail.stars.example.com.;",
		 name);
	assert_string_equal(ask_query(name, DNS_MX), expected);
	name[strlen(name) - strlen(".stars.example.com")] = 0;
	strcat(name, "bb.example.com");
	assert_string_equal(ask_query(name, DNS_MX),
			    "NXDOMAIN aa ns " SOA("60"));
}

#define REFERRAL                                                               \
	"NOERROR ns sub.example.com. 300 IN NS ns.sub.example.com.;"           \
	"sub.example.com. 300 IN NS ns1.example.com.;"                         \
	" ar ns.sub.example.com. 300 IN A 192.0.2.7;"                          \
	"ns1.example.com. 300 IN A 192.0.2.1;"                                 \
	"ns1.example.com. 300 IN AAAA 2001:db8::1;"

static void test_names_below_a_delegation_are_referred(void **state)
{
	assert_string_equal(ask_query("sub.example.com", DNS_A), REFERRAL);
	assert_string_equal(ask_query("sub.example.com", DNS_NS), REFERRAL);
	assert_string_equal(ask_query("a.b.c.sub.example.com", DNS_A),
			    REFERRAL);
	assert_string_equal(ask_query("hidden.sub.example.com", DNS_A),
			    REFERRAL);
	assert_string_equal(ask_query("ns.sub.example.com", DNS_A), REFERRAL);
	assert_string_equal(ask_query("x.sub.example.com", DNS_DS), REFERRAL);
	ask_query("sub.example.com",
		  DNS_DS); /* the parent's (RFC 4035 3.1.4.1) */
	assert_non_null(strstr(text, "NOERROR aa an sub.example.com. 300 IN "
				     "DS 1 8 2 "));
}

static void test_any_gets_one_set(void **state)
{
	assert_string_equal(ask_query("mail.example.com", DNS_ANY),
			    "NOERROR aa an mail.example.com. 300 IN A "
			    "192.0.2.2;");
	assert_string_equal(ask_query("between.example.com", DNS_ANY),
			    "NOERROR aa ns " SOA("60"));
}

static void test_zone_with_the_longest_apex_answers(void **state)
{
	static const char inner[] = "@ 300 IN SOA . . 1 2 3 4 5\n"
				    "@ 300 IN NS .\n";
	char error[ZONE_ERROR_MAX];
	struct zone *zone =
		dns_zone_from("SUB.example.com", inner, strlen(inner), error);

	assert_non_null(zone);
	assert_int_equal(zones_add(zones, zone), 0);
	assert_int_equal(zones_add(zones, zone), -EEXIST);
	assert_string_equal(ask_query("a.sub.example.com", DNS_A),
			    "NXDOMAIN aa ns sub.example.com. 5 IN SOA . . 1 2 "
			    "3 4 5;");
	assert_string_equal(ask_query("sub.example.com", DNS_NS),
			    "NOERROR aa an sub.example.com. 300 IN NS .;");
	ask_query("sub.example.com", DNS_DS);
	assert_non_null(strstr(text, " IN DS 1 8 2 "));
	assert_string_equal(ask_query("xsub.example.com", DNS_A),
			    "NXDOMAIN aa ns " SOA("60"));
}

static void test_root_zone_is_served(void **state)
{
	serve_zone(".", "@ 9 IN SOA a. b. 1 2 3 4 5\n@ 9 IN NS a.\n"
			"a. 9 IN A 192.0.2.9\ncom. 9 IN NS ns.com.\n");
	assert_string_equal(ask_query(".", DNS_NS),
			    "NOERROR aa an . 9 IN NS a.; ar "
			    "a. 9 IN A 192.0.2.9;");
	assert_string_equal(ask_query("www.example.com.", DNS_A),
			    "NOERROR ns com. 9 IN NS ns.com.;");
	assert_string_equal(ask_query("b.", DNS_A),
			    "NXDOMAIN aa ns . 5 IN SOA a. b. 1 2 3 4 5;");
}

/* ---- queries ---- */

static void test_foreign_names_and_transfers_are_refused(void **state)
{
	uint8_t msg[512];
	size_t len;

	assert_string_equal(ask_query("example.net", DNS_A), "REFUSED");
	assert_string_equal(ask_query("com", DNS_A), "REFUSED");
	assert_string_equal(ask_query("example.com", DNS_AXFR), "REFUSED");
	assert_string_equal(ask_query("example.com", DNS_IXFR), "REFUSED");
	len = dns_make_query(msg, "example.com", DNS_A, 0);
	msg[len - 1] = 3; /* class CH */
	send_query(msg, len, DNS_OVER_UDP);
	assert_string_equal(as_text(), "REFUSED");
}

static void test_other_opcodes_are_not_implemented(void **state)
{
	uint8_t msg[512];
	size_t len = dns_make_query(msg, "example.com", DNS_SOA, 0);

	for (unsigned opcode = 1; opcode < 16; opcode++) {
		msg[2] = (uint8_t)(opcode << 3);
		send_query(msg, len, DNS_OVER_UDP);
		assert_int_equal(outcome.rcode, DNS_NOTIMP);
		assert_int_equal(answer_len, DNS_HEADER_BYTES);
		assert_int_equal(answer[2] >> 3 & 15, opcode);
		assert_int_equal(answer[5], 0);
	}
}

static void test_answers_and_fragments_get_no_answer(void **state)
{
	uint8_t msg[512];
	size_t len = dns_make_query(msg, "example.com", DNS_SOA, 0);

	for (size_t i = 0; i < DNS_HEADER_BYTES; i++) {
		send_query(msg, i, DNS_OVER_UDP);
		assert_int_equal(answer_len, 0);
	}
	msg[2] |= 0x80;
	send_query(msg, len, DNS_OVER_UDP);
	assert_int_equal(answer_len, 0);
}

static void test_cut_query_is_a_format_error(void **state)
{
	uint8_t msg[512];
	size_t len = dns_make_query(msg, "www.example.com", DNS_A, 1232);

	for (size_t i = DNS_HEADER_BYTES; i < len; i++) {
		send_query(msg, i, DNS_OVER_UDP);
		assert_int_equal(outcome.rcode, DNS_FORMERR);
	}
	send_query(msg, len, DNS_OVER_UDP);
	assert_int_equal(outcome.rcode, DNS_NOERROR);
	msg[len] = 0;
	send_query(msg, len + 1, DNS_OVER_UDP);
	assert_int_equal(outcome.rcode, DNS_FORMERR);
}

static void test_wrong_names_and_counts_are_format_errors(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
	} wrong[] = {{12, 0xc0}, {12, 0x40}, {12, 255}, {5, 0},
		     {5, 2},	 {7, 1},     {11, 17},	{4, 1}};
	uint8_t msg[512];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		size_t len = dns_make_query(msg, "www.example.com", DNS_A, 0);

		msg[wrong[i].at] = wrong[i].value;
		send_query(msg, len, DNS_OVER_UDP);
		assert_int_equal(outcome.rcode, DNS_FORMERR);
	}
}

static void test_query_with_too_many_records_is_a_format_error(void **state)
{
	uint8_t msg[512];
	size_t len = dns_make_query(msg, "www.example.com", DNS_A, 0);

	/* Each of them is the root's TXT, without data. */
	for (unsigned n = 1; n <= DNS_RECORDS_MAX + 1; n++) {
		msg[11] = (uint8_t)n;
		memset(msg + len, 0, 11);
		dns_put16(msg + len + 1, 16);
		len += 11;
		send_query(msg, len, DNS_OVER_UDP);
		assert_int_equal(outcome.rcode, n <= DNS_RECORDS_MAX
							? DNS_NOERROR
							: DNS_FORMERR);
	}
}

static void test_longest_name_is_read_and_a_longer_one_is_not(void **state)
{
	uint8_t wire[300] = {0};
	struct dns_name name;

	for (unsigned i = 0; i < 127; i++)
		memcpy(wire + 2 * i, "\001a", 2);
	assert_int_equal(dns_name_read(wire, sizeof(wire), &name), 255);
	assert_int_equal(name.n_labels, 127);
	memcpy(wire + 254, "\001a", 2);
	assert_int_equal(dns_name_read(wire, sizeof(wire), &name), 0);
}

/* ---- EDNS, truncation ---- */

/* A zone whose name "big" has n records, and whose MX has that one. */
static void serve_big(unsigned n)
{
	char *at = text + sprintf(text, "@ 9 IN SOA a. b. 1 2 3 4 5\n"
					"@ 9 IN NS a.\n@ 9 IN MX 1 big\n"
					"*.w 9 IN MX 1 big\n");

	for (unsigned i = 0; i < n; i++)
		at += sprintf(at, "big 9 IN A 10.0.%u.%u\n", i / 256, i % 256);
	serve_zone("example.com", text);
}

static void test_edns_is_answered_with_edns(void **state)
{
	uint8_t msg[512];
	size_t len = dns_make_query(msg, "www.example.com", DNS_A, 4096);
	const uint8_t *opt;

	msg[len - 4] = 0x80; /* DO */
	send_query(msg, len, DNS_OVER_UDP);
	opt = answer + answer_len - DNS_OPT_BYTES;
	assert_int_equal(answer[11], 1);
	assert_int_equal(dns_get16(opt + 1), DNS_OPT);
	assert_int_equal(dns_get16(opt + 3), 1232);
	assert_int_equal(opt[7], 0x80);
	msg[len - 5] = 1; /* version */
	send_query(msg, len, DNS_OVER_UDP);
	opt = answer + answer_len - DNS_OPT_BYTES;
	assert_int_equal(outcome.rcode, DNS_BADVERS);
	assert_int_equal(opt[5], 1);
	assert_int_equal(opt[6], 0);
	assert_int_equal(answer[3] & 15, 0);
}

static void test_second_or_misplaced_opt_is_a_format_error(void **state)
{
	uint8_t msg[512];
	size_t len = dns_make_query(msg, "www.example.com", DNS_A, 4096);

	memcpy(msg + len, msg + len - DNS_OPT_BYTES, DNS_OPT_BYTES);
	msg[11] = 2;
	send_query(msg, len + DNS_OPT_BYTES, DNS_OVER_UDP);
	assert_int_equal(outcome.rcode, DNS_FORMERR);
	msg[11] = 0;
	msg[7] = 1; /* in the answer section */
	send_query(msg, len, DNS_OVER_UDP);
	assert_int_equal(outcome.rcode, DNS_FORMERR);
}

static void test_opt_of_another_name_than_the_root_is_a_format_error(void **s)
{
	uint8_t msg[512];
	size_t len = dns_make_query(msg, "www.example.com", DNS_A, 4096);
	size_t at = len - DNS_OPT_BYTES;

	/* A pointer, to the question's name and then to its root. */
	memmove(msg + at + 2, msg + at + 1, DNS_OPT_BYTES - 1);
	dns_put16(msg + at, 0xc00c);
	send_query(msg, len + 1, DNS_OVER_UDP);
	assert_int_equal(outcome.rcode, DNS_FORMERR);
	dns_put16(msg + at, 0xc000 | (unsigned)(at - 5));
	send_query(msg, len + 1, DNS_OVER_UDP);
	assert_int_equal(outcome.rcode, DNS_FORMERR);
}

static void test_edns_size_below_512_counts_as_512(void **state)
{
	serve_big(25); /* 433 bytes with OPT */
	ask_udp("big.example.com", DNS_A, 1);
	assert_null(strstr(text, " tc"));
	assert_int_equal(dns_get16(answer + 6), 25);
}

static void test_long_answer_is_truncated_over_udp_only(void **state)
{
	serve_big(60); /* 16 bytes each */
	assert_string_equal(ask_udp("big.example.com", DNS_A, 0),
			    "NOERROR aa tc");
	assert_int_equal(answer_len, DNS_HEADER_BYTES + 17 + 4);
	ask_udp("big.example.com", DNS_A, 900);
	assert_non_null(strstr(text, "NOERROR aa tc"));
	ask_udp("big.example.com", DNS_A, 1232);
	assert_null(strstr(text, "NOERROR aa tc"));
	assert_int_equal(dns_get16(answer + 6), 60);
	ask_query("big.example.com", DNS_A);
	assert_int_equal(dns_get16(answer + 6), 60);
	serve_big(100);
	ask_udp("big.example.com", DNS_A, 65535);
	assert_non_null(strstr(text, "NOERROR aa tc"));
	assert_true(answer_len < 1232);
}

static void test_answer_never_exceeds_its_room(void **state)
{
	uint8_t msg[512], *room;
	size_t len;

	serve_big(60);
	for (size_t size = DNS_UDP_PLAIN; size <= DNS_UDP_EDNS; size++) {
		bool is_mx = size & 1;

		len = dns_make_query(
			msg, is_mx ? "x.w.example.com" : "big.example.com",
			is_mx ? DNS_MX : DNS_A, (unsigned)size);
		room = malloc(size); /* ASan sees writes beyond it */
		len = dns_answer(zones, msg, len, DNS_OVER_UDP, room, size,
				 &outcome);
		assert_in_range(len, DNS_HEADER_BYTES, size);
		free(room);
	}
}

static void test_addresses_are_left_out_before_truncation(void **state)
{
	serve_big(60);
	assert_string_equal(ask_udp("example.com", DNS_MX, 0),
			    "NOERROR aa an example.com. 9 IN MX 1 "
			    "big.example.com.;");
	ask_query("example.com", DNS_MX);
	assert_int_equal(dns_get16(answer + 10), 60);
}

/* Servers without their glue are of no use (RFC 9471). */
static void test_referral_without_room_for_glue_is_truncated(void **state)
{
	char *at = text + sprintf(text, "@ 9 IN SOA a. b. 1 2 3 4 5\n"
					"@ 9 IN NS a.\nsub 9 IN NS ns.sub\n");

	for (unsigned i = 0; i < 40; i++)
		at += sprintf(at, "ns.sub 9 IN A 10.0.0.%u\n", i);
	serve_zone("example.com", text);
	assert_string_equal(ask_udp("x.sub.example.com", DNS_A, 0),
			    "NOERROR tc");
	ask_udp("x.sub.example.com", DNS_A, 1232);
	assert_int_equal(dns_get16(answer + 10), 41); /* with OPT */
}

static void test_slipped_answer_has_no_records(void **state)
{
	uint8_t msg[512];

	send_query(msg, dns_make_query(msg, "www.example.com", DNS_A, 0),
		   DNS_TRUNCATED_UDP);
	assert_string_equal(as_text(), "NOERROR aa tc");
	send_query(msg, dns_make_query(msg, "www.example.net", DNS_A, 0),
		   DNS_TRUNCATED_UDP);
	assert_string_equal(as_text(), "REFUSED"); /* has none anyway */
}

/* ---- size ---- */

static void test_every_name_of_a_large_zone_is_found(void **state)
{
	size_t len = 3000000;
	char *big = malloc(len), *at = big, name[64];

	at += sprintf(at, "@ 9 IN SOA a. b. 1 2 3 4 5\n@ 9 IN NS a.\n");
	for (unsigned i = 0; i < 20000; i++)
		at += sprintf(at, "h%u.n%u 9 IN A 10.0.%u.%u\n", i, i % 7,
			      i / 256, i % 256);
	serve_zone("example.com", big);
	free(big);
	assert_int_equal(zones->zone[0]->n_nodes, 20008);
	for (unsigned i = 0; i < 20000; i++) {
		uint8_t msg[512];

		sprintf(name, "h%u.n%u.example.com", i, i % 7);
		send_query(msg, dns_make_query(msg, name, DNS_A, 0),
			   DNS_OVER_UDP);
		assert_int_equal(dns_get16(answer + 6), 1);
		assert_int_equal(dns_get16(answer + answer_len - 2), i);
		name[0] = 'g';
		send_query(msg, dns_make_query(msg, name, DNS_A, 0),
			   DNS_OVER_UDP);
		assert_int_equal(outcome.rcode, DNS_NXDOMAIN);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_records_of_a_name_are_answered),
		TEST(test_default_ttl_may_be_zero),
		TEST(test_case_of_the_question_is_kept_and_does_not_matter),
		TEST(test_addresses_of_servers_are_added_once),
		TEST(test_negative_answers_have_the_soa),
		TEST(test_wildcard_stands_for_missing_names_only),
		TEST(test_wildcard_answers_the_longest_name),
		TEST(test_names_below_a_delegation_are_referred),
		TEST(test_any_gets_one_set),
		TEST(test_zone_with_the_longest_apex_answers),
		TEST(test_root_zone_is_served),
		TEST(test_foreign_names_and_transfers_are_refused),
		TEST(test_other_opcodes_are_not_implemented),
		TEST(test_answers_and_fragments_get_no_answer),
		TEST(test_cut_query_is_a_format_error),
		TEST(test_wrong_names_and_counts_are_format_errors),
		TEST(test_query_with_too_many_records_is_a_format_error),
		TEST(test_answer_never_exceeds_its_room),
		TEST(test_longest_name_is_read_and_a_longer_one_is_not),
		TEST(test_edns_is_answered_with_edns),
		TEST(test_second_or_misplaced_opt_is_a_format_error),
		TEST(test_opt_of_another_name_than_the_root_is_a_format_error),
		TEST(test_edns_size_below_512_counts_as_512),
		TEST(test_long_answer_is_truncated_over_udp_only),
		TEST(test_addresses_are_left_out_before_truncation),
		TEST(test_referral_without_room_for_glue_is_truncated),
		TEST(test_slipped_answer_has_no_records),
		TEST(test_every_name_of_a_large_zone_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
