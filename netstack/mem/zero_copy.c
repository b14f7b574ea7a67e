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
#include "netstack/net_priv.h"

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
	      "mem/slab.c makes them large enough");

static struct net_loan *loans;	  /* out */
static struct net_loan *returned; /* to be released */
static struct net_loan *lending;  /* what tcp_write() is called for */

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

static void loan_put(struct net_loan *loan)
{
	if (--loan->refs)
		return;
	unhang(loan);
	hang(&returned, loan);
}

/* No frame holds it any more. */
static void frames_done(struct glue_lender *lender)
{
	struct net_loan *loan = (struct net_loan *)(void *)lender;

	loan->in_frames = false;
	loan_put(loan);
}

static struct net_loan *loan_open(net_release release, void *arg)
{
	struct net_loan *loan = net_mem_malloc(sizeof(*loan));

	if (!loan)
		return NULL;
	*loan = (struct net_loan){.lender.done = frames_done,
				  .release = release,
				  .arg = arg,
				  .refs = 1};
	hang(&loans, loan);
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
	while (__builtin_expect(returned != NULL, 0))
		loan_close(returned);
}

void net_loans_end(void)
{
	net_loans_run();
	while (loans)
		loan_close(loans);
}

/* ---- memp's side ---- */

void net_loan_pbuf_made(void *mem)
{
	struct loan_pbuf *p = mem;

	p->loan = lending;
	if (lending)
		lending->refs++;
}

void net_loan_pbuf_freed(void *mem)
{
	struct loan_pbuf *p = mem;

	if (p->loan)
		loan_put(p->loan);
}

/* ---- frames ---- */

static inline struct net_loan *loan_of(const struct pbuf *p)
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
		if (p->len < NET_LEND_MIN || !loan_of(p))
			return false;
	return true;
}

bool net_loan_attach(struct glue_port *port, struct glue_frame *frame,
		     const struct pbuf *p)
{
	for (p = p->next; p; p = p->next) {
		struct net_loan *loan = loan_of(p);

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

/* ---- queueing ---- */

/*
 * tcp_write() makes one reference longer where the next bytes follow it in
 * memory, which may be another loan's: that one would then be released early.
 */
static bool follows_another(const struct tcp_pcb *pcb,
			    const struct net_loan *loan, const void *data)
{
	const struct tcp_seg *seg = pcb->unsent;
	const struct pbuf *p;

	if (!seg)
		return false;
	while (seg->next)
		seg = seg->next;
	for (p = seg->p; p->next; p = p->next)
		;
	return p->type_internal == (u8_t)PBUF_ROM && loan_of(p) != loan &&
	       (const uint8_t *)p->payload + p->len == data;
}

/* Queues a piece, at most n bytes: how many, 0 or a negative errno. */
static long queue_piece(struct net_conn *conn, struct net_loan *loan,
			const void *data, size_t n)
{
	struct tcp_pcb *pcb = &conn->pcb;
	u8_t flags = 0;
	err_t err;

	if (follows_another(pcb, loan, data)) {
		flags = TCP_WRITE_FLAG_COPY;
		n = 1;
	}
	lending = flags ? NULL : loan;
	err = tcp_write(pcb, data, (u16_t)n, flags);
	lending = NULL;
	if (err == ERR_OK) {
		net_conn_queue_output(conn);
		return (long)n;
	}
	if (err != ERR_MEM)
		return -EPIPE;
	return pcb->unacked || pcb->unsent ? 0 : -ENOMEM;
}

/* Whole segments while there are any: the rest waits for room of its own. */
static size_t piece_of(const struct net_conn *conn, size_t left)
{
	size_t n = net_send_room(conn);

	if (n >= left)
		return left;
	return n - n % conn->pcb.mss;
}

/* Less room than a segment's is no reason to wake: it is there all along. */
static int wait_segment(struct net_conn *conn)
{
	int err;

	conn->wants_segment = true;
	err = net_send_wait_room(conn);
	if (err != -EBADF) /* else it is gone */
		conn->wants_segment = false;
	return err;
}

static long queue_all(struct net_conn *conn, struct net_loan *loan,
		      const uint8_t *data, size_t len)
{
	size_t done = 0;
	int err = net_send_enter(conn);

	while (err == 0 && done < len) {
		size_t n = piece_of(conn, len - done);
		long queued = 0;

		if (n)
			queued = queue_piece(conn, loan, data + done, n);
		if (queued < 0)
			return queued;
		done += (size_t)queued;
		if (queued == 0)
			err = wait_segment(conn);
	}
	return err < 0 ? err : (long)len;
}

long net_send_owned(struct net_conn *conn, const void *data, size_t len,
		    net_release release, void *arg)
{
	struct net_loan *loan;
	long n;

	NET_CHECK_THREAD();
	if (!release || (!data && len))
		return -EINVAL;
	net_check_shared(data, "net_send_owned: the buffer");
	loan = loan_open(release, arg);
	if (!loan) {
		release(arg);
		return -ENOMEM;
	}
	n = queue_all(conn, loan, data, len);
	loan_put(loan);
	return n;
}

static void release_view(void *owner)
{
	pbuf_free(owner);
}

/*
 * Frames that the peer has yet to acknowledge are frames that receiving has
 * to do without: while half of those that may be held are, views are copied.
 */
static bool may_lend(const struct pbuf *p)
{
	const struct net_port *port;

	if (!net_eth_lends())
		return false;
	if (!net_is_frame(p))
		return true;
	port = net_frame_port(p);
	return port->frames_in <= port->frames_to_hold / 2;
}

__attribute__((noinline)) static long
send_large(struct net_conn *conn, const void *data, size_t len, struct pbuf *p)
{
	struct net_loan *loan = may_lend(p) ? loan_open(release_view, p) : NULL;
	long n;

	if (loan) {
		n = queue_all(conn, loan, data, len);
		loan_put(loan);
	} else {
		n = net_send_every(conn, data, len);
		pbuf_free(p);
	}
	return n;
}

long net_send_view(struct net_conn *conn, struct net_view *view)
{
	const void *data = view->data;
	size_t len = view->len;
	struct pbuf *p = NULL;
	long n;

	NET_CHECK_THREAD();
	if (view->owner) {
		p = net_view_back(view);
		*view = (struct net_view){0};
		if (!p)
			return -EINVAL;
		if (len >= NET_LEND_MIN)
			return send_large(conn, data, len, p);
	} else {
		*view = (struct net_view){0};
	}
	n = net_send_every(conn, data, len);
	if (p)
		net_pbuf_free(p);
	return n;
}
