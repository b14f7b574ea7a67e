/*
 * Frames for tests of glue_check(), each judged in an allocation of exact size,
 * so that a sanitizer sees reads beyond the end.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/check.h"
#include "tests/bytes.h"

#define L3 14u

static uint8_t bytes[2048];
static unsigned len;
static struct glue_frame frame;
static struct glue_l4 l4;

/* The first `first` bytes are in the first segment. */
static inline enum glue_verdict judge_in(unsigned first)
{
	uint8_t *copy = malloc(first ? first : 1);
	enum glue_verdict verdict;

	assert_non_null(copy);
	memcpy(copy, bytes, first);
	frame = (struct glue_frame){.data = copy, .seg_len = (uint16_t)first};
	verdict = glue_check(&frame, len, &l4);
	free(copy);
	return verdict;
}

static inline enum glue_verdict judge_frame(void)
{
	return judge_in(len);
}

/*
 * Truncated at any length, the frame does not pass, and no byte beyond is read.
 */
static inline void expect_whole_only(void)
{
	unsigned whole = len;

	for (len = 0; len < whole; len++)
		assert_int_not_equal(judge_frame(), GLUE_KEEP);
	assert_int_equal(judge_frame(), GLUE_KEEP);
}

static inline void write_ethernet(unsigned type)
{
	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, "\2\0\0\0\0\1\2\0\0\0\0\2", 12);
	put16(bytes + 12, type);
}

static inline uint8_t *write_arp(unsigned op)
{
	write_ethernet(0x0806);
	memcpy(bytes + L3, "\0\1\10\0\6\4", 6);
	put16(bytes + L3 + 6, op);
	memcpy(bytes + L3 + 8, "\2\0\0\0\0\2\12\0\0\2", 10);
	memcpy(bytes + L3 + 24, "\12\0\0\1", 4);
	len = L3 + 28;
	return bytes + L3;
}

/* An IPv4 packet; returns where its payload begins. */
static inline uint8_t *write_ip4(unsigned proto, unsigned options,
				 unsigned payload)
{
	uint8_t *ip = bytes + L3;

	write_ethernet(0x0800);
	ip[0] = (uint8_t)(0x45 + options / 4);
	put16(ip + 2, 20 + options + payload);
	ip[8] = 64;
	ip[9] = (uint8_t)proto;
	memcpy(ip + 12, "\12\0\0\2\12\0\0\1", 8);
	len = L3 + 20 + options + payload;
	return ip + 20 + options;
}

static inline uint8_t *write_ip6(unsigned next, unsigned payload)
{
	uint8_t *ip = bytes + L3;

	write_ethernet(0x86dd);
	ip[0] = 0x60;
	put16(ip + 4, payload);
	ip[6] = (uint8_t)next;
	ip[7] = 64;
	ip[8] = ip[24] = 0xfd;
	ip[23] = 2;
	ip[39] = 1;
	len = L3 + 40 + payload;
	return ip + 40;
}

static inline uint8_t *write_nd(unsigned type, unsigned options)
{
	uint8_t *icmp = write_ip6(58, 24 + options);

	bytes[L3 + 7] = 255;
	icmp[0] = (uint8_t)type;
	icmp[8] = 0xfd;
	icmp[23] = 1;
	if (options) {
		icmp[24] = type == 135 ? 1 : 2;
		icmp[25] = 1;
		memcpy(icmp + 26, "\2\0\0\0\0\2", 6);
	}
	return icmp;
}
