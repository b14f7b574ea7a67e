/*
 * Sending without a copy: the stack borrows memory until the peer has
 * acknowledged it.
 *
 * lwIP's segments refer to such memory with a pbuf of their own each, and
 * frames on their way out refer to it too. struct net_extbuf counts both, and a
 * call that is still queueing it; after the last reference the memory is
 * released, at the end of the round, so that release() never runs inside lwIP
 * or a call. A segment that is sent again builds new frames from the same
 * memory; acknowledging, resetting and aborting all end in lwIP freeing its
 * pbufs.
 */
#include "netstack/mem/mem.h"
#include "netstack/shard_var.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "lwip/memp.h"

struct net_extbuf {
	struct glue_lender lender; /* first: frames hold it through this */
	net_release release;
	void *arg;
	unsigned refs;	/* pbufs, all frames together, the queuing call */
	bool in_frames; /* at least one */
	struct net_extbuf *next, **pprev; /* of all that are out, or returned */
};

/* The object that memp hands out for MEMP_PBUF. */
struct extbuf_pbuf {
	struct pbuf pbuf; /* first */
	struct net_extbuf *ext;
};
static_assert(sizeof(struct extbuf_pbuf) <= NET_EXTBUF_PBUF_SIZE,
	      "net_memp_init() makes them large enough");

static NET_SHARD_VAR struct {
	struct net_extbuf *out, *returned; /* returned: to be released */
	struct net_extbuf *writing; /* the next pbufs refer to it; or NULL */
} extbufs;
#define extbufs NET_SHARD(extbufs)

static void link_extbuf(struct net_extbuf **list, struct net_extbuf *ext)
{
	ext->next = *list;
	ext->pprev = list;
	if (*list)
		(*list)->pprev = &ext->next;
	*list = ext;
}

static void unlink_extbuf(struct net_extbuf *ext)
{
	*ext->pprev = ext->next;
	if (ext->next)
		ext->next->pprev = ext->pprev;
}

void net_extbuf_put(struct net_extbuf *ext)
{
	if (--ext->refs)
		return;
	unlink_extbuf(ext);
	link_extbuf(&extbufs.returned, ext);
}

/* Called when no frame holds it any more. */
static void frames_done(struct glue_lender *lender)
{
	struct net_extbuf *ext = (struct net_extbuf *)(void *)lender;

	ext->in_frames = false;
	net_extbuf_put(ext);
}

struct net_extbuf *net_extbuf_open(net_release release, void *arg)
{
	struct net_extbuf *ext = net_mem_malloc(sizeof(*ext));

	if (!ext)
		return NULL;
	*ext = (struct net_extbuf){.lender.done = frames_done,
				   .release = release,
				   .arg = arg,
				   .refs = 1};
	link_extbuf(&extbufs.out, ext);
	return ext;
}

void *net_extbuf_arg(const struct net_extbuf *ext, net_release release)
{
	return ext->release == release ? ext->arg : NULL;
}

static void extbuf_close(struct net_extbuf *ext)
{
	unlink_extbuf(ext);
	ext->release(ext->arg);
	net_mem_free(ext);
}

void net_extbufs_release(void)
{
	while (unlikely(extbufs.returned))
		extbuf_close(extbufs.returned);
}

void net_extbufs_close(void)
{
	net_extbufs_release();
	while (extbufs.out)
		extbuf_close(extbufs.out);
}

/* ---- memp's side ---- */

void net_extbuf_set_writing(struct net_extbuf *ext)
{
	extbufs.writing = ext;
}

void net_extbuf_pbuf_made(void *mem)
{
	struct extbuf_pbuf *p = mem;

	p->ext = extbufs.writing;
	if (p->ext)
		p->ext->refs++;
}

void net_extbuf_pbuf_freed(void *mem)
{
	struct extbuf_pbuf *p = mem;

	if (p->ext)
		net_extbuf_put(p->ext);
}

/* ---- frames ---- */

struct net_extbuf *net_extbuf_of(const struct pbuf *p)
{
	return p->type_internal == (uint8_t)PBUF_ROM
		       ? ((const struct extbuf_pbuf *)(const void *)p)->ext
		       : NULL;
}

/*
 * Are the headers in one pbuf and all that follows lent, in pieces that are
 * worth a buffer of their own each? Else a copy costs less.
 */
bool net_extbuf_only(const struct pbuf *p)
{
	for (p = p->next; p; p = p->next)
		if (p->len < NET_EXTBUF_MIN || !net_extbuf_of(p))
			return false;
	return true;
}

bool net_extbuf_lend(struct net_extbuf *ext, struct glue_port *port,
		     struct glue_frame *frame, const void *data, unsigned len)
{
	if (!glue_tx_lend(port, frame, data, len, &ext->lender))
		return false;
	if (!ext->in_frames) {
		ext->in_frames = true;
		ext->refs++;
	}
	return true;
}

bool net_extbuf_attach(struct glue_port *port, struct glue_frame *frame,
		       const struct pbuf *p)
{
	for (p = p->next; p; p = p->next) {
		struct net_extbuf *ext = net_extbuf_of(p);

		if (!net_extbuf_lend(ext, port, frame, p->payload, p->len))
			return false;
	}
	return true;
}
