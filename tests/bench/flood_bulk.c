/*
 * Bulk: every flow sends as fast as the windows allow, and receives the echo at
 * the same time. The byte at a sequence number is always the same, so nothing
 * is stored for retransmission, and the echo is compared.
 */
#include "tests/bench/flood.h"

#include <stdlib.h>
#include <string.h>

#include "tests/bytes.h"

#define MSS	   1460u
#define RESEND_MS  300
#define SCAN_FLOWS 16

/* The stream repeats itself, at a length that is no multiple of the MSS. */
#define PATTERN (1u << 16)

/*
 * Frames in flight, of all flows together: as many as a link's ring holds
 * without loss, and a cache nearly. Each flow may have two.
 */
#define UNDER_WAY 512u

static uint8_t *pattern; /* twice, so that any piece of one is contiguous */

bool flood_bulk_init(struct flood *fl)
{
	uint64_t x = 1;

	pattern = malloc(2 * PATTERN);
	fl->dirty = calloc(fl->conns, sizeof(*fl->dirty));
	if (!pattern || !fl->dirty)
		return false;
	for (unsigned i = 0; i < PATTERN; i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
		pattern[i] = pattern[i + PATTERN] = (uint8_t)(x >> 56);
	}
	fl->bulk_window = UNDER_WAY / fl->conns * MSS;
	if (fl->bulk_window < 2 * MSS)
		fl->bulk_window = 2 * MSS;
	return true;
}

static const uint8_t *bytes_at(const struct flow *flow, uint32_t seq)
{
	return pattern + (seq + flow->port) % PATTERN;
}

/* Marks a flow that has received data, for one ACK per burst. */
static void mark_dirty(struct flood *fl, uint32_t index)
{
	if (fl->flows[index].unacked)
		return;
	fl->flows[index].unacked = true;
	fl->dirty[fl->n_dirty++] = index;
}

/* Sends as much as fits; each segment acknowledges, too. */
static void pump_stream(struct flood *fl, uint32_t index)
{
	struct flow *flow = &fl->flows[index];
	uint32_t window = flow->bulk.wnd < fl->bulk_window ? flow->bulk.wnd
							   : fl->bulk_window;

	while (!fl->closing && flow->snd - flow->bulk.una + MSS <= window) {
		struct glue_frame *frame =
			flood_segment(fl, index, ACK, 0, MSS);

		if (!frame)
			return;
		memcpy(frame->data + HEAD, bytes_at(flow, flow->snd), MSS);
		glue_tx(fl->port, frame);
		flow->snd += MSS;
	}
}

void flood_bulk_start(struct flood *fl, uint32_t index)
{
	fl->flows[index].state = FLOW_ASKED;
	mark_dirty(fl, index);
}

/* Without a frame a flow keeps its position. */
void flood_bulk_turn(struct flood *fl)
{
	uint32_t n = fl->n_dirty;

	fl->n_dirty = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t index = fl->dirty[i];
		struct flow *flow = &fl->flows[index];

		if (flow->state != FLOW_ASKED)
			continue;
		pump_stream(fl, index);
		if (flow->unacked)
			flood_send_bare(fl, index, ACK);
		if (flow->unacked)
			fl->dirty[fl->n_dirty++] = index;
	}
	for (unsigned i = 0; i < SCAN_FLOWS; i++) {
		uint32_t index = fl->scan++ % fl->conns;
		struct flow *flow = &fl->flows[index];

		if (flow->state != FLOW_ASKED || flow->snd == flow->bulk.una ||
		    fl->now_ms - flow->sent_ms < RESEND_MS)
			continue;
		fl->resent++;
		flow->snd = flow->bulk.una; /* and all that follows */
		flow->sent_ms = fl->now_ms;
		mark_dirty(fl, index);
	}
}

void flood_bulk_take(struct flood *fl, uint32_t index, const uint8_t *tcp,
		     const uint8_t *data, unsigned len)
{
	struct flow *flow = &fl->flows[index];
	uint32_t seq = get32(tcp + 4), ack = get32(tcp + 8);

	if (flow->state != FLOW_ASKED)
		return;
	if ((int32_t)(ack - flow->bulk.una) >= 0) {
		if (ack != flow->bulk.una)
			flow->sent_ms = fl->now_ms;
		flow->bulk.una = ack;
		if ((int32_t)(flow->snd - ack) < 0)
			flow->snd = ack; /* data sent before going back */
		flow->bulk.wnd = get16(tcp + 14) << flow->got;
	}
	mark_dirty(fl, index);
	if (!len || seq != flow->rcv)
		return; /* the ACK requests the missing data */
	if (memcmp(data, bytes_at(flow, seq + flow->apart), len) != 0)
		fl->wrong++;
	flow->rcv += len;
	if (fl->measuring)
		fl->bytes += len;
}
