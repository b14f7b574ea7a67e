/*
 * OpenSSL's memory: keys, secrets and all that may be a copy of one lie in
 * mappings that core dumps leave out (MADV_DONTDUMP).
 *
 * Slabs: a chunk of 256 KiB holds objects of one class, and begins with a line
 * that says which. A thread has a few free objects of each class of its own, so
 * that the lock is taken once for many calls; the thread that frees an object
 * gets it. A chunk whose objects are all free serves any class next, and when
 * there are many such chunks their pages go back to the system. Objects above
 * 32 KiB have a mapping of their own.
 *
 * Sanitizers see more with malloc(), so builds with them use that.
 */
#include "netstack/tls/tls_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "netstack/program/log.h"

#define REGION_BYTES (16u << 20)
#define CHUNK_BYTES  (256u << 10)
#define HEADER	     64u
#define PAGE	     4096u
#define SLAB_MAX     32768u
#define KEEP_FREE    4u	    /* free chunks that keep their pages */
#define OWN_BYTES    16384u /* free objects of a class that a thread has */
#define OWN_MAX	     64u

#define N_CLASSES 68u
#define LARGE	  N_CLASSES

struct object {
	struct object *next;
};

struct chunk {
	struct chunk *next, *prev; /* with room, of its class; or free */
	struct object *free;
	size_t carved; /* bytes that are objects, or the header; LARGE: all */
	unsigned used; /* objects that are not in `free` */
	unsigned kind;
};
static_assert(sizeof(struct chunk) <= HEADER, "objects follow it");

static struct heap {
	pthread_mutex_t lock;
	struct chunk *room[N_CLASSES];
	struct chunk *free;
	unsigned n_free;
	char *at, *end; /* what is left of the newest region */
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct own {
	struct object *first;
	unsigned n;
};
/* N_CLASSES of them, once the thread has used this; a library has little room
 * for variables of threads. */
static _Thread_local struct own *owns;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t own_key; /* its destructor gives owns back */

/* ---- classes: steps of at most a quarter of the size ---- */

static const struct step {
	unsigned to, by;
} steps[] = {
	{256, 16}, {1024, 64}, {4096, 256}, {16384, 512}, {SLAB_MAX, 4096}};

static unsigned class_of(size_t n)
{
	unsigned kind = 0, from = 0;

	for (const struct step *s = steps;; s++) {
		if (n <= s->to)
			return kind + ((unsigned)n - from - 1) / s->by;
		kind += (s->to - from) / s->by;
		from = s->to;
	}
}

static unsigned bytes_of(unsigned kind)
{
	unsigned from = 0;

	for (const struct step *s = steps;; s++) {
		unsigned n = (s->to - from) / s->by;

		if (kind < n)
			return from + (kind + 1) * s->by;
		kind -= n;
		from = s->to;
	}
}

static unsigned own_max(unsigned kind)
{
	unsigned n = OWN_BYTES / bytes_of(kind);

	return n < 2 ? 2 : n > OWN_MAX ? OWN_MAX : n;
}

static struct chunk *chunk_of(const void *mem)
{
	return (struct chunk *)((uintptr_t)mem & -(uintptr_t)CHUNK_BYTES);
}

/* ---- mappings ---- */

/*
 * A multiple of CHUNK_BYTES, and at such an address. Not net_mem_map(): on huge
 * pages more of what has been freed would stay resident.
 */
static void *map_chunks(size_t bytes)
{
	size_t all = bytes + CHUNK_BYTES - PAGE, before;
	char *mem = mmap(NULL, all, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)mem & (CHUNK_BYTES - 1);
	if (before)
		munmap(mem, before);
	if (all - before > bytes)
		munmap(mem + before + bytes, all - before - bytes);
	mem += before;
	if (madvise(mem, bytes, MADV_DONTDUMP) == 0)
		return mem;
	munmap(mem, bytes); /* a kernel before Linux 3.4 */
	return NULL;
}

static void *alloc_large(size_t n)
{
	struct chunk *chunk;
	size_t bytes = (n + HEADER + CHUNK_BYTES - 1) & -(size_t)CHUNK_BYTES;

	if (n > SIZE_MAX / 2)
		return NULL;
	chunk = map_chunks(bytes);
	if (!chunk)
		return NULL;
	chunk->carved = bytes;
	chunk->kind = LARGE;
	return (char *)chunk + HEADER;
}

/* ---- chunks, under the lock ---- */

static void list_chunk(struct chunk **list, struct chunk *chunk)
{
	chunk->prev = NULL;
	chunk->next = *list;
	if (*list)
		(*list)->prev = chunk;
	*list = chunk;
}

static void unlist_chunk(struct chunk **list, struct chunk *chunk)
{
	if (chunk->prev)
		chunk->prev->next = chunk->next;
	else
		*list = chunk->next;
	if (chunk->next)
		chunk->next->prev = chunk->prev;
}

static bool has_room(const struct chunk *chunk)
{
	return chunk->free ||
	       chunk->carved + bytes_of(chunk->kind) <= CHUNK_BYTES;
}

static struct chunk *take_chunk(unsigned kind)
{
	struct chunk *chunk = heap.free;

	if (chunk) {
		unlist_chunk(&heap.free, chunk);
		heap.n_free--;
	} else {
		if (heap.at == heap.end) {
			heap.at = map_chunks(REGION_BYTES);
			heap.end = heap.at ? heap.at + REGION_BYTES : NULL;
		}
		if (!heap.at)
			return NULL;
		chunk = (struct chunk *)(void *)heap.at;
		heap.at += CHUNK_BYTES;
	}
	*chunk = (struct chunk){.carved = HEADER, .kind = kind};
	list_chunk(&heap.room[kind], chunk);
	return chunk;
}

static struct object *take_object(unsigned kind)
{
	struct chunk *chunk = heap.room[kind];
	struct object *object;

	if (!chunk)
		chunk = take_chunk(kind);
	if (!chunk)
		return NULL;
	object = chunk->free;
	if (object) {
		chunk->free = object->next;
	} else {
		object = (void *)((char *)chunk + chunk->carved);
		chunk->carved += bytes_of(kind);
	}
	chunk->used++;
	if (!has_room(chunk))
		unlist_chunk(&heap.room[kind], chunk);
	return object;
}

static void give_object(struct object *object)
{
	struct chunk *chunk = chunk_of(object);

	if (!has_room(chunk))
		list_chunk(&heap.room[chunk->kind], chunk);
	object->next = chunk->free;
	chunk->free = object;
	if (--chunk->used)
		return;
	unlist_chunk(&heap.room[chunk->kind], chunk);
	list_chunk(&heap.free, chunk);
	if (++heap.n_free > KEEP_FREE)
		madvise((char *)chunk + PAGE, CHUNK_BYTES - PAGE,
			MADV_DONTNEED);
}

/* ---- a thread's own objects ---- */

static void give_own(unsigned kind, unsigned n)
{
	struct own *own = &owns[kind];

	pthread_mutex_lock(&heap.lock);
	for (; n; n--) {
		struct object *object = own->first;

		own->first = object->next;
		own->n--;
		give_object(object);
	}
	pthread_mutex_unlock(&heap.lock);
}

/* A thread ends: of pthread_key_create(). */
static void end_own(void *arg)
{
	for (unsigned kind = 0; kind < N_CLASSES; kind++)
		give_own(kind, owns[kind].n);
	free(owns);
	owns = NULL;
}

static void make_key(void)
{
	pthread_key_create(&own_key, end_own);
}

/* Returns what the thread has of a class; NULL: no memory for that. */
static struct own *get_own(unsigned kind)
{
	if (likely(owns))
		return &owns[kind];
	pthread_once(&once, make_key);
	owns = calloc(N_CLASSES, sizeof(*owns));
	if (owns && pthread_setspecific(own_key, owns) == 0)
		return &owns[kind];
	free(owns);
	owns = NULL;
	return NULL;
}

static void fill_own(struct own *own, unsigned kind)
{
	unsigned n = own_max(kind) / 2;

	pthread_mutex_lock(&heap.lock);
	for (; own->n < n; own->n++) {
		struct object *object = take_object(kind);

		if (!object)
			break;
		object->next = own->first;
		own->first = object;
	}
	pthread_mutex_unlock(&heap.lock);
}

/* ---- OpenSSL's functions ---- */

void *net_tls_heap_malloc(size_t n, const char *file, int line)
{
	struct own *own;
	struct object *object;

	if (n == 0)
		return NULL;
	if (n > SLAB_MAX)
		return alloc_large(n);
	own = get_own(class_of(n));
	if (!own)
		return NULL;
	if (!own->first)
		fill_own(own, class_of(n));
	object = own->first;
	if (!object)
		return NULL;
	own->first = object->next;
	own->n--;
	return object;
}

void net_tls_heap_free(void *mem, const char *file, int line)
{
	struct chunk *chunk = chunk_of(mem);
	struct object *object = mem;
	struct own *own;

	if (!mem)
		return;
	if (chunk->kind == LARGE) {
		munmap(chunk, chunk->carved);
		return;
	}
	own = get_own(chunk->kind);
	if (!own) {
		pthread_mutex_lock(&heap.lock);
		give_object(object);
		pthread_mutex_unlock(&heap.lock);
		return;
	}
	object->next = own->first;
	own->first = object;
	if (++own->n > own_max(chunk->kind))
		give_own(chunk->kind, own->n / 2);
}

static size_t room_of(const void *mem)
{
	const struct chunk *chunk = chunk_of(mem);

	return chunk->kind == LARGE ? chunk->carved - HEADER
				    : bytes_of(chunk->kind);
}

void *net_tls_heap_realloc(void *mem, size_t n, const char *file, int line)
{
	void *more;

	if (!mem)
		return net_tls_heap_malloc(n, file, line);
	if (n == 0) {
		net_tls_heap_free(mem, file, line);
		return NULL;
	}
	if (n <= room_of(mem) && n > room_of(mem) / 2)
		return mem;
	more = net_tls_heap_malloc(n, file, line);
	if (!more)
		return NULL;
	memcpy(more, mem, LWIP_MIN(n, room_of(mem)));
	net_tls_heap_free(mem, file, line);
	return more;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void net_tls_heap_use(void)
{
}
#else
static void use_heap(void)
{
	CRYPTO_malloc_fn others;

	/* OpenSSL would replace the functions that the program has set. */
	CRYPTO_get_mem_functions(&others, NULL, NULL);
	if (others != CRYPTO_malloc)
		return;
	if (CRYPTO_set_mem_functions(net_tls_heap_malloc, net_tls_heap_realloc,
				     net_tls_heap_free) != 1)
		net_log_of(NET_COMPONENT_LISTEN, NET_LOG_WARNING,
			   "coronet: the program has used OpenSSL before, so "
			   "a core dump has keys of TLS: make its first "
			   "context (net_tls_server(), net_tls_client()) "
			   "earlier");
}

void net_tls_heap_use(void)
{
	static pthread_once_t used = PTHREAD_ONCE_INIT;

	pthread_once(&used, use_heap);
}
#endif
