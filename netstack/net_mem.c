/*
 * Memory for lwIP and for connections: slabs of fixed classes, never malloc.
 *
 * A region of 2 MiB is cut into chunks of 256 KiB; a chunk holds objects of
 * one class, and begins with a line that says which, so that free finds the
 * class from the address alone. Objects never go back to the system before
 * net_mem_fini(). lwIP's memp and mem both end here.
 */
#include "netstack/net_recovery.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lwip/memp.h"
#include "lwip/etharp.h"
#include "lwip/udp.h"
#include "lwip/mld6.h"
#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"
#include "lwip/priv/memp_priv.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(mem, len)   ASAN_POISON_MEMORY_REGION(mem, len)
#define UNPOISON(mem, len) ASAN_UNPOISON_MEMORY_REGION(mem, len)
#else
#define POISON(mem, len)   ((void)0)
#define UNPOISON(mem, len) ((void)0)
#endif

#define REGION_BYTES (2u << 20)
#define CHUNK_BYTES  (256u << 10)
#define CHUNK_HEADER 64u
#define MAX_REGIONS  4096 /* 8 GiB: the bound of everything below */

struct object {
	struct object *next;
};

struct slab {
	uint32_t size; /* bytes of an object */
	uint32_t used;
	uint32_t limit; /* objects at most */
	struct object *free;
};

struct chunk {
	struct slab *slab;
};

static const uint32_t classes[] = {64,	 128,  192,  256,  384,	  512,	1024,
				   1664, 2304, 4608, 9344, 16384, 65536};
#define N_CLASSES (sizeof(classes) / sizeof(classes[0]))

static struct slab slabs[N_CLASSES];
static struct slab memp_slabs[MEMP_MAX];
static uint8_t class_of_64[16384 / 64 + 1]; /* class by size in 64 bytes */
static void *regions[MAX_REGIONS];
static unsigned n_regions, chunks_left;
static uint8_t *next_chunk;

static int add_region(void)
{
	uint8_t *mem, *aligned;

	if (n_regions == MAX_REGIONS)
		return -ENOMEM;
	mem = mmap(NULL, 2 * REGION_BYTES, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED)
		return -ENOMEM;
	aligned = (uint8_t *)(((uintptr_t)mem + REGION_BYTES - 1) &
			      ~(uintptr_t)(REGION_BYTES - 1));
	if (aligned > mem)
		munmap(mem, (size_t)(aligned - mem));
	munmap(aligned + REGION_BYTES, (size_t)(mem + REGION_BYTES - aligned));
	madvise(aligned, REGION_BYTES, MADV_HUGEPAGE);
	regions[n_regions++] = aligned;
	next_chunk = aligned;
	chunks_left = REGION_BYTES / CHUNK_BYTES;
	return 0;
}

/* Cold: a new chunk for a class. */
__attribute__((noinline)) static int grow(struct slab *slab)
{
	struct object **tail = &slab->free;
	struct chunk *chunk;
	uint8_t *at, *end;

	if (chunks_left == 0 && add_region() < 0)
		return -ENOMEM;
	chunk = (struct chunk *)next_chunk;
	chunks_left--;
	chunk->slab = slab;
	end = next_chunk + CHUNK_BYTES;
	at = next_chunk + CHUNK_HEADER;
	next_chunk = end;
	for (; at + slab->size <= end; at += slab->size) {
		struct object *object = (struct object *)at;

		*tail = object;
		tail = &object->next;
	}
	*tail = NULL;
	POISON((uint8_t *)chunk + CHUNK_HEADER, CHUNK_BYTES - CHUNK_HEADER);
	return 0;
}

static inline void *slab_alloc(struct slab *slab)
{
	struct object *object = slab->free;

	if (__builtin_expect(!object || slab->used == slab->limit, 0)) {
		if (slab->used == slab->limit || grow(slab) < 0) {
			net_the.stats.no_memory++;
			return NULL;
		}
		object = slab->free;
	}
	UNPOISON(object, slab->size);
	slab->free = object->next;
	slab->used++;
	return object;
}

static inline void slab_free(void *mem)
{
	struct chunk *chunk = (struct chunk *)((uintptr_t)mem &
					       ~(uintptr_t)(CHUNK_BYTES - 1));
	struct slab *slab = chunk->slab;
	struct object *object = mem;

	object->next = slab->free;
	slab->free = object;
	slab->used--;
	POISON(object, slab->size);
}

void *net_mem_malloc(unsigned long size)
{
	if (size <= 16384)
		return slab_alloc(&slabs[class_of_64[(size + 63) / 64]]);
	if (size <= 65536)
		return slab_alloc(&slabs[N_CLASSES - 1]);
	net_the.stats.no_memory++;
	return NULL;
}

void *net_mem_calloc(unsigned long count, unsigned long size)
{
	unsigned long total;
	void *mem;

	if (__builtin_mul_overflow(count, size, &total))
		return NULL;
	mem = net_mem_malloc(total);
	return mem ? memset(mem, 0, total) : NULL;
}

void net_mem_free(void *mem)
{
	slab_free(mem);
}

/* ---- lwIP's memp, by type ---- */

static const struct {
	uint32_t limit, size;
} memp_types[MEMP_MAX] = {
#define LWIP_MEMPOOL(name, num, size, desc)                                    \
	[MEMP_##name] = {(uint32_t)(num), (uint32_t)(size)},
#include "lwip/priv/memp_std.h"
};

/* lwIP's segment with what loss recovery keeps of it. */
static void *seg_alloc(void)
{
	struct net_seg *seg = slab_alloc(&memp_slabs[MEMP_TCP_SEG]);

	if (seg)
		seg->state = 0;
	return seg;
}

void memp_init(void)
{
}

static void *alloc_pbuf(void)
{
	void *mem = slab_alloc(&memp_slabs[MEMP_PBUF]);

	if (mem)
		net_loan_pbuf_made(mem);
	return mem;
}

void *memp_malloc(memp_t type)
{
	if (type == MEMP_TCP_PCB) {
		if (net_the.n_conns >= net_the.max_conns &&
		    !net_time_wait_recycle()) {
			net_the.stats.no_memory++;
			return NULL;
		}
		return net_conn_alloc();
	}
	if (type == MEMP_PBUF)
		return alloc_pbuf();
	if (type == MEMP_TCP_SEG)
		return seg_alloc();
	return slab_alloc(&memp_slabs[type]);
}

void memp_free(memp_t type, void *mem)
{
	if (!mem)
		return;
	if (type == MEMP_TCP_PCB) {
		net_conn_pcb_freed(mem);
		return;
	}
	if (type == MEMP_PBUF)
		net_loan_pbuf_freed(mem);
	slab_free(mem);
}

void *memp_malloc_pool(const struct memp_desc *desc)
{
	return NULL; /* custom pools: this build has none */
}

void memp_free_pool(const struct memp_desc *desc, void *mem)
{
}

void *net_conn_slab_alloc(void)
{
	return slab_alloc(&memp_slabs[MEMP_TCP_PCB]);
}

void net_conn_slab_free(void *mem)
{
	slab_free(mem);
}

static uint32_t round_to(uint32_t size, uint32_t unit)
{
	return (size + unit - 1) / unit * unit;
}

int net_mem_init(void)
{
	unsigned class = 0;

	for (unsigned i = 0; i < N_CLASSES; i++)
		slabs[i] =
			(struct slab){.size = classes[i], .limit = UINT32_MAX};
	for (unsigned i = 0; i < sizeof(class_of_64); i++) {
		if (i * 64 > classes[class])
			class ++;
		class_of_64[i] = (uint8_t) class;
	}
	for (unsigned i = 0; i < MEMP_MAX; i++)
		memp_slabs[i] =
			(struct slab){.size = round_to(memp_types[i].size, 16),
				      .limit = memp_types[i].limit};
	memp_slabs[MEMP_PBUF].size = NET_LOAN_PBUF_SIZE;
	memp_slabs[MEMP_TCP_SEG].size = round_to(sizeof(struct net_seg), 64);
	memp_slabs[MEMP_TCP_PCB] = (struct slab){
		.size = round_to(sizeof(struct net_conn), 64),
		.limit = UINT32_MAX}; /* --max-conns bounds pcbs */
	return add_region();
}

void net_mem_fini(void)
{
	for (unsigned i = 0; i < n_regions; i++) {
		UNPOISON(regions[i], REGION_BYTES);
		munmap(regions[i], REGION_BYTES);
	}
	memset(slabs, 0, sizeof(slabs));
	memset(memp_slabs, 0, sizeof(memp_slabs));
	n_regions = chunks_left = 0;
}
