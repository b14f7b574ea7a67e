/*
 * A file with the secrets of connections, with which Wireshark decrypts what
 * was captured.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "netstack/program/log.h"

int net_tls_open_key_log(struct net_tls *tls, const char *path)
{
	if (!path)
		return 0;
	/* a FIFO without a reader would block */
	tls->key_log = open(
		path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC,
		0600);
	return tls->key_log < 0 ? -errno : 0;
}

/* OpenSSL's callback. Lines of several threads and programs do not mix. */
static void write_line(const SSL *ssl, const char *line)
{
	const struct net_tls_session *s = SSL_get_app_data(ssl);
	struct iovec parts[] = {{(char *)(uintptr_t)line, strlen(line)},
				{(char *)"\n", 1}};
	const struct net_tls *tls;

	if (s->is_established) /* the context may have been freed */
		return;
	tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	if (writev(tls->key_log, parts, 2) < 0)
		net_log_seldom_of(
			NET_COMPONENT_LISTEN,
			"coronet: a secret of TLS is missing in the key "
			"log: %s",
			strerror(errno));
}

void net_tls_log_keys(const struct net_tls *tls, SSL_CTX *ctx)
{
	if (tls->key_log >= 0)
		SSL_CTX_set_keylog_callback(ctx, write_line);
}
