/* A client made of OpenSSL alone. */
#include "tests/net/tls_rogue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

long rogue_end;
void (*rogue_tune)(SSL *ssl);

struct net_conn *rogue_dial(void)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse("10.0.0.1:7", -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &conn), 0);
	return conn;
}

void rogue_flush(struct rogue *rogue)
{
	static char bytes[65536];
	int n;

	while ((n = BIO_read(rogue->out, bytes, sizeof(bytes))) > 0)
		if (net_send_all(rogue->conn, bytes, (size_t)n) < 0)
			return;
}

bool rogue_fill(struct rogue *rogue)
{
	static char bytes[4096];
	long n = net_recv(rogue->conn, bytes, sizeof(bytes));

	if (n > 0)
		BIO_write(rogue->in, bytes, (int)n);
	rogue_end = n;
	return n > 0;
}

void rogue_begin(struct rogue *rogue, int version)
{
	rogue->conn = rogue_dial();
	rogue->ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_max_proto_version(rogue->ctx, version);
	SSL_CTX_set_cipher_list(rogue->ctx, "ECDHE-ECDSA-AES128-GCM-SHA256");
	rogue->ssl = SSL_new(rogue->ctx);
	rogue->in = BIO_new(BIO_s_mem());
	rogue->out = BIO_new(BIO_s_mem());
	SSL_set_bio(rogue->ssl, rogue->in, rogue->out);
	SSL_set_connect_state(rogue->ssl);
	if (rogue_tune)
		rogue_tune(rogue->ssl);
	SSL_do_handshake(rogue->ssl);
	rogue_flush(rogue);
}

void rogue_open(struct rogue *rogue, int version)
{
	int done = 0;

	rogue_begin(rogue, version);
	while (done != 1 && rogue_fill(rogue)) {
		done = SSL_do_handshake(rogue->ssl);
		rogue_flush(rogue);
	}
	assert_int_equal(done, 1);
}

void rogue_close(struct rogue *rogue)
{
	while (rogue_fill(rogue))
		;
	net_close(rogue->conn);
	rogue_forget(rogue);
}

void rogue_shut(struct rogue *rogue)
{
	SSL_shutdown(rogue->ssl);
	rogue_flush(rogue);
	rogue_close(rogue);
}

void rogue_forget(struct rogue *rogue)
{
	SSL_free(rogue->ssl);
	SSL_CTX_free(rogue->ctx);
	ended++;
}

/* ---- records by hand ---- */

/* RFC 5246 6.3, RFC 5288: keys of both sides, then both implicit nonces. */
void rogue_steal_keys(struct rogue *rogue)
{
	uint8_t master[48], seed[13 + 64] = "key expansion", block[40];
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS1-PRF", NULL);
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST,
						 (char[]){"SHA256"}, 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SECRET, master,
						  sizeof(master)),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SEED, seed,
						  sizeof(seed)),
		OSSL_PARAM_construct_end(),
	};

	SSL_SESSION_get_master_key(SSL_get_session(rogue->ssl), master,
				   sizeof(master));
	SSL_get_server_random(rogue->ssl, seed + 13, 32);
	SSL_get_client_random(rogue->ssl, seed + 45, 32);
	assert_int_equal(EVP_KDF_derive(ctx, block, sizeof(block), params), 1);
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	memcpy(rogue->key, block, 16);
	memcpy(rogue->salt, block + 32, 4);
	rogue->sequence = 1; /* that of Finished was 0 */
}

static void put_sequence(uint8_t *to, uint64_t sequence)
{
	for (unsigned i = 0; i < 8; i++)
		to[i] = (uint8_t)(sequence >> (56 - 8 * i));
}

size_t rogue_seal(struct rogue *rogue, uint8_t type, const void *data,
		  size_t len, uint8_t *out)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	uint8_t nonce[12], aad[13];
	size_t total = 8 + len + 16;
	int n;

	memcpy(nonce, rogue->salt, 4);
	put_sequence(nonce + 4, rogue->sequence);
	put_sequence(aad, rogue->sequence++);
	memcpy(aad + 8,
	       (uint8_t[]){type, 3, 3, (uint8_t)(len >> 8), (uint8_t)len}, 5);
	memcpy(out,
	       (uint8_t[]){type, 3, 3, (uint8_t)(total >> 8), (uint8_t)total},
	       5);
	memcpy(out + 5, nonce + 4, 8);
	EVP_EncryptInit_ex(ctx, EVP_aes_128_gcm(), NULL, rogue->key, nonce);
	EVP_EncryptUpdate(ctx, NULL, &n, aad, sizeof(aad));
	EVP_EncryptUpdate(ctx, out + 13, &n, data, (int)len);
	EVP_EncryptFinal_ex(ctx, out + 13 + len, &n);
	EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, out + 13 + len);
	EVP_CIPHER_CTX_free(ctx);
	return 5 + total;
}
