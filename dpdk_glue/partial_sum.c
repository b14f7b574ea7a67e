/* Recognises and completes the partial checksums of virtual peers. */
#include "dpdk_glue/partial_sum.h"

#include <string.h>

#include "dpdk_glue/glue_csum.h"

/* Returns where the sum is in the transport header; 0: neither TCP nor UDP. */
static unsigned sum_offset(const struct glue_frame *frame)
{
	if (frame->flags & GLUE_FRAME_TCP)
		return 16;
	return frame->flags & GLUE_FRAME_UDP ? 6 : 0;
}

bool glue_has_partial_sum(const struct glue_frame *frame,
			  const struct glue_l4 *l4)
{
	unsigned header = (unsigned)(frame->l4_off - frame->l3_off);
	unsigned at = sum_offset(frame);
	uint16_t sum;

	if (!at || (l4->addr_len == 4 &&
		    glue_sum_fold(glue_sum_add(0, frame->data + frame->l3_off,
					       header)) != 0xffff))
		return false;
	memcpy(&sum, frame->data + frame->l4_off + at, sizeof(sum));
	return sum == glue_sum_fold(glue_sum_pseudo(l4->addrs, l4->addr_len,
						    l4->proto, l4->len));
}

/* The transport header of a frame, by the flags that glue_check() has set. */
static struct glue_l4 l4_of(const struct glue_frame *frame)
{
	const uint8_t *ip = frame->data + frame->l3_off;
	unsigned header = (unsigned)(frame->l4_off - frame->l3_off);
	uint8_t proto =
		frame->flags & GLUE_FRAME_TCP ? GLUE_PROTO_TCP : GLUE_PROTO_UDP;

	if (frame->flags & GLUE_FRAME_IP4)
		return (struct glue_l4){
			ip + 12, 4, proto,
			(uint16_t)(glue_get16(ip + 2) - header)};
	return (struct glue_l4){
		ip + 8, 16, proto,
		(uint16_t)(glue_get16(ip + 4) + GLUE_IP6_BYTES - header)};
}

void glue_complete_sum(const struct glue_frame *frame)
{
	struct glue_sum sum = {0};
	unsigned off = frame->l4_off, left;
	struct glue_l4 l4;
	uint16_t whole;

	if (!(frame->flags & GLUE_FRAME_CSUM_OK) || !sum_offset(frame))
		return; /* only a sum that was trusted is partial */
	l4 = l4_of(frame);
	if (!glue_has_partial_sum(frame, &l4))
		return;
	left = l4.len;
	for (const struct glue_frame *f = frame; f && left; f = f->next) {
		unsigned len = f->seg_len - off;

		len = len < left ? len : left;
		glue_sum_piece(&sum, f->data + off, len);
		left -= len;
		off = 0;
	}
	whole = (uint16_t)~glue_sum_fold(sum.sum);
	if (whole == 0 && l4.proto == GLUE_PROTO_UDP)
		whole = 0xffff; /* RFC 768: zero means that there is no sum */
	memcpy(frame->data + frame->l4_off + sum_offset(frame), &whole,
	       sizeof(whole));
}
