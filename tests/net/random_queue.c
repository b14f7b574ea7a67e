/* The queue that shards share: DPDK's side of a random life. */
#include "tests/net/random_queue.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define BUFFERS 1024u

/* Mbufs in a ring, the oldest first. */
struct fifo {
	struct rte_mbuf *bufs[BUFFERS];
	unsigned first, n;
};

static struct rte_mempool *pool; /* of the queue */
static struct fifo arrived, sent;
static struct rte_mbuf *posted[BUFFERS];
static unsigned n_posted, n_buffers;
static struct rte_eth_fp_ops driver; /* DPDK's, while ours is there */

static struct rte_mempool *pool_of(unsigned shard)
{
	char name[32];

	snprintf(name, sizeof(name), "frames0.%u", shard);
	return rte_mempool_lookup(name);
}

/* Like a card, the queue keeps free buffers for the frames that come. */
static void post_buffers(void)
{
	while (n_posted + arrived.n < n_buffers &&
	       (posted[n_posted] = rte_pktmbuf_alloc(pool)))
		n_posted++;
}

/* ---- in place of the driver's bursts ---- */

static struct rte_mbuf *pop_mbuf(struct fifo *fifo)
{
	struct rte_mbuf *m = fifo->bufs[fifo->first];

	fifo->first = (fifo->first + 1) % BUFFERS;
	fifo->n--;
	return m;
}

static void push_mbuf(struct fifo *fifo, struct rte_mbuf *m)
{
	fifo->bufs[(fifo->first + fifo->n++) % BUFFERS] = m;
}

static uint16_t receive_burst(void *queue, struct rte_mbuf **bufs,
			      uint16_t most)
{
	uint16_t n = 0;

	while (n < most && arrived.n)
		bufs[n++] = pop_mbuf(&arrived);
	return n;
}

static uint16_t transmit_burst(void *queue, struct rte_mbuf **bufs,
			       uint16_t most)
{
	uint16_t n = 0;

	while (n < most && sent.n < n_buffers)
		push_mbuf(&sent, bufs[n++]);
	return n;
}

/* ---- the test's side ---- */

static void free_posted(void)
{
	while (n_posted)
		rte_pktmbuf_free(posted[--n_posted]);
}

void queue_take_from(unsigned shard)
{
	free_posted();
	pool = pool_of(shard);
	if (!pool)
		abort();
	post_buffers();
}

void queue_open(unsigned buffers)
{
	if (buffers > BUFFERS)
		abort();
	n_buffers = buffers;
	queue_take_from(0);
	driver = rte_eth_fp_ops[0];
	rte_eth_fp_ops[0].rx_pkt_burst = receive_burst;
	rte_eth_fp_ops[0].tx_pkt_burst = transmit_burst;
}

void queue_close(void)
{
	rte_eth_fp_ops[0] = driver;
	while (arrived.n)
		rte_pktmbuf_free(pop_mbuf(&arrived));
	while (sent.n)
		rte_pktmbuf_free(pop_mbuf(&sent));
	free_posted();
	n_buffers = 0;
}

bool queue_put(const void *data, unsigned len)
{
	struct rte_mbuf *m;

	post_buffers();
	if (n_posted == 0 && arrived.n == 0)
		return false;
	if (n_posted == 0)
		return true;
	m = posted[--n_posted];
	memcpy(rte_pktmbuf_append(m, (uint16_t)len), data, len);
	push_mbuf(&arrived, m);
	return true;
}

void queue_take(void (*take)(const void *frame, unsigned len))
{
	static uint8_t frame[QUEUE_FRAME_MAX];

	while (sent.n) {
		struct rte_mbuf *m = pop_mbuf(&sent);
		unsigned len = m->pkt_len;
		const void *data;

		if (len > sizeof(frame))
			abort();
		data = rte_pktmbuf_read(m, 0, len, frame);
		if (data != frame)
			memcpy(frame, data, len);
		rte_pktmbuf_free(m);
		take(frame, len);
	}
}

int queue_missing(unsigned shard)
{
	const struct rte_mempool *p = pool_of(shard);

	return p ? (int)(p->size - rte_mempool_avail_count(p)) : -1;
}
