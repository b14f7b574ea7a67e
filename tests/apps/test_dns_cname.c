/*
 * coronet-dns: answers for names that are CNAMEs.
 */
#include "dns_ask.h"

static void test_cnames_are_followed_inside_the_zone(void **state)
{
	assert_string_equal(
		ask_query("twice.example.com", DNS_A),
		"NOERROR aa an twice.example.com. 300 IN CNAME "
		"alias.example.com.;alias.example.com. 300 IN CNAME "
		"www.example.com.;www.example.com. 300 IN A 192.0.2.3;"
		"www.example.com. 300 IN A 192.0.2.4;");
	assert_string_equal(ask_query("alias.example.com", DNS_AAAA),
			    "NOERROR aa an alias.example.com. 300 IN CNAME "
			    "www.example.com.; ns " SOA("60"));
	assert_string_equal(ask_query("alias.example.com", DNS_CNAME),
			    "NOERROR aa an alias.example.com. 300 IN CNAME "
			    "www.example.com.;");
	assert_string_equal(ask_query("gone.example.com", DNS_A),
			    "NXDOMAIN aa an gone.example.com. 300 IN CNAME "
			    "missing.example.com.; ns " SOA("60"));
	assert_string_equal(ask_query("away.example.com", DNS_A),
			    "NOERROR aa an away.example.com. 300 IN CNAME "
			    "www.example.net.;");
}

static void test_cname_into_a_wildcard_or_delegation_is_followed(void **state)
{
	assert_string_equal(ask_query("wild.example.com", DNS_A),
			    "NOERROR aa an wild.example.com. 300 IN CNAME "
			    "a.b.stars.example.com.;a.b.stars.example.com. 300 "
			    "IN A 192.0.2.5;");
	assert_string_equal(
		ask_query("into.example.com", DNS_A),
		"NOERROR aa an into.example.com. 300 IN CNAME "
		"host.sub.example.com.;"
		" ns sub.example.com. 300 IN NS ns.sub.example.com.;"
		"sub.example.com. 300 IN NS ns1.example.com.;"
		" ar ns.sub.example.com. 300 IN A 192.0.2.7;"
		"ns1.example.com. 300 IN A 192.0.2.1;"
		"ns1.example.com. 300 IN AAAA 2001:db8::1;");
}

static void test_nsec_and_rrsig_of_a_cname_are_its_own(void **state)
{
	serve_zone("s.test",
		   "$TTL 300\n@ IN SOA a. b. 1 2 3 4 5\n@ IN NS a.\n"
		   "to IN A 192.0.2.1\nto IN NSEC z.s.test. A NSEC\n"
		   "at IN CNAME to\nat IN NSEC to.s.test. CNAME NSEC\n"
		   "at IN RRSIG CNAME 8 3 300 20300101000000 20200101000000 1 "
		   "s.test. AAAA\n"
		   "bare IN CNAME to\n");
	assert_string_equal(ask_query("at.s.test", DNS_NSEC),
			    "NOERROR aa an at.s.test. 300 IN NSEC to.s.test. "
			    "CNAME NSEC ;");
	ask_query("at.s.test", DNS_RRSIG);
	assert_non_null(strstr(text, "aa an at.s.test. 300 IN RRSIG CNAME"));
	assert_string_equal(ask_query("at.s.test", DNS_A),
			    "NOERROR aa an at.s.test. 300 IN CNAME to.s.test.;"
			    "to.s.test. 300 IN A 192.0.2.1;");
	assert_string_equal(ask_query("bare.s.test", DNS_NSEC),
			    "NOERROR aa an bare.s.test. 300 IN CNAME to.s.test."
			    ";to.s.test. 300 IN NSEC z.s.test. A NSEC ;");
}

static void test_ds_behind_a_cname_is_the_parents(void **state)
{
	serve_zone("s.test", "$TTL 300\n@ IN SOA a. b. 1 2 3 4 5\n@ IN NS a.\n"
			     "sub IN NS a.\nsub IN DS 1 8 1 "
			     "00112233445566778899aabbccddeeff00112233\n"
			     "plain IN NS a.\n"
			     "at IN CNAME sub\nunsigned IN CNAME plain\n"
			     "below IN CNAME x.sub\n");
	assert_string_equal(
		ask_query("at.s.test", DNS_DS),
		"NOERROR aa an at.s.test. 300 IN CNAME sub.s.test.;sub.s.test. "
		"300 IN DS 1 8 1 00112233445566778899aabbccddeeff00112233;");
	assert_string_equal(ask_query("unsigned.s.test", DNS_DS),
			    "NOERROR aa an unsigned.s.test. 300 IN CNAME "
			    "plain.s.test.; ns s.test. 5 IN SOA a. b. 1 2 3 4 "
			    "5;");
	assert_string_equal(ask_query("below.s.test", DNS_DS),
			    "NOERROR aa an below.s.test. 300 IN CNAME "
			    "x.sub.s.test.; ns sub.s.test. 300 IN NS a.;");
	assert_string_equal(ask_query("at.s.test", DNS_A),
			    "NOERROR aa an at.s.test. 300 IN CNAME sub.s.test."
			    "; ns sub.s.test. 300 IN NS a.;");
}

static void test_loop_of_cnames_ends(void **state)
{
	assert_string_equal(ask_query("loop1.example.com", DNS_A),
			    "NOERROR aa an loop1.example.com. 300 IN CNAME "
			    "loop2.example.com.;loop2.example.com. 300 IN "
			    "CNAME loop1.example.com.;");
}

static void test_chain_of_cnames_is_followed_to_its_bound(void **state)
{
	char *at = text + sprintf(text, "@ 9 IN SOA a. b. 1 2 3 4 5\n"
					"@ 9 IN NS a.\n");

	for (unsigned i = 0; i < ZONE_TARGETS + 1; i++)
		at += sprintf(at, "c%u 9 IN CNAME c%u\n", i, i + 1);
	sprintf(at, "c%u 9 IN A 192.0.2.1\n", ZONE_TARGETS + 1);
	serve_zone("example.com", text);
	ask_query("c2.example.com", DNS_A);
	assert_int_equal(dns_get16(answer + 6), ZONE_TARGETS);
	assert_non_null(strstr(text, "IN A 192.0.2.1"));
	ask_query("c0.example.com", DNS_A);
	assert_int_equal(outcome.rcode, DNS_NOERROR);
	assert_int_equal(dns_get16(answer + 6), ZONE_TARGETS);
	assert_null(strstr(text, "IN A 192.0.2.1"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_cnames_are_followed_inside_the_zone),
		TEST(test_cname_into_a_wildcard_or_delegation_is_followed),
		TEST(test_nsec_and_rrsig_of_a_cname_are_its_own),
		TEST(test_ds_behind_a_cname_is_the_parents),
		TEST(test_loop_of_cnames_ends),
		TEST(test_chain_of_cnames_is_followed_to_its_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
