/*
 * Writing plaintext.
 *
 * One call of OpenSSL makes one record, for which the send buffer has room when
 * it begins. It fills a chunk of the session that was allocated before, so
 * OpenSSL always gets rid of it, and keeps no record that is half written. The
 * chunk is copied to TCP's queue; only if TCP's memory is short does a part of
 * it wait for the next call.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <string.h>

/*
 * A record's header, IV, MAC and padding; and an answer to KeyUpdate before it.
 */
#define OVERHEAD 256u
/* Room that data leaves, so that close_notify always finds some. */
#define RESERVE 128u
/* Bytes that are worth a record, if there are more. */
#define PART_MIN	(NET_RECORD_ROOM - OVERHEAD - RESERVE)
#define RECORD_AT_FIRST (4096u - OVERHEAD)
/* With its overhead and a chunk's header, it fits into a slab of 16 KiB. */
#define RECORD_MAX (16384u - OVERHEAD - sizeof(struct net_tls_chunk))
#define WIDE_CWND  65536u

/* ---- to TCP ---- */

static long queue_bytes(struct net_conn *conn, const void *data, size_t len)
{
	size_t room = conn->pcb.snd_buf; /* also what data may not use */
	uint16_t n = (uint16_t)LWIP_MIN(LWIP_MIN(room, len), 0xffffu);
	err_t err;

	if (n == 0)
		return 0;
	/* Not net_predict_write(): another caller, and gcc would no longer
	 * inline it in net_send(). */
	err = net_lwip_write(conn, data, n, TCP_WRITE_FLAG_COPY);
	if (err == ERR_OK) {
		net_send_queued_some(conn);
		return n;
	}
	return err == ERR_MEM ? net_send_refused(conn) : -EPIPE;
}

long net_tls_flush(struct net_tls_session *s)
{
	struct net_conn *conn = s->base.conn;

	while (s->out) {
		struct net_tls_chunk *chunk = s->out;
		long n = 0;

		if (conn->err || !conn->pcb_live || conn->wr_shut)
			return conn->err ? conn->err : -EPIPE;
		if (chunk->len > chunk->off)
			n = queue_bytes(conn, chunk->data + chunk->off,
					chunk->len - chunk->off);
		if (n < 0)
			return n;
		chunk->off += (uint32_t)n;
		s->out_bytes -= (uint32_t)n;
		if (chunk->off < chunk->len)
			return 0;
		s->out = chunk->next;
		if (!s->out)
			s->out_end = &s->out;
		net_mem_free(chunk);
	}
	return 1;
}

/* ---- records ---- */

size_t net_tls_room(struct net_tls_session *s, size_t want)
{
	const struct tcp_pcb *pcb = &s->base.conn->pcb;
	size_t room = net_send_room(s->base.conn);
	size_t least = LWIP_MIN(want, PART_MIN);

	/* What is left of memory may have no room for more. */
	if (!pcb->unsent && !pcb->unacked)
		least = 1;
	if (s->out || room < least + OVERHEAD + RESERVE)
		return 0;
	return room - OVERHEAD - RESERVE;
}

/* Small records show a first byte early; large ones cost less. */
static size_t record_bytes(const struct net_conn *conn)
{
	return conn->pcb.cwnd >= WIDE_CWND ? RECORD_MAX : RECORD_AT_FIRST;
}

/*
 * Makes a record. Returns len, 0 (wait for memory) or an error. Out of line,
 * like all that calls OpenSSL.
 */
__attribute__((noinline)) static long write_record(struct net_tls_session *s,
						   const void *data, size_t len)
{
	if (!net_tls_add_chunk(s, len + OVERHEAD))
		return net_send_refused(s->base.conn);
	net_tls_begin(s);
	if (SSL_write(s->ssl, data, (int)len) != (int)len)
		return net_tls_fail(s, NULL);
	return (long)len;
}

/* Gathers a record's bytes, from byte `skip` of the buffers on. */
static void gather_bytes(uint8_t *to, size_t len, const struct iovec *iov,
			 size_t skip)
{
	for (size_t done = 0; done < len; iov++) {
		size_t part = iov->iov_len;

		if (skip >= part) {
			skip -= part;
			continue;
		}
		part = LWIP_MIN(part - skip, len - done);
		memcpy(to + done, (const uint8_t *)iov->iov_base + skip, part);
		done += part;
		skip = 0;
	}
}

/* The next buffer and how much of it comes before byte `skip`. */
static const struct iovec *find_buffer(const struct iovec *iov, size_t *skip)
{
	while (*skip >= iov->iov_len) {
		*skip -= iov->iov_len;
		iov++;
	}
	return iov;
}

/*
 * Makes a record of the bytes from `skip` on, of which there are `left`.
 * Returns how many, 0 (wait for room) or an error.
 */
static long write_some(struct net_tls_session *s, const struct iovec *iov,
		       size_t skip, size_t left)
{
	size_t len = LWIP_MIN(left, record_bytes(s->base.conn));
	uint8_t *gathered;
	size_t room;
	long n;

	n = net_tls_flush(s);
	if (n <= 0)
		return n;
	room = net_tls_room(s, len);
	if (room == 0)
		return 0;
	len = LWIP_MIN(len, room);
	iov = find_buffer(iov, &skip);
	if (iov->iov_len - skip >= len) {
		n = write_record(s, (const uint8_t *)iov->iov_base + skip, len);
	} else {
		gathered = net_mem_malloc(len);
		if (!gathered)
			return net_send_refused(s->base.conn);
		gather_bytes(gathered, len, iov, skip);
		n = write_record(s, gathered, len);
		net_mem_free(gathered);
	}
	if (n > 0)
		net_tls_flush(s); /* an error is the next call's */
	return n;
}

static int check_writable(const struct net_tls_session *s)
{
	if (s->err)
		return s->err;
	return s->ssl && s->is_established && !s->has_said_end ? 0 : -EPIPE;
}

int net_tls_flush_all(struct net_conn *conn)
{
	long state;

	while ((state = net_tls_flush(net_tls_of(conn))) == 0) {
		int err = net_send_wait(conn, NET_WANTS_ROOM);

		if (err < 0)
			return err;
	}
	return state < 0 ? (int)state : 0;
}

long net_tls_sendv(struct net_conn *conn, const struct iovec *iov, unsigned n,
		   long total, bool all)
{
	int err = net_send_enter(conn);
	long done = 0;

	while (err == 0 && done < (all ? total : 1)) {
		long part = check_writable(net_tls_of(conn));

		if (part == 0)
			part = write_some(net_tls_of(conn), iov, (size_t)done,
					  (size_t)(total - done));
		if (part < 0)
			return part;
		done += part;
		if (part == 0)
			err = net_send_wait(conn, NET_WANTS_SEGMENT);
	}
	if (err == 0)
		err = net_tls_flush_all(conn);
	if (err == -EAGAIN && done >= (all ? total : 1))
		return done; /* a watch: its next call passes the rest on */
	return err < 0 ? err : done;
}

long net_tls_writable(struct net_conn *conn)
{
	int err = net_send_enter(conn);

	while (err == 0) {
		long room = check_writable(net_tls_of(conn));

		if (room == 0)
			room = net_tls_flush(net_tls_of(conn));
		if (room > 0)
			room = (long)net_tls_room(net_tls_of(conn), PART_MIN);
		if (room)
			return room;
		err = net_send_wait(conn, NET_WANTS_SEGMENT);
	}
	return err;
}
