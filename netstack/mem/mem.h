/*
 * Memory: slabs for lwIP and for connections, memory that is sent without a
 * copy, and the budget of all.
 */
#pragma once

#include "netstack/state.h"

/* ---- slab.c: slabs for lwIP and for connections ---- */
int net_mem_init(void);
void net_mem_fini(void);
/*
 * Zeroed memory beside the slabs, on huge pages where the system has them: its
 * address is a multiple of `align` (a power of two, a page at least) and
 * `bytes` of whole pages. NULL: there is none. munmap() gives it back.
 */
void *net_mem_map(size_t bytes, size_t align);
/*
 * A table of `least` pointers or more, all NULL; of its length, a power of two,
 * *mask is one less. NULL: there is no memory.
 */
void *net_mem_map_table(unsigned least, uint32_t *mask);
void net_mem_unmap_table(void *table, uint32_t mask);
/*
 * For tests: the n-th allocation from now fails, 1 being the next; 0: none.
 * Every object netstack/ and lwIP allocate counts, frames and what coro/ keeps
 * apart.
 */
void net_mem_fail_after(unsigned n);

#define NET_MEM_CHUNK_BYTES (256u << 10)
unsigned net_mem_size(const void *mem); /* bytes that are the object's */
/*
 * A reference of four bytes to an object of net_mem_malloc(), never 0; and the
 * object of one, which must still be allocated.
 */
uint32_t net_mem_ref(const void *mem);
void *net_mem_at(uint32_t ref);
/* Bytes of chunks that hold objects, and of those objects. The second walks. */
uint64_t net_mem_bytes(void);
uint64_t net_mem_live_bytes(void);
/* What net_mem_bytes() and net_budget_elsewhere() may come to together. */
void net_mem_set_max(uint64_t bytes);
/* Gives a free chunk's pages back; false: few are free. A system call. */
bool net_mem_trim(void);
/*
 * The pools of lwIP's memp, by its type: objects of `size` bytes, `limit` of
 * them at most. net_mem_free() takes them back.
 */
void net_mem_pool_init(unsigned type, uint32_t size, uint32_t limit);
void *net_mem_pool_alloc(unsigned type);
/* Is that the address of a shard's connection, in use or not? Any thread. */
bool net_mem_is_conn(const struct net_stack *stack, const void *mem);

/* ---- budget.c ---- */
/* What slabs and coroutines may take together; 0: no bound. */
void net_budget_set(uint64_t bytes);
/* Bytes that count, of the whole that there may be. */
uint64_t net_budget_used(void);
uint64_t net_budget_whole(void);
/* Less than an eighth of it is left in whole chunks. */
bool net_budget_is_short(void);
/* Bytes that count beside the slabs': those of coroutines. */
uint64_t net_budget_elsewhere(void);
/* The slabs, or coroutines, have taken or given back memory. */
void net_budget_changed(void);

/* ---- frames as pbufs ---- */

/* Whether a received pbuf still lies in the frame it came in. */
static inline bool net_is_frame(const struct pbuf *p)
{
	return p->flags & PBUF_FLAG_IS_CUSTOM;
}

/* The port it came from, to which it returns. */
static inline struct net_port *net_frame_port(const struct pbuf *frame)
{
	return (struct net_port *)(uintptr_t)((
		const uint64_t *)(const void *)frame)[4];
}

/* pbuf_free() of what is mostly one frame that nobody else holds. */
static inline void net_pbuf_free(struct pbuf *p)
{
	if (__builtin_expect(p->ref == 1 && !p->next && net_is_frame(p), 1))
		((struct pbuf_custom *)(void *)p)->custom_free_function(p);
	else
		pbuf_free(p);
}

/* ---- zero_copy.c ---- */
#define NET_EXTBUF_MIN	     512 /* bytes; below, a copy costs less */
#define NET_EXTBUF_PBUF_SIZE 32	 /* bytes of a MEMP_PBUF */
/* Memory that is out until release(arg) is called; NULL: no memory. */
struct net_extbuf *net_extbuf_open(net_release release, void *arg);
/* Who queues it is done; it is released after the last pbuf and frame. */
void net_extbuf_put(struct net_extbuf *ext);
bool net_extbuf_has(const struct net_extbuf *ext, net_release release);
/* What a pbuf refers to; NULL: nothing lent. */
struct net_extbuf *net_extbuf_of(const struct pbuf *p);
/* memp has made, or is about to take back, a pbuf that refers to memory. */
void net_extbuf_pbuf_made(void *mem);
void net_extbuf_pbuf_freed(void *mem);
/* Whether what follows p's headers can go out without a copy; does so. */
bool net_extbuf_only(const struct pbuf *p);
bool net_extbuf_attach(struct glue_port *port, struct glue_frame *frame,
		       const struct pbuf *p);
/* Releases what is back; at the end, everything. */
void net_extbufs_release(void);
void net_extbufs_close(void);
