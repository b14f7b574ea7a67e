/*
 * OCSP responses that a server sends with its certificate (RFC 6066 8, "OCSP
 * stapling"): read from a file, sent to clients that ask for them, until they
 * expire.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/ocsp.h>

#define STAPLE_MAX 65536 /* bytes of a file */

/* OpenSSL's callback for a client that asks. */
static int send_staple(SSL *ssl, void *arg)
{
	const struct net_tls_staple *staple = arg;
	unsigned char *copy;

	if (time(NULL) >= staple->until)
		return SSL_TLSEXT_ERR_NOACK;
	copy = OPENSSL_memdup(staple->der, (size_t)staple->len);
	if (!copy)
		return SSL_TLSEXT_ERR_NOACK;
	SSL_set_tlsext_status_ocsp_resp(ssl, copy, staple->len);
	return SSL_TLSEXT_ERR_OK;
}

/* The response of a certificate, or NULL. */
static OCSP_SINGLERESP *find_single(OCSP_BASICRESP *basic, X509 *cert)
{
	for (int i = 0; i < OCSP_resp_count(basic); i++) {
		OCSP_SINGLERESP *single = OCSP_resp_get0(basic, i);
		ASN1_INTEGER *serial;

		OCSP_id_get0_info(NULL, NULL, NULL, &serial,
				  (OCSP_CERTID *)(uintptr_t)
					  OCSP_SINGLERESP_get0_id(single));
		if (ASN1_INTEGER_cmp(serial, X509_get0_serialNumber(cert)) == 0)
			return single;
	}
	return NULL;
}

/* Returns NULL and sets *until, or what is wrong with a response. */
static const char *check_basic(OCSP_BASICRESP *basic, X509 *cert, time_t *until)
{
	OCSP_SINGLERESP *single = find_single(basic, cert);
	ASN1_GENERALIZEDTIME *next = NULL;
	struct tm end;

	if (!single)
		return "it is for another certificate";
	OCSP_single_get0_status(single, NULL, NULL, NULL, &next);
	if (!next || ASN1_TIME_to_tm(next, &end) != 1)
		return "it has no end (nextUpdate)";
	*until = timegm(&end);
	return time(NULL) >= *until ? "it has expired" : NULL;
}

static const char *check_response(const unsigned char *der, int len, X509 *cert,
				  time_t *until)
{
	OCSP_RESPONSE *response = d2i_OCSP_RESPONSE(NULL, &der, len);
	OCSP_BASICRESP *basic = NULL;
	const char *why = "it is no successful OCSP response in DER";

	if (response &&
	    OCSP_response_status(response) == OCSP_RESPONSE_STATUS_SUCCESSFUL)
		basic = OCSP_response_get1_basic(response);
	if (basic)
		why = check_basic(basic, cert, until);
	OCSP_BASICRESP_free(basic);
	OCSP_RESPONSE_free(response);
	ERR_clear_error();
	return why;
}

int net_tls_staple(SSL_CTX *ctx, const char *path, struct net_tls_staple **out,
		   const char **why)
{
	struct net_tls_staple *staple = calloc(1, sizeof(*staple) + STAPLE_MAX);
	FILE *file = staple ? fopen(path, "re") : NULL;
	int err = staple ? -errno : -ENOMEM;

	*why = NULL;
	if (file) {
		staple->len = (int)fread(staple->der, 1, STAPLE_MAX, file);
		fclose(file);
		*why = check_response(staple->der, staple->len,
				      SSL_CTX_get0_certificate(ctx),
				      &staple->until);
		err = *why ? -EINVAL : 0;
	}
	if (err < 0) {
		free(staple);
		return err;
	}
	SSL_CTX_set_tlsext_status_cb(ctx, send_staple);
	SSL_CTX_set_tlsext_status_arg(ctx, staple);
	*out = staple;
	return 0;
}
