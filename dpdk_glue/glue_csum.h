/*
 * Internet checksum (RFC 1071) over one or several pieces of memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Adds len bytes to a running 32-bit-wide ones' complement sum. A piece of
 * odd length may only be the last. Byte order of the result is memory's own.
 */
uint64_t glue_sum_add(uint64_t sum, const void *data, size_t len);

/* The sum of an IPv4 header, mostly one without options: 20 bytes. */
static inline uint64_t glue_sum_header4(const void *ip, size_t len)
{
	uint64_t a, b;
	uint32_t c;

	if (len != 20)
		return glue_sum_add(0, ip, len);
	memcpy(&a, ip, 8);
	memcpy(&b, (const uint8_t *)ip + 8, 8);
	memcpy(&c, (const uint8_t *)ip + 16, 4);
	return (a & 0xffffffff) + (a >> 32) + (b & 0xffffffff) + (b >> 32) + c;
}

/* A sum over consecutive pieces of any length. All zeros at first. */
struct glue_sum {
	uint64_t sum;
	bool odd; /* the bytes so far end within a 16-bit word */
};

void glue_sum_piece(struct glue_sum *sum, const void *data, size_t len);

/* The implementations, widest last; glue_sum_add() chooses one. */
enum glue_sum_method { GLUE_SUM_WORDS, GLUE_SUM_SSE2, GLUE_SUM_AVX2 };

typedef uint64_t (*glue_sum_fn)(uint64_t sum, const uint8_t *data, size_t len);

/* Returns whether this CPU can use an implementation. */
bool glue_sum_can(enum glue_sum_method method);
/* Like glue_sum_add(), by this implementation. */
uint64_t glue_sum_with(enum glue_sum_method method, uint64_t sum,
		       const void *data, size_t len);

/* Folds a running sum to 16 bits (not complemented). */
static inline uint16_t glue_sum_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/*
 * Pseudo-header sum for IPv4 (RFC 9293 3.1) or IPv6 (RFC 8200 8.1): addrs are
 * the two addresses as they lie in the header, addr_len bytes each.
 */
uint64_t glue_sum_pseudo(const void *addrs, size_t addr_len, uint8_t proto,
			 uint32_t l4_len);
