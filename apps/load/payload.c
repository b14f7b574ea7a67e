/* Fills and verifies the bytes that the load tools send. */
#include "apps/load/payload.h"

#include <string.h>

/* splitmix64's finaliser: every bit of the input reaches every bit. */
static uint64_t mix_bits(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint64_t payload_seed(uint64_t conn)
{
	return mix_bits(conn + UINT64_C(0x9e3779b97f4a7c15));
}

/* The eight bytes of the stream from offset 8 * index on. */
static uint64_t payload_word(uint64_t seed, uint64_t index)
{
	return mix_bits(seed + index * UINT64_C(0x9e3779b97f4a7c15));
}

/*
 * Makes the next piece: up to the end of the word `offset` lies in. Returns its
 * length, at most `len`, and its bytes in `out`.
 */
static size_t payload_piece(uint64_t seed, uint64_t offset, size_t len,
			    unsigned char out[8])
{
	uint64_t value = payload_word(seed, offset / 8) >> (offset % 8 * 8);
	size_t n = 8 - offset % 8;

	memcpy(out, &value, sizeof(value));
	return n < len ? n : len;
}

void payload_fill(void *buf, size_t len, uint64_t seed, uint64_t offset)
{
	unsigned char *to = buf, bytes[8];
	size_t n;

	for (; len > 0; len -= n, to += n, offset += n) {
		n = payload_piece(seed, offset, len, bytes);
		memcpy(to, bytes, n);
	}
}

size_t payload_check(const void *buf, size_t len, uint64_t seed,
		     uint64_t offset)
{
	const unsigned char *from = buf;
	unsigned char bytes[8];
	size_t done, n, i;

	for (done = 0; done < len; done += n) {
		n = payload_piece(seed, offset + done, len - done, bytes);
		if (memcmp(from + done, bytes, n) == 0)
			continue;
		for (i = 0; from[done + i] == bytes[i]; i++)
			;
		return done + i;
	}
	return len;
}
