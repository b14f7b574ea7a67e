/*
 * What a handshake has agreed on, and why a connection has failed.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *net_tls_error(const struct net_conn *conn)
{
	NET_CHECK_CONN(conn);
	if (!conn)
		return net_tls_last_error();
	if (!net_is_tls(conn) || !net_tls_of(conn)->error)
		return "";
	return net_tls_of(conn)->error;
}

static void copy_text(char *to, size_t room, const char *text)
{
	snprintf(to, room, "%s", text ? text : "");
}

static void copy_subject(X509 *cert, struct net_tls_info *out)
{
	X509_NAME *subject = X509_get_subject_name(cert);
	BIO *text = BIO_new(BIO_s_mem());
	int at = -1, next, n;

	if (text &&
	    X509_NAME_print_ex(text, subject, 0, XN_FLAG_RFC2253) >= 0) {
		n = BIO_read(text, out->peer_subject,
			     sizeof(out->peer_subject) - 1);
		out->peer_subject[LWIP_MAX(n, 0)] = '\0';
	}
	BIO_free(text);
	while ((next = X509_NAME_get_index_by_NID(subject, NID_commonName,
						  at)) >= 0)
		at = next;
	if (at >= 0) {
		ASN1_STRING *name = X509_NAME_ENTRY_get_data(
			X509_NAME_get_entry(subject, at));
		unsigned char *utf8 = NULL;

		n = ASN1_STRING_to_UTF8(&utf8, name);
		/* Cut, or with a NUL in it, it would look like another. */
		if (n > 0 && n < (int)sizeof(out->peer_name) &&
		    strnlen((char *)utf8, (size_t)n) == (size_t)n)
			snprintf(out->peer_name, sizeof(out->peer_name), "%.*s",
				 n, (const char *)utf8);
		OPENSSL_free(utf8);
	}
}

static void copy_peer(const struct net_tls_session *s, struct net_tls_info *out)
{
	X509 *cert = SSL_get0_peer_certificate(s->ssl);
	unsigned len = sizeof(out->peer_sha256);

	if (!cert)
		return;
	out->peer_verified = SSL_get_verify_mode(s->ssl) != SSL_VERIFY_NONE &&
			     SSL_get_verify_result(s->ssl) == X509_V_OK;
	copy_subject(cert, out);
	X509_digest(cert, EVP_sha256(), out->peer_sha256, &len);
}

int net_tls_info(const struct net_conn *conn, struct net_tls_info *out)
{
	const unsigned char *alpn;
	struct net_tls_session *s;
	unsigned len;

	NET_CHECK_CONN(conn);
	if (!conn || !conn->owned)
		return -EBADF;
	if (!out)
		return -EINVAL;
	s = net_is_tls(conn) ? net_tls_of(conn) : NULL;
	if (!s || !s->ssl || !s->is_established)
		return -ENOTCONN;
	*out = (struct net_tls_info){0};
	copy_text(out->version, sizeof(out->version), SSL_get_version(s->ssl));
	copy_text(out->cipher, sizeof(out->cipher),
		  SSL_get_cipher_name(s->ssl));
	SSL_get0_alpn_selected(s->ssl, &alpn, &len);
	snprintf(out->alpn, sizeof(out->alpn), "%.*s", (int)len,
		 (const char *)alpn);
	copy_text(out->server_name, sizeof(out->server_name),
		  SSL_get_servername(s->ssl, TLSEXT_NAMETYPE_host_name));
	out->resumed = SSL_session_reused(s->ssl) == 1;
	copy_peer(s, out);
	ERR_clear_error();
	return 0;
}
