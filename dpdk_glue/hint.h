/*
 * Branch hints for the compiler. DPDK's headers define the same two macros, but
 * netstack/ does not include those headers.
 */
#pragma once

#ifndef likely
#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif
