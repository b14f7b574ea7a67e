/*
 * The page for Prometheus, in its text format 0.0.4: the counters of all
 * shards.
 */
#include "netstack/control/control_priv.h"
#include "netstack/program/log.h"

#include <coronet/net_control.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- what shards count ---- */

struct shard_sample {
	struct net_stats stats;
	unsigned coros;
};

struct samples {
	unsigned n;
	struct shard_sample shards[NET_MAX_SHARDS];
};

/* A counter of struct net_stats, one value of a metric. */
struct counter {
	const char *label; /* its value of the metric's label, or NULL */
	size_t at;
};

struct family {
	const char *name, *help, *label; /* label NULL: none but the shard */
	struct counter counters[24];	 /* the first n */
	unsigned n;
};

#define AT(field) offsetof(struct net_stats, field)
#define SEVERAL(...)                                                           \
	.counters = {__VA_ARGS__},                                             \
	.n = sizeof((struct counter[]){__VA_ARGS__}) / sizeof(struct counter)
#define ONE(field)	   SEVERAL({NULL, AT(field)})
#define FAMILY_COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const struct family counters[] = {
	{"coronet_receive_frames_total", "Frames received.", NULL,
	 ONE(rx_frames)},
	{"coronet_receive_bytes_total", "Bytes of frames received.", NULL,
	 ONE(rx_bytes)},
	{"coronet_transmit_frames_total", "Frames sent.", NULL, ONE(tx_frames)},
	{"coronet_transmit_bytes_total", "Bytes of frames sent.", NULL,
	 ONE(tx_bytes)},
	{"coronet_drops_total",
	 "Frames, segments and SYNs dropped, by reason (net_stats).", "reason",
	 SEVERAL({"bad_frame", AT(rx_bad_frame)},
		 {"bad_checksum", AT(rx_bad_csum)}, {"refused", AT(rx_refused)},
		 {"other_vlan", AT(rx_other_vlan)}, {"missed", AT(rx_missed)},
		 {"hand_over_full", AT(rx_hand_over_full)},
		 {"transmit_queue_full", AT(tx_dropped)},
		 {"transmit_no_frame", AT(tx_no_frame)},
		 {"no_memory", AT(rx_no_memory)},
		 {"out_of_order_budget", AT(ooseq_drops)},
		 {"unacceptable", AT(rx_unacceptable)},
		 {"backlog_full", AT(backlog_drops)},
		 {"clients_limit", AT(clients_refused)},
		 {"syns_shed", AT(syns_shed)},
		 {"neighbours", AT(neighbours_refused)},
		 {"loop_full", AT(loop_drops)},
		 {"udp_queue_full", AT(udp_queue_full)},
		 {"udp_no_socket", AT(udp_no_socket)})},
	{"coronet_udp_datagrams_total",
	 "UDP datagrams, queued for sockets or sent.", "direction",
	 SEVERAL({"received", AT(udp_received)}, {"sent", AT(udp_sent)})},
	{"coronet_address_conflicts_total",
	 "Packets of other hosts that have an address of the stack.", NULL,
	 ONE(addr_conflicts)},
	{"coronet_accepts_total", "Connections taken from listeners.", NULL,
	 ONE(accepted)},
	{"coronet_dials_total", "Connections made by net_dial().", NULL,
	 ONE(dialed)},
	{"coronet_closes_total", "Connections that have ended.", NULL,
	 ONE(closed)},
	{"coronet_resets_total", "Connections that the peer has reset.", NULL,
	 ONE(reset)},
	{"coronet_timeouts_total",
	 "Connections given up because the peer was silent.", NULL,
	 ONE(timed_out)},
	{"coronet_memory_resets_total",
	 "Connections reset because memory was short.", NULL,
	 ONE(memory_resets)},
	{"coronet_lwip_assertions_total",
	 "Assertions of lwIP that failed; their connections are reset.", NULL,
	 ONE(lwip_assertions)},
	{"coronet_memory_refusals_total",
	 "Requests and data refused because memory was short.", "what",
	 SEVERAL({"growth", AT(memory_refused)},
		 {"allocation", AT(no_memory)})},
	{"coronet_retransmits_total",
	 "Segments retransmitted, by the mechanism that detected the loss.",
	 "cause",
	 SEVERAL({"rto", AT(resent_rto)}, {"rack", AT(resent_rack)},
		 {"fast", AT(resent_fast)}, {"tlp", AT(resent_tlp)})},
	{"coronet_retransmission_timeouts_total",
	 "Retransmission timeouts (RFC 6298).", NULL, ONE(rtos)},
	{"coronet_out_of_order_segments_total",
	 "Segments that arrived out of order.", NULL, ONE(out_of_order)},
	{"coronet_cookies_total", "SYN cookies.", "result",
	 SEVERAL({"sent", AT(cookies_sent)}, {"accepted", AT(cookies_accepted)},
		 {"refused", AT(cookies_refused)})},
	{"coronet_window_cuts_undone_total",
	 "Congestion windows restored because nothing was lost.", NULL,
	 ONE(cuts_undone)},
	{"coronet_ecn_marks_total",
	 "ECN marks of routers (RFC 3168), received or answered by a smaller "
	 "window.",
	 "event", SEVERAL({"received", AT(rx_ce)}, {"cut", AT(ecn_cuts)})},
	{"coronet_ecn_connections_total",
	 "Connections that have agreed on ECN (RFC 3168).", NULL,
	 ONE(ecn_conns)},
	{"coronet_kernel_frames_total",
	 "Frames passed to the kernel, or sent for it, with --exception.",
	 "direction",
	 SEVERAL({"to_kernel", AT(to_kernel)},
		 {"from_kernel", AT(from_kernel)})},
	{"coronet_kernel_drops_total",
	 "Frames of the exception path that were dropped: beyond the rate, or "
	 "not taken by the kernel or the port.",
	 "reason",
	 SEVERAL({"limited", AT(kernel_limited)},
		 {"not_taken", AT(kernel_dropped)})},
	{"coronet_kernel_held_rounds_total",
	 "Rounds of the loop in which frames from the kernel had to wait.",
	 NULL, ONE(kernel_held)},
	{"coronet_challenge_acks_total", "Challenge ACKs sent (RFC 5961).",
	 NULL, ONE(challenge_acks)},
	{"coronet_handed_over_frames_total",
	 "Frames handed over to the shard that owns them.", NULL,
	 ONE(handed_over)},
	{"coronet_taken_over_frames_total",
	 "Frames taken over from the queues of other shards.", NULL,
	 ONE(taken_over)},
	{"coronet_frame_pool_empty_total",
	 "Checks that found hardly any free frame of a link.", NULL,
	 ONE(pool_empty)},
	{"coronet_path_mtu_changes_total",
	 "Path MTUs lowered, by source of the report.", "by",
	 SEVERAL({"router", AT(path_mtu_lowered)},
		 {"loss", AT(path_mtu_guessed)})},
	{"coronet_looped_packets_total",
	 "Packets from one address of the stack to another.", NULL,
	 ONE(looped)},
	{"coronet_path_mtu_refusals_total",
	 "Reports of a smaller MTU that quoted nothing in flight (RFC 5927).",
	 NULL, ONE(path_mtu_refused)},
	{"coronet_recycled_connections_total",
	 "Connections ended early because there were too many in their state.",
	 "state",
	 SEVERAL({"time_wait", AT(time_wait_recycled)},
		 {"closed", AT(orphans_recycled)})},
	{"coronet_view_misuses_total",
	 "Views that handlers released more than once.", NULL,
	 ONE(view_misuses)},
	{"coronet_view_reclaims_total", "Views that handlers never released.",
	 NULL, ONE(views_reclaimed)},
	{"coronet_rounds_total", "Rounds of the loop.", NULL, ONE(rounds)},
};

static double counter_of(const struct net_stats *stats, size_t at)
{
	uint64_t n;

	memcpy(&n, (const char *)stats + at, sizeof(n));
	return (double)n;
}

static void write_family(struct net_metrics *page, const struct family *family,
			 const struct samples *samples)
{
	char labels[96];

	net_metric(page, family->name, NET_COUNTER, family->help);
	for (unsigned i = 0; i < samples->n; i++)
		for (unsigned k = 0; k < family->n; k++) {
			const struct counter *c = &family->counters[k];

			if (c->label)
				snprintf(labels, sizeof(labels),
					 "shard=\"%u\",%s=\"%s\"", i,
					 family->label, c->label);
			else
				snprintf(labels, sizeof(labels), "shard=\"%u\"",
					 i);
			net_metric_value(
				page, labels,
				counter_of(&samples->shards[i].stats, c->at));
		}
}

static void write_hist(struct net_metrics *page, const char *name,
		       const char *help, const struct samples *samples,
		       size_t at)
{
	double bounds_s[NET_HIST_BUCKETS - 1];
	char labels[32];

	for (unsigned k = 0; k < NET_HIST_BUCKETS - 1; k++)
		bounds_s[k] = (double)(UINT64_C(1024) << k) / 1e9;
	net_metric(page, name, NET_HISTOGRAM, help);
	for (unsigned i = 0; i < samples->n; i++) {
		const struct net_hist *hist =
			(const void *)((const char *)&samples->shards[i].stats +
				       at);

		snprintf(labels, sizeof(labels), "shard=\"%u\"", i);
		net_metric_histogram(page, labels, bounds_s, hist->buckets,
				     NET_HIST_BUCKETS - 1,
				     (double)hist->sum_ns / 1e9);
	}
}

static void write_conns(struct net_metrics *page, const struct samples *samples)
{
	net_metric(page, "coronet_connections", NET_GAUGE,
		   "Connections now: half_open (a SYN was answered), open, "
		   "closing (closed here, not yet delivered), time_wait.");
	for (unsigned i = 0; i < samples->n; i++) {
		const struct net_stats *s = &samples->shards[i].stats;
		const struct {
			const char *state;
			unsigned n;
		} states[] = {
			{"half_open", s->half_open},
			{"open", s->conns - LWIP_MIN(s->closing, s->conns)},
			{"closing", s->closing},
			{"time_wait", s->time_wait}};
		char labels[64];

		for (unsigned k = 0; k < FAMILY_COUNT(states); k++) {
			snprintf(labels, sizeof(labels),
				 "shard=\"%u\",state=\"%s\"", i,
				 states[k].state);
			net_metric_value(page, labels, states[k].n);
		}
	}
}

static void write_gauge(struct net_metrics *page, const char *name,
			enum net_metric_type type, const char *help,
			const struct samples *samples,
			double (*get)(const struct shard_sample *sample))
{
	char labels[32];

	net_metric(page, name, type, help);
	for (unsigned i = 0; i < samples->n; i++) {
		snprintf(labels, sizeof(labels), "shard=\"%u\"", i);
		net_metric_value(page, labels, get(&samples->shards[i]));
	}
}

static double busy_of(const struct shard_sample *s)
{
	return (double)s->stats.busy_ns / 1e9;
}

static double memory_of(const struct shard_sample *s)
{
	return (double)s->stats.memory_bytes;
}

static double budget_of(const struct shard_sample *s)
{
	return (double)s->stats.memory_max_bytes;
}

static double frames_of(const struct shard_sample *s)
{
	return s->stats.frames;
}

static double frames_free_of(const struct shard_sample *s)
{
	return s->stats.frames_free;
}

static double coros_of(const struct shard_sample *s)
{
	return s->coros;
}

static void write_gauges(struct net_metrics *page,
			 const struct samples *samples)
{
	write_gauge(page, "coronet_busy_seconds_total", NET_COUNTER,
		    "Time spent in rounds that found work; its rate is the "
		    "share of the core in use.",
		    samples, busy_of);
	write_gauge(page, "coronet_memory_bytes", NET_GAUGE,
		    "Memory of connections and coroutines.", samples,
		    memory_of);
	write_gauge(
		page, "coronet_memory_budget_bytes", NET_GAUGE,
		"Memory that --memory leaves for connections and coroutines.",
		samples, budget_of);
	write_gauge(page, "coronet_frames", NET_GAUGE, "Frames in the pools.",
		    samples, frames_of);
	write_gauge(page, "coronet_frames_free", NET_GAUGE,
		    "Free frames of the pools.", samples, frames_free_of);
	write_gauge(page, "coronet_coroutines", NET_GAUGE,
		    "Coroutines that have not ended.", samples, coros_of);
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
	net_metric(page, "coronet_log_dropped_lines_total", NET_COUNTER,
		   "Lines of the log that were dropped.");
	net_metric_value(page, "",
			 (double)samples->shards[0].stats.log_dropped);
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

static bool sample_step(void *data)
{
	struct shard_sample *sample = data;

	net_stack_stats(net_here(), &sample->stats);
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
	for (unsigned i = 0; i < FAMILY_COUNT(counters); i++)
		write_family(page, &counters[i], samples);
	write_conns(page, samples);
	write_gauges(page, samples);
	write_hist(page, "coronet_rtt_seconds",
		   "Round-trip times measured by TCP.", samples, AT(rtt));
	write_hist(page, "coronet_round_seconds",
		   "Duration of the loop's rounds that found work.", samples,
		   AT(round));
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
	return text;
}
