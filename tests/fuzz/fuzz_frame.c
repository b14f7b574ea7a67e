/*
 * Any bytes as a frame from the wire, split into segments: glue_check() reads
 * no byte beyond them, and a frame that passes is as long as its headers say.
 *
 * The first two bytes of the input say where to cut, which checksums the port
 * has already checked, whether the link has a VLAN and the port has taken the
 * tag off; the rest is the frame. Includes the source, as the check is private
 * to it and has no need of DPDK's EAL.
 */
#include <assert.h>

#include "dpdk_glue/port.c"

#define MAX_SEGMENTS 4
#define VLAN	     7

/* Bits of the second byte; the bits above choose one of eight tags. */
enum { L4_GOOD = 1, IP_GOOD = 2, HAS_VLAN = 4, STRIPPED = 8, QINQ = 16 };
#define TCI_SHIFT 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Each segment's bytes are an allocation of their own, so that ASan sees every
 * overrun.
 */
struct segment {
	struct rte_mbuf mbuf;
	struct glue_frame frame;
};
_Static_assert(offsetof(struct segment, frame) == sizeof(struct rte_mbuf),
	       "the frame is where frame_of() looks for it");

static void fill_segment(struct segment *s, const uint8_t *data, uint16_t len)
{
	memset(s, 0, sizeof(*s));
	s->mbuf.buf_addr = malloc(len);
	assert(s->mbuf.buf_addr || len == 0);
	if (len)
		memcpy(s->mbuf.buf_addr, data, len);
	s->mbuf.data_len = len;
}

/* Checks the guarantees that the stack relies on. */
static void check_kept(const struct glue_frame *f)
{
	unsigned type = glue_get16(f->data + 12);

	assert(f->l3_off == GLUE_ETH_BYTES);
	assert(type == 0x0800 || type == 0x86dd || type == 0x0806);
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

/* Sets the offload flags that a port may report. */
static void describe_offloads(struct rte_mbuf *m, unsigned said)
{
	static const uint16_t tcis[] = {
		0, VLAN, 0xf000 | VLAN, VLAN + 256, 0x1000, 4095, 1, 0xe000};

	if (said & L4_GOOD)
		m->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	if (said & IP_GOOD)
		m->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD;
	if (said & STRIPPED)
		m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
	if (said & QINQ)
		m->ol_flags |= RTE_MBUF_F_RX_QINQ | RTE_MBUF_F_RX_QINQ_STRIPPED;
	m->vlan_tci = tcis[said >> TCI_SHIFT];
}

/*
 * Returns the VID of the frame's only tag, in the mbuf or in the frame; -1: no
 * tag.
 */
static int vid_of(const struct rte_mbuf *m)
{
	const uint8_t *eth = rte_pktmbuf_mtod(m, const uint8_t *);

	if (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)
		return m->vlan_tci & 0xfff;
	if (m->data_len < 18 || glue_get16(eth + 12) != 0x8100)
		return -1;
	return (int)glue_get16(eth + 14) & 0xfff;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct segment segments[MAX_SEGMENTS];
	struct rte_mbuf *m = &segments[0].mbuf;
	uint16_t vlan;
	int vid;
	unsigned n = 1, step;
	struct glue_l4 l4;

	if (size < 2 || size > 4096)
		return 0;
	step = data[0] ? data[0] : 4096;
	segments[0].mbuf.ol_flags = 0;
	for (size_t at = 2; n <= MAX_SEGMENTS; n++) {
		size_t len = n == MAX_SEGMENTS ? size - at
					       : RTE_MIN(step, size - at);

		fill_segment(&segments[n - 1], data + at, (uint16_t)len);
		at += len;
		if (n > 1)
			segments[n - 2].mbuf.next = &segments[n - 1].mbuf;
		if (at == size)
			break;
	}
	m->pkt_len = (uint32_t)size - 2;
	describe_offloads(m, data[1]);
	vlan = data[1] & HAS_VLAN ? VLAN : 0;
	vid = vid_of(m);
	if (check_received(m, &segments[0].frame, &l4, vlan) == GLUE_KEEP) {
		check_kept(&segments[0].frame);
		assert(vlan ? vid == vlan : vid <= 0 || data[1] & STRIPPED);
		assert(m->pkt_len == size - 2 ||
		       (m->pkt_len == size - 6 && !(data[1] & STRIPPED)));
		assert(glue_flow_owner(&segments[0].frame, &l4) == 0);
	}
	for (unsigned i = 0; i < n; i++)
		free(segments[i].mbuf.buf_addr);
	return 0;
}
