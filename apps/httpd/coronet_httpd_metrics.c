/*
 * coronet-httpd's metrics for Prometheus, of all shards together. They are
 * written on the control thread, which reads only counters.
 */
#include "apps/httpd/coronet_httpd_priv.h"

#include <stdio.h>

#include <coronet/net_control.h>

static void write_one(struct net_metrics *page, const char *name,
		      enum net_metric_type type, const char *help,
		      uint64_t value)
{
	net_metric(page, name, type, help);
	net_metric_value(page, "", (double)value);
}

static void write_answers(struct net_metrics *page, const uint64_t *answers)
{
	char labels[32];

	net_metric(page, "coronet_httpd_answers_total", NET_COUNTER,
		   "Answers, by status.");
	for (unsigned i = 0; i < HTTPD_STATUSES; i++) {
		snprintf(labels, sizeof(labels), "status=\"%d\"",
			 httpd_status(i));
		net_metric_value(page, labels, (double)answers[i]);
	}
}

static void write_metrics(struct net_metrics *page, void *arg)
{
	const struct httpd_shard *shards = arg;
	struct httpd_counters sum = {0};

	for (unsigned i = 0; i < NET_MAX_SHARDS; i++)
		counters_sum(&sum, &shards[i].counters, sizeof(sum));
	write_answers(page, sum.answers);
	write_one(page, "coronet_httpd_clients", NET_GAUGE, "Clients now.",
		  sum.open);
	write_one(page, "coronet_httpd_half_requests", NET_GAUGE,
		  "Clients whose request is incomplete.", sum.half_open);
	write_one(page, "coronet_httpd_accepts_total", NET_COUNTER,
		  "Clients that were accepted.", sum.clients);
	write_one(page, "coronet_httpd_requests_total", NET_COUNTER,
		  "Complete requests.", sum.requests);
	write_one(page, "coronet_httpd_refused_requests_total", NET_COUNTER,
		  "Requests that were wrong or late.", sum.refused);
	write_one(page, "coronet_httpd_displaced_requests_total", NET_COUNTER,
		  "Requests displaced because too many were incomplete.",
		  sum.displaced);
	write_one(page, "coronet_httpd_stalled_clients_total", NET_COUNTER,
		  "Clients that reset the connection, or acknowledged nothing "
		  "for --send-timeout, during a response.",
		  sum.gave_up);
	if (httpd.log)
		write_one(page, "coronet_httpd_access_log_dropped_lines_total",
			  NET_COUNTER, "Lines of --access-log that were lost.",
			  httpd_log_lost());
}

int httpd_metrics_add(const struct httpd_shard *shards)
{
	return net_metrics_add(write_metrics, (void *)shards);
}
