#include "dpdk_glue/glue_csum.h"

#include <arpa/inet.h>
#include <immintrin.h>
#include <string.h>

/* The last 1 to 7 bytes as they would lie in a zero-padded word. */
static uint64_t tail_word(const uint8_t *data, size_t len)
{
	uint64_t word = 0;

	memcpy(&word, data, len);
	return (word & 0xffffffff) + (word >> 32);
}

static uint64_t sum_words(uint64_t sum, const uint8_t *data, size_t len)
{
	while (len >= 8) {
		uint64_t word;

		memcpy(&word, data, 8);
		sum += (word & 0xffffffff) + (word >> 32);
		data += 8;
		len -= 8;
	}
	return len ? sum + tail_word(data, len) : sum;
}

/*
 * 32-bit words are widened into 64-bit lanes, so that no carry is ever lost:
 * a frame is far too short to overflow them.
 */
__attribute__((target("avx2"))) static uint64_t
sum_avx2(uint64_t sum, const uint8_t *data, size_t len)
{
	const __m256i low = _mm256_set1_epi64x(0xffffffff);
	__m256i even = _mm256_setzero_si256();
	__m256i odd = _mm256_setzero_si256();
	uint64_t lanes[4];

	while (len >= 32) {
		__m256i v = _mm256_loadu_si256((const void *)data);

		even = _mm256_add_epi64(even, _mm256_and_si256(v, low));
		odd = _mm256_add_epi64(odd, _mm256_srli_epi64(v, 32));
		data += 32;
		len -= 32;
	}
	_mm256_storeu_si256((void *)lanes, _mm256_add_epi64(even, odd));
	sum += lanes[0] + lanes[1] + lanes[2] + lanes[3];
	return sum_words(sum, data, len);
}

static int have_avx2 = -1;

__attribute__((constructor)) static void choose(void)
{
	__builtin_cpu_init();
	have_avx2 = __builtin_cpu_supports("avx2") != 0;
}

uint64_t glue_sum_add(uint64_t sum, const void *data, size_t len)
{
	if (len >= 64 && have_avx2 > 0)
		return sum_avx2(sum, data, len);
	return sum_words(sum, data, len);
}

uint64_t glue_sum_pseudo(const void *addrs, size_t addr_len, uint8_t proto,
			 uint32_t l4_len)
{
	uint64_t sum = sum_words(0, addrs, 2 * addr_len);

	return sum + htonl(l4_len) + htons(proto);
}
