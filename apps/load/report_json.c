/*
 * The JSON of a load run.
 */
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "apps/load/report_priv.h"

#define US(ns) ((double)(ns) / 1e3)

/* cJSON returns NULL without memory: `ok` collects that. */
static void add_number(cJSON *to, const char *key, double value, bool *ok)
{
	*ok &= cJSON_AddNumberToObject(to, key, value) != NULL;
}

static void add_string(cJSON *to, const char *key, const char *value, bool *ok)
{
	*ok &= cJSON_AddStringToObject(to, key, value) != NULL;
}

static void add_bool(cJSON *to, const char *key, bool value, bool *ok)
{
	*ok &= cJSON_AddBoolToObject(to, key, value) != NULL;
}

/* Adds a number, or null for what was not measured. */
static void add_known(cJSON *to, const char *key, bool known, double value,
		      bool *ok)
{
	if (known)
		add_number(to, key, value, ok);
	else
		*ok &= cJSON_AddNullToObject(to, key) != NULL;
}

static void add_errors(cJSON *root, const struct load_stats *stats, bool *ok)
{
	cJSON *errors = cJSON_AddObjectToObject(root, "errors");
	int i;

	*ok &= errors != NULL;
	add_number(errors, "total", (double)stats->error_count, ok);
	for (i = 0; i < LOAD_ERRORS; i++)
		add_number(errors, load_error_name((enum load_error)i),
			   (double)stats->errors[i], ok);
}

/* If figures are refused, all of them are null. */
static void add_latency(cJSON *root, const struct load_stats *stats, bool *ok)
{
	cJSON *latency = cJSON_AddObjectToObject(root, "latency_us");
	const struct hist *hist = &stats->total;
	bool refused = load_report_is_refused(stats);
	bool known = hist->count > 0 && !refused;
	size_t i;

	*ok &= latency != NULL;
	add_known(latency, "samples", !refused, (double)hist->count, ok);
	add_known(latency, "mean", known, hist_mean(hist) / 1e3, ok);
	add_known(latency, "min", known, US(hist->min), ok);
	add_known(latency, "max", known, US(hist->max), ok);
	for (i = 0; i < REPORT_PERCENTILES; i++)
		add_known(latency, report_percentiles[i].key, known,
			  US(hist_percentile(hist,
					     report_percentiles[i].percent)),
			  ok);
}

/* The open loop's lateness is the generator's own, and never refused. */
static void add_late(cJSON *root, const struct load_stats *stats, bool *ok)
{
	cJSON *late = cJSON_AddObjectToObject(root, "late_us");
	const struct hist *hist = &stats->late;
	bool known = hist->count > 0;
	size_t i;

	*ok &= late != NULL;
	add_known(late, "max", known, US(hist->max), ok);
	for (i = 0; i < REPORT_PERCENTILES; i++)
		add_known(late, report_percentiles[i].key, known,
			  US(hist_percentile(hist,
					     report_percentiles[i].percent)),
			  ok);
}

/* Adds why there are no figures, or null. */
static void add_refused(cJSON *root, const struct load_stats *stats, bool *ok)
{
	char *reason = NULL;
	size_t len;
	FILE *text;

	if (!load_report_is_refused(stats)) {
		*ok &= cJSON_AddNullToObject(root, "refused") != NULL;
		return;
	}
	text = open_memstream(&reason, &len);
	*ok &= text != NULL;
	if (!text)
		return;
	load_report_reason(stats, text);
	*ok &= fclose(text) == 0;
	if (*ok)
		add_string(root, "refused", reason, ok);
	free(reason);
}

char *load_report_json(const struct load_stats *stats)
{
	const struct load_opts *opts = stats->opts;
	double share = load_stats_busy_share(stats);
	double count = (double)report_requests(stats);
	double bytes = (double)stats->total_bytes;
	bool refused = load_report_is_refused(stats);
	cJSON *root = cJSON_CreateObject();
	bool ok = root != NULL;
	char *out = NULL;

	add_string(root, "tool", stats->tool, &ok);
	add_string(root, "version", opts_version(), &ok);
	add_string(root, "mode", load_mode_name(opts->mode), &ok);
	add_string(root, "target", opts->target_text, &ok);
	add_number(root, "conns", opts->conns, &ok);
	add_number(root, "size", opts->size, &ok);
	add_number(root, "rate", (double)opts->rate, &ok);
	add_bool(root, "verify", opts->verify, &ok);
	add_bool(root, "tls", opts->tls, &ok);
	add_number(root, "seconds", report_seconds(stats), &ok);
	add_bool(root, "interrupted", stats->interrupted, &ok);
	add_number(root, "opened", (double)stats->opened, &ok);
	add_number(root, "open_at_end", (double)stats->open, &ok);
	add_known(root, "opened_per_s", !refused, report_open_rate(stats), &ok);
	add_known(root, "answered_before", stats->asked_after,
		  (double)stats->answered_before, &ok);
	add_known(root, "answered_after", stats->asked_after,
		  (double)stats->answered_after, &ok);
	add_number(root, "resident_kib", (double)stats->memory.resident, &ok);
	add_number(root, "huge_kib", (double)stats->memory.huge, &ok);
	add_known(root, "requests", !refused, count, &ok);
	add_known(root, "requests_per_s", !refused,
		  report_per_second(stats, count), &ok);
	add_known(root, "bytes", !refused, bytes, &ok);
	add_known(root, "bytes_per_s", !refused,
		  report_per_second(stats, bytes), &ok);
	add_errors(root, stats, &ok);
	add_latency(root, stats, &ok);
	add_late(root, stats, &ok);
	add_known(root, "generator_busy", share >= 0, share, &ok);
	if (share >= 0)
		add_bool(root, "generator_limited",
			 load_stats_is_limited(stats), &ok);
	else
		ok &= cJSON_AddNullToObject(root, "generator_limited") != NULL;
	add_refused(root, stats, &ok);
	if (ok)
		out = cJSON_Print(root);
	cJSON_Delete(root);
	return out;
}
