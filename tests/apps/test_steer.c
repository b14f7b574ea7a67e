/* Access lists, connection rates of sources, and parsing of --to. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>

#include "apps/proxy/access_list.h"
#include "apps/proxy/backend_spec.h"
#include "apps/proxy/proxy_opts.h"
#include "apps/proxy/steer_opts.h"

static bool allows(const struct access_list *list, const char *text)
{
	int family = strchr(text, ':') ? 6 : 4;
	uint8_t ip[16] = {0};

	assert_int_equal(inet_pton(family == 4 ? AF_INET : AF_INET6, text, ip),
			 1);
	return access_list_allows(list, (uint8_t)family, ip);
}

static void test_longest_prefix_decides(void **state)
{
	struct access_list list = {0};

	assert_int_equal(access_list_add(&list, "10.0.0.0/8,fd00::/8", true),
			 0);
	assert_int_equal(access_list_add(&list, "10.9.0.0/16", false), 0);
	assert_int_equal(access_list_add(&list, "10.9.1.0/25,10.9.7.7", true),
			 0);
	assert_int_equal(access_list_add(&list, "fd00:9::/33", false), 0);
	access_list_ready(&list);
	assert_true(allows(&list, "10.255.255.255"));
	assert_false(allows(&list, "10.9.255.255"));
	assert_true(allows(&list, "10.9.1.127"));
	assert_false(allows(&list, "10.9.1.128"));
	assert_true(allows(&list, "10.9.7.7"));
	assert_false(allows(&list, "10.9.7.6"));
	assert_false(allows(&list, "11.0.0.0")); /* some are allowed */
	assert_true(allows(&list, "fd00:8::1"));
	assert_false(allows(&list, "fd00:9:7fff::1"));
	assert_true(allows(&list, "fd00:9:8000::1"));
	assert_false(allows(&list, "::ffff:10.1.1.1"));
	access_list_fini(&list);
}

static void test_without_allow_all_others_may(void **state)
{
	struct access_list list = {0};

	access_list_ready(&list);
	assert_true(allows(&list, "10.9.0.1"));
	assert_int_equal(access_list_add(&list, "10.9.0.0/16", false), 0);
	access_list_ready(&list);
	assert_false(allows(&list, "10.9.0.1"));
	assert_true(allows(&list, "10.8.0.1"));
	assert_true(allows(&list, "::1"));
	access_list_fini(&list);
}

static void test_deny_counts_if_a_network_is_both(void **state)
{
	struct access_list list = {0};

	assert_int_equal(access_list_add(&list, "10.0.0.0/8", true), 0);
	assert_int_equal(access_list_add(&list, "10.0.0.0/8", false), 0);
	assert_int_equal(access_list_add(&list, "0.0.0.0/0,::/0", true), 0);
	access_list_ready(&list);
	assert_int_equal(list.n, 3);
	assert_false(allows(&list, "10.0.0.1"));
	assert_true(allows(&list, "9.0.0.1"));
	assert_true(allows(&list, "9::1"));
	access_list_fini(&list);
}

static void test_all_networks_agree_with_a_plain_search(void **state)
{
	struct access_list list = {0};
	uint32_t nets[500], seed = 1;
	unsigned bits[500];

	for (int i = 0; i < 500; i++) {
		char text[32];
		struct in_addr in;

		seed = seed * 1664525 + 1013904223;
		bits[i] = 4 + (seed >> 8) % 29;
		nets[i] = seed & ~0u << (32 - bits[i]);
		in.s_addr = htonl(nets[i]);
		snprintf(text, sizeof(text), "%s/%u", inet_ntoa(in), bits[i]);
		assert_int_equal(access_list_add(&list, text, i & 1), 0);
	}
	access_list_ready(&list);
	for (int k = 0; k < 20000; k++) {
		unsigned longest = 0;
		bool expected = false;
		uint32_t ip;

		seed = seed * 1664525 + 1013904223;
		ip = k & 1 ? seed : nets[seed % 500] | (seed >> 20);
		for (int i = 0; i < 500; i++) {
			if ((ip & ~0u << (32 - bits[i])) != nets[i])
				continue;
			if (bits[i] > longest)
				expected = i & 1;
			else if (bits[i] == longest)
				expected = expected && i & 1;
			if (bits[i] > longest)
				longest = bits[i];
		}
		ip = htonl(ip);
		assert_int_equal(access_list_allows(&list, 4, &ip), expected);
	}
	access_list_fini(&list);
}

static void test_invalid_networks_are_refused(void **state)
{
	static const char *const wrong[] = {"",
					    "10.0.0.0/33",
					    "10.0.0.1/8",
					    "fd00::/129",
					    "banana",
					    "10.0.0.0/",
					    "10.0.0.0/-1",
					    "10.0.0.0/8,",
					    ",10.0.0.0/8",
					    "fd00::1/64",
					    "10.0.0.0/8/8"};
	struct access_list list = {0};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(access_list_add(&list, wrong[i], true),
				 -EINVAL);
	access_list_fini(&list);
}

static struct backend_spec spec;
static struct opt_error wrong_spec;

static void parse_spec(const char *text, struct backend_spec *out)
{
	assert_int_equal(backend_spec_parse(text, out, &wrong_spec), 0);
}

static void expect_authority(const char *backend, const char *authority)
{
	struct backend_spec parsed;
	char out[BACKEND_AUTHORITY_MAX];

	parse_spec(backend, &parsed);
	backend_spec_authority(&parsed, parsed.port, out);
	assert_string_equal(out, authority);
}

static void test_host_of_a_check_is_parsed(void **state)
{
	expect_authority("10.9.0.1:80", "10.9.0.1");
	expect_authority("10.9.0.1:8080", "10.9.0.1:8080");
	expect_authority("[fd00::1]:80", "[fd00::1]");
	expect_authority("[fd00::1]:65535", "[fd00::1]:65535");
	expect_authority("web.example:9001", "web.example:9001");
	expect_authority("web.example:443,tls=verify", "web.example");
	expect_authority("web.example:80,tls=verify", "web.example:80");
}

static void test_a_backend_with_all_its_keys(void **state)
{
	parse_spec(
		"web1=[fd00::1]:443,weight=3,maxconn=100,backup,state=drain,"
		"check=expect:+PONG\\x2c,send=PING\\r\\n,sni=A.example|*.b.org",
		&spec);
	assert_string_equal(spec.name, "web1");
	assert_string_equal(spec.host, "fd00::1");
	assert_int_equal(spec.port, 443);
	assert_int_equal(spec.weight, 3);
	assert_int_equal(spec.maxconn, 100);
	assert_true(spec.backup);
	assert_int_equal(spec.state, BACKEND_DRAIN);
	assert_string_equal(spec.expect, "+PONG,");
	assert_string_equal(spec.send, "PING\r\n");
	assert_string_equal(spec.sni, "a.example|*.b.org");
	parse_spec("10.9.0.2:53,check=udp:PONG,send=PING", &spec);
	assert_int_equal(spec.check, BACKEND_CHECK_UDP);
	assert_string_equal(spec.expect, "PONG");
	parse_spec("10.9.0.2:53,check=udp", &spec);
	assert_int_equal(spec.check, BACKEND_CHECK_UDP);
	assert_string_equal(spec.expect, "");
	parse_spec("10.9.0.2:53,check=dns", &spec);
	assert_int_equal(spec.check, BACKEND_CHECK_DNS);
	parse_spec("10.9.0.2:80,check=http:/up?x=1", &spec);
	assert_string_equal(spec.name, "10.9.0.2:80");
	assert_string_equal(spec.path, "/up?x=1");
	assert_int_equal(spec.weight, 1);
	parse_spec("10.9.0.2:443,tls=verify,tls-name=web.example", &spec);
	assert_int_equal(spec.tls, BACKEND_TLS_VERIFY);
	assert_string_equal(spec.tls_name, "web.example");
	parse_spec("10.9.0.2:443,tls=insecure,check=http", &spec);
	assert_int_equal(spec.tls, BACKEND_TLS_INSECURE);
	parse_spec("web.example.:80", &spec);
	assert_int_equal(spec.tls, BACKEND_TLS_OFF);
	assert_true(spec.by_name);
	assert_string_equal(spec.host, "web.example.");
}

static void test_invalid_backends_are_refused(void **state)
{
	static const char *const wrong[] = {
		"",
		"=10.9.0.2:80",
		"a b=10.9.0.2:80",
		"a=",
		"a=10.9.0.2",
		"a=10.9.0.256:80",
		"a=-x.example:80",
		"a=x..example:80",
		"a=1.2.3:80",
		"10.9.0.2:80,",
		"10.9.0.2:80,weight",
		"10.9.0.2:80,weight=-1",
		"10.9.0.2:80,weight=257",
		"10.9.0.2:80,maxconn=-1",
		"10.9.0.2:80,backup=yes",
		"10.9.0.2:80,state=up",
		"10.9.0.2:80,check=udp:",
		"10.9.0.2:80,check=dns:www",
		"10.9.0.2:80,check=dns,send=x",
		"10.9.0.2:80,check=http:x",
		"10.9.0.2:80,check=http:/a b",
		"10.9.0.2:80,check=http,send=x",
		"10.9.0.2:80,send=x,check=http:/a",
		"10.9.0.2:80,check=expect:",
		"10.9.0.2:80,check=expect:\\x0",
		"10.9.0.2:80,check=expect:\\x00",
		"10.9.0.2:80,send=x",
		"10.9.0.2:80,sni=",
		"10.9.0.2:80,sni=a.example|",
		"10.9.0.2:80,sni=a*.example",
		"10.9.0.2:80,tls=yes",
		"10.9.0.2:80,tls-name=web.example",
		"10.9.0.2:80,tls=verify,tls-name=10.9.0.2",
		"10.9.0.2:80,tls=verify,check=udp",
		"10.9.0.2:80,tls=verify,check=dns",
		"10.9.0.2:80,colour=red",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (backend_spec_parse(wrong[i], &spec, &wrong_spec) == 0)
			fail_msg("'%s' was taken", wrong[i]);
}

static void test_wrong_key_of_a_backend_is_named(void **state)
{
	struct opt_error error;
	static struct proxy_opts proxy;

	proxy_opts_init(&proxy);
	assert_int_equal(opt_try(&proxy_opts, "to", "10.9.0.2:80,weight=x", "",
				 &proxy, &error),
			 -EINVAL);
	assert_string_equal(error.text,
			    "--to '10.9.0.2:80,weight=x': expected weight= "
			    "with a whole number from 0 to 256, for example "
			    "--to 10.9.0.2:80");
}

static void test_listeners_have_rates(void **state)
{
	static struct proxy_opts proxy, other;
	struct opt_error error;

	proxy_opts_init(&proxy);
	proxy_opts_init(&other);
	assert_int_equal(opt_try(&proxy_opts, "listen", "udp:10.9.0.1:80", "",
				 &proxy, &error),
			 0);
	assert_int_equal(opt_try(&proxy_opts, "listen",
				 "[fd00::1]:80,rate=5,burst=9", "", &proxy,
				 &error),
			 0);
	assert_int_equal(opt_try(&proxy_opts, "listen",
				 "tls:10.9.0.1:80,rate=7", "", &proxy, &error),
			 0);
	assert_int_equal(proxy.listen_rates[0].per_s, 0);
	assert_string_equal(proxy.listen_texts[1], "[fd00::1]:80");
	assert_int_equal(proxy.listen_rates[1].per_s, 5);
	assert_int_equal(proxy.listen_rates[1].burst, 9);
	assert_string_equal(proxy.listen_texts[2], "10.9.0.1:80");
	assert_int_equal(proxy.listen_rates[2].burst, 7);
	/* The same listener in other options, whatever its keys. */
	assert_int_equal(opt_try(&proxy_opts, "listen", "10.9.0.1:80,rate=3",
				 "", &other, &error),
			 0);
	assert_int_equal(proxy_opts_find_listen(&proxy, &other, 0), -1);
	assert_int_equal(proxy_opts_find_listen(&proxy, &other, 1), -1);
	assert_int_equal(proxy_opts_find_listen(&proxy, &other, 2), 0);
	/* One that is refused leaves no trace. */
	assert_int_equal(opt_try(&proxy_opts, "listen", "10.9.0.2:80,rate=0",
				 "", &proxy, &error),
			 -EINVAL);
	assert_string_equal(
		error.text,
		"--listen '10.9.0.2:80,rate=0': expected rate= with a whole "
		"number from 1 to 1000000, for example --listen 10.9.0.1:8080");
	assert_int_equal(proxy.n_listens, 3);
}

/* A reload uses the option's own parser, and errors do not end the program. */
static void test_a_refused_option_can_be_caught(void **state)
{
	static struct proxy_opts proxy;
	struct steer_opts steer;
	struct opt_error error;

	steer_opts_init(&steer);
	proxy_opts_init(&proxy);
	assert_int_equal(opt_try(&steer_opts, "queue", "7", "", &steer, &error),
			 0);
	assert_int_equal(steer.queue, 7);
	assert_int_equal(opt_try(&steer_opts, "queue", "8\nx",
				 "--config 'f', line 3: ", &steer, &error),
			 -EINVAL);
	assert_string_equal(error.text,
			    "--config 'f', line 3: --queue '8?x': expected a "
			    "whole number from 0 to 2000000, for example "
			    "--queue 1024");
	assert_int_equal(steer.queue, 7);
	assert_int_equal(opt_try(&steer_opts, "to", "x", "", &steer, &error),
			 -ENOENT);
	assert_int_equal(opt_try(&proxy_opts, NULL, NULL, "", &proxy, &error),
			 -EINVAL);
	assert_string_equal(error.text,
			    "--to is missing: expected a backend, for "
			    "example --to 10.9.0.2:80");
	assert_int_equal(
		opt_try(&proxy_opts, "to", "a=10.9.0.2:80", "", &proxy, &error),
		0);
	assert_int_equal(opt_try(&proxy_opts, NULL, NULL, "", &proxy, &error),
			 0);
	assert_int_equal(proxy.port, 8080);
	steer_opts_fini(&steer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_longest_prefix_decides),
		cmocka_unit_test(test_without_allow_all_others_may),
		cmocka_unit_test(test_deny_counts_if_a_network_is_both),
		cmocka_unit_test(test_all_networks_agree_with_a_plain_search),
		cmocka_unit_test(test_invalid_networks_are_refused),
		cmocka_unit_test(test_host_of_a_check_is_parsed),
		cmocka_unit_test(test_a_backend_with_all_its_keys),
		cmocka_unit_test(test_invalid_backends_are_refused),
		cmocka_unit_test(test_wrong_key_of_a_backend_is_named),
		cmocka_unit_test(test_listeners_have_rates),
		cmocka_unit_test(test_a_refused_option_can_be_caught),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
