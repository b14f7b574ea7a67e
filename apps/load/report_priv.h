/*
 * Definitions that the text (report.c) and the JSON (report_json.c) share.
 */
#pragma once

#include "apps/load/report.h"

/* The percentiles that are reported: p50, p90, p99, p99.9, p99.99. */
#define REPORT_PERCENTILES 5

struct report_percentile {
	const char *key;   /* in the JSON */
	const char *label; /* in the text */
	double percent;
};

extern const struct report_percentile report_percentiles[REPORT_PERCENTILES];

/* The duration of the measurement, in seconds. */
double report_seconds(const struct load_stats *stats);

/* An amount divided by that duration; 0 if nothing was measured. */
double report_per_second(const struct load_stats *stats, double amount);

/* The requests answered; in bulk mode, the writes whose bytes came back. */
uint64_t report_requests(const struct load_stats *stats);

/* Connections opened a second, over the whole opening. */
double report_open_rate(const struct load_stats *stats);
