/*
 * Certificates and keys of PEM files. OpenSSL's functions that take a path read
 * by stdio, which leaves a key's text in memory of the C library.
 */
#include "netstack/tls/tls_priv.h"

#include <fcntl.h>
#include <unistd.h>

#define PIECE 16384u

/* In place of the question for a pass phrase on the terminal. */
static int no_pass_phrase(char *buf, int size, int writing, void *arg)
{
	return -1;
}

/* Returns the file's bytes in OpenSSL's memory; NULL: it cannot be read. */
static BIO *read_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	BIO *bio = BIO_new(BIO_s_mem());
	char *piece = OPENSSL_malloc(PIECE);
	ssize_t n = -1;

	if (fd >= 0 && bio && piece)
		while ((n = read(fd, piece, PIECE)) > 0 &&
		       BIO_write(bio, piece, (int)n) == (int)n)
			;
	OPENSSL_clear_free(piece, PIECE);
	if (fd >= 0)
		close(fd);
	if (n == 0)
		return bio;
	BIO_free(bio);
	return NULL;
}

/* Those that lead to the CA follow the first, which has been read. */
static bool add_chain(SSL_CTX *ctx, BIO *bio)
{
	X509 *cert;

	while ((cert = PEM_read_bio_X509(bio, NULL, no_pass_phrase, NULL)))
		if (SSL_CTX_add0_chain_cert(ctx, cert) != 1) {
			X509_free(cert);
			return false;
		}
	/* The end of the file is no error. */
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return false;
	ERR_clear_error();
	return true;
}

bool net_tls_use_certificates(SSL_CTX *ctx, const char *path)
{
	BIO *bio = read_file(path);
	X509 *cert =
		bio ? PEM_read_bio_X509_AUX(bio, NULL, no_pass_phrase, NULL)
		    : NULL;
	bool ok = cert && SSL_CTX_use_certificate(ctx, cert) == 1 &&
		  SSL_CTX_clear_chain_certs(ctx) == 1 && add_chain(ctx, bio);

	X509_free(cert);
	BIO_free(bio);
	return ok;
}

bool net_tls_use_key(SSL_CTX *ctx, const char *path)
{
	BIO *bio = read_file(path);
	EVP_PKEY *key =
		bio ? PEM_read_bio_PrivateKey(bio, NULL, no_pass_phrase, NULL)
		    : NULL;
	bool ok = key && SSL_CTX_use_PrivateKey(ctx, key) == 1;

	EVP_PKEY_free(key);
	BIO_free(bio);
	return ok;
}
