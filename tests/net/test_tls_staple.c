/*
 * OCSP stapling: which files a server takes, and what a client gets.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/ocsp.h>
#include <openssl/pem.h>

#include "netstack/tls/tls_priv.h"
#include "tests/net/tls_pair.h"

static char file_name[] = "/tmp/coronet-test-ocsp.XXXXXX";
static long staple_bytes; /* that the client got; -1: none */

/* ---- responses ---- */

static X509 *read_cert(const char *name)
{
	FILE *file = fopen(cert_path(name), "r");
	X509 *cert;

	assert_non_null(file);
	cert = PEM_read_X509(file, NULL, NULL, NULL);
	fclose(file);
	assert_non_null(cert);
	return cert;
}

static EVP_PKEY *read_key(const char *name)
{
	FILE *file = fopen(cert_path(name), "r");
	EVP_PKEY *key;

	assert_non_null(file);
	key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
	fclose(file);
	assert_non_null(key);
	return key;
}

/* Says that the certificate is good for `seconds` from now; 0: for ever. */
static OCSP_BASICRESP *new_answer(const char *name, long seconds)
{
	OCSP_BASICRESP *basic = OCSP_BASICRESP_new();
	X509 *cert = read_cert(name), *ca = read_cert("ca.pem");
	OCSP_CERTID *id = OCSP_cert_to_id(EVP_sha1(), cert, ca);
	ASN1_TIME *now = X509_gmtime_adj(NULL, -60);
	ASN1_TIME *next = seconds ? X509_gmtime_adj(NULL, seconds) : NULL;
	EVP_PKEY *key;

	assert_non_null(OCSP_basic_add1_status(
		basic, id, V_OCSP_CERTSTATUS_GOOD, 0, NULL, now, next));
	key = read_key("ca.key");
	assert_int_equal(OCSP_basic_sign(basic, ca, key, EVP_sha256(), NULL, 0),
			 1);
	EVP_PKEY_free(key);
	ASN1_TIME_free(next);
	ASN1_TIME_free(now);
	OCSP_CERTID_free(id);
	X509_free(ca);
	X509_free(cert);
	return basic;
}

static void write_answer(const char *name, long seconds, int status)
{
	OCSP_BASICRESP *basic = new_answer(name, seconds);
	OCSP_RESPONSE *response = OCSP_response_create(
		status,
		status == OCSP_RESPONSE_STATUS_SUCCESSFUL ? basic : NULL);
	unsigned char *der = NULL;
	int len = i2d_OCSP_RESPONSE(response, &der);
	FILE *file = fopen(file_name, "w");

	assert_true(len > 0);
	assert_non_null(file);
	assert_int_equal(fwrite(der, 1, (size_t)len, file), (size_t)len);
	assert_int_equal(fclose(file), 0);
	OPENSSL_free(der);
	OCSP_RESPONSE_free(response);
	OCSP_BASICRESP_free(basic);
	server_opts.ocsp[0] = file_name;
}

static void write_good(void)
{
	write_answer("server.pem", 3600, OCSP_RESPONSE_STATUS_SUCCESSFUL);
}

/* ---- lives ---- */

static void note_staple(struct net_conn *conn, void *arg)
{
	const unsigned char *der;

	staple_bytes =
		SSL_get_tlsext_status_ocsp_resp(net_tls_of(conn)->ssl, &der);
	net_shutdown(conn, NET_SHUT_WR);
}

/* Returns the bytes of the response that a client gets, or -1. */
static long staple_for(bool asks)
{
	if (asks)
		SSL_CTX_set_tlsext_status_type(client_tls->pairs[0],
					       TLSEXT_STATUSTYPE_ocsp);
	staple_bytes = -2;
	tls_run(echo_end, note_staple);
	assert_int_equal(dialed, 0);
	return staple_bytes;
}

static void expect_refused(const char *why)
{
	struct net_tls *tls = NULL;

	assert_int_equal(net_tls_server(&server_opts, &tls), -EINVAL);
	assert_non_null(strstr(server_opts.error, file_name));
	if (!strstr(server_opts.error, why))
		fail_msg("%s: %s", why, server_opts.error);
}

static void test_client_that_asks_gets_it(void **state)
{
	write_good();
	tls_remake();
	assert_int_equal(staple_for(false), -1);
	assert_int_equal(staple_for(true), server_tls->staples[0]->len);
	assert_in_range(staple_bytes, 100, 4000);
}

static void test_no_file_no_response(void **state)
{
	assert_int_equal(staple_for(true), -1);
}

static void test_expired_response_is_not_sent(void **state)
{
	write_good();
	tls_remake();
	server_tls->staples[0]->until = time(NULL);
	assert_int_equal(staple_for(true), -1);
	server_tls->staples[0]->until = time(NULL) + 100;
	assert_true(staple_for(true) > 0);
}

/* The response belongs to the certificate that the client's name chooses. */
static void test_response_follows_the_name(void **state)
{
	write_answer("www.pem", 3600, OCSP_RESPONSE_STATUS_SUCCESSFUL);
	server_opts.ocsp[1] = server_opts.ocsp[0];
	server_opts.ocsp[0] = NULL;
	server_opts.pairs[1] = (struct net_tls_pair){cert_path("www.pem"),
						     cert_path("www.key")};
	server_opts.n_pairs = 2;
	tls_remake();
	assert_int_equal(staple_for(true), -1);
	dial_opts.tls_name = "www.wild.test";
	assert_true(staple_for(true) > 0);
}

static void test_wrong_files_are_refused(void **state)
{
	FILE *file;

	write_answer("server.pem", -10, OCSP_RESPONSE_STATUS_SUCCESSFUL);
	expect_refused("it has expired");
	write_answer("server.pem", 0, OCSP_RESPONSE_STATUS_SUCCESSFUL);
	expect_refused("it has no end");
	write_answer("www.pem", 3600, OCSP_RESPONSE_STATUS_SUCCESSFUL);
	expect_refused("it is for another certificate");
	write_answer("server.pem", 3600, OCSP_RESPONSE_STATUS_TRYLATER);
	expect_refused("it is no successful OCSP response");
	write_good();
	assert_int_equal(truncate(file_name, 100), 0);
	expect_refused("it is no successful OCSP response");
	assert_int_equal(truncate(file_name, 0), 0);
	expect_refused("it is no successful OCSP response");
	file = fopen(file_name, "w");
	assert_non_null(file);
	for (int i = 0; i < 100000; i++)
		fputc(0x30, file);
	fclose(file);
	expect_refused("it is no successful OCSP response");
	unlink(file_name);
	assert_int_equal(net_tls_server(&server_opts, &(struct net_tls *){0}),
			 -ENOENT);
	assert_non_null(strstr(server_opts.error, file_name));
	server_opts.ocsp[0] = NULL;
}

#define CASE(name)                                                             \
	cmocka_unit_test_setup_teardown(name, tls_setup, tls_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		CASE(test_client_that_asks_gets_it),
		CASE(test_no_file_no_response),
		CASE(test_expired_response_is_not_sent),
		CASE(test_response_follows_the_name),
		CASE(test_wrong_files_are_refused),
	};
	int fd = mkstemp(file_name), failed;

	if (fd < 0)
		return 1;
	close(fd);
	failed = cmocka_run_group_tests_name("tls_staple", tests, NULL, NULL);
	unlink(file_name);
	return failed;
}
