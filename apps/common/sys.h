/*
 * The few things the programs ask of the machine.
 */
#pragma once

#include <stdint.h>

/* CLOCK_MONOTONIC, in nanoseconds. */
int64_t sys_now_ns(void);

/*
 * Time the calling thread was ready to run and had no core, in nanoseconds; 0
 * where the kernel does not tell.
 */
int64_t sys_no_core_ns(void);

/*
 * Raises the soft limit of open files to the hard one. Returns what is then
 * allowed.
 */
uint64_t sys_raise_files(void);

/* Keeps the calling thread on one CPU: 0, or -EINVAL when there is no such. */
int sys_pin_cpu(unsigned int cpu);

/* What the process holds in memory, in KiB; zero where it cannot be told. */
struct sys_memory {
	uint64_t resident; /* ordinary pages */
	uint64_t huge;	   /* hugepages of a pool, which are not in that */
};

struct sys_memory sys_memory_now(void);
