/*
 * coronet: commands, metrics and conditions of health that a program adds to
 * its control socket (--control) and to its pages for Prometheus and for load
 * balancers (--metrics). docs/operate.md lists those that every program has.
 *
 * Functions that are added here are called on the control thread or, for a page
 * at one of the stack's own addresses, on a thread of net_offload(): one call
 * at a time, and never on a shard's thread. They may read data that is atomic
 * or constant, and reach a shard by net_post(). They must not be slow, since
 * the next request waits for them. All of them are removed when the stack
 * closes.
 *
 * net_control_add(), net_metrics_add() and net_health_add() may be called from
 * any thread while the program is open. The other calls are made by a
 * net_metrics_fn, during its call.
 */
#pragma once

#include <coronet/net_stack.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Answers a command. params: the text after its name and a comma, borrowed;
 * NULL: none. arg: as given to net_control_add(). Returns JSON in memory from
 * malloc(), which the caller frees; NULL: no memory.
 */
typedef char *(*net_control_fn)(const char *params, void *arg);

/*
 * Adds a command "/program/name" with a line of help. name, help and arg are
 * borrowed until the stack closes. Returns 0, -EINVAL (name does not begin with
 * a slash or has a comma, or name, help or fn is NULL), -EEXIST (there is a
 * command of that name) or -ENOSPC (the program has added 32).
 */
int net_control_add(const char *name, const char *help, net_control_fn fn,
		    void *arg);

enum net_metric_type { NET_COUNTER, NET_GAUGE, NET_HISTOGRAM };

struct net_metrics; /* the page that is being written */

/*
 * Writes metrics to a page with net_metric(), net_metric_value() and
 * net_metric_histogram(). arg: as given to net_metrics_add().
 */
typedef void (*net_metrics_fn)(struct net_metrics *page, void *arg);

/*
 * Adds a source of metrics: fn(page, arg) is called for each page. arg is
 * borrowed until the stack closes. Returns 0, -EINVAL (fn is NULL) or -ENOSPC
 * (the program has added 32).
 */
int net_metrics_add(net_metrics_fn fn, void *arg);

/*
 * Begins a metric. By Prometheus's conventions a name begins with the program's
 * and ends with the base unit, and only a counter's ends with _total, as in
 * coronet_proxy_sent_bytes_total. name is borrowed until the next net_metric()
 * or the end of the page; help is written at once, as it is.
 */
void net_metric(struct net_metrics *page, const char *name,
		enum net_metric_type type, const char *help);

/*
 * Writes a value of the metric that net_metric() has begun. labels: "" or NULL
 * for none, otherwise a list such as backend="10.9.0.2:80",listener="8080".
 */
void net_metric_value(struct net_metrics *page, const char *labels,
		      double value);

/*
 * Writes a value of a NET_HISTOGRAM with n bounds in rising order and n + 1
 * counts: counts[0] observations were at most bounds[0], counts[i] the others
 * at most bounds[i], and counts[n] all the rest. sum: the sum of all
 * observations. labels: "" for none, not NULL.
 */
void net_metric_histogram(struct net_metrics *page, const char *labels,
			  const double *bounds, const uint64_t *counts,
			  unsigned n, double sum);

/*
 * Returns NULL if the program serves as far as this condition goes; otherwise
 * one line without newline, such as "draining", that stays valid. arg: as given
 * to net_health_add().
 */
typedef const char *(*net_health_fn)(void *arg);

/*
 * Adds a condition to /health, which is answered 200 only if the stack runs,
 * each shard answers and each condition holds, and 503 with the first line
 * otherwise. arg is borrowed until the stack closes. Returns 0, -EINVAL (fn is
 * NULL) or -ENOSPC (the program has added 32).
 */
int net_health_add(net_health_fn fn, void *arg);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
