/*
 * Hugepages: checks whether there are enough, and prevents programs that start
 * at the same time from counting on the same ones.
 */
#include "dpdk_glue/glue_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TRIES 500 /* 10 ms apart */
#define MIB	   ((size_t)1 << 20)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static int huge_lock = -1; /* while the lock is held */

/* Free 2 MiB pages, in MiB; 0 where the machine has none. */
static unsigned long free_mib(void)
{
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/"
			"free_hugepages",
			"re");
	unsigned long pages = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%lu", &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * 2;
}

static int lock_pages(void)
{
	static const struct timespec nap = {.tv_nsec = 10000000};
	unsigned tries = 0;

	huge_lock = open("/sys/kernel/mm/hugepages",
			 O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	while (flock(huge_lock, LOCK_EX | LOCK_NB) < 0 &&
	       errno == EWOULDBLOCK) {
		if (++tries == LOCK_TRIES)
			return -EWOULDBLOCK;
		nanosleep(&nap, NULL);
	}
	return 0;
}

/*
 * Maps memory as EAL does with --in-memory, and writes to it: the kernel may
 * count pages as free that others have reserved, or that a control group does
 * not allow us. Kernels before 5.14 only reserve them.
 */
static int map_pages(size_t bytes)
{
	int fd = memfd_create("coronet-probe",
			      MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
	void *at = MAP_FAILED;
	int err = 0;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		err = -errno;
	if (err == 0)
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			  0);
	if (err == 0 &&
	    (at == MAP_FAILED ||
	     (madvise(at, bytes, MADV_POPULATE_WRITE) < 0 && errno != EINVAL)))
		err = -errno;
	if (at != MAP_FAILED)
		munmap(at, bytes);
	if (fd >= 0)
		close(fd);
	return err;
}

bool glue_huge_take(unsigned mib, char *why, size_t why_len)
{
	int err;

	why[0] = '\0';
	if (free_mib() < mib)
		return false;
	err = lock_pages();
	if (err < 0)
		snprintf(why, why_len,
			 "another program has been starting with hugepages for "
			 "5 s");
	else if (free_mib() < mib)
		snprintf(why, why_len, "another program has taken them");
	else if ((err = map_pages(mib * MIB)) < 0)
		snprintf(
			why, why_len,
			"they cannot be used: %s (are they reserved for "
			"another process, or does a control group limit them?)",
			strerror(-err));
	if (why[0])
		glue_huge_settle();
	return !why[0];
}

void glue_huge_settle(void)
{
	if (huge_lock >= 0)
		close(huge_lock);
	huge_lock = -1;
}
