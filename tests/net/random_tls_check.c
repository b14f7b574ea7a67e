/*
 * What has to hold in a life with TLS. Every byte is the other end's, a clean
 * end comes after its last byte and never before, and an error has a cause:
 * neither a loss nor an allocation that fails looks like a truncation.
 */
#include "tests/net/random_tls.h"

#include <coronet/net_tls.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "netstack/mem/mem.h"

static void print_end(const struct flow *flow)
{
	const struct app *app = &flow->app;

	printf("end %u: %s, got %u of %u%s, sent %u to %u of %u%s%s, read "
	       "error %d, write error %d, dial %d, causes %#x%s%s\n",
	       flow->index, app->started ? "started" : "not started", app->got,
	       flow->d->in_bytes, app->eof ? " and the end" : "", app->sent,
	       app->sent_max, flow->d->out_bytes,
	       app->writer_done ? ", done" : "", app->wr_shut ? ", shut" : "",
	       app->rd_err, app->wr_err, app->dial_err, flow->watch.causes,
	       app->closed ? ", closing" : "", app->ended ? ", ended" : "");
}

void violated(const struct flow *flow, const char *what, ...)
{
	va_list args;

	printf("seed %llu: ", (unsigned long long)life.draw.seed);
	if (flow)
		printf("pair %u, %s, ", flow->index / 2,
		       flow->d->dialed ? "client" : "server");
	printf("at %.6f s: ", (double)(fake_now_ns - life.start) / 1e9);
	va_start(args, what);
	vprintf(what, args);
	va_end(args);
	printf("\n");
	for (unsigned i = 0; verbose && i < life.draw.n_flows; i++)
		print_end(&life.flows[i]);
	fflush(stdout);
	if (getenv("CORONET_RANDOM_ABORT"))
		abort();
	_Exit(1);
}

/* Causes of either end. */
static unsigned causes_of(const struct flow *flow)
{
	fault_step();
	return flow->watch.causes | tls_other(flow)->watch.causes |
	       (fault_given ? BY_MEMORY : 0);
}

void check_error(struct flow *flow, const char *call, int err)
{
	unsigned own = flow->watch.causes, all = causes_of(flow);

	if (err != -EPROTO &&
	    (all & BY_MEMORY || (flow->app.rd_err && flow->app.wr_err)))
		return;
	if (err == -ECONNRESET && all)
		return;
	if (err == -ETIMEDOUT && all)
		return; /* or the reset was lost, and nothing answers */
	if ((err == -ECANCELED || err == -ECONNABORTED || err == -ENOTCONN) &&
	    own & BY_APP)
		return;
	violated(flow, "%s gives %d (%s) without a cause: %s", call, err,
		 strerror(-err), net_tls_error(flow->app.conn));
}

void check_eof(struct flow *flow)
{
	const struct app *from = &tls_other(flow)->app;
	uint32_t n = flow->app.got;

	/* net_shutdown() may have failed for lack of memory, after
	 * close_notify. */
	if (!from->wr_shut && !from->closed && !fault_given)
		violated(flow, "a clean end that nobody has sent");
	if (n < from->sent || n > from->sent_max)
		violated(flow, "a clean end after %u of %u bytes", n,
			 from->sent);
}

void check_closed(struct flow *flow, int err)
{
	if (err < 0 && err != -EPIPE)
		check_error(flow, "net_close_wait()", err);
}

static bool is_calm(const struct draw *d)
{
	return !d->deadline && !d->cancel_at && !d->drop_at &&
	       !d->user_timeout_ms && d->read_until == UINT32_MAX &&
	       d->ending != END_ABORT && d->linger > 3600 * SECOND;
}

static void check_whole(const struct flow *flow)
{
	if (!flow->app.started)
		violated(flow, "it has never begun");
	if (!flow->app.eof || flow->app.got != flow->d->in_bytes)
		violated(flow, "it has got %u of %u bytes%s", flow->app.got,
			 flow->d->in_bytes, flow->app.eof ? "" : " and no end");
}

void tls_check_pair(const struct flow *dialed)
{
	const struct flow *served = tls_other(dialed);

	if (dialed->app.loans || served->app.loans)
		violated(dialed, "%u and %u loans are not back",
			 dialed->app.loans, served->app.loans);
	tls_seen->pairs++;
	if (fault_given || !is_calm(dialed->d) || !is_calm(served->d))
		return;
	check_whole(dialed);
	check_whole(served);
	tls_seen->whole++;
}

static void back_to(const char *what, uint64_t now, uint64_t then)
{
	if (now != then)
		violated(NULL, "%s: %llu at the end, %llu at the start", what,
			 (unsigned long long)now, (unsigned long long)then);
}

void tls_check_end(void)
{
	const struct net_stack *here = net_here();

	back_to("connections", here->n_conns, 0);
	back_to("half-open connections", here->half_open, 0);
	back_to("frames received", here->ports[0].frames_in, 0);
	back_to("frames", fake_frames_out, 0);
	back_to("bytes of memory", net_mem_live_bytes(), life.memory);
	back_to("bytes of OpenSSL",
		net_budget_elsewhere() - coro_sched_memory(here->sched), 0);
	back_to("coroutines", coro_sched_live(here->sched), 0);
	back_to("timers", coro_sched_next_ns(here->sched) != CORO_FOREVER, 0);
}
