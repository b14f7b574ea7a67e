/*
 * Any bytes as a frame from the wire, cut into segments: the check that every
 * frame goes through reads no byte beyond them, and what it lets pass is as
 * long as its headers say.
 *
 * The first two bytes of the input say where to cut, and which checksums the
 * port has already checked; the rest is the frame. Includes the source, as the
 * check is private to it and has no need of DPDK's EAL.
 */
#include <assert.h>

#include "dpdk_glue/port.c"

#define MAX_SEGMENTS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A segment's bytes lie in memory of their own: ASan sees one byte too far. */
struct segment {
	struct rte_mbuf mbuf;
	struct glue_frame frame;
};
_Static_assert(offsetof(struct segment, frame) == sizeof(struct rte_mbuf),
	       "the frame is where frame_of() looks for it");

static void fill(struct segment *s, const uint8_t *data, uint16_t len)
{
	memset(s, 0, sizeof(*s));
	s->mbuf.buf_addr = malloc(len);
	assert(s->mbuf.buf_addr || len == 0);
	if (len)
		memcpy(s->mbuf.buf_addr, data, len);
	s->mbuf.data_len = len;
}

/* What the stack above relies on. */
static void check_kept(const struct glue_frame *f)
{
	assert(f->seg_len >= f->l3_off);
	if (f->flags & GLUE_FRAME_IP4)
		assert(f->seg_len >= f->l3_off + 20);
	if (f->flags & GLUE_FRAME_IP6)
		assert(f->seg_len >= f->l3_off + 40);
	if (f->flags & GLUE_FRAME_TCP)
		assert(f->l4_off && f->seg_len >= f->l4_off + 20);
	if (f->flags & GLUE_FRAME_UDP)
		assert(f->l4_off && f->seg_len >= f->l4_off + 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct segment segments[MAX_SEGMENTS];
	unsigned n = 1, step;
	struct glue_l4 l4;

	if (size < 2 || size > 4096)
		return 0;
	step = data[0] ? data[0] : 4096;
	segments[0].mbuf.ol_flags = 0;
	for (size_t at = 2; n <= MAX_SEGMENTS; n++) {
		size_t len = n == MAX_SEGMENTS ? size - at
					       : RTE_MIN(step, size - at);

		fill(&segments[n - 1], data + at, (uint16_t)len);
		at += len;
		if (n > 1)
			segments[n - 2].mbuf.next = &segments[n - 1].mbuf;
		if (at == size)
			break;
	}
	segments[0].mbuf.pkt_len = (uint32_t)size - 2;
	if (data[1] & 1)
		segments[0].mbuf.ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	if (data[1] & 2)
		segments[0].mbuf.ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD;
	if (check_frame(&segments[0].mbuf, &segments[0].frame, &l4) ==
	    GLUE_KEEP) {
		check_kept(&segments[0].frame);
		assert(glue_flow_owner(&segments[0].frame, &l4) == 0);
	}
	for (unsigned i = 0; i < n; i++)
		free(segments[i].mbuf.buf_addr);
	return 0;
}
