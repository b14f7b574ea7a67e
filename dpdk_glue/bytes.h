/*
 * Numbers in frames: 16 and 32 bits in network byte order, at any alignment.
 */
#pragma once

#include <stdint.h>

static inline unsigned glue_get16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

static inline uint32_t glue_get32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
	       (uint32_t)at[2] << 8 | at[3];
}

static inline void glue_put16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void glue_put32(uint8_t *at, uint32_t value)
{
	glue_put16(at, value >> 16);
	glue_put16(at + 2, value & 0xffff);
}
