/*
 * Numbers in frames: 16 and 32 bits in network byte order, at any alignment.
 */
#pragma once

#include <stdint.h>
#include <string.h>

static inline void put16(uint8_t *at, unsigned value)
{
	uint16_t swapped = __builtin_bswap16((uint16_t)value);

	memcpy(at, &swapped, sizeof(swapped));
}

static inline void put32(uint8_t *at, uint32_t value)
{
	uint32_t swapped = __builtin_bswap32(value);

	memcpy(at, &swapped, sizeof(swapped));
}

static inline unsigned get16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return __builtin_bswap16(value);
}

static inline uint32_t get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return __builtin_bswap32(value);
}
