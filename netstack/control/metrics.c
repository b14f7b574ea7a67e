/*
 * The page for Prometheus, in its text format 0.0.4: the counters of all
 * shards.
 */
#include "netstack/control/control_priv.h"
#include "netstack/control/counters.h"
#include "netstack/program/log.h"

#include <coronet/net_control.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_SOURCES 32u

struct net_metrics {
	FILE *out;
	const char *name; /* of the metric that was begun last */
};

static struct {
	pthread_mutex_t lock;
	unsigned n;
	struct source {
		net_metrics_fn fn;
		void *arg;
	} all[MAX_SOURCES];
} sources = {.lock = PTHREAD_MUTEX_INITIALIZER};

int net_metrics_add(net_metrics_fn fn, void *arg)
{
	int err = 0;

	if (!fn)
		return -EINVAL;
	pthread_mutex_lock(&sources.lock);
	if (sources.n < MAX_SOURCES)
		sources.all[sources.n++] = (struct source){fn, arg};
	else
		err = -ENOSPC;
	pthread_mutex_unlock(&sources.lock);
	return err;
}

void net_metrics_forget(void)
{
	pthread_mutex_lock(&sources.lock);
	sources.n = 0;
	pthread_mutex_unlock(&sources.lock);
}

/* ---- writing ---- */

void net_metric(struct net_metrics *page, const char *name,
		enum net_metric_type type, const char *help)
{
	static const char *const types[] = {[NET_COUNTER] = "counter",
					    [NET_GAUGE] = "gauge",
					    [NET_HISTOGRAM] = "histogram"};

	page->name = name;
	fprintf(page->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
		types[type]);
}

void net_metric_value(struct net_metrics *page, const char *labels,
		      double value)
{
	bool any = labels && *labels;

	fprintf(page->out, "%s%s%s%s %.17g\n", page->name, any ? "{" : "",
		any ? labels : "", any ? "}" : "", value);
}

void net_metric_histogram(struct net_metrics *page, const char *labels,
			  const double *bounds, const uint64_t *counts,
			  unsigned n, double sum)
{
	const char *comma = *labels ? "," : "";
	const char *open = *labels ? "{" : "", *close = *labels ? "}" : "";
	uint64_t all = 0;

	for (unsigned i = 0; i < n; i++) {
		all += counts[i];
		fprintf(page->out, "%s_bucket{%s%sle=\"%.9g\"} %" PRIu64 "\n",
			page->name, labels, comma, bounds[i], all);
	}
	all += counts[n];
	fprintf(page->out,
		"%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n%s_sum%s%s%s %.9g\n"
		"%s_count%s%s%s %" PRIu64 "\n",
		page->name, labels, comma, all, page->name, open, labels, close,
		sum, page->name, open, labels, close, all);
}

/* ---- counters and gauges of shards ---- */

struct shard_sample {
	struct net_stats stats;
	unsigned coros;
};

struct samples {
	unsigned n;
	struct shard_sample shards[NET_MAX_SHARDS];
};

static void write_value(struct net_metrics *page,
			const struct net_metric_family *family,
			const struct net_counter *counter, const char *labels,
			const struct net_stats *stats)
{
	double value = (double)net_counter_value(stats, counter);

	net_metric_value(page, labels, family->in_ns ? value / 1e9 : value);
}

static void write_hist(struct net_metrics *page,
		       const struct net_counter *counter, const char *labels,
		       const struct net_stats *stats)
{
	const struct net_hist *hist =
		(const void *)((const char *)stats + counter->at);
	double bounds_s[NET_HIST_BUCKETS - 1];

	for (unsigned k = 0; k < NET_HIST_BUCKETS - 1; k++)
		bounds_s[k] = (double)(UINT64_C(1024) << k) / 1e9;
	net_metric_histogram(page, labels, bounds_s, hist->buckets,
			     NET_HIST_BUCKETS - 1, (double)hist->sum_ns / 1e9);
}

/* Writes the values that a shard has of a metric. */
static void write_shard(struct net_metrics *page,
			const struct net_metric_family *family, unsigned shard,
			const struct net_stats *stats)
{
	char labels[96] = "";

	for (unsigned k = 0; k < family->n; k++) {
		const struct net_counter *c = &family->counters[k];

		if (c->label)
			snprintf(labels, sizeof(labels),
				 "shard=\"%u\",%s=\"%s\"", shard, family->label,
				 c->label);
		else if (!family->is_program)
			snprintf(labels, sizeof(labels), "shard=\"%u\"", shard);
		if (family->type == NET_HISTOGRAM)
			write_hist(page, c, labels, stats);
		else
			write_value(page, family, c, labels, stats);
	}
}

static void write_family(struct net_metrics *page,
			 const struct net_metric_family *family,
			 const struct samples *samples)
{
	unsigned n = family->is_program ? LWIP_MIN(samples->n, 1u) : samples->n;

	net_metric(page, family->metric, family->type, family->help);
	for (unsigned i = 0; i < n; i++)
		write_shard(page, family, i, &samples->shards[i].stats);
}

static void write_coros(struct net_metrics *page, const struct samples *samples)
{
	char labels[32];

	net_metric(page, "coronet_coroutines", NET_GAUGE,
		   "Coroutines that have not ended.");
	for (unsigned i = 0; i < samples->n; i++) {
		snprintf(labels, sizeof(labels), "shard=\"%u\"", i);
		net_metric_value(page, labels, samples->shards[i].coros);
	}
}

static void write_program(struct net_metrics *page,
			  const struct samples *samples)
{
	net_metric(page, "coronet_build_info", NET_GAUGE,
		   "Always 1; the version is its label.");
	net_metric_value(page, "version=\"" CORONET_VERSION "\"", 1);
	net_metric(page, "coronet_shards", NET_GAUGE, "Shards that answered.");
	net_metric_value(page, "", samples->n);
	if (samples->n == 0)
		return;
	net_metric(
		page, "coronet_log_held_lines_total", NET_COUNTER,
		"Lines of the log held back by the rate limit of their kind.");
	net_metric_value(page, "", (double)net_log_suppressed());
}

/* Writes about the present capture, or the last one. */
static void write_capture(struct net_metrics *page)
{
	struct net_capture_status status;

	net_capture_status(&status);
	net_metric(page, "coronet_capture_running", NET_GAUGE,
		   "1 while packets are captured.");
	net_metric_value(page, "", status.state == NET_CAPTURE_RUNS);
	net_metric(page, "coronet_capture_packets", NET_GAUGE,
		   "Packets in the file of this capture, or the last one.");
	net_metric_value(page, "", (double)status.packets);
	net_metric(page, "coronet_capture_dropped_packets", NET_GAUGE,
		   "Packets that this capture, or the last one, dropped.");
	net_metric_value(page, "", (double)status.dropped);
}

/* ---- the page ---- */

/* The metric of connections counts those that are closing separately. */
static bool sample_step(void *data)
{
	struct shard_sample *sample = data;
	struct net_stats *stats = &sample->stats;

	net_stack_stats(net_here(), stats);
	stats->conns -= LWIP_MIN(stats->closing, stats->conns);
	sample->coros = coro_sched_live(net_here()->sched);
	return true;
}

/* A shard that does not answer ends the list: those after it have no number. */
static void sample_all(struct samples *samples)
{
	unsigned n = net_ask_shards();

	for (unsigned i = 0; i < n; i++) {
		struct net_ask *ask =
			net_ask_new(sample_step, sizeof(struct shard_sample));
		int err = ask ? net_ask_run(ask, i) : -ENOMEM;

		if (err == 0)
			samples->shards[samples->n++] =
				*(struct shard_sample *)(void *)ask->data;
		if (ask)
			net_ask_put(ask);
		if (err < 0)
			return;
	}
}

static void write_all(struct net_metrics *page, const struct samples *samples)
{
	write_program(page, samples);
	for (unsigned i = 0; i < net_n_metric_families; i++)
		write_family(page, &net_metric_families[i], samples);
	write_coros(page, samples);
	write_capture(page);
	if (samples->n > 0)
		net_links_metrics(page);
	pthread_mutex_lock(&sources.lock);
	for (unsigned i = 0; i < sources.n; i++)
		sources.all[i].fn(page, sources.all[i].arg);
	pthread_mutex_unlock(&sources.lock);
}

char *net_metrics_page(void)
{
	struct samples *samples = calloc(1, sizeof(*samples));
	struct net_metrics page = {0};
	char *text = NULL;
	size_t len = 0;

	page.out = samples ? open_memstream(&text, &len) : NULL;
	if (page.out) {
		sample_all(samples);
		write_all(&page, samples);
		if (fclose(page.out) != 0) {
			free(text);
			text = NULL;
		}
	}
	free(samples);
	return net_control_make_utf8(text);
}
