/* System calls that the programs share. */
#pragma once

#include <stdint.h>

/* CLOCK_MONOTONIC, in nanoseconds. */
int64_t sys_now_ns(void);

/*
 * Time for which the calling thread was ready to run but had no core, in
 * nanoseconds; 0 if the kernel does not report it.
 */
int64_t sys_no_core_ns(void);

/*
 * Raises the soft limit of open files to the hard one. Returns the new limit.
 */
uint64_t sys_raise_files(void);

/*
 * Pins the calling thread to one CPU. Returns 0, or -EINVAL if there is no such
 * CPU.
 */
int sys_pin_cpu(unsigned int cpu);

/* Resident memory of the process in KiB; 0 if it is unknown. */
struct sys_memory {
	uint64_t resident; /* ordinary pages */
	uint64_t huge;	   /* hugepages of a pool, not part of `resident` */
};

struct sys_memory sys_memory_now(void);
