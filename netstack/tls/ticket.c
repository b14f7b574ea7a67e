/*
 * Sessions that are resumed: the tickets that a server issues (RFC 5077, RFC
 * 8446 4.6.1), and those that a client keeps.
 *
 * A ticket has all that the server would have to remember, encrypted with a key
 * that all shards have. A context makes its keys itself and replaces them by
 * the clock, or reads them from a file. Early data is never accepted, so a
 * ticket that is used twice replays nothing.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

/* ---- keys of a server ---- */

static time_t seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/*
 * A new key is the first; the one before it still reads tickets, whose lifetime
 * is as long as a key is the first.
 */
static bool replace_keys(struct net_tls_keys *keys)
{
	struct net_tls_key fresh;

	if (RAND_priv_bytes((unsigned char *)&fresh, sizeof(fresh)) != 1)
		return false;
	keys->all[1] = keys->all[0];
	keys->all[0] = fresh;
	OPENSSL_cleanse(&fresh, sizeof(fresh));
	keys->n = keys->n ? 2 : 1;
	keys->made_s = seconds_now();
	return true;
}

/* Copies the key of this name, or the first. Returns its index, or -1. */
static int find_key(struct net_tls_keys *keys, const unsigned char *name,
		    struct net_tls_key *out)
{
	int found = -1;

	pthread_mutex_lock(&keys->lock);
	if (!keys->from_file &&
	    seconds_now() - keys->made_s >= NET_TLS_TICKET_S)
		replace_keys(keys); /* else the old ones go on */
	for (unsigned i = 0; i < keys->n && found < 0; i++)
		if (!name ||
		    memcmp(keys->all[i].name, name, sizeof(out->name)) == 0)
			found = (int)i;
	if (found >= 0)
		*out = keys->all[found];
	pthread_mutex_unlock(&keys->lock);
	return found;
}

static bool start_mac(EVP_MAC_CTX *mac, struct net_tls_key *key)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key->mac,
						  sizeof(key->mac)),
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST,
						 (char[]){"SHA256"}, 0),
		OSSL_PARAM_construct_end(),
	};

	return EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* OpenSSL's callback: 1: use this key; 2: and issue a new ticket; 0: none. */
static int choose_key(SSL *ssl, unsigned char *name, unsigned char *iv,
		      EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int encrypts)
{
	struct net_tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	struct net_tls_key key;
	int at = find_key(tls->keys, encrypts ? NULL : name, &key);
	bool ok = at >= 0;

	if (ok && encrypts) {
		memcpy(name, key.name, sizeof(key.name));
		ok = RAND_bytes(iv, EVP_CIPHER_get_iv_length(
					    EVP_aes_256_cbc())) == 1;
	}
	if (ok)
		ok = EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key.aes,
				       iv, encrypts) == 1 &&
		     start_mac(mac, &key);
	OPENSSL_cleanse(&key, sizeof(key));
	if (!ok)
		return 0;
	/* A client of TLS 1.3 uses a ticket once (RFC 8446 C.4). */
	return at > 0 || SSL_version(ssl) == TLS1_3_VERSION ? 2 : 1;
}

/* Reads whole keys, at most NET_TLS_MAX_KEYS. Returns 0 or -errno. */
static int read_keys(struct net_tls_keys *keys, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;
	unsigned char more;
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, keys->all, sizeof(keys->all));
	if (n < 0)
		err = -errno;
	else if (n == 0 || n % (ssize_t)sizeof(keys->all[0]) ||
		 read(fd, &more, 1) != 0)
		err = -EINVAL;
	close(fd);
	if (err == 0)
		keys->n = (unsigned)n / sizeof(keys->all[0]);
	return err;
}

int net_tls_make_keys(struct net_tls *tls, const char *path)
{
	struct net_tls_keys *keys = OPENSSL_secure_zalloc(sizeof(*keys));

	if (!keys)
		return -ENOMEM;
	pthread_mutex_init(&keys->lock, NULL);
	tls->keys = keys;
	keys->from_file = path != NULL;
	if (path)
		return read_keys(keys, path);
	return replace_keys(keys) ? 0 : -ENOMEM;
}

void net_tls_free_keys(struct net_tls *tls)
{
	if (!tls->keys)
		return;
	pthread_mutex_destroy(&tls->keys->lock);
	OPENSSL_secure_clear_free(tls->keys, sizeof(*tls->keys));
}

/*
 * A session belongs to what its peer had to prove: a ticket of a context that
 * asks for no certificate, or for one of another CA, begins nothing here, even
 * with the same keys.
 */
static bool set_id_context(SSL_CTX *ctx)
{
	unsigned char id[SSL_MAX_SID_CTX_LENGTH] = {0};
	STACK_OF(X509_NAME) *cas = SSL_CTX_get_client_CA_list(ctx);
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	int verify = SSL_CTX_get_verify_mode(ctx);
	bool ok = digest &&
		  EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1 &&
		  EVP_DigestUpdate(digest, &verify, sizeof(verify)) == 1;

	for (int i = 0; ok && i < sk_X509_NAME_num(cas); i++) {
		const unsigned char *der;
		size_t len;

		ok = X509_NAME_get0_der(sk_X509_NAME_value(cas, i), &der,
					&len) == 1 &&
		     EVP_DigestUpdate(digest, der, len) == 1;
	}
	ok = ok && EVP_DigestFinal_ex(digest, id, NULL) == 1 &&
	     SSL_CTX_set_session_id_context(ctx, id, sizeof(id)) == 1;
	EVP_MD_CTX_free(digest);
	return ok;
}

bool net_tls_issue_tickets(struct net_tls *tls, SSL_CTX *ctx)
{
	SSL_CTX_clear_options(ctx, SSL_OP_NO_TICKET);
	SSL_CTX_set_num_tickets(ctx, 1);
	SSL_CTX_set_timeout(ctx, NET_TLS_TICKET_S);
	return SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, choose_key) == 1 &&
	       set_id_context(ctx);
}

/* ---- sessions of a client ---- */

struct net_tls_kept {
	SSL_SESSION *session; /* owned; NULL: free */
	struct net_addr peer;
	char name[NET_TLS_NAME_MAX + 1];
};

static bool is_same(const struct net_addr *a, const struct net_addr *b)
{
	return a->family == b->family && a->port == b->port &&
	       memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

/* Returns where the shard keeps a session with a server, or NULL. */
static struct net_tls_kept *find_kept(const struct net_tls *tls,
				      struct net_tls_kept *all,
				      const struct net_addr *peer,
				      const char *name)
{
	for (unsigned i = 0; i < tls->max_sessions; i++)
		if (all[i].session && is_same(&all[i].peer, peer) &&
		    strcasecmp(all[i].name, name) == 0)
			return &all[i];
	return NULL;
}

/* Where a new session goes: a free place, or that of another in turn. */
static struct net_tls_kept *choose_place(struct net_tls *tls,
					 struct net_tls_kept *all)
{
	unsigned *turn = &tls->kept_turns[net_here()->shard];

	for (unsigned i = 0; i < tls->max_sessions; i++)
		if (!all[i].session)
			return &all[i];
	*turn = (*turn + 1) % tls->max_sessions;
	return &all[*turn];
}

/* RFC 8446 C.4: a ticket that is used twice connects the two clients. */
static bool is_for_once(const SSL_SESSION *session)
{
	return SSL_SESSION_get_protocol_version(session) == TLS1_3_VERSION;
}

static const char *name_of(const SSL *ssl)
{
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

	return name ? name : "";
}

/* OpenSSL's callback for a session that could be resumed: 1: it is kept. */
static int keep_session(SSL *ssl, SSL_SESSION *session)
{
	struct net_tls_session *s = SSL_get_app_data(ssl);
	struct net_tls *tls = s->client;
	struct net_tls_kept **all, *place;
	struct net_addr peer;

	if (!tls || net_tls_chain_bytes(ssl) > NET_TLS_KEPT_CHAIN_MAX)
		return 0;
	all = &tls->kept[net_here()->shard];
	if (!*all)
		*all = calloc(tls->max_sessions, sizeof(**all));
	if (!*all)
		return 0;
	peer = net_peer_addr(s->base.conn);
	place = is_for_once(session)
			? NULL
			: find_kept(tls, *all, &peer, name_of(ssl));
	if (!place)
		place = choose_place(tls, *all);
	SSL_SESSION_free(place->session);
	place->session = session;
	place->peer = peer;
	snprintf(place->name, sizeof(place->name), "%s", name_of(ssl));
	return 1;
}

void net_tls_keep_sessions(SSL_CTX *ctx)
{
	SSL_CTX_clear_options(ctx, SSL_OP_NO_TICKET);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT |
						    SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(ctx, keep_session);
}

void net_tls_resume(struct net_tls_session *s, struct net_tls *tls,
		    const struct net_addr *peer)
{
	struct net_tls_kept *all = tls->kept[net_here()->shard], *place;

	atomic_fetch_add(&tls->refs, 1);
	s->client = tls;
	place = all ? find_kept(tls, all, peer, name_of(s->ssl)) : NULL;
	if (!place)
		return;
	if (SSL_set_session(s->ssl, place->session) != 1)
		ERR_clear_error(); /* then the handshake is a full one */
	if (is_for_once(place->session)) {
		SSL_SESSION_free(place->session);
		place->session = NULL;
	}
}

void net_tls_free_sessions(struct net_tls *tls)
{
	for (unsigned shard = 0; shard < NET_MAX_SHARDS; shard++) {
		struct net_tls_kept *all = tls->kept[shard];

		for (unsigned i = 0; all && i < tls->max_sessions; i++)
			SSL_SESSION_free(all[i].session);
		free(all);
	}
}
