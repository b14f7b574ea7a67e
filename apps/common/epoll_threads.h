/*
 * --threads and --cpu of the programs on epoll: the number of threads and their
 * CPUs.
 *
 * epoll_threads_argp is a child of a program's parser; its child_inputs entry
 * is the struct epoll_threads. It fills in the defaults, and refuses a CPU that
 * a thread may not run on before any has been started.
 */
#pragma once

#include <argp.h>
#include <stdint.h>

#define EPOLL_THREADS_MAX 256

struct epoll_threads {
	uint32_t n;
	int cpu; /* of the first; further ones follow it; -1: anywhere */
};

extern const struct argp epoll_threads_argp;

/* Pins the calling thread, the program's `index`th, to its CPU. */
void epoll_threads_pin(const struct epoll_threads *threads, uint32_t index);
