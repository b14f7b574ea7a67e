/*
 * Memory for lwIP and for connections: slabs of fixed classes, never malloc.
 *
 * A region of 2 MiB is cut into chunks of 256 KiB; a chunk holds objects of
 * one class, and begins with a line that says which, so that free finds the
 * class from the address alone. A chunk whose last object has been freed may
 * serve any class next; when many are free their pages go back to the system,
 * one chunk at a time (net_mem_trim()). The budget bounds chunks that hold
 * objects (budget.c). lwIP's memp and mem both end here.
 */
#include "netstack/mem/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lwip/memp.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(mem, len)   ASAN_POISON_MEMORY_REGION(mem, len)
#define UNPOISON(mem, len) ASAN_UNPOISON_MEMORY_REGION(mem, len)
#else
#define POISON(mem, len)   ((void)0)
#define UNPOISON(mem, len) ((void)0)
#endif

#define REGION_BYTES (2u << 20)
#define CHUNK_BYTES  NET_MEM_CHUNK_BYTES
#define CHUNK_HEADER 64u
#define CARVE_BYTES  4096u /* made into objects at once */
#define MAX_REGIONS  16384 /* 32 GiB of addresses */
#define KEEP_FREE    32u   /* free chunks that keep their pages */

/* ACKs and RSTs are made of objects of at most this size. */
#define SMALL_BYTES 256u

struct object {
	struct object *next;
};

struct chunk {
	struct slab *slab; /* NULL: it is free */
	struct object *free;
	uint32_t used;		   /* objects */
	uint32_t carved;	   /* bytes that are objects, or the header */
	uint32_t number;	   /* counted over all regions */
	struct chunk *next, *prev; /* with room, of its slab; or free */
};
static_assert(sizeof(struct chunk) <= CHUNK_HEADER, "objects follow it");

struct slab {
	struct chunk *current; /* objects are taken from it; not in `room` */
	uint32_t used;
	uint32_t hot_limit; /* what the hot path sees: 0 while failing */
	uint32_t limit;	    /* objects at most */
	uint32_t size;	    /* bytes of an object */
	struct chunk *room; /* other chunks with a free object */
};

static const uint32_t classes[] = {64,	 128,  192,  256,  384,	  512,	1024,
				   1664, 2304, 4608, 9344, 16384, 65536};
#define N_CLASSES (sizeof(classes) / sizeof(classes[0]))

/* Class by size in 64 bytes. */
static const uint8_t class_of_64[16384 / 64 + 1] = {
	[0 ... 1] = 0,	 [2] = 1,	  [3] = 2,	     [4] = 3,
	[5 ... 6] = 4,	 [7 ... 8] = 5,	  [9 ... 16] = 6,    [17 ... 26] = 7,
	[27 ... 36] = 8, [37 ... 72] = 9, [73 ... 146] = 10, [147 ... 256] = 11,
};

/* The current chunk of a slab that has none: never written to. */
static const struct chunk nothing;

/* State of the shard. */
static NET_SHARD_VAR struct slab slabs[N_CLASSES];
static NET_SHARD_VAR struct slab pools[MEMP_MAX]; /* of lwIP's memp */
static NET_SHARD_VAR struct net_arena {
	const struct slab *conns; /* of `pools` */
	void **regions;
	struct chunk *free_chunks;
	/* Numbers of free chunks without pages, which have no header. */
	uint32_t *bare_chunks;
	unsigned n_regions, n_free, n_used, n_bare;
	uint64_t bytes_max; /* of chunks in use */
	unsigned fail_in;   /* allocations until one fails; 0: none */
} own_arena;
#define slabs	  NET_SHARD(slabs)
#define pools	  NET_SHARD(pools)
#define own_arena NET_SHARD(own_arena)

#define REGION_CHUNKS (REGION_BYTES / CHUNK_BYTES)
#define MAX_CHUNKS    (MAX_REGIONS * REGION_CHUNKS)

/* A reference: a chunk's number, and the line in it where an object begins. */
#define LINE_BYTES 64u
#define LINE_BITS  12
static_assert(CHUNK_BYTES / LINE_BYTES == 1u << LINE_BITS,
	      "every line has one");
static_assert((uint64_t)MAX_CHUNKS << LINE_BITS <= UINT64_C(1) << 32,
	      "32 bits hold every reference");

/* ---- chunks ---- */

static void push_chunk(struct chunk **list, struct chunk *chunk)
{
	chunk->prev = NULL;
	chunk->next = *list;
	if (chunk->next)
		chunk->next->prev = chunk;
	*list = chunk;
}

static void take_out(struct chunk **list, struct chunk *chunk)
{
	if (chunk->prev)
		chunk->prev->next = chunk->next;
	else
		*list = chunk->next;
	if (chunk->next)
		chunk->next->prev = chunk->prev;
}

#define HUGE_PAGE (2u << 20)

void *net_mem_map(size_t bytes, size_t align)
{
	uint8_t *mem, *aligned;

	mem = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED)
		return NULL;
	aligned = (uint8_t *)(((uintptr_t)mem + align - 1) & ~(align - 1));
	if (aligned > mem)
		munmap(mem, (size_t)(aligned - mem));
	munmap(aligned + bytes, (size_t)(mem + align - aligned));
	madvise(aligned, bytes, MADV_HUGEPAGE);
	return aligned;
}

void *net_mem_map_table(unsigned least, uint32_t *mask)
{
	uint32_t n = 1024;

	while (n < least)
		n *= 2;
	*mask = n - 1;
	return net_mem_map(n * sizeof(void *), HUGE_PAGE);
}

void net_mem_unmap_table(void *table, uint32_t mask)
{
	munmap(table, (mask + 1ul) * sizeof(void *));
}

static int add_region(void)
{
	uint8_t *region;

	if (own_arena.n_regions == MAX_REGIONS)
		return -ENOMEM;
	region = net_mem_map(REGION_BYTES, REGION_BYTES);
	if (!region)
		return -ENOMEM;
	own_arena.regions[own_arena.n_regions++] = region;
	for (unsigned i = 1; i <= REGION_CHUNKS; i++)
		own_arena.bare_chunks[own_arena.n_bare++] =
			own_arena.n_regions * REGION_CHUNKS - i;
	return 0;
}

static struct chunk *chunk_at(uint32_t number)
{
	uint8_t *region = own_arena.regions[number / REGION_CHUNKS];

	return (void *)(region + number % REGION_CHUNKS * CHUNK_BYTES);
}

static struct chunk *take_free_chunk(void)
{
	struct chunk *chunk = own_arena.free_chunks;
	uint32_t number;

	if (chunk) {
		take_out(&own_arena.free_chunks, chunk);
		own_arena.n_free--;
		return chunk;
	}
	if (!own_arena.n_bare && add_region() < 0)
		return NULL;
	number = own_arena.bare_chunks[--own_arena.n_bare];
	chunk = chunk_at(number);
	chunk->number = number;
	return chunk;
}

/*
 * May a class have one more chunk? Only the classes that ACKs and RSTs are made
 * of may use the last sixteenth.
 */
static bool within_budget(const struct slab *slab)
{
	uint64_t used = ((uint64_t)own_arena.n_used + 1) * CHUNK_BYTES +
			net_budget_elsewhere();
	uint64_t max = own_arena.bytes_max;

	if (slab->size > SMALL_BYTES)
		max -= max / 16;
	return used <= max;
}

static bool new_chunk(struct slab *slab)
{
	struct chunk *chunk;

	if (!within_budget(slab)) {
		net_here()->stats.memory_refused++;
		return false;
	}
	chunk = take_free_chunk();
	if (!chunk)
		return false;
	own_arena.n_used++;
	*chunk = (struct chunk){
		.slab = slab, .carved = CHUNK_HEADER, .number = chunk->number};
	POISON((uint8_t *)chunk + CHUNK_HEADER, CHUNK_BYTES - CHUNK_HEADER);
	slab->current = chunk;
	net_budget_changed();
	return true;
}

static void release_chunk(struct chunk *chunk)
{
	UNPOISON((uint8_t *)chunk + CHUNK_HEADER, CHUNK_BYTES - CHUNK_HEADER);
	chunk->slab = NULL;
	push_chunk(&own_arena.free_chunks, chunk);
	own_arena.n_free++;
	own_arena.n_used--;
	net_budget_changed();
}

/* Makes the next objects of a chunk; false: all of it is objects. */
static bool carve_objects(struct chunk *chunk, uint32_t size)
{
	uint32_t end = chunk->carved + LWIP_MAX(CARVE_BYTES, size);
	struct object **tail = &chunk->free;

	if (end > CHUNK_BYTES)
		end = CHUNK_BYTES;
	if (chunk->carved + size > end)
		return false;
	UNPOISON((uint8_t *)chunk + chunk->carved, end - chunk->carved);
	for (; chunk->carved + size <= end; chunk->carved += size) {
		struct object *object =
			(void *)((uint8_t *)chunk + chunk->carved);

		*tail = object;
		tail = &object->next;
	}
	*tail = NULL;
	POISON(chunk->free, (uint8_t *)chunk + end - (uint8_t *)chunk->free);
	return true;
}

/* Makes a chunk with a free object current; false: there is none. */
static bool find_room(struct slab *slab)
{
	struct chunk *chunk = slab->current;

	if (chunk->free || (chunk->slab && carve_objects(chunk, slab->size)))
		return true;
	chunk = slab->room;
	if (chunk) {
		take_out(&slab->room, chunk);
		slab->current = chunk;
		return true;
	}
	return new_chunk(slab) && carve_objects(slab->current, slab->size);
}

/* ---- objects ---- */

static void set_hot_limits(bool failing)
{
	for (unsigned i = 0; i < N_CLASSES; i++)
		slabs[i].hot_limit = failing ? 0 : slabs[i].limit;
	for (unsigned i = 0; i < MEMP_MAX; i++)
		pools[i].hot_limit = failing ? 0 : pools[i].limit;
}

void net_mem_fail_after(unsigned n)
{
	own_arena.fail_in = n;
	set_hot_limits(n != 0);
}

static bool fails_on_demand(void)
{
	if (!own_arena.fail_in || --own_arena.fail_in)
		return false;
	set_hot_limits(false);
	return true;
}

static inline void *take_object(struct slab *slab)
{
	struct chunk *chunk = slab->current;
	struct object *object = chunk->free;

	UNPOISON(object, slab->size);
	chunk->free = object->next;
	chunk->used++;
	slab->used++;
	return object;
}

/* Called if the current chunk has no free object, or the limit is reached. */
cold static void *alloc_slowly(struct slab *slab)
{
	if (fails_on_demand() || slab->used >= slab->limit ||
	    !find_room(slab)) {
		net_here()->stats.no_memory++;
		return NULL;
	}
	return take_object(slab);
}

static inline void *slab_alloc(struct slab *slab)
{
	if (unlikely(!slab->current->free || slab->used >= slab->hot_limit))
		return alloc_slowly(slab);
	return take_object(slab);
}

/*
 * Called when an object of a chunk that is not its slab's current one has been
 * freed. The full ones of these are in no list.
 */
__attribute__((noinline)) static void
settle_chunk(struct slab *slab, struct chunk *chunk, bool was_full)
{
	if (chunk->used) {
		if (was_full)
			push_chunk(&slab->room, chunk);
		return;
	}
	if (!was_full)
		take_out(&slab->room, chunk);
	release_chunk(chunk);
}

static inline void slab_free(void *mem)
{
	struct chunk *chunk = (struct chunk *)((uintptr_t)mem &
					       ~(uintptr_t)(CHUNK_BYTES - 1));
	struct slab *slab = chunk->slab;
	struct object *object = mem, *was = chunk->free;

	object->next = was;
	chunk->free = object;
	chunk->used--;
	slab->used--;
	POISON(object, slab->size);
	if (chunk != slab->current)
		settle_chunk(slab, chunk, !was);
}

/* ---- references ---- */

uint32_t net_mem_ref(const void *mem)
{
	uintptr_t offset = (uintptr_t)mem & (CHUNK_BYTES - 1);
	const struct chunk *chunk = (const void *)((uintptr_t)mem - offset);

	return chunk->number << LINE_BITS | (uint32_t)(offset / LINE_BYTES);
}

void *net_mem_at(uint32_t ref)
{
	return (uint8_t *)chunk_at(ref >> LINE_BITS) +
	       (ref & ((1u << LINE_BITS) - 1)) * LINE_BYTES;
}

/* ---- sizes, limits, the allocator of lwIP ---- */

unsigned net_mem_size(const void *mem)
{
	const struct chunk *chunk =
		(const struct chunk *)((uintptr_t)mem &
				       ~(uintptr_t)(CHUNK_BYTES - 1));

	return chunk->slab->size;
}

uint64_t net_mem_bytes(void)
{
	return (uint64_t)own_arena.n_used * CHUNK_BYTES;
}

uint64_t net_mem_live_bytes(void)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < N_CLASSES; i++)
		bytes += (uint64_t)slabs[i].used * slabs[i].size;
	for (unsigned i = 0; i < MEMP_MAX; i++)
		bytes += (uint64_t)pools[i].used * pools[i].size;
	return bytes;
}

void net_mem_set_max(uint64_t bytes)
{
	own_arena.bytes_max = bytes;
}

bool net_mem_trim(void)
{
	struct chunk *chunk = own_arena.free_chunks;

	if (own_arena.n_free <= KEEP_FREE)
		return false;
	take_out(&own_arena.free_chunks, chunk);
	own_arena.n_free--;
	own_arena.bare_chunks[own_arena.n_bare++] = chunk->number;
	madvise(chunk, CHUNK_BYTES, MADV_DONTNEED);
	return true;
}

void *net_mem_malloc(unsigned long size)
{
	if (size <= 16384)
		return slab_alloc(&slabs[class_of_64[(size + 63) / 64]]);
	if (size <= 65536)
		return slab_alloc(&slabs[N_CLASSES - 1]);
	net_here()->stats.no_memory++;
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

/* A signal handler may pass any word: nothing is read that may not be there. */
__attribute__((no_sanitize("address"))) bool
net_mem_is_conn(const struct net_stack *stack, const void *mem)
{
	uintptr_t at = (uintptr_t)mem, offset = at & (CHUNK_BYTES - 1);
	const struct chunk *chunk = (const struct chunk *)(at - offset);
	const struct net_arena *of = stack->arena;
	void *region = (void *)(at & ~(uintptr_t)(REGION_BYTES - 1));
	unsigned i = 0;

	if (!of)
		return false;
	while (i < of->n_regions && of->regions[i] != region)
		i++;
	return i < of->n_regions && chunk->slab == of->conns &&
	       offset >= CHUNK_HEADER &&
	       (offset - CHUNK_HEADER) % of->conns->size == 0 &&
	       offset + of->conns->size <= chunk->carved;
}

static void init_slab(struct slab *slab, uint32_t size, uint32_t limit)
{
	*slab = (struct slab){.current = (struct chunk *)(uintptr_t)&nothing,
			      .size = size,
			      .limit = limit,
			      .hot_limit = limit};
}

void net_mem_pool_init(unsigned type, uint32_t size, uint32_t limit)
{
	init_slab(&pools[type], size, limit);
}

void *net_mem_pool_alloc(unsigned type)
{
	return slab_alloc(&pools[type]);
}

/* Maps room that may never be used: pages come when they are written to. */
static void *map_pages(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void unmap_tables(void)
{
	if (own_arena.regions)
		munmap(own_arena.regions, MAX_REGIONS * sizeof(void *));
	if (own_arena.bare_chunks)
		munmap(own_arena.bare_chunks, MAX_CHUNKS * sizeof(uint32_t));
	own_arena.regions = NULL;
	own_arena.bare_chunks = NULL;
}

int net_mem_init(void)
{
	unsigned class = 0;

	for (unsigned i = 0; i < N_CLASSES; i++)
		init_slab(&slabs[i], classes[i], UINT32_MAX);
	for (unsigned i = 0; i < sizeof(class_of_64); i++) {
		if (i * 64 > classes[class])
			class ++;
		assert(class_of_64[i] == class);
	}
	own_arena.regions = map_pages(MAX_REGIONS * sizeof(void *));
	own_arena.bare_chunks = map_pages(MAX_CHUNKS * sizeof(uint32_t));
	own_arena.bytes_max = UINT64_MAX;
	net_mem_fail_after(0);
	own_arena.conns = &pools[MEMP_TCP_PCB];
	if (own_arena.regions && own_arena.bare_chunks && add_region() == 0) {
		net_here()->arena = &own_arena;
		return 0;
	}
	unmap_tables();
	return -ENOMEM;
}

void net_mem_fini(void)
{
	net_here()->arena = NULL;
	for (unsigned i = 0; i < own_arena.n_regions; i++) {
		UNPOISON(own_arena.regions[i], REGION_BYTES);
		munmap(own_arena.regions[i], REGION_BYTES);
	}
	memset(slabs, 0, sizeof(slabs));
	memset(pools, 0, sizeof(pools));
	own_arena.free_chunks = NULL;
	own_arena.n_regions = own_arena.n_free = own_arena.n_bare =
		own_arena.n_used = 0;
	unmap_tables();
}
