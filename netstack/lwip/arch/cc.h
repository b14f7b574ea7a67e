/*
 * lwIP's description of the compiler: gcc or clang on Linux x86_64.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h> /* struct timeval */

#include "netstack/shard_var.h"

#define BYTE_ORDER_LITTLE 1
#ifndef BYTE_ORDER
#define BYTE_ORDER LITTLE_ENDIAN
#endif

/* Inline functions; lwIP's own would be calls. */
#define LWIP_DONT_PROVIDE_BYTEORDER_FUNCTIONS
#define lwip_htons(x) __builtin_bswap16((uint16_t)(x))
#define lwip_ntohs(x) __builtin_bswap16((uint16_t)(x))
#define lwip_htonl(x) __builtin_bswap32((uint32_t)(x))
#define lwip_ntohl(x) __builtin_bswap32((uint32_t)(x))

uint32_t net_random(void);
#define LWIP_RAND() net_random()

/*
 * Ends the process or, in a release build, the connection that lwIP works on
 * (hooks.c).
 */
__attribute__((__cold__)) void net_lwip_assert(const char *message,
					       const char *file, int line);
#define LWIP_PLATFORM_ASSERT(message)                                          \
	net_lwip_assert(message, __FILE__, __LINE__)
#define LWIP_PLATFORM_DIAG(x) ((void)0)
