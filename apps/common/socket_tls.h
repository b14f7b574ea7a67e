/*
 * TLS by OpenSSL on the kernel's non-blocking sockets, for the programs that
 * coronet is compared with. It is set up as coronet/net_tls.h is: TLS 1.2 and
 * 1.3, a server's tickets, record buffers freed while idle.
 *
 * A call that has to wait returns -EAGAIN: it is repeated with the same
 * arguments, whether epoll reports that the socket can be read or written. A
 * context may be used on any thread, a connection on one at a time.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "apps/common/tls_pairs.h"

typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_st SSL;

/* Of a client; a zero field is the default. */
struct socket_tls_opts {
	const char *ca; /* verifies the server; NULL: not verified */
	const char *ciphers, *suites; /* of TLS 1.2, and of TLS 1.3 */
	const char *alpn;	      /* one protocol */
	bool resumes; /* sessions, to whatever server they belong */
};

#if APPS_TLS

/*
 * Make a context, to be freed by socket_tls_free(). NULL: a line on stderr,
 * after "PROGRAM: ", says why. The server has the first of the pairs.
 */
SSL_CTX *socket_tls_server(const struct tls_pairs *pairs, const char *program);
SSL_CTX *socket_tls_client(const struct socket_tls_opts *opts,
			   const char *program);
void socket_tls_free(SSL_CTX *context);

/*
 * Makes a connection on a connected socket, which stays the caller's. name: of
 * the server, which its certificate has to have if it is verified; NULL: any.
 * NULL: no memory.
 */
SSL *socket_tls_new(SSL_CTX *context, int fd, const char *name, bool server);

/* Sends close_notify after a handshake; once. NULL is ignored. */
void socket_tls_shut(SSL *ssl);

/* Does the same, and frees. NULL is ignored. */
void socket_tls_end(SSL *ssl);

/* Returns 0, -EAGAIN, -EPROTO or an error of the socket. */
int socket_tls_handshake(SSL *ssl);

/* Returns a count, 0 at the end, -EAGAIN, -EPROTO or an error of the socket. */
ssize_t socket_tls_read(SSL *ssl, void *buf, size_t len);

/*
 * Returns len, -EAGAIN, -EPROTO or an error of the socket. After -EAGAIN some
 * of the bytes may have been sent: the next call has to have all of them again.
 */
ssize_t socket_tls_write(SSL *ssl, const void *buf, size_t len);

#else /* without OpenSSL */

static inline SSL_CTX *socket_tls_server(const struct tls_pairs *pairs,
					 const char *program)
{
	return NULL;
}
static inline SSL_CTX *socket_tls_client(const struct socket_tls_opts *opts,
					 const char *program)
{
	return NULL;
}
static inline void socket_tls_free(SSL_CTX *context)
{
}
static inline SSL *socket_tls_new(SSL_CTX *context, int fd, const char *name,
				  bool server)
{
	return NULL;
}
static inline void socket_tls_shut(SSL *ssl)
{
}
static inline void socket_tls_end(SSL *ssl)
{
}
static inline int socket_tls_handshake(SSL *ssl)
{
	return -EPROTO;
}
static inline ssize_t socket_tls_read(SSL *ssl, void *buf, size_t len)
{
	return -EPROTO;
}
static inline ssize_t socket_tls_write(SSL *ssl, const void *buf, size_t len)
{
	return -EPROTO;
}

#endif

/* Receive and send with TLS, or with ssl NULL without. */
static inline ssize_t socket_tls_recv(SSL *ssl, int fd, void *buf, size_t len)
{
	ssize_t n;

	if (ssl)
		return socket_tls_read(ssl, buf, len);
	n = recv(fd, buf, len, 0);
	return n < 0 ? -errno : n;
}

static inline ssize_t socket_tls_send(SSL *ssl, int fd, const void *buf,
				      size_t len)
{
	ssize_t n;

	if (ssl)
		return socket_tls_write(ssl, buf, len);
	n = send(fd, buf, len, MSG_NOSIGNAL);
	return n < 0 ? -errno : n;
}
