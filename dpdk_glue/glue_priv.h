/*
 * Private to dpdk_glue/.
 */
#pragma once

#include "dpdk_glue/glue.h"

/* Formats one line into err and returns code. */
__attribute__((format(printf, 4, 5))) int
glue_fail(char *err, size_t err_len, int code, const char *format, ...);

/* The link behind index, and its DPDK port; false when there is none. */
const struct glue_link *glue_eal_link(unsigned index);
bool glue_eal_port_id(unsigned index, uint16_t *port_id);
