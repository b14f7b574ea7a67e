/*
 * Health checks: each worker connects to each backend at intervals, and shares
 * no result with the others.
 */
#include "apps/proxy/epoll_proxy_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_INTERVAL_NS                                                        \
	10000000000 /* minimum interval between repeated log lines */

/* Reports what a check found; the next check follows after an interval. */
static void report_check(struct worker *w, struct check *check, bool well)
{
	if (check->source.fd >= 0)
		close(check->source.fd);
	check->source.fd = -1;
	check->due_ns = w->now_ns + config.opts.health_interval_ns;
	/* All workers find the same: one reports it. */
	if (balance_report(&w->balance, check->backend, well) && w->index == 0)
		fprintf(stderr, "epoll-proxy: backend %s is %s\n",
			w->balance.backends[check->backend].name,
			well ? "up" : "down");
}

/* No file, port or memory of our own is left: no fault of the backend's. */
static bool is_our_fault(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOBUFS ||
	       err == -ENOMEM || err == -EADDRNOTAVAIL;
}

void worker_connect_failed(struct worker *w, int backend, int err)
{
	if (!is_our_fault(err)) {
		balance_failed(&w->balance, backend);
		return;
	}
	if (w->now_ns < w->say_ns)
		return;
	w->say_ns = w->now_ns + LOG_INTERVAL_NS;
	fprintf(stderr, "epoll-proxy: no connection to backend %s: %s\n",
		w->balance.backends[backend].name, strerror(-err));
}

static void begin_check(struct worker *w, struct check *check)
{
	struct epoll_event event = {.events = EPOLLOUT | EPOLLET,
				    .data.ptr = check};
	int64_t limit_ns = config.opts.connect_timeout_ns;

	if (limit_ns > config.opts.health_interval_ns)
		limit_ns = config.opts.health_interval_ns;
	check->due_ns = w->now_ns + limit_ns;
	check->source.fd = worker_connect(check->backend);
	if (check->source.fd >= 0 &&
	    epoll_ctl(w->epoll, EPOLL_CTL_ADD, check->source.fd, &event) == 0)
		return;
	if (check->source.fd >= 0 || !is_our_fault(check->source.fd)) {
		report_check(w, check, false);
		return;
	}
	worker_connect_failed(w, check->backend, check->source.fd);
	check->source.fd = -1;
	check->due_ns = w->now_ns + config.opts.health_interval_ns;
}

void check_event(struct worker *w, struct check *check)
{
	static const struct proxy_addrs nobody;
	char header[PROXY_WRITE_MAX];
	socklen_t len = sizeof(int);
	int err = 0;

	if (check->source.fd < 0)
		return;
	getsockopt(check->source.fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err == 0 && config.opts.send_proxy)
		send(check->source.fd, header,
		     proxy_write(config.opts.send_proxy, &nobody, header),
		     MSG_NOSIGNAL);
	report_check(w, check, err == 0);
}

void checks_start(struct worker *w)
{
	for (unsigned i = 0; i < w->balance.n; i++)
		w->checks[i] = (struct check){
			.source = {.kind = SOURCE_CHECK, .fd = -1},
			.backend = (int)i,
		};
}

int64_t checks_due_ns(const struct worker *w)
{
	int64_t due_ns = INT64_MAX;

	if (config.opts.health_interval_ns == 0 || w->draining)
		return due_ns;
	for (unsigned i = 0; i < w->balance.n; i++)
		if (w->checks[i].due_ns < due_ns)
			due_ns = w->checks[i].due_ns;
	return due_ns;
}

void checks_run(struct worker *w)
{
	if (config.opts.health_interval_ns == 0 || w->draining)
		return;
	for (unsigned i = 0; i < w->balance.n; i++) {
		struct check *check = &w->checks[i];

		if (check->due_ns > w->now_ns)
			continue;
		if (check->source.fd >= 0)
			report_check(w, check, false);
		else
			begin_check(w, check);
	}
}

void checks_stop(struct worker *w)
{
	for (unsigned i = 0; i < w->balance.n; i++)
		if (w->checks[i].source.fd >= 0) {
			close(w->checks[i].source.fd);
			w->checks[i].source.fd = -1;
		}
}
