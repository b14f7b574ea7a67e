#include "tests/net/bottleneck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"

#define STEP_NS	 INT64_C(250000)
#define MOST	 8192u /* segments on their way */
#define SEGMENTS 65536u
#define RANGES	 3u

void (*bottleneck_sees)(int64_t now_ns, unsigned bytes);

static struct {
	int64_t due_ns; /* when its ACK comes */
	uint32_t number;
} way[MOST];
static unsigned first, n;
static bool has[SEGMENTS]; /* of the stream; by number, modulo */
static uint32_t next;	   /* the first that it has not */
static uint32_t newest[RANGES];
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
	static const uint8_t options[] = {2, 4, MSS >> 8, MSS & 255, 3, 3,
					  7, 1, 4,	  2,	     1, 1};
	struct segment s;

	first = n = next = 0;
	busy_ns = 0;
	random_state = 1;
	memset(has, 0, sizeof(has));
	memset(newest, 0, sizeof(newest));
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

static bool lose(const struct bottleneck *path)
{
	random_state = random_state * UINT64_C(6364136223846793005) +
		       UINT64_C(1442695040888963407);
	return (random_state >> 33) % 1000 < path->per_mille;
}

static void take_in(struct bottleneck *path, const struct segment *s)
{
	double waits = busy_ns > fake_now_ns
			       ? (double)(busy_ns - fake_now_ns) * path->rate /
					 1e9
			       : 0;

	if (s->len == 0)
		return;
	path->sent += s->len;
	if (bottleneck_sees)
		bottleneck_sees(fake_now_ns, s->len);
	if (waits + s->len > path->queue || lose(path)) {
		path->dropped += s->len;
		return;
	}
	if (waits > path->longest)
		path->longest = waits;
	if (busy_ns < fake_now_ns)
		busy_ns = fake_now_ns;
	busy_ns += (int64_t)(s->len * 1e9 / path->rate);
	assert_true(n < MOST);
	way[(first + n) % MOST].due_ns = busy_ns + path->delay_ns;
	way[(first + n) % MOST].number = (s->seq - base) / MSS;
	n++;
}

/* The block around a segment, as the peer has it. */
static void block_of(uint32_t number, uint32_t *edges)
{
	uint32_t from = number, to = number + 1;

	while (from > next && has[(from - 1) % SEGMENTS])
		from--;
	while (has[to % SEGMENTS])
		to++;
	edges[0] = base + from * MSS;
	edges[1] = base + to * MSS;
}

/* The newest first, each once: twice would be a D-SACK. */
static unsigned fill_blocks(uint32_t *edges)
{
	unsigned blocks = 0, k;

	for (unsigned i = 0; i < RANGES; i++) {
		if (newest[i] <= next)
			continue;
		block_of(newest[i], edges + 2 * blocks);
		for (k = 0; edges[2 * k] != edges[2 * blocks]; k++)
			;
		blocks += k == blocks;
	}
	return blocks;
}

static void arrive(struct bottleneck *path, uint32_t number)
{
	uint32_t edges[2 * RANGES];

	if (number >= next && !has[number % SEGMENTS]) {
		has[number % SEGMENTS] = true;
		path->delivered += MSS;
		memmove(newest + 1, newest, sizeof(newest) - sizeof(*newest));
		newest[0] = number;
	}
	while (has[next % SEGMENTS])
		has[next++ % SEGMENTS] = false;
	ack_raw(base + next * MSS, fill_blocks(edges), edges);
}

void bottleneck_run(struct bottleneck *path, unsigned ms)
{
	int64_t end_ns = fake_now_ns + ms * INT64_C(1000000);
	struct segment s;

	while (fake_now_ns < end_ns) {
		fake_now_ns += STEP_NS;
		net_stack_round(stack);
		while (n && way[first].due_ns <= fake_now_ns) {
			uint32_t number = way[first].number;

			first = (first + 1) % MOST;
			n--;
			arrive(path, number);
		}
		while (peer_next(&s))
			take_in(path, &s);
	}
}
