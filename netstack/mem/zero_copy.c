/*
 * Sending without a copy: memory given away until the peer has it.
 *
 * lwIP's segments refer to such memory with a pbuf of their own each, and
 * frames on their way out refer to it too. struct net_loan counts both, and
 * whoever is still queueing; after the last the memory is released, at the end
 * of the round, so that release() never runs inside lwIP or a call. A segment
 * that is sent again builds new frames from the same memory; acknowledging,
 * resetting and aborting all end in lwIP freeing its pbufs.
 */
#include "netstack/mem/mem.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "lwip/memp.h"

struct net_loan {
	struct glue_lender lender; /* first: frames hold it through this */
	net_release release;
	void *arg;
	unsigned refs;	/* pbufs, all frames together, who queues it */
	bool in_frames; /* at least one */
	struct net_loan *next, **pprev; /* of all that are out, or returned */
};

/* What memp hands out for MEMP_PBUF. */
struct loan_pbuf {
	struct pbuf pbuf; /* first */
	struct net_loan *loan;
};
static_assert(sizeof(struct loan_pbuf) <= NET_LOAN_PBUF_SIZE,
	      "net_memp_init() makes them large enough");

static void hang(struct net_loan **list, struct net_loan *loan)
{
	loan->next = *list;
	loan->pprev = list;
	if (*list)
		(*list)->pprev = &loan->next;
	*list = loan;
}

static void unhang(struct net_loan *loan)
{
	*loan->pprev = loan->next;
	if (loan->next)
		loan->next->pprev = loan->pprev;
}

void net_loan_put(struct net_loan *loan)
{
	if (--loan->refs)
		return;
	unhang(loan);
	hang(&net_here()->loans.returned, loan);
}

/* No frame holds it any more. */
static void frames_done(struct glue_lender *lender)
{
	struct net_loan *loan = (struct net_loan *)(void *)lender;

	loan->in_frames = false;
	net_loan_put(loan);
}

struct net_loan *net_loan_open(net_release release, void *arg)
{
	struct net_loan *loan = net_mem_malloc(sizeof(*loan));

	if (!loan)
		return NULL;
	*loan = (struct net_loan){.lender.done = frames_done,
				  .release = release,
				  .arg = arg,
				  .refs = 1};
	hang(&net_here()->loans.out, loan);
	return loan;
}

static void loan_close(struct net_loan *loan)
{
	unhang(loan);
	loan->release(loan->arg);
	net_mem_free(loan);
}

void net_loans_run(void)
{
	while (__builtin_expect(net_here()->loans.returned != NULL, 0))
		loan_close(net_here()->loans.returned);
}

void net_loans_end(void)
{
	net_loans_run();
	while (net_here()->loans.out)
		loan_close(net_here()->loans.out);
}

/* ---- memp's side ---- */

void net_loan_pbuf_made(void *mem)
{
	struct loan_pbuf *p = mem;

	p->loan = net_here()->loans.writing;
	if (p->loan)
		p->loan->refs++;
}

void net_loan_pbuf_freed(void *mem)
{
	struct loan_pbuf *p = mem;

	if (p->loan)
		net_loan_put(p->loan);
}

/* ---- frames ---- */

struct net_loan *net_loan_of(const struct pbuf *p)
{
	return p->type_internal == (u8_t)PBUF_ROM
		       ? ((const struct loan_pbuf *)(const void *)p)->loan
		       : NULL;
}

/*
 * Headers in one pbuf and all that follows lent, in pieces worth a buffer of
 * their own each: else a copy costs less.
 */
bool net_loan_is(const struct pbuf *p)
{
	for (p = p->next; p; p = p->next)
		if (p->len < NET_LEND_MIN || !net_loan_of(p))
			return false;
	return true;
}

bool net_loan_attach(struct glue_port *port, struct glue_frame *frame,
		     const struct pbuf *p)
{
	for (p = p->next; p; p = p->next) {
		struct net_loan *loan = net_loan_of(p);

		if (!glue_tx_lend(port, frame, p->payload, p->len,
				  &loan->lender))
			return false;
		if (!loan->in_frames) {
			loan->in_frames = true;
			loan->refs++;
		}
	}
	return true;
}
