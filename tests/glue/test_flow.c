/*
 * The shard of a frame: the hash that NICs compute, equal for both directions,
 * spread evenly over shards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <rte_thash.h>

#include "dpdk_glue/flow.h"
#include "tests/bytes.h"

#define L3 14u

/* Microsoft's "Verifying the RSS Hash Calculation": the key and its results. */
static const uint8_t verification_key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
	0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
	0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

static const struct {
	uint8_t src[4], dst[4];
	uint16_t src_port, dst_port;
	uint32_t hash;
} vectors[] = {
	{{66, 9, 149, 187}, {161, 142, 100, 80}, 2794, 1766, 0x51ccc178},
	{{199, 92, 111, 2}, {65, 69, 140, 83}, 14230, 4739, 0xc626b0ea},
	{{24, 19, 198, 95}, {12, 22, 207, 184}, 12898, 38024, 0x5c2b394a},
	{{38, 27, 205, 30}, {209, 142, 163, 6}, 48228, 2217, 0xafc7327f},
	{{153, 39, 163, 191}, {202, 188, 127, 2}, 44251, 1303, 0x10e828a2},
};
#define N_VECTORS (sizeof(vectors) / sizeof(vectors[0]))

static uint64_t seed = 88172645463325252;

static uint32_t draw_number(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 16);
}

/* Computes the hash as a NIC does, bit by bit and without tables. */
static uint32_t hash_toeplitz(const uint8_t *key, const uint8_t *in,
			      unsigned len)
{
	uint32_t hash = 0;

	for (unsigned bit = 0; bit < len * 8; bit++) {
		uint32_t window = 0;

		if (!(in[bit / 8] & 0x80 >> bit % 8))
			continue;
		for (unsigned i = 0; i < 32; i++)
			window =
				window << 1 |
				(key[(bit + i) / 8] >> (7 - (bit + i) % 8) & 1);
		hash ^= window;
	}
	return hash;
}

/* Writes the hash's input: addresses, then ports, in network order. */
static unsigned write_tuple(uint8_t *out, const uint8_t *src,
			    const uint8_t *dst, unsigned addr_len,
			    uint16_t src_port, uint16_t dst_port)
{
	memcpy(out, src, addr_len);
	memcpy(out + addr_len, dst, addr_len);
	put16(out + 2 * addr_len, src_port);
	put16(out + 2 * addr_len + 2, dst_port);
	return 2 * addr_len + 4;
}

static unsigned find_shard(const uint8_t *a, const uint8_t *b,
			   unsigned addr_len, uint16_t port_a, uint16_t port_b)
{
	return glue_flow_shard(glue_flow_fold(a, b, addr_len), port_a, port_b);
}

static void test_hash_matches_the_rss_verification_suite(void **state)
{
	for (unsigned i = 0; i < N_VECTORS; i++) {
		uint8_t in[12];
		unsigned len =
			write_tuple(in, vectors[i].src, vectors[i].dst, 4,
				    vectors[i].src_port, vectors[i].dst_port);
		uint32_t words[3];

		for (unsigned w = 0; w < 3; w++)
			words[w] = get32(in + 4 * w);
		assert_int_equal(hash_toeplitz(verification_key, in, len),
				 vectors[i].hash);
		assert_int_equal(rte_softrss(words, 3, verification_key),
				 vectors[i].hash);
	}
}

/* 128 shards do not exist; 64 shards show six of the seven bits. */
static void test_shard_matches_a_nic_with_our_key(void **state)
{
	uint8_t key[64], a[16], b[16], in[36];

	glue_flow_key(key, sizeof(key));
	for (unsigned n = 1; n <= GLUE_MAX_SHARDS; n++) {
		glue_flow_start(n);
		for (unsigned i = 0; i < 200; i++) {
			unsigned addr_len = i % 2 ? 4 : 16;
			uint16_t ports[2] = {(uint16_t)draw_number(),
					     (uint16_t)draw_number()};
			unsigned len;

			for (unsigned k = 0; k < 16; k++) {
				a[k] = (uint8_t)draw_number();
				b[k] = (uint8_t)draw_number();
			}
			len = write_tuple(in, a, b, addr_len, ports[0],
					  ports[1]);
			assert_int_equal(
				find_shard(a, b, addr_len, ports[0], ports[1]),
				hash_toeplitz(key, in, len) % 128 % n);
		}
	}
}

static void test_both_directions_have_one_shard(void **state)
{
	glue_flow_start(7);
	for (unsigned i = 0; i < 1000; i++) {
		uint8_t a[16], b[16];
		uint16_t p = (uint16_t)draw_number(),
			 q = (uint16_t)draw_number();

		for (unsigned k = 0; k < 16; k++) {
			a[k] = (uint8_t)draw_number();
			b[k] = (uint8_t)draw_number();
		}
		assert_int_equal(find_shard(a, b, 4, p, q),
				 find_shard(b, a, 4, q, p));
		assert_int_equal(find_shard(a, b, 16, p, q),
				 find_shard(b, a, 16, q, p));
	}
}

/*
 * Every shard's port is found by a short search, whatever the rest of the
 * tuple.
 */
static void test_consecutive_ports_cover_every_shard(void **state)
{
	static const unsigned numbers[] = {1, 2, 3, 16, 64};

	for (unsigned i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		unsigned n = numbers[i];

		glue_flow_start(n);
		for (unsigned round = 0; round < 50; round++) {
			uint16_t fold = (uint16_t)draw_number();
			uint16_t first = (uint16_t)(draw_number() & ~127u);
			unsigned counts[GLUE_MAX_SHARDS] = {0};

			for (unsigned k = 0; k < 128; k++)
				counts[glue_flow_shard(
					fold, 443, (uint16_t)(first + k))]++;
			for (unsigned s = 0; s < n; s++)
				assert_in_range(counts[s], 128 / n,
						128 / n + 1);
		}
	}
}

/* With a power of two of shards, n consecutive ports have one for each. */
static void test_n_consecutive_ports_cover_n_shards(void **state)
{
	for (unsigned n = 1; n <= GLUE_MAX_SHARDS; n *= 2) {
		glue_flow_start(n);
		for (unsigned round = 0; round < 100; round++) {
			uint16_t fold = (uint16_t)draw_number();
			uint16_t first = (uint16_t)(draw_number() & ~(n - 1));
			uint64_t seen = 0;

			for (unsigned k = 0; k < n; k++)
				seen |= UINT64_C(1) << glue_flow_shard(
						fold, 443,
						(uint16_t)(first + k));
			assert_int_equal(seen, UINT64_MAX >> (64 - n));
		}
	}
}

/* Clients with consecutive addresses and ports, as load generators have. */
static void test_clients_are_spread_evenly(void **state)
{
	uint8_t server[4] = {10, 9, 0, 1}, client[4] = {10, 9, 1, 0};
	unsigned counts[GLUE_MAX_SHARDS] = {0};

	glue_flow_start(4);
	for (unsigned addr = 0; addr < 256; addr++) {
		client[3] = (uint8_t)addr;
		for (unsigned port = 0; port < 256; port++)
			counts[find_shard(client, server, 4,
					  (uint16_t)(32768 + port), 7777)]++;
	}
	for (unsigned s = 0; s < 4; s++)
		assert_int_equal(counts[s], 65536 / 4);
}

/* ---- frames ---- */

static uint8_t bytes[256];
static struct glue_frame frame;

static unsigned find_owner(unsigned len)
{
	struct glue_l4 l4 = {0};

	frame = (struct glue_frame){.data = bytes, .seg_len = (uint16_t)len};
	assert_int_equal(glue_check(&frame, len, &l4), GLUE_KEEP);
	return glue_flow_owner(&frame, &l4);
}

/* An IPv4 packet at `at`, 10.0.0.2 to 10.0.0.1. */
static void write_ip4(uint8_t *at, unsigned proto, unsigned payload)
{
	memset(at, 0, 20 + payload);
	at[0] = 0x45;
	put16(at + 2, 20 + payload);
	at[8] = 64;
	at[9] = (uint8_t)proto;
	memcpy(at + 12, "\12\0\0\2\12\0\0\1", 8);
}

static void write_ip6(uint8_t *at, unsigned next, unsigned payload)
{
	memset(at, 0, 40 + payload);
	at[0] = 0x60;
	put16(at + 4, payload);
	at[6] = (uint8_t)next;
	at[7] = 64;
	at[8] = at[24] = 0xfd;
	at[23] = 2;
	at[39] = 1;
}

static void write_ethernet(unsigned type)
{
	memcpy(bytes, "\2\0\0\0\0\1\2\0\0\0\0\2", 12);
	put16(bytes + 12, type);
}

static void write_ports(uint8_t *at, unsigned src, unsigned dst)
{
	put16(at, src);
	put16(at + 2, dst);
	at[12] = 0x50; /* of a TCP header */
}

static void test_frames_belong_to_the_shard_of_their_tuple(void **state)
{
	glue_flow_start(64);
	write_ethernet(0x0800);
	for (unsigned port = 1; port < 500; port++) {
		write_ip4(bytes + L3, GLUE_PROTO_TCP, 20);
		write_ports(bytes + L3 + 20, port, 80);
		assert_int_equal(find_owner(L3 + 40),
				 find_shard(bytes + L3 + 12, bytes + L3 + 16, 4,
					    (uint16_t)port, 80));
	}
	write_ethernet(0x86dd);
	for (unsigned port = 1; port < 500; port++) {
		write_ip6(bytes + L3, GLUE_PROTO_TCP, 20);
		write_ports(bytes + L3 + 40, port, 80);
		assert_int_equal(find_owner(L3 + 60),
				 find_shard(bytes + L3 + 8, bytes + L3 + 24, 16,
					    (uint16_t)port, 80));
	}
	/* behind an extension header, as a plain segment */
	write_ip6(bytes + L3, 60, 28);
	bytes[L3 + 40] = GLUE_PROTO_TCP;
	bytes[L3 + 42] = 1; /* PadN */
	bytes[L3 + 43] = 4;
	write_ports(bytes + L3 + 48, 499, 80);
	assert_int_equal(
		find_owner(L3 + 68),
		find_shard(bytes + L3 + 8, bytes + L3 + 24, 16, 499, 80));
}

static void test_frames_without_a_flow_belong_to_shard_0(void **state)
{
	glue_flow_start(64);
	write_ethernet(0x0800);
	write_ip4(bytes + L3, GLUE_PROTO_ICMP, 8);
	bytes[L3 + 20] = 8; /* echo */
	assert_int_equal(find_owner(L3 + 28), 0);
	write_ethernet(0x0806);
	memset(bytes + L3, 0, 28);
	memcpy(bytes + L3, "\0\1\10\0\6\4\0\1\2\0\0\0\0\2\12\0\0\2", 18);
	memcpy(bytes + L3 + 24, "\12\0\0\1", 4);
	assert_int_equal(find_owner(L3 + 28), 0);
}

static void test_icmp_errors_follow_the_flow_they_quote(void **state)
{
	unsigned differ = 0;

	glue_flow_start(64);
	write_ethernet(0x0800);
	for (unsigned port = 1; port < 200; port++) {
		uint8_t *quoted = bytes + L3 + 28;
		unsigned home;

		write_ip4(bytes + L3, GLUE_PROTO_ICMP, 8 + 28);
		bytes[L3 + 20] = 3;
		bytes[L3 + 21] = 4;
		write_ip4(quoted, GLUE_PROTO_TCP, 8);
		write_ports(quoted + 20, 80, port);
		home = find_shard(quoted + 12, quoted + 16, 4, 80,
				  (uint16_t)port);
		assert_int_equal(find_owner(L3 + 56), home);
		differ += home != 0;
	}
	assert_true(differ > 100);
	write_ethernet(0x86dd);
	for (unsigned port = 1; port < 200; port++) {
		uint8_t *quoted = bytes + L3 + 48;

		write_ip6(bytes + L3, GLUE_PROTO_ICMP6, 8 + 48);
		bytes[L3 + 40] = 2;
		write_ip6(quoted, GLUE_PROTO_TCP, 8);
		write_ports(quoted + 40, 80, port);
		assert_int_equal(find_owner(L3 + 96),
				 find_shard(quoted + 8, quoted + 24, 16, 80,
					    (uint16_t)port));
	}
}

/*
 * In an allocation of exact size, so that a sanitizer sees reads beyond the
 * end.
 */
static void test_short_quotes_are_not_read_beyond(void **state)
{
	glue_flow_start(64);
	write_ethernet(0x0800);
	write_ip4(bytes + L3, GLUE_PROTO_ICMP, 36);
	bytes[L3 + 20] = 3;
	bytes[L3 + 21] = 4;
	write_ip4(bytes + L3 + 28, GLUE_PROTO_TCP, 8);
	bytes[L3 + 28] = 0x4f; /* says 60 bytes of header */
	for (unsigned len = L3 + 20; len <= L3 + 56; len++) {
		struct glue_frame f = {.l3_off = L3,
				       .l4_off = L3 + 20,
				       .seg_len = (uint16_t)len,
				       .flags = GLUE_FRAME_IP4 |
						GLUE_FRAME_ICMP};

		f.data = malloc(len);
		assert_non_null(f.data);
		memcpy(f.data, bytes, len);
		assert_int_equal(glue_flow_icmp(&f), 0);
		free(f.data);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hash_matches_the_rss_verification_suite),
		cmocka_unit_test(test_shard_matches_a_nic_with_our_key),
		cmocka_unit_test(test_both_directions_have_one_shard),
		cmocka_unit_test(test_consecutive_ports_cover_every_shard),
		cmocka_unit_test(test_n_consecutive_ports_cover_n_shards),
		cmocka_unit_test(test_clients_are_spread_evenly),
		cmocka_unit_test(
			test_frames_belong_to_the_shard_of_their_tuple),
		cmocka_unit_test(test_frames_without_a_flow_belong_to_shard_0),
		cmocka_unit_test(test_icmp_errors_follow_the_flow_they_quote),
		cmocka_unit_test(test_short_quotes_are_not_read_beyond),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
