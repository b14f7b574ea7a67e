/*
 * coronet: what a program adds to its control socket (--control) and to its
 * page for Prometheus (--metrics). docs/operate.md tells what is there without.
 *
 * What is added here is called on the control thread, never on a shard's: it
 * may read what is atomic or constant, and reaches a shard by net_post(). It
 * must not be slow, since the next request waits for it. All of it is forgotten
 * when the stack closes.
 */
#pragma once

#include <coronet/net_stack.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Answers a command. params: what stood after its name and a comma; NULL:
 * nothing. Returns JSON from malloc(), which is freed; NULL: no memory.
 */
typedef char *(*net_control_fn)(const char *params, void *arg);

/*
 * Adds a command, "/program/name" with a line of help; both are borrowed. Any
 * thread, while the program is open. Returns 0, -EINVAL (a name that does not
 * begin with a slash, or has a comma), -EEXIST, -ENOSPC (32 are there).
 */
int net_control_add(const char *name, const char *help, net_control_fn fn,
		    void *arg);

enum net_metric_type { NET_COUNTER, NET_GAUGE, NET_HISTOGRAM };

struct net_metrics; /* the page that is being written */

/* Writes metrics, by net_metric() and net_metric_value(). */
typedef void (*net_metrics_fn)(struct net_metrics *page, void *arg);

/* Adds a source of metrics. Returns 0, -EINVAL (no fn), -ENOSPC (32). */
int net_metrics_add(net_metrics_fn fn, void *arg);

/*
 * Begins a metric. Prometheus' conventions: a name of the program's and the
 * base unit, as in coronet_proxy_sent_bytes_total, _total for a counter alone.
 */
void net_metric(struct net_metrics *page, const char *name,
		enum net_metric_type type, const char *help);

/* A value of it. labels: "", or as in backend="10.9.0.2:80",door="8080". */
void net_metric_value(struct net_metrics *page, const char *labels,
		      double value);

/*
 * A value of a NET_HISTOGRAM: how many were at most bounds[0], how many beyond
 * that and at most bounds[1], and so on for n bounds in rising order; counts[n]
 * is those beyond all. sum: of all that was counted.
 */
void net_metric_histogram(struct net_metrics *page, const char *labels,
			  const double *bounds, const uint64_t *counts,
			  unsigned n, double sum);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
