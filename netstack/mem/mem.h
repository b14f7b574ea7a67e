/*
 * Memory: slabs for lwIP and for connections, memory that is sent without a
 * copy, and the budget of both. All calls act on the shard of the calling
 * thread unless a comment says otherwise.
 */
#pragma once

#include "netstack/state.h"

/* ---- slab.c: slabs for lwIP and for connections ---- */
int net_mem_init(void); /* 0 or -ENOMEM */
void net_mem_fini(void);
/*
 * Allocates zeroed memory outside the slabs, on huge pages where the system has
 * them. `bytes` is a multiple of the page size; the address is a multiple of
 * `align`, a power of two and at least a page. Returns NULL without memory. The
 * caller frees it with munmap().
 */
void *net_mem_map(size_t bytes, size_t align);
/*
 * Allocates a table of at least `least` pointers, all NULL. Its length is a
 * power of two; *mask is the length minus one. Returns NULL without memory.
 */
void *net_mem_map_table(unsigned least, uint32_t *mask);
void net_mem_unmap_table(void *table, uint32_t mask);
/*
 * For tests: makes the n-th allocation from now fail (1: the next; 0: none).
 * Counts every object that netstack/ and lwIP allocate, but no frames and no
 * memory of coro/.
 */
void net_mem_fail_after(unsigned n);

#define NET_MEM_CHUNK_BYTES (256u << 10)
unsigned net_mem_size(const void *mem); /* bytes of its slab object */
/*
 * A four-byte reference to an object of net_mem_malloc(), never 0, and the
 * object that a reference names, which must still be allocated.
 */
uint32_t net_mem_ref(const void *mem);
void *net_mem_at(uint32_t ref);
/*
 * Bytes of the chunks that hold objects, and bytes of the allocated objects.
 */
uint64_t net_mem_bytes(void);
uint64_t net_mem_live_bytes(void);
/* Sets the limit of net_mem_bytes() plus net_budget_elsewhere(), in bytes. */
void net_mem_set_max(uint64_t bytes);
/*
 * Returns the pages of a free chunk to the system, by a system call. Returns
 * false if few chunks are free.
 */
bool net_mem_trim(void);
/*
 * The pools of lwIP's memp, by its type: at most `limit` objects of `size`
 * bytes. net_mem_free() frees the objects.
 */
void net_mem_pool_init(unsigned type, uint32_t size, uint32_t limit);
void *net_mem_pool_alloc(unsigned type);
/*
 * Returns whether mem is the address of a connection object of a shard,
 * allocated or free. Any thread may call this.
 */
bool net_mem_is_conn(const struct net_stack *stack, const void *mem);

/* ---- budget.c ---- */
/* Sets how many bytes slabs and coroutines may use together; 0: no limit. */
void net_budget_set(uint64_t bytes);
/* Bytes that are charged to the budget, and the size of the budget. */
uint64_t net_budget_used(void);
uint64_t net_budget_whole(void);
/* Returns whether less than an eighth of the budget is left in whole chunks. */
bool net_budget_is_short(void);
/*
 * Bytes of coroutines and those of net_budget_charge(), which are charged to
 * the budget like the slabs.
 */
uint64_t net_budget_elsewhere(void);
/* Adds bytes that a library holds for a connection; negative: frees them. */
void net_budget_charge(int64_t bytes);
/*
 * Called when the slabs or coroutines have allocated or freed memory: adapts
 * the limits of connections.
 */
void net_budget_changed(void);

/* ---- frames as pbufs ---- */

/* Returns whether a received pbuf still lies in the frame it came in. */
static inline bool net_is_frame(const struct pbuf *p)
{
	return p->flags & PBUF_FLAG_IS_CUSTOM;
}

/* The user word of a frame that stores its port, behind lwIP's pbuf. */
#define NET_PORT_WORD 4

/* The port that a frame came from and returns to. */
static inline struct net_port *net_frame_port(const struct pbuf *frame)
{
	return (struct net_port *)(uintptr_t)((
		const uint64_t *)(const void *)frame)[NET_PORT_WORD];
}

/* The frame that a pbuf of net_frame_wrap() lies in. */
static inline struct glue_frame *net_frame_around(const struct pbuf *p)
{
	return (struct glue_frame *)(void *)((char *)(uintptr_t)p -
					     offsetof(struct glue_frame, user));
}

/* ---- frame.c ---- */
/* Returns whether a received pbuf holds a frame of a pool that is empty. */
bool net_is_scarce_frame(const struct pbuf *p);
/* Frees the frame that a pbuf lies in: a pbuf's custom_free_function. */
void net_frame_free(struct pbuf *p);
/*
 * Makes a pbuf of a frame's bytes. The pbuf lies in the frame and owns it.
 * tot_len: bytes of the frame and of those that follow it in a chain.
 */
static inline struct pbuf *net_frame_wrap(struct net_port *port,
					  struct glue_frame *frame,
					  uint16_t tot_len)
{
	struct pbuf_custom *custom = (struct pbuf_custom *)(void *)frame->user;
	struct pbuf *p = &custom->pbuf;

	custom->custom_free_function = net_frame_free;
	p->next = NULL;
	p->payload = frame->data;
	p->tot_len = tot_len;
	p->len = frame->seg_len;
	p->type_internal = PBUF_REF;
	p->flags = PBUF_FLAG_IS_CUSTOM;
	p->ref = 1;
	p->if_idx = NETIF_NO_INDEX;
	frame->user[NET_PORT_WORD] = (uintptr_t)port;
	port->frames_in++;
	return p;
}
/* net_frame_wrap() for a frame in several segments: a chain of pbufs. */
struct pbuf *net_frame_wrap_chain(struct net_port *port,
				  struct glue_frame *frame);

/* Like pbuf_free(), fast for a single frame with one reference. */
static inline void net_pbuf_free(struct pbuf *p)
{
	if (likely(p->ref == 1 && !p->next && net_is_frame(p)))
		((struct pbuf_custom *)(void *)p)->custom_free_function(p);
	else
		pbuf_free(p);
}

/* ---- zero_copy.c ---- */
#define NET_EXTBUF_MIN	     512 /* bytes; below, a copy costs less */
#define NET_EXTBUF_PBUF_SIZE 32	 /* bytes of a MEMP_PBUF */
/*
 * Makes a record of memory that the stack borrows until it calls release(arg).
 * The caller has a reference. Returns NULL without memory.
 */
struct net_extbuf *net_extbuf_open(net_release release, void *arg);
/*
 * Drops a reference: the memory is released after the last pbuf and frame that
 * refer to it.
 */
void net_extbuf_put(struct net_extbuf *ext);
/* The arg that ext was opened with; NULL if its release function is another. */
void *net_extbuf_arg(const struct net_extbuf *ext, net_release release);
/* The borrowed memory that a pbuf refers to; NULL: none. */
struct net_extbuf *net_extbuf_of(const struct pbuf *p);
/*
 * Makes pbufs that memp allocates from now on refer to ext; NULL: to none. Used
 * around the call that queues the memory.
 */
void net_extbuf_set_writing(struct net_extbuf *ext);
/* Called when memp has allocated, or will free, a pbuf without own memory. */
void net_extbuf_pbuf_made(void *mem);
void net_extbuf_pbuf_freed(void *mem);
/*
 * Returns whether everything behind the first pbuf of p can be sent without a
 * copy. net_extbuf_attach() appends it to a frame, and returns false if the
 * pool is empty.
 */
bool net_extbuf_only(const struct pbuf *p);
bool net_extbuf_attach(struct glue_port *port, struct glue_frame *frame,
		       const struct pbuf *p);
/*
 * Appends len bytes of ext's memory to a frame without copying them. Returns
 * false if the pool is empty.
 */
bool net_extbuf_lend(struct net_extbuf *ext, struct glue_port *port,
		     struct glue_frame *frame, const void *data, unsigned len);
/* Release memory that nothing refers to any more; at the end, all memory. */
void net_extbufs_release(void);
void net_extbufs_close(void);
