/*
 * Numbers in frames: 16 and 32 bits in network byte order, at any alignment.
 */
#pragma once

#include <stdint.h>

static inline void put16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void put32(uint8_t *at, uint32_t value)
{
	put16(at, value >> 16);
	put16(at + 2, value & 0xffff);
}

static inline unsigned get16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

static inline uint32_t get32(const uint8_t *at)
{
	return (uint32_t)get16(at) << 16 | get16(at + 2);
}
