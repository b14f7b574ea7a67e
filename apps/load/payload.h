/*
 * The bytes that the load tools send, so that an answer can be checked exactly.
 *
 * A connection's bytes are a pure function of its seed and of the position in
 * its stream: a lost, repeated, reordered or foreign piece cannot pass.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The seed of connection number conn, different for each connection. */
uint64_t payload_seed(uint64_t conn);

/* Writes the `len` bytes at `offset` of the seed's stream. */
void payload_fill(void *buf, size_t len, uint64_t seed, uint64_t offset);

/*
 * Compares `len` received bytes with those at `offset` of the seed's stream.
 * Returns len if all are right, else the index of the first wrong one.
 */
size_t payload_check(const void *buf, size_t len, uint64_t seed,
		     uint64_t offset);
