/* dpdk_glue without DPDK: a port of two arrays in memory, and a fake clock. */
#include "tests/net/fake_glue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk_glue/check.h"
#include "dpdk_glue/glue_csum.h"

#define FRAME_ROOM 9216

const uint8_t fake_mac[6] = {2, 0, 0, 0, 0, 1};
const uint8_t fake_peer_mac[6] = {2, 0, 0, 0, 0, 2};
_Thread_local int64_t fake_now_ns = 1000000000;
_Thread_local int64_t fake_clock_step_ns;
_Thread_local unsigned fake_frames_out;
_Atomic unsigned fake_broken_shard;
_Thread_local int fake_tx_budget = -1;
_Thread_local const struct glue_port *fake_budget_port;
_Thread_local unsigned fake_segment_bytes;
_Thread_local bool fake_lends;
_Thread_local bool fake_resends;
_Thread_local unsigned fake_tx_segment_bytes;
_Thread_local unsigned fake_sent_pieces;

struct queue {
	struct glue_frame *frames[FAKE_MAX_FRAMES];
	unsigned head, tail;
};

static _Thread_local struct queue rx, tx;
static _Thread_local bool keeps_refused;

static void push_frame(struct queue *queue, struct glue_frame *frame)
{
	if (queue->tail - queue->head == FAKE_MAX_FRAMES) {
		glue_frame_free(frame);
		return;
	}
	queue->frames[queue->tail++ % FAKE_MAX_FRAMES] = frame;
}

static struct glue_frame *pop_frame(struct queue *queue)
{
	if (queue->head == queue->tail)
		return NULL;
	return queue->frames[queue->head++ % FAKE_MAX_FRAMES];
}

/* A frame and the memory that is its own. */
struct fake_frame {
	struct glue_frame frame; /* first */
	uint8_t *memory;
	unsigned bytes;		    /* of memory */
	struct glue_lender *lender; /* of the memory it refers to */
	bool split;		    /* its segments are freed apart */
	bool sent_again;	    /* by glue_tx_again(): it has two owners */
};

/*
 * Allocates exactly len bytes, so that a sanitizer sees accesses beyond the
 * end.
 */
static struct glue_frame *new_frame(unsigned len)
{
	struct fake_frame *fake = calloc(1, sizeof(*fake));

	if (!fake || len > FRAME_ROOM)
		abort();
	fake->bytes = len ? len : 1;
	fake->memory = malloc(fake->bytes);
	if (!fake->memory)
		abort();
	fake->frame.data = fake->memory;
	fake->frame.seg_len = (uint16_t)len;
	fake_frames_out++;
	return &fake->frame;
}

/* Erases the bytes, so that a use after this finds others. */
static void free_one(struct glue_frame *frame)
{
	struct fake_frame *fake = (void *)frame;
	struct glue_lender *lender = fake->lender;

	if (fake->sent_again) {
		fake->sent_again = false;
		return;
	}
	if (lender && --lender->frames[0] == 0)
		lender->done(lender);
	fake_frames_out--;
	explicit_bzero(fake->memory, fake->bytes);
	free(fake->memory);
	free(fake);
}

void glue_frame_free(struct glue_frame *frame)
{
	bool split = ((struct fake_frame *)(void *)frame)->split;

	while (frame) {
		struct glue_frame *next = split ? NULL : frame->next;

		free_one(frame);
		frame = next;
	}
}

void fake_receive(const void *data, unsigned len, uint16_t flags,
		  uint16_t l4_off)
{
	unsigned part = fake_segment_bytes && fake_segment_bytes < len
				? fake_segment_bytes
				: len;
	struct glue_frame *frame = new_frame(part), *tail = frame;

	memcpy(frame->data, data, part);
	for (unsigned at = part; at < len; at += part) {
		if (part > len - at)
			part = len - at;
		tail->next = new_frame(part);
		tail = tail->next;
		memcpy(tail->data, (const uint8_t *)data + at, part);
	}
	if (!flags) {
		struct glue_l4 l4;

		if (glue_check(frame, len, &l4) != GLUE_KEEP) {
			glue_frame_free(frame);
			return;
		}
	} else {
		frame->flags = flags;
		frame->l3_off = 14;
		frame->l4_off = l4_off;
	}
	push_frame(&rx, frame);
}

/* Verifies checksums as dpdk_glue/port.c does after glue_check(). */
static bool sums_ok(const struct glue_frame *f, const struct glue_l4 *l4)
{
	uint64_t sum = 0;

	if (!l4->addrs)
		return true;
	if (l4->addr_len == 4 &&
	    glue_sum_fold(glue_sum_add(0, f->data + f->l3_off,
				       (size_t)(f->l4_off - f->l3_off))) !=
		    0xffff)
		return false;
	if (l4->addr_len == 4 && l4->proto == GLUE_PROTO_UDP &&
	    glue_get16(f->data + f->l4_off + 6) == 0)
		return true;
	if (l4->proto != GLUE_PROTO_ICMP && l4->proto != GLUE_PROTO_IGMP)
		sum = glue_sum_pseudo(l4->addrs, l4->addr_len, l4->proto,
				      l4->len);
	return glue_sum_fold(glue_sum_add(sum, f->data + f->l4_off, l4->len)) ==
	       0xffff;
}

bool fake_receive_wire(const void *data, unsigned len)
{
	struct glue_frame *frame = new_frame(len);
	struct glue_l4 l4;

	memcpy(frame->data, data, len);
	switch (glue_check(frame, len, &l4)) {
	case GLUE_KEEP:
		if (sums_ok(frame, &l4))
			break;
		glue_frame_free(frame);
		return false;
	case GLUE_REFUSED:
		if (keeps_refused) {
			glue_check_other(frame, &l4);
			push_frame(&rx, frame);
			return true;
		}
		glue_frame_free(frame);
		return false;
	case GLUE_BAD_FRAME:
	case GLUE_BAD_CSUM:
	case GLUE_OTHER_VLAN:
		glue_frame_free(frame);
		return false;
	}
	if (l4.addrs)
		frame->flags |= GLUE_FRAME_CSUM_OK;
	push_frame(&rx, frame);
	return true;
}

unsigned fake_sent(uint8_t *data, unsigned room)
{
	struct glue_frame *frame = pop_frame(&tx);
	unsigned len = 0;

	fake_sent_pieces = 0;
	if (!frame)
		return 0;
	for (struct glue_frame *f = frame; f; f = f->next) {
		unsigned part =
			f->seg_len < room - len ? f->seg_len : room - len;

		memcpy(data + len, f->data, part);
		len += part;
		fake_sent_pieces++;
	}
	glue_frame_free(frame);
	return len;
}

void fake_reset(void)
{
	struct glue_frame *frame;

	while ((frame = pop_frame(&rx)))
		glue_frame_free(frame);
	while ((frame = pop_frame(&tx)))
		glue_frame_free(frame);
	fake_lends = false;
	fake_resends = false;
	fake_tx_budget = -1;
	fake_budget_port = NULL;
	fake_frames_spare = -1;
	fake_frames_exhausted = false;
	fake_exhausted_port = NULL;
	fake_no_carrier = false;
	fake_segment_bytes = 0;
	fake_tx_segment_bytes = 0;
}

/* ---- glue.h ---- */

struct glue_port {
	int unused;
};

int64_t glue_now_ns(void)
{
	fake_now_ns += fake_clock_step_ns;
	return fake_now_ns;
}

int glue_port_open(unsigned index, const struct glue_port_conf *conf,
		   struct glue_port **out, char *err, size_t err_len)
{
	static struct glue_port ports[GLUE_MAX_LINKS];

	if (conf->shard && conf->shard == fake_broken_shard) {
		snprintf(err, err_len, "no port for shard %u", conf->shard);
		return -ENODEV;
	}
	keeps_refused = false;
	*out = &ports[index];
	return 0;
}

void glue_port_close(struct glue_port *port)
{
	fake_reset();
}

void glue_port_keep_refused(struct glue_port *port, bool keeps)
{
	keeps_refused = keeps;
}

const uint8_t *glue_port_mac(const struct glue_port *port)
{
	return fake_mac;
}

unsigned glue_rx(struct glue_port *port, struct glue_frame **frames,
		 unsigned max)
{
	unsigned n = 0;

	while (n < max && (frames[n] = pop_frame(&rx)))
		n++;
	return n;
}

static struct glue_frame *new_segments(unsigned len)
{
	unsigned most = fake_tx_segment_bytes ? fake_tx_segment_bytes : len;
	struct glue_frame *first = new_frame(len < most ? len : most);
	struct glue_frame *last = first;

	for (unsigned done = most; done < len; done += most) {
		last->next = new_frame(len - done < most ? len - done : most);
		last = last->next;
	}
	return first;
}

static bool has_budget(const struct glue_port *port)
{
	return fake_tx_budget >= 0 &&
	       (!fake_budget_port || port == fake_budget_port);
}

struct glue_frame *glue_tx_alloc(struct glue_port *port, unsigned len)
{
	if (glue_tx_busy(port))
		return NULL;
	if (has_budget(port))
		fake_tx_budget--;
	return new_segments(len);
}

void glue_tx(struct glue_port *port, struct glue_frame *frame)
{
	push_frame(&tx, frame);
}

bool glue_port_lends(const struct glue_port *port)
{
	return fake_lends;
}

bool glue_tx_lend(struct glue_port *port, struct glue_frame *frame,
		  const void *data, unsigned len, struct glue_lender *lender)
{
	struct glue_frame *piece;

	if (glue_tx_busy(port))
		return false;
	piece = new_frame(0);
	piece->data = (uint8_t *)(uintptr_t)data;
	piece->seg_len = (uint16_t)len;
	((struct fake_frame *)(void *)piece)->lender = lender;
	lender->frames[0]++;
	while (frame->next)
		frame = frame->next;
	frame->next = piece;
	return true;
}

bool glue_tx_again(struct glue_port *port, struct glue_frame *frame,
		   unsigned len)
{
	struct fake_frame *fake = (void *)frame;

	if (!fake_resends || frame->next || fake->sent_again ||
	    glue_tx_busy(port))
		return false;
	fake->sent_again = true;
	frame->seg_len = (uint16_t)len;
	return true;
}

bool glue_tx_busy(struct glue_port *port)
{
	return has_budget(port) && fake_tx_budget == 0;
}

void glue_tx_drop(struct glue_port *port)
{
	for (struct glue_frame *f; (f = pop_frame(&tx));)
		glue_frame_free(f);
}

void glue_frame_split(struct glue_frame *frame)
{
	for (; frame; frame = frame->next)
		((struct fake_frame *)(void *)frame)->split = true;
}

unsigned glue_port_frames_free(const struct glue_port *port)
{
	return FAKE_MAX_FRAMES - fake_frames_out;
}

unsigned glue_port_frames(const struct glue_port *port)
{
	return FAKE_MAX_FRAMES;
}
