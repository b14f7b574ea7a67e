/*
 * Which way a condition usually goes, for the compiler. DPDK's headers define
 * the same two macros, and netstack/ includes none of them.
 */
#pragma once

#ifndef likely
#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif
