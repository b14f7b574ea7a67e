/* The applications of a crowd: an echo, and one that sends before it reads. */
#include "tests/net/random_shards.h"

#include <errno.h>
#include <stdlib.h>

#define CHUNK 16384u

void crowd_compare(const char *where, uint16_t port, uint32_t offset,
		   const uint8_t *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (data[i] != crowd_byte(port, offset + (uint32_t)i))
			crowd_violated("%s: client %u has a wrong byte at %u",
				       where, port, offset + (uint32_t)i);
}

/* Half of the clients' bytes are echoed as views, the others as copies. */
static long echo_once(struct net_conn *conn, uint16_t port, uint32_t offset,
		      uint8_t *room)
{
	struct net_view view;
	long n;

	if (port % 2) {
		n = net_recv_view(conn, &view);
		if (n <= 0)
			return n;
		crowd_compare("the echo", port, offset, view.data, view.len);
		return net_send_view(conn, &view);
	}
	n = net_recv(conn, room, CHUNK);
	if (n <= 0)
		return n;
	crowd_compare("the echo", port, offset, room, (size_t)n);
	return net_send_all(conn, room, (size_t)n);
}

/* A call that found no memory: the client is not to take it for the end. */
static void abort_conn(struct net_conn *conn, long err)
{
	if (err == -ENOMEM && !crowd.draw.budget)
		crowd_violated("no memory, without a budget");
	crowd.may_reset |= err == -ENOMEM;
	net_abort(conn);
}

void echo_views_or_copies(struct net_conn *conn, void *arg)
{
	uint16_t port = net_peer_addr(conn).port;
	uint8_t *room = malloc(CHUNK);
	uint32_t offset = 0;
	long n;

	if (!room)
		abort();
	while ((n = echo_once(conn, port, offset, room)) > 0)
		offset += (uint32_t)n;
	if (n < 0)
		abort_conn(conn, n);
	free(room);
}

void send_then_read(struct net_conn *conn, void *arg)
{
	uint16_t port = net_peer_addr(conn).port;
	uint8_t *room = malloc(CHUNK);
	uint32_t offset = 0;
	long n = 0;

	if (!room)
		abort();
	while (offset < TALK_BYTES && n >= 0) {
		for (unsigned i = 0; i < CHUNK; i++)
			room[i] = crowd_byte(port, offset + i);
		n = net_send_all(conn, room,
				 LWIP_MIN(CHUNK, TALK_BYTES - offset));
		offset += n > 0 ? (uint32_t)n : 0;
	}
	offset = 0;
	while (n >= 0 && (n = net_recv(conn, room, CHUNK)) > 0) {
		crowd_compare("the talker", port, offset, room, (size_t)n);
		offset += (uint32_t)n;
	}
	if (n < 0)
		abort_conn(conn, n);
	free(room);
}
