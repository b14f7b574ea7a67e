/*
 * coronet-dns's metrics for Prometheus, of all shards together. They are
 * written on the control thread, which reads only counters.
 */
#include "apps/dns/coronet_dns_priv.h"

#include <coronet/net_control.h>

static void write_one(struct net_metrics *page, const char *name,
		      enum net_metric_type type, const char *help,
		      uint64_t value)
{
	net_metric(page, name, type, help);
	net_metric_value(page, "", (double)value);
}

static void write_rcodes(struct net_metrics *page, const uint64_t *rcodes)
{
	static const struct {
		enum dns_rcode rcode;
		const char *labels;
	} known[] = {
		{DNS_NOERROR, "rcode=\"NOERROR\""},
		{DNS_FORMERR, "rcode=\"FORMERR\""},
		{DNS_NXDOMAIN, "rcode=\"NXDOMAIN\""},
		{DNS_NOTIMP, "rcode=\"NOTIMP\""},
		{DNS_REFUSED, "rcode=\"REFUSED\""},
		{DNS_BADVERS, "rcode=\"BADVERS\""},
	};

	net_metric(page, "coronet_dns_answers_total", NET_COUNTER,
		   "Answers, by rcode.");
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		net_metric_value(page, known[i].labels,
				 (double)rcodes[known[i].rcode]);
}

static void write_shards(struct net_metrics *page,
			 const struct dns_counters *sum)
{
	net_metric(page, "coronet_dns_queries_total", NET_COUNTER,
		   "Queries, by transport.");
	net_metric_value(page, "transport=\"udp\"", (double)sum->udp_queries);
	net_metric_value(page, "transport=\"tcp\"", (double)sum->tcp_queries);
	write_rcodes(page, sum->rcodes);
	write_one(page, "coronet_dns_truncated_total", NET_COUNTER,
		  "Answers that were too long for a datagram.", sum->truncated);
	write_one(page, "coronet_dns_limited_total", NET_COUNTER,
		  "Queries without an answer because of --rate-limit.",
		  sum->limited);
	write_one(page, "coronet_dns_slipped_total", NET_COUNTER,
		  "Answers truncated because of --rate-limit.", sum->slipped);
	write_one(page, "coronet_dns_ignored_total", NET_COUNTER,
		  "Messages that were not queries.", sum->ignored);
	write_one(page, "coronet_dns_unsent_total", NET_COUNTER,
		  "Answers that could not be sent.", sum->unsent);
	write_one(page, "coronet_dns_receive_errors_total", NET_COUNTER,
		  "Calls that failed to receive datagrams.",
		  sum->receive_errors);
	write_one(page, "coronet_dns_clients", NET_GAUGE,
		  "TCP connections now.", sum->clients);
	write_one(page, "coronet_dns_accepts_total", NET_COUNTER,
		  "TCP connections that were accepted.", sum->accepts);
}

static void write_metrics(struct net_metrics *page, void *arg)
{
	const struct dns_shard *shards = arg;
	struct dns_counters sum = {0};
	struct dns_loaded loaded = {0};

	for (unsigned i = 0; i < NET_MAX_SHARDS; i++)
		counters_sum(&sum, &shards[i].counters, sizeof(sum));
	write_shards(page, &sum);
	counters_sum(&loaded, &dns.loaded, sizeof(loaded));
	write_one(page, "coronet_dns_reloads_total", NET_COUNTER,
		  "Reloads of the zones.", loaded.reloads);
	write_one(page, "coronet_dns_failed_reloads_total", NET_COUNTER,
		  "Reloads that failed and changed nothing.",
		  loaded.failed_reloads);
	write_one(page, "coronet_dns_names", NET_GAUGE,
		  "Names in the zones, including empty names between others.",
		  loaded.names);
	write_one(page, "coronet_dns_records", NET_GAUGE,
		  "Records in the zones.", loaded.records);
}

int dns_metrics_add(const struct dns_shard *shards)
{
	return net_metrics_add(write_metrics, (void *)shards);
}
