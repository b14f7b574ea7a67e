/*
 * Internet checksums: implementations by 64-bit words, SSE2 and AVX2.
 */
#include "dpdk_glue/glue_csum.h"

#include <arpa/inet.h>
#include <immintrin.h>
#include <string.h>

static inline uint64_t add_halves(uint64_t word)
{
	return (word & 0xffffffff) + (word >> 32);
}

/* The last 1 to 7 bytes as they would lie in a zero-padded word. */
static inline uint64_t sum_tail(uint64_t sum, const uint8_t *data, size_t len)
{
	uint32_t four;
	uint16_t two;

	if (len & 4) {
		memcpy(&four, data, 4);
		sum += four;
		data += 4;
	}
	if (len & 2) {
		memcpy(&two, data, 2);
		sum += two;
		data += 2;
	}
	if (len & 1)
		sum += *data;
	return sum;
}

/* Mostly for headers, which are too short for anything wider. */
static inline uint64_t sum_words(uint64_t sum, const uint8_t *data, size_t len)
{
	for (; len >= 8; data += 8, len -= 8) {
		uint64_t word;

		memcpy(&word, data, 8);
		sum += add_halves(word);
	}
	return len ? sum_tail(sum, data, len) : sum;
}

/*
 * The functions below widen 32-bit words into 64-bit lanes, so that no carry is
 * ever lost: a frame is far too short to overflow them.
 */
static uint64_t sum_sse2(uint64_t sum, const uint8_t *data, size_t len)
{
	const __m128i low = _mm_set1_epi64x(0xffffffff);
	__m128i even = _mm_setzero_si128(), odd = _mm_setzero_si128();
	uint64_t lanes[2];

	for (; len >= 16; data += 16, len -= 16) {
		__m128i v = _mm_loadu_si128((const void *)data);

		even = _mm_add_epi64(even, _mm_and_si128(v, low));
		odd = _mm_add_epi64(odd, _mm_srli_epi64(v, 32));
	}
	_mm_storeu_si128((void *)lanes, _mm_add_epi64(even, odd));
	return sum_words(sum + lanes[0] + lanes[1], data, len);
}

__attribute__((target("avx2"))) static uint64_t
sum_avx2(uint64_t sum, const uint8_t *data, size_t len)
{
	const __m256i low = _mm256_set1_epi64x(0xffffffff);
	__m256i even = _mm256_setzero_si256(), odd = _mm256_setzero_si256();
	__m256i even2 = even, odd2 = odd;
	uint64_t lanes[4];

	for (; len >= 64; data += 64, len -= 64) {
		__m256i v = _mm256_loadu_si256((const void *)data);
		__m256i w = _mm256_loadu_si256((const void *)(data + 32));

		even = _mm256_add_epi64(even, _mm256_and_si256(v, low));
		odd = _mm256_add_epi64(odd, _mm256_srli_epi64(v, 32));
		even2 = _mm256_add_epi64(even2, _mm256_and_si256(w, low));
		odd2 = _mm256_add_epi64(odd2, _mm256_srli_epi64(w, 32));
	}
	even = _mm256_add_epi64(_mm256_add_epi64(even, odd),
				_mm256_add_epi64(even2, odd2));
	_mm256_storeu_si256((void *)lanes, even);
	sum += lanes[0] + lanes[1] + lanes[2] + lanes[3];
	return sum_words(sum, data, len);
}

static const glue_sum_fn methods[] = {
	[GLUE_SUM_WORDS] = sum_words,
	[GLUE_SUM_SSE2] = sum_sse2,
	[GLUE_SUM_AVX2] = sum_avx2,
};

/* Every x86_64 has SSE2. */
static glue_sum_fn sum_wide = sum_sse2;

bool glue_sum_can(enum glue_sum_method method)
{
	__builtin_cpu_init();
	return method != GLUE_SUM_AVX2 || __builtin_cpu_supports("avx2");
}

__attribute__((constructor)) static void choose_sum(void)
{
	if (glue_sum_can(GLUE_SUM_AVX2))
		sum_wide = sum_avx2;
}

uint64_t glue_sum_with(enum glue_sum_method method, uint64_t sum,
		       const void *data, size_t len)
{
	return methods[method](sum, data, len);
}

uint64_t glue_sum_add(uint64_t sum, const void *data, size_t len)
{
	return len >= 64 ? sum_wide(sum, data, len) : sum_words(sum, data, len);
}

void glue_sum_piece(struct glue_sum *sum, const void *data, size_t len)
{
	uint64_t piece = glue_sum_add(0, data, len);

	/* RFC 1071 2 (B): at an odd offset a sum has its bytes swapped. */
	if (sum->odd)
		piece = __builtin_bswap16(glue_sum_fold(piece));
	sum->sum += piece;
	sum->odd ^= len & 1;
}

uint64_t glue_sum_pseudo(const void *addrs, size_t addr_len, uint8_t proto,
			 uint32_t l4_len)
{
	uint64_t sum = sum_words(0, addrs, 2 * addr_len);

	return sum + htonl(l4_len) + htons(proto);
}
