/* A path with a bounded queue, a rate, random losses and a delay. */
#include "tests/net/bottleneck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"

#define STEP_NS INT64_C(250000)
#define MOST	65536u /* segments in flight */
#define RANGES	8192u  /* that the peer holds out of order */
#define BLOCKS	3u

void (*bottleneck_sees)(int64_t now_ns, unsigned bytes);

struct range {
	uint32_t from, to; /* bytes of the stream */
};

static struct {
	int64_t due_ns; /* arrival of its ACK */
	struct range bytes;
	bool rivals; /* its packet; `from` is the number */
} flight[MOST];
static unsigned first, n;
static uint32_t next; /* the first byte that the peer lacks */
/* Ranges beyond that, the newest first, as SACK reports them. */
static struct range held[RANGES];
static unsigned n_held;
static int64_t busy_ns;
static uint64_t random_state;

static void *send_much(struct net_conn *conn)
{
	static uint8_t data[65536];
	struct net_view view;
	size_t left = to_send;

	ours = conn;
	while (left) {
		size_t len = left < sizeof(data) ? left : sizeof(data);

		result = net_send_all(conn, data, len);
		if (result < 0)
			break;
		left -= len;
	}
	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
	ended++;
	return NULL;
}

static void serve_much(struct net_conn *conn, void *arg)
{
	send_much(conn);
}

void bottleneck_connect(struct bottleneck *path, size_t bytes)
{
	unsigned mss = path->mss ? path->mss : MSS;
	uint8_t scale = (uint8_t)(path->scale ? path->scale : 7);
	const uint8_t options[] = {
		2, 4, (uint8_t)(mss >> 8), (uint8_t)mss, 3, 3, scale, 1, 4, 2,
		1, 1};
	struct segment s;

	first = n = next = n_held = 0;
	busy_ns = 0;
	random_state = path->seed + 1;
	ours = NULL;
	to_send = bytes;
	serve(serve_much);
	s = peer_open(&peer, 99, options, 12);
	base = s.seq + 1;
	for (int64_t t = 0; t < path->delay_ns; t += STEP_NS) {
		fake_now_ns += STEP_NS;
		net_stack_round(stack);
	}
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(ours);
}

static unsigned draw_below(unsigned below)
{
	random_state = random_state * UINT64_C(6364136223846793005) +
		       UINT64_C(1442695040888963407);
	return (unsigned)((random_state >> 33) % below);
}

static bool is_lost(const struct bottleneck *path)
{
	return draw_below(1000) < path->per_mille;
}

/* Puts a packet of len bytes into the queue; returns whether it had room. */
static bool enqueue(struct bottleneck *path, unsigned len, struct range bytes,
		    bool rivals)
{
	double waits = busy_ns > fake_now_ns ? (double)(busy_ns - fake_now_ns) *
						       path->rate / 1e9
					     : 0;

	if (waits + len > path->queue || is_lost(path))
		return false;
	if (waits > path->longest)
		path->longest = waits;
	if (busy_ns < fake_now_ns)
		busy_ns = fake_now_ns;
	busy_ns += (int64_t)(len * 1e9 / path->rate);
	assert_true(n < MOST);
	flight[(first + n) % MOST].due_ns = busy_ns + path->delay_ns;
	flight[(first + n) % MOST].bytes = bytes;
	flight[(first + n) % MOST].rivals = rivals;
	n++;
	return true;
}

static void take_in(struct bottleneck *path, const struct segment *s)
{
	uint32_t from = s->seq - base;

	if (s->len == 0)
		return;
	path->sent += s->len;
	if (bottleneck_sees)
		bottleneck_sees(fake_now_ns, s->len);
	if (!enqueue(path, s->len, (struct range){from, from + s->len}, false))
		path->dropped += s->len;
}

/* Queues the packets of both senders in a random order. */
static void take_all(struct bottleneck *path)
{
	struct rival *r = path->rival;
	bool more = true;
	struct segment s;

	while (more || (r && rival_may_send(r, fake_now_ns))) {
		if (r && rival_may_send(r, fake_now_ns) &&
		    (!more || draw_below(2))) {
			uint32_t number = (uint32_t)rival_send(r, fake_now_ns);

			enqueue(path, RIVAL_BYTES, (struct range){number, 0},
				true);
		} else {
			more = peer_next(&s);
			if (more)
				take_in(path, &s);
		}
	}
}

static void drop_range(unsigned i)
{
	n_held--;
	memmove(held + i, held + i + 1, (n_held - i) * sizeof(held[0]));
}

/* Merges a segment with the ranges that it touches into one, the newest. */
static void hold_range(struct range r)
{
	for (unsigned i = 0; i < n_held;) {
		if (held[i].to < r.from || held[i].from > r.to) {
			i++;
			continue;
		}
		r.from = held[i].from < r.from ? held[i].from : r.from;
		r.to = held[i].to > r.to ? held[i].to : r.to;
		drop_range(i);
	}
	assert_true(n_held < RANGES);
	memmove(held + 1, held, n_held * sizeof(held[0]));
	held[0] = r;
	n_held++;
}

static void arrive(struct bottleneck *path, struct range r)
{
	uint32_t edges[2 * BLOCKS];
	unsigned blocks = 0;

	if (r.from >= next)
		hold_range(r);
	if (n_held && held[0].from <= next) {
		path->delivered += held[0].to - next;
		next = held[0].to;
		drop_range(0);
	}
	for (; blocks < BLOCKS && blocks < n_held; blocks++) {
		edges[2 * blocks] = base + held[blocks].from;
		edges[2 * blocks + 1] = base + held[blocks].to;
	}
	ack_raw(base + next, blocks, edges);
}

void bottleneck_run(struct bottleneck *path, unsigned ms)
{
	int64_t end_ns = fake_now_ns + ms * INT64_C(1000000);

	while (fake_now_ns < end_ns) {
		fake_now_ns += STEP_NS;
		if (path->late_ms && draw_below(120) == 0)
			fake_now_ns += draw_below(path->late_ms * 1000) *
				       INT64_C(1000);
		net_stack_round(stack);
		while (n && flight[first].due_ns <= fake_now_ns) {
			struct range r = flight[first].bytes;
			bool rivals = flight[first].rivals;

			first = (first + 1) % MOST;
			n--;
			if (rivals)
				rival_acked(path->rival, r.from, fake_now_ns);
			else
				arrive(path, r);
		}
		take_all(path);
	}
}
