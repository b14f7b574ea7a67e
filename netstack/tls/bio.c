/*
 * The BIO between OpenSSL and a connection. Reading takes received bytes from
 * the connection and opens the window; writing fills chunks of the session,
 * which are passed to TCP when OpenSSL has returned.
 */
#include "netstack/tls/tls_priv.h"

#include <stdatomic.h>
#include <string.h>

#define CHUNK_BYTES 4096u
/* Output that TCP has not taken, such as the answers to KeyUpdate. */
#define OUT_MAX 65536u

/*
 * Takes received bytes, at most len, and opens the window by them. buf NULL:
 * they are not copied.
 */
static size_t take_bytes(struct net_conn *conn, char *buf, size_t len)
{
	size_t done = 0;

	while (conn->rx_tail && done < len) {
		struct pbuf *p = net_rxq_head(conn);
		size_t part =
			LWIP_MIN((size_t)(p->len - conn->rx_off), len - done);

		if (buf)
			memcpy(buf + done,
			       (const uint8_t *)p->payload + conn->rx_off,
			       part);
		done += part;
		conn->rx_off = (uint16_t)(conn->rx_off + part);
		if (conn->rx_off == p->len)
			pbuf_free(net_rxq_take(conn));
	}
	if (done && conn->pcb_live)
		net_conn_recved(conn, (unsigned)done);
	return done;
}

void net_tls_drop_input(struct net_conn *conn, size_t len)
{
	take_bytes(conn, NULL, len);
}

static int read_bytes(BIO *bio, char *buf, int len)
{
	struct net_tls_session *s = BIO_get_data(bio);
	size_t n;

	BIO_clear_retry_flags(bio);
	if (len <= 0)
		return 0;
	if (!s->is_established && s->hello_bytes >= NET_TLS_HELLO_MAX)
		return 0; /* like the end of the stream */
	n = s->step ? net_tls_step_read(s->step, buf, (size_t)len)
		    : take_bytes(s->base.conn, buf, (size_t)len);
	if (!s->is_established)
		s->hello_bytes += (uint32_t)n;
	if (n == 0) {
		s->is_starved = true;
		BIO_set_retry_read(bio);
		return -1;
	}
	return (int)n;
}

bool net_tls_queue(struct net_tls_session *s, const void *from, size_t len)
{
	const uint8_t *data = from;

	while (len) {
		struct net_tls_chunk *last =
			s->out ? (void *)((char *)s->out_end -
					  offsetof(struct net_tls_chunk, next))
			       : NULL;
		size_t part;

		if (!last || last->len == last->cap) {
			if (!net_tls_add_chunk(s, CHUNK_BYTES))
				return false;
			continue;
		}
		part = LWIP_MIN(len, (size_t)(last->cap - last->len));
		memcpy(last->data + last->len, data, part);
		last->len += (uint32_t)part;
		s->out_bytes += (uint32_t)part;
		data += part;
		len -= part;
	}
	return true;
}

static int write_bytes(BIO *bio, const char *data, int len)
{
	struct net_tls_session *s = BIO_get_data(bio);
	const struct net_conn *conn = s->base.conn;

	BIO_clear_retry_flags(bio);
	if (!s->step && len > 0 && (conn->wr_shut || !conn->pcb_live))
		return len; /* nobody waits for an answer to KeyUpdate */
	if (len <= 0 ||
	    (s->step ? s->step->out_len : s->out_bytes) + (unsigned)len >
		    OUT_MAX)
		return -1;
	if (s->step ? net_tls_step_write(s->step, data, (size_t)len)
		    : net_tls_queue(s, data, (size_t)len))
		return len;
	s->is_short = true;
	return -1;
}

static long control_bio(BIO *bio, int command, long n, void *arg)
{
	return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP;
}

/* One for the program; made by the first session, and kept. */
static BIO_METHOD *get_method(void)
{
	static _Atomic(BIO_METHOD *) method;
	BIO_METHOD *made = method, *none = NULL;

	if (made)
		return made;
	made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK,
			    "coronet");
	if (!made)
		return NULL;
	BIO_meth_set_read(made, read_bytes);
	BIO_meth_set_write(made, write_bytes);
	BIO_meth_set_ctrl(made, control_bio);
	if (!atomic_compare_exchange_strong(&method, &none, made)) {
		BIO_meth_free(made); /* another shard was faster */
		made = none;
	}
	return made;
}

BIO *net_tls_bio_new(struct net_tls_session *s)
{
	BIO_METHOD *method = get_method();
	BIO *bio = method ? BIO_new(method) : NULL;

	if (!bio)
		return NULL;
	BIO_set_data(bio, s);
	BIO_set_init(bio, 1);
	return bio;
}
