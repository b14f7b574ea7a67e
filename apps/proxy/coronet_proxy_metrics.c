/*
 * coronet-proxy's metrics for Prometheus: those of the program, and those of
 * each backend. They are written on the control thread, which reads only
 * counters.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <stdio.h>

#include <coronet/net_control.h>

#define LABELS_MAX (BACKEND_NAME_MAX + 64)

/* ---- the program's ---- */

static void write_one(struct net_metrics *page, const char *name,
		      enum net_metric_type type, const char *help, double value)
{
	net_metric(page, name, type, help);
	net_metric_value(page, "", value);
}

/* Sessions that were refused or could not begin. */
static void write_refusals(struct net_metrics *page,
			   const struct proxy_counters *total)
{
	/* no_backend is counted after the queue's: it may lag behind. */
	uint64_t queue = total->queue_full + total->queue_timeout;
	uint64_t others =
		total->no_backend > queue ? total->no_backend - queue : 0;
	const struct {
		const char *label;
		uint64_t n;
	} reasons[] = {
		{"reason=\"over_limit\"", total->over_limit},
		{"reason=\"denied\"", total->denied},
		{"reason=\"source_rate\"", total->over_rate},
		{"reason=\"listener_rate\"", total->over_listener},
		{"reason=\"bad_header\"", total->bad_header},
		{"reason=\"bad_hello\"", total->bad_hello},
		{"reason=\"displaced\"", total->displaced},
		{"reason=\"queue_full\"", total->queue_full},
		{"reason=\"queue_timeout\"", total->queue_timeout},
		{"reason=\"no_backend\"", others},
	};

	net_metric(page, "coronet_proxy_refusals_total", NET_COUNTER,
		   "Clients that got no session, by reason; displaced clients "
		   "also count under the header that was incomplete.");
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		net_metric_value(page, reasons[i].label, (double)reasons[i].n);
}

static void write_udp(struct net_metrics *page,
		      const struct proxy_counters *total)
{
	write_one(page, "coronet_proxy_udp_sessions", NET_GAUGE,
		  "UDP sessions now.", (double)total->udp_sessions);
	write_one(page, "coronet_proxy_udp_sessions_total", NET_COUNTER,
		  "UDP sessions begun.", (double)total->udp_begun);
	write_one(page, "coronet_proxy_udp_displaced_total", NET_COUNTER,
		  "UDP sessions that ended to make room for others.",
		  (double)total->udp_displaced);
	net_metric(page, "coronet_proxy_udp_datagrams_total", NET_COUNTER,
		   "Datagrams sent on, by direction.");
	net_metric_value(page, "direction=\"to_backend\"",
			 (double)total->udp_to);
	net_metric_value(page, "direction=\"from_backend\"",
			 (double)total->udp_from);
	write_one(page, "coronet_proxy_udp_dropped_total", NET_COUNTER,
		  "Datagrams dropped: without a session, or without room to "
		  "send them.",
		  (double)total->udp_dropped);
}

static void write_sticky(struct net_metrics *page,
			 const struct proxy_counters *total)
{
	write_one(page, "coronet_proxy_sticky_hits_total", NET_COUNTER,
		  "Sessions that got the backend of their client's last one.",
		  (double)total->sticky_hits);
	write_one(page, "coronet_proxy_sticky_displaced_total", NET_COUNTER,
		  "Clients whose backend was forgotten for others.",
		  (double)total->sticky_displaced);
}

/* Of the whole table: only where there is a configuration. */
static void write_sticky_entries(struct net_metrics *page,
				 const struct proxy_config *config,
				 const struct pool *pool)
{
	uint32_t numbers[BALANCE_MAX];

	if (config->steer.sticky_ns == 0)
		return;
	for (unsigned i = 0; i < pool->n; i++)
		numbers[i] = pool->entries[i].backend->number;
	write_one(page, "coronet_proxy_sticky_entries", NET_GAUGE,
		  "Clients whose backend is known.",
		  sticky_count(proxy.sticky, numbers, pool->n, net_clock_ns(),
			       config->steer.sticky_ns));
}

static void write_program(struct net_metrics *page)
{
	const struct proxy_counters total = proxy_total();

	write_one(page, "coronet_proxy_sessions", NET_GAUGE, "Sessions now.",
		  (double)total.sessions);
	write_one(page, "coronet_proxy_accepts_total", NET_COUNTER,
		  "Clients that were accepted for a session.",
		  (double)total.accepted);
	write_refusals(page, &total);
	write_one(page, "coronet_proxy_rate_waits_total", NET_COUNTER,
		  "Clients that have waited for their listener's rate.",
		  (double)total.rate_waits);
	write_one(page, "coronet_proxy_retries_total", NET_COUNTER,
		  "Connection attempts of sessions after their first.",
		  (double)total.retries);
	write_one(page, "coronet_proxy_queued", NET_GAUGE,
		  "Sessions that wait for a backend with room.", proxy.queue.n);
	write_one(page, "coronet_proxy_queued_total", NET_COUNTER,
		  "Sessions that have waited for a backend with room.",
		  (double)total.queued);
	write_sticky(page, &total);
	write_udp(page, &total);
	if (proxy.log)
		write_one(page, "coronet_proxy_access_log_dropped_lines_total",
			  NET_COUNTER, "Lines of the access log dropped.",
			  (double)line_log_lost(proxy.log));
}

/* ---- of each backend ---- */

static double sessions_of(const struct pool *pool, unsigned i)
{
	return pool->entries[i].backend->active;
}

static double weight_of(const struct pool *pool, unsigned i)
{
	return pool->entries[i].spec.weight;
}

static double connects_of(const struct pool *pool, unsigned i)
{
	return (double)pool->entries[i].backend->served;
}

static double ejections_of(const struct pool *pool, unsigned i)
{
	return (double)pool->entries[i].backend->ejections;
}

static double sent_of(const struct pool *pool, unsigned i)
{
	return (double)pool->entries[i].backend->bytes_to;
}

static double received_of(const struct pool *pool, unsigned i)
{
	return (double)pool->entries[i].backend->bytes_from;
}

static const struct {
	const char *name;
	enum net_metric_type type;
	const char *help;
	double (*get)(const struct pool *pool, unsigned i);
} singles[] = {
	{"coronet_proxy_backend_sessions", NET_GAUGE, "Sessions now.",
	 sessions_of},
	{"coronet_proxy_backend_weight", NET_GAUGE,
	 "The backend's configured share of new sessions.", weight_of},
	{"coronet_proxy_backend_connects_total", NET_COUNTER,
	 "Connections made for sessions.", connects_of},
	{"coronet_proxy_backend_ejections_total", NET_COUNTER,
	 "Times that the backend was ejected after failed connects.",
	 ejections_of},
	{"coronet_proxy_backend_sent_bytes_total", NET_COUNTER,
	 "Bytes of clients sent to the backend; the last 1 MiB of a session, "
	 "or less, is counted when it ends.",
	 sent_of},
	{"coronet_proxy_backend_received_bytes_total", NET_COUNTER,
	 "Bytes received from the backend; the last 1 MiB of a session, or "
	 "less, is counted when it ends.",
	 received_of},
};

static void labels_of(const struct pool *pool, unsigned i, char *out,
		      size_t len, const char *key, const char *value)
{
	/* A name is letters, digits and a few more: nothing to escape. */
	snprintf(out, len, "backend=\"%s\"%s%s%s%s%s",
		 pool->entries[i].spec.name, key ? "," : "", key ? key : "",
		 key ? "=\"" : "", key ? value : "", key ? "\"" : "");
}

static void write_singles(struct net_metrics *page, const struct pool *pool)
{
	char labels[LABELS_MAX];

	for (size_t k = 0; k < sizeof(singles) / sizeof(singles[0]); k++) {
		net_metric(page, singles[k].name, singles[k].type,
			   singles[k].help);
		for (unsigned i = 0; i < pool->n; i++) {
			labels_of(pool, i, labels, sizeof(labels), NULL, NULL);
			net_metric_value(page, labels, singles[k].get(pool, i));
		}
	}
}

static void write_failures(struct net_metrics *page, const struct pool *pool)
{
	char labels[LABELS_MAX];

	net_metric(page, "coronet_proxy_backend_connect_failures_total",
		   NET_COUNTER,
		   "Connections to the backend that could not be made.");
	for (unsigned i = 0; i < pool->n; i++)
		for (int why = 0; why < BACKEND_FAILURES; why++) {
			labels_of(pool, i, labels, sizeof(labels), "reason",
				  backend_failure_name(
					  (enum backend_failure)why));
			net_metric_value(page, labels,
					 (double)pool->entries[i]
						 .backend->not_made[why]);
		}
}

/* Writes 1 for the current state, 0 for the others. */
static void write_states(struct net_metrics *page, const struct pool *pool)
{
	char labels[LABELS_MAX];

	net_metric(page, "coronet_proxy_backend_state", NET_GAUGE,
		   "The state that the operator has set: 1 for ready, drain or "
		   "down.");
	for (unsigned i = 0; i < pool->n; i++)
		for (int state = BACKEND_READY; state <= BACKEND_DOWN;
		     state++) {
			labels_of(
				pool, i, labels, sizeof(labels), "state",
				backend_state_name((enum backend_state)state));
			net_metric_value(page, labels,
					 pool->entries[i].backend->state ==
						 state);
		}
}

static void write_health(struct net_metrics *page, const struct pool *pool)
{
	int64_t now_ns = net_clock_ns();
	char labels[LABELS_MAX];

	net_metric(page, "coronet_proxy_backend_health", NET_GAUGE,
		   "The backend's health: 1 for up, warming (slow start), "
		   "ejected, down (checks fail) or unresolved.");
	for (unsigned i = 0; i < pool->n; i++) {
		enum backend_health now = pool_health(pool, i, now_ns);

		for (int health = 0; health < BACKEND_HEALTHS; health++) {
			labels_of(pool, i, labels, sizeof(labels), "health",
				  backend_health_name(
					  (enum backend_health)health));
			net_metric_value(page, labels, (int)now == health);
		}
	}
}

static void write_times(struct net_metrics *page, const struct pool *pool,
			unsigned i, const struct backend_times *times)
{
	uint64_t counts[BACKEND_BOUNDS + 1];
	char labels[LABELS_MAX];

	for (unsigned k = 0; k <= BACKEND_BOUNDS; k++)
		counts[k] = times->counts[k];
	labels_of(pool, i, labels, sizeof(labels), NULL, NULL);
	net_metric_histogram(page, labels, backend_bounds_s, counts,
			     BACKEND_BOUNDS, (double)times->sum_ns / 1e9);
}

static void write_histograms(struct net_metrics *page, const struct pool *pool)
{
	net_metric(page, "coronet_proxy_backend_connect_seconds", NET_HISTOGRAM,
		   "Time to connect to the backend.");
	for (unsigned i = 0; i < pool->n; i++)
		write_times(page, pool, i, &pool->entries[i].backend->connect);
	net_metric(page, "coronet_proxy_backend_response_seconds",
		   NET_HISTOGRAM,
		   "Time from the connection to the backend's first byte for "
		   "the client.");
	for (unsigned i = 0; i < pool->n; i++)
		write_times(page, pool, i, &pool->entries[i].backend->response);
}

static void write_metrics(struct net_metrics *page, void *arg)
{
	struct proxy_config *config;
	struct pool *pool;

	write_program(page);
	if (!config_current(&config, &pool))
		return;
	write_sticky_entries(page, config, pool);
	config_unref(config);
	write_singles(page, pool);
	write_failures(page, pool);
	write_states(page, pool);
	write_health(page, pool);
	write_histograms(page, pool);
	pool_unref(pool);
}

/* A proxy without a backend serves nobody. */
static const char *check_backends(void *arg)
{
	struct pool *pool = proxy_pool_ref();
	const char *why = NULL;

	if (!pool)
		return "starting or stopping";
	if (pool_usable(pool, net_clock_ns()) == 0)
		why = "no backend is up";
	pool_unref(pool);
	return why;
}

int proxy_metrics_add(void)
{
	int err = net_metrics_add(write_metrics, NULL);

	return err ? err : net_health_add(check_backends, NULL);
}
