/*
 * What the text and the JSON of a run share: report.c, report_json.c.
 */
#pragma once

#include "apps/load/report.h"

/* Those that are shown: p50, p90, p99, p99.9, p99.99. */
#define REPORT_PERCENTILES 5

struct report_percentile {
	const char *key;   /* in the JSON */
	const char *label; /* in the text */
	double percent;
};

extern const struct report_percentile report_percentiles[REPORT_PERCENTILES];

/* The time measured. */
double report_seconds(const struct load_stats *stats);

/* An amount of the time measured as a rate; 0 when nothing was measured. */
double report_per_second(const struct load_stats *stats, double amount);

/* In bulk mode nothing is asked: a request is one write that came back. */
uint64_t report_requests(const struct load_stats *stats);

/* Connections opened a second, over the whole opening. */
double report_open_rate(const struct load_stats *stats);
