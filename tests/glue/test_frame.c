/*
 * Received frames, in allocations of exact size: checksums are verified, behind
 * extension headers too, and VLAN tags are checked and removed. Includes the
 * source, as the check is private to it and has no need of DPDK's EAL.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/port.c"

#define L3 14u

struct segment {
	struct rte_mbuf mbuf;
	struct glue_frame frame;
};

static uint8_t bytes[256];
static unsigned len;
static struct segment segment;
static struct glue_l4 l4;
/* The port's offload flags of the frame. */
static uint64_t ol_flags;
static uint16_t tci;
/* The accepted frame as the stack sees it, and its shard. */
static uint8_t kept[256];
static unsigned kept_len, owner;

/* On a link of that VLAN, or of none: 0. */
static enum glue_verdict judge_in(uint16_t vlan)
{
	struct rte_mbuf *m = &segment.mbuf;
	enum glue_verdict verdict;

	memset(&segment, 0, sizeof(segment));
	m->buf_addr = malloc(len ? len : 1);
	assert_non_null(m->buf_addr);
	memcpy(m->buf_addr, bytes, len);
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	m->ol_flags = ol_flags;
	m->vlan_tci = tci;
	verdict = check_received(m, &segment.frame, &l4, vlan);
	if (verdict == GLUE_KEEP) {
		kept_len = m->pkt_len;
		assert_int_equal(segment.frame.seg_len, kept_len);
		memcpy(kept, segment.frame.data, kept_len);
		owner = glue_flow_owner(&segment.frame, &l4);
	}
	free(m->buf_addr);
	return verdict;
}

static enum glue_verdict judge_frame(void)
{
	return judge_in(0);
}

static void fill_sum(unsigned at, unsigned proto, unsigned off)
{
	bool v4 = bytes[12] == 8;
	unsigned l4_len = len - off;
	uint64_t sum = 0;
	uint16_t value;

	if (v4) {
		value = (uint16_t)~glue_sum_fold(
			glue_sum_add(0, bytes + L3, off - L3));
		memcpy(bytes + L3 + 10, &value, 2);
	}
	if (proto != IPPROTO_ICMP)
		sum = glue_sum_pseudo(bytes + L3 + (v4 ? 12 : 8), v4 ? 4 : 16,
				      (uint8_t)proto, l4_len);
	value = (uint16_t)~glue_sum_fold(
		glue_sum_add(sum, bytes + off, l4_len));
	memcpy(bytes + at, &value, 2);
}

static void write_ip6(unsigned next, unsigned payload)
{
	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, "\2\0\0\0\0\1\2\0\0\0\0\2\206\335\140", 15);
	bytes[L3 + 5] = (uint8_t)payload;
	bytes[L3 + 6] = (uint8_t)next;
	bytes[L3 + 7] = 255;
	bytes[L3 + 8] = bytes[L3 + 24] = 0xfd;
	len = L3 + 40 + payload;
}

static void write_ip4(unsigned proto, unsigned payload)
{
	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, "\2\0\0\0\0\1\2\0\0\0\0\2\10\0\105", 15);
	bytes[L3 + 3] = (uint8_t)(20 + payload);
	bytes[L3 + 8] = 64;
	bytes[L3 + 9] = (uint8_t)proto;
	memcpy(bytes + L3 + 12, "\12\0\0\2\12\0\0\1", 8);
	len = L3 + 20 + payload;
}

/* A right checksum passes; one wrong bit after it fails. */
static void expect_summed(unsigned sum_at, unsigned proto, unsigned off)
{
	fill_sum(sum_at, proto, off);
	assert_int_equal(judge_frame(), GLUE_KEEP);
	assert_true(segment.frame.flags & GLUE_FRAME_CSUM_OK);
	bytes[len - 1] ^= 1;
	assert_int_equal(judge_frame(), GLUE_BAD_CSUM);
	bytes[len - 1] ^= 1;
	bytes[sum_at] ^= 0x80;
	assert_int_equal(judge_frame(), GLUE_BAD_CSUM);
}

static void test_plain_tcp_is_summed(void **state)
{
	write_ip6(IPPROTO_TCP, 28);
	expect_summed(L3 + 40 + 16, IPPROTO_TCP, L3 + 40);
	write_ip4(IPPROTO_TCP, 28);
	expect_summed(L3 + 20 + 16, IPPROTO_TCP, L3 + 20);
}

static void test_tcp_behind_options_is_summed(void **state)
{
	write_ip6(IPPROTO_DSTOPTS, 8 + 28);
	memcpy(bytes + L3 + 40, "\6\0\1\4\0\0\0\0", 8);
	expect_summed(L3 + 48 + 16, IPPROTO_TCP, L3 + 48);
	write_ip6(IPPROTO_FRAGMENT, 8 + 28);
	bytes[L3 + 40] = IPPROTO_TCP;
	expect_summed(L3 + 48 + 16, IPPROTO_TCP, L3 + 48);
}

static void test_icmp_is_summed(void **state)
{
	write_ip6(IPPROTO_ICMPV6, 12);
	bytes[L3 + 40] = 128;
	expect_summed(L3 + 42, IPPROTO_ICMPV6, L3 + 40);
	write_ip4(IPPROTO_ICMP, 12);
	bytes[L3 + 20] = 8;
	expect_summed(L3 + 22, IPPROTO_ICMP, L3 + 20);
}

static void test_udp4_may_have_no_sum(void **state)
{
	write_ip4(IPPROTO_UDP, 12);
	fill_sum(L3 + 26, IPPROTO_UDP, L3 + 20);
	bytes[L3 + 26] = bytes[L3 + 27] = 0;
	assert_int_equal(judge_frame(), GLUE_KEEP);
	write_ip6(IPPROTO_UDP, 12);
	assert_int_equal(judge_frame(), GLUE_BAD_CSUM);
	expect_summed(L3 + 46, IPPROTO_UDP, L3 + 40);
}

static void test_ip4_header_is_summed(void **state)
{
	write_ip4(IPPROTO_TCP, 28);
	fill_sum(L3 + 36, IPPROTO_TCP, L3 + 20);
	bytes[L3 + 8] ^= 1;
	assert_int_equal(judge_frame(), GLUE_BAD_CSUM);
}

/* ---- VLANs ---- */

/* A whole segment, over IPv4 or IPv6. */
static void segment_of(bool v6)
{
	ol_flags = 0;
	tci = 0;
	if (v6)
		write_ip6(IPPROTO_TCP, 28);
	else
		write_ip4(IPPROTO_TCP, 28);
	bytes[len - 28 + 1] = 99; /* a port */
	fill_sum(len - 28 + 16, IPPROTO_TCP, len - 28);
}

/* Inserts a tag before the ethertype. */
static void insert_tag(unsigned type, unsigned value)
{
	memmove(bytes + 16, bytes + 12, len - 12);
	bytes[12] = (uint8_t)(type >> 8);
	bytes[13] = (uint8_t)type;
	bytes[14] = (uint8_t)(value >> 8);
	bytes[15] = (uint8_t)value;
	len += 4;
}

static void test_tag_of_the_link_is_removed(void **state)
{
	uint8_t plain[256];
	unsigned plain_len, plain_owner;

	glue_flow_start(16);
	for (unsigned v6 = 0; v6 < 2; v6++) {
		segment_of(v6);
		assert_int_equal(judge_frame(), GLUE_KEEP);
		memcpy(plain, kept, plain_len = kept_len);
		plain_owner = owner;
		for (unsigned high = 0; high < 16; high++) { /* PCP and DEI */
			segment_of(v6);
			insert_tag(0x8100, high << 12 | 7);
			assert_int_equal(judge_in(7), GLUE_KEEP);
			assert_int_equal(kept_len, plain_len);
			assert_memory_equal(kept, plain, plain_len);
			assert_int_equal(owner, plain_owner);
			assert_int_equal(segment.frame.l3_off, L3);
		}
	}
	segment_of(false);
	insert_tag(0x8100, 4094);
	assert_int_equal(judge_in(4094), GLUE_KEEP);
}

/* A wrong checksum and ARP are found behind the tag. */
static void test_tagged_frame_is_checked(void **state)
{
	segment_of(false);
	bytes[len - 1] ^= 1;
	insert_tag(0x8100, 7);
	assert_int_equal(judge_in(7), GLUE_BAD_CSUM);
	segment_of(false);
	bytes[12] = 0x88;
	bytes[13] = 0xcc;
	insert_tag(0x8100, 7);
	assert_int_equal(judge_in(7), GLUE_REFUSED);
	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, "\2\0\0\0\0\1\2\0\0\0\0\2\10\6\0\1\10\0\6\4\0\1\2", 23);
	len = L3 + 28;
	insert_tag(0x8100, 7);
	assert_int_equal(judge_in(7), GLUE_KEEP);
	assert_true(segment.frame.flags & GLUE_FRAME_ARP);
}

static void test_other_vlans_are_dropped(void **state)
{
	static const unsigned others[] = {0, 6, 8, 4095, 0x7000};

	segment_of(false);
	assert_int_equal(judge_in(7), GLUE_OTHER_VLAN); /* untagged */
	for (unsigned i = 0; i < 5; i++) {
		segment_of(false);
		insert_tag(0x8100, others[i]);
		assert_int_equal(judge_in(7), GLUE_OTHER_VLAN);
	}
	for (unsigned type = 0x88a8; type; type = type == 0x88a8 ? 0x9100 : 0) {
		segment_of(false);
		insert_tag(type, 7);
		assert_int_equal(judge_in(7), GLUE_OTHER_VLAN);
	}
}

static void test_double_tags_are_dropped(void **state)
{
	static const uint16_t links[] = {0, 7};

	for (unsigned i = 0; i < 8; i++) {
		unsigned vid = links[i & 1];

		segment_of(false);
		insert_tag(i & 2 ? 0x88a8 : 0x8100, vid);
		insert_tag(i & 4 ? 0x88a8 : 0x8100, vid);
		assert_int_equal(judge_in((uint16_t)vid), GLUE_OTHER_VLAN);
	}
}

/* 802.1Q: VID 0 names a priority, and no VLAN. */
static void test_priority_tags_are_removed_on_links_without_vlan(void **state)
{
	segment_of(true);
	insert_tag(0x8100, 0xe000);
	assert_int_equal(judge_frame(), GLUE_KEEP);
	assert_int_equal(kept_len, len - 4);
	assert_int_equal(kept[12] << 8 | kept[13], 0x86dd);
	for (unsigned vid = 1; vid < 4096; vid++) {
		segment_of(true);
		insert_tag(0x8100, vid);
		assert_int_equal(judge_frame(), GLUE_OTHER_VLAN);
	}
	segment_of(true);
	insert_tag(0x88a8, 0);
	assert_int_equal(judge_frame(), GLUE_OTHER_VLAN);
}

static void test_frames_cut_within_the_tag_are_bad(void **state)
{
	unsigned whole;

	for (unsigned vlan = 0; vlan < 8; vlan += 7) {
		segment_of(false);
		insert_tag(0x8100, vlan);
		whole = len;
		for (len = 0; len < whole; len++) {
			enum glue_verdict verdict = judge_in((uint16_t)vlan);

			assert_int_equal(verdict, GLUE_BAD_FRAME);
		}
		assert_int_equal(judge_in((uint16_t)vlan), GLUE_KEEP);
	}
}

/* A tag that the port has removed is in the mbuf. */
static void test_tag_removed_by_the_port_is_checked(void **state)
{
	segment_of(false);
	ol_flags = RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
	tci = 0xa000 | 7;
	assert_int_equal(judge_in(7), GLUE_KEEP);
	assert_int_equal(kept_len, len);
	assert_int_equal(judge_in(8), GLUE_OTHER_VLAN);
	tci = 0;
	assert_int_equal(judge_in(7), GLUE_OTHER_VLAN);
	tci = 7;
	ol_flags |= RTE_MBUF_F_RX_QINQ | RTE_MBUF_F_RX_QINQ_STRIPPED;
	assert_int_equal(judge_in(7), GLUE_OTHER_VLAN);
	/* and a second one behind it, in the bytes */
	ol_flags = RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
	insert_tag(0x8100, 7);
	assert_int_equal(judge_in(7), GLUE_OTHER_VLAN);
	/* seen by the port, but left where it is */
	ol_flags = RTE_MBUF_F_RX_VLAN;
	assert_int_equal(judge_in(7), GLUE_KEEP);
	ol_flags = 0;
}

/* ---- sending ---- */

static uint8_t room[RTE_PKTMBUF_HEADROOM + 256];

/* The frame in `bytes`, as the stack sends it. */
static struct rte_mbuf *to_send(unsigned headroom)
{
	struct rte_mbuf *m = &segment.mbuf;

	memset(&segment, 0, sizeof(segment));
	m->buf_addr = room;
	m->buf_len = sizeof(room);
	m->data_off = (uint16_t)headroom;
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	m->nb_segs = 1;
	rte_mbuf_refcnt_set(m, 1);
	memcpy(room + headroom, bytes, len);
	segment.frame = (struct glue_frame){
		.data = room + headroom,
		.seg_len = (uint16_t)len,
		.flags = GLUE_FRAME_IP4 | GLUE_FRAME_TCP,
		.l3_off = L3,
		.l4_off = L3 + 20,
	};
	return m;
}

static void test_added_tag_is_the_removed_one(void **state)
{
	static const uint16_t vids[] = {1, 7, 256, 4094};

	for (unsigned i = 0; i < 4; i++) {
		struct glue_frame *f = &segment.frame;
		struct rte_mbuf *m;
		uint8_t plain[256];
		unsigned plain_len;

		segment_of(false);
		plain_len = len;
		memcpy(plain, bytes, len);
		m = to_send(RTE_PKTMBUF_HEADROOM);
		assert_true(glue_vlan_add(m, f, vids[i]));
		assert_ptr_equal(f->data, rte_pktmbuf_mtod(m, uint8_t *));
		assert_int_equal(f->seg_len, len + 4);
		assert_int_equal(m->data_len, len + 4);
		assert_int_equal(m->pkt_len, len + 4);
		assert_int_equal(f->l3_off, L3 + 4);
		assert_int_equal(f->l4_off, L3 + 24);
		insert_tag(0x8100, vids[i]);
		assert_memory_equal(f->data, bytes, len);
		assert_int_equal(judge_in(vids[i]), GLUE_KEEP);
		assert_int_equal(kept_len, plain_len);
		assert_memory_equal(kept, plain, plain_len);
	}
}

/* In a frame with borrowed memory, only the header's mbuf changes. */
static void test_tag_is_added_to_the_first_segment_alone(void **state)
{
	static uint8_t lent[100];
	struct rte_mbuf rest = {.buf_addr = lent,
				.data_len = 100,
				.ol_flags = RTE_MBUF_F_EXTERNAL},
			before = rest;
	struct rte_mbuf *m;

	segment_of(false);
	m = to_send(RTE_PKTMBUF_HEADROOM);
	m->next = &rest;
	m->nb_segs = 2;
	m->pkt_len += 100;
	assert_true(glue_vlan_add(m, &segment.frame, 7));
	assert_int_equal(m->data_len, len + 4);
	assert_int_equal(m->pkt_len, len + 104);
	assert_ptr_equal(m->next, &rest);
	assert_memory_equal(&rest, &before, sizeof(rest));
}

static void test_tag_without_room_is_refused(void **state)
{
	struct rte_mbuf *m;

	segment_of(false);
	m = to_send(3);
	assert_false(glue_vlan_add(m, &segment.frame, 7));
	m = to_send(4);
	assert_true(glue_vlan_add(m, &segment.frame, 7));
	m = to_send(RTE_PKTMBUF_HEADROOM);
	rte_mbuf_refcnt_set(m, 2); /* shared with another owner */
	assert_false(glue_vlan_add(m, &segment.frame, 7));
	m = to_send(RTE_PKTMBUF_HEADROOM);
	m->ol_flags = RTE_MBUF_F_INDIRECT;
	assert_false(glue_vlan_add(m, &segment.frame, 7));
	len = 13;
	m = to_send(RTE_PKTMBUF_HEADROOM);
	assert_false(glue_vlan_add(m, &segment.frame, 7));
	assert_int_equal(segment.frame.seg_len, 13);
	assert_int_equal(m->data_len, 13);
}

/* ---- configuration of ports ---- */

static void test_mtu_of_a_nic_has_room_for_the_tag(void **state)
{
	struct glue_link link = {.kind = GLUE_LINK_PCI, .vlan = 7};
	struct rte_eth_dev_info info = {.max_mtu = 9600, .max_rx_pktlen = 9618};

	assert_int_equal(glue_vlan_mtu(&link, &info), 4);
	info.max_rx_pktlen = 9622;
	assert_int_equal(glue_vlan_mtu(&link, &info), 0);
	info.max_mtu = UINT16_MAX; /* it does not say */
	assert_int_equal(glue_vlan_mtu(&link, &info), 4);
	link.vlan = 0;
	assert_int_equal(glue_vlan_mtu(&link, &info), 0);
	link = (struct glue_link){.kind = GLUE_LINK_TAP, .vlan = 7};
	assert_int_equal(glue_vlan_mtu(&link, &info), 0);
}

static void test_vlan_offloads_are_requested(void **state)
{
	const uint64_t strip = RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
	const uint64_t filter = RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
	struct glue_link link = {.kind = GLUE_LINK_PCI, .vlan = 7};
	struct rte_eth_dev_info info = {.driver_name = "net_ice",
					.rx_offload_capa = strip | filter};

	assert_int_equal(glue_vlan_offloads(&link, &info), strip | filter);
	info.driver_name = "net_virtio";
	assert_int_equal(glue_vlan_offloads(&link, &info), filter);
	info.rx_offload_capa = strip;
	assert_int_equal(glue_vlan_offloads(&link, &info), 0);
	assert_int_equal(glue_vlan_join(0, &link, 0), 0); /* nothing to join */
	link.kind = GLUE_LINK_AF_PACKET;
	assert_int_equal(glue_vlan_offloads(&link, &info), strip);
	link.vlan = 0;
	assert_int_equal(glue_vlan_offloads(&link, &info), 0);
	link = (struct glue_link){.kind = GLUE_LINK_VHOST, .vlan = 7};
	assert_int_equal(glue_vlan_offloads(&link, &info), 0);
}

/* Fills in the sum of the pseudo header, which a kernel leaves to a NIC. */
static void fill_partial(unsigned at, unsigned proto, unsigned off)
{
	bool v4 = bytes[12] == 8;
	uint16_t sum = glue_sum_fold(
		glue_sum_pseudo(bytes + L3 + (v4 ? 12 : 8), v4 ? 4 : 16,
				(uint8_t)proto, len - off));

	fill_sum(at, proto, off);
	memcpy(bytes + at, &sum, sizeof(sum));
}

static bool kept_after_all(struct glue_port *port)
{
	enum glue_verdict verdict;

	memset(&segment, 0, sizeof(segment));
	segment.mbuf.buf_addr = bytes;
	segment.mbuf.data_len = (uint16_t)len;
	segment.mbuf.pkt_len = len;
	verdict = check_received(&segment.mbuf, &segment.frame, &l4, 0);
	return keep_after_all(port, &segment.frame, &l4, verdict);
}

static void
test_partial_checksums_are_accepted_from_a_trusted_port(void **state)
{
	struct glue_port trusting = {.trusts_csum = true}, other = {0};

	for (unsigned v6 = 0; v6 < 2; v6++) {
		unsigned off = L3 + (v6 ? 40 : 20);

		for (unsigned tcp = 0; tcp < 2; tcp++) {
			unsigned at = off + (tcp ? 16 : 6);
			unsigned proto = tcp ? IPPROTO_TCP : IPPROTO_UDP;

			(v6 ? write_ip6 : write_ip4)(proto, 40);
			bytes[off + (tcp ? 12 : 5)] = tcp ? 0x50 : 40;
			memset(bytes + off + 20, 'x', 20);
			fill_partial(at, proto, off);
			assert_true(kept_after_all(&trusting));
			assert_true(segment.frame.flags & GLUE_FRAME_CSUM_OK);
			assert_false(kept_after_all(&other));
			bytes[at] ^= 1; /* any other wrong checksum */
			assert_false(kept_after_all(&trusting));
		}
	}
	assert_int_equal(trusting.stats.rx_partial_csum, 4);
	assert_int_equal(glue_port_untrusted(&trusting), 0);
	assert_int_equal(glue_port_untrusted(&other), 4);
	write_ip4(IPPROTO_TCP, 40);
	bytes[L3 + 20 + 12] = 0x50;
	fill_partial(L3 + 20 + 16, IPPROTO_TCP, L3 + 20);
	bytes[L3 + 10] ^= 1; /* IP's own checksum is never left to a NIC */
	assert_false(kept_after_all(&trusting));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain_tcp_is_summed),
		cmocka_unit_test(
			test_partial_checksums_are_accepted_from_a_trusted_port),
		cmocka_unit_test(test_tcp_behind_options_is_summed),
		cmocka_unit_test(test_icmp_is_summed),
		cmocka_unit_test(test_udp4_may_have_no_sum),
		cmocka_unit_test(test_ip4_header_is_summed),
		cmocka_unit_test(test_tag_of_the_link_is_removed),
		cmocka_unit_test(test_tagged_frame_is_checked),
		cmocka_unit_test(test_other_vlans_are_dropped),
		cmocka_unit_test(test_double_tags_are_dropped),
		cmocka_unit_test(
			test_priority_tags_are_removed_on_links_without_vlan),
		cmocka_unit_test(test_frames_cut_within_the_tag_are_bad),
		cmocka_unit_test(test_tag_removed_by_the_port_is_checked),
		cmocka_unit_test(test_added_tag_is_the_removed_one),
		cmocka_unit_test(test_tag_is_added_to_the_first_segment_alone),
		cmocka_unit_test(test_tag_without_room_is_refused),
		cmocka_unit_test(test_mtu_of_a_nic_has_room_for_the_tag),
		cmocka_unit_test(test_vlan_offloads_are_requested),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
