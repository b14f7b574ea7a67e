#include "apps/common/report.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#define US(ns) ((double)(ns) / 1e3)

static const struct {
	const char *key;   /* in the JSON */
	const char *label; /* in the text */
	double percent;
} percentiles[] = {
	{"p50", "p50", 50},	 {"p90", "p90", 90},	     {"p99", "p99", 99},
	{"p999", "p99.9", 99.9}, {"p9999", "p99.99", 99.99},
};

#define PERCENTILES (sizeof(percentiles) / sizeof(percentiles[0]))

struct text {
	char s[48];
};

/* 1234567 as "1,234,567". */
static struct text with_commas(double value)
{
	struct text digits, out;
	size_t len, i, at = 0;

	snprintf(digits.s, sizeof(digits.s), "%.0f",
		 value < 1e15 ? value : 1e15);
	len = strlen(digits.s);
	for (i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0)
			out.s[at++] = ',';
		out.s[at++] = digits.s[i];
	}
	out.s[at] = '\0';
	return out;
}

/* Nanoseconds in the unit that reads best. */
static struct text as_time(double ns)
{
	struct text out;

	if (ns < 1e6)
		snprintf(out.s, sizeof(out.s), "%.*f us", ns < 1e5 ? 1 : 0,
			 ns / 1e3);
	else if (ns < 1e9)
		snprintf(out.s, sizeof(out.s), "%.*f ms", ns < 1e8 ? 2 : 0,
			 ns / 1e6);
	else
		snprintf(out.s, sizeof(out.s), "%.2f s", ns / 1e9);
	return out;
}

static struct text as_bytes(double bytes)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
	struct text out;
	size_t unit = 0;

	for (; bytes >= 1000 && unit < 4; unit++)
		bytes /= 1000;
	snprintf(out.s, sizeof(out.s), "%.*f %s", unit ? 1 : 0, bytes,
		 units[unit]);
	return out;
}

static double measured_s(const struct load_stats *stats)
{
	return (double)(stats->measured_to_ns - stats->measured_from_ns) / 1e9;
}

static double per_second(const struct load_stats *stats, double amount)
{
	double seconds = measured_s(stats);

	return seconds > 0 ? amount / seconds : 0;
}

/* In bulk mode nothing is asked: a request is one write that came back. */
static uint64_t requests(const struct load_stats *stats)
{
	switch (stats->opts->mode) {
	case LOAD_ECHO:
	case LOAD_CPS:
		return stats->total.count;
	case LOAD_BULK:
		return stats->total_bytes / stats->opts->size;
	case LOAD_IDLE:
		return 0;
	}
	__builtin_unreachable();
}

static bool is_generator_limited(const struct load_stats *stats)
{
	return load_stats_busy_share(stats) >= LOAD_BUSY_LIMIT;
}

/* What this interval did, in the mode's own measure. */
static struct text interval_rate(const struct load_stats *stats, double seconds)
{
	switch (stats->opts->mode) {
	case LOAD_ECHO:
	case LOAD_CPS:
		return with_commas((double)stats->interval.count / seconds);
	case LOAD_BULK:
		return as_bytes((double)stats->bytes / seconds);
	case LOAD_IDLE:
		return with_commas((double)stats->opened);
	}
	__builtin_unreachable();
}

void load_progress(struct load_stats *stats, int64_t now_ns)
{
	static const char *const phases[] = {
		[LOAD_OPENING] = " (opening)",
		[LOAD_WARMUP] = " (warm-up)",
		[LOAD_MEASURING] = "",
		[LOAD_DONE] = "",
	};
	static const char *const units[] = {
		[LOAD_ECHO] = " req/s",
		[LOAD_CPS] = " connects/s",
		[LOAD_IDLE] = " opened",
		[LOAD_BULK] = "/s",
	};
	double seconds = (double)(now_ns - stats->interval_start_ns) / 1e9;
	struct text rate = interval_rate(stats, seconds);
	char p99[64] = "";
	int width;

	if (stats->interval.count > 0)
		snprintf(p99, sizeof(p99), "  p99 %s",
			 as_time((double)hist_percentile(&stats->interval, 99))
				 .s);
	width = fprintf(stderr,
			"%s%4.0f s  %s%s  %" PRIu64 " conns  %" PRIu64
			" errors%s%s",
			stats->tty ? "\r" : "",
			(double)(now_ns - stats->start_ns) / 1e9, rate.s,
			units[stats->opts->mode], stats->open,
			stats->error_count, p99, phases[stats->phase]);
	if (!stats->tty) {
		fputc('\n', stderr);
		return;
	}
	/* Blanks out what a longer line before this one left. */
	if (width < stats->line_width)
		fprintf(stderr, "%*s", stats->line_width - width, "");
	stats->line_width = width;
	fflush(stderr);
}

void load_progress_end(struct load_stats *stats)
{
	if (stats->line_width > 0)
		fputc('\n', stderr);
	stats->line_width = 0;
}

static void text_head(const struct load_stats *stats, FILE *out)
{
	const struct load_opts *opts = stats->opts;

	fprintf(out, "%s: %s, %s connections", stats->tool,
		load_mode_name(opts->mode), with_commas(opts->conns).s);
	if (opts->mode != LOAD_IDLE)
		fprintf(out, ", %u B each time", opts->size);
	fprintf(out, ", to %s", opts->target_text);
	if (opts->rate)
		fprintf(out, ", open loop at %s/s",
			with_commas((double)opts->rate).s);
	fprintf(out, "%s\n", opts->verify ? ", verified" : "");
}

static void text_latency(const struct load_stats *stats, FILE *out)
{
	const struct hist *hist = &stats->total;
	size_t i;

	if (hist->count == 0)
		return;
	fprintf(out, "  %-12s",
		stats->opts->mode == LOAD_IDLE ? "connect" : "latency");
	for (i = 0; i < PERCENTILES; i++)
		fprintf(out, "%s %s  ", percentiles[i].label,
			as_time((double)hist_percentile(hist,
							percentiles[i].percent))
				.s);
	fprintf(out, "max %s\n", as_time((double)hist->max).s);
}

static void text_errors(const struct load_stats *stats, FILE *out)
{
	const char *separator = "";
	int i;

	fprintf(out, "  %-12s", "errors");
	for (i = 0; i < LOAD_ERRORS; i++) {
		if (stats->errors[i] == 0)
			continue;
		fprintf(out, "%s%s %s", separator,
			with_commas((double)stats->errors[i]).s,
			load_error_name((enum load_error)i));
		separator = ", ";
	}
	fprintf(out, "%s\n", *separator ? "" : "none");
}

static void text_generator(const struct load_stats *stats, FILE *out)
{
	double share = load_stats_busy_share(stats);

	if (share < 0)
		return;
	fprintf(out, "  %-12sbusy %.0f %% of one core%s\n", "generator",
		share * 100,
		is_generator_limited(stats)
			? ": it was itself the limit, the server may be faster"
			: "");
}

/* Connections opened a second, over the whole opening. */
static double open_rate(const struct load_stats *stats)
{
	if (stats->opened_ns <= 0)
		return 0;
	return (double)stats->opened * 1e9 / (double)stats->opened_ns;
}

static void text_idle(const struct load_stats *stats, FILE *out)
{
	fprintf(out, "  %-12s%s opened, %s/s, %s open at the end\n",
		"connections", with_commas((double)stats->opened).s,
		with_commas(open_rate(stats)).s,
		with_commas((double)stats->open).s);
	if (stats->asked_after)
		fprintf(out, "  %-12s%s before, %s after the time measured\n",
			"answered",
			with_commas((double)stats->answered_before).s,
			with_commas((double)stats->answered_after).s);
}

static void text_memory(const struct load_stats *stats, FILE *out)
{
	const struct sys_memory *memory = &stats->memory;

	if (!memory->resident)
		return;
	fprintf(out, "  %-12s%.1f MiB resident", "memory",
		(double)memory->resident / 1024);
	if (memory->huge)
		fprintf(out, " and %.1f MiB of hugepages",
			(double)memory->huge / 1024);
	fputs(" (the generator)\n", out);
}

void load_report_text(const struct load_stats *stats, FILE *out)
{
	double bytes = (double)stats->total_bytes;
	double count = (double)requests(stats);

	text_head(stats, out);
	fprintf(out, "  %-12s%.2f s%s\n", "measured", measured_s(stats),
		stats->interrupted ? ", interrupted" : "");
	if (stats->opts->mode == LOAD_IDLE)
		text_idle(stats, out);
	else
		fprintf(out, "  %-12s%s, %s/s, %s/s each way\n",
			stats->opts->mode == LOAD_CPS ? "connects" : "requests",
			with_commas(count).s,
			with_commas(per_second(stats, count)).s,
			as_bytes(per_second(stats, bytes)).s);
	text_latency(stats, out);
	text_errors(stats, out);
	text_generator(stats, out);
	if (stats->opts->mode == LOAD_IDLE)
		text_memory(stats, out);
}

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

/* A number, or null for what was not measured. */
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

static void add_latency(cJSON *root, const struct load_stats *stats, bool *ok)
{
	cJSON *latency = cJSON_AddObjectToObject(root, "latency_us");
	const struct hist *hist = &stats->total;
	bool known = hist->count > 0;
	size_t i;

	*ok &= latency != NULL;
	add_number(latency, "samples", (double)hist->count, ok);
	add_known(latency, "mean", known, hist_mean(hist) / 1e3, ok);
	add_known(latency, "min", known, US(hist->min), ok);
	add_known(latency, "max", known, US(hist->max), ok);
	for (i = 0; i < PERCENTILES; i++)
		add_known(latency, percentiles[i].key, known,
			  US(hist_percentile(hist, percentiles[i].percent)),
			  ok);
}

char *load_report_json(const struct load_stats *stats)
{
	const struct load_opts *opts = stats->opts;
	double share = load_stats_busy_share(stats);
	double count = (double)requests(stats);
	double bytes = (double)stats->total_bytes;
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
	add_number(root, "seconds", measured_s(stats), &ok);
	add_bool(root, "interrupted", stats->interrupted, &ok);
	add_number(root, "opened", (double)stats->opened, &ok);
	add_number(root, "open_at_end", (double)stats->open, &ok);
	add_number(root, "opened_per_s", open_rate(stats), &ok);
	add_known(root, "answered_before", stats->asked_after,
		  (double)stats->answered_before, &ok);
	add_known(root, "answered_after", stats->asked_after,
		  (double)stats->answered_after, &ok);
	add_number(root, "resident_kib", (double)stats->memory.resident, &ok);
	add_number(root, "huge_kib", (double)stats->memory.huge, &ok);
	add_number(root, "requests", count, &ok);
	add_number(root, "requests_per_s", per_second(stats, count), &ok);
	add_number(root, "bytes", bytes, &ok);
	add_number(root, "bytes_per_s", per_second(stats, bytes), &ok);
	add_errors(root, stats, &ok);
	add_latency(root, stats, &ok);
	add_known(root, "generator_busy", share >= 0, share, &ok);
	if (share >= 0)
		add_bool(root, "generator_limited", is_generator_limited(stats),
			 &ok);
	else
		ok &= cJSON_AddNullToObject(root, "generator_limited") != NULL;
	if (ok)
		out = cJSON_Print(root);
	cJSON_Delete(root);
	return out;
}

static int write_json(const struct load_stats *stats, FILE *to)
{
	char *json = load_report_json(stats);
	bool failed = true;

	if (json)
		failed = fprintf(to, "%s\n", json) < 0;
	free(json);
	failed |= fflush(to) != 0;
	if (to != stdout)
		failed |= fclose(to) != 0;
	if (failed)
		fprintf(stderr, "%s: cannot write the JSON: %s\n", stats->tool,
			strerror(errno));
	return failed ? -EIO : 0;
}

/* Something was measured, and nothing went wrong. */
static bool is_success(const struct load_stats *stats)
{
	if (stats->error_count > 0 || stats->opened == 0)
		return false;
	if (stats->asked_after && stats->answered_after < stats->opened)
		return false;
	if (stats->interrupted || stats->opts->mode == LOAD_IDLE)
		return true;
	return requests(stats) > 0;
}

int load_report(const struct load_stats *stats)
{
	FILE *json = stats->opts->json;
	int err = 0;

	assert(stats->phase == LOAD_DONE);
	if (json != stdout) {
		load_report_text(stats, stdout);
		fflush(stdout);
	}
	if (json)
		err = write_json(stats, json);
	return err == 0 && is_success(stats) ? 0 : 1;
}
