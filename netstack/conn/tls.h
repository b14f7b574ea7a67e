/*
 * TLS, as the folders below tls/ see it: a table of calls that tls/ implements,
 * so that they need neither OpenSSL nor its presence.
 */
#pragma once

#include "netstack/conn/end.h"
#include "netstack/state.h"

/*
 * What the public calls do on a connection with TLS; their contracts are those
 * of coronet/net.h, for plaintext. A context (struct net_tls) begins with a
 * pointer to this table.
 */
struct net_tls_calls {
	/* The handshakes: block. Return 0, or an error of net_tls_accept(). */
	int (*accept)(struct net_conn *conn, struct net_tls *tls);
	int (*connect)(struct net_conn *conn, struct net_tls *tls,
		       const char *name, int64_t deadline_ns);
	/* total: of all buffers, more than 0. */
	long (*recvv)(struct net_conn *conn, const struct iovec *iov,
		      unsigned n, long total);
	long (*recv_full)(struct net_conn *conn, void *buf, size_t len);
	long (*recv_until)(struct net_conn *conn, void *buf, size_t len,
			   const void *delim, size_t delim_len);
	long (*recv_view)(struct net_conn *conn, struct net_view *view);
	long (*peek)(struct net_conn *conn, void *buf, size_t len);
	/* all: blocks until all bytes are queued. */
	long (*sendv)(struct net_conn *conn, const struct iovec *iov,
		      unsigned n, long total, bool all);
	long (*writable)(struct net_conn *conn);
	/* Called before TCP is shut: 0, or -ENOMEM and nothing was shut. */
	int (*shut)(struct net_conn *conn, enum net_shut how);
	/*
	 * Called before TCP is closed. Returns NET_END_NONE if it may be closed
	 * with a FIN, or the reason why it must be reset.
	 */
	enum net_end (*close)(struct net_conn *conn);
	unsigned (*events)(const struct net_conn *conn, unsigned wanted);
	/* Frees what the session holds; later calls return conn->err. */
	void (*forget)(struct net_conn *conn);
};

/* The net_conn_ext of a connection with NET_SHARD_TLS. */
struct net_conn_tls {
	struct net_conn_user_timeout base; /* first */
	const struct net_tls_calls *calls;
	struct net_conn *conn;
	/* in net_stack.tls_conns; pprev NULL: it was forgotten */
	struct net_conn_tls *next, **pprev;
	uint32_t held; /* bytes that the budget is charged for */
};

static inline bool net_is_tls(const struct net_conn *conn)
{
	return conn && (conn->shard & NET_SHARD_TLS);
}

static inline struct net_conn_tls *net_conn_tls(const struct net_conn *conn)
{
	return (struct net_conn_tls *)(uintptr_t)conn->ext;
}

static inline const struct net_tls_calls *
net_tls_calls(const struct net_conn *conn)
{
	return net_conn_tls(conn)->calls;
}
