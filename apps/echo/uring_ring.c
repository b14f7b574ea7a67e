/*
 * Setting up rings, and telling why the kernel refuses one.
 */
#include "apps/echo/uring_ring.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define POOL_BYTES    ((size_t)URING_BUFS * URING_BUF_SIZE)
#define ENTRIES_BYTES (URING_BUFS * sizeof(struct io_uring_buf))

/*
 * Best first. Linux 6.1 defers completions until the thread asks for them; 6.0,
 * the first with multishot receive, only spares it the interrupts.
 */
static const unsigned int setups[] = {
	IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
	IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
};

static int make_uring(struct io_uring *uring)
{
	struct io_uring_params params;
	int err = -EINVAL;

	for (size_t i = URING_FIRST_SETUP;
	     i < sizeof(setups) / sizeof(*setups) && err == -EINVAL; i++) {
		memset(&params, 0, sizeof(params));
		params.flags = setups[i] | IORING_SETUP_SUBMIT_ALL |
			       IORING_SETUP_CQSIZE;
		params.cq_entries = URING_CQ_ENTRIES;
		err = io_uring_queue_init_params(URING_SQ_ENTRIES, uring,
						 &params);
	}
	return err;
}

/* The sysctl that turns io_uring off: 0 if it does not. */
static int disabled(void)
{
	FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "re");
	int value = 0;

	if (file && fscanf(file, "%d", &value) != 1)
		value = 0;
	if (file)
		fclose(file);
	return value;
}

static const char *way_out(int err)
{
	switch (err) {
	case -EINVAL:
		return "this takes Linux 6.0 or later";
	case -ENOMEM:
		return "raise the limit of locked memory (ulimit -l)";
	default:
		if (disabled())
			return "run sysctl kernel.io_uring_disabled=0 as root";
		return "allow io_uring_setup, io_uring_enter and "
		       "io_uring_register in the seccomp profile of the "
		       "container or service";
	}
}

int uring_check(const char *program)
{
	struct io_uring uring;
	int err = make_uring(&uring);

	if (err == 0) {
		io_uring_queue_exit(&uring);
		return 0;
	}
	fprintf(stderr, "%s: the kernel refuses io_uring: %s; %s\n", program,
		strerror(-err), way_out(err));
	return err;
}

/* Populated: the first pass over the pool has no page faults then. */
static void *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

int uring_pool_open(struct uring_ring *ring)
{
	ring->memory = map(POOL_BYTES);
	ring->entries = map(ENTRIES_BYTES);
	if (ring->memory && ring->entries)
		return 0;
	uring_pool_close(ring);
	return -ENOMEM;
}

void uring_pool_close(struct uring_ring *ring)
{
	if (ring->entries)
		munmap(ring->entries, ENTRIES_BYTES);
	if (ring->memory)
		munmap(ring->memory, POOL_BYTES);
}

int uring_ring_begin(struct uring_ring *ring)
{
	struct io_uring_buf_reg reg = {
		.ring_addr = (uintptr_t)ring->entries,
		.ring_entries = URING_BUFS,
	};
	int err = make_uring(&ring->uring);

	if (err)
		return err;
	err = io_uring_register_buf_ring(&ring->uring, &reg, 0);
	/* Spares each io_uring_enter(2) a look at the file table. */
	if (err == 0)
		err = io_uring_register_ring_fd(&ring->uring);
	if (err < 0) {
		io_uring_queue_exit(&ring->uring);
		return err;
	}
	io_uring_buf_ring_init(ring->entries);
	ring->lent = URING_BUFS;
	for (uint32_t id = 0; id < URING_BUFS; id++)
		uring_buf_return(ring, id);
	uring_bufs_flush(ring);
	return 0;
}

void uring_ring_end(struct uring_ring *ring)
{
	io_uring_queue_exit(&ring->uring);
}
