/*
 * Steps of a handshake on the threads of net_offload().
 *
 * While a step is there, OpenSSL's session belongs to it, and the connection
 * looks as if the session was forgotten. The step reads a copy of the bytes
 * that have come, since the connection's own are its shard's. Afterwards, the
 * shard drops as many of them as were read, and sends what was written.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <string.h>

/*
 * A step is not under way any more: its connection gets OpenSSL's session back,
 * unless it was closed meanwhile. Then returns false: it may be freed.
 */
static bool end_step(struct net_tls_step *step)
{
	struct net_conn *conn = step->conn;
	struct net_tls_session *s = net_tls_of(conn);

	step->conn = NULL;
	conn->waiters--;
	if (!conn->owned) {
		net_conn_put(conn);
		return false;
	}
	s->step = NULL;
	s->ssl = step->ssl;
	step->ssl = NULL;
	return true;
}

/* A cleanup: the coroutine may be ended while it waits. */
static void free_step(void *arg)
{
	struct net_tls_step *step = arg;

	if (step->conn)
		end_step(step);
	SSL_free(step->ssl);
	OPENSSL_free(step->out);
	OPENSSL_free(step);
}

static struct net_tls_step *make_step(const struct net_conn *conn)
{
	size_t room = conn->rx_tail ? net_rxq_bytes(conn) : 0;
	struct net_tls_step *step = OPENSSL_malloc(sizeof(*step) + room);

	if (!step)
		return NULL;
	*step = (struct net_tls_step){0};
	step->in_len =
		net_rxq_look(conn->rx_tail, conn->rx_off, step->in, room);
	return step;
}

size_t net_tls_step_read(struct net_tls_step *step, void *buf, size_t len)
{
	len = LWIP_MIN(len, step->in_len - step->in_off);
	memcpy(buf, step->in + step->in_off, len);
	step->in_off += len;
	return len;
}

bool net_tls_step_write(struct net_tls_step *step, const void *data, size_t len)
{
	uint8_t *out = OPENSSL_realloc(step->out, step->out_len + len);

	if (!out)
		return false;
	memcpy(out + step->out_len, data, len);
	step->out = out;
	step->out_len += len;
	return true;
}

static void *run_step(void *arg)
{
	struct net_tls_step *step = arg;

	step->result = net_tls_do_step(SSL_get_app_data(step->ssl), step->ssl,
				       step->error);
	return NULL;
}

/*
 * Passes on what the step has read and written. If the connection was reset
 * meanwhile, the next call that waits for it says so.
 */
static int settle_step(struct net_tls_session *s, struct net_tls_step *step)
{
	net_tls_drop_input(s->base.conn, step->in_off);
	if (!net_tls_queue(s, step->out, step->out_len))
		return net_tls_fail_as(s, -ENOMEM, "no memory");
	return step->result < 0 ? net_tls_fail_as(s, step->result, step->error)
				: step->result;
}

int net_tls_offload_step(struct net_conn *conn)
{
	struct net_tls_session *s = net_tls_of(conn);
	struct net_tls_step *step = s->ssl ? make_step(conn) : NULL;
	int err = step ? coro_cleanup_push(free_step, step) : -ENOMEM;

	if (err < 0) {
		OPENSSL_free(step);
		return -EAGAIN;
	}
	step->ssl = s->ssl;
	s->ssl = NULL;
	s->step = step;
	step->conn = conn;
	conn->waiters++;
	err = net_offload(run_step, step, NULL, conn->ext->read_deadline);
	if (!end_step(step))
		err = -EBADF;
	else if (err == 0)
		err = settle_step(s, step);
	else if (err == -ENOMEM)
		err = -EAGAIN;
	coro_cleanup_pop(true);
	return err;
}
