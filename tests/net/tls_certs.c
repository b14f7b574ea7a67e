/* Makes a CA and what it signs: P-256, which is fast. */
#include "tests/net/tls_certs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define DAY_S 86400

struct signer {
	X509 *cert;
	EVP_PKEY *key;
};

static char folder[] = "/tmp/coronet-tls.XXXXXX";
static const struct {
	const char *file, *subject, *names;
} wanted[] = {
#define CERT(file, subject, names) {file, subject, names},
	CERT_FILES
#undef CERT
};
#define N_CERTS (sizeof(wanted) / sizeof(wanted[0]))

const char *cert_path(const char *file)
{
	static char paths[32][64];
	static unsigned n;
	char *path = paths[n++ % 32];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, file);
	return path;
}

static FILE *open_file(const char *name, const char *suffix)
{
	char file[32];
	FILE *out;

	snprintf(file, sizeof(file), "%s.%s", name, suffix);
	out = fopen(cert_path(file), "w");
	assert_non_null(out);
	return out;
}

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509_EXTENSION *extension;
	X509V3_CTX ctx;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(extension);
	X509_add_ext(cert, extension, -1);
	X509_EXTENSION_free(extension);
}

/* signed_by NULL: it signs itself, and is a CA. */
static struct signer make_cert(unsigned serial, const char *subject,
			       const char *names,
			       const struct signer *signed_by)
{
	struct signer made = {X509_new(), EVP_EC_gen("P-256")};
	X509_NAME *name = X509_get_subject_name(made.cert);
	X509 *issuer = signed_by ? signed_by->cert : made.cert;
	bool expired = strcmp(subject, "expired") == 0;

	X509_set_version(made.cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(made.cert), serial);
	X509_gmtime_adj(X509_getm_notBefore(made.cert), -2 * DAY_S);
	X509_gmtime_adj(X509_getm_notAfter(made.cert),
			expired ? -DAY_S : 2 * DAY_S);
	X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC,
				   (const unsigned char *)"coronet", -1, -1, 0);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
				   (const unsigned char *)subject, -1, -1, 0);
	X509_set_issuer_name(made.cert, X509_get_subject_name(issuer));
	X509_set_pubkey(made.cert, made.key);
	add_extension(made.cert, issuer, NID_basic_constraints,
		      signed_by ? "CA:FALSE" : "critical,CA:TRUE");
	if (names)
		add_extension(made.cert, issuer, NID_subject_alt_name, names);
	assert_true(X509_sign(made.cert, signed_by ? signed_by->key : made.key,
			      EVP_sha256()) > 0);
	return made;
}

static void write_cert(const char *file, const struct signer *made)
{
	FILE *out = open_file(file, "pem");

	assert_int_equal(PEM_write_X509(out, made->cert), 1);
	fclose(out);
	out = open_file(file, "key");
	assert_int_equal(
		PEM_write_PrivateKey(out, made->key, NULL, NULL, 0, NULL, NULL),
		1);
	fclose(out);
}

static void remove_files(void)
{
	char file[32];

	for (unsigned i = 0; i < N_CERTS; i++) {
		snprintf(file, sizeof(file), "%s.pem", wanted[i].file);
		unlink(cert_path(file));
		snprintf(file, sizeof(file), "%s.key", wanted[i].file);
		unlink(cert_path(file));
	}
	unlink(cert_path("chain.pem"));
	rmdir(folder);
}

static X509 *read_cert(const char *file)
{
	FILE *in = fopen(cert_path(file), "r");
	X509 *cert;

	assert_non_null(in);
	cert = PEM_read_X509(in, NULL, NULL, NULL);
	fclose(in);
	assert_non_null(cert);
	return cert;
}

const char *certs_chain(unsigned n)
{
	X509 *server = read_cert("server.pem"), *ca = read_cert("ca.pem");
	FILE *out = open_file("chain", "pem");

	assert_int_equal(PEM_write_X509(out, server), 1);
	while (n--)
		assert_int_equal(PEM_write_X509(out, ca), 1);
	fclose(out);
	X509_free(server);
	X509_free(ca);
	return cert_path("chain.pem");
}

/* The first two sign themselves; the second has signed only "alien". */
void certs_make(void)
{
	static struct signer made[N_CERTS];

	if (made[0].cert)
		return;
	assert_non_null(mkdtemp(folder));
	atexit(remove_files);
	for (unsigned i = 0; i < N_CERTS; i++) {
		bool alien = strcmp(wanted[i].file, "alien") == 0;

		made[i] = make_cert(i + 1, wanted[i].subject, wanted[i].names,
				    i < 2 ? NULL : &made[alien]);
		write_cert(wanted[i].file, &made[i]);
	}
	for (unsigned i = 0; i < N_CERTS; i++) {
		X509_free(made[i].cert);
		EVP_PKEY_free(made[i].key);
		made[i].cert = (void *)made; /* they are made */
	}
}
