/* The output of a load run: the progress line, the final text and the JSON. */
#include "apps/load/report_priv.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct report_percentile report_percentiles[REPORT_PERCENTILES] = {
	{"p50", "p50", 50},	 {"p90", "p90", 90},	     {"p99", "p99", 99},
	{"p999", "p99.9", 99.9}, {"p9999", "p99.99", 99.99},
};

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

double report_seconds(const struct load_stats *stats)
{
	return (double)(stats->measured_to_ns - stats->measured_from_ns) / 1e9;
}

double report_per_second(const struct load_stats *stats, double amount)
{
	double seconds = report_seconds(stats);

	return seconds > 0 ? amount / seconds : 0;
}

uint64_t report_requests(const struct load_stats *stats)
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

bool load_report_is_refused(const struct load_stats *stats)
{
	return load_stats_is_limited(stats) && !stats->opts->report_limited;
}

/* Returns the rate of this interval, in the mode's own measure. */
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

static void put_text(const struct load_stats *stats, const char *text,
		     size_t len)
{
	if (stats->put) {
		stats->put(text, len);
		return;
	}
	fwrite(text, 1, len, stderr);
	fflush(stderr);
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
	double share = load_stats_interval_share(stats, now_ns);
	char p99[64] = "", limited[32] = "", line[320], all[sizeof(line)];
	int width;

	if (stats->interval.count > 0)
		snprintf(p99, sizeof(p99), "  p99 %s",
			 as_time((double)hist_percentile(&stats->interval, 99))
				 .s);
	if (share >= LOAD_BUSY_LIMIT)
		snprintf(limited, sizeof(limited), "  generator %.0f %% busy",
			 share * 100);
	width = snprintf(
		line, sizeof(line) - 1,
		"%s%4.0f s  %s%s  %" PRIu64 " conns  %" PRIu64 " errors%s%s%s",
		stats->tty ? "\r" : "",
		(double)(now_ns - stats->start_ns) / 1e9, rate.s,
		units[stats->opts->mode], stats->open, stats->error_count, p99,
		limited, phases[stats->phase]);
	if (!stats->tty) {
		line[width] = '\n';
		put_text(stats, line, (size_t)width + 1);
		return;
	}
	/* Blanks out what a longer line before this one left. */
	width = snprintf(all, sizeof(all), "%-*s", stats->line_width, line);
	put_text(stats, all, (size_t)width);
	stats->line_width = width;
}

void load_progress_end(struct load_stats *stats)
{
	if (stats->line_width > 0)
		put_text(stats, "\n", 1);
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
	for (i = 0; i < REPORT_PERCENTILES; i++)
		fprintf(out, "%s %s  ", report_percentiles[i].label,
			as_time((double)hist_percentile(
					hist, report_percentiles[i].percent))
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
	const struct hist *late = &stats->late;

	if (share < 0)
		return;
	fprintf(out, "  %-12sbusy %.0f %% of one core", "generator",
		share * 100);
	if (late->count > 0)
		fprintf(out, ", late by itself p50 %s, p99 %s",
			as_time((double)hist_percentile(late, 50)).s,
			as_time((double)hist_percentile(late, 99)).s);
	fprintf(out, "%s\n",
		load_stats_is_limited(stats)
			? ": it was itself the limit, the server may be faster "
			  "and the latencies lower"
			: "");
}

double report_open_rate(const struct load_stats *stats)
{
	if (stats->opened_ns <= 0)
		return 0;
	return (double)stats->opened * 1e9 / (double)stats->opened_ns;
}

/*
 * A rate that most likely leaves the generator time to spare: four fifths of
 * what it achieved, to two digits.
 */
static double spare_rate(const struct load_stats *stats)
{
	double rate =
		report_per_second(stats, (double)report_requests(stats)) * 0.8;
	double unit = rate < 100 ? 1 : pow(10, floor(log10(rate)) - 1);

	return floor(rate / unit) * unit;
}

/* Says why there is no report, and what to do about it. */
static void text_refused(const struct load_stats *stats, FILE *out)
{
	const struct load_opts *opts = stats->opts;

	fprintf(out, "  %-12s", "no report");
	load_report_reason(stats, out);
	fprintf(out, "\n  %-12stry ", "");
	if (opts->mode == LOAD_IDLE)
		fputs("a longer --ramp", out);
	else if (opts->conns > 1)
		fputs("fewer --conns", out);
	else
		fputs("a larger --size", out);
	if (opts->mode == LOAD_ECHO || opts->mode == LOAD_CPS)
		fprintf(out, ", a --rate below %s",
			with_commas(spare_rate(stats)).s);
	fputs(", a core of its own or a second generator; --report-limited "
	      "reports in any case\n",
	      out);
}

/* "250/s", or "at least 250/s" if the generator was the limit. */
static struct text as_rate(const struct load_stats *stats, struct text amount)
{
	struct text out;

	snprintf(out.s, sizeof(out.s), "%s%.30s/s",
		 load_stats_is_limited(stats) ? "at least " : "", amount.s);
	return out;
}

static void text_idle(const struct load_stats *stats, FILE *out)
{
	struct text rate = as_rate(stats, with_commas(report_open_rate(stats)));

	fprintf(out, "  %-12s%s opened, %s%s%s open at the end\n",
		"connections", with_commas((double)stats->opened).s,
		load_report_is_refused(stats) ? "" : rate.s,
		load_report_is_refused(stats) ? "" : ", ",
		with_commas((double)stats->open).s);
	if (stats->asked_after)
		fprintf(out, "  %-12s%s before, %s after the time measured\n",
			"answered",
			with_commas((double)stats->answered_before).s,
			with_commas((double)stats->answered_after).s);
}

static void text_rates(const struct load_stats *stats, FILE *out)
{
	double bytes = report_per_second(stats, (double)stats->total_bytes);
	double count = (double)report_requests(stats);

	fprintf(out, "  %-12s%s, %s, %s %s\n",
		stats->opts->mode == LOAD_CPS ? "connects" : "requests",
		with_commas(count).s,
		as_rate(stats, with_commas(report_per_second(stats, count))).s,
		as_rate(stats, as_bytes(bytes)).s,
		stats->opts->http_path ? "received" : "in each direction");
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
	bool refused = load_report_is_refused(stats);

	text_head(stats, out);
	fprintf(out, "  %-12s%.2f s%s\n", "measured", report_seconds(stats),
		stats->interrupted ? ", interrupted" : "");
	if (refused)
		text_refused(stats, out);
	if (stats->opts->mode == LOAD_IDLE)
		text_idle(stats, out);
	else if (!refused)
		text_rates(stats, out);
	if (!refused)
		text_latency(stats, out);
	text_errors(stats, out);
	if (!refused)
		text_generator(stats, out);
	if (stats->opts->mode == LOAD_IDLE)
		text_memory(stats, out);
}

void load_report_reason(const struct load_stats *stats, FILE *out)
{
	fputs("the generator was itself the limit: ", out);
	if (load_stats_limit(stats) == LOAD_LIMIT_BUSY)
		fprintf(out, "busy %.0f %% of one core (limit %.0f %%)",
			load_stats_busy_share(stats) * 100,
			LOAD_BUSY_LIMIT * 100);
	else
		fprintf(out,
			"its own delays were %.0f %% of the latency (limit "
			"%.0f %%)",
			load_stats_late_share(stats) * 100,
			LOAD_LATE_LIMIT * 100);
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

/* Was something measured, and did nothing go wrong? */
static bool is_success(const struct load_stats *stats)
{
	if (stats->error_count > 0 || stats->opened == 0)
		return false;
	if (stats->asked_after && stats->answered_after < stats->opened)
		return false;
	if (stats->interrupted || stats->opts->mode == LOAD_IDLE)
		return true;
	return report_requests(stats) > 0;
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
	if (err < 0 || !is_success(stats))
		return 1;
	/* Idle mode is run for its counts, and these are there. */
	if (load_report_is_refused(stats) && stats->opts->mode != LOAD_IDLE)
		return LOAD_EXIT_REFUSED;
	return 0;
}
