/* glue_check() on frames that pass and frames that do not. */
#include "tests/glue/check_frames.h"

/* ---- Ethernet, ARP ---- */

static void test_truncated_arp_is_dropped(void **state)
{
	write_arp(1);
	expect_whole_only();
	assert_int_equal(frame.flags, GLUE_FRAME_ARP);
	len = L3 + 28;
	assert_int_equal(judge_in(L3 + 27), GLUE_BAD_FRAME);
}

static void test_other_arp_types_are_refused(void **state)
{
	static const unsigned at[] = {0, 1, 2, 3, 4, 5};

	for (unsigned i = 0; i < 6; i++) {
		write_arp(1)[at[i]] ^= 2;
		assert_int_equal(judge_frame(), GLUE_REFUSED);
	}
	write_arp(3);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_arp(2)[8] = 3; /* the sender's MAC is a group's */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	memset(write_arp(2) + 8, 0, 6);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_unknown_ethertypes_are_refused(void **state)
{
	write_ethernet(0x88cc);
	len = 60;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	for (len = 0; len < L3; len++)
		assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
}

/*
 * The link's tag is removed before (test_frame.c): a tag here is another
 * VLAN's.
 */
static void test_tagged_frame_is_of_another_vlan(void **state)
{
	write_ethernet(0x8100);
	len = 60;
	assert_int_equal(judge_frame(), GLUE_OTHER_VLAN);
	write_ethernet(0x88a8);
	assert_int_equal(judge_frame(), GLUE_OTHER_VLAN);
}

/* ---- IPv4 ---- */

static void test_tcp4_lengths_agree(void **state)
{
	write_ip4(6, 0, 20);
	expect_whole_only();
	assert_int_equal(frame.flags, GLUE_FRAME_IP4 | GLUE_FRAME_TCP);
	assert_int_equal(frame.l4_off, L3 + 20);
	assert_int_equal(l4.len, 20);
	write_ip4(6, 0, 19);
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	write_ip4(6, 0, 100);
	assert_int_equal(judge_in(L3 + 39), GLUE_BAD_FRAME);
	assert_int_equal(judge_in(L3 + 40), GLUE_KEEP);
	len += 6; /* padding of Ethernet */
	assert_int_equal(judge_frame(), GLUE_KEEP);
	assert_int_equal(l4.len, 100);
	bytes[L3] = 0x44;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	bytes[L3] = 0x65;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
}

static void test_options4_are_bounded(void **state)
{
	uint8_t *opt = write_ip4(6, 8, 20) - 8;

	memcpy(opt, "\7\7\4\0\0\0\0\1", 8); /* record route, NOP */
	expect_whole_only();
	assert_int_equal(frame.l4_off, L3 + 28);
	opt[1] = 9;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	opt[1] = 1;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	memcpy(opt, "\1\1\1\1\1\1\1\7", 8); /* its length is missing */
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
}

static void test_source_routes_are_refused(void **state)
{
	uint8_t *opt = write_ip4(6, 8, 20) - 8;

	memcpy(opt, "\1\203\7\4\12\0\0\3", 8);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	opt[1] = 137;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_fragments4_are_refused(void **state)
{
	write_ip4(6, 0, 40);
	bytes[L3 + 6] = 0x20; /* more */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	bytes[L3 + 6] = 0;
	bytes[L3 + 7] = 1; /* not the first */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	bytes[L3 + 6] = 0x40; /* DF is none */
	bytes[L3 + 7] = 0;
	assert_int_equal(judge_frame(), GLUE_KEEP);
}

static void test_only_icmp4_echo_and_too_big_pass(void **state)
{
	uint8_t *icmp = write_ip4(1, 0, 8);

	icmp[0] = 8;
	expect_whole_only();
	assert_int_equal(frame.flags, GLUE_FRAME_IP4 | GLUE_FRAME_ICMP);
	icmp = write_ip4(1, 0, 36);
	for (unsigned type = 0; type < 256; type++) {
		icmp[0] = (uint8_t)type;
		icmp[1] = 4;
		assert_int_equal(judge_frame(), type == 3 || type == 8
							? GLUE_KEEP
							: GLUE_REFUSED);
	}
	icmp[0] = 3;
	expect_whole_only();
	icmp[1] = 3; /* port unreachable: if it is about UDP */
	icmp[8 + 9] = 6;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	icmp[8 + 9] = 17;
	assert_int_equal(judge_frame(), GLUE_KEEP);
	icmp = write_ip4(1, 0, 35);
	icmp[0] = icmp[1] = 3;
	icmp[8 + 9] = 17;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	icmp = write_ip4(1, 0, 35);
	icmp[0] = 3;
	icmp[1] = 4;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
}

static void test_unknown_protocols_are_refused(void **state)
{
	for (unsigned proto = 0; proto < 256; proto++) {
		bool known = proto == 1 || proto == 6 || proto == 17;

		if (proto == 2)
			continue; /* IGMP, below */

		write_ip4(proto, 0, 40)[0] = 8;
		assert_int_equal(judge_frame(),
				 known ? GLUE_KEEP : GLUE_REFUSED);
	}
	write_ip4(17, 0, 8);
	expect_whole_only();
	assert_int_equal(frame.flags, GLUE_FRAME_IP4 | GLUE_FRAME_UDP);
}

/* A message of IGMP to a group, with a router alert; returns where it is. */
static uint8_t *write_igmp(unsigned type, unsigned max_response)
{
	uint8_t *message = write_ip4(2, 4, 8);

	bytes[L3 + 8] = 1;
	memcpy(bytes + L3 + 16, "\340\0\0\1", 4);
	memcpy(bytes + L3 + 20, "\224\4\0\0", 4);
	message[0] = (uint8_t)type;
	message[1] = (uint8_t)max_response;
	return message;
}

static void test_igmp_queries_and_reports_pass(void **state)
{
	for (unsigned type = 0; type < 256; type++) {
		write_igmp(type, 0);
		assert_int_equal(judge_frame(), type == 0x11 || type == 0x16
							? GLUE_KEEP
							: GLUE_REFUSED);
	}
	write_igmp(0x11, 100);
	expect_whole_only();
	assert_int_equal(frame.flags, GLUE_FRAME_IP4 | GLUE_FRAME_IGMP);
	put16(bytes + L3 + 2, 31);
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
}

static void test_igmp_from_beyond_the_link_is_refused(void **state)
{
	write_igmp(0x11, 100);
	bytes[L3 + 8] = 2;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_igmp(0x11, 100);
	bytes[L3 + 16] = 10; /* not to a group */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_igmp_messages_need_a_router_alert(void **state)
{
	write_igmp(0x11, 100);
	memset(bytes + L3 + 20, 1, 4);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	memcpy(bytes + L3 + 20, "\0\224\4\0", 4); /* behind the end */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	memcpy(bytes + L3 + 20, "\224\5\0\0", 4);
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	write_igmp(0x16, 0); /* a report */
	memset(bytes + L3 + 20, 1, 4);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_igmp(0x11, 0); /* version 1 */
	memset(bytes + L3 + 20, 1, 4);
	assert_int_equal(judge_frame(), GLUE_KEEP);
	write_ip4(2, 4, 12)[0] = 0x11; /* version 3, with no response time */
	bytes[L3 + 8] = 1;
	memcpy(bytes + L3 + 16, "\340\0\0\1", 4);
	memset(bytes + L3 + 20, 1, 4);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

/* ---- IPv6 ---- */

static void test_tcp6_lengths_agree(void **state)
{
	write_ip6(6, 20);
	expect_whole_only();
	assert_int_equal(frame.flags, GLUE_FRAME_IP6 | GLUE_FRAME_TCP);
	write_ip6(6, 19);
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	write_ip6(17, 8);
	expect_whole_only();
	write_ip6(6, 100);
	assert_int_equal(judge_in(L3 + 59), GLUE_BAD_FRAME);
}

/* TCP behind options is found, so that its checksum can be verified. */
static void test_tcp_behind_options_is_described(void **state)
{
	uint8_t *ext = write_ip6(60, 8 + 20);

	memcpy(ext, "\6\0\1\4\0\0\0\0", 8);
	expect_whole_only();
	assert_int_equal(frame.flags, GLUE_FRAME_IP6 | GLUE_FRAME_TCP);
	assert_int_equal(frame.l4_off, L3 + 48);
	assert_int_equal(l4.len, 20);
	assert_int_equal(l4.proto, 6);
	bytes[L3 + 6] = 0; /* hop-by-hop, the same */
	assert_int_equal(judge_frame(), GLUE_KEEP);
	ext[3] = 5; /* PadN beyond the header */
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	memcpy(ext, "\6\0\0\0\0\0\0\1", 8); /* PadN without a length */
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	memcpy(ext, "\6\0\302\4\0\0\0\0", 8); /* jumbo */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	memcpy(ext, "\6\4\1\4\0\0\0\0", 8); /* longer than the packet */
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
}

static void test_only_atomic_fragments_pass(void **state)
{
	uint8_t *ext = write_ip6(44, 8 + 24);

	memcpy(ext, "\6\0\0\0\1\2\3\4", 8);
	assert_int_equal(judge_frame(), GLUE_KEEP);
	assert_int_equal(frame.l4_off, L3 + 48);
	ext[3] = 1;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	ext[3] = 8;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	memcpy(ext, "\72\0\0\0\1\2\3\4\200", 9); /* ICMPv6 behind it */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_port_unreachable6_passes_for_udp_alone(void **state)
{
	uint8_t *icmp = write_ip6(58, 56);

	icmp[0] = 1;
	icmp[1] = 4;
	icmp[8 + 6] = 17;
	assert_int_equal(judge_frame(), GLUE_KEEP);
	icmp[1] = 3; /* address unreachable */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	icmp[1] = 4;
	icmp[8 + 6] = 6;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	icmp = write_ip6(58, 55);
	memcpy(icmp, "\1\4", 2);
	icmp[8 + 6] = 17;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_routing_headers_are_refused(void **state)
{
	for (unsigned type = 0; type < 5; type++) {
		uint8_t *ext = write_ip6(43, 24 + 20);

		ext[0] = 6;
		ext[1] = 2;
		ext[2] = (uint8_t)type;
		assert_int_equal(judge_frame(), GLUE_REFUSED);
		ext[3] = 1;
		assert_int_equal(judge_frame(), GLUE_REFUSED);
	}
	write_ip6(43, 0);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_extensions_are_few_and_in_order(void **state)
{
	uint8_t *ext = write_ip6(60, 4 * 8 + 20);

	for (unsigned i = 0; i < 4; i++)
		memcpy(ext + 8 * i, i < 3 ? "\74\0\1\4" : "\6\0\1\4", 4);
	assert_int_equal(judge_frame(), GLUE_KEEP);
	ext = write_ip6(60, 5 * 8 + 20);
	for (unsigned i = 0; i < 5; i++)
		memcpy(ext + 8 * i, i < 4 ? "\74\0\1\4" : "\6\0\1\4", 4);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	ext = write_ip6(60, 2 * 8 + 20);
	memcpy(ext, "\0\0\1\4\0\0\0\0\6\0\1\4", 12); /* hop-by-hop second */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_ip6(59, 8); /* nothing follows */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_only_needed_icmp6_types_pass(void **state)
{
	for (unsigned type = 0; type < 256; type++) {
		uint8_t *icmp = write_ip6(58, 56);

		icmp[0] = (uint8_t)type;
		assert_int_equal(judge_frame(), type == 2 || type == 128
							? GLUE_KEEP
							: GLUE_REFUSED);
	}
	write_ip6(58, 56)[0] = 2;
	expect_whole_only();
	write_ip6(58, 55)[0] = 2;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	write_ip6(58, 7)[0] = 128;
	assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
}

/* A message of MLD to a group, with a router alert. */
static void write_mld(unsigned type, unsigned size)
{
	uint8_t *options = write_ip6(0, 8 + size);

	memcpy(options, "\72\0\5\2\0\0\1\0", 8);
	options[8] = (uint8_t)type;
	bytes[L3 + 7] = 1;
	bytes[L3 + 8] = 0xfe;
	bytes[L3 + 9] = 0x80;
	bytes[L3 + 24] = 0xff;
}

static void test_multicast_listener_messages_must_be_link_local(void **state)
{
	for (unsigned type = 130; type <= 131; type++) {
		write_mld(type, 24);
		expect_whole_only();
		bytes[L3 + 7] = 2;
		assert_int_equal(judge_frame(), GLUE_REFUSED);
		write_mld(type, 24);
		bytes[L3 + 8] = 0xfd;
		assert_int_equal(judge_frame(), GLUE_REFUSED);
		write_mld(type, 24);
		bytes[L3 + 24] = 0xfd; /* not to a group */
		assert_int_equal(judge_frame(), GLUE_REFUSED);
		write_mld(type, 23);
		assert_int_equal(judge_frame(), GLUE_BAD_FRAME);
	}
	write_mld(132, 24);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

static void test_multicast_listener_messages_need_a_router_alert(void **state)
{
	write_mld(130, 24);
	bytes[L3 + 40 + 5] = 1; /* for RSVP */
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_mld(130, 24);
	memset(bytes + L3 + 40 + 2, 0, 6);
	assert_int_equal(judge_frame(), GLUE_REFUSED);
	write_ip6(58, 24)[0] = 130;
	bytes[L3 + 7] = 1;
	bytes[L3 + 8] = 0xfe;
	bytes[L3 + 9] = 0x80;
	bytes[L3 + 24] = 0xff;
	assert_int_equal(judge_frame(), GLUE_REFUSED);
}

/*
 * With any byte changed and at any length, no byte beyond is read, and there is
 * a verdict.
 */
static void test_no_mutation_reads_beyond(void **state)
{
	static uint8_t whole[2048];

	for (unsigned kind = 0; kind < 6; kind++) {
		unsigned size;

		if (kind == 0)
			write_arp(1);
		else if (kind == 1)
			write_ip4(1, 8, 36)[0] = 3;
		else if (kind == 2)
			memcpy(write_ip6(0, 24 + 20),
			       "\74\0\1\4\0\0\0\0\6\0\1\4", 12);
		else
			write_nd(132 + kind, 16);
		size = len;
		memcpy(whole, bytes, size);
		for (unsigned at = 12; at < size; at++)
			for (unsigned value = 0; value < 256; value++) {
				memcpy(bytes, whole, size);
				bytes[at] = (uint8_t)value;
				len = size;
				judge_frame();
				judge_in(at);
				len = at;
				judge_frame();
			}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_truncated_arp_is_dropped),
		cmocka_unit_test(test_other_arp_types_are_refused),
		cmocka_unit_test(test_unknown_ethertypes_are_refused),
		cmocka_unit_test(test_tagged_frame_is_of_another_vlan),
		cmocka_unit_test(test_tcp4_lengths_agree),
		cmocka_unit_test(test_options4_are_bounded),
		cmocka_unit_test(test_source_routes_are_refused),
		cmocka_unit_test(test_fragments4_are_refused),
		cmocka_unit_test(test_only_icmp4_echo_and_too_big_pass),
		cmocka_unit_test(test_unknown_protocols_are_refused),
		cmocka_unit_test(test_igmp_queries_and_reports_pass),
		cmocka_unit_test(test_igmp_from_beyond_the_link_is_refused),
		cmocka_unit_test(test_igmp_messages_need_a_router_alert),
		cmocka_unit_test(test_tcp6_lengths_agree),
		cmocka_unit_test(test_tcp_behind_options_is_described),
		cmocka_unit_test(test_only_atomic_fragments_pass),
		cmocka_unit_test(test_port_unreachable6_passes_for_udp_alone),
		cmocka_unit_test(test_routing_headers_are_refused),
		cmocka_unit_test(test_extensions_are_few_and_in_order),
		cmocka_unit_test(test_only_needed_icmp6_types_pass),
		cmocka_unit_test(
			test_multicast_listener_messages_must_be_link_local),
		cmocka_unit_test(
			test_multicast_listener_messages_need_a_router_alert),
		cmocka_unit_test(test_no_mutation_reads_beyond),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
